//! The write-ahead log: one per data folder, a request one record, records numbered by their sequence ids.
//!
//! * [`frame`]: a record's bytes in a segment, and what is wrong with those that are none.
//! * [`record`]: what the records say.
//! * [`note`]: the newest segment, how far records are on disk, and what times they have ([`times`]).
//! * [`listeners`]: callbacks for commits.
//! * [`writer`]: appending, group commit, rotation, recycling.
//! * [`cursor`]: readers that go on after a restart where they were.
//! * [`reader`]: reading segments back after a crash; [`sums`]: checksums of what may be records after damage.
//!
//! Layout: `docs/formats/log.md`.

pub(crate) mod cursor;
pub(crate) mod frame;
pub(crate) mod listeners;
pub(crate) mod note;
pub(crate) mod reader;
pub(crate) mod record;
mod sums;
pub(crate) mod times;
pub(crate) mod writer;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Weak;

use model::TimeRange;

use crate::StoreError;
use listeners::CommitListener;
use writer::LogStats;

/// Bytes that a segment's file may have.
pub(crate) const LOG_SEGMENT_BYTES_MAX: u64 = 8 << 30;

/// A segment that holds records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LiveSegment {
    pub(crate) number: u32,
    /// The first sequence id in it, and the last that is on disk: a smaller one if none is.
    pub(crate) sequences: (u64, u64),
    pub(crate) bytes: u64,
    /// The times of its rows.
    pub(crate) range: TimeRange,
}

/// A record to append.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewRecord<'a> {
    pub(crate) kind: u8,
    pub(crate) payload: &'a [u8],
    /// The times of its rows; empty if it has none.
    pub(crate) range: TimeRange,
}

impl<'a> NewRecord<'a> {
    /// A record that has no rows.
    pub(crate) const fn without_rows(kind: u8, payload: &'a [u8]) -> Self {
        Self { kind, payload, range: TimeRange::EMPTY }
    }
}

/// A log that requests are made durable in before they are acknowledged, and replayed from at the next opening. Sequence ids
/// ascend by one; a log elsewhere (a partition of a message broker, whose offsets they would be) can take the place of the
/// files.
pub(crate) trait WriteAheadLog: Send + Sync {
    /// Appends a record and returns its sequence id. The record is durable after [`WriteAheadLog::commit`].
    fn append(&self, record: &NewRecord<'_>) -> Result<u64, StoreError>;

    /// Returns when every record up to the sequence id is durable.
    fn commit(&self, sequence: u64) -> Result<(), StoreError>;

    /// Fails if nothing may be written any more.
    fn check(&self) -> Result<(), StoreError>;

    /// Last sequence id given out.
    fn last_sequence(&self) -> u64;

    /// The log's numbers.
    fn stats(&self) -> LogStats;

    /// The segments that hold records, oldest first.
    fn segments(&self) -> Vec<LiveSegment>;

    /// Refuses everything from now on.
    fn poison(&self, reason: &str);

    /// The last segment whose records all have smaller sequence ids, if there is one that may be given up.
    fn releasable(&self, sequence: u64) -> Option<u32>;

    /// Gives up segments up to this one, which must be remembered before. The files of those that cursors need get another name.
    fn release(&self, through: u32, retained: &BTreeSet<u32>) -> Result<(), StoreError>;

    /// Has a listener called when more is on disk.
    fn listen(&self, listener: Weak<dyn CommitListener>);

    /// Writes down how far records are durable, so that damage to them is told from what a crash tore.
    fn note(&self) -> Result<(), StoreError>;

    /// Prepares room for records to come, away from the write path.
    fn prepare(&self) -> Result<(), StoreError>;
}

/// The file of a segment.
pub(crate) fn segment_path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number:010}.log"))
}

/// The number of the segment that a file name stands for.
pub(crate) fn segment_number(name: &str) -> Option<u32> {
    name.strip_suffix(".log")?.parse().ok()
}
