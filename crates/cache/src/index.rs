//! What is cached, in memory: the key index says which spans of which keys, the slab index where the slabs of a field are.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use platform::DIRECT_ALIGN_BYTES;

use crate::points::ValueType;
use crate::slab::Placed;
use crate::slab::header::{RECORD_ALIGN_BYTES, Section};
use crate::span::SpanSet;
use crate::{Key, Span};

/// A field's place in the list of fields.
pub(crate) type FieldNumber = u32;

/// A stretch of time that is cached for a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Extent {
    pub(crate) span: Span,
    /// What the caller of `set` gave; the older of two that were joined.
    pub(crate) stamp: u64,
    /// Bytes for each unit of time, to estimate what a request would read.
    pub(crate) density: f32,
}

/// Where a slab holds what of a key: small, since there is one for each key of each slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) slab: u32,
    /// Where the record starts, and how long it is, in units of its alignment.
    offset: u16,
    len: u16,
    /// The hull of its pieces, in steps of the slab's span, rounded outwards.
    start: u16,
    end: u16,
    /// The pages of the slab that its blocks lie in; the first is behind the last if there are none.
    first_page: u8,
    last_page: u8,
}

const _: () = assert!(size_of::<Place>() <= 16, "a place takes 16 bytes at most");

impl Place {
    /// Where a slab, whose header has so many bytes, holds a record. `None` if numbers as small as these cannot say it.
    pub(crate) fn new(slab: u32, slab_span: Span, header_bytes: u32, placed: &Placed) -> Option<Self> {
        let units = |bytes: u32| u16::try_from(bytes / RECORD_ALIGN_BYTES as u32).ok();
        let page = |byte: u32| u8::try_from(byte / DIRECT_ALIGN_BYTES as u32).ok();
        let span = placed.span()?.intersect(&slab_span);
        let (step, from) = (span_step(slab_span), |time: i64| time.wrapping_sub(slab_span.start) as u64);
        let blocks = placed.blocks(header_bytes);
        Some(Self {
            slab,
            offset: units(placed.offset)?,
            len: units(placed.len.next_multiple_of(RECORD_ALIGN_BYTES as u32))?,
            start: u16::try_from(from(span.start) / step).ok()?,
            end: u16::try_from(from(span.end).div_ceil(step)).ok()?,
            first_page: blocks.as_ref().map_or(Some(1), |blocks| page(blocks.start))?,
            last_page: blocks.as_ref().map_or(Some(0), |blocks| page(blocks.end.saturating_sub(1)))?,
        })
    }

    /// The bytes of the record in the slab.
    pub(crate) fn record(&self) -> Range<u32> {
        let unit = RECORD_ALIGN_BYTES as u32;
        u32::from(self.offset) * unit..(u32::from(self.offset) + u32::from(self.len)) * unit
    }

    /// The bytes of the slab that hold all points of the key, if there are any.
    pub(crate) fn blocks(&self) -> Option<Range<u32>> {
        let page = DIRECT_ALIGN_BYTES as u32;
        let bytes = u32::from(self.first_page) * page..(u32::from(self.last_page) + 1) * page;
        (self.first_page <= self.last_page).then_some(bytes)
    }

    /// A span with all pieces of the key in the slab.
    pub(crate) fn span(&self, slab_span: Span) -> Span {
        let (step, length) = (span_step(slab_span), slab_span.end.wrapping_sub(slab_span.start) as u64);
        let at = |steps: u16| slab_span.start.wrapping_add((u64::from(steps) * step).min(length) as i64);
        Span::new(at(self.start), at(self.end))
    }
}

/// What a step of a slab's span is, so that sixteen bits count them.
fn span_step(span: Span) -> u64 {
    span.end.wrapping_sub(span.start) as u64 / u64::from(u16::MAX) + 1
}

/// All about a key.
#[derive(Debug, Default)]
pub(crate) struct KeyEntry {
    extents: Vec<Extent>,
    /// The fields that an answer has.
    pub(crate) fields: Arc<[FieldNumber]>,
    pub(crate) places: Vec<Place>,
}

