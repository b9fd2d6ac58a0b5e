//! Keeps the stored windows of materialised views right.
//!
//! A pass of a database reads what the log has since the last one, once for all of its views: rows of windows that are stored make those
//! windows *dirty*, by the labels of the view's row ([`dirty`]). Dirty windows are computed again from the source, and what differs is written
//! ([`changes`]). Then windows that are over by now, and ranges that are pending (what was there before the view, what was deleted, what the
//! log does not hold any more) are computed piece by piece, newest first. All of it can be repeated: a crash in between needs nothing.
//!
//! * this file: passes · [`windows`]: computing windows of one view · [`thread`]: when passes run

mod changes;
mod dirty;
mod thread;
mod windows;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use db::views::ViewWindows;
use db::{Db, LogCursor, LogRead};
use model::TimeRange;
use query::QueryError;
use query::views::{RefreshPolicy, View};

use dirty::{Dirty, Follower};
pub use thread::RefreshThread;

/// Pieces of a view after which its state is saved: after a crash so many are computed again.
const UNSAVED_MAX: usize = 16;

/// Bounds of a pass.
#[derive(Debug, Clone, Copy)]
pub struct RefreshLimits {
    /// Windows of single label sets that are known to be dirty, for each view; with more all label sets are dirty.
    pub dirty_max: usize,
    /// Pieces of pending ranges that are computed of each view.
    pub pieces_max: usize,
    /// Windows of a piece.
    pub piece_windows_max: usize,
    /// Samples that computing a piece may hold.
    pub samples_max: u64,
    /// Nanoseconds between saves of the log's position.
    pub save_interval_ns: i64,
}

impl Default for RefreshLimits {
    fn default() -> Self {
        Self {
            dirty_max: 20_000,
            pieces_max: 4,
            piece_windows_max: 4_096,
            samples_max: 20_000_000,
            save_interval_ns: 5_000_000_000,
        }
    }
}

/// A database between passes.
#[derive(Default)]
struct Database {
    cursor: Option<LogCursor>,
    saved_sequence: u64,
    saved_ns: i64,
    /// The times of rows that came for windows that are not stored yet, by view; of a view that is missing nothing is known.
    later_rows: HashMap<String, TimeRange>,
    /// Windows of a piece, by view: as many as went well.
    piece_windows: HashMap<String, usize>,
    /// Pieces since a view's state was saved.
    unsaved: HashMap<String, usize>,
}

/// Keeps views right, pass by pass.
pub struct Refresher {
    db: Arc<Db>,
    limits: RefreshLimits,
    databases: BTreeMap<String, Database>,
}

/// What a pass of a database works with.
struct Pass<'a> {
    db: &'a Db,
    limits: &'a RefreshLimits,
    database: &'a mut Database,
}

impl Refresher {
    /// A refresher of a database's views.
    pub fn new(db: Arc<Db>, limits: RefreshLimits) -> Self {
        Self { db, limits, databases: BTreeMap::new() }
    }

