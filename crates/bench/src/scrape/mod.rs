//! `thalweg bench scrape`: what scraping many targets costs a server, and what it costs other programs.
//!
//! * `series`: the text of a target · `exporters`: the targets · `config`: the files of a program · `programs`: starting and asking them · this: measuring

mod config;
mod exporters;
mod programs;
mod series;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use comfy_table::{Table, presets};
use serde::Serialize;

use super::report;
use config::Setup;
use exporters::{Exporters, Served};
use programs::{Program, Running};

/// Intervals before a measurement, in which series are registered.
const WARM_UP_INTERVALS: u32 = 2;
/// Between two looks at the memory of a program.
const LOOK: Duration = Duration::from_secs(1);
/// How long a program may take until its queries see the last scrapes.
const VISIBLE: Duration = Duration::from_secs(15);
/// Between two queries for them.
const PAUSE: Duration = Duration::from_millis(250);

const EXAMPLES: &str = "Examples:
  thalweg bench scrape                                   100 targets of 1,500 series each 10 s, with 200 rules, for a minute
  thalweg bench scrape --targets 500 --seconds 600 --prometheus ./prometheus
  thalweg bench scrape --vmagent ./vmagent --victoria-metrics ./victoria-metrics --vmalert ./vmalert --together
  thalweg bench scrape --config-only DIR                 the targets and files for a program that you start yourself";

#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ScrapeFlags {
    /// Targets
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=20_000))]
    targets: u32,
    /// Series of each target
    #[arg(long, default_value_t = 1_500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    series: u32,
    /// Seconds between two scrapes of a target, and between two evaluations of a rule
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    interval_s: u32,
    /// For how long each program is measured, rounded up to whole intervals; two intervals before are not counted
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Recording and alerting rules, half of each
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    rules: u32,
    /// Pack responses by gzip for programs that take it
    #[arg(long)]
    gzip: bool,
    /// Measure this Prometheus on the same targets
    #[arg(long, value_name = "PATH")]
    prometheus: Option<PathBuf>,
    /// Measure VictoriaMetrics on the same targets, scraped by this agent
    #[arg(long, value_name = "PATH", requires = "victoria_metrics")]
    vmagent: Option<PathBuf>,
    /// The database that the agent writes to
    #[arg(long, value_name = "PATH", requires = "vmagent")]
    victoria_metrics: Option<PathBuf>,
    /// What runs the rules beside it [default: they are left out there]
    #[arg(long, value_name = "PATH", requires = "vmagent")]
    vmalert: Option<PathBuf>,
    /// Run all programs at the same time [default: one after another]
    #[arg(long)]
    together: bool,
    /// Write prometheus.yml, scrape.yml (without rules) and rules.yml to this folder, and serve the targets until interrupted
    #[arg(long, value_name = "DIR", conflicts_with_all = ["prometheus", "vmagent", "together", "json"])]
    config_only: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// What a program used and stored.
#[derive(Debug, Clone, Serialize)]
struct Measured {
    program: &'static str,
    seconds: f64,
    cpu_seconds: f64,
    resident_mean_bytes: u64,
    /// Summed over its processes.
    resident_peak_bytes: u64,
    /// Of successful scrapes that are stored.
    samples_per_second: f64,
    /// Requests that the targets answered.
    scrapes_served: u64,
    /// Scrapes that were due and are not stored as successful.
    scrapes_missed: u64,
    has_rules: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    targets: u32,
    series: u32,
    interval_s: u32,
    rules: u32,
    together: bool,
    programs: Vec<Measured>,
}

/// The part of a run in which programs are measured.
#[derive(Debug, Clone, Copy)]
struct Window {
    targets: u32,
    interval_s: u32,
    seconds: u32,
}

impl Window {
    /// Whole intervals, so that each target is due equally often.
    fn new(flags: &ScrapeFlags) -> Self {
        let intervals = flags.seconds.div_ceil(flags.interval_s);
        Self { targets: flags.targets, interval_s: flags.interval_s, seconds: intervals * flags.interval_s }
    }

    fn scrapes_due(self) -> u64 {
        u64::from(self.targets) * u64::from(self.seconds / self.interval_s)
    }
}

