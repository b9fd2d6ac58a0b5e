//! Everything in one process, without sockets: open a folder, write, query; background work runs in a thread of its own.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use thalweg_db::{Db, DbOptions, InstantQuery};
//!
//! let db = Db::open(platform::Platform::real(), DbOptions::new("./data"))?;
//! db.write_lines("default", b"weather,station=north temperature=11.5")?;
//! let answer = db.instant("default", &InstantQuery::new("weather_temperature", db.now_ns() / 1_000_000))?;
//! # drop(answer);
//! db.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! * `query_api`: PromQL · `sql_api`, `sql_beyond` (DataFusion), `influx_api` (InfluxQL, Flux, plans): the other languages, over a `session` · `explain_api`: what queries do
//! * `log_cursor`: readers of what is written · `names`: lists of series and labels · `write`: writing · `fast_path`: writing by token
//! * `results`: the result cache. Results are kept by steps where each step stands for itself, else whole, and by bins of time; the store's journal says
//!   which still hold (`validity`), flash is behind memory (`flash`, `slab_form`)
//! * `views`: materialised views: definitions and states as documents, the windows that are stored
//! * `worker`: background threads · `disk_health`: the disk and the folder's health · `upkeep`: backups, compaction, policies, deletes

mod disk_health;
mod explain_api;
mod fast_path;
mod influx_api;
mod log_cursor;
mod names;
mod query_api;
mod results;
mod session;
mod sql_api;
#[cfg(feature = "sql-datafusion")]
mod sql_beyond;
mod upkeep;
pub mod views;
mod worker;
mod write;

use std::sync::Arc;

use ingest::{KEY_SECRET_BYTES, KeyHasher};
use platform::{Clock, DiskSpace, Platform, container};
use promql::NameRemoval;
use store::{Store, StoreOptions};

pub use explain_api::Analysis;
pub use index::Cardinality;
pub use query_api::{InstantQuery, RangeQuery};
pub use results::{CacheUse, ResultCacheStats};
pub use store::{
    Appended, Appender, BEYOND_RETENTION, BackupReport, CheckReport, CheckStatus, CommitListener, CompactReport,
    CopyReport, CursorStats, Damage, DatabasePolicy, Deleted, EpochBatch, EpochCell, EpochColumn, EpochKind,
    EpochNames, EpochRow, EpochValue, EpochWritten, FOLDED_TIME, FileSizes, Finding, FolderReport, GroupLayout,
    GroupsToRegister, Health, HealthCheck, KnownTable, LogBatch, LogCursor, LogGap, LogLease, LogRead, LogRecord,
    LogSample, LogSeries, LogValue, Loss, LostFile, MemoryPool, MemoryUse, NameRows, NameValidity, ObjectTierOptions,
    OpeningProgress, PartitionReport, PolicyReport, Progress, PruneReport, ReadCounts, RebuildReport, Recovery,
    RegularDefinition, Rejected, RepairReport, RestoreReport, RestoredTrash, SelectedGroup, Sent, SeriesGate, Stats,
    StoreError, TenantMemory, Token, TopBy, TrashReport, WindowColumn, Windows, WriteReport, backups, check,
    copy_folder, inspect, lost_found, rebuild, repair, restore, restore_trash, trash_of,
};
pub use upkeep::NewOneFile;
pub use write::WriteError;

use disk_health::Watch;
use results::ResultCache;
use views::Views;
use worker::Worker;

/// Settings of an open database.
#[derive(Debug, Clone)]
pub struct DbOptions {
    /// Settings of its data folder.
    pub store: StoreOptions,
    /// How old a series' newest sample may be to count as its value now, in milliseconds.
    pub lookback_ms: i64,
    /// When PromQL's functions drop metrics' names.
    pub name_removal: NameRemoval,
    /// True if PromQL has what Prometheus keeps behind feature flags.
    pub promql_experimental: bool,
    /// Threads that may help with long queries, for all of them together; each query has its own beside.
    pub query_helpers: usize,
    /// Bytes of answers that are kept in memory; 0: none are.
    pub result_cache_memory_bytes_max: usize,
    /// Bytes of the file behind that memory, which outlives the process; 0: there is none.
    pub result_cache_flash_bytes_max: u64,
    /// That file; `answers.cache` in the data folder if none is named.
    pub result_cache_file: Option<std::path::PathBuf>,
}

impl DbOptions {
    /// The defaults, for a folder.
    pub fn new(directory: impl Into<std::path::PathBuf>) -> Self {
        Self {
            store: StoreOptions::new(directory),
            lookback_ms: 5 * 60 * 1000,
            name_removal: NameRemoval::AtOnce,
            promql_experimental: true,
            query_helpers: std::thread::available_parallelism().map_or(0, |cores| cores.get() - 1),
            result_cache_memory_bytes_max: 64 << 20,
            result_cache_flash_bytes_max: 0,
            result_cache_file: None,
        }
    }
}

