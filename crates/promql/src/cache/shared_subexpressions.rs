//! Looks up subexpressions that a cache may have: the `rate` under the sums of several panels, and sums within larger expressions.
//!
//! ```text
//!  sum by (a) (rate(x[5m])) ──► rate(x[5m]): cached? ──► cached steps are replayed ──────────┐
//!                                                    └──► others are evaluated and inserted ──┴──► to the sum, in order of time
//! ```
//!
//! Rows of range functions are cached in the order in which they came, and replayed in that order at every step, so that sums over them are
//! bit-identical. Aggregations are cached as results of range queries are: one may be the whole of another query.
//! Only expressions whose steps can be computed by themselves are looked up, so that parts can be joined.

use std::collections::BTreeMap;

use model::Labels;
use query::{QueryError, Trace};

use crate::cache::cached_rows::{CachedRow, CachedRows};
use crate::cache::dependencies::step_read_interval_of;
use crate::cache::partial_range::PartialRange;
use crate::cache::subexpression::{
    EvaluatedSubexpression, Subexpression, SubexpressionCache, SubexpressionLookup, SubexpressionPart,
};
use crate::eval::evaluator::Evaluator;
use crate::eval::row_stream::{RowSink, SeriesRow};
use crate::eval::rows::{Row, Sample, StepSpan, Steps, Vector, metric_name};
use crate::range::range_functions::RangeCall;
use crate::result::points;
use crate::syntax::ast::{Aggregate, Call, Expr, Node};
use crate::syntax::functions::Function;
use crate::syntax::print;
use crate::syntax::span::Span;

/// The step that an evaluation reports for cached rows.
const CACHED_ROWS_STEP: &str = "kept rows";

/// Forwards rows, and records them for the cache.
struct RecordingSink<'s> {
    sink: &'s mut dyn RowSink,
    /// Added to the steps of rows before they are forwarded.
    offset: usize,
    recorded: Result<RecordedRows, Rejection>,
    bytes_max: usize,
}

/// Rows for the cache. They are not charged to the query, which must not fail because another query may want them: the cache limits their
/// bytes.
#[derive(Default)]
struct RecordedRows {
    rows: Vec<CachedRow>,
    bytes: usize,
}

/// Why rows cannot be cached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rejection {
    TooLarge,
    Histograms,
}

impl RecordedRows {
    fn add(&mut self, made: &SeriesRow, bytes_max: usize) -> Result<(), Rejection> {
        let row = CachedRow::from_row(&made.series, &made.row).ok_or(Rejection::Histograms)?;
        self.bytes += row.size_bytes();
        if self.bytes > bytes_max {
            return Err(Rejection::TooLarge);
        }
        self.rows.push(row);
        Ok(())
    }
}

impl RowSink for RecordingSink<'_> {
    fn push(&mut self, mut made: SeriesRow) -> Result<(), QueryError> {
        if let Ok(recorded) = &mut self.recorded
            && let Err(rejection) = recorded.add(&made, self.bytes_max)
        {
            self.recorded = Err(rejection);
        }
        made.row.first += self.offset;
        self.sink.push(made)
    }
}

/// The annotations that a cacheable expression may have: those that can be recreated from cached rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ExpectedAnnotations {
    Nothing,
    CounterNames,
}

/// Some steps of a subexpression, evaluated by themselves.
#[derive(Clone, Copy)]
struct EvaluatedPart {
    /// The steps of the subexpression.
    whole: Steps,
    steps: Steps,
    /// How many steps of the whole come before.
    offset: usize,
}

impl EvaluatedPart {
    fn new(whole: Steps, span: StepSpan) -> Self {
        let count = |length_ms: i64| usize::try_from(length_ms / whole.step_ms).unwrap_or_default();
        let steps = Steps { start_ms: span.start_ms, count: count(span.end_ms - span.start_ms), ..whole };
        Self { whole, steps, offset: count(span.start_ms - whole.start_ms) }
    }
}

