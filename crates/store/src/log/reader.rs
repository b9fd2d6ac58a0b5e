//! Reading segments back: which records count, what was torn, what was damaged.
//!
//! Records of one run follow one another without a gap. Where they stop, either the run stopped there, or a record was
//! torn by a crash before it was acknowledged (then nothing behind it counts: it was not acknowledged either), or
//! a record that had been acknowledged was damaged since (then a later record says that it had been durable: the damaged
//! one is reported, and the later ones still count). How far each segment counts is kept in the manifest once it was
//! found out, so that records written after a crash do not change the answer.

use std::path::Path;

use super::frame::{ALIGNMENT_BYTES, Found, Frame, look};

/// A segment's bytes, and how far they count if that is known.
pub(crate) struct SegmentBytes<'a> {
    pub(crate) number: u32,
    pub(crate) path: &'a Path,
    pub(crate) bytes: &'a [u8],
    /// Where the records that count end, if the manifest says so.
    pub(crate) end: Option<u64>,
}

/// Something that recovery found, for the log file's reader and for `/metrics`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Unacknowledged records at the log's end were cut off by the crash: nothing that was promised is lost.
    TornTail {
        /// The segment's file.
        file: String,
        /// Where the whole records end.
        offset: u64,
    },
    /// A record that had been acknowledged cannot be read any more.
    DamagedRecord {
        /// The segment's file.
        file: String,
        /// Where the damage starts.
        offset: u64,
        /// Sequence ids that are missing.
        sequences: (u64, u64),
    },
}

impl std::fmt::Display for Finding {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TornTail { file, offset } => write!(
                formatter,
                "log {file}: torn at offset {offset}; what stood behind had not been acknowledged and is dropped"
            ),
            Self::DamagedRecord { file, offset, sequences: (first, last) } => write!(
                formatter,
                "log {file}: damaged at offset {offset}; acknowledged records {first} to {last} are lost, later ones \
                 are kept"
            ),
        }
    }
}

/// Goes through segments in order.
pub(crate) struct Scan {
    /// Sequence id of the record that must come next; unknown at a run's first record.
    expected: Option<u64>,
    /// Largest sequence id seen, also among records that do not count.
    pub(crate) largest_sequence: u64,
    /// Where the records stopped without the file being at its end; no more than that if nothing behind disproves it.
    torn: Option<Finding>,
    findings: Vec<Finding>,
}

impl Scan {
    pub(crate) fn new() -> Self {
        Self { expected: None, largest_sequence: 0, torn: None, findings: Vec::new() }
    }

    /// What was found, once all segments were gone through.
    pub(crate) fn into_findings(mut self) -> Vec<Finding> {
        self.findings.extend(self.torn);
        self.findings
    }

    /// Hands each record that counts to `visit`, and says where those of the segment end.
    pub(crate) fn segment<E>(
        &mut self,
        segment: &SegmentBytes<'_>,
        mut visit: impl FnMut(Frame<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let bytes = match segment.end {
            Some(end) => segment.bytes.get(..end as usize).unwrap_or(segment.bytes),
            None => segment.bytes,
        };
        if segment.end.is_some() {
            self.expected = None;
        }
        let mut offset = 0;
        loop {
            let found = look(bytes.get(offset..).unwrap_or_default(), segment.number);
            let (frame, next) = match found {
                Found::Record(frame, length) if self.follows(&frame) => (frame, offset + length),
                _ => match self.behind_damage(segment, bytes, offset) {
                    Some(behind) => behind,
                    None => {
                        self.note_end(segment, offset, found);
                        break;
                    }
                },
            };
            self.expected = Some(frame.sequence.saturating_add(1));
            self.largest_sequence = self.largest_sequence.max(frame.sequence);
            visit(frame)?;
            offset = next;
        }
        if segment.end.is_some() {
            self.expected = None;
        }
        Ok(segment.end.unwrap_or(offset as u64))
    }

    fn follows(&self, frame: &Frame<'_>) -> bool {
        self.expected.is_none_or(|expected| frame.sequence == expected)
    }

    /// The first whole record behind the damage, with where it ends, if it or a later one proves that what is missing
    /// had been durable.
    fn behind_damage<'a>(
        &mut self,
        segment: &SegmentBytes<'_>,
        bytes: &'a [u8],
        offset: usize,
    ) -> Option<(Frame<'a>, usize)> {
        let mut first: Option<(Frame<'a>, usize)> = None;
        let mut at = offset;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let Found::Record(frame, length) = look(rest, segment.number) else {
                at += ALIGNMENT_BYTES;
                continue;
            };
            at += length;
            self.largest_sequence = self.largest_sequence.max(frame.sequence);
            let (found, end) = *first.get_or_insert((frame, at));
            let missing = self.expected.unwrap_or(found.sequence.saturating_sub(1));
            if found.sequence > missing && (frame.durable_through >= missing || segment.end.is_some()) {
                self.torn = None;
                self.findings.push(Finding::DamagedRecord {
                    file: segment.path.display().to_string(),
                    offset: offset as u64,
                    sequences: (missing, found.sequence - 1),
                });
                return Some((found, end));
            }
        }
        None
    }

