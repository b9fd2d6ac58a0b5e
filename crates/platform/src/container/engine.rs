//! An open container: its names, its files, its free blocks. Commits are in `commit.rs`, the growth of files in `grow.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tracing_mutex::parkinglot::{Mutex, MutexGuard};

use super::commit::CommitState;
use super::directory::{BlockRun, ContainerDirectory};
use super::inode::InnerInode;
use super::layout::{
    BLOCK_BYTES, CHECKPOINT_BYTES_MIN, ContainerHead, ContainerZone, HEAD_BLOCKS, RUN_BYTES, entry_bytes,
};
use super::load::LoadedContainer;
use super::space::BlockSpace;
use crate::{File, Files, OpenMode};

/// Free blocks that follow one another are given back to the disk from so many on.
const PUNCH_BLOCKS_MIN: u64 = 64;

/// Blocks at the end that are free before the file is cut.
const CUT_BLOCKS_MIN: u64 = 16;

/// How much room a new container's directory has. It grows by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerShape {
    /// Blocks of 4 KiB of a checkpoint of the directory.
    pub checkpoint_blocks: u32,
    /// Blocks of 4 KiB of the journal: a commit takes one or more.
    pub journal_blocks: u32,
}

impl Default for ContainerShape {
    fn default() -> Self {
        Self { checkpoint_blocks: 16, journal_blocks: 64 }
    }
}

/// The container's file, as it is read and written.
pub(super) struct BaseHandles {
    pub(super) cached: Arc<dyn File>,
    pub(super) direct: Arc<dyn File>,
    pub(super) durable: Arc<dyn File>,
    pub(super) durable_is_direct: bool,
}

/// A container that this process alone may write.
pub(super) struct OpenContainer {
    /// Its path, for messages.
    pub(super) path: PathBuf,
    pub(super) base: BaseHandles,
    /// Held during a commit; taken before `state`.
    pub(super) commits: Mutex<CommitState>,
    /// Taken before an inode's own lock, after that of its growth.
    state: Mutex<ContainerState>,
    /// Writes that a sync has to make durable, and how many of them the last one made so.
    pub(super) writes: AtomicU64,
    pub(super) writes_synced: AtomicU64,
    /// Why nothing may be written any more.
    failed: OnceLock<String>,
    is_closed: AtomicBool,
    can_punch: AtomicBool,
}

/// What changes with names and sizes.
pub(super) struct ContainerState {
    pub(super) names: BTreeMap<String, Arc<InnerInode>>,
    /// Names that changed since the last commit, and the files that they belong to now.
    pub(super) renamed: BTreeMap<String, Option<u64>>,
    /// Files that are new or have grown since.
    pub(super) grown: BTreeMap<u64, Arc<InnerInode>>,
    removed: Vec<RemovedInode>,
    pub(super) space: BlockSpace,
    pub(super) next_id: u64,
    /// Bytes that a checkpoint of this would have, and may have.
    pub(super) checkpoint_bytes: u64,
    pub(super) checkpoint_bytes_max: u64,
    /// Commits begun, and those of them that are durable.
    pub(super) commits_begun: u64,
    pub(super) commits_done: u64,
}

/// A file without a name. Its blocks are free once nothing has it open and its removal is durable.
struct RemovedInode {
    inode: Arc<InnerInode>,
    commit: u64,
}

fn missing(path: &Path, name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("no file {} in {}", name, path.display()))
}

/// Writes an empty container into a new file.
pub(super) fn create(file: &dyn File, shape: ContainerShape) -> io::Result<()> {
    let zone = |start: u64| ContainerZone {
        start,
        checkpoint_blocks: shape.checkpoint_blocks,
        journal_blocks: shape.journal_blocks,
    };
    let active = zone(HEAD_BLOCKS);
    let spare = zone(active.run().end());
    let directory = ContainerDirectory { next_id: 1, ..ContainerDirectory::default() };
    let checkpoint = super::layout::encode_checkpoint(&directory);
    let zeros = vec![0; (spare.run().end() * BLOCK_BYTES) as usize];
    file.write_all_at(&zeros, 0)?;
    for offset in active.checkpoints() {
        file.write_all_at(&checkpoint, offset)?;
    }
    let head = ContainerHead {
        generation: 1,
        sequence: 0,
        active,
        spare,
        checkpoint_bytes: checkpoint.len() as u64,
        checkpoint_sum: crc32c::crc32c(&checkpoint),
    };
    for block in 0..2 {
        file.write_all_at(&head.encode(), block * BLOCK_BYTES)?;
    }
    file.sync_data()
}

