//! Backups: immutable files copied once, and for each backup one object that says which of them made up the folder.
//!
//! * this file: taking one while the folder is open
//! * [`list`]: the object of a backup · [`store`]: where things are in the target, and whether they are whole
//! * [`copy`]: whole copies, also of closed folders
//! * [`rebuild`]: from the objects of a lost folder to a folder
//! * [`restore`]: from a backup to a folder · [`prune`]: which backups there are, and what goes with the old ones
//!
//! Layout: `docs/formats/backup.md`.

mod copy;
pub(crate) mod list;
mod prune;
mod rebuild;
mod restore;
mod store;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use platform::objects::Objects;
use platform::{File, Mapped};

use crate::head::shard::ShardState;
use crate::manifest::State;
use crate::part::epochs;
use crate::part::epochs::file::EpochFile;
use crate::part::{BlockHandle, Part, PartData, PartLocations};
use crate::tier::parts;
use crate::upkeep::progress::{Meter, Progress};
use crate::{Store, StoreError};

pub use copy::{CopyReport, copy_folder};
pub use prune::{PruneReport, backups, prune};
pub use rebuild::{RebuildReport, rebuild};
pub use restore::{RestoreReport, restore};

use list::{BackupFile, BackupList, FileKind};
use store::Target;

/// How often files that merges take away are looked for again.
const PIN_ATTEMPTS_MAX: usize = 1000;

/// How often rows are set aside anew, because documents changed meanwhile.
const MOMENTS_MAX: usize = 50;

/// What a backup did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// Its name, to be given to [`restore`].
    pub name: String,
    /// Every row up to this sequence id is in it, and no later one.
    pub sequence: u64,
    /// Files that make it up.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that had to be copied: the others were there.
    pub files_copied: u64,
    /// Bytes that had to be copied.
    pub bytes_copied: u64,
}

/// A folder's content at a moment, held so that merges cannot take it away.
struct Pinned {
    state: State,
    sequence: u64,
    /// By the number of their file.
    parts: BTreeMap<u64, Arc<Part>>,
    segments: BTreeMap<u64, Mapped>,
    epochs: BTreeMap<u64, EpochFile>,
}

impl Store {
    /// Puts what the folder holds now into a target: files that an earlier backup put there are not copied again. Reads and
    /// writes go on; a request that is being written is in the backup whole or not at all. Every copy is read back.
    pub fn backup(&self, target: &dyn Objects, tell: &mut dyn FnMut(&Progress)) -> Result<BackupReport, StoreError> {
        tell(&Progress { what: "flushing".to_owned(), ..Progress::default() });
        let pinned = self.pin()?;
        let target = Target::new(target, parts::prefix(pinned.state.incarnation));
        let known = target.known_files()?;
        let mut files = Vec::new();
        let mut report = BackupReport { sequence: pinned.sequence, ..BackupReport::default() };
        let sources = sources(&pinned)?;
        let mut meter = Meter::new(sources.iter().map(|(_, _, bytes, _)| bytes).sum(), tell);
        for (kind, id, bytes, source) in &sources {
            let key = target.key(*kind, *id);
            meter.begin(key.clone());
            let checksum = match known.get(&(*kind, *id)).filter(|known| known.bytes == *bytes) {
                Some(known) => known.checksum,
                None => {
                    report.files_copied += 1;
                    report.bytes_copied += bytes;
                    target.copy(&key, &**source, *bytes)?
                }
            };
            meter.add(*bytes);
            files.push(BackupFile { kind: *kind, id: *id, bytes: *bytes, checksum });
        }
        report.files = files.len() as u64;
        report.bytes = files.iter().map(|file| file.bytes).sum();
        let created_ns = self.platform.clock.now_ns();
        let list = BackupList { created_ns, sequence: pinned.sequence, files, manifest: pinned.state.to_bytes() };
        report.name = target.commit(&list)?;
        Ok(report)
    }

