//! Names of labels, values of labels and metrics, from the index: which groups count is told by matchers, and by what heads and parts know of
//! the groups that they hold. Groups are not read, and their labels are not put together.

use index::{CompiledMatcher, DatabaseId, GroupId, MetricColumns, RoaringBitmap, TextSet};
use model::{METRIC_NAME, TimeRange};

use crate::head::shard::Shard;
use crate::part::{Part, PartKey};
use crate::read::extent::ranges_of;
use crate::{Store, StoreError};

/// So many groups at most are looked for one by one in parts and heads that lie in a range partly; of more, all that such a part holds count.
const EXACT_GROUPS_MAX: u64 = 4096;

/// Whose names are wanted.
#[derive(Debug, Clone, Copy)]
pub struct NamesRequest<'a> {
    /// The database.
    pub database: &'a str,
    /// Series of this table count; `None`: of all.
    pub table: Option<&'a str>,
    /// All must hold.
    pub matchers: &'a [CompiledMatcher],
    /// Series count that have samples in it.
    pub range: TimeRange,
    /// The names.
    pub kind: NameKind<'a>,
}

/// Which names are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind<'a> {
    /// Names of labels.
    Labels,
    /// Values of a label; those of `__name__` are metrics.
    Values(&'a str),
}

impl Store {
    /// How many shards there are: names are looked for in one after the other, or in several at once.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Adds the names that groups of a shard have. `go_on` is asked again and again whether to; returns whether it always said yes.
    pub fn add_names(
        &self,
        shard: usize,
        request: &NamesRequest<'_>,
        found: &mut TextSet,
        go_on: &mut dyn FnMut(&TextSet) -> bool,
    ) -> Result<bool, StoreError> {
        let Some(database) = self.catalog.read().catalog.database(request.database) else { return Ok(true) };
        let Some(shard) = self.shards.get(shard) else { return Ok(true) };
        let range = self.retained(database, &request.range);
        let search = NameSearch { store: self, shard, database, range, live: Live::of_shard(shard, &range) };
        search.run(request, found, go_on)
    }
}

/// A search in one shard.
struct NameSearch<'s> {
    store: &'s Store,
    shard: &'s Shard,
    database: DatabaseId,
    range: TimeRange,
    live: Live,
}

