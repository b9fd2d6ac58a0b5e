//! Statements that make and drop databases, and delete rows: what is to be done, for whoever does it.

use model::TimeRange;
use query::plan::Selector;
use sqlparser::ast::{self, FromTable, ObjectName, ObjectType, Statement, TableFactor};

use crate::error::{SqlError, invalid, unsupported};
use crate::run::Run;
use crate::select::Filter;

/// Something to be done to databases or rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Makes a database.
    CreateDatabase {
        /// Its name.
        name: String,
        /// Whether it is no error if there is one.
        if_not_exists: bool,
    },
    /// Drops a database with all that is in it.
    DropDatabase {
        /// Its name.
        name: String,
        /// Whether it is no error if there is none.
        if_exists: bool,
    },
    /// Deletes rows of a table.
    Delete {
        /// The table.
        table: String,
        /// Conditions on tags, all of which hold.
        selectors: Vec<Selector>,
        /// When.
        range: TimeRange,
        /// The words by which Postgres says that it is done.
        tag: &'static str,
    },
}

/// The last part of a name.
fn last(name: &ObjectName) -> String {
    name.0.last().and_then(|part| part.as_ident()).map(|part| part.value.clone()).unwrap_or_default()
}

impl Run<'_> {
    /// What a statement changes; `None` if it is none of these.
    pub(crate) fn change(&mut self, statement: &Statement) -> Result<Option<Change>, SqlError> {
        Ok(Some(match statement {
            Statement::CreateDatabase { db_name, if_not_exists, .. } => {
                Change::CreateDatabase { name: last(db_name), if_not_exists: *if_not_exists }
            }
            Statement::Drop { object_type, if_exists, names, .. } => {
                let [name] = names.as_slice() else { return unsupported("DROP of several at once") };
                match object_type {
                    ObjectType::Database => Change::DropDatabase { name: last(name), if_exists: *if_exists },
                    ObjectType::Table => self.drop_table(&last(name), *if_exists)?,
                    _ => return unsupported(format!("DROP {object_type}")),
                }
            }
            Statement::Delete(delete) => self.delete(delete)?,
            _ => return Ok(None),
        }))
    }

    /// A table is its rows: without any there is none.
    fn drop_table(&mut self, name: &str, if_exists: bool) -> Result<Change, SqlError> {
        let table = match self.schema(name, false) {
            Ok(schema) => schema.name,
            Err(SqlError::UnknownTable(_)) if if_exists => name.to_owned(),
            Err(error) => return Err(error),
        };
        Ok(Change::Delete { table, selectors: Vec::new(), range: TimeRange::ALL, tag: "DROP TABLE" })
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
        let mut scan = query::plan::Scan::of_table(schema.name.as_str());
        if let Some(condition) = &delete.selection {
            let condition = self.bind(&scope, condition)?.expression;
            if !Filter::of(condition, &mut scan, &scope).is_of_series() {
                return invalid("DELETE takes conditions on tags and on time, put together by AND");
            }
        }
        Ok(Change::Delete { table: schema.name, selectors: scan.selectors, range: scan.range, tag: "DELETE" })
    }
}
