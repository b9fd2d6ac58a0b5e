//! The comparison of the store with the oracle.

use std::collections::{BTreeMap, BTreeSet};

use index::compile;
use model::{SampleColumn, Summary, TimeRange};
use store::{ByMillisecond, SelectedGroup, Store, StoreError, Windows};

use crate::oracle::{Oracle, Samples, SeriesName};
use crate::rows::Value;

const NS_PER_MS: i64 = 1_000_000;

/// What a store holds.
pub(crate) type Content = BTreeMap<SeriesName, Samples>;

fn read_error(error: &StoreError) -> String {
    format!("reading failed: {error}")
}

/// All groups of a database.
pub(crate) fn groups(store: &Store, database: &str) -> Result<Vec<SelectedGroup>, String> {
    let everything = compile(&[]).map_err(|error| error.to_string())?;
    store.select(database, &everything).map_err(|error| read_error(&error))
}

fn host_of(group: &SelectedGroup) -> String {
    group.labels.get("host").unwrap_or_default().to_owned()
}

fn samples(column: SampleColumn) -> Samples {
    match column {
        SampleColumn::F64(times, values) => times.into_iter().zip(values.into_iter().map(Value::Float)).collect(),
        SampleColumn::I64(times, values) => times.into_iter().zip(values.into_iter().map(Value::Integer)).collect(),
        SampleColumn::String(times, values) => times.into_iter().zip(values.into_iter().map(Value::Text)).collect(),
        SampleColumn::Histogram(times, values) => {
            times.into_iter().zip(values.into_iter().map(Value::Histogram)).collect()
        }
        SampleColumn::U64(..) | SampleColumn::Bool(..) => Samples::new(),
    }
}

/// Everything in a database in a range.
pub(crate) fn read_all(store: &Store, database: &str, range: &TimeRange) -> Result<Content, String> {
    let mut content = Content::new();
    for group in groups(store, database)? {
        read_group(store, &group, range, &mut content)?;
    }
    Ok(content)
}

/// Whether a column read by the millisecond has the samples of the same column as it is.
fn is_same_column((found, column): (&ByMillisecond, &SampleColumn)) -> bool {
    let (times_ms, values) = match found {
        ByMillisecond::Floats { times_ms, values } => (times_ms, values),
        ByMillisecond::Column(found) => return samples(found.clone()) == samples(column.clone()),
    };
    let bits: Vec<u64> = match column {
        SampleColumn::F64(_, values) => values.iter().map(|value| value.to_bits()).collect(),
        SampleColumn::I64(_, values) => values.iter().map(|value| (*value as f64).to_bits()).collect(),
        _ => return false,
    };
    let of_column = column.timestamps_ns().iter().map(|time_ns| time_ns.div_euclid(NS_PER_MS));
    times_ms.iter().copied().eq(of_column) && values.iter().map(|value| value.to_bits()).eq(bits)
}

fn read_group(store: &Store, group: &SelectedGroup, range: &TimeRange, content: &mut Content) -> Result<(), String> {
    let columns = store.read(group, range).map_err(|error| read_error(&error))?;
    let by_millisecond = store.reader().read_by_millisecond(group, range).map_err(|error| read_error(&error))?;
    if !(by_millisecond.len() == columns.len() && by_millisecond.iter().zip(&columns).all(is_same_column)) {
        return Err(format!("read by millisecond: {by_millisecond:?}, otherwise {columns:?}"));
    }
    for (selected, column) in group.columns.iter().zip(columns) {
        if !column.timestamps_ns().is_sorted_by(|a, b| a < b) {
            return Err(format!("timestamps of {} do not ascend", selected.metric));
        }
        let samples = samples(column);
        if !samples.is_empty() {
            content.insert((host_of(group), selected.metric.clone()), samples);
        }
    }
    Ok(())
}

/// What the oracle says should be read.
pub(crate) fn expected(oracle: &Oracle, range: &TimeRange, now_ns: i64) -> Content {
    let read = |series: &SeriesName| (series.clone(), oracle.read(series, range, now_ns));
    oracle.series.keys().map(read).filter(|(_, samples)| !samples.is_empty()).collect()
}

