//! Postgres's protocol (version 3): simple and extended queries, cancelling, types as they are. No passwords: it listens on
//! loopback unless it is told otherwise.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use access::scope::Scope;
use async_trait::async_trait;
use bytes::{BufMut, BytesMut};
use futures_util::{Sink, SinkExt, stream};
use jiff::tz::TimeZone;
use pgwire::api::cancel::DefaultCancelHandler;
use pgwire::api::portal::{Format, Portal};
use pgwire::api::query::{ExtendedQueryHandler, SimpleQueryHandler};
use pgwire::api::results::{
    DescribePortalResponse, DescribeStatementResponse, FieldFormat, FieldInfo, QueryResponse, Response, Tag,
};
use pgwire::api::stmt::{QueryParser, StoredStatement};
use pgwire::api::store::PortalStore;
use pgwire::api::{ClientInfo, ClientPortalStore, ConnectionManager, METADATA_DATABASE, METADATA_USER, Type};
use pgwire::error::{ErrorInfo, PgWireError, PgWireResult};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::DataRow;
use sql::{Answer, ClientContext, Column, Manner, Parsed, Relation, SqlError, Value};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::Outcome;
use super::copy::Copying;
use super::parameters::{parameter, sample_of};
use crate::listen::accept::Serve;
use crate::sign_in::Caller;
use crate::state::State;

/// Microseconds from the Unix epoch to Postgres's, 2000-01-01.
pub(super) const EPOCH_US: i64 = 946_684_800_000_000;
pub(super) const US_PER_DAY: i64 = 86_400_000_000;

/// What a client is told that finds no place: an error message with its length, severity, code and text.
const FULL: &[u8] = b"E\0\0\0\x4aSFATAL\0C53300\0Mas many sessions are open as may be (connections_max)\0\0";

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
        let (state, manager) = (self.state.clone(), self.manager.clone());
        let settings = Mutex::new(Settings { time_zone: TimeZone::UTC });
        let connection =
            Connection { state, manager, remote, scope: OnceLock::new(), settings, copying: Mutex::new(None) };
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

/// What a session may set.
#[derive(Debug, Clone)]
struct Settings {
    time_zone: TimeZone,
}

/// A client's connection.
pub(super) struct Connection {
    pub(super) state: Arc<State>,
    pub(super) manager: Arc<ConnectionManager>,
    pub(super) remote: SocketAddr,
    /// Who it is, once it has signed in.
    scope: OnceLock<Arc<Scope>>,
    settings: Mutex<Settings>,
    /// Rows that are being sent to it.
    pub(super) copying: Mutex<Option<Copying>>,
}

impl Connection {
    /// The client has signed in.
    pub(super) fn set_scope(&self, scope: Arc<Scope>) {
        let _ = self.scope.set(scope);
    }

    /// The client; one that has not signed in may do nothing.
    pub(super) fn caller(&self) -> Caller {
        let scope = if self.state.sign_in.is_required { self.scope.get().cloned() } else { Some(Scope::open()) };
        Caller { scope: scope.unwrap_or_else(Scope::signed_out), remote: Some(self.remote) }
    }

    pub(super) fn canceller(&self) -> DefaultCancelHandler {
        DefaultCancelHandler::new(self.manager.clone())
    }
}

/// Statements as they were sent, read.
#[derive(Debug, Clone)]
pub(super) struct Statements {
    text: Arc<str>,
    parsed: Arc<Parsed>,
    /// `$1` to `$n`
    parameters: usize,
}

impl Statements {
    pub(super) fn read(text: &str) -> Result<Self, SqlError> {
        let parsed = Arc::new(sql::parse(text)?);
        Ok(Self { text: text.into(), parsed, parameters: placeholders(text) })
    }
}

/// The largest number behind a dollar sign outside of texts.
pub(super) fn placeholders(text: &str) -> usize {
    let (mut largest, mut quoted) = (0, false);
    for (place, character) in text.char_indices() {
        match character {
            '\'' => quoted = !quoted,
            '$' if !quoted => {
                let behind = text.get(place + 1..).unwrap_or_default();
                let digits = behind.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(behind.len());
                largest = largest.max(behind.get(..digits).and_then(|digits| digits.parse::<u16>().ok()).unwrap_or(0));
            }
            _ => {}
        }
    }
    // The protocol has no more parameters than this number can say.
    usize::from(largest)
}

