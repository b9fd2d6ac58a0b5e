//! `/api/v1/query` and `/api/v1/query_range`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State as From};
use axum::response::Response;
use db::{Analysis, InstantQuery, RangeQuery};
use promql::{EvaluationResult, NameRemoval};
use query::{Budget, QueryError, Stop};

use crate::error::ApiError;
use crate::http::explain::{self, Explain};
use crate::http::json;
use crate::http::parameters::Parameters;
use crate::http::query_statistics::{Ran, Statistics};
use crate::http::request::{RequestParts, extract};
use crate::scheduler::running::{Description, Outcome};
use crate::scheduler::tenants::Tenant;
use crate::state::State;

/// Steps of a range query, as Prometheus has it.
pub(crate) const STEPS_MAX: i64 = 11_000;

const NS_PER_MS: i64 = 1_000_000;

pub(crate) async fn instant(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let parameters = &parts.parameters;
    let query = InstantQuery {
        text: parameters.required("query")?.to_owned(),
        time_ms: parameters.time_ms("time")?.unwrap_or_else(|| state.db.now_ns() / NS_PER_MS),
        lookback_ms: lookback_ms(parameters)?,
        name_removal: name_removal(parameters)?,
        may_cache: parameters.may_cache(),
        budget: state.query_budget(&parts),
    };
    let explain = Explain::from_parameters(parameters)?;
    if explain == Explain::Plan {
        let database = parameters.database(&parts.headers);
        let tenant = state.tenant(&database, &parts.caller.scope);
        return planned(&state, &tenant, move |state| state.db.explain_instant(&database, &query)).await;
    }
    let asked = QueryJob::new(&state, "instant", &query.text, &query.budget, &parts)?;
    let database = asked.description.database.clone();
    if explain == Explain::Analyze {
        return analyze(&state, asked, move |state| state.db.analyze_instant(&database, &query)).await;
    }
    let start_ms = query.time_ms;
    let run_query = move |state: &State, counts: bool| {
        let (answer, used) = state.db.instant_with_cache_use(&database, &query)?;
        let (ended_ns, peak) = (state.db.now_ns(), query.budget.samples_peak());
        let counts = counts.then(|| state.db.count_instant(&database, &query)).transpose()?;
        Ok((answer, Ran { used, ended_ns, peak, counts }))
    };
    run(&state, asked, (start_ms, 0), run_query).await
}

pub(crate) async fn range(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let parameters = &parts.parameters;
    let query = RangeQuery {
        text: parameters.required("query")?.to_owned(),
        start_ms: parameters.required_time_ms("start")?,
        end_ms: parameters.required_time_ms("end")?,
        step_ms: step_ms(parameters)?,
        lookback_ms: lookback_ms(parameters)?,
        name_removal: name_removal(parameters)?,
        may_cache: parameters.may_cache(),
        budget: state.query_budget(&parts),
    };
    if query.end_ms < query.start_ms {
        return Err(ApiError::invalid_parameter("end", "end timestamp must not be before start time"));
    }
    if (query.end_ms - query.start_ms) / query.step_ms > STEPS_MAX {
        return Err(ApiError::bad_data(
            "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution \
             (?step=XX)",
        ));
    }
    let explain = Explain::from_parameters(parameters)?;
    if explain == Explain::Plan {
        let database = parameters.database(&parts.headers);
        let tenant = state.tenant(&database, &parts.caller.scope);
        return planned(&state, &tenant, move |state| state.db.explain_range(&database, &query)).await;
    }
    let asked = QueryJob::new(&state, "range", &query.text, &query.budget, &parts)?;
    let database = asked.description.database.clone();
    if explain == Explain::Analyze {
        return analyze(&state, asked, move |state| state.db.analyze_range(&database, &query)).await;
    }
    let times = (query.start_ms, query.step_ms);
    let run_query = move |state: &State, counts: bool| {
        let (answer, used) = state.db.range_with_cache_use(&database, &query)?;
        let (ended_ns, peak) = (state.db.now_ns(), query.budget.samples_peak());
        let counts = counts.then(|| state.db.count_range(&database, &query)).transpose()?;
        Ok((answer, Ran { used, ended_ns, peak, counts }))
    };
    run(&state, asked, times, run_query).await
}

/// The answer of `explain=plan`: which views answer is looked for as for the query itself, not on a thread of the network.
async fn planned(
    state: &Arc<State>,
    tenant: &Arc<Tenant>,
    explain: impl FnOnce(&State) -> Result<String, QueryError> + Send + 'static,
) -> Result<Response, ApiError> {
    let plan = state.work_of(tenant, explain).await??;
    Ok(json::success(&explain::planned(&plan), &[], &[]))
}

