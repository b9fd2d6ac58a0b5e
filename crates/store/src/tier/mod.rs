//! The object tier: parts as objects, read in blocks through a cache of memory and flash.
//!
//! * `read`: ranges become blocks (`plan`), those in memory or on flash are taken (`blocks`, `flash`), each other one is
//!   fetched once however many threads want it (`flights`), all of a call in parallel; who is about to read several objects has
//!   them warmed first, in one call
//! * `upload`: a file is stored and read back before its caller may delete it
//! * `probe`: what the store and the credentials can do, learnt at start
//! * `manifest`: the copy of the manifest, fenced by conditional puts
//!
//! Synchronous; owns no threads. **Keys are never used again for other bytes**: the cache outlives deletions and
//! restarts, and tells objects apart by store, identity, key and size only.

pub(crate) mod parts;

mod blocks;
pub(crate) mod flash;
mod flights;
mod manifest;
mod plan;
mod probe;
mod read;
mod upload;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use platform::Platform;
use platform::objects::{ListedObject, ObjectCounters, ObjectError, ObjectErrorKind, Objects};

pub use manifest::{ManifestCopy, ManifestPut};
pub use probe::TierProbe;
pub use upload::Uploaded;

use blocks::BlockCache;
use flash::FlashCache;
use flights::Flights;

const BLOCK_BYTES_MIN: u32 = 512;
const BLOCK_BYTES_MAX: u32 = 16 << 20;
/// Objects listed at once.
const LIST_PAGE_OBJECTS: usize = 1_000;

/// Settings of the object tier.
#[derive(Debug, Clone)]
pub struct TierOptions {
    /// Tells data folders apart that used one store and one cache file one after the other: the folder's incarnation.
    pub identity: u64,
    /// Bytes of a block: what is fetched and cached at least. From 512 bytes to 16 MiB.
    pub block_bytes: u32,
    /// Unwanted bytes between two missing blocks that are fetched in one request all the same.
    pub gap_bytes_max: u64,
    /// Bytes of one request; of an upload's reading back, too.
    pub request_bytes_max: u64,
    /// Bytes that one call may read.
    pub read_bytes_max: u64,
    /// Bytes of blocks in memory.
    pub memory_bytes: u64,
    /// Blocks on flash after those in memory; memory for it is about 100 bytes a block.
    pub flash: Option<FlashOptions>,
    /// True if uploads are read back. Without it their size is looked at only.
    pub read_back: bool,
}

/// The cache's file on flash.
#[derive(Debug, Clone)]
pub struct FlashOptions {
    /// The file; made anew if the settings do not fit it. Its folder exists.
    pub path: PathBuf,
    /// Bytes of the file.
    pub file_bytes: u64,
}

impl Default for TierOptions {
    fn default() -> Self {
        Self {
            identity: 0,
            block_bytes: 64 << 10,
            gap_bytes_max: 256 << 10,
            request_bytes_max: 8 << 20,
            read_bytes_max: 1 << 30,
            memory_bytes: 256 << 20,
            flash: None,
            read_back: true,
        }
    }
}

/// An object store and the cache in front of it. Shared by all threads.
pub struct Tier {
    platform: Platform,
    objects: Arc<dyn Objects>,
    options: TierOptions,
    cache: BlockCache,
    flights: Flights,
    /// Blocks for which another thread's request was waited for.
    waited: AtomicU64,
}

impl fmt::Debug for Tier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tier").field("location", &self.objects.location()).finish_non_exhaustive()
    }
}

/// The tier's numbers since it was opened, and what the cache holds now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TierCounters {
    /// Blocks found in memory.
    pub memory_hits: u64,
    /// Blocks found on flash.
    pub flash_hits: u64,
    /// Blocks found in neither.
    pub misses: u64,
    /// Of these, blocks that another thread was fetching already.
    pub waited: u64,
    /// Bytes of blocks in memory.
    pub memory_bytes: u64,
    /// Bytes of blocks on flash.
    pub flash_bytes: u64,
    /// Blocks written to flash.
    pub flash_writes: u64,
    /// Reads and writes that the flash refused.
    pub flash_errors: u64,
    /// Blocks on flash that were not what was written.
    pub flash_damaged: u64,
    /// Requests to the object store.
    pub objects: ObjectCounters,
}

