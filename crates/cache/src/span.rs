//! Stretches of time and sets of them: pure arithmetic.

/// A stretch of time from `start` to just before `end`, in whatever unit the clients of a cache agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First instant inside.
    pub start: i64,
    /// First instant behind.
    pub end: i64,
}

impl Span {
    /// From `start` to just before `end`.
    pub const fn new(start: i64, end: i64) -> Self {
        Self { start, end }
    }

    /// Whether no instant is inside.
    pub const fn is_empty(&self) -> bool {
        self.start >= self.end
    }

    /// How long it is; as a float, since it may exceed what an integer holds.
    pub fn length(&self) -> f64 {
        if self.is_empty() { 0.0 } else { self.end as f64 - self.start as f64 }
    }

    /// Whether the two share an instant.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Whether all of the other is inside.
    pub const fn contains(&self, other: &Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// What the two share; may be empty.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        Self { start: self.start.max(other.start), end: self.end.min(other.end) }
    }

    /// The smallest span that holds both.
    #[must_use]
    pub(crate) fn hull(&self, other: &Self) -> Self {
        Self { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// The indexes of those of sorted instants that are inside.
    pub(crate) fn indexes(&self, sorted: &[i64]) -> std::ops::Range<usize> {
        let start = sorted.partition_point(|instant| *instant < self.start);
        let end = sorted.partition_point(|instant| *instant < self.end);
        start..end.max(start)
    }
}

/// Instants, kept as sorted spans that neither overlap nor touch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SpanSet(Vec<Span>);

impl SpanSet {
    pub(crate) fn from_span(span: Span) -> Self {
        Self(if span.is_empty() { Vec::new() } else { vec![span] })
    }

    pub(crate) fn spans(&self) -> &[Span] {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn insert(&mut self, span: Span) {
        if span.is_empty() {
            return;
        }
        let first = self.0.partition_point(|known| known.end < span.start);
        let last = self.0.partition_point(|known| known.start <= span.end);
        let touched = self.0.get(first..last).unwrap_or_default();
        let merged = touched.iter().fold(span, |hull, known| hull.hull(known));
        self.0.splice(first..last, [merged]);
    }

    pub(crate) fn remove(&mut self, span: Span) {
        if span.is_empty() {
            return;
        }
        let first = self.0.partition_point(|known| known.end <= span.start);
        let last = self.0.partition_point(|known| known.start < span.end);
        if first >= last {
            return;
        }
        let touched = self.0.get(first..last).unwrap_or_default();
        let cut = |known: &Span| [Span::new(known.start, span.start), Span::new(span.end, known.end)];
        let is_left = |part: &Span| !part.is_empty();
        let kept: Vec<Span> =
            touched.iter().flat_map(|known| cut(known).map(|part| part.intersect(known))).filter(is_left).collect();
        self.0.splice(first..last, kept);
    }

    /// What both hold.
    pub(crate) fn intersect(&self, other: &Self) -> Self {
        let mut both = Self::default();
        for span in &other.0 {
            both.0.extend(self.within(*span));
        }
        both
    }

    /// The parts inside a span.
    pub(crate) fn within(&self, span: Span) -> impl Iterator<Item = Span> {
        let first = self.0.partition_point(|known| known.end <= span.start);
        let inside = self.0.get(first..).unwrap_or_default().iter();
        inside.map(move |known| known.intersect(&span)).take_while(|part| !part.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sets_of_spans_are_sets_of_instants(
            steps in prop::collection::vec((any::<bool>(), 0i64..40, 0i64..12), 0..30),
            window in (0i64..40, 0i64..40),
        ) {
            let (mut set, mut other) = (SpanSet::default(), SpanSet::default());
            let (mut plain, mut plain_other) = (BTreeSet::new(), BTreeSet::new());
            for (add, start, length) in steps {
                let span = Span::new(start, start + length);
                if add {
                    set.insert(span);
                    plain.extend(start..start + length);
                } else {
                    set.remove(span);
                    plain.retain(|instant| !(start..start + length).contains(instant));
                    other.insert(span);
                    plain_other.extend(start..start + length);
                }
            }
            let instants = |set: &SpanSet| set.0.iter().flat_map(|span| span.start..span.end).collect::<Vec<_>>();
            prop_assert_eq!(instants(&set), plain.iter().copied().collect::<Vec<_>>());
            prop_assert!(set.0.windows(2).all(|pair| pair[0].end < pair[1].start));
            let both: Vec<i64> = plain.intersection(&plain_other).copied().collect();
            prop_assert_eq!(instants(&set.intersect(&other)), both);
            let window = Span::new(window.0, window.1);
            let inside: Vec<i64> = set.within(window).flat_map(|span| span.start..span.end).collect();
            let expected = plain.iter().copied().filter(|instant| window.start <= *instant && *instant < window.end);
            prop_assert_eq!(inside, expected.collect::<Vec<_>>());
        }
    }
}
