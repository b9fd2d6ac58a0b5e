//! Appending to the log, and making it durable for many writers with one sync.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use platform::{File, Files, OpenMode};

use super::frame::{self, Frame};
use super::{WriteAheadLog, segment_path};
use crate::StoreError;

/// Files of segments that are kept for new segments once their records are not needed any more.
const SPARE_FILES_MAX: usize = 8;

/// Bytes of memory for records that are kept for the next ones.
const SPARE_BYTES_MAX: usize = 8 << 20;

/// Bytes written at once when a new segment's file is filled with zeros.
const FILL_BYTES: usize = 1 << 20;

/// The log's end, shared by all writers.
pub(crate) struct Log {
    files: Arc<dyn Files>,
    directory: PathBuf,
    segment_bytes: usize,
    state: Mutex<State>,
    committed: Condvar,
}

struct State {
    /// Last sequence id given out.
    sequence: u64,
    /// Last sequence id known to be on disk.
    durable: u64,
    active: Option<Segment>,
    /// Where the active segment's next record goes.
    position: usize,
    /// Bytes of records since opening.
    appended_bytes: u64,
    /// Memory of what was written last.
    spare: Vec<u8>,
    /// What is appended but not written, in order.
    pending: Vec<Pending>,
    /// Whether a writer is writing and syncing for all.
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
    bytes: usize,
}

struct Pending {
    segment: Segment,
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
}

impl Log {
    /// Goes on behind the last sequence id, in a new segment; `segments` are those that hold records still.
    pub(crate) fn start(
        files: Arc<dyn Files>,
        directory: PathBuf,
        segment_bytes: usize,
        sequence: u64,
        segments: Vec<SegmentInfo>,
        next_number: u32,
        spares: Vec<PathBuf>,
    ) -> Self {
        let state = State {
            sequence,
            durable: sequence,
            active: None,
            position: 0,
            appended_bytes: 0,
            spare: Vec::new(),
            pending: Vec::new(),
            committing: false,
            failed: None,
            segments: segments.into(),
            spares_made: spares.iter().filter_map(|path| spare_number(path)).max().unwrap_or(0),
            spares,
            next_number,
        };
        Self { files, directory, segment_bytes, state: Mutex::new(state), committed: Condvar::new() }
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

    /// Starts a new segment. Where there is no room for its file nothing has happened: a later attempt may succeed.
    fn rotate(&self, state: &mut State, needed: usize) -> Result<(), StoreError> {
        let number = state.next_number;
        let path = segment_path(&self.directory, number);
        let bytes = self.segment_bytes.max(needed);
        if bytes > self.segment_bytes || state.spares.is_empty() {
            let spare = state.spare_path(&self.directory);
            self.fill(&spare, bytes).inspect_err(|_| {
                // On a full disk an unfinished file would only take room.
                let _ = self.files.remove(&spare);
            })?;
            state.spares.push(spare);
        }
        let Some(spare) = state.spares.pop() else {
            return Ok(());
        };
        let opened = self.begin_segment(&spare, &path);
        let file = opened.inspect_err(|error| state.failed = Some(error.to_string()))?;
        state.next_number += 1;
        state.position = 0;
        state.segments.push_back(SegmentInfo { number, first_sequence: state.sequence + 1, bytes: bytes as u64 });
        state.active = Some(Segment { number, path, file, bytes });
        Ok(())
    }

    fn begin_segment(&self, spare: &Path, path: &Path) -> Result<Arc<dyn File>, StoreError> {
        self.files.rename(spare, path).map_err(StoreError::io("rename spare log segment", spare))?;
        let file = self.files.open(path, OpenMode::Write).map_err(StoreError::io("open log segment", path))?;
        self.files.sync_directory(&self.directory).map_err(StoreError::io("sync folder", &self.directory))?;
        Ok(file)
    }
}

impl WriteAheadLog for Log {
    fn append(&self, kind: u8, payload: &[u8]) -> Result<u64, StoreError> {
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
            let mut pending = std::mem::take(&mut state.pending);
            let through = state.sequence;
            drop(state);
            let written = write_out(&pending);
            state = self.state.lock();
            state.committing = false;
            if let Some(last) = pending.pop().filter(|last| last.bytes.capacity() <= SPARE_BYTES_MAX) {
                state.spare = last.bytes;
            }
            match written {
                Ok(()) => state.durable = through,
                Err(error) => state.failed = Some(error.to_string()),
            }
            self.committed.notify_all();
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
        }
    }

    fn poison(&self, reason: &str) {
        let mut state = self.state.lock();
        state.failed.get_or_insert_with(|| reason.to_owned());
        self.committed.notify_all();
    }

    fn release_before(&self, sequence: u64) -> Result<Option<u32>, StoreError> {
        let mut state = self.state.lock();
        let mut released = None;
        while let [oldest, next, ..] = *state.segments.make_contiguous() {
            if next.first_sequence > sequence {
                break;
            }
            released = Some(oldest.number);
            let path = segment_path(&self.directory, oldest.number);
            let reusable = oldest.bytes == self.segment_bytes as u64 && state.spares.len() < SPARE_FILES_MAX;
            if reusable {
                let spare = state.spare_path(&self.directory);
                self.files.rename(&path, &spare).map_err(StoreError::io("rename log segment", &path))?;
                state.spares.push(spare);
            } else {
                self.files.remove(&path).map_err(StoreError::io("remove log segment", &path))?;
            }
            state.segments.pop_front();
        }
        Ok(released)
    }

    fn prepare(&self) -> Result<(), StoreError> {
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
                return Err(error);
            }
        }
        Ok(())
    }
}

impl State {
    fn check(&self) -> Result<(), StoreError> {
        match &self.failed {
            None => Ok(()),
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

    fn spare_path(&mut self, directory: &Path) -> PathBuf {
        self.spares_made += 1;
        directory.join(format!("spare-{}.free", self.spares_made))
    }
}

fn spare_number(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.strip_prefix("spare-")?.parse().ok()
}

/// Writes and syncs in order: a later segment is never on disk before an earlier one.
fn write_out(pending: &[Pending]) -> Result<(), StoreError> {
    for write in pending {
        let failed = || StoreError::io("write log segment", &write.segment.path);
        write.segment.file.write_all_at(&write.bytes, write.offset as u64).map_err(failed())?;
        write.segment.file.sync_data().map_err(failed())?;
    }
    Ok(())
}
