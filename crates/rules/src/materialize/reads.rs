//! What a rule reads: which series, and how far around each evaluation.

use db::{Db, LogSeries};
use index::CompiledMatcher;
use model::METRIC_NAME;
use promql::{EvaluationSettings, ReadInterval};

use super::checks::only_name;
use crate::store::RuleStore;

const NS_PER_MS: i64 = 1_000_000;

/// The series and the times that an expression reads.
#[derive(Debug)]
pub(crate) struct RuleReads {
    selectors: Vec<Vec<CompiledMatcher>>,
    /// The names of the metrics of selectors that are one text.
    names: Vec<Option<String>>,
    /// The times that the evaluation at time 0 reads; `None` if they are not a fixed time around each evaluation.
    interval: Option<ReadInterval>,
    /// True if it may read series that none of the selectors names.
    reads_unnamed_series: bool,
}

impl RuleReads {
    /// What an expression reads, as far as it can be read itself.
    pub(crate) fn new(expr: &str, db: &Db) -> Option<Self> {
        let expression = db.parse(expr).ok()?;
        let settings = EvaluationSettings { lookback_ms: db.lookback_ms(), ..EvaluationSettings::default() };
        let interval = expression.step_read_interval(&settings);
        let selectors = expression.selectors().into_iter().map(|matchers| index::compile(matchers).ok());
        let selectors = selectors.collect::<Option<_>>()?;
        let names = expression.selectors().into_iter().map(only_name).collect();
        let reads_unnamed_series = expression.reads_unnamed_series();
        Some(Self { selectors, names, interval, reads_unnamed_series })
    }

    /// The times that the evaluation at time 0 reads; `None` if they are not a fixed time around each evaluation.
    pub(crate) const fn interval(&self) -> Option<ReadInterval> {
        self.interval
    }

    /// Returns whether it may read series of any metric, beside those that its selectors name.
    pub(super) const fn reads_unnamed_series(&self) -> bool {
        self.reads_unnamed_series
    }

    /// The names of the metrics that it reads; `None` stands for any.
    pub(super) fn names(&self) -> &[Option<String>] {
        &self.names
    }

    /// Returns whether it reads a series.
    pub(super) fn series(&self, series: &LogSeries) -> bool {
        let value = |matcher: &CompiledMatcher| series.labels.get(matcher.name()).unwrap_or_default();
        self.selectors.iter().any(|set| set.iter().all(|matcher| matcher.matches(value(matcher))))
    }

    /// Returns whether it may read series of a metric.
    pub(crate) fn metric(&self, metric: &str) -> bool {
        let of_name = |matcher: &&CompiledMatcher| matcher.name() == METRIC_NAME;
        self.selectors.iter().any(|set| set.iter().filter(of_name).all(|matcher| matcher.matches(metric)))
    }

    /// Returns whether metrics that it reads may be in a table, judging by the names: they are the table's, or begin with it.
    pub(super) fn may_be_of_table(&self, table: &str) -> bool {
        let is_of_table =
            |name: &str| name.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
        self.names.iter().any(|name| name.as_deref().is_none_or(is_of_table))
    }

    /// The time before which a part of what it reads may be gone by its age; `None` if nothing is. Tables count by the fields that they have or had.
    pub(crate) fn gone_before_ns(&self, store: &RuleStore) -> Option<i64> {
        store.gone_before_ns(&|table| {
            self.may_be_of_table(table) && store.metrics_of_table(table).iter().any(|metric| self.metric(metric))
        })
    }

    /// Returns whether a part of what the evaluation at a time reads is gone because an entry drops its input; `is_strict`: or may be, where it is not
    /// known how far it looks back.
    pub(crate) fn lacks_dropped(&self, store: &RuleStore, time_ms: i64, is_strict: bool) -> bool {
        let gone_ns = store.dropped_before_ns(&|metric| self.reads_unnamed_series || self.metric(metric));
        match &self.interval {
            Some(interval) => gone_ns.is_some_and(|gone_ns| time_ms < complete_from_ms(gone_ns, interval)),
            None => is_strict && gone_ns.is_some(),
        }
    }
}

/// The first evaluation that reads nothing before a time.
pub(crate) const fn complete_from_ms(gone_ns: i64, interval: &ReadInterval) -> i64 {
    gone_ns.div_euclid(NS_PER_MS).saturating_add(1).saturating_sub(interval.first_ms)
}
