//! Records of a file of epochs: a header, a directory, and blocks of values or changes of names.
//!
//! Layout: `docs/formats/epochs.md`.

use codec::{DecodeError, Reader};

use crate::error;

pub(crate) const FILE_MAGIC: &[u8; 8] = b"THWGEPOC";
const FILE_VERSION: u32 = 1;
pub(crate) const FILE_HEADER_BYTES: usize = 32;

const RECORD_MAGIC: u32 = 0x4350_4552;
pub(crate) const RECORD_HEADER_BYTES: usize = 56;

/// Records begin at multiples of this.
pub(crate) const ALIGN_BYTES: u64 = 8;

/// Bytes of a directory's entry.
pub(crate) const ENTRY_BYTES: usize = 16;

/// Bytes that a record's directory and blocks may have.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 30;

/// What the records of a file hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FileContent {
    /// Values of epochs.
    Values,
    /// Changes of names.
    Names,
}

impl FileContent {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Values => 0,
            Self::Names => 1,
        }
    }

    pub(crate) fn from_number(number: u64) -> Option<Self> {
        [Self::Values, Self::Names].into_iter().find(|content| u64::from(content.number()) == number)
    }
}

/// What the header of a file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    pub(crate) number: u64,
    pub(crate) database: u32,
    pub(crate) content: FileContent,
}

impl FileHeader {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = FILE_MAGIC.to_vec();
        bytes.extend_from_slice(&FILE_VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.database.to_le_bytes());
        bytes.extend_from_slice(&self.number.to_le_bytes());
        bytes.extend_from_slice(&u32::from(self.content.number()).to_le_bytes());
        let checksum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(bytes: &[u8; FILE_HEADER_BYTES]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        if reader.bytes(FILE_MAGIC.len())? != FILE_MAGIC {
            return Err(DecodeError { offset: 0, what: "expected the magic THWGEPOC" });
        }
        let (version, database, number, content) = (reader.u32()?, reader.u32()?, reader.u64()?, reader.u32()?);
        let checked = bytes.split_at(FILE_HEADER_BYTES - 4).0;
        if reader.u32()? != crc32c::crc32c(checked) {
            return Err(DecodeError { offset: FILE_HEADER_BYTES - 4, what: "checksum of the header does not match" });
        }
        if version != FILE_VERSION {
            return Err(DecodeError { offset: FILE_MAGIC.len(), what: error::NEWER });
        }
        let content = FileContent::from_number(content.into()).ok_or_else(|| reader.error(error::NEWER))?;
        Ok(Self { number, database, content })
    }
}

/// Where a record is: its checksum says that it was written there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) file: u64,
    pub(crate) offset: u64,
}

/// What the header of a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// Of values: their epoch.
    pub(crate) epoch: i64,
    /// What has a larger one was written later.
    pub(crate) sequence: u64,
    /// Bytes of the directory and all that follows it.
    pub(crate) body_bytes: u32,
    pub(crate) directory_bytes: u32,
    pub(crate) directory_checksum: u32,
    /// Of values: blocks, and the first one's number. Of names: changes.
    pub(crate) blocks: u32,
    pub(crate) first_block: u32,
    /// Of values: how many.
    pub(crate) values: u32,
    /// True if each block is followed by the next one, so that its entry is found by its number.
    pub(crate) is_dense: bool,
}

