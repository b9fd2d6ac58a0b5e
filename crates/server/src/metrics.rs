//! The server's own numbers, in Prometheus's text format.

use std::collections::BTreeMap;
use std::fmt::Write;

use db::Db;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the server counts.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    /// Lines, series and samples that were not taken, by reason.
    parse_rejected: AtomicU64,
    histograms_dropped: AtomicU64,
    exemplars_dropped: AtomicU64,
    pub(crate) connections: AtomicU64,
}

/// Routes by which requests are counted; everything else is `other`.
const ROUTES: [&str; 23] = [
    "/api/v1/admin/backup",
    "/api/v1/admin/compact",
    "/api/v1/admin/databases",
    "/api/v1/admin/tsdb/delete_series",
    "/api/v1/admin/tsdb/clean_tombstones",
    "/write",
    "/api/v2/write",
    "/api/v1/write",
    "/api/v1/import/prometheus",
    "/api/v1/query",
    "/api/v1/query_range",
    "/api/v1/series",
    "/api/v1/labels",
    "/api/v1/metadata",
    "/api/v1/query_exemplars",
    "/api/v1/rules",
    "/api/v1/alerts",
    "/api/v1/targets",
    "/api/v1/status/buildinfo",
    "/metrics",
    "/ping",
    "/health",
    "/ready",
];

pub(crate) fn route_of(path: &str) -> &'static str {
    if path.starts_with("/api/v1/label/") {
        return "/api/v1/label/{name}/values";
    }
    if path.starts_with("/api/v1/admin/databases/") {
        return "/api/v1/admin/databases/{name}";
    }
    ROUTES.iter().find(|route| **route == path).copied().unwrap_or("other")
}

/// In the order of [`db::Stats::merges_by_goal`].
const MERGE_GOALS: [&str; 7] = ["gather", "settle", "merge_patches", "join_patches", "join", "fold", "erase"];

impl Metrics {
    pub(crate) fn count_request(&self, route: &'static str, status: u16) {
        // A poisoned lock would mean that a count was interrupted; counts stay usable.
        let mut requests = self.requests.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *requests.entry((route, status)).or_default() += 1;
    }

    pub(crate) fn count_rejected(&self, lines: u64) {
        self.parse_rejected.fetch_add(lines, Ordering::Relaxed);
    }

    pub(crate) fn count_dropped(&self, histograms: u64, exemplars: u64) {
        self.histograms_dropped.fetch_add(histograms, Ordering::Relaxed);
        self.exemplars_dropped.fetch_add(exemplars, Ordering::Relaxed);
    }

    /// Everything, as text.
    pub(crate) fn render(&self, db: &Db) -> String {
        let mut out = String::new();
        family(&mut out, "thalweg_http_requests_total", "counter", "Requests by route and status.");
        let requests = self.requests.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for ((route, status), count) in requests.iter() {
            let _ = writeln!(out, "thalweg_http_requests_total{{route=\"{route}\",status=\"{status}\"}} {count}");
        }
        drop(requests);
        let stats = db.stats();
        family(&mut out, "thalweg_rejected_total", "counter", "What was not taken, by reason.");
        for (reason, count) in [
            ("unreadable line", self.parse_rejected.load(Ordering::Relaxed)),
            ("row refused by the store", stats.rejected_rows),
            ("native histogram", self.histograms_dropped.load(Ordering::Relaxed)),
            ("exemplar", self.exemplars_dropped.load(Ordering::Relaxed)),
        ] {
            let _ = writeln!(out, "thalweg_rejected_total{{reason=\"{reason}\"}} {count}");
        }
        let connections = self.connections.load(Ordering::Relaxed);
        for (name, kind, help, value) in numbers(&stats, connections) {
            family(&mut out, name, kind, help);
            let _ = writeln!(out, "{name} {value}");
        }
        family(&mut out, "thalweg_memory_bytes", "gauge", "Bytes in memory, by what holds them.");
        let memory = &stats.memory;
        for (holder, bytes) in [
            ("heads", memory.heads),
            ("index", memory.index),
            ("keys", memory.keys),
            ("parts", memory.parts),
            ("cache", memory.cache),
            ("queries", memory.queries),
        ] {
            let _ = writeln!(out, "thalweg_memory_bytes{{holder=\"{holder}\"}} {bytes}");
        }
        family(&mut out, "thalweg_merges_by_goal_total", "counter", "Merges of parts, by why.");
        for (goal, count) in MERGE_GOALS.iter().zip(stats.merges_by_goal) {
            let _ = writeln!(out, "thalweg_merges_by_goal_total{{goal=\"{goal}\"}} {count}");
        }
        family(&mut out, "thalweg_level_bytes", "gauge", "Bytes of parts by level.");
        for (level, parts) in stats.levels.iter().enumerate() {
            let _ = writeln!(out, "thalweg_level_bytes{{level=\"{level}\"}} {}", parts.bytes);
        }
        family(&mut out, "thalweg_level_parts", "gauge", "Parts by level.");
        for (level, parts) in stats.levels.iter().enumerate() {
            let _ = writeln!(out, "thalweg_level_parts{{level=\"{level}\"}} {}", parts.parts);
        }
        out.push_str(&crate::host::process_text());
        out
    }
}

fn numbers(stats: &db::Stats, connections: u64) -> [(&'static str, &'static str, &'static str, u64); 15] {
    [
        ("thalweg_connections", "gauge", "Open connections.", connections),
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
        ("thalweg_log_sequence", "gauge", "Sequence id of the last record.", stats.log.sequence),
        ("thalweg_log_durable_sequence", "gauge", "Sequence id up to which all is on disk.", stats.log.durable),
    ]
}

/// The lines before a family's samples.
pub(crate) fn family(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}
