//! The server's own numbers, in Prometheus's text format.

pub(crate) mod pushed;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use db::Db;
use ingest::LineErrors;
use ingest::otlp::DeltaStats;
use ingest::replicas::ReplicaStats;

use crate::scheduler::running::Queries;

/// The reason of what breaks no limit.
const UNREADABLE: &str = "unreadable line";

/// What the server counts.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// By route, then by status.
    requests: Mutex<BTreeMap<String, BTreeMap<u16, u64>>>,
    /// Lines, series and samples that were not taken, by the limit that they break; the others cannot be read.
    rejected: Mutex<BTreeMap<&'static str, u64>>,
    /// By protocol.
    rows: Mutex<BTreeMap<&'static str, u64>>,
    streams: Mutex<BTreeMap<&'static str, u64>>,
    streams_closed: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    datagrams: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    pub(crate) connections: AtomicU64,
    parked: AtomicU64,
    connections_refused: AtomicU64,
}

fn render_deltas(out: &mut String, stats: &DeltaStats) {
    for (name, kind, help, value) in [
        ("series", "gauge", "Series of OpenTelemetry's delta temporality that are added up.", stats.series as u64),
        ("stale_total", "counter", "Series of delta temporality that were forgotten.", stats.stale_total),
        ("gaps_total", "counter", "Stretches of time that no delta covered.", stats.gaps_total),
        ("out_of_order_total", "counter", "Deltas that came after newer ones.", stats.out_of_order_total),
    ] {
        family(out, &format!("thalweg_otlp_delta_{name}"), kind, help);
        let _ = writeln!(out, "thalweg_otlp_delta_{name} {value}");
    }
}

/// What came of samples that replicas of a Prometheus sent.
pub(crate) fn render_replicas(out: &mut String, stats: &ReplicaStats) {
    for (name, kind, help, value) in [
        ("clusters", "gauge", "Clusters of replicas that have an elected replica.", stats.clusters as u64),
        ("failovers_total", "counter", "Times that a replica took the place of another.", stats.failovers),
        (
            "deduplicated_requests_total",
            "counter",
            "Requests of replicas that are not elected, which were left out.",
            stats.duplicate_requests,
        ),
        ("deduplicated_samples_total", "counter", "Samples of those, histograms included.", stats.duplicate_samples),
    ] {
        family(out, &format!("thalweg_ha_{name}"), kind, help);
        let _ = writeln!(out, "thalweg_ha_{name} {value}");
    }
}

impl Metrics {
    pub(crate) fn count_request(&self, route: &str, status: u16) {
        let mut requests = lock(&self.requests);
        if !requests.contains_key(route) {
            requests.insert(route.to_owned(), BTreeMap::new());
        }
        if let Some(statuses) = requests.get_mut(route) {
            *statuses.entry(status).or_default() += 1;
        }
    }

    pub(crate) fn count_rejected(&self, errors: &LineErrors) {
        if errors.is_empty() {
            return;
        }
        let by_limit: u64 = errors.by_limit.values().sum();
        add(&self.rejected, UNREADABLE, errors.total - by_limit);
        for (limit, count) in &errors.by_limit {
            add(&self.rejected, limit, *count);
        }
    }

    pub(crate) fn count_rows(&self, protocol: &'static str, rows: u64) {
        add(&self.rows, protocol, rows);
    }

