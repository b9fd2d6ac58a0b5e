//! `CREATE DATABASE … WITH (…)` and `ALTER DATABASE … SET …`: how a database keeps its data.
//!
//! The grammar has neither; they are taken out of the tokens before, and found again by the place of the database's name.

use std::collections::HashMap;

use query::DatabaseSettings;
use query::Interval;
use query::time::parse_interval;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use crate::error::SqlError;

/// What may be set.
const NAMES: &str =
    "retention, folds, strict_folds, or for regular databases interval, start, value, missing or overwrite";

/// Steps of folding.
const FOLDS_MAX: usize = 8;
const NS_PER_DAY: i64 = 86_400_000_000_000;

/// The settings of a database in a statement.
#[derive(Debug, Clone, Default)]
pub(crate) struct ParsedSettings {
    pub(crate) settings: DatabaseSettings,
    /// True if the database is to be there already.
    pub(crate) is_alter: bool,
}

/// By the line and column of the database's name.
pub(crate) type SettingsByPlace = HashMap<(u64, u64), ParsedSettings>;

/// The beginning of a statement: tokens for the grammar, how many were read, and the settings in them.
pub(crate) struct TakenStatement {
    pub(crate) tokens: Vec<TokenWithSpan>,
    pub(crate) read: usize,
    pub(crate) at: Location,
    pub(crate) said: ParsedSettings,
}

/// Looks at the tokens from the beginning of a statement on; `None` if it is none of these.
pub(crate) fn take(tokens: &[TokenWithSpan]) -> Result<Option<TakenStatement>, SqlError> {
    let is_alter = at(tokens, 0, "alter");
    if !(is_alter || at(tokens, 0, "create")) || !at(tokens, 1, "database") {
        return Ok(None);
    }
    let mut place = 2;
    if !is_alter && ["if", "not", "exists"].iter().enumerate().all(|(ahead, word)| at(tokens, place + ahead, word)) {
        place += 3;
    }
    let Some(name) = tokens.get(place).filter(|token| matches!(token.token, Token::Word(_))) else { return Ok(None) };
    let mut kept: Vec<TokenWithSpan> = tokens.get(..=place).unwrap_or_default().to_vec();
    if let Some(first) = kept.first_mut().filter(|_| is_alter) {
        // For the grammar it is the statement that it has.
        first.token = Token::make_keyword("CREATE");
    }
    place += 1;
    let mut said = ParsedSettings { settings: DatabaseSettings::default(), is_alter };
    if at(tokens, place, if is_alter { "set" } else { "with" }) {
        place = settings(tokens, place + 1, &mut said.settings)?;
    } else if is_alter {
        return error(tokens, place, "SET retention = '30d' or SET folds = '30d:5m'");
    }
    Ok(Some(TakenStatement { tokens: kept, read: place, at: name.span.start, said }))
}

fn at(tokens: &[TokenWithSpan], place: usize, wanted: &str) -> bool {
    match tokens.get(place).map(|token| &token.token) {
        Some(Token::Word(word)) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted),
        _ => false,
    }
}

fn error<T>(tokens: &[TokenWithSpan], place: usize, wanted: &str) -> Result<T, SqlError> {
    let (found, at) = match tokens.get(place) {
        Some(token) => (token.token.to_string(), token.span.start.to_string()),
        None => ("the end".to_owned(), String::new()),
    };
    Err(SqlError::Syntax(format!("Expected: {wanted}, found: {found}{at}")))
}

/// `name = value, …`, in parentheses or not; returns the index after it.
fn settings(tokens: &[TokenWithSpan], mut place: usize, settings: &mut DatabaseSettings) -> Result<usize, SqlError> {
    let token = |place: usize| tokens.get(place).map(|token| &token.token);
    let is_open = token(place) == Some(&Token::LParen);
    place += usize::from(is_open);
    loop {
        let Some(Token::Word(name)) = token(place) else {
            return error(tokens, place, NAMES);
        };
        let at_name = place;
        place += 1;
        if token(place) == Some(&Token::Eq) || at(tokens, place, "to") {
            place += 1;
        }
        let value = match (token(place), token(place + 1)) {
            (Some(Token::SingleQuotedString(text)), _) => text.clone(),
            (Some(Token::Number(number, _)), Some(Token::Word(unit))) => {
                place += 1;
                format!("{number}{}", unit.value)
            }
            (Some(Token::Number(number, _)), _) => number.clone(),
            (Some(Token::Word(word)), _) => word.value.clone(),
            (Some(Token::Minus), Some(Token::Number(number, _))) => {
                place += 1;
                format!("-{number}")
            }
            _ => return error(tokens, place, "a value such as '30d'"),
        };
        place += 1;
        match name.value.to_lowercase().as_str() {
            "retention" => settings.retention_ns = Some(retention(&value)?),
            "folds" => settings.folds = Some(folds(&value)?),
            "strict_folds" => settings.strict_folds = Some(flag(&value)?),
            name => {
                if !settings.regular.set(name, &value).map_err(SqlError::Invalid)? {
                    return error(tokens, at_name, NAMES);
                }
            }
        }
        match token(place) {
            Some(Token::Comma) => place += 1,
            Some(Token::RParen) if is_open => return Ok(place + 1),
            _ if is_open => return error(tokens, place, ")"),
            _ => return Ok(place),
        }
    }
}

