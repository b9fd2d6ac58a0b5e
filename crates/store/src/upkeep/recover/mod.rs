//! Opening a folder: lock, manifest, index, parts, then the log's records that are in no part yet ([`replay`]);
//! for reading only: `read_only`.

mod losses;
mod read_only;
mod replay;
mod reused;
mod unnamed;

pub(crate) use replay::{needed_segments_of, scan_start};

use reused::Reused;

use std::path::Path;
use std::sync::Arc;

use index::{Catalog, GroupEntry, Groups, Segment};
use platform::{Files, LockError, Platform};
use tracing_mutex::parkinglot::{Mutex, RwLock};

use crate::cache::Caches;
use crate::compaction::throttle::Throttle;
use crate::flush::index_copies::IndexTwins;
use crate::flush::segment;
use crate::flush::segment::GroupsFile;
use crate::head::shard::{Shard, ShardGroups, TrashedPart};
use crate::journal::Journal;
use crate::journal::file::Continued;
use crate::log::WriteAheadLog;
use crate::log::cursor::{Cursors, retained_number};
use crate::log::reader::Finding;
use crate::manifest::State;
use crate::manifest::twin;
use crate::memory::MATCH_CACHE;
use crate::memory::Memory;
use crate::part::PartInfo;
use crate::part::epochs;
use crate::retention::Retention;
use crate::retention::trash;
use crate::retention::trusted_time::{Opening, Reading, TrustedTime, data_advance_ns_max};
use crate::tier::parts::ObjectTier;
use crate::upkeep::Upkeep;
use crate::upkeep::health::Health;
use crate::upkeep::inspect;
use crate::upkeep::reserve::{Reserve, is_full};
use crate::upkeep::stats::Counters;
use crate::write::Ingestor;
use crate::write::exemplars::{self, EXEMPLARS_SHARD, Exemplars};
use crate::write::keys::SHARDS_MAX;
use crate::write::producers::{self, PRODUCERS_SHARD, Producers};
use crate::{CatalogState, Damage, Loss, Store, StoreError, StoreOptions};

/// What opening a folder found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// True if the folder was made just now.
    pub created: bool,
    /// Log records read.
    pub log_records: u64,
    /// Rows taken from the log because no part held them.
    pub log_rows: u64,
    /// Rows in the log whose group is not known, because the record that told of it was damaged.
    pub log_rows_lost: u64,
    /// Torn and damaged ranges of the log.
    pub log_findings: Vec<Finding>,
    /// Parts that could not be opened and were set aside, with the reason.
    pub parts_set_aside: Vec<String>,
    /// Parts whose local files are missing or damaged and that are read from the object store again, with the reason.
    pub parts_fetched: Vec<String>,
    /// The copy of the manifest that was missing or damaged, and was written anew from the other.
    pub manifest_repaired: Option<Damage>,
    /// Losses that were accepted at this opening.
    pub losses_accepted: Vec<Loss>,
    /// Files that nothing named and that were removed, since all that they hold is elsewhere.
    pub files_removed: u64,
    /// Files that nothing named and that were moved to `lost+found`.
    pub files_set_aside: Vec<String>,
    /// Files that nothing names and for which `lost+found` has no room: they stay in their folder, under these names.
    pub files_left: Vec<String>,
    /// Files of earlier openings that were removed from `lost+found` because it holds more than it may.
    pub lost_found_removed: Vec<String>,
    /// True if the object store cannot keep two writers apart: nothing there says what a lost folder held.
    pub objects_unfenced: bool,
}

/// A folder that is being opened.
struct Opened {
    platform: Platform,
    options: StoreOptions,
    catalog: Catalog,
    shards: Vec<Shard>,
    /// What the manifest will say.
    state: State,
    /// The manifest as it is: nothing is written before it is clear that the folder can be opened.
    before: Before,
    /// Parts that cannot be opened.
    set_aside: Vec<PartInfo>,
    /// Losses, and where they begin in the log.
    losses: Vec<(Loss, Option<(u32, u64)>)>,
    object_tier: Option<ObjectTier>,
    exemplars: Exemplars,
    producers: Producers,
    regular: epochs::open::Databases,
    recovery: Recovery,
    health: Arc<Health>,
    twins: Arc<IndexTwins>,
    /// The journal of the opening before, if it is to go on.
    journal: Option<Continued>,
}

/// The folder as it was left.
#[derive(Clone, Copy)]
struct Before {
    /// The last opening.
    epoch: u64,
    /// The manifest's last record.
    edition: u64,
}

