//! The log's note: its newest segment, and how far records are known to be on disk. What it names and is not there is lost, not torn.
//!
//! ```text
//! two slots of 4 KiB, written in turns:
//!  0  8 bytes  THWGNOTE
//!  8  u64  number of the note: the larger one counts
//! 16  u64  epoch: which opening of the folder wrote it
//! 24  u64  last sequence id given out before that opening
//! 32  u64  every record up to this sequence id is on disk
//! 40  u64  sequence id of the newest segment's first record
//! 48  u32  number of the newest segment
//! 52  u32  checksum of the bytes before
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use codec::Reader;
use platform::{File, Files, OpenMode};

use crate::StoreError;

const MAGIC: &[u8; 8] = b"THWGNOTE";
const SLOT_BYTES: usize = 4096;
const NOTE_BYTES: usize = 56;

/// What a note says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Note {
    /// The opening that wrote it.
    pub(crate) epoch: u64,
    /// Last sequence id given out before.
    pub(crate) run_start: u64,
    /// Every record up to this sequence id is on disk.
    pub(crate) durable: u64,
    /// Sequence id of the newest segment's first record.
    pub(crate) newest_first: u64,
    /// Number of the newest segment.
    pub(crate) newest: u32,
}

/// The open file.
pub(crate) struct NoteFile {
    path: PathBuf,
    file: Arc<dyn File>,
    number: u64,
    /// What it says.
    pub(crate) note: Note,
}

/// The file of the note in the log's folder.
pub(crate) fn note_path(directory: &Path) -> PathBuf {
    directory.join("NOTE")
}

/// The note, if there is one that can be read.
pub(crate) fn read(files: &dyn Files, directory: &Path) -> Result<Option<Note>, StoreError> {
    Ok(newest(files, directory)?.map(|(_, note)| note))
}

fn newest(files: &dyn Files, directory: &Path) -> Result<Option<(u64, Note)>, StoreError> {
    let path = note_path(directory);
    match platform::read_file(files, &path, 1 << 20) {
        Ok(bytes) => Ok(bytes.chunks(SLOT_BYTES).filter_map(decode).max_by_key(|(number, _)| *number)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("read", &path)(error)),
    }
}

fn encode(number: u64, note: &Note) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for number in [number, note.epoch, note.run_start, note.durable, note.newest_first] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&note.newest.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    bytes
}

fn decode(slot: &[u8]) -> Option<(u64, Note)> {
    let mut reader = Reader::new(slot.get(..NOTE_BYTES)?);
    if reader.bytes(8).ok()? != MAGIC {
        return None;
    }
    let (number, epoch, run_start) = (reader.u64().ok()?, reader.u64().ok()?, reader.u64().ok()?);
    let (durable, newest_first) = (reader.u64().ok()?, reader.u64().ok()?);
    let (newest, checksum) = (reader.u32().ok()?, reader.u32().ok()?);
    let is_whole = crc32c::crc32c(slot.get(..NOTE_BYTES - 4)?) == checksum;
    is_whole.then_some((number, Note { epoch, run_start, durable, newest_first, newest }))
}

impl NoteFile {
    /// Opens the file, made if it is not there, and writes a note.
    pub(crate) fn start(files: &dyn Files, directory: &Path, note: Note) -> Result<Self, StoreError> {
        let path = note_path(directory);
        let number = newest(files, directory)?.map_or(0, |(number, _)| number);
        let file = match files.open(&path, OpenMode::Write) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let zeros = vec![0; 2 * SLOT_BYTES];
                platform::write_file(files, &path, &zeros).map_err(StoreError::io("write", &path))?;
                files.open(&path, OpenMode::Write)
            }
            opened => opened,
        };
        let file = file.map_err(StoreError::io("open", &path))?;
        let mut started = Self { path, file, number, note: Note::default() };
        started.write(note)?;
        Ok(started)
    }

    /// Writes a note durably. After an error the one before still counts.
    pub(crate) fn write(&mut self, note: Note) -> Result<(), StoreError> {
        let number = self.number + 1;
        let offset = (number % 2) * SLOT_BYTES as u64;
        self.file.write_all_at(&encode(number, &note), offset).map_err(StoreError::io("write", &self.path))?;
        self.file.sync_data().map_err(StoreError::io("sync", &self.path))?;
        (self.number, self.note) = (number, note);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use platform::sim::Simulation;

    use super::*;

    #[test]
    fn a_torn_note_leaves_the_one_before() {
        for seed in 0..50 {
            let simulation = Simulation::new(seed);
            let files = simulation.platform().files;
            let directory = Path::new("d/log");
            let note = |durable| Note { epoch: 2, run_start: 5, durable, newest_first: 6, newest: 7 };
            let mut file = NoteFile::start(&*files, directory, note(5)).unwrap();
            file.write(note(6)).unwrap();
            simulation.fail_syncs_after(0);
            assert!(file.write(note(7)).is_err());
            simulation.crash();
            let files = simulation.platform().files;
            let found = read(&*files, directory).unwrap().unwrap();
            assert!([6, 7].contains(&found.durable), "{found:?}");
            let file = NoteFile::start(&*files, directory, note(9)).unwrap();
            assert_eq!((read(&*files, directory).unwrap(), file.note), (Some(note(9)), note(9)));
        }
    }
}