impl KeyEntry {
    /// Sorted; they do not overlap.
    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The extents that share an instant with a span.
    pub(crate) fn within(&self, span: Span) -> &[Extent] {
        let first = self.extents.partition_point(|extent| extent.span.end <= span.start);
        let last = self.extents.partition_point(|extent| extent.span.start < span.end);
        self.extents.get(first..last.max(first)).unwrap_or_default()
    }

    pub(crate) fn covered(&self) -> SpanSet {
        let mut covered = SpanSet::default();
        self.extents.iter().for_each(|extent| covered.insert(extent.span));
        covered
    }

    /// What of a span is not cached.
    pub(crate) fn missing(&self, span: Span) -> SpanSet {
        let mut missing = SpanSet::of(span);
        self.within(span).iter().for_each(|extent| missing.remove(extent.span));
        missing
    }

    /// Adds a span of which nothing is cached yet; neighbours with the same stamp become one.
    pub(crate) fn insert(&mut self, new: Extent) {
        let place = self.extents.partition_point(|extent| extent.span.start < new.span.start);
        self.extents.insert(place, new);
        self.join(place);
        if place > 0 {
            self.join(place - 1);
        }
    }

    /// Joins an extent with the next one if they touch and have the same stamp.
    fn join(&mut self, left: usize) -> bool {
        let (Some(a), Some(b)) = (self.extents.get(left).copied(), self.extents.get(left + 1).copied()) else {
            return false;
        };
        if a.span.end != b.span.start || a.stamp != b.stamp {
            return false;
        }
        let bytes = f64::from(a.density) * a.span.length() + f64::from(b.density) * b.span.length();
        let span = a.span.hull(&b.span);
        let density = (bytes / span.length()) as f32;
        self.extents.splice(left..left + 2, [Extent { span, stamp: a.stamp, density }]);
        true
    }

    /// Forgets a span.
    pub(crate) fn remove(&mut self, span: Span) {
        let first = self.extents.partition_point(|extent| extent.span.end <= span.start);
        let last = self.extents.partition_point(|extent| extent.span.start < span.end);
        if span.is_empty() || first >= last {
            return;
        }
        let touched = self.extents.get(first..last).unwrap_or_default();
        let cut = |extent: &Extent| {
            let extent = *extent;
            let sides = [Span::new(i64::MIN, span.start), Span::new(span.end, i64::MAX)];
            sides.map(move |side| Extent { span: extent.span.intersect(&side), ..extent })
        };
        let kept: Vec<Extent> = touched.iter().flat_map(cut).filter(|extent| !extent.span.is_empty()).collect();
        self.extents.splice(first..last, kept);
    }

    /// Gives the extents within a span another stamp.
    pub(crate) fn restamp(&mut self, span: Span, stamp: u64) {
        for extent in &mut self.extents {
            if span.contains(&extent.span) {
                extent.stamp = stamp;
            }
        }
        let mut left = 0;
        while left + 1 < self.extents.len() {
            if !self.join(left) {
                left += 1;
            }
        }
    }

    pub(crate) fn forget_places(&mut self, slab: u32) {
        self.places.retain(|place| place.slab != slab);
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.extents.capacity() * size_of::<Extent>() + self.places.capacity() * size_of::<Place>()
    }
}

/// A slab as the slab index knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlabNode {
    pub(crate) slab: u32,
    /// The keys that may be in it.
    pub(crate) bloom: u64,
    /// The hull of its pieces.
    pub(crate) span: Span,
}

const _: () = assert!(size_of::<SlabNode>() <= 32, "a node of the slab index takes 32 bytes at most");

impl SlabNode {
    /// Two bits of the Bloom filter.
    pub(crate) fn bloom_bits(key: &Key) -> u64 {
        let [first, second] = key.halves();
        1 << (first % 64) | 1 << (second % 64)
    }

    pub(crate) fn may_hold(&self, key: &Key) -> bool {
        self.bloom & Self::bloom_bits(key) == Self::bloom_bits(key)
    }
}

/// Slabs whose spans together have no hole.
#[derive(Debug, Default)]
pub(crate) struct VirtualRange {
    pub(crate) span: Option<Span>,
    /// By their start.
    pub(crate) nodes: Vec<SlabNode>,
}

