//! What goes from the catalog: names of databases and measurements. Numbers stay.

use model::metric_name;

use super::{Catalog, Measurement, metric_hash};
use crate::{CatalogEntry, DatabaseId, MeasurementId, Slot};

impl Catalog {
    /// Takes a database's name from it; the entry that tells of it if it had one. What it holds stays under its number.
    pub fn drop_database(&mut self, id: DatabaseId) -> Option<CatalogEntry> {
        let entry = CatalogEntry::Database { id, name: String::new() };
        let had_name = self.databases.get(id as usize).is_some_and(|known| !known.name.is_empty());
        if had_name { self.add(entry) } else { None }
    }

    /// Returns whether it had a name until now.
    pub(super) fn forget_database(&mut self, id: DatabaseId) -> bool {
        let Some(known) = self.databases.get_mut(id as usize) else { return false };
        let name = std::mem::take(&mut known.name);
        self.database_ids.remove(&name);
        !name.is_empty()
    }

    /// Takes a measurement's name from it, so that a new one of the name has its own columns; the entry that tells of it if it had one. What
    /// groups hold of it stays under its number.
    pub fn drop_measurement(&mut self, id: MeasurementId) -> Option<CatalogEntry> {
        let known = self.measurements.get(id as usize).filter(|known| !known.name.is_empty())?;
        let entry = CatalogEntry::Measurement { id, database: known.database, name: String::new() };
        self.add(entry)
    }

    /// Returns whether it had a name until now.
    pub(super) fn forget_measurement(&mut self, id: MeasurementId) -> bool {
        let Some(known) = self.measurements.get(id as usize).filter(|known| !known.name.is_empty()) else {
            return false;
        };
        let fields = (0..known.names.len() as Slot).filter_map(|slot| self.field_name(known, slot));
        let hashes: Vec<u64> = fields.map(|name| metric_hash(&metric_name(&known.name, name))).collect();
        let Some(database) = self.databases.get_mut(known.database as usize) else { return false };
        database.measurements.remove(&known.name);
        for hash in hashes {
            while let Ok(entry) = database.metrics.find_entry(hash, |(measurement, _)| *measurement == id) {
                entry.remove();
            }
        }
        if let Some(known) = self.measurements.get_mut(id as usize) {
            known.name = String::new();
            known.tags = Vec::new();
        }
        true
    }

    /// Numbers of the measurements that were dropped.
    pub fn dropped_measurements(&self) -> impl Iterator<Item = (DatabaseId, MeasurementId)> {
        let is_dropped = |(_, known): &(MeasurementId, &Measurement)| known.name.is_empty();
        (0..).zip(&self.measurements).filter(is_dropped).map(|(id, known)| (known.database, id))
    }
}
