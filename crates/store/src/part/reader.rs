//! Reading a part.

use std::sync::Arc;

use codec::{DecodeError, Reader};
use index::Slot;
use model::TimeRange;
use roaring::RoaringBitmap;

use super::ahead::ReadAhead;
use super::data::ResidentBytes;
use super::index_block::{self, BlockHandle, ChunkRef, KeyEntry};
use super::{
    FOOTER_BYTES, FOOTER_MAGIC, HEADER_BYTES, HEADER_MAGIC, PartData, PartInfo, PartKey, PartLabel, VERSION,
    VERSION_ONE,
};
use crate::StoreError;
use crate::cache::index_blocks::{CachedBlock, IndexBlockCache, Lookup};
use crate::part::chunk::{self, ChunkHeader, DecodeTarget, Rows};

/// Bytes of index, directory and groups that a part may have: more is damage.
const TAIL_BYTES_MAX: u64 = 1 << 32;

/// An open part: its index in memory, its chunks where [`PartData`] says.
pub(crate) struct Part {
    pub(crate) info: PartInfo,
    data: PartData,
    version: u32,
    index: ResidentBytes,
    index_offset: u64,
    blocks: Vec<BlockStart>,
    pub(crate) groups: RoaringBitmap,
}

/// An index block: its first key, and where it is in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockStart {
    first: PartKey,
    offset: usize,
    bytes: usize,
}

impl Part {
    /// Opens a part that the manifest names.
    pub(crate) fn open(data: PartData, info: PartInfo) -> Result<Self, StoreError> {
        let at_least = (HEADER_BYTES + FOOTER_BYTES) as u64;
        let footer_offset = info.bytes.checked_sub(FOOTER_BYTES as u64).filter(|_| info.bytes >= at_least);
        let footer_offset =
            footer_offset.ok_or_else(|| data.corrupt(info.bytes, format!("expected at least {at_least} bytes")))?;
        let header = BlockHandle { offset: 0, bytes: HEADER_BYTES as u32 };
        let footer = BlockHandle { offset: footer_offset, bytes: FOOTER_BYTES as u32 };
        let ends = data.read(&[header, footer])?;
        let [header, footer] = ends.as_slice() else {
            return Err(data.corrupt(0, "header and footer are missing"));
        };
        let version = check_header(header).map_err(|error| corrupt(&data, 0, &error))?;
        let footer = Footer::decode(footer, version).map_err(|error| corrupt(&data, footer_offset, &error))?;
        let tail_bytes = footer.tail_bytes();
        if footer.index_offset.checked_add(tail_bytes) != Some(footer_offset) || tail_bytes > TAIL_BYTES_MAX {
            return Err(data.corrupt(footer_offset, "index and footer do not fit together"));
        }
        Self::open_tail(data, info, version, &footer)
    }

    fn open_tail(data: PartData, info: PartInfo, version: u32, footer: &Footer) -> Result<Self, StoreError> {
        let directory_offset = footer.index_offset + footer.index_bytes;
        let groups_offset = directory_offset + footer.directory_bytes;
        let index = data.resident(BlockHandle { offset: footer.index_offset, bytes: footer.index_bytes as u32 })?;
        let handles = [
            BlockHandle { offset: directory_offset, bytes: footer.directory_bytes as u32 },
            BlockHandle { offset: groups_offset, bytes: footer.groups_bytes as u32 },
        ];
        let mut read = data.read(&handles)?.into_iter();
        let (directory, groups) = (read.next().unwrap_or_default(), read.next().unwrap_or_default());
        let check = |bytes: &[u8], expected: u32, offset: u64| {
            let found = crc32c::crc32c(bytes);
            let message = || format!("checksum: expected {expected:08x}, found {found:08x}");
            if found == expected { Ok(()) } else { Err(data.corrupt(offset, message())) }
        };
        check(&groups, footer.groups_checksum, groups_offset)?;
        let blocks = if version == VERSION_ONE {
            check(index.bytes(), footer.directory_checksum, footer.index_offset)?;
            blocks_version_one(index.bytes()).map_err(|error| corrupt(&data, footer.index_offset, &error))?
        } else {
            check(&directory, footer.directory_checksum, directory_offset)?;
            take_directory(&directory, index.bytes().len()).map_err(|error| corrupt(&data, directory_offset, &error))?
        };
        let groups = RoaringBitmap::deserialize_from(groups.as_slice())
            .map_err(|error| data.corrupt(groups_offset, error.to_string()))?;
        Ok(Self { info, data, version, index, index_offset: footer.index_offset, blocks, groups })
    }

