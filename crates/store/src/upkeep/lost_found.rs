//! `lost+found`: whole files that no manifest names. They are set aside, within a number of bytes, until an operator has looked at them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use model::TimeRange;
use platform::{Files, Platform};

use crate::upkeep::inspect;
use crate::{StoreError, part};

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

/// Lists the files in a folder's `lost+found`, oldest first.
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

/// What became of files that were to be set aside.
#[derive(Debug, Default)]
pub(crate) struct SetAside {
    /// Those that were moved there, under the names that they had.
    pub(crate) moved: Vec<String>,
    /// Those for which there is no room: they stay in their folder, under these names, which no new file gets.
    pub(crate) left: Vec<String>,
    /// Those of earlier openings that were removed, with their sizes.
    pub(crate) removed: Vec<String>,
}

/// Moves files there, under names that begin with the opening that found them. Beyond so many bytes those of earlier openings are removed,
/// the oldest first, and none of this one: what does not fit stays in its folder.
pub(crate) fn set_aside(
    files: &dyn Files,
    directory: &Path,
    paths: &[PathBuf],
    epoch: u64,
    bytes_max: u64,
) -> Result<SetAside, StoreError> {
    let folder = folder(directory);
    files.create_directory(&folder).map_err(StoreError::io("create folder", &folder))?;
    let earlier = inspect::list(files, &folder)?;
    let (mut set_aside, mut all) = (SetAside::default(), 0_u64);
    for path in paths {
        let bytes = inspect::size_of(files, path)?;
        if bytes > bytes_max.saturating_sub(all) {
            set_aside.left.push(leave(files, path, epoch)?.display().to_string());
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let to = folder.join(format!("{epoch:010}-{name}"));
        files.rename(path, &to).map_err(StoreError::io("move to lost+found", path))?;
        set_aside.moved.push(path.display().to_string());
        all += bytes;
    }
    let sync = |folder: &Path| files.sync_directory(folder).map_err(StoreError::io("sync folder", folder));
    sync(&folder)?;
    let folders: BTreeSet<&Path> = paths.iter().filter_map(|path| path.parent()).collect();
    folders.into_iter().try_for_each(sync)?;
    let mut sizes = Vec::new();
    for name in earlier {
        let path = folder.join(name);
        let bytes = inspect::size_of(files, &path)?;
        all += bytes;
        sizes.push((bytes, path));
    }
    for (bytes, path) in sizes {
        if all <= bytes_max {
            break;
        }
        files.remove(&path).map_err(StoreError::io("remove", &path))?;
        all -= bytes;
        set_aside.removed.push(format!("{} ({bytes} bytes)", path.display()));
    }
    Ok(set_aside)
}

/// Gives a file that stays in its folder a name that no other file has, unless it has one from an earlier opening.
fn leave(files: &dyn Files, path: &Path, epoch: u64) -> Result<PathBuf, StoreError> {
    if path.extension().is_some_and(|ending| ending == "unnamed") {
        return Ok(path.to_owned());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let to = path.with_file_name(format!("{epoch:010}-{name}.unnamed"));
    files.rename(path, &to).map_err(StoreError::io("rename", path))?;
    Ok(to)
}
