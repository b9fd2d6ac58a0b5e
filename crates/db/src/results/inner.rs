//! Expressions within others: the `rate` that several panels sum up, and sums within larger expressions.
//!
//! Rows of a `rate` take as much memory as the samples that they are made of, so they are worth it only if somebody else asks for them: what an
//! expression yields is kept once it was asked for under a second one around it, and on whichever grid from there on. What is larger than an
//! eighth of the memory for answers is not kept at all. An aggregation is found, too, if somebody asked for it as a whole.
//!
//! A query that needs what another one evaluates at the same time waits for it a little (`flights.rs`).
//!
//! What is kept is held against the journal as answers are, for the selectors of the inner expression and for what its own steps look at. It is
//! stamped with the snapshot of the query around it, which was taken before that read anything.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use cache::{Key, Span};
use parking_lot::Mutex;
use promql::{
    CachedRows, CachedSubexpression, EvaluatedSubexpression, PartialRange, StepSpan, Subexpression, SubexpressionCache,
    SubexpressionLookup, SubexpressionPart,
};
use query::QueryError;

use super::flights::{Flights, Number};
use super::range::{Grid, Part, check, holes};
use super::watch::Watch;
use super::{Portions, ResultCache, Run, key_of_text, settings_of};

/// Expressions of which it is known under which others they were asked for.
const KNOWN_MAX: usize = 4096;
/// What one stretch may take of the memory for answers: one part of so many.
const STRETCH_SHARE: usize = 8;
/// How often a query looks, every 10 ms, whether another one has evaluated what it needs: for several times as long as the `rate` of a thousand
/// series takes.
const LOOKS_MAX: u32 = 50;

/// What is known of an expression, on any grid.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// What was around it when it was asked for first.
    outer: Key,
    /// Whether it was asked for under something else since.
    is_shared: bool,
    /// So many steps of it, and more, are not kept.
    refused_steps: u64,
    /// When it was asked for last.
    asked: u64,
}

/// Which expressions are worth keeping.
#[derive(Debug, Default)]
struct Knowledge {
    by_key: HashMap<Key, Known>,
    asked: u64,
}

/// The same, for all queries, and what they evaluate just now.
#[derive(Debug, Default)]
pub(crate) struct Inners {
    known: Mutex<Knowledge>,
    flights: Flights,
}

/// What there is of an expression, and what is missing.
type Looked = (Vec<Part>, Vec<Span>);

/// What is to be done with an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Worth {
    /// It was asked for under one other expression alone.
    Unshared,
    /// Keep it.
    Shared,
    /// So many of its steps are too many.
    TooLarge,
    /// It can never be kept.
    Never,
}

impl Knowledge {
    /// Says that so many steps of an expression are asked for under another one.
    fn ask(&mut self, key: Key, outer: Key, steps: u64) -> Worth {
        self.asked += 1;
        let asked = self.asked;
        if self.by_key.len() >= KNOWN_MAX && !self.by_key.contains_key(&key) {
            self.forget();
        }
        let new = Known { outer, is_shared: false, refused_steps: u64::MAX, asked };
        let known = self.by_key.entry(key).or_insert(new);
        known.asked = asked;
        known.is_shared |= known.outer != outer;
        match known.refused_steps {
            ..=1 => Worth::Never,
            refused if refused <= steps => Worth::TooLarge,
            _ if known.is_shared => Worth::Shared,
            _ => Worth::Unshared,
        }
    }

    /// Forgets half of what is known: that which was asked for longest ago.
    fn forget(&mut self) {
        let mut asked: Vec<u64> = self.by_key.values().map(|known| known.asked).collect();
        asked.sort_unstable();
        let oldest = asked.get(asked.len() / 2).copied().unwrap_or_default();
        self.by_key.retain(|_, known| known.asked > oldest);
    }

    fn refuse(&mut self, key: Key, steps: u64) {
        if let Some(known) = self.by_key.get_mut(&key) {
            known.refused_steps = known.refused_steps.min(steps);
        }
    }
}

impl Inners {
    pub(crate) fn clear(&self) {
        *self.known.lock() = Knowledge::default();
    }
}

