//! Asking and writing by SQL.

use std::sync::Arc;

use query::{Budget, Session, TableSchema, Value};
use sql::{
    Answer, ClientContext, Column, CopyIn, OutputColumn, ParameterType, Parsed, PendingWrite, Relation, SqlError,
};

use crate::Db;

impl Db {
    /// Runs one of the statements of a text ([`sql::parse`]) on the client's database.
    pub fn sql(
        &self,
        parsed: &Parsed,
        place: usize,
        client: &ClientContext,
        budget: &Arc<Budget>,
    ) -> Result<Answer, SqlError> {
        let held = budget.samples();
        match sql::run(parsed, place, &self.session(budget), client) {
            Err(SqlError::Unsupported(_) | SqlError::UnknownFunction(_)) if is_for_datafusion(parsed, place) => {
                budget.give_back(budget.samples().saturating_sub(held) as usize);
                self.sql_beyond(parsed, place, client, budget).map(Answer::Rows)
            }
            answer => answer,
        }
    }

    /// Writes the rows that a client sent for a COPY, as they were sent; how many.
    pub fn copy_in(
        &self,
        copy: &CopyIn,
        sent: Vec<u8>,
        client: &ClientContext,
        budget: &Budget,
    ) -> Result<usize, SqlError> {
        sql::copy_in(copy, sent, &self.session(budget), client)
    }

    /// Makes the writes of a transaction at its end.
    pub fn commit_sql(&self, writes: Vec<PendingWrite>, budget: &Budget) -> Result<(), SqlError> {
        sql::commit(writes, &self.session(budget))
    }

    /// The types of a statement's parameters, by their use; `None` where that says nothing.
    pub fn sql_parameter_types(
        &self,
        parsed: &Parsed,
        place: usize,
        client: &ClientContext,
        budget: &Budget,
    ) -> Vec<Option<ParameterType>> {
        sql::parameter_types(parsed, place, &self.session(budget), client)
    }

    /// Writes rows of a table that came without a statement; how many.
    pub fn insert_rows(
        &self,
        table: &str,
        relation: Relation,
        client: &ClientContext,
        budget: &Budget,
    ) -> Result<usize, SqlError> {
        sql::insert_rows(table, relation, &self.session(budget), client)
    }

    /// Writes rows that a [`sql::RowProgram`] made to a table; returns how many.
    pub fn insert_outputs(
        &self,
        table: &str,
        columns: &[OutputColumn],
        rows: Vec<Vec<Value>>,
        client: &ClientContext,
        budget: &Budget,
    ) -> Result<usize, SqlError> {
        sql::insert_outputs(table, columns, rows, &self.session(budget), client)
    }

    /// A table's tags and fields; `None` if there is none of the name.
    pub fn table_schema(
        &self,
        table: &str,
        client: &ClientContext,
        budget: &Budget,
    ) -> Result<Option<TableSchema>, SqlError> {
        Ok(self.session(budget).table(&client.database, table)?)
    }

    /// The names of the client's tables.
    pub fn tables(&self, client: &ClientContext, budget: &Budget) -> Result<Vec<String>, SqlError> {
        Ok(self.session(budget).tables(&client.database)?)
    }

    /// The columns of a table; `None` if there is none of the name.
    pub fn table_columns(
        &self,
        table: &str,
        client: &ClientContext,
        budget: &Budget,
    ) -> Result<Option<Vec<Column>>, SqlError> {
        let schema = self.session(budget).table(&client.database, table)?;
        Ok(schema.as_ref().map(sql::table_columns))
    }

    /// The columns that a statement will give, without running it.
    pub fn describe_sql(
        &self,
        parsed: &Parsed,
        place: usize,
        client: &ClientContext,
        budget: &Arc<Budget>,
    ) -> Result<Vec<Column>, SqlError> {
        match sql::describe(parsed, place, &self.session(budget), client) {
            Err(SqlError::Unsupported(_) | SqlError::UnknownFunction(_)) if is_for_datafusion(parsed, place) => {
                self.describe_beyond(parsed, place, client, budget)
            }
            columns => columns,
        }
    }
}

/// Returns whether a statement that the built-in layer does not have may be run by DataFusion.
fn is_for_datafusion(parsed: &Parsed, place: usize) -> bool {
    cfg!(feature = "sql-datafusion") && parsed.query_text(place).is_some()
}

/// Without the feature nothing is for DataFusion.
#[cfg(not(feature = "sql-datafusion"))]
impl Db {
    #[allow(clippy::unused_self, reason = "it stands for the method of the feature")]
    fn sql_beyond(&self, _: &Parsed, _: usize, _: &ClientContext, _: &Arc<Budget>) -> Result<Relation, SqlError> {
        Err(SqlError::Unsupported("the statement".to_owned()))
    }

    #[allow(clippy::unused_self, reason = "it stands for the method of the feature")]
    fn describe_beyond(
        &self,
        _: &Parsed,
        _: usize,
        _: &ClientContext,
        _: &Arc<Budget>,
    ) -> Result<Vec<Column>, SqlError> {
        Err(SqlError::Unsupported("the statement".to_owned()))
    }
}
