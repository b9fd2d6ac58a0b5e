//! All keys of a database in memory, by name and by label.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use db::Token;

use super::filter::Filter;
use super::settings::Settings;

/// Bytes that a key takes beside its name and its settings.
const KEY_BYTES: u64 = 192;

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
    /// When its document was written, nanoseconds since the Unix epoch; `None` if it has none.
    pub saved_ns: Option<i64>,
}

/// Keys by a label's value.
type ByValue = HashMap<Arc<str>, BTreeSet<Arc<str>>>;

/// The keys of a database.
#[derive(Debug, Default)]
pub struct Catalog {
    keys: HashMap<Arc<str>, Key>,
    /// Keys by label and value.
    by_label: HashMap<Arc<str>, ByValue>,
    /// Names by their hashes, in which order scans go on.
    by_hash: BTreeSet<(u64, Arc<str>)>,
    bytes: u64,
}

impl Catalog {
    /// A key by its name.
    pub fn get(&self, name: &str) -> Option<&Key> {
        self.keys.get(name)
    }

    /// A key by its name: its settings stay as they are.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Key> {
        self.keys.get_mut(name)
    }

    /// The name of a key, as it is shared.
    pub fn name(&self, name: &str) -> Option<Arc<str>> {
        self.keys.get_key_value(name).map(|(name, _)| name.clone())
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
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
        self.keys.iter()
    }

    /// Adds a key, in place of one of its name.
    pub fn put(&mut self, name: Arc<str>, key: Key) {
        self.remove(&name);
        self.bytes += Self::bytes_of(&name, &key.settings);
        for (label, value) in &key.settings.labels {
            let by_value = self.by_label.entry(label.clone()).or_default();
            by_value.entry(value.clone()).or_default().insert(name.clone());
        }
        self.by_hash.insert((hash(&name), name.clone()));
        self.keys.insert(name, key);
    }

    /// Removes a key; what it was.
    pub fn remove(&mut self, name: &str) -> Option<Key> {
        let (shared, key) = self.keys.remove_entry(name)?;
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
            self.keys.get(*name).is_some_and(|key| filters.iter().all(|filter| filter.matches(&key.settings.labels)))
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
        let mut names: Vec<Arc<str>> = self.keys.keys().cloned().collect();
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
