//! Which windows of a view are to be computed when it is read.

use model::TimeRange;

use super::ranges::{merged_to, normalized};
use super::{View, ViewCatalog, ViewChanges};

/// Ranges of windows that one query computes apart; with more the oldest become one.
const RANGES_MAX: usize = 64;

/// Views that read one another, at most.
pub const DEPTH_MAX: usize = 8;

/// The windows of a view that may not be right as they are stored, as ranges of whole windows: as far as the columns are that are read. The changes were asked for before the view: what
/// changed in between is then told by one of them at least.
pub(crate) fn stale_ranges(
    view: &View,
    catalog: &dyn ViewCatalog,
    changes: Option<&ViewChanges>,
    (is_read, depth): (&dyn Fn(&str) -> bool, usize),
) -> Vec<TimeRange> {
    let definition = &view.definition;
    let mut stale = vec![TimeRange::new(view.state.watermark_ns, i64::MAX)];
    let mut again_ranges = Vec::new();
    for pending in &view.state.pending {
        if pending.is_fill { &mut stale } else { &mut again_ranges }.push(pending.range);
    }
    let lacking = view.state.new_columns.iter().filter(|columns| columns.names.iter().any(|name| is_read(name)));
    again_ranges.extend(lacking.flat_map(|columns| columns.ranges.iter().copied()));
    stale.extend(catalog.rewritten(view));
    match changes {
        None => again_ranges.push(TimeRange::ALL),
        Some(since) => {
            again_ranges.extend(since.edge_ns.map(|edge_ns| TimeRange::new(edge_ns, i64::MAX)));
            // They may be of any table that is joined as of a time.
            let reach_ns = definition.as_of_reach_ns_max().unwrap_or(0);
            let reaching = |range: &TimeRange| TimeRange { end_ns: range.end_ns.saturating_add(reach_ns), ..*range };
            again_ranges.extend(since.late.iter().map(reaching));
        }
    }
    if depth < DEPTH_MAX
        && let Some(below) = catalog.view_of_table(&definition.database, definition.source())
    {
        // What is stored is not made of columns that the view below lacks.
        again_ranges.extend(stale_ranges(&below, catalog, changes, (&|_| false, depth + 1)));
    }
    let frozen_ns = view.first_from(catalog.frozen_before_ns(view));
    // Of a part of their rows no windows are made, also where none are stored.
    let open = |whole: TimeRange| TimeRange { start_ns: whole.start_ns.max(frozen_ns), ..whole };
    let again = |range: TimeRange| open(view.windows_reading(&range));
    let whole = stale.iter().map(|range| view.windows_of(range)).map(open).chain(again_ranges.into_iter().map(again));
    merged_to(normalized(whole.filter(|range| range.start_ns <= range.end_ns).collect()), RANGES_MAX)
}
