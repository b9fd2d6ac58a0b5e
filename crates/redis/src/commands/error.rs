//! Errors that clients are told: a word in capitals, then words for people, as Redis and `RedisTimeSeries` say them where they know the case.

use std::borrow::Cow;
use std::fmt;

use db::StoreError;
use query::QueryError;

/// Why a command was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandError {
    /// Its arguments are not those of the command.
    Syntax,
    /// It has too few or too many; the command's name.
    Arity(String),
    /// Any other reason, as the client is told it.
    Other(Cow<'static, str>),
}

impl CommandError {
    /// A reason with its word.
    pub(crate) fn other(text: impl Into<String>) -> Self {
        Self::Other(Cow::Owned(text.into()))
    }

    /// A reason of time series.
    pub(crate) const fn series(text: &'static str) -> Self {
        Self::Other(Cow::Borrowed(text))
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax => f.write_str("ERR syntax error"),
            Self::Arity(name) => write!(f, "ERR wrong number of arguments for '{name}' command"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for CommandError {}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> Self {
        Self::other(format!("ERR {error}"))
    }
}

impl From<QueryError> for CommandError {
    fn from(error: QueryError) -> Self {
        Self::other(format!("ERR {error}"))
    }
}

/// No such key.
pub(crate) const NO_KEY: CommandError = CommandError::series("TSDB: the key does not exist");
