//! `thalweg bench epochs`: a regular database of millions of series, as ntop's tsdb has them, and other programs beside it.

mod data;
mod peers;
pub(crate) mod similar;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use comfy_table::{Table, presets};
use indicatif::ProgressBar;
use model::TimeRange;
use platform::Platform;
use serde::Serialize;
use store::{EpochBatch, EpochColumn, EpochNames, EpochRows, NamesRead, RegularDefinition, Store, StoreOptions, TopBy};

use crate::measure::process::{folder_bytes, thread_cpu_seconds};
use crate::storage::quantile;
use data::Counters;
use peers::PeerReport;

const DATABASE: &str = "dns";
const NS_PER_S: i64 = 1_000_000_000;
/// 2026-01-01.
const START_NS: i64 = 1_767_225_600 * NS_PER_S;
const RAW_BYTES: f64 = 4.0;
/// Epochs over which the largest series are looked for.
const TOP_EPOCHS: i64 = 30;
const TOP_COUNT: usize = 10;
const REFRESHES: u32 = 7;

const EXAMPLES: &str = "Examples:
  thalweg bench epochs                                 2.2 million series, a year of days and a day of five minutes
  thalweg bench epochs --names 100000 --days 30
  thalweg bench epochs --peers --peer-names 10000      and RRDtool, SQLite, DuckDB and Redis, those that are installed";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EpochFlags {
    /// Series
    #[arg(long, default_value_t = 2_200_000, value_parser = clap::value_parser!(u32).range(1_000..=20_000_000))]
    names: u32,
    /// Daily epochs; 0: none
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    days: u32,
    /// Five-minute epochs; 0: none
    #[arg(long, default_value_t = 288, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    five_minutes: u32,
    /// Series that are read, one after another
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    reads: u32,
    /// Measure other programs, too
    #[arg(long)]
    peers: bool,
    /// Series of the other programs
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    peer_names: u32,
    /// Epochs of the other programs
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    peer_epochs: u32,
    /// A Python with the module duckdb
    #[arg(long, value_name = "PROGRAM")]
    duckdb_python: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

/// The measurements of one database.
#[derive(Debug, Serialize)]
struct DatabaseReport {
    name: &'static str,
    series: u32,
    epochs: u32,
    /// Values that one core appends durably in a second of its time.
    values_per_cpu_s: f64,
    /// Those of a second of the clock.
    values_per_s: f64,
    /// The first epoch, which makes all names.
    first_epoch_s: f64,
    bytes_per_value: f64,
    /// The raw size, 32 bits a value, divided by what the values take.
    raw_ratio: f64,
    names_bytes: u64,
    one_name_ms_median: f64,
    one_name_ms_p95: f64,
    one_epoch_s: f64,
    top_s: f64,
    reopen_s: f64,
    /// An opening for reading only from the beginning, and one after that with one more epoch of a few series.
    read_only_ms: f64,
    refresh_ms_median: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    databases: Vec<DatabaseReport>,
    peers: Vec<PeerReport>,
}

pub(crate) fn run(flags: &EpochFlags) -> Result<ExitCode, String> {
    crate::report(flags.json, |folder| measure(flags, folder), render)
}

fn measure(flags: &EpochFlags, folder: &Path) -> Result<Report, String> {
    let mut databases = Vec::new();
    let kinds = [("daily", flags.days, 86_400, 1.0), ("five minutes", flags.five_minutes, 300, 0.05)];
    for (number, (name, epochs, interval_s, scale)) in kinds.into_iter().enumerate() {
        if epochs > 0 {
            let shape = Shape { name, epochs, interval_ns: interval_s * NS_PER_S, scale };
            databases.push(database(flags, &shape, &folder.join(number.to_string()))?);
        }
    }
    let mut peers = Vec::new();
    if flags.peers {
        let ours = Shape { name: "Thalweg", epochs: flags.peer_epochs, interval_ns: 300 * NS_PER_S, scale: 1.0 };
        peers.push(peers::thalweg(flags.peer_names, &ours, &folder.join("thalweg"))?);
        peers.extend(peers::all(flags, folder));
    }
    Ok(Report { databases, peers })
}

/// A database's epochs.
struct Shape {
    name: &'static str,
    epochs: u32,
    interval_ns: i64,
    /// Of the counters.
    scale: f64,
}

