//! Functions that make one row, or a few, of all rows of a table.

use query::{QueryError, Session, Value, plan};

use crate::arguments::Arguments;
use crate::evaluate::Machine;
use crate::row::{compare, number_of, type_name};
use crate::stream::Stream;
use crate::stream::plan_function::PlanFunction;
use crate::stream::source::{PlanAggregate, Source};
use crate::stream::table::{Column, TIME, Table, VALUE};
use crate::syntax::{FluxError, Position};

/// Functions of the values of a column.
#[derive(Debug, Clone, PartialEq)]
enum Aggregate {
    Count,
    Sum,
    Mean,
    Min,
    Max,
    First,
    Last,
    Quantile(f64, Method),
    Stddev { is_sample: bool },
    Spread,
    Distinct,
}

/// How a quantile is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Method {
    /// Between two values, in proportion.
    Mean,
    /// The row of a value.
    Selector,
}

/// The plan's function of a function of Flux that is called without arguments, if it has one.
pub(super) fn plan_function(name: &str, at: Position) -> Option<PlanFunction> {
    read(name, &mut Arguments::new(name, at, Vec::new())).ok()?.in_plan()
}

/// `mean(column)` and the like.
pub(super) fn aggregate(machine: &Machine<'_>, stream: Stream, mut arguments: Arguments) -> Result<Stream, QueryError> {
    let name = arguments.function.clone();
    let aggregate = read(&name, &mut arguments)?;
    let column = arguments.text("column")?.unwrap_or_else(|| VALUE.to_owned());
    arguments.finish()?;
    let range = stream.range();
    if let Stream::Source(source) = &stream
        && column == VALUE
        && let Some(tables) = in_plan(machine.session, source, &aggregate)?
    {
        return Ok(Stream::in_memory(tables, range));
    }
    let tables = stream.tables(machine.session)?;
    let made = tables.into_iter().map(|table| of_table(table, &aggregate, (&column, &arguments)));
    Ok(Stream::in_memory(made.collect::<Result<_, _>>()?, range))
}

/// The aggregate of each table, made by plans; `None` if they cannot.
fn in_plan(session: &dyn Session, source: &Source, aggregate: &Aggregate) -> Result<Option<Vec<Table>>, QueryError> {
    if let Aggregate::First | Aggregate::Last = aggregate {
        return source.ends(session, *aggregate == Aggregate::Last);
    }
    // Of a row that is chosen the time is shown, too.
    let Some(function) = aggregate.in_plan().filter(|function| !function.is_selector()) else { return Ok(None) };
    let mut made = source.aggregates(session, PlanAggregate { function, bins: None })?;
    made.iter_mut().flatten().for_each(|table| table.remove(TIME));
    Ok(made)
}

fn read(name: &str, arguments: &mut Arguments) -> Result<Aggregate, FluxError> {
    Ok(match name {
        "count" => Aggregate::Count,
        "sum" => Aggregate::Sum,
        "mean" => Aggregate::Mean,
        "min" => Aggregate::Min,
        "max" => Aggregate::Max,
        "first" => Aggregate::First,
        "last" => Aggregate::Last,
        "spread" => Aggregate::Spread,
        "distinct" => Aggregate::Distinct,
        "stddev" => match arguments.text("mode")?.as_deref() {
            None | Some("sample") => Aggregate::Stddev { is_sample: true },
            Some("population") => Aggregate::Stddev { is_sample: false },
            Some(other) => {
                return arguments.error(format_args!("mode is \"sample\" or \"population\", not {other:?}"));
            }
        },
        _ => {
            let share = if name == "median" {
                0.5
            } else {
                let share = arguments.number("q")?;
                arguments.required("q", share)?
            };
            if !(0.0..=1.0).contains(&share) {
                return arguments.error("q is a number from 0.0 to 1.0");
            }
            // How closely an estimate is computed means nothing to an exact one.
            arguments.number("compression")?;
            let method = match arguments.text("method")?.as_deref() {
                None | Some("estimate_tdigest" | "exact_mean") => Method::Mean,
                Some("exact_selector") => Method::Selector,
                Some(other) => return arguments.error(format_args!("the method {other:?} is not known")),
            };
            Aggregate::Quantile(share, method)
        }
    })
}

/// The aggregate of a table.
fn of_table(
    mut table: Table,
    aggregate: &Aggregate,
    (column, arguments): (&str, &Arguments),
) -> Result<Table, FluxError> {
    let Some(place) = table.column(column) else {
        if table.rows.is_empty() {
            return Ok(table);
        }
        return arguments.error(format_args!("no column {column:?} exists"));
    };
    let kind = table.columns.get(place).map_or("null", |column| column.kind);
    let value = |row: &Vec<Value>| row.get(place).cloned().unwrap_or(Value::Null);
    if aggregate.is_selector() {
        table.rows = match chosen_row(&table, aggregate, place) {
            Some(row) => table.rows.drain(row..=row).collect(),
            None => Vec::new(),
        };
        return Ok(table);
    }
    let values: Vec<Value> = table.rows.iter().map(value).collect();
    if *aggregate == Aggregate::Distinct {
        let mut distinct: Vec<Value> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for value in values {
            if seen.insert(format!("{}{value}", type_name(&value))) {
                distinct.push(value);
            }
        }
        let rows = distinct.into_iter().map(|value| vec![value]).collect();
        return Ok(Table { key: table.key, columns: vec![Column::new(VALUE, kind)], rows });
    }
    let is_number = matches!(kind, "double" | "long" | "unsignedLong" | "null");
    if *aggregate != Aggregate::Count && !is_number {
        return arguments.error(format_args!("unsupported aggregate column type {kind}"));
    }
    let made = computed(aggregate, &values);
    let kind = match aggregate {
        Aggregate::Count => "long",
        Aggregate::Sum | Aggregate::Spread if kind != "null" => kind,
        _ => "double",
    };
    Ok(Table { key: table.key, columns: vec![Column::new(column, kind)], rows: vec![vec![made]] })
}

