//! Triggers: rows of a table that satisfy a condition are written to another table, or posted to a hook.
//!
//! * this file: conditions over rows of the log, and delivering · [`cycle`]: triggers that would feed themselves

pub(crate) mod cycle;

use std::fmt::Write;
use std::sync::Arc;

use access::scope::Scope;
use db::LogRecord;
use parking_lot::Mutex;
use platform::network::HttpRequest;
use platform::network::retry::Verdict;
use query::{QueryError, TableSchema, Value};
use sql::{ClientContext, MissingColumns, OutputColumn, RowProgram, RowProgramText, SqlError};

use crate::delivery::context::{Delivered, Shared};
use crate::delivery::definition::{TriggerAction, TriggerName};
use crate::delivery::queue::{Chunk, Payload, Pending, RowWork};
use crate::hook::{self, Hook};
use crate::json;
use crate::rows::{Row, RowShape, rows};

/// What a trigger does.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TriggerWork {
    pub(crate) name: TriggerName,
    pub(crate) table: String,
    pub(crate) condition: String,
    pub(crate) action: TriggerAction,
}

/// What a trigger's table has, as far as it was looked up.
pub(crate) type SchemaCache = Option<Arc<TableSchema>>;

impl TriggerWork {
    /// The address of its hook, if it has one.
    pub(crate) fn url(&self) -> Option<&str> {
        match &self.action {
            TriggerAction::Webhook { url, .. } => Some(url),
            TriggerAction::Insert { .. } => None,
        }
    }

    pub(crate) fn program(&self) -> RowProgramText<'_> {
        let columns = match &self.action {
            TriggerAction::Insert { columns, .. } => columns.as_deref(),
            TriggerAction::Webhook { .. } => None,
        };
        RowProgramText { condition: &self.condition, columns }
    }

    /// The request of rows for its hook.
    pub(crate) fn request(&self, chunk: &Chunk) -> Option<HttpRequest> {
        match &self.action {
            TriggerAction::Webhook { url, secret } => {
                let TriggerName { database, name } = &self.name;
                let secret = secret.as_deref();
                Some(hook::request(Hook { trigger: name, database, table: &self.table, url, secret }, chunk))
            }
            TriggerAction::Insert { .. } => None,
        }
    }

    /// Writes rows to its table.
    pub(crate) fn insert(&self, shared: &Shared, chunk: &Chunk, scope: &Arc<Scope>) -> Delivered {
        let TriggerAction::Insert { table, .. } = &self.action else { return Verdict::Sent.into() };
        let insert = Insert { shared, scope, database: &self.name.database, table };
        let rows: Vec<(&Arc<[OutputColumn]>, &Vec<Value>)> = chunk
            .items
            .iter()
            .filter_map(|item| match &item.payload {
                Payload::Row(columns, values) => Some((columns, values)),
                Payload::Text(_) => None,
            })
            .collect();
        let mut refused = Refused::default();
        match insert.write_parts(&rows, &mut refused) {
            Ok(()) => Delivered { verdict: Verdict::Sent, failed_rows: refused.rows, failure: refused.reason },
            Err(reason) => Verdict::Retry { after_ms: None, reason }.into(),
        }
    }
}

/// Why rows were not written.
enum Refusal {
    /// They never will be: some of them are wrong, or they are too many at once.
    Wrong(String),
    /// They may be later, or fewer of them.
    TooMuchForNow(String),
    /// They may be later.
    ForNow(String),
}

/// Rows that were refused for good, and why the last of them was.
#[derive(Default)]
struct Refused {
    rows: u64,
    reason: Option<String>,
}

/// The table that rows are written to, and with whose rights.
struct Insert<'a> {
    shared: &'a Shared,
    scope: &'a Arc<Scope>,
    database: &'a str,
    table: &'a str,
}

impl Insert<'_> {
    fn write(&self, columns: &[OutputColumn], rows: Vec<Vec<Value>>) -> Result<(), Refusal> {
        let db = self.shared.db();
        let budget = self.shared.owners.budget(self.database, self.scope);
        let client = ClientContext::new(self.database, db.now_ns());
        let written = db.insert_outputs(self.table, columns, rows, &client, &budget);
        written.map(drop).map_err(|error| match error {
            SqlError::Query(
                QueryError::Invalid(_)
                | QueryError::Execution(_)
                | QueryError::Forbidden(_)
                | QueryError::TooManySamples { .. },
            ) => Refusal::Wrong(error.to_string()),
            SqlError::Query(QueryError::TooMuchMemory { .. } | QueryError::OverQuota(_)) => {
                Refusal::TooMuchForNow(error.to_string())
            }
            SqlError::Query(_) => Refusal::ForNow(error.to_string()),
            _ => Refusal::Wrong(error.to_string()),
        })
    }

    /// Writes rows together, or else each half of them: one that cannot be written must not keep the others from being written, nor must their
    /// number. What is written twice is there once. An error says why to try again later.
    fn write_parts(&self, rows: &[(&Arc<[OutputColumn]>, &Vec<Value>)], refused: &mut Refused) -> Result<(), String> {
        let Some((columns, _)) = rows.first() else { return Ok(()) };
        let all = rows.iter().map(|(_, values)| (*values).clone()).collect();
        match self.write(columns, all) {
            Ok(()) => Ok(()),
            Err(Refusal::Wrong(_) | Refusal::TooMuchForNow(_)) if rows.len() > 1 => {
                let (first, second) = rows.split_at(rows.len() / 2);
                self.write_parts(first, refused)?;
                self.write_parts(second, refused)
            }
            Err(Refusal::Wrong(reason)) => {
                refused.rows += 1;
                refused.reason = Some(reason);
                Ok(())
            }
            Err(Refusal::TooMuchForNow(reason) | Refusal::ForNow(reason)) => Err(reason),
        }
    }
}

