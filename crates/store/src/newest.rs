//! The newest rows of many groups, where they are held: their cells are put side by side, and nothing is made of a group but these.

use std::sync::Arc;

use index::Slot;
use model::{CellColumn, STALE_NAN_BITS, TimeRange, ValueType, Values};

use crate::StoreError;
use crate::deletes::Delete;
use crate::part::{ChunkRef, Part, PartKey};
use crate::read::GroupReader;
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
    pub columns: Vec<Option<CellColumn>>,
}

impl NewestRows {
    /// No rows yet, with room for some.
    pub fn new(columns: &[SelectedColumn], rows: usize) -> Self {
        let empty = |column: &SelectedColumn| {
            let mut values = Values::empty(column.value_type)?;
            values.reserve(rows);
            Some(CellColumn { values, present: None })
        };
        Self { timestamps_ns: Vec::with_capacity(rows), columns: columns.iter().map(empty).collect() }
    }

    /// Adds the last row of a chunk's end.
    fn push(&mut self, tail: &Tail, row: usize, time_ns: i64, columns: &[SelectedColumn]) {
        let before = self.timestamps_ns.len();
        for (place, (column, wanted)) in self.columns.iter_mut().zip(columns).enumerate() {
            let Some(CellColumn { values, present }) = column else { continue };
            let cell = tail.cell(row, (wanted.slot, wanted.value_type), place);
            let cell = cell.filter(|cell| wanted.value_type != ValueType::F64 || *cell != STALE_NAN_BITS);
            push_cell(values, cell.unwrap_or_default());
            if cell.is_none() || present.is_some() {
                present.get_or_insert_with(|| vec![true; before]).push(cell.is_some());
            }
        }
        self.timestamps_ns.push(time_ns);
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

/// The newest chunk of a key in parts, and where the one before it ends.
#[derive(Default)]
struct NewestChunk<'p> {
    newest: Option<(&'p Part, ChunkRef)>,
    before_ns: Option<i64>,
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
}

impl GroupReader<'_> {
    /// Appends the newest row in a range of each of some groups of one table whose row is held, in their order, and calls for each group with
    /// whether it was. The others are to be read by [`Self::read_newest`] with the same width, which holds what it reads where it may. The
    /// groups have the columns that are given, none of which has labels of its own.
    pub fn held_newest<'g>(
        &self,
        groups: &'g [SelectedGroup],
        (range, width_ns): (&TimeRange, i64),
        columns: &[SelectedColumn],
        rows: &mut NewestRows,
        mut is_held: impl FnMut(&'g SelectedGroup, bool),
    ) -> Result<(), StoreError> {
        let slots: Vec<Slot> = columns.iter().map(|column| column.slot).collect();
        let block = only_block(columns);
        for of_shard in groups.chunk_by(|a, b| a.shard == b.shard) {
            let shard = of_shard.first().and_then(|group| self.store.shards.get(group.shard));
            let (Some(shard), Some(block)) = (shard, block) else {
                of_shard.iter().for_each(|group| is_held(group, false));
                continue;
            };
            let view = ShardView::take(shard, of_shard, block, (self, range));
            for (group, is_in_head) in of_shard.iter().zip(&view.in_heads) {
                let key = PartKey { block, ..group.key };
                let tail = if *is_in_head { None } else { view.tail(key, (self, width_ns), &slots)? };
                let last = tail.as_ref().and_then(|tail| {
                    let row = tail.timestamps_ns().len().checked_sub(1)?;
                    Some((tail, row, *tail.timestamps_ns().get(row)?))
                });
                if let Some((tail, row, time_ns)) = last {
                    rows.push(tail, row, time_ns, columns);
                }
                is_held(group, last.is_some());
            }
        }
        Ok(())
    }
}

/// What a shard has of some groups at a moment.
struct ShardView {
    parts: Arc<Vec<Arc<Part>>>,
    deletes: Arc<Vec<Delete>>,
    /// For each group whether a head has rows of it.
    in_heads: Vec<bool>,
    range: TimeRange,
}

impl ShardView {
    fn take(
        shard: &Shard,
        groups: &[SelectedGroup],
        block: u32,
        (reader, range): (&GroupReader<'_>, &TimeRange),
    ) -> Self {
        let database = groups.first().map(|group| group.key.database);
        let range = database.map_or(*range, |database| reader.store.kept(database, range));
        // Under one lock: a row that leaves a head for a part meanwhile would be in neither.
        let state = shard.state.lock();
        let is_in_head = |group: &SelectedGroup| {
            let key = PartKey { block, ..group.key };
            let frozen = state.frozen.as_ref().is_some_and(|frozen| frozen.head.has_rows(&key, &range));
            frozen || state.head.has_rows(&key, &range)
        };
        let in_heads = groups.iter().map(is_in_head).collect();
        Self { parts: state.parts.clone(), deletes: state.deletes.clone(), in_heads, range }
    }

    /// The end of the newest chunk of a key that no head has, if that chunk alone has its newest stretch, nothing of it is deleted, and its
    /// end is held.
    fn tail(
        &self,
        key: PartKey,
        (reader, width_ns): (&GroupReader<'_>, i64),
        slots: &[Slot],
    ) -> Result<Option<Arc<Tail>>, StoreError> {
        let mut found = NewestChunk::default();
        // What was written last is mostly what is newest: few of the others are to be looked into.
        for part in self.parts.iter().rev().filter(|part| part.info.range.overlaps(&self.range)) {
            if found.end_ns().is_some_and(|end_ns| part.info.range.end_ns < end_ns.saturating_sub(width_ns)) {
                continue;
            }
            let has_nodes = part.info.fold_ns > 0 && part.groups.contains(key.group);
            if has_nodes {
                return Ok(None);
            }
            part.find(key, &reader.way.seen, |chunks, _| {
                let overlapping = chunks.iter().filter(|chunk| chunk.range.overlaps(&self.range));
                overlapping.for_each(|chunk| found.add(part, *chunk));
            })?;
        }
        let Some((part, chunk)) = found.newest.filter(|(_, chunk)| chunk.range.end_ns <= self.range.end_ns) else {
            return Ok(None);
        };
        let end_ns = chunk.range.end_ns;
        let stretch = TimeRange::new(end_ns.saturating_sub(width_ns).max(self.range.start_ns), end_ns);
        let is_alone = found.before_ns.is_none_or(|before_ns| before_ns < stretch.start_ns);
        let is_whole = self.deletes.iter().all(|delete| !delete.touches(&key, &part.info));
        if !is_alone || !is_whole || !Tails::is_tail(&chunk, &stretch) {
            return Ok(None);
        }
        Ok(reader.way.tails.get(part, &chunk, &stretch, slots))
    }
}
