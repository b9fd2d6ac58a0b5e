//! `cargo xtask epoch-peers`: epochs of counters in a regular database of this project, in `RRDtool`, `SQLite`, `DuckDB` and Redis, as the paper on ntop's
//! database compares them: what writing a value costs, its bytes on disk, and how long reading one name takes. `epochs.py` writes and reads.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::process::Processes;
use super::server::{Peer, Server, free_address};
use super::{cache_folder, install, machine, number, pairs, program};

/// The peers that are measured unless an option names some, in this order.
const PEERS: [&str; 5] = ["thalweg", "rrdtool", "sqlite", "duckdb", "redis"];

const HELP: &str =
    "epoch-peers needs python3 with numpy, pyarrow and duckdb (those that .ci/run installs), and rrdtool";

#[derive(Debug, Clone, PartialEq, Eq)]
struct Options {
    peers: Vec<String>,
    thalweg: Option<PathBuf>,
    series: u64,
    epochs: u64,
    cache: PathBuf,
    json: bool,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let (pairs, json) = pairs(arguments)?;
        let peers = PEERS.map(str::to_owned).to_vec();
        let mut options = Self { peers, thalweg: None, series: 10_000, epochs: 288, cache: cache_folder(), json };
        for (name, value) in pairs {
            match name {
                "--peers" => options.peers = value.split(',').map(str::to_owned).collect(),
                "--thalweg" => options.thalweg = Some(PathBuf::from(value)),
                "--series" => options.series = number(name, value)?,
                "--epochs" => options.epochs = number(name, value)?,
                "--cache" => options.cache = PathBuf::from(value),
                _ => return Err(format!("epoch-peers has no option {name}")),
            }
        }
        match options.peers.iter().find(|peer| !PEERS.contains(&peer.as_str())) {
            Some(peer) => Err(format!("epoch-peers does not know {peer}: there are {}", PEERS.join(", "))),
            None => Ok(options),
        }
    }
}

/// Of each value the CPU of writing and the bytes; and the time of reading a name.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Figures {
    write_ns: f64,
    bytes: f64,
    read_ms: f64,
}

impl Figures {
    /// Those of what the script printed.
    fn parse(text: &str, values: f64) -> Result<Self, String> {
        let printed: Value = serde_json::from_str(text).map_err(|error| format!("{text}: {error}"))?;
        let figure = |name: &str| printed[name].as_f64().ok_or_else(|| format!("{text}: no {name}"));
        let (cpu_s, bytes) = (figure("cpu_s")?, figure("bytes")?);
        Ok(Self { write_ns: cpu_s * 1e9 / values, bytes: bytes / values, read_ms: figure("read_ms")? })
    }
}

/// Measures one peer after the other and prints a table.
pub fn command(root: &Path, arguments: &[String], print: &mut dyn FnMut(&str)) -> Result<bool, String> {
    let options = Options::read(arguments)?;
    let processes = Processes::default();
    processes.end_on_signals()?;
    let mut measured = Vec::new();
    for peer in &options.peers {
        let figures = measure(&processes, root, peer, &options);
        processes.end();
        measured.push((peer.as_str(), figures.map_err(|error| format!("{peer}: {error}"))?));
    }
    if options.json {
        let all: BTreeMap<&str, Value> = measured
            .iter()
            .map(|(peer, Figures { write_ns, bytes, read_ms })| {
                (*peer, serde_json::json!({ "write_cpu_ns": write_ns, "bytes": bytes, "read_ms": read_ms }))
            })
            .collect();
        print(&serde_json::to_string_pretty(&all).map_err(|error| error.to_string())?);
    } else {
        print(&render(&options, &measured));
    }
    Ok(true)
}

fn measure(processes: &Processes, root: &Path, peer: &str, options: &Options) -> Result<Figures, String> {
    let mut script = Command::new("python3");
    script.arg(root.join("xtask/src/peers/epochs.py")).arg(peer);
    script.args(["--series", &options.series.to_string(), "--epochs", &options.epochs.to_string()]);
    // A server lives as long as the script.
    let folder = match peer {
        "thalweg" => {
            let server = Server::start(processes, Peer::Thalweg, &program(root, options.thalweg.as_deref())?)?;
            script.args(["--url", &server.url, "--pid", &server.pid.to_string()]);
            server.data
        }
        "redis" => {
            let folder = processes.folder(peer)?;
            let (pid, port) = start_redis(processes, &options.cache, &folder)?;
            script.args(["--pid", &pid.to_string(), "--port", &port]);
            folder
        }
        _ => processes.folder(peer)?,
    };
    script.arg("--folder").arg(&folder);
    let text = processes.output(&mut script).map_err(|error| format!("{error}\n{HELP}"))?;
    Figures::parse(&text, (options.series * options.epochs) as f64)
}

/// Starts Debian's Redis, which saves when it is told to, and waits until it listens.
fn start_redis(processes: &Processes, cache: &Path, folder: &Path) -> Result<(u32, String), String> {
    // One program under several names.
    let file = install::debian(cache, "redis-tools", "redis-check-rdb")?;
    let address = free_address()?;
    let port = address.rsplit(':').next().unwrap_or_default().to_owned();
    let mut command = Command::new(file);
    command.arg0("redis-server").args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(folder);
    let pid = processes.start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
    while std::net::TcpStream::connect(&address).is_err() {
        super::process::cpu_seconds(pid).map_err(|error| format!("Redis did not start: {error}"))?;
        std::thread::yield_now();
    }
    Ok((pid, port))
}

fn render(options: &Options, measured: &[(&str, Figures)]) -> String {
    let mut lines = machine();
    lines.push(format!("{} epochs of {} names, skewed counters", options.epochs, options.series));
    let mut header = format!("{:<12}", "");
    for name in ["CPU ns a value", "bytes a value", "ms to read a name"] {
        let _ = write!(header, "{name:>20}");
    }
    lines.push(header);
    for (peer, Figures { write_ns, bytes, read_ms }) in measured {
        lines.push(format!("{peer:<12}{write_ns:>20.1}{bytes:>20.2}{read_ms:>20.3}"));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_a_value() {
        let expected = Figures { write_ns: 500.0, bytes: 2.5, read_ms: 0.25 };
        assert_eq!(Figures::parse("{\"cpu_s\": 0.5, \"bytes\": 2500000, \"read_ms\": 0.25}", 1e6), Ok(expected));
        assert!(Figures::parse("{\"cpu_s\": 1}", 1.0).is_err());
    }

    #[test]
    fn peers_that_are_not_there_are_refused() {
        let read = |text: &str| Options::read(&["--peers".to_owned(), text.to_owned()]);
        assert_eq!(read("redis,thalweg").unwrap().peers, ["redis", "thalweg"]);
        assert!(read("redis,influxdb").unwrap_err().contains("rrdtool"));
    }
}
