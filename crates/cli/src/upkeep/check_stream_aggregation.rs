//! `thalweg check stream-aggregation`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use platform::Platform;
use promql::Features;
use rules::file::{GroupConfig, LoadedRules};
use rules::materialize::{self, RulePatterns};
use rules::stream_aggregation::AggregationFile;
use scrape::config::reader::Problem;
use scrape::config::units::duration_text;

/// Check stream aggregation files of VictoriaMetrics, and print the rules that they become
///
/// Exit code: 0 all can be run, 1 one has errors.
#[derive(Debug, Args)]
pub(crate) struct AggregationFlags {
    /// Files to check
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How far PromQL looks back, in milliseconds, as the server has it
    #[arg(long, env = "THALWEG_LOOKBACK_MS", value_name = "MS", default_value_t = 300_000)]
    lookback_ms: u64,
}

pub(super) fn run(flags: &AggregationFlags) -> ExitCode {
    let failed = flags.files.iter().filter(|file| !check(file, flags.lookback_ms)).count();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Checks a file; returns whether it can be run.
fn check(path: &Path, lookback_ms: u64) -> bool {
    say!("Checking {}", path.display());
    match load(path, lookback_ms) {
        Ok(loaded) => {
            loaded.warnings.iter().for_each(|warning| say!("  warning: {warning}"));
            loaded.groups.iter().for_each(tell);
            let count: usize = loaded.groups.iter().map(|group| group.rules.len()).sum();
            say!("  SUCCESS: {} is valid, {count} rules", path.display());
            true
        }
        Err(problems) => {
            problems.iter().for_each(|problem| say!("  FAILED: {problem}"));
            false
        }
    }
}

/// The rules that a file becomes, if their results can stay right.
pub(super) fn load(path: &Path, lookback_ms: u64) -> Result<LoadedRules, Vec<Problem>> {
    let file = AggregationFile { path: path.to_owned(), lookback_ms, features: Features::default() };
    let variable = |name: &str| std::env::var(name).ok();
    let mut loaded = file.load(&*Platform::real().files, &variable)?;
    loaded.warnings.extend(materialize::select(&mut loaded.groups, &RulePatterns::default())?);
    Ok(loaded)
}

fn tell(group: &GroupConfig) {
    let interval = duration_text(group.interval_ms.unwrap_or_default());
    for rule in &group.rules {
        say!("  every {interval}: {} = {}", rule.name(), rule.expr);
    }
    let dropped: BTreeSet<&String> =
        group.rules.iter().filter_map(|rule| rule.dropped.as_ref()).flat_map(|input| &input.selectors).collect();
    for selector in dropped {
        say!(
            "  the samples of {selector} go in steps of 15m, an hour after their windows at the earliest, and never before a rule or view that needs them"
        );
    }
}
