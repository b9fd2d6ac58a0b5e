//! Tables as series: a column of times, columns of numbers, and texts, which are labels.

use std::collections::HashMap;
use std::sync::Arc;

use plot::PlotError;
use plot::chart::{Point, SERIES_MAX, Series};
use query::{Budget, Value};

use super::error::GraphError;
use crate::error::ApiError;

/// Rows with named columns.
pub(super) struct Table {
    /// The name of what they are of; may be empty.
    pub(super) name: String,
    /// Labels that all rows have.
    pub(super) tags: Vec<(String, String)>,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<Value>>,
}

/// What a column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Time,
    Number,
    Text,
    /// Nothing stands in it.
    Empty,
}

/// The points of one set of texts, for each column of numbers.
struct Group {
    texts: Vec<Option<Arc<str>>>,
    points: Vec<Vec<Point>>,
}

/// Refuses more series than a graph has.
pub(super) fn too_many_series(count: usize) -> Result<(), GraphError> {
    if count <= SERIES_MAX {
        return Ok(());
    }
    let (count, limit) = (count as u64, SERIES_MAX as u64);
    Err(PlotError::TooLarge { what: "series", count, limit, limit_name: "series_max" }.into())
}

/// A name with labels.
pub(super) fn named(metric: &str, labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return if metric.is_empty() { "{}".to_owned() } else { metric.to_owned() };
    }
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{metric}{{{}}}", labels.join(", "))
}

/// The first and the last time of points.
pub(super) fn extent(series: &[Series]) -> Option<(i64, i64)> {
    let firsts = series.iter().filter_map(|series| series.points.first()).map(|point| point.time_ns);
    let lasts = series.iter().filter_map(|series| series.points.last()).map(|point| point.time_ns);
    firsts.min().zip(lasts.max())
}

fn kind(value: &Value) -> Kind {
    match value {
        Value::Null => Kind::Empty,
        Value::Timestamp(_) | Value::LocalTimestamp(_) | Value::Date(_) => Kind::Time,
        Value::Int(_) | Value::Unsigned(_) | Value::Float(_) | Value::Bool(_) => Kind::Number,
        Value::Text(_) | Value::Interval(_) => Kind::Text,
    }
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Bool(value) => f64::from(u8::from(*value)),
        Value::Text(_) => f64::NAN,
        other => other.number().unwrap_or(f64::NAN),
    }
}

impl Table {
    /// A series for each column of numbers and each set of texts; rows without a time are left out.
    pub(super) fn into_series(self, budget: &Budget) -> Result<Vec<Series>, GraphError> {
        let kinds: Vec<Kind> = (0..self.columns.len()).map(|column| self.kind_of(column)).collect();
        if self.rows.is_empty() {
            return Ok(Vec::new());
        }
        let of_kind = |wanted: Kind| -> Vec<usize> {
            kinds.iter().enumerate().filter(|(_, kind)| **kind == wanted).map(|(column, _)| column).collect()
        };
        let (times, numbers, texts) = (of_kind(Kind::Time), of_kind(Kind::Number), of_kind(Kind::Text));
        let lacks = |what: &str| {
            let names = self.columns.join(", ");
            ApiError::invalid_parameter("query", format!("the answer has no column of {what}; its columns: {names}"))
        };
        let time = times.first().copied().ok_or_else(|| lacks("times"))?;
        if numbers.is_empty() {
            return Err(lacks("numbers").into());
        }
        budget.take(self.rows.len() * numbers.len())?;
        let mut groups: Vec<Group> = Vec::new();
        let mut known: HashMap<Vec<Option<Arc<str>>>, usize> = HashMap::new();
        for (place, row) in self.rows.iter().enumerate() {
            if place % 4096 == 0 {
                budget.check()?;
            }
            let Some(time_ns) = row.get(time).and_then(Value::time_ns) else { continue };
            let key: Vec<Option<Arc<str>>> = texts.iter().map(|column| text(row.get(*column))).collect();
            let group = match known.get(&key) {
                Some(group) => *group,
                None => {
                    too_many_series((groups.len() + 1) * numbers.len())?;
                    groups.push(Group { texts: key.clone(), points: vec![Vec::new(); numbers.len()] });
                    known.insert(key, groups.len() - 1);
                    groups.len() - 1
                }
            };
            let Some(group) = groups.get_mut(group) else { continue };
            for (column, points) in numbers.iter().zip(&mut group.points) {
                let value = row.get(*column).map_or(f64::NAN, number);
                points.push(Point { time_ns, value });
            }
        }
        Ok(groups.into_iter().flat_map(|group| self.series_of(group, (&texts, &numbers))).collect())
    }

    /// By the first value that is not null.
    fn kind_of(&self, column: usize) -> Kind {
        let mut values = self.rows.iter().filter_map(|row| row.get(column)).map(kind);
        values.find(|kind| *kind != Kind::Empty).unwrap_or(Kind::Empty)
    }

    fn series_of(&self, group: Group, (texts, numbers): (&[usize], &[usize])) -> Vec<Series> {
        let column_name = |column: &usize| self.columns.get(*column).cloned().unwrap_or_default();
        let values = texts.iter().zip(&group.texts);
        let values = values.filter_map(|(column, text)| Some((column_name(column), text.as_deref()?.to_owned())));
        let labels: Vec<(String, String)> = self.tags.iter().cloned().chain(values).collect();
        let numbered = numbers.iter().zip(group.points);
        let series = numbered.map(|(column, mut points)| {
            points.sort_by_key(|point| point.time_ns);
            let column = column_name(column);
            let metric = if self.name.is_empty() { column.clone() } else { format!("{}.{column}", self.name) };
            let shown: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (&**name, &**value)).collect();
            let name = named(&metric, &shown);
            let own = [("__name__".to_owned(), metric)];
            Series { name, labels: own.into_iter().chain(labels.iter().cloned()).collect(), points }
        });
        series.collect()
    }
}

fn text(value: Option<&Value>) -> Option<Arc<str>> {
    match value? {
        Value::Null => None,
        Value::Text(text) => Some(text.clone()),
        other => Some(other.to_string().into()),
    }
}
