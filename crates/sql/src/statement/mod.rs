//! Statements by kind.

mod change;
mod insert;

use std::sync::Arc;

use jiff::tz::TimeZone;
use query::{Session, Value};
use sqlparser::ast::{Set, ShowStatementOptions, Statement};

use crate::catalog::columns_of;
use crate::copy::{Copy, CopyIn, CopyOut};
use crate::error::{SqlError, invalid, unsupported};
use crate::expression::{Environment, time_zone};
use crate::relation::{Column, Relation};
use crate::run::{Manner, Run};
use crate::select::QueryOutput;
use crate::select::table_rows::TableRows;
use crate::syntax::parse::Parsed;

/// The connection that statements come from.
#[derive(Debug, Clone)]
pub struct ClientContext {
    /// The value of `now()`, in nanoseconds since the Unix epoch.
    pub now_ns: i64,
    /// Where days begin.
    pub time_zone: TimeZone,
    /// The database that statements run on.
    pub database: String,
    /// The value of `current_user`.
    pub user: String,
    /// The values of `$1`, `$2` …
    pub parameters: Vec<Value>,
    /// How names and groups are read.
    pub manner: Manner,
}

impl ClientContext {
    /// Of statements on a database at a moment, in UTC and as Postgres reads them.
    pub fn new(database: impl Into<String>, now_ns: i64) -> Self {
        Self {
            now_ns,
            time_zone: TimeZone::UTC,
            database: database.into(),
            user: "thalweg".to_owned(),
            parameters: Vec::new(),
            manner: Manner::Postgres,
        }
    }

    /// Returns whether days begin where they do in UTC.
    pub fn is_in_utc(&self) -> bool {
        self.time_zone == TimeZone::UTC || matches!(self.time_zone.iana_name(), Some("UTC" | "Etc/UTC"))
    }
}

/// The answer to a statement.
#[derive(Debug)]
pub enum Answer {
    /// A table.
    Rows(Relation),
    /// Rows of a table of the database as they were read.
    Table(TableRows),
    /// Rows to be sent.
    CopyOut(CopyOut),
    /// Rows to be waited for: [`copy_in`] takes them.
    CopyIn(CopyIn),
    /// A setting of the session, and its new value.
    Set(String, String),
    /// It is done; the words by which Postgres says so.
    Done(String),
}

impl Answer {
    /// The table that it is, with values.
    pub fn relation(self) -> Option<Relation> {
        match self {
            Self::Rows(relation) => Some(relation),
            Self::Table(table) => Some(table.into_relation()),
            Self::CopyOut(_) | Self::CopyIn(_) | Self::Set(..) | Self::Done(_) => None,
        }
    }
}

/// Runs one of the statements.
pub fn run(parsed: &Parsed, place: usize, session: &dyn Session, client: &ClientContext) -> Result<Answer, SqlError> {
    let Some(statement) = parsed.statements.get(place) else { return Ok(Answer::Done(String::new())) };
    started(parsed, session, client, false).statement(statement)
}

/// Writes the rows that a client sent for a COPY … FROM; returns how many.
pub fn copy_in(copy: &CopyIn, sent: Vec<u8>, session: &dyn Session, client: &ClientContext) -> Result<usize, SqlError> {
    started(&Parsed::default(), session, client, false).copied(copy, sent)
}

/// Writes rows of a table that came without a statement; returns how many. Texts of columns that are new become tags.
pub fn insert_rows(
    table: &str,
    relation: Relation,
    session: &dyn Session,
    client: &ClientContext,
) -> Result<usize, SqlError> {
    let names: Vec<String> = relation.columns.into_iter().map(|column| column.name).collect();
    let parsed = Parsed::default();
    let mut run = started(&parsed, session, client, false);
    run.charge(relation.rows.len() * names.len().max(1))?;
    run.insert_rows(table, &names, relation.rows)
}

/// The columns that a statement will give, without running it; none if it gives no table.
pub fn describe(
    parsed: &Parsed,
    place: usize,
    session: &dyn Session,
    client: &ClientContext,
) -> Result<Vec<Column>, SqlError> {
    let Some(statement) = parsed.statements.get(place) else { return Ok(Vec::new()) };
    if matches!(statement, Statement::Insert(_) | Statement::Copy { .. }) {
        return Ok(Vec::new());
    }
    match started(parsed, session, client, true).statement(statement)? {
        Answer::Rows(relation) => Ok(relation.columns),
        Answer::Table(table) => Ok(table.columns),
        _ => Ok(Vec::new()),
    }
}

fn started<'a>(parsed: &'a Parsed, session: &'a dyn Session, client: &'a ClientContext, describes: bool) -> Run<'a> {
    let environment = Environment {
        now_ns: client.now_ns,
        time_zone: client.time_zone.clone(),
        database: client.database.clone(),
        user: client.user.clone(),
    };
    Run {
        session,
        parsed,
        environment: Arc::new(environment),
        parameters: &client.parameters,
        manner: client.manner,
        describes,
        plans: Vec::new(),
        ctes: Vec::new(),
        depth: 0,
    }
}