impl Connection {
    fn session(&self, client: &impl ClientInfo, parameters: Vec<Value>) -> Result<ClientContext, SqlError> {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let said = |name| client.metadata().get(name).cloned().unwrap_or_default();
        let user = said(METADATA_USER);
        Ok(ClientContext {
            now_ns: self.state.db.now_ns(),
            time_zone: settings.time_zone,
            database: super::database_of(&self.state, &said(METADATA_DATABASE), &user, &self.caller().scope)?,
            user,
            parameters,
            manner: Manner::Postgres,
        })
    }

    /// Runs one of the statements when it is its turn; stops it when its client leaves or cancels. A notice warns of lost rows.
    async fn run<C>(
        &self,
        client: &mut C,
        (statements, place): (&Statements, usize),
        session: ClientContext,
    ) -> PgWireResult<Answer>
    where
        C: Sink<PgWireBackendMessage> + Unpin + Send,
        PgWireError: From<C::Error>,
    {
        let ran = super::run_one(
            &self.state,
            statements.text.to_string(),
            (statements.parsed.clone(), place),
            (session, self.caller()),
        );
        let answer = ran.await.map_err(|error| failed("57014", error.message))?;
        let Outcome { answer, warning } = answer.map_err(|error| error_of(&error))?;
        if let Some(warning) = warning {
            let notice = ErrorInfo::new("WARNING".to_owned(), "01000".to_owned(), warning);
            client.feed(PgWireBackendMessage::NoticeResponse(notice.into())).await?;
        }
        if let Answer::Set(name, value) = &answer
            && name == "timezone"
            && let Ok(zone) = TimeZone::get(value)
        {
            self.settings.lock().unwrap_or_else(PoisonError::into_inner).time_zone = zone;
        }
        Ok(answer)
    }

    /// What a client is told; rows that it is to send are waited for in its connection.
    fn response(&self, answer: Answer, session: ClientContext, format: &Format) -> PgWireResult<Response> {
        Ok(match answer {
            Answer::Rows(relation) => {
                let fields = Arc::new(fields(&relation.columns, format)?);
                let rows = encode(relation, &fields);
                Response::Query(QueryResponse::new(fields, stream::iter(rows.into_iter().map(Ok))))
            }
            Answer::Table(table) => return self.response(Answer::Rows(table.into_relation()), session, format),
            Answer::CopyOut(rows) => super::copy::response(rows),
            Answer::CopyIn(copy) => {
                let copying = Copying::new(copy, session, self.state.bodies.share());
                let response = copying.response();
                *self.copying.lock().unwrap_or_else(PoisonError::into_inner) = Some(copying);
                response
            }
            Answer::Set(..) => Response::Execution(Tag::new("SET")),
            Answer::Done(tag) => match tag.as_str() {
                "" => Response::EmptyQuery,
                "BEGIN" => Response::TransactionStart(Tag::new("BEGIN")),
                "COMMIT" | "ROLLBACK" => Response::TransactionEnd(Tag::new(&tag)),
                _ => Response::Execution(Tag::new(&tag)),
            },
        })
    }

    fn columns(
        &self,
        client: &impl ClientInfo,
        statements: &Statements,
        types: &[Option<Type>],
    ) -> PgWireResult<Vec<Column>> {
        let parameters = (0..statements.parameters).map(|place| sample_of(types.get(place).and_then(Option::as_ref)));
        let session = self.session(client, parameters.collect()).map_err(|error| error_of(&error))?;
        let budget = self.state.budget_of(&self.caller().scope);
        let described = self.state.db.describe_sql(&statements.parsed, 0, &session, &budget);
        described.map_err(|error| error_of(&error))
    }
}

pub(super) fn failed(code: &str, message: String) -> PgWireError {
    PgWireError::UserError(Box::new(ErrorInfo::new("ERROR".to_owned(), code.to_owned(), message)))
}

pub(super) fn error_of(error: &SqlError) -> PgWireError {
    failed(error.code(), error.to_string())
}

#[async_trait]
impl SimpleQueryHandler for Connection {
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
            let session = self.session(client, Vec::new()).map_err(|error| error_of(&error))?;
            let answer = self.run(client, (&statements, place), session.clone()).await?;
            responses.push(self.response(answer, session, &Format::UnifiedText)?);
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

