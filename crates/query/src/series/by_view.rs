//! Windows of series as a materialised view answers them: by the rewriting that plans have.

use std::sync::PoisonError;

use model::ValueType;
use store::MetricField;

use super::store_source::StoreSource;
use super::viewed::{ViewedGrid, ViewedLabels, ViewedWindows};
use crate::{Budget, Plan, QueryError, Session, SessionHost, StoreSession, Trace, ViewUse, WindowSeries};

/// A plan that a view answers.
struct AnsweredPlan {
    metric: MetricField,
    grid: ViewedGrid,
    /// How much later than those of the grid its bins begin.
    open_ns: i64,
    /// As it is asked.
    plan: Plan,
    /// As it is run.
    expanded: Plan,
}

impl<'a> StoreSource<'a> {
    /// Lets views answer for series.
    #[must_use]
    pub const fn with_views(mut self, host: SessionHost<'a>) -> Self {
        self.host = Some(host);
        self
    }

    /// The values of windows as a view has them; `None` if none has.
    pub(super) fn viewed(
        &self,
        asked: &ViewedWindows<'_>,
        budget: &Budget,
    ) -> Result<Option<Vec<WindowSeries>>, QueryError> {
        let Some(host) = self.host else { return Ok(None) };
        let session = StoreSession::new(host, budget);
        let Some(answered) = self.answered(asked, host, &session)? else { return Ok(None) };
        let (held, started_ns) = (budget.samples(), self.trace.map(Trace::begin));
        let series = match self.series_of(asked, &answered, &session, budget) {
            Ok(series) => series,
            // Windows that are written again and again, or a view that was dropped: the samples are there.
            Err(QueryError::Execution(_)) => None,
            Err(error) => return Err(error),
        };
        if series.is_none() {
            budget.give_back(budget.samples().saturating_sub(held) as usize);
        }
        self.summed.lock().unwrap_or_else(PoisonError::into_inner).merge(&session.reads());
        if let Some((trace, started_ns)) = self.trace.zip(started_ns) {
            let count = series.as_ref().map_or(0, Vec::len);
            trace.end(started_ns, series.as_ref().map(|_| "view"), count, count * asked.count);
        }
        Ok(series)
    }

    /// The values of windows as a view gives them; `None` if they are not what the samples give.
    fn series_of(
        &self,
        asked: &ViewedWindows<'_>,
        answered: &AnsweredPlan,
        session: &StoreSession<'_>,
        budget: &Budget,
    ) -> Result<Option<Vec<WindowSeries>>, QueryError> {
        let held = budget.samples();
        let outcome = session.run(self.database, &answered.plan)?;
        let charged = budget.samples().saturating_sub(held) as usize;
        let grid = (&answered.grid, answered.open_ns);
        let series = asked.series(grid, &answered.metric.field, outcome.frames, budget)?;
        budget.give_back(charged);
        // Series that came meanwhile with a label that none had before were not told apart.
        let is_as_asked = !matches!(asked.labels, ViewedLabels::Without(_))
            || answered.plan == asked.plan(grid.0, grid.1, &answered.metric, self.labels_by(asked, &answered.metric)?);
        Ok(series.filter(|_| is_as_asked))
    }

    /// The plan by which a view answers windows; `None` if none does.
    pub(super) fn view_plan(&self, asked: &ViewedWindows<'_>, budget: &Budget) -> Result<Option<Plan>, QueryError> {
        let Some(host) = self.host else { return Ok(None) };
        let answered = self.answered(asked, host, &StoreSession::new(host, budget))?;
        Ok(answered.map(|answered| answered.expanded))
    }

    /// Asks for a plan whether a view answers it, for each moment after the grid's at which windows of views of the metric's table begin.
    fn answered(
        &self,
        asked: &ViewedWindows<'_>,
        host: SessionHost<'_>,
        session: &StoreSession<'_>,
    ) -> Result<Option<AnsweredPlan>, QueryError> {
        let Some(views) = host.views.filter(|_| session.budget().view_use() == ViewUse::All) else { return Ok(None) };
        let Some(grid) = asked.grid() else { return Ok(None) };
        let mut views = views.views(self.database);
        views.retain(|view| view.definition.is_exposed() && grid.open_ns(&view.bins).is_some());
        if views.is_empty() {
            return Ok(None);
        }
        let Some(metric) = self.store.field_of_metric(self.database, asked.metric)? else { return Ok(None) };
        // Booleans, which are 0 and 1 to PromQL, are no numbers to aggregates, and native histograms are nothing to them.
        if !matches!(metric.value_type, ValueType::F64 | ValueType::I64 | ValueType::U64) {
            return Ok(None);
        }
        let of_table = views.iter().filter(|view| view.definition.source() == metric.table);
        let mut opens_ns: Vec<i64> = of_table.filter_map(|view| grid.open_ns(&view.bins)).collect();
        opens_ns.sort_unstable_by_key(|open_ns| std::cmp::Reverse(*open_ns));
        opens_ns.dedup();
        for open_ns in opens_ns {
            let plan = asked.plan(&grid, open_ns, &metric, self.labels_by(asked, &metric)?);
            let expanded = session.expanded(self.database, &plan)?;
            if let Plan::View(read) = &expanded
                && views.iter().any(|view| view.definition.name == read.name && grid.is_mostly_stored(view))
            {
                return Ok(Some(AnsweredPlan { metric, grid, open_ns, plan, expanded }));
            }
        }
        Ok(None)
    }

    fn labels_by(&self, asked: &ViewedWindows<'_>, metric: &MetricField) -> Result<Vec<String>, QueryError> {
        Ok(match asked.labels {
            ViewedLabels::By(labels) => labels.to_vec(),
            ViewedLabels::Without(labels) => {
                let tags = self.store.table(self.database, &metric.table)?.map(|schema| schema.tags);
                tags.unwrap_or_default().into_iter().filter(|tag| !labels.contains(tag)).collect()
            }
        })
    }
}
