//! Classic histograms as native ones with custom buckets (`convert_classic_histograms_to_nhcb`).

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use ingest::Parsed;
use ingest::exposition::decode_key;
use ingest::exposition::metric_families::FoundHistogram;
use model::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, CounterReset, Counts, HistogramCounts, HistogramLayout};
use model::{METRIC_NAME, MetricKind, NativeHistogram};

use super::append::{NO_TIME, spell};
use relabel::Labels;

/// What ends the names of a classic histogram's series.
const SUFFIXES: [&str; 3] = ["_bucket", "_sum", "_count"];

/// Histograms that were converted, and the lines that they were made of.
#[derive(Default)]
pub(super) struct Converted {
    pub(super) histograms: Vec<FoundHistogram>,
    pub(super) lines: HashSet<u128>,
}

/// The series of one classic histogram.
#[derive(Default)]
struct Classic {
    /// Upper bounds and how many observations are at most as large.
    buckets: Vec<(f64, f64)>,
    sum: Option<f64>,
    count: Option<f64>,
    time_ns: i64,
    lines: Vec<u128>,
}

/// Converts the classic histograms of a response. Those that make no sense stay as they are.
pub(super) fn convert(parsed: &Parsed<'_>, native: &[FoundHistogram]) -> Converted {
    let families: HashSet<&str> = parsed
        .batch
        .metadata
        .iter()
        .filter(|about| about.kind == MetricKind::Histogram)
        .map(|about| about.family.as_str())
        .collect();
    let mut converted = Converted::default();
    if families.is_empty() {
        return converted;
    }
    let known: HashSet<&str> = native.iter().map(|found| found.key.as_str()).collect();
    for (key, classic) in collect(parsed, &families) {
        let Some(value) = classic.to_native().filter(|_| !known.contains(key.as_str())) else { continue };
        let time_ms = (classic.time_ns != NO_TIME).then_some(classic.time_ns.div_euclid(1_000_000));
        converted.lines.extend(classic.lines);
        converted.histograms.push(FoundHistogram { key, time_ms, value });
    }
    converted
}

/// The classic histograms by their series as the text spells them.
fn collect(parsed: &Parsed<'_>, families: &HashSet<&str>) -> BTreeMap<String, Classic> {
    let mut all: BTreeMap<String, Classic> = BTreeMap::new();
    let rows =
        parsed.batch.blocks.iter().flat_map(|block| block.keys.iter().zip(&block.timestamps_ns).zip(&block.cells));
    for ((key, time_ns), cell) in rows {
        let text = parsed.batch.text(key.text);
        if !may_be_of(text, families) {
            continue;
        }
        let Ok(identity) = decode_key(text) else { continue };
        let stem = |suffix: &&str| identity.measurement.strip_suffix(suffix).filter(|stem| families.contains(stem));
        let Some((suffix, stem)) = SUFFIXES.iter().find_map(|suffix| Some((*suffix, stem(suffix)?))) else { continue };
        let others = identity.labels.iter().filter(|(name, _)| *name != "le");
        let mut labels: Labels = others.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        labels.insert(METRIC_NAME.to_owned(), stem.to_owned());
        let Ok(spelled) = String::from_utf8(spell(&labels)) else { continue };
        let classic = all.entry(spelled).or_default();
        classic.time_ns = *time_ns;
        classic.lines.push(key.hash);
        let value = f64::from_bits(*cell);
        match suffix {
            "_sum" => classic.sum = Some(value),
            "_count" => classic.count = Some(value),
            _ => {
                let bound = identity.labels.get("le").and_then(|bound| bound.parse().ok());
                classic.buckets.push((bound.unwrap_or(f64::NAN), value));
            }
        }
    }
    all
}

/// Returns whether a line's name may be one of a classic histogram: cheap, for all lines.
fn may_be_of(line: &[u8], families: &HashSet<&str>) -> bool {
    let end = line.iter().position(|byte| *byte == b'{').unwrap_or(line.len());
    let Some(Ok(name)) = line.get(..end).map(std::str::from_utf8) else { return false };
    // Names in quotes are between the braces.
    name.trim().is_empty()
        || SUFFIXES.iter().any(|suffix| name.trim().strip_suffix(suffix).is_some_and(|stem| families.contains(stem)))
}

