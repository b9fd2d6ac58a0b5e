//! How far a long piece of upkeep is.

/// How far it is, told with every file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// What is being worked on.
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
