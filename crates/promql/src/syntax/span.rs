//! Positions in an expression's text, and errors that point at them.

use std::fmt;

/// A range of an expression's text, in bytes; the end is exclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct Span {
    /// Its first byte.
    pub(crate) start: usize,
    /// One past its last byte.
    pub(crate) end: usize,
}

impl Span {
    pub(crate) const fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }

    /// From the start of this to the end of another.
    pub(crate) const fn to(self, other: Self) -> Self {
        Self { start: self.start, end: other.end }
    }

    /// Line and column of the start, both from 1, as Prometheus counts them: columns are bytes.
    pub(crate) fn position(&self, text: &str) -> String {
        if text.is_empty() {
            return "unknown position".to_owned();
        }
        let Some(before) = text.as_bytes().get(..self.start) else { return "invalid position".to_owned() };
        let line = before.split(|byte| *byte == b'\n').count();
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |position| position + 1);
        format!("{line}:{}", self.start - line_start + 1)
    }
}

/// Why a text is no PromQL, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParseError {
    /// The part that is wrong.
    pub(crate) span: Span,
    /// The message, in Prometheus's words.
    pub(crate) message: String,
}

/// The result of parsing a part of the text.
pub(super) type ParseResult<T> = Result<T, ParseError>;

impl ParseError {
    pub(crate) fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into() }
    }

    /// The whole message, with line and column.
    pub(crate) fn with_position(&self, text: &str) -> String {
        format!("{}: {self}", self.span.position(text))
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "parse error: {}", self.message)
    }
}

/// An empty span.
impl From<usize> for Span {
    fn from(start: usize) -> Self {
        Self { start, end: start }
    }
}
