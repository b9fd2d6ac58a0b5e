//! Computing windows of a view and storing what differs.

use std::sync::Arc;

use db::Db;
use db::views::ViewWindows;
use model::TimeRange;
use query::plan::Selector;
use query::views::{PendingRange, View, intersect};
use query::{Budget, QueryError};

use super::RefreshLimits;
use super::changes::{Stored, changes};

/// Windows that are computed together.
#[derive(Debug, Clone)]
pub(super) struct WindowBatch {
    /// Whole windows.
    pub(super) range: TimeRange,
    /// Which label sets; all if there are none.
    pub(super) selectors: Vec<Selector>,
    /// True if the view has columns alone that its windows lack.
    pub(super) is_of_columns: bool,
}

/// Bytes that a value takes in the log, about.
const VALUE_BYTES: u64 = 16;

/// Computes windows and writes what is not stored as it is computed. Returns how many bytes that took, about.
pub(super) fn refresh(
    db: &Db,
    view: &Arc<View>,
    piece: &WindowBatch,
    limits: &RefreshLimits,
) -> Result<u64, QueryError> {
    let (begun_ns, cpu_begun_ns) = (db.clock().monotonic_ns(), db.clock().thread_cpu_ns());
    let frozen_ns = db.view_frozen_before_ns(view);
    let mut range = piece.range;
    if view.bins.equal_bins().is_none() {
        // Windows that differ in length are told one by one: no more than there are rows for.
        let windows = ViewWindows { view, range, selectors: piece.selectors.clone() };
        range = intersect(&range, &view.windows_of(&db.view_extent(&windows, &budget(db, limits))?));
        if range.start_ns > range.end_ns {
            return Ok(0);
        }
    }
    let windows = ViewWindows { view, range, selectors: piece.selectors.clone() };
    let of_computing = budget(db, limits);
    // What is stored has the labels that the state says.
    db.settle_view_labels(view, &of_computing)?;
    let computed = db.computed_view_rows(&windows, &of_computing)?;
    drop(of_computing);
    let rows = db.stored_view_rows(&windows, &budget(db, limits))?;
    // What expired while it was computed is not computed either.
    let frozen_ns = frozen_ns.max(db.view_frozen_before_ns(view));
    // A row is no column's own: it is deleted where all columns are computed.
    let is_own = view.definition.is_exposed() && !piece.is_of_columns;
    let stored = Stored { rows, frozen_ns, is_of_all: piece.selectors.is_empty(), is_own };
    let changes = changes(&stored, computed);
    db.replace_view_rows(view, &changes.delete, &changes.write)?;
    let elapsed_ns = db.clock().monotonic_ns().saturating_sub(begun_ns);
    let cpu_ns = db.clock().thread_cpu_ns().saturating_sub(cpu_begun_ns);
    db.note_view(view, |status| {
        status.rows_written += changes.write.iter().map(|rows| rows.len() as u64).sum::<u64>();
        status.refreshes += 1;
        status.elapsed_ns += elapsed_ns;
        status.cpu_ns += cpu_ns;
    });
    Ok(changes.write.iter().map(|rows| (rows.len() * rows.columns.len()) as u64 * VALUE_BYTES).sum())
}

pub(super) fn budget(db: &Db, limits: &RefreshLimits) -> Arc<Budget> {
    db.budget(limits.samples_max)
}

/// The pending windows of a view.
pub(super) struct Work<'a> {
    db: &'a Db,
    /// The view, or what it is of the columns alone that its windows lack.
    view: Arc<View>,
    pending: PendingRange,
    /// The columns that windows lack; none: all are computed.
    columns: Vec<String>,
    limits: &'a RefreshLimits,
}

impl<'a> Work<'a> {
    /// The newest that is to be computed of a view: whole windows before columns that were added.
    pub(super) fn next(db: &'a Db, view: &Arc<View>, limits: &'a RefreshLimits) -> Option<Self> {
        if let Some(pending) = db.next_view_range(view) {
            return Some(Self { db, view: view.clone(), pending, columns: Vec::new(), limits });
        }
        let (columns, range) = db.next_view_columns(view)?;
        let view = Arc::new(view.of_columns(&columns));
        Some(Self { db, view, pending: PendingRange { range, is_fill: false }, columns, limits })
    }

    fn finish(&self, done: &TimeRange, is_durable: bool) -> Result<(), QueryError> {
        if self.columns.is_empty() {
            self.db.finish_view_range(&self.view, done, is_durable)
        } else {
            self.db.finish_view_columns(&self.view, &self.columns, done, is_durable)
        }
    }
}

impl Work<'_> {
    /// Where the first of a range's newest windows begins.
    fn first_window(&self, range: &TimeRange, windows: usize) -> i64 {
        let mut start_ns = self.view.bins.start_of(range.end_ns);
        for _ in 1..windows {
            if start_ns <= range.start_ns {
                break;
            }
            start_ns = self.view.bins.previous(start_ns);
        }
        start_ns.max(range.start_ns)
    }

    /// Computes the newest windows of a pending range that have rows: as many as a piece has, which become fewer where they are too much.
    pub(super) fn compute_newest(&self, piece_windows: &mut usize, is_durable: bool) -> Result<(), QueryError> {
        let pending = &self.pending;
        let mut range = pending.range;
        if !pending.is_fill {
            // Of what is partly gone nothing is computed again.
            range.start_ns = range.start_ns.max(self.db.view_frozen_before_ns(&self.view));
        }
        if range.start_ns > range.end_ns {
            return self.finish(&pending.range, is_durable);
        }
        let mut with_rows = range;
        let mut start_ns = self.first_window(&with_rows, *piece_windows);
        if start_ns > with_rows.start_ns {
            // Where there are no rows nothing is to be computed: of few windows that is as soon done as found out.
            let windows = ViewWindows { view: &self.view, range, selectors: Vec::new() };
            let extent = self.db.view_extent(&windows, &budget(self.db, self.limits))?;
            if extent.start_ns > extent.end_ns {
                return self.finish(&pending.range, is_durable);
            }
            with_rows = intersect(&range, &self.view.windows_of(&extent));
            start_ns = self.first_window(&with_rows, *piece_windows);
        }
        let range = TimeRange::new(start_ns, with_rows.end_ns);
        let piece = WindowBatch { range, selectors: Vec::new(), is_of_columns: !self.columns.is_empty() };
        match refresh(self.db, &self.view, &piece, self.limits) {
            Ok(bytes) => {
                *piece_windows = (*piece_windows * 2).min(self.limits.piece_windows_max);
                // As merges are: what is pending is right where it is read, and can wait.
                self.db.pace_background(bytes);
            }
            Err(QueryError::TooManySamples { .. } | QueryError::TooMuchMemory { .. }) if *piece_windows > 1 => {
                *piece_windows = (*piece_windows / 4).max(1);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let is_all = start_ns <= with_rows.start_ns;
        let done = TimeRange::new(if is_all { pending.range.start_ns } else { start_ns }, pending.range.end_ns);
        self.finish(&done, is_durable)
    }
}
