//! Answers as JSON, in the form that InfluxDB gives them: a list of series, each with columns and rows. Layout: `docs/formats/cache-protocol.md`.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::points::{Answer, FieldPoints, Points, ValueType, Values};
use crate::{Key, Span};

/// The column that all series begin with.
const TIME: &str = "time";
/// Integers beyond this are not exact as floats: they are kept as integers, all other numbers as floats.
const EXACT_MAX: i64 = 1 << 53;

/// A body: what was asked for or is set, and its rows.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<i64>,
    series: Vec<Series>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Series {
    #[serde(default)]
    name: String,
    columns: Vec<String>,
    values: Vec<Vec<Cell>>,
}

#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Null,
    Bool(bool),
    I64(i64),
    F64(f64),
    Text(Arc<str>),
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_none(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::I64(value) => serializer.serialize_i64(*value),
            Self::F64(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
        }
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CellVisitor;
        impl Visitor<'_> for CellVisitor {
            type Value = Cell;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number, text, true, false or null")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Cell, E> {
                Ok(Cell::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Cell, E> {
                Ok(Cell::I64(value))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Cell, E> {
                let number =
                    i64::try_from(value).map_err(|_| E::custom(format!("{value} is beyond 64 bits with a sign")))?;
                Ok(Cell::I64(number))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Cell, E> {
                Ok(Cell::F64(value))
            }

            fn visit_str<E>(self, value: &str) -> Result<Cell, E> {
                Ok(Cell::Text(Arc::from(value)))
            }

            fn visit_unit<E>(self) -> Result<Cell, E> {
                Ok(Cell::Null)
            }
        }
        deserializer.deserialize_any(CellVisitor)
    }
}

/// Reads a body. The message of an error is for whoever sent it.
pub fn read(body: &[u8]) -> Result<Answer, String> {
    let body: Body = serde_json::from_slice(body).map_err(|error| format!("the body is not an answer: {error}"))?;
    let mut fields: BTreeMap<(Arc<str>, ValueType), Points> = BTreeMap::new();
    let mut series = Vec::with_capacity(body.series.len());
    for (number, one) in (0u32..).zip(body.series) {
        read_series(number, &one, &mut fields)?;
        series.push(Arc::from(one.name));
    }
    let field = |((name, _), points)| FieldPoints { name, points };
    let mut answer = Answer { series, fields: fields.into_iter().map(field).collect() };
    answer.fields.iter_mut().for_each(|field| field.points.sort());
    Ok(answer)
}

fn read_series(
    number: u32,
    series: &Series,
    fields: &mut BTreeMap<(Arc<str>, ValueType), Points>,
) -> Result<(), String> {
    let Some((time, names)) = series.columns.split_first().filter(|(first, _)| *first == TIME) else {
        return Err(format!("the first column of series {:?} is not {TIME:?}", series.name));
    };
    // A field without values is one all the same: of floats, if nothing tells.
    let names: Vec<Arc<str>> = names.iter().map(|name| Arc::from(name.as_str())).collect();
    for name in &names {
        let is_known = fields.keys().any(|(known, _)| known == name);
        if !is_known && series.values.is_empty() {
            fields.insert((name.clone(), ValueType::F64), Points::new(ValueType::F64));
        }
    }
    for row in &series.values {
        let Some((Cell::I64(at), cells)) = row.split_first() else {
            return Err(format!("a row of series {:?} does not begin with a whole number as its {time}", series.name));
        };
        if cells.len() != names.len() {
            return Err(format!(
                "a row of series {:?} has another number of cells than there are columns",
                series.name
            ));
        }
        for (name, cell) in names.iter().zip(cells) {
            push(fields, name, *at, number, cell);
        }
    }
    Ok(())
}

fn push(fields: &mut BTreeMap<(Arc<str>, ValueType), Points>, name: &Arc<str>, at: i64, series: u32, cell: &Cell) {
    let value_type = match cell {
        Cell::Null => return,
        Cell::Bool(_) => ValueType::Bool,
        Cell::I64(value) if !(-EXACT_MAX..=EXACT_MAX).contains(value) => ValueType::I64,
        Cell::I64(_) | Cell::F64(_) => ValueType::F64,
        Cell::Text(_) => ValueType::Text,
    };
    let points = fields.entry((name.clone(), value_type)).or_insert_with(|| Points::new(value_type));
    points.timestamps.push(at);
    points.series.push(series);
    match (&mut points.values, cell) {
        (Values::F64(column), Cell::F64(value)) => column.push(*value),
        (Values::F64(column), Cell::I64(value)) => column.push(*value as f64),
        (Values::I64(column), Cell::I64(value)) => column.push(*value),
        (Values::Bool(column), Cell::Bool(value)) => column.push(*value),
        (Values::Text(column), Cell::Text(value)) => column.push(value.clone()),
        _ => {}
    }
}

/// Writes an answer for a span.
pub fn write(answer: &Answer, span: Span) -> Vec<u8> {
    let mut names: Vec<Arc<str>> = Vec::new();
    answer.fields.iter().for_each(|field| {
        if !names.contains(&field.name) {
            names.push(field.name.clone());
        }
    });
    let places: HashMap<&Arc<str>, usize> = names.iter().enumerate().map(|(place, name)| (name, place)).collect();
    let mut rows: Vec<BTreeMap<i64, Vec<Cell>>> = answer.series.iter().map(|_| BTreeMap::new()).collect();
    for field in &answer.fields {
        let column = places.get(&field.name).copied().unwrap_or_default();
        for (place, (time, series)) in field.points.timestamps.iter().zip(&field.points.series).enumerate() {
            let Some(series) = rows.get_mut(*series as usize) else { continue };
            let row = series.entry(*time).or_insert_with(|| vec![Cell::Null; names.len()]);
            if let (Some(to), Some(cell)) = (row.get_mut(column), cell(&field.points.values, place)) {
                *to = cell;
            }
        }
    }
    let columns: Vec<String> = [TIME].into_iter().chain(names.iter().map(AsRef::as_ref)).map(str::to_owned).collect();
    let row = |(time, cells): (i64, Vec<Cell>)| [Cell::I64(time)].into_iter().chain(cells).collect();
    let one = |(name, rows): (&Arc<str>, BTreeMap<i64, Vec<Cell>>)| Series {
        name: name.as_ref().to_owned(),
        columns: columns.clone(),
        values: rows.into_iter().map(row).collect(),
    };
    let series = answer.series.iter().zip(rows).map(one).collect();
    // Numbers, texts and lists of them can always be written.
    serde_json::to_vec(&Body { start: Some(span.start), end: Some(span.end), series }).unwrap_or_default()
}

fn cell(values: &Values, place: usize) -> Option<Cell> {
    Some(match values {
        Values::F64(column) => Cell::F64(*column.get(place)?),
        Values::I64(column) => Cell::I64(*column.get(place)?),
        Values::Bool(column) => Cell::Bool(*column.get(place)?),
        Values::Text(column) => Cell::Text(column.get(place)?.clone()),
    })
}

/// A key as protocols write it: forty hexadecimal digits are a digest, any other text is digested.
pub(crate) fn key(text: &str) -> Key {
    Key::from_hex(text).unwrap_or_else(|| Key::of_statement(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: &str) {
        let answer = read(body.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(write(&answer, Span::new(0, 9))).unwrap(), expected);
    }

    #[test]
    fn bodies_come_back() {
        check(r#"{"series":[]}"#, r#"{"start":0,"end":9,"series":[]}"#);
        check(
            r#"{"series":[{"columns":["time","a","b"],"values":[[1,1.5,"x"],[2,null,true],[3,9007199254740993,2]]}]}"#,
            r#"{"start":0,"end":9,"series":[{"name":"","columns":["time","a","b"],"values":[[1,1.5,"x"],[2,null,true],[3,9007199254740993,2.0]]}]}"#,
        );
        check(
            r#"{"series":[{"name":"h=a","columns":["time","a"],"values":[[2,1],[1,2]]},{"name":"h=b","columns":["time","b"],"values":[[1,3]]}]}"#,
            r#"{"start":0,"end":9,"series":[{"name":"h=a","columns":["time","a","b"],"values":[[1,2.0,null],[2,1.0,null]]},{"name":"h=b","columns":["time","a","b"],"values":[[1,null,3.0]]}]}"#,
        );
    }

    #[test]
    fn what_is_no_answer_is_told() {
        let check = |body: &str, expected: &str| {
            let error = read(body.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        check("", "not an answer");
        check(r#"{"series":[{"columns":["a"],"values":[]}]}"#, "first column");
        check(r#"{"series":[{"columns":["time","a"],"values":[[1]]}]}"#, "cells");
        check(r#"{"series":[{"columns":["time","a"],"values":[[1.5,1]]}]}"#, "whole number");
        check(r#"{"series":[{"columns":["time","a"],"values":[[1,[]]]}]}"#, "a number, text");
        check(r#"{"series":[{"columns":["time","a"],"values":[[1,18446744073709551615]]}]}"#, "64 bits");
    }
}
