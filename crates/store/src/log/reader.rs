//! Reading segments back: which records count, what was torn, what was damaged, what is missing.
//!
//! Records of one run follow one another; each commit begins a block of 4 KiB. Where they stop, either the run stopped there, or a
//! record was torn by a crash before it was acknowledged (then nothing after it counts: it was not acknowledged either), or a record
//! that had been acknowledged was damaged since: a later record, the log's note or the manifest says so then. The damaged one is
//! reported, and later ones still count. How far each segment counts is kept in the manifest once it was found out, so that records
//! written after a crash do not change the answer.

use std::path::{Path, PathBuf};

use platform::DIRECT_ALIGN_BYTES;

use super::frame::{ALIGNMENT_BYTES, Claim, Frame, FrameLookup, HEADER_BYTES, SEGMENT_AT, claim, look};
use super::note::Note;
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
    /// Records at the log's end were cut off by a crash; nothing says that they were acknowledged.
    TornTail {
        /// The segment's file.
        file: String,
        /// Where the whole records end.
        offset: u64,
    },
    /// Records that had been written durably cannot be read any more.
    DamagedRecord {
        /// The segment's file.
        file: String,
        /// Its number.
        segment: u32,
        /// Where the damage starts.
        offset: u64,
        /// Sequence ids that are missing; the last is that of the record before the next one that is there.
        sequences: (u64, u64),
        /// True if the file is not there at all.
        is_missing: bool,
        /// True if rows are lost: others are in parts already.
        is_lost: bool,
    },
}

impl std::fmt::Display for Finding {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TornTail { file, offset } => write!(
                formatter,
                "log {file}: torn at offset {offset}; what stood there is dropped. It was being written at the last stop and had not \
                 been acknowledged, as far as the log tells; only what was written in the last moments before the stop may have been"
            ),
            Self::DamagedRecord { file, offset, sequences: (first, last), is_missing, is_lost, .. } => {
                match is_missing {
                    true => write!(formatter, "log {file}: the file is missing; ")?,
                    false => write!(formatter, "log {file}: damaged at offset {offset}; ")?,
                }
                match is_lost {
                    true => write!(formatter, "acknowledged records {first} to {last} are lost, later ones are kept"),
                    false => write!(formatter, "records {first} to {last} are in parts already: nothing is lost"),
                }
            }
        }
    }
}

/// Knowledge of the log before it is read.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ScanStart {
    /// Rows of records up to this sequence id are in parts.
    pub(crate) in_parts_through: u64,
    /// What the last run of the program noted down.
    pub(crate) last_run: Option<Note>,
}

/// Where the records of a segment stopped.
#[derive(Clone)]
struct Stop {
    segment: u32,
    path: PathBuf,
    offset: u64,
}

/// Goes through segments in order.
pub(crate) struct Scan {
    start: ScanStart,
    /// Sequence id of the record that must come next; unknown at the first record of an earlier run.
    expected: Option<u64>,
    /// True if a segment of the last run was seen.
    is_in_last_run: bool,
    /// Largest sequence id seen, also among records that do not count.
    pub(crate) largest_sequence: u64,
    /// Where records were torn, if nothing after it disproves that.
    torn: Option<Stop>,
    /// Where the records of the last run's last segment stopped.
    stop: Option<Stop>,
    /// Where a file ends that was cut: files grow by whole blocks.
    cut: Option<Stop>,
    /// A segment of the last run, before its newest, in which no record was found: there was at least one.
    empty: Option<Stop>,
    findings: Vec<Finding>,
    /// Findings from this one on do not know yet where the missing records end: the next record tells.
    open_from: Option<usize>,
    /// Bytes that were checked after damage.
    work_bytes: u64,
}

impl Scan {
    pub(crate) fn new(start: ScanStart) -> Self {
        Self {
            start,
            expected: None,
            is_in_last_run: false,
            largest_sequence: 0,
            torn: None,
            stop: None,
            cut: None,
            empty: None,
            findings: Vec::new(),
            open_from: None,
            work_bytes: 0,
        }
    }

