//! Rows that are older than their database keeps when they are written: reported, never accepted and lost.

use std::collections::HashMap;

use model::{Batch, Block, RejectionKind};

use crate::log::record::ShardRows;
use crate::write::Rejected;
use crate::write::admission::SeriesTarget;
use crate::write::resolve::{BlockRoute, Route};
use crate::{Store, StoreError};

/// How the reason begins for which rows are rejected that retention would take at once; clients of `InfluxDB` look for the words.
pub const BEYOND_RETENTION: &str = "points beyond retention policy";

/// The items of rows that are kept.
fn retained<T: Copy>(items: &[T], is_kept: &[bool]) -> Vec<T> {
    items.iter().zip(is_kept).filter(|(_, is_kept)| **is_kept).map(|(item, _)| *item).collect()
}

impl Store {
    /// Resolves the rows that the database would still keep, and rejects the others: nothing is registered for them.
    pub(crate) fn resolve_block_with_expired(
        &self,
        (to, oldest_ns): (SeriesTarget<'_>, i64),
        batch: &Batch<'_>,
        block: &Block,
        route: &mut Route,
    ) -> Result<BlockRoute, StoreError> {
        let is_kept: Vec<bool> = block.timestamps_ns.iter().map(|timestamp_ns| *timestamp_ns >= oldest_ns).collect();
        for (line, timestamp_ns) in block.lines.iter().zip(&block.timestamps_ns) {
            if *timestamp_ns < oldest_ns && route.rejected.len() < self.options.rejections_max {
                let reason = format!(
                    "{BEYOND_RETENTION}: the time {timestamp_ns} ns is before {oldest_ns} ns, the oldest that the database keeps"
                );
                route.rejected.push(Rejected { line: *line, kind: RejectionKind::BeyondRetention, reason });
            }
        }
        if !is_kept.contains(&true) {
            return Ok(BlockRoute { columns: None, targets: vec![None; block.rows()] });
        }
        let left = Block {
            measurement: block.measurement.clone(),
            fields: block.fields.clone(),
            keys: retained(&block.keys, &is_kept),
            timestamps_ns: retained(&block.timestamps_ns, &is_kept),
            lines: retained(&block.lines, &is_kept),
            // Not looked at here.
            cells: Vec::new(),
        };
        let resolved = self.resolve_block(to, batch, &left, route)?;
        let mut targets = resolved.targets.into_iter();
        let targets = is_kept.iter().map(|is_kept| if *is_kept { targets.next().flatten() } else { None }).collect();
        Ok(BlockRoute { targets, ..resolved })
    }

    /// Leaves out the rows that their databases keep no more, and counts them.
    pub(crate) fn leave_out_expired(&self, rows: &mut ShardRows) -> Result<u64, StoreError> {
        let oldest = self.oldest_retained_of_all();
        // A row that is not before any of these needs no look at its database.
        let (Some(last_ns), Some(shard)) = (oldest.values().copied().max(), self.shards.get(rows.shard)) else {
            return Ok(0);
        };
        let mut left_out = 0;
        for block in &mut rows.blocks {
            if block.timestamps_ns.iter().all(|timestamp_ns| *timestamp_ns >= last_ns) {
                continue;
            }
            let index = shard.groups.read();
            let mut oldest_of_groups = HashMap::new();
            for (group, timestamp_ns) in block.groups.iter().zip(&block.timestamps_ns) {
                if *timestamp_ns < last_ns && !oldest_of_groups.contains_key(group) {
                    let place = index.groups.family(*group).map_err(StoreError::index(&self.options.directory))?;
                    let oldest_ns = place.and_then(|(database, _)| oldest.get(&database).copied());
                    oldest_of_groups.insert(*group, oldest_ns.unwrap_or(i64::MIN));
                }
            }
            let before = block.rows();
            block.retain_rows(|group, timestamp_ns| {
                oldest_of_groups.get(&group).is_none_or(|oldest_ns| timestamp_ns >= *oldest_ns)
            });
            left_out += (before - block.rows()) as u64;
        }
        Ok(left_out)
    }
}
