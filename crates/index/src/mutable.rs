//! The segment in memory that new groups go into. Every text stands once; a group is a family, a fingerprint and a few
//! bytes of value numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use codec::{Reader, varint};
use hashbrown::HashTable;
use model::Labels;
use roaring::RoaringBitmap;

use crate::identity::{mix, spread, text_hash};
use crate::ids::{IdList, Ids};
use crate::source::{Family, Fingerprints, GroupVisitor, Name, RowCursor, Source, TermCursor};
use crate::text::{TextArena, push_lean, reserve_lean};
use crate::{DatabaseId, GroupId, IndexError, MeasurementId, SlotSet};

/// Bytes that a map's entry costs beside what it holds, roughly.
const MAP_ENTRY_BYTES: usize = 64;

/// Groups in memory.
#[derive(Debug)]
pub(crate) struct Mutable {
    first: GroupId,
    seed: u64,
    records: Vec<Record>,
    fingerprints: Vec<u32>,
    /// Places in `records` by fingerprint.
    by_identity: HashTable<u32>,
    /// Value numbers of all groups, as varints.
    values: Vec<u8>,
    families: Vec<Family>,
    /// Numbers of families by what makes them.
    family_numbers: HashTable<u32>,
    databases: BTreeMap<DatabaseId, Terms>,
    text: TextArena,
    /// The names of the last group's labels.
    names_scratch: Vec<u32>,
    overlay: BTreeMap<GroupId, Arc<SlotSet>>,
    removed: RoaringBitmap,
    /// Heap bytes of lists and tables, kept up to date as they grow.
    grown_bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct Record {
    family: u32,
    values_at: u32,
}

/// Labels of one database.
#[derive(Debug)]
struct Terms {
    all: IdList,
    measurements: BTreeMap<MeasurementId, IdList>,
    names: Vec<NameTerms>,
    name_numbers: BTreeMap<Box<str>, u32>,
}

/// Values of one label name.
#[derive(Debug)]
struct NameTerms {
    text: Box<str>,
    having: IdList,
    /// Where each value's text stands, by number.
    texts: Vec<u32>,
    lists: Vec<IdList>,
    by_text: HashTable<u32>,
}

impl Mutable {
    /// No groups; the first will have this id.
    pub(crate) fn new(first: GroupId, seed: u64) -> Self {
        Self {
            first,
            seed,
            records: Vec::new(),
            fingerprints: Vec::new(),
            by_identity: HashTable::new(),
            values: Vec::new(),
            families: Vec::new(),
            family_numbers: HashTable::new(),
            databases: BTreeMap::new(),
            text: TextArena::default(),
            names_scratch: Vec::new(),
            overlay: BTreeMap::new(),
            removed: RoaringBitmap::new(),
            grown_bytes: 0,
        }
    }

    /// Returns whether there is nothing for a segment to hold.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.overlay.is_empty() && self.removed.is_empty()
    }

    /// The group of this identity that satisfies the condition.
    pub(crate) fn find(
        &self,
        fingerprint: u32,
        identity: (DatabaseId, MeasurementId, &Labels),
        keep: impl Fn(GroupId) -> bool,
    ) -> Option<GroupId> {
        let same = |place: &u32| {
            self.fingerprints.get(*place as usize) == Some(&fingerprint)
                && keep(self.first + place)
                && self.is(*place, identity)
        };
        self.by_identity.find(spread(fingerprint), same).map(|place| self.first + place)
    }

    fn is(&self, place: u32, (database, measurement, labels): (DatabaseId, MeasurementId, &Labels)) -> bool {
        let Some((record, family)) = self.record(place) else {
            return false;
        };
        let Some(terms) = self.databases.get(&database).filter(|_| family.database == database) else {
            return false;
        };
        let mut values = Reader::new(self.values.get(record.values_at as usize..).unwrap_or_default());
        let mut pairs = labels.iter();
        let same = |name: &u32| {
            let (Some((name_text, value_text)), Ok(value)) = (pairs.next(), values.varint()) else {
                return false;
            };
            let known = terms.names.get(*name as usize).and_then(|name| name.texts.get(value as usize));
            let known_name = terms.names.get(*name as usize).map(|name| &*name.text);
            known.is_some_and(|at| self.text.bytes_at(*at) == value_text.as_bytes()) && known_name == Some(name_text)
        };
        family.measurement == measurement && family.names.iter().all(same) && pairs.next().is_none()
    }

