//! The open manifest: its two files, and how edits become durable in both.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use codec::DecodeError;
use platform::{File, Files, OpenMode};

use super::{Edit, State, parse, record_at};
use crate::StoreError;
use crate::manifest::twin;
use crate::upkeep::damage::Damage;

/// Bytes of edits after the snapshot, besides its own size, at which the file is written anew.
const EDITS_BYTES: u64 = 1 << 20;

/// Numbers of files begin anew at the next multiple of this where some that are not known of may have been given out.
const IDS_OF_A_LIFE: u64 = 1 << 32;

impl State {
    /// Returns whether there may have been files that this manifest does not know of: rows are lost, and no operator has said yet that it is well.
    pub(crate) fn is_in_doubt(&self) -> bool {
        !self.losses.is_empty()
    }

    /// From here on files get numbers that no file had, whatever was made that the manifest does not know of.
    pub(crate) fn begin_life(&mut self) {
        self.next_id = (self.next_id / IDS_OF_A_LIFE + 1) * IDS_OF_A_LIFE;
    }
}

/// One of the two files, open for edits.
struct Copy {
    path: PathBuf,
    file: Arc<dyn File>,
    end: u64,
    /// Where the snapshot ends.
    snapshot_end: u64,
}

impl Copy {
    fn write(files: &dyn Files, path: PathBuf, bytes: &[u8]) -> Result<Self, StoreError> {
        platform::write_file(files, &path, bytes).map_err(StoreError::io("write", &path))?;
        let file = files.open(&path, OpenMode::Write).map_err(StoreError::io("open", &path))?;
        let end = bytes.len() as u64;
        Ok(Self { path, file, end, snapshot_end: end })
    }

    /// Makes a record durable.
    fn append(&mut self, edits: &[Edit]) -> Result<(), StoreError> {
        let record = record_at(self.end, edits);
        self.file.write_all_at(&record, self.end).map_err(StoreError::io("write", &self.path))?;
        self.file.sync_data().map_err(StoreError::io("sync", &self.path))?;
        self.end += record.len() as u64;
        Ok(())
    }
}

/// The open manifest.
pub(crate) struct Manifest {
    /// The file and its twin, in the order in which they are written: what is acknowledged is in both.
    copies: Vec<Copy>,
    pub(crate) state: State,
}

impl Manifest {
    /// Reads a folder's manifest; `None` if the folder has none.
    pub(crate) fn read(files: &dyn Files, directory: &Path) -> Result<Option<State>, StoreError> {
        Ok(twin::read(files, directory)?.map(|found| found.state))
    }

    /// Reads the bytes of a manifest.
    pub(crate) fn parse(bytes: &[u8]) -> Result<State, DecodeError> {
        parse(bytes).map(|parsed| parsed.state)
    }

    /// Writes the manifest anew, as a snapshot, and opens it for edits.
    pub(crate) fn write(files: &dyn Files, directory: &Path, mut state: State) -> Result<Self, StoreError> {
        state.edition += 1;
        let bytes = state.to_bytes();
        let copies = twin::NAMES.map(|name| Copy::write(files, directory.join(name), &bytes));
        Ok(Self { copies: copies.into_iter().collect::<Result<_, _>>()?, state })
    }

    /// Writes the manifest anew when edits outgrow the snapshot, so that a folder which is open for years stays small.
    pub(crate) fn shorten(&mut self, files: &dyn Files) -> Result<(), StoreError> {
        let outgrows = |copy: &Copy| copy.end - copy.snapshot_end > copy.snapshot_end + EDITS_BYTES;
        if self.copies.iter().any(outgrows) { self.rewrite(files) } else { Ok(()) }
    }

    /// The copy that is not what was written, if one is not.
    pub(crate) fn damage(&self, files: &dyn Files) -> Result<Option<Damage>, StoreError> {
        for copy in &self.copies {
            let found = twin::damage_of(files, &copy.path, self.state.edition)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Writes both copies anew, as snapshots.
    pub(crate) fn rewrite(&mut self, files: &dyn Files) -> Result<(), StoreError> {
        let next = State { edition: self.state.edition + 1, ..self.state.clone() };
        let bytes = next.to_bytes();
        for copy in &mut self.copies {
            // One that cannot be written anew goes on with edits: both say the same.
            *copy = Copy::write(files, copy.path.clone(), &bytes)?;
            self.state.edition = next.edition;
        }
        Ok(())
    }

    /// Makes room for edits: fails if the disk has none, and then nothing has happened.
    pub(crate) fn reserve(&mut self, edits: &[Edit]) -> Result<(), StoreError> {
        let edits = self.numbered(edits);
        self.copies.iter().try_for_each(|copy| {
            let zeros = vec![0; record_at(copy.end, &edits).len()];
            copy.file.write_all_at(&zeros, copy.end).map_err(StoreError::io("write", &copy.path))
        })
    }

    /// Makes the edits durable, all or none. After an error it is unknown which.
    pub(crate) fn commit(&mut self, edits: &[Edit]) -> Result<(), StoreError> {
        let edits = self.numbered(edits);
        // One after the other: a crash can tear one of them only.
        self.copies.iter_mut().try_for_each(|copy| copy.append(&edits))?;
        edits.iter().for_each(|edit| self.state.apply(edit));
        Ok(())
    }

    /// Edits as a record has them, its number first.
    fn numbered(&self, edits: &[Edit]) -> Vec<Edit> {
        std::iter::once(Edit::Edition(self.state.edition + 1)).chain(edits.iter().cloned()).collect()
    }

    /// A number for a new file. The number is used up even if the file never makes it into the manifest.
    pub(crate) fn take_id(&mut self) -> u64 {
        self.state.next_id += 1;
        self.state.next_id - 1
    }
}
