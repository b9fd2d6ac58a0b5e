//! Reading a part.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use codec::{DecodeError, Reader};
use index::Slot;
use model::TimeRange;
use platform::{File, Files, OpenMode};
use roaring::RoaringBitmap;

use super::{FOOTER_BYTES, FOOTER_MAGIC, HEADER_BYTES, HEADER_MAGIC, INDEX_BLOCK_ENTRIES, PartInfo, PartKey, VERSION};
use crate::StoreError;
use crate::chunk::{self, ChunkHeader, Rows};

/// Bytes of index and groups that a part may have: more is damage.
const INDEX_BYTES_MAX: u64 = 1 << 32;

/// Where a chunk is, and what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkRef {
    pub(crate) key: PartKey,
    pub(crate) range: TimeRange,
    /// Smallest sequence id of its rows: orders a group's chunks by age.
    pub(crate) sequence_first: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

impl Default for ChunkRef {
    fn default() -> Self {
        let key = PartKey { database: 0, measurement: 0, group: 0, block: 0 };
        Self { key, range: TimeRange::new(0, 0), sequence_first: 0, offset: HEADER_BYTES as u64, bytes: 0 }
    }
}

/// An open part: its index in memory, its chunks on disk.
pub(crate) struct Part {
    pub(crate) info: PartInfo,
    path: PathBuf,
    file: Arc<dyn File>,
    index: Vec<u8>,
    /// First key of each index block, and where the block starts.
    blocks: Vec<(PartKey, usize)>,
    pub(crate) groups: RoaringBitmap,
}

impl Part {
    /// Opens a part that the manifest names.
    pub(crate) fn open(files: &dyn Files, path: PathBuf, info: PartInfo) -> Result<Self, StoreError> {
        let file = files.open(&path, OpenMode::Read).map_err(StoreError::io("open part", &path))?;
        let size = file.size_bytes().map_err(StoreError::io("open part", &path))?;
        let footer_offset = size.checked_sub(FOOTER_BYTES as u64).filter(|offset| *offset >= HEADER_BYTES as u64);
        let footer_offset = footer_offset.ok_or_else(|| {
            StoreError::corrupt(&path, size, format!("expected at least {} bytes", HEADER_BYTES + FOOTER_BYTES))
        })?;
        let mut header = [0; HEADER_BYTES];
        let mut footer = [0; FOOTER_BYTES];
        file.read_exact_at(&mut header, 0).map_err(StoreError::io("read part", &path))?;
        file.read_exact_at(&mut footer, footer_offset).map_err(StoreError::io("read part", &path))?;
        check_magic(&header, &path)?;
        let footer = Footer::decode(&footer).map_err(|error| corrupt(&path, footer_offset, &error))?;
        let tail_bytes = footer.index_bytes.saturating_add(footer.groups_bytes);
        if footer.index_offset.checked_add(tail_bytes) != Some(footer_offset) || tail_bytes > INDEX_BYTES_MAX {
            return Err(StoreError::corrupt(&path, footer_offset, "index and footer do not fit together"));
        }
        let mut index = vec![0; footer.index_bytes as usize];
        let mut groups = vec![0; footer.groups_bytes as usize];
        let groups_offset = footer.index_offset + footer.index_bytes;
        file.read_exact_at(&mut index, footer.index_offset).map_err(StoreError::io("read part", &path))?;
        file.read_exact_at(&mut groups, groups_offset).map_err(StoreError::io("read part", &path))?;
        check_sum(&index, footer.index_checksum, &path, footer.index_offset)?;
        check_sum(&groups, footer.groups_checksum, &path, groups_offset)?;
        let blocks = block_starts(&index).map_err(|error| corrupt(&path, footer.index_offset, &error))?;
        let groups = RoaringBitmap::deserialize_from(groups.as_slice())
            .map_err(|error| StoreError::corrupt(&path, groups_offset, error.to_string()))?;
        Ok(Self { info, path, file, index, blocks, groups })
    }

    /// The chunks of a key that overlap the range.
    pub(crate) fn find(&self, key: PartKey, range: &TimeRange) -> Result<Vec<ChunkRef>, StoreError> {
        let mut found = Vec::new();
        if !self.groups.contains(key.group) || !self.info.range.overlaps(range) {
            return Ok(found);
        }
        let from = self.blocks.partition_point(|(first, _)| *first < key).saturating_sub(1);
        for (_, start) in self.blocks.iter().skip(from).take_while(|(first, _)| *first <= key) {
            self.visit_block(*start, |chunk| {
                if chunk.key == key && chunk.range.overlaps(range) {
                    found.push(chunk);
                }
            })?;
        }
        Ok(found)
    }

    /// All chunks, in order of keys.
    pub(crate) fn chunks(&self) -> Result<Vec<ChunkRef>, StoreError> {
        let mut all = Vec::with_capacity(self.blocks.len() * INDEX_BLOCK_ENTRIES);
        for (_, start) in &self.blocks {
            self.visit_block(*start, |chunk| all.push(chunk))?;
        }
        Ok(all)
    }

