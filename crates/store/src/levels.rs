//! What belongs where and what to merge next: pure decisions.

use std::collections::BTreeSet;

use crate::part::PartInfo;

/// Start of the partition that an instant falls into; partitions are aligned to the epoch.
pub(crate) fn partition_start(timestamp_ns: i64, partition_ns: i64) -> i64 {
    timestamp_ns.saturating_sub(timestamp_ns.rem_euclid(partition_ns.max(1)))
}

/// Whether a shard's parts as flushed should be merged: all of them, so that what is left is newer than what comes out.
pub(crate) fn parts_to_merge(parts: &[PartInfo], level0_parts_max: usize) -> Option<BTreeSet<u64>> {
    let flushed: BTreeSet<u64> = parts.iter().filter(|part| part.level == 0).map(|part| part.id).collect();
    (flushed.len() > level0_parts_max).then_some(flushed)
}

/// Merged parts that the rows of touched partitions must be joined with.
pub(crate) fn parts_touched(parts: &[PartInfo], touched: &BTreeSet<i64>, partition_ns: i64) -> BTreeSet<u64> {
    let is_touched =
        |part: &&PartInfo| part.level == 1 && touched.contains(&partition_start(part.range.start_ns, partition_ns));
    parts.iter().filter(is_touched).map(|part| part.id).collect()
}

#[cfg(test)]
mod tests {
    use model::TimeRange;

    use super::*;

    fn part(id: u64, level: u8, start_ns: i64, end_ns: i64) -> PartInfo {
        PartInfo {
            id,
            shard: 0,
            level,
            range: TimeRange::new(start_ns, end_ns),
            sequences: (0, 0),
            chunks: 0,
            bytes: 0,
        }
    }

    #[test]
    fn partitions_are_aligned_also_before_the_epoch() {
        assert_eq!(partition_start(25, 10), 20);
        assert_eq!(partition_start(-1, 10), -10);
        assert!(partition_start(i64::MIN, 1000) <= i64::MIN + 1000);
    }

    #[test]
    fn flushed_parts_are_merged_all_at_once_with_what_they_touch() {
        let parts = [part(1, 1, 0, 9), part(2, 1, 10, 19), part(3, 0, 0, 15), part(4, 0, 12, 15)];
        assert_eq!(parts_to_merge(&parts, 2), None);
        assert_eq!(parts_to_merge(&parts, 1), Some(BTreeSet::from([3, 4])));
        assert_eq!(parts_touched(&parts, &BTreeSet::from([10]), 10), BTreeSet::from([2]));
    }
}
