//! The groups that matchers selected of tables, cached: to put the labels of many groups together from the index's segments costs more than to
//! read a row of each. An entry is valid as long as the index does not change, and so long are the things valid that readers derived from it.

use std::collections::HashSet;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::Labels;
use tracing_mutex::parkinglot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::cache::generations::Generations;
use crate::memory::SELECTION_CACHE;
use crate::read::last_rows::PartsLastRows;
use crate::read::select::SelectedGroup;
use crate::read::tables::TableSelection;

/// Groups of a batch at most.
const BATCH_GROUPS_MAX: usize = 64;

/// Sets of tags for which it is cached whether groups differ in them.
const TAG_SETS_MAX: usize = 8;

/// A selection as text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SelectionKey(String);

impl SelectionKey {
    pub(crate) fn new(selection: &TableSelection<'_>) -> Self {
        let TableSelection { database, table, fields, matchers } = selection;
        Self(format!("{database:?} {table:?} {fields:?} {matchers:?}"))
    }

    fn hash(&self) -> u64 {
        xxh3_64(self.0.as_bytes())
    }
}

#[derive(Clone)]
struct Entry {
    key: Arc<SelectionKey>,
    /// As it was before the groups were selected.
    index_changes: u64,
    groups: Arc<TableGroups>,
}

/// Groups that readers of a store selected.
pub(crate) struct SelectionCache {
    entries: Mutex<Generations<u64, Entry>>,
    /// Bytes that readers derived from them.
    derived: Arc<Budget>,
}

impl SelectionCache {
    /// For a store that may take so many bytes.
    pub(crate) fn new(memory_bytes_max: u64) -> Self {
        let bytes_max = SELECTION_CACHE.bytes(memory_bytes_max);
        let derived = Arc::new(Budget { used_bytes: AtomicUsize::new(0), bytes_max });
        Self { entries: Mutex::new(Generations::new(bytes_max)), derived }
    }

    /// The groups that were selected, if the index has not changed since.
    pub(crate) fn get(&self, key: &SelectionKey, index_changes: u64) -> Option<Arc<TableGroups>> {
        let entry = self.entries.lock().get(key.hash())?;
        (entry.index_changes == index_changes && *entry.key == *key).then_some(entry.groups)
    }

    /// Caches groups, with the number of the index's changes before they were selected.
    pub(crate) fn insert(&self, key: SelectionKey, index_changes: u64, groups: Vec<SelectedGroup>) -> Arc<TableGroups> {
        let labels: usize = groups.iter().map(|group| group.labels.size_bytes()).sum();
        let of_group = size_of::<SelectedGroup>() + size_of::<u32>();
        let bytes = size_of::<Entry>() + size_of::<TableGroups>() + key.0.len() + groups.len() * of_group + labels;
        let groups = Arc::new(TableGroups::new(groups, self.derived.clone()));
        let bytes = bytes + size_of_val(&*groups.batches);
        let hash = key.hash();
        let entry = Entry { key: Arc::new(key), index_changes, groups: groups.clone() };
        self.entries.lock().insert(hash, entry, bytes);
        groups
    }

    /// About as many bytes as it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.lock().memory_bytes() + self.derived.used_bytes.load(Ordering::Relaxed)
    }

    /// Lets go of everything.
    pub(crate) fn clear(&self) {
        self.entries.lock().clear();
    }
}

/// Bytes that may be used, and how many are.
struct Budget {
    used_bytes: AtomicUsize,
    bytes_max: usize,
}

/// Some bytes of a budget, given back when it is dropped.
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.used_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Groups of a table that matchers selected, each with some columns.
pub struct TableGroups {
    groups: Vec<SelectedGroup>,
    batches: Vec<GroupBatch>,
    /// By tags, whether no two groups have the same values of them.
    differ_by: Mutex<Vec<(Vec<String>, bool)>>,
    texts: Mutex<Option<Arc<GroupTexts>>>,
    derived: Arc<Budget>,
}

/// Groups of one shard that have the same columns and follow one another.
struct GroupBatch {
    range: Range<usize>,
    last_rows: Mutex<Option<Arc<PartsLastRows>>>,
}

/// A text of each of some groups, as a reader made it for a purpose.
pub struct GroupTexts {
    purpose: String,
    text: String,
    /// Where the text of each group ends.
    ends: Vec<u32>,
    _memory: Reservation,
}

