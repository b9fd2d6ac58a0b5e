//! Answers: series with named columns.

use std::fmt;
use std::sync::Arc;

use jiff::tz::TimeZone;
use query::Value;

use crate::select::rows::Rows;
use crate::time;

/// The answer to a statement.
#[derive(Debug, Default)]
pub struct Answer {
    /// Its series.
    pub series: Vec<Series>,
    /// Remarks for the sender.
    pub messages: Vec<String>,
}

/// A series of an answer.
#[derive(Debug, Default)]
pub struct Series {
    /// The measurement, if it has one.
    pub name: String,
    /// Tags by which rows were grouped, with their values, sorted.
    pub tags: Vec<(String, String)>,
    /// Names of the columns; the series of an answer share theirs.
    pub columns: Arc<[String]>,
    /// Its rows.
    pub rows: Rows,
    /// The zone in which times are shown; `None`: UTC.
    pub zone: Option<Zone>,
}

/// A time zone.
#[derive(Debug, Clone, PartialEq)]
pub struct Zone(pub(crate) TimeZone);

/// How times are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeFormat {
    /// RFC 3339.
    Text,
    /// Units since the Unix epoch, each so many nanoseconds long.
    Number {
        /// Nanoseconds of a unit.
        unit_ns: i64,
    },
}

impl TimeFormat {
    /// The format that the parameter `epoch` names; `None` for what it does not name.
    pub fn named(epoch: &str) -> Option<Self> {
        let unit_ns = match epoch {
            "ns" | "n" => 1,
            "u" | "µ" => 1000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        Some(Self::Number { unit_ns })
    }
}

impl Series {
    /// A series without times.
    pub fn list(name: &str, columns: &[&str], rows: Vec<Vec<Value>>) -> Self {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        Self { name: name.to_owned(), columns, rows: Rows::Values(rows), ..Self::default() }
    }

    /// A time as the format says, in the series' zone.
    pub fn write_time(&self, out: &mut impl fmt::Write, time_ns: i64, format: TimeFormat) -> fmt::Result {
        match format {
            TimeFormat::Number { unit_ns } => write!(out, "{}", time_ns / unit_ns),
            TimeFormat::Text => out.write_str(&time::text(time_ns, self.zone.as_ref().map(|zone| &zone.0))),
        }
    }
}
