//! `thalweg bench cache`: replacement policies on generated requests, and the cache itself with what was added to the paper's on and off.

mod dashboard;
mod engine;
mod policies;

use std::process::ExitCode;

use clap::{Args, Subcommand};

const EXAMPLES: &str = "Examples:
  thalweg bench cache policies                      hit ratios of all policies, from recent requests to a hot spot in old data
  thalweg bench cache policies --cache-percent 4 --json
  thalweg bench cache engine --file /var/tmp/flash  the cache itself, as in the paper and as it is
  thalweg bench cache dashboard                     12 panels over 6 h of 1,000 series, inside the database";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CacheFlags {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
    /// Simulate replacement policies
    Policies(policies::PoliciesFlags),
    /// Measure the cache on a file
    Engine(engine::EngineFlags),
    /// Measure a dashboard that is asked for again and slides forward: computed, and with answers that the database keeps
    Dashboard(dashboard::DashboardFlags),
}

pub(crate) fn run(flags: &CacheFlags) -> Result<ExitCode, String> {
    match &flags.kind {
        Kind::Policies(flags) => policies::run(flags),
        Kind::Engine(flags) => engine::run(flags),
        Kind::Dashboard(flags) => dashboard::run(flags),
    }
}
