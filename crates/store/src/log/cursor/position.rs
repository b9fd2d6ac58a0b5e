//! Where a cursor is, as its document says.

use codec::{DecodeError, Reader, varint};
use model::TimeRange;

/// Records that were given up before a cursor read them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Sequence id of the last of them.
    pub(crate) last: u64,
    /// The times of their rows.
    pub(crate) range: TimeRange,
}

/// Where a cursor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    /// Records up to this sequence id are done with.
    pub(crate) sequence: u64,
    /// When this was noted, in nanoseconds since the Unix epoch.
    pub(crate) saved_ns: i64,
    pub(crate) lost: Option<Lost>,
}

impl Position {
    /// Notes that records up to a sequence id are done with.
    pub(super) fn advance(&mut self, sequence: u64, now_ns: i64) {
        self.sequence = self.sequence.max(sequence);
        self.saved_ns = now_ns;
        self.lost = self.lost.filter(|lost| lost.last > self.sequence);
    }

    /// Notes that records are given up: those of a segment.
    pub(super) fn lose(&mut self, sequences: (u64, u64), range: TimeRange) {
        if sequences.1 > self.sequence {
            let before = self.lost.map_or(TimeRange::EMPTY, |lost| lost.range);
            self.lost = Some(Lost { last: sequences.1, range: before.union(range) });
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint::push(&mut out, self.sequence);
        varint::push_signed(&mut out, self.saved_ns);
        if let Some(Lost { last, range }) = self.lost {
            varint::push(&mut out, last);
            varint::push_signed(&mut out, range.start_ns);
            varint::push_signed(&mut out, range.end_ns);
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (sequence, saved_ns) = (reader.varint()?, reader.varint_signed()?);
        let lost = if reader.is_empty() {
            None
        } else {
            let last = reader.varint()?;
            let range = TimeRange { start_ns: reader.varint_signed()?, end_ns: reader.varint_signed()? };
            Some(Lost { last, range })
        };
        Ok(Self { sequence, saved_ns, lost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_records_are_remembered_until_they_are_done_with() {
        let mut position = Position { sequence: 10, saved_ns: -5, lost: None };
        assert_eq!(Position::decode(&position.encode()), Ok(position));
        position.lose((1, 10), TimeRange::new(0, 9));
        assert_eq!(position.lost, None);
        position.lose((5, 20), TimeRange::new(10, 20));
        position.lose((21, 30), TimeRange::new(5, 15));
        assert_eq!(position.lost, Some(Lost { last: 30, range: TimeRange::new(5, 20) }));
        assert_eq!(Position::decode(&position.encode()), Ok(position));
        position.advance(29, 7);
        assert!(position.lost.is_some());
        position.advance(30, 8);
        assert_eq!(position, Position { sequence: 30, saved_ns: 8, lost: None });
    }
}
