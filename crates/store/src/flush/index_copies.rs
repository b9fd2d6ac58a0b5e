//! The second copies of index segments: what they are for, and how a damaged copy is made whole again.
//!
//! At opening a copy that is missing, or damaged where it is looked at, is replaced by its twin's name, which needs no room. Later a reader
//! that meets a damaged block goes on with the twin ([`SegmentTwin`]) and the copy is written anew in the background
//! ([`IndexTwins::repair`]).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use index::{IndexError, Segment, SegmentBytes, SegmentTwin};
use platform::{Files, OpenMode};
use tracing_mutex::parkinglot::Mutex;

use crate::flush::segment::{copies, damaged_segment, map_segment, read, segment_path, twin_path};
use crate::manifest::State;
use crate::upkeep::damage::Damage;
use crate::upkeep::health::Health;
use crate::write::exemplars::EXEMPLARS_SHARD;
use crate::write::producers::PRODUCERS_SHARD;
use crate::{Store, StoreError};

/// Bytes that are copied at once.
const STEP_BYTES: u64 = 1 << 20;

/// Knows which segments have lost one of their copies.
pub(crate) struct IndexTwins {
    files: Arc<dyn Files>,
    directory: PathBuf,
    health: Arc<Health>,
    /// Segments to look at.
    due: Mutex<BTreeSet<u64>>,
}

/// The twin of one segment.
struct Twin {
    twins: Arc<IndexTwins>,
    id: u64,
}

impl SegmentTwin for Twin {
    fn open(&self, offset: u64, what: &'static str) -> Option<SegmentBytes> {
        let path = segment_path(&self.twins.directory, self.id);
        let file = path.display().to_string();
        self.twins.health.report_damage(Damage { file, offset, message: what.to_owned() });
        let twin = map_segment(&*self.twins.files, &twin_path(&path)).ok()?;
        verify(self.id, twin.clone()).ok()?;
        self.twins.due.lock().insert(self.id);
        Some(twin)
    }
}

impl IndexTwins {
    pub(crate) fn new(files: Arc<dyn Files>, directory: PathBuf, health: Arc<Health>) -> Arc<Self> {
        Arc::new(Self { files, directory, health, due: Mutex::default() })
    }

    /// The twin of a segment.
    pub(crate) fn twin(self: &Arc<Self>, id: u64) -> Box<dyn SegmentTwin> {
        Box::new(Twin { twins: self.clone(), id })
    }

