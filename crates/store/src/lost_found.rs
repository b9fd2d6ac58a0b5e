//! `lost+found`: whole files that no manifest names. They are kept, within a number of bytes, until an operator has looked at them.

use std::path::{Path, PathBuf};

use model::TimeRange;
use platform::{Files, Platform};

use crate::{StoreError, inspect, part};

/// A file in `lost+found`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostFile {
    /// Its path.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// First and last timestamp of its rows; `None` if it is no file of parts, or not whole.
    pub range: Option<TimeRange>,
}

fn folder(directory: &Path) -> PathBuf {
    directory.join("lost+found")
}

/// What is in a folder's `lost+found`, oldest first.
pub fn lost_found(platform: &Platform, directory: &Path) -> Result<Vec<LostFile>, StoreError> {
    let (files, folder) = (&*platform.files, folder(directory));
    let mut found = Vec::new();
    for name in inspect::list(files, &folder)? {
        let path = folder.join(name);
        let bytes = inspect::size_of(files, &path)?;
        let parts = part::scan_file(files, &path).unwrap_or_default();
        let range = parts
            .iter()
            .map(|part| part.range)
            .reduce(|all, range| TimeRange::new(all.start_ns.min(range.start_ns), all.end_ns.max(range.end_ns)));
        found.push(LostFile { file: path.display().to_string(), bytes, range });
    }
    Ok(found)
}

/// Moves files there, under names that begin with the opening that found them. Beyond so many bytes the oldest are removed: what they
/// were is returned.
pub(crate) fn keep(
    files: &dyn Files,
    directory: &Path,
    paths: &[PathBuf],
    epoch: u64,
    bytes_max: u64,
) -> Result<Vec<String>, StoreError> {
    let folder = folder(directory);
    files.create_directory(&folder).map_err(StoreError::io("create folder", &folder))?;
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let to = folder.join(format!("{epoch:010}-{name}"));
        files.rename(path, &to).map_err(StoreError::io("move to lost+found", path))?;
    }
    let sync = |folder: &Path| files.sync_directory(folder).map_err(StoreError::io("sync folder", folder));
    sync(&folder)?;
    for from in ["parts", "index"] {
        sync(&directory.join(from))?;
    }
    let mut sizes = Vec::new();
    for name in inspect::list(files, &folder)? {
        let path = folder.join(name);
        sizes.push((inspect::size_of(files, &path)?, path));
    }
    let mut all: u64 = sizes.iter().map(|(bytes, _)| bytes).sum();
    let mut removed = Vec::new();
    for (bytes, path) in sizes {
        if all <= bytes_max {
            break;
        }
        files.remove(&path).map_err(StoreError::io("remove", &path))?;
        all -= bytes;
        removed.push(format!("{} ({bytes} bytes)", path.display()));
    }
    Ok(removed)
}
