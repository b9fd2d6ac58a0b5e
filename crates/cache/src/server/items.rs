//! Ordinary items, without a time range: in memory, least recently used out first, as in memcached.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// What an item costs beside its key and data.
const ITEM_BYTES: usize = 160;
/// Expiry times up to this many seconds count from now, larger ones since 1970.
const RELATIVE_SECONDS_MAX: i64 = 30 * 24 * 3600;

/// An item's data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) flags: u32,
    /// Changes with every change of the item.
    pub(crate) version: u64,
    pub(crate) data: Arc<[u8]>,
}

#[derive(Debug)]
struct StoredItem {
    item: Item,
    /// Seconds since 1970; never, if there are none.
    expires_s: Option<i64>,
    used: u64,
}

/// When something is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Set,
    Add,
    Replace,
    /// If the item has still this version.
    Cas(u64),
}

/// What came of storing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// The item is there and must not be, or the other way round, or it is too large.
    Refused,
    /// The version is another one.
    Changed,
    Missing,
}

/// Items within so many bytes.
#[derive(Debug)]
pub(crate) struct Items {
    entries: HashMap<Arc<[u8]>, StoredItem>,
    by_use: BTreeMap<u64, Arc<[u8]>>,
    clock: u64,
    bytes: usize,
    bytes_max: usize,
    pub(crate) evicted: u64,
}

impl Items {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { entries: HashMap::new(), by_use: BTreeMap::new(), clock: 0, bytes: 0, bytes_max, evicted: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&mut self, key: &[u8], now_s: i64) -> Option<Item> {
        if self.entries.get(key)?.expires_s.is_some_and(|expires| expires <= now_s) {
            self.remove(key);
            return None;
        }
        self.clock += 1;
        let (name, _) = self.entries.get_key_value(key)?;
        let name = name.clone();
        let entry = self.entries.get_mut(key)?;
        self.by_use.remove(&entry.used);
        entry.used = self.clock;
        self.by_use.insert(self.clock, name);
        Some(entry.item.clone())
    }

    pub(crate) fn store(
        &mut self,
        how: Store,
        key: &[u8],
        flags: u32,
        expiry: i64,
        data: &[u8],
        now_s: i64,
    ) -> Outcome {
        let known = self.get(key, now_s);
        match (how, &known) {
            (Store::Add, Some(_)) | (Store::Replace, None) => return Outcome::Refused,
            (Store::Cas(_), None) => return Outcome::Missing,
            (Store::Cas(version), Some(item)) if item.version != version => return Outcome::Changed,
            _ => {}
        }
        if key.len() + data.len() + ITEM_BYTES > self.bytes_max {
            self.remove(key);
            return Outcome::Refused;
        }
        self.remove(key);
        self.clock += 1;
        let name: Arc<[u8]> = Arc::from(key);
        let item = Item { flags, version: self.clock, data: Arc::from(data) };
        self.bytes += size(key, &item);
        self.entries.insert(name.clone(), StoredItem { item, expires_s: expires(expiry, now_s), used: self.clock });
        self.by_use.insert(self.clock, name);
        self.make_room();
        Outcome::Done
    }

    pub(crate) fn touch(&mut self, key: &[u8], expiry: i64, now_s: i64) -> bool {
        let is_there = self.get(key, now_s).is_some();
        if let Some(entry) = self.entries.get_mut(key).filter(|_| is_there) {
            entry.expires_s = expires(expiry, now_s);
        }
        is_there
    }

    /// Adds to a number, or takes from it without going below zero. `None` if there is no such item, an error if it is no number.
    pub(crate) fn add(&mut self, key: &[u8], by: u64, is_up: bool, now_s: i64) -> Option<Result<u64, ()>> {
        let item = self.get(key, now_s)?;
        let number = std::str::from_utf8(&item.data).ok().and_then(|text| text.trim_end().parse::<u64>().ok());
        let Some(number) = number else {
            return Some(Err(()));
        };
        let number = if is_up { number.wrapping_add(by) } else { number.saturating_sub(by) };
        let expires_s = self.entries.get(key).and_then(|entry| entry.expires_s);
        self.store(Store::Set, key, item.flags, 0, number.to_string().as_bytes(), now_s);
        if let Some(entry) = self.entries.get_mut(key) {
            entry.expires_s = expires_s;
        }
        Some(Ok(number))
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        let Some(entry) = self.entries.remove(key) else {
            return false;
        };
        self.bytes -= size(key, &entry.item);
        self.by_use.remove(&entry.used);
        true
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.bytes_max);
    }

    fn make_room(&mut self) {
        while self.bytes > self.bytes_max {
            let Some((_, key)) = self.by_use.pop_first() else { break };
            self.evicted += u64::from(self.remove(&key));
        }
    }
}

fn size(key: &[u8], item: &Item) -> usize {
    key.len() + item.data.len() + ITEM_BYTES
}

/// When an item expires; below zero means at once.
fn expires(expiry: i64, now_s: i64) -> Option<i64> {
    match expiry {
        0 => None,
        ..0 => Some(now_s),
        1..=RELATIVE_SECONDS_MAX => Some(now_s.saturating_add(expiry)),
        _ => Some(expiry),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_expire_and_go_when_room_is_short() {
        let mut items = Items::new(3 * (ITEM_BYTES + 2));
        let set = |items: &mut Items, key: &[u8], expiry| items.store(Store::Set, key, 0, expiry, b"x", 100);
        for key in [b"a", b"b", b"c"] {
            assert_eq!(set(&mut items, key, 0), Outcome::Done);
        }
        assert!(items.get(b"a", 100).is_some());
        set(&mut items, b"d", 10);
        assert!(items.get(b"b", 100).is_none(), "the least recently used went");
        assert!(items.get(b"d", 109).is_some() && items.get(b"d", 110).is_none());
        set(&mut items, b"e", -1);
        assert!(items.get(b"e", 100).is_none());
        assert_eq!(items.store(Store::Set, b"f", 0, 0, &[0; 1000], 100), Outcome::Refused);
        assert_eq!((items.len(), items.bytes()), (2, 2 * (ITEM_BYTES + 2)));
    }
}
