//! A cache of two generations, within a number of bytes.

use std::collections::HashMap;
use std::hash::Hash;

use crate::cache::number_hash::NumberHash;

/// Values by key, in two generations: what is looked up moves to the young one, and when that has half of all bytes, what is left of the
/// old one goes.
pub(crate) struct Generations<K, V> {
    young: Generation<K, V>,
    old: Generation<K, V>,
    bytes_max: usize,
}

struct Generation<K, V> {
    values: HashMap<K, (V, usize), NumberHash>,
    bytes: usize,
}

impl<K, V> Default for Generation<K, V> {
    fn default() -> Self {
        Self { values: HashMap::default(), bytes: 0 }
    }
}

impl<K: Eq + Hash, V: Clone> Generations<K, V> {
    /// Holds nothing yet.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { young: Generation::default(), old: Generation::default(), bytes_max }
    }

    /// The value of a key.
    pub(crate) fn get(&mut self, key: K) -> Option<V> {
        if let Some((value, _)) = self.young.values.get(&key) {
            return Some(value.clone());
        }
        let (value, bytes) = self.old.values.remove(&key)?;
        self.old.bytes = self.old.bytes.saturating_sub(bytes);
        self.insert(key, value.clone(), bytes);
        Some(value)
    }

    /// Holds a value that takes so many bytes, but for one that alone would take half of all.
    pub(crate) fn insert(&mut self, key: K, value: V, bytes: usize) {
        let bytes = bytes + size_of::<(K, (V, usize))>();
        if bytes > self.bytes_max / 2 {
            return;
        }
        if self.young.bytes + bytes > self.bytes_max / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.bytes += bytes;
        if let Some((_, before)) = self.young.values.insert(key, (value, bytes)) {
            self.young.bytes = self.young.bytes.saturating_sub(before);
        }
    }

    /// About as many bytes as it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.young.bytes + self.old.bytes
    }

    /// Lets go of everything.
    pub(crate) fn clear(&mut self) {
        (self.young, self.old) = (Generation::default(), Generation::default());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_are_those_inserted_and_stay_within_the_bytes(
            asked in prop::collection::vec((0_u64..40, 0_usize..900), 1..400),
        ) {
            let (mut held, mut given) = (Generations::new(8 << 10), HashMap::new());
            for (key, bytes) in asked {
                match held.get(key) {
                    Some(found) => prop_assert_eq!(Some(&found), given.get(&key)),
                    None => {
                        held.insert(key, bytes, bytes);
                        given.insert(key, bytes);
                        // The newest entry is there.
                        prop_assert_eq!(held.get(key), Some(bytes));
                    }
                }
                prop_assert!(held.memory_bytes() <= 8 << 10);
            }
            held.clear();
            prop_assert_eq!((held.memory_bytes(), held.get(given.into_keys().next().unwrap_or_default())), (0, None));
        }
    }
}
