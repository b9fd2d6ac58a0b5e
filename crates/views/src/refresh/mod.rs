//! Keeps the stored windows of materialised views right.
//!
//! A pass of a database reads what the log has since the last one, once for all of its views: rows of windows that are stored make those
//! windows *dirty*, by the labels of the view's row ([`dirty`]). Dirty windows are computed again from the source, and what differs is written
//! ([`changes`]). Then windows that are over by now, and ranges that are pending (what was there before the view, what was deleted, what the
//! log does not hold any more) are computed piece by piece, newest first. All of it can be repeated: a crash in between needs nothing.
//!
//! A pass looks at the views that have changed, that rows came for, or that have windows over by now: what it costs does not grow with the others.
//!
//! * this file: passes · [`view_set`]: the views as passes know them · [`windows`]: computing windows of one view · [`retry`]: how long one that failed waits · [`later`]: what comes later to continuous queries · [`thread`]: when passes run

mod changes;
mod dirty;
mod later;
mod retry;
mod thread;
mod view_set;
mod windows;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use db::views::{ViewMark, ViewWindows};
use db::{Db, LogCursor, LogRead};
use model::TimeRange;
use query::QueryError;
use query::views::{RefreshPolicy, View};

use dirty::{Dirty, DirtyView, Follower};
use later::Later;
use retry::Retry;
pub use thread::RefreshThread;
use view_set::ViewSet;

/// Pieces of a view after which its state is saved: after a crash so many are computed again.
const UNSAVED_MAX: usize = 16;

/// The longest time between two looks at a view: what retention takes of its source is noted now and then.
const IDLE_NS_MAX: i64 = 600_000_000_000;

/// The longest time between two looks at joined tables: their rows go by age, too.
const LABELS_INTERVAL_NS: u64 = 60_000_000_000;

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
    /// Samples of the log that a pass reads, and what a batch of it has beyond.
    pub log_samples_max: usize,
}

impl Default for RefreshLimits {
    fn default() -> Self {
        Self {
            dirty_max: 20_000,
            pieces_max: 4,
            piece_windows_max: 4_096,
            samples_max: 20_000_000,
            save_interval_ns: 5_000_000_000,
            log_samples_max: 2_000_000,
        }
    }
}

/// A database between passes.
#[derive(Default)]
struct Database {
    /// Opened anew, where it was saved, after a pass that did not store what it had read.
    cursor: Option<LogCursor>,
    /// Up to which the log is stored, or pending on disk.
    stored_sequence: u64,
    saved_ns: i64,
    /// Up to which sequence id joined tables were looked at, and when by the monotonic clock.
    labels_known: Option<(u64, u64)>,
    /// How many demands to refresh a view were seen.
    requests: u64,
    set: ViewSet,
    later: Later,
    /// Its views, by their numbers.
    views: HashMap<u64, Progress>,
}

/// A view between passes.
struct Progress {
    /// The times of rows that came for windows that are not stored yet; `None` if nothing is known.
    later_rows: Option<TimeRange>,
    /// Windows of a piece: as many as went well.
    piece_windows: usize,
    /// Pieces since its state was saved.
    unsaved: usize,
    retry: Retry,
    /// The view for which nothing is to be done as long as it is the same, and the time of the store's window clock up to which that holds.
    idle: Option<(Arc<View>, i64)>,
}

impl Default for Progress {
    fn default() -> Self {
        Self { later_rows: None, piece_windows: 64, unsaved: 0, retry: Retry::default(), idle: None }
    }
}

/// Keeps views right, pass by pass.
pub struct Refresher {
    db: Arc<Db>,
    limits: RefreshLimits,
    databases: BTreeMap<String, Database>,
    looked_at: u64,
}

/// What a pass of a database works with.
struct Pass<'a> {
    db: &'a Db,
    limits: &'a RefreshLimits,
    database: &'a mut Database,
    looked_at: &'a mut u64,
}

impl Refresher {
    /// A refresher of a database's views.
    pub fn new(db: Arc<Db>, limits: RefreshLimits) -> Self {
        Self { db, limits, databases: BTreeMap::new(), looked_at: 0 }
    }

    /// How many views passes looked at so far, each as often as one did.
    pub const fn looked_at(&self) -> u64 {
        self.looked_at
    }

