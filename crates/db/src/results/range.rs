//! Range queries: what is kept of an answer, and what of it is to be evaluated.

use std::sync::Arc;

use cache::{CacheEntry, Key, Span};
use promql::{Evaluation, EvaluationResult, PartialRange, PartialRangeSlice, QueryTimes, RangeOutcome, ReadInterval};
use query::{QueryError, Source};
use store::Store;

use super::flash::Unit;
use super::recent::RecentSource;
use super::validity::{Watch, cut, steps_looking_at};
use super::{CacheUse, Portions, ResultCache, Run, key_of};

/// Stretches that are evaluated one by one; if there are more holes, all between the first and the last is.
const HOLES_MAX: usize = 8;

/// Steps that slid in, at the end of what is asked for, and are evaluated on the newest samples of selectors.
const NEWEST_STEPS_MAX: u64 = 16;

/// Times of steps in milliseconds: those from the first to just before the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    pub(super) span: Span,
    pub(super) step_ms: i64,
}

impl Grid {
    /// The steps in a span, as a span from the first of them.
    fn steps_in(&self, span: Span) -> Span {
        let next = |time_ms: i64| next_on_grid(time_ms, self.span.start, self.step_ms);
        Span::new(next(span.start), next(span.end))
    }

    /// The part of the key that all spans of the grid share.
    pub(super) fn when(&self) -> String {
        format!("by {} from {}", self.step_ms, self.span.start.rem_euclid(self.step_ms.max(1)))
    }

    pub(super) fn steps(&self, span: Span) -> u64 {
        if span.is_empty() { 0 } else { (span.end - span.start) as u64 / self.step_ms.max(1) as u64 }
    }
}

/// The first time on a grid that is not before another.
pub(super) fn next_on_grid(time: i64, start: i64, step: i64) -> i64 {
    let (past, step) = (i128::from(time) - i128::from(start), i128::from(step.max(1)));
    let steps = past.div_euclid(step) + i128::from(past.rem_euclid(step) > 0);
    i64::try_from(i128::from(start) + steps * step).unwrap_or(time)
}

/// A stretch and when it counts.
pub(super) type Part = (Arc<Portions>, Span);

impl ResultCache {
    /// The answer of a range query.
    pub(crate) fn range(&self, run: &Run<'_>, times: QueryTimes) -> Result<(EvaluationResult, CacheUse), QueryError> {
        let QueryTimes { start_ms, step_ms, .. } = times;
        let count = promql::range_steps(run.expression, times, run.settings)?;
        let Some(reads) = run.expression.step_read_interval(run.settings) else {
            return self.whole_range(run, times, count as u64);
        };
        let Some(database) = run.store.database_number(run.database) else {
            let uncached = CacheUse { steps: count as u64, ..CacheUse::default() };
            return Ok((evaluate(run, times)?, uncached));
        };
        let grid = Grid { span: Span::new(start_ms, start_ms + count as i64 * step_ms), step_ms };
        self.by_steps(run, database, reads, grid)
    }

