//! A database whose time goes with its data, and whose views are refreshed when the benchmark says so.

use std::path::PathBuf;
use std::sync::Arc;

use db::{Db, DbOptions};
use platform::Platform;
use query::{Value, ViewUse};
use sql::{ClientContext, Manner};
use views::{RefreshLimits, Refresher};

use super::{NS_PER_S, ViewsFlags};
use crate::measure::process::{process_cpu_seconds, thread_cpu_seconds};
use crate::storage::location::{DataClock, bar};
use crate::workload::generate::{Generator, START_NS};

const DATABASE: &str = "default";

/// Rows of a request.
const REQUEST_ROWS: u64 = 5_000;

/// Samples that a query may hold.
const SAMPLES_MAX: u64 = 1 << 40;

/// Passes from one save of the log's position to the next: 5 s of 200 ms.
const PASSES_PER_SAVE: u64 = 25;

/// Passes after which refreshing should have ended.
const PASSES_MAX: usize = 1_000_000;

pub(super) struct PacedDb {
    pub(super) db: Arc<Db>,
    clock: Arc<DataClock>,
    refresher: Refresher,
    /// CPU seconds of all passes.
    pub(super) refresh_cpu_s: f64,
    rows_per_pass: u64,
    rows_since_pass: u64,
}

/// What a load took.
pub(super) struct LoadUse {
    pub(super) values: u64,
    /// CPU seconds of writing, refreshing, flushing and merging.
    pub(super) cpu_s: f64,
    /// Those of refreshing.
    pub(super) refresh_cpu_s: f64,
}

impl PacedDb {
    /// A new database. All work of a query is done by the thread that asks, so that its CPU time can be told.
    pub(super) fn open(folder: PathBuf, flags: &ViewsFlags, interval_s: u32, hosts: u32) -> Result<Self, String> {
        let clock = DataClock::new(START_NS);
        let platform = Platform { clock: clock.clone(), ..Platform::real() };
        let options = DbOptions { query_helpers: 0, result_cache_memory_bytes_max: 0, ..DbOptions::new(folder) };
        let db = Arc::new(Db::open(platform, options).map_err(|error| error.to_string())?);
        let ns_per_pass = flags.rows_per_pass.saturating_mul(u64::from(interval_s)) / u64::from(hosts);
        let save_interval_ns = ns_per_pass.saturating_mul(PASSES_PER_SAVE).saturating_mul(NS_PER_S as u64);
        let limits = RefreshLimits {
            save_interval_ns: i64::try_from(save_interval_ns).unwrap_or(i64::MAX),
            ..RefreshLimits::default()
        };
        let refresher = Refresher::new(db.clone(), limits);
        let rows_per_pass = flags.rows_per_pass;
        Ok(Self { db, clock, refresher, refresh_cpu_s: 0.0, rows_per_pass, rows_since_pass: 0 })
    }

    /// Writes the rows of so many moments; then everything is refreshed and merged.
    pub(super) fn load(&mut self, data: &mut Generator, steps: i64, what: &str) -> Result<LoadUse, String> {
        let values_per_row = data.values_per_step() / data.rows_per_step().max(1);
        let progress = bar(data.values_per_step() * steps as u64, what);
        let (begun_s, refreshed_s) = (process_cpu_seconds(), self.refresh_cpu_s);
        let (mut made_s, mut rows, mut text) = (0.0, 0, String::new());
        loop {
            let making_s = thread_cpu_seconds();
            let made = data.fill(&mut text, REQUEST_ROWS, steps);
            made_s += thread_cpu_seconds() - making_s;
            if made == 0 {
                break;
            }
            self.write(&text, made)?;
            rows += made;
            progress.set_position(rows * values_per_row);
        }
        progress.finish_and_clear();
        self.settle()?;
        self.db.compact(&mut |_| ()).map_err(|error| error.to_string())?;
        Ok(LoadUse {
            values: rows * values_per_row,
            cpu_s: process_cpu_seconds() - begun_s - made_s,
            refresh_cpu_s: self.refresh_cpu_s - refreshed_s,
        })
    }

    /// Writes lines, to whose last time the clock goes on, and lets a pass run if it is time for one.
    pub(super) fn write(&mut self, lines: &str, rows: u64) -> Result<(), String> {
        let last_ns = lines.trim_end().rsplit(' ').next().and_then(|time| time.parse().ok());
        self.clock.advance(last_ns.unwrap_or(i64::MIN));
        let (written, errors) = self.db.write_lines(DATABASE, lines.as_bytes()).map_err(|error| error.to_string())?;
        if errors.total > 0 || written.rows_written == 0 {
            return Err(format!("{} of {rows} rows were refused", errors.total));
        }
        self.rows_since_pass += rows;
        if self.rows_since_pass >= self.rows_per_pass {
            self.rows_since_pass = 0;
            self.pass()?;
        }
        Ok(())
    }

    fn pass(&mut self) -> Result<bool, String> {
        let begun_s = thread_cpu_seconds();
        let passed = self.refresher.pass();
        self.refresh_cpu_s += thread_cpu_seconds() - begun_s;
        passed.map_err(|error| error.to_string())
    }

    /// Lets passes run until nothing is left to refresh.
    pub(super) fn settle(&mut self) -> Result<(), String> {
        for _ in 0..PASSES_MAX {
            if !self.pass()? {
                return Ok(());
            }
        }
        Err(format!("refreshing did not end within {PASSES_MAX} passes"))
    }

    /// Lets so much time go by that all windows are over, and has them stored.
    pub(super) fn end_windows(&mut self, end_ns: i64) -> Result<(), String> {
        const WINDOWS_NS: i64 = 3 * 3600 * NS_PER_S;
        self.clock.advance(end_ns + WINDOWS_NS);
        self.settle()?;
        // As a server's next pass does: what passes wrote counts as a change until one has seen it, and windows of its time are computed.
        self.pass().map(|_| ())
    }

    /// The rows of a statement.
    pub(super) fn ask(&self, text: &str, view_use: ViewUse) -> Result<Vec<Vec<Value>>, String> {
        let parsed = sql::parse(text).map_err(|error| error.to_string())?;
        let mut client = ClientContext::new(DATABASE, self.db.now_ns());
        client.manner = Manner::QuestDb;
        let budget = self.db.budget(SAMPLES_MAX);
        budget.use_views(view_use);
        let answer = self.db.sql(&parsed, 0, &client, &budget).map_err(|error| format!("{text}: {error}"))?;
        Ok(answer.relation().map(|relation| relation.rows).unwrap_or_default())
    }

    /// A statement's only number.
    pub(super) fn number(&self, text: &str, view_use: ViewUse) -> Result<f64, String> {
        let rows = self.ask(text, view_use)?;
        let cell = rows.first().and_then(|row| row.first());
        cell.and_then(|value| value.to_string().parse().ok()).ok_or_else(|| format!("{text}: no number, but {cell:?}"))
    }

    pub(super) fn close(self) -> Result<(), String> {
        let Self { db, refresher, .. } = self;
        drop(refresher);
        db.close().map_err(|error| error.to_string())
    }
}
