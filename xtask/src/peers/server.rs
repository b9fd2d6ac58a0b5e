//! How each server is started, told apart and asked.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::install;
use super::process::Processes;

/// How long a server may take to start.
const START_MAX: Duration = Duration::from_mins(1);

/// The database that is written to where one must be named.
const DATABASE: &str = "bench";

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// This project.
    Thalweg,
    /// The single-node server.
    VictoriaMetrics,
    /// Version 1.
    Influxdb,
    /// Over HTTP, into tables with a write-ahead log.
    Questdb,
    /// With its receiver of remote write.
    Prometheus,
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Influx line protocol.
    Line,
    /// Prometheus remote write 1.0.
    RemoteWrite,
}

/// All that can be measured, this project first: ratios are to it.
pub const PEERS: [Peer; 5] = [Peer::Thalweg, Peer::VictoriaMetrics, Peer::Influxdb, Peer::Questdb, Peer::Prometheus];

impl Peer {
    /// As options and tables have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Thalweg => "thalweg",
            Self::VictoriaMetrics => "victoria-metrics",
            Self::Influxdb => "influxdb",
            Self::Questdb => "questdb",
            Self::Prometheus => "prometheus",
        }
    }

    /// Whether it takes a protocol.
    #[must_use]
    pub fn takes(self, protocol: Protocol) -> bool {
        match protocol {
            Protocol::Line => self != Self::Prometheus,
            Protocol::RemoteWrite => matches!(self, Self::Thalweg | Self::VictoriaMetrics | Self::Prometheus),
        }
    }

    /// The program's file, fetched if need be.
    pub(super) fn install(self, cache: &Path, thalweg: &Path) -> Result<PathBuf, String> {
        match self {
            Self::Thalweg => Ok(thalweg.to_owned()),
            Self::VictoriaMetrics => install::debian(cache, "victoria-metrics", "victoria-metrics"),
            Self::Influxdb => install::debian(cache, "influxdb", "influxd"),
            Self::Questdb => install::questdb(cache),
            Self::Prometheus => install::debian(cache, "prometheus", "prometheus"),
        }
    }

    /// The database that the loader names.
    pub(super) fn database(self) -> Option<&'static str> {
        (self == Self::Influxdb).then_some(DATABASE)
    }

    fn ready_path(self) -> &'static str {
        match self {
            Self::Thalweg => "/ready",
            Self::VictoriaMetrics => "/health",
            Self::Influxdb | Self::Questdb => "/ping",
            Self::Prometheus => "/-/ready",
        }
    }

    /// How long it may wait before it begins to merge what was written last.
    pub(super) fn settle_at_least(self) -> Duration {
        // The cold durations of the settings below, and as much again to notice.
        Duration::from_secs(if self == Self::Influxdb { 12 } else { 6 })
    }

    fn command(self, program: &Path, data: &Path, address: &str) -> Result<Command, String> {
        let write = |name: &str, text: &str| {
            let file = data.join(name);
            fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display())).map(|()| file)
        };
        let mut command = Command::new(program);
        match self {
            Self::Thalweg => {
                command.arg("serve").arg("--data").arg(data).args(["--http", address, "--no-host-metrics"]);
                command.args(["--line", "off", "--graphite", "off", "--opentsdb", "off", "--otlp-grpc", "off"]);
            }
            Self::VictoriaMetrics => {
                command.arg(format!("-httpListenAddr={address}")).arg("-retentionPeriod=100y");
                command.arg(format!("-storageDataPath={}", data.display()));
                // Its limits are below a million series.
                command.args(["-search.maxUniqueTimeseries=20000000", "-search.maxSeries=20000000"]);
            }
            Self::Influxdb => {
                command.arg("-config").arg(write("influxdb.conf", &influxdb_settings(data, address)?)?);
            }
            Self::Questdb => {
                let conf = data.join("conf");
                fs::create_dir_all(&conf).map_err(|error| format!("{}: {error}", conf.display()))?;
                write("conf/server.conf", &questdb_settings(address))?;
                command = Command::new("java");
                command.args(["-XX:+UseParallelGC", "-Xmx6g", "-p"]).arg(program);
                command.args(["-m", "io.questdb/io.questdb.ServerMain", "-d"]).arg(data);
            }
            Self::Prometheus => {
                let config = write("prometheus.yml", "scrape_configs: []\n")?;
                command.arg(format!("--config.file={}", config.display()));
                command.arg(format!("--web.listen-address={address}"));
                command.arg(format!("--storage.tsdb.path={}", data.join("tsdb").display()));
                command.args(["--storage.tsdb.retention.time=100y", "--web.enable-remote-write-receiver"]);
            }
        }
        Ok(command)
    }
}

/// Debian's settings but for: the index for many series, no limits of series, time enough to write under load, no monitoring of itself, and data that was
/// written last is merged after seconds rather than hours, so that it can be waited for.
fn influxdb_settings(data: &Path, address: &str) -> Result<String, String> {
    let (data, rpc) = (data.display(), free_address()?);
    Ok(format!(
        r#"reporting-enabled = false
bind-address = "{rpc}"
[meta]
  dir = "{data}/meta"
[data]
  dir = "{data}/data"
  wal-dir = "{data}/wal"
  index-version = "tsi1"
  cache-max-memory-size = "4g"
  cache-snapshot-write-cold-duration = "5s"
  compact-full-write-cold-duration = "5s"
  max-series-per-database = 0
  max-values-per-tag = 0
[coordinator]
  write-timeout = "60s"
[http]
  bind-address = "{address}"
  log-enabled = false
  max-body-size = 0
[monitor]
  store-enabled = false
"#
    ))
}

/// Defaults but for: what is acknowledged is on disk, and nothing listens but HTTP.
fn questdb_settings(address: &str) -> String {
    format!(
        "http.net.bind.to={address}\nhttp.min.enabled=false\npg.enabled=false\nline.tcp.enabled=false\n\
         telemetry.enabled=false\ncairo.commit.mode=sync\n"
    )
}

/// A running server.
pub(super) struct Server {
    pub(super) pid: u32,
    pub(super) url: String,
    pub(super) data: PathBuf,
}

impl Server {
    /// Starts a server on a data folder of its own and waits until it is ready.
    pub(super) fn start(processes: &Processes, peer: Peer, program: &Path) -> Result<Self, String> {
        let data = processes.folder(peer.name())?;
        let address = free_address()?;
        let mut command = peer.command(program, &data, &address)?;
        let pid = processes.start(command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        let server = Self { pid, url: format!("http://{address}"), data };
        server.wait_until_ready(peer)?;
        if peer == Peer::Influxdb {
            server.post(&format!("/query?q=CREATE+DATABASE+{DATABASE}"))?;
        }
        Ok(server)
    }

    fn wait_until_ready(&self, peer: Peer) -> Result<(), String> {
        let start = Instant::now();
        while start.elapsed() < START_MAX {
            if ureq::get(format!("{}{}", self.url, peer.ready_path())).call().is_ok() {
                return Ok(());
            }
            super::process::cpu_seconds(self.pid).map_err(|error| format!("{} did not start: {error}", peer.name()))?;
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(format!("{} was not ready after {START_MAX:?}", peer.name()))
    }

    pub(super) fn post(&self, path: &str) -> Result<(), String> {
        let url = format!("{}{path}", self.url);
        ureq::post(&url).send_empty().map(|_| ()).map_err(|error| format!("{url}: {error}"))
    }
}

/// An address of loopback whose port is free now.
pub(super) fn free_address() -> Result<String, String> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    address.map(|address| address.to_string()).map_err(|error| format!("no free port: {error}"))
}
