//! `cargo xtask <command>`: the workshop's commands.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program answers on its terminal")]

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "Usage: cargo xtask tidy    hold the source against the house rules";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments != ["tidy"] {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    match xtask::tidy::check(&root) {
        Ok(report) => {
            for finding in &report.findings {
                eprintln!("{finding}\n");
            }
            println!("{}", report.summary);
            if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("tidy could not look: {error}");
            ExitCode::from(2)
        }
    }
}
