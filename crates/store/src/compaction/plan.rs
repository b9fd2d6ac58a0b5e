//! What to merge next.

use std::collections::{BTreeMap, BTreeSet};

use model::TimeRange;

use super::placement::{Bases, bases, level2_lengths};
use super::{Lengths, Placement, Target, length_of, partition_of};
use crate::part::PartInfo;

/// Bounds that decide when to merge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy {
    /// Partitions that level 0 may have; with more the oldest is merged into level 1.
    pub(crate) level0_partitions_max: usize,
    /// Parts that one partition of level 0 may have.
    pub(crate) level0_parts_max: usize,
    /// Patches that a part may have; with as many they are merged.
    pub(crate) patches_max: usize,
    /// Parts of level 2 are joined up to this size, in bytes.
    pub(crate) join_bytes_max: u64,
    /// How long rows are kept, in nanoseconds; 0: for ever.
    pub(crate) retention_ns: i64,
    /// From which age samples are replaced by summaries of which width, both in nanoseconds; youngest first.
    pub(crate) folds: Vec<(i64, i64)>,
    /// Samples from here on are not folded, however old they are: views are made of them.
    pub(crate) foldable_before_ns: i64,
}

/// Why parts are merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeReason {
    /// Level 0 has enough.
    CompactL0,
    /// Rows are too old for the fast tier.
    CompactToL2,
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

impl MergeReason {
    /// All, in the order in which they are declared.
    pub const ALL: [Self; 7] = [
        Self::CompactL0,
        Self::CompactToL2,
        Self::MergePatches,
        Self::JoinPatches,
        Self::Join,
        Self::Fold,
        Self::Erase,
    ];

    /// Its name in metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CompactL0 => "gather",
            Self::CompactToL2 => "settle",
            Self::MergePatches => "merge_patches",
            Self::JoinPatches => "join_patches",
            Self::Join => "join",
            Self::Fold => "fold",
            Self::Erase => "erase",
        }
    }
}

/// A merge.
#[derive(Debug, Clone)]
pub(crate) struct CompactionJob {
    pub(crate) reason: MergeReason,
    /// Parts that go in; all are replaced by what comes out.
    pub(crate) inputs: BTreeSet<u64>,
    pub(crate) placement: Placement,
    /// Width of the summaries that replace samples; 0: samples stay.
    pub(crate) fold_ns: i64,
    /// True if the inputs' files are to go: no input may become a part as it lies there.
    pub(crate) gives_up_files: bool,
}

/// Late rows are merged into what they are late for once that takes no more than so many times their own bytes.
const REWRITTEN_TIMES: u64 = 1;

/// So many parts below that late rows are for let them wait for one part more on level 0.
const SCATTERED_PARTS: usize = 4;

/// Patches are joined with one another while their part has more than so many times their bytes.
const PATCHES_TIMES: u64 = 4;

/// Partitions that are still to be folded are joined up to this share of the age at which they are.
const FOLD_SHARE: i64 = 8;

/// What merges wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Urgency {
    /// More rows: late ones for others of their kind, the newest partitions for what belongs into them.
    Waiting,
    /// Nothing new has come for a while: what waits for company waits no longer, but the newest partitions stay open.
    Idle,
    /// A caller wants all merges now.
    Forced,
}

/// What there is to decide about: the parts of one shard and retention class.
pub(crate) struct CompactionState<'a> {
    pub(crate) parts: &'a [PartInfo],
    pub(crate) lengths: Lengths,
    pub(crate) now_ns: i64,
    /// Parts that hold deleted rows.
    pub(crate) masked: &'a BTreeSet<u64>,
    pub(crate) urgency: Urgency,
}

