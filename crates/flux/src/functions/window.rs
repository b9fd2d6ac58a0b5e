//! `window` and `aggregateWindow`.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use query::time::CalendarBins;
use query::{Interval, QueryError, Session, Value};

use super::aggregate::plan_function;
use super::shape::duplicate;
use crate::arguments::Arguments;
use crate::evaluate::{Item, Machine};
use crate::row::type_name;
use crate::stream::Stream;
use crate::stream::source::{PlanAggregate, Source};
use crate::stream::table::{Column, START, STOP, TIME, Table, VALUE, merged};
use crate::syntax::{FluxError, Position};

/// Windows of a query, empty ones included.
const WINDOWS_MAX: usize = 10_000_000;

/// How windows are cut.
#[derive(Debug)]
struct Windows {
    bins: CalendarBins,
    creates_empty: bool,
}

/// The function that makes one value of each window, and the columns that it reads and writes.
struct Aggregated {
    function: Item,
    column: String,
    time_source: String,
    time_target: String,
}

impl Windows {
    fn read(arguments: &mut Arguments, creates_empty: bool) -> Result<Self, FluxError> {
        let every = arguments.duration("every")?;
        let every = arguments.required("every", every)?;
        let is_positive = every.months >= 0 && every.ns >= 0 && every.approximate_ns() > 0;
        if !is_positive || (every.months > 0 && every.ns > 0) {
            return arguments.error("every is a positive duration, of months or of shorter units");
        }
        if arguments.duration("period")?.is_some_and(|period| period != every && period != Interval::default()) {
            return arguments.error("windows that overlap (period other than every) are not supported");
        }
        let offset = arguments.duration("offset")?.unwrap_or_default();
        let origin_ns = query::time::add(0, offset, &TimeZone::UTC);
        let Some(origin_ns) = origin_ns else { return arguments.error("the offset is too long") };
        let creates_empty = arguments.flag("createEmpty", creates_empty)?;
        Ok(Self { bins: CalendarBins::new(every, origin_ns, TimeZone::UTC), creates_empty })
    }

    /// The bounds of a window, cut by those of its table.
    fn bounds(&self, start_ns: i64, (first_ns, end_ns): (i64, i64)) -> (i64, i64) {
        (start_ns.max(first_ns), self.bins.next(start_ns).min(end_ns))
    }

    /// Where the windows begin that a table has: all within its bounds, or those that have rows.
    fn starts(&self, session: &dyn Session, (first_ns, end_ns): (i64, i64)) -> Result<Vec<i64>, QueryError> {
        let mut starts = Vec::new();
        for start_ns in self.bins.starts(first_ns, end_ns.saturating_sub(1)) {
            if starts.len() % 4096 == 0 {
                session.budget().check()?;
            }
            if starts.len() >= WINDOWS_MAX {
                let message = format!("more than {WINDOWS_MAX} windows: take wider ones, or createEmpty: false");
                return Err(QueryError::Invalid(message));
            }
            starts.push(start_ns);
        }
        Ok(starts)
    }

    /// The windows of a table within bounds as tables, by where they begin.
    fn tables(
        &self,
        session: &dyn Session,
        (mut table, bounds): (Table, (i64, i64)),
    ) -> Result<BTreeMap<i64, Table>, QueryError> {
        // Those of the windows stand in their place.
        [START, STOP].into_iter().for_each(|name| table.remove(name));
        let empty = |start_ns: i64| {
            let (start_ns, stop_ns) = self.bounds(start_ns, bounds);
            let mut key = table.key.clone();
            key.insert(START.into(), Value::Timestamp(start_ns));
            key.insert(STOP.into(), Value::Timestamp(stop_ns));
            Table { key, columns: table.columns.clone(), rows: Vec::new() }
        };
        let mut windows = BTreeMap::new();
        if self.creates_empty {
            let starts = self.starts(session, bounds)?;
            session.budget().take(starts.len() * table.key.len().max(1))?;
            windows.extend(starts.into_iter().map(|start_ns| (start_ns, empty(start_ns))));
        }
        let (time, time_of_all) = (table.column(TIME), table.key.get(TIME).and_then(Value::time_ns));
        for row in std::mem::take(&mut table.rows) {
            let at_ns = time.and_then(|time| row.get(time)).map_or(time_of_all, Value::time_ns);
            let Some(at_ns) = at_ns else { continue };
            let start_ns = self.bins.start_of(at_ns);
            windows.entry(start_ns).or_insert_with(|| empty(start_ns)).rows.push(row);
        }
        Ok(windows)
    }
}

/// The bounds of a table's windows: those in its key, or the range that was read.
fn bounds_of(table: &Table, range: Option<(i64, i64)>) -> Result<(i64, i64), QueryError> {
    let message = "the tables are of no range of time: from() |> range() gives them one";
    table.bounds().or(range).ok_or_else(|| QueryError::Invalid(message.to_owned()))
}

/// `window(every)`
pub(super) fn window(
    machine: &Machine<'_>,
    (tables, range): (Vec<Table>, Option<(i64, i64)>),
    mut arguments: Arguments,
) -> Result<Vec<Table>, QueryError> {
    let windows = Windows::read(&mut arguments, false)?;
    arguments.finish()?;
    let mut cut = Vec::new();
    for table in tables {
        let bounds = bounds_of(&table, range)?;
        cut.extend(windows.tables(machine.session, (table, bounds))?.into_values());
    }
    Ok(cut)
}

