//! Aggregations over series.

use std::collections::HashMap;

use model::{Labels, METRIC_NAME};
use query::{QueryError, SAMPLE_BYTES};
use xxhash_rust::xxh64::xxh64;

use crate::aggregate::accumulate::{
    CountAccumulator, GroupAccumulator, MaxAccumulator, MeanAccumulator, MinAccumulator, StddevAccumulator,
    VarianceAccumulator,
};
use crate::aggregate::accumulators::{PerStep, StepAccumulators, SumAccumulators};
use crate::aggregate::stream::StreamAggregation;
use crate::aggregate::topk::select_topk;
use crate::eval::evaluator::Evaluator;
use crate::eval::relabel::string_argument;
use crate::eval::row_stream::{RowSink, SeriesRow};
use crate::eval::rows::{Charge, Row, Sample, Steps, Vector};
use crate::eval::sum::quantile;
use crate::range::range_functions::RangeCall;
use crate::range::window_bounds::{SelectorOutput, WindowBounds};
use crate::settings::NameRemoval;
use crate::syntax::ast::{Aggregate, Aggregation, Edges, Expr, Grouping, NeededLabels, Node};
use crate::syntax::functions::Function;
use crate::syntax::number::{plain, short};
use crate::syntax::span::Span;
use crate::syntax::strings::{is_label_name, quote};

/// The rows of one group.
struct Group {
    labels: Labels,
    /// Places of the rows, in order.
    rows: Vec<usize>,
}

/// Groups by a key of each row, in order of their first rows; rows without one are left out.
fn groups_of(rows: &[Row], key: impl Fn(&Row) -> Result<Option<Labels>, QueryError>) -> Result<Vec<Group>, QueryError> {
    let mut indices: HashMap<Labels, usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let Some(labels) = key(row)? else { continue };
        let group = *indices.entry(labels.clone()).or_insert_with(|| {
            groups.push(Group { labels, rows: Vec::new() });
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(group) {
            group.rows.push(index);
        }
    }
    Ok(groups)
}

impl Group {
    fn rows<'a>(&self, input: &'a [Row]) -> impl Iterator<Item = &'a Row> {
        self.rows.iter().filter_map(|index| input.get(*index))
    }

    /// The steps from the first to the last value of any row.
    fn span(&self, input: &[Row]) -> std::ops::Range<usize> {
        let first = self.rows(input).map(|row| row.first).min().unwrap_or_default();
        first..self.rows(input).map(Row::end).max().unwrap_or_default()
    }

    /// The group's result, still empty.
    fn result(&self, input: &[Row], keeps_names: bool) -> Row {
        Row::new(self.labels.clone()).with_drop_name(!keeps_names && self.rows(input).any(|row| row.drop_name))
    }
}

/// How series are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Largest,
    Smallest,
    First,
    ByHash,
}

/// A choice of series, and its parameter at each step.
#[derive(Clone, Copy)]
struct RowSelection<'a> {
    choice: Choice,
    parameters: &'a [f64],
    steps: Steps,
    /// The position of the aggregation.
    span: Span,
}