/// Keeps expressions within one query's.
pub(super) struct InnerKeeper<'a> {
    results: &'a ResultCache,
    run: &'a Run<'a>,
    database: u32,
    /// The query's own answer.
    query: Key,
    /// The query, on any grid.
    outer: Key,
    snapshot: u64,
    /// The query among those that evaluate something just now.
    number: Number,
    /// Steps of expressions that were asked for and are worth keeping, and those of them that were kept.
    used: Cell<(u64, u64)>,
}

impl CachedSubexpression for Portions {
    fn rows(&self) -> Option<&CachedRows> {
        if let Self::Rows(rows) = self { Some(rows) } else { None }
    }

    fn partial_range(&self) -> Option<&PartialRange> {
        // Notes say where in their own text they belong.
        if let Self::Steps(stretch) = self { Some(stretch).filter(|stretch| stretch.infos.is_empty()) } else { None }
    }
}

impl<'a> InnerKeeper<'a> {
    pub(super) fn new(
        results: &'a ResultCache,
        run: &'a Run<'a>,
        (database, query): (u32, Key),
        snapshot: u64,
    ) -> Self {
        let outer = key_of_text(database, "query", &settings_of(run.settings), run.expression.text());
        let number = results.inners.flights.number();
        Self { results, run, database, query, outer, snapshot, number, used: Cell::default() }
    }

    /// Steps of inner expressions that were worth keeping, and those of them that were kept.
    pub(super) const fn used(&self) -> (u64, u64) {
        self.used.get()
    }

    fn key(&self, when: &str, text: &str) -> Key {
        key_of_text(self.database, when, &settings_of(self.run.settings), text)
    }

    /// Answers by steps are found under the key of the query that asks for them as a whole.
    fn key_on_grid(&self, inner: &Subexpression) -> Key {
        let grid = grid_of(inner).when();
        let when = if inner.is_rows { format!("rows {grid}") } else { grid };
        self.key(&when, &inner.text)
    }

    fn key_on_any_grid(&self, inner: &Subexpression) -> Key {
        self.key("within", &inner.text)
    }

    /// What of an expression is in memory and still holds, and what is not; nothing if it is not to be looked for.
    fn kept(&self, inner: &Subexpression, (key, grid): (Key, Grid), worth: Worth) -> Option<Looked> {
        let kept = self.results.memory.kept(key, grid.span);
        let is_usable = |portion: &Portions| portion.rows().is_some() || portion.partial_range().is_some();
        let kept: Vec<_> = kept.into_iter().filter(|kept| is_usable(&kept.answer)).collect();
        match worth {
            Worth::Never => return None,
            Worth::TooLarge | Worth::Unshared if kept.is_empty() => return None,
            _ => {}
        }
        let selectors = inner.selectors.clone();
        let mut watch = Watch::new(self.run.store, self.database, selectors, inner.reads);
        let checked = check(kept, &mut watch, grid);
        let mut parts: Vec<Part> = Vec::new();
        for (kept, holds) in &checked {
            let inside = holds.iter().map(|part| part.intersect(&grid.span)).filter(|part| !part.is_empty());
            parts.extend(inside.map(|part| (kept.answer.clone(), part)));
        }
        self.results.memory.renew(key, &checked, watch.through());
        let holes = holes(&mut parts, grid.span);
        Some((parts, holes))
    }

    /// Waits for whoever evaluates some of what is missing. Whether there was anybody.
    fn wait_for_others(&self, key: Key, holes: &[Span]) -> Result<bool, QueryError> {
        let Some(hull) = hull(holes) else { return Ok(false) };
        let check = || self.run.budget.check();
        self.results.inners.flights.wait(self.number, (key, hull), LOOKS_MAX, &check)
    }
}

impl Drop for InnerKeeper<'_> {
    fn drop(&mut self) {
        self.results.inners.flights.end(self.number);
    }
}

