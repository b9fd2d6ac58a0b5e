//! Postgres's protocol (version 3): simple and extended queries, cancelling, types as they are. No passwords: it listens on
//! loopback unless it is told otherwise.

use std::any::Any;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::{Sink, SinkExt};
use jiff::tz::TimeZone;
use pgwire::api::auth::noop::NoopStartupHandler;
use pgwire::api::cancel::DefaultCancelHandler;
use pgwire::api::portal::{Format, Portal};
use pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler, send_describe_response};
use pgwire::api::results::{DescribePortalResponse, DescribeStatementResponse, FieldInfo, Response};
use pgwire::api::stmt::{QueryParser, StoredStatement};
use pgwire::api::store::{Entry, MemPortalStore, PortalStore};
use pgwire::api::{
    ClientInfo, ClientPortalStore, ConnectionManager, DEFAULT_NAME, METADATA_DATABASE, METADATA_USER, Type,
};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{Describe, Execute, Parse, ParseComplete};
use pgwire::messages::response::TransactionStatus;
use pgwire::messages::simplequery::Query;
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use sql::{Answer, ClientContext, Column, Manner, Notices, PendingWrites, SessionCommand, SqlError, Value};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::commands::{Commanded, ends_failure};
use super::encode::fields;
use super::parameters::{inferred, parameter, sample_of};
use super::prepared::{StatementSizes, Statements, Store, given_type};
use super::session::Session;
use crate::listen::accept::Serve;
use crate::state::State;

/// What a client is told that finds no place: an error message with its length, severity, code and text.
const FULL: &[u8] = b"E\0\0\0\x4aSFATAL\0C53300\0Mas many sessions are open as may be (connections_max)\0\0";

/// The kinds of targets of Describe.
const STATEMENT: u8 = b'S';

/// The port of Postgres's protocol.
pub(crate) struct Sessions {
    state: Arc<State>,
    manager: Arc<ConnectionManager>,
}

impl Sessions {
    pub(crate) fn new(state: Arc<State>) -> Arc<Self> {
        Arc::new(Self { state, manager: Arc::new(ConnectionManager::new()) })
    }
}

