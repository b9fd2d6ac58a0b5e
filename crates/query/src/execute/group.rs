//! Rows in bins of time: from summaries where a scan is grouped, else from rows.

use std::collections::BTreeMap;
use std::collections::HashMap;

use model::{Labels, Summary, TimeRange, ValueType};
use store::{SelectedGroup, Windows};

use super::Run;
use super::scan::unreadable;
use crate::QueryError;
use crate::frame::{Cell, Frame, FrameColumn, VALUE, Values};
use crate::plan::{Aggregate, Grouping, Scan};

/// Bins between the first and the last row of a series that are asked of summaries; with more, its rows are read.
const WINDOWS_MAX: i64 = 200_000;
/// What a bin takes out of a budget, in samples.
const BIN_SAMPLES: usize = 10;

/// What the values in a bin add up to.
#[derive(Debug, Clone)]
struct Bin {
    summary: Summary,
    /// All values, if an aggregate needs them.
    values: Vec<f64>,
}

/// Bins by their start, of one column of one series.
type Bins = BTreeMap<i64, Bin>;

/// A series' bins, column by column.
struct Binned {
    labels: Labels,
    columns: Vec<(String, Bins)>,
}

impl Run<'_> {
    /// Groups what a scan selects without reading samples where summaries stand for them.
    pub(super) fn group_scan(&mut self, scan: &Scan, grouping: &Grouping) -> Result<Vec<Frame>, QueryError> {
        let mut binned = Vec::new();
        for group in self.groups(scan)? {
            self.context.budget.check()?;
            let extent = self.context.store.extent(&group, &scan.range).map_err(|error| unreadable(&error))?;
            let Some(extent) = extent else { continue };
            match pieces(&extent, &scan.range, grouping.width_ns) {
                Some(pieces) => binned.extend(self.sum_group(&group, &pieces, grouping)?),
                None => {
                    let mut frames = Vec::new();
                    self.read_group(&group, &scan.range, &mut frames)?;
                    binned.extend(frames.iter().map(|frame| bin_frame(frame, grouping)));
                }
            }
        }
        self.finish(binned, grouping)
    }

    /// A group's windows as bins.
    fn sum_group(
        &mut self,
        group: &SelectedGroup,
        pieces: &[Windows],
        grouping: &Grouping,
    ) -> Result<Vec<Binned>, QueryError> {
        let mut columns: Vec<Bins> = vec![Bins::new(); group.columns.len()];
        for windows in pieces {
            self.context.budget.take(windows.count * group.columns.len() * BIN_SAMPLES)?;
            let summed = self.context.store.aggregate(group, windows).map_err(|error| unreadable(&error))?;
            self.reads.add(&summed.1);
            for (bins, column) in columns.iter_mut().zip(summed.0) {
                let filled = column.windows.into_iter().enumerate().filter(|(_, summary)| summary.count > 0);
                for (number, summary) in filled {
                    let time_ns = windows.start_ns.saturating_add(windows.width_ns.saturating_mul(number as i64));
                    bins.insert(bin_start(time_ns, grouping.width_ns), Bin { summary, values: Vec::new() });
                }
            }
            self.context.budget.give_back(windows.count * group.columns.len() * BIN_SAMPLES);
        }
        let named = columns.into_iter().zip(group.columns.iter()).filter(|(bins, _)| !bins.is_empty());
        Ok(named
            .map(|(bins, column)| Binned {
                labels: column.series_labels(&group.labels),
                columns: vec![(VALUE.to_owned(), bins)],
            })
            .collect())
    }

    /// Groups rows.
    pub(super) fn group_frames(&mut self, frames: Vec<Frame>, grouping: &Grouping) -> Result<Vec<Frame>, QueryError> {
        let mut binned = Vec::with_capacity(frames.len());
        for frame in frames {
            self.context.budget.check()?;
            let frame = frame.in_time_order();
            binned.push(bin_frame(&frame, grouping));
            self.context.budget.give_back(frame.samples());
        }
        self.finish(binned, grouping)
    }

    fn finish(&mut self, binned: Vec<Binned>, grouping: &Grouping) -> Result<Vec<Frame>, QueryError> {
        let binned = match &grouping.by {
            None => binned,
            Some(by) => merge_series(binned, by),
        };
        let mut frames = Vec::with_capacity(binned.len());
        for series in binned {
            let frame = to_frame(series, grouping);
            self.context.budget.take(frame.samples())?;
            frames.push(frame);
        }
        Ok(frames)
    }
}

