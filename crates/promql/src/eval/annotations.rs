//! Warnings and infos of a result, in Prometheus's words, with the positions of the expressions that caused them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use query::{Budget, FOLDED_WARNING, QueryError};

use crate::eval::calendar;
use crate::eval::rows::{Row, Steps};
use crate::range::samples::Samples;
use crate::syntax::number::{plain, short};
use crate::syntax::span::Span;
use crate::syntax::strings::quote;

/// The most of a kind that a result shows.
const SHOWN_MAX: usize = 10;

/// The most distinct annotations that are recorded.
const DISTINCT_MAX: usize = 1000;

/// The operation in which two histograms did not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HistogramOperation {
    Addition,
    Subtraction,
    Aggregation,
}

impl HistogramOperation {
    const fn name(self) -> &'static str {
        match self {
            Self::Addition => "addition",
            Self::Subtraction => "subtraction",
            Self::Aggregation => "aggregation",
        }
    }
}

/// How often and where cumulative buckets had to be corrected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Correction {
    pub(crate) first_ms: i64,
    pub(crate) last_ms: i64,
    pub(crate) least_bound: f64,
    pub(crate) greatest_bound: f64,
    pub(crate) difference_max: f64,
    pub(crate) count: u64,
}

impl Correction {
    fn and(self, other: Self) -> Self {
        Self {
            first_ms: self.first_ms.min(other.first_ms),
            last_ms: self.last_ms.max(other.last_ms),
            least_bound: self.least_bound.min(other.least_bound),
            greatest_bound: self.greatest_bound.max(other.greatest_bound),
            difference_max: self.difference_max.max(other.difference_max),
            count: self.count + other.count,
        }
    }

    fn text(&self) -> String {
        let (first, last) = (calendar::rfc3339(self.first_ms), calendar::rfc3339(self.last_ms));
        let (from, to) = (short(self.least_bound), short(self.greatest_bound));
        let difference = two_digits(self.difference_max);
        let count = self.count;
        format!(
            ", from buckets {from} to {to}, with a max diff of {difference}, over {count} samples from {first} to {last}"
        )
    }
}

/// With two significant digits.
fn two_digits(value: f64) -> String {
    let rounded: f64 = format!("{value:.1e}").parse().unwrap_or(value);
    let exponent = if rounded == 0.0 { 0 } else { rounded.abs().log10().floor() as i32 };
    if (-4..2).contains(&exponent) {
        return plain(rounded);
    }
    let scientific = format!("{rounded:e}");
    let (digits, _) = scientific.split_once('e').unwrap_or((&scientific, ""));
    format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// Runs of steps: the times of their first and last, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct StepRanges(Vec<(i64, i64)>);

impl StepRanges {
    /// The steps at which a row has floats.
    fn from_row(row: &Row, steps: Steps) -> Self {
        let mut ranges = Self::default();
        for (step, _) in row.floats() {
            let time_ms = steps.time_ms(step);
            match ranges.0.last_mut().filter(|(_, last_ms)| *last_ms + steps.step_ms == time_ms) {
                Some((_, last_ms)) => *last_ms = time_ms,
                None => ranges.0.push((time_ms, time_ms)),
            }
        }
        ranges
    }

    fn add(&mut self, other: Self) {
        if self.0.len() == 1 && self.contains_all(&other) {
            return;
        }
        self.0.extend(other.0);
        self.0.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::with_capacity(self.0.len());
        for (first_ms, last_ms) in self.0.drain(..) {
            match joined.last_mut().filter(|(_, end_ms)| first_ms <= *end_ms) {
                Some((_, end_ms)) => *end_ms = last_ms.max(*end_ms),
                None => joined.push((first_ms, last_ms)),
            }
        }
        self.0 = joined;
    }

    fn contains_all(&self, other: &Self) -> bool {
        let (existing, others) = (self.0.first(), other.0.first().zip(other.0.last()));
        existing.zip(others).is_some_and(|(existing, (first, last))| existing.0 <= first.0 && last.1 <= existing.1)
    }

    pub(crate) fn into_runs(self) -> Vec<(i64, i64)> {
        self.0
    }
}

#[derive(Debug, Clone)]
struct Details {
    span: Span,
    correction: Option<Correction>,
    /// The query's steps to which the annotation belongs; `None` if it belongs to the result as a whole.
    steps: Option<StepRanges>,
}

/// The annotations of an evaluation, by text; of the same text the last position counts.
#[derive(Debug, Default)]
pub(crate) struct Annotations {
    warnings: RefCell<BTreeMap<String, Details>>,
    infos: RefCell<BTreeMap<String, Details>>,
}

/// Where annotations about an expression go.
#[derive(Clone, Copy)]
pub(crate) struct AnnotationContext<'a> {
    pub(crate) annotations: &'a Annotations,
    /// The metric's name.
    pub(crate) name: &'a str,
    /// The position of the expression.
    pub(crate) span: Span,
}

