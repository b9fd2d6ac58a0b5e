//! Postgres's protocol (version 3): simple and extended queries, cancelling, types as they are. How clients sign in: `sign_in.rs`.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use access::rate::Counted;
use access::scope::Scope;
use futures_util::{Sink, SinkExt};
use pgwire::api::cancel::DefaultCancelHandler;
use pgwire::api::{ClientInfo, ConnectionManager, METADATA_DATABASE, METADATA_USER, Type};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::startup::ParameterStatus;
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use query::Budget;
use sql::{Answer, ChangedSettings, ClientContext, Column, Manner, Notices, PendingWrites, SqlError, Value};
use tokio::sync::watch;

use super::encryption::{self, Begun};
use super::errors::{error_of, failed, info};
use super::parameters::{inferred, sample_of};
use super::prepared::{StatementSizes, Statements};
use super::session::Session;
use super::{Outcome, VisibleRoles};
use crate::http::body::Share;
use crate::listen::accept::Serve;
use crate::listen::socket::{Peer, Socket};
use crate::listen::tls::Tls;
use crate::scheduler::tenants::Tenant;
use crate::sign_in::{Caller, Client};
use crate::state::State;

/// What a client is told that finds no place: an error message with its length, severity, code and text.
const FULL: &[u8] = b"E\0\0\0\x4aSFATAL\0C53300\0Mas many sessions are open as may be (connections_max)\0\0";

/// The port of Postgres's protocol.
pub(crate) struct Sessions {
    state: Arc<State>,
    manager: Arc<ConnectionManager>,
    tls: Option<Arc<Tls>>,
}

impl Sessions {
    /// With TLS for clients that ask for it, if there is any.
    pub(crate) fn new(state: Arc<State>, tls: Option<Arc<Tls>>) -> Arc<Self> {
        Arc::new(Self { state, manager: Arc::new(ConnectionManager::new()), tls })
    }
}

impl Serve for Sessions {
    async fn serve(self: Arc<Self>, socket: Socket, peer: Peer, mut stop: watch::Receiver<bool>) {
        // Boxed, so that a session does not hold the room that its beginning took.
        let begun = Box::pin(encryption::negotiate(&self.state, self.tls.as_ref(), socket, peer));
        let begun = tokio::select! {
            begun = begun => begun,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let Ok(Begun { socket, peer, ahead }) = begun else { return };
        let connection = Connection {
            state: self.state.clone(),
            manager: self.manager.clone(),
            peer,
            client: OnceLock::new(),
            session: Mutex::default(),
            sizes: Mutex::default(),
            tenant: OnceLock::new(),
            notices: Mutex::default(),
            is_sync_next: AtomicBool::new(false),
        };
        tokio::select! {
            // What goes wrong with a connection ends it and nothing else.
            _ = super::messages::serve(Arc::new(connection), socket, ahead) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    fn refusal(&self) -> &'static [u8] {
        FULL
    }
}

/// A client's connection.
pub(super) struct Connection {
    pub(super) state: Arc<State>,
    pub(super) manager: Arc<ConnectionManager>,
    pub(super) peer: Peer,
    /// Who the client is, once it has signed in.
    client: OnceLock<Client>,
    session: Mutex<Session>,
    sizes: Mutex<StatementSizes>,
    /// What the session counts as, once its database is known.
    tenant: OnceLock<Arc<Tenant>>,
    /// Notices that are sent before the next answer.
    notices: Mutex<Vec<ErrorInfo>>,
    /// True if a Sync has come right after the Execute that is answered.
    is_sync_next: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    /// Takes over the settings that a client names when it connects, and tells it of those that it cannot have.
    pub(super) async fn take_startup_settings<C>(&self, client: &mut C) -> PgWireResult<()>
    where
        C: ClientInfo + Sink<PgWireBackendMessage> + Unpin + Send,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        for (name, value) in startup_settings(client) {
            match sql::Setting::from_startup(&name, &value) {
                Ok(setting) => self.session().set(setting)?,
                Err(error) => self.warn(error.code(), &error.to_string()),
            }
        }
        self.tell(client).await
    }
}

/// The settings that a client names when it connects.
pub(super) fn startup_settings(client: &impl ClientInfo) -> Vec<(String, String)> {
    const OTHERS: [&str; 4] = [METADATA_USER, METADATA_DATABASE, "options", "replication"];
    let named = client.metadata().iter().filter(|(name, _)| !OTHERS.contains(&name.as_str()) && !name.starts_with('_'));
    let mut settings: Vec<(String, String)> = named.map(|(name, value)| (name.clone(), value.clone())).collect();
    // `-c name=value --name=value`
    let options = client.metadata().get("options").map(String::as_str).unwrap_or_default();
    for word in options.split_whitespace() {
        let word = word.trim_start_matches("--").trim_start_matches("-c");
        if let Some((name, value)) = word.split_once('=') {
            settings.push((name.to_owned(), value.to_owned()));
        }
    }
    settings
}

impl Connection {
    /// The client has signed in.
    pub(super) fn set_client(&self, client: Client) {
        let _ = self.client.set(client);
    }

