//! A folder that is open in this process.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow_array::RecordBatchReader;
use db::{Db, DbOptions, InstantQuery, RangeQuery, TenantMemory, WriteReport};
use ingest::LineErrors;
use ingest::line::{Precision, TableColumns};
use model::{Labels, MatchOp, Matcher, SampleColumn, TimeRange};
use parking_lot::{Mutex, RwLock};
use platform::Platform;
use query::{Budget, FOLDED_WARNING, Stop, TableSchema};
use sql::ClientContext;

use crate::batches::Batches;
use crate::error::{Code, Error};
use crate::options::EngineOptions;
use crate::results::{self, Answered};
use crate::rows::{Columns, uses};

/// The database of calls that name none.
pub const DEFAULT_DATABASE: &str = model::DEFAULT_DATABASE;

/// Cells that one record of the log gets of a stream of rows.
const WRITTEN_CELLS_MAX: usize = 1 << 20;
/// How long a write waits for memory that others hold.
const MEMORY_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of memory that the rows of line protocol take, for each of their own.
const ROW_BYTES_PER_BYTE: usize = 2;
/// Reasons that a summary names.
const REASONS_MAX: usize = 10;
/// Series that an error names.
const NAMED_SERIES_MAX: usize = 3;

/// A query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Query<'a> {
    /// Statements of SQL; the last one's table.
    Sql {
        /// The statements.
        text: &'a str,
        /// The values of `$1`, `$2` … as a JSON array; empty: there are none.
        parameters: &'a str,
    },
    /// PromQL at one moment.
    PromqlInstant {
        /// The expression.
        text: &'a str,
        /// The moment, in milliseconds since the Unix epoch.
        time_ms: i64,
    },
    /// PromQL at regular moments.
    PromqlRange {
        /// The expression.
        text: &'a str,
        /// The first moment, in milliseconds since the Unix epoch.
        start_ms: i64,
        /// No moment is later.
        end_ms: i64,
        /// From one moment to the next, in milliseconds.
        step_ms: i64,
    },
    /// Statements of InfluxQL; their series as one table.
    Influxql {
        /// The statements.
        text: &'a str,
    },
}

/// The use of the columns of rows that are written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnRoles {
    /// The column of times; `None`: the one called `time` or `timestamp`.
    pub time: Option<String>,
    /// The columns that are tags; `None`: those that the table has as such, and new ones of texts.
    pub tags: Option<Vec<String>>,
}

/// The outcome of a write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteSummary {
    /// Rows that are on disk.
    pub rows_written: u64,
    /// Values in them.
    pub values_written: u64,
    /// Rows that were left out.
    pub rows_rejected: u64,
    /// Why, for the first of them: the row, counted from 1, and the reason.
    pub reasons: Vec<(u64, String)>,
}

impl WriteSummary {
    fn add(&mut self, report: &WriteReport, errors: &LineErrors, rows_before: u64) {
        self.rows_written += report.rows_written;
        self.values_written += report.values_written;
        self.rows_rejected += report.rejected_total + errors.total;
        let unread = errors.first.iter().map(|error| (error.line, &error.reason));
        let refused = report.rejected.iter().map(|rejected| (rejected.line, &rejected.reason));
        let mut reasons: Vec<(u64, String)> =
            unread.chain(refused).map(|(line, reason)| (rows_before + u64::from(line), reason.clone())).collect();
        reasons.sort();
        reasons.truncate(REASONS_MAX - self.reasons.len());
        self.reasons.extend(reasons);
    }

    /// The error of rows that were left out, if there were any.
    pub fn error(&self) -> Option<Error> {
        if self.rows_rejected == 0 {
            return None;
        }
        let reasons: Vec<String> = self.reasons.iter().map(|(row, reason)| format!("row {row}: {reason}")).collect();
        let more = if self.rows_rejected > self.reasons.len() as u64 { "; …" } else { "" };
        let message = format!(
            "{} rows were left out, {} are written: {}{more}",
            self.rows_rejected,
            self.rows_written,
            reasons.join("; ")
        );
        Some(Error::new(Code::Rejected, message))
    }
}

/// An open folder. All threads may share it.
pub struct Engine {
    /// `None` once it is closed.
    db: RwLock<Option<Arc<Db>>>,
    /// Memory of rows on their way in.
    writes: Arc<TenantMemory>,
    query_samples_max: u64,
    /// How it is opened again for what was written since; `None` if it is open for writing.
    reopened_with: Option<DbOptions>,
    /// Queries whose results are not read to their end.
    running: Mutex<Vec<Weak<Budget>>>,
}

/// Memory that is given back at the end of a write.
pub(crate) struct Lent<'a> {
    memory: &'a TenantMemory,
    bytes: u64,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}

