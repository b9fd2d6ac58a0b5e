//! `thalweg bench redis`: `TS.ADD` in pipelines over some connections, and what the server spends on it. With `--address` another server
//! that speaks Redis's protocol is written to.

use std::io::{BufRead, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use crate::load::OwnServer;
use crate::measure::process::usage;
use crate::report;
use crate::storage::quantile;

const EXAMPLES: &str = "Examples:
  thalweg bench redis                                     50 samples in a pipeline, 16 connections
  thalweg bench redis --connections 1 --pipeline 1
  thalweg bench redis --address 127.0.0.1:6379 --pid 4711 another server, whose CPU time is that of a process";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RedisFlags {
    /// For how long samples are added
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// Connections at a time, each with a thread
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    connections: u16,
    /// Samples that are sent before their replies are read
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pipeline: u16,
    /// Keys of each connection, one after another
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    keys: u32,
    /// Write to this server instead of one of its own
    #[arg(long, requires = "pid")]
    address: Option<SocketAddr>,
    /// The process of that server
    #[arg(long)]
    pid: Option<u32>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    connections: u16,
    pipeline: u16,
    samples: u64,
    seconds: f64,
    samples_per_second: f64,
    server_cpu_seconds: f64,
    samples_per_server_cpu_second: f64,
    pipeline_median_ms: f64,
    pipeline_p99_ms: f64,
}

pub(crate) fn run(flags: &RedisFlags) -> Result<ExitCode, String> {
    report(flags.json, |data| measure(flags, data), render)
}

fn measure(flags: &RedisFlags, data: &Path) -> Result<Report, String> {
    if let (Some(address), Some(pid)) = (flags.address, flags.pid) {
        return write(flags, address, pid);
    }
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.map_err(|error| format!("no free port: {error}"))?;
    let text = address.to_string();
    let server = OwnServer::start_with(data, &["--control", "off", "--postgres", "off", "--redis", &text])?;
    let report = write(flags, address, server.child.id())?;
    server.stop()?;
    Ok(report)
}

fn write(flags: &RedisFlags, address: SocketAddr, pid: u32) -> Result<Report, String> {
    // The keys are there before the time begins.
    let length = Duration::from_secs(u64::from(flags.seconds));
    let connections = (0..flags.connections).map(|number| Connection::new(flags, address, number));
    let connections = connections.collect::<Result<Vec<_>, _>>()?;
    let (before, begun) = (usage(pid), Instant::now());
    let written: Vec<Result<(u64, Vec<f64>), String>> = thread::scope(|scope| {
        let workers: Vec<_> =
            connections.into_iter().map(|connection| scope.spawn(move || connection.write_for(length))).collect();
        let ended = workers.into_iter().map(|worker| worker.join().map_err(|_| "a connection's thread ended early")?);
        ended.collect()
    });
    let (seconds, after) = (begun.elapsed().as_secs_f64(), usage(pid));
    let (mut samples, mut latencies_ms) = (0, Vec::new());
    for written in written {
        let (count, latencies) = written?;
        samples += count;
        latencies_ms.extend(latencies);
    }
    let server_cpu_seconds = after.cpu_seconds - before.cpu_seconds;
    Ok(Report {
        connections: flags.connections,
        pipeline: flags.pipeline,
        samples,
        seconds,
        samples_per_second: samples as f64 / seconds,
        server_cpu_seconds,
        samples_per_server_cpu_second: samples as f64 / server_cpu_seconds,
        pipeline_median_ms: quantile(&mut latencies_ms, 0.5),
        pipeline_p99_ms: quantile(&mut latencies_ms, 0.99),
    })
}

/// A connection that adds samples to keys of its own.
struct Connection {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
    prefix: String,
    keys: u32,
    pipeline: u16,
    /// Samples so far.
    written: u64,
}

/// The time of the first samples, milliseconds.
const START_MS: u64 = 1_767_225_600_000;

impl Connection {
    fn new(flags: &RedisFlags, address: SocketAddr, number: u16) -> Result<Self, String> {
        let failed = |error| format!("{address}: {error}");
        let stream = TcpStream::connect(address).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let replies = BufReader::new(stream.try_clone().map_err(failed)?);
        let (keys, pipeline) = (flags.keys, flags.pipeline);
        let prefix = format!("bench:{number}:");
        let mut connection = Self { stream, replies, prefix, keys, pipeline, written: 0 };
        while connection.written < u64::from(keys) {
            connection.pipeline()?;
        }
        Ok(connection)
    }

    /// Adds samples and reads the replies.
    fn pipeline(&mut self) -> Result<(), String> {
        let mut requests = Vec::with_capacity(usize::from(self.pipeline) * 96);
        for number in self.written..self.written + u64::from(self.pipeline) {
            let (key, round) = (number % u64::from(self.keys), number / u64::from(self.keys));
            let words = [
                "TS.ADD".to_owned(),
                format!("{}{key}", self.prefix),
                (START_MS + round * 1_000).to_string(),
                (number % 977).to_string(),
            ];
            requests.extend_from_slice(b"*4\r\n");
            words.iter().for_each(|word| requests.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
        }
        self.stream.write_all(&requests).map_err(|error| format!("cannot write: {error}"))?;
        let mut line = String::new();
        for _ in 0..self.pipeline {
            line.clear();
            self.replies.read_line(&mut line).map_err(|error| format!("cannot read replies: {error}"))?;
            if !line.starts_with(':') {
                return Err(format!("a sample was not added: {}", line.trim()));
            }
        }
        self.written += u64::from(self.pipeline);
        Ok(())
    }

    fn write_for(mut self, length: Duration) -> Result<(u64, Vec<f64>), String> {
        let (before, begun, mut latencies_ms) = (self.written, Instant::now(), Vec::new());
        while begun.elapsed() < length {
            let sent = Instant::now();
            self.pipeline()?;
            latencies_ms.push(sent.elapsed().as_secs_f64() * 1e3);
        }
        Ok((self.written - before, latencies_ms))
    }
}

fn render(report: &Report) -> String {
    format!(
        "{} samples over {} connections, {} in a pipeline, in {:.1} s: {:.0} a second\n\
         the server's CPU time: {:.2} s, {:.0} samples a CPU second\n\
         a pipeline took {:.2} ms (median), {:.2} ms (99 of 100)",
        report.samples,
        report.connections,
        report.pipeline,
        report.seconds,
        report.samples_per_second,
        report.server_cpu_seconds,
        report.samples_per_server_cpu_second,
        report.pipeline_median_ms,
        report.pipeline_p99_ms,
    )
}
