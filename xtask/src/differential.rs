//! `cargo xtask differential promql`: the same data and the same random queries to Prometheus and to this project; what
//! differs, also in the samples that both say they touched, is printed with its seed, and kept as a script of `crates/promql/tests/conformance`.

pub(crate) mod answers;
mod choices;
mod data;
mod grammar;
mod request;
mod servers;
pub mod sql;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use answers::{Difference, compare, compare_counts};
use choices::Choice;
use data::{Data, SAMPLES, STEP_MS};
use grammar::Grammar;
use servers::Server;

/// How far two floats may lie apart, as a share of the larger: sums may be added up in another order.
pub const TOLERANCE: f64 = 1e-12;

/// How often a query is asked again whose answer may vary.
const ASKED_AGAIN_MAX: usize = 2_000;

/// Options of the command.
#[derive(Debug, Clone)]
pub struct Options {
    queries: u64,
    seed: u64,
    prometheus: Option<PathBuf>,
    thalweg: Option<PathBuf>,
    keep: Option<PathBuf>,
}

impl Options {
    /// Reads the arguments behind `promql`.
    ///
    /// # Errors
    ///
    /// If one is unknown or has no value.
    pub fn read(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self { queries: 1000, seed: 1, prometheus: None, thalweg: None, keep: None };
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { return Err(format!("{} needs a value", pair.concat())) };
            let number = || value.parse().map_err(|_| format!("{name} {value}: not a number"));
            match name.as_str() {
                "--queries" => options.queries = number()?,
                "--seed" => options.seed = number()?,
                "--prometheus" => options.prometheus = Some(PathBuf::from(value)),
                "--thalweg" => options.thalweg = Some(PathBuf::from(value)),
                "--keep" => options.keep = Some(PathBuf::from(value)),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        Ok(options)
    }
}

/// A query with its times in milliseconds; without an end it is an instant one.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    text: String,
    start_ms: i64,
    end_ms: Option<i64>,
    step_ms: i64,
}

impl Query {
    fn path(&self) -> (&'static str, Vec<(&'static str, String)>) {
        let seconds = |milliseconds: i64| format!("{}.{:03}", milliseconds / 1000, milliseconds % 1000);
        let query = ("query", self.text.clone());
        let stats = ("stats", "all".to_owned());
        match self.end_ms {
            None => ("/api/v1/query", vec![query, stats, ("time", seconds(self.start_ms))]),
            Some(end_ms) => {
                let times = [("start", self.start_ms), ("end", end_ms), ("step", self.step_ms)];
                let times = times.map(|(name, time_ms)| (name, seconds(time_ms)));
                ("/api/v1/query_range", [query, stats].into_iter().chain(times).collect())
            }
        }
    }

    /// The head of a script's paragraph.
    fn head(&self) -> String {
        let text = &self.text;
        match self.end_ms {
            None => format!("eval instant at {}ms {text}", self.start_ms),
            Some(end_ms) => {
                format!("eval range from {}ms to {end_ms}ms step {}ms {text}", self.start_ms, self.step_ms)
            }
        }
    }
}

/// Runs the comparison; whether both agreed on everything.
///
/// # Errors
///
/// If a server cannot be built, started or asked.
pub fn run(root: &Path, options: &Options, tell: &mut dyn FnMut(&str)) -> Result<bool, String> {
    let data = Data::new(options.seed);
    let prometheus = servers::prometheus(root, options.prometheus.as_deref())?;
    let thalweg = servers::thalweg(root, options.thalweg.as_deref())?;
    prometheus.write(&data)?;
    thalweg.write(&data)?;
    let mut grammar = Grammar::new(options.seed);
    let (mut found, mut answered, mut varied, mut chosen) = (Vec::new(), 0, 0, 0);
    for number in 0..options.queries {
        let query = grammar.query(SAMPLES as i64 * STEP_MS);
        let answers = [ask(&prometheus, &query)?, ask(&thalweg, &query)?];
        answered += u64::from(answers[0]["status"] == "success");
        if let Some(difference) = compare(&answers[0], &answers[1]) {
            if chooses_alike((&prometheus, &thalweg), &query, &answers)? {
                chosen += 1;
                continue;
            }
            if varies(&prometheus, &thalweg, &query, &answers[1])? {
                varied += 1;
                continue;
            }
            tell(&format!("seed {} query {number}: {}\n    {difference}", options.seed, query.head()));
            found.push((query, answers[0].clone(), difference));
        }
    }
    tell(&format!(
        "{} queries, {answered} of them with an answer: {} differ; {varied} where Prometheus answers now this, now that; {chosen} that choose others of equal series",
        options.queries,
        found.len()
    ));
    if let Some(file) = options.keep.as_deref().filter(|_| !found.is_empty()) {
        std::fs::write(file, script(&data, &found)).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(found.is_empty())
}

/// Whether the query itself chooses series, and the answers differ in which of equal ones alone; or whether that is so of a part of it.
fn chooses_alike(
    (prometheus, thalweg): (&Server, &Server),
    query: &Query,
    answers: &[serde_json::Value; 2],
) -> Result<bool, String> {
    if is_alike(prometheus, query, answers)? {
        return Ok(true);
    }
    for part in Choice::parts_of(&query.text) {
        let part = Query { text: part.to_owned(), ..query.clone() };
        let answers = [ask(prometheus, &part)?, ask(thalweg, &part)?];
        if compare(&answers[0], &answers[1]).is_some() && is_alike(prometheus, &part, &answers)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_alike(prometheus: &Server, query: &Query, answers: &[serde_json::Value; 2]) -> Result<bool, String> {
    let Some(choice) = Choice::of_query(&query.text) else {
        return Ok(false);
    };
    let choices = ask(prometheus, &Query { text: choice.inner.to_owned(), ..query.clone() })?;
    let [theirs, ours] = answers;
    let are_answers = [&choices, theirs, ours].iter().all(|answer| answer["status"] == "success");
    Ok(are_answers && choice.is_alike(&choices, theirs, ours) && compare_counts(theirs, ours).is_none())
}

/// Whether Prometheus gives this answer, too, when it is asked again: which series `limitk` takes, and which of equal ones `topk`, follows
/// the order of its maps where a range query has series from a function or an operator, and that order is drawn anew each time. Answers
/// that may be kept go by the order of labels, which is not always among those; the same query without the cache goes by that of
/// first values, and its answer will do as well.
fn varies(prometheus: &Server, thalweg: &Server, query: &Query, answer: &serde_json::Value) -> Result<bool, String> {
    if query.end_ms.is_none() || !["topk", "bottomk", "limitk"].iter().any(|name| query.text.contains(name)) {
        return Ok(false);
    }
    let (path, mut parameters) = query.path();
    parameters.push(("nocache", "1".to_owned()));
    let computed = thalweg.ask(path, &parameters)?;
    for _ in 0..ASKED_AGAIN_MAX {
        let theirs = ask(prometheus, query)?;
        if compare(&theirs, answer).is_none() || compare(&theirs, &computed).is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn ask(server: &Server, query: &Query) -> Result<serde_json::Value, String> {
    let (path, parameters) = query.path();
    server.ask(path, &parameters)
}

/// What differed, as a script: the data, and what Prometheus answers.
fn script(data: &Data, found: &[(Query, serde_json::Value, Difference)]) -> String {
    let mut script = data.script();
    for (query, answer, _) in found {
        let _ = write!(script, "\n{}\n", query.head());
        script += &answers::lines(answer, query.start_ms, query.step_ms);
    }
    script
}
