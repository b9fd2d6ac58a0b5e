//! Appending to the log, and making it durable for many writers with one sync.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use model::TimeRange;
use parking_lot::{Condvar, Mutex};
use platform::{AlignedBytes, DIRECT_ALIGN_BYTES, File, Files, OpenMode};

use super::cursor::retained_path;
use super::frame::{self, Frame};
use super::listeners::{CommitListener, Listeners};
use super::note::{Note, NoteFile};
use super::times::RecordTimes;
use super::{LiveSegment, NewRecord, WriteAheadLog, segment_path};
use crate::StoreError;
use crate::memory::LOG_BUFFER_BYTES_MAX;
use crate::upkeep::reserve::is_full;

/// The reason of a log that refuses records because its folder is open for reading only.
pub(crate) const READ_ONLY: &str = "it is open for reading only";

/// Bytes of the smallest segment that a small disk gets instead of one of the usual size.
const SMALL_SEGMENT_BYTES_MIN: usize = 1 << 20;

/// Files of segments that are kept for new segments once their records are not needed any more.
const SPARE_FILES_MAX: usize = 8;

/// Bytes written to a segment at once, and so copied to where the disk can take them from.
const WRITE_BYTES_MAX: usize = 1 << 20;

/// Bytes written at once when a new segment's file is filled with zeros.
const FILL_BYTES: usize = 1 << 20;

/// The log's end, shared by all writers.
pub(crate) struct Log {
    files: Arc<dyn Files>,
    directory: PathBuf,
    segment_bytes: usize,
    /// True if writes go past the system's cache where they can.
    is_direct: bool,
    state: Mutex<State>,
    committed: Condvar,
    /// Taken after `state`, where both are.
    note: Mutex<NoteFile>,
    listeners: Listeners,
}

/// Where a log goes on.
pub(crate) struct LogStart {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) directory: PathBuf,
    pub(crate) segment_bytes: usize,
    /// True if to write past the system's cache.
    pub(crate) is_direct: bool,
    /// Last sequence id given out.
    pub(crate) sequence: u64,
    /// Those that hold records still.
    pub(crate) segments: Vec<SegmentInfo>,
    pub(crate) next_number: u32,
    pub(crate) spares: Vec<PathBuf>,
    /// Which opening of the folder this is.
    pub(crate) epoch: u64,
}

struct State {
    /// Last sequence id given out.
    sequence: u64,
    /// Last sequence id known to be on disk.
    durable: u64,
    active: Option<Segment>,
    /// Where the active segment's next record goes.
    position: usize,
    /// Bytes appended when the note was looked after last: as many as then mean that nothing was written since.
    noted_bytes: u64,
    /// Where the disk takes what is written from; not there while a writer uses it.
    outgoing: Option<AlignedBytes>,
    /// Bytes of records since opening.
    appended_bytes: u64,
    /// Memory of what was written last.
    spare: Vec<u8>,
    /// Appended records that are not written yet, in order.
    pending: Vec<Pending>,
    /// True if a writer is writing and syncing for all.
    committing: bool,
    /// Why nothing may be written any more.
    failed: Option<String>,
    /// Segments that hold records, oldest first, the active one last.
    segments: VecDeque<SegmentInfo>,
    /// Files that may become segments.
    spares: Vec<PathBuf>,
    spares_made: u64,
    next_number: u32,
}

#[derive(Clone)]
struct Segment {
    number: u32,
    path: PathBuf,
    file: Arc<dyn File>,
    is_direct: bool,
    bytes: usize,
}

struct Pending {
    segment: Segment,
    /// Where a block of the file begins.
    offset: usize,
    bytes: Vec<u8>,
}

/// A segment that holds records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentInfo {
    pub(crate) number: u32,
    /// No record in it has a smaller sequence id.
    pub(crate) first_sequence: u64,
    pub(crate) bytes: u64,
    /// The times of its rows.
    pub(crate) range: TimeRange,
}

/// Segments with their last sequence ids; of the last segment it is the log's.
fn with_last(segments: &VecDeque<SegmentInfo>, last_sequence: u64) -> impl Iterator<Item = (&SegmentInfo, u64)> {
    let before_next = segments.iter().skip(1).map(|next| next.first_sequence.saturating_sub(1));
    segments.iter().zip(before_next.chain(std::iter::once(last_sequence)))
}

/// The times of the rows in segments that follow one another, up to the log's last sequence id.
fn times_of(segments: &VecDeque<SegmentInfo>, last_sequence: u64) -> Vec<RecordTimes> {
    let times = with_last(segments, last_sequence)
        .map(|(segment, last)| RecordTimes { sequences: (segment.first_sequence, last), range: segment.range });
    times.filter(|times| times.sequences.0 <= times.sequences.1).collect()
}

