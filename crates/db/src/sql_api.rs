//! Asking and writing by SQL.

use model::Matcher;
use query::plan::Selector;
use query::{Budget, Context, QueryError};
use sql::{Answer, Change, Column, CopyIn, CopyOut, Insert, Parsed, Relation, Session, SqlError};
use store::StoreError;

use crate::Db;

/// What a statement of SQL gave.
#[derive(Debug, Clone, PartialEq)]
pub enum SqlAnswer {
    /// A table.
    Rows(Relation),
    /// Rows to be sent.
    CopyOut(CopyOut),
    /// Rows to be waited for: [`Db::copy_in`] takes them.
    CopyIn(CopyIn),
    /// A setting of the session, and its new value.
    Set(String, String),
    /// It is done; the words by which Postgres says so.
    Done(String),
}

impl Db {
    /// Runs one of the statements of a text ([`sql::parse`]) on the session's database.
    pub fn sql(
        &self,
        parsed: &Parsed,
        place: usize,
        session: &Session,
        budget: &Budget,
    ) -> Result<SqlAnswer, SqlError> {
        let clock_ns = || self.now_ns();
        let context = Context {
            store: &self.store,
            database: &session.database,
            budget,
            clock_ns: &clock_ns,
            helpers: &self.helpers,
            kept_bins: self.kept_bins(budget),
        };
        match sql::run(parsed, place, &context, session)? {
            Answer::Rows(relation) => Ok(SqlAnswer::Rows(relation)),
            Answer::Set(name, value) => Ok(SqlAnswer::Set(name, value)),
            Answer::Done(tag) => Ok(SqlAnswer::Done(tag)),
            Answer::Change(change) => self.change(&session.database, change).map(|tag| SqlAnswer::Done(tag.to_owned())),
            Answer::CopyOut(rows) => Ok(SqlAnswer::CopyOut(rows)),
            Answer::CopyIn(copy) => Ok(SqlAnswer::CopyIn(copy)),
            Answer::Insert(insert) => {
                self.insert(&session.database, &insert)?;
                Ok(SqlAnswer::Done(format!("INSERT 0 {}", insert.rows)))
            }
        }
    }

    /// Writes the rows that a client sent for a COPY; how many.
    pub fn copy_in(&self, copy: &CopyIn, text: &str, session: &Session, budget: &Budget) -> Result<usize, SqlError> {
        let clock_ns = || self.now_ns();
        let context = Context {
            store: &self.store,
            database: &session.database,
            budget,
            clock_ns: &clock_ns,
            helpers: &self.helpers,
            kept_bins: None,
        };
        let insert = sql::copy_in(copy, text, &context, session)?;
        self.insert(&session.database, &insert)?;
        Ok(insert.rows)
    }

    fn insert(&self, database: &str, insert: &Insert) -> Result<(), SqlError> {
        let written = self.write_lines(database, insert.lines.as_bytes());
        let (report, errors) = written.map_err(|error| SqlError::Query(QueryError::Storage(error.to_string())))?;
        let refused = errors.first.first().map(|error| format!("line {}: {}", error.line, error.reason));
        let refused =
            refused.or_else(|| report.rejected.first().map(|row| format!("row {}: {}", row.line, row.reason)));
        match refused {
            Some(reason) => Err(SqlError::Invalid(format!("not all rows were written: {reason}"))),
            None => Ok(()),
        }
    }

    /// Makes or drops a database, or deletes rows; the words by which Postgres says that it is done.
    fn change(&self, database: &str, change: Change) -> Result<&'static str, SqlError> {
        let storage = |error: StoreError| SqlError::Query(QueryError::Storage(error.to_string()));
        match change {
            Change::CreateDatabase { name, if_not_exists } => {
                if self.databases().contains(&name) && !if_not_exists {
                    return Err(SqlError::Invalid(format!("database \"{name}\" already exists")));
                }
                self.database_id(&name).map_err(|error| SqlError::Invalid(error.to_string()))?;
                Ok("CREATE DATABASE")
            }
            Change::DropDatabase { name, if_exists } => {
                if !self.drop_database(&name).map_err(storage)? && !if_exists {
                    return Err(SqlError::UnknownTable(format!("database \"{name}\" does not exist")));
                }
                Ok("DROP DATABASE")
            }
            Change::Delete { table, selectors, range, tag } => {
                let matchers: Vec<Matcher> = selectors.iter().map(Selector::matcher).collect();
                let compiled = index::compile(&matchers).map_err(|error| SqlError::Invalid(error.to_string()))?;
                self.store.delete_rows(database, &table, &compiled, &range).map_err(storage)?;
                self.store.carry_out_deletes().map_err(storage)?;
                Ok(tag)
            }
        }
    }

    /// The columns that a statement will give, without running it.
    pub fn describe_sql(
        &self,
        parsed: &Parsed,
        place: usize,
        session: &Session,
        budget: &Budget,
    ) -> Result<Vec<Column>, SqlError> {
        let clock_ns = || self.now_ns();
        let context = Context {
            store: &self.store,
            database: &session.database,
            budget,
            clock_ns: &clock_ns,
            helpers: &self.helpers,
            kept_bins: self.kept_bins(budget),
        };
        sql::describe(parsed, place, &context, session)
    }
}
