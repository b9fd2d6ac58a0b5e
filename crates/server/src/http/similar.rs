//! `/api/v1/similar`: the series, or the places in series, most like a stretch of one.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::response::Response;
use model::TimeRange;
use query::plan::{BinValue, Likeness, Measure, Offsets, Question, Scan, Selector, SimilarTo};
use query::{Cell, FOLDED_WARNING, Frame, Plan};

use crate::error::ApiError;
use crate::http::admin::ReadTimes;
use crate::http::json;
use crate::http::parameters::Parameters;
use crate::http::query::{QueryJob, run_query};
use crate::http::request::extract;
use crate::state::State;

const NS_PER_MS: i64 = 1_000_000;

/// Places unless the request says how many.
const COUNT_DEFAULT: usize = 10;

/// Selectors of one request.
const SELECTORS_MAX: usize = 32;

/// `GET` or `POST /api/v1/similar?match[]=&reference=&start=&end=&step=`, and if wanted `search_start`, `search_end`, `k`, `measure`, `band`, `offsets`,
/// `per_series`, `normalise`, `bins`.
pub(crate) async fn similar(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let likeness = likeness(&parts.parameters)?;
    let length_ms = match &likeness.question {
        Question::Similar(similar) => {
            let TimeRange { start_ns, end_ns } = similar.reference.read_range();
            let bins = end_ns.saturating_sub(start_ns).saturating_add(1) / likeness.step_ns;
            bins.saturating_mul(likeness.step_ns) / NS_PER_MS
        }
        _ => 0,
    };
    let plan = Plan::Likeness(Box::new(likeness));
    let budget = state.query_budget(&parts);
    let job = QueryJob::new(&state, "similar", &plan.to_string(), &budget, &parts)?;
    let database = parts.parameters.database(&parts.headers);
    let of_query = budget.clone();
    let (data, ()) = run_query(&state, job, move |state| {
        let outcome = state.db.run_plan(&database, &plan, &of_query)?;
        Ok((answer_json(&outcome.frames, length_ms), ()))
    })
    .await?;
    let warnings: Vec<String> = budget.is_folded().then(|| FOLDED_WARNING.to_owned()).into_iter().collect();
    let mut response = json::success(&data, &warnings, &[]);
    ReadTimes::attach(&mut response, &budget);
    Ok(response)
}

fn likeness(parameters: &Parameters) -> Result<Likeness, ApiError> {
    let range = range(parameters, ["start", "end"], None)?;
    let searched = self::range(parameters, ["search_start", "search_end"], Some(range))?;
    let scans: Vec<Plan> = parameters
        .all("match[]")
        .take(SELECTORS_MAX + 1)
        .map(|text| scan(text, searched, "match[]"))
        .collect::<Result<_, _>>()?;
    let input = match <[Plan; 1]>::try_from(scans) {
        Ok([only]) => only,
        Err(none) if none.is_empty() => return Err(ApiError::invalid_parameter("match[]", "it is missing")),
        Err(many) if many.len() > SELECTORS_MAX => {
            return Err(ApiError::invalid_parameter("match[]", format!("there are more than {SELECTORS_MAX}")));
        }
        Err(several) => Plan::Union(several),
    };
    let step_ns = parameters.duration_ms("step")?.map(|step_ms| step_ms.saturating_mul(NS_PER_MS));
    let step_ns = step_ns.filter(|step_ns| *step_ns > 0).ok_or_else(|| {
        ApiError::invalid_parameter(
            "step",
            "series are compared in bins of time: it says how wide they are, such as 5m",
        )
    })?;
    let count = whole(parameters, "k")?.unwrap_or(COUNT_DEFAULT);
    let measure = parameters.get("measure").unwrap_or("euclidean");
    let measure = Measure::named(measure, whole(parameters, "band")?)
        .map_err(|message| ApiError::invalid_parameter("measure", message))?;
    let similar = SimilarTo {
        reference: scan(parameters.required("reference")?, range, "reference")?,
        count,
        per_series: whole(parameters, "per_series")?.unwrap_or(count),
        measure,
        is_normalised: parameters.flag("normalise", true)?,
        offsets: choice(parameters, "offsets", &Offsets::NAMED)?.unwrap_or(Offsets::Aligned),
    };
    let bins = choice(parameters, "bins", &BinValue::NAMED)?.unwrap_or(BinValue::Average);
    Ok(Likeness { input, step_ns, bins, question: Question::Similar(Box::new(similar)) })
}

