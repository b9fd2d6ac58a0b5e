//! From a backup to a folder that can be opened.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use platform::objects::{ObjectErrorKind, Objects};
use platform::{Files, LockError, OpenMode, Platform};

use super::list::{BackupFile, BackupList, FileKind};
use super::store::{Target, check_checksum, corrupt, latest, read_backup, read_whole};
use crate::flush::segment::segment_path;
use crate::manifest::{Manifest, State};
use crate::part::epochs::file::{FOLDER as EPOCHS, path_of as epoch_path};
use crate::upkeep::inspect::list;
use crate::upkeep::progress::{Meter, Progress};
use crate::{StoreError, part_path};

/// What restoring did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// The backup's name.
    pub name: String,
    /// When it was taken, in nanoseconds since the Unix epoch.
    pub created_ns: i64,
    /// Every row up to this sequence id is in it.
    pub sequence: u64,
    /// Files written.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Writes a backup (the newest, if none is named) into an empty folder, which can then be opened. Every byte is checked on its way; after
/// an error the folder is empty again. The folder is a new one with the old content: it gets an incarnation of its own.
pub fn restore(
    source: &dyn Objects,
    which: Option<&str>,
    platform: &Platform,
    directory: &Path,
    tell: &mut dyn FnMut(&Progress),
) -> Result<RestoreReport, StoreError> {
    let name = match which {
        Some(name) => find(source, name)?,
        None => latest(source)?,
    };
    let backup = read_backup(source, &name)?;
    let state = Manifest::parse(&backup.manifest)
        .map_err(|error| corrupt(source, &name, error.offset as u64, format!("the manifest inside: {}", error.what)))?;
    let files = &*platform.files;
    let _lock = make_folder(files, directory)?;
    let target = Target::of_backup(source, &name);
    let written = write_files(files, &target, &backup, directory, tell);
    let written = written.and_then(|()| write_manifest(platform, directory, state));
    if let Err(error) = written {
        for file in &backup.files {
            // Not all of them were written.
            let _ = files.remove(&local_path(directory, file));
        }
        return Err(error);
    }
    Ok(RestoreReport {
        name,
        created_ns: backup.created_ns,
        sequence: backup.sequence,
        files: backup.files.len() as u64,
        bytes: backup.files.iter().map(|file| file.bytes).sum(),
    })
}

/// A backup by its whole name, or by the last part of it.
fn find(source: &dyn Objects, name: &str) -> Result<String, StoreError> {
    if name.contains('/') {
        return match source.head(name) {
            Ok(_) => Ok(name.to_owned()),
            Err(error) if error.kind == ObjectErrorKind::Missing => Err(unknown(source, name)),
            Err(error) => Err(StoreError::Objects(error)),
        };
    }
    let known = Target::of_backup(source, &latest(source)?).names()?;
    let found = known.into_iter().find(|key| key.rsplit('/').next() == Some(name));
    found.ok_or_else(|| unknown(source, name))
}

fn unknown(source: &dyn Objects, name: &str) -> StoreError {
    StoreError::Invalid(format!(
        "there is no backup {name} in {}; without a name the newest is taken",
        source.location()
    ))
}

/// Makes a folder, or finds an empty one, and keeps others out of it while the answer lives.
pub(super) fn make_folder(files: &dyn Files, directory: &Path) -> Result<Box<dyn Send + Sync>, StoreError> {
    let folders = ["log", "parts", "index", EPOCHS].map(|name| directory.join(name));
    for folder in std::iter::once(directory.to_owned()).chain(folders) {
        files.create_directory(&folder).map_err(StoreError::io("create folder", &folder))?;
    }
    let lock_path = directory.join("LOCK");
    let lock = files.lock(&lock_path).map_err(|error| match error {
        LockError::Held { pid } => StoreError::Locked { directory: directory.to_owned(), pid },
        LockError::Io(error) => StoreError::io("lock", &lock_path)(error),
    })?;
    check_empty(files, directory)?;
    Ok(lock)
}

fn check_empty(files: &dyn Files, directory: &Path) -> Result<(), StoreError> {
    let own = ["LOCK", "log", "parts", "index", EPOCHS];
    let mut found: Vec<String> =
        list(files, directory)?.into_iter().filter(|name| !own.contains(&name.as_str())).collect();
    for folder in ["log", "parts", "index", EPOCHS] {
        found.extend(list(files, &directory.join(folder))?.into_iter().map(|name| format!("{folder}/{name}")));
    }
    match found.first() {
        None => Ok(()),
        Some(first) => Err(StoreError::Invalid(format!(
            "{} is not empty: it holds {first}; a backup is restored into an empty or new folder only",
            directory.display()
        ))),
    }
}

pub(super) fn local_path(directory: &Path, file: &BackupFile) -> PathBuf {
    match file.kind {
        FileKind::Part => part_path(directory, file.id),
        FileKind::Segment => segment_path(directory, file.id),
        FileKind::Epochs => epoch_path(directory, file.id),
    }
}

fn write_files(
    files: &dyn Files,
    target: &Target<'_>,
    backup: &BackupList,
    directory: &Path,
    tell: &mut dyn FnMut(&Progress),
) -> Result<(), StoreError> {
    let mut meter = Meter::new(backup.files.iter().map(|file| file.bytes).sum(), tell);
    for file in &backup.files {
        let key = target.key(file.kind, file.id);
        meter.begin(key.clone());
        write_file(files, target, file, &local_path(directory, file))?;
        meter.add(file.bytes);
    }
    for folder in ["parts", "index", EPOCHS].map(|name| directory.join(name)) {
        files.sync_directory(&folder).map_err(StoreError::io("sync folder", &folder))?;
    }
    Ok(())
}

fn write_file(files: &dyn Files, target: &Target<'_>, file: &BackupFile, path: &Path) -> Result<(), StoreError> {
    let key = target.key(file.kind, file.id);
    let local = files.open(path, OpenMode::CreateNew).map_err(StoreError::io("create", path))?;
    let mut offset = 0;
    let found = read_whole(target.objects, &key, file.bytes, |piece| {
        local.write_all_at(piece, offset).map_err(StoreError::io("write", path))?;
        offset += piece.len() as u64;
        Ok(())
    })?;
    check_checksum(target.objects, &key, file.checksum, found)?;
    local.sync_data().map_err(StoreError::io("sync", path))
}

/// Last of all: with it the folder is one. Numbers that the old folder gave out since the backup must mean nothing here.
pub(super) fn write_manifest(platform: &Platform, directory: &Path, state: State) -> Result<(), StoreError> {
    let mut incarnation = [0; 8];
    platform.random.fill(&mut incarnation).map_err(StoreError::io("make an identity for", directory))?;
    // The log is not there, and neither are gaps in it.
    let state = State { incarnation: u64::from_le_bytes(incarnation), log_gaps: BTreeSet::new(), ..state };
    Manifest::write(&*platform.files, directory, state).map(|_| ())
}
