//! Asking in Flux.

use flux::{Query, RequestContext, Results};
use query::{Budget, QueryError};

use crate::Db;

impl Db {
    /// Runs a script of Flux.
    pub fn run_flux(&self, query: &Query, request: &RequestContext, budget: &Budget) -> Result<Results, QueryError> {
        query.run(&self.session(budget), request)
    }
}
