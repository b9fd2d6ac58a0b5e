//! `thalweg bench cache`: replacement policies on generated requests, and the cache itself.

mod dashboard;
mod engine;
mod policies;
mod requests;

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

const EXAMPLES: &str = "Examples:
  thalweg bench cache policies                      hit ratios of all policies, from recent requests to a hot spot in old data
  thalweg bench cache policies --cache-percent 4 --json
  thalweg bench cache engine --file /var/tmp/flash  the cache itself, by policy
  thalweg bench cache dashboard                     12 panels over 6 h of 1,000 series, inside the database
  thalweg bench cache requests --influxdb http://127.0.0.1:8086 --cache 127.0.0.1:7785";

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
    /// Ask an InfluxDB 1.x: alone, through `thalweg cache`, or through units of a fixed length in memcached
    Requests(requests::RequestsFlags),
}

/// What spans requests have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Spans {
    Full,
    Small,
    Medium,
    Large,
}

impl Spans {
    const fn minutes(self) -> (i64, i64) {
        match self {
            Self::Full => (1, 7 * 24 * 60),
            Self::Small => (1, 60),
            Self::Medium => (60, 24 * 60),
            Self::Large => (24 * 60, 7 * 24 * 60),
        }
    }
}

pub(crate) fn run(flags: &CacheFlags) -> Result<ExitCode, String> {
    match &flags.kind {
        Kind::Policies(flags) => policies::run(flags),
        Kind::Engine(flags) => engine::run(flags),
        Kind::Dashboard(flags) => dashboard::run(flags),
        Kind::Requests(flags) => requests::run(flags),
    }
}
