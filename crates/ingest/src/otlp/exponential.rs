//! Exponential histograms to native ones: the same buckets, counted from one place later, without the empty stretches.

use std::ops::Range;
use std::sync::Arc;

use model::STALE_NAN_BITS;
use model::histogram::{
    BUCKETS_MAX, BucketSpan, CounterReset, Counts, EXPONENTIAL_SCHEMAS, HistogramCounts, HistogramLayout,
    NativeHistogram,
};

use crate::BodyError;
use crate::protobuf::{Value, Walker, WireField, unzigzag};

/// The width of the zero bucket of senders that do not tell theirs, as Prometheus sets it.
const ZERO_THRESHOLD: f64 = 1e-128;

/// So many empty buckets are written out rather than beginning a new span.
const GAP_MAX: i64 = 2;

/// The fields of an `ExponentialHistogramDataPoint` that are not common to all points.
#[derive(Debug, Clone, Default)]
pub(super) struct Exponential {
    pub(super) count: u64,
    pub(super) sum: f64,
    pub(super) scale: i64,
    pub(super) zero_count: u64,
    pub(super) zero_threshold: f64,
    pub(super) positive: Buckets,
    pub(super) negative: Buckets,
}

/// Neighbouring buckets, from the one whose index is the offset.
#[derive(Debug, Clone, Default)]
pub(super) struct Buckets {
    pub(super) offset: i64,
    pub(super) counts: Vec<u64>,
}

