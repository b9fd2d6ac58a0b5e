//! What changed in the past, before the newest rows: caches of results ask it whether their entries are still valid.
//!
//! A number that is taken before reading ([`Journal::snapshot`]) stands for what was there then; asking for the changes since
//! gives ranges of time and groups that may have become different, or says that it does not reach so far back. Rows near a
//! shard's newest one are not recorded one by one: the answer says from which timestamp on rows have come.
//!
//! The numbers are the journal's own, not the log's: merges and retention have none there, and requests to different shards are
//! recorded in another order than they have in the log. What keeps an answer from being stale:
//!
//! * rows are recorded under the lock of their shard, before they are in its head: a reader that takes a number afterwards and then
//!   reads waits for that lock, and sees them;
//! * everything else is recorded when readers see it already: a number that was taken earlier is smaller;
//! * new groups are not recorded. They have no rows; those that come are recorded like any others, with their groups.

pub(crate) mod file;

use std::collections::VecDeque;
use std::sync::Arc;

use index::{CompiledMatcher, DatabaseId, GroupId, RoaringBitmap};
use model::TimeRange;
use tracing_mutex::parkinglot::Mutex;

use crate::log::record::ShardRows;
use crate::part::Part;
use crate::{Store, StoreError};

/// What kind of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ChangeKind {
    /// Rows well before the newest one of their shard.
    LateRows = 0,
    /// Rows deleted, or dropped by retention.
    Deleted = 1,
    /// Samples replaced by summaries.
    Folded = 2,
}

/// A change before the newest rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Its number: snapshots from this one on show it.
    pub sequence: u64,
    /// What happened.
    pub kind: ChangeKind,
    /// The shard of the groups.
    pub shard: u32,
    /// The database, if it is one.
    pub database: Option<DatabaseId>,
    /// The range of time that may be different.
    pub range: TimeRange,
    /// The groups; none stands for all.
    pub groups: Option<Arc<RoaringBitmap>>,
}

/// Everything that may have changed since a snapshot.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Changes {
    /// The snapshot up to which this is everything.
    pub through: u64,
    /// From this timestamp on rows have come; `None` if none have, late ones aside.
    pub edge_ns: Option<i64>,
    /// What happened before, oldest first.
    pub behind: Vec<Change>,
}

/// The journal does not reach back far enough: everything may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalGap;

/// What changed in the past: the last changes.
#[derive(Debug)]
pub struct Journal {
    changes_max: usize,
    id: u64,
    state: Mutex<State>,
    file: Mutex<file::JournalFile>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// The number of what was recorded last.
    pub(crate) sequence: u64,
    pub(crate) changes: VecDeque<Change>,
    /// Changes up to this sequence id are forgotten.
    pub(crate) forgotten_through: u64,
    /// Requests' numbers and their smallest timestamps, both ascending: one that a later request went below says
    /// nothing more.
    pub(crate) edges: VecDeque<(u64, i64)>,
    /// Sequence ids of the log, and the journal's numbers at them: both ascending.
    pub(crate) marks: VecDeque<(u64, u64)>,
}

/// Requests whose smallest timestamps are kept apart.
const EDGES_MAX: usize = 1024;

/// Marks that are kept; with more every second one of the older half goes.
const MARKS_MAX: usize = 1024;

/// How far behind its shard's newest row a row is late, in nanoseconds.
const LATE_NS: i64 = 5 * 60 * 1_000_000_000;

impl Journal {
    /// A journal in which nothing has happened yet.
    pub(crate) fn new(changes_max: usize, id: u64) -> Self {
        Self { changes_max, id, state: Mutex::default(), file: Mutex::default() }
    }

    /// One that goes on where another one was.
    pub(crate) fn going_on(changes_max: usize, id: u64, state: State) -> Self {
        Self { changes_max, id, state: Mutex::new(state), file: Mutex::default() }
    }

    /// Identifies the journal: snapshots and marks of one with another identity mean nothing here.
    pub const fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn with_state(&self, look: impl FnOnce(&State)) {
        look(&self.state.lock());
    }

    /// Remembers that everything up to a sequence id of the log was recorded.
    pub(crate) fn mark(&self, log_sequence: u64) {
        let mut state = self.state.lock();
        let number = state.sequence;
        // Of several with one number the last says most; of several with one sequence id the first.
        match state.marks.back_mut() {
            Some((known, _)) if *known >= log_sequence => return,
            Some((known, at)) if *at == number => {
                *known = log_sequence;
                return;
            }
            _ => state.marks.push_back((log_sequence, number)),
        }
        if state.marks.len() > MARKS_MAX {
            let mut index = 0;
            state.marks.retain(|_| {
                index += 1;
                index > MARKS_MAX / 2 || index % 2 == 0
            });
        }
    }

