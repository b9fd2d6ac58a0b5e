//! Line protocol of the Time Series Benchmark Suite's kind: hosts that read their measurements at regular moments. The
//! same seed gives the same bytes. What hosts measure is in [`crate::workload::hosts`], how values move in [`crate::workload::walk`].

use clap::ValueEnum;

use crate::workload::hosts::{self, Series};
use crate::workload::walk::Chance;

/// The kind of data that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UseCase {
    /// One measurement with ten integer fields
    CpuOnly,
    /// Nine measurements of a machine with services: 101 fields
    Devops,
}

/// The first moment: 2016-01-01T00:00:00Z, as the suite has it.
pub(crate) const START_NS: i64 = 1_451_606_400_000_000_000;

/// Makes lines step by step: all hosts, then the next moment.
pub(crate) struct Generator {
    hosts: Vec<Vec<Series>>,
    chance: Chance,
    interval_ns: i64,
    step: i64,
    host: usize,
}

impl Generator {
    pub(crate) fn new(use_case: UseCase, hosts: usize, interval_s: u32, seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let hosts = (0..hosts).map(|number| hosts::host(number, use_case, &mut chance)).collect();
        Self { hosts, chance, interval_ns: i64::from(interval_s) * 1_000_000_000, step: 0, host: 0 }
    }

    /// Values of one moment, over all hosts.
    pub(crate) fn values_per_step(&self) -> u64 {
        self.hosts.iter().flatten().map(|series| series.values() as u64).sum()
    }

    /// Rows of one moment, over all hosts.
    pub(crate) fn rows_per_step(&self) -> u64 {
        self.hosts.iter().map(|series| series.len() as u64).sum()
    }

    /// Replaces the text by the next rows: at least so many, fewer only at the end of the last step.
    pub(crate) fn fill(&mut self, out: &mut String, rows: u64, steps: i64) -> u64 {
        out.clear();
        let mut made = 0;
        while made < rows && self.step < steps {
            let timestamp_ns = START_NS + self.step * self.interval_ns;
            let Some(host) = self.hosts.get_mut(self.host) else {
                (self.host, self.step) = (0, self.step + 1);
                continue;
            };
            for series in host.iter_mut() {
                series.write_line(timestamp_ns, &mut self.chance, out);
            }
            made += host.len() as u64;
            self.host += 1;
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: i64 = 50;

    fn generate(use_case: UseCase, seed: u64, batch_rows: u64) -> String {
        let mut generator = Generator::new(use_case, 3, 10, seed);
        let (mut all, mut batch, mut rows) = (String::new(), String::new(), 0);
        let expected = generator.rows_per_step() * STEPS as u64;
        loop {
            let made = generator.fill(&mut batch, batch_rows, STEPS);
            if made == 0 {
                break;
            }
            rows += made;
            all += &batch;
        }
        assert_eq!((rows, all.lines().count() as u64), (expected, expected));
        all
    }

    fn crc32(text: &str) -> u32 {
        let mut crc = flate2::Crc::new();
        crc.update(text.as_bytes());
        crc.sum()
    }

    #[test]
    fn a_seed_means_the_same_for_ever() {
        for (use_case, values, golden) in [(UseCase::CpuOnly, 30, 3_344_674_250), (UseCase::Devops, 303, 602_393_864)] {
            assert_eq!(Generator::new(use_case, 3, 10, 123).values_per_step(), values);
            let text = generate(use_case, 123, 7);
            assert_eq!(crc32(&text), golden, "{use_case:?}: {text:.400}");
            assert_eq!(text, generate(use_case, 123, 5000), "the size of batches changes nothing else");
            assert_ne!(text, generate(use_case, 124, 7), "another seed");
        }
    }

    #[test]
    fn lines_are_those_of_the_suite() {
        let text = generate(UseCase::CpuOnly, 123, 100);
        let (first, last) = (text.lines().next().unwrap(), text.lines().last().unwrap());
        assert!(first.starts_with("cpu,hostname=host_0,region="), "{first}");
        assert!(first.ends_with("i 1451606400000000000"), "{first}");
        assert!(last.ends_with("i 1451606890000000000"), "{last}");
        assert_eq!(first.split(' ').nth(1).unwrap().split(',').count(), 10, "{first}");
    }
}
