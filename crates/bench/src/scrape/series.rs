//! The text of a machine's exporter: series as `node_exporter` has them, with values that move as those of machines do.
//!
//! A value follows from target, series and tick alone, so that all programs that scrape a target in one interval read one text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How the values of a series move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Movement {
    /// They do not: sizes, settings, errors that never happen.
    Constant,
    /// A counter of events.
    Events,
    /// A counter of seconds, in hundredths.
    Seconds,
    /// A gauge of bytes.
    Bytes,
    /// A gauge with a fraction.
    Load,
}

impl Movement {
    fn is_counter(self) -> bool {
        matches!(self, Self::Events | Self::Seconds)
    }
}

/// Metrics that a machine has once.
const SINGLE: [(&str, Movement); 30] = [
    ("node_boot_time_seconds", Movement::Constant),
    ("node_context_switches_total", Movement::Events),
    ("node_entropy_available_bits", Movement::Constant),
    ("node_filefd_allocated", Movement::Bytes),
    ("node_filefd_maximum", Movement::Constant),
    ("node_forks_total", Movement::Events),
    ("node_intr_total", Movement::Events),
    ("node_load1", Movement::Load),
    ("node_load15", Movement::Load),
    ("node_load5", Movement::Load),
    ("node_memory_Active_bytes", Movement::Bytes),
    ("node_memory_Buffers_bytes", Movement::Bytes),
    ("node_memory_Cached_bytes", Movement::Bytes),
    ("node_memory_MemAvailable_bytes", Movement::Bytes),
    ("node_memory_MemFree_bytes", Movement::Bytes),
    ("node_memory_MemTotal_bytes", Movement::Constant),
    ("node_memory_Slab_bytes", Movement::Bytes),
    ("node_memory_SwapFree_bytes", Movement::Constant),
    ("node_memory_SwapTotal_bytes", Movement::Constant),
    ("node_netstat_Tcp_CurrEstab", Movement::Load),
    ("node_netstat_Tcp_InSegs", Movement::Events),
    ("node_netstat_Tcp_OutSegs", Movement::Events),
    ("node_netstat_Tcp_RetransSegs", Movement::Events),
    ("node_procs_blocked", Movement::Constant),
    ("node_procs_running", Movement::Load),
    ("node_sockstat_TCP_inuse", Movement::Load),
    ("node_time_seconds", Movement::Seconds),
    ("node_vmstat_pgfault", Movement::Events),
    ("node_vmstat_pgmajfault", Movement::Events),
    ("process_cpu_seconds_total", Movement::Seconds),
];

const CPU_MODES: [&str; 8] = ["idle", "iowait", "irq", "nice", "softirq", "steal", "system", "user"];

const DISK: [(&str, Movement); 8] = [
    ("node_disk_info", Movement::Constant),
    ("node_disk_io_now", Movement::Constant),
    ("node_disk_io_time_seconds_total", Movement::Seconds),
    ("node_disk_read_bytes_total", Movement::Events),
    ("node_disk_read_time_seconds_total", Movement::Seconds),
    ("node_disk_reads_completed_total", Movement::Events),
    ("node_disk_writes_completed_total", Movement::Events),
    ("node_disk_written_bytes_total", Movement::Events),
];

const FILESYSTEM: [(&str, Movement); 6] = [
    ("node_filesystem_avail_bytes", Movement::Bytes),
    ("node_filesystem_device_error", Movement::Constant),
    ("node_filesystem_files", Movement::Constant),
    ("node_filesystem_files_free", Movement::Constant),
    ("node_filesystem_readonly", Movement::Constant),
    ("node_filesystem_size_bytes", Movement::Constant),
];

const NETWORK: [(&str, Movement); 12] = [
    ("node_network_carrier", Movement::Constant),
    ("node_network_mtu_bytes", Movement::Constant),
    ("node_network_receive_bytes_total", Movement::Events),
    ("node_network_receive_drop_total", Movement::Constant),
    ("node_network_receive_errs_total", Movement::Constant),
    ("node_network_receive_packets_total", Movement::Events),
    ("node_network_speed_bytes", Movement::Constant),
    ("node_network_transmit_bytes_total", Movement::Events),
    ("node_network_transmit_drop_total", Movement::Constant),
    ("node_network_transmit_errs_total", Movement::Constant),
    ("node_network_transmit_packets_total", Movement::Events),
    ("node_network_up", Movement::Constant),
];

/// A line of the text, without its value.
#[derive(Debug)]
struct Line {
    /// HELP and TYPE, before the first series of a metric.
    comments: String,
    /// Name and labels, with the blank before the value.
    series: String,
    movement: Movement,
}

/// The series of a target; all targets have the same.
#[derive(Debug)]
pub(super) struct Series(Vec<Line>);

impl Series {
    /// So many series.
    pub(super) fn new(count: usize) -> Self {
        let mut found: BTreeMap<String, (Movement, Vec<String>)> = BTreeMap::new();
        for (name, labels, movement) in all().take(count) {
            found.entry(name.to_owned()).or_insert_with(|| (movement, Vec::new())).1.push(labels);
        }
        let mut lines = Vec::with_capacity(count);
        for (name, (movement, all_labels)) in found {
            let kind = if movement.is_counter() { "counter" } else { "gauge" };
            let mut comments = format!("# HELP {name} What the exporter says of it.\n# TYPE {name} {kind}\n");
            for labels in all_labels {
                let series = format!("{name}{labels} ");
                lines.push(Line { comments: std::mem::take(&mut comments), series, movement });
            }
        }
        Self(lines)
    }

