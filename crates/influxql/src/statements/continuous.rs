//! Continuous queries: views whose windows are rows of a measurement like any other.

use query::plan::{Expression, Grouping, Operator as PlanOperator};
use query::views::{Dialect, RefreshPolicy, ViewDefinition, ViewOptions, ViewOutput, WindowWidth};
use query::{Plan, QueryError, Session, Value};

use crate::resolve::selection::{Code, Resolved};
use crate::resolve::{self, Outer};
use crate::select::plan_aggregates;
use crate::select::plan_calls::PlanCall;
use crate::statements::request::existing;
use crate::syntax::ast::{ContinuousQuery, Dimension, Operator, Select, Target};
use crate::syntax::duration;
use crate::value::DataType;

/// `CREATE CONTINUOUS QUERY`
pub(super) fn create(session: &dyn Session, query: &ContinuousQuery) -> Result<(), QueryError> {
    let database = &query.database;
    existing(&session.databases(), database)?;
    let definition = definition(session, query)?;
    if let Some(known) = session.view(database, &query.name)? {
        // As InfluxDB: the same one again is no error.
        let is_same = known.definition.statement == definition.statement;
        let message = format!("continuous query already exists: {}", query.name);
        return if is_same { Ok(()) } else { Err(QueryError::Invalid(message)) };
    }
    session.create_view(definition)
}

/// `DROP CONTINUOUS QUERY`
pub(super) fn remove(session: &dyn Session, database: &str, name: &str) -> Result<(), QueryError> {
    existing(&session.databases(), database)?;
    let view = session.view(database, name)?;
    match view.filter(|view| view.definition.dialect == Dialect::InfluxQl) {
        Some(_) => session.drop_view(database, name).map(drop),
        None => Err(QueryError::Invalid(format!("continuous query not found: {name}"))),
    }
}

fn definition(session: &dyn Session, query: &ContinuousQuery) -> Result<ViewDefinition, QueryError> {
    let invalid = |message: &str| QueryError::Invalid(format!("continuous query {}: {message}", query.name));
    let select = &*query.select;
    let Some(target) = &select.into else { return Err(invalid("it must have INTO")) };
    let Some(measurement) = &target.measurement else {
        return Err(invalid("INTO names a measurement; :MEASUREMENT is not supported"));
    };
    let database = target_database(session, &query.database, target)?;
    // What it says of the time is ignored, as in InfluxDB; nothing is filled.
    let wanted = Select { into: None, fill: None, ..select.clone() };
    let resolved = resolve::resolve(session, &wanted, &Outer::statement(&query.database))?;
    let Some(windows) = resolved.windows.clone() else { return Err(invalid("it must have GROUP BY time(…)")) };
    let plans = plan_aggregates::plans(session, &resolved)?;
    let Some([(source, _, plan)]) = plans.as_deref() else {
        let message = "it has count, sum, mean, median, stddev, spread, min, max, count(distinct()), approx_percentile, approx_count_distinct, and first and last where series stay apart, of the fields of one measurement that has rows";
        return Err(invalid(message));
    };
    if *source != query.database {
        return Err(invalid("it reads its own database"));
    }
    let zone = windows.zone_name().ok_or_else(|| invalid("its zone has no name"))?;
    let plan = if select.dimensions.contains(&Dimension::Wildcard) { by_all_tags(plan.clone()) } else { plan.clone() };
    let (width_ns, columns) = (windows.width().ns, columns(&resolved, &invalid)?);
    if let Some(for_ns) = query.for_ns.filter(|for_ns| *for_ns < width_ns.max(query.every_ns.unwrap_or(0))) {
        let (least, got) = (width_ns.max(query.every_ns.unwrap_or(0)), for_ns);
        let message = format!(
            "FOR duration must be >= GROUP BY time duration: must be a minimum of {} got {}",
            duration::text(least),
            duration::text(got)
        );
        return Err(QueryError::Invalid(message));
    }
    let fields = columns.iter().map(|(name, _, value_type)| (name.clone(), *value_type)).collect();
    let columns = columns.into_iter().map(|(name, of, _)| (name, of)).collect();
    let refresh = query.every_ns.map_or(RefreshPolicy::Immediate, RefreshPolicy::Every);
    Ok(ViewDefinition {
        name: query.name.clone(),
        database: query.database.clone(),
        target: measurement.clone(),
        time_name: "time".to_owned(),
        output: ViewOutput { database, ..ViewOutput::default() },
        plan: Plan::Map { input: Box::new(of_all_times(plan)), columns },
        windows: WindowWidth { width: windows.width(), origin_ns: windows.origin_ns(), zone },
        fields,
        options: ViewOptions { refresh, lag_ns: Some(0), ..ViewOptions::default() },
        maker: String::new(),
        statement: query.to_string(),
        dialect: Dialect::InfluxQl,
        task: None,
    })
}

