//! What exists by name: databases, measurements, fields, and what clients say of metrics.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use model::{Field, MetricMetadata, ValueType, metric_name};

use crate::{CatalogEntry, CompiledMatcher, DatabaseId, MeasurementId, Slot};

/// Databases, measurements and fields, each numbered in order of appearance; nothing is ever renumbered.
#[derive(Debug, Default)]
pub struct Catalog {
    databases: Vec<Database>,
    database_ids: HashMap<String, DatabaseId>,
    measurements: Vec<Measurement>,
    /// Entries since the last [`Catalog::take_unsaved`].
    unsaved: Vec<CatalogEntry>,
}

#[derive(Debug)]
struct Database {
    name: String,
    measurements: HashMap<String, MeasurementId>,
    /// Metric name to the columns that bear it: more than one where `a` + `b_c` and `a_b` + `c` both exist.
    metrics: BTreeMap<String, Vec<(MeasurementId, Slot)>>,
    metadata: BTreeMap<String, MetricMetadata>,
}

#[derive(Debug)]
struct Measurement {
    database: DatabaseId,
    name: String,
    fields: Vec<FieldInfo>,
    slots: HashMap<String, Slot>,
}

/// A field as the catalog knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldInfo {
    /// Its name.
    pub name: String,
    /// The type of its values.
    pub value_type: ValueType,
    /// The metric name under which PromQL sees it.
    pub metric: String,
}

/// The columns of one measurement that a metric matcher chose: slots, sorted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricColumns {
    /// The measurement.
    pub measurement: MeasurementId,
    /// Its chosen slots.
    pub slots: Vec<Slot>,
}

/// Why something cannot be registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CatalogError {
    /// A field is written with another type than it has.
    TypeConflict {
        /// The measurement's name.
        measurement: String,
        /// The field's name.
        field: String,
        /// The type that the field has.
        existing: ValueType,
        /// The type that was written.
        given: ValueType,
    },
    /// An entry does not follow from what the catalog holds: a log or a segment is missing or damaged.
    OutOfOrder {
        /// The entry.
        entry: String,
    },
}

impl fmt::Display for CatalogError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TypeConflict { measurement, field, existing, given } => write!(
                formatter,
                "field type conflict: input field \"{field}\" on measurement \"{measurement}\" is type {}, already \
                 exists as type {}",
                given.name(),
                existing.name()
            ),
            Self::OutOfOrder { entry } => write!(formatter, "catalog entry out of order: {entry}"),
        }
    }
}

impl std::error::Error for CatalogError {}

impl Catalog {
    /// The number of a database.
    pub fn database(&self, name: &str) -> Option<DatabaseId> {
        self.database_ids.get(name).copied()
    }

    /// Names of all databases; the position of each is its number.
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

    /// A field of a measurement.
    pub fn field(&self, measurement: MeasurementId, slot: Slot) -> Option<&FieldInfo> {
        self.measurements.get(measurement as usize)?.fields.get(slot as usize)
    }

    /// The slots of fields that all exist with these types; `None` if one of them is new.
    pub fn find_slots(&self, measurement: MeasurementId, fields: &[Field]) -> Result<Option<Vec<Slot>>, CatalogError> {
        let Some(known) = self.measurements.get(measurement as usize) else {
            return Ok(None);
        };
        let mut slots = Vec::with_capacity(fields.len());
        for field in fields {
            let Some(slot) = known.slots.get(&field.name).copied() else {
                return Ok(None);
            };
            known.check_type(slot, field)?;
            slots.push(slot);
        }
        Ok(Some(slots))
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
        let known = self.measurements.get(measurement as usize);
        let next = known.map_or(0, |known| known.fields.len() as Slot);
        if let Some((known, slot)) = known.and_then(|known| Some((known, *known.slots.get(&field.name)?))) {
            known.check_type(slot, field)?;
            return Ok((slot, None));
        }
        let (name, value_type) = (field.name.clone(), field.value_type);
        Ok((next, self.add(CatalogEntry::Field { measurement, slot: next, name, value_type })))
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
        self.apply(entry.clone()).ok().map(|()| entry)
    }