fn step_ms(parameters: &Parameters) -> Result<i64, ApiError> {
    parameters.required("step")?;
    parameters.duration_ms("step")?.filter(|step_ms| *step_ms > 0).ok_or_else(|| {
        let reason = "zero or negative query resolution step widths are not accepted. Try a positive integer";
        ApiError::invalid_parameter("step", reason)
    })
}

/// When names are dropped, if the request says so.
fn name_removal(parameters: &Parameters) -> Result<Option<NameRemoval>, ApiError> {
    let Some(word) = parameters.get("delayed_name_removal") else { return Ok(None) };
    let known = NameRemoval::from_word(word);
    known.map(Some).ok_or_else(|| ApiError::invalid_parameter("delayed_name_removal", "it is false, true or always"))
}

/// `/api/v1/format_query`: the standard spelling.
pub(crate) async fn format(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let text = extract(&state, request).await?.parameters.required("query")?.to_owned();
    let work = move |state: &State| {
        let expression = state.db.parse(&text)?;
        Ok::<_, QueryError>(json::end(json::begin() + &json::text(&expression.pretty()), &[], &[]))
    };
    Ok(json::respond(state.work(work).await??))
}

/// `/api/v1/parse_query`: the tree.
pub(crate) async fn parse(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let text = extract(&state, request).await?.parameters.required("query")?.to_owned();
    let work = move |state: &State| {
        let expression = state.db.parse(&text)?;
        Ok::<_, QueryError>(json::end(json::begin() + &expression.tree_json(), &[], &[]))
    };
    Ok(json::respond(state.work(work).await??))
}

/// `/api/v1/query_exemplars`: the exemplars of all series that an expression selects.
pub(crate) async fn exemplars(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let parameters = &parts.parameters;
    let text = parameters.required("query")?.to_owned();
    let (range, database) = (parameters.range()?, parameters.database(&parts.headers));
    let budget = state.query_budget(&parts);
    let asked = QueryJob::new(&state, "exemplars", &text, &budget, &parts)?;
    let work = move |state: &State| {
        let expression = state.db.parse(&text)?;
        let sets: Vec<_> = expression.selectors().into_iter().map(<[_]>::to_vec).collect();
        let found = state.db.exemplars(&database, &sets, &range, &budget)?;
        Ok((json::end(json::begin() + &json::exemplars(&found), &[], &[]), ()))
    };
    Ok(json::respond(run_query(&state, asked, work).await?.0))
}

fn lookback_ms(parameters: &Parameters) -> Result<Option<i64>, ApiError> {
    match parameters.duration_ms("lookback_delta")? {
        Some(..=0) => Err(ApiError::invalid_parameter("lookback_delta", "it must be positive")),
        lookback_ms => Ok(lookback_ms),
    }
}

/// The request's own timeout, if it is shorter than the server's.
pub(crate) fn timeout(state: &State, parameters: &Parameters) -> Result<Duration, ApiError> {
    let wanted_ms = parameters.duration_ms("timeout")?.and_then(|wanted_ms| u64::try_from(wanted_ms).ok());
    let timeout_ms =
        wanted_ms.map_or(state.settings.query_timeout_ms, |wanted_ms| wanted_ms.min(state.settings.query_timeout_ms));
    Ok(Duration::from_millis(timeout_ms))
}

/// The warning of an answer that a limit cut.
pub(crate) const TRUNCATED: &str = "results truncated due to limit";

/// A query with what its request says of how it is to be run.
pub(crate) struct QueryJob {
    description: Description,
    budget: Arc<Budget>,
    timeout: Duration,
    /// Series that the answer may have; 0: all.
    limit: usize,
    /// What the answer is to say of what it took.
    statistics: Option<Statistics>,
}

impl QueryJob {
    pub(crate) fn new(
        state: &State,
        kind: &'static str,
        text: &str,
        budget: &Arc<Budget>,
        parts: &RequestParts,
    ) -> Result<Self, ApiError> {
        let (database, caller) = (parts.parameters.database(&parts.headers), parts.caller.clone());
        Ok(Self {
            description: Description { kind, text: text.to_owned(), database, caller },
            budget: budget.clone(),
            timeout: timeout(state, &parts.parameters)?,
            limit: parts.parameters.limit()?,
            statistics: Statistics::from_parameters(&parts.parameters),
        })
    }

    /// A query that no HTTP request asked.
    pub(crate) const fn without_request(description: Description, budget: Arc<Budget>, timeout: Duration) -> Self {
        Self { description, budget, timeout, limit: 0, statistics: None }
    }
}

/// An answer as it is sent.
pub(crate) trait AnswerBytes {
    /// How many bytes it has.
    fn answer_bytes(&self) -> usize;
}

impl AnswerBytes for String {
    fn answer_bytes(&self) -> usize {
        self.len()
    }
}

impl AnswerBytes for Vec<u8> {
    fn answer_bytes(&self) -> usize {
        self.len()
    }
}