/// The log's numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Last sequence id given out.
    pub sequence: u64,
    /// Last sequence id known to be on disk.
    pub durable: u64,
    /// Segments that hold records.
    pub segments: usize,
    /// Bytes of those segments' files.
    pub bytes: u64,
    /// Bytes of records appended since opening, their frames included.
    pub appended_bytes: u64,
    /// True if what is written goes past the system's cache, durable with the same call (`O_DIRECT` and `O_DSYNC`); `None` before
    /// the first record.
    pub is_direct: Option<bool>,
}

impl Log {
    /// Goes on after the last sequence id, in a new segment.
    pub(crate) fn start(start: LogStart) -> Result<Self, StoreError> {
        let LogStart { files, directory, segment_bytes, is_direct, sequence, segments, next_number, spares, epoch } =
            start;
        let newest = next_number.saturating_sub(1);
        let note = Note { epoch, run_start: sequence, durable: sequence, newest_first: sequence + 1, newest };
        let segments = VecDeque::from(segments);
        let note = NoteFile::start(&*files, &directory, note, &times_of(&segments, sequence))?;
        let state = State {
            sequence,
            durable: sequence,
            active: None,
            position: 0,
            noted_bytes: 0,
            outgoing: None,
            appended_bytes: 0,
            spare: Vec::new(),
            pending: Vec::new(),
            committing: false,
            failed: None,
            segments,
            spares_made: spares.iter().filter_map(|path| spare_number(path)).max().unwrap_or(0),
            spares,
            next_number,
        };
        let (state, note) = (Mutex::new(state), Mutex::new(note));
        let segment_bytes = whole_blocks(segment_bytes);
        let (committed, listeners) = (Condvar::new(), Listeners::default());
        Ok(Self { files, directory, segment_bytes, is_direct, state, committed, note, listeners })
    }

    fn fill(&self, path: &Path, bytes: usize) -> Result<(), StoreError> {
        let failed = || StoreError::io("create log segment", path);
        let file = self.files.open(path, OpenMode::CreateNew).map_err(failed())?;
        let zeros = vec![0; FILL_BYTES.min(bytes)];
        let mut at = 0;
        while at < bytes {
            let piece = zeros.len().min(bytes - at);
            file.write_all_at(&zeros[..piece], at as u64).map_err(failed())?;
            at += piece;
        }
        file.sync_data().map_err(failed())
    }

    /// Makes a file of so many bytes, or of as many as a small disk has room for; how many. None that is needed may be missing.
    fn fill_what_fits(&self, path: &Path, bytes: usize, needed: usize) -> Result<usize, StoreError> {
        match self.fill(path, bytes) {
            Ok(()) => Ok(bytes),
            Err(error) => {
                // On a full disk an unfinished file would only take room.
                let _ = self.files.remove(path);
                let smaller = whole_blocks(bytes / 2).max(needed);
                let is_worth_it = is_full(&error) && smaller < bytes && bytes > SMALL_SEGMENT_BYTES_MIN;
                if is_worth_it { self.fill_what_fits(path, smaller, needed) } else { Err(error) }
            }
        }
    }

    /// Starts a new segment. Where there is no room for its file nothing has happened: a later attempt may succeed.
    fn rotate(&self, state: &mut State, needed: usize) -> Result<(), StoreError> {
        let number = state.next_number;
        let path = segment_path(&self.directory, number);
        let mut bytes = self.segment_bytes.max(whole_blocks(needed));
        if bytes > self.segment_bytes || state.spares.is_empty() {
            let spare = state.spare_path(&self.directory);
            bytes = self.fill_what_fits(&spare, bytes, whole_blocks(needed))?;
            state.spares.push(spare);
        }
        let Some(spare) = state.spares.pop() else {
            return Ok(());
        };
        let opened = self.begin_segment(&spare, &path).and_then(|opened| {
            // Before the first record in it: from here on a segment that is not there is missed.
            let times = times_of(&state.segments, state.sequence);
            self.write_note(state.durable, Some((number, state.sequence + 1)), &times)?;
            Ok(opened)
        });
        let (file, is_direct) = opened.inspect_err(|error| state.failed = Some(error.to_string()))?;
        state.next_number += 1;
        state.position = 0;
        let (first_sequence, bytes_all) = (state.sequence + 1, bytes as u64);
        state.segments.push_back(SegmentInfo { number, first_sequence, bytes: bytes_all, range: TimeRange::EMPTY });
        state.active = Some(Segment { number, path, file, is_direct, bytes });
        Ok(())
    }

