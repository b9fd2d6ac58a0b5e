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
    /// The part of level 1 or 2 that the rows belong to as late ones; 0 for none.
    pub(crate) patch_of: u64,
}

/// Partitions, by time, and the parts that stand for them.
pub(crate) type Bases = Vec<(TimeRange, u64)>;

/// Where rows go, by their timestamps.
#[derive(Debug, Clone)]
pub(crate) enum Placement {
    /// All into one part.
    One(Target),
    /// By age: into patches of what stays on level 1, else into partitions of level 1, and before `fast_from_ns` into level 2.
    ByAge {
        /// Length of partitions of level 1.
        fast_partition_length_ns: i64,
        /// Older rows go to level 2.
        fast_from_ns: i64,
        /// Lengths that partitions of level 2 may have, shortest first.
        level2_lengths_ns: Vec<i64>,
        /// What level 1 keeps: rows of its time stay above level 2, where they would lose to older ones.
        level1_bases: Bases,
        /// What level 2 has, and what it is to have (0).
        level2_bases: Bases,
    },
}

/// Lengths that partitions of level 2 may have, shortest first.
pub(crate) fn level2_lengths(lengths: Lengths, retention_ns: i64) -> Vec<i64> {
    let longest = if retention_ns > 0 { (retention_ns / 8).min(JOINED_NS_MAX) } else { JOINED_NS_MAX };
    let joined = std::iter::successors(Some(lengths.slow_partition_length_ns), |length| length.checked_mul(JOIN_TIMES));
    let joined = joined.skip(1).take_while(|length| *length <= longest);
    std::iter::once(lengths.slow_partition_length_ns).chain(joined).collect()
}

/// Partitions of a level among the parts, by time. A patch whose part is lost stands for it.
pub(crate) fn bases<'a>(parts: impl Iterator<Item = &'a PartInfo>, level: u8) -> Bases {
    let of_level = parts.filter(|part| part.level == level);
    let mut bases: Bases =
        of_level.map(|part| (part.partition, if part.is_patch() { part.patch_of } else { part.id })).collect();
    bases.sort_unstable_by_key(|(partition, id)| (partition.start_ns, *id));
    bases.dedup();
    bases
}

impl Placement {
    /// Where a row goes, and the last timestamp up to which rows go there: a partition of level 2 may reach beyond what level 1 stands
    /// for, whose rows stay above it.
    pub(crate) fn target(&self, timestamp_ns: i64) -> (Target, i64) {
        match self {
            Self::One(target) => (*target, i64::MAX),
            Self::ByAge { fast_partition_length_ns, fast_from_ns, level2_lengths_ns, level1_bases, level2_bases } => {
                if let Some((partition, id)) = standing(level1_bases, timestamp_ns) {
                    return (Target { level: 1, partition, patch_of: id }, partition.end_ns);
                }
                if timestamp_ns >= *fast_from_ns {
                    let cell = partition_of(timestamp_ns, *fast_partition_length_ns);
                    let partition = gap(level1_bases, timestamp_ns, cell);
                    return (Target { level: 1, partition, patch_of: 0 }, partition.end_ns);
                }
                let target = level2_target(timestamp_ns, *fast_from_ns, level2_lengths_ns, level2_bases);
                let below_fast =
                    TimeRange::new(timestamp_ns, target.partition.end_ns.min(fast_from_ns.saturating_sub(1)));
                (target, gap(level1_bases, timestamp_ns, below_fast).end_ns)
            }
        }
    }
}

/// How level 2 cuts time: partitions that it has, and those that a merge would begin.
pub(crate) struct Level2Grid {
    /// Older rows go to level 2.
    pub(crate) before: i64,
    /// Lengths that partitions may have, shortest first.
    pub(crate) lengths_ns: Vec<i64>,
    /// What there is.
    pub(crate) bases: Bases,
}

impl Level2Grid {
    /// The partition of an instant, up to where level 2 ends; `None` for what is younger.
    pub(crate) fn partition_of(&self, timestamp_ns: i64) -> Option<TimeRange> {
        let settled = (timestamp_ns < self.before)
            .then(|| level2_target(timestamp_ns, self.before, &self.lengths_ns, &self.bases).partition)?;
        Some(TimeRange::new(settled.start_ns, settled.end_ns.min(self.before.saturating_sub(1))))
    }
}

/// The part that stands for an instant, with its partition.
fn standing(bases: &[(TimeRange, u64)], timestamp_ns: i64) -> Option<(TimeRange, u64)> {
    let after = bases.partition_point(|(partition, _)| partition.start_ns <= timestamp_ns);
    after.checked_sub(1).and_then(|place| bases.get(place)).filter(|base| base.0.contains(timestamp_ns)).copied()
}

/// The range around an instant that no part stands for.
fn gap(bases: &[(TimeRange, u64)], timestamp_ns: i64, mut gap_range: TimeRange) -> TimeRange {
    let after = bases.partition_point(|(partition, _)| partition.start_ns <= timestamp_ns);
    if let Some((before, _)) = after.checked_sub(1).and_then(|place| bases.get(place)) {
        gap_range.start_ns = gap_range.start_ns.max(before.end_ns.saturating_add(1));
    }
    if let Some((next, _)) = bases.get(after) {
        gap_range.end_ns = gap_range.end_ns.min(next.start_ns.saturating_sub(1));
    }
    gap_range
}

