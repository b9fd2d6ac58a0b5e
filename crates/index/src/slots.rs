//! Sets of slots: which fields a group has. Interned, as many groups have the same.

use std::sync::Arc;

use codec::{DecodeError, Reader, varint};
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::Slot;

/// A set of slots, as ranges: fields are numbered in order of appearance, so that most sets are one range, however wide.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct SlotSet {
    /// First and last slot of each range; sorted, with gaps between them.
    ranges: Box<[(Slot, Slot)]>,
}

impl SlotSet {
    /// The set of these slots, in any order.
    pub fn new(slots: &[Slot]) -> Self {
        let mut sorted: Vec<Slot>;
        let slots = if slots.is_sorted() {
            slots
        } else {
            sorted = slots.to_vec();
            sorted.sort_unstable();
            &sorted
        };
        let mut ranges: Vec<(Slot, Slot)> = Vec::new();
        for slot in slots {
            match ranges.last_mut() {
                Some((_, last)) if *slot <= last.saturating_add(1) => *last = *slot,
                _ => ranges.push((*slot, *slot)),
            }
        }
        Self { ranges: ranges.into() }
    }

    /// Whether the slot is in the set.
    pub fn contains(&self, slot: Slot) -> bool {
        let place = self.ranges.partition_point(|(_, last)| *last < slot);
        self.ranges.get(place).is_some_and(|(first, _)| *first <= slot)
    }

    /// The slots, sorted.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// How many slots there are.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Returns whether there are no slots.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// This set and more slots.
    #[must_use]
    pub fn with(&self, more: &[Slot]) -> Self {
        let more = Self::new(more);
        let mut ranges = [&*self.ranges, &*more.ranges].concat();
        ranges.sort_unstable();
        let mut joined: Vec<(Slot, Slot)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        Self { ranges: joined.into() }
    }

    /// Those of the wanted slots (sorted) that are in the set.
    pub fn chosen_of(&self, wanted: &[Slot]) -> Vec<Slot> {
        let mut chosen = Vec::new();
        for (first, last) in &self.ranges {
            let from = wanted.partition_point(|slot| slot < first);
            chosen.extend(wanted.iter().skip(from).take_while(|slot| *slot <= last));
        }
        chosen
    }

    /// Appends the ranges: their number, and for each the gap before it and how many slots follow its first.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        varint::push(out, self.ranges.len() as u64);
        let mut end = 0;
        for (first, last) in &self.ranges {
            varint::push(out, u64::from(first - end));
            varint::push(out, u64::from(last - first));
            end = *last;
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = reader.length(reader.rest().len() / 2)?;
        let mut ranges = Vec::with_capacity(count);
        let mut end = 0u32;
        let take = |reader: &mut Reader<'_>, from: u32| -> Result<u32, DecodeError> {
            let distance = u32::try_from(reader.varint()?).map_err(|_| reader.error("slot beyond 32 bits"))?;
            from.checked_add(distance).ok_or_else(|| reader.error("slot beyond 32 bits"))
        };
        for place in 0..count {
            let first = take(reader, end)?;
            if place > 0 && first <= end.saturating_add(1) {
                return Err(reader.error("ranges of slots that touch"));
            }
            end = take(reader, first)?;
            ranges.push((first, end));
        }
        Ok(Self { ranges: ranges.into() })
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.ranges.len() * size_of::<(Slot, Slot)>()
    }

    fn hash(&self) -> u64 {
        let mut bytes = Vec::with_capacity(self.ranges.len() * 8);
        for (first, last) in &self.ranges {
            bytes.extend_from_slice(&first.to_le_bytes());
            bytes.extend_from_slice(&last.to_le_bytes());
        }
        xxh3_64_with_seed(&bytes, 0)
    }
}

/// Each set once. Sets without a user go when the table would grow.
#[derive(Debug, Default)]
pub(crate) struct SlotSets {
    table: HashTable<Arc<SlotSet>>,
    /// Sets after the last sweep.
    swept: usize,
    /// The slots asked for last, which the next group often has as well.
    last: Option<(Vec<Slot>, Arc<SlotSet>)>,
}

impl SlotSets {
    /// The set of these slots, in any order.
    pub(crate) fn intern_slots(&mut self, slots: &[Slot]) -> Arc<SlotSet> {
        match &self.last {
            Some((known, set)) if known == slots => set.clone(),
            _ => {
                let set = self.intern(SlotSet::new(slots));
                self.last = Some((slots.to_vec(), set.clone()));
                set
            }
        }
    }

    pub(crate) fn intern(&mut self, set: SlotSet) -> Arc<SlotSet> {
        let hash = set.hash();
        if let Some(known) = self.table.find(hash, |known| **known == set) {
            return known.clone();
        }
        if self.table.len() > 2 * self.swept + 64 {
            self.table.retain(|set| Arc::strong_count(set) > 1);
            self.swept = self.table.len();
        }
        let set = Arc::new(set);
        self.table.insert_unique(hash, set.clone(), |set| set.hash());
        set
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let sets: usize = self.table.iter().map(|set| 32 + set.heap_bytes()).sum();
        self.table.allocation_size() + sets
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_a_set(
            slots in proptest::collection::vec(0u32..40, 0..30),
            more in proptest::collection::vec(0u32..40, 0..30),
            wanted in proptest::collection::btree_set(0u32..50, 0..30),
        ) {
            let set = SlotSet::new(&slots).with(&more);
            let expected: BTreeSet<u32> = slots.iter().chain(&more).copied().collect();
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), expected.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(set.len(), expected.len() as u64);
            let wanted: Vec<u32> = wanted.into_iter().collect();
            let chosen: Vec<u32> = wanted.iter().copied().filter(|slot| expected.contains(slot)).collect();
            prop_assert_eq!(set.chosen_of(&wanted), chosen);
            prop_assert!((0..50).all(|slot| set.contains(slot) == expected.contains(&slot)));
            let mut bytes = Vec::new();
            set.encode(&mut bytes);
            prop_assert_eq!(SlotSet::decode(&mut Reader::new(&bytes)).unwrap(), set.clone());
            let all: Vec<u32> = expected.into_iter().collect();
            prop_assert_eq!(SlotSet::new(&all), set);
        }

        #[test]
        fn hostile_bytes_are_an_error_or_a_set(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = SlotSet::decode(&mut Reader::new(&bytes));
        }
    }
}
