//! Durable, ordered time series on fast disk. Synchronous; owns no threads: its embedder calls [`Store::maintain`].
//!
//! The rooms, in the order in which a sample passes through them:
//!
//! * [`write`]: a request becomes rows: admission, keys and names, rows that are too old or come for folded time, producers, exemplars, tokens
//! * [`log`]: the request as one record of the write-ahead log; its cursors, for readers of what is written
//! * [`head`]: the newest rows of each shard, in memory
//! * [`flush`]: a full head becomes parts; new groups become segments of the index
//! * [`part`]: immutable files of chunks and summaries
//! * [`part::epochs`]: regular databases, whose series all have values at the same moments; they pass by the log
//! * [`compaction`]: which parts to merge next, merging them, and how fast
//! * [`retention`]: policies, deletes, the trash, and the clock that they go by
//! * [`journal`]: what changed in the past, for caches of results
//! * [`manifest`]: which files exist
//! * [`tier`]: parts in the object store, and the cache of their blocks on flash
//! * [`read`]: selecting groups, reading their rows, windows of summaries, last rows
//! * [`cache`]: caches in memory
//! * [`memory`]: how much of it everything may take
//! * [`upkeep`]: opening, checks, repairs, backups, health, figures; entries for fuzzers
//! * [`error`]: what can go wrong

mod cache;
mod compaction;
mod error;
mod flush;
mod head;
mod journal;
mod log;
mod manifest;
mod memory;
mod part;
mod read;
mod retention;
pub mod tier;
mod upkeep;
mod write;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use index::{Catalog, CatalogEntry};
use platform::{Files, Platform};
use tracing_mutex::parkinglot::{Mutex, RwLock};

pub use cache::selections::{GroupTexts, TableGroups};
pub use compaction::MergeReason;
pub use error::StoreError;
pub use journal::{Change, ChangeKind, Changes, Journal, JournalGap};
pub use log::cursor::{
    CursorStats, LogBatch, LogCursor, LogGap, LogLease, LogRead, LogRecord, LogSample, LogSeries, LogValue,
};
pub use log::listeners::CommitListener;
pub use log::reader::Finding;
pub use log::writer::LogStats;
pub use memory::{Memory, MemoryPool, MemoryUse, TenantMemory};
pub use model::{EpochColumn, EpochNames};
pub use part::epochs::definition::{EpochKind, EpochValue, RegularDefinition};
pub use part::epochs::read::{EpochCell, EpochRow, EpochRows, NameRows, NameValidity, NamesRead};
pub use part::epochs::scan::EpochSlots;
pub use part::epochs::top::TopBy;
pub use part::epochs::write::{EpochBatch, EpochWritten};
pub use read::end_rows::{End, EndRows};
pub use read::folds::attach_folds;
pub use read::head_rows::HeadRows;
pub use read::last_rows::BatchLastRows;
pub use read::last_samples::LastSample;
pub use read::milliseconds::to_milliseconds;
pub use read::names::{NameKind, NamesRequest};
pub use read::origins::{Origin, Origins};
pub use read::select::{SelectedColumn, SelectedGroup};
pub use read::table_rows::TableRows;
pub use read::tables::{KnownTable, MetricField, TableSchema, TableSelection};
pub use read::windows::{ReadCounts, WindowColumn, Windows};
pub use read::{ByMillisecond, GroupReader};
pub use retention::Deleted;
pub use retention::expiry_guard::{ExpiryGuard, Going};
pub use retention::policy::DatabasePolicy;
pub use retention::table_layout::TableLayout;
pub use retention::trash::{RestoredTrash, TrashReport, restore_trash, trash_of};
pub use tier::parts::ObjectTierOptions;
pub use upkeep::backup::{
    BackupReport, CopyReport, PruneReport, RebuildReport, RestoreReport, backups, copy_folder, prune, rebuild, restore,
};
pub use upkeep::check::{CheckReport, check};
pub use upkeep::compact::CompactReport;
pub use upkeep::damage::Damage;
pub use upkeep::documents::DOCUMENT_BYTES_MAX;
#[doc(hidden)]
pub use upkeep::fuzzing;
pub use upkeep::health::{CheckStatus, Health, HealthCheck, Loss};
pub use upkeep::inspect::{FileSizes, FolderReport, PartitionReport, PolicyReport, inspect};
pub use upkeep::lost_found::{LostFile, lost_found};
pub use upkeep::options::StoreOptions;
pub use upkeep::progress::{OpeningProgress, Progress};
pub use upkeep::recover::Recovery;
pub use upkeep::repair::{RepairReport, repair};
pub use upkeep::stats::{LevelStats, MergeCounts, Stats};
pub use write::admission::SeriesGate;
pub use write::beyond_retention::BEYOND_RETENTION;
pub use write::producers::Sent;
pub use write::sealed::FOLDED_TIME;
pub use write::tokens::{Appended, Appender, DatabaseCheck, GroupLayout, GroupsToRegister, Token};
pub use write::{Rejected, WriteReport};

