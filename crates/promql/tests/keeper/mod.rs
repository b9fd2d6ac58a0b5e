//! Keeps all expressions within others, cut into stretches: what is put together of them must be what is evaluated at once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use query::{Budget, QueryError};
use thalweg_promql::{
    Asked, Evaluated, Evaluation, Expression, Inner, InnerPart, Keeper, KeptInner, KeptRows, MadeInner, Settings,
    Stretch, evaluate_stretch,
};

use crate::support::Memory;

enum Portion {
    Rows(KeptRows),
    Stretch(Stretch),
}

impl KeptInner for Portion {
    fn rows(&self) -> Option<&KeptRows> {
        if let Self::Rows(rows) = self { Some(rows) } else { None }
    }

    fn stretch(&self) -> Option<&Stretch> {
        if let Self::Stretch(stretch) = self { Some(stretch) } else { None }
    }
}

type Stretches = BTreeMap<(i64, i64), Arc<Portion>>;

/// Cuts everything into stretches of so many steps, and gives some of those that it has.
struct Cutting {
    steps: i64,
    kept: RefCell<BTreeMap<(String, bool, i64), Stretches>>,
    /// Every so manieth stretch is given.
    gives: i64,
    given: Cell<usize>,
}

fn key(inner: &Inner) -> (String, bool, i64) {
    (inner.text.clone(), inner.is_rows, inner.step_ms)
}

impl Keeper for Cutting {
    fn find(&self, inner: &Inner) -> Result<Asked, QueryError> {
        let kept = self.kept.borrow();
        let (known, length_ms) = (kept.get(&key(inner)), self.steps * inner.step_ms);
        let (mut start_ms, end_ms) = inner.span_ms;
        let mut parts = Vec::new();
        while start_ms < end_ms {
            let span_ms = (start_ms, end_ms.min(start_ms + length_ms));
            let portion = known.and_then(|known| known.get(&span_ms)).cloned();
            let portion = portion.filter(|_| self.gives > 0 && parts.len() as i64 % self.gives == 0);
            self.given.set(self.given.get() + usize::from(portion.is_some()));
            parts.push(InnerPart { span_ms, kept: portion.map(|portion| portion as Arc<dyn KeptInner>) });
            start_ms = span_ms.1;
        }
        Ok(Asked::Parts(parts))
    }

    fn keep(&self, inner: &Inner, made: MadeInner, span_ms: (i64, i64)) {
        let portion = match made {
            // What is beside a stretch does not count.
            MadeInner::Rows(rows) => Portion::Rows(rows.between(span_ms.0, span_ms.1)),
            MadeInner::Stretch(stretch) => Portion::Stretch(stretch),
        };
        self.kept.borrow_mut().entry(key(inner)).or_default().insert(span_ms, Arc::new(portion));
    }

    fn refuse(&self, _: &Inner, is_too_large: bool) {
        assert!(!is_too_large);
    }

    fn bytes_max(&self) -> usize {
        usize::MAX
    }
}

/// Evaluates steps with all expressions within kept in stretches, some of which are given again, and compares. How many were given.
pub(crate) fn compare(expression: &Expression, memory: &Memory, times: (i64, i64, i64), settings: &Settings) -> usize {
    let budget = Budget::new(10_000_000);
    let shown = |keeper: Option<&dyn Keeper>| {
        let evaluation = Evaluation { source: memory, settings, budget: &budget, keeper };
        let shown = match evaluate_stretch(expression, times, &evaluation) {
            Ok(Evaluated::Stretch(stretch)) => {
                format!("by steps {:?}", Stretch::answer(&[(&stretch, i64::MIN, i64::MAX)]))
            }
            Ok(Evaluated::Whole(answer)) => format!("{answer:?}"),
            // Which of several mistakes is met first is nobody's promise.
            Err(_) => "fails".to_owned(),
        };
        assert_eq!(budget.samples(), 0, "all samples are given back: {}", expression.text());
        shown
    };
    let expected = shown(None);
    let mut given = 0;
    for steps in [1, 2, 100] {
        let mut keeper = Cutting { steps, kept: RefCell::default(), gives: 0, given: Cell::new(0) };
        for gives in [0, 2, 1] {
            keeper.gives = gives;
            assert_eq!(shown(Some(&keeper)), expected, "{} in {steps} steps", expression.text());
        }
        given += keeper.given.get();
    }
    given
}
