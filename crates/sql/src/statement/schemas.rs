//! What stands before the name of a table: a database has one schema.

use sqlparser::ast::{FromTable, ObjectName, ObjectType, Statement, TableFactor};

use crate::error::SqlError;
use crate::run::Run;

/// The schema that tables are in: as Postgres calls it, and as InfluxDB 3 does.
const SCHEMAS: [&str; 2] = ["public", "iox"];

impl Run<'_> {
    /// Refuses a name of a table with another schema, or another database, before it.
    pub(crate) fn check_schema(&self, name: &ObjectName) -> Result<(), SqlError> {
        let before = name.0.split_last().map(|(_, before)| before).unwrap_or_default();
        let is_here = |part: &str| {
            let is_schema = SCHEMAS.iter().any(|schema| part.eq_ignore_ascii_case(schema));
            is_schema || part.eq_ignore_ascii_case(&self.environment.database)
        };
        match before.iter().filter_map(|part| part.as_ident()).find(|part| !is_here(&part.value)) {
            None => Ok(()),
            Some(other) => Err(SqlError::UnknownTable(format!(
                "table \"{name}\" does not exist: {:?} is neither the schema public nor the database {:?}, which the statement is for; ask another \
                 database by itself (psql -d, ?db=)",
                other.value, self.environment.database
            ))),
        }
    }

    /// Refuses a change of a table that has such a name.
    pub(super) fn check_schemas(&self, statement: &Statement) -> Result<(), SqlError> {
        let names: Vec<&ObjectName> = match statement {
            Statement::CreateTable(create) => vec![&create.name],
            Statement::AlterTable(alter) => vec![&alter.name],
            Statement::Drop { object_type: ObjectType::Table, names, .. } => names.iter().collect(),
            Statement::Truncate(truncate) => truncate.table_names.iter().map(|target| &target.name).collect(),
            Statement::Delete(delete) => {
                let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
                from.iter().filter_map(|table| table_of(&table.relation)).collect()
            }
            _ => Vec::new(),
        };
        names.into_iter().try_for_each(|name| self.check_schema(name))
    }
}

const fn table_of(factor: &TableFactor) -> Option<&ObjectName> {
    match factor {
        TableFactor::Table { name, .. } => Some(name),
        _ => None,
    }
}
