//! `thalweg check config`: exit codes are those of promtool.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use platform::Platform;
use rules::file::ReadOptions;
use scrape::config::{self, Loaded, Origin};

/// Check configurations of Prometheus (prometheus.yml)
///
/// Exit code: 0 all can be run, 1 one has errors, or jobs whose discovery is not built in.
#[derive(Debug, Args)]
pub(crate) struct ConfigFlags {
    /// Files to check
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Look at the files themselves alone, not at those that they name: certificates, passwords, rules
    #[arg(long)]
    syntax_only: bool,
}

pub(super) fn run(flags: &ConfigFlags) -> ExitCode {
    let failed = flags.files.iter().filter(|file| !check(file, flags.syntax_only)).count();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Checks a file; returns whether it can be run.
fn check(file: &Path, is_syntax_only: bool) -> bool {
    say!("Checking {}", file.display());
    let files = Platform::real().files;
    let variable = |name: &str| std::env::var(name).ok();
    let loaded = config::load(file, &Origin { files: &*files, variable: &variable });
    let Loaded { config, warnings } = match loaded {
        Ok(loaded) => loaded,
        Err(problems) => {
            problems.iter().for_each(|problem| say!("  FAILED: {problem}"));
            return false;
        }
    };
    warnings.iter().for_each(|warning| say!("  warning: {warning}"));
    let disabled = config.disabled().into_iter();
    let mut failures: Vec<String> = disabled.map(|(part, reason)| format!("{part} does not run: {reason}")).collect();
    if !is_syntax_only {
        let missing = config.named_files().into_iter().filter(|path| !path.exists());
        failures.extend(missing.map(|path| format!("{} does not exist", path.display())));
        let options = ReadOptions { names: config.global.defaults.names, ..ReadOptions::default() };
        match rules::file::load(&*files, &config.rule_files, &options) {
            Ok(loaded) => loaded.warnings.iter().for_each(|warning| say!("  warning: {warning}")),
            Err(problems) => failures.extend(problems.iter().map(ToString::to_string)),
        }
    }
    failures.iter().for_each(|failure| say!("  FAILED: {failure}"));
    if failures.is_empty() {
        say!("  SUCCESS: {} is valid, {} jobs", file.display(), config.scrape_configs.len());
    }
    failures.is_empty()
}