    /// Returns whether its keys have summaries where those are worth it: version 1 had none.
    pub(crate) fn has_summaries(&self) -> bool {
        self.version != VERSION_ONE
    }

    /// Where its bytes come from.
    pub(crate) fn data(&self) -> &PartData {
        &self.data
    }

    /// Bytes that the open part takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.index.memory_bytes()
            + self.blocks.len() * size_of::<BlockStart>()
            + self.groups.serialized_size()
    }

    /// Calls with what the part has of a key: its chunks, and where its summary is. Blocks that are read again are cached decoded.
    pub(crate) fn find(
        &self,
        key: PartKey,
        index_blocks: &IndexBlockCache,
        mut take: impl FnMut(&[ChunkRef], Option<BlockHandle>),
    ) -> Result<(), StoreError> {
        self.each_block(key, |number| {
            let held = match index_blocks.lookup((self.info.id, number)) {
                Lookup::First => {
                    self.block(number, Some(key))?.iter().for_each(|entry| take(&entry.chunks, entry.summary));
                    return Ok(());
                }
                Lookup::Again => {
                    let block = Arc::new(CachedBlock::new(&self.block(number, None)?));
                    index_blocks.insert((self.info.id, number), block.clone());
                    block
                }
                Lookup::Cached(block) => block,
            };
            if let Some((chunks, summary)) = held.find(key) {
                take(chunks, summary);
            }
            Ok(())
        })
    }

    /// Appends a key's chunks that overlap a range.
    pub(crate) fn find_in(
        &self,
        key: PartKey,
        range: &TimeRange,
        index_blocks: &IndexBlockCache,
        chunks: &mut Vec<ChunkRef>,
    ) -> Result<(), StoreError> {
        self.find(key, index_blocks, |found, _| chunks.extend(found.iter().filter(|chunk| chunk.range.overlaps(range))))
    }

    /// Calls with each index block in which a key may be: one of version 1 may go on in the next block.
    fn each_block(
        &self,
        key: PartKey,
        mut each: impl FnMut(usize) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if !self.groups.contains(key.group) {
            return Ok(());
        }
        let from = self.blocks.partition_point(|block| block.first < key).saturating_sub(1);
        let blocks = self.blocks.iter().enumerate().skip(from);
        blocks.take_while(|(_, block)| block.first <= key).try_for_each(|(number, _)| each(number))
    }

    /// The entries of a block, or that of one key.
    fn block(&self, number: usize, wanted: Option<PartKey>) -> Result<Vec<KeyEntry>, StoreError> {
        let Some(block) = self.blocks.get(number) else {
            return Ok(Vec::new());
        };
        let base = self.index_offset + block.offset as u64;
        let bytes = self.index.bytes().get(block.offset..block.offset + block.bytes).unwrap_or_default();
        let payload = if self.version == VERSION_ONE {
            bytes
        } else {
            let Some((checksum, payload)) = bytes.split_first_chunk::<4>() else {
                return Err(self.data.corrupt(base, "an index block is cut short"));
            };
            if crc32c::crc32c(payload) != u32::from_le_bytes(*checksum) {
                return Err(self.data.corrupt(base, "checksum of an index block does not match"));
            }
            payload
        };
        let taken = index_block::take(&mut Reader::new(payload), self.version, wanted);
        let taken = taken.map_err(|error| corrupt(&self.data, base, &error))?;
        // Readers make room for what a handle says before they read it. Places only grow.
        let last = |entry: &KeyEntry| entry.summary.or_else(|| entry.chunks.last().map(|chunk| chunk.handle));
        let is_inside =
            |handle: BlockHandle| handle.offset.saturating_add(u64::from(handle.bytes)) <= self.index_offset;
        if !taken.iter().filter_map(last).all(is_inside) {
            return Err(self.data.corrupt(base, "an index block names bytes beyond the chunks"));
        }
        Ok(taken)
    }

    /// Reads chunks: all columns, or those of the given slots (sorted).
    pub(crate) fn read(
        &self,
        chunks: &[ChunkRef],
        slots: Option<&[Slot]>,
    ) -> Result<Vec<(ChunkHeader, Rows)>, StoreError> {
        let handles: Vec<BlockHandle> = chunks.iter().map(|chunk| chunk.handle).collect();
        let read = self.data.read(&handles)?;
        read.iter().zip(&handles).map(|(bytes, handle)| self.decode(bytes, *handle, slots)).collect()
    }

    /// Decodes chunks into blocks of rows, each as [`chunk::decode_into`] says; for one who reads many keys: of a local file what lies after them may be
    /// read with them. Returns how many rows that are.
    pub(crate) fn read_into(
        &self,
        chunks: &[ChunkRef],
        slots: &[Slot],
        ahead: &ReadAhead,
        target: &mut DecodeTarget,
    ) -> Result<usize, StoreError> {
        let mut rows = 0;
        let mut decode = |bytes: &[u8], handle: BlockHandle| {
            let decoded = chunk::decode_into(bytes, Some(slots), target)
                .map_err(|error| corrupt(&self.data, handle.offset, &error));
            rows += decoded?;
            Ok::<_, StoreError>(())
        };
        if !self.data.is_local() {
            let handles: Vec<BlockHandle> = chunks.iter().map(|chunk| chunk.handle).collect();
            self.data.read(&handles)?.iter().zip(&handles).try_for_each(|(bytes, handle)| decode(bytes, *handle))?;
            return Ok(rows);
        }
        let read = |handle| Ok(self.data.read(&[handle])?.pop().unwrap_or_default());
        for ChunkRef { handle, .. } in chunks {
            if let Some(bytes) = self.data.mapped(*handle).filter(|_| ahead.was_near(self.info.id, *handle)) {
                decode(bytes, *handle)?;
            } else {
                decode(&ahead.read(self.info.id, *handle, self.index_offset, read)?, *handle)?;
            }
        }
        Ok(rows)
    }

    fn decode(
        &self,
        bytes: &[u8],
        handle: BlockHandle,
        slots: Option<&[Slot]>,
    ) -> Result<(ChunkHeader, Rows), StoreError> {
        chunk::decode(bytes, slots).map_err(|error| corrupt(&self.data, handle.offset, &error))
    }

    /// Reads the bytes of a summary.
    pub(crate) fn read_summary(&self, handle: BlockHandle) -> Result<Vec<u8>, StoreError> {
        Ok(self.data.read(&[handle])?.pop().unwrap_or_default())
    }

    /// Has ranges of several parts fetched at once.
    pub(crate) fn warm<'a>(wanted: impl Iterator<Item = (&'a Self, BlockHandle)> + Clone) {
        PartData::warm(wanted.map(|(part, handle)| (&part.data, handle)));
    }

    /// An error about bytes at an offset of the part.
    pub(crate) fn corrupt(&self, offset: u64, error: &DecodeError) -> StoreError {
        corrupt(&self.data, offset, error)
    }

    /// The part's last bytes, from its index on.
    pub(crate) fn tail(&self) -> Result<Vec<u8>, StoreError> {
        let bytes = u32::try_from(self.info.bytes - self.index_offset);
        let bytes = bytes.map_err(|_| self.data.corrupt(self.index_offset, "an index beyond 4 GiB"))?;
        Ok(self.data.read(&[BlockHandle { offset: self.index_offset, bytes }])?.pop().unwrap_or_default())
    }

    /// Reads everything and checks it; the number of chunks.
    pub(crate) fn verify(&self) -> Result<u64, StoreError> {
        PartLabel::read(&self.data)?;
        let mut chunks = 0;
        for number in 0..self.blocks.len() {
            for entry in self.block(number, None)? {
                chunks += self.read(&entry.chunks, None)?.len() as u64;
                if let Some(handle) = entry.summary {
                    let bytes = self.read_summary(handle)?;
                    crate::part::summary::decode(&bytes, None).map_err(|error| self.corrupt(handle.offset, &error))?;
                }
            }
        }
        if chunks == self.info.chunks {
            return Ok(chunks);
        }
        Err(self.data.corrupt(0, format!("expected {} chunks, found {chunks}", self.info.chunks)))
    }
}