impl RecordHeader {
    fn to_bytes(self, position: Position) -> [u8; RECORD_HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(RECORD_HEADER_BYTES);
        bytes.extend_from_slice(&RECORD_MAGIC.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for number in [self.body_bytes, self.directory_bytes, self.directory_checksum, self.blocks, self.first_block] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.values.to_le_bytes());
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&u64::from(self.is_dense).to_le_bytes());
        let mut fixed = [0; RECORD_HEADER_BYTES];
        fixed.copy_from_slice(&bytes);
        let checksum = checksum(&fixed, position).to_le_bytes();
        if let Some(place) = fixed.get_mut(4..8) {
            place.copy_from_slice(&checksum);
        }
        fixed
    }

    /// `None` if no record was written there.
    pub(crate) fn parse(bytes: &[u8; RECORD_HEADER_BYTES], position: Position) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (magic, found) = (reader.u32().ok()?, reader.u32().ok()?);
        if magic != RECORD_MAGIC || found != checksum(bytes, position) {
            return None;
        }
        let mut number = || reader.u32().ok();
        let (body_bytes, directory_bytes, directory_checksum) = (number()?, number()?, number()?);
        let (blocks, first_block, values) = (number()?, number()?, number()?);
        let (epoch, sequence, flags) = (reader.u64().ok()? as i64, reader.u64().ok()?, reader.u64().ok()?);
        (directory_bytes <= body_bytes && body_bytes as usize <= BODY_BYTES_MAX).then_some(Self {
            epoch,
            sequence,
            body_bytes,
            directory_bytes,
            directory_checksum,
            blocks,
            first_block,
            values,
            is_dense: flags & 1 == 1,
        })
    }

    /// Bytes up to the next record.
    pub(crate) fn record_bytes(&self) -> u64 {
        (RECORD_HEADER_BYTES as u64 + u64::from(self.body_bytes)).next_multiple_of(ALIGN_BYTES)
    }
}

/// Of a header's bytes without their first eight, and of where it is.
fn checksum(bytes: &[u8; RECORD_HEADER_BYTES], position: Position) -> u32 {
    let place = [position.file.to_le_bytes(), position.offset.to_le_bytes()].concat();
    crc32c::crc32c_append(crc32c::crc32c(&place), bytes.split_at(8).1)
}

/// An entry of the directory of a record of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockEntry {
    pub(crate) block: u32,
    /// From the beginning of the directory.
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
    /// Of the block's bytes, and its number.
    pub(crate) checksum: u32,
}

impl BlockEntry {
    pub(crate) fn parse(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let [block, offset, length, checksum] = [0, 4, 8, 12].map(|at| {
            let number = bytes.get(at..at + 4).and_then(|bytes| bytes.first_chunk::<4>());
            number.map_or(0, |bytes| u32::from_le_bytes(*bytes))
        });
        Self { block, offset, bytes: length, checksum }
    }

    fn push(&self, out: &mut Vec<u8>) {
        [self.block, self.offset, self.bytes, self.checksum].iter().for_each(|number| out.extend(number.to_le_bytes()));
    }

    /// Returns whether bytes are those of the block.
    pub(crate) fn is_of(&self, bytes: &[u8]) -> bool {
        self.checksum == block_checksum(self.block, bytes)
    }
}

fn block_checksum(block: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&block.to_le_bytes()), bytes)
}

/// A record of values that is being made.
pub(crate) struct ValuesRecord {
    epoch: i64,
    entries: Vec<BlockEntry>,
    blocks: Vec<u8>,
    values: u32,
}

impl ValuesRecord {
    pub(crate) const fn new(epoch: i64) -> Self {
        Self { epoch, entries: Vec::new(), blocks: Vec::new(), values: 0 }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends a block of so many values, which `encode` appends to what it is given. Blocks come in order of their numbers.
    pub(crate) fn push(&mut self, block: u32, values: usize, encode: impl FnOnce(&mut Vec<u8>)) {
        let start = self.blocks.len();
        encode(&mut self.blocks);
        let bytes = self.blocks.get(start..).unwrap_or_default();
        let checksum = block_checksum(block, bytes);
        self.entries.push(BlockEntry { block, offset: start as u32, bytes: bytes.len() as u32, checksum });
        self.values += values as u32;
    }

    /// The header and all bytes of the record; fails if it is too large.
    pub(crate) fn finish(self, sequence: u64, position: Position) -> Result<FinishedRecord, &'static str> {
        let Self { epoch, entries, blocks, values } = self;
        let directory_bytes = entries.len() * ENTRY_BYTES;
        if directory_bytes + blocks.len() > BODY_BYTES_MAX {
            return Err("an epoch takes more than 1 GiB: write it in several requests");
        }
        let mut directory = Vec::with_capacity(directory_bytes);
        for entry in &entries {
            BlockEntry { offset: entry.offset + directory_bytes as u32, ..*entry }.push(&mut directory);
        }
        let first_block = entries.first().map_or(0, |entry| entry.block);
        let header = RecordHeader {
            epoch,
            sequence,
            body_bytes: (directory_bytes + blocks.len()) as u32,
            directory_bytes: directory_bytes as u32,
            directory_checksum: crc32c::crc32c(&directory),
            blocks: entries.len() as u32,
            first_block,
            values,
            is_dense: (first_block..).zip(&entries).all(|(block, entry)| block == entry.block),
        };
        Ok(FinishedRecord::new(header, position, &[&directory, &blocks]))
    }
}

