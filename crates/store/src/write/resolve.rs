//! From raw keys and field names to groups and slots. Known keys cost one look-up; new ones are parsed, registered, and written to
//! the log before their numbers can be used.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;

use index::{DatabaseId, MeasurementId, Slot, routing_hash};
use model::{Batch, Block, Field, GroupIdentity, Labels, MetricMetadata, RejectionKind, ValueType};

use crate::head::shard::ShardGroups;
use crate::log::{NewRecord, record};
use crate::write::Rejected;
use crate::write::admission::{Refusal, SeriesTarget};
use crate::write::keys::{Target, TargetsByHash};
use crate::{CatalogState, Store, StoreError};

/// Where a batch's rows go.
pub(crate) struct Route {
    pub(crate) blocks: Vec<BlockRoute>,
    pub(crate) rejected: Vec<Rejected>,
    /// Rows among those that were not taken, of which some have no entry above, that may be taken later.
    pub(crate) rejected_for_now: u64,
}

/// Where a block's rows go.
#[derive(Default)]
pub(crate) struct BlockRoute {
    /// The block's columns; `None` for lone series, where the target names the one slot.
    pub(crate) columns: Option<Vec<(Slot, ValueType)>>,
    /// One per row; `None` if the row is rejected.
    pub(crate) targets: Vec<Option<Target>>,
}

/// New keys of a block: what each means, or why it means nothing.
type Registered = TargetsByHash<Result<Target, Refusal>>;

/// A group to be registered.
struct NewGroup {
    hash: u128,
    identity: GroupIdentity,
    measurement: MeasurementId,
    slots: Vec<Slot>,
}

/// What sets the key of a lone series of histograms apart from that of floats with the same labels: they have different slots.
const HISTOGRAM_KEY: u128 = 0x9d8e_2a61_c7b3_5f04_1ce9_7730_4ab8_d2f6;

/// What sets the keys of a block apart from those of others.
fn key_kind(block: &Block) -> u128 {
    let lone_histograms = block.measurement.is_none()
        && block.fields.first().is_some_and(|field| field.value_type == ValueType::Histogram);
    if lone_histograms { HISTOGRAM_KEY } else { 0 }
}

/// The hash that a row's target is known by.
fn key_hash(block: &Block, row: usize) -> u128 {
    block.keys.get(row).map_or(0, |key| key.hash) ^ key_kind(block)
}

impl Store {
    /// The number of a database; made on first use.
    pub fn database_id(&self, name: &str) -> Result<DatabaseId, StoreError> {
        if let Some(id) = self.catalog.read().catalog.database(name) {
            return Ok(id);
        }
        if name.is_empty() || name.len() > 255 {
            return Err(StoreError::Invalid("a database's name has 1 to 255 bytes".to_owned()));
        }
        self.with_catalog(|state, entries| {
            let (id, entry) = state.catalog.register_database(name);
            entries.extend(entry);
            Ok(id)
        })
    }

    pub(crate) fn register_metadata(
        &self,
        database: DatabaseId,
        metadata: &[MetricMetadata],
    ) -> Result<(), StoreError> {
        let is_known = |metadata: &MetricMetadata| {
            self.catalog.read().catalog.metadata_of(database, &metadata.family) == Some(metadata)
        };
        if metadata.iter().all(is_known) {
            return Ok(());
        }
        self.with_catalog(|state, entries| {
            entries.extend(metadata.iter().filter_map(|metadata| state.catalog.register_metadata(database, metadata)));
            Ok(())
        })
    }

