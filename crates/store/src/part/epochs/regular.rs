//! One regular database: its names, and where the records of its epochs are.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use index::DatabaseId;
use tracing_mutex::parkinglot::{Mutex, RwLock};

use super::block::{self, Block, Scratch};
use super::definition::RegularDefinition;
use super::file::EpochFile;
use super::names::NameTable;
use super::record::{BlockEntry, ENTRY_BYTES, RECORD_HEADER_BYTES, RecordHeader, block_bytes, entries};
use crate::StoreError;
use crate::manifest::EpochEdit;

/// Bytes that are appended at most until the manifest knows, also without a pause.
const UNNOTED_BYTES_MAX: u64 = 64 << 20;

/// A record of an epoch's values.
#[derive(Clone)]
pub(crate) struct EpochRecord {
    pub(crate) file: Arc<EpochFile>,
    pub(crate) offset: u64,
    pub(crate) header: RecordHeader,
}

/// Records by epoch; of one epoch in the order in which they were written. Openings for reading only share them.
pub(crate) type Records = BTreeMap<i64, Arc<Vec<EpochRecord>>>;

/// How far a file was read at an opening.
#[derive(Clone)]
pub(crate) struct ScannedFile {
    pub(crate) file: Arc<EpochFile>,
    /// Where the last record that was read ends.
    pub(crate) end: u64,
    /// That record, and where it begins.
    pub(crate) last: Option<(u64, RecordHeader)>,
}

/// A file to which records are appended.
pub(crate) struct Active {
    pub(crate) file: Arc<EpochFile>,
    pub(crate) end: u64,
    /// Of values: the first and the last epoch in it.
    pub(crate) epochs: Option<(i64, i64)>,
    /// True once the file is open for writing: it is not before something is appended, so that readers of a folder need no copy of it.
    pub(crate) is_writable: bool,
    /// The end that the manifest knows of.
    pub(crate) reached: u64,
    /// The end when it was looked at last.
    pub(crate) looked_at: u64,
}

impl Active {
    pub(crate) const fn new(file: Arc<EpochFile>, end: u64) -> Self {
        Self { file, end, epochs: None, is_writable: false, reached: end, looked_at: end }
    }

    /// Returns whether the manifest should know how far the file is on disk: it does not, and nothing was appended since the last call.
    pub(crate) const fn is_unnoted(&mut self) -> bool {
        let is_idle = self.looked_at == self.end;
        self.looked_at = self.end;
        self.end > self.reached && (is_idle || self.end - self.reached > UNNOTED_BYTES_MAX)
    }

    /// The edit that says how far it is on disk.
    pub(crate) fn reach(&self) -> EpochEdit {
        EpochEdit::Reach { number: self.file.header.number, end: self.end }
    }

    pub(crate) fn note_epoch(&mut self, epoch: i64) {
        let (first, last) = self.epochs.unwrap_or((epoch, epoch));
        self.epochs = Some((first.min(epoch), last.max(epoch)));
    }
}

/// What a writer needs; its lock is held from looking at what is there until it is replaced.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) values: Option<Active>,
    pub(crate) names: Option<Active>,
    /// The last record's.
    pub(crate) sequence: u64,
    /// Set when the database is dropped: a write that has waited for it is not to begin files again.
    pub(crate) is_dropped: bool,
}

/// A regular database. Locks are taken in this order: `work`, `writer`, `names`, `records`; the manifest after them.
pub(crate) struct Regular {
    pub(crate) database: DatabaseId,
    pub(crate) definition: RwLock<RegularDefinition>,
    pub(crate) writer: Mutex<Writer>,
    /// Copied when it changes while another opening has it.
    pub(crate) names: RwLock<Arc<NameTable>>,
    /// As the names.
    pub(crate) records: RwLock<Arc<Records>>,
    /// The files as the opening found them, by their numbers: an opening for reading only goes on from there.
    pub(crate) scanned: Mutex<BTreeMap<u64, ScannedFile>>,
    /// Held while files are merged or go.
    pub(crate) work: Mutex<()>,
}

impl Regular {
    pub(crate) fn new(database: DatabaseId, definition: RegularDefinition, seed: u64) -> Self {
        Self {
            database,
            definition: RwLock::new(definition),
            writer: Mutex::default(),
            names: RwLock::new(Arc::new(NameTable::new(seed))),
            records: RwLock::default(),
            scanned: Mutex::default(),
            work: Mutex::default(),
        }
    }

    pub(crate) fn definition(&self) -> RegularDefinition {
        *self.definition.read()
    }

    /// The first and the last epoch in which something was written.
    pub(crate) fn extent(&self) -> Option<(i64, i64)> {
        let records = self.records.read();
        Some((*records.first_key_value()?.0, *records.last_key_value()?.0))
    }

    /// The records of some epochs.
    pub(crate) fn records_in(&self, epochs: RangeInclusive<i64>) -> Vec<(i64, Arc<Vec<EpochRecord>>)> {
        if epochs.is_empty() {
            return Vec::new();
        }
        self.records.read().range(epochs).map(|(epoch, records)| (*epoch, records.clone())).collect()
    }

    /// Bytes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let records = self.records.read().len() * (size_of::<EpochRecord>() + 64);
        self.names.read().memory_bytes() + records
    }
}

