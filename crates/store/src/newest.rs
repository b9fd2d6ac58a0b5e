//! The newest rows of many groups, where they are at hand: in heads, or held of parts. Their cells are put side by side, and nothing is made
//! of a group but these.

use std::ops::Range;
use std::sync::{Arc, Weak};

use index::Slot;
use model::{Column, STALE_NAN_BITS, TimeRange, ValueType, Values};

use crate::StoreError;
use crate::chosen::{TableGroups, Taken};
use crate::deletes::Delete;
use crate::head::{Head, HeadNewest, NewestRow};
use crate::part::{ChunkRef, Part, PartKey};
use crate::read::{GroupReader, ReadersWay};
use crate::scan::{SelectedColumn, SelectedGroup};
use crate::shard::Shard;
use crate::tables::only_block;
use crate::tails::{Tail, Tails};

/// A row of each of many groups, which have the same columns.
#[derive(Debug, Clone, PartialEq)]
pub struct NewestRows {
    /// When, in nanoseconds since the Unix epoch.
    pub timestamps_ns: Vec<i64>,
    /// One for each of [`SelectedGroup::columns`], stale markers as nulls; `None` for histograms.
    pub columns: Vec<Option<Column>>,
}

impl NewestRows {
    /// No rows yet, with room for some.
    pub fn new(columns: &[SelectedColumn], rows: usize) -> Self {
        let empty = |column: &SelectedColumn| {
            let mut values = Values::empty(column.value_type)?;
            values.reserve(rows);
            Some(Column::of_values(values))
        };
        Self { timestamps_ns: Vec::with_capacity(rows), columns: columns.iter().map(empty).collect() }
    }

    /// Adds a row, given the cell of each column with its place; `None` if it is null.
    fn push(&mut self, time_ns: i64, columns: &[SelectedColumn], cell: impl Fn(&SelectedColumn, usize) -> Option<u64>) {
        let before = self.timestamps_ns.len();
        for (place, (column, wanted)) in self.columns.iter_mut().zip(columns).enumerate() {
            let Some(Column { values, validity }) = column else { continue };
            let cell = cell(wanted, place);
            let cell = cell.filter(|cell| wanted.value_type != ValueType::F64 || *cell != STALE_NAN_BITS);
            push_cell(values, cell.unwrap_or_default());
            if cell.is_none() || validity.is_some() {
                validity.get_or_insert_with(|| vec![true; before]).push(cell.is_some());
            }
        }
        self.timestamps_ns.push(time_ns);
    }

    /// Adds some rows of others that have the same columns.
    fn push_all(&mut self, others: &Self, rows: Range<usize>) {
        let before = self.timestamps_ns.len();
        for (column, other) in self.columns.iter_mut().zip(&others.columns) {
            let (Some(Column { values, validity }), Some(other)) = (column, other) else { continue };
            push_values(values, &other.values, rows.clone());
            if other.validity.is_some() || validity.is_some() {
                let validity = validity.get_or_insert_with(|| vec![true; before]);
                match &other.validity {
                    Some(other) => validity.extend_from_slice(other.get(rows.clone()).unwrap_or_default()),
                    None => validity.resize(before + rows.len(), true),
                }
            }
        }
        self.timestamps_ns.extend_from_slice(others.timestamps_ns.get(rows).unwrap_or_default());
    }

    /// About as many bytes as it takes.
    fn size_bytes(&self) -> usize {
        let rows = self.timestamps_ns.len();
        let of_column = |column: &Column| rows * (size_of::<u64>() + usize::from(column.validity.is_some()));
        let columns: usize = self.columns.iter().flatten().map(of_column).sum();
        columns + rows * size_of::<i64>() + size_of_val(&*self.columns)
    }
}

fn push_cell(values: &mut Values, cell: u64) {
    match values {
        Values::F64(values) => values.push(f64::from_bits(cell)),
        Values::I64(values) => values.push(cell as i64),
        Values::U64(values) => values.push(cell),
        Values::Bool(values) => values.push(cell != 0),
        // Texts are not held: it is one of a null.
        Values::Text(values) => values.push(String::new()),
    }
}

fn push_values(values: &mut Values, others: &Values, rows: Range<usize>) {
    match (values, others) {
        (Values::F64(values), Values::F64(others)) => values.extend_from_slice(others.get(rows).unwrap_or_default()),
        (Values::I64(values), Values::I64(others)) => values.extend_from_slice(others.get(rows).unwrap_or_default()),
        (Values::U64(values), Values::U64(others)) => values.extend_from_slice(others.get(rows).unwrap_or_default()),
        (Values::Bool(values), Values::Bool(others)) => values.extend_from_slice(others.get(rows).unwrap_or_default()),
        // Texts are not held, and other types are not those of the same columns.
        (Values::Text(values), _) => values.resize(values.len() + rows.len(), String::new()),
        _ => {}
    }
}

