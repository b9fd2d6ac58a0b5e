//! Items as the body of a request.

use std::collections::HashMap;
use std::sync::Arc;

use ingest::remote_write::{SeriesV2, compress, encode_v1, encode_v2};
use model::{Exemplar, MetricMetadata, NativeHistogram};

use super::outgoing::{Item, OutSeries, OutValue};

/// What metric families are about, by their names.
pub(super) type Families = HashMap<String, MetricMetadata>;

/// How many things of each kind there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ItemCounts {
    pub(super) samples: u64,
    pub(super) histograms: u64,
    pub(super) exemplars: u64,
    pub(super) metadata: u64,
}

/// A body, and what is in it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct EncodedBatch {
    pub(super) body: Vec<u8>,
    pub(super) counts: ItemCounts,
    /// The latest time of a sample.
    pub(super) highest_ms: i64,
    /// Items that were too old to be sent.
    pub(super) too_old: u64,
}

/// One series of a request.
#[derive(Default)]
struct Grouped<'a> {
    samples: Vec<(i64, f64)>,
    histograms: Vec<(i64, NativeHistogram)>,
    exemplars: Vec<Exemplar>,
    labels: Vec<(&'a str, &'a str)>,
    start_ms: i64,
}

/// Packs items, those before a time left out, in a version of the protocol.
pub(super) fn encode(items: &[Item], oldest_ms: i64, version: u8, families: &Families) -> EncodedBatch {
    let mut batch = EncodedBatch { highest_ms: i64::MIN, ..EncodedBatch::default() };
    let mut indexes: HashMap<*const OutSeries, usize> = HashMap::new();
    let mut all: Vec<Grouped<'_>> = Vec::new();
    for item in items {
        if item.time_ms < oldest_ms {
            batch.too_old += 1;
            continue;
        }
        let index = *indexes.entry(Arc::as_ptr(&item.series)).or_insert_with(|| {
            let labels = item.series.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            all.push(Grouped { labels, start_ms: item.start_ms, ..Grouped::default() });
            all.len() - 1
        });
        let Some(series) = all.get_mut(index) else { continue };
        batch.highest_ms = batch.highest_ms.max(item.time_ms);
        match &item.value {
            OutValue::Float(value) => {
                series.samples.push((item.time_ms, *value));
                batch.counts.samples += 1;
            }
            OutValue::Histogram(value) => {
                series.histograms.push((item.time_ms, NativeHistogram::clone(value)));
                batch.counts.histograms += 1;
            }
            OutValue::Exemplar(exemplar) => {
                series.exemplars.push(exemplar.clone());
                batch.counts.exemplars += 1;
            }
        }
    }
    let series: Vec<SeriesV2<'_>> = all.iter().map(|grouped| grouped.series(version, families)).collect();
    if !series.is_empty() {
        batch.body = compress(&if version == 2 { encode_v2(&series) } else { encode_v1(&series, &[]) });
    }
    batch
}

impl Grouped<'_> {
    fn series<'a>(&'a self, version: u8, families: &'a Families) -> SeriesV2<'a> {
        let name = self.labels.iter().find(|(name, _)| *name == model::METRIC_NAME).map_or("", |(_, value)| value);
        SeriesV2 {
            labels: &self.labels,
            samples: &self.samples,
            histograms: &self.histograms,
            exemplars: &self.exemplars,
            start_ms: self.start_ms,
            metadata: (version == 2).then(|| family_of(name, families)).flatten(),
        }
    }
}

/// The family of a metric: the one of its name, or of its name without what tells the series of one family apart.
fn family_of<'a>(metric: &str, families: &'a Families) -> Option<&'a MetricMetadata> {
    let suffixes = ["_bucket", "_count", "_sum", "_total", "_created"];
    let stems = suffixes.iter().filter_map(|suffix| metric.strip_suffix(suffix));
    std::iter::once(metric).chain(stems).find_map(|name| families.get(name))
}

/// Packs metadata as version 1 sends them: in requests of their own.
pub(super) fn encode_metadata(metadata: &[MetricMetadata]) -> EncodedBatch {
    let counts = ItemCounts { metadata: metadata.len() as u64, ..ItemCounts::default() };
    EncodedBatch { body: compress(&encode_v1(&[], metadata)), counts, ..EncodedBatch::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_found_by_the_names_of_their_series() {
        let about = |family: &str| MetricMetadata { family: family.to_owned(), ..MetricMetadata::default() };
        let families: Families =
            [("took", about("took")), ("x_sum", about("x_sum"))].map(|(name, about)| (name.to_owned(), about)).into();
        let found = |metric| family_of(metric, &families).map(|found| found.family.as_str());
        assert_eq!(found("took_bucket"), Some("took"));
        assert_eq!(found("took"), Some("took"));
        assert_eq!(found("x_sum"), Some("x_sum"));
        assert_eq!(found("other_total"), None);
    }

    #[test]
    fn what_is_too_old_is_left_out() {
        let series = Arc::new(OutSeries { labels: vec![("__name__".to_owned(), "m".to_owned())], hash: 1 });
        let item = |time_ms| Item { series: series.clone(), time_ms, value: OutValue::Float(1.0), start_ms: 0 };
        let batch = encode(&[item(1), item(5), item(9)], 5, 1, &Families::new());
        assert_eq!((batch.counts.samples, batch.too_old, batch.highest_ms), (2, 1, 9));
        assert!(encode(&[item(1)], 5, 2, &Families::new()).body.is_empty());
    }
}
