//! `TimescaleDB`'s functions about how views and tables are kept.

use std::sync::Arc;

use query::views::{RefreshPolicy, View, ViewDefinition, ViewOptions};
use query::{Interval, SqlType, Value};
use sqlparser::ast::{Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, SelectItem, SetExpr, Statement};

use super::Answer;
use super::timescale::length_text;
use crate::error::{SqlError, invalid};
use crate::relation::{Column, Relation};
use crate::run::Run;

/// `TimescaleDB`'s functions that set when a view is refreshed, and how long views and tables keep their rows.
const POLICIES: [&str; 4] = [
    "add_continuous_aggregate_policy",
    "remove_continuous_aggregate_policy",
    "add_retention_policy",
    "remove_retention_policy",
];

/// The arguments of the functions that add policies, and of those that remove them; `view` has other names there.
const ADD_ARGUMENTS: [&str; 12] = [
    "view",
    "start_offset",
    "end_offset",
    "drop_after",
    "schedule_interval",
    "if_not_exists",
    "initial_start",
    "timezone",
    "include_tiered_data",
    "buckets_per_batch",
    "max_batches_per_execution",
    "refresh_newest_first",
];
const REMOVE_ARGUMENTS: [&str; 3] = ["view", "if_exists", "not_exists"];

/// A call of one of these functions.
pub(super) type PolicyCall<'a> = (&'static str, &'a Function);

/// Returns whether a statement is a call that changes how a view or a table is kept.
pub(crate) fn is_policy_call(statement: &Statement) -> bool {
    policy_call(statement).is_some()
}

/// The call that a statement is, if it is one of those that set policies.
pub(super) fn policy_call(statement: &Statement) -> Option<PolicyCall<'_>> {
    let call = match statement {
        Statement::Call(call) => call,
        Statement::Query(query) => {
            let SetExpr::Select(select) = &*query.body else { return None };
            match select.projection.as_slice() {
                [
                    SelectItem::UnnamedExpr(Expr::Function(call))
                    | SelectItem::ExprWithAlias { expr: Expr::Function(call), .. },
                ] => call,
                _ => return None,
            }
        }
        _ => return None,
    };
    let name = call.name.0.last()?.as_ident()?.value.to_lowercase();
    let found = POLICIES.iter().find(|known| **known == name)?;
    Some((found, call))
}

/// The arguments of a call by their names; those without have the names that their places have.
struct Arguments {
    values: Vec<(String, Value)>,
}

impl Arguments {
    fn get(&self, name: &str) -> Option<&Value> {
        self.values.iter().find(|(known, value)| known == name && *value != Value::Null).map(|(_, value)| value)
    }

    fn is_true(&self, name: &str) -> Result<bool, SqlError> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(other) => invalid(format!("{name} is true or false, not {other}")),
        }
    }

    /// Refuses those that a function does not have.
    fn check(&self, function: &str) -> Result<(), SqlError> {
        let known = |name: &str| match function {
            "add_continuous_aggregate_policy" => name != "drop_after" && ADD_ARGUMENTS.contains(&name),
            "add_retention_policy" => !name.ends_with("_offset") && ADD_ARGUMENTS.contains(&name),
            _ => REMOVE_ARGUMENTS.contains(&name),
        };
        match self.values.iter().find(|(name, _)| !known(name)) {
            None => Ok(()),
            Some((name, _)) => invalid(format!("{function} has no argument {name:?} here")),
        }
    }

    /// A length of time in nanoseconds; months have 30 days, as `TimescaleDB` takes them.
    fn duration_ns(&self, name: &str) -> Result<Option<i64>, SqlError> {
        let interval = match self.get(name) {
            None => return Ok(None),
            Some(Value::Interval(interval)) => Some(*interval),
            Some(Value::Text(text)) => query::time::parse_interval(text),
            Some(_) => None,
        };
        let ns = interval.map(Interval::approximate_ns).and_then(|ns| i64::try_from(ns).ok());
        ns.map_or_else(|| invalid(format!("{name} is a length of time such as INTERVAL '1 hour'")), |ns| Ok(Some(ns)))
    }
}

/// The thing that a policy is about.
enum PolicyTarget {
    View(Arc<View>),
    /// A table that is no view.
    Table(String),
}

impl PolicyTarget {
    /// The table that has its rows.
    fn table(&self) -> &str {
        match self {
            Self::View(view) => &view.definition.target,
            Self::Table(table) => table,
        }
    }
}

impl std::fmt::Display for PolicyTarget {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::View(view) => write!(out, "the view {:?}", view.definition.name),
            Self::Table(table) => write!(out, "the table {table:?}"),
        }
    }
}