    /// Takes in an entry from the log or a segment. Entries that are known already change nothing.
    pub fn apply(&mut self, entry: CatalogEntry) -> Result<(), CatalogError> {
        if self.apply_known(&entry)? {
            self.unsaved.push(entry);
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
                    return Ok(false);
                }
                if *id as usize > self.databases.len() {
                    return Err(out_of_order());
                }
                self.database_ids.insert(name.clone(), *id);
                self.databases.push(Database {
                    name: name.clone(),
                    measurements: HashMap::new(),
                    metrics: BTreeMap::new(),
                    metadata: BTreeMap::new(),
                });
            }
            CatalogEntry::Measurement { id, database, name } => {
                if (*id as usize) < self.measurements.len() {
                    return Ok(false);
                }
                let known = self.databases.get_mut(*database as usize).ok_or_else(out_of_order)?;
                if *id as usize > self.measurements.len() {
                    return Err(out_of_order());
                }
                known.measurements.insert(name.clone(), *id);
                self.measurements.push(Measurement {
                    database: *database,
                    name: name.clone(),
                    fields: Vec::new(),
                    slots: HashMap::new(),
                });
            }
            CatalogEntry::Field { measurement, slot, name, value_type } => {
                return self.apply_field(*measurement, *slot, name, *value_type).ok_or_else(out_of_order);
            }
            CatalogEntry::Metadata { database, metadata } => {
                let known = self.databases.get_mut(*database as usize).ok_or_else(out_of_order)?;
                let before = known.metadata.insert(metadata.family.clone(), metadata.clone());
                return Ok(before.as_ref() != Some(metadata));
            }
        }
        Ok(true)
    }

    /// Whether the field is new; `None` if it does not follow.
    fn apply_field(&mut self, id: MeasurementId, slot: Slot, name: &str, value_type: ValueType) -> Option<bool> {
        let measurement = self.measurements.get_mut(id as usize)?;
        if (slot as usize) < measurement.fields.len() {
            return Some(false);
        }
        if slot as usize > measurement.fields.len() {
            return None;
        }
        let metric = metric_name(&measurement.name, name);
        let database = self.databases.get_mut(measurement.database as usize)?;
        database.metrics.entry(metric.clone()).or_default().push((id, slot));
        measurement.slots.insert(name.to_owned(), slot);
        measurement.fields.push(FieldInfo { name: name.to_owned(), value_type, metric });
        Some(true)
    }

    /// Entries since the last call: what the next segment must hold.
    pub fn take_unsaved(&mut self) -> Vec<CatalogEntry> {
        std::mem::take(&mut self.unsaved)
    }

    /// Whether there are entries that no segment holds.
    pub fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// Puts back entries whose segment could not be written.
    pub fn put_back_unsaved(&mut self, mut entries: Vec<CatalogEntry>) {
        entries.append(&mut self.unsaved);
        self.unsaved = entries;
    }

    /// The columns whose metric names satisfy all the matchers; other labels' matchers are not looked at.
    pub fn metrics(&self, database: DatabaseId, matchers: &[CompiledMatcher]) -> Vec<MetricColumns> {
        let Some(database) = self.databases.get(database as usize) else {
            return Vec::new();
        };
        let on_name: Vec<&CompiledMatcher> =
            matchers.iter().filter(|matcher| matcher.name() == model::METRIC_NAME).collect();
        let mut columns: BTreeMap<MeasurementId, Vec<Slot>> = BTreeMap::new();
        let mut choose = |metric: &str, places: &[(MeasurementId, Slot)]| {
            if on_name.iter().all(|matcher| matcher.matches(metric)) {
                for (measurement, slot) in places {
                    columns.entry(*measurement).or_default().push(*slot);
                }
            }
        };
        match on_name.iter().find_map(|matcher| matcher.candidates()) {
            Some(names) => {
                for name in names {
                    if let Some(places) = database.metrics.get(name) {
                        choose(name, places);
                    }
                }
            }
            None => database.metrics.iter().for_each(|(metric, places)| choose(metric, places)),
        }
        let columns = columns.into_iter().map(|(measurement, mut slots)| {
            slots.sort_unstable();
            slots.dedup();
            MetricColumns { measurement, slots }
        });
        columns.collect()
    }

    /// What clients said of one metric family.
    pub fn metadata_of(&self, database: DatabaseId, family: &str) -> Option<&MetricMetadata> {
        self.databases.get(database as usize)?.metadata.get(family)
    }

    /// Everything, as entries: what a segment that replaces all others holds.
    pub fn all_entries(&self) -> Vec<CatalogEntry> {
        let mut entries = Vec::new();
        for (id, database) in self.databases.iter().enumerate() {
            entries.push(CatalogEntry::Database { id: id as DatabaseId, name: database.name.clone() });
        }
        for (id, known) in self.measurements.iter().enumerate() {
            let id = id as MeasurementId;
            entries.push(CatalogEntry::Measurement { id, database: known.database, name: known.name.clone() });
            entries.extend(known.fields.iter().enumerate().map(|(slot, field)| CatalogEntry::Field {
                measurement: id,
                slot: slot as Slot,
                name: field.name.clone(),
                value_type: field.value_type,
            }));
        }
        for (id, database) in self.databases.iter().enumerate() {
            let said = |metadata: &MetricMetadata| CatalogEntry::Metadata {
                database: id as DatabaseId,
                metadata: metadata.clone(),
            };
            entries.extend(database.metadata.values().map(said));
        }
        entries
    }

    /// What clients said of metric families, by name.
    pub fn metadata(&self, database: DatabaseId) -> impl Iterator<Item = &MetricMetadata> {
        self.databases.get(database as usize).into_iter().flat_map(|database| database.metadata.values())
    }
}

