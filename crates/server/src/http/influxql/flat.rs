//! Answers as one table, as InfluxDB 3 has them: the measurement, the time, tags, and the other columns.

use std::collections::{HashMap, HashSet};

use influxql::{Series, Value};
use query::QueryError;

use super::Done;
use crate::http::objects::{self, ObjectForm};

const MEASUREMENT: &str = "iox::measurement";

/// The rows of all statements; the first error instead, if there is one.
pub(super) fn text(results: Vec<Done>, form: ObjectForm) -> Result<String, QueryError> {
    let mut series = Vec::new();
    for result in results {
        series.extend(result?.series);
    }
    let columns = columns(&series);
    let rows: Vec<Vec<Value>> = series.iter().flat_map(|series| rows(series, &columns)).collect();
    Ok(objects::text(&columns, &rows, form))
}

/// The columns of all series, each once.
fn columns(all: &[Series]) -> Vec<&str> {
    let mut columns = vec![MEASUREMENT];
    let has_time = all.iter().any(|series| series.columns.first().is_some_and(|column| column == "time"));
    columns.extend(has_time.then_some("time"));
    let mut seen: HashSet<&str> = columns.iter().copied().collect();
    for series in all {
        let tags = series.tags.iter().map(|(name, _)| name.as_str());
        for name in tags.chain(series.columns.iter().map(String::as_str)) {
            if seen.insert(name) {
                columns.push(name);
            }
        }
    }
    columns
}

/// A series' rows, null where it has no such column.
fn rows<'a>(series: &'a Series, columns: &'a [&str]) -> impl Iterator<Item = Vec<Value>> + 'a {
    enum From {
        Same(Value),
        Column(usize),
    }
    let places: HashMap<&str, usize> = series.columns.iter().map(String::as_str).zip(0..).collect();
    let from = |column: &&str| {
        if *column == MEASUREMENT {
            return From::Same(Value::text(series.name.as_str()));
        }
        if let Some(place) = places.get(column) {
            return From::Column(*place);
        }
        let tag = series.tags.iter().find(|(name, _)| name == column);
        From::Same(tag.map_or(Value::Null, |(_, value)| Value::text(value.as_str())))
    };
    let sources: Vec<From> = columns.iter().map(from).collect();
    let row = move |row: Vec<Value>| {
        let value = |source: &From| match source {
            From::Same(value) => value.clone(),
            From::Column(place) => row.get(*place).cloned().unwrap_or(Value::Null),
        };
        sources.iter().map(value).collect()
    };
    series.rows.values().into_owned().into_iter().map(row)
}
