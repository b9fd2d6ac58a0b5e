//! `thalweg bench wire`: the binary protocol over loopback into a server of the benchmark's own, as FrogFishDB measured
//! itself: hosts against clients, and the same with a server that acknowledges and stores nothing.

use std::io::{BufRead, BufReader, Lines};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::time::Instant;

use clap::Args;
use client::{Client, Options, Outgoing, Registered, Values};
use comfy_table::{Table, presets};
use model::{Field, Labels, ValueType};
use serde::Serialize;

use crate::measure::process::usage;

const EXAMPLES: &str = "Examples:
  thalweg bench wire                                   32, 320, 3200 hosts; 1, 2, 4, 8, 16 clients; stored and thrown away
  thalweg bench wire --hosts 3200 --clients 2 --seconds 20
  thalweg bench wire --stored-only --json

A host is a group of ten members, a point one row of it. Values are made before, so that a client's CPU seconds are what encoding,
sending and waiting cost. A batch counts when it is acknowledged: on disk, or thrown away.";

/// Members of a host.
const MEMBERS: usize = 10;
/// Values that are made before, for each member; another number than any batch's, so that batches differ.
const VALUES: usize = 1 << 16;
const START_NS: i64 = 1_451_606_400_000_000_000;
const STEP_NS: i64 = 10_000_000_000;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WireFlags {
    /// Hosts, a case for each
    #[arg(long, value_delimiter = ',', default_value = "32,320,3200", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    hosts: Vec<u32>,
    /// Clients at the same time, a case for each
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16", value_parser = clap::value_parser!(u16).range(1..=128))]
    clients: Vec<u16>,
    /// Seconds of each case
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Rows of a batch
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=50_000))]
    batch_rows: u32,
    /// Leave out the server that throws everything away
    #[arg(long)]
    stored_only: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// What a case gave.
#[derive(Debug, Serialize)]
struct Case {
    stored: bool,
    hosts: u32,
    clients: u16,
    points: u64,
    seconds: f64,
    points_per_second: f64,
    values_per_second: f64,
    server_cpu_seconds: f64,
    client_cpu_seconds: f64,
    values_per_cpu_second: f64,
}

/// A server of the benchmark's own; ended when dropped.
struct WireServer {
    child: Child,
    options: Options,
    /// Held open: the server would fail to write to a pipe without a reader.
    _lines: Lines<BufReader<ChildStdout>>,
}

impl WireServer {
    fn start(data: &Path, stored: bool) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program's file: {error}"))?;
        let local = "127.0.0.1:0";
        let mut command = Command::new(program);
        command.args(["serve", "--http", local, "--control", local, "--ingest", local, "--no-host-metrics", "--data"]);
        command.arg(data).stdout(Stdio::piped());
        if !stored {
            command.arg("--ingest-discard");
        }
        let mut child = command.spawn().map_err(|error| format!("cannot start a server: {error}"))?;
        let stdout = child.stdout.take().ok_or("the server has no output")?;
        let mut lines = BufReader::new(stdout).lines();
        let mut address = |name: &str| -> Result<SocketAddr, String> {
            let line = lines.next().and_then(Result::ok).unwrap_or_default();
            let address = line.strip_prefix(name).and_then(|rest| rest.trim().parse().ok());
            address.ok_or_else(|| "the server did not start; its message stands above".to_owned())
        };
        // The first line is for people.
        let _ = address("");
        let (control, ingest) = (address("control:")?, address("ingest:")?);
        Ok(Self { child, options: Options { control, ingest, ..Options::default() }, _lines: lines })
    }
}

impl Drop for WireServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn run(flags: &WireFlags) -> Result<ExitCode, String> {
    let columns: Vec<Vec<f64>> = (0..MEMBERS).map(walk).collect();
    let mut cases = Vec::new();
    for stored in [true, false] {
        for hosts in flags.hosts.iter().filter(|_| stored || !flags.stored_only) {
            for clients in &flags.clients {
                cases.push(measure(flags, stored, *hosts, *clients, &columns)?);
            }
        }
    }
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&cases).map_err(|error| error.to_string())?);
    } else {
        println!("{}", render(&cases));
    }
    Ok(ExitCode::SUCCESS)
}

/// Whole numbers between 0 and 100 that wander, as the Time Series Benchmark Suite's do.
fn walk(member: usize) -> Vec<f64> {
    let mut state = member as u64 + 1;
    let mut value = 50.0f64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value = (value + ((state >> 11) as f64 / (1u64 << 53) as f64 - 0.5) * 3.46).clamp(0.0, 100.0);
        value.trunc()
    };
    (0..VALUES).map(|_| next()).collect()
}

