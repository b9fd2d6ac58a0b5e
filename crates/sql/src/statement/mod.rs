//! Statements by kind.

mod accepted;
mod change;
mod conflict;
mod create;
mod insert;
pub(crate) mod likeness;
mod pending;
pub(crate) mod policies;
mod regular;
mod returning;
mod row_program;
mod schemas;
mod session;
mod settings;
mod stored_queries;
mod table_options;
mod timescale;
mod view_columns;
pub(crate) mod views;

use std::sync::Arc;

use query::{Plan, Session, Value};
use sqlparser::ast::{ShowCreateObject, ShowStatementOptions, Statement};

pub(crate) use insert::Unwritable;
pub use row_program::{MissingColumns, OutputColumn, RowProgram, RowProgramText};
pub use session::{CursorStep, Declared, Fetch, Prepared, SessionCommand, session_command};

use crate::catalog::columns_of;
use crate::context::{ChangedSettings, ClientContext, Setting};
use crate::copy::{Copy, CopyIn, CopyOut};
use crate::error::{SqlError, invalid, unsupported};
use crate::expression::{Environment, ParameterType};
use crate::relation::{Column, Relation};
use crate::run::Run;
use crate::select::QueryOutput;
use crate::select::table_rows::TableRows;
use crate::syntax::parse::Parsed;
use crate::syntax::triggers::{TRIGGER_COLUMNS, TriggerStatement};

/// The answer to a statement.
#[derive(Debug)]
pub enum Answer {
    /// A table.
    Rows(Relation),
    /// Rows of a table of the database as they were read.
    Table(TableRows),
    /// Rows that a statement wrote and gives back, and the words by which Postgres says that it is done, but for their number.
    Returned(Relation, &'static str),
    /// Rows to be sent.
    CopyOut(CopyOut),
    /// Rows to be waited for: [`copy_in`] takes them.
    CopyIn(CopyIn),
    /// A setting of the session.
    Set(Setting),
    /// It is done; the words by which Postgres says so.
    Done(String),
}

impl Answer {
    /// The table that it is, with values.
    pub fn relation(self) -> Option<Relation> {
        match self {
            Self::Rows(relation) | Self::Returned(relation, _) => Some(relation),
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
    run.insert_rows(table, &names, relation.rows, Unwritable::Refused)
}

/// Writes rows that a [`RowProgram`] made to a table; returns how many. Rows and values that the store does not have are left
/// out.
pub fn insert_outputs(
    table: &str,
    columns: &[OutputColumn],
    rows: Vec<Vec<Value>>,
    session: &dyn Session,
    client: &ClientContext,
) -> Result<usize, SqlError> {
    let parsed = Parsed::default();
    let mut run = started(&parsed, session, client, false);
    run.charge(rows.len() * columns.len().max(1))?;
    run.insert_outputs(table, columns, rows)
}

/// The columns that a statement will give, without running it; none if it gives no table.
pub fn describe(
    parsed: &Parsed,
    place: usize,
    session: &dyn Session,
    client: &ClientContext,
) -> Result<Vec<Column>, SqlError> {
    let Some(statement) = parsed.statements.get(place) else { return Ok(Vec::new()) };
    if matches!(statement, Statement::Copy { .. }) {
        return Ok(Vec::new());
    }
    match started(parsed, session, client, true).statement(statement)? {
        Answer::Rows(relation) | Answer::Returned(relation, _) => Ok(relation.columns),
        Answer::Table(table) => Ok(table.columns),
        _ => Ok(Vec::new()),
    }
}

/// The types of a statement's parameters, by what stands beside them; `None` where nothing says. The client has a value for each.
pub fn parameter_types(
    parsed: &Parsed,
    position: usize,
    session: &dyn Session,
    client: &ClientContext,
) -> Vec<Option<ParameterType>> {
    let mut run = started(parsed, session, client, true);
    run.parameter_types = vec![None; client.parameters.len()];
    if let Some(statement) = parsed.statements.get(position) {
        // One that cannot be described yet says more when it runs.
        let _ = run.statement(statement);
    }
    run.parameter_types
}

fn started<'a>(parsed: &'a Parsed, session: &'a dyn Session, client: &'a ClientContext, describes: bool) -> Run<'a> {
    let environment = Environment {
        now_ns: client.now_ns,
        time_zone: client.time_zone.clone(),
        manner: client.manner,
        database: client.database.clone(),
        user: client.user.clone(),
        settings: client.settings.clone(),
        // Of a statement that is only described none is taken over.
        changed_settings: if describes {
            client.changed_settings.as_ref().map(|_| ChangedSettings::default())
        } else {
            client.changed_settings.clone()
        },
    };
    Run {
        session,
        parsed,
        environment: Arc::new(environment),
        client,
        parameters: &client.parameters,
        parameter_types: Vec::new(),
        manner: client.manner,
        describes,
        plans: Vec::new(),
        ctes: Vec::new(),
        depth: 0,
        views: Vec::new(),
        operators: parsed.depth,
        expansions: 0,
        expanded_bytes: 0,
        hides_views: false,
    }
}

impl Run<'_> {
    fn statement(&mut self, statement: &Statement) -> Result<Answer, SqlError> {
        self.view_statement(statement)?.map_or_else(|| self.other_statement(statement), Ok)
    }

