//! The two files of the manifest: each commit is made durable in both, one after the other, so that whatever happens to one of them
//! the other tells. The copy with the larger edition counts; one that is missing, cut or damaged is written anew from it.

use std::path::{Path, PathBuf};

use codec::DecodeError;
use platform::Files;

use crate::StoreError;
use crate::error::NEWER;
use crate::manifest::tail::Mark;
use crate::manifest::{Parsed, State, parse};
use crate::upkeep::damage::Damage;
use crate::upkeep::inspect;

/// In the order in which they are written.
pub(crate) const NAMES: [&str; 2] = ["MANIFEST", "MANIFEST.twin"];

const MANIFEST_BYTES_MAX: u64 = 1 << 30;

/// What to do about a manifest that cannot be read.
const REMEDY: &str = "restore a backup into a new folder (thalweg restore), or have the manifest put together from the folder's files \
                       with `thalweg repair --data`";

/// What the manifest says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LoadedManifest {
    pub(crate) state: State,
    /// The copy that is not what was written, if one is not.
    pub(crate) damage: Option<Damage>,
    /// How far both were read, if both are what was written.
    pub(crate) marks: Option<[Mark; 2]>,
    /// True if it was read on from an earlier reading: the files are the same.
    pub(crate) is_continued: bool,
}

impl LoadedManifest {
    /// The opening that wrote the manifest, and its last record.
    pub(crate) const fn edition(&self) -> (u64, u64) {
        (self.state.epoch, self.state.edition)
    }
}

/// One of the files, read.
#[allow(clippy::large_enum_variant, reason = "there are two of them, for a moment")]
enum Copy {
    Missing,
    Damaged(DecodeError),
    Whole(Parsed),
}

/// Reads the manifest; `None` if the folder has none.
pub(crate) fn read(files: &dyn Files, directory: &Path) -> Result<Option<LoadedManifest>, StoreError> {
    let paths = NAMES.map(|name| directory.join(name));
    let [first, second] = &paths;
    let (one, other) = (read_copy(files, first)?, read_copy(files, second)?);
    newer_of(&paths, one, other)
}

/// Gives the files names that end in `.damaged`: another manifest takes their place.
pub(crate) fn set_aside(files: &dyn Files, directory: &Path) -> Result<(), StoreError> {
    let present = files.list(directory).map_err(StoreError::io("list", directory))?;
    for name in NAMES.iter().filter(|name| present.iter().any(|found| found == *name)) {
        let is_free = |kept: &String| !present.contains(kept);
        let numbered = (2_u64..).map(|number| format!("{name}.{number}.damaged"));
        let kept = std::iter::once(format!("{name}.damaged")).chain(numbered).find(is_free).unwrap_or_default();
        let (from, to) = (directory.join(name), directory.join(kept));
        files.rename(&from, &to).map_err(StoreError::io("set aside", &from))?;
    }
    files.sync_directory(directory).map_err(StoreError::io("sync folder", directory))
}

fn read_copy(files: &dyn Files, path: &Path) -> Result<Copy, StoreError> {
    match platform::read_file(files, path, MANIFEST_BYTES_MAX) {
        Ok(bytes) => match parse(&bytes) {
            Ok(parsed) => Ok(Copy::Whole(parsed)),
            Err(error) if error.what == NEWER => Err(StoreError::unreadable(path, &error)),
            Err(error) => Ok(Copy::Damaged(error)),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Copy::Missing),
        Err(error) => Err(StoreError::io("read", path)(error)),
    }
}

/// The damage to a copy that should end with an edition, if there is any.
pub(crate) fn damage_of(files: &dyn Files, path: &Path, edition: u64) -> Result<Option<Damage>, StoreError> {
    let (offset, message) = match read_copy(files, path)? {
        Copy::Whole(parsed) if parsed.state.edition == edition && !parsed.is_cut => return Ok(None),
        Copy::Whole(_) => (0, "its last records are missing or damaged"),
        Copy::Damaged(error) => (error.offset as u64, error.what),
        Copy::Missing => (0, "the file is missing"),
    };
    Ok(Some(Damage { file: path.display().to_string(), offset, message: message.to_owned() }))
}

