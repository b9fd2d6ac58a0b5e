//! Files of index segments: the catalog's entries, a shard's groups. Each has a twin of the same bytes, since the index is small and
//! nothing is found without it. Layout: `docs/formats/segment.md`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use codec::{DecodeError, Reader};
use index::{CatalogEntry, GroupEntry, IndexError, Segment, SegmentBytes, SegmentCopy, SegmentTwin, decode_entries};
use platform::{File, Files, Mapped, OpenMode};

use crate::StoreError;

const MAGIC: &[u8; 8] = b"THWGSEGM";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;
const SEGMENT_BYTES_MAX: u64 = 4 << 30;

/// The file of a segment.
pub(crate) fn segment_path(directory: &Path, id: u64) -> PathBuf {
    directory.join("index").join(format!("{id:010}.segment"))
}

/// The second copy of a segment's file.
pub(crate) fn twin_path(path: &Path) -> PathBuf {
    path.with_extension("twin")
}

/// Both files of a segment.
pub(crate) fn copies(directory: &Path, id: u64) -> [PathBuf; 2] {
    let path = segment_path(directory, id);
    let twin = twin_path(&path);
    [path, twin]
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

/// A mapped file, as the index reads it.
struct MappedSegment(Mapped);

impl SegmentCopy for MappedSegment {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn is_readable(&self) -> bool {
        self.0.is_readable()
    }
}

/// Maps a copy of a segment.
pub(crate) fn map_segment(files: &dyn Files, path: &Path) -> Result<SegmentBytes, StoreError> {
    let mapped = files.map(path).map_err(StoreError::io("map index segment", path))?;
    Ok(Arc::new(MappedSegment(mapped)))
}

/// Opens a segment of groups; from version 2 on nothing but the directory is read. The twin takes over where a block is damaged.
pub(crate) fn open_groups(
    files: &dyn Files,
    path: &Path,
    id: u64,
    twin: Option<Box<dyn SegmentTwin>>,
) -> Result<GroupsFile, StoreError> {
    let bytes = map_segment(files, path)?;
    if !Segment::is_segment(bytes.bytes()) {
        let bytes = read(files, path)?;
        let entries = decode_entries(&mut Reader::new(&bytes[HEADER_BYTES..]));
        let corrupt = |error: DecodeError| StoreError::corrupt(path, (HEADER_BYTES + error.offset) as u64, error.what);
        return entries.map(GroupsFile::Entries).map_err(corrupt);
    }
    let opened = Segment::open_with_twin(id, bytes, twin).map_err(|error| damaged_segment(path, error));
    opened.map(|segment| GroupsFile::Segment(Box::new(segment)))
}

/// The error for one damaged copy of a segment.
pub(crate) fn damaged_segment(path: &Path, error: IndexError) -> StoreError {
    match error {
        IndexError::Damaged { offset, what, .. } => StoreError::corrupt(path, offset, what),
        error => StoreError::corrupt(path, 0, error.to_string()),
    }
}

/// Writes a segment of groups and its twin, durably, and opens it.
pub(crate) fn write_groups(
    files: &dyn Files,
    path: &Path,
    id: u64,
    twin: Box<dyn SegmentTwin>,
    write: impl FnOnce(&mut dyn io::Write) -> Result<(), IndexError>,
) -> Result<Segment, StoreError> {
    let create =
        |path: &Path| files.open(path, OpenMode::CreateNew).map_err(StoreError::io("create index segment", path));
    let mut sink = Sink { copies: [create(path)?, create(&twin_path(path))?], end: 0 };
    write(&mut sink).map_err(|error| match error {
        IndexError::Io(error) => StoreError::io("write index segment", path)(error),
        error => StoreError::index(path.parent().and_then(Path::parent).unwrap_or(path))(error),
    })?;
    sink.copies.iter().try_for_each(|copy| copy.sync_data()).map_err(StoreError::io("sync index segment", path))?;
    let folder = path.parent().unwrap_or(path);
    files.sync_directory(folder).map_err(StoreError::io("sync folder", folder))?;
    match open_groups(files, path, id, Some(twin))? {
        GroupsFile::Segment(segment) => Ok(*segment),
        GroupsFile::Entries(_) => Err(StoreError::corrupt(path, 0, "written as groups, found as a list of entries")),
    }
}

/// Appends to both copies of a file.
struct Sink {
    copies: [Arc<dyn File>; 2],
    end: u64,
}

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.copies.iter().try_for_each(|copy| copy.write_all_at(bytes, self.end))?;
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
    let write =
        |path: &Path| platform::write_file(files, path, &bytes).map_err(StoreError::io("write index segment", path));
    write(&twin_path(path))?;
    write(path)
}

/// The file's bytes, once header and checksum are right.
pub(crate) fn read(files: &dyn Files, path: &Path) -> Result<Vec<u8>, StoreError> {
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
