//! When a merge's only input becomes its output as it lies: nothing is read or written but the manifest.

use crate::compaction::CompactionJob;
use crate::part::PartInfo;

/// What a merge of this one part would write, if that can be the part itself: a part of level 0 all of which goes to one place on level 1,
/// whose chunks are encoded as that level's are. A key with so many rows that level 1 would have nodes for it (`node_rows_min`)
/// is only found by reading the part: where keys have as many on average, it is written anew.
pub(super) fn adopt(info: &PartInfo, groups: u64, job: &CompactionJob, node_rows_min: usize) -> Option<PartInfo> {
    let is_raw = info.level == 0 && info.fold_ns == 0 && job.fold_ns == 0 && !job.gives_up_files;
    let (target, until_ns) = job.placement.target(info.range.start_ns);
    let is_inside = info.range.end_ns <= until_ns && target.level == 1;
    let is_sparse = info.rows < groups.saturating_mul(node_rows_min as u64);
    (is_raw && is_inside && is_sparse && info.locations.local).then_some(PartInfo {
        level: target.level,
        partition: target.partition,
        patch_of: target.patch_of,
        ..*info
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::TimeRange;

    use super::*;
    use crate::compaction::{MergeReason, Placement};

    fn job() -> CompactionJob {
        let placement = Placement::ByAge {
            fast_partition_length_ns: 10,
            fast_from_ns: 1000,
            level2_lengths_ns: vec![40],
            level1_bases: vec![(TimeRange::new(1030, 1039), 7)],
            level2_bases: Vec::new(),
        };
        CompactionJob {
            reason: MergeReason::CompactL0,
            inputs: BTreeSet::new(),
            placement,
            fold_ns: 0,
            gives_up_files: false,
        }
    }

    /// A part of a flush with 99 rows of one key in a range.
    fn part(start_ns: i64, end_ns: i64) -> PartInfo {
        let range = TimeRange::new(start_ns, end_ns);
        PartInfo { range, rows: 99, file: 2, offset: 5, ..PartInfo::empty(3, 0, 0, 0, range) }
    }

    #[test]
    fn a_part_with_one_target_is_adopted() {
        let found = adopt(&part(1011, 1019), 1, &job(), 100).unwrap();
        let expected = PartInfo { level: 1, partition: TimeRange::new(1010, 1019), ..part(1011, 1019) };
        assert_eq!(found, expected);
        let patch = adopt(&part(1031, 1032), 1, &job(), 100).unwrap();
        assert_eq!((patch.patch_of, patch.partition), (7, TimeRange::new(1030, 1039)));
    }

    #[test]
    fn a_part_that_a_merge_would_change_is_written() {
        let none =
            |info: PartInfo, job: CompactionJob| assert_eq!(adopt(&info, 1, &job, 100), None, "{info:?} {job:?}");
        none(part(1011, 1020), job());
        none(part(900, 905), job());
        none(PartInfo { rows: 100, ..part(1011, 1019) }, job());
        none(PartInfo { level: 1, ..part(1011, 1019) }, job());
        none(PartInfo { fold_ns: 5, ..part(1011, 1019) }, job());
        none(part(1011, 1019), CompactionJob { fold_ns: 5, ..job() });
        none(part(1011, 1019), CompactionJob { gives_up_files: true, ..job() });
    }
}
