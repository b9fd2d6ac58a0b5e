//! A shard's groups: one mutable segment in memory, perhaps one on its way to disk, and immutable ones.
//!
//! Segments own ascending ranges of ids. A group is found in the segment that owns its id; what newer segments say of its
//! fields, and of its being removed, comes first.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use model::Labels;
use roaring::RoaringBitmap;

use crate::identity::fingerprint;
use crate::labels::project::{ProjectedReader, Projection};
use crate::labels::reader::GroupReader;
use crate::matcher::search::{self, MatcherCache};
use crate::mutable::Mutable;
use crate::segment::levels::{SegmentSize, segments_to_merge};
use crate::segment::reader::Segment;
use crate::segment::writer::write_segment;
use crate::slots::SlotSets;
use crate::source::Source;
use crate::{
    CompiledMatcher, DatabaseId, GroupEntry, GroupId, IndexError, MeasurementId, MetricColumns, Slot, SlotSet,
};

/// Bytes of the mutable segment at which it should be frozen, whether or not the head is flushed.
const MUTABLE_BYTES_MAX: usize = 64 << 20;

/// A group as the index knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The database it is in.
    pub database: DatabaseId,
    /// Its measurement.
    pub measurement: MeasurementId,
    /// Its labels, without the metric name.
    pub labels: Labels,
}

/// A selected group, and those of the wanted slots that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// The group.
    pub id: GroupId,
    /// Its measurement.
    pub measurement: MeasurementId,
    /// The slots, sorted.
    pub slots: Arc<[Slot]>,
}

/// All groups of a shard, numbered in order of appearance.
#[derive(Debug)]
pub struct Groups {
    seed: u64,
    /// In order of their ids.
    segments: Vec<Arc<Segment>>,
    /// Being written to a segment.
    frozen: Option<Arc<Mutable>>,
    mutable: Mutable,
    /// Groups that are removed but that a segment still holds.
    removed: RoaringBitmap,
    slot_sets: SlotSets,
    cache: MatcherCache,
    changes: u64,
}

/// Groups on their way to a segment; still searched, not changed any more.
#[derive(Debug, Clone)]
pub struct FrozenGroups {
    groups: Arc<Mutable>,
    seed: u64,
}

/// Segments on their way to becoming one.
#[derive(Debug)]
pub struct MergeJob {
    inputs: Vec<Arc<Segment>>,
    removed: RoaringBitmap,
    seed: u64,
}

impl Default for Groups {
    fn default() -> Self {
        Self::with_hash_seed(0)
    }
}

impl Groups {
    /// No groups; the seed should be random.
    pub fn with_hash_seed(seed: u64) -> Self {
        Self {
            seed,
            segments: Vec::new(),
            frozen: None,
            mutable: Mutable::new(0, seed),
            removed: RoaringBitmap::new(),
            slot_sets: SlotSets::default(),
            cache: MatcherCache::default(),
            changes: 0,
        }
    }

    /// The groups of segments, in any order. Nothing is read of them. The seed is used if there are none.
    pub fn open(segments: Vec<Segment>, seed: u64) -> Result<Self, IndexError> {
        Self::open_shared(segments.into_iter().map(Arc::new).collect(), seed)
    }

    /// As [`Groups::open`], of segments that others may have, too.
    pub fn open_shared(segments: Vec<Arc<Segment>>, seed: u64) -> Result<Self, IndexError> {
        let mut groups = Self::with_hash_seed(segments.first().map_or(seed, |segment| segment.seed()));
        groups.segments = segments;
        groups.segments.sort_by_key(|segment| (segment.first(), segment.end()));
        let mut end = 0;
        let mut present = RoaringBitmap::new();
        for segment in &groups.segments {
            let damaged = |what| IndexError::Damaged { segment: segment.number(), offset: 0, what };
            if segment.first() != end {
                return Err(damaged("its groups do not follow those of the segment before it"));
            }
            if segment.seed() != groups.seed {
                return Err(damaged("it is of another shard or folder"));
            }
            end = segment.end();
            present |= segment.present();
            groups.removed |= segment.removed();
        }
        // What is purged already is not counted any more.
        groups.removed &= present;
        groups.mutable = Mutable::new(end, groups.seed);
        Ok(groups)
    }

