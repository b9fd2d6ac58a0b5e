//! Committing edits of the manifest.

use crate::manifest::Edit;
use crate::{Store, StoreError};

impl Store {
    /// After a failed commit it is unknown what the manifest on disk says: nothing more is written.
    pub(crate) fn commit_edits(&self, edits: &[Edit]) -> Result<(), StoreError> {
        self.log.check()?;
        let mut manifest = self.manifest.lock();
        // A full disk is found out before anything of the edits is written.
        manifest.reserve(edits).inspect_err(|_| self.remove_added(edits))?;
        let committed = manifest.commit(edits);
        committed.inspect_err(|error| self.log.poison(&error.to_string()))?;
        let shortened = manifest.shorten(&*self.platform.files);
        self.note_rewritten(shortened).map(drop)
    }

    /// Takes note of how writing the manifest anew went. Returns false if the disk is full: the old files count on.
    pub(crate) fn note_rewritten(&self, rewritten: Result<(), StoreError>) -> Result<bool, StoreError> {
        match rewritten {
            // Until the new one has the old one's name the old one counts: the next edit tries again.
            Err(StoreError::Io { error, .. }) if error.kind() == std::io::ErrorKind::StorageFull => Ok(false),
            Err(error) => {
                self.log.poison(&error.to_string());
                Err(error)
            }
            Ok(()) => Ok(true),
        }
    }

    /// Fails if nothing may be written until the folder is opened again.
    pub fn check_writable(&self) -> Result<(), StoreError> {
        self.log.check()
    }

    /// Forgets the losses that answers warn of: an operator has seen them. The object store is used again. How many there were.
    pub fn acknowledge_losses(&self) -> Result<usize, StoreError> {
        let losses = self.upkeep.health().losses();
        if !losses.is_empty() {
            self.commit_edits(&[Edit::ForgetLosses])?;
            self.upkeep.health().set_losses(Vec::new());
        }
        Ok(losses.len())
    }

    /// Removes the files that edits which cannot be committed would have named: on a full disk they would only take room.
    fn remove_added(&self, edits: &[Edit]) {
        for edit in edits {
            match edit {
                Edit::AddPart(info) if info.id == info.file => self.remove_file(&self.part_path(info.file)),
                Edit::AddSegment { id, .. } => {
                    self.remove_segment(*id);
                }
                _ => {}
            }
        }
    }
}