    /// The last sequence id that is known to have been on disk, by the note.
    fn durable(&self) -> u64 {
        self.start.last_run.map_or(0, |note| note.durable)
    }

    /// The findings, once all segments were gone through.
    pub(crate) fn into_findings(mut self) -> Vec<Finding> {
        let durable = self.durable();
        if self.open_from.is_some() {
            self.close(durable);
        } else if let Some(next) = self.expected.filter(|next| self.is_in_last_run && *next <= durable) {
            // Whatever it looks like: the note says that these were on disk.
            if let Some(stop) = self.torn.take().or(self.cut.take()).or(self.stop.take()) {
                self.push_missing(&stop, (next, durable), false);
            }
        }
        let of_stop = |stop: Stop| Finding::TornTail { file: stop.path.display().to_string(), offset: stop.offset };
        self.findings.extend(self.torn.take().map(of_stop));
        let in_parts_through = self.start.in_parts_through;
        for finding in &mut self.findings {
            if let Finding::DamagedRecord { sequences, is_lost, .. } = finding {
                *is_lost = sequences.1 > in_parts_through;
            }
        }
        self.findings
    }

    fn push_missing(&mut self, stop: &Stop, sequences: (u64, u64), is_missing: bool) {
        self.findings.push(Finding::DamagedRecord {
            file: stop.path.display().to_string(),
            segment: stop.segment,
            offset: stop.offset,
            sequences,
            is_missing,
            is_lost: true,
        });
    }

    /// Damage of which it is not known yet how many records are missing.
    fn push_open(&mut self, stop: &Stop, is_missing: bool) {
        let first = self.expected.unwrap_or_else(|| self.largest_sequence.saturating_add(1));
        self.open_from.get_or_insert(self.findings.len());
        self.push_missing(stop, (first, first), is_missing);
    }

    /// Records up to a sequence id are missing in the findings that did not know.
    fn close(&mut self, through: u64) {
        let from = self.open_from.take().unwrap_or(self.findings.len());
        for finding in self.findings.iter_mut().skip(from) {
            if let Finding::DamagedRecord { sequences, .. } = finding {
                sequences.1 = sequences.1.max(through);
            }
        }
    }

    /// Begins a segment: of the newest it is known which record comes first, where those before it do not tell.
    fn begin(&mut self, number: u32, is_ended: bool) {
        if is_ended {
            self.expected = None;
            return;
        }
        if !std::mem::replace(&mut self.is_in_last_run, true) {
            self.expected = None;
        }
        let newest = self.start.last_run.filter(|note| note.newest == number);
        self.expected = self.expected.or(newest.map(|note| note.newest_first));
    }

