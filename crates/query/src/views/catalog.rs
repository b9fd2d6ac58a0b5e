//! The interface to those who keep views.

use std::sync::Arc;

use model::TimeRange;
use store::DatabasePolicy;

use super::{StoredQuery, View, ViewDefinition, ViewOptions};
use crate::{Budget, QueryError};

/// Changes since the moment up to which the stored windows of a database's views are right.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ViewChanges {
    /// From this time on rows came; `None`: none did, late ones aside.
    pub edge_ns: Option<i64>,
    /// The times of late rows.
    pub late: Vec<TimeRange>,
}

/// Rows of a view's source that are about to be deleted.
#[derive(Debug, Clone, Copy)]
pub struct SourceDelete<'a> {
    /// The database.
    pub database: &'a str,
    /// The table; `None`: any of the database.
    pub table: Option<&'a str>,
    /// The times of the rows.
    pub range: TimeRange,
}

/// A refresh that a statement demands.
#[derive(Debug, Clone, Copy)]
pub struct RefreshRequest<'a> {
    /// The database.
    pub database: &'a str,
    /// The view.
    pub name: &'a str,
    /// The times of the windows; the end is left out.
    pub range: TimeRange,
    /// True if windows are computed that are known to be right, too.
    pub is_forced: bool,
}

/// As long as it lives, no window that a delete may change counts as computed.
pub trait DeleteHold: Send {}

/// How a view is doing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ViewStatus {
    /// Why its last refresh failed, if it did.
    pub error: Option<String>,
    /// When it was refreshed last, in nanoseconds since the Unix epoch.
    pub refreshed_ns: Option<i64>,
    /// Rows that were written to its target since the start.
    pub rows_written: u64,
    /// Ranges of windows that were computed since the start.
    pub refreshes: u64,
    /// Nanoseconds that this took.
    pub elapsed_ns: u64,
    /// Nanoseconds of a core that this took, those of threads that helped left out.
    pub cpu_ns: u64,
    /// True if a statement demanded a refresh that has not ended.
    pub is_requested: bool,
    /// Late samples whose window could not be computed again, because a part of its source is gone.
    pub late_samples_refused: u64,
    /// Measurements that its continuous query would read if it could, each with the reason why it does not; the first view of a query has them.
    pub left_out: Vec<String>,
}

/// The views of a process.
pub trait ViewCatalog: Sync {
    /// A view by its name.
    fn view(&self, database: &str, name: &str) -> Option<Arc<View>>;

    /// The view that a scan of a table reads.
    fn view_of_table(&self, database: &str, table: &str) -> Option<Arc<View>>;

    /// The views of a database, by name.
    fn views(&self, database: &str) -> Vec<Arc<View>>;

    /// A view of plain SQL by its name.
    fn stored_query(&self, database: &str, name: &str) -> Option<Arc<StoredQuery>>;

    /// A view of plain SQL by its name without regard to the case of ASCII letters; of several the first.
    fn stored_query_of_any_case(&self, database: &str, name: &str) -> Option<Arc<StoredQuery>>;

    /// The views of plain SQL of a database, by name.
    fn stored_queries(&self, database: &str) -> Vec<Arc<StoredQuery>>;

    /// Adds a view of plain SQL, in place of one of its name if that is said.
    ///
    /// # Errors
    /// If its name is taken, or as every change of the manifest.
    fn put_stored_query(&self, query: StoredQuery, replaces: bool) -> Result<(), QueryError>;

    /// Removes a view of plain SQL; returns whether there was one.
    ///
    /// # Errors
    /// As every change of the manifest.
    fn remove_stored_query(&self, database: &str, name: &str) -> Result<bool, QueryError>;

    /// Why a view's definition cannot be read; `None` if it can, or if there is no such view.
    fn unreadable(&self, database: &str, name: &str) -> Option<String>;

    /// How a view is doing.
    fn status(&self, database: &str, name: &str) -> ViewStatus;

