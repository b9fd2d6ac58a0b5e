//! Which slab goes when room is needed: decisions over numbers, without a slab at hand. The cache and its simulator run the same
//! code.

mod plain;
mod sieve;
mod tscache;

pub use plain::{Fifo, Lru, OldestData};
pub use sieve::Sieve;
pub use tscache::TsCache;

/// Decides which slab goes next.
pub trait Policy: Send {
    /// A slab is there now, whose data is of about that time.
    fn insert(&mut self, slab: u32, time: i64);

    /// A slab was read.
    fn touch(&mut self, slab: u32);

    /// A slab that is gone would have been read.
    fn missed(&mut self, _slab: u32) {}

    /// Takes the slab out that is worth the least; `None` if there are none.
    fn evict(&mut self) -> Option<u32>;

    /// A slab is gone for another reason.
    fn remove(&mut self, slab: u32);

    /// Which share of the slabs the LRU partition may have, where there is one.
    fn lru_share(&self) -> Option<f64> {
        None
    }
}

/// The policies that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyKind {
    /// What came first goes first.
    Fifo,
    /// The oldest data goes first, whenever it came.
    OldestData,
    /// The least recently used goes first.
    Lru,
    /// FIFO and LRU partitions that tune their sizes, as in the paper: section 3.6.
    TsCache,
    /// SIEVE (Zhang, Yang, Yue, Vigfusson, Rashmi: SIEVE is Simpler than LRU, NSDI 2024).
    Sieve,
}

impl PolicyKind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Fifo, Self::OldestData, Self::Lru, Self::TsCache, Self::Sieve];

    /// Its name, for people and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::OldestData => "oldest-data",
            Self::Lru => "lru",
            Self::TsCache => "tscache",
            Self::Sieve => "sieve",
        }
    }

    /// The policy for so many slabs.
    pub fn policy(self, slabs: usize) -> Box<dyn Policy> {
        match self {
            Self::Fifo => Box::<Fifo>::default(),
            Self::OldestData => Box::<OldestData>::default(),
            Self::Lru => Box::<Lru>::default(),
            Self::TsCache => Box::new(TsCache::new(slabs, 1)),
            Self::Sieve => Box::<Sieve>::default(),
        }
    }
}

#[cfg(test)]
mod tests;
