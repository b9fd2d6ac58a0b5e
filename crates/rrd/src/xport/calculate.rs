//! Columns of an export, one statement after another.

use std::collections::HashMap;

use super::statements::{FileColumn, Offset, Script, Statement};
use crate::RrdError;
use crate::fetch::{FETCH_ROWS_MAX, FetchRequest, Fetched};
use crate::file::Consolidation;
use crate::rpn::{Column, Grid, Inputs, Program};
use crate::time::Times;

/// Reads rows of files.
pub trait Fetch {
    /// The rows of a file.
    fn fetch(&self, path: &str, request: &FetchRequest) -> Result<Fetched, RrdError>;

    /// Takes memory for so many values; fails if the query may not have it, or is to stop.
    fn hold(&self, values: usize) -> Result<(), RrdError>;
}

/// Settings of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// The time that is exported.
    pub times: Times,
    /// The wanted resolution in seconds; 0: as fine as `rows_max` allows.
    pub step_s: i64,
    /// About as many rows as there are at most.
    pub rows_max: i64,
    /// The time now, in seconds.
    pub now_s: i64,
}

/// An export.
#[derive(Debug, Clone, PartialEq)]
pub struct Exported {
    /// When the first row begins.
    pub start_s: i64,
    /// The time of the last row.
    pub end_s: i64,
    /// Seconds of a row.
    pub step_s: i64,
    /// A legend for each column.
    pub legends: Vec<String>,
    /// Row by row, a value for each column.
    pub values: Vec<f64>,
}

struct Calculation<'a> {
    source: &'a dyn Fetch,
    settings: Settings,
    /// Of statements that have one; others have an empty one.
    columns: Vec<Column>,
    /// Of statements that have one.
    scalars: Vec<f64>,
    shifts: HashMap<usize, i64>,
    /// Rows of files that several columns are of.
    fetched: HashMap<(String, FetchKey), Fetched>,
}

type FetchKey = (Consolidation, i64, i64, i64);

/// Runs a script.
pub fn export(script: &Script, settings: Settings, source: &dyn Fetch) -> Result<Exported, RrdError> {
    let Times { start_s, end_s } = settings.times;
    if start_s > end_s || settings.rows_max < 10 {
        return Err(RrdError::Invalid(format!(
            "start ({start_s}) should be less than end ({end_s}), and maxrows at least 10"
        )));
    }
    let step_s = settings.step_s.max((end_s - start_s) / settings.rows_max);
    let settings = Settings { step_s, ..settings };
    let mut calculation = Calculation {
        source,
        settings,
        columns: Vec::with_capacity(script.statements.len()),
        scalars: Vec::with_capacity(script.statements.len()),
        shifts: HashMap::new(),
        fetched: HashMap::new(),
    };
    for statement in &script.statements {
        let (column, scalar) = match statement {
            Statement::File(file) => (calculation.file(file)?, f64::NAN),
            Statement::Expression(program) => (calculation.expression(program)?, f64::NAN),
            Statement::Summary { column, summary } => {
                let column = calculation.columns.get(*column);
                (nothing(), column.map_or(f64::NAN, |column| summary.of_column(column).value))
            }
            Statement::Shift { column, offset } => {
                calculation.shift(*column, *offset);
                (nothing(), f64::NAN)
            }
            Statement::Export { .. } => (nothing(), f64::NAN),
        };
        calculation.columns.push(column);
        calculation.scalars.push(scalar);
    }
    calculation.finish(script)
}

const fn nothing() -> Column {
    Column { start_s: 0, end_s: 0, step_s: 1, values: Vec::new() }
}

