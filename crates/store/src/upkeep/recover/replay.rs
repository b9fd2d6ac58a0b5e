//! The log's records that are in no part yet: read and checked one after another, replayed in by a thread for each shard. A shard's records
//! keep their order; records of different shards have nothing to do with each other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use index::{Catalog, GroupId, MeasurementId, Slot};
use model::TimeRange;
use platform::OpenMode;

use super::Opened;
use crate::head::shard::Shard;
use crate::journal::file::LogExtent;
use crate::log::frame::Frame;
use crate::log::note::{self, Note};
use crate::log::reader::{Scan, ScanStart, SegmentBytes};
use crate::log::record::{self, Record, ShardRows};
use crate::log::writer::{Log, LogStart, SegmentInfo, whole_blocks};
use crate::log::{LOG_SEGMENT_BYTES_MAX, segment_number, segment_path};
use crate::manifest::{Edit, State};
use crate::upkeep::inspect::size_of;
use crate::write::exemplars;
use crate::{Loss, StoreError};

/// Records that wait for one shard's thread.
const QUEUE_RECORDS_MAX: usize = 64;

/// What the segments hold.
pub(super) struct Replayed {
    infos: Vec<SegmentInfo>,
    /// First sequence id that the catalog needs.
    pub(super) catalog_since: Option<u64>,
    /// Sequence id of the first record.
    first_sequence: Option<u64>,
    /// How far the log was read.
    pub(super) extent: LogExtent,
    /// The largest number of a segment that is known of.
    newest: u32,
    /// The times of rows whose groups or columns are not known.
    lost: TimeRange,
}

impl Default for Replayed {
    fn default() -> Self {
        Self {
            infos: Vec::new(),
            catalog_since: None,
            first_sequence: None,
            extent: LogExtent::default(),
            newest: 0,
            lost: TimeRange::EMPTY,
        }
    }
}

/// The segments that hold what no part holds yet, those that are missing among them.
struct Segments {
    numbers: Vec<u32>,
    missing: BTreeSet<u32>,
    newest: u32,
}

/// A record's piece for one shard.
enum Item {
    /// The payload of a groups record.
    Groups { sequence: u64, payload: Vec<u8>, path: Arc<PathBuf> },
    Rows {
        sequence: u64,
        rows: ShardRows,
        /// The columns that are known, where records before may be missing.
        columns: Option<Arc<KnownColumns>>,
    },
}

/// How many fields each measurement has, by its number, as far as records tell.
struct KnownColumns(Vec<u32>);

impl KnownColumns {
    fn has(&self, measurement: MeasurementId, slots: &[Slot]) -> bool {
        let count = self.0.get(measurement as usize).copied().unwrap_or(0);
        slots.iter().all(|slot| *slot < count)
    }
}

/// How far records were handed out.
#[derive(Default)]
struct HandedOut {
    last_sequence: Option<u64>,
    /// True once records may be missing: rows after them may need columns that only those told of.
    may_lack: bool,
    /// The columns that are known, and the state of the catalog that tells of them.
    columns: Option<(u64, Arc<KnownColumns>)>,
}

impl HandedOut {
    fn note(&mut self, sequence: u64) {
        self.may_lack |= self.last_sequence.is_some_and(|last| sequence != last + 1);
        self.last_sequence = Some(sequence);
    }

    /// What rows have to be compared with.
    fn columns(&mut self, catalog: &Catalog) -> Option<Arc<KnownColumns>> {
        if !self.may_lack {
            return None;
        }
        let changes = catalog.changes();
        let known = self.columns.take().filter(|(of, _)| *of == changes);
        let known = known.unwrap_or_else(|| (changes, Arc::new(KnownColumns(catalog.field_counts()))));
        Some(self.columns.insert(known).1.clone())
    }
}

/// What a shard's thread did.
struct AppliedRows {
    rows: u64,
    rows_lost: u64,
    /// The times of those that are lost.
    lost: TimeRange,
}