    fn record(&self, place: u32) -> Option<(&Record, &Family)> {
        let record = self.records.get(place as usize)?;
        Some((record, self.families.get(record.family as usize)?))
    }

    /// Adds a group behind the last.
    pub(crate) fn add(
        &mut self,
        fingerprint: u32,
        (database, measurement, labels): (DatabaseId, MeasurementId, &Labels),
        slots: Arc<SlotSet>,
    ) -> Result<GroupId, IndexError> {
        let id = self.end();
        if id == GroupId::MAX {
            return Err(IndexError::Full("all group ids of the shard are used up"));
        }
        // A label costs at most five bytes for its number and five for its length.
        if self.text.len().max(self.values.len()) + 10 * labels.packed_bytes() > u32::MAX as usize {
            return Err(IndexError::Full("4 GiB of labels wait to be written to an index segment"));
        }
        let values_at = self.values.len() as u32;
        let names = self.add_labels(id, database, measurement, labels);
        let family = self.intern_family(database, measurement, &names, slots);
        self.names_scratch = names;
        if let Some(family) = self.families.get_mut(family as usize) {
            family.groups += 1;
        }
        push_lean(&mut self.records, Record { family, values_at });
        push_lean(&mut self.fingerprints, fingerprint);
        let fingerprints = &self.fingerprints;
        let rehash = |place: &u32| spread(fingerprints.get(*place as usize).copied().unwrap_or(0));
        self.by_identity.insert_unique(spread(fingerprint), id - self.first, rehash);
        Ok(id)
    }

    /// Puts the group into the postings of its labels, appends their values' numbers, and gives their names' numbers.
    fn add_labels(
        &mut self,
        id: GroupId,
        database: DatabaseId,
        measurement: MeasurementId,
        labels: &Labels,
    ) -> Vec<u32> {
        let mut numbers = std::mem::take(&mut self.names_scratch);
        let before = numbers.clone();
        numbers.clear();
        let terms = self.databases.entry(database).or_insert_with(|| Terms::new(id));
        self.grown_bytes += terms.all.push(id);
        let of_measurement = terms.measurements.entry(measurement).or_insert_with(|| IdList::one(id));
        self.grown_bytes += of_measurement.push(id);
        for (place, (name, value)) in labels.iter().enumerate() {
            // The group before often has the same names.
            let guess = before.get(place).copied().unwrap_or(0);
            let (number, created) = match terms.names.get(guess as usize) {
                Some(known) if *known.text == *name => (guess, 0),
                _ => terms.name(name, id),
            };
            numbers.push(number);
            self.grown_bytes += created;
            let Some(values) = terms.names.get_mut(number as usize) else {
                continue;
            };
            self.grown_bytes += values.having.push(id);
            let (value, grown) = values.add(self.seed, &mut self.text, value, id);
            self.grown_bytes += grown;
            reserve_lean(&mut self.values, 5);
            varint::push(&mut self.values, u64::from(value));
        }
        numbers
    }

    fn intern_family(
        &mut self,
        database: DatabaseId,
        measurement: MeasurementId,
        names: &[u32],
        slots: Arc<SlotSet>,
    ) -> u32 {
        let hash = family_hash(database, measurement, names, &slots);
        let families = &self.families;
        // Equal sets of slots are one.
        let same = |number: &u32| {
            families.get(*number as usize).is_some_and(|family| {
                (family.database, family.measurement) == (database, measurement)
                    && family.names == names
                    && Arc::ptr_eq(&family.slots, &slots)
            })
        };
        if let Some(number) = self.family_numbers.find(hash, same) {
            return *number;
        }
        let number = self.families.len() as u32;
        self.grown_bytes += size_of::<Family>() + MAP_ENTRY_BYTES + 4 * names.len();
        self.families.push(Family { database, measurement, names: names.to_vec(), slots, groups: 0 });
        let families = &self.families;
        let rehash = |number: &u32| {
            let family = families.get(*number as usize);
            family.map_or(0, |family| family_hash(family.database, family.measurement, &family.names, &family.slots))
        };
        self.family_numbers.insert_unique(hash, number, rehash);
        number
    }

