//! All keys of a database in memory, by name and by label.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use db::Token;

use super::filter::Filter;
use super::settings::Settings;

/// Bytes that a key takes beside its name and its settings.
const KEY_BYTES: u64 = 224;

/// The newest sample of a key.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Last {
    /// It was not read yet.
    #[default]
    Unknown,
    /// There is none.
    None,
    /// Milliseconds since the Unix epoch, and the value.
    Sample(i64, f64),
}

/// A key.
#[derive(Debug, Clone, Default)]
pub struct Key {
    /// Its settings, labels and rules.
    pub settings: Settings,
    /// Its samples are written by this token.
    pub token: Option<Token>,
    /// Its newest sample.
    pub last: Last,
    /// How often others had written when that was looked up.
    pub looked_at: u64,
    /// True if it may have samples in series with labels that it had before.
    pub is_divided: bool,
    /// When its document was written, nanoseconds since the Unix epoch; `None` if it has none.
    pub saved_ns: Option<i64>,
}

/// Where a key is, as long as it is not removed: what a run of samples finds once and uses many times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeySlot(usize);

/// Keys by a label's value.
type ByValue = HashMap<Arc<str>, BTreeSet<Arc<str>>>;

/// The keys of a database.
#[derive(Debug, Default)]
pub struct Catalog {
    /// The table that is searched is small, whatever keys have of settings.
    slots: HashMap<Arc<str>, KeySlot>,
    keys: Vec<Option<(Arc<str>, Key)>>,
    free: Vec<KeySlot>,
    /// Keys by label and value.
    by_label: HashMap<Arc<str>, ByValue>,
    /// Names by their hashes, in which order scans go on.
    by_hash: BTreeSet<(u64, Arc<str>)>,
    bytes: u64,
}

impl Catalog {
    /// A key by its name.
    pub fn get(&self, name: &str) -> Option<&Key> {
        self.at(self.slot(name)?)
    }

    /// A key by its name: its settings stay as they are.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Key> {
        self.at_mut(self.slot(name)?)
    }

    /// Where a key is.
    pub fn slot(&self, name: &str) -> Option<KeySlot> {
        self.slots.get(name).copied()
    }

    /// The key at a place.
    pub fn at(&self, slot: KeySlot) -> Option<&Key> {
        self.keys.get(slot.0)?.as_ref().map(|(_, key)| key)
    }

    /// The key at a place: its settings stay as they are.
    pub fn at_mut(&mut self, slot: KeySlot) -> Option<&mut Key> {
        self.keys.get_mut(slot.0)?.as_mut().map(|(_, key)| key)
    }

    /// The name of the key at a place.
    pub fn name_at(&self, slot: KeySlot) -> Option<&Arc<str>> {
        self.keys.get(slot.0)?.as_ref().map(|(name, _)| name)
    }

    /// The name of a key, as it is shared.
    pub fn name(&self, name: &str) -> Option<Arc<str>> {
        self.name_at(self.slot(name)?).cloned()
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Bytes that all keys take, about.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that a key would take.
    pub fn bytes_of(name: &str, settings: &Settings) -> u64 {
        KEY_BYTES + name.len() as u64 + settings.size_bytes()
    }

    /// All keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Key)> {
        self.keys.iter().flatten().map(|(name, key)| (name, key))
    }

    /// Adds a key, in place of one of its name, whose slot it has then.
    pub fn put(&mut self, name: Arc<str>, key: Key) {
        self.remove(&name);
        self.bytes += Self::bytes_of(&name, &key.settings);
        for (label, value) in &key.settings.labels {
            let by_value = self.by_label.entry(label.clone()).or_default();
            by_value.entry(value.clone()).or_default().insert(name.clone());
        }
        self.by_hash.insert((hash(&name), name.clone()));
        // The slot that was freed last is taken first.
        let slot = self.free.pop().unwrap_or(KeySlot(self.keys.len()));
        self.slots.insert(name.clone(), slot);
        match self.keys.get_mut(slot.0) {
            Some(free) => *free = Some((name, key)),
            None => self.keys.push(Some((name, key))),
        }
    }

    /// Removes a key; what it was.
    pub fn remove(&mut self, name: &str) -> Option<Key> {
        let slot = self.slots.remove(name)?;
        let (shared, key) = self.keys.get_mut(slot.0)?.take()?;
        self.free.push(slot);
        self.by_hash.remove(&(hash(name), shared));
        self.bytes = self.bytes.saturating_sub(Self::bytes_of(name, &key.settings));
        for (label, value) in &key.settings.labels {
            let Some(by_value) = self.by_label.get_mut(label) else { continue };
            if let Some(names) = by_value.get_mut(value) {
                names.remove(name);
                if names.is_empty() {
                    by_value.remove(value);
                }
            }
            if by_value.is_empty() {
                self.by_label.remove(label);
            }
        }
        Some(key)
    }

    /// The names of keys that satisfy all filters, sorted: one of the filters names values.
    pub fn select(&self, filters: &[Filter]) -> Vec<Arc<str>> {
        let keys_of = |filter: &Filter| -> Vec<&BTreeSet<Arc<str>>> {
            let by_value = self.by_label.get(filter.label.as_str());
            filter.values.iter().filter_map(|value| by_value?.get(value.as_str())).collect()
        };
        let candidates = filters.iter().filter(|filter| filter.is_positive()).map(keys_of);
        let fewest = candidates.min_by_key(|sets| sets.iter().map(|set| set.len()).sum::<usize>());
        let names = fewest.into_iter().flatten().flatten().filter(|name| {
            self.get(name).is_some_and(|key| filters.iter().all(|filter| filter.matches(&key.settings.labels)))
        });
        let names: BTreeSet<&Arc<str>> = names.collect();
        names.into_iter().cloned().collect()
    }

    /// Names from a cursor on, in order of their hashes, and the cursor after them; 0 if there are no more. A cursor is the hash that is next, so
    /// that a scan finds all keys which stay, whatever comes and goes. Names of one hash are found together.
    pub fn scan(&self, cursor: u64, most: usize) -> (u64, Vec<Arc<str>>) {
        let from = (Bound::Included((cursor, Arc::from(""))), Bound::Unbounded);
        let mut names: Vec<Arc<str>> = Vec::new();
        let mut last = None;
        for (hash, name) in self.by_hash.range::<(u64, Arc<str>), _>(from) {
            if names.len() >= most && last != Some(*hash) {
                return (*hash, names);
            }
            names.push(name.clone());
            last = Some(*hash);
        }
        (0, names)
    }

    /// All names, sorted.
    pub fn names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<Arc<str>> = self.slots.keys().cloned().collect();
        names.sort_unstable();
        names
    }
}

