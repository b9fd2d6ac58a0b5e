//! What all jobs use, and what comes of what they send.

use std::sync::Arc;

use access::scope::Scope;
use db::Db;
use platform::network::HttpClient;
use platform::network::retry::Verdict;
use query::Budget;

use super::definition::Origin;
use super::urls::UrlRules;
use crate::feed::Feed;

/// An account as it is by now.
#[derive(Debug, Clone)]
pub struct OwnerScope {
    /// Its rights.
    pub scope: Arc<Scope>,
    /// When it was made, nanoseconds since the Unix epoch; `None` where no client signs in.
    pub created_ns: Option<i64>,
}

/// Accounts with whose rights triggers and subscriptions run.
pub trait Owners: Send + Sync {
    /// What an account may do by now, or why it may do nothing. The empty name is a client that was let in without an account.
    fn scope(&self, owner: &str) -> Result<OwnerScope, String>;

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

    /// What the account may do by now that made something, or why that does not run.
    pub(crate) fn scope_of(&self, origin: &Origin) -> Result<Arc<Scope>, String> {
        let OwnerScope { scope, created_ns } = self.owners.scope(&origin.owner)?;
        let is_other = origin.owner_created_ns.zip(created_ns).is_some_and(|(maker_ns, owner_ns)| maker_ns != owner_ns);
        if is_other {
            return Err(format!("the account that made it is gone: {} is another one", origin.owner));
        }
        Ok(scope)
    }

    /// Returns whether the database is dropped in which something was made; one of its name may be there.
    pub(crate) fn is_dropped(&self, database: &str, origin: &Origin) -> bool {
        match self.db().database_number(database) {
            Some(number) => origin.database_number.is_some_and(|made_in| made_in != number),
            None => true,
        }
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