impl Opened {
    /// Reads the log, and finds what is missing in it. Nothing is written.
    pub(super) fn replay_log(&mut self) -> Result<Replayed, StoreError> {
        let directory = self.options.directory.join("log");
        let names = self.platform.files.list(&directory).map_err(StoreError::io("list", &directory))?;
        let note = note::read(&*self.platform.files, &directory)?;
        self.check_note(note);
        let segments = needed_segments(&self.state, self.before.edition > 0, note, &names);
        if self.before.edition == 0 {
            // Earlier versions gave up a segment before they said so.
            let through = segments.numbers.first().map_or(segments.newest, |first| first.saturating_sub(1));
            self.state.apply(&Edit::LogReleased { through });
        }
        let mut scan = Scan::new(scan_start(&self.state, self.before.epoch, note));
        let mut replayed = self.replay_segments(&directory, &segments, &mut scan)?;
        let flushed = self.state.flushed.values().copied().max().unwrap_or(0);
        let deleted = self.state.deletes.keys().map(|(_, sequence)| *sequence).max().unwrap_or(0);
        let durable = note.map_or(0, |note| note.durable);
        let sequence = scan.largest_sequence.max(flushed).max(deleted).max(durable);
        replayed.extent = LogExtent { first: replayed.first_sequence, largest: scan.largest_sequence, last: sequence };
        replayed.newest = segments.newest;
        self.recovery.log_findings = scan.into_findings();
        self.note_log_losses(&note::read_times(&*self.platform.files, &directory)?, replayed.lost);
        Ok(replayed)
    }

    /// A note of an opening that the manifest knows nothing of: the manifest is an older one.
    fn check_note(&mut self, note: Option<Note>) {
        let Some(note) = note.filter(|note| note.epoch > self.before.epoch && self.before.edition > 0) else { return };
        let message = format!(
            "it is an older one: it ends with opening {}, the log was written by opening {}",
            self.before.epoch, note.epoch
        );
        let file = self.options.directory.join("MANIFEST").display().to_string();
        self.losses.push((Loss { file, message, range: TimeRange::ALL }, None));
    }

