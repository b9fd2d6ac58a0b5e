//! Tables of what was measured.

use std::fmt::Write;

use serde_json::json;

use super::{Case, Peer, Protocol};

/// What a measurement gave.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "names and units say it; what is not plain is said")]
pub struct Figures {
    pub peer: Peer,
    pub case: Case,
    pub connections: u32,
    pub values: f64,
    /// From the first byte to the last acknowledgement.
    pub seconds: f64,
    pub rows_per_second: f64,
    pub latency_p50_ms: f64,
    pub latency_p99_ms: f64,
    pub loader_cpu_seconds: f64,
    /// The server's, until the last acknowledgement.
    pub write_cpu_seconds: f64,
    /// The server's, until it had settled.
    pub cpu_seconds: f64,
    pub resident_peak_bytes: u64,
    /// Once settled, the log included.
    pub disk_bytes: u64,
    pub log_bytes: u64,
}

impl Figures {
    /// The figure that counts.
    #[must_use]
    pub fn values_per_cpu_second(&self) -> f64 {
        self.values / self.cpu_seconds.max(0.01)
    }

    /// A line to watch.
    pub(super) fn progress(&self) -> String {
        let rate = self.values_per_cpu_second() / 1e6;
        let (peer, case, seconds) = (self.peer.name(), self.case.name(), self.seconds);
        format!("{case}, {} connections, {peer}: {rate:.2} M values per CPU second, {seconds:.1} s", self.connections)
    }

    fn row(&self, ratio: f64) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        format!(
            "| {} | {} | {:.2} M | {} | {:.2} s | {:.2} s | {:.2} M | {:.1} / {:.1} ms | {:.0} MiB | {:.0} MiB | {:.2} |",
            self.peer.name(),
            self.connections,
            self.values_per_cpu_second() / 1e6,
            if self.peer == Peer::Thalweg || ratio.is_nan() { "–".to_owned() } else { format!("{ratio:.1} ×") },
            self.write_cpu_seconds,
            self.cpu_seconds,
            self.rows_per_second / 1e6,
            self.latency_p50_ms,
            self.latency_p99_ms,
            mib(self.resident_peak_bytes),
            mib(self.disk_bytes),
            self.disk_bytes.saturating_sub(self.log_bytes) as f64 / self.values.max(1.0),
        )
    }
}

impl Case {
    fn name(&self) -> String {
        match self.protocol {
            Protocol::Line => format!("line protocol, {} series", self.series),
            Protocol::RemoteWrite => {
                format!("remote write, {} series, {} samples each in a request", self.series, self.samples)
            }
        }
    }
}

/// The measurement of a peer with its best number of connections.
fn best(all: &[Figures], case: Case, peer: Peer) -> Option<&Figures> {
    let of_peer = all.iter().filter(|figures| figures.case == case && figures.peer == peer);
    of_peer.max_by(|left, right| left.values_per_cpu_second().total_cmp(&right.values_per_cpu_second()))
}

/// How many times the peer's best this project's best is; not a number if one is missing.
fn ratio(all: &[Figures], case: Case, peer: Peer) -> f64 {
    let rate = |peer| best(all, case, peer).map_or(f64::NAN, Figures::values_per_cpu_second);
    rate(Peer::Thalweg) / rate(peer)
}

fn cases(all: &[Figures]) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for figures in all {
        if !cases.contains(&figures.case) {
            cases.push(figures.case);
        }
    }
    cases
}

