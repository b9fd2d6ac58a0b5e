//! Answers as JSON, in the form that InfluxDB gives them: a list of series, each with columns and rows. Layout: `docs/formats/cache-protocol.md`.

use std::fmt;
use std::sync::Arc;

use serde::de::{self, DeserializeSeed, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::points::{Answer, FieldPoints, Points, ValueType, Values};
use crate::{Key, Span};

/// The column that all series begin with.
const TIME: &str = "time";
/// Integers beyond this are not exact as floats: they are kept as integers, all other numbers as floats.
const EXACT_MAX: i64 = 1 << 53;

/// What a body takes beside its points, and a point in it, about.
const HEAD_BYTES: usize = 256;
const CELL_BYTES: usize = 10;

/// A body: what was asked for or is set, which does not count, and its rows.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default, rename = "start")]
    _start: Option<i64>,
    #[serde(default, rename = "end")]
    _end: Option<i64>,
    series: Vec<Series>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Series {
    #[serde(default)]
    name: String,
    columns: Vec<String>,
    values: Rows,
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

/// Rows, one behind another.
#[derive(Debug, Default)]
struct Rows {
    cells: Vec<Cell>,
    /// Cells of the first row.
    width: usize,
    /// A row has another number of cells than the first one.
    is_uneven: bool,
}

impl Rows {
    fn rows(&self) -> impl Iterator<Item = &[Cell]> {
        self.cells.chunks(self.width.max(1))
    }
}

impl<'de> Deserialize<'de> for Rows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RowsVisitor;
        impl<'de> Visitor<'de> for RowsVisitor {
            type Value = Rows;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of rows")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Rows, A::Error> {
                let (mut rows, mut count) = (Rows::default(), 0);
                while let Some(width) = list.next_element_seed(Row(&mut rows.cells))? {
                    if count == 0 {
                        rows.width = width;
                    }
                    // An empty first row has no place among the cells.
                    rows.is_uneven |= width != rows.width || width == 0;
                    count += 1;
                }
                Ok(rows)
            }
        }
        deserializer.deserialize_seq(RowsVisitor)
    }
}

/// Reads a row behind others; gives how many cells it has.
struct Row<'a>(&'a mut Vec<Cell>);

impl<'de> DeserializeSeed<'de> for Row<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Row<'_> {
    type Value = usize;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a row")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<usize, A::Error> {
        let before = self.0.len();
        while let Some(cell) = list.next_element()? {
            self.0.push(cell);
        }
        Ok(self.0.len() - before)
    }
}

/// Reads a body. The message of an error is for the sender.
pub fn read(body: &[u8]) -> Result<Answer, String> {
    let body: Body = serde_json::from_slice(body).map_err(|error| format!("the body is not an answer: {error}"))?;
    let mut fields = Fields::default();
    let mut series = Vec::with_capacity(body.series.len());
    for (number, one) in (0u32..).zip(body.series) {
        fields.read_series(number, &one)?;
        series.push(Arc::from(one.name));
    }
    let mut answer = Answer { series, fields: fields.0 };
    answer.fields.sort_by(|a, b| order(a).cmp(&order(b)));
    answer.fields.iter_mut().for_each(|field| field.points.sort());
    Ok(answer)
}

fn order(field: &FieldPoints) -> (&Arc<str>, ValueType) {
    (&field.name, field.points.values.value_type())
}

/// Fields as they are found; the indexes of those that were found stay.
#[derive(Default)]
struct Fields(Vec<FieldPoints>);

/// The indexes of a column's fields, for each type of value.
type FieldIndexes = [Option<usize>; 4];

impl Fields {
    fn read_series(&mut self, number: u32, series: &Series) -> Result<(), String> {
        let Some((time, names)) = series.columns.split_first().filter(|(first, _)| *first == TIME) else {
            return Err(format!("the first column of series {:?} is not {TIME:?}", series.name));
        };
        let mut columns: Vec<(Arc<str>, FieldIndexes)> = names.iter().map(|name| self.field_indexes(name)).collect();
        if series.values.cells.is_empty() {
            // A field without values is one all the same: of floats, if nothing tells.
            for (name, indexes) in &mut columns {
                if indexes.iter().all(Option::is_none) {
                    *indexes = self.field_indexes(name).1;
                    self.field_index(name, indexes, ValueType::F64);
                }
            }
        }
        for row in series.values.rows() {
            let Some((Cell::I64(at), cells)) = row.split_first() else {
                return Err(format!(
                    "a row of series {:?} does not begin with a whole number as its {time}",
                    series.name
                ));
            };
            if series.values.is_uneven || cells.len() != names.len() {
                break;
            }
            for ((name, indexes), cell) in columns.iter_mut().zip(cells) {
                self.push(name, indexes, *at, number, cell);
            }
        }
        if series.values.is_uneven || (!series.values.cells.is_empty() && series.values.width != series.columns.len()) {
            return Err(format!(
                "a row of series {:?} has another number of cells than there are columns",
                series.name
            ));
        }
        Ok(())
    }

