//! The programs that scrape: this one, and others that are compared with it.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use client::http::HttpClient;

use crate::load::OwnServer;
use crate::measure::process::{Usage, begin_peak, usage};

/// How long a program may take until it answers.
const START: Duration = Duration::from_mins(1);
/// Between two questions whether it does.
const PAUSE: Duration = Duration::from_millis(50);

/// A program and how it is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Program {
    /// This one.
    Thalweg,
    /// Prometheus, by its path.
    Prometheus(PathBuf),
    /// VictoriaMetrics with the agent that scrapes for it, and the program that runs its rules.
    VictoriaMetrics {
        /// What scrapes.
        agent: PathBuf,
        /// What stores.
        database: PathBuf,
        /// What runs rules; without it there are none.
        rules: Option<PathBuf>,
    },
}

impl Program {
    /// Its name, which is in the path of its scrapes.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Thalweg => "thalweg",
            Self::Prometheus(_) => "prometheus",
            Self::VictoriaMetrics { .. } => "victoriametrics",
        }
    }

    /// Returns whether it runs the rules.
    pub(super) const fn has_rules(&self) -> bool {
        !matches!(self, Self::VictoriaMetrics { rules: None, .. })
    }

    /// Starts it with the configuration of a folder, which also gets its data; returns when it answers.
    pub(super) fn start(&self, folder: &Path) -> Result<Running, String> {
        match self {
            Self::Thalweg => {
                let config = folder.join("prometheus.yml").display().to_string();
                let flags = ["--control", "off", "--postgres", "off", "--prometheus", &config];
                let server = OwnServer::start_with(&folder.join("data"), &flags)?;
                let url = server.url.clone();
                Ok(Running { url, own: Some(server), others: Vec::new() })
            }
            Self::Prometheus(path) => start_prometheus(path, folder),
            Self::VictoriaMetrics { agent, database, rules } => {
                start_victoria_metrics(agent, database, rules.as_deref(), folder)
            }
        }
    }
}

/// A program that runs; its processes end when it is dropped.
pub(super) struct Running {
    /// Where it takes queries.
    pub(super) url: String,
    own: Option<OwnServer>,
    others: Vec<Process>,
}

impl Running {
    fn pids(&self) -> impl Iterator<Item = u32> {
        let own = self.own.iter().map(|server| server.child.id());
        own.chain(self.others.iter().map(|process| process.0.id()))
    }

    /// Begins a new peak of memory.
    pub(super) fn begin_peak(&self) {
        self.pids().for_each(begin_peak);
    }

    /// CPU and memory of its processes, summed.
    pub(super) fn usage(&self) -> Usage {
        self.pids().map(usage).fold(Usage::default(), |sum, one| Usage {
            cpu_seconds: sum.cpu_seconds + one.cpu_seconds,
            resident_bytes: sum.resident_bytes + one.resident_bytes,
            resident_peak_bytes: sum.resident_peak_bytes + one.resident_peak_bytes,
        })
    }

    /// The one number that a query gives, if it gives any.
    pub(super) fn number(&self, query: &str, time_s: f64) -> Result<Option<f64>, String> {
        let parameters = [("query", query), ("time", &time_s.to_string()), ("nocache", "1")];
        let found = HttpClient::new(&self.url).api("/api/v1/query", &parameters)?;
        Ok(found["result"][0]["value"][1].as_str().and_then(|text| text.parse().ok()))
    }
}

/// A process of another program; killed when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process and waits until it answers under a path.
fn start(path: &Path, arguments: &[String], log: &Path, ready: &str) -> Result<Process, String> {
    let failed = |error: std::io::Error| format!("cannot start {}: {error}", path.display());
    let output = File::create(log).map_err(failed)?;
    let child = Command::new(path)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(output.try_clone().map_err(failed)?)
        .stderr(output)
        .spawn()
        .map_err(failed)?;
    let mut process = Process(child);
    let begun = Instant::now();
    loop {
        if HttpClient::new(ready).get("", &[]).is_ok_and(|answer| answer.status == 200) {
            return Ok(process);
        }
        let ended = process.0.try_wait().map_err(failed)?;
        if ended.is_some() || begun.elapsed() > START {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            let last = said.lines().last().unwrap_or("it said nothing").to_owned();
            return Err(format!("{} does not answer at {ready}: {last}", path.display()));
        }
        thread::sleep(PAUSE);
    }
}

/// A port that is free now.
fn free_address() -> Result<String, String> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map(|address| address.to_string()).map_err(|error| format!("cannot find a free port: {error}"))
}

fn flag(name: &str, value: &impl AsRef<Path>) -> String {
    format!("{name}={}", value.as_ref().display())
}

fn start_prometheus(path: &Path, folder: &Path) -> Result<Running, String> {
    let address = free_address()?;
    let arguments = [
        flag("--config.file", &folder.join("prometheus.yml")),
        flag("--storage.tsdb.path", &folder.join("data")),
        format!("--web.listen-address={address}"),
    ];
    let url = format!("http://{address}");
    let process = start(path, &arguments, &folder.join("prometheus.log"), &format!("{url}/-/ready"))?;
    Ok(Running { url, own: None, others: vec![process] })
}

fn start_victoria_metrics(
    agent: &Path,
    database: &Path,
    rules: Option<&Path>,
    folder: &Path,
) -> Result<Running, String> {
    let (address, agent_address) = (free_address()?, free_address()?);
    let url = format!("http://{address}");
    let arguments = [
        flag("-storageDataPath", &folder.join("data")),
        format!("-httpListenAddr={address}"),
        // Queries see what was just stored, as those of the others do.
        "-search.latencyOffset=0s".to_owned(),
    ];
    let mut others = vec![start(database, &arguments, &folder.join("database.log"), &format!("{url}/health"))?];
    let arguments = [
        flag("-promscrape.config", &folder.join("scrape.yml")),
        flag("-remoteWrite.tmpDataPath", &folder.join("agent")),
        format!("-remoteWrite.url={url}/api/v1/write"),
        format!("-httpListenAddr={agent_address}"),
    ];
    let ready = format!("http://{agent_address}/health");
    others.push(start(agent, &arguments, &folder.join("agent.log"), &ready)?);
    if let Some(rules) = rules {
        let rules_address = free_address()?;
        let arguments = [
            flag("-rule", &folder.join("rules.yml")),
            format!("-datasource.url={url}"),
            format!("-remoteWrite.url={url}"),
            format!("-remoteRead.url={url}"),
            // Nothing listens there, and no alert fires.
            "-notifier.url=http://127.0.0.1:9".to_owned(),
            format!("-httpListenAddr={rules_address}"),
        ];
        let ready = format!("http://{rules_address}/health");
        others.push(start(rules, &arguments, &folder.join("rules.log"), &ready)?);
    }
    Ok(Running { url, own: None, others })
}