impl VirtualRange {
    fn push(&mut self, node: SlabNode) {
        self.span = Some(self.span.map_or(node.span, |span| span.hull(&node.span)));
        let place = self.nodes.partition_point(|known| known.span.start <= node.span.start);
        self.nodes.insert(place, node);
    }
}

/// A field's slabs.
#[derive(Debug, Default)]
pub(crate) struct VirtualRanges(Vec<VirtualRange>);

impl VirtualRanges {
    pub(crate) fn ranges(&self) -> &[VirtualRange] {
        &self.0
    }

    /// Adds a slab; ranges that it connects become one. Returns the place of the range that it is in.
    pub(crate) fn insert(&mut self, node: SlabNode) -> usize {
        let ends_before = |range: &VirtualRange| range.span.is_none_or(|span| span.end < node.span.start);
        let first = self.0.partition_point(ends_before);
        let starts_before = |range: &VirtualRange| range.span.is_none_or(|span| span.start <= node.span.end);
        let last = self.0.partition_point(starts_before).max(first);
        let mut joined = VirtualRange::default();
        let mut touched: Vec<VirtualRange> = self.0.drain(first..last).collect();
        // The largest stays as it is: most often it is the only one.
        if let Some(largest) = (0..touched.len()).max_by_key(|place| touched.get(*place).map(|range| range.nodes.len()))
        {
            joined = touched.swap_remove(largest);
        }
        touched.into_iter().flat_map(|range| range.nodes).chain([node]).for_each(|node| joined.push(node));
        self.0.insert(first, joined);
        first
    }

    /// Takes a slab out; a range that falls apart becomes several.
    pub(crate) fn remove(&mut self, slab: u32, span: Span) {
        let holds = |range: &VirtualRange| range.span.is_some_and(|whole| whole.contains(&span));
        let Some(place) = self.0.iter().position(holds) else {
            return;
        };
        let mut nodes = self.0.remove(place).nodes;
        nodes.retain(|node| node.slab != slab);
        let mut parts: Vec<VirtualRange> = Vec::new();
        for node in nodes {
            match parts.last_mut() {
                Some(range) if range.span.is_some_and(|span| node.span.start <= span.end) => range.push(node),
                _ => parts.push(VirtualRange { span: Some(node.span), nodes: vec![node] }),
            }
        }
        self.0.splice(place..place, parts);
    }

    /// The slabs that may hold points of a key within a span.
    pub(crate) fn candidates(&self, key: &Key, span: Span) -> impl Iterator<Item = &SlabNode> {
        let overlaps = move |range: &&VirtualRange| range.span.is_some_and(|whole| whole.overlaps(&span));
        let nodes = self.0.iter().filter(overlaps).flat_map(|range| &range.nodes);
        nodes.filter(move |node| node.span.overlaps(&span) && node.may_hold(key))
    }
}

/// What is known of a slab beside its node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlabMeta {
    pub(crate) serial: u64,
    pub(crate) sequence_min: u64,
    pub(crate) sequence_max: u64,
    pub(crate) field: FieldNumber,
    pub(crate) span: Span,
    pub(crate) header_bytes: u32,
    pub(crate) used_bytes: u32,
    pub(crate) points: u32,
    pub(crate) series: Section,
    pub(crate) is_compacted: bool,
}

/// A field and its slabs.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: Arc<str>,
    pub(crate) value_type: ValueType,
    pub(crate) slabs: VirtualRanges,
}

