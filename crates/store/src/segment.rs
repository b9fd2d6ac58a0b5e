//! Files of index segments: entries of the catalog or of a shard's groups. Layout: `docs/formats/segment.md`.

use std::path::{Path, PathBuf};

use codec::Reader;
use index::{CatalogEntry, GroupEntry, decode_entries, encode_entries};
use platform::Files;

use crate::StoreError;

const MAGIC: &[u8; 8] = b"THWGSEGM";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;
const SEGMENT_BYTES_MAX: u64 = 4 << 30;

/// The file of a segment.
pub(crate) fn segment_path(directory: &Path, id: u64) -> PathBuf {
    directory.join("index").join(format!("{id:010}.segment"))
}

pub(crate) fn write_catalog(files: &dyn Files, path: &Path, entries: &[CatalogEntry]) -> Result<(), StoreError> {
    let mut payload = Vec::new();
    encode_entries(entries, &mut payload);
    write(files, path, &payload)
}

pub(crate) fn write_groups(files: &dyn Files, path: &Path, entries: &[GroupEntry]) -> Result<(), StoreError> {
    let mut payload = Vec::new();
    encode_entries(entries, &mut payload);
    write(files, path, &payload)
}

pub(crate) fn read_catalog(files: &dyn Files, path: &Path) -> Result<Vec<CatalogEntry>, StoreError> {
    let bytes = read(files, path)?;
    decode_entries(&mut Reader::new(&bytes[HEADER_BYTES..]))
        .map_err(|error| StoreError::corrupt(path, (HEADER_BYTES + error.offset) as u64, error.what))
}

pub(crate) fn read_groups(files: &dyn Files, path: &Path) -> Result<Vec<GroupEntry>, StoreError> {
    let bytes = read(files, path)?;
    decode_entries(&mut Reader::new(&bytes[HEADER_BYTES..]))
        .map_err(|error| StoreError::corrupt(path, (HEADER_BYTES + error.offset) as u64, error.what))
}

fn write(files: &dyn Files, path: &Path, payload: &[u8]) -> Result<(), StoreError> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    bytes.extend_from_slice(payload);
    platform::write_file(files, path, &bytes).map_err(StoreError::io("write index segment", path))
}

/// The file's bytes, once header and checksum are right.
fn read(files: &dyn Files, path: &Path) -> Result<Vec<u8>, StoreError> {
    let bytes =
        platform::read_file(files, path, SEGMENT_BYTES_MAX).map_err(StoreError::io("read index segment", path))?;
    let mut reader = Reader::new(&bytes);
    let header = (reader.bytes(8), reader.u32(), reader.u32());
    let (Ok(magic), Ok(version), Ok(checksum)) = header else {
        return Err(StoreError::corrupt(path, 0, format!("expected a header of {HEADER_BYTES} bytes")));
    };
    if magic != MAGIC || version != VERSION {
        return Err(StoreError::corrupt(path, 0, format!("expected the magic THWGSEGM and version {VERSION}")));
    }
    let found = crc32c::crc32c(reader.rest());
    if found != checksum {
        let message = format!("checksum: expected {checksum:08x}, found {found:08x}");
        return Err(StoreError::corrupt(path, HEADER_BYTES as u64, message));
    }
    Ok(bytes)
}
