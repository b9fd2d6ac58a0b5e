//! Delta temporality to cumulative: what the points of a series add up to since the first of them.
//!
//! A point that comes again (same time, same count, same sum) is answered by the sum as it is, so that a request that is sent
//! twice counts once. Points that are not newer than the newest, or that begin before the series does, are refused; a stretch of
//! time that no point covers is counted and passed over. Sums live in memory alone: after a restart they begin at 0, which
//! readers of counters take for the reset that it is. So they do after a silence of [`DeltaLimits::stale_ms`].
//! (<https://opentelemetry.io/docs/specs/otel/metrics/data-model/#temporality>, and the Collector's processor `deltatocumulative`.)

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::exponential::Exponential;
use crate::errors::{LimitName, Reason};

/// How often series are looked through for stale ones while there is no room.
const SWEEP_INTERVAL_NS: i64 = 1_000_000_000;

/// Bytes of a series but for what its sum keeps on the heap: the map's slots are at most 7/8 full, at least 7/16.
const SERIES_BYTES: usize = 2 * (size_of::<u128>() + size_of::<Series>() + 1);

/// Bounds on what is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaLimits {
    /// Series that are added up at the same time.
    pub series_max: usize,
    /// Bytes that all of them take.
    pub size_bytes_max: usize,
    /// A series that no point came for so long is forgotten, in milliseconds.
    pub stale_ms: u64,
}

impl Default for DeltaLimits {
    fn default() -> Self {
        Self { series_max: 500_000, size_bytes_max: 128 << 20, stale_ms: 3_600_000 }
    }
}

/// Sums that are remembered, and gaps that were found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeltaStats {
    /// Series that are added up.
    pub series: usize,
    /// Bytes that they take.
    pub size_bytes: usize,
    /// Stretches of time that no point covered.
    pub gaps_total: u64,
    /// Points that were refused because newer ones of their series were there.
    pub out_of_order_total: u64,
    /// Series that were forgotten after a silence.
    pub stale_total: u64,
}

/// The sums of all series of delta temporality.
#[derive(Debug, Default)]
pub struct Deltas {
    limits: DeltaLimits,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    series: HashMap<u128, Series>,
    swept_ns: i64,
    stats: DeltaStats,
}

#[derive(Debug)]
struct Series {
    /// When the first point began; 0 if it did not say.
    start_ns: u64,
    /// When the newest one ended.
    time_ns: i64,
    /// When it came.
    seen_ns: i64,
    /// Its count and sum, by which it is known when it comes again.
    newest: (u64, u64),
    total: Total,
}

/// Where a point stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeltaInterval {
    pub(super) start_ns: u64,
    pub(super) time_ns: i64,
}

/// What points say, and what they add up to.
#[derive(Debug, Clone)]
pub(super) enum Total {
    Number(f64),
    Classic(Classic),
    Exponential(Box<Exponential>),
}

/// A histogram of explicit bounds.
#[derive(Debug, Clone)]
pub(super) struct Classic {
    /// The hash of the bounds.
    pub(super) bounds: u128,
    pub(super) counts: Vec<u64>,
    pub(super) count: u64,
    /// Unknown as soon as it was for one point.
    pub(super) sum: Option<f64>,
}

impl Total {
    fn fingerprint(&self) -> (u64, u64) {
        match self {
            Self::Number(value) => (0, value.to_bits()),
            Self::Classic(one) => (one.count, one.sum.unwrap_or_default().to_bits()),
            Self::Exponential(one) => one.fingerprint(),
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Self::Number(_) => 0,
            Self::Classic(one) => size_of_val(one.counts.as_slice()),
            Self::Exponential(_) => Exponential::SIZE_BYTES_MAX,
        }
    }

