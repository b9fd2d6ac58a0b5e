//! Runs the scripts in `tests/conformance`, which are in the form of Prometheus's test language:
//!
//! ```text
//! load 1m
//!     metric{label="x"} 0+10x3 _ stale {{schema:0 count:4 sum:10 buckets:[1 2 1]}}
//!
//! eval instant at 5m expression         or: eval range from 0 to 10m step 1m expression
//!     expect fail msg: …                 the whole message
//!     expect warn msg: …                 all warnings, and
//!     expect info msg: …                 all infos, with their places
//!     expect ordered                     series come in this order
//!     {label="x"} 30                     a series with its values, step by step
//! ```
//!
//! Expressions and data are ours; what they yield was recorded from Prometheus 3.15, but for `grouped_names.test`: that Prometheus does not have.
#![allow(clippy::unwrap_used, clippy::panic, reason = "the lints do not see that helpers of tests are tests")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use model::histogram::{BucketSpan, CounterReset, Counts, HistogramCounts, HistogramLayout};
use model::{Labels, NativeHistogram, STALE_NAN_BITS};
use query::Budget;
use support::Memory;
use thalweg_promql::{
    Evaluation, EvaluationResult, EvaluationSettings, Expression, Histogram, NameRemoval, PartialRange,
    PartialRangeSlice, QueryTimes, RangeOutcome, ResultValue, evaluate_instant, evaluate_partial_range, evaluate_range,
    parse_selector,
};

#[test]
fn scripts() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance");
    let (mut failures, mut evaluations) = (Vec::new(), 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let name_removal = match name.as_str() {
            "delayed.test" => NameRemoval::DelayedAlways,
            "grouped_names.test" => NameRemoval::Delayed,
            _ => NameRemoval::AtOnce,
        };
        let settings = EvaluationSettings { name_removal, ..EvaluationSettings::default() };
        let mut memory = Memory::default();
        for (number, head, lines) in paragraphs(&text) {
            if let Some(interval) = head.strip_prefix("load ") {
                lines.iter().for_each(|line| load(&mut memory, duration_ms(interval), line));
                continue;
            }
            evaluations += 1;
            if let Err(message) = run(&memory, &settings, head, &lines) {
                failures.push(format!("{name}:{number}: {head}\n    {message}"));
            }
        }
    }
    let shown = failures.iter().take(std::env::var("SHOWN").map_or(40, |shown| shown.parse().unwrap()));
    let shown: Vec<String> = shown.cloned().collect();
    assert!(failures.is_empty(), "{} of {evaluations} failed:\n{}", failures.len(), shown.join("\n"));
    assert!(evaluations > 1500, "only {evaluations} evaluations found");
}

/// Steps around the times of all scripts are the same, evaluated as a whole or in parts that are joined.
#[test]
fn steps_are_the_same_in_parts() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance");
    let (mut compared, mut joined) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        let (settings, mut memory) = (EvaluationSettings::default(), Memory::default());
        for (_, head, lines) in paragraphs(&text) {
            if let Some(interval) = head.strip_prefix("load ") {
                lines.iter().for_each(|line| load(&mut memory, duration_ms(interval), line));
                continue;
            }
            let (times, text) = times_of(head);
            let times = match times.as_slice() {
                [time_ms] => QueryTimes { start_ms: time_ms - 240_000, end_ms: time_ms + 60_000, step_ms: 60_000 },
                [start_ms, end_ms, step_ms] => QueryTimes { start_ms: *start_ms, end_ms: *end_ms, step_ms: *step_ms },
                _ => panic!("{head}?"),
            };
            let expression = Expression::parse(text).ok();
            if let Some(expression) = expression.filter(|parsed| parsed.step_read_interval(&settings).is_some()) {
                compared += 1;
                joined += usize::from(is_same_in_parts(&expression, &memory, times, &settings));
            }
        }
    }
    assert!(compared > 2000 && 2 * joined > compared, "{compared} expressions, {joined} joined");
}

