//! The stretches of time that are cached for a key, packed: requests for short ranges leave many of them, each with few points.
//!
//! They lie in chunks by time. A chunk says where it starts and how dense its stretches are together; what is left to say of a stretch is
//! how far behind the one before it starts, how long it is, both in the largest unit that all of the chunk are multiples of, and its stamp
//! where it has another one. A change unpacks the chunks that it touches.

use codec::varint;

use super::packed::Packed;
use crate::Span;
use crate::span::SpanSet;

/// Stretches of a chunk; one with more becomes several.
const CHUNK_EXTENTS_MAX: usize = 64;
/// A chunk with fewer takes in its neighbour when it changes.
const CHUNK_EXTENTS_MIN: usize = 16;
/// From here on a length does not fit beside the bit that says whether a stamp follows.
const LENGTH_LIMIT: u64 = (1 << 62) - 1;

/// A stretch of time that is cached for a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Extent {
    pub(crate) span: Span,
    /// What the caller of `set` gave.
    pub(crate) stamp: u64,
    /// Bytes for each unit of time, to estimate what a request would read; that of stretches around it, too.
    pub(crate) density: f32,
}

/// Sorted stretches that do not overlap; neighbours with the same stamp do not touch.
#[derive(Debug, Default)]
pub(crate) struct Extents(Vec<Chunk>);

#[derive(Debug)]
struct Chunk {
    start: i64,
    density: f32,
    /// The unit as varint; for each stretch the distance from the one before as varint, then twice the length plus one if a stamp
    /// follows, which is the signed difference to the one before.
    bytes: Box<[u8]>,
}

impl Extents {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Extent> {
        self.0.iter().flat_map(Chunk::extents)
    }

    /// Those that share an instant with a span.
    pub(crate) fn within(&self, span: Span) -> impl Iterator<Item = Extent> {
        let first = self.0.partition_point(|chunk| chunk.start <= span.start).saturating_sub(1);
        let last = self.0.partition_point(|chunk| chunk.start < span.end).max(first);
        let chunks = self.0.get(first..last).unwrap_or_default();
        let extents = chunks.iter().flat_map(Chunk::extents);
        extents
            .skip_while(move |extent| extent.span.end <= span.start)
            .take_while(move |extent| extent.span.start < span.end)
    }

    pub(crate) fn covered(&self) -> SpanSet {
        let mut covered = SpanSet::default();
        self.iter().for_each(|extent| covered.insert(extent.span));
        covered
    }

    /// What of a span is not cached.
    pub(crate) fn missing(&self, span: Span) -> SpanSet {
        let mut missing = SpanSet::from_span(span);
        self.within(span).for_each(|extent| missing.remove(extent.span));
        missing
    }

    /// Adds a span of which nothing is cached yet; neighbours with the same stamp become one.
    pub(crate) fn insert(&mut self, new: Extent) {
        self.edit(new.span, |extents| {
            let place = extents.partition_point(|extent| extent.span.start < new.span.start);
            extents.insert(place, new);
            join_touching(extents);
        });
    }

    /// Forgets a span.
    pub(crate) fn remove(&mut self, span: Span) {
        if span.is_empty() || self.within(span).next().is_none() {
            return;
        }
        self.edit(span, |extents| {
            let cut = |extent: &Extent| {
                let extent = *extent;
                let sides = [Span::new(i64::MIN, span.start), Span::new(span.end, i64::MAX)];
                sides.map(move |side| Extent { span: extent.span.intersect(&side), ..extent })
            };
            let is_cut = |extent: &Extent| extent.span.overlaps(&span);
            let first = extents.iter().position(is_cut).unwrap_or(0);
            let last = extents.iter().rposition(is_cut).map_or(first, |last| last + 1);
            let touched = extents.get(first..last).unwrap_or_default();
            let kept: Vec<Extent> = touched.iter().flat_map(cut).filter(|extent| !extent.span.is_empty()).collect();
            extents.splice(first..last, kept);
        });
    }

    /// Gives those that lie within a span another stamp.
    pub(crate) fn restamp(&mut self, span: Span, stamp: u64) {
        if self.within(span).all(|extent| extent.stamp == stamp || !span.contains(&extent.span)) {
            return;
        }
        self.edit(span, |extents| {
            extents.iter_mut().filter(|extent| span.contains(&extent.span)).for_each(|extent| extent.stamp = stamp);
            join_touching(extents);
        });
    }

