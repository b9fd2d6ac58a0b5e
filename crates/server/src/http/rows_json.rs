//! Rows as JSON, for SQL, InfluxQL and plans: `[…],…` of values, or of rows as they were read, of which nothing is made but their text.

use std::fmt::Write;
use std::ops::Range;

use model::Labels;
use query::{Cell, Column, ResultRows, RowColumn, RowRef, RowValue, SeriesColumn, SeriesTexts, Value};

use crate::http::json;

/// Rows whose length tells about how long all will be.
pub(crate) const ROWS_TRIED: usize = 64;

/// How a protocol writes floats; whole ones of a moderate size have no exponent anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Floats {
    /// As Go's JSON has them, whole ones with a point; no number is null.
    Pointed,
    /// As Go's JSON has them; no number is null.
    Go,
    /// As they are; no number is a text, as in Prometheus's answers.
    Plain,
}

/// Appends a float.
fn push_float(out: &mut String, value: f64, floats: Floats) {
    if !value.is_finite() {
        match floats {
            // JSON has no such numbers.
            Floats::Pointed | Floats::Go => out.push_str("null"),
            Floats::Plain => json::push_text(out, &json::number(value)),
        }
    } else if json::push_whole(out, value) {
        out.push_str(if floats == Floats::Pointed { ".0" } else { "" });
    } else {
        let _ = if floats == Floats::Plain { write!(out, "{value}") } else { write_as_go(out, value) };
    }
}

/// A float with an exponent if it is very small or very large.
fn write_as_go(out: &mut String, value: f64) -> std::fmt::Result {
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let sign = if exponent.starts_with('-') { "" } else { "+" };
        return write!(out, "{digits}e{sign}{exponent}");
    }
    write!(out, "{value}")
}

/// Appends a cell.
pub(crate) fn push_cell(out: &mut String, cell: Cell<'_>, floats: Floats) {
    match cell {
        Cell::Null => out.push_str("null"),
        Cell::F64(value) => push_float(out, value, floats),
        Cell::I64(value) => json::push_integer(out, value),
        Cell::U64(value) => match i64::try_from(value) {
            Ok(value) => json::push_integer(out, value),
            // SQL has it as a float.
            Err(_) if floats == Floats::Pointed => push_float(out, value as f64, floats),
            Err(_) => {
                let _ = write!(out, "{value}");
            }
        },
        Cell::Bool(value) => out.push_str(if value { "true" } else { "false" }),
        Cell::Text(text) => json::push_text(out, text),
    }
}

/// Writes rows that share many of their times.
pub(crate) struct RowWriter<T> {
    floats: Floats,
    /// Appends a time.
    write_time: T,
    /// The time that was written last.
    time_ns: Option<i64>,
    time: String,
}

impl<T: Fn(&mut String, i64)> RowWriter<T> {
    pub(crate) const fn new(floats: Floats, write_time: T) -> Self {
        Self { floats, write_time, time_ns: None, time: String::new() }
    }

    fn push_value(&mut self, out: &mut String, value: RowValue<'_>) {
        match value {
            RowValue::Cell(cell) => push_cell(out, cell, self.floats),
            RowValue::Time(ns) => {
                if self.time_ns != Some(ns) {
                    self.time.clear();
                    (self.write_time)(&mut self.time, ns);
                    self.time_ns = Some(ns);
                }
                out.push_str(&self.time);
            }
        }
    }

    /// Appends rows of values.
    pub(crate) fn push_rows(&mut self, out: &mut String, rows: &[Vec<Value>]) {
        let begun = out.len();
        for (number, row) in rows.iter().enumerate() {
            make_room(out, begun, number, rows.len());
            out.push_str(if number == 0 { "[" } else { ",[" });
            for (place, value) in row.iter().enumerate() {
                out.push_str(if place == 0 { "" } else { "," });
                let cell = match value {
                    Value::Null => Cell::Null,
                    Value::Bool(value) => Cell::Bool(*value),
                    Value::Int(value) => Cell::I64(*value),
                    Value::Unsigned(value) => Cell::U64(*value),
                    Value::Float(value) => Cell::F64(*value),
                    Value::Text(text) => Cell::Text(text),
                    Value::Interval(_) => Cell::Text(&value.to_string()),
                    Value::Timestamp(ns) | Value::LocalTimestamp(ns) | Value::Date(ns) => {
                        self.push_value(out, RowValue::Time(*ns));
                        continue;
                    }
                };
                push_cell(out, cell, self.floats);
            }
            out.push(']');
        }
    }

