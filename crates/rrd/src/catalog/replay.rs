//! Rows that updates make of readings: the updates of a time are read, and applied as `rrdtool update` would have applied them.
//!
//! Rows of a time do not depend on updates long before it: it is enough to begin with the last update before the first row's beginning. What
//! the row and the point of that update are made of is not known, but they end before.

use serde_json::{Value as Json, json};

use model::TimeRange;
use query::Budget;

use super::{Catalog, File};
use crate::RrdError;
use crate::consolidate::{RowSink, Updater};
use crate::fetch::{self, FetchRequest, Fetched};
use crate::file::{ArchiveDefinition, Moment, Reading, RowState, Rrd, SourceState};
use crate::number;

/// Steps of a file whose updates are read at once.
const CHUNK_STEPS: i64 = 4_096;
/// Bytes of a value.
const VALUE_BYTES: u64 = 8;

/// A replay: which rows of which archives.
pub(super) struct Replay<'a> {
    /// The archives, with their numbers in the file.
    pub(super) archives: &'a [(usize, ArchiveDefinition)],
    /// When the first row that is needed begins.
    pub(super) from_s: i64,
    /// The time of the last one; `None`: of all.
    pub(super) until_s: Option<i64>,
    /// Rows are to be stored in the file.
    pub(super) stores_rows: bool,
}

/// Collects rows of an answer.
struct Collected<'a> {
    fetched: &'a mut Fetched,
    first_s: i64,
    last_s: i64,
}

impl Collected<'_> {
    fn set(&mut self, time_s: i64, values: &[f64]) {
        if time_s < self.first_s || time_s > self.last_s {
            return;
        }
        let row = (time_s - self.fetched.start_s) / self.fetched.step_s - 1;
        let start = row as usize * values.len();
        if let Some(row) = self.fetched.values.get_mut(start..start + values.len()) {
            row.copy_from_slice(values);
        }
    }
}

impl RowSink for Collected<'_> {
    fn row(&mut self, _: usize, time_s: i64, values: &[f64]) {
        self.set(time_s, values);
    }
}

impl Catalog {
    /// The rows of a file, as `rrdtool fetch` gives them.
    pub fn fetch(&self, file: &File, request: &FetchRequest, budget: &Budget) -> Result<Fetched, RrdError> {
        let last = self.last_update(file)?;
        let plan = fetch::plan(&file.definition, last.seconds, request)?;
        let names: Vec<String> = file.definition.sources.iter().map(|source| source.name.clone()).collect();
        let cells = plan.rows() * names.len();
        budget.hold_bytes(cells as u64 * VALUE_BYTES)?;
        let mut fetched = Fetched {
            start_s: plan.start_s,
            end_s: plan.end_s,
            step_s: plan.step_s,
            names,
            values: vec![f64::NAN; cells],
        };
        let (first_s, last_s) = ((plan.start_s + plan.step_s).max(plan.oldest_s), plan.end_s.min(plan.newest_s));
        let imported_s = file.base.seconds - file.base.seconds.rem_euclid(plan.step_s);
        let mut collected = Collected { fetched: &mut fetched, first_s, last_s };
        if first_s <= imported_s {
            let range = (first_s, last_s.min(imported_s));
            for (time_s, values) in self.imported_rows(file, plan.archive, range, budget)? {
                collected.set(time_s, &values);
            }
        }
        if last_s > imported_s && first_s <= last_s {
            collected.first_s = first_s.max(imported_s + plan.step_s);
            let archive = file.definition.archives.get(plan.archive).copied();
            let archives: Vec<(usize, ArchiveDefinition)> =
                archive.into_iter().map(|archive| (plan.archive, archive)).collect();
            let replay = Replay {
                archives: &archives,
                from_s: collected.first_s - plan.step_s,
                until_s: Some(last_s),
                stores_rows: false,
            };
            self.replay(file, &replay, &mut collected, budget)?;
        }
        Ok(fetched)
    }

    /// Applies the updates that a replay needs; the file as it is after them, with its chosen archives.
    pub(super) fn replay(
        &self,
        file: &File,
        replay: &Replay<'_>,
        sink: &mut dyn RowSink,
        budget: &Budget,
    ) -> Result<Rrd, RrdError> {
        let mut rrd = self.begin(file, replay, budget)?;
        let mut applied = Updater::new(&file.definition.sources)?;
        let last = self.last_update(file)?;
        let mut chunk_s = CHUNK_STEPS.saturating_mul(file.definition.step_s as i64);
        let mut read_to = rrd.last_update;
        let is_done = |rrd: &Rrd| replay.until_s.is_some_and(|until_s| rrd.last_update.seconds >= until_s);
        while read_to < last && !is_done(&rrd) {
            budget.check()?;
            let end = Moment { seconds: read_to.seconds.saturating_add(chunk_s), ..read_to }.min(last);
            let range = TimeRange::new(read_to.to_ns().saturating_add(1), end.to_ns());
            let updates = self.updates(file, range, budget)?;
            if updates.is_empty() {
                chunk_s = chunk_s.saturating_mul(2);
            }
            for update in updates {
                applied.update(&mut rrd, update.time, &update.readings, sink)?;
                if is_done(&rrd) {
                    break;
                }
            }
            read_to = end;
        }
        Ok(rrd)
    }

