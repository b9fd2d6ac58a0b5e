//! The store's numbers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Store;
use crate::compaction::MergeReason;
use crate::log::writer::LogStats;
use crate::memory::MemoryUse;
use crate::part::PartInfo;
use crate::write::WriteReport;

/// Counters since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) batches: AtomicU64,
    pub(crate) rows: AtomicU64,
    pub(crate) values: AtomicU64,
    pub(crate) rejected_rows: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) merges: AtomicU64,
    pub(crate) removals_failed: AtomicU64,
    /// Damaged parts that were fetched again from the object store.
    pub(crate) parts_fetched_again: AtomicU64,
    /// Bytes of parts that others took the place of.
    pub(crate) bytes_replaced: AtomicU64,
    /// Bytes of parts that were written.
    pub(crate) bytes_written: AtomicU64,
    merges_by_reason: [AtomicU64; MergeReason::ALL.len()],
    /// Chunks that merges copied, and that they encoded.
    pub(crate) merged_chunks: [AtomicU64; 2],
}

/// How many merges there were, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MergeCounts([u64; MergeReason::ALL.len()]);

impl MergeCounts {
    /// The count of each reason.
    pub fn by_reason(&self) -> impl Iterator<Item = (MergeReason, u64)> + use<> {
        MergeReason::ALL.into_iter().zip(self.0)
    }

    /// Adds others.
    pub fn merge(&mut self, others: &Self) {
        self.0.iter_mut().zip(others.0).for_each(|(sum, more)| *sum += more);
    }
}

impl Counters {
    pub(crate) fn merged(&self, reason: MergeReason) {
        self.merges.fetch_add(1, Ordering::Relaxed);
        if let Some(counter) = self.merges_by_reason.get(reason as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn merged_chunks(&self, copied: u64, encoded: u64) {
        self.merged_chunks.iter().zip([copied, encoded]).for_each(|(counter, more)| {
            counter.fetch_add(more, Ordering::Relaxed);
        });
    }

    pub(crate) fn wrote_parts(&self, infos: &[PartInfo]) {
        self.bytes_written.fetch_add(infos.iter().map(|info| info.bytes).sum(), Ordering::Relaxed);
    }

    pub(crate) fn appended(&self, rows: u64, values: u64) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.values.fetch_add(values, Ordering::Relaxed);
    }

    pub(crate) fn wrote(&self, report: &WriteReport) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(report.rows_written, Ordering::Relaxed);
        self.values.fetch_add(report.values_written, Ordering::Relaxed);
        self.rejected_rows.fetch_add(report.rejected_total, Ordering::Relaxed);
    }
}

/// The store's numbers at a moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Batches written since opening.
    pub batches: u64,
    /// Rows written since opening.
    pub rows: u64,
    /// Values written since opening.
    pub values: u64,
    /// Rows rejected since opening.
    pub rejected_rows: u64,
    /// Heads flushed since opening.
    pub flushes: u64,
    /// Merges since opening.
    pub merges: u64,
    /// Files that could not be removed when nothing named them any more.
    pub removals_failed: u64,
    /// Damaged local parts that were fetched again from the object store.
    pub parts_fetched_again: u64,
    /// Groups in all shards.
    pub groups: u64,
    /// Raw group keys that are remembered.
    pub group_keys: u64,
    /// Bytes of the index in memory: groups of all shards, catalog, raw keys. Mapped segments are not in it.
    pub index_bytes: u64,
    /// Bytes of all heads, those being flushed included.
    pub head_bytes: u64,
    /// Rows in all heads, those being flushed included.
    pub head_rows: u64,
    /// The log.
    pub log: LogStats,
    /// Parts by level.
    pub levels: [LevelStats; 3],
    /// Number of shards.
    pub shards: u64,
    /// Merges since opening, by reason.
    pub merges_by_reason: MergeCounts,
    /// Chunks that merges wrote since opening: copied byte for byte, encoded.
    pub merged_chunks: [u64; 2],
    /// Bytes of parts written by flushes and merges since opening.
    pub part_bytes_written: u64,
    /// How long merges have waited because of `merge_bytes_per_second_max`, in nanoseconds.
    pub merges_waited_ns: u64,
    /// Length of partitions on the fast tier, in nanoseconds.
    pub partition_ns: i64,
    /// Bytes in memory, by what holds them.
    pub memory: MemoryUse,
    /// How often new series were refused, by the setting that did.
    pub series_refused: [(&'static str, u64); 3],
    /// True if new series are refused because memory is short.
    pub refuses_new_series: bool,
    /// Jumps of the wall clock since opening.
    pub clock_jumps: u64,
    /// How far the wall clock is ahead of the time that retention goes by, in nanoseconds.
    pub clock_ahead_ns: i64,
    /// Parts that are past keeping and whose files are still there.
    pub trash_parts: u64,
    /// Bytes of those.
    pub trash_bytes: u64,
}

/// Parts of one level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelStats {
    /// How many parts there are.
    pub parts: u64,
    /// Chunks in them.
    pub chunks: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Rows in them.
    pub rows: u64,
}

impl Store {
    /// The store's numbers now.
    pub fn stats(&self) -> Stats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // In statements of their own: a guard within the literal below would live as long as the literal, and a second reader in it
        // waits for ever once a writer stands between the two.
        let catalog_bytes = self.catalog.read().catalog.memory_bytes();
        let memory = self.memory_use();
        let mut stats = Stats {
            batches: count(&self.counters.batches),
            rows: count(&self.counters.rows),
            values: count(&self.counters.values),
            rejected_rows: count(&self.counters.rejected_rows),
            flushes: count(&self.counters.flushes),
            merges: count(&self.counters.merges),
            removals_failed: count(&self.counters.removals_failed),
            parts_fetched_again: count(&self.counters.parts_fetched_again),
            group_keys: self.ingestor.keys_count() as u64,
            index_bytes: catalog_bytes as u64 + self.ingestor.keys_bytes(),
            log: self.log.stats(),
            shards: self.shards.len() as u64,
            merges_by_reason: MergeCounts(self.counters.merges_by_reason.each_ref().map(count)),
            merged_chunks: self.counters.merged_chunks.each_ref().map(count),
            part_bytes_written: count(&self.counters.bytes_written),
            merges_waited_ns: self.throttle.waited_ns(),
            partition_ns: self.lengths().fast_partition_length_ns,
            memory,
            series_refused: self.ingestor.series_refused(),
            refuses_new_series: self.ingestor.refuses_series(),
            clock_jumps: self.clock_jumps(),
            clock_ahead_ns: self.clock_ahead_ns(),
            ..Stats::default()
        };
        for trashed in self.shards.iter().flat_map(|shard| shard.trash.lock().clone()) {
            stats.trash_parts += 1;
            stats.trash_bytes += trashed.part.info.bytes;
        }
        for shard in &self.shards {
            let groups = shard.groups.read();
            stats.groups += groups.groups.len();
            stats.index_bytes += groups.groups.memory_bytes() as u64;
            drop(groups);
            let shard = shard.state.lock();
            for head in shard.frozen.iter().map(|frozen| &frozen.head).chain([&shard.head]) {
                stats.head_bytes += head.bytes() as u64;
                stats.head_rows += head.rows;
            }
            for part in shard.parts.iter() {
                if let Some(level) = stats.levels.get_mut(usize::from(part.info.level)) {
                    level.parts += 1;
                    level.chunks += part.info.chunks;
                    level.bytes += part.info.bytes;
                    level.rows += part.info.rows;
                }
            }
        }
        stats
    }
}
