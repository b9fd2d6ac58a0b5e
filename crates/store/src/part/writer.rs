//! Writing a part, chunk by chunk in order of keys.

use std::path::PathBuf;
use std::sync::Arc;

use codec::varint;
use model::TimeRange;
use platform::{File, Files, OpenMode};
use roaring::RoaringBitmap;

use super::{
    ChunkRef, FOOTER_BYTES, FOOTER_MAGIC, HEADER_BYTES, HEADER_MAGIC, INDEX_BLOCK_ENTRIES, PartInfo, PartKey, VERSION,
};
use crate::StoreError;

/// Bytes gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// Writes one part. Unless [`PartWriter::finish`] returns, the file is garbage that the next opening removes.
pub(crate) struct PartWriter {
    path: PathBuf,
    file: Arc<dyn File>,
    buffer: Vec<u8>,
    written: u64,
    entries: Vec<ChunkRef>,
    groups: RoaringBitmap,
    info: PartInfo,
}

impl PartWriter {
    /// Creates the file.
    pub(crate) fn create(files: &dyn Files, path: PathBuf, id: u64, shard: u32, level: u8) -> Result<Self, StoreError> {
        let file = files.open(&path, OpenMode::CreateNew).map_err(StoreError::io("create part", &path))?;
        let mut buffer = Vec::with_capacity(BUFFER_BYTES + BUFFER_BYTES / 8);
        buffer.extend_from_slice(HEADER_MAGIC);
        buffer.extend_from_slice(&VERSION.to_le_bytes());
        buffer.resize(HEADER_BYTES, 0);
        let info = PartInfo {
            id,
            shard,
            level,
            range: TimeRange::new(i64::MAX, i64::MIN),
            sequences: (u64::MAX, 0),
            chunks: 0,
            bytes: 0,
        };
        Ok(Self { path, file, buffer, written: 0, entries: Vec::new(), groups: RoaringBitmap::new(), info })
    }

    /// Appends a chunk; keys must not descend.
    pub(crate) fn push(
        &mut self,
        key: PartKey,
        range: TimeRange,
        sequences: (u64, u64),
        chunk: &[u8],
    ) -> Result<(), StoreError> {
        let offset = self.written + self.buffer.len() as u64;
        self.entries.push(ChunkRef { key, range, sequence_first: sequences.0, offset, bytes: chunk.len() as u32 });
        self.groups.insert(key.group);
        let info = &mut self.info;
        info.range.start_ns = info.range.start_ns.min(range.start_ns);
        info.range.end_ns = info.range.end_ns.max(range.end_ns);
        info.sequences = (info.sequences.0.min(sequences.0), info.sequences.1.max(sequences.1));
        info.chunks += 1;
        self.buffer.extend_from_slice(chunk);
        if self.buffer.len() >= BUFFER_BYTES { self.write_out() } else { Ok(()) }
    }

    /// Writes index and footer, and makes the file durable. Its name is durable after a sync of the folder.
    pub(crate) fn finish(mut self) -> Result<PartInfo, StoreError> {
        let index_offset = self.written + self.buffer.len() as u64;
        let mut index = Vec::new();
        for block in self.entries.chunks(INDEX_BLOCK_ENTRIES) {
            push_block(block, &mut index);
        }
        let mut groups = Vec::new();
        self.groups.serialize_into(&mut groups).map_err(StoreError::io("write part", &self.path))?;
        let mut footer = Vec::with_capacity(FOOTER_BYTES);
        let info = &self.info;
        for number in [
            index_offset,
            index.len() as u64,
            groups.len() as u64,
            info.chunks,
            info.range.start_ns as u64,
            info.range.end_ns as u64,
            info.sequences.0,
            info.sequences.1,
        ] {
            footer.extend_from_slice(&number.to_le_bytes());
        }
        footer.extend_from_slice(&crc32c::crc32c(&index).to_le_bytes());
        footer.extend_from_slice(&crc32c::crc32c(&groups).to_le_bytes());
        footer.extend_from_slice(&VERSION.to_le_bytes());
        footer.resize(FOOTER_BYTES - 12, 0);
        footer.extend_from_slice(&crc32c::crc32c(&footer).to_le_bytes());
        footer.extend_from_slice(FOOTER_MAGIC);
        for piece in [&index, &groups, &footer] {
            self.buffer.extend_from_slice(piece);
        }
        self.write_out()?;
        self.file.sync_data().map_err(StoreError::io("sync part", &self.path))?;
        self.info.bytes = self.written;
        Ok(self.info)
    }

    fn write_out(&mut self) -> Result<(), StoreError> {
        self.file.write_all_at(&self.buffer, self.written).map_err(StoreError::io("write part", &self.path))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Appends an index block: number of entries, then each entry, numbers as differences to the entry before.
fn push_block(entries: &[ChunkRef], out: &mut Vec<u8>) {
    varint::push(out, entries.len() as u64);
    let mut last = ChunkRef::default();
    for entry in entries {
        let keys = |chunk: &ChunkRef| [chunk.key.database, chunk.key.measurement, chunk.key.group, chunk.key.block];
        for (number, before) in keys(entry).into_iter().zip(keys(&last)) {
            varint::push_signed(out, i64::from(number) - i64::from(before));
        }
        varint::push_signed(out, entry.range.start_ns.wrapping_sub(last.range.start_ns));
        varint::push(out, entry.range.end_ns.wrapping_sub(entry.range.start_ns) as u64);
        varint::push_signed(out, entry.sequence_first.wrapping_sub(last.sequence_first) as i64);
        varint::push(out, entry.offset - last.offset - u64::from(last.bytes));
        varint::push(out, u64::from(entry.bytes));
        last = *entry;
    }
}
