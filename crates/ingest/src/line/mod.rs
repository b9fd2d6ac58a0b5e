//! Influx line protocol: `measurement,tag=value,… field=value,… timestamp`, one point a line.
//!
//! What is accepted is what InfluxDB 1.8 and 2 accept, down to which byte a backslash escapes, and the reasons for
//! refusing a line are worded like theirs where they have one. The life of a line, file by file:
//!
//! * `mod.rs`: [`parse`] guesses the line's layout; a right guess leaves little more than numbers to read.
//! * `layout.rs`: layouts and how they are guessed.
//! * `slow.rs`: takes a line apart whose layout was not guessed, and finds the end of a bad one.
//! * `order.rs`: makes later lines win over earlier ones with other fields.
//! * `value.rs`: values, and what ends a line.
//! * `key.rs`: measurement and tags, parsed only for groups that the store does not know ([`decode_key`]).
//! * `encode.rs`: the way back.

mod encode;
mod key;
mod layout;
mod order;
mod slow;
#[cfg(test)]
mod tests;
mod value;

use std::borrow::Cow;

use memchr::memchr_iter;
use model::{Batch, Block, GroupKey, Span, ValueType};

pub use encode::{EncodeError, FieldValue, Point, encode_batch, encode_point};
pub(crate) use key::check_line;
pub use key::decode_key;

use crate::number::parse_expected;
use crate::{BodyError, Limits, LineErrors, Parsed, ScopedKeyHasher, check_body_size};
use layout::{LayoutField, Layouts};
use value::{Ending, Value, count_blanks, line_end, parse_ending, parse_value, unescape_string};

/// Why a line was left out.
type Reason = Cow<'static, str>;

/// The unit of a body's timestamps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Nanoseconds: `ns` or `n`.
    #[default]
    Nanosecond,
    /// Microseconds: `us`, `u` or `µ`.
    Microsecond,
    /// Milliseconds: `ms`.
    Millisecond,
    /// Seconds: `s`.
    Second,
    /// Minutes: `m`.
    Minute,
    /// Hours: `h`.
    Hour,
    /// The size of each timestamp tells its unit: seconds below 5 · 10⁹, and so on. Times before 1970 and those soon after are
    /// not told apart.
    Auto,
}

impl Precision {
    /// The precision with this name in InfluxDB's HTTP interfaces, version 1 or 2.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "ns" | "n" => Some(Self::Nanosecond),
            "us" | "u" | "µ" => Some(Self::Microsecond),
            "ms" => Some(Self::Millisecond),
            "s" => Some(Self::Second),
            "m" => Some(Self::Minute),
            "h" => Some(Self::Hour),
            _ => None,
        }
    }

    /// Nanoseconds in one unit of a timestamp.
    const fn unit_of_ns(self, timestamp: i64) -> i64 {
        match (self, timestamp.unsigned_abs()) {
            (Self::Auto, 0..5_000_000_000) => 1_000_000_000,
            (Self::Auto, 5_000_000_000..5_000_000_000_000) => 1_000_000,
            (Self::Auto, 5_000_000_000_000..5_000_000_000_000_000) => 1_000,
            _ => self.unit_ns(),
        }
    }

    /// Nanoseconds in one unit; 1 if timestamps tell theirs.
    pub const fn unit_ns(self) -> i64 {
        match self {
            Self::Nanosecond | Self::Auto => 1,
            Self::Microsecond => 1_000,
            Self::Millisecond => 1_000_000,
            Self::Second => 1_000_000_000,
            Self::Minute => 60_000_000_000,
            Self::Hour => 3_600_000_000_000,
        }
    }
}

/// How to read a body.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// Hashes keys; of [`crate::Protocol::Line`].
    pub hasher: ScopedKeyHasher<'a>,
    /// The unit of timestamps.
    pub precision: Precision,
    /// The time of points that bring none; cut to the precision, as InfluxDB does.
    pub now_ns: i64,
    /// Bounds on lines.
    pub limits: &'a Limits,
}

