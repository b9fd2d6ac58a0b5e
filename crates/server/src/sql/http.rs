//! `/sql`, InfluxDB 3's `/api/v3/query_sql`, and QuestDB's `/exec` and `/exp`.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use query::arrow::STREAM_MEDIA_TYPE;
use query::{Budget, QueryError, RowLimit};
use sql::{Answer, ClientContext, Column, Manner, PARQUET_MEDIA_TYPE, Relation, SqlError};

use super::text::{self, Style};
use super::{StatementOf, VisibleRoles};
use crate::error::ApiError;
use crate::http::admin::ReadTimes;
use crate::http::guard::Admitted;
use crate::http::json;
use crate::http::objects::{self, ObjectForm};
use crate::http::query::{QueryJob, run_query, timeout};
use crate::http::request::{RequestParts, extract};
use crate::redact;
use crate::scheduler::running::Description;
use crate::sign_in::Caller;
use crate::state::State;

/// What the answer is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `/sql` as JSON.
    Json,
    /// `/sql` as CSV.
    Csv,
    /// `/sql` as Arrow's stream of record batches.
    Arrow,
    /// `/sql` as a Parquet file.
    Parquet,
    /// `/exec`
    QuestDbJson,
    /// `/exp`
    QuestDbCsv,
    /// `/api/v3/query_sql`
    Objects(ObjectForm),
}

impl Form {
    /// The form of an answer of `/sql`: the one that is named, else one that the client accepts.
    fn negotiate(named: Option<&str>, accepts: &str) -> Result<Self, ApiError> {
        let is_accepted = |kind: &str| accepts.split(',').any(|accepted| accepted.trim().starts_with(kind));
        Ok(match named {
            Some("json") => Self::Json,
            Some("csv") => Self::Csv,
            Some("arrow") => Self::Arrow,
            Some("parquet") => Self::Parquet,
            Some(_) => return Err(ApiError::invalid_parameter("format", "it is json, csv, arrow or parquet")),
            None if is_accepted(STREAM_MEDIA_TYPE) => Self::Arrow,
            None if is_accepted(PARQUET_MEDIA_TYPE) => Self::Parquet,
            None if is_accepted("text/csv") => Self::Csv,
            None => Self::Json,
        })
    }

    const fn style(self) -> Style {
        match self {
            Self::Json | Self::Csv | Self::Arrow | Self::Parquet | Self::Objects(_) => Style::Plain,
            Self::QuestDbJson | Self::QuestDbCsv => Style::QuestDb,
        }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Json | Self::QuestDbJson => "application/json",
            Self::Csv | Self::QuestDbCsv => "text/csv; charset=utf-8",
            Self::Arrow => STREAM_MEDIA_TYPE,
            Self::Parquet => PARQUET_MEDIA_TYPE,
            Self::Objects(form) => form.content_type(),
        }
    }
}

/// Which statements a request may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// Those that only read.
    Read,
    /// All.
    Change,
}

impl Access {
    /// All by POST.
    fn for_request(request: &Request) -> Self {
        if request.method() == Method::POST { Self::Change } else { Self::Read }
    }

    /// QuestDB's tools change things by GET: programs may, pages of browsers may not.
    fn of_exec(request: &Request) -> Self {
        let admitted = request.extensions().get::<Admitted>();
        match admitted.filter(|_| request.method() == Method::GET) {
            Some(admitted) if admitted.is_trusted_program => Self::Change,
            _ => Self::for_request(request),
        }
    }
}

/// `/sql`: statements as the parameter `query` (or `q`), or as the body; the last one's answer.
pub(crate) async fn sql(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let access = Access::for_request(&request);
    let parts = extract(&state, request).await?;
    let accepts = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let form = Form::negotiate(parts.parameters.get("format"), accepts)?;
    answer(&state, &parts, access, form).await
}

/// `/api/v3/query_sql`, as InfluxDB 3 answers it.
pub(crate) async fn query_sql(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let access = Access::for_request(&request);
    let mut parts = extract(&state, request).await?;
    parts.read_json()?;
    if parts.parameters.get("params").is_some_and(|params| params != "{}") {
        return Err(ApiError::invalid_parameter("params", "SQL by HTTP has no parameters: write values into the text"));
    }
    let form = ObjectForm::named(parts.parameters.get("format"))?;
    answer(&state, &parts, access, Form::Objects(form)).await
}

