//! Durable, ordered time series on fast disk. Synchronous; owns no threads: its embedder calls [`Store::maintain`].
//!
//! The rooms, in the order in which a sample passes through them:
//!
//! * [`write`]: a request becomes rows: admission, keys and names, rows that are too old, producers, exemplars, tokens
//! * [`log`]: the request as one record of the write-ahead log
//! * [`head`]: the newest rows of each shard, in memory
//! * [`flush`]: a full head becomes parts; new groups become segments of the index
//! * [`part`]: immutable files of chunks and summaries
//! * [`compaction`]: which parts to merge next, merging them, and how fast
//! * [`retention`]: policies, deletes, the trash, and the clock that they go by
//! * [`journal`]: what changed in the past, for caches of results
//! * [`manifest`]: which files exist
//! * [`tier`]: parts in the object store, and the cache of their blocks on flash
//! * [`read`]: selecting groups, reading their rows, windows of summaries, last rows
//! * [`cache`]: caches in memory
//! * [`memory`]: how much of it everything may take
//! * [`upkeep`]: opening, checks, repairs, backups, health, figures
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

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use index::{Catalog, CatalogEntry, DatabaseId};
use platform::{Files, Platform};
use tracing_mutex::parkinglot::{Mutex, RwLock};

pub use cache::selections::{GroupTexts, TableGroups};
pub use compaction::MergeReason;
pub use error::StoreError;
pub use journal::file::fuzz_journal;
pub use journal::{Change, ChangeKind, Changes, JournalGap};
pub use log::reader::Finding;
pub use log::writer::LogStats;
pub use manifest::fuzz_manifest;
pub use memory::{MemoryPool, MemoryUse};
pub use part::{fuzz_part, fuzz_part_file};
pub use read::end_rows::{End, EndRows};
pub use read::head_rows::HeadRows;
pub use read::last_rows::BatchLastRows;
pub use read::milliseconds::to_milliseconds;
pub use read::origins::{Origin, Origins};
pub use read::select::{SelectedColumn, SelectedGroup};
pub use read::table_rows::TableRows;
pub use read::tables::TableSchema;
pub use read::windows::{ReadCounts, WindowColumn, Windows};
pub use read::{ByMillisecond, GroupReader};
pub use retention::Deleted;
pub use retention::policy::DatabasePolicy;
pub use retention::trash::{RestoredTrash, TrashReport, restore_trash, trash_of};
pub use tier::fuzz_flash_table;
pub use tier::parts::ObjectTierOptions;
pub use upkeep::backup::{
    BackupReport, PruneReport, RebuildReport, RestoreReport, backups, fuzz_backup, prune, rebuild, restore,
};
pub use upkeep::check::{CheckReport, Damage, check};
pub use upkeep::compact::CompactReport;
pub use upkeep::health::{CheckStatus, Health, HealthCheck, Loss};
pub use upkeep::inspect::{FileSizes, FolderReport, PartitionReport, PolicyReport, inspect};
pub use upkeep::lost_found::{LostFile, lost_found};
pub use upkeep::options::StoreOptions;
pub use upkeep::progress::Progress;
pub use upkeep::recover::Recovery;
pub use upkeep::repair::{RepairReport, repair};
pub use upkeep::stats::{LevelStats, MergeCounts, Stats};
pub use write::beyond_retention::BEYOND_RETENTION;
pub use write::producers::{Sent, fuzz_producers};
pub use write::tokens::{Appended, Appender, GroupLayout, Token};
pub use write::{Rejected, WriteReport};

use cache::last_rows::LastRowsCache;
use cache::selections::SelectionCache;
use head::shard::Shard;
use journal::Journal;
use log::WriteAheadLog;
use manifest::{Edit, Manifest};
use part::{IndexBlockCache, MadeAt, Part, PartData, PartInfo, PartLabel};
use retention::trusted_time::TrustedTime;
use tier::parts::ObjectTier;
use upkeep::stats::Counters;
use write::admission::Admission;
use write::exemplars::Exemplars;
use write::keys::Keys;
use write::producers::Producers;

