//! What the calls of a task's script add up to: `from |> range |> filter |> group |> aggregateWindow |> set |> to`.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::tz::TimeZone;
use query::plan::Aggregate;
use query::time::CalendarBins;
use query::{Interval, QueryError, Session, Value};

use super::TaskOptions;
use super::options::TASK;
use crate::arguments::Arguments;
use crate::evaluate::{Item, Machine, called};
use crate::row::RowExpr;
use crate::stream::Stream;
use crate::stream::source::Source;
use crate::stream::table::{FIELD, MEASUREMENT, START, STOP, TIME, VALUE};
use crate::syntax::ast::{Expr, ExprKind, Statement};
use crate::syntax::{FluxError, Position};

/// How tables are grouped when they are cut into windows.
#[derive(Debug, Clone, Default)]
pub(super) struct Grouped {
    /// The tags that are named; `None`: all that there are, but for `without`.
    pub(super) by: Option<Vec<String>>,
    pub(super) without: Vec<String>,
    /// True if values of several fields would be in one table.
    pub(super) merges_fields: bool,
}

/// The windows of a task.
#[derive(Debug, Clone)]
pub(super) struct TaskWindow {
    pub(super) at: Position,
    pub(super) bins: CalendarBins,
    pub(super) aggregate: Aggregate,
    /// True if a row stands where its window ends.
    pub(super) is_at_end: bool,
}

/// The pipeline of a task.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) source: Source,
    pub(super) grouped: Grouped,
    pub(super) window: TaskWindow,
    /// Values of `_measurement` and `_field`, one after the other.
    pub(super) changes: Vec<(Arc<str>, RowExpr)>,
    /// The database that it writes to.
    pub(super) bucket: String,
    pub(super) written_at: Position,
}

/// A source and what is piped from it.
#[derive(Debug, Clone)]
struct Chain {
    source: Source,
    steps: Vec<Arguments>,
}

/// A pipeline as far as its steps are read.
struct Reading<'m, 's> {
    machine: &'m mut Machine<'s>,
    period: Interval,
    source: Source,
    /// How far back each run reads.
    reach: Option<Interval>,
    grouped: Grouped,
    window: Option<TaskWindow>,
    changes: Vec<(Arc<str>, RowExpr)>,
    /// Where it writes, and the place of that.
    written: Option<(String, Position)>,
}

/// What a task may consist of, for messages.
const SHAPE: &str = "a task is from() |> range() |> filter() |> group() |> aggregateWindow() |> set() |> to()";

impl Pipeline {
    /// Reads the statements of a script, whose one pipeline ends in `to()`.
    pub(super) fn read(
        session: &dyn Session,
        statements: &[Statement],
        options: &TaskOptions,
    ) -> Result<Self, QueryError> {
        let mut machine = Machine::new(session, session.now_ns());
        let is_task = |statement: &&Statement| matches!(statement, Statement::Assign(name, _) if name == TASK);
        // The option may stand after what reads it.
        let (first, others): (Vec<&Statement>, Vec<&Statement>) = statements.iter().partition(is_task);
        first.into_iter().try_for_each(|statement| machine.statement(statement))?;
        let (mut named, mut found) = (BTreeMap::new(), None);
        for statement in others {
            match statement {
                Statement::Assign(name, expression) => match chain(&mut machine, expression, &named)? {
                    Some(chain) => drop(named.insert(name.clone(), chain)),
                    None => machine.statement(statement)?,
                },
                Statement::Expression(expression) => {
                    let read = chain(&mut machine, expression, &named)?;
                    let read =
                        read.ok_or_else(|| FluxError::new(expression.at, format!("{SHAPE}, and this is not")))?;
                    if found.replace((expression.at, read)).is_some() {
                        let message = "a task has one pipeline that writes: make a task for each";
                        return Err(FluxError::new(expression.at, message).into());
                    }
                }
                Statement::Import(..) => machine.statement(statement)?,
            }
        }
        let (at, chain) = found.ok_or_else(|| QueryError::Invalid(SHAPE.to_owned()))?;
        let mut reading = Reading {
            machine: &mut machine,
            period: options.period,
            source: chain.source,
            reach: None,
            grouped: Grouped::default(),
            window: None,
            changes: Vec::new(),
            written: None,
        };
        chain.steps.into_iter().try_for_each(|step| reading.step(step))?;
        reading.finish(at)
    }
}

