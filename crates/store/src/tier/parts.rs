//! Parts on the object tier: uploads, local copies that make room, and the copy of the manifest.
//!
//! A part of level 2 is first a local file. It is uploaded and verified, then the manifest says so; its local copy stays until
//! the room is needed, and then only its index stays. Objects of parts that merges replaced go when no reader has them any
//! more.
//!
//! While the manifest [is in doubt](State::is_in_doubt) nothing there is changed: what it does not name may be all that is left.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use platform::objects::{ObjectErrorKind, ObjectOptions, Version};
use platform::{OpenMode, Platform};
use tracing_mutex::parkinglot::Mutex;

use crate::compaction;
use crate::head::shard::Shard;
use crate::manifest::{self, Edit, State};
use crate::part::{Part, PartData, PartInfo, PartLocations};
use crate::tier::{FlashOptions, ManifestPut, Tier, TierOptions};
use crate::{Store, StoreError};

/// Objects that one sweep for forgotten ones looks at.
const SWEEP_OBJECTS_MAX: usize = 1 << 20;

/// Settings of the object tier of a data folder.
#[derive(Debug, Clone)]
pub struct ObjectTierOptions {
    /// Where parts of level 2 go: a folder, `s3://bucket/prefix`, `gs://…`, `az://…`.
    pub url: String,
    /// How to reach it.
    pub objects: ObjectOptions,
    /// Bytes of cached blocks in memory.
    pub cache_memory_bytes: u64,
    /// Bytes of cached blocks on flash; 0 for none.
    pub cache_flash_bytes: u64,
    /// Bytes of uploaded parts whose local copies are kept.
    pub local_bytes_max: u64,
}

impl ObjectTierOptions {
    /// The defaults, for an address.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            objects: ObjectOptions::default(),
            cache_memory_bytes: 64 << 20,
            cache_flash_bytes: 1 << 30,
            local_bytes_max: 16 << 30,
        }
    }
}

/// The object tier of an open folder.
pub(crate) struct ObjectTier {
    pub(crate) tier: Arc<Tier>,
    /// Keys of this folder's objects begin with it.
    prefix: String,
    /// True if the store keeps two writers apart; unknown while it has not been reached.
    conditional_put: OnceLock<bool>,
    local_bytes_max: u64,
    state: Mutex<ObjectTierState>,
}

#[derive(Default)]
struct ObjectTierState {
    /// Index segments that are known to be there.
    segments: BTreeSet<u64>,
    /// Replaced parts whose objects may go when no reader has them.
    doomed: Vec<Arc<Part>>,
    /// What the copy of the manifest was when this process last wrote it.
    copy: Option<Version>,
    /// True if it says what there is.
    copied: bool,
    /// True if objects that nothing names were looked for.
    swept: bool,
}

impl ObjectTier {
    /// Opens the tier and finds out what it can do.
    pub(crate) fn open(
        platform: &Platform,
        options: &ObjectTierOptions,
        directory: &Path,
        incarnation: u64,
    ) -> Result<Self, StoreError> {
        let objects = platform.objects.open(&options.url, &options.objects).map_err(StoreError::Objects)?;
        let flash = (options.cache_flash_bytes > 0)
            .then(|| FlashOptions { path: directory.join("blocks.cache"), file_bytes: options.cache_flash_bytes });
        let memory_bytes = options.cache_memory_bytes;
        let tier_options = TierOptions { identity: incarnation, memory_bytes, flash, ..TierOptions::default() };
        let tier = Tier::open(platform.clone(), objects, tier_options).map_err(StoreError::Objects)?;
        let conditional_put = match tier.probe() {
            Ok(probe) => OnceLock::from(probe.conditional_put),
            // It may be back later: what is here is served meanwhile, and uploads wait.
            Err(error) if error.kind == ObjectErrorKind::Busy => OnceLock::new(),
            Err(error) => return Err(StoreError::Objects(error)),
        };
        Ok(Self {
            tier: Arc::new(tier),
            prefix: prefix(incarnation),
            conditional_put,
            local_bytes_max: options.local_bytes_max,
            state: Mutex::default(),
        })
    }

    /// Returns whether the store keeps two writers apart.
    pub(crate) fn conditional_put(&self) -> bool {
        self.conditional_put.get().copied().unwrap_or(true)
    }

