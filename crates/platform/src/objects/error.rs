//! What can go wrong with objects, by what the caller does next.

use std::fmt;
use std::io;

/// What the caller of an object store does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectErrorKind {
    /// There is no such object.
    Missing,
    /// The condition of a put does not hold: someone else wrote. Read again, then decide.
    Conflict,
    /// The store is slow, overloaded or out of reach, and stayed so through all retries. May pass: try again later.
    Busy,
    /// The credentials are missing, wrong, expired, or not allowed to do this.
    Denied,
    /// A setting is wrong: an address, a bucket, a region, a key. Does not pass by itself.
    Config,
    /// Anything else: a short answer, a failing disk, an answer that makes no sense.
    Other,
}

/// Why an object store did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectError {
    /// What to do about it.
    pub kind: ObjectErrorKind,
    /// The action, its object and its place.
    pub action: String,
    /// The store's message.
    pub message: String,
}

impl ObjectError {
    /// An error of a kind: what was being done, and what was found.
    pub fn new(kind: ObjectErrorKind, action: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, action: action.into(), message: message.into() }
    }

    /// An error of the file system.
    pub(crate) fn io(action: impl Into<String>, error: &io::Error) -> Self {
        use io::ErrorKind as Io;
        let kind = match error.kind() {
            Io::NotFound => ObjectErrorKind::Missing,
            Io::AlreadyExists => ObjectErrorKind::Conflict,
            Io::PermissionDenied | Io::ReadOnlyFilesystem => ObjectErrorKind::Denied,
            Io::StorageFull | Io::QuotaExceeded | Io::TimedOut | Io::ResourceBusy => ObjectErrorKind::Busy,
            Io::NotADirectory | Io::IsADirectory | Io::InvalidFilename => ObjectErrorKind::Config,
            _ => ObjectErrorKind::Other,
        };
        Self::new(kind, action, error.to_string())
    }

    fn remedy(&self) -> &'static str {
        match self.kind {
            ObjectErrorKind::Missing | ObjectErrorKind::Other => "",
            ObjectErrorKind::Conflict => "; another process writes there: make sure that only one does",
            ObjectErrorKind::Busy => "; this may pass and is tried again later",
            ObjectErrorKind::Denied => "; check the credentials and what they are allowed to do",
            ObjectErrorKind::Config => "; correct the setting",
        }
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cannot {}: {}{}", self.action, self.message, self.remedy())
    }
}

impl std::error::Error for ObjectError {}
