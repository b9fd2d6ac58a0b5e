//! RRDtool's files for one client: what it may read and change, and how rows are stored.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use access::grant::Right;
use access::scope::Scope;
use ingest::Protocol;
use ingest::line::{self, Options, Precision};
use model::Labels;
use query::{Budget, Stop};
use rrd::RrdError;
use rrd::catalog::{Catalog, File, Refused, Writer};
use rrd::file::{Moment, ROWS_BYTES_MAX};
use rrd::protocol::Host;
use tokio::task::AbortHandle;

use crate::error::ApiError;
use crate::http::body::Share;
use crate::state::State;

/// Bytes beside the rows that a file may have.
const HEAD_BYTES_MAX: u64 = 64 << 20;

/// RRDtool's files for one client.
pub(crate) struct RrdHost<'a> {
    state: &'a State,
    database: String,
    scope: Arc<Scope>,
    directory: Option<&'a Path>,
    /// Memory of what is read and answered.
    share: Mutex<Share>,
    /// Stops the command under way when its time is up.
    timer: Mutex<Option<AbortHandle>>,
}

impl Drop for RrdHost<'_> {
    fn drop(&mut self) {
        self.set_timer(None);
    }
}

impl<'a> RrdHost<'a> {
    pub(crate) fn new(state: &'a State, database: &str, scope: &Arc<Scope>) -> Self {
        let directory = state.settings.web.rrd.directory.as_deref();
        let share = Mutex::new(state.bodies.share(&state.tenant(database, scope)));
        Self { state, database: database.to_owned(), scope: scope.clone(), directory, share, timer: Mutex::default() }
    }

    fn check(&self, right: Right) -> Result<(), RrdError> {
        if self.scope.may(right, &self.database) {
            return Ok(());
        }
        Err(RrdError::Invalid(format!("the account may not {} the database {:?}", right.name(), self.database)))
    }

    /// Fails without a right on what has such labels.
    fn check_labels(&self, right: Right, labels: &Labels) -> Result<(), RrdError> {
        self.check(right)?;
        if self.state.db.may(&self.scope, right, &self.database, labels) {
            return Ok(());
        }
        Err(RrdError::Invalid(format!(
            "the account may {} files of the database {:?} with other labels alone",
            right.name(),
            self.database
        )))
    }

    /// Has the timer take the place of the one of the command before, which is over.
    fn set_timer(&self, timer: Option<AbortHandle>) {
        let before = std::mem::replace(&mut *self.timer.lock().unwrap_or_else(PoisonError::into_inner), timer);
        if let Some(before) = before {
            before.abort();
        }
    }

    /// The memory of what was answered, to be held until that is sent.
    pub(crate) fn take_share(&self) -> Share {
        let none = self.state.bodies.share(&self.state.tenant(&self.database, &self.scope));
        std::mem::replace(&mut *self.share.lock().unwrap_or_else(PoisonError::into_inner), none)
    }

    /// A file by its path, as [`rrd::protocol::find_file`].
    pub(crate) fn file(&self, path: &str) -> Result<Arc<File>, RrdError> {
        rrd::protocol::find_file(path, self)
    }

    /// A path of the folder, if it leads to a file within it.
    fn inside(&self, path: &str) -> Option<PathBuf> {
        let directory = self.directory?.canonicalize().ok()?;
        let file = directory.join(path).canonicalize().ok()?;
        file.starts_with(&directory).then_some(file).filter(|file| file.is_file())
    }
}

fn refused(error: &ApiError) -> RrdError {
    RrdError::Refused(error.message.clone())
}

impl Writer for RrdHost<'_> {
    fn write(&self, lines: &[u8]) -> Result<Refused, RrdError> {
        let to = self.state.destination(self.database.as_str(), &self.scope).map_err(|error| refused(&error))?;
        let options = Options {
            hasher: self.state.hasher(Protocol::Line, &to).map_err(|error| refused(&error))?,
            precision: Precision::Nanosecond,
            now_ns: self.state.db.now_ns(),
            limits: self.state.db.limits(),
        };
        let parsed = line::parse(lines, &options).map_err(|error| RrdError::Refused(error.to_string()))?;
        let outcome = self.state.store("rrd", &to, parsed).map_err(|error| refused(&error))?;
        let lines = outcome.reasons.into_iter().map(|reason| (reason.line, reason.text)).collect();
        Ok(Refused { total: outcome.dropped, lines })
    }
}

impl Host for RrdHost<'_> {
    fn catalog(&self) -> &Catalog {
        self.state.rrd_files()
    }

    fn database(&self) -> &str {
        &self.database
    }

    fn now(&self) -> Moment {
        Moment::from_ns(self.state.db.now_ns())
    }

    fn budget(&self) -> Result<Arc<Budget>, RrdError> {
        self.check(Right::Read)?;
        let budget = self.state.budget_of(&self.database, &self.scope);
        let (timed, timeout) = (Arc::downgrade(&budget), Duration::from_millis(self.state.settings.query_timeout_ms));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let stopping = runtime.spawn(async move {
                tokio::time::sleep(timeout).await;
                if let Some(budget) = timed.upgrade() {
                    budget.stop(Stop::Timeout);
                }
            });
            self.set_timer(Some(stopping.abort_handle()));
        }
        Ok(budget)
    }

    fn may_see(&self, file: &File) -> bool {
        // Who may write a file may know that it is there; its data has a budget, which needs the right to read.
        let may = |right| self.state.db.may(&self.scope, right, &self.database, &file.identity.labels);
        may(Right::Read) || may(Right::Write)
    }

    fn check_change(&self, labels: &Labels) -> Result<(), RrdError> {
        self.check_labels(Right::Write, labels)?;
        if self.state.db.has_database(&self.database) { Ok(()) } else { self.check(Right::Create) }
    }

    fn check_replace(&self, labels: &Labels) -> Result<(), RrdError> {
        self.check_labels(Right::Admin, labels)
    }

    fn directory(&self) -> Option<&Path> {
        self.directory
    }

    fn load(&self, path: &str) -> Result<Option<Vec<u8>>, RrdError> {
        let Some(file) = self.inside(path) else { return Ok(None) };
        let failed = |error| RrdError::Invalid(format!("cannot read {}: {error}", file.display()));
        let bytes = file.metadata().map_err(failed)?.len();
        if bytes > ROWS_BYTES_MAX + HEAD_BYTES_MAX {
            return Err(RrdError::Invalid(format!("{} has {bytes} bytes: it is too large", file.display())));
        }
        self.hold(bytes as usize)?;
        platform::private::read(&file, bytes).map(Some).map_err(failed)
    }

    fn hold(&self, bytes: usize) -> Result<(), RrdError> {
        let mut share = self.share.lock().unwrap_or_else(PoisonError::into_inner);
        share.reserve_patiently(bytes).map_err(|error| refused(&error))
    }
}
