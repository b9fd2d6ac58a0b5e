//! `cargo xtask full`: the tests of what the default build leaves out, because building it takes longer than building everything else.
//! They are run by hand before a change that touches these features goes in.

use std::path::Path;

use crate::sim::cargo;

/// Each command builds what it tests once: packages that are tested together share the features of their dependencies.
const COMMANDS: [(&str, &[&str]); 2] = [
    (
        "Arrow Flight SQL",
        &[
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
    ),
    (
        "SQL by DataFusion",
        &[
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
    ),
];

/// Runs the tests; the outcome is whether all of them passed.
///
/// # Errors
///
/// Cargo could not be started.
pub fn run(root: &Path, out: &mut dyn FnMut(&str)) -> Result<bool, String> {
    let mut have_passed = true;
    for (name, arguments) in COMMANDS {
        out(&format!("== {name}: cargo {}", arguments.join(" ")));
        let status = cargo(root).args(arguments).status().map_err(|error| format!("cargo: {error}"))?;
        have_passed &= status.success();
    }
    Ok(have_passed)
}
