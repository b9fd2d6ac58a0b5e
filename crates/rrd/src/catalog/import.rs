//! Whole files into the database.

use std::sync::Arc;

use query::lines::push_field;
use query::{Budget, Value};

use super::file::primary_archive;
use super::replay::state_text;
use super::rows::STATE_FIELD;
use super::write::push_line;
use super::{Catalog, File, ImportedRows, NewFile, Writer};
use crate::RrdError;
use crate::file::{Archive, Consolidation, Definition, Moment, Rrd};
use crate::pattern::Identity;

/// Bytes of lines that are written together.
const LINES_BYTES_MAX: usize = 4 << 20;

/// Counts of what an import stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportReport {
    /// Rows that were stored.
    pub rows: u64,
    /// Rows that were refused, as those older than the database keeps.
    pub refused: u64,
    /// Why the first of them was.
    pub reason: Option<String>,
}

/// Where a file goes.
pub struct Destination<'a> {
    /// The database.
    pub database: &'a str,
    /// The path of the file.
    pub path: &'a str,
    /// Its measurement and labels; `None`: by the catalog's patterns.
    pub identity: Option<Identity>,
    /// A file of that path is replaced.
    pub replaces: bool,
}

/// Rows on their way.
struct Rows<'a> {
    writer: &'a dyn Writer,
    lines: String,
    count: u64,
    report: ImportReport,
}

impl Rows<'_> {
    fn write(&mut self) -> Result<(), RrdError> {
        let (lines, count) = (std::mem::take(&mut self.lines), std::mem::take(&mut self.count));
        if count == 0 {
            return Ok(());
        }
        let refused = self.writer.write(lines.as_bytes())?;
        self.report.refused += refused.total;
        self.report.rows += count.saturating_sub(refused.total);
        if let Some((_, reason)) = refused.lines.into_iter().next() {
            self.report.reason.get_or_insert(reason);
        }
        Ok(())
    }
}

impl Catalog {
    /// Stores a file: the rows of its archives as they are, and its state, so that it can be updated from now on.
    pub fn import(
        &self,
        rrd: &Rrd,
        to: &Destination<'_>,
        writer: &dyn Writer,
    ) -> Result<(Arc<File>, ImportReport), RrdError> {
        let definition = self.shared(to.database, Definition::of_file(rrd));
        let primary = primary_archive(&definition);
        let new = NewFile {
            database: to.database,
            path: to.path,
            identity: to.identity.clone().unwrap_or_else(|| self.patterns.identity(to.path)),
            definition,
            base: rrd.last_update,
            import: Some(ImportedRows { primary }),
        };
        {
            let _changing = self.changing.lock();
            self.prepare(&new, to.replaces)?;
        }
        self.store(rrd, new, writer)
    }

    /// Changes what may be changed of a file's sources. What updates made of readings until now becomes rows, as if it were imported: later
    /// readings alone are read by the new definition.
    pub fn tune(
        &self,
        file: &File,
        changes: &[SourceChange],
        writer: &dyn Writer,
        budget: &Budget,
    ) -> Result<Arc<File>, RrdError> {
        let mut rrd = self.export(file, budget)?;
        for change in changes {
            let source = rrd.sources.iter_mut().find(|source| source.name == change.source);
            let source =
                source.ok_or_else(|| RrdError::Invalid(format!("unknown data source name '{}'", change.source)))?;
            match change.limit {
                Limit::Heartbeat(seconds) => source.heartbeat_s = seconds,
                Limit::Min(min) => source.min = min,
                Limit::Max(max) => source.max = max,
            }
        }
        let new = NewFile {
            database: &file.database,
            path: &file.path,
            identity: file.identity.clone(),
            definition: self.shared(&file.database, Definition::of_file(&rrd)),
            base: rrd.last_update,
            // Its own series are readings.
            import: Some(ImportedRows { primary: None }),
        };
        Ok(self.store(&rrd, new, writer)?.0)
    }

