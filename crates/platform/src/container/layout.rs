//! The bytes of a container that say where everything is: heads, checkpoints of the directory, edits. Layout: `docs/formats/container.md`.

use super::directory::{BlockRun, ContainerDirectory, ContainerEntry, check_name};
use super::edits::{ContainerEdits, InnerEdit};

/// What everything in a container is a multiple of: that of direct reads and writes.
pub(super) const BLOCK_BYTES: u64 = crate::DIRECT_ALIGN_BYTES as u64;

/// Blocks before the first zone: two heads, who has the container open, one that is unused.
pub(super) const HEAD_BLOCKS: u64 = 4;

/// Which block says who has the container open.
pub(super) const USER_BLOCK: u64 = 2;

/// Blocks of the largest container: 4 PiB.
pub(super) const BLOCKS_MAX: u64 = 1 << 40;

/// Blocks of the largest checkpoint, and of the largest journal.
pub(super) const ZONE_BLOCKS_MAX: u32 = 1 << 16;

const MAGIC: &[u8; 8] = b"THWGFILE";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 84;
const EDIT_MAGIC: &[u8; 8] = b"THWGEDIT";
const EDIT_HEADER_BYTES: usize = 32;

/// Bytes of a checkpoint beside its entries.
pub(super) const CHECKPOINT_BYTES_MIN: u64 = 12;

/// Bytes of an entry beside its name and its runs.
const ENTRY_BYTES: u64 = 22;

/// Bytes of a run in an entry.
pub(super) const RUN_BYTES: u64 = 12;

/// Bytes that a file has in a checkpoint.
pub(super) const fn entry_bytes(name: &str, runs: usize) -> u64 {
    ENTRY_BYTES + name.len() as u64 + RUN_BYTES * runs as u64
}

/// Something in a container that cannot be: where, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Impossible {
    pub(super) offset: u64,
    pub(super) what: String,
}

impl Impossible {
    pub(super) fn new(offset: u64, what: impl Into<String>) -> Self {
        Self { offset, what: what.into() }
    }
}

/// Two equal halves, each a checkpoint of the directory and a journal of what changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContainerZone {
    pub(super) start: u64,
    pub(super) checkpoint_blocks: u32,
    pub(super) journal_blocks: u32,
}

impl ContainerZone {
    const fn half_blocks(&self) -> u64 {
        self.checkpoint_blocks as u64 + self.journal_blocks as u64
    }

    pub(super) const fn run(&self) -> BlockRun {
        BlockRun { start: self.start, blocks: 2 * self.half_blocks() }
    }

    /// Bytes of the largest checkpoint.
    pub(super) const fn checkpoint_bytes_max(&self) -> u64 {
        self.checkpoint_blocks as u64 * BLOCK_BYTES
    }

    /// Where in the container the checkpoints are.
    pub(super) fn checkpoints(&self) -> [u64; 2] {
        [0, 1].map(|half| (self.start + half * self.half_blocks()) * BLOCK_BYTES)
    }

    /// Where in the container a block of the journals is.
    pub(super) fn journals(&self, block: u32) -> [u64; 2] {
        let before = u64::from(self.checkpoint_blocks) + u64::from(block);
        [0, 1].map(|half| (self.start + half * self.half_blocks() + before) * BLOCK_BYTES)
    }

    fn is_possible(&self) -> bool {
        let is_size = |blocks: u32| (1..=ZONE_BLOCKS_MAX).contains(&blocks);
        is_size(self.checkpoint_blocks)
            && is_size(self.journal_blocks)
            && self.start >= HEAD_BLOCKS
            && self.start < BLOCKS_MAX - self.run().blocks
    }
}

/// What a container begins with, twice: which zone counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContainerHead {
    /// Grows with each checkpoint.
    pub(super) generation: u64,
    /// Commits before the checkpoint.
    pub(super) sequence: u64,
    pub(super) active: ContainerZone,
    /// The zone of the next checkpoint.
    pub(super) spare: ContainerZone,
    pub(super) checkpoint_bytes: u64,
    pub(super) checkpoint_sum: u32,
}

