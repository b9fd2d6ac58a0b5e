//! A series' bins of time, column by column, and the frames that they become.

use std::sync::Arc;

use model::{Cell, Labels};

use super::bins::{Bin, Bins};
use super::points::PointOrder;
use super::rows::Starts;
use crate::plan::{Aggregate, AggregateCall, AggregateInput, Grouping};
use crate::result::frame::{Frame, FrameColumn, VALUE};

/// The column that holds bins of the rows' times.
pub(super) const TIME: &str = "#TS";

/// A series' bins, column by column.
pub(super) struct Binned {
    pub(super) labels: Labels,
    pub(super) columns: Vec<(Arc<str>, Bins)>,
    /// Where bins begin that are there although no column has one.
    pub(super) rows: Starts,
}

impl Binned {
    /// Returns whether there is no bin.
    pub(super) fn is_empty(&self) -> bool {
        self.columns.is_empty() && self.rows.is_empty()
    }

    /// The samples that its bins take out of a budget.
    pub(super) fn held_samples(&self) -> usize {
        self.columns.iter().map(|(_, bins)| bins.held_samples()).sum()
    }

    /// Gives its bins to a series with other labels.
    pub(super) fn with_labels(&self, labels: Labels) -> Self {
        Self { labels, columns: self.columns.clone(), rows: self.rows.clone() }
    }

    /// The samples of the texts of sketches that aggregates make of it, at most.
    pub(super) fn sketch_text_samples_max(&self, grouping: &Grouping) -> usize {
        let sketches = grouping.aggregates.iter().filter(|call| call.aggregate.sketch() == Some(call.aggregate));
        let of_call = |call: &AggregateCall| -> usize {
            let name = bins_name(call);
            let is_of = |known: &str| if call.input == AggregateInput::Each { known != TIME } else { known == name };
            let columns = self.columns.iter().filter(|(known, _)| is_of(known));
            columns.flat_map(|(_, bins)| bins.iter()).map(|(_, bin)| bin.text_samples_max(call.aggregate)).sum()
        };
        sketches.map(of_call).sum()
    }

    /// The bins of a column.
    pub(super) fn column(&mut self, name: &Arc<str>) -> &mut Bins {
        let known = self.columns.iter().position(|(known, _)| known == name);
        let place = known.unwrap_or_else(|| {
            self.columns.push((name.clone(), Bins::default()));
            self.columns.len() - 1
        });
        &mut self.columns[place].1
    }
}

/// The name of the column of bins that an aggregate is made of.
pub(super) fn bins_name(call: &AggregateCall) -> String {
    let is_histogram = matches!((call.aggregate, &call.input), (Aggregate::Histogram(_), AggregateInput::Column(_)));
    if is_histogram || matches!(call.aggregate, Aggregate::Increase | Aggregate::OffMilliseconds) {
        return format!("({})", call.column_name());
    }
    if call.aggregate == Aggregate::CountDistinct {
        let distinct = AggregateCall { aggregate: Aggregate::DistinctSketch, input: call.input.clone() };
        return format!("(distinct {})", bins_name(&distinct));
    }
    if call.aggregate.is_of_points() {
        // Several of one column have the same points, in their order.
        let order = PointOrder::new(call.aggregate);
        return format!("(points {order:?} {:?})", call.input);
    }
    match &call.input {
        AggregateInput::Each => String::new(),
        AggregateInput::Column(column) => column.clone(),
        AggregateInput::Time => TIME.to_owned(),
        AggregateInput::Parts(parts) => parts.name(),
        AggregateInput::Sketches(column) => {
            format!("({} {column:?})", call.aggregate.sketch().map_or("", Aggregate::name))
        }
        AggregateInput::Tag(tag) => format!("(tag {tag:?})"),
    }
}

/// A column's bins in order of time.
type SortedBins = (Arc<str>, Vec<(i64, Bin)>);