    /// A statement that is not about materialised views.
    fn other_statement(&mut self, statement: &Statement) -> Result<Answer, SqlError> {
        if let Some((answer, notice)) = accepted::accepted(statement) {
            if !self.describes {
                self.client.notices.push(notice);
            }
            return Ok(answer);
        }
        if let Some(answer) = self.server_statement(statement) {
            return answer;
        }
        if let Some(answer) = self.stored_query_statement(statement)? {
            return Ok(answer);
        }
        Ok(match statement {
            Statement::Query(query) => match self.output(query)? {
                QueryOutput::Table(table) => Answer::Table(table),
                QueryOutput::Relation(relation) => Answer::Rows(relation),
            },
            Statement::Insert(insert) => self.insert(insert)?,
            Statement::Copy { source, to, target, options, legacy_options, .. } => {
                match self.copy(source, *to, target, (options, legacy_options))? {
                    Copy::Out(rows) => Answer::CopyOut(rows),
                    Copy::In(rows) => Answer::CopyIn(rows),
                }
            }
            Statement::Explain { statement, analyze, .. } => Answer::Rows(self.explain(statement, *analyze)?),
            Statement::ShowTables { .. } => {
                let names = self.relations()?.into_iter().map(|relation| vec![relation.name]);
                Answer::Rows(Relation::of_texts(&["table_name"], names))
            }
            Statement::ShowColumns { show_options, .. } => Answer::Rows(self.columns(&shown_table(show_options)?)?),
            Statement::ShowCreate { obj_type: ShowCreateObject::Table, obj_name } => {
                Answer::Rows(self.create_statement(&last_part(&obj_name.to_string()))?)
            }
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
            Statement::Set(set) => settings::setting(set)?,
            // Where there is no session, each statement is a transaction of its own.
            Statement::StartTransaction { .. } => Answer::Done("BEGIN".to_owned()),
            Statement::Commit { .. } => Answer::Done("COMMIT".to_owned()),
            Statement::Rollback { .. } => Answer::Done("ROLLBACK".to_owned()),
            Statement::Savepoint { .. } => Answer::Done("SAVEPOINT".to_owned()),
            Statement::ReleaseSavepoint { .. } => Answer::Done("RELEASE".to_owned()),
            Statement::Reset(_) => Answer::Done("RESET".to_owned()),
            Statement::Discard { object_type } => Answer::Done(format!("DISCARD {object_type}")),
            Statement::Deallocate { .. } => Answer::Done("DEALLOCATE".to_owned()),
            Statement::Close { .. } => Answer::Done("CLOSE CURSOR".to_owned()),
            // Nothing notifies, so that there is nothing to stop listening to.
            Statement::UNLISTEN { .. } => Answer::Done("UNLISTEN".to_owned()),
            other => {
                if let Some(change) = self.change(other)? {
                    return Ok(Answer::Done(if self.describes { String::new() } else { self.apply(change)? }));
                }
                let text = other.to_string();
                let words: Vec<&str> = text.split_whitespace().take(2).collect();
                return unsupported(format!("the statement {}", words.join(" ")));
            }
        })
    }

