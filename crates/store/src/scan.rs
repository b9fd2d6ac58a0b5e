//! Reading: which groups satisfy matchers, and their samples in a stretch of time.

use std::collections::HashMap;
use std::sync::Arc;

use index::{CompiledMatcher, DatabaseId, GroupId, RoaringBitmap, Slot};
use model::{Labels, MetricMetadata, ValueType};

use crate::Store;
use crate::part::PartKey;
use crate::shard::Shard;

/// A group that satisfies matchers, with the chosen of its columns.
#[derive(Debug, Clone)]
pub struct SelectedGroup {
    /// The group's labels, without the metric name.
    pub labels: Labels,
    /// Its chosen columns, sorted by slot.
    pub columns: Arc<Vec<SelectedColumn>>,
    pub(crate) shard: usize,
    pub(crate) key: PartKey,
}

/// A column of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedColumn {
    /// The metric name under which PromQL sees it.
    pub metric: String,
    /// The type of its values.
    pub value_type: ValueType,
    pub(crate) slot: Slot,
}

impl Store {
    /// The groups that satisfy all matchers, those on `__name__` choosing columns. Groups whose columns make up the same
    /// labels (a row of `cpu` with `usage` and one of `cpu_usage`) are all given.
    pub fn select(&self, database: &str, matchers: &[CompiledMatcher]) -> Vec<SelectedGroup> {
        let catalog = self.catalog.read();
        let Some(database) = catalog.catalog.database(database) else {
            return Vec::new();
        };
        let columns = catalog.catalog.metrics(database, matchers);
        let mut selected = Vec::new();
        for (number, shard) in self.shards.iter().enumerate() {
            let index = shard.groups.read();
            let mut shared: HashMap<(u32, Vec<Slot>), Arc<Vec<SelectedColumn>>> = HashMap::new();
            for (id, slots) in index.groups.select(database, &columns, matchers) {
                let Some(group) = index.groups.get(id) else {
                    continue;
                };
                let measurement = group.measurement;
                let columns = shared.entry((measurement, slots)).or_insert_with_key(|(_, slots)| {
                    let column = |slot: &Slot| {
                        let field = catalog.catalog.field(measurement, *slot)?;
                        Some(SelectedColumn { metric: field.metric.clone(), value_type: field.value_type, slot: *slot })
                    };
                    Arc::new(slots.iter().filter_map(column).collect())
                });
                let key = PartKey { database, measurement, group: id, block: 0 };
                selected.push(SelectedGroup {
                    labels: group.labels.clone(),
                    columns: columns.clone(),
                    shard: number,
                    key,
                });
            }
        }
        selected
    }

    /// Names of all labels of the selected groups, sorted, `__name__` not among them.
    pub fn label_names(&self, database: &str, selected: &[SelectedGroup]) -> Vec<String> {
        let mut names = std::collections::BTreeSet::new();
        self.each_shard(database, selected, |shard, database, groups| {
            names.extend(shard.groups.read().groups.label_names(database, groups).map(str::to_owned));
        });
        names.into_iter().collect()
    }

    /// Values of a label (not `__name__`) of the selected groups, sorted.
    pub fn label_values(&self, database: &str, name: &str, selected: &[SelectedGroup]) -> Vec<String> {
        let mut values = std::collections::BTreeSet::new();
        self.each_shard(database, selected, |shard, database, groups| {
            values.extend(shard.groups.read().groups.label_values(database, name, groups).map(str::to_owned));
        });
        values.into_iter().collect()
    }

    fn each_shard(
        &self,
        database: &str,
        selected: &[SelectedGroup],
        mut visit: impl FnMut(&Shard, DatabaseId, &RoaringBitmap),
    ) {
        let Some(database) = self.catalog.read().catalog.database(database) else {
            return;
        };
        for (number, shard) in self.shards.iter().enumerate() {
            let of_shard = selected.iter().filter(|group| group.shard == number);
            let groups: RoaringBitmap = of_shard.map(|group| group.key.group as GroupId).collect();
            visit(shard, database, &groups);
        }
    }

    /// What clients said of metric families, by name; of one family if it is named.
    pub fn metadata(&self, database: &str, family: Option<&str>) -> Vec<MetricMetadata> {
        let state = self.catalog.read();
        let Some(database) = state.catalog.database(database) else {
            return Vec::new();
        };
        match family {
            Some(family) => state.catalog.metadata_of(database, family).cloned().into_iter().collect(),
            None => state.catalog.metadata(database).cloned().collect(),
        }
    }

    /// Names of all databases.
    pub fn databases(&self) -> Vec<String> {
        self.catalog.read().catalog.database_names().map(str::to_owned).collect()
    }
}
