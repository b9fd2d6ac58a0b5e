//! Text to expressions.

pub(crate) mod ast;
pub(crate) mod lex;
pub(crate) mod parse;

use std::fmt;

/// Bytes that a script may have.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// A place in a script: line and column, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.line, self.column)
    }
}

/// A fault of a script and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FluxError {
    /// Where.
    pub at: Position,
    /// What.
    pub message: String,
}

impl FluxError {
    pub(crate) fn new(at: Position, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

impl fmt::Display for FluxError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "error @{}: {}", self.at, self.message)
    }
}

impl From<FluxError> for query::QueryError {
    fn from(error: FluxError) -> Self {
        Self::Invalid(error.to_string())
    }
}