/// CPU, memory and scrapes of a program during the window.
struct Observed {
    cpu_seconds: f64,
    resident_mean_bytes: u64,
    resident_peak_bytes: u64,
    scrapes_served: u64,
}

pub(crate) fn run(flags: &ScrapeFlags) -> Result<ExitCode, String> {
    match &flags.config_only {
        Some(folder) => serve_for_others(flags, folder),
        None => report(flags.json, |folder| measure(flags, folder), render),
    }
}

fn served(flags: &ScrapeFlags) -> Served {
    Served {
        targets: flags.targets,
        series: flags.series as usize,
        interval_ms: u64::from(flags.interval_s) * 1_000,
        gzip: flags.gzip,
    }
}

fn serve_for_others(flags: &ScrapeFlags, folder: &Path) -> Result<ExitCode, String> {
    const PROGRAM: &str = "metrics";
    let exporters = Exporters::start(served(flags), &[PROGRAM])?;
    config::write(&setup(flags, &exporters), PROGRAM, folder)?;
    println!("{} targets are served until this is interrupted; see {}", flags.targets, folder.display());
    loop {
        thread::park();
    }
}

fn setup<'a>(flags: &ScrapeFlags, exporters: &'a Exporters) -> Setup<'a> {
    Setup { addresses: &exporters.addresses, interval_s: flags.interval_s, rules: flags.rules as usize }
}

/// The programs that flags name; this one is the first.
fn programs(flags: &ScrapeFlags) -> Vec<Program> {
    let mut programs = vec![Program::Thalweg];
    programs.extend(flags.prometheus.clone().map(Program::Prometheus));
    if let (Some(agent), Some(database)) = (flags.vmagent.clone(), flags.victoria_metrics.clone()) {
        programs.push(Program::VictoriaMetrics { agent, database, rules: flags.vmalert.clone() });
    }
    programs
}

fn measure(flags: &ScrapeFlags, folder: &Path) -> Result<Report, String> {
    let programs = programs(flags);
    let names: Vec<&str> = programs.iter().map(Program::name).collect();
    let exporters = Exporters::start(served(flags), &names)?;
    for name in names {
        config::write(&setup(flags, &exporters), name, &folder.join(name))?;
    }
    let start = |program: &Program| program.start(&folder.join(program.name()));
    let window = Window::new(flags);
    let measured = if flags.together {
        let running: Vec<Running> = programs.iter().map(start).collect::<Result<_, _>>()?;
        watch(&programs, &running, &exporters, window)?
    } else {
        let mut measured = Vec::new();
        for program in &programs {
            let running = [start(program)?];
            measured.extend(watch(std::slice::from_ref(program), &running, &exporters, window)?);
        }
        measured
    };
    Ok(Report {
        targets: flags.targets,
        series: flags.series,
        interval_s: flags.interval_s,
        rules: flags.rules,
        together: flags.together,
        programs: measured,
    })
}

/// Watches programs for a while, all at the same time, then asks what they stored.
fn watch(
    programs: &[Program],
    running: &[Running],
    exporters: &Exporters,
    window: Window,
) -> Result<Vec<Measured>, String> {
    thread::sleep(Duration::from_secs(u64::from(window.interval_s * WARM_UP_INTERVALS)));
    let scrapes = || programs.iter().map(|program| exporters.scrapes(program.name())).collect::<Vec<_>>();
    running.iter().for_each(Running::begin_peak);
    let before: Vec<f64> = running.iter().map(|program| program.usage().cpu_seconds).collect();
    let (scrapes_before, begun) = (scrapes(), Instant::now());
    let length = Duration::from_secs(u64::from(window.seconds));
    let mut resident = vec![(0_u64, 0_u64); running.len()];
    while begun.elapsed() < length {
        for ((sum, looks), program) in resident.iter_mut().zip(running) {
            *sum += program.usage().resident_bytes;
            *looks += 1;
        }
        thread::sleep(LOOK.min(length.saturating_sub(begun.elapsed())));
    }
    let end_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let after: Vec<_> = running.iter().map(Running::usage).collect();
    let scrapes_after = scrapes();
    let observed = before.iter().zip(&after).zip(&resident).zip(scrapes_before.iter().zip(&scrapes_after));
    let observed = observed.map(|(((before, after), (sum, looks)), (scrapes_before, scrapes_after))| Observed {
        cpu_seconds: after.cpu_seconds - before,
        resident_mean_bytes: sum / (*looks).max(1),
        resident_peak_bytes: after.resident_peak_bytes,
        scrapes_served: scrapes_after - scrapes_before,
    });
    let observed: Vec<Observed> = observed.collect();
    let each = programs.iter().zip(running).zip(observed);
    each.map(|((program, running), observed)| ask(program, running, &observed, (window, end_s))).collect()
}

