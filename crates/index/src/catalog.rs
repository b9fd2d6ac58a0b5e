//! What exists by name: databases, measurements, fields, and what clients say of metrics.
//!
//! Fields may be many (a wide group has one for each member), so that one costs its name, its labels and some twenty bytes: names
//! stand once in an arena, metric names are put together when they are needed, and one table finds fields by them.

mod drops;
mod error;
mod tables;
mod unsaved;

use std::collections::{BTreeMap, HashMap};

use hashbrown::HashTable;
use model::{Field, HISTOGRAM_FIELD, Labels, MetricMetadata, VALUE_FIELD, ValueType, metric_name};

pub use error::CatalogError;
pub use unsaved::UnsavedCatalog;

use crate::identity::{mix, text_hash};
use crate::text::{TextArena, push_lean};
use crate::{CatalogEntry, CompiledMatcher, DatabaseId, MeasurementId, Slot};

/// Databases, measurements and fields, each numbered in order of appearance; nothing is ever renumbered. A database or a measurement that
/// was dropped has no name any more: a new one of its name has another number.
#[derive(Debug, Default)]
pub struct Catalog {
    databases: Vec<Database>,
    database_ids: HashMap<String, DatabaseId>,
    measurements: Vec<Measurement>,
    text: TextArena,
    unsaved: UnsavedCatalog,
    changes: u64,
}

#[derive(Debug)]
struct Database {
    name: String,
    measurements: HashMap<String, MeasurementId>,
    /// Fields by metric name: of each measurement the first of a name. More than one where `a` + `b_c` and `a_b` + `c`
    /// both exist.
    metrics: HashTable<(MeasurementId, Slot)>,
    metadata: BTreeMap<String, MetricMetadata>,
}

#[derive(Debug)]
struct Measurement {
    database: DatabaseId,
    /// Empty once it is dropped.
    name: String,
    /// Where each field's name stands; equal names stand in one place.
    names: Vec<u32>,
    types: Vec<ValueType>,
    labelled: Option<Box<Labelled>>,
    /// Tags that were declared before any group had them.
    tags: Vec<String>,
}

/// Fields of a measurement some of which have labels.
#[derive(Debug, Default)]
struct Labelled {
    /// Where each field's labels stand, packed; fields behind the last have none.
    labels: Vec<u32>,
    /// Fields with labels, by name and labels.
    slots: HashTable<Slot>,
}

/// A field as the catalog knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldInfo<'a> {
    /// The name of its measurement.
    pub measurement: &'a str,
    /// Its name.
    pub name: &'a str,
    /// The type of its values.
    pub value_type: ValueType,
    /// Labels of its own.
    pub labels: Labels,
}

impl FieldInfo<'_> {
    /// The metric name under which PromQL sees it.
    pub fn metric(&self) -> String {
        metric_name(self.measurement, self.name)
    }
}

/// Columns of one measurement that matchers chose.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MetricColumns {
    /// The measurement.
    pub measurement: MeasurementId,
    /// Its chosen slots, sorted.
    pub slots: Vec<Slot>,
    /// Places of the matchers that the columns' own labels have decided, sorted; the others are for the groups to satisfy.
    pub decided: Vec<usize>,
}

impl Catalog {
    /// How often it changed since opening.
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// The number of a database.
    pub fn database(&self, name: &str) -> Option<DatabaseId> {
        self.database_ids.get(name).copied()
    }

    /// Names of all databases; the position of each is its number. One that was dropped has an empty name.
    pub fn database_names(&self) -> impl Iterator<Item = &str> {
        self.databases.iter().map(|database| database.name.as_str())
    }

    /// The number of a measurement.
    pub fn measurement(&self, database: DatabaseId, name: &str) -> Option<MeasurementId> {
        self.databases.get(database as usize)?.measurements.get(name).copied()
    }

    /// The name of a measurement; empty if there is none.
    pub fn measurement_name(&self, measurement: MeasurementId) -> &str {
        self.measurements.get(measurement as usize).map_or("", |measurement| &measurement.name)
    }

    /// The number of a measurement's database, and its name.
    pub fn database_of(&self, measurement: MeasurementId) -> Option<(DatabaseId, &str)> {
        let id = self.measurements.get(measurement as usize)?.database;
        self.databases.get(id as usize).map(|database| (id, database.name.as_str()))
    }