impl Run<'_> {
    fn statement(&mut self, statement: &Statement) -> Result<Answer, SqlError> {
        Ok(match statement {
            Statement::Query(query) => match self.output(query)? {
                QueryOutput::Table(table) => Answer::Table(table),
                QueryOutput::Relation(relation) => Answer::Rows(relation),
            },
            Statement::Insert(insert) => Answer::Done(format!("INSERT 0 {}", self.insert(insert)?)),
            Statement::Copy { source, to, target, options, legacy_options, .. } => {
                match self.copy(source, *to, target, (options, legacy_options))? {
                    Copy::Out(rows) => Answer::CopyOut(rows),
                    Copy::In(rows) => Answer::CopyIn(rows),
                }
            }
            Statement::Explain { statement, analyze, .. } => Answer::Rows(self.explain(statement, *analyze)?),
            Statement::ShowTables { .. } => {
                let tables = self.tables()?;
                Answer::Rows(Relation::of_texts(&["table_name"], tables.into_iter().map(|table| vec![table])))
            }
            Statement::ShowColumns { show_options, .. } => Answer::Rows(self.columns(&shown_table(show_options)?)?),
            Statement::ExplainTable { table_name, .. } => {
                Answer::Rows(self.columns(&last_part(&table_name.to_string()))?)
            }
            Statement::ShowDatabases { .. } => {
                let databases = self.session.databases();
                Answer::Rows(Relation::of_texts(&["database"], databases.into_iter().map(|name| vec![name])))
            }
            Statement::ShowSchemas { .. } => Answer::Rows(Relation::of_texts(&["schema"], [vec!["public".to_owned()]])),
            Statement::ShowVariable { variable } => {
                let name: Vec<String> = variable.iter().map(|part| part.value.to_lowercase()).collect();
                self.variable(&name.join(" "))?
            }
            Statement::Set(set) => setting(set)?,
            Statement::StartTransaction { .. } => Answer::Done("BEGIN".to_owned()),
            Statement::Commit { .. } => Answer::Done("COMMIT".to_owned()),
            Statement::Rollback { .. } => Answer::Done("ROLLBACK".to_owned()),
            // Each statement is a transaction of its own.
            Statement::Savepoint { .. } => Answer::Done("SAVEPOINT".to_owned()),
            Statement::ReleaseSavepoint { .. } => Answer::Done("RELEASE".to_owned()),
            Statement::Discard { .. } => Answer::Done("DISCARD ALL".to_owned()),
            Statement::Deallocate { .. } => Answer::Done("DEALLOCATE".to_owned()),
            Statement::Close { .. } => Answer::Done("CLOSE CURSOR".to_owned()),
            other => {
                if let Some(change) = self.change(other)? {
                    let tag = if self.describes { "" } else { self.apply(change)? };
                    return Ok(Answer::Done(tag.to_owned()));
                }
                let text = other.to_string();
                let words: Vec<&str> = text.split_whitespace().take(2).collect();
                return unsupported(format!("the statement {}", words.join(" ")));
            }
        })
    }

    fn explain(&mut self, statement: &Statement, analyze: bool) -> Result<Relation, SqlError> {
        let Statement::Query(query) = statement else { return unsupported("EXPLAIN of something else than a query") };
        let described = self.describes;
        self.describes = described || !analyze;
        let samples = self.session.budget().samples();
        let start_ns = self.session.now_ns();
        let rows = self.query(query)?.rows.len();
        let elapsed_ns = self.session.now_ns() - start_ns;
        self.describes = described;
        let mut lines: Vec<String> = self
            .plans
            .iter()
            .flat_map(|plan| plan.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        if lines.is_empty() {
            lines.push("no table is read".to_owned());
        }
        if analyze {
            let held = self.session.budget().samples().saturating_sub(samples);
            lines.push(format!("rows={rows} cells_held={held} time={:.3} ms", elapsed_ns as f64 / 1e6));
            let reads = self.session.reads();
            lines.push(format!(
                "groups={} samples={} nodes={} window_rows={} window_chunks={}",
                reads.groups, reads.samples, reads.nodes, reads.window_rows, reads.window_chunks
            ));
            lines.extend(reads.cached_bins.summary());
            for (place, origin) in
                reads.origins.named().into_iter().filter(|(_, origin)| origin.rows + origin.bytes > 0)
            {
                lines.push(format!("{place}: chunks={} rows={} bytes={}", origin.chunks, origin.rows, origin.bytes));
            }
        }
        Ok(Relation::of_texts(&["QUERY PLAN"], lines.into_iter().map(|line| vec![line])))
    }

    /// QuestDB's `tables()` and `table_columns('…')`; `None` for other names.
    pub(crate) fn table_list(&mut self, function: &str, arguments: &[Value]) -> Result<Option<Relation>, SqlError> {
        Ok(match (function, arguments) {
            ("tables", []) => {
                let time_name = self.time_name();
                let row = |(number, table): (usize, String)| {
                    let [designated, partition] = [time_name, "DAY"].map(str::to_owned);
                    vec![(number + 1).to_string(), table, designated, partition, "true".to_owned(), "true".to_owned()]
                };
                let names = ["id", "table_name", "designatedTimestamp", "partitionBy", "walEnabled", "dedup"];
                Some(Relation::of_texts(&names, self.tables()?.into_iter().enumerate().map(row)))
            }
            ("table_columns", [table]) => Some(self.columns(&table.to_string())?),
            _ => None,
        })
    }

    fn columns(&mut self, table: &str) -> Result<Relation, SqlError> {
        let schema = self.schema(table, false)?;
        let row = |(name, sql_type, kind): (String, crate::SqlType, &str)| {
            let designated = (kind == "time").to_string();
            vec![name, questdb_type(sql_type, kind).to_owned(), designated, kind.to_owned()]
        };
        let rows = columns_of(&schema, self.time_name()).into_iter().map(row);
        Ok(Relation::of_texts(&["column", "type", "designated", "kind"], rows))
    }

    fn variable(&mut self, name: &str) -> Result<Answer, SqlError> {
        let value = match name {
            "tables" => {
                let tables = self.tables()?;
                return Ok(Answer::Rows(Relation::of_texts(
                    &["table_name"],
                    tables.into_iter().map(|table| vec![table]),
                )));
            }
            _ => match setting_of(name, &self.environment) {
                Some(value) => value,
                None => return invalid(format!("unrecognized configuration parameter \"{name}\"")),
            },
        };
        Ok(Answer::Rows(Relation::of_texts(&[name], [vec![value]])))
    }
}

