//! Functions that change values, row by row.

use std::sync::Arc;

use query::{Budget, QueryError, Value};

use crate::arguments::Arguments;
use crate::evaluate::{Item, Machine, RowRecord};
use crate::row::{RowFunction, compare, number_of, text_of, type_name};
use crate::stream::table::{Column, TIME, Table, VALUE, merged, split};
use crate::syntax::FluxError;

/// `map(fn: (r) => ({r with …}))`
pub(super) fn map(
    machine: &mut Machine<'_>,
    tables: Vec<Table>,
    mut arguments: Arguments,
) -> Result<Vec<Table>, QueryError> {
    let Some(Item::Function(function)) = arguments.take("fn") else {
        return Ok(arguments.error("fn is a function of a row: (r) => ({r with …})")?);
    };
    // How keys are merged was asked in early versions.
    arguments.flag("mergeKey", false)?;
    arguments.finish()?;
    let record = machine.row_record(&function)?;
    let mut made = Vec::new();
    for table in tables {
        made.extend(mapped(machine.session.budget(), &table, &record)?);
    }
    merged(machine.session, made)
}

fn mapped(budget: &Budget, table: &Table, record: &RowRecord) -> Result<Vec<Table>, QueryError> {
    let (is_with, members) = (record.is_with, &record.members);
    budget.take(table.rows.len() * members.len())?;
    let is_made = |name: &Arc<str>| members.iter().any(|(made, _)| made == name);
    let mut key = table.key.clone();
    key.retain(|name, _| is_with && !is_made(name));
    let kept: Vec<usize> = (0..table.columns.len())
        .filter(|place| is_with && table.columns.get(*place).is_some_and(|column| !is_made(&column.name)))
        .collect();
    let mut columns: Vec<Column> = kept.iter().filter_map(|place| table.columns.get(*place)).cloned().collect();
    columns.extend(members.iter().map(|(name, _)| Column::new(name.clone(), "null")));
    let mut rows = Vec::with_capacity(table.rows.len());
    for row in &table.rows {
        let mut cells: Vec<Value> = kept.iter().filter_map(|place| row.get(*place)).cloned().collect();
        for (_, expression) in members {
            cells.push(expression.value(&|name| table.value(row, name))?);
        }
        // Texts are of any length: each row is charged before the next one is made.
        budget.take(cells.iter().map(Value::text_samples).sum())?;
        rows.push(cells);
    }
    for (place, column) in columns.iter_mut().enumerate().skip(kept.len()) {
        let mut values = rows.iter().filter_map(|row: &Vec<Value>| row.get(place)).filter(|value| !value.is_null());
        column.kind = values.next().map_or("null", type_name);
        if let Some(other) = values.find(|value| type_name(value) != column.kind) {
            let (name, kind, other) = (&column.name, column.kind, type_name(other));
            let message = format!("map(): the column {name:?} would hold a {kind} in one row and a {other} in another");
            return Err(FluxError::new(crate::syntax::Position { line: 1, column: 1 }, message).into());
        }
    }
    // Columns of the key that were computed group the rows as before.
    let regrouped: Vec<Arc<str>> =
        members.iter().map(|(name, _)| name.clone()).filter(|name| table.key.contains_key(name)).collect();
    Ok(split(Table { key, columns, rows }, &regrouped))
}