impl ContainerHead {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        for zone in [&self.active, &self.spare] {
            bytes.extend_from_slice(&zone.start.to_le_bytes());
            bytes.extend_from_slice(&zone.checkpoint_blocks.to_le_bytes());
            bytes.extend_from_slice(&zone.journal_blocks.to_le_bytes());
        }
        bytes.extend_from_slice(&self.checkpoint_bytes.to_le_bytes());
        // Reserved.
        bytes.extend_from_slice(&0_u64.to_le_bytes());
        bytes.extend_from_slice(&self.checkpoint_sum.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Reads a head; an error says why it is none.
    pub(super) fn decode(block: &[u8]) -> Result<Self, &'static str> {
        let mut reader = NumberReader { rest: block };
        let cut = "it is cut";
        if reader.take(8).ok_or(cut)? != MAGIC {
            return Err("expected THWGFILE");
        }
        let (version, block_bytes) = (reader.u32().ok_or(cut)?, reader.u32().ok_or(cut)?);
        if version > VERSION {
            return Err("it was written by a newer version of Thalweg");
        }
        let checked = block.get(..HEAD_BYTES).ok_or(cut)?;
        let sum = block.get(HEAD_BYTES..HEAD_BYTES + 4).ok_or(cut)?;
        if crc32c::crc32c(checked).to_le_bytes() != sum {
            return Err("its checksum does not match");
        }
        let head = Self::fields(&mut reader).ok_or(cut)?;
        let fits = head.checkpoint_bytes <= head.active.checkpoint_bytes_max();
        let is_possible = version == VERSION && u64::from(block_bytes) == BLOCK_BYTES && fits;
        let zones = [head.active, head.spare];
        if !is_possible || !zones.iter().all(ContainerZone::is_possible) || zones[0].run().overlaps(&zones[1].run()) {
            return Err("it has zones or sizes that cannot be");
        }
        if head.generation == u64::MAX || head.sequence > u64::MAX / 2 {
            return Err("it has numbers after which there is none");
        }
        Ok(head)
    }

    fn fields(reader: &mut NumberReader<'_>) -> Option<Self> {
        let (generation, sequence) = (reader.u64()?, reader.u64()?);
        let (active, spare) = (reader.zone()?, reader.zone()?);
        let (checkpoint_bytes, _) = (reader.u64()?, reader.u64()?);
        Some(Self { generation, sequence, active, spare, checkpoint_bytes, checkpoint_sum: reader.u32()? })
    }
}

/// Puts the checksum of a head right.
pub(super) fn fix_head(block: &mut [u8]) {
    if let Some((checked, rest)) = block.split_at_mut_checked(HEAD_BYTES)
        && let Some(sum) = rest.first_chunk_mut::<4>()
    {
        *sum = crc32c::crc32c(checked).to_le_bytes();
    }
}

/// Puts the checksum of a record at the beginning of some blocks right, with a generation and a sequence.
pub(super) fn fix_record(blocks: &mut [u8], generation: u64, sequence: u64) {
    let Some((header, payload)) = blocks.split_at_mut_checked(EDIT_HEADER_BYTES) else { return };
    let length = header.get(24..28).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let Some(payload) = payload.get(..length as usize) else { return };
    let fixed = record_header(generation, sequence, payload);
    header.iter_mut().zip(fixed).for_each(|(to, from)| *to = from);
}

/// A checkpoint of the directory.
pub(super) fn encode_checkpoint(directory: &ContainerDirectory) -> Vec<u8> {
    let mut bytes = directory.next_id.to_le_bytes().to_vec();
    bytes.extend_from_slice(&(directory.files.len() as u32).to_le_bytes());
    for (id, entry) in &directory.files {
        bytes.extend_from_slice(&id.to_le_bytes());
        bytes.extend_from_slice(&entry.bytes.to_le_bytes());
        bytes.extend_from_slice(&(entry.name.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(entry.runs.len() as u32).to_le_bytes());
        bytes.extend_from_slice(entry.name.as_bytes());
        push_runs(&entry.runs, &mut bytes);
    }
    bytes
}

fn push_runs(runs: &[BlockRun], bytes: &mut Vec<u8>) {
    for run in runs {
        bytes.extend_from_slice(&run.start.to_le_bytes());
        bytes.extend_from_slice(&(run.blocks as u32).to_le_bytes());
    }
}

/// Reads a checkpoint that begins at an offset of the container.
pub(super) fn decode_checkpoint(bytes: &[u8], offset: u64) -> Result<ContainerDirectory, Impossible> {
    let mut reader = NumberReader { rest: bytes };
    let at = |reader: &NumberReader<'_>| offset + (bytes.len() - reader.rest.len()) as u64;
    let cut = || Impossible::new(offset, "the checkpoint is cut");
    let (next_id, count) = (reader.u64().ok_or_else(cut)?, reader.u32().ok_or_else(cut)?);
    let mut directory = ContainerDirectory { next_id, ..ContainerDirectory::default() };
    for _ in 0..count {
        let place = at(&reader);
        let (id, entry) = entry(&mut reader).ok_or_else(cut)?.map_err(|what| Impossible::new(place, what))?;
        directory.add(id, entry).map_err(|what| Impossible::new(place, what))?;
    }
    if !reader.rest.is_empty() {
        return Err(Impossible::new(at(&reader), "expected the end of the checkpoint"));
    }
    Ok(directory)
}

fn entry(reader: &mut NumberReader<'_>) -> Option<Result<(u64, ContainerEntry), &'static str>> {
    let (id, bytes) = (reader.u64()?, reader.u64()?);
    let (name_bytes, runs) = (reader.u16()?, reader.u32()?);
    let name = reader.take(name_bytes as usize)?;
    let runs = reader.runs(runs)?;
    Some(check_name(name).map(|name| (id, ContainerEntry { name: name.to_owned(), bytes, runs })))
}

/// A record of the journal, filled up to whole blocks.
pub(super) fn encode_record(generation: u64, sequence: u64, edits: &ContainerEdits) -> Vec<u8> {
    let mut payload = edits.next_id.to_le_bytes().to_vec();
    payload.extend_from_slice(&(edits.files.len() as u32).to_le_bytes());
    payload.extend_from_slice(&(edits.names.len() as u32).to_le_bytes());
    for edit in &edits.files {
        payload.extend_from_slice(&edit.id.to_le_bytes());
        payload.extend_from_slice(&edit.bytes.to_le_bytes());
        payload.extend_from_slice(&edit.runs_kept.to_le_bytes());
        payload.extend_from_slice(&(edit.runs.len() as u32).to_le_bytes());
        push_runs(&edit.runs, &mut payload);
    }
    for (name, id) in &edits.names {
        payload.extend_from_slice(&id.unwrap_or(0).to_le_bytes());
        payload.extend_from_slice(&(name.len() as u16).to_le_bytes());
        payload.extend_from_slice(name.as_bytes());
    }
    let mut bytes = record_header(generation, sequence, &payload).to_vec();
    bytes.extend_from_slice(&payload);
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES as usize), 0);
    bytes
}

