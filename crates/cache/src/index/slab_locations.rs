//! Where slabs hold what of a key, packed: there is one place for each key of each slab.

use std::ops::Range;

use codec::varint;
use platform::DIRECT_ALIGN_BYTES;

use super::packed::Packed;
use crate::Span;
use crate::slab::Placed;
use crate::slab::header::RECORD_ALIGN_BYTES;

/// Where a slab holds what of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlabLocation {
    pub(crate) slab: u32,
    /// Where the record starts, and how long it is, in units of its alignment.
    offset: u16,
    len: u16,
    /// The hull of its intervals, in steps of the slab's span, rounded outwards; [`STEPS_MAX`] at most.
    start: u16,
    end: u16,
    /// The pages of the slab that its blocks lie in; the first is behind the last if there are none.
    first_page: u8,
    last_page: u8,
}

impl SlabLocation {
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

    /// A span with all intervals of the key in the slab.
    pub(crate) fn span(&self, slab_span: Span) -> Span {
        let (step, length) = (span_step(slab_span), slab_span.end.wrapping_sub(slab_span.start) as u64);
        let at = |steps: u16| slab_span.start.wrapping_add((u64::from(steps) * step).min(length) as i64);
        Span::new(at(self.start), at(self.end))
    }
}

/// Steps of a slab's span, as many as twelve bits count: slabs span months, and short ranges are to find only those that have them.
const STEPS_MAX: u16 = (1 << 12) - 1;

fn span_step(span: Span) -> u64 {
    span.end.wrapping_sub(span.start) as u64 / u64::from(STEPS_MAX) + 1
}

/// The places of a key, each behind the one before: the difference of the slabs' numbers, where the record starts, its length times four
/// plus how many pages its blocks have (three: that follows), all as varints; the first page if there is one, and the hull, which takes
/// three bytes.
#[derive(Debug, Default)]
pub(crate) struct SlabLocations {
    bytes: Vec<u8>,
    last_slab: u32,
}

/// A number of pages that does not fit beside the length of a record.
const PAGES_LIMIT: u64 = 3;

impl SlabLocations {
    pub(crate) fn push(&mut self, place: SlabLocation) {
        let mut bytes = Vec::with_capacity(24);
        varint::push_signed(&mut bytes, i64::from(place.slab) - i64::from(self.last_slab));
        varint::push(&mut bytes, u64::from(place.offset));
        let pages = (u64::from(place.last_page) + 1).saturating_sub(u64::from(place.first_page));
        varint::push(&mut bytes, u64::from(place.len) << 2 | pages.min(PAGES_LIMIT));
        if pages >= PAGES_LIMIT {
            varint::push(&mut bytes, pages);
        }
        if pages > 0 {
            bytes.push(place.first_page);
        }
        let hull = u32::from(place.start) | u32::from(place.end) << 12;
        bytes.extend(hull.to_le_bytes().into_iter().take(3));
        // Room for twice as much would be what most keys take.
        if self.bytes.capacity() - self.bytes.len() < bytes.len() {
            self.bytes.reserve_exact(bytes.len() + self.bytes.len() / 8);
        }
        self.bytes.extend(bytes);
        self.last_slab = place.slab;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = SlabLocation> {
        let mut packed = Packed(&self.bytes);
        let mut slab = 0;
        // What was packed here is never cut off.
        std::iter::from_fn(move || {
            slab = u32::try_from(i64::from(slab) + varint::unzigzag(packed.varint()?)).ok()?;
            let offset = packed.varint()? as u16;
            let length_and_pages = packed.varint()?;
            let pages = length_and_pages & PAGES_LIMIT;
            let pages = if pages == PAGES_LIMIT { packed.varint()? } else { pages };
            let first_page = if pages > 0 { packed.byte()? } else { 1 };
            let last_page = (u64::from(first_page) + pages).saturating_sub(1) as u8;
            let last_page = if pages > 0 { last_page } else { 0 };
            let hull = u32::from_le_bytes([packed.byte()?, packed.byte()?, packed.byte()?, 0]);
            let (start, end) = (hull as u16 & STEPS_MAX, (hull >> 12) as u16);
            let len = (length_and_pages >> 2) as u16;
            Some(SlabLocation { slab, offset, len, start, end, first_page, last_page })
        })
    }

    /// Forgets those in a slab.
    pub(crate) fn forget(&mut self, slab: u32) {
        if self.iter().any(|place| place.slab == slab) {
            let mut left = Self::default();
            self.iter().filter(|place| place.slab != slab).for_each(|place| left.push(place));
            *self = left;
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Key;
    use crate::slab::{CachedInterval, Marker, Record};

    fn placed(span: Span, offset: u32, blocks: &[(u32, u32)]) -> Placed {
        let interval = CachedInterval { span, sequence: 1, stamp: 0, fields: 1 };
        let marker = |(offset, len): &(u32, u32)| Marker {
            first: 0,
            last: 0,
            offset: *offset,
            len: *len,
            count: 1,
            checksum: 0,
        };
        let markers = blocks.iter().map(marker).collect();
        let record = Record { key: Key([0; 20]), intervals: vec![interval], markers };
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
            let place = SlabLocation::new(3, slab, 8192, &placed(own, 4096 + 16, &blocks)).unwrap();
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
        let place = SlabLocation::new(3, slab, 8192, &placed(Span::new(500_000, 600_000), 4096, &[])).unwrap();
        let asked = [(0, 499_700), (600_300, 1_000_000), (0, 500_001), (599_999, 700_000)];
        let found = asked.map(|(start, end)| place.span(slab).overlaps(&Span::new(start, end)));
        assert_eq!(found, [false, false, true, true]);
    }

    fn place() -> impl Strategy<Value = SlabLocation> {
        let hull = (0..=STEPS_MAX, 0..=STEPS_MAX);
        let numbers = (0u32..40, (any::<u16>(), any::<u16>(), hull), any::<(bool, u8, u8)>());
        numbers.prop_map(|(slab, (offset, len, (start, end)), (has_blocks, a, b))| {
            let (first_page, last_page) = if has_blocks { (a.min(b), a.max(b)) } else { (1, 0) };
            SlabLocation { slab: slab * slab * slab, offset, len, start, end, first_page, last_page }
        })
    }

    proptest! {
        #[test]
        fn places_come_back_until_their_slab_is_forgotten(
            mut plain in prop::collection::vec(place(), 0..60),
            forgotten in 0u32..40,
        ) {
            let mut places = SlabLocations::default();
            plain.iter().for_each(|place| places.push(*place));
            prop_assert_eq!(places.iter().collect::<Vec<_>>(), plain.clone());
            let forgotten = forgotten * forgotten * forgotten;
            places.forget(forgotten);
            plain.retain(|place| place.slab != forgotten);
            prop_assert_eq!(places.iter().collect::<Vec<_>>(), plain.clone());
            places.push(SlabLocation { slab: 7, offset: 1, len: 2, start: 3, end: 4, first_page: 1, last_page: 0 });
            prop_assert_eq!(places.iter().count(), plain.len() + 1);
        }
    }
}
