//! Settings of a data folder.

use std::path::PathBuf;
use std::sync::Arc;

use crate::tier::parts::ObjectTierOptions;
use crate::upkeep::progress::OpeningProgress;

/// Settings of a data folder; all but the number of shards may change from one opening to the next.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// The data folder; made if it does not exist.
    pub directory: PathBuf,
    /// Shards of a new folder. An existing one keeps its number.
    pub shards: u32,
    /// Bytes that heads, index, keys and caches are to stay within: near it heads are flushed earlier and new series refused.
    pub memory_bytes_max: u64,
    /// Bytes of all heads together at which the fullest is flushed. Writers wait at twice as many.
    pub head_bytes_max: usize,
    /// Bytes of one log segment, in whole blocks of 4 KiB.
    pub log_segment_bytes: usize,
    /// True if the log is written past the system's cache, durable with the same call, where the file system can do that.
    pub log_is_direct: bool,
    /// Bytes of log at which heads are flushed so that segments can be released.
    pub log_bytes_max: u64,
    /// Bytes of log beyond that which are retained for cursors that have not read them.
    pub log_retained_bytes_max: u64,
    /// Length of partitions on the fast tier in a new folder, in nanoseconds: a power of two times half an hour, or a fraction
    /// of it. Adapted to `fast_bytes_max` from there on.
    pub partition_ns: i64,
    /// Bytes of levels 0 and 1 that partitions are made to fit.
    pub fast_bytes_max: u64,
    /// Partitions of level 0; with more the oldest is merged.
    pub level0_partitions_max: usize,
    /// Parts as flushed that one partition may have before they are merged.
    pub level0_parts_max: usize,
    /// Patches of late rows that a part of level 2 may have before they are merged.
    pub patches_max: usize,
    /// Bytes up to which neighbouring parts of level 2 are joined.
    pub join_bytes_max: u64,
    /// Bytes of parts that merges write in a second while no caller waits for them; 0: as many as they can.
    pub merge_bytes_per_second_max: u64,
    /// Rows that a summary stands for on average, at least: fewer cost room, more leave more to decode at windows' edges.
    pub node_rows_min: usize,
    /// Where parts of level 2 go; without it they stay in the data folder.
    pub objects: Option<ObjectTierOptions>,
    /// Changes that the journal keeps for caches of results.
    pub journal_changes_max: usize,
    /// True if they are remembered across restarts.
    pub journal_is_saved: bool,
    /// Raw group keys that are remembered, so that their labels need not be parsed again.
    pub group_keys_max: usize,
    /// Exemplars that are kept, the newest; and series whose start timestamps are.
    pub exemplars_max: usize,
    /// Producers whose last batch is remembered, those who sent something last.
    pub producers_max: usize,
    /// Series that a database may have; 0: any number. What is known already goes on being written.
    pub series_per_database_max: u64,
    /// New series that are let in within one second; 0: any number.
    pub new_series_per_second_max: u64,
    /// Reasons for rejected rows that an answer holds.
    pub rejections_max: usize,
    /// Bytes of the disk that are set apart for opening the folder and for making room on a full disk; 0: none.
    pub reserve_bytes: usize,
    /// In which time everything on the local disk is read once and checked, in milliseconds; 0: never.
    pub scrub_period_ms: u64,
    /// Bytes that this reads in a second, at most.
    pub scrub_bytes_per_second_max: u64,
    /// How far ahead of the time rows may be: data counts as evidence of the time no further than that.
    pub ahead_ms_max: u64,
    /// How long what is past keeping stays in the trash.
    pub trash_age_ms_max: u64,
    /// Bytes of the trash on this machine's disk; what is oldest goes first. When the disk is nearly full it goes earlier.
    pub trash_bytes_max: u64,
    /// True if to go on without rows that are lost; otherwise a folder with losses is not opened.
    pub accept_loss: bool,
    /// Bytes of files in `lost+found`; beyond them those of earlier openings are removed, the oldest first, which is reported. What does
    /// not fit then stays where it is.
    pub lost_found_bytes_max: u64,
    /// Says how far the opening is while it lasts.
    pub progress: Arc<OpeningProgress>,
}

impl StoreOptions {
    /// The defaults, for a folder.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            shards: 2,
            memory_bytes_max: 4 << 30,
            head_bytes_max: 256 << 20,
            log_segment_bytes: 32 << 20,
            log_is_direct: true,
            log_bytes_max: 256 << 20,
            log_retained_bytes_max: 4 << 30,
            partition_ns: 1800 * 1_000_000_000,
            fast_bytes_max: 16 << 30,
            level0_partitions_max: 2,
            level0_parts_max: 8,
            patches_max: 4,
            join_bytes_max: 64 << 20,
            merge_bytes_per_second_max: 0,
            node_rows_min: 1000,
            objects: None,
            journal_changes_max: 4096,
            journal_is_saved: false,
            group_keys_max: 4 << 20,
            exemplars_max: 100_000,
            producers_max: 10_000,
            series_per_database_max: 0,
            new_series_per_second_max: 0,
            rejections_max: 100,
            reserve_bytes: 4 << 20,
            scrub_period_ms: 7 * 86_400_000,
            scrub_bytes_per_second_max: 32 << 20,
            ahead_ms_max: 32 * 86_400_000,
            trash_age_ms_max: 86_400_000,
            trash_bytes_max: u64::MAX,
            accept_loss: false,
            lost_found_bytes_max: 1 << 30,
            progress: Arc::default(),
        }
    }
}
