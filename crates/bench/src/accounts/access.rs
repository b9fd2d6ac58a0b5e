//! `thalweg bench access`: what TLS and tokens cost the server, on ingestion and on small queries, over kept connections.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Args;
use client::http::HttpClient;
use client::tls::TlsOptions;
use comfy_table::{Table, presets};
use serde::Serialize;

use crate::load::OwnServer;
use crate::measure::process::usage;
use crate::report;

/// Rows of a body, and fields of each.
const BODY_ROWS: u64 = 1_000;
const FIELDS: u64 = 10;

const EXAMPLES: &str = "Examples:
  thalweg bench access                         a plain server, one with tokens, one with TLS, one with both
  thalweg bench access --bodies 20000 --queries 50000";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AccessFlags {
    /// Bodies of 10,000 values that are written to each server
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    bodies: u64,
    /// Small queries that each server is asked
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    queries: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// A server as it is set up.
#[derive(Clone, Copy)]
struct Setup {
    name: &'static str,
    has_tls: bool,
    has_tokens: bool,
}

const SETUPS: [Setup; 4] = [
    Setup { name: "plain", has_tls: false, has_tokens: false },
    Setup { name: "tokens", has_tls: false, has_tokens: true },
    Setup { name: "TLS", has_tls: true, has_tokens: false },
    Setup { name: "TLS and tokens", has_tls: true, has_tokens: true },
];

#[derive(Debug, Serialize)]
struct Cost {
    setup: &'static str,
    /// CPU of the server for a million values.
    write_cpu_ms: f64,
    /// And for a thousand queries.
    query_cpu_ms: f64,
}

pub(crate) fn run(flags: &AccessFlags) -> Result<ExitCode, String> {
    report(flags.json, |folder| measure(flags, folder), |costs| render(costs))
}

fn measure(flags: &AccessFlags, folder: &Path) -> Result<Vec<Cost>, String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let certificates = make_certificates(folder)?;
    SETUPS.iter().map(|setup| measure_one(flags, *setup, (folder, &certificates))).collect()
}

fn make_certificates(folder: &Path) -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program's file: {error}"))?;
    let certificates = folder.join("certificates");
    let made = Command::new(program)
        .arg("cert")
        .arg(&certificates)
        .args(["--names", "127.0.0.1"])
        .stdout(Stdio::null())
        .status()
        .map_err(|error| format!("cannot make certificates: {error}"))?;
    if made.success() { Ok(certificates) } else { Err("thalweg cert failed; its message stands above".to_owned()) }
}

fn measure_one(flags: &AccessFlags, setup: Setup, (folder, certificates): (&Path, &Path)) -> Result<Cost, String> {
    let data = folder.join("data");
    // Left by the setup before.
    let _ = std::fs::remove_dir_all(&data);
    let [certificate, key, authority] =
        ["server.pem", "server-key.pem", "ca.pem"].map(|name| certificates.join(name).display().to_string());
    let mut options = vec!["--control", "off", "--postgres", "off"];
    if setup.has_tls {
        options.extend(["--tls-cert", &certificate, "--tls-key", &key]);
    }
    if setup.has_tokens {
        options.extend(["--sign-in", "required"]);
    }
    let server = OwnServer::start_with(&data, &options)?;
    let mut client = HttpClient::new(&server.url);
    if setup.has_tls {
        client = client.with_tls(&TlsOptions::from_files(Some(authority.as_ref()), None, None)?)?;
    }
    if setup.has_tokens {
        let file = data.join("admin-token");
        let token = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        client = client.with_token(&token);
    }
    let cpu_seconds = || usage(server.child.id()).cpu_seconds;
    write(&client, 0)?;
    let before = cpu_seconds();
    (1..=flags.bodies).try_for_each(|number| write(&client, number))?;
    let written = cpu_seconds();
    (0..flags.queries).try_for_each(|_| query(&client))?;
    let asked = cpu_seconds();
    server.stop()?;
    let values = (flags.bodies * BODY_ROWS * FIELDS) as f64;
    Ok(Cost {
        setup: setup.name,
        write_cpu_ms: (written - before) * 1_000.0 / (values / 1e6),
        query_cpu_ms: (asked - written) * 1_000.0 / (flags.queries as f64 / 1e3),
    })
}

fn write(client: &HttpClient, number: u64) -> Result<(), String> {
    let mut lines = String::new();
    for row in 0..BODY_ROWS {
        // Writing to a string cannot fail.
        let _ = write!(lines, "cpu,host=h{row} ");
        for field in 0..FIELDS {
            let comma = if field == 0 { "" } else { "," };
            let _ = write!(lines, "{comma}f{field}={}", (row * 7 + field * 13 + number) % 100);
        }
        let _ = writeln!(lines, " {}", 1_700_000_000_000_000_000 + number * 10_000_000_000);
    }
    let answer = client.post("/write", &[], lines.as_bytes())?;
    if answer.status == 204 { Ok(()) } else { Err(format!("writing failed with {}: {}", answer.status, answer.body)) }
}

fn query(client: &HttpClient) -> Result<(), String> {
    let answer = client.get("/api/v1/query", &[("query", "cpu_f1{host=\"h7\"}"), ("time", "1700000010")])?;
    if answer.status == 200 { Ok(()) } else { Err(format!("a query got {}: {}", answer.status, answer.body)) }
}

fn render(costs: &[Cost]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["server", "CPU for a million values", "to plain", "CPU for a thousand queries", "to plain"]);
    let plain = costs.first().map_or((f64::NAN, f64::NAN), |plain| (plain.write_cpu_ms, plain.query_cpu_ms));
    for cost in costs {
        table.add_row([
            cost.setup.to_owned(),
            format!("{:.1} ms", cost.write_cpu_ms),
            format!("{:+.1} %", (cost.write_cpu_ms / plain.0 - 1.0) * 100.0),
            format!("{:.1} ms", cost.query_cpu_ms),
            format!("{:+.1} %", (cost.query_cpu_ms / plain.1 - 1.0) * 100.0),
        ]);
    }
    table.to_string()
}
