//! `/api/v2/tasks`: InfluxDB 2's tasks, which are continuous queries here.

use std::sync::Arc;

use access::audit::Event;
use axum::extract::{Path, Request, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use db::views::{TaskSettings, task_id};
use flux::{TaskOptionChanges, TaskScript};
use model::TimeRange;
use query::Budget;
use query::views::{RefreshRequest, View, ViewStatus};
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::http::influx::{self, Version};
use crate::http::influx_v2::{ORGANISATION, ORGANISATION_ID};
use crate::http::parameters::Parameters;
use crate::http::request::{RequestParts, extract};
use crate::state::State;

/// Tasks of a page, unless the request says how many, and at most.
const PAGE_TASKS: usize = 100;
const PAGE_TASKS_MAX: usize = 500;

const ACTIVE: &str = "active";
const INACTIVE: &str = "inactive";

/// `GET /api/v2/tasks`: `name`, `status`, `after`, `limit`.
pub(crate) async fn list(From(state): From<Arc<State>>, request: Request) -> Response {
    respond(async {
        let parts = extract(&state, request).await?;
        let page = Page::read(&parts.parameters)?;
        let budget = state.query_budget(&parts);
        let name = organisation(&parts);
        let listed = state.work(move |state: &State| {
            let entries = state.db.tasks(&budget).into_iter().filter_map(|view| {
                let described = described(&view, &status_of(state, &view), &name);
                page.has(&described).then_some(described)
            });
            entries.take(page.limit).collect::<Vec<Value>>()
        });
        Ok(json_of(StatusCode::OK, &json!({ "links": { "self": "/api/v2/tasks" }, "tasks": listed.await? })))
    })
    .await
}

/// `POST /api/v2/tasks`: `flux`, `status`, `description`.
pub(crate) async fn create(From(state): From<Arc<State>>, request: Request) -> Response {
    respond(async {
        let parts = extract(&state, request).await?;
        let body = Body::read(&parts)?;
        let script = body.script.clone().ok_or_else(|| ApiError::bad_data("the task has no flux"))?;
        let settings = body.settings(&TaskSettings::default())?;
        let (budget, name) = (state.query_budget(&parts), organisation(&parts));
        let made = state.work(move |state: &State| {
            let script = parsed(&script)?;
            let view = state.db.create_task(&script, settings, &budget)?;
            Ok::<_, ApiError>((described(&view, &status_of(state, &view), &name), view))
        });
        let (described, view) = made.await??;
        note(&state, &parts, "makes", &view);
        Ok(json_of(StatusCode::CREATED, &described))
    })
    .await
}

/// `GET /api/v2/tasks/{id}`
pub(crate) async fn show(From(state): From<Arc<State>>, Path(id): Path<String>, request: Request) -> Response {
    of_task(state, id, request, |view, status, name| Ok(described(view, status, name))).await
}

/// `PATCH /api/v2/tasks/{id}`: `flux`, `status`, `description`, `name`, `every`, `cron`, `offset`.
pub(crate) async fn change(From(state): From<Arc<State>>, Path(id): Path<String>, request: Request) -> Response {
    respond(async {
        let parts = extract(&state, request).await?;
        let body = Body::read(&parts)?;
        let (budget, name) = (state.query_budget(&parts), organisation(&parts));
        let changed = state.work(move |state: &State| {
            let known = find(state, &id, &budget)?;
            let before = &known.definition.statement;
            let text = body.script.as_ref().unwrap_or(before);
            let options = parsed(text)?;
            let text = options.options().changed(text, &body.options).map_err(|error| bad_script(&error))?;
            let script = if text == *before { None } else { Some(parsed(&text)?) };
            let task = known.definition.task.clone().unwrap_or_default();
            let is_inactive = task.is_inactive;
            let settings = body.settings(&TaskSettings { description: task.description, is_inactive })?;
            let view = state.db.change_task(&known, script.as_ref(), (settings, &budget))?;
            Ok::<_, ApiError>((described(&view, &status_of(state, &view), &name), view))
        });
        let (described, view) = changed.await??;
        note(&state, &parts, "changes", &view);
        Ok(json_of(StatusCode::OK, &described))
    })
    .await
}

/// `DELETE /api/v2/tasks/{id}`: what it has written stays.
pub(crate) async fn remove(From(state): From<Arc<State>>, Path(id): Path<String>, request: Request) -> Response {
    respond(async {
        let parts = extract(&state, request).await?;
        let budget = state.query_budget(&parts);
        let removed = state.work(move |state: &State| {
            let view = find(state, &id, &budget)?;
            state.db.drop_view(&view.definition.database, &view.definition.name, &budget)?;
            Ok::<_, ApiError>(view)
        });
        let view = removed.await??;
        note(&state, &parts, "drops", &view);
        Ok(StatusCode::NO_CONTENT.into_response())
    })
    .await
}

/// `GET /api/v2/tasks/{id}/runs`: the last time that its windows were computed.
pub(crate) async fn runs(From(state): From<Arc<State>>, Path(id): Path<String>, request: Request) -> Response {
    of_task(state, id, request, |view, status, _| {
        let runs: Vec<Value> = last_run(view, status).into_iter().collect();
        Ok(json!({ "links": { "self": format!("{}/runs", path(view)) }, "runs": runs }))
    })
    .await
}

/// `POST /api/v2/tasks/{id}/runs`: windows that are over, and what is known to have changed, are computed now, also of one that is inactive.
pub(crate) async fn run(From(state): From<Arc<State>>, Path(id): Path<String>, request: Request) -> Response {
    respond(async {
        let parts = extract(&state, request).await?;
        let budget = state.query_budget(&parts);
        let asked = state.work(move |state: &State| {
            let view = find(state, &id, &budget)?;
            let (database, name) = (view.definition.database.as_str(), view.definition.name.as_str());
            let request = RefreshRequest { database, name, range: TimeRange::ALL, is_forced: false };
            state.db.refresh_view(&request, &budget)?;
            let now_ns = state.db.now_ns();
            Ok::<_, ApiError>(run_json(&view, now_ns, ("scheduled", now_ns)))
        });
        Ok(json_of(StatusCode::CREATED, &asked.await??))
    })
    .await
}

/// `GET /api/v2/tasks/{id}/runs/{run}`
pub(crate) async fn one_run(
    From(state): From<Arc<State>>,
    Path((id, run)): Path<(String, String)>,
    request: Request,
) -> Response {
    of_task(state, id, request, move |view, status, _| known_run(view, status, &run)).await
}

/// `GET /api/v2/tasks/{id}/runs/{run}/logs`
pub(crate) async fn run_logs(
    From(state): From<Arc<State>>,
    Path((id, run)): Path<(String, String)>,
    request: Request,
) -> Response {
    of_task(state, id, request, move |view, status, _| {
        known_run(view, status, &run)?;
        Ok(events(view, status))
    })
    .await
}

/// `GET /api/v2/tasks/{id}/logs`
pub(crate) async fn logs(From(state): From<Arc<State>>, Path(id): Path<String>, request: Request) -> Response {
    of_task(state, id, request, |view, status, _| Ok(events(view, status))).await
}

/// `GET /api/v2/tasks/{id}/labels`: there are none.
pub(crate) async fn labels(From(state): From<Arc<State>>, Path(id): Path<String>, request: Request) -> Response {
    of_task(state, id, request, |view, _, _| {
        Ok(json!({ "links": { "self": format!("{}/labels", path(view)) }, "labels": [] }))
    })
    .await
}

/// An answer about one task.
async fn of_task(
    state: Arc<State>,
    id: String,
    request: Request,
    tell: impl FnOnce(&View, &ViewStatus, &str) -> Result<Value, ApiError> + Send + 'static,
) -> Response {
    respond(async {
        let parts = extract(&state, request).await?;
        let (budget, name) = (state.query_budget(&parts), organisation(&parts));
        let told = state.work(move |state: &State| {
            let view = find(state, &id, &budget)?;
            tell(&view, &status_of(state, &view), &name)
        });
        Ok(json_of(StatusCode::OK, &told.await??))
    })
    .await
}

async fn respond(answer: impl Future<Output = Result<Response, ApiError>>) -> Response {
    answer.await.unwrap_or_else(|error| influx::failure(Version::V2, &error))
}

fn json_of(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json; charset=utf-8")], body.to_string()).into_response()
}

/// What a request says of a task.
struct Body {
    script: Option<String>,
    /// `None`: as it is.
    is_inactive: Option<bool>,
    description: Option<String>,
    options: TaskOptionChanges,
}

impl Body {
    fn read(parts: &RequestParts) -> Result<Self, ApiError> {
        let body: Result<Map<String, Value>, _> = serde_json::from_slice(&parts.body);
        let body = body.map_err(|error| ApiError::bad_data(format!("the body is no JSON object: {error}")))?;
        let text = |name: &str| match body.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(ApiError::bad_data(format!("{name:?} is no text"))),
        };
        let is_inactive = match text("status")?.as_deref() {
            None | Some("") => None,
            Some(ACTIVE) => Some(false),
            Some(INACTIVE) => Some(true),
            Some(other) => {
                return Err(ApiError::bad_data(format!("status is {ACTIVE:?} or {INACTIVE:?}, not {other:?}")));
            }
        };
        let (name, every, cron, offset) = (text("name")?, text("every")?, text("cron")?, text("offset")?);
        Ok(Self {
            script: text("flux")?.filter(|script| !script.is_empty()),
            is_inactive,
            description: text("description")?,
            options: TaskOptionChanges { name, every, cron, offset },
        })
    }

    fn settings(&self, known: &TaskSettings) -> Result<TaskSettings, ApiError> {
        const DESCRIPTION_BYTES_MAX: usize = 4_096;
        let description = self.description.clone().or_else(|| known.description.clone());
        if description.as_ref().is_some_and(|text| text.len() > DESCRIPTION_BYTES_MAX) {
            return Err(ApiError::bad_data(format!("the description has more than {DESCRIPTION_BYTES_MAX} bytes")));
        }
        Ok(TaskSettings { description, is_inactive: self.is_inactive.unwrap_or(known.is_inactive) })
    }
}