/// `/exec`, as QuestDB answers it.
pub(crate) async fn exec(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let access = Access::of_exec(&request);
    let parts = extract(&state, request).await?;
    answer(&state, &parts, access, Form::QuestDbJson).await
}

/// `/exp`, as QuestDB answers it.
pub(crate) async fn exp(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let access = Access::for_request(&request);
    let parts = extract(&state, request).await?;
    answer(&state, &parts, access, Form::QuestDbCsv).await
}

async fn answer(state: &Arc<State>, parts: &RequestParts, access: Access, form: Form) -> Result<Response, ApiError> {
    let text = statements(parts)?;
    let budget = state.query_budget(parts);
    let database = parts.parameters.database(&parts.headers);
    let description =
        Description { kind: "sql", text: text.clone(), database: database.clone(), caller: parts.caller.clone() };
    let asked = QueryJob::without_request(description, budget.clone(), timeout(state, &parts.parameters)?);
    let manner = if form.style() == Style::QuestDb { Manner::QuestDb } else { Manner::Postgres };
    let roles = VisibleRoles { state: state.clone(), scope: parts.caller.scope.clone() };
    let session =
        ClientContext { manner, roles: Some(Arc::new(roles)), ..ClientContext::new(database, state.db.now_ns()) };
    let limit = limit_of(parts)?;
    let of_query = budget.clone();
    let caller = parts.caller.clone();
    let work = move |state: &State| match run(state, (&text, access), (&session, &of_query), &caller) {
        Ok(Ran::Refused(error)) => {
            let status = error.status;
            Ok((failed(&text, &SqlError::Invalid(error.message), form).into_bytes(), status))
        }
        Ok(Ran::Given(given)) => {
            let answer = Written { text: &text, limit, form, warnings: session.notices.take() };
            Ok((answer.bytes(given)?, StatusCode::OK))
        }
        Err(SqlError::Query(error)) if !matches!(error, QueryError::Invalid(_)) => Err(error),
        Err(error) => Ok((failed(&text, &error, form).into_bytes(), StatusCode::BAD_REQUEST)),
    };
    let (body, status) = run_query(state, asked, work).await?;
    let content_type = if status == StatusCode::OK { form.content_type() } else { "application/json" };
    let mut response = (status, [(header::CONTENT_TYPE, content_type)], body).into_response();
    ReadTimes::attach(&mut response, &budget);
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    }
    Ok(response)
}

/// What came of a request's statements.
enum Ran {
    Given(Answer),
    /// One of them changes something, which the request may not: none was run.
    Refused(ApiError),
}

/// Runs statements one after another; the last one's table, if it gives one.
fn run(
    state: &State,
    (text, access): (&str, Access),
    (session, budget): (&ClientContext, &Arc<Budget>),
    caller: &Caller,
) -> Result<Ran, SqlError> {
    let parsed = sql::parse(text)?;
    if let Some(change) = parsed.first_change().filter(|_| access == Access::Read) {
        return Ok(Ran::Refused(ApiError::only_by_post(&change)));
    }
    let mut last = Answer::Rows(Relation::default());
    for place in 0..parsed.statements.len() {
        last = match (StatementOf { parsed: &parsed, index: place, text, caller }).run(state, session, budget)? {
            given @ (Answer::Rows(_) | Answer::Table(_) | Answer::Returned(..)) => given,
            Answer::Set(..) | Answer::Done(_) => Answer::Rows(Relation::default()),
            Answer::CopyOut(_) | Answer::CopyIn(_) => {
                let message =
                    "COPY is of Postgres's protocol: here a query with format=csv gives rows, and INSERT takes them";
                return Err(SqlError::Invalid(message.to_owned()));
            }
        };
    }
    Ok(Ran::Given(last))
}

fn statements(parts: &RequestParts) -> Result<String, ApiError> {
    let parameters = &parts.parameters;
    let given = parameters.get("query").or_else(|| parameters.get("q"));
    let content_type =
        parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match given {
        Some(text) => Ok(text.to_owned()),
        None if parts.body.is_empty() || content_type.starts_with("application/x-www-form-urlencoded") => {
            Err(ApiError::invalid_parameter(
                "query",
                "it is missing: give statements as the parameter query or as the body",
            ))
        }
        None => String::from_utf8(parts.body.to_vec()).map_err(|_| ApiError::bad_data("the statement is not UTF-8")),
    }
}

