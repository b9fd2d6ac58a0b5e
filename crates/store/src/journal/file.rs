//! The journal across restarts: caches of results on disk ask it which of their entries are still valid.
//!
//! Stamps of such answers are sequence ids of the log. A *mark* says which number the journal had at one: everything up to the sequence id was
//! recorded with that number or a smaller one. The journal's file holds the journal as it was at a mark, durably; opening the folder reads it
//! and tells anew of the log's records after the mark. What makes a stale answer impossible:
//!
//! * the file says which opening wrote it: only the one right after that believes it, so that nothing was done to the folder in between;
//! * it is believed only if the log still has every record after the mark, undamaged; it is written before records are given up;
//! * deletes, folds and dropped parts are not in the log: the file is removed before one of them is committed, and written anew when it was
//!   recorded.
//!
//! Where there is no such file, a journal with another identity begins. Layout: `docs/formats/journal.md`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use codec::{DecodeError, Reader, varint};
use index::RoaringBitmap;
use model::TimeRange;
use platform::{Files, Platform};

use crate::journal::{Change, ChangeKind, Journal, State};
use crate::log::record::ShardRows;
use crate::{Finding, Recovery, Store, StoreError, StoreOptions};

const MAGIC: [u8; 8] = *b"THWGJRNL";
const VERSION: u32 = 1;
/// Bytes of changes that are written; older ones are forgotten in the file.
const CHANGES_BYTES_MAX: usize = 8 << 20;
/// A file may have.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The journal of the opening before, to which the log adds what it has after it.
pub(crate) struct Continued {
    journal: Journal,
    /// How far in the log it goes.
    log_sequence: u64,
    /// By shard.
    newest_ns: Vec<i64>,
}

/// Which records the log had.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LogExtent {
    /// The first that was read.
    pub(crate) first: Option<u64>,
    /// The largest that was.
    pub(crate) largest: u64,
    /// The last that was ever given out, as far as is known.
    pub(crate) last: u64,
}

/// What a file says.
struct LoadedJournal {
    epoch: u64,
    id: u64,
    log_sequence: u64,
    state: State,
}

/// The state of the file; locked while it is written.
#[derive(Debug, Default)]
pub(crate) struct JournalFile {
    /// Who is about to do something that only the journal in memory will know of.
    withdrawn: usize,
}

/// As long as it lives there is no file.
pub(crate) struct Withdrawn<'s>(Option<&'s Store>);

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        if let Some(store) = self.0 {
            let mut file = store.journal.file.lock();
            file.withdrawn = file.withdrawn.saturating_sub(1);
        }
    }
}

impl Store {
    /// Marks the present: everything up to the sequence id that is returned is what readers see now, and so is nothing after it.
    pub fn mark(&self) -> u64 {
        // A writer that appends to the log holds a shard until the journal has its rows.
        let _states: Vec<_> = self.shards.iter().map(|shard| shard.state.lock()).collect();
        let sequence = self.log.last_sequence();
        self.journal.mark(sequence);
        sequence
    }

    /// Returns when everything that readers see by now is durable: no crash takes it back.
    pub fn commit_seen(&self) -> Result<(), StoreError> {
        self.log.commit(self.log.last_sequence())
    }

    /// Writes the journal's file, if it is to be kept, unless something is under way that it must not outlive.
    pub fn save_journal(&self) -> Result<(), StoreError> {
        if !self.options.journal_is_saved {
            return Ok(());
        }
        let file = self.journal.file.lock();
        if file.withdrawn > 0 {
            return Ok(());
        }
        let log_sequence = self.mark();
        self.log.commit(log_sequence)?;
        let epoch = self.manifest.lock().state.epoch;
        let bytes = self.journal.encode(epoch, log_sequence);
        let path = path_in(&self.options.directory);
        platform::write_file(&*self.platform.files, &path, &bytes).map_err(StoreError::io("write journal", &path))
    }

    /// Removes the journal's file until what is returned is dropped.
    pub(crate) fn withdraw_journal(&self) -> Result<Withdrawn<'_>, StoreError> {
        if !self.options.journal_is_saved {
            return Ok(Withdrawn(None));
        }
        let mut file = self.journal.file.lock();
        remove(&*self.platform.files, &self.options.directory)?;
        file.withdrawn += 1;
        Ok(Withdrawn(Some(self)))
    }
}

fn path_in(directory: &Path) -> PathBuf {
    directory.join("JOURNAL")
}