    /// Counts a connection that was closed because as many as may be were open.
    pub(crate) fn refuse_connection(&self) {
        self.connections_refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that waits for its client's next request, until the returned guard is dropped.
    pub(crate) fn park(&self) -> impl Drop {
        self.parked.fetch_add(1, Ordering::Relaxed);
        ParkedCount(&self.parked)
    }

    pub(crate) fn stream_opened(&self, protocol: &'static str) {
        add(&self.streams, protocol, 1);
    }

    pub(crate) fn stream_closed(&self, protocol: &'static str, reason: &'static str) {
        let mut streams = lock(&self.streams);
        if let Some(open) = streams.get_mut(protocol) {
            *open -= 1;
        }
        drop(streams);
        add(&self.streams_closed, (protocol, reason), 1);
    }

    pub(crate) fn count_datagram(&self, protocol: &'static str, taken: bool) {
        add(&self.datagrams, (protocol, if taken { "taken" } else { "dropped" }), 1);
    }

    /// Datagrams that were taken were dropped later.
    pub(crate) fn drop_datagrams(&self, protocol: &'static str, count: u64) {
        add(&self.datagrams, (protocol, "dropped"), count);
    }

    /// What came in by protocol.
    fn render_protocols(&self, out: &mut String) {
        family(out, "thalweg_protocol_rows_total", "counter", "Rows written, by protocol.");
        for (protocol, count) in lock(&self.rows).iter() {
            let _ = writeln!(out, "thalweg_protocol_rows_total{{protocol=\"{protocol}\"}} {count}");
        }
        family(out, "thalweg_streams", "gauge", "Open connections of line listeners.");
        for (protocol, count) in lock(&self.streams).iter() {
            let _ = writeln!(out, "thalweg_streams{{protocol=\"{protocol}\"}} {count}");
        }
        family(out, "thalweg_streams_closed_total", "counter", "Connections of line listeners that ended, by why.");
        for ((protocol, reason), count) in lock(&self.streams_closed).iter() {
            let labels = format!("protocol=\"{protocol}\",reason=\"{reason}\"");
            let _ = writeln!(out, "thalweg_streams_closed_total{{{labels}}} {count}");
        }
        family(
            out,
            "thalweg_datagrams_total",
            "counter",
            "Datagrams of line listeners; dropped ones found no room in the queue, or later in memory.",
        );
        for ((protocol, outcome), count) in lock(&self.datagrams).iter() {
            let labels = format!("protocol=\"{protocol}\",outcome=\"{outcome}\"");
            let _ = writeln!(out, "thalweg_datagrams_total{{{labels}}} {count}");
        }
    }

    /// Everything, as text.
    pub(crate) fn render(&self, db: &Db, queries: &Queries, deltas: &DeltaStats) -> String {
        let mut out = String::new();
        family(&mut out, "thalweg_http_requests_total", "counter", "Requests by route and status.");
        let requests = lock(&self.requests);
        for (route, statuses) in requests.iter() {
            for (status, count) in statuses {
                let _ = writeln!(out, "thalweg_http_requests_total{{route=\"{route}\",status=\"{status}\"}} {count}");
            }
        }
        drop(requests);
        let stats = db.stats();
        family(&mut out, "thalweg_rejected_total", "counter", "What was not taken, by reason.");
        let rejected = lock(&self.rejected);
        let unreadable = rejected.get(UNREADABLE).copied().unwrap_or_default();
        let by_limit =
            rejected.iter().filter(|(reason, _)| **reason != UNREADABLE).map(|(reason, count)| (*reason, *count));
        let all =
            [(UNREADABLE, unreadable), ("row refused by the store", stats.rejected_rows)].into_iter().chain(by_limit);
        for (reason, count) in all {
            let _ = writeln!(out, "thalweg_rejected_total{{reason=\"{reason}\"}} {count}");
        }
        drop(rejected);
        family(
            &mut out,
            "thalweg_series_refused_total",
            "counter",
            "New series that were refused, by the setting that did.",
        );
        for (setting, count) in stats.series_refused {
            let _ = writeln!(out, "thalweg_series_refused_total{{setting=\"{setting}\"}} {count}");
        }
        self.render_protocols(&mut out);
        queries.render(&mut out);
        render_deltas(&mut out, deltas);
        let [open, parked] = [&self.connections, &self.parked].map(|count| count.load(Ordering::Relaxed));
        for (name, kind, help, value) in numbers(&stats, open, parked) {
            family(&mut out, name, kind, help);
            let _ = writeln!(out, "{name} {value}");
        }
        render_cursors(db, &mut out);
        let name = "thalweg_merges_waited_seconds_total";
        family(&mut out, name, "counter", "Seconds that merges waited to keep to their rate.");
        let _ = writeln!(out, "{name} {:.3}", stats.merges_waited_ns as f64 / 1e9);
        let help = "How far the clock is ahead of the time that retention goes by.";
        family(&mut out, "thalweg_clock_ahead_seconds", "gauge", help);
        let _ = writeln!(out, "thalweg_clock_ahead_seconds {:.3}", stats.clock_ahead_ns as f64 / 1e9);
        let name = "thalweg_connections_refused_total";
        family(&mut out, name, "counter", "Connections closed at once because connections_max were open.");
        let _ = writeln!(out, "{name} {}", self.connections_refused.load(Ordering::Relaxed));
        render_memory(&mut out, &stats.memory, deltas);
        render_disk(&mut out, db);
        render_result_cache(&mut out, db);
        family(&mut out, "thalweg_merges_by_goal_total", "counter", "Merges of parts, by why.");
        for (reason, count) in stats.merges_by_reason.by_reason() {
            let _ = writeln!(out, "thalweg_merges_by_goal_total{{goal=\"{}\"}} {count}", reason.name());
        }
        family(&mut out, "thalweg_merged_chunks_total", "counter", "Chunks that merges wrote, by how.");
        for (how, chunks) in ["copied", "encoded"].iter().zip(stats.merged_chunks) {
            let _ = writeln!(out, "thalweg_merged_chunks_total{{how=\"{how}\"}} {chunks}");
        }
        family(&mut out, "thalweg_level_bytes", "gauge", "Bytes of parts by level.");
        for (level, parts) in stats.levels.iter().enumerate() {
            let _ = writeln!(out, "thalweg_level_bytes{{level=\"{level}\"}} {}", parts.bytes);
        }
        family(&mut out, "thalweg_level_parts", "gauge", "Parts by level.");
        for (level, parts) in stats.levels.iter().enumerate() {
            let _ = writeln!(out, "thalweg_level_parts{{level=\"{level}\"}} {}", parts.parts);
        }
        out
    }
}

struct ParkedCount<'a>(&'a AtomicU64);

