//! Times that the log does not hold any more, read from the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use db::LogGap;
use model::{METRIC_NAME, MatchOp, Matcher};
use platform::network::compute;
use query::QueryError;

use super::lanes::{Lanes, NewRound};
use super::outgoing::{Item, OutValue};
use super::pace::backoff;
use super::queue::Queue;

const NS_PER_MS: i64 = 1_000_000;

/// Samples that one read may hold.
const SAMPLES_MAX: u64 = 500_000;

/// Samples below which the next read takes more time.
const SAMPLES_MIN: usize = 50_000;

/// The time that the first read takes, and the least.
const WIDTH_MS: i64 = 60_000;
const WIDTH_MS_MIN: i64 = 1;

/// For so long a time that the store cannot read is tried again.
const WAIT_MS_MAX: u64 = 3_600_000;

/// The least time that is given up where the store never gives it: an answer of summaries that is refused, say.
const GIVEN_UP_MS_MIN: i64 = 3_600_000;

/// The first and the last millisecond of a gap: now where its end is not known.
fn bounds_ms(gap: &LogGap, now_ms: i64) -> (i64, i64) {
    let start_ms = gap.range.start_ns.div_euclid(NS_PER_MS);
    let end_ms = if gap.range.end_ns == i64::MAX { now_ms } else { gap.range.end_ns.div_euclid(NS_PER_MS) };
    (start_ms, end_ms)
}

/// What to do about a time that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remedy {
    /// Read less at once: this much.
    Narrow(i64),
    /// Try again after a pause.
    Wait,
    /// Go on after so many milliseconds.
    GiveUp(i64),
}

/// A read that failed.
#[derive(Debug, Clone, Copy)]
struct FailedRead<'a> {
    /// Why; `None`: reading stopped short.
    error: Option<&'a QueryError>,
    /// For so many milliseconds of the gap.
    width_ms: i64,
    /// Since the first attempt to read them failed.
    waited_ms: u64,
}

/// What to do where the store gave no answer.
fn remedy(FailedRead { error, width_ms, waited_ms }: FailedRead<'_>) -> Remedy {
    let (least_ms, at_least) = match error {
        // It would be the same each time.
        Some(QueryError::TooManySamples { .. }) => (WIDTH_MS_MIN, Remedy::GiveUp(width_ms)),
        Some(QueryError::Invalid(_) | QueryError::Execution(_) | QueryError::Forbidden(_)) => {
            (GIVEN_UP_MS_MIN, Remedy::GiveUp(width_ms))
        }
        // No memory, or a disk or an object store that does not answer.
        _ if waited_ms < WAIT_MS_MAX => (WIDTH_MS_MIN, Remedy::Wait),
        _ => (GIVEN_UP_MS_MIN, Remedy::GiveUp(GIVEN_UP_MS_MIN)),
    };
    if width_ms > least_ms { Remedy::Narrow((width_ms / 4).max(least_ms)) } else { at_least }
}

impl Queue {
    /// Sends what the store has of a gap's time.
    pub(super) async fn fill(self: &Arc<Self>, gap: LogGap, lanes: &mut Lanes) {
        let clock = self.network.platform.clock.clone();
        let (mut start_ms, end_ms) = bounds_ms(&gap, clock.now_ns() / NS_PER_MS);
        let (mut width_ms, mut failures) = (WIDTH_MS, 0);
        let mut failing_since_ns: Option<u64> = None;
        let mut failed: Option<Option<QueryError>> = None;
        while start_ms <= end_ms {
            let last_ms = start_ms.saturating_add(width_ms - 1).min(end_ms);
            let own = self.clone();
            let read = compute(&self.network.tasks, move || own.read_stored(start_ms, last_ms));
            let error = match self.while_sending(lanes, read).await {
                Some(Ok(items)) => {
                    (failures, failing_since_ns) = (0, None);
                    let count = items.len();
                    self.enqueue(lanes, NewRound { items, ..NewRound::default() }).await;
                    start_ms = last_ms.saturating_add(1);
                    if count < SAMPLES_MIN {
                        width_ms = width_ms.saturating_mul(4);
                    }
                    continue;
                }
                Some(Err(error)) => Some(error),
                None => None,
            };
            self.counts.read_errors.fetch_add(1, Ordering::Relaxed);
            let now_ns = clock.monotonic_ns();
            let waited_ms = now_ns.saturating_sub(*failing_since_ns.get_or_insert(now_ns)) / 1_000_000;
            match remedy(FailedRead { error: error.as_ref(), width_ms, waited_ms }) {
                Remedy::Narrow(less_ms) => width_ms = less_ms,
                Remedy::Wait => {
                    let pause_ms = backoff(&self.config.queue).pause_ms(failures, None);
                    self.while_sending(lanes, self.network.tasks.sleep_ms(pause_ms)).await;
                    failures += 1;
                }
                Remedy::GiveUp(skipped_ms) => {
                    failed = failed.or(Some(error));
                    start_ms = start_ms.saturating_add(skipped_ms);
                    // The rest is waited for anew.
                    (failures, failing_since_ns) = (0, None);
                }
            }
        }
        if let Some(error) = failed {
            let reason = error.map_or_else(|| "reading stopped short".to_owned(), |error| error.to_string());
            self.note_failed_gap(format!("samples that the log does not hold any more were not sent: {reason}"));
        }
        // Done with when all of it is sent.
        self.enqueue(lanes, NewRound { through: gap.sequences.1, ..NewRound::default() }).await;
    }

