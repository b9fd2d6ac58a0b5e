//! Which path leads where.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State as From};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post, put};

use crate::error::ApiError;
use crate::http::admin;
use crate::http::compression;
use crate::http::epochs;
use crate::http::export;
use crate::http::federate;
use crate::http::flux;
use crate::http::graph;
use crate::http::guard;
use crate::http::guard::RequestGuard;
use crate::http::health;
use crate::http::influx_v2;
use crate::http::influxql;
use crate::http::limits;
use crate::http::names;
use crate::http::page;
use crate::http::plan;
use crate::http::query;
use crate::http::remote_read;
use crate::http::rrd;
use crate::http::running_queries;
use crate::http::scraping;
use crate::http::search;
use crate::http::similar;
use crate::http::status;
use crate::http::tail;
use crate::http::tasks;
use crate::http::triggers;
use crate::http::views;
use crate::http::write;
use crate::sign_in::rights::{self, Need, Needs};
use crate::sign_in::{accounts, oidc, oidc_page, page_session};
use crate::sql;
use crate::state::State;

/// A path, the right that it needs, and what answers.
struct Route {
    path: &'static str,
    need: Need,
    handler: MethodRouter<Arc<State>>,
}

impl Route {
    const fn new(path: &'static str, need: Need, handler: MethodRouter<Arc<State>>) -> Self {
        Self { path, need, handler }
    }
}

/// All paths with the rights that they need, for the guide's table.
pub(crate) fn needs() -> Needs {
    let all = [reads(), scraping(), streams(), admin(), influx_tasks(), writes(), checks()];
    all.into_iter().flatten().map(|route| (route.path, route.need)).collect()
}

pub(crate) fn router(state: Arc<State>, guard: Arc<RequestGuard>) -> Router {
    let api = with(Router::new(), reads().into_iter().chain(scraping()))
        .fallback(page)
        .layer(middleware::from_fn_with_state(state.clone(), compression::mark))
        .layer(compression::layer());
    with(api, streams().into_iter().chain(admin()).chain(influx_tasks()).chain(writes()).chain(checks()))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state((state.clone(), Arc::new(needs())), rights::check))
        .layer(middleware::from_fn_with_state(guard, guard::check))
        .layer(middleware::from_fn_with_state(state.clone(), count))
        .with_state(state)
}

fn with(router: Router<Arc<State>>, added: impl Iterator<Item = Route>) -> Router<Arc<State>> {
    added.fold(router, |router, Route { path, handler, .. }| router.route(path, handler))
}

/// What reads data, or tells of the server. Answers are compressed.
fn reads() -> Vec<Route> {
    use Need::{Read, ServerAdmin, SignIn, Statements};
    vec![
        Route::new("/api/v1/query", Read, get(query::instant).post(query::instant)),
        Route::new("/api/v1/query_range", Read, get(query::range).post(query::range)),
        Route::new("/api/v1/series", Read, get(names::series).post(names::series)),
        Route::new("/api/v1/labels", Read, get(names::labels).post(names::labels)),
        Route::new("/api/v1/label/{name}/values", Read, get(names::label_values)),
        Route::new("/api/v1/search/metric_names", Read, get(search::metric_names).post(search::metric_names)),
        Route::new("/api/v1/search/label_names", Read, get(search::label_names).post(search::label_names)),
        Route::new("/api/v1/search/label_values", Read, get(search::label_values).post(search::label_values)),
        Route::new("/api/v1/metadata", Read, get(names::metadata)),
        Route::new("/api/v1/query_exemplars", Read, get(query::exemplars).post(query::exemplars)),
        Route::new("/api/v1/format_query", SignIn, get(query::format).post(query::format)),
        Route::new("/api/v1/parse_query", SignIn, get(query::parse).post(query::parse)),
        Route::new("/query", Statements, get(influxql::query).post(influxql::query)),
        Route::new("/api/v2/query", Statements, post(flux::query)),
        Route::new("/api/v3/query_influxql", Statements, get(influxql::query_v3).post(influxql::query_v3)),
        Route::new("/api/v3/query_sql", Statements, get(sql::http::query_sql).post(sql::http::query_sql)),
        Route::new("/sql", Statements, get(sql::http::sql).post(sql::http::sql)),
        Route::new("/exec", Statements, get(sql::http::exec).post(sql::http::exec)),
        Route::new("/settings", SignIn, get(status::questdb_settings)),
        Route::new("/exp", Statements, get(sql::http::exp).post(sql::http::exp)),
        Route::new("/api/v1/plan", Read, get(plan::plan).post(plan::plan)),
        Route::new("/api/v1/similar", Read, get(similar::similar).post(similar::similar)),
        Route::new("/api/v1/read", Read, post(remote_read::read)),
        Route::new("/api/v1/prom/read", Read, post(remote_read::read)),
        Route::new("/api/v1/export", Read, get(export::json_lines).post(export::json_lines)),
        Route::new("/api/v1/export/csv", Read, get(export::csv).post(export::csv)),
        Route::new("/api/v1/export/native", Read, get(export::native).post(export::native)),
        Route::new("/api/v1/graph", Read, get(graph::graph).post(graph::graph)),
        Route::new("/api/v1/rrd/fetch", Read, get(rrd::fetch).post(rrd::fetch)),
        Route::new("/api/v1/rrd/xport", Read, get(rrd::xport).post(rrd::xport)),
        Route::new("/api/v1/rrd/files", Read, get(rrd::files).post(rrd::files)),
        Route::new("/api/v1/rrd/export", Read, get(rrd::export).post(rrd::export)),
        Route::new("/federate", Read, get(federate::federate).post(federate::federate)),
        Route::new("/api/v1/metrics", Read, get(write::push::list)),
        Route::new("/api/v1/triggers", SignIn, get(triggers::list)),
        Route::new("/api/v1/status/active_queries", SignIn, get(running_queries::list)),
        Route::new("/api/v1/status/config", ServerAdmin, get(scraping::targets::config)),
        Route::new("/api/v1/status/flags", ServerAdmin, get(status::flags)),
        Route::new("/api/v1/status/runtimeinfo", ServerAdmin, get(status::runtime_info)),
        Route::new("/api/v1/status/tsdb", Read, get(status::tsdb)),
        Route::new("/api/v1/status/buildinfo", SignIn, get(status::build_info)),
        Route::new("/api/v1/views", Read, get(views::list)),
        Route::new("/api/v1/epoch/values", Read, get(epochs::values)),
        Route::new("/api/v1/epoch/top", Read, get(epochs::top)),
        Route::new("/api/v1/epoch/series", Read, get(epochs::series)),
        Route::new("/metrics", ServerAdmin, get(status::metrics)),
    ]
}

