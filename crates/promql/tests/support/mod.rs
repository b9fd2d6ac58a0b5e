//! A source in memory.

use std::collections::BTreeMap;

use model::{Labels, MatchOp, Matcher};
use query::{Budget, QueryError, Selection, Series, Source};

/// Series by their labels.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    /// Samples in order of time.
    pub(crate) series: BTreeMap<Labels, Vec<(i64, f64)>>,
}

impl Source for Memory {
    fn select(&self, selection: &Selection<'_>, budget: &Budget) -> Result<Vec<Series>, QueryError> {
        let regexes: Vec<Option<regex::Regex>> = selection.matchers.iter().map(regex_of).collect();
        let mut found = Vec::new();
        for (labels, samples) in &self.series {
            if !selection.matchers.iter().zip(&regexes).all(|(matcher, regex)| holds(matcher, regex.as_ref(), labels)) {
                continue;
            }
            let inside = selection.start_ms..=selection.end_ms;
            let (timestamps_ms, values): (Vec<i64>, Vec<f64>) =
                samples.iter().copied().filter(|(time_ms, _)| inside.contains(time_ms)).unzip();
            if !values.is_empty() {
                budget.take(values.len())?;
                found.push(Series { labels: labels.clone(), timestamps_ms, values, histograms: Vec::new() });
            }
        }
        // A source promises no order.
        found.reverse();
        Ok(found)
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
