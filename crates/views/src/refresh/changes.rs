//! What to write and to delete, so that windows are stored as they were computed.

use std::collections::BTreeMap;

use db::views::{ViewDelete, ViewRows};
use model::{Cell, Labels, TimeRange};

/// Windows that are deleted one by one; more, of all label sets or of one where few are computed, go as one range.
const DELETES_MAX: usize = 16;

/// Windows as they are stored.
pub(super) struct Stored {
    pub(super) rows: Vec<ViewRows>,
    /// Windows that begin before stay as they are.
    pub(super) frozen_ns: i64,
    /// True if they are of all label sets.
    pub(super) is_of_all: bool,
    /// True if all rows of their table are the view's: then those that are not computed any more are deleted.
    pub(super) is_own: bool,
}

/// Rows to be deleted, and to be written after that.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    pub(super) delete: ViewDelete,
    pub(super) write: Vec<ViewRows>,
}

/// The changes that make stored windows computed ones. Cells that are null are not written: a row that loses one is deleted first.
pub(super) fn changes(stored: &Stored, mut computed: Vec<ViewRows>) -> Changes {
    // A late row of a window that is gone is not all that it was made of.
    let is_open = |start_ns: &i64| *start_ns >= stored.frozen_ns;
    computed.iter_mut().for_each(|rows| rows.move_to_starts(|start_ns| Some(start_ns).filter(is_open)));
    let mut delete = Vec::new();
    let same = if stored.rows.is_empty() { Vec::new() } else { same_rows(stored, &computed, &mut delete) };
    let windows = deleted_windows(stored, delete);
    let is_deleted = |labels: &Labels, start_ns: i64| {
        windows.iter().any(|(of, range)| range.contains(start_ns) && of.as_ref().is_none_or(|of| of == labels))
    };
    let mut write = Vec::new();
    for (number, rows) in computed.into_iter().enumerate() {
        let is_kept = |row: usize| same.get(number).and_then(|same| same.get(row)) == Some(&true);
        let is_written =
            |(row, start_ns): (usize, &i64)| (!is_kept(row) || is_deleted(&rows.labels, *start_ns)).then_some(row);
        let written: Vec<usize> = rows.starts_ns.iter().enumerate().filter_map(is_written).collect();
        match written.len() {
            0 => {}
            all if all == rows.len() => write.push(rows),
            _ => write.push(rows.pick(&written)),
        }
    }
    Changes { delete: ViewDelete { windows }, write }
}

/// For each computed row whether it is stored as it is. What is stored and not computed is to be deleted, and what loses a cell.
fn same_rows(stored: &Stored, computed: &[ViewRows], delete: &mut Vec<(Labels, i64)>) -> Vec<Vec<bool>> {
    let mut left: BTreeMap<(&Labels, i64), (&ViewRows, usize)> = BTreeMap::new();
    for rows in &stored.rows {
        left.extend(rows.starts_ns.iter().enumerate().map(|(row, start_ns)| ((&rows.labels, *start_ns), (rows, row))));
    }
    let mut all = Vec::with_capacity(computed.len());
    for rows in computed {
        let mut same = vec![false; rows.len()];
        for ((row, start_ns), same) in rows.starts_ns.iter().enumerate().zip(&mut same) {
            let Some(known) = left.remove(&(&rows.labels, *start_ns)) else { continue };
            let cells = || cells_of(known).zip(cells_of((rows, row)));
            *same = cells().all(|(known, now)| is_same(known, now));
            if cells().any(|(known, now)| known != Cell::Null && now == Cell::Null) {
                delete.push((rows.labels.clone(), *start_ns));
            }
        }
        all.push(same);
    }
    let gone = left.into_keys().filter(|(_, start_ns)| *start_ns >= stored.frozen_ns);
    delete.extend(gone.map(|(labels, start_ns)| (labels.clone(), start_ns)));
    all
}

fn cells_of((rows, row): (&ViewRows, usize)) -> impl Iterator<Item = Cell<'_>> {
    rows.columns.iter().map(move |column| column.cell(row))
}

