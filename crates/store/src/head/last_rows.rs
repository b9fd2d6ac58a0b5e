//! The last row in a range of each of some groups, as a head has them.

use std::sync::Arc;

use index::Slot;
use model::{TimeRange, ValueType};

use super::Head;
use super::group::{GroupHead, has_texts};
use super::layouts::LayoutId;
use super::row_buffer::{FullRows, NewestSearch};
use crate::part::PartKey;

/// What a head has of some groups at a moment. What other rows than those of open blocks say is looked for while the head is not held.
#[derive(Default)]
pub(crate) struct HeadLastRows {
    groups: Vec<OfGroup>,
    layouts: Vec<SharedLayout>,
    /// Timestamp and cells of rows among the shared ones.
    rows: Vec<u64>,
}

/// The search in one group.
struct OfGroup {
    /// A time after which it has none of its own rows; `None`: it has none at all.
    own_until_ns: Option<i64>,
    /// The layout of its shared rows, by its place, and the newest of these.
    shared: Option<(usize, NewestSearch)>,
}

/// Shared rows of the same columns.
struct SharedLayout {
    id: LayoutId,
    columns: Arc<[(Slot, ValueType)]>,
    has_texts: bool,
    full: FullRows,
}

/// A group's newest row in a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadLastRow<'a> {
    /// There is none.
    None,
    /// The row, with all cells that it has.
    Row { time_ns: i64, cells: &'a [u64], columns: &'a [(Slot, ValueType)] },
    /// There may be one, not after this time.
    Until(i64),
}

impl HeadLastRow<'_> {
    /// The newer one of two; of one time each may have some of the columns.
    pub(crate) fn or(self, other: Self) -> Self {
        let [until_ns, other_ns] = [self.until_ns(), other.until_ns()];
        match (self, other) {
            (row, Self::None) | (Self::None, row) => row,
            (row @ Self::Row { .. }, Self::Row { .. }) if until_ns > other_ns => row,
            (Self::Row { .. }, row @ Self::Row { .. }) if until_ns < other_ns => row,
            _ => until_ns.max(other_ns).map_or(Self::None, Self::Until),
        }
    }

    /// A time after which there is none, nearly that of the row.
    pub(crate) const fn until_ns(&self) -> Option<i64> {
        match self {
            Self::None => None,
            Self::Row { time_ns, .. } | Self::Until(time_ns) => Some(*time_ns),
        }
    }
}

impl Head {
    /// The newest rows of keys in a range; to be finished.
    pub(crate) fn last_rows(&self, keys: impl Iterator<Item = PartKey>, range: &TimeRange) -> HeadLastRows {
        let mut last = HeadLastRows::default();
        last.groups.reserve(keys.size_hint().0);
        for key in keys {
            let own_until_ns = self.group(&key).and_then(|head| head.last_until(range));
            let place = self.shared_location(key.group).filter(|_| key.block == 0);
            let shared = place.map(|(shared, layout, newest)| {
                let place =
                    last.layout(layout, || SharedLayout::new(layout, self.layouts.get(layout), shared.full_rows()));
                (place, shared.newest(newest, range, &mut last.rows))
            });
            last.groups.push(OfGroup { own_until_ns, shared });
        }
        last
    }
}

impl GroupHead {
    /// A time after which there are no rows in a range, by whole buffers; `None` if there are no rows in it.
    fn last_until(&self, range: &TimeRange) -> Option<i64> {
        let sealed = self.sealed.iter().map(super::Sealed::range);
        let found = sealed.chain(self.range()).filter(|found| found.overlaps(range));
        found.map(|found| found.end_ns.min(range.end_ns)).max()
    }
}

impl SharedLayout {
    fn new(id: LayoutId, columns: Arc<[(Slot, ValueType)]>, full: FullRows) -> Self {
        Self { id, has_texts: has_texts(&columns), columns, full }
    }
}

impl HeadLastRows {
    /// The place of a layout, which is made if it is not known.
    fn layout(&mut self, id: LayoutId, make: impl FnOnce() -> SharedLayout) -> usize {
        let known = self.layouts.iter().position(|layout| layout.id == id);
        known.unwrap_or_else(|| {
            self.layouts.push(make());
            self.layouts.len() - 1
        })
    }

    /// Looks for what is in no open block.
    pub(crate) fn finish(&mut self) {
        for (layout, search) in self.groups.iter_mut().filter_map(|group| group.shared.as_mut()) {
            if let Some(layout) = self.layouts.get(*layout) {
                search.go_on(&layout.full, &mut self.rows);
            }
        }
    }

    /// The newest row of one of the groups, by its place among them.
    pub(crate) fn get(&self, group: usize) -> HeadLastRow<'_> {
        let Some(group) = self.groups.get(group) else { return HeadLastRow::None };
        let shared =
            group.shared.as_ref().and_then(|(layout, search)| Some((self.layouts.get(*layout)?, search.newest()?)));
        match (shared, group.own_until_ns) {
            (None, None) => HeadLastRow::None,
            (Some((layout, (time_ns, at))), None) if !layout.has_texts => {
                let columns = &*layout.columns;
                let cells = self.rows.get(at + 1..at + 1 + columns.len()).unwrap_or_default();
                HeadLastRow::Row { time_ns, cells, columns }
            }
            (shared, own_until_ns) => {
                let until_ns = shared.map(|(_, (time_ns, _))| time_ns).max(own_until_ns);
                until_ns.map_or(HeadLastRow::None, HeadLastRow::Until)
            }
        }
    }
}
