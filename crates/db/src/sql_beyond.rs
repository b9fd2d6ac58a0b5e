//! SQL by DataFusion: what the built-in layer does not have.

use std::sync::Arc;

use query::{Budget, Plan};
use sql::{ClientContext, Column, Manner, Parsed, Relation, SqlError};
use sql_datafusion::{SqlQuery, SqlQueryError};

use crate::Db;

impl Db {
    /// What a query gives by DataFusion, whether or not the built-in layer has it: its rows are as there, but that those without an ORDER BY come in
    /// any order.
    pub fn sql_beyond(
        &self,
        parsed: &Parsed,
        place: usize,
        client: &ClientContext,
        budget: &Arc<Budget>,
    ) -> Result<Relation, SqlError> {
        Ok(self.sql_beyond_told(parsed, place, client, budget)?.0)
    }

    /// As [`Db::sql_beyond`], with the plans by which tables were read.
    pub fn sql_beyond_told(
        &self,
        parsed: &Parsed,
        place: usize,
        client: &ClientContext,
        budget: &Arc<Budget>,
    ) -> Result<(Relation, Vec<Plan>), SqlError> {
        let query = query_of(parsed, place, client)?;
        let answer = sql_datafusion::run(&query, &self.session(budget), budget).map_err(error_of)?;
        Ok((Relation::of_batches(&answer.schema, answer.batches)?, answer.plans))
    }

    /// The columns that a query will give by DataFusion.
    pub(crate) fn describe_beyond(
        &self,
        parsed: &Parsed,
        place: usize,
        client: &ClientContext,
        budget: &Arc<Budget>,
    ) -> Result<Vec<Column>, SqlError> {
        let query = query_of(parsed, place, client)?;
        let schema = sql_datafusion::describe(&query, &self.session(budget), budget);
        Ok(sql::columns_of(&schema.map_err(error_of)?))
    }
}

/// What DataFusion answers otherwise than the built-in layer and Postgres do, by words that a statement has all of: columns of USING are those of the
/// left even where it has none, duplicates of sets are not counted, and quantiles are interpolated to six digits.
const DIFFERENT: [(&[&str], &str); 5] = [
    (&[" right join ", " using("], "RIGHT JOIN … USING in such a statement (write ON)"),
    (&[" full join ", " using("], "FULL JOIN … USING in such a statement (write ON)"),
    (&[" intersect all "], "INTERSECT ALL in such a statement"),
    (&[" except all "], "EXCEPT ALL in such a statement"),
    (&["percentile_cont("], "percentile_cont in such a statement"),
];

fn query_of(parsed: &Parsed, place: usize, client: &ClientContext) -> Result<SqlQuery, SqlError> {
    let Some(text) = parsed.query_text(place) else {
        return Err(SqlError::Unsupported("a statement that is no query of standard SQL".to_owned()));
    };
    let lower = text.to_lowercase();
    if let Some((_, what)) = DIFFERENT.iter().find(|(words, _)| words.iter().all(|word| lower.contains(word))) {
        return Err(SqlError::Invalid(format!("{what} is neither in the built-in SQL nor given to DataFusion")));
    }
    // DataFusion would cut days where another zone has them.
    if !client.is_in_utc() {
        let message = "a statement beyond the built-in SQL runs in UTC: SET TIME ZONE 'UTC' first";
        return Err(SqlError::Invalid(message.to_owned()));
    }
    if client.has_pending_writes() {
        let message = "a statement beyond the built-in SQL does not see the rows of its transaction: COMMIT first";
        return Err(SqlError::Invalid(message.to_owned()));
    }
    let time_name = if client.manner == Manner::QuestDb { "timestamp" } else { "time" };
    let parameters = client.parameters.clone();
    Ok(SqlQuery { text, parameters, database: client.database.clone(), now_ns: client.now_ns, time_name })
}

fn error_of(error: SqlQueryError) -> SqlError {
    match error {
        SqlQueryError::Query(error) => SqlError::Query(error),
        SqlQueryError::Statement(message) => SqlError::Invalid(message),
    }
}
