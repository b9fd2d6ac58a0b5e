//! What folding left of a group's samples: the summaries that its rows stand for (the rule is at [`model::Folds`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use index::Slot;
use model::{Column, Folds, Summary, TimeRange, ValueType};

use crate::part::summary::{self, Nodes, ROWS_SLOT, presence_slot};
use crate::part::{BlockHandle, ChunkRef, Part};
use crate::read::select::{SelectedColumn, SelectedGroup};
use crate::read::table_rows::TableRows;
use crate::read::{GroupReader, KeySnapshot, ReadContext};
use crate::{Store, StoreError};

/// The folds of a group in a range of time.
#[derive(Default)]
pub(crate) struct GroupFolds {
    /// By slot and the time of the last value.
    columns: BTreeMap<Slot, BTreeMap<i64, Summary>>,
    /// The times of rows, by the last one. Rows that another one of their fold stands for have a count of zero.
    rows: BTreeMap<i64, Summary>,
}

impl GroupFolds {
    fn add(&mut self, nodes: &Nodes, range: &TimeRange) {
        for column in &nodes.columns {
            let inside = column.nodes.iter().map(|(_, node)| node).filter(|node| span_of(node).overlaps(range));
            if column.slot == ROWS_SLOT {
                inside.for_each(|node| self.add_rows(times_of(node)));
            } else {
                let of_slot = self.columns.entry(column.slot).or_default();
                of_slot.extend(inside.filter(|node| node.count > 0).map(|node| (node.last.0, *node)));
            }
        }
    }

    /// Member blocks of a group have rows at the same times.
    fn add_rows(&mut self, rows: Summary) {
        let known = self.rows.entry(rows.last.0).or_insert(rows);
        if known.count < rows.count {
            *known = rows;
        }
    }

    /// The summaries of a column's values, in order of their last ones.
    fn of_column(&self, column: &SelectedColumn) -> impl Iterator<Item = &Summary> {
        let takes = Summary::takes(column.value_type);
        let slot = if takes { column.slot } else { presence_slot(column.slot) };
        let is_alike = move |summary: &&Summary| !takes || summary.value_type == column.value_type;
        self.columns.get(&slot).into_iter().flat_map(BTreeMap::values).filter(is_alike)
    }

    /// Says of rows what they stand for.
    fn attach(&self, read: &mut TableRows, columns: &[SelectedColumn]) {
        let times_ns = read.timestamps_ns.as_slice();
        let row_of = |summary: &Summary| times_ns.binary_search(&summary.last.0).ok();
        // A row that stands for itself alone is like any other.
        for summary in self.rows.values().filter(|summary| summary.count != 1) {
            row_of(summary).into_iter().for_each(|row| read.row_folds.push(row, *summary));
        }
        for (column, selected) in read.columns.iter_mut().zip(columns) {
            let Some(column) = column else { continue };
            for summary in self.of_column(selected).filter(|summary| summary.count > 1) {
                let row = row_of(summary).filter(|row| column.is_valid(*row));
                row.into_iter().for_each(|row| column.folds.push(row, *summary));
            }
        }
    }
}

/// From the first to the last sample of a summary.
const fn span_of(node: &Summary) -> TimeRange {
    TimeRange::new(node.first.0, node.last.0)
}

/// A summary of rows with their times as values.
fn times_of(rows: &Summary) -> Summary {
    let [first, last] = [rows.first.0, rows.last.0].map(|time_ns| (time_ns, time_ns as u64));
    Summary { count: rows.count, first, last, min: first.1, max: last.1, ..Summary::empty(ValueType::I64) }
}

/// A summary of no rows at a time.
fn no_rows(time_ns: i64) -> Summary {
    Summary { first: (time_ns, 0), last: (time_ns, 0), ..Summary::empty(ValueType::I64) }
}

impl KeySnapshot {
    /// Returns whether parts that were folded may have rows in a range.
    fn has_folds(&self, range: &TimeRange) -> bool {
        self.parts.iter().any(|part| part.info.fold_ns > 0 && part.info.partition.overlaps(range))
    }

