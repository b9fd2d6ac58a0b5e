//! Counts the samples that an expression touches, as Prometheus 3.15 does for `stats`: each step as if it were evaluated alone, whatever the
//! evaluation saves. It is a pass of its own, so that other evaluations do not pay for the counts, and so that results from caches and
//! summaries are counted like all others.

use std::sync::{Mutex, PoisonError};

use query::{Budget, QueryError, TextSample, TextSeries, TextSink};

use crate::eval::annotations::Annotations;
use crate::eval::evaluator::{Evaluation, Evaluator};
use crate::eval::row_stream::{RowSink, SeriesRow, StreamOptions};
use crate::eval::rows::{Charge, Row, Sample, Steps};
use crate::evaluate::{check_times, range_steps};
use crate::expression::Expression;
use crate::histogram::native::Histogram;
use crate::range::samples::{Cursor, SampleInterval, Samples};
use crate::range::texts::{CountingSample, TextWindows};
use crate::range::window_bounds::{SelectorOutput, WindowBounds, subquery_grid};
use crate::syntax::ast::{Call, Chain, Edges, Expr, Link, NeededLabels, Node, Operator, Range, Selector, Subquery};
use crate::syntax::bind_times::{QueryTimes, bind_times};
use crate::syntax::functions::{Function, HistogramPart};
use crate::syntax::result_kind::ResultKind;

/// The step that counting windows is reported as.
const COUNT: &str = "count";

/// Samples that an expression touches, step by step. A native histogram counts as floats of the same size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SampleCounts {
    /// Samples that the step would read if it were evaluated alone: for range functions the whole window.
    pub queryable: Vec<u64>,
    /// Samples that no earlier step has read: for range functions those that are new in the window.
    pub read: Vec<u64>,
}

/// Counts for an evaluation at one instant; fails as that would.
pub fn count_instant(
    expression: &Expression,
    time_ms: i64,
    evaluation: &Evaluation<'_>,
) -> Result<SampleCounts, QueryError> {
    check_times(&[time_ms], evaluation.settings)?;
    let expr = bind_times(&expression.expr, QueryTimes::instant(time_ms))?;
    let evaluator = Evaluator::new(evaluation);
    let steps = Steps::one(time_ms);
    if expr.kind() == ResultKind::RangeVector && !matches!(expr.unwrapped().node, Node::Subquery(_)) {
        let series = evaluator.range_vector(&expr, steps)?;
        let series = series.into_first_window(&evaluator.annotations, evaluator.budget)?;
        let count = |samples: &Samples| SampleSizes::new(samples, HistogramUse::default()).all(samples);
        let count = series.iter().map(|series| count(&series.samples)).sum();
        return Ok(SampleCounts { queryable: vec![count], read: vec![count] });
    }
    evaluator.count(&expr, steps, HistogramUse::default())
}

/// Counts for an evaluation at every step from start to end, both included; fails as that would.
pub fn count_range(
    expression: &Expression,
    times: QueryTimes,
    evaluation: &Evaluation<'_>,
) -> Result<SampleCounts, QueryError> {
    let count = range_steps(expression, times, evaluation.settings)?;
    let expr = bind_times(&expression.expr, times)?;
    let steps = Steps { start_ms: times.start_ms, step_ms: times.step_ms, count };
    let evaluator = Evaluator::new(evaluation);
    evaluator.steps.set(Some(steps));
    evaluator.count(&expr, steps, HistogramUse::default())
}

/// The parts of histograms that enclosing expressions need: Prometheus does not read buckets if only count and sum are used.
#[derive(Debug, Clone, Copy, Default)]
struct HistogramUse {
    is_about_sums: bool,
    needs_buckets: bool,
}

impl HistogramUse {
    /// The needs of expressions inside of this one.
    fn inner_usage(mut self, expr: &Expr) -> Self {
        match &expr.node {
            Node::Subquery(_) => self.needs_buckets = true,
            Node::Call(call) => match call.signature.function {
                Function::Histogram(HistogramPart::Count | HistogramPart::Sum | HistogramPart::Average) => {
                    self.is_about_sums = true;
                }
                Function::Histogram(_)
                | Function::HistogramQuantile
                | Function::HistogramQuantiles
                | Function::HistogramFraction => self.needs_buckets = true,
                _ => {}
            },
            _ => {}
        }
        self
    }