    /// Gives a group, which may be an older source's, other slots.
    pub(crate) fn set_slots(&mut self, id: GroupId, slots: Arc<SlotSet>) {
        let Some(place) = id.checked_sub(self.first) else {
            self.grown_bytes += MAP_ENTRY_BYTES / 2;
            self.overlay.insert(id, slots);
            return;
        };
        let Some((_, family)) = self.record(place) else {
            return;
        };
        let (database, measurement, names) = (family.database, family.measurement, family.names.clone());
        let to = self.intern_family(database, measurement, &names, slots);
        let Some(record) = self.records.get_mut(place as usize) else {
            return;
        };
        let from = std::mem::replace(&mut record.family, to);
        if let Some(family) = self.families.get_mut(from as usize) {
            family.groups -= 1;
        }
        if let Some(family) = self.families.get_mut(to as usize) {
            family.groups += 1;
        }
    }

    pub(crate) fn remove(&mut self, ids: &RoaringBitmap) {
        self.removed |= ids;
    }

    /// Bytes that it occupies in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.records.capacity() * size_of::<Record>()
            + self.fingerprints.capacity() * 4
            + self.by_identity.allocation_size()
            + self.values.capacity()
            + self.text.memory_bytes()
            + self.grown_bytes
    }
}

fn family_hash(database: DatabaseId, measurement: MeasurementId, names: &[u32], slots: &Arc<SlotSet>) -> u64 {
    let mut hash = mix(u64::from(database) << 32 | u64::from(measurement), Arc::as_ptr(slots) as u64);
    for name in names {
        hash = mix(hash, u64::from(*name));
    }
    hash
}

impl Terms {
    fn new(id: GroupId) -> Self {
        let (measurements, names, name_numbers) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        Self { all: IdList::one(id), measurements, names, name_numbers }
    }

    /// The number of a name, and the bytes that were needed for it.
    fn name(&mut self, text: &str, id: GroupId) -> (u32, usize) {
        if let Some(number) = self.name_numbers.get(text) {
            return (*number, 0);
        }
        let number = self.names.len() as u32;
        self.names.push(NameTerms {
            text: text.into(),
            having: IdList::one(id),
            texts: Vec::new(),
            lists: Vec::new(),
            by_text: HashTable::new(),
        });
        self.name_numbers.insert(text.into(), number);
        (number, size_of::<NameTerms>() + MAP_ENTRY_BYTES + 2 * text.len())
    }
}

impl NameTerms {
    /// Adds a group to a value: the value's number, and the bytes that the lists and tables grew by.
    fn add(&mut self, seed: u64, text: &mut TextArena, value: &str, id: GroupId) -> (u32, usize) {
        let hash = text_hash(seed, value);
        let texts = &self.texts;
        let text_of = |number: &u32| texts.get(*number as usize).map_or("", |at| text.get(*at));
        let bytes_of = |number: &u32| texts.get(*number as usize).map_or(&[][..], |at| text.bytes_at(*at));
        if let Some(number) = self.by_text.find(hash, |number| bytes_of(number) == value.as_bytes()) {
            let grown = self.lists.get_mut(*number as usize).map_or(0, |list| list.push(id));
            return (*number, grown);
        }
        let number = self.texts.len() as u32;
        let before = self.bytes();
        self.by_text.insert_unique(hash, number, |number| text_hash(seed, text_of(number)));
        push_lean(&mut self.texts, text.push(value));
        push_lean(&mut self.lists, IdList::one(id));
        (number, self.bytes() - before)
    }

    fn bytes(&self) -> usize {
        self.by_text.allocation_size() + self.texts.capacity() * 4 + self.lists.capacity() * size_of::<IdList>()
    }

