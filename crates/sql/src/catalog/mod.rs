//! Tables that say what tables there are: `information_schema` and what clients ask of `pg_catalog`.

mod empty;
mod relations;
mod rows;
pub(crate) mod types;

use query::{SqlType, TableSchema, Value};

pub(crate) use empty::is_empty;
use empty::{EMPTY, empty};
use relations::ListedRelation;
use rows::{relation, text, with_same};
pub use types::type_number;
pub(crate) use types::{ARRAY_IN, type_name};
use types::{TYPES, pg_type};

use crate::context::Role;
use crate::error::{SqlError, invalid};
use crate::expression::LookupAnswers;
use crate::relation::{Column, Relation};
use crate::run::Run;
use crate::select::sql_type;

/// The number of the schema `public`.
const PUBLIC: i64 = 2200;
/// The number of the first table.
const TABLES_FROM: i64 = 100_000;

/// The numbers of tables of the catalog that clients name.
const CATALOG_NUMBERS: [(&str, i64); 8] = [
    ("pg_type", 1247),
    ("pg_attribute", 1249),
    ("pg_proc", 1255),
    ("pg_class", 1259),
    ("pg_database", 1262),
    ("pg_constraint", 2606),
    ("pg_namespace", 2615),
    ("pg_tablespace", 1213),
];