/// Parses a body. Fails only when it is 2 GiB or longer.
pub fn parse<'body>(body: &'body [u8], options: &Options<'_>) -> Result<Parsed<'body>, BodyError> {
    check_body_size(body)?;
    let mut parser = Parser::new(body, options);
    while parser.at < body.len() {
        parser.next_line();
    }
    let Parser { mut batch, mut blocks, errors, .. } = parser;
    order::restore_order(&mut blocks);
    batch.blocks = blocks;
    Ok(Parsed { batch, errors })
}

struct Parser<'body, 'options> {
    body: &'body [u8],
    options: &'options Options<'options>,
    /// Keys up to this length break no limit, whatever is in them.
    unchecked_key_bytes: usize,
    /// Rows so far.
    rows: usize,
    /// The time of points that bring none.
    now_ns: i64,
    /// The next byte to read, and the number of its line.
    at: usize,
    line: u32,
    layouts: Layouts,
    batch: Batch<'body>,
    blocks: Vec<Block>,
    errors: LineErrors,
    scratch: slow::Scratch<'body>,
}

/// A line that was read: its key, its time, and where the next line begins.
struct Row {
    key_start: usize,
    key_length: usize,
    timestamp_ns: i64,
    end: usize,
    /// Line ends inside strings.
    inner_lines: u32,
}

impl<'body, 'options> Parser<'body, 'options> {
    fn new(body: &'body [u8], options: &'options Options<'options>) -> Self {
        let limits = options.limits;
        let unit_ns = options.precision.unit_ns();
        Self {
            body,
            options,
            unchecked_key_bytes: key::unchecked_key_bytes(limits),
            rows: 0,
            now_ns: options.now_ns - options.now_ns.rem_euclid(unit_ns),
            at: 0,
            line: 1,
            layouts: Layouts::default(),
            batch: Batch::new(body, decode_key),
            blocks: Vec::new(),
            errors: LineErrors::default(),
            scratch: slow::Scratch::default(),
        }
    }

    fn next_line(&mut self) {
        let rest = self.body.get(self.at..).unwrap_or_default();
        let blanks = count_blanks(rest);
        let rest = rest.get(blanks..).unwrap_or_default();
        let start = self.at + blanks;
        if let Some(length) = line_end(rest) {
            self.at = start + length;
            self.line += 1;
        } else if rest.first() == Some(&b'#') {
            self.at = start + memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
            self.line += 1;
        } else if self.parse_guessed(start).is_none() {
            self.parse_unguessed(start);
        }
    }

    /// Reads the line as if it had the layout that is its turn. `None`, and no trace left, if it has another one or
    /// anything else is unusual about it.
    #[inline]
    fn parse_guessed(&mut self, start: usize) -> Option<()> {
        let (place, layout) = self.layouts.predicted()?;
        let line = self.body.get(start..)?;
        let behind_measurement = line.strip_prefix(&*layout.measurement)?.first()?;
        let key_length = key::key_length(line)?;
        if !matches!(behind_measurement, b',' | b' ')
            || key_length > self.unchecked_key_bytes
            || self.rows == self.options.limits.rows_max
        {
            return None;
        }
        let cells = &mut self.blocks.get_mut(layout.block)?.cells;
        let cells_before = cells.len();
        let mut reader = FieldReader { line, start, at: key_length, batch: &mut self.batch, inner_lines: 0 };
        let ending = reader.read_fields(&layout.fields, cells);
        let (at, inner_lines) = (reader.at, reader.inner_lines);
        let row = ending.and_then(|ending| {
            let length = at + ending.length;
            let timestamp_ns = self.timestamp_ns(ending.timestamp).ok()?;
            let fits = length <= self.options.limits.line_bytes_max;
            fits.then_some(Row { key_start: start, key_length, timestamp_ns, end: start + length, inner_lines })
        });
        let Some(row) = row else {
            self.blocks.get_mut(layout.block)?.cells.truncate(cells_before);
            return None;
        };
        self.push_row(place, layout.block, &row);
        Some(())
    }

