//! Statements that make and drop databases, and delete rows.

use model::TimeRange;
use query::plan::Scan;
use query::{DatabaseSettings, NewTable, TableSchema, Value};
use sqlparser::ast::{self, AlterTableOperation, Expr, FromTable, ObjectName, ObjectType, Statement, TableFactor};

use super::create::create_table;
use super::table_options::TableOptions;
use crate::error::{SqlError, invalid, refused, unsupported};
use crate::pending::DeletedRows;
use crate::run::Run;
use crate::select::lower;

/// Something to be done to databases or rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// Makes a database.
    CreateDatabase {
        /// Its name.
        name: String,
        /// True if an existing one is no error.
        if_not_exists: bool,
        /// How it keeps its data.
        settings: DatabaseSettings,
    },
    /// Changes how a database keeps its data.
    AlterDatabase {
        /// Its name.
        name: String,
        /// The settings that change.
        settings: DatabaseSettings,
    },
    /// Makes a table's columns before there are rows.
    CreateTable {
        /// The table.
        table: NewTable,
        /// How long it keeps its rows, if that is said; 0: as long as its database does.
        ttl_ns: Option<i64>,
        /// True if an existing one is no error.
        if_not_exists: bool,
        /// What the client is told of it.
        notices: Vec<String>,
    },
    /// Changes how long a table keeps its rows.
    AlterTable {
        /// The table.
        table: String,
        /// In nanoseconds; 0: as long as its database does.
        ttl_ns: i64,
    },
    /// Drops a table with its rows and columns.
    DropTable {
        /// The table.
        table: String,
    },
    /// Drops a database with all that is in it.
    DropDatabase {
        /// Its name.
        name: String,
        /// True if a missing one is no error.
        if_exists: bool,
    },
    /// Deletes rows of tables.
    Delete {
        /// The rows of each table.
        rows: Vec<DeletedRows>,
        /// The words by which Postgres says that it is done.
        tag: String,
    },
}

impl Change {
    /// The words by which Postgres calls it.
    const fn name(&self) -> &'static str {
        match self {
            Self::CreateDatabase { .. } => "CREATE DATABASE",
            Self::AlterDatabase { .. } => "ALTER DATABASE",
            Self::CreateTable { .. } => "CREATE TABLE",
            Self::AlterTable { .. } => "ALTER TABLE",
            Self::DropDatabase { .. } => "DROP DATABASE",
            Self::DropTable { .. } => "DROP TABLE",
            Self::Delete { .. } => "DELETE",
        }
    }
}

/// The last part of a name.
pub(super) fn last(name: &ObjectName) -> String {
    name.0.last().and_then(|part| part.as_ident()).map(|part| part.value.clone()).unwrap_or_default()
}

