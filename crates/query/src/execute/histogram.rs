//! Bins of histograms of a column, which hold counts alone.

use super::bins::{Bin, Bins, samples_of};
use crate::sketch::{Buckets, Histogram, Sketch};
use crate::{Budget, Frame, QueryError};

/// The bins of the histograms of a column's numbers, which are taken out of a budget: the caller gives back what [`Bins::held_samples`] says.
pub(super) fn of_column(
    frame: &Frame,
    (name, buckets): (&str, Buckets),
    start: &impl Fn(i64) -> i64,
    budget: &Budget,
) -> Result<Bins, QueryError> {
    let mut bins = Bins::default();
    let Some(column) = frame.columns.iter().find(|column| *column.name == *name) else { return Ok(bins) };
    let numbers = frame.timestamps_ns.iter().enumerate();
    let mut rows = numbers.filter_map(|(row, time_ns)| Some((*time_ns, column.cell(row).number()?))).peekable();
    let mut taken = 0;
    // Rows are in order of time: those of a bin follow one another.
    while let Some((first_ns, number)) = rows.next() {
        let wanted = samples_of(buckets.histogram_bytes());
        budget.take(wanted)?;
        taken += wanted;
        let start_ns = start(first_ns);
        let mut histogram = Histogram::of_numbers(buckets, &[number]);
        while let Some((_, number)) = rows.next_if(|(time_ns, _)| start(*time_ns) == start_ns) {
            histogram.add(buckets, number);
        }
        bins.add(start_ns, Bin::Sketch { sketch: Sketch::Histogram(Box::new(histogram)), first_ns });
    }
    budget.give_back(taken.saturating_sub(bins.held_samples()));
    Ok(bins)
}