impl<'q> Evaluator<'q> {
    pub(crate) fn aggregate(&self, aggregate: &Aggregate, span: Span, steps: Steps) -> Result<Vector<'q>, QueryError> {
        let (grouping, operation) = (&aggregate.grouping, aggregate.operation);
        if operation == Aggregation::CountValues {
            return self.count_values(aggregate, steps);
        }
        let scalars = match &aggregate.parameter {
            None => Vec::new(),
            Some(parameter) => self.scalar(parameter, steps)?,
        };
        if let Some(answered) = self.aggregate_by_view(aggregate, steps)? {
            return Ok(answered);
        }
        if let Some(streamed) = self.streamed(aggregate, steps) {
            return streamed;
        }
        if let Some(selected) = self.select_by_number(aggregate, &scalars, steps)? {
            return Ok(selected);
        }
        let input = self.ordered(&aggregate.input, steps)?;
        let input_span = aggregate.input.span;
        let parameter_span = aggregate.parameter.as_ref().map_or(span, |parameter| parameter.span);
        match operation {
            Aggregation::Quantile => self.quantile(&input, grouping, &scalars, input_span, parameter_span),
            Aggregation::LimitRatio => {
                check_ratios(self, &scalars, parameter_span)?;
                self.select_rows(
                    &input,
                    grouping,
                    RowSelection { choice: Choice::ByHash, parameters: &scalars, steps, span },
                )
            }
            _ => {
                check_counts(&scalars)?;
                let choice = match operation {
                    Aggregation::TopK => Choice::Largest,
                    Aggregation::BottomK => Choice::Smallest,
                    _ => Choice::First,
                };
                self.select_rows(&input, grouping, RowSelection { choice, parameters: &scalars, steps, span })
            }
        }
    }

    /// Aggregations that make one value of many, one row after the other; `None` for others.
    fn streamed(&self, aggregate: &Aggregate, steps: Steps) -> Option<Result<Vector<'q>, QueryError>> {
        Some(match aggregate.operation {
            Aggregation::Sum => self.stream_aggregate::<SumAccumulators>(aggregate, steps),
            Aggregation::Average => self.stream_aggregate::<PerStep<MeanAccumulator>>(aggregate, steps),
            Aggregation::Minimum => self.stream_aggregate::<PerStep<MinAccumulator>>(aggregate, steps),
            Aggregation::Maximum => self.stream_aggregate::<PerStep<MaxAccumulator>>(aggregate, steps),
            Aggregation::Count => self.stream_aggregate::<PerStep<CountAccumulator>>(aggregate, steps),
            Aggregation::Group => self.stream_aggregate::<PerStep<GroupAccumulator>>(aggregate, steps),
            Aggregation::StandardDeviation => self.stream_aggregate::<PerStep<StddevAccumulator>>(aggregate, steps),
            Aggregation::Variance => self.stream_aggregate::<PerStep<VarianceAccumulator>>(aggregate, steps),
            _ => return None,
        })
    }

    /// Returns whether names that would be dropped from the result stay, since series are grouped by them.
    pub(super) fn keeps_names(&self, grouping: &Grouping) -> bool {
        let is_grouped = !grouping.without && grouping.labels.iter().any(|label| label == METRIC_NAME);
        is_grouped && self.settings.name_removal == NameRemoval::Delayed
    }

    fn stream_aggregate<C: StepAccumulators>(
        &self,
        aggregate: &Aggregate,
        steps: Steps,
    ) -> Result<Vector<'q>, QueryError> {
        let (input, grouping) = (&aggregate.input, &aggregate.grouping);
        let mut aggregation = StreamAggregation::<C>::new(self.budget, self.keeps_names(grouping), input.span);
        match &input.node {
            Node::Call(call) if matches!(call.signature.function, Function::Range(_)) => {
                self.range_rows(
                    &RangeCall { call, steps, needed: NeededLabels::Grouping(grouping) },
                    &mut aggregation,
                )?;
            }
            Node::Selector(selector) if selector.edges == Edges::Plain => {
                let bounds = WindowBounds::instant(selector, SelectorOutput::Values, steps, self.settings.lookback_ms);
                self.instant_rows(
                    &selector.matchers,
                    &bounds,
                    SelectorOutput::Values,
                    NeededLabels::Grouping(grouping),
                    &mut aggregation,
                )?;
            }
            _ => {
                let rows = match self.joined_by_number(input, grouping, steps)? {
                    Some(joined) => joined,
                    None => self.ordered(input, steps)?,
                };
                for row in rows.rows {
                    let made = SeriesRow::grouped((row.labels.clone(), row), Some(grouping), self.budget)?;
                    made.map_or(Ok(()), |made| aggregation.push(made))?;
                }
                return aggregation.finish(&self.annotations);
            }
        }
        aggregation.sorted().finish(&self.annotations)
    }

    /// The rows of an instant vector. If the result may be cut by steps, their order does not depend on the steps: sums of floats and
    /// choices between equal values depend on the order.
    fn ordered(&self, input: &Expr, steps: Steps) -> Result<Vector<'q>, QueryError> {
        let mut vector = self.vector(input, steps)?;
        if self.is_stepwise {
            vector.rows.sort_by(|a, b| a.labels.cmp(&b.labels));
        }
        Ok(vector)
    }

    fn quantile(
        &self,
        input: &Vector<'q>,
        grouping: &Grouping,
        quantiles: &[f64],
        input_span: Span,
        span: Span,
    ) -> Result<Vector<'q>, QueryError> {
        self.annotations.check_quantiles(quantiles, span);
        if input.rows.iter().any(Row::has_histograms) {
            self.annotations.ignored_in_aggregation("quantile", input_span);
        }
        let mut vector = Vector::empty(self.budget);
        let mut values = Vec::new();
        for group in groups_of(&input.rows, |row| grouping.group_of(&row.labels, self.budget))? {
            let mut row = group.result(&input.rows, self.keeps_names(grouping));
            for step in group.span(&input.rows) {
                self.budget.check()?;
                values.clear();
                values.extend(group.rows(&input.rows).filter_map(|row| row.float(step)));
                if !values.is_empty() {
                    row.push_float(step, quantile(quantiles.get(step).copied().unwrap_or(f64::NAN), &mut values));
                }
            }
            vector.push(row)?;
        }
        Ok(vector)
    }

    /// The samples of some rows of each group, step by step. At a single step `topk` and `bottomk` have the best first.
    fn select_rows(
        &self,
        input: &Vector<'q>,
        grouping: &Grouping,
        selection: RowSelection<'_>,
    ) -> Result<Vector<'q>, QueryError> {
        let RowSelection { choice, parameters, steps, span } = selection;
        if input.rows.iter().any(Row::has_histograms) {
            match choice {
                Choice::Largest => self.annotations.ignored_in_aggregation("topk", span),
                Choice::Smallest => self.annotations.ignored_in_aggregation("bottomk", span),
                Choice::First | Choice::ByHash => {}
            }
        }
        let hashes = match choice {
            Choice::ByHash => input.rows.iter().map(|row| hash_fraction(&row.labels)).collect(),
            _ => Vec::new(),
        };
        let mut selected_rows: Vec<Row> = input.rows.iter().map(Row::emptied).collect();
        let mut order = Vec::new();
        let mut selected: Vec<(usize, Sample)> = Vec::new();
        for group in groups_of(&input.rows, |row| grouping.group_of(&row.labels, self.budget))? {
            for step in group.span(&input.rows) {
                self.budget.check()?;
                let parameter = parameters.get(step).copied().unwrap_or(f64::NAN);
                selected.clear();
                selected
                    .extend(group.rows.iter().filter_map(|index| Some((*index, input.rows.get(*index)?.get(step)?))));
                select_samples(&mut selected, choice, parameter, &hashes);
                for (index, sample) in &selected {
                    if let Some(row) = selected_rows.get_mut(*index) {
                        row.push(step, sample.clone());
                    }
                }
                if self.is_instant(steps) {
                    order.extend(selected.iter().map(|(index, _)| *index));
                }
            }
        }
        let mut vector = Vector::empty(self.budget);
        if self.is_instant(steps) {
            for index in order {
                let row = selected_rows.get_mut(index).map(|row| std::mem::replace(row, Row::new(Labels::empty())));
                row.map_or(Ok(()), |row| vector.push(row))?;
            }
            return Ok(vector);
        }
        selected_rows.into_iter().try_for_each(|row| vector.push(row))?;
        Ok(vector)
    }

    /// How often each value occurs, the value in a label.
    fn count_values(&self, aggregate: &Aggregate, steps: Steps) -> Result<Vector<'q>, QueryError> {
        let grouping = &aggregate.grouping;
        let label = aggregate.parameter.as_ref().map_or(Ok(""), |parameter: &Expr| string_argument(parameter))?;
        if !is_label_name(label) {
            return Err(QueryError::Execution(format!("invalid label name {}", quote(label))));
        }
        let input = self.vector(&aggregate.input, steps)?;
        let groups = groups_of(&input.rows, |row| grouping.group_of_without(&row.labels, Some(label), self.budget))?;
        // If the label for the value is left out by `without`, values are not distinguished.
        let tells_values_apart =
            !grouping.without || label != METRIC_NAME && !grouping.labels.iter().any(|out| out == label);
        let mut texts = Texts::default();
        let mut occurrences: Vec<Occurrence> = Vec::new();
        let mut charge = Charge::none(self.budget);
        for (group, row) in
            groups.iter().enumerate().flat_map(|(index, group)| group.rows(&input.rows).map(move |row| (index, row)))
        {
            charge.add(row.len() * OCCURRENCE_SAMPLES)?;
            let before_bytes = texts.bytes;
            for (step, sample) in row.present() {
                let value = if tells_values_apart { texts.key_of(&sample) } else { ValueKey::Any };
                occurrences.push(Occurrence { group, value, step });
            }
            charge.add((texts.bytes - before_bytes).div_ceil(SAMPLE_BYTES))?;
        }
        drop(input);
        occurrences.sort_unstable();
        let mut vector = Vector::empty(self.budget);
        for of_row in occurrences.chunk_by(|a, b| (a.group, a.value) == (b.group, b.value)) {
            self.budget.check()?;
            let Some((first, group)) = of_row.first().and_then(|first| Some((first, groups.get(first.group)?))) else {
                continue;
            };
            let text = texts.text_of(first.value);
            let mut row = Row::new(text.map_or_else(|| group.labels.clone(), |text| group.labels.with(label, &text)));
            for of_step in of_row.chunk_by(|a, b| a.step == b.step) {
                if let Some(one) = of_step.first() {
                    row.push_float(one.step, of_step.len() as f64);
                }
            }
            vector.push(row)?;
        }
        vector.rows.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(vector)
    }
}

