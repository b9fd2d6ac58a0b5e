//! Waiting for a refresh that was asked for, where the background makes passes.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use model::TimeRange;
use parking_lot::{Condvar, Mutex};
use query::views::{RefreshRequest, View};
use query::{Budget, QueryError};

use super::Views;

/// How long a statement waits. Then the refresh goes on without it.
const WAIT_NS_MAX: u64 = 30_000_000_000;

/// Between two looks at whether the statement is to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Those who refresh views in the background.
pub trait RefreshBackground: Send + Sync {
    /// Has a pass made at once. Must return at once.
    fn wake(&self);
}

/// The passes of the background.
#[derive(Default)]
pub(super) struct Passes {
    background: Mutex<Option<Weak<dyn RefreshBackground>>>,
    /// How many passes left nothing to be read.
    quiet: Mutex<u64>,
    ended: Condvar,
}

impl Passes {
    pub(super) fn set_background(&self, background: Weak<dyn RefreshBackground>) {
        *self.background.lock() = Some(background);
    }

    /// Notes the end of a pass.
    pub(super) fn note(&self, has_more: bool) {
        *self.quiet.lock() += u64::from(!has_more);
        self.ended.notify_all();
    }

    fn background(&self) -> Option<Arc<dyn RefreshBackground>> {
        self.background.lock().as_ref().and_then(Weak::upgrade)
    }
}

impl Views {
    /// Waits until the windows that a request was for are stored, with all rows that were written before: a while at most, and not at all where there is no
    /// background. Returns whether it is over.
    pub(super) fn wait_for(&self, request: &RefreshRequest<'_>, budget: &Budget) -> Result<bool, QueryError> {
        let Some(background) = self.passes.background() else { return Ok(true) };
        let snapshot = self.store.journal().snapshot();
        let begun_ns = self.store.monotonic_ns();
        let first = *self.passes.quiet.lock();
        background.wake();
        loop {
            budget.check()?;
            // A pass that is under way may have begun before.
            let is_read = *self.passes.quiet.lock() >= first + 2 || self.is_right_from(request.database, snapshot);
            if is_read {
                if !self.pending_of(request)? {
                    return Ok(true);
                }
                // Of a view that waits to be asked, what became pending just now.
                self.ask_again(request);
            }
            if self.store.monotonic_ns().saturating_sub(begun_ns) > WAIT_NS_MAX {
                return Ok(false);
            }
            let mut quiet = self.passes.quiet.lock();
            self.passes.ended.wait_for(&mut quiet, LOOK);
            drop(quiet);
            background.wake();
        }
    }

    /// Has a view refreshed with the next pass, also one that waits to be asked.
    pub(super) fn ask(&self, view: &View) {
        self.note(view, |status| status.is_requested = true);
        self.requests.fetch_add(1, Ordering::Release);
    }

    fn ask_again(&self, request: &RefreshRequest<'_>) {
        let key = (request.database.to_owned(), request.name.to_owned());
        let state = self.state.read();
        let is_asked = state.statuses.get(&key).is_some_and(|status| status.is_requested);
        let view = state.views.get(&key).filter(|_| !is_asked).cloned();
        drop(state);
        view.into_iter().for_each(|view| self.ask(&view));
    }

    fn is_right_from(&self, database: &str, snapshot: u64) -> bool {
        self.state.read().right_until.get(database).is_some_and(|right| *right >= snapshot)
    }

    /// Returns whether windows of a request are to be computed; the error if that fails.
    fn pending_of(&self, request: &RefreshRequest<'_>) -> Result<bool, QueryError> {
        let key = (request.database.to_owned(), request.name.to_owned());
        let state = self.state.read();
        let Some(view) = state.views.get(&key) else {
            return Err(QueryError::Execution(format!("the view {:?} was dropped meanwhile", request.name)));
        };
        let overlaps =
            |range: &TimeRange| range.start_ns <= request.range.end_ns && request.range.start_ns <= range.end_ns;
        let is_pending = view.state.pending.iter().any(|pending| overlaps(&pending.range));
        match state.statuses.get(&key).and_then(|status| status.error.as_ref()).filter(|_| is_pending) {
            Some(error) => Err(QueryError::Execution(format!("refreshing the view {:?} fails: {error}", request.name))),
            None => Ok(is_pending),
        }
    }
}
