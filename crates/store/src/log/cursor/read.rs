//! Reading the records of a segment, window by window, while others are appended to it.

use std::ops::Range;
use std::path::PathBuf;

use model::TimeRange;
use platform::{DIRECT_ALIGN_BYTES, Files, OpenMode};

use crate::StoreError;
use crate::log::frame::{FrameLookup, HEADER_BYTES, look};

/// A segment that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ReadableSegment {
    pub(super) number: u32,
    pub(super) path: PathBuf,
    /// The first and the last sequence id that it stands for, as far as they are on disk.
    pub(super) sequences: (u64, u64),
    /// Where its records end, if that is known.
    pub(super) end: Option<u64>,
    /// The times of its rows.
    pub(super) range: TimeRange,
}

/// The offset after the last record that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Offset {
    pub(super) segment: u32,
    pub(super) bytes: u64,
}

/// A record in a [`Window`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RawRecord {
    pub(super) sequence: u64,
    pub(super) kind: u8,
    pub(super) payload: Range<usize>,
}

/// How far a window's records go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// There are more in the segment.
    More,
    /// To the segment's last.
    Whole,
    /// To damage.
    Damaged,
}

/// Some of a segment's bytes, and the records in them.
#[derive(Debug)]
pub(super) struct Window {
    pub(super) bytes: Vec<u8>,
    pub(super) records: Vec<RawRecord>,
    pub(super) extent: Extent,
    pub(super) next: Offset,
    /// Bytes up to there, from the beginning of the window.
    pub(super) consumed: usize,
}

/// Which part of a segment to read.
#[derive(Debug, Clone, Copy)]
pub(super) struct WindowRequest {
    pub(super) from: Offset,
    /// Records up to this sequence id are left out.
    pub(super) after: u64,
    pub(super) bytes: usize,
}

/// Reads a window; of no records only if the window is smaller than the next record.
pub(super) fn read_window(
    files: &dyn Files,
    segment: &ReadableSegment,
    request: WindowRequest,
) -> Result<Window, StoreError> {
    let failed = || StoreError::io("read log segment", &segment.path);
    let file = files.open(&segment.path, OpenMode::Read).map_err(failed())?;
    let size = file.size_bytes().map_err(failed())?;
    let limit = segment.end.map_or(size, |end| end.min(size));
    let start = if request.from.segment == segment.number { request.from.bytes.min(limit) } else { 0 };
    let length = (request.bytes as u64).min(limit - start) as usize;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, start).map_err(failed())?;
    let is_last = start + length as u64 == limit;
    let (records, at, extent) = parse(&bytes, &Span { start, is_last }, segment, request.after);
    let next = Offset { segment: segment.number, bytes: start + at as u64 };
    Ok(Window { bytes, records, extent, next, consumed: at })
}

/// Where a window is in its segment.
struct Span {
    start: u64,
    /// True if it goes to the segment's end.
    is_last: bool,
}

fn parse(bytes: &[u8], span: &Span, segment: &ReadableSegment, after: u64) -> (Vec<RawRecord>, usize, Extent) {
    let mut records = Vec::new();
    let (mut at, mut read_through) = (0, after);
    loop {
        if read_through >= segment.sequences.1 {
            return (records, at, Extent::Whole);
        }
        let rest = bytes.get(at..).unwrap_or_default();
        match look(rest, segment.number) {
            FrameLookup::Record(frame, length) => {
                if frame.sequence > read_through + 1 && read_through >= segment.sequences.0 {
                    return (records, at, Extent::Damaged);
                }
                if frame.sequence > read_through {
                    let payload = at + HEADER_BYTES..at + HEADER_BYTES + frame.payload.len();
                    records.push(RawRecord { sequence: frame.sequence, kind: frame.kind, payload });
                    read_through = frame.sequence;
                }
                at += length;
            }
            found => match past_padding(rest, span.start + at as u64) {
                Some(padding) if at + padding < bytes.len() => at += padding,
                // A record that the window cuts looks damaged, or like nothing.
                _ if !span.is_last => return (records, at, Extent::More),
                // Where the end is known, what would come next was never acknowledged.
                _ if found == FrameLookup::Nothing && segment.end.is_some() => return (records, at, Extent::Whole),
                _ => return (records, at, Extent::Damaged),
            },
        }
    }
}