    /// Notes how far records are durable, the number of a new segment with its first sequence id, and the times of rows.
    fn write_note(&self, durable: u64, newest: Option<(u32, u64)>, times: &[RecordTimes]) -> Result<(), StoreError> {
        let mut file = self.note.lock();
        let known = file.note;
        let (newest, newest_first) = newest.unwrap_or((known.newest, known.newest_first));
        let note = Note { durable: durable.max(known.durable), newest, newest_first, ..known };
        if note == known { Ok(()) } else { file.write(note, times) }
    }

    fn begin_segment(&self, spare: &Path, path: &Path) -> Result<(Arc<dyn File>, bool), StoreError> {
        self.files.rename(spare, path).map_err(StoreError::io("rename spare log segment", spare))?;
        let opened = if self.is_direct {
            self.files.open_durable(path)
        } else {
            self.files.open(path, OpenMode::Write).map(|file| (file, false))
        };
        let opened = opened.map_err(StoreError::io("open log segment", path))?;
        self.files.sync_directory(&self.directory).map_err(StoreError::io("sync folder", &self.directory))?;
        Ok(opened)
    }
}

impl WriteAheadLog for Log {
    fn append(&self, record: &NewRecord<'_>) -> Result<u64, StoreError> {
        let NewRecord { kind, payload, range } = *record;
        let needed = frame::frame_bytes(payload.len());
        if u32::try_from(payload.len()).is_err() {
            return Err(StoreError::Invalid(format!("a request of {} bytes is too large for the log", payload.len())));
        }
        let mut state = self.state.lock();
        state.check()?;
        let room = state.active.as_ref().map_or(0, |segment| segment.bytes - state.position);
        if room < needed {
            self.rotate(&mut state, needed)?;
        }
        state.sequence += 1;
        let (sequence, durable_through) = (state.sequence, state.durable);
        state.push(&Frame { sequence, durable_through, kind, payload });
        if let Some(active) = state.segments.back_mut() {
            active.range = active.range.union(range);
        }
        Ok(sequence)
    }

    fn commit(&self, sequence: u64) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        loop {
            state.check()?;
            if state.durable >= sequence {
                return Ok(());
            }
            if state.committing {
                self.committed.wait(&mut state);
                continue;
            }
            state.committing = true;
            let mut pending = state.take_pending();
            let through = state.sequence;
            let outgoing = state.outgoing.take();
            drop(state);
            let mut outgoing = outgoing.unwrap_or_else(|| AlignedBytes::zeroed(WRITE_BYTES_MAX));
            let written = write_out(&pending, &mut outgoing);
            let is_written = written.is_ok();
            state = self.state.lock();
            state.committing = false;
            state.outgoing = Some(outgoing);
            if let Some(last) = pending.pop().filter(|last| last.bytes.capacity() <= LOG_BUFFER_BYTES_MAX) {
                state.spare = last.bytes;
            }
            match written {
                Ok(()) => state.durable = through,
                Err(error) => state.failed = Some(error.to_string()),
            }
            self.committed.notify_all();
            if is_written {
                drop(state);
                self.listeners.call();
                state = self.state.lock();
            }
        }
    }

    fn check(&self) -> Result<(), StoreError> {
        self.state.lock().check()
    }

    fn last_sequence(&self) -> u64 {
        self.state.lock().sequence
    }

    fn stats(&self) -> LogStats {
        let state = self.state.lock();
        LogStats {
            sequence: state.sequence,
            durable: state.durable,
            segments: state.segments.len(),
            bytes: state.segments.iter().map(|segment| segment.bytes).sum(),
            appended_bytes: state.appended_bytes,
            is_direct: state.active.as_ref().map(|segment| segment.is_direct),
        }
    }

    fn segments(&self) -> Vec<LiveSegment> {
        let state = self.state.lock();
        let live = with_last(&state.segments, state.sequence).map(|(segment, last)| LiveSegment {
            number: segment.number,
            sequences: (segment.first_sequence, last.min(state.durable)),
            bytes: segment.bytes,
            range: segment.range,
        });
        live.collect()
    }

    fn poison(&self, reason: &str) {
        let mut state = self.state.lock();
        state.failed.get_or_insert_with(|| reason.to_owned());
        self.committed.notify_all();
    }

    fn releasable(&self, sequence: u64) -> Option<u32> {
        let mut state = self.state.lock();
        let pairs = state.segments.make_contiguous().windows(2);
        let needless = pairs.take_while(|pair| pair.get(1).is_some_and(|next| next.first_sequence <= sequence));
        needless.last().and_then(|pair| pair.first()).map(|segment| segment.number)
    }

    fn release(&self, through: u32, retained: &BTreeSet<u32>) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        while let [oldest, _, ..] = *state.segments.make_contiguous() {
            if oldest.number > through {
                break;
            }
            let path = segment_path(&self.directory, oldest.number);
            let reusable = oldest.bytes == self.segment_bytes as u64 && state.spares.len() < SPARE_FILES_MAX;
            if retained.contains(&oldest.number) {
                let kept = retained_path(&self.directory, oldest.number);
                self.files.rename(&path, &kept).map_err(StoreError::io("rename log segment", &path))?;
            } else if reusable {
                let spare = state.spare_path(&self.directory);
                self.files.rename(&path, &spare).map_err(StoreError::io("rename log segment", &path))?;
                state.spares.push(spare);
            } else {
                self.files.remove(&path).map_err(StoreError::io("remove log segment", &path))?;
            }
            state.segments.pop_front();
        }
        Ok(())
    }

    fn listen(&self, listener: Weak<dyn CommitListener>) {
        self.listeners.add(listener);
    }

    fn note(&self) -> Result<(), StoreError> {
        let state = self.state.lock();
        let (durable, times) = (state.durable, times_of(&state.segments, state.sequence));
        drop(state);
        self.write_note(durable, None, &times)
    }

    fn prepare(&self) -> Result<(), StoreError> {
        self.note_if_idle()?;
        let mut state = self.state.lock();
        if !state.spares.is_empty() || state.failed.is_some() {
            return Ok(());
        }
        let path = state.spare_path(&self.directory);
        drop(state);
        match self.fill(&path, self.segment_bytes) {
            Ok(()) => self.state.lock().spares.push(path),
            Err(error) => {
                // On a full disk an unfinished file would only take room.
                let _ = self.files.remove(&path);
                // When it is needed, a smaller one may do.
                return if is_full(&error) { Ok(()) } else { Err(error) };
            }
        }
        Ok(())
    }
}

