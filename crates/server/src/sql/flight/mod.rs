//! Arrow Flight SQL: statements there, record batches back, as the drivers of ADBC and JDBC speak it
//! (<https://arrow.apache.org/docs/format/FlightSql.html>). Clients sign in by the metadata of each call, or by a handshake that names them.
//!
//! The database is what the header `database` of a call names. Nothing is kept between calls: tickets and handles hold the statement
//! ([`handle`]). What drivers ask about tables is in [`metadata`], rows that they send in [`ingest`].

#![allow(clippy::result_large_err, reason = "a status of gRPC is what its calls give")]

pub(crate) mod fuzz;
mod handle;
mod ingest;
mod metadata;

use std::pin::Pin;
use std::sync::Arc;

use access::secret::is_token;
use arrow_array::RecordBatch;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
    CommandGetCatalogs, CommandGetCrossReference, CommandGetDbSchemas, CommandGetExportedKeys, CommandGetImportedKeys,
    CommandGetPrimaryKeys, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables, CommandPreparedStatementQuery,
    CommandPreparedStatementUpdate, CommandStatementIngest, CommandStatementQuery, CommandStatementUpdate,
    DoPutPreparedStatementResult, ProstMessageExt, SqlInfo, TicketStatementQuery,
};
use arrow_flight::{Action, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest, HandshakeResponse, Ticket};
use arrow_schema::{Schema, SchemaRef};
use axum::Router;
use axum::body::Bytes;
use futures_util::{Stream, TryStreamExt, stream};
use prost::Message;
use sql::{Answer, ClientContext, Relation, SqlError, Value};
use tonic::metadata::{AsciiMetadataValue, MetadataMap};
use tonic::{Code, Extensions, Request, Response, Status, Streaming};

use self::handle::{Handle, Row};
use super::Outcome;
use crate::error::ApiError;
use crate::http::admin::printable;
use crate::sign_in::{Caller, OwnedCredentials, credentials};
use crate::state::State;

/// The header of a call that names the database.
const DATABASE_HEADER: &str = "database";
/// The token for clients that ask for one: all are let in.
const TOKEN: &str = "Bearer anybody";

type FlightResult<T> = Result<Response<T>, Status>;
type Batches = <Service as FlightService>::DoGetStream;
type Handshakes = Pin<Box<dyn Stream<Item = Result<HandshakeResponse, Status>> + Send>>;

/// What a client is to send from now on: a token in the place of a password by itself, since some clients take nothing but `Bearer`.
fn as_bearer(sent: AsciiMetadataValue) -> AsciiMetadataValue {
    let credentials = sent.to_str().ok().and_then(|text| credentials::authorization(text).ok());
    let token = match &credentials {
        Some(OwnedCredentials::Password { password, .. }) if is_token(password) => Some(password.as_str()),
        _ => None,
    };
    let bearer = token.and_then(|token| format!("Bearer {token}").parse().ok());
    bearer.unwrap_or(sent)
}

/// The calls of Flight on a port.
pub(crate) fn router(state: Arc<State>) -> Router {
    let message_bytes_max = state.settings.body_bytes_max;
    // What is sent needs no bound of its own: the encoder cuts batches into messages.
    let service = FlightServiceServer::new(Service { state }).max_decoding_message_size(message_bytes_max);
    Router::new().route_service("/arrow.flight.protocol.FlightService/{call}", service)
}

struct Service {
    state: Arc<State>,
}

/// Who calls, and which database.
#[derive(Debug, Clone)]
struct Call {
    database: String,
    caller: Caller,
}

impl Service {
    fn call(&self, headers: &MetadataMap, extensions: &Extensions) -> Result<Call, Status> {
        let caller = extensions.get::<Caller>().cloned().ok_or_else(|| Status::unauthenticated("sign in first"))?;
        let named = headers.get(DATABASE_HEADER).map_or(Ok(""), |name| name.to_str());
        let named = named.map_err(|_| Status::invalid_argument("the header database is no text"))?;
        let database = super::database_of(&self.state, named, "", &caller.scope).map_err(|error| refused(&error))?;
        Ok(Call { database, caller })
    }

    fn call_of<T>(&self, request: &Request<T>) -> Result<Call, Status> {
        self.call(request.metadata(), request.extensions())
    }

    fn session(&self, database: &str) -> ClientContext {
        ClientContext::new(database, self.state.db.now_ns())
    }

    /// The columns that a statement will give, without running it; none if it gives no table.
    async fn described(&self, handle: &Handle, caller: Caller) -> Result<SchemaRef, Status> {
        let parsed = one(&handle.text)?;
        let parameters = handle.rows.first().map(Row::values).unwrap_or_default();
        let session = ClientContext { parameters, ..self.session(&handle.database) };
        let described =
            super::watch(&self.state, handle.text.clone(), (session, caller), move |state, session, budget| {
                state.db.describe_sql(&parsed, 0, session, budget)
            });
        let described = described.await.map_err(ended)?.map_err(|error| refused(&error))?;
        Ok(sql::arrow_schema(&described.answer))
    }