impl Classic {
    fn to_native(&self) -> Option<NativeHistogram> {
        let mut buckets = self.buckets.clone();
        if buckets.iter().any(|(bound, _)| bound.is_nan()) {
            return None;
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        buckets.dedup_by(|next, before| next.0.total_cmp(&before.0).is_eq());
        if buckets.last().is_none_or(|(bound, _)| *bound != f64::INFINITY) {
            buckets.push((f64::INFINITY, self.count?));
        }
        let count = self.count.or_else(|| buckets.last().map(|(_, count)| *count))?;
        let bounds: Vec<f64> = buckets.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).collect();
        let before = std::iter::once(0.0).chain(buckets.iter().map(|(_, count)| *count));
        let counts: Vec<f64> = buckets.iter().zip(before).map(|((_, count), before)| count - before).collect();
        let is_count = |value: &f64| value.is_finite() && *value >= 0.0;
        if !counts.iter().chain([&count]).all(is_count) {
            return None;
        }
        let layout = HistogramLayout {
            schema: CUSTOM_BUCKETS_SCHEMA,
            positive_spans: vec![BucketSpan { offset: 0, length: counts.len() as u32 }],
            custom_bounds: bounds,
            ..HistogramLayout::default()
        };
        let value = NativeHistogram {
            layout: Arc::new(layout),
            counter_reset: CounterReset::Unknown,
            sum: self.sum.unwrap_or(0.0),
            counts: counts_of(count, counts),
        };
        value.validate().ok().map(|()| value)
    }
}

/// Whole numbers where all are.
fn counts_of(count: f64, positive: Vec<f64>) -> HistogramCounts {
    let is_whole = |value: &f64| value.fract() == 0.0 && *value < 9e15;
    if positive.iter().chain([&count]).all(is_whole) {
        let positive = positive.into_iter().map(|count| count as u64).collect();
        HistogramCounts::Integer(Counts { count: count as u64, zero_count: 0, positive, negative: Vec::new() })
    } else {
        HistogramCounts::Float(Counts { count, zero_count: 0.0, positive, negative: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classic(buckets: &[(f64, f64)], sum: Option<f64>, count: Option<f64>) -> Option<NativeHistogram> {
        Classic { buckets: buckets.to_vec(), sum, count, ..Classic::default() }.to_native()
    }

    #[test]
    fn cumulative_buckets_become_custom_ones() {
        let found = classic(&[(f64::INFINITY, 6.0), (0.5, 1.0), (1.0, 4.0)], Some(9.5), Some(6.0)).unwrap();
        assert_eq!(found.layout.custom_bounds, [0.5, 1.0]);
        assert_eq!(found.sum.to_bits(), 9.5f64.to_bits());
        let counts = Counts { count: 6, zero_count: 0, positive: vec![1, 3, 2], negative: Vec::new() };
        assert_eq!(found.counts, HistogramCounts::Integer(counts));
        // What is missing is found out from the rest.
        assert_eq!(classic(&[(0.5, 1.0), (1.0, 4.0)], Some(9.5), Some(6.0)).unwrap(), found);
        assert_eq!(classic(&[(f64::INFINITY, 6.0), (0.5, 1.0), (1.0, 4.0)], Some(9.5), None).unwrap(), found);
        let HistogramCounts::Float(floats) = classic(&[(f64::INFINITY, 1.5)], None, None).unwrap().counts else {
            panic!()
        };
        assert_eq!(floats.positive.len(), 1);
    }

    #[test]
    fn what_makes_no_sense_stays_classic() {
        assert!(classic(&[(f64::NAN, 1.0)], None, Some(1.0)).is_none());
        assert!(classic(&[(0.5, 3.0), (1.0, 2.0)], None, Some(5.0)).is_none());
        assert!(classic(&[(0.5, 3.0)], None, None).is_none());
    }
}
