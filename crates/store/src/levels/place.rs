//! Where a merge puts a row.

use model::TimeRange;

use super::{Lengths, partition_of};
use crate::part::PartInfo;

/// How much longer the partitions of each step of joined level-2 parts are. Sixteen rather than four: each step rewrites
/// everything once (docs/decisions/0002-join-by-sixteen.md).
const JOIN_TIMES: i64 = 16;

const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;

/// Partitions of level 2 are not made longer than this.
const JOINED_NS_MAX: i64 = 32 * DAY_NS;

/// A part that a merge writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) level: u8,
    pub(crate) partition: TimeRange,
    /// The level-2 part that the rows belong to; 0 for none.
    pub(crate) patch_of: u64,
}

/// Where rows go, by their timestamps.
#[derive(Debug, Clone)]
pub(crate) enum Placement {
    /// All into one part.
    One(Target),
    /// By age: into partitions of level 1, and before `fast_from` into level 2.
    ByAge {
        /// Length of partitions of level 1.
        fast_ns: i64,
        /// What is older goes to level 2.
        fast_from: i64,
        /// Lengths that partitions of level 2 may have, shortest first.
        settled_ns: Vec<i64>,
        /// Partitions of level 2 that exist, by time, and their parts.
        bases: Vec<(TimeRange, u64)>,
    },
}

/// Lengths that partitions of level 2 may have, shortest first.
pub(crate) fn settled_lengths(lengths: Lengths, retention_ns: i64) -> Vec<i64> {
    let longest = if retention_ns > 0 { (retention_ns / 8).min(JOINED_NS_MAX) } else { JOINED_NS_MAX };
    let joined = std::iter::successors(Some(lengths.slow_ns), |length| length.checked_mul(JOIN_TIMES));
    let joined = joined.skip(1).take_while(|length| *length <= longest);
    std::iter::once(lengths.slow_ns).chain(joined).collect()
}

/// Partitions of level 2 among the parts, by time.
pub(crate) fn bases<'a>(parts: impl Iterator<Item = &'a PartInfo>) -> Vec<(TimeRange, u64)> {
    let is_base = |part: &&PartInfo| part.level == 2 && !part.is_patch();
    let mut bases: Vec<(TimeRange, u64)> = parts.filter(is_base).map(|part| (part.partition, part.id)).collect();
    bases.sort_unstable_by_key(|(partition, _)| partition.start_ns);
    bases
}

impl Placement {
    /// Where a row goes.
    pub(crate) fn place(&self, timestamp_ns: i64) -> Target {
        match self {
            Self::One(target) => *target,
            Self::ByAge { fast_ns, fast_from, .. } if timestamp_ns >= *fast_from => {
                Target { level: 1, partition: partition_of(timestamp_ns, *fast_ns), patch_of: 0 }
            }
            Self::ByAge { fast_from, settled_ns, bases, .. } => settle(timestamp_ns, *fast_from, settled_ns, bases),
        }
    }
}

/// The level-2 part for a row: a patch of the one that stands for its time, or a new one that fills the gap as far as the
/// longest partition goes that no newer row belongs to.
fn settle(timestamp_ns: i64, fast_from: i64, settled_ns: &[i64], bases: &[(TimeRange, u64)]) -> Target {
    let after = bases.partition_point(|(partition, _)| partition.start_ns <= timestamp_ns);
    let before = after.checked_sub(1).and_then(|place| bases.get(place));
    if let Some((partition, id)) = before.filter(|(partition, _)| partition.contains(timestamp_ns)) {
        return Target { level: 2, partition: *partition, patch_of: *id };
    }
    let cells = settled_ns.iter().map(|length| partition_of(timestamp_ns, *length));
    let complete = cells.rev().find(|cell| cell.end_ns < fast_from);
    let shortest = settled_ns.first().copied().unwrap_or(1);
    let mut partition = complete.unwrap_or_else(|| {
        let cell = partition_of(timestamp_ns, shortest);
        TimeRange::new(cell.start_ns, cell.end_ns.min(fast_from.saturating_sub(1)))
    });
    if let Some((before, _)) = before {
        partition.start_ns = partition.start_ns.max(before.end_ns.saturating_add(1));
    }
    if let Some((next, _)) = bases.get(after) {
        partition.end_ns = partition.end_ns.min(next.start_ns.saturating_sub(1));
    }
    Target { level: 2, partition, patch_of: 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn by_age(bases: &[(i64, i64)]) -> Placement {
        let numbered = |(place, (start, end)): (usize, &(i64, i64))| (TimeRange::new(*start, *end), place as u64 + 1);
        Placement::ByAge {
            fast_ns: 10,
            fast_from: 1000,
            settled_ns: vec![40, 640],
            bases: bases.iter().enumerate().map(numbered).collect(),
        }
    }

    fn check(bases: &[(i64, i64)], timestamp_ns: i64, level: u8, partition: (i64, i64), patch_of: u64) {
        let expected = Target { level, partition: TimeRange::new(partition.0, partition.1), patch_of };
        assert_eq!(by_age(bases).place(timestamp_ns), expected, "{timestamp_ns} beside {bases:?}");
    }

    #[test]
    fn rows_go_where_their_age_says() {
        check(&[], 1003, 1, (1000, 1009), 0);
        check(&[], 999, 2, (960, 999), 0);
        check(&[], 100, 2, (0, 639), 0);
        check(&[(80, 119)], 100, 2, (80, 119), 1);
        check(&[(80, 119), (200, 239)], 150, 2, (120, 199), 0);
        check(&[(0, 39)], 700, 2, (680, 719), 0);
    }

    proptest! {
        /// Partitions of level 2 never overlap, and every row is inside its own.
        #[test]
        fn partitions_hold_their_rows_and_do_not_overlap(times in proptest::collection::vec(-2000i64..1500, 1..40)) {
            let mut bases: Vec<(TimeRange, u64)> = Vec::new();
            for timestamp_ns in times {
                let placement = Placement::ByAge { fast_ns: 10, fast_from: 1000, settled_ns: vec![40, 640], bases: bases.clone() };
                let target = placement.place(timestamp_ns);
                prop_assert!(target.partition.contains(timestamp_ns));
                prop_assert_eq!(target.level == 1, timestamp_ns >= 1000);
                if target.level == 2 && target.patch_of == 0 {
                    prop_assert!(bases.iter().all(|(known, _)| !known.overlaps(&target.partition)));
                    prop_assert!(target.partition.end_ns < 1000);
                    bases.push((target.partition, bases.len() as u64 + 1));
                    bases.sort_by_key(|(partition, _)| partition.start_ns);
                }
            }
        }
    }
}
