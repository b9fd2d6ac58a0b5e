//! Bodies of requests, made before they are sent.

use clap::ValueEnum;
use ingest::remote_write;

use crate::workload::generate::{Generator, START_NS, UseCase};
use crate::workload::hosts::{self, Series};
use crate::workload::walk::Chance;

/// How the rows are spelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Influx line protocol
    Line,
    /// Prometheus remote write 1.0: a series for each field
    RemoteWrite,
}

/// A request to send.
pub(crate) struct Request {
    pub(crate) body: Vec<u8>,
    pub(crate) rows: u64,
    pub(crate) values: u64,
    /// Rows of all requests before this one.
    pub(crate) first_row: u64,
    /// Requests of a lane must arrive in their order.
    pub(crate) lane: usize,
}

/// The requests to make.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) format: Format,
    pub(crate) use_case: UseCase,
    pub(crate) hosts: usize,
    pub(crate) interval_s: u32,
    pub(crate) seed: u64,
    /// Moments at which each host writes.
    pub(crate) steps: i64,
    /// Rows of a request.
    pub(crate) batch_rows: u64,
    /// Samples that a series has in a request of remote write.
    pub(crate) samples: i64,
}

/// Makes the requests one after the other.
pub(crate) enum Requests {
    Lines(Lines),
    RemoteWrite(Box<RemoteWrite>),
}

impl Requests {
    pub(crate) fn new(plan: &Plan) -> Self {
        match plan.format {
            Format::Line => Self::Lines(Lines::new(plan)),
            Format::RemoteWrite => Self::RemoteWrite(Box::new(RemoteWrite::new(plan))),
        }
    }

    /// Rows of one moment, over all hosts.
    pub(crate) fn rows_per_step(&self) -> u64 {
        match self {
            Self::Lines(lines) => lines.generator.rows_per_step(),
            Self::RemoteWrite(writer) => writer.hosts.iter().map(|host| host.measurements.len() as u64).sum(),
        }
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        match self {
            Self::Lines(lines) => lines.next(),
            Self::RemoteWrite(writer) => writer.next(),
        }
    }
}

/// Line protocol.
pub(crate) struct Lines {
    generator: Generator,
    plan: Plan,
    rows: u64,
}

impl Lines {
    fn new(plan: &Plan) -> Self {
        let generator = Generator::new(plan.use_case, plan.hosts, plan.interval_s, plan.seed);
        Self { generator, plan: *plan, rows: 0 }
    }

    fn next(&mut self) -> Option<Request> {
        let mut text = String::new();
        let rows = self.generator.fill(&mut text, self.plan.batch_rows, self.plan.steps);
        if rows == 0 {
            return None;
        }
        let first_row = self.rows;
        self.rows += rows;
        let per_step = self.generator.rows_per_step().max(1);
        let values = rows * self.generator.values_per_step() / per_step;
        Some(Request { body: text.into_bytes(), rows, values, first_row, lane: 0 })
    }
}

/// Remote write: a block of hosts after the other, then the next samples of the first.
pub(crate) struct RemoteWrite {
    hosts: Vec<Host>,
    chance: Chance,
    plan: Plan,
    hosts_per_request: usize,
    /// The first of the samples that are written now.
    step: i64,
    /// The first host of the next request.
    host: usize,
    rows: u64,
    packer: snap::raw::Encoder,
}

struct Host {
    measurements: Vec<Series>,
    /// Of each field of each measurement.
    labels: Vec<Vec<(String, String)>>,
}

impl RemoteWrite {
    fn new(plan: &Plan) -> Self {
        let mut chance = Chance::new(plan.seed);
        let mut host = |number| {
            let measurements = hosts::host(number, plan.use_case, &mut chance);
            let labels = measurements.iter().flat_map(Series::labels).collect();
            Host { measurements, labels }
        };
        let hosts: Vec<Host> = (0..plan.hosts).map(&mut host).collect();
        let rows_per_host = hosts.first().map_or(1, |host| host.measurements.len()) * plan.samples as usize;
        let hosts_per_request = (plan.batch_rows as usize / rows_per_host.max(1)).max(1);
        let packer = snap::raw::Encoder::new();
        Self { hosts, chance, plan: *plan, hosts_per_request, step: 0, host: 0, rows: 0, packer }
    }

