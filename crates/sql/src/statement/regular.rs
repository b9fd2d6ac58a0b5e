//! Tables of regular databases: `series_validity()` and `series_top()`.

use model::{TimeRange, ValueType};
use query::{EpochValue, NameValidity, SqlType, TopBy, TopNames, Value};

use crate::error::{SqlError, invalid};
use crate::expression::cast;
use crate::relation::{Column, Relation};
use crate::run::Run;

const NS_PER_US: i64 = 1_000;

/// How `series_top` is called.
const USAGE: &str = "write series_top(10), series_top(10, 'max') or series_top(10, 'sum', '2026-01-01', '2026-02-01')";

/// Which names are valid when, or when one is: `name, index, valid_from, valid_to`; what is valid for good has no end.
pub(super) fn validity(run: &mut Run<'_>, name: Option<&str>) -> Result<Relation, SqlError> {
    let found = if run.describes { Vec::new() } else { run.session.name_validity(&run.environment.database, name)? };
    let row = |NameValidity { name, index, from_ns, to_ns }| {
        let to = to_ns.map_or(Value::Null, Value::Timestamp);
        vec![Value::Text(name.into()), Value::Int(i64::from(index)), Value::Timestamp(from_ns), to]
    };
    Ok(Relation {
        columns: vec![
            Column::new("name", SqlType::Text),
            Column::new("index", SqlType::Int),
            Column::new("valid_from", SqlType::Timestamp),
            Column::new("valid_to", SqlType::Timestamp),
        ],
        rows: found.into_iter().map(row).collect(),
    })
}

/// The series with the largest values: `series_top(count)`, `series_top(count, 'sum' or 'max')`, `series_top(count, by, from, to)`.
pub(super) fn top(run: &mut Run<'_>, arguments: &[Value]) -> Result<Relation, SqlError> {
    let database = run.environment.database.clone();
    let table = run.session.table(&database, &database)?;
    let is_float = table.is_some_and(|table| table.fields.iter().any(|(_, field)| *field == ValueType::F64));
    let columns = vec![
        Column::new("name", SqlType::Text),
        Column::new("value", if is_float { SqlType::Float } else { SqlType::Int }),
    ];
    if run.describes {
        return Ok(Relation { columns, rows: Vec::new() });
    }
    let (count, by, range) = match arguments {
        [count] => (count, "sum".to_owned(), None),
        [count, by] => (count, by.to_string(), None),
        [count, by, from, to] => (count, by.to_string(), Some((from, to))),
        _ => return invalid(USAGE),
    };
    let Value::Int(count @ 1..) = count else {
        return invalid(format!("series_top: {count} is no number of series; {USAGE}"));
    };
    let by = match by.as_str() {
        "sum" => TopBy::Sum,
        "max" => TopBy::Max,
        other => return invalid(format!("series_top: {other:?} is neither sum nor max; {USAGE}")),
    };
    let time = |value: &Value| match cast(value.clone(), SqlType::Timestamp, &run.environment)? {
        Value::Timestamp(ns) => Ok(ns),
        other => invalid(format!("series_top: {other} is no time; {USAGE}")),
    };
    let range = match range {
        // The end is not part of it, as in conditions on time.
        Some((from, to)) => TimeRange::new(time(from)?, time(to)?.saturating_sub(NS_PER_US)),
        None => TimeRange::ALL,
    };
    let request = TopNames { range, by, count: usize::try_from(*count).unwrap_or(usize::MAX) };
    let found = run.session.top_names(&database, &request)?;
    let value = |value| match value {
        EpochValue::Int(value) => Value::Int(value),
        EpochValue::Float(value) => Value::Float(value),
    };
    Ok(Relation {
        columns,
        rows: found.into_iter().map(|(name, found)| vec![Value::Text(name.into()), value(found)]).collect(),
    })
}