/// Removes the file durably, if there is one.
fn remove(files: &dyn Files, directory: &Path) -> Result<(), StoreError> {
    let path = path_in(directory);
    match files.remove(&path) {
        Ok(()) => files.sync_directory(directory).map_err(StoreError::io("sync folder", directory)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(StoreError::io("remove journal", &path)(error)),
    }
}

impl Continued {
    /// What the opening before this one left, if it can be believed so far. A file that cannot be read is none. Newest rows are those of
    /// each shard.
    pub(crate) fn read(platform: &Platform, options: &StoreOptions, epoch: u64, newest_ns: Vec<i64>) -> Option<Self> {
        let path = path_in(&options.directory);
        let bytes = platform::read_file(&*platform.files, &path, FILE_BYTES_MAX).ok()?;
        let found = decode(&bytes).ok().filter(|found| found.epoch.checked_add(1) == Some(epoch))?;
        let journal = Journal::going_on(options.journal_changes_max, found.id, found.state);
        Some(Self { journal, log_sequence: found.log_sequence, newest_ns })
    }

    /// Tells of a record of the log, in order.
    pub(crate) fn record(&mut self, sequence: u64, shards: &[ShardRows], now_ns: i64) {
        for rows in shards.iter().filter(|_| sequence > self.log_sequence) {
            let Some(newest_ns) = self.newest_ns.get_mut(rows.shard) else { continue };
            self.journal.record(rows.shard as u32, (*newest_ns).min(now_ns), rows);
            let times = rows.blocks.iter().flat_map(|block| block.timestamps_ns.iter().copied());
            *newest_ns = times.fold(*newest_ns, i64::max);
        }
    }

    /// The journal that goes on, if it has everything after it.
    pub(crate) fn finish(self, log: LogExtent, recovery: &Recovery) -> Option<Journal> {
        let is_damaged = |finding: &Finding| matches!(finding, Finding::DamagedRecord { .. });
        let has_first = log.first.is_some_and(|first| first <= self.log_sequence.saturating_add(1));
        let has_rest = log.last > self.log_sequence && has_first && log.largest >= log.last;
        let is_sound = recovery.log_rows_lost == 0 && recovery.parts_set_aside.is_empty();
        let is_whole = is_sound && !recovery.log_findings.iter().any(is_damaged);
        (is_whole && (log.last == self.log_sequence || has_rest)).then_some(self.journal)
    }
}

impl Journal {
    /// A new one, with an identity that no other has.
    pub(crate) fn fresh(platform: &Platform, options: &StoreOptions) -> Result<Self, StoreError> {
        let mut id = [0; 8];
        platform.random.fill(&mut id).map_err(StoreError::io("draw random bytes for", &options.directory))?;
        Ok(Self::new(options.journal_changes_max, u64::from_le_bytes(id)))
    }

    /// The file's bytes.
    fn encode(&self, epoch: u64, log_sequence: u64) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        for number in [epoch, self.id(), log_sequence] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        self.with_state(|state| encode_state(state, &mut out));
        let checksum = crc32c::crc32c(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }
}

fn encode_state(state: &State, out: &mut Vec<u8>) {
    // The newest changes come first, as many as there is room for.
    let (mut changes, mut count, mut forgotten_through) = (Vec::new(), 0u64, state.forgotten_through);
    for change in state.changes.iter().rev() {
        let before = changes.len();
        encode_change(change, &mut changes);
        if changes.len() > CHANGES_BYTES_MAX {
            changes.truncate(before);
            forgotten_through = forgotten_through.max(change.sequence);
            break;
        }
        count += 1;
    }
    varint::push(out, state.sequence);
    varint::push(out, forgotten_through);
    varint::push(out, state.marks.len() as u64);
    for (log_sequence, number) in &state.marks {
        varint::push(out, *log_sequence);
        varint::push(out, *number);
    }
    varint::push(out, state.edges.len() as u64);
    for (number, smallest_ns) in &state.edges {
        varint::push(out, *number);
        varint::push_signed(out, *smallest_ns);
    }
    varint::push(out, count);
    out.extend_from_slice(&changes);
}

fn encode_change(change: &Change, out: &mut Vec<u8>) {
    varint::push(out, change.sequence);
    out.push(change.kind as u8);
    varint::push(out, u64::from(change.shard));
    varint::push(out, change.database.map_or(0, |database| u64::from(database) + 1));
    varint::push_signed(out, change.range.start_ns);
    varint::push_signed(out, change.range.end_ns);
    let mut groups = Vec::new();
    if let Some(known) = &change.groups {
        // Writing to memory does not fail.
        let _ = known.serialize_into(&mut groups);
    }
    varint::push(out, groups.len() as u64);
    out.extend_from_slice(&groups);
}

fn decode(bytes: &[u8]) -> Result<LoadedJournal, DecodeError> {
    let mut reader = Reader::new(bytes);
    let checked = reader.bytes(bytes.len().saturating_sub(4))?;
    if reader.u32()? != crc32c::crc32c(checked) {
        return Err(reader.error("the checksum of the journal does not match"));
    }
    let mut reader = Reader::new(checked);
    if reader.array()? != MAGIC || reader.u32()? != VERSION {
        return Err(reader.error("no journal of this version"));
    }
    let (epoch, id, log_sequence) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let mut state = State { sequence: reader.varint()?, forgotten_through: reader.varint()?, ..State::default() };
    for _ in 0..reader.length(reader.rest().len())? {
        state.marks.push_back((reader.varint()?, reader.varint()?));
    }
    for _ in 0..reader.length(reader.rest().len())? {
        state.edges.push_back((reader.varint()?, reader.varint_signed()?));
    }
    for _ in 0..reader.length(reader.rest().len())? {
        state.changes.push_front(decode_change(&mut reader)?);
    }
    Ok(LoadedJournal { epoch, id, log_sequence, state })
}

/// Reads bytes as a journal's file, its beginning and its checksum put around them: the entry for fuzzing.
///
/// # Panics
///
/// If what it finds contradicts itself: that is what a fuzzer looks for.
pub fn fuzz(bytes: &[u8]) {
    let mut file = MAGIC.to_vec();
    file.extend_from_slice(&VERSION.to_le_bytes());
    file.extend_from_slice(bytes);
    file.extend_from_slice(&crc32c::crc32c(&file).to_le_bytes());
    if let Ok(found) = decode(&file) {
        let journal = Journal::going_on(100, found.id, found.state);
        let again = decode(&journal.encode(found.epoch, found.log_sequence));
        assert!(
            again.is_ok_and(|again| again.epoch == found.epoch),
            "what was read is written so that it is read again"
        );
        let _ = (journal.since(journal.snapshot()), journal.since(0), journal.snapshot_at(found.log_sequence));
        journal.mark(found.log_sequence);
    }
}

fn decode_change(reader: &mut Reader<'_>) -> Result<Change, DecodeError> {
    let sequence = reader.varint()?;
    let kind = match reader.byte()? {
        0 => ChangeKind::LateRows,
        1 => ChangeKind::Deleted,
        2 => ChangeKind::Folded,
        _ => return Err(reader.error("a change of an unknown kind")),
    };
    let shard = reader.length(u32::MAX as usize)? as u32;
    let database = reader.length(u32::MAX as usize)?.checked_sub(1).map(|database| database as u32);
    let range = TimeRange::new(reader.varint_signed()?, reader.varint_signed()?);
    let length = reader.length(reader.rest().len())?;
    let groups = match length {
        0 => None,
        _ => {
            let groups = RoaringBitmap::deserialize_from(reader.bytes(length)?);
            Some(Arc::new(groups.map_err(|_| reader.error("groups of a change are damaged"))?))
        }
    };
    Ok(Change { sequence, kind, shard, database, range, groups })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn journal(count: u64) -> Journal {
        let journal = Journal::new(100, 77);
        for number in 0..count {
            let groups = (number % 3 > 0).then(|| Arc::new((0..number as u32).collect()));
            let kind = [ChangeKind::LateRows, ChangeKind::Deleted, ChangeKind::Folded][number as usize % 3];
            let range = TimeRange::new(-(number as i64), i64::MAX - number as i64);
            let database = (number % 2 > 0).then_some(number as u32);
            journal.push(Change { sequence: 0, kind, shard: number as u32, database, range, groups });
            journal.mark(number * 10);
        }
        journal
    }

    #[test]
    fn the_file_gives_the_journal_back() {
        for count in [0, 1, 50, 150] {
            let journal = journal(count);
            let found = decode(&journal.encode(9, 1234)).unwrap();
            assert_eq!((found.epoch, found.id, found.log_sequence), (9, 77, 1234));
            let again = Journal::going_on(100, found.id, found.state);
            for since in [0, 20, 49, 60, 120, 150] {
                assert_eq!(again.since(since), journal.since(since), "{count} since {since}");
            }
            assert_eq!(again.snapshot_at(333), journal.snapshot_at(333));
            assert_eq!(again.encode(9, 1234), journal.encode(9, 1234));
        }
    }

    #[test]
    fn marks_never_promise_too_much() {
        let journal = Journal::new(10, 0);
        let change = || Change {
            sequence: 0,
            kind: ChangeKind::Deleted,
            shard: 0,
            database: None,
            range: TimeRange::ALL,
            groups: None,
        };
        let mut numbers = Vec::new();
        for log_sequence in 0..10_000u64 {
            journal.mark(log_sequence * 2);
            numbers.push(journal.snapshot());
            journal.push(change());
        }
        for log_sequence in 0..10_000u64 {
            for asked in [log_sequence * 2, log_sequence * 2 + 1] {
                let found = journal.snapshot_at(asked);
                assert!(found.is_none_or(|found| found <= numbers[log_sequence as usize]), "{asked}");
            }
            let marked = journal.marked_at(numbers[log_sequence as usize]);
            assert!(marked.is_none_or(|marked| marked <= log_sequence * 2));
        }
        assert_eq!(journal.snapshot_at(19_998), Some(9999));
        assert_eq!(journal.marked_at(9999), Some(19_998));
    }

    proptest! {
        #[test]
        fn damage_is_found_out(place in 0usize..400, bit in 0u32..8) {
            let mut bytes = journal(20).encode(3, 4);
            let place = place % bytes.len();
            bytes[place] ^= 1 << bit;
            prop_assert!(decode(&bytes).is_err());
            prop_assert!(decode(&bytes[..place]).is_err());
        }
    }
}
