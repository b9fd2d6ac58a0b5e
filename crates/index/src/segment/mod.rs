//! Immutable segments, given as bytes: the caller maps files. Layout: `docs/formats/segment.md`.
//!
//! * [`writer`]: sources become the bytes of one segment, in one pass over each part, nothing large in memory
//! * [`directory`]: where everything is · [`dictionary`]: values of a label, front-coded · [`rows`]: values of each group
//! * [`reader`]: a segment is searched · `row_cursor`: its rows in order · [`copies`]: its bytes, checked as they are read, and a second copy of them

pub(crate) mod copies;
mod cursor;
pub(crate) mod dictionary;
pub(crate) mod directory;
pub(crate) mod levels;
pub(crate) mod reader;
mod row_cursor;
pub(crate) mod rows;
pub(crate) mod writer;

use codec::{DecodeError, Reader};

/// A segment begins and ends with these.
pub(crate) const MAGIC: &[u8; 8] = b"THWGSEGM";
pub(crate) const END_MAGIC: &[u8; 4] = b"GEND";
pub(crate) const VERSION: u32 = 3;
/// As the present one, with a checksum for each MiB.
const VERSION_TWO: u32 = 2;
/// Magic, version, checksum of both.
pub(crate) const HEADER_BYTES: usize = 16;
/// Where the directory begins, its checksum, magic.
pub(crate) const TRAILER_BYTES: usize = 16;
/// Bytes of a block: each has a checksum in the directory, and is checked when something in it is first read.
pub(crate) const CHECKED_BYTES: usize = 1 << 16;
/// Bytes of a block in version 2.
const CHECKED_BYTES_TWO: usize = 1 << 20;
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

/// The header of a file: magic, version, checksum of both.
pub(crate) fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let checksum = crc32c::crc32c(&header[..12]);
    header[12..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// The bytes of a block, if the file begins as a segment of a version that is known.
pub(crate) fn checked_bytes(bytes: &[u8]) -> Option<usize> {
    let start = bytes.get(..HEADER_BYTES)?;
    if start == header() {
        return Some(CHECKED_BYTES);
    }
    let rest = start.strip_prefix(MAGIC)?;
    let is_version_two = rest.strip_prefix(&VERSION_TWO.to_le_bytes()).is_some_and(|zeros| zeros == [0; 4]);
    is_version_two.then_some(CHECKED_BYTES_TWO)
}

/// Where the directory begins and what its checksum is.
pub(crate) fn directory_place(bytes: &[u8]) -> Result<(usize, u32), DecodeError> {
    if checked_bytes(bytes).is_none() {
        return Err(DecodeError { offset: 0, what: "expected the magic THWGSEGM and version 2 or 3" });
    }
    let end = bytes.len().saturating_sub(TRAILER_BYTES);
    let mut trailer = Reader::new(slice(bytes, end as u64, TRAILER_BYTES as u64)?);
    let (offset, checksum, magic) = (trailer.u64()?, trailer.u32()?, trailer.array::<4>()?);
    if magic != *END_MAGIC {
        return Err(DecodeError { offset: end, what: "expected GEND at the end: the file is cut off" });
    }
    match usize::try_from(offset) {
        Ok(offset) if (HEADER_BYTES..=end).contains(&offset) => Ok((offset, checksum)),
        _ => Err(DecodeError { offset: end, what: "directory outside the file" }),
    }
}

/// Body and directory with what makes a file of them.
pub(crate) fn enclosed(body: &[u8], directory: &[u8]) -> Vec<u8> {
    let mut bytes = header().to_vec();
    bytes.extend_from_slice(body);
    let offset = bytes.len() as u64;
    bytes.extend_from_slice(directory);
    bytes.extend_from_slice(&offset.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(directory).to_le_bytes());
    bytes.extend_from_slice(END_MAGIC);
    bytes
}
