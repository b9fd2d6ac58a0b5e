//! `thalweg bench storage elastic`: TimeUnion's figure 19.

use std::process::ExitCode;

use clap::Args;
use indicatif::ProgressBar;
use model::ValueType;
use store::{Store, StoreOptions};

use super::data::{SECOND_NS, START_NS, Walks};
use super::fill::{Target, fill};
use super::location::{DataClock, DataLocation, Folder, bar, open_at};
use super::report::{Case, Course, Report};
use crate::measure::process::thread_cpu_seconds;

const EXAMPLES: &str = "Examples:
  thalweg bench storage elastic                                      100,000 series, 51 MiB
  thalweg bench storage elastic --series 1000000 --budget-mib 512    as in TimeUnion's figure 19
  thalweg bench storage elastic --members 1                          lone series
  thalweg bench storage elastic --phases 10:2,60:8,10:2              sample intervals in seconds : hours of data

The store's clock follows the data. Upkeep is done between requests, so that what is shown does not depend on the machine.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ElasticFlags {
    /// Series
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    series: u32,
    /// Members of a group; 1 for lone series
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    members: u32,
    /// Bytes that levels 0 and 1 may have, in MiB
    #[arg(long, default_value_t = 51, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    budget_mib: u64,
    /// Bytes of all heads together, in MiB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    head_mib: u32,
    /// Seconds between two samples of a series, and for how many hours of data
    #[arg(long, value_delimiter = ',', default_value = "10:4,60:12,10:4", value_parser = phase)]
    phases: Vec<Phase>,
    /// Doubles with all their digits instead of whole numbers
    #[arg(long)]
    full_precision: bool,
    #[command(flatten)]
    location: DataLocation,
}

/// A stretch of time with samples at one interval.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Phase {
    interval_s: u32,
    hours: f64,
}

fn phase(text: &str) -> Result<Phase, String> {
    let parts = text.split_once(':').ok_or("seconds:hours are needed, for example 10:4")?;
    let interval_s = parts.0.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
    let hours = parts.1.parse().ok().filter(|hours: &f64| *hours > 0.0 && *hours <= 100_000.0);
    let (Some(interval_s), Some(hours)) = (interval_s, hours) else {
        return Err("seconds:hours are needed, for example 10:4".to_owned());
    };
    Ok(Phase { interval_s, hours })
}

impl Phase {
    fn steps(self) -> usize {
        (self.hours * 3600.0 / f64::from(self.interval_s)).round() as usize
    }
}

pub(super) fn run(flags: &ElasticFlags) -> Result<ExitCode, String> {
    let folder = Folder::new(&flags.location)?;
    let clock = DataClock::new(START_NS);
    let options = StoreOptions {
        fast_bytes_max: flags.budget_mib << 20,
        head_bytes_max: (flags.head_mib as usize) << 20,
        ..StoreOptions::new(folder.case("elastic"))
    };
    let store = open_at(options, &clock)?;
    let rows = (flags.series / flags.members).max(1) as usize;
    let target = match flags.members {
        1 => Target::series(&store, rows, 1, 9)?,
        members => Target::groups(&store, rows, members as usize, ValueType::F64)?,
    };
    let steps: usize = flags.phases.iter().map(|phase| phase.steps()).sum();
    let progress = bar((steps * rows * target.width()) as u64, "elastic");
    let course = follow(flags, &store, &target, &clock, &progress);
    progress.finish_and_clear();
    let mut report = Report::new("elastic");
    let (case, course) = course?;
    report.cases.push(case);
    report.courses.push(("levels 0 and 1".to_owned(), course, Some(2)));
    report.print(flags.location.json)
}

fn follow(
    flags: &ElasticFlags,
    store: &Store,
    target: &Target,
    clock: &DataClock,
    progress: &ProgressBar,
) -> Result<(Case, Course), String> {
    let walks = if flags.full_precision { Walks::doubles(1) } else { Walks::integers(1) };
    let width = target.width();
    let mut course = Course::new(&["hours", "interval_s", "fast_mib", "partition_minutes", "level0_mib", "level2_mib"]);
    let (mut at_ns, mut step, mut values, mut over_seconds, mut most) = (START_NS, 0, 0, 0, 0);
    let cpu_before = thread_cpu_seconds();
    for phase in &flags.phases {
        for _ in 0..phase.steps() {
            clock.advance(at_ns);
            values += fill(store, target, step..step + 1, progress, |step, row, cells| {
                for (place, cell) in cells.iter_mut().enumerate() {
                    *cell = walks.value(row * width + place, step).to_bits();
                }
                at_ns
            })?;
            let stats = store.stats();
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            let fast_bytes = stats.levels[0].bytes + stats.levels[1].bytes;
            most = most.max(fast_bytes);
            if fast_bytes > flags.budget_mib << 20 {
                over_seconds += u64::from(phase.interval_s);
            }
            if (at_ns - START_NS) % (60 * SECOND_NS) == 0 {
                course.rows.push(vec![
                    (at_ns - START_NS) as f64 / (3600.0 * SECOND_NS as f64),
                    f64::from(phase.interval_s),
                    mib(fast_bytes),
                    stats.partition_ns as f64 / (60.0 * SECOND_NS as f64),
                    mib(stats.levels[0].bytes),
                    mib(stats.levels[2].bytes),
                ]);
            }
            at_ns += i64::from(phase.interval_s) * SECOND_NS;
            step += 1;
        }
    }
    let stats = store.stats();
    let minutes = course.rows.iter().filter_map(|row| row.get(3).copied());
    let mut case = Case::new("elastic");
    case.count("values", values)
        .count("budget_bytes", flags.budget_mib << 20)
        .count("fast_peak_bytes", most)
        .count("seconds_over_budget", over_seconds)
        .add("hours", (at_ns - START_NS) as f64 / (3600.0 * SECOND_NS as f64))
        .add("partition_minutes_least", minutes.clone().fold(f64::INFINITY, f64::min))
        .add("partition_minutes_most", minutes.fold(0.0, f64::max))
        .count("level2_bytes", stats.levels[2].bytes)
        .count("level2_parts", stats.levels[2].parts)
        .count("part_bytes_written", stats.part_bytes_written)
        .add("values_per_cpu_second", values as f64 / (thread_cpu_seconds() - cpu_before));
    Ok((case, course))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_are_read_as_they_are_written() {
        assert_eq!(phase("10:4"), Ok(Phase { interval_s: 10, hours: 4.0 }));
        assert_eq!(phase("60:0.5").map(Phase::steps), Ok(30));
        for wrong in ["10", "0:1", "10:-1", "a:b", "10:"] {
            assert!(phase(wrong).is_err(), "{wrong}");
        }
    }
}
