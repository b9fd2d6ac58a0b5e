//! Native histograms as Prometheus defines them (<https://prometheus.io/docs/specs/native_histograms/>).
//!
//! A [`NativeHistogram`] is one sample: a count, a sum, and counts of buckets. Which buckets there are is its
//! [`HistogramLayout`], which many samples share.

use std::fmt;
use std::ops::AddAssign;
use std::sync::Arc;

/// The schema of histograms whose bucket bounds are given by hand ([`HistogramLayout::custom_bounds`]).
pub const CUSTOM_BUCKETS_SCHEMA: i8 = -53;

/// Smallest and largest schema with exponential buckets: the bounds of neighbours differ by the factor 2^(2^-schema).
pub const EXPONENTIAL_SCHEMAS: std::ops::RangeInclusive<i8> = -4..=8;

/// The finest schema that a sender may use: those finer than [`EXPONENTIAL_SCHEMAS`] are reduced, as Prometheus does.
const RESERVED_SCHEMA_MAX: i8 = 52;

/// Buckets that a histogram may have on either side of zero, and bounds of custom ones.
pub const BUCKETS_MAX: usize = 1 << 14;

/// One sample of a native histogram.
#[derive(Debug, Clone, PartialEq)]
pub struct NativeHistogram {
    /// Which buckets there are.
    pub layout: Arc<HistogramLayout>,
    /// Knowledge about a counter reset between the sample before and this one.
    pub counter_reset: CounterReset,
    /// Sum of all observations.
    pub sum: f64,
    /// How many observations there were, in all and by bucket.
    pub counts: HistogramCounts,
}

/// The buckets of a histogram.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HistogramLayout {
    /// Resolution: one of [`EXPONENTIAL_SCHEMAS`], or [`CUSTOM_BUCKETS_SCHEMA`].
    pub schema: i8,
    /// Observations of at most this magnitude are in the zero bucket; 0 or more.
    pub zero_threshold: f64,
    /// Stretches of buckets of positive observations; of custom buckets all of them.
    pub positive_spans: Vec<BucketSpan>,
    /// Stretches of buckets of negative observations.
    pub negative_spans: Vec<BucketSpan>,
    /// Upper bounds of custom buckets, ascending, without infinity; empty for other schemas.
    pub custom_bounds: Vec<f64>,
}

/// A stretch of neighbouring buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BucketSpan {
    /// Buckets left out since the end of the span before; of the first span the index of its first bucket.
    pub offset: i32,
    /// Number of buckets.
    pub length: u32,
}

/// Knowledge about a counter reset before a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum CounterReset {
    /// Readers must look for one.
    #[default]
    Unknown = 0,
    /// There was one.
    Reset = 1,
    /// There was none.
    NoReset = 2,
    /// The histogram is a gauge, which has no resets.
    Gauge = 3,
}

impl CounterReset {
    /// The hint with this number, which is also its number in Prometheus's remote write.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Unknown),
            1 => Some(Self::Reset),
            2 => Some(Self::NoReset),
            3 => Some(Self::Gauge),
            _ => None,
        }
    }
}

/// Numbers of observations. Bucket counts are of each bucket alone, neither cumulative nor differences, one for each
/// bucket of the layout's spans.
#[derive(Debug, Clone, PartialEq)]
pub enum HistogramCounts {
    /// Whole numbers, as programs report them.
    Integer(Counts<u64>),
    /// Fractions, as rules compute them.
    Float(Counts<f64>),
}

/// Numbers of observations of one type.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Counts<T> {
    /// All observations.
    pub count: T,
    /// Those in the zero bucket.
    pub zero_count: T,
    /// By bucket of the positive spans.
    pub positive: Vec<T>,
    /// By bucket of the negative spans.
    pub negative: Vec<T>,
}

/// A histogram that contradicts itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidHistogram {
    /// The contradiction.
    pub what: &'static str,
}

impl fmt::Display for InvalidHistogram {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "native histogram: {}", self.what)
    }
}

impl std::error::Error for InvalidHistogram {}

impl HistogramLayout {
    /// Number of buckets of the positive spans.
    pub fn positive_buckets(&self) -> usize {
        buckets(&self.positive_spans)
    }

    /// Number of buckets of the negative spans.
    pub fn negative_buckets(&self) -> usize {
        buckets(&self.negative_spans)
    }
}

fn buckets(spans: &[BucketSpan]) -> usize {
    spans.iter().fold(0, |sum, span| sum.saturating_add(span.length as usize))
}

impl<T> Counts<T> {
    fn fits(&self, layout: &HistogramLayout) -> bool {
        self.positive.len() == layout.positive_buckets() && self.negative.len() == layout.negative_buckets()
    }
}

