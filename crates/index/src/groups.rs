//! A shard's groups: identities, schemas, postings.

use std::collections::HashMap;
use std::sync::Arc;

use hashbrown::HashTable;
use model::Labels;
use roaring::RoaringBitmap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::postings::Postings;
use crate::{CompiledMatcher, DatabaseId, GroupEntry, GroupId, MeasurementId, MetricColumns, Slot};

/// Number of an interned set of slots in a shard.
pub type SchemaId = u32;

/// A group as the index knows it.
#[derive(Debug, Clone)]
pub struct Group {
    /// The database it is in.
    pub database: DatabaseId,
    /// Its measurement.
    pub measurement: MeasurementId,
    /// Its labels, without the metric name.
    pub labels: Labels,
    /// The fields it has.
    pub schema: SchemaId,
}

/// All groups of a shard, numbered in order of appearance.
#[derive(Debug, Default)]
pub struct Groups {
    entries: Vec<Group>,
    /// Groups by database, measurement and labels; compares through `entries`.
    by_identity: HashTable<GroupId>,
    /// Keeps clients from choosing labels that collide.
    hash_seed: u64,
    postings: HashMap<DatabaseId, Postings>,
    schemas: Vec<Arc<[Slot]>>,
    schema_ids: HashMap<Arc<[Slot]>, SchemaId>,
    /// Groups whose entries since the last [`Groups::take_unsaved`] are unsaved: new ones from this id on …
    unsaved_from: GroupId,
    /// … and older ones that were extended.
    unsaved_extended: RoaringBitmap,
}