impl Store {
    /// Opens a data folder, or makes one.
    pub fn open(platform: Platform, options: StoreOptions) -> Result<Self, StoreError> {
        match Self::open_once(platform.clone(), options.clone(), Reused::default()) {
            // On a full disk: what is set apart is for this.
            Err(error) if is_full(&error) && Reserve::new(platform.files.clone(), &options).release() => {
                Self::open_once(platform, options, Reused::default())
            }
            opened => opened,
        }
    }

    fn open_once(platform: Platform, options: StoreOptions, reused: Reused) -> Result<Self, StoreError> {
        let lock = make_and_lock(&*platform.files, &options.directory)?;
        let mut opened = Opened::load(platform, options, reused)?;
        let replayed = opened.replay_log()?;
        opened.decide()?;
        let manifest = opened.write_manifest()?;
        opened.clear_unnamed(&manifest.state)?;
        let (catalog_since, extent) = (replayed.catalog_since, replayed.extent);
        let log = opened.start_log(replayed)?;
        let continued = opened.journal.take().and_then(|journal| journal.finish(extent, &opened.recovery));
        let journal = continued.map_or_else(|| Journal::fresh(&opened.platform, &opened.options), Ok)?;
        opened.health.set_losses(manifest.state.losses.clone());
        if let Some(damage) = &opened.recovery.manifest_repaired {
            opened.health.report_damage(damage.clone());
            // Both copies were written anew.
            opened.health.repaired(&damage.file, 0..u64::MAX);
        }
        let cursors = opened.cursors(&manifest.state, log.last_sequence())?;
        let reserve = Reserve::new(opened.platform.files.clone(), &opened.options);
        let trusted_time = opened.trusted_time(&manifest.state);
        let store = Self {
            catalog: RwLock::new(CatalogState {
                catalog: opened.catalog,
                unsaved_since: catalog_since,
                unlogged: Vec::new(),
            }),
            log: Box::new(log),
            cursors,
            shards: opened.shards,
            regular: RwLock::new(std::mem::take(&mut opened.regular)),
            retention: Retention::new(&manifest.state, trusted_time),
            manifest: Mutex::new(manifest),
            flushing: Mutex::new(()),
            throttle: Throttle::new(opened.options.merge_bytes_per_second_max),
            counters: Counters::default(),
            journal,
            ingestor: Ingestor::new(&opened.options, opened.exemplars, opened.producers),
            caches: Caches::new(opened.options.memory_bytes_max),
            memory: Memory::new(&opened.options, opened.platform.clock.clone()),
            object_tier: opened.object_tier,
            upkeep: Upkeep::new(opened.recovery, opened.health, opened.twins, reserve),
            manifest_tail: None,
            platform: opened.platform,
            options: opened.options,
            _lock: lock,
        };
        store.record_opening_time();
        store.observe_time();
        // On a full disk the next opening does it: nothing can be read of a dropped table.
        let _ = store.finish_drops();
        Ok(store)
    }
}

/// Makes what is missing of a folder, and keeps other processes out of it.
fn make_and_lock(files: &dyn Files, directory: &Path) -> Result<Box<dyn Send + Sync>, StoreError> {
    for folder in [directory.to_owned(), directory.join("log"), directory.join("parts"), directory.join("index")] {
        files.create_directory(&folder).map_err(StoreError::io("create folder", &folder))?;
    }
    lock(files, directory)
}

pub(crate) fn lock(files: &dyn Files, directory: &Path) -> Result<Box<dyn Send + Sync>, StoreError> {
    let path = directory.join("LOCK");
    files.lock(&path).map_err(|error| match error {
        LockError::Held { pid } => StoreError::Locked { directory: directory.to_owned(), pid },
        LockError::Io(error) => StoreError::io("lock", &path)(error),
    })
}

fn new_state(platform: &Platform, options: &StoreOptions) -> Result<State, StoreError> {
    let mut incarnation = [0; 8];
    platform.random.fill(&mut incarnation).map_err(StoreError::io("make an identity for", &options.directory))?;
    let shards = options.shards.clamp(1, SHARDS_MAX);
    Ok(State { incarnation: u64::from_le_bytes(incarnation), shards, ..State::default() })
}