    /// A statement that the server runs, which knows users and triggers; `None` if it is none.
    fn server_statement(&self, statement: &Statement) -> Option<Result<Answer, SqlError>> {
        if let Some(about) = self.parsed.about_triggers(statement) {
            return Some(self.trigger_statement(about));
        }
        if !self.parsed.is_about_users(statement) {
            return None;
        }
        let message = "statements about users are taken over HTTP and Postgres's protocol";
        Some(if self.describes { Ok(Answer::Done(String::new())) } else { unsupported(message) })
    }

    /// The server runs statements about triggers; here only the columns of their answers are known.
    fn trigger_statement(&self, about: &TriggerStatement) -> Result<Answer, SqlError> {
        if !self.describes {
            return unsupported(format!(
                "{about}: statements about triggers are taken over HTTP and Postgres's protocol, which"
            ));
        }
        if !about.only_reads() {
            return Ok(Answer::Done(about.tag().to_owned()));
        }
        let columns = TRIGGER_COLUMNS.iter().map(|(name, sql_type)| Column::new(*name, *sql_type)).collect();
        Ok(Answer::Rows(Relation { columns, rows: Vec::new() }))
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
        if self.expansions > 0 && self.hides_statements() {
            // Plans and counts of what was read would say what the views' statements are.
            let line = "views are read: the plan is shown to those who may read the whole database";
            return Ok(Relation::of_texts(&["QUERY PLAN"], [vec![line.to_owned()]]));
        }
        let plans = self.plans.iter().map(|plan| self.session.expanded(&self.environment.database, plan));
        let plans: Vec<Plan> = plans.collect::<Result<_, _>>()?;
        let mut lines: Vec<String> =
            plans.iter().flat_map(|plan| plan.to_string().lines().map(str::to_owned).collect::<Vec<_>>()).collect();
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
                let row = |(number, table): (usize, String)| {
                    let designated = self.time_name_of(&table).unwrap_or_else(|_| self.time_name().to_owned());
                    let partition = "DAY".to_owned();
                    let ttl = self.session.table_ttl_ns(&self.environment.database, &table);
                    let (ttl, unit) = create::ttl_in_units(ttl);
                    let number = (number + 1).to_string();
                    let [wal, dedup] = ["true", "true"].map(str::to_owned);
                    vec![number, table, designated, partition, wal, dedup, ttl.to_string(), unit.to_owned()]
                };
                let names = [
                    "id",
                    "table_name",
                    "designatedTimestamp",
                    "partitionBy",
                    "walEnabled",
                    "dedup",
                    "ttlValue",
                    "ttlUnit",
                ];
                let tables = self.tables()?;
                Some(Relation::of_texts(&names, tables.into_iter().enumerate().map(row)))
            }
            ("materialized_views", []) => Some(self.materialized_views()?),
            ("series_validity", []) => Some(regular::validity(self, None)?),
            ("series_validity", [name]) => Some(regular::validity(self, Some(&name.to_string()))?),
            ("series_top", arguments) => Some(regular::top(self, arguments)?),
            ("table_columns", [table]) => Some(self.columns(&table.to_string())?),
            _ => None,
        })
    }

    fn columns(&mut self, table: &str) -> Result<Relation, SqlError> {
        let columns = match self.find_query(table, false)? {
            Some(view) => self.query_columns(&view)?,
            None => {
                let schema = self.schema(table, false)?;
                columns_of(&schema, &self.time_name_of(&schema.name)?)
            }
        };
        let row = |(name, sql_type, kind): (String, crate::SqlType, &str)| {
            let designated = (kind == "time").to_string();
            vec![name, questdb_type(sql_type, kind).to_owned(), designated, kind.to_owned()]
        };
        let rows = columns.into_iter().map(row);
        Ok(Relation::of_texts(&["column", "type", "designated", "kind"], rows))
    }
}

/// As QuestDB's clients know types.
fn questdb_type(sql_type: crate::SqlType, kind: &str) -> &'static str {
    match sql_type {
        crate::SqlType::Timestamp | crate::SqlType::LocalTimestamp | crate::SqlType::Date => "TIMESTAMP",
        crate::SqlType::Bool => "BOOLEAN",
        crate::SqlType::Int | crate::SqlType::Int4 => "LONG",
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