    /// Appends some of the rows that are ready.
    pub(crate) fn push_ready(&mut self, out: &mut String, ready: &ReadyRows<'_>, rows: Range<usize>) {
        let (begun, rows) = (out.len(), ready.rows.order().get(rows).unwrap_or_default());
        for (number, row) in rows.iter().enumerate() {
            make_room(out, begun, number, rows.len());
            out.push_str(if number == 0 { "[" } else { ",[" });
            ready.push_row(self, out, row);
            out.push(']');
        }
    }
}

/// Makes room for all rows when some were written: memory that grows again and again is copied each time.
fn make_room(out: &mut String, begun: usize, written: usize, rows: usize) {
    if written == ROWS_TRIED {
        out.reserve((out.len() - begun) / ROWS_TRIED * (rows - ROWS_TRIED) / 16 * 17);
    }
}

/// Rows as they were read, ready to be written.
pub(crate) struct ReadyRows<'a> {
    rows: &'a ResultRows,
    texts: RowTexts<'a>,
}

/// What of rows is made but once.
enum RowTexts<'a> {
    /// Of each series all that is the same in its rows.
    BySeries(SeriesFragments<'a>),
    /// Of all rows how they are made: of few series with more than a row each nothing is worth making for one answer.
    ByRow(RowFragments<'a>),
}

impl<'a> ReadyRows<'a> {
    pub(crate) fn new(rows: &'a ResultRows, floats: Floats) -> Self {
        let has_either = rows.columns().iter().any(|column| matches!(column, RowColumn::FieldOrTag(..)));
        let texts = if rows.order().len() <= rows.series() && !has_either {
            RowTexts::ByRow(RowFragments::new(rows))
        } else {
            RowTexts::BySeries(SeriesFragments::new(rows, floats))
        };
        Self { rows, texts }
    }

    fn push_row<T: Fn(&mut String, i64)>(&self, writer: &mut RowWriter<T>, out: &mut String, row: &RowRef) {
        match &self.texts {
            RowTexts::BySeries(fragments) => fragments.push_row(writer, out, row),
            RowTexts::ByRow(fragments) => fragments.push_row(writer, out, self.rows, row),
        }
    }
}

/// A fragment of the rows of a series.
enum SeriesFragment<'a> {
    /// Text that all rows of a series share, commas included: its range in the texts of all series.
    Same(Range<usize>),
    Varying(SeriesColumn<'a>),
}

/// The fragments of the rows of each series.
#[derive(Default)]
struct SeriesFragments<'a> {
    fragments: Vec<SeriesFragment<'a>>,
    /// Where the fragments of each series end.
    ends: Vec<usize>,
    texts: String,
}

impl<'a> SeriesFragments<'a> {
    fn new(rows: &'a ResultRows, floats: Floats) -> Self {
        let mut all = Self::default();
        for series in (0..).take(rows.series()) {
            let mut from = all.texts.len();
            for (place, column) in rows.series_columns(series).into_iter().enumerate() {
                all.texts.push_str(if place == 0 { "" } else { "," });
                if let SeriesColumn::Same(cell) = column {
                    push_cell(&mut all.texts, cell, floats);
                    continue;
                }
                all.fragments.extend([SeriesFragment::Same(from..all.texts.len()), SeriesFragment::Varying(column)]);
                from = all.texts.len();
            }
            all.fragments.push(SeriesFragment::Same(from..all.texts.len()));
            all.ends.push(all.fragments.len());
        }
        all
    }

    fn push_row<T: Fn(&mut String, i64)>(&self, writer: &mut RowWriter<T>, out: &mut String, row: &RowRef) {
        let end = |number: usize| self.ends.get(number).copied().unwrap_or_default();
        let from = (row.series as usize).checked_sub(1).map_or(0, end);
        for fragment in self.fragments.get(from..end(row.series as usize)).unwrap_or_default() {
            match fragment {
                SeriesFragment::Same(text) => out.push_str(self.texts.get(text.clone()).unwrap_or_default()),
                SeriesFragment::Varying(column) => writer.push_value(out, column.value(row)),
            }
        }
    }
}

/// A fragment of any row.
enum RowFragment<'a> {
    Time,
    /// Tags side by side whose text is cached.
    Cached,
    Tag(&'a str),
    /// By its place among the fields that are shown.
    Field(usize),
    Series,
}

