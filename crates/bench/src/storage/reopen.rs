//! `thalweg bench storage reopen`: a process is killed with a full log; how long until its data can be asked for.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use clap::Args;
use model::TimeRange;
use store::StoreOptions;

use super::data::{self, SECOND_NS, START_NS, Walks};
use super::fill::{Target, fill};
use super::late::select;
use super::location::{DataLocation, Folder, bar, open};
use super::report::{Case, Report};
use crate::measure::process::{folder_bytes, resident, usage};

const EXAMPLES: &str = "Examples:
  thalweg bench storage reopen                          1 M series
  thalweg bench storage reopen --series 5000000

A process of its own registers the series and writes samples of all until the log or the heads are as full as they may be; it is killed (SIGKILL).
Then the folder is opened here, and one series is asked for.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReopenFlags {
    /// Lone series
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    series: u32,
    /// Labels of a series, its name included
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(2..=10))]
    labels: u8,
    /// How full the log is made, in MiB
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    log_mib: u32,
    /// Be the process that is killed
    #[arg(long, hide = true, value_name = "FOLDER")]
    victim: Option<PathBuf>,
    #[command(flatten)]
    location: DataLocation,
}

pub(super) fn run(flags: &ReopenFlags) -> Result<ExitCode, String> {
    if let Some(path) = &flags.victim {
        return write_and_wait(flags, path);
    }
    let folder = Folder::new(&flags.location)?;
    let path = folder.case("reopen");
    let mut case = Case::new(format!("{} series", flags.series));
    let begun = Instant::now();
    kill_a_writer(flags, &path)?;
    case.add("writing_seconds", begun.elapsed().as_secs_f64())
        .count("log_bytes", folder_bytes(&path.join("log")))
        .count("index_files_bytes", folder_bytes(&path.join("index")));
    let cpu_before = usage(std::process::id()).cpu_seconds;
    let begun = Instant::now();
    let store = open(options(flags, &path))?;
    let opened = begun.elapsed().as_secs_f64();
    let found = select(&store, "instance", model::MatchOp::Equal, "10.0.0.0:9100")?;
    let first = data::metric(0);
    let group = found.iter().find(|group| group.columns.iter().any(|column| column.metric == first));
    let group = group.ok_or("the first series is gone")?;
    let columns = store.read(group, &TimeRange::ALL).map_err(|error| error.to_string())?;
    let answered = begun.elapsed().as_secs_f64();
    let samples = columns.iter().map(|column| column.timestamps_ns().len() as u64).sum();
    if samples == 0 {
        return Err("acknowledged samples are gone".to_owned());
    }
    let stats = store.stats();
    case.add("open_seconds", opened)
        .add("first_answer_seconds", answered)
        .add("cpu_seconds", usage(std::process::id()).cpu_seconds - cpu_before)
        .count("samples_of_the_asked_series", samples)
        .count("series", stats.groups)
        .count("head_rows", stats.head_rows)
        .count("resident_bytes", resident().resident_bytes);
    let mut report = Report::new("reopen");
    report.cases.push(case);
    report.print(flags.location.json)
}

fn options(flags: &ReopenFlags, path: &Path) -> StoreOptions {
    StoreOptions { log_bytes_max: u64::from(flags.log_mib) << 20, ..StoreOptions::new(path) }
}

/// Starts a writer, waits until its log is full, and kills it.
fn kill_a_writer(flags: &ReopenFlags, path: &Path) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let mut child = Command::new(program)
        .args(["bench", "storage", "reopen", "--series", &flags.series.to_string()])
        .args(["--labels", &flags.labels.to_string(), "--log-mib", &flags.log_mib.to_string(), "--victim"])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start the writer: {error}"))?;
    let mut line = String::new();
    let said = child.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
    child.kill().and_then(|()| child.wait()).map_err(|error| format!("cannot kill the writer: {error}"))?;
    match said {
        Some(Ok(_)) if line.trim() == "full" => Ok(()),
        _ => Err("the writer ended early".to_owned()),
    }
}

/// Registers and writes until the log is full, says so, and waits for its end.
fn write_and_wait(flags: &ReopenFlags, path: &Path) -> Result<ExitCode, String> {
    let store = open(options(flags, path))?;
    let target = Target::series(&store, flags.series as usize, 1, usize::from(flags.labels) - 1)?;
    let walks = Walks::doubles(1);
    let progress = bar(u64::from(flags.log_mib), "MiB of log");
    let full = |bytes: u64| bytes + bytes / 16 >= u64::from(flags.log_mib) << 20;
    let mut step = 0;
    // As much as can wait for the next opening: until the log is full, or the next samples could make the heads flush.
    let heads_full =
        |before: u64, now: u64| now + now.saturating_sub(before) > options(flags, path).head_bytes_max as u64;
    let mut before = store.stats();
    loop {
        let stats = store.stats();
        if step > 0 && (full(stats.log.bytes) || heads_full(before.head_bytes, stats.head_bytes)) {
            break;
        }
        before = stats;
        fill(&store, &target, step..step + 1, &bar(0, ""), |step, row, cells| {
            cells.iter_mut().for_each(|cell| *cell = walks.value(row, step).to_bits());
            START_NS + step as i64 * 15 * SECOND_NS
        })?;
        step += 1;
        progress.set_position(store.stats().log.bytes >> 20);
    }
    progress.finish_and_clear();
    println!("full");
    // Ends when it is killed, or with the process that started it.
    let _ = std::io::stdin().lines().next();
    Ok(ExitCode::SUCCESS)
}