/// `text for metric name "…"`, if there is a name.
fn with_name(text: &str, name: &str) -> String {
    if name.is_empty() { text.to_owned() } else { format!("{text} for metric name {}", quote(name)) }
}

impl Annotations {
    /// The argument of a function of counters has no counter's name.
    pub(crate) fn check_counter_name(&self, name: &str, span: Span, row: &Row, steps: Option<Steps>) {
        let suffixes = ["_total", "_sum", "_count", "_bucket"];
        if name.is_empty() || suffixes.iter().any(|suffix| name.ends_with(suffix)) {
            return;
        }
        let text = "metric might not be a counter, name does not end in _total/_sum/_count/_bucket:";
        let text = format!("PromQL info: {text} {}", quote(name));
        let steps = steps.map(|steps| StepRanges::from_row(row, steps));
        record(&self.infos, text, Details { span, correction: None, steps });
    }

    /// Warns that folded samples are taken for their last ones; fails if they must not be.
    pub(crate) fn check_folds(&self, samples: &Samples, span: Span, budget: &Budget) -> Result<(), QueryError> {
        if samples.folds.is_empty() { Ok(()) } else { self.folded(span, budget) }
    }

    /// Warns that the result is not that of all samples that were folded; fails if it must not be.
    pub(crate) fn folded(&self, span: Span, budget: &Budget) -> Result<(), QueryError> {
        budget.note_folded()?;
        self.warn(span, FOLDED_WARNING);
        Ok(())
    }

    pub(crate) fn check_quantile(&self, quantile: f64, span: Span) {
        if !(0.0..=1.0).contains(&quantile) {
            self.warn(span, format!("quantile value should be between 0 and 1, got {}", short(quantile)));
        }
    }

    /// Warns of the largest and the smallest of the quantiles of all steps, if they are none.
    pub(crate) fn check_quantiles(&self, quantiles: &[f64], span: Span) {
        if quantiles.iter().any(|quantile| quantile.is_nan()) {
            self.check_quantile(f64::NAN, span);
        } else {
            self.check_quantile(quantiles.iter().copied().fold(0.5, f64::max), span);
            self.check_quantile(quantiles.iter().copied().fold(0.5, f64::min), span);
        }
    }

    pub(crate) fn capped_ratio(&self, ratio: f64, to: f64, span: Span) {
        let text = "ratio value should be between -1 and 1";
        self.warn(span, format!("{text}, got {}, capping to {}", short(ratio), short(to)));
    }

    pub(crate) fn bad_bucket(&self, label: &str, name: &str, span: Span) {
        let text = format!("bucket label \"le\" is missing or has a malformed value of {}", quote(label));
        self.warn(span, with_name(&text, name));
    }

    pub(crate) fn mixed_samples(&self, name: &str, span: Span) {
        self.warn(span, format!("encountered a mix of histograms and floats for metric name {}", quote(name)));
    }

    pub(crate) fn mixed_samples_in_aggregation(&self, span: Span) {
        self.warn(span, "encountered a mix of histograms and floats for aggregation".to_owned());
    }

    pub(crate) fn mixed_classic_and_native(&self, name: &str, span: Span) {
        self.warn(span, with_name("vector contains a mix of classic and native histograms", name));
    }

    pub(crate) fn not_a_counter(&self, name: &str, span: Span) {
        self.warn(span, format!("this native histogram metric is not a counter: {}", quote(name)));
    }

    pub(crate) fn not_a_gauge(&self, name: &str, span: Span) {
        self.warn(span, format!("this native histogram metric is not a gauge: {}", quote(name)));
    }

    pub(crate) fn mixed_schemas(&self, name: &str, span: Span) {
        let text = "vector contains a mix of histograms with exponential and custom buckets schemas for metric name";
        self.warn(span, format!("{text} {}", quote(name)));
    }

    pub(crate) fn incompatible_buckets(&self, operator: &str, span: Span) {
        self.warn(span, format!("incompatible bucket layout encountered for binary operator {operator}"));
    }

    /// A series that others were to be compared with has no value in some bin, or one that is no number.
    pub(crate) fn gaps_in_reference(&self, labels: &impl std::fmt::Display, span: Span) {
        self.warn(span, format!("nothing was compared with the reference series {labels}, which has gaps"));
    }

    pub(crate) fn sort_in_range_query(&self, span: Span) {
        let text = "sort is ineffective for range queries since results are always ordered by labels";
        self.warn(span, text.to_owned());
    }

    pub(crate) fn reset_conflict(&self, operation: HistogramOperation, span: Span) {
        self.warn(span, format!("conflicting counter resets during histogram {}", operation.name()));
    }

    pub(crate) fn bounds_reconciled(&self, operation: HistogramOperation, span: Span) {
        self.info(span, format!("mismatched custom buckets were reconciled during {}", operation.name()));
    }

    pub(crate) fn incompatible_types(&self, left: &str, operator: &str, right: &str, span: Span) {
        let text = "incompatible sample types encountered for binary operator";
        self.info(span, format!("{text} {}: {left} {operator} {right}", quote(operator)));
    }

