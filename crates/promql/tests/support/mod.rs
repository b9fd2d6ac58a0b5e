//! A source in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Labels, MatchOp, Matcher, NativeHistogram};
use query::{Budget, QueryError, Selection, Series, Source, TextSample, TextSeries, TextSink, scan_without_texts};

/// Series by their labels.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    /// Samples in order of time.
    pub(crate) series: BTreeMap<Labels, Vec<(i64, f64)>>,
    /// Histograms in order of time.
    pub(crate) histograms: BTreeMap<Labels, Vec<(i64, NativeHistogram)>>,
    /// Texts in order of time, of series that are not among the others.
    pub(crate) texts: BTreeMap<Labels, Vec<(i64, TextSample)>>,
}

impl Source for Memory {
    fn select(&self, selection: &Selection<'_>, budget: &Budget) -> Result<Vec<Series>, QueryError> {
        let regexes: Vec<Option<regex::Regex>> = selection.matchers.iter().map(regex_of).collect();
        let mut found: BTreeMap<Labels, Series> = BTreeMap::new();
        let matches = |labels: &Labels| {
            selection.matchers.iter().zip(&regexes).all(|(matcher, regex)| holds(matcher, regex.as_ref(), labels))
        };
        let inside = selection.start_ms..=selection.end_ms;
        let empty = |labels: &Labels| Series { labels: labels.clone(), ..Series::empty() };
        for (labels, samples) in self.series.iter().filter(|(labels, _)| matches(labels)) {
            let series = found.entry(labels.clone()).or_insert_with(|| empty(labels));
            let samples = samples.iter().copied().filter(|(time_ms, _)| inside.contains(time_ms));
            let (timestamps_ms, values): (Vec<i64>, _) = samples.unzip();
            (series.timestamps_ms, series.values) = (Arc::new(timestamps_ms), values);
        }
        for (labels, samples) in self.histograms.iter().filter(|(labels, _)| matches(labels)) {
            let series = found.entry(labels.clone()).or_insert_with(|| empty(labels));
            series.histograms = samples.iter().filter(|(time_ms, _)| inside.contains(time_ms)).cloned().collect();
        }
        // A source promises no order.
        let mut found: Vec<Series> = found.into_values().filter(|series| series.samples() > 0).collect();
        budget.take(found.iter().map(Series::samples).sum())?;
        found.reverse();
        Ok(found)
    }

    fn scan_texts(&self, selection: &Selection<'_>, budget: &Budget, sink: &dyn TextSink) -> Result<(), QueryError> {
        let regexes: Vec<Option<regex::Regex>> = selection.matchers.iter().map(regex_of).collect();
        let inside = selection.start_ms..=selection.end_ms;
        for (labels, samples) in &self.texts {
            let mut holding = selection.matchers.iter().zip(&regexes);
            if holding.all(|(matcher, regex)| holds(matcher, regex.as_ref(), labels)) {
                let samples = samples.iter().filter(|(time_ms, _)| inside.contains(time_ms)).cloned().collect();
                let series = TextSeries { labels: labels.clone(), samples, is_folded: false };
                budget.take(series.samples())?;
                sink.take(series)?;
            }
        }
        scan_without_texts(self, selection, budget, sink)
    }
}

fn regex_of(matcher: &Matcher) -> Option<regex::Regex> {
    matches!(matcher.op, MatchOp::Regex | MatchOp::NotRegex)
        .then(|| regex::Regex::new(&format!("^(?s:{})$", matcher.value)).unwrap())
}

fn holds(matcher: &Matcher, regex: Option<&regex::Regex>, labels: &Labels) -> bool {
    let value = labels.get(&matcher.name).unwrap_or_default();
    match matcher.op {
        MatchOp::Equal => value == matcher.value,
        MatchOp::NotEqual => value != matcher.value,
        MatchOp::Regex => regex.unwrap().is_match(value),
        MatchOp::NotRegex => !regex.unwrap().is_match(value),
    }
}