    /// How many floats a histogram counts for: Prometheus's memory for one with its time, in units of 16 bytes. Stretches of buckets
    /// without a gap stand for its spans.
    fn size(self, histogram: &Histogram) -> u64 {
        const STRUCT_BYTES: usize = 168;
        let spans = |buckets: &[(i32, f64)]| {
            let gaps =
                buckets.windows(2).filter(|pair| matches!(pair, [(a, _), (b, _)] if a.checked_add(1) != Some(*b)));
            usize::from(!buckets.is_empty()) + gaps.count()
        };
        let (positive, negative) = (&histogram.positive, &histogram.negative);
        let words = match self {
            Self { is_about_sums: true, needs_buckets: false } => 0,
            _ => {
                let of_buckets = spans(positive) + spans(negative) + positive.len() + negative.len();
                of_buckets + histogram.custom_bounds.len()
            }
        };
        ((STRUCT_BYTES + 8 * words + 8) / 16) as u64
    }
}

impl SampleCounts {
    fn none(steps: Steps) -> Self {
        Self { queryable: vec![0; steps.count], read: vec![0; steps.count] }
    }

    fn add(&mut self, other: &Self) {
        for (sums, others) in [(&mut self.queryable, &other.queryable), (&mut self.read, &other.read)] {
            sums.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
        }
    }

    /// Counts of an expression that is computed once: it holds at all steps, and is read at the first.
    fn repeated(&self, steps: Steps) -> Self {
        let mut all = Self::none(steps);
        all.queryable.fill(self.queryable.iter().sum());
        if let Some(first) = all.read.first_mut() {
            *first = self.read.iter().sum();
        }
        all
    }
}

