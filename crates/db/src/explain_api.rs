//! What queries of PromQL do, and what that takes.

use promql::{Evaluation, EvaluationResult};
use query::{Budget, Helpers, QueryError, Reads, StepReport, StoreSource, Trace};

use crate::{CacheUse, Db, InstantQuery, RangeQuery};

/// A query that was run to see what it takes.
#[derive(Debug, Clone, PartialEq)]
pub struct Analysis {
    /// The plan, as [`promql::explain_range`] writes it.
    pub plan: String,
    /// The answer.
    pub answer: EvaluationResult,
    /// How much of it was kept before; the rest was evaluated.
    pub cache: CacheUse,
    /// Each step, in the order in which they ended; if the evaluation was one of several stretches, those of all.
    pub steps: Vec<StepReport>,
    /// Counts of what was read.
    pub reads: Reads,
}

/// How a query is evaluated on a source.
type Evaluate<'a> = dyn Fn(&StoreSource<'_>) -> Result<(EvaluationResult, CacheUse), QueryError> + 'a;

impl Db {
    /// Describes the evaluation of an expression at one moment.
    pub fn explain_instant(&self, database: &str, query: &InstantQuery) -> Result<String, QueryError> {
        let settings = self.settings(query.lookback_ms, query.name_removal);
        let source = self.viewing_source(database, &self.helpers, &query.budget);
        let evaluation = Evaluation::new(&source, &settings, &query.budget);
        promql::explain_instant(&self.parse(&query.text)?, query.time_ms, &evaluation)
    }

    /// Describes the evaluation of an expression at regular moments.
    pub fn explain_range(&self, database: &str, query: &RangeQuery) -> Result<String, QueryError> {
        let settings = self.settings(query.lookback_ms, query.name_removal);
        let source = self.viewing_source(database, &self.helpers, &query.budget);
        let evaluation = Evaluation::new(&source, &settings, &query.budget);
        promql::explain_range(&self.parse(&query.text)?, query.times(), &evaluation)
    }

    /// Evaluates an expression at one moment, on one thread, so that the steps' times add up.
    pub fn analyze_instant(&self, database: &str, query: &InstantQuery) -> Result<Analysis, QueryError> {
        let plan = self.explain_instant(database, query)?;
        self.analyze((database, &query.budget), plan, &|source| self.instant_from(source, database, query))
    }

    /// Evaluates an expression at regular moments, on one thread.
    pub fn analyze_range(&self, database: &str, query: &RangeQuery) -> Result<Analysis, QueryError> {
        let plan = self.explain_range(database, query)?;
        self.analyze((database, &query.budget), plan, &|source| self.range_from(source, database, query))
    }

    fn analyze(
        &self,
        (database, budget): (&str, &Budget),
        plan: String,
        run: &Evaluate<'_>,
    ) -> Result<Analysis, QueryError> {
        let (clock_ns, alone) = (|| self.now_ns(), Helpers::new(0));
        let trace = Trace::new(&clock_ns);
        let source = self.viewing_source(database, &alone, budget).traced(&trace);
        let (answer, cache) = run(&source)?;
        let reads = source.reads();
        drop(source);
        Ok(Analysis { plan, answer, cache, steps: trace.into_steps(), reads })
    }
}