/// FNV-1a, without its highest bit: clients read cursors as signed numbers. Never 0, which ends a scan.
fn hash(name: &str) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x100_0000_01b3;
    let hash = name.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    (hash >> 1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(labels: &[(&str, &str)]) -> Key {
        let labels = labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Key { settings: Settings { labels, ..Settings::default() }, ..Key::default() }
    }

    #[test]
    fn keys_are_found_by_their_labels() {
        let mut catalog = Catalog::default();
        catalog.put("1".into(), key(&[("a", "x"), ("b", "y")]));
        catalog.put("2".into(), key(&[("a", "x")]));
        catalog.put("3".into(), key(&[("a", "z")]));
        let found = |catalog: &Catalog, filters: &[&str]| {
            let filters: Vec<Filter> = filters.iter().map(|text| Filter::parse(text).unwrap()).collect();
            catalog.select(&filters).join(" ")
        };
        assert_eq!(found(&catalog, &["a=x"]), "1 2");
        assert_eq!(found(&catalog, &["a=(x,z)"]), "1 2 3");
        assert_eq!(found(&catalog, &["a=x", "b="]), "2");
        assert_eq!(found(&catalog, &["a=x", "b=y"]), "1");
        catalog.put("1".into(), key(&[("a", "z")]));
        assert_eq!(found(&catalog, &["a=z"]), "1 3");
        assert_eq!(found(&catalog, &["b=y"]), "");
        ["1", "2", "3"].iter().for_each(|name| drop(catalog.remove(name)));
        assert_eq!((catalog.bytes(), catalog.len()), (0, 0));
        catalog.put("4".into(), key(&[]));
        let slot = catalog.slot("4").unwrap();
        catalog.put("4".into(), key(&[("a", "x")]));
        assert_eq!((catalog.slot("4"), catalog.keys.len()), (Some(slot), 3));
        assert_eq!(catalog.name_at(slot).map(|name| &**name), Some("4"));
        catalog.remove("4");
        assert!(catalog.by_label.is_empty() && catalog.by_hash.is_empty());
    }

    #[test]
    fn a_scan_finds_every_key_that_stays_once() {
        let mut catalog = Catalog::default();
        (0..57).for_each(|number| catalog.put(format!("key{number}").into(), Key::default()));
        let (mut cursor, mut found) = (0, Vec::new());
        loop {
            let (next, names) = catalog.scan(cursor, 5);
            assert!(names.len() <= 5);
            found.extend(names);
            if next == 0 {
                break;
            }
            cursor = next;
            // Keys that come and go meanwhile change nothing of the others.
            catalog.put(format!("new{cursor}").into(), Key::default());
            catalog.remove(&format!("new{cursor}"));
        }
        found.sort_unstable();
        assert_eq!(found, catalog.names());
    }
}