impl CompactionState<'_> {
    fn is_idle(&self) -> bool {
        self.urgency >= Urgency::Idle
    }

    /// The newest row; a clock that is ahead does not count.
    pub(crate) fn newest_ns(&self) -> i64 {
        self.parts.iter().map(|part| part.range.end_ns).max().unwrap_or(self.now_ns).min(self.now_ns)
    }

    /// Start of what stays on the fast tier: what is old enough to be folded does not.
    fn fast_from_ns(&self, policy: &Policy) -> i64 {
        self.lengths.fast_from_ns(self.newest_ns()).max(self.fold_edge_ns(policy))
    }

    /// Start of the partitions in which no sample is due to be folded.
    fn fold_edge_ns(&self, policy: &Policy) -> i64 {
        let Some((age_ns, _)) = policy.folds.first() else { return i64::MIN };
        partition_of(self.now_ns.saturating_sub(*age_ns), self.lengths.slow_partition_length_ns).start_ns
    }

    /// Returns whether a part has rows for what is folded or is due to be.
    fn is_for_fold(&self, part: &PartInfo, policy: &Policy) -> bool {
        let is_folded = |base: &PartInfo| base.fold_ns > 0 && base.partition.overlaps(&part.range);
        part.range.end_ns < self.fold_edge_ns(policy) || self.parts.iter().any(is_folded)
    }

    /// Returns whether rows of a partition of level 2 are still on their way down.
    fn is_covered(&self, base: &PartInfo) -> bool {
        self.parts.iter().any(|part| part.level < 2 && part.range.overlaps(&base.partition))
    }

    /// Where the rows of a merge of these parts go.
    pub(crate) fn placement(&self, inputs: &BTreeSet<u64>, policy: &Policy) -> Placement {
        let staying = self.parts.iter().filter(|part| !inputs.contains(&part.id));
        let level2_lengths_ns = level2_lengths(self.lengths, policy.retention_ns);
        let mut level2_bases = bases(self.parts.iter(), 2);
        self.add_flushed(inputs, policy, &level2_lengths_ns, &mut level2_bases);
        Placement::ByAge {
            fast_partition_length_ns: self.lengths.fast_partition_length_ns,
            fast_from_ns: self.fast_from_ns(policy),
            level2_lengths_ns,
            level1_bases: bases(staying, 1),
            level2_bases,
        }
    }

    /// Adds partitions of level 2 that a flush encoded rows for, though lengths may have changed since: chunks that another
    /// partition would cut must be encoded anew. They go where level 2 has nothing, the longest first.
    fn add_flushed(
        &self,
        inputs: &BTreeSet<u64>,
        policy: &Policy,
        level2_lengths_ns: &[i64],
        level2_bases: &mut Bases,
    ) {
        let (Some(shortest), Some(longest)) = (level2_lengths_ns.first(), level2_lengths_ns.last()) else { return };
        let fast_from_ns = self.fast_from_ns(policy);
        let is_settled = |partition: &TimeRange| {
            let length_ns = length_of(partition);
            (*shortest..=*longest).contains(&length_ns)
                && partition.end_ns < fast_from_ns
                && *partition == partition_of(partition.start_ns, length_ns)
        };
        let of_level0 = self.parts.iter().filter(|part| part.level == 0 && inputs.contains(&part.id));
        let mut flushed: Vec<TimeRange> = of_level0.map(|part| part.partition).filter(is_settled).collect();
        flushed.sort_unstable_by_key(|partition| (std::cmp::Reverse(length_of(partition)), partition.start_ns));
        for partition in flushed {
            if !level2_bases.iter().any(|(known, _)| known.overlaps(&partition)) {
                level2_bases.push((partition, 0));
            }
        }
        level2_bases.sort_unstable_by_key(|(partition, id)| (partition.start_ns, *id));
    }

    /// Parts of level 0 and all older ones there that share time with them: rows go down only with what is older than they.
    fn with_older(&self, of_level0: &BTreeSet<u64>) -> Vec<&PartInfo> {
        let mut parts: Vec<&PartInfo> = self.parts.iter().filter(|part| part.level == 0).collect();
        parts.sort_unstable_by_key(|part| std::cmp::Reverse(part.id));
        let mut taken: Vec<&PartInfo> = Vec::new();
        for part in parts {
            if of_level0.contains(&part.id) || taken.iter().any(|newer| newer.range.overlaps(&part.range)) {
                taken.push(part);
            }
        }
        taken
    }

    /// All parts of level 1 that stand for the time of some parts.
    fn level1_below(&self, above: &[&PartInfo]) -> Vec<&PartInfo> {
        let is_below =
            |part: &&PartInfo| part.level == 1 && above.iter().any(|above| above.range.overlaps(&part.partition));
        let mut below: Vec<&PartInfo> = self.parts.iter().filter(is_below).collect();
        // Of parts whose partitions overlap all or none: a patch's rows are newer than its part's.
        loop {
            let is_tied = |part: &&PartInfo| {
                part.level == 1
                    && !below.iter().any(|known| known.id == part.id)
                    && below.iter().any(|known| known.partition.overlaps(&part.partition))
            };
            let tied: Vec<&PartInfo> = self.parts.iter().filter(is_tied).collect();
            if tied.is_empty() {
                return below;
            }
            below.extend(tied);
        }
    }

    fn patches(&self) -> BTreeMap<u64, Vec<&PartInfo>> {
        let mut patches: BTreeMap<u64, Vec<&PartInfo>> = BTreeMap::new();
        for part in self.parts.iter().filter(|part| part.is_patch()) {
            patches.entry(part.patch_of).or_default().push(part);
        }
        patches
    }

    /// A part and its patches.
    fn with_patches(&self, base: u64) -> BTreeSet<u64> {
        let belongs = |part: &&PartInfo| part.id == base || part.patch_of == base;
        self.parts.iter().filter(belongs).map(|part| part.id).collect()
    }
}

