//! Primary data points become rows of archives.

use super::{Interval, RowSink};
use crate::file::{ArchiveDefinition, Consolidation, RowState, Rrd};

/// Points of one rate that were completed at the same time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Elapsed {
    /// How many.
    points: u64,
    /// The number of the first.
    first_point: u64,
    /// When the last ended, in seconds.
    ended_s: i64,
}

impl Elapsed {
    pub(super) fn new(interval: &Interval, ended_s: i64) -> Self {
        Self { points: interval.steps, first_point: interval.first_point, ended_s }
    }
}

/// How points divide into the rows of an archive.
struct Division {
    /// Points that belong to the row under way, if it is completed.
    to_first: u64,
    /// Rows that are completed.
    rows: u64,
    /// Points of the row that is begun.
    carried: u64,
}

impl Division {
    fn new(elapsed: &Elapsed, definition: &ArchiveDefinition) -> Self {
        let to_first = definition.points - elapsed.first_point % definition.points;
        if to_first > elapsed.points {
            return Self { to_first, rows: 0, carried: 0 };
        }
        let after = elapsed.points - to_first;
        Self { to_first, rows: after / definition.points + 1, carried: after % definition.points }
    }
}

/// Adds points to every archive: a rate for each source.
pub(super) fn add_points(rrd: &mut Rrd, points: &[f64], elapsed: &Elapsed, sink: &mut dyn RowSink) {
    let step_s = rrd.step_s as i64;
    let (mut first, mut further) = (Vec::with_capacity(points.len()), Vec::with_capacity(points.len()));
    for (number, archive) in rrd.archives.iter_mut().enumerate() {
        let definition = archive.definition;
        let division = Division::new(elapsed, &definition);
        for (state, point) in archive.states.iter_mut().zip(points) {
            if definition.points == 1 {
                (state.primary, state.secondary) = (*point, *point);
            } else {
                add_point(state, &definition, *point, (&division, elapsed.points));
            }
        }
        // Of more rows than there is room for, only the last ones are written.
        let rows = division.rows.min(definition.rows);
        if rows == 0 {
            continue;
        }
        first.clear();
        further.clear();
        first.extend(archive.states.iter().map(|state| state.primary));
        further.extend(archive.states.iter().map(|state| state.secondary));
        let width_s = step_s * definition.points as i64;
        let newest_s = elapsed.ended_s - elapsed.ended_s.rem_euclid(width_s);
        for row in 0..rows {
            let values = if row == 0 { &first } else { &further };
            archive.push(values);
            sink.row(number, newest_s - (rows - 1 - row) as i64 * width_s, values);
        }
    }
}

/// Adds points of a rate to the row under way of a source.
fn add_point(state: &mut RowState, definition: &ArchiveDefinition, point: f64, (division, elapsed): (&Division, u64)) {
    if division.rows == 0 {
        if point.is_nan() {
            state.unknown_points = state.unknown_points.saturating_add(elapsed);
        } else {
            state.value = accumulated(definition.function, state.value, point, elapsed);
        }
        return;
    }
    if point.is_nan() {
        state.unknown_points = state.unknown_points.saturating_add(division.to_first);
    }
    state.secondary = point;
    state.primary = if state.unknown_points as f64 > definition.points as f64 * definition.xff {
        f64::NAN
    } else {
        completed(definition, state, point, division.to_first)
    };
    state.value = carried(definition.function, point, division.carried);
    state.unknown_points = if point.is_nan() { division.carried } else { 0 };
}

fn known_or(value: f64, otherwise: f64) -> f64 {
    if value.is_nan() { otherwise } else { value }
}

/// The value of a row that is completed by points of a rate.
fn completed(definition: &ArchiveDefinition, state: &RowState, point: f64, points: u64) -> f64 {
    match definition.function {
        Consolidation::Average => {
            let sum = known_or(state.value, 0.0) + known_or(point, 0.0) * points as f64;
            sum / definition.points.saturating_sub(state.unknown_points) as f64
        }
        Consolidation::Max => known_or(state.value, f64::NEG_INFINITY).max(known_or(point, f64::NEG_INFINITY)),
        Consolidation::Min => known_or(state.value, f64::INFINITY).min(known_or(point, f64::INFINITY)),
        Consolidation::Last => point,
    }
}

/// What a row that is begun has of points of a rate.
fn carried(function: Consolidation, point: f64, points: u64) -> f64 {
    if points == 0 || point.is_nan() {
        return match function {
            Consolidation::Average => 0.0,
            Consolidation::Max => f64::NEG_INFINITY,
            Consolidation::Min => f64::INFINITY,
            Consolidation::Last => f64::NAN,
        };
    }
    if function == Consolidation::Average { point * points as f64 } else { point }
}

/// The row under way with further points of a rate.
fn accumulated(function: Consolidation, value: f64, point: f64, points: u64) -> f64 {
    match function {
        Consolidation::Average => known_or(value, 0.0) + point * points as f64,
        _ if value.is_nan() => point,
        Consolidation::Max => value.max(point),
        Consolidation::Min => value.min(point),
        Consolidation::Last => point,
    }
}
