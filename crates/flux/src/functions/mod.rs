//! Functions of a pipeline.

mod aggregate;
mod change;
mod pivot;
mod shape;
mod window;

use query::QueryError;

use crate::arguments::Arguments;
use crate::evaluate::Machine;
use crate::stream::Stream;
use crate::syntax::{FluxError, Position};

/// All of them.
pub(crate) const NAMES: [&str; 42] = [
    "aggregateWindow",
    "bottom",
    "count",
    "cumulativeSum",
    "derivative",
    "difference",
    "distinct",
    "drop",
    "duplicate",
    "fill",
    "filter",
    "first",
    "group",
    "increase",
    "keep",
    "last",
    "limit",
    "map",
    "max",
    "mean",
    "median",
    "min",
    "movingAverage",
    "pivot",
    "quantile",
    "range",
    "rename",
    "set",
    "sort",
    "spread",
    "stddev",
    "sum",
    "tail",
    "toBool",
    "toFloat",
    "toInt",
    "toString",
    "toTime",
    "toUInt",
    "top",
    "window",
    "yield",
];

/// The error of a function that there is not.
pub(crate) fn not_supported(name: &str, at: Position) -> FluxError {
    let known = NAMES.join(", ");
    FluxError::new(
        at,
        format!("the function {name} is not supported: tables come from from() and union(), and are piped to {known}"),
    )
}

/// What a function makes of the tables that are piped to it.
pub(crate) fn apply(machine: &mut Machine<'_>, stream: Stream, mut arguments: Arguments) -> Result<Stream, QueryError> {
    let name = arguments.function.clone();
    let session = machine.session;
    session.budget().check()?;
    match name.as_str() {
        "range" => return shape::range(machine, stream, arguments),
        "filter" => return shape::filter(machine, stream, arguments),
        "group" => return shape::group(machine, stream, arguments),
        "yield" => {
            let result = arguments.text("name")?.unwrap_or_else(|| "_result".to_owned());
            arguments.finish()?;
            return machine.give(arguments.at, &result, stream);
        }
        "aggregateWindow" => return window::aggregate_window(machine, stream, arguments),
        "count" | "sum" | "mean" | "min" | "max" | "first" | "last" | "median" | "quantile" | "stddev" | "spread"
        | "distinct" => return aggregate::aggregate(machine, stream, arguments),
        _ => {}
    }
    if !NAMES.contains(&name.as_str()) {
        return Err(not_supported(&name, arguments.at).into());
    }
    let range = stream.range();
    let tables = stream.tables(session)?;
    let tables = match name.as_str() {
        "window" => window::window(machine, (tables, range), arguments)?,
        "pivot" => pivot::pivot(session, tables, arguments)?,
        "map" => change::map(machine, tables, arguments)?,
        "fill" => change::fill(tables, arguments)?,
        "derivative" => change::derivative(tables, arguments)?,
        "difference" | "increase" => change::difference(tables, arguments)?,
        "cumulativeSum" => change::cumulative_sum(tables, arguments)?,
        "movingAverage" => change::moving_average(tables, arguments)?,
        "toBool" | "toFloat" | "toInt" | "toString" | "toTime" | "toUInt" => change::convert(tables, &arguments)?,
        "limit" | "tail" | "sort" | "top" | "bottom" => shape::rows(tables, arguments)?,
        _ => shape::columns(machine, tables, arguments)?,
    };
    Ok(Stream::in_memory(tables, range))
}
