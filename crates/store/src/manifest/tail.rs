//! Reading on in the manifest from where an earlier reading ended: records are appended, and only a file that is written anew takes their place.
//!
//! A file that begins as before, with its snapshot's number, and that has its last record where it was, has all records in between. Both files
//! have to; otherwise the manifest is read from the beginning.

use std::path::Path;

use codec::Reader;
use platform::{File, Files, OpenMode};

use super::twin::NAMES;
use super::{Edit, RECORD_HEADER_BYTES, State, VERSION, take_records, twin};
use crate::StoreError;

/// Bytes at the beginning that are compared: the header, that of the snapshot, and its first edits with its number.
const BEGIN_BYTES: usize = 128;

/// Bytes of new records that are read at once, at most: a file has no more before it is written anew, unless its snapshot is larger.
const NEW_BYTES_MAX: u64 = 256 << 20;

/// How far one of the files was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    begin: Vec<u8>,
    /// Where the last record begins, and its checksum and length.
    last: (u64, Vec<u8>),
    end: u64,
    /// The last record's number.
    edition: u64,
}

impl Mark {
    /// Of a file's bytes, with where its last record begins and ends.
    pub(super) fn new(bytes: &[u8], (last, end): (u64, u64), edition: u64) -> Self {
        let header = bytes.get(last as usize..).and_then(|rest| rest.get(..RECORD_HEADER_BYTES as usize));
        Self {
            begin: bytes.get(..bytes.len().min(BEGIN_BYTES).min(end as usize)).unwrap_or_default().to_vec(),
            last: (last, header.unwrap_or_default().to_vec()),
            end,
            edition,
        }
    }

    /// Reads the records that were appended since; `None` if the file is another one, or cannot be read.
    fn read_on(&self, files: &dyn Files, path: &Path, visit: &mut dyn FnMut(&Edit)) -> Option<Self> {
        let file = files.open(path, OpenMode::Read).ok()?;
        let is_same = read(&*file, 0, self.begin.len())? == self.begin
            && read(&*file, self.last.0, self.last.1.len())? == self.last.1;
        let new_bytes = file.size_bytes().ok()?.checked_sub(self.end).filter(|bytes| *bytes <= NEW_BYTES_MAX)?;
        if !is_same {
            return None;
        }
        let bytes = read(&*file, self.end, new_bytes as usize)?;
        let mut edition = self.edition;
        let read = take_records(Reader::new(&bytes), self.end, VERSION, &mut |edits| {
            for edit in &edits {
                if let Edit::Edition(number) = edit {
                    edition = *number;
                }
                visit(edit);
            }
        });
        let read = read.ok()?;
        let Some(last) = read.last else { return Some(self.clone()) };
        let header = bytes.get((last - self.end) as usize..)?.get(..RECORD_HEADER_BYTES as usize)?;
        Some(Self { begin: self.begin.clone(), last: (last, header.to_vec()), end: read.end, edition })
    }
}

fn read(file: &dyn File, offset: u64, bytes: usize) -> Option<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    file.read_exact_at(&mut buffer, offset).ok()?;
    Some(buffer)
}

/// What the manifest says, and how far it was read.
#[derive(Debug, Clone)]
pub(crate) struct ManifestTail {
    pub(crate) state: State,
    marks: [Mark; 2],
}

impl ManifestTail {
    /// As [`twin::LoadedManifest::edition`].
    pub(crate) const fn edition(&self) -> (u64, u64) {
        (self.state.epoch, self.state.edition)
    }

    /// Reads what was appended since; `None` if the manifest has to be read from the beginning.
    pub(crate) fn read_on(mut self, files: &dyn Files, directory: &Path) -> Option<Self> {
        let [first, second] = NAMES.map(|name| directory.join(name));
        let [mark, twin_mark] = &self.marks;
        let mark = mark.read_on(files, &first, &mut |edit| self.state.apply(edit))?;
        // The first has each record before the second.
        let twin_mark = twin_mark.read_on(files, &second, &mut |_| ())?;
        let is_twin = matches!(mark.edition.checked_sub(twin_mark.edition), Some(0 | 1));
        self.marks = [mark, twin_mark];
        is_twin.then_some(self)
    }

    /// Reads the manifest, from the beginning unless an earlier reading can go on; `None` in place of it if one of its files is damaged.
    pub(crate) fn read(
        files: &dyn Files,
        directory: &Path,
        before: Option<Self>,
    ) -> Result<(twin::LoadedManifest, Option<Self>), StoreError> {
        if let Some(tail) = before.and_then(|before| before.read_on(files, directory)) {
            let loaded =
                twin::LoadedManifest { state: tail.state.clone(), damage: None, marks: None, is_continued: true };
            return Ok((loaded, Some(tail)));
        }
        let found = twin::read(files, directory)?;
        let mut found =
            found.ok_or_else(|| StoreError::Invalid(format!("{} is no data folder", directory.display())))?;
        let tail = found.marks.take().map(|marks| Self { state: found.state.clone(), marks });
        Ok((found, tail))
    }
}
