//! Which formats are asked for, and which one a response has.

use crate::config::{NameEscaping, ScrapeProtocol};

/// The format of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Prometheus's text.
    Text,
    /// OpenMetrics.
    OpenMetrics,
    /// Protobuf, messages after their lengths.
    Protobuf,
}

const DEFAULT: [ScrapeProtocol; 4] =
    [ScrapeProtocol::OpenMetricsText1, ScrapeProtocol::OpenMetricsText0, ScrapeProtocol::Text1, ScrapeProtocol::Text0];

/// The `Accept` header: formats in order of preference; none are Prometheus's own, with protobuf first for native histograms.
pub(crate) fn accept(protocols: &[ScrapeProtocol], wants_native: bool, escaping: NameEscaping) -> String {
    let own: Vec<ScrapeProtocol> = match protocols {
        [] if wants_native => std::iter::once(ScrapeProtocol::Protobuf).chain(DEFAULT).collect(),
        [] => DEFAULT.to_vec(),
        given => given.to_vec(),
    };
    // Five formats and anything: weights fall by a tenth.
    let mut weight = 6;
    let mut parts = Vec::new();
    for protocol in own {
        let media = match protocol {
            ScrapeProtocol::Protobuf => {
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited".to_owned()
            }
            ScrapeProtocol::OpenMetricsText0 => "application/openmetrics-text;version=0.0.1".to_owned(),
            ScrapeProtocol::OpenMetricsText1 => {
                format!("application/openmetrics-text;version=1.0.0;escaping={}", escaping.name())
            }
            ScrapeProtocol::Text0 => "text/plain;version=0.0.4".to_owned(),
            ScrapeProtocol::Text1 => format!("text/plain;version=1.0.0;escaping={}", escaping.name()),
        };
        parts.push(format!("{media};q=0.{weight}"));
        weight -= 1;
    }
    parts.push(format!("*/*;q=0.{weight}"));
    parts.join(",")
}

/// The format that a content type names, or the job's for responses that name none.
pub(crate) fn format_of(content_type: &str, fallback: Option<ScrapeProtocol>) -> Result<Format, String> {
    let lower = content_type.to_ascii_lowercase();
    let mut parts = lower.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default();
    let parameters: Vec<&str> = parts.collect();
    let has = |wanted: &str| parameters.iter().any(|parameter| parameter.replace('"', "") == wanted);
    let has_no = |name: &str| !parameters.iter().any(|parameter| parameter.starts_with(name));
    match media {
        "application/openmetrics-text" => return Ok(Format::OpenMetrics),
        "application/vnd.google.protobuf"
            if (has("proto=io.prometheus.client.metricfamily") || has_no("proto="))
                && (has("encoding=delimited") || has_no("encoding=")) =>
        {
            return Ok(Format::Protobuf);
        }
        "text/plain" => return Ok(Format::Text),
        _ => {}
    }
    match fallback {
        Some(ScrapeProtocol::Protobuf) => Ok(Format::Protobuf),
        Some(ScrapeProtocol::OpenMetricsText0 | ScrapeProtocol::OpenMetricsText1) => Ok(Format::OpenMetrics),
        Some(ScrapeProtocol::Text0 | ScrapeProtocol::Text1) => Ok(Format::Text),
        None if content_type.is_empty() => {
            Err("the response has no Content-Type, and the job has no fallback_scrape_protocol".to_owned())
        }
        None => Err(format!(
            "the response's Content-Type {content_type:?} is not supported, and the job has no fallback_scrape_protocol"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_asked_for_in_order() {
        let expected = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                        application/openmetrics-text;version=0.0.1;q=0.5,\
                        text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(accept(&[], false, NameEscaping::AllowUtf8), expected);
        assert!(accept(&[], true, NameEscaping::AllowUtf8).starts_with("application/vnd.google.protobuf;"));
        let legacy = accept(&[ScrapeProtocol::Text1], false, NameEscaping::Underscores);
        assert_eq!(legacy, "text/plain;version=1.0.0;escaping=underscores;q=0.6,*/*;q=0.5");
    }

    #[test]
    fn content_types_name_formats() {
        for (content_type, expected) in [
            ("text/plain; version=0.0.4; charset=utf-8", Some(Format::Text)),
            ("text/plain", Some(Format::Text)),
            ("application/openmetrics-text; version=1.0.0", Some(Format::OpenMetrics)),
            (
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
                Some(Format::Protobuf),
            ),
            ("application/vnd.google.protobuf; encoding=text", None),
            ("text/html", None),
            ("", None),
        ] {
            assert_eq!(format_of(content_type, None).ok(), expected, "{content_type}");
            assert!(format_of(content_type, Some(ScrapeProtocol::Text0)).is_ok());
        }
    }
}