/// The most urgent merge, if one is due.
pub(crate) fn plan(state: &CompactionState<'_>, policy: &Policy) -> Option<CompactionJob> {
    compact_l0(state, policy)
        .or_else(|| compact_to_l2(state, policy))
        .or_else(|| merge_patches(state, policy))
        .or_else(|| fold(state, policy))
        .or_else(|| join(state, policy))
        .or_else(|| erase(state, policy))
        .or_else(|| reclaim(state, policy))
}

/// What of level 0 goes down: partitions that no newer rows are expected for, the oldest first, once it is worth it; and one with
/// too many parts.
fn compact_l0(state: &CompactionState<'_>, policy: &Policy) -> Option<CompactionJob> {
    let mut partitions: BTreeMap<(i64, i64), BTreeSet<u64>> = BTreeMap::new();
    for part in state.parts.iter().filter(|part| part.level == 0) {
        partitions.entry((part.partition.end_ns, part.partition.start_ns)).or_default().insert(part.id);
    }
    let newest = partition_of(state.newest_ns(), state.lengths.fast_partition_length_ns);
    let before = policy.level0_partitions_max.saturating_sub(1) as i64;
    let open_from = newest.start_ns.saturating_sub(state.lengths.fast_partition_length_ns.saturating_mul(before));
    let open_max = if state.urgency == Urgency::Forced { 0 } else { policy.level0_partitions_max };
    let open_from = open_from.max(state.fold_edge_ns(policy));
    let open = partitions.keys().rev().take(open_max).filter(|(end_ns, _)| *end_ns >= open_from);
    let closed = partitions.len() - open.count();
    for (index, parts) in partitions.values().enumerate() {
        if index >= closed && parts.len() <= policy.level0_parts_max {
            continue;
        }
        let taken = state.with_older(parts);
        if index >= closed || is_worth(state, policy, &taken) {
            return Some(move_down(state, policy, &taken));
        }
    }
    None
}

/// Returns whether parts of level 0 are enough to go down: few late rows wait for more, so that they do not make a patch of every part
/// below each time. They wait the longer the more parts those are.
fn is_worth(state: &CompactionState<'_>, policy: &Policy, taken: &[&PartInfo]) -> bool {
    let is_below = |part: &&PartInfo| part.level > 0 && taken.iter().any(|above| above.range.overlaps(&part.partition));
    let below = || state.parts.iter().filter(is_below);
    // Each flush brings a file, with a part for each partition.
    let flushes = taken.iter().map(|part| part.file).collect::<BTreeSet<_>>().len();
    let scattered = below().filter(|part| !part.is_patch()).count() / SCATTERED_PARTS;
    state.is_idle()
        || taken.iter().any(|part| state.is_for_fold(part, policy))
        || flushes > policy.level0_parts_max.max(scattered)
        || outweigh(taken, below().map(|part| part.bytes).sum())
}

fn outweigh(parts: &[&PartInfo], others_bytes: u64) -> bool {
    parts.iter().map(|part| part.bytes).sum::<u64>().saturating_mul(REWRITTEN_TIMES) >= others_bytes
}

