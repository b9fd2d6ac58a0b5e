//! What is in a data folder: read from the manifest and the files' sizes, without opening the folder and without its lock.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use index::Catalog;
use model::TimeRange;
use platform::{Files, OpenMode, Platform};

use crate::flush::segment::{copies, read_catalog, segment_path};
use crate::log::cursor::retained_number;
use crate::log::segment_number;
use crate::manifest::{Manifest, State};
use crate::part::PartInfo;
use crate::part::epochs::file::{FOLDER as EPOCHS, path_of as epoch_path};
use crate::tier::parts::tail_path;
use crate::{DatabasePolicy, StoreError, part_path};

/// The contents of a data folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderReport {
    /// Identifies the folder's making.
    pub incarnation: u64,
    /// Shards.
    pub shards: u32,
    /// How often the folder was opened.
    pub epoch: u64,
    /// Length of partitions on the fast tier, in nanoseconds.
    pub partition_ns: i64,
    /// Largest sequence id all of whose rows are in parts, in the shard that is behind most.
    pub flushed_through: u64,
    /// Databases and how they keep their data, as far as index segments on disk name them.
    pub databases: Vec<PolicyReport>,
    /// Parts, by level and time.
    pub partitions: Vec<PartitionReport>,
    /// Files of index segments.
    pub index: FileSizes,
    /// Files of log segments.
    pub log: FileSizes,
    /// Files kept to become log segments.
    pub log_spares: FileSizes,
    /// Deletes whose rows are still in parts, counted in every shard.
    pub deletes_pending: u64,
    /// Files that the manifest names and that are not there.
    pub missing: Vec<String>,
    /// Files that nothing names: being written just now, or left by a crash.
    pub unnamed: Vec<String>,
}

/// A database and how it keeps its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyReport {
    /// Its name.
    pub database: String,
    /// How it keeps its data.
    pub policy: DatabasePolicy,
}

/// Files of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileSizes {
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The parts of one range of time, level and class, over all shards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionReport {
    /// 0: as flushed; 1: merged; 2: for the object store.
    pub level: u8,
    /// Retention class.
    pub class: u32,
    /// The range of time.
    pub range: TimeRange,
    /// Width of the summaries that replaced samples, in nanoseconds; 0: samples.
    pub fold_ns: i64,
    /// Parts, patches included.
    pub parts: u64,
    /// Patches of late rows among them.
    pub patches: u64,
    /// Rows.
    pub rows: u64,
    /// Chunks.
    pub chunks: u64,
    /// Bytes.
    pub bytes: u64,
    /// Bytes that are in the data folder.
    pub local_bytes: u64,
    /// Bytes that are in the object store.
    pub object_bytes: u64,
}

/// Says what is in a data folder. Changes nothing, and may be asked about a folder that is open elsewhere.
pub fn inspect(platform: &Platform, directory: &Path) -> Result<FolderReport, StoreError> {
    let files = &*platform.files;
    let state = read_manifest(files, directory)?;
    let (log, log_spares) = log_sizes(files, directory)?;
    let mut report = FolderReport {
        incarnation: state.incarnation,
        shards: state.shards,
        epoch: state.epoch,
        partition_ns: state.fast_partition_length_ns,
        flushed_through: (0..state.shards)
            .map(|shard| state.flushed.get(&shard).copied().unwrap_or(0))
            .min()
            .unwrap_or(0),
        databases: databases(files, directory, &state),
        partitions: partitions(state.parts.values()),
        log,
        log_spares,
        deletes_pending: state.deletes.len() as u64,
        unnamed: unnamed(files, directory, &state)?,
        ..FolderReport::default()
    };
    for path in named_files(directory, &state) {
        match size_of(files, &path) {
            Ok(bytes) if path.extension().is_some_and(|extension| extension == "segment") => {
                report.index.files += 1;
                report.index.bytes += bytes;
            }
            Ok(_) => {}
            Err(_) => report.missing.push(path.display().to_string()),
        }
    }
    Ok(report)
}

/// The manifest of a folder that must be there.
pub(crate) fn read_manifest(files: &dyn Files, directory: &Path) -> Result<State, StoreError> {
    Manifest::read(files, directory)?.ok_or_else(|| {
        let directory = directory.display();
        StoreError::Invalid(format!(
            "{directory} is no data folder: there is no file MANIFEST in it; name another folder"
        ))
    })
}

