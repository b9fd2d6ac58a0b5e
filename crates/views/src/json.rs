//! Values of the log as JSON.

use std::fmt::Write;

use db::LogValue;
use model::histogram::HistogramCounts;
use model::{Labels, NativeHistogram};

/// A text in quotes.
pub(crate) fn text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// An object of labels.
pub(crate) fn push_labels(out: &mut String, labels: &Labels) {
    out.push('{');
    for (index, (name, value)) in labels.iter().enumerate() {
        out.push_str(if index == 0 { "" } else { "," });
        // Writing into a string does not fail.
        let _ = write!(out, "{}:{}", text(name), text(value));
    }
    out.push('}');
}

/// A time as RFC 3339 in UTC, with as many digits as it needs.
pub(crate) fn time(timestamp_ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(timestamp_ns))
        .map_or_else(|_| timestamp_ns.to_string(), |at| at.to_string())
}

/// A value. What JSON has no number for is a text, as Prometheus writes it; of a native histogram count and sum are given.
pub(crate) fn push_value(out: &mut String, value: &LogValue) {
    // Writing into a string does not fail.
    let _ = match value {
        LogValue::Float(value) => {
            push_float(out, *value);
            Ok(())
        }
        LogValue::Integer(value) => write!(out, "{value}"),
        LogValue::Unsigned(value) => write!(out, "{value}"),
        LogValue::Bool(value) => write!(out, "{value}"),
        LogValue::Text(value) => write!(out, "{}", text(value)),
        LogValue::Histogram(histogram) => {
            out.push_str("{\"count\":");
            push_float(out, observations(histogram));
            out.push_str(",\"sum\":");
            push_float(out, histogram.sum);
            write!(out, "}}")
        }
    };
}

fn observations(histogram: &NativeHistogram) -> f64 {
    match &histogram.counts {
        HistogramCounts::Integer(counts) => counts.count as f64,
        HistogramCounts::Float(counts) => counts.count,
    }
}

fn push_float(out: &mut String, value: f64) {
    // Writing into a string does not fail.
    let _ = match value {
        value if value.is_nan() => write!(out, "\"NaN\""),
        value if value.is_infinite() => write!(out, "\"{}Inf\"", if value > 0.0 { "+" } else { "-" }),
        value => write!(out, "{value}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_json() {
        let shown = |value: &LogValue| {
            let mut out = String::new();
            push_value(&mut out, value);
            out
        };
        let floats = [1.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(|value| shown(&LogValue::Float(value)));
        assert_eq!(floats, ["1.5", "\"NaN\"", "\"+Inf\"", "\"-Inf\""]);
        assert_eq!(shown(&LogValue::Text("a\"\n".into())), r#""a\"\n""#);
        assert_eq!(shown(&LogValue::Unsigned(u64::MAX)), "18446744073709551615");
        assert_eq!(time(1_700_000_000_500_000_000), "2023-11-14T22:13:20.5Z");
    }
}
