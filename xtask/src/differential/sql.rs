//! `cargo xtask differential sql` and `postgres`: the tests that compare SQL with `DuckDB` and with `PostgreSQL`, with more statements than in
//! the test suite.

use std::path::Path;

use crate::sim::cargo;

/// A test that compares answers.
#[derive(Debug, Clone, Copy)]
pub struct Comparison {
    package: &'static str,
    test: &'static str,
    statements: &'static str,
    /// The variable that makes the test fail where its peer is not installed.
    required: &'static str,
}

/// Rows, with `DuckDB`.
pub const DUCKDB: Comparison =
    Comparison { package: "thalweg-db", test: "sql_differential", statements: "3000", required: "THALWEG_PYTHON_TEST" };

/// Zones, dates and lengths of time, with `PostgreSQL`.
pub const POSTGRES: Comparison = Comparison {
    package: "thalweg-sql",
    test: "postgres_differential",
    statements: "5000",
    required: "THALWEG_POSTGRES_TEST",
};

/// Runs one; whether all answers agree.
///
/// # Errors
///
/// If an option is unknown or the test cannot be started.
pub fn command(root: &Path, comparison: Comparison, arguments: &[String]) -> Result<bool, String> {
    let Comparison { package, test: name, statements, required } = comparison;
    let mut test = cargo(root);
    test.args(["test", "--quiet", "--package", package, "--test", name, "--", "--nocapture"]);
    // Without the peer the test suite passes; a comparison that was asked for fails.
    test.env("THALWEG_STATEMENTS", statements).env(required, "required");
    for pair in arguments.chunks(2) {
        let (name, number) = match pair {
            [name, number] if number.parse::<u64>().is_ok() => (name.as_str(), number),
            _ => return Err(format!("{} takes a number", pair.concat())),
        };
        match name {
            "--statements" => test.env("THALWEG_STATEMENTS", number),
            "--seed" => test.env("THALWEG_SEED", number),
            _ => return Err(format!("unknown option {name}: --seed and --statements are known")),
        };
    }
    let status = test.status().map_err(|error| format!("{test:?}: {error}"))?;
    Ok(status.success())
}
