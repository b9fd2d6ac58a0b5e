//! `thalweg bench storage databases`: what many small tenants cost.

use std::process::ExitCode;

use clap::Args;
use model::{Field, Labels, ValueType};
use store::StoreOptions;

use super::data::{self, SECOND_NS, START_NS, Walks};
use super::location::{DataLocation, Folder, bar, files, keep_up, open};
use super::report::{Case, Report};
use crate::measure::process::{folder_bytes, resident, thread_cpu_seconds};

const EXAMPLES: &str = "Examples:
  thalweg bench storage databases                              1,000 databases, 10 hosts of 10 values each, an hour
  thalweg bench storage databases --databases 10000 --rows 10";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DatabasesFlags {
    /// Databases
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    databases: u32,
    /// Groups of ten members in each
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    groups: u32,
    /// Rows of each group, at 10 s
    #[arg(long, default_value_t = 360, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rows: u32,
    #[command(flatten)]
    location: DataLocation,
}

pub(super) fn run(flags: &DatabasesFlags) -> Result<ExitCode, String> {
    let folder = Folder::new(&flags.location)?;
    let path = folder.case("databases");
    let before = resident();
    let store = open(StoreOptions::new(&path))?;
    let fields: Vec<(Field, Labels)> = (0..10)
        .map(|member| (Field { name: format!("usage_{member}"), value_type: ValueType::F64 }, Labels::empty()))
        .collect();
    let labels: Vec<Labels> = (0..flags.groups as usize).map(data::group_labels).collect::<Result<_, _>>()?;
    let cpu_before = thread_cpu_seconds();
    let mut databases = Vec::new();
    for number in 0..flags.databases {
        let name = format!("tenant-{number:06}");
        let registered = store.register_groups(&name, "cpu", &labels, &fields);
        databases.push(registered.map_err(|error| error.to_string())?);
    }
    let registration_seconds = thread_cpu_seconds() - cpu_before;
    let walks = Walks::integers(1);
    let progress = bar(u64::from(flags.rows), "rows");
    for step in 0..flags.rows as usize {
        let mut appender = store.appender();
        for (number, (tokens, layout)) in databases.iter().enumerate() {
            for (group, token) in tokens.iter().enumerate() {
                let cells: [u64; 10] =
                    std::array::from_fn(|member| walks.value(number + group + member, step).to_bits());
                let at_ns = START_NS + step as i64 * 10 * SECOND_NS;
                appender.row(*token, layout, at_ns, &cells).map_err(|error| error.to_string())?;
            }
        }
        appender.commit().map_err(|error| error.to_string())?;
        keep_up(&store)?;
        progress.inc(1);
    }
    progress.finish_and_clear();
    let mut report = Report::new("databases");
    let mut measure = |name: &str| {
        let (now, stats) = (resident(), store.stats());
        let mut case = Case::new(name);
        case.count("databases", u64::from(flags.databases))
            .count("values", stats.values)
            .count("resident_bytes", now.resident_bytes)
            .add(
                "grown_bytes_per_database",
                now.resident_bytes.saturating_sub(before.resident_bytes) as f64 / f64::from(flags.databases),
            )
            .count("index_bytes", stats.index_bytes)
            .count("head_bytes", stats.head_bytes)
            .count("files", files(&path))
            .count("folder_bytes", folder_bytes(&path))
            .count("part_bytes", stats.levels.iter().map(|level| level.bytes).sum())
            .add("registered_databases_per_cpu_second", f64::from(flags.databases) / registration_seconds);
        report.cases.push(case);
    };
    measure("in heads");
    store.flush_all().map_err(|error| error.to_string())?;
    measure("flushed");
    store.compact_all().map_err(|error| error.to_string())?;
    measure("settled");
    report.print(flags.location.json)
}
