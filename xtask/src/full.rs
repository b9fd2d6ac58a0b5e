//! `cargo xtask full`: the tests of what the default build leaves out, because building it takes longer than building everything else,
//! and those that take as long by themselves. They are run by hand before a change that touches these parts goes in.

use std::path::Path;

use crate::sim::cargo;

/// A run of cargo.
struct Run {
    name: &'static str,
    environment: &'static [(&'static str, &'static str)],
    arguments: &'static [&'static str],
}

/// Each builds what it tests once: packages that are tested together share the features of their dependencies.
const RUNS: [Run; 3] = [
    Run {
        name: "Arrow Flight SQL",
        environment: &[],
        arguments: &[
            "test",
            "--locked",
            "-p",
            "thalweg-server",
            "--features",
            "thalweg-server/flight-sql",
            "--lib",
            "--test",
            "flight_sql",
        ],
    },
    Run {
        name: "SQL by DataFusion",
        environment: &[],
        arguments: &[
            "test",
            "--locked",
            "-p",
            "thalweg-sql-datafusion",
            "-p",
            "thalweg-db",
            "--features",
            "thalweg-sql-datafusion/datafusion,thalweg-db/sql-datafusion",
            "--lib",
            "--test",
            "sql_beyond",
            "--test",
            "sql_differential",
        ],
    },
    Run {
        name: "a simulated day of scraping a thousand targets",
        environment: &[("THALWEG_DAY_TARGETS", "1000")],
        arguments: &["test", "--locked", "--release", "-p", "thalweg-scrape", "--test", "day"],
    },
];

/// Runs the tests; the outcome is whether all of them passed.
///
/// # Errors
///
/// Cargo could not be started.
pub fn run(root: &Path, out: &mut dyn FnMut(&str)) -> Result<bool, String> {
    let mut have_passed = true;
    for Run { name, environment, arguments } in RUNS {
        out(&format!("== {name}: cargo {}", arguments.join(" ")));
        let mut run = cargo(root);
        run.args(arguments).envs(environment.iter().copied());
        let status = run.status().map_err(|error| format!("cargo: {error}"))?;
        have_passed &= status.success();
    }
    Ok(have_passed)
}