impl Shape {
    fn time_ns(&self, epoch: u32) -> i64 {
        START_NS + i64::from(epoch) * self.interval_ns
    }
}

fn open(folder: &Path) -> Result<Store, String> {
    Store::open(Platform::real(), StoreOptions::new(folder)).map_err(|error| error.to_string())
}

fn database(flags: &EpochFlags, shape: &Shape, folder: &Path) -> Result<DatabaseReport, String> {
    let text = |error: store::StoreError| error.to_string();
    let store = open(folder)?;
    store.define_regular(DATABASE, &RegularDefinition::new(shape.interval_ns)).map_err(text)?;
    let names: EpochNames = data::names(flags.names);
    let mut counters = Counters::new(flags.names, shape.scale);
    let bar = if flags.json { ProgressBar::hidden() } else { ProgressBar::new(u64::from(shape.epochs)) };
    let (mut cpu_s, mut wall_s, mut first_epoch_s) = (0.0, 0.0, 0.0);
    for epoch in 0..shape.epochs {
        let values = EpochColumn::Int(counters.next_epoch());
        let (cpu, wall) = (thread_cpu_seconds(), Instant::now());
        let batch = EpochBatch { time_ns: shape.time_ns(epoch), names: &names, values: &values };
        store.write_epoch(DATABASE, &batch).map_err(text)?;
        if epoch == 0 {
            first_epoch_s = wall.elapsed().as_secs_f64();
        } else {
            cpu_s += thread_cpu_seconds() - cpu;
            wall_s += wall.elapsed().as_secs_f64();
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let values = f64::from(flags.names) * f64::from(shape.epochs.saturating_sub(1).max(1));
    let all_values = f64::from(flags.names) * f64::from(shape.epochs);
    let names_bytes = names_bytes(&folder.join("epochs"));
    let bytes = folder_bytes(&folder.join("epochs")).saturating_sub(names_bytes) as f64;
    drop(store);
    let begun = Instant::now();
    let store = open(folder)?;
    let reopen_s = begun.elapsed().as_secs_f64();
    let reads = Reads { store: &store, flags, shape };
    let mut one_name_ms = reads.one_name()?;
    let (one_epoch_s, top_s) = (reads.one_epoch()?, reads.top()?);
    let (read_only_ms, mut refresh_ms) = reads.refreshes(folder)?;
    Ok(DatabaseReport {
        name: shape.name,
        series: flags.names,
        epochs: shape.epochs,
        values_per_cpu_s: values / cpu_s,
        values_per_s: values / wall_s,
        first_epoch_s,
        bytes_per_value: bytes / all_values,
        raw_ratio: all_values * RAW_BYTES / bytes,
        names_bytes,
        one_name_ms_median: quantile(&mut one_name_ms, 0.5),
        one_name_ms_p95: quantile(&mut one_name_ms, 0.95),
        one_epoch_s,
        top_s,
        reopen_s,
        read_only_ms,
        refresh_ms_median: quantile(&mut refresh_ms, 0.5),
    })
}

/// The bytes of the first file, which is that of the names.
fn names_bytes(folder: &Path) -> u64 {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path()).collect();
    files.sort();
    files.first().and_then(|file| file.metadata().ok()).map_or(0, |file| file.len())
}

/// The reads of a database.
struct Reads<'a> {
    store: &'a Store,
    flags: &'a EpochFlags,
    shape: &'a Shape,
}

