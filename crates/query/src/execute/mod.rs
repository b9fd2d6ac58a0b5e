//! Runs a plan.

mod as_of;
mod binned;
mod bins;
mod cached_bins;
mod distinct;
mod end_bins;
mod evaluate;
mod fill;
mod group;
mod head_bins;
mod histogram;
mod increase;
mod join;
mod labelled;
mod last_rows;
mod likeness;
mod mapped;
mod narrow;
mod points;
mod regular;
mod rows;
mod scan;
mod spans;
mod tables;
mod view;

pub use cached_bins::{BinCache, BinsRequest, BinsResponse, ComputeBins};
use end_bins::EndBins;
pub(crate) use end_bins::is_searched;
pub use fill::{fill_gaps, interpolated};
pub(crate) use labelled::label_rows;
pub(crate) use last_rows::last_rows;
pub use last_rows::{LastRow, LastRows};
use mapped::{MappedRows, has_every_row};
pub(crate) use regular::groups as regular_groups;
pub use scan::{CachedBinReads, Reads};
pub(crate) use tables::{table_groups, tag_values};

use std::cell::RefCell;
use std::cmp::Ordering;

use store::{End, Store};

use model::Cell;

use crate::plan::{Expression, Grouping, Labelled, Plan, Scan};
use crate::views::{Expansion, UsedView, ViewCatalog};
use crate::{Budget, Frame, Helpers, QueryError};

/// The store, the limits and the caches that a plan runs with.
pub(crate) struct Context<'a> {
    /// Where the data is.
    pub(crate) store: &'a Store,
    /// Which database of it; one that does not exist has no series.
    pub(crate) database: &'a str,
    /// The limits of the query.
    pub(crate) budget: &'a Budget,
    /// Nanoseconds on a clock that only goes forward, for [`StepReport::elapsed_ns`].
    pub(crate) clock_ns: &'a (dyn Fn() -> i64 + Sync),
    /// Threads that help if there is much to read.
    pub(crate) helpers: &'a Helpers,
    /// The cache of bins of time, if there is one.
    pub(crate) bin_cache: Option<&'a dyn BinCache>,
    /// Materialised views, if there are any.
    pub(crate) views: Option<&'a dyn ViewCatalog>,
    /// True if they may answer for their tables.
    pub(crate) views_answer: bool,
}

/// The answer of a plan, and what it took to compute.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The answer, sorted by labels.
    pub frames: Vec<Frame>,
    /// Each step, in the order in which they ended.
    pub steps: Vec<StepReport>,
    /// Counts of what was read.
    pub reads: Reads,
}

/// The report of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepReport {
    /// Its name.
    pub step: &'static str,
    /// Series that it gave.
    pub series: usize,
    /// Rows that it gave.
    pub rows: usize,
    /// Time that it took, without the steps before it.
    pub elapsed_ns: i64,
}

/// Rewrites a plan, so that conditions on time become the range to read, and runs it.
pub(crate) fn execute(plan: &Plan, context: &Context<'_>) -> Result<Outcome, QueryError> {
    Ok(execute_with_views(plan, context)?.0)
}

/// As [`execute`], with the views that were used.
pub(crate) fn execute_with_views(plan: &Plan, context: &Context<'_>) -> Result<(Outcome, Vec<UsedView>), QueryError> {
    let (plan, used) = expansion_of(plan, context)?;
    let mut run = Run { context, steps: Vec::new(), reads: Reads::default() };
    let mut frames = run.plan(&plan)?;
    if run.reads.origins.cut_folds > 0 && !is_end_of_scan(&plan) {
        context.budget.note_folded()?;
    }
    frames.sort_by(|a, b| a.labels.cmp(&b.labels));
    Ok((Outcome { frames, steps: run.steps, reads: run.reads }, used))
}