impl Exponential {
    /// Takes the field if it is one of these.
    pub(super) fn take(&mut self, body: &[u8], field: &WireField) -> Result<bool, BodyError> {
        match (field.number, &field.value) {
            (4, Value::Fixed64(count)) => self.count = *count,
            (5, Value::Fixed64(bits)) => self.sum = f64::from_bits(*bits),
            (6, Value::Varint(scale)) => self.scale = unzigzag(*scale),
            (7, Value::Fixed64(count)) => self.zero_count = *count,
            (8, Value::Bytes(range)) => self.positive = Buckets::read(body, range.clone())?,
            (9, Value::Bytes(range)) => self.negative = Buckets::read(body, range.clone())?,
            (14, Value::Fixed64(bits)) => self.zero_threshold = f64::from_bits(*bits),
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn to_histogram(&self, is_stale: bool, is_gauge: bool) -> Result<NativeHistogram, String> {
        let (lowest, highest) = (i64::from(*EXPONENTIAL_SCHEMAS.start()), i64::from(*EXPONENTIAL_SCHEMAS.end()));
        if self.scale < lowest {
            return Err(format!("exponential histogram: scale {} is below {lowest}", self.scale));
        }
        // What is finer than there is a schema for is merged; beyond 63 all is in one bucket on either side of 1.
        let scale_down = (self.scale - highest).clamp(0, 63) as u32;
        let (positive_spans, positive) = self.positive.sparse(scale_down)?;
        let (negative_spans, negative) = self.negative.sparse(scale_down)?;
        let layout = HistogramLayout {
            schema: self.scale.min(highest) as i8,
            zero_threshold: if self.zero_threshold > 0.0 { self.zero_threshold } else { ZERO_THRESHOLD },
            positive_spans,
            negative_spans,
            custom_bounds: Vec::new(),
        };
        let counter_reset = if is_gauge { CounterReset::Gauge } else { CounterReset::Unknown };
        let counts = Counts { count: self.count, zero_count: self.zero_count, positive, negative };
        let sum = if is_stale { f64::from_bits(STALE_NAN_BITS) } else { self.sum };
        let histogram =
            NativeHistogram { layout: Arc::new(layout), counter_reset, sum, counts: HistogramCounts::Integer(counts) };
        histogram.validate().map_err(|invalid| invalid.to_string())?;
        if !is_stale {
            histogram.check_counts()?;
        }
        Ok(histogram)
    }
}

impl Buckets {
    fn read(body: &[u8], range: Range<usize>) -> Result<Self, BodyError> {
        let mut buckets = Self::default();
        let mut fields = Walker::new(body, range);
        while let Some(field) = fields.next_field()? {
            match (field.number, field.value) {
                (1, Value::Varint(offset)) => buckets.offset = unzigzag(offset),
                (2, Value::Varint(count)) => buckets.counts.push(count),
                (2, Value::Bytes(range)) => {
                    let mut list = Walker::new(body, range);
                    while let Some(count) = list.next_varint()? {
                        buckets.counts.push(count);
                    }
                }
                _ => {}
            }
        }
        Ok(buckets)
    }

    /// Spans and counts, 2^`scale_down` buckets made one.
    fn sparse(&self, scale_down: u32) -> Result<(Vec<BucketSpan>, Vec<u64>), String> {
        let out_of_range = || "exponential histogram: the offset of its buckets is out of range".to_owned();
        let (mut spans, mut counts): (Vec<BucketSpan>, Vec<u64>) = (Vec::new(), Vec::new());
        let mut last = None;
        for (place, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            // The bucket at index 0 is that above 1 there, and that below it here.
            let index = self.offset.checked_add(place as i64).ok_or_else(out_of_range)?;
            let index = (index >> scale_down).checked_add(1).ok_or_else(out_of_range)?;
            let gap = last.map_or(index, |last: i64| index - last - 1);
            match (last, counts.last_mut(), spans.last_mut()) {
                (Some(last), Some(counted), _) if last == index => *counted = counted.saturating_add(*count),
                (Some(_), _, Some(span)) if gap <= GAP_MAX => {
                    counts.extend(std::iter::repeat_n(0, gap as usize));
                    counts.push(*count);
                    span.length += gap as u32 + 1;
                }
                _ => {
                    let offset = i32::try_from(gap).map_err(|_| out_of_range())?;
                    spans.push(BucketSpan { offset, length: 1 });
                    counts.push(*count);
                }
            }
            last = Some(index);
            if counts.len() > BUCKETS_MAX {
                return Err(format!("exponential histogram: more than {BUCKETS_MAX} buckets"));
            }
        }
        Ok((spans, counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(offset: i64, counts: &[u64], scale_down: u32, spans: &[(i32, u32)], expected: &[u64]) {
        let (found, counted) = Buckets { offset, counts: counts.to_vec() }.sparse(scale_down).unwrap();
        let found: Vec<(i32, u32)> = found.iter().map(|span| (span.offset, span.length)).collect();
        assert_eq!((found.as_slice(), counted.as_slice()), (spans, expected));
    }

    #[test]
    fn buckets_become_spans() {
        check(0, &[], 0, &[], &[]);
        check(0, &[4, 3, 2, 1], 0, &[(1, 4)], &[4, 3, 2, 1]);
        check(-3, &[4, 0, 0, 1], 0, &[(-2, 4)], &[4, 0, 0, 1]);
        check(5, &[4, 0, 0, 0, 1, 0], 0, &[(6, 1), (3, 1)], &[4, 1]);
        check(0, &[4, 3, 2, 1], 1, &[(1, 2)], &[7, 3]);
        check(-1, &[4, 3, 2, 1], 1, &[(0, 3)], &[4, 5, 1]);
        check(-2, &[1, 1, 1, 1], 63, &[(0, 2)], &[2, 2]);
        check(2, &[0, 0, 5], 0, &[(5, 1)], &[5]);
        for offset in [i64::MAX, i64::from(i32::MAX)] {
            assert!(Buckets { offset, counts: vec![1] }.sparse(0).is_err());
        }
    }

    #[test]
    fn a_histogram_must_add_up() {
        let point = |scale, count| Exponential {
            count,
            scale,
            sum: 10.0,
            zero_count: 1,
            positive: Buckets { offset: 0, counts: vec![2, 3] },
            ..Exponential::default()
        };
        assert!(point(3, 6).to_histogram(false, false).is_ok());
        assert_eq!(point(20, 6).to_histogram(false, false).unwrap().layout.schema, 8);
        for (scale, count) in [(3, 7), (-5, 6)] {
            assert!(point(scale, count).to_histogram(false, false).is_err());
        }
        assert!(point(3, 7).to_histogram(true, false).unwrap().sum.is_nan());
    }
}
