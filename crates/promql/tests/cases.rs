//! Runs the scripts in `tests/cases`. A script is a list of paragraphs:
//!
//! ```text
//! load 5m                                   samples at 0, 5m, 10m, …
//!     metric{label="x"} 0+10x3 _ stale NaN  0 10 20 30, a gap, a stale marker, NaN; `_x3` are three gaps
//!
//! load texts 5m                             sketches of quantiles and of distinct values, other texts, numbers
//!     metric{label="x"} q:1,2 d:1,2 t:x 5 _
//!
//! eval instant at 15m metric                then one line per expected series,
//!     {__name__="metric", label="x"} 30     in any order (`eval ordered at`: in this one),
//!                                           or a lone number for a scalar, or a text in quotes
//! eval range from 0 to 10m step 5m metric
//!     {__name__="metric", label="x"} 0 10 _ one value or gap per step
//!
//! eval samples at 10m metric[10m]           raw samples
//!     {__name__="metric", label="x"} 10@5m 20@10m
//!
//! expect fail                               before an eval: it fails, with a message that has this in it
//! expect fail many-to-many
//! expect warn, expect info                  before an eval: a note with this text comes with the answer
//! clear                                     forget all samples
//! ```
//!
//! Values compare with a relative tolerance of 1e-12.
#![allow(clippy::unwrap_used, clippy::panic, reason = "the lints do not see that helpers of tests are tests")]

mod support;

use model::{Labels, MatchOp, STALE_NAN_BITS};
use query::sketch::{DistinctSketch, QuantileSketch};
use query::{Budget, QueryError, TextSample};
use support::Memory;
use thalweg_promql::{
    Evaluation, EvaluationResult, EvaluationSettings, Expression, QueryTimes, ResultValue, evaluate_instant,
    evaluate_range, parse_selector,
};

#[test]
fn scripts() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    let mut failures = Vec::new();
    let mut evaluations = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut script = Script::default();
        for (number, paragraph) in paragraphs(&text) {
            if let Err(message) = script.run(&paragraph) {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                failures.push(format!("{name}:{number}: {}\n    {message}", paragraph[0]));
            }
        }
        evaluations += script.evaluations;
    }
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
    assert!(evaluations > 200, "only {evaluations} evaluations found");
}

/// A command with its indented lines, and its line number.
fn paragraphs(text: &str) -> Vec<(usize, Vec<String>)> {
    let mut found: Vec<(usize, Vec<String>)> = Vec::new();
    for (place, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        if line.starts_with(char::is_whitespace) {
            found.last_mut().unwrap().1.push(line.trim().to_owned());
        } else {
            found.push((place + 1, vec![line.trim().to_owned()]));
        }
    }
    found
}

#[derive(Default)]
struct Script {
    memory: Memory,
    expectation: Expectation,
    evaluations: usize,
}

#[derive(Default)]
struct Expectation {
    fail: Option<String>,
    warn: Option<String>,
    info: Option<String>,
}

impl Script {
    fn run(&mut self, paragraph: &[String]) -> Result<(), String> {
        let (head, lines) = paragraph.split_first().unwrap();
        let (command, rest) = head.split_once(' ').unwrap_or((head, ""));
        match command {
            "clear" => self.memory = Memory::default(),
            "load" if rest.starts_with("texts ") => {
                lines.iter().for_each(|line| self.load_texts(duration_ms(&rest["texts ".len()..]), line));
            }
            "load" => lines.iter().for_each(|line| self.load(duration_ms(rest), line)),
            "expect" => {
                let (kind, text) = rest.split_once(' ').unwrap_or((rest, ""));
                let expectation = match kind {
                    "fail" => &mut self.expectation.fail,
                    "warn" => &mut self.expectation.warn,
                    "info" => &mut self.expectation.info,
                    _ => panic!("expect {kind}?"),
                };
                *expectation = Some(text.to_owned());
            }
            "eval" => {
                self.evaluations += 1;
                let expectation = std::mem::take(&mut self.expectation);
                return check(&expectation, self.evaluate(rest), lines);
            }
            _ => panic!("{command}?"),
        }
        Ok(())
    }

