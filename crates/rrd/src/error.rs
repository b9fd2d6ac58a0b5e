//! Errors of everything about RRD files.

use std::fmt;

use query::QueryError;

/// Why something could not be done.
#[derive(Debug)]
pub enum RrdError {
    /// Input is wrong. Holds what, where, and what to do.
    Invalid(String),
    /// There is no file of that path. Holds the path.
    NotFound(String),
    /// The database cannot take it now; it can be sent again.
    Refused(String),
    /// Reading the database failed.
    Query(QueryError),
}

impl RrdError {
    /// One of wrong input.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Invalid(message.into())
    }
}

impl fmt::Display for RrdError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(message) | Self::Refused(message) => formatter.write_str(message),
            Self::NotFound(path) => write!(formatter, "No such file: {path}"),
            Self::Query(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for RrdError {}

impl From<QueryError> for RrdError {
    fn from(error: QueryError) -> Self {
        Self::Query(error)
    }
}