/// Returns whether a plan gives rows at one end of a scan, as they are: those of folds say so themselves, and that the search for them read parts of
/// others changes nothing.
fn is_end_of_scan(plan: &Plan) -> bool {
    matches!(plan, Plan::Last { input, .. } | Plan::Limit { input, .. } if matches!(**input, Plan::Scan(_)))
}

/// The plan that is run: conditions on time as ranges of scans, and scans of views as what they read.
pub(crate) fn expanded(plan: &Plan, context: &Context<'_>) -> Result<Plan, QueryError> {
    Ok(expansion_of(plan, context)?.0)
}

/// As [`expanded`], with the views that it uses.
fn expansion_of(plan: &Plan, context: &Context<'_>) -> Result<(Plan, Vec<UsedView>), QueryError> {
    let plan = crate::plan::push_down(plan.clone());
    let Some(catalog) = context.views else { return Ok((plan, Vec::new())) };
    let extent = |scan: &Scan| view::extent(scan, context);
    let Context { database, budget, .. } = *context;
    let tags = |table: &str| {
        let schema = context.store.table(database, table);
        Ok(schema?.map(|schema| schema.tags).unwrap_or_default())
    };
    let label_rows = |labelled: &Labelled| label_rows(labelled, context);
    let expansion = Expansion {
        catalog,
        database,
        budget,
        extent: &extent,
        tags: &tags,
        label_rows: &label_rows,
        may_answer: context.views_answer,
        used: RefCell::default(),
    };
    let plan = expansion.plan(plan, 0)?;
    Ok((plan, expansion.used.into_inner()))
}

struct Run<'a> {
    context: &'a Context<'a>,
    steps: Vec<StepReport>,
    reads: Reads,
}

/// The regular database that a plan reads, if it reads one.
pub(super) fn regular_source<'a>(context: &Context<'a>) -> Option<crate::RegularSource<'a>> {
    crate::RegularSource::of_database(context.store, context.database)
}

