//! The state of a session of Postgres's protocol: its settings, its transaction, its cursors.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::tz::TimeZone;
use pgwire::error::PgWireResult;
use sql::{Column, CursorStep, PendingWrite, PendingWrites, Relation, Setting, SqlError, Value};

use super::copy::Copying;
use super::errors::failed;
use crate::http::body::Share;

/// Settings that a session may have beside the defaults.
const SETTINGS_MAX: usize = 200;

/// Settings by name.
pub(super) type Settings = Arc<BTreeMap<String, String>>;

/// The state of a session.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) settings: Settings,
    /// The zone that the client was last told of, if it is not the default.
    told_zone: Option<String>,
    pub(super) transaction: Option<Transaction>,
    pub(super) cursors: BTreeMap<String, Cursor>,
    /// Rows that are being sent.
    pub(super) copying: Option<Copying>,
}

/// A transaction.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) writes: Arc<HeldWrites>,
    /// The settings when it began.
    settings: Settings,
    /// Settings that end with it.
    local: Vec<String>,
    savepoints: Vec<Savepoint>,
    /// True for one of several statements that are sent at once, without BEGIN.
    is_implicit: bool,
}

#[derive(Debug)]
struct Savepoint {
    name: String,
    /// How many writes there were.
    writes: usize,
    settings: Settings,
}

/// Writes that wait for the end of their transaction.
#[derive(Debug)]
pub(super) struct HeldWrites {
    buffer: Mutex<WriteBuffer>,
    bytes_max: usize,
}

#[derive(Debug)]
struct WriteBuffer {
    writes: Vec<PendingWrite>,
    /// How many of these stay as they are: a savepoint is after them.
    fixed: usize,
    bytes: usize,
    share: Share,
}

/// The rows of a cursor.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) columns: Vec<Column>,
    rows: Vec<Vec<Value>>,
    /// The row on which it stands, the first is 1; 0 before all, one more than there are after all.
    position: usize,
    kind: CursorKind,
    /// Of all requests' memory.
    _share: Share,
}

/// What DECLARE says of a cursor.
#[derive(Debug, Clone, Copy)]
pub(super) struct CursorKind {
    /// True if it stays after its transaction.
    pub(super) is_held: bool,
    /// True if it moves forward only.
    pub(super) is_forward_only: bool,
}

impl HeldWrites {
    fn new(share: Share, bytes_max: usize) -> Self {
        Self { buffer: Mutex::new(WriteBuffer { writes: Vec::new(), fixed: 0, bytes: 0, share }), bytes_max }
    }

    /// The number of writes up to here, which later ones are not appended to.
    fn mark(&self) -> usize {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.fixed = buffer.writes.len();
        buffer.fixed
    }

    fn truncate(&self, count: usize) {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.writes.truncate(count);
        buffer.fixed = count;
        buffer.bytes = buffer.writes.iter().map(PendingWrite::size_bytes).sum();
    }
}

impl PendingWrites for HeldWrites {
    fn push(&self, write: PendingWrite) -> Result<(), SqlError> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let needed = buffer.bytes + write.size_bytes();
        if needed > self.bytes_max {
            let message = format!(
                "a transaction holds at most {} bytes of rows until COMMIT (body_bytes_max): commit more often, or use COPY outside of a transaction",
                self.bytes_max
            );
            return Err(SqlError::Refused("54000", message));
        }
        buffer.share.grow(write.size_bytes()).map_err(|error| SqlError::Refused("53200", error.message))?;
        buffer.bytes = needed;
        let is_open = buffer.writes.len() > buffer.fixed;
        let next = match buffer.writes.last_mut().filter(|_| is_open) {
            Some(last) => last.append(write),
            None => Some(write),
        };
        buffer.writes.extend(next);
        Ok(())
    }

    fn take(&self) -> Vec<PendingWrite> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        (buffer.bytes, buffer.fixed) = (0, 0);
        std::mem::take(&mut buffer.writes)
    }

    fn visit(&self, visit: &mut dyn FnMut(&PendingWrite)) {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner).writes.iter().for_each(visit);
    }
}

