//! The lines of the scrape before: a line is known by the hash of its name and labels as they are spelled, and leads to the token of its
//! series. Labels are neither parsed nor kept.
//!
//! Lines are kept in their order, and a scrape mostly has those of the scrape before in the same order: a line is looked for where the one
//! before it was found, and by its hash only where that fails.

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

/// A line of the scrape at hand.
#[derive(Debug, Clone, Copy)]
pub(super) struct NotedLine {
    pub(super) hash: u128,
    pub(super) series: Series,
    /// True if a marker ends the series when it is missing.
    pub(super) is_tracked: bool,
}

/// A line, in 32 bytes.
#[derive(Debug, Clone, Copy)]
struct Line {
    hash: u128,
    token: u64,
    is_stored: bool,
    is_tracked: bool,
    /// True if the scrape at hand has it.
    is_current: bool,
}

impl Line {
    fn ended_token(&self) -> Option<u64> {
        (self.is_stored && self.is_tracked).then_some(self.token)
    }
}

/// The lines of a target.
#[derive(Default)]
pub(super) struct LineCache {
    /// Those of the last scrape that succeeded, in their order.
    lines: Vec<Line>,
    /// Where the next line is expected among them.
    next: usize,
    /// Where lines are, for a scrape with another order. Empty between scrapes.
    by_hash: HashMap<u128, usize, BuildHasherDefault<Passing>>,
    /// The lines of the scrape at hand.
    current: Vec<Line>,
    /// Where native histograms are written, of those lines that are one.
    histograms: HashMap<u128, Arc<HistogramSeries>, BuildHasherDefault<Passing>>,
    /// Since when the series of lines count, in nanoseconds since the Unix epoch, by the lines that say so.
    starts_ns: HashMap<u128, i64, BuildHasherDefault<Passing>>,
    /// The hash of the comments that were read last.
    comments_hash: u64,
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
        self.next = 0;
        self.by_hash = HashMap::default();
        self.current = Vec::new();
        self.lines.iter_mut().for_each(|line| line.is_current = false);
    }

    /// Looks a line up, and notes that the scrape at hand has it.
    pub(super) fn get(&mut self, hash: u128) -> Option<Series> {
        let index = match self.lines.get(self.next) {
            Some(line) if line.hash == hash => self.next,
            _ => self.find(hash)?,
        };
        self.next = index + 1;
        let line = self.lines.get_mut(index)?;
        line.is_current = true;
        Some(if line.is_stored { Series::Stored(line.token) } else { Series::Dropped })
    }

    /// Looks a line up that is not where it was expected.
    fn find(&mut self, hash: u128) -> Option<usize> {
        if self.by_hash.is_empty() {
            self.by_hash = self.lines.iter().zip(0..).map(|(line, index)| (line.hash, index)).collect();
        }
        self.by_hash.get(&hash).copied()
    }

    /// How many lines are known.
    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// Keeps a line of the scrape at hand for the next one.
    pub(super) fn note(&mut self, NotedLine { hash, series, is_tracked }: NotedLine) {
        if self.current.is_empty() {
            self.current.reserve_exact(self.lines.len());
        }
        let (token, is_stored) = match series {
            Series::Stored(token) => (token, true),
            Series::Dropped => (0, false),
        };
        self.current.push(Line { hash, token, is_stored, is_tracked, is_current: true });
    }

    /// Where the native histograms of a line are written.
    pub(super) fn histogram(&self, hash: u128) -> Option<Arc<HistogramSeries>> {
        self.histograms.get(&hash).cloned()
    }

    /// Notes where they are.
    pub(super) fn note_histogram(&mut self, hash: u128, series: Arc<HistogramSeries>) {
        self.histograms.insert(hash, series);
    }

    /// Notes since when a series counts; returns whether that is new.
    pub(super) fn note_start(&mut self, hash: u128, start_ns: i64) -> bool {
        self.starts_ns.insert(hash, start_ns) != Some(start_ns)
    }

    /// Has all start times count as new again.
    pub(super) fn forget_starts(&mut self) {
        self.starts_ns.clear();
    }

    /// Returns whether these are the comments that were read last.
    pub(super) const fn has_comments(&self, hash: u64) -> bool {
        self.comments_hash == hash
    }

    /// Notes which comments were read.
    pub(super) const fn note_comments(&mut self, hash: u64) {
        self.comments_hash = hash;
    }

    /// Ends a scrape that succeeded: the series that it lacks and that are to be ended. Its own lines are kept alone.
    pub(super) fn finish(&mut self) -> Vec<u64> {
        let before = std::mem::replace(&mut self.lines, std::mem::take(&mut self.current));
        self.by_hash = HashMap::default();
        // Those of lines that are gone: the others are stored once more, where they are known.
        if self.starts_ns.len() > self.lines.len() * 2 {
            self.starts_ns.clear();
        }
        let gone = before.iter().filter(|line| !line.is_current);
        let mut missing: Vec<u64> = gone.clone().filter_map(Line::ended_token).collect();
        if !self.histograms.is_empty() {
            // A line that came twice before may still be there once.
            let current: HashSet<u128> = self.lines.iter().map(|line| line.hash).collect();
            gone.filter(|line| !current.contains(&line.hash)).for_each(|line| drop(self.histograms.remove(&line.hash)));
        }
        if !missing.is_empty() {
            // Another spelling of the labels, or the line once more, may have come in its place.
            let current: HashSet<u64, BuildHasherDefault<Passing>> = self.tracked().collect();
            missing.retain(|token| !current.contains(token));
            missing.sort_unstable();
            missing.dedup();
        }
        missing
    }

    fn tracked(&self) -> impl Iterator<Item = u64> {
        self.lines.iter().filter_map(Line::ended_token)
    }

    /// Ends a scrape that failed: all series that are to be ended. Lines stay known.
    pub(super) fn fail(&mut self) -> Vec<u64> {
        let mut ended: Vec<u64> = self.tracked().collect();
        ended.sort_unstable();
        ended.dedup();
        self.lines.iter_mut().for_each(|line| line.is_tracked = false);
        self.current = Vec::new();
        self.by_hash = HashMap::default();
        ended
    }

    /// Forgets series that are not there any more.
    pub(super) fn forget(&mut self, tokens: &[u64]) {
        let tokens: HashSet<u64> = tokens.iter().copied().collect();
        let histograms = &mut self.histograms;
        self.lines.retain(|line| {
            let histogram = histograms.get(&line.hash).map(|series| series.token);
            let is_gone = line.is_stored
                && (tokens.contains(&line.token) || histogram.is_some_and(|token| tokens.contains(&token)));
            if is_gone {
                histograms.remove(&line.hash);
            }
            !is_gone
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(cache: &mut LineCache, hash: u128, series: Series, is_tracked: bool) {
        cache.get(hash);
        cache.note(NotedLine { hash, series, is_tracked });
    }

    #[test]
    fn missing_lines_end_once() {
        let mut cache = LineCache::default();
        cache.begin();
        note(&mut cache, 1, Series::Stored(10), true);
        note(&mut cache, 2, Series::Stored(20), true);
        note(&mut cache, 3, Series::Dropped, true);
        note(&mut cache, 4, Series::Stored(40), false);
        assert_eq!(cache.finish(), [0; 0]);
        cache.begin();
        note(&mut cache, 1, Series::Stored(10), true);
        // The same labels in another order.
        note(&mut cache, 5, Series::Stored(20), true);
        assert_eq!(cache.finish(), [0; 0]);
        cache.begin();
        note(&mut cache, 1, Series::Stored(10), true);
        assert_eq!(cache.finish(), [20]);
        cache.begin();
        assert_eq!((cache.get(5), cache.get(1)), (None, Some(Series::Stored(10))));
        cache.begin();
        assert_eq!(cache.fail(), [10]);
        cache.begin();
        assert_eq!(cache.fail(), [0; 0]);
        cache.begin();
        assert_eq!(cache.get(1), Some(Series::Stored(10)));
    }

    #[test]
    fn lines_are_found_in_any_order() {
        let mut cache = LineCache::default();
        cache.begin();
        for hash in 1..=100_u128 {
            note(&mut cache, hash, Series::Stored(hash as u64 * 10), true);
        }
        assert_eq!(cache.finish(), [0; 0]);
        // In order, backwards, every other one, each twice: what is missing is named, and no more.
        for order in
            [(1..=100).collect(), (1..=100).rev().collect(), (1..=100).flat_map(|hash| [hash; 2]).collect::<Vec<_>>()]
        {
            cache.begin();
            for hash in order {
                let series = cache.get(hash);
                assert_eq!(series, Some(Series::Stored(hash as u64 * 10)));
                cache.note(NotedLine { hash, series: series.unwrap(), is_tracked: true });
            }
            assert_eq!(cache.finish(), [0; 0]);
        }
        cache.begin();
        for hash in (1..=100_u128).filter(|hash| hash % 2 == 0) {
            note(&mut cache, hash, Series::Stored(hash as u64 * 10), true);
        }
        assert_eq!(cache.finish(), (1..=100).step_by(2).map(|hash| hash * 10).collect::<Vec<u64>>());
        cache.forget(&[20, 40]);
        assert_eq!(cache.len(), 48);
        cache.begin();
        assert_eq!((cache.get(2), cache.get(6)), (None, Some(Series::Stored(60))));
    }

    #[test]
    fn a_line_takes_32_bytes() {
        assert_eq!(size_of::<Line>(), 32);
    }
}