/// Bytes that a cursor reads at once: what it reads lies in the order of the keys.
const AHEAD_BYTES: u64 = 256 << 10;

/// Goes through a part's keys in order.
pub(crate) struct KeyCursor {
    part: Arc<Part>,
    next_block: usize,
    entries: std::vec::IntoIter<KeyEntry>,
    peeked: Option<KeyEntry>,
    /// Bytes that were read ahead, and where it begins in the part.
    ahead: (u64, Vec<u8>),
}

impl KeyCursor {
    /// Before the first key.
    pub(crate) fn new(part: Arc<Part>) -> Self {
        Self { part, next_block: 0, entries: Vec::new().into_iter(), peeked: None, ahead: (0, Vec::new()) }
    }

    /// The part.
    pub(crate) fn part(&self) -> &Arc<Part> {
        &self.part
    }

    /// Reads a chunk's or a summary's bytes, and with them some of those after.
    pub(crate) fn read(&mut self, handle: BlockHandle) -> Result<Vec<u8>, StoreError> {
        let (offset, length) = (handle.offset, handle.bytes as usize);
        let held = |ahead: &(u64, Vec<u8>)| {
            let from = usize::try_from(offset.checked_sub(ahead.0)?).ok()?;
            ahead.1.get(from..from.checked_add(length)?).map(<[u8]>::to_vec)
        };
        if let Some(bytes) = held(&self.ahead) {
            return Ok(bytes);
        }
        let chunks_end = self.part.index_offset.max(offset);
        let bytes = (chunks_end - offset).min(AHEAD_BYTES).max(u64::from(handle.bytes)) as u32;
        let read = self.part.data.read(&[BlockHandle { offset, bytes }])?.pop().unwrap_or_default();
        self.ahead = (offset, read);
        held(&self.ahead).ok_or_else(|| self.part.data.corrupt(offset, "a chunk is cut short"))
    }