/// `aggregateWindow(every, fn, …)`
pub(super) fn aggregate_window(
    machine: &mut Machine<'_>,
    stream: Stream,
    mut arguments: Arguments,
) -> Result<Stream, QueryError> {
    let windows = Windows::read(&mut arguments, true)?;
    let function = arguments.take("fn");
    let function = arguments.required("fn", function)?;
    let column = arguments.text("column")?.unwrap_or_else(|| VALUE.to_owned());
    let time_source = arguments.text("timeSrc")?.unwrap_or_else(|| STOP.to_owned());
    let time_target = arguments.text("timeDst")?.unwrap_or_else(|| TIME.to_owned());
    arguments.finish()?;
    let aggregated = Aggregated { function, column, time_source, time_target };
    if let Stream::Source(source) = &stream
        && let Some(tables) = in_plan(machine.session, source, (&windows, &aggregated, arguments.at))?
    {
        return Ok(Stream::in_memory(tables, source.range));
    }
    let range = stream.range();
    let mut all = Vec::new();
    for table in stream.tables(machine.session)? {
        let bounds = bounds_of(&table, range)?;
        all.extend(of_table(machine, (table, bounds), (&windows, &aggregated), &arguments)?);
    }
    Ok(Stream::in_memory(merged(machine.session, all)?, range))
}

/// Windows that the plan makes of each table; `None` if it cannot.
fn in_plan(
    session: &dyn Session,
    source: &Source,
    (windows, aggregated, at): (&Windows, &Aggregated, Position),
) -> Result<Option<Vec<Table>>, QueryError> {
    let Item::Builtin(name) = &aggregated.function else { return Ok(None) };
    let is_usual = aggregated.column == VALUE && aggregated.time_target == TIME;
    let is_start = match aggregated.time_source.as_str() {
        START => true,
        STOP => false,
        _ => return Ok(None),
    };
    let (Some(function), Some(bins), true) = (plan_function(name, at), windows.bins.equal_bins(), is_usual) else {
        return Ok(None);
    };
    let wanted = PlanAggregate { function, bins: Some(bins) };
    let Some(mut tables) = source.aggregates(session, wanted)? else { return Ok(None) };
    let bounds = source.bounds()?;
    let starts = if windows.creates_empty { windows.starts(session, bounds)? } else { Vec::new() };
    let empty = if name == "count" { Value::Int(0) } else { Value::Null };
    for table in &mut tables {
        let time = |row: &Vec<Value>| row.first().and_then(Value::time_ns).unwrap_or_default();
        if windows.creates_empty {
            session.budget().take(starts.len().saturating_sub(table.rows.len()) * 2)?;
            let mut made: BTreeMap<i64, Vec<Value>> =
                starts.iter().map(|start_ns| (*start_ns, vec![Value::Timestamp(*start_ns), empty.clone()])).collect();
            made.extend(std::mem::take(&mut table.rows).into_iter().map(|row| (time(&row), row)));
            table.rows = made.into_values().collect();
        }
        for row in &mut table.rows {
            let (start_ns, stop_ns) = windows.bounds(time(row), bounds);
            if let Some(cell) = row.first_mut() {
                *cell = Value::Timestamp(if is_start { start_ns } else { stop_ns });
            }
        }
    }
    Ok(Some(tables))
}

/// The windows of one table, each aggregated, together again.
fn of_table(
    machine: &mut Machine<'_>,
    (table, bounds): (Table, (i64, i64)),
    (windows, aggregated): (&Windows, &Aggregated),
    arguments: &Arguments,
) -> Result<Vec<Table>, QueryError> {
    let cut: Vec<Table> = windows.tables(machine.session, (table, bounds))?.into_values().collect();
    // A function of the script may do without the column that is passed to it.
    let passed = vec![("column".to_owned(), Item::Value(Value::text(aggregated.column.as_str())))];
    let made = machine.call_with(&aggregated.function, Stream::in_memory(cut, Some(bounds)), passed, arguments.at)?;
    let mut tables = made.tables(machine.session)?;
    for table in &mut tables {
        if table.rows.is_empty() && windows.creates_empty {
            table.rows.push(vec![Value::Null; table.columns.len()]);
        }
        duplicate(table, &aggregated.time_source, &aggregated.time_target.as_str().into());
        put_bounds(table, bounds);
        put_time_first(table);
    }
    tables.retain(|table| !table.rows.is_empty());
    merged(machine.session, tables)
}

/// Tables of windows that are together again are of all of their range.
fn put_bounds(table: &mut Table, (start_ns, stop_ns): (i64, i64)) {
    for (name, ns) in [(START, start_ns), (STOP, stop_ns)] {
        table.remove(name);
        table.key.insert(name.into(), Value::Timestamp(ns));
    }
}

/// The column of the time stands before the others.
fn put_time_first(table: &mut Table) {
    let Some(time) = table.column(TIME) else { return };
    let kind = type_name(&Value::Timestamp(0));
    table.columns.remove(time);
    table.columns.insert(0, Column::new(TIME, kind));
    for row in &mut table.rows {
        let value = row.remove(time);
        row.insert(0, value);
    }
}
