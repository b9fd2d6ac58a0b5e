//! What to merge next.

use std::collections::{BTreeMap, BTreeSet};

use model::TimeRange;

use super::place::{bases, settled_lengths};
use super::{Lengths, Placement, Target, length_of, partition_of};
use crate::part::PartInfo;

/// Bounds that decide when to merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Partitions that level 0 may have; with more the oldest is merged into level 1.
    pub(crate) level0_partitions_max: usize,
    /// Parts that one partition of level 0 may have.
    pub(crate) level0_parts_max: usize,
    /// Patches that a part may have.
    pub(crate) patches_max: usize,
    /// Parts of level 2 are joined up to this size, in bytes.
    pub(crate) join_bytes_max: u64,
    /// How long rows are kept, in nanoseconds; 0: for ever.
    pub(crate) retention_ns: i64,
    /// From which age samples are replaced by summaries of which width, both in nanoseconds; youngest first.
    pub(crate) folds: Vec<(i64, i64)>,
}

/// Why parts are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// Level 0 has enough.
    Gather,
    /// Rows are too old for the fast tier.
    Settle,
    /// A part has too many patches.
    MergePatches,
    /// A part has too many patches, small ones: they become one.
    JoinPatches,
    /// Neighbours are small.
    Join,
    /// Samples are old enough to be replaced by summaries.
    Fold,
    /// Deleted rows are still there.
    Erase,
}

/// A merge.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) goal: Goal,
    /// Parts that go in; all are replaced by what comes out.
    pub(crate) inputs: BTreeSet<u64>,
    pub(crate) placement: Placement,
    /// Width of the summaries that replace samples; 0: samples stay.
    pub(crate) fold_ns: i64,
}

/// What there is to decide about: the parts of one shard and retention class.
pub(crate) struct Situation<'a> {
    pub(crate) parts: &'a [PartInfo],
    pub(crate) lengths: Lengths,
    pub(crate) now_ns: i64,
    /// Parts that hold deleted rows.
    pub(crate) masked: &'a BTreeSet<u64>,
}

impl Situation<'_> {
    /// The newest row; a clock that is ahead does not count.
    pub(crate) fn newest_ns(&self) -> i64 {
        self.parts.iter().map(|part| part.range.end_ns).max().unwrap_or(self.now_ns).min(self.now_ns)
    }

    fn fast_from(&self) -> i64 {
        self.lengths.fast_from(self.newest_ns())
    }

    /// Where the rows of a merge of these parts go.
    pub(crate) fn placement(&self, inputs: &BTreeSet<u64>, policy: &Policy) -> Placement {
        let of_inputs = self.parts.iter().filter(|part| part.level < 2 && inputs.contains(&part.id));
        let shortest = of_inputs.map(|part| length_of(&part.partition)).min().unwrap_or(i64::MAX);
        Placement::ByAge {
            fast_ns: self.lengths.fast_ns.min(shortest),
            fast_from: self.fast_from(),
            settled_ns: settled_lengths(self.lengths, policy.retention_ns),
            bases: bases(self.parts.iter()),
        }
    }

    /// The parts and all of levels 0 and 1 that share time with them, and so on.
    fn close(&self, mut inputs: BTreeSet<u64>) -> BTreeSet<u64> {
        let above: Vec<&PartInfo> = self.parts.iter().filter(|part| part.level < 2).collect();
        loop {
            let taken: Vec<TimeRange> =
                above.iter().filter(|part| inputs.contains(&part.id)).map(|part| part.partition).collect();
            let touched = |part: &&&PartInfo| {
                !inputs.contains(&part.id) && taken.iter().any(|range| range.overlaps(&part.partition))
            };
            let more: Vec<u64> = above.iter().filter(touched).map(|part| part.id).collect();
            if more.is_empty() {
                return inputs;
            }
            inputs.extend(more);
        }
    }

    fn patches(&self) -> BTreeMap<u64, Vec<&PartInfo>> {
        let mut patches: BTreeMap<u64, Vec<&PartInfo>> = BTreeMap::new();
        for part in self.parts.iter().filter(|part| part.is_patch()) {
            patches.entry(part.patch_of).or_default().push(part);
        }
        patches
    }

    /// A part of level 2 and its patches.
    fn with_patches(&self, base: u64) -> BTreeSet<u64> {
        let belongs = |part: &&PartInfo| part.id == base || part.patch_of == base;
        self.parts.iter().filter(belongs).map(|part| part.id).collect()
    }
}