/// Which tasks a request lists.
struct Page {
    name: Option<String>,
    status: Option<String>,
    after: Option<String>,
    limit: usize,
}

impl Page {
    fn read(parameters: &Parameters) -> Result<Self, ApiError> {
        let text = |name| parameters.get(name).map(str::to_owned);
        let limit = match parameters.get("limit") {
            None => PAGE_TASKS,
            Some(text) => text.parse().map_err(|_| ApiError::invalid_parameter("limit", "it is no number"))?,
        };
        let limit = limit.clamp(1, PAGE_TASKS_MAX);
        Ok(Self { name: text("name"), status: text("status"), after: text("after"), limit })
    }

    fn has(&self, task: &Value) -> bool {
        let is = |wanted: &Option<String>, member: &str| {
            wanted.as_ref().is_none_or(|wanted| task[member].as_str() == Some(wanted))
        };
        // They come by their ids.
        let is_after = |after: &String| task["id"].as_str().is_some_and(|id| id > after.as_str());
        is(&self.name, "name") && is(&self.status, "status") && self.after.as_ref().is_none_or(is_after)
    }
}

fn organisation(parts: &RequestParts) -> String {
    parts.parameters.get("org").unwrap_or(ORGANISATION).to_owned()
}

fn bad_script(error: &flux::FluxError) -> ApiError {
    ApiError::bad_data(format!("compilation failed: {error}"))
}