impl Evaluator<'_> {
    fn count(&self, expr: &Expr, steps: Steps, usage: HistogramUse) -> Result<SampleCounts, QueryError> {
        self.budget.check()?;
        // One entry of each list is as long as half a sample.
        let mut charge = Charge::none(self.budget);
        charge.add(steps.count)?;
        if steps.count > 1 && expr.is_step_invariant() {
            return Ok(self.count(expr, Steps { count: 1, ..steps }, usage)?.repeated(steps));
        }
        let inner_usage = usage.inner_usage(expr);
        match &expr.node {
            Node::Selector(selector) => self.count_instant_selector(selector, SelectorOutput::Values, steps, usage),
            // The query itself, at one instant: all that it evaluates counts.
            Node::Subquery(subquery) => {
                let grid = subquery_grid(subquery, steps, self.settings.subquery_step_ms);
                let Some(subquery_steps) = grid.steps(self.settings)? else { return Ok(SampleCounts::none(steps)) };
                let once = self.count(&subquery.inner, subquery_steps, inner_usage)?;
                Ok(once.repeated(steps))
            }
            Node::Call(call) => self.count_call(call, steps, inner_usage),
            Node::SampleAggregate(aggregate) => match aggregate.arguments.split_last() {
                Some((selector, parameters)) if aggregate.operation.sketch_kind().is_some() => {
                    let mut counts = self.count_texts(selector, steps, aggregate.operation.name())?;
                    counts.add(&self.count_arguments(parameters, steps, inner_usage)?);
                    Ok(counts)
                }
                _ => self.count_arguments(&aggregate.arguments, steps, inner_usage),
            },
            Node::Chain(chain) => self.count_chain(chain, steps, usage),
            _ => self.count_all(expr.children().into_iter(), steps, inner_usage),
        }
    }

    fn count_chain(&self, chain: &Chain, steps: Steps, usage: HistogramUse) -> Result<SampleCounts, QueryError> {
        // What buckets are cut off of is read with them.
        let trims = |link: &Link| matches!(link.operator, Operator::Trim { .. });
        let trimmed = chain.links.iter().rposition(trims).map_or(0, |last| last + 2);
        let mut counts = SampleCounts::none(steps);
        for (place, operand) in chain.operands().enumerate() {
            let needs_buckets = usage.needs_buckets || place < trimmed;
            counts.add(&self.count(operand, steps, HistogramUse { needs_buckets, ..usage })?);
        }
        Ok(counts)
    }

    fn count_all<'e>(
        &self,
        exprs: impl Iterator<Item = &'e Expr>,
        steps: Steps,
        usage: HistogramUse,
    ) -> Result<SampleCounts, QueryError> {
        let mut counts = SampleCounts::none(steps);
        for expr in exprs {
            counts.add(&self.count(expr, steps, usage)?);
        }
        Ok(counts)
    }

    fn count_call(&self, call: &Call, steps: Steps, usage: HistogramUse) -> Result<SampleCounts, QueryError> {
        match (call.signature.function, call.arguments.as_slice()) {
            (Function::Timestamp, [Expr { node: Node::Selector(selector), .. }]) => {
                self.count_instant_selector(selector, SelectorOutput::Timestamps, steps, usage)
            }
            (Function::Info, [input, labels @ ..]) => {
                let mut counts = self.count(input, steps, usage)?;
                let mut tally = Tally { counts: vec![0; steps.count], usage };
                self.info_rows(input, labels.first(), steps, &mut tally)?;
                counts.add(&tally.counts());
                Ok(counts)
            }
            (_, arguments) => self.count_arguments(arguments, steps, usage),
        }
    }

    fn count_arguments(
        &self,
        arguments: &[Expr],
        steps: Steps,
        usage: HistogramUse,
    ) -> Result<SampleCounts, QueryError> {
        let mut counts = SampleCounts::none(steps);
        for argument in arguments {
            counts.add(&match &argument.unwrapped().node {
                Node::Range(range) => self.count_range_selector(range, steps, usage)?,
                Node::Subquery(subquery) => self.count_subquery(argument.unwrapped(), subquery, steps, usage)?,
                _ => self.count(argument, steps, usage)?,
            });
        }
        Ok(counts)
    }

    fn count_instant_selector(
        &self,
        selector: &Selector,
        output: SelectorOutput,
        steps: Steps,
        usage: HistogramUse,
    ) -> Result<SampleCounts, QueryError> {
        // As Prometheus: what is interpolated is not counted.
        if selector.edges == Edges::Smoothed && output == SelectorOutput::Values {
            return Ok(SampleCounts::none(steps));
        }
        let mut tally = Tally { counts: vec![0; steps.count], usage };
        let bounds = WindowBounds::instant(selector, output, steps, self.settings.lookback_ms);
        self.instant_rows(&selector.matchers, &bounds, output, NeededLabels::All, &mut tally)?;
        Ok(tally.counts())
    }

    fn count_range_selector(
        &self,
        range: &Range,
        steps: Steps,
        usage: HistogramUse,
    ) -> Result<SampleCounts, QueryError> {
        let bounds = self.range_bounds(range, steps);
        let counts = Mutex::new(SampleCounts::none(steps));
        let make = |labels, mut samples: Samples, _: &Annotations| {
            samples.drop_stale();
            let sizes = SampleSizes::new(&samples, usage);
            sizes.count(&samples, &bounds, &mut counts.lock().unwrap_or_else(PoisonError::into_inner));
            Ok(Row::new(labels))
        };
        let options = StreamOptions {
            step: COUNT,
            make: &make,
            windows: None,
            last: None,
            grouping: None,
            projection: None,
            is_numbered: false,
            distinct: false,
        };
        self.stream(
            &range.selector.matchers,
            bounds.read_interval(),
            &options,
            &mut Tally { counts: Vec::new(), usage },
        )?;
        Ok(counts.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// What an aggregation of sketches reads.
    fn count_texts(&self, selector: &Expr, steps: Steps, aggregation: &str) -> Result<SampleCounts, QueryError> {
        let windows = self.text_windows(selector, steps, aggregation)?;
        let tally = TextTally { windows, budget: self.budget, counts: Mutex::new(SampleCounts::none(steps)) };
        self.scan_texts(&windows, &tally, |_| (0, 0))?;
        let mut counts = tally.counts.into_inner().unwrap_or_else(PoisonError::into_inner);
        counts.add_up();
        Ok(counts)
    }

    /// Windows over what the inner expression yields; what that reads is read at the step that needs it first.
    fn count_subquery(
        &self,
        argument: &Expr,
        subquery: &Subquery,
        steps: Steps,
        usage: HistogramUse,
    ) -> Result<SampleCounts, QueryError> {
        let mut counts = SampleCounts::none(steps);
        let grid = subquery_grid(subquery, steps, self.settings.subquery_step_ms);
        let Some(subquery_steps) = grid.steps(self.settings)? else { return Ok(counts) };
        let inner_usage = usage.inner_usage(argument);
        let range = self.range_vector(argument, steps)?;
        for series in &range.series {
            SampleSizes::new(&series.samples, inner_usage).count(&series.samples, &range.bounds, &mut counts);
        }
        drop(range);
        let inner = self.count(&subquery.inner, subquery_steps, inner_usage)?;
        let offset_ms = subquery.shift.offset_ms();
        counts.read = reads_by_outer_step(steps, &inner.read, subquery_steps, offset_ms, grid.bounds.range_ms);
        Ok(counts)
    }
}

/// Assigns the reads of a subquery's steps to the first outer step whose window contains them; reads between windows are dropped.
fn reads_by_outer_step(outer: Steps, read: &[u64], inner: Steps, offset_ms: i64, range_ms: i64) -> Vec<u64> {
    let mut reads = vec![0; outer.count];
    for (index, read) in read.iter().enumerate() {
        let time_ms = inner.time_ms(index) + offset_ms;
        let step = match time_ms - outer.start_ms {
            past_ms @ 1.. if outer.count > 1 => (past_ms as u64).div_ceil(outer.step_ms.max(1) as u64) as usize,
            _ => 0,
        };
        let step = step.min(outer.count.saturating_sub(1));
        let is_between = outer.count > 1 && time_ms <= outer.time_ms(step) - range_ms;
        if let Some(sum) = reads.get_mut(step).filter(|_| !is_between) {
            *sum += read;
        }
    }
    reads
}

/// Counts the samples of rows, step by step.
struct Tally {
    counts: Vec<u64>,
    usage: HistogramUse,
}

impl RowSink for Tally {
    fn push(&mut self, made: SeriesRow) -> Result<(), QueryError> {
        for (step, sample) in made.row.present() {
            if let Some(count) = self.counts.get_mut(step) {
                *count += match sample {
                    Sample::Float(_) => 1,
                    Sample::Histogram(histogram) => self.usage.size(&histogram),
                };
            }
        }
        Ok(())
    }
}

impl Tally {
    /// Each step reads its own samples.
    fn counts(self) -> SampleCounts {
        SampleCounts { queryable: self.counts.clone(), read: self.counts }
    }
}

impl SampleCounts {
    /// Makes counts of how they change from step to step, modulo 2^64.
    fn add_up(&mut self) {
        for changes in [&mut self.queryable, &mut self.read] {
            let mut sum = 0u64;
            for change in changes {
                sum = sum.wrapping_add(*change);
                *change = sum;
            }
        }
    }
}

/// Counts texts as histograms, by the memory that they take: how the counts change from step to step.
struct TextTally<'a> {
    windows: TextWindows<'a>,
    budget: &'a Budget,
    counts: Mutex<SampleCounts>,
}

