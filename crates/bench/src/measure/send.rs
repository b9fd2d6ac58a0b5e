//! Sends requests over several connections and measures how long their acknowledgements take.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::measure::latency::{Acknowledged, Stretch};
use crate::measure::process::thread_cpu_seconds;
use crate::measure::queue::Queue;
use crate::workload::requests::{Request, Requests};
use client::http::HttpClient;

/// Where the rows go.
pub(crate) enum Target {
    Here(Box<db::Db>),
    Server {
        url: String,
        /// Where writes are posted, and the content type and encoding of their bodies.
        path: String,
        headers: Vec<(&'static str, &'static str)>,
    },
}

/// How it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) connections: usize,
    /// Bytes of requests that are made before the first is sent, and that wait at any time.
    pub(crate) prepared_bytes_max: usize,
    /// Requests are sent at this rate if they can; without it, as fast as they are acknowledged.
    pub(crate) rows_per_second: Option<u64>,
    /// No request is sent later than this after the first.
    pub(crate) duration_max: Option<Duration>,
    /// Merge everything over and over while sending.
    pub(crate) compact: bool,
    /// Do so in every second stretch of this length only, first not.
    pub(crate) compact_phase: Option<Duration>,
}

/// Acknowledged requests.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    pub(crate) rows: u64,
    pub(crate) values: u64,
    pub(crate) body_bytes: u64,
    pub(crate) seconds: f64,
    /// Each request, from when it was sent or, at a given rate, should have been.
    pub(crate) acknowledged: Vec<Acknowledged>,
    /// Of making requests after the first was sent.
    pub(crate) generator_cpu_seconds: f64,
    /// When everything was merged meanwhile.
    pub(crate) merges: Vec<Stretch>,
}

impl Sent {
    fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.values += other.values;
        self.body_bytes += other.body_bytes;
        self.acknowledged.extend(other.acknowledged);
    }
}

/// Makes as many requests as may wait, calls `ready`, and sends.
pub(crate) fn send(
    target: &Target,
    requests: &mut Requests,
    lanes: usize,
    pace: &Pace,
    bar: &ProgressBar,
    ready: impl FnOnce(),
) -> Result<Sent, String> {
    let queue = Queue::new(lanes, pace.prepared_bytes_max);
    while !queue.is_full() {
        let Some(request) = requests.next() else { break };
        queue.push(request);
    }
    ready();
    let start = Instant::now();
    let cpu_before = thread_cpu_seconds();
    std::thread::scope(|scope| {
        let sender = |lane| Sender { target, queue: &queue, pace, start, bar, lane };
        let senders: Vec<_> = (0..pace.connections)
            .map(sender)
            .map(|sender| {
                let queue = &queue;
                scope.spawn(move || sender.run().inspect_err(|_| queue.stop()))
            })
            .collect();
        // Dropping this end says that all is sent.
        let (sending, sent_all) = channel();
        let compacting = scope.spawn(move || compact(target, pace, start, &sent_all));
        for request in requests {
            if !queue.push(request) {
                break;
            }
        }
        queue.complete();
        let mut sent = Sent { generator_cpu_seconds: thread_cpu_seconds() - cpu_before, ..Sent::default() };
        let outcomes: Vec<_> = senders.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        sent.seconds = start.elapsed().as_secs_f64();
        drop(sending);
        for outcome in outcomes {
            sent.add(outcome.unwrap_or_else(|_| Err("a sender ended early".to_owned()))?);
        }
        sent.merges = compacting.join().unwrap_or_else(|_| Err("the merging ended early".to_owned()))?;
        Ok(sent)
    })
}

