//! Settings of a data folder.

use std::path::PathBuf;

/// Settings of a data folder; all but the number of shards may change from one opening to the next.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The data folder; made if it does not exist.
    pub directory: PathBuf,
    /// Shards of a new folder. An existing one keeps its number.
    pub shards: u32,
    /// Bytes of all heads together at which the fullest is flushed. Writers wait at twice as many.
    pub head_bytes_max: usize,
    /// Bytes of one log segment.
    pub log_segment_bytes: usize,
    /// Bytes of log at which heads are flushed so that segments can be released.
    pub log_bytes_max: u64,
    /// Length of a partition of merged parts, in nanoseconds.
    pub partition_ns: i64,
    /// Parts as flushed that a shard may have before they are merged.
    pub level0_parts_max: usize,
    /// Raw group keys that are remembered, so that their labels need not be parsed again.
    pub group_keys_max: usize,
    /// Reasons for rejected rows that an answer holds.
    pub rejections_max: usize,
}

impl StoreOptions {
    /// The defaults, for a folder.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            shards: 2,
            head_bytes_max: 256 << 20,
            log_segment_bytes: 32 << 20,
            log_bytes_max: 256 << 20,
            partition_ns: 2 * 3600 * 1_000_000_000,
            level0_parts_max: 4,
            group_keys_max: 4 << 20,
            rejections_max: 100,
        }
    }
}
