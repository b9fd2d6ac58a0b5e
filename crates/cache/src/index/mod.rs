//! What is cached, in memory: the key index says which spans of which keys, the slab index where the slabs of a field are.

mod extents;
mod packed;
mod slab_locations;

use std::collections::HashMap;
use std::sync::Arc;

use crate::points::ValueType;
use crate::slab::header::Section;
use crate::{Key, Span};

pub(crate) use extents::{Extent, Extents};
pub(crate) use slab_locations::{SlabLocation, SlabLocations};

/// A field's place in the list of fields.
pub(crate) type FieldNumber = u32;

/// All about a key.
#[derive(Debug, Default)]
pub(crate) struct KeyEntry {
    pub(crate) extents: Extents,
    /// The fields that an answer has; keys with the same ones share them.
    pub(crate) fields: Arc<[FieldNumber]>,
    pub(crate) locations: SlabLocations,
}

impl KeyEntry {
    pub(crate) fn heap_bytes(&self) -> usize {
        self.extents.heap_bytes() + self.locations.heap_bytes()
    }
}

/// A slab as the slab index knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlabNode {
    pub(crate) slab: u32,
    /// The keys that may be in it.
    pub(crate) bloom: u64,
    /// The hull of its intervals.
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
}

/// Knowledge about a slab beside its node.
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
    use super::*;

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

    #[test]
    fn virtual_ranges_join_and_fall_apart() {
        let mut ranges = VirtualRanges::default();
        ranges.insert(node(1, 0, 10));
        ranges.insert(node(2, 20, 30));
        assert_eq!(shape(&ranges), [(0, 10, vec![1]), (20, 30, vec![2])]);
        ranges.insert(node(3, 10, 20));
        ranges.insert(node(4, 5, 6));
        assert_eq!(shape(&ranges), [(0, 30, vec![1, 4, 3, 2])]);
        ranges.remove(3, Span::new(10, 20));
        assert_eq!(shape(&ranges), [(0, 10, vec![1, 4]), (20, 30, vec![2])]);
    }
}