impl NameSearch<'_> {
    fn run(
        &self,
        request: &NamesRequest<'_>,
        found: &mut TextSet,
        go_on: &mut dyn FnMut(&TextSet) -> bool,
    ) -> Result<bool, StoreError> {
        let columns = self.columns(request);
        if !go_on(found) {
            return Ok(false);
        }
        let (mut groups, is_of_all) = (RoaringBitmap::new(), request.matchers.is_empty() && request.table.is_none());
        if is_of_all {
            groups = self.with_rows(&self.of_database()?)?;
        }
        for columns in &columns {
            let needs_columns = request.kind == NameKind::Values(METRIC_NAME) || self.has_own_labels(columns);
            if is_of_all && !needs_columns {
                continue;
            }
            let chosen = self.chosen(columns, request.matchers)?;
            let chosen = if is_of_all { chosen & &groups } else { self.with_rows(&chosen)? };
            if needs_columns {
                self.add_of_columns(columns, &chosen, request.kind, found)?;
            }
            groups |= chosen;
            if !go_on(found) {
                return Ok(false);
            }
        }
        self.add_of_groups(&groups, request.kind, found, go_on)
    }

    fn columns(&self, request: &NamesRequest<'_>) -> Vec<MetricColumns> {
        let catalog = &self.store.catalog.read().catalog;
        match request.table {
            None => catalog.metrics(self.database, request.matchers),
            Some(table) => {
                let measurement = catalog.measurement(self.database, table);
                measurement.map_or_else(Vec::new, |table| catalog.table_columns(table, &[], request.matchers))
            }
        }
    }

    fn of_database(&self) -> Result<RoaringBitmap, StoreError> {
        self.shard.groups.read().groups.of_database(self.database).map_err(self.unreadable())
    }

    fn chosen(&self, columns: &MetricColumns, matchers: &[CompiledMatcher]) -> Result<RoaringBitmap, StoreError> {
        self.shard.groups.read().groups.chosen(self.database, columns, matchers).map_err(self.unreadable())
    }

    fn unreadable(&self) -> impl Fn(index::IndexError) -> StoreError + '_ {
        StoreError::index(&self.store.options.directory)
    }

    fn has_own_labels(&self, columns: &MetricColumns) -> bool {
        let catalog = self.store.catalog.read();
        let field = |slot: &u32| catalog.catalog.field(columns.measurement, *slot);
        columns.slots.iter().filter_map(field).any(|field| !field.labels.is_empty())
    }

    /// Adds what columns say themselves that one of the groups has: metrics, and labels of their own.
    fn add_of_columns(
        &self,
        columns: &MetricColumns,
        groups: &RoaringBitmap,
        kind: NameKind<'_>,
        found: &mut TextSet,
    ) -> Result<(), StoreError> {
        let slots = self.shard.groups.read().groups.slots_of(groups, &columns.slots).map_err(self.unreadable())?;
        let catalog = self.store.catalog.read();
        for field in slots.iter().filter_map(|slot| catalog.catalog.field(columns.measurement, *slot)) {
            match kind {
                NameKind::Values(METRIC_NAME) => found.insert(&field.metric()),
                NameKind::Values(name) => field.labels.get(name).into_iter().for_each(|value| found.insert(value)),
                NameKind::Labels => field.labels.iter().for_each(|(name, _)| found.insert(name)),
            }
        }
        Ok(())
    }

    fn add_of_groups(
        &self,
        groups: &RoaringBitmap,
        kind: NameKind<'_>,
        found: &mut TextSet,
        go_on: &mut dyn FnMut(&TextSet) -> bool,
    ) -> Result<bool, StoreError> {
        if groups.is_empty() {
            return Ok(true);
        }
        let index = self.shard.groups.read();
        match kind {
            NameKind::Values(METRIC_NAME) => Ok(true),
            NameKind::Values(name) => {
                index.groups.add_label_values((self.database, name), groups, found, go_on).map_err(self.unreadable())
            }
            NameKind::Labels => {
                found.insert(METRIC_NAME);
                index.groups.add_label_names(self.database, groups, found).map_err(self.unreadable())?;
                Ok(go_on(found))
            }
        }
    }

    /// Those of some groups that have rows in the range, judged by whole chunks; of many groups by whole parts and heads.
    fn with_rows(&self, groups: &RoaringBitmap) -> Result<RoaringBitmap, StoreError> {
        let mut with_rows = groups & &self.live.surely;
        let open = groups - &with_rows;
        if open.len() > EXACT_GROUPS_MAX {
            return Ok(with_rows | (open & &self.live.perhaps));
        }
        for group in open & &self.live.perhaps {
            if self.has_rows(group)? {
                with_rows.insert(group);
            }
        }
        Ok(with_rows)
    }

    fn has_rows(&self, group: GroupId) -> Result<bool, StoreError> {
        let Some((database, measurement)) = self.shard.groups.read().groups.family(group).map_err(self.unreadable())?
        else {
            return Ok(false);
        };
        let Some(slots) = self.shard.groups.read().groups.slots(group).map_err(self.unreadable())? else {
            return Ok(false);
        };
        let mut blocks: Vec<u32> = slots.iter().map(|slot| slot / crate::part::BLOCK_SLOTS).collect();
        blocks.dedup();
        for block in blocks {
            if self.key_has_rows(PartKey { database, measurement, group, block })? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn key_has_rows(&self, key: PartKey) -> Result<bool, StoreError> {
        let (parts, frozen) = {
            let state = self.shard.state.lock();
            if state.head.has_rows(&key, &self.range) {
                return Ok(true);
            }
            (state.parts.clone(), state.frozen.clone())
        };
        if frozen.is_some_and(|frozen| frozen.head.has_rows(&key, &self.range)) {
            return Ok(true);
        }
        for part in parts.iter().filter(|part| part.info.range.overlaps(&self.range)) {
            if part_has_rows(part, key, &self.range, self.store)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns whether a part has chunks of a key that overlap a range.
pub(crate) fn part_has_rows(part: &Part, key: PartKey, range: &TimeRange, store: &Store) -> Result<bool, StoreError> {
    let mut has_rows = false;
    part.find(key, store.caches.index_blocks(), |found, _| {
        has_rows |= ranges_of(part, found).any(|found| found.overlaps(range));
    })?;
    Ok(has_rows)
}

/// The groups of a shard that have rows in a range.
#[derive(Debug, Default)]
struct Live {
    /// Those of heads and parts that lie in the range wholly.
    surely: RoaringBitmap,
    /// Those of the others that overlap it.
    perhaps: RoaringBitmap,
}

impl Live {
    fn of_shard(shard: &Shard, range: &TimeRange) -> Self {
        let mut live = Self::default();
        let (parts, frozen) = {
            let state = shard.state.lock();
            live.add(state.head.extent(), range, || state.head.groups_with_rows());
            (state.parts.clone(), state.frozen.clone())
        };
        if let Some(frozen) = frozen {
            live.add(frozen.head.extent(), range, || frozen.head.groups_with_rows());
        }
        for part in parts.iter() {
            live.add(Some(part.info.range), range, || part.groups.clone());
        }
        live
    }

    fn add(&mut self, extent: Option<TimeRange>, range: &TimeRange, groups: impl FnOnce() -> RoaringBitmap) {
        let Some(extent) = extent.filter(|extent| extent.overlaps(range)) else { return };
        let is_inside = range.start_ns <= extent.start_ns && extent.end_ns <= range.end_ns;
        if is_inside {
            self.surely |= groups();
        } else {
            self.perhaps |= groups();
        }
    }
}