/// The charge of an [`Occurrence`], in samples.
const OCCURRENCE_SAMPLES: usize = size_of::<Occurrence>().div_ceil(SAMPLE_BYTES);

/// A value at a step, for `count_values`.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Occurrence {
    group: usize,
    value: ValueKey,
    step: usize,
}

/// Distinguishes values as `count_values` does: by their texts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ValueKey {
    /// All are the same.
    Any,
    /// A number's bits; all NaNs have the same.
    Float(u64),
    /// The index of a histogram's text.
    Histogram(usize),
}

/// Texts of histograms, each once.
#[derive(Default)]
struct Texts {
    indices: HashMap<String, usize>,
    all: Vec<String>,
    /// The size of all texts, in both.
    bytes: usize,
}

impl Texts {
    fn key_of(&mut self, sample: &Sample) -> ValueKey {
        match sample {
            Sample::Float(value) if value.is_nan() => ValueKey::Float(f64::NAN.to_bits()),
            Sample::Float(value) => ValueKey::Float(value.to_bits()),
            Sample::Histogram(histogram) => {
                let text = histogram.text();
                let next = self.all.len();
                let index = *self.indices.entry(text.clone()).or_insert(next);
                if index == next {
                    self.bytes += 2 * text.len();
                    self.all.push(text);
                }
                ValueKey::Histogram(index)
            }
        }
    }

