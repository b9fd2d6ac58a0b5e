//! Telnet commands: `put`, and those that clients send to find out whom they speak to.

use memchr::memchr;
use model::{Batch, GroupKey, Span};

use super::{NS_PER_MS, Options, check_key, decode_key, whole_time_ns};
use crate::batch::lone::LoneRows;
use crate::errors::{LimitName, Reason};
use crate::graphite::parse_value;
use crate::number::parse_i64;
use crate::{BodyError, LineErrors, Parsed, check_body_size};

/// What a body asked for beside storing samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Commands {
    /// How often it asked for the version, or anything else that is answered with a line.
    pub questions: u32,
    /// Whether it said that the connection ends; what follows is not read.
    pub exit: bool,
}

/// Parses lines of commands. Fails only when the body is 2 GiB or longer.
pub fn parse_telnet<'body>(body: &'body [u8], options: &Options<'_>) -> Result<(Parsed<'body>, Commands), BodyError> {
    check_body_size(body)?;
    let mut parser = Parser {
        options,
        rows: LoneRows::floats(options.limits.rows_max),
        commands: Commands::default(),
        key: Vec::new(),
    };
    let mut batch = Batch::new(body, decode_key);
    let mut errors = LineErrors::default();
    let (mut at, mut number) = (0, 0);
    while let Some(rest) = body.get(at..).filter(|rest| !rest.is_empty() && !parser.commands.exit) {
        let length = memchr(b'\n', rest).unwrap_or(rest.len());
        number += 1;
        let line = rest.get(..length).unwrap_or_default();
        if let Err(reason) = parser.take_line(line, at, number) {
            errors.push(options.limits.errors_max, number, reason);
        }
        at += length + 1;
    }
    batch.blocks.extend(parser.rows.into_block());
    Ok((Parsed { batch, errors }, parser.commands))
}

struct Parser<'a> {
    options: &'a Options<'a>,
    rows: LoneRows,
    commands: Commands,
    /// Metric and tags of the line at hand, as they are hashed.
    key: Vec<u8>,
}

impl Parser<'_> {
    /// Reads the line at `at` in the body.
    #[inline]
    fn take_line(&mut self, line: &[u8], at: usize, number: u32) -> Result<(), Reason> {
        let limits = self.options.limits;
        if line.len() > limits.line_bytes_max {
            return Err(
                LimitName::LineBytes.exceeded(format_args!("the line is longer than {} bytes", limits.line_bytes_max))
            );
        }
        let text = line.trim_ascii();
        let Some(rest) = text.strip_prefix(b"put").filter(|rest| rest.first().is_none_or(u8::is_ascii_whitespace))
        else {
            return self.take_command(text);
        };
        let rest = rest.trim_ascii_start();
        let (metric, behind) = split_word(rest);
        let (time, behind) = split_word(behind);
        let (value, tags) = split_word(behind);
        if metric.is_empty() || time.is_empty() || value.is_empty() {
            return Err("not enough arguments (need at least 3: metric, timestamp, value)".into());
        }
        let timestamp_ns = parse_time(time)?;
        let value = parse_value(value).ok_or("invalid value: expected a number")?;
        self.key.clear();
        self.key.extend_from_slice(metric);
        self.key.push(b' ');
        self.key.extend_from_slice(tags);
        check_key(&self.key, limits)?;
        self.rows.check_room()?;
        let start = at + (rest.as_ptr() as usize - line.as_ptr() as usize);
        let text = Span { start: start as u32, len: rest.len() as u32 };
        let key = GroupKey { hash: self.options.hasher.hash(&self.key), text };
        self.rows.push(key, timestamp_ns, value.to_bits(), number);
        Ok(())
    }

    #[cold]
    fn take_command(&mut self, line: &[u8]) -> Result<(), Reason> {
        match split_word(line).0 {
            b"" => {}
            b"version" | b"stats" | b"help" | b"dropcaches" => self.commands.questions += 1,
            b"exit" | b"quit" => self.commands.exit = true,
            other => return Err(format!("unknown command: {}", String::from_utf8_lossy(other)).into()),
        }
        Ok(())
    }
}

/// The first word and what follows the blanks behind it.
#[inline]
fn split_word(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
    let (word, rest) = text.split_at_checked(end).unwrap_or_default();
    (word, rest.trim_ascii_start())
}

/// Seconds, milliseconds, or seconds with three digits of milliseconds behind a dot.
#[inline]
fn parse_time(word: &[u8]) -> Result<i64, Reason> {
    let (whole, length) = parse_i64(word).ok_or("invalid timestamp")?;
    match word.get(length..) {
        None | Some([]) => whole_time_ns(whole),
        Some([b'.', fraction @ ..]) if (1..=3).contains(&fraction.len()) && whole >= 0 => {
            let scale = [100, 10, 1].get(fraction.len() - 1).copied().unwrap_or(1);
            let (fraction, digits) =
                parse_i64(fraction).filter(|(_, digits)| *digits == fraction.len()).unwrap_or((-1, 0));
            if digits == 0 || fraction < 0 {
                return Err("invalid timestamp".into());
            }
            let time_ms = whole.checked_mul(1000).and_then(|ms| ms.checked_add(fraction * scale));
            time_ms.and_then(|ms| ms.checked_mul(NS_PER_MS)).ok_or_else(|| "timestamp out of range".into())
        }
        _ => Err("invalid timestamp".into()),
    }
}