impl Reads<'_> {
    /// Milliseconds for each of some series over all epochs.
    fn one_name(&self) -> Result<Vec<f64>, String> {
        let mut all_ms = Vec::new();
        for read in 0..self.flags.reads {
            let name = data::name(data::scattered(read, self.flags.names));
            let begun = Instant::now();
            let number = self.store.name_number(DATABASE, &name).map_err(|error| error.to_string())?;
            let number = number.ok_or_else(|| format!("there is no series {name}"))?;
            let request = NamesRead { names: &[number], range: TimeRange::ALL, rows: EpochRows::All };
            let rows = self.store.read_names(DATABASE, &request).map_err(|error| error.to_string())?;
            all_ms.push(begun.elapsed().as_secs_f64() * 1e3);
            let found = rows.first().map_or(0, |rows| rows.cells.len());
            if found != self.shape.epochs as usize {
                return Err(format!("{name} has {found} epochs, not {}", self.shape.epochs));
            }
        }
        Ok(all_ms)
    }

    /// Seconds for all series of one epoch; the median of a few.
    fn one_epoch(&self) -> Result<f64, String> {
        let mut seconds = Vec::new();
        for read in 0..5 {
            let begun = Instant::now();
            let epoch = data::scattered(read, self.shape.epochs);
            let row = self.store.read_epoch(DATABASE, self.shape.time_ns(epoch)).map_err(|error| error.to_string())?;
            seconds.push(begun.elapsed().as_secs_f64());
            if row.names.len() != self.flags.names as usize {
                return Err(format!("an epoch has {} values", row.names.len()));
            }
        }
        Ok(quantile(&mut seconds, 0.5))
    }

    /// Milliseconds for an opening for reading only, and for each of some refreshes after that, before which an epoch of a few series is written.
    fn refreshes(&self, folder: &Path) -> Result<(f64, Vec<f64>), String> {
        let text = |error: store::StoreError| error.to_string();
        let open = |previous: Option<&Store>| {
            let begun = Instant::now();
            let opened = Store::open_read_only_after(&Platform::real(), &StoreOptions::new(folder), previous);
            Ok::<_, String>((opened.map_err(text)?, begun.elapsed().as_secs_f64() * 1e3))
        };
        let (mut reader, read_only_ms) = open(None)?;
        let mut all_ms = Vec::new();
        for refresh in 0..REFRESHES {
            let some: Vec<String> = (0..10).map(|place| data::name(data::scattered(place, self.flags.names))).collect();
            let names: EpochNames = some.iter().map(String::as_str).collect();
            let values = EpochColumn::Int(vec![1; names.iter().count()]);
            let batch =
                EpochBatch { time_ns: self.shape.time_ns(self.shape.epochs + refresh), names: &names, values: &values };
            self.store.write_epoch(DATABASE, &batch).map_err(text)?;
            let (refreshed, refresh_ms) = open(Some(&reader))?;
            all_ms.push(refresh_ms);
            reader = refreshed;
        }
        Ok((read_only_ms, all_ms))
    }

    /// Seconds for the largest series over some epochs; the median of a few.
    fn top(&self) -> Result<f64, String> {
        let mut seconds = Vec::new();
        let end_ns = self.shape.time_ns(self.shape.epochs.saturating_sub(1));
        let range = TimeRange::new(end_ns - (TOP_EPOCHS - 1) * self.shape.interval_ns, end_ns);
        for _ in 0..3 {
            let begun = Instant::now();
            let top = self.store.top_names(DATABASE, &range, TopBy::Sum, TOP_COUNT);
            let top = top.map_err(|error| error.to_string())?;
            seconds.push(begun.elapsed().as_secs_f64());
            if top.len() != TOP_COUNT {
                return Err(format!("{} series are the largest", top.len()));
            }
        }
        Ok(quantile(&mut seconds, 0.5))
    }
}

fn render(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "",
        "epochs",
        "M values/CPU s",
        "M values/s",
        "B/value",
        "raw:1",
        "names MB",
        "one name ms",
        "p95",
        "one epoch s",
        "top 10 s",
        "open s",
        "to read ms",
        "refresh ms",
    ]);
    for found in &report.databases {
        table.add_row([
            format!("{} × {}", found.series, found.name),
            found.epochs.to_string(),
            format!("{:.1}", found.values_per_cpu_s / 1e6),
            format!("{:.1}", found.values_per_s / 1e6),
            format!("{:.3}", found.bytes_per_value),
            format!("{:.1}", found.raw_ratio),
            format!("{:.1}", found.names_bytes as f64 / 1e6),
            format!("{:.2}", found.one_name_ms_median),
            format!("{:.2}", found.one_name_ms_p95),
            format!("{:.3}", found.one_epoch_s),
            format!("{:.3}", found.top_s),
            format!("{:.2}", found.reopen_s),
            format!("{:.0}", found.read_only_ms),
            format!("{:.1}", found.refresh_ms_median),
        ]);
    }
    if report.peers.is_empty() {
        return table.to_string();
    }
    let mut peers = Table::new();
    peers.load_style(presets::UTF8_HORIZONTAL_ONLY);
    peers.set_header(["", "series", "epochs", "write µs/value", "read one series ms", "B/value", ""]);
    for peer in &report.peers {
        peers.add_row(peer.row());
    }
    format!("{table}\n{peers}")
}