fn parsed(text: &str) -> Result<TaskScript, ApiError> {
    TaskScript::parse(text).map_err(|error| bad_script(&error))
}

fn find(state: &State, id: &str, budget: &Budget) -> Result<Arc<View>, ApiError> {
    let found = state.db.tasks(budget).into_iter().find(|view| task_id(view) == id);
    found.ok_or_else(|| ApiError::not_found("failed to find task: task not found"))
}

fn status_of(state: &State, view: &View) -> ViewStatus {
    state.db.view_status(&view.definition.database, &view.definition.name)
}

fn note(state: &State, parts: &RequestParts, what: &str, view: &View) {
    let detail = format!("{what} the task {} of {}", task_id(view), view.definition.database);
    state.sign_in.audit.note(state.db.now_ns(), Event::SettingsChanged, parts.caller.actor(), &detail);
}

fn time_text(ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(ns)).unwrap_or_default().to_string()
}

fn path(view: &View) -> String {
    format!("/api/v2/tasks/{}", task_id(view))
}

/// A task as InfluxDB 2 shows it.
fn described(view: &View, status: &ViewStatus, organisation: &str) -> Value {
    let definition = &view.definition;
    let task = definition.task.clone().unwrap_or_default();
    let path = path(view);
    let links: Map<String, Value> = ["labels", "logs", "members", "owners", "runs"]
        .iter()
        .map(|name| ((*name).to_owned(), json!(format!("{path}/{name}"))))
        .chain([("self".to_owned(), json!(path))])
        .collect();
    let mut described = json!({
        "id": task_id(view),
        "orgID": ORGANISATION_ID,
        "org": organisation,
        "ownerID": ORGANISATION_ID,
        "name": task_id(view),
        "status": if task.is_inactive { INACTIVE } else { ACTIVE },
        "flux": definition.statement,
        "createdAt": time_text(task.created_ns),
        "updatedAt": time_text(task.updated_ns),
        "labels": [],
        "links": links,
    });
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            described[name] = json!(value);
        }
    };
    if let Ok(script) = TaskScript::parse(&definition.statement) {
        let options = script.options().clone();
        add("name", Some(options.name));
        add("every", options.every);
        add("cron", options.cron);
        add("offset", options.offset);
    }
    add("description", task.description);
    let is_computed = view.state.pending.is_empty() && view.state.watermark_ns > task.created_ns;
    add("latestCompleted", is_computed.then(|| time_text(view.state.watermark_ns)));
    add("lastRunError", status.error.clone());
    let last = match (&status.error, status.refreshed_ns) {
        (Some(_), _) => Some("failed"),
        (None, Some(_)) => Some("success"),
        (None, None) => None,
    };
    add("lastRunStatus", last.map(str::to_owned));
    described
}