    /// Makes a pass of all databases that have views; returns whether more is to be done at once.
    ///
    /// # Errors
    /// The first error of a database; the others had their pass.
    pub fn pass(&mut self) -> Result<bool, QueryError> {
        let names = self.db.view_databases();
        self.forget_others(&names)?;
        let (mut has_more, mut failed) = (false, None);
        for name in names {
            let database = self.databases.entry(name.clone()).or_default();
            let mut pass = Pass { db: &self.db, limits: &self.limits, database };
            match pass.run(&name) {
                Ok(more) => has_more |= more,
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        failed.map_or(Ok(has_more), Err)
    }

    /// Writes to disk how far everything is, so that a restart need not repeat it.
    ///
    /// # Errors
    /// As every change of the manifest.
    pub fn save(&mut self) -> Result<(), QueryError> {
        for (name, database) in &mut self.databases {
            for view in self.db.views(name) {
                self.db.save_view_state(&view)?;
            }
            if let Some(cursor) = &database.cursor
                && database.saved_sequence > 0
            {
                cursor.save(database.saved_sequence)?;
            }
        }
        Ok(())
    }

    /// Lets go of the cursors of databases without views.
    fn forget_others(&mut self, names: &BTreeSet<String>) -> Result<(), QueryError> {
        let gone: Vec<String> = self.databases.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in gone {
            self.databases.remove(&name);
            self.db.remove_log_cursor(&cursor_name(&name))?;
        }
        Ok(())
    }
}

/// The name of the cursor of a database's views.
fn cursor_name(database: &str) -> String {
    format!("views:{database}")
}

impl Pass<'_> {
    fn run(&mut self, name: &str) -> Result<bool, QueryError> {
        if self.database.cursor.is_none() {
            self.database.cursor = Some(self.db.log_cursor(&cursor_name(name), Some(name))?);
        }
        let views = in_order(self.db, name);
        let Some(mark) = self.db.mark_views()? else { return Ok(true) };
        let (dirty, sequence) = self.follow(&views, mark.sequence)?;
        let mut has_more = sequence < mark.sequence;
        for (view, dirty) in views.iter().zip(dirty) {
            self.take_dirty(view, &dirty)?;
        }
        // What was read is stored, or pending on disk.
        if !has_more {
            self.db.note_views_right(name, &mark);
        }
        self.save(sequence)?;
        for view in &views {
            has_more |= self.refresh(view)?;
        }
        Ok(has_more)
    }

    /// Reads the log up to a sequence id, as far as it is on disk: what it makes dirty of each view, and the last sequence id.
    fn follow(&mut self, views: &[Arc<View>], through: u64) -> Result<(Vec<Dirty>, u64), QueryError> {
        let mut follower = Follower::new(self.db, views, self.limits.dirty_max);
        let mut last = self.database.cursor.as_ref().map_or(0, LogCursor::sequence);
        while last < through {
            let Some(cursor) = &mut self.database.cursor else { break };
            match cursor.read()? {
                LogRead::End => {
                    last = cursor.sequence();
                    break;
                }
                LogRead::Gap(gap) => {
                    follower.gap(&gap.range);
                    last = gap.sequences.1;
                }
                LogRead::Records(batch) => {
                    batch.records.iter().for_each(|record| follower.record(record));
                    last = batch.last_sequence;
                }
            }
        }
        for (view, seen) in views.iter().zip(follower.later_rows()) {
            if let Some(known) = self.database.later_rows.get_mut(&view.definition.name) {
                *known = known.union(*seen);
            }
        }
        Ok((follower.finish(), last))
    }

    /// Computes the windows that changed again, or has them computed when they are due.
    fn take_dirty(&self, view: &View, dirty: &Dirty) -> Result<(), QueryError> {
        if dirty.late_samples_refused > 0 {
            self.db.note_view(view, |status| status.late_samples_refused += dirty.late_samples_refused);
        }
        if dirty.is_empty() {
            return Ok(());
        }
        let pieces = dirty.batches(view);
        if !self.is_due(view) {
            return self.db.add_view_ranges(view, &dirty.ranges());
        }
        for piece in &pieces {
            if let Err(error) = windows::refresh(self.db, view, piece, self.limits) {
                self.db.note_view(view, |status| status.error = Some(error.to_string()));
                return self.db.add_view_ranges(view, &dirty.ranges());
            }
        }
        Ok(())
    }

    fn is_due(&self, view: &View) -> bool {
        let definition = &view.definition;
        let status = self.db.view_status(&definition.database, &definition.name);
        match definition.options.refresh {
            RefreshPolicy::Immediate => true,
            RefreshPolicy::Manual => status.is_requested,
            RefreshPolicy::Every(ns) => {
                let now_ns = self.db.now_ns();
                status.is_requested || status.refreshed_ns.is_none_or(|then_ns| now_ns.saturating_sub(then_ns) >= ns)
            }
        }
    }

    /// Computes windows that are over and pieces of what is pending; returns whether more is pending.
    fn refresh(&mut self, view: &Arc<View>) -> Result<bool, QueryError> {
        let (database, name) = (&view.definition.database, &view.definition.name);
        let db = self.db;
        let current = || db.view(database, name);
        if !self.is_due(view) {
            return Ok(false);
        }
        let Some(mut view) = current() else { return Ok(false) };
        self.advance(&view)?;
        for number in 1..=self.limits.pieces_max {
            let Some(now) = current() else { return Ok(false) };
            view = now;
            let Some(pending) = self.db.next_view_range(&view) else { break };
            let piece_windows = self.database.piece_windows.entry(name.clone()).or_insert(64);
            let work = windows::Work { db: self.db, view: &view, limits: self.limits };
            let unsaved = self.database.unsaved.entry(name.clone()).or_default();
            *unsaved = (*unsaved + 1) % UNSAVED_MAX;
            let is_last = number == self.limits.pieces_max || *unsaved == 0;
            if let Err(error) = work.compute_newest(pending, piece_windows, is_last) {
                self.db.note_view(&view, |status| status.error = Some(error.to_string()));
                return Ok(false);
            }
        }
        let is_done = current().is_none_or(|view| self.db.next_view_range(&view).is_none());
        if is_done {
            let now_ns = self.db.now_ns();
            self.db.note_view(&view, |status| {
                (status.error, status.is_requested, status.refreshed_ns) = (None, false, Some(now_ns));
            });
        }
        Ok(!is_done)
    }

    /// Has windows computed that are over by now. Where it is known that no row came for them, nothing is.
    fn advance(&mut self, view: &View) -> Result<(), QueryError> {
        if !self.db.advance_view(view)? {
            return Ok(());
        }
        let name = &view.definition.name;
        let Some(current) = self.db.view(&view.definition.database, name) else { return Ok(()) };
        let watermark_ns = current.state.watermark_ns;
        let Some(seen) = self.database.later_rows.get_mut(name) else {
            // From here on the log tells of every row.
            let later =
                ViewWindows { view: &current, range: TimeRange::new(watermark_ns, i64::MAX), selectors: Vec::new() };
            let extent = self.db.view_extent(&later, &self.db.budget(self.limits.samples_max))?;
            self.database.later_rows.insert(name.clone(), extent);
            return Ok(());
        };
        let moved = TimeRange::new(view.state.watermark_ns, watermark_ns.saturating_sub(1));
        let is_empty = !seen.overlaps(&moved);
        seen.start_ns = seen.start_ns.max(watermark_ns);
        if seen.start_ns > seen.end_ns {
            *seen = TimeRange::EMPTY;
        }
        if is_empty {
            self.db.finish_view_range(&current, &moved, false)?;
        }
        Ok(())
    }

    /// Saves the log's position now and then.
    fn save(&mut self, sequence: u64) -> Result<(), QueryError> {
        let now_ns = self.db.now_ns();
        let is_due = now_ns.saturating_sub(self.database.saved_ns) >= self.limits.save_interval_ns;
        let is_moved = sequence > self.database.saved_sequence;
        if let Some(cursor) = self.database.cursor.as_ref().filter(|_| is_due && is_moved) {
            cursor.save(sequence)?;
            self.database.saved_ns = now_ns;
        }
        self.database.saved_sequence = self.database.saved_sequence.max(sequence);
        Ok(())
    }
}

/// The views of a database, those that others read before them.
fn in_order(db: &Db, database: &str) -> Vec<Arc<View>> {
    let mut views = db.views(database);
    views.sort_by_key(|view| db.views_below(view).1.len());
    views
}