    /// A field of a measurement.
    pub fn field(&self, measurement: MeasurementId, slot: Slot) -> Option<FieldInfo<'_>> {
        let known = self.measurements.get(measurement as usize)?;
        Some(FieldInfo {
            measurement: &known.name,
            name: self.field_name(known, slot)?,
            value_type: *known.types.get(slot as usize)?,
            labels: self.labels_of(known, slot),
        })
    }

    /// Returns whether a field has labels of its own.
    pub fn has_labels(&self, measurement: MeasurementId, slot: Slot) -> bool {
        self.measurements.get(measurement as usize).is_some_and(|known| !self.packed_labels(known, slot).is_empty())
    }

    /// How many fields each measurement has, by its number: their slots are below that.
    pub fn field_counts(&self) -> Vec<u32> {
        self.measurements.iter().map(|measurement| measurement.types.len() as u32).collect()
    }

    fn field_name(&self, measurement: &Measurement, slot: Slot) -> Option<&str> {
        measurement.names.get(slot as usize).map(|at| self.text.get(*at))
    }

    fn packed_labels(&self, measurement: &Measurement, slot: Slot) -> &str {
        let at = measurement.labelled.as_ref().and_then(|labelled| labelled.labels.get(slot as usize).copied());
        at.filter(|at| *at != NO_LABELS).map_or("", |at| self.text.get(at))
    }

    fn labels_of(&self, measurement: &Measurement, slot: Slot) -> Labels {
        unpack(self.packed_labels(measurement, slot))
    }

    /// The slots of fields without labels that all exist with these types; `None` if one of them is new.
    pub fn find_slots(&self, measurement: MeasurementId, fields: &[Field]) -> Result<Option<Vec<Slot>>, CatalogError> {
        let Some(known) = self.measurements.get(measurement as usize) else {
            return Ok(None);
        };
        let mut slots = Vec::with_capacity(fields.len());
        for field in fields {
            let Some(slot) = self.slot(measurement, &field.name, &Labels::empty()) else {
                return Ok(None);
            };
            known.check_type(slot, field)?;
            slots.push(slot);
        }
        Ok(Some(slots))
    }

    /// The slot of a field, known by its name and labels.
    pub fn slot(&self, id: MeasurementId, name: &str, labels: &Labels) -> Option<Slot> {
        let known = self.measurements.get(id as usize)?;
        if !labels.is_empty() {
            let same = |slot: &Slot| {
                self.field_name(known, *slot) == Some(name) && self.packed_labels(known, *slot) == pack(labels)
            };
            return known.labelled.as_ref()?.slots.find(labelled_hash(name, &pack(labels)), same).copied();
        }
        let first = self.first_of_name(id, known, name)?;
        if self.packed_labels(known, first).is_empty() {
            return Some(first);
        }
        let at = known.names.get(first as usize)?;
        let mut same = (0..).zip(&known.names).filter(|(_, name)| *name == at).map(|(slot, _)| slot);
        same.find(|slot| self.packed_labels(known, *slot).is_empty())
    }

    /// The first field of a name.
    fn first_of_name(&self, id: MeasurementId, known: &Measurement, name: &str) -> Option<Slot> {
        let metrics = &self.databases.get(known.database as usize)?.metrics;
        let same = |(measurement, slot): &(MeasurementId, Slot)| {
            *measurement == id && self.field_name(known, *slot) == Some(name)
        };
        metrics.find(metric_hash(&metric_name(&known.name, name)), same).map(|(_, slot)| *slot)
    }

    /// The number of a database, and the entry that tells of it if it is new.
    pub fn register_database(&mut self, name: &str) -> (DatabaseId, Option<CatalogEntry>) {
        if let Some(id) = self.database(name) {
            return (id, None);
        }
        let id = self.databases.len() as DatabaseId;
        (id, self.add(CatalogEntry::Database { id, name: name.to_owned() }))
    }

    /// The number of a measurement in a database that exists, and the entry that tells of it if it is new.
    pub fn register_measurement(&mut self, database: DatabaseId, name: &str) -> (MeasurementId, Option<CatalogEntry>) {
        if let Some(id) = self.measurement(database, name) {
            return (id, None);
        }
        let id = self.measurements.len() as MeasurementId;
        (id, self.add(CatalogEntry::Measurement { id, database, name: name.to_owned() }))
    }

    /// The slot of a field in a measurement that exists, and the entry that tells of it if it is new.
    pub fn register_field(
        &mut self,
        measurement: MeasurementId,
        field: &Field,
    ) -> Result<(Slot, Option<CatalogEntry>), CatalogError> {
        self.register_member(measurement, field, &Labels::empty())
    }

    /// Registers a field with labels of its own: the members of a group may differ in more than their names.
    pub fn register_member(
        &mut self,
        measurement: MeasurementId,
        field: &Field,
        labels: &Labels,
    ) -> Result<(Slot, Option<CatalogEntry>), CatalogError> {
        let known = self.measurements.get(measurement as usize);
        let next = known.map_or(0, |known| known.names.len() as Slot);
        let slot = self.slot(measurement, &field.name, labels);
        if let Some((known, slot)) = known.zip(slot) {
            known.check_type(slot, field)?;
            return Ok((slot, None));
        }
        let (name, value_type, labels) = (field.name.clone(), field.value_type, labels.clone());
        Ok((next, self.add(CatalogEntry::Field { measurement, slot: next, name, value_type, labels })))
    }

    /// Keeps what a client says of a metric family; the entry that tells of it unless it was said before.
    pub fn register_metadata(&mut self, database: DatabaseId, metadata: &MetricMetadata) -> Option<CatalogEntry> {
        let known = self.databases.get(database as usize)?;
        if known.metadata.get(&metadata.family) == Some(metadata) {
            return None;
        }
        self.add(CatalogEntry::Metadata { database, metadata: metadata.clone() })
    }

    fn add(&mut self, entry: CatalogEntry) -> Option<CatalogEntry> {
        // An entry made here always follows; `apply` refuses only entries from elsewhere.
        self.apply(&entry).ok().map(|()| entry)
    }

    /// Takes in an entry from the log or a segment. Entries that are known already change nothing.
    pub fn apply(&mut self, entry: &CatalogEntry) -> Result<(), CatalogError> {
        if self.apply_known(entry)? {
            self.changes += 1;
            self.unsaved.add(entry);
        }
        Ok(())
    }

    /// Takes in an entry that a segment on disk holds.
    pub fn apply_saved(&mut self, entry: &CatalogEntry) -> Result<(), CatalogError> {
        self.apply_known(entry).map(|_| ())
    }

    fn apply_known(&mut self, entry: &CatalogEntry) -> Result<bool, CatalogError> {
        let out_of_order = || CatalogError::OutOfOrder { entry: format!("{entry:?}") };
        match entry {
            CatalogEntry::Database { id, name } => {
                if (*id as usize) < self.databases.len() {
                    return Ok(name.is_empty() && self.forget_database(*id));
                }
                if *id as usize > self.databases.len() {
                    return Err(out_of_order());
                }
                if !name.is_empty() {
                    self.database_ids.insert(name.clone(), *id);
                }
                self.databases.push(Database {
                    name: name.clone(),
                    measurements: HashMap::new(),
                    metrics: HashTable::new(),
                    metadata: BTreeMap::new(),
                });
            }
            CatalogEntry::Measurement { id, database, name } => {
                if (*id as usize) < self.measurements.len() {
                    return Ok(name.is_empty() && self.forget_measurement(*id));
                }
                let known = self.databases.get_mut(*database as usize).ok_or_else(out_of_order)?;
                if *id as usize > self.measurements.len() {
                    return Err(out_of_order());
                }
                if !name.is_empty() {
                    known.measurements.insert(name.clone(), *id);
                }
                self.measurements.push(Measurement {
                    database: *database,
                    name: name.clone(),
                    names: Vec::new(),
                    types: Vec::new(),
                    labelled: None,
                    tags: Vec::new(),
                });
            }
            CatalogEntry::Tag { measurement, name } => {
                let known = self.measurements.get_mut(*measurement as usize).ok_or_else(out_of_order)?;
                if known.name.is_empty() || known.tags.contains(name) {
                    return Ok(false);
                }
                known.tags.push(name.clone());
            }
            CatalogEntry::Field { measurement, slot, name, value_type, labels } => {
                return self.apply_field(*measurement, *slot, (name, labels), *value_type).ok_or_else(out_of_order);
            }
            CatalogEntry::Metadata { database, metadata } => {
                let known = self.databases.get_mut(*database as usize).ok_or_else(out_of_order)?;
                let before = known.metadata.insert(metadata.family.clone(), metadata.clone());
                return Ok(before.as_ref() != Some(metadata));
            }
        }
        Ok(true)
    }

    /// Whether the field is new; `None` if it does not follow, or if there is no room for it.
    fn apply_field(
        &mut self,
        id: MeasurementId,
        slot: Slot,
        (name, labels): (&str, &Labels),
        value_type: ValueType,
    ) -> Option<bool> {
        let known = self.measurements.get(id as usize)?;
        if (slot as usize) < known.names.len() {
            return Some(false);
        }
        let full = self.text.len() + name.len() + labels.packed_bytes() + 32 > u32::MAX as usize;
        if slot as usize > known.names.len() || full {
            return None;
        }
        let first = self.first_of_name(id, known, name);
        let at = match first.and_then(|first| known.names.get(first as usize)) {
            Some(at) => *at,
            None => self.text.push(name),
        };
        let measurement = self.measurements.get_mut(id as usize)?;
        push_lean(&mut measurement.names, at);
        push_lean(&mut measurement.types, value_type);
        // Those of a dropped measurement are found by their numbers alone.
        if first.is_none() && !measurement.name.is_empty() {
            let metric = metric_hash(&metric_name(&measurement.name, name));
            let (measurements, text) = (&self.measurements, &self.text);
            let rehash =
                |(measurement, slot): &(MeasurementId, Slot)| metric_of(measurements, text, *measurement, *slot);
            self.databases.get_mut(measurements.get(id as usize)?.database as usize)?.metrics.insert_unique(
                metric,
                (id, slot),
                rehash,
            );
        }
        if !labels.is_empty() {
            self.apply_labels(id, slot, (name, labels))?;
        }
        Some(true)
    }

    fn apply_labels(&mut self, id: MeasurementId, slot: Slot, (name, labels): (&str, &Labels)) -> Option<()> {
        let packed = pack(labels);
        let at = self.text.push(&packed);
        let measurement = self.measurements.get_mut(id as usize)?;
        let labelled = measurement.labelled.get_or_insert_default();
        labelled.labels.resize(slot as usize, NO_LABELS);
        push_lean(&mut labelled.labels, at);
        let (text, names, places) = (&self.text, &measurement.names, &labelled.labels);
        let text_at = |places: &[u32], slot: Slot| places.get(slot as usize).map_or("", |at| text.get(*at));
        let rehash = |slot: &Slot| labelled_hash(text_at(names, *slot), text_at(places, *slot));
        labelled.slots.insert_unique(labelled_hash(name, &packed), slot, rehash);
        Some(())
    }

    /// The columns whose metric names and own labels satisfy the matchers. A matcher on a label that a column has itself is decided by
    /// the column; one on any other label is left to the groups.
    pub fn metrics(&self, database: DatabaseId, matchers: &[CompiledMatcher]) -> Vec<MetricColumns> {
        let Some(known) = self.databases.get(database as usize) else {
            return Vec::new();
        };
        let on_name: Vec<&CompiledMatcher> =
            matchers.iter().filter(|matcher| matcher.name() == model::METRIC_NAME).collect();
        let is_chosen = |metric: &str| on_name.iter().all(|matcher| matcher.matches(metric));
        let mut chosen: BTreeMap<MeasurementId, Vec<Slot>> = BTreeMap::new();
        match on_name.iter().find_map(|matcher| matcher.candidates()) {
            Some(names) => {
                for metric in names.iter().filter(|metric| is_chosen(metric)) {
                    for (id, slot) in known.metrics.iter_hash(metric_hash(metric)) {
                        if self.is_metric(*id, *slot, metric) {
                            chosen.entry(*id).or_default().push(*slot);
                        }
                    }
                }
            }
            None => {
                let mut metric = String::new();
                for (id, slot) in &known.metrics {
                    if !on_name.is_empty() {
                        self.write_metric(*id, *slot, &mut metric);
                    }
                    if is_chosen(&metric) {
                        chosen.entry(*id).or_default().push(*slot);
                    }
                }
            }
        }
        let mut columns = Vec::new();
        for (measurement, mut slots) in chosen {
            slots.sort_unstable();
            slots.dedup();
            self.push_columns(measurement, slots, matchers, &mut columns);
        }
        columns
    }

    fn write_metric(&self, id: MeasurementId, slot: Slot, metric: &mut String) {
        metric.clear();
        let Some(measurement) = self.measurements.get(id as usize) else {
            return;
        };
        metric.push_str(&measurement.name);
        match self.field_name(measurement, slot) {
            Some(VALUE_FIELD | HISTOGRAM_FIELD) | None => {}
            Some(name) => metric.extend(["_", name]),
        }
    }

    fn is_metric(&self, id: MeasurementId, slot: Slot, metric: &str) -> bool {
        let Some(measurement) = self.measurements.get(id as usize) else {
            return false;
        };
        let rest = metric.strip_prefix(measurement.name.as_str());
        match self.field_name(measurement, slot) {
            Some(VALUE_FIELD | HISTOGRAM_FIELD) => rest == Some(""),
            Some(name) => rest.and_then(|rest| rest.strip_prefix('_')) == Some(name),
            None => false,
        }
    }

    /// Adds the fields that have the names of the chosen ones, apart by which matchers their labels decide.
    fn push_columns(
        &self,
        measurement: MeasurementId,
        slots: Vec<Slot>,
        matchers: &[CompiledMatcher],
        columns: &mut Vec<MetricColumns>,
    ) {
        let Some(known) = self.measurements.get(measurement as usize) else {
            return;
        };
        if known.labelled.is_none() {
            columns.push(MetricColumns { measurement, slots, decided: Vec::new() });
            return;
        }
        let mut names: Vec<u32> = slots.iter().filter_map(|slot| known.names.get(*slot as usize).copied()).collect();
        names.sort_unstable();
        let mut by_decided: BTreeMap<Vec<usize>, Vec<Slot>> = BTreeMap::new();
        for (slot, _) in (0..).zip(&known.names).filter(|(_, name)| names.binary_search(name).is_ok()) {
            let labels = self.labels_of(known, slot);
            let value_of = |(place, matcher): (usize, &CompiledMatcher)| {
                labels.get(matcher.name()).map(|value| (place, matcher.matches(value)))
            };
            let verdicts: Vec<(usize, bool)> = matchers.iter().enumerate().filter_map(value_of).collect();
            if verdicts.iter().all(|(_, satisfied)| *satisfied) {
                let decided = verdicts.into_iter().map(|(place, _)| place).collect();
                by_decided.entry(decided).or_default().push(slot);
            }
        }
        let columns_of = |(decided, slots)| MetricColumns { measurement, slots, decided };
        columns.extend(by_decided.into_iter().map(columns_of));
    }

    /// What clients said of one metric family.
    pub fn metadata_of(&self, database: DatabaseId, family: &str) -> Option<&MetricMetadata> {
        self.databases.get(database as usize)?.metadata.get(family)
    }

    /// What clients said of metric families, by name.
    pub fn metadata(&self, database: DatabaseId) -> impl Iterator<Item = &MetricMetadata> {
        self.databases.get(database as usize).into_iter().flat_map(|database| database.metadata.values())
    }

    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        let measurement = |known: &Measurement| {
            let labelled = known.labelled.as_ref();
            let labelled = labelled.map_or(0, |some| some.labels.capacity() * 4 + some.slots.allocation_size() + 64);
            // The name stands here and in the database's map.
            2 * (size_of::<Measurement>() + known.name.len())
                + known.names.capacity() * 4
                + known.types.capacity()
                + labelled
        };
        let metadata = |metadata: &MetricMetadata| 128 + 2 * metadata.family.len() + metadata.help.len();
        let database =
            |known: &Database| known.metrics.allocation_size() + known.metadata.values().map(metadata).sum::<usize>();
        self.text.memory_bytes()
            + self.measurements.iter().map(measurement).sum::<usize>()
            + self.databases.iter().map(database).sum::<usize>()
            + self.unsaved.fields.capacity() * 12
    }
}

