//! The settings that sessions have, and their values.

use std::collections::BTreeMap;

use jiff::tz::{Offset, TimeZone};
use query::time;

use crate::expression::Environment;

/// The time zone that the settings of a session name.
pub fn session_zone(settings: &BTreeMap<String, String>) -> TimeZone {
    settings.get("timezone").and_then(|name| zone_of(name)).unwrap_or(TimeZone::UTC)
}

/// The time zone that a value of `timezone` means: a name, POSIX's rules, or hours east of UTC as [`zone_name`] writes them.
fn zone_of(value: &str) -> Option<TimeZone> {
    time::zone(value).or_else(|| TimeZone::posix(value).ok())
}

/// The name of the zone that a client sets: names as the database of zones writes them, numbers of hours as Postgres shows them.
pub(crate) fn zone_name(value: &str) -> Option<String> {
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
        let interval = time::parse_interval(interval.split('\'').nth(1)?)?;
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