impl Run<'_> {
    /// `add_continuous_aggregate_policy(…)` and its like.
    pub(super) fn policy(&mut self, (function, call): PolicyCall<'_>) -> Result<Answer, SqlError> {
        let places: &[&str] = match function {
            "add_continuous_aggregate_policy" => &["view", "start_offset", "end_offset", "schedule_interval"],
            "add_retention_policy" => &["view", "drop_after"],
            _ => &["view", "if_exists"],
        };
        let arguments = self.arguments(call, places)?;
        let name = arguments.get("view").map(ToString::to_string).unwrap_or_default();
        let name = name.rsplit('.').next().unwrap_or_default().trim_matches('"');
        let target = match self.existing_view(name) {
            Ok(view) => PolicyTarget::View(view),
            Err(SqlError::UnknownTable(_)) if function.ends_with("retention_policy") => {
                PolicyTarget::Table(self.schema(name, false)?.name)
            }
            Err(error) => return Err(error),
        };
        arguments.check(function)?;
        let is_number = function.starts_with("add");
        if !self.describes {
            self.set_policy(function, &target, &arguments)?;
        }
        let job = if is_number { self.job_of(target.table(), function)? } else { Value::Null };
        let sql_type = if is_number { SqlType::Int } else { SqlType::Text };
        let relation = Relation { columns: vec![Column::new(function, sql_type)], rows: vec![vec![job]] };
        Ok(Answer::Rows(relation))
    }

    fn set_policy(&self, function: &str, target: &PolicyTarget, arguments: &Arguments) -> Result<(), SqlError> {
        match (function, target) {
            ("add_retention_policy", target) => self.add_retention(target, arguments),
            ("remove_retention_policy", target) => {
                Ok(self.session.set_table_ttl(&self.environment.database, target.table(), 0)?)
            }
            (_, PolicyTarget::View(view)) => self.set_refresh(function, view, arguments),
            (_, PolicyTarget::Table(_)) => Ok(()),
        }
    }

    /// Gives a view or a table a TTL.
    fn add_retention(&self, target: &PolicyTarget, arguments: &Arguments) -> Result<(), SqlError> {
        const HOUR_NS: i64 = 3_600_000_000_000;
        let database = &self.environment.database;
        let known_ns = self.session.table_ttl_ns(database, target.table());
        let said_ns = arguments.duration_ns("drop_after")?.filter(|ns| *ns > 0);
        let Some(ttl_ns) = said_ns else {
            return invalid("add_retention_policy takes drop_after => INTERVAL '1 year'");
        };
        if matches!(target, PolicyTarget::Table(_)) && ttl_ns % HOUR_NS != 0 {
            return invalid(
                "drop_after of a table is a number of whole hours, such as INTERVAL '12 hours' or INTERVAL '30 days'",
            );
        }
        if known_ns == 0 {
            return Ok(self.session.set_table_ttl(database, target.table(), ttl_ns)?);
        }
        if !arguments.is_true("if_not_exists")? {
            return invalid(format!("{target} has a policy already: remove it first"));
        }
        // One that exists stays as it is.
        if known_ns != ttl_ns {
            let known = length_text(known_ns);
            self.client
                .notices
                .push(format!("{target} has a policy already, which stays: its rows are kept for {known}"));
        }
        Ok(())
    }

    /// Says when a view is refreshed.
    fn set_refresh(&self, function: &str, view: &View, arguments: &Arguments) -> Result<(), SqlError> {
        let ViewDefinition { database, name, options, .. } = &view.definition;
        let no_policy = ViewOptions { refresh: RefreshPolicy::Immediate, lag_ns: None, ..options.clone() };
        let is_added = function == "add_continuous_aggregate_policy";
        if is_added && *options != no_policy {
            // One that exists stays as it is.
            if arguments.is_true("if_not_exists")? {
                return Ok(());
            }
            return invalid(format!("the view {name:?} has a policy already: remove it first"));
        }
        let options = if is_added {
            let every_ns = arguments.duration_ns("schedule_interval")?;
            if every_ns.is_some_and(|ns| ns <= 0) {
                return invalid("schedule_interval is a length of time above zero");
            }
            let refresh = every_ns.map_or(RefreshPolicy::Immediate, RefreshPolicy::Every);
            let lag_ns = arguments.duration_ns("end_offset")?.map(|ns| ns.max(0));
            ViewOptions { refresh, lag_ns, ..no_policy }
        } else {
            no_policy
        };
        Ok(self.session.set_view_options(database, name, options)?)
    }

    fn arguments(&mut self, call: &Function, places: &[&str]) -> Result<Arguments, SqlError> {
        let FunctionArguments::List(list) = &call.args else { return invalid(format!("{call} has no arguments")) };
        let mut values = Vec::with_capacity(list.args.len());
        for (place, argument) in list.args.iter().enumerate() {
            let (name, expression) = match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expression)) => {
                    (places.get(place).map(|name| (*name).to_owned()), expression)
                }
                FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expression), .. }
                | FunctionArg::ExprNamed {
                    name: Expr::Identifier(name), arg: FunctionArgExpr::Expr(expression), ..
                } => (Some(name.value.to_lowercase()), expression),
                _ => (None, &Expr::Value(sqlparser::ast::Value::Null.into())),
            };
            let Some(name) = name else { return invalid(format!("{call} has an argument that is not known here")) };
            let name =
                if ["continuous_aggregate", "relation"].contains(&name.as_str()) { "view".to_owned() } else { name };
            values.push((name, self.constant(expression)?));
        }
        Ok(Arguments { values })
    }
}