    async fn run(&self, handle: &Handle, parameters: Vec<Value>, caller: Caller) -> Result<Outcome<Answer>, Status> {
        let parsed = one(&handle.text)?;
        let session = ClientContext { parameters, ..self.session(&handle.database) };
        let ran = super::run_one(&self.state, handle.text.clone(), (parsed, 0), (session, caller));
        ran.await.map_err(ended)?.map_err(|error| refused(&error))
    }

    /// Runs a statement and sends its table; an empty one if it gives none. A warning of lost rows comes as metadata.
    async fn rows(&self, handle: &Handle, caller: Caller) -> FlightResult<Batches> {
        let Outcome { answer, warning } = self.run(handle, handle.only_row()?, caller).await?;
        let relation = match answer {
            Answer::Rows(relation) | Answer::Returned(relation, _) => relation,
            Answer::Table(table) => table.into_relation(),
            Answer::Set(..) | Answer::Done(_) => Relation::default(),
            Answer::CopyOut(_) | Answer::CopyIn(_) => {
                return Err(Status::invalid_argument("COPY is of Postgres's protocol: a query gives rows here"));
            }
        };
        let encoded = self.state.work_unbounded(move |_| -> Result<_, SqlError> {
            let batches = relation.batches_as_described()?;
            Ok((batches.schema(), batches.collect::<Result<Vec<RecordBatch>, _>>()?))
        });
        let (schema, batches) = encoded.await.map_err(ended)?.map_err(|error| refused(&error))?;
        let mut response = sent(schema, batches);
        if let Some(warning) = warning.and_then(|text| AsciiMetadataValue::try_from(printable(&text)).ok()) {
            response.metadata_mut().insert("x-thalweg-warning", warning);
        }
        Ok(response)
    }

    /// Runs a statement for what it does, once for each row of parameters; how many rows it wrote, -1 if it does not say.
    async fn update(&self, handle: &Handle, caller: Caller) -> Result<i64, Status> {
        let none = [Row::default()];
        let mut written = None;
        for row in if handle.rows.is_empty() { none.as_slice() } else { &handle.rows } {
            let count = match self.run(handle, row.values(), caller.clone()).await?.answer {
                Answer::Done(tag) => tag.rsplit(' ').next().and_then(|count| count.parse::<i64>().ok()),
                Answer::Rows(relation) | Answer::Returned(relation, _) => i64::try_from(relation.rows.len()).ok(),
                Answer::Table(table) => i64::try_from(table.rows.order().len()).ok(),
                Answer::Set(..) | Answer::CopyOut(_) | Answer::CopyIn(_) => None,
            };
            written = count.map(|count| count + written.unwrap_or(0)).or(written);
        }
        Ok(written.unwrap_or(-1))
    }

    /// The parameters that a client binds: each row for a run of the statement. All together may be as large as a body.
    async fn bound(&self, request: Request<PeekableFlightDataStream>) -> Result<Vec<Row>, Status> {
        bound(ingest::Batches::from_messages(request.into_inner()), self.state.settings.body_bytes_max).await
    }
}

async fn bound(mut batches: ingest::Batches, bytes_max: usize) -> Result<Vec<Row>, Status> {
    let (mut rows, mut taken_bytes) = (Vec::new(), 0usize);
    while let Some(batch) = batches.next().await? {
        let (cells, texts_bytes) = sql::extent_of(&batch);
        taken_bytes = taken_bytes.saturating_add(cells.saturating_mul(size_of::<Value>())).saturating_add(texts_bytes);
        if taken_bytes > bytes_max {
            return Err(Status::resource_exhausted(format!(
                "a call binds at most {bytes_max} bytes of parameters (body_bytes_max): bind them in parts, or ingest them"
            )));
        }
        let relation = Relation::of_batches(&batch.schema(), [batch]).map_err(|error| refused(&error))?;
        rows.extend(relation.rows.iter().map(|row| Row::from_values(row)));
    }
    Ok(rows)
}

/// The one statement of a text.
fn one(text: &str) -> Result<Arc<sql::Parsed>, Status> {
    let parsed = sql::parse(text).map_err(|error| refused(&error))?;
    match parsed.statements.len() {
        1 => Ok(Arc::new(parsed)),
        count => Err(Status::invalid_argument(format!("a call has one statement, not {count}"))),
    }
}