/// Which copy counts, and which of them is not what was written.
fn newer_of(paths: &[PathBuf; 2], one: Copy, other: Copy) -> Result<Option<LoadedManifest>, StoreError> {
    let [first, second] = paths;
    match (one, other) {
        (Copy::Missing, Copy::Missing) => Ok(None),
        (Copy::Whole(one), Copy::Whole(other)) => Ok(Some(newer(paths, one, other))),
        (Copy::Whole(alone), gone) => lone(first, alone, second, &gone).map(Some),
        (gone, Copy::Whole(alone)) => lone(second, alone, first, &gone).map(Some),
        (Copy::Damaged(error), _) => Err(unreadable(first, &error)),
        (Copy::Missing, Copy::Damaged(error)) => Err(unreadable(second, &error)),
    }
}

fn unreadable(path: &Path, error: &DecodeError) -> StoreError {
    StoreError::corrupt(
        path,
        error.offset as u64,
        format!("{}, and its twin cannot be read either: {REMEDY}", error.what),
    )
}

/// Of two whole copies the one with more records. A crash explains that the second has one less, and no more than that.
fn newer(paths: &[PathBuf; 2], one: Parsed, other: Parsed) -> LoadedManifest {
    let [first, second] = paths;
    let (behind, missing) = match one.state.edition.checked_sub(other.state.edition) {
        None => (Some(first), other.state.edition - one.state.edition),
        Some(0 | 1) => (None, 0),
        Some(missing) => (Some(second), missing),
    };
    let damage = behind.map(|path| {
        let message = format!("its last {missing} records are missing or damaged; its twin has them");
        Damage { file: path.display().to_string(), offset: 0, message }
    });
    let has_marks = damage.is_none() && one.has_twin && other.has_twin;
    let marks = has_marks.then_some([one.mark, other.mark]);
    let state = if one.state.edition < other.state.edition { other.state } else { one.state };
    LoadedManifest { state, damage, marks, is_continued: false }
}

/// A copy without the other: believed where its end shows that nothing of it is missing.
fn lone(path: &Path, alone: Parsed, gone_path: &Path, gone: &Copy) -> Result<LoadedManifest, StoreError> {
    let what = match gone {
        Copy::Damaged(error) => Some((error.offset as u64, error.what)),
        // A folder of a version without twins, or one that a crash left while it was made.
        _ if !alone.has_twin || alone.state.edition <= 1 => None,
        _ => Some((0, "expected the manifest's twin, found no file")),
    };
    let Some((offset, what)) = what else {
        return Ok(LoadedManifest { state: alone.state, damage: None, marks: None, is_continued: false });
    };
    if alone.has_twin && alone.is_cut {
        let message = format!(
            "it is cut, and {} cannot be read: its newest records may be missing; {REMEDY}",
            gone_path.display()
        );
        return Err(StoreError::corrupt(path, 0, message));
    }
    let damage = Damage { file: gone_path.display().to_string(), offset, message: what.to_owned() };
    Ok(LoadedManifest { state: alone.state, damage: Some(damage), marks: None, is_continued: false })
}

/// Refuses a folder that has data and no manifest: taken for a new one, all of that would be given up.
pub(crate) fn check_is_new(files: &dyn Files, directory: &Path) -> Result<(), StoreError> {
    for (folder, endings) in [("parts", &["part", "tail"][..]), ("index", &["segment"]), ("log", &["log"])] {
        let path = directory.join(folder);
        let is_data = |name: &String| {
            Path::new(name).extension().is_some_and(|ending| endings.iter().any(|known| ending == *known))
        };
        if let Some(name) = inspect::list(files, &path)?.iter().find(|name| is_data(name)) {
            let message = format!(
                "expected the manifest of a folder that has data ({folder}/{name}), found neither {} nor {}: {REMEDY}",
                NAMES[0], NAMES[1]
            );
            return Err(StoreError::corrupt(&directory.join(NAMES[0]), 0, message));
        }
    }
    Ok(())
}