/// A table for each case; the line of a peer's best number of connections has the ratio.
#[must_use]
pub fn render(setting: &[String], all: &[Figures]) -> String {
    let mut text = format!("{}\n", setting.join(" · "));
    for case in cases(all) {
        // Writing into a string does not fail.
        let _ = write!(
            text,
            "\n{}\n\n| server | connections | values per CPU s | Thalweg's best is | CPU, writing | CPU, settled | rows/s \
             | p50 / p99 | memory, peak | disk | B per value without log |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
            case.name()
        );
        for figures in all.iter().filter(|figures| figures.case == case) {
            let own = best(all, case, Peer::Thalweg).map_or(f64::NAN, Figures::values_per_cpu_second);
            let _ = writeln!(text, "{}", figures.row(own / figures.values_per_cpu_second()));
        }
        let others = super::PEERS.into_iter().filter(|peer| *peer != Peer::Thalweg);
        let ratios = others.filter_map(|peer| {
            let best = best(all, case, peer)?;
            let (name, ratio) = (peer.name(), ratio(all, case, peer));
            (!ratio.is_nan()).then(|| format!("{ratio:.1} × {name} ({} connections)", best.connections))
        });
        let ratios: Vec<String> = ratios.collect();
        if !ratios.is_empty() {
            let _ = writeln!(text, "\nAt each one's best: {}", ratios.join(", "));
        }
    }
    text
}

/// Everything, for programs.
pub(super) fn json(setting: &[String], all: &[Figures]) -> Result<String, String> {
    let figures = |figures: &Figures| {
        json!({
            "server": figures.peer.name(),
            "protocol": if figures.case.protocol == Protocol::Line { "line" } else { "remote-write" },
            "series": figures.case.series,
            "samples_per_series": figures.case.samples,
            "connections": figures.connections,
            "values": figures.values,
            "seconds": figures.seconds,
            "rows_per_second": figures.rows_per_second,
            "values_per_cpu_second": figures.values_per_cpu_second(),
            "write_cpu_seconds": figures.write_cpu_seconds,
            "cpu_seconds": figures.cpu_seconds,
            "loader_cpu_seconds": figures.loader_cpu_seconds,
            "latency_p50_ms": figures.latency_p50_ms,
            "latency_p99_ms": figures.latency_p99_ms,
            "resident_peak_bytes": figures.resident_peak_bytes,
            "disk_bytes": figures.disk_bytes,
            "log_bytes": figures.log_bytes,
        })
    };
    let ratios = cases(all).into_iter().flat_map(|case| {
        let others = super::PEERS.into_iter().filter(move |peer| best(all, case, *peer).is_some());
        others.map(move |peer| json!({"case": case.name(), "server": peer.name(), "ratio": ratio(all, case, peer)}))
    });
    let ratios: Vec<_> = ratios.collect();
    let all: Vec<_> = all.iter().map(figures).collect();
    let report = json!({"setting": setting, "measurements": all, "ratios_at_best_connections": ratios});
    serde_json::to_string_pretty(&report).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(peer: Peer, connections: u32, cpu_seconds: f64) -> Figures {
        let case = Case { protocol: Protocol::Line, series: 100, samples: 1, values: 1_000_000 };
        Figures {
            peer,
            case,
            connections,
            values: 1e6,
            seconds: 1.0,
            rows_per_second: 1e5,
            latency_p50_ms: 1.0,
            latency_p99_ms: 2.0,
            loader_cpu_seconds: 0.1,
            write_cpu_seconds: cpu_seconds / 2.0,
            cpu_seconds,
            resident_peak_bytes: 1 << 20,
            disk_bytes: 3_000_000,
            log_bytes: 1_000_000,
        }
    }

    #[test]
    fn ratios_are_those_of_the_best() {
        let all = [
            figures(Peer::Thalweg, 1, 1.0),
            figures(Peer::Thalweg, 4, 0.5),
            figures(Peer::Influxdb, 1, 5.0),
            figures(Peer::Influxdb, 4, 9.0),
        ];
        assert!((ratio(&all, all[0].case, Peer::Influxdb) - 10.0).abs() < 1e-9);
        let text = render(&["2 cores".to_owned()], &all);
        let wanted =
            ["10.0 × influxdb (1 connections)", "| influxdb | 4 | 0.11 M | 18.0 × |", "| 1 MiB | 3 MiB | 2.00 |"];
        assert!(wanted.iter().all(|part| text.contains(part)), "{text}");
        assert!(json(&[], &all).unwrap().contains(r#""ratio": 10.0"#));
        let without = render(&[], &all[2..]);
        assert!(without.contains("| influxdb | 4 | 0.11 M | – |") && !without.contains("NaN"), "{without}");
    }
}