/// Runs a query when it is its turn, on a thread that may block. Stops it when its time is up or its client has left.
/// The work returns the answer as it is to be sent, and what else of it the caller wants.
pub(crate) async fn run_query<B: AnswerBytes + Send + 'static, T: Send + 'static>(
    state: &Arc<State>,
    asked: QueryJob,
    work: impl FnOnce(&State) -> Result<(B, T), QueryError> + Send + 'static,
) -> Result<(B, T), ApiError> {
    let QueryJob { description, budget, timeout, .. } = asked;
    let (started, permit) = state.start_query(description, budget.clone()).await?;
    // The permit bounds how many work.
    let work = state.work_on_query(move |state| {
        let _permit = permit;
        work(state)
    });
    tokio::pin!(work);
    let done = match tokio::time::timeout(timeout, &mut work).await {
        Ok(done) => done,
        Err(_) => {
            budget.stop(Stop::Timeout);
            work.await
        }
    };
    let (outcome, answer_bytes) = match &done {
        Ok(Ok((data, _))) => (Outcome::Answered, data.answer_bytes()),
        Ok(Err(QueryError::Stopped(Stop::Timeout))) => (Outcome::TimedOut, 0),
        Ok(Err(QueryError::Stopped(Stop::Cancelled))) => (Outcome::Cancelled, 0),
        _ => (Outcome::Failed, 0),
    };
    let reason = match &done {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(error) => Some(error.message.clone()),
    };
    started.end(outcome, answer_bytes, reason.as_deref());
    Ok(done??)
}

/// Evaluates a query that begins at a time and has a step, in milliseconds; counts samples, too, if it is told to.
async fn run(
    state: &Arc<State>,
    asked: QueryJob,
    times_ms: (i64, i64),
    evaluate: impl FnOnce(&State, bool) -> Result<(EvaluationResult, Ran), QueryError> + Send + 'static,
) -> Result<Response, ApiError> {
    let (limit, statistics, budget) = (asked.limit, asked.statistics, asked.budget.clone());
    let asked_ns = state.db.now_ns();
    let work = move |state: &State| {
        let started_ns = state.db.now_ns();
        let (answer, ran) = evaluate(state, statistics.is_some())?;
        let (answer, cut) = cut(answer, limit);
        budget.hold_bytes(written_bytes(&answer))?;
        let mut body = json::begin();
        json::push_answer(&mut body, &answer);
        if let Some(statistics) = statistics {
            body.pop();
            body += &statistics.written([asked_ns, started_ns], times_ms, ran);
        }
        let EvaluationResult { mut warnings, infos, .. } = answer;
        warnings.extend(cut.then(|| TRUNCATED.to_owned()));
        warnings.extend(statistics.and_then(Statistics::warning));
        Ok((json::end(body, &warnings, &infos), ()))
    };
    Ok(json::respond(run_query(state, asked, work).await?.0))
}

/// What running a query took, in place of its answer.
async fn analyze(
    state: &Arc<State>,
    asked: QueryJob,
    run: impl FnOnce(&State) -> Result<Analysis, QueryError> + Send + 'static,
) -> Result<Response, ApiError> {
    let work = move |state: &State| {
        let analysis = run(state)?;
        Ok((explain::analysis(&analysis), (analysis.answer.warnings, analysis.answer.infos)))
    };
    let (data, (warnings, infos)) = run_query(state, asked, work).await?;
    Ok(json::success(&data, &warnings, &infos))
}

/// About as many bytes as an answer takes when it is written down.
fn written_bytes(answer: &EvaluationResult) -> u64 {
    const FLOAT_BYTES: usize = 24;
    const HISTOGRAM_BYTES: usize = 512;
    let bytes: usize = match &answer.value {
        promql::ResultValue::Vector(vector) => vector.len() * FLOAT_BYTES,
        promql::ResultValue::Matrix(matrix) => {
            let points = |(_, points): &(_, promql::SeriesPoints)| {
                points.floats.len() * FLOAT_BYTES + points.histograms.len() * HISTOGRAM_BYTES
            };
            matrix.iter().map(points).sum()
        }
        promql::ResultValue::Scalar { .. } | promql::ResultValue::String { .. } => 0,
    };
    bytes as u64
}

/// Leaves at most so many series (0: all), and says whether some were cut off.
fn cut(mut answer: EvaluationResult, limit: usize) -> (EvaluationResult, bool) {
    let limit = if limit == 0 { usize::MAX } else { limit };
    let before = match &mut answer.value {
        promql::ResultValue::Vector(vector) => {
            let before = vector.len();
            vector.truncate(limit);
            before
        }
        promql::ResultValue::Matrix(matrix) => {
            let before = matrix.len();
            matrix.truncate(limit);
            before
        }
        _ => 0,
    };
    (answer, before > limit)
}