    /// The file before the first update that is applied.
    fn begin(&self, file: &File, replay: &Replay<'_>, budget: &Budget) -> Result<Rrd, RrdError> {
        let definition = &file.definition;
        let lookback_s = definition.heartbeat_s_max().saturating_add(definition.step_s).min(1 << 40) as i64;
        let from = Moment::from_seconds(replay.from_s);
        if from > file.base {
            let earliest = Moment::from_seconds(replay.from_s - lookback_s);
            let after_base = file.base.to_ns().saturating_add(1);
            let range = TimeRange::new(earliest.to_ns().max(after_base), from.to_ns());
            let before = if range.start_ns <= range.end_ns { self.last_in(file, range, budget)? } else { None };
            if let Some(update) = before {
                return Ok(begun(file, replay, update.time, &update.readings));
            }
            if earliest > file.base {
                // Whatever comes next comes after a silence that is longer than every heartbeat.
                return Ok(begun(file, replay, earliest, &[]));
            }
        }
        let mut rrd = begun(file, replay, file.base, &[]);
        if file.import.is_some()
            && let Some(text) = self.imported_state(file, budget)?
        {
            apply_state(&mut rrd, replay.archives, &text)?;
        }
        Ok(rrd)
    }
}

/// The file after an update of which only its readings are known.
fn begun(file: &File, replay: &Replay<'_>, time: Moment, readings: &[Reading]) -> Rrd {
    let archives: Vec<ArchiveDefinition> = replay.archives.iter().map(|(_, archive)| *archive).collect();
    let mut rrd = file.definition.empty_states(time, &archives);
    for (state, reading) in rrd.states.iter_mut().zip(readings) {
        state.last = *reading;
    }
    if replay.stores_rows {
        for archive in &mut rrd.archives {
            archive.values = vec![f64::NAN; archive.definition.rows as usize * file.definition.sources.len()];
        }
    }
    rrd
}

/// A float in a state, such that the same float is read.
fn float_text(value: f64) -> Json {
    if value.is_nan() { Json::Null } else { format!("{value:e}").into() }
}

fn float_of(value: &Json) -> f64 {
    value.as_str().and_then(number::parse).unwrap_or(f64::NAN)
}

/// The state of a file as text: of its sources, and of the row under way of its archives.
pub(super) fn state_text(rrd: &Rrd) -> String {
    let sources =
        rrd.states.iter().map(|state| json!([state.last.spelled(), state.unknown_s, float_text(state.value)]));
    let archives = rrd.archives.iter().map(|archive| {
        let states = archive.states.iter().map(|state| {
            json!([
                float_text(state.value),
                state.unknown_points,
                float_text(state.primary),
                float_text(state.secondary)
            ])
        });
        states.collect::<Json>()
    });
    json!({"ds": sources.collect::<Json>(), "rra": archives.collect::<Json>()}).to_string()
}

fn apply_state(rrd: &mut Rrd, archives: &[(usize, ArchiveDefinition)], text: &str) -> Result<(), RrdError> {
    let damaged = |_| RrdError::invalid("the state that the file was imported with is damaged: import it again");
    let document: Json = serde_json::from_str(text).map_err(damaged)?;
    for (number, (source, state)) in rrd.sources.iter().zip(&mut rrd.states).enumerate() {
        let stored = &document["ds"][number];
        *state = SourceState {
            last: Reading::of_state(source.kind, stored[0].as_str().unwrap_or("U")),
            unknown_s: stored[1].as_u64().unwrap_or_default(),
            value: float_of(&stored[2]),
        };
    }
    for (archive, (number, _)) in rrd.archives.iter_mut().zip(archives) {
        for (source, state) in archive.states.iter_mut().enumerate() {
            let stored = &document["rra"][*number][source];
            *state = RowState {
                value: float_of(&stored[0]),
                unknown_points: stored[1].as_u64().unwrap_or_default(),
                primary: float_of(&stored[2]),
                secondary: float_of(&stored[3]),
            };
        }
    }
    Ok(())
}