/// Merges everything again and again until all is sent; when each merge was.
fn compact(target: &Target, pace: &Pace, start: Instant, sent_all: &Receiver<()>) -> Result<Vec<Stretch>, String> {
    let mut merges = Vec::new();
    if !pace.compact {
        return Ok(merges);
    }
    loop {
        let pause = pace.compact_phase.map_or(Duration::ZERO, |phase| until_merging(start.elapsed(), phase));
        // Nothing is sent: it ends with the time, or with the other end.
        if sent_all.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            return Ok(merges);
        }
        let begun_s = start.elapsed().as_secs_f64();
        compact_once(target)?;
        merges.push((begun_s, start.elapsed().as_secs_f64()));
    }
}

/// How long it is until the next stretch in which everything is merged; none in such a stretch.
fn until_merging(elapsed: Duration, phase: Duration) -> Duration {
    let phase_s = phase.as_secs_f64();
    let into_pair_s = elapsed.as_secs_f64() % (2.0 * phase_s);
    Duration::from_secs_f64((phase_s - into_pair_s).max(0.0))
}

fn compact_once(target: &Target) -> Result<(), String> {
    match target {
        Target::Here(db) => db.compact(&mut |_| {}).map(|_| ()).map_err(|error| error.to_string()),
        Target::Server { url, .. } => {
            let answer = HttpClient::new(url).post("/api/v1/admin/compact", &[], b"")?;
            if answer.status == 200 {
                return Ok(());
            }
            Err(format!("the server does not merge: {}: {}", answer.status, answer.body))
        }
    }
}

/// One connection.
struct Sender<'a> {
    target: &'a Target,
    queue: &'a Queue,
    pace: &'a Pace,
    start: Instant,
    bar: &'a ProgressBar,
    lane: usize,
}

impl Sender<'_> {
    fn run(self) -> Result<Sent, String> {
        let client = match self.target {
            Target::Here(_) => None,
            Target::Server { url, .. } => Some(HttpClient::new(url)),
        };
        let mut sent = Sent::default();
        while let Some(request) = self.queue.pop(self.lane) {
            let due = self.wait_until_due(&request);
            if self.pace.duration_max.is_some_and(|duration| self.start.elapsed() > duration) {
                self.queue.stop();
                break;
            }
            self.write(client.as_ref(), &request)?;
            let due_s = due.saturating_duration_since(self.start).as_secs_f64();
            sent.acknowledged.push(Acknowledged { due_s, latency_ms: due.elapsed().as_secs_f64() * 1000.0 });
            sent.rows += request.rows;
            sent.values += request.values;
            sent.body_bytes += request.body.len() as u64;
            self.bar.inc(request.rows);
        }
        Ok(sent)
    }

    /// When a request should be sent: now, unless there is a rate to keep.
    fn wait_until_due(&self, request: &Request) -> Instant {
        let Some(rate) = self.pace.rows_per_second else { return Instant::now() };
        let due = self.start + Duration::from_secs_f64(request.first_row as f64 / rate as f64);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        due
    }

    fn write(&self, client: Option<&HttpClient>, request: &Request) -> Result<(), String> {
        match (self.target, client) {
            (Target::Here(db), _) => {
                let (written, _) = db.write_lines("default", &request.body).map_err(|error| error.to_string())?;
                if written.rows_written != request.rows {
                    return Err(format!("{} of {} rows were written", written.rows_written, request.rows));
                }
            }
            (Target::Server { path, headers, .. }, Some(client)) => {
                let answer = client.post_as(path, headers, &request.body)?;
                if !(200..300).contains(&answer.status) {
                    return Err(format!("the server answered {}: {}", answer.status, answer.body));
                }
            }
            (Target::Server { .. }, None) => return Err("there is no connection".to_owned()),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_waits_for_every_second_stretch() {
        let phase = Duration::from_secs(5);
        for (elapsed_s, pause_s) in [(0, 5), (4, 1), (5, 0), (9, 0), (10, 5), (13, 2), (17, 0)] {
            let pause = until_merging(Duration::from_secs(elapsed_s), phase);
            assert_eq!(pause.as_secs_f64().round() as u64, pause_s, "{elapsed_s}");
        }
    }
}
