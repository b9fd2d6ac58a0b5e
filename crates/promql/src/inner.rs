//! Expressions within others that somebody keeps: the `rate` under the sums of several panels, and sums within larger expressions.
//!
//! ```text
//!  sum by (a) (rate(x[5m])) ──► rate(x[5m]): who keeps it? ──► stretches of steps that are kept ──┐
//!                                                         └──► the others are evaluated, and kept ┴──► one after the other, to the sum
//! ```
//!
//! Rows of window functions are kept as they go by. At any step they go on as they would have, in the same order, so that sums over them are the
//! same to the bit. Aggregations are kept as answers are: somebody may have asked for one as a whole.
//! Only expressions whose steps stand for themselves are looked up, so that stretches can be put together.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Labels, Matcher};
use query::{QueryError, Trace};

use crate::Reads;
use crate::answer::points;
use crate::eval::{Evaluator, name_of};
use crate::function::Function;
use crate::kept_rows::{KeptRow, KeptRows};
use crate::reach::reads_of;
use crate::rows::{Row, Sample, Steps, Vector};
use crate::stream::{Made, RowSink};
use crate::stretch::Stretch;
use crate::syntax::ast::{Aggregate, Call, Expr, Grouping, Node};
use crate::syntax::print;
use crate::syntax::span::Span;

/// What an evaluation reports of rows that were kept.
const KEPT: &str = "kept rows";

/// An expression within another, and the steps that are asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Inner {
    /// In the standard spelling, all durations fixed.
    pub text: String,
    /// The nearest expression around it that is looked up, too; `None` for the query itself.
    pub outer: Option<String>,
    /// The matchers of each of its selectors.
    pub selectors: Vec<Vec<Matcher>>,
    /// What its step at time 0 looks at.
    pub reads: Reads,
    /// From the first step to just before this, in milliseconds.
    pub span_ms: (i64, i64),
    /// From one step to the next.
    pub step_ms: i64,
    /// Whether it is kept as [`KeptRows`]; else as a [`Stretch`].
    pub is_rows: bool,
}

/// What there is of an [`Inner`].
pub enum Asked {
    /// Nothing, and what comes of it is not to be kept; neither are expressions in it unless others ask for them.
    Unkept,
    /// The same of one that can never be kept: what is in it counts as asked for by what is around it.
    Never,
    /// Some of it; the rest is to be evaluated, and kept.
    Parts(Vec<InnerPart>),
}

/// A stretch of an [`Inner`]; all of them, in order of time, are all of its steps.
pub struct InnerPart {
    /// From its first step to just before this, in milliseconds.
    pub span_ms: (i64, i64),
    /// What is kept for it, and maybe for more; `None` if it is to be evaluated.
    pub kept: Option<Arc<dyn KeptInner>>,
}

/// What is kept of an [`Inner`], in either form.
pub trait KeptInner: Send + Sync {
    /// Rows, if it is these.
    fn rows(&self) -> Option<&KeptRows>;
    /// An answer by steps, if it is one.
    fn stretch(&self) -> Option<&Stretch>;
}

/// What was evaluated of an [`Inner`].
pub enum MadeInner {
    /// Of a window function.
    Rows(KeptRows),
    /// Of an aggregation.
    Stretch(Stretch),
}

/// Who keeps expressions within others.
pub trait Keeper {
    /// What there is of one.
    fn find(&self, inner: &Inner) -> Result<Asked, QueryError>;
    /// Takes what was evaluated for a stretch of it.
    fn keep(&self, inner: &Inner, made: MadeInner, span_ms: (i64, i64));
    /// Says that a stretch of it cannot be kept: because it is too large, or for another reason, which may well hold for all of it.
    fn refuse(&self, inner: &Inner, is_too_large: bool);
    /// What one stretch may take.
    fn bytes_max(&self) -> usize;
}

/// What hands on rows, and gathers them to be kept.
struct Tee<'s> {
    sink: &'s mut dyn RowSink,
    /// Steps of the sink before the first that comes.
    offset: usize,
    gathered: Result<Gathered, Refusal>,
    bytes_max: usize,
}

/// Rows to be kept. They are not charged to the query, which must not fail because somebody else may want them: whoever keeps them says how
/// many bytes they may take.
#[derive(Default)]
struct Gathered {
    rows: Vec<KeptRow>,
    bytes: usize,
}

/// Why nothing was gathered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refusal {
    TooLarge,
    Histograms,
}

impl Gathered {
    fn add(&mut self, made: &Made, bytes_max: usize) -> Result<(), Refusal> {
        let row = KeptRow::of(&made.series, &made.row).ok_or(Refusal::Histograms)?;
        self.bytes += row.size_bytes();
        if self.bytes > bytes_max {
            return Err(Refusal::TooLarge);
        }
        self.rows.push(row);
        Ok(())
    }
}

impl RowSink for Tee<'_> {
    fn take(&mut self, mut made: Made) -> Result<(), QueryError> {
        if let Ok(gathered) = &mut self.gathered
            && let Err(refusal) = gathered.add(&made, self.bytes_max)
        {
            self.gathered = Err(refusal);
        }
        made.row.first += self.offset;
        self.sink.take(made)
    }
}

