//! Columns that look like what is monitored.

/// A column of floats.
pub(crate) struct Floats(pub(crate) Vec<f64>);

/// A column of integers or timestamps.
pub(crate) struct Integers(pub(crate) Vec<i64>);

/// A seeded source of chance: `SplitMix64` (Steele, Lea, Flood 2014).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Even between 0 and 1.
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, end: u64) -> i64 {
        (self.next() % end) as i64
    }

    /// Normal with mean 0 and deviation 1, near enough: the sum of twelve even numbers.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }

    /// A walk of normal steps between 0 and 100, as the suite's cpu gauges.
    fn walk(&mut self, count: usize) -> Vec<f64> {
        let mut at = 100.0 * self.uniform();
        let mut step = || {
            at = (at + self.normal()).clamp(0.0, 100.0);
            at
        };
        (0..count).map(|_| step()).collect()
    }

    /// Climbs by uneven increments, and falls back to 0 now and then.
    fn counter(&mut self, count: usize) -> Vec<i64> {
        let mut at = 5_000_000_000;
        let mut step = || {
            let increment = 20_000.0 * (1.0 + 0.2 * self.normal()).max(0.0);
            at = if self.below(2000) == 0 { 0 } else { at + increment as i64 };
            at
        };
        (0..count).map(|_| step()).collect()
    }
}

/// By name.
pub(crate) fn floats(count: usize) -> Vec<(&'static str, Floats)> {
    let mut chance = Chance(42);
    let walk = chance.walk(count);
    let counter = chance.counter(count);
    let mut pages = 0i64;
    let mut page = |chance: &mut Chance| {
        pages += if chance.below(4) == 0 { (chance.normal() * 200.0) as i64 } else { 0 };
        (2_000_000 + pages) as f64 * 4096.0
    };
    let mut seconds = 1000.0;
    let mut second = |chance: &mut Chance| {
        seconds += 9.5 + chance.normal() * 0.2;
        (seconds * 100f64).round() / 100.0
    };
    vec![
        ("tsbs cpu", Floats(walk.iter().map(|value| value.trunc()).collect())),
        ("two decimals, walk", Floats(walk.iter().map(|value| (value * 10.0).round() / 100.0).collect())),
        ("two decimals, counter of seconds", Floats((0..count).map(|_| second(&mut chance)).collect())),
        ("counter with resets", Floats(counter.iter().map(|value| *value as f64).collect())),
        ("bytes in pages", Floats((0..count).map(|_| page(&mut chance)).collect())),
        (
            "mostly zero",
            Floats((0..count).map(|_| if chance.below(50) == 0 { chance.below(1000) as f64 } else { 0.0 }).collect()),
        ),
        ("constant", Floats(vec![99.5; count])),
        ("full precision, walk", Floats(walk)),
        ("full precision, percent", Floats((0..count).map(|_| 100.0 * chance.uniform()).collect())),
        ("full precision, both signs", Floats((0..count).map(|_| chance.normal()).collect())),
    ]
}

/// By name.
pub(crate) fn integers(count: usize) -> Vec<(&'static str, Integers)> {
    let mut chance = Chance(43);
    let at = |n: usize| 1_700_000_000_000_000_000 + n as i64 * 10_000_000_000;
    vec![
        ("counter with resets", Integers(chance.counter(count))),
        ("timestamps, steady", Integers((0..count).map(at).collect())),
        ("timestamps, ±5 ms in ms", Integers((0..count).map(|n| at(n) + chance.below(11) * 1_000_000).collect())),
        ("timestamps, ±5 ms in ns", Integers((0..count).map(|n| at(n) + chance.below(10_000_000)).collect())),
        ("timestamps, drifting ms", {
            let mut now = at(0);
            let mut step = || {
                now += 10_000_000_000 + (chance.below(11) - 5) * 1_000_000;
                now
            };
            Integers((0..count).map(|_| step()).collect())
        }),
        ("noise of 64 bits", Integers((0..count).map(|_| chance.next() as i64).collect())),
    ]
}
