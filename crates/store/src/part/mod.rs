//! Parts: immutable files of chunks, sorted by key. Layout: `docs/formats/part.md`.
//!
//! ```text
//! header   magic, version
//! chunks   one behind another, in order of their keys, each with its checksum
//! index    blocks of up to 128 entries: key, place and time range of each chunk
//! groups   roaring bitmap of the groups inside
//! footer   places and checksums of index and groups, totals, magic
//! ```

mod reader;
mod writer;

pub use reader::fuzz_part;
pub(crate) use reader::{ChunkRef, Part};
pub(crate) use writer::PartWriter;

use codec::{DecodeError, Reader, varint};
use index::{DatabaseId, GroupId, MeasurementId};
use model::TimeRange;

pub(crate) const HEADER_MAGIC: &[u8; 8] = b"THWGPART";
pub(crate) const FOOTER_MAGIC: &[u8; 8] = b"PARTTHWG";
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const FOOTER_BYTES: usize = 96;

/// Entries of an index block.
pub(crate) const INDEX_BLOCK_ENTRIES: usize = 128;

/// What parts are sorted by. Keys also hold the member block and the start time; groups have one member block so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PartKey {
    pub(crate) database: DatabaseId,
    pub(crate) measurement: MeasurementId,
    pub(crate) group: GroupId,
    /// Number of the member block.
    pub(crate) block: u32,
}

/// A part, as the manifest knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartInfo {
    /// Its number in the data folder; never used again.
    pub(crate) id: u64,
    pub(crate) shard: u32,
    /// 0: as flushed; 1: merged, one partition.
    pub(crate) level: u8,
    /// First and last timestamp inside.
    pub(crate) range: TimeRange,
    /// Smallest and largest sequence id of the rows inside.
    pub(crate) sequences: (u64, u64),
    pub(crate) chunks: u64,
    pub(crate) bytes: u64,
}

impl PartInfo {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        varint::push(out, self.id);
        varint::push(out, u64::from(self.shard));
        out.push(self.level);
        varint::push_signed(out, self.range.start_ns);
        varint::push_signed(out, self.range.end_ns);
        for number in [self.sequences.0, self.sequences.1, self.chunks, self.bytes] {
            varint::push(out, number);
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            id: reader.varint()?,
            shard: u32::try_from(reader.varint()?).map_err(|_| reader.error("shard beyond 32 bits"))?,
            level: reader.byte()?,
            range: TimeRange::new(reader.varint_signed()?, reader.varint_signed()?),
            sequences: (reader.varint()?, reader.varint()?),
            chunks: reader.varint()?,
            bytes: reader.varint()?,
        })
    }
}
