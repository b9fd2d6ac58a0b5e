//! `/health` and `/ready`: whether the server lives, and whether it takes requests; also before its data folder is open.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::Router;
use axum::extract::{Request, State as From};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use db::{CheckStatus, HealthCheck, OpeningProgress};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::error::ApiError;
use crate::http::guard::{self, RequestGuard};
use crate::http::json;
use crate::http::status::VERSION;
use crate::listen::tls::Tls;
use crate::notice;
use crate::sign_in::Caller;
use crate::state::State;

/// How often what was found wrong is looked for, to be told to the operator.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// How long before the server's certificate ends this is a warning.
const EXPIRY_WARNING_DAYS: i64 = 7;

const NS_PER_S: i64 = 1_000_000_000;
const S_PER_DAY: i64 = 86_400;

/// What others than administrators are told instead of messages that name files and addresses.
const FOR_ADMINISTRATORS: &str = "administrators see more";

/// When to ask again whether the server is ready.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

/// The worst of some checks.
fn worst(checks: &[HealthCheck]) -> Option<&HealthCheck> {
    checks.iter().max_by_key(|check| check.status)
}

const fn word(status: Option<CheckStatus>) -> &'static str {
    match status {
        None => "pass",
        Some(CheckStatus::Warn) => "warn",
        Some(CheckStatus::Fail) => "fail",
    }
}

/// 200 with the checks that do not pass; 503 only where a restart helps. In the form of InfluxDB 2.
fn answer(checks: &[HealthCheck]) -> Response {
    let worst = worst(checks);
    let message = worst.map_or("ready for queries and writes", |check| &check.message);
    let status = worst.map(|check| check.status);
    let mut listed = String::new();
    for (place, HealthCheck { name, status, message }) in checks.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let (status, message) = (word(Some(*status)), json::text(message));
        // Writing to a string cannot fail.
        let _ = write!(listed, r#"{comma}{{"name":"{name}","status":"{status}","message":{message}}}"#);
    }
    let body = format!(
        r#"{{"name":"thalweg","message":{},"status":"{}","checks":[{listed}],"version":"{VERSION}"}}"#,
        json::text(message),
        word(status)
    );
    let code = if status == Some(CheckStatus::Fail) { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    (code, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

pub(crate) async fn health(From(state): From<Arc<State>>, Extension(caller): Extension<Caller>) -> Response {
    let mut checks = checks(&state);
    if !caller.scope.is_server_admin {
        checks.iter_mut().for_each(|check| FOR_ADMINISTRATORS.clone_into(&mut check.message));
    }
    answer(&checks)
}

/// The checks that do not pass: of the data, and of the certificates.
fn checks(state: &State) -> Vec<HealthCheck> {
    let mut checks = state.db.health().checks();
    let problem = state.tls.as_ref().and_then(|tls| certificate_problem(tls, state.db.now_ns() / NS_PER_S));
    checks.extend(problem.map(|message| HealthCheck { name: "tls", status: CheckStatus::Warn, message }));
    checks
}

/// Why clients cannot connect by TLS, or soon will not be able to.
fn certificate_problem(tls: &Tls, now_s: i64) -> Option<String> {
    if let Some(why) = tls.problem() {
        return Some(format!("the changed certificates cannot be used, the old ones are: {why}"));
    }
    let left_s = tls.not_after_s().saturating_sub(now_s);
    if left_s <= 0 {
        return Some("the server's certificate has expired: replace its file".to_owned());
    }
    let days = left_s / S_PER_DAY;
    (days < EXPIRY_WARNING_DAYS).then(|| format!("the server's certificate expires in {days} days: replace its file"))
}

/// 200 while requests are taken, reads and writes; else 503 with the reason.
pub(crate) async fn ready(From(state): From<Arc<State>>, Extension(caller): Extension<Caller>) -> Response {
    match state.db.write_refusal() {
        None => "Thalweg is ready.\n".into_response(),
        Some(reason) if caller.scope.is_server_admin => not_ready(&reason),
        Some(_) => not_ready(FOR_ADMINISTRATORS),
    }
}

/// As Prometheus answers at `/-/healthy`: the server runs, even while its data folder is being opened.
pub(crate) async fn healthy() -> &'static str {
    "Thalweg is healthy.\n"
}

fn not_ready(reason: &str) -> Response {
    let body = format!("Thalweg is not ready: {reason}\n");
    (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, RETRY_AFTER_S)], body).into_response()
}