impl OpenContainer {
    /// Goes on where a container was left. The caller holds its lock.
    pub(super) fn open(files: &dyn Files, path: &Path, loaded: LoadedContainer) -> io::Result<Self> {
        let (durable, durable_is_direct) = files.open_durable(path)?;
        let cached = files.open(path, OpenMode::Write)?;
        let base =
            BaseHandles { direct: files.open_direct(path, OpenMode::Write)?, cached, durable, durable_is_direct };
        let size_blocks = base.cached.size_bytes()?.div_ceil(BLOCK_BYTES);
        let space = BlockSpace::beside(&loaded.used, size_blocks);
        let mut names = BTreeMap::new();
        let mut checkpoint_bytes = CHECKPOINT_BYTES_MIN;
        for (id, entry) in &loaded.directory.files {
            checkpoint_bytes += entry_bytes(&entry.name, entry.runs.len());
            let inode = InnerInode::new(*id, entry.bytes, entry.runs.clone(), true);
            names.insert(entry.name.clone(), Arc::new(inode));
        }
        let state = ContainerState {
            names,
            renamed: BTreeMap::new(),
            grown: BTreeMap::new(),
            removed: Vec::new(),
            space,
            next_id: loaded.directory.next_id,
            checkpoint_bytes,
            checkpoint_bytes_max: loaded.head.active.checkpoint_bytes_max(),
            commits_begun: 0,
            commits_done: 0,
        };
        let commits = CommitState::new(loaded.head, loaded.directory, loaded.sequence);
        let container = Self {
            path: path.to_owned(),
            base,
            commits: Mutex::new(commits),
            state: Mutex::new(state),
            writes: AtomicU64::new(0),
            writes_synced: AtomicU64::new(0),
            failed: OnceLock::new(),
            is_closed: AtomicBool::new(false),
            can_punch: AtomicBool::new(true),
        };
        // What an earlier opening wrote and did not commit goes, and damage to one copy of the directory with it.
        container.cut(&mut container.state());
        container.checkpoint_anew()?;
        Ok(container)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ContainerState> {
        self.state.lock()
    }

    /// An error if nothing may be written.
    pub(super) fn check(&self) -> io::Result<()> {
        if let Some(reason) = self.failed.get() {
            let text =
                format!("{}: nothing is written until it is opened again, because of: {reason}", self.path.display());
            return Err(io::Error::other(text));
        }
        if self.is_closed.load(Ordering::Acquire) {
            return Err(io::Error::other(format!("{} was closed", self.path.display())));
        }
        Ok(())
    }

    /// Nothing is written from here on: it is unknown what of it would be durable.
    pub(super) fn fail(&self, error: &io::Error) {
        let _ = self.failed.set(error.to_string());
    }

    /// Commits what is not yet, and lets nothing be written any more.
    pub(super) fn close(&self) {
        // What cannot be committed was not promised.
        let _ = self.commit();
        self.is_closed.store(true, Ordering::Release);
    }

    /// The state with so much room for the directory; the directory gets more if it has too little.
    pub(super) fn state_with_room(&self, bytes: u64) -> io::Result<MutexGuard<'_, ContainerState>> {
        loop {
            self.check()?;
            let state = self.state();
            let wanted = state.checkpoint_bytes + bytes;
            if wanted <= state.checkpoint_bytes_max {
                return Ok(state);
            }
            drop(state);
            self.widen(wanted)?;
        }
    }

    pub(super) fn find(&self, name: &str) -> io::Result<Arc<InnerInode>> {
        self.state().names.get(name).cloned().ok_or_else(|| missing(&self.path, name))
    }

