//! First in, first out; oldest data first; least recently used.

use std::collections::{BTreeSet, HashMap};

use super::Policy;

/// What came first goes first, whatever is read.
#[derive(Debug, Default)]
pub struct Fifo {
    by_arrival: OldestData,
    arrived: i64,
}

impl Policy for Fifo {
    fn insert(&mut self, slab: u32, _time: i64) {
        self.arrived += 1;
        self.by_arrival.insert(slab, self.arrived);
    }

    fn touch(&mut self, _slab: u32) {}

    fn evict(&mut self) -> Option<u32> {
        self.by_arrival.evict()
    }

    fn remove(&mut self, slab: u32) {
        self.by_arrival.remove(slab);
    }
}

/// The oldest data goes first, whatever is read.
#[derive(Debug, Default)]
pub struct OldestData {
    queue: BTreeSet<(i64, u32)>,
    times: HashMap<u32, i64>,
}

impl Policy for OldestData {
    fn insert(&mut self, slab: u32, time: i64) {
        self.remove(slab);
        self.times.insert(slab, time);
        self.queue.insert((time, slab));
    }

    fn touch(&mut self, _slab: u32) {}

    fn evict(&mut self) -> Option<u32> {
        let (_, slab) = self.queue.pop_first()?;
        self.times.remove(&slab);
        Some(slab)
    }

    fn remove(&mut self, slab: u32) {
        if let Some(time) = self.times.remove(&slab) {
            self.queue.remove(&(time, slab));
        }
    }
}

/// The least recently used goes first.
#[derive(Debug, Default)]
pub struct Lru {
    queue: BTreeSet<(u64, u32)>,
    ticks: HashMap<u32, u64>,
    tick: u64,
}

impl Lru {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn contains(&self, slab: u32) -> bool {
        self.ticks.contains_key(&slab)
    }

    /// The slabs that go first.
    pub(super) fn coldest(&self) -> impl Iterator<Item = u32> {
        self.queue.iter().map(|(_, slab)| *slab)
    }
}

impl Policy for Lru {
    fn insert(&mut self, slab: u32, _time: i64) {
        self.remove(slab);
        self.tick += 1;
        self.ticks.insert(slab, self.tick);
        self.queue.insert((self.tick, slab));
    }

    fn touch(&mut self, slab: u32) {
        if self.contains(slab) {
            self.insert(slab, 0);
        }
    }

    fn evict(&mut self) -> Option<u32> {
        let (_, slab) = self.queue.pop_first()?;
        self.ticks.remove(&slab);
        Some(slab)
    }

    fn remove(&mut self, slab: u32) {
        if let Some(tick) = self.ticks.remove(&slab) {
            self.queue.remove(&(tick, slab));
        }
    }
}
