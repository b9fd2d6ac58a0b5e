//! Tables of what was measured.

use std::fmt::Write;

use serde_json::{Value, json};

/// What a measurement gave.
pub(super) struct Figures {
    pub(super) workload: String,
    pub(super) way: String,
    /// What `thalweg bench cache requests` reports.
    pub(super) report: Value,
    pub(super) database_cpu_seconds: f64,
    pub(super) cache_cpu_seconds: f64,
    pub(super) cache_resident_peak_bytes: u64,
}

impl Figures {
    fn figure(&self, name: &str) -> f64 {
        self.report[name].as_f64().unwrap_or(f64::NAN)
    }

    /// A line to watch.
    pub(super) fn progress(&self) -> String {
        let (rate, hits) = (self.figure("requests_per_second"), self.figure("point_hit_ratio") * 100.0);
        format!("{}, {}: {rate:.0} requests/s, {hits:.1} % of points from the cache", self.workload, self.way)
    }

    /// With what Thalweg's cache gave for the same requests.
    fn row(&self, thalweg: Option<&Self>) -> String {
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let of = |name: &str| thalweg.map_or(f64::NAN, |thalweg| thalweg.figure(name));
        let cpu = [self.figure("client_cpu_seconds"), self.database_cpu_seconds, self.cache_cpu_seconds];
        format!(
            "| {} | {:.0} | {:.2} | {:.2} | {:.2} / {:.2} / {:.2} | {:+.0} % | {:.1} | {:.1} | {} | {:.2} | {} |",
            self.way,
            self.figure("requests_per_second"),
            mib(self.figure("bytes_per_second")),
            of("bytes_per_second") / self.figure("bytes_per_second"),
            self.figure("mean_ms"),
            self.figure("p50_ms"),
            self.figure("p99_ms"),
            (of("mean_ms") / self.figure("mean_ms") - 1.0) * 100.0,
            self.figure("point_hit_ratio") * 100.0,
            self.figure("hit_ratio") * 100.0,
            self.figure("database_queries"),
            self.figure("database_points") / 1e6,
            cpu.map(|seconds| format!("{seconds:.1}")).join(" + "),
        )
    }
}

/// Whether all ways gave the same answers to the same requests.
pub(super) fn agree(all: &[Figures]) -> bool {
    all.iter().all(|figures| {
        let same = all.iter().filter(|other| other.workload == figures.workload);
        same.map(|other| &other.report["checksum"]).all(|checksum| *checksum == figures.report["checksum"])
    })
}

/// A table for each workload.
pub(super) fn render(setting: &[String], all: &[Figures]) -> String {
    let mut text = format!("{}\n", setting.join(" · "));
    let mut told: Vec<&str> = Vec::new();
    for figures in all {
        if told.contains(&figures.workload.as_str()) {
            continue;
        }
        told.push(&figures.workload);
        // Writing into a string does not fail.
        let _ = write!(
            text,
            "\n{}\n\n| | requests/s | MiB/s | thalweg cache is so many times that | mean / p50 / p99 ms | and its mean is | points hit % \
             | requests hit % | database queries | M points fetched | CPU s: client + database + cache |\n\
             |---|---|---|---|---|---|---|---|---|---|---|\n",
            figures.workload
        );
        let same: Vec<&Figures> = all.iter().filter(|other| other.workload == figures.workload).collect();
        let thalweg = same.iter().find(|other| other.way == "thalweg cache").copied();
        for one in same {
            let _ = writeln!(text, "{}", one.row(thalweg));
        }
    }
    if !agree(all) {
        text.push_str("\nNOT ALL ANSWERS ARE THE SAME\n");
    }
    text
}

/// Everything, for programs.
pub(super) fn json(setting: &[String], all: &[Figures]) -> Result<String, String> {
    let figures = |figures: &Figures| {
        json!({
            "way": figures.way,
            "database_cpu_seconds": figures.database_cpu_seconds,
            "cache_cpu_seconds": figures.cache_cpu_seconds,
            "cache_resident_peak_bytes": figures.cache_resident_peak_bytes,
            "report": figures.report,
        })
    };
    let measurements: Vec<Value> = all.iter().map(figures).collect();
    let report = json!({"setting": setting, "measurements": measurements, "answers_agree": agree(all)});
    serde_json::to_string_pretty(&report).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_the_cache() {
        let figures = |way: &str, bytes_per_second: f64, mean_ms: f64, checksum: u64| Figures {
            workload: "full".to_owned(),
            way: way.to_owned(),
            report: json!({"bytes_per_second": bytes_per_second, "mean_ms": mean_ms, "checksum": checksum}),
            database_cpu_seconds: 1.0,
            cache_cpu_seconds: 2.0,
            cache_resident_peak_bytes: 0,
        };
        let all = [figures("InfluxDB alone", 1e6, 8.0, 7), figures("thalweg cache", 3e6, 2.0, 7)];
        let text = render(&[], &all);
        assert!(text.contains("| 3.00 | 8.00 /") && text.contains("| -75 % |") && agree(&all), "{text}");
        assert!(!agree(&[figures("a", 1.0, 1.0, 1), figures("b", 1.0, 1.0, 2)]));
    }
}