impl Drop for ParkedCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The disk of the data folder, and what was found damaged on it.
fn render_disk(out: &mut String, db: &Db) {
    if let Some(space) = db.disk_space() {
        for (name, help, value) in [
            ("thalweg_disk_free_bytes", "Bytes that are free on the data folder's disk.", space.free_bytes),
            ("thalweg_disk_size_bytes", "Bytes of the data folder's disk.", space.size_bytes),
        ] {
            family(out, name, "gauge", help);
            let _ = writeln!(out, "{name} {value}");
        }
    }
    let name = "thalweg_damaged_blocks_total";
    family(out, name, "counter", "Blocks of files that were found damaged since the data folder was opened.");
    let _ = writeln!(out, "{name} {}", db.health().damages_total());
    family(out, "thalweg_health_checks", "gauge", "1 for each check of /health that does not pass.");
    for check in db.health().checks() {
        let _ = writeln!(out, "thalweg_health_checks{{check=\"{}\"}} 1", check.name);
    }
}

/// Who holds how much memory.
fn render_memory(out: &mut String, memory: &db::MemoryUse, deltas: &DeltaStats) {
    family(out, "thalweg_memory_bytes", "gauge", "Bytes in memory, by what holds them.");
    for (holder, bytes) in [
        ("heads", memory.heads),
        ("index", memory.index),
        ("keys", memory.keys),
        ("parts", memory.parts),
        ("cache", memory.cache),
        ("queries", memory.queries),
        ("results", memory.results),
        ("spare", memory.spare),
        ("otlp_deltas", deltas.size_bytes as u64),
    ] {
        let _ = writeln!(out, "thalweg_memory_bytes{{holder=\"{holder}\"}} {bytes}");
    }
}

