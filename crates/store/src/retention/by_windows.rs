//! Databases whose rows go window by window, because views are made of them: a late row finds all others of its windows, or is refused.
//!
//! In other databases the age of each row says whether it is past keeping. Here rows that are past it stay until a bound has passed them, too. The
//! guard of expiry says how far that may move; it is told, and the bound is on disk, before anything goes.

use std::collections::{BTreeMap, BTreeSet};

use index::DatabaseId;

use crate::retention::expiry_guard::Going;
use crate::{Store, StoreError};

/// The kind of the documents that hold the bounds, by the names of databases, in nanoseconds since 1970.
const KIND: &str = "retention-by-windows";
/// The bound moves this many times within the time that a database keeps its rows.
const STEPS: i64 = 256;
const STEP_NS_MIN: i64 = 60_000_000_000;

/// How long after the guard kept the bound where it is it is asked again, in nanoseconds of the monotonic clock.
pub(crate) const PAUSE_NS: u64 = 1_000_000_000;

/// A database whose rows go by windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WindowBound {
    database: String,
    /// Rows from here on stay, however old they are.
    pub(crate) kept_from_ns: i64,
    /// Before this the guard is not asked, in nanoseconds of the monotonic clock.
    next_look_ns: u64,
    /// Another number after each call of [`Store::keep_windows`]: what the guard said before does not know of the newest view.
    views: u64,
}

/// The databases whose rows go by windows.
pub(crate) type WindowBounds = BTreeMap<DatabaseId, WindowBound>;

/// The time before which rows are older than an age; it moves in steps.
pub(crate) fn older_before_ns(now_ns: i64, age_ns: i64) -> i64 {
    let oldest_ns = now_ns.saturating_sub(age_ns);
    let step_ns = (age_ns / STEPS).max(STEP_NS_MIN);
    oldest_ns.saturating_sub(oldest_ns.rem_euclid(step_ns))
}

impl Store {
    /// Takes up the bounds that a folder has that is opened, and has the rows of these databases, and of no others, go by windows. A bound that is not on disk
    /// begins where rows are past keeping now.
    pub fn open_window_bounds(&self, databases: &BTreeSet<String>) {
        for (database, bytes) in self.documents(KIND) {
            let known_ns = (*bytes).try_into().map_or(i64::MAX, i64::from_le_bytes);
            if !databases.contains(&database) {
                // From here on its rows go by age: the bound says nothing any more. It cannot be removed from a folder that is only read.
                let _ = self.remove_document(KIND, &database);
            } else if let Some(id) = self.database_number(&database) {
                let kept_from_ns = self.oldest_retained_ns(id).min(known_ns);
                let bound = WindowBound { database, kept_from_ns, next_look_ns: 0, views: 0 };
                self.retention.window_bounds.write().insert(id, bound);
            }
        }
        // Folders of versions before have none; where one cannot be written it is as if the folder were opened again.
        databases.iter().for_each(|database| drop(self.keep_windows(database)));
    }

    /// Has the rows of a database go by windows from now on, as the guard says them: those stay that are kept now. On disk when this returns.
    ///
    /// # Errors
    /// As every change of the manifest; the rows go by windows until the folder is closed.
    pub fn keep_windows(&self, database: &str) -> Result<(), StoreError> {
        let Some(id) = self.database_number(database) else { return Ok(()) };
        let _moving = self.retention.moving.lock();
        let oldest_ns = self.oldest_retained_ns(id);
        {
            let mut bounds = self.retention.window_bounds.write();
            let made =
                || WindowBound { database: database.to_owned(), kept_from_ns: i64::MAX, next_look_ns: 0, views: 0 };
            let bound = bounds.entry(id).or_insert_with(made);
            bound.views += 1;
            // After the clock was set back rows are kept from before the bound, too.
            if bound.kept_from_ns <= oldest_ns {
                return Ok(());
            }
            bound.kept_from_ns = oldest_ns;
        }
        self.put_document(KIND, database, &oldest_ns.to_le_bytes())
    }

    /// Has the rows of a database go by their age again.
    ///
    /// # Errors
    /// As every change of the manifest.
    pub fn release_windows(&self, database: &str) -> Result<(), StoreError> {
        let _moving = self.retention.moving.lock();
        self.retention.window_bounds.write().retain(|_, bound| bound.database != database);
        self.remove_document(KIND, database).map(drop)
    }

