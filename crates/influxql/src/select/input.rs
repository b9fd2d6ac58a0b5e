//! Rows that a selection reads, series by series.

use std::sync::Arc;

use model::Labels;
use query::{ColumnFinder, Frame, FrameColumn, Summary, Value};

use crate::resolve::selection::{Code, Reference};
use crate::syntax::ast::Cast;
use crate::value::{DataType, InfluxValue};

/// Rows of one series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Input {
    /// The measurement.
    pub(crate) name: Arc<str>,
    pub(crate) tags: Labels,
    /// Ascending, but for those of a subquery that says otherwise.
    pub(crate) times: Vec<i64>,
    pub(crate) columns: Vec<FrameColumn>,
    /// True if rows count that have no field.
    pub(crate) every_row: bool,
    /// True if rows are put in order of time with those of others.
    pub(crate) in_time_order: bool,
}

/// Series that are one in the answer.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: Arc<str>,
    /// Values of the tags by which rows are grouped.
    pub(crate) tags: Vec<String>,
    pub(crate) inputs: Vec<Input>,
}

/// How an input matches a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReferenceMatch<'a> {
    Column(usize),
    Tag(&'a str),
    Nothing,
}

/// The source of a reference's values in an input.
#[derive(Debug, Clone)]
pub(crate) enum ValueSource {
    Column(usize, Option<DataType>),
    Tag(Value),
    Nothing,
}

impl Input {
    /// Rows of a table that the plan read, put in order of time.
    pub(crate) fn from_frame(name: Arc<str>, frame: Frame) -> Self {
        let mut input = Self {
            name,
            tags: frame.labels,
            times: frame.timestamps_ns,
            columns: frame.columns,
            every_row: false,
            in_time_order: true,
        };
        if !input.times.is_sorted() {
            let mut rows: Vec<usize> = (0..input.times.len()).collect();
            rows.sort_by_key(|row| input.times.get(*row));
            input.retain_rows(&rows);
        }
        input
    }

    /// Where a reference's values are. A tag that is missing is null, in conditions the empty text.
    pub(crate) fn source(&self, reference: &Reference, in_condition: bool) -> ValueSource {
        let column = || self.columns.iter().position(|column| *column.name == *reference.name);
        Self::source_of(self.find(reference, column), reference, in_condition)
    }

    fn source_of(matched: ReferenceMatch<'_>, reference: &Reference, in_condition: bool) -> ValueSource {
        match matched {
            ReferenceMatch::Column(column) => Self::column(column, reference),
            ReferenceMatch::Tag(value) => ValueSource::Tag(Value::from(value)),
            ReferenceMatch::Nothing => {
                let is_tag =
                    in_condition && reference.data_type == DataType::Tag && reference.cast != Some(Cast::Field);
                if is_tag { ValueSource::Tag(Value::from("")) } else { ValueSource::Nothing }
            }
        }
    }

    const fn column(column: usize, reference: &Reference) -> ValueSource {
        ValueSource::Column(column, if reference.changes_type() { Some(reference.data_type) } else { None })
    }

    /// The sources of references that are not in a condition.
    pub(crate) fn sources(&self, references: &[Reference]) -> Vec<ValueSource> {
        let source = |(matched, reference)| Self::source_of(matched, reference, false);
        self.find_all(references).into_iter().zip(references).map(source).collect()
    }

    /// Where the values of those references are that are fields.
    pub(crate) fn fields(&self, references: &[Reference]) -> Vec<ValueSource> {
        let field = |(matched, reference)| match matched {
            ReferenceMatch::Column(column) => Some(Self::column(column, reference)),
            ReferenceMatch::Tag(_) | ReferenceMatch::Nothing => None,
        };
        self.find_all(references).into_iter().zip(references).filter_map(field).collect()
    }

    /// Returns whether a field is known to have a value in every row.
    pub(crate) fn has_all(&self, source: &ValueSource) -> bool {
        let ValueSource::Column(column, None) = source else { return false };
        self.columns.get(*column).is_some_and(|column| column.cells.validity.is_none())
    }

    /// Where references are found, if they are not in a condition.
    fn find_all(&self, references: &[Reference]) -> Vec<ReferenceMatch<'_>> {
        let mut finder = ColumnFinder::new(&self.columns);
        references.iter().map(|reference| self.find(reference, || finder.find(&reference.name))).collect()
    }

    /// What a reference is, given the column of its name.
    fn find(&self, reference: &Reference, column: impl FnOnce() -> Option<usize>) -> ReferenceMatch<'_> {
        if reference.cast != Some(Cast::Tag)
            && let Some(column) = column()
        {
            return ReferenceMatch::Column(column);
        }
        let tag = if reference.cast == Some(Cast::Field) { None } else { self.tags.get(&reference.name) };
        tag.map_or(ReferenceMatch::Nothing, ReferenceMatch::Tag)
    }

    /// The value of a row.
    pub(crate) fn value(&self, source: &ValueSource, row: usize) -> Value {
        match source {
            ValueSource::Column(column, cast) => {
                let value = self.columns.get(*column).map_or(Value::Null, |column| Value::from(column.cell(row)));
                cast.map_or(value.clone(), |cast| value.cast(cast))
            }
            ValueSource::Tag(value) => value.clone(),
            ValueSource::Nothing => Value::Null,
        }
    }

    /// Its rows without the measurement.
    pub(crate) fn into_frame(self) -> Frame {
        Frame::new(self.tags, self.times, self.columns)
    }

    pub(crate) fn samples(&self) -> usize {
        self.times.len() * self.columns.len().max(1)
    }

    /// Returns whether some of its values stand for folded ones.
    pub(crate) fn has_folds(&self) -> bool {
        self.columns.iter().any(|column| !column.cells.folds.is_empty())
    }

    /// What the value of a source in a row stands for, if that is more than itself.
    pub(crate) fn fold(&self, source: &ValueSource, row: usize) -> Option<&Summary> {
        let ValueSource::Column(column, None) = source else { return None };
        self.columns.get(*column)?.cells.folds.get(row)
    }

    /// Leaves the rows that satisfy a condition.
    pub(crate) fn filter(&mut self, code: &Code, references: &[Reference]) {
        let sources: Vec<ValueSource> = references.iter().map(|reference| self.source(reference, true)).collect();
        let holds = |row: &usize| {
            let value = |number: usize| sources.get(number).map_or(Value::Null, |source| self.value(source, *row));
            code.value(&|_| Value::Null, &value, true).is_true()
        };
        let rows: Vec<usize> = (0..self.times.len()).filter(holds).collect();
        if rows.len() < self.times.len() {
            self.retain_rows(&rows);
        }
    }

    /// Only these rows, in this order.
    fn retain_rows(&mut self, rows: &[usize]) {
        let (times, columns) = (std::mem::take(&mut self.times), std::mem::take(&mut self.columns));
        let frame = Frame::new(self.tags.clone(), times, columns);
        let frame = frame.pick(rows);
        (self.times, self.columns) = (frame.timestamps_ns, frame.columns);
    }
}