/// Where and by which ticket the answer to a command is had.
fn info(schema: &Schema, command: &impl ProstMessageExt, descriptor: FlightDescriptor) -> FlightResult<FlightInfo> {
    let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(command.as_any().encode_to_vec()));
    let info = FlightInfo::new().with_descriptor(descriptor).with_endpoint(endpoint);
    info.try_with_schema(schema).map(Response::new).map_err(|error| Status::internal(error.to_string()))
}

fn sent(schema: SchemaRef, batches: Vec<RecordBatch>) -> Response<Batches> {
    let batches = stream::iter(batches.into_iter().map(Ok::<_, FlightError>));
    let encoded = FlightDataEncoderBuilder::new().with_schema(schema).build(batches);
    Response::new(Box::pin(encoded.map_err(Status::from)))
}

/// A statement's error, with Postgres's code for it.
fn refused(error: &SqlError) -> Status {
    let code = match error.code() {
        "42P01" => Code::NotFound,
        "0A000" => Code::Unimplemented,
        "57014" => Code::Cancelled,
        "42501" => Code::PermissionDenied,
        "53200" => Code::ResourceExhausted,
        "58030" => Code::Internal,
        _ => Code::InvalidArgument,
    };
    Status::new(code, format!("{error} (SQLSTATE {})", error.code()))
}

/// Why a statement was not run to its end.
fn ended(error: ApiError) -> Status {
    let code = match error.kind {
        "timeout" => Code::DeadlineExceeded,
        "canceled" => Code::Cancelled,
        "execution" => Code::ResourceExhausted,
        "internal" => Code::Internal,
        _ => Code::Unavailable,
    };
    Status::new(code, error.message)
}

#[tonic::async_trait]
impl FlightSqlService for Service {
    type FlightService = Self;

    async fn do_handshake(&self, request: Request<Streaming<HandshakeRequest>>) -> FlightResult<Handshakes> {
        // What the client has signed in with is what it sends from now on; where none has to, any word will do.
        let sent = request.metadata().get("authorization").cloned().map(as_bearer);
        let welcome = HandshakeResponse { protocol_version: 0, payload: TOKEN.into() };
        let answers: Handshakes = Box::pin(stream::iter([Ok(welcome)]));
        let mut response = Response::new(answers);
        let token = sent.unwrap_or_else(|| AsciiMetadataValue::from_static(TOKEN));
        response.metadata_mut().insert("authorization", token);
        Ok(response)
    }

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> FlightResult<FlightInfo> {
        let Call { database, caller } = self.call_of(&request)?;
        let handle = Handle { database, text: query.query, rows: Vec::new() };
        let schema = self.described(&handle, caller).await?;
        let ticket = TicketStatementQuery { statement_handle: handle.encode_to_vec().into() };
        info(&schema, &ticket, request.into_inner())
    }

    async fn do_get_statement(&self, ticket: TicketStatementQuery, request: Request<Ticket>) -> FlightResult<Batches> {
        let Call { caller, .. } = self.call_of(&request)?;
        self.rows(&Handle::read(&ticket.statement_handle)?, caller).await
    }

    async fn do_put_statement_update(
        &self,
        update: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let Call { database, caller } = self.call_of(&request)?;
        self.update(&Handle { database, text: update.query, rows: Vec::new() }, caller).await
    }

