//! Answers in Prometheus's JSON: whether two are the same, and how one is written in a script.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;

use serde_json::Value;

use super::TOLERANCE;

/// What `stats` counts by the same rules in both; what is held at once is each evaluator's own.
const COUNTS: [&str; 4] =
    ["totalQueryableSamples", "samplesRead", "totalQueryableSamplesPerStep", "samplesReadPerStep"];

/// What differs first.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    what: String,
    prometheus: String,
    thalweg: String,
}

impl Difference {
    /// What differs, of a server that was asked in Prometheus's place.
    pub(crate) fn told(&self, other: &str) -> String {
        format!("{}: {other} {}, Thalweg {}", self.what, self.prometheus, self.thalweg)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.told("Prometheus"))
    }
}

/// A float as scripts and Prometheus have it.
pub(crate) fn float_text(value: f64) -> String {
    match value {
        f64::INFINITY => "Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ => value.to_string(),
    }
}

pub(crate) fn number(value: &Value) -> Option<f64> {
    match value.as_str()? {
        "+Inf" => Some(f64::INFINITY),
        text => text.parse().ok(),
    }
}

pub(crate) fn close(a: f64, b: f64) -> bool {
    // The difference of two infinities is no number.
    let same = a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    // Go's exponential function overflows a little before the end of floats.
    let are_at_the_end = a.signum() == b.signum() && a.abs().min(b.abs()) > f64::MAX / 2.0;
    same || are_at_the_end || (a.is_finite() && b.is_finite() && (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()))
}

/// Whether two pieces of JSON are the same, texts that are numbers compared as such.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (Value::String(_), Value::String(_)) => a == b || number(a).zip(number(b)).is_some_and(|(a, b)| close(a, b)),
        (Value::Number(a), Value::Number(b)) => a.as_f64().zip(b.as_f64()).is_some_and(|(a, b)| close(a, b)),
        _ => a == b,
    }
}

/// Series by their labels; a scalar is one without.
fn series(answer: &Value) -> BTreeMap<String, Value> {
    let result = &answer["data"]["result"];
    if answer["data"]["resultType"] == "scalar" {
        return BTreeMap::from([("scalar".to_owned(), result.clone())]);
    }
    let items = result.as_array().into_iter().flatten();
    let one = |item: &Value| {
        let mut values = item.clone();
        let metric = values["metric"].take();
        (metric.to_string(), values)
    };
    items.map(one).collect()
}

/// What differs, if anything does. Errors are the same if both are; notes and their words are not looked at.
pub(crate) fn compare(prometheus: &Value, thalweg: &Value) -> Option<Difference> {
    let difference =
        |what: &str, a: String, b: String| Some(Difference { what: what.to_owned(), prometheus: a, thalweg: b });
    let [theirs, ours] = [prometheus, thalweg].map(|answer| answer["status"] == "success");
    if theirs != ours {
        let text = |answer: &Value| answer["error"].as_str().unwrap_or("answers").to_owned();
        return difference("one fails", text(prometheus), text(thalweg));
    }
    if !theirs {
        return None;
    }
    let [theirs, ours] = [prometheus, thalweg].map(series);
    let names = |series: &BTreeMap<String, Value>| series.keys().cloned().collect::<Vec<_>>();
    if names(&theirs) != names(&ours) {
        return difference("series", format!("{:?}", names(&theirs)), format!("{:?}", names(&ours)));
    }
    let mut pairs = theirs.iter().zip(ours.values());
    if let Some(((name, theirs), ours)) = pairs.find(|((_, theirs), ours)| !same(theirs, ours)) {
        return difference(name, theirs.to_string(), ours.to_string());
    }
    compare_counts(prometheus, thalweg)
}

/// What differs in the samples that two answers say they touched, if anything does.
pub(crate) fn compare_counts(prometheus: &Value, thalweg: &Value) -> Option<Difference> {
    let counts = [prometheus, thalweg].map(|answer| &answer["data"]["stats"]["samples"]);
    let (name, [theirs, ours]) = COUNTS
        .iter()
        .map(|name| (name, counts.map(|counts| &counts[name])))
        .find(|(_, [theirs, ours])| !same(theirs, ours))?;
    Some(Difference { what: (*name).to_owned(), prometheus: theirs.to_string(), thalweg: ours.to_string() })
}

/// The expected lines of a script's paragraph. Histograms have no short form that holds all of them: a comment says so.
pub(crate) fn lines(answer: &Value, start_ms: i64, step_ms: i64) -> String {
    if answer["status"] != "success" {
        let message = answer["error"].as_str().unwrap_or_default();
        return format!("    expect fail msg: {message}\n");
    }
    if answer["data"]["resultType"] == "scalar" {
        let value = number(&answer["data"]["result"][1]).unwrap_or(f64::NAN);
        return format!("    {}\n", float_text(value));
    }
    let mut lines = String::new();
    for item in answer["data"]["result"].as_array().into_iter().flatten() {
        if item.get("histogram").or(item.get("histograms")).is_some() {
            lines += "# A series of histograms is left out.\n";
            continue;
        }
        let pairs = item["metric"].as_object().into_iter().flatten();
        let labels: Vec<String> = pairs.map(|(name, value)| format!("{name:?}={value}")).collect();
        let single = item.get("value").map(|value| vec![value.clone()]).unwrap_or_default();
        let points = item["values"].as_array().unwrap_or(&single);
        let mut cells: Vec<String> = Vec::new();
        for point in points {
            let time_ms = (point[0].as_f64().unwrap_or_default() * 1000.0).round() as i64;
            let step = if step_ms > 0 { ((time_ms - start_ms) / step_ms) as usize } else { 0 };
            cells.resize(step, "_".to_owned());
            cells.push(float_text(number(&point[1]).unwrap_or(f64::NAN)));
        }
        let _ = writeln!(lines, "    {{{}}} {}", labels.join(", "), cells.join(" "));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_compared_by_value() {
        let answer = |result: &str| -> Value {
            let text = format!(r#"{{"status":"success","data":{{"resultType":"vector","result":{result}}}}}"#);
            serde_json::from_str(&text).unwrap()
        };
        let one = |value: &str| answer(&format!(r#"[{{"metric":{{"a":"1"}},"value":[1,"{value}"]}}]"#));
        for (a, b, is_same) in [
            ("1", "1", true),
            ("0.1", "0.1000000000000000055", true),
            ("1", "1.00000001", false),
            ("NaN", "NaN", true),
            ("+Inf", "+Inf", true),
            ("+Inf", "-Inf", false),
            ("+Inf", "1.7e308", true),
            ("+Inf", "1e307", false),
            ("NaN", "1", false),
        ] {
            assert_eq!(compare(&one(a), &one(b)).is_none(), is_same, "{a} {b}");
        }
        assert!(compare(&one("1"), &answer("[]")).is_some());
        assert_eq!(lines(&one("1"), 0, 0), "    {\"a\"=\"1\"} 1\n");
    }
}