/// Bytes to the beginning of the next block, if there are only zeros up to there: the next commit begins a block.
fn past_padding(rest: &[u8], offset: u64) -> Option<usize> {
    let padding = (offset.next_multiple_of(DIRECT_ALIGN_BYTES as u64) - offset) as usize;
    let is_padding = padding > 0 && rest.iter().take(padding).all(|byte| *byte == 0);
    is_padding.then_some(padding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::frame::{self, Frame};

    fn segment(sequences: (u64, u64), end: Option<u64>) -> ReadableSegment {
        ReadableSegment { number: 3, path: PathBuf::new(), sequences, end, range: TimeRange::ALL }
    }

    /// Records 5 to 9, of which 5, 7 and 9 begin blocks.
    fn content() -> Vec<u8> {
        let mut bytes = Vec::new();
        for sequence in 5..10 {
            if sequence % 2 == 1 {
                bytes.resize(bytes.len().next_multiple_of(DIRECT_ALIGN_BYTES), 0);
            }
            frame::push(&mut bytes, 3, &Frame { sequence, durable_through: 0, kind: 7, payload: b"some rows" });
        }
        bytes.resize(bytes.len().next_multiple_of(DIRECT_ALIGN_BYTES), 0);
        bytes
    }

    fn sequences(records: &[RawRecord]) -> Vec<u64> {
        records.iter().map(|record| record.sequence).collect()
    }

    #[test]
    fn records_are_read_across_blocks_and_windows() {
        let bytes = content();
        let whole = Span { start: 0, is_last: true };
        let (records, _, extent) = parse(&bytes, &whole, &segment((5, 9), None), 4);
        assert_eq!((sequences(&records), extent), (vec![5, 6, 7, 8, 9], Extent::Whole));
        let (records, _, extent) = parse(&bytes, &whole, &segment((5, 9), None), 6);
        assert_eq!((sequences(&records), extent), (vec![7, 8, 9], Extent::Whole));
        // What is not on disk yet is left out.
        let (records, _, _) = parse(&bytes, &whole, &segment((5, 7), None), 4);
        assert_eq!(sequences(&records), [5, 6, 7]);
        for cut in [40, 100, 4000, 4096, 4110, 8000] {
            let (first, at, extent) =
                parse(&bytes[..cut], &Span { start: 0, is_last: false }, &segment((5, 9), None), 4);
            assert_eq!(extent, Extent::More, "{cut}");
            let after = first.last().map_or(4, |record| record.sequence);
            let rest = Span { start: at as u64, is_last: true };
            let (second, _, extent) = parse(&bytes[at..], &rest, &segment((5, 9), None), after);
            let all: Vec<u64> = sequences(&first).into_iter().chain(sequences(&second)).collect();
            assert_eq!((all, extent), (vec![5, 6, 7, 8, 9], Extent::Whole), "{cut}");
        }
    }

    #[test]
    fn damage_ends_the_records_and_a_known_end_does_not() {
        let mut bytes = content();
        bytes[4096 + 40] ^= 1;
        let whole = Span { start: 0, is_last: true };
        let (records, _, extent) = parse(&bytes, &whole, &segment((5, 9), None), 4);
        assert_eq!((sequences(&records), extent), (vec![5, 6], Extent::Damaged));
        // Records 7 to 9 were torn and never counted; the next segment begins with 12.
        let bytes = &content()[..96];
        let (records, _, extent) = parse(bytes, &whole, &segment((5, 11), Some(96)), 4);
        assert_eq!((sequences(&records), extent), (vec![5, 6], Extent::Whole));
    }
}
