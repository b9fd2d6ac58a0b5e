//! Statements that change databases.

use model::{MatchOp, TimeRange};
use query::plan::Selector;
use query::{DatabaseSettings, QueryError, Session};

use crate::resolve::condition;
use crate::resolve::groups::choose;
use crate::statements::answer::Answer;
use crate::statements::continuous;
use crate::statements::request::{RequestContext, database, existing, mentions_time, named_tables};
use crate::syntax::ast::{Expr, PolicyOptions, Source, Statement};
use crate::time::{TIME_MAX_NS, TIME_MIN_NS};

/// As InfluxDB: no policy keeps data for less.
const RETENTION_MIN_NS: i64 = 3_600_000_000_000;

pub(crate) fn run(
    session: &dyn Session,
    request: &RequestContext<'_>,
    statement: &Statement,
) -> Result<Answer, QueryError> {
    match statement {
        Statement::CreateDatabase { name, policy } => {
            let retention_ns = policy.as_ref().and_then(|policy| policy.duration_ns);
            check_retention(retention_ns)?;
            set_up(session, name, retention_ns)?;
        }
        Statement::DropDatabase(name) => {
            session.drop_database(name)?;
        }
        Statement::CreatePolicy { name, database, options } => {
            existing(&session.databases(), database)?;
            if !options.default && name != "autogen" {
                let message = format!(
                    "a database has one retention policy here: make it DEFAULT, or make a database of its own for {name}"
                );
                return Err(QueryError::Invalid(message));
            }
            set_retention(session, database, options)?;
        }
        Statement::AlterPolicy { database, options, .. } => {
            existing(&session.databases(), database)?;
            set_retention(session, database, options)?;
        }
        Statement::DropPolicy { database, .. } => {
            existing(&session.databases(), database)?;
            set_up(session, database, Some(0))?;
        }
        Statement::DropMeasurement(name) => {
            let database = database(session, request, None)?;
            session.drop_table(database, name)?;
        }
        Statement::DropSeries { sources, condition } => {
            if condition.as_ref().is_some_and(mentions_time) {
                return Err(QueryError::Invalid("DROP SERIES doesn't support time in WHERE clause".to_owned()));
            }
            delete(session, database(session, request, None)?, sources, condition.as_ref())?;
        }
        Statement::Delete { sources, condition } => {
            delete(session, database(session, request, None)?, sources, condition.as_ref())?;
        }
        Statement::CreateContinuousQuery(query) => continuous::create(session, query)?,
        Statement::DropContinuousQuery { name, database } => continuous::remove(session, database, name)?,
        Statement::KillQuery(number) => {
            return Err(QueryError::Invalid(format!("no such query id: {number}")));
        }
        Statement::Refused(words) => {
            let message = format!("{words} is not supported: there are no such things here");
            return Err(QueryError::Invalid(message));
        }
        Statement::Account(_) => {
            let message = "statements about users are run by the server alone";
            return Err(QueryError::Invalid(message.to_owned()));
        }
        Statement::Subscription(_) => {
            let message = "statements about subscriptions are run by the server alone";
            return Err(QueryError::Invalid(message.to_owned()));
        }
        Statement::Select(_) | Statement::Explain { .. } | Statement::Show(_) => {}
    }
    Ok(Answer::default())
}

fn check_retention(retention_ns: Option<i64>) -> Result<(), QueryError> {
    if retention_ns.is_some_and(|retention_ns| retention_ns != 0 && retention_ns < RETENTION_MIN_NS) {
        return Err(QueryError::Invalid("retention policy duration must be at least 1h0m0s".to_owned()));
    }
    Ok(())
}

fn set_retention(session: &dyn Session, database: &str, options: &PolicyOptions) -> Result<(), QueryError> {
    check_retention(options.duration_ns)?;
    match options.duration_ns {
        None => Ok(()),
        retention_ns => set_up(session, database, retention_ns),
    }
}

/// Makes a database if it does not exist, and sets how long it keeps rows if that is given.
fn set_up(session: &dyn Session, database: &str, retention_ns: Option<i64>) -> Result<(), QueryError> {
    session.set_up_database(database, &DatabaseSettings { retention_ns, ..DatabaseSettings::default() })
}

fn delete(
    session: &dyn Session,
    database: &str,
    sources: &[Source],
    condition: Option<&Expr>,
) -> Result<(), QueryError> {
    let split = condition::split(condition, session.now_ns(), None).map_err(QueryError::Invalid)?;
    let bounds = TimeRange::new(split.start_ns.unwrap_or(TIME_MIN_NS), split.end_ns.unwrap_or(TIME_MAX_NS));
    let range = if split.start_ns.is_none() && split.end_ns.is_none() { TimeRange::ALL } else { bounds };
    let tables = named_tables(session, database, sources)?;
    for table in &tables {
        refuse_fields(session, database, table, split.rest.as_ref())?;
    }
    for chosen in choose(session, database, &tables, &split)? {
        if !chosen.filtered {
            session.delete(database, &chosen.name, &chosen.selectors, &range)?;
            continue;
        }
        for group in &chosen.groups {
            let exactly = |tag: &String| Selector {
                name: tag.clone(),
                op: MatchOp::Equal,
                values: vec![group.tags.get(tag).unwrap_or_default().to_owned()],
            };
            let selectors: Vec<Selector> = chosen.schema.tags.iter().map(exactly).collect();
            session.delete(database, &chosen.name, &selectors, &range)?;
        }
    }
    Ok(())
}

/// Rows are deleted by tags and time only.
fn refuse_fields(
    session: &dyn Session,
    database: &str,
    table: &str,
    condition: Option<&Expr>,
) -> Result<(), QueryError> {
    let (Some(condition), Some(schema)) = (condition, session.table(database, table)?) else {
        return Ok(());
    };
    let mut field = None;
    condition.walk(&mut |expr| {
        if let Expr::Reference { name, .. } = expr
            && schema.fields.iter().any(|(known, _)| known == name)
        {
            field = Some(name.clone());
        }
    });
    match field {
        None => Ok(()),
        Some(field) => {
            Err(QueryError::Invalid(format!("fields not supported in WHERE clause during deletion: {field}")))
        }
    }
}