    /// Stores rows and state of a file that was prepared.
    fn store(&self, rrd: &Rrd, new: NewFile<'_>, writer: &dyn Writer) -> Result<(Arc<File>, ImportReport), RrdError> {
        let (database, path, import) = (new.database, new.path, new.import);
        let primary = import.and_then(|import| import.primary);
        let number = self.db.database_id(database).map_err(|error| RrdError::Refused(error.to_string()))?;
        let file = File::new(new, number);
        let report = ImportReport { rows: 0, refused: 0, reason: None };
        let mut rows = Rows { writer, lines: String::new(), count: 0, report };
        for (number, archive) in rrd.archives.iter().enumerate() {
            let label = if primary == Some(number) { None } else { Some(file.archive_label(number)?) };
            push_rows(&mut rows, &file, archive, (label.as_deref(), i64::MAX))?;
        }
        push_past(&mut rows, &file, rrd)?;
        let mut state = String::new();
        push_field(&mut state, STATE_FIELD, &Value::text(state_text(rrd).as_str()));
        push_line(&mut rows.lines, &file.identity, None, &state, file.base.to_ns());
        rows.count += 1;
        rows.write()?;
        let (identity, definition, base) = (file.identity.clone(), file.definition.clone(), file.base);
        let new = NewFile { database, path, identity, definition, base, import };
        let _changing = self.changing.lock();
        Ok((self.add(new)?, rows.report))
    }
}

/// A limit of a source.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Its heartbeat in seconds.
    Heartbeat(u64),
    /// Its least rate; NaN: none.
    Min(f64),
    /// Its greatest rate; NaN: none.
    Max(f64),
}

/// A change of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceChange {
    /// The source.
    pub source: String,
    /// Its new limit.
    pub limit: Limit,
}

/// Continues the file's own series into the past by the rows of coarser archives of means, which are older than the finer ones.
fn push_past(rows: &mut Rows<'_>, file: &File, rrd: &Rrd) -> Result<(), RrdError> {
    let Some(primary) = file.import.and_then(|import| import.primary).and_then(|number| rrd.archives.get(number))
    else {
        return Ok(());
    };
    let oldest_s = |archive: &Archive| {
        let width_s = rrd.width_s(&archive.definition);
        let newest_s = rrd.last_update.seconds - rrd.last_update.seconds.rem_euclid(width_s);
        newest_s - width_s * archive.definition.rows as i64
    };
    let mut means: Vec<&Archive> = rrd
        .archives
        .iter()
        .filter(|archive| archive.definition.function == Consolidation::Average)
        .filter(|archive| archive.definition.points > primary.definition.points)
        .collect();
    means.sort_by_key(|archive| archive.definition.points);
    let mut covered_s = oldest_s(primary);
    for archive in means {
        push_rows(rows, file, archive, (None, covered_s))?;
        covered_s = covered_s.min(oldest_s(archive));
    }
    Ok(())
}

/// Appends the rows of an archive up to a time, in seconds, with the label of its series.
fn push_rows(
    rows: &mut Rows<'_>,
    file: &File,
    archive: &Archive,
    (label, until_s): (Option<&str>, i64),
) -> Result<(), RrdError> {
    let width_s = (archive.definition.points * file.definition.step_s) as i64;
    let newest_s = file.base.seconds - file.base.seconds.rem_euclid(width_s);
    for age in (0..archive.definition.rows as usize).rev() {
        let time_s = newest_s - age as i64 * width_s;
        if time_s > until_s {
            break;
        }
        let mut fields = String::new();
        let values = archive.row(age).unwrap_or_default();
        for (source, value) in file.definition.sources.iter().zip(values) {
            push_field(&mut fields, &source.name, &Value::Float(*value));
        }
        if fields.is_empty() {
            continue;
        }
        push_line(&mut rows.lines, &file.identity, label, &fields, Moment::from_seconds(time_s).to_ns());
        rows.count += 1;
        if rows.lines.len() >= LINES_BYTES_MAX {
            rows.write()?;
        }
    }
    Ok(())
}
