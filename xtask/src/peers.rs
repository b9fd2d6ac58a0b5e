//! `cargo xtask peers`: the same bytes from the same loader into this project and into other servers of the field, on this
//! machine, one after the other.

pub mod caches;
pub mod epochs;
pub mod influxql;
mod install;
mod measure;
mod process;
pub mod queries;
mod report;
mod server;
pub mod views;
pub mod wide;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;

use procfs::Current;
pub use report::{Figures, render};
pub use server::{PEERS, Peer, Protocol};

use crate::sim::{cargo, finish};
use process::Processes;

/// Which measurements to make.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Whom to measure.
    pub peers: Vec<Peer>,
    /// What to send.
    pub cases: Vec<Case>,
    /// Connections at the same time.
    pub connections: Vec<u32>,
    /// How often each measurement is made; the one with the least CPU counts.
    pub repeat: u32,
    /// This project's program, if it is not to be built.
    pub thalweg: Option<PathBuf>,
    /// Where downloaded programs are kept.
    pub cache: PathBuf,
    /// Print JSON instead of tables.
    pub json: bool,
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// How it is spelled.
    pub protocol: Protocol,
    /// Fields or series, ten for each host.
    pub series: u64,
    /// Samples of a series in a request of remote write.
    pub samples: u64,
    /// Values in all.
    pub values: u64,
}

/// Values that are sent where no option says otherwise.
const VALUES: u64 = 10_000_000;

impl Options {
    /// Reads the options of the command line.
    pub fn read(arguments: &[String]) -> Result<Self, String> {
        let (mut line_series, mut remote_samples) = (vec![100, 10_000, 1_000_000], vec![1, 10]);
        let (mut values, mut remote_series) = (VALUES, 200_000);
        let mut options = Self {
            peers: PEERS.to_vec(),
            cases: Vec::new(),
            connections: vec![1, 4, 16],
            repeat: 1,
            thalweg: None,
            cache: cache_folder(),
            json: false,
        };
        let (pairs, json) = pairs(arguments)?;
        options.json = json;
        for (name, value) in pairs {
            match name {
                "--peers" => options.peers = value.split(',').map(peer_named).collect::<Result<_, _>>()?,
                "--connections" => options.connections = numbers(name, value)?,
                "--line-series" => line_series = numbers(name, value)?,
                "--remote-write-series" => remote_series = number(name, value)?,
                "--remote-write-samples" => remote_samples = numbers(name, value)?,
                "--values" => values = number(name, value)?,
                "--repeat" => options.repeat = number(name, value)?,
                "--thalweg" => options.thalweg = Some(PathBuf::from(value)),
                "--cache" => options.cache = PathBuf::from(value),
                _ => return Err(format!("unknown option {name}")),
            }
        }
        let case = |protocol, series, samples| Case { protocol, series, samples, values };
        options.cases.extend(line_series.iter().map(|series| case(Protocol::Line, *series, 1)));
        let remote = remote_samples.iter().map(|samples| case(Protocol::RemoteWrite, remote_series, *samples));
        options.cases.extend(remote);
        Ok(options)
    }
}

/// Options with their values.
type Pairs<'a> = Vec<(&'a str, &'a str)>;

/// Options with their values, and whether `--json` is among them, which has none.
fn pairs(arguments: &[String]) -> Result<(Pairs<'_>, bool), String> {
    let (mut pairs, mut json) = (Vec::new(), false);
    let mut arguments = arguments.iter();
    while let Some(name) = arguments.next() {
        if name == "--json" {
            json = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        pairs.push((name.as_str(), value.as_str()));
    }
    Ok((pairs, json))
}

fn peer_named(name: &str) -> Result<Peer, String> {
    let found = PEERS.into_iter().find(|peer| peer.name() == name);
    found.ok_or_else(|| format!("{name} is none of {}", PEERS.map(Peer::name).join(", ")))
}

fn number<T: std::str::FromStr<Err: std::fmt::Display>>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{name} {text}: {error}"))
}

/// Numbers parted by commas; `none` for no number.
fn numbers<T: std::str::FromStr<Err: std::fmt::Display>>(name: &str, text: &str) -> Result<Vec<T>, String> {
    if text == "none" {
        return Ok(Vec::new());
    }
    text.split(',').map(|part| number(name, part)).collect()
}

/// Where programs keep what they can download again.
fn cache_folder() -> PathBuf {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    base.unwrap_or_else(std::env::temp_dir).join("thalweg-peers")
}

