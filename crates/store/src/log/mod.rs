//! The write-ahead log: one per data folder, a request one record, records numbered by their sequence ids.
//!
//! * [`frame`]: a record's bytes in a segment, and what is wrong with those that are none.
//! * [`record`]: what the records say.
//! * [`writer`]: appending, group commit, rotation, recycling.
//! * [`reader`]: reading segments back after a crash.
//!
//! Layout: `docs/formats/log.md`.

pub(crate) mod frame;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod writer;

use std::path::{Path, PathBuf};

/// The file of a segment.
pub(crate) fn segment_path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number:010}.log"))
}

/// The number of the segment that a file name stands for.
pub(crate) fn segment_number(name: &str) -> Option<u32> {
    name.strip_suffix(".log")?.parse().ok()
}
