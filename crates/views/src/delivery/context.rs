//! What all jobs use, and what comes of what they send.

use std::sync::Arc;

use access::scope::Scope;
use db::Db;
use platform::network::HttpClient;
use platform::network::retry::Verdict;
use query::Budget;

use super::urls::UrlRules;
use crate::feed::Feed;

/// Accounts with whose rights triggers and subscriptions run.
pub trait Owners: Send + Sync {
    /// What an account may do by now, or why it may do nothing. The empty name is a client that was let in without an account.
    fn scope(&self, owner: &str) -> Result<Arc<Scope>, String>;

    /// The limits of what runs on a database with an account's rights.
    fn budget(&self, database: &str, scope: &Arc<Scope>) -> Arc<Budget>;
}

/// What all jobs share.
pub(crate) struct Shared {
    pub(crate) feed: Arc<Feed>,
    pub(crate) owners: Arc<dyn Owners>,
    pub(crate) urls: UrlRules,
    pub(crate) client: Result<Arc<dyn HttpClient>, String>,
    pub(crate) log: fn(&str),
}

impl Shared {
    pub(crate) fn db(&self) -> &Arc<Db> {
        &self.feed.db
    }
}

/// What became of a chunk.
pub(crate) struct Delivered {
    pub(crate) verdict: Verdict,
    /// Rows of it that were refused, where the others were taken.
    pub(crate) failed_rows: u64,
    pub(crate) failure: Option<String>,
}

impl From<Verdict> for Delivered {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, failed_rows: 0, failure: None }
    }
}