/// What a trigger is bound to.
#[derive(Clone, Copy)]
pub(crate) struct Bound<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) schema: &'a Mutex<SchemaCache>,
    pub(crate) scope: &'a Arc<Scope>,
}

/// A trigger over a batch of the log.
pub(crate) struct TriggerRun<'a> {
    work: &'a TriggerWork,
    /// An error: why it does not go with what the table has by now. Each row fails with it.
    program: Result<TableProgram, String>,
}

/// A trigger's program, bound to its table.
struct TableProgram {
    schema: Arc<TableSchema>,
    program: RowProgram,
    columns: Arc<[OutputColumn]>,
}

/// Returns whether another attempt would fail, too.
const fn is_for_good(error: &SqlError) -> bool {
    match error {
        SqlError::Query(error) => matches!(error, QueryError::Invalid(_) | QueryError::Execution(_)),
        _ => true,
    }
}

impl<'a> TriggerRun<'a> {
    /// Binds the trigger to its table; `None` if the batch has no rows for it. An error says why to try again later.
    pub(crate) fn new(work: &'a TriggerWork, to: Bound<'_>, pending: &Pending) -> Result<Option<Self>, String> {
        let records = pending.batch.records.iter().filter(|record| record.sequence > pending.after);
        let records: Vec<&LogRecord> = records.collect();
        let is_of_table = |row: &Row<'_>| row.table() == work.table;
        if !records.iter().any(|record| rows(record).any(|row| is_of_table(&row))) {
            return Ok(None);
        }
        let known = to.schema.lock().clone();
        let is_known = known.as_ref().is_some_and(|schema| {
            let shape = RowShape::new(schema);
            records.iter().all(|record| rows(record).all(|row| !is_of_table(&row) || shape.has_columns_of(&row)))
        });
        let client = ClientContext::new(&*work.name.database, to.shared.db().now_ns());
        let schema = match known.filter(|_| is_known) {
            Some(schema) => schema,
            None => {
                let budget = to.shared.owners.budget(&work.name.database, to.scope);
                let schema = match to.shared.db().table_schema(&work.table, &client, &budget) {
                    Ok(Some(schema)) => Arc::new(schema),
                    // A table that was dropped since.
                    Ok(None) => return Ok(None),
                    Err(error) if is_for_good(&error) => {
                        return Ok(Some(Self { work, program: Err(error.to_string()) }));
                    }
                    Err(error) => return Err(error.to_string()),
                };
                *to.schema.lock() = Some(schema.clone());
                schema
            }
        };
        let program = match RowProgram::new(work.program(), &schema, &client, MissingColumns::Null) {
            Ok(program) => Ok(TableProgram { schema, columns: program.columns().into(), program }),
            Err(error) if is_for_good(&error) => Err(error.to_string()),
            Err(error) => return Err(error.to_string()),
        };
        Ok(Some(Self { work, program }))
    }
}

impl RowWork for TriggerRun<'_> {
    fn payload(&mut self, row: &Row<'_>, sequence: u64) -> Result<Option<Payload>, String> {
        if row.table() != self.work.table || row.fields().next().is_none() {
            return Ok(None);
        }
        let TableProgram { schema, program, columns } = self.program.as_ref().map_err(String::clone)?;
        let values = RowShape::new(schema).values(row);
        if !program.holds(&values).map_err(|error| error.to_string())? {
            return Ok(None);
        }
        if self.work.url().is_some() {
            return Ok(Some(Payload::Text(row_json(row, sequence))));
        }
        let outputs = program.values(&values).map_err(|error| error.to_string())?;
        Ok(Some(Payload::Row(columns.clone(), outputs)))
    }
}

/// A row as hooks get it.
fn row_json(row: &Row<'_>, sequence: u64) -> String {
    let mut out = format!("{{\"sequence\":{sequence},\"time\":\"{}\",\"tags\":", json::time(row.timestamp_ns()));
    json::push_labels(&mut out, &row.tags());
    out.push_str(",\"fields\":{");
    for (index, (name, value)) in row.fields().enumerate() {
        out.push_str(if index == 0 { "" } else { "," });
        // Writing into a string does not fail.
        let _ = write!(out, "{}:", json::text(name));
        json::push_value(&mut out, value);
    }
    out.push_str("}}");
    out
}