/// The level-2 part for a row: a patch of the one that stands for its time, or a new one that fills the gap as far as the
/// longest partition goes that no newer row belongs to.
fn level2_target(
    timestamp_ns: i64,
    fast_from_ns: i64,
    level2_lengths_ns: &[i64],
    bases: &[(TimeRange, u64)],
) -> Target {
    if let Some((partition, id)) = standing(bases, timestamp_ns) {
        return Target { level: 2, partition, patch_of: id };
    }
    let cells = level2_lengths_ns.iter().map(|length| partition_of(timestamp_ns, *length));
    let complete = cells.rev().find(|cell| cell.end_ns < fast_from_ns);
    let shortest = level2_lengths_ns.first().copied().unwrap_or(1);
    let cell = complete.unwrap_or_else(|| {
        let cell = partition_of(timestamp_ns, shortest);
        TimeRange::new(cell.start_ns, cell.end_ns.min(fast_from_ns.saturating_sub(1)))
    });
    Target { level: 2, partition: gap(bases, timestamp_ns, cell), patch_of: 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn by_age(fast: &[(i64, i64)], settled: &[(i64, i64)]) -> Placement {
        let numbered = |(place, (start, end)): (usize, &(i64, i64))| (TimeRange::new(*start, *end), place as u64 + 1);
        let bases = |ranges: &[(i64, i64)]| ranges.iter().enumerate().map(numbered).collect();
        Placement::ByAge {
            fast_partition_length_ns: 10,
            fast_from_ns: 1000,
            level2_lengths_ns: vec![40, 640],
            level1_bases: bases(fast),
            level2_bases: bases(settled),
        }
    }

    fn check(placement: &Placement, timestamp_ns: i64, level: u8, partition: (i64, i64), patch_of: u64) {
        let expected = Target { level, partition: TimeRange::new(partition.0, partition.1), patch_of };
        assert_eq!(placement.target(timestamp_ns).0, expected, "{timestamp_ns} in {placement:?}");
    }

    #[test]
    fn rows_go_where_their_age_says() {
        check(&by_age(&[], &[]), 1003, 1, (1000, 1009), 0);
        check(&by_age(&[], &[]), 999, 2, (960, 999), 0);
        check(&by_age(&[], &[]), 100, 2, (0, 639), 0);
        check(&by_age(&[], &[(80, 119)]), 100, 2, (80, 119), 1);
        check(&by_age(&[], &[(80, 119), (200, 239)]), 150, 2, (120, 199), 0);
        check(&by_age(&[], &[(0, 39)]), 700, 2, (680, 719), 0);
    }

    #[test]
    fn what_level_1_stands_for_stays_there() {
        check(&by_age(&[(1000, 1009)], &[]), 1003, 1, (1000, 1009), 1);
        check(&by_age(&[(1000, 1004)], &[]), 1007, 1, (1005, 1009), 0);
        check(&by_age(&[(980, 989)], &[(960, 999)]), 985, 1, (980, 989), 1);
        check(&by_age(&[(980, 989)], &[(960, 999)]), 979, 2, (960, 999), 1);
    }

    #[test]
    fn level_2_leaves_out_what_level_1_stands_for() {
        let placement = by_age(&[(980, 989)], &[]);
        let settled = Target { level: 2, partition: TimeRange::new(960, 999), patch_of: 0 };
        assert_eq!(placement.target(970), (settled, 979));
        assert_eq!(placement.target(980).1, 989);
        assert_eq!(placement.target(990), (settled, 999));
    }

    proptest! {
        /// Up to the last timestamp that is said, rows go where the first one does.
        #[test]
        fn rows_go_together(
            mut fast in proptest::collection::vec((800i64..1100, 1i64..40), 0..6),
            mut settled in proptest::collection::vec((0i64..1100, 1i64..200), 0..6),
            timestamp_ns in -100i64..1200,
            further in proptest::collection::vec(0i64..300, 20),
        ) {
            let ranges = |starts: &mut Vec<(i64, i64)>| {
                starts.sort_unstable();
                let mut ranges: Vec<(i64, i64)> = Vec::new();
                for (start, length) in starts.drain(..) {
                    let free = ranges.last().map_or(i64::MIN, |last| last.1 + 1);
                    ranges.push((start.max(free), start.max(free) + length - 1));
                }
                ranges
            };
            let placement = by_age(&ranges(&mut fast), &ranges(&mut settled));
            let (target, until_ns) = placement.target(timestamp_ns);
            prop_assert!(until_ns >= timestamp_ns);
            for other_ns in further.into_iter().map(|further| timestamp_ns + further).filter(|at| *at <= until_ns) {
                prop_assert_eq!(placement.target(other_ns).0, target, "{}", other_ns);
            }
        }

        /// Partitions of a level never overlap, and every row is inside its own.
        #[test]
        fn partitions_hold_their_rows_and_do_not_overlap(times in proptest::collection::vec(-2000i64..1500, 1..40)) {
            let mut bases: [Bases; 2] = Default::default();
            for timestamp_ns in times {
                let [level1_bases, level2_bases] = bases.clone();
                let level2_lengths_ns = vec![40, 640];
                let placement = Placement::ByAge { fast_partition_length_ns: 10, fast_from_ns: 1000, level2_lengths_ns, level1_bases, level2_bases };
                let (target, _) = placement.target(timestamp_ns);
                prop_assert!(target.partition.contains(timestamp_ns));
                prop_assert_eq!(target.level == 1, timestamp_ns >= 1000);
                if target.patch_of == 0 {
                    let known = &mut bases[usize::from(target.level) - 1];
                    prop_assert!(known.iter().all(|(known, _)| !known.overlaps(&target.partition)));
                    prop_assert!(target.level == 1 || target.partition.end_ns < 1000);
                    known.push((target.partition, known.len() as u64 + 1));
                    known.sort_by_key(|(partition, _)| partition.start_ns);
                }
            }
        }
    }
}