    /// The time of a point, in nanoseconds.
    #[inline]
    fn timestamp_ns(&self, timestamp: Option<i64>) -> Result<i64, &'static str> {
        match timestamp {
            None => Ok(self.now_ns),
            Some(timestamp) => timestamp
                .checked_mul(self.options.precision.unit_of_ns(timestamp))
                .ok_or("time outside range -9223372036854775808 - 9223372036854775807 ns"),
        }
    }

    /// Adds a row, except for its cells, and goes to the next line.
    #[inline]
    fn push_row(&mut self, place: usize, block: usize, row: &Row) {
        let raw_key = self.body.get(row.key_start..row.key_start + row.key_length).unwrap_or_default();
        let text = Span { start: row.key_start as u32, len: row.key_length as u32 };
        if let Some(block) = self.blocks.get_mut(block) {
            block.keys.push(GroupKey { hash: self.options.hasher.hash(raw_key), text });
            block.timestamps_ns.push(row.timestamp_ns);
            block.lines.push(self.line);
        }
        self.layouts.followed_by(place);
        self.rows += 1;
        self.at = row.end;
        self.line += row.inner_lines + 1;
    }
}

/// Reads the fields of a line whose layout is known.
struct FieldReader<'a, 'body> {
    line: &'a [u8],
    /// Where the line begins in the body.
    start: usize,
    /// The next byte of the line to read.
    at: usize,
    batch: &'a mut Batch<'body>,
    inner_lines: u32,
}

impl FieldReader<'_, '_> {
    /// Appends the cells and says how the line ends; `None` as soon as something does not fit the layout.
    #[inline]
    fn read_fields(&mut self, fields: &[LayoutField], cells: &mut Vec<u64>) -> Option<Ending> {
        let line = self.line;
        // Not a field of its own all along: it would be stored and loaded for each of the line's fields.
        let mut at = self.at + count_blanks(line.get(self.at..)?);
        for field in fields {
            let text = strip_spelling(line.get(at..)?, &field.spelling)?;
            at += field.spelling.len();
            if let Some((cell, length)) = parse_expected(text, field.value_type) {
                cells.push(cell);
                at += length;
                continue;
            }
            let value = parse_value(text).ok().filter(|value| value.kind == field.value_type)?;
            cells.push(place_value(&value, text, self.start + at, self.batch, &mut self.inner_lines).ok()?);
            at += value.length;
        }
        self.at = at;
        parse_ending(line.get(at..)?).ok()
    }
}

/// The text behind a spelling, if it begins with it. Names are mostly 8 to 32 bytes long, which two comparisons of words
/// that may overlap settle without a call.
#[inline]
fn strip_spelling<'a>(text: &'a [u8], spelling: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = text.split_at_checked(spelling.len())?;
    let equal = match spelling.len() {
        8..=16 => head.first_chunk::<8>() == spelling.first_chunk() && head.last_chunk::<8>() == spelling.last_chunk(),
        17..=32 => {
            head.first_chunk::<16>() == spelling.first_chunk() && head.last_chunk::<16>() == spelling.last_chunk()
        }
        _ => head == spelling,
    };
    equal.then_some(rest)
}

/// The cell of a value whose text begins at `at` in the body.
#[inline]
fn place_value(
    value: &Value,
    text: &[u8],
    at: usize,
    batch: &mut Batch<'_>,
    inner_lines: &mut u32,
) -> Result<u64, &'static str> {
    if value.kind != ValueType::String {
        return Ok(value.cell);
    }
    let inner = text.get(1..value.length - 1).unwrap_or_default();
    if std::str::from_utf8(inner).is_err() {
        return Err("invalid UTF-8 in a string");
    }
    *inner_lines += memchr_iter(b'\n', inner).count() as u32;
    let span = if value.has_backslash {
        batch.push_text(&unescape_string(inner))
    } else {
        Span { start: at as u32 + 1, len: inner.len() as u32 }
    };
    Ok(span.to_cell())
}