/// Answers until the data folder is open; opening begins now.
pub(crate) fn recovering(guard: Arc<RequestGuard>, progress: Arc<OpeningProgress>) -> Router {
    let started = sleep(Duration::ZERO).deadline();
    let counted = progress.clone();
    let metrics = move || async move {
        let text = opening_metrics(&counted);
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text)
    };
    let reason = move || {
        let elapsed_s = started.elapsed().as_secs_f64();
        format!("recovering: the data folder is being opened, for {elapsed_s:.1} s so far; {progress}; ask again later")
    };
    let (reason_of_health, reason_of_ready) = (reason.clone(), reason.clone());
    let health = move || async move {
        answer(&[HealthCheck { name: "recovery", status: CheckStatus::Warn, message: reason_of_health() }])
    };
    let ready = move || async move { not_ready(&reason_of_ready()) };
    let other =
        move |_: Request| async move { ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", reason()) };
    Router::new()
        .route("/health", get(health))
        .route("/ready", get(ready.clone()))
        .route("/-/ready", get(ready))
        .route("/-/healthy", get(healthy))
        .route("/metrics", get(metrics))
        .fallback(other)
        .layer(middleware::from_fn_with_state(guard, guard::check))
}

/// The metrics of a server whose data folder is being opened.
fn opening_metrics(progress: &OpeningProgress) -> String {
    let mut text = String::new();
    for (name, help, value) in [
        ("thalweg_opening_log_bytes", "Bytes of the log that were replayed.", progress.log_bytes()),
        ("thalweg_opening_log_bytes_all", "Bytes of the log that are to be replayed.", progress.log_bytes_total()),
    ] {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
    }
    text
}

/// Tells the operator of damage that was met, each block once, and of checks as they begin and cease to fail; until the stop.
pub(crate) async fn tell(state: Arc<State>, mut stop: watch::Receiver<bool>) {
    let mut known: Vec<HealthCheck> = Vec::new();
    loop {
        for damage in state.db.health().take_unreported() {
            notice::write(&format!("damage: {} at offset {}: {}", damage.file, damage.offset, damage.message));
        }
        let checks = checks(&state);
        for line in changes(&known, &checks) {
            notice::write(&line);
        }
        known = checks;
        tokio::select! {
            () = sleep(TELL_EVERY) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// Checks that appeared, changed or went, by name and status: messages may change all the time.
fn changes(before: &[HealthCheck], now: &[HealthCheck]) -> Vec<String> {
    let same = |one: &HealthCheck, other: &HealthCheck| (one.name, one.status) == (other.name, other.status);
    let begun = now.iter().filter(|check| !before.iter().any(|known| same(known, check)));
    let begun = begun.map(|check| format!("health: {}: {}: {}", check.name, word(Some(check.status)), check.message));
    let passed = before.iter().filter(|known| !now.iter().any(|check| check.name == known.name));
    let passed = passed.map(|check| format!("health: {}: pass", check.name));
    begun.chain(passed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &'static str, status: CheckStatus) -> HealthCheck {
        HealthCheck { name, status, message: format!("about {name}") }
    }

    #[test]
    fn only_what_a_restart_helps_fails() {
        let warn = check("disk", CheckStatus::Warn);
        let fail = check("flush", CheckStatus::Fail);
        assert_eq!(answer(&[]).status(), StatusCode::OK);
        assert_eq!(answer(std::slice::from_ref(&warn)).status(), StatusCode::OK);
        assert_eq!(answer(&[warn, fail]).status(), StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn checks_are_told_when_they_change() {
        let (disk, objects) = (check("disk", CheckStatus::Warn), check("objects", CheckStatus::Warn));
        let said = changes(std::slice::from_ref(&disk), &[disk.clone(), objects.clone()]);
        assert_eq!(said, ["health: objects: warn: about objects"]);
        let worse = check("objects", CheckStatus::Fail);
        assert_eq!(changes(&[disk, objects], &[worse]), ["health: objects: fail: about objects", "health: disk: pass"]);
    }
}