    /// Changes the catalog, and puts what is new into the log before other threads see it.
    pub(crate) fn with_catalog<T>(
        &self,
        change: impl FnOnce(&mut CatalogState, &mut Vec<index::CatalogEntry>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut state = self.catalog.write();
        let mut entries = Vec::new();
        let result = change(&mut state, &mut entries);
        state.unlogged.append(&mut entries);
        self.log_catalog(&mut state)?;
        result
    }

    /// Puts what the log does not know of the catalog yet into it.
    fn log_catalog(&self, state: &mut CatalogState) -> Result<(), StoreError> {
        if state.unlogged.is_empty() {
            return Ok(());
        }
        let mut payload = Vec::new();
        record::encode_catalog(&state.unlogged, &mut payload);
        let logged = self.log.append(&NewRecord::without_rows(record::CATALOG, &payload));
        let sequence = logged.inspect_err(|_| self.ingestor.unlogged.store(true, Ordering::Release))?;
        state.unlogged.clear();
        state.unsaved_since.get_or_insert(sequence);
        Ok(())
    }

    /// Logs a shard's groups that the log does not hold yet.
    pub(crate) fn log_groups(&self, shard: usize, index: &mut ShardGroups) -> Result<(), StoreError> {
        if index.unlogged.is_empty() {
            return Ok(());
        }
        let mut payload = Vec::new();
        record::encode_groups(shard, &index.unlogged, &mut payload);
        let logged = self.log.append(&NewRecord::without_rows(record::GROUPS, &payload));
        let sequence = logged.inspect_err(|_| self.ingestor.unlogged.store(true, Ordering::Release))?;
        index.unlogged.clear();
        index.unsaved_since.get_or_insert(sequence);
        Ok(())
    }

    /// What a full disk kept from the log comes before any row that needs it.
    pub(crate) fn log_unlogged(&self) -> Result<(), StoreError> {
        if !self.ingestor.unlogged.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        self.log_catalog(&mut self.catalog.write())?;
        for (number, shard) in self.shards.iter().enumerate() {
            self.log_groups(number, &mut shard.groups.write())?;
        }
        Ok(())
    }

    pub(crate) fn resolve(&self, to: SeriesTarget<'_>, batch: &Batch<'_>) -> Result<Route, StoreError> {
        let blocks = Vec::with_capacity(batch.blocks.len());
        let mut route = Route { blocks, rejected: Vec::new(), rejected_for_now: 0 };
        let oldest_ns = self.oldest_retained_ns(to.database);
        for block in &batch.blocks {
            let resolved = if block.timestamps_ns.iter().any(|timestamp_ns| *timestamp_ns < oldest_ns) {
                self.resolve_block_with_expired((to, oldest_ns), batch, block, &mut route)?
            } else {
                self.resolve_block(to, batch, block, &mut route)?
            };
            route.blocks.push(resolved);
        }
        Ok(route)
    }

    pub(crate) fn resolve_block(
        &self,
        to: SeriesTarget<'_>,
        batch: &Batch<'_>,
        block: &Block,
        route: &mut Route,
    ) -> Result<BlockRoute, StoreError> {
        let shared = match &block.measurement {
            None => None,
            Some(measurement) => match self.resolve_fields(to.database, measurement, &block.fields)? {
                Ok(found) => Some(found),
                Err(reason) => {
                    let reject = |line: &u32| Rejected {
                        line: *line,
                        kind: RejectionKind::TypeConflict,
                        reason: reason.clone(),
                    };
                    route.rejected.extend(block.lines.iter().take(self.options.rejections_max).map(reject));
                    return Ok(BlockRoute { columns: None, targets: vec![None; block.rows()] });
                }
            },
        };
        let (mut targets, unknown) = self.look_up(block);
        if !unknown.is_empty() {
            let registered = self.register_keys(to, batch, block, shared.as_ref(), &unknown)?;
            let mut last = None;
            for row in unknown {
                let hash = key_hash(block, row);
                let found =
                    last.filter(|(of, _)| *of == hash).map_or_else(|| registered.get(&hash), |(_, found)| found);
                last = Some((hash, found));
                match found {
                    Some(Ok(target)) => targets[row] = Some(*target),
                    Some(Err(refusal)) => {
                        route.rejected_for_now += u64::from(refusal.is_for_now);
                        if route.rejected.len() < self.options.rejections_max {
                            let Refusal { kind, reason, .. } = refusal.clone();
                            route.rejected.push(Rejected { line: block.lines[row], kind, reason });
                        }
                    }
                    None => {}
                }
            }
        }
        let types = block.fields.iter().map(|field| field.value_type);
        let columns = shared.map(|(_, slots)| slots.into_iter().zip(types).collect());
        Ok(BlockRoute { columns, targets })
    }

    /// Measurement and slots of a block; the inner error rejects the block's rows.
    #[allow(clippy::type_complexity, reason = "the inner result is for the user, the outer one for the server")]
    pub(crate) fn resolve_fields(
        &self,
        database: DatabaseId,
        measurement: &str,
        fields: &[Field],
    ) -> Result<Result<(MeasurementId, Vec<Slot>), String>, StoreError> {
        {
            let state = self.catalog.read();
            if let Some(id) = state.catalog.measurement(database, measurement) {
                match state.catalog.find_slots(id, fields) {
                    Ok(Some(slots)) => return Ok(Ok((id, slots))),
                    Ok(None) => {}
                    Err(conflict) => return Ok(Err(conflict.to_string())),
                }
            }
        }
        self.with_catalog(|state, entries| {
            let (id, entry) = state.catalog.register_measurement(database, measurement);
            entries.extend(entry);
            let mut slots = Vec::with_capacity(fields.len());
            for field in fields {
                match state.catalog.register_field(id, field) {
                    Ok((slot, entry)) => {
                        slots.push(slot);
                        entries.extend(entry);
                    }
                    Err(conflict) => return Ok(Err(conflict.to_string())),
                }
            }
            Ok(Ok((id, slots)))
        })
    }

    /// The rows of a batch that other fields, stored or in the batch itself, would make the store refuse: a field has another type
    /// than before. Of each such block the first, at most [`crate::StoreOptions::rejections_max`]. Nothing is registered; what another
    /// writer registers right afterwards is not foreseen.
    pub fn type_conflicts(&self, database: &str, batch: &Batch<'_>) -> Vec<Rejected> {
        let state = self.catalog.read();
        let id = state.catalog.database(database);
        let mut of_batch: HashMap<(&str, &str), ValueType> = HashMap::new();
        let mut conflicts = Vec::new();
        for block in &batch.blocks {
            let (Some(measurement), Some(line)) = (block.measurement.as_deref(), block.lines.first()) else { continue };
            let stored = id.and_then(|id| state.catalog.measurement(id, measurement));
            for field in &block.fields {
                // A field at a time: an unknown one must not hide a conflict of the next.
                let known = stored.map(|stored| state.catalog.find_slots(stored, std::slice::from_ref(field)));
                let first = *of_batch.entry((measurement, &field.name)).or_insert(field.value_type);
                let reason = match known {
                    Some(Err(conflict)) => conflict.to_string(),
                    _ if first != field.value_type => {
                        let (name, here, before) = (&field.name, field.value_type.name(), first.name());
                        format!(
                            "field type conflict: input field {name:?} on measurement {measurement:?} is type {here}, earlier in the request it is type {before}"
                        )
                    }
                    _ => continue,
                };
                conflicts.push(Rejected { line: *line, kind: RejectionKind::TypeConflict, reason });
                break;
            }
        }
        conflicts.truncate(self.options.rejections_max);
        conflicts
    }

    /// The measurement and the slots of members that may have labels of their own.
    pub(crate) fn resolve_members(
        &self,
        database: DatabaseId,
        measurement: &str,
        members: &[(Field, Labels)],
    ) -> Result<(MeasurementId, Vec<Slot>), StoreError> {
        self.with_catalog(|state, entries| {
            let (id, entry) = state.catalog.register_measurement(database, measurement);
            entries.extend(entry);
            let mut slots = Vec::with_capacity(members.len());
            for (field, labels) in members {
                let registered = state.catalog.register_member(id, field, labels);
                let (slot, entry) = registered.map_err(|conflict| StoreError::Invalid(conflict.to_string()))?;
                slots.push(slot);
                entries.extend(entry);
            }
            Ok((id, slots))
        })
    }

    /// Targets of the rows whose keys are known, and the rows whose keys are not.
    fn look_up(&self, block: &Block) -> (Vec<Option<Target>>, Vec<usize>) {
        let kind = key_kind(block);
        let targets = self.ingestor.keys.reader().targets(block.keys.iter().map(|key| key.hash ^ kind));
        let unknown = targets.iter().enumerate().filter(|(_, target)| target.is_none()).map(|(row, _)| row).collect();
        (targets, unknown)
    }

    fn is_reserved(&self, database: DatabaseId, table: &str) -> bool {
        let reserved = self.ingestor.reserved.read();
        !reserved.is_empty() && reserved.contains(&(database, table.to_owned()))
    }

    fn register_keys(
        &self,
        to: SeriesTarget<'_>,
        batch: &Batch<'_>,
        block: &Block,
        shared: Option<&(MeasurementId, Vec<Slot>)>,
        rows: &[usize],
    ) -> Result<Registered, StoreError> {
        let generation = self.ingestor.keys.generation();
        let mut registered = Registered::default();
        let mut identities = Vec::new();
        // Rows of one key come together where a request has several of it.
        let mut rows = rows.to_vec();
        rows.dedup_by_key(|row| key_hash(block, *row));
        for row in &rows {
            let hash = key_hash(block, *row);
            if let Entry::Vacant(vacant) = registered.entry(hash) {
                match (batch.key_decoder)(batch.text(block.keys[*row].text)) {
                    Ok(identity) if self.is_reserved(to.database, &identity.measurement) => {
                        let table = &identity.measurement;
                        let reason = format!("{table:?} is a view: write rows to the table that it reads");
                        vacant.insert(Err(Refusal::for_good(RejectionKind::Unreadable, reason)));
                    }
                    Ok(identity) => {
                        let reason = "the group could not be registered".to_owned();
                        vacant.insert(Err(Refusal::for_good(RejectionKind::Unreadable, reason)));
                        identities.push((hash, identity));
                    }
                    Err(reason) => {
                        vacant.insert(Err(Refusal::for_good(RejectionKind::Unreadable, reason)));
                    }
                }
            }
        }
        let groups = match shared {
            Some((measurement, slots)) => {
                let group =
                    |(hash, identity)| NewGroup { hash, identity, measurement: *measurement, slots: slots.clone() };
                identities.into_iter().map(group).collect()
            }
            None => self.resolve_lone(to.database, &block.fields, identities, &mut registered)?,
        };
        self.register_in_shards(to, groups, &mut registered)?;
        let targets = rows.iter().filter_map(|row| {
            let hash = key_hash(block, *row);
            Some((hash, *registered.get(&hash)?.as_ref().ok()?))
        });
        self.ingestor.keys.insert(generation, targets);
        Ok(registered)
    }

    /// Lone series: each metric is a measurement with the field `value`, or that of histograms.
    fn resolve_lone(
        &self,
        database: DatabaseId,
        fields: &[Field],
        identities: Vec<(u128, GroupIdentity)>,
        registered: &mut Registered,
    ) -> Result<Vec<NewGroup>, StoreError> {
        let mut groups = Vec::with_capacity(identities.len());
        for (hash, identity) in identities {
            match self.resolve_fields(database, &identity.measurement, fields)? {
                Ok((measurement, slots)) => groups.push(NewGroup { hash, identity, measurement, slots }),
                Err(reason) => {
                    registered.insert(hash, Err(Refusal::for_good(RejectionKind::TypeConflict, reason)));
                }
            }
        }
        Ok(groups)
    }

    fn register_in_shards(
        &self,
        to: SeriesTarget<'_>,
        groups: Vec<NewGroup>,
        registered: &mut Registered,
    ) -> Result<(), StoreError> {
        let parts = |group: NewGroup| (group.hash, (group.measurement, group.identity, group.slots));
        let (hashes, identities): (Vec<u128>, Vec<_>) = groups.into_iter().map(parts).unzip();
        let targets = self.register_identities(to, &identities)?;
        registered.extend(hashes.into_iter().zip(targets));
        Ok(())
    }

    /// The targets of groups, in the order given; those that are new are logged, or refused with the reason.
    pub(crate) fn register_identities(
        &self,
        to: SeriesTarget<'_>,
        groups: &[(MeasurementId, GroupIdentity, Vec<Slot>)],
    ) -> Result<Vec<Result<Target, Refusal>>, StoreError> {
        let database = to.database;
        let refusal = self.ingestor.refusal.read().clone();
        let limits = self.series_limits(database)?;
        let is_limited =
            refusal.is_some() || to.gate.is_some() || limits.per_database_max > 0 || limits.per_second_max > 0;
        // A rate: by a clock that neither stands still nor jumps.
        let now_ns = i64::try_from(self.platform.clock.monotonic_ns()).unwrap_or(i64::MAX);
        let mut by_shard: Vec<Vec<usize>> = vec![Vec::new(); self.shards.len()];
        for (place, (_, identity, _)) in groups.iter().enumerate() {
            let hash = routing_hash(database, &identity.measurement, &identity.labels);
            by_shard[(hash % self.shards.len() as u64) as usize].push(place);
        }
        let nowhere = Target { shard: 0, group: 0, slot: 0 };
        let mut targets: Vec<Result<Target, Refusal>> = vec![Ok(nowhere); groups.len()];
        for (number, (shard, indexes)) in self.shards.iter().zip(by_shard).enumerate() {
            if indexes.is_empty() {
                continue;
            }
            let mut index = shard.groups.write();
            for place in indexes {
                let (measurement, identity, slots) = &groups[place];
                if is_limited {
                    let known = index.groups.find(database, *measurement, &identity.labels);
                    let is_new = known.map_err(StoreError::index(&self.options.directory))?.is_none();
                    let admit = || match &refusal {
                        Some(reason) => {
                            self.ingestor.admission.refused_by_memory();
                            Err(Refusal::for_good(RejectionKind::SeriesRefused, reason.clone()))
                        }
                        None => to
                            .pass(slots.len() as u64)
                            .and_then(|()| self.ingestor.admission.admit(database, slots.len() as u64, now_ns, limits)),
                    };
                    if is_new && let Err(reason) = admit() {
                        targets[place] = Err(reason);
                        continue;
                    }
                }
                let known = index.groups.register(database, *measurement, &identity.labels, slots);
                let (group, entry) = known.map_err(StoreError::index(&self.options.directory))?;
                index.unlogged.extend(entry);
                targets[place] = Ok(Target { shard: number, group, slot: slots.first().copied().unwrap_or(0) });
            }
            self.log_groups(number, &mut index)?;
        }
        Ok(targets)
    }
}