/// Moves parts of level 0 down: with what level 1 has of their time if that is little, else as its patches.
fn move_down(state: &CompactionState<'_>, policy: &Policy, taken: &[&PartInfo]) -> CompactionJob {
    let below = state.level1_below(taken);
    let is_little = state.is_idle() || outweigh(taken, below.iter().map(|part| part.bytes).sum());
    let rewritten = below.into_iter().filter(|_| is_little);
    let inputs: BTreeSet<u64> = taken.iter().copied().chain(rewritten).map(|part| part.id).collect();
    let placement = state.placement(&inputs, policy);
    CompactionJob { reason: MergeReason::CompactL0, inputs, placement, fold_ns: 0, gives_up_files: false }
}

/// The oldest parts of level 1 that are too old for the fast tier: as many as make up one partition of level 2. One that is longer than
/// partitions are by now goes as soon as some of its rows are too old: else it would keep everything up to its end on the fast tier.
fn compact_to_l2(state: &CompactionState<'_>, policy: &Policy) -> Option<CompactionJob> {
    let fast_from_ns = state.fast_from_ns(policy);
    let is_outgrown = |part: &PartInfo| {
        length_of(&part.partition) > state.lengths.fast_partition_length_ns && part.range.start_ns < fast_from_ns
    };
    let is_old = |part: &&PartInfo| part.level == 1 && (part.partition.end_ns < fast_from_ns || is_outgrown(part));
    let oldest = state.parts.iter().filter(is_old).min_by_key(|part| part.partition.start_ns)?;
    let window = partition_of(oldest.partition.start_ns, state.lengths.slow_partition_length_ns);
    let in_window = |part: &&PartInfo| is_old(part) && part.partition.overlaps(&window);
    let chosen: Vec<&PartInfo> = state.parts.iter().filter(in_window).collect();
    let inputs = state.level1_below(&chosen).into_iter().chain(chosen).map(|part| part.id).collect();
    let placement = state.placement(&inputs, policy);
    Some(CompactionJob { reason: MergeReason::CompactToL2, inputs, placement, fold_ns: 0, gives_up_files: false })
}

/// The flush's file with most room to give back, when such files hold more that was merged than levels 0 and 1 have: a file takes
/// its room until nothing of it is left. What is on level 0 goes down first; what level 1 took over as it lay is written anew.
fn reclaim(state: &CompactionState<'_>, policy: &Policy) -> Option<CompactionJob> {
    let mut files: BTreeMap<u64, (u64, u64, Vec<&PartInfo>)> = BTreeMap::new();
    for part in state.parts.iter().filter(|part| part.level < 2) {
        let (live_bytes, end, parts) = files.entry(part.file).or_default();
        *live_bytes += part.bytes;
        *end = (*end).max(part.offset + part.bytes);
        parts.push(part);
    }
    let dead_bytes = |(live_bytes, end, _): &(u64, u64, Vec<&PartInfo>)| end.saturating_sub(*live_bytes);
    let kept_bytes: u64 = state.parts.iter().filter(|part| part.level < 2).map(|part| part.bytes).sum();
    if files.values().map(dead_bytes).sum::<u64>() <= kept_bytes {
        return None;
    }
    let (_, _, parts) = files.into_values().max_by_key(dead_bytes)?;
    let of_level0: BTreeSet<u64> = parts.iter().filter(|part| part.level == 0).map(|part| part.id).collect();
    let job = if of_level0.is_empty() {
        let taken = parts.first()?;
        let base = if taken.is_patch() { taken.patch_of } else { taken.id };
        let base = state.parts.iter().find(|part| part.id == base)?;
        rewrite(state, base, MergeReason::CompactL0, base.fold_ns)
    } else {
        move_down(state, policy, &state.with_older(&of_level0))
    };
    Some(CompactionJob { gives_up_files: true, ..job })
}

