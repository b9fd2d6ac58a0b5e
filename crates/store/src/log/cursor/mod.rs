//! Cursors: readers of the log. Those with a name go on after a restart where they were.
//!
//! A cursor gets what was written, in order of sequence ids, once it is on disk. Its position is a document of the manifest; what it has not
//! read yet is retained when the log is released, up to `log_retained_bytes_max`. A cursor that falls further behind gets a [`LogGap`] in place
//! of the records, and reads their time from the store. A cursor without a name reads what is there and holds nothing back.
//!
//! * this file: reading · [`release`]: what stays of a log that is released
//! * [`position`], [`retained`]: what the documents say · [`read`]: segments · [`rows`]: records as samples of series

mod position;
mod read;
mod release;
mod retained;
mod rows;

use std::path::Path;
use std::sync::{Arc, Weak};

use model::TimeRange;

use crate::log::listeners::CommitListener;
use crate::log::record;
use crate::{Store, StoreError, TenantMemory};
use read::{Extent, Offset, RawRecord, ReadableSegment, Window, WindowRequest, read_window};

pub use release::CursorStats;
pub(crate) use release::{Cursors, retained_segments};
pub(crate) use retained::{retained_number, retained_path};
pub(crate) use rows::LogSeriesCache;
pub use rows::{LogRecord, LogSample, LogSeries, LogValue};

/// Bytes of the log that are read at once, if no record is longer.
const WINDOW_BYTES: usize = 256 << 10;

/// Bytes that records may take once they are decoded, for each byte in the log. Labels are shared.
const DECODED_RATIO: u64 = 16;

/// How often a segment is looked for that was released while it was to be read.
const ATTEMPTS_MAX: usize = 5;

/// Records that a cursor gets no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogGap {
    /// Sequence ids of the first and the last of them.
    pub sequences: (u64, u64),
    /// The times of their rows: those are in the store, among others. Empty if they had none, and all times if that is not known.
    pub range: TimeRange,
}

/// Records that a cursor read.
#[derive(Debug)]
pub struct LogBatch {
    /// In order of sequence ids, those that have nothing for the cursor left out.
    pub records: Vec<LogRecord>,
    /// Sequence id of the last record that was read.
    pub last_sequence: u64,
    /// Their memory.
    pub memory: LogLease,
}

/// What comes next for a cursor.
#[derive(Debug)]
pub enum LogRead {
    /// Nothing more is on disk.
    End,
    /// Records.
    Records(LogBatch),
    /// Records that are not there any more.
    Gap(LogGap),
}

/// Bytes of the memory that all queries share, accounted for records as long as this is there.
#[derive(Debug)]
pub struct LogLease {
    memory: Arc<TenantMemory>,
    bytes: u64,
}

impl LogLease {
    fn take(memory: Arc<TenantMemory>, bytes: u64) -> Result<Self, StoreError> {
        if memory.take(bytes, 0) {
            return Ok(Self { memory, bytes });
        }
        let pool = memory.pool();
        Err(StoreError::Invalid(format!(
            "no {bytes} bytes are free to read the log: queries hold {} of the {} that they may; raise memory_bytes_max",
            pool.used_bytes(),
            pool.bytes_max
        )))
    }

    /// How many they are.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives back what is more than so many bytes.
    fn shrink(&mut self, bytes: u64) {
        let excess = self.bytes.saturating_sub(bytes);
        self.bytes -= excess;
        self.memory.give_back(excess);
    }
}

impl Drop for LogLease {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}

/// A reader of the log. One at a time reads under a name; one without a name is not saved and holds nothing back.
pub struct LogCursor {
    store: Arc<Store>,
    name: Option<String>,
    database: Option<String>,
    /// True if of each row one sample is read.
    rows_alone: bool,
    /// The memory of its records.
    memory: Arc<TenantMemory>,
    /// Sequence id of the last record that was read.
    sequence: u64,
    offset: Offset,
    /// True if the catalog changed since this was asked last.
    has_new_catalog: bool,
}

