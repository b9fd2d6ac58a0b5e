//! Reading segments back: which records count, what was torn, what was damaged.
//!
//! Records of one run follow one another without a gap. Where they stop, either the run stopped there, or a record was
//! torn by a crash before it was acknowledged (then nothing behind it counts: it was not acknowledged either), or
//! a record that had been acknowledged was damaged since (then a later record says that it had been durable: the damaged
//! one is reported, and the later ones still count). How far each segment counts is kept in the manifest once it was
//! found out, so that records written after a crash do not change the answer.

use std::path::Path;

use super::frame::{ALIGNMENT_BYTES, Claim, Found, Frame, claim, look};
use super::sums::Sums;

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
    /// Bytes that were checked behind damage.
    work_bytes: u64,
}

impl Scan {
    pub(crate) fn new() -> Self {
        Self { expected: None, largest_sequence: 0, torn: None, findings: Vec::new(), work_bytes: 0 }
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
        let mut behind: Option<Behind<'_>> = None;
        loop {
            let found = match &behind {
                None => look(bytes.get(offset..).unwrap_or_default(), segment.number),
                // Looking at every place anew would take time for its square.
                Some(behind) => behind.at(offset),
            };
            let (frame, next) = match found {
                Found::Record(frame, length) if self.follows(&frame) => (frame, offset + length),
                _ => {
                    let behind = behind.get_or_insert_with(|| Behind::new(bytes, offset, segment.number));
                    match self.behind_damage(segment, behind, offset) {
                        Some(record) => record,
                        None => {
                            self.note_end(segment, offset, found);
                            break;
                        }
                    }
                }
            };
            self.expected = Some(frame.sequence.saturating_add(1));
            self.largest_sequence = self.largest_sequence.max(frame.sequence);
            visit(frame)?;
            offset = next;
        }
        self.work_bytes += behind.map_or(0, |behind| behind.work_bytes);
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
        behind: &Behind<'a>,
        offset: usize,
    ) -> Option<(Frame<'a>, usize)> {
        let first = behind.records.partition_point(|record| record.offset < offset);
        let record = behind.records.get(first)?;
        let Found::Record(frame, length) = behind.at(record.offset) else { return None };
        let missing = self.expected.unwrap_or(frame.sequence.saturating_sub(1));
        self.largest_sequence = self.largest_sequence.max(record.sequence_max);
        let is_proven = record.durable_through_max >= missing || segment.end.is_some();
        if frame.sequence <= missing || !is_proven {
            return None;
        }
        self.torn = None;
        self.findings.push(Finding::DamagedRecord {
            file: segment.path.display().to_string(),
            offset: offset as u64,
            sequences: (missing, frame.sequence - 1),
        });
        Some((frame, record.offset + length))
    }

    fn note_end(&mut self, segment: &SegmentBytes<'_>, offset: usize, found: Found<'_>) {
        if found != Found::Nothing && segment.end.is_none() && self.torn.is_none() {
            let file = segment.path.display().to_string();
            self.torn = Some(Finding::TornTail { file, offset: offset as u64 });
        }
    }
}

/// What stands behind the first damage of a segment: found once, in work that is in proportion to the bytes.
struct Behind<'a> {
    bytes: &'a [u8],
    segment: u32,
    records: Vec<Record>,
    /// Bytes that were checked.
    work_bytes: u64,
}

/// A whole record there.
struct Record {
    offset: usize,
    /// The largest of it and of those behind it.
    sequence_max: u64,
    durable_through_max: u64,
}

