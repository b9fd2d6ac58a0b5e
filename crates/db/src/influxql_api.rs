//! Asking in InfluxQL.

use influxql::{Answer, Query, RequestContext};
use query::{Budget, QueryError};

use crate::Db;

impl Db {
    /// Runs a statement of an InfluxQL text, counted from 0.
    pub fn run_influxql(
        &self,
        query: &Query,
        number: usize,
        request: &RequestContext<'_>,
        budget: &Budget,
    ) -> Result<Answer, QueryError> {
        query.run(number, &self.session(budget), request)
    }
}
