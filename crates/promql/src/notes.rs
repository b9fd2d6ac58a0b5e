//! Warnings and remarks that go with an answer, in Prometheus's words.

use std::cell::RefCell;
use std::collections::BTreeSet;

/// How many of a kind an answer shows.
const NOTES_MAX: usize = 10;
/// How many different ones are told apart.
const NOTES_KEPT_MAX: usize = 1000;

/// Gathers notes; the same text counts once.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    warnings: RefCell<BTreeSet<String>>,
    infos: RefCell<BTreeSet<String>>,
}

impl Notes {
    /// The metric given to a function of counters is not named as one.
    pub(crate) fn check_counter_name(&self, name: &str) {
        let suffixes = ["_total", "_sum", "_count", "_bucket"];
        if name.is_empty() || suffixes.iter().any(|suffix| name.ends_with(suffix)) {
            return;
        }
        self.info(&format!("metric might not be a counter, name does not end in _total/_sum/_count/_bucket: {name:?}"));
    }

    /// Quantiles should lie within 0 to 1.
    pub(crate) fn check_quantiles(&self, quantiles: &[f64]) {
        if let Some(quantile) = quantiles.iter().copied().find(|quantile| !(0.0..=1.0).contains(quantile)) {
            self.warn(&format!("quantile value should be between 0 and 1, got {}", number_text(quantile)));
        }
    }

    /// A bucket's label `le` is no number.
    pub(crate) fn bad_bucket(&self, label: &str) {
        self.warn(&format!("bucket label \"le\" is missing or has a malformed value of {label:?}"));
    }

    /// Buckets were not cumulative.
    pub(crate) fn forced_monotonicity(&self) {
        self.info("input to histogram_quantile needed to be fixed for monotonicity");
    }

    fn warn(&self, text: &str) {
        keep(&self.warnings, format!("PromQL warning: {text}"));
    }

    fn info(&self, text: &str) {
        keep(&self.infos, format!("PromQL info: {text}"));
    }

    /// Warnings and infos, each cut to a length fit for a reader.
    pub(crate) fn into_lists(self) -> (Vec<String>, Vec<String>) {
        (cut(self.warnings.into_inner(), "warning"), cut(self.infos.into_inner(), "info"))
    }
}

fn keep(notes: &RefCell<BTreeSet<String>>, text: String) {
    let mut notes = notes.borrow_mut();
    if notes.len() < NOTES_KEPT_MAX {
        notes.insert(text);
    }
}

fn cut(notes: BTreeSet<String>, kind: &str) -> Vec<String> {
    let omitted = notes.len().saturating_sub(NOTES_MAX);
    let mut notes: Vec<String> = notes.into_iter().take(NOTES_MAX).collect();
    if omitted > 0 {
        notes.push(format!("{omitted} more {kind} annotations omitted"));
    }
    notes
}

/// A number as Prometheus writes it in texts: shortest digits, no exponent.
pub(crate) fn number_text(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() }
    } else {
        format!("{value}")
    }
}
