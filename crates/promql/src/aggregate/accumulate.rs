//! Aggregations that reduce many values to one, a value at a time.

use crate::eval::annotations::{AnnotationContext, Annotations};
use crate::eval::rows::Sample;
use crate::eval::sum::{CompensatedSum, Mean as FloatMean};
use crate::histogram::accumulate::HistogramAccumulator;
use crate::histogram::native::Histogram;
use crate::syntax::span::Span;

/// One value made of many.
pub(crate) trait Accumulate: Sized + Send {
    /// The aggregation's name, if it leaves out histograms.
    const FLOATS_ONLY: Option<&'static str>;

    fn start(value: f64) -> Self;
    fn add(&mut self, value: f64);

    /// From a histogram; of those that leave them out never called.
    fn start_histogram(_: &Histogram) -> Self {
        Self::start(f64::NAN)
    }

    /// Adds a histogram; of those that leave them out never called.
    fn add_histogram(&mut self, _: &Histogram, _: AnnotationContext<'_>) {}

    /// Adds a value of either kind.
    fn add_sample(state: &mut Option<Self>, sample: &Sample, context: AnnotationContext<'_>) {
        match (sample, Self::FLOATS_ONLY, state.as_mut()) {
            (Sample::Float(value), _, Some(state)) => state.add(*value),
            (Sample::Float(value), _, None) => *state = Some(Self::start(*value)),
            (Sample::Histogram(_), Some(aggregation), _) => {
                context.annotations.ignored_in_aggregation(aggregation, context.span);
            }
            (Sample::Histogram(histogram), None, Some(state)) => state.add_histogram(histogram, context),
            (Sample::Histogram(histogram), None, None) => *state = Some(Self::start_histogram(histogram)),
        }
    }

    /// The result; `None` if the values are incompatible.
    fn finish(self, annotations: &Annotations, span: Span) -> Option<Sample>;
}

/// Floats or histograms: a group of both has no result.
enum Mixed<F> {
    Floats(F),
    Histograms(Box<HistogramAccumulator>),
    Both,
    /// Exponential and custom buckets.
    Incompatible,
}

impl<F> Mixed<F> {
    #[inline]
    fn add(&mut self, add: impl FnOnce(&mut F)) {
        match self {
            Self::Floats(floats) => add(floats),
            Self::Histograms(_) => *self = Self::Both,
            Self::Both | Self::Incompatible => {}
        }
    }

    fn add_histogram(&mut self, histogram: &Histogram, context: AnnotationContext<'_>) {
        match self {
            Self::Floats(_) => *self = Self::Both,
            Self::Histograms(accumulator) => {
                if accumulator.add(histogram).is_err() {
                    context.annotations.mixed_schemas(context.name, context.span);
                    *self = Self::Incompatible;
                }
            }
            Self::Both | Self::Incompatible => {}
        }
    }

    fn finish(self, annotations: &Annotations, span: Span, finish: impl FnOnce(F) -> f64) -> Option<Sample> {
        match self {
            Self::Floats(floats) => Some(Sample::Float(finish(floats))),
            Self::Histograms(accumulator) => {
                accumulator.annotate(annotations, span);
                let mut histogram = accumulator.finish();
                histogram.compact();
                Some(histogram.into())
            }
            Self::Both => {
                annotations.mixed_samples_in_aggregation(span);
                None
            }
            Self::Incompatible => None,
        }
    }
}

pub(crate) struct SumAccumulator(Mixed<CompensatedSum>);

impl SumAccumulator {
    /// A sum of floats.
    pub(crate) const fn from_sum(sum: CompensatedSum) -> Self {
        Self(Mixed::Floats(sum))
    }
}

impl Accumulate for SumAccumulator {
    const FLOATS_ONLY: Option<&'static str> = None;

    fn start(value: f64) -> Self {
        Self(Mixed::Floats(CompensatedSum::new(value)))
    }

    #[inline]
    fn add(&mut self, value: f64) {
        self.0.add(|sum| *sum = sum.plus(value));
    }

    fn start_histogram(histogram: &Histogram) -> Self {
        Self(Mixed::Histograms(Box::new(HistogramAccumulator::new(histogram, false))))
    }

    fn add_histogram(&mut self, histogram: &Histogram, context: AnnotationContext<'_>) {
        self.0.add_histogram(histogram, context);
    }

    fn finish(self, annotations: &Annotations, span: Span) -> Option<Sample> {
        self.0.finish(annotations, span, CompensatedSum::value)
    }
}

pub(crate) struct MeanAccumulator(Mixed<FloatMean>);

impl Accumulate for MeanAccumulator {
    const FLOATS_ONLY: Option<&'static str> = None;

