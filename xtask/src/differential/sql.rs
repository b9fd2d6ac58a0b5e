//! `cargo xtask differential sql`: the test that compares SQL with `DuckDB`, with more statements than in the test suite.

use std::path::Path;

use crate::sim::cargo;

/// Runs it; whether all answers agree.
///
/// # Errors
///
/// If an option is unknown or the test cannot be started.
pub fn command(root: &Path, arguments: &[String]) -> Result<bool, String> {
    let mut test = cargo(root);
    test.args(["test", "--quiet", "--package", "thalweg-db", "--test", "sql_differential", "--", "--nocapture"]);
    test.env("THALWEG_STATEMENTS", "3000");
    // Without the package the test suite passes; whoever asks for a comparison wants one.
    test.env("THALWEG_PYTHON_TEST", "required");
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