    async fn do_describe_statement<C>(
        &self,
        client: &mut C,
        target: &StoredStatement<Statements>,
    ) -> PgWireResult<DescribeStatementResponse>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let columns = self.columns(client, &target.statement, &target.parameter_types)?;
        let kind = |place: usize| target.parameter_types.get(place).cloned().flatten().unwrap_or(Type::TEXT);
        let parameters = (0..target.statement.parameters.max(target.parameter_types.len())).map(kind).collect();
        Ok(DescribeStatementResponse::new(parameters, fields(&columns, &Format::UnifiedText)?))
    }

    async fn do_describe_portal<C>(
        &self,
        client: &mut C,
        target: &Portal<Statements>,
    ) -> PgWireResult<DescribePortalResponse>
    where
        C: ClientInfo + Unpin + Send + Sync,
    {
        let columns = self.columns(client, &target.statement.statement, &target.statement.parameter_types)?;
        Ok(DescribePortalResponse::new(fields(&columns, &target.result_column_format)?))
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
        let session = self.session(client, parameters).map_err(|error| error_of(&error))?;
        let answer = self.run(client, (&portal.statement.statement, 0), session.clone()).await?;
        self.response(answer, session, &portal.result_column_format)
    }
}

fn fields(columns: &[Column], format: &Format) -> PgWireResult<Vec<FieldInfo>> {
    if let Format::Individual(forms) = format
        && forms.len() != columns.len()
    {
        let (forms, columns) = (forms.len(), columns.len());
        return Err(failed("08P01", format!("{forms} forms were asked for, and there are {columns} columns")));
    }
    let field = |(place, column): (usize, &Column)| {
        let number = u32::try_from(sql::type_number(column.sql_type)).unwrap_or_default();
        let kind = Type::from_oid(number).unwrap_or(Type::TEXT);
        FieldInfo::new(column.name.clone(), None, None, kind, format.format_for(place))
    };
    Ok(columns.iter().enumerate().map(field).collect())
}

/// Rows as the protocol has them: each cell its length and its bytes, a null the length -1.
fn encode(relation: Relation, fields: &[FieldInfo]) -> Vec<DataRow> {
    let mut buffer = BytesMut::new();
    let row = |row: Vec<Value>| {
        for (value, field) in row.iter().zip(fields) {
            push_cell(&mut buffer, value, field);
        }
        DataRow::new(buffer.split(), fields.len() as i16)
    };
    relation.rows.into_iter().map(row).collect()
}

fn push_cell(out: &mut BytesMut, value: &Value, field: &FieldInfo) {
    if value.is_null() {
        return out.put_i32(-1);
    }
    if field.format() == FieldFormat::Text {
        let mut text = value.to_string();
        match (field.datatype(), value) {
            // Sessions are in UTC.
            (&Type::TIMESTAMPTZ, Value::Timestamp(_)) => text.push_str("+00"),
            (&Type::DATE, Value::Timestamp(_)) => text.truncate(text.find(' ').unwrap_or(text.len())),
            _ => {}
        }
        out.put_i32(text.len() as i32);
        return out.put_slice(text.as_bytes());
    }
    match (field.datatype(), value) {
        (&Type::BOOL, Value::Bool(value)) => {
            out.put_i32(1);
            out.put_u8(u8::from(*value));
        }
        (&Type::INT8, Value::Int(value)) => {
            out.put_i32(8);
            out.put_i64(*value);
        }
        (&Type::FLOAT8, Value::Int(value)) => {
            out.put_i32(8);
            out.put_f64(*value as f64);
        }
        (&Type::FLOAT8, Value::Float(value)) => {
            out.put_i32(8);
            out.put_f64(*value);
        }
        (&Type::DATE, Value::Timestamp(ns)) => {
            out.put_i32(4);
            out.put_i32((ns.div_euclid(1000) - EPOCH_US).div_euclid(US_PER_DAY) as i32);
        }
        (&(Type::TIMESTAMP | Type::TIMESTAMPTZ), Value::Timestamp(ns)) => {
            out.put_i32(8);
            out.put_i64(ns.div_euclid(1000) - EPOCH_US);
        }
        (&Type::INTERVAL, Value::Interval(interval)) => {
            let us = interval.ns / 1000;
            out.put_i32(16);
            out.put_i64(us % US_PER_DAY);
            out.put_i32((us / US_PER_DAY) as i32);
            out.put_i32(interval.months);
        }
        // Texts are the same in both forms; a value of another type than its column says is a null rather than nonsense.
        (&Type::TEXT, value) => {
            let text = value.to_string();
            out.put_i32(text.len() as i32);
            out.put_slice(text.as_bytes());
        }
        _ => out.put_i32(-1),
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
    fn placeholders_are_counted_outside_of_texts() {
        for (text, count) in
            [("SELECT 1", 0), ("SELECT $1, $3, '$9'", 3), ("$", 0), ("'it''s $4' || $2", 2), ("$99999999999", 0)]
        {
            assert_eq!(placeholders(text), count, "{text}");
        }
    }
}
