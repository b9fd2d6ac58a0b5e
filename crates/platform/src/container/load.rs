//! Reading what a container holds: the newest head, its checkpoint, and the journal after it.

use std::io;

use super::directory::{BlockRun, ContainerDirectory};
use super::layout::{
    BLOCK_BYTES, ContainerHead, ContainerZone, FoundRecord, HEAD_BLOCKS, Impossible, decode_checkpoint, find_record,
};
use crate::File;

/// Bytes of a head that are read.
const HEAD_READ_BYTES: u64 = 512;

/// A container's directory, as far as it was committed.
#[derive(Debug)]
pub(super) struct LoadedContainer {
    pub(super) head: ContainerHead,
    pub(super) directory: ContainerDirectory,
    /// Commits so far.
    pub(super) sequence: u64,
    /// Where in the journals the next record goes.
    pub(super) journal_block: u32,
    /// Blocks in use, in order.
    pub(super) used: Vec<BlockRun>,
}

impl From<Impossible> for io::Error {
    fn from(impossible: Impossible) -> Self {
        Self::new(io::ErrorKind::InvalidData, format!("at offset {}: {}", impossible.offset, impossible.what))
    }
}

fn impossible(offset: u64, what: impl Into<String>) -> io::Error {
    Impossible::new(offset, what).into()
}

/// The newest head.
pub(super) fn read_head(file: &dyn File) -> io::Result<ContainerHead> {
    let size = file.size_bytes()?;
    if size == 0 {
        let what = "the file is empty, and no one-file database; remove it to have one made";
        return Err(impossible(0, what));
    }
    if size < HEAD_BLOCKS * BLOCK_BYTES {
        return Err(impossible(size, "the file is cut, or no one-file database: expected two heads"));
    }
    let mut why = Vec::new();
    let mut newest: Option<ContainerHead> = None;
    for block in 0..2 {
        let mut bytes = vec![0; HEAD_READ_BYTES as usize];
        file.read_exact_at(&mut bytes, block * BLOCK_BYTES)?;
        match ContainerHead::decode(&bytes) {
            Ok(head) if newest.is_none_or(|newest| newest.generation < head.generation) => newest = Some(head),
            Ok(_) => {}
            Err(what) => why.push(what),
        }
    }
    newest.ok_or_else(|| {
        let what = format!("this is no one-file database that can be read: its heads: {}", why.join("; "));
        impossible(0, what)
    })
}

/// Reads all of it. An error says what cannot be, and where.
pub(super) fn load(file: &dyn File) -> io::Result<LoadedContainer> {
    let head = read_head(file)?;
    let size = file.size_bytes()?;
    for zone in [&head.active, &head.spare] {
        let end = zone.run().end() * BLOCK_BYTES;
        if end > size {
            return Err(impossible(size, format!("the file is cut: its directory goes on to byte {end}")));
        }
    }
    let directory = read_checkpoint(file, &head)?;
    let mut loaded = LoadedContainer { head, directory, sequence: head.sequence, journal_block: 0, used: Vec::new() };
    loaded.read_on(file)?;
    loaded.check_end_of_journal(file)?;
    loaded.check_blocks(size)?;
    Ok(loaded)
}

/// The checkpoint: of the two copies one that is whole.
fn read_checkpoint(file: &dyn File, head: &ContainerHead) -> io::Result<ContainerDirectory> {
    let places = head.active.checkpoints();
    for offset in places {
        let mut bytes = vec![0; head.checkpoint_bytes as usize];
        file.read_exact_at(&mut bytes, offset)?;
        if crc32c::crc32c(&bytes) == head.checkpoint_sum {
            return Ok(decode_checkpoint(&bytes, offset)?);
        }
    }
    let [offset, other] = places;
    Err(impossible(
        offset,
        format!("the directory's checksum does not match, and neither does that of its copy at {other}"),
    ))
}

/// The record at a block of the journals: of the two copies one that is whole.
fn read_record(file: &dyn File, zone: &ContainerZone, block: u32, generation: u64) -> io::Result<Option<FoundRecord>> {
    for offset in zone.journals(block) {
        // Most records have one block.
        let mut bytes = vec![0; BLOCK_BYTES as usize];
        file.read_exact_at(&mut bytes, offset)?;
        let length =
            bytes.get(24..28).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes));
        let blocks = (u64::from(length) + 32).div_ceil(BLOCK_BYTES);
        if blocks > u64::from(zone.journal_blocks - block) {
            continue;
        }
        if blocks > 1 {
            bytes.resize((blocks * BLOCK_BYTES) as usize, 0);
            file.read_exact_at(&mut bytes, offset)?;
        }
        if let Some(record) = find_record(&bytes, generation) {
            return Ok(Some(record));
        }
    }
    Ok(None)
}

impl LoadedContainer {
    /// Applies the records that follow. Returns whether there were any.
    pub(super) fn read_on(&mut self, file: &dyn File) -> io::Result<bool> {
        let zone = self.head.active;
        let before = self.sequence;
        while self.journal_block < zone.journal_blocks {
            let Some(record) = read_record(file, &zone, self.journal_block, self.head.generation)? else { break };
            let [offset, _] = zone.journals(self.journal_block);
            if record.sequence != self.sequence + 1 {
                let what = format!("expected commit {}, found {}", self.sequence + 1, record.sequence);
                return Err(impossible(offset, what));
            }
            let applied = record.edits().and_then(|edits| self.directory.apply(&edits));
            applied.map_err(|what| impossible(offset, what))?;
            self.sequence = record.sequence;
            self.journal_block += record.blocks;
        }
        Ok(self.sequence > before)
    }

    /// After the last record there must be none: a crash cuts only what was written last.
    fn check_end_of_journal(&self, file: &dyn File) -> io::Result<()> {
        let zone = self.head.active;
        for block in self.journal_block..zone.journal_blocks {
            let Some(record) = read_record(file, &zone, block, self.head.generation)? else { continue };
            let [offset, copy] = zone.journals(self.journal_block);
            let what = format!(
                "expected commit {} of the directory, and its copy at {copy}, as there is commit {} further on",
                self.sequence + 1,
                record.sequence
            );
            return Err(impossible(offset, what));
        }
        Ok(())
    }

    /// No block is used twice, and all of them are there.
    fn check_blocks(&mut self, size: u64) -> io::Result<()> {
        let [first, _] = self.head.active.checkpoints();
        let mut used = self.directory.used().map_err(|what| impossible(first, what))?;
        for zone in [&self.head.active, &self.head.spare] {
            if let Some(run) = used.iter().find(|run| run.overlaps(&zone.run())) {
                let what = format!("a file has block {}, which belongs to the directory", run.start);
                return Err(impossible(run.offset(), what));
            }
        }
        for entry in self.directory.files.values() {
            if let Some(end) = entry.ends().find(|end| *end > size) {
                return Err(impossible(size, format!("the file is cut: {} in it goes on to byte {end}", entry.name)));
            }
        }
        used.extend([self.head.active.run(), self.head.spare.run()]);
        used.sort_unstable();
        self.used = used;
        Ok(())
    }
}