impl Engine {
    /// Opens a folder, or makes one: one process at a time has it open for writing. For reading only it may be open elsewhere, too, and must be there.
    pub fn open(options: EngineOptions) -> Result<Self, Error> {
        let query_samples_max = options.query_samples_max;
        let open = if options.is_read_only { Db::open_read_only } else { Db::open };
        let db = open(Platform::real(), options.db.clone())?;
        let writes = db.request_memory().tenant();
        let reopened_with = options.is_read_only.then_some(options.db);
        Ok(Self {
            db: RwLock::new(Some(Arc::new(db))),
            writes,
            query_samples_max,
            reopened_with,
            running: Mutex::default(),
        })
    }

    /// Sees what another process has written to a folder that is open for reading only. Queries that run go on with what was there before. A folder
    /// that is open for writing has everything already.
    pub fn refresh(&self) -> Result<(), Error> {
        let Some(options) = &self.reopened_with else { return self.db().map(drop) };
        let fresh = Arc::new(self.db()?.open_read_only_again(Platform::real(), options.clone())?);
        let mut db = self.db.write();
        if db.is_none() {
            return Err(Error::new(Code::Closed, "the database is closed"));
        }
        *db = Some(fresh);
        Ok(())
    }

    /// Interrupts what runs, flushes and closes. The folder is free for others as soon as all calls have returned. A second time it does nothing.
    pub fn close(&self) -> Result<(), Error> {
        let Some(db) = self.db.write().take() else { return Ok(()) };
        self.interrupt();
        Ok(db.close()?)
    }

    /// Writes rows that are in memory and in the log alone into files, so that the next opening is quick. They are safe without it.
    pub fn flush(&self) -> Result<(), Error> {
        Ok(self.db()?.flush()?)
    }

    /// Stops the queries that run, and results that are not read to their end.
    pub fn interrupt(&self) {
        self.running.lock().drain(..).filter_map(|query| query.upgrade()).for_each(|query| query.stop(Stop::Cancelled));
    }

    /// Writes line protocol.
    pub fn write_lines(&self, database: &str, lines: &[u8], precision: Precision) -> Result<WriteSummary, Error> {
        let db = self.db()?;
        let _lent = self.lend(lines.len().saturating_mul(ROW_BYTES_PER_BYTE))?;
        let (report, errors) = db.write_lines_in(database, lines, precision)?;
        let mut summary = WriteSummary::default();
        summary.add(&report, &errors, 0);
        Ok(summary)
    }

    /// Writes rows of a table that come as columns.
    pub fn write_columns(&self, database: &str, columns: &TableColumns<'_>) -> Result<WriteSummary, Error> {
        let mut summary = WriteSummary::default();
        self.write_table(&*self.db()?, database, columns, &mut summary)?;
        Ok(summary)
    }

    /// Writes record batches to a table, some of their rows at a time. Those before an error are written.
    pub fn write_batches(
        &self,
        database: &str,
        table: &str,
        reader: impl RecordBatchReader,
        roles: &ColumnRoles,
    ) -> Result<WriteSummary, Error> {
        let db = self.db()?;
        let schema = self.table_schema(&db, database, table)?;
        let uses = uses(&reader.schema(), roles, schema.as_ref())?;
        let rows_max = (WRITTEN_CELLS_MAX / uses.len().max(1)).max(1);
        let mut summary = WriteSummary::default();
        for batch in reader {
            let batch = batch.map_err(|error| Error::invalid(format!("the rows could not be read: {error}")))?;
            for first in (0..batch.num_rows()).step_by(rows_max) {
                let rows = batch.slice(first, rows_max.min(batch.num_rows() - first));
                let columns = Columns::new(rows, &uses)?;
                self.write_table(&db, database, &columns.table(table), &mut summary)?;
            }
        }
        Ok(summary)
    }

    fn write_table(
        &self,
        db: &Db,
        database: &str,
        columns: &TableColumns<'_>,
        summary: &mut WriteSummary,
    ) -> Result<(), Error> {
        let _lent = self.lend(columns.batch_bytes())?;
        let (report, errors) = db.write_columns(database, columns)?;
        let rows_before = summary.rows_written + summary.rows_rejected;
        summary.add(&report, &errors, rows_before);
        Ok(())
    }

    /// Label sets of the series that a selector selects and that may have samples in a range: sorted, at most `limit` (0: all).
    pub fn series(&self, database: &str, selector: &str, range: TimeRange, limit: usize) -> Result<Vec<Labels>, Error> {
        let (db, budget) = self.query_start()?;
        Ok(db.series(database, &[promql::parse_selector(selector)?], range, limit, &budget)?)
    }

