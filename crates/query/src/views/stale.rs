//! Which windows of a view are to be computed when it is read.

use model::TimeRange;

use super::ranges::{merged_to, normalized};
use super::{View, ViewCatalog};

/// Ranges of windows that one query computes apart; with more the oldest become one.
const RANGES_MAX: usize = 64;

/// Views that read one another, at most.
pub(crate) const DEPTH_MAX: usize = 8;

/// The windows of a view that may not be right as they are stored, as ranges of whole windows.
pub(crate) fn stale_ranges(view: &View, catalog: &dyn ViewCatalog, depth: usize) -> Vec<TimeRange> {
    let definition = &view.definition;
    let mut stale = vec![TimeRange::new(view.state.watermark_ns, i64::MAX)];
    let mut changed = Vec::new();
    for pending in &view.state.pending {
        if pending.is_fill { &mut stale } else { &mut changed }.push(pending.range);
    }
    match catalog.changes(&definition.database) {
        None => changed.push(TimeRange::ALL),
        Some(since) => {
            changed.extend(since.edge_ns.map(|edge_ns| TimeRange::new(edge_ns, i64::MAX)));
            changed.extend(since.late);
        }
    }
    if depth < DEPTH_MAX
        && let Some(below) = catalog.view_of_table(&definition.database, definition.source())
    {
        changed.extend(stale_ranges(&below, catalog, depth + 1));
    }
    let frozen_ns = view.first_from(catalog.frozen_before_ns(view));
    let again = |range: TimeRange| {
        let whole = view.windows_of(&range);
        TimeRange { start_ns: whole.start_ns.max(frozen_ns), end_ns: whole.end_ns }
    };
    let whole = stale.iter().map(|range| view.windows_of(range)).chain(changed.into_iter().map(again));
    merged_to(normalized(whole.collect()), RANGES_MAX)
}
