//! Asking by plan.

use query::{Budget, Outcome, Plan, QueryError, Session};

use crate::Db;

impl Db {
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