/// What belongs to scraping and rules.
fn scraping() -> Vec<Route> {
    use Need::{ServerAdmin, SignIn};
    vec![
        Route::new("/-/reload", ServerAdmin, post(scraping::targets::reload).put(scraping::targets::reload)),
        Route::new("/-/quit", ServerAdmin, post(status::quit).put(status::quit)),
        Route::new("/api/v1/alertmanagers", SignIn, get(scraping::rules::alertmanagers)),
        Route::new("/api/v1/status/walreplay", SignIn, get(status::wal_replay)),
        Route::new("/api/v1/status/tsdb/blocks", SignIn, get(status::no_blocks)),
        Route::new("/api/v1/status/self_metrics", SignIn, get(status::no_list)),
        Route::new("/api/v1/targets/metadata", SignIn, get(scraping::targets::metadata)),
        Route::new("/api/v1/targets/relabel_steps", ServerAdmin, get(scraping::targets::relabel)),
        Route::new("/api/v1/scrape_pools", SignIn, get(scraping::targets::scrape_pools)),
        Route::new("/api/v1/features", SignIn, get(status::no_features)),
        Route::new("/api/v1/notifications", SignIn, get(scraping::targets::notifications)),
        Route::new("/api/v1/rules", SignIn, get(scraping::rules::rules)),
        Route::new("/api/v1/alerts", SignIn, get(scraping::rules::alerts)),
        Route::new("/api/v1/targets", SignIn, get(scraping::targets::targets)),
    ]
}

/// Answers without an end. They are not compressed: an event would wait for the next ones.
fn streams() -> Vec<Route> {
    vec![Route::new("/api/v1/tail", Need::Read, get(tail::tail))]
}

/// What changes the server or its databases.
fn admin() -> Vec<Route> {
    use Need::{Database, ServerAdmin, SignIn};
    vec![
        Route::new("/api/v1/admin/backup", ServerAdmin, post(admin::backup)),
        // One's own queries, or all for administrators.
        Route::new("/api/v1/status/active_queries/{id}/kill", SignIn, post(running_queries::kill)),
        Route::new("/api/v1/admin/compact", ServerAdmin, post(admin::compact)),
        Route::new("/api/v1/admin/losses", ServerAdmin, get(admin::losses).post(admin::acknowledge_losses)),
        Route::new(
            "/api/v1/admin/cursors",
            ServerAdmin,
            get(scraping::cursors::cursors).delete(scraping::cursors::remove_cursor),
        ),
        Route::new("/api/v1/admin/databases", SignIn, get(admin::databases)),
        Route::new(
            "/api/v1/admin/databases/{name}",
            Database,
            get(admin::database).put(admin::put_database).delete(admin::drop_database),
        ),
        Route::new("/api/v1/admin/tsdb/delete_series", Database, put(admin::delete_series).post(admin::delete_series)),
        Route::new("/api/v1/admin/tsdb/snapshot", ServerAdmin, put(admin::snapshot).post(admin::snapshot)),
        Route::new(
            "/api/v1/admin/tsdb/clean_tombstones",
            ServerAdmin,
            put(admin::clean_tombstones).post(admin::clean_tombstones),
        ),
        Route::new("/api/v1/rrd/remove", Database, post(rrd::remove)),
        Route::new("/api/v2/orgs", SignIn, get(influx_v2::organisations)),
        Route::new("/api/v2/buckets", Database, get(influx_v2::buckets).post(influx_v2::create_bucket)),
        Route::new(
            "/api/v2/buckets/{id}",
            Database,
            get(influx_v2::bucket).patch(influx_v2::change_bucket).delete(influx_v2::drop_bucket),
        ),
        Route::new("/api/v2/delete", Database, post(influx_v2::delete)),
        Route::new("/api/v1/admin/limits/{name}", ServerAdmin, get(limits::show).put(limits::put)),
        Route::new("/api/v1/admin/accounts", ServerAdmin, get(accounts::list)),
        Route::new("/api/v1/admin/accounts/{name}", ServerAdmin, put(accounts::put).delete(accounts::remove)),
    ]
}

