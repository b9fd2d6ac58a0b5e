//! Native histograms: the message `Histogram`, which both versions spell alike.

use std::ops::Range;
use std::sync::Arc;

use model::histogram::{BucketSpan, CounterReset, Counts, HistogramCounts, HistogramLayout, NativeHistogram};
use model::is_stale_bits;

use crate::BodyError;
use crate::protobuf::{Value, Walker, unzigzag};

/// A histogram sample.
pub(super) struct HistogramSample {
    pub(super) histogram: NativeHistogram,
    pub(super) time_ms: i64,
    /// When counting began; 0 if the sender does not say.
    pub(super) start_ms: i64,
}

/// The message's fields as they come.
#[derive(Default)]
struct Fields {
    /// Whether counts are floats.
    is_float: bool,
    count: (u64, f64),
    zero_count: (u64, f64),
    sum: f64,
    schema: i64,
    zero_threshold: f64,
    spans: [Vec<BucketSpan>; 2],
    deltas: [Vec<i64>; 2],
    counts: [Vec<f64>; 2],
    reset_hint: u64,
    custom_bounds: Vec<f64>,
    time_ms: i64,
    start_ms: i64,
}

/// Places in the pairs of [`Fields`].
const NEGATIVE: usize = 0;
const POSITIVE: usize = 1;

/// Reads a histogram. The inner error is the sample's: it contradicts itself.
pub(super) fn read_histogram(body: &[u8], range: Range<usize>) -> Result<Result<HistogramSample, String>, BodyError> {
    let mut fields = Fields::default();
    let mut message = Walker::new(body, range);
    while let Some(field) = message.next_field()? {
        match field.value {
            Value::Varint(value) => fields.take_varint(field.number, value),
            Value::Fixed64(bits) => fields.take_float(field.number, f64::from_bits(bits)),
            Value::Bytes(range) => fields.take_list(body, field.number, range)?,
            Value::Fixed32 => {}
        }
    }
    Ok(fields.finish())
}

/// Numbers of the fields of `io.prometheus.client.Histogram`, each at the number that the field has here; 0 is none.
const SCRAPED_NUMBERS: [u32; 15] = [0, 1, 3, 0, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13];

/// Reads a native histogram as programs show it when they are scraped. `None` if it is a classic one alone.
pub(crate) fn read_scraped_histogram(
    body: &[u8],
    range: Range<usize>,
) -> Result<Option<Result<NativeHistogram, String>>, BodyError> {
    let mut fields = Fields::default();
    let mut message = Walker::new(body, range);
    while let Some(field) = message.next_field()? {
        let number = SCRAPED_NUMBERS.get(field.number as usize).copied().unwrap_or_default();
        match field.value {
            _ if number == 0 => {}
            Value::Varint(value) => fields.take_varint(number, value),
            Value::Fixed64(bits) => fields.take_float(number, f64::from_bits(bits)),
            Value::Bytes(range) => fields.take_list(body, number, range)?,
            Value::Fixed32 => {}
        }
    }
    // A float count of 0 is one that is not given.
    fields.is_float &= fields.count.1 != 0.0;
    let is_native = fields.spans.iter().any(|spans| !spans.is_empty())
        || fields.zero_threshold > 0.0
        || fields.zero_count.0 > 0
        || fields.zero_count.1 > 0.0;
    Ok(is_native.then(|| fields.finish().map(|sample| sample.histogram)))
}

impl Fields {
    fn take_varint(&mut self, number: u32, value: u64) {
        match number {
            1 => self.count.0 = value,
            4 => self.schema = unzigzag(value),
            6 => self.zero_count.0 = value,
            9 => self.deltas[NEGATIVE].push(unzigzag(value)),
            12 => self.deltas[POSITIVE].push(unzigzag(value)),
            14 => self.reset_hint = value,
            15 => self.time_ms = value as i64,
            17 => self.start_ms = value as i64,
            _ => {}
        }
    }

    fn take_float(&mut self, number: u32, value: f64) {
        match number {
            2 => (self.is_float, self.count.1) = (true, value),
            3 => self.sum = value,
            5 => self.zero_threshold = value,
            7 => self.zero_count.1 = value,
            10 => self.counts[NEGATIVE].push(value),
            13 => self.counts[POSITIVE].push(value),
            16 => self.custom_bounds.push(value),
            _ => {}
        }
    }

    fn take_list(&mut self, body: &[u8], number: u32, range: Range<usize>) -> Result<(), BodyError> {
        let mut list = Walker::new(body, range.clone());
        match number {
            8 => self.spans[NEGATIVE].push(read_span(body, range)?),
            11 => self.spans[POSITIVE].push(read_span(body, range)?),
            9 | 12 => {
                let deltas = &mut self.deltas[if number == 9 { NEGATIVE } else { POSITIVE }];
                while let Some(value) = list.next_varint()? {
                    deltas.push(unzigzag(value));
                }
            }
            10 | 13 | 16 => {
                let floats = match number {
                    10 => &mut self.counts[NEGATIVE],
                    13 => &mut self.counts[POSITIVE],
                    _ => &mut self.custom_bounds,
                };
                while let Some(bits) = list.next_fixed64()? {
                    floats.push(f64::from_bits(bits));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<HistogramSample, String> {
        let schema = i8::try_from(self.schema).map_err(|_| "native histogram: no such schema".to_owned())?;
        let [negative_spans, positive_spans] = self.spans;
        let layout = HistogramLayout {
            schema,
            zero_threshold: self.zero_threshold,
            positive_spans,
            negative_spans,
            custom_bounds: self.custom_bounds,
        };
        let counts = if self.is_float {
            let [negative, positive] = self.counts;
            HistogramCounts::Float(Counts { count: self.count.1, zero_count: self.zero_count.1, positive, negative })
        } else {
            let [negative, positive] = self.deltas;
            let (negative, positive) = (add_up(&negative)?, add_up(&positive)?);
            HistogramCounts::Integer(Counts { count: self.count.0, zero_count: self.zero_count.0, positive, negative })
        };
        let counter_reset = u8::try_from(self.reset_hint).ok().and_then(CounterReset::from_number).unwrap_or_default();
        let histogram = NativeHistogram { layout: Arc::new(layout), counter_reset, sum: self.sum, counts };
        let histogram = histogram.with_known_schema();
        histogram.validate().map_err(|invalid| invalid.to_string())?;
        if !is_stale_bits(histogram.sum) {
            histogram.check_counts()?;
        }
        Ok(HistogramSample { histogram, time_ms: self.time_ms, start_ms: self.start_ms })
    }
}

/// Whole counts from the differences between them.
fn add_up(deltas: &[i64]) -> Result<Vec<u64>, String> {
    let mut count = 0i64;
    let counts = deltas.iter().map(|delta| {
        count = count.checked_add(*delta)?;
        u64::try_from(count).ok()
    });
    counts.collect::<Option<_>>().ok_or_else(|| "native histogram: a bucket has fewer than no observations".to_owned())
}

fn read_span(body: &[u8], range: Range<usize>) -> Result<BucketSpan, BodyError> {
    let mut span = BucketSpan { offset: 0, length: 0 };
    let mut fields = Walker::new(body, range);
    while let Some(field) = fields.next_field()? {
        match (field.number, field.value) {
            (1, Value::Varint(value)) => span.offset = unzigzag(value) as i32,
            (2, Value::Varint(value)) => span.length = u32::try_from(value).unwrap_or(u32::MAX),
            _ => {}
        }
    }
    Ok(span)
}