/// The pipeline of an expression, if it is one.
fn chain(
    machine: &mut Machine<'_>,
    expression: &Expr,
    named: &BTreeMap<String, Chain>,
) -> Result<Option<Chain>, QueryError> {
    match &expression.kind {
        ExprKind::Name(name) => Ok(named.get(name).cloned()),
        ExprKind::Call(call) if called(call).as_deref() == Some("from") => match machine.item(expression)? {
            Item::Stream(Stream::Source(source)) => Ok(Some(Chain { source, steps: Vec::new() })),
            _ => Ok(None),
        },
        ExprKind::Pipe(from, call) => {
            let Some(mut chain) = chain(machine, from, named)? else { return Ok(None) };
            let name = called(call).unwrap_or_default();
            let values = machine.arguments(call)?;
            chain.steps.push(Arguments::new(&name, call.at, values));
            Ok(Some(chain))
        }
        _ => Ok(None),
    }
}

impl Reading<'_, '_> {
    fn step(&mut self, mut arguments: Arguments) -> Result<(), QueryError> {
        let name = arguments.function.clone();
        let (is_bounded, is_cut, is_written) = (self.reach.is_some(), self.window.is_some(), self.written.is_some());
        match name.as_str() {
            "yield" if is_written => return Ok(()),
            _ if is_written => {}
            "range" if !is_bounded => return self.range(arguments),
            // A filter after set() would see what that says.
            "filter" if !is_cut && self.changes.is_empty() => return self.filter(arguments),
            "group" if !is_cut => return self.group(arguments),
            // It changes nothing of what is written.
            "group" => return Ok(()),
            "keep" if !is_cut => return self.keep_columns(arguments),
            "drop" if !is_cut => return self.leave_out(arguments),
            "drop" => return only_bounds(&mut arguments),
            "aggregateWindow" if is_bounded && !is_cut => return self.cut(arguments),
            "set" if is_bounded => return self.set(&mut arguments),
            "map" if is_bounded => return self.map(&mut arguments),
            "to" if is_cut => return self.write(arguments),
            _ => {}
        }
        let place = match (is_written, is_cut, is_bounded) {
            (true, ..) => "after to()",
            (_, true, _) => {
                "between aggregateWindow() and to(), where there are set(), map(), group() and drop() of _start and _stop"
            }
            (.., true) => {
                "between range() and aggregateWindow(), where there are filter(), group(), keep() and drop(), and set() and map() after these"
            }
            _ => "before range()",
        };
        Ok(arguments.error(format_args!("a task does not have it {place}"))?)
    }

    fn range(&mut self, mut arguments: Arguments) -> Result<(), QueryError> {
        let now_ns = self.machine.now_ns;
        let start = arguments.take("start");
        let Some(Item::Duration(start)) = start else {
            return Ok(arguments.error("start is a duration before the run, such as -task.every")?);
        };
        let is_now = match arguments.take("stop") {
            None => true,
            Some(Item::Value(Value::Timestamp(ns))) => ns == now_ns,
            Some(Item::Duration(duration)) => duration == Interval::default(),
            Some(_) => false,
        };
        if !is_now {
            return Ok(arguments.error("stop is now() in a task: say the offset of the task instead")?);
        }
        let Some(reach) = start.checked_neg().filter(|reach| reach.approximate_ns() > 0) else {
            return Ok(arguments.error("start is before the run, such as -task.every")?);
        };
        if reach.approximate_ns() < self.period.approximate_ns() {
            return Ok(arguments.error("start is at least as long ago as the task's last run: say -task.every")?);
        }
        arguments.finish()?;
        self.reach = Some(reach);
        Ok(())
    }

    fn filter(&mut self, mut arguments: Arguments) -> Result<(), QueryError> {
        let _ = arguments.text("onEmpty")?;
        let Some(Item::Function(function)) = arguments.take("fn") else {
            return Ok(arguments.error("fn is a function of a row: (r) => …")?);
        };
        arguments.finish()?;
        let condition = self.machine.row_function(&function)?;
        self.source.filters.push(condition);
        Ok(())
    }