    /// Notes that a segment which should be there is not.
    pub(crate) fn missing_segment(&mut self, number: u32, path: &Path, is_ended: bool) {
        self.begin(number, is_ended);
        self.push_open(&Stop { segment: number, path: path.to_owned(), offset: 0 }, true);
        self.expected = None;
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
        self.begin(segment.number, segment.end.is_some());
        let mut offset = 0;
        let mut behind: Option<AfterDamage<'_>> = None;
        loop {
            let (at, found) = look_past_padding(bytes, behind.as_ref(), offset, segment.number);
            let (frame, next) = match found {
                FrameLookup::Record(frame, length) if self.follows(&frame) => (frame, at + length),
                _ => {
                    let behind = behind.get_or_insert_with(|| AfterDamage::new(bytes, at, segment.number));
                    match self.after_damage(segment, behind, at) {
                        Some(record) => record,
                        None => {
                            self.note_end(segment, (offset, at), found);
                            break;
                        }
                    }
                }
            };
            self.close(frame.sequence.saturating_sub(1));
            self.close_empty(&frame);
            self.cut = None;
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

    /// Records of an empty segment came before this one: if they had been on disk, they are lost.
    fn close_empty(&mut self, frame: &Frame<'_>) {
        let Some(stop) = self.empty.take() else { return };
        let last = frame.sequence.saturating_sub(1);
        if frame.durable_through.max(self.durable()) >= last {
            self.torn = None;
            self.push_missing(&stop, (self.largest_sequence.saturating_add(1).min(last), last), false);
        }
    }

    fn follows(&self, frame: &Frame<'_>) -> bool {
        self.expected.is_none_or(|expected| frame.sequence == expected)
    }

    /// The first whole record after the damage, with where it ends, if it or a later one proves that what is missing
    /// had been durable.
    fn after_damage<'a>(
        &mut self,
        segment: &SegmentBytes<'_>,
        behind: &AfterDamage<'a>,
        offset: usize,
    ) -> Option<(Frame<'a>, usize)> {
        let first = behind.records.partition_point(|record| record.offset < offset);
        let record = behind.records.get(first)?;
        let FrameLookup::Record(frame, length) = behind.at(record.offset) else { return None };
        let missing = self.expected.unwrap_or(frame.sequence.saturating_sub(1));
        self.largest_sequence = self.largest_sequence.max(record.sequence_max);
        let is_proven = record.durable_through_max.max(self.durable()) >= missing || segment.end.is_some();
        if frame.sequence <= missing || !is_proven {
            return None;
        }
        let here = Stop { segment: segment.number, path: segment.path.to_owned(), offset: offset as u64 };
        // What is missing before a whole record at a segment's beginning was at the end of the segment before.
        let is_first = offset == 0 && record.offset == 0;
        let before = self.torn.take().or_else(|| self.stop.take().filter(|_| is_first));
        let stop = before.unwrap_or(here);
        self.push_missing(&stop, (missing, frame.sequence - 1), false);
        Some((frame, record.offset + length))
    }

    /// Notes where a segment's records end, and where the next one would begin.
    fn note_end(&mut self, segment: &SegmentBytes<'_>, (offset, at): (usize, usize), found: FrameLookup<'_>) {
        let stop = Stop { segment: segment.number, path: segment.path.to_owned(), offset: at as u64 };
        match segment.end {
            // The manifest says that there were more.
            Some(end) if (offset as u64) < end => return self.push_open(&stop, false),
            Some(_) => return,
            None if self.expected.is_none() => self.empty = Some(stop.clone()),
            None => {}
        }
        if !segment.bytes.len().is_multiple_of(DIRECT_ALIGN_BYTES) {
            self.cut = Some(stop.clone());
        }
        let bytes = segment.bytes.get(at..).unwrap_or_default();
        // A block that was never written holds whatever an older life of the file left there.
        let is_ours = !at.is_multiple_of(DIRECT_ALIGN_BYTES) || is_trace(bytes, segment.number, self.expected);
        if found != FrameLookup::Nothing && is_ours && self.torn.is_none() {
            self.torn = Some(stop);
        } else {
            self.stop = Some(stop);
        }
    }
}

/// Returns whether bytes look like the beginning of the record that would come next: they have its segment or its sequence id.
fn is_trace(bytes: &[u8], segment: u32, expected: Option<u64>) -> bool {
    let number = bytes.get(24..).and_then(<[u8]>::first_chunk).map(|bytes| u32::from_le_bytes(*bytes));
    let sequence = bytes.get(8..).and_then(<[u8]>::first_chunk).map(|bytes| u64::from_le_bytes(*bytes));
    number == Some(segment) || expected.is_some() && sequence == expected
}

/// What stands at an offset, or where only zeros do up to the end of the block, at the beginning of the next one: there the next commit is.
fn look_past_padding<'a>(
    bytes: &'a [u8],
    behind: Option<&AfterDamage<'a>>,
    offset: usize,
    segment: u32,
) -> (usize, FrameLookup<'a>) {
    let found = look_at(bytes, behind, offset, segment);
    let next = offset.next_multiple_of(DIRECT_ALIGN_BYTES);
    let rest = bytes.get(offset..next).unwrap_or_default();
    let is_padding = found == FrameLookup::Nothing && !rest.is_empty() && rest.iter().all(|byte| *byte == 0);
    if is_padding { (next, look_at(bytes, behind, next, segment)) } else { (offset, found) }
}