    /// A column's name, and the fields that are known of it.
    fn field_indexes(&self, name: &str) -> (Arc<str>, FieldIndexes) {
        let mut indexes = FieldIndexes::default();
        let mut known = None;
        for (index, field) in self.0.iter().enumerate().filter(|(_, field)| field.name.as_ref() == name) {
            known = Some(field.name.clone());
            if let Some(slot) = indexes.get_mut(field.points.values.value_type() as usize) {
                *slot = Some(index);
            }
        }
        (known.unwrap_or_else(|| Arc::from(name)), indexes)
    }

    /// The field of a column and type, made if it is not there. A name that comes twice in a series finds what its twin made.
    fn field_index(&mut self, name: &Arc<str>, indexes: &mut FieldIndexes, value_type: ValueType) -> usize {
        let slot = indexes.get(value_type as usize).copied().flatten();
        slot.unwrap_or_else(|| {
            let known = self.0.iter().position(|field| order(field) == (name, value_type));
            let index = known.unwrap_or_else(|| {
                self.0.push(FieldPoints { name: name.clone(), points: Points::new(value_type) });
                self.0.len() - 1
            });
            if let Some(slot) = indexes.get_mut(value_type as usize) {
                *slot = Some(index);
            }
            index
        })
    }

    fn push(&mut self, name: &Arc<str>, indexes: &mut FieldIndexes, at: i64, series: u32, cell: &Cell) {
        let value_type = match cell {
            Cell::Null => return,
            Cell::Bool(_) => ValueType::Bool,
            Cell::I64(value) if !(-EXACT_MAX..=EXACT_MAX).contains(value) => ValueType::I64,
            Cell::I64(_) | Cell::F64(_) => ValueType::F64,
            Cell::Text(_) => ValueType::Text,
        };
        let index = self.field_index(name, indexes, value_type);
        let Some(FieldPoints { points, .. }) = self.0.get_mut(index) else { return };
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
}

/// The points of a field and series that are not written yet.
struct Cursor<'a> {
    column: usize,
    points: &'a Points,
    /// Indexes of the points, by time.
    indexes: Vec<u32>,
    next: usize,
}

impl Cursor<'_> {
    /// The next point's index and time.
    fn peek(&self) -> Option<(usize, i64)> {
        let index = *self.indexes.get(self.next)? as usize;
        Some((index, *self.points.timestamps.get(index)?))
    }
}

