//! Asking.

use std::sync::Arc;

use promql::{Answer, Expression, Settings};
use query::{Budget, QueryError, StoreSource};

use crate::Db;

/// Samples that a query may hold at once unless its budget says otherwise.
pub(crate) const QUERY_SAMPLES_MAX: u64 = 50_000_000;

/// An expression to be evaluated at one moment.
#[derive(Debug, Clone)]
pub struct InstantQuery {
    /// PromQL.
    pub text: String,
    /// The moment, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// How old a series' newest sample may be; `None` for the database's setting.
    pub lookback_ms: Option<i64>,
    /// Whether names are dropped from the answer only; `None` for the database's setting.
    pub delayed_name_removal: Option<bool>,
    /// What the query may use.
    pub budget: Arc<Budget>,
}

impl InstantQuery {
    /// A query with the usual lookback and budget.
    pub fn new(text: impl Into<String>, time_ms: i64) -> Self {
        let budget = Arc::new(Budget::new(QUERY_SAMPLES_MAX));
        Self { text: text.into(), time_ms, lookback_ms: None, delayed_name_removal: None, budget }
    }
}

/// An expression to be evaluated at regular moments.
#[derive(Debug, Clone)]
pub struct RangeQuery {
    /// PromQL.
    pub text: String,
    /// The first moment, in milliseconds since the Unix epoch.
    pub start_ms: i64,
    /// No moment is later.
    pub end_ms: i64,
    /// From one moment to the next, in milliseconds.
    pub step_ms: i64,
    /// How old a series' newest sample may be; `None` for the database's setting.
    pub lookback_ms: Option<i64>,
    /// Whether names are dropped from the answer only; `None` for the database's setting.
    pub delayed_name_removal: Option<bool>,
    /// What the query may use.
    pub budget: Arc<Budget>,
}

impl Db {
    /// A budget of so many samples, out of the memory that all queries share.
    pub fn budget(&self, samples_max: u64) -> Arc<Budget> {
        Arc::new(Budget::sharing(samples_max, self.store.query_memory()))
    }

    /// Evaluates an expression at one moment.
    pub fn instant(&self, database: &str, query: &InstantQuery) -> Result<Answer, QueryError> {
        let expression = self.parse(&query.text)?;
        let source = StoreSource::new(&self.store, database, &self.helpers);
        let settings = self.settings(query.lookback_ms, query.delayed_name_removal);
        promql::evaluate_instant(&expression, &source, query.time_ms, &settings, &query.budget)
    }

    /// Evaluates an expression at regular moments.
    pub fn range(&self, database: &str, query: &RangeQuery) -> Result<Answer, QueryError> {
        let expression = self.parse(&query.text)?;
        let source = StoreSource::new(&self.store, database, &self.helpers);
        let settings = self.settings(query.lookback_ms, query.delayed_name_removal);
        let (start_ms, end_ms, step_ms) = (query.start_ms, query.end_ms, query.step_ms);
        promql::evaluate_range(&expression, &source, start_ms, end_ms, step_ms, &settings, &query.budget)
    }

    /// Parses PromQL with the features that this database allows.
    pub fn parse(&self, text: &str) -> Result<Expression, QueryError> {
        Expression::parse_with(text, self.settings.features)
    }

    fn settings(&self, lookback_ms: Option<i64>, delayed_name_removal: Option<bool>) -> Settings {
        let lookback_ms = lookback_ms.unwrap_or(self.settings.lookback_ms);
        let delayed_name_removal = delayed_name_removal.unwrap_or(self.settings.delayed_name_removal);
        Settings { lookback_ms, delayed_name_removal, ..self.settings.clone() }
    }
}
