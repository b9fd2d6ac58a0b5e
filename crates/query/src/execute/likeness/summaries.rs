//! Groups that need not be read: the summaries of their samples show that all their places are farther away than the best.

use similarity::{Segment, SegmentQuery};
use store::{SelectedGroup, Store, Windows};

use super::grid::Grid;
use super::similar::Search;
use crate::plan::{Measure, Offsets};
use crate::{Plan, QueryError, Reads, Summary};

/// Segments of a place; fewer if they would have fewer values than it takes for summaries to be worth it.
const SEGMENTS_MAX: usize = 24;
const SEGMENT_VALUES_MIN: usize = 128;

/// Segments of one series.
const WINDOWS_MAX: usize = 100_000;

/// What compares summaries with a reference.
pub(super) struct Summaries<'a> {
    store: &'a Store,
    query: SegmentQuery,
    windows: Windows,
    /// Values of a segment.
    length: u64,
}

impl<'a> Summaries<'a> {
    /// `None` where summaries say nothing: of places at every offset, of stretches that are warped or not normalised, and of short ones.
    pub(super) fn new(store: &'a Store, input: &Plan, search: &Search<'_>) -> Option<Self> {
        let is_summed =
            search.similar.offsets == Offsets::Aligned && !matches!(search.similar.measure, Measure::Dtw { .. });
        if !is_summed || store.has_folds_in(&input.read_range()) {
            return None;
        }
        let width = search.width();
        let is_fit = |segments: &usize| width % segments == 0 && width / segments >= SEGMENT_VALUES_MIN;
        let segments = (2..=SEGMENTS_MAX).rev().find(is_fit)?;
        let query = SegmentQuery::new(&search.pattern, segments)?;
        let Grid { start_ns, step_ns, bins, .. } = search.grid;
        let length = width / segments;
        let count = bins / width * segments;
        let width_ns = step_ns.checked_mul(length as i64)?;
        if count > WINDOWS_MAX {
            return None;
        }
        Some(Self { store, query, windows: Windows { start_ns, width_ns, count }, length: length as u64 })
    }

    /// Returns whether all places of a group are farther away than the best are.
    pub(super) fn are_far(
        &self,
        group: &SelectedGroup,
        search: &Search<'_>,
        reads: &mut Reads,
    ) -> Result<bool, QueryError> {
        let limit = search.limit();
        if !limit.is_finite() || !group.columns.iter().all(|column| Summary::takes(column.value_type)) {
            return Ok(false);
        }
        let Some((columns, counts)) = self.store.aggregate_nodes(group, &self.windows)? else { return Ok(false) };
        reads.add(&counts);
        let is_far = |segments: &[Summary]| self.is_far(segments, limit);
        Ok(columns.iter().all(|column| column.windows.chunks(self.query.segments()).all(is_far)))
    }

    fn is_far(&self, segments: &[Summary], limit: f64) -> bool {
        // With fewer samples than bins one bin at least is empty. With as many, each has one, or there is an empty one, too.
        if segments.iter().any(|segment| segment.count < self.length) {
            return true;
        }
        if segments.iter().any(|segment| segment.count > self.length) {
            return false;
        }
        let known = |summary: &Summary| Segment {
            mean: summary.total() / summary.count as f64,
            min: summary.number(summary.min),
            max: summary.number(summary.max),
        };
        let segments: Vec<Segment> = segments.iter().map(known).collect();
        self.query.bound(&segments) > limit
    }
}