    /// Adds the text of a target in an interval, the tick.
    pub(super) fn render(&self, target: u32, tick: u64, text: &mut String) {
        for (number, line) in self.0.iter().enumerate() {
            text.push_str(&line.comments);
            text.push_str(&line.series);
            push_value(value(line.movement, u64::from(target) << 32 | number as u64, tick), text);
            text.push('\n');
        }
    }
}

/// Names, labels and movements without end: what there is once, then more and more devices.
fn all() -> impl Iterator<Item = (&'static str, String, Movement)> {
    let single = SINGLE.into_iter().map(|(name, movement)| (name, String::new(), movement));
    single.chain((0_u32..).flat_map(device))
}

/// The series of the CPU, disk, file system and network interface of a number.
fn device(number: u32) -> impl Iterator<Item = (&'static str, String, Movement)> {
    let cpu = CPU_MODES.into_iter().map(move |mode| {
        ("node_cpu_seconds_total", format!("{{cpu=\"{number}\",mode=\"{mode}\"}}"), Movement::Seconds)
    });
    let of = |metrics: &'static [(&'static str, Movement)], labels: String| {
        metrics.iter().map(move |(name, movement)| (*name, labels.clone(), *movement))
    };
    let mount = format!("{{device=\"/dev/nvme{number}n1\",fstype=\"ext4\",mountpoint=\"/srv/volume-{number}\"}}");
    cpu.chain(of(&DISK, format!("{{device=\"nvme{number}n1\"}}")))
        .chain(of(&FILESYSTEM, mount))
        .chain(of(&NETWORK, format!("{{device=\"eth{number}\"}}")))
}

/// A number without order that follows from another one.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn value(movement: Movement, series: u64, tick: u64) -> f64 {
    let seed = mix(series.wrapping_add(0x9e37_79b9_7f4a_7c15));
    let noise = mix(seed ^ tick);
    // What a counter grows by in a tick, at the least and on average.
    let grown = |rate: u64| (seed % 1_000_000 + tick * rate + noise % rate) as f64;
    match movement {
        Movement::Constant => (seed % 4 * 1_024) as f64,
        Movement::Events => grown(1 + seed % 5_000),
        Movement::Seconds => grown(1 + seed % 900) / 100.0,
        Movement::Bytes => ((seed % (1 << 23) + noise % (1 << 12)) * 4_096) as f64,
        Movement::Load => (noise % 800) as f64 / 100.0,
    }
}

/// Spells a number as Go's client library does: with an exponent from a million on.
fn push_value(value: f64, text: &mut String) {
    // Writing to a string cannot fail.
    if value < 1e6 {
        let _ = write!(text, "{value}");
        return;
    }
    let spelled = format!("{value:e}");
    let (digits, exponent) = spelled.split_once('e').unwrap_or((&spelled, "0"));
    let _ = write!(text, "{digits}e+{exponent:0>2}");
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn values(series: &Series, target: u32, tick: u64) -> HashMap<String, f64> {
        let mut text = String::new();
        series.render(target, tick, &mut text);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.map(|line| line.rsplit_once(' ').unwrap());
        pairs.map(|(series, value)| (series.to_owned(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_target_has_as_many_series_as_asked_for() {
        for count in [1, 30, 31, 100, 1_500, 10_000] {
            assert_eq!(values(&Series::new(count), 0, 0).len(), count);
        }
    }

    #[test]
    fn counters_grow_and_half_of_the_values_move() {
        let series = Series::new(1_500);
        let (before, after) = (values(&series, 3, 10), values(&series, 3, 11));
        let moved = before.iter().filter(|(name, value)| after[*name].to_bits() != value.to_bits()).count();
        assert!((600..1_200).contains(&moved), "{moved} of 1500 values moved");
        for (name, value) in before.iter().filter(|(name, _)| name.contains("_total")) {
            assert!(after[name] >= *value, "{name} fell from {value} to {}", after[name]);
        }
        assert_ne!(values(&series, 4, 10), before);
        assert_eq!(values(&series, 3, 10), before);
    }

    #[test]
    fn metrics_are_described_once() {
        let mut text = String::new();
        Series::new(500).render(0, 0, &mut text);
        let types: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let mut distinct = types.clone();
        distinct.dedup();
        assert_eq!(types, distinct);
        assert!(
            text.contains("# TYPE node_cpu_seconds_total counter\nnode_cpu_seconds_total{cpu=\"0\",mode=\"idle\"} ")
        );
    }

    #[test]
    fn numbers_are_spelled_as_by_go() {
        let spelled = |value| {
            let mut text = String::new();
            push_value(value, &mut text);
            text
        };
        assert_eq!([0.0, 12.5, 999_999.0].map(spelled), ["0", "12.5", "999999"]);
        assert_eq!([1e6, 16_777_216_000.0].map(spelled), ["1e+06", "1.6777216e+10"]);
    }
}