    fn load(&mut self, interval_ms: i64, line: &str) {
        let (labels, values) = series(line);
        let samples = self.memory.series.entry(labels).or_default();
        for (place, value) in values.into_iter().enumerate() {
            if let Some(value) = value {
                samples.push((place as i64 * interval_ms, value));
            }
        }
    }

    fn load_texts(&mut self, interval_ms: i64, line: &str) {
        let (labels, words) = line.split_at(line.find('}').unwrap() + 1);
        let (labels, _) = series(labels);
        let samples = self.memory.texts.entry(labels).or_default();
        for (place, word) in words.split_whitespace().enumerate().filter(|(_, word)| *word != "_") {
            samples.push((place as i64 * interval_ms, text_sample(word)));
        }
    }

    fn evaluate(&self, words: &str) -> (Kind, Result<EvaluationResult, QueryError>) {
        let settings = EvaluationSettings::default();
        let budget = Budget::new(10_000_000);
        let evaluation = Evaluation::new(&self.memory, &settings, &budget);
        let mut rest = words;
        let mut word = || {
            let (word, behind) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = behind;
            word
        };
        let kind = word();
        let result = if kind == "range" {
            let [_, from, _, to, _, step] = [(); 6].map(|()| word());
            let [start_ms, end_ms, step_ms] = [from, to, step].map(duration_ms);
            let times = QueryTimes { start_ms, end_ms, step_ms };
            let answer = Expression::parse(rest).and_then(|expr| evaluate_range(&expr, times, &evaluation));
            (Kind::Range { start_ms, end_ms, step_ms }, answer)
        } else {
            let [_, time] = [(); 2].map(|()| word());
            let time_ms = duration_ms(time);
            let answer = Expression::parse(rest).and_then(|expr| evaluate_instant(&expr, time_ms, &evaluation));
            (if kind == "ordered" { Kind::Ordered } else { Kind::Instant }, answer)
        };
        assert_eq!(budget.samples(), 0, "all samples are given back: {words}");
        result
    }
}

enum Kind {
    Instant,
    Ordered,
    Range { start_ms: i64, end_ms: i64, step_ms: i64 },
}

fn check(
    expectation: &Expectation,
    (evaluation, answer): (Kind, Result<EvaluationResult, QueryError>),
    lines: &[String],
) -> Result<(), String> {
    let answer = match (answer, &expectation.fail) {
        (Err(error), Some(text)) if error.to_string().contains(text) => return Ok(()),
        (Err(error), _) => return Err(format!("failed: {error}")),
        (Ok(answer), Some(_)) => return Err(format!("did not fail but answered {:?}", answer.value)),
        (Ok(answer), None) => answer,
    };
    check_notes("warnings", &answer.warnings, expectation.warn.as_deref())?;
    if !answer.infos.iter().all(|info| info.contains("might not be a counter")) || expectation.info.is_some() {
        check_notes("infos", &answer.infos, expectation.info.as_deref())?;
    }
    let mut found = rendered(&answer.value);
    let mut expected: Vec<Rendered> = lines.iter().map(|line| expected(line, &evaluation)).collect();
    if !matches!(evaluation, Kind::Ordered) {
        expected.sort_by(|a, b| a.0.cmp(&b.0));
        if matches!(evaluation, Kind::Instant) {
            found.sort_by(|a, b| a.0.cmp(&b.0));
        }
    }
    let same =
        found.len() == expected.len() && found.iter().zip(&expected).all(|(found, expected)| alike(found, expected));
    if same { Ok(()) } else { Err(format!("expected {expected:?}\n    found    {found:?}")) }
}

fn check_notes(kind: &str, annotations: &[String], expected: Option<&str>) -> Result<(), String> {
    let fits = match expected {
        Some(expected) => annotations.iter().any(|note| note.contains(expected)),
        None => annotations.is_empty(),
    };
    if fits { Ok(()) } else { Err(format!("{kind}: {annotations:?}")) }
}

/// A series as text, and its samples.
type Rendered = (String, Vec<(i64, f64)>);