/// Where two contents differ first.
pub(crate) fn difference(found: &Content, expected: &Content) -> Option<String> {
    let nothing = Samples::new();
    for series in found.keys().chain(expected.keys()) {
        let found = found.get(series).unwrap_or(&nothing);
        let expected = expected.get(series).unwrap_or(&nothing);
        let times = found.keys().chain(expected.keys());
        for timestamp_ns in times {
            let (is, should_be) = (found.get(timestamp_ns), expected.get(timestamp_ns));
            if is != should_be {
                return Some(format!("{series:?} at {timestamp_ns}: found {is:?}, expected {should_be:?}"));
            }
        }
    }
    None
}

/// Compares one group's samples in a range.
pub(crate) fn compare_group(
    store: &Store,
    group: &SelectedGroup,
    range: &TimeRange,
    oracle: &Oracle,
    now_ns: i64,
) -> Result<(), String> {
    let mut found = Content::new();
    read_group(store, group, range, &mut found)?;
    let host = host_of(group);
    let names = group.columns.iter().map(|column| (host.clone(), column.metric.clone()));
    let read = |series: SeriesName| (series.clone(), oracle.read(&series, range, now_ns));
    let expected: Content = names.map(read).filter(|(_, samples)| !samples.is_empty()).collect();
    match difference(&found, &expected) {
        Some(difference) => Err(format!("in {range:?}: {difference}")),
        None => Ok(()),
    }
}

/// A series that the oracle has and no group holds.
pub(crate) fn missing_series(groups: &[SelectedGroup], oracle: &Oracle) -> Option<String> {
    let names = |group: &SelectedGroup| {
        let host = host_of(group);
        group.columns.iter().map(move |column| (host.clone(), column.metric.clone())).collect::<Vec<_>>()
    };
    let known: BTreeSet<SeriesName> = groups.iter().flat_map(names).collect();
    let missing = oracle.series.iter().find(|(name, samples)| !samples.is_empty() && !known.contains(name));
    missing.map(|(name, _)| format!("no group holds {name:?}"))
}

/// Whether two summaries say the same, to the bit: of folded samples only in what does not depend on their order.
fn is_same(found: &Summary, expected: &Summary, is_folded: bool) -> bool {
    // Not every NaN is the same, but all say the same.
    let bits = |value: f64| if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() };
    let unordered = |summary: &Summary| {
        let last = (summary.count > 0).then_some(summary.last);
        (summary.count, last, summary.min, summary.max, bits(summary.total()))
    };
    let ordered = |summary: &Summary| {
        let counts = (summary.stale_count, summary.nan_count, summary.resets, summary.changes);
        let sums = (bits(summary.sum.0), bits(summary.sum.1), summary.sum_integer, bits(summary.increase));
        (summary.value_type, summary.first, summary.last, counts, sums)
    };
    unordered(found) == unordered(expected) && (is_folded || ordered(found) == ordered(expected))
}

/// Compares one group's windows; the number of nodes that were used.
pub(crate) fn compare_windows(
    store: &Store,
    group: &SelectedGroup,
    windows: &Windows,
    oracle: &Oracle,
    now_ns: i64,
    is_folded: bool,
) -> Result<u64, String> {
    let (columns, counts) = store.aggregate(group, windows).map_err(|error| read_error(&error))?;
    let host = host_of(group);
    for (selected, column) in group.columns.iter().zip(columns) {
        let series = (host.clone(), selected.metric.clone());
        let expected = oracle.aggregate(&series, windows, selected.value_type, now_ns);
        for (place, (found, expected)) in column.windows.iter().zip(&expected).enumerate() {
            if !is_same(found, expected, is_folded) {
                return Err(format!(
                    "window {place} of {windows:?} of {series:?}: found {found:?}, expected {expected:?}"
                ));
            }
        }
    }
    Ok(counts.nodes)
}
