//! Answers in Prometheus's JSON.

use std::fmt::Write;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use model::{Exemplar, Labels};
use promql::{EvaluationResult, Histogram, ResultValue, SeriesPoints};

/// A JSON string.
pub(crate) fn text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push_text(&mut out, text);
    out
}

/// Appends a JSON string.
pub(crate) fn push_text(out: &mut String, text: &str) {
    // All bytes at once: texts are short, and hardly any has one.
    let is_special = |byte: u8| byte < b' ' || byte == b'"' || byte == b'\\';
    if text.bytes().fold(false, |found, byte| found | is_special(byte)) {
        out.push_str(&serde_json::Value::String(text.to_owned()).to_string());
        return;
    }
    out.push('"');
    out.push_str(text);
    out.push('"');
}

/// The numbers below a hundred, with two digits each.
const TWO_DIGITS: &str = "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546474849\
     5051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899";

/// Appends a whole number.
pub(crate) fn push_integer(out: &mut String, number: i64) {
    if let Ok(small @ 0..100) = usize::try_from(number) {
        let from = 2 * small + usize::from(small < 10);
        out.push_str(TWO_DIGITS.get(from..2 * small + 2).unwrap_or_default());
        return;
    }
    // The digits of 64 bits and a sign.
    let (mut digits, mut from, mut left) = ([0_u8; 20], 20, number.unsigned_abs());
    loop {
        from -= 1;
        if let Some(digit) = digits.get_mut(from) {
            *digit = b'0' + (left % 10) as u8;
        }
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.push_str(if number < 0 { "-" } else { "" });
    out.push_str(digits.get(from..).and_then(|digits| std::str::from_utf8(digits).ok()).unwrap_or_default());
}

/// Appends a float that is a whole number of a moderate size, without a point; whether it is one.
pub(crate) fn push_whole(out: &mut String, value: f64) -> bool {
    let is_whole = value.fract() == 0.0 && value.abs() < 1e15;
    if is_whole {
        // The sign of zero, too.
        out.push_str(if value.is_sign_negative() { "-" } else { "" });
        push_integer(out, value.abs() as i64);
    }
    is_whole
}

/// A JSON array of strings.
pub(crate) fn texts(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|item| text(item)).collect();
    format!("[{}]", quoted.join(","))
}

/// A successful answer around its data, for data that is small: it is copied.
pub(crate) fn success(data: &str, warnings: &[String], infos: &[String]) -> Response {
    let mut body = begin();
    body.push_str(data);
    respond(end(body, warnings, infos))
}

/// The beginning of a successful answer, behind which its data is to be written.
pub(crate) fn begin() -> String {
    r#"{"status":"success","data":"#.to_owned()
}

