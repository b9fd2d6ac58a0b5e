//! What clients may ask for. The table of commands is in [`table`]; each is a function that reads its arguments, does the work and writes
//! the reply. Samples that a pipeline adds are checked one by one and appended together; a reply goes out when they are on disk.
//!
//! * [`database`]: the keys of a database in memory · [`writer`]: writing samples · [`reader`]: reading them · [`trim`]: samples beyond
//!   retention · [`behind`]: buckets of rules that are computed later · [`pause`]: when what failed is tried again · [`waiting`]: clients
//!   that wait for samples
//! * `connection`, `keys`: Redis's own commands · `samples`, `ranges`, `read`, `pivot`, `rules`, `information`: those of `RedisTimeSeries`

mod arguments;
mod behind;
mod connection;
mod create;
mod database;
mod error;
mod glob;
mod information;
mod keys;
mod pause;
mod pivot;
mod ranges;
mod read;
mod reader;
mod rules;
mod samples;
mod session;
mod table;
mod trim;
mod waiting;
mod writer;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use db::{Appended, Db, TenantMemory};
use parking_lot::{Mutex, MutexGuard};
use query::Budget;

pub use error::CommandError;
pub use session::Session;
pub use waiting::Waiting;

use arguments::Arguments;
use database::{Database, State};
use table::{Need, Spec};

use crate::protocol::{ReplyWriter, Request};
use crate::series::rows::{NS_PER_MS, Rows};
use session::{Queued, Transaction};
use writer::Writer;

/// Bounds of what clients may cause.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The database that clients begin with; others have a number after it.
    pub database: String,
    /// How many databases clients may choose between.
    pub databases: u32,
    /// How far ahead of the clock a sample may be, milliseconds.
    pub ahead_ms_max: u64,
    /// Bytes of the commands that a transaction holds.
    pub transaction_bytes_max: usize,
    /// Bytes of the replies to what one read has brought.
    pub reply_bytes_max: usize,
    /// Clients that wait for samples at the same time.
    pub waiting_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            database: "redis".to_owned(),
            databases: 16,
            ahead_ms_max: 600_000,
            transaction_bytes_max: 16 << 20,
            reply_bytes_max: 256 << 20,
            waiting_max: 1_000,
        }
    }
}

/// What a client needs of its account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// To read a database.
    Read,
    /// To write into it.
    Write,
    /// To delete from it.
    Delete,
}

/// Asked before so many new series are made.
pub type NewSeriesGate = Box<dyn Fn(u64) -> Result<(), String> + Send + Sync>;

/// The account of a connection, its rights and its limits.
pub trait Access: Send + Sync {
    /// Returns whether commands are answered: the client has signed in, or need not.
    fn is_signed_in(&self) -> bool;

    /// Signs a client in.
    ///
    /// # Errors
    /// Why not, for people.
    fn sign_in(&mut self, user: &str, password: &str) -> Result<(), String>;

    /// Forgets who has signed in.
    fn sign_out(&mut self);

    /// Lets a command of a database pass.
    ///
    /// # Errors
    /// Which right is missing, or which limit is reached.
    fn check(&self, right: Right, database: &str) -> Result<(), String>;

    /// What a request may read and hold.
    fn budget(&self, database: &str) -> Arc<Budget>;

    /// Lets new series of a database in, or says why not. It is called while the store has locks, and may take none of the store's.
    fn series_gate(&self, database: &str) -> NewSeriesGate;

    /// Takes memory until so many bytes are held for the connection's replies and the commands that wait for EXEC.
    ///
    /// # Errors
    /// That there is none.
    fn hold_bytes(&mut self, bytes: usize) -> Result<(), String>;

    /// Counts samples that were written.
    fn note_samples(&self, database: &str, count: u64);
}

/// Says whether a connection stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// More requests are read.
    Continue,
    /// It is closed once its replies are sent.
    Close,
    /// Its client waits ([`Session::waiting`]): the requests that are not done are run again, from the one that waits on.
    Wait,
}

/// What requests have done.
#[derive(Debug)]
pub struct Ran {
    /// Appends that are to be committed.
    appended: Vec<Appended>,
    flow: Flow,
}

