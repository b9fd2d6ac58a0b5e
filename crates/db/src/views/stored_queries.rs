//! Views of plain SQL: statements that are kept, and expanded when they are read.

use std::sync::Arc;

use query::QueryError;
use query::views::StoredQuery;
use store::{DOCUMENT_BYTES_MAX, Store, StoreError};

use super::{BETWEEN, QUERY_KIND, State, UnreadableView, VIEWS_MAX, Views, document, document_name, storage};

/// Bytes that the documents of the views of a database have together, with their names.
const DATABASE_BYTES_MAX: usize = 1 << 20;

/// Bytes that those of all databases have together: of 8 MiB for all documents, of which rules may have as much, and accounts need some.
const ALL_BYTES_MAX: usize = 3 << 20;

/// Adds the views that the documents of a folder say.
pub(super) fn open(store: &Store, state: &mut State) {
    for (of_document, bytes) in store.documents(QUERY_KIND) {
        let (database, name) = of_document.split_once(BETWEEN).unwrap_or(("", of_document.as_str()));
        // A database that cannot be made has no rows either.
        let _ = store.reserve_table(database, name);
        let (database, name) = (database.to_owned(), name.to_owned());
        match document::decode_query(&bytes) {
            Ok(query) => drop(state.queries.insert((database, name), Arc::new(query))),
            Err(reason) => {
                let target = Some(name.clone());
                state.unreadable.push(UnreadableView { database, name, reason, target, kind: QUERY_KIND });
            }
        }
    }
}

/// The views of a database, by name.
fn of_database<'a>(state: &'a State, database: &'a str) -> impl Iterator<Item = &'a Arc<StoredQuery>> {
    let from = (database.to_owned(), String::new());
    state.queries.range(from..).take_while(move |((of, _), _)| of == database).map(|(_, query)| query)
}

impl Views {
    pub(super) fn find_query(&self, database: &str, name: &str) -> Option<Arc<StoredQuery>> {
        let state = self.state.read();
        if state.queries.is_empty() {
            return None;
        }
        state.queries.get(&(database.to_owned(), name.to_owned())).cloned()
    }

    /// The first view of a name without regard to the case of ASCII letters; none is copied.
    pub(super) fn find_query_of_any_case(&self, database: &str, name: &str) -> Option<Arc<StoredQuery>> {
        let state = self.state.read();
        let mut of_database = of_database(&state, database);
        of_database.find(|query| query.name.eq_ignore_ascii_case(name)).cloned()
    }

    pub(super) fn queries_of(&self, database: &str) -> Vec<Arc<StoredQuery>> {
        of_database(&self.state.read(), database).cloned().collect()
    }

    pub(super) fn put_query(&self, query: StoredQuery, replaces: bool) -> Result<(), QueryError> {
        let _changing = self.changing.lock();
        let (database, name) = (query.database.clone(), query.name.clone());
        let taken = |what: &str| Err(QueryError::Invalid(format!("relation {name:?} already exists{what}")));
        self.refuse_unreadable(&database, &name)?;
        let encoded = self.checked_document(&query)?;
        let is_known = self.find_query(&database, &name).is_some();
        if is_known && !replaces {
            return taken("");
        }
        if self.is_target(&database, &name) {
            return taken(": it is a materialised view, or written by a continuous query");
        }
        let count = { self.state.read().queries.len() };
        if !is_known && count >= VIEWS_MAX {
            return Err(QueryError::Invalid(format!("there are {VIEWS_MAX} views already: drop some")));
        }
        if self.store.regular(&database).is_some() && name == database {
            // The only table of a regular database, which is no measurement of the store.
            return taken(": it is a table");
        }
        // First, so that no row makes a table of the name meanwhile.
        self.store.reserve_table(&database, &name).map_err(storage)?;
        let written = match self.store.table(&database, &name) {
            Ok(None) => {
                let document = document_name(&database, &name);
                self.store.put_document(QUERY_KIND, &document, &encoded).map_err(storage)
            }
            Ok(Some(_)) => taken(": it is a table"),
            Err(error) => Err(storage(error)),
        };
        if let Err(error) = written {
            if !is_known {
                self.store.release_table(&database, &name);
            }
            return Err(error);
        }
        self.state.write().queries.insert((database, name), Arc::new(query));
        Ok(())
    }

    /// The document of a view; refuses one that is too large, or is too large with the others.
    fn checked_document(&self, query: &StoredQuery) -> Result<Vec<u8>, QueryError> {
        let StoredQuery { database, name, .. } = query;
        let encoded = document::encode_query(query);
        let bytes = encoded.len();
        if bytes > DOCUMENT_BYTES_MAX {
            return Err(QueryError::Invalid(format!(
                "the view {name:?} takes {bytes} bytes with its statement: {DOCUMENT_BYTES_MAX} are possible"
            )));
        }
        let own = document_name(database, name);
        let (mut in_all, mut of_database) = (bytes + own.len(), bytes + own.len());
        for (document, known) in self.store.documents(QUERY_KIND) {
            if document == own {
                continue;
            }
            let size = document.len() + known.len();
            in_all += size;
            if document.split_once(BETWEEN).is_some_and(|(of, _)| of == database) {
                of_database += size;
            }
        }
        if of_database > DATABASE_BYTES_MAX {
            return Err(QueryError::Invalid(format!(
                "the views of the database {database} would take {of_database} bytes with their statements, with {name:?}: {DATABASE_BYTES_MAX} are possible: drop some"
            )));
        }
        if in_all > ALL_BYTES_MAX {
            return Err(QueryError::Invalid(format!(
                "the views of all databases would take {in_all} bytes with their statements, with {name:?}: {ALL_BYTES_MAX} are possible: drop some"
            )));
        }
        Ok(encoded)
    }

    pub(super) fn remove_query(&self, database: &str, name: &str) -> Result<bool, QueryError> {
        let _changing = self.changing.lock();
        if self.find_query(database, name).is_none() {
            let is_unreadable = self.find_unreadable(database, name).is_some_and(|view| view.kind == QUERY_KIND);
            return if is_unreadable { self.remove_unreadable(database, name) } else { Ok(false) };
        }
        self.forget_query(database, name).map_err(storage)?;
        Ok(true)
    }

    /// Forgets the views of a database that is dropped.
    pub(super) fn forget_queries(&self, database: &str) -> Result<(), StoreError> {
        self.queries_of(database).iter().try_for_each(|query| self.forget_query(database, &query.name))
    }

    fn forget_query(&self, database: &str, name: &str) -> Result<(), StoreError> {
        self.store.remove_document(QUERY_KIND, &document_name(database, name))?;
        self.state.write().queries.remove(&(database.to_owned(), name.to_owned()));
        self.store.release_table(database, name);
        Ok(())
    }

    /// Returns whether a table holds, or will hold, the windows of a view.
    pub(crate) fn is_target(&self, database: &str, table: &str) -> bool {
        let state = self.state.read();
        state
            .views
            .values()
            .any(|view| view.definition.target_database() == database && view.definition.target == table)
    }
}
