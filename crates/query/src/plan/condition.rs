//! Conditions of languages, taken apart: comparisons of the time narrow a scan's range, conditions on one tag select series, comparisons of
//! fields become part of the plan, and the language tries what is left row by row.

use model::{MatchOp, TimeRange};

use super::{Expression, Operator, Plan, Scan, Selector};

/// A condition that a scan or a plan can have.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    /// All must hold.
    All(Vec<Self>),
    /// One must hold.
    Any(Vec<Self>),
    /// The rows' time compared with a moment, in nanoseconds since the Unix epoch.
    Time(Operator, i64),
    /// A condition on a tag.
    Tag(Selector),
    /// A condition on fields.
    Fields(Expression),
}

/// The value of a tag in rows of series that do not have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissingTag {
    /// Null: no comparison holds for it.
    Null,
    /// The empty text.
    Empty,
}

/// Conditions on the rows of a scan, all of which must hold, beside those that are part of the scan.
#[derive(Debug, Clone)]
pub struct Lowered<R> {
    /// Those that the plan tries.
    pub conditions: Vec<Expression>,
    /// Those that the language has to try row by row.
    pub rest: Vec<R>,
}

impl<R> Default for Lowered<R> {
    fn default() -> Self {
        Self { conditions: Vec::new(), rest: Vec::new() }
    }
}

impl<R> Lowered<R> {
    /// Takes conditions apart, given what each of them is to a plan, if it is anything.
    pub fn new(
        conjuncts: impl IntoIterator<Item = R>,
        scan: &mut Scan,
        missing: MissingTag,
        translate: impl Fn(&R) -> Option<Condition>,
    ) -> Self {
        let mut lowered = Self::default();
        for conjunct in conjuncts {
            match translate(&conjunct) {
                Some(condition) if scan.narrow(&condition, missing) => {}
                condition => match condition.and_then(Condition::into_expression) {
                    Some(expression) => lowered.conditions.push(expression),
                    None => lowered.rest.push(conjunct),
                },
            }
        }
        lowered
    }

    /// Returns whether the scan has all conditions.
    pub const fn is_in_scan(&self) -> bool {
        self.conditions.is_empty() && self.rest.is_empty()
    }

    /// The scan with the conditions that the plan tries.
    pub fn plan(&self, scan: Scan) -> Plan {
        Plan::Scan(scan).filtered(&self.conditions)
    }
}

impl Plan {
    /// Its rows for which all of some conditions hold; itself if there are none.
    #[must_use]
    pub fn filtered(self, conditions: &[Expression]) -> Self {
        let condition = match conditions {
            [] => return self,
            [condition] => condition.clone(),
            conditions => Expression::Apply(Operator::And, conditions.to_vec()),
        };
        Self::Where { input: Box::new(self), condition }
    }
}

impl Condition {
    /// The selector of the series for whose rows it holds, if it is of one tag.
    pub fn selector(&self) -> Option<Selector> {
        match self {
            Self::Tag(selector) => Some(selector.clone()),
            Self::Any(conditions) => {
                let mut all: Option<Selector> = None;
                for condition in conditions {
                    let next = condition.selector().filter(|next| next.op == MatchOp::Equal)?;
                    match &mut all {
                        None => all = Some(next),
                        Some(all) if all.name == next.name => all.values.extend(next.values),
                        Some(_) => return None,
                    }
                }
                all
            }
            _ => None,
        }
    }

    /// The expression of a plan that it is, if it is of fields alone.
    fn into_expression(self) -> Option<Expression> {
        let each = |all: Vec<Self>| all.into_iter().map(Self::into_expression).collect::<Option<Vec<_>>>();
        match self {
            Self::All(all) => Some(Expression::Apply(Operator::And, each(all)?)),
            Self::Any(all) => Some(Expression::Apply(Operator::Or, each(all)?)),
            Self::Fields(expression) => Some(expression),
            Self::Time(..) | Self::Tag(_) => None,
        }
    }
}

impl Scan {
    /// Makes a condition part of the scan; if it cannot be, returns `false` and leaves the scan as it is.
    pub fn narrow(&mut self, condition: &Condition, missing: MissingTag) -> bool {
        match condition {
            Condition::Time(operator, ns) => {
                let range = operator.time_range(*ns);
                range.map(|range| self.narrow_time(&range)).is_some()
            }
            Condition::All(all) => {
                let mut tried = self.clone();
                let is_narrowed = all.iter().all(|condition| tried.narrow(condition, missing));
                if is_narrowed {
                    *self = tried;
                }
                is_narrowed
            }
            other => other.selector().is_some_and(|selector| self.select(selector, missing)),
        }
    }

    fn narrow_time(&mut self, range: &TimeRange) {
        self.range.start_ns = self.range.start_ns.max(range.start_ns);
        self.range.end_ns = self.range.end_ns.min(range.end_ns);
    }

    fn select(&mut self, selector: Selector, missing: MissingTag) -> bool {
        if missing == MissingTag::Empty {
            self.selectors.push(selector);
            return true;
        }
        // To selectors a tag that is not there is an empty one.
        if selector.values.is_empty() || selector.values.iter().any(String::is_empty) {
            return false;
        }
        let is_negative = matches!(selector.op, MatchOp::NotEqual | MatchOp::NotRegex);
        let exists = Selector { op: MatchOp::NotEqual, values: vec![String::new()], ..selector.clone() };
        self.selectors.push(selector);
        self.selectors.extend(is_negative.then_some(exists));
        true
    }
}

impl Operator {
    /// The operator with its two sides swapped; `None` if it is no comparison.
    pub const fn mirrored(self) -> Option<Self> {
        match self {
            Self::Less => Some(Self::Greater),
            Self::LessOrEqual => Some(Self::GreaterOrEqual),
            Self::Greater => Some(Self::Less),
            Self::GreaterOrEqual => Some(Self::LessOrEqual),
            Self::Equal | Self::NotEqual => Some(self),
            _ => None,
        }
    }

    /// The times of which a comparison with a moment holds; `None` if they are no range, or none at all.
    pub fn time_range(self, ns: i64) -> Option<TimeRange> {
        match self {
            Self::Less => Some(TimeRange::new(i64::MIN, ns.checked_sub(1)?)),
            Self::LessOrEqual => Some(TimeRange::new(i64::MIN, ns)),
            Self::Greater => Some(TimeRange::new(ns.checked_add(1)?, i64::MAX)),
            Self::GreaterOrEqual => Some(TimeRange::new(ns, i64::MAX)),
            Self::Equal => Some(TimeRange::new(ns, ns)),
            _ => None,
        }
    }
}
