//! Measurements as tables: their columns, and the groups that hold their rows.

use std::sync::Arc;

use index::{CompiledMatcher, TextSet};
use model::{METRIC_NAME, MatchOp, Matcher, ValueType};

use crate::cache::selections::{SelectionKey, TableGroups};
use crate::read::select::{ChosenColumns, SelectedGroup};
use crate::retention::table_layout::TableLayout;
use crate::{Store, StoreError};

/// What a table looks like: a measurement's tags and fields, or a Prometheus metric's labels and `value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSchema {
    /// The measurement.
    pub name: String,
    /// Labels that some of its groups have, sorted.
    pub tags: Vec<String>,
    /// Names and types of its fields, in the order in which they came; histograms are not among them.
    pub fields: Vec<(String, ValueType)>,
    /// Its columns as they were declared; `None` if they were not.
    pub layout: Option<Arc<TableLayout>>,
}

/// What a metric's name means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricField {
    /// The measurement.
    pub table: String,
    /// Its field.
    pub field: String,
    /// The type of its values.
    pub value_type: ValueType,
}

/// Which groups of a table a reader wants, and which of their columns.
#[derive(Debug, Clone, Copy)]
pub struct TableSelection<'a> {
    /// The database.
    pub database: &'a str,
    /// The measurement.
    pub table: &'a str,
    /// The columns, by name; empty: all.
    pub fields: &'a [String],
    /// All must hold.
    pub matchers: &'a [CompiledMatcher],
}

/// A measurement by its name, and what changes when it gets fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownTable {
    /// Its name.
    pub name: String,
    /// A number that no other one has or gets while the folder is open.
    pub number: u32,
    /// How many fields it has, those with labels of their own counted one by one.
    pub fields: u32,
}

impl Store {
    /// How often a name of a database, a measurement or a field came or went since the folder was opened.
    pub fn name_changes(&self) -> u64 {
        self.catalog.read().catalog.changes()
    }

    /// The measurements of a database, sorted by name, those without groups among them.
    pub fn known_tables(&self, database: &str) -> Vec<KnownTable> {
        let catalog = self.catalog.read();
        let Some(database) = catalog.catalog.database(database) else { return Vec::new() };
        let counts = catalog.catalog.field_counts();
        let known = |(name, number): (&str, index::MeasurementId)| {
            let fields = counts.get(number as usize).copied().unwrap_or_default();
            KnownTable { name: name.to_owned(), number, fields }
        };
        catalog.catalog.measurements(database).into_iter().map(known).collect()
    }

    /// Names of the measurements that have groups, sorted.
    pub fn tables(&self, database: &str) -> Result<Vec<String>, StoreError> {
        let catalog = self.catalog.read();
        let Some(database) = catalog.catalog.database(database) else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for (name, measurement) in catalog.catalog.measurements(database) {
            for shard in &self.shards {
                let groups = shard.groups.read().groups.of_measurement(database, measurement);
                if !groups.map_err(StoreError::index(&self.options.directory))?.is_empty() {
                    names.push(name.to_owned());
                    break;
                }
            }
        }
        Ok(names)
    }

    /// A table's columns; `None` if no group has the measurement.
    pub fn table(&self, database: &str, table: &str) -> Result<Option<TableSchema>, StoreError> {
        let layout = self.table_layout(database, table);
        let catalog = self.catalog.read();
        let Some(database) = catalog.catalog.database(database) else {
            return Ok(None);
        };
        let Some(measurement) = catalog.catalog.measurement(database, table) else {
            return Ok(None);
        };
        let (mut tags, mut exists) = (TextSet::default(), false);
        for shard in &self.shards {
            let unreadable = StoreError::index(&self.options.directory);
            let index = shard.groups.read();
            let groups = index.groups.of_measurement(database, measurement).map_err(&unreadable)?;
            exists |= !groups.is_empty();
            index.groups.add_label_names(database, &groups, &mut tags).map_err(&unreadable)?;
        }
        catalog.catalog.tags(measurement).iter().for_each(|tag| tags.insert(tag));
        let fields = catalog.catalog.fields(measurement).into_iter();
        let fields = fields.filter(|(_, value_type)| *value_type != ValueType::Histogram);
        let fields = fields.map(|(name, value_type)| (name.to_owned(), value_type)).collect();
        Ok(exists.then(|| TableSchema { name: table.to_owned(), tags: tags.into_sorted(), fields, layout }))
    }

