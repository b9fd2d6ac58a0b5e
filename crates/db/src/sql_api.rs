//! Asking and writing by SQL.

use std::sync::Arc;

use model::{Field, Labels, Matcher, TimeRange, ValueType};
use query::plan::Selector;
use query::{Budget, Context, QueryError};
use sql::{
    Answer, Change, Column, CopyIn, CopyOut, DatabaseSettings, Insert, Parsed, Relation, Session, SqlError, TableRows,
};
use store::StoreError;

use crate::Db;

/// What a statement of SQL gave.
#[derive(Debug)]
pub enum SqlAnswer {
    /// A table.
    Rows(Relation),
    /// Rows of a table of the database as they were read: values are made of them by [`TableRows::into_relation`].
    Table(TableRows),
    /// Rows to be sent.
    CopyOut(CopyOut),
    /// Rows to be waited for: [`Db::copy_in`] takes them.
    CopyIn(CopyIn),
    /// A setting of the session, and its new value.
    Set(String, String),
    /// It is done; the words by which Postgres says so.
    Done(String),
}

impl SqlAnswer {
    /// The table that it is, with values.
    pub fn relation(self) -> Option<Relation> {
        match self {
            Self::Rows(relation) => Some(relation),
            Self::Table(table) => Some(table.into_relation()),
            Self::CopyOut(_) | Self::CopyIn(_) | Self::Set(..) | Self::Done(_) => None,
        }
    }
}

impl Db {
    /// Runs one of the statements of a text ([`sql::parse`]) on the session's database.
    pub fn sql(
        &self,
        parsed: &Parsed,
        place: usize,
        session: &Session,
        budget: &Arc<Budget>,
    ) -> Result<SqlAnswer, SqlError> {
        let held = budget.samples();
        match self.sql_built_in(parsed, place, session, budget) {
            Err(SqlError::Unsupported(_) | SqlError::UnknownFunction(_)) if is_for_datafusion(parsed, place) => {
                budget.give_back(budget.samples().saturating_sub(held) as usize);
                self.sql_beyond(parsed, place, session, budget).map(SqlAnswer::Rows)
            }
            answer => answer,
        }
    }

    /// The same by the built-in layer alone.
    fn sql_built_in(
        &self,
        parsed: &Parsed,
        place: usize,
        session: &Session,
        budget: &Budget,
    ) -> Result<SqlAnswer, SqlError> {
        let clock_ns = || self.now_ns();
        let context = self.context(session, budget, &clock_ns);
        match sql::run(parsed, place, &context, session)? {
            Answer::Rows(relation) => Ok(SqlAnswer::Rows(relation)),
            Answer::Table(table) => Ok(SqlAnswer::Table(table)),
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

    /// What a statement reads with.
    pub(crate) fn context<'a>(
        &'a self,
        session: &'a Session,
        budget: &'a Budget,
        clock_ns: &'a (dyn Fn() -> i64 + Sync),
    ) -> Context<'a> {
        Context {
            store: &self.store,
            database: &session.database,
            budget,
            clock_ns,
            helpers: &self.helpers,
            kept_bins: self.kept_bins(budget),
        }
    }

    /// Writes the rows that a client sent for a COPY, as they were sent; how many.
    pub fn copy_in(&self, copy: &CopyIn, sent: Vec<u8>, session: &Session, budget: &Budget) -> Result<usize, SqlError> {
        let clock_ns = || self.now_ns();
        let insert = sql::copy_in(copy, sent, &self.context(session, budget, &clock_ns), session)?;
        self.insert(&session.database, &insert)?;
        Ok(insert.rows)
    }

