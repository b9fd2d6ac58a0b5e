//! Rows come into a head.

use std::sync::Arc;

use codec::Effort;
use index::{GroupId, Slot};
use model::{Span, TimeRange, ValueType};

use super::group::{DenseRows, GroupHead, Sealed, has_texts};
use super::layouts::{LayoutId, Placement};
use super::row_buffer::{NONE, SharedRows};
use super::{
    GroupLocation, Head, NOWHERE, POOL_PART, SEAL_BYTES_PER_MEMBER, SHARED, SealedChunk, change_layout, push_row,
    seal_bytes, split_members,
};
use crate::log::record::{RowBlock, ShardRows};
use crate::part::BLOCK_SLOTS;
use crate::part::chunk::CHUNK_ROWS_MAX;

impl Head {
    /// Adds a request's rows. Groups that have columns they had not in this head are handed to `grown` with those columns.
    pub(crate) fn append(&mut self, rows: &ShardRows, sequence: u64, mut grown: impl FnMut(GroupId, &[Slot])) {
        for block in &rows.blocks {
            self.rows += block.rows() as u64;
            self.newest_ns = self.newest_ns.max(block.timestamps_ns.iter().copied().max());
            let block_of = |(slot, _): &(Slot, ValueType)| slot / BLOCK_SLOTS;
            let first = block.columns.first().map_or(0, block_of);
            if !block.columns.iter().all(|column| block_of(column) == first) {
                for (number, part) in split_members(block) {
                    self.append_block(&part, number, &rows.text, sequence, &mut grown);
                }
                continue;
            }
            let others = if first == 0 { self.append_shared(block, &rows.text, &mut grown) } else { None };
            match others {
                None if first == 0 => {}
                others => {
                    self.append_block(others.as_ref().unwrap_or(block), first, &rows.text, sequence, &mut grown);
                }
            }
        }
        let first = self.sequences.map_or(sequence, |(first, _)| first);
        self.sequences = Some((first, sequence));
    }

    /// Adds the rows of groups that have had no other columns to the shared ones; the other rows.
    fn append_shared(
        &mut self,
        block: &RowBlock,
        text: &[u8],
        grown: &mut impl FnMut(GroupId, &[Slot]),
    ) -> Option<RowBlock> {
        let placed = self.layouts.placement(LayoutId::default(), &block.columns);
        let layout = placed.to;
        let width = self.layouts.width(layout);
        if width != block.columns.len() {
            return Some(block.clone());
        }
        if self.shared.len() <= layout as usize {
            self.shared.resize_with(layout as usize + 1, || None);
        }
        let mut shared = self.shared[layout as usize].take().unwrap_or_else(|| {
            SharedRows::new(&self.layouts.get(layout), self.pool.clone(), self.budget_bytes / POOL_PART)
        });
        let bytes_before = shared.bytes();
        let texts = has_texts(&block.columns);
        let mut moved = Vec::new();
        let mut others: Option<RowBlock> = None;
        for (row, (group, timestamp_ns)) in block.groups.iter().zip(&block.timestamps_ns).enumerate() {
            let cells = block.row(row);
            let known = self.location_of(*group);
            let fits = known.target == NOWHERE || known.target == layout | SHARED;
            if !fits || shared.is_full() {
                // One that changes its columns shares no more.
                let new = || RowBlock { columns: block.columns.clone(), ..RowBlock::default() };
                others.get_or_insert_with(new).push(*group, *timestamp_ns, cells);
                continue;
            }
            if known.target == NOWHERE {
                grown(*group, &block.columns.iter().map(|(slot, _)| *slot).collect::<Vec<_>>());
            }
            let cells = if texts { self.move_texts(block, row, text, &mut moved) } else { cells };
            let newest = shared.push(*group, known.newest, *timestamp_ns, cells, placed.indexes.as_deref());
            self.locations[*group as usize] = GroupLocation { target: layout | SHARED, newest };
        }
        self.bytes += shared.bytes() - bytes_before;
        self.shared[layout as usize] = Some(shared);
        others
    }

