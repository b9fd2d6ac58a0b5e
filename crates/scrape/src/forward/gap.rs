//! Times that the log does not hold any more, read from the store.

use std::sync::Arc;

use db::LogGap;
use model::{METRIC_NAME, MatchOp, Matcher};

use super::compute;
use super::outgoing::{Item, OutValue};
use super::queue::Queue;
use super::verdict::backoff_ms;

const NS_PER_MS: i64 = 1_000_000;

/// Samples that one read may hold.
const SAMPLES_MAX: u64 = 500_000;

/// Samples below which the next read takes more time.
const SAMPLES_MIN: usize = 50_000;

/// The time that the first read takes, and the least.
const WIDTH_MS: i64 = 60_000;
const WIDTH_MS_MIN: i64 = 1;

/// The first and the last millisecond of a gap, up to now.
fn bounds_ms(gap: &LogGap, now_ms: i64) -> (i64, i64) {
    let start_ms = gap.range.start_ns.div_euclid(NS_PER_MS);
    (start_ms, gap.range.end_ns.div_euclid(NS_PER_MS).min(now_ms))
}

impl Queue {
    /// Sends what the store has of a gap's time.
    pub(super) async fn fill(self: &Arc<Self>, gap: LogGap, shards: u64) {
        let now_ms = self.network.platform.clock.now_ns() / NS_PER_MS;
        let (mut start_ms, end_ms) = bounds_ms(&gap, now_ms);
        let (mut width_ms, mut failures) = (WIDTH_MS, 0);
        while start_ms <= end_ms {
            let last_ms = start_ms.saturating_add(width_ms - 1).min(end_ms);
            let own = self.clone();
            let read = compute(&self.network.tasks, move || own.read_stored(start_ms, last_ms)).await;
            match read {
                Some(Ok(items)) => {
                    failures = 0;
                    let count = items.len();
                    self.send_all(items, shards).await;
                    if last_ms == i64::MAX {
                        return;
                    }
                    start_ms = last_ms + 1;
                    if count < SAMPLES_MIN {
                        width_ms = width_ms.saturating_mul(4);
                    }
                }
                // Too many samples, or no memory for them: less time at once.
                Some(Err(_)) | None if width_ms > WIDTH_MS_MIN => width_ms = (width_ms / 4).max(WIDTH_MS_MIN),
                Some(Err(_)) | None => {
                    self.network.tasks.sleep_ms(backoff_ms(&self.config.queue, failures)).await;
                    failures += 1;
                }
            }
        }
    }

    fn read_stored(&self, start_ms: i64, end_ms: i64) -> Result<Vec<Item>, String> {
        let all = [Matcher::new(METRIC_NAME, MatchOp::NotEqual, "")];
        let budget = self.db.budget(SAMPLES_MAX);
        let found = self.db.samples(&self.database, &all, (start_ms, end_ms), &budget);
        let found = found.map_err(|error| error.to_string())?;
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
    fn a_gap_ends_now_at_the_latest() {
        let gap = |range| LogGap { sequences: (1, 2), range };
        assert_eq!(bounds_ms(&gap(TimeRange::new(1_999_999, 5_000_000)), 100), (1, 5));
        assert_eq!(bounds_ms(&gap(TimeRange::new(1_000_000, i64::MAX)), 100), (1, 100));
        let (start_ms, end_ms) = bounds_ms(&gap(TimeRange::EMPTY), 100);
        assert!(start_ms > end_ms);
    }
}