/// Two times, of which the second is not part of the range; without them another range, if there is one.
fn range(
    parameters: &Parameters,
    [start, end]: [&str; 2],
    otherwise: Option<TimeRange>,
) -> Result<TimeRange, ApiError> {
    let time_ns = |name| Ok::<_, ApiError>(parameters.time_ms(name)?.map(|time_ms| time_ms.saturating_mul(NS_PER_MS)));
    let otherwise_ns = otherwise.map(|range| (range.start_ns, range.end_ns.saturating_add(1)));
    let missing = |name| ApiError::invalid_parameter(name, "it is missing");
    let start_ns = time_ns(start)?.or(otherwise_ns.map(|range| range.0)).ok_or_else(|| missing(start))?;
    let end_ns = time_ns(end)?.or(otherwise_ns.map(|range| range.1)).ok_or_else(|| missing(end))?;
    if end_ns <= start_ns {
        return Err(ApiError::invalid_parameter(end, format!("it is not after {start}")));
    }
    Ok(TimeRange::new(start_ns, end_ns - 1))
}

fn scan(text: &str, range: TimeRange, parameter: &str) -> Result<Plan, ApiError> {
    let selectors = Selector::parse_all(text).map_err(|message| ApiError::invalid_parameter(parameter, message))?;
    Ok(Plan::Scan(Scan { table: None, selectors, tokens: Vec::new(), range }))
}

fn whole(parameters: &Parameters, name: &str) -> Result<Option<usize>, ApiError> {
    let parse = |text: &str| {
        text.parse().map_err(|_| ApiError::invalid_parameter(name, format!("{text:?} is not a number from 0 up")))
    };
    parameters.get(name).map(parse).transpose()
}

fn choice<T: Copy>(parameters: &Parameters, name: &str, all: &[(&str, T)]) -> Result<Option<T>, ApiError> {
    let Some(text) = parameters.get(name) else { return Ok(None) };
    let known = || all.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(" or ");
    let chosen = all.iter().find(|(known, _)| *known == text).map(|(_, chosen)| *chosen);
    chosen.map(Some).ok_or_else(|| ApiError::invalid_parameter(name, format!("it is {}", known())))
}

/// `{"resultType":"places","result":[{"rank":1,"metric":{…},"start":…,"end":…,"distance":…,"correlation":…},…]}`
fn answer_json(frames: &[Frame], length_ms: i64) -> String {
    let mut places: Vec<(i64, String)> = Vec::new();
    for frame in frames {
        let cell = |name: &str, row| frame.column(name).map_or(Cell::Null, |column| column.cell(row));
        for (row, time_ns) in frame.timestamps_ns.iter().enumerate() {
            let Cell::I64(rank) = cell("rank", row) else { continue };
            let start_ms = time_ns.div_euclid(NS_PER_MS);
            let seconds = |time_ms: i64| time_ms as f64 / 1000.0;
            let mut text = format!(r#"{{"rank":{rank},"metric":{},"#, json::labels(&frame.labels));
            let number = |name| cell(name, row).number().filter(|number| number.is_finite());
            let number = |name| number(name).map_or_else(|| "null".to_owned(), |number| number.to_string());
            // Writing to memory does not fail.
            let _ = write!(
                text,
                r#""start":{},"end":{},"distance":{},"correlation":{}}}"#,
                seconds(start_ms),
                seconds(start_ms.saturating_add(length_ms)),
                number("distance"),
                number("correlation")
            );
            places.push((rank, text));
        }
    }
    places.sort_unstable();
    let places: Vec<String> = places.into_iter().map(|(_, text)| text).collect();
    format!(r#"{{"resultType":"places","result":[{}]}}"#, places.join(","))
}
