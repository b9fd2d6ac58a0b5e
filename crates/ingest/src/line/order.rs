//! Later lines win over earlier ones with the same group and time. Within a block rows are in order, and blocks are
//! written one after the other; so where such lines went to several blocks (their fields differ), and not in order, they
//! are moved into blocks of their own at the end.

use std::collections::HashMap;

use model::{Block, GroupKey};

/// A row that might have to move.
#[derive(Clone, Copy)]
struct RowPosition {
    block: usize,
    row: usize,
}

/// Puts blocks right in which a later line would not win. Two spellings of one group count as two groups here.
pub(super) fn restore_order(blocks: &mut Vec<Block>) {
    let mut by_measurement: HashMap<&str, Vec<usize>> = HashMap::new();
    for (place, block) in blocks.iter().enumerate() {
        by_measurement.entry(block.measurement.as_deref().unwrap_or_default()).or_default().push(place);
    }
    let mut moving: Vec<RowPosition> = Vec::new();
    for places in by_measurement.into_values().filter(|places| places.len() > 1) {
        if has_repeats(blocks, &places) {
            moving.extend(out_of_order(blocks, &places));
        }
    }
    if !moving.is_empty() {
        move_to_end(blocks, moving);
    }
}

/// Whether some group and time probably come twice. Nearly always they do not, and one word a row is enough to tell.
fn has_repeats(blocks: &[Block], places: &[usize]) -> bool {
    let mut digests: Vec<u64> = Vec::new();
    for block in places.iter().filter_map(|place| blocks.get(*place)) {
        let rows = block.keys.iter().zip(&block.timestamps_ns);
        digests.extend(rows.map(|(key, time)| (key.hash as u64) ^ (*time as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    }
    digests.sort_unstable();
    digests.windows(2).any(|pair| matches!(pair, [a, b] if a == b))
}

/// The rows with a group and time whose blocks are not in the order of their lines.
fn out_of_order(blocks: &[Block], places: &[usize]) -> Vec<RowPosition> {
    let mut rows: Vec<(u128, i64, u32, RowPosition)> = Vec::new();
    for (place, block) in places.iter().filter_map(|place| Some((*place, blocks.get(*place)?))) {
        for (row, ((key, time), line)) in block.keys.iter().zip(&block.timestamps_ns).zip(&block.lines).enumerate() {
            rows.push((key.hash, *time, *line, RowPosition { block: place, row }));
        }
    }
    rows.sort_unstable_by_key(|(hash, time, line, _)| (*hash, *time, *line));
    rows.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1))
        .filter(|same| !same.is_sorted_by_key(|(_, _, _, place)| place.block))
        .flat_map(|same| same.iter().map(|(_, _, _, place)| *place))
        .collect()
}

/// Takes rows out of their blocks and puts them, in order of their lines, into new blocks at the end.
fn move_to_end(blocks: &mut Vec<Block>, mut moving: Vec<RowPosition>) {
    let line = |place: &RowPosition| blocks.get(place.block).and_then(|block| block.lines.get(place.row)).copied();
    moving.sort_unstable_by_key(line);
    let mut end: Vec<Block> = Vec::new();
    let mut last = None;
    for place in &moving {
        let Some(from) = blocks.get(place.block) else { continue };
        if last != Some(place.block) {
            let (measurement, fields) = (from.measurement.clone(), from.fields.clone());
            end.push(Block { measurement, fields, ..Block::default() });
            last = Some(place.block);
        }
        if let Some(to) = end.last_mut() {
            copy_row(from, place.row, to);
        }
    }
    moving.sort_unstable_by_key(|place| (place.block, place.row));
    for of_block in moving.chunk_by(|a, b| a.block == b.block) {
        if let Some(block) = of_block.first().and_then(|place| blocks.get_mut(place.block)) {
            remove_rows(block, of_block);
        }
    }
    blocks.extend(end);
    blocks.retain(|block| block.rows() > 0);
}

fn copy_row(from: &Block, row: usize, to: &mut Block) {
    let parts: (Option<&GroupKey>, Option<&i64>, Option<&u32>) =
        (from.keys.get(row), from.timestamps_ns.get(row), from.lines.get(row));
    if let (Some(key), Some(timestamp_ns), Some(line)) = parts {
        to.keys.push(*key);
        to.timestamps_ns.push(*timestamp_ns);
        to.lines.push(*line);
        to.cells.extend_from_slice(from.row(row));
    }
}

/// Leaves the rows that are not among these, which are in order.
fn remove_rows(block: &mut Block, removed: &[RowPosition]) {
    let mut left = Block { measurement: block.measurement.clone(), fields: block.fields.clone(), ..Block::default() };
    let mut removed = removed.iter().map(|place| place.row).peekable();
    for row in 0..block.rows() {
        if removed.next_if_eq(&row).is_none() {
            copy_row(block, row, &mut left);
        }
    }
    *block = left;
}