/// The answers that are kept: in so much memory, and in so much of a file.
fn results(
    memory_bytes_max: usize,
    flash_bytes_max: u64,
    file: Option<std::path::PathBuf>,
    platform: &Platform,
    store: &Store,
) -> Result<Option<ResultCache>, StoreError> {
    if memory_bytes_max == 0 {
        return Ok(None);
    }
    let results = ResultCache::new(memory_bytes_max);
    if flash_bytes_max == 0 {
        return Ok(Some(results));
    }
    let file = file.unwrap_or_else(|| store.directory().join("answers.cache"));
    let options = cache::Options {
        open_bytes_max: memory_bytes_max / results::OPEN_SHARE,
        read_threads: 0,
        // What is read from there comes into memory as steps.
        buffer_bytes_max: 0,
        ..cache::Options::new(&file, flash_bytes_max)
    };
    let results = results.on_flash(platform, options, store);
    let opened = results.map_err(|error| StoreError::Io { action: format!("open {}", file.display()), error })?;
    // The journal that was found goes on from here.
    store.save_journal()?;
    Ok(Some(opened))
}

/// What a folder is opened for.
#[derive(Clone, Copy)]
enum Opening<'a> {
    Writing,
    /// With what was open before, if anything was.
    ReadOnly(Option<&'a Store>),
}

/// An open database; shared by all threads.
pub struct Db {
    platform: Platform,
    store: Arc<Store>,
    key_hasher: KeyHasher,
    limits: ingest::Limits,
    /// How far rows of statements may be ahead of the clock.
    ahead_ms_max: u64,
    settings: promql::EvaluationSettings,
    watch: Arc<Watch>,
    worker: Worker,
    /// True if it is open for reading only.
    is_read_only: bool,
    is_one_file: bool,
    /// Threads that help with long queries, for all of them together.
    helpers: query::Helpers,
    /// Answers that are kept, if any are.
    results: Option<Arc<ResultCache>>,
    /// Materialised views.
    views: Arc<Views>,
    /// Held by a backup: what it removes behind it, another could be about to need.
    backing_up: parking_lot::Mutex<()>,
    /// Where snapshots go: in the folder, or beside the one file.
    snapshots: std::path::PathBuf,
}

impl Db {
    /// Opens a data folder, or makes one, and starts the background work. A path that leads to a file, or to nothing and ends in `.tsdb` or
    /// `.tdb`, is a database in one file ([`platform::container`]).
    pub fn open(platform: Platform, options: DbOptions) -> Result<Self, StoreError> {
        Self::open_with(platform, options, Opening::Writing)
    }

    /// Opens a data folder for reading only: as it is now, with everything that was acknowledged. Nothing of it is changed, so several processes may
    /// read while another one has it open for writing; what that writes from now on is seen by opening it again.
    pub fn open_read_only(platform: Platform, options: DbOptions) -> Result<Self, StoreError> {
        let options = DbOptions { result_cache_flash_bytes_max: 0, ..options };
        Self::open_with(platform, options, Opening::ReadOnly(None))
    }

    /// As [`Db::open_read_only`], after this opening of the same folder for reading only: parts and index segments that it has open are not read
    /// again, as far as they are still there. A database in one file is read whole.
    pub fn open_read_only_again(&self, platform: Platform, options: DbOptions) -> Result<Self, StoreError> {
        let options = DbOptions { result_cache_flash_bytes_max: 0, ..options };
        let previous = (self.is_read_only && !self.is_one_file).then_some(&*self.store);
        Self::open_with(platform, options, Opening::ReadOnly(previous))
    }