/// The newest chunk of a key in parts, and where the one before it ends.
#[derive(Default)]
struct NewestChunk<'p> {
    newest: Option<(&'p Part, ChunkRef)>,
    before_ns: Option<i64>,
    /// Some of its rows were folded, so that chunks do not tell.
    has_nodes: bool,
}

impl<'p> NewestChunk<'p> {
    fn add(&mut self, part: &'p Part, chunk: ChunkRef) {
        let end_ns = self.end_ns();
        if end_ns.is_none_or(|end_ns| chunk.range.end_ns > end_ns) {
            (self.newest, self.before_ns) = (Some((part, chunk)), end_ns);
        } else {
            self.before_ns = self.before_ns.max(Some(chunk.range.end_ns));
        }
    }

    fn end_ns(&self) -> Option<i64> {
        self.newest.map(|(_, chunk)| chunk.range.end_ns)
    }

    /// A time behind which there are no rows; `None`: there are none at all.
    fn until_ns(&self) -> Option<i64> {
        if self.has_nodes { Some(i64::MAX) } else { self.end_ns() }
    }
}

/// What parts have of the newest rows of groups that follow one another. It holds as long as the shard has these parts and deletes.
pub(crate) struct NewestOfParts {
    parts: Weak<Vec<Arc<Part>>>,
    deletes: Weak<Vec<Delete>>,
    /// The range in which they were looked for, to the end of all parts or farther, and the width.
    range: TimeRange,
    width_ns: i64,
    groups: Vec<GroupInParts>,
    rows: NewestRows,
    /// Room for what is kept.
    _taken: Option<Taken>,
}

/// What parts have of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct GroupInParts {
    /// A time behind which there are no rows; `None`: there are none at all.
    until_ns: Option<i64>,
    /// The place of its newest row among those that are held, if it is.
    row: Option<usize>,
}

/// Where a group's newest row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lies {
    /// There are no rows.
    Nowhere,
    /// In a head alone.
    InHead,
    /// In parts alone.
    InParts,
    /// In several places, or nobody knows before it is read.
    Somewhere,
}

impl Lies {
    /// Given what heads have, and until when parts have rows.
    fn of(head: &NewestRow<'_>, parts_until_ns: Option<i64>) -> Self {
        match (head, parts_until_ns) {
            (NewestRow::None, None) => Self::Nowhere,
            (NewestRow::None, Some(_)) => Self::InParts,
            (NewestRow::Row { .. }, None) => Self::InHead,
            // Of one time each may have some of the columns.
            (NewestRow::Row { time_ns, .. }, Some(until_ns)) if *time_ns > until_ns => Self::InHead,
            (NewestRow::Row { time_ns, .. }, Some(until_ns)) if *time_ns < until_ns => Self::InParts,
            _ => Self::Somewhere,
        }
    }
}

impl GroupReader<'_> {
    /// Appends the newest row in a range of each group of a piece of a table whose row is at hand, in their order, and calls for each group
    /// that may have rows with its place in the table and whether it was. The others are to be read by [`Self::read_newest`] with the same
    /// width, which holds what it reads where it may. None of the columns has labels of its own.
    pub fn newest_at_hand(
        &self,
        (table, piece): (&TableGroups, usize),
        (range, width_ns): (&TimeRange, i64),
        rows: &mut NewestRows,
        mut is_at_hand: impl FnMut(usize, bool),
    ) -> Result<(), StoreError> {
        let (from, groups) = table.piece(piece);
        let Some(first) = groups.first() else { return Ok(()) };
        let columns = &*first.columns;
        let (Some(shard), Some(block), Some(kept)) =
            (self.store.shards.get(first.shard), only_block(columns), table.newest_of(piece))
        else {
            (from..from + groups.len()).for_each(|place| is_at_hand(place, false));
            return Ok(());
        };
        let view = ShardView::take(shard, (groups, block), self, (range, width_ns));
        let known = kept.lock().clone().filter(|known| known.is_of(&view));
        let is_known = known.is_some();
        let of_parts = match known {
            Some(known) => known,
            None => Arc::new(NewestOfParts::new(&view, groups, columns)?),
        };
        let mut more = MoreRows { rows: NewestRows::new(columns, 0), groups: Vec::new() };
        let mut taken = Gathered { rows, from: &of_parts.rows, run: 0..0 };
        for (number, group) in groups.iter().enumerate() {
            let (head, in_parts) = (view.head(number), of_parts.of(number, &view.range));
            let is_found = match (Lies::of(&head, in_parts.until_ns), head, in_parts.row) {
                (Lies::Nowhere, ..) => continue,
                (Lies::InHead, NewestRow::Row { time_ns, cells, columns: of_cells }, _) => {
                    let cell = |column: &SelectedColumn, place| cell_of((cells, of_cells), column, place);
                    taken.apart().push(time_ns, columns, cell);
                    true
                }
                (Lies::InParts, _, Some(row)) => taken.push(row),
                (Lies::InParts, _, None) => match view.tail(group, columns)? {
                    Some(tail) => more.add(number, &tail, columns, taken.apart()),
                    None => false,
                },
                _ => false,
            };
            is_at_hand(from + number, is_found);
        }
        taken.apart();
        if !is_known || !more.groups.is_empty() {
            // Without room for it, what was held before is not held either: it would be asked for more each time.
            *kept.lock() = of_parts.with(more, &view, table).map(Arc::new);
        }
        Ok(())
    }
}