/// Evaluates steps as a whole and in two parts, and compares; whether they can be joined.
fn is_same_in_parts(
    expression: &Expression,
    memory: &Memory,
    times: QueryTimes,
    settings: &EvaluationSettings,
) -> bool {
    let budget = Budget::new(10_000_000);
    let evaluation = Evaluation::new(memory, settings, &budget);
    let part = |times: QueryTimes| match evaluate_partial_range(expression, times, &evaluation) {
        Ok(RangeOutcome::Partial(range)) => Some(range),
        Ok(RangeOutcome::Whole(_)) | Err(_) => None,
    };
    let middle_ms = times.start_ms + (times.end_ms - times.start_ms) / times.step_ms / 2 * times.step_ms;
    let whole = part(times);
    let first = part(QueryTimes { end_ms: middle_ms, ..times });
    let second = part(QueryTimes { start_ms: middle_ms + times.step_ms, ..times });
    assert_eq!(budget.samples(), 0, "all samples are given back: {}", expression.text());
    let (Some(whole), Some(first), Some(second)) = (whole, first, second) else { return false };
    let slice = |range| PartialRangeSlice { range, first_ms: i64::MIN, last_ms: i64::MAX };
    let shown = |slices: &[PartialRangeSlice<'_>]| format!("{:?}", PartialRange::result(slices));
    assert_eq!(shown(&[slice(&first), slice(&second)]), shown(&[slice(&whole)]), "{}", expression.text());
    true
}

/// When an evaluation is, and of what.
fn times_of(head: &str) -> (Vec<i64>, &str) {
    let (kind, rest) = head.strip_prefix("eval ").unwrap().split_once(' ').unwrap();
    let mut words = rest.splitn(if kind == "instant" { 3 } else { 7 }, ' ').collect::<Vec<_>>();
    let text = words.pop().unwrap();
    (words.iter().skip(1).step_by(2).map(|word| duration_ms(word)).collect(), text)
}

fn paragraphs(text: &str) -> Vec<(usize, &str, Vec<&str>)> {
    let mut found: Vec<(usize, &str, Vec<&str>)> = Vec::new();
    for (place, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
    {
        if line.starts_with(' ') {
            found.last_mut().unwrap().2.push(line.trim());
        } else {
            found.push((place + 1, line, Vec::new()));
        }
    }
    found
}

/// A value of a series: a float, or a histogram in a form that compares.
#[derive(Debug, Clone)]
enum Rendered {
    Float(f64),
    Histogram(Box<Parts>),
}

#[derive(Debug, Clone)]
struct Parts {
    schema: i8,
    hint: CounterReset,
    numbers: [f64; 5],
    bounds: Vec<f64>,
    buckets: [BTreeMap<i32, f64>; 2],
}

fn close(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-11 * a.abs().max(b.abs())
}

impl PartialEq for Rendered {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Float(a), Self::Float(b)) => close(*a, *b),
            (Self::Histogram(a), Self::Histogram(b)) => {
                let same = |a: &BTreeMap<i32, f64>, b: &BTreeMap<i32, f64>| {
                    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && close(*a.1, *b.1))
                };
                let is_gauge = |hint| hint == CounterReset::Gauge;
                // What else Prometheus knows of resets hangs on how its chunks happen to lie.
                a.schema == b.schema
                    && is_gauge(a.hint) == is_gauge(b.hint)
                    && a.numbers.iter().zip(&b.numbers).all(|(a, b)| close(*a, *b))
                    && a.bounds == b.bounds
                    && same(&a.buckets[0], &b.buckets[0])
                    && same(&a.buckets[1], &b.buckets[1])
            }
            _ => false,
        }
    }
}

fn parts(histogram: &Histogram) -> Rendered {
    let (schema, threshold, zero_count, bounds) = histogram.layout();
    let sparse = |buckets: &[(i32, f64)]| buckets.iter().copied().filter(|(_, count)| *count != 0.0).collect();
    let [positive, negative] = histogram.indexed_buckets();
    Rendered::Histogram(Box::new(Parts {
        schema,
        hint: histogram.counter_reset(),
        numbers: [histogram.count(), histogram.sum(), threshold, zero_count, 0.0],
        bounds: bounds.to_vec(),
        buckets: [sparse(positive), sparse(negative)],
    }))
}

