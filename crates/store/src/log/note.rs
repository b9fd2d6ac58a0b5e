//! The log's note: its newest segment, how far records are known to be on disk, and what times their rows have. What it names and is not there
//! is lost, not torn.
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
//! 56  u32  checksum of the note's number (u64) and of what follows; earlier versions end here
//! 60  u32  intervals of records; for each u64 first and last sequence id, i64 first and last timestamp of their rows
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use codec::Reader;
use platform::{File, Files, OpenMode};

use super::times::{self, RecordTimes};
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
    pub(crate) note: Note,
}

/// The file of the note in the log's folder.
pub(crate) fn note_path(directory: &Path) -> PathBuf {
    directory.join("NOTE")
}

/// The note, if there is one that can be read.
pub(crate) fn read(files: &dyn Files, directory: &Path) -> Result<Option<Note>, StoreError> {
    Ok(newest(files, directory)?.map(|slot| slot.note))
}

/// The times that the note has of the log's rows; empty if an earlier version wrote it.
pub(crate) fn read_times(files: &dyn Files, directory: &Path) -> Result<Vec<RecordTimes>, StoreError> {
    Ok(newest(files, directory)?.map(|slot| slot.times).unwrap_or_default())
}

/// A slot of the file.
#[derive(Debug, PartialEq)]
struct Slot {
    number: u64,
    note: Note,
    times: Vec<RecordTimes>,
}

fn newest(files: &dyn Files, directory: &Path) -> Result<Option<Slot>, StoreError> {
    let path = note_path(directory);
    match platform::read_file(files, &path, 1 << 20) {
        Ok(bytes) => Ok(bytes.chunks(SLOT_BYTES).filter_map(decode).max_by_key(|slot| slot.number)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::io("read", &path)(error)),
    }
}

fn encode(number: u64, note: &Note, times: &[RecordTimes]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    for number in [number, note.epoch, note.run_start, note.durable, note.newest_first] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&note.newest.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    let mut intervals = Vec::new();
    times::encode(times, &mut intervals);
    bytes.extend_from_slice(&times_checksum(number, &intervals).to_le_bytes());
    bytes.extend_from_slice(&intervals);
    bytes
}

/// Ties the times to their note: a crash can leave the first sector of one note and the rest of another.
fn times_checksum(number: u64, intervals: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&number.to_le_bytes()), intervals)
}

fn decode(slot: &[u8]) -> Option<Slot> {
    let mut reader = Reader::new(slot.get(..NOTE_BYTES)?);
    if reader.bytes(8).ok()? != MAGIC {
        return None;
    }
    let (number, epoch, run_start) = (reader.u64().ok()?, reader.u64().ok()?, reader.u64().ok()?);
    let (durable, newest_first) = (reader.u64().ok()?, reader.u64().ok()?);
    let (newest, checksum) = (reader.u32().ok()?, reader.u32().ok()?);
    let is_whole = crc32c::crc32c(slot.get(..NOTE_BYTES - 4)?) == checksum;
    let times = decode_times(number, slot.get(NOTE_BYTES..)?).unwrap_or_default();
    is_whole.then_some(Slot { number, note: Note { epoch, run_start, durable, newest_first, newest }, times })
}

fn decode_times(number: u64, bytes: &[u8]) -> Option<Vec<RecordTimes>> {
    let mut reader = Reader::new(bytes);
    let checksum = reader.u32().ok()?;
    let before = reader.rest();
    let times = times::decode(&mut reader).ok()?;
    let intervals = before.get(..before.len() - reader.rest().len())?;
    (times_checksum(number, intervals) == checksum).then_some(times)
}

impl NoteFile {
    /// Opens the file, made if it is not there, and writes a note.
    pub(crate) fn start(
        files: &dyn Files,
        directory: &Path,
        note: Note,
        times: &[RecordTimes],
    ) -> Result<Self, StoreError> {
        let path = note_path(directory);
        let number = newest(files, directory)?.map_or(0, |slot| slot.number);
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
        started.write(note, times)?;
        Ok(started)
    }

    /// Writes a note durably. After an error the one before still counts.
    pub(crate) fn write(&mut self, note: Note, times: &[RecordTimes]) -> Result<(), StoreError> {
        let number = self.number + 1;
        let offset = (number % 2) * SLOT_BYTES as u64;
        self.file.write_all_at(&encode(number, &note, times), offset).map_err(StoreError::io("write", &self.path))?;
        self.file.sync_data().map_err(StoreError::io("sync", &self.path))?;
        (self.number, self.note) = (number, note);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use model::TimeRange;
    use platform::sim::Simulation;

    use super::*;

    #[test]
    fn times_are_those_of_the_note_or_of_none() {
        let note = Note { durable: 9, newest: 3, ..Note::default() };
        let times = vec![RecordTimes { sequences: (1, 9), range: TimeRange::new(-5, 7) }];
        let bytes = encode(4, &note, &times);
        assert_eq!(decode(&bytes), Some(Slot { number: 4, note, times }));
        // An earlier version wrote the next note over it, or a crash tore it.
        let mut later = encode(6, &note, &[]);
        later.truncate(NOTE_BYTES);
        later.extend_from_slice(&bytes[NOTE_BYTES..]);
        assert_eq!(decode(&later), Some(Slot { number: 6, note, times: Vec::new() }));
        later.truncate(NOTE_BYTES);
        assert_eq!(decode(&later), Some(Slot { number: 6, note, times: Vec::new() }));
    }

    #[test]
    fn a_torn_note_leaves_the_one_before() {
        for seed in 0..50 {
            let simulation = Simulation::new(seed);
            let files = simulation.platform().files;
            let directory = Path::new("d/log");
            let note = |durable| Note { epoch: 2, run_start: 5, durable, newest_first: 6, newest: 7 };
            let mut file = NoteFile::start(&*files, directory, note(5), &[]).unwrap();
            file.write(note(6), &[]).unwrap();
            simulation.fail_syncs_after(0);
            assert!(file.write(note(7), &[]).is_err());
            simulation.crash();
            let files = simulation.platform().files;
            let found = read(&*files, directory).unwrap().unwrap();
            assert!([6, 7].contains(&found.durable), "{found:?}");
            let file = NoteFile::start(&*files, directory, note(9), &[]).unwrap();
            assert_eq!((read(&*files, directory).unwrap(), file.note), (Some(note(9)), note(9)));
        }
    }
}
