//! The hosts, and what they measure: names as in TSBS, values alike.

use crate::workload::generate::UseCase;
use crate::workload::walk::{Chance, Shape, Walk};

const REGIONS: [(&str, &[&str]); 9] = [
    ("us-east-1", &["us-east-1a", "us-east-1b", "us-east-1c", "us-east-1e"]),
    ("us-west-1", &["us-west-1a", "us-west-1b"]),
    ("us-west-2", &["us-west-2a", "us-west-2b", "us-west-2c"]),
    ("eu-west-1", &["eu-west-1a", "eu-west-1b", "eu-west-1c"]),
    ("eu-central-1", &["eu-central-1a", "eu-central-1b"]),
    ("ap-southeast-1", &["ap-southeast-1a", "ap-southeast-1b"]),
    ("ap-southeast-2", &["ap-southeast-2a", "ap-southeast-2b"]),
    ("ap-northeast-1", &["ap-northeast-1a", "ap-northeast-1c"]),
    ("sa-east-1", &["sa-east-1a", "sa-east-1b", "sa-east-1c"]),
];
const SYSTEMS: [&str; 3] = ["Ubuntu16.10", "Ubuntu16.04LTS", "Ubuntu15.10"];
const ARCHITECTURES: [&str; 2] = ["x64", "x86"];
const TEAMS: [&str; 4] = ["SF", "NYC", "LON", "CHI"];
const ENVIRONMENTS: [&str; 3] = ["production", "staging", "test"];

const GIB: f64 = (1_u64 << 30) as f64;

/// A measurement: its name, its tags beyond the host's, its fields.
struct Measurement {
    name: &'static str,
    tags: &'static str,
    fields: &'static [(&'static str, Shape)],
}

const fn gauge(low: f64, high: f64, step: f64) -> Shape {
    Shape::Gauge { low, high, step }
}

const fn counter(step: f64) -> Shape {
    Shape::Counter { step }
}

const fn percent() -> Shape {
    Shape::Ratio { high: 100.0, step: 1.0 }
}

const CPU_USAGE: Shape = gauge(0.0, 100.0, 1.0);

