//! Files of index segments: the catalog's entries, a shard's groups. Layout: `docs/formats/segment.md`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use codec::{DecodeError, Reader};
use index::{CatalogEntry, GroupEntry, IndexError, Segment, decode_entries};
use platform::{File, Files, OpenMode};

use crate::StoreError;

const MAGIC: &[u8; 8] = b"THWGSEGM";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;
const SEGMENT_BYTES_MAX: u64 = 4 << 30;

/// The file of a segment.
pub(crate) fn segment_path(directory: &Path, id: u64) -> PathBuf {
    directory.join("index").join(format!("{id:010}.segment"))
}

/// Writes a list of the catalog's entries.
pub(crate) fn write_catalog(files: &dyn Files, path: &Path, entries: &[u8]) -> Result<(), StoreError> {
    write(files, path, entries)
}

/// Writes a list of other entries in a file of the same form.
pub(crate) fn write_entries(files: &dyn Files, path: &Path, entries: &[u8]) -> Result<(), StoreError> {
    write(files, path, entries)
}

/// The bytes of such a file, and where its entries begin.
pub(crate) fn read_entries(files: &dyn Files, path: &Path) -> Result<(Vec<u8>, usize), StoreError> {
    Ok((read(files, path)?, HEADER_BYTES))
}

pub(crate) fn read_catalog(files: &dyn Files, path: &Path) -> Result<Vec<CatalogEntry>, StoreError> {
    let bytes = read(files, path)?;
    decode_entries(&mut Reader::new(&bytes[HEADER_BYTES..]))
        .map_err(|error| StoreError::corrupt(path, (HEADER_BYTES + error.offset) as u64, error.what))
}

/// A file of a shard's groups.
pub(crate) enum GroupsFile {
    /// Of version 1: entries, to be taken in anew.
    Entries(Vec<GroupEntry>),
    Segment(Box<Segment>),
}

/// Opens a segment of groups; of version 2 nothing but the directory is read.
pub(crate) fn open_groups(files: &dyn Files, path: &Path, id: u64) -> Result<GroupsFile, StoreError> {
    let bytes = files.map(path).map_err(StoreError::io("map index segment", path))?;
    if !Segment::is_segment((*bytes).as_ref()) {
        let bytes = read(files, path)?;
        let entries = decode_entries(&mut Reader::new(&bytes[HEADER_BYTES..]));
        let corrupt = |error: DecodeError| StoreError::corrupt(path, (HEADER_BYTES + error.offset) as u64, error.what);
        return entries.map(GroupsFile::Entries).map_err(corrupt);
    }
    let corrupt = |error| match error {
        IndexError::Damaged { offset, what, .. } => StoreError::corrupt(path, offset, what),
        error => StoreError::corrupt(path, 0, error.to_string()),
    };
    Segment::open(id, bytes).map(|segment| GroupsFile::Segment(Box::new(segment))).map_err(corrupt)
}

/// Writes a segment of groups, durably, and opens it.
pub(crate) fn write_groups(
    files: &dyn Files,
    path: &Path,
    id: u64,
    write: impl FnOnce(&mut dyn io::Write) -> Result<(), IndexError>,
) -> Result<Segment, StoreError> {
    let file = files.open(path, OpenMode::CreateNew).map_err(StoreError::io("create index segment", path))?;
    let mut sink = Sink { file, end: 0 };
    write(&mut sink).map_err(|error| match error {
        IndexError::Io(error) => StoreError::io("write index segment", path)(error),
        error => StoreError::index(path.parent().and_then(Path::parent).unwrap_or(path))(error),
    })?;
    sink.file.sync_data().map_err(StoreError::io("sync index segment", path))?;
    let folder = path.parent().unwrap_or(path);
    files.sync_directory(folder).map_err(StoreError::io("sync folder", folder))?;
    match open_groups(files, path, id)? {
        GroupsFile::Segment(segment) => Ok(*segment),
        GroupsFile::Entries(_) => Err(StoreError::corrupt(path, 0, "written as version 2, found as version 1")),
    }
}

/// Appends to a file.
struct Sink {
    file: Arc<dyn File>,
    end: u64,
}

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all_at(bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