impl Run<'_> {
    fn plan(&mut self, plan: &Plan) -> Result<Vec<Frame>, QueryError> {
        match plan {
            Plan::Scan(scan) => self.timed("scan", |run| run.scan(scan)),
            Plan::GroupBy { input, grouping } => self.group(input, grouping),
            Plan::Where { input, condition } => match filtered_scan(plan) {
                Some((scan, condition)) => self.timed("scan and where", |run| run.scan_where(scan, condition)),
                None => {
                    let (budget, is_of_table) = (self.context.budget, has_every_row(input));
                    self.each(input, "where", |frame| {
                        let frame = if is_of_table { frame.with_nulls_for(condition) } else { frame };
                        evaluate::filtered(frame, condition, budget)
                    })
                }
            },
            Plan::Map { input, columns } => {
                let budget = self.context.budget;
                self.each(input, "map", |frame| {
                    note_folds(std::slice::from_ref(&frame), budget)?;
                    mapped::mapped(frame, columns, budget)
                })
            }
            Plan::Fill { input, width_ns, with } => {
                let frames = self.plan(input)?;
                note_folds(&frames, self.context.budget)?;
                self.timed("fill", |run| {
                    let filled = |frame| fill::fill(frame, *width_ns, *with, run.context.budget);
                    frames.into_iter().map(filled).collect()
                })
            }
            Plan::Order { input, by, descending } => {
                self.each(input, "order", |frame| ordered(&frame, by, *descending))
            }
            Plan::Limit { input, rows, skip: 0 } => self.first(input, *rows),
            Plan::Limit { input, rows, skip } => self.each(input, "limit", |frame| Ok(limited(frame, *rows, *skip))),
            Plan::Last { input, rows } => self.last(input, *rows),
            Plan::Join(join) => {
                let (left, right) = (self.plan(&join.left)?, self.plan(&join.right)?);
                note_folds(&right, self.context.budget)?;
                self.timed("join", |run| join::join(left, right, join, run.context.budget))
            }
            Plan::Union(plans) => {
                let mut frames = Vec::new();
                for plan in plans {
                    frames.extend(self.plan(plan)?);
                }
                Ok(frames)
            }
            Plan::View(read) => self.view(read),
            Plan::AsOf(as_of) => self.as_of(as_of),
            Plan::Likeness(likeness) => self.timed("likeness", |run| run.likeness(likeness)),
            Plan::Labelled(_) => {
                Err(QueryError::Invalid("labels of a table are given right before rows are grouped by them".to_owned()))
            }
        }
    }

    /// The first rows of each series, without making all where they are rows of a table or bins of one series in order of time.
    fn first(&mut self, input: &Plan, rows: usize) -> Result<Vec<Frame>, QueryError> {
        let by_time = match input {
            Plan::Order { input, by: Expression::Time, descending: false } => input,
            other => other,
        };
        if let Some(scan) = table_scan(by_time) {
            return self.timed("first rows", |run| run.end_rows(scan, rows, End::Oldest));
        }
        match EndBins::new(by_time, End::Oldest).filter(|_| regular_source(self.context).is_none()) {
            Some(bins) => self.end_bins(&bins, rows),
            None => self.each(input, "limit", |frame| Ok(limited(frame, rows, 0))),
        }
    }

    /// The last rows of each series, the last one first.
    fn last(&mut self, input: &Plan, rows: usize) -> Result<Vec<Frame>, QueryError> {
        if let Some(scan) = table_scan(input) {
            return self.timed("last rows", |run| match rows {
                1 => run.last_row_frames(scan),
                _ => run.end_rows(scan, rows, End::Newest),
            });
        }
        if regular_source(self.context).is_none()
            && let Some(bins) = EndBins::new(input, End::Newest)
        {
            return self.end_bins(&bins, rows);
        }
        self.each(input, "last rows", |frame| Ok(limited(ordered(&frame, &Expression::Time, true)?, rows, 0)))
    }

    fn group(&mut self, input: &Plan, grouping: &Grouping) -> Result<Vec<Frame>, QueryError> {
        let context = self.context;
        let request = context
            .bin_cache
            .filter(|_| regular_source(context).is_none())
            .and_then(|cache| Some((cache, BinsRequest::new(input, grouping, (context.database, context.budget))?)));
        let Some((cache, request)) = request else { return self.group_now(input, grouping) };
        let (start_ns, mut made_ns) = ((context.clock_ns)(), 0);
        let found = cache.bins(context.database, &request, &mut |range, width_ns| {
            let begun_ns = (context.clock_ns)();
            let grouping = Grouping { width_ns: Some(width_ns), ..grouping.clone() };
            let frames = self.group_now(&cached_bins::within(input, range), &grouping)?;
            // Charged for when they are part of the answer.
            context.budget.give_back(frames.iter().map(Frame::samples).sum());
            made_ns += (context.clock_ns)() - begun_ns;
            Ok(frames)
        })?;
        context.budget.take(found.frames.iter().map(Frame::samples).sum())?;
        let rows: usize = found.frames.iter().map(Frame::rows).sum();
        self.reads.cached_bins.rows += rows as u64;
        self.reads.cached_bins.from_memory += found.memory_rows as u64;
        self.reads.cached_bins.from_flash += found.flash_rows as u64;
        let cached_rows = found.memory_rows + found.flash_rows;
        if cached_rows > 0 {
            let elapsed_ns = (context.clock_ns)() - start_ns - made_ns;
            let series = found.frames.len();
            self.steps.push(StepReport { step: "kept bins", series, rows: cached_rows, elapsed_ns });
        }
        Ok(found.frames)
    }

    fn group_now(&mut self, input: &Plan, grouping: &Grouping) -> Result<Vec<Frame>, QueryError> {
        if let Plan::Scan(scan) = input {
            return self.timed("scan and groupby", |run| run.group_scan(scan, grouping));
        }
        if let Some((scan, condition)) = filtered_scan(input) {
            return self.timed("scan, where and groupby", |run| run.group_filtered(scan, condition, grouping));
        }
        if let Plan::Labelled(labelled) = input {
            return self.timed("labels and groupby", |run| run.group_labelled(labelled, grouping));
        }
        if let Some(mapped) = MappedRows::new(input) {
            return self.timed("map and groupby", |run| {
                let binned = run.mapped_bins(&mapped, grouping)?;
                run.finish(binned, grouping)
            });
        }
        let frames = self.plan(input)?;
        self.timed("groupby", |run| run.group_frames(frames, grouping, has_every_row(input)))
    }

    /// A step that makes a frame of a frame; those without rows go.
    fn each(
        &mut self,
        input: &Plan,
        step: &'static str,
        make: impl Fn(Frame) -> Result<Frame, QueryError>,
    ) -> Result<Vec<Frame>, QueryError> {
        let frames = self.plan(input)?;
        self.timed(step, |run| {
            let mut kept = Vec::with_capacity(frames.len());
            for frame in frames {
                run.context.budget.check()?;
                let before = frame.samples();
                let frame = make(frame)?;
                run.context.budget.take(frame.samples())?;
                run.context.budget.give_back(before);
                if frame.rows() > 0 {
                    kept.push(frame);
                }
            }
            Ok(kept)
        })
    }

    fn timed(
        &mut self,
        step: &'static str,
        work: impl FnOnce(&mut Self) -> Result<Vec<Frame>, QueryError>,
    ) -> Result<Vec<Frame>, QueryError> {
        let start_ns = (self.context.clock_ns)();
        let frames = work(self)?;
        let elapsed_ns = (self.context.clock_ns)() - start_ns;
        let rows = frames.iter().map(Frame::rows).sum();
        self.steps.push(StepReport { step, series: frames.len(), rows, elapsed_ns });
        Ok(frames)
    }
}

