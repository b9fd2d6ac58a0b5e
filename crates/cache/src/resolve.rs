//! Which of several intervals answers for an instant: pure.

use crate::Span;
use crate::slab::CachedInterval;
use crate::span::SpanSet;

/// A span whose intervals up to a sequence were deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hidden {
    pub(crate) span: Span,
    pub(crate) sequence: u64,
}

/// Cuts the wanted span into parts and says which interval answers for each, by its place in the list: the one that was set last and
/// that no later delete hides. Returns the parts by time, and what no interval answers for.
pub(crate) fn resolve(intervals: &[CachedInterval], wanted: Span, hidden: &[Hidden]) -> (Vec<(Span, usize)>, SpanSet) {
    let mut missing = SpanSet::from_span(wanted);
    let mut newest: Vec<usize> = (0..intervals.len()).collect();
    newest.sort_by_key(|place| std::cmp::Reverse(intervals.get(*place).map(|interval| interval.sequence)));
    let mut parts = Vec::new();
    for place in newest {
        let Some(interval) = intervals.get(place).filter(|interval| interval.span.overlaps(&wanted)) else {
            continue;
        };
        let mut shown = SpanSet::from_span(interval.span);
        hidden
            .iter()
            .filter(|hidden| hidden.sequence >= interval.sequence)
            .for_each(|hidden| shown.remove(hidden.span));
        for part in missing.intersect(&shown).spans() {
            parts.push((*part, place));
            missing.remove(*part);
        }
    }
    parts.sort_unstable();
    (parts, missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Intervals and deletes as start, end and sequence.
    fn check(
        intervals: &[(i64, i64, u64)],
        hidden: &[(i64, i64, u64)],
        expected: &[(i64, i64, usize)],
        missing: &[(i64, i64)],
    ) {
        let interval = |(start, end, sequence): &(i64, i64, u64)| CachedInterval {
            span: Span::new(*start, *end),
            sequence: *sequence,
            stamp: 0,
            fields: 1,
        };
        let intervals: Vec<CachedInterval> = intervals.iter().map(interval).collect();
        let hide =
            |(start, end, sequence): &(i64, i64, u64)| Hidden { span: Span::new(*start, *end), sequence: *sequence };
        let hidden: Vec<Hidden> = hidden.iter().map(hide).collect();
        let (parts, left) = resolve(&intervals, Span::new(0, 100), &hidden);
        let parts: Vec<_> = parts.iter().map(|(span, place)| (span.start, span.end, *place)).collect();
        assert_eq!(parts, expected);
        assert_eq!(left.spans().iter().map(|span| (span.start, span.end)).collect::<Vec<_>>(), missing);
    }

    #[test]
    fn the_newest_that_is_not_deleted_answers() {
        check(&[(0, 100, 1)], &[], &[(0, 100, 0)], &[]);
        check(&[(0, 60, 1), (40, 100, 2)], &[], &[(0, 40, 0), (40, 100, 1)], &[]);
        check(&[(40, 100, 2), (0, 60, 3)], &[], &[(0, 60, 1), (60, 100, 0)], &[]);
        check(&[(0, 100, 1)], &[(20, 30, 1)], &[(0, 20, 0), (30, 100, 0)], &[(20, 30)]);
        check(&[(0, 100, 2)], &[(20, 30, 1)], &[(0, 100, 0)], &[]);
        check(&[(0, 100, 1), (20, 25, 3)], &[(20, 30, 2)], &[(0, 20, 0), (20, 25, 1), (30, 100, 0)], &[(25, 30)]);
        check(&[], &[], &[], &[(0, 100)]);
    }
}