impl TextSink for TextTally<'_> {
    fn take(&self, series: TextSeries) -> Result<(), QueryError> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let SampleCounts { queryable, read } = &mut *counts;
        for CountingSample { steps, sample, .. } in self.windows.counting(&series.samples) {
            let size = match sample {
                TextSample::Text(_) => sample.samples() as u64,
                TextSample::Other => 1,
                TextSample::Stale => continue,
            };
            // The newest sample is read by each step, one of a range by the first.
            let reading =
                if self.windows.is_of_newest { steps.clone() } else { steps.start..steps.end.min(steps.start + 1) };
            for (changes, steps) in [(&mut *queryable, steps), (&mut *read, reading)] {
                // At the first step and after the last one: a sample may count at thousands.
                let mut change = |step: usize, by: u64| {
                    changes.get_mut(step).into_iter().for_each(|sum| *sum = sum.wrapping_add(by));
                };
                change(steps.start, size);
                change(steps.end.max(steps.start), size.wrapping_neg());
            }
        }
        drop(counts);
        self.budget.give_back(series.samples());
        Ok(())
    }
}

/// The sizes of a series' histograms, added up from the first on; floats count for one each.
struct SampleSizes(Vec<u64>);

impl SampleSizes {
    fn new(samples: &Samples, usage: HistogramUse) -> Self {
        let mut sum = 0;
        let sums = samples.histograms.iter().map(|histogram| {
            sum += usage.size(histogram);
            sum
        });
        Self(std::iter::once(0).chain(sums).collect())
    }

    fn between(&self, first: usize, end: usize) -> u64 {
        let sum = |index: usize| self.0.get(index).copied().unwrap_or_default();
        sum(end).saturating_sub(sum(first))
    }

    /// The size of all samples.
    fn all(&self, samples: &Samples) -> u64 {
        samples.values.len() as u64 + self.0.last().copied().unwrap_or_default()
    }

    /// Adds what lies in the windows.
    fn count(&self, samples: &Samples, bounds: &WindowBounds, counts: &mut SampleCounts) {
        let floats = |first: usize, end: usize| (end - first) as u64;
        count_windows(&samples.timestamps_ms, floats, bounds, counts);
        count_windows(&samples.histogram_timestamps_ms, |first, end| self.between(first, end), bounds, counts);
    }
}

fn count_windows(
    times_ms: &[i64],
    size: impl Fn(usize, usize) -> u64,
    bounds: &WindowBounds,
    counts: &mut SampleCounts,
) {
    if times_ms.is_empty() {
        return;
    }
    let (mut window, mut unread) = (Cursor::default(), Cursor::default());
    let SampleCounts { queryable, read } = counts;
    for (step, (queryable, read)) in queryable.iter_mut().zip(read).enumerate() {
        let interval = bounds.window(step);
        let (first, end) = window.advance(times_ms, interval);
        *queryable += size(first, end);
        if step == 0 {
            *read += size(first, end);
        } else if !bounds.ends.is_pinned() {
            let after_ms = interval.after_ms.max(interval.to_ms - bounds.ends.steps.step_ms);
            let (first, end) = unread.advance(times_ms, SampleInterval { after_ms, ..interval });
            *read += size(first, end);
        }
    }
}
