//! Requests as the benchmark YCSB-TS makes them: recent times more often than old ones, short spans more often than long ones, some
//! queries more often than others; and such with a hot spot in old data.

use cache::Span;

/// What requests are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mix {
    /// All end near the newest data, the nearer the more often.
    Latest,
    /// Some do, the others are within the first fifth of the data: so many of each.
    HotSpot {
        /// Requests for new data.
        new: u32,
        /// Requests for the hot spot.
        old: u32,
    },
}

/// A query and a span of minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// Which query: the lower, the more often.
    pub(crate) query: u32,
    /// For when.
    pub(crate) span: Span,
}

/// The shortest and the longest span, in minutes: a minute and a week.
const SPAN_MINUTES: (i64, i64) = (1, 7 * 24 * 60);
/// Different queries.
const QUERIES: u64 = 100;
/// The skew that YCSB takes.
const THETA: f64 = 0.99;

/// Makes requests, the same from the same seed.
#[derive(Debug)]
pub(crate) struct Workload {
    mix: Mix,
    data_minutes: i64,
    shortest: i64,
    chance: Chance,
    recency: Zipf,
    lengths: Zipf,
    queries: Zipf,
}

impl Workload {
    /// Over so many minutes of data; spans of a minute to a week.
    pub(crate) fn new(mix: Mix, data_minutes: i64, seed: u64) -> Self {
        Self::of_lengths(mix, data_minutes, SPAN_MINUTES, seed)
    }

    /// A workload with other spans: the shortest and the longest, in minutes.
    pub(crate) fn of_lengths(mix: Mix, data_minutes: i64, (shortest, longest): (i64, i64), seed: u64) -> Self {
        Self {
            mix,
            data_minutes,
            shortest,
            chance: Chance(seed),
            recency: Zipf::new(data_minutes.max(2) as u64),
            lengths: Zipf::new((longest.min(data_minutes) - shortest + 1).max(2) as u64),
            queries: Zipf::new(QUERIES),
        }
    }

    /// The next one.
    pub(crate) fn request(&mut self) -> Request {
        let length = self.shortest + self.lengths.next(&mut self.chance) as i64;
        let is_new = match self.mix {
            Mix::Latest => true,
            Mix::HotSpot { new, old } => self.chance.below(u64::from(new + old)) < u64::from(new),
        };
        let end = if is_new {
            self.data_minutes - self.recency.next(&mut self.chance) as i64
        } else {
            1 + self.chance.below((self.data_minutes / 5) as u64) as i64
        };
        let end = end.clamp(1, self.data_minutes);
        let query = self.queries.next(&mut self.chance) as u32;
        Request { query, span: Span::new((end - length).max(0), end) }
    }
}

/// `SplitMix64` (Steele, Lea, Flood 2014).
#[derive(Debug)]
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// From 0 to just below 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Numbers from 0 on, the lower the more often (Gray et al.: Quickly Generating Billion-Record Synthetic Databases, SIGMOD 1994).
#[derive(Debug)]
struct Zipf {
    items: f64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

impl Zipf {
    fn new(items: u64) -> Self {
        let zeta = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-THETA)).sum::<f64>();
        let all = zeta(items);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - THETA)) / (1.0 - zeta(2) / all);
        Self { items: items as f64, zeta: all, alpha: 1.0 / (1.0 - THETA), eta }
    }

    fn next(&self, chance: &mut Chance) -> u64 {
        let share = chance.share();
        let scaled = share * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(THETA) {
            return 1;
        }
        let rank = self.items * (self.eta * share - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items as u64 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_numbers_come_often_and_all_stay_inside() {
        let (zipf, mut chance) = (Zipf::new(1000), Chance(1));
        let mut counts = vec![0u32; 1000];
        (0..100_000).for_each(|_| counts[zipf.next(&mut chance) as usize] += 1);
        assert!(counts[0] > 5 * counts[9] && counts[9] > counts[500..].iter().sum::<u32>() / 100);
        let mut workload = Workload::new(Mix::HotSpot { new: 1, old: 1 }, 10_000, 7);
        let requests: Vec<Request> = (0..10_000).map(|_| workload.request()).collect();
        assert!(requests.iter().all(|request| request.span.start >= 0 && request.span.end <= 10_000));
        let old = requests.iter().filter(|request| request.span.end <= 2_000).count();
        assert!((4_500..6_500).contains(&old), "about half are for the hot spot: {old}");
    }
}