    /// Segments, frozen groups and mutable ones, in order of their ids.
    pub(crate) fn sources(&self) -> impl DoubleEndedIterator<Item = &dyn Source> {
        let segments = self.segments.iter().map(|segment| &**segment as &dyn Source);
        segments.chain(self.frozen.as_deref().map(|frozen| frozen as &dyn Source)).chain([&self.mutable as &dyn Source])
    }

    pub(crate) const fn removed(&self) -> &RoaringBitmap {
        &self.removed
    }

    /// How many groups there are.
    pub fn len(&self) -> u64 {
        self.sources().map(|source| u64::from(source.len())).sum::<u64>() - self.removed.len()
    }

    /// Returns whether there are no groups.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How often it changed since opening which groups there are, and with which fields.
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// The id that the next group gets; all others are smaller.
    pub fn next_id(&self) -> GroupId {
        self.mutable.end()
    }

    /// From now on what regular expressions match in immutable segments is cached, in so many bytes.
    pub fn cache_matched(&mut self, bytes_max: usize) {
        self.cache = MatcherCache::new(bytes_max);
    }

    /// Empties the cache of what regular expressions matched.
    pub fn clear_matched(&self) {
        self.cache.clear();
    }

    /// Bytes in memory; mapped segments count with what is kept of them outside their files.
    pub fn memory_bytes(&self) -> usize {
        let segments: usize = self.segments.iter().map(|segment| segment.memory_bytes()).sum();
        let frozen = self.frozen.as_ref().map_or(0, |frozen| frozen.memory_bytes());
        segments
            + frozen
            + self.mutable.memory_bytes()
            + self.slot_sets.memory_bytes()
            + self.cache.memory_bytes()
            + self.removed.serialized_size()
    }

    /// The immutable segments, in order of their ids.
    pub fn segments(&self) -> &[Arc<Segment>] {
        &self.segments
    }

    /// The source that owns an id.
    pub(crate) fn owner(&self, id: GroupId) -> Option<&dyn Source> {
        if id >= self.mutable.first() {
            return Some(&self.mutable);
        }
        if let Some(frozen) = self.frozen.as_deref().filter(|frozen| id >= frozen.first()) {
            return Some(frozen);
        }
        let place = self.segments.partition_point(|segment| segment.end() <= id);
        self.segments.get(place).map(|segment| &**segment as &dyn Source)
    }

    /// A group; `None` if it is removed or never was.
    pub fn get(&self, id: GroupId) -> Result<Option<Group>, IndexError> {
        self.reader().get(id)
    }

