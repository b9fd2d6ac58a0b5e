//! Runs statements.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::audit::Event;
use access::statement::AccountStatement;
use query::{QueryError, Session};

use crate::resolve::selection::Resolved;
use crate::resolve::{self, Outer};
use crate::select;
use crate::select::rows::SeriesRows;
use crate::statements::answer::{Answer, Series, Zone};
use crate::statements::explain;
use crate::statements::into;
use crate::statements::manage;
use crate::statements::request::{RequestContext, existing};
use crate::statements::show;
use crate::syntax::ast::{Select, Show, ShowTarget, Source, Statement, SubscriptionStatement};
use crate::syntax::{Parameter, parse};

/// Statements to be run one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    statements: Vec<Statement>,
}

impl Query {
    /// Parses a text; fails with [`QueryError::Invalid`] and the position of the error.
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

    /// The statement about users that one of the statements is.
    pub fn account_statement(&self, number: usize) -> Option<&AccountStatement> {
        match self.statements.get(number)? {
            Statement::Account(statement) => Some(statement),
            _ => None,
        }
    }

    /// The statement about subscriptions that one of the statements is.
    pub fn subscription_statement(&self, number: usize) -> Option<SubscriptionStatement> {
        match self.statements.get(number)? {
            Statement::Subscription(statement) => Some(statement.clone()),
            Statement::Show(Show { what: ShowTarget::Subscriptions, .. }) => Some(SubscriptionStatement::Show),
            _ => None,
        }
    }

    /// What the audit log has of a statement that was run, and the statement, if it is told of it.
    pub fn audited(&self, number: usize) -> Option<(Event, String)> {
        let statement = self.statements.get(number)?;
        let event = match statement {
            Statement::DropDatabase(_)
            | Statement::DropMeasurement(_)
            | Statement::DropSeries { .. }
            | Statement::Delete { .. } => Event::Deleted,
            Statement::CreateDatabase { .. }
            | Statement::CreatePolicy { .. }
            | Statement::AlterPolicy { .. }
            | Statement::DropPolicy { .. }
            | Statement::Subscription(_)
            | Statement::CreateContinuousQuery(_)
            | Statement::DropContinuousQuery { .. } => Event::SettingsChanged,
            _ => return None,
        };
        Some((event, statement.to_string()))
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
        | Statement::CreateContinuousQuery(_)
        | Statement::DropContinuousQuery { .. }
        | Statement::KillQuery(_)
        | Statement::Subscription(_)
        | Statement::Refused(_) => true,
        Statement::Account(statement) => !statement.only_reads(),
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

fn series(selection: &Resolved, rows: Vec<SeriesRows>) -> Vec<Series> {
    let names = std::iter::once(&selection.time_name).chain(selection.columns.iter().map(|column| &column.name));
    let columns: Arc<[String]> = names.cloned().collect();
    let zone = selection.zone.clone().map(Zone);
    let one = |SeriesRows { name, tags, rows }| {
        let tags = selection.grouped_by.iter().cloned().zip(tags).collect();
        Series { name: name.to_string(), tags, columns: columns.clone(), rows, zone: zone.clone() }
    };
    rows.into_iter().map(one).collect()
}
