//! How parsing fails: one line, or the whole body.

use std::collections::BTreeMap;
use std::{fmt, io};

use model::RejectionKind;

/// A line (or item) that was left out, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineError {
    /// Counted from 1.
    pub line: u32,
    /// What the reason is about.
    pub kind: RejectionKind,
    /// For the user.
    pub reason: String,
}

/// The lines that were left out: the first ones in full, all of them counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LineErrors {
    /// The first ones, at most [`crate::Limits::errors_max`].
    pub first: Vec<LineError>,
    /// How many there were.
    pub total: u64,
    /// How many of them broke which limit, by the limit's name; the others could not be read.
    pub by_limit: BTreeMap<&'static str, u64>,
}

/// Limits by the names that reasons give them, in parentheses.
const LIMIT_NAMES: [&str; 14] = [
    "ahead_ms_max",
    "exemplars_max",
    "fields_max",
    "histograms_max",
    "key_bytes_max",
    "keys_bytes_max",
    "layouts_max",
    "line_bytes_max",
    "metadata_max",
    "name_bytes_max",
    "otlp_delta_bytes_max",
    "otlp_delta_series_max",
    "rows_max",
    "tags_max",
];

/// The limit that a reason names.
pub fn limit_named(reason: &str) -> Option<&'static str> {
    let (_, behind) = reason.rsplit_once('(')?;
    let (name, _) = behind.split_once(')')?;
    LIMIT_NAMES.into_iter().find(|limit| *limit == name)
}

impl LineErrors {
    /// Adds a line that cannot be read.
    pub fn push(&mut self, errors_max: usize, line: u32, reason: impl FnOnce() -> String) {
        self.push_error(errors_max, LineError { line, kind: RejectionKind::Unreadable, reason: reason() });
    }

    /// Adds a line.
    pub fn push_error(&mut self, errors_max: usize, error: LineError) {
        self.total += 1;
        if let Some(limit) = limit_named(&error.reason) {
            *self.by_limit.entry(limit).or_default() += 1;
        }
        if self.first.len() < errors_max {
            self.first.push(error);
        }
    }

    /// Whether no line was left out.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }
}

/// Why nothing of a body could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyError {
    /// It is larger than allowed.
    TooLarge {
        /// The limit in bytes.
        size_bytes_max: u64,
        /// What the limit is about.
        limit: &'static str,
    },
    /// It is not what it should be; the message says where and what.
    Malformed(String),
    /// There is no memory for what it unpacks to at present.
    NoMemory,
}

impl fmt::Display for BodyError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { size_bytes_max, limit } => write!(formatter, "{limit}: at most {size_bytes_max} bytes"),
            Self::Malformed(message) => formatter.write_str(message),
            Self::NoMemory => {
                formatter.write_str("there is no memory for the unpacked body at present; send it again later")
            }
        }
    }
}

impl std::error::Error for BodyError {}

/// What a reader of a [`crate::Body`] failed with; other errors are of the reading.
impl From<io::Error> for BodyError {
    fn from(error: io::Error) -> Self {
        error.downcast().unwrap_or_else(|error| Self::Malformed(format!("the body could not be read: {error}")))
    }
}
