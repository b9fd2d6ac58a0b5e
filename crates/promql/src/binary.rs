//! Operators between two expressions.

use std::cell::Cell;
use std::collections::HashMap;

use model::{Labels, METRIC_NAME};
use query::QueryError;

use crate::eval::{Computed, Evaluator};
use crate::histogram::{CounterReset, Histogram};
use crate::notes::{HistogramOperation, Notes};
use crate::rows::{Charge, Row, Sample, Steps, Vector, is_metadata_label};
use crate::syntax::ast::{Arithmetic, Binary, Cardinality, Comparison, Matching, Operator, SetOperation};
use crate::syntax::span::Span;

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

/// What an operator makes of two values.
enum Outcome {
    /// The value, and whether a filter keeps it.
    Value(Sample, bool),
    /// The operator knows no such values.
    Nothing,
}

/// What is to be told of a pair of values.
#[derive(Debug, Clone, Copy)]
enum PairNote {
    Types(&'static str, &'static str),
    Buckets,
    ResetConflict(HistogramOperation),
    Reconciled(HistogramOperation),
}

/// An operator with what it needs to tell of values that it does not know.
struct Applied<'a> {
    /// Of the last pair.
    note: Cell<Option<PairNote>>,
    operator: Operator,
    return_bool: bool,
    notes: &'a Notes,
    span: Span,
}

impl Applied<'_> {
    /// Whether the result is another metric.
    const fn changes_metric(&self) -> bool {
        matches!(self.operator, Operator::Arithmetic(_))
    }

    fn unknown(&self, left: &Sample, right: &Sample) -> Outcome {
        self.note.set(Some(PairNote::Types(left.kind(), right.kind())));
        Outcome::Nothing
    }

    fn apply(&self, left: &Sample, right: &Sample) -> Outcome {
        match (left, right) {
            (Sample::Float(a), Sample::Float(b)) => match self.operator {
                Operator::Arithmetic(arithmetic) => Outcome::Value(Sample::Float(arithmetic.apply()(*a, *b)), true),
                Operator::Comparison(comparison) => Outcome::Value(Sample::Float(*a), comparison.holds()(*a, *b)),
                _ => self.unknown(left, right),
            },
            (Sample::Float(factor), Sample::Histogram(histogram)) => match self.operator {
                Operator::Arithmetic(Arithmetic::Multiply) => scaled(histogram, |result| result.multiply(*factor)),
                _ => self.unknown(left, right),
            },
            (Sample::Histogram(histogram), Sample::Float(value)) => match self.operator {
                Operator::Arithmetic(Arithmetic::Multiply) => scaled(histogram, |result| result.multiply(*value)),
                Operator::Arithmetic(Arithmetic::Divide) => scaled(histogram, |result| result.divide(*value)),
                Operator::Trim { upper } => {
                    let mut result = Histogram::clone(histogram);
                    result.trim(*value, upper);
                    Outcome::Value(result.into(), true)
                }
                _ => self.unknown(left, right),
            },
            (Sample::Histogram(a), Sample::Histogram(b)) => match self.operator {
                Operator::Arithmetic(Arithmetic::Add) => self.combined(a, b, HistogramOperation::Addition),
                Operator::Arithmetic(Arithmetic::Subtract) => self.combined(a, b, HistogramOperation::Subtraction),
                Operator::Comparison(Comparison::Equal) => Outcome::Value(left.clone(), a.same_data(b)),
                Operator::Comparison(Comparison::NotEqual) => Outcome::Value(left.clone(), !a.same_data(b)),
                _ => self.unknown(left, right),
            },
        }
    }

    /// The sum or the difference of two histograms.
    fn combined(&self, left: &Histogram, right: &Histogram, operation: HistogramOperation) -> Outcome {
        let mut result = left.clone();
        let settled = match operation {
            HistogramOperation::Subtraction => result.subtract(right),
            _ => result.add(right),
        };
        let Ok(settled) = settled else {
            self.note.set(Some(PairNote::Buckets));
            return Outcome::Nothing;
        };
        if settled.reset_conflict {
            // As Prometheus: there is no result then.
            self.note.set(Some(PairNote::ResetConflict(operation)));
            return Outcome::Nothing;
        }
        if settled.bounds_reconciled {
            self.note.set(Some(PairNote::Reconciled(operation)));
        }
        if operation == HistogramOperation::Subtraction {
            result.hint = CounterReset::Gauge;
        }
        result.compact();
        Outcome::Value(result.into(), true)
    }

    fn tell(&self, note: Option<PairNote>) {
        match note {
            None => {}
            Some(PairNote::Types(left, right)) => {
                self.notes.incompatible_types(left, self.operator.name(), right, self.span);
            }
            Some(PairNote::Buckets) => self.notes.incompatible_buckets(self.operator.name(), self.span),
            Some(PairNote::ResetConflict(operation)) => self.notes.reset_conflict(operation, self.span),
            Some(PairNote::Reconciled(operation)) => self.notes.bounds_reconciled(operation, self.span),
        }
    }

    /// The result of two values; a filter keeps the left one. Nothing, if there is none.
    fn result(&self, left: &Sample, right: &Sample) -> Option<Sample> {
        let outcome = self.apply(left, right);
        self.tell(self.note.take());
        match outcome {
            Outcome::Nothing => None,
            Outcome::Value(_, keep) if self.return_bool => Some(Sample::Float(f64::from(u8::from(keep)))),
            Outcome::Value(sample, keep) => keep.then_some(sample),
        }
    }
}

