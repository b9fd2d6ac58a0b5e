//! Rows of a selection, as the selection around it reads them.

use model::{Labels, Values};
use query::{Column, FrameColumn, Value};

use crate::resolve::selection::Resolved;
use crate::select::input::Input;
use crate::select::rows::{SeriesRows, time_of};
use crate::value::{DataType, InfluxValue};

/// Rows as what a selection around this one reads.
pub(crate) fn input(selection: &Resolved, rows: &SeriesRows) -> Input {
    let tags = selection.grouped_by.iter().zip(&rows.tags).map(|(name, value)| (name.as_str(), value.as_str()));
    let tags = Labels::from_pairs(tags).unwrap_or_else(|_| Labels::empty());
    let mut columns = Vec::with_capacity(selection.columns.len());
    let values = rows.rows.values();
    for (place, column) in (1..).zip(&selection.columns) {
        let cells = || values.iter().map(|row| row.get(place).unwrap_or(&Value::Null));
        columns.push(frame_column(&column.name, column.data_type, cells));
    }
    let mut times: Vec<i64> = values.iter().map(|row| time_of(row)).collect();
    if selection.descending {
        times.reverse();
        columns.iter_mut().for_each(|column| column.cells.keep_last_reversed(times.len()));
    }
    let in_time_order = selection.calls.is_empty() || selection.windows.is_some();
    Input { name: rows.name.clone(), tags, times, columns, every_row: true, in_time_order }
}

fn frame_column<'v, I: Iterator<Item = &'v Value>>(
    name: &str,
    data_type: DataType,
    cells: impl Fn() -> I,
) -> FrameColumn {
    let values = match data_type {
        DataType::Integer => {
            Values::I64(cells().map(|cell| if let Value::Int(value) = cell { *value } else { 0 }).collect())
        }
        DataType::Unsigned => {
            Values::U64(cells().map(|cell| if let Value::Unsigned(value) = cell { *value } else { 0 }).collect())
        }
        DataType::Boolean => Values::Bool(cells().map(InfluxValue::is_true).collect()),
        DataType::Text | DataType::Tag | DataType::Unknown => {
            let text = |cell: &Value| if let Value::Text(text) = cell { text.to_string() } else { String::new() };
            Values::Text(cells().map(text).collect())
        }
        DataType::Float => Values::F64(cells().map(|cell| cell.as_number().unwrap_or_default()).collect()),
    };
    // What fills a column beside a selector need not be of the column's type.
    let validity: Vec<bool> = cells().map(|cell| data_type.admits(cell)).collect();
    let cells = Column::new(values, validity.contains(&false).then_some(validity));
    FrameColumn { name: name.into(), cells }
}
