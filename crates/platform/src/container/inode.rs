//! A file in an open container: how long it is, and which blocks it has.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tracing_mutex::parkinglot::{Mutex, RwLock};

use super::directory::BlockRun;
use super::layout::BLOCK_BYTES;

/// A file in an open container. It lives as long as its name, a handle or a map of it does; its blocks do, too.
pub(super) struct InnerInode {
    pub(super) id: u64,
    meta: RwLock<InodeMeta>,
    /// Held while the file grows: blocks after its last one that are set apart for it.
    pub(super) growing: Mutex<Option<BlockRun>>,
    /// Handles that may write.
    pub(super) writers: AtomicUsize,
    /// Whether a commit has named it, or is about to.
    pub(super) is_committed: AtomicBool,
    durable_version: AtomicU64,
}

/// What grows.
#[derive(Debug, Clone, Default)]
pub(super) struct InodeMeta {
    pub(super) bytes: u64,
    pub(super) runs: Vec<BlockRun>,
    /// Counts changes.
    pub(super) version: u64,
}

/// A stretch of a container that a part of a read or write goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BytePiece {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Where in the container bytes of a file with such blocks are.
pub(super) fn pieces_of(runs: &[BlockRun], offset: u64, bytes: u64) -> Vec<BytePiece> {
    let mut pieces = Vec::new();
    let (mut skipped, mut left) = (offset, bytes);
    for run in runs {
        if left == 0 {
            break;
        }
        if skipped >= run.bytes() {
            skipped -= run.bytes();
            continue;
        }
        let taken = left.min(run.bytes() - skipped);
        pieces.push(BytePiece { offset: run.offset() + skipped, bytes: taken });
        left -= taken;
        skipped = 0;
    }
    pieces
}

/// Adds blocks to those of a file.
pub(super) fn push_run(runs: &mut Vec<BlockRun>, run: BlockRun) {
    match runs.last_mut() {
        Some(last) if last.end() == run.start && u32::try_from(last.blocks + run.blocks).is_ok() => {
            last.blocks += run.blocks;
        }
        _ => runs.push(run),
    }
}

impl InodeMeta {
    /// Blocks of the file.
    pub(super) const fn blocks(&self) -> u64 {
        self.bytes.div_ceil(BLOCK_BYTES)
    }
}

impl InnerInode {
    pub(super) fn new(id: u64, bytes: u64, runs: Vec<BlockRun>, is_committed: bool) -> Self {
        Self {
            id,
            meta: RwLock::new(InodeMeta { bytes, runs, version: u64::from(!is_committed) }),
            growing: Mutex::new(None),
            writers: AtomicUsize::new(0),
            is_committed: AtomicBool::new(is_committed),
            durable_version: AtomicU64::new(0),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.meta.read().bytes
    }

    pub(super) fn meta(&self) -> InodeMeta {
        self.meta.read().clone()
    }

    /// Where bytes of the file are; `None` if it ends before.
    pub(super) fn ranges(&self, offset: u64, bytes: u64) -> Option<Vec<BytePiece>> {
        let meta = self.meta.read();
        let end = offset.checked_add(bytes)?;
        (end <= meta.bytes).then(|| pieces_of(&meta.runs, offset, bytes))
    }

    /// Where bytes of the file are, if they are in one place.
    pub(super) fn single_offset(&self, offset: u64, bytes: u64) -> Option<u64> {
        let meta = self.meta.read();
        if offset.checked_add(bytes)? > meta.bytes {
            return None;
        }
        let mut skipped = offset;
        for run in &meta.runs {
            if skipped < run.bytes() {
                return (bytes <= run.bytes() - skipped).then(|| run.offset() + skipped);
            }
            skipped -= run.bytes();
        }
        None
    }

    /// The file has grown.
    pub(super) fn publish(&self, bytes: u64, runs: Vec<BlockRun>) {
        let mut meta = self.meta.write();
        *meta = InodeMeta { bytes, runs, version: meta.version + 1 };
    }

    /// Whether a commit has to say how long it is.
    pub(super) fn has_grown(&self) -> bool {
        self.meta.read().version > self.durable_version.load(Ordering::Acquire)
    }

    pub(super) fn was_committed(&self, version: u64) {
        self.durable_version.fetch_max(version, Ordering::AcqRel);
    }
}
