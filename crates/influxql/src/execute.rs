//! Runs statements.

use std::collections::BTreeMap;
use std::sync::Arc;

use query::{QueryError, Session};

use crate::answer::{Answer, Series, Zone};
use crate::resolve::{self, Outer, Resolved};
use crate::select::SeriesRows;
use crate::syntax::ast::{Expr, Select, Source, Statement};
use crate::syntax::{Parameter, parse};
use crate::{explain, into, manage, select, show};

/// Statements to be run one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    statements: Vec<Statement>,
}

/// The request that statements come from.
#[derive(Debug, Clone, Copy)]
pub struct RequestContext<'a> {
    /// The database of statements that name none.
    pub database: Option<&'a str>,
    /// True if the request must not change anything, as those by GET: statements that do are refused.
    pub read_only: bool,
}

impl Query {
    /// Parses a text; fails with [`QueryError::Invalid`] and the place of what is wrong.
    pub fn parse(text: &str, parameters: &BTreeMap<String, Parameter>) -> Result<Self, QueryError> {
        let statements =
            parse(text, parameters).map_err(|error| QueryError::Invalid(format!("error parsing query: {error}")))?;
        Ok(Self { statements })
    }

    /// How many statements there are.
    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
    }

    /// A statement in the standard spelling; empty if there is none of that number.
    pub fn text(&self, number: usize) -> String {
        self.statements.get(number).map_or_else(String::new, ToString::to_string)
    }

    /// Runs a statement, counted from 0.
    pub fn run(
        &self,
        number: usize,
        session: &dyn Session,
        request: &RequestContext<'_>,
    ) -> Result<Answer, QueryError> {
        let Some(statement) = self.statements.get(number) else {
            return Ok(Answer::default());
        };
        if request.read_only && changes(statement) {
            return Err(QueryError::Invalid(format!("'{statement}' changes data, which this request may not")));
        }
        run(statement, session, request)
    }

    /// The first statement that changes data, databases or what runs, in the standard spelling; `None` if all only read.
    pub fn first_change(&self) -> Option<String> {
        self.statements.iter().find(|statement| changes(statement)).map(ToString::to_string)
    }
}

/// Returns whether a statement changes anything. Each kind is named, so that a new one has to decide.
fn changes(statement: &Statement) -> bool {
    match statement {
        Statement::Select(select) => select.into.is_some(),
        Statement::Explain { .. } | Statement::Show(_) => false,
        Statement::CreateDatabase { .. }
        | Statement::DropDatabase(_)
        | Statement::CreatePolicy { .. }
        | Statement::AlterPolicy { .. }
        | Statement::DropPolicy { .. }
        | Statement::Delete { .. }
        | Statement::DropSeries { .. }
        | Statement::DropMeasurement(_)
        | Statement::KillQuery(_)
        | Statement::Refused(_) => true,
    }
}

fn run(statement: &Statement, session: &dyn Session, request: &RequestContext<'_>) -> Result<Answer, QueryError> {
    match statement {
        Statement::Select(select) => {
            let resolved = resolved(select, session, request)?;
            let rows = select::rows(session, &resolved)?;
            match &select.into {
                Some(target) => into::write(session, request, target, &resolved, &rows),
                None => Ok(Answer { series: series(&resolved, rows), messages: Vec::new() }),
            }
        }
        Statement::Explain { analyze, select } => {
            let resolved = resolved(select, session, request)?;
            explain::explain(session, &resolved, *analyze)
        }
        Statement::Show(show) => show::show(session, request, show),
        other => manage::run(session, request, other),
    }
}

fn resolved(select: &Select, session: &dyn Session, request: &RequestContext<'_>) -> Result<Resolved, QueryError> {
    let databases = session.databases();
    let mut all_named = true;
    each_database(select, &mut |database| match database {
        None => {
            all_named = false;
            Ok(())
        }
        Some(name) => existing(&databases, name),
    })?;
    let database = match request.database {
        None | Some("") if all_named => "",
        None | Some("") => return Err(QueryError::Invalid("database name required".to_owned())),
        Some(database) if all_named => database,
        Some(database) => {
            existing(&databases, database)?;
            database
        }
    };
    resolve::resolve(session, select, &Outer::statement(database))
}

/// Visits the databases that sources name.
fn each_database(
    select: &Select,
    visit: &mut dyn FnMut(Option<&str>) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    select.sources.iter().try_for_each(|source| match source {
        Source::Measurement(measurement) => visit(measurement.database.as_deref()),
        Source::Subquery(inner) => each_database(inner, visit),
    })
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

fn series(of: &Resolved, rows: Vec<SeriesRows>) -> Vec<Series> {
    let names = std::iter::once(&of.time_name).chain(of.columns.iter().map(|column| &column.name));
    let columns: Arc<[String]> = names.cloned().collect();
    let zone = of.zone.clone().map(Zone);
    let one = |SeriesRows { name, tags, rows }| {
        let tags = of.grouped_by.iter().cloned().zip(tags).collect();
        Series { name: name.to_string(), tags, columns: columns.clone(), rows, zone: zone.clone() }
    };
    rows.into_iter().map(one).collect()
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