    fn by_steps(
        &self,
        run: &Run<'_>,
        database: u32,
        reads: ReadInterval,
        grid: Grid,
    ) -> Result<(EvaluationResult, CacheUse), QueryError> {
        let (Grid { span, step_ms }, steps) = (grid, grid.steps(grid.span));
        let key = key_of(database, &grid.when(), run);
        if self.flash.is_some() {
            // So that what is evaluated now has a stamp for flash that says no less.
            run.store.mark();
        }
        // Before anything is read: what comes later has a larger number.
        let snapshot = run.store.journal().snapshot();
        let mut watch = Watch::of_expression(run.store, database, run.expression, reads);
        let mut parts = self.parts_in_memory(key, grid, &mut watch);
        let mut unchanged = |stretch: Span, since: u64| {
            let parts = watch.unchanged(stretch, since).into_iter();
            parts.map(|part| grid.steps_in(part)).filter(|part| !part.is_empty()).collect()
        };
        let on_flash = self.parts_on_flash((key, span, Unit::Steps), &parts, (run.store, snapshot), &mut unchanged);
        let from_flash = on_flash.iter().map(|(_, part)| grid.steps(*part)).sum::<u64>();
        parts.extend(on_flash);
        let unstored = unstored_steps(run, reads, grid);
        cut_parts(&mut parts, &unstored);
        let holes = holes(&mut parts, span);
        let kept = steps.saturating_sub(holes.iter().map(|hole| grid.steps(*hole)).sum());
        let from_flash = from_flash.min(kept);
        let pieces = holes.into_iter().flat_map(|hole| pieces_of(hole, &unstored));
        let recent = RecentSource { store: run.store, database, inner: run.source, recents: &self.recents };
        for (hole, is_kept) in pieces {
            let times = QueryTimes { start_ms: hole.start, end_ms: hole.end - step_ms, step_ms };
            let is_newest = run.source.unstored_ranges().is_empty()
                && hole.end == span.end
                && grid.steps(hole) <= NEWEST_STEPS_MAX
                && !parts.is_empty();
            let source: &dyn Source = if is_newest { &recent } else { run.source };
            let evaluation = Evaluation { source, ..run.evaluation() };
            match promql::evaluate_partial_range(run.expression, times, &evaluation)? {
                RangeOutcome::Partial(stretch) => {
                    let portion = Arc::new(Portions::Steps(stretch));
                    if is_kept {
                        self.insert(key, portion.clone(), hole, snapshot);
                        if let Some(flash) = &self.flash {
                            flash.note(key, hole, Unit::Steps);
                        }
                    }
                    parts.push((portion, hole));
                }
                RangeOutcome::Whole(answer) => {
                    let used = CacheUse { steps, ..CacheUse::default() };
                    self.count(used);
                    let is_all = hole == span;
                    let times = QueryTimes { start_ms: span.start, end_ms: span.end - step_ms, step_ms };
                    return Ok((if is_all { answer } else { evaluate(run, times)? }, used));
                }
            }
        }
        let used = CacheUse { steps, from_memory: kept - from_flash, from_flash };
        self.count(used);
        parts.sort_by_key(|(_, part)| part.start);
        let slices: Vec<PartialRangeSlice<'_>> = parts.iter().filter_map(slice_of).collect();
        Ok((PartialRange::result(&slices), used))
    }

    /// The steps that are in memory and still hold.
    fn parts_in_memory(&self, key: Key, grid: Grid, watch: &mut Watch<'_>) -> Vec<Part> {
        let span = grid.span;
        let checked = check(self.memory.entries(key, span), watch, grid);
        let mut parts: Vec<Part> = Vec::new();
        for (kept, holds) in &checked {
            let inside = holds.iter().map(|part| part.intersect(&span)).filter(|part| !part.is_empty());
            parts.extend(inside.map(|part| (kept.answer.clone(), part)));
        }
        let known = checked.iter().map(|(kept, _)| grid.steps(kept.span.intersect(&span))).sum::<u64>();
        let still = parts.iter().map(|(_, part)| grid.steps(*part)).sum::<u64>();
        self.counters.changed.fetch_add(known.saturating_sub(still), std::sync::atomic::Ordering::Relaxed);
        self.memory.renew(key, &checked, watch.through());
        parts
    }

    /// What of the rest is on flash and still holds; it is in memory afterwards. `unchanged` says of a stretch what of it, in whole steps or
    /// bins, is as it was at a snapshot.
    pub(super) fn parts_on_flash(
        &self,
        (key, span, unit): (Key, Span, Unit),
        parts: &[Part],
        (store, snapshot): (&Store, u64),
        unchanged: &mut dyn FnMut(Span, u64) -> Vec<Span>,
    ) -> Vec<Part> {
        let Some(flash) = &self.flash else { return Vec::new() };
        let mut missing = vec![span];
        parts.iter().for_each(|(_, part)| cut(&mut missing, *part));
        let mut holds = |stretch: Span, stamp: u64| {
            store.journal().snapshot_at(stamp).map(|since| unchanged(stretch, since)).unwrap_or_default()
        };
        let mut found = Vec::new();
        for hole in missing {
            found.extend(flash.find(key, hole, unit, &mut holds));
        }
        for (portion, span) in &found {
            self.insert(key, portion.clone(), *span, snapshot);
        }
        found
    }
}

/// The steps that look at windows of views which are computed for this query: no change of them is in the journal.
fn unstored_steps(run: &Run<'_>, reads: ReadInterval, grid: Grid) -> Vec<Span> {
    let looking = run.source.unstored_ranges().into_iter();
    let steps = looking.map(|range| grid.steps_in(steps_looking_at(reads, range.start_ns, range.end_ns)));
    steps.map(|steps| steps.intersect(&grid.span)).filter(|steps| !steps.is_empty()).collect()
}

