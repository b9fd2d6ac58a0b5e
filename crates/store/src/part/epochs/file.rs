//! Files of epochs: appending records, and finding those of a file at an opening.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use platform::{File, Files, OpenMode};

use super::record::{
    ALIGN_BYTES, FILE_HEADER_BYTES, FileHeader, Position, RECORD_HEADER_BYTES, RecordHeader, check_body,
};
use crate::StoreError;

/// Bytes that are searched at once for a record after one that cannot be read.
const SEARCH_BYTES: usize = 1 << 20;

/// The folder of these files.
pub(crate) const FOLDER: &str = "epochs";

/// A file of epochs by its number.
pub(crate) fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(FOLDER).join(format!("{number:010}.epochs"))
}

/// An open file of epochs.
pub(crate) struct EpochFile {
    pub(crate) header: FileHeader,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn File>,
}

/// What a file holds.
pub(crate) struct Scanned {
    /// Where its last whole record ends.
    pub(crate) end: u64,
    /// That record, and where it begins.
    pub(crate) last: Option<(u64, RecordHeader)>,
    /// True if something that is no whole record stands after it: a crash cut it.
    pub(crate) is_torn: bool,
    /// Where something cannot be read that was acknowledged, and why.
    pub(crate) damage: Option<(u64, &'static str)>,
}

impl EpochFile {
    /// Makes a file; its name is durable when this returns.
    pub(crate) fn create(files: &dyn Files, directory: &Path, header: FileHeader) -> Result<Self, StoreError> {
        let folder = directory.join(FOLDER);
        files.create_directory(&folder).map_err(StoreError::io("create folder", &folder))?;
        let path = path_of(directory, header.number);
        let file = files.open(&path, OpenMode::CreateNew).map_err(StoreError::io("create", &path))?;
        file.write_all_at(&header.to_bytes(), 0).map_err(StoreError::io("write", &path))?;
        file.sync_data().map_err(StoreError::io("sync", &path))?;
        files.sync_directory(&folder).map_err(StoreError::io("sync folder", &folder))?;
        Ok(Self { header, path, file })
    }

    /// Opens a file that the manifest names, for reading: a folder need not be locked for that.
    pub(crate) fn open(files: &dyn Files, directory: &Path, expected: FileHeader) -> Result<Self, StoreError> {
        Self::open_as(files, directory, expected, OpenMode::Read)
    }

    /// Opens one that records are appended to.
    pub(crate) fn open_to_append(files: &dyn Files, directory: &Path, known: FileHeader) -> Result<Self, StoreError> {
        Self::open_as(files, directory, known, OpenMode::Write)
    }

    fn open_as(files: &dyn Files, directory: &Path, expected: FileHeader, mode: OpenMode) -> Result<Self, StoreError> {
        let path = path_of(directory, expected.number);
        let file = files.open(&path, mode).map_err(StoreError::io("open", &path))?;
        let mut bytes = [0; FILE_HEADER_BYTES];
        let read = file.read_exact_at(&mut bytes, 0);
        read.map_err(|_| StoreError::corrupt(&path, 0, "the header of the file is missing"))?;
        let header = FileHeader::parse(&bytes).map_err(|error| StoreError::unreadable(&path, &error))?;
        if header != expected {
            return Err(StoreError::corrupt(&path, 0, format!("expected {expected:?}, found {header:?}")));
        }
        Ok(Self { header, path, file })
    }

    pub(crate) fn position(&self, offset: u64) -> Position {
        Position { file: self.header.number, offset }
    }

    pub(crate) fn read(&self, offset: u64, bytes: usize) -> Result<Vec<u8>, StoreError> {
        let mut buffer = vec![0; bytes];
        self.read_into(&mut buffer, offset)?;
        Ok(buffer)
    }

    pub(crate) fn read_into(&self, buffer: &mut [u8], offset: u64) -> Result<(), StoreError> {
        self.file.read_exact_at(buffer, offset).map_err(StoreError::io("read", &self.path))
    }

    /// The body of the record at an offset.
    pub(crate) fn body(&self, offset: u64, header: &RecordHeader) -> Result<Vec<u8>, StoreError> {
        self.read(offset + RECORD_HEADER_BYTES as u64, header.body_bytes as usize)
    }

    pub(crate) fn corrupt(&self, offset: u64, message: &str) -> StoreError {
        StoreError::corrupt(&self.path, offset, message)
    }

