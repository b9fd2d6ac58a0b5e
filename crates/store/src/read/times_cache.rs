//! Timestamps that a reader of many groups decoded: nearly all series of a scrape have the same ones, in the same bytes. Those are decoded, cut to the
//! range and turned into milliseconds once, and a later group with the same bytes shares that memory, so that readers need not compare them either.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use codec::DecodeError;
use model::TimeRange;
use tracing_mutex::parkinglot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::cache::number_hash::NumberHash;
use crate::memory::TIMES_CACHE_BYTES_MAX;
use crate::part::chunk::EncodedTimes;
use crate::read::milliseconds::to_milliseconds;

/// Times of a key in a range.
#[derive(Debug, Default)]
pub(crate) struct CutTimes {
    encoded: Vec<u8>,
    range: Option<TimeRange>,
    /// The rows that are in the range.
    pub(crate) rows: Range<usize>,
    /// Their times; `None` if two are in the same millisecond.
    pub(crate) times_ms: Option<Arc<Vec<i64>>>,
}

impl CutTimes {
    fn new(encoded: &EncodedTimes, range: &TimeRange) -> Result<Self, DecodeError> {
        let mut times = Vec::with_capacity(encoded.rows());
        encoded.decode(&mut times)?;
        let from = times.partition_point(|time_ns| *time_ns < range.start_ns);
        let to = times.partition_point(|time_ns| *time_ns <= range.end_ns).max(from);
        times.truncate(to);
        times.drain(..from);
        let same = to_milliseconds(&mut times);
        let times_ms = (!same).then(|| Arc::new(times));
        Ok(Self { encoded: encoded.bytes().to_vec(), range: Some(*range), rows: from..to, times_ms })
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.encoded.len() + self.times_ms.as_ref().map_or(0, |times_ms| times_ms.len() * 8)
    }
}

/// What one reader knows.
#[derive(Default)]
pub(crate) struct TimesCache(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    by_hash: HashMap<u64, Arc<CutTimes>, NumberHash>,
    bytes: usize,
}

impl TimesCache {
    /// The times that were encoded for a key, as far as they are in a range.
    pub(crate) fn cut(&self, encoded: &EncodedTimes, range: &TimeRange) -> Result<Arc<CutTimes>, DecodeError> {
        let hash = xxh3_64(encoded.bytes());
        let cached = self.0.lock().by_hash.get(&hash).cloned();
        if let Some(cached) = cached.filter(|cached| cached.range == Some(*range) && cached.encoded == encoded.bytes())
        {
            return Ok(cached);
        }
        let cut = Arc::new(CutTimes::new(encoded, range)?);
        if cut.bytes() <= TIMES_CACHE_BYTES_MAX {
            let mut entries = self.0.lock();
            if entries.bytes + cut.bytes() > TIMES_CACHE_BYTES_MAX {
                *entries = Entries::default();
            }
            let before = entries.by_hash.insert(hash, cut.clone());
            entries.bytes += cut.bytes();
            entries.bytes -= before.map_or(0, |before| before.bytes());
        }
        Ok(cut)
    }

    /// About as many bytes as it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.lock().bytes
    }
}

#[cfg(test)]
mod tests {
    use codec::integer;

    use super::*;

    fn encoded(pieces: &[&[i64]]) -> EncodedTimes {
        let mut all = EncodedTimes::default();
        for times in pieces {
            let mut encoded = Vec::new();
            integer::encode(times, &mut encoded);
            all.push(times.len(), &encoded);
        }
        all
    }

    const MS: i64 = 1_000_000;

    #[test]
    fn the_same_bytes_and_range_are_the_same_memory() {
        let entries = TimesCache::default();
        let cut = |pieces: &[&[i64]], end_ns| entries.cut(&encoded(pieces), &TimeRange::new(2 * MS, end_ns)).unwrap();
        let first = cut(&[&[MS, 2 * MS, 3 * MS], &[7 * MS, 9 * MS]], 8 * MS);
        assert_eq!((first.rows.clone(), first.times_ms.as_deref()), (1..4, Some(&vec![2, 3, 7])));
        let again = cut(&[&[MS, 2 * MS, 3 * MS], &[7 * MS, 9 * MS]], 8 * MS);
        assert!(Arc::ptr_eq(&first, &again));
        let longer = cut(&[&[MS, 2 * MS, 3 * MS], &[7 * MS, 9 * MS]], 9 * MS);
        assert_eq!((longer.rows.clone(), longer.times_ms.as_deref()), (1..5, Some(&vec![2, 3, 7, 9])));
        let other = cut(&[&[MS, 2 * MS, 3 * MS, 7 * MS, 9 * MS]], 9 * MS);
        assert_eq!(other.times_ms, longer.times_ms);
        let same_millisecond = cut(&[&[2 * MS, 2 * MS + 1]], 9 * MS);
        assert_eq!(same_millisecond.times_ms, None);
        assert_eq!(entries.memory_bytes(), entries.0.lock().by_hash.values().map(|cut| cut.bytes()).sum::<usize>());
    }

    #[test]
    fn the_times_cache_is_bounded() {
        let entries = TimesCache::default();
        let range = TimeRange::new(i64::MIN, i64::MAX);
        for start in 0..100 {
            let times: Vec<i64> = (0..10_000).map(|place| (start + place) * MS).collect();
            let cut = entries.cut(&encoded(&[&times]), &range).unwrap();
            assert_eq!(cut.times_ms.as_ref().and_then(|times_ms| times_ms.first()), Some(&start));
            assert!((1..=TIMES_CACHE_BYTES_MAX).contains(&entries.memory_bytes()));
        }
    }
}
