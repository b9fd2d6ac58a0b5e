//! Samples as a receiver gets them: with external labels, relabelled, what it does not take left out.

use std::collections::HashMap;
use std::sync::Arc;

use db::{LogRecord, LogSample, LogValue, TenantMemory};
use model::{Exemplar, NativeHistogram};
use xxhash_rust::xxh3::xxh3_64;

use crate::config::RemoteWriteConfig;
use relabel::{Labels, relabel};

const NS_PER_MS: i64 = 1_000_000;

/// Bytes that the labels of one receiver's series may take in memory; beyond them all are made anew.
const SERIES_BYTES_MAX: u64 = 64 << 20;

/// Bytes by which the memory for them grows.
const SERIES_STEP_BYTES: u64 = 1 << 20;

/// Bytes that a series takes beside its labels.
const SERIES_OVERHEAD_BYTES: u64 = 200;

/// Series whose start is remembered.
const STARTS_MAX: usize = 100_000;

/// A series as a receiver gets it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutSeries {
    /// Sorted by name.
    pub(super) labels: Vec<(String, String)>,
    pub(super) hash: u64,
}

/// The value of an item.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum OutValue {
    Float(f64),
    Histogram(Arc<NativeHistogram>),
    Exemplar(Exemplar),
}

/// One thing to send.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item {
    pub(super) series: Arc<OutSeries>,
    pub(super) time_ms: i64,
    pub(super) value: OutValue,
    /// Since when the series counts; 0: not known.
    pub(super) start_ms: i64,
}

/// Makes items for one receiver.
pub(super) struct Outgoing {
    config: RemoteWriteConfig,
    external_labels: Labels,
    memory: Arc<TenantMemory>,
    /// `None`: relabelling drops it.
    series: HashMap<model::Labels, Option<Arc<OutSeries>>>,
    series_bytes: u64,
    reserved_bytes: u64,
    /// By the hash of the series that is sent.
    starts_ms: HashMap<u64, i64>,
    /// Samples that were dropped by relabelling.
    pub(super) dropped: u64,
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.memory.give_back(self.reserved_bytes);
    }
}

impl Outgoing {
    pub(super) fn new(config: &RemoteWriteConfig, external_labels: &Labels, memory: Arc<TenantMemory>) -> Self {
        Self {
            config: config.clone(),
            external_labels: external_labels.clone(),
            memory,
            series: HashMap::new(),
            series_bytes: 0,
            reserved_bytes: 0,
            starts_ms: HashMap::new(),
            dropped: 0,
        }
    }

    /// Appends what is sent of a record of the log.
    pub(super) fn push_record(&mut self, record: &LogRecord, out: &mut Vec<Item>) {
        for (labels, start_ns) in &record.starts_ns {
            if self.starts_ms.len() >= STARTS_MAX {
                self.starts_ms.clear();
            }
            if let Some(series) = self.series_for(labels) {
                self.starts_ms.insert(series.hash, start_ns / NS_PER_MS);
            }
        }
        for LogSample { series, timestamp_ns, value } in &record.samples {
            let value = match value {
                LogValue::Float(value) => OutValue::Float(*value),
                LogValue::Integer(value) => OutValue::Float(*value as f64),
                LogValue::Unsigned(value) => OutValue::Float(*value as f64),
                LogValue::Bool(value) => OutValue::Float(f64::from(u8::from(*value))),
                LogValue::Histogram(value) => OutValue::Histogram(value.clone()),
                // The protocol has no texts.
                LogValue::Text(_) => continue,
            };
            self.push(&series.labels, timestamp_ns.div_euclid(NS_PER_MS), value, out);
        }
        for (labels, exemplar) in &record.exemplars {
            let time_ms = exemplar.timestamp_ns.div_euclid(NS_PER_MS);
            self.push(labels, time_ms, OutValue::Exemplar(exemplar.clone()), out);
        }
    }