type Series = (String, Vec<(i64, Rendered)>);

fn run(memory: &Memory, settings: &EvaluationSettings, head: &str, lines: &[&str]) -> Result<(), String> {
    let budget = Budget::new(10_000_000);
    let evaluation = Evaluation::new(memory, settings, &budget);
    let (times, text) = times_of(head);
    let answer = Expression::parse(text).and_then(|expression| match times.as_slice() {
        [time_ms] => evaluate_instant(&expression, *time_ms, &evaluation),
        [start_ms, end_ms, step_ms] => evaluate_range(
            &expression,
            QueryTimes { start_ms: *start_ms, end_ms: *end_ms, step_ms: *step_ms },
            &evaluation,
        ),
        _ => panic!("{head}?"),
    });
    assert_eq!(budget.samples(), 0, "all samples are given back: {head}");
    let expected = |kind: &str| -> Vec<&str> {
        lines.iter().filter_map(|line| line.strip_prefix(&format!("expect {kind} msg: "))).collect()
    };
    let answer = match (answer, expected("fail").first()) {
        (Err(error), Some(message)) if error.to_string().trim_end() == *message => return Ok(()),
        // Which of several is met first depends on the order of series, which is not specified.
        (Err(error), Some(message))
            if [error.to_string().as_str(), message].iter().all(|text| text.starts_with("found duplicate series")) =>
        {
            return Ok(());
        }
        (Err(error), Some(message)) => return Err(format!("expected error {message}\n    found          {error}")),
        (Err(error), None) => return Err(format!("failed: {error}")),
        (Ok(answer), Some(message)) => return Err(format!("expected error {message}, found {:?}", answer.value)),
        (Ok(answer), None) => answer,
    };
    let counted = regex::Regex::new("over [0-9]+ samples").unwrap();
    for (kind, mut found) in [("warn", answer.warnings.clone()), ("info", answer.infos.clone())] {
        found.sort();
        // Prometheus counts the same correction again at every step.
        let uncounted = |annotations: &[&str]| -> Vec<String> {
            annotations.iter().map(|note| counted.replace(note, "over some samples").into_owned()).collect()
        };
        let found = uncounted(&found.iter().map(String::as_str).collect::<Vec<_>>());
        if found != uncounted(&expected(kind)) {
            return Err(format!("expected {kind} {:?}\n    found {found:?}", expected(kind)));
        }
    }
    let ordered = lines.contains(&"expect ordered");
    compare(&answer, lines.iter().filter(|line| !line.starts_with("expect ")), &times, ordered)
}

fn compare<'l>(
    answer: &EvaluationResult,
    lines: impl Iterator<Item = &'l &'l str>,
    times: &[i64],
    ordered: bool,
) -> Result<(), String> {
    let mut found: Vec<Series> = match &answer.value {
        ResultValue::Scalar { value, .. } => vec![("scalar".to_owned(), vec![(0, Rendered::Float(*value))])],
        ResultValue::String { text, .. } => vec![(format!("{text:?}"), Vec::new())],
        ResultValue::Vector(samples) => samples
            .iter()
            .map(|sample| {
                let value = sample.histogram.as_ref().map_or(Rendered::Float(sample.value), |found| parts(found));
                (sample.labels.to_string(), vec![(0, value)])
            })
            .collect(),
        ResultValue::Matrix(series) => series
            .iter()
            .map(|(labels, points)| {
                let floats = points.floats.iter().map(|(time_ms, value)| (*time_ms, Rendered::Float(*value)));
                let histograms = points.histograms.iter().map(|(time_ms, found)| (*time_ms, parts(found)));
                let mut points: Vec<(i64, Rendered)> = floats.chain(histograms).collect();
                points.sort_by_key(|(time_ms, _)| *time_ms);
                (labels.to_string(), points)
            })
            .collect(),
    };
    let mut expected: Vec<Series> = lines.map(|line| expected_series(line, times)).collect();
    if !ordered {
        found.sort_by(|a, b| a.0.cmp(&b.0));
        expected.sort_by(|a, b| a.0.cmp(&b.0));
    }
    if found == expected { Ok(()) } else { Err(format!("expected {expected:?}\n    found    {found:?}")) }
}

