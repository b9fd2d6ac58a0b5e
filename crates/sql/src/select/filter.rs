//! Conditions that become part of a scan: of time its range, of tags its selectors, of fields a condition of the plan.

use model::{MatchOp, TimeRange};
use query::plan::{Expression, Operator, Plan, Scan, Selector};

use crate::expression::{Bound, Pattern};
use crate::scope::{Role, Scope};
use crate::time;
use crate::value::{SqlType, Value};

/// Conditions of a table's rows, as far as the plan can have them.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    /// On fields, all of which must hold.
    conditions: Vec<Expression>,
    /// What is left to be tried row by row.
    pub(crate) rest: Vec<Bound>,
}

impl Filter {
    /// Takes a condition apart.
    pub(crate) fn of(condition: Bound, scan: &mut Scan, scope: &Scope) -> Self {
        let mut filter = Self::default();
        for condition in conjuncts(condition) {
            if narrow_time(&condition, scan, scope) || select_tag(&condition, scan, scope) {
                continue;
            }
            match on_fields(&condition, scope) {
                Some(condition) => filter.conditions.push(condition),
                None => filter.rest.push(condition),
            }
        }
        filter
    }

    /// The scan with the conditions on fields.
    pub(crate) fn plan(&self, scan: Scan) -> Plan {
        let scan = Plan::Scan(scan);
        match self.conditions.as_slice() {
            [] => scan,
            [condition] => Plan::Where { input: Box::new(scan), condition: condition.clone() },
            conditions => {
                let condition = Expression::Apply(Operator::And, conditions.to_vec());
                Plan::Where { input: Box::new(scan), condition }
            }
        }
    }

    /// Whether fields have no say.
    pub(crate) const fn is_of_series(&self) -> bool {
        self.conditions.is_empty() && self.rest.is_empty()
    }
}

pub(super) fn conjuncts(condition: Bound) -> Vec<Bound> {
    match condition {
        Bound::And(all) => all.into_iter().flat_map(conjuncts).collect(),
        other => vec![other],
    }
}

/// A comparison of a column with a value, the column first.
fn comparison(condition: &Bound) -> Option<(usize, &'static str, &Value)> {
    let Bound::Call(function, of) = condition else { return None };
    match of.as_slice() {
        [Bound::Column(place), Bound::Constant(value)] => Some((*place, function.name, value)),
        [Bound::Constant(value), Bound::Column(place)] => {
            let mirrored = match function.name {
                "<" => ">",
                "<=" => ">=",
                ">" => "<",
                ">=" => "<=",
                "=" => "=",
                "<>" => "<>",
                _ => return None,
            };
            Some((*place, mirrored, value))
        }
        _ => None,
    }
}

fn role(scope: &Scope, place: usize) -> Option<Role> {
    scope.columns.get(place).map(|column| column.role)
}

fn narrow_time(condition: &Bound, scan: &mut Scan, scope: &Scope) -> bool {
    let Some((place, operator, value)) = comparison(condition) else { return false };
    if role(scope, place) != Some(Role::Time) {
        return false;
    }
    let ns = match value {
        Value::Timestamp(ns) | Value::Int(ns) => Some(*ns),
        Value::Text(text) => time::parse(text),
        _ => None,
    };
    let Some(ns) = ns else { return false };
    let range = match operator {
        ">=" => TimeRange { start_ns: ns, end_ns: i64::MAX },
        ">" => TimeRange { start_ns: ns.saturating_add(1), end_ns: i64::MAX },
        "<=" => TimeRange { start_ns: i64::MIN, end_ns: ns },
        "<" => TimeRange { start_ns: i64::MIN, end_ns: ns.saturating_sub(1) },
        "=" => TimeRange { start_ns: ns, end_ns: ns },
        _ => return false,
    };
    scan.range.start_ns = scan.range.start_ns.max(range.start_ns);
    scan.range.end_ns = scan.range.end_ns.min(range.end_ns);
    true
}

