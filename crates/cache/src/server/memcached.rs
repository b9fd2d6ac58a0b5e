//! memcached's text protocol: command lines. Besides its own commands there are three with a span of time, `tget`, `tset` and `tdelete`.
//! Layout: `docs/formats/cache-protocol.md`.

use super::items::Store;
use crate::Span;

/// Bytes of a command line: many keys fit.
pub(super) const LINE_BYTES_MAX: usize = 8 << 10;
/// Bytes of a key of an ordinary item, as in memcached.
const KEY_BYTES_MAX: usize = 250;

/// How an answer is written behind a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    /// [`crate::formats::columns`].
    Columns,
}

/// A command line, read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command<'a> {
    Get { keys: Vec<&'a str>, with_version: bool },
    Store { how: Store, key: &'a str, flags: u32, expiry: i64, bytes: usize, quiet: bool },
    Delete { key: &'a str, quiet: bool },
    Touch { key: &'a str, expiry: i64, quiet: bool },
    Add { key: &'a str, by: u64, is_up: bool, quiet: bool },
    TimeGet { key: &'a str, span: Span, wait_ms: u64, partial: bool, form: Form },
    TimeSet { key: &'a str, span: Span, bytes: usize, form: Form, quiet: bool },
    TimeDelete { key: &'a str, span: Span, quiet: bool },
    FlushAll { quiet: bool },
    Stats,
    Version,
    Verbosity { quiet: bool },
    Quit,
}

/// Why a line is no command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineError {
    /// No such command.
    Unknown,
    /// The command is known and its arguments are wrong; how many bytes of data follow all the same, if that can be told.
    Bad(&'static str, Option<usize>),
}

/// Whether a line begins a request of HTTP, and is no command.
pub(super) fn is_http(line: &str) -> bool {
    line.ends_with(" HTTP/1.1") || line.ends_with(" HTTP/1.0")
}

/// Reads a line without its end.
pub(super) fn parse(line: &str) -> Result<Command<'_>, LineError> {
    let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
    if words.is_empty() {
        return Err(LineError::Unknown);
    }
    let name = words.remove(0);
    let takes_quiet = !matches!(name, "get" | "gets" | "tget" | "stats" | "version" | "quit");
    let quiet = takes_quiet && words.last() == Some(&"noreply");
    if quiet {
        words.pop();
    }
    match (name, words.as_slice()) {
        ("get" | "gets", [_, ..]) => {
            let keys = words.iter().map(|key| checked(key)).collect::<Result<_, _>>()?;
            Ok(Command::Get { keys, with_version: name == "gets" })
        }
        ("set" | "add" | "replace" | "cas", words) => store(name, words, quiet),
        ("delete", [key] | [key, "0"]) => Ok(Command::Delete { key: checked(key)?, quiet }),
        ("touch", [key, expiry]) => Ok(Command::Touch { key: checked(key)?, expiry: number(expiry)?, quiet }),
        ("incr" | "decr", [key, by]) => {
            Ok(Command::Add { key: checked(key)?, by: number(by)?, is_up: name == "incr", quiet })
        }
        ("tget", [key, start, end, more @ ..]) => time_get(key, span(start, end)?, more),
        ("tset", [key, start, end, bytes] | [key, start, end, bytes, "columns"]) => {
            let form = if words.len() == 5 { Form::Columns } else { Form::Json };
            let bytes = number(bytes)?;
            let wrong =
                |error| if let LineError::Bad(what, _) = error { LineError::Bad(what, Some(bytes)) } else { error };
            let (key, span) = (checked(key).map_err(wrong)?, span(start, end).map_err(wrong)?);
            Ok(Command::TimeSet { key, span, bytes, form, quiet })
        }
        ("tdelete", [key, start, end]) => {
            Ok(Command::TimeDelete { key: checked(key)?, span: span(start, end)?, quiet })
        }
        ("flush_all", [] | ["0"]) => Ok(Command::FlushAll { quiet }),
        ("stats", _) => Ok(Command::Stats),
        ("version", []) => Ok(Command::Version),
        ("verbosity", _) => Ok(Command::Verbosity { quiet }),
        ("quit", []) => Ok(Command::Quit),
        (
            "get" | "gets" | "delete" | "touch" | "incr" | "decr" | "tget" | "tset" | "tdelete" | "flush_all"
            | "version",
            _,
        ) => Err(LineError::Bad("wrong number of arguments", None)),
        _ => Err(LineError::Unknown),
    }
}

fn store<'a>(name: &str, words: &[&'a str], quiet: bool) -> Result<Command<'a>, LineError> {
    let (words, version) = match (name, words) {
        ("cas", [rest @ .., version]) => (rest, Some(number::<u64>(version))),
        _ => (words, None),
    };
    let [key, flags, expiry, bytes] = words else {
        return Err(LineError::Bad("wrong number of arguments", None));
    };
    let bytes: usize = number(bytes)?;
    let wrong = |error| if let LineError::Bad(what, _) = error { LineError::Bad(what, Some(bytes)) } else { error };
    let how = match name {
        "add" => Store::Add,
        "replace" => Store::Replace,
        _ => version.transpose().map_err(wrong)?.map_or(Store::Set, Store::Cas),
    };
    let key = checked(key).map_err(wrong)?;
    let (flags, expiry) = (number(flags).map_err(wrong)?, number(expiry).map_err(wrong)?);
    Ok(Command::Store { how, key, flags, expiry, bytes, quiet })
}

fn time_get<'a>(key: &'a str, span: Span, more: &[&str]) -> Result<Command<'a>, LineError> {
    let (mut wait_ms, mut partial, mut form) = (0, false, Form::Json);
    for word in more {
        match word.split_once('=') {
            None if *word == "partial" => partial = true,
            None if *word == "columns" => form = Form::Columns,
            Some(("wait", milliseconds)) => wait_ms = number(milliseconds)?,
            _ => return Err(LineError::Bad("after the span may stand wait=MILLISECONDS, partial and columns", None)),
        }
    }
    Ok(Command::TimeGet { key: checked(key)?, span, wait_ms, partial, form })
}

fn checked(key: &str) -> Result<&str, LineError> {
    if key.len() > KEY_BYTES_MAX || key.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(LineError::Bad("a key has 250 bytes at most and no control characters", None));
    }
    Ok(key)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, LineError> {
    text.parse().map_err(|_| LineError::Bad("not a number, or not one that fits", None))
}

fn span(start: &str, end: &str) -> Result<Span, LineError> {
    let span = Span::new(number(start)?, number(end)?);
    if span.is_empty() { Err(LineError::Bad("the span is empty: it ends before its end", None)) } else { Ok(span) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let check = |line: &str, expected: Command<'_>| assert_eq!(parse(line), Ok(expected), "{line}");
        check("get a b", Command::Get { keys: vec!["a", "b"], with_version: false });
        check("gets noreply", Command::Get { keys: vec!["noreply"], with_version: true });
        let store = |how, quiet| Command::Store { how, key: "a", flags: 7, expiry: -1, bytes: 3, quiet };
        check("set a 7 -1 3", store(Store::Set, false));
        check("add a 7 -1 3 noreply", store(Store::Add, true));
        check("replace a 7 -1 3", store(Store::Replace, false));
        check("cas a 7 -1 3 99 noreply", store(Store::Cas(99), true));
        check("delete a 0", Command::Delete { key: "a", quiet: false });
        check("incr a 5", Command::Add { key: "a", by: 5, is_up: true, quiet: false });
        let span = Span::new(-5, 10);
        let time_get = |wait_ms, partial, form| Command::TimeGet { key: "a", span, wait_ms, partial, form };
        check("tget a -5 10", time_get(0, false, Form::Json));
        check("tget a -5 10 wait=20 partial", time_get(20, true, Form::Json));
        check("tget a -5 10 columns partial", time_get(0, true, Form::Columns));
        let time_set = |form, quiet| Command::TimeSet { key: "a", span, bytes: 3, form, quiet };
        check("tset a -5 10 3 noreply", time_set(Form::Json, true));
        check("tset a -5 10 3 columns", time_set(Form::Columns, false));
        check("tdelete a -5 10", Command::TimeDelete { key: "a", span, quiet: false });
        check("flush_all 0 noreply", Command::FlushAll { quiet: true });
        for (line, bytes) in [
            ("get", None),
            ("set a b 0 3", Some(3)),
            ("tset a 9 9 4", Some(4)),
            ("tset a 1 9 4 columns x", None),
            ("tget a 0 x", None),
        ] {
            assert!(matches!(parse(line), Err(LineError::Bad(_, found)) if found == bytes), "{line}");
        }
        for line in ["", "  ", "hello", "GET / HTTP/1.1"] {
            assert_eq!(parse(line), Err(LineError::Unknown), "{line}");
        }
    }
}
