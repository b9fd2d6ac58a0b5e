//! Groups for the bins of time that have none.

use std::collections::HashMap;

use model::TimeRange;
use query::plan::FillWith;
use query::time::CalendarBins;
use query::{SqlType, Value, fill_gaps, interpolated};

use crate::error::{SqlError, invalid};
use crate::expression::Grouped;
use crate::run::Run;

/// Bins that may be made.
const BINS_MAX: usize = 10_000_000;

/// Rows of the same other keys, by their times.
type Series = (Vec<Value>, HashMap<i64, Vec<Value>>);

/// How gaps are filled.
pub(super) struct Gaps {
    /// The key that is the bin's time.
    pub(super) key: usize,
    pub(super) bins: CalendarBins,
    /// One for each aggregate.
    pub(super) fills: Vec<FillWith>,
    /// Where bins are made; from the first to the last that there is, if that is not said.
    pub(super) range: Option<TimeRange>,
}

impl Run<'_> {
    /// Rows of groups with the gaps filled, series by series, in order of time.
    pub(super) fn fill(
        &mut self,
        rows: Vec<Vec<Value>>,
        gaps: &Gaps,
        grouped: &Grouped,
    ) -> Result<Vec<Vec<Value>>, SqlError> {
        let at = |row: &Vec<Value>| row.get(gaps.key).and_then(Value::time_ns);
        let times = || rows.iter().filter_map(at);
        let (Some(first), Some(last)) = (times().min(), times().max()) else { return Ok(rows) };
        let starts = starts(gaps, first, last)?;
        let key_type = grouped.keys.get(gaps.key).map(|key| key.typed.sql_type);
        let is_local = key_type == Some(SqlType::LocalTimestamp);
        let bin = |ns: i64| if is_local { Value::LocalTimestamp(ns) } else { Value::Timestamp(ns) };
        // Groups without a time, as outer joins make them, have no bin.
        let mut filled = Vec::new();
        // By the other keys, in the order in which they come.
        let mut series: Vec<Series> = Vec::new();
        let mut places: HashMap<Vec<Value>, usize> = HashMap::new();
        for row in rows {
            let Some(ns) = at(&row) else {
                filled.push(row);
                continue;
            };
            let mut key: Vec<Value> = row.iter().take(grouped.keys.len()).cloned().collect();
            if let Some(time) = key.get_mut(gaps.key) {
                *time = Value::Null;
            }
            let place = *places.entry(key.clone()).or_insert_with(|| {
                series.push((key, HashMap::new()));
                series.len() - 1
            });
            if let Some((_, rows)) = series.get_mut(place) {
                rows.insert(ns, row);
            }
        }
        if starts.len().saturating_mul(series.len()) > BINS_MAX {
            return invalid(format!(
                "filling would make more than {BINS_MAX} rows: choose a shorter range or wider bins"
            ));
        }
        self.charge(starts.len() * series.len() * (grouped.keys.len() + grouped.calls.len()))?;
        filled.reserve(starts.len() * series.len());
        for (key, mut known) in series {
            let mut rows: Vec<(Vec<Value>, bool)> = Vec::with_capacity(starts.len());
            for start_ns in &starts {
                match known.remove(start_ns) {
                    Some(row) => rows.push((row, true)),
                    None => {
                        let mut row = key.clone();
                        if let Some(time) = row.get_mut(gaps.key) {
                            *time = bin(*start_ns);
                        }
                        row.resize(grouped.keys.len() + grouped.calls.len(), Value::Null);
                        rows.push((row, false));
                    }
                }
            }
            for (call, fill) in gaps.fills.iter().enumerate() {
                let is_whole = grouped.calls.get(call).is_some_and(|call| call.sql_type.is_integer());
                let column = FilledColumn { column: grouped.keys.len() + call, key: gaps.key, is_whole };
                fill_column(&mut rows, &column, *fill);
            }
            filled.extend(rows.into_iter().map(|(row, _)| row));
        }
        let time = |row: &Vec<Value>| at(row).unwrap_or(i64::MAX);
        filled.sort_by_key(time);
        Ok(filled)
    }
}

/// Where bins begin, in order.
fn starts(gaps: &Gaps, first: i64, last: i64) -> Result<Vec<i64>, SqlError> {
    let (from_ns, to_ns) =
        gaps.range.map_or((first, last), |range| (range.start_ns.min(first), range.end_ns.max(last)));
    let starts: Vec<i64> = gaps.bins.starts(from_ns, to_ns).take(BINS_MAX + 1).collect();
    if starts.len() > BINS_MAX {
        return invalid(format!("filling would make more than {BINS_MAX} bins: choose a shorter range or wider bins"));
    }
    Ok(starts)
}

/// A column that is filled, and the one with its bins' times.
struct FilledColumn {
    column: usize,
    key: usize,
    is_whole: bool,
}

/// Fills one aggregate of one series; whole numbers stay whole. A null of a bin that is there is no gap to a number.
fn fill_column(rows: &mut [(Vec<Value>, bool)], filled: &FilledColumn, fill: FillWith) {
    let FilledColumn { column, key, is_whole } = *filled;
    let number = |number: f64| if is_whole { Value::Int(number.round() as i64) } else { Value::Float(number) };
    let fills_nulls = matches!(fill, FillWith::Previous | FillWith::Linear);
    let slot = |(row, is_there): &(Vec<Value>, bool)| {
        let ns = row.get(key).and_then(Value::time_ns).unwrap_or(0);
        let value = row.get(column).filter(|value| *is_there && !(fills_nulls && value.is_null()));
        (ns, value.cloned())
    };
    let mut slots: Vec<(i64, Option<Value>)> = rows.iter().map(slot).collect();
    fill_gaps(&mut slots, fill, number, |(from_ns, from), (to_ns, to), ns| {
        Some(number(interpolated((*from_ns, from.number()?), (*to_ns, to.number()?), ns)))
    });
    for ((row, _), (_, value)) in rows.iter_mut().zip(slots) {
        if let (Some(cell), Some(value)) = (row.get_mut(column), value) {
            *cell = value;
        }
    }
}
