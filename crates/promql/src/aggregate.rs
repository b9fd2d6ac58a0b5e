//! Aggregations over series.

use std::collections::{BTreeMap, HashMap};

use model::{Labels, METRIC_NAME};
use query::QueryError;

use crate::ast::{Aggregate, Aggregation, Expr, Grouping};
use crate::eval::Evaluator;
use crate::notes::number_text;
use crate::rows::{Charge, Row, Steps, Vector};
use crate::sum::{CompensatedSum, Mean, quantile};

/// The rows of one group.
struct Group {
    labels: Labels,
    /// Places of the rows, in order.
    rows: Vec<usize>,
}

/// One value made of many, fed one after the other.
trait Fold: Copy {
    fn start(value: f64) -> Self;
    fn add(&mut self, value: f64);
    fn finish(&self) -> f64;
}

impl Grouping {
    /// The labels that tell groups apart.
    fn key(&self, labels: &Labels) -> Labels {
        match self {
            Self::By(names) if names.is_empty() => Labels::empty(),
            Self::By(names) => labels.retain(|name| names.iter().any(|wanted| wanted == name)),
            Self::Without(names) => {
                labels.retain(|name| name != METRIC_NAME && !names.iter().any(|unwanted| unwanted == name))
            }
        }
    }
}

/// Groups in order of their labels.
fn groups_of(rows: &[Row], grouping: &Grouping) -> Vec<Group> {
    let mut places: HashMap<Labels, Vec<usize>> = HashMap::new();
    for (place, row) in rows.iter().enumerate() {
        places.entry(grouping.key(&row.labels)).or_default().push(place);
    }
    let mut groups: Vec<Group> = places.into_iter().map(|(labels, rows)| Group { labels, rows }).collect();
    groups.sort_by(|a, b| a.labels.cmp(&b.labels));
    groups
}

impl Group {
    fn rows<'a>(&self, input: &'a [Row]) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter_map(|place| input.get(*place))
    }

    /// The steps from the first to the last value of any row.
    fn span(&self, input: &[Row]) -> std::ops::Range<usize> {
        let first = self.rows(input).map(|row| row.first).min().unwrap_or_default();
        first..self.rows(input).map(Row::end).max().unwrap_or_default()
    }
}