/// Writes an answer for a span.
pub fn write(answer: &Answer, span: Span) -> Vec<u8> {
    let mut names: Vec<&str> = vec![TIME];
    let mut columns = Vec::with_capacity(answer.fields.len());
    for field in &answer.fields {
        let known = names.iter().skip(1).position(|name| *name == field.name.as_ref());
        columns.push(known.unwrap_or(names.len() - 1));
        if known.is_none() {
            names.push(&field.name);
        }
    }
    let mut series: Vec<Vec<Cursor<'_>>> = answer.series.iter().map(|_| Vec::new()).collect();
    for (field, column) in answer.fields.iter().zip(columns) {
        cursors(&field.points, column, &mut series);
    }
    let mut out = Vec::with_capacity(HEAD_BYTES + answer.points() * CELL_BYTES);
    out.extend_from_slice(format!(r#"{{"start":{},"end":{},"series":["#, span.start, span.end).as_bytes());
    for (number, (name, mut cursors)) in answer.series.iter().zip(series).enumerate() {
        out.extend_from_slice(if number == 0 { br#"{"name":"# } else { br#",{"name":"# });
        append(&mut out, name.as_ref());
        out.extend_from_slice(br#","columns":"#);
        append(&mut out, &names);
        out.extend_from_slice(br#","values":["#);
        write_rows(&mut out, &mut cursors, names.len() - 1);
        out.extend_from_slice(b"]}");
    }
    out.extend_from_slice(b"]}");
    out
}

/// Adds a field's points to those of each series.
fn cursors<'a>(points: &'a Points, column: usize, series: &mut [Vec<Cursor<'a>>]) {
    let first = series.iter().map(Vec::len).collect::<Vec<_>>();
    for (index, number) in (0u32..).zip(&points.series) {
        let number = *number as usize;
        let (Some(cursors), Some(first)) = (series.get_mut(number), first.get(number)) else { continue };
        if cursors.len() == *first {
            cursors.push(Cursor { column, points, indexes: Vec::new(), next: 0 });
        }
        if let Some(cursor) = cursors.last_mut() {
            cursor.indexes.push(index);
        }
    }
    let time = |index: &u32| points.timestamps.get(*index as usize).copied();
    for cursor in series.iter_mut().zip(first).filter_map(|(cursors, first)| cursors.get_mut(first)) {
        if !cursor.indexes.is_sorted_by_key(time) {
            cursor.indexes.sort_by_key(time);
        }
    }
}

/// A row for each time that any of the fields has.
fn write_rows(out: &mut Vec<u8>, cursors: &mut [Cursor<'_>], columns: usize) {
    let mut cells: Vec<Option<(&Values, usize)>> = vec![None; columns];
    let mut is_first = true;
    while let Some(time) = cursors.iter().filter_map(|cursor| cursor.peek().map(|(_, time)| time)).min() {
        cells.fill(None);
        for cursor in &mut *cursors {
            // Of points of the same time the last one counts.
            while let Some((index, _)) = cursor.peek().filter(|(_, at)| *at == time) {
                if let Some(cell) = cells.get_mut(cursor.column) {
                    *cell = Some((&cursor.points.values, index));
                }
                cursor.next += 1;
            }
        }
        out.extend_from_slice(if is_first { b"[" } else { b",[" });
        is_first = false;
        append(out, &time);
        for one in &cells {
            out.push(b',');
            append(out, &one.and_then(|(values, index)| cell(values, index)).unwrap_or(Cell::Null));
        }
        out.push(b']');
    }
}

/// Numbers, texts and lists of them can always be written.
fn append<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let _ = serde_json::to_writer(out, value);
}

fn cell(values: &Values, index: usize) -> Option<Cell> {
    Some(match values {
        Values::F64(column) => Cell::F64(*column.get(index)?),
        Values::I64(column) => Cell::I64(*column.get(index)?),
        Values::Bool(column) => Cell::Bool(*column.get(index)?),
        Values::Text(column) => Cell::Text(column.get(index)?.clone()),
    })
}

/// A key as protocols write it: forty hexadecimal digits are a digest, any other text is digested.
pub(crate) fn key(text: &str) -> Key {
    Key::from_hex(text).unwrap_or_else(|| Key::of_statement(text))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// A column's type, whether it comes backwards, and bits by time and series.
    type Column = (u8, bool, BTreeMap<(i64, u32), u64>);

    /// A column's points by time and series, or the other way round.
    fn points(value_type: ValueType, cells: &BTreeMap<(i64, u32), u64>, backwards: bool) -> Points {
        let mut points = Points::new(value_type);
        let mut all: Vec<_> = cells.iter().collect();
        if backwards {
            all.reverse();
        }
        for ((time, series), bits) in all {
            points.timestamps.push(*time);
            points.series.push(*series);
            let float = f64::from_bits(*bits);
            match &mut points.values {
                Values::F64(column) => column.push(if float.is_finite() { float } else { 0.5 }),
                // What a float has exactly comes back as one.
                Values::I64(column) => column.push((*bits >> 1) as i64 | 1 << 62 | 1),
                Values::Bool(column) => column.push(bits % 2 == 0),
                Values::Text(column) => column.push(Arc::from(format!("\"{bits:x}\\\n"))),
            }
        }
        points
    }

    proptest! {
        #[test]
        fn every_point_comes_back_to_the_last_bit(
            columns in prop::collection::vec(
                (0u8..4, any::<bool>(), prop::collection::btree_map((-5i64..5, 0u32..3), any::<u64>(), 0..20)),
                0..5,
            ),
        ) {
            let field = |(number, (value_type, backwards, cells)): (usize, &Column)| {
                let value_type = ValueType::from_number(*value_type).unwrap();
                FieldPoints { name: Arc::from(format!("f{number}")), points: points(value_type, cells, *backwards) }
            };
            let series = ["a", "b \"quoted\"", ""].map(Arc::from).to_vec();
            let answer = Answer { series, fields: columns.iter().enumerate().map(field).collect() };
            let body = write(&answer, Span::new(-5, 5));
            prop_assert_eq!(read(&body).unwrap().plain(), answer.plain());
            // As a reader of JSON sees it: each time once in a series, in order.
            let plain: serde_json::Value = serde_json::from_slice(&body).unwrap();
            for series in plain["series"].as_array().unwrap() {
                let rows = series["values"].as_array().unwrap();
                prop_assert!(rows.is_sorted_by(|a, b| a[0].as_i64() < b[0].as_i64()));
                prop_assert!(rows.iter().all(|row| row.as_array().unwrap().len() == answer.fields.len() + 1));
            }
        }
    }

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
        check(r#"{"series":[{"columns":["time","a"],"values":[[]]}]}"#, "cells");
        check(r#"{"series":[{"columns":["time","a"],"values":[[1,2],[3,4,5],[6]]}]}"#, "cells");
        check(r#"{"series":[{"columns":["time","a"],"values":[[1.5,1]]}]}"#, "whole number");
        check(r#"{"series":[{"columns":["time","a"],"values":[[1,[]]]}]}"#, "a number, text");
        check(r#"{"series":[{"columns":["time","a"],"values":[[1,18446744073709551615]]}]}"#, "64 bits");
    }
}
