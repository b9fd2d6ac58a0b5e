//! The newest rows of many groups at once. Rows of groups that share a buffer lie together at its end: one pass there takes less than following
//! each group's rows back from its newest one.

use std::ops::Range;
use std::sync::Arc;

use index::{GroupId, Slot};
use model::{Summary, SummaryParts, TimeRange, ValueType};

use crate::Store;
use crate::head::shard::ShardState;
use crate::head::{GroupedRows, LayoutId, Shares};
use crate::read::select::{SelectedColumn, SelectedGroup};
use crate::read::table_rows::only_block;
use crate::read::windows::Windows;

/// Rows that are looked at for each group, and for all of them: with more, each group is read by itself. They are copied while
/// the shard is held.
const ROWS_OF_GROUP_MAX: usize = 64;
const ROWS_MAX: usize = 1 << 16;

/// The rows of some groups in a range, of those groups all of whose rows are at the end of heads' shared buffers.
#[derive(Debug, Default)]
pub struct HeadRows {
    buffers: Vec<Buffer>,
    /// For each of the groups.
    located: Vec<Located>,
}

/// Rows of groups with the same columns, by group and time.
#[derive(Debug)]
struct Buffer {
    columns: Arc<[(Slot, ValueType)]>,
    timestamps_ns: Vec<i64>,
    cells: Vec<Vec<u64>>,
    /// In order, and where each group's rows start.
    groups: Vec<(GroupId, u32)>,
}

/// Where a group's rows are.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Located {
    /// The group has to be read by itself.
    Unknown,
    /// It has no rows.
    Nothing,
    Rows {
        buffer: usize,
        rows: Range<usize>,
    },
}

impl Store {
    /// The rows of groups of one table in a range, as far as they are found at once.
    pub fn head_rows(&self, groups: &[SelectedGroup], range: &TimeRange) -> HeadRows {
        let mut head_rows = HeadRows { buffers: Vec::new(), located: Vec::with_capacity(groups.len()) };
        for of_shard in groups.chunk_by(|a, b| a.shard == b.shard) {
            head_rows.add_shard(self, of_shard, range);
        }
        head_rows
    }
}

impl HeadRows {
    fn add_shard(&mut self, store: &Store, groups: &[SelectedGroup], range: &TimeRange) {
        let Some((first, shard)) = groups.first().and_then(|first| Some((first, store.shards.get(first.shard)?)))
        else {
            return;
        };
        let range = store.retained(first.key.database, range);
        let mut found: Vec<(LayoutId, Option<GroupedRows>)> = Vec::new();
        let shares: Vec<Shares> = {
            let state = shard.state.lock();
            if !is_in_head_alone(&state, &range) {
                self.located.resize(self.located.len() + groups.len(), Located::Unknown);
                return;
            }
            let shares: Vec<Shares> = groups.iter().map(|group| state.head.shares(group.key.group)).collect();
            let rows_max = ROWS_MAX.min(groups.len() * ROWS_OF_GROUP_MAX);
            for shares in &shares {
                if let Shares::Layout(layout) = shares
                    && !found.iter().any(|(known, _)| known == layout)
                {
                    found.push((*layout, state.head.recent(*layout, &range, rows_max)));
                }
            }
            shares
        };
        let mut buffers: Vec<(LayoutId, Option<usize>)> = Vec::with_capacity(found.len());
        for (layout, rows) in found {
            let index = rows.map(|rows| {
                self.buffers.push(Buffer::new(&rows));
                self.buffers.len() - 1
            });
            buffers.push((layout, index));
        }
        let locate = |(group, shares): (&SelectedGroup, Shares)| match shares {
            Shares::Nothing => Located::Nothing,
            Shares::NotAll => Located::Unknown,
            Shares::Layout(layout) => {
                let buffer = buffers.iter().find(|(known, _)| *known == layout).and_then(|(_, index)| *index);
                buffer.map_or(Located::Unknown, |buffer| {
                    self.buffers.get(buffer).map_or(Located::Unknown, |of| of.locate(buffer, group.key.group))
                })
            }
        };
        let located: Vec<Located> = groups.iter().zip(shares).map(locate).collect();
        self.located.extend(located);
    }

    /// Returns whether all rows that columns of a group have in the range are found; the group is given by its index among all.
    pub fn has_all(&self, group: usize, columns: &[SelectedColumn]) -> bool {
        match self.located.get(group) {
            None | Some(Located::Unknown) => false,
            // Other member blocks may have some.
            Some(Located::Nothing) => only_block(columns) == Some(0),
            Some(Located::Rows { buffer, .. }) => self.buffers.get(*buffer).is_some_and(|buffer| {
                columns.iter().all(|column| buffer.column(column).is_some() && Summary::takes(column.value_type))
            }),
        }
    }