impl NativeHistogram {
    /// Returns whether the buckets add up to the count, as Prometheus demands; observations of NaN are in no bucket.
    ///
    /// # Errors
    ///
    /// A message about what does not add up, for the sender.
    pub fn check_counts(&self) -> Result<(), String> {
        match &self.counts {
            HistogramCounts::Integer(counts) => {
                let buckets = counts.positive.iter().chain(&counts.negative);
                let sum = buckets.fold(counts.zero_count, |sum, count| sum.saturating_add(*count));
                let fits = if self.sum.is_nan() { sum <= counts.count } else { sum == counts.count };
                if fits {
                    return Ok(());
                }
                Err(format!("native histogram: {sum} observations in buckets, but a count of {}", counts.count))
            }
            HistogramCounts::Float(counts) => {
                let mut all = counts.positive.iter().chain(&counts.negative).chain([&counts.count, &counts.zero_count]);
                let negative = all.any(|count| *count < 0.0);
                if negative {
                    Err("native histogram: a bucket has fewer than no observations".to_owned())
                } else {
                    Ok(())
                }
            }
        }
    }

    /// Merges the buckets of a schema that is finer than [`EXPONENTIAL_SCHEMAS`] into those of the finest one there is. Other
    /// histograms stay as they are. To be called before [`NativeHistogram::validate`], by every protocol.
    #[must_use]
    pub fn with_known_schema(mut self) -> Self {
        let finest = *EXPONENTIAL_SCHEMAS.end();
        if self.layout.schema <= finest || self.layout.schema > RESERVED_SCHEMA_MAX {
            return self;
        }
        let shift = (self.layout.schema - finest) as u32;
        let mut layout = HistogramLayout { schema: finest, ..(*self.layout).clone() };
        match &mut self.counts {
            HistogramCounts::Integer(counts) if counts.fits(&layout) => merge_sides(&mut layout, counts, shift),
            HistogramCounts::Float(counts) if counts.fits(&layout) => merge_sides(&mut layout, counts, shift),
            // For the validation to refuse.
            HistogramCounts::Integer(_) | HistogramCounts::Float(_) => {}
        }
        self.layout = Arc::new(layout);
        self
    }

    /// Returns whether layout and counts belong together and the schema is one that there is.
    pub fn validate(&self) -> Result<(), InvalidHistogram> {
        let layout = &*self.layout;
        let invalid = |what| Err(InvalidHistogram { what });
        let custom = layout.schema == CUSTOM_BUCKETS_SCHEMA;
        if !custom && !EXPONENTIAL_SCHEMAS.contains(&layout.schema) {
            return invalid("no such schema");
        }
        if !custom && !layout.custom_bounds.is_empty() {
            return invalid("bounds of custom buckets with an exponential schema");
        }
        if layout.positive_buckets().max(layout.negative_buckets()).max(layout.custom_bounds.len()) > BUCKETS_MAX {
            return invalid("more than 16384 buckets");
        }
        if custom && !layout.negative_spans.is_empty() {
            return invalid("custom buckets are positive ones only");
        }
        if layout.custom_bounds.iter().any(|bound| !bound.is_finite()) {
            return invalid("bounds of custom buckets are finite: the last bucket, up to +Inf, has none");
        }
        if !layout.custom_bounds.is_sorted_by(|left, right| left < right) {
            return invalid("bounds of custom buckets do not ascend");
        }
        if layout.positive_spans.iter().skip(1).chain(layout.negative_spans.iter().skip(1)).any(|span| span.offset < 0)
        {
            return invalid("spans overlap");
        }
        let fits = match &self.counts {
            HistogramCounts::Integer(counts) => counts.fits(layout),
            HistogramCounts::Float(counts) => counts.fits(layout),
        };
        if fits { Ok(()) } else { invalid("number of bucket counts differs from the spans' buckets") }
    }
}

fn merge_sides<T: Copy + AddAssign>(layout: &mut HistogramLayout, counts: &mut Counts<T>, shift: u32) {
    merge(&mut layout.positive_spans, &mut counts.positive, shift);
    merge(&mut layout.negative_spans, &mut counts.negative, shift);
}

