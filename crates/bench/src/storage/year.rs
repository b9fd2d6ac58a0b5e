//! `thalweg bench storage year`: history imported series by series, which is how exports come.

use std::process::ExitCode;

use clap::Args;
use indicatif::ProgressBar;
use store::{Store, StoreOptions};

use super::data::{DAY_S, SECOND_NS, START_NS, Walks};
use super::fill::{REQUEST_CELLS, Target, fill};
use super::location::{DataLocation, Folder, bar, files, keep_up, open};
use super::report::{Case, Report};
use crate::measure::process::{folder_bytes, thread_cpu_seconds};

const EXAMPLES: &str = "Examples:
  thalweg bench storage year                                   50 series at a minute
  thalweg bench storage year --series 20 --interval-s 10       63 million values";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct YearFlags {
    /// Lone series
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    series: u32,
    /// Seconds between two samples
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    interval_s: u32,
    /// Days
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Bytes of all heads together, in MiB: a smaller head shows more history's worth of flushes
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    head_mib: u32,
    #[command(flatten)]
    location: DataLocation,
}

pub(super) fn run(flags: &YearFlags) -> Result<ExitCode, String> {
    let folder = Folder::new(&flags.location)?;
    let mut report = Report::new("year");
    report.cases.push(measure(flags, &folder, "by time")?);
    report.cases.push(measure(flags, &folder, "by series")?);
    if let [by_time, by_series] = &mut report.cases[..] {
        for figure in ["files", "parts", "part_bytes", "write_amplification", "cpu_seconds"] {
            by_series.add(format!("{figure}_ratio"), by_series.get(figure) / by_time.get(figure));
        }
    }
    report.print(flags.location.json)
}

fn measure(flags: &YearFlags, folder: &Folder, name: &str) -> Result<Case, String> {
    let path = folder.case(name);
    let options = StoreOptions { head_bytes_max: (flags.head_mib as usize) << 20, ..StoreOptions::new(&path) };
    let store = open(options)?;
    let target = Target::series(&store, flags.series as usize, 1, 9)?;
    let steps = u64::from(flags.days) * DAY_S / u64::from(flags.interval_s);
    let progress = bar(steps * u64::from(flags.series), name);
    let cpu_before = thread_cpu_seconds();
    let walks = Walks::integers(1);
    let at = |step: usize| START_NS + step as i64 * i64::from(flags.interval_s) * SECOND_NS;
    let written = if name == "by time" {
        fill(&store, &target, 0..steps as usize, &progress, |step, row, cells| {
            cells.iter_mut().for_each(|cell| *cell = walks.value(row, step).to_bits());
            at(step)
        })
    } else {
        by_series(&store, &target, steps as usize, &progress, |row, step| (at(step), walks.value(row, step)))
    };
    progress.finish_and_clear();
    let values = written?;
    let mut case = Case::new(name);
    case.count("values", values);
    let parts = |store: &Store| store.stats().levels.iter().map(|level| level.parts).sum();
    case.count("parts_before_settling", parts(&store));
    store.compact_all().map_err(|error| error.to_string())?;
    let stats = store.stats();
    let bytes: u64 = stats.levels.iter().map(|level| level.bytes).sum();
    case.count("parts", parts(&store))
        .count("files", files(&path))
        .count("folder_bytes", folder_bytes(&path))
        .count("part_bytes", bytes)
        .add("bytes_per_value", bytes as f64 / values as f64)
        .count("part_bytes_written", stats.part_bytes_written)
        .add("write_amplification", stats.part_bytes_written as f64 / bytes as f64)
        .count("flushes", stats.flushes)
        .count("merges", stats.merges)
        .add("cpu_seconds", thread_cpu_seconds() - cpu_before);
    drop(store);
    folder.clear(name);
    Ok(case)
}

/// Every series' whole time before the next series.
fn by_series(
    store: &Store,
    target: &Target,
    steps: usize,
    bar: &ProgressBar,
    sample: impl Fn(usize, usize) -> (i64, f64),
) -> Result<u64, String> {
    let all: Vec<usize> = (0..steps).collect();
    let mut written = 0;
    for row in 0..target.rows() {
        for some in all.chunks(REQUEST_CELLS) {
            let mut appender = store.appender();
            for step in some {
                let (timestamp_ns, value) = sample(row, *step);
                target.add(&mut appender, row, timestamp_ns, &[value.to_bits()])?;
            }
            appender.commit().map_err(|error| error.to_string())?;
            keep_up(store)?;
            written += some.len() as u64;
            bar.inc(some.len() as u64);
        }
    }
    Ok(written)
}
