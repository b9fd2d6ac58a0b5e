//! The messages of Postgres's protocol, simple and extended, answered by a connection.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{Sink, SinkExt};
use pgwire::api::portal::{Format, Portal};
use pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler, send_describe_response, send_ready_for_query};
use pgwire::api::results::{DescribePortalResponse, DescribeStatementResponse, FieldInfo, Response};
use pgwire::api::stmt::{QueryParser, StoredStatement};
use pgwire::api::store::{Entry, MemPortalStore, PortalStore};
use pgwire::api::{ClientInfo, ClientPortalStore, DEFAULT_NAME, PgWireConnectionState, Type};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{Describe, Execute, Parse, ParseComplete, Sync as SyncMessage};
use pgwire::messages::response::TransactionStatus;
use pgwire::messages::simplequery::Query;
use sql::{Column, SessionCommand, Value};

use super::commands::{Commanded, ends_failure};
use super::encode::fields;
use super::errors::{error_of, failed};
use super::parameters::parameter;
use super::postgres::Connection;
use super::prepared::{Statements, Store, given_type};

/// The kind of target of a Describe that is a statement.
const STATEMENT: u8 = b'S';

/// One of some statements with the values of its parameters, and the forms of what it gives.
struct Request<'a> {
    statements: &'a Statements,
    index: usize,
    parameters: Vec<Value>,
    format: &'a Format,
}

/// Forgets at its end what statements did that were sent at once, unless they were committed: they failed, or were cancelled.
struct Undo<'a>(&'a Connection);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        self.0.session().roll_back_implicit();
    }
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

impl Connection {
    /// Runs one of the statements, or does what it says about the session.
    async fn answer<C>(&self, client: &mut C, asked: Request<'_>) -> PgWireResult<Response>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        let Request { statements, index, parameters, format } = asked;
        let command = sql::session_command(&statements.parsed, index).map_err(|error| error_of(&error))?;
        check_transaction(client, command.as_ref())?;
        let answer = match command {
            Some(command) => {
                let commanded = Commanded { command, parameters, format };
                self.command(&*client, store_of(client)?, commanded).await
            }
            None => {
                let context = self.context(client, parameters)?;
                let answer = self.run(statements, index, context.clone()).await;
                answer.and_then(|answer| self.response(answer, context, format))
            }
        };
        // A transaction that could not be committed is over.
        match (&answer, self.session().is_in_transaction(), client.transaction_status()) {
            (Ok(Response::TransactionStart(_)), ..) => client.set_transaction_status(TransactionStatus::Transaction),
            (_, false, _) => client.set_transaction_status(TransactionStatus::Idle),
            _ => {}
        }
        self.tell(client).await?;
        answer
    }

    /// Makes a statement part of those that were sent with it, which are done together or not at all. Rows that a client is yet to send are
    /// written on their own.
    async fn part<C>(
        &self,
        client: &C,
        parsed: &sql::Parsed,
        (index, is_one_of_several): (usize, bool),
    ) -> PgWireResult<()>
    where
        C: ClientInfo + Send + Sync,
    {
        if parsed.takes_rows(index) {
            return self.commit_implicit(client).await;
        }
        if is_one_of_several {
            let (share, bytes_max) = (self.share(), self.state.settings.body_bytes_max);
            self.session().begin_implicit(share, bytes_max);
        }
        Ok(())
    }

    /// Makes the writes of statements that were sent at once.
    async fn commit_implicit<C: ClientInfo + Send + Sync>(&self, client: &C) -> PgWireResult<()> {
        let is_implicit = self.session().is_implicit();
        if is_implicit { self.commit(client).await.map(drop) } else { Ok(()) }
    }

    /// The columns of what a client asks about: of a command, or of a statement.
    async fn described<C>(
        &self,
        client: &C,
        statements: &Statements,
        types: &[Option<Type>],
    ) -> PgWireResult<Vec<Column>>
    where
        C: ClientInfo + ClientPortalStore + Send + Sync,
        C::PortalStore: PortalStore,
    {
        match sql::session_command(&statements.parsed, 0).map_err(|error| error_of(&error))? {
            Some(command) => self.command_columns(client, store_of(client)?, &command).await,
            None => self.columns(client, statements, types).await,
        }
    }

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
        // Statements that no Sync followed were answered: what they wrote is not lost. After an error no query comes here before Sync.
        if matches!(client.state(), PgWireConnectionState::ReadyForQuery) {
            self.commit_implicit(client).await?;
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
        // A client that cancels statements leaves what they did.
        let _undo = Undo(self);
        let count = statements.parsed.statements.len();
        let mut responses = Vec::with_capacity(count);
        for index in 0..count {
            let format = &Format::UnifiedText;
            let asked = Request { statements: &statements, index, parameters: Vec::new(), format };
            let in_transaction = self.session().is_in_transaction();
            let answer = match self.part(client, &statements.parsed, (index, count > 1)).await {
                Ok(()) => self.answer(client, asked).await,
                Err(error) => Err(error),
            };
            match answer {
                Ok(response) => responses.push(response),
                // The statements before it say what they did, unless the transaction that they were part of is over.
                Err(error) if !responses.is_empty() && self.session().is_in_transaction() == in_transaction => {
                    responses.push(Response::Error(Box::new(error.into())));
                    return Ok(responses);
                }
                Err(error) => return Err(error),
            }
        }
        if let Err(error) = self.commit_implicit(client).await {
            responses.push(Response::Error(Box::new(error.into())));
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
                let types = self.parameter_types(client, &statements, given).await?;
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
        let columns = self.described(client, &target.statement, &target.parameter_types).await?;
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
        let columns = self.described(client, &target.statement.statement, &target.statement.parameter_types).await?;
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
        let parsed = &portal.statement.statement.parsed;
        // The only statement up to Sync is done at once.
        let is_one_of_several = self.session().is_implicit() || !self.is_last_before_sync();
        self.part(client, parsed, (0, is_one_of_several && parsed.can_be_undone(0))).await?;
        let mut parameters = Vec::with_capacity(portal.parameter_len());
        let zone = self.session().time_zone();
        for index in 0..portal.parameter_len() {
            parameters.push(parameter(portal, index, &zone)?);
        }
        let (statements, format) = (&portal.statement.statement, &portal.result_column_format);
        self.answer(client, Request { statements, index: 0, parameters, format }).await
    }

    /// Ends what was sent since the last Sync: it is written, or undone if a part of it failed.
    async fn on_sync<C>(&self, client: &mut C, _: SyncMessage) -> PgWireResult<()>
    where
        C: ClientInfo + ClientPortalStore + Sink<PgWireBackendMessage> + Unpin + Send + Sync,
        C::PortalStore: PortalStore<Statement = Statements>,
        C::Error: Debug,
        PgWireError: From<<C as Sink<PgWireBackendMessage>>::Error>,
    {
        if matches!(client.state(), PgWireConnectionState::AwaitingSync) {
            self.session().roll_back_implicit();
        } else if let Err(error) = self.commit_implicit(client).await {
            let error: ErrorInfo = error.into();
            client.feed(PgWireBackendMessage::ErrorResponse(error.into())).await?;
        }
        self.tell(client).await?;
        client.portal_store().rm_portal(DEFAULT_NAME);
        send_ready_for_query(client, client.transaction_status()).await
    }
}
