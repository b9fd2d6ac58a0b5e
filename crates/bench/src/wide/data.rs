//! The data of `thalweg bench wide`: what a Kubernetes cluster's exporters write, many lone series of ten labels and a few samples each.

use ingest::remote_write;

use crate::workload::generate::START_NS;

/// Pods that one metric has a series of each.
pub(super) const PODS: u64 = 10_000;
/// Metrics that share a set of pods.
const METRICS_PER_POD_SET: u64 = 25;
/// Containers of each pod, in the metric that is wider than the others.
const CONTAINERS: u64 = 10;
/// Pods that write a histogram, and its buckets.
const HISTOGRAM_PODS: u64 = 1_000;
const BUCKETS: [&str; 10] = ["0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "+Inf"];
/// Series of a request.
const BATCH_SERIES: u64 = 2_000;
/// Between two samples.
pub(super) const INTERVAL_MS: i64 = 15_000;

/// A metric of so many pods.
#[derive(Debug, Clone)]
struct Metric {
    name: String,
    /// Its containers are named after it, so that no two metrics share a label set.
    number: u64,
    pod_set: u64,
    series: u64,
    per_pod: u64,
    is_histogram: bool,
}

/// All requests that write the data, one after the other.
pub(super) struct Requests {
    metrics: Vec<Metric>,
    samples: i64,
    metric: usize,
    series: u64,
    packer: snap::raw::Encoder,
}

/// The end of the data: when queries are evaluated.
pub(super) const fn end_ms(samples: i64) -> i64 {
    START_NS / 1_000_000 + (samples - 1) * INTERVAL_MS
}

impl Requests {
    /// So many series in all, with so many samples each.
    pub(super) fn new(series: u64, samples: i64) -> Self {
        let metric = |name: &str, series: u64, per_pod: u64| {
            let is_histogram = name.ends_with("_bucket");
            Metric { name: name.to_owned(), number: 0, pod_set: 0, series, per_pod, is_histogram }
        };
        let mut metrics = vec![
            metric("container_cpu_usage_seconds_total", PODS, 1),
            metric("kube_pod_team", PODS, 1),
            metric("http_request_duration_seconds_bucket", HISTOGRAM_PODS * BUCKETS.len() as u64, BUCKETS.len() as u64),
        ];
        if series >= 4 * PODS * CONTAINERS {
            metrics.push(metric("container_memory_working_set_bytes", PODS * CONTAINERS, CONTAINERS));
        }
        let made: u64 = metrics.iter().map(|metric| metric.series).sum();
        let others = series.saturating_sub(made).div_ceil(PODS);
        metrics.extend((0..others).map(|number| Metric {
            pod_set: number / METRICS_PER_POD_SET,
            ..metric(&format!("workload_metric_{number}_total"), PODS, 1)
        }));
        (0..).zip(&mut metrics).for_each(|(number, metric)| metric.number = number);
        Self { metrics, samples, metric: 0, series: 0, packer: snap::raw::Encoder::new() }
    }

    /// How many series there are.
    pub(super) fn series(&self) -> u64 {
        self.metrics.iter().map(|metric| metric.series).sum()
    }
}

/// A packed request of remote write, and its series.
pub(super) struct Request {
    pub(super) body: Vec<u8>,
    pub(super) series: u64,
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let metric = self.metrics.get(self.metric)?;
        let end = (self.series + BATCH_SERIES).min(metric.series);
        let series: Vec<_> = (self.series..end).map(|number| metric.series_of(number, self.samples)).collect();
        let borrowed: Vec<Vec<(&str, &str)>> = series
            .iter()
            .map(|(labels, _)| labels.iter().map(|(name, value)| (*name, value.as_str())).collect())
            .collect();
        let written: Vec<_> = borrowed
            .iter()
            .zip(&series)
            .map(|(labels, (_, samples))| remote_write::Series { labels, samples })
            .collect();
        let body = self.packer.compress_vec(&remote_write::encode(&written, &[])).unwrap_or_default();
        let request = Request { body, series: end - self.series };
        self.series = end;
        if end == metric.series {
            (self.metric, self.series) = (self.metric + 1, 0);
        }
        Some(request)
    }
}

type Labels = Vec<(&'static str, String)>;

impl Metric {
    /// The labels, sorted, and the samples of a series.
    fn series_of(&self, number: u64, samples: i64) -> (Labels, Vec<(i64, f64)>) {
        let (pod, part) = (number / self.per_pod, number % self.per_pod);
        let global = self.pod_set * PODS + pod;
        let container = if self.is_histogram { 0 } else { part };
        let (number, pod_label) = (self.number, format!("app-{}-{:08x}-{global}", global % 100, mixed(global) as u32));
        let mut labels = vec![
            ("__name__", self.name.clone()),
            ("cluster", format!("eu-{}", pod % 4)),
            ("container", format!("container-{number}-{container}")),
            ("endpoint", "metrics".to_owned()),
            ("instance", format!("10.{}.{}.{}:9100", global / 65_536 % 256, global / 256 % 256, global % 256)),
            ("job", format!("job-{}", global % 50)),
        ];
        if self.is_histogram {
            labels.push(("le", BUCKETS.get(part as usize).copied().unwrap_or("+Inf").to_owned()));
        }
        labels.push(("namespace", format!("namespace-{}", global % 100)));
        labels.push(("node", format!("node-{}", global % 500)));
        labels.push(("pod", pod_label));
        if self.name == "kube_pod_team" {
            labels.push(("team", format!("team-{}", global % 20)));
        }
        labels.push(("zone", format!("zone-{}", pod % 3)));
        let seed = mixed(global * 16 + part);
        let level = if self.is_histogram { (part + 1) as f64 } else { 1.0 + (seed % 100) as f64 };
        let value = |step: i64| if self.name == "kube_pod_team" { 1.0 } else { level * (step + 1) as f64 };
        let start_ms = START_NS / 1_000_000;
        (labels, (0..samples).map(|step| (start_ms + step * INTERVAL_MS, value(step))).collect())
    }
}

/// A number that looks drawn, of a number (`SplitMix64`).
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_is_written_once() {
        let requests = Requests::new(60_000, 2);
        assert_eq!(requests.series(), 60_000);
        assert_eq!(requests.map(|request| request.series).sum::<u64>(), 60_000);
    }

    #[test]
    fn labels_are_sorted_and_ten_with_the_name_more() {
        for metric in Requests::new(500_000, 1).metrics {
            let (labels, samples) = metric.series_of(metric.series - 1, 3);
            assert!(labels.is_sorted(), "{labels:?}");
            assert!(labels.len() >= 10 && samples.len() == 3, "{labels:?}");
        }
    }
}