fn scaled(histogram: &Histogram, scale: impl FnOnce(&mut Histogram)) -> Outcome {
    let mut result = histogram.clone();
    scale(&mut result);
    result.compact();
    Outcome::Value(result.into(), true)
}

impl<'q> Evaluator<'q> {
    pub(crate) fn binary(&self, binary: &Binary, span: Span, steps: Steps) -> Result<Computed<'q>, QueryError> {
        let left = self.compute(&binary.left, steps)?;
        let right = self.compute(&binary.right, steps)?;
        let (operator, return_bool) = (binary.operator, binary.return_bool);
        let applied = Applied { note: Cell::new(None), operator, return_bool, notes: &self.notes, span };
        match (left, right) {
            (Computed::Scalar(left), Computed::Scalar(right)) => {
                let compute: Box<dyn Fn(f64, f64) -> f64> = match binary.operator {
                    Operator::Arithmetic(arithmetic) => Box::new(arithmetic.apply()),
                    Operator::Comparison(comparison) => {
                        Box::new(move |a, b| f64::from(u8::from(comparison.holds()(a, b))))
                    }
                    other => {
                        let name = other.name();
                        let message = format!("operator {name:?} not allowed for Scalar operations");
                        return Err(QueryError::Execution(message));
                    }
                };
                Ok(Computed::Scalar(left.iter().zip(&right).map(|(left, right)| compute(*left, *right)).collect()))
            }
            (Computed::Vector(vector), Computed::Scalar(scalar)) => {
                self.with_scalar(vector, &applied, |step, sample| {
                    applied.result(&sample, &Sample::Float(at(&scalar, step)))
                })
            }
            (Computed::Scalar(scalar), Computed::Vector(vector)) => {
                let filters = matches!(binary.operator, Operator::Comparison(_)) && !binary.return_bool;
                self.with_scalar(vector, &applied, |step, sample| {
                    let result = applied.result(&Sample::Float(at(&scalar, step)), &sample)?;
                    // A filter keeps the vector's value, not the scalar.
                    Some(if filters { sample } else { result })
                })
            }
            (Computed::Vector(left), Computed::Vector(right)) => {
                let matching = binary.matching.clone().unwrap_or_default();
                let result = match binary.operator {
                    Operator::Set(operation) => self.set(operation, &matching, left, right, steps.count),
                    _ => self.join(&applied, &matching, [left, right], steps.count),
                };
                result.map(Computed::Vector)
            }
        }
    }

    fn with_scalar(
        &self,
        mut vector: Vector<'q>,
        applied: &Applied<'_>,
        change: impl FnMut(usize, Sample) -> Option<Sample>,
    ) -> Result<Computed<'q>, QueryError> {
        vector.map(change)?;
        if applied.changes_metric() || applied.return_bool {
            self.drop_names(&mut vector)?;
        }
        Ok(Computed::Vector(vector))
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
            for step in row.steps() {
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
            row.retain(|step| seen.and_then(|seen| seen.get(step)).copied().unwrap_or_default() == wanted);
        }
        vector.rows.retain(|row| !row.is_empty());
        Ok(())
    }

    /// Arithmetic and comparison between vectors.
    fn join(
        &self,
        applied: &Applied<'_>,
        matching: &Matching,
        [left, right]: [Vector<'q>; 2],
        steps: usize,
    ) -> Result<Vector<'q>, QueryError> {
        let swapped = matching.cardinality == Cardinality::OneToMany;
        let (many, one) = if swapped { (right, left) } else { (left, right) };
        let matches = Matches::find(matching, &many.rows, &one.rows);
        let fills = matching.fill_left.is_some() || matching.fill_right.is_some();
        check_one_side(matching, (!fills).then_some(&many), &one.rows, &rows_by_signature(&matches.right), steps)?;
        let mut join = Join {
            applied,
            matching,
            swapped,
            // As Prometheus has it: fill values belong to the sides as they are matched, not as they are written.
            fill_many: matching.fill_left,
            fill_one: matching.fill_right,
            put_off: self.settings.name_removal.is_delayed(),
            taken: Taken { matching, steps, places: HashMap::new(), charge: Charge::none(self.budget) },
            vector: Vector::empty(self.budget),
            pair_notes: vec![None; steps],
        };
        let one_rows = rows_by_signature(&matches.right);
        let many_rows = rows_by_signature(&matches.left);
        for (signature, many_row) in matches.left.iter().zip(&many.rows) {
            self.budget.check()?;
            let alone = many_rows.get(signature).is_none_or(|rows| rows.len() == 1);
            let partners: Vec<&Row> =
                one_rows.get(signature).into_iter().flatten().filter_map(|place| one.rows.get(*place)).collect();
            join.many_row(many_row, &partners, (!alone).then_some(*signature))?;
        }
        if join.fill_many.is_some() {
            for (signature, one_row) in matches.right.iter().zip(&one.rows) {
                self.budget.check()?;
                let partners: Vec<&Row> =
                    many_rows.get(signature).into_iter().flatten().filter_map(|place| many.rows.get(*place)).collect();
                join.unmatched_one_row(one_row, &partners)?;
            }
        }
        join.pair_notes.iter().for_each(|note| applied.tell(*note));
        let mut vector = join.vector;
        vector.join_same_labels()?;
        Ok(vector)
    }
}

