//! What a group of an aggregation has at its steps, while rows come.

use crate::fold::{Fold, Total};
use crate::notes::Notes;
use crate::rows::{Sample, are_all_present, is_absent};
use crate::sum::CompensatedSum;
use crate::syntax::span::Span;

/// A stretch of steps, each with what was made of the values there so far, or nothing.
pub(crate) trait Cells: Default + Send {
    /// Bytes that a step takes.
    const CELL_BYTES: usize;

    fn len(&self) -> usize;

    /// Adds steps without anything before and behind those that there are.
    fn grow(&mut self, before: usize, behind: usize);

    /// Adds floats to the cells from a place on; those of steps without a value are [`crate::rows::ABSENT`].
    fn add_floats(&mut self, from: usize, values: &[f64]);

    /// Adds either kind of value to one cell.
    fn add_sample(&mut self, place: usize, sample: &Sample, about: (&Notes, &str, Span));

    /// What came of each cell, in order.
    fn finish(self, notes: &Notes, span: Span) -> impl Iterator<Item = Option<Sample>>;
}

/// Each cell by itself.
pub(crate) struct EachCell<F>(Vec<Option<F>>);

impl<F> Default for EachCell<F> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<F: Fold> Cells for EachCell<F> {
    const CELL_BYTES: usize = size_of::<Option<F>>();

    fn len(&self) -> usize {
        self.0.len()
    }

    fn grow(&mut self, before: usize, behind: usize) {
        grow(&mut self.0, before, behind, || None);
    }

    fn add_floats(&mut self, from: usize, values: &[f64]) {
        let cells = self.0.get_mut(from..).unwrap_or_default();
        for (cell, value) in cells.iter_mut().zip(values).filter(|(_, value)| !is_absent(**value)) {
            match cell {
                Some(cell) => cell.add(*value),
                None => *cell = Some(F::start(*value)),
            }
        }
    }

    fn add_sample(&mut self, place: usize, sample: &Sample, (notes, name, span): (&Notes, &str, Span)) {
        if let Some(cell) = self.0.get_mut(place) {
            F::add_sample(cell, sample, notes, name, span);
        }
    }

    fn finish(self, notes: &Notes, span: Span) -> impl Iterator<Item = Option<Sample>> {
        self.0.into_iter().map(move |cell| cell.and_then(|cell| cell.finish(notes, span)))
    }
}

/// Sums: as columns while all that comes are floats, so that a row is added to all of them at once.
pub(crate) enum SumCells {
    Floats(SumColumns),
    Any(EachCell<Total>),
}

#[derive(Default)]
pub(crate) struct SumColumns {
    sums: Vec<f64>,
    compensations: Vec<f64>,
    /// Whether anything was added.
    seen: Vec<bool>,
}

impl Default for SumCells {
    fn default() -> Self {
        Self::Floats(SumColumns::default())
    }
}

impl SumColumns {
    fn add(&mut self, from: usize, values: &[f64]) {
        let sums = self.sums.get_mut(from..).unwrap_or_default().iter_mut();
        let sums = sums.zip(self.compensations.get_mut(from..).unwrap_or_default()).zip(values);
        let seen = self.seen.get_mut(from..).unwrap_or_default().iter_mut();
        let add = |((sum, compensation), value): ((&mut f64, &mut f64), &f64)| {
            let added = CompensatedSum { sum: *sum, compensation: *compensation }.plus(*value);
            (*sum, *compensation) = (added.sum, added.compensation);
        };
        if are_all_present(values) {
            sums.for_each(add);
            seen.take(values.len()).for_each(|seen| *seen = true);
        } else {
            for (cell, seen) in sums.zip(seen).filter(|((_, value), _)| !is_absent(**value)) {
                add(cell);
                *seen = true;
            }
        }
    }

    fn into_sums(self) -> impl Iterator<Item = Option<CompensatedSum>> {
        let sums = self.sums.into_iter().zip(self.compensations);
        sums.zip(self.seen).map(|((sum, compensation), seen)| seen.then_some(CompensatedSum { sum, compensation }))
    }
}

impl Cells for SumCells {
    const CELL_BYTES: usize = EachCell::<Total>::CELL_BYTES;

    fn len(&self) -> usize {
        match self {
            Self::Floats(columns) => columns.sums.len(),
            Self::Any(cells) => cells.len(),
        }
    }

    fn grow(&mut self, before: usize, behind: usize) {
        match self {
            Self::Floats(columns) => {
                // To this any value may be added, and the sum is that value to the bit.
                grow(&mut columns.sums, before, behind, || -0.0);
                grow(&mut columns.compensations, before, behind, || 0.0);
                grow(&mut columns.seen, before, behind, || false);
            }
            Self::Any(cells) => cells.grow(before, behind),
        }
    }

    fn add_floats(&mut self, from: usize, values: &[f64]) {
        match self {
            Self::Floats(columns) => columns.add(from, values),
            Self::Any(cells) => cells.add_floats(from, values),
        }
    }

    fn add_sample(&mut self, place: usize, sample: &Sample, about: (&Notes, &str, Span)) {
        if let Self::Floats(columns) = self {
            let sums = std::mem::take(columns).into_sums();
            *self = Self::Any(EachCell(sums.map(|sum| sum.map(Total::of)).collect()));
        }
        if let Self::Any(cells) = self {
            cells.add_sample(place, sample, about);
        }
    }

    fn finish(self, notes: &Notes, span: Span) -> impl Iterator<Item = Option<Sample>> {
        let (columns, cells) = match self {
            Self::Floats(columns) => (columns, EachCell::default()),
            Self::Any(cells) => (SumColumns::default(), cells),
        };
        let floats = columns.into_sums().map(|sum| sum.map(|sum| Sample::Float(sum.value())));
        floats.chain(cells.finish(notes, span))
    }
}

fn grow<T>(cells: &mut Vec<T>, before: usize, behind: usize, empty: impl Fn() -> T) {
    if before > 0 {
        cells.splice(0..0, std::iter::repeat_with(&empty).take(before));
    }
    cells.resize_with(cells.len() + behind, &empty);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rows::ABSENT;

    fn value() -> impl Strategy<Value = f64> {
        let special = [ABSENT, 0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -f64::MAX, 1e-320];
        prop_oneof![3 => proptest::sample::select(special.to_vec()), 5 => any::<f64>(), 5 => -1e3..1e3]
    }

    fn bits(cells: impl Cells) -> Vec<Option<u64>> {
        let bits = |sample: Option<Sample>| {
            let value = sample?.float()?;
            // Not a number is one thing, whatever its bits.
            Some(if value.is_nan() { f64::NAN } else { value }.to_bits())
        };
        cells.finish(&Notes::default(), Span::from(0)).map(bits).collect()
    }

    proptest! {
        /// Against adding one value after the other.
        #[test]
        fn columns_add_as_cells_do(rows in proptest::collection::vec((0usize..9, proptest::collection::vec(value(), 1..20)), 1..12)) {
            let (mut columns, mut cells) = (SumCells::default(), EachCell::<Total>::default());
            columns.grow(2, 30);
            cells.grow(2, 30);
            for (from, values) in &rows {
                columns.add_floats(*from, values);
                cells.add_floats(*from, values);
            }
            prop_assert_eq!(bits(columns), bits(cells));
        }
    }
}
