//! Which series of the log an account may read, and which a client wants.

use std::ptr;
use std::sync::Arc;

use db::LogSeries;
use index::{CompiledMatcher, MatcherError};
use model::Matcher;

/// Series that satisfy all matchers of an account, and all of one of some sets.
pub(crate) struct SeriesFilter {
    account: Vec<CompiledMatcher>,
    /// Empty: every series.
    sets: Vec<Vec<CompiledMatcher>>,
    /// The verdict on the series that came last: its samples often come together.
    last: Option<(Arc<LogSeries>, bool)>,
}

impl SeriesFilter {
    pub(crate) fn new(account: &[Matcher], sets: &[Vec<Matcher>]) -> Result<Self, MatcherError> {
        let sets = sets.iter().map(|set| index::compile(set)).collect::<Result<_, _>>()?;
        Ok(Self { account: index::compile(account)?, sets, last: None })
    }

    /// Returns whether samples of a series are wanted.
    pub(crate) fn has(&mut self, series: &Arc<LogSeries>) -> bool {
        if let Some((last, verdict)) = &self.last
            && ptr::eq(Arc::as_ptr(last), Arc::as_ptr(series))
        {
            return *verdict;
        }
        let all = |set: &[CompiledMatcher]| {
            set.iter().all(|matcher| matcher.matches(series.labels.get(matcher.name()).unwrap_or_default()))
        };
        let verdict = all(&self.account) && (self.sets.is_empty() || self.sets.iter().any(|set| all(set)));
        self.last = Some((series.clone(), verdict));
        verdict
    }
}