/// A setting of the session that clients ask for; `None` if there is none of the name.
pub(crate) fn setting_of(name: &str, environment: &Environment) -> Option<String> {
    let value = match name {
        "timezone" | "time zone" => environment.time_zone.iana_name().unwrap_or("UTC"),
        "transaction isolation level" | "transaction_isolation" | "default_transaction_isolation" => "read committed",
        "server_version" => "16.0",
        "server_version_num" => "160000",
        "server_encoding" | "client_encoding" => "UTF8",
        "standard_conforming_strings" | "integer_datetimes" => "on",
        "datestyle" => "ISO, MDY",
        "search_path" => "public",
        "max_identifier_length" => "63",
        "transaction_read_only" | "default_transaction_read_only" | "is_superuser" => "off",
        _ => return None,
    };
    Some(value.to_owned())
}

/// As QuestDB's clients know types.
fn questdb_type(sql_type: crate::SqlType, kind: &str) -> &'static str {
    match sql_type {
        crate::SqlType::Timestamp | crate::SqlType::LocalTimestamp | crate::SqlType::Date => "TIMESTAMP",
        crate::SqlType::Bool => "BOOLEAN",
        crate::SqlType::Int => "LONG",
        crate::SqlType::Float => "DOUBLE",
        crate::SqlType::Interval => "INTERVAL",
        _ if kind == "tag" => "SYMBOL",
        _ => "VARCHAR",
    }
}

fn last_part(name: &str) -> String {
    name.rsplit('.').next().unwrap_or_default().trim_matches('"').to_owned()
}

fn shown_table(options: &ShowStatementOptions) -> Result<String, SqlError> {
    let table = options.show_in.as_ref().and_then(|within| within.parent_name.as_ref());
    match table {
        Some(table) => Ok(last_part(&table.to_string())),
        None => invalid("SHOW COLUMNS FROM names a table"),
    }
}

/// Settings that mean nothing here are taken as they are: clients send many.
fn setting(set: &Set) -> Result<Answer, SqlError> {
    match set {
        Set::SetTimeZone { value, .. } => zone_setting(&value.to_string()),
        Set::SingleAssignment { variable, values, .. } => {
            let name = variable.to_string().to_lowercase();
            let value = values.first().map(ToString::to_string).unwrap_or_default();
            if name == "timezone" {
                return zone_setting(&value);
            }
            Ok(Answer::Set(name, value.trim_matches('\'').to_owned()))
        }
        _ => Ok(Answer::Done("SET".to_owned())),
    }
}

fn zone_setting(value: &str) -> Result<Answer, SqlError> {
    let name = value.trim_matches(['\'', '"']);
    let name = if name.eq_ignore_ascii_case("default") || name.eq_ignore_ascii_case("local") { "UTC" } else { name };
    let zone = time_zone(name)?;
    // Literals and rows that are written have no other zone: half of a setting would be worse than none.
    if zone != TimeZone::UTC && !matches!(zone.iana_name(), Some("UTC" | "Etc/UTC")) {
        return invalid(format!(
            "sessions are in UTC, not in {name}: name the zone where it matters, as in time AT TIME ZONE '{name}' or date_trunc('day', time, '{name}')"
        ));
    }
    Ok(Answer::Set("timezone".to_owned(), name.to_owned()))
}