/// What stands at an offset; once there was damage, by what was found after it: looking at every place anew would take time for its
/// square.
fn look_at<'a>(bytes: &'a [u8], behind: Option<&AfterDamage<'a>>, offset: usize, segment: u32) -> FrameLookup<'a> {
    // Too little for a header, which would be made of zeros and of what the next block holds.
    let rest = bytes.get(offset..offset.next_multiple_of(DIRECT_ALIGN_BYTES)).unwrap_or_default();
    if (1..HEADER_BYTES).contains(&rest.len()) && rest.iter().all(|byte| *byte == 0) {
        return FrameLookup::Nothing;
    }
    match behind {
        None => look(bytes.get(offset..).unwrap_or_default(), segment),
        Some(behind) => behind.at(offset),
    }
}

/// What stands after the first damage of a segment: found once, in work that is in proportion to the bytes.
struct AfterDamage<'a> {
    bytes: &'a [u8],
    segment: u32,
    records: Vec<Record>,
    /// Bytes that were checked.
    work_bytes: u64,
}

/// A whole record there.
struct Record {
    offset: usize,
    /// The largest of it and of those after it.
    sequence_max: u64,
    durable_through_max: u64,
}

impl<'a> AfterDamage<'a> {
    /// Goes from record to record, and where there is none, to the next place where one may begin.
    fn new(bytes: &'a [u8], from: usize, segment: u32) -> Self {
        let mut records: Vec<Record> = Vec::new();
        let mut sums: Option<Sums<'_>> = None;
        let mut offset = from;
        while let Some(at) = next_of_segment(bytes, offset, segment) {
            offset = at;
            let Claim::Record(claimed) = claim(bytes.get(offset..).unwrap_or_default(), segment) else {
                offset += ALIGNMENT_BYTES;
                continue;
            };
            let checked = claimed.checked();
            let sums = sums.get_or_insert_with(|| Sums::new(bytes));
            if !claimed.is(sums.checksum(offset + checked.start..offset + checked.end)) {
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
    fn at(&self, offset: usize) -> FrameLookup<'a> {
        let is_whole = self.records.binary_search_by_key(&offset, |record| record.offset).is_ok();
        match claim(self.bytes.get(offset..).unwrap_or_default(), self.segment) {
            Claim::Record(claimed) if is_whole => FrameLookup::Record(claimed.frame, claimed.bytes()),
            Claim::Nothing => FrameLookup::Nothing,
            Claim::Record(_) | Claim::Damaged => FrameLookup::Damaged,
        }
    }
}

/// The first place from an offset on at which a record of a segment may begin: its header has the segment's number. Most of a segment that is being
/// filled is zeros, or what an older life of the file left, and each opening looks through all of it.
fn next_of_segment(bytes: &[u8], offset: usize, segment: u32) -> Option<usize> {
    let number = segment.to_le_bytes();
    let numbers = bytes.get(offset + SEGMENT_AT..)?.chunks(ALIGNMENT_BYTES);
    let found = numbers.take_while(|chunk| chunk.len() >= number.len()).position(|chunk| chunk.starts_with(&number));
    found.map(|place| offset + place * ALIGNMENT_BYTES)
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
        let mut scan = Scan::new(ScanStart::default());
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

    /// Commits of all lengths, each in blocks of its own, over what an older life of the file left.
    #[test]
    fn commits_begin_blocks_wherever_the_one_before_ends() {
        for payload_bytes in (3900..4300).step_by(4) {
            let payload = vec![7; payload_bytes];
            let mut bytes = vec![0xff; 1 << 16];
            let mut old = Vec::new();
            for sequence in 1..500 {
                frame::push(&mut old, 2, &Frame { sequence, durable_through: u64::MAX, kind: 1, payload: &[9; 200] });
            }
            bytes[..old.len().min(1 << 16)].copy_from_slice(&old[..old.len().min(1 << 16)]);
            let mut offset = 0;
            for sequence in 1000..1004 {
                let mut commit = Vec::new();
                frame::push(&mut commit, 3, &Frame { sequence, durable_through: 0, kind: 1, payload: &payload });
                commit.resize(commit.len().next_multiple_of(DIRECT_ALIGN_BYTES), 0);
                bytes[offset..offset + commit.len()].copy_from_slice(&commit);
                offset += commit.len();
            }
            let noted = Note { newest: 3, newest_first: 1000, durable: 1003, ..Note::default() };
            let mut scan = Scan::new(ScanStart { in_parts_through: 0, last_run: Some(noted) });
            let mut seen = Vec::new();
            let whole = SegmentBytes { number: 3, path: Path::new("3.log"), bytes: &bytes, end: None };
            scan.segment(&whole, |frame| {
                seen.push(frame.sequence);
                Ok::<(), ()>(())
            })
            .unwrap();
            assert_eq!(seen, [1000, 1001, 1002, 1003], "{payload_bytes}");
            assert_eq!(scan.into_findings(), [], "{payload_bytes}");
        }
    }

    #[test]
    fn a_torn_tail_costs_only_what_was_not_acknowledged() {
        check(&[&[(1, 0), (2, 1), (3, 1)]], &[(0, 1)], &[1], &["1.log: torn at offset 40"]);
        check(&[&[(1, 0), (2, 1)], &[(3, 1)]], &[(0, 1)], &[1], &["1.log: torn at offset 40"]);
        check(&[&[(1, 0)], &[(3, 1)]], &[], &[1], &["2.log: torn at offset 0"]);
    }

    #[test]
    fn damage_to_acknowledged_records_is_reported_and_the_rest_stays() {
        let lost = "acknowledged records 2 to 2 are lost";
        check(&[&[(1, 0), (2, 1), (3, 1), (4, 3)]], &[(0, 1)], &[1, 3, 4], &[lost]);
        check(&[&[(1, 0), (2, 1)], &[(3, 2)]], &[(0, 1)], &[1, 3], &[lost]);
        check(&[&[(1, 0), (2, 1), (3, 2)]], &[(0, 0)], &[2, 3], &["acknowledged records 1 to 1 are lost"]);
        // The segment that is damaged is named: that of the first record after the damage, unless it begins with it.
        let second = "2.log: damaged at offset 0; acknowledged records 2 to 2 are lost";
        check(&[&[(1, 0)], &[(2, 1), (3, 2)]], &[(1, 0)], &[1, 3], &[second]);
        let first = "1.log: damaged at offset 40; acknowledged records 2 to 2 are lost";
        check(&[&[(1, 0)], &[(3, 2)]], &[], &[1, 3], &[first]);
    }

    /// The work that a segment after damage takes, for each of its bytes.
    fn work_per_byte(bytes: &[u8]) -> u64 {
        let mut scan = Scan::new(ScanStart::default());
        let whole = SegmentBytes { number: 7, path: Path::new("7.log"), bytes, end: None };
        scan.segment(&whole, |_| Ok::<(), ()>(())).unwrap();
        scan.work_bytes / bytes.len() as u64
    }

    #[test]
    fn claims_of_records_at_every_offset_take_work_in_proportion() {
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
                let mut header = [0; HEADER_BYTES];
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
        let mut scan = Scan::new(ScanStart::default());
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
