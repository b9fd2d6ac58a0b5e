//! Asking.

use std::path::Path;
use std::sync::Arc;

use access::grant::Right;
use access::scope::Scope;
use index::Cardinality;
use model::{Labels, MatchOp, Matcher, SampleColumn, TimeRange};
use promql::{Evaluation, EvaluationResult, EvaluationSettings, Expression, NameRemoval, QueryTimes, SampleCounts};
use query::{
    BinCache, BinsRequest, BinsResponse, Budget, ComputeBins, QueryError, QueryMemory, Selection, Series, Source,
    StoreSource, WriteLimits, reach,
};
use store::{MemoryPool, StoreError};

use crate::Db;
use crate::results::{Asker, CacheUse, ResultCache, ResultCacheStats, Run};

const NS_PER_MS: i64 = 1_000_000;

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
    /// When names are dropped; `None` for the database's setting.
    pub name_removal: Option<NameRemoval>,
    /// True if the answer may be one that was kept, and may be kept.
    pub may_cache: bool,
    /// The budget of the query.
    pub budget: Arc<Budget>,
}

impl InstantQuery {
    /// A query with the usual lookback and budget.
    pub fn new(text: impl Into<String>, time_ms: i64) -> Self {
        let budget = Arc::new(Budget::new(QUERY_SAMPLES_MAX));
        Self { text: text.into(), time_ms, lookback_ms: None, name_removal: None, may_cache: true, budget }
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
    /// When names are dropped; `None` for the database's setting.
    pub name_removal: Option<NameRemoval>,
    /// True if the answer may be one that was kept, and may be kept.
    pub may_cache: bool,
    /// The budget of the query.
    pub budget: Arc<Budget>,
}

impl RangeQuery {
    /// The first and the last moment, and the step.
    pub(crate) const fn times(&self) -> QueryTimes {
        QueryTimes { start_ms: self.start_ms, end_ms: self.end_ms, step_ms: self.step_ms }
    }
}

/// All nanoseconds from the first to the last of two milliseconds.
const fn milliseconds(first_ms: i64, last_ms: i64) -> TimeRange {
    TimeRange::new(first_ms.saturating_mul(NS_PER_MS), last_ms.saturating_mul(NS_PER_MS).saturating_add(NS_PER_MS - 1))
}

/// An expression and what it is evaluated on.
struct Evaluated<'a> {
    source: &'a StoreSource<'a>,
    expression: &'a Expression,
    settings: &'a EvaluationSettings,
    budget: &'a Budget,
}

impl Evaluated<'_> {
    fn consistently<T>(
        &self,
        times: QueryTimes,
        evaluate: &dyn Fn() -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let reads = self.expression.read_interval(times, self.settings);
        let range = reads.map_or(TimeRange::ALL, |reads| milliseconds(reads.first_ms, reads.last_ms));
        read_consistently(self.source, self.budget, (&self.expression.selectors(), &range), evaluate)
    }
}

/// Finds the windows of views that selectors need in a range and are to be computed, and reads; once more if windows of the views were deleted meanwhile to be
/// written again.
fn read_consistently<T>(
    source: &StoreSource<'_>,
    budget: &Budget,
    (selectors, range): (&[&[Matcher]], &TimeRange),
    read: &dyn Fn() -> Result<T, QueryError>,
) -> Result<T, QueryError> {
    const ATTEMPTS_MAX: usize = 4;
    for _ in 0..ATTEMPTS_MAX {
        let (before, held) = (source.find_unstored(selectors, range, budget)?, budget.samples());
        let done = read()?;
        if source.view_rewrites() == before {
            return Ok(done);
        }
        budget.give_back(budget.samples().saturating_sub(held) as usize);
    }
    Err(QueryError::Execution(format!(
        "windows of views were written again each of the {ATTEMPTS_MAX} times that they were read: try again, or narrow the range"
    )))
}

impl BinCache for Db {
    fn bins(
        &self,
        database: &str,
        asked: &BinsRequest<'_>,
        make: &mut ComputeBins<'_>,
    ) -> Result<BinsResponse, QueryError> {
        match &self.results {
            Some(results) => {
                let from = Asker { store: &self.store, database, now_ns: self.now_ns() };
                self.accounted(results.bins(&from, asked, make))
            }
            None => make(asked.scan.range, asked.width_ns).map(|frames| BinsResponse {
                frames,
                memory_rows: 0,
                flash_rows: 0,
            }),
        }
    }
}