    /// Appends a value, unless it is not to be sent.
    pub(super) fn push(&mut self, labels: &model::Labels, time_ms: i64, value: OutValue, out: &mut Vec<Item>) {
        let is_sent = match &value {
            OutValue::Float(_) => true,
            OutValue::Histogram(_) => self.config.send_native_histograms,
            OutValue::Exemplar(_) => self.config.send_exemplars,
        };
        if !is_sent {
            return;
        }
        let Some(series) = self.series_for(labels) else {
            self.dropped += 1;
            return;
        };
        let value = match (value, self.config.round_digits) {
            (OutValue::Float(value), Some(digits)) => OutValue::Float(rounded(value, digits)),
            (value, _) => value,
        };
        let start_ms = self.starts_ms.get(&series.hash).copied().unwrap_or(0);
        out.push(Item { series, time_ms, value, start_ms });
    }

    fn series_for(&mut self, labels: &model::Labels) -> Option<Arc<OutSeries>> {
        if let Some(known) = self.series.get(labels) {
            return known.clone();
        }
        let made = self.make(labels).map(Arc::new);
        let bytes = 2 * labels.size_bytes() as u64 + SERIES_OVERHEAD_BYTES;
        self.reserve(bytes);
        if self.series_bytes + bytes <= self.reserved_bytes {
            self.series_bytes += bytes;
            self.series.insert(labels.clone(), made.clone());
        }
        made
    }

    /// Makes room for a series, in place of all others if there is too little.
    fn reserve(&mut self, bytes: u64) {
        let needed = self.series_bytes + bytes;
        if needed <= self.reserved_bytes {
            return;
        }
        let step = bytes.max(SERIES_STEP_BYTES);
        if needed <= SERIES_BYTES_MAX && self.memory.take(step, self.reserved_bytes) {
            self.reserved_bytes += step;
        } else {
            self.series.clear();
            self.series_bytes = 0;
        }
    }

    fn make(&self, labels: &model::Labels) -> Option<OutSeries> {
        let mut changed = self.external_labels.clone();
        // The series' own labels come first.
        changed.extend(labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
        if !relabel(&mut changed, &self.config.relabel) || changed.is_empty() {
            return None;
        }
        let labels: Vec<(String, String)> = changed.into_iter().collect();
        let mut bytes = Vec::new();
        for text in labels.iter().flat_map(|(name, value)| [name, value]) {
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0xff);
        }
        Some(OutSeries { labels, hash: xxh3_64(&bytes) })
    }
}

/// A value with so many digits after the point. Markers and infinities stay as they are.
fn rounded(value: f64, digits: u64) -> f64 {
    let scale = 10f64.powi(digits.min(300) as i32);
    let rounded = (value * scale).round() / scale;
    if value.is_finite() && rounded.is_finite() { rounded } else { value }
}

/// Items by shard, as many as there are: all of a series go to one, in their order.
pub(super) fn split(items: Vec<Item>, shards: usize) -> Vec<Vec<Item>> {
    let shards = shards.max(1);
    let mut parts: Vec<Vec<Item>> = (0..shards).map(|_| Vec::new()).collect();
    for item in items {
        let shard = (item.series.hash % shards as u64) as usize;
        if let Some(part) = parts.get_mut(shard) {
            part.push(item);
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_rounded_and_markers_stay() {
        assert_eq!(rounded(1.2345, 2).to_bits(), 1.23f64.to_bits());
        assert_eq!(rounded(f64::MAX, 200).to_bits(), f64::MAX.to_bits());
        let stale = f64::from_bits(model::STALE_NAN_BITS);
        assert_eq!(rounded(stale, 1).to_bits(), model::STALE_NAN_BITS);
    }

    #[test]
    fn a_series_stays_in_its_shard_and_in_order() {
        let series = |hash| Arc::new(OutSeries { labels: Vec::new(), hash });
        let item = |hash, time_ms| Item { series: series(hash), time_ms, value: OutValue::Float(0.0), start_ms: 0 };
        let items = (0..100).map(|number| item(number % 7, number as i64)).collect();
        let parts = split(items, 3);
        assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), 100);
        for part in &parts {
            assert!(part.iter().map(|item| item.time_ms).is_sorted());
            assert!(part.iter().all(|item| item.series.hash % 3 == part[0].series.hash % 3));
        }
    }
}