/// A cell of a row, which mostly is where it is expected.
fn cell_of((cells, columns): (&[u64], &[(Slot, ValueType)]), wanted: &SelectedColumn, expected: usize) -> Option<u64> {
    let is_it = |column: &(Slot, ValueType)| *column == (wanted.slot, wanted.value_type);
    let is_there = columns.get(expected).is_some_and(is_it);
    cells.get(if is_there { expected } else { columns.iter().position(is_it)? }).copied()
}

/// Rows that are taken, of which those that follow one another are copied at once.
struct Gathered<'r> {
    rows: &'r mut NewestRows,
    from: &'r NewestRows,
    run: Range<usize>,
}

impl Gathered<'_> {
    /// Takes one of the rows. True, as there is one.
    fn push(&mut self, row: usize) -> bool {
        if row != self.run.end {
            self.apart();
            self.run = row..row;
        }
        self.run.end = row + 1;
        true
    }

    /// The rows, for whoever adds others.
    fn apart(&mut self) -> &mut NewestRows {
        let end = self.run.end;
        let run = std::mem::replace(&mut self.run, end..end);
        if !run.is_empty() {
            self.rows.push_all(self.from, run);
        }
        self.rows
    }
}

/// Rows of parts that were not held so far, and the numbers of their groups.
struct MoreRows {
    rows: NewestRows,
    groups: Vec<usize>,
}

impl MoreRows {
    /// Adds the last row of a chunk's end, here and where rows are taken; whether there is one.
    fn add(&mut self, group: usize, tail: &Tail, columns: &[SelectedColumn], taken: &mut NewestRows) -> bool {
        let last = tail.timestamps_ns().len().checked_sub(1);
        let Some((row, time_ns)) = last.and_then(|row| Some((row, *tail.timestamps_ns().get(row)?))) else {
            return false;
        };
        let cell = |column: &SelectedColumn, place| tail.cell(row, (column.slot, column.value_type), place);
        self.rows.push(time_ns, columns, cell);
        self.groups.push(group);
        taken.push(time_ns, columns, cell);
        true
    }
}

impl NewestOfParts {
    /// Until when parts have rows of groups; no row yet.
    fn new(view: &ShardView, groups: &[SelectedGroup], columns: &[SelectedColumn]) -> Result<Self, StoreError> {
        let until =
            |group: &SelectedGroup| Ok(GroupInParts { until_ns: view.newest_chunk(group)?.until_ns(), row: None });
        Ok(Self {
            parts: Arc::downgrade(&view.parts),
            deletes: Arc::downgrade(&view.deletes),
            range: view.range,
            width_ns: view.width_ns,
            groups: groups.iter().map(until).collect::<Result<_, StoreError>>()?,
            rows: NewestRows::new(columns, 0),
            _taken: None,
        })
    }

    /// Whether it is what would be found.
    fn is_of(&self, view: &ShardView) -> bool {
        let is_same = std::ptr::eq(self.parts.as_ptr(), &raw const *view.parts)
            && std::ptr::eq(self.deletes.as_ptr(), &raw const *view.deletes);
        is_same && self.width_ns == view.width_ns && self.range.start_ns <= view.range.start_ns && view.is_to_the_end()
    }

    /// What parts have of a group in a range that may begin later.
    fn of(&self, group: usize, range: &TimeRange) -> GroupInParts {
        let found = self.groups.get(group).copied();
        let found = found.filter(|found| found.until_ns.is_some_and(|until_ns| until_ns >= range.start_ns));
        found.unwrap_or(GroupInParts { until_ns: None, row: None })
    }

