//! Two partitions: most slabs wait in the order in which they came, oldest first out; old ones that are read again move to a
//! partition of their own, the least recently used of which goes back. Ghosts of slabs that left tell which of the two should grow.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::Policy;
use super::plain::Lru;

/// See the module.
#[derive(Debug)]
pub struct TsCache {
    slabs_max: usize,
    ghosts_max: usize,
    /// The newer and the older half of the FIFO partition.
    newer: BTreeSet<(i64, u32)>,
    older: BTreeSet<(i64, u32)>,
    lru: Lru,
    /// When each slab came: a count.
    times: HashMap<u32, i64>,
    arrived: i64,
    /// Slabs that the LRU partition may hold.
    lru_max: usize,
    /// Slabs that left the LRU partition, and those that left the cache.
    lru_ghosts: VecDeque<u32>,
    fifo_ghosts: VecDeque<u32>,
    hits: Hits,
}

/// Hits since the last decision.
#[derive(Debug, Default)]
struct Hits {
    lru_ghosts: u64,
    fifo_ghosts: u64,
    lru_coldest: u64,
    fifo_oldest: u64,
}

impl TsCache {
    /// For so many slabs, remembering so many that left; the paper remembers one. Partitions start at 1:2.
    pub fn new(slabs_max: usize, ghosts_max: usize) -> Self {
        Self {
            slabs_max,
            ghosts_max,
            newer: BTreeSet::new(),
            older: BTreeSet::new(),
            lru: Lru::default(),
            times: HashMap::new(),
            arrived: 0,
            lru_max: slabs_max / 3,
            lru_ghosts: VecDeque::new(),
            fifo_ghosts: VecDeque::new(),
            hits: Hits::default(),
        }
    }

    fn insert_fifo(&mut self, slab: u32, time: i64) {
        let entry = (time, slab);
        let is_old = self.newer.first().is_none_or(|oldest| entry < *oldest);
        if is_old {
            self.older.insert(entry)
        } else {
            self.newer.insert(entry)
        };
        self.balance();
    }

    fn balance(&mut self) {
        while self.older.len() > self.newer.len() + 1 {
            let Some(entry) = self.older.pop_last() else { break };
            self.newer.insert(entry);
        }
        while self.newer.len() > self.older.len() {
            let Some(entry) = self.newer.pop_first() else { break };
            self.older.insert(entry);
        }
    }

    /// The least recently used go back to where their time puts them.
    fn demote(&mut self) {
        while self.lru.len() > self.lru_max {
            let Some(slab) = self.lru.evict() else { break };
            remember(&mut self.lru_ghosts, slab, self.ghosts_max);
            let time = self.times.get(&slab).copied().unwrap_or_default();
            self.insert_fifo(slab, time);
        }
    }

    /// The paper's three cases, decided at each eviction.
    fn tune(&mut self) {
        let hits = std::mem::take(&mut self.hits);
        let lru_gain = i128::from(hits.lru_ghosts) - i128::from(hits.fifo_oldest);
        let fifo_gain = i128::from(hits.fifo_ghosts) - i128::from(hits.lru_coldest);
        if lru_gain > fifo_gain {
            self.lru_max = (self.lru_max + 1).min(self.slabs_max.saturating_sub(1));
        } else if lru_gain < fifo_gain {
            self.lru_max = self.lru_max.saturating_sub(1);
        }
        self.demote();
    }

    fn count_ghosts(&mut self, slab: u32) {
        self.hits.lru_ghosts += u64::from(self.lru_ghosts.contains(&slab));
        self.hits.fifo_ghosts += u64::from(self.fifo_ghosts.contains(&slab));
    }
}

fn remember(ghosts: &mut VecDeque<u32>, slab: u32, ghosts_max: usize) {
    ghosts.push_back(slab);
    while ghosts.len() > ghosts_max {
        ghosts.pop_front();
    }
}

impl Policy for TsCache {
    fn insert(&mut self, slab: u32, _time: i64) {
        self.remove(slab);
        self.lru_ghosts.retain(|ghost| *ghost != slab);
        self.fifo_ghosts.retain(|ghost| *ghost != slab);
        self.arrived += 1;
        self.times.insert(slab, self.arrived);
        self.insert_fifo(slab, self.arrived);
    }

    fn touch(&mut self, slab: u32) {
        let Some(time) = self.times.get(&slab).copied() else {
            return;
        };
        self.count_ghosts(slab);
        if self.lru.contains(slab) {
            self.hits.lru_coldest += u64::from(self.lru.coldest().take(self.ghosts_max).any(|cold| cold == slab));
            self.lru.touch(slab);
        } else if self.older.contains(&(time, slab)) {
            self.hits.fifo_oldest += u64::from(self.older.iter().take(self.ghosts_max).any(|old| old.1 == slab));
            self.older.remove(&(time, slab));
            self.balance();
            self.lru_ghosts.retain(|ghost| *ghost != slab);
            self.lru.insert(slab, time);
            self.demote();
        }
    }

    fn missed(&mut self, slab: u32) {
        self.count_ghosts(slab);
    }

    fn evict(&mut self) -> Option<u32> {
        let oldest = self.older.pop_first().or_else(|| self.newer.pop_first());
        let slab = oldest.map(|(_, slab)| slab).or_else(|| self.lru.evict())?;
        self.times.remove(&slab);
        self.balance();
        remember(&mut self.fifo_ghosts, slab, self.ghosts_max);
        self.tune();
        Some(slab)
    }

    fn remove(&mut self, slab: u32) {
        let Some(time) = self.times.remove(&slab) else {
            return;
        };
        self.newer.remove(&(time, slab));
        self.older.remove(&(time, slab));
        self.lru.remove(slab);
        self.balance();
    }

    fn lru_share(&self) -> Option<f64> {
        Some(self.lru_max as f64 / self.slabs_max.max(1) as f64)
    }
}

#[cfg(test)]
impl TsCache {
    pub(super) fn is_in_lru(&self, slab: u32) -> bool {
        self.lru.contains(slab)
    }
}