/// Makes one bucket of 2^`shift` neighbours. Spans that overlap stay as they are, for the validation to refuse.
fn merge<T: Copy + AddAssign>(spans: &mut Vec<BucketSpan>, counts: &mut Vec<T>, shift: u32) {
    if spans.iter().skip(1).any(|span| span.offset < 0) {
        return;
    }
    let (mut merged_spans, mut merged): (Vec<BucketSpan>, Vec<T>) = (Vec::new(), Vec::new());
    let (mut next, mut last, mut counted) = (0i64, None, counts.iter());
    for span in spans.iter() {
        next += i64::from(span.offset);
        for count in counted.by_ref().take(span.length as usize) {
            // Buckets include their upper bound: that of index 0 ends at 1.
            let index = ((next - 1) >> shift) + 1;
            next += 1;
            let gap = index - last.map_or(0, |last: i64| last + 1);
            match (last, merged.last_mut(), merged_spans.last_mut()) {
                (Some(last), Some(sum), _) if last == index => *sum += *count,
                (Some(_), _, Some(span)) if gap == 0 => {
                    span.length += 1;
                    merged.push(*count);
                }
                _ => {
                    merged_spans.push(BucketSpan { offset: gap as i32, length: 1 });
                    merged.push(*count);
                }
            }
            last = Some(index);
        }
    }
    (*spans, *counts) = (merged_spans, merged);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finer_schemas_are_reduced_to_the_finest_there_is() {
        let layout = HistogramLayout {
            schema: 10,
            positive_spans: vec![BucketSpan { offset: -1, length: 3 }, BucketSpan { offset: 6, length: 2 }],
            negative_spans: vec![BucketSpan { offset: 5, length: 1 }],
            ..HistogramLayout::default()
        };
        let counts = Counts { count: 21, zero_count: 0, positive: vec![1, 2, 3, 4, 5], negative: vec![6] };
        let fine = NativeHistogram {
            layout: Arc::new(layout),
            counter_reset: CounterReset::Unknown,
            sum: 1.5,
            counts: HistogramCounts::Integer(counts),
        };
        // Indexes -1, 0 and 1, 8 and 9 by fours: 0, 0 and 1, 2 and 3.
        let reduced = fine.clone().with_known_schema();
        reduced.validate().unwrap();
        assert_eq!(reduced.layout.schema, 8);
        assert_eq!(reduced.layout.positive_spans, [BucketSpan { offset: 0, length: 4 }]);
        assert_eq!(reduced.layout.negative_spans, [BucketSpan { offset: 2, length: 1 }]);
        let counts = Counts { count: 21, zero_count: 0, positive: vec![3, 3, 4, 5], negative: vec![6] };
        assert_eq!(reduced.counts, HistogramCounts::Integer(counts));
        let with_schema = |schema| {
            let layout = HistogramLayout { schema, ..(*fine.layout).clone() };
            NativeHistogram { layout: Arc::new(layout), ..fine.clone() }.with_known_schema()
        };
        assert!(with_schema(52).validate().is_ok());
        assert!(with_schema(53).validate().is_err());
        let mut overlapping = (*fine.layout).clone();
        overlapping.positive_spans[1].offset = -1;
        let overlapping = NativeHistogram { layout: Arc::new(overlapping), ..fine.clone() };
        assert_eq!(overlapping.with_known_schema().validate().unwrap_err().what, "spans overlap");
    }

    fn check(change: impl Fn(&mut HistogramLayout), what: Option<&'static str>) {
        let mut layout = HistogramLayout {
            schema: 3,
            zero_threshold: 1e-128,
            positive_spans: vec![BucketSpan { offset: -2, length: 2 }, BucketSpan { offset: 3, length: 1 }],
            ..HistogramLayout::default()
        };
        change(&mut layout);
        let counts = Counts { count: 6, zero_count: 0, positive: vec![1, 2, 3], negative: Vec::new() };
        let histogram = NativeHistogram {
            layout: Arc::new(layout),
            counter_reset: CounterReset::Unknown,
            sum: 1.5,
            counts: HistogramCounts::Integer(counts),
        };
        assert_eq!(histogram.validate().err().map(|invalid| invalid.what), what);
    }

    #[test]
    fn contradictions_are_found() {
        check(|_| {}, None);
        check(|layout| layout.schema = 9, Some("no such schema"));
        check(|layout| layout.custom_bounds = vec![1.0], Some("bounds of custom buckets with an exponential schema"));
        check(|layout| layout.positive_spans[1].offset = -1, Some("spans overlap"));
        check(
            |layout| layout.positive_spans[1].length = 2,
            Some("number of bucket counts differs from the spans' buckets"),
        );
        let custom = |layout: &mut HistogramLayout| {
            layout.schema = CUSTOM_BUCKETS_SCHEMA;
            layout.custom_bounds = vec![0.1, 0.5, 1.0];
        };
        check(custom, None);
        check(
            |layout| {
                custom(layout);
                layout.custom_bounds[1] = 2.0;
            },
            Some("bounds of custom buckets do not ascend"),
        );
        check(
            |layout| {
                custom(layout);
                layout.custom_bounds[2] = f64::INFINITY;
            },
            Some("bounds of custom buckets are finite: the last bucket, up to +Inf, has none"),
        );
        check(
            |layout| {
                custom(layout);
                layout.negative_spans = layout.positive_spans.clone();
            },
            Some("custom buckets are positive ones only"),
        );
    }
}