/// The most urgent merge, if one is due.
pub(crate) fn plan(situation: &Situation<'_>, policy: &Policy) -> Option<Job> {
    gather(situation, policy)
        .or_else(|| settle(situation, policy, 1))
        .or_else(|| merge_patches(situation, policy))
        .or_else(|| fold(situation, policy))
        .or_else(|| join(situation, policy))
        .or_else(|| erase(situation, policy))
        .or_else(|| settle(situation, policy, 0))
        .or_else(|| reclaim(situation, policy))
}

/// The oldest partition of level 0 when there are too many, or the one with too many parts.
fn gather(situation: &Situation<'_>, policy: &Policy) -> Option<Job> {
    let mut partitions: BTreeMap<(i64, i64), BTreeSet<u64>> = BTreeMap::new();
    for part in situation.parts.iter().filter(|part| part.level == 0) {
        partitions.entry((part.partition.start_ns, part.partition.end_ns)).or_default().insert(part.id);
    }
    let fullest = partitions.values().find(|parts| parts.len() > policy.level0_parts_max);
    let oldest = (partitions.len() > policy.level0_partitions_max).then(|| partitions.values().next()).flatten();
    let inputs = situation.close(oldest.or(fullest)?.clone());
    let placement = situation.placement(&inputs, policy);
    Some(Job { goal: Goal::Gather, inputs, placement, fold_ns: 0 })
}

/// The oldest parts of a level that are too old for the fast tier: as many as make up one partition of level 2. Of level 0 once
/// nothing else is due: what nothing newer would push out.
fn settle(situation: &Situation<'_>, policy: &Policy, level: u8) -> Option<Job> {
    let fast_from = situation.fast_from();
    let is_old = |part: &&PartInfo| part.level == level && part.partition.end_ns < fast_from;
    let oldest = situation.parts.iter().filter(is_old).min_by_key(|part| part.partition.start_ns)?;
    let window = partition_of(oldest.partition.start_ns, situation.lengths.slow_ns);
    let in_window = |part: &&PartInfo| is_old(part) && part.partition.overlaps(&window);
    let inputs = situation.close(situation.parts.iter().filter(in_window).map(|part| part.id).collect());
    let placement = situation.placement(&inputs, policy);
    Some(Job { goal: Goal::Settle, inputs, placement, fold_ns: 0 })
}

/// The rest of a flush's file most of which was merged: the file takes its room until nothing of it is left.
fn reclaim(situation: &Situation<'_>, policy: &Policy) -> Option<Job> {
    let mut files: BTreeMap<u64, (u64, u64, BTreeSet<u64>)> = BTreeMap::new();
    for part in situation.parts.iter().filter(|part| part.level == 0) {
        let (live_bytes, end, parts) = files.entry(part.file).or_default();
        *live_bytes += part.bytes;
        *end = (*end).max(part.offset + part.bytes);
        parts.insert(part.id);
    }
    let (_, _, parts) = files.into_values().find(|(live_bytes, end, _)| live_bytes.saturating_mul(2) < *end)?;
    let inputs = situation.close(parts);
    let placement = situation.placement(&inputs, policy);
    Some(Job { goal: Goal::Gather, inputs, placement, fold_ns: 0 })
}

/// Patches that are many: joined with one another while they are small, else merged with their part.
fn merge_patches(situation: &Situation<'_>, policy: &Policy) -> Option<Job> {
    let patches = situation.patches();
    let (base, patches) = patches.iter().find(|(_, patches)| patches.len() >= policy.patches_max)?;
    let base = situation.parts.iter().find(|part| part.id == *base)?;
    let patch_bytes: u64 = patches.iter().map(|patch| patch.bytes).sum();
    if patch_bytes.saturating_mul(4) < base.bytes && base.fold_ns == 0 {
        let target = Target { level: 2, partition: base.partition, patch_of: base.id };
        let inputs = patches.iter().map(|patch| patch.id).collect();
        return Some(Job { goal: Goal::JoinPatches, inputs, placement: Placement::One(target), fold_ns: 0 });
    }
    Some(rewrite(situation, base, Goal::MergePatches, base.fold_ns))
}

fn rewrite(situation: &Situation<'_>, base: &PartInfo, goal: Goal, fold_ns: i64) -> Job {
    let target = Target { level: 2, partition: base.partition, patch_of: 0 };
    Job { goal, inputs: situation.with_patches(base.id), placement: Placement::One(target), fold_ns }
}

/// A part that is old enough to be folded further than it is.
fn fold(situation: &Situation<'_>, policy: &Policy) -> Option<Job> {
    let due = |part: &&PartInfo| part.level == 2 && !part.is_patch();
    situation.parts.iter().filter(due).find_map(|part| {
        let age_ns = situation.now_ns.saturating_sub(part.partition.end_ns);
        let (_, width_ns) = policy.folds.iter().rev().find(|(from_ns, _)| age_ns > *from_ns)?;
        (part.fold_ns < *width_ns).then(|| rewrite(situation, part, Goal::Fold, *width_ns))
    })
}

