//! Entries that no segment holds yet, and segments' lists of entries.

use super::{Catalog, FieldInfo, Measurement};
use crate::entry::Entry;
use crate::{CatalogEntry, DatabaseId, MeasurementId, Slot};

/// Entries that no segment holds yet, by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnsavedCatalog {
    pub(super) databases: Vec<DatabaseId>,
    pub(super) measurements: Vec<MeasurementId>,
    /// Ranges of fields: first, and one more than the last.
    pub(super) fields: Vec<(MeasurementId, Slot, Slot)>,
    pub(super) metadata: Vec<(DatabaseId, String)>,
    pub(super) tags: Vec<(MeasurementId, String)>,
}

impl UnsavedCatalog {
    /// Returns whether nothing is registered.
    pub fn is_empty(&self) -> bool {
        self.databases.is_empty()
            && self.measurements.is_empty()
            && self.fields.is_empty()
            && self.metadata.is_empty()
            && self.tags.is_empty()
    }

    pub(super) fn add(&mut self, entry: &CatalogEntry) {
        match entry {
            CatalogEntry::Database { id, .. } => self.databases.push(*id),
            CatalogEntry::Measurement { id, .. } => self.measurements.push(*id),
            CatalogEntry::Tag { measurement, name } => self.tags.push((*measurement, name.clone())),
            CatalogEntry::Field { measurement, slot, .. } => match self.fields.last_mut() {
                Some((last, _, end)) if last == measurement && *end == *slot => *end += 1,
                _ => self.fields.push((*measurement, *slot, slot + 1)),
            },
            CatalogEntry::Metadata { database, metadata } => self.metadata.push((*database, metadata.family.clone())),
        }
    }

    pub(super) fn entries(&self) -> usize {
        let fields: usize = self.fields.iter().map(|(_, first, end)| (end - first) as usize).sum();
        self.databases.len() + self.measurements.len() + fields + self.metadata.len() + self.tags.len()
    }
}

impl Catalog {
    /// What the next segment must hold: what is new since the last call.
    pub fn take_unsaved(&mut self) -> UnsavedCatalog {
        std::mem::take(&mut self.unsaved)
    }

    /// Returns whether there is anything that no segment holds.
    pub fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    /// Puts back what could not be written.
    pub fn put_back_unsaved(&mut self, mut unsaved: UnsavedCatalog) {
        unsaved.databases.append(&mut self.unsaved.databases);
        unsaved.measurements.append(&mut self.unsaved.measurements);
        unsaved.fields.append(&mut self.unsaved.fields);
        unsaved.metadata.append(&mut self.unsaved.metadata);
        unsaved.tags.append(&mut self.unsaved.tags);
        self.unsaved = unsaved;
    }

    /// Appends what is not saved, as a list of entries.
    pub fn encode_unsaved(&self, unsaved: &UnsavedCatalog, out: &mut Vec<u8>) {
        codec::varint::push(out, unsaved.entries() as u64);
        let databases = unsaved.databases.iter().filter_map(|id| self.database_entry(*id));
        let measurements = unsaved.measurements.iter().filter_map(|id| self.measurement_entry(*id));
        databases.chain(measurements).for_each(|entry| entry.encode(out));
        for (measurement, first, end) in &unsaved.fields {
            let fields = (*first..*end).filter_map(|slot| self.field_entry(*measurement, slot));
            fields.for_each(|entry| entry.encode(out));
        }
        let said = |(database, family): &(DatabaseId, String)| {
            let metadata = self.metadata_of(*database, family)?.clone();
            Some(CatalogEntry::Metadata { database: *database, metadata })
        };
        unsaved.metadata.iter().filter_map(said).for_each(|entry| entry.encode(out));
        for (measurement, name) in &unsaved.tags {
            CatalogEntry::Tag { measurement: *measurement, name: name.clone() }.encode(out);
        }
    }

    /// Appends everything, as a list of entries: what a segment that replaces all others holds.
    pub fn encode_all(&self, out: &mut Vec<u8>) {
        self.encode_unsaved(&self.everything(), out);
    }

    fn everything(&self) -> UnsavedCatalog {
        let field = |(id, known): (MeasurementId, &Measurement)| (id, 0, known.names.len() as Slot);
        let metadata = self
            .databases
            .iter()
            .zip(0..)
            .flat_map(|(database, id)| database.metadata.keys().map(move |family| (id, family.clone())));
        let tags = (0..)
            .zip(&self.measurements)
            .flat_map(|(id, known): (MeasurementId, &Measurement)| known.tags.iter().map(move |tag| (id, tag.clone())));
        UnsavedCatalog {
            databases: (0..self.databases.len() as DatabaseId).collect(),
            measurements: (0..self.measurements.len() as MeasurementId).collect(),
            fields: (0..).zip(&self.measurements).map(field).collect(),
            metadata: metadata.collect(),
            tags: tags.collect(),
        }
    }

    fn database_entry(&self, id: DatabaseId) -> Option<CatalogEntry> {
        let name = self.databases.get(id as usize)?.name.clone();
        Some(CatalogEntry::Database { id, name })
    }

    fn measurement_entry(&self, id: MeasurementId) -> Option<CatalogEntry> {
        let known = self.measurements.get(id as usize)?;
        Some(CatalogEntry::Measurement { id, database: known.database, name: known.name.clone() })
    }

    fn field_entry(&self, measurement: MeasurementId, slot: Slot) -> Option<CatalogEntry> {
        let FieldInfo { name, value_type, labels, .. } = self.field(measurement, slot)?;
        Some(CatalogEntry::Field { measurement, slot, name: name.to_owned(), value_type, labels })
    }
}
