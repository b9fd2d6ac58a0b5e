//! Rows of a table as they were read: the frames of series, and the order in which their rows are shown. Values are made of them only where
//! something is computed; to write an answer down nobody needs any.

use std::cmp::Ordering;
use std::collections::HashMap;

use model::Labels;
use query::{Frame, FrameColumn, LastRow, LastRows, RowPlace, SeriesLabels};

use crate::order::Order;
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

/// Rows of a table: its time, tags and fields, and the hidden number of their series. Or groups of them: the keys, and what was kept.
#[derive(Debug, Default)]
pub(crate) struct ReadRows {
    labels: SeriesLabels,
    /// Where the rows of each series are; others may have theirs there, too.
    frame_of: Vec<u32>,
    frames: Vec<ReadFrame>,
    pub(crate) order: Vec<RowPlace>,
    /// Names of tags.
    tags: Vec<String>,
    /// What the values of a row are.
    columns: Vec<ReadColumn>,
    /// Whether rows are in order of time, those of one time in that of their series.
    is_by_time: bool,
}

/// What a value of a row is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadColumn {
    Time,
    /// A tag, by its place among the names.
    Tag(usize),
    /// A field, by its place among those of the table, or among what is kept of groups.
    Field(usize),
    /// The hidden number of the series.
    Number,
}

/// What rows are ordered by.
enum OrderKey {
    Time {
        is_descending: bool,
    },
    /// Something that is the same in all rows of a series: the place of each among the others.
    Rank(Vec<u32>),
}

/// Columns of some series.
#[derive(Debug)]
struct ReadFrame {
    columns: Vec<FrameColumn>,
    /// Of each field of the table its place among the columns; `None` if they are all, in the table's order.
    fields: Option<Vec<Option<usize>>>,
}

