//! The options of a table: what stands between the parentheses of WITH and SET.

use sqlparser::ast::{Expr, SqlOption};

use crate::error::{SqlError, invalid};
use crate::syntax::questdb::ttl_ns;
use crate::syntax::table_options::TIMESCALE;

/// `TimescaleDB`'s options that choose what is one and the same for every table here.
const WITHOUT_MEANING: [&str; 13] = [
    "hypertable",
    "chunk_interval",
    "create_default_indexes",
    "associated_schema",
    "associated_table_prefix",
    "columnstore",
    "enable_columnstore",
    "compress",
    "orderby",
    "compress_orderby",
    "compress_chunk_interval",
    "compress_chunk_time_interval",
    "sparse_index",
];

/// The options of a table that mean something.
#[derive(Debug, Default)]
pub(super) struct TableOptions {
    /// How long it keeps its rows, in nanoseconds; 0: as long as its database does.
    pub(super) ttl_ns: Option<i64>,
    /// The time by which it is to be cut.
    pub(super) time: Option<String>,
    /// The columns by which it is to be cut.
    pub(super) segments: Vec<String>,
}

impl TableOptions {
    /// Reads options; one that is not known is refused.
    pub(super) fn read(options: &[SqlOption]) -> Result<Self, SqlError> {
        let mut found = Self::default();
        for option in options {
            let SqlOption::KeyValue { key, value } = option else { return unknown(option) };
            let (name, text) = (key.value.to_lowercase(), text_of(value));
            match (name.as_str(), name.strip_prefix(TIMESCALE)) {
                ("ttl", _) => found.ttl_ns = Some(checked_ttl_ns(&text)?),
                (_, Some("partition_column")) => found.time = Some(text),
                (_, Some("segmentby" | "compress_segmentby")) => found.segments.extend(names(&text)),
                (_, Some(known)) if WITHOUT_MEANING.contains(&known) => {}
                (_, Some(other)) => return invalid(format!("a table has no option {other:?} of TimescaleDB here")),
                _ => return unknown(option),
            }
        }
        Ok(found)
    }
}

fn unknown<T>(option: &SqlOption) -> Result<T, SqlError> {
    invalid(format!("a table has no setting but TTL (ttl = '30d'), not {option}"))
}

/// A value without its quotes.
fn text_of(value: &Expr) -> String {
    match value {
        Expr::Value(value) => value.value.clone().into_string().unwrap_or_else(|| value.to_string()),
        other => other.to_string(),
    }
}

/// The names in a list, with or without quotes.
fn names(list: &str) -> Vec<String> {
    let names = list.split(',').map(|name| name.trim().trim_matches('"').to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

fn checked_ttl_ns(text: &str) -> Result<i64, SqlError> {
    let wrong =
        || SqlError::Invalid(format!("TTL {text}: write it as 12h, 30 DAYS, 4w, 6M (months) or 1y; 0 for none"));
    ttl_ns(text).ok_or_else(wrong)
}