/// What a host measures for the use case `devops`; the first one alone for `cpu-only`.
const MEASUREMENTS: [Measurement; 9] = [
    Measurement {
        name: "cpu",
        tags: "",
        fields: &[
            ("usage_user", CPU_USAGE),
            ("usage_system", CPU_USAGE),
            ("usage_idle", CPU_USAGE),
            ("usage_nice", CPU_USAGE),
            ("usage_iowait", CPU_USAGE),
            ("usage_irq", CPU_USAGE),
            ("usage_softirq", CPU_USAGE),
            ("usage_steal", CPU_USAGE),
            ("usage_guest", CPU_USAGE),
            ("usage_guest_nice", CPU_USAGE),
        ],
    },
    Measurement {
        name: "diskio",
        tags: ",serial=694-511-162",
        fields: &[
            ("reads", counter(50.0)),
            ("writes", counter(50.0)),
            ("read_bytes", counter(100.0)),
            ("write_bytes", counter(100.0)),
            ("read_time", counter(5.0)),
            ("write_time", counter(5.0)),
            ("io_time", counter(5.0)),
        ],
    },
    Measurement {
        name: "disk",
        tags: ",path=/dev/sda1,fstype=ext4",
        fields: &[
            ("total", Shape::Constant(1 << 40)),
            ("free", gauge(0.0, 1024.0 * GIB, GIB)),
            ("used", gauge(0.0, 1024.0 * GIB, GIB)),
            ("used_percent", gauge(0.0, 100.0, 1.0)),
            ("inodes_total", Shape::Constant(1 << 28)),
            ("inodes_free", gauge(0.0, 268_435_456.0, 1000.0)),
            ("inodes_used", gauge(0.0, 268_435_456.0, 1000.0)),
        ],
    },
    Measurement {
        name: "kernel",
        tags: "",
        fields: &[
            ("boot_time", Shape::Constant(1_451_606_400)),
            ("interrupts", counter(5.0)),
            ("context_switches", counter(5.0)),
            ("processes_forked", counter(5.0)),
            ("disk_pages_in", counter(5.0)),
            ("disk_pages_out", counter(5.0)),
        ],
    },
    Measurement {
        name: "mem",
        tags: "",
        fields: &[
            ("total", Shape::Constant(8 << 30)),
            ("available", gauge(0.0, 8.0 * GIB, GIB / 64.0)),
            ("used", gauge(0.0, 8.0 * GIB, GIB / 64.0)),
            ("free", gauge(0.0, 8.0 * GIB, GIB / 64.0)),
            ("cached", gauge(0.0, 8.0 * GIB, GIB / 64.0)),
            ("buffered", gauge(0.0, 8.0 * GIB, GIB / 64.0)),
            ("used_percent", percent()),
            ("available_percent", percent()),
            ("buffered_percent", percent()),
        ],
    },
    Measurement {
        name: "net",
        tags: ",interface=eth0",
        fields: &[
            ("bytes_sent", counter(50.0)),
            ("bytes_recv", counter(50.0)),
            ("packets_sent", counter(50.0)),
            ("packets_recv", counter(50.0)),
            ("err_in", counter(5.0)),
            ("err_out", counter(5.0)),
            ("drop_in", counter(5.0)),
            ("drop_out", counter(5.0)),
        ],
    },
    Measurement {
        name: "nginx",
        tags: ",port=80,server=nginx_1",
        fields: &[
            ("accepts", counter(5.0)),
            ("active", gauge(0.0, 100.0, 5.0)),
            ("handled", counter(5.0)),
            ("reading", gauge(0.0, 100.0, 5.0)),
            ("requests", counter(5.0)),
            ("waiting", gauge(0.0, 100.0, 5.0)),
            ("writing", gauge(0.0, 100.0, 5.0)),
        ],
    },
    Measurement {
        name: "postgresl",
        tags: "",
        fields: &[
            ("numbackends", gauge(0.0, 1000.0, 5.0)),
            ("xact_commit", gauge(0.0, 1000.0, 5.0)),
            ("xact_rollback", gauge(0.0, 1000.0, 5.0)),
            ("blks_read", gauge(0.0, 1000.0, 5.0)),
            ("blks_hit", gauge(0.0, 1000.0, 5.0)),
            ("tup_returned", gauge(0.0, 1000.0, 5.0)),
            ("tup_fetched", gauge(0.0, 1000.0, 5.0)),
            ("tup_inserted", gauge(0.0, 1000.0, 5.0)),
            ("tup_updated", gauge(0.0, 1000.0, 5.0)),
            ("tup_deleted", gauge(0.0, 1000.0, 5.0)),
            ("conflicts", gauge(0.0, 1000.0, 5.0)),
            ("temp_files", gauge(0.0, 1000.0, 5.0)),
            ("temp_bytes", gauge(0.0, 1_048_576.0, 1024.0)),
            ("deadlocks", gauge(0.0, 1000.0, 5.0)),
            ("blk_read_time", gauge(0.0, 1000.0, 5.0)),
            ("blk_write_time", gauge(0.0, 1000.0, 5.0)),
        ],
    },
    Measurement {
        name: "redis",
        tags: ",port=6379,server=redis_1",
        fields: &[
            ("uptime_in_seconds", counter(10.0)),
            ("total_connections_received", counter(5.0)),
            ("expired_keys", counter(50.0)),
            ("evicted_keys", counter(50.0)),
            ("keyspace_hits", counter(50.0)),
            ("keyspace_misses", counter(50.0)),
            ("instantaneous_ops_per_sec", gauge(0.0, 1000.0, 1.0)),
            ("instantaneous_input_kbps", gauge(0.0, 1000.0, 1.0)),
            ("instantaneous_output_kbps", gauge(0.0, 1000.0, 1.0)),
            ("connected_clients", gauge(0.0, 10_000.0, 50.0)),
            ("used_memory", gauge(0.0, 16.0 * GIB, GIB / 64.0)),
            ("used_memory_rss", gauge(0.0, 16.0 * GIB, GIB / 64.0)),
            ("used_memory_peak", gauge(0.0, 16.0 * GIB, GIB / 64.0)),
            ("used_memory_lua", gauge(0.0, 16.0 * GIB, GIB / 64.0)),
            ("rdb_changes_since_last_save", gauge(0.0, 10_000.0, 50.0)),
            ("sync_full", counter(5.0)),
            ("sync_partial_ok", counter(5.0)),
            ("sync_partial_err", counter(5.0)),
            ("pubsub_channels", counter(5.0)),
            ("pubsub_patterns", counter(5.0)),
            ("latest_fork_usec", counter(5.0)),
            ("connected_slaves", counter(5.0)),
            ("master_repl_offset", counter(5.0)),
            ("repl_backlog_active", counter(5.0)),
            ("repl_backlog_size", counter(5.0)),
            ("repl_backlog_histlen", counter(5.0)),
            ("mem_fragmentation_ratio", percent()),
            ("used_cpu_sys", counter(5.0)),
            ("used_cpu_user", counter(5.0)),
            ("used_cpu_sys_children", counter(5.0)),
            ("used_cpu_user_children", counter(5.0)),
        ],
    },
];