    /// Whether both can be added up. If the kind or the bounds changed, a new series begins.
    fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(_), Self::Number(_)) | (Self::Exponential(_), Self::Exponential(_)) => true,
            (Self::Classic(one), Self::Classic(other)) => {
                one.bounds == other.bounds && one.counts.len() == other.counts.len()
            }
            _ => false,
        }
    }

    fn add(&mut self, delta: &Self) -> Result<(), String> {
        match (self, delta) {
            (Self::Number(sum), Self::Number(value)) => *sum += value,
            (Self::Exponential(sum), Self::Exponential(delta)) => sum.add(delta)?,
            (Self::Classic(sum), Self::Classic(delta)) => {
                sum.count = sum.count.saturating_add(delta.count);
                sum.sum = sum.sum.zip(delta.sum).map(|(sum, more)| sum + more);
                for (count, more) in sum.counts.iter_mut().zip(&delta.counts) {
                    *count = count.saturating_add(*more);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Deltas {
    /// Nothing yet.
    pub fn new(limits: DeltaLimits) -> Self {
        Self { limits, inner: Mutex::default() }
    }

    /// Sums that are remembered, and gaps that were found.
    pub fn stats(&self) -> DeltaStats {
        let inner = self.lock();
        DeltaStats { series: inner.series.len(), ..inner.stats }
    }

    /// Adds a point to its series; when the series began, and what its points add up to. Fails with the reason for the sender.
    pub(super) fn add(
        &self,
        key: u128,
        now_ns: i64,
        stretch: DeltaInterval,
        delta: Total,
    ) -> Result<(u64, Total), Reason> {
        let mut inner = self.lock();
        inner.sweep(&self.limits, now_ns);
        let Inner { series, stats, .. } = &mut *inner;
        match series.get_mut(&key) {
            Some(known) if known.total.fits(&delta) => {
                known.seen_ns = now_ns;
                known.take(stretch, &delta, stats)
            }
            _ => {
                inner.forget(key);
                inner.begin(&self.limits, key, now_ns, stretch, delta)
            }
        }
    }

    /// Forgets a series that ended.
    pub(super) fn end(&self, key: u128) {
        self.lock().forget(key);
    }

    /// A panic elsewhere leaves sums that are whole: each is changed at once.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Series {
    fn take(&mut self, stretch: DeltaInterval, delta: &Total, stats: &mut DeltaStats) -> Result<(u64, Total), Reason> {
        if stretch.time_ns == self.time_ns && delta.fingerprint() == self.newest {
            return Ok((self.start_ns, self.total.clone()));
        }
        if stretch.time_ns <= self.time_ns || stretch.start_ns != 0 && stretch.start_ns < self.start_ns {
            stats.out_of_order_total += 1;
            return Err(format!(
                "a delta from {} to {} came after one from {} to {} (nanoseconds) of its series was counted",
                stretch.start_ns, stretch.time_ns, self.start_ns, self.time_ns
            )
            .into());
        }
        self.total.add(delta)?;
        stats.gaps_total += u64::from(i64::try_from(stretch.start_ns).is_ok_and(|start| start > self.time_ns));
        self.time_ns = stretch.time_ns;
        self.newest = delta.fingerprint();
        Ok((self.start_ns, self.total.clone()))
    }
}

impl Inner {
    fn begin(
        &mut self,
        limits: &DeltaLimits,
        key: u128,
        now_ns: i64,
        stretch: DeltaInterval,
        delta: Total,
    ) -> Result<(u64, Total), Reason> {
        if self.series.len() >= limits.series_max {
            return Err(LimitName::OtlpDeltaSeries
                .exceeded(format_args!("{} series of deltas are added up already", limits.series_max)));
        }
        let size_bytes = SERIES_BYTES + delta.heap_bytes();
        if self.stats.size_bytes + size_bytes > limits.size_bytes_max {
            return Err(LimitName::OtlpDeltaBytes.exceeded(format_args!(
                "series of deltas take {} bytes, and one more {size_bytes}: more than {}",
                self.stats.size_bytes, limits.size_bytes_max
            )));
        }
        let DeltaInterval { start_ns, time_ns } = stretch;
        let newest = delta.fingerprint();
        let total = match delta {
            Total::Exponential(one) => Total::Exponential(Box::new(one.bounded()?)),
            other => other,
        };
        self.stats.size_bytes += size_bytes;
        self.series.insert(key, Series { start_ns, time_ns, seen_ns: now_ns, newest, total: total.clone() });
        Ok((start_ns, total))
    }

    fn forget(&mut self, key: u128) {
        if let Some(one) = self.series.remove(&key) {
            self.stats.size_bytes -= SERIES_BYTES + one.total.heap_bytes();
        }
    }

    /// Forgets stale series: now and then, or if there is no room.
    fn sweep(&mut self, limits: &DeltaLimits, now_ns: i64) {
        let stale_ns = i64::try_from(limits.stale_ms).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        let is_full = self.series.len() >= limits.series_max
            || self.stats.size_bytes + SERIES_BYTES + Exponential::SIZE_BYTES_MAX > limits.size_bytes_max;
        let interval_ns = if is_full { SWEEP_INTERVAL_NS.min(stale_ns) } else { stale_ns };
        if now_ns.saturating_sub(self.swept_ns) < interval_ns {
            return;
        }
        self.swept_ns = now_ns;
        let Self { series, stats, .. } = self;
        series.retain(|_, one| {
            let stays = now_ns.saturating_sub(one.seen_ns) < stale_ns;
            if !stays {
                stats.size_bytes -= SERIES_BYTES + one.total.heap_bytes();
                stats.stale_total += 1;
            }
            stays
        });
        if series.capacity() > 4 * series.len() {
            series.shrink_to(2 * series.len());
        }
    }
}
