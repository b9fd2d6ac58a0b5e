//! Rows that clients send in batches, to be written into a table.

use std::panic::AssertUnwindSafe;

use arrow_array::RecordBatch;
use arrow_flight::FlightData;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::sql::CommandStatementIngest;
use arrow_flight::sql::server::PeekableFlightDataStream;
use arrow_flight::sql::{TableExistsOption, TableNotExistOption};
use futures_util::{FutureExt, Stream, TryStreamExt};
use query::Budget;
use sql::{Relation, SqlError};
use tonic::{Request, Status};

use super::{Call, Service, ended, refused};
use crate::sign_in::Caller;

/// What a sample of the budget stands for.
const SAMPLE_BYTES: usize = 16;

/// The record batches that a client sends.
pub(super) struct Batches(FlightRecordBatchStream);

impl Batches {
    /// Clients that have none send their command with no message of Arrow.
    pub(super) fn from_messages(messages: impl Stream<Item = Result<FlightData, Status>> + Send + 'static) -> Self {
        let messages = messages.try_filter(|data| std::future::ready(!data.data_header.is_empty()));
        Self(FlightRecordBatchStream::new_from_flight_data(messages.map_err(Into::into)))
    }

    /// The next one; after an error there is none.
    pub(super) async fn next(&mut self) -> Result<Option<RecordBatch>, Status> {
        // The reader's own checks are assertions in places: a message that is none must not end the connection, which has other calls.
        let next = AssertUnwindSafe(self.0.try_next()).catch_unwind().await;
        let next = next.map_err(|_| Status::invalid_argument("a batch is not what its header says"))?;
        next.map_err(Status::from)
    }
}

/// The rows of a batch. They are taken out of the budget before there is memory for them.
fn relation(batch: RecordBatch, budget: &Budget) -> Result<Relation, SqlError> {
    let (cells, texts_bytes) = sql::extent_of(&batch);
    budget.take(cells.saturating_add(texts_bytes / SAMPLE_BYTES))?;
    Relation::of_batches(&batch.schema(), [batch])
}

/// Whether rows may be written to a table that exists or does not; why not.
fn check(command: &CommandStatementIngest, exists: bool) -> Result<(), Status> {
    let options = command.table_definition_options.unwrap_or_default();
    let table = &command.table;
    if exists {
        match options.if_exists() {
            TableExistsOption::Fail => Err(Status::already_exists(format!("table \"{table}\" already exists"))),
            TableExistsOption::Replace => Err(Status::unimplemented(format!(
                "rows are added, not exchanged: DROP TABLE \"{table}\" before, or append"
            ))),
            TableExistsOption::Append | TableExistsOption::Unspecified => Ok(()),
        }
    } else if options.if_not_exist() == TableNotExistOption::Fail {
        Err(Status::not_found(format!("table \"{table}\" does not exist")))
    } else {
        Ok(())
    }
}

impl Service {
    /// Writes batches as they come, each for itself; how many rows. The column `time` (or `timestamp`) is their time; of a new table's
    /// columns the texts become tags, the others fields.
    pub(super) async fn ingest(
        &self,
        command: CommandStatementIngest,
        call: Call,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        if command.temporary || command.transaction_id.is_some() {
            return Err(Status::unimplemented("there are no temporary tables and no transactions"));
        }
        let database = match command.catalog.as_deref() {
            Some(catalog) => crate::sql::database_of(&self.state, catalog, "", &call.caller.scope)
                .map_err(|error| refused(&error))?,
            None => call.database.clone(),
        };
        check(&command, self.has_table(&database, &command.table, call.caller.clone()).await?)?;
        let mut batches = Batches::from_messages(request.into_inner());
        let mut written = 0;
        while let Some(batch) = batches.next().await? {
            let table = command.table.clone();
            let asker = (self.session(&database), call.caller.clone());
            let text = format!("INSERT INTO {table}: a batch of {} rows", batch.num_rows());
            let wrote = crate::sql::watch(&self.state, text, asker, move |state, session, budget| {
                let relation = relation(batch, budget)?;
                state.db.insert_rows(&table, relation, session, budget)
            });
            written += wrote.await.map_err(ended)?.map_err(|error| refused(&error))?.answer;
        }
        Ok(i64::try_from(written).unwrap_or(i64::MAX))
    }

    async fn has_table(&self, database: &str, table: &str, caller: Caller) -> Result<bool, Status> {
        let (session, table) = (self.session(database), table.to_owned());
        let text = format!("DESCRIBE {table}");
        let found = crate::sql::watch(&self.state, text, (session, caller), move |state, session, budget| {
            Ok(state.db.table_columns(&table, session, budget)?.is_some())
        });
        found.await.map_err(ended)?.map(|outcome| outcome.answer).map_err(|error| refused(&error))
    }
}
