//! Rows of several series as they were read, and the order in which they are shown. Languages make values of them only where something is
//! computed; an answer is written without any.

use std::cmp::Ordering;
use std::collections::HashMap;

use model::{Cell, Column, Folds, Labels, Summary};

use crate::{ColumnFinder, Frame, FrameColumn, LastRow, LastRows, RowLimit, SeriesLabels};

/// A row: its time, its series, and its index in that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowRef {
    /// Nanoseconds since the Unix epoch.
    pub time_ns: i64,
    /// The number of its series.
    pub series: u32,
    /// Its place among the rows of the series.
    pub row: u32,
}

/// The source of a column of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowColumn {
    /// Their times.
    Time,
    /// A tag of their series, by its place among the names.
    Tag(usize),
    /// A field, by its place among the names.
    Field(usize),
    /// A field, or the tag at a place where a series does not have the field.
    FieldOrTag(usize, usize),
    /// The number of their series.
    Series,
}

/// Names of tags and fields, and the columns that show them.
#[derive(Debug, Default)]
pub struct RowShape {
    /// Names of tags.
    pub tags: Vec<String>,
    /// Names of fields.
    pub fields: Vec<String>,
    /// The columns of the answer.
    pub columns: Vec<RowColumn>,
}

/// The source of a column in the rows of one series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SeriesColumn<'a> {
    /// Their times.
    Time,
    /// A value that all rows of the series share.
    Same(Cell<'a>),
    /// A field.
    Field(&'a Column),
}

/// A value of a shown row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RowValue<'a> {
    /// A time, in nanoseconds since the Unix epoch.
    Time(i64),
    /// Anything else.
    Cell(Cell<'a>),
}

/// A key that rows are ordered by.
#[derive(Debug)]
pub enum RowOrder {
    /// Their times.
    Time {
        /// Latest first.
        is_descending: bool,
    },
    /// A value that all rows of a series share: the rank of each series by it.
    Rank(Vec<u32>),
}

/// Rows of several series as they were read.
#[derive(Debug, Default)]
pub struct ResultRows {
    labels: SeriesLabels,
    /// Where the rows of each series are; others may have theirs there, too.
    frame_of: Vec<u32>,
    frames: Vec<RowsFrame>,
    order: Vec<RowRef>,
    shape: RowShape,
    /// True if rows are in order of time, those of one time in that of their series.
    is_by_time: bool,
}

/// Columns of some series.
#[derive(Debug)]
struct RowsFrame {
    columns: Vec<FrameColumn>,
    /// Of each field its place among the columns; `None` if they are all, in the order of the names.
    fields: Option<Vec<Option<usize>>>,
    /// The times of rows that stand for folded ones.
    row_folds: Folds,
}

impl RowsFrame {
    fn new(columns: Vec<FrameColumn>, row_folds: Folds, names: &[String]) -> Self {
        if columns.iter().map(|column| &*column.name).eq(names.iter().map(String::as_str)) {
            return Self { columns, fields: None, row_folds };
        }
        let mut finder = ColumnFinder::new(&columns);
        let fields = names.iter().map(|name| finder.find(name)).collect();
        Self { columns, fields: Some(fields), row_folds }
    }

    /// A field by its place among the names; `None` if the series do not have it.
    fn field(&self, place: usize) -> Option<&Column> {
        let place = match &self.fields {
            Some(places) => (*places.get(place)?)?,
            None => place,
        };
        self.columns.get(place).map(|column| &column.cells)
    }
}

/// The values of tags, given their names; those that are empty are none.
fn tags_of<'a>(labels: &'a Labels, names: &[String]) -> Vec<Option<&'a str>> {
    let mut values = vec![None; names.len()];
    let mut next = 0;
    for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
        let is_it = |known: &String| known == name;
        let after = names.get(next..).unwrap_or_default().iter().position(is_it).map(|place| next + place);
        let Some(place) = after.or_else(|| names.iter().position(is_it)) else { continue };
        if let Some(found) = values.get_mut(place) {
            *found = Some(value);
        }
        next = place + 1;
    }
    values
}

impl ResultRows {
    /// The rows of frames, frame by frame.
    pub fn new(frames: Vec<Frame>, shape: RowShape) -> Self {
        let mut order = Vec::with_capacity(frames.iter().map(Frame::rows).sum());
        for (series, frame) in (0..).zip(&frames) {
            let rows = (0..).zip(&frame.timestamps_ns);
            order.extend(rows.map(|(row, time_ns)| RowRef { time_ns: *time_ns, series, row }));
        }
        Self::in_given_order(frames, order, shape)
    }

