//! What DataFusion may do for a statement, and the tables that it finds.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use chrono::DateTime;
use datafusion::arrow::datatypes::{FieldRef, Schema};
use datafusion::common::config::Dialect;
use datafusion::common::{DataFusionError, ScalarValue};
use datafusion::execution::context::SQLOptions;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::prelude::{SessionConfig, SessionContext};
use query::arrow::SchemaRef;
use query::{Budget, QueryError, Session, Value};

use crate::memory::BudgetPool;
use crate::table::{ScanRequest, Table};
use crate::{SqlQuery, SqlQueryError};

/// One statement and what it runs in.
pub(crate) struct Statement {
    pub(crate) state: SessionState,
    pub(crate) pool: Arc<BudgetPool>,
    query: SqlQuery,
}

impl Statement {
    /// Reads the statement and looks its tables up. DataFusion reports those that do not exist when it plans the statement.
    pub(crate) fn new(
        query: &SqlQuery,
        session: &dyn Session,
        budget: &Arc<Budget>,
        requests: &Sender<ScanRequest>,
    ) -> Result<Self, SqlQueryError> {
        let pool = Arc::new(BudgetPool::new(budget.clone()));
        let planner = planner(pool.clone()).map_err(|error| of_datafusion(&error))?;
        let mut state = planner.state();
        let statement =
            state.sql_to_statement(&query.text, &Dialect::PostgreSQL).map_err(|error| of_datafusion(&error))?;
        let references = state.resolve_table_references(&statement).map_err(|error| of_datafusion(&error))?;
        for reference in references {
            if let Some(schema) = session.table(&query.database, reference.table())? {
                let table = Table::new(&schema, query.time_name, requests.clone(), budget.clone());
                planner.register_table(reference, Arc::new(table)).map_err(|error| of_datafusion(&error))?;
            } else if session.stored_query(&query.database, reference.table())?.is_some() {
                return Err(SqlQueryError::Statement(format!(
                    "a statement beyond the built-in SQL reads no views such as {:?}: write the view's query into it",
                    reference.table()
                )));
            }
        }
        let now = DateTime::from_timestamp_nanos(query.now_ns);
        *state.execution_props_mut() = ExecutionProps::new().with_query_execution_start_time(now);
        Ok(Self { state, pool, query: query.clone() })
    }

    /// The statement as DataFusion plans it. Statements that do more than read are refused.
    pub(crate) async fn plan(&self) -> Result<LogicalPlan, DataFusionError> {
        let plan = self.state.create_logical_plan(&self.query.text).await?;
        let reads_only = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        reads_only.verify_plan(&plan)?;
        let values: Vec<ScalarValue> = self.query.parameters.iter().map(scalar).collect();
        if values.is_empty() { Ok(plan) } else { plan.with_param_values(values) }
    }
}

/// A session without files, whose memory is the budget's. One partition: the store reads in parallel by itself, and what a query takes of the
/// machine stays one thread.
fn planner(pool: Arc<BudgetPool>) -> Result<SessionContext, DataFusionError> {
    let no_files = DiskManagerBuilder::default().with_mode(DiskManagerMode::Disabled);
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(no_files).build_arc()?;
    let mut config = SessionConfig::new().with_target_partitions(1).with_information_schema(false);
    let parser = &mut config.options_mut().sql_parser;
    parser.dialect = Dialect::PostgreSQL;
    // Names are as they are written: measurements and fields have capitals.
    parser.enable_ident_normalization = false;
    Ok(SessionContext::new_with_config_rt(config, runtime))
}

/// The columns of an answer. Those without an alias are named as in Postgres: after their function, or `?column?`.
pub(crate) fn schema_of(plan: &LogicalPlan) -> SchemaRef {
    let schema = plan.schema().inner();
    let mut projection = plan;
    while let (false, [input]) = (matches!(projection, LogicalPlan::Projection(_)), projection.inputs().as_slice()) {
        projection = input;
    }
    let LogicalPlan::Projection(projection) = projection else { return schema.clone() };
    if projection.expr.len() != schema.fields().len() {
        return schema.clone();
    }
    let field = |(of, field): (&Expr, &FieldRef)| match name_of(of, field.name()) {
        Some(name) => Arc::new(field.as_ref().clone().with_name(name)),
        None => field.clone(),
    };
    let fields: Vec<FieldRef> = projection.expr.iter().zip(schema.fields()).map(field).collect();
    Arc::new(Schema::new(fields))
}

/// The name of a column that was not named; `None` if it was.
fn name_of(expression: &Expr, written: &str) -> Option<String> {
    let function = written.split_once('(').map(|(function, _)| function);
    let is_word = |text: &&str| !text.is_empty() && text.chars().all(|one| one.is_ascii_alphanumeric() || one == '_');
    let function = function.filter(is_word).map(str::to_lowercase);
    match expression {
        // DataFusion made this one.
        Expr::Alias(alias) if alias.name == "count(*)" => function,
        Expr::Alias(_) => None,
        // What is computed below is a column by the text of its expression.
        Expr::Column(column) if column.relation.is_none() => function,
        Expr::Column(_) => None,
        _ => Some(function.unwrap_or_else(|| "?column?".to_owned())),
    }
}

fn scalar(parameter: &Value) -> ScalarValue {
    match parameter {
        Value::Null => ScalarValue::Null,
        Value::Bool(value) => ScalarValue::Boolean(Some(*value)),
        Value::Int(value) => ScalarValue::Int64(Some(*value)),
        Value::Unsigned(value) => ScalarValue::UInt64(Some(*value)),
        Value::Float(value) => ScalarValue::Float64(Some(*value)),
        Value::Text(_) | Value::Interval(_) => ScalarValue::Utf8(Some(parameter.to_string())),
        Value::Timestamp(ns) => ScalarValue::TimestampNanosecond(Some(*ns), Some("UTC".into())),
        Value::LocalTimestamp(ns) | Value::Date(ns) => ScalarValue::TimestampNanosecond(Some(*ns), None),
    }
}

/// The error without the places in DataFusion that it passed. Errors of our own come back as they were.
pub(crate) fn of_datafusion(error: &DataFusionError) -> SqlQueryError {
    let root = error.find_root();
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(root);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<QueryError>() {
            return SqlQueryError::Query(error.clone());
        }
        source = error.source();
    }
    SqlQueryError::Statement(root.strip_backtrace())
}
