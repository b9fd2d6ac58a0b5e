//! The log's records that are in no part yet: read and checked one after another, taken in by a thread for each shard. A shard's records
//! keep their order; records of different shards have nothing to do with each other.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use platform::OpenMode;

use super::Opened;
use crate::StoreError;
use crate::journal_file::LogExtent;
use crate::log::frame::Frame;
use crate::log::reader::{Scan, SegmentBytes};
use crate::log::record::{self, Record, ShardRows};
use crate::log::writer::{Log, SegmentInfo, whole_blocks};
use crate::log::{segment_number, segment_path};
use crate::manifest::Edit;
use crate::shard::Shard;

/// Bytes that a log segment's file may have.
const LOG_SEGMENT_BYTES_MAX: u64 = 8 << 30;

/// Records that wait for one shard's thread.
const QUEUE_RECORDS_MAX: usize = 64;

/// What the segments hold.
#[derive(Default)]
struct Replayed {
    infos: Vec<SegmentInfo>,
    ended: Vec<Edit>,
    /// First sequence id that the catalog needs.
    catalog_since: Option<u64>,
    /// Sequence id of the first record.
    first_sequence: Option<u64>,
}

/// A record's piece for one shard.
enum Piece {
    /// The payload of a groups record.
    Groups {
        sequence: u64,
        payload: Vec<u8>,
        path: Arc<PathBuf>,
    },
    Rows {
        sequence: u64,
        rows: ShardRows,
    },
}

/// What a shard's thread did.
#[derive(Default)]
struct Taken {
    rows: u64,
    rows_lost: u64,
}

impl Opened {
    /// Reads the log and starts a new segment behind it. With it, the first sequence id that the catalog needs, and what was read.
    pub(super) fn replay_log(&mut self) -> Result<(Log, Option<u64>, LogExtent), StoreError> {
        let directory = self.options.directory.join("log");
        let names = self.platform.files.list(&directory).map_err(StoreError::io("list", &directory))?;
        let numbers = self.needed_segments(&directory, &names)?;
        let mut scan = Scan::new();
        let Replayed { infos, ended, catalog_since, first_sequence } =
            self.replay_segments(&directory, &numbers, &mut scan)?;
        let flushed = self.manifest.state.flushed.values().copied().max().unwrap_or(0);
        let deleted = self.manifest.state.deletes.keys().map(|(_, sequence)| *sequence).max().unwrap_or(0);
        let sequence = scan.largest_sequence.max(flushed).max(deleted);
        let extent = LogExtent { first: first_sequence, largest: scan.largest_sequence, last: sequence };
        self.recovery.log_findings = scan.into_findings();
        // From here on the records that count are settled, whatever is written behind them.
        self.manifest.commit(&ended)?;
        let spares = self.usable_spares(&directory, &names)?;
        let log = self.start_log(directory, sequence, infos, spares);
        Ok((log, catalog_since, extent))
    }

    /// Numbers of the segments that are not given up yet. Where a crash undid the removal of others, it is done again.
    fn needed_segments(&mut self, directory: &Path, names: &[String]) -> Result<Vec<u32>, StoreError> {
        let numbers = names.iter().filter_map(|name| segment_number(name));
        let released = self.manifest.state.log_released;
        let (needed, gone): (Vec<u32>, Vec<u32>) = numbers.partition(|number| *number > released);
        for path in gone.into_iter().map(|number| segment_path(directory, number)) {
            self.platform.files.remove(&path).map_err(StoreError::io("remove log segment", &path))?;
            self.recovery.files_removed += 1;
        }
        Ok(needed)
    }

    fn start_log(&self, directory: PathBuf, sequence: u64, infos: Vec<SegmentInfo>, spares: Vec<PathBuf>) -> Log {
        let last = infos.last().map_or(0, |last| last.number);
        let next_number = last.max(self.manifest.state.log_released) + 1;
        let files = self.platform.files.clone();
        let how = (self.options.log_segment_bytes, self.options.log_is_direct);
        Log::start(files, directory, how, sequence, infos, next_number, spares)
    }