    async fn do_action_create_prepared_statement(
        &self,
        create: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let Call { database, caller } = self.call_of(&request)?;
        let placeholders = super::prepared::placeholders(&create.query);
        let unknown = Row::from_values(&vec![Value::Null; placeholders]);
        let sample = Handle { database, text: create.query, rows: vec![unknown] };
        let schema = self.described(&sample, caller).await?;
        let handle = Handle { rows: Vec::new(), ..sample };
        let described = FlightInfo::new().try_with_schema(&schema);
        let described = described.map_err(|error| Status::internal(error.to_string()))?;
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: handle.encode_to_vec().into(),
            dataset_schema: if schema.fields().is_empty() { Bytes::new() } else { described.schema },
            parameter_schema: Bytes::new(),
        })
    }

    async fn do_action_close_prepared_statement(
        &self,
        _: ActionClosePreparedStatementRequest,
        _: Request<Action>,
    ) -> Result<(), Status> {
        Ok(())
    }

    async fn do_put_prepared_statement_query(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        let handle = Handle::read(&query.prepared_statement_handle)?;
        let handle = Handle { rows: self.bound(request).await?, ..handle };
        Ok(DoPutPreparedStatementResult { prepared_statement_handle: Some(handle.encode_to_vec().into()) })
    }

    async fn do_put_prepared_statement_update(
        &self,
        update: CommandPreparedStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let Call { caller, .. } = self.call_of(&request)?;
        let handle = Handle::read(&update.prepared_statement_handle)?;
        // Bound by this call or by one before.
        let bound = self.bound(request).await?;
        let rows = if bound.is_empty() { handle.rows } else { bound };
        self.update(&Handle { rows, ..handle }, caller).await
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> FlightResult<FlightInfo> {
        let Call { caller, .. } = self.call_of(&request)?;
        let handle = Handle::read(&query.prepared_statement_handle)?;
        let schema = self.described(&handle, caller).await?;
        info(&schema, &query, request.into_inner())
    }

    async fn do_get_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<Ticket>,
    ) -> FlightResult<Batches> {
        let Call { caller, .. } = self.call_of(&request)?;
        self.rows(&Handle::read(&query.prepared_statement_handle)?, caller).await
    }

    async fn do_put_statement_ingest(
        &self,
        command: CommandStatementIngest,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let call = self.call_of(&request)?;
        self.ingest(command, call, request).await
    }

    async fn get_flight_info_catalogs(
        &self,
        command: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> FlightResult<FlightInfo> {
        info(&command.into_builder().schema(), &command, request.into_inner())
    }

    async fn do_get_catalogs(&self, command: CommandGetCatalogs, request: Request<Ticket>) -> FlightResult<Batches> {
        let Call { caller, .. } = self.call_of(&request)?;
        self.catalogs(command, &caller)
    }

    async fn get_flight_info_schemas(
        &self,
        command: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> FlightResult<FlightInfo> {
        info(&command.clone().into_builder().schema(), &command, request.into_inner())
    }

    async fn do_get_schemas(&self, command: CommandGetDbSchemas, request: Request<Ticket>) -> FlightResult<Batches> {
        let Call { caller, .. } = self.call_of(&request)?;
        self.schemas(command, &caller)
    }

    async fn get_flight_info_tables(
        &self,
        command: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> FlightResult<FlightInfo> {
        info(&command.clone().into_builder().schema(), &command, request.into_inner())
    }

    async fn do_get_tables(&self, command: CommandGetTables, request: Request<Ticket>) -> FlightResult<Batches> {
        let Call { caller, .. } = self.call_of(&request)?;
        self.tables(command, caller).await
    }

    async fn get_flight_info_table_types(
        &self,
        command: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> FlightResult<FlightInfo> {
        info(&command.into_builder().schema(), &command, request.into_inner())
    }

    async fn do_get_table_types(&self, command: CommandGetTableTypes, _: Request<Ticket>) -> FlightResult<Batches> {
        metadata::table_types(command)
    }

    async fn get_flight_info_sql_info(
        &self,
        command: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> FlightResult<FlightInfo> {
        let infos = metadata::infos()?;
        info(&infos.schema(), &command, request.into_inner())
    }

    async fn do_get_sql_info(&self, command: CommandGetSqlInfo, _: Request<Ticket>) -> FlightResult<Batches> {
        metadata::sql_info(command)
    }

    async fn get_flight_info_primary_keys(
        &self,
        command: CommandGetPrimaryKeys,
        request: Request<FlightDescriptor>,
    ) -> FlightResult<FlightInfo> {
        info(&metadata::primary_keys(), &command, request.into_inner())
    }

    async fn do_get_primary_keys(&self, _: CommandGetPrimaryKeys, _: Request<Ticket>) -> FlightResult<Batches> {
        Ok(sent(metadata::primary_keys(), Vec::new()))
    }

    async fn get_flight_info_exported_keys(
        &self,
        command: CommandGetExportedKeys,
        request: Request<FlightDescriptor>,
    ) -> FlightResult<FlightInfo> {
        info(&metadata::foreign_keys(), &command, request.into_inner())
    }

    async fn do_get_exported_keys(&self, _: CommandGetExportedKeys, _: Request<Ticket>) -> FlightResult<Batches> {
        Ok(sent(metadata::foreign_keys(), Vec::new()))
    }

    async fn get_flight_info_imported_keys(
        &self,
        command: CommandGetImportedKeys,
        request: Request<FlightDescriptor>,
    ) -> FlightResult<FlightInfo> {
        info(&metadata::foreign_keys(), &command, request.into_inner())
    }

    async fn do_get_imported_keys(&self, _: CommandGetImportedKeys, _: Request<Ticket>) -> FlightResult<Batches> {
        Ok(sent(metadata::foreign_keys(), Vec::new()))
    }

    async fn get_flight_info_cross_reference(
        &self,
        command: CommandGetCrossReference,
        request: Request<FlightDescriptor>,
    ) -> FlightResult<FlightInfo> {
        info(&metadata::foreign_keys(), &command, request.into_inner())
    }

    async fn do_get_cross_reference(&self, _: CommandGetCrossReference, _: Request<Ticket>) -> FlightResult<Batches> {
        Ok(sent(metadata::foreign_keys(), Vec::new()))
    }

    async fn register_sql_info(&self, _: i32, _: &SqlInfo) {}
}