    /// Makes whole what opening needs: where a segment's file is missing, or damaged as far as it is looked at here, its twin gets the
    /// file's name. Lists of entries are looked at wholly, segments of groups at their directory. What is missing then is written later.
    pub(crate) fn restore_at_opening(&self, state: &State, is_open: &dyn Fn(u64) -> bool) -> Result<(), StoreError> {
        let names = crate::upkeep::inspect::list(&*self.files, &self.directory.join("index"))?;
        let is_there =
            |path: &Path| path.file_name().is_some_and(|name| names.contains(&name.to_string_lossy().into_owned()));
        for (id, owner) in state.segments.iter().filter(|(id, _)| !is_open(**id)) {
            let path = segment_path(&self.directory, *id);
            let twin = twin_path(&path);
            let is_list = owner.is_none_or(|owner| [EXEMPLARS_SHARD, PRODUCERS_SHARD].contains(&owner));
            let look = |path: &Path| if is_list { read(&*self.files, path).map(drop) } else { self.look(*id, path) };
            match look(&path) {
                Ok(()) if is_there(&twin) && (!is_list || look(&twin).is_ok()) => {}
                Ok(()) => drop(self.due.lock().insert(*id)),
                Err(error) if is_there(&twin) && look(&twin).is_ok() => {
                    self.report(&path, &error);
                    self.set_aside(&path)?;
                    self.rename(&twin, &path)?;
                    self.due.lock().insert(*id);
                }
                // Loading it says what is wrong.
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Opens a copy of a segment of groups, which checks its directory; of older forms all of it.
    fn look(&self, id: u64, path: &Path) -> Result<(), StoreError> {
        let bytes = map_segment(&*self.files, path)?;
        if !Segment::is_segment(bytes.bytes()) {
            return read(&*self.files, path).map(drop);
        }
        Segment::open(id, bytes).map(drop).map_err(StoreError::index(&self.directory))
    }

    /// Writes the copies that are missing or damaged, each from the other. Whether there was something to do.
    pub(crate) fn repair(&self, is_named: impl Fn(u64) -> bool) -> Result<bool, StoreError> {
        let Some(id) = self.due.lock().first().copied() else {
            return Ok(false);
        };
        // A segment that was merged meanwhile has no files any more.
        if is_named(id) {
            let path = segment_path(&self.directory, id);
            let twin = twin_path(&path);
            let is_whole = match (self.verify(id, &path), self.verify(id, &twin)) {
                (Ok(()), Ok(())) => true,
                (Ok(()), Err(_)) => self.copy(&path, &twin).map(|()| true)?,
                (Err(error), Ok(())) => {
                    self.report(&path, &error);
                    self.copy(&twin, &path).map(|()| true)?
                }
                (Err(error), Err(_)) => {
                    self.report(&path, &error);
                    false
                }
            };
            if is_whole {
                self.repaired(id);
            }
        }
        self.due.lock().remove(&id);
        Ok(true)
    }

    /// Both copies of a segment are whole, or gone.
    fn repaired(&self, id: u64) {
        for path in copies(&self.directory, id) {
            self.health.repaired(&path.display().to_string(), 0..u64::MAX);
        }
    }

    /// Reports a damaged copy and has it written anew.
    pub(crate) fn repair_later(&self, id: u64, path: &Path, error: &StoreError) {
        self.report(path, error);
        self.due.lock().insert(id);
    }

    /// A copy of a segment every byte of which is what was written: for what is copied elsewhere.
    pub(crate) fn whole_copy(&self, id: u64) -> Result<PathBuf, StoreError> {
        let path = segment_path(&self.directory, id);
        let error = match self.verify(id, &path) {
            Ok(()) => return Ok(path),
            Err(error) => error,
        };
        let twin = twin_path(&path);
        match self.verify(id, &twin) {
            Ok(()) => {
                self.repair_later(id, &path, &error);
                Ok(twin)
            }
            // What is wrong with the first says more than that there is no second.
            Err(_) => Err(error),
        }
    }

    /// Reads every byte of a copy.
    pub(crate) fn verify(&self, id: u64, path: &Path) -> Result<(), StoreError> {
        let bytes = map_segment(&*self.files, path)?;
        if !Segment::is_segment(bytes.bytes()) {
            return read(&*self.files, path).map(drop);
        }
        verify(id, bytes).map_err(|error| damaged_segment(path, error))
    }

    fn report(&self, path: &Path, error: &StoreError) {
        let (offset, message) = match error {
            StoreError::Corrupt { offset, message, .. } => (*offset, message.clone()),
            error => (0, error.to_string()),
        };
        self.health.report_damage(Damage { file: path.display().to_string(), offset, message });
    }

    /// Writes a copy anew; the damaged one stays beside it under another name.
    fn copy(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        let temporary = to.with_extension("tmp");
        let written = self.copy_to(from, &temporary);
        written.inspect_err(|_| drop(self.files.remove(&temporary)))?;
        self.set_aside(to)?;
        self.rename(&temporary, to)
    }

    fn copy_to(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        let failed = StoreError::io("copy index segment to", to);
        // Left by an attempt that a crash ended.
        let _ = self.files.remove(to);
        let copied = || {
            let source = self.files.open(from, OpenMode::Read)?;
            let target = self.files.open(to, OpenMode::CreateNew)?;
            let (size, mut offset) = (source.size_bytes()?, 0);
            let mut buffer = vec![0; STEP_BYTES.min(size) as usize];
            while offset < size {
                let step = (size - offset).min(STEP_BYTES) as usize;
                let Some(bytes) = buffer.get_mut(..step) else { break };
                source.read_exact_at(bytes, offset)?;
                target.write_all_at(bytes, offset)?;
                offset += step as u64;
            }
            target.sync_data()
        };
        copied().map_err(failed)
    }

    /// Gives a damaged copy another name, under which nothing touches it.
    fn set_aside(&self, path: &Path) -> Result<(), StoreError> {
        match self.files.rename(path, &path.with_extension("damaged")) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            renamed => renamed.map_err(StoreError::io("set aside", path)),
        }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        self.files.rename(from, to).map_err(StoreError::io("rename to", to))?;
        let folder = self.directory.join("index");
        self.files.sync_directory(&folder).map_err(StoreError::io("sync folder", &folder))
    }
}

fn verify(id: u64, bytes: SegmentBytes) -> Result<(), IndexError> {
    Segment::open(id, bytes)?.verify()
}

impl Store {
    /// Makes one damaged index segment whole again. Whether there was one.
    pub(crate) fn repair_index(&self) -> Result<bool, StoreError> {
        self.upkeep.index_copies().repair(|id| self.manifest.lock().state.segments.contains_key(&id))
    }

    /// Removes both copies of a segment.
    pub(crate) fn remove_segment(&self, id: u64) {
        let path = segment_path(&self.options.directory, id);
        self.remove_file(&path);
        let _ = self.platform.files.remove(&twin_path(&path));
        self.upkeep.index_copies().repaired(id);
    }
}
