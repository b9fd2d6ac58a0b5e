//! The time that retention goes by, in an open folder: observed, made durable, reported to readers ([`crate::retention::trusted_time`]).

use std::collections::BTreeMap;

use index::DatabaseId;
use model::TimeRange;

use crate::journal::{Change, ChangeKind};
use crate::manifest::Edit;
use crate::retention::trusted_time::Reading;
use crate::{Store, StoreError};

impl Store {
    /// The time that retention, folds and the trash go by: no later than the wall clock, and no later than there is evidence for.
    pub fn trusted_now_ns(&self) -> i64 {
        self.retention.trusted_time.now_ns(self.read_clocks())
    }

    /// The time by which windows of views are over: the wall clock, unless it is more than a day ahead of the trusted time. Nothing goes because of it, and
    /// what comes late is computed again, so that a restart need not wait for evidence.
    pub fn window_now_ns(&self) -> i64 {
        const AHEAD_NS_MAX: i64 = 86_400_000_000_000;
        let now = self.read_clocks();
        let trusted_ns = self.retention.trusted_time.now_ns(now);
        let is_near = now.wall_ns.saturating_sub(trusted_ns) <= AHEAD_NS_MAX;
        if is_near { now.wall_ns.max(trusted_ns) } else { trusted_ns }
    }

    /// The monotonic clock, in nanoseconds.
    pub fn monotonic_ns(&self) -> u64 {
        self.platform.clock.monotonic_ns()
    }

    /// The latest time that it may be: what is ahead of it is ahead of the wall clock and of the trusted time, one of which may have been
    /// set back.
    pub fn latest_now_ns(&self) -> i64 {
        let now = self.read_clocks();
        self.retention.trusted_time.unbounded_ns(now).max(now.wall_ns)
    }

    /// The sequence id of the last record of the log: what is written from now on has later ones.
    pub fn last_sequence(&self) -> u64 {
        self.log.last_sequence()
    }

    /// How often the wall clock jumped since the folder was opened.
    pub fn clock_jumps(&self) -> u64 {
        self.retention.trusted_time.jumps_total()
    }

    /// How far the wall clock is ahead of the trusted time; negative if it is behind.
    pub(crate) fn clock_ahead_ns(&self) -> i64 {
        let now = self.read_clocks();
        now.wall_ns.saturating_sub(self.retention.trusted_time.unbounded_ns(now))
    }

    fn read_clocks(&self) -> Reading {
        Reading::new(&*self.platform.clock)
    }

    /// Takes a look at the clocks, and reports what follows to operators and to the journal.
    pub(crate) fn observe_time(&self) {
        let (observed, warning) = self.retention.trusted_time.observe(self.read_clocks());
        self.health().set("clock", warning);
        if let Some(from_ns) = observed.went_back_from_ns {
            // What was past keeping is kept again.
            self.record_expired(from_ns);
        }
    }

    /// The opening before may have gone by a later time than this one does: its answers lack what is kept here.
    pub(crate) fn record_opening_time(&self) {
        let now = self.read_clocks();
        let is_set_back = self.retention.trusted_time.unbounded_ns(now) > now.wall_ns;
        self.record_expired(if is_set_back { i64::MAX } else { now.wall_ns });
    }

    /// Records in the journal all that may have been past its retention at a time.
    fn record_expired(&self, at_ns: i64) {
        let policies = self.retention.policies.read().clone();
        for (database, policy) in policies {
            let oldest_ns = self.retention.oldest_ns(database, &policy, at_ns);
            if oldest_ns == i64::MIN {
                continue;
            }
            self.journal.push(Change {
                sequence: 0,
                kind: ChangeKind::Deleted,
                shard: 0,
                database: Some(database),
                range: TimeRange::new(i64::MIN, oldest_ns),
                groups: None,
            });
        }
    }

    /// The oldest timestamp that each database keeps that does not keep everything.
    pub(crate) fn oldest_retained_of_all(&self) -> BTreeMap<DatabaseId, i64> {
        let policies = self.retention.policies.read();
        if policies.is_empty() {
            return BTreeMap::new();
        }
        let now_ns = self.trusted_now_ns();
        let oldest = policies.iter().map(|(of, policy)| (*of, self.retention.oldest_ns(*of, policy, now_ns)));
        oldest.filter(|(_, oldest_ns)| *oldest_ns > i64::MIN).collect()
    }

    /// Commits edits with the trusted time: where something goes because of it, no later opening may believe in an earlier one.
    pub(crate) fn commit_at_trusted_time(&self, edits: &mut Vec<Edit>) -> Result<(), StoreError> {
        let trusted_ns = self.retention.trusted_time.unbounded_ns(self.read_clocks());
        edits.push(Edit::TrustedTime(trusted_ns));
        self.commit_edits(edits)?;
        self.retention.trusted_time.saved(trusted_ns);
        Ok(())
    }

    /// Makes the trusted time durable now and then.
    pub(crate) fn save_time_if_due(&self) -> Result<(), StoreError> {
        if self.retention.trusted_time.is_save_due(self.read_clocks()) { self.save_time() } else { Ok(()) }
    }

    /// Makes the trusted time durable: the folder is about to be closed. On a full disk the next opening begins a little earlier.
    pub fn save_time(&self) -> Result<(), StoreError> {
        match self.commit_at_trusted_time(&mut Vec::new()) {
            Err(StoreError::Io { error, .. }) if error.kind() == std::io::ErrorKind::StorageFull => Ok(()),
            done => done,
        }
    }
}