/// Windows that hold every row of the extent that is in the range, each within one bin: a first and a last one that the range cuts, and those
/// between. `None` if there are too many.
fn pieces(extent: &TimeRange, range: &TimeRange, width_ns: Option<i64>) -> Option<Vec<Windows>> {
    let whole = |start_ns: i64, end_ns: i64| {
        let width_ns = end_ns.checked_sub(start_ns)?.checked_add(1)?;
        Some(Windows { start_ns, width_ns, count: 1 })
    };
    let Some(width_ns) = width_ns else {
        return Some(vec![whole(extent.start_ns, extent.end_ns)?]);
    };
    let first_bin = extent.start_ns.checked_sub(extent.start_ns.rem_euclid(width_ns))?;
    let behind_bins = extent.end_ns.checked_sub(extent.end_ns.rem_euclid(width_ns))?.checked_add(width_ns)?;
    let (start_ns, behind_ns) = (first_bin.max(range.start_ns), (behind_bins - 1).min(range.end_ns).checked_add(1)?);
    let full_start = if start_ns == first_bin { first_bin } else { first_bin.checked_add(width_ns)? };
    let full_behind = if behind_ns == behind_bins { behind_bins } else { behind_bins - width_ns };
    let mut pieces = Vec::new();
    if full_start > full_behind {
        return Some(vec![whole(start_ns, behind_ns - 1)?]);
    }
    if start_ns < full_start {
        pieces.push(whole(start_ns, full_start - 1)?);
    }
    let count = full_behind.checked_sub(full_start)? / width_ns;
    if count > WINDOWS_MAX {
        return None;
    }
    if count > 0 {
        pieces.push(Windows { start_ns: full_start, width_ns, count: count as usize });
    }
    if full_behind < behind_ns {
        pieces.push(whole(full_behind, behind_ns - 1)?);
    }
    Some(pieces)
}

/// Where the bin of a time begins; without a width there is one.
fn bin_start(time_ns: i64, width_ns: Option<i64>) -> i64 {
    match width_ns {
        None => 0,
        Some(width_ns) => time_ns.saturating_sub(time_ns.rem_euclid(width_ns)),
    }
}

fn bin_frame(frame: &Frame, grouping: &Grouping) -> Binned {
    let keep_values = !grouping.aggregates.iter().all(|aggregate| aggregate.from_summaries());
    let column = |column: &FrameColumn| {
        let mut summed = Bins::new();
        let value_type = match column.values {
            Values::I64(_) => ValueType::I64,
            Values::U64(_) => ValueType::U64,
            _ => ValueType::F64,
        };
        for (row, time_ns) in frame.timestamps_ns.iter().enumerate() {
            let cell = column.cell(row);
            let Some(value) = cell.number() else { continue };
            let bits = match cell {
                Cell::I64(whole) => whole as u64,
                Cell::U64(whole) => whole,
                _ => value.to_bits(),
            };
            let empty = || Bin { summary: Summary::empty(value_type), values: Vec::new() };
            let found = summed.entry(bin_start(*time_ns, grouping.width_ns)).or_insert_with(empty);
            found.summary.add(*time_ns, bits);
            if keep_values {
                found.values.push(value);
            }
        }
        (column.name.clone(), summed)
    };
    Binned { labels: frame.labels.clone(), columns: frame.columns.iter().map(column).collect() }
}

/// Series that agree in the labels become one, in the order in which they come.
fn merge_series(binned: Vec<Binned>, by: &[String]) -> Vec<Binned> {
    let mut merged: Vec<Binned> = Vec::new();
    let mut places: HashMap<Labels, usize> = HashMap::new();
    for series in binned {
        let labels = series.labels.retain(|name| by.iter().any(|wanted| wanted == name));
        let place = *places.entry(labels.clone()).or_insert_with(|| {
            merged.push(Binned { labels, columns: Vec::new() });
            merged.len() - 1
        });
        let Some(target) = merged.get_mut(place) else { continue };
        for (name, bins) in series.columns {
            match target.columns.iter_mut().find(|(known, _)| *known == name) {
                None => target.columns.push((name, bins)),
                Some((_, known)) => bins.into_iter().for_each(|(start_ns, bin)| merge_bin(known, start_ns, bin)),
            }
        }
    }
    merged
}

fn merge_bin(known: &mut Bins, start_ns: i64, bin: Bin) {
    let Some(before) = known.get_mut(&start_ns) else {
        known.insert(start_ns, bin);
        return;
    };
    let mut other = bin.summary;
    if before.summary.value_type != other.value_type {
        before.summary = as_floats(&before.summary);
        other = as_floats(&other);
    }
    before.summary.merge_unordered(&other);
    before.values.extend(bin.values);
}

fn as_floats(summary: &Summary) -> Summary {
    let bits = |bits: u64| summary.number(bits).to_bits();
    Summary {
        value_type: ValueType::F64,
        first: (summary.first.0, bits(summary.first.1)),
        last: (summary.last.0, bits(summary.last.1)),
        min: bits(summary.min),
        max: bits(summary.max),
        sum: (summary.total(), 0.0),
        sum_integer: 0,
        ..*summary
    }
}