/// Closes what [`begin`] began.
pub(crate) fn end(mut body: String, warnings: &[String], infos: &[String]) -> String {
    for (name, notes) in [("warnings", warnings), ("infos", infos)] {
        if !notes.is_empty() {
            let _ = write!(body, r#","{name}":{}"#, texts(notes));
        }
    }
    body.push('}');
    body
}

/// Sends a body that is whole.
pub(crate) fn respond(body: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// The data of a query's answer.
#[cfg(test)]
pub(crate) fn answer(answer: &EvaluationResult) -> String {
    let mut out = String::new();
    push_answer(&mut out, answer);
    out
}

/// Appends the data of a query's answer.
pub(crate) fn push_answer(out: &mut String, answer: &EvaluationResult) {
    match &answer.value {
        ResultValue::Scalar { time_ms, value } => {
            out.push_str(r#"{"resultType":"scalar","result":"#);
            push_sample(out, *time_ms, *value);
        }
        ResultValue::String { time_ms, text } => {
            out.push_str(r#"{"resultType":"string","result":["#);
            push_time(out, *time_ms);
            let _ = write!(out, ",{}]", self::text(text));
        }
        ResultValue::Vector(vector) => {
            out.push_str(r#"{"resultType":"vector","result":["#);
            for (place, sample) in vector.iter().enumerate() {
                out.push_str(if place == 0 { "" } else { "," });
                push_metric(out, &sample.labels);
                if let Some(histogram) = &sample.histogram {
                    out.push_str(r#","histogram":"#);
                    push_histogram(out, sample.time_ms, histogram);
                } else {
                    out.push_str(r#","value":"#);
                    push_sample(out, sample.time_ms, sample.value);
                }
                out.push('}');
            }
            out.push(']');
        }
        ResultValue::Matrix(matrix) => {
            out.push_str(r#"{"resultType":"matrix","result":["#);
            for (place, (labels, points)) in matrix.iter().enumerate() {
                out.push_str(if place == 0 { "" } else { "," });
                push_metric(out, labels);
                push_points(out, points);
                out.push('}');
            }
            out.push(']');
        }
    }
    out.push('}');
}

fn push_points(out: &mut String, points: &SeriesPoints) {
    if !points.floats.is_empty() {
        out.push_str(r#","values":["#);
        for (place, (time_ms, value)) in points.floats.iter().enumerate() {
            out.push_str(if place == 0 { "" } else { "," });
            push_sample(out, *time_ms, *value);
        }
        out.push(']');
    }
    if !points.histograms.is_empty() {
        out.push_str(r#","histograms":["#);
        for (place, (time_ms, histogram)) in points.histograms.iter().enumerate() {
            out.push_str(if place == 0 { "" } else { "," });
            push_histogram(out, *time_ms, histogram);
        }
        out.push(']');
    }
}

/// Time, count, sum, and the buckets that are not empty: how the bounds belong to them, bounds and count.
fn push_histogram(out: &mut String, time_ms: i64, histogram: &Histogram) {
    let (count, sum, buckets) = histogram.json_parts();
    out.push('[');
    push_time(out, time_ms);
    let _ = write!(out, r#",{{"count":"{count}","sum":"{sum}""#);
    for (place, (bounds, [lower, upper, count])) in buckets.iter().enumerate() {
        out.push_str(if place == 0 { r#","buckets":["# } else { "," });
        let _ = write!(out, r#"[{bounds},"{lower}","{upper}","{count}"]"#);
    }
    out.push_str(if buckets.is_empty() { "}]" } else { "]}]" });
}

/// Exemplars by series.
pub(crate) fn exemplars(found: &[(Labels, Vec<Exemplar>)]) -> String {
    let series = found.iter().map(|(series, exemplars)| {
        let exemplars: Vec<String> = exemplars
            .iter()
            .map(|exemplar| {
                let mut out = format!(
                    r#"{{"labels":{},"value":"{}","timestamp":"#,
                    labels(&exemplar.labels),
                    number(exemplar.value)
                );
                push_time(&mut out, exemplar.timestamp_ns.div_euclid(1_000_000));
                out.push('}');
                out
            })
            .collect();
        format!(r#"{{"seriesLabels":{},"exemplars":[{}]}}"#, labels(series), exemplars.join(","))
    });
    format!("[{}]", series.collect::<Vec<_>>().join(","))
}

/// Labels as an object.
pub(crate) fn labels(labels: &Labels) -> String {
    let mut out = String::new();
    push_labels(&mut out, labels);
    out
}

/// Appends labels as an object.
pub(crate) fn push_labels(out: &mut String, labels: &Labels) {
    out.push('{');
    for (index, (name, value)) in labels.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        push_text(out, name);
        out.push(':');
        push_text(out, value);
    }
    out.push('}');
}

fn push_metric(out: &mut String, labels: &Labels) {
    out.push_str(r#"{"metric":"#);
    push_labels(out, labels);
}

fn push_sample(out: &mut String, time_ms: i64, value: f64) {
    out.push('[');
    push_time(out, time_ms);
    out.push_str(",\"");
    push_number(out, value);
    out.push_str("\"]");
}

/// Seconds, with as many digits as milliseconds need.
fn push_time(out: &mut String, time_ms: i64) {
    let sign = if time_ms < 0 { "-" } else { "" };
    let (seconds, milliseconds) = (time_ms.unsigned_abs() / 1000, time_ms.unsigned_abs() % 1000);
    out.push_str(sign);
    push_integer(out, seconds as i64);
    if milliseconds > 0 {
        let _ = write!(out, ".{milliseconds:03}");
        out.truncate(out.trim_end_matches('0').len());
    }
}

/// A value as Prometheus writes it: the shortest decimal that reads back the same, without exponent.
pub(crate) fn number(value: f64) -> String {
    let mut out = String::new();
    push_number(&mut out, value);
    out
}

/// Appends a value as [`number`] writes it.
fn push_number(out: &mut String, value: f64) {
    if value.is_nan() {
        out.push_str("NaN");
    } else if value.is_infinite() {
        out.push_str(if value > 0.0 { "+Inf" } else { "-Inf" });
    } else if !push_whole(out, value) {
        let _ = write!(out, "{value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_times_as_prometheus_writes_them() {
        let numbers = [
            (1.0, "1"),
            (-0.0, "-0"),
            (0.1, "0.1"),
            (1e21, "1000000000000000000000"),
            (1.5e-7, "0.00000015"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ];
        for (value, expected) in numbers {
            assert_eq!(number(value), expected);
        }
        for (time_ms, expected) in [(1_435_781_451_781, "1435781451.781"), (1500, "1.5"), (-1250, "-1.25"), (0, "0")] {
            let mut out = String::new();
            push_time(&mut out, time_ms);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn an_answer_is_what_grafana_expects() {
        let labels = Labels::from_pairs([("__name__", "up"), ("job", "a\"b")]).unwrap();
        let value = ResultValue::Matrix(vec![(
            labels,
            SeriesPoints { floats: vec![(1000, 1.0), (1500, f64::NAN)], histograms: Vec::new() },
        )]);
        let expected = r#"{"resultType":"matrix","result":[{"metric":{"__name__":"up","job":"a\"b"},"values":[[1,"1"],[1.5,"NaN"]]}]}"#;
        assert_eq!(answer(&EvaluationResult { value, warnings: Vec::new(), infos: Vec::new() }), expected);
    }
}
