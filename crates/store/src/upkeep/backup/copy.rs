//! Whole copies of a data folder, in whatever form its files are: of an open one as it is at a moment, of a closed one file by file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use platform::{File, Files, OpenMode, PathKind, Platform};

use super::list::BackupFile;
use super::restore::{local_path, make_folder, write_manifest};
use super::store::{STEP_BYTES, file_checksum};
use super::{BackupReport, sources};
use crate::upkeep::inspect::{inspect, list};
use crate::upkeep::progress::{Meter, Progress};
use crate::upkeep::recover;
use crate::{Store, StoreError};

/// Files of the manifest, which make a folder one: they are written last.
const LAST: [&str; 2] = ["MANIFEST.twin", "MANIFEST"];

/// Files and folders that belong to the place and not to the data: locks, backups inside the folder, secrets and logs of a server.
const LEFT: [&str; 6] = ["LOCK", "RESERVE", "snapshots", "admin-token", "audit.log", "answers.cache"];

/// Folders inside folders that are followed.
const DEPTH_MAX: usize = 8;

/// What copying a folder did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Files copied.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files and folders that were left out: they belong to the place and not to the data.
    pub left: Vec<String>,
}

impl Store {
    /// Writes what the folder holds now into an empty or new folder, which can then be opened. Reads and writes go on; a request that is being
    /// written is in the copy whole or not at all. Every file is read back. The copy is a folder with an incarnation of its own.
    pub fn copy_to(
        &self,
        target: &Platform,
        directory: &Path,
        tell: &mut dyn FnMut(&Progress),
    ) -> Result<BackupReport, StoreError> {
        tell(&Progress { what: "flushing".to_owned(), ..Progress::default() });
        let pinned = self.pin()?;
        let files = &*target.files;
        let _lock = make_folder(files, directory)?;
        let sources = sources(&pinned)?;
        let mut report = BackupReport { sequence: pinned.sequence, ..BackupReport::default() };
        let mut meter = Meter::new(sources.iter().map(|(_, _, bytes, _)| bytes).sum(), tell);
        let mut written = Vec::new();
        let mut copied = || {
            for (kind, id, bytes, source) in &sources {
                let path = local_path(directory, &BackupFile { kind: *kind, id: *id, bytes: *bytes, checksum: 0 });
                meter.begin(path.display().to_string());
                written.push(path.clone());
                copy_file(&**source, *bytes, files, &path)?;
                meter.add(*bytes);
                report.files += 1;
                report.bytes += bytes;
            }
            let folders: BTreeSet<&Path> = written.iter().filter_map(|path| path.parent()).collect();
            for folder in folders {
                files.sync_directory(folder).map_err(StoreError::io("sync folder", folder))?;
            }
            write_manifest(target, directory, pinned.state.clone())
        };
        if let Err(error) = copied() {
            // Not all of them were written.
            written.iter().for_each(|path| drop(files.remove(path)));
            return Err(error);
        }
        (report.files_copied, report.bytes_copied) = (report.files, report.bytes);
        report.name = directory.display().to_string();
        Ok(report)
    }
}

