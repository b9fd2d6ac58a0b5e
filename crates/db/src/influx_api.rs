//! Asking in the languages of InfluxDB, InfluxQL and Flux, and by plan.

use query::views::View;
use query::{Budget, Outcome, Plan, QueryError, Session};
use store::KnownTable;

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

    /// How often a name of a database, a measurement or a field came or went since the folder was opened.
    pub fn name_changes(&self) -> u64 {
        self.store.name_changes()
    }

    /// The measurements of a database, sorted by name, those without rows among them.
    pub fn known_tables(&self, database: &str) -> Vec<KnownTable> {
        self.store.known_tables(database)
    }

    /// Takes a measurement into a continuous query, or columns of it that came since, by the rights that the query's maker had: `of` is one of its views.
    ///
    /// # Errors
    /// If the measurement cannot be one of the query: the text says why.
    pub fn extend_continuous_query(
        &self,
        query: &influxql::PatternQuery,
        measurement: &str,
        of: &View,
        budget: &Budget,
    ) -> Result<influxql::Extension, QueryError> {
        let known = self.view(&of.definition.database, &query.view_name(measurement)?);
        query.extend(&self.session(budget), measurement, (of, known.as_deref()))
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
