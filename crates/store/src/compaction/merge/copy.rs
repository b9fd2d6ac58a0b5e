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
    /// Whether it may be copied as far as can be told from it alone: all of it goes into one part, nothing in it is deleted, and it
    /// is encoded as that part's level wants it.
    pub(crate) is_eligible: bool,
}

/// Chunks whose time overlaps.
struct Stretch {
    end_ns: i64,
    rows: usize,
    target: Target,
    /// Its one chunk, if that may be copied.
    alone: Option<usize>,
    is_copied: bool,
}

/// Of one key's chunks, whether each is copied: it overlaps no other, and it is large, at least half of what a chunk of the level
/// may have (`rows_max` by level), or has no neighbour that it could grow with. A small stretch between large chunks takes one of
/// them with it, so that small chunks do not stay for ever.
pub(super) fn choose(chunks: &[Candidate], rows_max: impl Fn(u8) -> usize) -> Vec<bool> {
    let mut stretches = stretches(chunks);
    for stretch in &mut stretches {
        stretch.is_copied = stretch.alone.is_some() && stretch.rows * 2 >= rows_max(stretch.target.level);
    }
    let mut from = 0;
    while let Some(first) = stretches.get(from) {
        let target = first.target;
        let is_near = |stretch: &&Stretch| stretch.target == target;
        let run = stretches[from..].iter().take_while(is_near).take_while(|stretch| !stretch.is_copied).count();
        let to = from + run;
        let rows: usize = stretches[from..to].iter().map(|stretch| stretch.rows).sum();
        if run == 0 || rows * 2 >= rows_max(target.level) {
            from = to.max(from + 1);
            continue;
        }
        let before = from.checked_sub(1).filter(|before| stretches.get(*before).as_ref().is_some_and(is_near));
        let behind = Some(to).filter(|behind| stretches.get(*behind).as_ref().is_some_and(is_near));
        if let Some(neighbour) = before.or(behind) {
            stretches[neighbour].is_copied = false;
        } else if run == 1 {
            stretches[from].is_copied = stretches[from].alone.is_some();
        }
        // A neighbour behind that is not copied any more belongs to this run.
        from = if before.is_none() && behind.is_some() { to + 1 } else { to };
    }
    let mut copied = vec![false; chunks.len()];
    for stretch in stretches.iter().filter(|stretch| stretch.is_copied) {
        if let Some(copied) = stretch.alone.and_then(|place| copied.get_mut(place)) {
            *copied = true;
        }
    }
    copied
}

fn stretches(chunks: &[Candidate]) -> Vec<Stretch> {
    let mut order: Vec<usize> = (0..chunks.len()).collect();
    order.sort_by_key(|place| chunks[*place].range.start_ns);
    let mut stretches: Vec<Stretch> = Vec::new();
    for place in order {
        let chunk = &chunks[place];
        match stretches.last_mut().filter(|last| chunk.range.start_ns <= last.end_ns) {
            Some(last) => {
                last.end_ns = last.end_ns.max(chunk.range.end_ns);
                last.rows += chunk.rows;
                last.alone = None;
            }
            None => stretches.push(Stretch {
                end_ns: chunk.range.end_ns,
                rows: chunk.rows,
                target: chunk.target,
                alone: chunk.is_eligible.then_some(place),
                is_copied: false,
            }),
        }
    }
    stretches
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
        let places: Vec<usize> = (0..chunks.len()).filter(|place| copied[*place]).collect();
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
