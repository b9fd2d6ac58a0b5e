//! Operators between two expressions.

use std::collections::HashMap;

use model::{Labels, METRIC_NAME};
use query::QueryError;

use crate::ast::{Arithmetic, Binary, Cardinality, Comparison, Matching, Operator, SetOperation};
use crate::eval::{Computed, Evaluator};
use crate::rows::{ABSENT, Charge, Row, Steps, Vector, is_metadata_label};

impl Arithmetic {
    fn apply(self) -> fn(f64, f64) -> f64 {
        match self {
            Self::Add => |a, b| a + b,
            Self::Subtract => |a, b| a - b,
            Self::Multiply => |a, b| a * b,
            Self::Divide => |a, b| a / b,
            Self::Modulo => |a, b| a % b,
            Self::Power => f64::powf,
            Self::Atan2 => f64::atan2,
        }
    }
}

impl Comparison {
    #[expect(clippy::float_cmp, reason = "PromQL compares exactly")]
    fn holds(self) -> fn(f64, f64) -> bool {
        match self {
            Self::Equal => |a, b| a == b,
            Self::NotEqual => |a, b| a != b,
            Self::Greater => |a, b| a > b,
            Self::Less => |a, b| a < b,
            Self::GreaterOrEqual => |a, b| a >= b,
            Self::LessOrEqual => |a, b| a <= b,
        }
    }
}

/// An operator ready to be applied to samples.
#[derive(Clone, Copy)]
enum Applied {
    Value(fn(f64, f64) -> f64),
    /// Keeps the left value where it holds.
    Filter(fn(f64, f64) -> bool),
    /// 1 where it holds, else 0.
    Test(fn(f64, f64) -> bool),
}

impl Applied {
    fn new(operator: Operator, return_bool: bool) -> Result<Self, QueryError> {
        match operator {
            Operator::Arithmetic(arithmetic) => Ok(Self::Value(arithmetic.apply())),
            Operator::Comparison(comparison) if return_bool => Ok(Self::Test(comparison.holds())),
            Operator::Comparison(comparison) => Ok(Self::Filter(comparison.holds())),
            Operator::Set(_) => Err(QueryError::Execution("set operators need two instant vectors".to_owned())),
        }
    }

    /// The result, or [`ABSENT`].
    fn apply(self, left: f64, right: f64) -> f64 {
        self.apply_keeping(left, right, left)
    }

    /// As [`Self::apply`], but a filter keeps the given value.
    fn apply_keeping(self, left: f64, right: f64, kept: f64) -> f64 {
        match self {
            Self::Value(value) => value(left, right),
            Self::Filter(holds) if holds(left, right) => kept,
            Self::Filter(_) => ABSENT,
            Self::Test(holds) => f64::from(u8::from(holds(left, right))),
        }
    }

    /// Whether the result is another metric.
    const fn changes_metric(self) -> bool {
        !matches!(self, Self::Filter(_))
    }
}