impl Db {
    /// A budget of so many samples, out of the memory that all queries share, for a query of the server itself: it may read everything.
    pub fn budget(&self, samples_max: u64) -> Arc<Budget> {
        Arc::new(Budget::sharing(samples_max, &self.store.memory().queries()))
    }

    /// As [`Db::budget`], for a query that a client sends: it may do what the client's account may, hold its tenant's memory, and write within
    /// its limits.
    pub fn budget_of(
        &self,
        samples_max: u64,
        scope: &Arc<Scope>,
        (memory, writes): (QueryMemory, Arc<dyn WriteLimits>),
    ) -> Arc<Budget> {
        let hidden = self.views.hidden_from(scope);
        Arc::new(Budget::of_tenant(samples_max, memory).for_scope(scope.clone()).hiding(hidden).limiting_writes(writes))
    }

    /// The matchers that all series satisfy which an account may read of a database.
    pub fn read_matchers(&self, scope: &Scope, database: &str) -> Vec<Matcher> {
        let hidden = self.views.hidden_from(scope).into_iter().filter(|hidden| hidden.database == database);
        scope.matchers(Right::Read, database).into_iter().chain(hidden.map(|hidden| hidden.others)).collect()
    }

    /// The pool of memory for all running queries.
    pub fn query_memory(&self) -> Arc<MemoryPool> {
        self.store.memory().queries()
    }

    /// Evaluates an expression at one moment.
    pub fn instant(&self, database: &str, query: &InstantQuery) -> Result<EvaluationResult, QueryError> {
        self.instant_with_cache_use(database, query).map(|(answer, _)| answer)
    }

    /// As [`Db::instant`]; also returns how much of the result came from the cache.
    pub fn instant_with_cache_use(
        &self,
        database: &str,
        query: &InstantQuery,
    ) -> Result<(EvaluationResult, CacheUse), QueryError> {
        let source = self.viewing_source(database, &self.helpers, &query.budget);
        let (mut answer, used) = self.instant_from(&source, database, query)?;
        let settings = (query.lookback_ms, query.name_removal);
        self.warn_of_losses(
            &mut answer,
            &query.text,
            QueryTimes { step_ms: 1, ..QueryTimes::instant(query.time_ms) },
            settings,
        );
        Ok((answer, used))
    }

    pub(crate) fn instant_from(
        &self,
        source: &StoreSource<'_>,
        database: &str,
        query: &InstantQuery,
    ) -> Result<(EvaluationResult, CacheUse), QueryError> {
        // Before a cached answer could be given.
        let (database, _) = reach(database, &[], &query.budget)?;
        let expression = self.parse(&query.text)?;
        let settings = self.settings_in(database, (query.lookback_ms, query.name_removal));
        let (time_ms, budget) = (query.time_ms, &*query.budget);
        let evaluated = Evaluated { source, expression: &expression, settings: &settings, budget };
        evaluated.consistently(QueryTimes::instant(time_ms), &|| {
            if let Some(results) = self.results_for(database, query.may_cache, budget) {
                let (store, expression, settings) = (&*self.store, &expression, &settings);
                let run = Run { store, database, source, expression, settings, budget };
                return self.accounted(results.instant(&run, time_ms));
            }
            let answer = promql::evaluate_instant(&expression, time_ms, &Evaluation::new(source, &settings, budget))?;
            Ok((answer, CacheUse { steps: 1, ..CacheUse::default() }))
        })
    }

    /// Evaluates an expression at regular moments.
    pub fn range(&self, database: &str, query: &RangeQuery) -> Result<EvaluationResult, QueryError> {
        self.range_with_cache_use(database, query).map(|(answer, _)| answer)
    }

    /// As [`Db::range`]; also returns how much of the result came from the cache.
    pub fn range_with_cache_use(
        &self,
        database: &str,
        query: &RangeQuery,
    ) -> Result<(EvaluationResult, CacheUse), QueryError> {
        let source = self.viewing_source(database, &self.helpers, &query.budget);
        let (mut answer, used) = self.range_from(&source, database, query)?;
        let times = query.times();
        self.warn_of_losses(&mut answer, &query.text, times, (query.lookback_ms, query.name_removal));
        Ok((answer, used))
    }

