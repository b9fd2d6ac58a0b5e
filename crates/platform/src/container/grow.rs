//! Reading and writing the bytes of files, and their growth.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::directory::{BlockRun, blocks_of};
use super::engine::OpenContainer;
use super::inode::{InnerInode, InodeMeta, pieces_of, push_run};
use super::layout::{BLOCK_BYTES, RUN_BYTES};
use crate::File;

/// Blocks that a file which grows gets at least and at most, so that it has few runs: as many as it has already between these.
const GROWTH_BLOCKS: (u64, u64) = (16, 4096);

/// Runs that one write can add to a file.
const RUNS_ADDED_MAX: usize = 64;

/// Bytes between the end of a file and a write after it from which on they get blocks that were never written, instead of zeros.
const HOLE_BYTES_MIN: u64 = 1 << 20;

/// Bytes of zeros that are written at once.
const ZEROS_BYTES: usize = 64 << 10;

/// How the container's file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteKind {
    /// Through the system's cache.
    Cached,
    /// Past it.
    Direct,
    /// Durable with the call.
    Durable,
}

/// Where a file's new blocks may come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Anywhere,
    /// Free blocks alone: the disk has no more.
    FreeBlocks,
}

impl OpenContainer {
    fn base(&self, kind: WriteKind) -> &dyn File {
        match kind {
            WriteKind::Cached => &*self.base.cached,
            WriteKind::Direct => &*self.base.direct,
            WriteKind::Durable => &*self.base.durable,
        }
    }

    pub(super) fn read(&self, inode: &InnerInode, kind: WriteKind, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let base = self.base(if kind == WriteKind::Durable { WriteKind::Cached } else { kind });
        let length = buffer.len() as u64;
        if let Some(place) = inode.single_offset(offset, length) {
            return base.read_exact_at(buffer, place);
        }
        let pieces = inode.ranges(offset, length).ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut rest = buffer;
        for piece in pieces {
            let (part, after) = rest.split_at_mut(piece.bytes as usize);
            base.read_exact_at(part, piece.offset)?;
            rest = after;
        }
        Ok(())
    }

