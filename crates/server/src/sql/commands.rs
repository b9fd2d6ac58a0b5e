//! Statements about the session that they come from.

use std::sync::Arc;

use futures_util::stream;
use jiff::tz::TimeZone;
use pgwire::api::ClientInfo;
use pgwire::api::portal::Format;
use pgwire::api::results::{QueryResponse, Response, Tag};
use pgwire::api::stmt::StoredStatement;
use pgwire::api::store::Entry;
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::response::TransactionStatus;
use sql::{Answer, Column, Declared, Fetch, Parsed, Prepared, Relation, SessionCommand, Value};

use super::encode::{encode, fields};
use super::errors::{error_of, failed};
use super::parameters::{argument, inferred};
use super::postgres::Connection;
use super::prepared::{Statements, Store};
use super::session::{Cursor, CursorKind};

fn done(tag: &str) -> Response {
    Response::Execution(Tag::new(tag))
}

/// Rows with the words by which Postgres says that they are all, but for their number.
pub(super) fn rows(relation: Relation, tag: &str, (format, zone): (&Format, &TimeZone)) -> PgWireResult<Response> {
    let fields = Arc::new(fields(&relation.columns, format)?);
    let rows = encode(relation, &fields, zone);
    let mut response = QueryResponse::new(fields, stream::iter(rows.into_iter().map(Ok)));
    response.set_command_tag(tag);
    Ok(Response::Query(response))
}

/// Returns whether a command is one that a failed transaction takes.
pub(super) fn ends_failure(command: Option<&SessionCommand>) -> bool {
    matches!(command, Some(SessionCommand::Commit(_) | SessionCommand::Rollback(_) | SessionCommand::RollbackTo(_)))
}

/// A command with the values of its parameters, and the forms of what it gives.
pub(super) struct Commanded<'a> {
    pub(super) command: SessionCommand,
    pub(super) parameters: Vec<Value>,
    pub(super) format: &'a Format,
}

/// `EXECUTE name (…)`
struct Execution<'a> {
    name: String,
    arguments: Option<Parsed>,
    format: &'a Format,
}