    /// Says in an answer if rows that it would have been made of may be lost. Times are the first, the last and the step.
    fn warn_of_losses(
        &self,
        answer: &mut EvaluationResult,
        text: &str,
        times: QueryTimes,
        (lookback_ms, name_removal): (Option<i64>, Option<NameRemoval>),
    ) {
        if !self.health().has_losses() {
            return;
        }
        let settings = self.settings(lookback_ms, name_removal);
        let reads = self.parse(text).ok().and_then(|parsed| parsed.read_interval(times, &settings));
        let range = reads.map(|reads| milliseconds(reads.first_ms, reads.last_ms));
        answer.warnings.extend(self.health().loss_warning(range.as_ref()));
    }

    pub(crate) fn range_from(
        &self,
        source: &StoreSource<'_>,
        database: &str,
        query: &RangeQuery,
    ) -> Result<(EvaluationResult, CacheUse), QueryError> {
        // Before a cached answer could be given.
        let (database, _) = reach(database, &[], &query.budget)?;
        let expression = self.parse(&query.text)?;
        let settings = self.settings_in(database, (query.lookback_ms, query.name_removal));
        let times = query.times();
        let budget = &*query.budget;
        let evaluated = Evaluated { source, expression: &expression, settings: &settings, budget };
        evaluated.consistently(times, &|| {
            if let Some(results) = self.results_for(database, query.may_cache, budget) {
                let (store, expression, settings) = (&*self.store, &expression, &settings);
                let run = Run { store, database, source, expression, settings, budget };
                return self.accounted(results.range(&run, times));
            }
            let steps = promql::range_steps(&expression, times, &settings)? as u64;
            let answer = promql::evaluate_range(&expression, times, &Evaluation::new(source, &settings, budget))?;
            Ok((answer, CacheUse { steps, ..CacheUse::default() }))
        })
    }

    /// The cache of results if a query may use it. Results of what folding left may have been cached before the database was strict.
    fn results_for(&self, database: &str, may_cache: bool, budget: &Budget) -> Option<&ResultCache> {
        let is_strict = self.store.is_strict(database);
        if is_strict {
            budget.be_strict();
        }
        // Epochs do not go through the journal, which says what results still hold.
        let is_regular = self.store.regular(database).is_some();
        self.results.as_deref().filter(|_| may_cache && !is_strict && !is_regular)
    }

    /// How many samples an expression's evaluation at one moment touches, as Prometheus counts them.
    pub fn count_instant(&self, database: &str, query: &InstantQuery) -> Result<SampleCounts, QueryError> {
        let source = StoreSource::new(&self.store, database, &self.helpers);
        let settings = self.settings_in(database, (query.lookback_ms, query.name_removal));
        promql::count_instant(
            &self.parse(&query.text)?,
            query.time_ms,
            &Evaluation::new(&source, &settings, &query.budget),
        )
    }

    /// Counts the samples of a range query.
    pub fn count_range(&self, database: &str, query: &RangeQuery) -> Result<SampleCounts, QueryError> {
        let source = StoreSource::new(&self.store, database, &self.helpers);
        let settings = self.settings_in(database, (query.lookback_ms, query.name_removal));
        let times = query.times();
        promql::count_range(&self.parse(&query.text)?, times, &Evaluation::new(&source, &settings, &query.budget))
    }

    /// Counts and sizes of the answers that are kept; `None` if none are.
    pub fn result_cache(&self) -> Option<ResultCacheStats> {
        self.results.as_ref().map(|results| results.stats())
    }

    /// Writes kept answers to flash that are in memory alone, so that they outlive the process.
    pub fn save_results(&self) -> Result<(), StoreError> {
        self.results.as_ref().map_or(Ok(()), |results| results.save(&self.store))
    }

    /// The cache of bins for SQL, InfluxQL and plans.
    pub(crate) fn bin_cache(&self, budget: &Budget) -> Option<&dyn BinCache> {
        (self.results.is_some() && !budget.computes_all()).then_some(self as &dyn BinCache)
    }

    /// Tells the store's accountant what kept answers take after a query.
    fn accounted<T>(&self, done: T) -> T {
        if let Some(stats) = self.result_cache() {
            self.store.memory().account_results(stats.memory_bytes);
        }
        done
    }