/// A tag that is not there is null: no comparison holds for it.
fn select_tag(condition: &Bound, scan: &mut Scan, scope: &Scope) -> bool {
    let Some((place, op, values)) = tag_condition(condition) else { return false };
    let Some(column) = scope.columns.get(place).filter(|column| column.role == Role::Tag) else { return false };
    if values.is_empty() || values.iter().any(String::is_empty) {
        return false;
    }
    let is_negative = matches!(op, MatchOp::NotEqual | MatchOp::NotRegex);
    scan.selectors.push(Selector { name: column.name.clone(), op, values });
    if is_negative {
        scan.selectors.push(Selector { name: column.name.clone(), op: MatchOp::NotEqual, values: vec![String::new()] });
    }
    true
}

fn tag_condition(condition: &Bound) -> Option<(usize, MatchOp, Vec<String>)> {
    let text = |value: &Value| match value {
        Value::Text(text) => Some(text.to_string()),
        _ => None,
    };
    match condition {
        Bound::Call(..) => {
            let (place, operator, value) = comparison(condition)?;
            let op = match operator {
                "=" => MatchOp::Equal,
                "<>" => MatchOp::NotEqual,
                _ => return None,
            };
            Some((place, op, vec![text(value)?]))
        }
        Bound::In { of, list, is_negated } => {
            let Bound::Column(place) = **of else { return None };
            let value = |item: &Bound| match item {
                Bound::Constant(value) => text(value),
                _ => None,
            };
            let values = list.iter().map(value).collect::<Option<_>>()?;
            Some((place, if *is_negated { MatchOp::NotEqual } else { MatchOp::Equal }, values))
        }
        Bound::Matches { of, pattern: Pattern::Compiled(regex), is_negated } => {
            let Bound::Column(place) = **of else { return None };
            // A matcher is of whole values.
            let whole = match regex.as_str().strip_prefix("(?s)^").and_then(|rest| rest.strip_suffix('$')) {
                Some(pattern) => format!("(?s:{pattern})"),
                None => format!("(?s:.*(?:{}).*)", regex.as_str()),
            };
            // What a pattern says of case is not in its text, and an empty value would be a missing tag.
            if regex.as_str().contains(['^', '$']) && !regex.as_str().starts_with("(?s)^") || regex.is_match("") {
                return None;
            }
            Some((place, if *is_negated { MatchOp::NotRegex } else { MatchOp::Regex }, vec![whole]))
        }
        Bound::Or(of) => {
            let (mut place, mut values) = (None, Vec::new());
            for condition in of {
                let (found, op, more) = tag_condition(condition)?;
                if op != MatchOp::Equal || *place.get_or_insert(found) != found {
                    return None;
                }
                values.extend(more);
            }
            Some((place?, MatchOp::Equal, values))
        }
        _ => None,
    }
}

/// Comparisons of fields with values of their kind, put together by `AND` and `OR`.
fn on_fields(condition: &Bound, scope: &Scope) -> Option<Expression> {
    match condition {
        Bound::And(of) => {
            Some(Expression::Apply(Operator::And, of.iter().map(|of| on_fields(of, scope)).collect::<Option<_>>()?))
        }
        Bound::Or(of) => {
            Some(Expression::Apply(Operator::Or, of.iter().map(|of| on_fields(of, scope)).collect::<Option<_>>()?))
        }
        _ => {
            let (place, operator, value) = comparison(condition)?;
            let column = scope.columns.get(place).filter(|column| column.role == Role::Field)?;
            let operator = match operator {
                "<" => Operator::Less,
                "<=" => Operator::LessOrEqual,
                ">" => Operator::Greater,
                ">=" => Operator::GreaterOrEqual,
                "=" => Operator::Equal,
                "<>" => Operator::NotEqual,
                _ => return None,
            };
            let value = match (column.sql_type, value) {
                (SqlType::Float | SqlType::Int, Value::Int(value)) => Expression::Integer(*value),
                (SqlType::Float | SqlType::Int, Value::Float(value)) if !value.is_nan() => Expression::Float(*value),
                (SqlType::Text, Value::Text(text)) => Expression::Text(text.to_string()),
                _ => return None,
            };
            Some(Expression::Apply(operator, vec![Expression::Column(column.name.clone()), value]))
        }
    }
}