impl Groups {
    /// No groups; the seed should be random.
    pub fn with_hash_seed(hash_seed: u64) -> Self {
        Self { hash_seed, ..Self::default() }
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A group.
    pub fn get(&self, id: GroupId) -> Option<&Group> {
        self.entries.get(id as usize)
    }

    /// The slots of a schema, sorted; none if it does not exist.
    pub fn slots(&self, schema: SchemaId) -> Arc<[Slot]> {
        self.schemas.get(schema as usize).cloned().unwrap_or_default()
    }

    /// The group of this identity.
    pub fn find(&self, database: DatabaseId, measurement: MeasurementId, labels: &Labels) -> Option<GroupId> {
        let hash = identity_hash(self.hash_seed, database, measurement, labels);
        let same = |id: &GroupId| self.is(*id, database, measurement, labels);
        self.by_identity.find(hash, same).copied()
    }

    fn is(&self, id: GroupId, database: DatabaseId, measurement: MeasurementId, labels: &Labels) -> bool {
        self.get(id).is_some_and(|group| {
            group.database == database && group.measurement == measurement && group.labels == *labels
        })
    }

    /// The group of this identity, and the entry that tells of it if it is new.
    pub fn register(
        &mut self,
        database: DatabaseId,
        measurement: MeasurementId,
        labels: &Labels,
        slots: &[Slot],
    ) -> (GroupId, Option<GroupEntry>) {
        if let Some(id) = self.find(database, measurement, labels) {
            return (id, None);
        }
        let id = self.entries.len() as GroupId;
        let mut slots = slots.to_vec();
        slots.sort_unstable();
        let entry = GroupEntry::New { id, database, measurement, labels: labels.clone(), slots };
        self.apply(entry.clone());
        (id, Some(entry))
    }

    /// Gives a group more fields; its new schema. Slots that it has already change nothing.
    pub fn extend(&mut self, id: GroupId, more: &[Slot]) -> Option<SchemaId> {
        let schema = self.get(id)?.schema;
        let known = self.slots(schema);
        if more.iter().all(|slot| known.binary_search(slot).is_ok()) {
            return Some(schema);
        }
        let mut slots = [&*known, more].concat();
        slots.sort_unstable();
        slots.dedup();
        let schema = self.intern(slots);
        self.entries.get_mut(id as usize)?.schema = schema;
        if id < self.unsaved_from {
            self.unsaved_extended.insert(id);
        }
        Some(schema)
    }

    /// Takes in an entry from the log. One that is known, or does not follow, changes nothing and gives `false`.
    pub fn apply(&mut self, entry: GroupEntry) -> bool {
        match entry {
            GroupEntry::New { id, database, measurement, labels, slots } => {
                if id as usize != self.entries.len() {
                    return false;
                }
                let schema = self.intern(slots);
                self.postings.entry(database).or_default().add(id, measurement, &labels);
                let hash = identity_hash(self.hash_seed, database, measurement, &labels);
                self.entries.push(Group { database, measurement, labels, schema });
                let (entries, hash_seed) = (&self.entries, self.hash_seed);
                let rehash = |id: &GroupId| {
                    let group = &entries[*id as usize];
                    identity_hash(hash_seed, group.database, group.measurement, &group.labels)
                };
                self.by_identity.insert_unique(hash, id, rehash);
                true
            }
            GroupEntry::Extend { id, slots } => self.extend(id, &slots).is_some(),
        }
    }

    /// Takes in entries that a segment on disk holds. A group may stand in two segments: what was registered while one with
    /// everything was being written is also in the next.
    pub fn apply_saved(&mut self, entries: Vec<GroupEntry>) -> bool {
        let applied = entries.into_iter().all(|entry| match entry {
            GroupEntry::New { id, slots, .. } if (id as usize) < self.entries.len() => {
                self.extend(id, &slots).is_some()
            }
            entry => self.apply(entry),
        });
        self.unsaved_from = self.entries.len() as GroupId;
        self.unsaved_extended.clear();
        applied
    }

    fn intern(&mut self, slots: Vec<Slot>) -> SchemaId {
        if let Some(id) = self.schema_ids.get(slots.as_slice()) {
            return *id;
        }
        let id = self.schemas.len() as SchemaId;
        let slots: Arc<[Slot]> = slots.into();
        self.schemas.push(slots.clone());
        self.schema_ids.insert(slots, id);
        id
    }

    /// Whether there are entries that no segment holds.
    pub fn has_unsaved(&self) -> bool {
        (self.unsaved_from as usize) < self.entries.len() || !self.unsaved_extended.is_empty()
    }

    /// What the next segment must hold: entries since the last call.
    pub fn take_unsaved(&mut self) -> Vec<GroupEntry> {
        let entries = self.entries_since(&self.unsaved_extended, self.unsaved_from);
        self.unsaved_extended.clear();
        self.unsaved_from = self.entries.len() as GroupId;
        entries
    }

    /// Everything, as entries: what a segment that replaces all others holds.
    pub fn all_entries(&self) -> Vec<GroupEntry> {
        self.entries_since(&RoaringBitmap::new(), 0)
    }

    fn entries_since(&self, extended: &RoaringBitmap, from: GroupId) -> Vec<GroupEntry> {
        let extend = |id: GroupId| {
            let slots = self.slots(self.get(id)?.schema).to_vec();
            Some(GroupEntry::Extend { id, slots })
        };
        let new = |(place, group): (usize, &Group)| GroupEntry::New {
            id: place as GroupId,
            database: group.database,
            measurement: group.measurement,
            labels: group.labels.clone(),
            slots: self.slots(group.schema).to_vec(),
        };
        let added = self.entries.iter().enumerate().skip(from as usize);
        extended.iter().filter_map(extend).chain(added.map(new)).collect()
    }

    /// Puts back entries whose segment could not be written.
    pub fn put_back_unsaved(&mut self, entries: &[GroupEntry]) {
        for entry in entries {
            match entry {
                GroupEntry::New { id, .. } => self.unsaved_from = self.unsaved_from.min(*id),
                GroupEntry::Extend { id, .. } => {
                    self.unsaved_extended.insert(*id);
                }
            }
        }
    }

    /// Groups of the columns' measurements that satisfy all matchers and have one of the columns, with the slots they have.
    /// Matchers on the metric name have had their say in choosing the columns.
    pub fn select(
        &self,
        database: DatabaseId,
        columns: &[MetricColumns],
        matchers: &[CompiledMatcher],
    ) -> Vec<(GroupId, Vec<Slot>)> {
        let Some(postings) = self.postings.get(&database) else {
            return Vec::new();
        };
        let matching = postings.matching(matchers);
        let mut selected = Vec::new();
        for columns in columns {
            let Some(of_measurement) = postings.measurement(columns.measurement) else {
                continue;
            };
            match &matching {
                Some(matching) => self.push_selected(matching & of_measurement, columns, &mut selected),
                None => self.push_selected(of_measurement, columns, &mut selected),
            }
        }
        selected
    }

    fn push_selected(
        &self,
        groups: impl IntoIterator<Item = GroupId>,
        columns: &MetricColumns,
        selected: &mut Vec<(GroupId, Vec<Slot>)>,
    ) {
        let mut of_schema: HashMap<SchemaId, Vec<Slot>> = HashMap::new();
        for id in groups {
            let Some(group) = self.get(id) else {
                continue;
            };
            let slots = of_schema.entry(group.schema).or_insert_with(|| {
                let known = self.slots(group.schema);
                columns.slots.iter().copied().filter(|slot| known.binary_search(slot).is_ok()).collect()
            });
            if !slots.is_empty() {
                selected.push((id, slots.clone()));
            }
        }
    }

    /// Names of labels that one of the groups has, sorted, without the metric name.
    pub fn label_names<'a>(&'a self, database: DatabaseId, groups: &'a RoaringBitmap) -> impl Iterator<Item = &'a str> {
        self.postings.get(&database).into_iter().flat_map(|postings| postings.label_names(groups))
    }

    /// Values of a label (not the metric name) that one of the groups has, sorted.
    pub fn label_values<'a>(
        &'a self,
        database: DatabaseId,
        name: &str,
        groups: &'a RoaringBitmap,
    ) -> impl Iterator<Item = &'a str> {
        self.postings.get(&database).into_iter().flat_map(move |postings| postings.label_values(name, groups))
    }
}

