//! Changes over all windows of a series at once. For a run of windows that lie alike, these are computed from two slices of the values, the
//! first and the last of each window, and one factor.

use crate::eval::rows::ABSENT;
use crate::range::extrapolation::ValueTrend;
use crate::range::marks::Marks;
use crate::range::rate::extrapolated_float_change;
use crate::range::window_positions::{WindowPositions, WindowRun};

/// The changes over all windows of a series of floats, and the step of the first; [`ABSENT`] where a window has too few.
pub(crate) fn changes_of_runs(
    values: &[f64],
    marks: &Marks,
    positions: &WindowPositions,
    counter: bool,
) -> (usize, Vec<f64>) {
    let (marks_rise, mut marks) = (marks.rises, marks.cursor(values));
    let runs = || positions.runs.iter().skip_while(|run| run.extrapolation.is_none());
    let before: usize = positions.runs.iter().take_while(|run| run.extrapolation.is_none()).map(|run| run.count).sum();
    let mut changes = Vec::with_capacity(runs().map(|run| run.count).sum());
    let mut edge_values = EdgeValues::default();
    for run in runs() {
        let Some(extrapolation) = &run.extrapolation else {
            changes.resize(changes.len() + run.count, ABSENT);
            continue;
        };
        let mut number = 0;
        while number < run.count {
            let marked = if counter { marks.next_marked(run, number) } else { None };
            let unmarked = marked.unwrap_or(run.count) - number;
            let (firsts, lasts) = edge_values.slices(values, run, number, unmarked);
            let trend = match (counter, marks_rise) {
                (false, _) => ValueTrend::Any,
                (true, false) => ValueTrend::Counter,
                (true, true) => ValueTrend::Rising,
            };
            extrapolation.push_changes(firsts, lasts, trend, &mut changes);
            number += unmarked;
            if marked.is_some() {
                let (first, end) = run.at(number);
                let inside = values.get(first..end).unwrap_or_default();
                let change = if let [first_value, .., last_value] = inside {
                    extrapolated_float_change(
                        *first_value,
                        *last_value,
                        marks.within(first, end),
                        extrapolation,
                        counter,
                    )
                } else {
                    ABSENT
                };
                changes.push(change);
                number += 1;
            }
        }
    }
    (positions.first_step + before, changes)
}

/// The first and the last values of consecutive windows.
#[derive(Default)]
struct EdgeValues {
    firsts: Vec<f64>,
    lasts: Vec<f64>,
}

impl EdgeValues {
    /// The values of `count` windows of a run, from window number `from`.
    fn slices<'a>(
        &'a mut self,
        values: &'a [f64],
        run: &WindowRun,
        from: usize,
        count: usize,
    ) -> (&'a [f64], &'a [f64]) {
        let (first, end) = run.at(from);
        let [firsts, lasts] = [first, end.saturating_sub(1)].map(|position| values.get(position..).unwrap_or_default());
        let stride = run.stride as usize;
        if stride == 1 {
            return (firsts.get(..count).unwrap_or_default(), lasts.get(..count).unwrap_or_default());
        }
        for (edge_values, values) in [(&mut self.firsts, firsts), (&mut self.lasts, lasts)] {
            edge_values.clear();
            match (stride, values.first()) {
                (0, Some(value)) => edge_values.resize(count, *value),
                (0, None) => {}
                _ => edge_values.extend(values.iter().step_by(stride).take(count)),
            }
        }
        (&self.firsts, &self.lasts)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::eval::annotations::Annotations;
    use crate::eval::rows::Steps;
    use crate::range::rate::extrapolated_change;
    use crate::range::samples::{Cursor, SampleInterval};
    use crate::range::window::SampleWindow;
    use crate::range::window_bounds::{Margins, WindowBounds, WindowEnds};
    use crate::syntax::ast::{Edges, Shift};
    use crate::syntax::functions::RangeFunction;
    use crate::syntax::span::Span;

    /// The change of each window by itself.
    fn one_by_one(times_ms: &[i64], values: &[f64], bounds: &WindowBounds, function: RangeFunction) -> Vec<f64> {
        let (marks, annotations, mut cursor) =
            (Marks::find(function, values), Annotations::default(), Cursor::default());
        let mut marked = marks.cursor(values);
        let change = |step: usize| {
            let end_ms = bounds.ends.at(step);
            let start_ms = end_ms - bounds.range_ms;
            let (first, end) = cursor.advance(times_ms, SampleInterval { after_ms: start_ms, to_ms: end_ms });
            let window = SampleWindow {
                timestamps_ms: &times_ms[first..end],
                values: &values[first..end],
                histogram_timestamps_ms: &[],
                histograms: &[],
                marked: marked.within(first, end),
                start_ms,
                end_ms,
                range_ms: bounds.range_ms,
                time_ms: end_ms,
                scalars: [f64::NAN; 2],
                edges: Edges::Plain,
                name: "",
                span: Span::from(0),
                quantile_span: Span::from(0),
                annotations: &annotations,
            };
            function.change().and_then(|change| extrapolated_change(&window, change)).unwrap_or(ABSENT)
        };
        (0..bounds.ends.steps.count).map(change).collect()
    }

    fn value() -> impl Strategy<Value = f64> {
        let special = [0.0, f64::NAN, f64::INFINITY, -1.0, 1e300];
        prop_oneof![20 => (0..1000i32).prop_map(f64::from), 1 => proptest::sample::select(special.to_vec())]
    }

    /// Times at regular distances with some irregular ones, and values that mostly rise from zero.
    fn samples() -> impl Strategy<Value = (Vec<i64>, Vec<f64>)> {
        let sample =
            (prop_oneof![20 => Just(0i64), 1 => 1..40i64], prop_oneof![9 => Just(None), 1 => value().prop_map(Some)]);
        (1i64..20, proptest::collection::vec(sample, 1..300)).prop_map(|(distance, samples)| {
            let (mut time, mut total) = (0, 0.0);
            let next = |(late, reset): (i64, Option<f64>)| {
                time += distance + late;
                total = reset.unwrap_or(total + 1.5);
                (time, total)
            };
            samples.into_iter().map(next).unzip()
        })
    }

    proptest! {
        #[test]
        fn runs_of_windows_are_what_each_window_is(
            (times_ms, values) in samples(),
            (start_ms, step_ms, count, range_ms) in (-50i64..200, 1i64..90, 1usize..200, 1i64..200),
            function in proptest::sample::select(vec![RangeFunction::Rate, RangeFunction::Increase, RangeFunction::Delta]),
        ) {
            let ends = WindowEnds::new(&Shift::default(), Steps { start_ms, step_ms, count });
            let bounds = WindowBounds { ends, range_ms, edges: Edges::Plain, margins: Margins::default() };
            let mut positions = WindowPositions::default();
            let change = function.change().unwrap();
            positions.find(&Arc::new(times_ms.clone()), &bounds, Some(change));
            let (first, changes) = changes_of_runs(&values, &Marks::find(function, &values), &positions, change.counter);
            let mut all = vec![ABSENT; count];
            all[first..first + changes.len()].copy_from_slice(&changes);
            let bits = |values: &[f64]| -> Vec<u64> { values.iter().map(|value| value.to_bits()).collect() };
            prop_assert_eq!(bits(&all), bits(&one_by_one(&times_ms, &values, &bounds, function)));
        }
    }
}
