//! What a cache knows in memory.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::Key;
use crate::flash::{Delete, Superblock};
use crate::index::{Field, FieldNumber, KeyEntry, Keys, SlabLocation, SlabMeta, SlabNode};
use crate::open_slab::Bucket;
use crate::points::ValueType;
use crate::policy::Policy;
use crate::resolve::Hidden;
use crate::slab::{Head, Header, Placed};

/// Ghosts whose nodes are remembered, to tell when a miss would have been a hit.
const GHOST_NODES_MAX: usize = 64;
/// Sets of fields that no key may have any more before they are forgotten, beside two for each key.
const FIELD_SETS_SPARE: usize = 64;

/// A slab that went.
#[derive(Debug)]
pub(crate) struct Ghost {
    pub(crate) number: u32,
    pub(crate) node: SlabNode,
}

pub(crate) struct State {
    pub(crate) keys: Keys,
    pub(crate) fields: Vec<Field>,
    pub(crate) field_numbers: HashMap<(Arc<str>, ValueType), FieldNumber>,
    /// What keys have as their fields.
    pub(crate) field_sets: HashSet<Arc<[FieldNumber]>>,
    pub(crate) open: BTreeMap<FieldNumber, Bucket>,
    /// The bucket that is being made into slabs, still read.
    pub(crate) sealing: Option<(FieldNumber, Arc<Bucket>)>,
    pub(crate) open_bytes: usize,
    /// Apart from one another: most slots of a cache that fills are free.
    pub(crate) slabs: Vec<Option<Box<SlabMeta>>>,
    pub(crate) free: Vec<u32>,
    /// Those of them in which a slab may lie still that is none any more, but would be one again after a restart.
    pub(crate) left: BTreeSet<u32>,
    pub(crate) policy: Box<dyn Policy>,
    /// Slabs that went, the last ones.
    pub(crate) ghosts: VecDeque<Ghost>,
    /// Where slabs are that the policy speaks of: it knows each by a number that is never used again for another.
    pub(crate) slots: HashMap<u32, u32>,
    pub(crate) superblock: Superblock,
    pub(crate) deletes: Vec<Delete>,
    /// Deletes by key.
    pub(crate) hidden: HashMap<Key, Vec<Hidden>>,
    pub(crate) next_serial: u64,
    pub(crate) next_sequence: u64,
    /// How many bytes in slabs an uncompressed one of a field takes, as last seen.
    pub(crate) compressed: HashMap<FieldNumber, f64>,
    /// Fields that are due for compaction.
    pub(crate) due: VecDeque<FieldNumber>,
}

impl State {
    pub(crate) fn new(superblock: Superblock, slabs: usize, policy: Box<dyn Policy>) -> Self {
        Self {
            keys: Keys::default(),
            fields: Vec::new(),
            field_numbers: HashMap::new(),
            field_sets: HashSet::new(),
            open: BTreeMap::new(),
            sealing: None,
            open_bytes: 0,
            slabs: vec![None; slabs],
            free: (0..slabs as u32).rev().collect(),
            left: BTreeSet::new(),
            policy,
            ghosts: VecDeque::new(),
            slots: HashMap::new(),
            superblock,
            deletes: Vec::new(),
            hidden: HashMap::new(),
            next_serial: 1,
            next_sequence: 1,
            compressed: HashMap::new(),
            due: VecDeque::new(),
        }
    }

