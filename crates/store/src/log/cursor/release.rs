//! What stays of a log that is released, and where cursors are.

use std::collections::{BTreeMap, BTreeSet};

use model::TimeRange;
use tracing_mutex::parkinglot::Mutex;

use super::position::Position;
use super::read::ReadableSegment;
use super::retained::{self, RetainedSegment, retained_path};
use crate::log::{LiveSegment, segment_path};
use crate::manifest::{Edit, State};
use crate::{Store, StoreError};

/// The kind of the documents of cursors.
const CURSOR: &str = "log-cursor";

/// The kind and the name of the document that lists what is retained.
const RETAINED: (&str, &str) = ("log-retained", "segments");

/// Cursors that a folder may have.
const CURSORS_MAX: usize = 1_000;

/// The cursors of a folder.
pub(crate) struct Cursors {
    state: Mutex<CursorsState>,
}

#[derive(Default)]
struct CursorsState {
    positions: BTreeMap<String, Position>,
    /// Oldest first.
    retained: Vec<RetainedSegment>,
}

impl CursorsState {
    fn slowest(&self) -> Option<u64> {
        self.positions.values().map(|position| position.sequence).min()
    }

    /// Plans to give up the oldest of segments that could be retained.
    fn plan(&self, candidates: Vec<RetainedSegment>, bytes_max: u64) -> Plan {
        let count = retained::droppable(&candidates, self.slowest(), bytes_max);
        let mut positions = BTreeMap::new();
        for (name, position) in &self.positions {
            let mut next = *position;
            let dropped = candidates.iter().take(count);
            dropped.for_each(|segment| next.lose(segment.sequences, segment.range));
            if next != *position {
                positions.insert(name.clone(), next);
            }
        }
        let mut retained = candidates;
        let dropped = retained.drain(..count).map(|segment| segment.number).collect();
        Plan { retained, dropped, positions }
    }

    fn edits(&self, plan: &Plan) -> Vec<Edit> {
        let mut edits: Vec<Edit> = plan.positions.iter().map(|(name, position)| put(name, position)).collect();
        let (kind, name) = (RETAINED.0.to_owned(), RETAINED.1.to_owned());
        if plan.retained.is_empty() && !self.retained.is_empty() {
            edits.push(Edit::RemoveDocument { kind, name });
        } else if plan.retained != self.retained {
            edits.push(Edit::PutDocument { kind, name, bytes: retained::encode(&plan.retained).into() });
        }
        edits
    }

    /// The retained segments without those that the log still has: their release failed after it was said, and is tried again.
    fn retained_but(&self, live: &[LiveSegment]) -> Vec<RetainedSegment> {
        let is_live = |number: u32| live.iter().any(|segment| segment.number == number);
        self.retained.iter().filter(|segment| !is_live(segment.number)).copied().collect()
    }

    /// Where the records of a segment end, if that is known. Once a release was said, only what is retained tells.
    fn end_of(&self, number: u32, ends: &BTreeMap<u32, u64>) -> Option<u64> {
        let retained = || self.retained.iter().find(|segment| segment.number == number);
        ends.get(&number).copied().or_else(|| retained().and_then(|segment| segment.end))
    }

    fn apply(&mut self, plan: Plan) {
        self.retained = plan.retained;
        self.positions.extend(plan.positions);
    }
}

/// What a release changes.
struct Plan {
    retained: Vec<RetainedSegment>,
    /// Numbers of segments that are given up.
    dropped: Vec<u32>,
    /// Cursors that lose records by that.
    positions: BTreeMap<String, Position>,
}

fn put(name: &str, position: &Position) -> Edit {
    Edit::PutDocument { kind: CURSOR.to_owned(), name: name.to_owned(), bytes: position.encode().into() }
}

/// The segments that the manifest says are retained.
pub(crate) fn retained_segments(state: &State) -> Vec<RetainedSegment> {
    let key = (RETAINED.0.to_owned(), RETAINED.1.to_owned());
    // One that a newer version wrote names nothing that this one could read: cursors get a gap.
    state.documents.get(&key).and_then(|bytes| retained::decode(bytes).ok()).unwrap_or_default()
}