/// The database that a query of one writes into, if it is another one. A retention policy is a database here, but for the one that every
/// database has; beside another database's name it says nothing.
fn target_database(session: &dyn Session, own: &str, target: &Target) -> Result<Option<String>, QueryError> {
    let is_default = |policy: &str| ["", "autogen", "default"].contains(&policy);
    let policy = target.policy.as_deref().filter(|policy| !is_default(policy));
    let named = target.database.as_deref().filter(|database| *database != own && !database.is_empty());
    let Some(into) = named.or(policy).filter(|into| *into != own) else { return Ok(None) };
    if session.databases().iter().any(|database| database == into) {
        return Ok(Some(into.to_owned()));
    }
    Err(QueryError::Invalid(match named {
        Some(database) => format!("database not found: {database}"),
        None => format!(
            "retention policy not found: {into}: make a database of this name that keeps its rows as long as the policy should, and INTO \
             {into:?} writes there"
        ),
    }))
}

/// A plan whose rows are grouped by all tags that there are whenever it is computed.
fn by_all_tags(plan: Plan) -> Plan {
    match plan {
        Plan::GroupBy { input, grouping } => Plan::GroupBy { input, grouping: Grouping { by: None, ..grouping } },
        other => other,
    }
}

/// The columns of the answer by the plan's, and their types.
fn columns(
    resolved: &Resolved,
    invalid: &dyn Fn(&str) -> QueryError,
) -> Result<Vec<(String, Expression, model::ValueType)>, QueryError> {
    let mut columns = Vec::with_capacity(resolved.columns.len());
    for column in &resolved.columns {
        let value_type = match column.data_type {
            DataType::Float => model::ValueType::F64,
            DataType::Integer => model::ValueType::I64,
            DataType::Unsigned => model::ValueType::U64,
            DataType::Boolean => model::ValueType::Bool,
            _ => model::ValueType::String,
        };
        let is_call = matches!(column.code, Code::Call(_));
        if !is_call && value_type != model::ValueType::F64 {
            return Err(invalid("what it computes of aggregates are floats"));
        }
        let expression = expression(&column.code, resolved);
        let expression = expression.ok_or_else(|| invalid("it computes with + - * / of aggregates and numbers"))?;
        columns.push((column.name.clone(), expression, value_type));
    }
    Ok(columns)
}

fn expression(code: &Code, resolved: &Resolved) -> Option<Expression> {
    match code {
        Code::Call(place) => PlanCall::new(resolved.calls.get(*place)?).map(|call| call.expression()),
        Code::Value(Value::Float(number)) => Some(Expression::Float(*number)),
        Code::Value(Value::Int(number)) => Some(Expression::Integer(*number)),
        Code::Binary(operator, left, right) => {
            let operator = match operator {
                Operator::Add => PlanOperator::Add,
                Operator::Subtract => PlanOperator::Subtract,
                Operator::Multiply => PlanOperator::Multiply,
                Operator::Divide => PlanOperator::Divide,
                _ => return None,
            };
            Some(Expression::Apply(operator, vec![expression(left, resolved)?, expression(right, resolved)?]))
        }
        _ => None,
    }
}

/// A plan of rows of any time.
fn of_all_times(plan: Plan) -> Plan {
    let of = |input: Box<Plan>| Box::new(of_all_times(*input));
    match plan {
        Plan::Scan(scan) => Plan::Scan(query::plan::Scan { range: model::TimeRange::ALL, ..scan }),
        Plan::Where { input, condition } => Plan::Where { input: of(input), condition },
        Plan::GroupBy { input, grouping } => Plan::GroupBy { input: of(input), grouping },
        other => other,
    }
}
