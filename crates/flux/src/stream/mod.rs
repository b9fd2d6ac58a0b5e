//! What a pipeline passes on: tables that are not read yet, or tables in memory.

pub(crate) mod source;
pub(crate) mod table;

use std::sync::Arc;

use query::{QueryError, Session};

use source::Source;
use table::Table;

/// A stream of tables.
#[derive(Debug, Clone)]
pub(crate) enum Stream {
    /// What a bucket holds, with filters.
    Source(Source),
    Tables(Arc<Vec<Table>>),
}

impl Stream {
    /// Its tables, read if they were not.
    pub(crate) fn tables(self, session: &dyn Session) -> Result<Vec<Table>, QueryError> {
        match self {
            Self::Source(source) => source.read(session),
            Self::Tables(tables) => Arc::try_unwrap(tables).or_else(|shared| {
                session.budget().take(shared.iter().map(Table::cells).sum())?;
                Ok(Vec::clone(&shared))
            }),
        }
    }

    /// Tables in memory.
    pub(crate) fn in_memory(tables: Vec<Table>) -> Self {
        Self::Tables(Arc::new(tables))
    }
}
