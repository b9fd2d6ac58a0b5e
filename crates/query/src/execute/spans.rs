//! Rows of a frame in bins: spans of rows that lie in one, found once, and each column's values summed up span by span.

use std::ops::Range;

use model::{Column, Folds, Summary, SummaryParts, ValueType, Values};

use super::bins::{Bin, Bins};
use crate::Frame;
use crate::plan::Grouping;

/// Rows that follow one another and lie in one bin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowSpan {
    /// Where the bin begins.
    start_ns: i64,
    rows: Range<usize>,
}

/// The spans of rows that are in order of time: found once for all columns.
pub(super) fn row_spans(timestamps_ns: &[i64], grouping: &Grouping) -> Vec<RowSpan> {
    let mut spans = Vec::new();
    let mut first = 0;
    while let Some(time_ns) = timestamps_ns.get(first) {
        let start_ns = grouping.bin_start(*time_ns);
        let last_ns = match grouping.width_ns {
            // The first bin of all begins before the first time that there is.
            Some(_) if start_ns == i64::MIN => *time_ns,
            Some(width_ns) => start_ns.saturating_add(width_ns - 1),
            None => i64::MAX,
        };
        let more = timestamps_ns.iter().skip(first + 1);
        let rows = 1 + more.take_while(|next_ns| (*time_ns..=last_ns).contains(*next_ns)).count();
        spans.push(RowSpan { start_ns, rows: first..first + rows });
        first += rows;
    }
    spans
}

/// The bins of a column whose rows are in order of time.
pub(super) fn of_column(
    timestamps_ns: &[i64],
    column: &Column,
    spans: &[RowSpan],
    (parts, keeps_values): (SummaryParts, bool),
) -> Bins {
    let validity = column.validity.as_deref();
    let of = |value_type, is_bool| Numbers {
        value_type,
        is_bool,
        keeps_values,
        parts,
        rows: Rows { timestamps_ns, spans, validity, folds: &column.folds },
    };
    match &column.values {
        Values::F64(values) => of(ValueType::F64, false).bins(values, |value| value.to_bits()),
        Values::I64(values) => of(ValueType::I64, false).bins(values, |value| *value as u64),
        Values::U64(values) => of(ValueType::U64, false).bins(values, |value| *value),
        Values::Bool(values) => of(ValueType::F64, true).bins(values, |value| f64::from(u8::from(*value)).to_bits()),
        Values::Text(values) => {
            let mut bins = Bins::default();
            for span in spans {
                for row in span.rows.clone().filter(|row| column.is_valid(*row)) {
                    let (Some(text), Some(time_ns)) = (values.get(row), timestamps_ns.get(row)) else { continue };
                    let count = column.folds.get(row).map_or(1, |fold| fold.count);
                    bins.add(span.start_ns, Bin::of_text(*time_ns, text, (count, keeps_values)));
                }
            }
            bins
        }
    }
}

/// The bins of rows' times.
pub(super) fn of_times(frame: &Frame, spans: &[RowSpan], parts: (SummaryParts, bool)) -> Bins {
    let rows = Rows { timestamps_ns: &frame.timestamps_ns, spans, validity: None, folds: &frame.row_folds };
    rows.times(parts)
}

/// The bins of rows' times that are no whole milliseconds.
pub(super) fn of_off_milliseconds(frame: &Frame, spans: &[RowSpan]) -> Bins {
    const NS_PER_MS: i64 = 1_000_000;
    let is_off: Vec<bool> = frame.timestamps_ns.iter().map(|time_ns| time_ns % NS_PER_MS != 0).collect();
    let (timestamps_ns, folds) = (frame.timestamps_ns.as_slice(), &frame.row_folds);
    Rows { timestamps_ns, spans, validity: Some(&is_off), folds }.times((SummaryParts::Totals, false))
}

/// Rows that are put into bins.
struct Rows<'a> {
    timestamps_ns: &'a [i64],
    spans: &'a [RowSpan],
    /// Those that have a value.
    validity: Option<&'a [bool]>,
    folds: &'a Folds,
}