fn run_json(view: &View, id: i64, (status, at_ns): (&str, i64)) -> Value {
    let run = format!("{:016x}", id.max(1));
    let path = path(view);
    let mut described = json!({
        "id": run,
        "taskID": task_id(view),
        "status": status,
        "scheduledFor": time_text(view.state.watermark_ns.max(0)),
        "requestedAt": time_text(at_ns),
        "links": { "self": format!("{path}/runs/{run}"), "task": path },
    });
    if status != "scheduled" {
        (described["startedAt"], described["finishedAt"]) = (json!(time_text(at_ns)), json!(time_text(at_ns)));
    }
    described
}

/// The last time that its windows were computed, since the start of the server.
fn last_run(view: &View, status: &ViewStatus) -> Option<Value> {
    let at_ns = status.refreshed_ns;
    match &status.error {
        Some(_) => Some(run_json(view, at_ns.unwrap_or(1), ("failed", at_ns.unwrap_or_default()))),
        None => at_ns.map(|at_ns| run_json(view, at_ns, ("success", at_ns))),
    }
}

fn known_run(view: &View, status: &ViewStatus, wanted: &str) -> Result<Value, ApiError> {
    let run = last_run(view, status).filter(|run| run["id"].as_str() == Some(wanted));
    run.ok_or_else(|| ApiError::not_found("failed to find run: run not found"))
}

/// The words about its last run, as a log.
fn events(view: &View, status: &ViewStatus) -> Value {
    let run = last_run(view, status);
    let message = status.error.clone().or_else(|| {
        let (rows, count) = (status.rows_written, status.refreshes);
        run.as_ref()
            .map(|_| format!("Completed(success): {rows} rows by {count} computations since the server's start"))
    });
    let event = run
        .zip(message)
        .map(|(run, message)| json!({ "runID": run["id"], "time": run["requestedAt"], "message": message }));
    json!({ "events": event.into_iter().collect::<Vec<Value>>() })
}