impl<'q> Evaluator<'q> {
    pub(crate) fn binary(&self, binary: &Binary, steps: Steps) -> Result<Computed<'q>, QueryError> {
        let left = self.compute(&binary.left, steps)?;
        let right = self.compute(&binary.right, steps)?;
        match (left, right) {
            (Computed::Scalar(left), Computed::Scalar(right)) => {
                let applied = Applied::new(binary.operator, true)?;
                let values = left.iter().zip(&right).map(|(left, right)| applied.apply(*left, *right));
                Ok(Computed::Scalar(values.collect()))
            }
            (Computed::Vector(vector), Computed::Scalar(scalar)) => {
                let applied = Applied::new(binary.operator, binary.return_bool)?;
                with_scalar(vector, applied, |step, value| applied.apply(value, at(&scalar, step)))
            }
            (Computed::Scalar(scalar), Computed::Vector(vector)) => {
                let applied = Applied::new(binary.operator, binary.return_bool)?;
                with_scalar(vector, applied, |step, value| applied.apply_keeping(at(&scalar, step), value, value))
            }
            (Computed::Vector(left), Computed::Vector(right)) => {
                let result = match binary.operator {
                    Operator::Set(operation) => self.set(operation, &binary.matching, left, right, steps.count),
                    _ => self.join(binary, left, right, steps.count),
                };
                result.map(Computed::Vector)
            }
        }
    }

    fn set(
        &self,
        operation: SetOperation,
        matching: &Matching,
        mut left: Vector<'q>,
        mut right: Vector<'q>,
        steps: usize,
    ) -> Result<Vector<'q>, QueryError> {
        let matches = Matches::find(matching, &left.rows, &right.rows);
        if operation == SetOperation::Or {
            let presence = self.presence(&matches.left, &left.rows, steps)?;
            self.keep_where(&mut right, &matches.right, &presence, false)?;
            for row in right.rows.drain(..) {
                left.push(row)?;
            }
            left.join_same_labels()?;
            return Ok(left);
        }
        let presence = self.presence(&matches.right, &right.rows, steps)?;
        self.keep_where(&mut left, &matches.left, &presence, operation == SetOperation::And)?;
        Ok(left)
    }

    /// For each signature, the steps at which a row has a value.
    fn presence(&self, signatures: &[usize], rows: &[Row], steps: usize) -> Result<Presence<'q>, QueryError> {
        let mut presence = Presence { steps: HashMap::new(), charge: Charge::none(self.budget) };
        for (signature, row) in signatures.iter().zip(rows) {
            self.budget.check()?;
            if !presence.steps.contains_key(signature) {
                presence.charge.add(flags_charge(steps))?;
            }
            let seen = presence.steps.entry(*signature).or_insert_with(|| vec![false; steps]);
            for (step, _) in row.present() {
                if let Some(seen) = seen.get_mut(step) {
                    *seen = true;
                }
            }
        }
        Ok(presence)
    }

    /// Keeps the samples whose signature is present (or not present) on the other side.
    fn keep_where(
        &self,
        vector: &mut Vector<'q>,
        signatures: &[usize],
        presence: &Presence<'q>,
        wanted: bool,
    ) -> Result<(), QueryError> {
        for (signature, row) in signatures.iter().zip(&mut vector.rows) {
            self.budget.check()?;
            let seen = presence.steps.get(signature);
            row.map(|step, value| {
                let present = seen.and_then(|seen| seen.get(step)).copied().unwrap_or_default();
                if present == wanted { value } else { ABSENT }
            });
        }
        vector.rows.retain(|row| !row.is_empty());
        Ok(())
    }

    /// Arithmetic and comparison between vectors.
    fn join(
        &self,
        binary: &Binary,
        left: Vector<'q>,
        right: Vector<'q>,
        steps: usize,
    ) -> Result<Vector<'q>, QueryError> {
        let applied = Applied::new(binary.operator, binary.return_bool)?;
        let matching = &binary.matching;
        let swapped = matching.cardinality == Cardinality::OneToMany;
        let (many, one) = if swapped { (right, left) } else { (left, right) };
        let matches = Matches::find(matching, &many.rows, &one.rows);
        let one_rows = rows_by_signature(&matches.right);
        let many_rows = rows_by_signature(&matches.left);
        check_one_side(matching, &many, &one.rows, &one_rows, steps)?;
        let mut taken = Taken { matching, steps, places: HashMap::new(), charge: Charge::none(self.budget) };
        let mut vector = Vector::empty(self.budget);
        for (signature, many_row) in matches.left.iter().zip(&many.rows) {
            self.budget.check()?;
            let alone = many_rows.get(signature).is_none_or(|rows| rows.len() == 1);
            for one_row in one_rows.get(signature).into_iter().flatten().filter_map(|place| one.rows.get(*place)) {
                let mut row = Row::new(result_labels(&many_row.labels, &one_row.labels, applied, matching));
                for step in many_row.first.max(one_row.first)..many_row.end().min(one_row.end()) {
                    let (Some(many), Some(one)) = (many_row.get(step), one_row.get(step)) else { continue };
                    if !alone {
                        taken.take(*signature, &row.labels, step)?;
                    }
                    row.push(step, if swapped { applied.apply(one, many) } else { applied.apply(many, one) });
                }
                vector.push(row)?;
            }
        }
        vector.join_same_labels()?;
        Ok(vector)
    }
}

/// For each signature, the steps at which a row has a value.
struct Presence<'b> {
    steps: HashMap<usize, Vec<bool>>,
    charge: Charge<'b>,
}

/// What a flag per step costs, in samples of eight bytes.
const fn flags_charge(steps: usize) -> usize {
    steps.div_ceil(8)
}

fn at(scalar: &[f64], step: usize) -> f64 {
    scalar.get(step).copied().unwrap_or(f64::NAN)
}

fn with_scalar(
    mut vector: Vector<'_>,
    applied: Applied,
    change: impl FnMut(usize, f64) -> f64,
) -> Result<Computed<'_>, QueryError> {
    vector.map(change)?;
    if applied.changes_metric() {
        vector.drop_names()?;
    }
    Ok(Computed::Vector(vector))
}