impl Cursor {
    pub(super) fn new(relation: Relation, kind: CursorKind, mut share: Share) -> PgWireResult<Self> {
        let texts = relation.rows.iter().flatten().map(|value| match value {
            Value::Text(text) => text.len(),
            _ => 0,
        });
        let bytes = texts.sum::<usize>() + relation.rows.len() * relation.columns.len() * size_of::<Value>();
        share.grow(bytes).map_err(|error| failed("53200", error.message))?;
        Ok(Self { columns: relation.columns, rows: relation.rows, position: 0, kind, _share: share })
    }

    /// Moves, and gives the rows that it passes, or the one where it comes to stand.
    pub(super) fn fetch(&mut self, step: CursorStep) -> PgWireResult<Relation> {
        let (from, after) = (self.position, self.rows.len() + 1);
        // Rows by their numbers, and where the cursor stands then.
        let (passed, position) = match step {
            CursorStep::Forward(Some(0)) | CursorStep::Backward(Some(0)) => (from..from + 1, from),
            CursorStep::Forward(count) => {
                let end = count.map_or(after, |count| from.saturating_add(count).min(after));
                (from + 1..end + 1, end)
            }
            CursorStep::Backward(count) => {
                let start = count.map_or(0, |count| from.saturating_sub(count));
                (start..from, start)
            }
            CursorStep::Absolute(row) => (row..row.saturating_add(1), row.min(after)),
            CursorStep::Last => (after - 1..after, after - 1),
            CursorStep::Relative(count) => {
                let row = from.saturating_add(count).min(after);
                (row..row + 1, row)
            }
        };
        if position < from && self.kind.is_forward_only {
            return Err(failed("55000", "cursor can only scan forward: DECLARE it with SCROLL".to_owned()));
        }
        self.position = position;
        let passed = passed.start.max(1)..passed.end.min(after).max(1);
        let start = passed.start.min(passed.end) - 1;
        let mut rows = self.rows.get(start..passed.end - 1).unwrap_or_default().to_vec();
        if matches!(step, CursorStep::Backward(_)) {
            rows.reverse();
        }
        Ok(Relation { columns: self.columns.clone(), rows })
    }
}

impl Session {
    /// The zone of times without one.
    pub(super) fn time_zone(&self) -> TimeZone {
        sql::session_zone(&self.settings)
    }

    /// The zone of which the client is to be told, because it has changed.
    pub(super) fn changed_zone(&mut self) -> Option<String> {
        let zone = self.settings.get("timezone");
        if self.told_zone.as_ref() == zone {
            return None;
        }
        self.told_zone = zone.cloned();
        Some(self.told_zone.clone().unwrap_or_else(|| "UTC".to_owned()))
    }

    /// Begins a transaction; returns whether there was none. One of several statements that were sent at once becomes it.
    pub(super) fn begin(&mut self, share: Share, bytes_max: usize) -> bool {
        self.begin_implicit(share, bytes_max);
        self.transaction.as_mut().is_some_and(|transaction| std::mem::take(&mut transaction.is_implicit))
    }