/// Makes all measurements and tells of each as it is made. One that fails is told and leaves the others alone.
pub fn run(
    root: &Path,
    options: &Options,
    tell: &mut dyn FnMut(&Result<Figures, String>),
) -> Result<Vec<Figures>, String> {
    let thalweg = program(root, options.thalweg.as_deref())?;
    let processes = Processes::default();
    processes.end_on_signals()?;
    let mut all = Vec::new();
    let programs = options.peers.iter().map(|peer| Ok((*peer, peer.install(&options.cache, &thalweg)?)));
    let programs: Vec<(Peer, PathBuf)> = programs.collect::<Result<_, String>>()?;
    for case in &options.cases {
        for connections in &options.connections {
            for (peer, program) in programs.iter().filter(|(peer, _)| peer.takes(case.protocol)) {
                let run =
                    measure::Run { case: *case, connections: *connections, peer: *peer, program, loader: &thalweg };
                let figures = best_of(&processes, &run, options.repeat);
                tell(&figures);
                all.extend(figures);
            }
        }
    }
    Ok(all)
}

/// This project's program: the one that is given, else one that is built now.
fn program(root: &Path, given: Option<&Path>) -> Result<PathBuf, String> {
    if let Some(given) = given {
        return Ok(given.to_path_buf());
    }
    finish(cargo(root).args(["build", "--quiet", "--release", "--package", "thalweg"]))?;
    Ok(root.join("target/release/thalweg"))
}

/// The run with the least CPU: what else the machine did can only add to it.
fn best_of(processes: &Processes, run: &measure::Run<'_>, repeat: u32) -> Result<Figures, String> {
    let mut best = run.measure(processes)?;
    for _ in 1..repeat {
        let again = run.measure(processes)?;
        if again.values_per_cpu_second() > best.values_per_cpu_second() {
            best = again;
        }
    }
    Ok(best)
}

/// The machine and the versions that were measured.
#[must_use]
pub fn setting(options: &Options) -> Vec<String> {
    let mut told = machine();
    told.extend(install::versions(&options.cache));
    told
}

fn machine() -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(0, NonZero::get);
    // 0 where the system does not tell.
    let memory = procfs::Meminfo::current().map_or(0, |memory| memory.mem_total);
    vec![format!("{cores} cores, {} GiB", memory.div_ceil(1 << 30))]
}

/// Runs cargo's command of the same name.
pub fn command(root: &Path, arguments: &[String], print: &mut dyn FnMut(&str)) -> Result<bool, String> {
    let options = Options::read(arguments)?;
    let told = run(root, &options, &mut eprint_progress)?;
    print(&if options.json { report::json(&setting(&options), &told)? } else { render(&setting(&options), &told) });
    Ok(true)
}

#[allow(clippy::print_stderr, reason = "progress of a command that takes half an hour")]
fn eprint_progress(figures: &Result<Figures, String>) {
    match figures {
        Ok(figures) => eprintln!("{}", figures.progress()),
        Err(error) => eprintln!("not measured: {}", error.trim()),
    }
}

/// How long the loader may send where it is the loading that is measured.
const LOAD_SECONDS_MAX: u32 = 60;

/// A command that is run for the loader; named here so that its options stand in one place.
fn loader(thalweg: &Path, url: &str, case: &Case, connections: u32, seconds_max: u32) -> Command {
    let hosts = (case.series / 10).max(1);
    let steps = (case.values / case.series).max(1);
    let mut loader = Command::new(thalweg);
    loader.args(["bench", "load", "--json", "--url", url, "--interval-s", "10"]);
    loader.args(["--seconds-max", &seconds_max.to_string()]);
    loader.args(["--scale", &hosts.to_string(), "--days", &(steps as f64 / 8640.0).to_string()]);
    loader.args(["--connections", &connections.to_string(), "--prepared-bytes-max", &(4_u64 << 30).to_string()]);
    if case.protocol == Protocol::RemoteWrite {
        loader.args(["--format", "remote-write", "--samples", &case.samples.to_string()]);
    }
    loader
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_say_what_is_measured() {
        let read = |text: &str| Options::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let default = read("").unwrap();
        assert_eq!((default.cases.len(), default.peers.len(), default.connections.len()), (5, 5, 3));
        let given =
            read("--peers questdb,thalweg --thalweg t --line-series none --remote-write-samples 4 --values 7 --json")
                .unwrap();
        assert_eq!(given.peers, [Peer::Questdb, Peer::Thalweg]);
        assert_eq!(given.thalweg, Some(PathBuf::from("t")));
        let case = Case { protocol: Protocol::RemoteWrite, series: 200_000, samples: 4, values: 7 };
        assert!(given.cases == [case] && given.json);
        for wrong in ["--peers oracle", "--values", "--values many", "--else 1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
