//! Warnings and infos that go with an answer, in Prometheus's words, with the place of what they are about.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::calendar;
use crate::syntax::number::{plain, short};
use crate::syntax::span::Span;
use crate::syntax::strings::quote;

/// How many of a kind an answer shows.
const NOTES_MAX: usize = 10;
/// How many different ones are told apart.
const NOTES_KEPT_MAX: usize = 1000;

/// What was done when two histograms did not fit each other.
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

#[derive(Debug, Clone, Copy)]
struct Place {
    span: Span,
    correction: Option<Correction>,
}

/// Gathers notes; of the same text the last place counts.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    warnings: RefCell<BTreeMap<String, Place>>,
    infos: RefCell<BTreeMap<String, Place>>,
}

/// `text for metric name "…"`, if there is a name.
fn with_name(text: &str, name: &str) -> String {
    if name.is_empty() { text.to_owned() } else { format!("{text} for metric name {}", quote(name)) }
}

impl Notes {
    /// The metric given to a function of counters is not named as one.
    pub(crate) fn check_counter_name(&self, name: &str, span: Span) {
        let suffixes = ["_total", "_sum", "_count", "_bucket"];
        if name.is_empty() || suffixes.iter().any(|suffix| name.ends_with(suffix)) {
            return;
        }
        let text = "metric might not be a counter, name does not end in _total/_sum/_count/_bucket:";
        self.info(span, format!("{text} {}", quote(name)));
    }

    pub(crate) fn check_quantile(&self, quantile: f64, span: Span) {
        if !(0.0..=1.0).contains(&quantile) {
            self.warn(span, format!("quantile value should be between 0 and 1, got {}", short(quantile)));
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
        keep(&self.infos, format!("PromQL info: {}", with_name(text, name)), span, Some(correction));
    }

    fn warn(&self, span: Span, text: impl std::fmt::Display) {
        keep(&self.warnings, format!("PromQL warning: {text}"), span, None);
    }

    fn info(&self, span: Span, text: impl std::fmt::Display) {
        keep(&self.infos, format!("PromQL info: {text}"), span, None);
    }

    /// Takes over notes that were made apart and later.
    pub(crate) fn absorb(&self, later: Self) {
        for (all, more) in [(&self.warnings, later.warnings), (&self.infos, later.infos)] {
            more.into_inner().into_iter().for_each(|(text, place)| keep(all, text, place.span, place.correction));
        }
    }

    /// Warnings and infos with their places in the text, each list cut to a length fit for a reader.
    pub(crate) fn into_lists(self, text: &str) -> (Vec<String>, Vec<String>) {
        (shown(self.warnings.into_inner(), "warning", text), shown(self.infos.into_inner(), "info", text))
    }
}

fn keep(notes: &RefCell<BTreeMap<String, Place>>, text: String, span: Span, correction: Option<Correction>) {
    let mut notes = notes.borrow_mut();
    if let Some(known) = notes.get_mut(&text) {
        known.span = span;
        known.correction = match (known.correction, correction) {
            (Some(before), Some(now)) => Some(before.and(now)),
            (before, now) => now.or(before),
        };
    } else if notes.len() < NOTES_KEPT_MAX {
        notes.insert(text, Place { span, correction });
    }
}

fn shown(notes: BTreeMap<String, Place>, kind: &str, text: &str) -> Vec<String> {
    let omitted = notes.len().saturating_sub(NOTES_MAX);
    let written = notes.into_iter().take(NOTES_MAX).map(|(note, place)| {
        let correction = place.correction.map(|correction| correction.text()).unwrap_or_default();
        format!("{note}{correction} ({})", place.span.place(text))
    });
    let mut written: Vec<String> = written.collect();
    if omitted > 0 {
        written.push(format!("{omitted} more {kind} annotations omitted"));
    }
    written
}