    /// Returns whether there is a transaction that BEGIN began.
    pub(super) fn is_in_transaction(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| !transaction.is_implicit)
    }

    /// Returns whether there is a transaction of statements that were sent at once.
    pub(super) fn is_implicit(&self) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.is_implicit)
    }

    /// Begins a transaction of statements that were sent at once, unless there is one.
    pub(super) fn begin_implicit(&mut self, share: Share, bytes_max: usize) {
        if self.transaction.is_some() {
            return;
        }
        self.transaction = Some(Transaction {
            writes: Arc::new(HeldWrites::new(share, bytes_max)),
            settings: self.settings.clone(),
            local: Vec::new(),
            savepoints: Vec::new(),
            is_implicit: true,
        });
    }

    /// Forgets what statements did that were sent at once and are not part of a transaction that BEGIN began.
    pub(super) fn roll_back_implicit(&mut self) {
        if self.is_implicit() {
            self.roll_back();
        }
    }

    /// Ends the transaction with the settings that stay; returns its writes.
    pub(super) fn commit(&mut self) -> Option<Vec<PendingWrite>> {
        let transaction = self.transaction.take()?;
        for name in &transaction.local {
            let settings = Arc::make_mut(&mut self.settings);
            match transaction.settings.get(name) {
                Some(value) => settings.insert(name.clone(), value.clone()),
                None => settings.remove(name),
            };
        }
        self.cursors.retain(|_, cursor| cursor.kind.is_held);
        Some(transaction.writes.take())
    }

    /// Ends the transaction and forgets what it did; returns whether there was one.
    pub(super) fn roll_back(&mut self) -> bool {
        let Some(transaction) = self.transaction.take() else { return false };
        self.settings = transaction.settings;
        self.cursors.retain(|_, cursor| cursor.kind.is_held);
        true
    }

    pub(super) fn set_savepoint(&mut self, name: String) -> PgWireResult<()> {
        let settings = self.settings.clone();
        let transaction = self.in_transaction("SAVEPOINT")?;
        let writes = transaction.writes.mark();
        if transaction.savepoints.len() >= SETTINGS_MAX {
            return Err(failed("54000", format!("a transaction has at most {SETTINGS_MAX} savepoints")));
        }
        transaction.savepoints.push(Savepoint { name, writes, settings });
        Ok(())
    }

    /// Returns whether there is a savepoint.
    pub(super) fn has_savepoint(&self, name: &str) -> bool {
        self.transaction.as_ref().is_some_and(|transaction| transaction.savepoints.iter().any(|at| at.name == name))
    }

    /// Forgets what was done since a savepoint.
    pub(super) fn roll_back_to(&mut self, name: &str) -> PgWireResult<()> {
        let index = self.savepoint("ROLLBACK TO SAVEPOINT", name)?;
        let transaction = self.in_transaction("ROLLBACK TO SAVEPOINT")?;
        transaction.savepoints.truncate(index + 1);
        if let Some(savepoint) = transaction.savepoints.last() {
            transaction.writes.truncate(savepoint.writes);
            self.settings = savepoint.settings.clone();
        }
        Ok(())
    }

    /// Forgets a savepoint, and those after it.
    pub(super) fn release(&mut self, name: &str) -> PgWireResult<()> {
        let index = self.savepoint("RELEASE SAVEPOINT", name)?;
        self.in_transaction("RELEASE SAVEPOINT")?.savepoints.truncate(index);
        Ok(())
    }

    fn savepoint(&mut self, command: &str, name: &str) -> PgWireResult<usize> {
        let savepoints = &self.in_transaction(command)?.savepoints;
        let index = savepoints.iter().rposition(|savepoint| savepoint.name == name);
        index.ok_or_else(|| failed("3B001", format!("savepoint \"{name}\" does not exist")))
    }

    fn in_transaction(&mut self, command: &str) -> PgWireResult<&mut Transaction> {
        let message = || format!("{command} can only be used in transaction blocks");
        self.transaction.as_mut().ok_or_else(|| failed("25P01", message()))
    }

    /// Changes a setting.
    pub(super) fn set(&mut self, setting: Setting) -> PgWireResult<()> {
        let settings = Arc::make_mut(&mut self.settings);
        if settings.len() >= SETTINGS_MAX && !settings.contains_key(&setting.name) {
            return Err(failed("53400", format!("a session has at most {SETTINGS_MAX} settings of its own")));
        }
        if let (true, Some(transaction)) = (setting.is_local, &mut self.transaction)
            && !transaction.local.contains(&setting.name)
        {
            transaction.local.push(setting.name.clone());
        }
        match setting.value {
            Some(value) => settings.insert(setting.name, value),
            None => settings.remove(&setting.name),
        };
        Ok(())
    }

    /// Gives a setting, or all, its default.
    pub(super) fn reset(&mut self, name: Option<&str>) {
        match name {
            Some(name) => drop(Arc::make_mut(&mut self.settings).remove(name)),
            None => self.settings = Settings::default(),
        }
    }

    /// Makes a cursor. One that does not stay after its transaction needs one.
    pub(super) fn declare(&mut self, name: String, cursor: Cursor) -> PgWireResult<()> {
        if !cursor.kind.is_held {
            self.in_transaction("DECLARE CURSOR")?;
        }
        if self.cursors.contains_key(&name) {
            return Err(failed("42P03", format!("cursor \"{name}\" already exists")));
        }
        self.cursors.insert(name, cursor);
        Ok(())
    }

    pub(super) fn cursor(&mut self, name: &str) -> PgWireResult<&mut Cursor> {
        let missing = || failed("34000", format!("cursor \"{name}\" does not exist"));
        self.cursors.get_mut(name).ok_or_else(missing)
    }
}
