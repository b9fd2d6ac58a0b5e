//! Rows of one group from several chunks, joined by time and age.

use index::Slot;
use model::ValueType;

use super::{Rows, RowsColumn};

/// Joins rows of one group, oldest first, each block's own in order of time: a later value replaces an earlier one, member by
/// member.
pub(crate) fn join(blocks: Vec<Rows>) -> Rows {
    let blocks = in_time_order(blocks);
    let alike = |a: &Rows, b: &Rows| {
        let kinds =
            |rows: &Rows| -> Vec<_> { rows.columns.iter().map(|column| (column.slot, column.value_type)).collect() };
        kinds(a) == kinds(b)
    };
    if !blocks.windows(2).all(|pair| matches!(pair, [a, b] if alike(a, b))) {
        return merge(&blocks);
    }
    let more = blocks.iter().skip(1).map(|rows| rows.timestamps_ns.len()).sum();
    let mut blocks = blocks.into_iter();
    let mut joined = blocks.next().unwrap_or_default();
    joined.timestamps_ns.reserve_exact(more);
    joined.columns.iter_mut().for_each(|column| column.cells.reserve_exact(more));
    for rows in blocks {
        joined.timestamps_ns.extend_from_slice(&rows.timestamps_ns);
        joined.columns.iter_mut().zip(&rows.columns).for_each(|(column, more)| column.append(more));
    }
    joined
}

/// Blocks that follow one another in time, of blocks as [`join`] takes them: only those that overlap are merged.
pub(crate) fn in_time_order(mut blocks: Vec<Rows>) -> Vec<Rows> {
    blocks.retain(|rows| !rows.timestamps_ns.is_empty());
    let follows = |a: &Rows, b: &Rows| a.timestamps_ns.last() < b.timestamps_ns.first();
    if blocks.windows(2).all(|pair| matches!(pair, [a, b] if follows(a, b))) {
        return blocks;
    }
    let mut by_start: Vec<(usize, Rows)> = blocks.into_iter().enumerate().collect();
    by_start.sort_by_key(|(_, rows)| rows.timestamps_ns.first().copied());
    let mut ordered = Vec::new();
    let (mut overlapping, mut end_ns): (Vec<(usize, Rows)>, Option<i64>) = (Vec::new(), None);
    for (age, rows) in by_start {
        if !overlapping.is_empty() && rows.timestamps_ns.first().copied() > end_ns {
            ordered.push(merge_by_age(std::mem::take(&mut overlapping)));
        }
        end_ns = end_ns.max(rows.timestamps_ns.last().copied());
        overlapping.push((age, rows));
    }
    ordered.push(merge_by_age(overlapping));
    ordered
}

fn merge_by_age(mut blocks: Vec<(usize, Rows)>) -> Rows {
    blocks.sort_by_key(|(age, _)| *age);
    let mut blocks: Vec<Rows> = blocks.into_iter().map(|(_, rows)| rows).collect();
    if blocks.len() > 1 { merge(&blocks) } else { blocks.pop().unwrap_or_default() }
}

/// A row of one of several blocks.
#[derive(Debug, Clone, Copy)]
struct BlockRow {
    timestamp_ns: i64,
    block: u32,
    row: u32,
}

/// Joins rows of one group, oldest first: sorted by time, a later value replacing an earlier one member by member. The blocks'
/// own rows may be in any order.
pub(crate) fn merge(blocks: &[Rows]) -> Rows {
    if let [alone] = blocks
        && let Some(sorted) = sort_distinct(alone)
    {
        return sorted;
    }
    let mut slots: Vec<(Slot, ValueType)> =
        blocks.iter().flat_map(|rows| &rows.columns).map(|column| (column.slot, column.value_type)).collect();
    slots.sort_unstable();
    slots.dedup_by_key(|(slot, _)| *slot);
    let mut order: Vec<BlockRow> = Vec::with_capacity(blocks.iter().map(|rows| rows.timestamps_ns.len()).sum());
    for (block, rows) in blocks.iter().enumerate() {
        let place = |(row, timestamp): (usize, &i64)| BlockRow {
            timestamp_ns: *timestamp,
            block: block as u32,
            row: row as u32,
        };
        order.extend(rows.timestamps_ns.iter().enumerate().map(place));
    }
    // Stable: rows of one time stay in order of age. Sorted ranges, as the blocks are, are merged, not sorted anew.
    order.sort_by_key(|place| place.timestamp_ns);
    let mut timestamps_ns: Vec<i64> = order.iter().map(|place| place.timestamp_ns).collect();
    timestamps_ns.dedup();
    let is_distinct = timestamps_ns.len() == order.len();
    let column = |slot: &(Slot, ValueType)| {
        let distinct = if is_distinct { interleave_column(blocks, &order, *slot) } else { None };
        distinct.unwrap_or_else(|| merge_column(blocks, &order, *slot))
    };
    Rows { columns: slots.iter().map(column).collect(), timestamps_ns }
}

