//! Series of answers as one table, as InfluxDB 3 has them: the measurement, the time, tags, and the other columns.

use std::collections::{HashMap, HashSet};

use query::Value;

use crate::statements::answer::Series;

const MEASUREMENT: &str = "iox::measurement";

/// Series as one table.
#[derive(Debug, Default)]
pub struct FlatTable {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// A value for each column of each row.
    pub rows: Vec<Vec<Value>>,
}

impl FlatTable {
    /// The rows of all series, null where one does not have a column.
    pub fn new(series: &[Series]) -> Self {
        let columns = columns(series);
        let rows = series.iter().flat_map(|series| rows(series, &columns)).collect();
        Self { columns: columns.into_iter().map(str::to_owned).collect(), rows }
    }
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