pub(super) fn to_frame(series: Binned, grouping: &Grouping) -> Result<Frame, String> {
    let sorted = |(name, bins): (Arc<str>, Bins)| {
        let mut bins = bins.into_sorted();
        bins.iter_mut().for_each(|(_, bin)| bin.sort());
        (name, bins)
    };
    let of_columns: Vec<SortedBins> = series.columns.into_iter().map(sorted).collect();
    let starts = starts_of(&of_columns, &series.rows);
    let timestamps_ns = match grouping.width_ns {
        Some(_) => starts.clone(),
        None => starts.iter().map(|start_ns| first_row(&of_columns, &series.rows, *start_ns)).collect(),
    };
    // Bins of what is no column have names that no column has.
    let is_column = |name: &str| {
        let is_own = |call: &AggregateCall| {
            let is_plain = matches!(call.input, AggregateInput::Each | AggregateInput::Column(_));
            (!is_plain || call.aggregate.has_own_bins()) && bins_name(call) == name
        };
        name != TIME && !grouping.aggregates.iter().any(is_own)
    };
    let single_column = of_columns.iter().filter(|(name, _)| is_column(name)).count() == 1;
    let single_aggregate = grouping.aggregates.iter().filter(|call| call.input == AggregateInput::Each).count() == 1;
    let mut columns = Vec::new();
    let make = |name: &str, call: &AggregateCall, bins: Option<&[(i64, Bin)]>| {
        let mut bins = bins.unwrap_or_default().iter().peekable();
        let mut bin = |start_ns: &i64| bins.next_if(|(bin_ns, _)| bin_ns == start_ns).map(|(_, bin)| bin);
        if call.aggregate.sketch() == Some(call.aggregate) {
            let text = |start_ns| bin(start_ns).map_or(Ok(None), |bin| bin.sketch_text(call.aggregate));
            let texts: Vec<Option<String>> = starts.iter().map(text).collect::<Result<_, String>>()?;
            let cells = texts.iter().map(|text| text.as_deref().map_or(Cell::Null, Cell::Text));
            return FrameColumn::of_cells(name, &cells.collect::<Vec<_>>());
        }
        let cell = |start_ns: &i64| bin(start_ns).map_or(Cell::Null, |bin| bin.value(call.aggregate));
        FrameColumn::of_cells(name, &starts.iter().map(cell).collect::<Vec<_>>())
    };
    for (name, bins) in of_columns.iter().filter(|(name, _)| is_column(name)) {
        for call in grouping.aggregates.iter().filter(|call| call.input == AggregateInput::Each) {
            let name = match (single_column, single_aggregate) {
                (true, true) => VALUE.to_owned(),
                (false, true) => name.to_string(),
                (true, false) => call.column_name(),
                (false, false) => format!("{name}_{}", call.column_name()),
            };
            columns.push(make(&name, call, Some(bins))?);
        }
    }
    for call in &grouping.aggregates {
        if call.input == AggregateInput::Each {
            continue;
        }
        let of = bins_name(call);
        let bins = of_columns.iter().find(|(name, _)| **name == *of).map(|(_, bins)| bins.as_slice());
        columns.push(make(&call.column_name(), call, bins)?);
    }
    Ok(Frame::new(series.labels, timestamps_ns, columns))
}

/// Where bins begin, of columns and of rows: each once, in order.
fn starts_of(of_columns: &[SortedBins], rows: &Starts) -> Vec<i64> {
    let mut starts: Vec<i64> = Vec::new();
    for (_, bins) in of_columns {
        let has_all =
            starts.len() == bins.len() && starts.iter().zip(bins).all(|(known, (start_ns, _))| known == start_ns);
        if !has_all {
            starts.extend(bins.iter().map(|(start_ns, _)| *start_ns));
            starts.sort_unstable();
            starts.dedup();
        }
    }
    if !rows.is_empty() {
        starts.extend(rows.keys());
        starts.sort_unstable();
        starts.dedup();
    }
    starts
}

/// The time of the first row of the bin that begins at a time.
fn first_row(of_columns: &[SortedBins], rows: &Starts, start_ns: i64) -> i64 {
    let first = |(_, bins): &SortedBins| {
        let place = bins.binary_search_by_key(&start_ns, |(bin_ns, _)| *bin_ns).ok()?;
        bins.get(place).map(|(_, bin)| bin.first_ns())
    };
    of_columns.iter().filter_map(first).chain(rows.get(&start_ns).copied()).min().unwrap_or_default()
}
