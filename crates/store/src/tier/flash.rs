//! Blocks on flash: one file of slots that survives restarts. Layout: `docs/formats/flash.md`.
//!
//! Nothing here is synced and nothing here is trusted: whatever a crash, another program or the disk did to the file, a
//! slot whose checksum does not match is a miss. Slots are reused first in, first out, but those read since the hand
//! last passed are spared once.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use platform::{File, Files, OpenMode};
use tracing_mutex::parkinglot::Mutex;

use super::blocks::{BlockKey, HashBlocks};

const MAGIC: &[u8; 8] = b"THWGFLSH";
const VERSION: u32 = 1;
const HEADER_BYTES: u64 = 4096;
/// A divisor of a disk's sector, so that an entry is written whole or not at all.
const ENTRY_BYTES: u64 = 64;
const TABLE_READ_ENTRIES: u64 = 16_384;
/// The largest number that a write may have.
const SEQUENCE_MAX: u64 = u64::MAX >> 1;

/// What the cache did on flash.
#[derive(Debug, Default)]
pub(super) struct FlashCounters {
    pub(super) writes: AtomicU64,
    /// Reads and writes that the disk refused.
    pub(super) errors: AtomicU64,
    /// Blocks that were not what was written.
    pub(super) damaged: AtomicU64,
}

pub(super) struct FlashCache {
    file: Arc<dyn File>,
    geometry: Geometry,
    state: Mutex<State>,
    pub(super) counters: FlashCounters,
}

/// Where things are in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Geometry {
    block_bytes: u64,
    slots: u32,
}

#[derive(Default)]
struct State {
    index: HashMap<BlockKey, u32, HashBlocks>,
    slots: Vec<Slot>,
    hand: u32,
    sequence: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    entry: Entry,
    condition: Condition,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Condition {
    #[default]
    Empty,
    Writing,
    Ready {
        referenced: bool,
    },
}

/// What the table says about a slot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Entry {
    key: BlockKey,
    length: u32,
    checksum: u32,
    /// Counts writes; tells the contents of a slot apart.
    sequence: u64,
}

impl Geometry {
    /// As many slots as fit.
    fn fit(block_bytes: u64, file_bytes: u64) -> Option<Self> {
        let slots = file_bytes.checked_sub(HEADER_BYTES * 2)? / (block_bytes + ENTRY_BYTES);
        let slots = u32::try_from(slots).unwrap_or(u32::MAX);
        (slots > 0).then_some(Self { block_bytes, slots })
    }

    fn entry_offset(slot: u32) -> u64 {
        HEADER_BYTES + u64::from(slot) * ENTRY_BYTES
    }

    fn slot_offset(&self, slot: u32) -> u64 {
        let table_end = Self::entry_offset(self.slots);
        table_end.next_multiple_of(HEADER_BYTES) + u64::from(slot) * self.block_bytes
    }

    fn header(&self) -> Vec<u8> {
        let mut header = MAGIC.to_vec();
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&self.slots.to_le_bytes());
        header.extend_from_slice(&self.block_bytes.to_le_bytes());
        header.extend_from_slice(&crc32c::crc32c(&header).to_le_bytes());
        header.resize(HEADER_BYTES as usize, 0);
        header
    }
}

impl Entry {
    fn encode(&self) -> [u8; ENTRY_BYTES as usize] {
        let mut bytes = Vec::with_capacity(ENTRY_BYTES as usize);
        bytes.extend_from_slice(&self.key.object.to_le_bytes());
        bytes.extend_from_slice(&self.key.number.to_le_bytes());
        bytes.extend_from_slice(&self.length.to_le_bytes());
        bytes.extend_from_slice(&self.checksum.to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        let mut entry = [0; ENTRY_BYTES as usize];
        entry.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        entry
    }

    /// `None` for what is no entry: a slot never written, or damage.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (object, rest) = bytes.split_first_chunk::<16>()?;
        let (number, rest) = rest.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (checksum, rest) = rest.split_first_chunk::<4>()?;
        let (sequence, rest) = rest.split_first_chunk::<8>()?;
        let (sum, _) = rest.split_first_chunk::<4>()?;
        let checked = bytes.get(..bytes.len() - rest.len())?;
        let key = BlockKey { object: u128::from_le_bytes(*object), number: u32::from_le_bytes(*number) };
        let entry = Self {
            key,
            length: u32::from_le_bytes(*length),
            checksum: u32::from_le_bytes(*checksum),
            sequence: u64::from_le_bytes(*sequence),
        };
        // Writes are counted on from the largest number: none may be so large that there is nothing after it.
        let is_counted = (1..=SEQUENCE_MAX).contains(&entry.sequence);
        (u32::from_le_bytes(*sum) == crc32c::crc32c(checked) && is_counted).then_some(entry)
    }
}