    /// Flushes all heads as they are at one moment, and holds the files that then make up the folder.
    fn pin(&self) -> Result<Pinned, StoreError> {
        // Most of the work, so that what follows is short.
        self.flush_all()?;
        self.save_exemplars()?;
        // What is applied from here on may come again after a restore: twice the same is once.
        self.save_producers()?;
        let _flushing = self.flushing.lock();
        for _ in 0..MOMENTS_MAX {
            // They say what is stored, as those of views do, and what was read, as those of cursors do: of the rows that are set aside.
            let documents = self.manifest.lock().state.documents.clone();
            let sequence = self.freeze_all()?;
            // What was set aside and nothing newer: rows that writers have appended since are beyond the sequence id.
            self.shards.iter().try_for_each(|shard| self.flush_once(shard).map(|_| ()))?;
            let pinned = self.pin_flushed(sequence)?;
            if self.manifest.lock().state.documents == documents {
                return Ok(pinned);
            }
        }
        Err(StoreError::Invalid(
            "views and cursors went on faster than rows could be set aside; try the backup again".to_owned(),
        ))
    }

    /// Holds the files that make up the folder with all rows up to a sequence id.
    fn pin_flushed(&self, sequence: u64) -> Result<Pinned, StoreError> {
        for _ in 0..PIN_ATTEMPTS_MAX {
            let mut state = backup_state(self.state_with_ended_epochs()?, sequence);
            let last = state.flushed.values().copied().max().unwrap_or(sequence);
            self.lose_log(&mut state, last);
            let files = &*self.platform.files;
            if let Some((parts, segments)) = self.pin_files(&state)?
                && let Some(epochs) = epochs::open::open_named(files, &self.options.directory, &state)?
            {
                return Ok(Pinned { state, sequence, parts, segments, epochs });
            }
            // A merge is between its commit and its last step.
            std::thread::yield_now();
        }
        Err(StoreError::Invalid("files went faster than they could be held; try the backup again".to_owned()))
    }

    /// Sets all heads aside in one moment, so that no request is divided; the last sequence id that is in them.
    fn freeze_all(&self) -> Result<u64, StoreError> {
        let has_frozen = |shard: &crate::head::shard::Shard| shard.state.lock().frozen.is_some();
        // Left by a flush that failed; nothing else flushes now.
        for shard in self.shards.iter().filter(|shard| has_frozen(shard)) {
            self.flush_held(shard)?;
        }
        let mut states: Vec<_> = self.shards.iter().map(|shard| shard.state.lock()).collect();
        // Under all of these locks every record is in the log and in its heads, or in neither.
        let sequence = self.log.last_sequence();
        states.iter_mut().for_each(|state| self.freeze_state(state, sequence));
        Ok(sequence)
    }

    fn freeze_state(&self, state: &mut ShardState, sequence: u64) {
        let successor = state.head.successor(self.head_bytes_max());
        let head = std::mem::replace(&mut state.head, successor);
        state.frozen = Some(Arc::new(crate::head::shard::Frozen { head, sequence }));
    }

