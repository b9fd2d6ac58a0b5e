//! Reading: which groups satisfy matchers, and their samples in a range of time.

use std::cell::Cell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use index::{
    Cardinality, Catalog, CompiledMatcher, DatabaseId, FieldInfo, GroupId, GroupReader, Groups, IndexError,
    MetricColumns, ProjectedReader, Projection, Slot,
};
use model::{Labels, METRIC_NAME, MetricMetadata, ValueType};

use crate::part::PartKey;
use crate::read::by_block;
use crate::read::table_rows::only_block;
use crate::{Store, StoreError};

/// A group that satisfies matchers, with the chosen of its columns.
#[derive(Debug, Clone)]
pub struct SelectedGroup {
    /// The group's labels, without the metric name.
    pub labels: Labels,
    /// Its chosen columns, sorted by slot.
    pub columns: Arc<Vec<SelectedColumn>>,
    /// Its index among the groups of a table that were chosen with it, by labels, or when a reader of series comes to it; 0 where they were
    /// not put in order.
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

    /// Returns whether both are of one shard, so that they can be read together.
    pub fn is_of_shard_of(&self, other: &Self) -> bool {
        self.shard == other.shard
    }

    /// The group with some of its columns, sorted by slot as they were.
    #[must_use]
    pub fn with_columns(&self, columns: Arc<Vec<SelectedColumn>>) -> Self {
        Self { columns, ..self.clone() }
    }

    /// Returns whether all its columns are of one member block.
    pub fn is_of_one_block(&self) -> bool {
        only_block(&self.columns).is_some()
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

/// Columns to select of the groups that matchers choose, and the labels to read with them.
pub(crate) struct ChosenColumns<'a> {
    pub(crate) database: DatabaseId,
    pub(crate) columns: &'a [MetricColumns],
    /// The labels that are wanted; `None`: all.
    pub(crate) projection: Option<Projection<'a>>,
}

/// Gets labels of groups.
enum LabelReader<'a> {
    All(GroupReader<'a>),
    Some(ProjectedReader<'a>),
}

impl<'a> LabelReader<'a> {
    fn new(groups: &'a Groups, projection: Option<Projection<'a>>) -> Self {
        match projection.filter(|projection| !projection.keeps_all()) {
            None => Self::All(groups.reader()),
            Some(projection) => Self::Some(groups.projected(projection)),
        }
    }

    fn get(&mut self, id: GroupId) -> Result<Option<Labels>, IndexError> {
        match self {
            Self::All(reader) => Ok(reader.get(id)?.map(|group| group.labels)),
            Self::Some(reader) => reader.get(id),
        }
    }
}

/// A measurement, and slots of it.
type MeasurementSlots = (u32, Arc<[Slot]>);

/// Columns by measurement and slots: many groups have the same.
#[derive(Default)]
struct SharedColumns {
    known: HashMap<MeasurementSlots, Arc<Vec<SelectedColumn>>>,
    last: Option<ColumnsOf>,
}

/// The columns of a measurement's slots.
struct ColumnsOf {
    measurement: u32,
    slots: Arc<[Slot]>,
    columns: Arc<Vec<SelectedColumn>>,
}

impl SharedColumns {
    fn get(&mut self, catalog: &Catalog, measurement: u32, slots: Arc<[Slot]>) -> Arc<Vec<SelectedColumn>> {
        // Neighbours mostly have the same columns.
        let is_same = |last: &&ColumnsOf| last.measurement == measurement && Arc::ptr_eq(&last.slots, &slots);
        if let Some(last) = self.last.as_ref().filter(is_same) {
            return last.columns.clone();
        }
        let columns = self.known.entry((measurement, slots.clone())).or_insert_with_key(|(_, slots)| {
            let column = |slot: &Slot| Some(SelectedColumn::new(&catalog.field(measurement, *slot)?, *slot));
            Arc::new(slots.iter().filter_map(column).collect())
        });
        let columns = columns.clone();
        self.last = Some(ColumnsOf { measurement, slots, columns: columns.clone() });
        columns
    }
}

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
        self.select_projected(database, matchers, None, reserve)
    }

    /// As [`Store::select_within`], with no other labels than those that a projection keeps: groups that agree in these share them.
    pub fn select_projected(
        &self,
        database: &str,
        matchers: &[CompiledMatcher],
        projection: Option<Projection<'_>>,
        reserve: &dyn Fn(u64) -> bool,
    ) -> Result<Option<Vec<SelectedGroup>>, StoreError> {
        let catalog = self.catalog.read();
        let Some(database) = catalog.catalog.database(database) else {
            return Ok(Some(Vec::new()));
        };
        let columns = catalog.catalog.metrics(database, matchers);
        let chosen = ChosenColumns { database, columns: &columns, projection };
        self.select_columns(&catalog.catalog, &chosen, matchers, reserve)
    }

    /// The groups that satisfy all matchers and have one of the columns.
    pub(crate) fn select_columns(
        &self,
        catalog: &Catalog,
        chosen: &ChosenColumns<'_>,
        matchers: &[CompiledMatcher],
        reserve: &dyn Fn(u64) -> bool,
    ) -> Result<Option<Vec<SelectedGroup>>, StoreError> {
        let ChosenColumns { database, columns, projection } = *chosen;
        let unreadable = StoreError::index(&self.options.directory);
        let (mut selected, mut shared) = (Vec::new(), SharedColumns::default());
        for (number, shard) in self.shards.iter().enumerate() {
            let index = shard.groups.read();
            let mut groups = LabelReader::new(&index.groups, projection);
            let found = index.groups.select(database, columns, matchers).map_err(&unreadable)?;
            if !reserve(found.len() as u64 * SELECTED_BYTES) {
                return Ok(None);
            }
            selected.reserve_exact(found.len());
            let mut labels_bytes = 0;
            for (index, index::Selected { id, measurement, slots }) in found.into_iter().enumerate() {
                if index % GROUPS_PER_RESERVATION == 0 && !reserve(std::mem::take(&mut labels_bytes)) {
                    return Ok(None);
                }
                let Some(labels) = groups.get(id).map_err(&unreadable)? else {
                    continue;
                };
                let columns = shared.get(catalog, measurement, slots);
                let key = PartKey { database, measurement, group: id, block: 0 };
                if projection.is_none_or(|projection| projection.keeps_all()) {
                    labels_bytes += (labels.packed_bytes() + LABELS_OVERHEAD_BYTES) as u64;
                }
                selected.push(SelectedGroup { labels, columns, rank: 0, shard: number, key });
            }
            if !reserve(labels_bytes) {
                return Ok(None);
            }
        }
        Ok(Some(selected))
    }

    /// All labels of a selected group; `None` if it was removed since.
    pub fn group_labels(&self, group: &SelectedGroup) -> Result<Option<Labels>, StoreError> {
        let Some(shard) = self.shards.get(group.shard) else { return Ok(None) };
        let found = shard.groups.read().groups.reader().get(group.key.group);
        Ok(found.map_err(StoreError::index(&self.options.directory))?.map(|group| group.labels))
    }

    /// A number that is another one whenever matchers may choose other groups or columns than before.
    pub fn index_changes(&self) -> u64 {
        let groups: u64 = self.shards.iter().map(|shard| shard.groups.read().groups.changes()).sum();
        groups + self.catalog.read().catalog.changes()
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
