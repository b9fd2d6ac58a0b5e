//! Settings of the session: `SET`, `SHOW`.

use query::Interval;
use query::time::parse_interval;
use sqlparser::ast::{ContextModifier, Set};

use super::Answer;
use crate::error::{SqlError, invalid, refused};
use crate::relation::Relation;
use crate::run::Run;
use crate::settings::{SETTINGS, setting_of, zone_name};

/// A setting of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its name in small letters.
    pub name: String,
    /// Its value; `None` for the default.
    pub value: Option<String>,
    /// True if it ends with the transaction.
    pub is_local: bool,
}

impl Setting {
    /// A setting that a client names when it connects.
    pub fn from_startup(name: &str, value: &str) -> Result<Self, SqlError> {
        let name = name.to_lowercase();
        let value = checked(&name, value.to_owned())?;
        Ok(Self { name, value: Some(value), is_local: false })
    }
}

/// Settings that say what the server is.
const READ_ONLY: [&str; 8] = [
    "in_hot_standby",
    "integer_datetimes",
    "is_superuser",
    "max_identifier_length",
    "max_index_keys",
    "server_encoding",
    "server_version",
    "server_version_num",
];

/// Settings that would change answers and do not: the values that are taken, by their beginnings.
const FIXED: [(&str, &[&str]); 4] = [
    ("client_encoding", &["utf8", "utf-8", "unicode"]),
    ("datestyle", &["iso"]),
    ("intervalstyle", &["postgres"]),
    ("standard_conforming_strings", &["on", "true", "yes", "1"]),
];

impl Run<'_> {
    /// `SHOW name`
    pub(super) fn variable(&mut self, name: &str) -> Result<Answer, SqlError> {
        if name == "tables" {
            let tables = self.tables()?;
            let rows = tables.into_iter().map(|table| vec![table]);
            return Ok(Answer::Rows(Relation::of_texts(&["table_name"], rows)));
        }
        if name == "all" {
            let row = |(name, _, description): &(&str, &str, &str)| {
                let value = setting_of(name, &self.environment).unwrap_or_default();
                vec![(*name).to_owned(), value, (*description).to_owned()]
            };
            return Ok(Answer::Rows(Relation::of_texts(&["name", "setting", "description"], SETTINGS.iter().map(row))));
        }
        match setting_of(name, &self.environment) {
            Some(value) => Ok(Answer::Rows(Relation::of_texts(&[name], [vec![value]]))),
            None => refused("42704", format!("unrecognized configuration parameter \"{name}\"")),
        }
    }
}

/// `SET name = value`. Settings that mean nothing here are taken as they are: clients send many.
pub(super) fn setting(set: &Set) -> Result<Answer, SqlError> {
    let (name, value, scope) = match set {
        Set::SetTimeZone { value, local } => {
            let scope = local.then_some(ContextModifier::Local);
            ("timezone".to_owned(), value.to_string(), scope)
        }
        Set::SingleAssignment { variable, values, scope, .. } => {
            let values: Vec<String> = values.iter().map(|value| unquoted(&value.to_string())).collect();
            (variable.to_string().to_lowercase().replace('"', ""), values.join(", "), *scope)
        }
        Set::SetNames { charset_name, .. } => ("client_encoding".to_owned(), charset_name.value.clone(), None),
        _ => return Ok(Answer::Done("SET".to_owned())),
    };
    let value = unquoted(&value);
    let is_default =
        value.eq_ignore_ascii_case("default") || (name == "timezone" && value.eq_ignore_ascii_case("local"));
    if READ_ONLY.contains(&name.as_str()) {
        return refused("55P02", format!("parameter \"{name}\" cannot be changed"));
    }
    let value = if is_default { None } else { Some(checked(&name, value)?) };
    Ok(Answer::Set(Setting { name, value, is_local: scope == Some(ContextModifier::Local) }))
}

fn unquoted(value: &str) -> String {
    value.trim_matches(['\'', '"']).to_owned()
}

/// The value of a setting, if it may have it.
fn checked(name: &str, value: String) -> Result<String, SqlError> {
    if name == "timezone" {
        let Some(zone) = zone_name(&value) else {
            return refused("22023", format!("invalid value for parameter \"TimeZone\": \"{value}\""));
        };
        return Ok(zone);
    }
    if name == "statement_timeout" && timeout_ms(&value).is_none() {
        return invalid(format!("invalid value for parameter \"statement_timeout\": \"{value}\""));
    }
    let taken = FIXED.iter().find(|(known, _)| *known == name);
    let lower = value.to_lowercase();
    match taken {
        Some((_, beginnings)) if !beginnings.iter().any(|beginning| lower.starts_with(beginning)) => {
            invalid(format!("{name} is {} here, not {value}", beginnings.first().unwrap_or(&"")))
        }
        _ => Ok(value),
    }
}

/// A timeout in milliseconds: a number of them, or a number with a unit; 0 for none.
pub fn timeout_ms(value: &str) -> Option<u64> {
    let value = value.trim();
    if let Ok(ms) = value.parse::<u64>() {
        return Some(ms);
    }
    match parse_interval(value)? {
        Interval { months: 0, days: 0, ns } => u64::try_from(ns).ok().map(|ns| ns.div_ceil(1_000_000)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_units() {
        for (text, expected) in [
            ("5000", Some(5000)),
            ("5s", Some(5000)),
            ("2min", Some(120_000)),
            ("0", Some(0)),
            ("x", None),
            ("-1", None),
        ] {
            assert_eq!(timeout_ms(text), expected, "{text}");
        }
    }
}
