//! Rows are read from a head.

use index::{GroupId, Slot};
use model::TimeRange;

use super::group::{self, GroupHead, Sealed, has_texts, is_present};
use super::layouts::LayoutId;
use super::row_buffer::{GroupRows, GroupedRows, SharedRows, SharedView};
use super::{Head, HeadBlock, NOWHERE, SHARED, Shares, is_ascending};
use crate::part::PartKey;
use crate::part::chunk::{self, Rows, RowsColumn};

impl Head {
    /// The rows of a group's buffer in a range, sorted and merged, with the given columns (sorted) or all.
    pub(super) fn sorted(&self, head: &GroupHead, range: &TimeRange, slots: Option<&[Slot]>) -> Rows {
        let columns = self.layouts.get(head.layout);
        let mut rows = Rows::default();
        let mut wanted = Vec::new();
        for (place, (slot, value_type)) in columns.iter().enumerate() {
            if slots.is_none_or(|slots| slots.binary_search(slot).is_ok()) {
                wanted.push(place);
                rows.columns.push(RowsColumn::new(*slot, *value_type));
            }
        }
        if *range == TimeRange::ALL && !head.sparse && !has_texts(&columns) {
            return group::dense_rows(&head.buffer, &columns, head.unsorted, slots);
        }
        for (timestamp_ns, present, cells) in head.rows(columns.len()) {
            if !range.contains(timestamp_ns) {
                continue;
            }
            rows.timestamps_ns.push(timestamp_ns);
            for (column, place) in rows.columns.iter_mut().zip(&wanted) {
                let cell = cells.get(*place).copied().filter(|_| is_present(present, *place));
                self.push_cell(column, cell);
            }
        }
        if head.unsorted { chunk::merge(&[rows]) } else { rows }
    }

    pub(super) fn push_cell(&self, column: &mut RowsColumn, cell: Option<u64>) {
        match cell {
            Some(cell) if column.value_type.is_elsewhere() => {
                column.push_text(crate::log::record::text_of(&self.text, cell).unwrap_or_default());
            }
            cell => column.push(cell),
        }
    }

    /// Rows of a group among the shared ones; where texts are among them at once, for the head has these.
    fn shared_piece(&self, view: SharedView, layout: LayoutId, slots: &[Slot]) -> HeadBlock {
        let columns = self.layouts.get(layout);
        if !has_texts(&columns) {
            return HeadBlock::Shared(view, columns);
        }
        let mut found = group::dense_rows(&view.rows(), &columns, false, Some(slots));
        for column in found.columns.iter_mut().filter(|column| column.value_type.is_elsewhere()) {
            let cells = std::mem::take(&mut column.cells);
            cells.into_iter().for_each(|cell| self.push_cell(column, Some(cell)));
        }
        HeadBlock::Loose(if is_ascending(&found.timestamps_ns) { found } else { chunk::merge(&[found]) })
    }

    /// All that a group has among the shared rows as columns, sorted and merged.
    pub(super) fn columns_of_rows(&self, layout: LayoutId, gathered: GroupRows) -> Rows {
        let columns = self.layouts.get(layout);
        let GroupRows { timestamps_ns, columns: cells, is_ordered } = gathered;
        let mut rows = Rows { timestamps_ns, columns: Vec::with_capacity(columns.len()) };
        for ((slot, value_type), of_column) in columns.iter().zip(cells) {
            let mut column = RowsColumn::new(*slot, *value_type);
            if value_type.is_elsewhere() {
                of_column.into_iter().for_each(|cell| self.push_cell(&mut column, Some(cell)));
            } else {
                column.cells = of_column;
            }
            rows.columns.push(column);
        }
        if is_ordered { rows } else { chunk::merge(&[rows]) }
    }

    /// The shared rows that a group has some of, their layout, and its newest.
    pub(super) fn shared_location(&self, group: GroupId) -> Option<(&SharedRows, LayoutId, u32)> {
        let place = self.locations.get(group as usize)?;
        let layout = match place.target {
            NOWHERE => return None,
            shared if shared & SHARED != 0 => shared & !SHARED,
            own => self.groups.get(own as usize)?.1.shared_layout,
        };
        Some((self.shared.get(layout as usize)?.as_ref()?, layout, place.newest))
    }

    /// Where all rows of a group's first member block are.
    pub(crate) fn shares(&self, group: GroupId) -> Shares {
        match self.locations.get(group as usize).map_or(NOWHERE, |place| place.target) {
            NOWHERE => Shares::Nothing,
            shared if shared & SHARED != 0 => Shares::Layout(shared & !SHARED),
            _ => Shares::NotAll,
        }
    }

    /// The rows in a range that share a layout; `None` if more than so many are to be looked at for them.
    pub(crate) fn recent(&self, layout: LayoutId, range: &TimeRange, rows_max: usize) -> Option<GroupedRows> {
        let shared = self.shared.get(layout as usize)?.as_ref()?;
        shared.recent(self.layouts.get(layout), range, rows_max)
    }

    /// What the head has of a key in a range, oldest first; some of it may turn out to be without rows.
    pub(crate) fn read(&self, key: &PartKey, range: &TimeRange, slots: &[Slot]) -> Vec<HeadBlock> {
        let mut pieces = Vec::new();
        if let Some((shared, layout, newest)) = self.shared_location(key.group).filter(|_| key.block == 0) {
            pieces.push(self.shared_piece(shared.view(newest, range), layout, slots));
        }
        if let Some(head) = self.group(key) {
            let sealed = head.sealed.iter().filter(|sealed| sealed.range().overlaps(range));
            pieces.extend(sealed.map(|sealed| match sealed {
                Sealed::Dense(dense) => HeadBlock::Dense(dense.clone()),
                Sealed::Chunk(chunk) => HeadBlock::Sealed(chunk.clone()),
            }));
            pieces.push(HeadBlock::Loose(self.sorted(head, range, Some(slots))));
        }
        pieces
    }

    pub(super) fn group(&self, key: &PartKey) -> Option<&GroupHead> {
        if key.block > 0 {
            return self.wide.get(&(key.group, key.block));
        }
        let place = self.locations.get(key.group as usize).filter(|place| place.target & SHARED == 0)?;
        self.groups.get(place.target as usize).map(|(_, head)| head)
    }

    /// Returns whether a key has a row in a range, judged by whole chunks.
    pub(crate) fn has_rows(&self, key: &PartKey, range: &TimeRange) -> bool {
        let shared = self.shared_location(key.group).filter(|_| key.block == 0);
        if shared.is_some_and(|(shared, _, newest)| shared.has_rows(newest, range)) {
            return true;
        }
        self.group(key).is_some_and(|head| {
            head.sealed.iter().any(|sealed| sealed.range().overlaps(range))
                || head.rows(self.layouts.width(head.layout)).any(|(timestamp_ns, ..)| range.contains(timestamp_ns))
        })
    }
}
