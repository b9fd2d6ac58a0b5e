//! Aggregations that merge sketches, which are texts: all that windows have of the series of a group, or the newest of each series.
//!
//! ```text
//! samples ──► the steps at which each counts ──► cells: one sketch of all samples of a group that count at the same steps
//!                                                  │
//!                      a value at each step ◄──────┴─ merged along halves of halves of the steps
//! ```
//!
//! A window that moves by its own length, as a day by days, has one cell. Where windows overlap, a sketch that all steps of a half have is merged for
//! them once: each cell is merged as often as its steps have parts in a tree of halves, which is about the logarithm of their number.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::Labels;
use query::sketch::{QuantileSketch, Sketch, SketchKind};
use query::{Budget, QueryError, SAMPLE_BYTES, TextSample, TextSeries, TextSink};

use crate::eval::annotations::Annotations;
use crate::eval::calendar;
use crate::eval::evaluator::Evaluator;
use crate::eval::rows::{Charge, Row, Steps, Vector};
use crate::range::texts::{CountingSample, TextWindows};
use crate::syntax::ast::SampleAggregate;
use crate::syntax::span::Span;

/// The sketches of a group, by the first step at which their samples count and the one after the last.
type Cells = BTreeMap<(usize, usize), Sketch>;

/// Bytes of a cell beside those of its sketch, with what a tree leaves empty.
const CELL_BYTES: usize = 2 * size_of::<((usize, usize), Sketch)>();

/// Bytes of a group beside those of its labels, which are there twice, and of its cells.
const GROUP_BYTES: usize = 2 * size_of::<(Labels, Cells)>();

/// An aggregation of sketches as it is evaluated.
#[derive(Clone, Copy)]
struct SketchFold<'a> {
    aggregate: &'a SampleAggregate,
    kind: SketchKind,
    windows: TextWindows<'a>,
    /// The position of the selector.
    span: Span,
}

/// Groups and their cells, while series come.
struct MergedGroups<'q> {
    cells: HashMap<Labels, Cells>,
    charge: Charge<'q>,
    annotations: Annotations,
    /// Series and samples so far.
    read: (usize, usize),
}

/// Takes series on several threads.
struct GroupSink<'a, 'q> {
    fold: SketchFold<'a>,
    budget: &'q Budget,
    delays_names: bool,
    groups: Mutex<MergedGroups<'q>>,
}

const fn samples_of(bytes: usize) -> usize {
    bytes.div_ceil(SAMPLE_BYTES)
}

impl SketchFold<'_> {
    /// The error of a text that is no sketch of the kind.
    fn no_sketch(&self, labels: &Labels, time_ms: i64, reason: &str) -> QueryError {
        let (name, time) = (self.aggregate.operation.name(), calendar::rfc3339(time_ms));
        let (sketch, function) = match self.kind {
            SketchKind::Quantiles => ("sketch of quantiles", "quantile_sketch"),
            SketchKind::Distinct => ("sketch of distinct values", "distinct_sketch"),
            SketchKind::Histogram => ("histogram", "histogram"),
        };
        QueryError::Execution(format!(
            "{name}: the series {labels} has at {time} a text that is no {sketch}: {reason}; select a column that {function}(…) made, or leave out this series"
        ))
    }
}

