//! Commits: what was written is made durable first, then the record of the directory's changes. A checkpoint writes the whole directory to
//! the other zone, and a new head.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::directory::{BlockRun, ContainerDirectory};
use super::edits::{ContainerEdits, InnerEdit};
use super::engine::{ContainerState, OpenContainer};
use super::inode::InnerInode;
use super::layout::{BLOCK_BYTES, ContainerHead, ContainerZone, ZONE_BLOCKS_MAX, encode_checkpoint, encode_record};

/// Bytes of zeros that are written at once.
const ZEROS_BYTES: usize = 1 << 20;

/// The committed directory, and where the next commit goes.
pub(super) struct CommitState {
    head: ContainerHead,
    directory: ContainerDirectory,
    sequence: u64,
    /// Block of the journals for the next record. Before the first checkpoint of an opening there is none.
    journal_block: u32,
}

impl CommitState {
    pub(super) fn new(head: ContainerHead, directory: ContainerDirectory, sequence: u64) -> Self {
        Self { head, directory, sequence, journal_block: head.active.journal_blocks }
    }
}

/// What a commit writes.
struct CommitPlan {
    edits: ContainerEdits,
    /// With the versions that the edits have.
    inodes: Vec<(Arc<InnerInode>, u64)>,
    number: u64,
}

impl ContainerState {
    /// What changed since the last commit; `None` if nothing did.
    fn plan(&mut self, directory: &ContainerDirectory) -> Option<CommitPlan> {
        let mut edits = ContainerEdits { next_id: self.next_id, ..ContainerEdits::default() };
        let mut inodes = Vec::new();
        for (id, inode) in std::mem::take(&mut self.grown) {
            let meta = inode.meta();
            edits.files.push(InnerEdit::new(directory, id, meta.bytes, &meta.runs));
            inode.is_committed.store(true, Ordering::Release);
            inodes.push((inode, meta.version));
        }
        let is_known = |name: &String, id: &Option<u64>| id.is_some() || directory.names.contains_key(name);
        let renamed = std::mem::take(&mut self.renamed);
        edits.names = renamed.into_iter().filter(|(name, id)| is_known(name, id)).collect();
        // A removal of what no commit named is none.
        self.commits_begun += 1;
        if edits.is_empty() {
            self.commits_done = self.commits_begun;
            return None;
        }
        Some(CommitPlan { edits, inodes, number: self.commits_begun })
    }
}

impl OpenContainer {
    /// Makes every name and every length durable as it is, and all that was written before.
    pub(super) fn commit(&self) -> io::Result<()> {
        let mut commits = self.commits.lock();
        self.check()?;
        let plan = self.state().plan(&commits.directory);
        if let Some(plan) = plan {
            let written = self.sync_writes().and_then(|()| self.write_edits(&mut commits, &plan.edits));
            written.inspect_err(|error| self.fail(error))?;
            plan.inodes.iter().for_each(|(inode, version)| inode.was_committed(*version));
            self.state().commits_done = plan.number;
        }
        drop(commits);
        self.reclaim();
        Ok(())
    }

    /// Makes what was written to blocks durable.
    pub(super) fn sync_writes(&self) -> io::Result<()> {
        self.check()?;
        let writes = self.writes.load(Ordering::Acquire);
        if self.writes_synced.load(Ordering::Acquire) >= writes {
            return Ok(());
        }
        // Whose writes a failed sync loses is not known: those of all files may be.
        self.base.cached.sync_data().inspect_err(|error| self.fail(error))?;
        self.writes_synced.fetch_max(writes, Ordering::AcqRel);
        Ok(())
    }

    fn write_edits(&self, commits: &mut CommitState, edits: &ContainerEdits) -> io::Result<()> {
        commits.directory.apply(edits).map_err(io::Error::other)?;
        commits.sequence += 1;
        let zone = commits.head.active;
        let record = encode_record(commits.head.generation, commits.sequence, edits);
        let blocks = (record.len() as u64 / BLOCK_BYTES) as u32;
        if blocks > zone.journal_blocks - commits.journal_block {
            let (active, spare) = (commits.head.spare, commits.head.active);
            return self.checkpoint(commits, active, spare);
        }
        for offset in zone.journals(commits.journal_block) {
            self.base.cached.write_all_at(&record, offset)?;
        }
        commits.journal_block += blocks;
        self.base.cached.sync_data()
    }

