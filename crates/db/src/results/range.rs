//! Range queries: what is kept of an answer, and what of it is to be evaluated.

use std::sync::Arc;

use cache::{Kept, Span};
use promql::{Answer, Evaluated, Reads, Stretch};
use query::QueryError;

use super::watch::{Watch, cut};
use super::{CacheUse, Portions, ResultCache, Run, key_of};

/// Stretches that are evaluated one by one; if there are more holes, all between the first and the last is.
const HOLES_MAX: usize = 8;

/// Times of steps in milliseconds: those from the first to just before the end.
#[derive(Debug, Clone, Copy)]
struct Grid {
    span: Span,
    step_ms: i64,
}

impl Grid {
    /// The steps in a span, as a span from the first of them.
    fn steps_in(&self, span: Span) -> Span {
        let next = |time_ms: i64| next_on_grid(time_ms, self.span.start, self.step_ms);
        Span::new(next(span.start), next(span.end))
    }

    fn steps(&self, span: Span) -> u64 {
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
    pub(crate) fn range(&self, run: &Run<'_>, times: (i64, i64, i64)) -> Result<(Answer, CacheUse), QueryError> {
        let (start_ms, end_ms, step_ms) = times;
        let count = promql::range_steps(run.expression, times, run.settings)?;
        let Some(reads) = run.expression.reads_stepwise(run.settings) else {
            return self.whole_range(run, times, count as u64);
        };
        let Some(database) = run.store.database_number(run.database) else {
            let uncached = CacheUse { steps: count as u64, ..CacheUse::default() };
            return Ok((evaluate(run, (start_ms, end_ms, step_ms))?, uncached));
        };
        let grid = Grid { span: Span::new(start_ms, start_ms + count as i64 * step_ms), step_ms };
        self.by_steps(run, database, reads, grid)
    }

    fn by_steps(
        &self,
        run: &Run<'_>,
        database: u32,
        reads: Reads,
        grid: Grid,
    ) -> Result<(Answer, CacheUse), QueryError> {
        let (Grid { span, step_ms }, steps) = (grid, grid.steps(grid.span));
        let key = key_of(database, &format!("by {step_ms} from {}", span.start.rem_euclid(step_ms)), run);
        // Before anything is read: what comes later has a larger number.
        let snapshot = run.store.snapshot();
        let mut watch = Watch::of(run.store, database, run.expression, reads)?;
        let kept = self.memory.kept(key, span);
        let checked = check(kept, &mut watch, grid);
        let mut parts: Vec<Part> = Vec::new();
        for (kept, holds) in &checked {
            let inside = holds.iter().map(|part| part.intersect(&span)).filter(|part| !part.is_empty());
            parts.extend(inside.map(|part| (kept.answer.clone(), part)));
        }
        let changed = checked.iter().map(|(kept, _)| grid.steps(kept.span.intersect(&span))).sum::<u64>();
        let from_memory = parts.iter().map(|(_, part)| grid.steps(*part)).sum::<u64>();
        self.counters.changed.fetch_add(changed.saturating_sub(from_memory), std::sync::atomic::Ordering::Relaxed);
        self.memory.renew(key, &checked, watch.through());
        let holes = holes(&mut parts, span);
        let mut used = CacheUse { steps, from_memory: steps, from_flash: 0 };
        for hole in holes {
            used.from_memory = used.from_memory.saturating_sub(grid.steps(hole));
            let times = (hole.start, hole.end - step_ms, step_ms);
            match promql::evaluate_stretch(run.expression, run.source, times, run.settings, run.budget)? {
                Evaluated::Stretch(stretch) => {
                    let portion = Arc::new(Portions::Steps(stretch));
                    self.memory.insert(key, portion.clone(), hole, snapshot);
                    parts.push((portion, hole));
                }
                Evaluated::Whole(answer) => {
                    let used = CacheUse { steps, ..CacheUse::default() };
                    self.count(used);
                    let is_all = hole == span;
                    let times = (span.start, span.end - step_ms, step_ms);
                    return Ok((if is_all { answer } else { evaluate(run, times)? }, used));
                }
            }
        }
        self.count(used);
        parts.sort_by_key(|(_, part)| part.start);
        let stretches: Vec<(&Stretch, i64, i64)> = parts.iter().filter_map(stretch_of).collect();
        Ok((Stretch::answer(&stretches), used))
    }
}

fn stretch_of((portion, span): &Part) -> Option<(&Stretch, i64, i64)> {
    match &**portion {
        Portions::Steps(stretch) => Some((stretch, span.start, span.end - 1)),
        Portions::Whole(_) | Portions::Bins(_) => None,
    }
}

/// What of kept stretches still holds, in whole steps.
fn check(kept: Vec<Kept<Portions>>, watch: &mut Watch<'_>, grid: Grid) -> Vec<(Kept<Portions>, Vec<Span>)> {
    let holds = |kept: Kept<Portions>| {
        let parts = watch.unchanged(kept.span, kept.stamp);
        let parts = parts.into_iter().map(|part| grid.steps_in(part)).filter(|part| !part.is_empty());
        let parts = parts.collect();
        (kept, parts)
    };
    kept.into_iter().map(holds).collect()
}

/// What parts of a span lack. If that is in too many places, parts between them are given up.
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

fn evaluate(run: &Run<'_>, (start_ms, end_ms, step_ms): (i64, i64, i64)) -> Result<Answer, QueryError> {
    promql::evaluate_range(run.expression, run.source, start_ms, end_ms, step_ms, run.settings, run.budget)
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
        let portion = Arc::new(Portions::Steps(Stretch::default()));
        let part = |start: i64| (portion.clone(), Span::new(start, start + 5));
        let mut parts: Vec<Part> = (0..4).map(|place| part(place * 10)).collect();
        assert_eq!(holes(&mut parts, Span::new(0, 35)), [Span::new(5, 10), Span::new(15, 20), Span::new(25, 30)]);
        let mut parts: Vec<Part> = (0..20).map(|place| part(place * 10)).collect();
        assert_eq!(holes(&mut parts, Span::new(0, 195)), [Span::new(5, 190)]);
        assert_eq!(parts.len(), 2);
    }
}