/// Patches that are many: joined with one another while they are small, else merged with their part; at last however few.
fn merge_patches(state: &CompactionState<'_>, policy: &Policy) -> Option<CompactionJob> {
    let patches_max = if state.is_idle() { 1 } else { policy.patches_max };
    let find = |id: u64| state.parts.iter().find(|part| part.id == id);
    let patches = state.patches();
    let mut many = patches.iter().filter(|(_, patches)| patches.len() >= patches_max);
    let is_ready = |base: &&PartInfo| base.fold_ns == 0 || !state.is_covered(base);
    let (base, patches) = many.find_map(|(base, patches)| Some((find(*base).filter(is_ready)?, patches)))?;
    let patch_bytes: u64 = patches.iter().map(|patch| patch.bytes).sum();
    if !state.is_idle() && patch_bytes.saturating_mul(PATCHES_TIMES) < base.bytes && base.fold_ns == 0 {
        let target = Target { level: base.level, partition: base.partition, patch_of: base.id };
        let inputs = patches.iter().map(|patch| patch.id).collect();
        return Some(CompactionJob {
            reason: MergeReason::JoinPatches,
            inputs,
            placement: Placement::One(target),
            fold_ns: 0,
            gives_up_files: false,
        });
    }
    Some(rewrite(state, base, MergeReason::MergePatches, base.fold_ns))
}

fn rewrite(state: &CompactionState<'_>, base: &PartInfo, reason: MergeReason, fold_ns: i64) -> CompactionJob {
    let target = Target { level: base.level, partition: base.partition, patch_of: 0 };
    CompactionJob {
        reason,
        inputs: state.with_patches(base.id),
        placement: Placement::One(target),
        fold_ns,
        gives_up_files: false,
    }
}

/// A part that is old enough to be folded further than it is.
fn fold(state: &CompactionState<'_>, policy: &Policy) -> Option<CompactionJob> {
    let due = |part: &&PartInfo| {
        let is_free = part.partition.end_ns < policy.foldable_before_ns;
        is_free && part.level == 2 && !part.is_patch() && !state.is_covered(part)
    };
    state.parts.iter().filter(due).find_map(|part| {
        let age_ns = state.now_ns.saturating_sub(part.partition.end_ns);
        let (_, width_ns) = policy.folds.iter().rev().find(|(from_ns, _)| age_ns > *from_ns)?;
        (part.fold_ns < *width_ns).then(|| rewrite(state, part, MergeReason::Fold, *width_ns))
    })
}

/// Neighbours that fill a longer partition and are small enough, where nothing is on its way any more.
fn join(state: &CompactionState<'_>, policy: &Policy) -> Option<CompactionJob> {
    let fast_from_ns = state.fast_from_ns(policy);
    let all: Vec<&PartInfo> = state.parts.iter().filter(|part| part.level == 2 && !part.is_patch()).collect();
    // Partitions are folded as wholes: they must not be long beside the age at which they are.
    let next_fold = |base: &PartInfo| policy.folds.iter().find(|(_, width_ns)| *width_ns > base.fold_ns);
    let is_short =
        |base: &PartInfo, length: i64| next_fold(base).is_none_or(|(age_ns, _)| length <= *age_ns / FOLD_SHARE);
    let lengths = level2_lengths(state.lengths, policy.retention_ns);
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
            let inputs: BTreeSet<u64> = members.iter().flat_map(|base| state.with_patches(base.id)).collect();
            let of_inputs = state.parts.iter().filter(|part| inputs.contains(&part.id));
            let bytes: u64 = of_inputs.map(|part| part.bytes).sum();
            // Late rows that wait on level 0 become patches some time; they keep nothing from being joined.
            let is_alone =
                |part: &PartInfo| part.level == 0 || inputs.contains(&part.id) || !part.partition.overlaps(&cell);
            let alike = members.windows(2).all(|pair| matches!(pair, [a, b] if a.fold_ns == b.fold_ns))
                && members.first().is_some_and(|base| is_short(base, length));
            if cell.end_ns < fast_from_ns && bytes <= policy.join_bytes_max && alike && state.parts.iter().all(is_alone)
            {
                let fold_ns = members.first().map_or(0, |base| base.fold_ns);
                let target = Target { level: 2, partition: cell, patch_of: 0 };
                return Some(CompactionJob {
                    reason: MergeReason::Join,
                    inputs,
                    placement: Placement::One(target),
                    fold_ns,
                    gives_up_files: false,
                });
            }
        }
    }
    None
}

/// Parts that hold deleted rows, once nothing else is due.
fn erase(state: &CompactionState<'_>, policy: &Policy) -> Option<CompactionJob> {
    let masked = state.parts.iter().find(|part| state.masked.contains(&part.id))?;
    if masked.level == 0 {
        let taken = state.with_older(&BTreeSet::from([masked.id]));
        return Some(CompactionJob { reason: MergeReason::Erase, ..move_down(state, policy, &taken) });
    }
    let base = if masked.is_patch() { masked.patch_of } else { masked.id };
    let base = state.parts.iter().find(|part| part.id == base)?;
    Some(rewrite(state, base, MergeReason::Erase, base.fold_ns))
}