/// A record as it is written.
pub(crate) struct FinishedRecord {
    pub(crate) header: RecordHeader,
    pub(crate) bytes: Vec<u8>,
}

impl FinishedRecord {
    fn new(header: RecordHeader, position: Position, parts: &[&[u8]]) -> Self {
        let mut bytes = Vec::with_capacity(header.record_bytes() as usize);
        bytes.extend_from_slice(&header.to_bytes(position));
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.resize(header.record_bytes() as usize, 0);
        Self { header, bytes }
    }

    /// One of changes of names: the body is its directory.
    pub(crate) fn of_names(changes: usize, body: &[u8], sequence: u64, position: Position) -> Self {
        let header = RecordHeader {
            epoch: 0,
            sequence,
            body_bytes: body.len() as u32,
            directory_bytes: body.len() as u32,
            directory_checksum: crc32c::crc32c(body),
            blocks: changes as u32,
            first_block: 0,
            values: 0,
            is_dense: false,
        };
        Self::new(header, position, &[body])
    }
}

/// Checks the body of a record: the directory, and each block of values.
pub(crate) fn check_body(content: FileContent, header: &RecordHeader, body: &[u8]) -> Result<(), &'static str> {
    let directory = body.get(..header.directory_bytes as usize).ok_or("directory missing")?;
    if crc32c::crc32c(directory) != header.directory_checksum {
        return Err("checksum of the directory does not match");
    }
    if content == FileContent::Names {
        return Ok(());
    }
    for entry in entries(directory) {
        let bytes = block_bytes(body, &entry).ok_or("block outside its record")?;
        if !entry.is_of(bytes) {
            return Err("checksum of a block does not match");
        }
    }
    Ok(())
}

/// The entries of a directory.
pub(crate) fn entries(directory: &[u8]) -> impl Iterator<Item = BlockEntry> {
    directory.as_chunks::<ENTRY_BYTES>().0.iter().map(BlockEntry::parse)
}

/// The bytes of a block in its record's body.
pub(crate) fn block_bytes<'b>(body: &'b [u8], entry: &BlockEntry) -> Option<&'b [u8]> {
    let start = entry.offset as usize;
    body.get(start..start.checked_add(entry.bytes as usize)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_files_come_back_and_any_flipped_bit_is_seen() {
        let header = FileHeader { number: 9, database: 3, content: FileContent::Names };
        let bytes: [u8; FILE_HEADER_BYTES] = header.to_bytes().try_into().unwrap();
        assert_eq!(FileHeader::parse(&bytes), Ok(header));
        let position = Position { file: 9, offset: 32 };
        let mut record = ValuesRecord::new(-4);
        record.push(7, 2, |out| out.extend_from_slice(b"abc"));
        record.push(8, 1, |out| out.push(9));
        let FinishedRecord { header: of_record, bytes: record } = record.finish(5, position).unwrap();
        assert!(of_record.is_dense && record.len() as u64 == of_record.record_bytes());
        let check = |bytes: &[u8]| {
            let found = RecordHeader::parse(bytes.first_chunk().unwrap(), position)?;
            let body = &bytes[RECORD_HEADER_BYTES..RECORD_HEADER_BYTES + found.body_bytes as usize];
            check_body(FileContent::Values, &found, body).ok().map(|()| found)
        };
        assert_eq!(check(&record), Some(of_record));
        assert_eq!(RecordHeader::parse(record.first_chunk().unwrap(), Position { offset: 40, ..position }), None);
        let used = RECORD_HEADER_BYTES + of_record.body_bytes as usize;
        for bit in 0..used * 8 {
            let mut damaged = record.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(check(&damaged), None, "bit {bit}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(FileHeader::parse(&damaged).is_err(), "bit {bit}");
        }
    }
}