impl Run<'_> {
    /// The change that a statement makes; `None` if it is none of these.
    pub(crate) fn change(&mut self, statement: &Statement) -> Result<Option<Change>, SqlError> {
        self.check_schemas(statement)?;
        Ok(Some(match statement {
            Statement::CreateDatabase { db_name, if_not_exists, .. } => self.database(db_name, *if_not_exists),
            Statement::CreateTable(create) => create_table(create)?,
            Statement::AlterTable(alter) => self.alter_table(alter)?,
            Statement::Drop { object_type, if_exists, names, .. } => {
                let [name] = names.as_slice() else { return unsupported("DROP of several at once") };
                match object_type {
                    ObjectType::Database => Change::DropDatabase { name: last(name), if_exists: *if_exists },
                    ObjectType::Table => self.drop_table(&last(name), *if_exists)?,
                    _ => return unsupported(format!("DROP {object_type}")),
                }
            }
            Statement::Delete(delete) => self.delete(delete)?,
            Statement::Truncate(truncate) => self.truncate(truncate)?,
            Statement::Update(_) => {
                return refused(
                    "0A000",
                    "rows are overwritten, not updated: INSERT a row with the same time and tags and the fields that change, or use INSERT … ON CONFLICT DO UPDATE",
                );
            }
            _ => return Ok(None),
        }))
    }

    /// Makes a change; returns the words by which Postgres says that it is done.
    pub(crate) fn apply(&self, change: Change) -> Result<String, SqlError> {
        if let Change::Delete { rows, tag } = change {
            rows.into_iter().try_for_each(|rows| self.delete_rows(rows))?;
            return Ok(tag);
        }
        self.write_pending(change.name())?;
        self.apply_at_once(change).map(str::to_owned)
    }

    fn apply_at_once(&self, change: Change) -> Result<&'static str, SqlError> {
        let (session, database) = (self.session, &self.environment.database);
        let exists = |name: &String| session.databases().contains(name);
        let missing = |name: &str| Err(SqlError::UnknownTable(format!("database \"{name}\" does not exist")));
        match change {
            Change::CreateDatabase { name, if_not_exists, .. } if exists(&name) && !if_not_exists => {
                invalid(format!("database \"{name}\" already exists"))
            }
            Change::CreateDatabase { name, settings, .. } => {
                session.set_up_database(&name, &settings)?;
                Ok("CREATE DATABASE")
            }
            Change::AlterDatabase { name, .. } if !exists(&name) => missing(&name),
            Change::AlterDatabase { name, settings } => {
                session.set_up_database(&name, &settings)?;
                Ok("ALTER DATABASE")
            }
            Change::CreateTable { table, ttl_ns, if_not_exists, notices } => {
                let known = self.table(&table.name)?;
                let exists = known.is_some();
                if exists && if_not_exists {
                    return Ok("CREATE TABLE");
                }
                // A table without rows may be made again: the store refuses fields of another type.
                if exists && !session.groups(database, &Scan::of_table(table.name.as_str()))?.is_empty() {
                    return invalid(format!("relation \"{}\" already exists", table.name));
                }
                check_known_columns(&table, known.as_ref())?;
                session.create_table(database, &table)?;
                if let Some(ttl_ns) = ttl_ns {
                    session.set_table_ttl(database, &table.name, ttl_ns)?;
                }
                notices.into_iter().for_each(|notice| self.client.notices.push(notice));
                Ok("CREATE TABLE")
            }
            Change::AlterTable { table, ttl_ns } => {
                session.set_table_ttl(database, &table, ttl_ns)?;
                Ok("ALTER TABLE")
            }
            Change::DropTable { table } => {
                session.drop_table(database, &table)?;
                Ok("DROP TABLE")
            }
            Change::DropDatabase { name, if_exists } => {
                if !session.drop_database(&name)? && !if_exists {
                    return missing(&name);
                }
                Ok("DROP DATABASE")
            }
            Change::Delete { .. } => Ok("DELETE"),
        }
    }

    /// `CREATE DATABASE … WITH …`, or `ALTER DATABASE … SET …`, which the grammar reads as the former.
    fn database(&self, name: &ObjectName, if_not_exists: bool) -> Change {
        let ident = name.0.last().and_then(|part| part.as_ident());
        let said = ident.and_then(|ident| self.parsed.databases.get(&crate::syntax::parse::position(ident.span.start)));
        let (name, said) = (last(name), said.cloned().unwrap_or_default());
        if said.is_alter {
            Change::AlterDatabase { name, settings: said.settings }
        } else {
            Change::CreateDatabase { name, if_not_exists, settings: said.settings }
        }
    }

    /// `ALTER TABLE name SET TTL 30 DAYS`
    fn alter_table(&mut self, alter: &ast::AlterTable) -> Result<Change, SqlError> {
        let name = last(&alter.name);
        let ttl_ns = match alter.operations.as_slice() {
            [AlterTableOperation::SetOptionsParens { options }] => TableOptions::read(options)?.ttl_ns,
            _ => None,
        };
        let Some(ttl_ns) = ttl_ns else {
            return invalid(format!(
                "ALTER TABLE changes how long a table keeps its rows (ALTER TABLE {name} SET TTL 30 DAYS) and nothing else: its columns come with its rows"
            ));
        };
        Ok(Change::AlterTable { table: self.schema(&name, false)?.name, ttl_ns })
    }

    fn drop_table(&mut self, name: &str, if_exists: bool) -> Result<Change, SqlError> {
        let table = match self.schema(name, false) {
            Ok(schema) => schema.name,
            Err(SqlError::UnknownTable(_)) if if_exists => name.to_owned(),
            Err(error) => return Err(error),
        };
        Ok(Change::DropTable { table })
    }

    /// `TRUNCATE a, b`: all rows; the columns stay.
    fn truncate(&mut self, truncate: &ast::Truncate) -> Result<Change, SqlError> {
        let mut rows = Vec::with_capacity(truncate.table_names.len());
        for target in &truncate.table_names {
            let schema = self.schema(&last(&target.name), false)?;
            let target_name = schema.name.clone();
            rows.push(DeletedRows {
                table: schema.name,
                selectors: Vec::new(),
                range: TimeRange::ALL,
                empty_table: Some(NewTable {
                    name: target_name,
                    tags: schema.tags,
                    fields: schema.fields,
                    layout: schema.layout.map(std::sync::Arc::unwrap_or_clone),
                })
                .filter(|table| !table.fields.is_empty()),
            });
        }
        Ok(Change::Delete { rows, tag: "TRUNCATE TABLE".to_owned() })
    }

    /// `DELETE FROM table WHERE` tags and time.
    fn delete(&mut self, delete: &ast::Delete) -> Result<Change, SqlError> {
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let [table] = from.as_slice() else { return unsupported("DELETE from several tables") };
        let TableFactor::Table { name, .. } = &table.relation else { return unsupported("DELETE from a query") };
        if delete.using.is_some() || delete.returning.is_some() || delete.limit.is_some() || !table.joins.is_empty() {
            return unsupported("USING, RETURNING and LIMIT in DELETE");
        }
        let schema = self.schema(&last(name), false)?;
        let scope = self.scope(&schema, &schema.name);
        let mut scan = Scan::of_table(schema.name.as_str());
        if let Some(condition) = &delete.selection {
            let condition = self.bind(&scope, condition)?.expression;
            if !lower(condition, &mut scan, &scope).is_in_scan() {
                return invalid("DELETE takes conditions on tags and on time, put together by AND");
            }
        }
        let tag = match self.count_deleted(name, delete.selection.as_ref()) {
            Some(count) => format!("DELETE {count}"),
            None => "DELETE".to_owned(),
        };
        let rows = DeletedRows { table: schema.name, selectors: scan.selectors, range: scan.range, empty_table: None };
        Ok(Change::Delete { rows: vec![rows], tag })
    }

    /// The number of rows that a DELETE is about; `None` if counting them is more than a query may do.
    fn count_deleted(&mut self, table: &ObjectName, condition: Option<&Expr>) -> Option<i64> {
        let filter = condition.map(|condition| format!(" WHERE {condition}")).unwrap_or_default();
        let parsed = crate::syntax::parse::parse(&format!("SELECT count(*) FROM {table}{filter}")).ok()?;
        let Some(Statement::Query(query)) = parsed.statements.first() else { return None };
        match self.query(query).ok()?.rows.first()?.first()? {
            Value::Int(count) => Some(*count),
            _ => None,
        }
    }
}

/// Refuses a time that is called as a column of a table which is there already, without rows.
fn check_known_columns(table: &NewTable, known: Option<&TableSchema>) -> Result<(), SqlError> {
    let time_name = table.layout.as_ref().and_then(|layout| layout.time_name.as_deref());
    let (Some(time_name), Some(known)) = (time_name, known) else { return Ok(()) };
    let mut columns = known.tags.iter().chain(known.fields.iter().map(|(name, _)| name));
    match columns.find(|column| column.eq_ignore_ascii_case(time_name)) {
        None => Ok(()),
        Some(column) => invalid(format!(
            "\"{}\" has the column \"{column}\" already, which is no time: DROP TABLE it first, or call the time otherwise",
            table.name
        )),
    }
}

/// A column of times beside that of the rows.
pub(super) fn second_time<T>(column: &str) -> Result<T, SqlError> {
    invalid(format!("a table's rows have one time, and \"{column}\" would be a second one: make it a BIGINT"))
}
