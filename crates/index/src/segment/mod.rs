//! Immutable segments, given as bytes: the caller maps files. Layout: `docs/formats/segment.md`.
//!
//! * [`writer`]: sources become the bytes of one segment, in one pass over each part, nothing large in memory
//! * [`directory`]: where everything is · [`dictionary`]: values of a label, front-coded · [`rows`]: values of each group
//! * [`reader`]: a segment is searched

pub(crate) mod dictionary;
pub(crate) mod directory;
pub(crate) mod reader;
pub(crate) mod rows;
pub(crate) mod writer;

use codec::DecodeError;

/// A segment begins and ends with these.
pub(crate) const MAGIC: &[u8; 8] = b"THWGSEGM";
pub(crate) const END_MAGIC: &[u8; 4] = b"GEND";
pub(crate) const VERSION: u32 = 2;
/// Magic, version, four bytes of zero.
pub(crate) const HEADER_BYTES: usize = 16;
/// Where the directory begins, its checksum, magic.
pub(crate) const TRAILER_BYTES: usize = 16;
/// Bytes that have one checksum in the directory.
pub(crate) const CHECKED_BYTES: usize = 1 << 20;
/// Terms in a block of a dictionary, and groups in a block of rows.
pub(crate) const BLOCK: u32 = 16;
/// Bytes of a dictionary block's place: in the dictionary, and in the postings.
pub(crate) const DICTIONARY_PLACE_BYTES: u64 = 8;
/// Bytes of a measurement's entry: number, groups, place and length of the postings.
pub(crate) const MEASUREMENT_BYTES: u64 = 20;
/// Bytes of a family: database, measurement, schema of labels, set of slots, groups.
pub(crate) const FAMILY_BYTES: u64 = 20;
/// Bytes of an identity: fingerprint, group.
pub(crate) const IDENTITY_BYTES: u64 = 8;
/// Bytes of an overlay's entry: group, set of slots.
pub(crate) const OVERLAY_BYTES: u64 = 8;

/// Bytes of a file from an offset on, or an error.
pub(crate) fn slice(bytes: &[u8], offset: u64, length: u64) -> Result<&[u8], DecodeError> {
    let missing = || DecodeError { offset: offset as usize, what: "points beyond the end" };
    let start = usize::try_from(offset).map_err(|_| missing())?;
    let end = usize::try_from(length).ok().and_then(|length| start.checked_add(length)).ok_or_else(missing)?;
    bytes.get(start..end).ok_or_else(missing)
}

/// The number at an offset.
pub(crate) fn u32_at(bytes: &[u8], offset: u64) -> Result<u32, DecodeError> {
    let found = slice(bytes, offset, 4)?;
    Ok(found.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)))
}

/// Body and directory with what makes a file of them.
pub(crate) fn enclosed(body: &[u8], directory: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.resize(HEADER_BYTES, 0);
    bytes.extend_from_slice(body);
    let offset = bytes.len() as u64;
    bytes.extend_from_slice(directory);
    bytes.extend_from_slice(&offset.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(directory).to_le_bytes());
    bytes.extend_from_slice(END_MAGIC);
    bytes
}
