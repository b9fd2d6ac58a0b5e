//! The interface below SQL, InfluxQL and plans: all that a statement may read and change.

mod definitions;
pub(crate) mod regular;
pub(crate) mod store_session;
mod stored_queries;
#[cfg(feature = "testing")]
pub mod testing;

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{Labels, TimeRange, ValueType};
use store::{EpochValue, NameValidity, TableLayout, TableSchema, TopBy};

use crate::plan::{Scan, Selector};
use crate::session::regular::RegularSettings;
use crate::sketch::excerpt;
use crate::views::{RefreshRequest, StoredQuery, View, ViewDefinition, ViewOptions, ViewStatus, check_column};
use crate::{Budget, LastRows, Outcome, Plan, QueryError, Reads};

/// A group of a table: its tags, and the fields that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableGroup {
    /// Its tags.
    pub tags: Labels,
    /// Names of its fields.
    pub fields: Vec<String>,
}

/// The first of the rows that were not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedRow {
    /// The row, such as `line 3`.
    pub position: String,
    /// Why not.
    pub reason: String,
}

impl RefusedRow {
    /// One by its number: of a `line` of what was sent, or of a `row` of what was read of it.
    pub fn new(kind: &str, number: impl std::fmt::Display, reason: &str) -> Self {
        Self { position: format!("{kind} {number}"), reason: reason.to_owned() }
    }
}

/// Columns of a table that has no rows yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTable {
    /// Its name.
    pub name: String,
    /// Names of its tags.
    pub tags: Vec<String>,
    /// Its fields and their types; at least one.
    pub fields: Vec<(String, ValueType)>,
    /// The order of all columns, and the name of the time, if they are declared.
    pub layout: Option<TableLayout>,
}

impl NewTable {
    /// Refuses names of columns that no row could have.
    pub(super) fn check_columns(&self) -> Result<(), QueryError> {
        let of = format!("the table {}", excerpt(&self.name));
        let fields = self.fields.iter().map(|(name, _)| name);
        let declared = self.layout.iter().flat_map(|layout| &layout.columns);
        self.tags.iter().chain(fields).chain(declared).try_for_each(|column| check_column(&of, column))
    }
}

/// How a database keeps its data; a setting that is left out stays as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DatabaseSettings {
    /// The retention of rows in nanoseconds; 0: for ever.
    pub retention_ns: Option<i64>,
    /// From which age samples are replaced by summaries, and of which width, both in nanoseconds.
    pub folds: Option<Vec<(i64, i64)>>,
    /// Refuses queries whose answer would be made of what folding left.
    pub strict_folds: Option<bool>,
    /// What makes it regular.
    pub regular: RegularSettings,
}

/// Which series of a regular database are the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopNames {
    /// From when to when.
    pub range: TimeRange,
    /// By what.
    pub by: TopBy,
    /// How many.
    pub count: usize,
}

/// The databases of one process, as one query sees them.
pub trait Session: Sync {
    /// Nanoseconds since the Unix epoch.
    fn now_ns(&self) -> i64;

    /// The limits of the query.
    fn budget(&self) -> &Budget;

    /// Names of all databases, sorted.
    fn databases(&self) -> Vec<String>;

    /// Names of a database's tables, sorted: measurements of line protocol, and metrics by their names.
    fn tables(&self, database: &str) -> Result<Vec<String>, QueryError>;

    /// A table's columns; `None` if there is no such table.
    fn table(&self, database: &str, name: &str) -> Result<Option<TableSchema>, QueryError>;

    /// The groups of a scan's table that may have rows in its range.
    fn groups(&self, database: &str, scan: &Scan) -> Result<Vec<TableGroup>, QueryError>;

    /// The values of a tag of a scan's table, of groups that may have rows in its range, sorted.
    fn tag_values(&self, database: &str, scan: &Scan, tag: &str) -> Result<Vec<String>, QueryError> {
        let groups = self.groups(database, scan)?;
        let values: BTreeSet<&str> = groups.iter().filter_map(|group| group.tags.get(tag)).collect();
        Ok(values.into_iter().map(str::to_owned).collect())
    }

    /// Runs a plan.
    fn run(&self, database: &str, plan: &Plan) -> Result<Outcome, QueryError>;

    /// The newest row of each series that a scan of a table selects.
    fn last_rows(&self, database: &str, scan: &Scan) -> Result<LastRows, QueryError>;

    /// Counts of what was read so far.
    fn reads(&self) -> Reads;

    /// Writes line protocol with times in nanoseconds; returns the first row that was refused. One that cannot be read, or is too far ahead of
    /// the clock, keeps all from being written; where the store refuses rows, the others are written.
    fn write(&self, database: &str, lines: &[u8]) -> Result<Option<RefusedRow>, QueryError>;

    /// Deletes the rows of a table that all selectors choose, in an interval of time.
    fn delete(&self, database: &str, table: &str, selectors: &[Selector], range: &TimeRange) -> Result<(), QueryError>;