    /// Spare files of the right size; others (unfinished, or made under another setting) are removed.
    fn usable_spares(&self, directory: &Path, names: &[String]) -> Result<Vec<PathBuf>, StoreError> {
        let mut usable = Vec::new();
        for path in names.iter().map(|name| directory.join(name)) {
            if path.extension().is_none_or(|extension| extension != "free") {
                continue;
            }
            let file = self.platform.files.open(&path, OpenMode::Read).map_err(StoreError::io("open", &path))?;
            let size = file.size_bytes().map_err(StoreError::io("open", &path))?;
            if size == whole_blocks(self.options.log_segment_bytes) as u64 {
                usable.push(path);
            } else {
                self.platform.files.remove(&path).map_err(StoreError::io("remove", &path))?;
            }
        }
        Ok(usable)
    }

    fn replay_segments(&mut self, directory: &Path, numbers: &[u32], scan: &mut Scan) -> Result<Replayed, StoreError> {
        let shards = std::mem::take(&mut self.shards);
        let flushed = self.manifest.state.flushed.clone();
        let replayed = std::thread::scope(|scope| {
            let mut queues = Vec::with_capacity(shards.len());
            let mut threads = Vec::with_capacity(shards.len());
            for shard in &shards {
                let (queue, pieces) = sync_channel(QUEUE_RECORDS_MAX);
                queues.push(queue);
                let flushed = flushed.get(&shard.number).copied().unwrap_or(0);
                threads.push(scope.spawn(move || take_pieces(shard, flushed, &pieces)));
            }
            let replayed = self.read_segments(directory, numbers, scan, &queues);
            drop(queues);
            let mut taken = Vec::with_capacity(threads.len());
            for thread in threads {
                // A thread that was cut off by a panic has no more to say than that.
                let done = thread.join().map_err(|_| StoreError::Invalid("replaying the log stopped short".to_owned()));
                taken.push(done.and_then(|done| done));
            }
            // What stopped a shard's thread also stopped the reading.
            let taken = taken.into_iter().collect::<Result<Vec<Taken>, StoreError>>()?;
            for taken in taken {
                self.recovery.log_rows += taken.rows;
                self.recovery.log_rows_lost += taken.rows_lost;
            }
            replayed
        });
        self.shards = shards;
        replayed
    }

    fn read_segments(
        &mut self,
        directory: &Path,
        numbers: &[u32],
        scan: &mut Scan,
        queues: &[SyncSender<Piece>],
    ) -> Result<Replayed, StoreError> {
        let mut replayed = Replayed::default();
        for number in numbers {
            let path = Arc::new(segment_path(directory, *number));
            let bytes = platform::read_file(&*self.platform.files, &path, LOG_SEGMENT_BYTES_MAX)
                .map_err(StoreError::io("read log segment", &path))?;
            let end = self.manifest.state.log_ends.get(number).copied();
            let segment = SegmentBytes { number: *number, path: &path, bytes: &bytes, end };
            let mut first = None;
            let end = scan.segment(&segment, |frame| {
                first.get_or_insert(frame.sequence);
                self.hand_out(&frame, &path, &mut replayed.catalog_since, queues)
            })?;
            replayed.ended.push(Edit::LogEnded { segment: *number, end });
            replayed.first_sequence = replayed.first_sequence.or(first);
            let first_sequence = first.unwrap_or(scan.largest_sequence + 1);
            replayed.infos.push(SegmentInfo { number: *number, first_sequence, bytes: bytes.len() as u64 });
        }
        Ok(replayed)
    }