    /// Unpacks what touches a span, at least one chunk, and packs it again changed.
    fn edit(&mut self, span: Span, change: impl FnOnce(&mut Vec<Extent>)) {
        let first = self.0.partition_point(|chunk| chunk.start < span.start).saturating_sub(1);
        let mut last = self.0.partition_point(|chunk| chunk.start <= span.end).max(first + 1).min(self.0.len());
        let touched = self.0.get(first..last).unwrap_or_default();
        let mut extents: Vec<Extent> = touched.iter().flat_map(Chunk::extents).collect();
        change(&mut extents);
        if let Some(next) = self.0.get(last).filter(|_| extents.len() < CHUNK_EXTENTS_MIN) {
            extents.extend(next.extents());
            last += 1;
        }
        let chunks = extents.len().div_ceil(CHUNK_EXTENTS_MAX).max(1);
        let packed = extents.chunks(extents.len().div_ceil(chunks).max(1)).filter_map(Chunk::pack);
        self.0.splice(first..last, packed);
        // Most keys have few chunks: room for twice as many would be what they take most.
        let spare = self.0.len() / 8;
        if self.0.capacity() > self.0.len() + spare + 1 {
            self.0.shrink_to(self.0.len() + spare);
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let chunks: usize = self.0.iter().map(|chunk| chunk.bytes.len()).sum();
        self.0.capacity() * size_of::<Chunk>() + chunks
    }
}

/// Joins neighbours that touch and have the same stamp.
fn join_touching(extents: &mut Vec<Extent>) {
    extents.dedup_by(|b, a| {
        let joins = a.span.end == b.span.start && a.stamp == b.stamp;
        if joins {
            a.density = density(&[*a, *b]);
            a.span.end = b.span.end;
        }
        joins
    });
}

/// How dense stretches are together.
fn density(extents: &[Extent]) -> f32 {
    let bytes: f64 = extents.iter().map(|extent| f64::from(extent.density) * extent.span.length()).sum();
    let length: f64 = extents.iter().map(|extent| extent.span.length()).sum();
    (bytes / length) as f32
}

const fn distance(from: i64, to: i64) -> u64 {
    to.wrapping_sub(from) as u64
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl Chunk {
    /// Packs extents; `None` if there are none.
    fn pack(extents: &[Extent]) -> Option<Self> {
        let start = extents.first()?.span.start;
        let mut unit = 0;
        let mut end = start;
        for extent in extents {
            unit = greatest_common_divisor(unit, distance(end, extent.span.start));
            unit = greatest_common_divisor(unit, distance(extent.span.start, extent.span.end));
            end = extent.span.end;
        }
        let mut bytes = Vec::with_capacity(extents.len() * 4 + 10);
        varint::push(&mut bytes, unit);
        let (mut end, mut stamp) = (start, 0);
        for extent in extents {
            varint::push(&mut bytes, distance(end, extent.span.start) / unit.max(1));
            let length = distance(extent.span.start, extent.span.end) / unit.max(1);
            varint::push(&mut bytes, length.min(LENGTH_LIMIT) << 1 | u64::from(extent.stamp != stamp));
            if length >= LENGTH_LIMIT {
                varint::push(&mut bytes, length);
            }
            if extent.stamp != stamp {
                varint::push_signed(&mut bytes, extent.stamp.wrapping_sub(stamp) as i64);
            }
            (end, stamp) = (extent.span.end, extent.stamp);
        }
        Some(Self { start, density: density(extents), bytes: bytes.into() })
    }

    fn extents(&self) -> impl Iterator<Item = Extent> {
        let mut packed = Packed(&self.bytes);
        let unit = packed.varint().unwrap_or_default();
        let (mut end, mut stamp) = (self.start, 0);
        // What was packed here is never cut off.
        std::iter::from_fn(move || {
            let start = end.wrapping_add(packed.varint()?.wrapping_mul(unit) as i64);
            let length_and_more = packed.varint()?;
            let length = length_and_more >> 1;
            let length = if length == LENGTH_LIMIT { packed.varint()? } else { length };
            if length_and_more & 1 == 1 {
                stamp = u64::wrapping_add(stamp, varint::unzigzag(packed.varint()?) as u64);
            }
            end = start.wrapping_add(length.wrapping_mul(unit) as i64);
            Some(Extent { span: Span::new(start, end), stamp, density: self.density })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn parts(extents: impl Iterator<Item = Extent>) -> Vec<(i64, i64, u64)> {
        extents.map(|extent| (extent.span.start, extent.span.end, extent.stamp)).collect()
    }

    /// Runs of instants with the same stamp.
    fn runs(instants: &BTreeMap<i64, u64>, unit: i64) -> Vec<(i64, i64, u64)> {
        let mut runs: Vec<(i64, i64, u64)> = Vec::new();
        for (instant, stamp) in instants {
            let (start, end) = (instant * unit, (instant + 1) * unit);
            match runs.last_mut().filter(|last| last.1 == start && last.2 == *stamp) {
                Some(last) => last.1 = end,
                None => runs.push((start, end, *stamp)),
            }
        }
        runs
    }

    #[derive(Debug, Clone)]
    enum Change {
        Insert(u64),
        Remove,
        Restamp(u64),
    }

    fn change() -> impl Strategy<Value = (Change, i64, i64)> {
        let stamp = || prop_oneof![4 => Just(0u64), 2 => 1u64..4, 1 => Just(u64::MAX)];
        let kind = prop_oneof![
            12 => stamp().prop_map(Change::Insert),
            2 => Just(Change::Remove),
            1 => stamp().prop_map(Change::Restamp),
        ];
        (kind, 0i64..1500, prop_oneof![8 => 1i64..4, 1 => 1i64..400])
    }

    proptest! {
        #[test]
        fn extents_are_instants_with_stamps(
            changes in prop::collection::vec(change(), 0..700),
            unit in prop_oneof![Just(1i64), Just(15_000), Just(60_000_000_000)],
            window in (0i64..1500, 1i64..1500),
        ) {
            let (mut extents, mut plain) = (Extents::default(), BTreeMap::new());
            for (change, start, length) in changes {
                let span = Span::new(start * unit, (start + length) * unit);
                match change {
                    Change::Insert(stamp) => {
                        for missing in extents.missing(span).spans() {
                            extents.insert(Extent { span: *missing, stamp, density: 2.0 });
                        }
                        (start..start + length).for_each(|instant| {
                            plain.entry(instant).or_insert(stamp);
                        });
                    }
                    Change::Remove => {
                        extents.remove(span);
                        plain.retain(|instant, _| !(start..start + length).contains(instant));
                    }
                    Change::Restamp(stamp) => {
                        let within = parts(extents.within(span));
                        extents.restamp(span, stamp);
                        for (start, end, _) in within {
                            if span.contains(&Span::new(start, end)) {
                                plain.extend((start / unit..end / unit).map(|instant| (instant, stamp)));
                            }
                        }
                    }
                }
            }
            let expected = runs(&plain, unit);
            prop_assert_eq!(parts(extents.iter()), expected.clone());
            prop_assert!(extents.iter().all(|extent| (extent.density - 2.0).abs() < 1e-3));
            let window = Span::new(window.0 * unit, (window.0 + window.1) * unit);
            let inside = expected.into_iter().filter(|run| Span::new(run.0, run.1).overlaps(&window));
            prop_assert_eq!(parts(extents.within(window)), inside.collect::<Vec<_>>());
            let chunks: Vec<usize> = extents.0.iter().map(|chunk| chunk.extents().count()).collect();
            prop_assert!(chunks.iter().all(|count| (1..=CHUNK_EXTENTS_MAX).contains(count)), "{chunks:?}");
        }

        #[test]
        fn extents_of_any_time_are_kept(
            times in prop::collection::btree_set(
                prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>(), -100i64..100],
                2..12,
            ),
            stamps in prop::collection::vec(any::<u64>(), 12),
        ) {
            let times: Vec<i64> = times.into_iter().collect();
            let spans = times.chunks_exact(2).zip(stamps).map(|(pair, stamp)| (pair[0], pair[1], stamp));
            let expected: Vec<(i64, i64, u64)> = spans.collect();
            let mut extents = Extents::default();
            for (start, end, stamp) in expected.iter().rev() {
                extents.insert(Extent { span: Span::new(*start, *end), stamp: *stamp, density: 1.0 });
            }
            prop_assert_eq!(parts(extents.iter()), expected);
            let all = Span::new(i64::MIN, i64::MAX);
            extents.remove(all);
            prop_assert!(extents.is_empty());
            extents.insert(Extent { span: all, stamp: 1, density: 1.0 });
            prop_assert_eq!(parts(extents.within(Span::new(5, 6))), [(i64::MIN, i64::MAX, 1)]);
        }
    }

    #[test]
    fn short_extents_take_four_bytes_at_most() {
        let mut extents = Extents::default();
        for number in (0..10_000).rev() {
            let span = Span::new(1_600_000_000 + number * 7200, 1_600_000_000 + number * 7200 + 600);
            extents.insert(Extent { span, stamp: 77, density: 1.0 });
        }
        assert!(extents.heap_bytes() < 40_000, "{}", extents.heap_bytes());
    }
}
