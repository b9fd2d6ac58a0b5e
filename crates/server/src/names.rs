//! `/api/v1/series`, `/labels`, `/label/<name>/values` and `/metadata`.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::response::Response;

use crate::error::ApiError;
use crate::json;
use crate::routes::{Taken, take};
use crate::state::State;

const LABEL_PREFIX: &str = "/api/v1/label/";

pub(crate) async fn series(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let taken = take(&state, request).await?;
    let matcher_sets = taken.parameters.matcher_sets()?;
    if matcher_sets.is_empty() {
        return Err(ApiError::bad_data("no match[] parameter provided"));
    }
    let (range, limit, database) = asked(&taken)?;
    let found = state.work(move |state| state.db.series(&database, &matcher_sets, range, more(limit))).await??;
    let cut = limit > 0 && found.len() > limit;
    let kept = found.iter().take(if cut { limit } else { found.len() });
    let objects: Vec<String> = kept.map(json::labels).collect();
    Ok(json::success(&format!("[{}]", objects.join(",")), &warnings(cut), &[]))
}

pub(crate) async fn labels(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let taken = take(&state, request).await?;
    let matcher_sets = taken.parameters.matcher_sets()?;
    let (range, limit, database) = asked(&taken)?;
    let found = state.work(move |state| state.db.label_names(&database, &matcher_sets, range, more(limit))).await??;
    Ok(listed(found, limit))
}

pub(crate) async fn label_values(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let taken = take(&state, request).await?;
    let name = label_name(&taken.path)?;
    let matcher_sets = taken.parameters.matcher_sets()?;
    let (range, limit, database) = asked(&taken)?;
    let find = move |state: &State| state.db.label_values(&database, &name, &matcher_sets, range, more(limit));
    Ok(listed(state.work(find).await??, limit))
}

pub(crate) async fn metadata(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let taken = take(&state, request).await?;
    let limit = taken.parameters.limit()?;
    let database = taken.parameters.database(&taken.headers);
    let found = state.db.metadata(&database, taken.parameters.get("metric"));
    let limit = if limit == 0 { found.len() } else { limit };
    let mut data = String::from("{");
    for (place, known) in found.iter().take(limit).enumerate() {
        let comma = if place == 0 { "" } else { "," };
        let (family, help, unit) = (json::text(&known.family), json::text(&known.help), json::text(&known.unit));
        let kind = known.kind.name();
        let _ = write!(data, r#"{comma}{family}:[{{"type":"{kind}","help":{help},"unit":{unit}}}]"#);
    }
    data.push('}');
    Ok(json::success(&data, &[], &[]))
}

fn asked(taken: &Taken) -> Result<(model::TimeRange, usize, String), ApiError> {
    let parameters = &taken.parameters;
    Ok((parameters.range()?, parameters.limit()?, parameters.database(&taken.headers)))
}

/// One more than asked for tells whether something was cut off.
const fn more(limit: usize) -> usize {
    if limit == 0 { 0 } else { limit.saturating_add(1) }
}

fn warnings(cut: bool) -> Vec<String> {
    if cut { vec!["results truncated due to limit".to_owned()] } else { Vec::new() }
}

fn listed(mut found: Vec<String>, limit: usize) -> Response {
    let cut = limit > 0 && found.len() > limit;
    if cut {
        found.truncate(limit);
    }
    json::success(&json::texts(&found), &warnings(cut), &[])
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
