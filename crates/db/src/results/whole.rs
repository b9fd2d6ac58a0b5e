//! Answers that are kept as a whole: those of instant queries, and those whose steps do not stand for themselves.

use std::sync::Arc;

use cache::Span;
use promql::{EvaluationResult, QueryTimes, ResultValue, SeriesPoints};
use query::QueryError;

use super::validity::Watch;
use super::{CacheUse, Portions, ResultCache, Run, key_of};

/// Stands for the whole of an answer.
const WHOLE: Span = Span::new(0, 1);

impl ResultCache {
    /// The answer of an instant query.
    pub(crate) fn instant(&self, run: &Run<'_>, time_ms: i64) -> Result<(EvaluationResult, CacheUse), QueryError> {
        self.whole(run, QueryTimes::instant(time_ms), 1, &|| {
            promql::evaluate_instant(run.expression, time_ms, &run.evaluation())
        })
    }

    /// The answer of a range query that cannot be cut by steps.
    pub(super) fn whole_range(
        &self,
        run: &Run<'_>,
        times: QueryTimes,
        steps: u64,
    ) -> Result<(EvaluationResult, CacheUse), QueryError> {
        self.whole(run, times, steps, &|| promql::evaluate_range(run.expression, times, &run.evaluation()))
    }

    fn whole(
        &self,
        run: &Run<'_>,
        times: QueryTimes,
        steps: u64,
        evaluate: &dyn Fn() -> Result<EvaluationResult, QueryError>,
    ) -> Result<(EvaluationResult, CacheUse), QueryError> {
        let mut used = CacheUse { steps, ..CacheUse::default() };
        let reads = run.expression.read_interval(times, run.settings);
        let (Some(reads), Some(database)) = (reads, run.store.database_number(run.database)) else {
            return Ok((evaluate()?, used));
        };
        if !run.source.unstored_ranges().is_empty() {
            // No change of what is computed is in the journal.
            return Ok((evaluate()?, used));
        }
        let QueryTimes { start_ms, end_ms, step_ms } = times;
        let key = key_of(database, &format!("whole {start_ms} {end_ms} {step_ms}"), run);
        // Before anything is read: what comes later has a larger number.
        let snapshot = run.store.journal().snapshot();
        let mut watch = Watch::of_expression(run.store, database, run.expression, reads);
        let kept = self.memory.entries(key, WHOLE);
        let checked: Vec<_> = kept
            .into_iter()
            .map(|kept| {
                let holds = watch.unchanged(kept.span, kept.stamp);
                (kept, holds)
            })
            .collect();
        self.memory.renew(key, &checked, watch.through());
        if let Some(answer) = checked.iter().find(|(_, holds)| holds == &[WHOLE]).and_then(|(kept, _)| answer_of(kept))
        {
            used.from_memory = steps;
            self.count(used);
            return Ok((answer, used));
        }
        self.counters.changed.fetch_add(checked.len() as u64 * steps, std::sync::atomic::Ordering::Relaxed);
        let answer = evaluate()?;
        self.insert(key, Portions::Whole(Arc::new(answer.clone())), WHOLE, snapshot);
        self.count(used);
        Ok((answer, used))
    }
}

fn answer_of(kept: &cache::CacheEntry<Portions>) -> Option<EvaluationResult> {
    match &*kept.answer {
        Portions::Whole(answer) => Some(EvaluationResult::clone(answer)),
        Portions::Steps(_) | Portions::Bins(_) => None,
    }
}

/// About as many bytes as an answer takes.
pub(super) fn size_bytes(answer: &EvaluationResult) -> usize {
    let notes = answer.warnings.iter().chain(&answer.infos).map(String::len).sum::<usize>();
    let values = match &answer.value {
        ResultValue::Scalar { .. } => 0,
        ResultValue::String { text, .. } => text.len(),
        ResultValue::Vector(samples) => samples
            .iter()
            .map(|sample| {
                let histogram = sample.histogram.as_ref().map_or(0, |histogram| histogram.size_bytes());
                size_of_val(sample) + sample.labels.packed_bytes() + histogram
            })
            .sum(),
        ResultValue::Matrix(series) => series
            .iter()
            .map(|(labels, SeriesPoints { floats, histograms })| {
                let bytes_of_histograms: usize = histograms.iter().map(|(_, histogram)| histogram.size_bytes()).sum();
                labels.packed_bytes()
                    + size_of_val(floats.as_slice())
                    + size_of_val(histograms.as_slice())
                    + bytes_of_histograms
            })
            .sum(),
    };
    size_of::<EvaluationResult>() + notes + values
}
