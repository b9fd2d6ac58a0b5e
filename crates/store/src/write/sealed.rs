//! Rows that come for time that is folded: a fold cannot tell whether it has them already, so they are refused, never counted twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use index::{GroupId, RoaringBitmap};
use model::{Batch, RejectionKind, TimeRange};

use crate::head::sealed::Sealed;
use crate::head::shard::Shard;
use crate::log::record::ShardRows;
use crate::part::Part;
use crate::write::Rejected;
use crate::write::resolve::Route;
use crate::{Store, StoreError};

/// How the reason begins for which rows are rejected that come for folded time.
pub const FOLDED_TIME: &str = "points in folded time";

impl Store {
    /// Rejects the rows of a batch that come for folded time.
    pub(crate) fn reject_sealed(&self, batch: &Batch<'_>, route: &mut Route) {
        let until_ns = self.shards.iter().map(|shard| shard.sealed_until_ns.load(Ordering::Acquire)).max();
        let until_ns = until_ns.unwrap_or(i64::MIN);
        for (block, block_route) in batch.blocks.iter().zip(&mut route.blocks) {
            for (row, target) in block_route.targets.iter_mut().enumerate() {
                let (Some(found), Some(timestamp_ns)) = (*target, block.timestamps_ns.get(row)) else { continue };
                if *timestamp_ns > until_ns || !self.is_sealed(found.shard, found.group, *timestamp_ns) {
                    continue;
                }
                *target = None;
                if route.rejected.len() < self.options.rejections_max {
                    let reason = format!(
                        "{FOLDED_TIME}: the samples around {timestamp_ns} ns are folded to summaries, which cannot tell whether \
                         they hold this one; nothing can be added there"
                    );
                    let line = block.lines.get(row).copied().unwrap_or_default();
                    route.rejected.push(Rejected { line, kind: RejectionKind::Folded, reason });
                }
            }
        }
    }

    /// Leaves out the rows that come for folded time, and counts them.
    pub(crate) fn leave_out_sealed(&self, rows: &mut ShardRows) -> u64 {
        let Some(shard) = self.shards.get(rows.shard) else { return 0 };
        let until_ns = shard.sealed_until_ns.load(Ordering::Acquire);
        let mut left_out = 0;
        for block in &mut rows.blocks {
            if block.timestamps_ns.iter().all(|timestamp_ns| *timestamp_ns > until_ns) {
                continue;
            }
            let before = block.rows();
            let state = shard.state.lock();
            block.retain_rows(|group, timestamp_ns| timestamp_ns > until_ns || !state.is_sealed(group, timestamp_ns));
            left_out += (before - block.rows()) as u64;
        }
        left_out
    }

    fn is_sealed(&self, shard: usize, group: GroupId, timestamp_ns: i64) -> bool {
        let shard = self.shards.get(shard);
        shard.is_some_and(|shard| shard.state.lock().is_sealed(group, timestamp_ns))
    }

    /// Seals what a fold takes: from now on no rows come for it. Returns whether parts have all that came before; what heads have is
    /// flushed. `work` of the shard is held.
    pub(crate) fn seal(&self, shard: &Shard, inputs: &[Arc<Part>]) -> Result<bool, StoreError> {
        let range = inputs.iter().map(|part| part.info.partition).fold(TimeRange::EMPTY, TimeRange::union);
        let groups = inputs.iter().fold(RoaringBitmap::new(), |groups, part| groups | &part.groups);
        let has_head_rows = {
            let mut state = shard.state.lock();
            state.sealed.retain(|sealed| sealed.range != range);
            state.sealed.push(Sealed { range, groups: groups.clone() });
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
        let is_of_class = |part: &Part| inputs.iter().any(|input| input.info.class == part.info.class);
        let has_share = |part: &Arc<Part>| {
            is_of_class(part)
                && !is_input(part)
                && part.info.range.overlaps(&range)
                && !part.groups.is_disjoint(&groups)
        };
        Ok(!parts.iter().any(has_share))
    }
}

/// Ends a seal: parts show that what these had is folded.
pub(crate) fn unseal(shard: &Shard, inputs: &[Arc<Part>]) {
    let range = inputs.iter().map(|part| part.info.partition).fold(TimeRange::EMPTY, TimeRange::union);
    shard.state.lock().sealed.retain(|sealed| sealed.range != range);
}
