//! `thalweg-sim [--seeds N] [--first N] [--operations N] [--failures N] [--one-file 0|1]`: runs seeds, until so many have failed, and prints those.
//! `cargo xtask sim` builds and runs it optimised.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program answers on its terminal")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use thalweg_sim::{Divergence, Report, run, run_in};

/// What to run.
struct Plan {
    first: u64,
    seeds: u64,
    operations: u64,
    /// Failing seeds after which no further one is begun.
    failures: u64,
    /// Whether the data folders are one file; `None`: those of some seeds are.
    is_one_file: Option<bool>,
}

fn plan(arguments: &[String]) -> Result<Plan, String> {
    let mut plan = Plan { first: 0, seeds: 100, operations: 500, failures: u64::MAX, is_one_file: None };
    for pair in arguments.chunks(2) {
        let [name, value] = pair else {
            return Err(format!("{} needs a number", pair.join(" ")));
        };
        let value: u64 = value.parse().map_err(|error| format!("{name} {value}: {error}"))?;
        match name.as_str() {
            "--first" => plan.first = value,
            "--seeds" => plan.seeds = value,
            "--operations" => plan.operations = value,
            "--failures" => plan.failures = value,
            "--one-file" => plan.is_one_file = Some(value > 0),
            _ => {
                let known = "--first, --seeds, --operations, --failures, --one-file";
                return Err(format!("unknown option {name}; there are {known}"));
            }
        }
    }
    Ok(plan)
}

/// A panic, too, is something that a seed shows.
fn run_caught(seed: u64, plan: &Plan) -> Result<Report, Divergence> {
    let run = || match plan.is_one_file {
        None => run(seed, plan.operations),
        Some(is_one_file) => run_in(seed, plan.operations, is_one_file),
    };
    std::panic::catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        let message = format!("panicked: {}", text.unwrap_or("without a message"));
        Err(Divergence { seed, operation: 0, message })
    })
}

/// Runs the plan's seeds on all cores.
fn run_all(plan: &Plan) -> (Report, Vec<Divergence>) {
    let next = AtomicU64::new(plan.first);
    let failures = AtomicU64::new(0);
    let work = || {
        let mut report = Report::default();
        let mut divergences = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= plan.first + plan.seeds || failures.load(Ordering::Relaxed) >= plan.failures {
                return (report, divergences);
            }
            match run_caught(seed, plan) {
                Ok(done) => report.add(&done),
                Err(divergence) => {
                    println!("{divergence}");
                    failures.fetch_add(1, Ordering::Relaxed);
                    divergences.push(divergence);
                }
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut total = (Report::default(), Vec::new());
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            // Runs do not panic here any more: a worker comes back.
            if let Ok((report, divergences)) = worker.join() {
                total.0.add(&report);
                total.1.extend(divergences);
            }
        }
    });
    total
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let plan = match plan(&arguments) {
        Ok(plan) => plan,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    let (report, divergences) = run_all(&plan);
    println!("{} seeds of {} operations: {} divergences; {report:?}", plan.seeds, plan.operations, divergences.len());
    if divergences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