    /// The samples as they are stored of the series that satisfy all matchers, from the first to the last millisecond, in order of labels.
    pub fn samples(
        &self,
        database: &str,
        matchers: &[Matcher],
        range_ms: (i64, i64),
        budget: &Budget,
    ) -> Result<Vec<Series>, QueryError> {
        let source = StoreSource::new(&self.store, database, &self.helpers);
        self.samples_from(&source, matchers, range_ms, budget)
    }

    /// As [`Db::samples`]; windows of views that are over and not stored as they are now are computed, as for queries.
    pub fn samples_with_views(
        &self,
        database: &str,
        matchers: &[Matcher],
        range_ms: (i64, i64),
        budget: &Budget,
    ) -> Result<Vec<Series>, QueryError> {
        let source = self.viewing_source(database, &self.helpers, budget);
        let range = milliseconds(range_ms.0, range_ms.1);
        read_consistently(&source, budget, (&[matchers], &range), &|| {
            self.samples_from(&source, matchers, range_ms, budget)
        })
    }

    fn samples_from(
        &self,
        source: &StoreSource<'_>,
        matchers: &[Matcher],
        (start_ms, end_ms): (i64, i64),
        budget: &Budget,
    ) -> Result<Vec<Series>, QueryError> {
        let database = source.database();
        let mut series =
            source.select(&Selection { matchers, start_ms, end_ms, projection: None, is_numbered: false }, budget)?;
        if self.store.is_strict(database) {
            budget.be_strict();
        }
        if series.iter().any(|series| !series.folds.is_empty()) {
            budget.note_folded()?;
        }
        series.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(series)
    }

    /// The samples of one series as they were written: times in nanoseconds, values of their own type. Stale markers are among them. Two columns
    /// if two tables have a series of these labels; none if there is no such series.
    pub fn written_samples(
        &self,
        database: &str,
        series: &Labels,
        range: &TimeRange,
        budget: &Budget,
    ) -> Result<Vec<SampleColumn>, QueryError> {
        let matchers: Vec<Matcher> =
            series.iter().map(|(name, value)| Matcher::new(name, MatchOp::Equal, value)).collect();
        let source = StoreSource::new(&self.store, database, &self.helpers);
        let reader = self.store.reader();
        let mut columns = Vec::new();
        for mut group in source.groups(&matchers, range, budget)? {
            let mut wanted = group.columns.to_vec();
            wanted.retain(|column| column.series_labels(&group.labels) == *series);
            group.columns = Arc::new(wanted);
            for samples in reader.read(&group, range)? {
                budget.take(samples.timestamps_ns().len())?;
                columns.push(samples);
            }
        }
        budget.note_read(range);
        Ok(columns)
    }

    /// How old a series' newest sample may be to count as its value now, in milliseconds.
    pub fn lookback_ms(&self) -> i64 {
        self.settings.lookback_ms
    }

    /// The metrics and labels that make a database large; each list holds the `top` largest. A database that does not exist has nothing.
    pub fn cardinality(&self, database: &str, top: usize, budget: &Budget) -> Result<Cardinality, QueryError> {
        query::cardinality(&self.store, database, top, budget)
    }

    /// The name of a measurement by its number; empty if there is none.
    pub fn measurement_name(&self, measurement: u32) -> String {
        self.store.measurement_name(measurement)
    }

    /// Where the data is.
    pub fn directory(&self) -> &Path {
        self.store.directory()
    }

    /// Parses PromQL with the features that this database allows.
    pub fn parse(&self, text: &str) -> Result<Expression, QueryError> {
        Expression::parse_with(text, self.settings.features)
    }

    /// As [`Self::settings`], for one database: in a regular one a value counts until the next epoch at least.
    fn settings_in(&self, database: &str, settings: (Option<i64>, Option<NameRemoval>)) -> EvaluationSettings {
        let (lookback_ms, name_removal) = settings;
        let interval_ms = self.store.regular(database).map_or(0, |definition| definition.interval_ns / NS_PER_MS);
        let lookback_ms = lookback_ms.unwrap_or_else(|| self.settings.lookback_ms.max(interval_ms));
        self.settings(Some(lookback_ms), name_removal)
    }

    pub(crate) fn settings(&self, lookback_ms: Option<i64>, name_removal: Option<NameRemoval>) -> EvaluationSettings {
        let lookback_ms = lookback_ms.unwrap_or(self.settings.lookback_ms);
        let name_removal = name_removal.unwrap_or(self.settings.name_removal);
        EvaluationSettings { lookback_ms, name_removal, ..self.settings.clone() }
    }
}
