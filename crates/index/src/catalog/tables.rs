//! Measurements as tables: what there is, by name.

use std::collections::HashSet;

use model::ValueType;

use super::{Catalog, MetricColumns};
use crate::{CompiledMatcher, DatabaseId, MeasurementId, Slot};

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
}