impl GroupTexts {
    /// A group's text, by the group's index.
    pub fn get(&self, group: usize) -> &str {
        let end = |group: usize| self.ends.get(group).map_or(0, |end| *end as usize);
        let from = group.checked_sub(1).map_or(0, end);
        self.text.get(from..end(group)).unwrap_or_default()
    }
}

impl Deref for TableGroups {
    type Target = [SelectedGroup];

    fn deref(&self) -> &[SelectedGroup] {
        &self.groups
    }
}

impl Default for TableGroups {
    fn default() -> Self {
        let derived = Budget { used_bytes: AtomicUsize::new(0), bytes_max: 0 };
        Self::new(Vec::new(), Arc::new(derived))
    }
}

impl std::fmt::Debug for TableGroups {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(&self.groups).finish()
    }
}

impl TableGroups {
    fn new(groups: Vec<SelectedGroup>, derived: Arc<Budget>) -> Self {
        let mut batches = Vec::new();
        let mut from = 0;
        for alike in groups.chunk_by(|a, b| a.shard == b.shard && Arc::ptr_eq(&a.columns, &b.columns)) {
            for batch in alike.chunks(BATCH_GROUPS_MAX) {
                batches.push(GroupBatch { range: from..from + batch.len(), last_rows: Mutex::default() });
                from += batch.len();
            }
        }
        Self { groups, batches, differ_by: Mutex::default(), texts: Mutex::default(), derived }
    }

    /// How many batches there are in which readers read them: the groups of one have the same columns.
    pub fn batches(&self) -> usize {
        self.batches.len()
    }

    /// The groups of a batch, and the index of the first.
    pub fn batch(&self, number: usize) -> (usize, &[SelectedGroup]) {
        let range = self.batches.get(number).map_or(0..0, |batch| batch.range.clone());
        (range.start, self.groups.get(range).unwrap_or_default())
    }

    /// The cached last rows that parts have of a batch.
    pub(crate) fn last_rows(&self, number: usize) -> Option<&Mutex<Option<Arc<PartsLastRows>>>> {
        self.batches.get(number).map(|batch| &batch.last_rows)
    }

    /// Reserves memory for something that is derived from the groups; `None` if there is too little.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let more = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.derived.bytes_max);
        let budget = &self.derived;
        budget.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Reservation { budget: budget.clone(), bytes })
    }

    /// Returns whether no two groups have the same values of some tags.
    pub fn differ_by(&self, tags: &[&str]) -> bool {
        let is_same = |known: &&(Vec<String>, bool)| known.0.iter().map(String::as_str).eq(tags.iter().copied());
        if let Some((_, differ)) = self.differ_by.lock().iter().find(is_same) {
            return *differ;
        }
        let mut seen = HashSet::with_capacity(self.groups.len());
        let differ = self.groups.iter().all(|group| seen.insert(values_of(&group.labels, tags)));
        let mut known = self.differ_by.lock();
        if known.len() == TAG_SETS_MAX {
            known.remove(0);
        }
        known.push((tags.iter().map(|tag| (*tag).to_owned()).collect(), differ));
        differ
    }

    /// A text of each group, as `push` makes it for a purpose, cached until texts for another purpose replace them; `None` if there is too
    /// little memory.
    pub fn texts(&self, purpose: &str, mut push: impl FnMut(&mut String, &Labels)) -> Option<Arc<GroupTexts>> {
        let mut known = self.texts.lock();
        if let Some(texts) = known.as_ref().filter(|texts| texts.purpose == purpose) {
            return Some(texts.clone());
        }
        *known = None;
        let bytes_max = self.derived.bytes_max.min(u32::MAX as usize);
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(self.groups.len()));
        for group in &self.groups {
            push(&mut text, &group.labels);
            if text.len() > bytes_max {
                return None;
            }
            ends.push(text.len() as u32);
        }
        text.shrink_to_fit();
        let bytes = size_of::<GroupTexts>() + purpose.len() + text.len() + size_of_val(&*ends);
        let memory = self.reserve(bytes)?;
        let texts = Arc::new(GroupTexts { purpose: purpose.to_owned(), text, ends, _memory: memory });
        *known = Some(texts.clone());
        Some(texts)
    }
}

