//! Which group a raw key means, without parsing it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use index::{GroupId, Slot};
use parking_lot::{RwLock, RwLockReadGuard};

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
    fn pack(self) -> Option<u64> {
        let fits = self.slot < 1 << SLOT_BITS && self.shard < SHARDS_MAX as usize;
        fits.then_some((self.shard as u64) << 52 | u64::from(self.slot) << 32 | u64::from(self.group))
    }

    fn unpack(word: u64) -> Self {
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
        for (place, byte) in bytes.iter().enumerate() {
            self.0 ^= u64::from(*byte) << (place % 8 * 8);
        }
    }

    fn write_u128(&mut self, value: u128) {
        self.0 = value as u64;
    }
}

pub(crate) type TargetsByHash<T> = HashMap<u128, T, BuildHasherDefault<HashIsKey>>;

/// Targets by the 128-bit hash of a raw key. Bounded; keeps no key bytes.
pub(crate) struct Keys {
    targets: RwLock<TargetsByHash<u64>>,
    keys_max: usize,
}

/// For looking up many keys at once.
pub(crate) struct KeysReader<'a>(RwLockReadGuard<'a, TargetsByHash<u64>>);

impl Keys {
    pub(crate) fn new(keys_max: usize) -> Self {
        Self { targets: RwLock::default(), keys_max }
    }

    pub(crate) fn reader(&self) -> KeysReader<'_> {
        KeysReader(self.targets.read())
    }

    /// Remembers targets. When there is no room, all are forgotten first: the slow path fills the map again.
    pub(crate) fn insert(&self, targets: impl Iterator<Item = (u128, Target)>) {
        let mut known = self.targets.write();
        for (hash, target) in targets {
            if known.len() >= self.keys_max {
                known.clear();
            }
            if let Some(word) = target.pack() {
                known.insert(hash, word);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.targets.read().len()
    }
}

impl KeysReader<'_> {
    pub(crate) fn get(&self, hash: u128) -> Option<Target> {
        self.0.get(&hash).copied().map(Target::unpack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_come_back_and_the_map_is_bounded() {
        let keys = Keys::new(3);
        let target = |group| Target { shard: 4095, group, slot: (1 << 20) - 1 };
        keys.insert((0..4u32).map(|group| (u128::from(group), target(group))));
        assert_eq!(keys.len(), 1);
        assert_eq!(keys.reader().get(3), Some(target(3)));
        keys.insert([(9, Target { slot: 1 << 20, ..target(1) })].into_iter());
        assert_eq!(keys.reader().get(9), None, "what does not fit is looked up anew each time");
    }
}