impl Aggregate {
    /// The plan's function, if it has one.
    const fn in_plan(&self) -> Option<PlanFunction> {
        Some(match self {
            Self::Count => PlanFunction::One(plan::Aggregate::Count),
            Self::Sum => PlanFunction::One(plan::Aggregate::Sum),
            Self::Mean => PlanFunction::One(plan::Aggregate::Avg),
            Self::Min => PlanFunction::One(plan::Aggregate::Min),
            Self::Max => PlanFunction::One(plan::Aggregate::Max),
            Self::First => PlanFunction::One(plan::Aggregate::First),
            Self::Last => PlanFunction::One(plan::Aggregate::Last),
            Self::Quantile(share, Method::Mean) => PlanFunction::One(plan::Aggregate::Quantile(*share)),
            Self::Stddev { is_sample: true } => PlanFunction::StddevSample,
            Self::Stddev { is_sample: false } => PlanFunction::One(plan::Aggregate::Stddev),
            Self::Spread => PlanFunction::Spread,
            Self::Quantile(_, Method::Selector) | Self::Distinct => return None,
        })
    }

    /// Returns whether it chooses a row.
    const fn is_selector(&self) -> bool {
        matches!(self, Self::First | Self::Last | Self::Min | Self::Max | Self::Quantile(_, Method::Selector))
    }
}

/// The row that a selector chooses, if there is a value.
fn chosen_row(table: &Table, aggregate: &Aggregate, place: usize) -> Option<usize> {
    let mut values = table
        .rows
        .iter()
        .enumerate()
        .filter_map(|(row, values)| Some((row, values.get(place)?)))
        .filter(|(_, value)| !value.is_null());
    let chosen = match aggregate {
        Aggregate::First => values.next(),
        Aggregate::Last => values.next_back(),
        Aggregate::Min | Aggregate::Max => {
            // Of equal ones the first.
            values.reduce(|best, next| {
                let order = compare(next.1, best.1);
                let wins =
                    order.is_some_and(|order| if *aggregate == Aggregate::Min { order.is_lt() } else { order.is_gt() });
                if wins { next } else { best }
            })
        }
        Aggregate::Quantile(share, Method::Selector) => {
            let mut sorted: Vec<(usize, &Value)> = values.collect();
            sorted.sort_by(|a, b| a.1.sort_order(b.1));
            let index = (share * sorted.len() as f64).ceil() as usize;
            sorted.get(index.saturating_sub(1)).copied()
        }
        _ => None,
    };
    chosen.map(|(row, _)| row)
}

fn computed(aggregate: &Aggregate, values: &[Value]) -> Value {
    if *aggregate == Aggregate::Count {
        return Value::Int(values.len() as i64);
    }
    let mut numbers: Vec<f64> = values.iter().filter_map(number_of).collect();
    if numbers.is_empty() {
        return Value::Null;
    }
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    match aggregate {
        Aggregate::Sum => sum(values, &numbers),
        Aggregate::Stddev { is_sample } => {
            let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
            let divisor = if *is_sample { count - 1.0 } else { count };
            Value::Float((squares / divisor).sqrt())
        }
        Aggregate::Spread => {
            let ordered = |is_wanted: fn(std::cmp::Ordering) -> bool| {
                values
                    .iter()
                    .filter(|value| !value.is_null())
                    .reduce(|best, next| if compare(next, best).is_some_and(is_wanted) { next } else { best })
            };
            match (ordered(std::cmp::Ordering::is_gt), ordered(std::cmp::Ordering::is_lt)) {
                (Some(Value::Int(most)), Some(Value::Int(least))) => Value::Int(most.wrapping_sub(*least)),
                (Some(Value::Unsigned(most)), Some(Value::Unsigned(least))) => {
                    Value::Unsigned(most.wrapping_sub(*least))
                }
                (Some(most), Some(least)) => {
                    Value::Float(number_of(most).unwrap_or(0.0) - number_of(least).unwrap_or(0.0))
                }
                _ => Value::Null,
            }
        }
        Aggregate::Quantile(share, _) => {
            query::statistics::sort(&mut numbers);
            query::statistics::quantile(&numbers, *share).map_or(Value::Null, Value::Float)
        }
        _ => Value::Float(mean),
    }
}

fn sum(values: &[Value], numbers: &[f64]) -> Value {
    match values.iter().find(|value| !value.is_null()) {
        Some(Value::Int(_)) => Value::Int(values.iter().fold(0, |sum: i64, value| match value {
            Value::Int(value) => sum.wrapping_add(*value),
            _ => sum,
        })),
        Some(Value::Unsigned(_)) => Value::Unsigned(values.iter().fold(0, |sum: u64, value| match value {
            Value::Unsigned(value) => sum.wrapping_add(*value),
            _ => sum,
        })),
        _ => Value::Float(numbers.iter().sum()),
    }
}
