//! Whole files out of the database.

use db::Db;
use model::Matcher;
use query::Budget;

use super::replay::Replay;
use super::{Catalog, File};
use crate::RrdError;
use crate::consolidate::{NoSink, Updater};
use crate::file::{ArchiveDefinition, Definition, Moment, Reading, Rrd};

/// Nanoseconds of a millisecond.
const NS_PER_MS: i64 = 1_000_000;

impl Catalog {
    /// A file as RRDtool would have it after the same updates.
    pub fn export(&self, file: &File, budget: &Budget) -> Result<Rrd, RrdError> {
        let definition = &file.definition;
        let cells: u64 = definition.archives.iter().map(|archive| archive.rows).sum();
        budget.hold_bytes(cells * definition.sources.len() as u64 * 8)?;
        let last = self.last_update(file)?;
        let archives: Vec<(usize, ArchiveDefinition)> = definition.archives.iter().copied().enumerate().collect();
        let window_s = |archive: &ArchiveDefinition| {
            let width_s = (archive.points * definition.step_s) as i64;
            let newest_s = last.seconds - last.seconds.rem_euclid(width_s);
            (newest_s - archive.rows as i64 * width_s, newest_s)
        };
        let from_s = definition.archives.iter().map(|archive| window_s(archive).0).min().unwrap_or_default();
        let replay = Replay { archives: &archives, from_s, until_s: None, stores_rows: true };
        let mut rrd = self.replay(file, &replay, &mut NoSink, budget)?;
        for (number, archive) in definition.archives.iter().enumerate() {
            let (before_s, newest_s) = window_s(archive);
            let width_s = (archive.points * definition.step_s) as i64;
            let imported_s = file.base.seconds - file.base.seconds.rem_euclid(width_s);
            let range = (before_s + width_s, imported_s.min(newest_s));
            if range.0 > range.1 {
                continue;
            }
            let Some(out) = rrd.archives.get_mut(number) else { continue };
            for (time_s, values) in self.imported_rows(file, number, range, budget)? {
                let age = ((newest_s - time_s) / width_s) as usize;
                let row = (out.newest + archive.rows as usize - age) % archive.rows as usize;
                if let Some(cells) = out.values.get_mut(row * values.len()..(row + 1) * values.len()) {
                    cells.copy_from_slice(&values);
                }
            }
        }
        Ok(rrd)
    }

    /// The state of a file after its last update, without rows.
    pub fn state(&self, file: &File, budget: &Budget) -> Result<Rrd, RrdError> {
        let last = self.last_update(file)?;
        let archives: Vec<(usize, ArchiveDefinition)> = file.definition.archives.iter().copied().enumerate().collect();
        let begun_s = |archive: &ArchiveDefinition| {
            let width_s = (archive.points * file.definition.step_s) as i64;
            last.seconds - last.seconds.rem_euclid(width_s)
        };
        let from_s = file.definition.archives.iter().map(begun_s).min().unwrap_or_default();
        let replay = Replay { archives: &archives, from_s, until_s: None, stores_rows: false };
        self.replay(file, &replay, &mut NoSink, budget)
    }
}

/// Makes a file of a series that is none of a file: its samples are the readings of the only source of a definition.
pub fn export_series(
    (db, database): (&Db, &str),
    matchers: &[Matcher],
    definition: &Definition,
    budget: &Budget,
) -> Result<Rrd, RrdError> {
    let [source] = definition.sources.as_slice() else {
        return Err(RrdError::invalid("a series is one data source: define one"));
    };
    let series = db.samples(database, matchers, (i64::MIN / NS_PER_MS, i64::MAX / NS_PER_MS), budget)?;
    let series = match series.as_slice() {
        [series] => series,
        others => {
            let message = format!("the selector matches {} series; a file is made of one: add labels", others.len());
            return Err(RrdError::Invalid(message));
        }
    };
    let first_ms = series.timestamps_ms.first().copied();
    let first_ms = first_ms.ok_or_else(|| RrdError::invalid("the series has no samples that are numbers"))?;
    let cells: u64 = definition.archives.iter().map(|archive| archive.rows).sum();
    budget.hold_bytes(cells * 8)?;
    // A reading covers the time before it: the first one that of a step.
    let begin = Moment::from_seconds(first_ms.div_euclid(1_000) - definition.step_s as i64);
    let mut rrd = definition.empty_file(begin);
    let mut updater = Updater::new(&definition.sources)?;
    for (time_ms, value) in series.timestamps_ms.iter().zip(&series.values) {
        budget.check()?;
        let reading = Reading::of_number(source.kind, *value);
        updater.update(&mut rrd, Moment::from_ns(time_ms * NS_PER_MS), &[reading], &mut NoSink)?;
    }
    Ok(rrd)
}
