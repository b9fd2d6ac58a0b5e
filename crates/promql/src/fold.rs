//! Aggregations that make one value of many, fed one after the other.

use crate::histogram::Histogram;
use crate::histogram_fold::HistogramFold;
use crate::notes::Notes;
use crate::rows::Sample;
use crate::sum::{CompensatedSum, Mean as FloatMean};
use crate::syntax::span::Span;

/// One value made of many.
pub(crate) trait Fold: Sized + Send {
    /// The aggregation's name, if it leaves out histograms.
    const FLOATS_ONLY: Option<&'static str>;

    fn start(value: f64) -> Self;
    fn add(&mut self, value: f64);

    /// From a histogram; of those that leave them out never called.
    fn start_histogram(_: &Histogram) -> Self {
        Self::start(f64::NAN)
    }

    /// Adds a histogram; of those that leave them out never called.
    fn add_histogram(&mut self, _: &Histogram, _: (&Notes, &str, Span)) {}

    /// Adds either.
    fn add_sample(cell: &mut Option<Self>, sample: &Sample, notes: &Notes, name: &str, span: Span) {
        match (sample, Self::FLOATS_ONLY, cell.as_mut()) {
            (Sample::Float(value), _, Some(cell)) => cell.add(*value),
            (Sample::Float(value), _, None) => *cell = Some(Self::start(*value)),
            (Sample::Histogram(_), Some(aggregation), _) => notes.ignored_in_aggregation(aggregation, span),
            (Sample::Histogram(histogram), None, Some(cell)) => cell.add_histogram(histogram, (notes, name, span)),
            (Sample::Histogram(histogram), None, None) => *cell = Some(Self::start_histogram(histogram)),
        }
    }

    /// The result; nothing, if the values do not go together.
    fn finish(self, notes: &Notes, span: Span) -> Option<Sample>;
}

/// Floats or histograms: a group of both has no result.
enum Mixed<F> {
    Floats(F),
    Histograms(Box<HistogramFold>),
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

    fn add_histogram(&mut self, histogram: &Histogram, (notes, name, span): (&Notes, &str, Span)) {
        match self {
            Self::Floats(_) => *self = Self::Both,
            Self::Histograms(fold) => {
                if fold.add(histogram).is_err() {
                    notes.mixed_schemas(name, span);
                    *self = Self::Incompatible;
                }
            }
            Self::Both | Self::Incompatible => {}
        }
    }

    fn finish(self, notes: &Notes, span: Span, finish: impl FnOnce(F) -> f64) -> Option<Sample> {
        match self {
            Self::Floats(floats) => Some(Sample::Float(finish(floats))),
            Self::Histograms(fold) => {
                fold.tell(notes, span);
                let mut histogram = fold.finish();
                histogram.compact();
                Some(histogram.into())
            }
            Self::Both => {
                notes.mixed_samples_in_aggregation(span);
                None
            }
            Self::Incompatible => None,
        }
    }
}

pub(crate) struct Total(Mixed<CompensatedSum>);

impl Total {
    /// What floats were added up to.
    pub(crate) const fn of(sum: CompensatedSum) -> Self {
        Self(Mixed::Floats(sum))
    }
}

impl Fold for Total {
    const FLOATS_ONLY: Option<&'static str> = None;

    fn start(value: f64) -> Self {
        Self(Mixed::Floats(CompensatedSum::new(value)))
    }

    #[inline]
    fn add(&mut self, value: f64) {
        self.0.add(|sum| *sum = sum.plus(value));
    }

    fn start_histogram(histogram: &Histogram) -> Self {
        Self(Mixed::Histograms(Box::new(HistogramFold::new(histogram, false))))
    }

    fn add_histogram(&mut self, histogram: &Histogram, about: (&Notes, &str, Span)) {
        self.0.add_histogram(histogram, about);
    }

    fn finish(self, notes: &Notes, span: Span) -> Option<Sample> {
        self.0.finish(notes, span, CompensatedSum::value)
    }
}

pub(crate) struct Mean(Mixed<FloatMean>);

