//! How far long work is: upkeep, and the opening of a folder.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// How far the opening of a folder is; shared with callers that cannot use the folder yet.
#[derive(Debug, Default)]
pub struct OpeningProgress {
    log_bytes: AtomicU64,
    log_bytes_total: AtomicU64,
}

impl OpeningProgress {
    /// Replaying begins, of so many bytes.
    pub(crate) fn begin_log(&self, bytes_total: u64) {
        self.log_bytes.store(0, Ordering::Relaxed);
        self.log_bytes_total.store(bytes_total, Ordering::Relaxed);
    }

    pub(crate) fn add_log_bytes(&self, bytes: u64) {
        self.log_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of the log that were replayed.
    pub fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the log that there are; 0 until they are known.
    pub fn log_bytes_total(&self) -> u64 {
        self.log_bytes_total.load(Ordering::Relaxed)
    }
}

impl fmt::Display for OpeningProgress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, bytes_total) = (self.log_bytes(), self.log_bytes_total());
        if bytes_total == 0 {
            return formatter.write_str("the manifest, the index and parts are being read");
        }
        write!(formatter, "{bytes} of {bytes_total} bytes of the log are replayed")
    }
}

/// The state of long work, reported with every file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// The file or step that is being worked on.
    pub what: String,
    /// Bytes done.
    pub bytes: u64,
    /// Bytes there are to do, as far as is known.
    pub bytes_total: u64,
}

/// Counts bytes and reports the progress.
pub(crate) struct Meter<'a> {
    progress: Progress,
    tell: &'a mut dyn FnMut(&Progress),
}

impl<'a> Meter<'a> {
    pub(crate) fn new(bytes_total: u64, tell: &'a mut dyn FnMut(&Progress)) -> Self {
        Self { progress: Progress { bytes_total, ..Progress::default() }, tell }
    }

    /// Something else is being worked on.
    pub(crate) fn begin(&mut self, what: impl Into<String>) {
        self.progress.what = what.into();
        (self.tell)(&self.progress);
    }

    /// So many more bytes are done.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.progress.bytes += bytes;
        (self.tell)(&self.progress);
    }

    /// Bytes done.
    pub(crate) fn bytes(&self) -> u64 {
        self.progress.bytes
    }
}
