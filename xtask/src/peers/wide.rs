//! `cargo xtask query-peers --wide`: many lone series in this project and in other servers of Prometheus's API, the same wide selections to each.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::process::Processes;
use super::server::{Peer, Server};
use super::{cache_folder, machine, number, pairs, peer_named, program};

/// Servers that take remote write.
const PEERS: [Peer; 3] = [Peer::Thalweg, Peer::Prometheus, Peer::VictoriaMetrics];

/// The servers to measure, and how many series and requests.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Options {
    peers: Vec<Peer>,
    thalweg: Option<PathBuf>,
    /// Prometheus's program, if not Debian's.
    prometheus: Option<PathBuf>,
    series: u64,
    requests: u32,
    only: String,
    cache: PathBuf,
    json: bool,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let arguments: Vec<String> = arguments.iter().filter(|argument| *argument != "--wide").cloned().collect();
        let (pairs, json) = pairs(&arguments)?;
        let mut options = Self {
            peers: PEERS.to_vec(),
            thalweg: None,
            prometheus: None,
            series: 1_000_000,
            requests: 5,
            only: String::new(),
            cache: cache_folder(),
            json,
        };
        for (name, value) in pairs {
            match name {
                "--peers" => options.peers = value.split(',').map(peer_named).collect::<Result<_, _>>()?,
                "--thalweg" => options.thalweg = Some(PathBuf::from(value)),
                "--prometheus" => options.prometheus = Some(PathBuf::from(value)),
                "--series" => options.series = number(name, value)?,
                "--requests" => options.requests = number(name, value)?,
                "--only" => value.clone_into(&mut options.only),
                "--cache" => options.cache = PathBuf::from(value),
                _ => return Err(format!("query-peers --wide has no option {name}")),
            }
        }
        if let Some(peer) = options.peers.iter().find(|peer| !PEERS.contains(peer)) {
            return Err(format!("{} does not take remote write", peer.name()));
        }
        Ok(options)
    }
}

/// A peer's figures by kind of request: median milliseconds, and milliseconds of CPU.
type Figures = BTreeMap<String, (f64, f64)>;

/// Measures one server after the other and prints a table.
pub fn command(root: &std::path::Path, arguments: &[String], print: &mut dyn FnMut(&str)) -> Result<bool, String> {
    let options = Options::read(arguments)?;
    let thalweg = program(root, options.thalweg.as_deref())?;
    let processes = Processes::default();
    processes.end_on_signals()?;
    let (mut reports, mut kinds) = (Vec::new(), Vec::new());
    for peer in &options.peers {
        let file = match &options.prometheus {
            Some(file) if *peer == Peer::Prometheus => file.clone(),
            _ => peer.install(&options.cache, &thalweg)?,
        };
        let server = Server::start(&processes, *peer, &file)?;
        let mut bench = Command::new(&thalweg);
        bench.args(["bench", "wide", "--json", "--url", &server.url, "--pid", &server.pid.to_string()]);
        bench.args(["--series", &options.series.to_string(), "--requests", &options.requests.to_string()]);
        bench.args(["--only", &options.only]);
        let report = processes.output(&mut bench);
        processes.end();
        let report: Value = serde_json::from_str(&report?).map_err(|error| format!("{}: {error}", peer.name()))?;
        if kinds.is_empty() {
            kinds = kinds_of(&report);
        }
        reports.push((*peer, report));
    }
    if options.json {
        let all: BTreeMap<&str, &Value> = reports.iter().map(|(peer, report)| (peer.name(), report)).collect();
        print(&serde_json::to_string_pretty(&all).map_err(|error| error.to_string())?);
    } else {
        print(&render(&options, &kinds, &reports));
    }
    Ok(true)
}

fn kinds_of(report: &Value) -> Vec<String> {
    let measured = report["measured"].as_array();
    measured.into_iter().flatten().filter_map(|row| row["kind"].as_str().map(str::to_owned)).collect()
}

fn figures(report: &Value) -> Figures {
    let number = |row: &Value, name: &str| row[name].as_f64().unwrap_or(f64::NAN);
    let row = |row: &Value| {
        let figures = (number(row, "median_ms"), number(row, "cpu_ms_per_request"));
        Some((row["kind"].as_str()?.to_owned(), figures))
    };
    report["measured"].as_array().into_iter().flatten().filter_map(row).collect()
}

fn render(options: &Options, kinds: &[String], reports: &[(Peer, Value)]) -> String {
    let mut lines = machine();
    lines.push(format!("{} series, median ms and CPU ms of a request", options.series));
    for (peer, report) in reports {
        let mib = |name: &str| report[name].as_u64().unwrap_or(0) >> 20;
        let load = report["load_cpu_seconds"].as_f64().unwrap_or(f64::NAN);
        let (resident, peak) = (mib("resident_bytes"), mib("resident_peak_bytes"));
        lines.push(format!(
            "{}: loaded with {load:.1} s of CPU, {resident} MiB resident, {peak} MiB at most",
            peer.name()
        ));
    }
    let mut header = format!("{:<20}", "request");
    for (peer, _) in reports {
        let _ = write!(header, "{:>24}", peer.name());
    }
    lines.push(header);
    let all: Vec<Figures> = reports.iter().map(|(_, report)| figures(report)).collect();
    for kind in kinds {
        let mut line = format!("{kind:<20}");
        for figures in &all {
            let (median_ms, cpu_ms) = figures.get(kind).copied().unwrap_or((f64::NAN, f64::NAN));
            let _ = write!(line, "{median_ms:>12.1}{cpu_ms:>12.1}");
        }
        lines.push(line);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_tables() {
        let read = |text: &str| Options::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(read("--wide --series 5 --peers thalweg").unwrap().series, 5);
        assert!(read("--wide --peers influxdb").unwrap_err().contains("remote write"));
        let report =
            serde_json::json!({"measured": [{"kind": "10k count", "median_ms": 1.5, "cpu_ms_per_request": 2.25}]});
        let table = render(&read("--wide").unwrap(), &kinds_of(&report), &[(Peer::Thalweg, report.clone())]);
        assert!(table.contains("10k count") && table.contains("1.5") && table.contains("2.2"), "{table}");
    }
}