/// A join of two vectors under way.
struct Join<'a, 'b> {
    applied: &'a Applied<'a>,
    matching: &'a Matching,
    /// The "many" side is the right one.
    swapped: bool,
    fill_many: Option<f64>,
    fill_one: Option<f64>,
    put_off: bool,
    taken: Taken<'b, 'a>,
    /// As Prometheus: of each step the last note counts.
    pair_notes: Vec<Option<PairNote>>,
    vector: Vector<'b>,
}

impl Join<'_, '_> {
    fn labels(&self, many: &Labels, one: &Labels) -> Labels {
        let drop_name = self.applied.changes_metric() || (self.applied.return_bool && !self.put_off);
        result_labels(many, one, drop_name, self.matching)
    }

    fn result(&self, many: &Sample, one: &Sample) -> Outcome {
        if self.swapped { self.applied.apply(one, many) } else { self.applied.apply(many, one) }
    }

    /// Applies the operator at a step; what it knows takes the place of its labels even where a filter drops it.
    fn at_step(
        &mut self,
        row: &mut Row,
        step: usize,
        many: &Sample,
        one: &Sample,
        shared: Option<usize>,
    ) -> Result<(), QueryError> {
        let outcome = self.result(many, one);
        if let (Some(note), Some(kept)) = (self.applied.note.take(), self.pair_notes.get_mut(step)) {
            *kept = Some(note);
        }
        let Outcome::Value(sample, keep) = outcome else { return Ok(()) };
        if let Some(signature) = shared {
            self.taken.take(signature, &row.labels, step)?;
        }
        if self.applied.return_bool {
            row.push_float(step, f64::from(u8::from(keep)));
        } else if keep {
            row.push(step, sample);
        }
        Ok(())
    }

