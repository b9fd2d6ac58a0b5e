//! Caches in memory. What each may take stands in the table in [`crate::memory`].

pub(crate) mod generations;
pub(crate) mod index_blocks;
pub(crate) mod last_rows;
pub(crate) mod number_hash;
pub(crate) mod selections;

use std::sync::Arc;

use index_blocks::IndexBlockCache;
use last_rows::LastRowsCache;
use selections::SelectionCache;

use crate::log::cursor::LogSeriesCache;

/// The caches of an open folder.
pub(crate) struct Caches {
    index_blocks: Arc<IndexBlockCache>,
    last_rows: Arc<LastRowsCache>,
    selections: SelectionCache,
    log_series: LogSeriesCache,
}

impl Caches {
    /// For a store that may take so many bytes.
    pub(crate) fn new(memory_bytes_max: u64) -> Self {
        Self {
            index_blocks: Arc::new(IndexBlockCache::new(memory_bytes_max)),
            last_rows: Arc::new(LastRowsCache::new(memory_bytes_max)),
            selections: SelectionCache::new(memory_bytes_max),
            log_series: LogSeriesCache::new(memory_bytes_max),
        }
    }

    /// Index blocks that readers decoded.
    pub(crate) fn index_blocks(&self) -> &Arc<IndexBlockCache> {
        &self.index_blocks
    }

    /// Last rows of chunks that readers decoded.
    pub(crate) fn last_rows(&self) -> &Arc<LastRowsCache> {
        &self.last_rows
    }

    /// Groups of tables that matchers selected.
    pub(crate) fn selections(&self) -> &SelectionCache {
        &self.selections
    }

    /// Labels of series that cursors of the log read.
    pub(crate) const fn log_series(&self) -> &LogSeriesCache {
        &self.log_series
    }

    /// About as many bytes as they take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let of_reads = self.index_blocks.memory_bytes() + self.last_rows.memory_bytes();
        (of_reads + self.selections.memory_bytes() + self.log_series.memory_bytes()) as u64
    }

    /// Lets go of everything.
    pub(crate) fn clear(&self) {
        self.index_blocks.clear();
        self.last_rows.clear();
        self.selections.clear();
        self.log_series.clear();
    }
}
