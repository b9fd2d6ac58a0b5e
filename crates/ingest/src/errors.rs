//! How parsing fails: one line, or the whole body.

use std::borrow::Cow;
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
    /// How many of them exceeded which limit, by the limit's name; the others could not be read.
    pub by_limit: BTreeMap<&'static str, u64>,
}

/// A limit that a line or a request can exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitName {
    Ahead,
    Fields,
    Histograms,
    KeyBytes,
    KeysBytes,
    Layouts,
    LineBytes,
    Metadata,
    NameBytes,
    OtlpDeltaBytes,
    OtlpDeltaSeries,
    Rows,
    Tags,
}

impl LimitName {
    /// The name of its setting.
    const fn name(self) -> &'static str {
        match self {
            Self::Ahead => "ahead_ms_max",
            Self::Fields => "fields_max",
            Self::Histograms => "histograms_max",
            Self::KeyBytes => "key_bytes_max",
            Self::KeysBytes => "keys_bytes_max",
            Self::Layouts => "layouts_max",
            Self::LineBytes => "line_bytes_max",
            Self::Metadata => "metadata_max",
            Self::NameBytes => "name_bytes_max",
            Self::OtlpDeltaBytes => "otlp_delta_bytes_max",
            Self::OtlpDeltaSeries => "otlp_delta_series_max",
            Self::Rows => "rows_max",
            Self::Tags => "tags_max",
        }
    }

    /// The reason of a line that exceeds it, which names it. Where it bounds the whole request the sender is told to split that.
    #[cold]
    pub(crate) fn exceeded(self, what: fmt::Arguments<'_>) -> Reason {
        let is_of_request = matches!(self, Self::Histograms | Self::KeysBytes | Self::Layouts | Self::Rows);
        let advice = if is_of_request { "; split it" } else { "" };
        Reason { text: format!("{what} ({}){advice}", self.name()).into(), limit: Some(self) }
    }
}

/// Why a line is left out.
#[derive(Debug)]
pub(crate) struct Reason {
    text: Cow<'static, str>,
    limit: Option<LimitName>,
}

impl Reason {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn into_text(self) -> String {
        self.text.into_owned()
    }

    /// Says first what the reason is about.
    pub(crate) fn about(self, subject: &str) -> Self {
        Self { text: format!("{subject}: {}", self.text).into(), ..self }
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Self {
        Self { text: text.into(), limit: None }
    }
}

impl From<&'static str> for Reason {
    fn from(text: &'static str) -> Self {
        Self { text: text.into(), limit: None }
    }
}

impl LineErrors {
    /// Adds a line that cannot be read.
    pub(crate) fn push(&mut self, errors_max: usize, line: u32, reason: impl Into<Reason>) {
        let reason: Reason = reason.into();
        if let Some(limit) = reason.limit {
            *self.by_limit.entry(limit.name()).or_default() += 1;
        }
        self.push_error(errors_max, LineError { line, kind: RejectionKind::Unreadable, reason: reason.into_text() });
    }

    /// Adds a line that is within all limits.
    pub fn push_error(&mut self, errors_max: usize, error: LineError) {
        self.total += 1;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceeded_limits_are_counted_by_their_names() {
        let mut errors = LineErrors::default();
        errors.push(2, 1, LimitName::Tags.exceeded(format_args!("more than {} tags", 4)));
        errors.push(2, 2, LimitName::Rows.exceeded(format_args!("more than {} rows", 5)).about("target_info"));
        errors.push(2, 3, "missing fields (rows_max)");
        let reasons: Vec<&str> = errors.first.iter().map(|error| error.reason.as_str()).collect();
        assert_eq!(reasons, ["more than 4 tags (tags_max)", "target_info: more than 5 rows (rows_max); split it"]);
        assert_eq!((errors.total, errors.by_limit), (3, BTreeMap::from([("tags_max", 1), ("rows_max", 1)])));
    }
}