    /// The key that [`KeyCursor::take`] would give next.
    pub(crate) fn peek(&mut self) -> Result<Option<PartKey>, StoreError> {
        if self.peeked.is_none() {
            self.peeked = self.advance()?;
        }
        Ok(self.peeked.as_ref().map(|entry| entry.key))
    }

    /// The next key and what the part has of it.
    pub(crate) fn take(&mut self) -> Result<Option<KeyEntry>, StoreError> {
        let Some(mut entry) = self.peeked.take().map_or_else(|| self.advance(), |entry| Ok(Some(entry)))? else {
            return Ok(None);
        };
        while let Some(next) = self.advance()? {
            if next.key != entry.key {
                self.peeked = Some(next);
                break;
            }
            entry.chunks.extend(next.chunks);
        }
        Ok(Some(entry))
    }

    fn advance(&mut self) -> Result<Option<KeyEntry>, StoreError> {
        loop {
            if let Some(entry) = self.entries.next() {
                return Ok(Some(entry));
            }
            if self.next_block >= self.part.blocks.len() {
                return Ok(None);
            }
            self.entries = self.part.block(self.next_block, None)?.into_iter();
            self.next_block += 1;
        }
    }
}

fn corrupt(data: &PartData, base: u64, error: &DecodeError) -> StoreError {
    data.corrupt(base + error.offset as u64, error.what)
}

/// The part's version.
pub(super) fn check_header(header: &[u8]) -> Result<u32, DecodeError> {
    let mut reader = Reader::new(header);
    if reader.bytes(8)? != HEADER_MAGIC {
        return Err(DecodeError { offset: 0, what: "expected the magic THWGPART" });
    }
    match reader.u32()? {
        version @ (VERSION_ONE | VERSION) => Ok(version),
        _ => Err(DecodeError { offset: 8, what: "expected version 1 or 2 of a part" }),
    }
}

