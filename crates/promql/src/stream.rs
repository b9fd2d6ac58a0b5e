//! Rows made of series as these are read: what is made of the samples of one is done by the thread that read them, so that
//! never all samples are held at once. Rows then go on one after the other in an order that the data alone decides, so that
//! answers do not depend on threads.
//!
//! ```text
//!  source, several threads     series ──► row ──┐
//!                              series ──► row ──┼──► in order ──► Collected   an instant vector
//!                              series ──► row ──┘            └──► Folding     an aggregation: no rows are held
//! ```

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, PoisonError};

use model::{Labels, Matcher};
use query::{Budget, QueryError, Selection, Series, SeriesSink};

use crate::eval::Evaluator;
use crate::notes::Notes;
use crate::rows::{Charge, Row, Vector, same_labels};
use crate::select::Samples;
use crate::syntax::ast::Grouping;

/// A row with the series that it was made of.
pub(crate) struct Made {
    pub(crate) series: Labels,
    /// The labels of its group, if it goes to an aggregation.
    pub(crate) group: Option<Labels>,
    pub(crate) row: Row,
}

/// Where rows go, one after the other.
pub(crate) trait RowSink: Send {
    /// Takes a row, which is not empty.
    fn take(&mut self, made: Made) -> Result<(), QueryError>;
}

/// What is made of series.
pub(crate) struct Streaming<'a> {
    /// A row of a series' samples.
    pub(crate) make: &'a MakeRow<'a>,
    pub(crate) grouping: Option<&'a Grouping>,
    /// Whether two rows of the same labels are a mistake.
    pub(crate) distinct: bool,
}

type MakeRow<'a> = dyn Fn(Labels, Samples, &Notes) -> Result<Row, QueryError> + Sync + 'a;

/// Rows of some series, on their way.
struct Batch<'b> {
    made: Vec<Made>,
    notes: Notes,
    charge: Charge<'b>,
}

/// Puts batches in order.
struct InOrder<'s, 'b> {
    next: usize,
    waiting: BTreeMap<usize, Batch<'b>>,
    passage: Passage<'s>,
}

/// The last stretch of a row's way to a sink.
pub(crate) struct Passage<'s> {
    /// Labels that passed, if none may do so twice.
    passed: Option<HashSet<Labels>>,
    notes: Notes,
    sink: &'s mut dyn RowSink,
}

impl<'s> Passage<'s> {
    pub(crate) fn new(distinct: bool, sink: &'s mut dyn RowSink) -> Self {
        Self { passed: distinct.then(HashSet::new), notes: Notes::default(), sink }
    }

    pub(crate) fn pass(&mut self, made: Made) -> Result<(), QueryError> {
        if made.row.is_empty() {
            return Ok(());
        }
        if self.passed.as_mut().is_some_and(|passed| !passed.insert(made.row.labels.clone())) {
            return Err(same_labels());
        }
        self.sink.take(made)
    }
}

impl<'b> InOrder<'_, 'b> {
    fn deliver(&mut self, place: usize, batch: Batch<'b>) -> Result<(), QueryError> {
        if place != self.next {
            self.waiting.insert(place, batch);
            return Ok(());
        }
        self.pass(batch)?;
        while let Some(batch) = self.waiting.remove(&self.next) {
            self.pass(batch)?;
        }
        Ok(())
    }

    fn pass(&mut self, Batch { made, notes, charge }: Batch<'b>) -> Result<(), QueryError> {
        self.next += 1;
        self.passage.notes.absorb(notes);
        drop(charge);
        made.into_iter().try_for_each(|made| self.passage.pass(made))
    }
}

/// Makes rows on the threads that read.
struct Maker<'a, 's, 'b> {
    rule: &'a Streaming<'a>,
    budget: &'b Budget,
    in_order: Mutex<InOrder<'s, 'b>>,
}

impl SeriesSink for Maker<'_, '_, '_> {
    fn take(&self, place: usize, series: Vec<Series>) -> Result<(), QueryError> {
        let mut batch = Batch {
            made: Vec::with_capacity(series.len()),
            notes: Notes::default(),
            charge: Charge::none(self.budget),
        };
        let mut held = Charge::adopt(self.budget, series.iter().map(Series::samples).sum());
        for series in series {
            self.budget.check()?;
            let count = series.samples();
            let (labels, samples) = Samples::from_series(series);
            let row = (self.rule.make)(labels.clone(), samples, &batch.notes)?;
            held.release(count);
            if row.is_empty() {
                continue;
            }
            batch.charge.add(row.charge())?;
            let group = self.rule.grouping.map(|grouping| grouping.key(&row.labels));
            batch.made.push(Made { series: labels, group, row });
        }
        self.in_order.lock().unwrap_or_else(PoisonError::into_inner).deliver(place, batch)
    }
}

impl Evaluator<'_> {
    /// Makes rows of all series with samples later than the first and not later than the second time.
    pub(crate) fn stream(
        &self,
        matchers: &[Matcher],
        (after_ms, to_ms): (i64, i64),
        rule: &Streaming<'_>,
        sink: &mut dyn RowSink,
    ) -> Result<(), QueryError> {
        let selection = Selection { matchers, start_ms: after_ms + 1, end_ms: to_ms };
        let passage = Passage::new(rule.distinct, sink);
        let in_order = Mutex::new(InOrder { next: 0, waiting: BTreeMap::new(), passage });
        let maker = Maker { rule, budget: self.budget, in_order };
        self.source.scan(&selection, self.budget, &maker)?;
        let in_order = maker.in_order.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.notes.absorb(in_order.passage.notes);
        Ok(())
    }
}

/// Rows that become an instant vector.
pub(crate) struct Collected<'b> {
    pub(crate) vector: Vector<'b>,
    /// The series of each row.
    series: Vec<Labels>,
}

impl<'b> Collected<'b> {
    pub(crate) const fn new(budget: &'b Budget) -> Self {
        Self { vector: Vector::empty(budget), series: Vec::new() }
    }

    /// The vector, in order of the series' labels.
    pub(crate) fn sorted(mut self) -> Vector<'b> {
        if !self.series.is_sorted() {
            let mut rows: Vec<(Labels, Row)> =
                self.series.into_iter().zip(std::mem::take(&mut self.vector.rows)).collect();
            rows.sort_by(|(a, _), (b, _)| a.cmp(b));
            self.vector.rows = rows.into_iter().map(|(_, row)| row).collect();
        }
        self.vector
    }
}

impl RowSink for Collected<'_> {
    fn take(&mut self, made: Made) -> Result<(), QueryError> {
        self.series.push(made.series);
        self.vector.push(made.row)
    }
}