    fn read_stored(&self, start_ms: i64, end_ms: i64) -> Result<Vec<Item>, QueryError> {
        let all = [Matcher::new(METRIC_NAME, MatchOp::NotEqual, "")];
        let budget = self.db.budget(SAMPLES_MAX);
        let found = self.db.samples(&self.database, &all, (start_ms, end_ms), &budget)?;
        let mut reader = self.reader.lock();
        let mut items = Vec::new();
        for series in found {
            for (time_ms, value) in series.timestamps_ms.iter().zip(&series.values) {
                reader.outgoing.push(&series.labels, *time_ms, OutValue::Float(*value), &mut items);
            }
            for (time_ms, histogram) in series.histograms {
                let value = OutValue::Histogram(Arc::new(histogram));
                reader.outgoing.push(&series.labels, time_ms, value, &mut items);
            }
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use model::TimeRange;

    use super::*;

    #[test]
    fn a_gap_without_an_end_ends_now() {
        let gap = |range| LogGap { sequences: (1, 2), range };
        assert_eq!(bounds_ms(&gap(TimeRange::new(1_999_999, 5_000_000)), 100), (1, 5));
        assert_eq!(bounds_ms(&gap(TimeRange::new(1_000_000, i64::MAX)), 100), (1, 100));
        assert_eq!(bounds_ms(&gap(TimeRange::new(1_000_000, 900_000_000)), 100), (1, 900), "clocks differ");
        let (start_ms, end_ms) = bounds_ms(&gap(TimeRange::EMPTY), 100);
        assert!(start_ms > end_ms);
    }

    #[test]
    fn what_stays_so_is_given_up_and_what_passes_is_waited_for() {
        let after = |waited_ms, error, width_ms| remedy(FailedRead { error, width_ms, waited_ms });
        let remedy = |error, width_ms| after(0, error, width_ms);
        let many = QueryError::TooManySamples { limit: 1 };
        assert_eq!(remedy(Some(&many), WIDTH_MS), Remedy::Narrow(WIDTH_MS / 4));
        assert_eq!(remedy(Some(&many), WIDTH_MS_MIN), Remedy::GiveUp(WIDTH_MS_MIN));
        let folded = QueryError::Execution("strict".to_owned());
        assert_eq!(remedy(Some(&folded), 2 * GIVEN_UP_MS_MIN), Remedy::Narrow(GIVEN_UP_MS_MIN));
        assert_eq!(remedy(Some(&folded), WIDTH_MS), Remedy::GiveUp(WIDTH_MS));
        let full = QueryError::TooMuchMemory { limit_bytes: 1 };
        assert_eq!(remedy(Some(&full), 2), Remedy::Narrow(1));
        assert_eq!(remedy(Some(&full), 1), Remedy::Wait);
        assert_eq!(after(WAIT_MS_MAX - 1, Some(&full), 1), Remedy::Wait);
        assert_eq!(after(WAIT_MS_MAX, Some(&full), 1), Remedy::GiveUp(GIVEN_UP_MS_MIN));
        assert_eq!(remedy(None, 1), Remedy::Wait);
    }
}
