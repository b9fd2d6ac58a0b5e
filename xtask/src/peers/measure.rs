//! One measurement: a fresh server, the loader, and waiting until the server has settled.

use std::path::Path;

use serde_json::Value;

use super::process::{Processes, cpu_seconds, disk_bytes, resident_peak_bytes, settle};
use super::report::Figures;
use super::server::{Peer, Server};
use super::{Case, LOAD_SECONDS_MAX, loader};

/// What to measure, with which programs.
pub(super) struct Run<'a> {
    pub(super) case: Case,
    pub(super) connections: u32,
    pub(super) peer: Peer,
    pub(super) program: &'a Path,
    pub(super) loader: &'a Path,
}

impl Run<'_> {
    /// Makes the measurement; processes and folders are gone afterwards.
    pub(super) fn measure(&self, processes: &Processes) -> Result<Figures, String> {
        let figures = self.measure_started(processes);
        processes.end();
        let told = |error| format!("{}, {} connections: {error}", self.peer.name(), self.connections);
        figures.map_err(told)
    }

    fn measure_started(&self, processes: &Processes) -> Result<Figures, String> {
        let server = Server::start(processes, self.peer, self.program)?;
        let before = cpu_seconds(server.pid)?;
        let mut command = loader(self.loader, &server.url, &self.case, self.connections, LOAD_SECONDS_MAX);
        if let Some(database) = self.peer.database() {
            command.args(["--database", database]);
        }
        let report = processes.output(&mut command)?;
        let report: Value = serde_json::from_str(&report).map_err(|error| format!("the loader's report: {error}"))?;
        let written = cpu_seconds(server.pid)?;
        if self.peer == Peer::Thalweg {
            // Its newest data would stay in memory; the others' settings and habits bring theirs to disk soon.
            server.post("/api/v1/admin/compact")?;
        }
        let settled = settle(server.pid, self.peer.settle_at_least())?;
        let (disk_bytes, log_bytes) = disk_bytes(&server.data);
        let figure = |name: &str| report[name].as_f64().ok_or_else(|| format!("the loader's report has no {name}"));
        Ok(Figures {
            peer: self.peer,
            case: self.case,
            connections: self.connections,
            values: figure("values")?,
            seconds: figure("seconds")?,
            rows_per_second: figure("rows_per_second")?,
            latency_p50_ms: figure("latency_p50_ms")?,
            latency_p99_ms: figure("latency_p99_ms")?,
            loader_cpu_seconds: figure("loader_cpu_seconds")?,
            write_cpu_seconds: written - before,
            cpu_seconds: settled.max(written) - before,
            resident_peak_bytes: resident_peak_bytes(server.pid),
            disk_bytes,
            log_bytes,
        })
    }
}
