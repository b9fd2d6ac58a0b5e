//! Asking in the languages of InfluxDB, InfluxQL and Flux, and by plan.

use query::{Budget, Outcome, Plan, QueryError, Session};

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

    /// The plan that a text in the s-expression language says; `now` in it is this moment.
    pub fn parse_plan(&self, text: &str) -> Result<Plan, QueryError> {
        query::parse(text, self.now_ns()).map_err(|error| QueryError::Invalid(error.to_string()))
    }

    /// Runs a plan.
    pub fn run_plan(&self, database: &str, plan: &Plan, budget: &Budget) -> Result<Outcome, QueryError> {
        let outcome = self.session(budget).run(database, plan)?;
        query::note_folds(&outcome.frames, budget)?;
        Ok(outcome)
    }
}
