//! Bounds on what the pages of a Parquet file unpack to, before any is unpacked.
//!
//! The headers of pages say how large each becomes (`PageHeader` of parquet.thrift, in Thrift's compact protocol), and readers make room for that
//! before they look at the page. So the headers are read here first.

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

use crate::error::{SqlError, invalid};

/// Structures and lists within one another in a header.
const DEPTH_MAX: usize = 8;
/// Fields of `PageHeader`, by their numbers.
const UNPACKED_BYTES: i64 = 2;
const PACKED_BYTES: i64 = 3;

/// The most bytes that the pages of one row group have unpacked: row groups are read one after another.
pub(super) fn unpacked_bytes(file: &[u8], metadata: &ParquetMetaData) -> Result<usize, SqlError> {
    let mut most = 0;
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let mut unpacked = 0usize;
        for column in group.columns() {
            match chunk(file, column).and_then(pages) {
                Some(bytes) => unpacked = unpacked.saturating_add(bytes),
                None => {
                    let name = column.column_path().string();
                    return invalid(format!(
                        "the Parquet file cannot be read: the pages of column \"{name}\" in row group {number} are not where the file says"
                    ));
                }
            }
        }
        most = most.max(unpacked);
    }
    Ok(most)
}

/// The bytes of a column's pages.
fn chunk<'a>(file: &'a [u8], column: &ColumnChunkMetaData) -> Option<&'a [u8]> {
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let (start, length) = (usize::try_from(start).ok()?, usize::try_from(column.compressed_size()).ok()?);
    file.get(start..start.checked_add(length)?)
}

/// The unpacked size of a column's pages.
fn pages(mut rest: &[u8]) -> Option<usize> {
    let mut unpacked = 0usize;
    while !rest.is_empty() {
        let mut header = Header { rest, unpacked_bytes: None, packed_bytes: None };
        header.structure(0)?;
        rest = header.rest.get(usize::try_from(header.packed_bytes?).ok()?..)?;
        unpacked = unpacked.saturating_add(usize::try_from(header.unpacked_bytes?).ok()?);
    }
    Some(unpacked)
}

/// A page's header as it is read.
struct Header<'a> {
    rest: &'a [u8],
    unpacked_bytes: Option<i64>,
    packed_bytes: Option<i64>,
}

impl Header<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn skip(&mut self, bytes: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn integer(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn structure(&mut self, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        let mut field = 0i64;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            field = match head >> 4 {
                0 => self.integer()?,
                further => field.checked_add(i64::from(further))?,
            };
            let kind = head & 0x0f;
            if depth == 0 && matches!(field, UNPACKED_BYTES | PACKED_BYTES) && kind == 5 {
                let bytes = Some(self.integer()?);
                if field == UNPACKED_BYTES {
                    self.unpacked_bytes = bytes;
                } else {
                    self.packed_bytes = bytes;
                }
            } else if kind > 2 {
                // Booleans have their value in their kind.
                self.value(kind, depth)?;
            }
        }
    }

    /// Passes a value by; the kinds are the compact protocol's.
    fn value(&mut self, kind: u8, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match kind {
            1..=3 => self.skip(1),
            4..=6 => self.varint().map(|_| ()),
            7 => self.skip(8),
            8 => {
                let bytes = self.varint()?;
                self.skip(bytes)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
                (0..count).try_for_each(|_| self.value(head & 0x0f, depth + 1))
            }
            12 => self.structure(depth + 1),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first three fields of a header: a data page, unpacked and packed bytes.
    fn header(unpacked: i64, packed: i64) -> Vec<u8> {
        let mut out = vec![0x15, 0];
        for bytes in [unpacked, packed] {
            out.push(0x15);
            let mut rest = ((bytes << 1) ^ (bytes >> 63)) as u64;
            while rest >= 0x80 {
                out.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            out.push(rest as u8);
        }
        out
    }

    #[test]
    fn pages_are_added_up_and_nonsense_is_told() {
        // A structure of a boolean, a text, a list and a structure, as headers of data pages have them.
        let inner: &[u8] = &[0x2c, 0x11, 0x18, 2, b'a', b'b', 0x19, 0x25, 2, 4, 0x1c, 0x15, 2, 0, 0, 0];
        let page = |unpacked: i64, body: &[u8]| [&header(unpacked, body.len() as i64), inner, body].concat();
        let two = [page(1000, b"xyz"), page(70_000, b"")].concat();
        let deep = [vec![0x1c; 20], vec![0; 20]].concat();
        // Lists of one list each: as deep as the file is long.
        let deep_lists = vec![0x19; 1 << 20];
        let cases: [(Vec<u8>, Option<usize>); 7] = [
            (two.clone(), Some(71_000)),
            (Vec::new(), Some(0)),
            (two.get(..two.len() - 3).unwrap().to_vec(), None),
            (page(-1, b"x"), None),
            ([header(1, 5), vec![0, 1, 2]].concat(), None),
            (deep, None),
            (deep_lists, None),
        ];
        for (bytes, expected) in cases {
            assert_eq!(pages(&bytes), expected, "{:?}", bytes.get(..100));
        }
    }
}