/// Neighbours that fill a longer partition and are small enough, where nothing is on its way any more.
fn join(situation: &Situation<'_>, policy: &Policy) -> Option<Job> {
    let fast_from = situation.fast_from();
    let all: Vec<&PartInfo> = situation.parts.iter().filter(|part| part.level == 2 && !part.is_patch()).collect();
    let lengths = settled_lengths(situation.lengths, policy.retention_ns);
    for length in lengths.into_iter().skip(1).rev() {
        let mut cells: BTreeMap<i64, Vec<&PartInfo>> = BTreeMap::new();
        for base in &all {
            let cell = partition_of(base.partition.start_ns, length);
            // Lengths may have been longer once: a part that reaches beyond the cell stays as it is.
            if base.partition.end_ns <= cell.end_ns {
                cells.entry(cell.start_ns).or_default().push(base);
            }
        }
        for (start_ns, members) in cells.into_iter().filter(|(_, members)| members.len() > 1) {
            let cell = partition_of(start_ns, length);
            let inputs: BTreeSet<u64> = members.iter().flat_map(|base| situation.with_patches(base.id)).collect();
            let of_inputs = situation.parts.iter().filter(|part| inputs.contains(&part.id));
            let bytes: u64 = of_inputs.map(|part| part.bytes).sum();
            let is_alone = |part: &PartInfo| inputs.contains(&part.id) || !part.partition.overlaps(&cell);
            let alike = members.windows(2).all(|pair| matches!(pair, [a, b] if a.fold_ns == b.fold_ns));
            if cell.end_ns < fast_from
                && bytes <= policy.join_bytes_max
                && alike
                && situation.parts.iter().all(is_alone)
            {
                let fold_ns = members.first().map_or(0, |base| base.fold_ns);
                let target = Target { level: 2, partition: cell, patch_of: 0 };
                return Some(Job { goal: Goal::Join, inputs, placement: Placement::One(target), fold_ns });
            }
        }
    }
    None
}

/// Parts that hold deleted rows, once nothing else is due.
fn erase(situation: &Situation<'_>, policy: &Policy) -> Option<Job> {
    let masked = situation.parts.iter().find(|part| situation.masked.contains(&part.id))?;
    if masked.level < 2 {
        let inputs = situation.close(BTreeSet::from([masked.id]));
        let placement = situation.placement(&inputs, policy);
        return Some(Job { goal: Goal::Erase, inputs, placement, fold_ns: 0 });
    }
    let base = if masked.is_patch() { masked.patch_of } else { masked.id };
    let base = situation.parts.iter().find(|part| part.id == base)?;
    Some(rewrite(situation, base, Goal::Erase, base.fold_ns))
}