    /// What the log is to say since this was asked last: of measurements that continuous queries leave out.
    pub fn take_warnings(&mut self) -> Vec<String> {
        self.databases.values_mut().flat_map(|database| std::mem::take(&mut database.later.warnings)).collect()
    }

    /// Makes a pass of all databases that have views; returns whether more is to be done at once.
    ///
    /// # Errors
    /// The first error of a database; the others had their pass.
    pub fn pass(&mut self) -> Result<bool, QueryError> {
        let names = self.db.view_databases();
        let (mut has_more, mut failed) = (false, self.forget_others(&names).err());
        for name in names {
            let database = self.databases.entry(name.clone()).or_default();
            let looked_at = &mut self.looked_at;
            let mut pass = Pass { db: &self.db, limits: &self.limits, database, looked_at };
            match pass.run(&name) {
                Ok(more) => has_more |= more,
                Err(error) => {
                    // That it failed is noted of all views, until they are looked at again.
                    database.views.values_mut().for_each(|progress| progress.idle = None);
                    let message = error.to_string();
                    let note = |view: &Arc<View>| {
                        self.db.note_view(view, |status| status.error = Some(message.clone()));
                    };
                    self.db.views(&name).iter().for_each(note);
                    let _ = failed.get_or_insert(error);
                }
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
            self.db.save_view_states(name)?;
            if let Some(cursor) = &database.cursor
                && database.stored_sequence > 0
            {
                cursor.save(database.stored_sequence)?;
            }
        }
        Ok(())
    }

    /// Lets go of the cursors of databases without views.
    fn forget_others(&mut self, names: &BTreeSet<String>) -> Result<(), QueryError> {
        let gone: Vec<String> = self.databases.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in gone {
            // Where this fails the next pass tries again.
            self.db.remove_log_cursor(&cursor_name(&name))?;
            self.databases.remove(&name);
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
            self.database.cursor = Some(self.db.log_cursor(&cursor_name(name), Some(name))?.of_rows());
        }
        // The mark first: then every view is listed that was there at the mark.
        let Some(mark) = self.db.mark_views()? else { return Ok(true) };
        let mut set = std::mem::take(&mut self.database.set);
        self.list(name, &mut set);
        let has_more = self.database.later.take_in(self.db, name, &windows::budget(self.db, self.limits));
        // What the log says of a view that was replaced is of the one in its place.
        self.list(name, &mut set);
        let more = self.run_on(name, &mut set, &mark);
        self.database.set = set;
        more.map(|more| more || has_more)
    }

    /// Lists the views of a database, and forgets those that are gone.
    fn list(&mut self, name: &str, set: &mut ViewSet) {
        if set.list(self.db, name) {
            let ids: HashSet<u64> = set.views.iter().map(|view| view.id).collect();
            self.database.views.retain(|id, _| ids.contains(id));
            self.database.later.list(self.db, set);
        }
    }

    /// A pass over views as they were at a mark.
    fn run_on(&mut self, name: &str, set: &mut ViewSet, mark: &ViewMark) -> Result<bool, QueryError> {
        let mut has_more = match self.catch_up(name, set, mark) {
            Ok(has_more) => has_more,
            Err(error) => {
                // What was read and not stored is read again, from where the cursor was saved.
                self.database.cursor = None;
                return Err(error);
            }
        };
        self.settle_labels(set, mark.sequence);
        let requests = self.db.view_requests();
        if std::mem::replace(&mut self.database.requests, requests) != requests {
            let is_of_itself =
                |(view, _): &mut (Arc<View>, i64)| view.definition.options.refresh == RefreshPolicy::Immediate;
            self.database
                .views
                .values_mut()
                .for_each(|progress| drop(progress.idle.take_if(|idle| !is_of_itself(idle))));
        }
        // With what became pending just now.
        set.list(self.db, name);
        let now_ns = self.db.window_now_ns();
        for view in set.in_order() {
            if self.is_idle(view, now_ns) {
                continue;
            }
            *self.looked_at += 1;
            match self.db.note_view_frozen(view) {
                Ok(()) => has_more |= self.refresh(view),
                Err(error) => self.fail(view, &error),
            }
        }
        Ok(has_more)
    }

    /// Looks whether the tables that views join say something else, after rows were written, and now and then: rows go also by age.
    fn settle_labels(&mut self, set: &ViewSet, sequence: u64) {
        let now_ns = self.db.clock().monotonic_ns();
        let is_known = self
            .database
            .labels_known
            .is_some_and(|(known, known_ns)| known == sequence && now_ns.saturating_sub(known_ns) < LABELS_INTERVAL_NS);
        if is_known {
            return;
        }
        self.database.labels_known = Some((sequence, now_ns));
        // Views that join a table likewise read it once.
        let budget = windows::budget(self.db, self.limits);
        for view in set.joined() {
            if let Err(error) = self.db.settle_view_labels(view, &budget) {
                self.database.labels_known = None;
                self.fail(view, &error);
            }
        }
    }

    /// Stores what the log changes of stored windows; returns whether it has more up to the mark.
    fn catch_up(&mut self, name: &str, set: &ViewSet, mark: &ViewMark) -> Result<bool, QueryError> {
        let (dirty, sequence) = self.follow(set, mark.sequence)?;
        for (view, dirty) in dirty {
            self.take_dirty(&view, &dirty)?;
        }
        // What was read is stored, or pending on disk.
        self.save(sequence)?;
        let has_more = sequence < mark.sequence;
        if !has_more {
            self.db.note_views_right(name, mark);
        }
        Ok(has_more)
    }

    /// Reads the log up to a sequence id, as far as it is on disk: what it makes dirty of each view, and the last sequence id.
    fn follow(&mut self, set: &ViewSet, through: u64) -> Result<(Vec<DirtyView>, u64), QueryError> {
        let mut follower = Follower::new(self.db, set, self.limits.dirty_max);
        let mut last = self.database.cursor.as_ref().map_or(0, LogCursor::sequence);
        let mut samples = 0;
        while last < through && samples < self.limits.log_samples_max {
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
                    samples += batch.records.iter().map(|record| record.samples.len()).sum::<usize>();
                    batch.records.iter().for_each(|record| follower.record(record));
                    last = batch.last_sequence;
                }
            }
        }
        for (view, seen) in follower.later_rows() {
            if let Some(known) = self.database.views.get_mut(&view.id).and_then(|of| of.later_rows.as_mut()) {
                *known = known.union(*seen);
            }
        }
        Ok((follower.finish(), last))
    }

    /// Computes the windows that changed again, or has them computed when they are due.
    fn take_dirty(&mut self, view: &Arc<View>, dirty: &Dirty) -> Result<(), QueryError> {
        if dirty.late_samples_refused > 0 {
            self.db.note_view(view, |status| status.late_samples_refused += dirty.late_samples_refused);
        }
        if dirty.is_empty() {
            return Ok(());
        }
        let pieces = if self.is_due(view) && !self.is_waiting(view) { dirty.batches(view) } else { None };
        let Some(pieces) = pieces else { return self.db.add_view_ranges(view, &dirty.ranges(view)) };
        for piece in &pieces {
            if let Err(error) = windows::refresh(self.db, view, piece, self.limits) {
                self.fail(view, &error);
                return self.db.add_view_ranges(view, &dirty.ranges(view));
            }
        }
        Ok(())
    }

    /// Returns whether nothing is to be done for a view.
    fn is_idle(&self, view: &Arc<View>, now_ns: i64) -> bool {
        let idle = self.database.views.get(&view.id).and_then(|progress| progress.idle.as_ref());
        idle.is_some_and(|(known, until_ns)| Arc::ptr_eq(known, view) && now_ns < *until_ns)
    }

    /// Notes up to when nothing is to be done for a view that has just been looked at, unless it changes.
    fn rest(&mut self, view: &Arc<View>) {
        // What a delete under way has is pending, too, and is told by nothing when that is over.
        let Some(now) = current(self.db, view).filter(|now| !now.state.is_pending()) else { return };
        let until_ns = self.db.next_view_window_ns(&now);
        self.rest_until(now, until_ns);
    }

    /// Notes that a view waits for its turn, or to be asked for.
    fn rest_until_due(&mut self, view: &Arc<View>) {
        let wait_ns = match view.definition.options.refresh {
            RefreshPolicy::Immediate => return,
            RefreshPolicy::Manual => IDLE_NS_MAX,
            RefreshPolicy::Every(ns) => {
                let status = self.db.view_status(&view.definition.database, &view.definition.name);
                let waited_ns = status.refreshed_ns.map_or(0, |then_ns| self.db.now_ns().saturating_sub(then_ns));
                ns.saturating_sub(waited_ns)
            }
        };
        self.rest_until(view.clone(), self.db.window_now_ns().saturating_add(wait_ns));
    }

    fn rest_until(&mut self, view: Arc<View>, until_ns: i64) {
        let until_ns = until_ns.min(self.db.window_now_ns().saturating_add(IDLE_NS_MAX));
        let progress = self.database.views.entry(view.id).or_default();
        progress.idle = Some((view, until_ns));
    }

    /// Returns whether a view failed and is not tried again yet.
    fn is_waiting(&self, view: &View) -> bool {
        let now_ns = self.db.clock().monotonic_ns();
        self.database.views.get(&view.id).is_some_and(|progress| progress.retry.is_waiting(now_ns))
    }

    /// Notes that a view could not be refreshed: it is tried again later, and the others go on.
    fn fail(&mut self, view: &View, error: &QueryError) {
        let now_ns = self.db.clock().monotonic_ns();
        let progress = self.database.views.entry(view.id).or_default();
        progress.retry.fail(now_ns);
        progress.idle = None;
        self.db.note_view(view, |status| status.error = Some(error.to_string()));
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

    /// Computes windows that are over and pieces of what is pending; returns whether more is to be done at once.
    fn refresh(&mut self, view: &Arc<View>) -> bool {
        if !self.is_due(view) {
            self.rest_until_due(view);
            return false;
        }
        if self.is_waiting(view) {
            return false;
        }
        match self.advance_and_compute(view) {
            Ok(has_more) => has_more,
            Err(error) => {
                self.fail(view, &error);
                false
            }
        }
    }

    fn advance_and_compute(&mut self, view: &Arc<View>) -> Result<bool, QueryError> {
        let db = self.db;
        let current = || current(db, view);
        let Some(now) = current() else { return Ok(false) };
        self.advance(&now)?;
        for number in 1..=self.limits.pieces_max {
            // Before the range is chosen: what is deleted from here on stays pending.
            let _piece = db.begin_view_piece();
            let Some(now) = current() else { return Ok(false) };
            let Some(work) = windows::Work::next(db, &now, self.limits) else { break };
            let progress = self.database.views.entry(view.id).or_default();
            progress.unsaved = (progress.unsaved + 1) % UNSAVED_MAX;
            let is_last = number == self.limits.pieces_max || progress.unsaved == 0;
            work.compute_newest(&mut progress.piece_windows, is_last)?;
        }
        let is_done = current().is_none_or(|view| windows::Work::next(db, &view, self.limits).is_none());
        if is_done {
            self.rest(view);
            self.database.views.entry(view.id).or_default().retry = Retry::default();
            db.note_view_refreshed(view);
        }
        Ok(!is_done)
    }

    /// Has windows computed that are over by now. Where it is known that no row came for them, nothing is.
    fn advance(&mut self, view: &View) -> Result<(), QueryError> {
        if !self.db.advance_view(view)? {
            return Ok(());
        }
        let Some(current) = current(self.db, view) else { return Ok(()) };
        let watermark_ns = current.state.watermark_ns;
        let progress = self.database.views.entry(view.id).or_default();
        let Some(seen) = &mut progress.later_rows else {
            // From here on the log tells of every row.
            let later =
                ViewWindows { view: &current, range: TimeRange::new(watermark_ns, i64::MAX), selectors: Vec::new() };
            let extent = self.db.view_extent(&later, &self.db.budget(self.limits.samples_max))?;
            progress.later_rows = Some(extent);
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
        if let Some(cursor) = self.database.cursor.as_ref().filter(|_| is_due) {
            cursor.save(sequence)?;
            self.database.saved_ns = now_ns;
        }
        self.database.stored_sequence = self.database.stored_sequence.max(sequence);
        Ok(())
    }
}

/// A view as it is now; `None` if it was dropped, though another one has its name.
fn current(db: &Db, view: &View) -> Option<Arc<View>> {
    db.view(&view.definition.database, &view.definition.name).filter(|current| current.id == view.id)
}