fn measure(flags: &WireFlags, stored: bool, hosts: u32, clients: u16, columns: &[Vec<f64>]) -> Result<Case, String> {
    let data = std::env::temp_dir().join(format!("thalweg-bench-wire-{}", std::process::id()));
    let server = WireServer::start(&data, stored)?;
    let pids = [server.child.id(), std::process::id()];
    let mut ready = Vec::new();
    for part in 0..u32::from(clients).min(hosts) {
        ready.push(connect(&server.options, hosts, part, u32::from(clients).min(hosts))?);
    }
    let before = pids.map(|pid| usage(pid).cpu_seconds);
    let begun = Instant::now();
    let written: Vec<Result<u64, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = ready
            .into_iter()
            .map(|(client, groups)| scope.spawn(move || send(flags, client, &groups, columns, begun)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a client stopped".to_owned()))).collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let after = pids.map(|pid| usage(pid).cpu_seconds);
    drop(server);
    let _ = std::fs::remove_dir_all(&data);
    let points = written.into_iter().sum::<Result<u64, String>>()?;
    let values = points as f64 * MEMBERS as f64;
    let (server_cpu_seconds, client_cpu_seconds) = (after[0] - before[0], after[1] - before[1]);
    Ok(Case {
        stored,
        hosts,
        clients,
        points,
        seconds,
        points_per_second: points as f64 / seconds,
        values_per_second: values / seconds,
        server_cpu_seconds,
        client_cpu_seconds,
        values_per_cpu_second: values / (server_cpu_seconds + client_cpu_seconds),
    })
}

/// A client with its share of the hosts.
fn connect(options: &Options, hosts: u32, part: u32, parts: u32) -> Result<(Client, Registered), String> {
    let options = Options { producer: u64::from(part) + 1, ..options.clone() };
    let mut client = Client::connect(options).map_err(|error| error.to_string())?;
    let labels =
        |host: u32| Labels::from_pairs([("hostname", format!("host_{host}"))]).map_err(|error| error.to_string());
    let own = (part..hosts).step_by(parts as usize).map(labels).collect::<Result<Vec<_>, _>>()?;
    let field = |member| Field { name: format!("usage_{member}"), value_type: ValueType::F64 };
    let members: Vec<_> = (0..MEMBERS).map(|member| (field(member), Labels::empty())).collect();
    let groups = client.register_groups("default", "cpu", &own, &members).map_err(|error| error.to_string())?;
    Ok((client, groups))
}

/// Sends batches until the time is over, waits until all are acknowledged; the points.
fn send(
    flags: &WireFlags,
    mut client: Client,
    groups: &Registered,
    columns: &[Vec<f64>],
    begun: Instant,
) -> Result<u64, String> {
    let rows = flags.batch_rows as usize;
    let (mut tokens, mut timestamps_ns) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
    let mut points = 0usize;
    while begun.elapsed().as_secs_f64() < flags.seconds {
        tokens.clear();
        timestamps_ns.clear();
        for point in points..points + rows {
            let host = point % groups.tokens.len();
            tokens.push(groups.tokens[host]);
            timestamps_ns.push(START_NS + (point / groups.tokens.len()) as i64 * STEP_NS);
        }
        let start = points % (VALUES - rows);
        let columns: Vec<(Values<'_>, &[u8])> =
            columns.iter().map(|column| (Values::F64(&column[start..start + rows]), [].as_slice())).collect();
        let block = Outgoing {
            measurement: groups.measurement,
            slots: &groups.slots,
            tokens: &tokens,
            timestamps_ns: &timestamps_ns,
            columns: &columns,
        };
        client.send(&[block]).map_err(|error| error.to_string())?;
        points += rows;
    }
    let exceptions = client.flush().map_err(|error| error.to_string())?;
    match exceptions.first() {
        None => Ok(points as u64),
        Some(exception) => Err(format!("a batch was not written: {exception:?}")),
    }
}

fn render(cases: &[Case]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "server",
        "hosts",
        "clients",
        "M points/s",
        "M values/s",
        "CPU s server",
        "CPU s clients",
        "M values/CPU s",
    ]);
    let millions = |value: f64| format!("{:.2}", value / 1e6);
    for case in cases {
        table.add_row([
            if case.stored { "stores" } else { "throws away" }.to_owned(),
            case.hosts.to_string(),
            case.clients.to_string(),
            millions(case.points_per_second),
            millions(case.values_per_second),
            format!("{:.2}", case.server_cpu_seconds),
            format!("{:.2}", case.client_cpu_seconds),
            millions(case.values_per_cpu_second),
        ]);
    }
    table
}
