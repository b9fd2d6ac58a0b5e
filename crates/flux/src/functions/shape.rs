//! Functions that choose rows and columns, and group and order rows.

use std::cmp::Ordering;
use std::sync::Arc;

use query::{QueryError, Value};

use crate::arguments::Arguments;
use crate::evaluate::{Item, Machine};
use crate::row::{RowExpr, compare};
use crate::stream::Stream;
use crate::stream::group_key::GroupKey;
use crate::stream::source::{Source, filtered};
use crate::stream::table::{Column, START, STOP, TIME, Table, VALUE, merged};
use crate::syntax::FluxError;

/// `range(start, stop)`
pub(super) fn range(machine: &Machine<'_>, stream: Stream, mut arguments: Arguments) -> Result<Stream, QueryError> {
    let now_ns = machine.now_ns;
    let start = arguments.time("start", now_ns)?;
    let start_ns = arguments.required("start", start)?;
    let stop_ns = arguments.time("stop", now_ns)?.unwrap_or(now_ns);
    arguments.finish()?;
    if start_ns >= stop_ns {
        return Ok(arguments.error("cannot query an empty range: start is not before stop")?);
    }
    let tables = match stream {
        Stream::Source(mut source) if source.range.is_none() => {
            source.range = Some((start_ns, stop_ns));
            return Ok(Stream::Source(source));
        }
        other => other.tables(machine.session)?,
    };
    let within = |mut table: Table| {
        let time = table.column(TIME);
        let is_within = |row: &Vec<Value>| {
            let at = time.and_then(|time| row.get(time)).and_then(Value::time_ns);
            at.is_some_and(|at| (start_ns..stop_ns).contains(&at))
        };
        table.rows.retain(is_within);
        for (name, ns) in [(START, start_ns), (STOP, stop_ns)] {
            table.remove(name);
            table.key.insert(name.into(), Value::Timestamp(ns));
        }
        table
    };
    let mut tables: Vec<Table> = tables.into_iter().map(within).collect();
    tables.retain(|table| !table.rows.is_empty());
    Ok(Stream::in_memory(merged(machine.session, tables)?, Some((start_ns, stop_ns))))
}

/// `filter(fn: (r) => …)`
pub(super) fn filter(
    machine: &mut Machine<'_>,
    stream: Stream,
    mut arguments: Arguments,
) -> Result<Stream, QueryError> {
    let keeps_empty = match arguments.text("onEmpty")?.as_deref() {
        None | Some("drop") => false,
        Some("keep") => true,
        Some(other) => return Ok(arguments.error(format_args!("onEmpty is \"drop\" or \"keep\", not {other:?}"))?),
    };
    let condition = row_function(machine, &mut arguments)?;
    arguments.finish()?;
    let range = stream.range();
    let tables = match stream {
        Stream::Source(mut source) if !keeps_empty && source.group_key.is_none() => {
            source.filters.push(condition);
            return Ok(Stream::Source(source));
        }
        other => other.tables(machine.session)?,
    };
    let conditions = [condition];
    let mut tables: Vec<Table> =
        tables.into_iter().map(|table| filtered(table, &conditions)).collect::<Result<_, _>>()?;
    tables.retain(|table| keeps_empty || !table.rows.is_empty());
    Ok(Stream::in_memory(tables, range))
}

fn row_function(machine: &mut Machine<'_>, arguments: &mut Arguments) -> Result<RowExpr, QueryError> {
    match arguments.take("fn") {
        Some(Item::Function(function)) => machine.row_function(&function),
        _ => Ok(arguments.error("fn is a function of a row: (r) => …")?),
    }
}

/// `limit`, `tail`, `sort`, `top`, `bottom`
pub(super) fn rows(mut tables: Vec<Table>, mut arguments: Arguments) -> Result<Vec<Table>, FluxError> {
    let name = arguments.function.clone();
    let count = if name == "sort" { None } else { Some(arguments.count("n")?) };
    let count = count.map(|count| arguments.required("n", count)).transpose()?.unwrap_or(usize::MAX);
    let offset = arguments.count("offset")?.unwrap_or(0);
    let columns = arguments.names("columns")?.unwrap_or_else(|| vec![VALUE.into()]);
    let is_descending = arguments.flag("desc", false)? || name == "top";
    arguments.finish()?;
    for table in &mut tables {
        if !matches!(name.as_str(), "limit" | "tail") {
            let places: Vec<usize> = columns.iter().filter_map(|column| table.column(column)).collect();
            sort(&mut table.rows, &places, is_descending);
        }
        let rows = table.rows.len();
        let kept = match name.as_str() {
            "tail" => {
                let end = rows.saturating_sub(offset);
                end.saturating_sub(count)..end
            }
            _ => offset.min(rows)..offset.saturating_add(count).min(rows),
        };
        table.rows.truncate(kept.end);
        table.rows.drain(..kept.start);
    }
    tables.retain(|table| !table.rows.is_empty());
    Ok(tables)
}

