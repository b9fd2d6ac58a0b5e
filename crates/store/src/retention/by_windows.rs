//! Databases whose rows go window by window, because views are made of them: a late row finds all others of its windows, or is refused.
//!
//! In other databases the age of each row says whether it is past keeping. Here rows that are past it stay until a bound has passed them, too. The
//! guard of expiry says how far that may move; it is told, and the bound is on disk, before anything goes.

use std::collections::BTreeMap;

use index::DatabaseId;

use crate::{Store, StoreError};

/// The kind of the documents that hold the bounds, by the names of databases, in nanoseconds since 1970.
const KIND: &str = "retention-by-windows";
/// The bound moves this many times within the time that a database keeps its rows.
const STEPS: i64 = 256;
const STEP_NS_MIN: i64 = 60_000_000_000;

/// A database whose rows go by windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WindowBound {
    database: String,
    /// Rows from here on stay, however old they are.
    pub(crate) kept_from_ns: i64,
}

/// The databases whose rows go by windows.
pub(crate) type WindowBounds = BTreeMap<DatabaseId, WindowBound>;

/// The time before which rows are past keeping; it moves in steps.
fn past_keeping_ns(now_ns: i64, retention_ns: i64) -> i64 {
    let oldest_ns = now_ns.saturating_sub(retention_ns);
    let step_ns = (retention_ns / STEPS).max(STEP_NS_MIN);
    oldest_ns.saturating_sub(oldest_ns.rem_euclid(step_ns))
}

impl Store {
    /// Has the rows of a database go by windows from now on, as the guard says them. Nothing changes where they do, or where there is no such database.
    pub fn keep_windows(&self, database: &str) {
        let Some(id) = self.database_number(database) else { return };
        let policy = self.policy_of(id);
        let known = self.documents(KIND).into_iter().find(|(name, _)| name == database);
        let known_ns = known.and_then(|(_, bytes)| Some(i64::from_le_bytes((*bytes).try_into().ok()?)));
        let by_age_ns = policy.oldest_by_age_ns(self.trusted_now_ns());
        let mut bounds = self.retention.window_bounds.write();
        bounds.entry(id).or_insert_with(|| WindowBound {
            database: database.to_owned(),
            kept_from_ns: known_ns.unwrap_or(by_age_ns).min(by_age_ns),
        });
    }

    /// Has the rows of a database go by their age again.
    ///
    /// # Errors
    /// As every change of the manifest.
    pub fn release_windows(&self, database: &str) -> Result<(), StoreError> {
        self.remove_document(KIND, database)?;
        self.retention.window_bounds.write().retain(|_, bound| bound.database != database);
        Ok(())
    }

    /// Has rows go that are past keeping in databases whose rows go by windows, as far as the guard lets them. Returns whether some may have gone.
    ///
    /// # Errors
    /// The first error of a database: its rows stay, those of others go.
    pub fn move_window_bounds(&self) -> Result<bool, StoreError> {
        let bounds = self.retention.window_bounds.read().clone();
        let now_ns = self.trusted_now_ns();
        let (mut moved, mut failed) = (false, None);
        for (id, bound) in &bounds {
            match self.move_window_bound((*id, bound), now_ns) {
                Ok(has_moved) => moved |= has_moved,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(moved), Err)
    }

    fn move_window_bound(&self, (id, bound): (DatabaseId, &WindowBound), now_ns: i64) -> Result<bool, StoreError> {
        let policy = self.policy_of(id);
        let before_ns = past_keeping_ns(now_ns, policy.retention_ns);
        if policy.retention_ns <= 0 || before_ns <= bound.kept_from_ns {
            return Ok(false);
        }
        let Some(guard) = self.retention.expiry_guard.get() else { return Ok(false) };
        let before_ns = guard.may_go_before_ns(&bound.database, None, before_ns);
        if before_ns <= bound.kept_from_ns {
            return Ok(false);
        }
        guard.before_expiry(&bound.database, None, before_ns)?;
        self.put_document(KIND, &bound.database, &before_ns.to_le_bytes())?;
        match self.retention.window_bounds.write().get_mut(&id) {
            Some(bound) => bound.kept_from_ns = before_ns,
            // It was released meanwhile.
            None => drop(self.remove_document(KIND, &bound.database)?),
        }
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
        assert_eq!(past_keeping_ns(now_ns, 60 * MINUTE_NS), 1_000 * DAY_NS - 53 * MINUTE_NS);
        // A 256th of 32 days is three hours.
        assert_eq!(past_keeping_ns(now_ns, 32 * DAY_NS), 968 * DAY_NS);
        assert_eq!(past_keeping_ns(now_ns + 180 * MINUTE_NS, 32 * DAY_NS), 968 * DAY_NS + 180 * MINUTE_NS);
    }
}
