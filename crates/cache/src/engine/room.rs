//! A slot for a slab: a free one, or that of the slab which is worth the least.

use std::io;
use std::sync::atomic::Ordering;

use super::Shared;
use crate::index::SlabMeta;
use crate::slab::Header;

impl Shared {
    /// Takes a slot that nothing is in.
    pub(super) fn take_slot(&self) -> io::Result<u32> {
        let (slot, meta) = {
            let mut state = self.state.lock();
            if let Some(slot) = state.free.pop() {
                return Ok(slot);
            }
            let number = state.policy.evict();
            let slot = number.and_then(|number| state.slots.get(&number).copied());
            let slot =
                slot.ok_or_else(|| io::Error::other("all slabs of the cache are in use for a moment: try again"))?;
            (slot, state.uninstall(slot))
        };
        if let Some(meta) = meta {
            self.forget_slab(slot, &meta);
        }
        self.counters.slabs_evicted.fetch_add(1, Ordering::Relaxed);
        Ok(slot)
    }

    /// Takes back what the index says of a slab that is no longer in it, as its header tells.
    pub(super) fn forget_slab(&self, slot: u32, meta: &SlabMeta) {
        let header = self.read_header(slot, meta);
        let mut state = self.state.lock();
        match header {
            Ok(header) => state.forget_header(slot, &header, true),
            // It is unknown which keys were in it: their spans are found missing when they are asked for.
            Err(_) => state.keys.values_mut().for_each(|entry| entry.locations.forget(slot)),
        }
    }

    pub(super) fn read_header(&self, slot: u32, meta: &SlabMeta) -> io::Result<Header> {
        let (bytes, range) = self.flash.read_slot(slot, 0, meta.header_bytes)?;
        let header = Header::decode(bytes.get(range).unwrap_or_default());
        let header = header.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        if header.head.serial == meta.serial {
            Ok(header)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the slot holds another slab"))
        }
    }
}
