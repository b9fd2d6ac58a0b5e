//! Names and values of labels from dictionaries and postings, without looking at one group after the other.

use hashbrown::HashTable;
use roaring::RoaringBitmap;
use xxhash_rust::xxh3::xxh3_64;

use crate::groups::Groups;
use crate::source::Source;
use crate::{CompiledMatcher, DatabaseId, IndexError, MetricColumns, Slot};

/// Bytes that a text takes in a set, beside itself.
const TEXT_BYTES: usize = 24;

/// Different texts, as they are found.
#[derive(Debug, Default)]
pub struct TextSet {
    texts: Vec<Box<str>>,
    /// Places of texts.
    by_text: HashTable<u32>,
    bytes: usize,
}

impl TextSet {
    /// Adds a text.
    pub fn insert(&mut self, text: &str) {
        let hash = xxh3_64(text.as_bytes());
        let texts = &self.texts;
        let text_at = |place: &u32| texts.get(*place as usize).map_or("", |text| text);
        if self.by_text.find(hash, |place| text_at(place) == text).is_some() {
            return;
        }
        let place = self.texts.len() as u32;
        self.by_text.insert_unique(hash, place, |place| xxh3_64(text_at(place).as_bytes()));
        self.texts.push(text.into());
        self.bytes += text.len() + TEXT_BYTES;
    }

    /// Returns whether a text is there.
    pub fn contains(&self, text: &str) -> bool {
        let is_it = |place: &u32| self.texts.get(*place as usize).is_some_and(|known| **known == *text);
        self.by_text.find(xxh3_64(text.as_bytes()), is_it).is_some()
    }

    /// Adds the texts of another set.
    pub fn merge(&mut self, other: Self) {
        if self.texts.is_empty() {
            *self = other;
            return;
        }
        other.texts.iter().for_each(|text| self.insert(text));
    }

    /// About as many bytes as it takes.
    pub const fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// All texts, sorted.
    pub fn into_sorted(self) -> Vec<String> {
        let mut texts: Vec<String> = self.texts.into_iter().map(String::from).collect();
        texts.sort_unstable();
        texts
    }
}

impl Groups {
    /// All groups of a database.
    pub fn of_database(&self, database: DatabaseId) -> Result<RoaringBitmap, IndexError> {
        let mut all = RoaringBitmap::new();
        for source in self.sources() {
            all |= source.all(database)?;
        }
        Ok(all - self.removed())
    }

    /// The groups that [`Groups::select`] gives for the columns of one measurement.
    pub fn chosen(
        &self,
        database: DatabaseId,
        columns: &MetricColumns,
        matchers: &[CompiledMatcher],
    ) -> Result<RoaringBitmap, IndexError> {
        let selected = self.select(database, std::slice::from_ref(columns), matchers)?;
        Ok(selected.into_iter().map(|selected| selected.id).collect())
    }

    /// Those of a measurement's slots that one of the groups has; the search ends when all are found.
    pub fn slots_of(&self, groups: &RoaringBitmap, wanted: &[Slot]) -> Result<Vec<Slot>, IndexError> {
        let mut found: Vec<Slot> = Vec::new();
        let mut last = None;
        for id in groups {
            if found.len() == wanted.len() {
                break;
            }
            let Some(slots) = self.slots(id)? else { continue };
            if last.as_ref().is_some_and(|last| std::sync::Arc::ptr_eq(last, &slots)) {
                continue;
            }
            found.extend(slots.chosen_of(wanted));
            found.sort_unstable();
            found.dedup();
            last = Some(slots);
        }
        Ok(found)
    }

    /// Adds the names of labels that one of the groups has, without the metric name.
    pub fn add_label_names(
        &self,
        database: DatabaseId,
        groups: &RoaringBitmap,
        names: &mut TextSet,
    ) -> Result<(), IndexError> {
        for source in self.sources() {
            let inside = within(source, database, groups)?;
            if inside == Inside::None {
                continue;
            }
            for name in source.names(database) {
                if names.contains(name.text) {
                    continue;
                }
                if inside == Inside::All || !source.having(database, name.number)?.is_disjoint(groups) {
                    names.insert(name.text);
                }
            }
        }
        Ok(())
    }

    /// Adds the values of a label (not the metric name) that one of the groups has. `go_on` is asked again and again whether to.
    pub fn add_label_values(
        &self,
        (database, name): (DatabaseId, &str),
        groups: &RoaringBitmap,
        values: &mut TextSet,
        go_on: &mut dyn FnMut(&TextSet) -> bool,
    ) -> Result<bool, IndexError> {
        for source in self.sources() {
            let Some(name) = source.name(database, name) else { continue };
            let inside = within(source, database, groups)?;
            if inside == Inside::None {
                continue;
            }
            let mut terms = source.terms(database, name.number, "", false)?;
            let mut number = 0u32;
            while terms.advance()? {
                number += 1;
                if number.is_multiple_of(TERMS_PER_CHECK) && !go_on(values) {
                    return Ok(false);
                }
                // To look a text up costs less than to read its postings.
                if inside == Inside::All || !values.contains(terms.text()) && terms.ids()?.intersects(groups) {
                    values.insert(terms.text());
                }
            }
        }
        Ok(true)
    }
}

/// Values that are looked at before the next question whether to go on.
const TERMS_PER_CHECK: u32 = 4096;

/// How many of a source's groups of a database are among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    None,
    Some,
    /// All of them, so that everything in the source counts.
    All,
}

fn within(source: &dyn Source, database: DatabaseId, groups: &RoaringBitmap) -> Result<Inside, IndexError> {
    if groups.range_cardinality(source.first()..source.end()) == 0 {
        return Ok(Inside::None);
    }
    let all = source.all(database)?;
    Ok(match all.intersection_len(groups) {
        0 => Inside::None,
        count if count == all.len() => Inside::All,
        _ => Inside::Some,
    })
}
