//! Whether what was kept still holds: the store's journal against what steps look at.

use std::collections::HashMap;
use std::sync::Arc;

use cache::Span;
use index::CompiledMatcher;
use model::Matcher;
use promql::{Expression, ReadInterval};
use store::{Change, ChangeKind, Changes, Store};

const NS_PER_MS: i64 = 1_000_000;

/// Looks after the answers of one expression.
pub(crate) struct Watch<'a> {
    store: &'a Store,
    database: u32,
    /// The matchers of each selector.
    selectors: Vec<Vec<Matcher>>,
    /// The selectors compiled for the store, once something changed that they may select: to compile a pattern takes as long as to put
    /// together a small answer. `None` where that failed.
    compiled: Option<Vec<Option<Vec<CompiledMatcher>>>>,
    /// The interval that the step at time 0 reads.
    reads: ReadInterval,
    /// The changes since each snapshot; `None` if they are unknown.
    changes: HashMap<u64, Option<Arc<Changes>>>,
    /// Which changes touched series that the selectors choose, by their numbers.
    touching: HashMap<u64, bool>,
    /// Up to when what was said holds.
    through: u64,
}

impl<'a> Watch<'a> {
    /// For a selector's matchers each, and the time from before to behind a step that it looks at.
    pub(crate) fn new(store: &'a Store, database: u32, selectors: Vec<Vec<Matcher>>, reads: ReadInterval) -> Self {
        let (changes, touching) = (HashMap::new(), HashMap::new());
        Self { store, database, selectors, compiled: None, reads, changes, touching, through: u64::MAX }
    }

    /// For the selectors of an expression.
    pub(crate) fn of_expression(store: &'a Store, database: u32, expression: &Expression, reads: ReadInterval) -> Self {
        let selectors = expression.selectors().into_iter().map(<[Matcher]>::to_vec).collect();
        Self::new(store, database, selectors, reads)
    }

    /// The snapshot up to which everything that was said holds.
    pub(crate) const fn through(&self) -> u64 {
        if self.through == u64::MAX { 0 } else { self.through }
    }

    /// The parts of a span of steps, by their milliseconds, with a stamp for which nothing has changed. Their edges need not lie on the grid.
    pub(crate) fn unchanged(&mut self, span: Span, stamp: u64) -> Vec<Span> {
        let reads = self.reads;
        self.left(span, stamp, &|start_ns, end_ns| steps_looking_at(reads, start_ns, end_ns))
    }

    /// The unchanged parts of a span of nanoseconds, each of which stands for itself.
    pub(crate) fn unchanged_ns(&mut self, span: Span, stamp: u64) -> Vec<Span> {
        self.left(span, stamp, &|start_ns, end_ns| Span::new(start_ns, end_ns.saturating_add(1)))
    }

    /// The rest of a span without the steps that look at changed nanoseconds, from the first to the last of them.
    fn left(&mut self, span: Span, stamp: u64, looking_at: &dyn Fn(i64, i64) -> Span) -> Vec<Span> {
        let Some(changes) = self.changes_since(stamp) else { return Vec::new() };
        let mut left = vec![span];
        if let Some(edge_ns) = changes.edge_ns {
            cut(&mut left, looking_at(edge_ns, i64::MAX));
        }
        let oldest_ns = self.store.oldest_retained_ns(self.database);
        if oldest_ns > i64::MIN {
            // Steps that look at the time at which rows end, too.
            cut(&mut left, looking_at(i64::MIN, oldest_ns));
        }
        for change in &changes.behind {
            let out = looking_at(change.range.start_ns, change.range.end_ns);
            if left.iter().any(|part| part.overlaps(&out)) && self.touches(change) {
                cut(&mut left, out);
            }
        }
        left
    }

    /// From when on, not before a time, anything may be different than at a stamp: `i64::MAX` if nothing is, `None` if that is unknown.
    pub(crate) fn changed_from_ns(&mut self, stamp: u64, from_ns: i64) -> Option<i64> {
        let changes = self.changes_since(stamp)?;
        let mut first_ns = changes.edge_ns.unwrap_or(i64::MAX);
        for change in &changes.behind {
            if change.range.end_ns >= from_ns && change.range.start_ns < first_ns && self.touches(change) {
                first_ns = change.range.start_ns;
            }
        }
        Some(first_ns.max(from_ns))
    }

