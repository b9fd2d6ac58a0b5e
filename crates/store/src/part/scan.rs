//! The parts of a file, found from its end: where no manifest says what is in it.

use std::io;
use std::path::Path;

use model::TimeRange;
use platform::{File, Files, OpenMode};

use super::reader::{Footer, check_header};
use super::{FOOTER_BYTES, HEADER_BYTES, VERSION, VERSION_ONE};
use crate::StoreError;

/// A part as its footer tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartEnd {
    /// Where in the file it begins, and how long it is.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) range: TimeRange,
    pub(crate) sequences: (u64, u64),
    pub(crate) chunks: u64,
}

/// The parts of a file, first to last, found from its end without a manifest.
pub(crate) fn scan_file(files: &dyn Files, path: &Path) -> Result<Vec<PartEnd>, StoreError> {
    let file = files.open(path, OpenMode::Read).map_err(StoreError::io("open part", path))?;
    let mut end = file.size_bytes().map_err(StoreError::io("open part", path))?;
    let mut found = Vec::new();
    while end > 0 {
        let part = read_end(&*file, end).map_err(StoreError::io("read part", path))?;
        let part = part.ok_or_else(|| StoreError::corrupt(path, end, "expected the end of a part"))?;
        end = part.offset;
        found.push(part);
    }
    found.reverse();
    Ok(found)
}

/// The part that ends at an offset; `None` if none does.
fn read_end(file: &dyn File, end: u64) -> io::Result<Option<PartEnd>> {
    let Some(footer_at) = end.checked_sub(FOOTER_BYTES as u64) else { return Ok(None) };
    let mut bytes = [0; FOOTER_BYTES];
    file.read_exact_at(&mut bytes, footer_at)?;
    // Both versions are told apart by where their sizes lead: to a header.
    for version in [VERSION, VERSION_ONE] {
        let Ok(footer) = Footer::decode(&bytes, version) else { continue };
        let length = footer.index_offset.saturating_add(footer.tail_bytes()).saturating_add(FOOTER_BYTES as u64);
        let Some(offset) = end.checked_sub(length) else { continue };
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, offset)?;
        if check_header(&header) == Ok(version) {
            let u64_at =
                |at: usize| bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes));
            // Version 1 has no directory, and all that comes after it eight bytes earlier.
            let at = if version == VERSION { 32 } else { 24 };
            let range = TimeRange::new(u64_at(at + 8) as i64, u64_at(at + 16) as i64);
            let sequences = (u64_at(at + 24), u64_at(at + 32));
            return Ok(Some(PartEnd { offset, bytes: length, range, sequences, chunks: u64_at(at) }));
        }
    }
    Ok(None)
}
