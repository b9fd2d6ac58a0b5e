//! The last rows of many groups of a table, side by side. Heads and parts are asked for a batch of groups at once: rows in heads are copied, and
//! so are those of parts that are cached with the batch; only the others are read.

use std::ops::Range;
use std::sync::{Arc, Weak};

use index::Slot;
use model::{TimeRange, ValueType};

use crate::StoreError;
use crate::cache::selections::{Reservation, TableGroups};
use crate::head::shard::Shard;
use crate::head::{Head, HeadLastRow, HeadLastRows};
use crate::part::{Part, PartKey};
use crate::read::end_rows::{End, EndRows, Intervals};
use crate::read::select::{SelectedColumn, SelectedGroup};
use crate::read::table_rows::{TableRows, only_block};
use crate::read::{GroupReader, KeySnapshot};
use crate::retention::deletes::Delete;

/// The last rows of groups that have the same columns.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchLastRows {
    /// The groups that have a row, by index among the groups of the table.
    pub groups: Vec<usize>,
    /// The row of each.
    pub rows: TableRows,
    /// How many of them were neither in heads alone nor cached.
    pub read: usize,
}

/// The last rows that parts have of a batch: valid as long as the shard has the same parts and deletes.
pub(crate) struct PartsLastRows {
    parts: Weak<Vec<Arc<Part>>>,
    deletes: Weak<Vec<Delete>>,
    /// Where they were looked for: to the end of all parts or farther.
    range: TimeRange,
    groups: Vec<LastInParts>,
    rows: TableRows,
    _memory: Option<Reservation>,
}

/// The state of the search for a group's last row in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastInParts {
    /// There is none.
    None,
    /// It was not read yet, and there is none after this time.
    Until(i64),
    /// It is cached.
    Row { time_ns: i64, row: usize },
}

/// Where a group's last row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Location<'a> {
    Nowhere,
    Head {
        time_ns: i64,
        cells: HeadCells<'a>,
    },
    Cache {
        row: usize,
    },
    /// In parts, not after this time.
    Parts {
        until_ns: i64,
    },
    /// Heads and parts have to be read.
    Unknown,
}

impl<'a> Location<'a> {
    fn new(head: HeadLastRow<'a>, parts: LastInParts) -> Self {
        let parts_until_ns = match parts {
            LastInParts::None => None,
            LastInParts::Until(time_ns) | LastInParts::Row { time_ns, .. } => Some(time_ns),
        };
        // Of one time, head and parts may have some of the columns each.
        match (head, parts_until_ns) {
            (HeadLastRow::None, None) => Self::Nowhere,
            (HeadLastRow::Row { time_ns, cells, columns }, parts_until_ns) if Some(time_ns) > parts_until_ns => {
                Self::Head { time_ns, cells: HeadCells { cells, columns } }
            }
            (head, Some(until_ns)) if head.until_ns() < Some(until_ns) => match parts {
                LastInParts::Row { row, .. } => Self::Cache { row },
                _ => Self::Parts { until_ns },
            },
            _ => Self::Unknown,
        }
    }
}

impl GroupReader<'_> {
    /// The last row in a range of each group of a batch. None of the columns has labels of its own.
    pub fn last_rows(
        &self,
        groups: &TableGroups,
        batch: usize,
        range: &TimeRange,
    ) -> Result<BatchLastRows, StoreError> {
        let (first, batch_groups) = groups.batch(batch);
        let columns = batch_groups.first().map(|group| group.columns.clone()).unwrap_or_default();
        let snapshot = BatchSnapshot::take(self, batch_groups, &columns, range);
        let (Some(snapshot), Some(cache)) = (snapshot, groups.last_rows(batch)) else {
            let none = TableRows::new(&columns, 0);
            let mut found = RowCollector::new(&columns, batch_groups.len(), &none);
            for (index, group) in (first..).zip(batch_groups) {
                found.push_read(index, &self.last_row(group, range)?);
            }
            return Ok(found.finish());
        };
        let cached = cache.lock().clone().filter(|cached| cached.is_valid_for(&snapshot));
        let is_cached = cached.is_some();
        let in_parts = match cached {
            Some(cached) => cached,
            None => Arc::new(PartsLastRows::new(&snapshot)?),
        };
        let mut found = RowCollector::new(&columns, batch_groups.len(), &in_parts.rows);
        let mut update = Update { groups: Vec::new(), rows: TableRows::new(&columns, 0) };
        for (number, group) in batch_groups.iter().enumerate() {
            match Location::new(snapshot.head(number), in_parts.get(number, &snapshot.range)) {
                Location::Nowhere => {}
                Location::Head { time_ns, cells } => found.push_head(first + number, time_ns, cells),
                Location::Cache { row } => found.push_cached(first + number, row),
                Location::Parts { until_ns } => {
                    let mut rows = snapshot.read_last(number, until_ns)?;
                    update.push(number, &rows);
                    // What parts have up to that time may be deleted, and the head's row newer than what is left.
                    if snapshot.head(number).until_ns() >= rows.timestamps_ns.last().copied() {
                        rows = self.last_row(group, range)?;
                    }
                    found.push_read(first + number, &rows);
                }
                Location::Unknown => found.push_read(first + number, &self.last_row(group, range)?),
            }
        }
        if snapshot.is_to_the_end() && (!is_cached || !update.groups.is_empty()) {
            // Without memory for it the entry before goes too: each would be larger than the one before.
            *cache.lock() = in_parts.updated(update, groups).map(Arc::new);
        }
        Ok(found.finish())
    }

    fn last_row(&self, group: &SelectedGroup, range: &TimeRange) -> Result<TableRows, StoreError> {
        self.end_rows(group, &EndRows { range: *range, rows: 1, end: End::Newest })
    }
}

