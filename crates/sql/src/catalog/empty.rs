//! Tables of `pg_catalog` about what Thalweg does not have.

use query::SqlType;

use super::rows::relation;
use crate::relation::Relation;

/// Columns of tables of `pg_catalog` that hold nothing here: numbers, texts, and what is true or false.
const EMPTY_NUMBERS: [&str; 33] = [
    "refobjid",
    "refobjsubid",
    "refclassid",
    "classoid",
    "objid",
    "classid",
    "member",
    "roleid",
    "grantor",
    "oid",
    "objoid",
    "objsubid",
    "indexrelid",
    "indrelid",
    "conrelid",
    "conindid",
    "confrelid",
    "adrelid",
    "adnum",
    "inhrelid",
    "inhparent",
    "enumtypid",
    "rngtypid",
    "tgrelid",
    "polrelid",
    "seqrelid",
    "ftrelid",
    "stxrelid",
    "partrelid",
    "relid",
    "pronamespace",
    "collnamespace",
    "connamespace",
];
const EMPTY_TEXTS: [&str; 17] = [
    "deptype",
    "extversion",
    "opcname",
    "description",
    "conname",
    "contype",
    "adbin",
    "proname",
    "amname",
    "enumlabel",
    "collname",
    "extname",
    "viewname",
    "schemaname",
    "spcname",
    "indkey",
    "conkey",
];
const EMPTY_FLAGS: [&str; 5] = ["indisprimary", "indisunique", "indisvalid", "indislive", "opcdefault"];

/// Tables of `pg_catalog` about what Thalweg does not have.
pub(super) const EMPTY: [&str; 41] = [
    "pg_cast",
    "pg_operator",
    "pg_aggregate",
    "pg_conversion",
    "pg_opfamily",
    "pg_default_acl",
    "pg_db_role_setting",
    "pg_subscription",
    "pg_locks",
    "pg_sequences",
    "pg_opclass",
    "pg_event_trigger",
    "pg_publication_rel",
    "pg_publication_namespace",
    "pg_foreign_server",
    "pg_auth_members",
    "pg_seclabel",
    "pg_language",
    "pg_index",
    "pg_constraint",
    "pg_description",
    "pg_attrdef",
    "pg_inherits",
    "pg_proc",
    "pg_am",
    "pg_enum",
    "pg_range",
    "pg_collation",
    "pg_extension",
    "pg_tablespace",
    "pg_trigger",
    "pg_policy",
    "pg_sequence",
    "pg_foreign_table",
    "pg_statistic_ext",
    "pg_publication",
    "pg_partitioned_table",
    "pg_stat_user_tables",
    "pg_rewrite",
    "pg_depend",
    "pg_shdescription",
];

/// Returns whether a table of `pg_catalog` never has rows.
pub(crate) fn is_empty(table: &str) -> bool {
    EMPTY.contains(&table)
}

pub(super) fn empty() -> Relation {
    let typed = |names: &'static [&'static str], sql_type| names.iter().map(move |name| (*name, sql_type));
    let columns = typed(&EMPTY_NUMBERS, SqlType::Int).chain(typed(&EMPTY_TEXTS, SqlType::Text));
    relation(&columns.chain(typed(&EMPTY_FLAGS, SqlType::Bool)).collect::<Vec<_>>(), Vec::new())
}