/// Sorts rows; nulls come first, or last if the order falls.
fn sort(rows: &mut [Vec<Value>], places: &[usize], is_descending: bool) {
    let order = |a: &Vec<Value>, b: &Vec<Value>| {
        let by_column = places.iter().filter_map(|place| Some(value_order(a.get(*place)?, b.get(*place)?)));
        by_column.fold(Ordering::Equal, Ordering::then)
    };
    rows.sort_by(|a, b| if is_descending { order(b, a) } else { order(a, b) });
}

/// An order of all values: nulls, then values of one kind by their order.
fn value_order(a: &Value, b: &Value) -> Ordering {
    match (a.is_null(), b.is_null()) {
        (false, false) => compare(a, b).unwrap_or_else(|| a.sort_order(b)),
        (a, b) => b.cmp(&a),
    }
}

/// `keep`, `drop`, `rename`, `set`, `duplicate`
pub(super) fn columns(
    machine: &mut Machine<'_>,
    mut tables: Vec<Table>,
    mut arguments: Arguments,
) -> Result<Vec<Table>, QueryError> {
    match arguments.function.clone().as_str() {
        "keep" => {
            let names = arguments.names("columns")?;
            let names = arguments.required("columns", names)?;
            for table in &mut tables {
                let gone: Vec<Arc<str>> = table.names().filter(|name| !names.contains(name)).cloned().collect();
                gone.iter().for_each(|name| table.remove(name));
            }
        }
        "drop" => {
            let names = arguments.names("columns")?;
            let names = arguments.required("columns", names)?;
            tables.iter_mut().for_each(|table| names.iter().for_each(|name| table.remove(name)));
        }
        "rename" => rename(&mut tables, &mut arguments)?,
        "set" => {
            let (name, value) = (arguments.text("key")?, arguments.text("value")?);
            let name: Arc<str> = arguments.required("key", name)?.into();
            let value = Value::text(arguments.required("value", value)?);
            tables.iter_mut().for_each(|table| table.set(&name, &value));
        }
        _ => {
            let (from, to) = (arguments.text("column")?, arguments.text("as")?);
            let (from, to) = (arguments.required("column", from)?, arguments.required("as", to)?);
            let to: Arc<str> = to.into();
            tables.iter_mut().for_each(|table| duplicate(table, &from, &to));
        }
    }
    arguments.finish()?;
    merged(machine.session, tables)
}

fn rename(tables: &mut [Table], arguments: &mut Arguments) -> Result<(), FluxError> {
    let Some(Item::Record(members)) = arguments.take("columns") else {
        return arguments.error("columns is a record: {old: \"new\"}");
    };
    for (old, new) in &*members {
        let Item::Value(Value::Text(new)) = new else {
            return arguments.error(format_args!("the new name of {old} is a string"));
        };
        for table in tables.iter_mut() {
            if table.has(new) && **new != **old {
                return arguments.error(format_args!("there is a column {new} already"));
            }
            if let Some(value) = table.key.remove(old.as_str()) {
                table.key.insert(new.clone(), value);
            }
            if let Some(column) = table.column(old) {
                table.columns.iter_mut().skip(column).take(1).for_each(|column| column.name = new.clone());
            }
        }
    }
    Ok(())
}

pub(super) fn duplicate(table: &mut Table, from: &str, to: &Arc<str>) {
    if *from == **to {
        return;
    }
    match table.column(from) {
        None => {
            if let Some(value) = table.key.get(from).cloned() {
                table.set(to, &value);
            }
        }
        Some(column) => {
            let kind = table.columns.get(column).map_or("null", |column| column.kind);
            table.remove(to);
            // Its place is another one if the old column was before it.
            let Some(column) = table.column(from) else { return };
            table.columns.push(Column::new(to.clone(), kind));
            table.rows.iter_mut().for_each(|row| row.push(row.get(column).cloned().unwrap_or(Value::Null)));
        }
    }
}

/// `group(columns, mode)`
pub(super) fn group(machine: &Machine<'_>, stream: Stream, mut arguments: Arguments) -> Result<Stream, QueryError> {
    let names = arguments.names("columns")?.unwrap_or_default();
    let is_except = match arguments.text("mode")?.as_deref() {
        None | Some("by") => false,
        Some("except") => true,
        Some(other) => return Ok(arguments.error(format_args!("mode is \"by\" or \"except\", not {other:?}"))?),
    };
    arguments.finish()?;
    let group_key = GroupKey { names, is_except };
    let range = stream.range();
    match stream {
        Stream::Source(source) if source.range.is_some() && source.group_key.is_none() => {
            Ok(Stream::Source(Source { group_key: Some(group_key), ..source }))
        }
        other => {
            let tables = other.tables(machine.session)?;
            Ok(Stream::in_memory(group_key.regroup(machine.session, tables)?, range))
        }
    }
}