impl Tier {
    /// A tier over an open store. The store is not asked anything; see [`Tier::probe`].
    pub fn open(platform: Platform, objects: Arc<dyn Objects>, options: TierOptions) -> Result<Self, ObjectError> {
        if !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&options.block_bytes) {
            let message =
                format!("expected {BLOCK_BYTES_MIN} to {BLOCK_BYTES_MAX} bytes, found {}", options.block_bytes);
            return Err(ObjectError::new(ObjectErrorKind::Config, "use this block size for the object tier", message));
        }
        let block_bytes = u64::from(options.block_bytes);
        let flash = match &options.flash {
            None => None,
            Some(flash) => {
                let opened = FlashCache::open(&*platform.files, &flash.path, flash.file_bytes, block_bytes);
                Some(opened.map_err(|error| {
                    let action = format!("open the block cache's file {}", flash.path.display());
                    ObjectError::new(ObjectErrorKind::Config, action, error.to_string())
                })?)
            }
        };
        let cache = BlockCache::new(options.memory_bytes, block_bytes, flash)
            .map_err(|message| ObjectError::new(ObjectErrorKind::Config, "make the block cache", message))?;
        Ok(Self { platform, objects, options, cache, flights: Flights::default(), waited: AtomicU64::new(0) })
    }

    /// Where the objects are, for messages.
    pub fn location(&self) -> &str {
        self.objects.location()
    }

    /// Removes an object; no error if there is none. Its blocks leave the cache as others come.
    pub fn delete(&self, key: &str) -> Result<(), ObjectError> {
        self.objects.delete(key)
    }

    /// All objects in and below a folder (empty for all), sorted by key; an error if there are more than so many.
    pub fn list(&self, folder: &str, objects_max: usize) -> Result<Vec<ListedObject>, ObjectError> {
        let mut found: Vec<ListedObject> = Vec::new();
        loop {
            let after = found.last().map(|object| object.key.clone());
            let page = self.objects.list(folder, after.as_deref(), LIST_PAGE_OBJECTS)?;
            let last = page.len() < LIST_PAGE_OBJECTS;
            found.extend(page);
            if found.len() > objects_max {
                let action = format!("list {folder:?} in {}", self.location());
                let message = format!("there are more than {objects_max} objects");
                return Err(ObjectError::new(ObjectErrorKind::Other, action, message));
            }
            if last {
                return Ok(found);
            }
        }
    }

    /// The tier's numbers now.
    pub fn counters(&self) -> TierCounters {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let flash = self.cache.flash();
        let blocks = &self.cache.counters;
        TierCounters {
            memory_hits: count(&blocks.memory_hits),
            flash_hits: count(&blocks.flash_hits),
            misses: count(&blocks.misses),
            waited: count(&self.waited),
            memory_bytes: self.cache.memory_bytes(),
            flash_bytes: flash.map_or(0, FlashCache::used_bytes),
            flash_writes: flash.map_or(0, |flash| count(&flash.counters.writes)),
            flash_errors: flash.map_or(0, |flash| count(&flash.counters.errors)),
            flash_damaged: flash.map_or(0, |flash| count(&flash.counters.damaged)),
            objects: self.objects.counters(),
        }
    }

    fn error(&self, kind: ObjectErrorKind, action: &str, key: &str, message: impl Into<String>) -> ObjectError {
        ObjectError::new(kind, format!("{action} object {key} in {}", self.location()), message)
    }
}

#[cfg(test)]
#[path = "tier_tests.rs"]
mod tests;