    /// Some rows of frames in an order.
    pub fn in_given_order(frames: Vec<Frame>, order: Vec<RowRef>, shape: RowShape) -> Self {
        let (mut labels, mut read) = (SeriesLabels::default(), Vec::with_capacity(frames.len()));
        let frame_of = (0..frames.len() as u32).collect();
        for frame in frames {
            labels.push(frame.labels);
            read.push(RowsFrame::new(frame.columns, frame.row_folds, &shape.fields));
        }
        Self { labels, frame_of, frames: read, order, shape, is_by_time: false }
    }

    /// A row of each series.
    pub fn of_last(last: LastRows, shape: RowShape) -> Self {
        let LastRows { labels, rows, frames, .. } = last;
        let place = |(series, row): (u32, &LastRow)| RowRef { time_ns: row.time_ns, series, row: row.row };
        let order = (0..).zip(&rows).map(place).collect();
        let frame_of = rows.iter().map(|row| row.frame).collect();
        let frames = frames.into_iter();
        let frames = frames.map(|columns| RowsFrame::new(columns, Folds::NONE, &shape.fields)).collect();
        Self { labels, frame_of, frames, order, shape, is_by_time: false }
    }

    /// Puts rows that stand series by series, each in order of time, in the order of time; those of one time in that of the series.
    #[must_use]
    pub fn in_time_order(mut self) -> Self {
        match interleaved(&self.order) {
            Some(order) => self.order = order,
            None => self.order.sort_by_key(|place| place.time_ns),
        }
        self.is_by_time = true;
        self
    }

    /// Sorts the rows; those that are equal stay as they were.
    pub fn sort(&mut self, keys: &[RowOrder]) {
        let follows_series = |key: &RowOrder| matches!(key, RowOrder::Rank(ranks) if ranks.is_sorted());
        let stays = match keys {
            [] => true,
            [RowOrder::Time { is_descending: false }, rest @ ..] => self.is_by_time && rest.iter().all(follows_series),
            _ => false,
        };
        if stays {
            return;
        }
        self.is_by_time = false;
        let rank = |ranks: &[u32], place: &RowRef| ranks.get(place.series as usize).copied();
        self.order.sort_by(|a, b| {
            let orders = keys.iter().map(|key| match key {
                RowOrder::Time { is_descending: false } => a.time_ns.cmp(&b.time_ns),
                RowOrder::Time { is_descending: true } => b.time_ns.cmp(&a.time_ns),
                RowOrder::Rank(ranks) => rank(ranks, a).cmp(&rank(ranks, b)),
            });
            orders.into_iter().find(|order| *order != Ordering::Equal).unwrap_or(Ordering::Equal)
        });
    }

    /// Shows other columns: those at these places.
    pub fn project(&mut self, places: &[usize]) {
        // A column that there is not is a field that no series has.
        let column = |place: &usize| self.shape.columns.get(*place).copied().unwrap_or(RowColumn::Field(usize::MAX));
        self.shape.columns = places.iter().map(column).collect();
    }

    /// Leaves the last row for each value of columns that are tags.
    pub fn keep_newest(&mut self, columns: &[usize]) {
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
        let is_newest = |place: &RowRef| {
            let seen = of_series.get(place.series as usize).and_then(|number| is_seen.get_mut(*number));
            seen.is_some_and(|seen| !std::mem::replace(seen, true))
        };
        let mut kept: Vec<RowRef> = self.order.iter().rev().copied().filter(is_newest).collect();
        kept.reverse();
        self.order = kept;
    }

    /// Leaves the rows that a limit leaves.
    pub fn limit(&mut self, limit: RowLimit) {
        limit.apply(&mut self.order);
    }

    /// The rows, in order.
    pub fn order(&self) -> &[RowRef] {
        &self.order
    }

    /// How many series the rows are of.
    pub fn series(&self) -> usize {
        self.labels.len()
    }

    /// The labels of the series.
    pub const fn labels(&self) -> &SeriesLabels {
        &self.labels
    }

    /// The sources of the columns.
    pub fn columns(&self) -> &[RowColumn] {
        &self.shape.columns
    }