/// The fields of `cpu`.
pub(crate) fn cpu_fields() -> impl Iterator<Item = &'static str> {
    MEASUREMENTS.iter().take(1).flat_map(|cpu| cpu.fields.iter().map(|(name, _)| *name))
}

/// A measurement of a host: its spelled-out key and the fields' values.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    /// `measurement,tags` and the blank behind them.
    key: String,
    fields: Vec<(&'static str, Walk)>,
}

fn measurements(use_case: UseCase) -> &'static [Measurement] {
    match use_case {
        UseCase::CpuOnly => &MEASUREMENTS[..1],
        UseCase::Devops => &MEASUREMENTS,
    }
}

/// A host's measurements.
pub(crate) fn host(number: usize, use_case: UseCase, chance: &mut Chance) -> Vec<Series> {
    let (region, zones) = REGIONS.get(chance.below(REGIONS.len() as u32) as usize).copied().unwrap_or(REGIONS[0]);
    let tags = format!(
        "hostname=host_{number},region={region},datacenter={},rack={},os={},arch={},team={},service={},service_version={},service_environment={}",
        chance.one_of(zones),
        chance.below(100),
        chance.one_of(&SYSTEMS),
        chance.one_of(&ARCHITECTURES),
        chance.one_of(&TEAMS),
        chance.below(20),
        chance.below(2),
        chance.one_of(&ENVIRONMENTS),
    );
    let series = measurements(use_case).iter().map(|measurement| Series {
        key: format!("{},{tags}{} ", measurement.name, measurement.tags),
        fields: measurement.fields.iter().map(|(name, shape)| (*name, Walk::new(*shape, chance))).collect(),
    });
    series.collect()
}

impl Series {
    pub(crate) fn values(&self) -> usize {
        self.fields.len()
    }

    /// What each field is as a series of Prometheus: its labels, sorted by name.
    pub(crate) fn labels(&self) -> Vec<Vec<(String, String)>> {
        let mut parts = self.key.trim_end().split(',');
        let measurement = parts.next().unwrap_or_default();
        let pairs = parts.filter_map(|tag| tag.split_once('='));
        let mut tags: Vec<(String, String)> = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        tags.sort();
        let of_field = |field: &str| {
            let name = ("__name__".to_owned(), format!("{measurement}_{field}"));
            std::iter::once(name).chain(tags.iter().cloned()).collect()
        };
        self.fields.iter().map(|(field, _)| of_field(field)).collect()
    }

    /// The walks of the fields, in the order of their labels.
    pub(crate) fn walks(&mut self) -> impl Iterator<Item = &mut Walk> {
        self.fields.iter_mut().map(|(_, walk)| walk)
    }

    /// Appends a line with the values now, and moves them on.
    pub(crate) fn write_line(&mut self, timestamp_ns: i64, chance: &mut Chance, out: &mut String) {
        use std::fmt::Write;
        out.push_str(&self.key);
        for (place, (name, walk)) in self.fields.iter_mut().enumerate() {
            if place > 0 {
                out.push(',');
            }
            out.push_str(name);
            out.push('=');
            walk.write(out);
            walk.step(chance);
        }
        // Writing into a string does not fail.
        let _ = writeln!(out, " {timestamp_ns}");
    }
}