fn to_frame(series: Binned, grouping: &Grouping) -> Frame {
    let mut starts: Vec<i64> = series.columns.iter().flat_map(|(_, bins)| bins.keys().copied()).collect();
    starts.sort_unstable();
    starts.dedup();
    let time = |start_ns: &i64| match grouping.width_ns {
        Some(_) => *start_ns,
        None => {
            let first = |(_, bins): &(String, Bins)| bins.get(start_ns).map(|bin| bin.summary.first.0);
            series.columns.iter().filter_map(first).min().unwrap_or_default()
        }
    };
    let timestamps_ns = starts.iter().map(time).collect();
    let (single_column, single_aggregate) = (series.columns.len() == 1, grouping.aggregates.len() == 1);
    let mut columns = Vec::new();
    for (name, mut bins) in series.columns {
        let mut in_order: Vec<Option<Bin>> = starts.iter().map(|start_ns| bins.remove(start_ns)).collect();
        for bin in in_order.iter_mut().flatten() {
            bin.values.sort_by(f64::total_cmp);
        }
        for aggregate in &grouping.aggregates {
            let name = match (single_column, single_aggregate) {
                (true, true) => VALUE.to_owned(),
                (false, true) => name.clone(),
                (true, false) => aggregate_column(*aggregate),
                (false, false) => format!("{name}_{}", aggregate_column(*aggregate)),
            };
            let cells: Vec<Cell<'_>> =
                in_order.iter().map(|bin| bin.as_ref().map_or(Cell::Null, |bin| value(*aggregate, bin))).collect();
            // Numbers only: they always have a common type.
            columns.extend(FrameColumn::of_cells(&name, &cells));
        }
    }
    Frame { labels: series.labels, timestamps_ns, columns }
}

/// The name of an aggregate's column among several: `max`, `quantile_0.99`.
fn aggregate_column(aggregate: Aggregate) -> String {
    match aggregate {
        Aggregate::Quantile(share) => format!("quantile_{share}"),
        named => named.name().to_owned(),
    }
}

fn value(aggregate: Aggregate, bin: &Bin) -> Cell<'static> {
    let summary = &bin.summary;
    let typed = |bits: u64| match summary.value_type {
        ValueType::I64 => Cell::I64(bits as i64),
        ValueType::U64 => Cell::U64(bits),
        _ => Cell::F64(f64::from_bits(bits)),
    };
    match aggregate {
        Aggregate::Min => typed(summary.min),
        Aggregate::Max => typed(summary.max),
        Aggregate::First => typed(summary.first.1),
        Aggregate::Last => typed(summary.last.1),
        Aggregate::Count => Cell::I64(summary.count as i64),
        Aggregate::Avg => Cell::F64(summary.total() / summary.count as f64),
        Aggregate::Sum => match summary.value_type {
            ValueType::I64 | ValueType::U64 => {
                i64::try_from(summary.sum_integer).map_or(Cell::F64(summary.total()), Cell::I64)
            }
            _ => Cell::F64(summary.total()),
        },
        Aggregate::Stddev => Cell::F64(stddev(&bin.values)),
        Aggregate::Quantile(share) => Cell::F64(quantile(share, &bin.values)),
    }
}

fn stddev(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

/// Of sorted values.
fn quantile(share: f64, values: &[f64]) -> f64 {
    let rank = share * values.len().saturating_sub(1) as f64;
    let (lower, upper) = (rank.floor() as usize, rank.ceil() as usize);
    match (values.get(lower), values.get(upper)) {
        // Not computed: infinities have no difference.
        (Some(only), _) if lower == upper => *only,
        (Some(below), Some(above)) => below + (above - below) * rank.fract(),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_the_extent_and_do_not_leave_the_range() {
        type Case = (TimeRange, TimeRange, i64, &'static [(i64, i64, usize)]);
        let cases: [Case; 7] = [
            (TimeRange::new(12, 47), TimeRange::ALL, 10, &[(10, 10, 4)]),
            (TimeRange::new(12, 47), TimeRange::new(12, 47), 10, &[(12, 8, 1), (20, 10, 2), (40, 8, 1)]),
            (TimeRange::new(20, 39), TimeRange::new(20, 39), 10, &[(20, 10, 2)]),
            (TimeRange::new(13, 15), TimeRange::new(12, 17), 10, &[(12, 6, 1)]),
            (TimeRange::new(13, 25), TimeRange::new(12, 27), 10, &[(12, 8, 1), (20, 8, 1)]),
            (TimeRange::new(-5, 5), TimeRange::new(-5, 100), 10, &[(-5, 5, 1), (0, 10, 1)]),
            (TimeRange::new(10, 19), TimeRange::new(10, 19), 10, &[(10, 10, 1)]),
        ];
        for (extent, range, width_ns, expected) in cases {
            let found = pieces(&extent, &range, Some(width_ns)).unwrap();
            let found: Vec<_> = found.iter().map(|piece| (piece.start_ns, piece.width_ns, piece.count)).collect();
            assert_eq!(found, expected, "{extent:?} of {range:?}");
        }
        assert_eq!(pieces(&TimeRange::new(0, i64::MAX - 100), &TimeRange::ALL, Some(1)), None);
    }

    #[test]
    fn quantiles_lie_between_values_in_proportion() {
        for (share, expected) in [(0.0, 1.0), (0.5, 2.5), (1.0, 4.0), (0.1, 1.3)] {
            let found = quantile(share, &[1.0, 2.0, 3.0, 4.0]);
            assert!((found - expected).abs() < 1e-12, "{share}: {found}");
        }
        assert!(quantile(0.5, &[]).is_nan());
    }
}
