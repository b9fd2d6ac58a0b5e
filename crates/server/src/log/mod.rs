//! Lines for the operator on stderr: a time, a level and a message, as text or as JSON.

pub(crate) mod notice;

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use jiff::Timestamp;

use crate::http::json;

/// How much a line matters; the least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something cannot be done that was asked for.
    Error,
    /// Something is not as it should be.
    Warn,
    /// What the server does: it starts, listens, stops.
    Info,
    /// Single requests that failed.
    Debug,
}

/// The form of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `2026-01-01T00:00:00.000Z INFO  message`
    Text,
    /// `{"time":"…","level":"info","message":"…"}`
    Json,
}

static LEVEL: AtomicU8 = AtomicU8::new(Level::Info as u8);
static IS_JSON: AtomicBool = AtomicBool::new(false);

impl Level {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Error, Self::Warn, Self::Info, Self::Debug];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }

    /// A level by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

impl Format {
    /// A format by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "text" => Some(Self::Text),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// Sets what is written from now on, and how.
pub fn set_up(level: Level, format: Format) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    IS_JSON.store(format == Format::Json, Ordering::Relaxed);
}

/// Returns whether lines of a level are written.
pub fn is_enabled(level: Level) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Writes a line, if its level is to be written.
pub fn write(level: Level, message: &str) {
    if !is_enabled(level) {
        return;
    }
    let format = if IS_JSON.load(Ordering::Relaxed) { Format::Json } else { Format::Text };
    // stderr is closed: nothing can be done.
    let _ = std::io::stderr().write_all(line(format, Timestamp::now(), level, message).as_bytes());
}

/// Writes that something cannot be done that was asked for.
pub fn error(message: &str) {
    write(Level::Error, message);
}

/// Writes that something is not as it should be.
pub fn warn(message: &str) {
    write(Level::Warn, message);
}

/// Writes what the server does.
pub fn info(message: &str) {
    write(Level::Info, message);
}

/// A line with its end. What would end it early is escaped.
fn line(format: Format, time: Timestamp, level: Level, message: &str) -> String {
    match format {
        Format::Json => {
            let (level, message) = (level.name(), json::text(message));
            format!("{{\"time\":\"{time:.3}\",\"level\":\"{level}\",\"message\":{message}}}\n")
        }
        Format::Text => {
            let mut line = format!("{time:.3} {:5} ", level.name().to_uppercase());
            for character in message.chars() {
                if character.is_control() {
                    // Writing to a string cannot fail.
                    let _ = write!(line, "{}", character.escape_default());
                } else {
                    line.push(character);
                }
            }
            line.push('\n');
            line
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_time_and_a_level() {
        let time: Timestamp = "2026-01-02T03:04:05.678901Z".parse().unwrap();
        let message = "a \"b\"\nERROR c";
        assert_eq!(
            line(Format::Text, time, Level::Info, message),
            "2026-01-02T03:04:05.678Z INFO  a \"b\"\\nERROR c\n"
        );
        assert_eq!(
            line(Format::Json, time, Level::Warn, message),
            "{\"time\":\"2026-01-02T03:04:05.678Z\",\"level\":\"warn\",\"message\":\"a \\\"b\\\"\\nERROR c\"}\n"
        );
        assert!(Level::Error < Level::Debug && is_enabled(Level::Warn) && !is_enabled(Level::Debug));
        assert_eq!(Level::from_name("debug"), Some(Level::Debug));
        assert_eq!((Level::from_name("loud"), Format::from_name("xml")), (None, None));
    }
}