    /// Changes since the stored windows of a database's views were right; `None` if that is not known.
    fn changes(&self, database: &str) -> Option<ViewChanges>;

    /// Windows that begin before this time are not computed again: a part of their source is gone, or was once.
    fn frozen_before_ns(&self, view: &View) -> i64;

    /// How often stored windows were deleted to be written again: of the view that a scan of a table reads, and of those below it.
    fn rewrites(&self, database: &str, table: &str) -> u64;

    /// The times of stored windows of a view that are being deleted and written again; from before this is counted.
    fn rewritten(&self, view: &View) -> Vec<TimeRange>;

    /// Says how a database keeps its data.
    ///
    /// # Errors
    /// If its views cannot be kept right by that, or as every change of the manifest.
    fn set_policy(&self, database: &str, policy: &DatabasePolicy) -> Result<(), QueryError>;

    /// Gives a view the columns that its definition here has besides. Those of windows before are computed in the background, and when they are read.
    ///
    /// # Errors
    /// If the definition differs in more, or as every change of the manifest.
    fn add_columns(&self, definition: ViewDefinition) -> Result<(), QueryError>;

    /// Notes that a table is about to keep its rows that long, in nanoseconds; 0: as long as its database does.
    ///
    /// # Errors
    /// If views cannot be kept right by that, or as every change of the manifest.
    fn before_ttl(&self, database: &str, table: &str, ttl_ns: i64) -> Result<(), QueryError>;

    /// Adds views: all of them, or none.
    ///
    /// # Errors
    /// If the name of one is taken, if views would read one another in a circle or too deep, or as every change of the manifest.
    fn create(&self, definitions: Vec<ViewDefinition>) -> Result<(), QueryError>;

    /// Takes a further measurement into a continuous query, or further columns of one, as long as a view of the query is the one that it was. Returns whether something changed.
    /// What the source has of them by now is computed in the background.
    ///
    /// # Errors
    /// As of [`ViewCatalog::create`], or if that view is another one by now, or was dropped.
    fn extend(&self, of: &View, definition: ViewDefinition) -> Result<bool, QueryError>;

    /// Puts a continuous query or a task in place of one of its name. Its windows before stay as they are, until rows change them.
    ///
    /// # Errors
    /// As of [`ViewCatalog::create`], or if there is no view of the name, or one whose windows are its own.
    fn replace(&self, definition: ViewDefinition) -> Result<(), QueryError>;

    /// Removes a view with its stored windows; returns whether there was one.
    ///
    /// # Errors
    /// If other views read it, or as every change of the manifest.
    fn remove(&self, database: &str, name: &str) -> Result<bool, QueryError>;

    /// Removes the views of a database that is dropped.
    ///
    /// # Errors
    /// As every change of the manifest.
    fn remove_all(&self, database: &str) -> Result<(), QueryError>;

    /// Changes a view's settings.
    ///
    /// # Errors
    /// If there is no such view, or as every change of the manifest.
    fn set_options(&self, database: &str, name: &str, options: ViewOptions) -> Result<(), QueryError>;

    /// Has windows computed.
    ///
    /// # Errors
    /// If there is no such view, or as every change of the manifest.
    fn request_refresh(&self, request: &RefreshRequest<'_>) -> Result<(), QueryError>;

    /// Waits until the windows that a request was for are stored, with all rows that were written before: half a minute at most, and not at all where
    /// no background refreshes views. Returns whether it is over.
    ///
    /// # Errors
    /// If the refresh fails, if the view is dropped, and those of the budget.
    fn wait_for_refresh(&self, request: &RefreshRequest<'_>, budget: &Budget) -> Result<bool, QueryError>;

    /// Notes that rows are about to be deleted. What this returns is dropped after they were.
    ///
    /// # Errors
    /// As every change of the manifest.
    fn before_delete(&self, delete: &SourceDelete<'_>) -> Result<Option<Box<dyn DeleteHold + '_>>, QueryError>;
}