impl SubexpressionCache for InnerKeeper<'_> {
    fn lookup(&self, inner: &Subexpression) -> Result<SubexpressionLookup, QueryError> {
        let key = self.key_on_grid(inner);
        if key == self.query {
            return Ok(SubexpressionLookup::NotCached);
        }
        let grid = grid_of(inner);
        let outer = inner.outer.as_ref().map_or(self.outer, |outer| self.key("within", outer));
        let worth = self.results.inners.known.lock().ask(self.key_on_any_grid(inner), outer, grid.steps(grid.span));
        let Some((mut parts, mut holes)) = self.kept(inner, (key, grid), worth) else {
            return Ok(if worth == Worth::Never {
                SubexpressionLookup::Uncacheable
            } else {
                SubexpressionLookup::NotCached
            });
        };
        if worth == Worth::Shared && self.wait_for_others(key, &holes)? {
            let found = self.kept(inner, (key, grid), worth);
            (parts, holes) = found.unwrap_or((parts, holes));
        }
        let (steps, missing) = (grid.steps(grid.span), holes.iter().map(|hole| grid.steps(*hole)).sum::<u64>());
        if worth != Worth::Shared && parts.is_empty() {
            return Ok(SubexpressionLookup::NotCached);
        }
        if let Some(hull) = hull(&holes) {
            self.results.inners.flights.begin(self.number, (key, hull), holes.len());
        }
        let (asked, found) = self.used.get();
        self.used.set((asked + steps, found + steps.saturating_sub(missing)));
        let steps_of = |span: Span| StepSpan { start_ms: span.start, end_ms: span.end };
        let of_cached = |(portion, span): Part| SubexpressionPart { span: steps_of(span), cached: Some(portion) };
        let of_hole = |hole: Span| SubexpressionPart { span: steps_of(hole), cached: None };
        let mut all: Vec<SubexpressionPart> = parts.into_iter().map(of_cached).collect();
        all.extend(holes.into_iter().map(of_hole));
        all.sort_by_key(|part| part.span);
        Ok(SubexpressionLookup::Parts(all))
    }

    fn insert(&self, inner: &Subexpression, evaluated: EvaluatedSubexpression, span: StepSpan) {
        let portion = match evaluated {
            EvaluatedSubexpression::Rows(rows) => Portions::Rows(rows),
            EvaluatedSubexpression::Partial(range) => Portions::Steps(range),
        };
        let key = self.key_on_grid(inner);
        self.results.keep(key, Arc::new(portion), Span::new(span.start_ms, span.end_ms), self.snapshot);
        self.results.inners.flights.end_one(self.number, key);
    }

    fn reject(&self, inner: &Subexpression, is_too_large: bool) {
        let grid = grid_of(inner);
        let steps = if is_too_large { grid.steps(grid.span).max(2) } else { 1 };
        self.results.inners.known.lock().refuse(self.key_on_any_grid(inner), steps);
        self.results.inners.flights.end_one(self.number, self.key_on_grid(inner));
    }

    fn bytes_max(&self) -> usize {
        self.results.memory.bytes_max() / STRETCH_SHARE
    }
}

/// From the first of sorted spans to the last.
fn hull(spans: &[Span]) -> Option<Span> {
    Some(Span::new(spans.first()?.start, spans.last()?.end))
}

fn grid_of(inner: &Subexpression) -> Grid {
    Grid { span: Span::new(inner.span.start_ms, inner.span.end_ms), step_ms: inner.step_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_under_two_expressions_is_shared() {
        let key = |text: &str| Key::of_statement(text);
        let mut known = Knowledge::default();
        assert_eq!(known.ask(key("rate"), key("a"), 100), Worth::Unshared);
        assert_eq!(known.ask(key("rate"), key("a"), 100), Worth::Unshared);
        assert_eq!(known.ask(key("rate"), key("b"), 100), Worth::Shared);
        assert_eq!(known.ask(key("rate"), key("a"), 100), Worth::Shared);
        known.refuse(key("rate"), 50);
        assert_eq!(known.ask(key("rate"), key("a"), 100), Worth::TooLarge);
        assert_eq!(known.ask(key("rate"), key("a"), 49), Worth::Shared);
        known.refuse(key("rate"), 1);
        assert_eq!(known.ask(key("rate"), key("a"), 1), Worth::Never);
    }

    #[test]
    fn what_was_asked_for_longest_ago_is_forgotten() {
        let key = |number: usize| Key::of_statement(&number.to_string());
        let mut known = Knowledge::default();
        for number in 0..KNOWN_MAX + 10 {
            known.ask(key(number), key(0), 1);
            assert!(known.by_key.len() <= KNOWN_MAX);
        }
        assert!(!known.by_key.contains_key(&key(0)) && known.by_key.contains_key(&key(KNOWN_MAX)));
    }
}
