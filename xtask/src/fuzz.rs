//! `cargo xtask fuzz`: builds the targets of `fuzz/`, gives them what lies in the tree to begin with, and runs them one after another.
//!
//! The stable compiler does: coverage comes from a pass of LLVM, and memory is bounded by the targets' own allocator.

mod seeds;
mod targets;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::sim::cargo;
use targets::{TARGETS, Target};

/// How to use it.
pub const USAGE: &str = "Usage: cargo xtask fuzz [--target NAME,…] [--inputs N] [--seconds N] [--list]

Builds the fuzz targets of fuzz/ and runs them one after another, each with a corpus in fuzz/corpus/NAME that begins with what lies in the
tree and grows from run to run. A crash, an input of more than 10 seconds or 256 MiB in use at once ends the target's run; the path of the
input is printed, and the exit status is 1.

  --target NAME,…  these targets; all without it
  --inputs N       inputs for each target (100000)
  --seconds N      no target runs longer (600)
  --list           the targets, and what each reads

Once more with one input, to see what is wrong:
  target/fuzz/x86_64-unknown-linux-gnu/release/NAME fuzz/artifacts/NAME/crash-…";

/// Makes the compiler count which edges of the program an input takes, and which values it compares; checks of tests stay on.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing -Cdebug-assertions -Coverflow-checks \
-Cdebuginfo=line-tables-only -Ccodegen-units=16";

/// What build scripts and macros are built without.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// Seconds after which an input is a hang.
const TIMEOUT_S: u32 = 10;
/// Memory of a process, with what the engine itself keeps.
const MEMORY_MIB: u32 = 1024;

#[derive(Debug)]
struct Options {
    targets: Vec<&'static Target>,
    inputs: u64,
    seconds: u64,
}

/// What a run gave.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    inputs: u64,
    /// Edges of the program that inputs took.
    edges: u64,
    corpus: u64,
    /// The input that ended it.
    failed: Option<PathBuf>,
}

/// Runs the command; whether nothing was found.
///
/// # Errors
///
/// If options are unknown, or a target cannot be built or started.
pub fn run(root: &Path, arguments: &[String], tell: &mut dyn FnMut(&str)) -> Result<bool, String> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        tell(USAGE);
        return Ok(true);
    }
    if arguments == ["--list"] {
        TARGETS.iter().for_each(|target| tell(&format!("{:<16} {}", target.name, target.reads)));
        return Ok(true);
    }
    let options = Options::read(arguments)?;
    build(root, &options)?;
    tell(&format!("{:<16} {:>12} {:>8} {:>10} {:>8}  result", "target", "inputs", "seconds", "edges", "corpus"));
    let mut failed = Vec::new();
    for target in &options.targets {
        let started = Instant::now();
        let outcome = run_target(root, target, &options)?;
        let result = if outcome.failed.is_some() { "FAILED" } else { "good" };
        let seconds = started.elapsed().as_secs();
        let Outcome { inputs, edges, corpus, .. } = outcome;
        tell(&format!("{:<16} {inputs:>12} {seconds:>8} {edges:>10} {corpus:>8}  {result}", target.name));
        failed.extend(outcome.failed);
    }
    failed.iter().for_each(|path| tell(&format!("failed: {}", path.display())));
    Ok(failed.is_empty())
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self { targets: TARGETS.iter().collect(), inputs: 100_000, seconds: 600 };
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { return Err(format!("{} needs a value\n\n{USAGE}", pair.concat())) };
            let number = || value.parse().map_err(|_| format!("{name} {value}: not a number"));
            match name.as_str() {
                "--target" => options.targets = value.split(',').map(named).collect::<Result<_, _>>()?,
                "--inputs" => options.inputs = number()?,
                "--seconds" => options.seconds = number()?,
                _ => return Err(format!("unknown option {name}\n\n{USAGE}")),
            }
        }
        Ok(options)
    }
}

fn named(name: &str) -> Result<&'static Target, String> {
    let found = TARGETS.iter().find(|target| target.name == name);
    found.ok_or_else(|| format!("there is no target {name}: see cargo xtask fuzz --list"))
}