    fn open_with(platform: Platform, options: DbOptions, opening: Opening<'_>) -> Result<Self, StoreError> {
        let data = options.store.directory.clone();
        let snapshots = container::companion(&*platform.files, &data, "snapshots");
        let files = platform.files.clone();
        let platform = platform
            .with_data(&data)
            .map_err(|error| StoreError::Io { action: format!("look at {}", data.display()), error })?;
        let is_one_file = !Arc::ptr_eq(&files, &platform.files);
        let mut secret = [0; KEY_SECRET_BYTES];
        platform
            .random
            .fill(&mut secret)
            .map_err(|error| StoreError::Io { action: "draw random bytes for a hash key".to_owned(), error })?;
        let memory_bytes_max = options.result_cache_memory_bytes_max;
        let flash_bytes_max = options.result_cache_flash_bytes_max;
        let keeps_on_flash = flash_bytes_max > 0 && memory_bytes_max > 0;
        let ahead_ms_max = options.store.ahead_ms_max;
        let store_options = StoreOptions { journal_is_saved: keeps_on_flash, ..options.store };
        let store = Arc::new(match opening {
            Opening::Writing => Store::open(platform.clone(), store_options)?,
            Opening::ReadOnly(previous) => {
                let previous = previous.filter(|_| !is_one_file);
                Store::open_read_only_after(&platform, &store_options, previous)?
            }
        });
        let results =
            results(memory_bytes_max, flash_bytes_max, options.result_cache_file, &platform, &store)?.map(Arc::new);
        let watch = Arc::new(Watch::new(&platform, &store));
        let views = Arc::new(Views::open(&store));
        store.guard_expiry(Arc::downgrade(&views) as std::sync::Weak<dyn store::ExpiryGuard>);
        let worker = match opening {
            Opening::Writing => Worker::start(&store, results.as_ref(), &watch, &platform.clock),
            Opening::ReadOnly(_) => Ok(Worker::idle(&store)),
        };
        let worker =
            worker.map_err(|error| StoreError::Io { action: "start the background thread".to_owned(), error })?;
        Ok(Self {
            platform,
            store,
            key_hasher: KeyHasher::new(secret),
            limits: ingest::Limits::default(),
            ahead_ms_max,
            settings: promql::EvaluationSettings {
                lookback_ms: options.lookback_ms,
                name_removal: options.name_removal,
                features: promql::Features::all(options.promql_experimental),
                ..promql::EvaluationSettings::default()
            },
            watch,
            worker,
            is_read_only: matches!(opening, Opening::ReadOnly(_)),
            is_one_file,
            helpers: query::Helpers::new(options.query_helpers),
            results,
            views,
            backing_up: parking_lot::Mutex::new(()),
            snapshots,
        })
    }

    /// Returns whether it is open for reading only.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Hashes raw group keys for batches that are written here.
    pub fn key_hasher(&self) -> &KeyHasher {
        &self.key_hasher
    }

    /// The limits of lines and series.
    pub fn limits(&self) -> &ingest::Limits {
        &self.limits
    }

    /// Says how many bytes of requests that are done with are kept for the next ones; whether memory is so short that they are better
    /// given back.
    pub fn account_requests(&self, bytes: u64) -> bool {
        self.store.memory().account_requests(bytes)
    }

    /// The pool of memory for all requests on their way in.
    pub fn request_memory(&self) -> Arc<MemoryPool> {
        self.store.memory().requests()
    }

    /// Nanoseconds since the Unix epoch.
    pub fn now_ns(&self) -> i64 {
        self.platform.clock.now_ns()
    }

    /// The latest time that it may be: rows that are ahead of it are ahead of the wall clock, and of where that was when it was last
    /// right for long.
    pub fn latest_now_ns(&self) -> i64 {
        self.store.latest_now_ns()
    }

    /// The time that what deletes by age goes by: no later than there is evidence for.
    pub fn trusted_now_ns(&self) -> i64 {
        self.store.trusted_now_ns()
    }

    /// The time by which windows of views are over.
    pub fn window_now_ns(&self) -> i64 {
        self.store.window_now_ns()
    }

    /// The sequence id of the last record that was written, by whatever protocol: what is written from now on has later ones.
    pub fn last_sequence(&self) -> u64 {
        self.store.last_sequence()
    }

    /// The clock that all of it goes by.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.platform.clock.clone()
    }

    /// How many threads queries may have at the same time without getting into one another's way.
    pub fn query_threads(&self) -> usize {
        self.helpers.all() + 1
    }

    /// The report of opening the folder.
    pub fn recovery(&self) -> &Recovery {
        self.store.recovery()
    }

    /// The numbers of the data folder now.
    pub fn stats(&self) -> Stats {
        self.store.stats()
    }

    /// The folder's faults at present.
    pub fn health(&self) -> &Arc<Health> {
        self.store.health()
    }

    /// How often the wall clock jumped since the folder was opened.
    pub fn clock_jumps(&self) -> u64 {
        self.store.clock_jumps()
    }

    /// The room of the data folder's disk, as it was some seconds ago at most; `None` if the system does not say.
    pub fn disk_space(&self) -> Option<DiskSpace> {
        self.watch.space()
    }

    /// Why no row can be written at present, if none can.
    pub fn write_refusal(&self) -> Option<String> {
        self.watch.refusal()
    }

    /// Names of all databases.
    pub fn databases(&self) -> Vec<String> {
        self.store.databases()
    }

    /// Flushes and merges everything there is to merge; returns when it is done.
    pub fn compact_all(&self) -> Result<(), StoreError> {
        self.store.compact_all()
    }

    /// Writes what is in memory alone to level 0, so that a next opening would have no log to read.
    pub fn flush(&self) -> Result<(), StoreError> {
        self.store.flush_all()
    }

    /// Stops the background work and flushes, so that the next opening has no log to read. Without it nothing is lost either.
    pub fn close(&self) -> Result<(), StoreError> {
        self.worker.stop();
        if self.is_read_only {
            return Ok(());
        }
        self.store.flush_all()?;
        self.store.save_time()?;
        self.results.as_ref().map_or(Ok(()), |results| results.save(&self.store))
    }
}
