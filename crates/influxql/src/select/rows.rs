//! Rows of a series of an answer: made of values, or as they were read.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use query::{ResultRows, RowColumn, RowShape, RowValue, Value};

use crate::resolve::selection::{Code, Reference, Resolved};
use crate::syntax::ast::{Cast, Fill};
use crate::value::{DataType, InfluxValue};

/// Rows of a series of an answer.
#[derive(Debug)]
pub enum Rows {
    /// Each a value for each column.
    Values(Vec<Vec<Value>>),
    /// As they were read: values are made of them only where something is computed.
    Read(ResultRows),
}

impl Default for Rows {
    fn default() -> Self {
        Self::Values(Vec::new())
    }
}

impl Rows {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Values(rows) => rows.len(),
            Self::Read(rows) => rows.order().len(),
        }
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A value for each column of each row.
    pub fn values(&self) -> Cow<'_, [Vec<Value>]> {
        match self {
            Self::Values(rows) => Cow::Borrowed(rows),
            Self::Read(rows) => Cow::Owned(rows.values(|value| match value {
                RowValue::Time(time_ns) => Value::Timestamp(time_ns),
                RowValue::Cell(cell) => Value::from(cell).without_nan(),
            })),
        }
    }
}

/// Rows of one series of an answer.
#[derive(Debug)]
pub(crate) struct SeriesRows {
    pub(crate) name: Arc<str>,
    /// Values of the tags by which rows are grouped.
    pub(crate) tags: Vec<String>,
    pub(crate) rows: Rows,
}

/// When a row of an answer is.
pub(crate) fn time_of(row: &[Value]) -> i64 {
    if let Some(Value::Timestamp(time_ns)) = row.first() { *time_ns } else { 0 }
}

/// The shape of rows that show their time and some fields and tags. A field that a series does not have may be a tag of it.
pub(crate) fn shape_of(shown: &[Reference]) -> RowShape {
    let (mut fields, mut tags) = (Names::default(), Names::default());
    let mut columns = vec![RowColumn::Time];
    for Reference { name, cast, data_type } in shown {
        let column = match (cast, data_type) {
            (Some(Cast::Tag), _) | (None, DataType::Tag) => RowColumn::Tag(tags.index_of(name)),
            (Some(Cast::Field), _) => RowColumn::Field(fields.index_of(name)),
            _ => RowColumn::FieldOrTag(fields.index_of(name), tags.index_of(name)),
        };
        columns.push(column);
    }
    RowShape { columns, fields: fields.names, tags: tags.names }
}

/// Different names, numbered in the order in which they came.
#[derive(Default)]
struct Names<'a> {
    names: Vec<String>,
    indexes: HashMap<&'a str, usize>,
}

impl<'a> Names<'a> {
    /// The index of a name, at the end if it is new.
    fn index_of(&mut self, name: &'a str) -> usize {
        *self.indexes.entry(name).or_insert_with(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        })
    }
}

/// The fields and tags that the columns show, if all are shown as they are: nothing is computed and no type is changed.
pub(crate) fn shown_references(selection: &Resolved) -> Option<Vec<Reference>> {
    let reference = |code: &Code| match code {
        Code::Reference(index) => {
            selection.references.get(*index).filter(|reference| !reference.changes_type()).cloned()
        }
        _ => None,
    };
    if selection.calls.is_empty() && !matches!(selection.fill, Fill::Integer(_) | Fill::Number(_)) {
        selection.columns.iter().map(|column| reference(&column.code)).collect()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use model::{Labels, Values};
    use query::{Column, Frame, FrameColumn, RowRef};

    use super::*;

    fn frame(host: &str, times: &[i64], columns: &[(&str, &[f64])]) -> Frame {
        let column = |(name, values): &(&str, &[f64])| FrameColumn {
            name: (*name).into(),
            cells: Column::of_values(Values::F64(values.to_vec())),
        };
        let labels = Labels::from_pairs([("host", host)]).unwrap();
        Frame::new(labels, times.to_vec(), columns.iter().map(column).collect())
    }

    /// Columns stand in another order in each series, one is missing, and what is no number is null.
    #[test]
    fn values_are_those_of_the_columns() {
        let reference = |name: &str| Reference { name: name.to_owned(), cast: None, data_type: DataType::Float };
        let frames = vec![
            frame("a", &[1, 2], &[("x", &[0.5, f64::NAN]), ("y", &[1.5, 2.5])]),
            frame("b", &[1], &[("y", &[3.5])]),
        ];
        let order = [(1, 1, 0), (1, 0, 0), (2, 0, 1)];
        let order = order.map(|(time_ns, series, row)| RowRef { time_ns, series, row }).to_vec();
        let read = ResultRows::in_given_order(frames, order, shape_of(&["y", "host", "x", "none"].map(reference)));
        let (time, float, text) = (Value::Timestamp, Value::Float, |text: &str| Value::from(text));
        let expected = vec![
            vec![time(1), float(3.5), text("b"), Value::Null, Value::Null],
            vec![time(1), float(1.5), text("a"), float(0.5), Value::Null],
            vec![time(2), float(2.5), text("a"), Value::Null, Value::Null],
        ];
        assert_eq!(Rows::Read(read).values(), expected);
    }
}