fn build(root: &Path, options: &Options) -> Result<(), String> {
    let mut build = cargo(root);
    build.env("RUSTFLAGS", FLAGS).env("CARGO_INCREMENTAL", "0");
    build.args([
        "build",
        "--release",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--target-dir",
        "target/fuzz",
        "--target",
        TRIPLE,
    ]);
    for target in &options.targets {
        build.args(["--bin", target.name]);
    }
    let status = build.status().map_err(|error| format!("{build:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err("the targets could not be built".to_owned()) }
}

fn run_target(root: &Path, target: &Target, options: &Options) -> Result<Outcome, String> {
    let fuzz = root.join("fuzz");
    let (corpus, artifacts) = (fuzz.join("corpus").join(target.name), fuzz.join("artifacts").join(target.name));
    let shown = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    for folder in [&corpus, &artifacts] {
        std::fs::create_dir_all(folder).map_err(|error| shown(folder, error))?;
    }
    seeds::plant(root, target, &corpus)?;
    let (dictionary, words) = (artifacts.join("words"), seeds::dictionary(root, target)?);
    std::fs::write(&dictionary, &words).map_err(|error| shown(&dictionary, error))?;
    let log = artifacts.join("log");
    let output = File::create(&log).map_err(|error| shown(&log, error))?;
    let program = root.join("target/fuzz").join(TRIPLE).join("release").join(target.name);
    let mut command = Command::new(&program);
    command.arg(&corpus).arg(format!("-artifact_prefix={}/", artifacts.display()));
    // The engine takes no empty one.
    if !words.is_empty() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    for (name, number) in [
        ("runs", options.inputs),
        ("max_total_time", options.seconds),
        ("max_len", target.bytes_max),
        ("timeout", u64::from(TIMEOUT_S)),
        ("rss_limit_mb", u64::from(MEMORY_MIB)),
        ("report_slow_units", 2),
        ("print_final_stats", 1),
    ] {
        command.arg(format!("-{name}={number}"));
    }
    let status = command.stdout(std::process::Stdio::null()).stderr(output).status();
    let status = status.map_err(|error| shown(&program, error))?;
    let said = std::fs::read(&log).map_err(|error| shown(&log, error))?;
    let mut outcome = read_log(&String::from_utf8_lossy(&said));
    if !status.success() && outcome.failed.is_none() {
        outcome.failed = Some(log);
    }
    Ok(outcome)
}

/// What the engine said: lines of progress with words and numbers, figures at the end, and where it put the input that failed.
fn read_log(log: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for line in log.lines() {
        if let Some(number) = line.strip_prefix("stat::number_of_executed_units:") {
            outcome.inputs = number.trim().parse().unwrap_or(outcome.inputs);
        } else if let Some((_, path)) = line.split_once("Test unit written to ") {
            if !path.contains("slow-unit-") {
                outcome.failed = Some(PathBuf::from(path));
            }
        } else if let Some((number, progress)) = line.strip_prefix('#').and_then(|line| line.split_once('\t')) {
            let words: Vec<&str> = progress.split_whitespace().collect();
            let after = |name: &str| words.iter().skip_while(|word| **word != name).nth(1);
            let count = |name: &str| after(name)?.split('/').next()?.parse().ok();
            outcome.inputs = number.parse().unwrap_or(outcome.inputs);
            outcome.edges = count("cov:").unwrap_or(outcome.edges);
            outcome.corpus = count("corp:").unwrap_or(outcome.corpus);
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_is_in_the_table() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/fuzz_targets");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let mut found: Vec<String> =
            files.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
        let mut known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        found.sort();
        known.sort_unstable();
        assert_eq!(found, known);
    }

    #[test]
    fn what_the_engine_says_is_understood() {
        let log = "#2\tINITED cov: 30 ft: 31 corp: 1/1b exec/s: 0 rss: 40Mb\n\
            Slowest unit: 3 s:\nartifact_prefix='a/'; Test unit written to a/slow-unit-1\n\
            #900\tNEW    cov: 77 ft: 90 corp: 12/1Kb lim: 4 exec/s: 0 rss: 40Mb L: 1/4 MS: 1 InsertByte-\n\
            artifact_prefix='a/'; Test unit written to a/crash-1\nstat::number_of_executed_units: 950\n";
        let failed = Some(PathBuf::from("a/crash-1"));
        assert_eq!(read_log(log), Outcome { inputs: 950, edges: 77, corpus: 12, failed });
    }
}