/// Asks a program what it stored in a window that ended at a time.
fn ask(
    program: &Program,
    running: &Running,
    observed: &Observed,
    (window, end_s): (Window, f64),
) -> Result<Measured, String> {
    let sum = |metric: &str| {
        let query = format!("sum(sum_over_time({metric}{{job=\"node\"}}[{}s]))", window.seconds);
        running.number(&query, end_s).map(Option::unwrap_or_default)
    };
    let due = window.scrapes_due();
    let begun = Instant::now();
    let mut stored = sum("up")?;
    while (stored as u64) < due && begun.elapsed() < VISIBLE {
        thread::sleep(PAUSE);
        stored = sum("up")?;
    }
    let seconds = f64::from(window.seconds);
    Ok(Measured {
        program: program.name(),
        seconds,
        cpu_seconds: observed.cpu_seconds,
        resident_mean_bytes: observed.resident_mean_bytes,
        resident_peak_bytes: observed.resident_peak_bytes,
        samples_per_second: sum("scrape_samples_scraped")? / seconds,
        scrapes_served: observed.scrapes_served,
        scrapes_missed: due.saturating_sub(stored as u64),
        has_rules: program.has_rules(),
    })
}

fn render(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "program",
        "CPU",
        "to thalweg",
        "RSS, mean",
        "to thalweg",
        "RSS, peak",
        "to thalweg",
        "samples/s",
        "missed",
    ]);
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let ratio = |value: f64, of_first: f64| format!("{:.2}", value / of_first);
    if let Some(first) = report.programs.first() {
        for measured in &report.programs {
            let rules = if measured.has_rules { "" } else { " (no rules)" };
            table.add_row([
                format!("{}{rules}", measured.program),
                format!("{:.2} s", measured.cpu_seconds),
                ratio(measured.cpu_seconds, first.cpu_seconds),
                mib(measured.resident_mean_bytes),
                ratio(measured.resident_mean_bytes as f64, first.resident_mean_bytes as f64),
                mib(measured.resident_peak_bytes),
                ratio(measured.resident_peak_bytes as f64, first.resident_peak_bytes as f64),
                format!("{:.0}", measured.samples_per_second),
                format!("{} of {}", measured.scrapes_missed, scrapes_due(report, measured)),
            ]);
        }
    }
    let Report { targets, series, interval_s, rules, .. } = report;
    let order = if report.together { "at the same time" } else { "one after another" };
    format!("{table}\n{targets} targets of {series} series each {interval_s} s, {rules} rules; programs ran {order}")
}

fn scrapes_due(report: &Report, measured: &Measured) -> u64 {
    u64::from(report.targets) * (measured.seconds as u64 / u64::from(report.interval_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_ratios_to_this_program() {
        let measured = |program, cpu_seconds, resident_bytes| Measured {
            program,
            seconds: 60.0,
            cpu_seconds,
            resident_mean_bytes: resident_bytes,
            resident_peak_bytes: resident_bytes * 2,
            samples_per_second: 15_000.0,
            scrapes_served: 600,
            scrapes_missed: 3,
            has_rules: program == "thalweg",
        };
        let programs = vec![measured("thalweg", 2.0, 100 << 20), measured("victoriametrics", 5.0, 350 << 20)];
        let report = Report { targets: 100, series: 1_500, interval_s: 10, rules: 200, together: false, programs };
        let table = render(&report);
        for expected in ["2.50", "3.50", "3 of 600", "(no rules)", "one after another"] {
            assert!(table.contains(expected), "{expected} is missing in:\n{table}");
        }
    }

    #[test]
    fn windows_are_whole_intervals() {
        let window = Window { targets: 7, interval_s: 10, seconds: 60 };
        assert_eq!(window.scrapes_due(), 42);
    }
}