/// The notes that an expression that is kept may leave: all are made again of what is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaves {
    Nothing,
    NamesOfCounters,
}

impl<'q> Evaluator<'q> {
    /// The rows of a window function, in order, to wherever they go.
    pub(crate) fn window_rows(
        &self,
        call: &Call,
        span: Span,
        steps: Steps,
        grouping: Option<&Grouping>,
        sink: &mut dyn RowSink,
    ) -> Result<(), QueryError> {
        let asked = self.inner(steps, true, || Expr::new(Node::Call(Box::new(call.clone())), span));
        let Some((inner, keeper)) = asked else { return self.evaluated_rows(call, steps, grouping, sink) };
        let parts = match keeper.find(&inner)? {
            Asked::Never => return self.evaluated_rows(call, steps, grouping, sink),
            Asked::Unkept => return self.within(&inner, || self.evaluated_rows(call, steps, grouping, sink)),
            Asked::Parts(parts) => parts,
        };
        for InnerPart { span_ms, kept } in parts {
            if let Some(rows) = kept.as_ref().and_then(|kept| kept.rows()) {
                self.give_kept(call, (rows, span_ms), steps, grouping, sink)?;
                continue;
            }
            let (hole, offset) = part_of(steps, span_ms);
            let mut tee = Tee { sink, offset, gathered: Ok(Gathered::default()), bytes_max: keeper.bytes_max() };
            let leaves = leaves(call);
            let evaluate = || self.evaluated_rows(call, hole, grouping, &mut tee);
            let ((), is_plain) = self.apart(&inner, (steps, hole), leaves, evaluate)?;
            match tee.gathered {
                Ok(Gathered { rows, .. }) if is_plain => {
                    keeper.keep(&inner, MadeInner::Rows(KeptRows::new(hole, rows)), span_ms);
                }
                Ok(_) => keeper.refuse(&inner, false),
                Err(refusal) => keeper.refuse(&inner, refusal == Refusal::TooLarge),
            }
        }
        Ok(())
    }

    /// Hands on rows that were kept, and says again what was said of them.
    fn give_kept(
        &self,
        call: &Call,
        (rows, span_ms): (&KeptRows, (i64, i64)),
        steps: Steps,
        grouping: Option<&Grouping>,
        sink: &mut dyn RowSink,
    ) -> Result<(), QueryError> {
        let started_ns = self.source.trace().map(Trace::begin);
        let (mut series, mut values) = (0, 0);
        let noted_steps = (self.steps.get() == Some(steps)).then_some(steps);
        let span = call.arguments.first().map_or(Span::from(0), |argument| argument.span);
        let notes_counters = leaves(call) == Leaves::NamesOfCounters;
        rows.give(span_ms, steps, |kept, row| {
            self.budget.check()?;
            if row.is_empty() {
                return Ok(());
            }
            if notes_counters {
                self.notes.check_counter_name(name_of(&kept.series), span, &row, noted_steps);
            }
            series += 1;
            values += row.len();
            let group = grouping.map(|grouping| grouping.key(&row.labels));
            sink.take(Made { series: kept.series.clone(), group, row })
        })?;
        self.report_kept(started_ns, series, values);
        Ok(())
    }

    fn report_kept(&self, started_ns: Option<i64>, series: usize, values: usize) {
        if let Some((trace, started_ns)) = self.source.trace().zip(started_ns) {
            trace.end(started_ns, Some(KEPT), series, values);
        }
    }