/// Local files that the manifest names.
pub(crate) fn named_files(directory: &Path, state: &State) -> BTreeSet<PathBuf> {
    let of_part = |part: &PartInfo| {
        if part.locations.local { part_path(directory, part.file) } else { tail_path(directory, part.id) }
    };
    let parts = state.parts_with_trash().map(of_part);
    let epochs = state.epoch_files.keys().map(|number| epoch_path(directory, *number));
    parts.chain(state.segments.keys().flat_map(|id| copies(directory, *id))).chain(epochs).collect()
}

/// Files in the folders of parts and of the index that the manifest does not name.
pub(crate) fn unnamed(files: &dyn Files, directory: &Path, state: &State) -> Result<Vec<String>, StoreError> {
    let named = named_files(directory, state);
    let mut unnamed = Vec::new();
    for folder in ["parts", "index", EPOCHS].map(|name| directory.join(name)) {
        for name in list(files, &folder)? {
            let path = folder.join(name);
            if !named.contains(&path) {
                unnamed.push(path.display().to_string());
            }
        }
    }
    Ok(unnamed)
}

/// The names in a folder; none if it is not there.
pub(crate) fn list(files: &dyn Files, folder: &Path) -> Result<Vec<String>, StoreError> {
    match files.list(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(StoreError::io("list", folder)),
    }
}

pub(crate) fn size_of(files: &dyn Files, path: &Path) -> Result<u64, StoreError> {
    let file = files.open(path, OpenMode::Read).map_err(StoreError::io("open", path))?;
    file.size_bytes().map_err(StoreError::io("open", path))
}

/// Log segments, and files kept to become some.
fn log_sizes(files: &dyn Files, directory: &Path) -> Result<(FileSizes, FileSizes), StoreError> {
    let directory = directory.join("log");
    let (mut segments, mut spares) = (FileSizes::default(), FileSizes::default());
    for name in list(files, &directory)? {
        let sizes = match segment_number(&name) {
            Some(_) => &mut segments,
            None if retained_number(&name).is_some() => &mut segments,
            None if Path::new(&name).extension().is_some_and(|ending| ending == "free") => &mut spares,
            None => continue,
        };
        // A segment that is given up just now has another name already.
        if let Ok(bytes) = size_of(files, &directory.join(&name)) {
            sizes.files += 1;
            sizes.bytes += bytes;
        }
    }
    Ok((segments, spares))
}

/// What the catalog's segments tell; where one cannot be read its databases have no name here.
pub(crate) fn databases(files: &dyn Files, directory: &Path, state: &State) -> Vec<PolicyReport> {
    let mut catalog = Catalog::default();
    for (id, _) in state.segments.iter().filter(|(_, shard)| shard.is_none()) {
        let entries = read_catalog(files, &segment_path(directory, *id)).unwrap_or_default();
        // Entries that do not follow from those before them name nothing that can be told here.
        entries.iter().for_each(|entry| drop(catalog.apply_saved(entry)));
    }
    let named = catalog.database_names().map(|name| {
        let policy = catalog.database(name).and_then(|id| state.policies.get(&id));
        PolicyReport { database: name.to_owned(), policy: policy.cloned().unwrap_or_default() }
    });
    named.collect()
}

fn partitions<'a>(parts: impl Iterator<Item = &'a PartInfo>) -> Vec<PartitionReport> {
    let mut found: BTreeMap<(u8, u32, i64, i64, i64), PartitionReport> = BTreeMap::new();
    for part in parts {
        let range = part.partition;
        let key = (part.level, part.class, range.start_ns, range.end_ns, part.fold_ns);
        let partition = found.entry(key).or_insert_with(|| PartitionReport {
            level: part.level,
            class: part.class,
            range,
            fold_ns: part.fold_ns,
            parts: 0,
            patches: 0,
            rows: 0,
            chunks: 0,
            bytes: 0,
            local_bytes: 0,
            object_bytes: 0,
        });
        partition.parts += 1;
        partition.patches += u64::from(part.is_patch());
        partition.rows += part.rows;
        partition.chunks += part.chunks;
        partition.bytes += part.bytes;
        partition.local_bytes += if part.locations.local { part.bytes } else { 0 };
        partition.object_bytes += if part.locations.object { part.bytes } else { 0 };
    }
    found.into_values().collect()
}