impl<'a> Behind<'a> {
    /// Goes from record to record, and where there is none, to the next place where one may begin.
    fn new(bytes: &'a [u8], from: usize, segment: u32) -> Self {
        let mut records: Vec<Record> = Vec::new();
        let mut sums: Option<Sums<'_>> = None;
        let mut offset = from;
        while let Some(rest) = bytes.get(offset..).filter(|rest| !rest.is_empty()) {
            let Claim::Record(claimed) = claim(rest, segment) else {
                offset += ALIGNMENT_BYTES;
                continue;
            };
            let checked = claimed.checked();
            let sums = sums.get_or_insert_with(|| Sums::new(bytes));
            if !claimed.is(sums.of(offset + checked.start..offset + checked.end)) {
                offset += ALIGNMENT_BYTES;
                continue;
            }
            let Frame { sequence, durable_through, .. } = claimed.frame;
            records.push(Record { offset, sequence_max: sequence, durable_through_max: durable_through });
            offset += claimed.bytes();
        }
        let (mut sequence_max, mut durable_through_max) = (0, 0);
        for record in records.iter_mut().rev() {
            sequence_max = record.sequence_max.max(sequence_max);
            durable_through_max = record.durable_through_max.max(durable_through_max);
            (record.sequence_max, record.durable_through_max) = (sequence_max, durable_through_max);
        }
        Self { bytes, segment, records, work_bytes: sums.map_or(0, |sums| sums.work_bytes) }
    }

    /// What stands at an offset.
    fn at(&self, offset: usize) -> Found<'a> {
        let is_whole = self.records.binary_search_by_key(&offset, |record| record.offset).is_ok();
        match claim(self.bytes.get(offset..).unwrap_or_default(), self.segment) {
            Claim::Record(claimed) if is_whole => Found::Record(claimed.frame, claimed.bytes()),
            Claim::Nothing => Found::Nothing,
            Claim::Record(_) | Claim::Damaged => Found::Damaged,
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

    /// The work that a segment behind damage takes, for each of its bytes.
    fn work_per_byte(bytes: &[u8]) -> u64 {
        let mut scan = Scan::new();
        let whole = SegmentBytes { number: 7, path: Path::new("7.log"), bytes, end: None };
        scan.segment(&whole, |_| Ok::<(), ()>(())).unwrap();
        scan.work_bytes / bytes.len() as u64
    }

    #[test]
    fn what_claims_to_be_a_record_at_every_place_takes_work_in_proportion() {
        // Eight bytes over and over: from every place on, a segment's number and a length.
        let hostile = |bytes: usize| {
            let claim = [7u32.to_le_bytes(), (bytes as u32 / 2).to_le_bytes()].concat();
            claim.repeat(bytes / 8)
        };
        let (small, large) = (work_per_byte(&hostile(1 << 14)), work_per_byte(&hostile(1 << 18)));
        assert!(small > 0 && large <= 2 * small, "{small} bytes checked for each byte, then {large}");
        assert!(large < 100, "{large}");
    }

    #[test]
    fn damage_between_all_records_takes_work_in_proportion() {
        // Between whole records that do not follow one another stands the header of one that would be long; only the last proves
        // anything.
        let hostile = |count: u64| {
            let mut bytes = Vec::new();
            for number in 1..=count {
                let durable_through = if number == count { u64::MAX } else { 0 };
                frame::push(
                    &mut bytes,
                    7,
                    &Frame { sequence: 10 * number, durable_through, kind: 1, payload: b"rows" },
                );
                let mut header = [0; frame::HEADER_BYTES];
                header[4..8].copy_from_slice(&(count as u32 * 10).to_le_bytes());
                header[24] = 7;
                bytes.extend(header);
            }
            bytes.resize(bytes.len() * 2, 0);
            bytes
        };
        let mut seen = Vec::new();
        let bytes = hostile(200);
        let whole = SegmentBytes { number: 7, path: Path::new("7.log"), bytes: &bytes, end: None };
        let mut scan = Scan::new();
        scan.segment(&whole, |frame| {
            seen.push(frame.sequence);
            Ok::<(), ()>(())
        })
        .unwrap();
        assert_eq!(seen, (1..=200).map(|number| 10 * number).collect::<Vec<_>>());
        let damaged = |finding: &&Finding| matches!(finding, Finding::DamagedRecord { .. });
        assert_eq!(scan.into_findings().iter().filter(damaged).count(), 199);
        let (small, large) = (work_per_byte(&hostile(200)), work_per_byte(&hostile(4000)));
        assert!(small > 0 && large <= 2 * small, "{small} bytes checked for each byte, then {large}");
    }
}
