//! A cache of all subexpressions, cut into parts: results joined from its parts must be those of one evaluation.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use query::{Budget, QueryError};
use thalweg_promql::{
    CachedRows, CachedSubexpression, EvaluatedSubexpression, Evaluation, EvaluationSettings, Expression, PartialRange,
    PartialRangeSlice, QueryTimes, RangeOutcome, StepSpan, Subexpression, SubexpressionCache, SubexpressionLookup,
    SubexpressionPart, evaluate_partial_range,
};

use crate::support::Memory;

enum Entry {
    Rows(CachedRows),
    Partial(PartialRange),
}

impl CachedSubexpression for Entry {
    fn rows(&self) -> Option<&CachedRows> {
        if let Self::Rows(rows) = self { Some(rows) } else { None }
    }

    fn partial_range(&self) -> Option<&PartialRange> {
        if let Self::Partial(partial) = self { Some(partial) } else { None }
    }
}

type Entries = BTreeMap<StepSpan, Arc<Entry>>;

/// Cuts everything into parts of so many steps, and returns some of those that it has.
struct CuttingCache {
    steps: i64,
    entries: RefCell<BTreeMap<(String, bool, i64), Entries>>,
    /// Returns one of so many parts; 0: none.
    returns: i64,
    returned: Cell<usize>,
}

fn key(subexpression: &Subexpression) -> (String, bool, i64) {
    (subexpression.text.clone(), subexpression.is_rows, subexpression.step_ms)
}

impl SubexpressionCache for CuttingCache {
    fn lookup(&self, subexpression: &Subexpression) -> Result<SubexpressionLookup, QueryError> {
        let entries = self.entries.borrow();
        let (known, length_ms) = (entries.get(&key(subexpression)), self.steps * subexpression.step_ms);
        let StepSpan { mut start_ms, end_ms } = subexpression.span;
        let mut parts = Vec::new();
        while start_ms < end_ms {
            let span = StepSpan { start_ms, end_ms: end_ms.min(start_ms + length_ms) };
            let entry = known.and_then(|known| known.get(&span)).cloned();
            let entry = entry.filter(|_| self.returns > 0 && parts.len() as i64 % self.returns == 0);
            self.returned.set(self.returned.get() + usize::from(entry.is_some()));
            parts.push(SubexpressionPart { span, cached: entry.map(|entry| entry as Arc<dyn CachedSubexpression>) });
            start_ms = span.end_ms;
        }
        Ok(SubexpressionLookup::Parts(parts))
    }

    fn insert(&self, subexpression: &Subexpression, evaluated: EvaluatedSubexpression, span: StepSpan) {
        let entry = match evaluated {
            // Steps outside of the span do not count.
            EvaluatedSubexpression::Rows(rows) => Entry::Rows(rows.between(span)),
            EvaluatedSubexpression::Partial(partial) => Entry::Partial(partial),
        };
        self.entries.borrow_mut().entry(key(subexpression)).or_default().insert(span, Arc::new(entry));
    }

    fn reject(&self, _: &Subexpression, is_too_large: bool) {
        assert!(!is_too_large);
    }

    fn bytes_max(&self) -> usize {
        usize::MAX
    }
}

/// Evaluates steps with all subexpressions cached in parts, some of which are returned, and compares. Returns how many were.
pub(crate) fn compare(
    expression: &Expression,
    memory: &Memory,
    times: QueryTimes,
    settings: &EvaluationSettings,
) -> usize {
    let budget = Budget::new(10_000_000);
    let shown = |subexpressions: Option<&dyn SubexpressionCache>| {
        let evaluation = Evaluation { source: memory, settings, budget: &budget, subexpressions };
        let shown = match evaluate_partial_range(expression, times, &evaluation) {
            Ok(RangeOutcome::Partial(range)) => {
                let slice = PartialRangeSlice { range: &range, first_ms: i64::MIN, last_ms: i64::MAX };
                format!("by steps {:?}", PartialRange::result(&[slice]))
            }
            Ok(RangeOutcome::Whole(result)) => format!("{result:?}"),
            // Which of several mistakes is met first is not specified.
            Err(_) => "fails".to_owned(),
        };
        assert_eq!(budget.samples(), 0, "all samples are given back: {}", expression.text());
        shown
    };
    let expected = shown(None);
    let mut returned = 0;
    for steps in [1, 2, 100] {
        let mut cache = CuttingCache { steps, entries: RefCell::default(), returns: 0, returned: Cell::new(0) };
        for returns in [0, 2, 1] {
            cache.returns = returns;
            assert_eq!(shown(Some(&cache)), expected, "{} in {steps} steps", expression.text());
        }
        returned += cache.returned.get();
    }
    returned
}
