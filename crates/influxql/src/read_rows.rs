//! Rows of a series of an answer: made of values, or as they were read.

use std::borrow::Cow;
use std::sync::Arc;

use query::{RowPlace, Shows};

use crate::resolve::{Code, Reference, Resolved};
use crate::scan::{Found, Input};
use crate::value::Value;

/// Rows of a series of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Rows {
    /// Each a value for each column.
    Values(Vec<Vec<Value>>),
    /// As they were read.
    Read(ReadRows),
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
            Self::Read(rows) => rows.order.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A value for each column of each row.
    pub fn values(&self) -> Cow<'_, [Vec<Value>]> {
        match self {
            Self::Values(rows) => Cow::Borrowed(rows),
            Self::Read(rows) => Cow::Owned(rows.values()),
        }
    }
}

/// Rows as they were read, and the order in which they are shown. Values are made of them only where something is computed.
#[derive(Debug, Clone, PartialEq)]
pub struct ReadRows {
    pub(crate) inputs: Vec<Input>,
    /// What the columns behind the time show.
    pub(crate) shown: Arc<[Reference]>,
    pub(crate) order: Vec<RowPlace>,
}

impl ReadRows {
    /// The rows, in order.
    pub fn order(&self) -> &[RowPlace] {
        &self.order
    }

    /// How many series were read.
    pub fn series(&self) -> usize {
        self.inputs.len()
    }

    /// What each column shows of a series; what is the same in all rows is a tag, or nothing.
    pub fn shows(&self, series: u32) -> impl Iterator<Item = Shows<'_, Option<&str>>> {
        let input = self.inputs.get(series as usize);
        let shows = input.into_iter().flat_map(|input| {
            input.find_all(&self.shown).into_iter().map(move |found| match found {
                Found::Column(column) => input.columns.get(column).map_or(Shows::Same(None), Shows::Field),
                Found::Tag(tag) => Shows::Same(Some(tag)),
                Found::Nothing => Shows::Same(None),
            })
        });
        std::iter::once(Shows::Time).chain(shows)
    }

    fn values(&self) -> Vec<Vec<Value>> {
        let all: Vec<Vec<Shows<'_, Option<&str>>>> =
            (0..).take(self.inputs.len()).map(|series| self.shows(series).collect()).collect();
        let row = |place: &RowPlace| {
            let shows = all.get(place.series as usize).map(Vec::as_slice).unwrap_or_default();
            let value = |shows: &Shows<'_, Option<&str>>| match shows {
                Shows::Time => Value::Time(place.time_ns),
                Shows::Same(tag) => tag.map_or(Value::Null, Value::from),
                Shows::Field(field) => Value::from(field.cell(place.row as usize)).without_nan(),
            };
            shows.iter().map(value).collect()
        };
        self.order.iter().map(row).collect()
    }
}

/// What the columns of a selection show, if all are fields and tags as they are: nothing is computed and no type is changed.
pub(crate) fn shown(of: &Resolved) -> Option<Arc<[Reference]>> {
    let reference = |code: &Code| match code {
        Code::Reference(place) => of.references.get(*place).filter(|reference| !reference.changes_type()).cloned(),
        _ => None,
    };
    if of.calls.is_empty() { of.columns.iter().map(|column| reference(&column.code)).collect() } else { None }
}

#[cfg(test)]
mod tests {
    use model::{Labels, Values};
    use query::FrameColumn;

    use super::*;
    use crate::value::DataType;

    fn input(host: &str, times: &[i64], columns: &[(&str, &[f64])]) -> Input {
        let column = |(name, values): &(&str, &[f64])| FrameColumn {
            name: (*name).into(),
            values: Values::F64(values.to_vec()),
            present: None,
        };
        Input {
            name: "m".into(),
            tags: Labels::from_pairs([("host", host)]).unwrap(),
            times: times.to_vec(),
            columns: columns.iter().map(column).collect(),
            every_row: false,
            in_time_order: true,
        }
    }

    /// Columns stand in another order in each series, one is missing, and what is no number is null.
    #[test]
    fn values_are_those_of_the_columns() {
        let reference = |name: &str| Reference { name: name.to_owned(), cast: None, data_type: DataType::Float };
        let read = ReadRows {
            inputs: vec![
                input("a", &[1, 2], &[("x", &[0.5, f64::NAN]), ("y", &[1.5, 2.5])]),
                input("b", &[1], &[("y", &[3.5])]),
            ],
            shown: ["y", "host", "x", "none"].map(reference).into(),
            order: [(1, 1, 0), (1, 0, 0), (2, 0, 1)]
                .map(|(time_ns, series, row)| RowPlace { time_ns, series, row })
                .to_vec(),
        };
        let (time, float, text) = (Value::Time, Value::Float, |text: &str| Value::from(text));
        let expected = vec![
            vec![time(1), float(3.5), text("b"), Value::Null, Value::Null],
            vec![time(1), float(1.5), text("a"), float(0.5), Value::Null],
            vec![time(2), float(2.5), text("a"), Value::Null, Value::Null],
        ];
        assert_eq!(Rows::Read(read).values(), expected);
    }
}
