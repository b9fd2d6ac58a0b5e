//! Whether the server lives and what it is.

use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::json;
use crate::state::State;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of Prometheus whose API this one is: clients such as Grafana choose what they ask by it.
const PROMETHEUS_VERSION: &str = "3.0.0";

/// The version that InfluxDB's clients see; they look for 1.x or 2.x.
pub(crate) const INFLUXDB_VERSION: &str = "1.8.10-thalweg";

pub(crate) async fn build_info() -> Response {
    let data = format!(
        r#"{{"version":"{PROMETHEUS_VERSION}","revision":"","branch":"","buildUser":"","buildDate":"","goVersion":"","application":"thalweg","applicationVersion":"{VERSION}"}}"#
    );
    json::success(&data, &[], &[])
}

pub(crate) async fn no_rules() -> Response {
    json::success(r#"{"groups":[]}"#, &[], &[])
}

pub(crate) async fn no_alerts() -> Response {
    json::success(r#"{"alerts":[]}"#, &[], &[])
}

pub(crate) async fn no_targets() -> Response {
    json::success(r#"{"activeTargets":[],"droppedTargets":[],"droppedTargetCounts":{}}"#, &[], &[])
}

pub(crate) async fn no_alertmanagers() -> Response {
    json::success(r#"{"activeAlertmanagers":[],"droppedAlertmanagers":[]}"#, &[], &[])
}

/// There is no configuration file of Prometheus's form.
pub(crate) async fn config() -> Response {
    json::success(r#"{"yaml":""}"#, &[], &[])
}

/// The limits of queries, under the names of Prometheus's flags.
pub(crate) async fn flags(From(state): From<Arc<State>>) -> Response {
    let settings = &state.settings;
    let data = format!(
        r#"{{"query.max-samples":"{}","query.timeout":"{}"}}"#,
        settings.query_samples_max,
        crate::parameters::duration_text(i64::try_from(settings.query_timeout_ms).unwrap_or(i64::MAX))
    );
    json::success(&data, &[], &[])
}

pub(crate) async fn runtime_info() -> Response {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let data = format!(
        r#"{{"CWD":"","reloadConfigSuccess":true,"corruptionCount":0,"goroutineCount":0,"GOMAXPROCS":{threads},"GOGC":"","GODEBUG":"","storageRetention":""}}"#
    );
    json::success(&data, &[], &[])
}

/// InfluxDB's sign of life: 204, or with `verbose=true` 200 and the version.
pub(crate) async fn ping(request: Request) -> Response {
    let headers = [("x-influxdb-version", INFLUXDB_VERSION), ("x-influxdb-build", "OSS")];
    let verbose = request.uri().query().is_some_and(|query| {
        form_urlencoded::parse(query.as_bytes())
            .any(|(name, value)| name == "verbose" && !["", "0", "false"].contains(&value.as_ref()))
    });
    if verbose {
        let body = format!(r#"{{"version":"{INFLUXDB_VERSION}"}}"#);
        return (StatusCode::OK, headers, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    }
    (StatusCode::NO_CONTENT, headers).into_response()
}

/// 200 as long as background work gets on; else 503 with the reason. In the form of InfluxDB 2.
pub(crate) async fn health(From(state): From<Arc<State>>) -> Response {
    let (status, word, message) = match state.db.background_error() {
        None => (StatusCode::OK, "pass", "ready for queries and writes".to_owned()),
        Some(error) => (StatusCode::SERVICE_UNAVAILABLE, "fail", error),
    };
    let body = format!(
        r#"{{"name":"thalweg","message":{},"status":"{word}","checks":[],"version":"{VERSION}"}}"#,
        json::text(&message)
    );
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// 200 whenever the server answers: it listens only once the data folder is open.
pub(crate) async fn ready() -> &'static str {
    "Thalweg is ready.\n"
}

pub(crate) async fn metrics(From(state): From<Arc<State>>) -> Response {
    let text = state.metrics.render(&state.db, &state.queries);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