/// An open data folder. Shared by all threads that read and write.
pub struct Store {
    platform: Platform,
    options: StoreOptions,
    catalog: RwLock<CatalogState>,
    keys: Keys,
    log: Box<dyn WriteAheadLog>,
    shards: Vec<Shard>,
    manifest: Mutex<Manifest>,
    /// Held during a flush: one shard at a time.
    flushing: Mutex<()>,
    pressure: write::pressure::Pressure,
    throttle: compaction::throttle::Throttle,
    counters: Counters,
    /// True if there are entries that the log does not hold yet.
    unlogged: AtomicBool,
    journal: Journal,
    journal_file: Mutex<journal::file::JournalFile>,
    buffers: write::buffer_pool::BufferPool,
    /// Length of partitions on the fast tier, in nanoseconds.
    fast_partition_length_ns: AtomicI64,
    /// As in the manifest.
    policies: RwLock<BTreeMap<DatabaseId, DatabasePolicy>>,
    /// Bytes that all heads may take at present.
    heads_bytes: AtomicU64,
    memory_pools: memory::MemoryPools,
    /// Index blocks and last rows of chunks that readers decoded.
    index_blocks: Arc<IndexBlockCache>,
    last_rows: Arc<LastRowsCache>,
    /// Groups that matchers selected of tables.
    selections: SelectionCache,
    /// Bytes of answers that are kept of its data.
    results_bytes: AtomicU64,
    /// Bytes that are kept outside of requests that are done with.
    requests_bytes: AtomicU64,
    /// True if more is held than may be, as the accountant saw it last.
    memory_is_short: AtomicBool,
    admission: Admission,
    /// Why new series are refused at present, if they are.
    refusal: RwLock<Option<String>>,
    /// Where parts settle, if not in the data folder.
    object_tier: Option<ObjectTier>,
    /// Exemplars, and since when series count.
    exemplars: Mutex<Exemplars>,
    /// Who sent what last.
    producers: Mutex<Producers>,
    recovery: Recovery,
    /// What is wrong at present, for operators.
    health: Arc<Health>,
    index_twins: Arc<flush::index_copies::IndexTwins>,
    scrub: upkeep::scrub::Scrub,
    reserve: upkeep::reserve::Reserve,
    /// The time that retention goes by.
    trusted_time: TrustedTime,
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
        &self.recovery
    }

    /// What is wrong at present.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Identifies the folder's making: numbers handed out under another incarnation mean nothing here.
    pub fn incarnation(&self) -> u64 {
        self.manifest.lock().state.incarnation
    }

    /// Does what is due of flushing, merging and uploading; to be called again at once while it returns `true`, else now and
    /// then. A caller with threads calls its three parts in one thread each, so that none waits for another.
    pub fn maintain(&self) -> Result<bool, StoreError> {
        self.maintain_all(false)
    }

    /// As [`Store::maintain`]; `is_forced` also what would wait for more rows.
    pub(crate) fn maintain_all(&self, is_forced: bool) -> Result<bool, StoreError> {
        let worked = self.maintain_heads()?;
        let worked = self.merge_parts(is_forced)? || worked;
        Ok(self.maintain_objects()? || worked)
    }

    /// Makes room in memory and in the log.
    pub fn maintain_heads(&self) -> Result<bool, StoreError> {
        self.observe_time();
        self.account();
        self.fill_reserve();
        let mut worked = self.flush_due()?;
        // Behind the flush, which may be what makes room for it.
        self.log.prepare()?;
        for shard in &self.shards {
            worked |= self.freeze_groups_if_due(shard)?;
        }
        Ok(worked)
    }

    /// Merges parts and index segments, drops what is past keeping.
    pub fn maintain_parts(&self) -> Result<bool, StoreError> {
        self.merge_parts(false)
    }

    pub(crate) fn merge_parts(&self, is_forced: bool) -> Result<bool, StoreError> {
        self.observe_time();
        let mut worked = self.with_reserve(|| Ok(self.drop_expired()? | self.empty_trash()?))?;
        self.save_time_if_due()?;
        for shard in &self.shards {
            worked |= self.merge_if_due(shard, is_forced)?;
            worked |= self.merge_groups_if_due(shard)?;
        }
        self.fit_partitions()?;
        // After the merges: a full disk, on which no copy can be written, must not keep them from giving room back.
        worked |= self.repair_index()?;
        Ok(worked)
    }

    /// Flushes the fullest head if it is over its share of the budget, and the oldest if the log is over its.
    fn flush_due(&self) -> Result<bool, StoreError> {
        let head_bytes = |shard: &Shard| shard.state.lock().head.bytes();
        if let Some(fullest) = self.shards.iter().max_by_key(|shard| head_bytes(shard))
            && head_bytes(fullest) > self.head_bytes_max()
        {
            self.flush(fullest)?;
            return Ok(true);
        }
        if self.log.stats().bytes <= self.options.log_bytes_max {
            return Ok(false);
        }
        let oldest =
            self.shards.iter().filter_map(|shard| Some((shard.first_needed()?, shard))).min_by_key(|old| old.0);
        match oldest {
            Some((_, shard)) => self.flush(shard).map(|_| true),
            None => Ok(false),
        }
    }

    /// Flushes everything, so that the next opening has no log to read.
    pub fn flush_all(&self) -> Result<(), StoreError> {
        self.shards.iter().try_for_each(|shard| self.flush(shard).map(|_| ()))?;
        // Nothing may come any more, and nothing later would tell damage to the last record from a torn one.
        self.log.commit(self.log.last_sequence())?;
        self.log.note()
    }

    /// Lifts the rate limit of merges for good: the store is about to be closed, and its caller waits for the merge under way.
    pub fn hurry_for_good(&self) {
        self.throttle.lift();
    }

    /// Flushes and merges everything there is to merge.
    pub fn compact_all(&self) -> Result<(), StoreError> {
        let _hurry = self.throttle.hurry();
        self.flush_all()?;
        while self.maintain_all(true)? {}
        Ok(())
    }

    /// Bytes of one shard's head at which it is flushed.
    fn head_bytes_max(&self) -> usize {
        self.heads_bytes.load(Ordering::Relaxed) as usize / self.shards.len().max(1)
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
        open_part(&*self.platform.files, &self.options.directory, self.object_tier.as_ref(), &self.health, info)
    }

    fn sync_folder(&self, name: &str) -> Result<(), StoreError> {
        let path = self.options.directory.join(name);
        self.platform.files.sync_directory(&path).map_err(StoreError::io("sync folder", &path))
    }

    /// After a failed commit it is unknown what the manifest on disk says: nothing more is written.
    fn commit_edits(&self, edits: &[Edit]) -> Result<(), StoreError> {
        self.log.check()?;
        let mut manifest = self.manifest.lock();
        // A full disk is found out before anything of the edits is written.
        manifest.reserve(edits).inspect_err(|_| self.remove_added(edits))?;
        let committed = manifest.commit(edits);
        committed.inspect_err(|error| self.log.poison(&error.to_string()))?;
        let shortened = manifest.shorten(&*self.platform.files);
        match shortened {
            // Until the new one has the old one's name the old one counts: the next edit tries again.
            Err(StoreError::Io { error, .. }) if error.kind() == std::io::ErrorKind::StorageFull => Ok(()),
            Err(error) => {
                self.log.poison(&error.to_string());
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    /// Fails if nothing may be written until the folder is opened again.
    pub fn check_writable(&self) -> Result<(), StoreError> {
        self.log.check()
    }

    /// Forgets the losses that answers warn of: an operator has seen them. The object store is used again. How many there were.
    pub fn acknowledge_losses(&self) -> Result<usize, StoreError> {
        let losses = self.health.losses();
        if !losses.is_empty() {
            self.commit_edits(&[Edit::ForgetLosses])?;
            self.health.set_losses(Vec::new());
        }
        Ok(losses.len())
    }

    /// Removes the files that edits which cannot be committed would have named: on a full disk they would only take room.
    fn remove_added(&self, edits: &[Edit]) {
        for edit in edits {
            match edit {
                Edit::AddPart(info) if info.id == info.file => self.remove_file(&self.part_path(info.file)),
                Edit::AddSegment { id, .. } => {
                    self.remove_segment(*id);
                }
                _ => {}
            }
        }
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

/// Reads bytes as the payload of a log record: the entry for fuzzing.
pub fn fuzz_log_record(kind: u8, payload: &[u8]) {
    let _ = log::record::decode(kind, payload);
}

/// Reads bytes as a log segment: the entry for fuzzing.
pub fn fuzz_log_segment(bytes: &[u8]) {
    let mut scan = log::reader::Scan::new(log::reader::ScanStart::default());
    let segment = log::reader::SegmentBytes { number: 1, path: Path::new("1.log"), bytes, end: None };
    let _ = scan.segment(&segment, |frame| {
        fuzz_log_record(frame.kind, frame.payload);
        Ok::<(), ()>(())
    });
}