/// The block's name is part of the sum, so that a block in a wrong slot does not pass.
fn checksum(key: BlockKey, bytes: &[u8]) -> u32 {
    let sum = crc32c::crc32c(&key.object.to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &key.number.to_le_bytes());
    crc32c::crc32c_append(sum, bytes)
}

impl FlashCache {
    /// Opens the file, or makes it anew if it is missing, of another shape, or none of ours.
    pub(super) fn open(files: &dyn Files, path: &Path, file_bytes: u64, block_bytes: u64) -> io::Result<Self> {
        let geometry = Geometry::fit(block_bytes, file_bytes).ok_or_else(|| {
            let message = format!("{file_bytes} bytes have no room for a block of {block_bytes}");
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        let (file, state) = match files.open(path, OpenMode::Write) {
            Ok(file) => match load(&*file, geometry)? {
                Some(state) => (file, state),
                None => {
                    drop(file);
                    files.remove(path)?;
                    create(files, path, geometry)?
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(files, path, geometry)?,
            Err(error) => return Err(error),
        };
        Ok(Self { file, geometry, state: Mutex::new(state), counters: FlashCounters::default() })
    }

    pub(super) fn slots(&self) -> usize {
        self.geometry.slots as usize
    }

    /// Bytes of all blocks in it.
    pub(super) fn used_bytes(&self) -> u64 {
        self.state.lock().index.len() as u64 * self.geometry.block_bytes
    }

    pub(super) fn get(&self, key: BlockKey) -> Option<Vec<u8>> {
        let (number, entry) = self.state.lock().look_up(key)?;
        let mut bytes = vec![0; entry.length as usize];
        let read = self.file.read_exact_at(&mut bytes, self.geometry.slot_offset(number));
        let mut state = self.state.lock();
        if !state.still_holds(number, &entry) {
            // Reused while it was read.
            return None;
        }
        if read.is_err() {
            self.counters.errors.fetch_add(1, Ordering::Relaxed);
        } else if checksum(key, &bytes) == entry.checksum {
            return Some(bytes);
        } else {
            self.counters.damaged.fetch_add(1, Ordering::Relaxed);
        }
        state.empty(number);
        None
    }

    /// Keeps a block, if it is not there already. What cannot be written is not kept.
    pub(super) fn put(&self, key: BlockKey, bytes: &[u8]) {
        if bytes.is_empty() || bytes.len() as u64 > self.geometry.block_bytes {
            return;
        }
        let Some((number, sequence)) = self.state.lock().reserve(key) else {
            return;
        };
        let entry = Entry { key, length: bytes.len() as u32, checksum: checksum(key, bytes), sequence };
        // The block first: an entry without its block would cost a useless read after a restart.
        let written = self
            .file
            .write_all_at(bytes, self.geometry.slot_offset(number))
            .and_then(|()| self.file.write_all_at(&entry.encode(), Geometry::entry_offset(number)));
        let mut state = self.state.lock();
        if written.is_ok() {
            self.counters.writes.fetch_add(1, Ordering::Relaxed);
            state.fill(number, entry);
        } else {
            self.counters.errors.fetch_add(1, Ordering::Relaxed);
            state.empty(number);
        }
    }
}

impl State {
    fn look_up(&mut self, key: BlockKey) -> Option<(u32, Entry)> {
        let number = *self.index.get(&key)?;
        let slot = self.slots.get_mut(number as usize)?;
        slot.condition = Condition::Ready { referenced: true };
        Some((number, slot.entry))
    }

    fn still_holds(&self, number: u32, entry: &Entry) -> bool {
        let slot = self.slots.get(number as usize);
        slot.is_some_and(|slot| slot.entry == *entry && matches!(slot.condition, Condition::Ready { .. }))
    }

    fn empty(&mut self, number: u32) {
        if let Some(slot) = self.slots.get_mut(number as usize) {
            let key = slot.entry.key;
            *slot = Slot::default();
            if self.index.get(&key) == Some(&number) {
                self.index.remove(&key);
            }
        }
    }

    /// A slot to write a block to, and the write's number. `None` if the block is there, or if all slots are being
    /// written.
    fn reserve(&mut self, key: BlockKey) -> Option<(u32, u64)> {
        if self.look_up(key).is_some() {
            return None;
        }
        let count = self.slots.len() as u32;
        // Twice around: the first time may only take references away.
        for _ in 0..u64::from(count) * 2 {
            let number = self.hand;
            self.hand = (self.hand + 1) % count.max(1);
            let slot = self.slots.get_mut(number as usize)?;
            match &mut slot.condition {
                Condition::Writing => {}
                Condition::Ready { referenced } if *referenced => *referenced = false,
                Condition::Empty | Condition::Ready { .. } => {
                    self.empty(number);
                    let slot = self.slots.get_mut(number as usize)?;
                    slot.condition = Condition::Writing;
                    self.sequence += 1;
                    return Some((number, self.sequence));
                }
            }
        }
        None
    }

    fn fill(&mut self, number: u32, entry: Entry) {
        if self.index.contains_key(&entry.key) {
            // Another thread has written the same block meanwhile.
            self.empty(number);
        } else if let Some(slot) = self.slots.get_mut(number as usize) {
            *slot = Slot { entry, condition: Condition::Ready { referenced: false } };
            self.index.insert(entry.key, number);
        }
    }
}

fn create(files: &dyn Files, path: &Path, geometry: Geometry) -> io::Result<(Arc<dyn File>, State)> {
    let file = files.open(path, OpenMode::CreateNew)?;
    file.write_all_at(&geometry.header(), 0)?;
    // Gives the file its whole length at once.
    file.write_all_at(&[0], geometry.slot_offset(geometry.slots) - 1)?;
    Ok((file, State { slots: vec![Slot::default(); geometry.slots as usize], ..State::default() }))
}

/// `None` if the file is not of this shape.
fn load(file: &dyn File, geometry: Geometry) -> io::Result<Option<State>> {
    if file.size_bytes()? < geometry.slot_offset(geometry.slots) {
        return Ok(None);
    }
    let mut header = vec![0; HEADER_BYTES as usize];
    file.read_exact_at(&mut header, 0)?;
    if header != geometry.header() {
        return Ok(None);
    }
    let mut state = State { slots: vec![Slot::default(); geometry.slots as usize], ..State::default() };
    let mut number = 0;
    while number < geometry.slots {
        let count = u64::from(geometry.slots - number).min(TABLE_READ_ENTRIES);
        let mut table = vec![0; (count * ENTRY_BYTES) as usize];
        file.read_exact_at(&mut table, Geometry::entry_offset(number))?;
        for bytes in table.chunks(ENTRY_BYTES as usize) {
            if let Some(entry) = Entry::decode(bytes).filter(|entry| u64::from(entry.length) <= geometry.block_bytes) {
                state.adopt(number, entry);
            }
            number += 1;
        }
    }
    Ok(Some(state))
}

impl State {
    /// Takes over an entry of the table. Of two with the same key the later one counts.
    fn adopt(&mut self, number: u32, entry: Entry) {
        self.sequence = self.sequence.max(entry.sequence);
        if let Some(other) = self.index.get(&entry.key).copied() {
            if self.slots.get(other as usize).is_some_and(|slot| slot.entry.sequence > entry.sequence) {
                return;
            }
            self.empty(other);
        }
        self.fill(number, entry);
    }
}

/// Bytes of an entry before its checksum.
const CHECKED_BYTES: usize = 36;

/// Reads bytes as the entries of a table, each with a checksum that is right, and uses it: the entry for fuzzing.
///
/// # Panics
///
/// If what it finds contradicts itself: that is what a fuzzer looks for.
pub fn fuzz(bytes: &[u8]) {
    let entries = bytes.chunks(CHECKED_BYTES);
    let mut state = State { slots: vec![Slot::default(); entries.len()], ..State::default() };
    for (number, entry) in entries.enumerate() {
        let mut entry = entry.to_vec();
        entry.resize(CHECKED_BYTES, 0);
        entry.extend_from_slice(&crc32c::crc32c(&entry).to_le_bytes());
        if let Some(entry) = Entry::decode(&entry) {
            state.adopt(number as u32, entry);
            assert!(state.index.contains_key(&entry.key), "one entry of a key counts");
        }
    }
    for number in 0..3 {
        let key = BlockKey { object: 0, number };
        if let Some((slot, sequence)) = state.reserve(key) {
            state.fill(slot, Entry { key, length: 1, checksum: 0, sequence });
        }
    }
}

#[cfg(test)]
#[path = "flash_tests.rs"]
mod tests;
