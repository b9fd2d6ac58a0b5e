//! Writing parts into a file, key by key in order.

use std::path::PathBuf;
use std::sync::Arc;

use codec::varint;
use model::TimeRange;
use platform::{File, Files, OpenMode};
use roaring::RoaringBitmap;

use super::index_block::{self, BLOCK_KEYS, BlockHandle, ChunkRef, KeyEntry};
use super::{FOOTER_BYTES, FOOTER_MAGIC, HEADER_MAGIC, PartInfo, PartKey, PartLabel, VERSION};
use crate::StoreError;

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// Chunks of one index block, keys aside: a block is what a look-up decodes.
const BLOCK_CHUNKS: usize = 1024;

/// A file that parts are appended to.
pub(crate) struct FileWriter {
    path: PathBuf,
    file: Arc<dyn File>,
    buffer: Vec<u8>,
    written: u64,
}

impl FileWriter {
    /// Creates the file.
    pub(crate) fn create(files: &dyn Files, path: PathBuf) -> Result<Self, StoreError> {
        let file = files.open(&path, OpenMode::CreateNew).map_err(StoreError::io("create part", &path))?;
        Ok(Self { path, file, buffer: Vec::new(), written: 0 })
    }

    fn end(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES { self.write_out() } else { Ok(()) }
    }

    fn write_out(&mut self) -> Result<(), StoreError> {
        self.file.write_all_at(&self.buffer, self.written).map_err(StoreError::io("write part", &self.path))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes what was written durable. The file's name is durable after a sync of the folder.
    pub(crate) fn sync(mut self) -> Result<(), StoreError> {
        self.write_out()?;
        self.file.sync_data().map_err(StoreError::io("sync part", &self.path))
    }
}

/// A chunk, ready to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncodedChunk<'a> {
    pub(crate) range: TimeRange,
    pub(crate) sequences: (u64, u64),
    pub(crate) rows: u64,
    pub(crate) bytes: &'a [u8],
}

/// Writes one part. Until [`PartWriter::finish`] what it wrote is garbage.
pub(crate) struct PartWriter {
    info: PartInfo,
    block: Vec<KeyEntry>,
    block_chunks: usize,
    index: Vec<u8>,
    directory: Vec<u8>,
    last_first: PartKey,
    blocks: u64,
    groups: RoaringBitmap,
}

impl PartWriter {
    /// Begins a part at the end of a file; the label says what it will be.
    pub(crate) fn begin(file: &mut FileWriter, mut label: PartLabel) -> Result<Self, StoreError> {
        label.info.offset = file.end();
        let info = label.info;
        let label = label.encode();
        let mut header = HEADER_MAGIC.to_vec();
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&(label.len() as u32).to_le_bytes());
        file.push(&header)?;
        file.push(&label)?;
        Ok(Self {
            info,
            block: Vec::new(),
            block_chunks: 0,
            index: Vec::new(),
            directory: Vec::new(),
            last_first: PartKey::default(),
            blocks: 0,
            groups: RoaringBitmap::new(),
        })
    }

    /// Appends a key's chunks (at least one), oldest first, and its summary. Keys must ascend.
    pub(crate) fn push(
        &mut self,
        file: &mut FileWriter,
        key: PartKey,
        chunks: &[EncodedChunk<'_>],
        summary: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        let mut entry = KeyEntry { key, chunks: Vec::with_capacity(chunks.len()), summary: None };
        for chunk in chunks {
            let handle = self.push_bytes(file, chunk.bytes)?;
            entry.chunks.push(ChunkRef { range: chunk.range, sequence_first: chunk.sequences.0, handle });
            let info = &mut self.info;
            info.range.start_ns = info.range.start_ns.min(chunk.range.start_ns);
            info.range.end_ns = info.range.end_ns.max(chunk.range.end_ns);
            info.sequences = (info.sequences.0.min(chunk.sequences.0), info.sequences.1.max(chunk.sequences.1));
            info.chunks += 1;
            info.rows += chunk.rows;
        }
        entry.summary = summary.map(|summary| self.push_bytes(file, summary)).transpose()?;
        self.groups.insert(key.group);
        self.block_chunks += chunks.len();
        self.block.push(entry);
        if self.block.len() >= BLOCK_KEYS || self.block_chunks >= BLOCK_CHUNKS {
            self.close_block();
        }
        Ok(())
    }

    fn push_bytes(&self, file: &mut FileWriter, bytes: &[u8]) -> Result<BlockHandle, StoreError> {
        let handle = BlockHandle { offset: file.end() - self.info.offset, bytes: bytes.len() as u32 };
        file.push(bytes)?;
        Ok(handle)
    }

    fn close_block(&mut self) {
        let Some(first) = self.block.first().map(|entry| entry.key) else {
            return;
        };
        let mut payload = Vec::new();
        index_block::push(&self.block, &mut payload);
        index_block::push_key(&self.last_first, &first, &mut self.directory);
        varint::push(&mut self.directory, payload.len() as u64 + 4);
        self.index.extend_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
        self.index.extend_from_slice(&payload);
        self.last_first = first;
        self.blocks += 1;
        self.block.clear();
        self.block_chunks = 0;
    }

    /// Writes index and footer. The part is durable after [`FileWriter::sync`].
    pub(crate) fn finish(mut self, file: &mut FileWriter) -> Result<PartInfo, StoreError> {
        self.close_block();
        let index_offset = file.end() - self.info.offset;
        let mut directory = Vec::new();
        varint::push(&mut directory, self.blocks);
        directory.extend_from_slice(&self.directory);
        let mut groups = Vec::new();
        self.groups.serialize_into(&mut groups).map_err(StoreError::io("write part", &file.path))?;
        let info = &self.info;
        let mut footer = Vec::with_capacity(FOOTER_BYTES);
        for number in [
            index_offset,
            self.index.len() as u64,
            directory.len() as u64,
            groups.len() as u64,
            info.chunks,
            info.range.start_ns as u64,
            info.range.end_ns as u64,
            info.sequences.0,
            info.sequences.1,
        ] {
            footer.extend_from_slice(&number.to_le_bytes());
        }
        for number in [VERSION, crc32c::crc32c(&directory), crc32c::crc32c(&groups)] {
            footer.extend_from_slice(&number.to_le_bytes());
        }
        footer.extend_from_slice(&crc32c::crc32c(&footer).to_le_bytes());
        footer.extend_from_slice(FOOTER_MAGIC);
        for piece in [&self.index, &directory, &groups, &footer] {
            file.push(piece)?;
        }
        self.info.bytes = file.end() - self.info.offset;
        Ok(self.info)
    }
}
