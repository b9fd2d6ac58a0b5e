//! The times of the rows in the log, by sequence id: if records are lost, these say which responses miss rows.

use codec::{DecodeError, Reader};
use model::TimeRange;

/// Intervals that a note has room for.
pub(super) const INTERVALS_MAX: usize = 126;

/// Records of one segment that follow one another, and the times of their rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordTimes {
    /// First and last sequence id.
    pub(crate) sequences: (u64, u64),
    /// Empty if they have no rows.
    pub(crate) range: TimeRange,
}

/// The times of the rows in the records from the first to the last sequence id, if all are known. Records before all intervals are in parts,
/// unless the list is full and older intervals were left out.
pub(crate) fn range_of(intervals: &[RecordTimes], sequences: (u64, u64)) -> Option<TimeRange> {
    let (mut next, last) = sequences;
    if intervals.len() < INTERVALS_MAX {
        next = next.max(intervals.first()?.sequences.0);
    }
    let mut range = TimeRange::EMPTY;
    for interval in intervals.iter().filter(|interval| interval.sequences.1 >= sequences.0) {
        if next > last || interval.sequences.0 > next {
            break;
        }
        range = range.union(interval.range);
        next = interval.sequences.1.saturating_add(1);
    }
    // Records without rows tell of series whose rows may be in later ones.
    (next > last && range != TimeRange::EMPTY).then_some(range)
}

/// Appends the newest of the intervals that fit into a note.
pub(super) fn encode(intervals: &[RecordTimes], out: &mut Vec<u8>) {
    let newest = intervals.get(intervals.len().saturating_sub(INTERVALS_MAX)..).unwrap_or_default();
    out.extend_from_slice(&(newest.len() as u32).to_le_bytes());
    for RecordTimes { sequences, range } in newest {
        for number in [sequences.0, sequences.1, range.start_ns as u64, range.end_ns as u64] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

/// Reads what [`encode`] appended.
pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Vec<RecordTimes>, DecodeError> {
    let count = reader.u32()? as usize;
    if count > INTERVALS_MAX {
        return Err(reader.error("more intervals than fit into a note"));
    }
    let decode_one = |reader: &mut Reader<'_>| {
        let sequences = (reader.u64()?, reader.u64()?);
        Ok(RecordTimes { sequences, range: TimeRange::new(reader.u64()? as i64, reader.u64()? as i64) })
    };
    (0..count).map(|_| decode_one(reader)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(first: u64, last: u64, start_ns: i64, end_ns: i64) -> RecordTimes {
        RecordTimes { sequences: (first, last), range: TimeRange::new(start_ns, end_ns) }
    }

    #[test]
    fn a_range_is_known_where_intervals_have_all_of_its_records() {
        let known = [times(10, 19, 100, 200), times(20, 29, 150, 300), times(40, 49, 7, 8)];
        let range = |first, last| range_of(&known, (first, last)).map(|range| (range.start_ns, range.end_ns));
        assert_eq!(range(12, 13), Some((100, 200)));
        assert_eq!(range(19, 20), Some((100, 300)));
        assert_eq!(range(41, 41), Some((7, 8)));
        // Earlier records are in parts.
        assert_eq!(range(1, 12), Some((100, 200)));
        for unknown in [(30, 30), (29, 30), (29, 41), (49, 50), (50, 60), (1, 9)] {
            assert_eq!(range(unknown.0, unknown.1), None, "{unknown:?}");
        }
        let mark = RecordTimes { sequences: (1, 5), range: TimeRange::EMPTY };
        assert_eq!(range_of(&[mark], (2, 2)), None);
        assert_eq!(range_of(&[], (2, 2)), None);
    }

    #[test]
    fn the_newest_intervals_are_kept() {
        let many: Vec<RecordTimes> = (0..200).map(|number| times(number, number, 1, 2)).collect();
        let mut bytes = Vec::new();
        encode(&many, &mut bytes);
        let read = decode(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(read, many[200 - INTERVALS_MAX..]);
        // What is older may be needed still.
        assert_eq!(range_of(&read, (60, 80)), None);
        assert!(range_of(&read, (74, 80)).is_some());
    }
}
