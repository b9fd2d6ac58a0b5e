//! `/api/v1/series`, `/labels`, `/label/<name>/values` and `/metadata`.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::response::Response;

use model::{Matcher, MetricMetadata, TimeRange};
use query::{Budget, QueryError};

use crate::error::ApiError;
use crate::http::json;
use crate::http::query::{QueryJob, TRUNCATED};
use crate::http::request::{RequestParts, extract};
use crate::http::streamed::{self, Chunks};
use crate::state::State;

const LABEL_PREFIX: &str = "/api/v1/label/";

pub(crate) async fn series(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    if !parts.parameters.has("match[]") {
        return Err(ApiError::bad_data("no match[] parameter provided"));
    }
    answer(&state, parts, "series", |state, wanted, budget, chunks| {
        let Wanted { database, matcher_sets, range, limit } = wanted;
        let found = state.db.series(database, matcher_sets, *range, more(*limit), budget)?;
        push_list(chunks, &found, *limit, json::push_labels)
    })
    .await
}

pub(crate) async fn labels(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    answer(&state, parts, "labels", |state, wanted, budget, chunks| {
        let Wanted { database, matcher_sets, range, limit } = wanted;
        let found = state.db.label_names(database, matcher_sets, *range, more(*limit), budget)?;
        push_list(chunks, &found, *limit, |out, name| json::push_text(out, name))
    })
    .await
}

pub(crate) async fn label_values(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let name = label_name(&parts.path)?;
    answer(&state, parts, "label_values", move |state, wanted, budget, chunks| {
        let Wanted { database, matcher_sets, range, limit } = wanted;
        let found = state.db.label_values(database, &name, matcher_sets, *range, more(*limit), budget)?;
        push_list(chunks, &found, *limit, |out, name| json::push_text(out, name))
    })
    .await
}

/// Which series a request for names is about.
struct Wanted {
    database: String,
    matcher_sets: Vec<Vec<Matcher>>,
    range: TimeRange,
    /// 0: all.
    limit: usize,
}

/// Answers a request for names as the query that it is: it waits for its turn, can be stopped, and keeps to a budget of memory. The work writes the
/// list as JSON, and says whether the limit cut it.
async fn answer(
    state: &Arc<State>,
    parts: RequestParts,
    kind: &'static str,
    work: impl FnOnce(&State, &Wanted, &Budget, &mut Chunks) -> Result<bool, QueryError> + Send + 'static,
) -> Result<Response, ApiError> {
    let budget = state.query_budget(&parts);
    let text = parts.parameters.all("match[]").collect::<Vec<_>>().join(", ");
    let asked = QueryJob::new(state, kind, &text, &budget, &parts)?;
    let wanted = Wanted {
        database: parts.parameters.database(&parts.headers),
        matcher_sets: parts.parameters.matcher_sets()?,
        range: parts.parameters.range()?,
        limit: parts.parameters.limit()?,
    };
    let run_budget = budget.clone();
    let run = move |state: &State, chunks: &mut Chunks| {
        let cut = work(state, &wanted, &run_budget, chunks)?;
        let warnings = if cut { vec![TRUNCATED.to_owned()] } else { Vec::new() };
        chunks.text = json::end(std::mem::take(&mut chunks.text), &warnings, &[]);
        Ok(())
    };
    streamed::answer(state, asked, budget, run).await
}

/// Writes a JSON list of up to so many items (0: all); whether some were cut off.
fn push_list<T>(
    chunks: &mut Chunks,
    found: &[T],
    limit: usize,
    mut push: impl FnMut(&mut String, &T),
) -> Result<bool, QueryError> {
    let cut = limit > 0 && found.len() > limit;
    let mut separator = '[';
    for item in found.iter().take(if cut { limit } else { found.len() }) {
        chunks.text.push(separator);
        separator = ',';
        push(&mut chunks.text, item);
        chunks.send_if_full()?;
    }
    chunks.text.push_str(if separator == '[' { "[]" } else { "]" });
    Ok(cut)
}

pub(crate) async fn metadata(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let metric = parts.parameters.get("metric").map(str::to_owned);
    answer(&state, parts, "metadata", move |state, wanted, budget, chunks| {
        budget.check()?;
        push_metadata(chunks, &state.db.metadata(&wanted.database, metric.as_deref(), budget)?, wanted.limit)
    })
    .await
}

fn push_metadata(chunks: &mut Chunks, found: &[MetricMetadata], limit: usize) -> Result<bool, QueryError> {
    let limit = if limit == 0 { found.len() } else { limit };
    chunks.text.push('{');
    for (place, known) in found.iter().take(limit).enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let (family, help, unit) = (json::text(&known.family), json::text(&known.help), json::text(&known.unit));
        let kind = known.kind.name();
        // Writing to a string cannot fail.
        let _ = write!(chunks.text, r#"{comma}{family}:[{{"type":"{kind}","help":{help},"unit":{unit}}}]"#);
        chunks.send_if_full()?;
    }
    chunks.text.push('}');
    Ok(false)
}

/// One more than asked for tells whether something was cut off.
const fn more(limit: usize) -> usize {
    if limit == 0 { 0 } else { limit.saturating_add(1) }
}

/// The label's name in the path: percent-encoded, and with Prometheus's `U__` form for names beyond its old alphabet.
fn label_name(path: &str) -> Result<String, ApiError> {
    let encoded = path.strip_prefix(LABEL_PREFIX).and_then(|rest| rest.strip_suffix("/values")).unwrap_or_default();
    let pair = format!("n={}", encoded.replace('+', "%2B"));
    let name = form_urlencoded::parse(pair.as_bytes()).next().map(|(_, name)| name.into_owned()).unwrap_or_default();
    let name = unescape(&name);
    if name.is_empty() || name.contains('\u{fffd}') {
        return Err(ApiError::bad_data(format!("invalid label name: {encoded:?}")));
    }
    Ok(name)
}

/// `U__a_2e_b` is `a.b`: `_` doubled, other characters as `_HEX_`. What is not of this form stays as it is.
fn unescape(name: &str) -> String {
    let Some(escaped) = name.strip_prefix("U__") else {
        return name.to_owned();
    };
    let mut plain = String::new();
    let mut rest = escaped;
    while let Some((before, behind)) = rest.split_once('_') {
        plain.push_str(before);
        if let Some(behind) = behind.strip_prefix('_') {
            plain.push('_');
            rest = behind;
            continue;
        }
        let character = behind.split_once('_').and_then(|(digits, behind)| {
            let code = u32::from_str_radix(digits, 16).ok()?;
            Some((char::from_u32(code)?, behind))
        });
        let Some((character, behind)) = character else {
            return name.to_owned();
        };
        plain.push(character);
        rest = behind;
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_names_in_paths() {
        for (path, name) in [
            ("/api/v1/label/job/values", "job"),
            ("/api/v1/label/__name__/values", "__name__"),
            ("/api/v1/label/a%2Eb+c/values", "a.b+c"),
            ("/api/v1/label/U__http_2e_status__code/values", "http.status_code"),
            ("/api/v1/label/U__bad_zz_/values", "U__bad_zz_"),
        ] {
            assert_eq!(label_name(path).unwrap(), name);
        }
        assert!(label_name("/api/v1/label//values").is_err());
    }
}