    /// The client with the rights that it has by now; one that has not signed in, or could not any more, may do nothing.
    pub(super) fn caller(&self) -> Caller {
        let State { sign_in, db, .. } = &*self.state;
        let signed_in = || self.client.get().and_then(|client| sign_in.scope_now(client, db.now_ns()));
        let scope = if sign_in.is_required { signed_in() } else { Some(Scope::open()) };
        Caller { scope: scope.unwrap_or_else(Scope::signed_out), remote: Some(self.peer.address) }
    }

    pub(super) fn canceller(&self) -> DefaultCancelHandler {
        DefaultCancelHandler::new(self.manager.clone())
    }

    /// What the session counts as.
    pub(super) fn tenant(&self) -> Arc<Tenant> {
        self.tenant.get().cloned().unwrap_or_else(|| self.state.own_tenant())
    }

    /// A share of the memory of all requests.
    pub(super) fn share(&self) -> Share {
        self.state.bodies.share(&self.tenant())
    }

    /// Counts a statement among what the account may ask for.
    pub(super) fn count_statement(&self) -> PgWireResult<()> {
        let counted = self.state.take(&self.caller().scope, &self.tenant(), (Counted::Requests, 1));
        counted.map_err(|error| failed("53400", error.message))
    }

    pub(super) fn session(&self) -> MutexGuard<'_, Session> {
        locked(&self.session)
    }

