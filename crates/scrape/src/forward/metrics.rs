//! The numbers of receivers, by the names that Prometheus's dashboards look for.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::queue::{Counts, KindCounts, Queue};

fn count(counter: &AtomicU64) -> f64 {
    counter.load(Ordering::Relaxed) as f64
}

fn seconds(time_ms: &AtomicI64) -> f64 {
    time_ms.load(Ordering::Relaxed) as f64 / 1000.0
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    read: fn(&Queue) -> f64,
}

const fn family(name: &'static str, kind: &'static str, help: &'static str, read: fn(&Queue) -> f64) -> Family {
    Family { name, kind, help, read }
}

const FAMILIES: [Family; 17] = [
    family("samples_pending", "gauge", "Samples that were read and are not sent yet.", |queue| {
        count(&queue.counts.pending) + count(&queue.counts.collecting)
    }),
    family("shards", "gauge", "Requests that are sent at the same time.", |queue| count(&queue.counts.shards)),
    family("shards_desired", "gauge", "How many the next round has.", |queue| count(&queue.counts.shards_desired)),
    family("shards_max", "gauge", "How many there may be.", |queue| queue.config.queue.shards_max as f64),
    family("shards_min", "gauge", "How many there are at least.", |queue| queue.config.queue.shards_min as f64),
    family("shard_capacity", "gauge", "Samples that may wait for each.", |queue| queue.config.queue.capacity as f64),
    family("max_samples_per_send", "gauge", "Samples of a request.", |queue| {
        queue.config.queue.samples_per_send_max as f64
    }),
    family("bytes_total", "counter", "Bytes of requests that were taken, as they are sent.", |queue| {
        count(&queue.counts.sent_bytes)
    }),
    family("metadata_bytes_total", "counter", "Bytes of requests of metadata that were taken.", |queue| {
        count(&queue.counts.metadata_bytes)
    }),
    family("queue_highest_timestamp_seconds", "gauge", "The latest time of a sample that was read.", |queue| {
        seconds(&queue.counts.highest_read_ms)
    }),
    family("queue_highest_sent_timestamp_seconds", "gauge", "The latest time of a sample that was sent.", |queue| {
        seconds(&queue.counts.highest_sent_ms)
    }),
    family("sent_batch_duration_seconds_sum", "counter", "How long requests took.", |queue| {
        count(&queue.counts.requests_ns) / 1e9
    }),
    family("sent_batch_duration_seconds_count", "counter", "Requests.", |queue| count(&queue.counts.requests)),
    family("thalweg_forward_log_gaps_total", "counter", "How often the log did not hold what comes next.", |queue| {
        count(&queue.counts.gaps)
    }),
    family("thalweg_forward_log_gaps_failed_total", "counter", "Those that were not sent as a whole.", |queue| {
        count(&queue.counts.gaps_failed)
    }),
    family(
        "thalweg_forward_log_read_errors_total",
        "counter",
        "How often the log, or the store in its place, could not be read.",
        |queue| count(&queue.counts.read_errors),
    ),
    family("enqueue_retries_total", "counter", "Always 0: nothing waits for a full queue.", |_| 0.0),
];

type KindOf = fn(&Counts) -> &KindCounts;
type CountOf = fn(&KindCounts) -> &AtomicU64;

const KINDS: [(&str, KindOf); 4] = [
    ("samples", |counts| &counts.samples),
    ("histograms", |counts| &counts.histograms),
    ("exemplars", |counts| &counts.exemplars),
    ("metadata", |counts| &counts.metadata),
];

const OUTCOMES: [(&str, &str, CountOf); 3] = [
    ("total", "that receivers took", |kind| &kind.sent),
    ("failed_total", "that receivers refused", |kind| &kind.failed),
    ("retried_total", "of requests that are sent again", |kind| &kind.retried),
];

/// All of it as text.
pub(super) fn render(queues: &[Arc<Queue>]) -> String {
    let mut out = String::new();
    if queues.is_empty() {
        return out;
    }
    let highest_s = queues.iter().map(|queue| seconds(&queue.counts.highest_read_ms)).fold(0.0, f64::max);
    let name = "highest_timestamp_in_seconds";
    head(&mut out, name, "gauge", "The latest time of a sample that any receiver is to get.");
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{} {highest_s}", whole(name));
    for Family { name, kind, help, read } in &FAMILIES {
        // Those of a summary are one family.
        let family = name.strip_suffix("_sum").unwrap_or(name);
        match *name {
            "sent_batch_duration_seconds_count" => {}
            "sent_batch_duration_seconds_sum" => head(&mut out, family, "summary", help),
            _ => head(&mut out, family, kind, help),
        }
        for queue in queues {
            line(&mut out, name, queue, "", read(queue));
        }
    }
    for (kind_name, kind_of) in KINDS {
        for (outcome, help, count_of) in OUTCOMES {
            let name = format!("{kind_name}_{outcome}");
            head(&mut out, &name, "counter", &format!("{kind_name} {help}."));
            for queue in queues {
                line(&mut out, &name, queue, "", count(count_of(kind_of(&queue.counts))));
            }
        }
    }
    head(&mut out, "samples_dropped_total", "counter", "Samples that are not sent, by the reason.");
    for queue in queues {
        for (reason, counter) in
            [("dropped_series", &queue.counts.dropped_by_relabelling), ("too_old", &queue.counts.dropped_too_old)]
        {
            line(&mut out, "samples_dropped_total", queue, &format!(",reason=\"{reason}\""), count(counter));
        }
    }
    out
}

/// The whole name of a number: Prometheus's, but for those that it does not have.
fn whole(name: &str) -> String {
    if name.starts_with("thalweg_") { name.to_owned() } else { format!("prometheus_remote_storage_{name}") }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let name = whole(name);
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn line(out: &mut String, name: &str, queue: &Queue, more: &str, value: f64) {
    let (name, remote, url) = (whole(name), escaped(&queue.name), escaped(&queue.url));
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{name}{{remote_name=\"{remote}\",url=\"{url}\"{more}}} {value}");
}