impl std::fmt::Debug for LogCursor {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("LogCursor").field("name", &self.name).finish_non_exhaustive()
    }
}

impl LogCursor {
    /// Opens a cursor where it was saved last; a new one at the end of what is written. It reads one database, or all.
    ///
    /// # Errors
    /// As every change of the manifest, where the cursor is new.
    pub fn open(store: &Arc<Store>, name: &str, database: Option<&str>) -> Result<Self, StoreError> {
        let sequence = store.open_cursor(name)?;
        Ok(Self { name: Some(name.to_owned()), ..Self::open_after(store, database, sequence) })
    }

    /// Opens a cursor without a name after a sequence id: nothing of the log is retained for it, and a gap says no times.
    pub fn open_after(store: &Arc<Store>, database: Option<&str>, sequence: u64) -> Self {
        Self {
            store: store.clone(),
            name: None,
            database: database.map(ToOwned::to_owned),
            rows_alone: false,
            memory: store.memory.queries().tenant(),
            sequence,
            offset: Offset::default(),
            has_new_catalog: true,
        }
    }

    /// Has it read one sample of each row, for readers who want to know which rows changed:
    /// [`LogRecord::samples_of_rows`] says how many there are.
    #[must_use]
    pub const fn of_rows(mut self) -> Self {
        self.rows_alone = true;
        self
    }

    /// Sequence id of the last record that was read.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns whether names, types or metadata may have become more since the last call.
    pub const fn take_new_catalog(&mut self) -> bool {
        std::mem::replace(&mut self.has_new_catalog, false)
    }

    /// Reads on: some records, or that they are not there any more.
    ///
    /// # Errors
    /// If the log cannot be read, or there is no memory for it at present: a later call may succeed.
    pub fn read(&mut self) -> Result<LogRead, StoreError> {
        let memory = self.memory.clone();
        let first_bytes = first_window_bytes(memory.pool().bytes_max);
        let mut window_bytes = first_bytes;
        let mut attempts = 0;
        loop {
            if self.sequence >= self.store.log.stats().durable {
                return Ok(LogRead::End);
            }
            let Some(segment) = self.next_segment() else { return Ok(self.gap_to(u64::MAX)) };
            if segment.sequences.0 > self.sequence + 1 {
                return Ok(self.gap_to(segment.sequences.0 - 1));
            }
            let bytes = decoded_bytes(window_bytes);
            if window_bytes > first_bytes && !memory.pool().may_ever_hold(bytes) {
                // A record that memory never has room for: its time is read from the store.
                return Ok(self.give_up(&segment));
            }
            let lease = LogLease::take(memory.clone(), bytes)?;
            let request = WindowRequest { from: self.offset, after: self.sequence, bytes: window_bytes };
            let window = match read_window(&*self.store.platform.files, &segment, request) {
                // It was released meanwhile: under its other name, or not at all.
                Err(StoreError::Io { error, .. })
                    if error.kind() == std::io::ErrorKind::NotFound && attempts < ATTEMPTS_MAX =>
                {
                    attempts += 1;
                    continue;
                }
                read => read?,
            };
            if window.records.is_empty() && window.extent == Extent::More {
                if window.consumed == 0 {
                    window_bytes = window_bytes.saturating_mul(2);
                }
                // Otherwise it has records that were read before alone: those after it come next.
                self.offset = window.next;
                continue;
            }
            if let Some(read) = self.take(&segment, &window, lease)? {
                return Ok(read);
            }
        }
    }

    /// Notes that everything up to a sequence id is done with: it is not read again, whatever happens. Durable when this returns.
    ///
    /// # Errors
    /// [`StoreError::Invalid`] if it has no name; otherwise as every change of the manifest.
    pub fn save(&self, sequence: u64) -> Result<(), StoreError> {
        match &self.name {
            Some(name) => self.store.save_log_cursor(name, sequence),
            None => Err(StoreError::Invalid("a cursor without a name has no position to save".to_owned())),
        }
    }