    fn visit_block(&self, start: usize, visit: impl FnMut(ChunkRef)) -> Result<(), StoreError> {
        let mut reader = Reader::new(self.index.get(start..).unwrap_or_default());
        read_block(&mut reader, visit).map_err(|error| corrupt(&self.path, start as u64, &error))
    }

    /// Reads a chunk: all columns, or those of the given slots (sorted).
    pub(crate) fn read(&self, chunk: &ChunkRef, slots: Option<&[Slot]>) -> Result<(ChunkHeader, Rows), StoreError> {
        let mut bytes = vec![0; chunk.bytes as usize];
        self.file.read_exact_at(&mut bytes, chunk.offset).map_err(StoreError::io("read part", &self.path))?;
        chunk::decode(&bytes, slots).map_err(|error| corrupt(&self.path, chunk.offset, &error))
    }
}

fn corrupt(path: &Path, base: u64, error: &DecodeError) -> StoreError {
    StoreError::corrupt(path, base + error.offset as u64, error.what)
}

fn check_magic(header: &[u8; HEADER_BYTES], path: &Path) -> Result<(), StoreError> {
    let mut reader = Reader::new(header);
    if reader.bytes(8) != Ok(HEADER_MAGIC) {
        return Err(StoreError::corrupt(path, 0, "expected the magic THWGPART"));
    }
    match reader.u32() {
        Ok(VERSION) => Ok(()),
        found => Err(StoreError::corrupt(path, 8, format!("expected version {VERSION}, found {found:?}"))),
    }
}

fn check_sum(bytes: &[u8], expected: u32, path: &Path, offset: u64) -> Result<(), StoreError> {
    let found = crc32c::crc32c(bytes);
    if found == expected {
        return Ok(());
    }
    Err(StoreError::corrupt(path, offset, format!("checksum: expected {expected:08x}, found {found:08x}")))
}

struct Footer {
    index_offset: u64,
    index_bytes: u64,
    groups_bytes: u64,
    index_checksum: u32,
    groups_checksum: u32,
}

impl Footer {
    fn decode(bytes: &[u8; FOOTER_BYTES]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let checked = bytes.get(..FOOTER_BYTES - 12).unwrap_or_default();
        let mut end = Reader::new(bytes.get(FOOTER_BYTES - 12..).unwrap_or_default());
        if end.u32()? != crc32c::crc32c(checked) {
            return Err(reader.error("checksum of the footer does not match"));
        }
        if end.bytes(8)? != FOOTER_MAGIC {
            return Err(reader.error("expected the magic PARTTHWG at the end"));
        }
        let (index_offset, index_bytes, groups_bytes) = (reader.u64()?, reader.u64()?, reader.u64()?);
        reader.bytes(40)?;
        Ok(Self {
            index_offset,
            index_bytes,
            groups_bytes,
            index_checksum: reader.u32()?,
            groups_checksum: reader.u32()?,
        })
    }
}

fn read_block(reader: &mut Reader<'_>, mut visit: impl FnMut(ChunkRef)) -> Result<(), DecodeError> {
    let count = reader.length(INDEX_BLOCK_ENTRIES)?;
    let mut last = ChunkRef::default();
    for _ in 0..count {
        let mut number = |before: u32| {
            let number = i64::from(before).checked_add(reader.varint_signed()?);
            number.and_then(|number| u32::try_from(number).ok()).ok_or_else(|| reader.error("key beyond 32 bits"))
        };
        let key = PartKey {
            database: number(last.key.database)?,
            measurement: number(last.key.measurement)?,
            group: number(last.key.group)?,
            block: number(last.key.block)?,
        };
        let start_ns = last.range.start_ns.wrapping_add(reader.varint_signed()?);
        let end_ns = start_ns.wrapping_add(reader.varint()? as i64);
        let sequence_first = last.sequence_first.wrapping_add(reader.varint_signed()? as u64);
        let gap = reader.varint()?;
        let offset = last.offset.checked_add(u64::from(last.bytes)).and_then(|offset| offset.checked_add(gap));
        let offset = offset.ok_or_else(|| reader.error("offset beyond 64 bits"))?;
        let bytes = u32::try_from(reader.varint()?).map_err(|_| reader.error("chunk beyond 4 GiB"))?;
        last = ChunkRef { key, range: TimeRange::new(start_ns, end_ns), sequence_first, offset, bytes };
        visit(last);
    }
    Ok(())
}

fn block_starts(index: &[u8]) -> Result<Vec<(PartKey, usize)>, DecodeError> {
    let mut reader = Reader::new(index);
    let mut starts = Vec::new();
    while !reader.is_empty() {
        let start = reader.offset();
        let mut first = None;
        read_block(&mut reader, |chunk| {
            first.get_or_insert(chunk.key);
        })?;
        starts.extend(first.map(|key| (key, start)));
    }
    Ok(starts)
}

/// Opens bytes as a part and reads everything in it: the entry for fuzzing. Checksums are computed, not checked, so that
/// a fuzzer gets behind them.
pub fn fuzz_part(index: &[u8], chunk: &[u8]) {
    let _ = block_starts(index);
    let mut sealed = chunk.to_vec();
    sealed.extend_from_slice(&crc32c::crc32c(chunk).to_le_bytes());
    let _ = chunk::decode(&sealed, None);
}
