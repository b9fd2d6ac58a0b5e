//! `thalweg bench storage late`: rows that come late, after TimeUnion's figure 18b.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use index::CompiledMatcher;
use model::{MatchOp, Matcher, TimeRange, ValueType};
use store::{SelectedGroup, Store, StoreOptions, Windows};

use super::data::{SECOND_NS, START_NS, Walks, mix};
use super::fill::{DATABASE, Target, fill};
use super::place::{Folder, Place, bar, files, open};
use super::report::{Case, Report, quantile};
use crate::bench::process::{folder_bytes, thread_cpu_seconds};

const EXAMPLES: &str = "Examples:
  thalweg bench storage late                             0, 5, 20 and 50 % of rows up to a day late
  thalweg bench storage late --shares 0,10 --delay-h 1

Every case writes as many rows. A late row's timestamp is up to the delay before its turn, between those of other rows. Queries
(one group's samples of the whole time; one group's maxima by hour) are asked right after writing, then when all is merged.";

const HOUR_NS: i64 = 3600 * SECOND_NS;

/// Seconds between two rows of a group.
const INTERVAL_S: i64 = 10;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LateFlags {
    /// Shares of late rows, in percent: a case for each
    #[arg(long, value_delimiter = ',', default_value = "0,5,20,50", value_parser = clap::value_parser!(u32).range(0..=100))]
    shares: Vec<u32>,
    /// Series
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    series: u32,
    /// Members of a group; 1 for lone series
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    members: u32,
    /// Hours of data at 10 s
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    hours: u32,
    /// Hours that a row may be late
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    delay_h: u32,
    /// Bytes of all heads together, in MiB: small enough that most rows are in parts
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    head_mib: u32,
    /// Queries of each kind
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    queries: u32,
    #[command(flatten)]
    place: Place,
}

pub(super) fn run(flags: &LateFlags) -> Result<ExitCode, String> {
    let folder = Folder::new(&flags.place)?;
    let mut report = Report::new("late");
    for share in &flags.shares {
        let mut case = measure(flags, &folder, *share)?;
        if let Some(first) = report.cases.first() {
            for figure in
                ["values_per_cpu_second", "read_before_us", "read_after_us", "windows_before_us", "windows_after_us"]
            {
                let ratio = case.get(figure) / first.get(figure);
                case.add(format!("{figure}_ratio"), ratio);
            }
        }
        report.cases.push(case);
    }
    report.print(flags.place.json)
}

fn measure(flags: &LateFlags, folder: &Folder, share: u32) -> Result<Case, String> {
    let name = format!("{share} % late");
    let path = folder.case(&name);
    let options = StoreOptions { head_bytes_max: (flags.head_mib as usize) << 20, ..StoreOptions::new(&path) };
    let store = open(options)?;
    let rows = (flags.series / flags.members).max(1) as usize;
    let target = match flags.members {
        1 => Target::series(&store, rows, 1, 9)?,
        members => Target::groups(&store, rows, members as usize, ValueType::F64)?,
    };
    let steps = (i64::from(flags.hours) * 3600 / INTERVAL_S) as usize;
    let (walks, width) = (Walks::integers(1), target.width());
    let progress = bar((steps * rows * width) as u64, &name);
    let cpu_before = thread_cpu_seconds();
    let written = fill(&store, &target, 0..steps, &progress, |step, row, cells| {
        for (place, cell) in cells.iter_mut().enumerate() {
            *cell = walks.value(row * width + place, step).to_bits();
        }
        let bits = mix((step as u64) << 32 | row as u64);
        let now_ns = START_NS + step as i64 * INTERVAL_S * SECOND_NS;
        let late_ns = (bits >> 8) as i64 % (i64::from(flags.delay_h) * HOUR_NS);
        if bits % 100 < u64::from(share) { (now_ns - late_ns.max(SECOND_NS)).max(START_NS) } else { now_ns }
    });
    progress.finish_and_clear();
    let values = written?;
    let insertion_cpu_seconds = thread_cpu_seconds() - cpu_before;
    let mut case = Case::new(name.clone());
    case.count("values", values)
        .add("values_per_cpu_second", values as f64 / insertion_cpu_seconds)
        .add("cpu_seconds", insertion_cpu_seconds);
    asked(flags, &store, "before", &mut case)?;
    held(&store, "before", &mut case);
    let cpu_before = thread_cpu_seconds();
    store.settle().map_err(|error| error.to_string())?;
    case.add("settle_cpu_seconds", thread_cpu_seconds() - cpu_before);
    asked(flags, &store, "after", &mut case)?;
    held(&store, "after", &mut case);
    case.count("files", files(&path)).count("folder_bytes", folder_bytes(&path));
    drop(store);
    folder.clear(&name);
    Ok(case)
}

fn held(store: &Store, when: &str, case: &mut Case) {
    let stats = store.stats();
    case.count(format!("parts_{when}"), stats.levels.iter().map(|level| level.parts).sum())
        .count(format!("part_{when}_bytes"), stats.levels.iter().map(|level| level.bytes).sum())
        .count(format!("part_bytes_written_{when}_bytes"), stats.part_bytes_written);
}

/// Asks single groups for all their samples, and for their maxima by hour.
fn asked(flags: &LateFlags, store: &Store, when: &str, case: &mut Case) -> Result<(), String> {
    let groups = everything(store)?;
    let whole = TimeRange::new(START_NS, START_NS + i64::from(flags.hours) * HOUR_NS);
    let windows = Windows { start_ns: START_NS, width_ns: HOUR_NS, count: flags.hours as usize };
    let (mut reads, mut aggregates) = (Vec::new(), Vec::new());
    for query in 0..u64::from(flags.queries) {
        let chosen = mix(query) as usize % groups.len().max(1);
        let group = groups.get(chosen).ok_or("no series was found")?;
        let begun = Instant::now();
        let columns = store.read(group, &whole).map_err(|error| error.to_string())?;
        reads.push(begun.elapsed().as_secs_f64() * 1e6);
        if columns.iter().all(|column| column.timestamps_ns().is_empty()) {
            return Err("a series without samples".to_owned());
        }
        let begun = Instant::now();
        store.aggregate(group, &windows).map_err(|error| error.to_string())?;
        aggregates.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    case.add(format!("read_{when}_us"), quantile(&mut reads, 0.5))
        .add(format!("windows_{when}_us"), quantile(&mut aggregates, 0.5));
    Ok(())
}

/// All groups of the experiments' database.
pub(super) fn everything(store: &Store) -> Result<Vec<SelectedGroup>, String> {
    select(store, "__name__", MatchOp::NotEqual, "")
}

/// The groups that satisfy a matcher.
pub(super) fn select(store: &Store, name: &str, op: MatchOp, value: &str) -> Result<Vec<SelectedGroup>, String> {
    let matcher = CompiledMatcher::new(&Matcher::new(name, op, value)).map_err(|error| error.to_string())?;
    store.select(DATABASE, &[matcher]).map_err(|error| error.to_string())
}
