//! Which new series may come in: as many as a database may have, and as many in a second. What is known already is never refused.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use index::DatabaseId;
use model::RejectionKind;
use tracing_mutex::parkinglot::Mutex;

use crate::{Store, StoreError};

const NS_PER_S: i64 = 1_000_000_000;

/// Asked before so many new series are made for a request; an error says why they are not, for now.
pub type SeriesGate<'a> = &'a (dyn Fn(u64) -> Result<(), String> + Sync);

/// Where new series of a request go.
#[derive(Clone, Copy)]
pub(crate) struct SeriesTarget<'a> {
    pub(crate) database: DatabaseId,
    /// Limits of the sender, if it has any.
    pub(crate) gate: Option<SeriesGate<'a>>,
}

impl SeriesTarget<'_> {
    /// Asks the sender's limits.
    pub(crate) fn pass(&self, count: u64) -> Result<(), Refusal> {
        let passed = self.gate.map_or(Ok(()), |gate| gate(count));
        passed.map_err(|reason| Refusal { kind: RejectionKind::SeriesRefused, reason, is_for_now: true })
    }
}

/// Share of the new series of a second that one database leaves to others.
const OTHERS_SHARE: u64 = 8;

/// New series of a second.
#[derive(Debug, Default)]
struct Second {
    number: i64,
    all: u64,
    by_database: HashMap<DatabaseId, u64>,
}

impl Second {
    /// Returns whether so many more of a database fit. A group with more series than a second may bring comes alone, or it would never come;
    /// a database may have what no other wants, but for the last eighth.
    fn fits(&self, database: DatabaseId, count: u64, max: u64) -> bool {
        let (all, own) = (self.all + count, self.by_database.get(&database).copied().unwrap_or(0) + count);
        let reserve = max / OTHERS_SHARE;
        self.all == 0 || all <= max && (own <= reserve || all <= max - reserve)
    }
}

/// What new series are counted by.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    /// Series by database, where they were counted and nothing has left the index since.
    series: Mutex<HashMap<DatabaseId, u64>>,
    second: Mutex<Second>,
    refused_by_database: AtomicU64,
    refused_by_rate: AtomicU64,
    refused_by_memory: AtomicU64,
}

/// Why rows are not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) kind: RejectionKind,
    pub(crate) reason: String,
    /// True if the same rows may be taken when they are sent again later.
    pub(crate) is_for_now: bool,
}

impl Refusal {
    pub(crate) const fn for_good(kind: RejectionKind, reason: String) -> Self {
        Self { kind, reason, is_for_now: false }
    }
}

/// Settings of [`Admission`]; 0 is no limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeriesLimits {
    pub(crate) per_database_max: u64,
    pub(crate) per_second_max: u64,
}

impl Admission {
    /// Lets new series of a database in, or says why not. Their database's were counted before, if that is asked for.
    pub(crate) fn admit(
        &self,
        database: DatabaseId,
        count: u64,
        now_ns: i64,
        limits: SeriesLimits,
    ) -> Result<(), Refusal> {
        let mut series = self.series.lock();
        let known = series.entry(database).or_default();
        if limits.per_database_max > 0 && *known + count > limits.per_database_max {
            self.refused_by_database.fetch_add(1, Ordering::Relaxed);
            return Err(Refusal::for_good(
                RejectionKind::SeriesRefused,
                format!(
                    "new series are refused: the database has {known} of the {} that series_per_database_max allows; raise it, or \
                 write fewer different labels",
                    limits.per_database_max
                ),
            ));
        }
        if limits.per_second_max > 0 && !self.fits_second(database, count, (now_ns, limits.per_second_max)) {
            self.refused_by_rate.fetch_add(1, Ordering::Relaxed);
            let reason = format!(
                "new series are refused: more than the {} a second that new_series_per_second_max allows; send the row again \
                 later, or raise the limit",
                limits.per_second_max
            );
            return Err(Refusal { kind: RejectionKind::SeriesRefused, reason, is_for_now: true });
        }
        *known += count;
        Ok(())
    }

    fn fits_second(&self, database: DatabaseId, count: u64, (now_ns, max): (i64, u64)) -> bool {
        let mut present = self.second.lock();
        let second = now_ns.div_euclid(NS_PER_S);
        if present.number != second {
            *present = Second { number: second, ..Second::default() };
        }
        let fits = present.fits(database, count, max);
        if fits {
            present.all += count;
            *present.by_database.entry(database).or_default() += count;
        }
        fits
    }