/// Stands for no place in the arena.
const NO_LABELS: u32 = u32::MAX;

fn metric_hash(metric: &str) -> u64 {
    text_hash(0, metric)
}

fn metric_of(measurements: &[Measurement], text: &TextArena, id: MeasurementId, slot: Slot) -> u64 {
    let Some(measurement) = measurements.get(id as usize) else {
        return 0;
    };
    let name = measurement.names.get(slot as usize).map_or("", |at| text.get(*at));
    metric_hash(&metric_name(&measurement.name, name))
}

fn labelled_hash(name: &str, packed: &str) -> u64 {
    mix(text_hash(0, name), text_hash(1, packed))
}

/// Labels as one text: pairs of lines, lengths in front of each.
fn pack(labels: &Labels) -> String {
    let mut packed = String::new();
    for text in labels.iter().flat_map(|(name, value)| [name, value]) {
        packed.push_str(&text.len().to_string());
        packed.push(' ');
        packed.push_str(text);
    }
    packed
}

fn unpack(mut packed: &str) -> Labels {
    let mut texts = Vec::new();
    while let Some((length, rest)) = packed.split_once(' ') {
        let Some((text, rest)) = length.parse().ok().and_then(|length| rest.split_at_checked(length)) else {
            break;
        };
        texts.push(text);
        packed = rest;
    }
    Labels::from_sorted(texts.as_chunks::<2>().0.iter().map(|[name, value]| (*name, *value)))
}

impl Measurement {
    fn check_type(&self, slot: Slot, field: &Field) -> Result<(), CatalogError> {
        match self.types.get(slot as usize) {
            Some(existing) if *existing != field.value_type => Err(CatalogError::TypeConflict {
                measurement: self.name.clone(),
                field: field.name.clone(),
                existing: *existing,
                requested: field.value_type,
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
