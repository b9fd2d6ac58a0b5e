//! What matchers chose of tables, held for whoever asks for the same again: to put together the labels of many groups from the index's segments
//! costs more than to read a row of each. What is held holds as long as the index does not change.

use std::sync::Arc;

use index::CompiledMatcher;
use tracing_mutex::parkinglot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::generations::Generations;
use crate::scan::SelectedGroup;

/// Share of the store's memory that chosen groups may take, and how many bytes at most.
const MEMORY_SHARE: u64 = 64;
const HELD_BYTES_MAX: u64 = 32 << 20;

/// What was asked for, word by word.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked(String);

impl Asked {
    pub(crate) fn new(database: &str, table: &str, fields: &[String], matchers: &[CompiledMatcher]) -> Self {
        Self(format!("{database:?} {table:?} {fields:?} {matchers:?}"))
    }

    fn hash(&self) -> u64 {
        xxh3_64(self.0.as_bytes())
    }
}

struct Held {
    asked: Asked,
    /// As it was before they were chosen.
    index_changes: u64,
    groups: Vec<SelectedGroup>,
}

/// Groups that readers of a store chose.
pub(crate) struct ChosenGroups(Mutex<Generations<u64, Arc<Held>>>);

impl ChosenGroups {
    /// For a store that may take so many bytes.
    pub(crate) fn new(memory_bytes_max: u64) -> Self {
        let bytes_max = (memory_bytes_max / MEMORY_SHARE).min(HELD_BYTES_MAX) as usize;
        Self(Mutex::new(Generations::new(bytes_max)))
    }

    /// The groups that were chosen, if the index is still the same.
    pub(crate) fn get(&self, asked: &Asked, index_changes: u64) -> Option<Vec<SelectedGroup>> {
        let held = self.0.lock().get(asked.hash())?;
        (held.index_changes == index_changes && held.asked == *asked).then(|| held.groups.clone())
    }

    /// Holds what was chosen in an index that was so before.
    pub(crate) fn hold(&self, asked: Asked, index_changes: u64, groups: &[SelectedGroup]) {
        let labels: usize = groups.iter().map(|group| group.labels.size_bytes()).sum();
        let bytes = size_of::<Held>() + asked.0.len() + size_of_val(groups) + labels;
        let hash = asked.hash();
        let held = Held { asked, index_changes, groups: groups.to_vec() };
        self.0.lock().hold(hash, Arc::new(held), bytes);
    }

    /// About as many bytes as it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.lock().memory_bytes()
    }

    /// Lets go of everything.
    pub(crate) fn give_back(&self) {
        self.0.lock().clear();
    }
}