fn rendered(value: &ResultValue) -> Vec<Rendered> {
    match value {
        ResultValue::Scalar { value, .. } => vec![("scalar".to_owned(), vec![(0, *value)])],
        ResultValue::String { text, .. } => vec![(format!("{text:?}"), Vec::new())],
        ResultValue::Vector(samples) => {
            samples.iter().map(|sample| (sample.labels.to_string(), vec![(0, sample.value)])).collect()
        }
        ResultValue::Matrix(series) => {
            series.iter().map(|(labels, points)| (labels.to_string(), points.floats.clone())).collect()
        }
    }
}

fn expected(line: &str, evaluation: &Kind) -> Rendered {
    if line.starts_with('"') {
        return (line.to_owned(), Vec::new());
    }
    if let Ok(value) = line.parse::<f64>() {
        return ("scalar".to_owned(), vec![(0, value)]);
    }
    if line.contains('@') {
        let (labels, samples) = line.rsplit_once('}').unwrap();
        let (labels, _) = series(&format!("{labels}}} 0"));
        let samples = samples.split_whitespace().map(|sample| {
            let (value, time) = sample.split_once('@').unwrap();
            (duration_ms(time), value.parse().unwrap())
        });
        return (labels.to_string(), samples.collect());
    }
    let (labels, values) = series(line);
    let (start_ms, step_ms) = match evaluation {
        Kind::Range { start_ms, end_ms, step_ms } => {
            assert_eq!(values.len() as i64, (end_ms - start_ms) / step_ms + 1, "values in {line}");
            (*start_ms, *step_ms)
        }
        _ => (0, 1),
    };
    let points = values.into_iter().enumerate();
    let points = points.filter_map(|(place, value)| Some((start_ms + place as i64 * step_ms, value?)));
    (labels.to_string(), points.collect())
}

fn alike(found: &Rendered, expected: &Rendered) -> bool {
    found.0 == expected.0
        && found.1.len() == expected.1.len()
        && found.1.iter().zip(&expected.1).all(|(a, b)| a.0 == b.0 && close(a.1, b.1))
}

fn close(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-12 * a.abs().max(b.abs())
}

/// Labels and values of a line.
fn series(line: &str) -> (Labels, Vec<Option<f64>>) {
    let end = match line.find('}') {
        Some(place) => place + 1,
        None => line.find(' ').unwrap_or(line.len()),
    };
    let (selector, values) = line.split_at(end);
    let labels = if selector == "{}" {
        Labels::empty()
    } else {
        let matchers = parse_selector(selector).unwrap();
        assert!(matchers.iter().all(|matcher| matcher.op == MatchOp::Equal));
        Labels::from_pairs(matchers.iter().map(|matcher| (&matcher.name, &matcher.value))).unwrap()
    };
    (labels, values.split_whitespace().flat_map(expand).collect())
}

fn text_sample(word: &str) -> TextSample {
    let numbers = |text: &str| -> Vec<f64> { text.split(',').filter_map(|number| number.parse().ok()).collect() };
    match word.split_once(':') {
        Some(("q", text)) => TextSample::Text(QuantileSketch::of_numbers(&numbers(text)).encode()),
        Some(("d", text)) => TextSample::Text(DistinctSketch::of_numbers(&numbers(text)).encode()),
        Some((_, text)) => TextSample::Text(text.to_owned()),
        None if word == "stale" => TextSample::Stale,
        None => TextSample::Other,
    }
}

/// `5`, `_`, `stale`, `5x3` (four times 5), `1+2x3` (1 3 5 7), `_x3` (three gaps).
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
    let sign = first.char_indices().skip(1).find(|(place, c)| "+-".contains(*c) && !first[..*place].ends_with('e'));
    let (start, change) = match sign {
        Some((place, _)) => (first[..place].parse::<f64>().unwrap(), first[place..].parse::<f64>().unwrap()),
        None => (first.parse().unwrap(), 0.0),
    };
    (0..=times).map(|step| Some(start + change * step as f64)).collect()
}

/// `90s`, `5m`, `1h`, `10ms`, or a number of seconds.
fn duration_ms(text: &str) -> i64 {
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "ms" => 1.0,
        "" | "s" => 1000.0,
        "m" => 60_000.0,
        "h" => 3_600_000.0,
        "d" => 86_400_000.0,
        _ => panic!("{text}?"),
    };
    (number.parse::<f64>().unwrap() * unit_ms) as i64
}