/// All databases as Redis's clients see them.
pub struct Service {
    db: Arc<Db>,
    limits: Limits,
    databases: Mutex<HashMap<String, Arc<Database>>>,
    memory: Arc<TenantMemory>,
    sessions: AtomicU64,
    commands: AtomicU64,
    /// Clients that wait for samples.
    waiting: Arc<AtomicUsize>,
    opened_ns: i64,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Service {
    /// Serves a process's databases.
    pub fn new(db: Arc<Db>, limits: Limits) -> Self {
        let (memory, opened_ns) = (db.request_memory().tenant(), db.latest_now_ns());
        let (sessions, commands) = (AtomicU64::new(0), AtomicU64::new(0));
        let waiting = Arc::default();
        Self { db, limits, databases: Mutex::default(), memory, sessions, commands, waiting, opened_ns }
    }

    /// The state of a new connection.
    pub fn session(&self) -> Session {
        Session::new(self.sessions.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// The name of a database by its number.
    pub fn database_name(&self, number: u32) -> String {
        if number == 0 { self.limits.database.clone() } else { format!("{}{number}", self.limits.database) }
    }

    fn database(&self, number: u32) -> Arc<Database> {
        let name = self.database_name(number);
        let mut databases = self.databases.lock();
        let open = || Arc::new(Database::new(name.clone(), self.memory.clone(), self.waiting.clone()));
        databases.entry(name.clone()).or_insert_with(open).clone()
    }

    /// Runs requests, read from the input in their order, and writes their replies. What they wrote is on disk when this returns.
    pub fn run(
        &self,
        session: &mut Session,
        access: &mut dyn Access,
        (input, requests): (&[u8], &[Request]),
        out: &mut ReplyWriter,
    ) -> Flow {
        let begun = out.bytes().len();
        let ran = self.run_unsynced(session, access, (input, requests), out);
        self.commit(&ran, (requests, begun), out)
    }

    /// As [`Service::run`], but what was written is on disk after [`Service::commit`] alone, before which no reply may be sent.
    pub fn run_unsynced(
        &self,
        session: &mut Session,
        access: &mut dyn Access,
        (input, requests): (&[u8], &[Request]),
        out: &mut ReplyWriter,
    ) -> Ran {
        out.set_resp3(session.is_resp3);
        let (appended, flow) = (Vec::new(), Flow::Continue);
        let mut executor = Executor { service: self, session, access, out, appended, flow, is_atomic: false };
        executor.run(input, requests);
        let Executor { appended, flow, .. } = executor;
        Ran { appended, flow }
    }

    /// Waits until what requests wrote is on disk. If that fails, their replies, which begin after so many bytes, become errors.
    pub fn commit(&self, ran: &Ran, (requests, begun): (&[Request], usize), out: &mut ReplyWriter) -> Flow {
        for appended in &ran.appended {
            if let Err(error) = self.db.commit(appended) {
                // Which of the replies are true is not known.
                out.truncate(begun);
                let message = format!("ERR what these commands wrote is not known to be on disk: {error}");
                requests.iter().filter(|request| !request.arguments.is_empty()).for_each(|_| out.error(&message));
                return Flow::Close;
            }
        }
        ran.flow
    }

    /// Returns whether all requests add samples: they are done fast, whatever is stored.
    pub fn is_adds(&self, session: &Session, (input, requests): (&[u8], &[Request])) -> bool {
        !session.is_in_transaction() && samples::leading_adds(input, requests) == requests.len()
    }
}

/// Runs the requests of a read.
struct Executor<'a> {
    service: &'a Service,
    session: &'a mut Session,
    access: &'a mut dyn Access,
    out: &'a mut ReplyWriter,
    appended: Vec<Appended>,
    flow: Flow,
    /// True within a transaction, which waits for nothing.
    is_atomic: bool,
}

impl Executor<'_> {
    fn run(&mut self, input: &[u8], requests: &[Request]) {
        let mut at = 0;
        while let Some(request) = requests.get(at) {
            if self.flow == Flow::Close {
                return;
            }
            let begun = self.out.bytes().len();
            if begun > self.service.limits.reply_bytes_max {
                self.out.error("ERR the replies of this pipeline take too much (reply_bytes_max): send fewer commands");
                at += 1;
                continue;
            }
            let adds = samples::leading_adds(input, requests.get(at..).unwrap_or_default());
            let is_plain = self.session.transaction.is_none() && self.access.is_signed_in();
            if adds > 0 && is_plain {
                let group = requests.get(at..at + adds).unwrap_or_default();
                let database = self.service.database(self.session.database);
                let _shared = database.exclusive.read();
                self.service.commands.fetch_add(adds as u64, Ordering::Relaxed);
                samples::run_adds(self, &database, input, group);
                at += adds;
            } else {
                self.run_one(Arguments::new(input, &request.arguments));
                if let Some(waiting) = self.session.waiting.as_mut().filter(|_| self.flow == Flow::Wait) {
                    waiting.done = at;
                    return;
                }
                at += 1;
            }
            if let Err(why) = self.access.hold_bytes(self.out.bytes().len() + self.session.queued_bytes()) {
                self.out.truncate(begun);
                self.out.error(&format!("OOM {why}"));
                self.flow = Flow::Close;
            }
        }
    }

    fn run_one(&mut self, mut arguments: Arguments<'_>) {
        let Some(name) = arguments.next() else { return };
        self.service.commands.fetch_add(1, Ordering::Relaxed);
        let done = match table::find(name) {
            None => Err(unknown(name, arguments)),
            Some(spec) => self.run_known(spec, arguments),
        };
        if let Err(error) = done {
            if let Some(transaction) = &mut self.session.transaction {
                transaction.has_failed = true;
            }
            self.out.error(&error.to_string());
        }
    }

    fn run_known(&mut self, spec: &'static Spec, arguments: Arguments<'_>) -> Result<(), CommandError> {
        spec.check_arity(arguments.len() + 1)?;
        if spec.need != Need::Nothing && !self.access.is_signed_in() {
            return Err(CommandError::series("NOAUTH Authentication required."));
        }
        if self.session.transaction.is_some() && !spec.is_immediate {
            return self.queue(spec, arguments);
        }
        if spec.name == "EXEC" {
            return self.run_transaction();
        }
        let database = self.service.database(self.session.database);
        let _shared = database.exclusive.read();
        self.run_command(spec, arguments)
    }

    /// Runs a command of the chosen database.
    fn run_command(&mut self, spec: &Spec, mut arguments: Arguments<'_>) -> Result<(), CommandError> {
        let begun = self.out.bytes().len();
        let right = match spec.need {
            Need::Read => Some(Right::Read),
            Need::Write => Some(Right::Write),
            Need::Delete => Some(Right::Delete),
            Need::Nothing | Need::Account => None,
        };
        // A command that has waited asks for itself when it answers: each time that it was woken would count.
        if let Some(right) = right.filter(|_| self.session.waiting.is_none()) {
            self.check(right)?;
        }
        let done = (spec.run)(self, &mut arguments);
        if done.is_err() {
            self.out.truncate(begun);
        }
        done.map_err(|error| match error {
            CommandError::Arity(_) => CommandError::Arity(spec.name.to_ascii_lowercase()),
            other => other,
        })
    }

    fn check(&self, right: Right) -> Result<(), CommandError> {
        let database = self.service.database_name(self.session.database);
        self.access.check(right, &database).map_err(|why| CommandError::other(format!("NOPERM {why}")))
    }

    fn queue(&mut self, spec: &'static Spec, arguments: Arguments<'_>) -> Result<(), CommandError> {
        // A transaction has the lock of one database.
        if spec.name == "SELECT" {
            return Err(CommandError::other(
                "ERR SELECT is not taken inside MULTI: choose the database before it".to_owned(),
            ));
        }
        let bytes_max = self.service.limits.transaction_bytes_max;
        let queued = Queued::new(spec, arguments);
        let bytes = self.session.queued_bytes() + queued.size_bytes();
        if bytes > bytes_max {
            return Err(CommandError::other(format!(
                "ERR a transaction has at most {bytes_max} bytes of commands (transaction_bytes_max)"
            )));
        }
        let held = self.access.hold_bytes(self.out.bytes().len() + bytes);
        held.map_err(|why| CommandError::other(format!("OOM {why}")))?;
        let Some(transaction) = &mut self.session.transaction else { return Ok(()) };
        transaction.bytes = bytes;
        transaction.commands.push(queued);
        self.out.simple("QUEUED");
        Ok(())
    }

    fn run_transaction(&mut self) -> Result<(), CommandError> {
        let Some(Transaction { commands, has_failed, bytes }) = self.session.transaction.take() else {
            return Err(CommandError::series("ERR EXEC without MULTI"));
        };
        if has_failed {
            return Err(CommandError::series("EXECABORT Transaction discarded because of previous errors."));
        }
        let database = self.service.database(self.session.database);
        let _alone = database.exclusive.write();
        self.is_atomic = true;
        self.out.array(commands.len());
        let mut full: Option<String> = None;
        for queued in &commands {
            let begun = self.out.bytes().len();
            if full.is_none() && begun > self.service.limits.reply_bytes_max {
                full = Some("ERR the replies of this transaction take too much (reply_bytes_max)".to_owned());
            }
            let done = match &full {
                None => self.run_command(queued.spec, queued.arguments()),
                Some(why) => Err(CommandError::other(format!("{why}: this command was not run"))),
            };
            if let Err(error) = done {
                self.out.error(&error.to_string());
            }
            if full.is_none()
                && let Err(why) = self.access.hold_bytes(self.out.bytes().len() + bytes)
            {
                self.out.truncate(begun);
                self.out.error(&format!("OOM {why}"));
                full = Some("OOM there is no memory for more replies".to_owned());
            }
        }
        self.is_atomic = false;
        Ok(())
    }

    /// Does work on the chosen database.
    fn with_rows<T>(&mut self, work: impl FnOnce(&mut Work<'_>) -> Result<T, CommandError>) -> Result<T, CommandError> {
        let database = self.service.database(self.session.database);
        let Self { service, access, appended, .. } = self;
        let (access, budget) = (&**access, access.budget(&database.name));
        let gate = access.series_gate(&database.name);
        if database.is_behind.load(Ordering::Relaxed) {
            // Not what the command may read.
            let budget = access.budget(&database.name);
            let rows = Rows { db: &service.db, database: &database.name, budget: &budget, gate: &*gate };
            Work { rows: &rows, database: &database, limits: &service.limits, appended }.catch_up();
        }
        let rows = Rows { db: &service.db, database: &database.name, budget: &budget, gate: &*gate };
        work(&mut Work { rows: &rows, database: &database, limits: &service.limits, appended })
    }
}

/// A command's work on its database.
struct Work<'a> {
    rows: &'a Rows<'a>,
    database: &'a Database,
    limits: &'a Limits,
    appended: &'a mut Vec<Appended>,
}

impl Work<'_> {
    /// The time that keys go by: a clock that jumps takes none.
    fn now_ms(&self) -> i64 {
        self.rows.db.trusted_now_ns() / NS_PER_MS
    }

