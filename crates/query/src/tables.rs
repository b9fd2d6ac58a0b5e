//! What tables there are.

use index::compile;
use model::Matcher;
use store::{SelectedGroup, StoreError, TableSchema};

use crate::plan::{Scan, Selector};
use crate::{Context, QueryError, selection};

impl Context<'_> {
    /// Names of the tables, sorted: measurements of line protocol, and metrics by their names.
    pub fn tables(&self) -> Result<Vec<String>, QueryError> {
        self.store.tables(self.database).map_err(|error| unreadable(&error))
    }

    /// Names of all databases.
    pub fn databases(&self) -> Vec<String> {
        self.store.databases()
    }

    /// A table's columns; `None` if there is no such table.
    pub fn table(&self, name: &str) -> Result<Option<TableSchema>, QueryError> {
        self.store.table(self.database, name).map_err(|error| unreadable(&error))
    }

    /// Values of a tag that groups of a scan's table have, sorted. The scan's range counts by whole chunks.
    pub fn tag_values(&self, scan: &Scan, tag: &str) -> Result<Vec<String>, QueryError> {
        let groups = self.groups_of(scan)?;
        self.store.label_values(self.database, tag, &groups).map_err(|error| unreadable(&error))
    }

    /// Names of the tags that groups of a scan's table have, sorted.
    pub fn tag_names(&self, scan: &Scan) -> Result<Vec<String>, QueryError> {
        let groups = self.groups_of(scan)?;
        self.store.label_names(self.database, &groups).map_err(|error| unreadable(&error))
    }

    /// The groups of a scan's table that may have rows in its range; none if it names no table.
    pub fn groups_of(&self, scan: &Scan) -> Result<Vec<SelectedGroup>, QueryError> {
        let Some(table) = &scan.table else { return Ok(Vec::new()) };
        let matchers: Vec<Matcher> = scan.selectors.iter().map(Selector::matcher).collect();
        let compiled = compile(&matchers).map_err(|error| QueryError::Invalid(error.to_string()))?;
        let (database, fields) = (self.database, table.fields.as_slice());
        let wanted = store::TableSelection { database, table: &table.name, fields, matchers: &compiled };
        let selected = selection::select_table(self.store, &wanted, self.budget)?;
        let mut found = Vec::new();
        for group in selected.iter() {
            self.budget.check()?;
            if self.store.has_rows(group, &scan.range).map_err(|error| unreadable(&error))? {
                found.push(group.clone());
            }
        }
        Ok(found)
    }
}

fn unreadable(error: &StoreError) -> QueryError {
    QueryError::Storage(error.to_string())
}