/// The ranges that have these windows.
fn deleted_windows(stored: &Stored, delete: Vec<(Labels, i64)>) -> Vec<(Option<Labels>, TimeRange)> {
    if !stored.is_own {
        Vec::new()
    } else if delete.len() <= DELETES_MAX {
        let window = |(labels, start_ns): (Labels, i64)| (Some(labels), TimeRange::new(start_ns, start_ns));
        delete.into_iter().map(window).collect()
    } else if stored.is_of_all {
        vec![(None, TimeRange::from_timestamps(delete.iter().map(|(_, start_ns)| start_ns)))]
    } else {
        by_labels(delete)
    }
}

/// A range for each label set that has windows to be deleted.
fn by_labels(delete: Vec<(Labels, i64)>) -> Vec<(Option<Labels>, TimeRange)> {
    let mut ranges: BTreeMap<Labels, TimeRange> = BTreeMap::new();
    for (labels, time_ns) in delete {
        let range = ranges.entry(labels).or_insert(TimeRange::EMPTY);
        *range = range.union(TimeRange::new(time_ns, time_ns));
    }
    ranges.into_iter().map(|(labels, range)| (Some(labels), range)).collect()
}

fn is_same(a: Cell<'_>, b: Cell<'_>) -> bool {
    match (a, b) {
        (Cell::F64(a), Cell::F64(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use model::Column;

    use super::*;

    fn row(host: &str, start_ns: i64, values: [Option<f64>; 2]) -> ViewRows {
        let labels = Labels::from_pairs([("host", host)]).unwrap();
        let columns = values.map(|value| Column::of_cells(&[value.map_or(Cell::Null, Cell::F64)]).unwrap());
        ViewRows { labels, starts_ns: vec![start_ns], columns: columns.to_vec() }
    }

    fn starts(rows: &[ViewRows]) -> Vec<i64> {
        rows.iter().flat_map(|rows| rows.starts_ns.iter().copied()).collect()
    }

    #[test]
    fn only_what_differs_is_written_and_only_what_is_gone_is_deleted() {
        let rows = vec![
            row("a", 10, [Some(1.0), None]),
            row("a", 20, [Some(f64::NAN), None]),
            row("a", 30, [Some(3.0), Some(4.0)]),
            row("b", 30, [Some(5.0), None]),
            row("b", 5, [Some(5.0), None]),
        ];
        let computed = vec![
            row("a", 10, [Some(1.0), Some(2.0)]),
            row("a", 20, [Some(f64::NAN), None]),
            row("a", 30, [None, Some(4.0)]),
            row("a", 40, [Some(7.0), None]),
            row("a", 5, [Some(9.0), None]),
        ];
        let stored = Stored { rows, frozen_ns: 6, is_of_all: true, is_own: true };
        let found = changes(&stored, computed.clone());
        assert_eq!(starts(&found.write), [10, 30, 40], "what the row at 5 was made of is gone");
        let deleted: Vec<(String, i64)> = found
            .delete
            .windows
            .iter()
            .map(|(labels, range)| (labels.as_ref().unwrap().get("host").unwrap().to_owned(), range.start_ns))
            .collect();
        assert_eq!(deleted, [("a".to_owned(), 30), ("b".to_owned(), 30)]);
    }

    #[test]
    fn many_windows_are_deleted_as_a_range_and_the_others_in_it_written_again() {
        let rows: Vec<ViewRows> = (0..100).map(|time_ns| row("a", time_ns, [Some(1.0), None])).collect();
        let computed = rows.iter().filter(|row| row.starts_ns[0] % 2 == 0).cloned().collect();
        let stored = Stored { rows, frozen_ns: 0, is_of_all: true, is_own: true };
        let found = changes(&stored, computed);
        assert_eq!(found.delete.windows, [(None, TimeRange::new(1, 99))]);
        assert_eq!(found.write.len(), 49);
    }

    #[test]
    fn many_windows_of_a_label_set_are_deleted_as_a_range_of_it() {
        let rows: Vec<ViewRows> = (0..100).map(|time_ns| row("a", time_ns, [Some(1.0), None])).collect();
        let computed = rows.iter().filter(|row| row.starts_ns[0] % 2 == 0).cloned().collect();
        let stored = Stored { rows, frozen_ns: 0, is_of_all: false, is_own: true };
        let found = changes(&stored, computed);
        let labels = Labels::from_pairs([("host", "a")]).unwrap();
        assert_eq!(found.delete.windows, [(Some(labels), TimeRange::new(1, 99))]);
        assert_eq!(starts(&found.write), (2..99).step_by(2).collect::<Vec<i64>>());
    }
}