    /// Opens all files that the manifest names; `None` if one of them has gone since.
    #[allow(clippy::type_complexity, reason = "two maps, named by their only caller")]
    fn pin_files(
        &self,
        state: &State,
    ) -> Result<Option<(BTreeMap<u64, Arc<Part>>, BTreeMap<u64, Mapped>)>, StoreError> {
        let mut by_id: BTreeMap<u64, Arc<Part>> = BTreeMap::new();
        for shard in &self.shards {
            by_id.extend(shard.parts_and_deletes().0.iter().map(|part| (part.info.id, part.clone())));
        }
        let mut parts = BTreeMap::new();
        for info in state.parts.values() {
            let Some(part) = by_id.get(&info.id) else {
                return Ok(None);
            };
            parts.insert(info.file, part.clone());
        }
        let mut segments = BTreeMap::new();
        for id in state.segments.keys() {
            let path = match self.upkeep.index_copies().whole_copy(*id) {
                Err(StoreError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                whole => whole?,
            };
            match self.platform.files.map(&path) {
                Ok(bytes) => drop(segments.insert(*id, bytes)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(StoreError::io("map index segment", &path)(error)),
            }
        }
        Ok(Some((parts, segments)))
    }
}

/// The manifest of a backup: all parts in files of the folder, nothing in the log.
fn backup_state(mut state: State, sequence: u64) -> State {
    state.log_ends.clear();
    state.log_released = 0;
    // What is past keeping is not copied.
    state.trash.clear();
    for number in std::mem::take(&mut state.epoch_trash).into_keys() {
        state.epoch_files.remove(&number);
    }
    // Begun since all were ended: what is in them was written after the backup's moment.
    state.epoch_files.retain(|_, info| info.end.is_some());
    state.parts.values_mut().for_each(|part| part.locations = PartLocations { local: true, object: false });
    // Sequence ids go on after all that stand in the backup, deletes among them.
    let last = state.deletes.keys().map(|(_, sequence)| *sequence).max().unwrap_or(0).max(sequence);
    state.flushed = (0..state.shards).map(|shard| (shard, last)).collect();
    state
}

/// Everything to copy: index segments first, as the parts' keys need them.
#[allow(clippy::type_complexity, reason = "a row of a table that one function reads")]
fn sources(pinned: &Pinned) -> Result<Vec<(FileKind, u64, u64, Box<dyn File>)>, StoreError> {
    let mut sources: Vec<(FileKind, u64, u64, Box<dyn File>)> = Vec::new();
    for (id, bytes) in &pinned.segments {
        let size = bytes.bytes().len() as u64;
        sources.push((FileKind::Segment, *id, size, Box::new(MappedFile(bytes.clone()))));
    }
    for (id, part) in &pinned.parts {
        let bytes = match part.data() {
            PartData::Local { path, file, .. } => file.size_bytes().map_err(StoreError::io("read part", path))?,
            PartData::Object { bytes, .. } => *bytes,
        };
        sources.push((FileKind::Part, *id, bytes, Box::new(PartFile(part.clone()))));
    }
    for (number, file) in &pinned.epochs {
        let end = pinned.state.epoch_files.get(number).and_then(|info| info.end).unwrap_or(0);
        sources.push((FileKind::Epochs, *number, end, Box::new(Beginning { file: file.file.clone(), bytes: end })));
    }
    Ok(sources)
}

/// A file of parts, as it is in the folder or in the object store.
struct PartFile(Arc<Part>);

/// A mapped index segment.
struct MappedFile(Mapped);

/// So many bytes from the beginning of a file. Of one that was ended after a torn write more are there.
struct Beginning {
    file: Arc<dyn File>,
    bytes: u64,
}

fn read_only() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "a file of a backup is only read")
}

impl File for PartFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.0.data() {
            PartData::Local { file, .. } => file.read_exact_at(buffer, offset),
            object @ PartData::Object { .. } => {
                let handle = BlockHandle { offset, bytes: buffer.len() as u32 };
                let read = object.read(&[handle]).map_err(|error| io::Error::other(error.to_string()))?;
                buffer.copy_from_slice(read.first().map(Vec::as_slice).unwrap_or_default());
                Ok(())
            }
        }
    }

    fn write_all_at(&self, _data: &[u8], _offset: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn size_bytes(&self) -> io::Result<u64> {
        match self.0.data() {
            PartData::Local { file, .. } => file.size_bytes(),
            PartData::Object { bytes, .. } => Ok(*bytes),
        }
    }
}

impl File for Beginning {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let is_within = offset.checked_add(buffer.len() as u64).is_some_and(|end| end <= self.bytes);
        if is_within { self.file.read_exact_at(buffer, offset) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn write_all_at(&self, _data: &[u8], _offset: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }
}

impl File for MappedFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.0.bytes();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = start.checked_add(buffer.len()).and_then(|end| bytes.get(start..end));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        // Zeros in place of a page that cannot be read must not go into a backup.
        if self.0.is_readable() { Ok(()) } else { Err(io::Error::other("a page of the mapped file could not be read")) }
    }

    fn write_all_at(&self, _data: &[u8], _offset: u64) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn size_bytes(&self) -> io::Result<u64> {
        Ok(self.0.bytes().len() as u64)
    }
}
