//! Reading as `rrdtool fetch` does: which archive, and from when to when.

use std::fmt::Write;

use crate::file::{ArchiveDefinition, Consolidation, Definition};
use crate::{RrdError, number};

/// Rows that one fetch may give.
pub const FETCH_ROWS_MAX: i64 = 4 << 20;

/// Seconds of the latest time that is taken: beyond it sums could overflow.
const TIME_S_MAX: i64 = 1 << 40;

/// The arguments of a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchRequest {
    /// The consolidation function.
    pub function: Consolidation,
    /// From when, in seconds.
    pub start_s: i64,
    /// To when.
    pub end_s: i64,
    /// The wanted resolution in seconds; 0: the finest.
    pub step_s: i64,
}

/// The archive that answers, and the rows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FetchPlan {
    /// Its number.
    pub archive: usize,
    /// When the first row begins: the first row's time is a step later.
    pub start_s: i64,
    /// The time of the last row.
    pub end_s: i64,
    /// Seconds of a row.
    pub step_s: i64,
    /// The time of the archive's oldest row.
    pub oldest_s: i64,
    /// The time of its newest row.
    pub newest_s: i64,
}

impl FetchPlan {
    /// Rows that the answer has.
    pub const fn rows(&self) -> usize {
        ((self.end_s - self.start_s) / self.step_s) as usize
    }
}

/// Fetched rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Fetched {
    /// When the first row begins.
    pub start_s: i64,
    /// The time of the last row.
    pub end_s: i64,
    /// Seconds of a row.
    pub step_s: i64,
    /// Names of the sources.
    pub names: Vec<String>,
    /// Row by row, a value for each source.
    pub values: Vec<f64>,
}

impl Fetched {
    /// Times and values of the rows.
    pub fn rows(&self) -> impl Iterator<Item = (i64, &[f64])> {
        let times = (1..).map(|number| self.start_s + number * self.step_s);
        times.zip(self.values.chunks_exact(self.names.len().max(1)))
    }

    /// The values of a source.
    pub fn column(&self, source: usize) -> Vec<f64> {
        self.rows().map(|(_, values)| values.get(source).copied().unwrap_or(f64::NAN)).collect()
    }

    /// As `rrdtool fetch` prints it.
    pub fn to_text(&self) -> String {
        let mut out = String::from("           ");
        // Writing to a string cannot fail.
        for name in &self.names {
            let _ = write!(out, "{name:>20}");
        }
        out.push_str("\n\n");
        for (time_s, values) in self.rows() {
            let _ = write!(out, "{time_s:>10}:");
            for value in values {
                let _ = write!(out, " {}", number::printed(*value, 10));
            }
            out.push('\n');
        }
        out
    }

    /// As an object of JSON: unknown values are null.
    pub fn to_json(&self) -> String {
        let names: Vec<serde_json::Value> = self.names.iter().map(|name| name.as_str().into()).collect();
        let mut out = String::new();
        let _ = write!(
            out,
            "{{\"start\":{},\"end\":{},\"step\":{},\"names\":{},\"rows\":[",
            self.start_s,
            self.end_s,
            self.step_s,
            serde_json::Value::Array(names)
        );
        for (row, (time_s, values)) in self.rows().enumerate() {
            let _ = write!(out, "{}[{time_s}", if row == 0 { "" } else { "," });
            for value in values {
                let _ = if value.is_finite() { write!(out, ",{value:e}") } else { write!(out, ",null") };
            }
            out.push(']');
        }
        out.push_str("]}");
        out
    }
}

/// Chooses the archive that answers best: of those that reach back far enough the one with the nearest resolution, otherwise the one that
/// covers most.
pub fn plan(definition: &Definition, last_update_s: i64, request: &FetchRequest) -> Result<FetchPlan, RrdError> {
    let FetchRequest { function, start_s, end_s, step_s } = *request;
    if !(0..TIME_S_MAX).contains(&start_s) || !(0..TIME_S_MAX).contains(&end_s) || start_s > end_s {
        return Err(RrdError::Invalid(format!("start ({start_s}) should be less than end ({end_s})")));
    }
    let is_match = |archive: &&(usize, &ArchiveDefinition)| archive.1.function == function || archive.1.points == 1;
    let width_s = |archive: &ArchiveDefinition| (definition.step_s * archive.points) as i64;
    let oldest_s = |archive: &ArchiveDefinition| {
        last_update_s - last_update_s.rem_euclid(width_s(archive)) - width_s(archive) * archive.rows as i64
    };
    let mut full: Option<(i64, usize)> = None;
    let mut part: Option<(i64, i64, usize)> = None;
    for (number, archive) in definition.archives.iter().enumerate().filter(|archive| is_match(&archive)) {
        let difference = (step_s - width_s(archive)).abs();
        let from_s = oldest_s(archive);
        if from_s <= start_s {
            if full.is_none_or(|(best, _)| difference < best) {
                full = Some((difference, number));
            }
        } else {
            let covered = end_s - start_s - (from_s - start_s);
            let is_better = |(most, nearest, _): (i64, i64, usize)| {
                // RRDtool's first comparison is with no seconds at all.
                most < covered || most == covered && difference < nearest
            };
            if part.is_none_or(is_better) {
                part = Some((covered, difference, number));
            }
        }
    }
    let chosen = full.map(|(_, number)| number).or(part.map(|(_, _, number)| number));
    let none = || RrdError::invalid("the RRD does not contain an RRA matching the chosen CF");
    let (number, archive) =
        chosen.and_then(|number| Some((number, definition.archives.get(number)?))).ok_or_else(none)?;
    let step_s = width_s(archive);
    let plan = FetchPlan {
        archive: number,
        start_s: start_s - start_s % step_s,
        end_s: end_s + (step_s - end_s % step_s),
        step_s,
        oldest_s: oldest_s(archive) + step_s,
        newest_s: last_update_s - last_update_s.rem_euclid(step_s),
    };
    if (plan.end_s - plan.start_s) / step_s > FETCH_ROWS_MAX {
        let message = format!("more than {FETCH_ROWS_MAX} rows of {step_s} seconds: ask for less time");
        return Err(RrdError::Invalid(message));
    }
    Ok(plan)
}