impl Opened {
    fn load(platform: Platform, options: StoreOptions, mut reused: Reused) -> Result<Self, StoreError> {
        let (files, directory) = (platform.files.clone(), options.directory.clone());
        let mut recovery = Recovery::default();
        let mut state = match reused.manifest(&*files, &directory)? {
            Some(found) => {
                recovery.manifest_repaired = found.damage;
                found.state
            }
            None => {
                twin::check_is_new(&*files, &directory)?;
                recovery.created = true;
                new_state(&platform, &options)?
            }
        };
        let reused = reused.in_folder(&state);
        let before = Before { epoch: state.epoch, edition: state.edition };
        state.epoch += 1;
        if state.fast_partition_length_ns <= 0 {
            state.fast_partition_length_ns = options.partition_ns.max(1);
        }
        let object_tier = open_tier(&platform, &options, &state)?;
        recovery.objects_unfenced = object_tier.as_ref().is_some_and(|object_tier| !object_tier.conditional_put());
        let health = reused.health();
        let twins = IndexTwins::new(files.clone(), directory.clone(), health.clone());
        twins.restore_at_opening(&state, &|id| reused.segment(id).is_some())?;
        let Named { catalog, groups, exemplars, producers } =
            Named::load((&platform, &options), &state, &twins, &reused)?;
        let folder = losses::Folder {
            files: &*files,
            directory: &directory,
            object_tier: object_tier.as_ref(),
            health: &health,
            reused: &reused,
        };
        let losses::OpenedParts { parts, set_aside, losses } = losses::open_parts(&folder, &mut state, &mut recovery)?;
        let trash = trash::open(&*files, &directory, object_tier.as_ref(), &health, &mut state)?;
        let head_bytes = options.head_bytes_max / state.shards.max(1) as usize;
        let shards = groups.into_iter().zip(parts).enumerate().map(|(number, (mut groups, parts))| {
            groups.groups.cache_matched(MATCH_CACHE.bytes_each(options.memory_bytes_max, state.shards as usize));
            let of_shard = state.deletes.iter().filter(|((shard, _), _)| *shard as usize == number);
            let deletes = of_shard.map(|(_, delete)| delete.clone()).collect();
            Shard::new(number as u32, groups, parts, deletes, head_bytes)
        });
        let shards: Vec<Shard> = shards.collect();
        put_trash(&shards, trash);
        let newest_ns = shards.iter().map(|shard| shard.state.lock().newest_ns).collect();
        let reads_journal = options.journal_is_saved;
        let journal = reads_journal.then(|| Continued::read(&platform, &options, state.epoch, newest_ns)).flatten();
        let epochs = epochs::open::open(&*files, &directory, &mut state, reused.regular())?;
        let losses = losses.into_iter().chain(epochs.losses).map(|loss| (loss, None)).collect();
        Ok(Self {
            platform,
            options,
            catalog,
            shards,
            state,
            before,
            set_aside,
            losses,
            object_tier,
            exemplars,
            producers,
            regular: epochs.databases,
            recovery,
            health,
            twins,
            journal,
        })
    }

    /// The cursors of the log, and what is retained for them.
    fn cursors(&self, manifest: &State, last_sequence: u64) -> Result<Cursors, StoreError> {
        let names = inspect::list(&*self.platform.files, &self.options.directory.join("log"))?;
        let present = names.iter().filter_map(|name| retained_number(name)).collect();
        Ok(Cursors::open(manifest, last_sequence, &present))
    }

    /// Where the time that retention goes by begins.
    fn trusted_time(&self, manifest: &State) -> TrustedTime {
        let now = Reading::new(&*self.platform.clock);
        let newest_of = |shard: &Shard| {
            let state = shard.state.lock();
            let of_parts = state.parts.iter().flat_map(|part| [part.info.range.start_ns, part.info.range.end_ns]);
            of_parts.chain(state.head.newest_ns()).filter(|time_ns| *time_ns <= now.wall_ns).max()
        };
        let policies = manifest.policies.values();
        let shortest = policies.map(|policy| policy.retention_ns).filter(|retention_ns| *retention_ns > 0);
        let opening = Opening {
            saved_ns: manifest.trusted_ns,
            newest_data_ns: self.shards.iter().filter_map(newest_of).max(),
            advance_ns_max: data_advance_ns_max(self.options.ahead_ms_max, shortest.min().unwrap_or(0)),
        };
        TrustedTime::new(&opening, now)
    }
}

/// Gives shards their parts that are in the trash.
fn put_trash(shards: &[Shard], trash: Vec<TrashedPart>) {
    for trashed in trash {
        if let Some(shard) = shards.get(trashed.part.info.shard as usize) {
            shard.trash.lock().push(trashed);
        }
    }
}

