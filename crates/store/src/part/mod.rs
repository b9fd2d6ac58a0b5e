//! Parts: immutable chunks of one partition, sorted by key. Layout: `docs/formats/part.md`.
//!
//! ```text
//! header     magic, version
//! label      what the part says of itself, with its checksum
//! keys       for each key its chunks, oldest first, and its summary, each with its checksum
//! index      blocks of up to 128 keys: places and time ranges of their chunks, each block with its checksum
//! directory  first key and size of each block
//! groups     roaring bitmap of the groups inside
//! footer     places and checksums, totals, magic
//! ```
//!
//! A file holds one part or several, one after another: what a flush writes for many partitions is one file.

pub(crate) mod chunk;
pub(crate) mod epochs;
pub(crate) mod histogram;
pub(crate) mod summary;

mod ahead;
mod data;
pub(crate) mod fuzz;
pub(crate) mod index_block;
mod info;
mod label;
pub(crate) mod reader;
mod scan;
mod writer;

pub(crate) use ahead::ReadAhead;
pub(crate) use data::PartData;
pub(crate) use index_block::{BlockHandle, ChunkRef, KeyEntry};
pub(crate) use info::{PartInfo, PartLocations};
pub(crate) use label::{MadeAt, PartLabel};
pub(crate) use reader::{KeyCursor, Part};
pub(crate) use scan::scan_file;
pub(crate) use writer::{EncodedChunk, FileWriter, PartWriter};

use index::{DatabaseId, GroupId, MeasurementId};

pub(crate) const HEADER_MAGIC: &[u8; 8] = b"THWGPART";
pub(crate) const FOOTER_MAGIC: &[u8; 8] = b"PARTTHWG";
/// The version that is written.
pub(crate) const VERSION: u32 = 2;
/// Without directory and summaries; still read.
pub(crate) const VERSION_ONE: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 16;
pub(crate) const FOOTER_BYTES: usize = 96;

/// What parts are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct PartKey {
    pub(crate) database: DatabaseId,
    pub(crate) measurement: MeasurementId,
    pub(crate) group: GroupId,
    /// Number of the member block: slot ÷ [`BLOCK_SLOTS`].
    pub(crate) block: u32,
}

/// Slots of a member block: one member of a wide group is read without decoding those of other blocks.
pub(crate) const BLOCK_SLOTS: u32 = 1024;