impl Measurement {
    fn check_type(&self, slot: Slot, field: &Field) -> Result<(), CatalogError> {
        match self.fields.get(slot as usize) {
            Some(known) if known.value_type != field.value_type => Err(CatalogError::TypeConflict {
                measurement: self.name.clone(),
                field: field.name.clone(),
                existing: known.value_type,
                given: field.value_type,
            }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{MatchOp, Matcher};

    use super::*;

    fn field(name: &str, value_type: ValueType) -> Field {
        Field { name: name.to_owned(), value_type }
    }

    fn example() -> Catalog {
        let mut catalog = Catalog::default();
        let (database, _) = catalog.register_database("default");
        let (cpu, _) = catalog.register_measurement(database, "cpu");
        catalog.register_field(cpu, &field("usage_user", ValueType::F64)).unwrap();
        catalog.register_field(cpu, &field("value", ValueType::I64)).unwrap();
        let (cpu_usage, _) = catalog.register_measurement(database, "cpu_usage");
        catalog.register_field(cpu_usage, &field("user", ValueType::F64)).unwrap();
        catalog
    }

    #[test]
    fn one_metric_name_may_stand_for_columns_of_several_measurements() {
        let catalog = example();
        let chosen = |op, value: &str| {
            let matcher = CompiledMatcher::new(&Matcher::new("__name__", op, value)).unwrap();
            let columns = catalog.metrics(0, &[matcher]).into_iter();
            columns.map(|columns| (columns.measurement, columns.slots)).collect::<Vec<_>>()
        };
        assert_eq!(chosen(MatchOp::Equal, "cpu_usage_user"), [(0, vec![0]), (1, vec![0])]);
        assert_eq!(chosen(MatchOp::Equal, "cpu"), [(0, vec![1])]);
        assert_eq!(chosen(MatchOp::Regex, "cpu.*"), [(0, vec![0, 1]), (1, vec![0])]);
        assert_eq!(chosen(MatchOp::NotEqual, "cpu"), [(0, vec![0]), (1, vec![0])]);
        assert_eq!(chosen(MatchOp::Equal, ""), []);
    }

    #[test]
    fn a_type_conflict_names_the_field_and_both_types() {
        let mut catalog = example();
        let error = catalog.register_field(0, &field("value", ValueType::F64)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "field type conflict: input field \"value\" on measurement \"cpu\" is type float, already exists as type \
             integer"
        );
    }

    #[test]
    fn is_the_sum_of_its_entries() {
        let mut catalog = example();
        let entries = catalog.take_unsaved();
        assert_eq!(entries.len(), 6);
        let mut copy = Catalog::default();
        for entry in entries.iter().chain(&entries) {
            copy.apply(entry.clone()).unwrap();
        }
        assert_eq!(copy.take_unsaved(), entries, "known entries change nothing");
        let mut whole = Catalog::default();
        for entry in copy.all_entries() {
            whole.apply(entry).unwrap();
        }
        assert_eq!(whole.all_entries(), catalog.all_entries());
        assert!(Catalog::default().apply(entries[2].clone()).is_err(), "a field before its measurement");
    }
}
