//! What the store must hold, as plainly as can be.

use std::collections::BTreeMap;

use model::{Summary, TimeRange, ValueType};
use store::Windows;

use crate::rows::{Row, Value};

/// A series: the group's label, and the metric.
pub(crate) type SeriesName = (String, String);

/// Samples by timestamp.
pub(crate) type Samples = BTreeMap<i64, Value>;

/// Up to when series of tables went, by database and table.
pub(crate) type Trimmed = BTreeMap<(&'static str, &'static str), i64>;

/// Everything in one database.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Oracle {
    pub(crate) series: BTreeMap<SeriesName, Samples>,
    pub(crate) retention_ns: i64,
    /// What an earlier policy did not keep any more stays gone.
    pub(crate) floor_ns: i64,
    /// Samples before this were past retention once: where the store goes by an earlier time since, it may be there or not.
    pub(crate) gone_before_ns: i64,
}

impl Default for Oracle {
    fn default() -> Self {
        Self { series: BTreeMap::new(), retention_ns: 0, floor_ns: i64::MIN, gone_before_ns: i64::MIN }
    }
}

impl Oracle {
    /// Puts rows in, a later value in place of an earlier one.
    pub(crate) fn write(&mut self, rows: &[Row]) {
        for row in rows {
            for (field, value) in &row.fields {
                let samples = self.series.entry((row.host.clone(), row.metric(field))).or_default();
                samples.insert(row.timestamp_ns, value.clone());
            }
        }
    }

    /// Takes the samples of a host (of all, if it is empty) and metric out.
    pub(crate) fn delete(&mut self, host: &str, metric: Option<&str>, range: &TimeRange) {
        for ((of_host, of_metric), samples) in &mut self.series {
            if (host.is_empty() || of_host == host) && metric.is_none_or(|metric| of_metric == metric) {
                samples.retain(|timestamp_ns, _| !range.contains(*timestamp_ns));
            }
        }
    }

    /// Takes the samples before a time of some hosts (of all, if there are none) out of a table.
    pub(crate) fn trim(&mut self, table: &str, hosts: &[String], before_ns: i64) {
        for ((of_host, of_metric), samples) in &mut self.series {
            let is_of_table = of_metric.split('_').next() == Some(table);
            if is_of_table && (hosts.is_empty() || hosts.contains(of_host)) {
                samples.retain(|timestamp_ns, _| *timestamp_ns >= before_ns);
            }
        }
    }

    /// The part of a range that retention keeps.
    pub(crate) fn retained(&self, range: &TimeRange, now_ns: i64) -> TimeRange {
        let oldest_ns = if self.retention_ns > 0 { now_ns - self.retention_ns } else { i64::MIN };
        let oldest_ns = oldest_ns.max(self.floor_ns);
        TimeRange::new(range.start_ns.max(oldest_ns), range.end_ns)
    }

    /// How many samples there are from a time on and before another.
    pub(crate) fn samples_between(&self, start_ns: i64, end_ns: i64) -> u64 {
        self.series.values().map(|samples| samples.range(start_ns..end_ns.max(start_ns)).count() as u64).sum()
    }

    /// Remembers what is past keeping at a time.
    pub(crate) fn pass(&mut self, now_ns: i64) {
        self.gone_before_ns = self.gone_before_ns.max(self.retained(&TimeRange::ALL, now_ns).start_ns);
    }

    /// What of a range can be compared.
    pub(crate) fn certain(&self, range: &TimeRange, now_ns: i64) -> TimeRange {
        if self.retained(&TimeRange::ALL, now_ns).start_ns >= self.gone_before_ns {
            return *range;
        }
        TimeRange::new(range.start_ns.max(self.gone_before_ns), range.end_ns)
    }

    /// A series' samples in a range, as far as they are kept.
    pub(crate) fn read(&self, series: &SeriesName, range: &TimeRange, now_ns: i64) -> Samples {
        let range = self.retained(range, now_ns);
        if range.start_ns > range.end_ns {
            return Samples::new();
        }
        let Some(samples) = self.series.get(series) else {
            return Samples::new();
        };
        samples
            .range(range.start_ns..=range.end_ns)
            .map(|(timestamp_ns, value)| (*timestamp_ns, value.clone()))
            .collect()
    }

    /// What the windows of a series add up to; empty where the values are no numbers.
    pub(crate) fn aggregate(
        &self,
        series: &SeriesName,
        windows: &Windows,
        kind: ValueType,
        now_ns: i64,
    ) -> Vec<Summary> {
        let mut summed = vec![Summary::empty(kind); windows.count];
        for (timestamp_ns, value) in self.read(series, &windows.range(), now_ns) {
            let place = (timestamp_ns - windows.start_ns).div_euclid(windows.width_ns);
            let window = usize::try_from(place).ok().and_then(|place| summed.get_mut(place));
            if let (Some(window), Some(bits)) = (window, value.bits()) {
                window.add(timestamp_ns, bits);
            }
        }
        summed
    }
}