    /// Writes rows of a table that came without a statement; how many.
    pub fn insert_rows(
        &self,
        table: &str,
        relation: Relation,
        session: &Session,
        budget: &Budget,
    ) -> Result<usize, SqlError> {
        let clock_ns = || self.now_ns();
        let insert = sql::insert_rows(table, relation, &self.context(session, budget, &clock_ns), session)?;
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
            Change::CreateDatabase { name, if_not_exists, settings } => {
                if self.databases().contains(&name) && !if_not_exists {
                    return Err(SqlError::Invalid(format!("database \"{name}\" already exists")));
                }
                self.database_id(&name).map_err(|error| SqlError::Invalid(error.to_string()))?;
                self.change_policy(&name, settings)?;
                Ok("CREATE DATABASE")
            }
            Change::AlterDatabase { name, settings } => {
                if !self.databases().contains(&name) {
                    return Err(SqlError::UnknownTable(format!("database \"{name}\" does not exist")));
                }
                self.change_policy(&name, settings)?;
                Ok("ALTER DATABASE")
            }
            Change::CreateTable { table, fields, if_not_exists } => {
                // A table without rows may be made again: as far as a field has another type, that is told.
                let exists = self.store.table(database, &table).map_err(storage)?.is_some();
                if !(exists && if_not_exists) {
                    if exists && self.has_rows(database, &table).map_err(storage)? {
                        return Err(SqlError::Invalid(format!("relation \"{table}\" already exists")));
                    }
                    self.create_table(database, &table, fields)?;
                }
                Ok("CREATE TABLE")
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

    /// How a database keeps its data from now on.
    fn change_policy(&self, database: &str, settings: DatabaseSettings) -> Result<(), SqlError> {
        if settings == DatabaseSettings::default() {
            return Ok(());
        }
        let mut policy = self.policy(database).unwrap_or_default();
        policy.retention_ns = settings.retention_ns.unwrap_or(policy.retention_ns);
        policy.folds = settings.folds.unwrap_or(policy.folds);
        self.set_policy(database, &policy).map_err(asked_or_storage)
    }

    fn has_rows(&self, database: &str, table: &str) -> Result<bool, StoreError> {
        for group in self.store.select_table(database, table, &[], &[])?.iter() {
            if self.store.has_rows(group, &TimeRange::ALL)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Registers a table's fields in a group without tags, which has no rows.
    fn create_table(&self, database: &str, table: &str, fields: Vec<(String, ValueType)>) -> Result<(), SqlError> {
        let member = |(name, value_type)| (Field { name, value_type }, Labels::empty());
        let members: Vec<(Field, Labels)> = fields.into_iter().map(member).collect();
        self.register_groups(database, table, &[Labels::empty()], &members).map_err(asked_or_storage)?;
        Ok(())
    }

    /// The names of the session's tables.
    pub fn tables(&self, session: &Session, budget: &Budget) -> Result<Vec<String>, SqlError> {
        let clock_ns = || self.now_ns();
        Ok(self.context(session, budget, &clock_ns).tables()?)
    }

    /// The columns of a table; `None` if there is none of the name.
    pub fn table_columns(
        &self,
        table: &str,
        session: &Session,
        budget: &Budget,
    ) -> Result<Option<Vec<Column>>, SqlError> {
        let clock_ns = || self.now_ns();
        let schema = self.context(session, budget, &clock_ns).table(table)?;
        Ok(schema.as_ref().map(sql::table_columns))
    }

    /// The columns that a statement will give, without running it.
    pub fn describe_sql(
        &self,
        parsed: &Parsed,
        place: usize,
        session: &Session,
        budget: &Arc<Budget>,
    ) -> Result<Vec<Column>, SqlError> {
        let clock_ns = || self.now_ns();
        let context = self.context(session, budget, &clock_ns);
        match sql::describe(parsed, place, &context, session) {
            Err(SqlError::Unsupported(_) | SqlError::UnknownFunction(_)) if is_for_datafusion(parsed, place) => {
                self.describe_beyond(parsed, place, session, budget)
            }
            columns => columns,
        }
    }
}

/// An error that is the asker's to mend, or the store's.
fn asked_or_storage(error: StoreError) -> SqlError {
    match error {
        StoreError::Invalid(message) => SqlError::Invalid(message),
        error => SqlError::Query(QueryError::Storage(error.to_string())),
    }
}

/// Whether a statement that the built-in layer does not have may be run by DataFusion.
fn is_for_datafusion(parsed: &Parsed, place: usize) -> bool {
    cfg!(feature = "sql-datafusion") && parsed.query_text(place).is_some()
}

/// Without the feature nothing is for DataFusion.
#[cfg(not(feature = "sql-datafusion"))]
impl Db {
    #[allow(clippy::unused_self, reason = "it stands for the method of the feature")]
    fn sql_beyond(&self, _: &Parsed, _: usize, _: &Session, _: &Arc<Budget>) -> Result<Relation, SqlError> {
        Err(SqlError::Unsupported("the statement".to_owned()))
    }

    #[allow(clippy::unused_self, reason = "it stands for the method of the feature")]
    fn describe_beyond(&self, _: &Parsed, _: usize, _: &Session, _: &Arc<Budget>) -> Result<Vec<Column>, SqlError> {
        Err(SqlError::Unsupported("the statement".to_owned()))
    }
}