    /// Adds the folds of the key in a range, for columns of these slots.
    pub(crate) fn add_folds(
        &self,
        range: &TimeRange,
        slots: &[Slot],
        context: &ReadContext,
        folds: &mut GroupFolds,
    ) -> Result<(), StoreError> {
        if !self.has_folds(range) {
            return Ok(());
        }
        let mut wanted: Vec<Slot> = slots.iter().flat_map(|slot| [*slot, presence_slot(*slot)]).collect();
        wanted.push(ROWS_SLOT);
        wanted.sort_unstable();
        for part in self.parts.iter().filter(|part| part.info.fold_ns > 0 && part.info.partition.overlaps(range)) {
            let (mut chunks, mut found): (Vec<ChunkRef>, Option<BlockHandle>) = (Vec::new(), None);
            part.find(self.key, &context.index_blocks, |of_key, summary| {
                chunks.extend(of_key.iter().filter(|chunk| chunk.range.overlaps(range)));
                found = found.or(summary);
            })?;
            let Some(handle) = found else { continue };
            for (_, left) in part.read(&chunks, Some(&[]))? {
                let inside = left.timestamps_ns.into_iter().filter(|time_ns| range.contains(*time_ns));
                inside.for_each(|time_ns| folds.add_rows(no_rows(time_ns)));
            }
            let nodes = self.folded_nodes(part, handle, Some(&wanted))?;
            context.count_cut(cut(&nodes, range));
            folds.add(&nodes, range);
        }
        Ok(())
    }

    /// The nodes of a part that was folded, without those that were deleted; with the slots of rows where all are read or theirs is wanted.
    pub(crate) fn folded_nodes(
        &self,
        part: &Part,
        handle: BlockHandle,
        slots: Option<&[Slot]>,
    ) -> Result<Nodes, StoreError> {
        let bytes = part.read_summary(handle)?;
        let decode = |slots| summary::decode(&bytes, slots).map_err(|error| part.corrupt(handle.offset, &error));
        let mut nodes = decode(slots)?;
        let wants_rows = slots.is_none_or(|slots| slots.contains(&ROWS_SLOT));
        if wants_rows && !nodes.has_rows() {
            // Folded by a version that did not count rows.
            nodes = decode(None)?.with_rows();
        }
        let masking = self.masking(part);
        nodes.retain(|slot, last_ns| !masking.iter().any(|delete| delete.takes_node(&self.key, slot, last_ns)));
        Ok(nodes)
    }
}

/// How many nodes a range cuts.
pub(crate) fn cut(nodes: &Nodes, range: &TimeRange) -> u64 {
    let is_cut = |node: &&(i64, Summary)| range.contains(node.1.first.0) != range.contains(node.1.last.0);
    nodes.columns.iter().flat_map(|column| &column.nodes).filter(is_cut).count() as u64
}

impl GroupReader<'_> {
    /// The folds of a group's columns in a range, in order of the last sample of each: one list for each of
    /// [`SelectedGroup::columns`], none if nothing was folded.
    pub fn folds(&self, selected: &SelectedGroup, range: &TimeRange) -> Result<Vec<Vec<Summary>>, StoreError> {
        let folds = self.group_folds(selected, range)?;
        if folds.columns.is_empty() {
            return Ok(Vec::new());
        }
        let of_column = |column| folds.of_column(column).copied().collect();
        Ok(selected.columns.iter().map(of_column).collect())
    }

    fn group_folds(&self, selected: &SelectedGroup, range: &TimeRange) -> Result<GroupFolds, StoreError> {
        let mut folds = GroupFolds::default();
        let shard = self.store.shards.get(selected.shard);
        if shard.is_some_and(|shard| shard.may_be_folded(range)) {
            self.each_block(selected, range, |snapshot, range, _, slots| {
                snapshot.add_folds(range, slots, &self.context, &mut folds)
            })?;
        }
        Ok(folds)
    }

    /// Says of a group's rows in a range what they stand for.
    pub(crate) fn attach_folds(
        &self,
        read: &mut TableRows,
        selected: &SelectedGroup,
        range: &TimeRange,
    ) -> Result<(), StoreError> {
        self.group_folds(selected, range)?.attach(read, &selected.columns);
        Ok(())
    }
}

impl Store {
    /// Returns whether parts that were folded may have rows in a range.
    pub fn has_folds_in(&self, range: &TimeRange) -> bool {
        let is_folded = |part: &Arc<Part>| part.info.fold_ns > 0 && part.info.partition.overlaps(range);
        let mut shards = self.shards.iter().filter(|shard| shard.may_be_folded(range));
        shards.any(|shard| shard.state.lock().parts.iter().any(is_folded))
    }
}

/// Attaches summaries to the values of a column whose rows have these times.
pub fn attach_folds(column: &mut Column, times_ns: &[i64], summaries: &[Summary]) {
    let mut folds = Folds::default();
    for summary in summaries {
        times_ns.binary_search(&summary.last.0).into_iter().for_each(|row| folds.push(row, *summary));
    }
    column.folds = folds;
}