impl<'q> Evaluator<'q> {
    /// The rows of a range function, in order.
    pub(crate) fn range_rows(
        &self,
        range: &RangeCall<'_>,
        span: Span,
        sink: &mut dyn RowSink,
    ) -> Result<(), QueryError> {
        let RangeCall { call, steps, grouping } = *range;
        let lookup = self.subexpression(steps, true, || Expr::new(Node::Call(Box::new(call.clone())), span));
        let Some((subexpression, cache)) = lookup else { return self.evaluate_range_rows(range, sink) };
        let parts = match cache.lookup(&subexpression)? {
            SubexpressionLookup::Uncacheable => return self.evaluate_range_rows(range, sink),
            SubexpressionLookup::NotCached => {
                return self.within(&subexpression, || self.evaluate_range_rows(range, sink));
            }
            SubexpressionLookup::Parts(parts) => parts,
        };
        for SubexpressionPart { span, cached } in parts {
            if let Some(cached) = cached.as_ref().and_then(|cached| cached.rows()) {
                self.replay_rows(range, cached, span, sink)?;
                continue;
            }
            let part = EvaluatedPart::new(steps, span);
            let recorded = Ok(RecordedRows::default());
            let mut tee = RecordingSink { sink, offset: part.offset, recorded, bytes_max: cache.bytes_max() };
            let part_call = RangeCall { call, steps: part.steps, grouping };
            let evaluate = || self.evaluate_range_rows(&part_call, &mut tee);
            let ((), is_cacheable) = self.evaluate_part(&subexpression, part, expected_annotations(call), evaluate)?;
            match tee.recorded {
                Ok(RecordedRows { rows, .. }) if is_cacheable => {
                    let rows = CachedRows::new(part.steps, rows);
                    cache.insert(&subexpression, EvaluatedSubexpression::Rows(rows), span);
                }
                Ok(_) => cache.reject(&subexpression, false),
                Err(rejection) => cache.reject(&subexpression, rejection == Rejection::TooLarge),
            }
        }
        Ok(())
    }

    /// Forwards cached rows, and recreates their annotations.
    fn replay_rows(
        &self,
        range: &RangeCall<'_>,
        cached: &CachedRows,
        span: StepSpan,
        sink: &mut dyn RowSink,
    ) -> Result<(), QueryError> {
        let RangeCall { call, steps, grouping } = *range;
        let started_ns = self.source.trace().map(Trace::begin);
        let (mut series, mut values) = (0, 0);
        let annotated_steps = (self.steps.get() == Some(steps)).then_some(steps);
        let argument_span = call.arguments.first().map_or(Span::from(0), |argument| argument.span);
        let annotates_counters = expected_annotations(call) == ExpectedAnnotations::CounterNames;
        cached.replay(span, steps, |cached, row| {
            self.budget.check()?;
            if row.is_empty() {
                return Ok(());
            }
            if annotates_counters {
                let name = metric_name(&cached.series);
                self.annotations.check_counter_name(name, argument_span, &row, annotated_steps);
            }
            series += 1;
            values += row.len();
            let group = grouping.map(|grouping| grouping.key(&row.labels));
            sink.push(SeriesRow { series: cached.series.clone(), group, row })
        })?;
        self.report_cached(started_ns, series, values);
        Ok(())
    }

    fn report_cached(&self, started_ns: Option<i64>, series: usize, values: usize) {
        if let Some((trace, started_ns)) = self.source.trace().zip(started_ns) {
            trace.end(started_ns, Some(CACHED_ROWS_STEP), series, values);
        }
    }

