//! `thalweg bench storage size`: bytes per value once data has settled.

use std::process::ExitCode;

use clap::Args;
use model::ValueType;
use store::{Store, StoreOptions};

use super::data::{DAY_S, Exported, SECOND_NS, START_NS, mix};
use super::fill::{Target, fill};
use super::location::{DataLocation, Folder, bar, open};
use super::report::{Case, Report};
use crate::measure::process::{folder_bytes, thread_cpu_seconds};
use crate::workload::walk::{Chance, Shape, Walk};

const EXAMPLES: &str = "Examples:
  thalweg bench storage size                       100 hosts, 3 days
  thalweg bench storage size --hosts 400 --days 1
  thalweg bench storage size --jitter-ms 50        timestamps that stray further

Cases: cpu-only (ten whole-number walks per host at 10 s, as the Time Series Benchmark Suite has them, in groups); mixed (twenty
lone series per host at 15 s, the kinds that a machine's exporter has: 5 constants, 3 mostly zero, 3 counters of events, 3 of
seconds, 1 of bytes, 2 gauges of bytes in pages, 2 gauges with two decimals, 1 percentage with all its digits; counters start again at
0 about once in 10,000 samples); groups of ten whose timestamps jitter, against the same rows as lone series, in milliseconds and in
nanoseconds. Bytes are those of level 2's part files, timestamps, summaries and indexes included, over the values in them.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SizeFlags {
    /// Hosts
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    hosts: u32,
    /// Days of data
    #[arg(long, default_value_t = 3.0)]
    days: f64,
    /// Milliseconds by which jittered timestamps stray at most, to either side
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=4000))]
    jitter_ms: u32,
    #[command(flatten)]
    location: DataLocation,
}

pub(super) fn run(flags: &SizeFlags) -> Result<ExitCode, String> {
    let folder = Folder::new(&flags.location)?;
    let mut report = Report::new("size");
    report.cases.push(cpu_only(flags, &folder)?);
    report.cases.push(mixed(flags, &folder)?);
    for (unit, unit_ns) in [("ms", 1_000_000), ("ns", 1)] {
        let grouped = jittered(flags, &folder, &format!("groups {unit}"), unit_ns, true)?;
        let mut lone = jittered(flags, &folder, &format!("lone {unit}"), unit_ns, false)?;
        let share = grouped.get("bytes_per_value") / lone.get("bytes_per_value");
        lone.add("groups_share_of_lone", share);
        report.cases.extend([grouped, lone]);
    }
    report.print(flags.location.json)
}

fn steps(flags: &SizeFlags, interval_s: u64) -> usize {
    (flags.days * DAY_S as f64 / interval_s as f64).ceil() as usize
}

fn cpu_only(flags: &SizeFlags, folder: &Folder) -> Result<Case, String> {
    let hosts = flags.hosts as usize;
    let mut chance = Chance::new(123);
    let gauge = Shape::Gauge { low: 0.0, high: 100.0, step: 1.0 };
    let mut walks: Vec<Walk> = (0..hosts * 10).map(|_| Walk::new(gauge, &mut chance)).collect();
    measure(folder, "cpu-only", |store| {
        let target = Target::groups(store, hosts, 10, ValueType::I64)?;
        let steps = steps(flags, 10);
        let progress = bar((steps * hosts * 10) as u64, "cpu-only");
        let values = fill(store, &target, 0..steps, &progress, |step, row, cells| {
            for (cell, walk) in cells.iter_mut().zip(walks.iter_mut().skip(row * 10)) {
                *cell = (walk.number() as i64).cast_unsigned();
                walk.step(&mut chance);
            }
            START_NS + step as i64 * 10 * SECOND_NS
        });
        progress.finish_and_clear();
        Ok((target, values?))
    })
}

fn mixed(flags: &SizeFlags, folder: &Folder) -> Result<Case, String> {
    let hosts = flags.hosts as usize;
    let mut exported: Vec<Exported> = (0..hosts * 20).map(Exported::new).collect();
    measure(folder, "mixed", |store| {
        let target = Target::series(store, hosts * 20, 20, 9)?;
        let steps = steps(flags, 15);
        let progress = bar((steps * hosts * 20) as u64, "mixed");
        let values = fill(store, &target, 0..steps, &progress, |step, row, cells| {
            for (cell, one) in cells.iter_mut().zip(exported.iter_mut().skip(row * 20)) {
                *cell = one.next().to_bits();
            }
            START_NS + step as i64 * 15 * SECOND_NS
        });
        progress.finish_and_clear();
        Ok((target, values?))
    })
}

/// Whole-number walks at 10 s whose timestamps stray evenly to either side, in whole units.
fn jittered(flags: &SizeFlags, folder: &Folder, name: &str, unit_ns: i64, grouped: bool) -> Result<Case, String> {
    let hosts = flags.hosts as usize;
    let mut chance = Chance::new(123);
    let gauge = Shape::Gauge { low: 0.0, high: 100.0, step: 1.0 };
    let mut walks: Vec<Walk> = (0..hosts * 10).map(|_| Walk::new(gauge, &mut chance)).collect();
    let jitter_units = i64::from(flags.jitter_ms) * 1_000_000 / unit_ns;
    measure(folder, name, |store| {
        let target = if grouped {
            Target::groups(store, hosts, 10, ValueType::F64)?
        } else {
            Target::series(store, hosts * 10, 10, 9)?
        };
        let steps = steps(flags, 10);
        let progress = bar((steps * hosts * 10) as u64, name);
        let values = fill(store, &target, 0..steps, &progress, |step, row, cells| {
            for (cell, walk) in cells.iter_mut().zip(walks.iter_mut().skip(row * 10)) {
                *cell = walk.number().trunc().to_bits();
                walk.step(&mut chance);
            }
            let bits = mix((step as u64) << 32 | row as u64);
            let stray = (bits % (2 * jitter_units + 1).unsigned_abs()) as i64 - jitter_units;
            START_NS + step as i64 * 10 * SECOND_NS + SECOND_NS + stray * unit_ns
        });
        progress.finish_and_clear();
        Ok((target, values?))
    })
}

fn measure(
    folder: &Folder,
    name: &str,
    write: impl FnOnce(&Store) -> Result<(Target, u64), String>,
) -> Result<Case, String> {
    let path = folder.case(name);
    let store = open(StoreOptions::new(&path))?;
    let cpu_before = thread_cpu_seconds();
    let (target, values) = write(&store)?;
    store.compact_all().map_err(|error| error.to_string())?;
    let cpu_seconds = thread_cpu_seconds() - cpu_before;
    let stats = store.stats();
    let settled = stats.levels[2];
    let width = if matches!(target, Target::Groups(..)) { target.width() as u64 } else { 1 };
    let settled_values = settled.rows * width;
    let mut case = Case::new(name);
    case.count("values", values)
        .add("bytes_per_value", settled.bytes as f64 / settled_values as f64)
        .count("level2_values", settled_values)
        .count("level2_bytes", settled.bytes)
        .count("level2_parts", settled.parts)
        .count("level2_chunks", settled.chunks)
        .add("rows_per_chunk", settled.rows as f64 / settled.chunks as f64)
        .count("folder_bytes", folder_bytes(&path))
        .add("part_bytes_written_per_value", stats.part_bytes_written as f64 / values as f64)
        .add("cpu_seconds", cpu_seconds);
    drop(store);
    folder.clear(name);
    Ok(case)
}