/// Adds a record to those of its epoch.
pub(crate) fn add_record(records: &mut Records, record: EpochRecord) {
    let of_epoch = Arc::make_mut(records.entry(record.header.epoch).or_default());
    let place = of_epoch.partition_point(|other| other.header.sequence <= record.header.sequence);
    of_epoch.insert(place, record);
}

/// All records, epoch by epoch.
pub(crate) fn all_records(records: &Records) -> impl Iterator<Item = &EpochRecord> {
    records.values().flat_map(|of_epoch| of_epoch.iter())
}

/// Keeps some of the records.
pub(crate) fn retain_records(records: &mut Records, keep: impl Fn(&EpochRecord) -> bool) {
    records.retain(|_, of_epoch| {
        if !of_epoch.iter().all(&keep) {
            Arc::make_mut(of_epoch).retain(&keep);
        }
        !of_epoch.is_empty()
    });
}

impl EpochRecord {
    /// Returns whether it may hold a block.
    fn may_have(&self, block: u32) -> bool {
        let RecordHeader { first_block, blocks, is_dense, .. } = self.header;
        block >= first_block && (!is_dense || u64::from(block) < u64::from(first_block) + u64::from(blocks))
    }

    fn body_at(&self) -> u64 {
        self.offset + RECORD_HEADER_BYTES as u64
    }

    fn entry(&self, block: u32) -> Result<Option<BlockEntry>, StoreError> {
        if !self.may_have(block) {
            return Ok(None);
        }
        if self.header.is_dense {
            let place = u64::from(block - self.header.first_block) * ENTRY_BYTES as u64;
            let mut bytes = [0; ENTRY_BYTES];
            self.file.read_into(&mut bytes, self.body_at() + place)?;
            return Ok(Some(BlockEntry::parse(&bytes)));
        }
        let directory = self.file.read(self.body_at(), self.header.directory_bytes as usize)?;
        if crc32c::crc32c(&directory) != self.header.directory_checksum {
            return Err(self.file.corrupt(self.offset, "checksum of the directory does not match"));
        }
        Ok(entries(&directory).find(|entry| entry.block == block))
    }
}

/// Reads blocks of epochs, one after another.
pub(crate) struct BlockReader {
    definition: RegularDefinition,
    scratch: Scratch,
    bytes: Vec<u8>,
    pub(crate) block: Block,
}

impl BlockReader {
    pub(crate) fn new(definition: RegularDefinition) -> Self {
        Self { definition, scratch: Scratch::default(), bytes: Vec::new(), block: Block::empty() }
    }

    /// Unites what the records of an epoch have of a block; returns whether any has some.
    pub(crate) fn read(&mut self, records: &[EpochRecord], block: u32) -> Result<bool, StoreError> {
        self.block.clear();
        let mut is_there = false;
        for record in records {
            let Some(entry) = record.entry(block)? else { continue };
            let in_body = u64::from(entry.offset) + u64::from(entry.bytes) <= u64::from(record.header.body_bytes);
            if !in_body || entry.block != block {
                return Err(record.file.corrupt(record.offset, "the directory names a block outside its record"));
            }
            self.bytes.resize(entry.bytes as usize, 0);
            record.file.read_into(&mut self.bytes, record.body_at() + u64::from(entry.offset))?;
            if !entry.is_of(&self.bytes) {
                return Err(record.file.corrupt(record.offset, "checksum of a block does not match"));
            }
            decode_block(self.definition, record, &self.bytes, &mut self.scratch, &mut self.block)?;
            is_there = true;
        }
        Ok(is_there)
    }

    /// Visits all blocks of an epoch, in order.
    pub(crate) fn each(
        &mut self,
        records: &[EpochRecord],
        visit: &mut dyn FnMut(u32, &Block) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut bodies = Vec::with_capacity(records.len());
        for record in records {
            let body = record.file.body(record.offset, &record.header)?;
            let directory = body.get(..record.header.directory_bytes as usize).unwrap_or_default();
            if crc32c::crc32c(directory) != record.header.directory_checksum {
                return Err(record.file.corrupt(record.offset, "checksum of the directory does not match"));
            }
            let of_record: Vec<BlockEntry> = entries(directory).collect();
            bodies.push((record, body, of_record));
        }
        let mut places = vec![0; bodies.len()];
        loop {
            let at = |(place, (_, _, entries)): (&usize, &(_, _, Vec<BlockEntry>))| {
                entries.get(*place).map(|entry| entry.block)
            };
            let Some(block) = places.iter().zip(&bodies).filter_map(at).min() else { return Ok(()) };
            self.block.clear();
            for (place, (record, body, entries)) in places.iter_mut().zip(&bodies) {
                let Some(entry) = entries.get(*place).filter(|entry| entry.block == block) else { continue };
                *place += 1;
                let bytes = block_bytes(body, entry).filter(|bytes| entry.is_of(bytes));
                let bytes =
                    bytes.ok_or_else(|| record.file.corrupt(record.offset, "checksum of a block does not match"))?;
                decode_block(self.definition, record, bytes, &mut self.scratch, &mut self.block)?;
            }
            visit(block, &self.block)?;
        }
    }
}

fn decode_block(
    definition: RegularDefinition,
    record: &EpochRecord,
    bytes: &[u8],
    scratch: &mut Scratch,
    block: &mut Block,
) -> Result<(), StoreError> {
    let decoded = block::decode(definition.kind, bytes, scratch, block);
    decoded.map_err(|error| record.file.corrupt(record.offset, error.what))
}
