//! Reading: which groups satisfy matchers, and their samples in a range of time.

use std::cell::Cell;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use index::{
    Cardinality, Catalog, CompiledMatcher, DatabaseId, FieldInfo, GroupId, Groups, IndexError, MetricColumns,
    RoaringBitmap, Slot,
};
use model::{Labels, METRIC_NAME, MetricMetadata, ValueType};

use crate::part::PartKey;
use crate::read::by_block;
use crate::{Store, StoreError};

/// A group that satisfies matchers, with the chosen of its columns.
#[derive(Debug, Clone)]
pub struct SelectedGroup {
    /// The group's labels, without the metric name.
    pub labels: Labels,
    /// Its chosen columns, sorted by slot.
    pub columns: Arc<Vec<SelectedColumn>>,
    /// Its index among the groups of a table that were chosen with it, by labels; 0 where they were not put in order.
    pub rank: u32,
    pub(crate) shard: usize,
    pub(crate) key: PartKey,
}

/// A column of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedColumn {
    /// The metric name under which PromQL sees it.
    pub metric: String,
    /// Its name in its measurement.
    pub field: Arc<str>,
    /// The type of its values.
    pub value_type: ValueType,
    /// Labels that it has beside those of its group.
    pub labels: Labels,
    pub(crate) slot: Slot,
}

impl SelectedColumn {
    pub(crate) fn new(field: &FieldInfo<'_>, slot: Slot) -> Self {
        let (metric, name) = (field.metric(), field.name.into());
        Self { metric, field: name, value_type: field.value_type, labels: field.labels.clone(), slot }
    }

    /// All labels of the series: the group's, the column's own, and the metric name.
    pub fn series_labels(&self, group: &Labels) -> Labels {
        let joined = self.labels.iter().fold(group.clone(), |labels, (name, value)| labels.with(name, value));
        joined.with(METRIC_NAME, &self.metric)
    }
}

impl SelectedGroup {
    /// The measurement's number in its database: within one, groups have different labels.
    pub fn measurement(&self) -> u32 {
        self.key.measurement
    }

    /// The group with some of its columns, sorted by slot as they were.
    #[must_use]
    pub fn with_columns(&self, columns: Arc<Vec<SelectedColumn>>) -> Self {
        Self { columns, ..self.clone() }
    }

    /// Its columns as groups that are read apart: one for each member block.
    pub fn by_block(self) -> Vec<Self> {
        let blocks = by_block(&self.columns);
        if blocks.len() < 2 {
            return vec![self];
        }
        let columns =
            |indexes: Vec<usize>| indexes.iter().filter_map(|index| self.columns.get(*index)).cloned().collect();
        let groups =
            blocks.into_iter().map(|(_, indexes)| Self { columns: Arc::new(columns(indexes)), ..self.clone() });
        groups.collect()
    }
}

/// Bytes of a group while it is selected, without its labels: itself, and its number and slots while it is selected.
const SELECTED_BYTES: u64 = (size_of::<SelectedGroup>() + size_of::<index::Selected>()) as u64;

/// Bytes of a group's labels beside their text: counters and what the allocator adds.
const LABELS_OVERHEAD_BYTES: usize = 32;

/// Groups whose labels are made before memory is asked for again.
const GROUPS_PER_RESERVATION: usize = 256;

/// Columns by measurement and slots: many groups have the same.
type SharedColumns = HashMap<(u32, Arc<[Slot]>), Arc<Vec<SelectedColumn>>>;

impl Store {
    /// The groups that satisfy all matchers, those on `__name__` choosing columns. Groups whose columns make up the same
    /// labels (a row of `cpu` with `usage` and one of `cpu_usage`) are all given.
    pub fn select(&self, database: &str, matchers: &[CompiledMatcher]) -> Result<Vec<SelectedGroup>, StoreError> {
        Ok(self.select_within(database, matchers, &|_| true)?.unwrap_or_default())
    }

    /// As [`Store::select`], for callers that bound what they hold: `reserve` is asked for bytes again and again before they are used, and
    /// ends the selection by saying no; then there is no answer.
    pub fn select_within(
        &self,
        database: &str,
        matchers: &[CompiledMatcher],
        reserve: &dyn Fn(u64) -> bool,
    ) -> Result<Option<Vec<SelectedGroup>>, StoreError> {
        let catalog = self.catalog.read();
        let Some(database) = catalog.catalog.database(database) else {
            return Ok(Some(Vec::new()));
        };
        let columns = catalog.catalog.metrics(database, matchers);
        self.select_columns(&catalog.catalog, (database, &columns), matchers, reserve)
    }

