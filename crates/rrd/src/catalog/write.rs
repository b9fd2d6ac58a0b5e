//! Updates on their way into the database, as line protocol.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use query::Value;
use query::lines::{MEASUREMENT_SPECIAL, TAG_SPECIAL, escaped, push_field};

use super::rows::UNKNOWN_FIELD;
use super::{Catalog, File};
use crate::RrdError;
use crate::consolidate::too_early;
use crate::file::{Moment, Reading, SourceKind};
use crate::pattern::{ARCHIVE_LABEL, Identity};

/// Lines that were refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refused {
    /// How many.
    pub total: u64,
    /// Numbers of the first ones, from 1, and why.
    pub lines: Vec<(u32, String)>,
}

/// Stores lines of line protocol with times in nanoseconds.
pub trait Writer {
    /// Returns when they are on disk, with those that were refused. An error: none was stored.
    fn write(&self, lines: &[u8]) -> Result<Refused, RrdError>;
}

/// Updates that wait to be written together.
#[derive(Debug, Default)]
pub struct Pending {
    lines: String,
    /// The file and the caller's number of each line.
    of_lines: Vec<(Arc<File>, u64)>,
}

/// A refused update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The caller's number.
    pub number: u64,
    /// Why.
    pub reason: String,
}

impl Pending {
    /// Returns whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.of_lines.is_empty()
    }

    /// Bytes of the lines.
    pub fn size_bytes(&self) -> usize {
        self.lines.len()
    }

    /// Writes what waits; returns all that was refused.
    pub fn flush(&mut self, writer: &dyn Writer) -> Vec<Refusal> {
        let (lines, of_lines) = (std::mem::take(&mut self.lines), std::mem::take(&mut self.of_lines));
        let mut refusals = Vec::new();
        write_lines(writer, &lines, &of_lines, &mut refusals);
        refusals
    }
}

/// Writes lines, each of which is of a file and has a number of the caller's. Writers tell the first refusals alone: if there are more, both halves
/// are written again, which changes nothing of what is there.
fn write_lines(writer: &dyn Writer, lines: &str, of_lines: &[(Arc<File>, u64)], refusals: &mut Vec<Refusal>) {
    if of_lines.is_empty() {
        return;
    }
    let refused = writer.write(lines.as_bytes()).unwrap_or_else(|error| {
        let reason = error.to_string();
        let all = (1..).zip(of_lines).map(|(line, _)| (line, reason.clone()));
        Refused { total: of_lines.len() as u64, lines: all.collect() }
    });
    if refused.total == 0 {
        return;
    }
    of_lines.iter().for_each(|(file, _)| file.forget_last_update());
    if refused.total > refused.lines.len() as u64 && of_lines.len() > 1 {
        let (first, second) = of_lines.split_at(of_lines.len() / 2);
        let bytes = lines.split_inclusive('\n').take(first.len()).map(str::len).sum();
        let (of_first, of_second) = lines.split_at_checked(bytes).unwrap_or_default();
        write_lines(writer, of_first, first, refusals);
        write_lines(writer, of_second, second, refusals);
        return;
    }
    let known = refused.lines.into_iter().filter_map(|(line, reason)| {
        let (_, number) = of_lines.get((line as usize).checked_sub(1)?)?;
        Some(Refusal { number: *number, reason })
    });
    let before = refusals.len();
    refusals.extend(known);
    if refusals.len() == before {
        let reason = "it was refused".to_owned();
        refusals.extend(of_lines.iter().map(|(_, number)| Refusal { number: *number, reason: reason.clone() }));
    }
}

impl File {
    /// Has the last update looked up again.
    fn forget_last_update(&self) {
        *self.last_update.lock() = None;
    }
}

impl Catalog {
    /// Checks an update (`time:value:…`) of a file, and has it wait to be written. `number` is the caller's, for refusals.
    pub fn queue(
        &self,
        file: &Arc<File>,
        text: &str,
        (now, number): (Moment, u64),
        pending: &mut Pending,
    ) -> Result<(), RrdError> {
        let update = parse(file, text, now)?;
        self.last_update(file)?;
        {
            let mut last = file.last_update.lock();
            let before = last.unwrap_or(file.base);
            if update.0 <= before {
                return Err(too_early(update.0, before));
            }
            *last = Some(update.0);
        }
        push_line(&mut pending.lines, &file.identity, None, &fields(file, &update.1), update.0.to_ns());
        pending.of_lines.push((file.clone(), number));
        self.updates.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// Reads the time and the readings of an update.
fn parse(file: &File, text: &str, now: Moment) -> Result<(Moment, Vec<Reading>), RrdError> {
    let mut parts = text.split(':');
    let time = parts.next().unwrap_or_default();
    let mut time =
        Moment::parse(time, now).ok_or_else(|| RrdError::Invalid(format!("Cannot find timestamp in '{text}'!")))?;
    if file.definition.version < 3 {
        time.micros = 0;
    }
    let sources = &file.definition.sources;
    let expected = sources.iter().filter(|source| source.kind != SourceKind::Compute).count();
    let values: Vec<&str> = parts.collect();
    if values.len() != expected {
        let count = values.len();
        return Err(RrdError::Invalid(format!("expected {expected} data source readings (got {count}) from {text}")));
    }
    let mut values = values.into_iter();
    let readings = sources.iter().map(|source| match source.kind {
        SourceKind::Compute => Ok(Reading::Unknown),
        kind => Reading::parse(kind, values.next().unwrap_or("U")),
    });
    Ok((time, readings.collect::<Result<Vec<Reading>, RrdError>>()?))
}

/// The fields of an update's row.
fn fields(file: &File, readings: &[Reading]) -> String {
    let (mut out, mut unknown) = (String::new(), 0);
    for (number, (source, reading)) in file.definition.sources.iter().zip(readings).enumerate() {
        if source.kind == SourceKind::Compute {
            continue;
        }
        let value = match reading {
            Reading::Unsigned(value) => Value::Unsigned(*value),
            Reading::Signed(value) => Value::Int(*value),
            Reading::Number(value) => Value::Float(*value),
            Reading::Unknown => Value::Null,
        };
        if !push_field(&mut out, &file.field(number), &value) {
            unknown += 1;
        }
    }
    if unknown > 0 {
        push_field(&mut out, UNKNOWN_FIELD, &Value::Unsigned(unknown));
    }
    out
}

/// Appends a row as a line, with the label of an archive if it is of one.
pub(super) fn push_line(out: &mut String, identity: &Identity, archive: Option<&str>, fields: &str, time_ns: i64) {
    out.push_str(&escaped(&identity.measurement, &MEASUREMENT_SPECIAL));
    let archive = archive.map(|archive| (ARCHIVE_LABEL, archive));
    for (name, value) in identity.labels.iter().chain(archive) {
        // Writing to a string cannot fail.
        let _ = write!(out, ",{}={}", escaped(name, &TAG_SPECIAL), escaped(value, &TAG_SPECIAL));
    }
    let _ = writeln!(out, " {fields} {time_ns}");
}