    /// Takes in what concerns the folder, and hands the shards what is theirs.
    fn hand_out(
        &mut self,
        frame: &Frame<'_>,
        path: &Arc<PathBuf>,
        catalog_since: &mut Option<u64>,
        queues: &[SyncSender<Piece>],
    ) -> Result<(), StoreError> {
        let (sequence, corrupt) = (frame.sequence, corrupt_at(path, frame.sequence));
        self.recovery.log_records += 1;
        if frame.kind == record::GROUPS {
            let shard = record::groups_shard(frame.payload).map_err(corrupt)?;
            let piece = Piece::Groups { sequence, payload: frame.payload.to_vec(), path: Arc::clone(path) };
            hand_to(queues, shard, piece);
            return Ok(());
        }
        match record::decode(frame.kind, frame.payload).map_err(corrupt)? {
            Record::Catalog(entries) => {
                for entry in entries {
                    // An entry that does not follow tells of one before it that was damaged; rows that need it are counted.
                    let _ = self.catalog.apply(&entry);
                }
                if self.catalog.has_unsaved() {
                    catalog_since.get_or_insert(sequence);
                }
            }
            Record::Exemplars(entries) => self.exemplars.replay(entries, sequence, self.options.exemplars_max),
            Record::Rows(shards, sent) => {
                if let Some(sent) = sent {
                    self.producers.replay(sent, sequence, self.options.producers_max);
                }
                if let Some(journal) = &mut self.journal {
                    journal.tell(sequence, &shards, self.platform.clock.now_ns());
                }
                for rows in shards {
                    hand_to(queues, rows.shard, Piece::Rows { sequence, rows });
                }
            }
            Record::Groups { .. } | Record::Mark => {}
        }
        Ok(())
    }
}

fn corrupt_at(path: &Path, sequence: u64) -> impl Fn(codec::DecodeError) -> StoreError + '_ {
    move |error| StoreError::corrupt(path, error.offset as u64, format!("record {sequence}: {}", error.what))
}

/// A shard that is not there has no thread, and one whose thread ended has an error that is told when it is joined.
fn hand_to(queues: &[SyncSender<Piece>], shard: usize, piece: Piece) {
    if let Some(queue) = queues.get(shard) {
        let _ = queue.send(piece);
    }
}

/// A shard's thread.
fn take_pieces(shard: &Shard, flushed: u64, pieces: &Receiver<Piece>) -> Result<Taken, StoreError> {
    let mut taken = Taken::default();
    for piece in pieces {
        match piece {
            Piece::Groups { sequence, payload, path } => take_groups(shard, sequence, &payload, &path)?,
            Piece::Rows { sequence, rows } if sequence > flushed => take_rows(shard, sequence, rows, &mut taken),
            Piece::Rows { .. } => {}
        }
    }
    Ok(taken)
}

fn take_groups(shard: &Shard, sequence: u64, payload: &[u8], path: &Path) -> Result<(), StoreError> {
    let decoded = record::decode(record::GROUPS, payload).map_err(corrupt_at(path, sequence))?;
    let Record::Groups { entries, .. } = decoded else {
        return Ok(());
    };
    let mut index = shard.groups.write();
    for entry in &entries {
        index.groups.apply(entry).map_err(StoreError::index(path))?;
    }
    if index.groups.has_unsaved() {
        index.unsaved_since.get_or_insert(sequence);
    }
    Ok(())
}

fn take_rows(shard: &Shard, sequence: u64, mut rows: ShardRows, taken: &mut Taken) {
    let known = shard.groups.read().groups.next_id();
    let all: u64 = rows.blocks.iter().map(|block| block.rows() as u64).sum();
    // Their numbers will be given to others: rows of groups that nothing tells of must not wait for them.
    rows.blocks.iter_mut().for_each(|block| block.retain_groups(|group| group < known));
    let kept = rows.blocks.iter().map(|block| block.rows() as u64).sum::<u64>();
    taken.rows_lost += all - kept;
    taken.rows += kept;
    shard.apply(&mut shard.state.lock(), &rows, sequence);
}