    fn note_end(&mut self, segment: &SegmentBytes<'_>, offset: usize, found: Found<'_>) {
        if found != Found::Nothing && segment.end.is_none() && self.torn.is_none() {
            let file = segment.path.display().to_string();
            self.torn = Some(Finding::TornTail { file, offset: offset as u64 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame;
    use super::*;

    /// A segment of records with these sequence ids and durable-through ids.
    fn segment(number: u32, records: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (sequence, durable_through) in records {
            let frame = Frame { sequence: *sequence, durable_through: *durable_through, kind: 1, payload: b"rows" };
            frame::push(&mut bytes, number, &frame);
        }
        bytes.resize(bytes.len() + 64, 0);
        bytes
    }

    /// Sequence ids that count and the findings, with a bit flipped in each of the given records (40 bytes each).
    fn check(segments: &[&[(u64, u64)]], damaged: &[(usize, usize)], counted: &[u64], findings: &[&str]) {
        let mut scan = Scan::new();
        let mut seen = Vec::new();
        for (place, records) in segments.iter().enumerate() {
            let mut bytes = segment(place as u32 + 1, records);
            for (_, record) in damaged.iter().filter(|(segment, _)| *segment == place) {
                bytes[record * 40 + 33] ^= 4;
            }
            let path = format!("{}.log", place + 1);
            let whole = SegmentBytes { number: place as u32 + 1, path: Path::new(&path), bytes: &bytes, end: None };
            let visit = |frame: Frame<'_>| {
                seen.push(frame.sequence);
                Ok::<(), ()>(())
            };
            scan.segment(&whole, visit).unwrap();
        }
        let found: Vec<String> = scan.into_findings().iter().map(ToString::to_string).collect();
        assert_eq!(seen, counted);
        assert_eq!(found.len(), findings.len(), "{found:?}");
        for (found, expected) in found.iter().zip(findings) {
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn whole_records_count_across_segments() {
        check(&[&[(1, 0), (2, 1)], &[(3, 2)]], &[], &[1, 2, 3], &[]);
    }

    #[test]
    fn a_torn_tail_costs_only_what_was_not_acknowledged() {
        check(&[&[(1, 0), (2, 1), (3, 1)]], &[(0, 1)], &[1], &["1.log: torn at offset 40"]);
        check(&[&[(1, 0), (2, 1)], &[(3, 1)]], &[(0, 1)], &[1], &["1.log: torn at offset 40"]);
        check(&[&[(1, 0)], &[(3, 1)]], &[], &[1], &["2.log: torn at offset 0"]);
    }

    #[test]
    fn damage_to_acknowledged_records_is_told_and_the_rest_is_kept() {
        let lost = "acknowledged records 2 to 2 are lost";
        check(&[&[(1, 0), (2, 1), (3, 1), (4, 3)]], &[(0, 1)], &[1, 3, 4], &[lost]);
        check(&[&[(1, 0), (2, 1)], &[(3, 2)]], &[(0, 1)], &[1, 3], &[lost]);
        check(&[&[(1, 0), (2, 1), (3, 2)]], &[(0, 0)], &[2, 3], &["acknowledged records 1 to 1 are lost"]);
    }
}
