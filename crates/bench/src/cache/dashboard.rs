//! A dashboard that is opened, with other steps, and again, slides forward while rows come in, and is opened after a restart: with and without kept answers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use db::{Db, DbOptions, InstantQuery, RangeQuery};
use serde::Serialize;

use crate::measure::process::process_cpu_seconds;
use crate::storage::quantile;
use crate::workload::walk::Chance;

const PANELS: [&str; 12] = [
    "sum(rate(http_requests_total[5m]))",
    "sum by (region) (rate(http_requests_total[5m]))",
    "max by (region) (rate(http_requests_total[5m]))",
    "topk(5, sum by (instance) (rate(http_requests_total[5m])))",
    "avg(rate(http_requests_total[5m]))",
    "count(rate(http_requests_total[5m]) > 1)",
    "sum by (region) (increase(http_requests_total[1h]))",
    "quantile(0.9, rate(http_requests_total[5m]))",
    "sum(http_requests_total)",
    "count by (region) (http_requests_total)",
    "sum(rate(http_requests_total[1m])) / count(http_requests_total)",
    "sum(rate(http_requests_total{region=\"region-1\"}[5m])) / sum(rate(http_requests_total[5m]))",
];

/// Panels of SQL, over bins of `WIDTH`.
const SQL: [&str; 4] = [
    "SELECT date_bin(INTERVAL 'WIDTH', time) AS t, region, max(value) FROM http_requests_total WHERE RANGE GROUP BY t, region ORDER BY t, region",
    "SELECT date_bin(INTERVAL 'WIDTH', time) AS t, count(value), min(value) FROM http_requests_total WHERE RANGE GROUP BY t ORDER BY t",
    "SELECT date_bin(INTERVAL 'WIDTH', time) AS t, instance, last(value) FROM http_requests_total WHERE RANGE AND region = 'region-1' GROUP BY t, instance ORDER BY t, instance",
    "SELECT date_bin(INTERVAL 'WIDTH', time) AS t, max(value) FROM http_requests_total WHERE RANGE AND instance = 'node-1' GROUP BY t ORDER BY t",
];

/// Panels in InfluxQL.
const INFLUXQL: [&str; 4] = [
    "SELECT max(value) FROM http_requests_total WHERE RANGE GROUP BY time(WIDTH), region",
    "SELECT count(value), min(value) FROM http_requests_total WHERE RANGE GROUP BY time(WIDTH)",
    "SELECT last(value) FROM http_requests_total WHERE RANGE AND region = 'region-1' GROUP BY time(WIDTH), instance",
    "SELECT max(value) FROM http_requests_total WHERE RANGE AND instance = 'node-1' GROUP BY time(WIDTH)",
];

const START_MS: i64 = 1_700_000_040_000;
const STEP_MS: i64 = 15_000;
const SAMPLES_MAX: u64 = 50_000_000;
/// How often the dashboard is asked for with other steps at most.
const GRIDS_MAX: u32 = 5;
/// How often the database is opened again at most.
const RESTARTS_MAX: u32 = 10;

#[derive(Debug, Args)]
pub(crate) struct DashboardFlags {
    /// Series that the panels read
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    series: u32,
    /// Hours that the dashboard shows, a step each 15 seconds
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=45))]
    hours: u32,
    /// What panels are written in: twelve of PromQL, four of SQL or InfluxQL
    #[arg(long, value_enum, default_value = "promql")]
    language: Language,
    /// Seconds of a bin of SQL and InfluxQL
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    bin_s: u32,
    /// Only this panel of the dashboard, counted from 1
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=12))]
    panel: Option<u8>,
    /// How often the dashboard is asked for
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rounds: u32,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// What panels are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Language {
    Promql,
    Sql,
    Influxql,
}

#[derive(Debug, Serialize)]
struct Measured {
    what: &'static str,
    panels: usize,
    median_ms: f64,
    p95_ms: f64,
    cpu_ms_per_panel: f64,
}

/// A database that samples come to.
struct Server {
    db: Db,
    chance: Chance,
    counters: Vec<u64>,
    /// Of the newest samples.
    time_ms: i64,
}

/// The panels that are asked for.
fn chosen<'a>(panels: &'a [&'a str], flags: &DashboardFlags) -> impl Iterator<Item = &'a &'a str> {
    let only = flags.panel.map(|panel| usize::from(panel) - 1);
    panels.iter().enumerate().filter(move |(place, _)| only.is_none_or(|only| only == *place)).map(|(_, panel)| panel)
}

