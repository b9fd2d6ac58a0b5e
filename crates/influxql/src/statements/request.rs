//! What a statement's request says: its database, the tables that `FROM` names.

use query::{QueryError, Session};

use crate::resolve;
use crate::syntax::ast::{Expr, Source};

/// The request that statements come from.
#[derive(Debug, Clone, Copy)]
pub struct RequestContext<'a> {
    /// The database of statements that name none.
    pub database: Option<&'a str>,
    /// True if the request must not change anything, as those by GET: statements that do are refused.
    pub read_only: bool,
}

/// Fails if there is no database of a name.
pub(crate) fn existing(databases: &[String], name: &str) -> Result<(), QueryError> {
    if databases.iter().any(|database| database == name) {
        return Ok(());
    }
    Err(QueryError::Invalid(format!("database not found: {name}")))
}

/// The database that a statement is about, given the one that it names.
pub(crate) fn database<'s>(
    session: &dyn Session,
    request: &RequestContext<'s>,
    named: Option<&'s str>,
) -> Result<&'s str, QueryError> {
    let name = named.or(request.database).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| QueryError::Invalid("database name required".to_owned()))?;
    existing(&session.databases(), name)?;
    Ok(name)
}

/// The measurements that `FROM` names, without those of other databases.
pub(crate) fn named_tables(
    session: &dyn Session,
    database: &str,
    sources: &[Source],
) -> Result<Vec<String>, QueryError> {
    if sources.is_empty() {
        return session.tables(database);
    }
    let mut names = Vec::new();
    for source in sources {
        if let Source::Measurement(measurement) = source {
            names.extend(resolve::tables(session, database, measurement)?);
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// Returns whether an expression mentions time.
pub(crate) fn mentions_time(expr: &Expr) -> bool {
    let mut found = false;
    expr.walk(&mut |expr| found |= matches!(expr, Expr::Reference { name, .. } if name.eq_ignore_ascii_case("time")));
    found
}
