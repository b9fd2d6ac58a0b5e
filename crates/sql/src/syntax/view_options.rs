//! Options of materialised views: names with values between parentheses.

use query::views::Dialect;
use sqlparser::tokenizer::Token;

use super::cursor::Cursor;
use super::views::CreateView;
use crate::error::{SqlError, invalid};

/// `TimescaleDB`'s options that choose what is one and the same for every table here.
const WITHOUT_MEANING: [&str; 11] = [
    "create_group_indexes",
    "chunk_interval",
    "columnstore",
    "enable_columnstore",
    "compress",
    "segmentby",
    "orderby",
    "compress_segmentby",
    "compress_orderby",
    "compress_chunk_interval",
    "enable_granular_refresh",
];

/// `(timescaledb.continuous, timescaledb.materialized_only = true, …)`
pub(super) fn timescale_options(cursor: &mut Cursor<'_>, said: &mut CreateView) -> Result<(), SqlError> {
    said.dialect = Dialect::Timescale;
    for (name, value) in options(cursor)? {
        match name.as_str() {
            "continuous" if truth(&name, value.as_deref())? => {}
            "continuous" => return invalid("timescaledb.continuous is true: leave it out for other views"),
            "finalized" => {
                truth(&name, value.as_deref())?;
            }
            "materialized_only" => said.options.materialized_only = truth(&name, value.as_deref())?,
            other => checked_option(other)?,
        }
    }
    Ok(())
}

/// Refuses an option that is not known.
pub(super) fn checked_option(name: &str) -> Result<(), SqlError> {
    if WITHOUT_MEANING.contains(&name) {
        return Ok(());
    }
    invalid(format!("a materialized view has no option {name:?}"))
}

/// Returns whether an option is set: one without a value is.
pub(super) fn truth(name: &str, value: Option<&str>) -> Result<bool, SqlError> {
    match value.unwrap_or("true").to_lowercase().as_str() {
        "true" | "t" | "on" | "yes" | "y" | "1" => Ok(true),
        "false" | "f" | "off" | "no" | "n" | "0" => Ok(false),
        other => invalid(format!("{name} is true or false, not {other:?}")),
    }
}

/// `(timescaledb.name = value, …)`, the names without what is before the point.
pub(super) fn options(cursor: &mut Cursor<'_>) -> Result<Vec<(String, Option<String>)>, SqlError> {
    let mut found = Vec::new();
    cursor.symbol(&Token::LParen)?;
    loop {
        let before = *cursor;
        let mut name = cursor.written_name()?.to_lowercase();
        if cursor.take_symbol(&Token::Period) {
            if !["timescaledb", "tsdb"].contains(&name.as_str()) {
                return before.error("an option of timescaledb");
            }
            name = cursor.written_name()?.to_lowercase();
        }
        let value = if cursor.take_symbol(&Token::Eq) { Some(option_value(cursor)?) } else { None };
        found.push((name, value));
        if !cursor.take_symbol(&Token::Comma) {
            cursor.symbol(&Token::RParen)?;
            return Ok(found);
        }
    }
}

/// The value of an option, as a text.
pub(super) fn option_value(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    cursor.take(&["interval"]);
    let value = match cursor.peek().map(|token| &token.token) {
        Some(Token::Word(word)) => Some(word.value.clone()),
        Some(Token::SingleQuotedString(text)) => Some(text.clone()),
        Some(Token::Number(number, _)) => Some(number.clone()),
        _ => None,
    };
    let Some(value) = value else { return cursor.error("a value") };
    cursor.skip(1);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use crate::syntax::parse::parse;

    #[test]
    fn options_that_are_not_known_are_refused() {
        for (text, part) in [
            ("ALTER MATERIALIZED VIEW v SET (colour = red)", "no option \"colour\""),
            ("ALTER MATERIALIZED VIEW v SET (timescaledb.materialized_only = maybe)", "true or false, not \"maybe\""),
            ("ALTER MATERIALIZED VIEW v SET (other.materialized_only = true)", "an option of timescaledb"),
            ("ALTER MATERIALIZED VIEW v SET REFRESH LIMIT 1d", "REFRESH LIMIT is not possible"),
            ("ALTER MATERIALIZED VIEW v SUSPEND WAL", "Expected"),
            ("ALTER MATERIALIZED VIEW v RENAME TO w", "of what SHOW CREATE MATERIALIZED VIEW v shows"),
            ("ALTER MATERIALIZED VIEW IF EXISTS v RENAME COLUMN a TO b", "ALTER MATERIALIZED VIEW v ADD COLUMN"),
            ("ALTER MATERIALIZED VIEW v RENAME a TO b", "SELECT old AS new FROM v"),
            ("CREATE MATERIALIZED VIEW v WITH (timescaledb.continuous = false) AS SELECT 1", "leave it out"),
            ("CALL refresh_continuous_aggregate('v', NULL, NULL, force => perhaps)", "force is true or false"),
        ] {
            let error = parse(text).map(drop).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
        for text in [
            "ALTER MATERIALIZED VIEW IF EXISTS v SET (timescaledb.materialized_only = yes, timescaledb.compress)",
            "ALTER MATERIALIZED VIEW v RESUME WAL",
            "CREATE MATERIALIZED VIEW v WITH (tsdb.continuous, tsdb.materialized_only = off) AS SELECT 1",
            "CALL refresh_continuous_aggregate('v', NULL, NULL, force => NULL)",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }
}