/// A row in a head: its cells, and their columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HeadCells<'a> {
    cells: &'a [u64],
    columns: &'a [(Slot, ValueType)],
}

impl HeadCells<'_> {
    /// The cell of a column, which mostly is at the expected index.
    fn get(&self, wanted: &SelectedColumn, expected: usize) -> Option<u64> {
        let is_wanted = |column: &(Slot, ValueType)| *column == (wanted.slot, wanted.value_type);
        let is_there = self.columns.get(expected).is_some_and(is_wanted);
        self.cells.get(if is_there { expected } else { self.columns.iter().position(is_wanted)? }).copied()
    }
}

/// Rows as they are found.
struct RowCollector<'c> {
    columns: &'c [SelectedColumn],
    cached: &'c TableRows,
    /// Cached rows that follow one another, to be copied at once.
    run: Range<usize>,
    last: BatchLastRows,
}

impl<'c> RowCollector<'c> {
    fn new(columns: &'c [SelectedColumn], groups: usize, cached: &'c TableRows) -> Self {
        let last = BatchLastRows { groups: Vec::with_capacity(groups), rows: TableRows::new(columns, groups), read: 0 };
        Self { columns, cached, run: 0..0, last }
    }

    fn push_cached(&mut self, group: usize, row: usize) {
        if row != self.run.end {
            self.copy_run();
            self.run = row..row;
        }
        self.run.end = row + 1;
        self.last.groups.push(group);
    }

    fn push_head(&mut self, group: usize, time_ns: i64, cells: HeadCells<'_>) {
        self.copy_run();
        self.last.rows.push(time_ns, self.columns, |column, index| cells.get(column, index));
        self.last.groups.push(group);
    }

    /// Adds the last of a group's rows.
    fn push_read(&mut self, group: usize, rows: &TableRows) {
        self.copy_run();
        if let Some(row) = rows.timestamps_ns.len().checked_sub(1) {
            self.last.rows.extend_from(rows, row..row + 1);
            self.last.groups.push(group);
            self.last.read += 1;
        }
    }

    fn copy_run(&mut self) {
        let end = self.run.end;
        let run = std::mem::replace(&mut self.run, end..end);
        if !run.is_empty() {
            self.last.rows.extend_from(self.cached, run);
        }
    }

    fn finish(mut self) -> BatchLastRows {
        self.copy_run();
        self.last
    }
}

/// Last rows that were read of parts, to be cached.
struct Update {
    /// The groups by their numbers in the batch, each with the time of its row if it has one.
    groups: Vec<(usize, Option<i64>)>,
    rows: TableRows,
}

impl Update {
    /// Adds the last of a group's rows.
    fn push(&mut self, group: usize, rows: &TableRows) {
        let time_ns = rows.timestamps_ns.last().copied();
        self.groups.push((group, time_ns));
        let row = rows.timestamps_ns.len().saturating_sub(1);
        self.rows.extend_from(rows, row..rows.timestamps_ns.len());
    }
}

impl PartsLastRows {
    /// How far the parts' rows of each group reach; no row yet.
    fn new(snapshot: &BatchSnapshot<'_>) -> Result<Self, StoreError> {
        let until = |group: usize| {
            let until_ns = snapshot.part_bound(group)?;
            Ok(until_ns.map_or(LastInParts::None, LastInParts::Until))
        };
        Ok(Self {
            parts: Arc::downgrade(&snapshot.parts),
            deletes: Arc::downgrade(&snapshot.deletes),
            range: snapshot.range,
            groups: (0..snapshot.groups.len()).map(until).collect::<Result<_, StoreError>>()?,
            rows: TableRows::new(snapshot.columns, 0),
            _memory: None,
        })
    }

    /// Returns whether a snapshot would give the same.
    fn is_valid_for(&self, snapshot: &BatchSnapshot<'_>) -> bool {
        let is_same = std::ptr::eq(self.parts.as_ptr(), &raw const *snapshot.parts)
            && std::ptr::eq(self.deletes.as_ptr(), &raw const *snapshot.deletes);
        is_same && self.range.start_ns <= snapshot.range.start_ns && snapshot.is_to_the_end()
    }

    /// The cached last row of a group, for a range that may begin later than the cached one.
    fn get(&self, group: usize, range: &TimeRange) -> LastInParts {
        match self.groups.get(group).copied().unwrap_or(LastInParts::None) {
            LastInParts::Row { time_ns, .. } | LastInParts::Until(time_ns) if time_ns < range.start_ns => {
                LastInParts::None
            }
            known => known,
        }
    }

