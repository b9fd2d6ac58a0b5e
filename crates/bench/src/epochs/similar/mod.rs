//! `thalweg bench similar`: the days most like one day among those of very many series, and matrix profiles beside stumpy's.

mod data;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Instant;

use clap::Args;
use comfy_table::{Table, presets};
use db::{Db, DbOptions, EpochBatch, EpochColumn, EpochNames, RegularDefinition};
use indicatif::ProgressBar;
use platform::Platform;
use query::Frame;
use serde::Serialize;

use crate::measure::process::folder_bytes;
use crate::storage::quantile;
use data::{DAY, Traffic};

const DATABASE: &str = "links";
const LONG_DATABASE: &str = "long";
const NS_PER_S: i64 = 1_000_000_000;
const STEP_NS: i64 = 300 * NS_PER_S;
/// 2026-01-01.
const START_NS: i64 = 1_767_225_600 * NS_PER_S;
/// Lines that are written at once.
const BATCH_LINES: usize = 10_000;
const SAMPLES_MAX: u64 = 200_000_000;

const EXAMPLES: &str = "Examples:
  thalweg bench similar                                100,000 series, 30 days of five minutes: some minutes to write them
  thalweg bench similar --series 10000 --no-every
  thalweg bench similar --python /opt/stumpy/bin/python3      and stumpy's matrix profiles in turn with ours";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SimilarFlags {
    /// Series; 0: only matrix profiles
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(0..=5_000_000))]
    series: u32,
    /// Days of five-minute values
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(2..=3650))]
    days: u32,
    /// Places that are looked for
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,
    /// Searches of each kind; of every offset it is one
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    queries: u32,
    /// Leave out the search at every offset
    #[arg(long)]
    no_every: bool,
    /// Values of the series whose matrix profile is computed; 0: none
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    points: u32,
    /// Values of its windows
    #[arg(long, default_value_t = 288, value_parser = clap::value_parser!(u32).range(3..=10_000))]
    window: u32,
    /// A Python with the module stumpy
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// Of the data
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Keep the database here, and use one that is there
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// The times of one kind of search.
#[derive(Debug, Serialize)]
struct SearchReport {
    name: String,
    values: u64,
    first_ms: f64,
    median_ms: Option<f64>,
    nearest: f64,
}

/// Matrix profiles, in turn with those of stumpy.
#[derive(Debug, Serialize)]
struct ProfileReport {
    points: u32,
    window: u32,
    ours_s: f64,
    theirs_s: Option<f64>,
    /// Why there are no times of stumpy, or its version.
    stumpy: String,
}

#[derive(Debug, Serialize)]
struct Report {
    write_s: Option<f64>,
    bytes: u64,
    searches: Vec<SearchReport>,
    profile: Option<ProfileReport>,
}

pub(crate) fn run(flags: &SimilarFlags) -> Result<ExitCode, String> {
    crate::report(flags.json, |folder| measure(flags, flags.data.as_deref().unwrap_or(folder)), render)
}

fn measure(flags: &SimilarFlags, folder: &Path) -> Result<Report, String> {
    let is_new = !folder.exists();
    let db = Db::open(Platform::real(), DbOptions::new(folder)).map_err(|error| error.to_string())?;
    let mut write_s = None;
    if is_new && flags.series > 0 {
        let begun = Instant::now();
        write(flags, &db)?;
        write_s = Some(begun.elapsed().as_secs_f64());
    }
    let mut searches = Vec::new();
    if flags.series > 0 {
        let mut kinds = vec![
            ("aligned days, euclidean", flags.queries, ""),
            ("aligned days, raw", flags.queries, "(raw)"),
            ("aligned days, one of each series", flags.queries, "(per-series 1)"),
        ];
        if !flags.no_every {
            kinds.push(("every offset, euclidean", 1, "(offsets every)"));
        }
        for (name, queries, options) in kinds {
            searches.push(search(flags, &db, (name, queries, options))?);
        }
    }
    let profile = if flags.points > 0 { Some(profile(flags, &db, folder)?) } else { None };
    Ok(Report { write_s, bytes: folder_bytes(&folder.join("epochs")), searches, profile })
}