pub(super) struct Footer {
    pub(super) index_offset: u64,
    index_bytes: u64,
    directory_bytes: u64,
    groups_bytes: u64,
    /// Of the index in version 1.
    directory_checksum: u32,
    groups_checksum: u32,
}

impl Footer {
    pub(super) fn decode(bytes: &[u8], version: u32) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let checked = bytes.get(..FOOTER_BYTES - 12).unwrap_or_default();
        let mut end = Reader::new(bytes.get(FOOTER_BYTES - 12..).unwrap_or_default());
        if end.u32()? != crc32c::crc32c(checked) {
            return Err(reader.error("checksum of the footer does not match"));
        }
        if end.bytes(8)? != FOOTER_MAGIC {
            return Err(reader.error("expected the magic PARTTHWG at the end"));
        }
        let (index_offset, index_bytes) = (reader.u64()?, reader.u64()?);
        let directory_bytes = if version == VERSION_ONE { 0 } else { reader.u64()? };
        let groups_bytes = reader.u64()?;
        reader.bytes(40)?;
        if version != VERSION_ONE {
            // The version stands at the same offset in both.
            reader.u32()?;
        }
        let (directory_checksum, groups_checksum) = (reader.u32()?, reader.u32()?);
        Ok(Self { index_offset, index_bytes, directory_bytes, groups_bytes, directory_checksum, groups_checksum })
    }

    pub(super) fn tail_bytes(&self) -> u64 {
        self.index_bytes.saturating_add(self.directory_bytes).saturating_add(self.groups_bytes)
    }
}

/// Bytes of index, directory and groups before a footer of the present version.
pub(super) fn tail_bytes(footer: &[u8]) -> Result<u64, DecodeError> {
    Footer::decode(footer, VERSION).map(|footer| footer.tail_bytes())
}

fn take_directory(directory: &[u8], index_bytes: usize) -> Result<Vec<BlockStart>, DecodeError> {
    let mut reader = Reader::new(directory);
    let count = reader.length(directory.len())?;
    let mut blocks = Vec::with_capacity(count);
    let (mut first, mut offset) = (PartKey::default(), 0usize);
    for _ in 0..count {
        first = index_block::take_key(&first, &mut reader)?;
        let bytes = reader.length(index_bytes - offset)?;
        blocks.push(BlockStart { first, offset, bytes });
        offset += bytes;
    }
    Ok(blocks)
}

/// Where blocks lie in an index: offset and bytes of each.
pub(super) fn spots(directory: &[u8], index_bytes: usize) -> Result<Vec<(usize, usize)>, DecodeError> {
    take_directory(directory, index_bytes)
        .map(|blocks| blocks.iter().map(|block| (block.offset, block.bytes)).collect())
}

fn blocks_version_one(index: &[u8]) -> Result<Vec<BlockStart>, DecodeError> {
    let mut reader = Reader::new(index);
    let mut blocks = Vec::new();
    while !reader.is_empty() {
        let offset = reader.offset();
        let entries = index_block::take(&mut reader, VERSION_ONE, None)?;
        let bytes = reader.offset() - offset;
        blocks.extend(entries.first().map(|entry| BlockStart { first: entry.key, offset, bytes }));
    }
    Ok(blocks)
}

/// Opens bytes as a part's index and as a chunk and reads everything in them: the entry for fuzzing. Checksums are
/// computed, not checked, so that a fuzzer gets after them.
pub fn fuzz(index: &[u8], chunk: &[u8]) {
    let _ = blocks_version_one(index);
    let _ = take_directory(index, index.len());
    let _ = index_block::take(&mut Reader::new(index), VERSION, None);
    let mut sealed = chunk.to_vec();
    sealed.extend_from_slice(&crc32c::crc32c(chunk).to_le_bytes());
    let _ = chunk::decode(&sealed, None);
    let _ = crate::part::summary::decode(&sealed, None);
}
