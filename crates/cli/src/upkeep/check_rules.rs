//! `thalweg check rules` and `thalweg test rules`: output and exit codes are those of promtool.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use platform::Platform;
use rules::file::{self, LoadedRules, ReadOptions};
use rules::unit_test::{self, RunOptions};
use scrape::config::reader::Problem;

/// The exit code where rules stand twice and that is fatal.
const LINT_EXIT_CODE: u8 = 3;

/// Check rule files of Prometheus
///
/// Exit code: 0 all can be run, 1 one has errors, 3 rules stand twice (with --lint-fatal).
#[derive(Debug, Args)]
pub(crate) struct RulesFlags {
    /// Files to check
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Checks beside errors
    #[arg(long, value_enum, default_value = "duplicate-rules")]
    lint: Lint,
    /// Fail where rules stand twice
    #[arg(long)]
    lint_fatal: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Lint {
    All,
    DuplicateRules,
    None,
}

pub(super) fn run(flags: &RulesFlags) -> ExitCode {
    let (mut has_errors, mut has_duplicates) = (false, false);
    for path in &flags.files {
        say!("Checking {}", path.display());
        match file::load_file(&*Platform::real().files, path, &ReadOptions::default()) {
            Ok(loaded) => has_duplicates |= tell(&loaded, flags.lint),
            Err(problems) => {
                has_errors = true;
                tell_failures(&problems);
            }
        }
        say!("");
    }
    if has_errors {
        return ExitCode::FAILURE;
    }
    if has_duplicates && flags.lint_fatal { ExitCode::from(LINT_EXIT_CODE) } else { ExitCode::SUCCESS }
}

fn tell_failures(problems: &[Problem]) {
    say!("  FAILED:");
    problems.iter().for_each(|problem| say!("{problem}"));
}

/// Tells what is in a file; returns whether rules stand twice.
fn tell(loaded: &LoadedRules, lint: Lint) -> bool {
    loaded.warnings.iter().for_each(|warning| say!("  warning: {warning}"));
    let count: usize = loaded.groups.iter().map(|group| group.rules.len()).sum();
    let duplicates = if lint == Lint::None { Vec::new() } else { file::duplicates(&loaded.groups) };
    say!("  SUCCESS: {count} rules found");
    if duplicates.is_empty() {
        return false;
    }
    say!("{} duplicate rule(s) found.", duplicates.len());
    for (name, labels) in &duplicates {
        say!("Metric: {name}\nLabel(s):");
        labels.iter().for_each(|(label, value)| say!("\t{label}: {value}"));
    }
    say!("Might cause inconsistency while recording expressions.");
    true
}

/// Run tests
#[derive(Debug, Args)]
pub(crate) struct TestFlags {
    #[command(subcommand)]
    subject: TestSubject,
}

#[derive(Debug, Subcommand)]
enum TestSubject {
    /// Run tests of rule files, written as promtool has them
    Rules(TestRulesFlags),
}

/// Exit code: 0 all is as expected, 1 it is not.
#[derive(Debug, Args)]
struct TestRulesFlags {
    /// Files of tests
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Run the tests of this name alone; may be given several times
    #[arg(long, value_name = "NAME")]
    run: Vec<String>,
}

pub(crate) fn run_tests(flags: &TestFlags) -> ExitCode {
    let TestSubject::Rules(flags) = &flags.subject;
    let failed = flags.files.iter().filter(|path| !run_file(path, &flags.run)).count();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the tests of a file; returns whether all is as expected.
fn run_file(path: &Path, only: &[String]) -> bool {
    say!("Unit Testing:  {}", path.display());
    let platform = Platform::real();
    let options = RunOptions { files: &*platform.files, read: ReadOptions::default(), only };
    let is_good = match unit_test::run(path, &options) {
        Ok(failures) if failures.is_empty() => {
            say!("  SUCCESS");
            true
        }
        Ok(failures) => {
            say!("  FAILED:");
            failures.iter().for_each(|failure| say!("{failure}\n"));
            false
        }
        Err(problems) => {
            tell_failures(&problems);
            false
        }
    };
    say!("");
    is_good
}
