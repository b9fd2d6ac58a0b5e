//! Segments of the log that recovery no longer needs and that cursors do: their files stay under another name until all cursors have read
//! them, or until they take too many bytes. The list of them is a document of the manifest.

use std::path::{Path, PathBuf};

use codec::{DecodeError, Reader, varint};
use model::TimeRange;

/// Segments that are retained, however small they are: the list has to fit into a document.
const SEGMENTS_MAX: usize = 1_000;

/// A segment that is retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RetainedSegment {
    pub(crate) number: u32,
    /// The first and the last sequence id that it stands for.
    pub(crate) sequences: (u64, u64),
    /// Where its records end, if that was found out when the folder was opened.
    pub(crate) end: Option<u64>,
    pub(crate) bytes: u64,
    /// The times of its rows.
    pub(crate) range: TimeRange,
}

/// The file of a retained segment.
pub(crate) fn retained_path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number:010}.retained"))
}

/// The number of the retained segment that a file name stands for.
pub(crate) fn retained_number(name: &str) -> Option<u32> {
    name.strip_suffix(".retained")?.parse().ok()
}

/// How many of the oldest segments are given up: those that the slowest cursor has read, and those beyond a number of bytes.
pub(super) fn droppable(segments: &[RetainedSegment], slowest: Option<u64>, bytes_max: u64) -> usize {
    let Some(slowest) = slowest else { return segments.len() };
    let read = segments.iter().take_while(|segment| segment.sequences.1 <= slowest).count();
    let mut left_bytes: u64 = segments.iter().skip(read).map(|segment| segment.bytes).sum();
    let mut dropped = read.max(segments.len().saturating_sub(SEGMENTS_MAX));
    left_bytes -= segments.iter().take(dropped).skip(read).map(|segment| segment.bytes).sum::<u64>();
    for segment in segments.iter().skip(dropped) {
        if left_bytes <= bytes_max {
            break;
        }
        left_bytes -= segment.bytes;
        dropped += 1;
    }
    dropped
}

/// The document of a list.
pub(super) fn encode(segments: &[RetainedSegment]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::push(&mut out, segments.len() as u64);
    for RetainedSegment { number, sequences, end, bytes, range } in segments {
        for value in [u64::from(*number), sequences.0, sequences.1, end.map_or(0, |end| end + 1), *bytes] {
            varint::push(&mut out, value);
        }
        varint::push_signed(&mut out, range.start_ns);
        varint::push_signed(&mut out, range.end_ns);
    }
    out
}

/// Reads what [`encode`] wrote.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<RetainedSegment>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let count = reader.length(SEGMENTS_MAX)?;
    (0..count).map(|_| decode_one(&mut reader)).collect()
}

fn decode_one(reader: &mut Reader<'_>) -> Result<RetainedSegment, DecodeError> {
    let number = u32::try_from(reader.varint()?).map_err(|_| reader.error("segment number beyond 32 bits"))?;
    Ok(RetainedSegment {
        number,
        sequences: (reader.varint()?, reader.varint()?),
        end: reader.varint()?.checked_sub(1),
        bytes: reader.varint()?,
        range: TimeRange { start_ns: reader.varint_signed()?, end_ns: reader.varint_signed()? },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(number: u32) -> RetainedSegment {
        let first = u64::from(number) * 10;
        let range = TimeRange::new(i64::from(number), 100);
        let end = number.is_multiple_of(2).then_some(7);
        RetainedSegment { number, sequences: (first, first + 9), end, bytes: 100, range }
    }

    #[test]
    fn read_segments_and_those_over_the_limit_are_given_up_oldest_first() {
        let segments: Vec<RetainedSegment> = (1..=5).map(segment).collect();
        assert_eq!(droppable(&segments, None, 1000), 5);
        assert_eq!(droppable(&segments, Some(9), 1000), 0);
        assert_eq!(droppable(&segments, Some(28), 1000), 1);
        assert_eq!(droppable(&segments, Some(29), 1000), 2);
        assert_eq!(droppable(&segments, Some(29), 200), 3);
        assert_eq!(droppable(&segments, Some(9), 499), 1);
        assert_eq!(droppable(&segments, Some(9), 0), 5);
        let many: Vec<RetainedSegment> = (1..=1003).map(segment).collect();
        assert_eq!(droppable(&many, Some(9), u64::MAX), 3);
    }

    #[test]
    fn a_list_comes_back() {
        let segments = vec![segment(3), segment(4), RetainedSegment { range: TimeRange::EMPTY, ..segment(5) }];
        assert_eq!(decode(&encode(&segments)), Ok(segments));
        assert!(decode(&[5, 1]).is_err());
    }
}