fn expected_series(line: &str, times: &[i64]) -> Series {
    if line.starts_with('"') {
        return (line.to_owned(), Vec::new());
    }
    if !line.contains('}') {
        return ("scalar".to_owned(), vec![(0, Rendered::Float(line.parse().unwrap()))]);
    }
    let (labels, rest) = split_labels(line);
    let words = words(rest);
    if words.iter().any(|word| word.contains('@')) {
        let mut points: Vec<(i64, Rendered)> = words
            .iter()
            .map(|word| {
                let (value, time) = word.rsplit_once('@').unwrap();
                (time.parse().unwrap(), rendered(value).unwrap())
            })
            .collect();
        points.sort_by_key(|(time_ms, _)| *time_ms);
        return (labels.to_string(), points);
    }
    let time_ms = |place: usize| match times {
        [start_ms, _, step_ms] => start_ms + place as i64 * step_ms,
        _ => 0,
    };
    let points = words.iter().enumerate().filter_map(|(place, word)| Some((time_ms(place), rendered(word)?)));
    (labels.to_string(), points.collect())
}

fn rendered(word: &str) -> Option<Rendered> {
    if word == "_" {
        return None;
    }
    if word.starts_with("{{") {
        return Some(parts(&Histogram::from(&histogram(word))));
    }
    Some(Rendered::Float(word.parse().unwrap()))
}

