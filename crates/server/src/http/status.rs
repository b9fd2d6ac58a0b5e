//! What the server is.

use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use db::Cardinality;
use model::DEFAULT_DATABASE;

use crate::error::ApiError;
use crate::host;
use crate::http::json;
use crate::http::parameters::duration_text;
use crate::http::query::{QueryJob, run_query};
use crate::http::request::extract;
use crate::state::State;

/// Items of a list of what is largest, unless the request says how many.
const TOP_DEFAULT: usize = 10;

/// Most items of such a list.
const TOP_MAX: usize = 10_000;

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version of Prometheus whose API this one is: clients such as Grafana choose what they ask by it.
const PROMETHEUS_VERSION: &str = "3.15.0";

/// The version that InfluxDB's clients see; they look for 1.x or 2.x.
pub(crate) const INFLUXDB_VERSION: &str = "1.8.10-thalweg";

pub(crate) async fn build_info() -> Response {
    let data = format!(
        r#"{{"version":"{PROMETHEUS_VERSION}","revision":"","branch":"","buildUser":"","buildDate":"","goVersion":"","application":"thalweg","applicationVersion":"{VERSION}"}}"#
    );
    json::success(&data, &[], &[])
}

/// QuestDB's `/settings`, by which its clients choose how they send rows.
pub(crate) async fn questdb_settings() -> Response {
    let body = serde_json::json!({
        "config": {
            "release.type": "OSS",
            "release.version": VERSION,
            "line.proto.support.versions": [1],
            "ilp.proto.transports": ["tcp", "http"],
            "posthog.enabled": false,
            "cairo.max.file.name.length": 127,
        },
        "preferences.version": 0,
        "preferences": {},
    });
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// A list of what belongs to scraping, which there is none of.
pub(crate) async fn no_list() -> Response {
    json::success("[]", &[], &[])
}

pub(crate) async fn no_features() -> Response {
    json::success("{}", &[], &[])
}

/// There are no blocks of Prometheus's form.
pub(crate) async fn no_blocks() -> Response {
    json::success(r#"{"blocks":[]}"#, &[], &[])
}

/// The log has been replayed when this can be asked.
pub(crate) async fn wal_replay() -> Response {
    json::success(r#"{"min":0,"max":0,"current":0}"#, &[], &[])
}

/// The answer to requests that end or reload the server, unless the settings allow them.
pub(crate) fn lifecycle_refusal(state: &State) -> Option<Response> {
    let refused = (StatusCode::FORBIDDEN, "Lifecycle API is not enabled: --web-enable-lifecycle does it.\n");
    (!state.settings.web.is_lifecycle_enabled).then(|| refused.into_response())
}

/// `POST /-/quit`: ends the server as SIGTERM does.
pub(crate) async fn quit(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    extract(&state, request).await?;
    Ok(lifecycle_refusal(&state).unwrap_or_else(|| {
        state.quit.notify_one();
        "Requesting termination... Goodbye!".into_response()
    }))
}

/// The limits of queries and the data folder, under the names of Prometheus's flags, and what was set, under our own.
pub(crate) async fn flags(From(state): From<Arc<State>>) -> Response {
    let settings = &state.settings;
    let mut flags = serde_json::Map::new();
    let mut put = |name: &str, value: String| flags.insert(name.to_owned(), value.into());
    put("query.lookback-delta", duration_text(state.db.lookback_ms()));
    put("query.max-concurrency", settings.query_concurrency_max.to_string());
    put("query.max-samples", settings.query_samples_max.to_string());
    put("query.timeout", duration_text(i64::try_from(settings.query_timeout_ms).unwrap_or(i64::MAX)));
    put("storage.tsdb.path", state.db.directory().to_string_lossy().into_owned());
    put("web.enable-lifecycle", settings.web.is_lifecycle_enabled.to_string());
    put("web.external-url", settings.web.external_url.clone());
    put("web.listen-address", settings.http.to_string());
    put("web.route-prefix", settings.web.route_prefix.as_str().to_owned());
    settings.flags.iter().for_each(|(name, value)| {
        put(name, value.clone());
    });
    json::success(&serde_json::Value::Object(flags).to_string(), &[], &[])
}

pub(crate) async fn runtime_info(From(state): From<Arc<State>>) -> Response {
    let time = |nanoseconds: i64| match jiff::Timestamp::from_nanosecond(i128::from(nanoseconds)) {
        Ok(time) => time.to_string(),
        Err(_) => String::new(),
    };
    let prometheus = state.settings.prometheus.as_ref();
    let (loaded_ns, is_reload_successful) = prometheus.map_or((state.started_ns, true), |mode| mode.last_reload());
    let kept_ms = state.db.policy(DEFAULT_DATABASE).map_or(0, |policy| policy.retention_ns / 1_000_000);
    let data = serde_json::json!({
        "startTime": time(state.started_ns),
        "serverTime": time(state.db.now_ns()),
        "CWD": state.db.directory().to_string_lossy(),
        "hostname": host::name(),
        "reloadConfigSuccess": is_reload_successful,
        "lastConfigTime": time(loaded_ns),
        "corruptionCount": 0,
        "goroutineCount": 0,
        "GOMAXPROCS": std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        "GOMEMLIMIT": 0,
        "GOGC": "",
        "GODEBUG": "",
        "storageRetention": if kept_ms > 0 { duration_text(kept_ms) } else { String::new() },
    });
    json::success(&data.to_string(), &[], &[])
}

/// What makes the database large, from the index: groups count, whose members are series. It looks at all of them, so it is a query.
pub(crate) async fn tsdb(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let top = match parts.parameters.limit()? {
        0 => TOP_DEFAULT,
        limit @ ..=TOP_MAX => limit,
        _ => return Err(ApiError::invalid_parameter("limit", format!("it is at most {TOP_MAX}"))),
    };
    let database = parts.parameters.database(&parts.headers);
    let budget = state.query_budget(&parts);
    let asked = QueryJob::new(&state, "tsdb", "", &budget, &parts)?;
    let count = move |state: &State| {
        let found = state.db.cardinality(&database, top, &budget)?;
        Ok((tsdb_json(state, &found), ()))
    };
    Ok(json::respond(run_query(&state, asked, count).await?.0))
}

fn tsdb_json(state: &State, found: &Cardinality) -> String {
    let levels = state.db.stats().levels;
    let pair = |name: &str, value: u64| serde_json::json!({ "name": name, "value": value });
    let measurements = found.measurements.iter().map(|(id, _, series)| pair(&state.db.measurement_name(*id), *series));
    let labels = found.labels.iter().map(|(name, value, groups)| pair(&format!("{name}={value}"), *groups));
    let data = serde_json::json!({
        "headStats": {
            "numSeries": found.series,
            "numLabelPairs": found.pairs,
            "chunkCount": levels.iter().map(|level| level.chunks).sum::<u64>(),
        },
        "seriesCountByMetricName": measurements.collect::<Vec<_>>(),
        "labelValueCountByLabelName": found.names.iter().map(|name| pair(&name.name, name.values)).collect::<Vec<_>>(),
        "memoryInBytesByLabelName": [],
        "seriesCountByLabelValuePair": labels.collect::<Vec<_>>(),
    });
    json::end(json::begin() + &data.to_string(), &[], &[])
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

pub(crate) async fn metrics(From(state): From<Arc<State>>) -> Response {
    let text = state.render_metrics() + &host::process_text();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