impl Log {
    /// Writes a note if nothing was appended since the last call. Under load the next record's header tells how far records are on disk.
    fn note_if_idle(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let is_idle = state.noted_bytes == state.appended_bytes && state.durable == state.sequence;
        state.noted_bytes = state.appended_bytes;
        let may_write = is_idle && state.failed.is_none();
        drop(state);
        if may_write { self.note() } else { Ok(()) }
    }
}

impl State {
    fn check(&self) -> Result<(), StoreError> {
        match &self.failed {
            None => Ok(()),
            Some(reason) if reason == READ_ONLY => Err(StoreError::ReadOnly),
            Some(reason) => Err(StoreError::Poisoned { reason: reason.clone() }),
        }
    }

    fn push(&mut self, frame: &Frame<'_>) {
        let Some(segment) = &self.active else {
            return;
        };
        let needed = frame::frame_bytes(frame.payload.len());
        let joins = self.pending.last().is_some_and(|last| last.segment.number == segment.number);
        if !joins {
            let mut bytes = std::mem::take(&mut self.spare);
            bytes.clear();
            bytes.reserve(needed.max(1 << 16));
            self.pending.push(Pending { segment: segment.clone(), offset: self.position, bytes });
        }
        if let Some(last) = self.pending.last_mut() {
            frame::push(&mut last.bytes, segment.number, frame);
        }
        self.position += needed;
        self.appended_bytes += needed as u64;
    }

    /// Takes the records that are to be written. The next record begins a block: one that holds acknowledged records is never written again, since a
    /// crash in that moment could take them.
    fn take_pending(&mut self) -> Vec<Pending> {
        self.position = whole_blocks(self.position);
        std::mem::take(&mut self.pending)
    }

    fn spare_path(&mut self, directory: &Path) -> PathBuf {
        self.spares_made += 1;
        directory.join(format!("spare-{}.free", self.spares_made))
    }
}

fn spare_number(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.strip_prefix("spare-")?.parse().ok()
}

/// Bytes of the blocks that so many bytes begin.
pub(crate) const fn whole_blocks(bytes: usize) -> usize {
    bytes.next_multiple_of(DIRECT_ALIGN_BYTES)
}

/// Writes durably and in order: a later segment is never on disk before an earlier one. Zeros fill the last block.
fn write_out(pending: &[Pending], outgoing: &mut AlignedBytes) -> Result<(), StoreError> {
    for write in pending {
        let mut offset = write.offset as u64;
        for piece in write.bytes.chunks(WRITE_BYTES_MAX) {
            let (taken, padding) = outgoing[..whole_blocks(piece.len())].split_at_mut(piece.len());
            taken.copy_from_slice(piece);
            padding.fill(0);
            let written = write.segment.file.write_durable_at(&outgoing[..whole_blocks(piece.len())], offset);
            written.map_err(StoreError::io("write log segment", &write.segment.path))?;
            offset += piece.len() as u64;
        }
    }
    Ok(())
}