/// QuestDB's `limit=hi` or `limit=lo,hi`: rows to skip and where to stop.
fn limit_of(parts: &RequestParts) -> Result<RowLimit, ApiError> {
    let Some(text) = parts.parameters.get("limit") else { return Ok(RowLimit::default()) };
    let number = |text: &str| {
        text.trim()
            .parse::<usize>()
            .map_err(|_| ApiError::invalid_parameter("limit", "it is a number of rows, or two: from,to"))
    };
    match text.split_once(',') {
        None => Ok(RowLimit { skip: 0, rows: Some(number(text)?) }),
        Some((from, to)) => {
            let skip = number(from)?;
            Ok(RowLimit { skip, rows: Some(number(to)?.saturating_sub(skip)) })
        }
    }
}

/// An answer to be written.
struct Written<'a> {
    text: &'a str,
    limit: RowLimit,
    form: Form,
    /// What statements have to say beside their rows.
    warnings: Vec<String>,
}

impl Written<'_> {
    fn bytes(&self, given: Answer) -> Result<Vec<u8>, QueryError> {
        let Self { text, limit, form, warnings } = self;
        let mut out = String::new();
        match (*form, given) {
            (form @ (Form::Json | Form::QuestDbJson), Answer::Table(mut table)) => {
                let total = table.rows.order().len();
                table.rows.limit(*limit);
                push_head(&mut out, text, &table.columns, form);
                text::push_table(&mut out, &table.rows, form.style());
                push_total(&mut out, total, warnings, form);
            }
            (form, given) => {
                let mut relation = given.relation().unwrap_or_default();
                let total = relation.rows.len();
                limit.apply(&mut relation.rows);
                match form {
                    Form::Arrow => {
                        let batches = relation.batches();
                        return query::arrow::stream(&batches.schema(), batches);
                    }
                    Form::Parquet | Form::Objects(ObjectForm::Parquet) => return relation.parquet(),
                    Form::Objects(form) => {
                        let names: Vec<&str> = relation.columns.iter().map(|column| column.name.as_ref()).collect();
                        out = objects::text(&names, &relation.rows, form);
                    }
                    Form::Csv | Form::QuestDbCsv => out = text::csv(&relation, form.style()),
                    Form::Json | Form::QuestDbJson => {
                        push_head(&mut out, text, &relation.columns, form);
                        text::push_rows(&mut out, &relation.rows, form.style());
                        push_total(&mut out, total, warnings, form);
                    }
                }
            }
        }
        Ok(out.into_bytes())
    }
}

/// What JSON has before the rows.
fn push_head(out: &mut String, text: &str, of: &[Column], form: Form) {
    let columns = text::columns(of, form.style());
    // Writing into a string does not fail.
    let _ = if form == Form::QuestDbJson {
        let time = of.iter().position(|column| column.sql_type == sql::SqlType::Timestamp);
        let (query, time) = (json::text(text), time.map_or(-1, |place| place as i64));
        write!(out, r#"{{"query":{query},"columns":{columns},"timestamp":{time},"dataset":"#)
    } else {
        write!(out, r#"{{"columns":{columns},"rows":"#)
    };
}

/// The members after the rows. QuestDB's answers have no warnings.
fn push_total(out: &mut String, total: usize, warnings: &[String], form: Form) {
    let name = if form == Form::QuestDbJson { "count" } else { "row_count" };
    let _ = write!(out, r#","{name}":{total}"#);
    if form == Form::Json && !warnings.is_empty() {
        let _ = write!(out, r#","warnings":{}"#, json::texts(warnings));
    }
    out.push('}');
}

/// An error as an answer says it. Where QuestDB names a place of the text, errors whose place is not known have that of its beginning.
fn failed(text: &str, error: &SqlError, form: Form) -> String {
    let (code, message) = (error.code(), json::text(&redact::passwords(&error.to_string())));
    match form.style() {
        Style::Plain => {
            format!(r#"{{"status":"error","errorType":"bad_data","code":"{code}","error":{message}}}"#)
        }
        Style::QuestDb => {
            let (query, position) = (json::text(&redact::passwords(text)), error.offset_in(text).unwrap_or_default());
            format!(r#"{{"query":{query},"error":{message},"position":{position}}}"#)
        }
    }
}
