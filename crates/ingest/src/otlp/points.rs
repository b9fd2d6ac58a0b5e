//! Data points to rows.

use std::ops::Range;

use model::{GroupKey, STALE_NAN_BITS, SeriesExemplar, StartTimestamp};

use super::deltas::Classic;
use super::exemplars::read_exemplar;
use super::exponential::Exponential;
use super::key::{Head, write_key};
use super::walk::Converter;
use crate::BodyError;
use crate::errors::{LimitName, Reason};
use crate::protobuf::{FieldRun, Value, Walker, WireField};

/// What the points of a metric share.
pub(super) struct Metric<'a> {
    pub(super) name: &'a str,
    pub(super) head: &'a Head,
    pub(super) mode: Mode,
    pub(super) is_monotonic: bool,
}

/// How values follow one another in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Each for itself.
    Plain,
    Cumulative,
    /// Differences, stored as they come.
    KeptDelta,
    /// Differences, stored as what they add up to.
    Cumulated,
}

/// What all kinds of points have.
#[derive(Default)]
pub(super) struct Common {
    pub(super) attributes: FieldRun,
    pub(super) start_ns: u64,
    time_ns: u64,
    pub(super) is_stale: bool,
    exemplars: Vec<Range<usize>>,
}

/// The numbers of the fields that differ between kinds of points.
struct Numbers {
    attributes: u32,
    exemplars: u32,
    flags: u32,
}

const NUMBER: Numbers = Numbers { attributes: 7, exemplars: 5, flags: 8 };
const HISTOGRAM: Numbers = Numbers { attributes: 9, exemplars: 8, flags: 10 };
const EXPONENTIAL: Numbers = Numbers { attributes: 1, exemplars: 11, flags: 10 };
const SUMMARY: Numbers = Numbers { attributes: 7, exemplars: u32::MAX, flags: 8 };

impl Common {
    /// Takes the field if it is one of these.
    #[inline]
    fn take(&mut self, body: &[u8], numbers: &Numbers, field: &WireField, end: usize) {
        match &field.value {
            Value::Bytes(_) if field.number == numbers.attributes => self.attributes.add(body, field.start..end),
            Value::Bytes(range) if field.number == numbers.exemplars => self.exemplars.push(range.clone()),
            Value::Fixed64(value) if field.number == 2 => self.start_ns = *value,
            Value::Fixed64(value) if field.number == 3 => self.time_ns = *value,
            Value::Varint(flags) if field.number == numbers.flags => self.is_stale = flags & 1 == 1,
            _ => {}
        }
    }

    /// The value of a series, or that it ended.
    const fn or_stale(&self, value: f64) -> f64 {
        if self.is_stale { f64::from_bits(STALE_NAN_BITS) } else { value }
    }
}

/// The bounds of a histogram, with their texts: histograms of a metric have the same ones, and numbers are slow to spell.
#[derive(Default)]
pub(super) struct Bounds {
    pub(super) values: Vec<f64>,
    texts: Vec<String>,
}

impl Bounds {
    fn set(&mut self, values: &[f64]) {
        if self.values.len() == values.len() && self.values.iter().zip(values).all(|(a, b)| a.to_bits() == b.to_bits())
        {
            return;
        }
        self.values.clear();
        self.values.extend_from_slice(values);
        self.texts = values.iter().map(f64::to_string).collect();
    }
}