    /// The groups that satisfy all matchers and have one of the columns.
    pub(crate) fn select_columns(
        &self,
        catalog: &Catalog,
        (database, columns): (DatabaseId, &[MetricColumns]),
        matchers: &[CompiledMatcher],
        reserve: &dyn Fn(u64) -> bool,
    ) -> Result<Option<Vec<SelectedGroup>>, StoreError> {
        let unreadable = StoreError::index(&self.options.directory);
        let (mut selected, mut shared) = (Vec::new(), SharedColumns::new());
        for (number, shard) in self.shards.iter().enumerate() {
            let index = shard.groups.read();
            let mut groups = index.groups.reader();
            let found = index.groups.select(database, columns, matchers).map_err(&unreadable)?;
            if !reserve(found.len() as u64 * SELECTED_BYTES) {
                return Ok(None);
            }
            selected.reserve_exact(found.len());
            let mut labels_bytes = 0;
            for (index, (id, slots)) in found.into_iter().enumerate() {
                if index % GROUPS_PER_RESERVATION == 0 && !reserve(std::mem::take(&mut labels_bytes)) {
                    return Ok(None);
                }
                let Some(group) = groups.get(id).map_err(&unreadable)? else {
                    continue;
                };
                let measurement = group.measurement;
                let columns = shared.entry((measurement, slots)).or_insert_with_key(|(_, slots)| {
                    let column = |slot: &Slot| Some(SelectedColumn::new(&catalog.field(measurement, *slot)?, *slot));
                    Arc::new(slots.iter().filter_map(column).collect())
                });
                let key = PartKey { database, measurement, group: id, block: 0 };
                let columns = columns.clone();
                labels_bytes += (group.labels.packed_bytes() + LABELS_OVERHEAD_BYTES) as u64;
                selected.push(SelectedGroup { labels: group.labels, columns, rank: 0, shard: number, key });
            }
            if !reserve(labels_bytes) {
                return Ok(None);
            }
        }
        Ok(Some(selected))
    }

    /// A number that is another one whenever matchers may choose other groups or columns than before.
    pub fn index_changes(&self) -> u64 {
        let groups: u64 = self.shards.iter().map(|shard| shard.groups.read().groups.changes()).sum();
        groups + self.catalog.read().catalog.changes()
    }

    /// Names of all labels of the selected groups, sorted, `__name__` not among them.
    pub fn label_names(&self, database: &str, selected: &[SelectedGroup]) -> Result<Vec<String>, StoreError> {
        let mut names = BTreeSet::new();
        self.each_shard(database, selected, |groups, database, chosen| {
            groups.label_names(database, chosen, &mut names)
        })?;
        names.extend(own_labels(selected).map(|(name, _)| name.to_owned()));
        Ok(names.into_iter().collect())
    }

    /// Values of a label (not `__name__`) of the selected groups, sorted.
    pub fn label_values(
        &self,
        database: &str,
        name: &str,
        selected: &[SelectedGroup],
    ) -> Result<Vec<String>, StoreError> {
        let mut values = BTreeSet::new();
        self.each_shard(database, selected, |groups, database, chosen| {
            groups.label_values(database, name, chosen, &mut values)
        })?;
        let own = own_labels(selected).filter(|(own, _)| *own == name);
        values.extend(own.map(|(_, value)| value.to_owned()));
        Ok(values.into_iter().collect())
    }

    /// What makes a database large, from the index alone; each list holds the `top` largest. A database that does not exist has nothing.
    /// `reserve` is asked as by [`Store::select_within`]: when it says no, there is no answer.
    pub fn cardinality_within(
        &self,
        database: &str,
        top: usize,
        reserve: &dyn Fn(u64) -> bool,
    ) -> Result<Option<Cardinality>, StoreError> {
        let Some(database) = self.catalog.read().catalog.database(database) else {
            return Ok(Some(Cardinality::default()));
        };
        let is_refused = Cell::new(false);
        let reserve = |bytes| {
            is_refused.set(!reserve(bytes));
            !is_refused.get()
        };
        match self.cardinality_of(database, top, &reserve) {
            Err(_) if is_refused.get() => Ok(None),
            counted => counted.map(Some),
        }
    }

    /// The name of a measurement by its number; empty if there is none.
    pub fn measurement_name(&self, measurement: u32) -> String {
        self.catalog.read().catalog.measurement_name(measurement).to_owned()
    }

    /// The data folder.
    pub fn directory(&self) -> &Path {
        &self.options.directory
    }

    /// The address of the object store, if parts of level 2 go to one.
    pub fn objects_url(&self) -> Option<&str> {
        self.options.objects.as_ref().map(|objects| objects.url.as_str())
    }

    pub(crate) fn cardinality_of(
        &self,
        database: DatabaseId,
        top: usize,
        reserve: &dyn Fn(u64) -> bool,
    ) -> Result<Cardinality, StoreError> {
        let shards: Vec<_> = self.shards.iter().map(|shard| shard.groups.read()).collect();
        let groups: Vec<&Groups> = shards.iter().map(|shard| &shard.groups).collect();
        index::cardinality(&groups, database, top, reserve).map_err(StoreError::index(&self.options.directory))
    }

    fn each_shard(
        &self,
        database: &str,
        selected: &[SelectedGroup],
        mut visit: impl FnMut(&Groups, DatabaseId, &RoaringBitmap) -> Result<(), IndexError>,
    ) -> Result<(), StoreError> {
        let Some(database) = self.catalog.read().catalog.database(database) else {
            return Ok(());
        };
        for (number, shard) in self.shards.iter().enumerate() {
            let of_shard = selected.iter().filter(|group| group.shard == number);
            let groups: RoaringBitmap = of_shard.map(|group| group.key.group as GroupId).collect();
            visit(&shard.groups.read().groups, database, &groups)
                .map_err(StoreError::index(&self.options.directory))?;
        }
        Ok(())
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

    /// Names of all databases, sorted.
    pub fn databases(&self) -> Vec<String> {
        let catalog = self.catalog.read();
        let mut names: Vec<String> =
            catalog.catalog.database_names().filter(|name| !name.is_empty()).map(str::to_owned).collect();
        names.sort();
        names
    }
}

/// Labels that columns have themselves.
fn own_labels(selected: &[SelectedGroup]) -> impl Iterator<Item = (&str, &str)> {
    selected.iter().flat_map(|group| group.columns.iter()).flat_map(|column| column.labels.iter())
}