impl<'q> Evaluator<'q> {
    pub(crate) fn aggregate(&self, aggregate: &Aggregate, steps: Steps) -> Result<Vector<'q>, QueryError> {
        let grouping = &aggregate.grouping;
        let scalars = match &aggregate.parameter {
            None | Some(Expr::Text(_)) => Vec::new(),
            Some(parameter) => self.scalar(parameter, steps)?,
        };
        let input = self.vector(&aggregate.input, steps)?;
        match aggregate.operation {
            Aggregation::Sum => self.fold::<Sum>(&input, grouping),
            Aggregation::Average => self.fold::<Mean>(&input, grouping),
            Aggregation::Minimum => self.fold::<Minimum>(&input, grouping),
            Aggregation::Maximum => self.fold::<Maximum>(&input, grouping),
            Aggregation::Count => self.fold::<Count>(&input, grouping),
            Aggregation::Group => self.fold::<One>(&input, grouping),
            Aggregation::StandardDeviation => self.fold::<StandardDeviation>(&input, grouping),
            Aggregation::Variance => self.fold::<Variance>(&input, grouping),
            Aggregation::Quantile => self.quantile(&input, grouping, &scalars),
            Aggregation::TopK => self.ranked(&input, grouping, &scalars, steps, true),
            Aggregation::BottomK => self.ranked(&input, grouping, &scalars, steps, false),
            Aggregation::CountValues => match &aggregate.parameter {
                Some(Expr::Text(label)) if !label.is_empty() => self.count_values(&input, grouping, label),
                _ => Err(QueryError::Execution("invalid label name \"\"".to_owned())),
            },
        }
    }

    fn fold<F: Fold>(&self, input: &Vector<'q>, grouping: &Grouping) -> Result<Vector<'q>, QueryError> {
        let mut vector = Vector::empty(self.budget);
        for group in groups_of(&input.rows, grouping) {
            let span = group.span(&input.rows);
            let mut cells: Vec<Option<F>> = vec![None; span.len()];
            for row in group.rows(&input.rows) {
                self.budget.check()?;
                for (step, value) in row.present() {
                    match cells.get_mut(step - span.start) {
                        Some(Some(cell)) => cell.add(value),
                        Some(cell) => *cell = Some(F::start(value)),
                        None => {}
                    }
                }
            }
            let mut row = Row::new(group.labels);
            for (place, cell) in cells.iter().enumerate() {
                if let Some(cell) = cell {
                    row.push(span.start + place, cell.finish());
                }
            }
            vector.push(row)?;
        }
        Ok(vector)
    }

    fn quantile(&self, input: &Vector<'q>, grouping: &Grouping, quantiles: &[f64]) -> Result<Vector<'q>, QueryError> {
        self.notes.check_quantiles(quantiles);
        let mut vector = Vector::empty(self.budget);
        let mut values = Vec::new();
        for group in groups_of(&input.rows, grouping) {
            let mut row = Row::new(group.labels.clone());
            for step in group.span(&input.rows) {
                self.budget.check()?;
                values.clear();
                values.extend(group.rows(&input.rows).filter_map(|row| row.get(step)));
                if !values.is_empty() {
                    row.push(step, quantile(quantiles.get(step).copied().unwrap_or(f64::NAN), &mut values));
                }
            }
            vector.push(row)?;
        }
        Ok(vector)
    }

    /// `topk` and `bottomk`: the samples of the best rows of each group, step by step. At a single step the rows come
    /// best first.
    fn ranked(
        &self,
        input: &Vector<'q>,
        grouping: &Grouping,
        counts: &[f64],
        steps: Steps,
        largest: bool,
    ) -> Result<Vector<'q>, QueryError> {
        check_counts(counts)?;
        let mut kept: Vec<Row> = input.rows.iter().map(|row| Row::new(row.labels.clone())).collect();
        let mut order = Vec::new();
        let mut best: Vec<(usize, f64)> = Vec::new();
        for group in groups_of(&input.rows, grouping) {
            for step in group.span(&input.rows) {
                self.budget.check()?;
                let count = counts.get(step).map_or(0, |count| count.max(0.0) as usize);
                best.clear();
                best.extend(group.rows.iter().filter_map(|place| Some((*place, input.rows.get(*place)?.get(step)?))));
                keep_best(&mut best, count, largest);
                for (place, value) in &best {
                    if let Some(row) = kept.get_mut(*place) {
                        row.push(step, *value);
                    }
                }
                if steps.count == 1 {
                    order.extend(best.iter().map(|(place, _)| *place));
                }
            }
        }
        let mut vector = Vector::empty(self.budget);
        if steps.count == 1 {
            for place in order {
                let row = kept.get_mut(place).map(|row| std::mem::replace(row, Row::new(Labels::empty())));
                row.map_or(Ok(()), |row| vector.push(row))?;
            }
            return Ok(vector);
        }
        kept.into_iter().try_for_each(|row| vector.push(row))?;
        Ok(vector)
    }

    /// How often each value occurs, the value in a label.
    fn count_values(&self, input: &Vector<'q>, grouping: &Grouping, label: &str) -> Result<Vector<'q>, QueryError> {
        let mut counts: BTreeMap<Labels, BTreeMap<usize, f64>> = BTreeMap::new();
        let mut charge = Charge::none(self.budget);
        for row in &input.rows {
            self.budget.check()?;
            for (step, value) in row.present() {
                let labels = row.labels.with(label, &number_text(value));
                let group = match grouping {
                    Grouping::By(names) => labels.retain(|name| name == label || names.iter().any(|by| by == name)),
                    Grouping::Without(_) => grouping.key(&labels),
                };
                let count = counts.entry(group).or_default().entry(step).or_default();
                if *count == 0.0 {
                    charge.add(1)?;
                }
                *count += 1.0;
            }
        }
        let mut vector = Vector::empty(self.budget);
        for (labels, counts) in counts {
            let mut row = Row::new(labels);
            for (step, count) in counts {
                row.push(step, count);
            }
            vector.push(row)?;
        }
        Ok(vector)
    }
}

/// Leaves the best samples, in order; of equals those of earlier rows.
fn keep_best(samples: &mut Vec<(usize, f64)>, count: usize, largest: bool) {
    let order = |a: &(usize, f64), b: &(usize, f64)| compare(a.1, b.1, largest).then(a.0.cmp(&b.0));
    if count < samples.len() {
        samples.select_nth_unstable_by(count, order);
        samples.truncate(count);
    }
    samples.sort_unstable_by(order);
}

/// Best first, NaN last.
pub(crate) fn compare(a: f64, b: f64, largest: bool) -> std::cmp::Ordering {
    let by_value = a.partial_cmp(&b).unwrap_or(std::cmp::Ordering::Equal);
    a.is_nan().cmp(&b.is_nan()).then(if largest { by_value.reverse() } else { by_value })
}

fn check_counts(counts: &[f64]) -> Result<(), QueryError> {
    if counts.iter().all(|count| *count < 1.0) {
        return Ok(());
    }
    if counts.iter().any(|count| count.is_nan()) {
        return Err(QueryError::Execution("Parameter value is NaN".to_owned()));
    }
    let limit = i64::MAX as f64;
    match counts.iter().find(|count| count.abs() >= limit) {
        Some(count) if *count > 0.0 => {
            Err(QueryError::Execution(format!("Scalar value {} overflows int64", number_text(*count))))
        }
        Some(count) => Err(QueryError::Execution(format!("Scalar value {} underflows int64", number_text(*count)))),
        None => Ok(()),
    }
}

#[derive(Clone, Copy)]
struct Sum(CompensatedSum);

impl Fold for Sum {
    fn start(value: f64) -> Self {
        Self(CompensatedSum::new(value))
    }

    fn add(&mut self, value: f64) {
        self.0 = self.0.plus(value);
    }

    fn finish(&self) -> f64 {
        self.0.value()
    }
}

impl Fold for Mean {
    fn start(value: f64) -> Self {
        Self::new(value)
    }

    fn add(&mut self, value: f64) {
        Self::add(self, value);
    }

    fn finish(&self) -> f64 {
        self.value()
    }
}

#[derive(Clone, Copy)]
struct Minimum(f64);

impl Fold for Minimum {
    fn start(value: f64) -> Self {
        Self(value)
    }

    fn add(&mut self, value: f64) {
        if self.0 > value || self.0.is_nan() {
            self.0 = value;
        }
    }

    fn finish(&self) -> f64 {
        self.0
    }
}

#[derive(Clone, Copy)]
struct Maximum(f64);

impl Fold for Maximum {
    fn start(value: f64) -> Self {
        Self(value)
    }

    fn add(&mut self, value: f64) {
        if self.0 < value || self.0.is_nan() {
            self.0 = value;
        }
    }

    fn finish(&self) -> f64 {
        self.0
    }
}

#[derive(Clone, Copy)]
struct Count(u64);

impl Fold for Count {
    fn start(_: f64) -> Self {
        Self(1)
    }

    fn add(&mut self, _: f64) {
        self.0 += 1;
    }

    fn finish(&self) -> f64 {
        self.0 as f64
    }
}

#[derive(Clone, Copy)]
struct One;

impl Fold for One {
    fn start(_: f64) -> Self {
        Self
    }

    fn add(&mut self, _: f64) {}

    fn finish(&self) -> f64 {
        1.0
    }
}

/// Welford's method.
#[derive(Clone, Copy)]
struct Variance {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Fold for Variance {
    fn start(value: f64) -> Self {
        Self { count: 1.0, mean: value, squares: if value.is_finite() { 0.0 } else { f64::NAN } }
    }

    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let delta = value - self.mean;
        self.mean += delta / self.count;
        self.squares += delta * (value - self.mean);
    }

    fn finish(&self) -> f64 {
        self.squares / self.count
    }
}

#[derive(Clone, Copy)]
struct StandardDeviation(Variance);

impl Fold for StandardDeviation {
    fn start(value: f64) -> Self {
        Self(Variance::start(value))
    }

    fn add(&mut self, value: f64) {
        self.0.add(value);
    }

    fn finish(&self) -> f64 {
        self.0.finish().sqrt()
    }
}
