//! What a pipeline passes on: tables that are not read yet, or tables in memory.

pub(crate) mod group_key;
pub(crate) mod plan_function;
pub(crate) mod source;
pub(crate) mod table;

use std::sync::Arc;

use query::{QueryError, Session};

use source::Source;
use table::{Table, merged};

/// A stream of tables.
#[derive(Debug, Clone)]
pub(crate) enum Stream {
    /// What a bucket holds, with filters.
    Source(Source),
    Tables(Tables),
}

/// Tables in memory.
#[derive(Debug, Clone)]
pub(crate) struct Tables {
    tables: Arc<Vec<Table>>,
    /// The range of time that was read for them, its stop left out: the bounds of windows of tables whose keys have none.
    range: Option<(i64, i64)>,
}

impl Stream {
    /// Its tables, read if they were not.
    pub(crate) fn tables(self, session: &dyn Session) -> Result<Vec<Table>, QueryError> {
        match self {
            Self::Source(source) => source.read(session),
            Self::Tables(Tables { tables, .. }) => Arc::try_unwrap(tables).or_else(|shared| {
                session.budget().take(shared.iter().map(Table::cells).sum())?;
                Ok(Vec::clone(&shared))
            }),
        }
    }

    /// Tables in memory, of a range of time that was read.
    pub(crate) fn in_memory(tables: Vec<Table>, range: Option<(i64, i64)>) -> Self {
        Self::shared(Arc::new(tables), range)
    }

    /// Tables in memory that others read, too.
    pub(crate) const fn shared(tables: Arc<Vec<Table>>, range: Option<(i64, i64)>) -> Self {
        Self::Tables(Tables { tables, range })
    }

    /// The tables of several, of all of their ranges.
    pub(crate) fn union(session: &dyn Session, streams: Vec<Self>) -> Result<Self, QueryError> {
        let ranges = streams.iter().filter_map(Self::range);
        let range = ranges.reduce(|(start_ns, stop_ns), other| (start_ns.min(other.0), stop_ns.max(other.1)));
        let mut tables = Vec::new();
        for stream in streams {
            tables.extend(stream.tables(session)?);
        }
        Ok(Self::in_memory(merged(session, tables)?, range))
    }

    /// The range of time that it is read from; `None` if it has no range yet, or is of no bucket's rows.
    pub(crate) const fn range(&self) -> Option<(i64, i64)> {
        match self {
            Self::Source(source) => source.range,
            Self::Tables(tables) => tables.range,
        }
    }
}
