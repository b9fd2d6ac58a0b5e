//! Fewer slabs of the same points: what several keys have in common is kept once, what was deleted or belongs to no key is left out, and what
//! half-empty slabs hold moves together.

mod merge;

use std::io;
use std::sync::atomic::Ordering;

use super::{Cache, Shared};
use crate::index::{FieldNumber, SlabMeta};
use crate::slab::{Built, SlabBuilder, Unit};

/// Points that one compaction takes at most: they are all in memory, some forty bytes each.
const POINTS_MAX: u64 = 2 << 20;
/// Compacted slabs must take less than this share of what they replace, in hundredths: else nothing is written.
const WORTH_HUNDREDTHS: usize = 90;
/// How often a unit that does not fit into a slab is halved.
const HALVINGS_MAX: u32 = 12;

impl Cache {
    /// Fields that wait for [`Cache::maintain`].
    pub fn due(&self) -> usize {
        self.shared.state.lock().due.len()
    }
}

impl Shared {
    /// Compacts the slabs of one field that are due. Returns whether others are.
    pub(super) fn compact_one(&self) -> io::Result<bool> {
        let _compacting = self.compacting.lock();
        let Some(field) = self.state.lock().due.pop_front() else {
            return Ok(false);
        };
        let inputs = self.choose(field);
        if inputs.len() > 1 {
            self.compact(field, &inputs)?;
        }
        Ok(!self.state.lock().due.is_empty())
    }

    /// The newest of the slabs that were not compacted, in the virtual range that has the most of them.
    fn choose(&self, field: FieldNumber) -> Vec<(u32, SlabMeta)> {
        let state = self.state.lock();
        let Some(known) = state.fields.get(field as usize) else {
            return Vec::new();
        };
        let fresh = |slab: u32| state.meta(slab).filter(|meta| !meta.is_compacted).map(|meta| (slab, *meta));
        let ranges = known.slabs.ranges().iter();
        let ranges = ranges.map(|range| range.nodes.iter().filter_map(|node| fresh(node.slab)).collect::<Vec<_>>());
        let mut slabs = ranges.max_by_key(Vec::len).unwrap_or_default();
        slabs.sort_by_key(|(_, meta)| std::cmp::Reverse(meta.span.end));
        let mut points = 0;
        let is_affordable = |slab: &(u32, SlabMeta)| {
            points += u64::from(slab.1.points);
            points <= POINTS_MAX
        };
        slabs.truncate(self.options.compaction_slabs);
        let slabs: Vec<_> = slabs.into_iter().take_while(is_affordable).collect();
        let bytes: u64 = slabs.iter().map(|(_, meta)| u64::from(meta.used_bytes)).sum();
        let written = self.counters.compacted_bytes.load(Ordering::Relaxed) + bytes * WORTH_HUNDREDTHS as u64 / 100;
        let sealed = self.counters.sealed_bytes.load(Ordering::Relaxed) as f64;
        let is_within_share = written as f64 <= sealed * self.options.compaction_write_share_max;
        if is_within_share { slabs } else { Vec::new() }
    }

    fn compact(&self, field: FieldNumber, inputs: &[(u32, SlabMeta)]) -> io::Result<()> {
        let Some(mut units) = self.merge(field, inputs) else {
            return Ok(());
        };
        units.sort_by_key(|unit| std::cmp::Reverse(unit.span().map(|span| span.end)));
        let before: usize = inputs.iter().map(|(_, meta)| meta.used_bytes as usize).sum();
        let Some(built) = self.build(field, units) else {
            return Ok(());
        };
        let after: usize = built.iter().map(|slab| slab.bytes.len()).sum();
        if after * 100 > before * WORTH_HUNDREDTHS && built.len() >= inputs.len() {
            let mut state = self.state.lock();
            inputs.iter().for_each(|(slot, meta)| state.mark_compacted(*slot, meta.serial));
            return Ok(());
        }
        let mut placed = Vec::new();
        for slab in built {
            let slot = self.take_slot()?;
            // Should this fail, the slots written so far are lost to the cache until it is opened again; the old slabs stay.
            self.flash.write_slot(slot, &slab.bytes)?;
            self.counters.compacted_bytes.fetch_add(slab.bytes.len() as u64, Ordering::Relaxed);
            placed.push((slot, slab));
        }
        self.exchange(inputs, &placed);
        self.counters.add(&self.counters.compactions, 1);
        self.counters.add(&self.counters.slabs_compacted, inputs.len() as u64);
        self.counters.add(&self.counters.slabs_made, placed.len() as u64);
        Ok(())
    }

    /// Slabs of all units; `None` if one fits nowhere.
    fn build(&self, field: FieldNumber, units: Vec<Unit>) -> Option<Vec<Built>> {
        let new = || {
            let state = self.state.lock();
            let field = state.fields.get(field as usize)?;
            Some(SlabBuilder::new(self.options.slab_bytes, field.value_type, field.name.clone()))
        };
        let finish = |builder: SlabBuilder| {
            let (incarnation, serial) = {
                let mut state = self.state.lock();
                (state.superblock.incarnation, state.serial())
            };
            builder.finish(incarnation, serial, true)
        };
        let mut built = Vec::new();
        let mut builder = new()?;
        let mut rest: Vec<(Unit, u32)> = units.into_iter().rev().map(|unit| (unit, 0)).collect();
        while let Some((unit, halvings)) = rest.pop() {
            if builder.add(&unit) {
                continue;
            }
            if builder.is_empty() {
                let (earlier, later) = unit.halve().filter(|_| halvings < HALVINGS_MAX)?;
                rest.push((earlier, halvings + 1));
                rest.push((later, halvings + 1));
            } else {
                built.push(finish(std::mem::replace(&mut builder, new()?)));
                rest.push((unit, halvings));
            }
        }
        if !builder.is_empty() {
            built.push(finish(builder));
        }
        Some(built)
    }

    /// The new slabs in, the old ones out, at once for all readers.
    fn exchange(&self, inputs: &[(u32, SlabMeta)], placed: &[(u32, Built)]) {
        let headers: Vec<_> = inputs.iter().map(|(slot, meta)| (*slot, meta, self.read_header(*slot, meta))).collect();
        let mut state = self.state.lock();
        for (slot, built) in placed {
            state.install(*slot, &built.head, &built.records);
        }
        for (slot, meta, header) in headers {
            // One that was evicted meanwhile is gone, and so is what it answered for.
            if state.meta(slot).is_none_or(|known| known.serial != meta.serial) {
                continue;
            }
            state.uninstall(slot);
            match header {
                Ok(header) => state.forget_header(slot, &header, false),
                Err(_) => state.keys.values_mut().for_each(|entry| entry.locations.forget(slot)),
            }
            state.release(slot);
        }
    }
}