/// The signatures of the rows on both sides, numbered: equal numbers match.
struct Matches {
    left: Vec<usize>,
    right: Vec<usize>,
}

impl Matches {
    fn find(matching: &Matching, left: &[Row], right: &[Row]) -> Self {
        let mut numbers: HashMap<Labels, usize> = HashMap::new();
        let mut number = |row: &Row| {
            let next = numbers.len();
            *numbers.entry(signature(matching, &row.labels)).or_insert(next)
        };
        Self { left: left.iter().map(&mut number).collect(), right: right.iter().map(&mut number).collect() }
    }
}

/// The labels by which series match.
fn signature(matching: &Matching, labels: &Labels) -> Labels {
    let named = |name: &str| matching.labels.iter().any(|label| label == name);
    if matching.on { labels.retain(named) } else { labels.retain(|name| name != METRIC_NAME && !named(name)) }
}

fn rows_by_signature(signatures: &[usize]) -> HashMap<usize, Vec<usize>> {
    let mut rows: HashMap<usize, Vec<usize>> = HashMap::new();
    for (place, signature) in signatures.iter().enumerate() {
        rows.entry(*signature).or_default().push(place);
    }
    rows
}

/// On the "one" side, no two series of a signature may have a value at the same step, unless there is nothing to match
/// them with.
fn check_one_side(
    matching: &Matching,
    many: &Vector<'_>,
    one: &[Row],
    one_rows: &HashMap<usize, Vec<usize>>,
    steps: usize,
) -> Result<(), QueryError> {
    let mut crowded: Vec<&Vec<usize>> = one_rows.values().filter(|rows| rows.len() > 1).collect();
    if crowded.is_empty() {
        return Ok(());
    }
    // Which pair is reported must not hang on the order of a hash map.
    crowded.sort();
    let occupied = many.occupied(steps);
    for rows in crowded {
        let mut owners: Vec<Option<&Row>> = vec![None; steps];
        for row in rows.iter().filter_map(|place| one.get(*place)) {
            for (step, _) in row.present().filter(|(step, _)| occupied.get(*step).copied().unwrap_or_default()) {
                let Some(owner) = owners.get_mut(step) else { continue };
                if let Some(earlier) = owner.replace(row) {
                    return Err(duplicate(matching, row, earlier));
                }
            }
        }
    }
    Ok(())
}

fn duplicate(matching: &Matching, row: &Row, earlier: &Row) -> QueryError {
    let side = if matching.cardinality == Cardinality::OneToMany { "left" } else { "right" };
    let group = signature(matching, &row.labels);
    QueryError::Execution(format!(
        "found duplicate series for the match group {group} on the {side} hand-side of the operation: [{}, {}];\
         many-to-many matching not allowed: matching labels must be unique on one side",
        row.labels, earlier.labels
    ))
}

/// Which results are there already, for signatures with several series on the "many" side.
struct Taken<'a> {
    matching: &'a Matching,
    steps: usize,
    places: HashMap<(usize, Labels), Vec<bool>>,
    charge: Charge<'a>,
}

impl Taken<'_> {
    fn take(&mut self, signature: usize, result: &Labels, step: usize) -> Result<(), QueryError> {
        let one_to_one = self.matching.cardinality == Cardinality::OneToOne;
        let key = (signature, if one_to_one { Labels::empty() } else { result.clone() });
        if !self.places.contains_key(&key) {
            self.charge.add(flags_charge(self.steps))?;
        }
        let taken = self.places.entry(key).or_insert_with(|| vec![false; self.steps]);
        let Some(taken) = taken.get_mut(step) else { return Ok(()) };
        if !std::mem::replace(taken, true) {
            return Ok(());
        }
        Err(QueryError::Execution(if one_to_one {
            "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)".to_owned()
        } else {
            "multiple matches for labels: grouping labels must ensure unique matches".to_owned()
        }))
    }
}

/// The labels of a result, by those of both sides.
fn result_labels(many: &Labels, one: &Labels, applied: Applied, matching: &Matching) -> Labels {
    let one_to_one = matching.cardinality == Cardinality::OneToOne;
    let labels = many.retain(|name| {
        let named = || matching.labels.iter().any(|label| label == name);
        let dropped = matches!(applied, Applied::Value(_) | Applied::Test(_)) && is_metadata_label(name);
        !dropped && (!one_to_one || named() == matching.on)
    });
    let labels = matching
        .include
        .iter()
        .fold(labels, |labels, include| labels.with(include, one.get(include).unwrap_or_default()));
    if matches!(applied, Applied::Test(_)) { labels.retain(|name| !is_metadata_label(name)) } else { labels }
}
