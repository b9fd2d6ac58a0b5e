//! Which path leads where.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State as From};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};

use crate::error::ApiError;
use crate::http::admin;
use crate::http::compression;
use crate::http::export;
use crate::http::federate;
use crate::http::guard;
use crate::http::guard::RequestGuard;
use crate::http::health;
use crate::http::influxql;
use crate::http::names;
use crate::http::page;
use crate::http::plan;
use crate::http::query;
use crate::http::remote_read;
use crate::http::running_queries;
use crate::http::status;
use crate::http::write;
use crate::sql;
use crate::state::State;

pub(crate) fn router(state: Arc<State>, guard: Arc<RequestGuard>) -> Router {
    let api = Router::new()
        .route("/api/v1/query", get(query::instant).post(query::instant))
        .route("/api/v1/query_range", get(query::range).post(query::range))
        .route("/api/v1/series", get(names::series).post(names::series))
        .route("/api/v1/labels", get(names::labels).post(names::labels))
        .route("/api/v1/label/{name}/values", get(names::label_values))
        .route("/api/v1/metadata", get(names::metadata))
        .route("/api/v1/query_exemplars", get(query::exemplars).post(query::exemplars))
        .route("/api/v1/format_query", get(query::format).post(query::format))
        .route("/api/v1/parse_query", get(query::parse).post(query::parse))
        .route("/query", get(influxql::query).post(influxql::query))
        .route("/sql", get(sql::http::sql).post(sql::http::sql))
        .route("/exec", get(sql::http::exec).post(sql::http::exec))
        .route("/exp", get(sql::http::exp).post(sql::http::exp))
        .route("/api/v1/plan", get(plan::plan).post(plan::plan))
        .route("/api/v1/read", post(remote_read::read))
        .route("/api/v1/export", get(export::json_lines).post(export::json_lines))
        .route("/api/v1/export/csv", get(export::csv).post(export::csv))
        .route("/api/v1/export/native", get(export::native).post(export::native))
        .route("/federate", get(federate::federate).post(federate::federate))
        .route("/api/v1/status/active_queries", get(running_queries::list))
        .route("/api/v1/status/config", get(status::config))
        .route("/api/v1/status/flags", get(status::flags))
        .route("/api/v1/status/runtimeinfo", get(status::runtime_info))
        .route("/api/v1/status/tsdb", get(status::tsdb))
        .route("/api/v1/status/buildinfo", get(status::build_info))
        .route("/metrics", get(status::metrics))
        .merge(of_scraping())
        .fallback(page)
        .layer(middleware::from_fn_with_state(state.clone(), compression::mark))
        .layer(compression::layer());
    let admin = Router::new()
        .route("/api/v1/admin/backup", post(admin::backup))
        .route("/api/v1/status/active_queries/{id}/kill", post(running_queries::kill))
        .route("/api/v1/admin/compact", post(admin::compact))
        .route("/api/v1/admin/losses", get(admin::losses).post(admin::acknowledge_losses))
        .route("/api/v1/admin/databases", get(admin::databases))
        .route(
            "/api/v1/admin/databases/{name}",
            get(admin::database).put(admin::put_database).delete(admin::drop_database),
        )
        .route("/api/v1/admin/tsdb/delete_series", put(admin::delete_series).post(admin::delete_series))
        .route("/api/v1/admin/tsdb/snapshot", put(admin::snapshot).post(admin::snapshot))
        .route("/api/v1/admin/tsdb/clean_tombstones", put(admin::clean_tombstones).post(admin::clean_tombstones));
    Router::new()
        .route("/write", post(write::influx::influx_v1))
        .route("/api/v2/write", post(write::influx::influx_v2))
        .route("/api/v3/write_lp", post(write::influx::influx_v3))
        .route("/api/v1/write", post(write::prometheus::remote_write))
        .route("/v1/metrics", post(write::otlp::metrics))
        .route("/api/v1/otlp/v1/metrics", post(write::otlp::metrics))
        .route("/api/put", post(write::opentsdb::put))
        .route("/api/v1/import", post(write::imports::json_lines))
        .route("/api/v1/import/csv", post(write::imports::csv))
        .route("/api/v1/import/native", post(write::imports::native))
        .route("/api/v1/import/prometheus", post(write::prometheus::exposition))
        .route("/ping", get(status::ping).head(status::ping))
        .route("/health", get(health::health))
        .route("/ready", get(health::ready))
        .route("/-/ready", get(health::ready))
        .route("/-/healthy", get(health::healthy))
        .merge(api)
        .merge(admin)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(guard, guard::check))
        .layer(middleware::from_fn_with_state(state.clone(), count))
        .with_state(state)
}

/// What belongs to scraping and rules, which an empty Prometheus answers so.
fn of_scraping() -> Router<Arc<State>> {
    Router::new()
        .route("/api/v1/alertmanagers", get(status::no_alertmanagers))
        .route("/api/v1/status/walreplay", get(status::wal_replay))
        .route("/api/v1/status/tsdb/blocks", get(status::no_blocks))
        .route("/api/v1/status/self_metrics", get(status::no_list))
        .route("/api/v1/targets/metadata", get(status::no_list))
        .route("/api/v1/scrape_pools", get(status::no_scrape_pools))
        .route("/api/v1/features", get(status::no_features))
        .route("/api/v1/notifications", get(status::no_list))
        .route("/api/v1/rules", get(status::no_rules))
        .route("/api/v1/alerts", get(status::no_alerts))
        .route("/api/v1/targets", get(status::no_targets))
}

/// Counts requests by route, as the router matched it, and by status: there are not more counters than routes.
async fn count(From(state): From<Arc<State>>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let is_page = matched.is_none() && page::asset(request.uri().path()).is_some();
    let mut response = next.run(request).await;
    admin::warn(&state, &mut response);
    let unmatched = if is_page { "page" } else { "other" };
    let route = matched.as_ref().map_or(unmatched, MatchedPath::as_str);
    state.metrics.count_request(route, response.status().as_u16());
    response
}

async fn method_not_allowed(request: Request) -> ApiError {
    ApiError {
        status: StatusCode::METHOD_NOT_ALLOWED,
        kind: "bad_data",
        message: format!("{} is not allowed on {}", request.method(), request.uri().path()),
    }
}

/// The page's files; everything else does not exist.
async fn page(request: Request) -> Response {
    let path = request.uri().path();
    let Some(asset) = page::asset(path).filter(|_| [Method::GET, Method::HEAD].contains(request.method())) else {
        return ApiError::not_found(format!("there is nothing at {path}")).into_response();
    };
    let accepts = |name, wanted: &str| {
        let value = request.headers().get(name).and_then(|value: &header::HeaderValue| value.to_str().ok());
        value.is_some_and(|value| value.split(',').any(|item| item.trim().starts_with(wanted)))
    };
    let common = [
        (header::CONTENT_TYPE, asset.content_type),
        (header::CACHE_CONTROL, asset.cache_control),
        (header::ETAG, asset.etag),
        (header::VARY, "Accept-Encoding"),
        (header::CONTENT_SECURITY_POLICY, page::CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    if accepts(header::IF_NONE_MATCH, asset.etag) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    match asset.gzip.filter(|_| accepts(header::ACCEPT_ENCODING, "gzip")) {
        Some(packed) => (common, [(header::CONTENT_ENCODING, "gzip")], Body::from(packed)).into_response(),
        None => (common, Body::from(asset.body)).into_response(),
    }
}