impl Serve for Sessions {
    async fn serve(self: Arc<Self>, stream: TcpStream, remote: SocketAddr, mut stop: watch::Receiver<bool>) {
        let connection = Connection {
            state: self.state.clone(),
            manager: self.manager.clone(),
            remote: Some(remote),
            session: Mutex::default(),
            sizes: Mutex::default(),
            notices: Mutex::default(),
        };
        tokio::select! {
            // What goes wrong with a connection ends it and nothing else.
            _ = super::messages::serve(Arc::new(connection), stream) => {}
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
    manager: Arc<ConnectionManager>,
    pub(super) remote: Option<SocketAddr>,
    session: Mutex<Session>,
    sizes: Mutex<StatementSizes>,
    /// What the client is told before the next answer.
    notices: Mutex<Vec<ErrorInfo>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl NoopStartupHandler for Connection {
    fn connection_manager(&self) -> Option<Arc<ConnectionManager>> {
        Some(self.manager.clone())
    }

    async fn post_startup<C>(&self, client: &mut C, _: PgWireFrontendMessage) -> PgWireResult<()>
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
fn startup_settings(client: &impl ClientInfo) -> Vec<(String, String)> {
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
    pub(super) fn canceller(&self) -> DefaultCancelHandler {
        DefaultCancelHandler::new(self.manager.clone())
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

    pub(super) fn too_many_statements(&self) -> PgWireError {
        let most = self.state.settings.postgres_message_bytes_max;
        let message = format!(
            "prepared statements and portals of this session take more than {most} bytes (postgres_message_bytes_max): \
             close some"
        );
        failed("53400", message)
    }

    pub(super) fn warn(&self, code: &str, message: &str) {
        locked(&self.notices).push(info("WARNING", code, message));
    }

    /// Takes what a statement has to say beside its answer.
    pub(super) fn take_notices(&self, notices: &Notices) {
        let notices = notices.take();
        locked(&self.notices).extend(notices.iter().map(|message| info("NOTICE", "00000", message)));
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
        Ok(())
    }

    /// The context of a statement with these parameters.
    pub(super) fn context(&self, client: &impl ClientInfo, parameters: Vec<Value>) -> PgWireResult<ClientContext> {
        let said = |name| client.metadata().get(name).cloned().unwrap_or_default();
        let user = said(METADATA_USER);
        let database = super::database_of(&self.state, &said(METADATA_DATABASE), &user);
        let session = self.session();
        let writes = session.transaction.as_ref().map(|transaction| transaction.writes.clone());
        Ok(ClientContext {
            now_ns: self.state.db.now_ns(),
            time_zone: TimeZone::UTC,
            database: database.map_err(|error| error_of(&error))?,
            user,
            parameters,
            manner: Manner::Postgres,
            settings: session.settings.clone(),
            transaction: writes.map(|writes| writes as Arc<dyn PendingWrites>),
            notices: Notices::default(),
        })
    }

    /// Runs one of the statements when it is its turn; stops it when its client leaves or cancels.
    pub(super) async fn run(
        &self,
        statements: &Statements,
        place: usize,
        context: ClientContext,
    ) -> PgWireResult<Answer> {
        let notices = context.notices.clone();
        let text = statements.text.to_string();
        let ran = super::run_one(&self.state, text, (statements.parsed.clone(), place), (context, self.remote));
        let answer = ran.await.map_err(|error| failed("57014", error.message))?;
        self.take_notices(&notices);
        answer.map_err(|error| error_of(&error))
    }

    /// Runs one of the statements, or does what it says about the session.
    async fn answer<C>(&self, client: &mut C, asked: Asked<'_>) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let Asked { statements, place, parameters, format } = asked;
        let command = sql::session_command(&statements.parsed, place).map_err(|error| error_of(&error))?;
        check_transaction(client, command.as_ref())?;
        let answer = match command {
            Some(command) => {
                let commanded = Commanded { command, parameters, format };
                self.command(&*client, store_of(client)?, commanded).await
            }
            None => {
                let context = self.context(client, parameters)?;
                let answer = self.run(statements, place, context.clone()).await;
                answer.and_then(|answer| self.response(answer, context, format))
            }
        };
        // A transaction that could not be committed is over.
        match (&answer, self.session().transaction.is_some(), client.transaction_status()) {
            (Ok(Response::TransactionStart(_)), ..) => client.set_transaction_status(TransactionStatus::Transaction),
            (_, false, _) => client.set_transaction_status(TransactionStatus::Idle),
            _ => {}
        }
        self.tell(client).await?;
        answer
    }

    /// The columns that a statement will give.
    pub(super) fn columns(
        &self,
        client: &impl ClientInfo,
        statements: &Statements,
        types: &[Option<Type>],
    ) -> PgWireResult<Vec<Column>> {
        let parameters = (0..statements.parameters).map(|place| sample_of(types.get(place).and_then(Option::as_ref)));
        let context = self.context(client, parameters.collect())?;
        let budget = self.state.db.budget(self.state.settings.query_samples_max);
        let described = self.state.db.describe_sql(&statements.parsed, 0, &context, &budget);
        described.map_err(|error| error_of(&error))
    }

    /// The columns of what a client asks about: of a command, or of a statement.
    fn described<C>(&self, client: &C, statements: &Statements, types: &[Option<Type>]) -> PgWireResult<Vec<Column>>
    where
        C: ClientInfo + ClientPortalStore,
        C::PortalStore: PortalStore,
    {
        match sql::session_command(&statements.parsed, 0).map_err(|error| error_of(&error))? {
            Some(command) => self.command_columns(client, store_of(client)?, &command),
            None => self.columns(client, statements, types),
        }
    }

    /// The types of a statement's parameters: those that the client gives, else what their use says, else text.
    pub(super) fn parameter_types(
        &self,
        client: &impl ClientInfo,
        statements: &Statements,
        mut given: Vec<Option<Type>>,
    ) -> PgWireResult<Vec<Option<Type>>> {
        given.resize(given.len().max(statements.parameters), None);
        if given.iter().all(Option::is_some) {
            return Ok(given);
        }
        let context = self.context(client, given.iter().map(|kind| sample_of(kind.as_ref())).collect())?;
        let budget = self.state.db.budget(self.state.settings.query_samples_max);
        let used = self.state.db.sql_parameter_types(&statements.parsed, 0, &context, &budget);
        let used = used.into_iter().map(|kind| kind.map_or(Type::TEXT, inferred));
        Ok(given.into_iter().zip(used).map(|(given, used)| given.or(Some(used))).collect())
    }
}

/// One of some statements with the values of its parameters, and the forms of what it gives.
struct Asked<'a> {
    statements: &'a Statements,
    place: usize,
    parameters: Vec<Value>,
    format: &'a Format,
}

/// The prepared statements and portals of a client.
fn store_of<C>(client: &C) -> PgWireResult<&Store>
where
    C: ClientPortalStore,
    C::PortalStore: PortalStore,
{
    let store: &dyn Any = client.portal_store().as_any();
    match store.downcast_ref::<MemPortalStore<Statements>>() {
        Some(store) => Ok(store),
        None => Err(failed("XX000", "the session has no prepared statements".to_owned())),
    }
}

/// After an error a transaction takes nothing but its end.
fn check_transaction(client: &impl ClientInfo, command: Option<&SessionCommand>) -> PgWireResult<()> {
    if client.transaction_status() == TransactionStatus::Error && !ends_failure(command) {
        let message = "current transaction is aborted, commands ignored until end of transaction block";
        return Err(failed("25P02", message.to_owned()));
    }
    Ok(())
}

/// Messages have no NUL in the protocol.
fn info(severity: &str, code: &str, message: &str) -> ErrorInfo {
    ErrorInfo::new(severity.to_owned(), code.to_owned(), message.replace('\0', "\\0"))
}

pub(super) fn failed(code: &str, message: String) -> PgWireError {
    PgWireError::UserError(Box::new(info("ERROR", code, &message)))
}

pub(super) fn error_of(error: &SqlError) -> PgWireError {
    failed(error.code(), error.to_string())
}

impl Connection {
    /// A failed transaction goes on from a savepoint. The status is to be known before the statement runs: it would be put back after it.
    fn resume<C: ClientInfo>(&self, client: &mut C, statements: Option<&Statements>) {
        if client.transaction_status() != TransactionStatus::Error {
            return;
        }
        let command = statements.map(|statements| sql::session_command(&statements.parsed, 0));
        if let Some(Ok(Some(SessionCommand::RollbackTo(name)))) = command
            && self.session().has_savepoint(&name)
        {
            client.set_transaction_status(TransactionStatus::Transaction);
        }
    }
}

#[async_trait]
impl SimpleQueryHandler for Connection {
    async fn on_query<C>(&self, client: &mut C, query: Query) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if client.transaction_status() == TransactionStatus::Error {
            self.resume(client, Statements::read(&query.query).ok().as_ref());
        }
        self._on_query(client, query).await
    }

    async fn do_query<C>(&self, client: &mut C, query: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let statements = Statements::read(query).map_err(|error| error_of(&error))?;
        let mut responses = Vec::with_capacity(statements.parsed.statements.len());
        for place in 0..statements.parsed.statements.len() {
            let format = &Format::UnifiedText;
            let asked = Asked { statements: &statements, place, parameters: Vec::new(), format };
            let in_transaction = self.session().transaction.is_some();
            match self.answer(client, asked).await {
                Ok(response) => responses.push(response),
                // The statements before it were done, and say so, unless the transaction that they were part of is over.
                Err(error) if !responses.is_empty() && self.session().transaction.is_some() == in_transaction => {
                    responses.push(Response::Error(Box::new(error.into())));
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(responses)
    }
}

pub(super) struct Reader;

#[async_trait]
impl QueryParser for Reader {
    type Statement = Statements;

    async fn parse_sql<C>(&self, _: &C, text: &str, _: &[Option<Type>]) -> PgWireResult<Option<Statements>>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let statements = Statements::read(text).map_err(|error| error_of(&error))?;
        if statements.parsed.statements.len() > 1 {
            return Err(failed("42601", "cannot insert multiple commands into a prepared statement".to_owned()));
        }
        Ok((!statements.parsed.statements.is_empty()).then_some(statements))
    }

    fn get_parameter_types(&self, statement: &Statements) -> PgWireResult<Vec<Type>> {
        Ok(vec![Type::TEXT; statement.parameters])
    }

    fn get_result_schema(&self, _: &Statements, _: Option<&Format>) -> PgWireResult<Vec<FieldInfo>> {
        // Described by the connection, which knows the database.
        Ok(Vec::new())
    }
}

#[async_trait]
impl ExtendedQueryHandler for Connection {
    type Statement = Statements;
    type QueryParser = Reader;

    fn query_parser(&self) -> Arc<Reader> {
        Arc::new(Reader)
    }

    async fn on_parse<C>(&self, client: &mut C, message: Parse) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Statements>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message.name.clone().unwrap_or_else(|| DEFAULT_NAME.to_owned());
        match Reader.parse_sql(client, &message.query, &[]).await? {
            Some(statements) => {
                let command = sql::session_command(&statements.parsed, 0).map_err(|error| error_of(&error))?;
                check_transaction(client, command.as_ref())?;
                let given = message.type_oids.iter().map(|number| given_type(*number)).collect();
                let types = self.parameter_types(client, &statements, given)?;
                client.portal_store().put_statement(Arc::new(StoredStatement::new(name, statements, types)));
            }
            None => client.portal_store().put_empty_statement(&name),
        }
        client.feed(PgWireBackendMessage::ParseComplete(ParseComplete::new())).await?;
        Ok(())
    }

    async fn on_describe<C>(&self, client: &mut C, message: Describe) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Statements>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let name = message.name.as_deref().unwrap_or(DEFAULT_NAME);
        if message.target_type == STATEMENT {
            let Some(Entry::Value(target)) = client.portal_store().get_statement(name) else {
                return self._on_describe(client, message).await;
            };
            let described = self.do_describe_statement(client, &target).await?;
            if !described.fields.is_empty() {
                return send_describe_response(client, &described).await;
            }
            let types = described.parameters.iter().map(Type::oid).collect();
            client.feed(PgWireBackendMessage::ParameterDescription(ParameterDescription::new(types))).await?;
            client.send(PgWireBackendMessage::NoData(NoData::new())).await?;
            return Ok(());
        }
        // Cursors of SQL are portals, too.
        let columns = self.session().cursor(name).map(|cursor| cursor.columns.clone());
        match columns {
            Ok(columns) => {
                let described = DescribePortalResponse::new(fields(&columns, &Format::UnifiedText)?);
                send_describe_response(client, &described).await
            }
            Err(_) => self._on_describe(client, message).await,
        }
    }

    async fn do_describe_statement<C>(
        &self,
        client: &mut C,
        target: &StoredStatement<Statements>,
    ) -> PgWireResult<DescribeStatementResponse>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Statements>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let columns = self.described(client, &target.statement, &target.parameter_types)?;
        let parameters = target.parameter_types.iter().map(|kind| kind.clone().unwrap_or(Type::TEXT)).collect();
        Ok(DescribeStatementResponse::new(parameters, fields(&columns, &Format::UnifiedText)?))
    }

    async fn do_describe_portal<C>(
        &self,
        client: &mut C,
        target: &Portal<Statements>,
    ) -> PgWireResult<DescribePortalResponse>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Statements>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let columns = self.described(client, &target.statement.statement, &target.statement.parameter_types)?;
        if columns.is_empty() {
            return Ok(DescribePortalResponse::new(Vec::new()));
        }
        Ok(DescribePortalResponse::new(fields(&columns, &target.result_column_format)?))
    }

    async fn on_execute<C>(&self, client: &mut C, message: Execute) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Statements>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let portal = client.portal_store().get_portal(message.name.as_deref().unwrap_or(DEFAULT_NAME));
        if let Some(Entry::Value(portal)) = portal {
            self.resume(client, Some(&portal.statement.statement));
        }
        self._on_execute(client, message).await
    }

    async fn do_query<C>(&self, client: &mut C, portal: &Portal<Statements>, _: usize) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Statements>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let mut parameters = Vec::with_capacity(portal.parameter_len());
        for place in 0..portal.parameter_len() {
            parameters.push(parameter(portal, place)?);
        }
        let (statements, format) = (&portal.statement.statement, &portal.result_column_format);
        self.answer(client, Asked { statements, place: 0, parameters, format }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_says_its_length() {
        assert_eq!(FULL.get(1..5).unwrap(), (FULL.len() as u32 - 1).to_be_bytes());
    }

    #[test]
    fn messages_have_no_nul() {
        assert_eq!(info("ERROR", "22023", "a\0b").message, "a\\0b");
    }
}
