//! Tasks: scripts that aggregate the windows of a measurement and write them, as continuous queries.
//!
//! * `options`: what `option task` says · `pipeline`: what the calls of a script add up to · this file: a script as a definition of a view

mod options;
mod pipeline;

pub use options::{TaskOptionChanges, TaskOptions};

use model::ValueType;
use query::plan::{Aggregate, AggregateCall, Expression, Grouping};
use query::views::{Dialect, RefreshPolicy, TaskRecord, ViewDefinition, ViewOptions, ViewOutput, WindowWidth};
use query::{Plan, QueryError, Session, Value};

use crate::stream::source::TableRead;
use crate::stream::table::{FIELD, MEASUREMENT};
use crate::syntax::ast::Statement;
use crate::syntax::{FluxError, parse};
use pipeline::{Grouped, Pipeline, TaskWindow};

/// A task's script.
#[derive(Debug)]
pub struct TaskScript {
    statements: Vec<Statement>,
    text: String,
    options: TaskOptions,
}

impl TaskScript {
    /// Reads a script and its options; what its calls are is looked at when it becomes a definition.
    ///
    /// # Errors
    /// If it cannot be read, or has no option `task` that can be kept to.
    pub fn parse(text: &str) -> Result<Self, FluxError> {
        let statements = parse::parse(text)?;
        let options = TaskOptions::of_statements(&statements)?;
        Ok(Self { statements, text: text.to_owned(), options })
    }

    /// What `option task` says.
    pub const fn options(&self) -> &TaskOptions {
        &self.options
    }

    /// The continuous query of a name that it is.
    ///
    /// # Errors
    /// If one of its calls cannot be part of a task, with the call's name and place; if what it reads does not exist.
    pub fn definition(&self, session: &dyn Session, name: &str) -> Result<ViewDefinition, QueryError> {
        let pipeline = Pipeline::read(session, &self.statements, &self.options)?;
        let read = pipeline.source.of_one_table(session)?;
        let window = &pipeline.window;
        if pipeline.grouped.merges_fields && read.fields.len() > 1 {
            let message = "its tables are of several fields: filter by _field, or group by _field too";
            return Err(FluxError::new(window.at, message).into());
        }
        let outputs = outputs(&pipeline, &read)?;
        let target = outputs.first().map(|output| output.measurement.clone()).unwrap_or_default();
        if outputs.iter().any(|output| output.measurement != target) {
            return Err(FluxError::new(pipeline.written_at, "it writes one measurement").into());
        }
        let database = pipeline.source.database.clone();
        let into = (pipeline.bucket != database).then(|| pipeline.bucket.clone());
        let schedule = schedule(window, &self.options);
        let Grouped { by, without, .. } = pipeline.grouped.clone();
        let calls = outputs.iter().map(|output| output.call.clone()).collect();
        Ok(ViewDefinition {
            name: name.to_owned(),
            database,
            target,
            output: ViewOutput { database: into, is_at_end: window.is_at_end, without },
            time_name: "time".to_owned(),
            plan: plan(read.input, window, (calls, by), &outputs),
            windows: WindowWidth {
                width: window.bins.width(),
                origin_ns: window.bins.origin_ns(),
                zone: "UTC".to_owned(),
            },
            fields: outputs.into_iter().map(|output| (output.field, output.value_type)).collect(),
            options: ViewOptions { refresh: schedule, lag_ns: Some(self.options.offset_ns), ..ViewOptions::default() },
            maker: String::new(),
            statement: self.text.clone(),
            dialect: Dialect::Flux,
            task: Some(TaskRecord { schedule, ..TaskRecord::default() }),
        })
    }
}

/// A field that is written.
struct Output {
    measurement: String,
    field: String,
    value_type: ValueType,
    call: AggregateCall,
}

/// How often windows are computed: as soon as they are over, unless the task runs less often.
fn schedule(window: &TaskWindow, options: &TaskOptions) -> RefreshPolicy {
    let (period_ns, width_ns) = (options.period.approximate_ns(), window.bins.width().approximate_ns());
    match i64::try_from(period_ns) {
        Ok(every_ns) if period_ns > width_ns => RefreshPolicy::Every(every_ns),
        _ => RefreshPolicy::Immediate,
    }
}

fn outputs(pipeline: &Pipeline, read: &TableRead) -> Result<Vec<Output>, QueryError> {
    let TaskWindow { at, aggregate, .. } = &pipeline.window;
    let mut outputs: Vec<Output> = Vec::with_capacity(read.fields.len());
    for (of, value_type) in &read.fields {
        let is_number = matches!(value_type, ValueType::F64 | ValueType::I64 | ValueType::U64);
        if !is_number && !matches!(aggregate, Aggregate::Count | Aggregate::First | Aggregate::Last) {
            let message = format!(
                "aggregateWindow(): {} is of numbers, and the field {of:?} has none: filter by _field",
                aggregate.name()
            );
            return Err(FluxError::new(*at, message).into());
        }
        let (mut measurement, mut field) = (read.table.clone(), of.clone());
        for (name, change) in &pipeline.changes {
            let known = |column: &str| match column {
                MEASUREMENT => Some(Value::text(measurement.as_str())),
                FIELD => Some(Value::text(field.as_str())),
                _ => None,
            };
            let Value::Text(text) = change.with_known(&known).value(&|_| Value::Null)? else {
                let message = format!("{name} becomes a text made of constants, _measurement and _field");
                return Err(FluxError::new(pipeline.written_at, message).into());
            };
            let changed = if &**name == MEASUREMENT { &mut measurement } else { &mut field };
            *changed = text.to_string();
        }
        if let Some(other) = outputs.iter().find(|other| other.field == field) {
            let message =
                format!("two fields would be written as {:?}: name them by r._field + \"_mean\"", other.field);
            return Err(FluxError::new(pipeline.written_at, message).into());
        }
        let value_type = match aggregate {
            Aggregate::Count => ValueType::I64,
            Aggregate::Sum | Aggregate::Min | Aggregate::Max | Aggregate::First | Aggregate::Last => *value_type,
            _ => ValueType::F64,
        };
        let call = AggregateCall::of_column(*aggregate, of.as_str());
        outputs.push(Output { measurement, field, value_type, call });
    }
    Ok(outputs)
}

/// The plan of a view: columns of groups of what is read.
fn plan(
    input: Plan,
    window: &TaskWindow,
    (aggregates, by): (Vec<AggregateCall>, Option<Vec<String>>),
    outputs: &[Output],
) -> Plan {
    // The windows of the view take the place of these.
    let (width_ns, offset_ns) = window
        .bins
        .equal_bins()
        .unwrap_or_else(|| (i64::try_from(window.bins.width().approximate_ns()).unwrap_or(i64::MAX), 0));
    let grouping = Grouping { width_ns: Some(width_ns), offset_ns, aggregates, by, undated: false };
    let grouped = Plan::GroupBy { input: Box::new(input), grouping };
    let column = |output: &Output| (output.field.clone(), Expression::Column(output.call.column_name()));
    Plan::Map { input: Box::new(grouped), columns: outputs.iter().map(column).collect() }
}
