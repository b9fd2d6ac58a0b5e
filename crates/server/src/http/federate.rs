//! `/federate`: the newest samples of series, as a target of Prometheus shows them, with their times.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use model::{METRIC_NAME, MetricKind, MetricMetadata, is_stale_bits};
use query::{Budget, Series};

use crate::error::ApiError;
use crate::http::export::{NS_PER_MS, selected};
use crate::http::json;
use crate::http::request::extract;
use crate::state::State;

/// The label that Prometheus's `honor_labels` needs: without it a scraping server would put its own target's in.
const INSTANCE: &str = "instance";

pub(crate) async fn federate(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let now_ms = state.db.now_ns() / NS_PER_MS;
    let range_ms = (now_ms - state.db.lookback_ms() + 1, now_ms);
    let format = Format::negotiate(&parts.headers);
    let database = parts.parameters.database(&parts.headers);
    let metadata_of = state.clone();
    let write = move |series: &[Series], budget: &Budget| {
        let known = metadata_of.db.metadata(&database, None, budget)?;
        Ok(exposition(series, &known, format).into_bytes())
    };
    let text = selected(&state, &parts, "federate", range_ms, write).await?;
    Ok(([(header::CONTENT_TYPE, format.content_type())], text).into_response())
}

/// A version of the text format, and how names beyond Prometheus's old alphabet are written in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Format {
    is_version_1: bool,
    escaping: Escaping,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escaping {
    /// As they are, in quotes.
    Utf8,
    Underscores,
    Dots,
    Values,
}

impl Escaping {
    const ALL: [(&str, Self); 4] = [
        ("allow-utf-8", Self::Utf8),
        ("underscores", Self::Underscores),
        ("dots", Self::Dots),
        ("values", Self::Values),
    ];

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(candidate, _)| *candidate == name).map(|(_, escaping)| *escaping)
    }

    /// A name as Prometheus's `EscapeName` writes it.
    fn name(self, name: &str) -> String {
        let plain = |(place, character): (usize, char)| {
            character.is_ascii_alphabetic() || matches!(character, '_' | ':') || place > 0 && character.is_ascii_digit()
        };
        let is_plain = !name.is_empty() && name.chars().enumerate().all(plain);
        match self {
            Self::Utf8 if is_plain => name.to_owned(),
            Self::Utf8 => quoted(name),
            Self::Underscores | Self::Values if is_plain || name.is_empty() => name.to_owned(),
            Self::Underscores => name.chars().enumerate().map(|one| if plain(one) { one.1 } else { '_' }).collect(),
            Self::Dots | Self::Values => {
                let mut out = String::from(if self == Self::Values { "U__" } else { "" });
                for one in name.chars().enumerate() {
                    // Writing to memory does not fail.
                    let _ = match (self, one.1) {
                        (_, '_') => write!(out, "__"),
                        (Self::Dots, '.') => write!(out, "_dot_"),
                        (_, character) if plain(one) => write!(out, "{character}"),
                        (Self::Dots, _) => write!(out, "__"),
                        (_, character) => write!(out, "_{:x}_", u32::from(character)),
                    };
                }
                out
            }
        }
    }
}

impl Format {
    /// What `Accept` asks for. A client that says nothing of names, as Prometheus 2, gets them in its old alphabet.
    fn negotiate(headers: &HeaderMap) -> Self {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut best: Option<(f64, Self)> = None;
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let is_text = parts.next().is_some_and(|media_type| media_type.eq_ignore_ascii_case("text/plain"));
            let pairs: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
            let parameter = |wanted: &str| {
                let found = pairs.iter().find(|(name, _)| name.trim().eq_ignore_ascii_case(wanted));
                found.map(|(_, value)| value.trim().trim_matches('"'))
            };
            let version = parameter("version").unwrap_or("0.0.4");
            let quality = parameter("q").and_then(|quality| quality.parse().ok()).unwrap_or(1.0);
            let is_known = is_text && ["0.0.4", "1.0.0"].contains(&version);
            if is_known && best.is_none_or(|(before, _)| quality > before) {
                let escaping = parameter("escaping").and_then(Escaping::from_name).unwrap_or(Escaping::Underscores);
                best = Some((quality, Self { is_version_1: version == "1.0.0", escaping }));
            }
        }
        best.map_or(Self { is_version_1: false, escaping: Escaping::Underscores }, |(_, format)| format)
    }

    fn content_type(self) -> String {
        let version = if self.is_version_1 { "1.0.0" } else { "0.0.4" };
        let escaping = Escaping::ALL.iter().find(|(_, one)| *one == self.escaping).map_or("", |(name, _)| name);
        format!("text/plain; version={version}; charset=utf-8; escaping={escaping}")
    }
}

