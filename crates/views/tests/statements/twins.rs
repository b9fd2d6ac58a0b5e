//! Two databases with the same rows, of which one keeps everything: rows go of the other one alone.

use db::DatabasePolicy;
use model::{METRIC_NAME, MatchOp, Matcher, TimeRange};
use platform::sim::Simulation;

use crate::world::{SECOND_NS, World};

/// The database that keeps everything; rows go of the one that is called "default".
pub(crate) const ALL: &str = "all";

/// Seconds without a pass after which there is one: rows wait an hour for views that do not read them.
const UNREAD_S_MAX: i64 = 2_000;

/// The reason why rows go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeper {
    Ttl,
    Retention,
}

pub(crate) struct Twins {
    world: Option<World>,
    unread_s: i64,
}

impl Twins {
    pub(crate) fn new(seed: u64) -> Self {
        Self { world: Some(World::empty(seed)), unread_s: 0 }
    }

    pub(crate) fn world(&self) -> &World {
        self.world.as_ref().unwrap()
    }

    /// Has rows go by a retention.
    pub(crate) fn keep_for(&self, seconds: i64) {
        let policy = DatabasePolicy { retention_ns: seconds * SECOND_NS, ..DatabasePolicy::default() };
        self.world().db.set_policy("default", &policy).unwrap();
    }

    /// The time before which rows are gone by the retention.
    pub(crate) fn kept_from_ns(&self) -> i64 {
        self.world().db.kept_from_ns("default").unwrap_or(i64::MIN)
    }

    /// The time before which windows of a view have no source any more.
    pub(crate) fn gone_ns(&self, view: &str) -> i64 {
        let db = &self.world().db;
        db.view_frozen_before_ns(&db.view("default", view).unwrap())
    }

    pub(crate) fn settle(&mut self) {
        self.world.as_mut().unwrap().settle();
        self.unread_s = 0;
        self.expire();
    }

    pub(crate) fn pass(&mut self) {
        self.world.as_mut().unwrap().refresher.pass().unwrap();
    }

    pub(crate) fn advance(&mut self, seconds: i64) {
        self.world().simulation.advance_ns(seconds * SECOND_NS);
        self.unread_s += seconds;
        if self.unread_s > UNREAD_S_MAX {
            self.settle();
        }
    }

    pub(crate) fn reopen(&mut self, meanwhile: impl FnOnce(&Simulation)) {
        self.world = self.world.take().map(|world| world.reopened(meanwhile));
    }

    /// Has rows go as far as they can, so that a background thread takes none at any other moment.
    pub(crate) fn expire(&self) {
        self.world().db.compact(&mut |_| {}).unwrap();
    }

    /// Deletes rows of a host from both.
    pub(crate) fn delete(&self, metric: &str, host: u8, range: &TimeRange) {
        for database in ["default", ALL] {
            let host = Matcher::new("h", MatchOp::Equal, format!("h{host}"));
            let matchers = vec![Matcher::new(METRIC_NAME, MatchOp::Equal, metric), host];
            self.world().db.delete(database, &[matchers], range).unwrap();
        }
    }
}
