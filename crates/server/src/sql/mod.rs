//! SQL over HTTP ([`http`]), over Postgres's protocol ([`postgres`], [`handlers`] and [`errors`]; [`commands`], [`session`] and [`prepared`]: its
//! sessions; [`sign_in`]: how they begin; [`encryption`], [`messages`], [`gate`] and [`frames`]: its connections) and, with a cargo feature, over Arrow
//! Flight.

mod commands;
mod copy;
mod encode;
mod encryption;
mod errors;
#[cfg(feature = "flight-sql")]
pub(crate) mod flight;
mod frames;
pub(crate) mod fuzz;
mod gate;
mod handlers;
pub(crate) mod http;
mod messages;
mod parameters;
pub(crate) mod postgres;
mod prepared;
mod session;
mod sign_in;
mod text;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use access::account::Account;
use access::audit::Event;
use access::scope::Scope;
use access::statement::AccountStatement;
use model::TimeRange;
use query::{Budget, FOLDED_WARNING, QueryError};
use sql::{Answer, ClientContext, Role, Roles, SqlError};

use crate::error::ApiError;
use crate::http::query::{QueryJob, run_query};
use crate::scheduler::running::Description;
use crate::sign_in::Caller;
use crate::sign_in::statements::statement_error;
use crate::state::State;

/// Databases that clients ask for when they are not told one.
const NO_DATABASE: [&str; 2] = ["postgres", "qdb"];

/// The database that a client named; the default one for those that clients name by themselves.
fn database_of(state: &State, named: &str, user: &str, scope: &Scope) -> Result<String, SqlError> {
    let mut known = state.db.databases();
    known.retain(|database| scope.sees(database));
    if named == model::DEFAULT_DATABASE || known.iter().any(|known| known == named) {
        return Ok(named.to_owned());
    }
    if named.is_empty() || named == user || NO_DATABASE.contains(&named) {
        return Ok(model::DEFAULT_DATABASE.to_owned());
    }
    Err(SqlError::UnknownTable(format!("database \"{named}\" does not exist: {} exist", known.join(", "))))
}

/// The outcome of a statement, and a warning if it is not of all rows that were written.
struct Outcome<T> {
    answer: T,
    warning: Option<String>,
}

/// Does a statement's work when it is its turn, among the queries that are listed; stops it when its client leaves or its time is up. The
/// outer error is of its turn and its time, the inner one of the statement.
async fn watch<T: Send + 'static>(
    state: &Arc<State>,
    text: String,
    (session, caller): (ClientContext, Caller),
    work: impl FnOnce(&State, &ClientContext, &Arc<Budget>) -> Result<T, SqlError> + Send + 'static,
) -> Result<Result<Outcome<T>, SqlError>, ApiError> {
    let budget = state.budget_of(&session.database, &caller.scope);
    let description = Description { kind: "sql", text, database: session.database.clone(), caller };
    let timeout = Duration::from_millis(timeout_ms(&session, state.settings.query_timeout_ms));
    let asked = QueryJob::without_request(description, budget.clone(), timeout);
    let work = move |state: &State| match work(state, &session, &budget) {
        Err(SqlError::Query(error)) if !matches!(error, QueryError::Invalid(_) | QueryError::Forbidden(_)) => {
            Err(error)
        }
        answer => Ok((String::new(), answer.map(|answer| Outcome { answer, warning: warning(state, &budget) }))),
    };
    run_query(state, asked, work).await.map(|(_, answer)| answer)
}

/// The time of a statement: the session's own if it is shorter than everyone's.
fn timeout_ms(session: &ClientContext, most_ms: u64) -> u64 {
    let own_ms = session.settings.get("statement_timeout").and_then(|value| sql::timeout_ms(value));
    own_ms.filter(|own_ms| *own_ms > 0).map_or(most_ms, |own_ms| own_ms.min(most_ms))
}

/// A warning if rows of the times that a statement has read are lost, or if it was answered from what folding left.
fn warning(state: &State, budget: &Budget) -> Option<String> {
    let range = budget.read_range();
    let loss = if range == TimeRange::EMPTY { None } else { state.db.health().loss_warning(Some(&range)) };
    let folded = budget.is_folded().then(|| FOLDED_WARNING.to_owned());
    loss.into_iter().chain(folded).reduce(|all, one| format!("{all}; {one}"))
}

/// Runs one of some statements.
async fn run_one(
    state: &Arc<State>,
    text: String,
    (parsed, place): (Arc<sql::Parsed>, usize),
    asker: (ClientContext, Caller),
) -> Result<Result<Outcome<Answer>, SqlError>, ApiError> {
    let (caller, shown) = (asker.1.clone(), text.clone());
    let work = move |state: &State, session: &ClientContext, budget: &Arc<Budget>| {
        let statement = StatementOf { parsed: &parsed, index: place, text: &shown, caller: &caller };
        statement.run(state, session, budget)
    };
    watch(state, text, asker, work).await
}

/// One of the statements of a text, and who sent it.
struct StatementOf<'a> {
    parsed: &'a sql::Parsed,
    index: usize,
    text: &'a str,
    caller: &'a Caller,
}

impl StatementOf<'_> {
    /// Runs it; what the audit log has of statements is written there.
    fn run(&self, state: &State, session: &ClientContext, budget: &Arc<Budget>) -> Result<Answer, SqlError> {
        if let Some(statement) = self.parsed.account_statement(self.index) {
            state.account_statement(self.caller, statement).map_err(statement_error)?;
            return Ok(account_answer(statement));
        }
        let answer = match self.parsed.trigger_statement(self.index) {
            Some(statement) => state.trigger_statement(self.caller, &session.database, statement)?,
            None => state.db.sql(self.parsed, self.index, session, budget)?,
        };
        if let Some(event) = self.parsed.audited(self.index) {
            let text = crate::redact::passwords(self.text);
            state.sign_in.audit.note(state.db.now_ns(), event, self.caller.actor(), &text);
            if event == Event::Deleted {
                // It may have dropped a database.
                state.forget_dropped();
            }
        }
        Ok(answer)
    }
}

/// The answer to a statement about users, by the words of Postgres.
fn account_answer(statement: &AccountStatement) -> Answer {
    let tag = match statement {
        AccountStatement::Create { .. } => "CREATE ROLE",
        AccountStatement::Alter { .. } => "ALTER ROLE",
        AccountStatement::Drop { .. } => "DROP ROLE",
        AccountStatement::Revoke(_) => "REVOKE",
        _ => "GRANT",
    };
    Answer::Done(tag.to_owned())
}

/// The accounts that a client may see: its own, or all if it administers the server.
struct VisibleRoles {
    state: Arc<State>,
    scope: Arc<Scope>,
}

impl fmt::Debug for VisibleRoles {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "roles that {} sees", self.scope.name)
    }
}

impl Roles for VisibleRoles {
    fn roles(&self) -> Vec<Role> {
        let directory = self.state.sign_in.directory();
        let accounts = directory.entries().into_iter().map(|entry| &entry.account);
        let is_seen = |name: &str| self.scope.is_server_admin || *name == *self.scope.name;
        let role = |account: &Account| Role { name: account.name.clone(), is_superuser: account.is_server_admin };
        accounts.filter(|account| is_seen(&account.name)).map(role).collect()
    }
}