    /// Starts a new segment after what was read.
    pub(super) fn start_log(&self, replayed: Replayed) -> Result<Log, StoreError> {
        let directory = self.options.directory.join("log");
        let names = self.platform.files.list(&directory).map_err(StoreError::io("list", &directory))?;
        let spares = self.usable_spares(&directory, &names)?;
        Log::start(LogStart {
            files: self.platform.files.clone(),
            directory,
            segment_bytes: self.options.log_segment_bytes,
            is_direct: self.options.log_is_direct,
            sequence: replayed.extent.last,
            segments: replayed.infos,
            next_number: replayed.newest.max(self.state.log_released) + 1,
            spares,
            epoch: self.state.epoch,
        })
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

    fn replay_segments(
        &mut self,
        directory: &Path,
        segments: &Segments,
        scan: &mut Scan,
    ) -> Result<Replayed, StoreError> {
        let shards = std::mem::take(&mut self.shards);
        let flushed = self.state.flushed.clone();
        let mut lost = TimeRange::EMPTY;
        let replayed = std::thread::scope(|scope| {
            let mut queues = Vec::with_capacity(shards.len());
            let mut threads = Vec::with_capacity(shards.len());
            for shard in &shards {
                let (queue, pieces) = sync_channel(QUEUE_RECORDS_MAX);
                queues.push(queue);
                let flushed = flushed.get(&shard.number).copied().unwrap_or(0);
                threads.push(scope.spawn(move || apply_items(shard, flushed, &pieces)));
            }
            let replayed = self.read_segments(directory, segments, scan, &queues);
            drop(queues);
            let mut applied = Vec::with_capacity(threads.len());
            for thread in threads {
                // A thread that was cut off by a panic has no more to say than that.
                let done = thread.join().map_err(|_| StoreError::Invalid("replaying the log stopped short".to_owned()));
                applied.push(done.and_then(|done| done));
            }
            // What stopped a shard's thread also stopped the reading.
            let applied = applied.into_iter().collect::<Result<Vec<AppliedRows>, StoreError>>()?;
            for applied in applied {
                self.recovery.log_rows += applied.rows;
                self.recovery.log_rows_lost += applied.rows_lost;
                lost = lost.union(applied.lost);
            }
            replayed.map(|replayed| Replayed { lost, ..replayed })
        });
        self.shards = shards;
        replayed
    }

    fn read_segments(
        &mut self,
        directory: &Path,
        segments: &Segments,
        scan: &mut Scan,
        queues: &[SyncSender<Item>],
    ) -> Result<Replayed, StoreError> {
        let (mut replayed, mut handed_out) = (Replayed::default(), HandedOut::default());
        let files = self.platform.files.clone();
        let sizes =
            segments.numbers.iter().map(|number| size_of(&*files, &segment_path(directory, *number)).unwrap_or(0));
        self.options.progress.begin_log(sizes.sum());
        for number in &segments.numbers {
            let path = Arc::new(segment_path(directory, *number));
            let end = self.state.log_ends.get(number).copied();
            if segments.missing.contains(number) {
                handed_out.may_lack = true;
                scan.missing_segment(*number, &path, end.is_some());
                continue;
            }
            let bytes = platform::read_file(&*self.platform.files, &path, LOG_SEGMENT_BYTES_MAX)
                .map_err(StoreError::io("read log segment", &path))?;
            let segment = SegmentBytes { number: *number, path: &path, bytes: &bytes, end };
            let (mut first, mut range) = (None, TimeRange::EMPTY);
            let end = scan.segment(&segment, |frame| {
                first.get_or_insert(frame.sequence);
                handed_out.note(frame.sequence);
                range = range.union(self.hand_out(
                    (&frame, &path),
                    &mut replayed.catalog_since,
                    &mut handed_out,
                    queues,
                )?);
                Ok::<(), StoreError>(())
            })?;
            // Each segment but the newest had a record.
            handed_out.may_lack |= first.is_none();
            self.options.progress.add_log_bytes(bytes.len() as u64);
            // From here on the records that count are final, whatever is written after them.
            self.state.apply(&Edit::LogEnded { segment: *number, end });
            replayed.first_sequence = replayed.first_sequence.or(first);
            let first_sequence = first.unwrap_or(scan.largest_sequence + 1);
            replayed.infos.push(SegmentInfo { number: *number, first_sequence, bytes: bytes.len() as u64, range });
        }
        Ok(replayed)
    }

    /// Takes in what concerns the folder, and hands the shards what is theirs. Returns the times of the record's rows.
    fn hand_out(
        &mut self,
        (frame, path): (&Frame<'_>, &Arc<PathBuf>),
        catalog_since: &mut Option<u64>,
        handed_out: &mut HandedOut,
        queues: &[SyncSender<Item>],
    ) -> Result<TimeRange, StoreError> {
        let (sequence, corrupt) = (frame.sequence, corrupt_at(path, frame.sequence));
        self.recovery.log_records += 1;
        if frame.kind == record::GROUPS {
            let shard = record::groups_shard(frame.payload).map_err(corrupt)?;
            let piece = Item::Groups { sequence, payload: frame.payload.to_vec(), path: Arc::clone(path) };
            hand_to(queues, shard, piece);
            return Ok(TimeRange::EMPTY);
        }
        let mut range = TimeRange::EMPTY;
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
            Record::Exemplars(entries) => {
                range = exemplars::times_of(&entries);
                self.exemplars.replay(entries, sequence, self.options.exemplars_max);
            }
            Record::Rows(shards, sent) => {
                if let Some(sent) = sent {
                    self.producers.replay(sent, sequence, self.options.producers_max);
                }
                if let Some(journal) = &mut self.journal {
                    journal.record(sequence, &shards, self.platform.clock.now_ns());
                }
                let columns = handed_out.columns(&self.catalog);
                for rows in shards {
                    range = range.union(rows.range());
                    hand_to(queues, rows.shard, Item::Rows { sequence, rows, columns: columns.clone() });
                }
            }
            Record::Groups { .. } | Record::Mark => {}
        }
        Ok(range)
    }
}

/// Segments after those that were given up. Their numbers follow one another, and the manifest and the note know the last one.
pub(crate) fn needed_segments_of(
    state: &State,
    has_editions: bool,
    note: Option<Note>,
    names: &[String],
) -> (Vec<u32>, BTreeSet<u32>) {
    let segments = needed_segments(state, has_editions, note, names);
    (segments.numbers, segments.missing)
}

fn needed_segments(state: &State, has_editions: bool, note: Option<Note>, names: &[String]) -> Segments {
    let released = state.log_released;
    let present: BTreeSet<u32> =
        names.iter().filter_map(|name| segment_number(name)).filter(|number| *number > released).collect();
    let last_present = present.last().copied().unwrap_or(released);
    let noted = note.map_or(0, |note| note.newest).max(state.log_ends.keys().last().copied().unwrap_or(0));
    let newest = last_present.max(noted);
    // Earlier versions gave up a segment before they said so.
    let (first, last) = if has_editions {
        (released.saturating_add(1), newest)
    } else {
        (present.first().copied().unwrap_or(u32::MAX), last_present)
    };
    let missing: BTreeSet<u32> = (first..=last).filter(|number| !present.contains(number)).collect();
    let numbers = present.union(&missing).copied().collect();
    Segments { numbers, missing, newest }
}

/// Knowledge of the log before it is read. A note of an earlier opening says nothing of the last one, which then wrote nothing.
pub(crate) fn scan_start(state: &State, epoch: u64, note: Option<Note>) -> ScanStart {
    let flushed = |shard: u32| state.flushed.get(&shard).copied().unwrap_or(0);
    ScanStart {
        in_parts_through: (0..state.shards).map(flushed).min().unwrap_or(0),
        last_run: note.filter(|note| note.epoch == epoch),
    }
}

fn corrupt_at(path: &Path, sequence: u64) -> impl Fn(codec::DecodeError) -> StoreError + '_ {
    move |error| StoreError::corrupt(path, error.offset as u64, format!("record {sequence}: {}", error.what))
}