/// `fill(column, value | usePrevious)`
pub(super) fn fill(mut tables: Vec<Table>, mut arguments: Arguments) -> Result<Vec<Table>, FluxError> {
    let column = arguments.text("column")?.unwrap_or_else(|| VALUE.to_owned());
    let value = match arguments.take("value") {
        None => None,
        Some(Item::Value(value)) if !value.is_null() => Some(value),
        Some(other) => return arguments.error(format_args!("value is a value, not {}", other.kind())),
    };
    let uses_previous = arguments.flag("usePrevious", false)?;
    arguments.finish()?;
    if value.is_some() == uses_previous {
        return arguments.error("either value or usePrevious: true is given");
    }
    for table in &mut tables {
        let Some(place) = table.column(&column) else { continue };
        let kind = table.columns.get(place).map_or("null", |column| column.kind);
        let filling = value.as_ref().map(|value| fitting(value, kind));
        if let Some(value) = &filling
            && kind != "null"
            && type_name(value) != kind
        {
            return arguments
                .error(format_args!("the column {column:?} is a {kind}, and value a {}", type_name(value)));
        }
        if let (Some(column), Some(value)) = (table.columns.get_mut(place), &filling) {
            column.kind = type_name(value);
        }
        let mut last = filling.unwrap_or(Value::Null);
        for cell in table.rows.iter_mut().filter_map(|row| row.get_mut(place)) {
            if cell.is_null() {
                *cell = last.clone();
            } else if uses_previous {
                last = cell.clone();
            }
        }
    }
    Ok(tables)
}

/// A whole number among floats is one of them.
fn fitting(value: &Value, kind: &str) -> Value {
    match (value, kind) {
        (Value::Int(value), "double") => Value::Float(*value as f64),
        (value, _) => value.clone(),
    }
}

/// Makes a value of one and the last one before it, with their rows.
type Combine<'a> = dyn Fn(&Value, &Value, (&[Value], &[Value])) -> Value + 'a;

/// The options that functions of neighbouring rows share.
struct Neighbours {
    columns: Vec<Arc<str>>,
    is_non_negative: bool,
    keeps_first: bool,
    starts_at_zero: bool,
}

impl Neighbours {
    fn read(arguments: &mut Arguments) -> Result<Self, FluxError> {
        Ok(Self {
            columns: arguments.names("columns")?.unwrap_or_else(|| vec![VALUE.into()]),
            is_non_negative: arguments.flag("nonNegative", false)?,
            keeps_first: arguments.flag("keepFirst", false)?,
            starts_at_zero: arguments.flag("initialZero", false)?,
        })
    }

    /// The options of `increase()`, which is `difference` with all of them, and then `cumulativeSum`.
    fn of_increase(arguments: &mut Arguments) -> Result<Self, FluxError> {
        let columns = arguments.names("columns")?.unwrap_or_else(|| vec![VALUE.into()]);
        Ok(Self { columns, is_non_negative: true, keeps_first: true, starts_at_zero: true })
    }

    /// Replaces the columns of a table by what is made of each value and the last one before it; the first row goes.
    fn apply(&self, table: &mut Table, combine: &Combine<'_>) {
        for name in &self.columns {
            let Some(place) = table.column(name) else { continue };
            let mut last: Option<usize> = None;
            let mut made = Vec::with_capacity(table.rows.len());
            for (index, row) in table.rows.iter().enumerate() {
                let value = row.get(place).cloned().unwrap_or(Value::Null);
                let before = last.and_then(|last| table.rows.get(last));
                made.push(match before {
                    Some(before) if !value.is_null() => {
                        let earlier = before.get(place).cloned().unwrap_or(Value::Null);
                        let falls = compare(&value, &earlier).is_some_and(std::cmp::Ordering::is_lt);
                        let zero = zero(&value);
                        let is_below_zero = compare(&value, &zero).is_some_and(std::cmp::Ordering::is_lt);
                        match (falls && self.is_non_negative, self.starts_at_zero && !is_below_zero) {
                            (true, false) => Value::Null,
                            (true, true) => combine(&value, &zero, (row, before)),
                            (false, _) => combine(&value, &earlier, (row, before)),
                        }
                    }
                    _ => Value::Null,
                });
                if !value.is_null() {
                    last = Some(index);
                }
            }
            if let Some(column) = table.columns.get_mut(place) {
                let kind = made.iter().find(|value| !value.is_null()).map(type_name);
                column.kind = kind.unwrap_or(column.kind);
            }
            table.rows.iter_mut().zip(made).for_each(|(row, value)| {
                if let Some(cell) = row.get_mut(place) {
                    *cell = value;
                }
            });
        }
        if !self.keeps_first && !table.rows.is_empty() {
            table.rows.remove(0);
        }
    }
}

