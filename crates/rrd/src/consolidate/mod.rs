//! Updates: readings become rates, rates primary data points, and those rows of archives, as `rrdtool update` computes them.
//!
//! Every update covers the time since the one before. What it says of that time goes to the primary data points that it touches; a point
//! that is complete goes to every archive (`archive.rs`).

mod archive;

use crate::file::{Moment, Reading, Rrd, Source, SourceKind, SourceState};
use crate::rpn::Program;
use crate::{RrdError, rpn};

use archive::Elapsed;

/// Where a counter of 32 bits wraps, as RRDtool 1.7 adds it.
const WRAP_32: f64 = 4_294_967_295.0;
/// What beyond that is added where a counter of 64 bits wraps.
const WRAP_64: f64 = 18_446_744_069_414_584_320.0;
const MICROS_PER_S: f64 = 1e6;

/// Takes rows that updates complete.
pub trait RowSink {
    /// A row of an archive: its time, and a value for each source.
    fn row(&mut self, archive: usize, time_s: i64, values: &[f64]);
}

/// Rows go to the archives of the file alone.
pub struct NoSink;

impl RowSink for NoSink {
    fn row(&mut self, _: usize, _: i64, _: &[f64]) {}
}

/// Updates a file in memory.
pub struct Updater {
    programs: Vec<Option<Program>>,
    rates: Vec<f64>,
    points: Vec<f64>,
}

/// How an update divides the time since the one before.
#[derive(Debug, Clone, Copy)]
struct Interval {
    /// All of it, in seconds.
    whole: f64,
    /// Up to the last end of a primary data point.
    before: f64,
    /// After it.
    after: f64,
    /// Ends of primary data points.
    steps: u64,
    /// The number of the point under way.
    first_point: u64,
}

impl Interval {
    fn between(last: Moment, time: Moment, point_s: i64) -> Self {
        let whole =
            (time.seconds - last.seconds) as f64 + (f64::from(time.micros) - f64::from(last.micros)) / MICROS_PER_S;
        let begun = last.seconds - last.seconds.rem_euclid(point_s);
        let age = time.seconds.rem_euclid(point_s);
        let ended = time.seconds - age;
        let (before, after) = if ended > begun {
            let before = (ended - last.seconds) as f64 - f64::from(last.micros) / MICROS_PER_S;
            (before, age as f64 + f64::from(time.micros) / MICROS_PER_S)
        } else {
            (whole, 0.0)
        };
        let steps = ((ended - begun) / point_s).max(0) as u64;
        Self { whole, before, after, steps, first_point: begun.div_euclid(point_s).max(0) as u64 }
    }
}

impl Updater {
    /// For files of some sources.
    pub fn new(sources: &[Source]) -> Result<Self, RrdError> {
        let mut programs = Vec::with_capacity(sources.len());
        for (number, source) in sources.iter().enumerate() {
            let before = sources.get(..number).unwrap_or_default();
            let operand = |name: &str| before.iter().position(|source| source.name == name).map(rpn::Operand::Series);
            let program = (source.kind == SourceKind::Compute)
                .then(|| Program::parse(&source.expression, &operand))
                .transpose()
                .map_err(|error| RrdError::Invalid(format!("data source {}: {error}", source.name)))?;
            programs.push(program);
        }
        Ok(Self { programs, rates: Vec::new(), points: Vec::new() })
    }

    /// Applies an update: a reading for each source. Its time is after that of the last one.
    pub fn update(
        &mut self,
        rrd: &mut Rrd,
        time: Moment,
        readings: &[Reading],
        sink: &mut dyn RowSink,
    ) -> Result<(), RrdError> {
        if time <= rrd.last_update {
            return Err(too_early(time, rrd.last_update));
        }
        let step_s = rrd.step_s as i64;
        let mut interval = Interval::between(rrd.last_update, time, step_s);
        self.rates.clear();
        for ((source, state), reading) in rrd.sources.iter().zip(&mut rrd.states).zip(readings) {
            self.rates.push(increment(source, state, *reading, interval.whole));
        }
        if interval.steps == 0 {
            for (state, rate) in rrd.states.iter_mut().zip(&self.rates) {
                if rate.is_nan() {
                    state.unknown_s = state.unknown_s.saturating_add(interval.whole.floor() as u64);
                } else {
                    state.value = if state.value.is_nan() { *rate } else { state.value + rate };
                }
            }
        } else {
            // The point that was under way is completed by itself: the others are of this interval alone.
            let open_s = (interval.before as i64).rem_euclid(step_s);
            if interval.steps > 1 && open_s > 0 {
                self.complete_open(rrd, &interval, open_s, sink);
                interval.whole -= open_s as f64;
                interval.before -= open_s as f64;
                interval.steps -= 1;
                interval.first_point += 1;
            }
            self.complete(rrd, &interval);
            let ended_s = time.seconds - time.seconds.rem_euclid(step_s);
            archive::add_points(rrd, &self.points, &Elapsed::new(&interval, ended_s), sink);
        }
        rrd.last_update = time;
        Ok(())
    }