    /// The time from which rows of a database stay that goes by windows, however old they are, in nanoseconds since 1970.
    pub fn window_bound_ns(&self, database: &str) -> Option<i64> {
        let id = self.database_number(database)?;
        self.retention.window_bounds.read().get(&id).map(|bound| bound.kept_from_ns)
    }

    /// The time before which rows of a database are past keeping by their age: some of them may be there, if they go by windows.
    pub fn past_keeping_before_ns(&self, database: DatabaseId) -> i64 {
        let policy = self.policy_of(database);
        policy.oldest_by_age_ns(self.trusted_now_ns()).max(policy.floor_ns)
    }

    /// Has rows go that are past keeping in databases whose rows go by windows, or in one of them, as far as the guard lets them. Returns whether some may have
    /// gone. Of a bound that the guard has just kept nothing is asked, unless it is forced.
    ///
    /// # Errors
    /// The first error of a database: its rows stay, those of others go.
    pub fn move_window_bounds(&self, database: Option<&str>, is_forced: bool) -> Result<bool, StoreError> {
        let (now_ns, clock_ns) = (self.trusted_now_ns(), self.monotonic_ns());
        let is_due = |bound: &&WindowBound| {
            database.is_none_or(|database| bound.database == database) && (is_forced || bound.next_look_ns <= clock_ns)
        };
        let due: Vec<(DatabaseId, String)> = {
            let bounds = self.retention.window_bounds.read();
            let due = bounds.iter().filter(|(_, bound)| is_due(bound));
            due.map(|(id, bound)| (*id, bound.database.clone())).collect()
        };
        let (mut moved, mut failed) = (false, None);
        for (id, database) in &due {
            match self.move_window_bound((*id, database), now_ns) {
                Ok(has_moved) => moved |= has_moved,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(moved), Err)
    }

    fn move_window_bound(&self, (id, database): (DatabaseId, &str), now_ns: i64) -> Result<bool, StoreError> {
        let Some(guard) = self.retention.expiry_guard.get() else { return Ok(false) };
        let retention_ns = self.policy_of(id).retention_ns;
        let before_ns = older_before_ns(now_ns, retention_ns);
        let Some(known) = self.retention.window_bounds.read().get(&id).cloned() else { return Ok(false) };
        if retention_ns <= 0 || before_ns <= known.kept_from_ns {
            return Ok(false);
        }
        let before_ns = guard.may_go_before_ns(database, Going::All, before_ns);
        if before_ns <= known.kept_from_ns {
            let next_look_ns = self.monotonic_ns().saturating_add(PAUSE_NS);
            let mut bounds = self.retention.window_bounds.write();
            bounds.get_mut(&id).into_iter().for_each(|bound| bound.next_look_ns = next_look_ns);
            return Ok(false);
        }
        if !guard.before_expiry(database, Going::All, before_ns)? {
            return Ok(false);
        }
        // The guard has locks of its own, so that another thread may have moved it by now; from here on none does.
        let _moving = self.retention.moving.lock();
        let is_later = |bound: &WindowBound| {
            bound.database == database && bound.views == known.views && bound.kept_from_ns < before_ns
        };
        if !self.retention.window_bounds.read().get(&id).is_some_and(is_later) {
            return Ok(false);
        }
        self.put_document(KIND, database, &before_ns.to_le_bytes())?;
        let mut bounds = self.retention.window_bounds.write();
        bounds.get_mut(&id).into_iter().for_each(|bound| bound.kept_from_ns = before_ns);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_moves_in_steps() {
        const MINUTE_NS: i64 = 60_000_000_000;
        const DAY_NS: i64 = 1440 * MINUTE_NS;
        let now_ns = 1_000 * DAY_NS + 7 * MINUTE_NS + 5;
        assert_eq!(older_before_ns(now_ns, 60 * MINUTE_NS), 1_000 * DAY_NS - 53 * MINUTE_NS);
        // A 256th of 32 days is three hours.
        assert_eq!(older_before_ns(now_ns, 32 * DAY_NS), 968 * DAY_NS);
        assert_eq!(older_before_ns(now_ns + 180 * MINUTE_NS, 32 * DAY_NS), 968 * DAY_NS + 180 * MINUTE_NS);
    }
}