    pub(crate) fn sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }

    pub(crate) fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial - 1
    }

    pub(crate) fn field(&mut self, name: &Arc<str>, value_type: ValueType) -> FieldNumber {
        let fields = &mut self.fields;
        *self.field_numbers.entry((name.clone(), value_type)).or_insert_with(|| {
            fields.push(Field { name: name.clone(), value_type, slabs: crate::index::VirtualRanges::default() });
            fields.len() as FieldNumber - 1
        })
    }

    pub(crate) fn hidden(&self, key: &Key) -> Vec<Hidden> {
        self.hidden.get(key).cloned().unwrap_or_default()
    }

    pub(crate) fn hide(&mut self, delete: Delete) {
        let hidden = Hidden { span: delete.span, sequence: delete.sequence };
        self.hidden.entry(delete.key).or_default().push(hidden);
        self.deletes.push(delete);
    }

    pub(crate) fn meta(&self, slab: u32) -> Option<&SlabMeta> {
        self.slabs.get(slab as usize)?.as_deref()
    }

    /// Gives back a slot, whatever lies in it.
    pub(crate) fn release(&mut self, slot: u32) {
        self.free.push(slot);
        self.left.insert(slot);
    }

    /// Makes a slab known that lies in a slot.
    pub(crate) fn install(&mut self, slot: u32, head: &Head, records: &[Placed]) -> FieldNumber {
        let field = self.field(&head.field, head.value_type);
        let meta = SlabMeta {
            serial: head.serial,
            sequence_min: head.sequence_min,
            sequence_max: head.sequence_max,
            field,
            span: head.span,
            header_bytes: head.header_bytes,
            used_bytes: head.used_bytes,
            points: head.points,
            series: head.series,
            is_compacted: head.is_compacted,
        };
        if let Some(known) = self.slabs.get_mut(slot as usize) {
            *known = Some(Box::new(meta));
        }
        self.left.remove(&slot);
        let bloom = records.iter().fold(0, |bloom, placed| bloom | SlabNode::bloom_bits(&placed.record.key));
        if let Some(field) = self.fields.get_mut(field as usize) {
            field.slabs.insert(SlabNode { slab: slot, bloom, span: head.span });
        }
        self.add_places(slot, head, records);
        self.slots.insert(head.serial as u32, slot);
        self.policy.insert(head.serial as u32, head.center);
        field
    }

    fn add_places(&mut self, slot: u32, head: &Head, records: &[Placed]) {
        for placed in records {
            // A key without anything cached is not looked up, so nothing needs its places.
            if let (Some(entry), Some(place)) =
                (self.keys.get_mut(&placed.record.key), SlabLocation::new(slot, head.span, head.header_bytes, placed))
            {
                entry.locations.push(place);
            }
        }
    }

    /// Takes a slab out of every index but the keys' extents; its slot is not free yet.
    pub(crate) fn uninstall(&mut self, slot: u32) -> Option<SlabMeta> {
        let meta = *self.slabs.get_mut(slot as usize)?.take()?;
        if let Some(field) = self.fields.get_mut(meta.field as usize) {
            let nodes = field.slabs.ranges().iter().flat_map(|range| &range.nodes);
            if let Some(node) = nodes.copied().find(|node| node.slab == slot) {
                self.ghosts.push_back(Ghost { number: meta.serial as u32, node });
            }
            field.slabs.remove(slot, meta.span);
        }
        while self.ghosts.len() > GHOST_NODES_MAX {
            self.ghosts.pop_front();
        }
        self.slots.remove(&(meta.serial as u32));
        self.policy.remove(meta.serial as u32);
        Some(meta)
    }

    /// Forgets where keys are in a slab that is gone, and with `and_extents` also that they are cached.
    pub(crate) fn forget_header(&mut self, slot: u32, header: &Header, and_extents: bool) {
        for placed in &header.records {
            let Some(entry) = self.keys.get_mut(&placed.record.key) else {
                continue;
            };
            entry.locations.forget(slot);
            if and_extents {
                placed.record.intervals.iter().for_each(|interval| entry.extents.remove(interval.span));
            }
            self.drop_if_empty(&placed.record.key);
        }
    }

    pub(crate) fn drop_if_empty(&mut self, key: &Key) {
        if self.keys.get(key).is_some_and(|entry| entry.extents.is_empty()) {
            self.keys.remove(key);
        }
    }

    /// Numbers of fields, the same for all keys that have them.
    pub(crate) fn field_set(&mut self, numbers: &[FieldNumber]) -> Arc<[FieldNumber]> {
        if let Some(known) = self.field_sets.get(numbers) {
            return known.clone();
        }
        if self.field_sets.len() > FIELD_SETS_SPARE + 2 * self.keys.len() {
            self.field_sets.retain(|set| Arc::strong_count(set) > 1);
        }
        let set: Arc<[FieldNumber]> = numbers.into();
        self.field_sets.insert(set.clone());
        set
    }

    pub(crate) fn entry(&mut self, key: Key) -> &mut KeyEntry {
        self.keys.entry(key).or_default()
    }
}

impl State {
    /// Says of a slab that compacting it again would gain nothing.
    pub(crate) fn mark_compacted(&mut self, slot: u32, serial: u64) {
        let known = self.slabs.get_mut(slot as usize).and_then(Option::as_mut);
        if let Some(meta) = known.filter(|meta| meta.serial == serial) {
            meta.is_compacted = true;
        }
    }
}