    /// For getting many groups: neighbours have much in common.
    pub fn reader(&self) -> GroupReader<'_> {
        GroupReader::new(self)
    }

    /// For getting some of the labels of many groups.
    pub fn projected<'a>(&'a self, projection: Projection<'a>) -> ProjectedReader<'a> {
        ProjectedReader::new(self, projection)
    }

    /// Database and measurement of a group, which cost less than its labels.
    pub fn family(&self, id: GroupId) -> Result<Option<(DatabaseId, MeasurementId)>, IndexError> {
        let Some((owner, family)) = self.family_of(id)? else {
            return Ok(None);
        };
        owner.family(family).map(|family| Some((family.database, family.measurement)))
    }

    pub(crate) fn family_of(&self, id: GroupId) -> Result<Option<(&dyn Source, u32)>, IndexError> {
        let Some(owner) = self.owner(id).filter(|_| !self.removed.contains(id)) else {
            return Ok(None);
        };
        Ok(owner.family_of(id)?.map(|family| (owner, family)))
    }

    /// The slots of a group; `None` if it is removed or never was.
    pub fn slots(&self, id: GroupId) -> Result<Option<Arc<SlotSet>>, IndexError> {
        let Some((owner, family)) = self.family_of(id)? else {
            return Ok(None);
        };
        match self.overlay(id)? {
            Some(slots) => Ok(Some(slots)),
            None => owner.family(family).map(|family| Some(family.slots)),
        }
    }

    /// What sources newer than a group's owner say of its slots.
    fn overlay(&self, id: GroupId) -> Result<Option<Arc<SlotSet>>, IndexError> {
        for source in self.sources().rev().take_while(|source| source.first() > id) {
            if let Some(slots) = source.overlay(id)? {
                return Ok(Some(slots));
            }
        }
        Ok(None)
    }

    /// Returns whether a source after the one that begins at an id may change the fields of its groups.
    fn has_overlays_after(&self, first: GroupId) -> bool {
        self.sources().rev().take_while(|source| source.first() > first).any(Source::has_overlays)
    }

    /// The group of this identity.
    pub fn find(
        &self,
        database: DatabaseId,
        measurement: MeasurementId,
        labels: &Labels,
    ) -> Result<Option<GroupId>, IndexError> {
        self.find_hashed(fingerprint(self.seed, database, measurement, labels), (database, measurement, labels))
    }

    fn find_hashed(
        &self,
        fingerprint: u32,
        identity: (DatabaseId, MeasurementId, &Labels),
    ) -> Result<Option<GroupId>, IndexError> {
        let keep = |id: GroupId| !self.removed.contains(id);
        for groups in [Some(&self.mutable), self.frozen.as_deref()].into_iter().flatten() {
            if let Some(id) = groups.find(fingerprint, identity, keep) {
                return Ok(Some(id));
            }
        }
        for segment in self.segments.iter().rev() {
            for id in segment.candidates(fingerprint)? {
                if keep(id) && segment.is(id, identity)? {
                    return Ok(Some(id));
                }
            }
        }
        Ok(None)
    }

    /// The group of this identity, and the entry that tells of it if it is new.
    pub fn register(
        &mut self,
        database: DatabaseId,
        measurement: MeasurementId,
        labels: &Labels,
        slots: &[Slot],
    ) -> Result<(GroupId, Option<GroupEntry>), IndexError> {
        let fingerprint = fingerprint(self.seed, database, measurement, labels);
        if let Some(id) = self.find_hashed(fingerprint, (database, measurement, labels))? {
            return Ok((id, None));
        }
        let set = self.slot_sets.intern_slots(slots);
        let slots = set.iter().collect();
        let id = self.mutable.add(fingerprint, (database, measurement, labels), set)?;
        self.changes += 1;
        Ok((id, Some(GroupEntry::New { id, database, measurement, labels: labels.clone(), slots })))
    }

    /// Gives a group more fields. Whether there were any that it did not have.
    pub fn extend(&mut self, id: GroupId, more: &[Slot]) -> Result<bool, IndexError> {
        let Some(known) = self.slots(id)? else {
            return Ok(false);
        };
        if more.iter().all(|slot| known.contains(*slot)) {
            return Ok(false);
        }
        let slots = self.slot_sets.intern(known.with(more));
        self.mutable.set_slots(id, slots);
        self.changes += 1;
        Ok(true)
    }

    /// Makes groups disappear, and gives the entry that tells of it. Their ids are not used again: a group that comes back
    /// gets a new one. What they occupy is given back when their segments are merged.
    pub fn remove(&mut self, ids: &RoaringBitmap) -> Option<GroupEntry> {
        let mut known = ids.clone();
        known.remove_range(self.next_id()..);
        known -= &self.removed;
        for segment in &self.segments {
            let mut missing = RoaringBitmap::new();
            missing.insert_range(segment.first()..segment.end());
            missing -= segment.present();
            known -= missing;
        }
        if known.is_empty() {
            return None;
        }
        self.removed |= &known;
        self.changes += 1;
        self.mutable.remove(&known);
        Some(GroupEntry::Remove { ids: known.iter().collect() })
    }

    /// Takes in an entry from the log. One that is known, or does not follow, changes nothing and gives `false`.
    pub fn apply(&mut self, entry: &GroupEntry) -> Result<bool, IndexError> {
        match entry {
            GroupEntry::New { id, database, measurement, labels, slots } => {
                if *id != self.next_id() {
                    return Ok(false);
                }
                let identity = (*database, *measurement, labels);
                let set = self.slot_sets.intern_slots(slots);
                self.mutable.add(fingerprint(self.seed, *database, *measurement, labels), identity, set)?;
                self.changes += 1;
                Ok(true)
            }
            GroupEntry::Extend { id, slots } => self.extend(*id, slots),
            GroupEntry::Remove { ids } => Ok(self.remove(&ids.iter().copied().collect()).is_some()),
        }
    }

    /// Takes in the entries of a segment of version 1, of which there may be several, in order: a group may stand in two of
    /// them. They count as unsaved, so that the next segment takes their place.
    pub fn apply_old_segment(&mut self, entries: &[GroupEntry]) -> Result<bool, IndexError> {
        for entry in entries {
            match entry {
                GroupEntry::New { id, slots, .. } if *id < self.next_id() => {
                    self.extend(*id, slots)?;
                }
                GroupEntry::New { .. } if !self.apply(entry)? => return Ok(false),
                entry => {
                    self.apply(entry)?;
                }
            }
        }
        Ok(true)
    }

    /// Returns whether there is anything that no segment holds.
    pub fn has_unsaved(&self) -> bool {
        self.frozen.is_some() || !self.mutable.is_empty()
    }

    /// Whether so much is unsaved that it should be frozen now.
    pub fn freeze_due(&self) -> bool {
        self.frozen.is_some() || self.mutable.memory_bytes() > MUTABLE_BYTES_MAX
    }

    /// Whether groups are set aside to be written.
    pub const fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Sets aside what no segment holds, to be written; the same again until [`Groups::install_frozen`] is called. `None` if there is
    /// nothing.
    pub fn freeze(&mut self) -> Option<FrozenGroups> {
        if self.frozen.is_none() && !self.mutable.is_empty() {
            let next = Mutable::new(self.mutable.end(), self.seed);
            self.frozen = Some(Arc::new(std::mem::replace(&mut self.mutable, next)));
        }
        self.frozen.clone().map(|groups| FrozenGroups { groups, seed: self.seed })
    }

    /// Puts the segment that frozen groups were written to in their place.
    pub fn install_frozen(&mut self, segment: Segment) {
        let Some(frozen) = self.frozen.take() else {
            return;
        };
        // Those that it held itself are gone with it.
        let mut purged = frozen.removed().clone();
        purged.remove_range(..frozen.first());
        self.removed -= purged;
        self.segments.push(Arc::new(segment));
    }

    /// Segments that should become one; `None` if all is well.
    pub fn merge_due(&self) -> Option<MergeJob> {
        let size = |segment: &Arc<Segment>| SegmentSize {
            groups: u64::from(segment.len()),
            removed: segment.present().intersection_len(&self.removed),
        };
        let sizes: Vec<SegmentSize> = self.segments.iter().map(size).collect();
        segments_to_merge(&sizes).map(|range| self.merge_job(range))
    }

    /// All segments, to become one.
    pub fn merge_all(&self) -> Option<MergeJob> {
        (self.segments.len() > 1).then(|| self.merge_job(0..self.segments.len()))
    }

    fn merge_job(&self, range: Range<usize>) -> MergeJob {
        let inputs = self.segments.get(range).unwrap_or_default().to_vec();
        MergeJob { inputs, removed: self.removed.clone(), seed: self.seed }
    }

    /// Puts the segment that others were merged into in their place.
    pub fn install_merged(&mut self, job: &MergeJob, segment: Segment) {
        let numbers: Vec<u64> = job.input_numbers().collect();
        let is_input = |segment: &Arc<Segment>| numbers.contains(&segment.number());
        let Some(place) = self.segments.iter().position(is_input) else {
            return;
        };
        for input in &job.inputs {
            self.removed -= input.present() & &job.removed;
        }
        self.segments.retain(|segment| !is_input(segment));
        self.segments.insert(place, Arc::new(segment));
        self.cache.retain(|number| !numbers.contains(&number));
    }

    /// Groups of the columns' measurements that satisfy all matchers and have one of the columns, with the slots they have.
    /// Matchers on the metric name have had their say in choosing the columns.
    pub fn select(
        &self,
        database: DatabaseId,
        columns: &[MetricColumns],
        matchers: &[CompiledMatcher],
    ) -> Result<Vec<Selected>, IndexError> {
        let mut by_decided: HashMap<&[usize], Vec<Option<RoaringBitmap>>> = HashMap::new();
        let mut selected = Vec::new();
        for columns in columns {
            let matching = match by_decided.entry(&columns.decided) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(self.matching(database, matchers, &columns.decided)?),
            };
            for (source, matching) in self.sources().zip(&*matching) {
                let nothing = matching.as_ref().is_some_and(RoaringBitmap::is_empty);
                let found = if nothing { None } else { source.measurement(database, columns.measurement)? };
                let Some(found) = found else {
                    continue;
                };
                let mut found = found.into_bitmap();
                if let Some(matching) = matching {
                    found &= matching;
                }
                found -= &self.removed;
                self.push_selected(source, &found, columns, &mut selected)?;
            }
        }
        Ok(selected)
    }

    /// For each source its groups that satisfy the matchers but those decided already.
    fn matching(
        &self,
        database: DatabaseId,
        matchers: &[CompiledMatcher],
        decided: &[usize],
    ) -> Result<Vec<Option<RoaringBitmap>>, IndexError> {
        let open = matchers.iter().enumerate().filter(|(place, _)| decided.binary_search(place).is_err());
        let open: Vec<&CompiledMatcher> = open.map(|(_, matcher)| matcher).collect();
        let mut matching = Vec::new();
        for source in self.sources() {
            let segment = self.segments.get(matching.len()).map(|segment| segment.number());
            let cache = segment.map(|segment| (&self.cache, segment));
            matching.push(search::matching(source, database, &open, cache)?);
        }
        Ok(matching)
    }

    fn push_selected(
        &self,
        source: &dyn Source,
        groups: &RoaringBitmap,
        columns: &MetricColumns,
        selected: &mut Vec<Selected>,
    ) -> Result<(), IndexError> {
        let mut of_family: HashMap<u32, Arc<[Slot]>> = HashMap::new();
        // Neighbours mostly are of one family.
        let mut last: Option<(u32, Arc<[Slot]>)> = None;
        let has_overlays = self.has_overlays_after(source.first());
        for id in groups {
            let Some(family) = source.family_of(id)? else {
                continue;
            };
            let overlay = if has_overlays { self.overlay(id)? } else { None };
            let slots = match (overlay, &last) {
                (Some(slots), _) => slots.chosen_of(&columns.slots).into(),
                (None, Some((known, slots))) if *known == family => slots.clone(),
                (None, _) => {
                    let slots = match of_family.get(&family) {
                        Some(slots) => slots.clone(),
                        None => {
                            let slots: Arc<[Slot]> = source.family(family)?.slots.chosen_of(&columns.slots).into();
                            of_family.insert(family, slots.clone());
                            slots
                        }
                    };
                    last = Some((family, slots.clone()));
                    slots
                }
            };
            if !slots.is_empty() {
                selected.push(Selected { id, measurement: columns.measurement, slots });
            }
        }
        Ok(())
    }

    /// The groups of a measurement.
    pub fn of_measurement(&self, database: DatabaseId, id: MeasurementId) -> Result<RoaringBitmap, IndexError> {
        let mut found = RoaringBitmap::new();
        for source in self.sources() {
            if let Some(groups) = source.measurement(database, id)? {
                found |= groups.into_bitmap();
            }
        }
        found -= &self.removed;
        Ok(found)
    }

    /// Reads everything that is in segments.
    pub fn verify(&self) -> Result<(), IndexError> {
        self.segments.iter().try_for_each(|segment| segment.verify())
    }
}

impl FrozenGroups {
    /// Writes the segment.
    pub fn write(&self, sink: &mut dyn Write) -> Result<(), IndexError> {
        write_segment(&[&*self.groups], self.groups.removed(), self.seed, sink)
    }
}

impl MergeJob {
    /// The numbers of the segments that become one.
    pub fn input_numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.inputs.iter().map(|segment| segment.number())
    }

    /// Writes the segment.
    pub fn write(&self, sink: &mut dyn Write) -> Result<(), IndexError> {
        let sources: Vec<&dyn Source> = self.inputs.iter().map(|segment| &**segment as &dyn Source).collect();
        write_segment(&sources, &self.removed, self.seed, sink)
    }
}
