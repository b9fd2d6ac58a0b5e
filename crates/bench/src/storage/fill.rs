//! Filling a store through the fast path, step by step.

use indicatif::ProgressBar;
use model::{Field, Labels, ValueType};
use store::{GroupLayout, Store, Token};

use super::data;
use super::location::keep_up;
use crate::measure::process::thread_cpu_seconds;

/// Series that one call registers.
const REGISTERED_AT_ONCE: usize = 20_000;

/// Cells of a request.
pub(super) const REQUEST_CELLS: usize = 100_000;

/// The experiments' database.
pub(super) const DATABASE: &str = "default";

/// What rows are written to: the same data as lone series or in groups.
pub(super) enum Target {
    /// So many neighbouring series have the cells of a row.
    Series(Vec<Token>, usize),
    /// A cell for each member.
    Groups(Vec<Token>, GroupLayout),
}

impl Target {
    /// Lone series of the experiments' labels; every `width` of them stand for a row.
    pub(super) fn series(store: &Store, count: usize, width: usize, label_count: usize) -> Result<Self, String> {
        Self::series_timed(store, count, width, label_count).map(|(target, _)| target)
    }

    /// Registers, and measures the CPU seconds of it, without those of making labels.
    pub(super) fn series_timed(
        store: &Store,
        count: usize,
        width: usize,
        label_count: usize,
    ) -> Result<(Self, f64), String> {
        let mut cpu_seconds = 0.0;
        let mut tokens = Vec::with_capacity(count);
        let all: Vec<usize> = (0..count).collect();
        for some in all.chunks(REGISTERED_AT_ONCE) {
            let metrics: Vec<String> = some.iter().map(|series| data::metric(*series)).collect();
            let named = metrics.iter().zip(some);
            let series = named.map(|(metric, series)| Ok((metric.as_str(), data::labels(*series, label_count)?)));
            let series: Vec<(&str, Labels)> = series.collect::<Result<_, String>>()?;
            let before = thread_cpu_seconds();
            tokens.extend(store.register_series(DATABASE, &series).map_err(|error| error.to_string())?);
            cpu_seconds += thread_cpu_seconds() - before;
        }
        Ok((Self::Series(tokens, width.max(1)), cpu_seconds))
    }

    /// Groups with so many members.
    pub(super) fn groups(store: &Store, count: usize, members: usize, value_type: ValueType) -> Result<Self, String> {
        Self::groups_timed(store, count, members, value_type).map(|(target, _)| target)
    }

    /// Registers, and measures the CPU seconds of it, without those of making labels.
    pub(super) fn groups_timed(
        store: &Store,
        count: usize,
        members: usize,
        value_type: ValueType,
    ) -> Result<(Self, f64), String> {
        let mut cpu_seconds = 0.0;
        let field = |member: usize| (Field { name: format!("usage_{member:03}"), value_type }, Labels::empty());
        let fields: Vec<(Field, Labels)> = (0..members).map(field).collect();
        let mut tokens = Vec::with_capacity(count);
        let mut shared = None;
        let all: Vec<usize> = (0..count).collect();
        for some in all.chunks(REGISTERED_AT_ONCE) {
            let labels: Vec<Labels> = some.iter().map(|group| data::group_labels(*group)).collect::<Result<_, _>>()?;
            let before = thread_cpu_seconds();
            let registered = store.register_groups(DATABASE, "node", &labels, &fields);
            let (registered, layout) = registered.map_err(|error| error.to_string())?;
            cpu_seconds += thread_cpu_seconds() - before;
            tokens.extend(registered);
            shared = Some(layout);
        }
        let layout = shared.ok_or("there must be a group")?;
        Ok((Self::Groups(tokens, layout), cpu_seconds))
    }

    /// Rows of a step.
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Series(tokens, width) => tokens.len() / width,
            Self::Groups(tokens, _) => tokens.len(),
        }
    }

    /// Cells of a row.
    pub(super) fn width(&self) -> usize {
        match self {
            Self::Series(_, width) => *width,
            Self::Groups(_, layout) => layout.width(),
        }
    }

    /// Adds the cells of a row to a request.
    pub(super) fn add(
        &self,
        appender: &mut store::Appender<'_>,
        row: usize,
        timestamp_ns: i64,
        cells: &[u64],
    ) -> Result<(), String> {
        match self {
            Self::Groups(tokens, layout) => {
                let token = tokens.get(row).ok_or("a row beyond the groups")?;
                appender.row(*token, layout, timestamp_ns, cells).map_err(|error| error.to_string())
            }
            Self::Series(tokens, width) => {
                let tokens = tokens.get(row * width..(row + 1) * width).ok_or("a row beyond the series")?;
                let mut samples = tokens.iter().zip(cells);
                samples
                    .try_for_each(|(token, cell)| appender.sample(*token, timestamp_ns, f64::from_bits(*cell)))
                    .map_err(|error| error.to_string())
            }
        }
    }
}

/// Writes steps of all rows in order, doing all upkeep between requests. `row` fills the cells of a step's row and gives its
/// timestamp in nanoseconds.
pub(super) fn fill(
    store: &Store,
    target: &Target,
    steps: std::ops::Range<usize>,
    bar: &ProgressBar,
    mut row: impl FnMut(usize, usize, &mut [u64]) -> i64,
) -> Result<u64, String> {
    let mut cells = vec![0; target.width()];
    let (mut appender, mut waiting, mut written) = (store.appender(), 0, 0);
    for step in steps {
        for number in 0..target.rows() {
            let timestamp_ns = row(step, number, &mut cells);
            target.add(&mut appender, number, timestamp_ns, &cells)?;
            waiting += cells.len();
            if waiting >= REQUEST_CELLS {
                let full = std::mem::replace(&mut appender, store.appender());
                written += commit(store, full, waiting, bar)?;
                waiting = 0;
            }
        }
    }
    Ok(written + commit(store, appender, waiting, bar)?)
}

fn commit(store: &Store, appender: store::Appender<'_>, cells: usize, bar: &ProgressBar) -> Result<u64, String> {
    appender.commit().map_err(|error| error.to_string())?;
    keep_up(store)?;
    bar.inc(cells as u64);
    Ok(cells as u64)
}
