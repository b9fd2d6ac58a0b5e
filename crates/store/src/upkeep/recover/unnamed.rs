//! Files that the manifest does not name. What a crash left unfinished, and what is elsewhere too, is removed; everything else is kept in
//! `lost+found`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use model::TimeRange;

use super::{Before, Opened};
use crate::StoreError;
use crate::log::cursor::{retained_number, retained_path, retained_segments};
use crate::log::segment_number;
use crate::manifest::State;
use crate::part::epochs::file::FOLDER as EPOCHS;
use crate::part::{self, PartData, PartInfo, PartLabel};
use crate::upkeep::inspect;
use crate::upkeep::lost_found;

/// The treatment of a file that nothing names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Remove,
    Keep,
}

/// A whole file is needless if the manifest knows more than the file: it was made before the manifest's last record and that does not name
/// it, so its commit never came (its rows are in the log or in the parts that it would have replaced) or was undone by a later one.
/// Only a manifest that is whole, of a folder that is, can say so.
fn fate(label: Option<&PartLabel>, incarnation: u64, before: Before, is_sound: bool) -> Fate {
    let is_known = |label: &PartLabel| {
        let made_at = label.made_at;
        made_at.incarnation == incarnation && made_at.epoch <= before.epoch && made_at.edition <= before.edition
    };
    if is_sound && label.is_some_and(is_known) { Fate::Remove } else { Fate::Keep }
}

impl Opened {
    /// Clears the folder of files that the manifest does not name.
    pub(super) fn clear_unnamed(&mut self, state: &State) -> Result<(), StoreError> {
        let named = inspect::named_files(&self.options.directory, state);
        self.clear_log(state)?;
        let is_sound = self.losses.is_empty() && self.recovery.manifest_repaired.is_none();
        let mut kept = Vec::new();
        for folder in ["parts", "index", EPOCHS] {
            let directory = self.options.directory.join(folder);
            for name in inspect::list(&*self.platform.files, &directory)? {
                let path = directory.join(name);
                if named.contains(&path) {
                    continue;
                }
                match self.fate_of(&path, state, is_sound) {
                    Some(Fate::Remove) => self.remove(&path)?,
                    Some(Fate::Keep) => kept.push(path),
                    None => {}
                }
            }
        }
        self.set_aside(&kept, state.epoch)
    }

    /// `None`: it is an operator's.
    fn fate_of(&self, path: &Path, state: &State, is_sound: bool) -> Option<Fate> {
        match path.extension()?.to_str()? {
            "damaged" => None,
            // Unfinished, or copies of what is in the object store.
            "tmp" | "tail" => Some(Fate::Remove),
            "part" => {
                let files = &*self.platform.files;
                let is_whole = part::scan_file(files, path).is_ok_and(|parts| !parts.is_empty());
                let nothing = PartInfo::empty(0, 0, 0, 0, TimeRange::ALL);
                let data = PartData::open_local(files, path.to_owned(), &nothing);
                let label = data.and_then(|data| PartLabel::read(&data)).ok().flatten();
                // One that is not whole was never finished, where nothing else is wrong.
                let never_finished = !is_whole && is_sound;
                let known = fate(label.as_ref(), state.incarnation, self.before, is_sound);
                Some(if never_finished { Fate::Remove } else { known })
            }
            // All that one tells is in the named ones and in the log, of which nothing is missing.
            // Of epochs: begun, but no record was acknowledged; or what it holds is in those that it was to replace.
            "segment" | "twin" | "epochs" => Some(if is_sound { Fate::Remove } else { Fate::Keep }),
            _ => Some(Fate::Keep),
        }
    }

    fn remove(&mut self, path: &Path) -> Result<(), StoreError> {
        self.platform.files.remove(path).map_err(StoreError::io("remove", path))?;
        self.recovery.files_removed += 1;
        Ok(())
    }

    /// Segments of the log that were given up. Where a crash undid their removal, or what retains them for cursors, it is done again.
    fn clear_log(&mut self, state: &State) -> Result<(), StoreError> {
        let directory = self.options.directory.join("log");
        let names = inspect::list(&*self.platform.files, &directory)?;
        let retained: BTreeSet<u32> = retained_segments(state).iter().map(|segment| segment.number).collect();
        for name in &names {
            let path = directory.join(name);
            match (segment_number(name), retained_number(name)) {
                (Some(number), _) if number > state.log_released => {}
                (Some(number), _) if retained.contains(&number) => {
                    let to = retained_path(&directory, number);
                    self.platform.files.rename(&path, &to).map_err(StoreError::io("rename log segment", &path))?;
                }
                (None, Some(number)) if !retained.contains(&number) => self.remove(&path)?,
                (Some(_), _) => self.remove(&path)?,
                (None, _) => {}
            }
        }
        Ok(())
    }

    fn set_aside(&mut self, paths: &[PathBuf], epoch: u64) -> Result<(), StoreError> {
        if paths.is_empty() {
            return Ok(());
        }
        let directory = &self.options.directory;
        let moved =
            lost_found::set_aside(&*self.platform.files, directory, paths, epoch, self.options.lost_found_bytes_max)?;
        self.recovery.files_set_aside = moved.moved;
        self.recovery.files_left = moved.left;
        self.recovery.lost_found_removed = moved.removed;
        Ok(())
    }
}