/// The object tier, if the folder has one; it must if parts are there and nowhere else.
fn open_tier(platform: &Platform, options: &StoreOptions, state: &State) -> Result<Option<ObjectTier>, StoreError> {
    let tier = options.objects.as_ref();
    let object_tier = tier
        .map(|tier| ObjectTier::open(platform, tier, &options.directory, state.objects_incarnation()))
        .transpose()?;
    if object_tier.is_none() && state.parts.values().any(|part| !part.locations.local) {
        let message = "parts of this folder are in an object store: say in which with --objects";
        return Err(StoreError::Invalid(message.to_owned()));
    }
    Ok(object_tier)
}

fn load_catalog(files: &dyn Files, path: &Path, catalog: &mut Catalog) -> Result<(), StoreError> {
    for entry in segment::read_catalog(files, path)? {
        catalog.apply_saved(&entry).map_err(|error| StoreError::corrupt(path, 0, error.to_string()))?;
    }
    Ok(())
}

/// What the segments hold that the manifest names.
struct Named {
    catalog: Catalog,
    /// By shard.
    groups: Vec<ShardGroups>,
    exemplars: Exemplars,
    producers: Producers,
}

impl Named {
    fn load(
        (platform, options): (&Platform, &StoreOptions),
        state: &State,
        twins: &Arc<IndexTwins>,
        reused: &Reused,
    ) -> Result<Self, StoreError> {
        let (files, directory) = (&*platform.files, &options.directory);
        let mut catalog = Catalog::default();
        let mut exemplars = Exemplars::default();
        let mut producers = Producers::default();
        let mut indexes: Vec<ShardIndex> = Vec::new();
        indexes.resize_with(state.shards as usize, ShardIndex::default);
        for (id, shard) in &state.segments {
            let path = segment::segment_path(directory, *id);
            match shard {
                None => load_catalog(files, &path, &mut catalog)?,
                Some(EXEMPLARS_SHARD) => exemplars = exemplars::load(files, &path, options.exemplars_max)?,
                Some(PRODUCERS_SHARD) => producers = producers::load(files, &path)?,
                Some(shard) => {
                    let index = indexes.get_mut(*shard as usize).ok_or_else(|| no_shard(&path, *shard))?;
                    match reused.segment(*id) {
                        Some(segment) => index.segments.push(segment),
                        None => load_groups(files, (&path, *id), twins, index)?,
                    }
                }
            }
        }
        let mut seed = [0; 8];
        platform.random.fill(&mut seed).map_err(StoreError::io("draw random bytes for", directory))?;
        let seed = u64::from_le_bytes(seed);
        let groups = indexes.into_iter().map(|index| index.open(directory, seed));
        Ok(Self { catalog, groups: groups.collect::<Result<_, _>>()?, exemplars, producers })
    }
}

/// A shard's segments, opened.
#[derive(Default)]
struct ShardIndex {
    segments: Vec<Arc<Segment>>,
    /// Those of version 1, in order, with what they say.
    old: Vec<(u64, Vec<GroupEntry>)>,
}

impl ShardIndex {
    fn open(self, directory: &Path, seed: u64) -> Result<ShardGroups, StoreError> {
        let groups = Groups::open_shared(self.segments, seed).map_err(StoreError::index(directory))?;
        let mut shard = ShardGroups { groups, ..ShardGroups::default() };
        for (id, entries) in self.old {
            if !shard.groups.apply_old_segment(&entries).map_err(StoreError::index(directory))? {
                let path = segment::segment_path(directory, id);
                return Err(StoreError::corrupt(&path, 0, "entries do not follow from those before them"));
            }
            shard.old_segments.push(id);
        }
        Ok(shard)
    }
}

fn no_shard(path: &Path, shard: u32) -> StoreError {
    StoreError::corrupt(path, 0, format!("the manifest gives it to shard {shard}, which is not there"))
}

fn load_groups(
    files: &dyn Files,
    (path, id): (&Path, u64),
    twins: &Arc<IndexTwins>,
    index: &mut ShardIndex,
) -> Result<(), StoreError> {
    match segment::open_groups(files, path, id, Some(twins.twin(id)))? {
        GroupsFile::Segment(segment) => index.segments.push(Arc::from(segment)),
        GroupsFile::Entries(entries) => index.old.push((id, entries)),
    }
    Ok(())
}
