//! The settings that sessions have, and their values.

use std::collections::BTreeMap;

use jiff::tz::{Offset, TimeZone};
use query::time::parse_interval;
use query::{Interval, time};

use crate::context::Setting;
use crate::error::{SqlError, invalid, refused};
use crate::expression::Environment;

/// Names of UTC, in small letters. As the one zone that never differs its days are cut by the plan.
const UTC_NAMES: [&str; 6] = ["utc", "etc/utc", "uct", "etc/uct", "etc/universal", "etc/zulu"];

/// The time zone that the settings of a session name.
pub fn session_zone(settings: &BTreeMap<String, String>) -> TimeZone {
    let name = settings.get("timezone").filter(|name| !UTC_NAMES.contains(&name.to_lowercase().as_str()));
    name.and_then(|name| zone_of(name)).unwrap_or(TimeZone::UTC)
}

/// The time zone that a value of `timezone` means: a name, POSIX's rules, or hours east of UTC as [`zone_name`] writes them.
fn zone_of(value: &str) -> Option<TimeZone> {
    time::zone(value).or_else(|| TimeZone::posix(value).ok())
}

/// The name of the zone that a client sets: names as the database of zones writes them, numbers of hours as Postgres shows them.
fn zone_name(value: &str) -> Option<String> {
    let of_offset = |seconds: f64| {
        let offset = Offset::from_seconds(seconds as i32).ok()?;
        let (mut east, mut west) = (String::new(), String::new());
        time::push_offset(&mut east, i64::from(offset.seconds()));
        time::push_offset(&mut west, -i64::from(offset.seconds()));
        Some(format!("<{east}>{west}"))
    };
    if let Ok(hours) = value.trim().parse::<f64>() {
        return of_offset(hours * 3600.0);
    }
    // `INTERVAL '-08:00' HOUR TO MINUTE`
    if let Some(interval) = value.strip_prefix("INTERVAL ") {
        let interval = parse_interval(interval.split('\'').nth(1)?)?;
        return of_offset(interval.approximate_ns() as f64 / 1e9);
    }
    let zone = zone_of(value)?;
    Some(zone.iana_name().unwrap_or(value).to_owned())
}

/// The settings that there are: their names, the values by default, and what they are.
pub(crate) const SETTINGS: [(&str, &str, &str); 27] = [
    ("application_name", "", "The name of the application"),
    ("bytea_output", "hex", "The format of bytea"),
    ("client_encoding", "UTF8", "The client's encoding"),
    ("client_min_messages", "notice", "The least level of messages that are sent"),
    ("datestyle", "ISO, MDY", "The format of dates and times"),
    ("default_transaction_isolation", "read committed", "The isolation level of new transactions"),
    ("default_transaction_read_only", "off", "True if new transactions only read"),
    ("extra_float_digits", "1", "The digits of floats"),
    ("idle_in_transaction_session_timeout", "0", "The longest pause within a transaction"),
    ("in_hot_standby", "off", "True if the server is a standby"),
    ("integer_datetimes", "on", "True if times are whole numbers"),
    ("intervalstyle", "postgres", "The format of intervals"),
    ("is_superuser", "off", "True if the user is a superuser"),
    ("jit", "off", "True if queries are compiled"),
    ("lock_timeout", "0", "The longest wait for a lock"),
    ("max_identifier_length", "63", "The longest name"),
    ("max_index_keys", "32", "The most columns of an index"),
    ("search_path", "public", "The schemas that names are looked up in"),
    ("server_encoding", "UTF8", "The server's encoding"),
    ("server_version", "16.0", "The version of Postgres whose protocol this is"),
    ("server_version_num", "160000", "That version as a number"),
    ("standard_conforming_strings", "on", "True if backslashes in texts are ordinary characters"),
    ("statement_timeout", "0", "The longest time of a statement; 0 for the server's own"),
    ("timezone", "UTC", "The time zone of the session"),
    ("transaction_deferrable", "off", "True if the transaction may wait"),
    ("transaction_isolation", "read committed", "The isolation level of the transaction"),
    ("transaction_read_only", "off", "True if the transaction only reads"),
];

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

impl Setting {
    /// A setting that a client names when it connects.
    pub fn from_startup(name: &str, value: &str) -> Result<Self, SqlError> {
        let name = name.to_lowercase();
        let value = checked(&name, value.to_owned())?;
        Ok(Self { name, value: Some(value), is_local: false })
    }
}

/// Refuses settings that say what the server is.
pub(crate) fn check_changeable(name: &str) -> Result<(), SqlError> {
    if READ_ONLY.contains(&name) {
        return refused("55P02", format!("parameter \"{name}\" cannot be changed"));
    }
    Ok(())
}

/// The value of a setting, if it may have it.
pub(crate) fn checked(name: &str, value: String) -> Result<String, SqlError> {
    check_changeable(name)?;
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

/// The value of a setting; `None` if there is none of the name.
pub(crate) fn setting_of(name: &str, environment: &Environment) -> Option<String> {
    let name = match name {
        "time zone" => "timezone",
        "transaction isolation level" => "transaction_isolation",
        name => name,
    };
    if let Some(value) = environment.settings.get(name) {
        return Some(value.clone());
    }
    SETTINGS.iter().find(|(known, ..)| *known == name).map(|(_, value, _)| (*value).to_owned())
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