/// InfluxDB 2's tasks.
fn influx_tasks() -> Vec<Route> {
    use Need::Statements;
    vec![
        Route::new("/api/v2/tasks", Statements, get(tasks::list).post(tasks::create)),
        Route::new("/api/v2/tasks/{id}", Statements, get(tasks::show).patch(tasks::change).delete(tasks::remove)),
        Route::new("/api/v2/tasks/{id}/labels", Statements, get(tasks::labels)),
        Route::new("/api/v2/tasks/{id}/logs", Statements, get(tasks::logs)),
        Route::new("/api/v2/tasks/{id}/runs", Statements, get(tasks::runs).post(tasks::run)),
        Route::new("/api/v2/tasks/{id}/runs/{run}", Statements, get(tasks::one_run)),
        Route::new("/api/v2/tasks/{id}/runs/{run}/logs", Statements, get(tasks::run_logs)),
    ]
}

/// What takes rows.
fn writes() -> Vec<Route> {
    use Need::Write;
    vec![
        Route::new("/write", Write, post(write::influx::influx_v1)),
        Route::new("/api/v2/write", Write, post(write::influx::influx_v2)),
        Route::new("/api/v3/write_lp", Write, post(write::influx::influx_v3)),
        Route::new("/api/v1/write", Write, post(write::prometheus::remote_write)),
        Route::new("/api/v1/prom/write", Write, post(write::prometheus::remote_write)),
        Route::new("/v1/metrics", Write, post(write::otlp::metrics)),
        Route::new("/api/v1/otlp/v1/metrics", Write, post(write::otlp::metrics)),
        Route::new("/api/put", Write, post(write::opentsdb::put)),
        Route::new(
            "/metrics/{*group}",
            Write,
            put(write::push::push).post(write::push::push).delete(write::push::delete),
        ),
        Route::new("/imp", Write, post(write::questdb::imp)),
        Route::new("/api/v1/epoch", Write, post(epochs::write)),
        Route::new("/api/v1/epoch/remove", Write, post(epochs::remove)),
        Route::new("/api/v1/import", Write, post(write::imports::json_lines)),
        Route::new("/api/v1/import/csv", Write, post(write::imports::csv)),
        Route::new("/api/v1/import/native", Write, post(write::imports::native)),
        Route::new("/api/v1/rrd/import", Write, post(rrd::import)),
        Route::new("/api/v1/import/prometheus", Write, post(write::prometheus::exposition)),
    ]
}

/// What tells whether the server is there, and who is.
fn checks() -> Vec<Route> {
    use Need::Nothing;
    vec![
        Route::new("/ping", Nothing, get(status::ping).head(status::ping)),
        Route::new(
            "/api/v1/session",
            Nothing,
            get(page_session::show).post(page_session::begin).delete(page_session::end),
        ),
        Route::new("/api/v1/session/oidc", Nothing, get(oidc_page::begin)),
        Route::new(oidc::CALLBACK, Nothing, get(oidc_page::finish)),
        Route::new("/health", Nothing, get(health::health)),
        Route::new("/ready", Nothing, get(health::ready)),
        Route::new("/-/ready", Nothing, get(health::ready)),
        Route::new("/-/healthy", Nothing, get(health::healthy)),
    ]
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
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "bad_data",
        format!("{} is not allowed on {}", request.method(), request.uri().path()),
    )
}

/// The page's files; everything else does not exist.
async fn page(request: Request) -> Response {
    let path = request.uri().path();
    let Some(asset) = page::asset(path).filter(|_| [Method::GET, Method::HEAD].contains(request.method())) else {
        return ApiError::not_found(format!("there is nothing at {path}")).into_response();
    };
    let accepts = |name, wanted: &str| {
        let value = request.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        value.is_some_and(|value| value.split(',').any(|item| item.trim().starts_with(wanted)))
    };
    let common = [
        (header::CONTENT_TYPE, asset.content_type),
        (header::CACHE_CONTROL, asset.cache_control),
        (header::ETAG, asset.etag),
        (header::VARY, "Accept-Encoding"),
        (header::CONTENT_SECURITY_POLICY, page::CONTENT_SECURITY_POLICY),
    ];
    if accepts(header::IF_NONE_MATCH, asset.etag) {
        return (StatusCode::NOT_MODIFIED, common).into_response();
    }
    match asset.gzip.filter(|_| accepts(header::ACCEPT_ENCODING, "gzip")) {
        Some(packed) => (common, [(header::CONTENT_ENCODING, "gzip")], Body::from(packed)).into_response(),
        None => (common, Body::from(asset.body)).into_response(),
    }
}