impl Converter<'_, '_> {
    pub(super) fn number_point(&mut self, range: Range<usize>, metric: &Metric<'_>) -> Result<(), BodyError> {
        let mut common = Common::default();
        let mut value = None;
        let mut fields = Walker::new(self.body, range);
        while let Some(field) = fields.next_field()? {
            match (field.number, &field.value) {
                (4, Value::Fixed64(bits)) => value = Some(f64::from_bits(*bits)),
                (6, Value::Fixed64(integer)) => value = Some(*integer as i64 as f64),
                _ => common.take(self.body, &NUMBER, &field, fields.at()),
            }
        }
        if value.is_none() && !common.is_stale {
            self.reject("a data point without a value".to_owned());
            return Ok(());
        }
        let value = value.unwrap_or_default();
        self.with_time(&mut common, |converter, common, time_ns| {
            let value = converter.number_total(metric, common, time_ns, value)?;
            let key = converter.series(metric, "", None, common, time_ns, value)?;
            converter.exemplars(common, |_| Some(key));
            Ok(())
        });
        Ok(())
    }

    pub(super) fn histogram_point(&mut self, range: Range<usize>, metric: &Metric<'_>) -> Result<(), BodyError> {
        let mut common = Common::default();
        let (mut count, mut sum) = (0u64, None);
        let (mut counts, mut bounds) = (Vec::new(), Vec::new());
        let mut fields = Walker::new(self.body, range);
        while let Some(field) = fields.next_field()? {
            match (field.number, &field.value) {
                (4, Value::Fixed64(value)) => count = *value,
                (5, Value::Fixed64(bits)) => sum = Some(f64::from_bits(*bits)),
                (6, Value::Fixed64(value)) => counts.push(*value),
                (7, Value::Fixed64(bits)) => bounds.push(f64::from_bits(*bits)),
                (6 | 7, Value::Bytes(range)) => {
                    let mut list = Walker::new(self.body, range.clone());
                    while let Some(bits) = list.next_fixed64()? {
                        if field.number == 6 { counts.push(bits) } else { bounds.push(f64::from_bits(bits)) }
                    }
                }
                _ => common.take(self.body, &HISTOGRAM, &field, fields.at()),
            }
        }
        let fits = counts.is_empty() || counts.len() == bounds.len() + 1;
        if !fits || !bounds.is_sorted_by(|left, right| left < right) {
            self.reject(format!(
                "histogram: {} counts of buckets, {} bounds; there is one count more than ascending bounds",
                counts.len(),
                bounds.len()
            ));
            return Ok(());
        }
        let mut set = std::mem::take(&mut self.bounds);
        set.set(if counts.is_empty() { &[] } else { &bounds });
        self.with_time(&mut common, |converter, common, time_ns| {
            let whole = Classic { bounds: 0, counts, count, sum };
            let whole = converter.classic_total(metric, common, time_ns, whole, &set)?;
            converter.classic_histogram(metric, common, time_ns, &whole, &set)
        });
        self.bounds = set;
        Ok(())
    }

    fn classic_histogram(
        &mut self,
        metric: &Metric<'_>,
        common: &Common,
        time_ns: i64,
        &Classic { ref counts, count, sum, .. }: &Classic,
        bounds: &Bounds,
    ) -> Result<(), Reason> {
        if let Some(sum) = sum {
            self.series(metric, "_sum", None, common, time_ns, sum)?;
        }
        self.series(metric, "_count", None, common, time_ns, count as f64)?;
        let mut keys = Vec::new();
        let mut below = 0u64;
        for (text, count) in bounds.texts.iter().zip(counts) {
            below = below.saturating_add(*count);
            let label = Some(("le", text.as_str()));
            keys.push(self.series(metric, "_bucket", label, common, time_ns, below as f64)?);
        }
        keys.push(self.series(metric, "_bucket", Some(("le", "+Inf")), common, time_ns, count as f64)?);
        self.exemplars(common, |value| keys.get(bounds.values.partition_point(|bound| *bound < value)).copied());
        Ok(())
    }

