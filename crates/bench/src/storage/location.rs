//! Where an experiment's data lies, how its store is opened, and who does the store's upkeep.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use platform::{Clock, Platform};
use store::{Store, StoreError, StoreOptions};

use crate::measure::process::thread_cpu_seconds;

/// Pause of upkeep that found nothing to do.
const IDLE: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
pub(crate) struct DataLocation {
    /// Where the data goes; must not exist, and stays [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// The experiment's folder.
pub(crate) struct Folder {
    path: PathBuf,
    is_permanent: bool,
}

impl Folder {
    pub(crate) fn new(place: &DataLocation) -> Result<Self, String> {
        let temporary = || std::env::temp_dir().join(format!("thalweg-bench-{}", std::process::id()));
        let path = place.data.clone().unwrap_or_else(temporary);
        if path.exists() {
            return Err(format!("{} exists; the benchmark needs a folder of its own", path.display()));
        }
        std::fs::create_dir_all(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(Self { path, is_permanent: place.data.is_some() })
    }

    /// The data folder of a case.
    pub(crate) fn case(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Takes a case's data away, so that the next has the room.
    pub(crate) fn clear(&self, name: &str) {
        if !self.is_permanent {
            // What cannot be removed now goes with the whole folder.
            let _ = std::fs::remove_dir_all(self.case(name));
            let _ = std::fs::remove_file(self.case(name));
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_permanent {
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// A clock that the data drives: the store sees the time of the newest row.
pub(crate) struct DataClock {
    begun_ns: i64,
    now_ns: AtomicI64,
    start: Instant,
}

impl DataClock {
    pub(crate) fn new(now_ns: i64) -> Arc<Self> {
        Arc::new(Self { begun_ns: now_ns, now_ns: AtomicI64::new(now_ns), start: Instant::now() })
    }

    /// Time goes on; it never goes back.
    pub(crate) fn advance(&self, now_ns: i64) {
        self.now_ns.fetch_max(now_ns, Ordering::Relaxed);
    }
}

impl Clock for DataClock {
    fn now_ns(&self) -> i64 {
        self.now_ns.load(Ordering::Relaxed)
    }

    fn monotonic_ns(&self) -> u64 {
        // The data's time passes as honestly as the experiment's: a clock that runs ahead of this one is not believed.
        let passed_ns = self.now_ns().saturating_sub(self.begun_ns).unsigned_abs();
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(passed_ns)
    }

    fn thread_cpu_ns(&self) -> u64 {
        (thread_cpu_seconds() * 1e9) as u64
    }
}

/// Opens a store of this machine, in a folder or in one file.
pub(super) fn open(options: StoreOptions) -> Result<Store, String> {
    let platform = Platform::real().with_data(&options.directory).map_err(|error| error.to_string())?;
    Store::open(platform, options).map_err(|error| error.to_string())
}

/// Opens a store whose time the experiment drives.
pub(super) fn open_at(options: StoreOptions, clock: &Arc<DataClock>) -> Result<Store, String> {
    let platform = Platform { clock: clock.clone(), ..Platform::real() };
    Store::open(platform, options).map_err(|error| error.to_string())
}

/// Does all upkeep that is due, in the caller's thread: the same for the same data.
pub(super) fn keep_up(store: &Store) -> Result<(), String> {
    while store.maintain().map_err(|error| error.to_string())? {}
    Ok(())
}

/// What the threads of upkeep say.
#[derive(Default)]
pub(super) struct Upkeep {
    merging: AtomicBool,
    stopping: Mutex<bool>,
    stop: Condvar,
    error: Mutex<Option<String>>,
}

impl Upkeep {
    /// Whether a merge may be under way.
    pub(super) fn is_merging(&self) -> bool {
        self.merging.load(Ordering::Relaxed)
    }

    fn repeat(&self, store: &Store, work: fn(&Store) -> Result<bool, StoreError>, flag: Option<&AtomicBool>) {
        loop {
            let tell = |works: bool| flag.iter().for_each(|flag| flag.store(works, Ordering::Relaxed));
            tell(true);
            let worked = work(store);
            tell(false);
            let is_idle = !matches!(worked, Ok(true));
            if let Err(error) = worked {
                *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                return;
            }
            let stopping = self.stopping.lock().unwrap_or_else(PoisonError::into_inner);
            let pause = if is_idle { IDLE } else { Duration::ZERO };
            let waited = self.stop.wait_timeout_while(stopping, pause, |stopping| !*stopping);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
        }
    }
}

/// Works while flushes, merges and uploads go on in a thread each, as in a server.
pub(super) fn with_upkeep<T>(store: &Store, work: impl FnOnce(&Upkeep) -> Result<T, String>) -> Result<T, String> {
    let upkeep = Upkeep::default();
    let done = std::thread::scope(|scope| {
        scope.spawn(|| upkeep.repeat(store, Store::maintain_heads, None));
        scope.spawn(|| upkeep.repeat(store, Store::maintain_parts, Some(&upkeep.merging)));
        scope.spawn(|| upkeep.repeat(store, Store::maintain_objects, None));
        let done = work(&upkeep);
        *upkeep.stopping.lock().unwrap_or_else(PoisonError::into_inner) = true;
        upkeep.stop.notify_all();
        done
    })?;
    match upkeep.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(format!("upkeep failed: {error}")),
        None => Ok(done),
    }
}

/// A bar on the terminal for so many values.
pub(crate) fn bar(values: u64, what: &str) -> ProgressBar {
    let bar = ProgressBar::new(values).with_message(what.to_owned());
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {per_sec} eta {eta}") {
        bar.set_style(style);
    }
    bar
}

/// Files in a folder, folders inside included.
pub(super) fn files(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let count = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => files(&entry.path()),
        _ => 1,
    };
    entries.flatten().map(count).sum()
}