    /// Completes the point under way by its share of the update.
    fn complete_open(&mut self, rrd: &mut Rrd, interval: &Interval, open_s: i64, sink: &mut dyn RowSink) {
        let share = open_s as f64;
        let mut rates: Vec<f64> = self
            .rates
            .iter_mut()
            .map(|rate| {
                let open = *rate * share / interval.whole;
                *rate -= open;
                open
            })
            .collect();
        std::mem::swap(&mut self.rates, &mut rates);
        let open = Interval { whole: share, before: share, after: 0.0, steps: 1, first_point: interval.first_point };
        self.complete(rrd, &open);
        let ended_s = (open.first_point as i64 + 1) * rrd.step_s as i64;
        archive::add_points(rrd, &self.points, &Elapsed::new(&open, ended_s), sink);
        self.rates = rates;
    }

    /// Completes primary data points: their rate goes to `points`.
    fn complete(&mut self, rrd: &mut Rrd, interval: &Interval) {
        let seconds = interval.steps * rrd.step_s;
        self.points.clear();
        for (number, (source, state)) in rrd.sources.iter().zip(&mut rrd.states).enumerate() {
            let rate = self.rates.get(number).copied().unwrap_or(f64::NAN);
            let mut unknown_before = 0.0;
            if rate.is_nan() {
                unknown_before = interval.before;
            } else {
                let value = if state.value.is_nan() { 0.0 } else { state.value };
                state.value = value + rate / interval.whole * interval.before;
            }
            let is_unknown =
                interval.whole > source.heartbeat_s as f64 || rrd.step_s as f64 / 2.0 < state.unknown_s as f64;
            let known_s = seconds as f64 - state.unknown_s as f64 - unknown_before;
            let mut point = if is_unknown { f64::NAN } else { state.value / known_s };
            if let Some(Some(program)) = self.programs.get(number) {
                point = program.evaluate_once(&self.points, rrd.step_s as f64).unwrap_or(f64::NAN);
            }
            self.points.push(point);
            if rate.is_nan() {
                state.unknown_s = interval.after.floor() as u64;
                state.value = f64::NAN;
            } else {
                state.unknown_s = 0;
                state.value = rate / interval.whole * interval.after;
            }
        }
    }
}

/// An update that is not after the last one.
pub(crate) fn too_early(time: Moment, last: Moment) -> RrdError {
    RrdError::Invalid(format!(
        "illegal attempt to update using time {} when last update time is {} (minimum one second step)",
        time.seconds, last.seconds
    ))
}

/// Rate times seconds of a reading, NaN if it is unknown; the reading becomes the last one.
fn increment(source: &Source, state: &mut SourceState, reading: Reading, interval_s: f64) -> f64 {
    let is_silent = (source.heartbeat_s as f64) < interval_s;
    let last = if is_silent { Reading::Unknown } else { state.last };
    state.last = reading;
    if is_silent || source.kind == SourceKind::Compute {
        return f64::NAN;
    }
    let increment = match (source.kind, reading) {
        (SourceKind::Gauge, Reading::Number(value)) => value * interval_s,
        (SourceKind::Absolute, Reading::Number(value)) => value,
        (SourceKind::Counter, _) => wrapped(difference(reading, last)),
        (SourceKind::DCounter, Reading::Number(value)) => match last {
            Reading::Number(last) if value > 0.0 && last > value || value < 0.0 && value > last => f64::NAN,
            _ => difference(reading, last),
        },
        _ => difference(reading, last),
    };
    let rate = match (source.kind, reading) {
        (SourceKind::Gauge, Reading::Number(value)) => value,
        _ => increment / interval_s,
    };
    // A comparison with NaN, which is no limit, is false.
    if rate > source.max || rate < source.min { f64::NAN } else { increment }
}

/// The difference of two readings of a kind; NaN if one is unknown, or their signs differ.
fn difference(reading: Reading, last: Reading) -> f64 {
    match (reading, last) {
        (Reading::Unsigned(new), Reading::Unsigned(old)) => rounded(i128::from(new) - i128::from(old)),
        (Reading::Signed(new), Reading::Signed(old)) if (new < 0) == (old < 0) => {
            rounded(i128::from(new) - i128::from(old))
        }
        (Reading::Number(new), Reading::Number(old)) => new - old,
        _ => f64::NAN,
    }
}

/// An integer as a float, digit by digit as RRDtool reads it: that rounds differently beyond 53 bits, as where a counter of 64 bits wraps.
fn rounded(integer: i128) -> f64 {
    let digits = integer.unsigned_abs().to_string();
    let float = digits.bytes().fold(0.0, |float, digit| float * 10.0 + f64::from(digit - b'0'));
    if integer < 0 { -float } else { float }
}

fn wrapped(mut increment: f64) -> f64 {
    if increment < 0.0 {
        increment += WRAP_32;
    }
    if increment < 0.0 {
        increment += WRAP_64;
    }
    increment
}
