//! Rows that come for time that is folded: a fold cannot tell whether it has them already, so they are refused, never counted twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use index::{DatabaseId, GroupId, RoaringBitmap};
use model::{Batch, RejectionKind, TimeRange};

use crate::head::sealed::Sealed;
use crate::head::shard::Shard;
use crate::log::record::{RowBlock, ShardRows};
use crate::part::Part;
use crate::write::Rejected;
use crate::write::resolve::Route;
use crate::{Store, StoreError};

/// How the reason begins for which rows are rejected that come for folded time.
pub const FOLDED_TIME: &str = "points in folded time";

impl Store {
    /// Rejects the rows of a batch that come for folded time.
    pub(crate) fn reject_sealed(
        &self,
        database: DatabaseId,
        batch: &Batch<'_>,
        route: &mut Route,
    ) -> Result<(), StoreError> {
        let closed_before_ns = self.retention.folding.closed_before_ns(database);
        let until_ns = self.shards.iter().map(|shard| shard.sealed_until_ns.load(Ordering::Acquire)).max();
        let until_ns = until_ns.unwrap_or(i64::MIN).max(closed_before_ns.saturating_sub(1));
        let mut unfolded: Vec<Option<RoaringBitmap>> = vec![None; self.shards.len()];
        for (block, block_route) in batch.blocks.iter().zip(&mut route.blocks) {
            for (row, target) in block_route.targets.iter_mut().enumerate() {
                let (Some(found), Some(timestamp_ns)) = (*target, block.timestamps_ns.get(row)) else { continue };
                let is_closed =
                    || *timestamp_ns < closed_before_ns || self.is_sealed(found.shard, found.group, *timestamp_ns);
                if *timestamp_ns > until_ns || !is_closed() {
                    continue;
                }
                if let (Some(known), Some(shard)) = (unfolded.get_mut(found.shard), self.shards.get(found.shard)) {
                    let groups = known.take().map_or_else(|| self.unfolded_groups(shard), Ok)?;
                    if known.insert(groups).contains(found.group) {
                        continue;
                    }
                }
                *target = None;
                if route.rejected.len() < self.options.rejections_max {
                    let line = block.lines.get(row).copied().unwrap_or_default();
                    let reason = folded_reason(*timestamp_ns, closed_before_ns);
                    route.rejected.push(Rejected { line, kind: RejectionKind::Folded, reason });
                }
            }
        }
        Ok(())
    }

    /// Leaves out the rows that come for folded time, and counts them.
    pub(crate) fn leave_out_sealed(&self, rows: &mut ShardRows) -> Result<u64, StoreError> {
        let Some(shard) = self.shards.get(rows.shard) else { return Ok(0) };
        let closed = self.retention.folding.closed();
        let until_ns = shard.sealed_until_ns.load(Ordering::Acquire);
        let until_ns = closed.values().map(|closed_ns| closed_ns.saturating_sub(1)).fold(until_ns, i64::max);
        let is_late = |block: &RowBlock| block.timestamps_ns.iter().any(|timestamp_ns| *timestamp_ns <= until_ns);
        if !rows.blocks.iter().any(is_late) {
            return Ok(0);
        }
        let unfolded = self.unfolded_groups(shard)?;
        let mut left_out = 0;
        for block in rows.blocks.iter_mut().filter(|block| is_late(block)) {
            let mut closed_of_groups: BTreeMap<GroupId, i64> = BTreeMap::new();
            for group in block.groups.iter().filter(|_| !closed.is_empty()) {
                if !closed_of_groups.contains_key(group) {
                    let place = shard.groups.read().groups.family(*group);
                    let place = place.map_err(StoreError::index(&self.options.directory))?;
                    let closed_ns = place.and_then(|(database, _)| closed.get(&database).copied());
                    closed_of_groups.insert(*group, closed_ns.unwrap_or(i64::MIN));
                }
            }
            let before = block.rows();
            let state = shard.state.lock();
            block.retain_rows(|group, timestamp_ns| {
                let is_closed = || closed_of_groups.get(&group).is_some_and(|closed_ns| timestamp_ns < *closed_ns);
                let is_folded = timestamp_ns <= until_ns && (is_closed() || state.is_sealed(group, timestamp_ns));
                !is_folded || unfolded.contains(group)
            });
            left_out += (before - block.rows()) as u64;
        }
        Ok(left_out)
    }

    fn is_sealed(&self, shard: usize, group: GroupId, timestamp_ns: i64) -> bool {
        let shard = self.shards.get(shard);
        shard.is_some_and(|shard| shard.state.lock().is_sealed(group, timestamp_ns))
    }

    /// Seals what a fold takes: from now on no rows come for it. Returns whether parts have all that came before; what heads have is
    /// flushed. `work` of the shard is held.
    pub(crate) fn seal(&self, shard: &Shard, class: u32, inputs: &[Arc<Part>]) -> Result<bool, StoreError> {
        let range = inputs.iter().map(|part| part.info.partition).fold(TimeRange::EMPTY, TimeRange::union);
        let groups = inputs.iter().fold(RoaringBitmap::new(), |groups, part| groups | &part.groups);
        let has_head_rows = {
            let mut state = shard.state.lock();
            state.sealed.retain(|sealed| sealed.range != range);
            state.sealed.push(Sealed { class, range, groups: groups.clone() });
            shard.sealed_until_ns.fetch_max(range.end_ns, Ordering::AcqRel);
            // Rows that were on their way come through the check again.
            self.ingestor.look_again();
            !state.head.is_empty() || state.frozen.is_some()
        };
        if has_head_rows {
            self.flush(shard)?;
        }
        let (parts, _) = shard.parts_and_deletes();
        let is_input = |part: &Part| inputs.iter().any(|input| input.info.id == part.info.id);
        // Data of an earlier policy is read beside that of the present one, and not folded with it.
        let is_of_class = |part: &Part| part.info.class == class;
        let has_share = |part: &Arc<Part>| {
            is_of_class(part)
                && !is_input(part)
                && part.info.range.overlaps(&range)
                && !part.groups.is_disjoint(&groups)
        };
        Ok(!parts.iter().any(has_share))
    }
}

/// Why a row is rejected; where rows from before a time are refused the reason names it.
fn folded_reason(timestamp_ns: i64, closed_before_ns: i64) -> String {
    if timestamp_ns < closed_before_ns {
        return format!(
            "{FOLDED_TIME}: the samples before {closed_before_ns} ns are folded to summaries, or about to be, and views that are made of them \
             are closed; nothing can be added at {timestamp_ns} ns"
        );
    }
    format!(
        "{FOLDED_TIME}: the samples around {timestamp_ns} ns are folded to summaries, which cannot tell whether they hold this one; nothing can be \
         added there"
    )
}

/// Ends a seal: parts show that what these had is folded.
pub(crate) fn unseal(shard: &Shard, inputs: &[Arc<Part>]) {
    let range = inputs.iter().map(|part| part.info.partition).fold(TimeRange::EMPTY, TimeRange::union);
    shard.state.lock().sealed.retain(|sealed| sealed.range != range);
}
