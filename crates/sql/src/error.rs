//! Why a statement gave no answer.

use std::fmt;

use query::QueryError;

/// Why a statement gave no answer; chosen by what its sender can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SqlError {
    /// The text is not SQL. Holds the message, which names line and column.
    Syntax(String),
    /// A column that does not exist. Holds the message.
    UnknownColumn(String),
    /// A table that does not exist. Holds the message.
    UnknownTable(String),
    /// A function that does not exist. Holds the message.
    UnknownFunction(String),
    /// The text is SQL but has no meaning here. Holds the message.
    Invalid(String),
    /// SQL that this layer does not have. Holds what.
    Unsupported(String),
    /// A statement that is refused for a reason of its own: the code that Postgres's clients know it by, and the message.
    Refused(&'static str, String),
    /// Its data or its limits.
    Query(QueryError),
}

impl SqlError {
    /// The code that Postgres's clients know it by (SQLSTATE).
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Syntax(_) => "42601",
            Self::UnknownColumn(_) => "42703",
            Self::UnknownTable(_) => "42P01",
            Self::UnknownFunction(_) => "42883",
            Self::Unsupported(_) => "0A000",
            Self::Refused(code, _) => code,
            Self::Query(QueryError::Stopped(_)) => "57014",
            Self::Query(QueryError::TooManySamples { .. } | QueryError::TooMuchMemory { .. }) => "53200",
            Self::Query(QueryError::OverQuota(_)) => "53400",
            Self::Query(QueryError::Storage(_)) => "58030",
            Self::Query(QueryError::Forbidden(_)) => "42501",
            Self::Invalid(_) | Self::Query(_) => "22023",
        }
    }
}

impl SqlError {
    /// How many characters of its text stand before the place of an error; `None` if the place is not known, as of errors that are not of the
    /// text alone.
    pub fn offset_in(&self, text: &str) -> Option<usize> {
        let Self::Syntax(message) = self else { return None };
        let Some((_, place)) = message.rsplit_once(" at Line: ") else {
            let is_at_end = message.ends_with("found: EOF") || message.ends_with("found: the end");
            return is_at_end.then(|| text.chars().count());
        };
        let (line, column) = place.split_once(", Column: ")?;
        let (line, column): (usize, usize) = (line.parse().ok()?, column.parse().ok()?);
        let before =
            text.split_inclusive('\n').take(line.checked_sub(1)?).map(|line| line.chars().count()).sum::<usize>();
        before.checked_add(column.checked_sub(1)?)
    }

    /// Returns whether it comes of the statement and of what there is, not of limits, rights or storage.
    pub(crate) const fn is_of_statement(&self) -> bool {
        match self {
            Self::Syntax(_)
            | Self::UnknownColumn(_)
            | Self::UnknownTable(_)
            | Self::UnknownFunction(_)
            | Self::Invalid(_)
            | Self::Unsupported(_)
            | Self::Refused(..) => true,
            Self::Query(error) => {
                matches!(error, QueryError::Invalid(_) | QueryError::Forbidden(_) | QueryError::Execution(_))
            }
        }
    }
}

impl From<QueryError> for SqlError {
    fn from(error: QueryError) -> Self {
        Self::Query(error)
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(what) => write!(
                out,
                "{what} is not in the built-in SQL: simplify the statement, or use a build with the feature sql-datafusion"
            ),
            Self::Query(error) => error.fmt(out),
            Self::Syntax(message)
            | Self::UnknownColumn(message)
            | Self::UnknownTable(message)
            | Self::UnknownFunction(message)
            | Self::Invalid(message)
            | Self::Refused(_, message) => out.write_str(message),
        }
    }
}

impl std::error::Error for SqlError {}

/// A statement's error.
pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T, SqlError> {
    Err(SqlError::Invalid(message.into()))
}

/// An error for SQL that this layer does not have.
pub(crate) fn unsupported<T>(what: impl Into<String>) -> Result<T, SqlError> {
    Err(SqlError::Unsupported(what.into()))
}

/// An error with the code that Postgres's clients know it by.
pub(crate) fn refused<T>(code: &'static str, message: impl Into<String>) -> Result<T, SqlError> {
    Err(SqlError::Refused(code, message.into()))
}

#[cfg(test)]
mod tests {
    use crate::syntax::parse::parse;

    #[test]
    fn errors_of_the_text_know_their_place() {
        for (text, marked) in [
            ("SELECT * FRM trades", Some("trades")),
            ("SELECT 1;\r\n-- größer\nSELECT 'ß', 2 +* 3", Some("* 3")),
            ("SELECT 'abc", Some("'abc")),
            ("SELECT * FROM trades SAMPLE BY soon", Some("soon")),
            ("CREATE MATERIALIZED VIEW v REFRESH SOON AS SELECT 1", Some("SOON")),
            ("CREATE TRIGGER t ON m DO INSERT INTO n", Some("DO")),
            ("SELECT * FROM", Some("")),
            ("SELECT ' at Line: 1, Column: 3' FROM", Some("")),
            ("SELECT * FROM a SPLICE JOIN b", None),
        ] {
            let error = parse(text).map(drop).unwrap_err();
            let rest = error.offset_in(text).map(|offset| text.chars().skip(offset).collect::<String>());
            assert_eq!(rest.is_some(), marked.is_some(), "{text}: {error}");
            assert!(
                rest.as_deref().unwrap_or_default().starts_with(marked.unwrap_or_default()),
                "{text}: {error} {rest:?}"
            );
            assert!(marked != Some("") || rest.as_deref() == Some(""), "{text}: {error} {rest:?}");
        }
    }
}
