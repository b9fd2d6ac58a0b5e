//! Why nothing can be drawn.

use std::fmt;

/// Why nothing can be drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlotError {
    /// The request is not possible. Holds the message, which says what to do.
    Invalid(String),
    /// It would be larger than a limit.
    TooLarge {
        /// The things that are counted.
        what: &'static str,
        /// How many there would be.
        count: u64,
        /// The limit.
        limit: u64,
        /// The limit's name.
        limit_name: &'static str,
    },
    /// A picture could not be written.
    Encoding(String),
}

impl fmt::Display for PlotError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(message) => out.write_str(message),
            Self::TooLarge { what, count, limit, limit_name } => {
                write!(out, "the plot would have {count} {what}; at most {limit} are drawn ({limit_name})")
            }
            Self::Encoding(message) => write!(out, "the picture cannot be written: {message}"),
        }
    }
}

impl std::error::Error for PlotError {}
