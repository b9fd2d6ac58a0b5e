//! `thalweg bench storage memory`: TimeUnion's case for groups, and the figure that decides how many series a machine holds.

use std::process::ExitCode;

use clap::Args;
use model::ValueType;
use store::StoreOptions;

use super::data::{SECOND_NS, START_NS, Walks};
use super::fill::{Target, fill};
use super::location::{DataLocation, Folder, bar, open};
use super::report::{Case, Report};
use crate::measure::process::{resident, thread_cpu_seconds};

const EXAMPLES: &str = "Examples:
  thalweg bench storage memory                                     1 M lone series with 10 labels, 64 samples each
  thalweg bench storage memory --series 5000000
  thalweg bench storage memory --groups 100000 --members 100       10 M members

Bytes per series are what the whole process holds more than before it opened the store, tokens left out: the index, the heads, the
caches, what the allocator keeps, and mapped files (also told apart, because the system takes those back when it needs room).";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MemoryFlags {
    /// Lone series
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    series: u32,
    /// Labels of a lone series, its name included
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(2..=10))]
    labels: u8,
    /// Groups instead of lone series
    #[arg(long, conflicts_with_all = ["series", "labels"], value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    groups: Option<u32>,
    /// Members of a group
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    members: u32,
    /// Samples of each series, at 15 s
    #[arg(long, default_value_t = 64)]
    samples: u32,
    #[command(flatten)]
    location: DataLocation,
}

pub(super) fn run(flags: &MemoryFlags) -> Result<ExitCode, String> {
    let folder = Folder::new(&flags.location)?;
    let before = resident();
    let walks = Walks::doubles(1);
    let store = open(StoreOptions::new(folder.case("memory")))?;
    let ((target, cpu_seconds), series) = match flags.groups {
        Some(groups) => {
            let target = Target::groups_timed(&store, groups as usize, flags.members as usize, ValueType::F64)?;
            (target, u64::from(groups) * u64::from(flags.members))
        }
        None => {
            let labels = usize::from(flags.labels) - 1;
            (Target::series_timed(&store, flags.series as usize, 1, labels)?, u64::from(flags.series))
        }
    };
    let token_bytes = target.rows() as u64 * 8;
    let mut report = Report::new("memory");
    let mut measure = |name: &str, registered: bool| {
        let now = resident();
        let stats = store.stats();
        let grown = |now: u64, before: u64| now.saturating_sub(before);
        let counted = grown(now.resident_bytes, before.resident_bytes + token_bytes);
        let mut case = Case::new(name);
        case.count("series", series)
            .add("bytes_per_series", counted as f64 / series as f64)
            .add(
                "anonymous_bytes_per_series",
                grown(now.anonymous_bytes, before.anonymous_bytes + token_bytes) as f64 / series as f64,
            )
            .add("file_bytes_per_series", grown(now.file_bytes, before.file_bytes) as f64 / series as f64)
            .count("resident_bytes", now.resident_bytes)
            .count("resident_peak_bytes", now.peak_bytes)
            .count("anonymous_bytes", now.anonymous_bytes)
            .count("file_bytes", now.file_bytes)
            .count("index_bytes", stats.index_bytes)
            .count("head_bytes", stats.head_bytes)
            .count("part_index_bytes", stats.memory.parts)
            .count("block_bytes", stats.memory.cache)
            .count("spare_bytes", stats.memory.spare)
            .count("counted_bytes", stats.memory.total());
        if registered {
            case.add("registration_cpu_seconds", cpu_seconds)
                .add("registered_per_cpu_second", target.rows() as f64 / cpu_seconds);
        }
        report.cases.push(case);
    };
    measure("registered", true);
    let cells = series * u64::from(flags.samples);
    let progress = bar(cells, "samples");
    let cpu_before = thread_cpu_seconds();
    let width = target.width();
    fill(&store, &target, 0..flags.samples as usize, &progress, |step, row, cells| {
        for (place, cell) in cells.iter_mut().enumerate() {
            *cell = walks.value(row * width + place, step).to_bits();
        }
        START_NS + step as i64 * 15 * SECOND_NS
    })?;
    progress.finish_and_clear();
    let seconds = thread_cpu_seconds() - cpu_before;
    measure("with samples", false);
    if let Some(case) = report.cases.last_mut() {
        case.add("samples_per_cpu_second", cells as f64 / seconds);
    }
    report.print(flags.location.json)
}
