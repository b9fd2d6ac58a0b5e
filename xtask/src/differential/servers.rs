//! The two servers: built or found, started, written to, asked, ended.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::data::Data;
use crate::sim::{cargo, finish};

/// The Go module's version of Prometheus 3.15.
const PROMETHEUS_VERSION: &str = "v0.315.0";

/// What of Prometheus is behind flags and on here.
const FEATURES: &str =
    "promql-experimental-functions,promql-duration-expr,promql-extended-range-selectors,promql-per-step-stats";

const START_MAX: Duration = Duration::from_mins(1);

/// A running server on a folder of its own; both go when it is dropped.
pub(crate) struct Server {
    child: Child,
    folder: PathBuf,
    url: String,
    agent: ureq::Agent,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Prometheus: the given program, or one that is built once and kept in the target folder.
pub(crate) fn prometheus(root: &Path, program: Option<&Path>) -> Result<Server, String> {
    let program = program.map_or_else(|| build_prometheus(root), |program| Ok(program.to_owned()))?;
    let (folder, address) = (folder("prometheus")?, free_address()?);
    let config = folder.join("prometheus.yml");
    fs::write(&config, "scrape_configs: []\n").map_err(|error| format!("{}: {error}", config.display()))?;
    let mut command = Command::new(program);
    command.arg(format!("--config.file={}", config.display())).arg(format!("--web.listen-address={address}"));
    command.arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()));
    command.args(["--storage.tsdb.retention.time=100y", "--web.enable-remote-write-receiver"]);
    command.args(["--log.level=error", &format!("--enable-feature={FEATURES}")]);
    start(command, folder, &address, "/-/ready")
}

/// This project: the given program, or the release build.
pub(crate) fn thalweg(root: &Path, program: Option<&Path>) -> Result<Server, String> {
    let program = match program {
        Some(program) => program.to_owned(),
        None => {
            finish(cargo(root).args(["build", "--quiet", "--release", "--package", "thalweg"]))?;
            root.join("target/release/thalweg")
        }
    };
    let (folder, address) = (folder("thalweg")?, free_address()?);
    let mut command = Command::new(program);
    command.arg("serve").arg("--data").arg(folder.join("data")).args(["--http", &address, "--no-host-metrics"]);
    for listener in ["--line", "--graphite", "--opentsdb", "--otlp-grpc", "--control", "--ingest"] {
        command.args([listener, "off"]);
    }
    start(command, folder, &address, "/ready")
}

fn build_prometheus(root: &Path) -> Result<PathBuf, String> {
    let target = root.join("target/differential");
    let program = target.join(format!("prometheus-{PROMETHEUS_VERSION}"));
    if program.exists() {
        return Ok(program);
    }
    fs::create_dir_all(&target).map_err(|error| format!("{}: {error}", target.display()))?;
    let module = format!("github.com/prometheus/prometheus@{PROMETHEUS_VERSION}");
    let mut download = Command::new("go");
    download.args(["mod", "download", "-json", &module]).current_dir(&target).env("GOFLAGS", "-mod=mod");
    let output = download.output().map_err(|error| format!("go, which builds Prometheus: {error}"))?;
    let found: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("go mod download {module}: {error}\n{}", String::from_utf8_lossy(&output.stderr)))?;
    let source = found["Dir"].as_str().ok_or_else(|| format!("go mod download {module}: {found}"))?;
    // Its module has replacements, so that `go install` refuses it from outside.
    let mut build = Command::new("go");
    build.args(["build", "-mod=readonly", "-o"]).arg(&program).arg("./cmd/prometheus").current_dir(source);
    finish(build.env("GOWORK", "off"))?;
    Ok(program)
}

fn folder(name: &str) -> Result<PathBuf, String> {
    let folder = std::env::temp_dir().join(format!("thalweg-differential-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder)
}

fn free_address() -> Result<String, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| format!("no free port: {error}"))?;
    listener.local_addr().map(|address| address.to_string()).map_err(|error| error.to_string())
}

fn start(mut command: Command, folder: PathBuf, address: &str, ready: &str) -> Result<Server, String> {
    let log = folder.join("log");
    let file = fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn();
    let child = child.map_err(|error| format!("{command:?}: {error}"))?;
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut server = Server { child, folder, url: format!("http://{address}"), agent };
    let begun = Instant::now();
    loop {
        let answer = server.agent.get(format!("{}{ready}", server.url)).call();
        if answer.is_ok_and(|answer| answer.status() == 200) {
            return Ok(server);
        }
        let ended = server.child.try_wait().ok().flatten();
        if ended.is_some() || begun.elapsed() > START_MAX {
            let log = fs::read_to_string(&log).unwrap_or_default();
            return Err(format!("{command:?} does not answer: {log}"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

impl Server {
    /// Writes the data by remote write.
    pub(crate) fn write(&self, data: &Data) -> Result<(), String> {
        data.requests().try_for_each(|body| self.send(&body))
    }

    fn send(&self, body: &[u8]) -> Result<(), String> {
        let request = self.agent.post(format!("{}/api/v1/write", self.url));
        let request = request
            .header("content-type", "application/x-protobuf")
            .header("content-encoding", "snappy")
            .header("x-prometheus-remote-write-version", "0.1.0");
        let mut answer = request.send(body).map_err(|error| format!("{}: {error}", self.url))?;
        if answer.status().is_success() {
            return Ok(());
        }
        let text = answer.body_mut().read_to_string().unwrap_or_default();
        Err(format!("{} does not take the data: {} {text}", self.url, answer.status()))
    }

    /// Asks by GET.
    pub(crate) fn ask(&self, path: &str, parameters: &[(&str, String)]) -> Result<serde_json::Value, String> {
        let pairs = parameters.iter().map(|(name, value)| (*name, value.as_str()));
        let mut answer = self
            .agent
            .get(format!("{}{path}", self.url))
            .query_pairs(pairs)
            .call()
            .map_err(|error| format!("{}: {error}", self.url))?;
        let text = answer.body_mut().with_config().limit(1 << 30).read_to_string();
        let text = text.map_err(|error| format!("{}: {error}", self.url))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}: {text}", self.url))
    }
}