    pub(super) fn sizes(&self) -> MutexGuard<'_, StatementSizes> {
        locked(&self.sizes)
    }

    /// Takes note of the prepared statement or portal that a message makes. Returns whether it fits.
    pub(super) fn note_statement(&self, message: &PgWireFrontendMessage) -> bool {
        self.sizes().note(message, self.state.settings.postgres_message_bytes_max)
    }

    /// Takes note of whether a Sync has come after the Execute that is answered next.
    pub(super) fn note_next(&self, is_sync: bool) {
        self.is_sync_next.store(is_sync, Ordering::Relaxed);
    }

    /// Returns whether the statement that is answered is known to be the last one before a Sync.
    pub(super) fn is_last_before_sync(&self) -> bool {
        self.is_sync_next.load(Ordering::Relaxed)
    }

    pub(super) fn too_many_statements(&self) -> PgWireError {
        let most = self.state.settings.postgres_message_bytes_max;
        let message = format!(
            "prepared statements and portals of this session take more than {most} bytes (postgres_message_bytes_max): \
             close some"
        );
        failed("53400", message)
    }

    pub(super) fn warn(&self, code: &str, message: &str) {
        locked(&self.notices).push(info("WARNING", code, message.to_owned()));
    }

    /// Takes what a statement has to say beside its answer.
    pub(super) fn take_notices(&self, notices: &Notices) {
        let notices = notices.take();
        locked(&self.notices).extend(notices.into_iter().map(|message| info("NOTICE", "00000", message)));
    }

    /// Sends what the client is to be told.
    pub(super) async fn tell<C>(&self, client: &mut C) -> PgWireResult<()>
    where
        C: Sink<PgWireBackendMessage> + Unpin + Send,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let notices = std::mem::take(&mut *locked(&self.notices));
        for notice in notices {
            client.feed(PgWireBackendMessage::NoticeResponse(notice.into())).await?;
        }
        let changed = self.session().changed_zone();
        if let Some(zone) = changed {
            let status = ParameterStatus::new("TimeZone".to_owned(), zone);
            client.feed(PgWireBackendMessage::ParameterStatus(status)).await?;
        }
        Ok(())
    }

    /// The context of a statement with these parameters.
    pub(super) fn context(&self, client: &impl ClientInfo, parameters: Vec<Value>) -> PgWireResult<ClientContext> {
        let said = |name| client.metadata().get(name).cloned().unwrap_or_default();
        let (user, scope) = (said(METADATA_USER), self.caller().scope);
        if Arc::ptr_eq(&scope, &Scope::signed_out()) {
            let message = "the account was removed, has expired, or has another secret: connect again";
            return Err(failed("28000", message.to_owned()));
        }
        let database = super::database_of(&self.state, &said(METADATA_DATABASE), &user, &scope);
        let database = database.map_err(|error| error_of(&error))?;
        self.tenant.get_or_init(|| self.state.tenant(&database, &scope));
        let session = self.session();
        let writes = session.transaction.as_ref().map(|transaction| transaction.writes.clone());
        Ok(ClientContext {
            now_ns: self.state.db.now_ns(),
            time_zone: session.time_zone(),
            database,
            user,
            parameters,
            manner: Manner::Postgres,
            settings: session.settings.clone(),
            transaction: writes.map(|writes| writes as Arc<dyn PendingWrites>),
            notices: Notices::default(),
            changed_settings: Some(ChangedSettings::default()),
            roles: Some(Arc::new(VisibleRoles { state: self.state.clone(), scope })),
        })
    }

    /// Runs one of the statements when it is its turn; stops it when its client leaves or cancels.
    pub(super) async fn run(
        &self,
        statements: &Statements,
        place: usize,
        context: ClientContext,
    ) -> PgWireResult<Answer> {
        self.count_statement()?;
        let notices = context.notices.clone();
        let changed = context.changed_settings.clone().unwrap_or_default();
        let text = statements.text.to_string();
        let ran = super::run_one(&self.state, text, (statements.parsed.clone(), place), (context, self.caller()));
        let answer = ran.await.map_err(|error| failed("57014", error.message))?;
        self.take_notices(&notices);
        if matches!(answer, Ok(Outcome { .. })) {
            changed.take().into_iter().try_for_each(|setting| self.session().set(setting))?;
        }
        let answer = answer.map(|Outcome { answer, warning }| {
            warning.iter().for_each(|warning| self.warn("01000", warning));
            answer
        });
        answer.map_err(|error| error_of(&error))
    }

    /// The columns that a statement will give.
    pub(super) async fn columns(
        &self,
        client: &(impl ClientInfo + Sync),
        statements: &Statements,
        types: &[Option<Type>],
    ) -> PgWireResult<Vec<Column>> {
        let parameters = (0..statements.parameters).map(|place| sample_of(types.get(place).and_then(Option::as_ref)));
        let context = self.context(client, parameters.collect())?;
        let parsed = statements.parsed.clone();
        let columns = self.describe(statements, context, move |state, context, budget| {
            state.db.describe_sql(&parsed, 0, context, budget)
        });
        columns.await
    }

    /// Finds out about a statement what is known without running it: where queries run, for it may read views, whose queries are read then.
    async fn describe<T: Send + 'static>(
        &self,
        statements: &Statements,
        context: ClientContext,
        work: impl FnOnce(&State, &ClientContext, &Arc<Budget>) -> Result<T, SqlError> + Send + 'static,
    ) -> PgWireResult<T> {
        let described = super::watch(&self.state, statements.text.to_string(), (context, self.caller()), work);
        let described = described.await.map_err(|error| failed("57014", error.message))?;
        described.map(|described| described.answer).map_err(|error| error_of(&error))
    }

    /// The types of a statement's parameters: those that the client gives, else what their use says, else text.
    pub(super) async fn parameter_types(
        &self,
        client: &(impl ClientInfo + Sync),
        statements: &Statements,
        mut given: Vec<Option<Type>>,
    ) -> PgWireResult<Vec<Option<Type>>> {
        given.resize(given.len().max(statements.parameters), None);
        if given.iter().all(Option::is_some) {
            return Ok(given);
        }
        let context = self.context(client, given.iter().map(|kind| sample_of(kind.as_ref())).collect())?;
        let parsed = statements.parsed.clone();
        let used = self.describe(statements, context, move |state, context, budget| {
            Ok(state.db.sql_parameter_types(&parsed, 0, context, budget))
        });
        let used = used.await?.into_iter().map(|kind| kind.map_or(Type::TEXT, inferred));
        Ok(given.into_iter().zip(used).map(|(given, used)| given.or(Some(used))).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_says_its_length() {
        assert_eq!(FULL.get(1..5).unwrap(), (FULL.len() as u32 - 1).to_be_bytes());
    }
}
