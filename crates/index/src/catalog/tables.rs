//! Measurements as tables: what there is, by name.

use std::collections::HashSet;

use model::ValueType;

use super::{Catalog, MetricColumns};
use crate::{CatalogEntry, CompiledMatcher, DatabaseId, MeasurementId, Slot};

impl Catalog {
    /// A database's measurements, sorted by name.
    pub fn measurements(&self, database: DatabaseId) -> Vec<(&str, MeasurementId)> {
        let Some(known) = self.databases.get(database as usize) else {
            return Vec::new();
        };
        let mut found: Vec<(&str, MeasurementId)> =
            known.measurements.iter().map(|(name, id)| (name.as_str(), *id)).collect();
        found.sort_unstable();
        found
    }

    /// Names and types of a measurement's fields in the order in which they came; each name once, whatever labels its fields
    /// have.
    pub fn fields(&self, measurement: MeasurementId) -> Vec<(&str, ValueType)> {
        let Some(known) = self.measurements.get(measurement as usize) else {
            return Vec::new();
        };
        let mut seen = HashSet::new();
        let fields = known.names.iter().zip(&known.types).filter(|(name, _)| seen.insert(**name));
        fields.map(|(name, value_type)| (self.text.get(*name), *value_type)).collect()
    }

    /// The types of a measurement's fields of a name, in the order in which they came; other groups may have the name with another type.
    pub fn field_types(&self, measurement: MeasurementId, name: &str) -> Vec<ValueType> {
        let Some(known) = self.measurements.get(measurement as usize) else {
            return Vec::new();
        };
        let of_name = known.names.iter().zip(&known.types).filter(|(known, _)| self.text.get(**known) == name);
        of_name.map(|(_, value_type)| *value_type).collect()
    }

    /// Returns whether fields of a measurement have labels of their own, beside those of their groups.
    pub fn has_labelled_fields(&self, measurement: MeasurementId) -> bool {
        self.measurements.get(measurement as usize).is_some_and(|known| known.labelled.is_some())
    }

    /// The columns of a measurement that have one of these names, or all of them for none. Matchers have the same say as in
    /// [`Catalog::metrics`].
    pub fn table_columns(
        &self,
        measurement: MeasurementId,
        fields: &[String],
        matchers: &[CompiledMatcher],
    ) -> Vec<MetricColumns> {
        let Some(known) = self.measurements.get(measurement as usize) else {
            return Vec::new();
        };
        let wanted: HashSet<&str> = fields.iter().map(String::as_str).collect();
        let is_wanted = |name: &u32| wanted.is_empty() || wanted.contains(self.text.get(*name));
        let chosen = (0..).zip(&known.names).filter(|(_, name)| is_wanted(name));
        let slots: Vec<Slot> = chosen.map(|(slot, _)| slot).collect();
        let mut columns = Vec::new();
        if !slots.is_empty() {
            self.push_columns(measurement, slots, matchers, &mut columns);
        }
        columns
    }

    /// Declares a tag of a measurement that exists; the entry that tells of it if it is new.
    pub fn register_tag(&mut self, measurement: MeasurementId, name: &str) -> Option<CatalogEntry> {
        let known = self.measurements.get(measurement as usize)?;
        if known.name.is_empty() || known.tags.iter().any(|tag| tag == name) {
            return None;
        }
        self.add(CatalogEntry::Tag { measurement, name: name.to_owned() })
    }

    /// Tags of a measurement that were declared before any group had them.
    pub fn tags(&self, measurement: MeasurementId) -> &[String] {
        self.measurements.get(measurement as usize).map_or(&[], |known| &known.tags)
    }
}
