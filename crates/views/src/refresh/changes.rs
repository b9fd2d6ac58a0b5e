//! What to write and to delete, so that windows are stored as they were computed.

use std::collections::BTreeMap;

use db::views::{StoredRow, ViewDelete};
use model::{Labels, TimeRange};
use query::Value;

/// Windows that are deleted one by one; more, of all label sets or of one where few are computed, go as one range.
const DELETES_MAX: usize = 16;

/// Windows as they are stored.
pub(super) struct Stored {
    pub(super) rows: Vec<StoredRow>,
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
    pub(super) write: Vec<StoredRow>,
}

/// The changes that make stored windows computed ones. Cells that are null are not written: a row that loses one is deleted first.
pub(super) fn changes(stored: &Stored, mut computed: Vec<StoredRow>) -> Changes {
    if stored.rows.is_empty() {
        computed.retain(|row| row.time_ns >= stored.frozen_ns);
        return Changes { delete: ViewDelete::default(), write: computed };
    }
    let key = |row: &StoredRow| (row.labels.clone(), row.time_ns);
    let mut left: BTreeMap<(Labels, i64), &StoredRow> = stored.rows.iter().map(|row| (key(row), row)).collect();
    let (mut write, mut same, mut delete) = (Vec::new(), Vec::new(), Vec::new());
    for row in computed {
        match left.remove(&key(&row)) {
            // A late row of a window that is gone is not all that it was made of.
            _ if row.time_ns < stored.frozen_ns => {}
            None => write.push(row),
            Some(known) if is_same(known, &row) => same.push(row),
            Some(known) => {
                let is_lost = |(known, now): (&Value, &Value)| *known != Value::Null && *now == Value::Null;
                if known.values.iter().zip(&row.values).any(is_lost) {
                    delete.push((row.labels.clone(), row.time_ns));
                }
                write.push(row);
            }
        }
    }
    let gone = left.into_keys().filter(|(_, time_ns)| *time_ns >= stored.frozen_ns);
    delete.extend(gone);
    if !stored.is_own {
        delete.clear();
    }
    let windows = if delete.len() <= DELETES_MAX {
        let window = |(labels, time_ns): (Labels, i64)| (Some(labels), TimeRange::new(time_ns, time_ns));
        delete.into_iter().map(window).collect()
    } else if stored.is_of_all {
        vec![(None, TimeRange::from_timestamps(delete.iter().map(|(_, time_ns)| time_ns)))]
    } else {
        by_labels(delete)
    };
    let is_deleted = |row: &StoredRow| {
        let of_row = |labels: &Option<Labels>| labels.as_ref().is_none_or(|labels| *labels == row.labels);
        windows.iter().any(|(labels, range)| range.contains(row.time_ns) && of_row(labels))
    };
    write.extend(same.into_iter().filter(is_deleted));
    Changes { delete: ViewDelete { windows }, write }
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

fn is_same(a: &StoredRow, b: &StoredRow) -> bool {
    let is_same = |(a, b): (&Value, &Value)| match (a, b) {
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
        (a, b) => a == b,
    };
    a.values.len() == b.values.len() && a.values.iter().zip(&b.values).all(is_same)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(host: &str, time_ns: i64, values: [Option<f64>; 2]) -> StoredRow {
        let labels = Labels::from_pairs([("host", host)]).unwrap();
        StoredRow { labels, time_ns, values: values.map(|value| value.map_or(Value::Null, Value::Float)).to_vec() }
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
        let written: Vec<i64> = found.write.iter().map(|row| row.time_ns).collect();
        assert_eq!(written, [10, 30, 40], "what the row at 5 was made of is gone");
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
        let rows: Vec<StoredRow> = (0..100).map(|time_ns| row("a", time_ns, [Some(1.0), None])).collect();
        let computed = rows.iter().filter(|row| row.time_ns % 2 == 0).cloned().collect();
        let stored = Stored { rows, frozen_ns: 0, is_of_all: true, is_own: true };
        let found = changes(&stored, computed);
        assert_eq!(found.delete.windows, [(None, TimeRange::new(1, 99))]);
        assert_eq!(found.write.len(), 49);
    }

    #[test]
    fn many_windows_of_a_label_set_are_deleted_as_a_range_of_it() {
        let rows: Vec<StoredRow> = (0..100).map(|time_ns| row("a", time_ns, [Some(1.0), None])).collect();
        let computed = rows.iter().filter(|row| row.time_ns % 2 == 0).cloned().collect();
        let stored = Stored { rows, frozen_ns: 0, is_of_all: false, is_own: true };
        let found = changes(&stored, computed);
        let labels = Labels::from_pairs([("host", "a")]).unwrap();
        assert_eq!(found.delete.windows, [(Some(labels), TimeRange::new(1, 99))]);
        let written: Vec<i64> = found.write.iter().map(|row| row.time_ns).collect();
        assert_eq!(written, (2..99).step_by(2).collect::<Vec<i64>>());
    }
}