const fn zero(like: &Value) -> Value {
    match like {
        Value::Int(_) => Value::Int(0),
        Value::Unsigned(_) => Value::Unsigned(0),
        _ => Value::Float(0.0),
    }
}

fn subtracted(value: &Value, earlier: &Value) -> Value {
    match (value, earlier) {
        (Value::Int(value), Value::Int(earlier)) => Value::Int(value.wrapping_sub(*earlier)),
        (Value::Unsigned(value), Value::Unsigned(earlier)) => {
            Value::Int((i128::from(*value) - i128::from(*earlier)).clamp(i64::MIN.into(), i64::MAX.into()) as i64)
        }
        (value, earlier) => match (number_of(value), number_of(earlier)) {
            (Some(value), Some(earlier)) => Value::Float(value - earlier),
            _ => Value::Null,
        },
    }
}

/// `difference(nonNegative, columns, keepFirst, initialZero)`, `increase(columns)`
pub(super) fn difference(mut tables: Vec<Table>, mut arguments: Arguments) -> Result<Vec<Table>, FluxError> {
    let is_increase = arguments.function == "increase";
    let options =
        if is_increase { Neighbours::of_increase(&mut arguments)? } else { Neighbours::read(&mut arguments)? };
    arguments.finish()?;
    for table in &mut tables {
        options.apply(table, &|value, earlier, _| subtracted(value, earlier));
        if is_increase {
            nulls_to_zeros(table, &options.columns);
            accumulate(table, &options.columns);
        }
    }
    tables.retain(|table| !table.rows.is_empty());
    Ok(tables)
}

/// `derivative(unit, nonNegative, columns, timeColumn)`
pub(super) fn derivative(mut tables: Vec<Table>, mut arguments: Arguments) -> Result<Vec<Table>, FluxError> {
    let unit_ns = match arguments.duration("unit")? {
        None => 1_000_000_000,
        Some(unit) if unit.months == 0 && unit.ns > 0 => unit.ns,
        Some(_) => return arguments.error("unit is a positive duration without months"),
    };
    let time_column = arguments.text("timeColumn")?.unwrap_or_else(|| TIME.to_owned());
    let options = Neighbours::read(&mut arguments)?;
    arguments.finish()?;
    for table in &mut tables {
        let Some(time) = table.column(&time_column) else {
            return arguments.error(format_args!("no column {time_column:?} exists"));
        };
        let at = |row: &[Value]| row.get(time).and_then(Value::time_ns);
        options.apply(table, &|value, earlier, (row, before)| {
            let Some((now_ns, then_ns)) = at(row).zip(at(before)) else { return Value::Null };
            let units = (now_ns as f64 - then_ns as f64) / unit_ns as f64;
            match (number_of(value), number_of(earlier)) {
                (Some(value), Some(earlier)) if units != 0.0 => Value::Float((value - earlier) / units),
                _ => Value::Null,
            }
        });
    }
    tables.retain(|table| !table.rows.is_empty());
    Ok(tables)
}

/// `cumulativeSum(columns)`
pub(super) fn cumulative_sum(mut tables: Vec<Table>, mut arguments: Arguments) -> Result<Vec<Table>, FluxError> {
    let columns = arguments.names("columns")?.unwrap_or_else(|| vec![VALUE.into()]);
    arguments.finish()?;
    tables.iter_mut().for_each(|table| accumulate(table, &columns));
    Ok(tables)
}