/// A column's name, its type, and what it is of its table: `time`, `tag`, `field`, or a `column` of a view.
pub(crate) type CatalogColumn = (String, SqlType, &'static str);

/// The name of the column of a table's times, given the one of tables that do not declare it.
pub(crate) fn time_name_in<'a>(schema: &'a TableSchema, otherwise: &'a str) -> &'a str {
    let layout = schema.layout.as_deref();
    layout.and_then(|layout| layout.time_name.as_deref()).unwrap_or(otherwise)
}

/// Returns whether a name is that of a table's time: `time` and `timestamp` mean it, too.
pub(crate) fn is_time_of(schema: Option<&TableSchema>, name: &str) -> bool {
    let declared = schema.map(|schema| time_name_in(schema, "time"));
    declared.into_iter().chain(["time", "timestamp"]).any(|time| time.eq_ignore_ascii_case(name))
}

/// The places of columns as they were declared, given whether each is the time: a time that was not is before all others, and what came with rows after them;
/// of a table that was not declared all have one place.
pub(crate) fn declared_place(schema: &TableSchema) -> impl Fn(&str, bool) -> usize {
    let layout = schema.layout.as_deref();
    move |name, is_time| {
        let Some(layout) = layout else { return 0 };
        let time_name = layout.time_name.as_deref();
        let is_meant = |declared: &String| declared == name && is_time == (time_name == Some(declared.as_str()));
        let found = layout.columns.iter().position(is_meant).map(|place| place + 1);
        found.unwrap_or(if is_time { 0 } else { usize::MAX })
    }
}

/// A table's columns in the order of its rows: name and type, the time first, then tags and fields.
pub(crate) fn row_columns(schema: &TableSchema, time_name: &str) -> Vec<CatalogColumn> {
    let mut columns = vec![(time_name_in(schema, time_name).to_owned(), SqlType::Timestamp, "time")];
    columns.extend(schema.tags.iter().map(|tag| (tag.clone(), SqlType::Text, "tag")));
    columns.extend(schema.fields.iter().map(|(name, value_type)| (name.clone(), sql_type(*value_type), "field")));
    columns
}

/// A table's columns as clients see them: those that were declared in that order, then those that came with rows.
pub(crate) fn columns_of(schema: &TableSchema, time_name: &str) -> Vec<CatalogColumn> {
    let mut columns = row_columns(schema, time_name);
    let place = declared_place(schema);
    columns.sort_by_key(|(name, _, kind)| place(name, *kind == "time"));
    columns
}

/// The columns of rows that are written without names of columns: those that were declared, in that order, or all of a query of the table, as many as a row has
/// values, if that is known.
///
/// # Errors
/// If the table was not declared, and several are of texts: one would be written for the other.
pub(crate) fn columns_by_place(
    schema: &TableSchema,
    time_name: &str,
    values: Option<usize>,
) -> Result<Vec<String>, SqlError> {
    let columns = columns_of(schema, time_name);
    let Some(layout) = schema.layout.as_deref() else {
        if columns.iter().filter(|(_, sql_type, _)| *sql_type == SqlType::Text).count() > 1 {
            let names: Vec<String> = columns.iter().map(|(name, ..)| format!("\"{name}\"")).collect();
            let (table, names) = (&schema.name, names.join(", "));
            return invalid(format!(
                "name the columns that are written to \"{table}\", which has several of texts and was not declared by CREATE TABLE: \"{table}\" ({names})"
            ));
        }
        return Ok(columns.into_iter().map(|(name, ..)| name).collect());
    };
    let declared = layout.columns.len();
    match values {
        Some(values) if values > declared => {
            // A time that was not declared comes before the others, and what came with rows after them.
            let count = if layout.time_name.is_none() && values == declared + 1 { values } else { columns.len() };
            Ok(columns.into_iter().take(count).map(|(name, ..)| name).collect())
        }
        _ => Ok(layout.columns.clone()),
    }
}

/// The columns of a table as a query of all of them gives them.
pub fn table_columns(schema: &TableSchema) -> Vec<Column> {
    let columns = columns_of(schema, "time");
    columns.into_iter().map(|(name, sql_type, _)| Column::new(name, sql_type)).collect()
}

/// The rights of the only role.
const ROLE_RIGHTS: [&str; 8] = [
    "rolsuper",
    "rolinherit",
    "rolcreaterole",
    "rolcreatedb",
    "rolcanlogin",
    "rolreplication",
    "rolbypassrls",
    "usesuper",
];

/// The owner of everything, and the roles that the client may see.
fn pg_roles(visible: Vec<Role>) -> Relation {
    use SqlType::{Bool, Int, Text};
    let mut columns = vec![("oid", Int), ("usesysid", Int), ("rolname", Text), ("usename", Text)];
    columns.extend([("rolconnlimit", Int), ("rolvaliduntil", Text)]);
    columns.extend(ROLE_RIGHTS.map(|right| (right, Bool)));
    let owner = Role { name: "thalweg".to_owned(), is_superuser: true };
    let row = |(number, role): (i64, Role)| {
        let mut row = vec![Value::Int(number), Value::Int(number), text(&role.name), text(&role.name)];
        row.extend([Value::Int(-1), Value::Null]);
        let has = |right| role.is_superuser || ["rolinherit", "rolcanlogin"].contains(&right);
        row.extend(ROLE_RIGHTS.map(|right| Value::Bool(has(right))));
        row
    };
    relation(&columns, (10..).zip(std::iter::once(owner).chain(visible)).map(row).collect())
}

impl Run<'_> {
    /// The number of a table, by its name with or without its schema.
    pub(crate) fn numbered_table(&self, name: &str) -> Result<i64, SqlError> {
        let (schema, table) = name.rsplit_once('.').map_or((None, name), |(schema, table)| (Some(schema), table));
        let table = table.trim_matches('"');
        if schema != Some("pg_catalog")
            && let Some(listed) = self.relations()?.into_iter().find(|listed| listed.name == table)
        {
            return Ok(listed.number);
        }
        match CATALOG_NUMBERS.iter().find(|(known, _)| *known == table) {
            Some((_, number)) => Ok(*number),
            None if is_empty(table) => Ok(0),
            None => Err(SqlError::UnknownTable(format!("relation \"{name}\" does not exist"))),
        }
    }

    /// The names of tables by their numbers.
    pub(crate) fn named_tables(&self) -> Result<LookupAnswers, SqlError> {
        let tables = self.relations()?.into_iter().map(|listed| (listed.number, listed.name));
        let catalog = CATALOG_NUMBERS.iter().map(|(name, number)| (*number, (*name).to_owned()));
        Ok(tables.chain(catalog).map(|(number, name)| (vec![Value::Int(number)], Some(Value::text(name)))).collect())
    }

    /// A table that is not data; `None` if there is none of the name.
    pub(crate) fn catalog_table(&mut self, schema: Option<&str>, name: &str) -> Result<Option<Relation>, SqlError> {
        let schema = schema.map(str::to_lowercase);
        let name = name.to_lowercase();
        match schema.as_deref() {
            Some("information_schema") => self.information_schema(&name).map(Some),
            Some("pg_catalog") => self.pg_catalog(&name).map(Some),
            Some("timescaledb_information") => self.timescale_information(&name),
            None if name.starts_with("pg_") => self.pg_catalog(&name).map(Some),
            _ => Ok(None),
        }
    }

    fn information_schema(&mut self, name: &str) -> Result<Relation, SqlError> {
        use SqlType::Text;
        let database = self.environment.database.clone();
        Ok(match name {
            "tables" => {
                let columns =
                    [("table_catalog", Text), ("table_schema", Text), ("table_name", Text), ("table_type", Text)];
                let row = |listed: ListedRelation| {
                    vec![text(&database), text("public"), text(&listed.name), text(listed.kind())]
                };
                relation(&columns, self.relations()?.into_iter().map(row).collect())
            }
            "columns" => self.information_columns(&database)?,
            "schemata" => {
                let names = ["public", "information_schema", "pg_catalog"];
                let row = |name: &&str| vec![text(&database), text(name), text("thalweg")];
                let columns = [("catalog_name", Text), ("schema_name", Text), ("schema_owner", Text)];
                relation(&columns, names.iter().map(row).collect())
            }
            "views" => self.information_views()?,
            "table_constraints" | "key_column_usage" | "constraint_column_usage" => {
                let columns = ["table_schema", "table_name", "column_name", "constraint_name", "constraint_type"];
                relation(&columns.map(|name| (name, Text)), Vec::new())
            }
            _ => return Err(SqlError::UnknownTable(format!("relation \"information_schema.{name}\" does not exist"))),
        })
    }

    fn pg_catalog(&mut self, name: &str) -> Result<Relation, SqlError> {
        use SqlType::{Bool, Int, Text};
        Ok(match name {
            "pg_namespace" => {
                let names = [(PUBLIC, "public"), (11, "pg_catalog"), (13_000, "information_schema")];
                let row = |(number, name): &(i64, &str)| vec![Value::Int(*number), text(name), Value::Int(10)];
                let columns = [("oid", Int), ("nspname", Text), ("nspowner", Int)];
                with_same(relation(&columns, names.iter().map(row).collect()), &[("nspacl", Value::Null)])
            }
            "pg_database" => {
                let columns = [
                    ("oid", Int),
                    ("datname", Text),
                    ("datallowconn", Bool),
                    ("datistemplate", Bool),
                    ("encoding", Int),
                    ("datdba", Int),
                    ("datcollate", Text),
                    ("datctype", Text),
                    ("datlocprovider", Text),
                    ("daticulocale", Text),
                    ("datlocale", Text),
                    ("daticurules", Text),
                    ("datacl", Text),
                    ("datconnlimit", Int),
                    ("dattablespace", Int),
                ];
                let row = |(number, name): (i64, String)| {
                    let mut row =
                        vec![Value::Int(number), text(&name), Value::Bool(true), Value::Bool(false), Value::Int(6)];
                    row.extend([Value::Int(10), text("C.UTF-8"), text("C.UTF-8"), text("c"), Value::Null]);
                    row.extend([Value::Null, Value::Null, Value::Null, Value::Int(-1), Value::Int(0)]);
                    row
                };
                relation(&columns, (1..).zip(self.session.databases()).map(row).collect())
            }
            "pg_type" => pg_type(),
            "pg_class" => self.pg_class()?,
            "pg_attribute" => self.pg_attribute()?,
            "pg_tables" => self.pg_tables()?,
            "pg_matviews" => self.pg_matviews()?,
            "pg_views" => self.pg_views()?,
            "pg_indexes" => {
                let columns = ["schemaname", "tablename", "indexname", "tablespace", "indexdef"];
                relation(&columns.map(|name| (name, Text)), Vec::new())
            }
            "pg_stat_activity" => self.pg_stat_activity(),
            "pg_roles" | "pg_user" => {
                pg_roles(self.client.roles.as_ref().map(|roles| roles.roles()).unwrap_or_default())
            }
            "pg_settings" => {
                let row = |(name, _, description): &(&str, &str, &str)| {
                    let value = crate::settings::setting_of(name, &self.environment).unwrap_or_default();
                    vec![text(name), text(&value), text(description)]
                };
                let columns = [("name", Text), ("setting", Text), ("short_desc", Text)];
                relation(&columns, crate::settings::SETTINGS.iter().map(row).collect())
            }
            name if EMPTY.contains(&name) => empty(),
            _ => return Err(SqlError::UnknownTable(format!("relation \"pg_catalog.{name}\" does not exist"))),
        })
    }

    /// The session that asks: a statement sees no other.
    fn pg_stat_activity(&self) -> Relation {
        use SqlType::{Int, Text, Timestamp};
        let columns = [
            ("datid", Int),
            ("datname", Text),
            ("pid", Int),
            ("usesysid", Int),
            ("usename", Text),
            ("application_name", Text),
            ("backend_start", Timestamp),
            ("query_start", Timestamp),
            ("state_change", Timestamp),
            ("state", Text),
            ("query", Text),
            ("backend_type", Text),
        ];
        let now = Value::Timestamp(self.environment.now_ns);
        let name = self.environment.settings.get("application_name").map_or("", String::as_str);
        let mut row = vec![Value::Int(1), text(&self.environment.database), Value::Int(1), Value::Int(10)];
        row.extend([text(&self.environment.user), text(name), now.clone(), now.clone(), now]);
        row.extend([text("active"), text(""), text("client backend")]);
        let nothing = ["client_addr", "client_hostname", "client_port", "wait_event_type", "wait_event", "leader_pid"];
        let further = nothing.map(|name| (name, Value::Null));
        with_same(relation(&columns, vec![row]), &further)
    }

    fn information_columns(&mut self, database: &str) -> Result<Relation, SqlError> {
        use SqlType::{Int, Text};
        let columns = [
            ("table_catalog", Text),
            ("table_schema", Text),
            ("table_name", Text),
            ("column_name", Text),
            ("ordinal_position", Int),
            ("column_default", Text),
            ("is_nullable", Text),
            ("data_type", Text),
            ("udt_name", Text),
            ("character_maximum_length", Int),
            ("column_kind", Text),
        ];
        let mut rows = Vec::new();
        for listed in self.relations()? {
            let Some(columns) = self.columns_of_relation(&listed)? else { continue };
            for (place, (name, sql_type, kind)) in (1..).zip(columns) {
                let number = type_number(sql_type);
                let short = TYPES.iter().find(|(known, ..)| *known == number).map_or("text", |(_, short, ..)| short);
                let nullable = if kind == "time" { "NO" } else { "YES" };
                rows.push(vec![
                    text(database),
                    text("public"),
                    text(&listed.name),
                    text(&name),
                    Value::Int(place),
                    Value::Null,
                    text(nullable),
                    text(sql_type.name()),
                    text(short),
                    Value::Null,
                    text(kind),
                ]);
            }
        }
        Ok(relation(&columns, rows))
    }

    fn pg_class(&mut self) -> Result<Relation, SqlError> {
        use SqlType::{Bool, Float, Int, Text};
        let columns = [
            ("oid", Int),
            ("relname", Text),
            ("relnamespace", Int),
            ("relkind", Text),
            ("relowner", Int),
            ("reltuples", Float),
            ("relpages", Int),
            ("relhasindex", Bool),
            ("relispartition", Bool),
            ("relpersistence", Text),
            ("reltablespace", Int),
            ("reltoastrelid", Int),
            ("relchecks", Int),
            ("relhasrules", Bool),
            ("relhastriggers", Bool),
            ("relrowsecurity", Bool),
            ("relforcerowsecurity", Bool),
            ("reloftype", Int),
            ("relam", Int),
            ("relreplident", Text),
            ("reloptions", Text),
            ("relacl", Text),
        ];
        let row = |listed: ListedRelation| {
            let no = Value::Bool(false);
            vec![
                Value::Int(listed.number),
                text(&listed.name),
                Value::Int(PUBLIC),
                text(listed.short_kind()),
                Value::Int(10),
                Value::Float(-1.0),
                Value::Int(0),
                no.clone(),
                no.clone(),
                text("p"),
                Value::Int(0),
                Value::Int(0),
                Value::Int(0),
                no.clone(),
                no.clone(),
                no.clone(),
                no,
                Value::Int(0),
                Value::Int(0),
                text("d"),
                Value::Null,
                Value::Null,
            ]
        };
        let further = [
            ("relpartbound", Value::Null),
            ("relhassubclass", Value::Bool(false)),
            ("relisshared", Value::Bool(false)),
            ("relrewrite", Value::Int(0)),
            ("reltype", Value::Int(0)),
            ("relfilenode", Value::Int(0)),
        ];
        Ok(with_same(relation(&columns, self.relations()?.into_iter().map(row).collect()), &further))
    }

    fn pg_attribute(&mut self) -> Result<Relation, SqlError> {
        use SqlType::{Bool, Int, Text};
        let columns = [
            ("attrelid", Int),
            ("attname", Text),
            ("atttypid", Int),
            ("attnum", Int),
            ("attlen", Int),
            ("atttypmod", Int),
            ("attnotnull", Bool),
            ("atthasdef", Bool),
            ("attisdropped", Bool),
            ("attidentity", Text),
            ("attgenerated", Text),
            ("attcollation", Int),
        ];
        let mut rows = Vec::new();
        for listed in self.relations()? {
            let Some(columns) = self.columns_of_relation(&listed)? else { continue };
            for (place, (name, sql_type, kind)) in (1..).zip(columns) {
                rows.push(vec![
                    Value::Int(listed.number),
                    text(&name),
                    Value::Int(type_number(sql_type)),
                    Value::Int(place),
                    Value::Int(-1),
                    Value::Int(-1),
                    Value::Bool(kind == "time"),
                    Value::Bool(false),
                    Value::Bool(false),
                    text(""),
                    text(""),
                    Value::Int(0),
                ]);
            }
        }
        let further = [
            ("attndims", Value::Int(0)),
            ("attstattarget", Value::Int(-1)),
            ("attstorage", text("p")),
            ("attcompression", text("")),
            ("attislocal", Value::Bool(true)),
            ("attinhcount", Value::Int(0)),
            ("attacl", Value::Null),
            ("attoptions", Value::Null),
            ("attfdwoptions", Value::Null),
        ];
        Ok(with_same(relation(&columns, rows), &further))
    }
}