/// The key index.
pub(crate) type Keys = HashMap<Key, KeyEntry>;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::slab::{Marker, Piece, Record};

    fn node(slab: u32, start: i64, end: i64) -> SlabNode {
        SlabNode { slab, bloom: u64::MAX, span: Span::new(start, end) }
    }

    fn shape(ranges: &VirtualRanges) -> Vec<(i64, i64, Vec<u32>)> {
        let shape = |range: &VirtualRange| {
            let span = range.span.unwrap();
            (span.start, span.end, range.nodes.iter().map(|node| node.slab).collect())
        };
        ranges.ranges().iter().map(shape).collect()
    }

    fn placed(span: Span, offset: u32, blocks: &[(u32, u32)]) -> Placed {
        let piece = Piece { span, sequence: 1, stamp: 0, fields: 1 };
        let marker = |(offset, len): &(u32, u32)| Marker {
            first: 0,
            last: 0,
            offset: *offset,
            len: *len,
            count: 1,
            checksum: 0,
        };
        let markers = blocks.iter().map(marker).collect();
        let record = Record { key: Key([0; 20]), number: 0, pieces: vec![piece], markers };
        Placed { offset, len: 70, record }
    }

    proptest! {
        #[test]
        fn a_place_has_no_less_than_what_it_is_made_of(
            times in prop::collection::btree_set(
                prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>(), -100i64..100],
                6,
            ),
            blocks in prop::collection::vec((0u32..900_000, 1u32..9000), 0..4),
        ) {
            let times: Vec<i64> = times.into_iter().collect();
            let (slab, own) = (Span::new(times[0], times[5]), Span::new(times[1], times[3]));
            let place = Place::new(3, slab, 8192, &placed(own, 4096 + 16, &blocks)).unwrap();
            prop_assert_eq!(place.record(), 4112..4192);
            for (start, end) in [(0, 2), (1, 2), (2, 4), (3, 4), (0, 5)] {
                let asked = Span::new(times[start], times[end]);
                prop_assert!(!asked.overlaps(&own) || place.span(slab).overlaps(&asked), "{asked:?} {own:?} {slab:?}");
            }
            for (offset, len) in &blocks {
                let all = place.blocks().unwrap();
                prop_assert!(all.start <= 8192 + offset && 8192 + offset + len <= all.end);
            }
            prop_assert_eq!(place.blocks().is_none(), blocks.is_empty());
        }
    }

    #[test]
    fn a_place_is_not_asked_for_other_times() {
        let slab = Span::new(0, 1_000_000);
        let place = Place::new(3, slab, 8192, &placed(Span::new(500_000, 600_000), 4096, &[])).unwrap();
        let asked = [(0, 499_900), (600_100, 1_000_000), (0, 500_001), (599_999, 700_000)];
        let found = asked.map(|(start, end)| place.span(slab).overlaps(&Span::new(start, end)));
        assert_eq!(found, [false, false, true, true]);
    }

    #[test]
    fn virtual_ranges_join_and_fall_apart() {
        let mut ranges = VirtualRanges::default();
        ranges.insert(node(1, 0, 10));
        ranges.insert(node(2, 20, 30));
        assert_eq!(shape(&ranges), [(0, 10, vec![1]), (20, 30, vec![2])]);
        ranges.insert(node(3, 10, 20));
        ranges.insert(node(4, 5, 6));
        assert_eq!(shape(&ranges), [(0, 30, vec![1, 4, 3, 2])]);
        let found: Vec<u32> =
            ranges.candidates(&Key([0; 20]), Span::new(5, 11)).map(|candidate| candidate.slab).collect();
        assert_eq!(found, [1, 4, 3]);
        ranges.remove(3, Span::new(10, 20));
        assert_eq!(shape(&ranges), [(0, 10, vec![1, 4]), (20, 30, vec![2])]);
    }

    #[test]
    fn extents_join_where_their_stamps_are_the_same() {
        let mut entry = KeyEntry::default();
        let extent = |start, end, stamp| Extent { span: Span::new(start, end), stamp, density: 2.0 };
        entry.insert(extent(0, 10, 1));
        entry.insert(extent(20, 30, 1));
        entry.insert(extent(10, 20, 1));
        assert_eq!(entry.extents(), [extent(0, 30, 1)]);
        entry.insert(extent(30, 40, 2));
        assert_eq!(entry.extents(), [extent(0, 30, 1), extent(30, 40, 2)]);
        entry.remove(Span::new(5, 35));
        assert_eq!(entry.extents(), [extent(0, 5, 1), extent(35, 40, 2)]);
        assert_eq!(entry.missing(Span::new(0, 40)).spans(), [Span::new(5, 35)]);
        entry.insert(extent(5, 35, 3));
        entry.restamp(Span::new(0, 40), 9);
        assert_eq!(entry.extents(), [extent(0, 40, 9)]);
    }
}