fn identity_hash(seed: u64, database: DatabaseId, measurement: MeasurementId, labels: &Labels) -> u64 {
    let numbers = u64::from(database) << 32 | u64::from(measurement);
    xxh3_64_with_seed(labels.packed().as_bytes(), seed ^ xxh3_64_with_seed(&numbers.to_le_bytes(), seed))
}

#[cfg(test)]
mod tests {
    use model::{MatchOp, Matcher};
    use proptest::prelude::*;

    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        Labels::from_pairs(pairs.iter().copied()).unwrap()
    }

    fn all_columns(measurement: MeasurementId) -> MetricColumns {
        MetricColumns { measurement, slots: (0..4).collect() }
    }

    #[test]
    fn a_group_is_found_again_and_grows() {
        let mut groups = Groups::default();
        let (id, entry) = groups.register(0, 0, &labels(&[("host", "a")]), &[2, 0]);
        assert_eq!((id, entry.is_some()), (0, true));
        assert_eq!(groups.register(0, 0, &labels(&[("host", "a")]), &[1]).0, 0);
        assert_eq!(groups.register(1, 0, &labels(&[("host", "a")]), &[0]).0, 1, "another database, another group");
        groups.extend(0, &[1]);
        assert_eq!(groups.select(0, &[all_columns(0)], &[]), [(0, vec![0, 1, 2])]);
    }

    #[test]
    fn segments_hold_what_is_new_or_has_grown() {
        let mut groups = Groups::default();
        groups.register(0, 0, &labels(&[("host", "a")]), &[0]);
        let first = groups.take_unsaved();
        assert!(!groups.has_unsaved());
        groups.extend(0, &[1]);
        groups.register(0, 0, &labels(&[("host", "b")]), &[0]);
        let second = groups.take_unsaved();
        assert_eq!((first.len(), second.len()), (1, 2));
        let mut copy = Groups::default();
        assert!(copy.apply_saved(first) && copy.apply_saved(second));
        assert!(!copy.has_unsaved());
        assert!(copy.apply_saved(groups.all_entries()), "a group may be told of twice");
        let everything = [all_columns(0)];
        assert_eq!(copy.select(0, &everything, &[]), groups.select(0, &everything, &[]));
    }

    fn operator() -> impl Strategy<Value = MatchOp> {
        proptest::sample::select(vec![MatchOp::Equal, MatchOp::NotEqual, MatchOp::Regex, MatchOp::NotRegex])
    }

    proptest! {
        /// Against the definition: every matcher is tried on every group, a missing label being empty.
        #[test]
        fn selects_as_the_definition_says(
            sets in proptest::collection::vec(proptest::collection::btree_map("[xyz]", "[ab]{1,2}", 0..3), 0..12),
            matchers in proptest::collection::vec(("[xyz]", operator(), "(a|ab|b|)|[ab]?|a.*|a[|]b|.*"), 0..3),
        ) {
            let mut groups = Groups::default();
            let mut expected = Vec::new();
            let compiled: Vec<CompiledMatcher> = matchers.iter()
                .filter_map(|(name, op, value)| CompiledMatcher::new(&Matcher::new(name, *op, value)).ok())
                .collect();
            for set in &sets {
                let labels = Labels::from_pairs(set).unwrap();
                let (id, entry) = groups.register(0, 0, &labels, &[0]);
                let satisfied = |matcher: &CompiledMatcher| matcher.matches(labels.get(matcher.name()).unwrap_or(""));
                if entry.is_some() && compiled.iter().all(satisfied) {
                    expected.push((id, vec![0]));
                }
            }
            prop_assert_eq!(groups.select(0, &[all_columns(0)], &compiled), expected);
        }
    }
}