    /// Finds out what a store can do that could not be reached at the opening.
    fn reach(&self) -> Result<(), StoreError> {
        if self.conditional_put.get().is_none() {
            let probe = self.tier.probe().map_err(StoreError::Objects)?;
            // Another thread may have found out meanwhile: the same.
            let _ = self.conditional_put.set(probe.conditional_put);
        }
        Ok(())
    }

    pub(crate) fn part_key(&self, id: u64) -> String {
        part_key(&self.prefix, id)
    }

    fn copy_key(&self) -> String {
        format!("{}/MANIFEST", self.prefix)
    }

    fn segment_key(&self, id: u64) -> String {
        format!("{}/index/{id:010}.segment", self.prefix)
    }

    /// Opens a part whose local copy has made room; its index is local, and is fetched if it is not.
    pub(crate) fn open_part(
        &self,
        files: &dyn platform::Files,
        directory: &Path,
        info: &PartInfo,
    ) -> Result<PartData, StoreError> {
        let path = tail_path(directory, info.id);
        let key = self.part_key(info.id);
        if files.open(&path, OpenMode::Read).is_err() {
            let tail = PartData::object(self.tier.clone(), key.clone(), info.bytes, None).fetch_tail()?;
            platform::write_file(files, &path, &tail).map_err(StoreError::io("write index of a part", &path))?;
        }
        let tail = files.map(&path).map_err(StoreError::io("map index of a part", &path))?;
        Ok(PartData::object(self.tier.clone(), key, info.bytes, Some(tail)))
    }
}

/// Keys of a folder's objects begin with it.
pub(crate) fn prefix(incarnation: u64) -> String {
    format!("{incarnation:016x}")
}

/// The object of a part.
pub(crate) fn part_key(prefix: &str, id: u64) -> String {
    format!("{prefix}/parts/{id:010}.part")
}

/// The local file with the index of a part whose bytes are in the object store.
pub(crate) fn tail_path(directory: &Path, id: u64) -> PathBuf {
    directory.join("parts").join(format!("{id:010}.tail"))
}

impl Store {
    /// Does one thing that is due between fast tier and object store. `true` if there may be more.
    pub fn maintain_objects(&self) -> Result<bool, StoreError> {
        let Some(object_tier) = &self.object_tier else {
            return Ok(false);
        };
        if self.manifest.lock().state.is_in_doubt() {
            return Ok(false);
        }
        object_tier.reach()?;
        self.sweep_objects(object_tier)?;
        if self.upload_next(object_tier)? || self.evict_next(object_tier)? {
            object_tier.state.lock().copied = false;
            return Ok(true);
        }
        let is_copied = self.copy_manifest(object_tier)?;
        if is_copied {
            self.delete_replaced_segments(object_tier)?;
        }
        if is_copied || !object_tier.conditional_put() {
            delete_doomed(object_tier)?;
        }
        Ok(false)
    }

    /// Uploads the oldest part of level 2 that is not there yet, behind the index segments that its keys need.
    fn upload_next(&self, object_tier: &ObjectTier) -> Result<bool, StoreError> {
        let is_due = |info: &PartInfo| info.level == 2 && info.locations.local && !info.locations.object;
        let Some((shard, part)) = self.oldest_part(is_due) else {
            return Ok(false);
        };
        self.upload_segments(object_tier)?;
        let path = self.part_path(part.info.file);
        match object_tier.tier.upload(&path, &object_tier.part_key(part.info.id)) {
            Ok(_) => {}
            // A merge replaced the part, and its file is gone: there is nothing to upload.
            Err(_) if !shard.has_part(part.info.id) => return Ok(true),
            Err(error) => return Err(StoreError::Objects(error)),
        }
        let locations = PartLocations { local: true, object: true };
        if !self.move_part(shard, part.info.id, locations)? {
            object_tier.tier.delete(&object_tier.part_key(part.info.id)).map_err(StoreError::Objects)?;
        }
        Ok(true)
    }