/// Copies a data folder that no process has open, file by file, into an empty or new one: from one form to another. Every file is read back; after
/// an error the target is empty again. Both are the same folder: only one of them may go on settling parts into an object store.
pub fn copy_folder(
    (from, source): (&Platform, &Path),
    (to, target): (&Platform, &Path),
    tell: &mut dyn FnMut(&Progress),
) -> Result<CopyReport, StoreError> {
    // Looked at first: locking would make a folder where a name is misspelt.
    inspect(from, source)?;
    let _source_lock = recover::lock(&*from.files, source)?;
    let _target_lock = make_folder(&*to.files, target)?;
    let mut report = CopyReport::default();
    let mut found = Vec::new();
    find_files(&*from.files, source, Path::new(""), DEPTH_MAX, &mut found)?;
    found.retain(|(name, _)| {
        // Files that wait to become log segments hold nothing.
        let is_spare = name.extension().is_some_and(|ending| ending == "free");
        let is_left = is_left(name);
        if is_left && name != Path::new(LEFT[0]) && name != Path::new(LEFT[1]) {
            report.left.push(name.display().to_string());
        }
        !is_left && !is_spare
    });
    // Stable: files of the manifest come last, each in its order.
    found.sort_by_key(|(name, _)| LAST.iter().position(|last| name == Path::new(last)).map_or(0, |place| place + 1));
    let mut meter = Meter::new(found.iter().map(|(_, bytes)| bytes).sum(), tell);
    let mut copied = || {
        for (name, bytes) in &found {
            meter.begin(name.display().to_string());
            let path = source.join(name);
            let file = from.files.open(&path, OpenMode::Read).map_err(StoreError::io("open", &path))?;
            let to_path = target.join(name);
            if let Some(folder) = to_path.parent() {
                to.files.create_directory(folder).map_err(StoreError::io("create folder", folder))?;
            }
            if LAST.iter().any(|last| name == Path::new(last)) {
                sync_folders(&*to.files, target, &found)?;
            }
            copy_file(&*file, *bytes, &*to.files, &to_path)?;
            meter.add(*bytes);
            report.files += 1;
            report.bytes += bytes;
        }
        sync_folders(&*to.files, target, &found)
    };
    copied().inspect_err(|_| found.iter().for_each(|(name, _)| drop(to.files.remove(&target.join(name)))))?;
    Ok(report)
}

fn is_left(name: &Path) -> bool {
    let first = name.iter().next().unwrap_or_default().to_string_lossy();
    // Older audit logs have a number after their name.
    LEFT.iter().any(|left| first == *left) || first.starts_with("audit.log.")
}

/// The files of a folder and those in its folders, with their sizes.
fn find_files(
    files: &dyn Files,
    root: &Path,
    folder: &Path,
    depth_left: usize,
    found: &mut Vec<(PathBuf, u64)>,
) -> Result<(), StoreError> {
    let path = root.join(folder);
    for name in list(files, &path)? {
        let (name, path) = (folder.join(&name), path.join(&name));
        match files.kind(&path).map_err(StoreError::io("look at", &path))? {
            Some(PathKind::Folder) if is_left(&name) => found.push((name, 0)),
            Some(PathKind::Folder) if depth_left > 0 => find_files(files, root, &name, depth_left - 1, found)?,
            Some(PathKind::Folder) => {
                return Err(StoreError::Invalid(format!("{} is too deep inside of the folder", path.display())));
            }
            Some(PathKind::File) => {
                let file = files.open(&path, OpenMode::Read).map_err(StoreError::io("open", &path))?;
                found.push((name, file.size_bytes().map_err(StoreError::io("open", &path))?));
            }
            None => {}
        }
    }
    Ok(())
}

fn sync_folders(files: &dyn Files, target: &Path, found: &[(PathBuf, u64)]) -> Result<(), StoreError> {
    let folders: BTreeSet<PathBuf> =
        found.iter().filter_map(|(name, _)| Some(target.join(name.parent()?))).chain([target.to_owned()]).collect();
    folders.iter().try_for_each(|folder| match files.sync_directory(folder) {
        // Before the last files the folder of none of them may be there.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        synced => synced.map_err(StoreError::io("sync folder", folder)),
    })
}

/// Copies so many bytes into a new file, durably, and reads them back.
fn copy_file(source: &dyn File, bytes: u64, files: &dyn Files, path: &Path) -> Result<(), StoreError> {
    let copy = files.open(path, OpenMode::CreateNew).map_err(StoreError::io("create", path))?;
    let mut buffer = vec![0; STEP_BYTES.min(bytes) as usize];
    let (mut offset, mut expected) = (0, 0);
    while offset < bytes {
        let step = (bytes - offset).min(STEP_BYTES) as usize;
        let piece = &mut buffer[..step];
        source.read_exact_at(piece, offset).map_err(StoreError::io("read for", path))?;
        expected = crc32c::crc32c_append(expected, piece);
        copy.write_all_at(piece, offset).map_err(StoreError::io("write", path))?;
        offset += step as u64;
    }
    copy.sync_data().map_err(StoreError::io("sync", path))?;
    let found = file_checksum(&*copy, bytes).map_err(StoreError::io("read back", path))?;
    if found == expected {
        return Ok(());
    }
    Err(StoreError::corrupt(
        path,
        0,
        format!("read back, its checksum is {found:08x}, of what was written {expected:08x}"),
    ))
}