impl Cursors {
    /// Goes on from what the manifest says, for a log whose last record has a sequence id, and whose folder has files of these retained
    /// segments.
    pub(crate) fn open(state: &State, last_sequence: u64, present: &BTreeSet<u32>) -> Self {
        let cursors = state.documents.iter().filter(|((kind, _), _)| kind == CURSOR);
        let positions = cursors.filter_map(|((_, name), bytes)| {
            let mut position = Position::decode(bytes).ok()?;
            // A folder restored from a backup may be older than its cursor.
            position.sequence = position.sequence.min(last_sequence);
            Some((name.clone(), position))
        });
        let mut retained = retained_segments(state);
        retained.retain(|segment| present.contains(&segment.number));
        Self { state: Mutex::new(CursorsState { positions: positions.collect(), retained }) }
    }
}

/// A cursor's figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CursorStats {
    /// Its name.
    pub name: String,
    /// Records up to this sequence id are done with.
    pub sequence: u64,
}

impl Store {
    /// Gives up log segments that recovery does not need any more, but for those that cursors have not read.
    pub(crate) fn release_segments(&self, through: u32) -> Result<(), StoreError> {
        let bytes_max = self.retained_bytes_max();
        let mut cursors = self.cursors.state.lock();
        let ends = self.manifest.lock().state.log_ends.clone();
        let live = self.log.segments().into_iter();
        let live: Vec<LiveSegment> = live.filter(|segment| segment.number <= through).collect();
        let mut candidates = cursors.retained_but(&live);
        candidates.extend(live.iter().map(|segment| RetainedSegment {
            number: segment.number,
            sequences: segment.sequences,
            end: cursors.end_of(segment.number, &ends),
            bytes: segment.bytes,
            range: segment.range,
        }));
        let plan = cursors.plan(candidates, bytes_max);
        let mut edits = cursors.edits(&plan);
        edits.push(Edit::LogReleased { through });
        // Said first: a segment that is gone and that nothing says so of counts as lost.
        self.commit_edits(&edits)?;
        let retained: BTreeSet<u32> = plan.retained.iter().map(|segment| segment.number).collect();
        let given_up = cursors.retained_but(&live);
        let dropped = plan.dropped.clone();
        // It counts from here: where files cannot be renamed, the next release does it.
        cursors.apply(plan);
        let directory = self.options.directory.join("log");
        for path in live.iter().map(|segment| segment_path(&directory, segment.number)) {
            self.upkeep.health().repaired(&path.display().to_string(), 0..u64::MAX);
        }
        self.remove_retained(&given_up, &dropped);
        self.log.release(through, &retained)
    }

    /// Bytes that may be retained: none on a disk that is nearly full, whose room writers need.
    fn retained_bytes_max(&self) -> u64 {
        if self.is_disk_short() { 0 } else { self.options.log_retained_bytes_max }
    }

    fn remove_retained(&self, before: &[RetainedSegment], dropped: &[u32]) {
        let directory = self.options.directory.join("log");
        let were_retained = before.iter().filter(|segment| dropped.contains(&segment.number));
        were_retained.for_each(|segment| self.remove_file(&retained_path(&directory, segment.number)));
    }

    /// Where a cursor goes on; a new one begins at the end.
    pub(super) fn open_cursor(&self, name: &str) -> Result<u64, StoreError> {
        let mut cursors = self.cursors.state.lock();
        if let Some(position) = cursors.positions.get(name) {
            return Ok(position.sequence);
        }
        if cursors.positions.len() >= CURSORS_MAX {
            return Err(StoreError::Invalid(format!("the log has {CURSORS_MAX} cursors already: remove some")));
        }
        let (sequence, saved_ns) = (self.log.last_sequence(), self.platform.clock.now_ns());
        let position = Position { sequence, saved_ns, lost: None };
        self.put_document(CURSOR, name, &position.encode())?;
        cursors.positions.insert(name.to_owned(), position);
        Ok(sequence)
    }

    /// Notes that a cursor is done with everything up to a sequence id. Durable when this returns.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if there is no such cursor; otherwise as every change of the manifest.
    pub fn save_log_cursor(&self, name: &str, sequence: u64) -> Result<(), StoreError> {
        let mut cursors = self.cursors.state.lock();
        let Some(mut position) = cursors.positions.get(name).copied() else {
            return Err(StoreError::Invalid(format!("the log has no cursor {name:?}: open it again")));
        };
        if position.sequence >= sequence && position.lost.is_none() {
            return Ok(());
        }
        position.advance(sequence, self.platform.clock.now_ns());
        let before = cursors.positions.insert(name.to_owned(), position);
        let trimmed = self.trim_retained(&mut cursors, vec![put(name, &position)]);
        if let (Err(_), Some(before)) = (&trimmed, before) {
            cursors.positions.insert(name.to_owned(), before);
        }
        trimmed
    }