impl Fold for Mean {
    const FLOATS_ONLY: Option<&'static str> = None;

    fn start(value: f64) -> Self {
        Self(Mixed::Floats(FloatMean::new(value)))
    }

    fn add(&mut self, value: f64) {
        self.0.add(|mean| mean.add(value));
    }

    fn start_histogram(histogram: &Histogram) -> Self {
        Self(Mixed::Histograms(Box::new(HistogramFold::new(histogram, true))))
    }

    fn add_histogram(&mut self, histogram: &Histogram, about: (&Notes, &str, Span)) {
        self.0.add_histogram(histogram, about);
    }

    fn finish(self, notes: &Notes, span: Span) -> Option<Sample> {
        self.0.finish(notes, span, |mean| mean.value())
    }
}

/// NaN only if there is nothing else.
pub(crate) struct Minimum(f64);

impl Fold for Minimum {
    const FLOATS_ONLY: Option<&'static str> = Some("min");

    fn start(value: f64) -> Self {
        Self(value)
    }

    fn add(&mut self, value: f64) {
        if self.0 > value || self.0.is_nan() {
            self.0 = value;
        }
    }

    fn finish(self, _: &Notes, _: Span) -> Option<Sample> {
        Some(Sample::Float(self.0))
    }
}

/// NaN only if there is nothing else.
pub(crate) struct Maximum(f64);

impl Fold for Maximum {
    const FLOATS_ONLY: Option<&'static str> = Some("max");

    fn start(value: f64) -> Self {
        Self(value)
    }

    fn add(&mut self, value: f64) {
        if self.0 < value || self.0.is_nan() {
            self.0 = value;
        }
    }

    fn finish(self, _: &Notes, _: Span) -> Option<Sample> {
        Some(Sample::Float(self.0))
    }
}

pub(crate) struct Count(u64);

impl Fold for Count {
    const FLOATS_ONLY: Option<&'static str> = None;

    fn start(_: f64) -> Self {
        Self(1)
    }

    fn add(&mut self, _: f64) {
        self.0 += 1;
    }

    fn add_histogram(&mut self, _: &Histogram, _: (&Notes, &str, Span)) {
        self.0 += 1;
    }

    fn finish(self, _: &Notes, _: Span) -> Option<Sample> {
        Some(Sample::Float(self.0 as f64))
    }
}

pub(crate) struct One;

impl Fold for One {
    const FLOATS_ONLY: Option<&'static str> = None;

    fn start(_: f64) -> Self {
        Self
    }

    fn add(&mut self, _: f64) {}

    fn finish(self, _: &Notes, _: Span) -> Option<Sample> {
        Some(Sample::Float(1.0))
    }
}

/// Welford's method.
#[derive(Clone, Copy)]
struct Squares {
    count: f64,
    mean: f64,
    deviations: f64,
}

impl Squares {
    fn new(value: f64) -> Self {
        Self { count: 1.0, mean: value, deviations: if value.is_finite() { 0.0 } else { f64::NAN } }
    }

    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let delta = value - self.mean;
        self.mean += delta / self.count;
        self.deviations += delta * (value - self.mean);
    }
}

pub(crate) struct Variance(Squares);

impl Fold for Variance {
    const FLOATS_ONLY: Option<&'static str> = Some("stdvar");

    fn start(value: f64) -> Self {
        Self(Squares::new(value))
    }

    fn add(&mut self, value: f64) {
        self.0.add(value);
    }

    fn finish(self, _: &Notes, _: Span) -> Option<Sample> {
        Some(Sample::Float(self.0.deviations / self.0.count))
    }
}

pub(crate) struct StandardDeviation(Squares);

impl Fold for StandardDeviation {
    const FLOATS_ONLY: Option<&'static str> = Some("stddev");

    fn start(value: f64) -> Self {
        Self(Squares::new(value))
    }

    fn add(&mut self, value: f64) {
        self.0.add(value);
    }

    fn finish(self, _: &Notes, _: Span) -> Option<Sample> {
        Some(Sample::Float((self.0.deviations / self.0.count).sqrt()))
    }
}
