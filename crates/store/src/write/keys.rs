//! Which group a raw key means, without parsing it.

use std::sync::atomic::{AtomicU64, Ordering};

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashTable;
use index::{GroupId, Slot};
use tracing_mutex::parkinglot::{RwLock, RwLockReadGuard};

/// Where a row goes: shard, group, and for lone series the slot of `value`. In one word: 12, 32 and 20 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) shard: usize,
    pub(crate) group: GroupId,
    pub(crate) slot: Slot,
}

/// Shards that a folder may have: what fits a target.
pub(crate) const SHARDS_MAX: u32 = 1 << 12;
const SLOT_BITS: u32 = 20;

impl Target {
    pub(crate) fn pack(self) -> Option<u64> {
        let fits = self.slot < 1 << SLOT_BITS && self.shard < SHARDS_MAX as usize;
        fits.then_some((self.shard as u64) << 52 | u64::from(self.slot) << 32 | u64::from(self.group))
    }

    pub(crate) fn unpack(word: u64) -> Self {
        Self { shard: (word >> 52) as usize, slot: (word >> 32) as u32 & ((1 << SLOT_BITS) - 1), group: word as u32 }
    }
}

/// Keys are hashes already.
#[derive(Default)]
pub(crate) struct HashIsKey(u64);

impl Hasher for HashIsKey {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            self.0 ^= u64::from(*byte) << (index % 8 * 8);
        }
    }

    fn write_u128(&mut self, value: u128) {
        self.0 = value as u64;
    }
}

pub(crate) type TargetsByHash<T> = HashMap<u128, T, BuildHasherDefault<HashIsKey>>;

/// Targets by the 128-bit hash of a raw key. Bounded; keeps no key bytes.
///
/// Clients mostly send the same series in the same order again, so keys lie in the order in which they came first, and the
/// next one is looked for after the last one that was found. Only where it is not there do tables of places help: with many series
/// a table is a wait for memory, and these waits were a tenth of all that a sample cost.
///
/// The places are split into tables, so that growing moves one small table. They get shares that grow evenly from one to two, so
/// that they double one after another and never all at once: some 32 bytes a key at any time, keys included.
pub(crate) struct Keys {
    tables: RwLock<Tables>,
    targets_max: usize,
    /// How often all were forgotten because groups left the index.
    generation: AtomicU64,
}

struct Tables {
    /// Of each value of the bits that say the table, its number.
    shares: Vec<u16>,
    parts: Vec<HashTable<u32>>,
    keys: InOrder,
}

/// Halves of a hash and the target, packed to 24 bytes.
#[derive(Clone, Copy)]
struct CachedKey {
    high: u64,
    low: u64,
    target: u64,
}

impl CachedKey {
    fn is_of(&self, (high, low): (u64, u64)) -> bool {
        (self.high, self.low) == (high, low)
    }
}

/// Keys by index, in blocks of the same length, so that growing moves none of them.
#[derive(Default)]
struct InOrder {
    blocks: Vec<Vec<CachedKey>>,
    count: usize,
}

/// Keys of a piece.
const BLOCK_KEYS: usize = 1 << 12;

impl InOrder {
    #[inline]
    fn get(&self, index: u32) -> Option<&CachedKey> {
        let index = index as usize;
        self.blocks.get(index / BLOCK_KEYS)?.get(index % BLOCK_KEYS)
    }

    fn set_target(&mut self, index: u32, target: u64) {
        let index = index as usize;
        if let Some(known) = self.blocks.get_mut(index / BLOCK_KEYS).and_then(|piece| piece.get_mut(index % BLOCK_KEYS))
        {
            known.target = target;
        }
    }

    /// Adds a key; its index, or nothing if indexes have run out.
    fn push(&mut self, key: CachedKey) -> Option<u32> {
        let index = u32::try_from(self.count).ok()?;
        match self.blocks.last_mut().filter(|piece| piece.len() < BLOCK_KEYS) {
            Some(piece) => piece.push(key),
            None => {
                let mut piece = Vec::with_capacity(BLOCK_KEYS);
                piece.push(key);
                self.blocks.push(piece);
            }
        }
        self.count += 1;
        Some(index)
    }
}

/// For looking up many keys at once.
pub(crate) struct KeysReader<'a>(RwLockReadGuard<'a, Tables>);

const TABLES: u16 = 256;
/// Bits of the hash that say the table.
const SHARE_BITS: u32 = 14;

impl Tables {
    fn empty() -> Self {
        let mut parts = Vec::new();
        parts.resize_with(usize::from(TABLES), HashTable::new);
        // The table of x in 0..1 is the logarithm of 1 + x.
        let whole = f64::from(1u32 << SHARE_BITS);
        let table = |share: u32| ((1.0 + f64::from(share) / whole).log2() * f64::from(TABLES)) as u16;
        let shares = (0..1 << SHARE_BITS).map(|share| table(share).min(TABLES - 1)).collect();
        Self { shares, parts, keys: InOrder::default() }
    }

    /// Where a key is, and its target.
    fn find(&self, hash: u128) -> Option<(u32, u64)> {
        let halves = halves(hash);
        let known = |index: u32| self.keys.get(index).filter(|known| known.is_of(halves));
        let index = *self.parts.get(self.table_of(hash)?)?.find(halves.0, |index| known(*index).is_some())?;
        known(index).map(|known| (index, known.target))
    }