/// `30d`, `1 year`, or `forever`.
fn retention(text: &str) -> Result<i64, SqlError> {
    if ["forever", "default", "0"].contains(&text.to_lowercase().as_str()) {
        return Ok(0);
    }
    length_ns(text)
}

/// `30d:5m,90d:1h`: ages and widths; empty for none.
fn folds(text: &str) -> Result<Vec<(i64, i64)>, SqlError> {
    if text.trim().is_empty() || text.eq_ignore_ascii_case("none") {
        return Ok(Vec::new());
    }
    let steps: Vec<&str> = text.split(',').take(FOLDS_MAX + 1).collect();
    let step = |step: &&str| match step.split_once(':') {
        Some((age, width)) => Ok((length_ns(age)?, length_ns(width)?)),
        None => Err(SqlError::Invalid(format!("\"{step}\" is no step of folding: write age:width, such as 30d:5m"))),
    };
    steps.iter().map(step).collect()
}

fn flag(text: &str) -> Result<bool, SqlError> {
    match text.to_lowercase().as_str() {
        "true" | "on" => Ok(true),
        "false" | "off" => Ok(false),
        _ => Err(SqlError::Invalid(format!("\"{text}\" is neither true nor false"))),
    }
}

/// A length of time that is more than none; a year has 365 days here, a month 30.
fn length_ns(text: &str) -> Result<i64, SqlError> {
    // A bare number would be seconds.
    let interval = if text.trim().parse::<f64>().is_ok() { None } else { parse_interval(text) };
    let interval = interval.map(Interval::with_even_days);
    let months_ns = |months: i32| {
        let days = i64::from(months / 12) * 365 + i64::from(months % 12) * 30;
        days.checked_mul(NS_PER_DAY)
    };
    let ns = interval.and_then(|interval| months_ns(interval.months)?.checked_add(interval.ns)).filter(|ns| *ns > 0);
    ns.ok_or_else(|| SqlError::Invalid(format!("\"{text}\" is no length of time: write it as 12h, 30d or 1 year")))
}

#[cfg(test)]
mod tests {
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::tokenizer::Tokenizer;

    use query::{EpochKind, MissingValue, RegularSettings};

    use super::*;

    #[test]
    fn settings_are_taken_out_of_statements() {
        const DAY: i64 = NS_PER_DAY;
        let settings = |retention_ns, folds: Option<&[(i64, i64)]>| DatabaseSettings {
            retention_ns,
            folds: folds.map(<[_]>::to_vec),
            ..DatabaseSettings::default()
        };
        let minute = 60_000_000_000;
        let cases = [
            ("CREATE DATABASE a", Ok((settings(None, None), false))),
            (
                "create database if not exists a with (retention = '30d', folds='2 days:5m,30d:1h'); SELECT 1",
                Ok((settings(Some(30 * DAY), Some(&[(2 * DAY, 5 * minute), (30 * DAY, 60 * minute)])), false)),
            ),
            ("CREATE DATABASE \"A\" WITH retention 1y", Ok((settings(Some(365 * DAY), None), false))),
            ("ALTER DATABASE a SET retention TO forever, folds = ''", Ok((settings(Some(0), Some(&[])), true))),
            ("ALTER DATABASE a SET (retention = '6 months')", Ok((settings(Some(180 * DAY), None), true))),
            ("ALTER DATABASE a RENAME TO b", Err("Expected: SET retention")),
            ("ALTER DATABASE a SET durability = 'x'", Err("missing or overwrite, found: durability")),
            (
                "CREATE DATABASE dns WITH (interval = '5m', value = float, missing = -1, overwrite = refuse)",
                Ok((
                    DatabaseSettings {
                        regular: RegularSettings {
                            interval_ns: Some(5 * minute),
                            kind: Some(EpochKind::Float),
                            missing: Some(MissingValue::Number(-1.0)),
                            may_overwrite: Some(false),
                            ..RegularSettings::default()
                        },
                        ..DatabaseSettings::default()
                    },
                    false,
                )),
            ),
            ("CREATE DATABASE dns WITH (interval = 5)", Err("interval: \"5\" is no length of time")),
            ("CREATE DATABASE a WITH (retention = '30d'", Err("Expected: ), found: the end")),
            ("CREATE DATABASE a WITH retention = 'soon'", Err("\"soon\" is no length of time")),
            ("CREATE DATABASE a WITH retention = '-3d'", Err("\"-3d\" is no length of time")),
            ("CREATE DATABASE a WITH folds = '3:1d'", Err("\"3\" is no length of time")),
            ("CREATE DATABASE a WITH folds = '3d'", Err("\"3d\" is no step of folding")),
        ];
        for (text, expected) in cases {
            let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location().unwrap();
            let tokens: Vec<TokenWithSpan> =
                tokens.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
            let found =
                take(&tokens).map(|taken| taken.map(|taken| (taken.said.settings, taken.said.is_alter)).unwrap());
            match expected {
                Ok(expected) => assert_eq!(found, Ok(expected), "{text}"),
                Err(part) => assert!(found.as_ref().unwrap_err().to_string().contains(part), "{text}: {found:?}"),
            }
        }
    }
}
