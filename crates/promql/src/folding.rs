//! Aggregations under way: rows come one after the other, groups hold a value for each step.

use std::collections::HashMap;
use std::ops::Range;

use model::Labels;
use query::{Budget, QueryError, SAMPLE_BYTES};

use crate::cells::Cells;
use crate::eval::name_of;
use crate::notes::Notes;
use crate::rows::{Charge, Row, Vector};
use crate::stream::{Made, RowSink};
use crate::syntax::span::Span;

/// One group.
struct Group<C> {
    labels: Labels,
    /// The first of its series, in order of labels.
    series: Labels,
    drop_name: bool,
    /// The step of the first cell.
    first: usize,
    cells: C,
}

/// Groups, in order of their first rows.
pub(crate) struct Folding<'b, C> {
    budget: &'b Budget,
    places: HashMap<Labels, usize>,
    groups: Vec<Group<C>>,
    charge: Charge<'b>,
    notes: Notes,
    /// Whether names that were to go in the end stay.
    keeps_names: bool,
    span: Span,
}

impl<C: Cells> Group<C> {
    /// Makes cells for a stretch of steps.
    fn reach(&mut self, steps: Range<usize>) {
        if self.cells.len() == 0 {
            self.first = steps.start;
        }
        let before = self.first.saturating_sub(steps.start);
        self.cells.grow(before, steps.end.saturating_sub(self.first + self.cells.len()));
        self.first -= before;
    }

    fn add(&mut self, row: &Row, notes: &Notes, span: Span) {
        if let Some(values) = row.all_floats() {
            self.cells.add_floats(row.first - self.first, values);
            return;
        }
        let name = name_of(&row.labels);
        for (step, sample) in row.present() {
            self.cells.add_sample(step - self.first, &sample, (notes, name, span));
        }
    }
}

impl<'b, C: Cells> Folding<'b, C> {
    pub(crate) fn new(budget: &'b Budget, keeps_names: bool, span: Span) -> Self {
        let (charge, notes) = (Charge::none(budget), Notes::default());
        Self { budget, places: HashMap::new(), groups: Vec::new(), charge, notes, keeps_names, span }
    }

    /// The groups in order of their first series' labels.
    pub(crate) fn sorted(mut self) -> Self {
        self.groups.sort_by(|a, b| a.series.cmp(&b.series));
        self
    }

    pub(crate) fn finish(self, notes: &Notes) -> Result<Vector<'b>, QueryError> {
        notes.absorb(self.notes);
        let mut vector = Vector::empty(self.budget);
        for group in self.groups {
            let mut row = Row::new(group.labels).marked(group.drop_name);
            for (place, sample) in group.cells.finish(notes, self.span).enumerate() {
                if let Some(sample) = sample {
                    row.push(group.first + place, sample);
                }
            }
            vector.push(row)?;
        }
        Ok(vector)
    }
}

impl<C: Cells> RowSink for Folding<'_, C> {
    fn take(&mut self, made: Made) -> Result<(), QueryError> {
        self.budget.check()?;
        let Made { series, group, row } = made;
        let labels = group.unwrap_or_else(Labels::empty);
        let place = *self.places.entry(labels).or_insert_with_key(|labels| {
            let (labels, series) = (labels.clone(), series.clone());
            self.groups.push(Group { labels, series, drop_name: false, first: 0, cells: C::default() });
            self.groups.len() - 1
        });
        let Some(group) = self.groups.get_mut(place) else { return Ok(()) };
        let before = group.cells.len();
        group.reach(row.first..row.end());
        self.charge.add((group.cells.len() - before) * C::CELL_BYTES / SAMPLE_BYTES)?;
        group.drop_name |= row.drop_name && !self.keeps_names;
        if series < group.series {
            group.series = series;
        }
        group.add(&row, &self.notes, self.span);
        Ok(())
    }
}
