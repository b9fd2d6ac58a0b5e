//! `/api/v1/triggers`: states of triggers and subscriptions.

use std::sync::Arc;

use access::grant::Right;
use axum::Extension;
use axum::extract::State as From;
use axum::response::Response;
use serde_json::json;
use views::delivery::DeliveryReport;

use crate::error::ApiError;
use crate::http::json;
use crate::sign_in::Caller;
use crate::state::State;

/// Those of databases that the caller administers; subscriptions are shown to administrators of the server.
pub(crate) async fn list(
    From(state): From<Arc<State>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    let is_visible = |report: &DeliveryReport| match report.kind {
        "trigger" => caller.scope.may(Right::Admin, &report.database),
        _ => caller.scope.is_server_admin,
    };
    // Statements hold what is listed while they write to disk.
    let reports = state.work(|state| state.deliveries().map(views::delivery::Deliveries::reports)).await??;
    let listed: Vec<serde_json::Value> = reports.iter().filter(|report| is_visible(report)).map(one).collect();
    Ok(json::respond(format!(r#"{{"status":"success","data":{}}}"#, serde_json::Value::from(listed))))
}

fn one(report: &DeliveryReport) -> serde_json::Value {
    json!({
        "kind": report.kind,
        "database": report.database,
        "name": report.name,
        "table": report.table,
        "condition": report.condition,
        "action": report.action,
        "target": report.target,
        "owner": report.owner,
        "state": report.state,
        "sequence": report.sequence,
        "lag": report.lag,
        "sent_rows": report.sent_rows,
        "failed_rows": report.failed_rows,
        "dropped_rows": report.dropped_rows,
        "dropped_records": report.dropped_records,
        "retries": report.retries,
        "last_error": report.last_error,
    })
}
