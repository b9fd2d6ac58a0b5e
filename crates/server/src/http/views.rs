//! `GET /api/v1/views`: materialised views and how they are doing.

use std::sync::Arc;

use access::grant::Right;
use axum::extract::{Request, State as From};
use axum::response::Response;
use db::views::UnreadableView;
use model::TimeRange;
use query::plan::{Aggregate, AggregateCall, Grouping, Plan, Scan, TableColumns};
use query::views::{RefreshPolicy, View, ViewDefinition, ViewStatus};
use query::{Cell, QueryError, ViewUse};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::http::json;
use crate::http::query::{QueryJob, run_query};
use crate::http::request::{RequestParts, extract};
use crate::state::State;

const NS_PER_S: f64 = 1e9;

pub(crate) async fn list(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let database = parts.parameters.database(&parts.headers);
    // Statements and errors of views may name what an account does not see whose rights are narrowed by labels.
    if !parts.caller.scope.matchers(Right::Read, &database).is_empty() {
        return Ok(json::success(&json!({ "views": [] }).to_string(), &[], &[]));
    }
    let listed = state.work(move |state| {
        let now_ns = state.db.now_ns();
        let views = state.db.views(&database).into_iter();
        let view = |view: Arc<View>| entry(&view, &state.db.view_status(&database, &view.definition.name), now_ns);
        let unreadable = state.db.unreadable_views().into_iter().filter(|view| view.database == database);
        views.map(view).chain(unreadable.map(|view| unreadable_entry(&view))).collect::<Vec<Value>>()
    });
    let mut listed = listed.await?;
    if parts.parameters.flag("rows", false)? {
        count_rows(&state, &parts, &mut listed).await?;
    }
    Ok(json::success(&json!({ "views": listed }).to_string(), &[], &[]))
}

/// Adds how many rows are stored of each view: as many as its fullest column has, which summaries say.
async fn count_rows(state: &Arc<State>, parts: &RequestParts, listed: &mut [Value]) -> Result<(), ApiError> {
    let database = parts.parameters.database(&parts.headers);
    let names = listed.iter().map(|entry| entry["name"].as_str().unwrap_or_default());
    let views: Vec<Option<Arc<View>>> = names.map(|name| state.db.view(&database, name)).collect();
    let budget = state.query_budget(parts);
    budget.use_views(ViewUse::Stored);
    let asked = QueryJob::new(state, "views", "rows of materialised views", &budget, parts)?;
    let work = move |state: &State| {
        let count = |view: &Option<Arc<View>>| {
            let Some(view) = view else { return Ok(None) };
            let into = view.definition.target_database();
            if !budget.scope().may(Right::Read, into) {
                return Ok(None);
            }
            let outcome = state.db.run_plan(into, &counts(&view.definition), &budget)?;
            let cells = outcome.frames.iter().flat_map(|frame| &frame.columns).map(|column| column.cell(0));
            Ok(Some(cells.filter_map(Cell::number).fold(0.0, f64::max) as u64))
        };
        Ok((String::new(), views.iter().map(count).collect::<Result<Vec<Option<u64>>, QueryError>>()?))
    };
    let (_, rows) = run_query(state, asked, work).await?;
    for (entry, rows) in listed.iter_mut().zip(rows) {
        entry["rows"] = rows.into();
    }
    Ok(())
}

/// How many values the columns of a view's table have.
fn counts(definition: &ViewDefinition) -> Plan {
    let fields: Vec<String> = definition.fields.iter().map(|(field, _)| field.clone()).collect();
    let aggregates = fields.iter().map(|field| AggregateCall::of_column(Aggregate::Count, field.as_str())).collect();
    let table = TableColumns { name: definition.target.clone(), fields, every_row: false };
    let scan = Scan { table: Some(table), selectors: Vec::new(), tokens: Vec::new(), range: TimeRange::ALL };
    let grouping = Grouping { width_ns: None, offset_ns: 0, aggregates, by: Some(Vec::new()), undated: true };
    Plan::GroupBy { input: Box::new(Plan::Scan(scan)), grouping }
}

/// A view whose definition cannot be read.
fn unreadable_entry(view: &UnreadableView) -> Value {
    json!({
        "name": view.name,
        "database": view.database,
        "state": "failing",
        "error": format!("its definition cannot be read ({}): drop it and make it again", view.reason),
    })
}

/// A view with its state. The lag is the time of which nothing is stored yet.
fn entry(view: &View, status: &ViewStatus, now_ns: i64) -> Value {
    let definition = &view.definition;
    let (refresh, every_s) = match definition.options.refresh {
        RefreshPolicy::Immediate => ("immediate", None),
        RefreshPolicy::Every(ns) => ("every", Some(ns as f64 / NS_PER_S)),
        RefreshPolicy::Manual => ("manual", None),
    };
    let state = match (&status.error, view.state.is_pending()) {
        (Some(_), _) => "failing",
        (None, false) => "valid",
        (None, true) => "refreshing",
    };
    let lacking = |columns: &query::views::PendingColumns| {
        let range = |range: &TimeRange| json!({ "start_ns": range.start_ns, "end_ns": range.end_ns });
        json!({ "columns": columns.names, "ranges": columns.ranges.iter().map(range).collect::<Vec<Value>>() })
    };
    let pending = |pending: &query::views::PendingRange| json!({ "start_ns": pending.range.start_ns, "end_ns": pending.range.end_ns, "never_computed": pending.is_fill });
    json!({
        "name": definition.name,
        "database": definition.database,
        "source": definition.source(),
        "target": definition.target,
        "target_database": definition.target_database(),
        "dialect": definition.dialect.name(),
        "statement": definition.statement,
        "maker": definition.maker,
        "materialized_only": definition.options.materialized_only,
        "refresh": refresh,
        "refresh_every_s": every_s,
        "state": state,
        "error": status.error,
        "computed_until_ns": view.state.watermark_ns,
        "lag_s": now_ns.saturating_sub(view.state.watermark_ns) as f64 / NS_PER_S,
        "pending": view.state.pending.iter().map(pending).collect::<Vec<Value>>(),
        "pending_columns": view.state.new_columns.iter().map(lacking).collect::<Vec<Value>>(),
        "refreshed_ns": status.refreshed_ns,
        "rows_written": status.rows_written,
        "refreshes": status.refreshes,
        "elapsed_s": status.elapsed_ns as f64 / NS_PER_S,
        "cpu_s": status.cpu_ns as f64 / NS_PER_S,
        "late_samples_refused": status.late_samples_refused,
        "left_out": status.left_out,
    })
}
