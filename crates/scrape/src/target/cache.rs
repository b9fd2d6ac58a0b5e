//! The lines of the scrapes before: a line is known by the hash of its name and labels as they are spelled, and leads to the token of its
//! series. Labels are neither parsed nor kept.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use db::GroupLayout;

/// Hashes what is a keyed hash already.
#[derive(Default)]
pub(super) struct Passing(u64);

impl Hasher for Passing {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            self.0 = self.0.rotate_left(8) ^ chunk.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
    }

    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}

/// A line's series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Series {
    /// Relabelling dropped it.
    Dropped,
    /// The token that rows are written by, as a number.
    Stored(u64),
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    series: Series,
    /// The number of the scrape that had the line last.
    scrape: u32,
    /// True if a marker ends the series when it is missing.
    is_tracked: bool,
}

/// The lines of a target.
#[derive(Default)]
pub(super) struct LineCache {
    entries: HashMap<u128, Entry, BuildHasherDefault<Passing>>,
    /// Where native histograms are written, of those lines that are one.
    histograms: HashMap<u128, Arc<HistogramSeries>, BuildHasherDefault<Passing>>,
    /// The number of the scrape at hand.
    scrape: u32,
}

/// Where a series' native histograms are written.
#[derive(Debug)]
pub struct HistogramSeries {
    pub(super) token: u64,
    pub(super) layout: GroupLayout,
}

impl HistogramSeries {
    /// The token of its rows.
    pub const fn token(&self) -> u64 {
        self.token
    }
}

impl LineCache {
    /// Begins a scrape.
    pub(super) fn begin(&mut self) {
        self.scrape = self.scrape.wrapping_add(1);
    }

    /// Looks a line up.
    pub(super) fn get(&self, hash: u128) -> Option<Series> {
        self.entries.get(&hash).map(|entry| entry.series)
    }

    /// How many lines are known.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Notes that the scrape at hand has a line.
    pub(super) fn note(&mut self, hash: u128, series: Series, is_tracked: bool) {
        self.entries.insert(hash, Entry { series, scrape: self.scrape, is_tracked });
    }

    /// Where the native histograms of a line are written.
    pub(super) fn histogram(&self, hash: u128) -> Option<Arc<HistogramSeries>> {
        self.histograms.get(&hash).cloned()
    }

    /// Notes where they are.
    pub(super) fn note_histogram(&mut self, hash: u128, series: Arc<HistogramSeries>) {
        self.histograms.insert(hash, series);
    }

    /// Ends a scrape that succeeded: the series that it lacks and that are to be ended. Its own lines are kept alone.
    pub(super) fn finish(&mut self) -> Vec<u64> {
        let scrape = self.scrape;
        let mut missing = Vec::new();
        self.entries.retain(|_, entry| {
            let is_current = entry.scrape == scrape;
            if let (false, true, Series::Stored(token)) = (is_current, entry.is_tracked, entry.series) {
                missing.push(token);
            }
            is_current
        });
        self.histograms.retain(|hash, _| self.entries.contains_key(hash));
        if !missing.is_empty() {
            // Another spelling of the labels may have come in its place.
            let current: HashSet<u64, BuildHasherDefault<Passing>> = self.tracked().collect();
            missing.retain(|token| !current.contains(token));
        }
        missing
    }

    fn tracked(&self) -> impl Iterator<Item = u64> {
        self.entries.values().filter_map(|entry| match entry.series {
            Series::Stored(token) if entry.is_tracked => Some(token),
            _ => None,
        })
    }

    /// Ends a scrape that failed: all series that are to be ended. Lines stay known.
    pub(super) fn fail(&mut self) -> Vec<u64> {
        let ended = self.tracked().collect();
        self.entries.values_mut().for_each(|entry| entry.is_tracked = false);
        ended
    }

    /// Forgets series that are not there any more.
    pub(super) fn forget(&mut self, tokens: &[u64]) {
        let histograms = &mut self.histograms;
        self.entries.retain(|hash, entry| {
            let histogram = histograms.get(hash).map(|series| series.token);
            let is_in = |token: u64| tokens.contains(&token);
            !matches!(entry.series, Series::Stored(token) if is_in(token) || histogram.is_some_and(is_in))
        });
        histograms.retain(|hash, _| self.entries.contains_key(hash));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_lines_end_once() {
        let mut cache = LineCache::default();
        cache.begin();
        cache.note(1, Series::Stored(10), true);
        cache.note(2, Series::Stored(20), true);
        cache.note(3, Series::Dropped, true);
        cache.note(4, Series::Stored(40), false);
        assert_eq!(cache.finish(), [0; 0]);
        cache.begin();
        cache.note(1, Series::Stored(10), true);
        // The same labels in another order.
        cache.note(5, Series::Stored(20), true);
        assert_eq!(cache.finish(), [0; 0]);
        cache.begin();
        cache.note(1, Series::Stored(10), true);
        assert_eq!(cache.finish(), [20]);
        assert_eq!((cache.get(5), cache.get(1)), (None, Some(Series::Stored(10))));
        cache.begin();
        assert_eq!(cache.fail(), [10]);
        cache.begin();
        assert_eq!(cache.fail(), [0; 0]);
        assert_eq!(cache.get(1), Some(Series::Stored(10)));
    }
}