    fn changes_since(&mut self, stamp: u64) -> Option<Arc<Changes>> {
        let (store, through) = (self.store, &mut self.through);
        let changes = self.changes.entry(stamp).or_insert_with(|| {
            let changes = store.journal().since(stamp).ok()?;
            *through = (*through).min(changes.through);
            Some(Arc::new(changes))
        });
        changes.clone()
    }

    /// Returns whether a change may be one of series that the selectors choose.
    fn touches(&mut self, change: &Change) -> bool {
        if change.database.is_some_and(|database| database != self.database) {
            return false;
        }
        // What was deleted may have left the index: only of rows that came it is sure that their groups are there.
        let (ChangeKind::LateRows, Some(groups)) = (change.kind, &change.groups) else { return true };
        let (store, database, selectors) = (self.store, self.database, &self.selectors);
        let compiled =
            &*self.compiled.get_or_insert_with(|| selectors.iter().map(|of| index::compile(of).ok()).collect());
        *self.touching.entry(change.sequence).or_insert_with(|| {
            // What cannot be read is said to be touched: evaluating it will say why.
            let chosen = |matchers: &Option<Vec<CompiledMatcher>>| {
                let chosen = matchers.as_ref().map(|of| store.selects_any(database, of, change.shard, groups));
                chosen.is_none_or(|chosen| chosen.unwrap_or(true))
            };
            compiled.iter().any(chosen)
        })
    }
}

/// The times, in milliseconds, of steps that look at any of the nanoseconds from the first to the last.
pub(super) fn steps_looking_at(reads: ReadInterval, first_ns: i64, last_ns: i64) -> Span {
    let millisecond = |time_ns: i64| time_ns.div_euclid(NS_PER_MS);
    let start = if first_ns == i64::MIN { i64::MIN } else { millisecond(first_ns).saturating_sub(reads.last_ms) };
    let end = millisecond(last_ns).saturating_sub(reads.first_ms).saturating_add(1);
    Span::new(start, if last_ns == i64::MAX { i64::MAX } else { end })
}

/// Takes a span out of others.
pub(crate) fn cut(spans: &mut Vec<Span>, out: Span) {
    if out.is_empty() || !spans.iter().any(|span| span.overlaps(&out)) {
        return;
    }
    let sides = [Span::new(i64::MIN, out.start), Span::new(out.end, i64::MAX)];
    let left = spans.iter().flat_map(|span| sides.iter().map(|side| span.intersect(side)));
    *spans = left.filter(|span| !span.is_empty()).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_look_at_their_windows() {
        let check = |reads: (i64, i64), changed_ns: (i64, i64), expected: (i64, i64)| {
            let reads = ReadInterval { first_ms: reads.0, last_ms: reads.1 };
            let span = steps_looking_at(reads, changed_ns.0, changed_ns.1);
            assert_eq!((span.start, span.end), expected, "{reads:?} {changed_ns:?}");
        };
        check((-300, 0), (1_000_000_000, 1_000_000_000), (1000, 1301));
        check((-300, 0), (1_000_999_999, 1_001_000_000), (1000, 1302));
        check((-300, -100), (1_000_000_000, 1_000_000_000), (1100, 1301));
        check((100, 300), (1_000_000_000, 1_000_000_000), (700, 901));
        check((-300, 0), (i64::MIN, 5_000_000), (i64::MIN, 306));
        check((-300, 0), (5_000_000, i64::MAX), (5, i64::MAX));
        check((-300, 0), (-1, -1), (-1, 300));
    }

    #[test]
    fn spans_are_cut() {
        let mut spans = vec![Span::new(0, 10), Span::new(20, 30)];
        cut(&mut spans, Span::new(8, 22));
        cut(&mut spans, Span::new(24, 25));
        cut(&mut spans, Span::new(5, 5));
        assert_eq!(spans, [Span::new(0, 8), Span::new(22, 24), Span::new(25, 30)]);
    }
}