    fn start(value: f64) -> Self {
        Self(Mixed::Floats(FloatMean::new(value)))
    }

    fn add(&mut self, value: f64) {
        self.0.add(|mean| mean.add(value));
    }

    fn start_histogram(histogram: &Histogram) -> Self {
        Self(Mixed::Histograms(Box::new(HistogramAccumulator::new(histogram, true))))
    }

    fn add_histogram(&mut self, histogram: &Histogram, context: AnnotationContext<'_>) {
        self.0.add_histogram(histogram, context);
    }

    fn finish(self, annotations: &Annotations, span: Span) -> Option<Sample> {
        self.0.finish(annotations, span, |mean| mean.value())
    }
}

/// NaN only if there is nothing else.
pub(crate) struct MinAccumulator(f64);

impl Accumulate for MinAccumulator {
    const FLOATS_ONLY: Option<&'static str> = Some("min");

    fn start(value: f64) -> Self {
        Self(value)
    }

    fn add(&mut self, value: f64) {
        if self.0 > value || self.0.is_nan() {
            self.0 = value;
        }
    }

    fn finish(self, _: &Annotations, _: Span) -> Option<Sample> {
        Some(Sample::Float(self.0))
    }
}

/// NaN only if there is nothing else.
pub(crate) struct MaxAccumulator(f64);

impl Accumulate for MaxAccumulator {
    const FLOATS_ONLY: Option<&'static str> = Some("max");

    fn start(value: f64) -> Self {
        Self(value)
    }

    fn add(&mut self, value: f64) {
        if self.0 < value || self.0.is_nan() {
            self.0 = value;
        }
    }

    fn finish(self, _: &Annotations, _: Span) -> Option<Sample> {
        Some(Sample::Float(self.0))
    }
}

pub(crate) struct CountAccumulator(u64);

impl Accumulate for CountAccumulator {
    const FLOATS_ONLY: Option<&'static str> = None;

    fn start(_: f64) -> Self {
        Self(1)
    }

    fn add(&mut self, _: f64) {
        self.0 += 1;
    }

    fn add_histogram(&mut self, _: &Histogram, _: AnnotationContext<'_>) {
        self.0 += 1;
    }

    fn finish(self, _: &Annotations, _: Span) -> Option<Sample> {
        Some(Sample::Float(self.0 as f64))
    }
}

pub(crate) struct GroupAccumulator;

impl Accumulate for GroupAccumulator {
    const FLOATS_ONLY: Option<&'static str> = None;

    fn start(_: f64) -> Self {
        Self
    }

    fn add(&mut self, _: f64) {}

    fn finish(self, _: &Annotations, _: Span) -> Option<Sample> {
        Some(Sample::Float(1.0))
    }
}

/// Welford's method.
#[derive(Clone, Copy)]
pub(super) struct Squares {
    count: f64,
    mean: f64,
    deviations: f64,
}

impl Squares {
    pub(super) fn new(value: f64) -> Self {
        Self { count: 1.0, mean: value, deviations: if value.is_finite() { 0.0 } else { f64::NAN } }
    }

    pub(super) fn add(&mut self, value: f64) {
        self.count += 1.0;
        let delta = value - self.mean;
        self.mean += delta / self.count;
        self.deviations += delta * (value - self.mean);
    }

    pub(super) fn variance(self) -> f64 {
        self.deviations / self.count
    }
}

pub(crate) struct VarianceAccumulator(Squares);

impl Accumulate for VarianceAccumulator {
    const FLOATS_ONLY: Option<&'static str> = Some("stdvar");

    fn start(value: f64) -> Self {
        Self(Squares::new(value))
    }

    fn add(&mut self, value: f64) {
        self.0.add(value);
    }

    fn finish(self, _: &Annotations, _: Span) -> Option<Sample> {
        Some(Sample::Float(self.0.variance()))
    }
}

pub(crate) struct StddevAccumulator(Squares);

impl Accumulate for StddevAccumulator {
    const FLOATS_ONLY: Option<&'static str> = Some("stddev");

    fn start(value: f64) -> Self {
        Self(Squares::new(value))
    }

    fn add(&mut self, value: f64) {
        self.0.add(value);
    }

    fn finish(self, _: &Annotations, _: Span) -> Option<Sample> {
        Some(Sample::Float(self.0.variance().sqrt()))
    }
}
