//! Measures the steps of a query, for EXPLAIN ANALYZE.

use std::sync::{Mutex, PoisonError};

use crate::StepReport;

/// Collects what each step of an evaluation gave and took. Steps that work inside others are told apart: each step's time is without
/// theirs.
pub struct Trace<'c> {
    clock_ns: &'c (dyn Fn() -> i64 + Sync),
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of each step under way, the time that steps inside it took.
    inside_ns: Vec<i64>,
    steps: Vec<StepReport>,
}

impl State {
    fn took(&mut self, elapsed_ns: i64) {
        if let Some(inside_ns) = self.inside_ns.last_mut() {
            *inside_ns += elapsed_ns;
        }
    }
}

impl<'c> Trace<'c> {
    /// With a clock that goes forward, in nanoseconds.
    pub const fn new(clock_ns: &'c (dyn Fn() -> i64 + Sync)) -> Self {
        Self { clock_ns, state: Mutex::new(State { inside_ns: Vec::new(), steps: Vec::new() }) }
    }

    /// The clock's time in nanoseconds.
    pub fn now_ns(&self) -> i64 {
        (self.clock_ns)()
    }

    /// A step begins; the time at which it does, for [`Trace::end`].
    pub fn begin(&self) -> i64 {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).inside_ns.push(0);
        self.now_ns()
    }

    /// The step that began last ends, with so many series and rows. Without a name it is not reported: its own time counts for the step
    /// around it.
    pub fn end(&self, started_ns: i64, step: Option<&'static str>, series: usize, rows: usize) {
        let total_ns = self.now_ns() - started_ns;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let inside_ns = state.inside_ns.pop().unwrap_or_default();
        match step {
            Some(step) => {
                state.steps.push(StepReport { step, series, rows, elapsed_ns: total_ns - inside_ns });
                state.took(total_ns);
            }
            None => state.took(inside_ns),
        }
    }

    /// A step that was timed elsewhere, inside the one that began last.
    pub fn add(&self, report: StepReport) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.took(report.elapsed_ns);
        state.steps.push(report);
    }

    /// The steps, in the order in which they ended.
    pub fn into_steps(self) -> Vec<StepReport> {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).steps
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[test]
    fn time_of_a_step_is_without_that_of_steps_inside() {
        let now_ns = AtomicI64::new(0);
        let clock_ns = || now_ns.load(Ordering::Relaxed);
        let pass = |ns: i64| {
            now_ns.fetch_add(ns, Ordering::Relaxed);
        };
        let trace = Trace::new(&clock_ns);
        let outer = trace.begin();
        pass(1);
        let unnamed = trace.begin();
        pass(10);
        let inner = trace.begin();
        pass(100);
        trace.add(StepReport { step: "scan", series: 3, rows: 30, elapsed_ns: 60 });
        trace.end(inner, Some("rate"), 2, 20);
        trace.end(unnamed, None, 0, 0);
        trace.end(outer, Some("sum"), 1, 10);
        let found: Vec<_> = trace.into_steps().into_iter().map(|step| (step.step, step.elapsed_ns)).collect();
        assert_eq!(found, [("scan", 60), ("rate", 40), ("sum", 11)]);
    }
}
