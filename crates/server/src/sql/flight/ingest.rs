//! Rows that clients send in batches, to be written into a table.

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::sql::CommandStatementIngest;
use arrow_flight::sql::server::PeekableFlightDataStream;
use arrow_flight::sql::{TableExistsOption, TableNotExistOption};
use futures_util::TryStreamExt;
use sql::Relation;
use tonic::{Request, Status};

use super::{Caller, Service, ended, refused};

/// The record batches that a client sends. Clients that have none send their command with no message of Arrow.
pub(super) fn batches(request: Request<PeekableFlightDataStream>) -> FlightRecordBatchStream {
    let messages = request.into_inner().try_filter(|data| std::future::ready(!data.data_header.is_empty()));
    FlightRecordBatchStream::new_from_flight_data(messages.map_err(Into::into))
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
        caller: Caller,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        if command.temporary || command.transaction_id.is_some() {
            return Err(Status::unimplemented("there are no temporary tables and no transactions"));
        }
        let database = match command.catalog.as_deref() {
            Some(catalog) => crate::sql::database_of(&self.state, catalog, "").map_err(|error| refused(&error))?,
            None => caller.database,
        };
        check(&command, self.has_table(&database, &command.table).await?)?;
        let mut batches = batches(request);
        let mut written = 0;
        while let Some(batch) = batches.try_next().await.map_err(Status::from)? {
            let table = command.table.clone();
            let asker = (self.session(&database), caller.remote);
            let text = format!("INSERT INTO {table}: a batch of {} rows", batch.num_rows());
            let wrote = crate::sql::watch(&self.state, text, asker, move |state, session, budget| {
                let relation = Relation::of_batches(&batch.schema(), [batch])?;
                state.db.insert_rows(&table, relation, session, budget)
            });
            written += wrote.await.map_err(ended)?.map_err(|error| refused(&error))?;
        }
        Ok(i64::try_from(written).unwrap_or(i64::MAX))
    }

    async fn has_table(&self, database: &str, table: &str) -> Result<bool, Status> {
        let (session, table) = (self.session(database), table.to_owned());
        let text = format!("DESCRIBE {table}");
        let found = crate::sql::watch(&self.state, text, (session, None), move |state, session, budget| {
            Ok(state.db.table_columns(&table, session, budget)?.is_some())
        });
        found.await.map_err(ended)?.map_err(|error| refused(&error))
    }
}