/// Parts all of whose time is past keeping.
pub(crate) fn expired(parts: &[PartInfo], now_ns: i64, retention_ns: i64) -> BTreeSet<u64> {
    if retention_ns <= 0 {
        return BTreeSet::new();
    }
    let oldest_ns = now_ns.saturating_sub(retention_ns);
    parts.iter().filter(|part| part.partition.end_ns < oldest_ns).map(|part| part.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600 * 1_000_000_000;

    fn policy() -> Policy {
        Policy {
            level0_partitions_max: 2,
            level0_parts_max: 8,
            patches_max: 4,
            join_bytes_max: 1000,
            retention_ns: 0,
            folds: Vec::new(),
        }
    }

    fn part(id: u64, level: u8, hours: (i64, i64)) -> PartInfo {
        let partition = TimeRange::new(hours.0 * HOUR, hours.1 * HOUR - 1);
        PartInfo { range: partition, bytes: 100, ..PartInfo::empty(id, 0, level, 0, partition) }
    }

    fn patch(id: u64, of: u64, hours: (i64, i64), bytes: u64) -> PartInfo {
        PartInfo { patch_of: of, bytes, ..part(id, 2, hours) }
    }

    /// Partitions of one hour and of four; now is the 1000th hour.
    fn check(parts: &[PartInfo], policy: &Policy, expected: Option<(Goal, &[u64])>) {
        let masked = BTreeSet::new();
        let situation = Situation { parts, lengths: Lengths::new(HOUR), now_ns: 1000 * HOUR, masked: &masked };
        let job = plan(&situation, policy);
        let found = job.map(|job| (job.goal, job.inputs.into_iter().collect::<Vec<_>>()));
        assert_eq!(found, expected.map(|(goal, inputs)| (goal, inputs.to_vec())));
    }

    #[test]
    fn level_0_keeps_two_partitions() {
        let two = [part(1, 0, (10, 11)), part(2, 0, (11, 12)), part(3, 0, (11, 12))];
        check(&two, &policy(), None);
        let three = [&two[..], &[part(4, 0, (12, 13))]].concat();
        check(&three, &policy(), Some((Goal::Gather, &[1])));
        let with_level_1 = [&three[..], &[part(5, 1, (10, 11)), part(6, 1, (9, 10))]].concat();
        check(&with_level_1, &policy(), Some((Goal::Gather, &[1, 5])));
    }

    #[test]
    fn a_partition_of_level_0_keeps_few_parts() {
        let parts: Vec<PartInfo> = (1..=9).map(|id| part(id, 0, (10, 11))).collect();
        check(&parts[..8], &policy(), None);
        check(&parts, &policy(), Some((Goal::Gather, &[1, 2, 3, 4, 5, 6, 7, 8, 9])));
    }

    #[test]
    fn what_shares_time_moves_together() {
        let parts = [part(1, 0, (8, 12)), part(2, 0, (11, 13)), part(3, 0, (20, 21)), part(4, 1, (12, 13))];
        check(&parts, &policy(), Some((Goal::Gather, &[1, 2, 4])));
    }

    #[test]
    fn old_partitions_of_level_1_settle() {
        let fresh = [part(1, 1, (4, 5)), part(2, 1, (8, 9))];
        check(&fresh, &policy(), None);
        let parts = [part(1, 1, (4, 5)), part(2, 1, (5, 6)), part(3, 1, (8, 9)), part(4, 1, (12, 13))];
        check(&parts, &policy(), Some((Goal::Settle, &[1, 2])));
    }

    #[test]
    fn what_rests_on_level_0_settles_too() {
        let parts = [part(1, 0, (4, 5)), part(3, 0, (12, 13))];
        check(&parts, &policy(), Some((Goal::Settle, &[1])));
    }

    #[test]
    fn a_file_that_is_mostly_merged_is_given_up() {
        let behind = |offset| PartInfo { offset, file: 1, ..part(2, 0, (12, 13)) };
        check(&[behind(100)], &policy(), None);
        check(&[behind(101)], &policy(), Some((Goal::Gather, &[2])));
    }

    #[test]
    fn the_fourth_patch_is_merged() {
        let base = PartInfo { bytes: 100, ..part(1, 2, (0, 4)) };
        let patches = |bytes| (2..=5).map(|id| patch(id, 1, (0, 4), bytes)).collect::<Vec<_>>();
        check(&[&[base][..], &patches(50)[..3]].concat(), &policy(), None);
        check(&[&[base][..], &patches(50)].concat(), &policy(), Some((Goal::MergePatches, &[1, 2, 3, 4, 5])));
        check(&[&[base][..], &patches(6)].concat(), &policy(), Some((Goal::JoinPatches, &[2, 3, 4, 5])));
    }

    #[test]
    fn small_neighbours_are_joined_when_their_time_is_over() {
        let old = [part(1, 2, (0, 4)), part(2, 2, (4, 8)), part(3, 1, (99, 100)), patch(4, 2, (4, 8), 10)];
        check(&old, &policy(), Some((Goal::Join, &[1, 2, 4])));
        let large = [PartInfo { bytes: 950, ..old[0] }, old[1], old[2]];
        check(&large, &policy(), None);
        let long = [part(1, 2, (0, 4)), part(2, 2, (4, 80)), part(3, 1, (99, 100))];
        check(&long, &policy(), None);
        let young = [part(1, 2, (0, 4)), part(2, 2, (4, 8)), part(3, 1, (12, 13))];
        check(&young, &policy(), None);
    }

    #[test]
    fn old_parts_are_folded_and_older_ones_dropped() {
        let folds = vec![(100 * HOUR, 60), (500 * HOUR, 3600)];
        let policy = Policy { folds, ..policy() };
        let folded = PartInfo { fold_ns: 3600, ..part(1, 2, (0, 4)) };
        check(&[folded, part(2, 2, (897, 901))], &policy, None);
        check(&[folded, part(2, 2, (894, 898))], &policy, Some((Goal::Fold, &[2])));
        let parts = [part(1, 2, (0, 4)), part(2, 0, (990, 991))];
        assert_eq!(expired(&parts, 1000 * HOUR, 10 * HOUR), BTreeSet::from([1]));
        assert_eq!(expired(&parts, 1000 * HOUR, 0), BTreeSet::new());
    }
}
