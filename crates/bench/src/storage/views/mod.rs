//! `thalweg bench views`: what it costs to keep materialised views right, and what they spare. In process, without HTTP.
//!
//! * this file: flags · [`paced_db`]: a database whose time and refreshing the benchmark paces · [`refresh`]: a load with and without views, late rows · [`year`]: queries · [`many`]: views of which few have changes

mod many;
mod paced_db;
mod refresh;
mod year;

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::storage::location::{DataLocation, Folder};
use crate::storage::report::Report;

const EXAMPLES: &str = "Examples:
  thalweg bench views                                  all: 1,000 hosts for 2 days, 10 hosts for a year
  thalweg bench views --only keep --hosts 10000 --hours 6
  thalweg bench views --only late --late-percent 1 --hours 240

keep: rows of TSBS's cpu-only come in order of time, once without views and once with one of a minute and one of an hour by host (avg and
max of all ten fields, count). The clock goes with the data. Passes of refreshing come after so many rows as a busy server takes between
two. cpu_seconds are those of writing, flushing, merging and refreshing; refresh_cpu_seconds those of refreshing, without the merges of
what it wrote. The shares are of the CPU time without views.

late: rows of one day come a day late: a share of them everywhere, then all of a share of the hosts. right_cpu_seconds are those of making
both views right again; again_cpu_seconds those of computing all of their windows again.

many: passes of refreshing with 10 views and with --views, where nothing changed and where rows came for 10 of them, each of a table of its own.

year: a year by hour by two queries, once over a view and once over the table (as with noviews=1); the table has summaries, too.";

const NS_PER_S: i64 = 1_000_000_000;

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Experiment {
    /// What keeping views costs of ingestion's CPU time
    Keep,
    /// What late rows cost
    Late,
    /// A year by hour through a view and over the source
    Year,
    /// Passes over many views of which few have changes
    Many,
}

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ViewsFlags {
    /// Parts of the benchmark
    #[arg(long, value_enum, value_delimiter = ',', default_value = "keep,late,year")]
    only: Vec<Experiment>,
    /// Hosts that are kept up with; each has ten values in a row
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    hosts: u32,
    /// Hours of their data
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    hours: u32,
    /// Seconds from one row of a host to the next
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval_s: u32,
    /// Rows from one pass of refreshing to the next: 250,000 a second come to as many within a server's 200 ms
    #[arg(long, default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows_per_pass: u64,
    /// Share of a day's rows that come late, in percent
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    late_percent: u32,
    /// Hosts of the year
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    year_hosts: u32,
    /// Days of it
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    year_days: u32,
    /// Seconds from one row of a host to the next in it
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    year_interval_s: u32,
    /// Views of which few have changes
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    views: u32,
    /// Queries of each kind, of which the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    queries: u32,
    /// Seed of the data
    #[arg(long, default_value_t = 123)]
    seed: u64,
    #[command(flatten)]
    location: DataLocation,
}

pub(crate) fn run(flags: &ViewsFlags) -> Result<ExitCode, String> {
    let folder = Folder::new(&flags.location)?;
    let mut report = Report::new("views");
    let is_wanted = |experiment| flags.only.contains(&experiment);
    let keeps = is_wanted(Experiment::Keep);
    if keeps || is_wanted(Experiment::Late) {
        let bare = if keeps { Some(refresh::without_views(flags, &folder)?) } else { None };
        let (kept, mut world) = refresh::with_views(flags, &folder, bare.as_ref())?;
        report.cases.extend(bare);
        report.cases.push(kept);
        if is_wanted(Experiment::Late) {
            report.cases.extend(refresh::late(flags, &mut world)?);
        }
        world.close()?;
        folder.clear(refresh::WITH_VIEWS);
    }
    if is_wanted(Experiment::Year) {
        report.cases.extend(year::run(flags, &folder)?);
    }
    if is_wanted(Experiment::Many) {
        report.cases.extend(many::run(flags, &folder)?);
    }
    report.print(flags.location.json)
}
