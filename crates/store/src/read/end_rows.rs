//! The rows at one end of a group's time: the last ones at or before a time, or the first ones from a time on. Intervals are read from that end,
//! each longer than the one before, until they hold enough rows.

use model::TimeRange;

use crate::Store;
use crate::StoreError;
use crate::cache::index_blocks::IndexBlockCache;
use crate::part::PartKey;
use crate::read::extent;
use crate::read::select::SelectedGroup;
use crate::read::table_rows::TableRows;
use crate::read::{GroupReader, KeySnapshot, by_block};

/// Length of the first interval, in nanoseconds.
const INTERVAL_NS: i64 = 60_000_000_000;
/// How much longer each is than the one before.
const INTERVAL_FACTOR: i64 = 16;

/// One end of a group's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The first rows.
    Oldest,
    /// The last rows.
    Newest,
}

/// Some rows at one end of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndRows {
    /// When.
    pub range: TimeRange,
    /// How many.
    pub rows: usize,
    /// At which end.
    pub end: End,
}

/// Intervals at one end of a time range, each longer than the one before.
pub(crate) struct Intervals {
    extent: TimeRange,
    end: End,
    length_ns: i64,
}

impl Intervals {
    pub(crate) const fn new(extent: TimeRange, end: End) -> Self {
        Self { extent, end, length_ns: INTERVAL_NS }
    }

    /// The next interval.
    pub(crate) fn advance(&mut self) -> TimeRange {
        let (TimeRange { start_ns, end_ns }, length_ns) = (self.extent, self.length_ns);
        self.length_ns = length_ns.saturating_mul(INTERVAL_FACTOR);
        match self.end {
            // The extent may be longer than any length.
            _ if length_ns == i64::MAX => self.extent,
            End::Newest => TimeRange::new(end_ns.saturating_sub(length_ns).max(start_ns), end_ns),
            End::Oldest => TimeRange::new(start_ns, start_ns.saturating_add(length_ns).min(end_ns)),
        }
    }
}

impl GroupReader<'_> {
    /// A group's rows at one end of a range, as many as are wanted or more, or all that there are.
    pub fn end_rows(&self, selected: &SelectedGroup, wanted: &EndRows) -> Result<TableRows, StoreError> {
        let EndRows { range, rows, end } = *wanted;
        // How far rows reach back need only be known if the first interval has too few.
        let (extent, mut is_exact) = match end {
            End::Newest => {
                let until_ns = self.store.last_row_bound(selected, &range)?;
                (until_ns.map(|until_ns| TimeRange::new(range.start_ns, until_ns)), false)
            }
            End::Oldest => (self.store.extent(selected, &range)?, true),
        };
        let Some(found) = extent else { return Ok(TableRows::new(&selected.columns, 0)) };
        let mut intervals = Intervals::new(found, end);
        loop {
            let interval = intervals.advance();
            let read = self.read_rows(selected, &interval)?;
            if interval == intervals.extent || read.timestamps_ns.len() >= rows.max(1) {
                return Ok(read);
            }
            if !is_exact {
                let Some(exact) = self.store.extent(selected, &found)? else { return Ok(read) };
                (intervals.extent, is_exact) = (exact, true);
            }
        }
    }
}

impl Store {
    /// A time after which a group has no rows within a range, nearly that of its last row: chunks count whole. `None` if there are no rows.
    fn last_row_bound(&self, selected: &SelectedGroup, range: &TimeRange) -> Result<Option<i64>, StoreError> {
        let Some(shard) = self.shards.get(selected.shard) else {
            return Ok(None);
        };
        let range = &self.retained(selected.key.database, range);
        let mut until_ns: Option<i64> = None;
        for (block, _) in by_block(&selected.columns) {
            let key = PartKey { block, ..selected.key };
            let (parts, frozen, mut head) = {
                let state = shard.state.lock();
                (state.parts.clone(), state.frozen.clone(), state.head.last_rows(std::iter::once(key), range))
            };
            let mut frozen = frozen.map(|frozen| frozen.head.last_rows(std::iter::once(key), range));
            for head in frozen.iter_mut().chain([&mut head]) {
                head.finish();
                until_ns = until_ns.max(head.get(0).until_ns());
            }
            let snapshot = KeySnapshot { key, parts, deletes: std::sync::Arc::default(), heads: Vec::new() };
            until_ns = until_ns.max(snapshot.last_row_bound(range, self.caches.index_blocks())?);
        }
        Ok(until_ns)
    }
}

impl KeySnapshot {
    /// A time after which the key's parts have no rows within a range.
    pub(crate) fn last_row_bound(
        &self,
        range: &TimeRange,
        index_blocks: &IndexBlockCache,
    ) -> Result<Option<i64>, StoreError> {
        let mut extent: Option<TimeRange> = None;
        // The part that was written last mostly has the last row: few of the others are searched.
        for part in self.parts.iter().rev().filter(|part| part.info.range.overlaps(range)) {
            if extent.is_none_or(|extent| extent.end_ns < part.info.range.end_ns.min(range.end_ns)) {
                part.find(self.key, index_blocks, |chunks, _| {
                    extent::ranges_of(part, chunks).for_each(|found| extent::widen(&mut extent, range, found));
                })?;
            }
        }
        Ok(extent.map(|extent| extent.end_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_grow_until_they_are_the_extent() {
        let now_ns = 1_700_000_000_000_000_000;
        for end in [End::Oldest, End::Newest] {
            for extent in [TimeRange::ALL, TimeRange::new(i64::MIN, now_ns), TimeRange::new(now_ns, now_ns)] {
                let mut intervals = Intervals::new(extent, end);
                assert!((0..12).map(|_| intervals.advance()).any(|interval| interval == extent), "{end:?} {extent:?}");
            }
        }
    }
}