    fn group(&mut self, mut arguments: Arguments) -> Result<(), QueryError> {
        let columns = names(&mut arguments, "columns")?.unwrap_or_default();
        let mode = arguments.text("mode")?;
        arguments.finish()?;
        let has = |name: &str| columns.iter().any(|column| column == name);
        match mode.as_deref() {
            None | Some("by") => {
                self.grouped = Grouped { by: Some(tags(&columns)), without: Vec::new(), merges_fields: !has(FIELD) };
            }
            Some("except") if has(TIME) && has(VALUE) => {
                self.grouped = Grouped { by: None, without: tags(&columns), merges_fields: has(FIELD) };
            }
            Some("except") => return Ok(arguments.error("all but _time and _value are grouped by: name both")?),
            Some(other) => return Ok(arguments.error(format_args!("mode is \"by\" or \"except\", not {other:?}"))?),
        }
        Ok(())
    }

    fn keep_columns(&mut self, mut arguments: Arguments) -> Result<(), QueryError> {
        let columns = names(&mut arguments, "columns")?;
        let columns = arguments.required("columns", columns)?;
        arguments.finish()?;
        let has = |name: &str| columns.iter().any(|column| column == name);
        if !has(TIME) || !has(VALUE) {
            return Ok(arguments.error("a task keeps _time and _value")?);
        }
        let kept = tags(&columns);
        let is_known = |tag: &String| match &self.grouped.by {
            Some(by) => by.contains(tag),
            None => !self.grouped.without.contains(tag),
        };
        self.grouped.by = Some(kept.into_iter().filter(is_known).collect());
        self.grouped.without.clear();
        self.grouped.merges_fields |= !has(FIELD);
        Ok(())
    }

    fn leave_out(&mut self, mut arguments: Arguments) -> Result<(), QueryError> {
        let columns = names(&mut arguments, "columns")?;
        let columns = arguments.required("columns", columns)?;
        arguments.finish()?;
        let has = |name: &str| columns.iter().any(|column| column == name);
        if has(TIME) || has(VALUE) {
            return Ok(arguments.error("a task keeps _time and _value")?);
        }
        match &mut self.grouped.by {
            Some(by) => by.retain(|tag| !columns.contains(tag)),
            None => self.grouped.without.extend(tags(&columns)),
        }
        self.grouped.without.sort();
        self.grouped.without.dedup();
        self.grouped.merges_fields |= has(FIELD);
        Ok(())
    }

    fn cut(&mut self, mut arguments: Arguments) -> Result<(), QueryError> {
        let every = arguments.duration("every")?;
        let every = arguments.required("every", every)?;
        let is_positive = every.months >= 0 && every.ns >= 0 && every.approximate_ns() >= 1_000_000_000;
        if !is_positive || (every.months > 0 && every.ns > 0) {
            return Ok(arguments.error("every is a second or longer, of months or of shorter units")?);
        }
        if arguments.duration("period")?.is_some_and(|period| period != every) {
            return Ok(arguments.error("windows that overlap (period other than every) are not supported")?);
        }
        let offset = arguments.duration("offset")?.unwrap_or_default();
        let Some(origin_ns) = query::time::add(0, offset, &TimeZone::UTC) else {
            return Ok(arguments.error("the offset is too long")?);
        };
        let aggregate = aggregate(&mut arguments)?;
        let is_of = |given: Option<String>, usual: &str| given.is_none_or(|given| given == usual);
        if !is_of(arguments.text("column")?, VALUE) || !is_of(arguments.text("timeDst")?, TIME) {
            return Ok(arguments.error("column is _value and timeDst is _time in a task")?);
        }
        let is_at_end = match arguments.text("timeSrc")?.as_deref() {
            None | Some(STOP) => true,
            Some(START) => false,
            Some(_) => return Ok(arguments.error("timeSrc is _stop or _start")?),
        };
        if arguments.flag("createEmpty", true)? && aggregate == Aggregate::Count {
            // It would write a zero for each window in which a series has nothing, without end.
            return Ok(arguments.error("counts of empty windows are not written: say createEmpty: false")?);
        }
        let reach_ns = self.reach.map_or(0, Interval::approximate_ns);
        if reach_ns < every.approximate_ns() {
            return Ok(arguments.error("every is longer than range() reads: its windows would never be whole")?);
        }
        let is_merged = self.grouped.by.is_some() || !self.grouped.without.is_empty();
        if is_merged && matches!(aggregate, Aggregate::First | Aggregate::Last) {
            let message = "first and last are of each series: of several of one time it is not known which counts";
            return Ok(arguments.error(message)?);
        }
        arguments.finish()?;
        let bins = CalendarBins::new(every, origin_ns, TimeZone::UTC);
        self.window = Some(TaskWindow { at: arguments.at, bins, aggregate, is_at_end });
        Ok(())
    }

