//! `thalweg bench storage insert`: lone series against groups, into a durable log, with merges beside it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;
use model::{TimeRange, ValueType};
use store::{Store, StoreOptions};

use super::data::{SECOND_NS, START_NS, Walks};
use super::fill::{DATABASE, REQUEST_CELLS, Target};
use super::location::{DataLocation, Folder, Upkeep, bar, open, with_upkeep};
use super::report::{Case, Course, Report, quantile};
use crate::measure::process::{resident, thread_cpu_seconds, usage};

const EXAMPLES: &str = "Examples:
  thalweg bench storage insert                           lone series, groups of 10, groups of 101: a minute each
  thalweg bench storage insert --seconds 600             is the debt of merges flat over ten minutes?
  thalweg bench storage insert --members 1               lone series alone
  thalweg bench storage insert --full-precision          doubles with all their digits instead of whole numbers
  thalweg bench storage insert --one-file 3 --seconds 20 a folder against one file

One thread writes; flushes and merges have threads of their own. The writer's rate is that of one core only if another is free for
them: values per CPU second count both, values per writer's CPU second the writer alone. Making the values is not counted.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct InsertFlags {
    /// Series, lone or members of groups
    #[arg(long, default_value_t = 101_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    series: u32,
    /// Members of a group, a case for each; 1 for lone series
    #[arg(long, value_delimiter = ',', default_value = "1,10,101", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    members: Vec<u32>,
    /// Seconds that each case runs
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Cells of a request
    #[arg(long, default_value_t = REQUEST_CELLS)]
    request_cells: usize,
    /// Doubles with all their digits
    #[arg(long)]
    full_precision: bool,
    /// Each case so often in a folder and in one file, in turns, with what reading it back takes
    #[arg(long, value_name = "TURNS", value_parser = clap::value_parser!(u32).range(1..=100))]
    one_file: Option<u32>,
    /// Seconds between two samples of a series, in the data's time
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    interval_s: u32,
    #[command(flatten)]
    location: DataLocation,
}

/// Figures of a case's writer.
#[derive(Default)]
struct WriterFigures {
    values: u64,
    making_cpu_seconds: f64,
    writer_cpu_seconds: f64,
    log_bytes: u64,
    merging_us: Vec<f64>,
    quiet_us: Vec<f64>,
    course: Course,
}

pub(super) fn run(flags: &InsertFlags) -> Result<ExitCode, String> {
    let folder = Folder::new(&flags.location)?;
    let walks = if flags.full_precision { Walks::doubles(1) } else { Walks::integers(1) };
    let mut report = Report::new("insert");
    for members in &flags.members {
        let name = if *members == 1 { "lone".to_owned() } else { format!("groups of {members}") };
        for name in turns(&name, flags.one_file) {
            let (case, course) = measure(flags, &folder, &walks, *members, &name)?;
            report.cases.push(case);
            report.courses.push((name.clone(), course, Some(2)));
            folder.clear(&name);
        }
    }
    report.print(flags.location.json)
}

/// The names of a case's runs. Each is that of its data, which is one file if it ends so.
fn turns(name: &str, one_file: Option<u32>) -> Vec<String> {
    let Some(turns) = one_file else { return vec![name.to_owned()] };
    let of_turn = |turn: u32| [format!("{name}, folder {turn}"), format!("{name}, file {turn}.tsdb")];
    (1..=turns).flat_map(of_turn).collect()
}

/// Reads all series back, in the order in which they lie: seconds, and CPU seconds of the process.
fn read_back(store: &Store) -> Result<(u64, f64, f64), String> {
    store.compact_all().map_err(|error| error.to_string())?;
    let (before, start) = (usage(std::process::id()).cpu_seconds, Instant::now());
    let reader = store.reader();
    let mut samples = 0;
    for group in store.select(DATABASE, &[]).map_err(|error| error.to_string())? {
        for column in reader.read(&group, &TimeRange::ALL).map_err(|error| error.to_string())? {
            samples += column.timestamps_ns().len() as u64;
        }
    }
    Ok((samples, start.elapsed().as_secs_f64(), usage(std::process::id()).cpu_seconds - before))
}

