//! The state of a connection.

use std::ops::Range;

use super::arguments::Arguments;
use super::table::Spec;
use super::waiting::Waiting;

/// The state of a connection.
#[derive(Debug)]
pub struct Session {
    /// Its number, which no other connection has.
    pub(super) id: u64,
    /// The number of the database that it has chosen.
    pub(super) database: u32,
    /// True if replies are in RESP3.
    pub(super) is_resp3: bool,
    /// What the client calls itself.
    pub(super) name: String,
    /// The client's library and its version, as it says.
    pub(super) library: (String, String),
    /// Commands since MULTI.
    pub(super) transaction: Option<Transaction>,
    /// The samples that its client waits for.
    pub(super) waiting: Option<Waiting>,
}

/// Commands that wait for EXEC.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    pub(super) commands: Vec<Queued>,
    pub(super) bytes: usize,
    /// True after a command that could not be queued.
    pub(super) has_failed: bool,
}

/// A command that waits.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) spec: &'static Spec,
    input: Vec<u8>,
    ranges: Vec<Range<usize>>,
}

impl Queued {
    pub(super) fn new(spec: &'static Spec, mut arguments: Arguments<'_>) -> Self {
        let (mut input, mut ranges) = (Vec::new(), Vec::with_capacity(arguments.len()));
        while let Some(argument) = arguments.next() {
            let start = input.len();
            input.extend_from_slice(argument);
            ranges.push(start..input.len());
        }
        Self { spec, input, ranges }
    }

    pub(super) fn arguments(&self) -> Arguments<'_> {
        Arguments::new(&self.input, &self.ranges)
    }

    /// Bytes in memory.
    pub(super) fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.input.len() + self.ranges.len() * size_of::<Range<usize>>()
    }
}

impl Session {
    pub(super) fn new(id: u64) -> Self {
        let library = (String::new(), String::new());
        Self { id, database: 0, is_resp3: false, name: String::new(), library, transaction: None, waiting: None }
    }

    /// Bytes of the commands that wait for EXEC.
    pub(super) fn queued_bytes(&self) -> usize {
        self.transaction.as_ref().map_or(0, |transaction| transaction.bytes)
    }

    /// The samples that its client waits for, if it does.
    pub const fn waiting(&self) -> Option<&Waiting> {
        self.waiting.as_ref()
    }

    /// Returns whether commands wait for EXEC.
    pub const fn is_in_transaction(&self) -> bool {
        self.transaction.is_some()
    }
}
