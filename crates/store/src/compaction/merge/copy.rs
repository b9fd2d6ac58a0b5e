//! Which chunks a merge takes over byte for byte.

use model::TimeRange;

use crate::compaction::Target;

/// A chunk that goes into a merge, before its rows are decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub(crate) range: TimeRange,
    pub(crate) rows: usize,
    /// Where its first row goes.
    pub(crate) target: Target,
    /// True if it may be copied as far as can be told from it alone: all of it goes into one part, nothing in it is deleted, and it
    /// is encoded as that part's level wants it.
    pub(crate) is_eligible: bool,
}

/// Chunks whose time overlaps.
struct Run {
    end_ns: i64,
    rows: usize,
    target: Target,
    /// Its one chunk, if that may be copied.
    alone: Option<usize>,
    is_copied: bool,
}

/// Of one key's chunks, whether each is copied: it overlaps no other, and it is large, at least half of what a chunk of the level
/// may have (`rows_max` by level), or has no neighbour that it could grow with. A small run between large chunks takes one of
/// them with it, so that small chunks do not stay for ever.
pub(super) fn choose(chunks: &[Candidate], rows_max: impl Fn(u8) -> usize) -> Vec<bool> {
    let mut runs = runs(chunks);
    for run in &mut runs {
        run.is_copied = run.alone.is_some() && run.rows * 2 >= rows_max(run.target.level);
    }
    let mut from = 0;
    while let Some(first) = runs.get(from) {
        let target = first.target;
        let is_near = |run: &&Run| run.target == target;
        let run = runs[from..].iter().take_while(is_near).take_while(|run| !run.is_copied).count();
        let to = from + run;
        let rows: usize = runs[from..to].iter().map(|run| run.rows).sum();
        if run == 0 || rows * 2 >= rows_max(target.level) {
            from = to.max(from + 1);
            continue;
        }
        let before = from.checked_sub(1).filter(|before| runs.get(*before).as_ref().is_some_and(is_near));
        let behind = Some(to).filter(|behind| runs.get(*behind).as_ref().is_some_and(is_near));
        if let Some(neighbour) = before.or(behind) {
            runs[neighbour].is_copied = false;
        } else if run == 1 {
            runs[from].is_copied = runs[from].alone.is_some();
        }
        // A neighbour after that is not copied any more belongs to this run.
        from = if before.is_none() && behind.is_some() { to + 1 } else { to };
    }
    let mut copied = vec![false; chunks.len()];
    for run in runs.iter().filter(|run| run.is_copied) {
        if let Some(copied) = run.alone.and_then(|index| copied.get_mut(index)) {
            *copied = true;
        }
    }
    copied
}

fn runs(chunks: &[Candidate]) -> Vec<Run> {
    let mut order: Vec<usize> = (0..chunks.len()).collect();
    order.sort_by_key(|index| chunks[*index].range.start_ns);
    let mut runs: Vec<Run> = Vec::new();
    for index in order {
        let chunk = &chunks[index];
        match runs.last_mut().filter(|last| chunk.range.start_ns <= last.end_ns) {
            Some(last) => {
                last.end_ns = last.end_ns.max(chunk.range.end_ns);
                last.rows += chunk.rows;
                last.alone = None;
            }
            None => runs.push(Run {
                end_ns: chunk.range.end_ns,
                rows: chunk.rows,
                target: chunk.target,
                alone: chunk.is_eligible.then_some(index),
                is_copied: false,
            }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks of (first, last, rows, target, eligible); a chunk may have 100 rows. Which are copied.
    fn check(chunks: &[(i64, i64, usize, u64, bool)], expected: &[usize]) {
        let candidate = |(first, last, rows, target, is_eligible): &(i64, i64, usize, u64, bool)| Candidate {
            range: TimeRange::new(*first, *last),
            rows: *rows,
            target: Target { level: 2, partition: TimeRange::ALL, patch_of: *target },
            is_eligible: *is_eligible,
        };
        let candidates: Vec<Candidate> = chunks.iter().map(candidate).collect();
        let copied = choose(&candidates, |_| 100);
        let places: Vec<usize> = (0..chunks.len()).filter(|index| copied[*index]).collect();
        assert_eq!(places, expected, "{chunks:?}");
    }

    #[test]
    fn large_chunks_that_nothing_overlaps_are_copied() {
        check(&[(0, 9, 90, 0, true), (10, 19, 50, 0, true)], &[0, 1]);
        check(&[(0, 9, 90, 0, true), (9, 19, 90, 0, true), (20, 29, 90, 0, true)], &[2]);
        check(&[(0, 9, 90, 0, false), (10, 19, 90, 0, true)], &[1]);
        // One that spans the others.
        check(&[(0, 9, 90, 0, true), (10, 19, 90, 0, true), (2, 18, 90, 0, true), (20, 21, 90, 0, true)], &[3]);
    }

    #[test]
    fn small_chunks_grow_with_a_neighbour() {
        check(&[(0, 9, 90, 0, true), (10, 19, 10, 0, true)], &[]);
        check(&[(0, 9, 10, 0, true), (10, 19, 90, 0, true), (20, 29, 90, 0, true)], &[2]);
        check(&[(0, 9, 90, 0, true), (10, 19, 90, 0, true), (20, 29, 10, 0, true), (30, 39, 90, 0, true)], &[0, 3]);
        check(&[(0, 9, 30, 0, true), (10, 19, 30, 0, true), (20, 29, 90, 0, true)], &[2]);
        check(&[(0, 9, 90, 0, true), (10, 19, 10, 0, true), (20, 29, 90, 1, true)], &[2]);
    }

    #[test]
    fn a_small_chunk_without_neighbours_is_copied() {
        check(&[(0, 9, 1, 0, true)], &[0]);
        check(&[(0, 9, 1, 0, true), (10, 19, 1, 1, true)], &[0, 1]);
        check(&[(0, 9, 1, 0, true), (10, 19, 1, 0, true)], &[]);
        check(&[(0, 9, 1, 0, false)], &[]);
        check(&[(0, 9, 1, 0, true), (9, 19, 1, 0, true)], &[]);
    }
}
