//! Times that the log does not hold any more, read from the store.

use std::sync::Arc;

use db::LogGap;
use model::{METRIC_NAME, MatchOp, Matcher};
use platform::network::compute;
use query::QueryError;

use super::outgoing::{Item, OutValue};
use super::queue::Queue;
use super::verdict::backoff;

const NS_PER_MS: i64 = 1_000_000;

/// Samples that one read may hold.
const SAMPLES_MAX: u64 = 500_000;

/// Samples below which the next read takes more time.
const SAMPLES_MIN: usize = 50_000;

/// The time that the first read takes, and the least.
const WIDTH_MS: i64 = 60_000;
const WIDTH_MS_MIN: i64 = 1;

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
    /// Go on after it.
    GiveUp,
}

/// What to do where the store gave no answer for so many milliseconds; `None`: reading stopped short.
fn remedy(error: Option<&QueryError>, width_ms: i64) -> Remedy {
    let (least_ms, at_least) = match error {
        // It would be the same each time.
        Some(QueryError::TooManySamples { .. }) => (WIDTH_MS_MIN, Remedy::GiveUp),
        Some(QueryError::Invalid(_) | QueryError::Execution(_) | QueryError::Forbidden(_)) => {
            (GIVEN_UP_MS_MIN, Remedy::GiveUp)
        }
        // No memory, or a disk or an object store that does not answer.
        _ => (WIDTH_MS_MIN, Remedy::Wait),
    };
    if width_ms > least_ms { Remedy::Narrow((width_ms / 4).max(least_ms)) } else { at_least }
}

impl Queue {
    /// Sends what the store has of a gap's time.
    pub(super) async fn fill(self: &Arc<Self>, gap: LogGap, shards: u64) {
        let now_ms = self.network.platform.clock.now_ns() / NS_PER_MS;
        let (mut start_ms, end_ms) = bounds_ms(&gap, now_ms);
        let (mut width_ms, mut failures) = (WIDTH_MS, 0);
        let mut failed: Option<QueryError> = None;
        while start_ms <= end_ms {
            let last_ms = start_ms.saturating_add(width_ms - 1).min(end_ms);
            let own = self.clone();
            let read = compute(&self.network.tasks, move || own.read_stored(start_ms, last_ms)).await;
            let error = match read {
                Some(Ok(items)) => {
                    failures = 0;
                    let count = items.len();
                    self.send_all(items, shards).await;
                    start_ms = last_ms.saturating_add(1);
                    if count < SAMPLES_MIN {
                        width_ms = width_ms.saturating_mul(4);
                    }
                    continue;
                }
                Some(Err(error)) => Some(error),
                None => None,
            };
            match remedy(error.as_ref(), width_ms) {
                Remedy::Narrow(less_ms) => width_ms = less_ms,
                Remedy::Wait => {
                    self.network.tasks.sleep_ms(backoff(&self.config.queue).pause_ms(failures, None)).await;
                    failures += 1;
                }
                Remedy::GiveUp => {
                    failed = failed.or(error);
                    start_ms = last_ms.saturating_add(1);
                }
            }
        }
        if let Some(error) = failed {
            self.note_failed_gap(format!("samples that the log does not hold any more were not sent: {error}"));
        }
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
        let many = QueryError::TooManySamples { limit: 1 };
        assert_eq!(remedy(Some(&many), WIDTH_MS), Remedy::Narrow(WIDTH_MS / 4));
        assert_eq!(remedy(Some(&many), WIDTH_MS_MIN), Remedy::GiveUp);
        let folded = QueryError::Execution("strict".to_owned());
        assert_eq!(remedy(Some(&folded), 2 * GIVEN_UP_MS_MIN), Remedy::Narrow(GIVEN_UP_MS_MIN));
        assert_eq!(remedy(Some(&folded), WIDTH_MS), Remedy::GiveUp);
        let full = QueryError::TooMuchMemory { limit_bytes: 1 };
        assert_eq!(remedy(Some(&full), 2), Remedy::Narrow(1));
        assert_eq!(remedy(Some(&full), 1), Remedy::Wait);
        assert_eq!(remedy(None, 1), Remedy::Wait);
    }
}
