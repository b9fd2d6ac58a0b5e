//! What statements are run on.

use model::{Labels, TimeRange};
use query::plan::{Scan, Selector};
use query::{Budget, Outcome, Plan, QueryError, Reads, TableSchema};

/// A group of a table: its tags, and the fields that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableGroup {
    /// Its tags.
    pub tags: Labels,
    /// Names of its fields.
    pub fields: Vec<String>,
}

/// Databases with tables.
pub trait Engine {
    /// Nanoseconds since the Unix epoch.
    fn now_ns(&self) -> i64;

    /// What the statements may use.
    fn budget(&self) -> &Budget;

    /// Names of all databases, sorted.
    fn databases(&self) -> Vec<String>;

    /// Names of a database's tables, sorted.
    fn tables(&self, database: &str) -> Result<Vec<String>, QueryError>;

    /// A table's columns; `None` if there is no such table.
    fn table(&self, database: &str, name: &str) -> Result<Option<TableSchema>, QueryError>;

    /// The groups that a scan of a table selects.
    fn groups(&self, database: &str, scan: &Scan) -> Result<Vec<TableGroup>, QueryError>;

    /// Runs a plan.
    fn run(&self, database: &str, plan: &Plan) -> Result<Outcome, QueryError>;

    /// What plans read so far.
    fn reads(&self) -> Reads;

    /// Writes line protocol with times in nanoseconds; all of it, or an error.
    fn write(&self, database: &str, lines: &[u8]) -> Result<(), QueryError>;

    /// Deletes the rows of a table that selectors choose, in a stretch of time; of all tables if none is named.
    fn delete(
        &self,
        database: &str,
        table: Option<&str>,
        selectors: &[Selector],
        range: &TimeRange,
    ) -> Result<(), QueryError>;

    /// How long a database keeps rows, in nanoseconds; 0: for ever; `None` if there is no such database.
    fn retention_ns(&self, database: &str) -> Option<i64>;

    /// Makes a database if it does not exist, and says how long it keeps rows if that is said.
    fn create_database(&self, database: &str, retention_ns: Option<i64>) -> Result<(), QueryError>;

    /// Drops a database with all its rows; nothing happens if it does not exist.
    fn drop_database(&self, database: &str) -> Result<(), QueryError>;
}