    /// A row of the "many" side with its partners; `shared` is its signature if other rows have the same.
    fn many_row(&mut self, many: &Row, partners: &[&Row], shared: Option<usize>) -> Result<(), QueryError> {
        for one in partners {
            let mut row = Row::new(self.labels(&many.labels, &one.labels));
            row.drop_name = self.applied.return_bool;
            for step in many.first.max(one.first)..many.end().min(one.end()) {
                let (Some(many), Some(one)) = (many.get(step), one.get(step)) else { continue };
                self.at_step(&mut row, step, &many, &one, shared)?;
            }
            self.vector.push(row)?;
        }
        let Some(fill) = self.fill_one else { return Ok(()) };
        let filler = signature(self.matching, &many.labels);
        let mut row = Row::new(self.labels(&many.labels, &filler));
        row.drop_name = self.applied.return_bool;
        for (step, sample) in many.present() {
            if partners.iter().all(|one| !one.has(step)) {
                self.at_step(&mut row, step, &sample, &Sample::Float(fill), shared)?;
            }
        }
        self.vector.push(row)
    }

    /// A row of the "one" side, where it has no partner.
    fn unmatched_one_row(&mut self, one: &Row, partners: &[&Row]) -> Result<(), QueryError> {
        let Some(fill) = self.fill_many else { return Ok(()) };
        let filler = signature(self.matching, &one.labels);
        let mut row = Row::new(self.labels(&filler, &one.labels));
        row.drop_name = self.applied.return_bool;
        for (step, sample) in one.present() {
            // A partner that the operator knows nothing about with is as good as none.
            let matched = partners.iter().filter_map(|many| many.get(step));
            let mut outcomes = matched.map(|many| self.result(&many, &sample));
            let matched = outcomes.any(|outcome| matches!(outcome, Outcome::Value(..)));
            drop(outcomes);
            self.applied.note.take();
            if !matched {
                self.at_step(&mut row, step, &Sample::Float(fill), &sample, None)?;
            }
        }
        self.vector.push(row)
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
    many: Option<&Vector<'_>>,
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
    let occupied = many.map_or_else(|| vec![true; steps], |many| many.occupied(steps));
    for rows in crowded {
        let mut owners: Vec<Option<&Row>> = vec![None; steps];
        for row in rows.iter().filter_map(|place| one.get(*place)) {
            for step in row.steps().filter(|step| occupied.get(*step).copied().unwrap_or_default()) {
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
    let mut series = [row.labels.to_string(), earlier.labels.to_string()];
    series.sort();
    QueryError::Execution(format!(
        "found duplicate series for the match group {group} on the {side} hand-side of the operation: [{}];many-to-many \
         matching not allowed: matching labels must be unique on one side",
        series.join(", ")
    ))
}

/// Which results are there already, for signatures with several series on the "many" side.
struct Taken<'b, 'a> {
    matching: &'a Matching,
    steps: usize,
    places: HashMap<(usize, Labels), Vec<bool>>,
    charge: Charge<'b>,
}

impl Taken<'_, '_> {
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
fn result_labels(many: &Labels, one: &Labels, drop_name: bool, matching: &Matching) -> Labels {
    let one_to_one = matching.cardinality == Cardinality::OneToOne;
    let labels = many.retain(|name| {
        let named = || matching.labels.iter().any(|label| label == name);
        !(drop_name && is_metadata_label(name)) && (!one_to_one || named() == matching.on)
    });
    let include = |labels: Labels, include: &String| labels.with(include, one.get(include).unwrap_or_default());
    matching.include.iter().fold(labels, include)
}