    /// How many rows a group has.
    pub fn rows(&self, group: usize) -> usize {
        match self.located.get(group) {
            Some(Located::Rows { rows, .. }) => rows.len(),
            _ => 0,
        }
    }

    /// Summaries of the windows of a group's column that have rows, as [`Store::aggregate_parts`]; `each` gets the windows' numbers.
    pub fn sum(
        &self,
        group: usize,
        column: &SelectedColumn,
        windows: &Windows,
        parts: SummaryParts,
        mut each: impl FnMut(usize, Summary),
    ) {
        let Some(Located::Rows { buffer, rows }) = self.located.get(group) else { return };
        let Some(buffer) = self.buffers.get(*buffer) else { return };
        let (times_ns, cells) = (buffer.timestamps_ns.get(rows.clone()), buffer.column(column));
        let (times_ns, cells) =
            (times_ns.unwrap_or_default(), cells.and_then(|cells| cells.get(rows.clone())).unwrap_or_default());
        let mut row = 0;
        while let Some(first_ns) = times_ns.get(row) {
            let last_ns = windows.window_end(*first_ns);
            let end =
                row + times_ns.get(row..).unwrap_or_default().partition_point(|time_ns| *time_ns <= last_ns).max(1);
            if let Some(window) = windows.index(*first_ns) {
                let mut summary = Summary::empty(column.value_type);
                let (times_ns, cells) = (times_ns.get(row..end), cells.get(row..end));
                summary.add_all(times_ns.unwrap_or_default(), cells.unwrap_or_default(), parts);
                each(window, summary);
            }
            row = end;
        }
    }
}

/// Returns whether nothing but the head that is written to has rows in a range.
fn is_in_head_alone(state: &ShardState, range: &TimeRange) -> bool {
    let is_apart = |frozen_ns: Option<i64>| frozen_ns.is_none_or(|newest_ns| newest_ns < range.start_ns);
    let is_of_part =
        |info: &crate::part::PartInfo| info.range.overlaps(range) || info.fold_ns > 0 && info.partition.overlaps(range);
    state.frozen.as_ref().is_none_or(|frozen| is_apart(frozen.head.newest_ns()))
        && !state.parts.iter().any(|part| is_of_part(&part.info))
}

impl Buffer {
    fn new(rows: &GroupedRows) -> Self {
        // By group, and as they came.
        let mut order: Vec<(GroupId, u32)> = rows.groups.iter().copied().zip(0..).collect();
        order.sort_unstable();
        let cell = |cells: &[u64], row: u32| cells.get(row as usize).copied().unwrap_or_default();
        let sorted = |cells: &Vec<u64>| order.iter().map(|(_, row)| cell(cells, *row)).collect();
        let cells = rows.cells.iter().map(sorted).collect();
        let time = |row: u32| rows.timestamps_ns.get(row as usize).copied().unwrap_or_default();
        let timestamps_ns = order.iter().map(|(_, row)| time(*row)).collect();
        let mut groups: Vec<(GroupId, u32)> =
            order.iter().zip(0..).map(|((group, _), index)| (*group, index)).collect();
        groups.dedup_by_key(|(group, _)| *group);
        Self { columns: rows.columns.clone(), timestamps_ns, cells, groups }
    }

    /// Where a group's rows are; they are to be in order of time, none twice.
    fn locate(&self, buffer: usize, group: GroupId) -> Located {
        let Ok(found) = self.groups.binary_search_by_key(&group, |(group, _)| *group) else { return Located::Nothing };
        let at = |index: usize| self.groups.get(index).map_or(self.timestamps_ns.len(), |(_, start)| *start as usize);
        let rows = at(found)..at(found + 1);
        let is_ordered = |times_ns: &[i64]| times_ns.is_sorted_by(|before, after| before < after);
        if self.timestamps_ns.get(rows.clone()).is_some_and(is_ordered) {
            Located::Rows { buffer, rows }
        } else {
            Located::Unknown
        }
    }

    fn column(&self, column: &SelectedColumn) -> Option<&[u64]> {
        let index = self.columns.binary_search_by_key(&column.slot, |(slot, _)| *slot).ok()?;
        let (_, value_type) = self.columns.get(index)?;
        if *value_type == column.value_type { self.cells.get(index).map(Vec::as_slice) } else { None }
    }
}