    fn set(&mut self, arguments: &mut Arguments) -> Result<(), QueryError> {
        let (key, value) = (arguments.text("key")?, arguments.text("value")?);
        let (key, value) = (arguments.required("key", key)?, arguments.required("value", value)?);
        arguments.finish()?;
        self.change(arguments, key.as_str().into(), RowExpr::Constant(Value::text(value)))
    }

    fn map(&mut self, arguments: &mut Arguments) -> Result<(), QueryError> {
        let Some(Item::Function(function)) = arguments.take("fn") else {
            return Ok(arguments.error("fn is a function of a row: (r) => ({r with _measurement: \"…\"})")?);
        };
        arguments.finish()?;
        let record = self.machine.row_record(&function)?;
        if !record.is_with {
            return Ok(arguments.error("the function gives ({r with …}) in a task")?);
        }
        // All are of the row as it was before.
        let [mut measurement, mut field] = [None, None];
        for (name, value) in record.members {
            match &*name {
                MEASUREMENT => measurement = Some(value),
                FIELD => field = Some(value),
                _ => return self.change(arguments, name, value),
            }
        }
        if measurement.is_some() && field.is_some() {
            return Ok(arguments.error("it changes _measurement or _field: write a map() for each")?);
        }
        let changes = [(MEASUREMENT, measurement), (FIELD, field)];
        self.changes.extend(changes.into_iter().filter_map(|(name, value)| Some((name.into(), value?))));
        Ok(())
    }

    fn change(&mut self, arguments: &Arguments, name: Arc<str>, value: RowExpr) -> Result<(), QueryError> {
        if ![MEASUREMENT, FIELD].contains(&&*name) {
            let message = format!("a task sets _measurement and _field to what is constant, and not {name:?}");
            return Ok(arguments.error(message)?);
        }
        self.changes.push((name, value));
        Ok(())
    }

    fn write(&mut self, mut arguments: Arguments) -> Result<(), QueryError> {
        let bucket = arguments.text("bucket")?;
        let bucket = arguments.required("bucket", bucket)?;
        let (_, _) = (arguments.text("org")?, arguments.text("orgID")?);
        arguments.finish()?;
        let database = bucket.split_once('/').map_or(bucket.as_str(), |(database, _)| database).to_owned();
        self.written = Some((database, arguments.at));
        Ok(())
    }

    fn finish(self, at: Position) -> Result<Pipeline, QueryError> {
        let (Some(window), Some((bucket, written_at))) = (self.window, self.written) else {
            return Err(FluxError::new(at, format!("{SHAPE}: this one has no aggregateWindow() or no to()")).into());
        };
        let Self { source, grouped, changes, .. } = self;
        Ok(Pipeline { source, grouped, window, changes, bucket, written_at })
    }
}

/// The aggregate that a window's function is.
fn aggregate(arguments: &mut Arguments) -> Result<Aggregate, FluxError> {
    let known = "fn is count, sum, mean, min, max, first, last, median or stddev in a task";
    let Some(Item::Builtin(name)) = arguments.take("fn") else { return arguments.error(known) };
    let found = Aggregate::of_influx_function(name.as_str());
    found.map_or_else(|| arguments.error(format_args!("{known}, not {}", name.as_str())), Ok)
}

/// Leaves out the bounds of windows, which are not written anyway.
fn only_bounds(arguments: &mut Arguments) -> Result<(), QueryError> {
    let columns = names(arguments, "columns")?;
    let columns = arguments.required("columns", columns)?;
    arguments.finish()?;
    if columns.iter().all(|column| [START, STOP].contains(&column.as_str())) {
        return Ok(());
    }
    Ok(arguments.error("a task drops tags before aggregateWindow(), so that their series are aggregated together")?)
}

fn names(arguments: &mut Arguments, name: &str) -> Result<Option<Vec<String>>, FluxError> {
    Ok(arguments.names(name)?.map(|names| names.iter().map(|name| String::from(&**name)).collect()))
}

/// Those of some columns that are tags.
fn tags(columns: &[String]) -> Vec<String> {
    let is_tag = |column: &&String| ![TIME, VALUE, START, STOP, FIELD, MEASUREMENT].contains(&column.as_str());
    let mut tags: Vec<String> = columns.iter().filter(is_tag).cloned().collect();
    tags.sort();
    tags.dedup();
    tags
}