    fn insert(&mut self, hash: u128, target: u64) {
        if let Some((index, _)) = self.find(hash) {
            self.keys.set_target(index, target);
            return;
        }
        let (high, low) = halves(hash);
        let Some(table) = self.table_of(hash) else { return };
        let Some(index) = self.keys.push(CachedKey { high, low, target }) else { return };
        let hash_of = |index: &u32| self.keys.get(*index).map_or(0, |known| known.high);
        if let Some(table) = self.parts.get_mut(table) {
            table.insert_unique(high, index, hash_of);
        }
    }

    fn table_of(&self, hash: u128) -> Option<usize> {
        self.shares.get(hash as usize & ((1 << SHARE_BITS) - 1)).map(|table| usize::from(*table))
    }
}

fn halves(hash: u128) -> (u64, u64) {
    // Tests and weak hashes fill the low half only.
    let (high, low) = ((hash >> 64) as u64, hash as u64);
    (high ^ low.rotate_left(17), low)
}

impl Keys {
    pub(crate) fn new(targets_max: usize) -> Self {
        Self { tables: RwLock::new(Tables::empty()), targets_max, generation: AtomicU64::new(0) }
    }

    pub(crate) fn reader(&self) -> KeysReader<'_> {
        KeysReader(self.tables.read())
    }

    /// Changes when groups leave the index: a target that was looked up before may stand for nothing.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Begins a new generation in which all targets stay what they are.
    pub(crate) fn look_again(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Forgets all, because groups have left the index.
    pub(crate) fn clear(&self) {
        let mut known = self.tables.write();
        *known = Tables::empty();
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Remembers targets that were found in a generation, if it is still the same, in the order in which they will be requested
    /// again. When there is no room, all are forgotten first: the slow path fills the map again.
    pub(crate) fn insert(&self, generation: u64, targets: impl Iterator<Item = (u128, Target)>) {
        let mut known = self.tables.write();
        if generation != self.generation() {
            return;
        }
        for (hash, target) in targets {
            if known.keys.count >= self.targets_max {
                *known = Tables::empty();
            }
            if let Some(word) = target.pack() {
                known.insert(hash, word);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.tables.read().keys.count
    }

    /// Bytes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let known = self.tables.read();
        let tables: usize = known.parts.iter().map(|table| size_of_val(table) + table.allocation_size()).sum();
        tables + known.keys.blocks.len() * BLOCK_KEYS * size_of::<CachedKey>()
    }
}

impl KeysReader<'_> {
    /// The targets of keys by their hashes, `None` for each that is not known.
    pub(crate) fn targets(&self, hashes: impl Iterator<Item = u128>) -> Vec<Option<Target>> {
        let known = &*self.0;
        let (mut next, mut last) = (0, None);
        let target = |hash| {
            // Rows of one key come together where a request has several of it, known or not.
            if let Some((_, target)) = last.filter(|(of, _)| *of == hash) {
                return target;
            }
            let expected = known.keys.get(next).filter(|known| known.is_of(halves(hash)));
            let found = match expected {
                Some(expected) => Some((next, expected.target)),
                None => known.find(hash),
            };
            next = found.map_or(next, |(index, _)| index.wrapping_add(1));
            let target = found.map(|(_, word)| Target::unpack(word));
            last = Some((hash, target));
            target
        };
        hashes.map(target).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_costs_little() {
        let keys = Keys::new(1 << 20);
        let target = Target { shard: 0, group: 1, slot: 0 };
        for count in [100_000u32, 300_000, 500_000] {
            let hash = |number: u32| u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
            keys.insert(0, (0..count).map(|number| (hash(number), target)));
            let bytes = keys.memory_bytes() / count as usize;
            assert!((28..=36).contains(&bytes), "{bytes} bytes a key with {count}");
        }
    }

    #[test]
    fn targets_come_back_and_the_map_is_bounded() {
        let keys = Keys::new(3);
        let target = |group| Target { shard: 4095, group, slot: (1 << 20) - 1 };
        keys.insert(0, (0..4u32).map(|group| (u128::from(group), target(group))));
        assert_eq!(keys.len(), 1);
        let get = |hash| keys.reader().targets([hash].into_iter())[0];
        assert_eq!(get(3), Some(target(3)));
        keys.insert(0, [(9, Target { slot: 1 << 20, ..target(1) })].into_iter());
        assert_eq!(get(9), None, "what does not fit is looked up anew each time");
    }

    #[test]
    fn keys_are_found_in_any_order() {
        let keys = Keys::new(1 << 20);
        let target = |group| Target { shard: 0, group, slot: 1 };
        // In the way of each other: many have the same low half, or the same bits by which tables tell keys apart.
        let hash = |number: u32| u128::from(number % 977).wrapping_mul(1 << 57 | 1) | u128::from(number / 977) << 100;
        let is_known = |number: &u32| !number.is_multiple_of(3);
        let known = || (0..20_000u32).filter(is_known).map(|number| (hash(number), target(number)));
        keys.insert(0, known().map(|(hash, _)| (hash, target(0))));
        keys.insert(0, known());
        let orders: [Vec<u32>; 5] = [
            (0..20_000).collect(),
            (0..20_000).rev().collect(),
            (0..20_000).filter(is_known).collect(),
            (0..20_000).map(|number| number * 7_919 % 20_000).collect(),
            (0..20_000).map(|number| number / 5).collect(),
        ];
        for order in orders {
            let found = keys.reader().targets(order.iter().map(|number| hash(*number)));
            let expected: Vec<_> = order.iter().map(|number| is_known(number).then(|| target(*number))).collect();
            assert_eq!(found, expected);
        }
        assert_eq!(keys.len(), known().count());
    }
}
