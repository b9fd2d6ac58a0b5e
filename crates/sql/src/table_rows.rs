//! Rows of a table as they were read: the frames of series, and the order in which their rows are shown. Values are made of them only where
//! something is computed; to write an answer down nobody needs any.

use std::collections::HashMap;

use model::Labels;
use query::{Frame, FrameColumn, NewestRow, NewestRows, RowPlace, SeriesLabels};

use crate::relation::{Column, Relation};
use crate::value::Value;

/// What is the same in all rows of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Same<'a> {
    /// Nothing: a tag or a field that it does not have.
    Null,
    /// A tag.
    Tag(&'a str),
    /// The hidden number of the series.
    Number(i64),
}

/// What a column shows of the rows of a series.
pub type Shows<'a> = query::Shows<'a, Same<'a>>;

/// What a column shows of all rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part<'a> {
    /// Their times.
    Time,
    /// A tag of their series.
    Tag(&'a str),
    /// A field, by its place among the table's.
    Field(usize),
    /// The hidden number of their series.
    Number,
}

impl Same<'_> {
    fn value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Tag(tag) => Value::text(tag),
            Self::Number(number) => Value::Int(number),
        }
    }
}

/// Rows of a table: its time, tags and fields, and the hidden number of their series.
#[derive(Debug, Default)]
pub(crate) struct ReadRows {
    labels: SeriesLabels,
    /// Where the rows of each series are; others may have theirs there, too.
    frame_of: Vec<u32>,
    frames: Vec<ReadFrame>,
    pub(crate) order: Vec<RowPlace>,
    /// Names of the table's tags.
    tags: Vec<String>,
    pub(crate) width: usize,
}

/// Columns of some series.
#[derive(Debug)]
struct ReadFrame {
    columns: Vec<FrameColumn>,
    /// Of each field of the table its place among the columns; `None` if they are all, in the table's order.
    fields: Option<Vec<Option<usize>>>,
}

impl ReadFrame {
    fn new(columns: Vec<FrameColumn>, schema: &query::TableSchema) -> Self {
        let in_order = columns.iter().map(|column| &*column.name);
        if in_order.eq(schema.fields.iter().map(|(name, _)| name.as_str())) {
            return Self { columns, fields: None };
        }
        let mut expected = 0;
        let place = |(name, _): &(String, model::ValueType)| {
            let is_it = |column: &FrameColumn| *column.name == **name;
            // Mostly they stand in the table's order.
            let next = if columns.get(expected).is_some_and(is_it) { Some(expected) } else { None };
            let found = next.or_else(|| columns.iter().position(is_it));
            expected = found.map_or(expected, |place| place + 1);
            found
        };
        let fields = schema.fields.iter().map(place).collect();
        Self { columns, fields: Some(fields) }
    }

    /// A field by its place in the table; `None` if the series do not have it.
    fn field(&self, place: usize) -> Option<&FrameColumn> {
        let place = match &self.fields {
            Some(places) => (*places.get(place)?)?,
            None => place,
        };
        self.columns.get(place)
    }
}

/// The values of tags, given their names; those that are empty are none.
fn tags_of<'a>(labels: &'a Labels, names: &[String]) -> Vec<Option<&'a str>> {
    let mut values = vec![None; names.len()];
    let mut next = 0;
    for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
        let is_it = |known: &String| known == name;
        let behind = names.get(next..).unwrap_or_default().iter().position(is_it).map(|place| next + place);
        let Some(place) = behind.or_else(|| names.iter().position(is_it)) else { continue };
        if let Some(found) = values.get_mut(place) {
            *found = Some(value);
        }
        next = place + 1;
    }
    values
}

impl ReadRows {
    /// The rows of frames in order of time, those of one time in the order of the frames.
    pub(crate) fn new(frames: Vec<Frame>, schema: &query::TableSchema) -> Self {
        let mut order = Vec::with_capacity(frames.iter().map(Frame::rows).sum());
        let (mut labels, mut read) = (SeriesLabels::default(), Vec::with_capacity(frames.len()));
        let frame_of = (0..frames.len() as u32).collect();
        for (number, Frame { labels: of_frame, timestamps_ns, columns }) in (0..).zip(frames) {
            let places = (0..).zip(timestamps_ns);
            order.extend(places.map(|(row, time_ns)| RowPlace { time_ns, series: number, row }));
            labels.push(of_frame);
            read.push(ReadFrame::new(columns, schema));
        }
        let (tags, width) = (schema.tags.clone(), Self::width_of(schema));
        Self { labels, frame_of, frames: read, order, tags, width }.in_order()
    }