fn measure(
    flags: &InsertFlags,
    folder: &Folder,
    walks: &Walks,
    members: u32,
    name: &str,
) -> Result<(Case, Course), String> {
    let store = open(StoreOptions::new(folder.case(name)))?;
    let count = (flags.series / members).max(1) as usize;
    let target = match members {
        1 => Target::series(&store, count, 1, 9)?,
        _ => Target::groups(&store, count, members as usize, ValueType::F64)?,
    };
    let before = usage(std::process::id());
    let start = Instant::now();
    let mut figures = with_upkeep(&store, |upkeep| write(flags, &store, &target, walks, upkeep))?;
    let seconds = start.elapsed().as_secs_f64();
    let cpu_seconds = usage(std::process::id()).cpu_seconds - before.cpu_seconds - figures.making_cpu_seconds;
    let stats = store.stats();
    let values = figures.values as f64;
    let mut case = Case::new(name);
    case.count("values", figures.values)
        .add("seconds", seconds)
        .add("values_per_second", values / seconds)
        .add("values_per_cpu_second", values / cpu_seconds)
        .add("values_per_writer_cpu_second", values / figures.writer_cpu_seconds)
        .add("cpu_seconds", cpu_seconds)
        .add("making_cpu_seconds", figures.making_cpu_seconds)
        .add("log_bytes_per_value", figures.log_bytes as f64 / values)
        .add("part_bytes_written_per_value", stats.part_bytes_written as f64 / values)
        .count("flushes", stats.flushes)
        .count("merges", stats.merges)
        .count("resident_peak_bytes", resident().peak_bytes);
    for (level, parts) in stats.levels.iter().enumerate() {
        case.count(format!("level{level}_parts"), parts.parts).count(format!("level{level}_bytes"), parts.bytes);
    }
    for (state, latencies) in [("merging", &mut figures.merging_us), ("quiet", &mut figures.quiet_us)] {
        case.count(format!("requests_{state}"), latencies.len() as u64);
        for (figure, share) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
            case.add(format!("append_{figure}_{state}_us"), quantile(latencies, share));
        }
    }
    if flags.one_file.is_some() {
        let (samples, seconds, cpu_seconds) = read_back(&store)?;
        case.add("read_samples_per_second", samples as f64 / seconds)
            .add("read_samples_per_cpu_second", samples as f64 / cpu_seconds);
    }
    Ok((case, figures.course))
}

/// Writes steps until the time is over.
fn write(
    flags: &InsertFlags,
    store: &Store,
    target: &Target,
    walks: &Walks,
    upkeep: &Upkeep,
) -> Result<WriterFigures, String> {
    let columns = ["seconds", "values", "level0_bytes", "level0_parts", "level1_parts", "level2_parts", "head_bytes"];
    let mut figures = WriterFigures { course: Course::new(&columns), ..WriterFigures::default() };
    let progress = bar(flags.seconds as u64, "seconds");
    let width = target.width();
    let rows_at_once = (flags.request_cells / width).max(1);
    let mut cells = vec![0; rows_at_once * width];
    let start = Instant::now();
    let (mut step, mut row, mut sampled) = (0, 0, Duration::ZERO);
    while start.elapsed().as_secs_f64() < flags.seconds {
        let rows = rows_at_once.min(target.rows() - row);
        let making = thread_cpu_seconds();
        for (place, cell) in cells.iter_mut().take(rows * width).enumerate() {
            *cell = walks.value(row * width + place, step).to_bits();
        }
        let made = thread_cpu_seconds();
        figures.making_cpu_seconds += made - making;
        let log_before = upkeep.is_merging();
        let begun = Instant::now();
        let timestamp_ns = START_NS + step as i64 * i64::from(flags.interval_s) * SECOND_NS;
        let mut appender = store.appender();
        for (number, cells) in cells.chunks_exact(width).take(rows).enumerate() {
            target.add(&mut appender, row + number, timestamp_ns, cells)?;
        }
        appender.commit().map_err(|error| error.to_string())?;
        let us = begun.elapsed().as_secs_f64() * 1e6;
        let latencies = if log_before || upkeep.is_merging() { &mut figures.merging_us } else { &mut figures.quiet_us };
        latencies.push(us);
        figures.writer_cpu_seconds += thread_cpu_seconds() - made;
        figures.values += (rows * width) as u64;
        row += rows;
        if row >= target.rows() {
            (row, step) = (0, step + 1);
        }
        if start.elapsed() >= sampled {
            sampled += Duration::from_millis(500);
            sample(store, &mut figures, start, &progress);
        }
    }
    sample(store, &mut figures, start, &progress);
    progress.finish_and_clear();
    Ok(figures)
}

fn sample(store: &Store, figures: &mut WriterFigures, start: Instant, progress: &ProgressBar) {
    let stats = store.stats();
    let parts = stats.levels.map(|level| level.parts as f64);
    let bytes = stats.levels.map(|level| level.bytes as f64);
    let seconds = start.elapsed().as_secs_f64();
    figures.log_bytes = stats.log.appended_bytes;
    figures.course.rows.push(vec![
        seconds,
        figures.values as f64,
        bytes[0],
        parts[0],
        parts[1],
        parts[2],
        stats.head_bytes as f64,
    ]);
    progress.set_position(seconds as u64);
}