/// Takes spans out of parts.
fn cut_parts(parts: &mut Vec<Part>, out: &[Span]) {
    if out.is_empty() {
        return;
    }
    let left = |(portion, span): Part| {
        let mut left = vec![span];
        out.iter().for_each(|out| cut(&mut left, *out));
        left.into_iter().map(move |span| (portion.clone(), span))
    };
    *parts = std::mem::take(parts).into_iter().flat_map(left).collect();
}

/// The parts of a hole that are kept, and those that are not to be, in order; with too many the rest is not kept.
fn pieces_of(hole: Span, unstored: &[Span]) -> Vec<(Span, bool)> {
    let inside = unstored.iter().map(|steps| steps.intersect(&hole)).filter(|steps| !steps.is_empty());
    let mut inside: Vec<Span> = inside.collect();
    inside.sort_by_key(|steps| steps.start);
    let (mut pieces, mut start) = (Vec::new(), hole.start);
    for steps in inside {
        if pieces.len() >= 2 * HOLES_MAX {
            pieces.push((Span::new(start, hole.end), false));
            return pieces;
        }
        if start < steps.start {
            pieces.push((Span::new(start, steps.start), true));
        }
        if start.max(steps.start) < steps.end {
            pieces.push((Span::new(start.max(steps.start), steps.end), false));
            start = steps.end;
        }
    }
    if start < hole.end {
        pieces.push((Span::new(start, hole.end), true));
    }
    pieces
}

fn slice_of((portion, span): &Part) -> Option<PartialRangeSlice<'_>> {
    match &**portion {
        Portions::Steps(range) => Some(PartialRangeSlice { range, first_ms: span.start, last_ms: span.end - 1 }),
        Portions::Whole(_) | Portions::Bins(_) => None,
    }
}

/// The parts of cached intervals that are still valid, in whole steps.
pub(super) fn check(
    kept: Vec<CacheEntry<Portions>>,
    watch: &mut Watch<'_>,
    grid: Grid,
) -> Vec<(CacheEntry<Portions>, Vec<Span>)> {
    let holds = |kept: CacheEntry<Portions>| {
        let parts = watch.unchanged(kept.span, kept.stamp);
        let parts = parts.into_iter().map(|part| grid.steps_in(part)).filter(|part| !part.is_empty());
        let parts = parts.collect();
        (kept, parts)
    };
    kept.into_iter().map(holds).collect()
}

/// The intervals that cached parts of a span lack. If there are too many, the parts between them are dropped.
pub(super) fn holes(parts: &mut Vec<Part>, span: Span) -> Vec<Span> {
    let mut missing = vec![span];
    for (_, part) in parts.iter() {
        cut(&mut missing, *part);
    }
    if missing.len() <= HOLES_MAX {
        return missing;
    }
    let (Some(first), Some(last)) = (missing.first(), missing.last()) else { return missing };
    let hull = Span::new(first.start, last.end);
    parts.retain(|(_, part)| !part.overlaps(&hull));
    vec![hull]
}

fn evaluate(run: &Run<'_>, times: QueryTimes) -> Result<EvaluationResult, QueryError> {
    promql::evaluate_range(run.expression, times, &run.evaluation())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_those_of_whole_steps() {
        let grid = Grid { span: Span::new(7, 47), step_ms: 10 };
        for (span, expected) in [((7, 47), (7, 47)), ((8, 46), (17, 47)), ((-14, 17), (-13, 17)), ((18, 26), (27, 27))]
        {
            assert_eq!(grid.steps_in(Span::new(span.0, span.1)), Span::new(expected.0, expected.1), "{span:?}");
        }
        assert_eq!(grid.steps(grid.span), 4);
    }

    #[test]
    fn many_holes_become_one() {
        let portion = Arc::new(Portions::Steps(PartialRange::default()));
        let part = |start: i64| (portion.clone(), Span::new(start, start + 5));
        let mut parts: Vec<Part> = (0..4).map(|place| part(place * 10)).collect();
        assert_eq!(holes(&mut parts, Span::new(0, 35)), [Span::new(5, 10), Span::new(15, 20), Span::new(25, 30)]);
        let mut parts: Vec<Part> = (0..20).map(|place| part(place * 10)).collect();
        assert_eq!(holes(&mut parts, Span::new(0, 195)), [Span::new(5, 190)]);
        assert_eq!(parts.len(), 2);
    }
}