    /// The samples of the one series that a selector selects, in order of time. Where it selects several, the one counts that has its labels and
    /// no others.
    pub fn samples(&self, database: &str, selector: &str, range: TimeRange) -> Result<SampleColumn, Error> {
        let (db, budget) = self.query_start()?;
        let matchers = promql::parse_selector(selector)?;
        let found = db.series(database, std::slice::from_ref(&matchers), TimeRange::ALL, 0, &budget)?;
        let series = the_one(selector, &matchers, &found)?;
        let mut columns = db.written_samples(database, series, &range, &budget)?;
        match (columns.len(), columns.pop()) {
            (0 | 1, column) => Ok(column.unwrap_or(SampleColumn::F64(Vec::new(), Vec::new()))),
            _ => Err(Error::invalid(format!("two tables have a series {series}: ask for it in SQL, by its table"))),
        }
    }

    /// Deletes the samples in a range of all series that a selector selects; returns how many series that were.
    pub fn delete(&self, database: &str, selector: &str, range: TimeRange) -> Result<u64, Error> {
        let matchers = promql::parse_selector(selector)?;
        Ok(self.db()?.delete(database, &[matchers], &range)?.series as u64)
    }

    /// Runs a query.
    pub fn query(&self, database: &str, query: Query<'_>) -> Result<Batches, Error> {
        let (db, budget) = self.query_start()?;
        let Answered { rows, mut warnings } = match query {
            Query::Sql { text, parameters } => {
                results::sql(&db, database, text, results::parameters(parameters)?, &budget)?
            }
            Query::Influxql { text } => results::influxql(&db, database, text, &budget)?,
            Query::PromqlInstant { text, time_ms } => {
                let query = InstantQuery { budget: budget.clone(), ..InstantQuery::new(text, time_ms) };
                results::instant(&db, database, &query)?
            }
            Query::PromqlRange { text, start_ms, end_ms, step_ms } => {
                let (text, budget) = (text.to_owned(), budget.clone());
                let (lookback_ms, name_removal, may_cache) = (None, None, true);
                let query =
                    RangeQuery { text, start_ms, end_ms, step_ms, lookback_ms, name_removal, may_cache, budget };
                results::range(&db, database, &query)?
            }
        };
        if !matches!(query, Query::PromqlInstant { .. } | Query::PromqlRange { .. }) {
            warnings.extend(loss_warning(&db, &budget));
        }
        warnings.extend(budget.is_folded().then(|| FOLDED_WARNING.to_owned()));
        Ok(Batches::new(rows, budget, warnings))
    }

    /// The open database.
    pub(crate) fn db(&self) -> Result<Arc<Db>, Error> {
        self.db.read().clone().ok_or_else(|| Error::new(Code::Closed, "the database is closed"))
    }

    /// The database and a budget that [`Engine::interrupt`] reaches.
    pub(crate) fn query_start(&self) -> Result<(Arc<Db>, Arc<Budget>), Error> {
        let db = self.db()?;
        let budget = db.budget(self.query_samples_max);
        let mut running = self.running.lock();
        running.retain(|query| query.strong_count() > 0);
        running.push(Arc::downgrade(&budget));
        drop(running);
        Ok((db, budget))
    }

    fn table_schema(&self, db: &Db, database: &str, table: &str) -> Result<Option<TableSchema>, Error> {
        let budget = db.budget(self.query_samples_max);
        Ok(db.table_schema(table, &ClientContext::new(database, db.now_ns()), &budget)?)
    }

    pub(crate) fn lend(&self, bytes: usize) -> Result<Lent<'_>, Error> {
        let bytes = bytes as u64;
        if self.writes.take_within(bytes, 0, MEMORY_PATIENCE) {
            return Ok(Lent { memory: &self.writes, bytes });
        }
        let message = format!(
            "there is no memory for {bytes} bytes of rows at present (memory_bytes_max): write less at once, or later"
        );
        Err(Error::new(Code::Limit, message))
    }
}

/// Interrupts, flushes and closes what is open; errors are lost, rows are not.
impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.close();
    }
}

/// The one series that is meant.
fn the_one<'a>(selector: &str, matchers: &[Matcher], found: &'a [Labels]) -> Result<&'a Labels, Error> {
    match found {
        [] => Err(Error::new(Code::NotFound, format!("there is no series {selector}"))),
        [one] => Ok(one),
        many => {
            let has = |labels: &Labels, matcher: &Matcher| {
                matcher.op == MatchOp::Equal && labels.get(&matcher.name).unwrap_or_default() == matcher.value
            };
            let is_exact = |labels: &&Labels| {
                labels.len() == matchers.len() && matchers.iter().all(|matcher| has(labels, matcher))
            };
            many.iter().find(is_exact).ok_or_else(|| {
                let names: Vec<String> = many.iter().take(NAMED_SERIES_MAX).map(ToString::to_string).collect();
                let more = if many.len() > NAMED_SERIES_MAX { ", …" } else { "" };
                let message = format!("{selector} selects {} series, not one: {}{more}", many.len(), names.join(", "));
                Error::invalid(message)
            })
        }
    }
}

fn loss_warning(db: &Db, budget: &Budget) -> Option<String> {
    let range = budget.read_range();
    if range == TimeRange::EMPTY { None } else { db.health().loss_warning(Some(&range)) }
}
