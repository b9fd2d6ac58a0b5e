//! `SAMPLE BY`: groups by time.

use model::TimeRange;
use query::plan::FillWith;
use query::time::{self, CalendarBins};
use query::{Interval, SqlType, Value};

use super::fill::Gaps;
use crate::error::{SqlError, invalid};
use crate::expression::{Bound, FilledRange, Grouped, Key, Typed, calendar_bins, filled_range, sample_bin, width};
use crate::run::Run;
use crate::scope::{Role, Scope};
use crate::syntax::parse::{Align, Sample};

/// `SAMPLE BY`, bound.
pub(super) struct Sampling {
    pub(super) fill: Vec<Option<FillWith>>,
}

/// Makes the bin of time the first key of the groups.
pub(super) fn start(sample: &Sample, scope: &Scope, grouped: &mut Grouped) -> Result<Sampling, SqlError> {
    let width = width(&Value::text(sample.width.as_str()))?;
    let Some(place) = scope.columns.iter().position(|column| column.role == Role::Time) else {
        return invalid("SAMPLE BY is of rows with a column of time");
    };
    let (mut from_epoch_ns, mut zone) = (0, "UTC");
    match &sample.align {
        Align::FirstObservation => {
            return Err(SqlError::Unsupported("ALIGN TO FIRST OBSERVATION".to_owned()));
        }
        Align::Calendar { time_zone, offset } => {
            zone = time_zone.as_deref().unwrap_or(zone);
            if let Some(offset) = offset {
                from_epoch_ns = offset_ns(offset)?;
            }
        }
    }
    let bin = sample_bin(width, Bound::Column(place), from_epoch_ns, zone);
    grouped.keys.push(Key {
        text: "SAMPLE BY".to_owned(),
        column: Some(place),
        typed: Typed { expression: bin, sql_type: SqlType::Timestamp },
    });
    Ok(Sampling { fill: sample.fill.clone() })
}

impl Run<'_> {
    /// How gaps between groups are filled, if they are.
    pub(super) fn gaps(
        &mut self,
        sample: Option<Sampling>,
        grouped: &Grouped,
        condition: Option<&Typed>,
        scope: &Scope,
    ) -> Result<Option<Gaps>, SqlError> {
        let calls = grouped.calls.len();
        if let Some(sample) = sample {
            let none = sample.fill.iter().all(Option::is_none);
            if none {
                return Ok(None);
            }
            let fills = match sample.fill.as_slice() {
                [one] => vec![one.unwrap_or(FillWith::Null); calls],
                each if each.len() == calls => each.iter().map(|fill| fill.unwrap_or(FillWith::Null)).collect(),
                each => {
                    return invalid(format!(
                        "FILL has {} values for {calls} aggregates: one for each, or one for all",
                        each.len()
                    ));
                }
            };
            let Some(bins) = self.bins(grouped.keys.first())? else { return Ok(None) };
            return Ok(Some(Gaps { key: 0, bins, fills, range: None }));
        }
        let mut range_of_call = None;
        let mut key = 0;
        for (index, found) in grouped.keys.iter().enumerate() {
            if let Some(range) = filled_range(&found.typed.expression, &self.environment)? {
                (range_of_call, key) = (Some(range), index);
                break;
            }
        }
        let Some(FilledRange { start_ns, finish_ns }) = range_of_call else { return Ok(None) };
        let Some(bins) = self.bins(grouped.keys.get(key))? else {
            return invalid("time_bucket_gapfill takes a constant width, origin, offset and time zone");
        };
        let fills = (0..calls).map(|call| grouped.fills.get(&call).copied().unwrap_or(FillWith::Null)).collect();
        let range = condition.map(|condition| {
            let mut scan = query::plan::Scan::of_table("");
            super::lower(condition.expression.clone(), &mut scan, scope);
            scan.range
        });
        let mut range = range.unwrap_or(TimeRange::ALL);
        range.start_ns = start_ns.unwrap_or(range.start_ns);
        range.end_ns = finish_ns.map_or(range.end_ns, |finish_ns| finish_ns.saturating_sub(1));
        let range = Some(range).filter(|range| range.start_ns != i64::MIN && range.end_ns != i64::MAX);
        Ok(Some(Gaps { key, bins, fills, range }))
    }

    fn bins(&self, key: Option<&Key>) -> Result<Option<CalendarBins>, SqlError> {
        match key {
            Some(key) => calendar_bins(&key.typed.expression, &self.environment),
            None => Ok(None),
        }
    }
}

/// `00:30` or `-02:00`, as QuestDB writes offsets.
fn offset_ns(text: &str) -> Result<i64, SqlError> {
    match time::parse_interval(text) {
        Some(Interval { months: 0, ns }) => Ok(ns),
        _ => invalid(format!("an offset is hours and minutes such as '00:30', not '{text}'")),
    }
}