/// The fragments of rows of which few are of the same series. Their tags' texts are those that were made for the answer before.
struct RowFragments<'a> {
    fragments: Vec<RowFragment<'a>>,
    cached: Option<SeriesTexts<'a>>,
    /// The fields that are shown of each frame, one frame after another.
    fields: Vec<Option<&'a Column>>,
    fields_shown: usize,
}

impl<'a> RowFragments<'a> {
    fn new(rows: &'a ResultRows) -> Self {
        let names: Vec<Option<&str>> = (0..rows.columns().len()).map(|column| rows.tag_name(column)).collect();
        let run = longest_run(&names);
        let tags: Vec<&str> = names.get(run.clone()).into_iter().flatten().copied().flatten().collect();
        let purpose = format!("JSON {tags:?}");
        let texts = || rows.labels().texts(&purpose, rows.order().len(), |out, labels| push_tags(out, &tags, labels));
        let cached = if tags.is_empty() { None } else { texts() };
        let (mut fragments, mut shown) = (Vec::with_capacity(names.len()), Vec::new());
        for (place, (column, name)) in rows.columns().iter().zip(names).enumerate() {
            fragments.push(match (column, name) {
                (RowColumn::Time, _) => RowFragment::Time,
                (_, Some(_)) if cached.is_some() && place == run.start => RowFragment::Cached,
                (_, Some(_)) if cached.is_some() && run.contains(&place) => continue,
                (_, Some(tag)) => RowFragment::Tag(tag),
                (RowColumn::Field(field) | RowColumn::FieldOrTag(field, _) | RowColumn::Tag(field), _) => {
                    shown.push(*field);
                    RowFragment::Field(shown.len() - 1)
                }
                (RowColumn::Series, _) => RowFragment::Series,
            });
        }
        let fields = (0..rows.frames()).flat_map(|frame| shown.iter().map(move |field| rows.field(frame, *field)));
        Self { fragments, cached, fields: fields.collect(), fields_shown: shown.len() }
    }

    fn push_row<T: Fn(&mut String, i64)>(
        &self,
        writer: &mut RowWriter<T>,
        out: &mut String,
        rows: &ResultRows,
        row: &RowRef,
    ) {
        let from = rows.frame_of(row.series).saturating_mul(self.fields_shown);
        let fields = self.fields.get(from..from.saturating_add(self.fields_shown)).unwrap_or_default();
        for (number, fragment) in self.fragments.iter().enumerate() {
            out.push_str(if number == 0 { "" } else { "," });
            match fragment {
                RowFragment::Time => writer.push_value(out, RowValue::Time(row.time_ns)),
                RowFragment::Cached => out.push_str(self.cached.as_ref().map_or("", |texts| texts.text(row.series))),
                RowFragment::Tag(tag) => {
                    push_tag(out, rows.labels().get(row.series).and_then(|labels| labels.get(tag)));
                }
                RowFragment::Field(field) => {
                    let cells = fields.get(*field).copied().flatten();
                    push_cell(out, cells.map_or(Cell::Null, |cells| cells.cell(row.row as usize)), writer.floats);
                }
                RowFragment::Series => json::push_integer(out, i64::from(row.series)),
            }
        }
    }
}

/// Where most tags stand side by side.
fn longest_run(names: &[Option<&str>]) -> Range<usize> {
    let (mut longest, mut from) = (0..0, 0);
    for (place, name) in names.iter().enumerate() {
        if name.is_none() {
            from = place + 1;
        } else if place + 1 - from > longest.len() {
            longest = from..place + 1;
        }
    }
    longest
}

fn push_tags(out: &mut String, tags: &[&str], labels: &Labels) {
    for (number, tag) in tags.iter().enumerate() {
        out.push_str(if number == 0 { "" } else { "," });
        push_tag(out, labels.get(tag));
    }
}

fn push_tag(out: &mut String, value: Option<&str>) {
    match value.filter(|value| !value.is_empty()) {
        Some(value) => json::push_text(out, value),
        None => out.push_str("null"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_gos() {
        for (value, expected) in [
            (1.0, "1"),
            (-0.0, "-0"),
            (1e15, "1000000000000000"),
            (0.1, "0.1"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-7"),
            (-2.5, "-2.5"),
            (0.0, "0"),
        ] {
            let mut out = String::new();
            push_float(&mut out, value, Floats::Go);
            assert_eq!(out, expected);
        }
    }
}