    fn next(&mut self) -> Option<Request> {
        if self.host >= self.hosts.len() {
            (self.host, self.step) = (0, self.step + self.plan.samples);
        }
        if self.step >= self.plan.steps || self.hosts.is_empty() {
            return None;
        }
        let lane = self.host / self.hosts_per_request;
        let last = (self.host + self.hosts_per_request).min(self.hosts.len());
        let (message, rows, values) = self.message(last);
        let body = self.packer.compress_vec(&message).unwrap_or_default();
        let first_row = self.rows;
        (self.rows, self.host) = (first_row + rows, last);
        Some(Request { body, rows, values, first_row, lane })
    }

    /// The message of the hosts up to the given one, its rows and its values.
    fn message(&mut self, last: usize) -> (Vec<u8>, u64, u64) {
        let steps = self.step..(self.step + self.plan.samples).min(self.plan.steps);
        let interval_ms = i64::from(self.plan.interval_s) * 1000;
        let (mut labels, mut samples, mut rows) = (Vec::new(), Vec::new(), 0);
        for host in self.hosts.get_mut(self.host..last).unwrap_or_default() {
            rows += host.measurements.len() as u64 * (steps.end - steps.start) as u64;
            for walk in host.measurements.iter_mut().flat_map(Series::walks) {
                let moments = steps.clone().map(|step| {
                    let sample = (START_NS / 1_000_000 + step * interval_ms, walk.written());
                    walk.step(&mut self.chance);
                    sample
                });
                samples.push(moments.collect::<Vec<_>>());
            }
            for pairs in &host.labels {
                labels.push(pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>());
            }
        }
        let values = samples.iter().map(|samples| samples.len() as u64).sum();
        let series = labels.iter().zip(&samples);
        let series: Vec<_> = series.map(|(labels, samples)| remote_write::Series { labels, samples }).collect();
        (remote_write::encode(&series, &[]), rows, values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(format: Format, batch_rows: u64, samples: i64) -> Plan {
        Plan { format, use_case: UseCase::CpuOnly, hosts: 5, interval_s: 10, seed: 1, steps: 7, batch_rows, samples }
    }

    #[test]
    fn every_row_is_sent_once_in_order() {
        // Rows of each request, and lanes.
        let cases = [
            (plan(Format::Line, 8, 1), vec![8, 8, 8, 8, 3], vec![0, 0, 0, 0, 0]),
            (plan(Format::RemoteWrite, 3, 1), [3, 2].repeat(7), [0, 1].repeat(7)),
            (plan(Format::RemoteWrite, 12, 4), vec![12, 8, 9, 6], vec![0, 1, 0, 1]),
            (plan(Format::RemoteWrite, 1, 100), vec![7; 5], vec![0, 1, 2, 3, 4]),
        ];
        for (plan, rows, lanes) in cases {
            let made: Vec<Request> = Requests::new(&plan).collect();
            let column = |of: fn(&Request) -> u64| made.iter().map(of).collect::<Vec<_>>();
            assert_eq!(column(|request| request.rows), rows, "{plan:?}");
            assert_eq!(column(|request| request.lane as u64), lanes, "{plan:?}");
            assert_eq!(column(|request| request.values), rows.iter().map(|rows| rows * 10).collect::<Vec<_>>());
            assert_eq!(made.last().map(|last| last.first_row + last.rows), Some(35), "{plan:?}");
            assert_eq!(Requests::new(&plan).rows_per_step(), 5);
        }
    }

    #[test]
    fn both_formats_tell_the_same_values() {
        let lines = Requests::new(&plan(Format::Line, 5, 1)).next().unwrap();
        let remote = Requests::new(&plan(Format::RemoteWrite, 5, 1)).next().unwrap();
        let text = String::from_utf8(lines.body).unwrap();
        let line = text.lines().next().unwrap();
        let (fields, time_ns) = line.split_once(' ').unwrap().1.split_once(' ').unwrap();
        let message = snap::raw::Decoder::new().decompress_vec(&remote.body).unwrap();
        let holds = |wanted: &[u8]| message.windows(wanted.len()).any(|window| window == wanted);
        let (name, value) = fields.split(',').next().unwrap().split_once('=').unwrap();
        let value: f64 = value.trim_end_matches('i').parse().unwrap();
        assert!(holds(format!("cpu_{name}").as_bytes()) && holds(b"host_0") && holds(&value.to_le_bytes()), "{line}");
        assert_eq!(time_ns.parse(), Ok(START_NS));
    }
}
