//! Asking in the languages of InfluxDB: InfluxQL and Flux.

use query::{Budget, QueryError};

use crate::Db;

impl Db {
    /// Runs a statement of an InfluxQL text, counted from 0.
    pub fn run_influxql(
        &self,
        query: &influxql::Query,
        number: usize,
        request: &influxql::RequestContext<'_>,
        budget: &Budget,
    ) -> Result<influxql::Answer, QueryError> {
        query.run(number, &self.session(budget), request)
    }

    /// Runs a script of Flux.
    pub fn run_flux(
        &self,
        query: &flux::Query,
        request: &flux::RequestContext,
        budget: &Budget,
    ) -> Result<flux::Results, QueryError> {
        query.run(&self.session(budget), request)
    }
}
