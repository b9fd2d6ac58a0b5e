//! `cargo xtask sim`: the simulation, optimised.

use std::path::Path;
use std::process::Command;

/// Builds the simulation and runs it with the given options. Whether all seeds passed; an error means that it could not be built.
pub fn run(root: &Path, options: &[String]) -> Result<bool, String> {
    let mut build = cargo(root);
    build.args(["build", "--quiet", "--release", "--package", "thalweg-sim"]);
    finish(&mut build)?;
    let program = root.join("target/release/thalweg-sim");
    let status = Command::new(&program).args(options).current_dir(root).status();
    let status = status.map_err(|error| format!("{}: {error}", program.display()))?;
    // The simulation says 1 for a failing seed and 2 for options that it does not know.
    match status.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => Err(format!("the simulation ended with {status}")),
    }
}

/// The cargo that runs this.
pub(crate) fn cargo(directory: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(directory);
    cargo
}

/// Runs a command that must succeed, its output shown only if it does not.
pub(crate) fn finish(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
}
