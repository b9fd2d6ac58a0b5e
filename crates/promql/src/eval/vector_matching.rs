//! Operators between instant vectors: which series match, and what they yield.

use std::collections::HashMap;

use model::{Labels, METRIC_NAME};
use query::QueryError;

use crate::eval::binary::{OperatorContext, OperatorOutcome, PairAnnotation};
use crate::eval::evaluator::Evaluator;
use crate::eval::rows::{Charge, Row, Sample, Vector, is_metadata_label};
use crate::syntax::ast::{Cardinality, Matching, SetOperation};

impl<'q> Evaluator<'q> {
    pub(super) fn set(
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
            let flags = presence.steps.entry(*signature).or_insert_with(|| vec![false; steps]);
            for step in row.steps() {
                if let Some(flags) = flags.get_mut(step) {
                    *flags = true;
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
            let flags = presence.steps.get(signature);
            row.retain(|step| flags.and_then(|flags| flags.get(step)).copied().unwrap_or_default() == wanted);
        }
        vector.rows.retain(|row| !row.is_empty());
        Ok(())
    }

    /// Arithmetic and comparison between vectors.
    pub(super) fn join(
        &self,
        operator: &OperatorContext<'_>,
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
            operator,
            matching,
            swapped,
            // As Prometheus has it: fill values belong to the sides as they are matched, not as they are written.
            fill_many: matching.fill_left,
            fill_one: matching.fill_right,
            delayed_names: self.settings.name_removal.is_delayed(),
            matched_steps: MatchedSteps {
                matching,
                steps,
                steps_by_result: HashMap::new(),
                charge: Charge::none(self.budget),
            },
            vector: Vector::empty(self.budget),
            pair_annotations: vec![None; steps],
        };
        let one_rows = rows_by_signature(&matches.right);
        let many_rows = rows_by_signature(&matches.left);
        for (signature, many_row) in matches.left.iter().zip(&many.rows) {
            self.budget.check()?;
            let alone = many_rows.get(signature).is_none_or(|rows| rows.len() == 1);
            let partners: Vec<&Row> =
                one_rows.get(signature).into_iter().flatten().filter_map(|index| one.rows.get(*index)).collect();
            join.many_row(many_row, &partners, (!alone).then_some(*signature))?;
        }
        if join.fill_many.is_some() {
            for (signature, one_row) in matches.right.iter().zip(&one.rows) {
                self.budget.check()?;
                let partners: Vec<&Row> =
                    many_rows.get(signature).into_iter().flatten().filter_map(|index| many.rows.get(*index)).collect();
                join.unmatched_one_row(one_row, &partners)?;
            }
        }
        join.pair_annotations.iter().for_each(|annotation| operator.annotate(*annotation));
        let mut vector = join.vector;
        vector.join_same_labels()?;
        Ok(vector)
    }
}

/// A running join of two vectors.
struct Join<'a, 'b> {
    operator: &'a OperatorContext<'a>,
    matching: &'a Matching,
    /// The "many" side is the right one.
    swapped: bool,
    fill_many: Option<f64>,
    fill_one: Option<f64>,
    delayed_names: bool,
    matched_steps: MatchedSteps<'b, 'a>,
    /// As in Prometheus, the last annotation of each step counts.
    pair_annotations: Vec<Option<PairAnnotation>>,
    vector: Vector<'b>,
}

impl Join<'_, '_> {
    fn labels(&self, many: &Labels, one: &Labels) -> Labels {
        let drop_name = self.operator.changes_metric() || (self.operator.return_bool && !self.delayed_names);
        result_labels(many, one, drop_name, self.matching)
    }

    fn result(&self, many: &Sample, one: &Sample) -> OperatorOutcome {
        if self.swapped { self.operator.apply(one, many) } else { self.operator.apply(many, one) }
    }

    /// Applies the operator at a step. A result claims its labels even if a filter drops it.
    fn at_step(
        &mut self,
        row: &mut Row,
        step: usize,
        many: &Sample,
        one: &Sample,
        shared: Option<usize>,
    ) -> Result<(), QueryError> {
        let outcome = self.result(many, one);
        if let (Some(annotation), Some(last)) = (self.operator.annotation.take(), self.pair_annotations.get_mut(step)) {
            *last = Some(annotation);
        }
        let OperatorOutcome::Value(sample, keep) = outcome else { return Ok(()) };
        if let Some(signature) = shared {
            self.matched_steps.claim(signature, &row.labels, step)?;
        }
        if self.operator.return_bool {
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
            row.drop_name = self.operator.return_bool;
            for step in many.first.max(one.first)..many.end().min(one.end()) {
                let (Some(many), Some(one)) = (many.get(step), one.get(step)) else { continue };
                self.at_step(&mut row, step, &many, &one, shared)?;
            }
            self.vector.push(row)?;
        }
        let Some(fill) = self.fill_one else { return Ok(()) };
        let filler = signature(self.matching, &many.labels);
        let mut row = Row::new(self.labels(&many.labels, &filler));
        row.drop_name = self.operator.return_bool;
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
        row.drop_name = self.operator.return_bool;
        for (step, sample) in one.present() {
            // A partner with which the operator is not defined counts as none.
            let matched = partners.iter().filter_map(|many| many.get(step));
            let mut outcomes = matched.map(|many| self.result(&many, &sample));
            let matched = outcomes.any(|outcome| matches!(outcome, OperatorOutcome::Value(..)));
            drop(outcomes);
            self.operator.annotation.take();
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

/// The charge of a flag per step, in samples of eight bytes.
const fn flags_charge(steps: usize) -> usize {
    steps.div_ceil(8)
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
    for (index, signature) in signatures.iter().enumerate() {
        rows.entry(*signature).or_default().push(index);
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
        for row in rows.iter().filter_map(|index| one.get(*index)) {
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

/// The results so far, for signatures with several series on the "many" side.
struct MatchedSteps<'b, 'a> {
    matching: &'a Matching,
    steps: usize,
    steps_by_result: HashMap<(usize, Labels), Vec<bool>>,
    charge: Charge<'b>,
}

impl MatchedSteps<'_, '_> {
    fn claim(&mut self, signature: usize, result: &Labels, step: usize) -> Result<(), QueryError> {
        let one_to_one = self.matching.cardinality == Cardinality::OneToOne;
        let key = (signature, if one_to_one { Labels::empty() } else { result.clone() });
        if !self.steps_by_result.contains_key(&key) {
            self.charge.add(flags_charge(self.steps))?;
        }
        let matched_steps = self.steps_by_result.entry(key).or_insert_with(|| vec![false; self.steps]);
        let Some(matched_steps) = matched_steps.get_mut(step) else { return Ok(()) };
        if !std::mem::replace(matched_steps, true) {
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