/// A shard that is not there has no thread, and one whose thread ended has an error that is told when it is joined.
fn hand_to(queues: &[SyncSender<Item>], shard: usize, piece: Item) {
    if let Some(queue) = queues.get(shard) {
        let _ = queue.send(piece);
    }
}

/// A shard's thread.
fn apply_items(shard: &Shard, flushed: u64, items: &Receiver<Item>) -> Result<AppliedRows, StoreError> {
    let mut applied = AppliedRows { rows: 0, rows_lost: 0, lost: TimeRange::EMPTY };
    for piece in items {
        match piece {
            Item::Groups { sequence, payload, path } => apply_groups(shard, sequence, &payload, &path)?,
            Item::Rows { sequence, mut rows, columns } if sequence > flushed => {
                if let Some(columns) = columns {
                    mend_columns(shard, (sequence, &mut rows), &columns, &mut applied)?;
                }
                apply_rows(shard, sequence, rows, &mut applied);
            }
            Item::Rows { .. } => {}
        }
    }
    Ok(applied)
}

fn apply_groups(shard: &Shard, sequence: u64, payload: &[u8], path: &Path) -> Result<(), StoreError> {
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

/// Leaves out rows that have columns of which no record tells: later columns get their slots. Where only the record is lost that gave a group
/// a column, it has it again.
fn mend_columns(
    shard: &Shard,
    (sequence, rows): (u64, &mut ShardRows),
    columns: &KnownColumns,
    applied: &mut AppliedRows,
) -> Result<(), StoreError> {
    let mut index = shard.groups.write();
    let unreadable = StoreError::index(Path::new("log"));
    for block in &mut rows.blocks {
        let slots: Vec<Slot> = block.columns.iter().map(|(slot, _)| *slot).collect();
        let mut unknown = BTreeSet::new();
        for group in block.groups.iter().copied().collect::<BTreeSet<GroupId>>() {
            let Some((_, measurement)) = index.groups.family(group).map_err(&unreadable)? else { continue };
            if !columns.has(measurement, &slots) {
                unknown.insert(group);
            } else if index.groups.extend(group, &slots).map_err(&unreadable)? {
                index.unsaved_since.get_or_insert(sequence);
            }
        }
        if unknown.is_empty() {
            continue;
        }
        let before = block.rows();
        let times = block.groups.iter().zip(&block.timestamps_ns).filter(|(group, _)| unknown.contains(group));
        applied.lost = applied.lost.union(TimeRange::from_timestamps(times.map(|(_, timestamp_ns)| timestamp_ns)));
        block.retain_groups(|group| !unknown.contains(&group));
        applied.rows_lost += (before - block.rows()) as u64;
    }
    Ok(())
}

fn apply_rows(shard: &Shard, sequence: u64, mut rows: ShardRows, applied: &mut AppliedRows) {
    let known = shard.groups.read().groups.next_id();
    let all: u64 = rows.blocks.iter().map(|block| block.rows() as u64).sum();
    // Their numbers will be given to others: rows of groups that nothing tells of must not wait for them.
    if rows.blocks.iter().flat_map(|block| &block.groups).any(|group| *group >= known) {
        applied.lost = applied.lost.union(rows.range());
    }
    rows.blocks.iter_mut().for_each(|block| block.retain_groups(|group| group < known));
    let kept = rows.blocks.iter().map(|block| block.rows() as u64).sum::<u64>();
    applied.rows_lost += all - kept;
    applied.rows += kept;
    shard.apply(&mut shard.state.lock(), &rows, sequence);
}