impl Calculation<'_> {
    fn file(&mut self, file: &FileColumn) -> Result<Column, RrdError> {
        let wanted_s = file.step_s.unwrap_or(self.settings.step_s);
        let Times { start_s, end_s } = file.times;
        let request = FetchRequest { function: file.function, start_s, end_s, step_s: wanted_s };
        let key = (file.path.clone(), (file.function, start_s, end_s, wanted_s));
        if !self.fetched.contains_key(&key) {
            let rows = self.source.fetch(&file.path, &request)?;
            self.fetched.insert(key.clone(), rows);
        }
        let missing = || RrdError::Invalid(format!("No DS called '{}' in '{}'", file.source, file.path));
        let rows = self.fetched.get(&key).ok_or_else(missing)?;
        let number = rows.names.iter().position(|name| *name == file.source).ok_or_else(missing)?;
        let column =
            Column { start_s: rows.start_s, end_s: rows.end_s, step_s: rows.step_s, values: rows.column(number) };
        self.source.hold(column.values.len())?;
        // At least as coarse as the export.
        let least_s = wanted_s.max(self.settings.step_s);
        Ok(if column.step_s < least_s { reduced(&column, least_s, file.reduce) } else { column })
    }

    fn expression(&self, program: &Program) -> Result<Column, RrdError> {
        let columns: Vec<&Column> = program.series().filter_map(|number| self.columns.get(number)).collect();
        if columns.is_empty() {
            return Err(RrdError::invalid("rpn expressions without DEF or CDEF variables are not supported"));
        }
        let start_s = columns.iter().map(|column| column.start_s).fold(0, i64::max);
        let end_s = columns.iter().map(|column| column.end_s).fold(i64::MAX, i64::min);
        let step_s = common_step(columns.iter().map(|column| column.step_s));
        let rows = (end_s - start_s) / step_s;
        if rows > FETCH_ROWS_MAX {
            return Err(RrdError::Invalid(format!("an expression has more than {FETCH_ROWS_MAX} values")));
        }
        self.source.hold(rows.max(0) as usize)?;
        let check = || self.source.hold(0).map_err(|error| error.to_string());
        let inputs =
            Inputs { columns: &self.columns, scalars: &self.scalars, now_s: self.settings.now_s, check: &check };
        let values = program.evaluate(&inputs, Grid { start_s, end_s, step_s }).map_err(RrdError::Invalid)?;
        Ok(Column { start_s, end_s, step_s, values })
    }

    /// Moves a column by whole steps; a second shift takes the place of the first.
    fn shift(&mut self, number: usize, offset: Offset) {
        let by_s = match offset {
            Offset::Seconds(seconds) => seconds,
            Offset::Value(number) => self.scalars.get(number).map_or(0, |value| *value as i64),
        };
        if let Some(column) = self.columns.get_mut(number) {
            let by_s = by_s / column.step_s * column.step_s;
            let before_s = self.shifts.insert(number, by_s).unwrap_or_default();
            column.start_s = column.start_s.saturating_add(by_s.saturating_sub(before_s));
            column.end_s = column.end_s.saturating_add(by_s.saturating_sub(before_s));
        }
    }

    /// Puts the exported columns side by side.
    fn finish(self, script: &Script) -> Result<Exported, RrdError> {
        let exports = script.statements.iter().filter_map(|statement| match statement {
            Statement::Export { column, legend } => Some((self.columns.get(*column)?, legend.clone())),
            _ => None,
        });
        let (columns, legends): (Vec<&Column>, Vec<String>) = exports.unzip();
        if columns.is_empty() {
            return Err(RrdError::invalid("no XPORT found, nothing to do"));
        }
        let step_s = common_step(columns.iter().map(|column| column.step_s));
        let Times { start_s, end_s } = self.settings.times;
        let start_s = start_s - start_s % step_s;
        let end_s = if end_s % step_s == 0 { end_s } else { end_s - end_s % step_s + step_s };
        let rows = (end_s - start_s) / step_s;
        if rows > FETCH_ROWS_MAX {
            return Err(RrdError::Invalid(format!("the export has more than {FETCH_ROWS_MAX} rows")));
        }
        self.source.hold(rows as usize * columns.len())?;
        let mut values = Vec::with_capacity(rows as usize * columns.len());
        for row in 0..rows {
            let time_s = start_s + row * step_s;
            values.extend(columns.iter().map(|column| {
                let index = (time_s - column.start_s).div_euclid(column.step_s);
                usize::try_from(index).ok().and_then(|index| column.values.get(index)).copied().unwrap_or(f64::NAN)
            }));
        }
        Ok(Exported { start_s, end_s, step_s, legends, values })
    }
}

/// The greatest step that divides all.
fn common_step(steps: impl Iterator<Item = i64>) -> i64 {
    let divisor = |mut a: i64, mut b: i64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    steps.fold(0, divisor).max(1)
}

/// A column with rows of at least so many seconds.
fn reduced(column: &Column, least_s: i64, function: Consolidation) -> Column {
    let factor = (least_s + column.step_s - 1) / column.step_s;
    let step_s = column.step_s * factor;
    let start_s = column.start_s - column.start_s % step_s;
    let end_s = match column.end_s % step_s {
        0 => column.end_s,
        rest => column.end_s - rest + step_s,
    };
    let mut values = Vec::with_capacity(((end_s - start_s) / step_s) as usize);
    let mut begun_s = start_s;
    while begun_s < end_s {
        // A row that the column does not cover whole is unknown.
        let is_whole = begun_s >= column.start_s && begun_s + step_s <= column.end_s;
        let first = ((begun_s - column.start_s) / column.step_s).max(0) as usize;
        let rows = column.values.get(first..first + factor as usize).filter(|_| is_whole);
        values.push(rows.map_or(f64::NAN, |rows| consolidated(rows, function)));
        begun_s += step_s;
    }
    Column { start_s, end_s, step_s, values }
}

fn consolidated(values: &[f64], function: Consolidation) -> f64 {
    let known = || values.iter().copied().filter(|value| !value.is_nan());
    match function {
        Consolidation::Average => known().sum::<f64>() / known().count() as f64,
        Consolidation::Min => known().fold(f64::NAN, f64::min),
        Consolidation::Max => known().fold(f64::NAN, f64::max),
        Consolidation::Last => known().next_back().unwrap_or(f64::NAN),
    }
}
