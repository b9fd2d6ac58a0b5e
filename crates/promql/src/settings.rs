//! How expressions are evaluated.

use query::QueryError;

use crate::syntax::bind_times::QueryTimes;
use crate::syntax::features::Features;

/// When functions that change the meaning of values drop the metric's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameRemoval {
    /// At once, as Prometheus does by default.
    #[default]
    AtOnce,
    /// From the result only, so that outer expressions may group by it. A name that an aggregation groups by is a label like others
    /// from there on: `max by (__name__) (max_over_time({…}[1m]))` has a row for each metric.
    Delayed,
    /// From the result only, as Prometheus does with `promql-delayed-name-removal`: names that aggregations group by are dropped as
    /// well, so that rows that differ in nothing else are an error.
    DelayedAlways,
}

impl NameRemoval {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::AtOnce, Self::Delayed, Self::DelayedAlways];

    /// Its name in settings: `false`, `true` or `always`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::AtOnce => "false",
            Self::Delayed => "true",
            Self::DelayedAlways => "always",
        }
    }

    /// The variant with this name in settings; `1` and `0` stand for `true` and `false`.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = match word {
            "0" => "false",
            "1" => "true",
            word => word,
        };
        Self::ALL.into_iter().find(|removal| removal.word() == word)
    }

    /// Returns whether names stay until the result.
    pub(crate) fn is_delayed(self) -> bool {
        self != Self::AtOnce
    }
}

/// How expressions are evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationSettings {
    /// How old the newest sample of a series may be to count as its value now.
    pub lookback_ms: i64,
    /// Most steps of an evaluation, subqueries included.
    pub steps_max: usize,
    /// The step of subqueries that name none.
    pub subquery_step_ms: i64,
    /// When names are dropped.
    pub name_removal: NameRemoval,
    /// The features that expressions may use.
    pub features: Features,
}

impl Default for EvaluationSettings {
    /// Lookback 5 minutes, 1,000,000 steps, subqueries every minute, names dropped at once, all features.
    fn default() -> Self {
        Self {
            lookback_ms: 5 * 60 * 1000,
            steps_max: 1_000_000,
            subquery_step_ms: 60 * 1000,
            name_removal: NameRemoval::AtOnce,
            features: Features::default(),
        }
    }
}

impl EvaluationSettings {
    /// How many steps lie between two times; fails if there are too many.
    pub(crate) fn step_count(&self, times: QueryTimes) -> Result<usize, QueryError> {
        let QueryTimes { start_ms, end_ms, step_ms } = times;
        let count = (end_ms - start_ms) / step_ms + 1;
        let steps_max = self.steps_max;
        usize::try_from(count).ok().filter(|count| *count <= steps_max).ok_or_else(|| {
            QueryError::Execution(format!(
                "evaluation takes {count} steps, more than the limit of {steps_max} (steps_max): use a longer step or a \
                 shorter range"
            ))
        })
    }
}