    pub(super) fn exponential_point(&mut self, range: Range<usize>, metric: &Metric<'_>) -> Result<(), BodyError> {
        let mut common = Common::default();
        let mut exponential = Exponential::default();
        let mut fields = Walker::new(self.body, range);
        while let Some(field) = fields.next_field()? {
            if !exponential.take(self.body, &field)? {
                common.take(self.body, &EXPONENTIAL, &field, fields.at());
            }
        }
        self.with_time(&mut common, |converter, common, time_ns| {
            converter.histograms.check_room()?;
            let histogram = converter.exponential_total(metric, common, time_ns, exponential)?;
            let key = converter.key_of(metric.head, [metric.name, ""], None, common)?;
            let cell = converter.batch.push_histogram(histogram);
            converter.histograms.push(key, time_ns, cell, converter.point);
            converter.started(metric, common, key, time_ns);
            converter.exemplars(common, |_| Some(key));
            Ok(())
        });
        Ok(())
    }

    pub(super) fn summary_point(&mut self, range: Range<usize>, metric: &Metric<'_>) -> Result<(), BodyError> {
        let mut common = Common::default();
        let (mut count, mut sum) = (0u64, 0.0);
        let mut quantiles = Vec::new();
        let mut fields = Walker::new(self.body, range);
        while let Some(field) = fields.next_field()? {
            match (field.number, &field.value) {
                (4, Value::Fixed64(value)) => count = *value,
                (5, Value::Fixed64(bits)) => sum = f64::from_bits(*bits),
                (6, Value::Bytes(range)) => quantiles.push(read_quantile(self.body, range.clone())?),
                _ => common.take(self.body, &SUMMARY, &field, fields.at()),
            }
        }
        self.with_time(&mut common, |converter, common, time_ns| {
            converter.series(metric, "_sum", None, common, time_ns, sum)?;
            converter.series(metric, "_count", None, common, time_ns, count as f64)?;
            for (quantile, value) in &quantiles {
                let label = quantile.to_string();
                converter.series(metric, "", Some(("quantile", &label)), common, time_ns, *value)?;
            }
            Ok(())
        });
        Ok(())
    }

    /// Does the work for a point whose time and attributes are right; else, or if it fails, refuses the point.
    fn with_time(&mut self, common: &mut Common, work: impl FnOnce(&mut Self, &mut Common, i64) -> Result<(), Reason>) {
        let time_ns = match common.time_ns {
            0 => Ok(self.options.now_ns),
            time_ns => i64::try_from(time_ns).map_err(|_| Reason::from("timestamp out of range")),
        };
        let attributes = common.attributes.text(self.body);
        let checked = time_ns.and_then(|time_ns| {
            self.check_attributes(attributes, common.attributes.count)?;
            Ok(time_ns)
        });
        let done = checked.and_then(|time_ns| {
            self.newest_ns = self.newest_ns.max(time_ns);
            work(self, common, time_ns)
        });
        if let Err(reason) = done {
            self.reject(reason);
        }
    }

    /// Adds a row of a metric's series.
    fn series(
        &mut self,
        metric: &Metric<'_>,
        suffix: &str,
        label: Option<(&str, &str)>,
        common: &Common,
        time_ns: i64,
        value: f64,
    ) -> Result<GroupKey, Reason> {
        let attributes = common.attributes.text(self.body);
        let key =
            self.push_float(metric.head, [metric.name, suffix], label, attributes, time_ns, common.or_stale(value))?;
        self.started(metric, common, key, time_ns);
        Ok(key)
    }

    fn started(&mut self, metric: &Metric<'_>, common: &Common, key: GroupKey, time_ns: i64) {
        let start_ns = i64::try_from(common.start_ns).unwrap_or_default();
        if matches!(metric.mode, Mode::Cumulative | Mode::Cumulated) && start_ns > 0 && start_ns <= time_ns {
            self.batch.start_timestamps.push(StartTimestamp { key, start_ns });
        }
    }

    /// Adds a row.
    #[inline]
    pub(super) fn push_float(
        &mut self,
        head: &Head,
        name: [&str; 2],
        label: Option<(&str, &str)>,
        attributes: &[u8],
        time_ns: i64,
        value: f64,
    ) -> Result<GroupKey, Reason> {
        self.floats.check_room()?;
        let key = self.place_key(head, name, label, attributes)?;
        self.floats.push(key, time_ns, value.to_bits(), self.point);
        Ok(key)
    }