impl MergedGroups<'_> {
    /// Merges a text into the cell of its steps; a text that is no sketch fails with the reason.
    fn merge(
        &mut self,
        (group, kind): (&Labels, SketchKind),
        steps: Range<usize>,
        text: &str,
    ) -> Result<Result<(), String>, QueryError> {
        if !self.cells.contains_key(group) {
            self.charge.add(samples_of(GROUP_BYTES + 2 * group.size_bytes()))?;
            self.cells.insert(group.clone(), Cells::new());
        }
        let Some(cells) = self.cells.get_mut(group) else { return Ok(Ok(())) };
        let key = (steps.start, steps.end);
        if !cells.contains_key(&key) {
            self.charge.add(samples_of(CELL_BYTES + Sketch::empty_bytes(kind)))?;
        }
        match cells.entry(key).or_insert_with(|| Sketch::empty(kind)) {
            Sketch::Distinct(sketch) => Ok(sketch.merge_text(text)),
            Sketch::Histogram(_) => Ok(Ok(())),
            Sketch::Quantiles(sketch) => {
                let more = match QuantileSketch::decode(text) {
                    Ok(more) => more,
                    Err(reason) => return Ok(Err(reason)),
                };
                let (before, wanted) = (sketch.memory_bytes(), samples_of(sketch.merge_bytes(&more)));
                self.charge.add(wanted)?;
                sketch.merge(&more);
                // Small bins may have become one.
                self.charge.release(wanted.saturating_sub(samples_of(sketch.memory_bytes().saturating_sub(before))));
                Ok(Ok(()))
            }
        }
    }
}

impl<'q> GroupSink<'_, 'q> {
    fn lock(&self) -> MutexGuard<'_, MergedGroups<'q>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, series: &TextSeries) -> Result<(), QueryError> {
        let SketchFold { aggregate, kind, windows, span } = self.fold;
        let group = aggregate.group_of(&series.labels, None, (self.delays_names, self.budget))?;
        let Some(group) = group else { return Ok(()) };
        let mut groups = self.lock();
        groups.read = (groups.read.0 + 1, groups.read.1 + series.samples.len());
        if series.is_folded {
            groups.annotations.folded(span, self.budget)?;
        }
        for CountingSample { steps, time_ms, sample } in windows.counting(&series.samples) {
            if steps.is_empty() {
                continue;
            }
            match sample {
                TextSample::Stale => {}
                TextSample::Other => groups.annotations.ignored_numbers(aggregate.operation.name(), span),
                TextSample::Text(text) => {
                    self.budget.check()?;
                    groups
                        .merge((&group, kind), steps, text)?
                        .map_err(|reason| self.fold.no_sketch(&series.labels, time_ms, &reason))?;
                }
            }
        }
        Ok(())
    }
}

impl TextSink for GroupSink<'_, '_> {
    fn take(&self, series: TextSeries) -> Result<(), QueryError> {
        let added = self.add(&series);
        self.budget.give_back(series.samples());
        added
    }
}

/// Ranges of steps that all have a sketch.
#[derive(Clone, Copy)]
struct Cell<'c> {
    first: usize,
    end: usize,
    sketch: &'c Sketch,
}

impl Cell<'_> {
    const fn covers(&self, steps: &Range<usize>) -> bool {
        self.first <= steps.start && steps.end <= self.end
    }

    const fn overlaps(&self, steps: &Range<usize>) -> bool {
        self.first < steps.end && steps.start < self.end
    }
}

/// Makes values of the cells of a group.
struct CellValues<'a> {
    kind: SketchKind,
    /// At each step, of quantiles.
    ranks: &'a [f64],
    budget: &'a Budget,
}