    pub(crate) fn ignored_in_aggregation(&self, aggregation: &str, span: Span) {
        self.info(span, format!("ignored histogram in {aggregation} aggregation"));
    }

    /// An aggregation of sketches came upon samples that are no texts.
    pub(crate) fn ignored_numbers(&self, aggregation: &str, span: Span) {
        self.info(span, format!("ignored floats and histograms in {aggregation} aggregation, which merges sketches"));
    }

    pub(crate) fn ignored_in_range(&self, name: &str, span: Span) {
        let text = "ignored histograms in a range containing both floats and histograms for metric name";
        self.info(span, format!("{text} {}", quote(name)));
    }

    pub(crate) fn about_nans(&self, text: &str, name: &str, span: Span) {
        self.info(span, with_name(text, name));
    }

    /// Buckets were not cumulative.
    pub(crate) fn forced_monotonicity(&self, name: &str, correction: Correction, span: Span) {
        let text = "input to histogram_quantile needed to be fixed for monotonicity (see \
                    https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)";
        let details = Details { span, correction: Some(correction), steps: None };
        record(&self.infos, format!("PromQL info: {}", with_name(text, name)), details);
    }

    fn warn(&self, span: Span, text: impl std::fmt::Display) {
        record(&self.warnings, format!("PromQL warning: {text}"), Details { span, correction: None, steps: None });
    }

    fn info(&self, span: Span, text: impl std::fmt::Display) {
        record(&self.infos, format!("PromQL info: {text}"), Details { span, correction: None, steps: None });
    }

    /// Adds annotations that were recorded separately and later.
    pub(crate) fn absorb(&self, later: Self) {
        for (all, more) in [(&self.warnings, later.warnings), (&self.infos, later.infos)] {
            more.into_inner().into_iter().for_each(|(text, details)| record(all, text, details));
        }
    }

    /// Returns whether all are infos whose steps are known.
    pub(crate) fn are_by_step(&self) -> bool {
        let infos = self.infos.borrow();
        let is_by_step = infos.values().all(|details| details.steps.is_some());
        self.warnings.borrow().is_empty() && is_by_step && infos.len() < DISTINCT_MAX
    }

    /// Infos of which the steps are known, by their text.
    pub(crate) fn into_step_infos(self, text: &str) -> BTreeMap<String, StepInfo> {
        let infos = self.infos.into_inner().into_iter().map(|(note, details)| {
            let text_with_position = details.text_with_position(&note, text);
            (note, StepInfo::new(text_with_position, details.steps.unwrap_or_default()))
        });
        infos.collect()
    }

    /// Warnings and infos with their positions in the text, each list cut to a readable length.
    pub(crate) fn into_lists(self, text: &str) -> (Vec<String>, Vec<String>) {
        let list = |annotations: RefCell<BTreeMap<String, Details>>, kind| {
            shown_annotations(
                annotations.into_inner().into_iter().map(|(note, details)| details.text_with_position(&note, text)),
                kind,
            )
        };
        (list(self.warnings, "warning"), list(self.infos, "info"))
    }
}

impl Details {
    fn text_with_position(&self, note: &str, text: &str) -> String {
        let correction = self.correction.map(|correction| correction.text()).unwrap_or_default();
        format!("{note}{correction} ({})", self.span.position(text))
    }
}

fn record(annotations: &RefCell<BTreeMap<String, Details>>, text: String, details: Details) {
    let mut annotations = annotations.borrow_mut();
    let Details { span, correction, steps } = details;
    if let Some(existing) = annotations.get_mut(&text) {
        existing.span = span;
        existing.correction = match (existing.correction, correction) {
            (Some(before), Some(now)) => Some(before.and(now)),
            (before, now) => now.or(before),
        };
        match (&mut existing.steps, steps) {
            (Some(existing), Some(steps)) => existing.add(steps),
            (existing, _) => *existing = None,
        }
    } else if annotations.len() < DISTINCT_MAX {
        annotations.insert(text, Details { span, correction, steps });
    }
}

/// Annotations in order, as results show them: the first ones, and how many more there are.
pub(crate) fn shown_annotations(mut annotations: impl Iterator<Item = String>, kind: &str) -> Vec<String> {
    let mut written: Vec<String> = annotations.by_ref().take(SHOWN_MAX).collect();
    let omitted = annotations.count();
    if omitted > 0 {
        written.push(format!("{omitted} more {kind} annotations omitted"));
    }
    written
}

/// An info, and when it holds.
#[derive(Debug, Clone, PartialEq)]
pub struct StepInfo {
    /// The info as results show it.
    pub text_with_position: String,
    /// The first and the last step of each run of steps to which it belongs, in milliseconds.
    pub steps: Vec<(i64, i64)>,
}

impl StepInfo {
    fn new(text_with_position: String, ranges: StepRanges) -> Self {
        Self { text_with_position, steps: ranges.into_runs() }
    }
}