    fn text_of(&self, value: ValueKey) -> Option<String> {
        match value {
            ValueKey::Any => None,
            ValueKey::Float(bits) => Some(plain(f64::from_bits(bits))),
            ValueKey::Histogram(index) => self.all.get(index).cloned(),
        }
    }
}

/// Leaves the chosen samples.
fn select_samples(samples: &mut Vec<(usize, Sample)>, choice: Choice, parameter: f64, hashes: &[f64]) {
    let count = if parameter >= 1.0 { parameter as usize } else { 0 };
    match choice {
        Choice::First => samples.truncate(count),
        Choice::ByHash => {
            let ratio = parameter.clamp(-1.0, 1.0);
            samples.retain(|(index, _)| {
                let at = hashes.get(*index).copied().unwrap_or_default();
                ratio != 0.0 && ((ratio >= 0.0 && at < ratio) || (ratio < 0.0 && at >= 1.0 + ratio))
            });
        }
        Choice::Largest | Choice::Smallest => select_topk(samples, count, choice == Choice::Largest),
    }
}

/// The hash that Prometheus makes of a series' labels, as a fraction in [0, 1): of names and values, each after its
/// length (one byte, or 255 and three bytes).
fn hash_fraction(labels: &Labels) -> f64 {
    let mut bytes = Vec::new();
    for text in labels.iter().flat_map(|(name, value)| [name, value]) {
        match u8::try_from(text.len()) {
            Ok(length) if length < 255 => bytes.push(length),
            _ => {
                bytes.push(255);
                bytes.extend_from_slice(text.len().to_le_bytes().get(..3).unwrap_or_default());
            }
        }
        bytes.extend_from_slice(text.as_bytes());
    }
    xxh64(&bytes, 0) as f64 / u64::MAX as f64
}

fn check_ratios(evaluator: &Evaluator<'_>, ratios: &[f64], span: Span) -> Result<(), QueryError> {
    if ratios.iter().any(|ratio| ratio.is_nan()) {
        return Err(QueryError::Execution("Ratio value is NaN".to_owned()));
    }
    let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    if most > 1.0 {
        evaluator.annotations.capped_ratio(most, 1.0, span);
    }
    if least < -1.0 {
        evaluator.annotations.capped_ratio(least, -1.0, span);
    }
    Ok(())
}

fn check_counts(counts: &[f64]) -> Result<(), QueryError> {
    if counts.iter().all(|count| *count < 1.0) {
        return Ok(());
    }
    if counts.iter().any(|count| count.is_nan()) {
        return Err(QueryError::Execution("Parameter value is NaN".to_owned()));
    }
    let short_text = short;
    let limit = i64::MAX as f64;
    match counts.iter().find(|count| **count >= limit || **count <= -limit) {
        Some(count) if *count > 0.0 => {
            Err(QueryError::Execution(format!("Scalar value {} overflows int64", short_text(*count))))
        }
        Some(count) => Err(QueryError::Execution(format!("Scalar value {} underflows int64", short_text(*count)))),
        None => Ok(()),
    }
}