/// The newest float of each series that has not ended, families together and in order.
fn exposition(series: &[Series], known: &[MetricMetadata], format: Format) -> String {
    let mut families: BTreeMap<String, (&str, String)> = BTreeMap::new();
    for series in series {
        let newest = series.timestamps_ms.last().zip(series.values.last());
        let Some((time_ms, value)) = newest.filter(|(_, value)| !is_stale_bits(**value)) else { continue };
        let name = series.labels.get(METRIC_NAME).unwrap_or_default();
        let written = format.escaping.name(name);
        let pairs = series.labels.iter().filter(|(label, _)| *label != METRIC_NAME);
        let mut parts: Vec<String> =
            pairs.map(|(name, value)| format!("{}={}", format.escaping.name(name), quoted(value))).collect();
        if series.labels.get(INSTANCE).is_none() {
            parts.push(format!("{INSTANCE}=\"\""));
        }
        let is_quoted = written.starts_with('"');
        if is_quoted {
            parts.insert(0, written.clone());
        }
        let head = if is_quoted { "" } else { written.as_str() };
        let line = format!("{head}{{{}}} {} {time_ms}\n", parts.join(","), json::number(*value));
        families.entry(written).or_insert((name, String::new())).1.push_str(&line);
    }
    let mut text = String::new();
    for (written, (name, lines)) in families {
        let about = known.iter().find(|one| one.family == name || name.strip_suffix("_total") == Some(&one.family));
        if let Some(help) = about.map(|about| &about.help).filter(|help| !help.is_empty()) {
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            let _ = writeln!(text, "# HELP {written} {help}");
        }
        // Series of histograms and summaries are no families of their own.
        let kind = match about.map(|about| about.kind) {
            Some(MetricKind::Counter) => "counter",
            Some(MetricKind::Gauge) => "gauge",
            _ => "untyped",
        };
        let _ = write!(text, "# TYPE {written} {kind}\n{lines}");
    }
    text
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn formats_are_negotiated_as_prometheus_does() {
        let negotiated = |accept: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
            Format::negotiate(&headers).content_type()
        };
        let [old, new] =
            ["0.0.4", "1.0.0"].map(|version| format!("text/plain; version={version}; charset=utf-8; escaping="));
        assert_eq!(negotiated("*/*"), format!("{old}underscores"));
        // Prometheus 2.
        let accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(negotiated(accept), format!("{old}underscores"));
        // Prometheus 3.
        let accept = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,\
                      text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(negotiated(accept), format!("{new}allow-utf-8"));
        assert_eq!(negotiated("text/plain;escaping=dots"), format!("{old}dots"));
    }

    #[test]
    fn names_are_escaped_as_prometheus_does() {
        for (name, expected) in [
            ("no:escaping_required", ["no:escaping_required", "no:escaping__required", "no:escaping_required"]),
            (
                "mysystem.prod.west.cpu",
                ["mysystem_prod_west_cpu", "mysystem_dot_prod_dot_west_dot_cpu", "U__mysystem_2e_prod_2e_west_2e_cpu"],
            ),
            ("http.status:sum", ["http_status:sum", "http_dot_status:sum", "U__http_2e_status:sum"]),
            ("label with 😱", ["label_with__", "label__with____", "U__label_20_with_20__1f631_"]),
            ("1a", ["_a", "__a", "U___31_a"]),
        ] {
            let found = [Escaping::Underscores, Escaping::Dots, Escaping::Values].map(|one| one.name(name));
            assert_eq!(found, expected, "{name}");
        }
        assert_eq!(Escaping::Utf8.name("a.b"), "\"a.b\"");
    }
}