    /// The table and the field that a metric's name means, and the type of its values; `None` if it means several or none, or a field of which columns
    /// have labels of their own.
    pub fn field_of_metric(&self, database: &str, metric: &str) -> Result<Option<MetricField>, StoreError> {
        let named = [Matcher::new(METRIC_NAME, MatchOp::Equal, metric)];
        let Ok(matchers) = index::compile(&named) else { return Ok(None) };
        let catalog = self.catalog.read();
        let Some(database) = catalog.catalog.database(database) else { return Ok(None) };
        let columns = catalog.catalog.metrics(database, &matchers);
        let [columns] = columns.as_slice() else { return Ok(None) };
        let [slot] = columns.slots.as_slice() else { return Ok(None) };
        let field = catalog.catalog.field(columns.measurement, *slot).filter(|field| field.labels.is_empty());
        Ok(field.map(|field| MetricField {
            table: field.measurement.to_owned(),
            field: field.name.to_owned(),
            value_type: field.value_type,
        }))
    }

    /// The names of the fields that a table has or had, those of histograms among them: a field stays known when all its rows are gone.
    pub fn known_fields(&self, database: &str, table: &str) -> Vec<String> {
        let catalog = self.catalog.read();
        let measurement = catalog.catalog.database(database).and_then(|id| catalog.catalog.measurement(id, table));
        let fields = measurement.map(|measurement| catalog.catalog.fields(measurement)).unwrap_or_default();
        fields.into_iter().map(|(name, _)| name.to_owned()).collect()
    }

    /// The types of the fields of a name that a table has or had: groups may have it with different ones.
    pub fn known_field_types(&self, database: &str, table: &str, field: &str) -> Vec<ValueType> {
        let catalog = self.catalog.read();
        let measurement = catalog.catalog.database(database).and_then(|id| catalog.catalog.measurement(id, table));
        measurement.map(|measurement| catalog.catalog.field_types(measurement, field)).unwrap_or_default()
    }

    /// Returns whether fields of a table have labels of their own: series of one group differ in them, and their rows go together.
    pub fn has_labelled_fields(&self, database: &str, table: &str) -> bool {
        let catalog = self.catalog.read();
        let measurement = catalog.catalog.database(database).and_then(|id| catalog.catalog.measurement(id, table));
        measurement.is_some_and(|measurement| catalog.catalog.has_labelled_fields(measurement))
    }

    /// A table's groups that satisfy all matchers, with those of their columns that have one of the names (none: all), of which each has one.
    pub fn select_table(
        &self,
        database: &str,
        table: &str,
        fields: &[String],
        matchers: &[CompiledMatcher],
    ) -> Result<Arc<TableGroups>, StoreError> {
        let selection = TableSelection { database, table, fields, matchers };
        let selected = self.select_table_within(&selection, &|_| true)?;
        Ok(selected.unwrap_or_default())
    }

    /// As [`Store::select_table`]; `reserve` is asked for memory as by [`Store::select_within`].
    pub fn select_table_within(
        &self,
        selection: &TableSelection<'_>,
        reserve: &dyn Fn(u64) -> bool,
    ) -> Result<Option<Arc<TableGroups>>, StoreError> {
        let (key, index_changes) = (SelectionKey::new(selection), self.index_changes());
        if let Some(groups) = self.caches.selections().get(&key, index_changes) {
            return Ok(Some(groups));
        }
        let Some(mut groups) = self.select_table_now(selection, reserve)? else {
            return Ok(None);
        };
        groups.retain(|group| !group.columns.is_empty());
        rank_by_labels(&mut groups);
        Ok(Some(self.caches.selections().insert(key, index_changes, groups)))
    }

    /// As [`Store::select_table_within`], neither from nor into the cache of selections.
    pub(crate) fn select_table_now(
        &self,
        selection: &TableSelection<'_>,
        reserve: &dyn Fn(u64) -> bool,
    ) -> Result<Option<Vec<SelectedGroup>>, StoreError> {
        let TableSelection { database, table, fields, matchers } = *selection;
        let catalog = self.catalog.read();
        let Some(database) = catalog.catalog.database(database) else {
            return Ok(Some(Vec::new()));
        };
        let Some(measurement) = catalog.catalog.measurement(database, table) else {
            return Ok(Some(Vec::new()));
        };
        let columns = catalog.catalog.table_columns(measurement, fields, matchers);
        let chosen = ChosenColumns { database, columns: &columns, projection: None };
        self.select_columns(&catalog.catalog, &chosen, matchers, reserve)
    }
}

/// Numbers groups in the order of their labels, in which readers show them: comparing labels each time costs as much as reading a row of each
/// group. The groups stay in the order in which parts have them.
fn rank_by_labels(groups: &mut [SelectedGroup]) {
    let mut by_labels: Vec<&mut SelectedGroup> = groups.iter_mut().collect();
    by_labels.sort_by(|a, b| a.labels.cmp(&b.labels));
    (0..).zip(by_labels).for_each(|(rank, group)| group.rank = rank);
}
