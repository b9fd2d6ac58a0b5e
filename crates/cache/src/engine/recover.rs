//! The index from the slabs' headers: what a cache knows after a restart.

use std::collections::{BTreeMap, HashMap};
use std::io;

use platform::Platform;

use super::Options;
use super::state::State;
use crate::flash::{Flash, Superblock, new_incarnation};
use crate::index::{Extent, FieldNumber};
use crate::resolve::{Hidden, resolve};
use crate::slab::header::HEAD_BYTES;
use crate::slab::{CachedInterval, Head, Header};
use crate::{Key, Span};

/// What slabs say of a key.
#[derive(Default)]
struct KeyContents {
    fields: BTreeMap<FieldNumber, Vec<CachedInterval>>,
    points: u64,
}

/// Reads every slot's header; what does not check out is an empty slot.
pub(super) fn recover(
    platform: &Platform,
    flash: &Flash,
    mut superblock: Superblock,
    options: &Options,
    slabs: usize,
) -> io::Result<State> {
    let deletes = flash.read_deletes(&superblock)?;
    if deletes.is_none() {
        superblock.incarnation = new_incarnation(platform)?;
        flash.write_superblock(&superblock)?;
    }
    let mut state = State::new(superblock, slabs, options.policy.policy(slabs));
    for delete in deletes.unwrap_or_default() {
        state.next_sequence = state.next_sequence.max(delete.sequence + 1);
        state.hide(delete);
    }
    let mut headers = Vec::new();
    let mut found: HashMap<Key, KeyContents> = HashMap::new();
    for slot in 0..slabs as u32 {
        // Errors of one slot are those of a bad place: what was there is a miss.
        let Some(header) = read(flash, slot).filter(|header| header.head.incarnation == superblock.incarnation) else {
            continue;
        };
        note(&mut state, &mut found, &header);
        headers.push((slot, header));
    }
    for (key, found) in found {
        add_key(&mut state, key, &found);
    }
    for (slot, header) in headers {
        state.install(slot, &header.head, &header.records);
        state.free.retain(|free| *free != slot);
    }
    Ok(state)
}

fn read(flash: &Flash, slot: u32) -> Option<Header> {
    let (page, range) = flash.read_slot_once(slot, 0, HEAD_BYTES as u32).ok()?;
    let head = Head::decode(page.get(range)?).ok()?;
    let (bytes, range) = flash.read_slot_once(slot, 0, head.header_bytes).ok()?;
    Header::decode(bytes.get(range)?).ok()
}

fn note(state: &mut State, found: &mut HashMap<Key, KeyContents>, header: &Header) {
    let head = &header.head;
    state.next_serial = state.next_serial.max(head.serial + 1);
    state.next_sequence = state.next_sequence.max(head.sequence_max + 1);
    let field = state.field(&head.field, head.value_type);
    for placed in &header.records {
        let found = found.entry(placed.record.key).or_default();
        found.fields.entry(field).or_default().extend_from_slice(&placed.record.intervals);
        found.points += placed.record.markers.iter().map(|marker| u64::from(marker.count)).sum::<u64>();
    }
}

/// A key is cached where all its fields are, as many as its intervals say that it has.
fn add_key(state: &mut State, key: Key, found: &KeyContents) {
    let fields_max = found.fields.values().flatten().map(|interval| interval.fields).max().unwrap_or(0);
    if found.fields.len() < usize::from(fields_max) {
        return;
    }
    let hidden = state.hidden(&key);
    let mut parts: Option<Vec<(Span, u64)>> = None;
    for intervals in found.fields.values() {
        let own = stamped(intervals, &hidden);
        parts = Some(parts.map_or(own.clone(), |parts| intersect(&parts, &own)));
    }
    let parts = parts.unwrap_or_default();
    let length: f64 = parts.iter().map(|(span, _)| span.length()).sum();
    if parts.is_empty() {
        return;
    }
    let numbers: Vec<FieldNumber> = found.fields.keys().copied().collect();
    let set = state.field_set(&numbers);
    let entry = state.entry(key);
    entry.fields = set;
    for (span, stamp) in parts {
        // Sixteen bytes a point, as numbers have; texts are underestimated.
        entry.extents.insert(Extent { span, stamp, density: (found.points as f64 * 16.0 / length) as f32 });
    }
}

/// The spans that intervals answer for, and their stamps.
fn stamped(intervals: &[CachedInterval], hidden: &[Hidden]) -> Vec<(Span, u64)> {
    let everything = Span::new(i64::MIN, i64::MAX);
    let (parts, _) = resolve(intervals, everything, hidden);
    parts.iter().filter_map(|(span, place)| Some((*span, intervals.get(*place)?.stamp))).collect()
}

/// What both have, with the older of two stamps. Both are sorted and do not overlap.
fn intersect(a: &[(Span, u64)], b: &[(Span, u64)]) -> Vec<(Span, u64)> {
    let (mut left, mut right) = (a.iter().peekable(), b.iter().peekable());
    let mut both = Vec::new();
    while let (Some((span, stamp)), Some((other, other_stamp))) = (left.peek(), right.peek()) {
        let part = span.intersect(other);
        if !part.is_empty() {
            both.push((part, *stamp.min(other_stamp)));
        }
        if span.end <= other.end {
            left.next()
        } else {
            right.next()
        };
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_cached_where_all_its_fields_are() {
        let part = |start, end, stamp| (Span::new(start, end), stamp);
        let a = [part(0, 10, 5), part(10, 20, 7), part(30, 40, 7)];
        let b = [part(5, 35, 6)];
        assert_eq!(intersect(&a, &b), [part(5, 10, 5), part(10, 20, 6), part(30, 35, 6)]);
        assert_eq!(intersect(&a, &[]), []);
    }
}