    fn key_of(
        &mut self,
        head: &Head,
        name: [&str; 2],
        label: Option<(&str, &str)>,
        common: &Common,
    ) -> Result<GroupKey, Reason> {
        self.place_key(head, name, label, common.attributes.text(self.body))
    }

    #[inline]
    fn place_key(
        &mut self,
        head: &Head,
        name: [&str; 2],
        label: Option<(&str, &str)>,
        attributes: &[u8],
    ) -> Result<GroupKey, Reason> {
        let limits = self.options.limits;
        write_key(&mut self.key, head, name, label, attributes);
        if name[0].len() > limits.name_bytes_max {
            return Err(
                LimitName::NameBytes.exceeded(format_args!("a name is longer than {} bytes", limits.name_bytes_max))
            );
        }
        if self.key.len() > limits.key_bytes_max {
            return Err(
                LimitName::KeyBytes.exceeded(format_args!("the labels take more than {} bytes", limits.key_bytes_max))
            );
        }
        self.keys_bytes += self.key.len();
        if self.keys_bytes > limits.keys_bytes_max {
            let keys_bytes_max = limits.keys_bytes_max;
            return Err(LimitName::KeysBytes
                .exceeded(format_args!("the labels of all series take more than {keys_bytes_max} bytes")));
        }
        let text = self.batch.push_text(&self.key);
        Ok(GroupKey { hash: self.options.hasher.hash(&self.key), text })
    }

    /// Holds attributes against the limits; does no work for those too short to break one.
    pub(super) fn check_attributes(&self, attributes: &[u8], count: usize) -> Result<(), Reason> {
        let limits = self.options.limits;
        if count > limits.tags_max {
            return Err(LimitName::Tags.exceeded(format_args!("more than {} attributes", limits.tags_max)));
        }
        if attributes.len() <= limits.name_bytes_max {
            return Ok(());
        }
        // What is malformed in them is for the decoder to say.
        let mut fields = Walker::new(attributes, 0..attributes.len());
        while let Ok(Some(WireField { value: Value::Bytes(range), .. })) = fields.next_field() {
            let mut pair = Walker::new(attributes, range);
            while let Ok(Some(field)) = pair.next_field() {
                if let (1, Value::Bytes(name)) = (field.number, field.value)
                    && name.len() > limits.name_bytes_max
                {
                    return Err(LimitName::NameBytes
                        .exceeded(format_args!("a name is longer than {} bytes", limits.name_bytes_max)));
                }
            }
        }
        Ok(())
    }

    /// Takes a point's exemplars, each for the series of its value.
    fn exemplars(&mut self, common: &Common, key_of: impl Fn(f64) -> Option<GroupKey>) {
        for range in &common.exemplars {
            let has_room = self.batch.exemplars.len() < self.options.limits.exemplars_max;
            let read = read_exemplar(self.body, range.clone(), self.options.settings.translation.escapes());
            if let (Some(exemplar), true) = (read, has_room)
                && let Some(key) = key_of(exemplar.value)
            {
                self.batch.exemplars.push(SeriesExemplar { key, exemplar });
            }
        }
    }
}

fn read_quantile(body: &[u8], range: Range<usize>) -> Result<(f64, f64), BodyError> {
    let (mut quantile, mut value) = (0.0, 0.0);
    let mut fields = Walker::new(body, range);
    while let Some(field) = fields.next_field()? {
        match (field.number, field.value) {
            (1, Value::Fixed64(bits)) => quantile = f64::from_bits(bits),
            (2, Value::Fixed64(bits)) => value = f64::from_bits(bits),
            _ => {}
        }
    }
    Ok((quantile, value))
}
