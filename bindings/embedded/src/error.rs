//! Why something failed: a code that says what a caller can do, and a message for people.

use std::fmt;

use db::{StoreError, WriteError};
use query::QueryError;
use sql::SqlError;

/// Kinds of errors, by what a caller can do. The numbers are those of the C interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Code {
    /// The argument, or the text of the query, is wrong: change it.
    Invalid = 1,
    /// There is no such table, column or series.
    NotFound = 2,
    /// Another process has the folder open.
    Locked = 3,
    /// A file is not what was written, or rows are lost: see the message, and `thalweg check`.
    Corrupt = 4,
    /// The operating system or the storage refused.
    Io = 5,
    /// It needs more memory or samples than it may have: ask for less at once, or raise the limit that the message names.
    Limit = 6,
    /// It was interrupted.
    Interrupted = 7,
    /// The database is closed.
    Closed = 8,
    /// This version cannot do it.
    Unsupported = 9,
    /// It cannot be done at present: try again later.
    Unavailable = 10,
    /// Some rows were left out; the others are written.
    Rejected = 11,
    /// A fault of this library: please report it.
    Internal = 12,
}

impl Code {
    /// Its name in small letters, as Python has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::NotFound => "not_found",
            Self::Locked => "locked",
            Self::Corrupt => "corrupt",
            Self::Io => "io",
            Self::Limit => "limit",
            Self::Interrupted => "interrupted",
            Self::Closed => "closed",
            Self::Unsupported => "unsupported",
            Self::Unavailable => "unavailable",
            Self::Rejected => "rejected",
            Self::Internal => "internal",
        }
    }
}

/// An error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Its kind.
    pub code: Code,
    /// What failed, where, and what to do.
    pub message: String,
}

impl Error {
    /// An error.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Of a wrong argument.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::Invalid, message)
    }

    /// Of a panic, which is a fault of this library.
    pub fn panicked(payload: &(dyn std::any::Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        Self::new(Code::Internal, format!("thalweg failed inside; please report it: {text}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Locked { .. } => Code::Locked,
            StoreError::Corrupt { .. } | StoreError::Lossy { .. } => Code::Corrupt,
            StoreError::Newer { .. } => Code::Unsupported,
            StoreError::Io { .. } | StoreError::Poisoned { .. } | StoreError::Objects(_) => Code::Io,
            StoreError::Invalid(_) | StoreError::ReadOnly => Code::Invalid,
        };
        Self::new(code, error.to_string())
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        let code = if matches!(error, WriteError::Invalid(_)) { Code::Invalid } else { Code::Unavailable };
        Self::new(code, error.to_string())
    }
}

impl From<QueryError> for Error {
    fn from(error: QueryError) -> Self {
        let code = match &error {
            QueryError::Invalid(_) | QueryError::Execution(_) | QueryError::Forbidden(_) => Code::Invalid,
            QueryError::Stopped(_) => Code::Interrupted,
            QueryError::TooManySamples { .. } | QueryError::TooMuchMemory { .. } | QueryError::OverQuota(_) => {
                Code::Limit
            }
            QueryError::Storage(_) => Code::Io,
        };
        Self::new(code, error.to_string())
    }
}

impl From<SqlError> for Error {
    fn from(error: SqlError) -> Self {
        let code = match &error {
            SqlError::Query(error) => return error.clone().into(),
            SqlError::UnknownTable(_) | SqlError::UnknownColumn(_) | SqlError::UnknownFunction(_) => Code::NotFound,
            SqlError::Unsupported(_) => Code::Unsupported,
            SqlError::Syntax(_) | SqlError::Invalid(_) | SqlError::Refused(..) => Code::Invalid,
        };
        Self::new(code, error.to_string())
    }
}
