//! What views do with a table beside reading its rows by time.

use std::sync::Arc;

use query::views::{View, ViewCatalog};

use super::Views;
use super::frozen::{rows_from_ns, sources_of, whole_windows_before};
use crate::Db;

impl Views {
    /// Why rows of a table are wanted or changed by a view whatever their age, if they are: it joins or writes them, or its definition cannot be read.
    fn hold_on(&self, database: &str, table: &str) -> Option<String> {
        let writes = self
            .all()
            .into_iter()
            .find(|view| view.definition.target_database() == database && view.definition.target == table);
        if let Some(view) = writes {
            return Some(format!("the view {:?} writes the table {table:?}", view.definition.name));
        }
        if let Some(view) = self.views(database).into_iter().find(|view| view.definition.joins(table)) {
            return Some(format!("the view {:?} joins the table {table:?}", view.definition.name));
        }
        let state = self.state.read();
        let unreadable = state.unreadable.iter().find(|view| view.database == database)?;
        Some(format!("which tables the view {:?} reads is not known: {}", unreadable.name, unreadable.reason))
    }

    /// The time up to one before which rows of a table can go without a view missing them, in nanoseconds; `i64::MIN`: none.
    fn unread_before_ns(&self, database: &str, table: &str, before_ns: i64) -> i64 {
        let readers = self.readers(database, Some(table));
        // Late rows from the time on are of windows that begin before it.
        let begin_ns = |view: &Arc<View>| rows_from_ns(&view.definition, Some(table), view.bins.start_of(before_ns));
        let begin_ns = readers.iter().map(begin_ns).fold(before_ns, i64::min);
        whole_windows_before(
            &sources_of(&readers, Some(table)),
            begin_ns.min(self.needed_from_ns((database, table), &readers)),
        )
    }
}

impl Db {
    /// Why no rows of a table can go by their age, if views are the reason: one joins or writes it, or cannot be read.
    pub fn view_hold_on(&self, database: &str, table: &str) -> Option<String> {
        self.views.hold_on(database, table)
    }

    /// The time up to one before which no view has to read rows of a table any more, in nanoseconds, also where rows still come late from that time
    /// on; `i64::MIN`: views need all.
    pub fn unread_by_views_before_ns(&self, database: &str, table: &str, before_ns: i64) -> i64 {
        self.views.unread_before_ns(database, table, before_ns)
    }
}