impl Rows<'_> {
    fn times(self, (parts, keeps_values): (SummaryParts, bool)) -> Bins {
        let timestamps_ns = self.timestamps_ns;
        let numbers = Numbers { value_type: ValueType::I64, is_bool: false, keeps_values, parts, rows: self };
        numbers.bins(timestamps_ns, |time_ns| *time_ns as u64)
    }
}

/// Numbers that are put into bins.
struct Numbers<'a> {
    value_type: ValueType,
    is_bool: bool,
    keeps_values: bool,
    parts: SummaryParts,
    rows: Rows<'a>,
}

impl Numbers<'_> {
    /// The bins of values, one for each row.
    fn bins<T>(&self, values: &[T], bits: impl Fn(&T) -> u64) -> Bins {
        let mut made = Bins::with_capacity(self.rows.spans.len());
        let (mut times, mut cells) = (Vec::new(), Vec::new());
        for RowSpan { start_ns, rows } in self.rows.spans {
            let (Some(of_rows), Some(values)) = (self.rows.timestamps_ns.get(rows.clone()), values.get(rows.clone()))
            else {
                continue;
            };
            cells.clear();
            let of_rows = match self.rows.validity.and_then(|validity| validity.get(rows.clone())) {
                None => {
                    cells.extend(values.iter().map(&bits));
                    of_rows
                }
                Some(validity) => {
                    times.clear();
                    times
                        .extend(of_rows.iter().zip(validity).filter(|(_, is_valid)| **is_valid).map(|(time, _)| *time));
                    let valid = values.iter().zip(validity).filter(|(_, is_valid)| **is_valid);
                    cells.extend(valid.map(|(value, _)| bits(value)));
                    times.as_slice()
                }
            };
            if cells.is_empty() {
                continue;
            }
            let summary = if self.rows.folds.is_empty() {
                self.summary(of_rows, &cells)
            } else {
                self.folded_summary(rows.clone(), &cells)
            };
            let values =
                if self.keeps_values { cells.iter().map(|bits| summary.number(*bits)).collect() } else { Vec::new() };
            made.add(*start_ns, Bin::Numbers { summary, values, is_bool: self.is_bool });
        }
        made
    }

    fn summary(&self, timestamps_ns: &[i64], cells: &[u64]) -> Summary {
        let mut summary = Summary::empty(self.value_type);
        summary.add_all(timestamps_ns, cells, self.parts);
        summary
    }

    /// The summary of some rows' values, some of which stand for folded ones.
    fn folded_summary(&self, rows: Range<usize>, cells: &[u64]) -> Summary {
        let mut summary = Summary::empty(self.value_type);
        let is_valid = |row: &usize| self.rows.validity.is_none_or(|validity| validity.get(*row) == Some(&true));
        for (row, bits) in rows.filter(is_valid).zip(cells) {
            let Some(time_ns) = self.rows.timestamps_ns.get(row) else { continue };
            match self.rows.folds.get(row) {
                None => summary.add(*time_ns, *bits),
                Some(fold) if fold.value_type == self.value_type => summary.merge_unordered(fold),
                // Of values that are no numbers a fold knows how many there were.
                Some(fold) => {
                    summary.add(*time_ns, *bits);
                    summary.count += fold.count.saturating_sub(1);
                }
            }
        }
        summary
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each row lies in the span of its bin, also at the ends of time.
    #[test]
    fn spans_are_of_one_bin_each() {
        let times = [i64::MIN, i64::MIN + 1, i64::MIN + 9, -11, -10, -1, 0, 3, 9, 10, i64::MAX - 9, i64::MAX];
        for width_ns in [None, Some(1), Some(7), Some(10)] {
            for offset_ns in [0, 3, -4] {
                let grouping = Grouping { width_ns, offset_ns, by: None, aggregates: Vec::new(), undated: false };
                let mut starts = Vec::new();
                for span in row_spans(&times, &grouping) {
                    assert_eq!(starts.len(), span.rows.start);
                    starts.resize(span.rows.end, span.start_ns);
                }
                assert_eq!(starts, times.map(|time_ns| grouping.bin_start(time_ns)), "{width_ns:?} {offset_ns}");
            }
        }
    }
}