impl ReadFrame {
    fn new<'n>(columns: Vec<FrameColumn>, mut names: impl Iterator<Item = &'n str> + Clone) -> Self {
        let in_order = columns.iter().map(|column| &*column.name);
        if in_order.eq(names.clone()) {
            return Self { columns, fields: None };
        }
        let mut expected = 0;
        let place = |name: &str| {
            let is_it = |column: &FrameColumn| *column.name == *name;
            // Mostly they stand in the table's order.
            let next = if columns.get(expected).is_some_and(is_it) { Some(expected) } else { None };
            let found = next.or_else(|| columns.iter().position(is_it));
            expected = found.map_or(expected, |place| place + 1);
            found
        };
        let fields = names.by_ref().map(place).collect();
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
        let fields = schema.fields.iter().map(|(name, _)| name.as_str());
        Self::of_frames(frames, schema.tags.clone(), &fields, columns_of(schema)).in_order()
    }

    /// Rows of groups, a frame for each that differ in time alone: in the order of time if it is a key, else in that of the frames.
    pub(crate) fn of_groups(frames: Vec<Frame>, tags: Vec<String>, kept: &[String], columns: Vec<ReadColumn>) -> Self {
        let has_time = columns.contains(&ReadColumn::Time);
        let read = Self::of_frames(frames, tags, &kept.iter().map(String::as_str), columns);
        if has_time { read.in_order() } else { read }
    }

    fn of_frames<'n>(
        frames: Vec<Frame>,
        tags: Vec<String>,
        fields: &(impl Iterator<Item = &'n str> + Clone),
        columns: Vec<ReadColumn>,
    ) -> Self {
        let mut order = Vec::with_capacity(frames.iter().map(Frame::rows).sum());
        let (mut labels, mut read) = (SeriesLabels::default(), Vec::with_capacity(frames.len()));
        let frame_of = (0..frames.len() as u32).collect();
        for (number, Frame { labels: of_frame, timestamps_ns, columns }) in (0..).zip(frames) {
            let places = (0..).zip(timestamps_ns);
            order.extend(places.map(|(row, time_ns)| RowPlace { time_ns, series: number, row }));
            labels.push(of_frame);
            read.push(ReadFrame::new(columns, fields.clone()));
        }
        Self { labels, frame_of, frames: read, order, tags, columns, is_by_time: false }
    }

    /// A row of each series, in the same order.
    pub(crate) fn of_last(last: LastRows, schema: &query::TableSchema) -> Self {
        let LastRows { labels, rows, frames, .. } = last;
        let place = |(series, row): (u32, &LastRow)| RowPlace { time_ns: row.time_ns, series, row: row.row };
        let order = (0..).zip(&rows).map(place).collect();
        let frame_of = rows.iter().map(|row| row.frame).collect();
        let fields = || schema.fields.iter().map(|(name, _)| name.as_str());
        let frames = frames.into_iter().map(|columns| ReadFrame::new(columns, fields())).collect();
        let (tags, columns) = (schema.tags.clone(), columns_of(schema));
        Self { labels, frame_of, frames, order, tags, columns, is_by_time: false }.in_order()
    }

    /// Puts rows that stand series by series, each in order of time, in the order of time.
    fn in_order(mut self) -> Self {
        match interleaved(&self.order) {
            Some(order) => self.order = order,
            None => self.order.sort_by_key(|place| place.time_ns),
        }
        self.is_by_time = true;
        self
    }

    /// Puts the rows in an order, those that are equal as they were; whether it is one of times and tags alone, otherwise they stay as they are.
    pub(crate) fn put_in_order(&mut self, by: &[Order]) -> bool {
        let Some(keys) = by.iter().map(|by| self.order_key(by)).collect::<Option<Vec<OrderKey>>>() else {
            return false;
        };
        let follows_series = |key: &OrderKey| matches!(key, OrderKey::Rank(ranks) if ranks.is_sorted());
        let stays = match keys.as_slice() {
            [] => true,
            [OrderKey::Time { is_descending: false }, rest @ ..] => self.is_by_time && rest.iter().all(follows_series),
            _ => false,
        };
        if stays {
            return true;
        }
        self.is_by_time = false;
        let rank = |ranks: &[u32], place: &RowPlace| ranks.get(place.series as usize).copied();
        let compare = |a: &RowPlace, b: &RowPlace| {
            let orders = keys.iter().map(|key| match key {
                OrderKey::Time { is_descending: false } => a.time_ns.cmp(&b.time_ns),
                OrderKey::Time { is_descending: true } => b.time_ns.cmp(&a.time_ns),
                OrderKey::Rank(ranks) => rank(ranks, a).cmp(&rank(ranks, b)),
            });
            orders.into_iter().find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal)
        };
        self.order.sort_by(compare);
        true
    }

    fn order_key(&self, by: &Order) -> Option<OrderKey> {
        let column = by.of.column()?;
        let value = |series: u32| match self.columns.get(column)? {
            ReadColumn::Time | ReadColumn::Field(_) => None,
            ReadColumn::Tag(_) => Some(self.tag(series, column).map_or(Value::Null, Value::text)),
            ReadColumn::Number => Some(Value::Int(i64::from(series))),
        };
        if self.columns.get(column)? == &ReadColumn::Time {
            return Some(OrderKey::Time { is_descending: by.is_descending });
        }
        let values = (0..).take(self.labels.len()).map(value).collect::<Option<Vec<Value>>>()?;
        let mut sorted: Vec<(&Value, usize)> = values.iter().zip(0..).collect();
        sorted.sort_by(|(a, _), (b, _)| by.compare(a, b));
        let (mut ranks, mut rank) = (vec![0; values.len()], 0);
        for (place, (value, number)) in sorted.iter().enumerate() {
            let before = place.checked_sub(1).and_then(|before| sorted.get(before));
            rank += u32::from(before.is_some_and(|(before, _)| by.compare(before, value) != Ordering::Equal));
            if let Some(of_series) = ranks.get_mut(*number) {
                *of_series = rank;
            }
        }
        Some(OrderKey::Rank(ranks))
    }

    /// Values of a row.
    pub(crate) const fn width(&self) -> usize {
        self.columns.len()
    }

    /// Values of a row of a table.
    pub(crate) const fn width_of(schema: &query::TableSchema) -> usize {
        schema.tags.len() + schema.fields.len() + 2
    }

    /// What a column shows, by its place in a row.
    fn part(&self, column: usize) -> Part<'_> {
        let part = match self.columns.get(column) {
            None => None,
            Some(ReadColumn::Time) => Some(Part::Time),
            Some(ReadColumn::Tag(_)) => self.tag_name(column).map(Part::Tag),
            Some(ReadColumn::Field(field)) => Some(Part::Field(*field)),
            Some(ReadColumn::Number) => Some(Part::Number),
        };
        // A field that no series has.
        part.unwrap_or(Part::Field(usize::MAX))
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
        let of_column = |column: &usize| match self.columns.get(*column) {
            None => Shows::Same(Same::Null),
            Some(ReadColumn::Time) => Shows::Time,
            Some(ReadColumn::Tag(tag)) => Shows::Same(tags.get(*tag).copied().flatten().map_or(Same::Null, Same::Tag)),
            Some(ReadColumn::Number) => Shows::Same(Same::Number(i64::from(series))),
            Some(ReadColumn::Field(field)) => self.field(series, *field).map_or(Shows::Same(Same::Null), Shows::Field),
        };
        shown.extend(columns.iter().map(of_column));
    }

    /// The value of a tag by its place in a row; `None` if the series has none.
    fn tag(&self, series: u32, column: usize) -> Option<&str> {
        self.labels.get(series)?.get(self.tag_name(column)?).filter(|value| !value.is_empty())
    }

    /// The tag that a column shows.
    fn tag_name(&self, column: usize) -> Option<&str> {
        let ReadColumn::Tag(tag) = self.columns.get(column)? else { return None };
        self.tags.get(*tag).map(String::as_str)
    }

    /// Leaves the last row for each value of columns that are tags.
    pub(crate) fn keep_newest(&mut self, columns: &[usize]) {
        let tags = columns.iter().filter_map(|column| self.tag_name(*column));
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
        let all: Vec<usize> = (0..self.width()).collect();
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

/// The values of a row of a table.
fn columns_of(schema: &query::TableSchema) -> Vec<ReadColumn> {
    let (tags, fields) = ((0..schema.tags.len()).map(ReadColumn::Tag), (0..schema.fields.len()).map(ReadColumn::Field));
    let mut columns = Vec::with_capacity(ReadRows::width_of(schema));
    columns.push(ReadColumn::Time);
    columns.extend(tags.chain(fields));
    columns.push(ReadColumn::Number);
    columns
}

/// Rows that stand series by series in the order of time, if all series have times that the one with most rows has, as bins mostly do: these are
/// counted instead of being sorted.
fn interleaved(rows: &[RowPlace]) -> Option<Vec<RowPlace>> {
    let of_series = || rows.chunk_by(|a, b| a.series == b.series);
    let longest = of_series().max_by_key(|rows| rows.len())?;
    if !longest.is_sorted_by(|a, b| a.time_ns < b.time_ns) {
        return None;
    }
    // How many rows each time has, where they start, where they go.
    let mut starts = vec![0usize; longest.len()];
    let mut times = Vec::with_capacity(rows.len());
    for of_series in of_series() {
        let mut place = 0;
        for row in of_series {
            if longest.get(place).is_none_or(|known| known.time_ns != row.time_ns) {
                place += longest.get(place..)?.partition_point(|known| known.time_ns < row.time_ns);
                longest.get(place).filter(|known| known.time_ns == row.time_ns)?;
            }
            *starts.get_mut(place)? += 1;
            times.push(place);
            place += 1;
        }
    }
    let mut sum = 0;
    for start in &mut starts {
        sum += std::mem::replace(start, sum);
    }
    let mut ordered = vec![RowPlace { time_ns: 0, series: 0, row: 0 }; rows.len()];
    for (row, time) in rows.iter().zip(times) {
        let at = starts.get_mut(time)?;
        *ordered.get_mut(*at)? = *row;
        *at += 1;
    }
    Some(ordered)
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
    use crate::expression::{Bound, Environment};
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

    /// Rows of many series in any order of times and tags are those whose values are sorted.
    #[test]
    fn rows_are_put_in_order_as_values_are() {
        let schema = TableSchema {
            name: "m".to_owned(),
            tags: vec!["host".to_owned()],
            fields: vec![("a".to_owned(), ValueType::I64)],
        };
        let mut chance = 7u64;
        let mut next = |below: u64| {
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) % below
        };
        let options = |is_descending: bool, nulls_first: Option<bool>| sqlparser::ast::OrderByOptions {
            sort: is_descending.then_some(sqlparser::ast::OrderBySort::Desc),
            nulls_first,
        };
        let by = |place: usize, is_descending: bool| Order::new(Bound::Column(place), &options(is_descending, None));
        let environment =
            Environment { now_ns: 0, time_zone: jiff::tz::TimeZone::UTC, database: String::new(), user: String::new() };
        for round in 0..60 {
            // Of all series at the same times, at some of them, or anywhere.
            let sparse = round % 3;
            let frames: Vec<Frame> = (0..=next(6))
                .map(|number| {
                    let mut times: Vec<i64> = match sparse {
                        0 => (0..20).collect(),
                        1 => (0..20).filter(|_| number == 0 || next(2) == 0).collect(),
                        _ => (0..=next(20)).map(|_| next(1000) as i64).collect(),
                    };
                    times.sort_unstable();
                    times.dedup();
                    let host = ["b", "", "a", "b"][next(4) as usize];
                    let values = Values::I64(times.iter().map(|time| time * 10 + number as i64).collect());
                    let mut of = frame(host, &[("a", values)]);
                    of.timestamps_ns = times;
                    of
                })
                .collect();
            let orders: [Vec<Order>; 7] = [
                vec![],
                vec![by(0, false)],
                vec![by(0, true)],
                vec![by(0, false), by(1, false)],
                vec![by(1, true), by(0, false)],
                vec![by(0, false), by(3, true)],
                vec![by(1, false), by(3, false), by(0, true)],
            ];
            for order in &orders {
                let mut read = ReadRows::new(frames.clone(), &schema);
                let as_read = ReadRows::new(frames.clone(), &schema).into_rows();
                let expected = crate::order::sort(as_read, order, &environment, &|_| Ok(())).unwrap();
                assert!(read.put_in_order(order));
                assert_eq!(read.into_rows(), expected, "{order:?}");
            }
            assert!(!ReadRows::new(frames, &schema).put_in_order(&[by(0, false), by(2, false)]), "by a field");
        }
    }
}
