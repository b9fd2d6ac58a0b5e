//! Labels and values of the experiments.

use model::Labels;

use crate::workload::walk::{Chance, Shape, Walk};

/// The first moment: 2016-01-01T00:00:00Z, a whole number of partitions of any length up to 32 days after the epoch.
pub(super) const START_NS: i64 = 1_451_606_400_000_000_000;

pub(super) const SECOND_NS: i64 = 1_000_000_000;

pub(super) const DAY_S: u64 = 86_400;

/// Metric names among the series.
const METRICS: usize = 200;

/// The metric of a lone series: neighbours have different ones, as those of a target do.
pub(super) fn metric(series: usize) -> String {
    format!("metric_{:03}_total", series % METRICS)
}

/// As many labels (without the metric's name) as asked for, up to nine, of the kinds that a cluster's series have.
pub(super) fn labels(series: usize, count: usize) -> Result<Labels, String> {
    let scrape = series / METRICS;
    let (pod, container) = (series / 20, series / 10);
    let pairs = [
        ("instance", format!("10.{}.{}.{}:9100", scrape >> 16 & 255, scrape >> 8 & 255, scrape & 255)),
        ("job", format!("job-{}", series % 20)),
        ("pod", format!("app-{}-{:08x}-{:05x}", pod % 50, mix(pod as u64) as u32, mix(pod as u64 + 1) & 0xf_ffff)),
        ("container_id", format!("{:016x}{:016x}", mix(container as u64), mix(!(container as u64)))),
        ("region", format!("region-{}", scrape % 9)),
        ("datacenter", format!("datacenter-{}", scrape % 27)),
        ("rack", format!("rack-{}", scrape % 100)),
        ("os", format!("os-{}", scrape % 3)),
        ("team", format!("team-{}", scrape % 50)),
    ];
    // The instance tells series of a metric apart, so it comes first.
    let chosen = pairs.iter().take(count.clamp(1, 9)).map(|(name, value)| (*name, value.as_str()));
    Labels::from_pairs(chosen).map_err(|error| format!("label {} twice", error.0))
}

/// The labels of a group: a target.
pub(super) fn group_labels(group: usize) -> Result<Labels, String> {
    let address = format!("10.{}.{}.{}:9100", group >> 16 & 255, group >> 8 & 255, group & 255);
    let region = format!("region-{}", group % 9);
    let pairs = [("instance", address.as_str()), ("job", "node"), ("region", region.as_str())];
    Labels::from_pairs(pairs).map_err(|error| format!("label {} twice", error.0))
}

/// Mixes bits as `SplitMix64` does.
pub(super) fn mix(bits: u64) -> u64 {
    let mut mixed = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Values that cost next to nothing to make: few walks, made before, on which series start at different places.
pub(super) struct Walks {
    walks: Vec<Vec<f64>>,
}

/// Steps of a walk before it turns back.
const WALK_STEPS: usize = 4096;

/// Walks: together they stay in a processor's cache.
const WALKS: usize = 16;

impl Walks {
    /// Whole numbers from 0 to 100 that move by normal steps, as in TSBS.
    pub(super) fn integers(seed: u64) -> Self {
        Self::new(seed, |value, _| value.trunc())
    }

    /// Doubles that use all their digits.
    pub(super) fn doubles(seed: u64) -> Self {
        Self::new(seed, |value, chance| value + chance.uniform())
    }

    fn new(seed: u64, shape: impl Fn(f64, &mut Chance) -> f64) -> Self {
        let mut chance = Chance::new(seed);
        let gauge = Shape::Gauge { low: 0.0, high: 100.0, step: 1.0 };
        let walk = |_| {
            let mut walk = Walk::new(gauge, &mut chance);
            let mut next = || {
                walk.step(&mut chance);
                shape(walk.number(), &mut chance)
            };
            (0..WALK_STEPS).map(|_| next()).collect()
        };
        Self { walks: (0..WALKS).map(walk).collect() }
    }

    /// The value of a series at a step: forth on a walk and back again.
    pub(super) fn value(&self, series: usize, step: usize) -> f64 {
        let place = (step + series / WALKS * 97) % (2 * WALK_STEPS);
        let place = if place < WALK_STEPS { place } else { 2 * WALK_STEPS - 1 - place };
        self.walks.get(series % WALKS).and_then(|walk| walk.get(place)).copied().unwrap_or_default()
    }
}

/// One series of a machine's exporter. Of twenty: five constants, three mostly zero, three counters of events and three of
/// seconds with two decimals (which start again at 0 about once in 10,000 samples), one counter of bytes, two gauges of
/// bytes in pages, two gauges with two decimals, one percentage with all digits.
pub(super) struct Exported {
    kind: usize,
    value: f64,
    chance: Chance,
}

impl Exported {
    pub(super) fn new(series: usize) -> Self {
        let mut chance = Chance::new(mix(series as u64));
        let kind = series % 20;
        let value = match kind {
            0..5 => f64::from(chance.below(4)) * 1024.0,
            15 | 16 => f64::from(chance.below(4 << 20)) * 4096.0,
            17 | 18 => f64::from(chance.below(10_000)) / 100.0,
            19 => 50.0,
            _ => 0.0,
        };
        Self { kind, value, chance }
    }

    /// The next value.
    pub(super) fn next(&mut self) -> f64 {
        let chance = &mut self.chance;
        let restarts = chance.below(10_000) == 0;
        let step = chance.normal();
        match self.kind {
            0..5 => {}
            5..8 => self.value = if chance.below(100) == 0 { f64::from(1 + chance.below(5)) } else { 0.0 },
            8..11 => self.value = if restarts { 0.0 } else { self.value + (step * 20.0).abs().trunc() },
            11..14 => {
                let hundredths = (self.value * 100.0).round() + (step * 300.0).abs().trunc();
                self.value = if restarts { 0.0 } else { hundredths / 100.0 };
            }
            14 => self.value = if restarts { 0.0 } else { self.value + (step * 20_000.0).abs().trunc() },
            15 | 16 => self.value = (self.value + (step * 64.0).trunc() * 4096.0).max(0.0),
            17 | 18 => self.value = (self.value * 100.0 + (step * 10.0).trunc()).max(0.0).round() / 100.0,
            _ => self.value = (self.value + step + chance.uniform() * 1e-3).clamp(0.0, 100.0),
        }
        self.value
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn series_differ_by_metric_and_labels() {
        let distinct: BTreeSet<(String, String)> =
            (0..5000).map(|series| (metric(series), labels(series, 9).unwrap().packed().to_owned())).collect();
        assert_eq!(distinct.len(), 5000);
        assert_eq!(labels(7, 9).unwrap().len(), 9);
    }

    #[test]
    fn walks_never_jump() {
        let walks = Walks::integers(1);
        let jump =
            (0..20_000).map(|step| (walks.value(33, step + 1) - walks.value(33, step)).abs()).fold(0.0, f64::max);
        assert!(jump < 8.0, "{jump}");
        assert_ne!(walks.value(0, 5).to_bits(), walks.value(1, 5).to_bits());
    }

    #[test]
    fn an_exporter_repeats_itself_for_a_series() {
        let values =
            |series: usize| (0..100).scan(Exported::new(series), |one, _| Some(one.next())).collect::<Vec<f64>>();
        for series in 0..20 {
            assert_eq!(values(series), values(series));
        }
        assert!(values(15).iter().all(|value| value % 4096.0 == 0.0));
        assert!(values(8).is_sorted());
    }
}