/// A column of rows no two of which have the same time, if every block has a value in each: much faster than the general way.
fn interleave_column(blocks: &[Rows], order: &[BlockRow], (slot, value_type): (Slot, ValueType)) -> Option<RowsColumn> {
    let mut cells: Vec<&[u64]> = Vec::with_capacity(blocks.len());
    for rows in blocks {
        let column = rows.columns.iter().find(|column| column.slot == slot)?;
        if !column.validity.is_empty() || column.value_type != value_type || value_type.is_elsewhere() {
            return None;
        }
        cells.push(&column.cells);
    }
    let cell = |place: &BlockRow| cells.get(place.block as usize)?.get(place.row as usize).copied();
    let merged: Vec<u64> = order.iter().map(cell).collect::<Option<_>>()?;
    Some(RowsColumn { cells: merged, ..RowsColumn::new(slot, value_type) })
}

/// One block's rows in order of time; `None` if two have the same timestamp. Much faster than the general way, and what
/// late rows in a buffer come to.
fn sort_distinct(rows: &Rows) -> Option<Rows> {
    let order = order_distinct(&rows.timestamps_ns)?;
    Some(rows.pick(&order.into_iter().map(|row| row as usize).collect::<Vec<_>>()))
}

/// Places of timestamps (fewer than 2^32) in order of time; `None` if two are the same. Those that came in order are only gone
/// through, late ones are sorted and put between them.
pub(crate) fn order_distinct(timestamps_ns: &[i64]) -> Option<Vec<u32>> {
    let (mut on_time, mut late) = (Vec::with_capacity(timestamps_ns.len()), Vec::new());
    for (timestamp_ns, place) in timestamps_ns.iter().zip(0u32..) {
        match on_time.last() {
            Some((newest_ns, _)) if newest_ns >= timestamp_ns => late.push((*timestamp_ns, place)),
            _ => on_time.push((*timestamp_ns, place)),
        }
    }
    late.sort_unstable();
    if late.windows(2).any(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
        return None;
    }
    let mut order = Vec::with_capacity(timestamps_ns.len());
    let mut on_time = on_time.as_slice();
    for (timestamp_ns, place) in late {
        let before = on_time.partition_point(|(known_ns, _)| *known_ns < timestamp_ns);
        let (earlier, later) = on_time.split_at(before);
        if later.first().is_some_and(|(next_ns, _)| *next_ns == timestamp_ns) {
            return None;
        }
        order.extend(earlier.iter().map(|(_, place)| *place));
        order.push(place);
        on_time = later;
    }
    order.extend(on_time.iter().map(|(_, place)| *place));
    Some(order)
}

fn merge_column(blocks: &[Rows], order: &[BlockRow], (slot, value_type): (Slot, ValueType)) -> RowsColumn {
    let of_block = |rows: &Rows| rows.columns.iter().position(|column| column.slot == slot);
    let places: Vec<Option<usize>> = blocks.iter().map(of_block).collect();
    let column_of = |block: u32| blocks[block as usize].columns.get(places[block as usize]?);
    let mut merged = RowsColumn::new(slot, value_type);
    for same_time in order.chunk_by(|a, b| a.timestamp_ns == b.timestamp_ns) {
        let has_value =
            |place: &&BlockRow| column_of(place.block).is_some_and(|column| !column.is_null(place.row as usize));
        match same_time.iter().rev().find(has_value) {
            Some(place) => merged.push_from(column_of(place.block), place.row as usize),
            None => merged.push(None),
        }
    }
    merged
}