    /// The last mark that is not after a snapshot: its sequence id in the log.
    pub fn marked_at(&self, number: u64) -> Option<u64> {
        let state = self.state.lock();
        state.marks.iter().rev().find(|(_, at)| *at <= number).map(|(log_sequence, _)| *log_sequence)
    }

    /// A snapshot such that everything that happened after a sequence id is recorded as a change since; `None` if none is remembered.
    pub fn snapshot_at(&self, log_sequence: u64) -> Option<u64> {
        let state = self.state.lock();
        state.marks.iter().rev().find(|(known, _)| *known <= log_sequence).map(|(_, number)| *number)
    }

    /// A number for what is there now: everything that was acknowledged, and nothing that is recorded with a larger one.
    pub fn snapshot(&self) -> u64 {
        self.state.lock().sequence
    }

    /// Tells of a change; its number is given here.
    pub(crate) fn push(&self, change: Change) {
        let mut state = self.state.lock();
        state.sequence += 1;
        let sequence = state.sequence;
        state.changes.push_back(Change { sequence, ..change });
        while state.changes.len() > self.changes_max {
            if let Some(oldest) = state.changes.pop_front() {
                state.forgotten_through = state.forgotten_through.max(oldest.sequence);
            }
        }
    }

    /// Tells of a request's rows in a shard whose newest row was at `newest_ns`.
    pub(crate) fn record(&self, shard: u32, newest_ns: i64, rows: &ShardRows) {
        let late_before = newest_ns.saturating_sub(LATE_NS);
        let mut smallest_ns: Option<i64> = None;
        let mut late = LateRows::default();
        for block in &rows.blocks {
            let of_block = block.timestamps_ns.iter().copied().min();
            if of_block.is_none_or(|timestamp_ns| timestamp_ns >= late_before) {
                smallest_ns = [smallest_ns, of_block].into_iter().flatten().min();
                continue;
            }
            for (group, timestamp_ns) in block.groups.iter().zip(&block.timestamps_ns) {
                if *timestamp_ns < late_before {
                    late.add(*group, *timestamp_ns);
                } else {
                    smallest_ns = Some(smallest_ns.map_or(*timestamp_ns, |smallest| smallest.min(*timestamp_ns)));
                }
            }
        }
        if let Some(smallest_ns) = smallest_ns {
            self.wrote(smallest_ns);
        }
        if let Some(change) = late.into_change(shard) {
            self.push(change);
        }
    }

    /// Tells of a request's smallest timestamp, late rows aside.
    fn wrote(&self, smallest_ns: i64) {
        let mut state = self.state.lock();
        state.sequence += 1;
        let sequence = state.sequence;
        while state.edges.back().is_some_and(|(_, known_ns)| *known_ns >= smallest_ns) {
            state.edges.pop_back();
        }
        if state.edges.len() >= EDGES_MAX {
            // Told as if the newer of the two had the older one's timestamp: more than happened, never less.
            if let (Some((_, older_ns)), Some(newer)) = (state.edges.pop_front(), state.edges.front_mut()) {
                newer.1 = older_ns;
            }
        }
        state.edges.push_back((sequence, smallest_ns));
    }

    /// Everything that may read differently than at a snapshot.
    pub fn since(&self, sequence: u64) -> Result<Changes, JournalGap> {
        let state = self.state.lock();
        if sequence < state.forgotten_through {
            return Err(JournalGap);
        }
        let edge_ns = state.edges.iter().find(|(of_request, _)| *of_request > sequence).map(|(_, edge_ns)| *edge_ns);
        let behind = state.changes.iter().filter(|change| change.sequence > sequence).cloned().collect();
        Ok(Changes { through: state.sequence, edge_ns, behind })
    }

    /// Tells of parts that readers see no more, or with other rows.
    pub(crate) fn replaced(&self, kind: ChangeKind, shard: u32, parts: &[Arc<Part>]) {
        for part in parts {
            let groups = Some(Arc::new(part.groups.clone()));
            self.push(Change { sequence: 0, kind, shard, database: None, range: part.info.range, groups });
        }
    }
}

/// Late rows of one request in one shard, on their way to the journal.
#[derive(Debug, Default)]
struct LateRows {
    range: Option<TimeRange>,
    /// Of each row.
    groups: Vec<GroupId>,
}

impl LateRows {
    fn add(&mut self, group: GroupId, timestamp_ns: i64) {
        self.groups.push(group);
        let range = self.range.get_or_insert(TimeRange::new(timestamp_ns, timestamp_ns));
        range.start_ns = range.start_ns.min(timestamp_ns);
        range.end_ns = range.end_ns.max(timestamp_ns);
    }