impl Connection {
    /// Does what a command says.
    pub(super) async fn command<C>(&self, client: &C, store: &Store, commanded: Commanded<'_>) -> PgWireResult<Response>
    where
        C: ClientInfo + Send + Sync,
    {
        let Commanded { command, parameters, format } = commanded;
        match command {
            SessionCommand::Begin => {
                let (share, bytes_max) = (self.share(), self.state.settings.body_bytes_max);
                if !self.session().begin(share, bytes_max) {
                    self.warn("25001", "there is already a transaction in progress");
                }
                Ok(Response::TransactionStart(Tag::new("BEGIN")))
            }
            SessionCommand::Commit(true) | SessionCommand::Rollback(true) => {
                Err(failed("0A000", "AND CHAIN is not supported: BEGIN the next transaction".to_owned()))
            }
            SessionCommand::Commit(false) if client.transaction_status() == TransactionStatus::Error => {
                self.session().roll_back();
                Ok(Response::TransactionEnd(Tag::new("ROLLBACK")))
            }
            SessionCommand::Commit(false) => {
                if !self.session().is_in_transaction() {
                    self.warn("25P01", "there is no transaction in progress");
                }
                self.commit(client).await
            }
            SessionCommand::Rollback(false) => {
                let is_in_transaction = self.session().is_in_transaction();
                self.session().roll_back();
                if !is_in_transaction {
                    self.warn("25P01", "there is no transaction in progress");
                }
                Ok(Response::TransactionEnd(Tag::new("ROLLBACK")))
            }
            SessionCommand::RollbackTo(name) => {
                self.session().roll_back_to(&name)?;
                Ok(done("ROLLBACK"))
            }
            SessionCommand::Savepoint(name) => {
                self.session().set_savepoint(name)?;
                Ok(done("SAVEPOINT"))
            }
            SessionCommand::Release(name) => {
                self.session().release(&name)?;
                Ok(done("RELEASE"))
            }
            SessionCommand::Declare(declared) => self.declare(client, declared, parameters).await,
            SessionCommand::Fetch(fetch) => self.fetch(fetch, format),
            SessionCommand::Close(Some(name)) => {
                self.session().cursor(&name)?;
                self.session().cursors.remove(&name);
                Ok(done("CLOSE CURSOR"))
            }
            SessionCommand::Close(None) => {
                self.session().cursors.clear();
                Ok(done("CLOSE CURSOR ALL"))
            }
            SessionCommand::Prepare(prepared) => self.prepare(client, store, prepared).await,
            SessionCommand::Execute(name, arguments) => {
                self.execute(client, store, Execution { name, arguments, format }).await
            }
            SessionCommand::Deallocate(name) => self.deallocate(store, name.as_deref()),
            SessionCommand::Reset(name) => {
                self.session().reset(name.as_deref());
                Ok(done("RESET"))
            }
            SessionCommand::DiscardAll => self.discard(store),
        }
    }

    fn discard(&self, store: &Store) -> PgWireResult<Response> {
        if self.session().is_in_transaction() {
            return Err(failed("25001", "DISCARD ALL cannot run inside a transaction block".to_owned()));
        }
        self.session().reset(None);
        self.session().cursors.clear();
        self.deallocate(store, None)?;
        Ok(done("DISCARD ALL"))
    }

    /// The rows to which a cursor moves; none for MOVE.
    fn fetch(&self, fetch: Fetch, format: &Format) -> PgWireResult<Response> {
        let Fetch { name, step, is_move } = fetch;
        let mut session = self.session();
        let zone = session.time_zone();
        let relation = session.cursor(&name)?.fetch(step)?;
        if is_move {
            return Ok(Response::Execution(Tag::new("MOVE").with_rows(relation.rows.len())));
        }
        rows(relation, "FETCH", (format, &zone))
    }

    /// Makes the writes of the transaction.
    pub(super) async fn commit<C: ClientInfo + Send + Sync>(&self, client: &C) -> PgWireResult<Response> {
        let writes = self.session().commit().unwrap_or_default();
        if !writes.is_empty() {
            let context = self.context(client, Vec::new())?;
            let written =
                super::watch(&self.state, "COMMIT".to_owned(), (context, self.caller()), move |state, _, budget| {
                    state.db.commit_sql(writes, budget)
                });
            let written = written.await.map_err(|error| failed("57014", error.message))?;
            written.map_err(|error| error_of(&error))?;
        }
        Ok(Response::TransactionEnd(Tag::new("COMMIT")))
    }

    async fn declare<C>(&self, client: &C, declared: Declared, parameters: Vec<Value>) -> PgWireResult<Response>
    where
        C: ClientInfo + Send + Sync,
    {
        let Declared { name, is_held, is_forward_only, query } = declared;
        let context = self.context(client, parameters)?;
        let statements = Statements::new("DECLARE CURSOR", query);
        let relation = self.run(&statements, 0, context).await?.relation().unwrap_or_default();
        let kind = CursorKind { is_held, is_forward_only };
        let cursor = Cursor::new(relation, kind, self.share())?;
        self.session().declare(name, cursor)?;
        Ok(done("DECLARE CURSOR"))
    }

    async fn prepare<C>(&self, client: &C, store: &Store, prepared: Prepared) -> PgWireResult<Response>
    where
        C: ClientInfo + Send + Sync,
    {
        let Prepared { name, types, statement } = prepared;
        if store.get_statement(&name).is_some() {
            return Err(failed("42P05", format!("prepared statement \"{name}\" already exists")));
        }
        let text: Vec<String> = statement.statements.iter().map(ToString::to_string).collect();
        let text = text.join("; ");
        if !self.sizes().prepare(&name, &text, self.state.settings.postgres_message_bytes_max) {
            return Err(self.too_many_statements());
        }
        let statements = Statements::new(&text, statement);
        let given = types.into_iter().map(|kind| Some(inferred(kind))).collect();
        let types = self.parameter_types(client, &statements, given).await?;
        store.put_statement(Arc::new(StoredStatement::new(name, statements, types)));
        Ok(done("PREPARE"))
    }

    async fn execute<C>(&self, client: &C, store: &Store, execution: Execution<'_>) -> PgWireResult<Response>
    where
        C: ClientInfo + Send + Sync,
    {
        let Execution { name, arguments, format } = execution;
        let Some(Entry::Value(prepared)) = store.get_statement(&name) else {
            return Err(PgWireError::StatementNotFound(name));
        };
        let mut values = Vec::new();
        if let Some(arguments) = arguments {
            let context = self.context(client, Vec::new())?;
            let row = self.run(&Statements::new("EXECUTE", arguments), 0, context).await?.relation();
            values = row.and_then(|relation| relation.rows.into_iter().next()).unwrap_or_default();
        }
        let (found, wanted) = (values.len(), prepared.statement.parameters);
        if found != wanted {
            let message = format!("prepared statement \"{name}\" takes {wanted} parameters, not {found}");
            return Err(failed("42601", message));
        }
        let zone = self.session().time_zone();
        let kinds = prepared.parameter_types.iter().map(Option::as_ref).chain(std::iter::repeat(None));
        let values: PgWireResult<Vec<Value>> =
            values.into_iter().zip(kinds).map(|(value, kind)| argument(value, kind, &zone)).collect();
        let context = self.context(client, values?)?;
        let answer = self.run(&prepared.statement, 0, context.clone()).await?;
        self.response(answer, context, format)
    }

    fn deallocate(&self, store: &Store, name: Option<&str>) -> PgWireResult<Response> {
        let Some(name) = name else {
            // Not within the loop, which would hold what it locks.
            let names = self.sizes().prepared();
            for name in names {
                store.rm_statement(&name);
                self.sizes().deallocate(&name);
            }
            return Ok(done("DEALLOCATE ALL"));
        };
        if store.get_statement(name).is_none() {
            return Err(PgWireError::StatementNotFound(name.to_owned()));
        }
        store.rm_statement(name);
        self.sizes().deallocate(name);
        Ok(done("DEALLOCATE"))
    }

    /// The columns that a command will give.
    pub(super) async fn command_columns<C>(
        &self,
        client: &C,
        store: &Store,
        command: &SessionCommand,
    ) -> PgWireResult<Vec<Column>>
    where
        C: ClientInfo + Send + Sync,
    {
        match command {
            SessionCommand::Fetch(Fetch { is_move: true, .. }) => Ok(Vec::new()),
            SessionCommand::Fetch(fetch) => Ok(self.session().cursor(&fetch.name)?.columns.clone()),
            SessionCommand::Execute(name, _) => match store.get_statement(name) {
                Some(Entry::Value(prepared)) => {
                    self.columns(client, &prepared.statement, &prepared.parameter_types).await
                }
                _ => Err(PgWireError::StatementNotFound(name.clone())),
            },
            _ => Ok(Vec::new()),
        }
    }

    /// The response to an answer; rows that the client is to send are waited for in its connection.
    pub(super) fn response(
        &self,
        answer: Answer,
        context: sql::ClientContext,
        format: &Format,
    ) -> PgWireResult<Response> {
        match answer {
            Answer::Rows(relation) => rows(relation, "SELECT", (format, &context.time_zone)),
            Answer::Table(table) => rows(table.into_relation(), "SELECT", (format, &context.time_zone)),
            Answer::Returned(relation, tag) => rows(relation, tag, (format, &context.time_zone)),
            Answer::CopyOut(copied) => Ok(super::copy::response(copied)),
            Answer::CopyIn(copy) => {
                let copying = super::copy::Copying::new(copy, context, self.share());
                let response = copying.response();
                self.session().copying = Some(copying);
                Ok(response)
            }
            Answer::Set(setting) => {
                self.session().set(setting)?;
                Ok(done("SET"))
            }
            Answer::Done(tag) if tag.is_empty() => Ok(Response::EmptyQuery),
            Answer::Done(tag) => Ok(done(&tag)),
        }
    }
}