use head::shard::Shard;
use log::WriteAheadLog;
use manifest::{Edit, Manifest};
use part::{MadeAt, Part, PartData, PartInfo, PartLabel};
use tier::parts::ObjectTier;
use upkeep::stats::Counters;

/// An open data folder. Shared by all threads that read and write.
pub struct Store {
    platform: Platform,
    options: StoreOptions,
    catalog: RwLock<CatalogState>,
    log: Box<dyn WriteAheadLog>,
    cursors: log::cursor::Cursors,
    shards: Vec<Shard>,
    /// Databases whose series have their values at the same moments.
    regular: RwLock<part::epochs::open::Databases>,
    manifest: Mutex<Manifest>,
    /// Held during a flush: one shard at a time.
    flushing: Mutex<()>,
    throttle: compaction::throttle::Throttle,
    counters: Counters,
    journal: Journal,
    ingestor: write::Ingestor,
    retention: retention::Retention,
    caches: cache::Caches,
    memory: Memory,
    /// Where parts of level 2 go, if not into the data folder.
    object_tier: Option<ObjectTier>,
    upkeep: upkeep::Upkeep,
    /// Of an opening for reading only: how far it read the manifest, from where the next one goes on.
    manifest_tail: Option<manifest::tail::ManifestTail>,
    /// Keeps other processes out; released when the store is dropped.
    _lock: Box<dyn Send + Sync>,
}

/// The folder's catalog.
#[derive(Default)]
pub(crate) struct CatalogState {
    pub(crate) catalog: Catalog,
    /// Smallest sequence id of a catalog record whose entries no segment holds yet.
    pub(crate) unsaved_since: Option<u64>,
    /// Entries that the log does not hold yet, because the disk was full.
    pub(crate) unlogged: Vec<CatalogEntry>,
}

impl Store {
    /// What opening the folder found.
    pub fn recovery(&self) -> &Recovery {
        self.upkeep.recovery()
    }

    /// The checks that fail at present, damage and losses.
    pub fn health(&self) -> &Arc<Health> {
        self.upkeep.health()
    }

    /// Identifies the folder's making: numbers handed out under another incarnation mean nothing here.
    pub fn incarnation(&self) -> u64 {
        self.manifest.lock().state.incarnation
    }

    /// The file with this number.
    fn part_path(&self, file: u64) -> PathBuf {
        part_path(&self.options.directory, file)
    }

    /// What a part that is about to be written says of itself. Edits are those that will be committed with it.
    pub(crate) fn label(&self, info: PartInfo, replaces: &[u64], edits: &[Edit]) -> PartLabel {
        let manifest = self.manifest.lock();
        let state = &manifest.state;
        let made_at = MadeAt { incarnation: state.incarnation, epoch: state.epoch, edition: state.edition };
        // Once a file.
        let folder = if info.id == info.file { manifest::folder_label(state, edits) } else { Vec::new() };
        PartLabel { made_at, info, replaces: replaces.to_vec(), folder }
    }

    fn open_part(&self, info: PartInfo) -> Result<Arc<Part>, StoreError> {
        open_part(&*self.platform.files, &self.options.directory, self.object_tier.as_ref(), self.upkeep.health(), info)
    }

    /// A part is gone, or its local file was replaced by a whole one: damage to it does not stand any more.
    fn forget_damage(&self, info: &PartInfo) {
        let file = self.part_path(info.file).display().to_string();
        let health = self.upkeep.health();
        health.repaired(&file, info.offset..info.offset.saturating_add(info.bytes).saturating_add(1));
        if let Some(object_tier) = &self.object_tier {
            health.repaired(&object_tier.part_key(info.id), 0..u64::MAX);
        }
    }

    fn sync_folder(&self, name: &str) -> Result<(), StoreError> {
        let path = self.options.directory.join(name);
        self.platform.files.sync_directory(&path).map_err(StoreError::io("sync folder", &path))
    }

    /// Removes a file that nothing names any more. If that fails, the next opening does it.
    fn remove_file(&self, path: &Path) {
        if self.platform.files.remove(path).is_err() {
            self.counters.removals_failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn open_part(
    files: &dyn Files,
    directory: &Path,
    object_tier: Option<&ObjectTier>,
    health: &Arc<Health>,
    info: PartInfo,
) -> Result<Arc<Part>, StoreError> {
    let data = match object_tier {
        Some(object_tier) if !info.locations.local => object_tier.open_part(files, directory, &info)?,
        _ => PartData::open_local(files, part_path(directory, info.file), &info)?,
    };
    Part::open(data.reported_to(health), info).map(Arc::new)
}

fn part_path(directory: &Path, file: u64) -> PathBuf {
    directory.join("parts").join(format!("{file:010}.part"))
}
