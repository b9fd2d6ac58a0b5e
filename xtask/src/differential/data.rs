//! The data that both are given: gauges, counters with resets, stale markers, native and classic histograms, names that are
//! no identifiers.

use std::fmt::Write as _;

use super::request::{self, Histogram};

/// Prometheus's marker of a series that ended, also the sum of a histogram that stands for it.
const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// Moments at which series may have a sample.
pub(crate) const SAMPLES: usize = 60;

/// From one to the next.
pub(crate) const STEP_MS: i64 = 15_000;

/// Mixes bits as `SplitMix64` does.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }

    pub(crate) fn one_of<'a, T: ?Sized>(&mut self, items: &[&'a T]) -> &'a T {
        items[self.below(items.len() as u64) as usize]
    }

    pub(crate) fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[derive(Debug, Clone)]
enum Cell {
    Missing,
    Stale,
    Float(f64),
    /// Of schema 0: the zero bucket's count, then those of the buckets up to 1, 2, 4 and 8.
    Histogram([u64; 5]),
}

#[derive(Debug, Clone)]
struct Series {
    labels: Vec<(String, String)>,
    cells: Vec<Cell>,
}

/// All series.
#[derive(Debug, Clone)]
pub(crate) struct Data {
    series: Vec<Series>,
}

impl Data {
    pub(crate) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x5eed);
        let mut series = Vec::new();
        for (name, kind) in [("g", 0), ("c_total", 1), ("h", 2), ("mixed", 3), ("f", 4), ("gäuge.utf8", 0)] {
            for (a, b) in [("1", "x"), ("1", "y"), ("2", "x"), ("2", "y"), ("3", "")] {
                let pairs = [("__name__", name), ("a", a), ("b", b), ("läbel", if a == "1" { "ü" } else { "" })];
                series.push(Series { labels: labels(&pairs), cells: cells(kind, &mut chance) });
            }
        }
        for le in ["0.1", "1", "10", "+Inf"] {
            for a in ["1", "2"] {
                let pairs = [("__name__", "b_bucket"), ("a", a), ("le", le)];
                let width = if le == "+Inf" { 20 } else { 5 };
                let mut total = 0;
                let mut grow = || {
                    total += chance.below(width);
                    Cell::Float(total as f64)
                };
                series.push(Series { labels: labels(&pairs), cells: (0..SAMPLES).map(|_| grow()).collect() });
            }
        }
        series.sort_by(|a, b| a.labels.cmp(&b.labels));
        Self { series }
    }

    /// The bodies of requests of remote write, one for each moment: Prometheus refuses what comes late, also histograms behind floats of the
    /// same request.
    pub(crate) fn requests(&self) -> impl Iterator<Item = Vec<u8>> {
        (0..SAMPLES).map(|moment| {
            let series: Vec<_> = self.series.iter().filter_map(|series| series.to_write(moment)).collect();
            request::body(&series)
        })
    }

    /// The same as `load` of a script.
    pub(crate) fn script(&self) -> String {
        let mut script = format!("load {}s\n", STEP_MS / 1000);
        for series in &self.series {
            let pairs: Vec<String> = series.labels.iter().map(|(name, value)| format!("{name:?}={value:?}")).collect();
            let _ = writeln!(script, "    {{{}}} {}", pairs.join(","), series.texts().join(" "));
        }
        script
    }
}

fn labels(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut labels: Vec<(String, String)> = pairs
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    labels.sort();
    labels
}

fn cells(kind: u32, chance: &mut Chance) -> Vec<Cell> {
    let (mut total, mut counts) = (0.0, [0; 5]);
    // All begin at once, so that Prometheus, which answers some queries in the order in which series came, has them in that of labels.
    let cell = |moment| match chance.below(40) {
        0 if moment > 0 => Cell::Missing,
        1 => Cell::Stale,
        _ => match (kind, chance.below(60)) {
            (0, 0) => Cell::Float(f64::NAN),
            (0, 1) => Cell::Float(f64::INFINITY),
            (0, _) => Cell::Float(chance.below(2000) as f64 / 8.0 - 100.0),
            (1, special) => {
                total = if special < 3 { 0.0 } else { total + chance.below(100) as f64 };
                Cell::Float(total)
            }
            (3, special) if special < 30 => Cell::Float(special as f64),
            (2 | 3, special) => {
                if special > 57 {
                    counts = [0; 5];
                }
                counts.iter_mut().for_each(|count| *count += chance.below(5));
                Cell::Histogram(counts)
            }
            _ => Cell::Float(chance.below(1_000_000) as f64 / 1000.0),
        },
    };
    (0..SAMPLES).map(cell).collect()
}

impl Series {
    /// What it has at a moment.
    fn to_write(&self, moment: usize) -> Option<request::Series> {
        let mut series = request::Series { labels: self.labels.clone(), ..request::Series::default() };
        let is_histogram = self.cells.iter().any(|cell| matches!(cell, Cell::Histogram(_)));
        let time_ms = moment as i64 * STEP_MS;
        match self.cells.get(moment)? {
            Cell::Missing => return None,
            Cell::Stale if is_histogram => {
                let stale = Histogram { sum: f64::from_bits(STALE_NAN_BITS), ..histogram(&[0; 5]) };
                series.histograms.push((time_ms, stale));
            }
            Cell::Stale => series.floats.push((time_ms, f64::from_bits(STALE_NAN_BITS))),
            Cell::Float(value) => series.floats.push((time_ms, *value)),
            Cell::Histogram(counts) => series.histograms.push((time_ms, histogram(counts))),
        }
        Some(series)
    }

    fn texts(&self) -> Vec<String> {
        let text = |cell: &Cell| match cell {
            Cell::Missing => "_".to_owned(),
            Cell::Stale => "stale".to_owned(),
            Cell::Float(value) => super::answers::float_text(*value),
            Cell::Histogram(counts) => {
                let [zero, buckets @ ..] = counts;
                let texts: Vec<String> = buckets.iter().map(u64::to_string).collect();
                let (count, sum) = (counts.iter().sum::<u64>(), sum_of(counts));
                format!(
                    "{{{{schema:0 count:{count} sum:{sum} z_bucket:{zero} z_bucket_w:0.001 buckets:[{}]}}}}",
                    texts.join(" ")
                )
            }
        };
        self.cells.iter().map(text).collect()
    }
}

fn sum_of(counts: &[u64; 5]) -> f64 {
    counts.iter().zip([0.0, 0.75, 1.5, 3.0, 6.0]).map(|(count, value)| *count as f64 * value).sum()
}

fn histogram(counts: &[u64; 5]) -> Histogram {
    let [zero_count, buckets @ ..] = *counts;
    Histogram { sum: sum_of(counts), zero_threshold: 0.001, zero_count, buckets: buckets.to_vec() }
}
