//! `thalweg bench storage late`: samples that come late, after TimeUnion's figure 18b.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use index::CompiledMatcher;
use model::{MatchOp, Matcher, TimeRange, ValueType};
use store::{SelectedGroup, Store, StoreOptions, Windows};

use super::data::{SECOND_NS, START_NS, Walks, mix};
use super::fill::{DATABASE, REQUEST_CELLS, Target};
use super::location::{DataLocation, Folder, bar, files, keep_up, open};
use super::report::{Case, Report, quantile};
use crate::measure::process::{folder_bytes, thread_cpu_seconds};

const EXAMPLES: &str = "Examples:
  thalweg bench storage late                             0, 5, 20 and 50 % of samples up to a day late
  thalweg bench storage late --shares 0,10 --delay-h 1

Every case writes the same samples: late ones arrive up to the delay after their turn, when later ones of their series are there already.
Insertion counts the CPU seconds of writing, flushing and merging, not those of making samples; the writer's part of them stands by
itself, since flushes and merges have threads of their own in a server. Queries (one group's samples of the whole
time; one group's maxima by hour) are asked right after writing, then when all is merged.";

const HOUR_NS: i64 = 3600 * SECOND_NS;

/// Figures that stand beside those of the first case.
const COMPARED: [&str; 6] = [
    "values_per_cpu_second",
    "values_per_writer_cpu_second",
    "read_before_us",
    "read_after_us",
    "windows_before_us",
    "windows_after_us",
];

/// Seconds between two rows of a group.
const INTERVAL_S: i64 = 10;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LateFlags {
    /// Shares of samples that come late, in percent: a case for each
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
    /// Hours that a sample may be late
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    delay_h: u32,
    /// Bytes of all heads together, in MiB: small enough that most rows are in parts
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    head_mib: u32,
    /// Queries of each kind
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    queries: u32,
    #[command(flatten)]
    location: DataLocation,
}

pub(super) fn run(flags: &LateFlags) -> Result<ExitCode, String> {
    let folder = Folder::new(&flags.location)?;
    let mut report = Report::new("late");
    for share in &flags.shares {
        let mut case = measure(flags, &folder, *share)?;
        if let Some(first) = report.cases.first() {
            for figure in COMPARED {
                let ratio = case.get(figure) / first.get(figure);
                case.add(format!("{figure}_ratio"), ratio);
            }
        }
        report.cases.push(case);
    }
    report.print(flags.location.json)
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
    let delay_steps = (i64::from(flags.delay_h) * 3600 / INTERVAL_S) as usize;
    let progress = bar((steps * rows * target.width()) as u64, &name);
    let mut writer = Writer {
        store: &store,
        target: &target,
        walks: Walks::integers(1),
        cpu_seconds: 0.0,
        upkeep_cpu_seconds: 0.0,
        values: 0,
    };
    let mut arrivals = Arrivals::new(share, delay_steps);
    let mut request = Vec::new();
    let request_rows = (REQUEST_CELLS / target.width()).max(1);
    for step in 0..steps {
        arrivals.arrive(step, rows, &mut request);
        while request.len() >= request_rows {
            let later = request.split_off(request_rows);
            writer.write(&std::mem::replace(&mut request, later))?;
            progress.set_position(writer.values);
        }
    }
    request.extend(arrivals.rest());
    request.chunks(request_rows).try_for_each(|some| writer.write(some))?;
    progress.finish_and_clear();
    let (values, all_cpu_seconds) = (writer.values as f64, writer.cpu_seconds + writer.upkeep_cpu_seconds);
    let mut case = Case::new(name.clone());
    case.count("values", writer.values)
        .add("values_per_cpu_second", values / all_cpu_seconds)
        .add("values_per_writer_cpu_second", values / writer.cpu_seconds)
        .add("cpu_seconds", all_cpu_seconds);
    query_groups(flags, &store, "before", &mut case)?;
    count_parts(&store, "before", &mut case);
    let cpu_before = thread_cpu_seconds();
    store.compact_all().map_err(|error| error.to_string())?;
    case.add("settle_cpu_seconds", thread_cpu_seconds() - cpu_before);
    query_groups(flags, &store, "after", &mut case)?;
    count_parts(&store, "after", &mut case);
    case.count("files", files(&path)).count("folder_bytes", folder_bytes(&path));
    drop(store);
    folder.clear(&name);
    Ok(case)
}

/// A sample: whose, and whose turn.
type Turn = (usize, usize);

/// Which samples arrive when.
struct Arrivals {
    share: u32,
    /// Those that will arrive in the next steps, in a ring.
    late: Vec<Vec<Turn>>,
    next_step: usize,
}

impl Arrivals {
    fn new(share: u32, delay_steps: usize) -> Self {
        Self { share, late: vec![Vec::new(); delay_steps.max(1) + 1], next_step: 0 }
    }

    /// Adds the samples that arrive in a step, of so many rows.
    fn arrive(&mut self, step: usize, rows: usize, out: &mut Vec<Turn>) {
        let ring = self.late.len();
        for row in 0..rows {
            let bits = mix((step as u64) << 32 | row as u64);
            if bits % 100 < u64::from(self.share) {
                let delay = 1 + (bits >> 8) as usize % (ring - 1);
                self.late[(step + delay) % ring].push((row, step));
            } else {
                out.push((row, step));
            }
        }
        out.append(&mut self.late[step % ring]);
        self.next_step = step + 1;
    }

    /// The samples that have not arrived yet, in the order in which they would have.
    fn rest(mut self) -> Vec<Turn> {
        let ring = self.late.len();
        (self.next_step..self.next_step + ring).flat_map(|step| std::mem::take(&mut self.late[step % ring])).collect()
    }
}

/// Writes samples, and counts what that costs.
struct Writer<'a> {
    store: &'a Store,
    target: &'a Target,
    walks: Walks,
    cpu_seconds: f64,
    /// Of flushes and merges.
    upkeep_cpu_seconds: f64,
    values: u64,
}

impl Writer<'_> {
    /// Writes samples as one request and does the upkeep that is due then.
    fn write(&mut self, samples: &[Turn]) -> Result<(), String> {
        let width = self.target.width();
        let cell = |(row, step): &Turn, place: usize| self.walks.value(row * width + place, *step).to_bits();
        let cells: Vec<u64> = samples.iter().flat_map(|turn| (0..width).map(move |place| cell(turn, place))).collect();
        let cpu_before = thread_cpu_seconds();
        let mut appender = self.store.appender();
        for ((row, step), cells) in samples.iter().zip(cells.chunks(width)) {
            self.target.add(&mut appender, *row, START_NS + *step as i64 * INTERVAL_S * SECOND_NS, cells)?;
        }
        appender.commit().map_err(|error| error.to_string())?;
        let cpu_between = thread_cpu_seconds();
        keep_up(self.store)?;
        self.cpu_seconds += cpu_between - cpu_before;
        self.upkeep_cpu_seconds += thread_cpu_seconds() - cpu_between;
        self.values += cells.len() as u64;
        Ok(())
    }
}

fn count_parts(store: &Store, when: &str, case: &mut Case) {
    let stats = store.stats();
    case.count(format!("parts_{when}"), stats.levels.iter().map(|level| level.parts).sum())
        .count(format!("part_{when}_bytes"), stats.levels.iter().map(|level| level.bytes).sum())
        .count(format!("part_bytes_written_{when}_bytes"), stats.part_bytes_written);
}

/// Asks single groups for all their samples, and for their maxima by hour.
fn query_groups(flags: &LateFlags, store: &Store, when: &str, case: &mut Case) -> Result<(), String> {
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
