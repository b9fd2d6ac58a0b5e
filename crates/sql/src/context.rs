//! The connection that statements come from.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::tz::TimeZone;
use query::Value;

use crate::pending::PendingWrites;

/// How names and groups are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Postgres's: the time is `time`, and GROUP BY names the keys.
    Postgres,
    /// QuestDB's: the time is `timestamp`, and projections without aggregates are keys of the groups.
    QuestDb,
}

/// The connection that statements come from.
#[derive(Debug, Clone)]
pub struct ClientContext {
    /// The value of `now()`, in nanoseconds since the Unix epoch.
    pub now_ns: i64,
    /// Where days begin.
    pub time_zone: TimeZone,
    /// The database that statements run on.
    pub database: String,
    /// The value of `current_user`.
    pub user: String,
    /// The values of `$1`, `$2` …
    pub parameters: Vec<Value>,
    /// How names and groups are read.
    pub manner: Manner,
    /// The session's settings that differ from their defaults, by their names in small letters.
    pub settings: Arc<BTreeMap<String, String>>,
    /// The writes of the open transaction, if there is one.
    pub transaction: Option<Arc<dyn PendingWrites>>,
    /// Messages to the client beside the answer.
    pub notices: Notices,
    /// The roles that the client may see.
    pub roles: Option<Arc<dyn Roles>>,
    /// The settings that functions of a statement change; `None` where there is no session.
    pub changed_settings: Option<ChangedSettings>,
}

/// Settings that `set_config` changes: the session takes them over once the statement is done.
#[derive(Debug, Clone, Default)]
pub struct ChangedSettings(Arc<Mutex<Vec<Setting>>>);

impl ChangedSettings {
    /// Adds a setting.
    pub(crate) fn push(&self, setting: Setting) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(setting);
    }

    /// The settings since the last call.
    pub fn take(&self) -> Vec<Setting> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A setting of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Its name in small letters.
    pub name: String,
    /// Its value; `None` for the default.
    pub value: Option<String>,
    /// True if it ends with the transaction.
    pub is_local: bool,
}

/// The roles that a client may see, looked up when it asks for them.
pub trait Roles: fmt::Debug + Send + Sync {
    /// All of them.
    fn roles(&self) -> Vec<Role>;
}

/// A role of `pg_roles`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// True if it administers the server.
    pub is_superuser: bool,
}

impl ClientContext {
    /// Of statements on a database at a moment, in UTC and as Postgres reads them.
    pub fn new(database: impl Into<String>, now_ns: i64) -> Self {
        Self {
            now_ns,
            time_zone: TimeZone::UTC,
            database: database.into(),
            user: "thalweg".to_owned(),
            parameters: Vec::new(),
            manner: Manner::Postgres,
            settings: Arc::default(),
            transaction: None,
            notices: Notices::default(),
            roles: None,
            changed_settings: None,
        }
    }

    /// Returns whether the open transaction has changed rows.
    pub fn has_pending_writes(&self) -> bool {
        let mut found = false;
        if let Some(transaction) = &self.transaction {
            transaction.visit(&mut |_| found = true);
        }
        found
    }

    /// Returns whether days begin where they do in UTC.
    pub fn is_in_utc(&self) -> bool {
        self.time_zone == TimeZone::UTC || matches!(self.time_zone.iana_name(), Some("UTC" | "Etc/UTC"))
    }
}

/// Messages beside the answer of a statement.
#[derive(Debug, Clone, Default)]
pub struct Notices(Arc<Mutex<Vec<String>>>);

impl Notices {
    /// Adds a message.
    pub fn push(&self, message: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(message.into());
    }

    /// The messages since the last call.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
