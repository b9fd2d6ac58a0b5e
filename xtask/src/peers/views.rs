//! `cargo xtask view-peers`: a view of one minute over the same rows in this project, in QuestDB (a materialised view) and in InfluxDB 1 (a
//! continuous query): what keeping it costs, and what it says once rows have come late.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::process::{Processes, cpu_seconds, settle};
use super::server::{Peer, Server};
use super::{cache_folder, machine, number, pairs, peer_named, program};

/// Servers that keep views.
const PEERS: [Peer; 3] = [Peer::Thalweg, Peer::Questdb, Peer::Influxdb];
/// Seconds between two rows of a host.
const INTERVAL_S: u64 = 10;
const MINUTE_S: u64 = 60;
/// Lines of a request.
const BODY_LINES: usize = 5_000;
/// Of so many rows one more comes late.
const LATE_SHARE: usize = 20;
/// How long a table may take to appear: QuestDB applies what it acknowledged afterwards.
const APPEAR_MAX: Duration = Duration::from_secs(30);
/// Answers may have so many bytes.
const ANSWER_BYTES_MAX: u64 = 512 << 20;

/// The view, as this project and QuestDB read it.
const CREATE_VIEW: &str = "CREATE MATERIALIZED VIEW cpu_minute WITH BASE cpu REFRESH IMMEDIATE AS \
                           (SELECT timestamp, host, count() n, sum(usage) total FROM cpu SAMPLE BY 1m) PARTITION BY DAY";
const READ_VIEW: &str = "SELECT timestamp, host, n, total FROM cpu_minute";
const READ_SOURCE: &str = "SELECT timestamp, host, count() n, sum(usage) total FROM cpu SAMPLE BY 1m";

/// As InfluxDB has it: it computes the last hour's windows again and again.
const CREATE_QUERY: &str = "CREATE CONTINUOUS QUERY cpu_minute ON bench RESAMPLE EVERY 10s FOR 60m BEGIN \
                            SELECT count(usage) AS n, sum(usage) AS total INTO cpu_minute FROM cpu GROUP BY time(1m), host END";
const READ_QUERY: &str = "SELECT n, total FROM cpu_minute GROUP BY host";

#[derive(Debug, Clone, PartialEq, Eq)]
struct Options {
    peers: Vec<Peer>,
    thalweg: Option<PathBuf>,
    hosts: u64,
    hours: u64,
    cache: PathBuf,
    json: bool,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let (pairs, json) = pairs(arguments)?;
        let mut options =
            Self { peers: PEERS.to_vec(), thalweg: None, hosts: 200, hours: 6, cache: cache_folder(), json };
        for (name, value) in pairs {
            match name {
                "--peers" => options.peers = value.split(',').map(peer_named).collect::<Result<_, _>>()?,
                "--thalweg" => options.thalweg = Some(PathBuf::from(value)),
                "--hosts" => options.hosts = number(name, value)?,
                "--hours" => options.hours = number(name, value)?,
                "--cache" => options.cache = PathBuf::from(value),
                _ => return Err(format!("view-peers has no option {name}")),
            }
        }
        match options.peers.iter().find(|peer| !PEERS.contains(peer)) {
            Some(peer) => Err(format!("{} has no views", peer.name())),
            None => Ok(options),
        }
    }
}

/// Rows in order of time, and those that come after them.
struct Rows {
    in_order: Vec<String>,
    late: Vec<String>,
    /// The first minute, seconds since the Unix epoch.
    start_s: u64,
    end_s: u64,
}

impl Rows {
    /// Rows of the hours before a moment: continuous queries know nothing else.
    fn before(now_s: u64, options: &Options) -> Self {
        let end_s = now_s / MINUTE_S * MINUTE_S;
        let start_s = end_s - options.hours * 3_600;
        let line = |host: u64, time_s: u64| {
            let usage = (host * 7 + time_s / INTERVAL_S * 13) % 101;
            format!("cpu,host=host_{host} usage={usage}.5 {time_s}000000000")
        };
        let times = (start_s..end_s).step_by(INTERVAL_S as usize);
        let rows = times.flat_map(|time_s| (0..options.hosts).map(move |host| (host, time_s)));
        let in_order: Vec<String> = rows.clone().map(|(host, time_s)| line(host, time_s)).collect();
        // Between two rows that are there.
        let late = rows.step_by(LATE_SHARE).map(|(host, time_s)| line(host, time_s + INTERVAL_S / 2)).collect();
        Self { in_order, late, start_s, end_s }
    }
}

/// A window's count and sum, by time and host.
type Windows = BTreeMap<(String, String), (f64, f64)>;

/// How many windows of the source the view has, and has right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Compared {
    windows: usize,
    right: usize,
}