    fn find(&self, seed: u64, text: &TextArena, value: &str) -> Option<u32> {
        let bytes_of = |number: &u32| self.texts.get(*number as usize).map_or(&[][..], |at| text.bytes_at(*at));
        self.by_text.find(text_hash(seed, value), |number| bytes_of(number) == value.as_bytes()).copied()
    }
}

/// Goes over the values of a label in memory.
struct Cursor<'a> {
    mutable: &'a Mutable,
    terms: &'a NameTerms,
    prefix: &'a str,
    /// Numbers in the order wanted; all in order of appearance if there is none.
    order: Option<Vec<u32>>,
    next: usize,
    number: u32,
}

impl TermCursor for Cursor<'_> {
    fn advance(&mut self) -> Result<bool, IndexError> {
        while self.next < self.terms.texts.len() {
            let number = self.order.as_ref().map_or(Some(self.next as u32), |order| order.get(self.next).copied());
            self.next += 1;
            self.number = number.unwrap_or(0);
            if self.prefix.is_empty() || self.text().starts_with(self.prefix) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn text(&self) -> &str {
        self.terms.texts.get(self.number as usize).map_or("", |at| self.mutable.text.get(*at))
    }

    fn number(&self) -> u32 {
        self.number
    }

    fn count(&self) -> u32 {
        self.terms.lists.get(self.number as usize).map_or(0, IdList::len)
    }

    fn ids(&self) -> Result<Ids, IndexError> {
        Ok(self.terms.lists.get(self.number as usize).map_or(Ids::Few(Vec::new()), IdList::to_ids))
    }
}

impl Mutable {
    fn name_terms(&self, database: DatabaseId, name: u32) -> Option<&NameTerms> {
        self.databases.get(&database)?.names.get(name as usize)
    }

    fn name_of<'a>(terms: &'a Terms, (text, number): (&'a str, &u32)) -> Option<Name<'a>> {
        let name = terms.names.get(*number as usize)?;
        let (values, groups) = (name.texts.len() as u32, name.having.len());
        Some(Name { number: *number, text, values, groups })
    }
}

impl RowCursor for &Mutable {
    fn values_of(&mut self, id: GroupId, values: &mut Vec<u32>) -> Result<Option<u32>, IndexError> {
        Source::values_of(*self, id, values)
    }
}

impl Source for Mutable {
    fn first(&self) -> GroupId {
        self.first
    }

    fn end(&self) -> GroupId {
        self.first + self.len()
    }

    fn len(&self) -> u32 {
        self.records.len() as u32
    }

    fn databases(&self) -> Vec<DatabaseId> {
        self.databases.keys().copied().collect()
    }

    fn all(&self, database: DatabaseId) -> Result<RoaringBitmap, IndexError> {
        Ok(self.databases.get(&database).map(|terms| terms.all.to_bitmap()).unwrap_or_default())
    }

    fn measurements(&self, database: DatabaseId) -> Result<Vec<MeasurementId>, IndexError> {
        Ok(self.databases.get(&database).map(|terms| terms.measurements.keys().copied().collect()).unwrap_or_default())
    }

    fn measurement(&self, database: DatabaseId, measurement: MeasurementId) -> Result<Option<Ids>, IndexError> {
        let terms = self.databases.get(&database);
        Ok(terms.and_then(|terms| terms.measurements.get(&measurement)).map(IdList::to_ids))
    }

    fn names(&self, database: DatabaseId) -> Vec<Name<'_>> {
        let Some(terms) = self.databases.get(&database) else {
            return Vec::new();
        };
        let names = terms.name_numbers.iter();
        names.filter_map(|(text, number)| Self::name_of(terms, (text, number))).collect()
    }

    fn name_text(&self, database: DatabaseId, number: u32) -> &str {
        self.name_terms(database, number).map_or("", |name| &name.text)
    }

    fn name(&self, database: DatabaseId, text: &str) -> Option<Name<'_>> {
        let terms = self.databases.get(&database)?;
        let (text, number) = terms.name_numbers.get_key_value(text)?;
        Self::name_of(terms, (text, number))
    }

    fn having(&self, database: DatabaseId, name: u32) -> Result<RoaringBitmap, IndexError> {
        Ok(self.name_terms(database, name).map(|name| name.having.to_bitmap()).unwrap_or_default())
    }

    fn value(&self, database: DatabaseId, name: u32, text: &str) -> Result<Option<Ids>, IndexError> {
        let Some(terms) = self.name_terms(database, name) else {
            return Ok(None);
        };
        let number = terms.find(self.seed, &self.text, text);
        Ok(number.and_then(|number| terms.lists.get(number as usize)).map(IdList::to_ids))
    }

    fn terms<'a>(
        &'a self,
        database: DatabaseId,
        name: u32,
        prefix: &'a str,
        sorted: bool,
    ) -> Result<Box<dyn TermCursor + 'a>, IndexError> {
        let missing = IndexError::Damaged { segment: 0, offset: 0, what: "no such label name" };
        let terms = self.name_terms(database, name).ok_or(missing)?;
        let order = sorted.then(|| {
            let mut order: Vec<(&str, u32)> =
                terms.texts.iter().enumerate().map(|(number, at)| (self.text.get(*at), number as u32)).collect();
            order.sort_unstable();
            order.into_iter().map(|(_, number)| number).collect()
        });
        Ok(Box::new(Cursor { mutable: self, terms, prefix, order, next: 0, number: 0 }))
    }

    fn families(&self) -> u32 {
        self.families.len() as u32
    }

    fn family(&self, number: u32) -> Result<Family, IndexError> {
        let missing = IndexError::Damaged { segment: 0, offset: 0, what: "no such family" };
        self.families.get(number as usize).cloned().ok_or(missing)
    }

    fn family_of(&self, id: GroupId) -> Result<Option<u32>, IndexError> {
        let place = id.checked_sub(self.first);
        Ok(place.and_then(|place| self.records.get(place as usize)).map(|record| record.family))
    }

    fn values_of(&self, id: GroupId, values: &mut Vec<u32>) -> Result<Option<u32>, IndexError> {
        let Some((record, family)) = id.checked_sub(self.first).and_then(|place| self.record(place)) else {
            return Ok(None);
        };
        let mut reader = Reader::new(self.values.get(record.values_at as usize..).unwrap_or_default());
        values.extend(family.names.iter().map(|_| reader.varint().unwrap_or(0) as u32));
        Ok(Some(record.family))
    }

    fn rows(&self) -> Box<dyn RowCursor + '_> {
        Box::new(self)
    }

    fn append_value(&self, database: DatabaseId, name: u32, value: u32, out: &mut String) -> Result<(), IndexError> {
        let at = self.name_terms(database, name).and_then(|terms| terms.texts.get(value as usize));
        out.push_str(at.map_or("", |at| self.text.get(*at)));
        Ok(())
    }

    fn each_group(&self, visit: &mut GroupVisitor<'_>) -> Result<(), IndexError> {
        let mut values = Vec::new();
        for id in self.first..self.end() {
            values.clear();
            if let Some(family) = self.values_of(id, &mut values)? {
                visit(id, family, &values)?;
            }
        }
        Ok(())
    }

    fn fingerprints(&self) -> Fingerprints<'_> {
        let mut sorted: Vec<(u32, GroupId)> = self.fingerprints.iter().copied().zip(self.first..).collect();
        sorted.sort_unstable();
        Box::new(sorted.into_iter().map(Ok))
    }

    fn has_overlays(&self) -> bool {
        !self.overlay.is_empty()
    }

    fn overlay(&self, id: GroupId) -> Result<Option<Arc<SlotSet>>, IndexError> {
        Ok(self.overlay.get(&id).cloned())
    }

    fn overlays(&self) -> Result<Vec<(GroupId, Arc<SlotSet>)>, IndexError> {
        Ok(self.overlay.iter().map(|(id, slots)| (*id, slots.clone())).collect())
    }

    fn removed(&self) -> &RoaringBitmap {
        &self.removed
    }
}