    /// Writes all at an offset. Returns whether the file has grown, so that a commit is needed before that is durable.
    pub(super) fn write(&self, inode: &Arc<InnerInode>, kind: WriteKind, data: &[u8], offset: u64) -> io::Result<bool> {
        self.check()?;
        let length = data.len() as u64;
        if length == 0 {
            return Ok(false);
        }
        if let Some(place) = inode.single_offset(offset, length) {
            return self.write_base(kind, data, place).map(|()| false);
        }
        if let Some(pieces) = inode.ranges(offset, length) {
            let pieces: Vec<(u64, u64)> = pieces.iter().map(|piece| (piece.offset, piece.bytes)).collect();
            return self.write_pieces(kind, data, &pieces).map(|()| false);
        }
        let mut spare = inode.growing.lock();
        match self.grow(inode, &mut spare, (kind, Source::Anywhere), data, offset) {
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                // What was removed and not committed yet is room, too.
                self.commit()?;
                self.grow(inode, &mut spare, (kind, Source::FreeBlocks), data, offset)?;
            }
            done => done?,
        }
        Ok(true)
    }

    fn write_base(&self, kind: WriteKind, data: &[u8], place: u64) -> io::Result<()> {
        match kind {
            WriteKind::Durable => self.base.durable.write_durable_at(data, place).inspect_err(|error| {
                // Past the cache it loses what it wrote and nothing else; through it, whatever was to be synced.
                if !self.base.durable_is_direct && error.kind() != io::ErrorKind::StorageFull {
                    self.fail(error);
                }
            }),
            _ => {
                let written = self.base(kind).write_all_at(data, place);
                self.writes.fetch_add(1, Ordering::AcqRel);
                written
            }
        }
    }

    fn write_pieces(&self, kind: WriteKind, data: &[u8], pieces: &[(u64, u64)]) -> io::Result<()> {
        let mut rest = data;
        for (place, bytes) in pieces {
            let (part, after) = rest.split_at(*bytes as usize);
            self.write_base(kind, part, *place)?;
            rest = after;
        }
        Ok(())
    }

    /// Writes where the file has to get longer for it: blocks first, then the bytes, then the length, so that nothing else is ever read there.
    fn grow(
        &self,
        inode: &Arc<InnerInode>,
        spare: &mut Option<BlockRun>,
        (kind, source): (WriteKind, Source),
        data: &[u8],
        offset: u64,
    ) -> io::Result<()> {
        let before = inode.meta();
        let end = offset.checked_add(data.len() as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        let hole = offset.saturating_sub(before.bytes);
        let mut runs = before.runs.clone();
        let needed = blocks_of(end.max(before.bytes)) - before.blocks();
        let is_hole = hole >= HOLE_BYTES_MIN && source == Source::Anywhere;
        let taken = self.take_blocks(&before, spare, needed, (source, is_hole))?;
        taken.iter().for_each(|run| push_run(&mut runs, *run));
        let zeros_end = if is_hole { offset.min(before.blocks() * BLOCK_BYTES) } else { offset };
        let written = self.write_zeros_at(&runs, before.bytes, zeros_end).and_then(|()| {
            let pieces = pieces_of(&runs, offset, data.len() as u64);
            let pieces: Vec<(u64, u64)> = pieces.iter().map(|piece| (piece.offset, piece.bytes)).collect();
            self.write_pieces(kind, data, &pieces)
        });
        let mut state = self.state();
        match written {
            Ok(()) => {
                let runs_added = runs.len() - before.runs.len();
                inode.publish(end.max(before.bytes), runs);
                state.note_grown(inode, runs_added);
            }
            Err(_) => {
                taken.iter().chain(spare.take().iter()).for_each(|run| state.space.give(*run));
            }
        }
        written
    }

    /// Blocks for a file that grows, beginning with those that are set apart for it; more than it needs are set apart.
    fn take_blocks(
        &self,
        before: &InodeMeta,
        spare: &mut Option<BlockRun>,
        needed: u64,
        (source, is_hole): (Source, bool),
    ) -> io::Result<Vec<BlockRun>> {
        let mut taken = Vec::new();
        if needed == 0 {
            return Ok(taken);
        }
        self.reclaim();
        let mut state = self.state_with_room(RUN_BYTES * RUNS_ADDED_MAX as u64)?;
        if is_hole {
            spare.take().into_iter().for_each(|run| state.space.give(run));
            return Ok(vec![state.space.take_zeros(needed)]);
        }
        let mut left = needed;
        if let Some(run) = spare.take() {
            let used = run.blocks.min(left);
            taken.push(BlockRun { start: run.start, blocks: used });
            left -= used;
            let rest = BlockRun { start: run.start + used, blocks: run.blocks - used };
            *spare = (rest.blocks > 0).then_some(rest);
        }
        while left > 0 {
            let after = taken.last().or(before.runs.last()).map(BlockRun::end);
            let wanted = left.max(before.blocks().clamp(GROWTH_BLOCKS.0, GROWTH_BLOCKS.1));
            let run = match source {
                _ if taken.len() >= RUNS_ADDED_MAX => None,
                Source::Anywhere => Some(state.space.take(left, wanted, after)),
                Source::FreeBlocks => state.space.take_free(left),
            };
            let Some(run) = run else {
                taken.into_iter().for_each(|run| state.space.give(run));
                return Err(io::ErrorKind::StorageFull.into());
            };
            let used = run.blocks.min(left);
            taken.push(BlockRun { start: run.start, blocks: used });
            left -= used;
            let rest = BlockRun { start: run.start + used, blocks: run.blocks - used };
            *spare = (rest.blocks > 0).then_some(rest);
        }
        Ok(taken)
    }

    /// Writes zeros to bytes of a file with such blocks.
    fn write_zeros_at(&self, runs: &[BlockRun], from: u64, to: u64) -> io::Result<()> {
        let zeros = vec![0; ZEROS_BYTES.min(to.saturating_sub(from) as usize)];
        for piece in pieces_of(runs, from, to.saturating_sub(from)) {
            let mut at = 0;
            while at < piece.bytes {
                let bytes = (piece.bytes - at).min(zeros.len() as u64);
                self.write_base(WriteKind::Cached, &zeros[..bytes as usize], piece.offset + at)?;
                at += bytes;
            }
        }
        Ok(())
    }

    /// Makes everything written to a file durable, and how long it is.
    pub(super) fn sync(&self, inode: &InnerInode) -> io::Result<()> {
        // One without a durable name needs no durable length yet: both come with the name.
        if inode.is_committed.load(Ordering::Acquire) && inode.has_grown() { self.commit() } else { self.sync_writes() }
    }

    /// The last handle that may write to a file is gone: what was set apart for it is free.
    pub(super) fn end_growth(&self, inode: &InnerInode) {
        let mut spare = inode.growing.lock();
        if let Some(run) = spare.take() {
            self.state().space.give(run);
        }
    }
}