/// Makes zeros of the nulls of columns of numbers: where nothing is added, a sum that begins at 0 stays.
fn nulls_to_zeros(table: &mut Table, columns: &[Arc<str>]) {
    for name in columns {
        let Some(place) = table.column(name) else { continue };
        let Some(column) = table.columns.get_mut(place) else { continue };
        let zero = match column.kind {
            "long" | "unsignedLong" => Value::Int(0),
            "double" => Value::Float(0.0),
            _ => continue,
        };
        column.kind = type_name(&zero);
        let cells = table.rows.iter_mut().filter_map(|row| row.get_mut(place));
        cells.filter(|cell| cell.is_null()).for_each(|cell| *cell = zero.clone());
    }
}

fn accumulate(table: &mut Table, columns: &[Arc<str>]) {
    for name in columns {
        let Some(place) = table.column(name) else { continue };
        let mut sum: Option<Value> = None;
        for cell in table.rows.iter_mut().filter_map(|row| row.get_mut(place)) {
            sum = match (&*cell, sum) {
                (Value::Null, sum) => sum,
                (value, None) => Some(value.clone()),
                (Value::Int(value), Some(Value::Int(sum))) => Some(Value::Int(sum.wrapping_add(*value))),
                (Value::Unsigned(value), Some(Value::Unsigned(sum))) => Some(Value::Unsigned(sum.wrapping_add(*value))),
                (value, Some(sum)) => match (number_of(value), number_of(&sum)) {
                    (Some(value), Some(sum)) => Some(Value::Float(sum + value)),
                    _ => Some(sum),
                },
            };
            *cell = sum.clone().unwrap_or(Value::Null);
        }
    }
}

/// `movingAverage(n)`
pub(super) fn moving_average(mut tables: Vec<Table>, mut arguments: Arguments) -> Result<Vec<Table>, FluxError> {
    let count = arguments.count("n")?.filter(|count| *count > 0);
    let count = arguments.required("n", count)?;
    arguments.finish()?;
    for table in &mut tables {
        let Some(place) = table.column(VALUE) else { return arguments.error("no column \"_value\" exists") };
        let numbers: Vec<f64> =
            table.rows.iter().map(|row| row.get(place).and_then(number_of).unwrap_or(f64::NAN)).collect();
        let width = count.min(numbers.len().max(1));
        let averages: Vec<f64> = numbers
            .windows(width)
            .map(|window| {
                let known: Vec<f64> = window.iter().copied().filter(|number| !number.is_nan()).collect();
                known.iter().sum::<f64>() / known.len() as f64
            })
            .collect();
        // Rows before the first whole window go.
        table.rows.drain(..width.saturating_sub(1).min(table.rows.len()));
        table.columns.iter_mut().skip(place).take(1).for_each(|column| column.kind = "double");
        for (row, average) in table.rows.iter_mut().zip(averages) {
            if let Some(cell) = row.get_mut(place) {
                *cell = if average.is_nan() { Value::Null } else { Value::Float(average) };
            }
        }
    }
    Ok(tables)
}

/// `toFloat()` and the like: the column `_value` as another type.
pub(super) fn convert(mut tables: Vec<Table>, arguments: &Arguments) -> Result<Vec<Table>, FluxError> {
    arguments.finish()?;
    let (function, kind) = match arguments.function.as_str() {
        "toBool" => (RowFunction::Bool, "boolean"),
        "toInt" => (RowFunction::Int, "long"),
        "toUInt" => (RowFunction::UInt, "unsignedLong"),
        "toString" => (RowFunction::Text, "string"),
        "toTime" => (RowFunction::Time, "dateTime:RFC3339"),
        _ => (RowFunction::Float, "double"),
    };
    for table in &mut tables {
        let Some(place) = table.column(VALUE) else { return arguments.error("no column \"_value\" exists") };
        table.columns.iter_mut().skip(place).take(1).for_each(|column| column.kind = kind);
        for cell in table.rows.iter_mut().filter_map(|row| row.get_mut(place)) {
            let Some(value) = function.apply(cell) else {
                return arguments.error(format_args!("cannot convert {} {:?}", type_name(cell), text_of(cell)));
            };
            *cell = value;
        }
    }
    Ok(tables)
}
