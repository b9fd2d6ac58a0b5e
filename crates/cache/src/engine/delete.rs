//! What is no longer true. A delete is on flash before it returns: slabs outlive the process, and what they say of the key must stay
//! hidden as long as one of them does.

use std::io;

use super::state::State;
use super::{Cache, Shared};
use crate::flash::{DELETES_MAX, Delete, new_incarnation};
use crate::{Key, Span};

impl Cache {
    /// Forgets a key's answer for a span, durably. Returns whether any of it was cached.
    pub fn delete(&self, key: Key, span: Span) -> io::Result<bool> {
        self.shared.delete(key, span)
    }

    /// Forgets everything, durably.
    pub fn clear(&self) -> io::Result<()> {
        let shared = &self.shared;
        let _compacting = shared.compacting.lock();
        let _sealing = shared.sealing.lock();
        let mut state = shared.state.lock();
        shared.clear(&mut state)
    }

    /// Gives what is cached of a key within a span another stamp: it was found to hold still.
    pub fn restamp(&self, key: Key, span: Span, stamp: u64) {
        if let Some(entry) = self.shared.state.lock().keys.get_mut(&key) {
            entry.extents.restamp(span, stamp);
        }
    }
}

impl Shared {
    fn delete(&self, key: Key, span: Span) -> io::Result<bool> {
        if span.is_empty() {
            return Ok(false);
        }
        if self.state.lock().deletes.len() >= DELETES_MAX {
            self.make_room_for_deletes()?;
        }
        // The file is written under the lock: deletes are rare, and none may overtake another.
        let mut state = self.state.lock();
        let had_any = state.keys.get(&key).is_some_and(|entry| entry.extents.within(span).next().is_some());
        if let Some(entry) = state.keys.get_mut(&key) {
            entry.extents.remove(span);
        }
        state.drop_if_empty(&key);
        let sequence = state.sequence();
        state.hide(Delete { key, span, sequence });
        self.flash.append_delete(&state.superblock, &state.deletes)?;
        Ok(had_any)
    }

    /// Forgets deletes that hide nothing any more; if that are too few, everything.
    fn make_room_for_deletes(&self) -> io::Result<()> {
        let _compacting = self.compacting.lock();
        let _sealing = self.sealing.lock();
        let mut state = self.state.lock();
        let oldest = state.oldest_sequence();
        let mut kept = state.deletes.clone();
        kept.retain(|delete| delete.sequence >= oldest);
        if kept.len() > DELETES_MAX / 2 {
            return self.clear(&mut state);
        }
        // Slabs that went but lie there still would be found after a restart, without what hides them.
        for slot in state.left.clone() {
            self.flash.erase_slot(slot)?;
            state.left.remove(&slot);
        }
        // This makes all slabs durable too: none that was overwritten comes back without the deletes that hid it.
        let mut superblock = state.superblock;
        self.flash.replace_deletes(&mut superblock, &kept)?;
        state.superblock = superblock;
        state.deletes.clear();
        state.hidden.clear();
        kept.into_iter().for_each(|delete| state.hide(delete));
        Ok(())
    }

    fn clear(&self, state: &mut State) -> io::Result<()> {
        let incarnation = new_incarnation(&self.platform)?;
        let superblock = crate::flash::Superblock { incarnation, ..state.superblock };
        self.flash.write_superblock(&superblock)?;
        let slabs = state.slabs.len();
        let (next_serial, next_sequence) = (state.next_serial, state.next_sequence);
        *state = State::new(superblock, slabs, self.options.policy.policy(slabs));
        (state.next_serial, state.next_sequence) = (next_serial, next_sequence);
        Ok(())
    }
}

impl State {
    /// The oldest sequence of anything in slabs or buckets.
    fn oldest_sequence(&self) -> u64 {
        let slabs = self.slabs.iter().flatten().map(|meta| meta.sequence_min);
        let open = self.open.values().filter_map(crate::open_slab::Bucket::sequence_min);
        slabs.chain(open).min().unwrap_or(u64::MAX)
    }
}