impl Server {
    /// All series, 15 seconds later.
    fn scrape(&mut self) -> Result<(), String> {
        self.time_ms += STEP_MS;
        let mut text = String::new();
        for (series, total) in self.counters.iter_mut().enumerate() {
            *total += u64::from(self.chance.below(100));
            let (region, timestamp_ns) = (series % 8, self.time_ms * 1_000_000);
            let _ = writeln!(
                text,
                "http_requests_total,instance=node-{series},job=web,region=region-{region} value={total} {timestamp_ns}"
            );
        }
        self.db.write_lines("web", text.as_bytes()).map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Ends the database as it should, opens it again, and asks for all panels, whose answers are on flash; several times.
    fn restarted(self, folder: &std::path::Path, flags: &DashboardFlags) -> Result<Measured, String> {
        let (mut server, mut all, mut cpu_seconds) = (self, Vec::new(), 0.0);
        for _ in 0..flags.rounds.min(RESTARTS_MAX) {
            server.db.close().map_err(|error| error.to_string())?;
            // Before the folder is opened again.
            let Self { db, chance, counters, time_ms } = server;
            drop(db);
            server = Self { db: open(folder)?, chance, counters, time_ms };
            let before = process_cpu_seconds();
            all.extend(server.show(flags, true, 0)?);
            cpu_seconds += process_cpu_seconds() - before;
            let stats = server.db.result_cache().unwrap_or_default();
            if stats.steps_from_flash * 10 < stats.steps * 9 {
                return Err(format!("of {} steps {} came from flash", stats.steps, stats.steps_from_flash));
            }
        }
        Ok(summed("restarted", all, cpu_seconds))
    }

    /// Asks for all panels, with steps so much before those of whole multiples; how long each took, in milliseconds.
    fn show(&self, flags: &DashboardFlags, may_cache: bool, early_ms: i64) -> Result<Vec<f64>, String> {
        let end_ms = self.time_ms / STEP_MS * STEP_MS - early_ms;
        let start_ms = end_ms - i64::from(flags.hours) * 3_600_000;
        let ask_bins = |text: &&str| self.ask_bins(text, flags, (start_ms, end_ms), may_cache);
        match flags.language {
            Language::Sql => return chosen(&SQL, flags).map(ask_bins).collect(),
            Language::Influxql => return chosen(&INFLUXQL, flags).map(ask_bins).collect(),
            Language::Promql => {}
        }
        let ask = |text: &&str| {
            let InstantQuery { lookback_ms, name_removal, .. } = InstantQuery::new("", 0);
            let (text, budget) = ((*text).to_owned(), self.db.budget(SAMPLES_MAX));
            let query =
                RangeQuery { text, start_ms, end_ms, step_ms: STEP_MS, lookback_ms, name_removal, may_cache, budget };
            let start = Instant::now();
            self.db.range("web", &query).map_err(|error| error.to_string())?;
            Ok(start.elapsed().as_secs_f64() * 1000.0)
        };
        chosen(&PANELS, flags).map(ask).collect()
    }

    /// Asks for a panel of SQL or InfluxQL; how long it took, in milliseconds.
    fn ask_bins(
        &self,
        text: &str,
        flags: &DashboardFlags,
        (start_ms, end_ms): (i64, i64),
        may_cache: bool,
    ) -> Result<f64, String> {
        let budget = self.db.budget(SAMPLES_MAX);
        if !may_cache {
            budget.compute_all();
        }
        let range = |start: &str, end: &str| text.replace("RANGE", &format!("time >= {start} AND time < {end}"));
        let elapsed = if flags.language == Language::Sql {
            let time = |time_ms: i64| {
                let time = jiff::Timestamp::from_millisecond(time_ms).map_err(|error| error.to_string())?;
                Ok::<_, String>(format!("'{time}'"))
            };
            let text = range(&time(start_ms)?, &time(end_ms)?).replace("WIDTH", &format!("{} seconds", flags.bin_s));
            let session = sql::ClientContext::new("web", self.db.now_ns());
            let start = Instant::now();
            let parsed = sql::parse(&text).map_err(|error| error.to_string())?;
            self.db.sql(&parsed, 0, &session, &budget).map_err(|error| error.to_string())?;
            start.elapsed()
        } else {
            let text = range(&format!("{start_ms}ms"), &format!("{end_ms}ms"));
            let text = text.replace("WIDTH", &format!("{}s", flags.bin_s));
            let session = influxql::RequestContext { database: Some("web"), read_only: true };
            let start = Instant::now();
            let query = influxql::Query::parse(&text, &BTreeMap::new()).map_err(|error| error.to_string())?;
            self.db.run_influxql(&query, 0, &session, &budget).map_err(|error| error.to_string())?;
            start.elapsed()
        };
        Ok(elapsed.as_secs_f64() * 1000.0)
    }
}

fn open(folder: &std::path::Path) -> Result<Db, String> {
    let mut options = DbOptions::new(folder);
    options.result_cache_memory_bytes_max = 256 << 20;
    options.result_cache_flash_bytes_max = 256 << 20;
    Db::open(platform::Platform::real(), options).map_err(|error| error.to_string())
}

pub(super) fn run(flags: &DashboardFlags) -> Result<ExitCode, String> {
    let folder = std::env::temp_dir().join(format!("thalweg-bench-dashboard-{}", std::process::id()));
    let measured = measure(flags, &folder);
    // Without it there is nothing to remove.
    let _ = std::fs::remove_dir_all(&folder);
    let measured = measured?;
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&measured).map_err(|error| error.to_string())?);
    } else {
        println!("{}", render(&measured));
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(flags: &DashboardFlags, folder: &std::path::Path) -> Result<Vec<Measured>, String> {
    let db = open(folder)?;
    let counters = vec![0; flags.series as usize];
    let mut server = Server { db, chance: Chance::new(1), counters, time_ms: START_MS };
    for _ in 0..(flags.hours + 1) * 240 {
        server.scrape()?;
    }
    server.db.compact_all().map_err(|error| error.to_string())?;
    server.show(flags, false, 0)?;
    let uncached = times("computed", flags.rounds.min(5), || server.show(flags, false, 0))?;
    let first = times("first", 1, || server.show(flags, true, 0))?;
    // No answer is kept for their steps, only what panels share.
    let mut early_ms = 0;
    let other_grids = times("other steps", flags.rounds.min(GRIDS_MAX), || {
        early_ms += 1000;
        server.show(flags, true, early_ms)
    })?;
    let again = times("again", flags.rounds, || server.show(flags, true, 0))?;
    // What writing takes of the sliding is taken out.
    let mut sliding = Vec::new();
    let mut cpu_seconds = 0.0;
    for _ in 0..flags.rounds {
        server.scrape()?;
        let before = process_cpu_seconds();
        sliding.extend(server.show(flags, true, 0)?);
        cpu_seconds += process_cpu_seconds() - before;
    }
    let sliding = summed("15 s later", sliding, cpu_seconds);
    let from_flash = server.restarted(folder, flags)?;
    Ok(vec![uncached, first, other_grids, again, sliding, from_flash])
}

fn times(
    what: &'static str,
    rounds: u32,
    mut show: impl FnMut() -> Result<Vec<f64>, String>,
) -> Result<Measured, String> {
    let before = process_cpu_seconds();
    let mut all = Vec::new();
    for _ in 0..rounds {
        all.extend(show()?);
    }
    Ok(summed(what, all, process_cpu_seconds() - before))
}

fn summed(what: &'static str, mut all: Vec<f64>, cpu_seconds: f64) -> Measured {
    let [median_ms, p95_ms] = [0.5, 0.95].map(|share| quantile(&mut all, share));
    Measured {
        what,
        panels: all.len(),
        median_ms,
        p95_ms,
        cpu_ms_per_panel: cpu_seconds * 1000.0 / all.len().max(1) as f64,
    }
}

fn render(measured: &[Measured]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["dashboard", "panels", "median ms", "p95 ms", "CPU ms a panel", "times less CPU"]);
    let computed = measured.first().map_or(0.0, |computed| computed.cpu_ms_per_panel);
    for line in measured {
        table.add_row([
            line.what.to_owned(),
            line.panels.to_string(),
            format!("{:.3}", line.median_ms),
            format!("{:.3}", line.p95_ms),
            format!("{:.3}", line.cpu_ms_per_panel),
            format!("{:.1}", computed / line.cpu_ms_per_panel),
        ]);
    }
    table.to_string()
}