fn write(flags: &SimilarFlags, db: &Db) -> Result<(), String> {
    db.define_regular(DATABASE, &RegularDefinition::new(STEP_NS)).map_err(|error| error.to_string())?;
    let names: EpochNames = data::names(flags.series);
    let mut traffic = Traffic::new(flags.series, flags.seed);
    let epochs = u64::from(flags.days) * DAY as u64;
    let bar = if flags.json { ProgressBar::hidden() } else { ProgressBar::new(epochs) };
    for epoch in 0..epochs {
        let values = EpochColumn::Int(traffic.next_epoch());
        let batch = EpochBatch { time_ns: START_NS + epoch as i64 * STEP_NS, names: &names, values: &values };
        db.write_epoch(DATABASE, &batch).map_err(|error| error.to_string())?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Searches days that are like one in the middle of the range, of a series in the middle of all.
fn search(flags: &SimilarFlags, db: &Db, (name, queries, options): (&str, u32, &str)) -> Result<SearchReport, String> {
    let day_ns = DAY as i64 * STEP_NS;
    let end_ns = START_NS + i64::from(flags.days) * day_ns;
    let mut times_ms = Vec::new();
    let mut nearest = f64::NAN;
    for query in 0..queries {
        let series = data::name((flags.series / 2 + query * 7919) % flags.series);
        let first_ns = START_NS + i64::from(flags.days / 2) * day_ns;
        let text = format!(
            "(similar {} (->> (metric \"{DATABASE}\") (range {START_NS} {end_ns})) (->> (metric \"{DATABASE}\") (tag \"name\" \"{series}\") (range {first_ns} {})) (step 5m) {options})",
            flags.count,
            first_ns + day_ns
        );
        let plan = db.parse_plan(&text).map_err(|error| error.to_string())?;
        let budget = db.budget(SAMPLES_MAX);
        let begun = Instant::now();
        let outcome = db.run_plan(DATABASE, &plan, &budget).map_err(|error| error.to_string())?;
        times_ms.push(begun.elapsed().as_secs_f64() * 1e3);
        let rows: usize = outcome.frames.iter().map(Frame::rows).sum();
        if rows != flags.count as usize {
            return Err(format!("{name}: {rows} places were found, not {}", flags.count));
        }
        let distances = outcome.frames.iter().filter_map(|frame| frame.column("distance")?.cell(0).number());
        nearest = distances.fold(f64::INFINITY, f64::min);
    }
    let values = u64::from(flags.series) * u64::from(flags.days) * DAY as u64;
    let first_ms = times_ms.first().copied().unwrap_or(f64::NAN);
    let mut rest = times_ms.split_off(times_ms.len().min(1));
    let median_ms = if rest.is_empty() { None } else { Some(quantile(&mut rest, 0.5)) };
    Ok(SearchReport { name: name.to_owned(), values, first_ms, median_ms, nearest })
}

fn profile(flags: &SimilarFlags, db: &Db, folder: &Path) -> Result<ProfileReport, String> {
    const ROUNDS: usize = 3;
    let walk = data::walk(flags.points as usize, flags.seed);
    let lines: Vec<(i64, &f64)> = (0..).map(|place| START_NS + place * STEP_NS).zip(&walk).collect();
    for lines in lines.chunks(BATCH_LINES) {
        let mut text = String::new();
        for (time_ns, value) in lines {
            let _ = writeln!(text, "walk value={value} {time_ns}");
        }
        db.write_lines(LONG_DATABASE, text.as_bytes()).map_err(|error| error.to_string())?;
    }
    let (end_ns, window_ns) = (START_NS + i64::from(flags.points) * STEP_NS, i64::from(flags.window) * STEP_NS);
    let text =
        format!("(discords 1 {}s (->> (metric \"walk\") (range {START_NS} {end_ns})) (step 5m))", window_ns / NS_PER_S);
    let plan = db.parse_plan(&text).map_err(|error| error.to_string())?;
    let mut peer = flags.python.as_deref().map(|python| Stumpy::start(python, &walk, flags, folder)).transpose()?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        let outcome = db.run_plan(LONG_DATABASE, &plan, &db.budget(SAMPLES_MAX)).map_err(|error| error.to_string())?;
        ours.push(begun.elapsed().as_secs_f64());
        let largest = outcome.frames.first().and_then(|frame| frame.column("distance")?.cell(0).number());
        if let Some(peer) = &mut peer {
            let (seconds, of_peer) = peer.round()?;
            theirs.push(seconds);
            if largest.is_none_or(|largest| (largest - of_peer).abs() > 1e-6) {
                return Err(format!("the largest distance of the profile is {largest:?}, and stumpy's {of_peer}"));
            }
        }
    }
    Ok(ProfileReport {
        points: flags.points,
        window: flags.window,
        ours_s: quantile(&mut ours, 0.5),
        theirs_s: if theirs.is_empty() { None } else { Some(quantile(&mut theirs, 0.5)) },
        stumpy: peer
            .map_or_else(|| "no Python with stumpy: --python names one".to_owned(), |peer| peer.version.clone()),
    })
}

/// A Python that computes matrix profiles.
struct Stumpy {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    version: String,
}

impl Stumpy {
    fn start(python: &Path, walk: &[f64], flags: &SimilarFlags, folder: &Path) -> Result<Self, String> {
        let text = |error: std::io::Error| format!("{}: {error}", python.display());
        let [script, values] = ["stumpy.py", "walk.txt"].map(|name| folder.with_extension(name));
        std::fs::write(&script, include_str!("stumpy.py")).map_err(text)?;
        let lines: Vec<String> = walk.iter().map(|value| format!("{value:?}\n")).collect();
        std::fs::write(&values, lines.concat()).map_err(text)?;
        let mut command = Command::new(python);
        command.arg(&script).arg(&values).arg(flags.window.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(text)?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("Python has no pipes".to_owned());
        };
        let mut peer = Self { child, requests, answers: BufReader::new(answers), version: String::new() };
        let ready = peer.line()?;
        for file in [script, values] {
            // It was read; what is left does no harm.
            let _ = std::fs::remove_file(file);
        }
        match ready.strip_prefix("ready ") {
            Some(version) => peer.version = format!("stumpy {version}"),
            None => return Err(format!("{} has no stumpy", python.display())),
        }
        Ok(peer)
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|error| error.to_string())?;
        Ok(line.trim_end().to_owned())
    }

    /// Seconds, and the largest distance.
    fn round(&mut self) -> Result<(f64, f64), String> {
        self.requests.write_all(b"again\n").map_err(|error| error.to_string())?;
        let line = self.line()?;
        let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        match numbers.as_slice() {
            [seconds, largest] => Ok((*seconds, *largest)),
            _ => Err(format!("stumpy said {line:?}")),
        }
    }
}