fn values_of<'a>(labels: &'a Labels, tags: &[&str]) -> Vec<Option<&'a str>> {
    tags.iter().map(|tag| labels.get(tag)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::PartKey;

    fn groups(hosts: &[&str]) -> Vec<SelectedGroup> {
        let group = |(rank, host): (u32, &&str)| SelectedGroup {
            labels: Labels::from_pairs([("host", *host), ("os", "x")]).unwrap(),
            columns: Arc::default(),
            rank,
            shard: 0,
            key: PartKey { database: 1, measurement: 1, group: rank, block: 0 },
        };
        (0..).zip(hosts).map(group).collect()
    }

    fn key(table: &str) -> SelectionKey {
        SelectionKey::new(&TableSelection { database: "default", table, fields: &[], matchers: &[] })
    }

    fn push_host(out: &mut String, labels: &Labels) {
        out.push_str(labels.get("host").unwrap_or("-"));
    }

    #[test]
    fn texts_are_cached_for_a_purpose_and_as_long_as_the_groups_are_the_same() {
        let cache = SelectionCache::new(1 << 30);
        let table = cache.insert(key("t"), 1, groups(&["a", "", "ccc"]));
        let texts = table.texts("hosts", push_host).unwrap();
        assert_eq!([0, 1, 2, 3].map(|group| texts.get(group)), ["a", "-", "ccc", ""]);
        let again = cache.get(&key("t"), 1).unwrap().texts("hosts", |_, _| unreachable!("they are cached"));
        assert!(Arc::ptr_eq(&texts, &again.unwrap()));
        let others = table.texts("x", |out, _| out.push('x')).unwrap();
        assert_eq!((others.get(2), texts.get(2)), ("x", "ccc"));
        assert_eq!(table.texts("hosts", push_host).unwrap().get(0), "a");
        assert!(cache.get(&key("t"), 2).is_none() && cache.get(&key("u"), 1).is_none());
    }

    #[test]
    fn tags_are_known_to_differ_where_they_do() {
        let cache = SelectionCache::new(1 << 30);
        let table = cache.insert(key("t"), 1, groups(&["a", "b", ""]));
        // More sets than are remembered, each twice.
        let others: Vec<String> = (0..2 * TAG_SETS_MAX).map(|number| format!("t{number}")).collect();
        for tag in others.iter().chain(&others) {
            assert!(!table.differ_by(&[tag.as_str()]));
            assert!(table.differ_by(&[tag.as_str(), "host"]) && table.differ_by(&["host"]));
            assert!(!table.differ_by(&["os"]) && !table.differ_by(&[]));
            assert!(table.differ_by.lock().len() <= TAG_SETS_MAX);
        }
        assert!(!cache.insert(key("t"), 2, groups(&["a", "b", "a"])).differ_by(&["host"]));
    }

    #[test]
    fn what_is_derived_from_groups_stays_within_its_budget_and_gives_it_back() {
        let budget_bytes = 4 << 10;
        let cache = SelectionCache::new(budget_bytes as u64 * SELECTION_CACHE.share);
        let used_bytes = || cache.derived.used_bytes.load(Ordering::Relaxed);
        let table = cache.insert(key("t"), 1, groups(&["a", "b"]));
        let before_bytes = cache.memory_bytes();
        let texts = table.texts("long", |out, _| out.extend(['x'; 1_000])).unwrap();
        assert!((2_000..budget_bytes).contains(&used_bytes()));
        assert_eq!(cache.memory_bytes(), before_bytes + used_bytes());
        // The budget is too small for the texts of both tables, and none at all for texts that are larger than it.
        let other = cache.insert(key("u"), 1, groups(&["a", "b"]));
        assert!(other.texts("long", |out, _| out.extend(['x'; 1_000])).is_none());
        assert!(other.texts("longer", |out, _| out.push_str(&"x".repeat(5_000))).is_none());
        assert!(other.texts("short", push_host).is_some() && used_bytes() <= budget_bytes);
        drop((table, other));
        cache.clear();
        assert!(used_bytes() >= 2_000, "a reader still has them");
        drop(texts);
        assert_eq!((used_bytes(), cache.memory_bytes()), (0, 0));
    }

    #[test]
    fn batches_are_of_one_shard_and_the_same_columns() {
        let mut of_two = groups(&["a"; 100]);
        let (same, other) = (Arc::default(), Arc::default());
        for (number, group) in of_two.iter_mut().enumerate() {
            group.columns = if number < 90 { Arc::clone(&same) } else { Arc::clone(&other) };
            group.shard = usize::from(number >= 80);
        }
        let table = SelectionCache::new(1 << 30).insert(key("t"), 1, of_two);
        let batches: Vec<(usize, usize)> =
            (0..table.batches()).map(|number| (table.batch(number).0, table.batch(number).1.len())).collect();
        assert_eq!(batches, [(0, 64), (64, 16), (80, 10), (90, 10)]);
        assert_eq!(table.batch(4).1.len(), 0);
    }
}