    /// A row of each series, in the same order.
    pub(crate) fn of_newest(newest: NewestRows, schema: &query::TableSchema) -> Self {
        let NewestRows { labels, rows, frames, .. } = newest;
        let place = |(series, row): (u32, &NewestRow)| RowPlace { time_ns: row.time_ns, series, row: row.row };
        let order = (0..).zip(&rows).map(place).collect();
        let frame_of = rows.iter().map(|row| row.frame).collect();
        let frames = frames.into_iter().map(|columns| ReadFrame::new(columns, schema)).collect();
        Self { labels, frame_of, frames, order, tags: schema.tags.clone(), width: Self::width_of(schema) }.in_order()
    }

    fn in_order(mut self) -> Self {
        self.order.sort_by_key(|place| place.time_ns);
        self
    }

    /// Values of a row of a table.
    pub(crate) const fn width_of(schema: &query::TableSchema) -> usize {
        schema.tags.len() + schema.fields.len() + 2
    }

    /// What a column shows, by its place in a row.
    fn part(&self, column: usize) -> Part<'_> {
        let Some(place) = column.checked_sub(1) else { return Part::Time };
        match self.tags.get(place) {
            Some(tag) => Part::Tag(tag),
            None if column + 1 == self.width => Part::Number,
            None => Part::Field(place - self.tags.len()),
        }
    }

    /// A field's column where the rows of a series are; `None` if the series do not have it.
    fn field(&self, series: u32, field: usize) -> Option<&FrameColumn> {
        let frame = self.frame_of.get(series as usize)?;
        self.frames.get(*frame as usize)?.field(field)
    }

    /// Appends what columns show of a series, by their places in a row.
    fn shows<'a>(&'a self, series: u32, columns: &[usize], shown: &mut Vec<Shows<'a>>) {
        let Some(labels) = self.labels.get(series) else { return };
        let tags = tags_of(labels, &self.tags);
        let of_column = |column: &usize| match self.part(*column) {
            Part::Time => Shows::Time,
            Part::Tag(_) => Shows::Same(tags.get(column - 1).copied().flatten().map_or(Same::Null, Same::Tag)),
            Part::Number => Shows::Same(Same::Number(i64::from(series))),
            Part::Field(field) => self.field(series, field).map_or(Shows::Same(Same::Null), Shows::Field),
        };
        shown.extend(columns.iter().map(of_column));
    }

    /// The value of a tag by its place in a row; `None` if the series has none.
    fn tag(&self, series: u32, column: usize) -> Option<&str> {
        let name = self.tags.get(column.checked_sub(1)?)?;
        self.labels.get(series)?.get(name).filter(|value| !value.is_empty())
    }

    /// Leaves the last row for each value of columns that are tags.
    pub(crate) fn keep_newest(&mut self, columns: &[usize]) {
        let tags = columns.iter().filter_map(|column| self.tags.get(column.checked_sub(1)?)).map(String::as_str);
        if self.labels.differ_by(&tags.collect::<Vec<_>>()) && self.order.len() == self.labels.len() {
            return;
        }
        // Column by column: series that agree so far have the same number.
        let (mut of_series, mut count) = (vec![0; self.labels.len()], 1);
        for column in columns {
            let mut numbers: HashMap<(usize, Option<&str>), usize> = HashMap::with_capacity(self.labels.len());
            for (series, number) in (0..).zip(&mut of_series) {
                let next = numbers.len();
                *number = *numbers.entry((*number, self.tag(series, *column))).or_insert(next);
            }
            count = numbers.len();
        }
        let mut is_seen = vec![false; count];
        let is_newest = |place: &RowPlace| {
            let seen = of_series.get(place.series as usize).and_then(|number| is_seen.get_mut(*number));
            seen.is_some_and(|seen| !std::mem::replace(seen, true))
        };
        let mut kept: Vec<RowPlace> = self.order.iter().rev().copied().filter(is_newest).collect();
        kept.reverse();
        self.order = kept;
    }

    /// The rows with all of their values.
    pub(crate) fn into_rows(self) -> Vec<Vec<Value>> {
        let all: Vec<usize> = (0..self.width).collect();
        self.values(&all)
    }

    fn values(&self, columns: &[usize]) -> Vec<Vec<Value>> {
        let mut shows = Vec::with_capacity(self.labels.len() * columns.len());
        (0..).take(self.labels.len()).for_each(|series| self.shows(series, columns, &mut shows));
        let row = |place: &RowPlace| {
            let from = place.series as usize * columns.len();
            let shows = shows.get(from..from + columns.len()).unwrap_or_default();
            let value = |shows: &Shows<'_>| match shows {
                Shows::Time => Value::Timestamp(place.time_ns),
                Shows::Same(same) => same.value(),
                Shows::Field(field) => Value::of_cell(field.cell(place.row as usize)),
            };
            shows.iter().map(value).collect()
        };
        self.order.iter().map(row).collect()
    }
}