impl Drop for Stumpy {
    fn drop(&mut self) {
        // It ends by itself at the end of what it reads; this does not wait for that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn render(report: &Report) -> String {
    let mut text = String::new();
    if !report.searches.is_empty() {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header(["search", "M values", "first ms", "median ms", "nearest"]);
        for found in &report.searches {
            table.add_row([
                found.name.clone(),
                format!("{:.1}", found.values as f64 / 1e6),
                format!("{:.0}", found.first_ms),
                found.median_ms.map_or_else(String::new, |median| format!("{median:.0}")),
                format!("{:.3}", found.nearest),
            ]);
        }
        let _ = writeln!(text, "{table}");
        let written = report.write_s.map_or_else(String::new, |seconds| format!(", written in {seconds:.0} s"));
        let _ = writeln!(text, "{:.0} MB{written}", report.bytes as f64 / 1e6);
    }
    if let Some(profile) = &report.profile {
        let mut table = Table::new();
        table.load_style(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header(["matrix profile", "window", "Thalweg s", "stumpy s", ""]);
        table.add_row([
            format!("{} values", profile.points),
            profile.window.to_string(),
            format!("{:.2}", profile.ours_s),
            profile.theirs_s.map_or_else(String::new, |seconds| format!("{seconds:.2}")),
            profile.stumpy.clone(),
        ]);
        let _ = write!(text, "{table}");
    }
    text
}