    /// Counts are wrong from now on: series have left the index.
    pub(crate) fn forget(&self) {
        self.series.lock().clear();
    }

    pub(crate) fn refused_by_memory(&self) {
        self.refused_by_memory.fetch_add(1, Ordering::Relaxed);
    }

    /// How often new series were refused, by the setting that did.
    pub(crate) fn refused(&self) -> [(&'static str, u64); 3] {
        [
            ("series_per_database_max", self.refused_by_database.load(Ordering::Relaxed)),
            ("new_series_per_second_max", self.refused_by_rate.load(Ordering::Relaxed)),
            ("memory_bytes_max", self.refused_by_memory.load(Ordering::Relaxed)),
        ]
    }
}

impl Store {
    /// Lets new names of a regular database in, which has so many already, or says why not.
    pub(crate) fn admit_names(&self, to: SeriesTarget<'_>, known: u64, count: u64) -> Result<(), Refusal> {
        let admission = &self.ingestor.admission;
        if let Some(reason) = self.ingestor.refusal.read().clone() {
            admission.refused_by_memory();
            return Err(Refusal::for_good(RejectionKind::SeriesRefused, reason));
        }
        to.pass(count)?;
        admission.series.lock().insert(to.database, known);
        let limits = SeriesLimits {
            per_database_max: self.options.series_per_database_max,
            per_second_max: self.options.new_series_per_second_max,
        };
        // A rate: by a clock that neither stands still nor jumps.
        let now_ns = i64::try_from(self.platform.clock.monotonic_ns()).unwrap_or(i64::MAX);
        admission.admit(to.database, count, now_ns, limits)
    }

    /// The limits for new series, after the database's were counted if they must be.
    pub(crate) fn series_limits(&self, database: DatabaseId) -> Result<SeriesLimits, StoreError> {
        let per_database_max = self.options.series_per_database_max;
        if per_database_max > 0 && !self.ingestor.admission.series.lock().contains_key(&database) {
            let count = self.cardinality_of(database, 0, &|_| true)?.series;
            self.ingestor.admission.series.lock().entry(database).or_insert(count);
        }
        Ok(SeriesLimits { per_database_max, per_second_max: self.options.new_series_per_second_max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(admission: &Admission, counts: &[u64], now_ns: i64, limits: SeriesLimits) -> Vec<bool> {
        counts.iter().map(|count| admission.admit(1, *count, now_ns, limits).is_ok()).collect()
    }

    #[test]
    fn a_database_leaves_some_of_a_second_to_others() {
        let admission = Admission::default();
        let limits = SeriesLimits { per_database_max: 0, per_second_max: 80 };
        assert_eq!(admitted(&admission, &[60, 10, 1], 0, limits), [true, true, false]);
        let admit = |database, count| admission.admit(database, count, 0, limits).is_ok();
        assert_eq!([admit(2, 6), admit(3, 4), admit(2, 1)], [true, true, false]);
    }

    #[test]
    fn a_database_has_so_many_and_a_second_too() {
        let admission = Admission::default();
        let limits = SeriesLimits { per_database_max: 10, per_second_max: 4 };
        assert_eq!(admitted(&admission, &[3, 2, 1], 0, limits), [true, false, true]);
        assert_eq!(admitted(&admission, &[4], NS_PER_S, limits), [true]);
        assert_eq!(admitted(&admission, &[3, 2, 1], 2 * NS_PER_S, limits), [false, true, false]);
        assert_eq!(admission.refused().map(|(_, count)| count), [2, 1, 0]);
        let refusal = admission.admit(1, 1, 0, limits).unwrap_err();
        assert!(refusal.reason.contains("has 10 of the 10 that series_per_database_max allows"), "{refusal:?}");
        assert!(!refusal.is_for_now);
        let large = SeriesLimits { per_database_max: 0, per_second_max: 4 };
        assert_eq!(admitted(&admission, &[9, 1], 3 * NS_PER_S, large), [true, false], "a large group comes alone");
        assert!(admission.admit(1, 1, 3 * NS_PER_S, large).unwrap_err().is_for_now);
        let none = SeriesLimits { per_database_max: 0, per_second_max: 0 };
        assert_eq!(admitted(&admission, &[1 << 40], 0, none), [true]);
        admission.forget();
        assert_eq!(admitted(&admission, &[3], 9 * NS_PER_S, limits), [true]);
    }
}