    /// The same with more rows, to be kept; `None` if it may not be, or there is no room for it.
    fn with(&self, more: MoreRows, view: &ShardView, table: &TableGroups) -> Option<Self> {
        if !view.is_to_the_end() {
            return None;
        }
        let (mut rows, mut groups) = (self.rows.clone(), self.groups.clone());
        let before = rows.timestamps_ns.len();
        for (number, row) in more.groups.into_iter().zip(before..) {
            groups.get_mut(number)?.row = Some(row);
        }
        rows.push_all(&more.rows, 0..more.rows.timestamps_ns.len());
        let bytes = size_of::<Self>() + size_of_val(&*groups) + rows.size_bytes();
        let taken = table.take_room(bytes)?;
        let (parts, deletes) = (self.parts.clone(), self.deletes.clone());
        Some(Self { parts, deletes, groups, rows, _taken: Some(taken), ..*self })
    }
}

/// What a shard has of some groups at a moment.
struct ShardView<'r> {
    parts: Arc<Vec<Arc<Part>>>,
    deletes: Arc<Vec<Delete>>,
    /// Of the head that is being flushed, if there is one, and of the newest one.
    heads: [Option<HeadNewest>; 2],
    block: u32,
    way: &'r ReadersWay,
    range: TimeRange,
    /// The stretch behind the newest row that is read if no more is known.
    width_ns: i64,
}

impl<'r> ShardView<'r> {
    fn take(
        shard: &Shard,
        (groups, block): (&[SelectedGroup], u32),
        reader: &'r GroupReader<'_>,
        (range, width_ns): (&TimeRange, i64),
    ) -> Self {
        let database = groups.first().map(|group| group.key.database);
        let range = database.map_or(*range, |database| reader.store.kept(database, range));
        let newest = |head: &Head| {
            let keys = groups.iter().map(|group| PartKey { block, ..group.key });
            (!head.is_empty()).then(|| head.newest(keys, &range))
        };
        // Under one lock: a row that leaves a head for a part meanwhile would be in neither.
        let (parts, deletes, frozen, head) = {
            let state = shard.state.lock();
            (state.parts.clone(), state.deletes.clone(), state.frozen.clone(), newest(&state.head))
        };
        let mut heads = [frozen.and_then(|frozen| newest(&frozen.head)), head];
        heads.iter_mut().flatten().for_each(HeadNewest::finish);
        Self { parts, deletes, heads, block, way: &reader.way, range, width_ns }
    }

    /// The newest row of one of the groups that heads have.
    fn head(&self, group: usize) -> NewestRow<'_> {
        let [frozen, newest] =
            self.heads.each_ref().map(|head| head.as_ref().map_or(NewestRow::None, |head| head.of(group)));
        newest.or(frozen)
    }

    /// Whether no part has rows behind the range.
    fn is_to_the_end(&self) -> bool {
        self.parts.iter().all(|part| part.info.range.end_ns <= self.range.end_ns)
    }

    /// The newest chunk of a group in parts.
    fn newest_chunk(&self, group: &SelectedGroup) -> Result<NewestChunk<'_>, StoreError> {
        let key = PartKey { block: self.block, ..group.key };
        let mut found = NewestChunk::default();
        // What was written last is mostly what is newest: few of the others are to be looked into.
        for part in self.parts.iter().rev().filter(|part| part.info.range.overlaps(&self.range)) {
            if found.end_ns().is_some_and(|end_ns| part.info.range.end_ns < end_ns.saturating_sub(self.width_ns)) {
                continue;
            }
            if part.info.fold_ns > 0 && part.groups.contains(key.group) {
                found.has_nodes = true;
                break;
            }
            part.find(key, &self.way.seen, |chunks, _| {
                let overlapping = chunks.iter().filter(|chunk| chunk.range.overlaps(&self.range));
                overlapping.for_each(|chunk| found.add(part, *chunk));
            })?;
        }
        Ok(found)
    }

    /// The end of the newest chunk of a group that no head has, if that chunk alone has its newest stretch, nothing of it is deleted, and its
    /// end is held.
    fn tail(&self, group: &SelectedGroup, columns: &[SelectedColumn]) -> Result<Option<Arc<Tail>>, StoreError> {
        let key = PartKey { block: self.block, ..group.key };
        let found = self.newest_chunk(group)?;
        let newest = found.newest.filter(|(_, chunk)| chunk.range.end_ns <= self.range.end_ns && !found.has_nodes);
        let Some((part, chunk)) = newest else { return Ok(None) };
        let end_ns = chunk.range.end_ns;
        let stretch = TimeRange::new(end_ns.saturating_sub(self.width_ns).max(self.range.start_ns), end_ns);
        let is_alone = found.before_ns.is_none_or(|before_ns| before_ns < stretch.start_ns);
        let is_whole = self.deletes.iter().all(|delete| !delete.touches(&key, &part.info));
        if !is_alone || !is_whole || !Tails::is_tail(&chunk, &stretch) {
            return Ok(None);
        }
        let slots: Vec<Slot> = columns.iter().map(|column| column.slot).collect();
        Ok(self.way.tails.get(part, &chunk, &stretch, &slots))
    }
}
