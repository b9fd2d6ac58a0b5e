//! A bucket into slabs.

use std::io;
use std::sync::Arc;

use super::Shared;
use super::state::State;
use crate::Key;
use crate::index::FieldNumber;
use crate::open_slab::{Batch, Bucket};
use crate::slab::{Built, SlabBuilder, Unit};

/// Units that may be too large for what is left of a slab before it is closed: the next may be smaller.
const MISFITS_MAX: usize = 16;

type Units = Vec<(Unit, Key, Vec<Arc<Batch>>)>;

impl Shared {
    /// The field with the most points that are not on flash.
    pub(super) fn fullest_bucket(&self) -> Option<FieldNumber> {
        let state = self.state.lock();
        state.open.iter().max_by_key(|(_, bucket)| bucket.memory_bytes()).map(|(field, _)| *field)
    }

    /// Makes slabs of a field's bucket. What does not fill one stays in memory, unless `all`.
    pub(super) fn seal(&self, field: FieldNumber, all: bool) -> io::Result<()> {
        let _sealing = self.sealing.lock();
        let Some(bucket) = self.take_bucket(field, all) else {
            return Ok(());
        };
        let hidden = |key: &Key| self.state.lock().hidden(key);
        let mut units = bucket.units(&hidden);
        let mut written = Ok(());
        let mut slabs = 0;
        while !units.is_empty() && written.is_ok() {
            let Some((builder, gathered)) = fill(self.builder(field), &mut units) else {
                self.split_first(&mut units);
                continue;
            };
            let is_full = !units.is_empty() || builder.size_bytes() > self.options.slab_bytes * 3 / 4;
            if slabs > 0 && !all && !is_full {
                units = gathered;
                break;
            }
            slabs += 1;
            written = self.write_slab(field, builder, &gathered);
            if written.is_err() {
                units.extend(gathered);
            }
        }
        self.end_sealing(field, units, written.is_ok());
        written
    }

    /// Halves a unit that is too large for a slab. If it has one time only it is forgotten, which makes a miss.
    fn split_first(&self, units: &mut Units) {
        let (unit, key, batches) = units.remove(0);
        match unit.halve() {
            Some((earlier, later)) => {
                let halves = [(earlier, key, batches.clone()), (later, key, batches)];
                units.splice(0..0, halves);
            }
            None => self.state.lock().forget_intervals(&unit),
        }
    }

    /// Sets the bucket aside where readers still find it. `None` if there is nothing worth a slab in it.
    fn take_bucket(&self, field: FieldNumber, all: bool) -> Option<Arc<Bucket>> {
        let mut state = self.state.lock();
        let crowded = state.open_bytes > self.options.open_bytes_max;
        let compressed = state.compressed.get(&field).copied().unwrap_or(0.5);
        let bytes = state.open.get(&field)?.slab_bytes(compressed);
        if !all && !crowded && bytes <= self.options.slab_bytes {
            return None;
        }
        let bucket = Arc::new(state.open.remove(&field)?);
        state.open_bytes = state.open_bytes.saturating_sub(bucket.memory_bytes());
        state.sealing = Some((field, bucket.clone()));
        Some(bucket)
    }

    fn builder(&self, field: FieldNumber) -> SlabBuilder {
        let state = self.state.lock();
        let known = state.fields.get(field as usize);
        let (name, value_type) = known
            .map_or_else(|| (Arc::from(""), crate::ValueType::F64), |field| (field.name.clone(), field.value_type));
        SlabBuilder::new(self.options.slab_bytes, value_type, name)
    }

    fn write_slab(&self, field: FieldNumber, builder: SlabBuilder, gathered: &Units) -> io::Result<()> {
        let (incarnation, serial) = {
            let mut state = self.state.lock();
            (state.superblock.incarnation, state.serial())
        };
        let built = builder.finish(incarnation, serial, false);
        let slot = self.take_slot()?;
        if let Err(error) = self.flash.write_slot(slot, &built.bytes) {
            self.state.lock().release(slot);
            return Err(error);
        }
        self.counters.add(&self.counters.slabs_sealed, 1);
        self.counters.add(&self.counters.sealed_bytes, built.bytes.len() as u64);
        self.install_sealed(slot, &built);
        let batches = gathered.iter().flat_map(|(_, _, batches)| batches);
        let points_bytes: usize = batches.map(|batch| batch.size_bytes()).sum();
        if points_bytes > 0 {
            let compressed = f64::from(built.head.used_bytes) / points_bytes as f64;
            self.state.lock().compressed.insert(field, compressed);
        }
        Ok(())
    }

    fn install_sealed(&self, slot: u32, built: &Built) {
        let mut state = self.state.lock();
        if built.head.incarnation != state.superblock.incarnation {
            state.release(slot);
            return;
        }
        let field = state.install(slot, &built.head, &built.records);
        state.note_due(field, built, self.options.compaction_slabs);
        drop(state);
        self.counters.wake();
    }

    /// Gives back what did not become a slab, and lets readers look in the slabs alone.
    fn end_sealing(&self, field: FieldNumber, left: Units, is_whole: bool) {
        let mut state = self.state.lock();
        let cleared = state.sealing.take().is_none();
        for (unit, key, batches) in left {
            if is_whole && !cleared {
                batches.into_iter().for_each(|batch| state.push_batch(field, key, batch));
            } else {
                state.forget_intervals(&unit);
            }
        }
    }
}

/// Moves units into the slab until it is full; with the slab those that went in. `None` if not even one fits.
fn fill(mut builder: SlabBuilder, units: &mut Units) -> Option<(SlabBuilder, Units)> {
    let mut gathered = Vec::new();
    let mut misfits = Vec::new();
    let mut rest = std::mem::take(units).into_iter();
    for unit in rest.by_ref() {
        if builder.add(&unit.0) {
            gathered.push(unit);
        } else {
            misfits.push(unit);
        }
        if misfits.len() >= MISFITS_MAX {
            break;
        }
    }
    units.extend(misfits);
    units.extend(rest);
    (!builder.is_empty()).then_some((builder, gathered))
}

impl State {
    /// Forgets that intervals are cached which are nowhere.
    pub(super) fn forget_intervals(&mut self, unit: &Unit) {
        for (key, intervals) in &unit.keys {
            if let Some(entry) = self.keys.get_mut(key) {
                intervals.iter().for_each(|interval| entry.extents.remove(interval.span));
            }
            self.drop_if_empty(key);
        }
    }

    /// Notes the field for compaction if the virtual range with the new slab has enough others that were not compacted.
    fn note_due(&mut self, field: FieldNumber, built: &Built, slabs: usize) {
        if slabs == 0 || self.due.contains(&field) {
            return;
        }
        let Some(known) = self.fields.get(field as usize) else {
            return;
        };
        let around =
            known.slabs.ranges().iter().find(|range| range.span.is_some_and(|span| span.contains(&built.head.span)));
        let nodes = around.map(|range| range.nodes.as_slice()).unwrap_or_default();
        let is_fresh = |slab: u32| self.meta(slab).is_some_and(|meta| !meta.is_compacted);
        if nodes.iter().filter(|node| is_fresh(node.slab)).count() >= slabs {
            self.due.push_back(field);
        }
    }
}
