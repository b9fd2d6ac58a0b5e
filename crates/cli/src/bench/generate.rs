//! Data in the manner of the Time Series Benchmark Suite: hosts with ten tags, measurements whose fields walk at random.
//! The same seed gives the same bytes.

use std::fmt::Write;

use clap::ValueEnum;

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UseCase {
    /// One measurement with ten integer fields
    CpuOnly,
    /// Nine measurements of a machine with services
    Devops,
}

type Measurement = (&'static str, &'static [&'static str]);

const CPU: Measurement = (
    "cpu",
    &[
        "usage_user",
        "usage_system",
        "usage_idle",
        "usage_nice",
        "usage_iowait",
        "usage_irq",
        "usage_softirq",
        "usage_steal",
        "usage_guest",
        "usage_guest_nice",
    ],
);

const OTHERS: [Measurement; 8] = [
    ("diskio", &["reads", "writes", "read_bytes", "write_bytes", "read_time", "write_time", "io_time"]),
    ("disk", &["total", "free", "used", "used_percent", "inodes_total", "inodes_free", "inodes_used"]),
    ("kernel", &["boot_time", "interrupts", "context_switches", "processes_forked", "disk_pages_in", "disk_pages_out"]),
    (
        "mem",
        &[
            "total",
            "available",
            "used",
            "free",
            "cached",
            "buffered",
            "used_percent",
            "available_percent",
            "buffered_percent",
        ],
    ),
    ("net", &["bytes_sent", "bytes_recv", "packets_sent", "packets_recv", "err_in", "err_out", "drop_in", "drop_out"]),
    ("nginx", &["accepts", "active", "handled", "reading", "requests", "waiting", "writing"]),
    (
        "postgresl",
        &[
            "numbackends",
            "xact_commit",
            "xact_rollback",
            "blks_read",
            "blks_hit",
            "tup_returned",
            "tup_fetched",
            "tup_inserted",
            "tup_updated",
            "tup_deleted",
            "conflicts",
            "temp_files",
            "temp_bytes",
            "deadlocks",
        ],
    ),
    (
        "redis",
        &[
            "uptime_in_seconds",
            "total_connections_received",
            "expired_keys",
            "evicted_keys",
            "keyspace_hits",
            "keyspace_misses",
            "instantaneous_ops_per_sec",
            "connected_clients",
            "used_memory",
            "used_memory_rss",
        ],
    ),
];

const REGIONS: [&str; 9] = [
    "us-east-1",
    "us-west-1",
    "us-west-2",
    "eu-west-1",
    "eu-central-1",
    "ap-southeast-1",
    "ap-southeast-2",
    "ap-northeast-1",
    "sa-east-1",
];

/// The first moment: 2016-01-01T00:00:00Z, as the suite has it.
const START_NS: i64 = 1_451_606_400_000_000_000;

/// Makes lines step by step: all hosts, then the next moment.
pub(crate) struct Generator {
    measurements: Vec<Measurement>,
    /// `,hostname=…` with all tags.
    tags: Vec<String>,
    values: Vec<i64>,
    random: Random,
    interval_ns: i64,
    step: i64,
    host: usize,
}

impl Generator {
    pub(crate) fn new(use_case: UseCase, hosts: usize, interval_s: u32, seed: u64) -> Self {
        let measurements = match use_case {
            UseCase::CpuOnly => vec![CPU],
            UseCase::Devops => [CPU].into_iter().chain(OTHERS).collect(),
        };
        let mut random = Random(seed);
        let tags = (0..hosts).map(|host| host_tags(host, &mut random)).collect();
        let fields: usize = measurements.iter().map(|(_, fields)| fields.len()).sum();
        let values = (0..hosts * fields).map(|_| random.below(101) as i64).collect();
        Self {
            measurements,
            tags,
            values,
            random,
            interval_ns: i64::from(interval_s) * 1_000_000_000,
            step: 0,
            host: 0,
        }
    }

    /// Values of one moment, over all hosts.
    pub(crate) fn values_per_step(&self) -> u64 {
        self.values.len() as u64
    }

    /// Rows of one moment, over all hosts.
    pub(crate) fn rows_per_step(&self) -> u64 {
        (self.tags.len() * self.measurements.len()) as u64
    }

    /// Replaces the text by the next rows: at least so many, fewer only at the end of the last step.
    pub(crate) fn fill(&mut self, out: &mut String, rows: u64, steps: i64) -> u64 {
        out.clear();
        let mut made = 0;
        while made < rows && self.step < steps {
            self.push_host(out);
            made += self.measurements.len() as u64;
            self.host += 1;
            if self.host == self.tags.len() {
                (self.host, self.step) = (0, self.step + 1);
            }
        }
        made
    }

    fn push_host(&mut self, out: &mut String) {
        let timestamp_ns = START_NS + self.step * self.interval_ns;
        let mut place = self.host * (self.values.len() / self.tags.len().max(1));
        for (measurement, fields) in &self.measurements {
            out.push_str(measurement);
            out.push_str(&self.tags[self.host]);
            for (number, field) in fields.iter().enumerate() {
                let value = &mut self.values[place];
                *value = (*value + self.random.step()).clamp(0, 100);
                let _ = write!(out, "{}{field}={value}i", if number == 0 { ' ' } else { ',' });
                place += 1;
            }
            let _ = writeln!(out, " {timestamp_ns}");
        }
    }
}

fn host_tags(host: usize, random: &mut Random) -> String {
    let region = REGIONS[random.below(REGIONS.len() as u64) as usize];
    let zone = ["a", "b", "c"][random.below(3) as usize];
    let os = ["Ubuntu16.10", "Ubuntu16.04LTS", "Ubuntu15.10"][random.below(3) as usize];
    let arch = ["x64", "x86"][random.below(2) as usize];
    let team = ["SF", "NYC", "LON", "CHI"][random.below(4) as usize];
    let environment = ["production", "staging", "test"][random.below(3) as usize];
    format!(
        ",hostname=host_{host},region={region},datacenter={region}{zone},rack={},os={os},arch={arch},team={team},service={},service_version={},service_environment={environment}",
        random.below(100),
        random.below(20),
        random.below(2),
    )
}

/// `SplitMix64` (Steele, Lea, Flood 2014): small, and the same for ever.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// A step of the walk: normally distributed with deviation 1, cut to an integer, by the sum of twelve uniform numbers.
    fn step(&mut self) -> i64 {
        let (a, b) = (self.next(), self.next());
        let sum: u64 = (0..6).map(|place| (a >> (place * 10) & 1023) + (b >> (place * 10) & 1023)).sum();
        ((sum as f64 / 1023.0) - 6.0).round() as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let mut text = String::new();
        let mut generator = Generator::new(UseCase::CpuOnly, 2, 10, 123);
        assert_eq!(generator.fill(&mut text, 3, 2), 3);
        let mut again = String::new();
        Generator::new(UseCase::CpuOnly, 2, 10, 123).fill(&mut again, 3, 2);
        assert_eq!(text, again);
        assert!(text.starts_with("cpu,hostname=host_0,region="), "{text}");
        assert_eq!(generator.fill(&mut text, 3, 2), 1, "the last step ends");
        assert!(text.ends_with("i 1451606410000000000\n"), "{text}");
    }

    #[test]
    fn steps_are_those_of_a_normal_walk() {
        let mut random = Random(1);
        let steps: Vec<i64> = (0..10_000).map(|_| random.step()).collect();
        let share = |value: i64| steps.iter().filter(|step| **step == value).count() as f64 / 10_000.0;
        // The suite's first differences: 37.5 % zeros, 23.9 % each of ±1, 6.6 % each of ±2.
        assert!((share(0) - 0.38).abs() < 0.03 && (share(1) - 0.24).abs() < 0.03 && (share(-2) - 0.06).abs() < 0.02);
    }
}