    /// In which frame the rows of a series are.
    pub fn frame_of(&self, series: u32) -> usize {
        self.frame_of.get(series as usize).map_or(usize::MAX, |frame| *frame as usize)
    }

    /// In how many frames rows are.
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// A field of the rows of a frame, by its place among the names; `None` if its series do not have it.
    pub fn field(&self, frame: usize, field: usize) -> Option<&Column> {
        self.frames.get(frame)?.field(field)
    }

    /// Returns whether some rows or values stand for folded ones.
    pub fn has_folds(&self) -> bool {
        let has_folds = |column: &FrameColumn| !column.cells.folds.is_empty();
        self.frames.iter().any(|frame| !frame.row_folds.is_empty() || frame.columns.iter().any(has_folds))
    }

    /// What a row's value of a column stands for, if that is more than itself; for the time, the times of rows.
    pub fn fold(&self, row: usize, column: usize) -> Option<&Summary> {
        let place = self.order.get(row)?;
        let frame = self.frames.get(self.frame_of(place.series))?;
        match self.shape.columns.get(column)? {
            RowColumn::Time => frame.row_folds.get(place.row as usize),
            RowColumn::Field(field) | RowColumn::FieldOrTag(field, _) => {
                frame.field(*field)?.folds.get(place.row as usize)
            }
            RowColumn::Tag(_) | RowColumn::Series => None,
        }
    }

    /// The tag that a column shows.
    pub fn tag_name(&self, column: usize) -> Option<&str> {
        let RowColumn::Tag(tag) = self.shape.columns.get(column)? else { return None };
        self.shape.tags.get(*tag).map(String::as_str)
    }

    /// The value of the tag that a column shows; `None` if the series has none.
    pub fn tag(&self, series: u32, column: usize) -> Option<&str> {
        self.labels.get(series)?.get(self.tag_name(column)?).filter(|value| !value.is_empty())
    }

    /// The source of each column in the rows of a series.
    pub fn series_columns(&self, series: u32) -> Vec<SeriesColumn<'_>> {
        let tags = self.labels.get(series).map(|labels| tags_of(labels, &self.shape.tags)).unwrap_or_default();
        let frame = self.frame_of(series);
        let tag = |tag: usize| tags.get(tag).copied().flatten().map_or(Cell::Null, Cell::Text);
        let column = |column: &RowColumn| match *column {
            RowColumn::Time => SeriesColumn::Time,
            RowColumn::Tag(place) => SeriesColumn::Same(tag(place)),
            RowColumn::Series => SeriesColumn::Same(Cell::I64(i64::from(series))),
            RowColumn::Field(field) => {
                self.field(frame, field).map_or(SeriesColumn::Same(Cell::Null), SeriesColumn::Field)
            }
            RowColumn::FieldOrTag(field, place) => {
                self.field(frame, field).map_or_else(|| SeriesColumn::Same(tag(place)), SeriesColumn::Field)
            }
        };
        self.shape.columns.iter().map(column).collect()
    }

    /// A value for each column of each row, as a language has them.
    pub fn values<V>(&self, value: impl Fn(RowValue<'_>) -> V) -> Vec<Vec<V>> {
        let columns: Vec<Vec<SeriesColumn<'_>>> =
            (0..).take(self.labels.len()).map(|series| self.series_columns(series)).collect();
        let row = |place: &RowRef| {
            let of_series = columns.get(place.series as usize).map(Vec::as_slice).unwrap_or_default();
            of_series.iter().map(|column| value(column.value(place))).collect()
        };
        self.order.iter().map(row).collect()
    }
}

impl<'a> SeriesColumn<'a> {
    /// Its value in a row.
    pub fn value(&self, row: &RowRef) -> RowValue<'a> {
        match self {
            Self::Time => RowValue::Time(row.time_ns),
            Self::Same(cell) => RowValue::Cell(*cell),
            Self::Field(field) => RowValue::Cell(field.cell(row.row as usize)),
        }
    }
}

/// Rows that stand series by series in the order of time, if all series have times that the one with most rows has, as bins mostly do: these are
/// counted instead of being sorted.
fn interleaved(rows: &[RowRef]) -> Option<Vec<RowRef>> {
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
    let mut ordered = vec![RowRef { time_ns: 0, series: 0, row: 0 }; rows.len()];
    for (row, time) in rows.iter().zip(times) {
        let at = starts.get_mut(time)?;
        *ordered.get_mut(*at)? = *row;
        *at += 1;
    }
    Some(ordered)
}