/// Records that the rows of folded ones are taken for themselves.
pub fn note_folds(frames: &[Frame], budget: &Budget) -> Result<(), QueryError> {
    if frames.iter().any(Frame::has_folds) { budget.note_folded() } else { Ok(()) }
}

/// A condition right above a scan.
fn filtered_scan(plan: &Plan) -> Option<(&Scan, &Expression)> {
    match plan {
        Plan::Where { input, condition } => match &**input {
            Plan::Scan(scan) => Some((scan, condition)),
            _ => None,
        },
        _ => None,
    }
}

/// A scan of a table.
fn table_scan(plan: &Plan) -> Option<&Scan> {
    match plan {
        Plan::Scan(scan) if scan.table.is_some() => Some(scan),
        _ => None,
    }
}

fn ordered(frame: &Frame, by: &Expression, descending: bool) -> Result<Frame, QueryError> {
    let keys: Vec<Cell<'_>> = (0..frame.rows()).map(|row| evaluate::cell(by, frame, row)).collect::<Result<_, _>>()?;
    let mut rows: Vec<usize> = (0..frame.rows()).collect();
    // What has no order (nulls, NaN) comes last whichever way the rest goes.
    let has_order = |cell: &Cell<'_>| *cell != Cell::Null && !cell.number().is_some_and(f64::is_nan);
    rows.sort_by(|a, b| match (keys.get(*a), keys.get(*b)) {
        (Some(a), Some(b)) => match (has_order(a), has_order(b)) {
            (true, true) => {
                let order = evaluate::compare(*a, *b).unwrap_or(Ordering::Equal);
                if descending { order.reverse() } else { order }
            }
            (a, b) => b.cmp(&a),
        },
        _ => Ordering::Equal,
    });
    Ok(frame.pick(&rows))
}

fn limited(frame: Frame, rows: usize, skip: usize) -> Frame {
    let end = skip.saturating_add(rows).min(frame.rows());
    if skip == 0 && end == frame.rows() {
        return frame;
    }
    let rows: Vec<usize> = (skip.min(end)..end).collect();
    frame.into_picked(&rows)
}