fn record_header(generation: u64, sequence: u64, payload: &[u8]) -> [u8; EDIT_HEADER_BYTES] {
    let mut bytes = EDIT_MAGIC.to_vec();
    bytes.extend_from_slice(&generation.to_le_bytes());
    bytes.extend_from_slice(&sequence.to_le_bytes());
    bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes), payload);
    bytes.extend_from_slice(&sum.to_le_bytes());
    let mut header = [0; EDIT_HEADER_BYTES];
    header.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    header
}

/// A record as its header tells of it.
pub(super) struct FoundRecord {
    pub(super) sequence: u64,
    pub(super) blocks: u32,
    payload: Vec<u8>,
}

/// The record of a generation at the beginning of blocks of a journal; `None` if none is there that is whole.
pub(super) fn find_record(blocks: &[u8], generation: u64) -> Option<FoundRecord> {
    let mut reader = NumberReader { rest: blocks };
    let magic = reader.take(8)?;
    let (of, sequence) = (reader.u64()?, reader.u64()?);
    let (length, sum) = (reader.u32()?, reader.u32()?);
    let payload = reader.take(length as usize)?;
    let checked = blocks.get(..EDIT_HEADER_BYTES - 4)?;
    let is_whole = magic == EDIT_MAGIC && of == generation;
    if !is_whole || crc32c::crc32c_append(crc32c::crc32c(checked), payload) != sum {
        return None;
    }
    let blocks = (EDIT_HEADER_BYTES + payload.len()).div_ceil(BLOCK_BYTES as usize) as u32;
    Some(FoundRecord { sequence, blocks, payload: payload.to_vec() })
}

impl FoundRecord {
    /// The changes; an error says why they cannot be.
    pub(super) fn edits(&self) -> Result<ContainerEdits, &'static str> {
        let mut reader = NumberReader { rest: &self.payload };
        let cut = "the record is cut";
        let next_id = reader.u64().ok_or(cut)?;
        let (files, names) = (reader.u32().ok_or(cut)?, reader.u32().ok_or(cut)?);
        let mut edits = ContainerEdits { next_id, ..ContainerEdits::default() };
        for _ in 0..files {
            edits.files.push(reader.file_edit().ok_or(cut)?);
        }
        for _ in 0..names {
            let (id, length) = (reader.u64().ok_or(cut)?, reader.u16().ok_or(cut)?);
            let name = check_name(reader.take(length as usize).ok_or(cut)?)?;
            edits.names.push((name.to_owned(), (id != 0).then_some(id)));
        }
        if reader.rest.is_empty() { Ok(edits) } else { Err("the record is longer than what it says") }
    }
}

/// Reads numbers one after the other.
struct NumberReader<'a> {
    rest: &'a [u8],
}

impl<'a> NumberReader<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(*self.take(4)?.first_chunk()?))
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(*self.take(2)?.first_chunk()?))
    }

    fn zone(&mut self) -> Option<ContainerZone> {
        let start = self.u64()?;
        Some(ContainerZone { start, checkpoint_blocks: self.u32()?, journal_blocks: self.u32()? })
    }

    fn runs(&mut self, count: u32) -> Option<Vec<BlockRun>> {
        // No more than there are bytes for: a count is believed only so far.
        let mut runs = NumberReader { rest: self.take((count as usize).checked_mul(RUN_BYTES as usize)?)? };
        let mut read = Vec::with_capacity(count as usize);
        for _ in 0..count {
            read.push(BlockRun { start: runs.u64()?, blocks: u64::from(runs.u32()?) });
        }
        Some(read)
    }

    fn file_edit(&mut self) -> Option<InnerEdit> {
        let (id, bytes) = (self.u64()?, self.u64()?);
        let (runs_kept, runs) = (self.u32()?, self.u32()?);
        Some(InnerEdit { id, bytes, runs_kept, runs: self.runs(runs)? })
    }
}
