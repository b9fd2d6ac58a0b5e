//! From the objects of a lost folder to a folder that can be opened: all of level 2 that was uploaded, under the catalog, the policies and
//! the deletes that the copy of the manifest knows. Parts stay where they are; their indexes are fetched at the opening.

use std::path::Path;

use platform::objects::{ObjectErrorKind, Objects};
use platform::{Files, OpenMode, Platform};

use super::restore::{make_folder, write_manifest};
use super::store::{corrupt, list_all, read_small, read_whole};
use crate::StoreError;
use crate::flush::segment::{GroupsFile, open_groups, read_catalog, segment_path};
use crate::manifest::{Manifest, State};
use crate::upkeep::progress::{Meter, Progress};
use crate::write::exemplars;
use crate::write::producers;

/// Bytes that the copy of a manifest may have.
const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// Folders of objects that one store may hold.
const FOLDERS_MAX: usize = 1000;

/// What rebuilding did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// The lost folder's name among the objects.
    pub folder: String,
    /// Parts whose data the new folder has.
    pub parts: u64,
    /// Their bytes, all in the object store.
    pub parts_bytes: u64,
    /// The newest timestamp in them, in nanoseconds since the Unix epoch; `None` without parts.
    pub newest_ns: Option<i64>,
    /// Files of the index that were fetched.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Makes a folder of what a lost one had put into an object store (the only one there, if none is named). To be opened with the same
/// object store; the lost folder, should it turn up and be opened again, is fenced off. After an error the folder is empty again.
pub fn rebuild(
    source: &dyn Objects,
    which: Option<&str>,
    platform: &Platform,
    directory: &Path,
    tell: &mut dyn FnMut(&Progress),
) -> Result<RebuildReport, StoreError> {
    let folder = match which {
        Some(folder) => folder.to_owned(),
        None => only_folder(source)?,
    };
    let state = read_copy(source, &folder)?;
    let files = &*platform.files;
    let _lock = make_folder(files, directory)?;
    let fetched = fetch_segments(source, &folder, files, directory, &state, tell);
    let mut rebuilt = State { objects_of: Some(state.objects_incarnation()), ..state.clone() };
    // A process that still serves the lost folder may put objects there until it finds out that it is fenced off: none of them may have
    // the key of one of ours.
    rebuilt.begin_life();
    let written = fetched.and_then(|bytes| write_manifest(platform, directory, rebuilt).map(|()| bytes));
    let bytes = written.inspect_err(|_| {
        for id in state.segments.keys() {
            // Not all of them were written.
            let _ = files.remove(&segment_path(directory, *id));
        }
    })?;
    Ok(RebuildReport {
        folder,
        parts: state.parts.len() as u64,
        parts_bytes: state.parts.values().map(|part| part.bytes).sum(),
        newest_ns: state.parts.values().map(|part| part.range.end_ns).max(),
        files: state.segments.len() as u64,
        bytes,
    })
}

/// The one folder whose objects are there.
fn only_folder(source: &dyn Objects) -> Result<String, StoreError> {
    let mut folders: Vec<String> = list_all(source, "")?
        .into_iter()
        .filter_map(|object| object.key.strip_suffix("/MANIFEST").map(str::to_owned))
        .take(FOLDERS_MAX)
        .collect();
    match (folders.pop(), folders.is_empty()) {
        (Some(folder), true) => Ok(folder),
        (None, _) => Err(StoreError::Invalid(format!(
            "there is no copy of a manifest in {}: no data folder with --objects has settled there, or the store has no \
             conditional writes, without which none is kept",
            source.location()
        ))),
        (Some(last), false) => {
            folders.push(last);
            let message = format!(
                "several data folders have settled in {}: name one of {}",
                source.location(),
                folders.join(", ")
            );
            Err(StoreError::Invalid(message))
        }
    }
}

fn read_copy(source: &dyn Objects, folder: &str) -> Result<State, StoreError> {
    let key = format!("{folder}/MANIFEST");
    let bytes = match read_small(source, &key, MANIFEST_BYTES_MAX) {
        Err(StoreError::Objects(error)) if error.kind == ObjectErrorKind::Missing => {
            return Err(StoreError::Invalid(format!("there is no object {key} in {}", source.location())));
        }
        read => read?,
    };
    Manifest::parse(&bytes).map_err(|error| corrupt(source, &key, error.offset as u64, error.what))
}

/// Fetches the index and checks every byte of it; how many there were.
fn fetch_segments(
    source: &dyn Objects,
    folder: &str,
    files: &dyn Files,
    directory: &Path,
    state: &State,
    tell: &mut dyn FnMut(&Progress),
) -> Result<u64, StoreError> {
    let mut sizes = Vec::new();
    for (id, owner) in &state.segments {
        let key = format!("{folder}/index/{id:010}.segment");
        let found = source.head(&key).map_err(|error| match error.kind {
            ObjectErrorKind::Missing => corrupt(source, &key, 0, "expected an index segment, found no object"),
            _ => StoreError::Objects(error),
        })?;
        sizes.push((*id, *owner, key, found.size_bytes));
    }
    let all = sizes.iter().map(|(.., bytes)| bytes).sum();
    let mut meter = Meter::new(all, tell);
    for (id, owner, key, bytes) in &sizes {
        meter.begin(key.clone());
        let path = segment_path(directory, *id);
        fetch(source, key, *bytes, files, &path)?;
        match *owner {
            None => drop(read_catalog(files, &path)?),
            Some(exemplars::EXEMPLARS_SHARD) => drop(exemplars::load(files, &path, usize::MAX)?),
            Some(producers::PRODUCERS_SHARD) => drop(producers::load(files, &path)?),
            Some(_) => {
                if let GroupsFile::Segment(segment) = open_groups(files, &path, *id, None)? {
                    segment.verify().map_err(StoreError::index(directory))?;
                }
            }
        }
        meter.add(*bytes);
    }
    let index = directory.join("index");
    files.sync_directory(&index).map_err(StoreError::io("sync folder", &index))?;
    Ok(all)
}

fn fetch(source: &dyn Objects, key: &str, bytes: u64, files: &dyn Files, path: &Path) -> Result<(), StoreError> {
    let local = files.open(path, OpenMode::CreateNew).map_err(StoreError::io("create", path))?;
    let mut offset = 0;
    read_whole(source, key, bytes, |piece| {
        local.write_all_at(piece, offset).map_err(StoreError::io("write", path))?;
        offset += piece.len() as u64;
        Ok(())
    })?;
    local.sync_data().map_err(StoreError::io("sync", path))
}