    /// The segment that has the next record, or the first after it.
    fn next_segment(&self) -> Option<ReadableSegment> {
        let segments = self.store.readable_segments();
        segments.into_iter().find(|segment| segment.sequences.1 > self.sequence)
    }

    /// Takes what a window has; `None`: nothing for this cursor.
    fn take(
        &mut self,
        segment: &ReadableSegment,
        window: &Window,
        mut lease: LogLease,
    ) -> Result<Option<LogRead>, StoreError> {
        let records = window.records.iter().map(|raw| self.decode(&segment.path, window, raw));
        let records: Vec<LogRecord> = records.collect::<Result<_, _>>()?;
        // A receiver that is down holds this for long.
        let skipped = window.records.first().map_or(0, |first| first.payload.start);
        lease.shrink(decoded_bytes(window.consumed.saturating_sub(skipped)));
        if window.extent == Extent::Damaged && window.records.is_empty() {
            return Ok(Some(self.give_up(segment)));
        }
        self.has_new_catalog |= window.records.iter().any(|raw| raw.kind == record::CATALOG);
        self.offset = window.next;
        self.sequence = match (window.extent, window.records.last()) {
            (Extent::Whole, _) | (_, None) => segment.sequences.1,
            (_, Some(last)) => last.sequence,
        };
        let records: Vec<LogRecord> = records.into_iter().filter(has_content).collect();
        let last_sequence = self.sequence;
        Ok((!records.is_empty()).then_some(LogRead::Records(LogBatch { records, last_sequence, memory: lease })))
    }

    fn decode(&self, path: &Path, window: &Window, raw: &RawRecord) -> Result<LogRecord, StoreError> {
        let payload = window.bytes.get(raw.payload.clone()).unwrap_or_default();
        let decoded = record::decode(raw.kind, payload).map_err(|error| {
            StoreError::corrupt(path, error.offset as u64, format!("record {}: {}", raw.sequence, error.what))
        })?;
        let wanted = rows::Wanted { database: self.database.as_deref(), rows_alone: self.rows_alone };
        self.store.log_record(raw.sequence, &decoded, wanted)
    }

    /// Goes on after a segment's records.
    const fn give_up(&mut self, segment: &ReadableSegment) -> LogRead {
        let gap = LogGap { sequences: (self.sequence + 1, segment.sequences.1), range: segment.range };
        self.sequence = segment.sequences.1;
        LogRead::Gap(gap)
    }

    /// Goes on after records that are not there any more.
    fn gap_to(&mut self, last: u64) -> LogRead {
        let last = last.min(self.store.log.stats().durable);
        let range = self.name.as_ref().map_or(TimeRange::ALL, |name| self.store.lost_range(name, last));
        let gap = LogGap { sequences: (self.sequence + 1, last), range };
        self.sequence = last;
        LogRead::Gap(gap)
    }
}

/// Bytes of the first window: as many as half of all memory has room for, once they are decoded.
fn first_window_bytes(pool_bytes_max: u64) -> usize {
    let fits = usize::try_from(pool_bytes_max / (2 * (1 + DECODED_RATIO))).unwrap_or(WINDOW_BYTES);
    fits.clamp(1, WINDOW_BYTES)
}

/// Bytes that so many of the log take with what they are decoded to.
const fn decoded_bytes(log_bytes: usize) -> u64 {
    (log_bytes as u64).saturating_mul(1 + DECODED_RATIO)
}

fn has_content(record: &LogRecord) -> bool {
    !(record.samples.is_empty() && record.exemplars.is_empty() && record.starts_ns.is_empty())
}

impl Store {
    /// Has a listener called whenever more of the log is on disk, as long as it is there. It must return at once.
    pub fn listen_to_commits(&self, listener: Weak<dyn CommitListener>) {
        self.log.listen(listener);
    }

    /// Sequence id up to which everything is on disk.
    pub fn durable_sequence(&self) -> u64 {
        self.log.stats().durable
    }
}