    /// The keys of the database.
    fn open(&self) -> Result<MutexGuard<'_, State>, CommandError> {
        self.database.open(self.rows, self.now_ms())
    }

    /// Writes, and appends what was written.
    fn write<T>(&mut self, write: impl FnOnce(&mut Writer<'_>) -> Result<T, CommandError>) -> Result<T, CommandError> {
        let mut state = self.database.open(self.rows, self.now_ms())?;
        let mut writer = Writer::new(self.rows, &mut state, self.limits, self.appended);
        let done = write(&mut writer);
        // What was done before an error stays.
        let flushed = writer.flush();
        self.database.is_behind.store(!state.behind.is_empty(), Ordering::Relaxed);
        flushed.and(done)
    }

    /// Computes buckets of rules that could not be computed before, once it is time to. What fails is tried again later.
    fn catch_up(&mut self) {
        let Ok(mut state) = self.database.open(self.rows, self.now_ms()) else { return };
        let now_ns = self.rows.db.clock().monotonic_ns();
        if !state.behind.is_due(now_ns) {
            return;
        }
        state.look_around(self.rows);
        let mut writer = Writer::new(self.rows, &mut state, self.limits, self.appended);
        let caught_up = writer.catch_up();
        match writer.flush().and(caught_up) {
            Ok(()) => state.behind.pause.succeed(),
            Err(_) => state.behind.pause.fail(now_ns),
        }
        self.database.is_behind.store(!state.behind.is_empty(), Ordering::Relaxed);
    }
}

fn unknown(name: &[u8], arguments: Arguments<'_>) -> CommandError {
    let name = String::from_utf8_lossy(name.get(..name.len().min(128)).unwrap_or_default());
    let first = arguments.peek().map(|first| first.get(..first.len().min(128)).unwrap_or_default());
    let first = first.map(|first| format!(" '{}'", String::from_utf8_lossy(first))).unwrap_or_default();
    CommandError::other(format!("ERR unknown command '{name}', with args beginning with:{first}"))
}