    /// An aggregation.
    pub(crate) fn aggregate(&self, aggregate: &Aggregate, span: Span, steps: Steps) -> Result<Vector<'q>, QueryError> {
        let asked = self.inner(steps, false, || Expr::new(Node::Aggregate(Box::new(aggregate.clone())), span));
        let Some((inner, keeper)) = asked else { return self.evaluated_aggregate(aggregate, span, steps) };
        let parts = match keeper.find(&inner)? {
            Asked::Never => return self.evaluated_aggregate(aggregate, span, steps),
            Asked::Unkept => return self.within(&inner, || self.evaluated_aggregate(aggregate, span, steps)),
            Asked::Parts(parts) => parts,
        };
        let mut joined = Joined { rows: BTreeMap::new(), steps };
        for InnerPart { span_ms, kept } in parts {
            if let Some(stretch) = kept.as_ref().and_then(|kept| kept.stretch()) {
                let started_ns = self.source.trace().map(Trace::begin);
                let (series, values) = joined.add_stretch(stretch, span_ms);
                self.report_kept(started_ns, series, values);
                continue;
            }
            let (hole, offset) = part_of(steps, span_ms);
            let evaluate = || self.evaluated_aggregate(aggregate, span, hole);
            let (vector, is_plain) = self.apart(&inner, (steps, hole), Leaves::Nothing, evaluate)?;
            let is_plain = is_plain && !vector.rows.iter().any(Row::has_histograms);
            let made = is_plain.then(|| stretch_of(&vector, hole));
            match made {
                Some(stretch) if stretch.size_bytes() <= keeper.bytes_max() => {
                    keeper.keep(&inner, MadeInner::Stretch(stretch), span_ms);
                }
                made => keeper.refuse(&inner, made.is_some()),
            }
            if hole == steps {
                return Ok(vector);
            }
            joined.add_rows(&vector.rows, offset);
        }
        let mut vector = Vector::empty(self.budget);
        joined.rows.into_values().try_for_each(|row| vector.push(row))?;
        Ok(vector)
    }

    /// An expression to be looked up, if somebody keeps such, and its steps stand for themselves.
    fn inner(&self, steps: Steps, is_rows: bool, expr: impl FnOnce() -> Expr) -> Option<(Inner, &'q dyn Keeper)> {
        let keeper = self.keeper.filter(|_| self.may_be_cut)?;
        let expr = expr();
        let reads = reads_of(&expr, self.settings)?;
        let mut selectors = Vec::new();
        expr.for_each_selector(&mut |selector| selectors.push(selector.matchers.clone()));
        let span_ms = (steps.start_ms, steps.time_ms(steps.count));
        let (text, outer) = (print::line(&expr), self.outer.borrow().clone());
        Some((Inner { text, outer, selectors, reads, span_ms, step_ms: steps.step_ms, is_rows }, keeper))
    }

    /// Evaluates what is in an expression.
    fn within<T>(&self, inner: &Inner, evaluate: impl FnOnce() -> T) -> T {
        let outer = self.outer.replace(Some(inner.text.clone()));
        let evaluated = evaluate();
        self.outer.replace(outer);
        evaluated
    }

    /// Evaluates a stretch of an expression's steps. Also says whether that left no notes but those that it may.
    fn apart<T>(
        &self,
        inner: &Inner,
        (steps, hole): (Steps, Steps),
        leaves: Leaves,
        evaluate: impl FnOnce() -> Result<T, QueryError>,
    ) -> Result<(T, bool), QueryError> {
        let all = self.steps.get();
        if all == Some(steps) {
            self.steps.set(Some(hole));
        }
        let before = self.notes.take();
        let evaluated = self.within(inner, evaluate)?;
        let is_plain = match leaves {
            Leaves::Nothing => self.notes.is_empty(),
            Leaves::NamesOfCounters => self.notes.are_by_step(),
        };
        let later = self.notes.take();
        self.notes.absorb(before);
        self.notes.absorb(later);
        self.steps.set(all);
        Ok((evaluated, is_plain))
    }
}

/// Functions of a selector's counters say so of each step if their names are not those of counters, and nothing else of floats.
fn leaves(call: &Call) -> Leaves {
    let of_counters = matches!(call.signature.function, Function::Window(function) if function.wants_counter());
    let of_selector = matches!(call.arguments.as_slice(), [Expr { node: Node::Range(_), .. }]);
    if of_counters && of_selector { Leaves::NamesOfCounters } else { Leaves::Nothing }
}

/// A stretch of steps, and how many come before it.
fn part_of(steps: Steps, (start_ms, end_ms): (i64, i64)) -> (Steps, usize) {
    let count = |length_ms: i64| usize::try_from(length_ms / steps.step_ms).unwrap_or_default();
    (Steps { start_ms, count: count(end_ms - start_ms), ..steps }, count(start_ms - steps.start_ms))
}

fn stretch_of(vector: &Vector<'_>, steps: Steps) -> Stretch {
    let floats = |row: &Row| {
        let (labels, points) = points(row, steps);
        (labels, points.floats)
    };
    let mut series: Vec<_> = vector.rows.iter().map(floats).collect();
    series.sort_by(|a, b| a.0.cmp(&b.0));
    Stretch { series, infos: BTreeMap::new() }
}

/// Rows that are put together of stretches, in order of labels.
struct Joined {
    rows: BTreeMap<Labels, Row>,
    steps: Steps,
}

impl Joined {
    fn row(&mut self, labels: &Labels) -> &mut Row {
        self.rows.entry(labels.clone()).or_insert_with_key(|labels| Row::new(labels.clone()))
    }

    /// Adds a stretch's values at some times. How many series and values these were.
    fn add_stretch(&mut self, stretch: &Stretch, (start_ms, end_ms): (i64, i64)) -> (usize, usize) {
        let Steps { start_ms: from_ms, step_ms, .. } = self.steps;
        let (mut series, mut count) = (0, 0);
        for (labels, values) in &stretch.series {
            let first = values.partition_point(|(time_ms, _)| *time_ms < start_ms);
            let end = values.partition_point(|(time_ms, _)| *time_ms < end_ms);
            let Some(values) = values.get(first..end).filter(|values| !values.is_empty()) else { continue };
            series += 1;
            count += values.len();
            let row = self.row(labels);
            for (time_ms, value) in values {
                if let Ok(step) = usize::try_from((time_ms - from_ms) / step_ms) {
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
