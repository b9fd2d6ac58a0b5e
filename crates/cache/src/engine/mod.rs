//! The cache: what is set goes into buckets in memory, from there in slabs to flash; what is asked for is looked up in the index, read
//! and checked. An answer is given only if intervals that were read cover all of it in every field of the key, so that whatever
//! happens to the file, or to a slab between look-up and read, makes a miss and never a wrong answer.
//!
//! * [`set`]: points into buckets · [`seal`]: a bucket into slabs · [`room`]: a slot for a slab · [`get`]: look-up, read, join
//! * [`delete`]: what is no longer true · [`compact`]: fewer slabs of the same points · [`recover`]: the index from slabs
//!
//! Locks: `sealing` before `state`; neither is held while the other's owner waits for the file, but `sealing` is, by sealing itself.

mod compact;
mod delete;
mod get;
mod recover;
mod room;
mod seal;
mod set;
mod state;
mod stats;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use platform::Platform;
use tracing_mutex::parkinglot::Mutex;

use crate::PolicyKind;
use crate::flash::Flash;
use crate::flash::pool::Pool;

pub(crate) use get::part_of;
pub use get::{CachedPart, Lookup, Request};
pub use set::SetError;
pub use stats::Stats;

use state::State;
use stats::Counters;

/// How a cache is made.
#[derive(Debug, Clone)]
pub struct Options {
    /// The flash file; it is made if it is not there.
    pub file: PathBuf,
    /// What the file may hold.
    pub file_bytes_max: u64,
    /// Bytes of a slab: a multiple of 4 KiB, at most a MiB.
    pub slab_bytes: usize,
    /// Which slab goes when room is needed.
    pub policy: PolicyKind,
    /// Requests of fewer bytes, as estimated, get nothing if not all of them is cached: asking twice would cost more.
    pub partial_bytes_min: usize,
    /// Slabs that were not compacted in one virtual time range before they are; 0 for never.
    pub compaction_slabs: usize,
    /// Bytes that compaction may write for each byte that sets write.
    pub compaction_write_share_max: f64,
    /// Threads that read fields at the same time; 0 to read one after the other in the caller's.
    pub read_threads: usize,
    /// Points in memory that are not on flash yet.
    pub open_bytes_max: usize,
    /// What one answer may take, set or got.
    pub answer_bytes_max: usize,
    /// Pages of the file that were read lately, kept in memory as they lie there; 0 to read them each time.
    pub buffer_bytes_max: usize,
}

impl Options {
    /// The defaults, for a file of a size.
    pub fn new(file: impl AsRef<Path>, file_bytes_max: u64) -> Self {
        Self {
            file: file.as_ref().to_owned(),
            file_bytes_max,
            slab_bytes: 1 << 20,
            policy: PolicyKind::Sieve,
            partial_bytes_min: 512 << 10,
            compaction_slabs: 16,
            compaction_write_share_max: 0.4,
            read_threads: 4,
            open_bytes_max: 64 << 20,
            answer_bytes_max: 64 << 20,
            buffer_bytes_max: 8 << 20,
        }
    }
}

/// Keeps answers on a flash file. Shared between threads as it is.
pub struct Cache {
    pub(crate) shared: Arc<Shared>,
    pool: Pool,
}

/// What the threads that read share with the cache.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) platform: Platform,
    pub(crate) flash: Flash,
    pub(crate) state: Mutex<State>,
    /// Locked while slabs are made of a bucket: one at a time.
    pub(crate) sealing: Mutex<()>,
    /// Locked by a compaction: one at a time.
    pub(crate) compacting: Mutex<()>,
    /// Series of slabs that were read lately, by the slabs' serials.
    pub(crate) series: Mutex<HashMap<u64, Arc<[Arc<str>]>>>,
    pub(crate) counters: Counters,
}

impl Cache {
    /// Opens the cache: what its file holds is there again, but for what was not on flash yet.
    pub fn open(platform: &Platform, options: Options) -> io::Result<Self> {
        let slabs = Flash::slots(options.file_bytes_max, options.slab_bytes.max(1));
        let is_whole_pages = options.slab_bytes.is_multiple_of(platform::DIRECT_ALIGN_BYTES);
        if slabs < 2 || !is_whole_pages || !(16 << 10..=1 << 20).contains(&options.slab_bytes) {
            let message =
                "a cache needs slabs of 16 KiB to 1 MiB in multiples of 4 KiB, and a file for two of them and one MiB";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let (flash, superblock) = Flash::open(platform, &options.file, options.slab_bytes, options.buffer_bytes_max)?;
        let state = recover::recover(platform, &flash, superblock, &options, slabs)?;
        let pool = Pool::start(options.read_threads)?;
        let shared = Shared {
            options,
            platform: platform.clone(),
            flash,
            state: Mutex::new(state),
            sealing: Mutex::new(()),
            compacting: Mutex::new(()),
            series: Mutex::default(),
            counters: Counters::default(),
        };
        Ok(Self { shared: Arc::new(shared), pool })
    }

    /// Writes all points that are not on flash yet. Without it they are lost with the process, which is a miss later on.
    pub fn flush(&self) -> io::Result<()> {
        while let Some(field) = self.shared.fullest_bucket() {
            self.shared.seal(field, true)?;
        }
        Ok(())
    }

    /// Returns when the slabs that were written are durable. Without it a power failure may lose the last ones, which is a miss later on.
    pub fn sync(&self) -> io::Result<()> {
        self.shared.flash.sync()
    }

    /// Compacts one virtual time range if one is due. Returns whether there may be more to do. For a thread of the caller's.
    pub fn maintain(&self) -> io::Result<bool> {
        self.shared.compact_one()
    }

    /// Waits until something is due for [`Cache::maintain`], or for so long.
    pub fn wait_for_work(&self, timeout_ms: u64) {
        self.shared.counters.wait_for_work(timeout_ms);
    }

    /// Counts and sizes.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Cache").field("options", &self.shared.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
