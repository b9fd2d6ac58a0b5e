//! What drivers ask about databases, tables, and what SQL there is. Catalogs are databases; each has the schema `public`.

use std::sync::Arc;

use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::{
    CommandGetCatalogs, CommandGetDbSchemas, CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables, SqlInfo,
    SqlSupportedTransaction,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use sql::SqlError;
use tonic::Status;

use super::{Batches, FlightResult, Service, ended, refused, sent};
use crate::sign_in::Caller;

const SCHEMA: &str = "public";
const TABLE_TYPE: &str = "TABLE";

fn failed(error: &impl std::fmt::Display) -> Status {
    Status::internal(format!("the catalog could not be written as Arrow: {error}"))
}

pub(super) fn table_types(command: CommandGetTableTypes) -> FlightResult<Batches> {
    let mut types = command.into_builder();
    types.append(TABLE_TYPE);
    let schema = types.schema();
    types.build().map(|batch| sent(schema, vec![batch])).map_err(|error| failed(&error))
}

/// What there is to know about the server.
pub(super) fn infos() -> Result<SqlInfoData, Status> {
    let mut infos = SqlInfoDataBuilder::new();
    infos.append(SqlInfo::FlightSqlServerName, "Thalweg");
    infos.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    // Of Arrow's columnar format.
    infos.append(SqlInfo::FlightSqlServerArrowVersion, "1.3");
    infos.append(SqlInfo::FlightSqlServerReadOnly, false);
    infos.append(SqlInfo::FlightSqlServerSql, true);
    infos.append(SqlInfo::FlightSqlServerSubstrait, false);
    infos.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32);
    infos.append(SqlInfo::FlightSqlServerCancel, false);
    infos.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    infos.append(SqlInfo::SqlDdlCatalog, true);
    infos.append(SqlInfo::SqlDdlSchema, false);
    infos.append(SqlInfo::SqlDdlTable, true);
    infos.append(SqlInfo::SqlTransactionsSupported, false);
    infos.build().map_err(|error| failed(&error))
}

pub(super) fn sql_info(command: CommandGetSqlInfo) -> FlightResult<Batches> {
    let infos = infos()?;
    let batch = command.into_builder(&infos).build().map_err(|error| failed(&error))?;
    Ok(sent(infos.schema(), vec![batch]))
}

/// What a list of primary keys would hold: no table has one.
pub(super) fn primary_keys() -> SchemaRef {
    let mut fields = named(&["catalog_name", "db_schema_name"], true);
    fields.extend(named(&["table_name", "column_name"], false));
    fields.push(Field::new("key_sequence", DataType::Int32, false));
    fields.extend(named(&["key_name"], true));
    Arc::new(Schema::new(fields))
}

/// What a list of keys that point at other tables would hold: there are none.
pub(super) fn foreign_keys() -> SchemaRef {
    let mut fields = Vec::new();
    for side in ["pk", "fk"] {
        let of_side = |names: &[&str], nullable| {
            named(&names.iter().map(|name| format!("{side}_{name}")).collect::<Vec<_>>(), nullable)
        };
        fields.extend(of_side(&["catalog_name", "db_schema_name"], true));
        fields.extend(of_side(&["table_name", "column_name"], false));
    }
    fields.push(Field::new("key_sequence", DataType::Int32, false));
    fields.extend(named(&["fk_key_name", "pk_key_name"], true));
    fields.extend(["update_rule", "delete_rule"].map(|name| Field::new(name, DataType::UInt8, false)));
    Arc::new(Schema::new(fields))
}

fn named(names: &[impl AsRef<str>], nullable: bool) -> Vec<Field> {
    names.iter().map(|name| Field::new(name.as_ref(), DataType::Utf8, nullable)).collect()
}

/// A table's columns in Arrow.
type TableSchema = (String, Schema);

impl Service {
    /// The databases that a client may know of.
    fn visible(&self, caller: &Caller) -> Vec<String> {
        let mut databases = self.state.db.databases();
        databases.retain(|database| caller.scope.sees(database));
        databases
    }

    pub(super) fn catalogs(&self, command: CommandGetCatalogs, caller: &Caller) -> FlightResult<Batches> {
        let mut catalogs = command.into_builder();
        self.visible(caller).into_iter().for_each(|database| catalogs.append(database));
        let schema = catalogs.schema();
        catalogs.build().map(|batch| sent(schema, vec![batch])).map_err(|error| failed(&error))
    }

    pub(super) fn schemas(&self, command: CommandGetDbSchemas, caller: &Caller) -> FlightResult<Batches> {
        let mut schemas = command.into_builder();
        self.visible(caller).into_iter().for_each(|database| schemas.append(database, SCHEMA));
        let schema = schemas.schema();
        schemas.build().map(|batch| sent(schema, vec![batch])).map_err(|error| failed(&error))
    }

    pub(super) async fn tables(&self, command: CommandGetTables, caller: Caller) -> FlightResult<Batches> {
        let databases = match &command.catalog {
            Some(catalog) => vec![catalog.clone()],
            None => self.visible(&caller),
        };
        let with_schema = command.include_schema;
        let mut tables = command.into_builder();
        for database in databases.into_iter().filter(|database| self.visible(&caller).contains(database)) {
            for (table, schema) in self.tables_of(&database, with_schema, caller.clone()).await? {
                tables.append(&database, SCHEMA, table, TABLE_TYPE, &schema).map_err(|error| failed(&error))?;
            }
        }
        let schema = tables.schema();
        tables.build().map(|batch| sent(schema, vec![batch])).map_err(|error| failed(&error))
    }

    async fn tables_of(&self, database: &str, with_schema: bool, caller: Caller) -> Result<Vec<TableSchema>, Status> {
        let asker = (self.session(database), caller);
        let found = crate::sql::watch(&self.state, "SHOW TABLES".to_owned(), asker, move |state, session, budget| {
            let described = |table: String| -> Result<TableSchema, SqlError> {
                let columns = if with_schema { state.db.table_columns(&table, session, budget)? } else { None };
                Ok((table, Schema::clone(&sql::arrow_schema(&columns.unwrap_or_default()))))
            };
            state.db.tables(session, budget)?.into_iter().map(described).collect()
        });
        found.await.map_err(ended)?.map(|outcome| outcome.answer).map_err(|error| refused(&error))
    }
}