fn compare(view: &Windows, source: &Windows) -> Compared {
    let is_right = |(key, (count, sum)): &(&(String, String), &(f64, f64))| {
        let is_close = |found: f64, expected: f64| (found - expected).abs() < 1e-6 * expected.abs().max(1.0);
        view.get(*key).is_some_and(|(found, total)| is_close(*found, *count) && is_close(*total, *sum))
    };
    Compared { windows: source.len(), right: source.iter().filter(is_right).count() }
}

/// CPU seconds of a server without and with a view, and for late rows; and its answers before and after those.
struct Figures {
    plain_cpu_s: f64,
    kept_cpu_s: f64,
    late_cpu_s: f64,
    before: Compared,
    after: Compared,
}

impl Figures {
    /// Returns whether all windows were right, before late rows and after them.
    const fn is_right(&self) -> bool {
        self.before.right == self.before.windows && self.after.right == self.after.windows
    }
}

/// Measures one server after the other and prints a table. False if the windows of Thalweg's view are not those of its query.
pub fn command(root: &Path, arguments: &[String], print: &mut dyn FnMut(&str)) -> Result<bool, String> {
    let options = Options::read(arguments)?;
    let thalweg = program(root, options.thalweg.as_deref())?;
    let processes = Processes::default();
    processes.end_on_signals()?;
    let mut measured = Vec::new();
    for peer in &options.peers {
        let file = peer.install(&options.cache, &thalweg)?;
        let figures = measure(&processes, *peer, &file, &options);
        processes.end();
        measured.push((*peer, figures.map_err(|error| format!("{}: {error}", peer.name()))?));
    }
    if options.json {
        let all: BTreeMap<&str, Value> =
            measured.iter().map(|(peer, figures)| (peer.name(), to_json(figures))).collect();
        print(&serde_json::to_string_pretty(&all).map_err(|error| error.to_string())?);
    } else {
        print(&render(&options, &measured));
    }
    // Of the others it is only found out how they do.
    Ok(measured.iter().all(|(peer, figures)| *peer != Peer::Thalweg || figures.is_right()))
}

fn measure(processes: &Processes, peer: Peer, program: &Path, options: &Options) -> Result<Figures, String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|error| error.to_string())?;
    let rows = Rows::before(now.as_secs(), options);
    let plain = Session { server: Server::start(processes, peer, program)?, peer };
    let (pid, before) = (plain.server.pid, cpu_seconds(plain.server.pid)?);
    plain.write(&rows.in_order)?;
    let plain_cpu_s = settle(pid, peer.settle_at_least())? - before;
    processes.end();
    let session = Session { server: Server::start(processes, peer, program)?, peer };
    let (pid, before) = (session.server.pid, cpu_seconds(session.server.pid)?);
    session.create_view(&rows)?;
    session.write(&rows.in_order)?;
    let settled = settle(pid, peer.settle_at_least())?;
    let (kept_cpu_s, answer) = (settled - before, compare(&session.view()?, &session.source(&rows)?));
    // What asking costs is no cost of the view.
    let before = cpu_seconds(pid)?;
    session.write(&rows.late)?;
    let late_cpu_s = settle(pid, peer.settle_at_least())? - before;
    let after = compare(&session.view()?, &session.source(&rows)?);
    Ok(Figures { plain_cpu_s, kept_cpu_s, late_cpu_s, before: answer, after })
}

/// A server that is written to and asked.
struct Session {
    server: Server,
    peer: Peer,
}

impl Session {
    fn write(&self, lines: &[String]) -> Result<(), String> {
        let database = self.peer.database().map_or_else(String::new, |name| format!("&db={name}"));
        let unit = if self.peer == Peer::Questdb { "precision=n" } else { "precision=ns" };
        let url = format!("{}/write?{unit}{database}", self.server.url);
        for lines in lines.chunks(BODY_LINES) {
            let sent = ureq::post(&url).send(lines.join("\n").as_bytes());
            sent.map_err(|error| format!("{url}: {error}"))?;
        }
        Ok(())
    }