    pub(super) fn create_file(&self, name: &str) -> io::Result<Arc<InnerInode>> {
        super::directory::check_name(name.as_bytes())
            .map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        let mut state = self.state_with_room(entry_bytes(name, 0))?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let id = state.next_id;
        state.next_id += 1;
        let inode = Arc::new(InnerInode::new(id, 0, Vec::new(), false));
        state.checkpoint_bytes += entry_bytes(name, 0);
        state.names.insert(name.to_owned(), inode.clone());
        state.renamed.insert(name.to_owned(), Some(id));
        state.grown.insert(id, inode.clone());
        Ok(inode)
    }

    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        super::directory::check_name(to.as_bytes()).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        let mut state = self.state_with_room(to.len() as u64)?;
        let inode = state.names.get(from).cloned().ok_or_else(|| missing(&self.path, from))?;
        if from == to {
            return Ok(());
        }
        state.unname(to);
        state.names.remove(from);
        state.renamed.insert(from.to_owned(), None);
        state.checkpoint_bytes = state.checkpoint_bytes + to.len() as u64 - from.len() as u64;
        state.renamed.insert(to.to_owned(), Some(inode.id));
        state.names.insert(to.to_owned(), inode);
        Ok(())
    }

    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        self.check()?;
        let found = self.state().unname(name);
        if found { Ok(()) } else { Err(missing(&self.path, name)) }
    }

    /// The names in a folder, sorted.
    pub(super) fn list(&self, folder: &str) -> Vec<String> {
        names_in(folder, self.state().names.keys())
    }

    /// Blocks that nothing has any more are free.
    pub(super) fn reclaim(&self) {
        let runs = self.state().take_reclaimable();
        if runs.is_empty() {
            return;
        }
        let mut state = self.state();
        let mut merged = Vec::new();
        for run in &runs {
            state.space.give(*run);
        }
        for run in &runs {
            merged.extend(state.space.run_with(run.start).filter(|merged| merged.blocks >= PUNCH_BLOCKS_MIN));
        }
        self.cut(&mut state);
        merged.dedup();
        // Under the lock: no block of them may be taken meanwhile.
        for run in merged.iter().filter(|_| self.can_punch.load(Ordering::Relaxed)) {
            let punched = self.base.cached.punch_hole(run.offset(), run.bytes());
            // It is only room: the disk has less of it if this fails.
            self.can_punch.fetch_and(punched.unwrap_or(false), Ordering::Relaxed);
        }
    }

    /// Cuts the file where the blocks in use end.
    fn cut(&self, state: &mut ContainerState) {
        let (end, written_end) = (state.space.end(), state.space.written_end());
        if written_end < end + CUT_BLOCKS_MIN {
            return;
        }
        let size = self.base.cached.size_bytes().unwrap_or(0);
        // A file that cannot be cut only takes room.
        if size <= end * BLOCK_BYTES || self.base.cached.set_size(end * BLOCK_BYTES).is_ok() {
            state.space.was_cut();
        }
    }

    /// Free bytes inside that the disk does not know of.
    pub(super) fn free_bytes(&self) -> u64 {
        let can_punch = self.can_punch.load(Ordering::Relaxed);
        let state = self.state();
        let is_kept = |run: &BlockRun| !can_punch || run.blocks < PUNCH_BLOCKS_MIN;
        state.space.free_runs().filter(is_kept).map(|run| run.bytes()).sum()
    }
}

/// The names of files and folders in a folder, sorted.
pub(super) fn names_in<'a>(folder: &str, names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
    let inside = names.filter_map(|name| name.strip_prefix(&prefix)?.split('/').next());
    let sorted: BTreeSet<&str> = inside.collect();
    sorted.into_iter().map(str::to_owned).collect()
}

impl ContainerState {
    /// Takes a name away; whether there was one.
    fn unname(&mut self, name: &str) -> bool {
        let Some(inode) = self.names.remove(name) else { return false };
        self.checkpoint_bytes -= entry_bytes(name, 0) + RUN_BYTES * inode.meta().runs.len() as u64;
        self.renamed.insert(name.to_owned(), None);
        self.grown.remove(&inode.id);
        // One that no commit names needs none to be forgotten.
        let commit = if inode.is_committed.load(Ordering::Acquire) { self.commits_begun + 1 } else { 0 };
        self.removed.push(RemovedInode { inode, commit });
        true
    }

    /// The blocks of files that are gone.
    fn take_reclaimable(&mut self) -> Vec<BlockRun> {
        let done = self.commits_done;
        let (gone, kept) = std::mem::take(&mut self.removed)
            .into_iter()
            .partition(|removed: &RemovedInode| removed.commit <= done && Arc::strong_count(&removed.inode) == 1);
        self.removed = kept;
        gone.into_iter().flat_map(|removed: RemovedInode| removed.inode.meta().runs).collect()
    }

    /// A file has grown by its growth: it is in the next commit, unless it has no name any more.
    pub(super) fn note_grown(&mut self, inode: &Arc<InnerInode>, runs_added: usize) {
        let is_removed = self.removed.iter().any(|removed| removed.inode.id == inode.id);
        if !is_removed {
            self.checkpoint_bytes += RUN_BYTES * runs_added as u64;
            self.grown.insert(inode.id, inode.clone());
        }
    }
}