/// An answer whose rows are those of a table, as they were read.
#[derive(Debug)]
pub struct TableRows {
    columns: Vec<Column>,
    /// Of each column its place in a row.
    places: Vec<usize>,
    read: ReadRows,
}

impl TableRows {
    pub(crate) const fn new(columns: Vec<Column>, places: Vec<usize>, read: ReadRows) -> Self {
        Self { columns, places, read }
    }

    /// The columns that are shown.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The rows, in order.
    pub fn order(&self) -> &[RowPlace] {
        &self.read.order
    }

    /// Leaves the rows from one place to another.
    pub fn cut(&mut self, from: usize, to: usize) {
        self.read.order.truncate(to);
        self.read.order.drain(..from.min(self.read.order.len()));
    }

    /// How many series the rows are of.
    pub fn series(&self) -> usize {
        self.read.labels.len()
    }

    /// The labels of the series.
    pub fn labels(&self) -> &SeriesLabels {
        &self.read.labels
    }

    /// What each column shows.
    pub fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.places.iter().map(|place| self.read.part(*place))
    }

    /// In how many frames rows are.
    pub fn frames(&self) -> usize {
        self.read.frames.len()
    }

    /// In which frame the rows of a series are.
    pub fn frame_of(&self, series: u32) -> usize {
        self.read.frame_of.get(series as usize).map_or(usize::MAX, |frame| *frame as usize)
    }

    /// A field of the rows of a frame; `None` if its series do not have it.
    pub fn field(&self, frame: usize, field: usize) -> Option<&FrameColumn> {
        self.read.frames.get(frame)?.field(field)
    }

    /// Appends what each column shows of a series.
    pub fn shows<'a>(&'a self, series: u32, shown: &mut Vec<Shows<'a>>) {
        self.read.shows(series, &self.places, shown);
    }

    /// The same with values.
    pub fn into_relation(self) -> Relation {
        let rows = self.read.values(&self.places);
        Relation { columns: self.columns, rows }
    }
}

#[cfg(test)]
mod tests {
    use model::ValueType;
    use query::{FrameColumn, TableSchema, Values};

    use super::*;
    use crate::value::SqlType;

    fn frame(host: &str, columns: &[(&str, Values)]) -> Frame {
        let column = |(name, values): &(&str, Values)| FrameColumn {
            name: (*name).into(),
            values: values.clone(),
            present: None,
        };
        let labels = Labels::from_pairs([("host", host)]).unwrap_or_else(|_| Labels::empty());
        Frame { labels, timestamps_ns: vec![1, 3], columns: columns.iter().map(column).collect() }
    }

    /// A tag and a field that a series does not have are null; rows of one time keep the order of their series.
    #[test]
    fn values_are_those_of_the_frames() {
        let schema = TableSchema {
            name: "m".to_owned(),
            tags: vec!["host".to_owned()],
            fields: vec![("a".to_owned(), ValueType::F64), ("b".to_owned(), ValueType::I64)],
        };
        let floats = |of: [f64; 2]| ("a", Values::F64(of.to_vec()));
        let frames =
            vec![frame("", &[("b", Values::I64(vec![7, 8])), floats([0.5, 1.5])]), frame("x", &[floats([2.5, 3.5])])];
        let read = ReadRows::new(frames, &schema);
        let (float, int, time) = (Value::Float, Value::Int, Value::Timestamp);
        let rows = [
            [time(1), Value::Null, float(0.5), int(7), int(0)],
            [time(1), Value::text("x"), float(2.5), Value::Null, int(1)],
            [time(3), Value::Null, float(1.5), int(8), int(0)],
            [time(3), Value::text("x"), float(3.5), Value::Null, int(1)],
        ];
        let columns = ["b", "time"].map(|name| Column::new(name, SqlType::Int)).to_vec();
        let mut shown = TableRows::new(columns, vec![3, 0], read);
        assert_eq!(shown.read.values(&[0, 1, 2, 3, 4]), rows);
        shown.cut(2, 9);
        assert_eq!(shown.into_relation().rows, [[int(8), time(3)], [Value::Null, time(3)]]);
    }
}