/// Numbers of the result cache.
fn render_result_cache(out: &mut String, db: &Db) {
    let Some(stats) = db.result_cache() else { return };
    for (name, kind, help, value) in [
        ("queries_total", "counter", "Queries that kept answers were looked up for.", stats.queries),
        ("hits_total", "counter", "Queries that were answered without evaluating anything.", stats.hits),
        ("partial_hits_total", "counter", "Queries of which a part was evaluated.", stats.partial_hits),
        ("steps_total", "counter", "Steps of these queries' answers.", stats.steps),
        ("steps_changed_total", "counter", "Steps for which something had changed since.", stats.steps_changed),
        ("keys", "gauge", "Expressions and grids with anything in memory.", stats.keys),
        ("memory_bytes", "gauge", "Bytes of answers in memory.", stats.memory_bytes),
        ("flash_bytes", "gauge", "Bytes of slabs of answers on flash.", stats.flash_bytes),
        ("flash_read_bytes_total", "counter", "Bytes read from flash.", stats.flash_bytes_read),
        ("flash_written_bytes_total", "counter", "Bytes written to flash.", stats.flash_bytes_written),
    ] {
        let name = format!("thalweg_result_cache_{name}");
        family(out, &name, kind, help);
        let _ = writeln!(out, "{name} {value}");
    }
    let name = "thalweg_result_cache_steps_kept_total";
    family(out, name, "counter", "Steps that were not evaluated, by where they were kept.");
    for (place, steps) in [("memory", stats.steps_from_memory), ("flash", stats.steps_from_flash)] {
        let _ = writeln!(out, "{name}{{place=\"{place}\"}} {steps}");
    }
}

/// The cursors of the log, and what stays of the log for them alone.
fn render_cursors(db: &Db, out: &mut String) {
    let name = "thalweg_log_retained_bytes";
    family(out, name, "gauge", "Bytes of the log that stay for its readers alone.");
    let _ = writeln!(out, "{name} {}", db.log_retained_bytes());
    let name = "thalweg_log_cursor_sequence";
    family(out, name, "gauge", "Sequence id up to which a reader of the log is done.");
    for cursor in db.log_cursors() {
        let _ = writeln!(out, "{name}{{cursor=\"{}\"}} {}", escaped(&cursor.name), cursor.sequence);
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn numbers(stats: &db::Stats, open: u64, parked: u64) -> [(&'static str, &'static str, &'static str, u64); 20] {
    let is_direct = u64::from(stats.log.is_direct.unwrap_or(false));
    [
        ("thalweg_connections", "gauge", "Open connections.", open),
        (
            "thalweg_connections_parked",
            "gauge",
            "Those of HTTP/1 and of the binary protocol that wait for a request and hold no buffer.",
            parked,
        ),
        ("thalweg_batches_written_total", "counter", "Requests written.", stats.batches),
        ("thalweg_rows_written_total", "counter", "Rows written.", stats.rows),
        ("thalweg_values_written_total", "counter", "Values written.", stats.values),
        ("thalweg_flushes_total", "counter", "Heads written to parts.", stats.flushes),
        ("thalweg_merges_total", "counter", "Merges of parts.", stats.merges),
        ("thalweg_groups", "gauge", "Groups in the index.", stats.groups),
        ("thalweg_group_keys", "gauge", "Raw group keys that are remembered.", stats.group_keys),
        ("thalweg_head_bytes", "gauge", "Bytes of the heads.", stats.head_bytes),
        ("thalweg_head_rows", "gauge", "Rows in the heads.", stats.head_rows),
        ("thalweg_part_bytes_written_total", "counter", "Bytes of parts written.", stats.part_bytes_written),
        ("thalweg_refuses_new_series", "gauge", "1 while memory is short.", u64::from(stats.refuses_new_series)),
        ("thalweg_log_bytes", "gauge", "Bytes of the log's segments.", stats.log.bytes),
        ("thalweg_log_direct", "gauge", "1 if the log is written past the system's cache.", is_direct),
        ("thalweg_log_sequence", "gauge", "Sequence id of the last record.", stats.log.sequence),
        ("thalweg_log_durable_sequence", "gauge", "Sequence id up to which all is on disk.", stats.log.durable),
        (
            "thalweg_clock_jumps_total",
            "counter",
            "Jumps of the clock, which retention does not follow at once.",
            stats.clock_jumps,
        ),
        (
            "thalweg_trash_parts",
            "gauge",
            "Parts that are past keeping and whose files are still there.",
            stats.trash_parts,
        ),
        ("thalweg_trash_bytes", "gauge", "Bytes of those.", stats.trash_bytes),
    ]
}

/// A poisoned lock would mean that a count was interrupted; counts stay usable.
fn lock<T>(counts: &Mutex<T>) -> MutexGuard<'_, T> {
    counts.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add<K: Ord>(counts: &Mutex<BTreeMap<K, u64>>, key: K, count: u64) {
    *lock(counts).entry(key).or_default() += count;
}

/// The lines before a family's samples.
pub(crate) fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}