    /// Segments are there before the parts whose groups they tell of.
    fn upload_segments(&self, object_tier: &ObjectTier) -> Result<(), StoreError> {
        let named: BTreeSet<u64> = self.manifest.lock().state.segments.keys().copied().collect();
        let missing: Vec<u64> = named.difference(&object_tier.state.lock().segments).copied().collect();
        for id in missing {
            let whole = self.upkeep.index_copies().whole_copy(id);
            let uploaded = whole.and_then(|path| {
                object_tier.tier.upload(&path, &object_tier.segment_key(id)).map_err(StoreError::Objects)
            });
            match uploaded {
                Ok(_) => drop(object_tier.state.lock().segments.insert(id)),
                // Merged into another meanwhile: that one comes with the next part.
                Err(_) if !self.manifest.lock().state.segments.contains_key(&id) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Gives up the local copy of the oldest uploaded part while they take more room than they may.
    fn evict_next(&self, object_tier: &ObjectTier) -> Result<bool, StoreError> {
        let is_copy = |info: &PartInfo| info.level == 2 && info.locations.local && info.locations.object;
        let mut local_bytes = 0;
        for shard in &self.shards {
            let (parts, _) = shard.parts_and_deletes();
            local_bytes += parts.iter().filter(|part| is_copy(&part.info)).map(|part| part.info.bytes).sum::<u64>();
        }
        if local_bytes <= object_tier.local_bytes_max {
            return Ok(false);
        }
        let Some((shard, part)) = self.oldest_part(is_copy) else {
            return Ok(false);
        };
        let tail = part.tail()?;
        let path = tail_path(&self.options.directory, part.info.id);
        platform::write_file(&*self.platform.files, &path, &tail)
            .map_err(StoreError::io("write index of a part", &path))?;
        let moved = self.move_part(shard, part.info.id, PartLocations { local: false, object: true })?;
        self.remove_file(&if moved { self.part_path(part.info.file) } else { path });
        Ok(true)
    }

    fn oldest_part(&self, is_due: impl Fn(&PartInfo) -> bool) -> Option<(&Shard, Arc<Part>)> {
        let due = self.shards.iter().flat_map(|shard| {
            let (parts, _) = shard.parts_and_deletes();
            let due: Vec<_> = parts.iter().filter(|part| is_due(&part.info)).cloned().collect();
            due.into_iter().map(move |part| (shard, part))
        });
        due.min_by_key(|(_, part)| (part.info.partition.end_ns, part.info.id))
    }

    /// Says where a part's bytes are, if the part still exists. Whether it does.
    pub(crate) fn move_part(&self, shard: &Shard, id: u64, locations: PartLocations) -> Result<bool, StoreError> {
        let _work = shard.work.lock();
        let (parts, _) = shard.parts_and_deletes();
        let Some(part) = parts.iter().find(|part| part.info.id == id) else {
            return Ok(false);
        };
        let moved = self.open_part(PartInfo { locations, ..part.info })?;
        self.commit_edits(&[Edit::Moved { id, locations }])?;
        let mut state = shard.state.lock();
        let kept = state.parts.iter().filter(|part| part.info.id != id).cloned();
        let mut parts: Vec<Arc<Part>> = kept.chain([moved]).collect();
        parts.sort_unstable_by_key(|part| compaction::age_order(&part.info));
        state.parts = Arc::new(parts);
        Ok(true)
    }

    /// Remembers the objects of parts that are no more.
    pub(crate) fn forget_objects(&self, removed: &[Arc<Part>]) {
        let Some(object_tier) = &self.object_tier else {
            return;
        };
        let with_object = removed.iter().filter(|part| part.info.locations.object).cloned();
        let mut state = object_tier.state.lock();
        state.doomed.extend(with_object);
        state.copied = false;
    }

    /// Once after opening: objects that an earlier process left behind. Those that the copy of the manifest names stay until another copy
    /// has taken its place; if it cannot be read, all stay.
    fn sweep_objects(&self, object_tier: &ObjectTier) -> Result<(), StoreError> {
        if std::mem::replace(&mut object_tier.state.lock().swept, true) {
            return Ok(());
        }
        let copy = object_tier.tier.load_manifest(&object_tier.copy_key(), u64::MAX).map_err(StoreError::Objects)?;
        let Ok(copy) = copy.map(|copy| manifest::Manifest::parse(&copy.bytes)).transpose() else {
            return Ok(());
        };
        let folder = format!("{}/parts", object_tier.prefix);
        let listed = object_tier.tier.list(&folder, SWEEP_OBJECTS_MAX).map_err(StoreError::Objects)?;
        let keys = |state: &State| state.parts_with_trash().map(|part| object_tier.part_key(part.id)).collect();
        let mut named: BTreeSet<String> = keys(&self.manifest.lock().state);
        named.extend(copy.as_ref().map(keys).unwrap_or_default());
        let forgotten = listed.iter().filter(|object| !named.contains(&object.key));
        forgotten.into_iter().try_for_each(|object| object_tier.tier.delete(&object.key).map_err(StoreError::Objects))
    }

    /// Deletes the objects of index segments that others have replaced, once the copy of the manifest does not name them.
    fn delete_replaced_segments(&self, object_tier: &ObjectTier) -> Result<(), StoreError> {
        let named: BTreeSet<u64> = self.manifest.lock().state.segments.keys().copied().collect();
        let replaced: Vec<u64> = object_tier.state.lock().segments.difference(&named).copied().collect();
        for id in replaced {
            object_tier.tier.delete(&object_tier.segment_key(id)).map_err(StoreError::Objects)?;
            object_tier.state.lock().segments.remove(&id);
        }
        Ok(())
    }

    /// Puts a copy of the manifest beside the objects: what is in the bucket, and under which policies. Whether it is there.
    fn copy_manifest(&self, object_tier: &ObjectTier) -> Result<bool, StoreError> {
        let expected = {
            let state = object_tier.state.lock();
            if state.copied || !object_tier.conditional_put() {
                return Ok(state.copied);
            }
            state.copy.clone()
        };
        // It names no segment that is not there.
        self.upload_segments(object_tier)?;
        let key = object_tier.copy_key();
        let expected = match expected {
            Some(version) => Some(version),
            None => {
                let found = object_tier.tier.load_manifest(&key, u64::MAX).map_err(StoreError::Objects)?;
                found.map(|copy| copy.version)
            }
        };
        let copy = object_state(&self.manifest.lock().state);
        if !copy.segments.keys().all(|id| object_tier.state.lock().segments.contains(id)) {
            return Ok(false);
        }
        let bytes = copy.to_bytes();
        let put = object_tier.tier.put_manifest(&key, &bytes, expected.as_ref()).map_err(StoreError::Objects)?;
        match put {
            ManifestPut::Written(version) => {
                let mut state = object_tier.state.lock();
                (state.copy, state.copied) = (Some(version), true);
                Ok(true)
            }
            // One of our own, whose answer was lost, or of this folder's earlier life: the next attempt replaces it.
            ManifestPut::Fenced(found) if !self.is_later(found.as_ref().map(|copy| copy.bytes.as_slice())) => {
                object_tier.state.lock().copy = found.map(|copy| copy.version);
                Ok(false)
            }
            ManifestPut::Fenced(_) => {
                let reason = format!(
                    "another process writes the objects of this data folder in {}: stop it",
                    object_tier.tier.location()
                );
                self.log.poison(&reason);
                Err(StoreError::Poisoned { reason })
            }
        }
    }
}

impl Store {
    /// Returns whether a copy of the manifest was written by a process that opened the folder after this one.
    fn is_later(&self, copy: Option<&[u8]>) -> bool {
        let epoch = self.manifest.lock().state.epoch;
        copy.and_then(|bytes| manifest::Manifest::parse(bytes).ok()).is_some_and(|state| state.epoch > epoch)
    }
}

/// Deletes objects that the manifest's copy does not name and no reader has.
fn delete_doomed(object_tier: &ObjectTier) -> Result<(), StoreError> {
    let idle: Vec<u64> = {
        let mut state = object_tier.state.lock();
        let (idle, read): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.doomed).into_iter().partition(|part| Arc::strong_count(part) == 1);
        state.doomed = read;
        idle.iter().map(|part| part.info.id).collect()
    };
    // One that cannot be deleted now is found by the sweep after the next opening.
    idle.iter().try_for_each(|id| object_tier.tier.delete(&object_tier.part_key(*id)).map_err(StoreError::Objects))
}

/// What of the manifest holds without the local folder.
fn object_state(state: &State) -> State {
    let mut object_tier = State { log_ends: std::collections::BTreeMap::new(), log_released: 0, ..state.clone() };
    object_tier.parts.retain(|_, part| part.locations.object);
    object_tier.parts.values_mut().for_each(|part| part.locations.local = false);
    object_tier.trash.retain(|_, trashed| trashed.info.locations.object);
    object_tier.trash.values_mut().for_each(|trashed| trashed.info.locations.local = false);
    object_tier
}
