//! `thalweg bench storage`: what the storage engine takes and gives, a file per experiment. All go through the library's
//! fast path, without HTTP.

mod amplification;
mod data;
mod databases;
mod elastic;
mod fill;
mod insert;
mod late;
pub(crate) mod location;
mod memory;
mod reopen;
pub(crate) mod report;
mod size;
pub(crate) mod views;
mod windows;
mod year;

use std::process::ExitCode;

use clap::{Args, Subcommand};

pub(super) use report::quantile;

const EXAMPLES: &str = "Examples:
  thalweg bench storage memory                         a million lone series: registration, bytes of memory each
  thalweg bench storage memory --groups 100000         the same in groups of 100 members
  thalweg bench storage insert --seconds 600           lone against grouped insertion, ten minutes each
  thalweg bench storage size --json > size.json        bytes per value once settled
  thalweg bench storage elastic --budget-mib 512       levels 0 and 1 under a budget, plotted
  thalweg bench storage windows --objects file:///tmp/o  a year's maxima by day, also from an object store

Each works in a temporary folder that is removed at the end; --data keeps it. Figures of time depend on what else the machine
does: CPU seconds and ratios travel better.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StorageFlags {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    /// Memory of registered and active series, lone or in groups
    Memory(memory::MemoryFlags),
    /// Lone against grouped insertion into a durable log, with merges beside it
    Insert(insert::InsertFlags),
    /// Bytes per value once data has settled
    Size(size::SizeFlags),
    /// Late rows: insertion, queries before and after merging
    Late(late::LateFlags),
    /// A year imported series by series against in order of time
    Year(year::YearFlags),
    /// Levels 0 and 1 under a budget while the rate of samples changes
    Elastic(elastic::ElasticFlags),
    /// Maxima by day over a year, from summaries and from samples
    Windows(windows::WindowsFlags),
    /// Kill -9 with a full log, then time to the first answer
    Reopen(reopen::ReopenFlags),
    /// Many small databases
    Databases(databases::DatabasesFlags),
    /// Bytes and requests that a stored byte costs, against TimeUnion's equations 9 and 10
    Amplification(amplification::AmplificationFlags),
}

pub(crate) fn run(flags: &StorageFlags) -> Result<ExitCode, String> {
    match &flags.experiment {
        Experiment::Memory(flags) => memory::run(flags),
        Experiment::Insert(flags) => insert::run(flags),
        Experiment::Size(flags) => size::run(flags),
        Experiment::Late(flags) => late::run(flags),
        Experiment::Year(flags) => year::run(flags),
        Experiment::Elastic(flags) => elastic::run(flags),
        Experiment::Windows(flags) => windows::run(flags),
        Experiment::Reopen(flags) => reopen::run(flags),
        Experiment::Databases(flags) => databases::run(flags),
        Experiment::Amplification(flags) => amplification::run(flags),
    }
}
