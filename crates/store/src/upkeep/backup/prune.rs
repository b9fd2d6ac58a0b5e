//! Which backups there are, and giving up old ones.

use std::collections::BTreeSet;

use platform::objects::Objects;

use super::store::{Target, latest, list_all, read_backup};
use crate::StoreError;

/// What pruning took away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PruneReport {
    /// Backups that are left of the folder of the newest one.
    pub backups_kept: u64,
    /// Backups that are gone.
    pub backups_removed: u64,
    /// Files that no backup names any more, and that are gone.
    pub files_removed: u64,
}

/// Names of the backups of the folder that the newest one is of, oldest first.
pub fn backups(target: &dyn Objects) -> Result<Vec<String>, StoreError> {
    Target::of_backup(target, &latest(target)?).names()
}

/// Keeps the newest backups and removes the others, and files that only those needed. Backups of other folders in the same target stay.
/// No backup of the folder may be taken meanwhile.
pub fn prune(target: &dyn Objects, keep: usize) -> Result<PruneReport, StoreError> {
    if keep == 0 {
        return Err(StoreError::Invalid("at least one backup must be kept".to_owned()));
    }
    let folder = Target::of_backup(target, &latest(target)?);
    let names = folder.names()?;
    let (old, kept) = names.split_at(names.len().saturating_sub(keep));
    let mut needed = BTreeSet::new();
    // A kept one that cannot be read ends this before anything is removed.
    for name in kept {
        let list = read_backup(target, name)?;
        needed.extend(list.files.iter().map(|file| folder.key(file.kind, file.id)));
    }
    for name in old {
        target.delete(name).map_err(StoreError::Objects)?;
    }
    let mut report =
        PruneReport { backups_kept: kept.len() as u64, backups_removed: old.len() as u64, ..PruneReport::default() };
    for name in ["parts", "index", "epochs"] {
        for object in list_all(target, &folder.folder(name))?.iter().filter(|object| !needed.contains(&object.key)) {
            target.delete(&object.key).map_err(StoreError::Objects)?;
            report.files_removed += 1;
        }
    }
    Ok(report)
}
