//! `SHOW CREATE TABLE`

use crate::error::SqlError;
use crate::relation::Relation;
use crate::run::Run;
use model::ValueType;

const HOUR_NS: i64 = 3_600_000_000_000;

/// A TTL in the largest unit that it is whole in, as QuestDB shows it.
pub(super) fn ttl_in_units(ttl_ns: i64) -> (i64, &'static str) {
    let hours = ttl_ns / HOUR_NS;
    let units = [("YEAR", 365 * 24), ("WEEK", 7 * 24), ("DAY", 24)];
    let whole = units.into_iter().find(|(_, unit)| hours > 0 && hours % unit == 0);
    whole.map_or((hours, "HOUR"), |(name, unit)| (hours / unit, name))
}

impl Run<'_> {
    /// The statement that makes a table such as this one.
    pub(super) fn create_statement(&mut self, table: &str) -> Result<Relation, SqlError> {
        let schema = self.schema(table, false)?;
        let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
        let mut columns = vec![format!("{} TIMESTAMPTZ", self.time_name())];
        columns.extend(schema.tags.iter().map(|tag| format!("{} TAG", quoted(tag))));
        columns.extend(schema.fields.iter().map(|(name, value_type)| {
            let type_name = match value_type {
                ValueType::I64 => "BIGINT",
                ValueType::U64 => "BIGINT UNSIGNED",
                ValueType::Bool => "BOOLEAN",
                ValueType::String => "TEXT",
                ValueType::F64 | ValueType::Histogram => "DOUBLE PRECISION",
            };
            format!("{} {type_name}", quoted(name))
        }));
        let ttl = match ttl_in_units(self.session.table_ttl_ns(&self.environment.database, &schema.name)) {
            (0, _) => String::new(),
            (count, unit) => format!(" TTL {count} {unit}"),
        };
        let statement = format!("CREATE TABLE {} ({}){ttl}", quoted(&schema.name), columns.join(", "));
        Ok(Relation::of_texts(&["ddl"], [vec![statement]]))
    }
}