    /// Makes a table's columns before there are rows.
    fn create_table(&self, database: &str, table: &NewTable) -> Result<(), QueryError>;

    /// Drops a table with its rows, columns and types; returns whether there was one.
    fn drop_table(&self, database: &str, table: &str) -> Result<bool, QueryError>;

    /// The columns of a table as they were declared; `None` if they were not.
    fn table_layout(&self, database: &str, table: &str) -> Option<Arc<TableLayout>>;

    /// How long a table keeps its rows, in nanoseconds; 0: as long as its database does.
    fn table_ttl_ns(&self, database: &str, table: &str) -> i64;

    /// Says how long a table keeps its rows, in nanoseconds; 0: as long as its database does.
    fn set_table_ttl(&self, database: &str, table: &str, ttl_ns: i64) -> Result<(), QueryError>;

    /// The retention of a database in nanoseconds; 0: for ever; `None` if there is no such database.
    fn retention_ns(&self, database: &str) -> Option<i64>;

    /// Makes a database if it does not exist, and changes the settings that are given.
    fn set_up_database(&self, database: &str, settings: &DatabaseSettings) -> Result<(), QueryError>;

    /// When the names of a regular database, or one of them, are valid: by name and time.
    fn name_validity(&self, database: &str, name: Option<&str>) -> Result<Vec<NameValidity>, QueryError>;

    /// The names of a regular database with the largest values over some time, the largest first.
    fn top_names(&self, database: &str, request: &TopNames) -> Result<Vec<(String, EpochValue)>, QueryError>;

    /// Drops a database with all its rows; returns whether there was one.
    fn drop_database(&self, database: &str) -> Result<bool, QueryError>;

    /// A plan as it is run: with what views are read as in the place of their scans.
    fn expanded(&self, database: &str, plan: &Plan) -> Result<Plan, QueryError>;

    /// The materialised views of a database, by name.
    fn views(&self, database: &str) -> Result<Vec<Arc<View>>, QueryError>;

    /// How a materialised view is doing.
    fn view_status(&self, database: &str, name: &str) -> Result<ViewStatus, QueryError>;

    /// Makes a materialised view. Its maker and what the maker may read become part of it.
    fn create_view(&self, definition: ViewDefinition) -> Result<(), QueryError> {
        self.create_views(vec![definition])
    }

    /// Makes materialised views: all of them, or none.
    fn create_views(&self, definitions: Vec<ViewDefinition>) -> Result<(), QueryError>;

    /// Takes a further measurement into a continuous query, or further columns of one, as long as a view of the query is the one that it was. It is its maker's as that view is, and the definition
    /// reads what that maker may. Returns whether something changed.
    fn extend_view(&self, of: &View, definition: ViewDefinition) -> Result<bool, QueryError>;

    /// Puts a continuous query or a task in place of one of its name. Its windows before stay as they are, until rows change them.
    fn replace_view(&self, definition: ViewDefinition) -> Result<(), QueryError>;

    /// Gives a materialised view the columns that its definition here has besides.
    fn add_view_columns(&self, definition: ViewDefinition) -> Result<(), QueryError>;

    /// Drops a materialised view with its stored windows; returns whether there was one.
    fn drop_view(&self, database: &str, name: &str) -> Result<bool, QueryError>;

    /// Changes a materialised view's settings.
    fn set_view_options(&self, database: &str, name: &str, options: ViewOptions) -> Result<(), QueryError>;

    /// Has windows of a materialised view computed.
    fn refresh_view(&self, request: &RefreshRequest<'_>) -> Result<(), QueryError>;

    /// Waits until windows are stored that were to be computed, for a while; returns whether they are.
    fn wait_for_refresh(&self, request: &RefreshRequest<'_>) -> Result<bool, QueryError>;

    /// The view of plain SQL of a name.
    fn stored_query(&self, database: &str, name: &str) -> Result<Option<Arc<StoredQuery>>, QueryError>;

    /// The view of plain SQL of a name without regard to the case of ASCII letters; of several the first.
    fn stored_query_of_any_case(&self, database: &str, name: &str) -> Result<Option<Arc<StoredQuery>>, QueryError>;

    /// The views of plain SQL of a database, by name.
    fn stored_queries(&self, database: &str) -> Result<Vec<Arc<StoredQuery>>, QueryError>;

    /// Makes a view of plain SQL, in place of one of its name if that is said. Its maker and what the maker may read become part of it.
    fn put_stored_query(&self, query: StoredQuery, replaces: bool) -> Result<(), QueryError>;

    /// Drops a view of plain SQL; returns whether there was one.
    fn drop_stored_query(&self, database: &str, name: &str) -> Result<bool, QueryError>;

    /// The materialised view of a name.
    fn view(&self, database: &str, name: &str) -> Result<Option<Arc<View>>, QueryError> {
        Ok(self.views(database)?.into_iter().find(|view| view.definition.name == name))
    }
}
