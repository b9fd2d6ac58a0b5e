//! What can go wrong with an index.

use std::fmt;
use std::io;

use codec::DecodeError;

/// Why the index could not do what was asked.
#[derive(Debug)]
pub enum IndexError {
    /// The bytes of a segment are not what was written.
    Damaged {
        /// The segment's number.
        segment: u64,
        /// Where in it.
        offset: u64,
        /// The fault there.
        what: &'static str,
    },
    /// A segment could not be written.
    Io(io::Error),
    /// No more groups can be taken.
    Full(&'static str),
    /// The caller stopped the work, or had no memory for more of it.
    Refused,
}

impl IndexError {
    pub(crate) fn damaged(segment: u64) -> impl Fn(DecodeError) -> Self {
        move |error| Self::Damaged { segment, offset: error.offset as u64, what: error.what }
    }
}

impl fmt::Display for IndexError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { segment, offset, what } => {
                write!(formatter, "index segment {segment} is damaged at offset {offset}: {what}")
            }
            Self::Io(error) => write!(formatter, "cannot write an index segment: {error}"),
            Self::Full(what) => formatter.write_str(what),
            Self::Refused => formatter.write_str("the caller stopped the work on the index"),
        }
    }
}

impl std::error::Error for IndexError {}

impl From<io::Error> for IndexError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