impl CellValues<'_> {
    /// Appends the values of some steps: of the cells that overlap them, and of what all of the steps have beside.
    fn push(
        &self,
        steps: Range<usize>,
        cells: &[Cell<'_>],
        above: Option<&Sketch>,
        row: &mut Row,
    ) -> Result<(), QueryError> {
        self.budget.check()?;
        let (covering, others): (Vec<Cell<'_>>, Vec<Cell<'_>>) = cells.iter().partition(|cell| cell.covers(&steps));
        let mut charge = Charge::none(self.budget);
        let merged;
        let below = match (above, covering.as_slice()) {
            (above, []) => above,
            (None, [alone]) => Some(alone.sketch),
            (above, more) => {
                merged = self.merged(above.into_iter().chain(more.iter().map(|cell| cell.sketch)), &mut charge)?;
                Some(&merged)
            }
        };
        if others.is_empty() {
            if let Some(sketch) = below {
                self.push_values(sketch, steps, row);
            }
            return Ok(());
        }
        let middle = steps.start + steps.len() / 2;
        for half in [steps.start..middle, middle..steps.end] {
            let cells: Vec<Cell<'_>> = others.iter().filter(|cell| cell.overlaps(&half)).copied().collect();
            self.push(half, &cells, below, row)?;
        }
        Ok(())
    }

    fn merged<'s>(
        &self,
        sketches: impl Iterator<Item = &'s Sketch>,
        charge: &mut Charge<'_>,
    ) -> Result<Sketch, QueryError> {
        charge.add(samples_of(Sketch::empty_bytes(self.kind)))?;
        let mut merged = Sketch::empty(self.kind);
        for sketch in sketches {
            charge.add(samples_of(merged.merge_bytes(sketch)))?;
            merged.merge(sketch);
        }
        Ok(merged)
    }

    fn push_values(&self, sketch: &Sketch, steps: Range<usize>, row: &mut Row) {
        match sketch {
            Sketch::Distinct(sketch) => {
                let count = sketch.estimate() as f64;
                steps.for_each(|step| row.push_float(step, count));
            }
            // No aggregation merges these.
            Sketch::Histogram(_) => {}
            Sketch::Quantiles(sketch) => {
                let ranks = self.ranks.get(steps.clone()).unwrap_or_default();
                let mut last: Option<(f64, Option<f64>)> = None;
                for (step, rank) in steps.zip(ranks) {
                    let value = match last {
                        Some((of, value)) if of.to_bits() == rank.to_bits() => value,
                        _ => quantile(sketch, *rank),
                    };
                    last = Some((*rank, value));
                    value.into_iter().for_each(|value| row.push_float(step, value));
                }
            }
        }
    }
}

/// The quantile of a sketch, outside of 0 to 1 as `quantile` has it; `None` without numbers.
fn quantile(sketch: &QuantileSketch, rank: f64) -> Option<f64> {
    let inside = sketch.quantile(rank)?;
    Some(if rank.is_nan() {
        f64::NAN
    } else if rank < 0.0 {
        f64::NEG_INFINITY
    } else if rank > 1.0 {
        f64::INFINITY
    } else {
        inside
    })
}

impl<'q> Evaluator<'q> {
    /// Merges the sketches of each group, whose kind is that of the operation.
    pub(super) fn aggregate_sketches(
        &self,
        aggregate: &SampleAggregate,
        kind: SketchKind,
        steps: Steps,
    ) -> Result<Vector<'q>, QueryError> {
        let mut vector = Vector::empty(self.budget);
        let Some((input, parameters)) = aggregate.arguments.split_last() else { return Ok(vector) };
        let mut ranks = Vec::new();
        if let [rank] = parameters {
            ranks = self.scalar(rank, steps)?;
            self.annotations.check_quantiles(&ranks, rank.span);
        }
        let windows = self.text_windows(input, steps, aggregate.operation.name())?;
        let groups = self.merged_groups(SketchFold { aggregate, kind, windows, span: input.span })?;
        let MergedGroups { cells, charge: _charge, annotations, .. } = groups;
        self.annotations.absorb(annotations);
        let keeps_names = self.keeps_names(&aggregate.grouping);
        let values = CellValues { kind, ranks: &ranks, budget: self.budget };
        for (labels, cells) in cells {
            let cells = cells.iter().map(|((first, end), sketch)| Cell { first: *first, end: *end, sketch });
            let mut row = Row::new(labels);
            values.push(0..steps.count, &cells.collect::<Vec<_>>(), None, &mut row)?;
            vector.push(row.with_drop_name(!keeps_names))?;
        }
        vector.rows.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(vector)
    }

    fn merged_groups(&self, fold: SketchFold<'_>) -> Result<MergedGroups<'q>, QueryError> {
        let (charge, annotations) = (Charge::none(self.budget), Annotations::default());
        let groups = MergedGroups { cells: HashMap::new(), charge, annotations, read: (0, 0) };
        let delays_names = self.settings.name_removal.is_delayed();
        let sink = GroupSink { fold, budget: self.budget, delays_names, groups: Mutex::new(groups) };
        self.scan_texts(&fold.windows, &sink, |sink| sink.lock().read)?;
        Ok(sink.groups.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}