    fn create_view(&self, rows: &Rows) -> Result<(), String> {
        if self.peer == Peer::Influxdb {
            let url = format!("{}/query", self.server.url);
            let made = ureq::post(&url).query("q", CREATE_QUERY).send_empty();
            return made.map(drop).map_err(|error| format!("{url}: {error}"));
        }
        // The table must be there before its view.
        self.write(rows.in_order.get(..1).unwrap_or_default())?;
        let begun = Instant::now();
        while self.ask("/exec", "query", "SELECT count() FROM cpu").is_err() {
            if begun.elapsed() > APPEAR_MAX {
                return Err("the table does not appear".to_owned());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.ask("/exec", "query", CREATE_VIEW).map(drop)
    }

    fn ask(&self, path: &str, name: &str, text: &str) -> Result<Value, String> {
        let url = format!("{}{path}", self.server.url);
        let mut request = ureq::get(&url).query(name, text).query("noviews", "1");
        if let Some(database) = self.peer.database() {
            request = request.query("db", database);
        }
        let mut answer = request.call().map_err(|error| format!("{text}: {error}"))?;
        let text = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_string();
        serde_json::from_str(&text.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
    }

    fn view(&self) -> Result<Windows, String> {
        match self.peer {
            Peer::Influxdb => self.ask("/query", "q", READ_QUERY).map(|answer| from_series(&answer)),
            _ => self.ask("/exec", "query", READ_VIEW).map(|answer| from_dataset(&answer)),
        }
    }

    fn source(&self, rows: &Rows) -> Result<Windows, String> {
        if self.peer != Peer::Influxdb {
            return self.ask("/exec", "query", READ_SOURCE).map(|answer| from_dataset(&answer));
        }
        let Rows { start_s, end_s, .. } = rows;
        let statement = format!(
            "SELECT count(usage), sum(usage) FROM cpu WHERE time >= {start_s}s AND time < {end_s}s GROUP BY time(1m), host fill(none)"
        );
        self.ask("/query", "q", &statement).map(|answer| from_series(&answer))
    }
}

/// Rows of time, host, count, sum.
fn from_dataset(answer: &Value) -> Windows {
    let rows = answer["dataset"].as_array().into_iter().flatten();
    let window = |row: &Value| {
        let key = (row[0].as_str()?.to_owned(), row[1].as_str()?.to_owned());
        Some((key, (row[2].as_f64()?, row[3].as_f64()?)))
    };
    rows.filter_map(window).collect()
}

/// Series of hosts, with rows of time, count, sum.
fn from_series(answer: &Value) -> Windows {
    let series = answer["results"][0]["series"].as_array().into_iter().flatten();
    let windows = series.flat_map(|series| {
        let host = series["tags"]["host"].as_str().unwrap_or_default();
        let rows = series["values"].as_array().into_iter().flatten();
        rows.filter_map(move |row| {
            Some(((row[0].as_str()?.to_owned(), host.to_owned()), (row[1].as_f64()?, row[2].as_f64()?)))
        })
    });
    windows.collect()
}

fn to_json(figures: &Figures) -> Value {
    let Figures { plain_cpu_s, kept_cpu_s, late_cpu_s, before, after } = figures;
    json!({
        "cpu_s_without_view": plain_cpu_s, "cpu_s_with_view": kept_cpu_s, "cpu_s_for_late_rows": late_cpu_s,
        "windows": before.windows, "windows_right": before.right,
        "windows_after_late_rows": after.windows, "windows_right_after_late_rows": after.right,
    })
}

fn render(options: &Options, measured: &[(Peer, Figures)]) -> String {
    let mut lines = machine();
    let rows = options.hosts * options.hours * 3_600 / INTERVAL_S;
    lines.push(format!(
        "{rows} rows of {} hosts, windows of a minute, then {} late rows",
        options.hosts,
        rows / LATE_SHARE as u64
    ));
    let mut header = format!("{:<12}", "");
    for name in ["CPU s alone", "with a view", "late rows", "right before", "right after"] {
        let _ = write!(header, "{name:>20}");
    }
    lines.push(header);
    for (peer, Figures { plain_cpu_s, kept_cpu_s, late_cpu_s, before, after }) in measured {
        let share = |compared: &Compared| format!("{} of {}", compared.right, compared.windows);
        lines.push(format!(
            "{:<12}{plain_cpu_s:>20.2}{kept_cpu_s:>20.2}{late_cpu_s:>20.2}{:>20}{:>20}",
            peer.name(),
            share(before),
            share(after)
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_compared_however_a_server_says_them() {
        let dataset = json!({"dataset": [["2024-01-01T00:00:00.000000Z", "a", 6, 3.5], ["2024-01-01T00:01:00.000000Z", "a", 6, 1]]});
        let source = from_dataset(&dataset);
        assert_eq!(compare(&source, &source), Compared { windows: 2, right: 2 });
        let mut stale = source.clone();
        stale.pop_last();
        stale.values_mut().for_each(|(count, _)| *count -= 1.0);
        assert_eq!(compare(&stale, &source), Compared { windows: 2, right: 0 });
        let series =
            json!({"results": [{"series": [{"tags": {"host": "a"}, "values": [["2024-01-01T00:00:00Z", 6, 3.5]]}]}]});
        assert_eq!(from_series(&series).into_values().collect::<Vec<_>>(), [(6.0, 3.5)]);
    }

    #[test]
    fn late_rows_lie_between_those_that_are_there() {
        let read = |text: &str| Options::read(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert!(read("--peers prometheus").unwrap_err().contains("no views"));
        let rows = Rows::before(1_700_000_030, &read("--hosts 2 --hours 1").unwrap());
        assert_eq!((rows.in_order.len(), rows.late.len(), rows.end_s - rows.start_s), (720, 36, 3_600));
        assert_eq!(rows.late[0], "cpu,host=host_0 usage=53.5 1699996385000000000");
    }
}
