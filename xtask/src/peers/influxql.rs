//! `cargo xtask differential influxql`: the same rows and the same generated statements for this project and for InfluxDB 1.x, and whether
//! the answers agree.

pub(super) mod compare;
pub(super) mod data;
mod generate;
mod known;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use super::process::Processes;
use super::server::{Peer, Server};
use crate::sim::{cargo, finish};

/// The database of the comparison.
const DATABASE: &str = "differential";
/// Statements that disagree are told up to so many.
const TOLD_MAX: usize = 25;
/// How long an answer may be.
const ANSWER_BYTES_MAX: u64 = 256 << 20;
/// How long an answer may take.
const TIMEOUT: Duration = Duration::from_mins(1);

/// What to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where rows and statements come from.
    pub seed: u64,
    /// How many statements.
    pub statements: u64,
    /// The program; `None`: it is built.
    pub thalweg: Option<PathBuf>,
}

impl Options {
    /// Reads the options of the command line.
    pub fn read(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self { seed: 1, statements: 3000, thalweg: None };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let value = rest.next();
            let number = || value.and_then(|value| value.parse().ok()).ok_or_else(|| format!("{name} takes a number"));
            match name.as_str() {
                "--seed" => options.seed = number()?,
                "--statements" => options.statements = number()?,
                "--thalweg" => options.thalweg = value.map(PathBuf::from),
                _ => return Err(format!("unknown option {name}: --seed, --statements and --thalweg are known")),
            }
        }
        Ok(options)
    }
}

/// Runs cargo's command of the same name; whether all answers agree but for differences that are on purpose.
pub fn command(root: &Path, arguments: &[String], print: &mut dyn FnMut(&str)) -> Result<bool, String> {
    let options = Options::read(arguments)?;
    let program = match &options.thalweg {
        Some(program) => program.clone(),
        None => {
            finish(cargo(root).args(["build", "--package", "thalweg"]))?;
            target(root).join("debug/thalweg")
        }
    };
    let processes = Processes::default();
    processes.end_on_signals()?;
    let cache = super::cache_folder();
    let (mut servers, mut random) = (Vec::new(), data::Random::new(options.seed));
    let lines = data::lines(&mut random);
    for peer in [Peer::Thalweg, Peer::Influxdb] {
        let server = Server::start(&processes, peer, &peer.install(&cache, &program)?)?;
        ask(&server, "", &format!("CREATE DATABASE {DATABASE}"))?;
        ureq::post(format!("{}/write?db={DATABASE}", server.url))
            .send(lines.as_bytes())
            .map_err(|error| format!("{} does not take the rows: {error}", peer.name()))?;
        servers.push(server);
    }
    let [ours, theirs] = servers.as_slice() else { return Err("two servers were to be started".to_owned()) };
    let mut tally = Tally::default();
    for _ in 0..options.statements {
        let text = generate::statement(&mut random);
        let (our, their) = (ask(ours, DATABASE, &text)?, ask(theirs, DATABASE, &text)?);
        if let Some(error) = compare::error(&their) {
            *tally.errors.entry(error.chars().take(60).collect()).or_default() += 1;
        }
        let Some(why) = compare::difference(&our, &their) else { continue };
        match known_difference(&text, [&our, &their], [ours, theirs])? {
            Some(reason) => *tally.known.entry(reason).or_default() += 1,
            None => {
                tally.differing += 1;
                if tally.differing <= TOLD_MAX {
                    print(&format!("{text}\n  {why}\n"));
                }
            }
        }
    }
    for (error, count) in &tally.errors {
        print(&format!("{count:>6} errors to InfluxDB: {error}"));
    }
    for (reason, count) in &tally.known {
        print(&format!("{count:>6} different as docs/guide/influxql.md says: {reason}"));
    }
    let Options { statements, seed, .. } = options;
    print(&format!(
        "{statements} statements of seed {seed}: {} answered differently for no known reason",
        tally.differing
    ));
    Ok(tally.differing == 0)
}

/// What came out of it.
#[derive(Default)]
struct Tally {
    /// How often InfluxDB gave an error, by its beginning.
    errors: BTreeMap<String, usize>,
    /// Differences on purpose, by their reasons.
    known: BTreeMap<&'static str, usize>,
    /// Others.
    differing: usize,
}

/// The known difference of two answers that differ: by their shape, or since it is gone without a limit of series.
fn known_difference(
    text: &str,
    [our, their]: [&Value; 2],
    servers: [&Server; 2],
) -> Result<Option<&'static str>, String> {
    let reason = known::reason(text, our, their);
    let (None, Some(without)) = (reason, known::without_series_limit(text)) else { return Ok(reason) };
    let [our, their] = [ask(servers[0], DATABASE, without)?, ask(servers[1], DATABASE, without)?];
    let is_known = compare::difference(&our, &their).is_none() || known::reason(without, &our, &their).is_some();
    Ok(is_known.then_some(known::SERIES_COUNTED))
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// A statement's answer; errors of the server as they are.
fn ask(server: &Server, database: &str, text: &str) -> Result<Value, String> {
    let agent = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(TIMEOUT)).build();
    let request = ureq::Agent::new_with_config(agent).post(format!("{}/query", server.url));
    let request = request.query("db", database).query("epoch", "ns").query("q", text);
    let mut response = request.send_empty().map_err(|error| format!("{text}: {error}"))?;
    let body = response
        .body_mut()
        .with_config()
        .limit(ANSWER_BYTES_MAX)
        .read_to_string()
        .map_err(|error| format!("{text}: {error}"))?;
    serde_json::from_str(&body).map_err(|error| format!("{text}: no JSON: {error}: {body}"))
}