    /// The header of the record at an offset, if one is there and all of it lies before the end.
    fn header_at(&self, offset: u64, end: u64) -> Result<Option<RecordHeader>, StoreError> {
        if offset.saturating_add(RECORD_HEADER_BYTES as u64) > end {
            return Ok(None);
        }
        let mut bytes = [0; RECORD_HEADER_BYTES];
        self.read_into(&mut bytes, offset)?;
        let header = RecordHeader::parse(&bytes, self.position(offset));
        let is_within =
            |header: &RecordHeader| offset + RECORD_HEADER_BYTES as u64 + u64::from(header.body_bytes) <= end;
        Ok(header.filter(is_within))
    }

    /// Visits the records from an offset at which one begins, up to an end; `None`: up to the last whole one, which is that of a file to which
    /// records are appended.
    pub(crate) fn scan(
        &self,
        from: u64,
        end: Option<u64>,
        visit: &mut dyn FnMut(u64, &RecordHeader) -> Result<(), StoreError>,
    ) -> Result<Scanned, StoreError> {
        let size = self.file.size_bytes().map_err(StoreError::io("read", &self.path))?;
        let bound = end.unwrap_or(size);
        let mut offset = from;
        if bound > size {
            let damage = Some((size, "the file was cut"));
            return Ok(Scanned { end: offset, last: None, is_torn: false, damage });
        }
        let (mut last, mut visited) = (None, None);
        while let Some(header) = self.header_at(offset, bound)? {
            if let Some((at, header)) = last.replace((offset, header)) {
                visit(at, &header)?;
                visited = Some((at, header));
            }
            offset += header.record_bytes();
        }
        if let Some((at, header)) = last {
            // All but the last were on disk when the next one was written.
            if end.is_none() && check_body(self.header.content, &header, &self.body(at, &header)?).is_err() {
                return Ok(Scanned { end: at, last: visited, is_torn: true, damage: None });
            }
            visit(at, &header)?;
        }
        let damage = match end {
            Some(end) => (offset < end).then_some((offset, "expected a record")),
            None => {
                self.find_record(offset, size)?.then_some((offset, "expected a record, as there is one further on"))
            }
        };
        // The padding of a last record may be missing.
        Ok(Scanned { end: offset, last, is_torn: end.is_none() && size > offset, damage })
    }

    /// Returns whether the file is at least so long that it has all of a record.
    pub(crate) fn is_whole(&self, last: Option<(u64, RecordHeader)>) -> Result<bool, StoreError> {
        let bytes = self.file.size_bytes().map_err(StoreError::io("read", &self.path))?;
        // The padding of a last record may be missing.
        let end = last.map_or(0, |(at, header)| at + RECORD_HEADER_BYTES as u64 + u64::from(header.body_bytes));
        Ok(end <= bytes)
    }

    /// Returns whether a reading that went up to an offset, with this record as the last one, can go on from there: the record is where it was, in the
    /// file that has the name now.
    pub(crate) fn goes_on(
        &self,
        files: &dyn Files,
        directory: &Path,
        (from, last): (u64, Option<(u64, RecordHeader)>),
    ) -> Result<bool, StoreError> {
        let named = Self::open(files, directory, self.header)?;
        let named_bytes = named.file.size_bytes().map_err(StoreError::io("read", &named.path))?;
        // Records are appended meanwhile: of one file this is the later, larger size.
        let bytes = self.file.size_bytes().map_err(StoreError::io("read", &self.path))?;
        let Some((at, header)) = last else { return Ok(from == FILE_HEADER_BYTES as u64 && bytes >= named_bytes) };
        let is_there = named.is_whole(last)? && from == at + header.record_bytes() && bytes >= named_bytes;
        Ok(is_there && named.header_at(at, named_bytes)? == Some(header))
    }

    /// Returns whether there is a whole record somewhere after an offset.
    fn find_record(&self, offset: u64, size: u64) -> Result<bool, StoreError> {
        let mut start = offset;
        while start + (RECORD_HEADER_BYTES as u64) < size {
            let length = (size - start).min(SEARCH_BYTES as u64) as usize;
            let bytes = self.read(start, length)?;
            for at in (0..length.saturating_sub(RECORD_HEADER_BYTES)).step_by(ALIGN_BYTES as usize) {
                let found = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
                let position = self.position(start + at as u64);
                if let Some(header) = found.and_then(|bytes| RecordHeader::parse(bytes, position))
                    && position.offset > offset
                    && self.header_at(position.offset, size)?.is_some()
                    && check_body(self.header.content, &header, &self.body(position.offset, &header)?).is_ok()
                {
                    return Ok(true);
                }
            }
            start += length.saturating_sub(RECORD_HEADER_BYTES).max(1) as u64 / ALIGN_BYTES * ALIGN_BYTES;
            if length <= RECORD_HEADER_BYTES + ALIGN_BYTES as usize {
                break;
            }
        }
        Ok(false)
    }
}
