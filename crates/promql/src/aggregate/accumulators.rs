//! The accumulators of a group, one per step.

use crate::aggregate::accumulate::{Accumulate, SumAccumulator};
use crate::eval::annotations::{AnnotationContext, Annotations};
use crate::eval::rows::{Sample, are_all_present, is_absent};
use crate::eval::sum::CompensatedSum;
use crate::syntax::span::Span;

/// Accumulators of consecutive steps; a step without values has none.
pub(crate) trait StepAccumulators: Default + Send {
    /// Bytes that a step takes.
    const BYTES_PER_STEP: usize;

    fn len(&self) -> usize;

    /// Adds steps without values before and after the present ones.
    fn grow(&mut self, before: usize, after: usize);

    /// Adds floats from a step on; those of steps without a value are [`crate::eval::rows::ABSENT`].
    fn add_floats(&mut self, from: usize, values: &[f64]);

    /// Adds either kind of value at one step.
    fn add_sample(&mut self, step: usize, sample: &Sample, context: AnnotationContext<'_>);

    /// The results, in order of steps.
    fn finish(self, annotations: &Annotations, span: Span) -> impl Iterator<Item = Option<Sample>>;
}

/// One accumulator per step.
pub(crate) struct PerStep<F>(Vec<Option<F>>);

impl<F> Default for PerStep<F> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<F: Accumulate> StepAccumulators for PerStep<F> {
    const BYTES_PER_STEP: usize = size_of::<Option<F>>();

    fn len(&self) -> usize {
        self.0.len()
    }

    fn grow(&mut self, before: usize, after: usize) {
        grow(&mut self.0, before, after, || None);
    }

    fn add_floats(&mut self, from: usize, values: &[f64]) {
        let states = self.0.get_mut(from..).unwrap_or_default();
        for (state, value) in states.iter_mut().zip(values).filter(|(_, value)| !is_absent(**value)) {
            match state {
                Some(state) => state.add(*value),
                None => *state = Some(F::start(*value)),
            }
        }
    }

    fn add_sample(&mut self, step: usize, sample: &Sample, context: AnnotationContext<'_>) {
        if let Some(state) = self.0.get_mut(step) {
            F::add_sample(state, sample, context);
        }
    }

    fn finish(self, annotations: &Annotations, span: Span) -> impl Iterator<Item = Option<Sample>> {
        self.0.into_iter().map(move |state| state.and_then(|state| state.finish(annotations, span)))
    }
}

/// Sums: as columns while all that comes are floats, so that a row is added to all of them at once.
pub(crate) enum SumAccumulators {
    Floats(SumColumns),
    Any(PerStep<SumAccumulator>),
}

#[derive(Default)]
pub(crate) struct SumColumns {
    sums: Vec<f64>,
    compensations: Vec<f64>,
    /// True at steps with values.
    present: Vec<bool>,
}

impl Default for SumAccumulators {
    fn default() -> Self {
        Self::Floats(SumColumns::default())
    }
}

impl SumColumns {
    fn add(&mut self, from: usize, values: &[f64]) {
        let sums = self.sums.get_mut(from..).unwrap_or_default().iter_mut();
        let sums = sums.zip(self.compensations.get_mut(from..).unwrap_or_default()).zip(values);
        let present = self.present.get_mut(from..).unwrap_or_default().iter_mut();
        let add = |((sum, compensation), value): ((&mut f64, &mut f64), &f64)| {
            let added = CompensatedSum { sum: *sum, compensation: *compensation }.plus(*value);
            (*sum, *compensation) = (added.sum, added.compensation);
        };
        if are_all_present(values) {
            sums.for_each(add);
            present.take(values.len()).for_each(|present| *present = true);
        } else {
            for (state, present) in sums.zip(present).filter(|((_, value), _)| !is_absent(**value)) {
                add(state);
                *present = true;
            }
        }
    }

    fn into_sums(self) -> impl Iterator<Item = Option<CompensatedSum>> {
        let sums = self.sums.into_iter().zip(self.compensations);
        sums.zip(self.present)
            .map(|((sum, compensation), present)| present.then_some(CompensatedSum { sum, compensation }))
    }
}

impl StepAccumulators for SumAccumulators {
    const BYTES_PER_STEP: usize = PerStep::<SumAccumulator>::BYTES_PER_STEP;

    fn len(&self) -> usize {
        match self {
            Self::Floats(columns) => columns.sums.len(),
            Self::Any(states) => states.len(),
        }
    }

    fn grow(&mut self, before: usize, after: usize) {
        match self {
            Self::Floats(columns) => {
                // To this any value may be added, and the sum is that value to the bit.
                grow(&mut columns.sums, before, after, || -0.0);
                grow(&mut columns.compensations, before, after, || 0.0);
                grow(&mut columns.present, before, after, || false);
            }
            Self::Any(states) => states.grow(before, after),
        }
    }

    fn add_floats(&mut self, from: usize, values: &[f64]) {
        match self {
            Self::Floats(columns) => columns.add(from, values),
            Self::Any(states) => states.add_floats(from, values),
        }
    }

    fn add_sample(&mut self, step: usize, sample: &Sample, context: AnnotationContext<'_>) {
        if let Self::Floats(columns) = self {
            let sums = std::mem::take(columns).into_sums();
            *self = Self::Any(PerStep(sums.map(|sum| sum.map(SumAccumulator::from_sum)).collect()));
        }
        if let Self::Any(states) = self {
            states.add_sample(step, sample, context);
        }
    }

    fn finish(self, annotations: &Annotations, span: Span) -> impl Iterator<Item = Option<Sample>> {
        let (columns, states) = match self {
            Self::Floats(columns) => (columns, PerStep::default()),
            Self::Any(states) => (SumColumns::default(), states),
        };
        let floats = columns.into_sums().map(|sum| sum.map(|sum| Sample::Float(sum.value())));
        floats.chain(states.finish(annotations, span))
    }
}

fn grow<T>(states: &mut Vec<T>, before: usize, after: usize, empty: impl Fn() -> T) {
    if before > 0 {
        states.splice(0..0, std::iter::repeat_with(&empty).take(before));
    }
    states.resize_with(states.len() + after, &empty);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::eval::rows::ABSENT;

    fn value() -> impl Strategy<Value = f64> {
        let special = [ABSENT, 0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -f64::MAX, 1e-320];
        prop_oneof![3 => proptest::sample::select(special.to_vec()), 5 => any::<f64>(), 5 => -1e3..1e3]
    }

    fn bits(states: impl StepAccumulators) -> Vec<Option<u64>> {
        let bits = |sample: Option<Sample>| {
            let value = sample?.float()?;
            // Not a number is one thing, whatever its bits.
            Some(if value.is_nan() { f64::NAN } else { value }.to_bits())
        };
        states.finish(&Annotations::default(), Span::from(0)).map(bits).collect()
    }

    proptest! {
        /// Against adding one value after the other.
        #[test]
        fn columns_add_as_cells_do(rows in proptest::collection::vec((0usize..9, proptest::collection::vec(value(), 1..20)), 1..12)) {
            let (mut columns, mut states) = (SumAccumulators::default(), PerStep::<SumAccumulator>::default());
            columns.grow(2, 30);
            states.grow(2, 30);
            for (from, values) in &rows {
                columns.add_floats(*from, values);
                states.add_floats(*from, values);
            }
            prop_assert_eq!(bits(columns), bits(states));
        }
    }
}