/// Words between spaces; a histogram is one.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut depth) = (vec![String::new()], 0);
    for c in text.trim().chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ' ' && depth == 0 {
            words.push(String::new());
        } else {
            words.last_mut().unwrap().push(c);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

fn split_labels(line: &str) -> (Labels, &str) {
    let (mut quoted, mut escaped) = (false, false);
    let name_only = line.find(' ').filter(|space| line.find('{').is_none_or(|brace| brace > *space));
    let end = name_only.unwrap_or_else(|| {
        let ends = line.char_indices().find(|(_, c)| {
            let end = *c == '}' && !quoted;
            quoted ^= *c == '"' && !escaped;
            escaped = *c == '\\' && !escaped;
            end
        });
        ends.unwrap().0 + 1
    });
    let (selector, rest) = line.split_at(end);
    if selector == "{}" {
        return (Labels::empty(), rest);
    }
    // An empty matcher alone would select everything.
    let selector = selector.replacen('{', "{__any__=\"1\",", 1).replace(",}", "}");
    let matchers = parse_selector(&selector).unwrap();
    let pairs =
        matchers.iter().filter(|matcher| matcher.name != "__any__").map(|matcher| (&matcher.name, &matcher.value));
    (Labels::from_pairs(pairs).unwrap(), rest)
}

fn load(memory: &mut Memory, interval_ms: i64, line: &str) {
    let (labels, rest) = split_labels(line);
    let mut place = 0;
    for word in words(rest) {
        if word.starts_with("{{") {
            let (literal, times) = word.rsplit_once("}}x").map_or((word.as_str(), 0), |(literal, times)| {
                (&word[..literal.len() + 2], times.parse::<usize>().unwrap())
            });
            let (first, change) = literal.split_once("}}+{{").map_or((literal.to_owned(), None), |(first, change)| {
                (format!("{first}}}}}"), Some(format!("{{{{{change}")))
            });
            let mut value = histogram(&first);
            for step in 0..=times {
                if let (true, Some(change)) = (step > 0, &change) {
                    value = added(&value, &histogram(change));
                }
                let samples = memory.histograms.entry(labels.clone()).or_default();
                samples.push((place * interval_ms, value.clone()));
                place += 1;
            }
            continue;
        }
        for value in expand(&word) {
            if let Some(value) = value {
                memory.series.entry(labels.clone()).or_default().push((place * interval_ms, value));
            }
            place += 1;
        }
    }
}

/// `5`, `_`, `stale`, `5x3`, `1+2x3`, `_x3`.
fn expand(word: &str) -> Vec<Option<f64>> {
    if word == "stale" {
        return vec![Some(f64::from_bits(STALE_NAN_BITS))];
    }
    let (first, times) = match word.rsplit_once('x') {
        Some((first, times)) => (first, times.parse::<usize>().unwrap()),
        None if word == "_" => return vec![None],
        None => return vec![Some(word.parse().unwrap())],
    };
    if first == "_" {
        return vec![None; times];
    }
    let (start, change) = match first.char_indices().skip(1).find(|(_, c)| "+-".contains(*c)) {
        Some((place, _)) => (first[..place].parse::<f64>().unwrap(), first[place..].parse::<f64>().unwrap()),
        None => (first.parse().unwrap(), 0.0),
    };
    (0..=times).map(|step| Some(start + change * step as f64)).collect()
}

/// `{{schema:0 count:4 sum:10 buckets:[1 2 1]}}`.
fn histogram(literal: &str) -> NativeHistogram {
    let inside = literal.strip_prefix("{{").unwrap().strip_suffix("}}").unwrap();
    let (mut fields, mut depth) = (vec![String::new()], 0);
    for c in inside.chars() {
        depth += i32::from(c == '[') - i32::from(c == ']');
        if c == ' ' && depth == 0 {
            fields.push(String::new());
        } else {
            fields.last_mut().unwrap().push(c);
        }
    }
    let field = |name: &str| fields.iter().find_map(|field| field.strip_prefix(&format!("{name}:")));
    let number = |name: &str| field(name).map_or(0.0, |value| value.parse::<f64>().unwrap());
    let list = |name: &str| -> Vec<f64> {
        let inside = field(name).map(|list| list.trim_matches(['[', ']'])).unwrap_or_default();
        inside.split_whitespace().map(|value| value.parse().unwrap()).collect()
    };
    let spans = |offset: &str, length: usize| {
        let span = BucketSpan { offset: number(offset) as i32, length: length as u32 };
        if length == 0 { Vec::new() } else { vec![span] }
    };
    let (positive, negative) = (list("buckets"), list("n_buckets"));
    let layout = HistogramLayout {
        schema: number("schema") as i8,
        zero_threshold: number("z_bucket_w"),
        positive_spans: spans("offset", positive.len()),
        negative_spans: spans("n_offset", negative.len()),
        custom_bounds: list("custom_values"),
    };
    let counter_reset = match field("counter_reset_hint") {
        Some("reset") => CounterReset::Reset,
        Some("not_reset") => CounterReset::NoReset,
        Some("gauge") => CounterReset::Gauge,
        _ => CounterReset::Unknown,
    };
    let counts = Counts { count: number("count"), zero_count: number("z_bucket"), positive, negative };
    NativeHistogram {
        layout: Arc::new(layout),
        counter_reset,
        sum: number("sum"),
        counts: HistogramCounts::Float(counts),
    }
}

/// The sum of two histograms of the same layout.
fn added(left: &NativeHistogram, right: &NativeHistogram) -> NativeHistogram {
    let (HistogramCounts::Float(a), HistogramCounts::Float(b)) = (&left.counts, &right.counts) else {
        panic!("float counts")
    };
    let sums = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a + b).collect();
    let counts = Counts {
        count: a.count + b.count,
        zero_count: a.zero_count + b.zero_count,
        positive: sums(&a.positive, &b.positive),
        negative: sums(&a.negative, &b.negative),
    };
    NativeHistogram { sum: left.sum + right.sum, counts: HistogramCounts::Float(counts), ..left.clone() }
}

fn duration_ms(text: &str) -> i64 {
    let parsed = Expression::parse(text).unwrap();
    let budget = Budget::new(10);
    match evaluate_instant(&parsed, 0, &Evaluation::new(&Memory::default(), &EvaluationSettings::default(), &budget))
        .unwrap()
        .value
    {
        ResultValue::Scalar { value, .. } => (value * 1000.0) as i64,
        other => panic!("{other:?}"),
    }
}
