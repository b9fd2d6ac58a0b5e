//! A block's columns as rows: looked at in place, turned a stretch at a time, so that what is turned stays in the cache.

use std::ops::Range;

use capnp::{primitive_list, text_list};
use model::{NativeHistogram, Span, ValueType};

use super::wire_capnp::{block, column};
use super::{WireError, histograms};

/// Rows that are turned at a time.
pub const STRETCH_ROWS: usize = 512;

/// Columns that a block may have.
const COLUMNS_MAX: usize = 1 << 16;

/// Rows of groups with the same members, or of lone series.
pub struct Block<'a> {
    /// The measurement's number; of no meaning for lone series.
    pub measurement: u32,
    /// The columns' slots; none for lone series, which have one column of floats.
    pub slots: Vec<u32>,
    /// The columns' types.
    pub types: Vec<ValueType>,
    rows: usize,
    tokens: primitive_list::Reader<'a, u64>,
    timestamps: primitive_list::Reader<'a, i64>,
    columns: Vec<Column<'a>>,
    has_nulls: bool,
}

struct Column<'a> {
    present: &'a [u8],
    values: Values<'a>,
}

enum Values<'a> {
    F64(primitive_list::Reader<'a, f64>),
    I64(primitive_list::Reader<'a, i64>),
    U64(primitive_list::Reader<'a, u64>),
    Bool(primitive_list::Reader<'a, bool>),
    String(text_list::Reader<'a>),
    Histogram(histograms::Column<'a>),
}

/// A stretch of rows, to be used again and again.
#[derive(Debug, Default)]
pub struct Rows {
    /// One for each row.
    pub tokens: Vec<u64>,
    /// One for each row.
    pub timestamps_ns: Vec<i64>,
    /// Row by row; 0 where there is no value. See [`ValueType`] for what a word holds.
    pub cells: Vec<u64>,
    /// The bytes that text cells point into.
    pub text: Vec<u8>,
    /// The histograms that cells are indexes of.
    pub histograms: Vec<NativeHistogram>,
    /// Cell by cell, whether there is a value; empty if there is one everywhere.
    pub present: Vec<bool>,
}

impl<'a> Block<'a> {
    pub(super) fn new(block: block::Reader<'a>) -> Result<Self, WireError> {
        let (tokens, timestamps) = (block.get_tokens()?, block.get_timestamps()?);
        let rows = tokens.len().max(timestamps.len());
        let fits = |length: u32| length == rows || length == 1;
        if !fits(tokens.len()) || !fits(timestamps.len()) {
            return Err(WireError(format!("{} tokens and {} timestamps in one block", tokens.len(), timestamps.len())));
        }
        let slots: Vec<u32> = block.get_slots()?.iter().collect();
        let sent = block.get_columns()?;
        if sent.len() as usize > COLUMNS_MAX || sent.len() as usize != slots.len().max(1) {
            return Err(WireError(format!("{} columns for {} slots", sent.len(), slots.len())));
        }
        let rows = rows as usize;
        let mut columns = Vec::with_capacity(sent.len() as usize);
        for column in sent {
            columns.push(Column::new(column, rows)?);
        }
        let types = columns.iter().map(|column| column.values.value_type()).collect();
        let has_nulls = columns.iter().any(|column| !column.present.is_empty());
        let block =
            Self { measurement: block.get_measurement(), slots, types, rows, tokens, timestamps, columns, has_nulls };
        if block.slots.is_empty() && block.types != [ValueType::F64] {
            return Err(WireError("a block without slots holds lone series: one column of floats".to_owned()));
        }
        Ok(block)
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The stretches in which to read them.
    pub fn stretches(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let rows = self.rows;
        (0..rows).step_by(STRETCH_ROWS).map(move |start| start..rows.min(start + STRETCH_ROWS))
    }

    /// Reads a stretch.
    pub fn read(&self, stretch: Range<usize>, out: &mut Rows) -> Result<(), WireError> {
        let (count, width) = (stretch.len(), self.columns.len());
        spread(slice(&self.tokens)?, &stretch, &mut out.tokens);
        spread(slice(&self.timestamps)?, &stretch, &mut out.timestamps_ns);
        out.text.clear();
        out.histograms.clear();
        out.cells.clear();
        out.cells.resize(count * width, 0);
        for (place, column) in self.columns.iter().enumerate() {
            let into = out.cells.get_mut(place..).unwrap_or_default().iter_mut().step_by(width);
            match &column.values {
                Values::Histogram(values) => {
                    values.read(&stretch, |row| column.is_present(row), into, &mut out.histograms)?;
                }
                values => values.turn(&stretch, into, &mut out.text)?,
            }
        }
        out.present.clear();
        if self.has_nulls {
            for row in stretch {
                out.present.extend(self.columns.iter().map(|column| column.is_present(row)));
            }
        }
        Ok(())
    }
}

/// One value for each row, or one for all.
fn spread<T: Copy>(values: &[T], stretch: &Range<usize>, out: &mut Vec<T>) {
    out.clear();
    match (values.get(stretch.clone()), values.first()) {
        (Some(values), _) if values.len() == stretch.len() => out.extend_from_slice(values),
        (_, Some(value)) => out.resize(stretch.len(), *value),
        _ => {}
    }
}

fn slice<'a, T: capnp::private::layout::PrimitiveElement>(
    list: &'a primitive_list::Reader<'_, T>,
) -> Result<&'a [T], WireError> {
    list.as_slice().ok_or_else(|| WireError("items of a list have another size than the schema says".to_owned()))
}

impl<'a> Column<'a> {
    fn new(column: column::Reader<'a>, rows: usize) -> Result<Self, WireError> {
        let present = column.get_present()?;
        let values = match column.which()? {
            column::F64(values) => Values::F64(values?),
            column::I64(values) => Values::I64(values?),
            column::U64(values) => Values::U64(values?),
            column::Bool(values) => Values::Bool(values?),
            column::String(values) => Values::String(values?),
            column::Histogram(values) => Values::Histogram(histograms::Column::new(values?)?),
        };
        if values.len() != rows {
            return Err(WireError(format!("a column of {} values in a block of {rows} rows", values.len())));
        }
        if !present.is_empty() && present.len() != rows.div_ceil(8) {
            return Err(WireError(format!("{} bytes say where {rows} rows have values", present.len())));
        }
        Ok(Self { present, values })
    }

    fn is_present(&self, row: usize) -> bool {
        self.present.get(row / 8).is_none_or(|byte| byte >> (row % 8) & 1 == 1)
    }
}

impl Values<'_> {
    fn len(&self) -> usize {
        let length = match self {
            Self::F64(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::String(values) => values.len(),
            Self::Histogram(values) => values.len(),
        };
        length as usize
    }

    fn value_type(&self) -> ValueType {
        match self {
            Self::F64(_) => ValueType::F64,
            Self::I64(_) => ValueType::I64,
            Self::U64(_) => ValueType::U64,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Histogram(_) => ValueType::Histogram,
        }
    }

    /// Writes a stretch of the column into every so-manieth cell.
    fn turn<'c>(
        &self,
        stretch: &Range<usize>,
        into: impl Iterator<Item = &'c mut u64>,
        text: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        let (from, to) = (stretch.start as u32, stretch.end as u32);
        match self {
            Self::F64(values) => write(into, part(slice(values)?, stretch).iter().map(|value| value.to_bits())),
            Self::I64(values) => write(into, part(slice(values)?, stretch).iter().map(|value| *value as u64)),
            Self::U64(values) => write(into, part(slice(values)?, stretch).iter().copied()),
            Self::Bool(values) => write(into, (from..to).map(|row| u64::from(values.get(row)))),
            Self::String(values) => {
                for (cell, row) in into.zip(from..to) {
                    let bytes = values.get(row)?.to_str()?.as_bytes();
                    *cell = Span { start: text.len() as u32, len: bytes.len() as u32 }.to_cell();
                    text.extend_from_slice(bytes);
                }
            }
            // Read by themselves, for they go elsewhere.
            Self::Histogram(_) => {}
        }
        Ok(())
    }
}

fn part<'a, T>(values: &'a [T], stretch: &Range<usize>) -> &'a [T] {
    values.get(stretch.clone()).unwrap_or_default()
}

fn write<'c>(into: impl Iterator<Item = &'c mut u64>, values: impl Iterator<Item = u64>) {
    into.zip(values).for_each(|(cell, value)| *cell = value);
}

/// Rows that have values in the same columns.
#[derive(Debug, PartialEq, Eq)]
pub struct Run {
    /// Which rows.
    pub rows: Range<usize>,
    /// The columns that have values.
    pub columns: Vec<usize>,
}

impl Rows {
    /// Stretches of rows that have values in the same columns, in order; of no use where no cell is null.
    pub fn runs(&self, width: usize) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut last: &[bool] = &[];
        for (row, present) in self.present.chunks_exact(width.max(1)).enumerate() {
            match runs.last_mut() {
                Some(run) if last == present => run.rows.end = row + 1,
                _ => {
                    let columns = present.iter().enumerate().filter(|(_, is)| **is).map(|(place, _)| place).collect();
                    runs.push(Run { rows: row..row + 1, columns });
                }
            }
            last = present;
        }
        runs
    }
}