    /// Removes a cursor: nothing is retained for it any more. Returns whether there was one.
    ///
    /// # Errors
    /// As every change of the manifest.
    pub fn remove_log_cursor(&self, name: &str) -> Result<bool, StoreError> {
        let mut cursors = self.cursors.state.lock();
        let Some(before) = cursors.positions.remove(name) else { return Ok(false) };
        let removed = Edit::RemoveDocument { kind: CURSOR.to_owned(), name: name.to_owned() };
        let trimmed = self.trim_retained(&mut cursors, vec![removed]);
        if trimmed.is_err() {
            cursors.positions.insert(name.to_owned(), before);
        }
        trimmed.map(|()| true)
    }

    /// Commits edits, and gives up retained segments that no cursor needs after them.
    fn trim_retained(&self, cursors: &mut CursorsState, mut edits: Vec<Edit>) -> Result<(), StoreError> {
        let plan = cursors.plan(cursors.retained.clone(), self.options.log_retained_bytes_max);
        edits.extend(cursors.edits(&plan));
        self.commit_edits(&edits)?;
        self.remove_retained(&cursors.retained_but(&self.log.segments()), &plan.dropped);
        cursors.apply(plan);
        Ok(())
    }

    /// All cursors, by name.
    pub fn log_cursors(&self) -> Vec<CursorStats> {
        let cursors = self.cursors.state.lock();
        let stats =
            |(name, position): (&String, &Position)| CursorStats { name: name.clone(), sequence: position.sequence };
        cursors.positions.iter().map(stats).collect()
    }

    /// Bytes of the log that are retained for cursors alone.
    pub fn log_retained_bytes(&self) -> u64 {
        self.cursors.state.lock().retained.iter().map(|segment| segment.bytes).sum()
    }

    /// All segments that can be read, oldest first.
    pub(super) fn readable_segments(&self) -> Vec<ReadableSegment> {
        let directory = self.options.directory.join("log");
        // A release waits: no segment is in neither list.
        let cursors = self.cursors.state.lock();
        let live = self.log.segments();
        let retained = cursors.retained_but(&live).into_iter().map(|segment| ReadableSegment {
            number: segment.number,
            path: retained_path(&directory, segment.number),
            sequences: segment.sequences,
            end: segment.end,
            range: segment.range,
        });
        let ends = self.manifest.lock().state.log_ends.clone();
        let live = live.iter().map(|segment| ReadableSegment {
            number: segment.number,
            path: segment_path(&directory, segment.number),
            sequences: segment.sequences,
            end: cursors.end_of(segment.number, &ends),
            range: segment.range,
        });
        retained.chain(live).collect()
    }

    /// Has the cursors of a manifest that is copied without the log tell the times of the rows that they have not read, up to a sequence id.
    pub(crate) fn lose_log(&self, state: &mut State, through: u64) {
        // A release waits: what it gives up is among the segments, or its cursors say so.
        let cursors = self.cursors.state.lock();
        let live = self.log.segments();
        let of_live = live.iter().map(|segment| (segment.sequences, segment.range));
        let retained = cursors.retained_but(&live).into_iter().map(|segment| (segment.sequences, segment.range));
        let segments: Vec<((u64, u64), TimeRange)> = retained.chain(of_live).collect();
        for ((kind, name), bytes) in &mut state.documents {
            let Some(mut position) = Position::decode(bytes).ok().filter(|_| kind == CURSOR) else { continue };
            let unread = segments.iter().filter(|(sequences, _)| sequences.1 > position.sequence);
            let known = cursors.positions.get(name).and_then(|known| known.lost).map(|lost| lost.range);
            let range = unread.map(|(_, range)| *range).chain(known).fold(TimeRange::EMPTY, TimeRange::union);
            position.lose((0, through), range);
            *bytes = position.encode().into();
        }
    }

    /// The times of rows that a cursor lost, up to a sequence id.
    pub(super) fn lost_range(&self, name: &str, through: u64) -> TimeRange {
        let cursors = self.cursors.state.lock();
        let Some(position) = cursors.positions.get(name) else { return TimeRange::ALL };
        match position.lost {
            Some(lost) if lost.last >= through => lost.range,
            // Late rows may have been among them.
            _ => TimeRange::ALL,
        }
    }
}
