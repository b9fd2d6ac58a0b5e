//! What belongs where and what to merge next: pure decisions, after TimeUnion's elastic time-partitioned LSM tree.
//!
//! Rows go from level 0 (as flushed) to level 1 (merged, on the fast tier) to level 2 (large parts, on the object store). Who holds
//! the newer of two rows with the same key and timestamp follows from where they are: level 0 before level 1 before level
//! 2, and within a level the part with the larger number. [`plan`] keeps that so: whatever it moves, it moves with
//! everything of the same range of time above its target.

pub(crate) mod merge;
pub(crate) mod throttle;

mod lengths;
mod placement;
mod plan;

pub(crate) use lengths::{Lengths, fit};
pub(crate) use placement::{Level2Grid, Placement, Target, bases, level2_lengths};
pub use plan::MergeReason;
pub(crate) use plan::{CompactionJob, CompactionState, Policy, Urgency, expired, plan};

use model::TimeRange;

use crate::part::PartInfo;

/// The range of time that an instant falls into; aligned to the epoch.
pub(crate) fn partition_of(timestamp_ns: i64, length_ns: i64) -> TimeRange {
    let length_ns = length_ns.max(1);
    let start_ns = timestamp_ns.saturating_sub(timestamp_ns.rem_euclid(length_ns));
    let end_ns = timestamp_ns.saturating_add(length_ns - 1 - timestamp_ns.rem_euclid(length_ns));
    TimeRange::new(start_ns, end_ns)
}

/// Orders parts by the age of what they hold: of two with the same key and timestamp the later one here counts. Classes first:
/// a database's later class has a larger number.
pub(crate) fn age_order(info: &PartInfo) -> (u32, u8, u64) {
    (info.class, 2 - info.level.min(2), info.id)
}

/// Length of a range of time.
pub(crate) fn length_of(range: &TimeRange) -> i64 {
    range.end_ns.saturating_sub(range.start_ns).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_aligned_also_before_the_epoch() {
        assert_eq!(partition_of(25, 10), TimeRange::new(20, 29));
        assert_eq!(partition_of(-1, 10), TimeRange::new(-10, -1));
        for edge in [i64::MIN, i64::MAX] {
            assert!(partition_of(edge, 1000).contains(edge));
        }
    }
}