    fn into_change(self, shard: u32) -> Option<Change> {
        let kind = ChangeKind::LateRows;
        let groups = Some(Arc::new(bitmap_of(&self.groups)));
        self.range.map(|range| Change { sequence: 0, kind, shard, database: None, range, groups })
    }
}

/// Bytes that marking groups may take for each row.
const MARKS_BYTES_PER_ROW: usize = 8;

/// The groups of some rows. Where they lie close together each is marked with a bit, so that one that has many rows costs next to
/// nothing: a writer waits for it.
fn bitmap_of(groups: &[GroupId]) -> RoaringBitmap {
    let (Some(first), Some(last)) = (groups.iter().min(), groups.iter().max()) else {
        return RoaringBitmap::new();
    };
    let first = first & !7;
    let bytes = ((last - first) / 8) as usize + 1;
    if bytes > groups.len().saturating_mul(MARKS_BYTES_PER_ROW) {
        return groups.iter().copied().collect();
    }
    let mut marks = vec![0u8; bytes];
    for group in groups {
        let at = group - first;
        marks[(at / 8) as usize] |= 1 << (at % 8);
    }
    RoaringBitmap::from_lsb0_bytes(first, &marks)
}

impl Store {
    /// What changed in the past, for caches of results.
    pub const fn journal(&self) -> &Journal {
        &self.journal
    }

    /// The number of a database, if there is one of that name; it is never given to another one.
    pub fn database_number(&self, name: &str) -> Option<DatabaseId> {
        self.catalog.read().catalog.database(name)
    }

    /// The oldest timestamp that reads of a database give at present: with the clock rows go, and no journal tells of it.
    pub fn oldest_retained_ns(&self, database: DatabaseId) -> i64 {
        self.retained(database, &TimeRange::ALL).start_ns
    }

    /// Returns whether some of a shard's groups satisfy all matchers.
    pub fn selects_any(
        &self,
        database: DatabaseId,
        matchers: &[CompiledMatcher],
        shard: u32,
        groups: &RoaringBitmap,
    ) -> Result<bool, StoreError> {
        let columns = self.catalog.read().catalog.metrics(database, matchers);
        let Some(shard) = self.shards.get(shard as usize) else { return Ok(false) };
        let selected = shard.groups.read().groups.select(database, &columns, matchers);
        let selected = selected.map_err(StoreError::index(&self.options.directory))?;
        Ok(selected.iter().any(|selected| groups.contains(selected.id)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn groups_of_rows_are_those_that_have_some(
            near in proptest::collection::vec(0u32..300, 0..200),
            far in proptest::collection::vec(any::<u32>(), 0..4),
            base in prop_oneof![Just(0u32), Just(u32::MAX - 299), any::<u32>().prop_map(|base| base % (u32::MAX - 299))],
        ) {
            let groups: Vec<GroupId> = near.iter().map(|group| base + group).chain(far).collect();
            let expected: std::collections::BTreeSet<GroupId> = groups.iter().copied().collect();
            prop_assert!(bitmap_of(&groups).iter().eq(expected));
        }
    }

    #[test]
    fn changes_are_reported_until_they_are_forgotten() {
        let journal = Journal::new(2, 0);
        let change = |sequence| Change {
            sequence,
            kind: ChangeKind::Deleted,
            shard: 0,
            database: None,
            range: TimeRange::ALL,
            groups: None,
        };
        let told = |sequence| journal.since(sequence).map(|changes| changes.behind);
        assert_eq!(told(0), Ok(Vec::new()));
        journal.push(change(0));
        journal.push(change(0));
        assert_eq!(told(1), Ok(vec![change(2)]));
        assert_eq!(journal.since(2), Ok(Changes { through: 2, edge_ns: None, behind: Vec::new() }));
        journal.push(change(0));
        assert_eq!(told(0), Err(JournalGap));
        assert_eq!(told(1), Ok(vec![change(2), change(3)]));
    }

    #[test]
    fn the_edge_is_the_smallest_timestamp_since() {
        let journal = Journal::new(2, 0);
        let requests: Vec<(u64, i64)> =
            (1..5000u64).map(|sequence| (sequence, (sequence * 7919 % 1000) as i64)).collect();
        let ascending = (5000..9000u64).map(|sequence| (sequence, sequence as i64));
        for (sequence, smallest_ns) in requests.iter().copied().chain(ascending) {
            journal.wrote(smallest_ns);
            assert_eq!(journal.snapshot(), sequence);
        }
        for since in [0, 3000, 4998] {
            let expected = requests.iter().filter(|(sequence, _)| *sequence > since).map(|(_, ns)| *ns).min();
            assert!(journal.since(since).unwrap().edge_ns <= expected, "since {since}");
        }
        assert_eq!(journal.since(8990).unwrap().edge_ns, Some(8991));
        assert_eq!(journal.since(9000).unwrap().edge_ns, None);
    }
}