    /// The result of an aggregation.
    pub(crate) fn aggregate(&self, aggregate: &Aggregate, span: Span, steps: Steps) -> Result<Vector<'q>, QueryError> {
        let expr = || Expr::new(Node::Aggregate(Box::new(aggregate.clone())), span);
        let lookup = self.subexpression(steps, false, expr);
        let Some((subexpression, cache)) = lookup else { return self.evaluate_aggregate(aggregate, span, steps) };
        let parts = match cache.lookup(&subexpression)? {
            SubexpressionLookup::Uncacheable => return self.evaluate_aggregate(aggregate, span, steps),
            SubexpressionLookup::NotCached => {
                return self.within(&subexpression, || self.evaluate_aggregate(aggregate, span, steps));
            }
            SubexpressionLookup::Parts(parts) => parts,
        };
        let mut joined = JoinedRows { rows: BTreeMap::new(), steps };
        for SubexpressionPart { span: part_span, cached } in parts {
            if let Some(partial) = cached.as_ref().and_then(|cached| cached.partial_range()) {
                let started_ns = self.source.trace().map(Trace::begin);
                let (series, values) = joined.add_partial_range(partial, part_span);
                self.report_cached(started_ns, series, values);
                continue;
            }
            let part = EvaluatedPart::new(steps, part_span);
            let evaluate = || self.evaluate_aggregate(aggregate, span, part.steps);
            let (vector, is_cacheable) =
                self.evaluate_part(&subexpression, part, ExpectedAnnotations::Nothing, evaluate)?;
            let is_cacheable = is_cacheable && !vector.rows.iter().any(Row::has_histograms);
            match is_cacheable.then(|| partial_range_of(&vector, part.steps)) {
                Some(partial) if partial.size_bytes() <= cache.bytes_max() => {
                    cache.insert(&subexpression, EvaluatedSubexpression::Partial(partial), part_span);
                }
                partial => cache.reject(&subexpression, partial.is_some()),
            }
            if part.steps == steps {
                return Ok(vector);
            }
            joined.add_rows(&vector.rows, part.offset);
        }
        let mut vector = Vector::empty(self.budget);
        joined.rows.into_values().try_for_each(|row| vector.push(row))?;
        Ok(vector)
    }

    /// An expression to look up, and the cache; `None` without a cache, or if its steps cannot be computed by themselves.
    fn subexpression(
        &self,
        steps: Steps,
        is_rows: bool,
        expr: impl FnOnce() -> Expr,
    ) -> Option<(Subexpression, &'q dyn SubexpressionCache)> {
        let cache = self.subexpressions.filter(|_| self.is_stepwise)?;
        let expr = expr();
        let reads = step_read_interval_of(&expr, self.settings)?;
        let mut selectors = Vec::new();
        expr.for_each_selector(&mut |selector| selectors.push(selector.matchers.clone()));
        let span = StepSpan { start_ms: steps.start_ms, end_ms: steps.time_ms(steps.count) };
        let (text, outer) = (print::line(&expr), self.outer.borrow().clone());
        Some((Subexpression { text, outer, selectors, reads, span, step_ms: steps.step_ms, is_rows }, cache))
    }

    /// Evaluates what is within an expression.
    fn within<T>(&self, subexpression: &Subexpression, evaluate: impl FnOnce() -> T) -> T {
        let outer = self.outer.replace(Some(subexpression.text.clone()));
        let evaluated = evaluate();
        self.outer.replace(outer);
        evaluated
    }

    /// Evaluates some steps of an expression. Also returns whether it has no annotations but the expected ones.
    fn evaluate_part<T>(
        &self,
        subexpression: &Subexpression,
        part: EvaluatedPart,
        expected: ExpectedAnnotations,
        evaluate: impl FnOnce() -> Result<T, QueryError>,
    ) -> Result<(T, bool), QueryError> {
        let all = self.steps.get();
        if all == Some(part.whole) {
            self.steps.set(Some(part.steps));
        }
        let before = self.annotations.take();
        let evaluated = self.within(subexpression, evaluate)?;
        let is_cacheable = match expected {
            ExpectedAnnotations::Nothing => self.annotations.is_empty(),
            ExpectedAnnotations::CounterNames => self.annotations.are_by_step(),
        };
        let later = self.annotations.take();
        self.annotations.absorb(before);
        self.annotations.absorb(later);
        self.steps.set(all);
        Ok((evaluated, is_cacheable))
    }
}

/// Functions of a selector's counters have an info for each step if the name is not that of a counter, and no other about floats.
fn expected_annotations(call: &Call) -> ExpectedAnnotations {
    let of_counters = matches!(call.signature.function, Function::Range(function) if function.wants_counter());
    let of_selector = matches!(call.arguments.as_slice(), [Expr { node: Node::Range(_), .. }]);
    if of_counters && of_selector { ExpectedAnnotations::CounterNames } else { ExpectedAnnotations::Nothing }
}

fn partial_range_of(vector: &Vector<'_>, steps: Steps) -> PartialRange {
    let floats = |row: &Row| {
        let (labels, points) = points(row, steps);
        (labels, points.floats)
    };
    let mut series: Vec<_> = vector.rows.iter().map(floats).collect();
    series.sort_by(|a, b| a.0.cmp(&b.0));
    PartialRange { series, infos: BTreeMap::new() }
}

/// Rows that are joined from parts, in order of labels.
struct JoinedRows {
    rows: BTreeMap<Labels, Row>,
    steps: Steps,
}

impl JoinedRows {
    fn row(&mut self, labels: &Labels) -> &mut Row {
        self.rows.entry(labels.clone()).or_insert_with_key(|labels| Row::new(labels.clone()))
    }

    /// Adds a partial range's values within a span. Returns the number of series and values.
    fn add_partial_range(&mut self, partial: &PartialRange, span: StepSpan) -> (usize, usize) {
        let Steps { start_ms, step_ms, .. } = self.steps;
        let (mut series, mut count) = (0, 0);
        for (labels, values) in &partial.series {
            let first = values.partition_point(|(time_ms, _)| *time_ms < span.start_ms);
            let end = values.partition_point(|(time_ms, _)| *time_ms < span.end_ms);
            let Some(values) = values.get(first..end).filter(|values| !values.is_empty()) else { continue };
            series += 1;
            count += values.len();
            let row = self.row(labels);
            for (time_ms, value) in values {
                if let Ok(step) = usize::try_from((time_ms - start_ms) / step_ms) {
                    row.push(step, Sample::Float(*value));
                }
            }
        }
        (series, count)
    }

    fn add_rows(&mut self, rows: &[Row], offset: usize) {
        for row in rows {
            let joined = self.row(&row.labels);
            row.present().for_each(|(step, sample)| joined.push(step + offset, sample));
        }
    }
}