/// Parts all of whose time is past keeping.
pub(crate) fn expired(parts: &[PartInfo], oldest_ns: i64) -> BTreeSet<u64> {
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
            foldable_before_ns: i64::MAX,
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
    fn check(parts: &[PartInfo], policy: &Policy, expected: Option<(MergeReason, &[u64])>) {
        check_when(Urgency::Waiting, parts, policy, expected);
    }

    fn check_when(urgency: Urgency, parts: &[PartInfo], policy: &Policy, expected: Option<(MergeReason, &[u64])>) {
        let masked = BTreeSet::new();
        let lengths = Lengths::new(HOUR);
        let state = CompactionState { parts, lengths, now_ns: 1000 * HOUR, masked: &masked, urgency };
        let job = plan(&state, policy);
        let found = job.map(|job| (job.reason, job.inputs.into_iter().collect::<Vec<_>>()));
        assert_eq!(found, expected.map(|(reason, inputs)| (reason, inputs.to_vec())));
    }

    #[test]
    fn level_0_keeps_two_partitions() {
        let two = [part(1, 0, (10, 11)), part(2, 0, (11, 12)), part(3, 0, (11, 12))];
        check(&two, &policy(), None);
        let three = [&two[..], &[part(4, 0, (12, 13))]].concat();
        check(&three, &policy(), Some((MergeReason::CompactL0, &[1])));
        let with_level_1 = [&three[..], &[part(5, 1, (10, 11)), part(6, 1, (9, 10))]].concat();
        check(&with_level_1, &policy(), Some((MergeReason::CompactL0, &[1, 5])));
    }

    /// Rows older than a fold's age do not wait for newer ones on levels 0 and 1, and are folded once nothing is above them.
    #[test]
    fn what_is_to_be_folded_goes_down() {
        let folding = Policy { folds: vec![(100 * HOUR, HOUR / 2)], ..policy() };
        let newest = [part(1, 0, (10, 11)), part(2, 0, (11, 12))];
        check(&newest, &policy(), None);
        check(&newest, &folding, Some((MergeReason::CompactL0, &[1])));
        let on_level1 = [part(1, 1, (8, 9))];
        check(&on_level1, &policy(), None);
        check(&on_level1, &folding, Some((MergeReason::CompactToL2, &[1])));
        let settled = [part(1, 2, (8, 12))];
        check(&settled, &folding, Some((MergeReason::Fold, &[1])));
        check(&[part(1, 2, (980, 984)), part(2, 0, (999, 1000))], &folding, None);
        let late = [part(1, 2, (8, 12)), part(2, 0, (9, 10))];
        check(&late, &folding, Some((MergeReason::CompactL0, &[2])));
        // Late rows for what is folded do not wait for others of their kind.
        let folded = PartInfo { fold_ns: HOUR / 2, ..part(1, 2, (8, 12)) };
        check(&[folded, part(2, 0, (9, 10))], &folding, Some((MergeReason::CompactL0, &[2])));
        // Partitions are not joined before they are folded, unless they stay short beside the age.
        let young = [part(1, 2, (920, 924)), part(2, 2, (924, 928)), part(3, 0, (999, 1000))];
        check(&young, &policy(), Some((MergeReason::Join, &[1, 2])));
        check(&young, &folding, None);
    }

    #[test]
    fn at_last_level_0_keeps_nothing() {
        let two = [part(1, 0, (10, 11)), part(2, 0, (11, 12)), part(3, 0, (11, 12))];
        check_when(Urgency::Idle, &two, &policy(), None);
        check_when(Urgency::Forced, &two, &policy(), Some((MergeReason::CompactL0, &[1])));
        check_when(Urgency::Forced, &two[1..], &policy(), Some((MergeReason::CompactL0, &[2, 3])));
        check_when(Urgency::Forced, &[part(4, 1, (11, 12))], &policy(), None);
    }

    #[test]
    fn a_partition_of_level_0_keeps_few_parts() {
        let parts: Vec<PartInfo> = (1..=9).map(|id| part(id, 0, (10, 11))).collect();
        check(&parts[..8], &policy(), None);
        check(&parts, &policy(), Some((MergeReason::CompactL0, &[1, 2, 3, 4, 5, 6, 7, 8, 9])));
    }

    #[test]
    fn what_is_older_moves_first() {
        let (long, late, newest) = (part(1, 0, (8, 12)), part(2, 0, (11, 13)), part(3, 0, (20, 21)));
        check(&[long, late, newest, part(4, 1, (12, 13))], &policy(), Some((MergeReason::CompactL0, &[1])));
        let newer_first = [part(2, 0, (8, 12)), part(1, 0, (11, 13)), newest];
        check(&newer_first, &policy(), Some((MergeReason::CompactL0, &[1, 2])));
    }

    #[test]
    fn what_a_flush_encoded_for_level_2_goes_into_its_partition() {
        let check = |parts: &[PartInfo], expected: &[(i64, i64, u64)]| {
            let masked = BTreeSet::new();
            let lengths = Lengths::new(HOUR);
            let state =
                CompactionState { parts, lengths, now_ns: 1000 * HOUR, masked: &masked, urgency: Urgency::Forced };
            let inputs = parts.iter().filter(|part| part.level == 0).map(|part| part.id).collect();
            let Placement::ByAge { level2_bases, .. } = state.placement(&inputs, &policy()) else { unreachable!() };
            let hours = |(range, id): (TimeRange, u64)| (range.start_ns / HOUR, (range.end_ns + 1) / HOUR, id);
            assert_eq!(level2_bases.into_iter().map(hours).collect::<Vec<_>>(), expected);
        };
        let newest = part(9, 1, (999, 1000));
        // Partitions of twice and four times the present length; inside another; too short, too young, too long, cut.
        check(&[newest, part(1, 0, (32, 48)), part(2, 0, (8, 16))], &[(8, 16, 0), (32, 48, 0)]);
        check(&[newest, part(1, 0, (8, 16)), part(2, 0, (0, 64))], &[(0, 64, 0)]);
        check(&[newest, part(1, 0, (8, 10)), part(2, 0, (992, 1000)), part(3, 0, (0, 128)), part(4, 0, (3, 19))], &[]);
        // What level 2 has stays.
        check(&[newest, part(1, 2, (12, 16)), part(2, 0, (8, 16)), part(3, 0, (16, 32))], &[(12, 16, 1), (16, 32, 0)]);
    }

    #[test]
    fn few_late_rows_wait_for_more() {
        let below = [part(1, 1, (96, 97)), part(2, 1, (97, 98)), part(3, 0, (99, 100)), part(4, 2, (80, 84))];
        let late = |id: u64, bytes| PartInfo { bytes, ..part(id, 0, (64, 98)) };
        let with = |late: &[PartInfo]| [&below[..], late].concat();
        check(&with(&[late(5, 10)]), &policy(), None);
        check_when(Urgency::Idle, &with(&[late(5, 10)]), &policy(), Some((MergeReason::CompactL0, &[1, 2, 5])));
        // As much as all that is below, and more than what would be rewritten.
        check(&with(&[late(5, 300)]), &policy(), Some((MergeReason::CompactL0, &[1, 2, 5])));
        let nine: Vec<PartInfo> = (5..14).map(|id| late(id, 10)).collect();
        check(&with(&nine[..8]), &policy(), None);
        check(&with(&nine), &policy(), Some((MergeReason::CompactL0, &[5, 6, 7, 8, 9, 10, 11, 12, 13])));
        let many: Vec<PartInfo> = (5..14).map(|id| late(id, 30)).collect();
        check(&with(&many), &policy(), Some((MergeReason::CompactL0, &[1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13])));
    }

    #[test]
    fn old_partitions_of_level_1_go_to_level_2() {
        let fresh = [part(1, 1, (4, 5)), part(2, 1, (8, 9))];
        check(&fresh, &policy(), None);
        let parts = [part(1, 1, (4, 5)), part(2, 1, (5, 6)), part(3, 1, (8, 9)), part(4, 1, (12, 13))];
        check(&parts, &policy(), Some((MergeReason::CompactToL2, &[1, 2])));
    }

    #[test]
    fn partitions_that_became_too_long_are_cut() {
        // Now partitions are of one hour: what is before hour 8 is too old.
        let newest = part(9, 1, (12, 13));
        let rows = |part: PartInfo, from: i64| PartInfo { range: TimeRange::new(from * HOUR, from * HOUR + 1), ..part };
        let long = part(1, 1, (0, 16));
        check(
            &[long, PartInfo { patch_of: 1, ..rows(part(2, 1, (0, 16)), 12) }],
            &policy(),
            Some((MergeReason::CompactToL2, &[1, 2])),
        );
        check(&[rows(long, 8), newest], &policy(), None);
        check(&[part(3, 1, (8, 9)), newest], &policy(), None);
    }

    #[test]
    fn parts_of_level_0_that_wait_go_down_too() {
        let parts = [part(1, 0, (4, 5)), part(3, 0, (12, 13))];
        check(&parts, &policy(), Some((MergeReason::CompactL0, &[1])));
    }

    #[test]
    fn a_file_that_is_mostly_merged_is_given_up() {
        let behind = |offset| PartInfo { offset, file: 1, ..part(2, 0, (12, 13)) };
        check(&[behind(100)], &policy(), None);
        check(&[behind(101)], &policy(), Some((MergeReason::CompactL0, &[2])));
        let adopted = |offset| PartInfo { level: 1, ..behind(offset) };
        check(&[adopted(100)], &policy(), None);
        check(&[adopted(101)], &policy(), Some((MergeReason::CompactL0, &[2])));
        check(&[adopted(50), part(3, 1, (14, 15))], &policy(), None);
        let patch = PartInfo { patch_of: 3, ..adopted(301) };
        check(&[patch, part(3, 1, (12, 13))], &policy(), Some((MergeReason::CompactL0, &[2, 3])));
    }

    #[test]
    fn the_fourth_patch_is_merged() {
        let base = PartInfo { bytes: 100, ..part(1, 2, (0, 4)) };
        let patches = |bytes| (2..=5).map(|id| patch(id, 1, (0, 4), bytes)).collect::<Vec<_>>();
        check(&[&[base][..], &patches(50)[..3]].concat(), &policy(), None);
        check(&[&[base][..], &patches(50)].concat(), &policy(), Some((MergeReason::MergePatches, &[1, 2, 3, 4, 5])));
        check(&[&[base][..], &patches(6)].concat(), &policy(), Some((MergeReason::JoinPatches, &[2, 3, 4, 5])));
        let fast = [part(1, 1, (996, 997)), part(9, 0, (999, 1000))];
        let of_fast: Vec<PartInfo> = (2..=5).map(|id| PartInfo { level: 1, ..patch(id, 1, (996, 997), 50) }).collect();
        check(&[&fast[..], &of_fast].concat(), &policy(), Some((MergeReason::MergePatches, &[1, 2, 3, 4, 5])));
    }

    #[test]
    fn fewer_patches_are_merged_at_last() {
        let base = PartInfo { bytes: 100, ..part(1, 2, (0, 4)) };
        let one = [base, patch(2, 1, (0, 4), 1)];
        check(&one, &policy(), None);
        check_when(Urgency::Idle, &one, &policy(), Some((MergeReason::MergePatches, &[1, 2])));
        check_when(Urgency::Idle, &[base], &policy(), None);
        // A part that was lost keeps others' patches from nothing.
        let lost = [patch(2, 0xbad, (8, 12), 1), base, patch(3, 1, (0, 4), 1)];
        check_when(Urgency::Idle, &lost, &policy(), Some((MergeReason::MergePatches, &[1, 3])));
    }

    #[test]
    fn small_neighbours_are_joined_when_their_time_is_over() {
        let old = [part(1, 2, (0, 4)), part(2, 2, (4, 8)), part(3, 1, (99, 100)), patch(4, 2, (4, 8), 10)];
        check(&old, &policy(), Some((MergeReason::Join, &[1, 2, 4])));
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
        check(&[folded, part(2, 2, (894, 898))], &policy, Some((MergeReason::Fold, &[2])));
        let parts = [part(1, 2, (0, 4)), part(2, 0, (990, 991))];
        assert_eq!(expired(&parts, 990 * HOUR), BTreeSet::from([1]));
        assert_eq!(expired(&parts, i64::MIN), BTreeSet::new());
    }
}
