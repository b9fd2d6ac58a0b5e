//! Answers as one table, as InfluxDB 3 has them.

use influxql::FlatTable;
use query::QueryError;

use super::Done;
use crate::http::objects::{self, ObjectForm};

/// The rows of all statements; the first error instead, if there is one.
pub(super) fn text(results: Vec<Done>, form: ObjectForm) -> Result<String, QueryError> {
    let mut series = Vec::new();
    for result in results {
        series.extend(result?.series);
    }
    let table = FlatTable::new(&series);
    let columns: Vec<&str> = table.columns.iter().map(String::as_str).collect();
    Ok(objects::text(&columns, &table.rows, form))
}