    /// Writes the directory anew, into a zone; the one after it goes to another.
    fn checkpoint(&self, commits: &mut CommitState, active: ContainerZone, spare: ContainerZone) -> io::Result<()> {
        let mut bytes = encode_checkpoint(&commits.directory);
        let (checkpoint_bytes, checkpoint_sum) = (bytes.len() as u64, crc32c::crc32c(&bytes));
        if checkpoint_bytes > active.checkpoint_bytes_max() {
            return Err(io::Error::other("the directory has outgrown its room"));
        }
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES as usize), 0);
        let base = &self.base.cached;
        for offset in active.checkpoints() {
            base.write_all_at(&bytes, offset)?;
        }
        base.sync_data()?;
        let (generation, sequence) = (commits.head.generation + 1, commits.sequence);
        let head = ContainerHead { generation, sequence, active, spare, checkpoint_bytes, checkpoint_sum };
        // The other one tells of the zone before until this one is durable.
        let block = generation % 2;
        base.write_all_at(&head.encode(), block * BLOCK_BYTES)?;
        base.sync_data()?;
        base.write_all_at(&head.encode(), (1 - block) * BLOCK_BYTES)?;
        commits.head = head;
        commits.journal_block = 0;
        Ok(())
    }

    /// A checkpoint of what was committed.
    pub(super) fn checkpoint_anew(&self) -> io::Result<()> {
        let mut commits = self.commits.lock();
        let (active, spare) = (commits.head.spare, commits.head.active);
        self.checkpoint(&mut commits, active, spare).inspect_err(|error| self.fail(error))
    }

    /// Gives the directory room for a checkpoint of so many bytes. Fails if the disk has no room for it, and then nothing has happened.
    pub(super) fn widen(&self, bytes: u64) -> io::Result<()> {
        let mut commits = self.commits.lock();
        self.check()?;
        if commits.head.active.checkpoint_bytes_max() >= bytes {
            return Ok(());
        }
        let blocks = (2 * bytes.div_ceil(BLOCK_BYTES)).next_power_of_two();
        let checkpoint_blocks = u32::try_from(blocks).ok().filter(|blocks| *blocks <= ZONE_BLOCKS_MAX);
        let checkpoint_blocks = checkpoint_blocks
            .ok_or_else(|| io::Error::other(format!("{} has too many files for one file", self.path.display())))?;
        let journal_blocks = commits.head.active.journal_blocks;
        let zone = |start: u64| ContainerZone { start, checkpoint_blocks, journal_blocks };
        let blocks = zone(0).run().blocks;
        let runs = [(); 2].map(|()| self.state().space.take(blocks, blocks, None));
        // All of it: a commit must not run out of room.
        if let Err(error) = runs.iter().try_for_each(|run| self.write_zeros(run)) {
            runs.iter().for_each(|run| self.state().space.give(*run));
            return Err(error);
        }
        let before = [commits.head.active.run(), commits.head.spare.run()];
        let [active, spare] = runs.map(|run| zone(run.start));
        self.checkpoint(&mut commits, active, spare).inspect_err(|error| self.fail(error))?;
        let mut state = self.state();
        before.iter().for_each(|run| state.space.give(*run));
        state.checkpoint_bytes_max = active.checkpoint_bytes_max();
        Ok(())
    }

    fn write_zeros(&self, run: &BlockRun) -> io::Result<()> {
        let zeros = vec![0; ZEROS_BYTES.min(run.bytes() as usize)];
        let mut at = 0;
        while at < run.bytes() {
            let piece = (run.bytes() - at).min(zeros.len() as u64);
            self.base.cached.write_all_at(&zeros[..piece as usize], run.offset() + at)?;
            at += piece;
        }
        Ok(())
    }
}
