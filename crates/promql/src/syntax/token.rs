//! The tokens of an expression.

use crate::syntax::span::Span;

/// The kind of a token. Words are in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    End,
    /// The scanner failed; it returns the message with the tokens.
    Error,
    /// Punctuation: one of `( ) { } [ ] , : =`.
    Mark(char),
    Identifier,
    /// A name with a colon in it.
    MetricIdentifier,
    Number,
    Duration,
    Text,
    Operator(&'static str),
    Aggregator(&'static str),
    Keyword(&'static str),
    /// `start`, `end`, `step`, `range`, `max_of`, `min_of`.
    Preprocessor(&'static str),
}

/// A token and its position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) span: Span,
}