    /// A row's cells, their texts copied into the head.
    fn move_texts<'a>(&mut self, block: &RowBlock, row: usize, text: &[u8], moved: &'a mut Vec<u64>) -> &'a [u64] {
        moved.clear();
        let cells = block.row(row).iter().zip(&block.columns);
        moved.extend(
            cells.map(|(cell, (_, kind))| if kind.is_elsewhere() { self.move_text(*cell, text) } else { *cell }),
        );
        moved
    }

    /// The location of a group; it gets an entry if it has none.
    fn location_of(&mut self, group: GroupId) -> GroupLocation {
        let place = group as usize;
        if place >= self.locations.len() {
            self.locations.resize(place + 1, GroupLocation { target: NOWHERE, newest: NONE });
        }
        self.locations[place]
    }

    /// Rows whose columns are all of one member block.
    fn append_block(
        &mut self,
        block: &RowBlock,
        number: u32,
        text: &[u8],
        sequence: u64,
        grown: &mut impl FnMut(GroupId, &[Slot]),
    ) {
        let texts = has_texts(&block.columns);
        let mut placement: Option<Placement> = None;
        let mut moved = Vec::new();
        for (row, (group, timestamp_ns)) in block.groups.iter().zip(&block.timestamps_ns).enumerate() {
            let cells = if texts { self.move_texts(block, row, text, &mut moved) } else { block.row(row) };
            let place = if number == 0 { Some(self.own_index(*group)) } else { None };
            let head = match place {
                Some(place) => &mut self.groups[place].1,
                None => self.wide.entry((*group, number)).or_default(),
            };
            let placed = match placement.take() {
                Some(placed) if placed.from == head.layout || placed.to == head.layout => placed,
                _ => self.layouts.placement(head.layout, &block.columns),
            };
            let mut bytes = 0;
            if placed.to != head.layout {
                bytes += change_layout(head, &self.layouts, placed.to);
                grown(*group, &block.columns.iter().map(|(slot, _)| *slot).collect::<Vec<_>>());
            }
            let width = self.layouts.width(head.layout);
            bytes += push_row(head, *timestamp_ns, cells, placed.indexes.as_deref(), width, sequence);
            let full_bytes = self.seal_bytes.max(width * SEAL_BYTES_PER_MEMBER);
            let is_full = head.buffer.len() * 8 >= full_bytes || head.buffer.len() >= CHUNK_ROWS_MAX;
            self.bytes += bytes;
            if is_full {
                self.seal(place, (*group, number));
            }
            placement = Some(placed);
        }
    }

    /// The place of a group that shares no buffer, from now on.
    fn own_index(&mut self, group: GroupId) -> usize {
        let known = self.location_of(group);
        if known.target & SHARED == 0 {
            return known.target as usize;
        }
        let place = self.groups.len();
        let shared_layout = if known.target == NOWHERE { LayoutId::default() } else { known.target & !SHARED };
        self.groups.push((group, GroupHead { shared_layout, ..GroupHead::default() }));
        self.locations[group as usize].target = place as u32;
        place
    }

    /// Copies the text of a string cell into the head.
    fn move_text(&mut self, cell: u64, text: &[u8]) -> u64 {
        let from = Span::from_cell(cell);
        let bytes = text.get(from.start as usize..).and_then(|text| text.get(..from.len as usize));
        let bytes = bytes.unwrap_or_default();
        let moved = Span { start: self.text.len() as u32, len: bytes.len() as u32 }.to_cell();
        self.text.extend_from_slice(bytes);
        self.bytes += bytes.len();
        moved
    }

    fn seal(&mut self, place: Option<usize>, key: (GroupId, u32)) {
        let found = match place {
            Some(place) => self.groups.get(place).map(|(_, head)| head),
            None => self.wide.get(&key),
        };
        let Some(range) = found.and_then(GroupHead::range) else {
            return;
        };
        let columns = found.map(|head| self.layouts.get(head.layout)).unwrap_or_default();
        let is_dense = found.is_some_and(|head| !head.sparse) && !has_texts(&columns);
        let chunk = if is_dense { None } else { found.and_then(|head| self.encode_buffer(head)) };
        self.seal_bytes = seal_bytes(self.budget_bytes, self.groups.len() + self.wide.len());
        let found = match place {
            Some(place) => self.groups.get_mut(place).map(|(_, head)| head),
            None => self.wide.get_mut(&key),
        };
        let Some(head) = found else {
            return;
        };
        if let Some(chunk) = chunk {
            self.bytes = self.bytes + chunk.bytes.len() + size_of::<Sealed>() - head.buffer.len() * 8;
            head.buffer.clear();
            head.sealed.push(Sealed::Chunk(chunk));
            if head.buffer.capacity() * 8 > self.seal_bytes * 2 {
                head.buffer.shrink_to(self.seal_bytes / 8);
            }
            return;
        }
        // The next one becomes as long, most likely.
        let next = Vec::with_capacity(head.buffer.len());
        let buffer = std::mem::replace(&mut head.buffer, next);
        self.bytes += size_of::<Sealed>() + size_of::<DenseRows>();
        let dense = DenseRows { columns, unsorted: head.unsorted, range, sequences: head.sequences, buffer };
        head.sealed.push(Sealed::Dense(Arc::new(dense)));
    }

    /// The row buffer as a chunk; `None` if it is empty.
    fn encode_buffer(&self, head: &GroupHead) -> Option<SealedChunk> {
        let rows = self.sorted(head, &TimeRange::ALL, None);
        SealedChunk::from_rows(&rows, 0..rows.timestamps_ns.len(), head.sequences, Effort::Fast)
    }
}