    /// The entry with more rows; `None` if there is too little memory for it.
    fn updated(&self, update: Update, table: &TableGroups) -> Option<Self> {
        let (mut rows, mut groups) = (self.rows.clone(), self.groups.clone());
        for (group, time_ns) in update.groups {
            let last = groups.get_mut(group)?;
            *last = LastInParts::None;
            if let Some(time_ns) = time_ns {
                *last = LastInParts::Row { time_ns, row: rows.timestamps_ns.len() };
                let from = rows.timestamps_ns.len() - self.rows.timestamps_ns.len();
                rows.extend_from(&update.rows, from..from + 1);
            }
        }
        let bytes = size_of::<Self>() + size_of_val(&*groups) + rows.size_bytes();
        let memory = table.reserve(bytes)?;
        let (parts, deletes) = (self.parts.clone(), self.deletes.clone());
        Some(Self { parts, deletes, groups, rows, range: self.range, _memory: Some(memory) })
    }
}

/// What a shard has of a batch at a moment.
pub(crate) struct BatchSnapshot<'r> {
    reader: &'r GroupReader<'r>,
    groups: &'r [SelectedGroup],
    columns: &'r [SelectedColumn],
    /// The member block of all columns.
    block: u32,
    range: TimeRange,
    parts: Arc<Vec<Arc<Part>>>,
    deletes: Arc<Vec<Delete>>,
    /// Of the head that is being flushed, if there is one, and of the newest one.
    heads: [Option<HeadLastRows>; 2],
}

impl<'r> BatchSnapshot<'r> {
    /// Takes it; `None` if the columns are in several member blocks.
    pub(crate) fn take(
        reader: &'r GroupReader<'r>,
        groups: &'r [SelectedGroup],
        columns: &'r [SelectedColumn],
        range: &TimeRange,
    ) -> Option<Self> {
        let (first, block) = (groups.first()?, only_block(columns)?);
        let shard: &Shard = reader.store.shards.get(first.shard)?;
        let range = reader.store.retained(first.key.database, range);
        let last_rows = |head: &Head| {
            let keys = groups.iter().map(|group| PartKey { block, ..group.key });
            (!head.is_empty()).then(|| head.last_rows(keys, &range))
        };
        // Under one lock: a row that moves from a head to a part meanwhile would be in neither.
        let (parts, deletes, frozen, head) = {
            let state = shard.state.lock();
            (state.parts.clone(), state.deletes.clone(), state.frozen.clone(), last_rows(&state.head))
        };
        let mut heads = [frozen.and_then(|frozen| last_rows(&frozen.head)), head];
        heads.iter_mut().flatten().for_each(HeadLastRows::finish);
        Some(Self { reader, groups, columns, block, range, parts, deletes, heads })
    }

    /// The last row that heads have of a group.
    pub(crate) fn head(&self, group: usize) -> HeadLastRow<'_> {
        let [frozen, newest] =
            self.heads.each_ref().map(|head| head.as_ref().map_or(HeadLastRow::None, |head| head.get(group)));
        newest.or(frozen)
    }

    /// Returns whether no part has rows after the range.
    fn is_to_the_end(&self) -> bool {
        self.parts.iter().all(|part| part.info.range.end_ns <= self.range.end_ns)
    }

    /// A time after which parts have no rows in the range, of no group; `None` if they have none at all.
    pub(crate) fn parts_until_ns(&self) -> Option<i64> {
        let overlapping = self.parts.iter().filter(|part| part.info.range.overlaps(&self.range));
        overlapping.map(|part| part.info.range.end_ns.min(self.range.end_ns)).max()
    }

    /// A time after which parts have no rows of a group in the range; `None` if they have none at all.
    pub(crate) fn part_bound(&self, group: usize) -> Result<Option<i64>, StoreError> {
        let Some(group) = self.groups.get(group) else { return Ok(None) };
        self.key(group).last_row_bound(&self.range, &self.reader.context.index_blocks)
    }

    /// A group in parts.
    fn key(&self, group: &SelectedGroup) -> KeySnapshot {
        let key = PartKey { block: self.block, ..group.key };
        KeySnapshot { key, parts: self.parts.clone(), deletes: self.deletes.clone(), heads: Vec::new() }
    }

    /// The last rows that parts have of a group, one at least if there is one; none are after a time.
    pub(crate) fn read_last(&self, group: usize, until_ns: i64) -> Result<TableRows, StoreError> {
        let Some(group) = self.groups.get(group) else { return Ok(TableRows::new(self.columns, 0)) };
        let key = self.key(group);
        let extent = TimeRange::new(self.range.start_ns, until_ns);
        let mut intervals = Intervals::new(extent, End::Newest);
        loop {
            let interval = intervals.advance();
            let rows = self.reader.read_view(&key, &interval, self.columns)?;
            if !rows.timestamps_ns.is_empty() || interval == extent {
                return Ok(rows);
            }
        }
    }
}
