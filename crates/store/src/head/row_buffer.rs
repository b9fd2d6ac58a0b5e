//! Rows of many groups that have the same columns: one buffer for all of them, so that a row costs a copy to the buffer's end and a
//! group costs nothing while it is silent. Lone series are groups of one column.
//!
//! Rows lie in order of arrival, and each knows where the one before it of the same group is: a read goes from a group's newest row
//! back, as far as rows can be new enough, a flush sorts all rows by counting. Nothing is sorted or encoded while rows come in but that small cells take few bytes
//! (`packed.rs`).

use std::collections::VecDeque;
use std::sync::Arc;

use index::{GroupId, Slot};
use model::{TimeRange, ValueType};

use super::block::{Block, Link};
use super::block_pool::BlockPool;
use super::packed::{self, RowForm};
use crate::part::chunk;

/// Bytes of rows that are kept together if their cells are large: rows of full blocks never move.
const BLOCK_BYTES: usize = 1 << 20;

/// Rows of a group that a flush copies at a time, column by column.
const ROWS_AT_ONCE: usize = 64;

/// Groups whose rows a flush copies in turns, and bytes that these may have then (a single group has what it has).
const GROUPS_AT_ONCE: usize = 32;
const GATHERED_BYTES_MAX: usize = 8 << 20;

/// Most rows of a buffer: their places fit 32 bits, one of which says that there is none.
const ROWS_MAX: usize = u32::MAX as usize;

/// Stands for no row.
pub(crate) const NONE: u32 = u32::MAX;

/// Rows of groups with the same columns.
#[derive(Debug)]
pub(crate) struct SharedRows {
    width: usize,
    /// Bytes of the full blocks' rows.
    full_bytes: usize,
    /// A row whose cells came in another order than the columns'.
    ordered: Vec<u64>,
    /// Each block has 2 to this power rows.
    block_bits: u32,
    /// Blocks in order of arrival. They change no more, so that readers need no lock.
    full: Arc<Vec<Arc<Block>>>,
    /// The newest rows; there may be none.
    open: Block,
    count: usize,
    /// Smallest timestamp of all rows.
    oldest_ns: i64,
    /// Where blocks come from and go to.
    pool: Arc<BlockPool>,
    pool_bytes_max: usize,
}

impl Drop for SharedRows {
    fn drop(&mut self) {
        // The first one is as small as a head was that never filled it. What is still read goes with its last reader.
        let (rows, bytes) = self.block_room();
        let full = Arc::try_unwrap(std::mem::take(&mut self.full)).unwrap_or_default();
        let own = full.into_iter().filter_map(Arc::into_inner).chain([std::mem::take(&mut self.open)]);
        self.pool.give(own.filter(|block| block.has_room_of(rows, bytes)), self.pool_bytes_max);
    }
}

impl SharedRows {
    /// Without rows; of these columns. Of the memory of its blocks so many bytes are kept in the end.
    pub(crate) fn new(columns: &[(Slot, ValueType)], pool: Arc<BlockPool>, pool_bytes_max: usize) -> Self {
        let width = columns.len();
        let block_bits = (BLOCK_BYTES / ((1 + width) * 8)).max(1).ilog2();
        Self {
            width,
            full_bytes: 0,
            ordered: vec![0; width],
            block_bits,
            full: Arc::default(),
            open: Block { form: Arc::new(RowForm::new(columns)), newest_ns: i64::MIN, ..Block::default() },
            count: 0,
            oldest_ns: i64::MAX,
            pool,
            pool_bytes_max,
        }
    }

    /// Rows of a block, and bytes that they take as the newest ones are.
    fn block_room(&self) -> (usize, usize) {
        (self.rows_of_block(), self.open.form.room_bytes(self.rows_of_block()))
    }

    const fn rows_of_block(&self) -> usize {
        1 << self.block_bits
    }

    /// Bytes that all rows take.
    pub(crate) const fn bytes(&self) -> usize {
        self.full_bytes + self.open.bytes()
    }

    /// Returns whether there is no room for more rows, whatever memory there is.
    pub(crate) fn is_full(&self) -> bool {
        self.count >= ROWS_MAX
    }

    /// Adds a row after a group's previous one ([`NONE`] if there is none), and says where it is. `places` says where its cells
    /// stand among the columns, `None` that they are in order.
    pub(crate) fn push(
        &mut self,
        group: GroupId,
        previous: u32,
        timestamp_ns: i64,
        cells: &[u64],
        places: Option<&[usize]>,
    ) -> u32 {
        if self.count > 0 && self.place_in_block(self.count) == 0 {
            self.begin_block();
        }
        let cells = match places {
            None => cells,
            Some(places) => {
                for (cell, place) in cells.iter().zip(places) {
                    self.ordered[*place] = *cell;
                }
                &self.ordered
            }
        };
        let rows_of_block = self.rows_of_block();
        self.open.push(Link { group, previous }, timestamp_ns, cells, rows_of_block);
        self.oldest_ns = self.oldest_ns.min(timestamp_ns);
        let place = self.count as u32;
        self.count += 1;
        place
    }

    /// The open block is full: the next row goes into another.
    fn begin_block(&mut self) {
        self.full_bytes += self.open.bytes();
        let newest_ns = self.open.newest_ns;
        let next = Block { newest_ns, ..self.new_block() };
        let full = std::mem::replace(&mut self.open, next);
        Arc::make_mut(&mut self.full).push(Arc::new(full));
    }

    /// A block with room for all its rows. The first one is none such but grows as it is filled: a small head stays small.
    fn new_block(&self) -> Block {
        let (rows, bytes) = self.block_room();
        let form = self.open.form.clone();
        match self.pool.take(rows, bytes) {
            Some(block) => Block { form, ..block },
            None => Block::with_room(form, (rows, bytes)),
        }
    }

    fn block(&self, place: u32) -> &Block {
        self.full.get(place as usize >> self.block_bits).map_or(&self.open, |block| block)
    }

    const fn place_in_block(&self, place: usize) -> usize {
        place & ((1 << self.block_bits) - 1)
    }

    /// A row, and how it is packed.
    fn packed(&self, place: u32) -> (&RowForm, &[u8]) {
        let block = self.block(place);
        (&block.form, block.packed(self.place_in_block(place as usize)))
    }

    /// Appends the first of some rows, a few that are packed alike, column by column; the places of the others.
    fn gather<'a, 'p>(&'a self, places: &'p [u32], rows: &mut Vec<&'a [u8]>, into: &mut GroupRows) -> &'p [u32] {
        let Some(first) = places.first() else {
            return places;
        };
        let form = self.packed(*first).0;
        let packed = places.iter().take(ROWS_AT_ONCE).map(|place| self.packed(*place));
        rows.clear();
        rows.extend(packed.take_while(|(of_row, _)| std::ptr::eq(*of_row, form)).map(|(_, row)| row));
        into.timestamps_ns.extend(rows.iter().map(|row| packed::timestamp_of(row)));
        let columns = into.columns.iter_mut().enumerate();
        columns.for_each(|(number, column)| form.unpack_column(rows, number, column));
        places.get(rows.len()..).unwrap_or_default()
    }

    /// A row's place in the open block, if it is there.
    fn place_in_open(&self, place: u32) -> Option<usize> {
        let first = (self.full.len() as u32) << self.block_bits;
        if place == NONE { None } else { Some(place.checked_sub(first)? as usize) }
    }

    /// A group's rows in the open block from its newest one back, as far as they can be this new, each with the place of the one before it;
    /// that is [`NONE`] where none before it can be.
    fn open_rows(&self, newest: u32, start_ns: i64) -> impl Iterator<Item = (u32, &[u8])> {
        let mut place = newest;
        std::iter::from_fn(move || {
            let (link, row) = self.open.row(self.place_in_open(place)?)?;
            place = link.previous;
            if self.place_in_open(place).is_some_and(|place| self.open.newest_until(place) < start_ns) {
                place = NONE;
            }
            Some((place, row))
        })
    }

    /// Where a group's rows in a range are: those of the open block are copied, the others are looked for later.
    pub(crate) fn view(&self, newest: u32, range: &TimeRange) -> SharedView {
        let (width, block_bits) = (self.width, self.block_bits);
        // Where no row can be in the range, none is looked at: there are as many as a group got since the last flush.
        let is_apart = range.end_ns < self.oldest_ns || self.count > 0 && range.start_ns > self.open.newest_ns;
        let (mut newest, mut open) = (if is_apart { NONE } else { newest }, Vec::new());
        for (before, row) in self.open_rows(newest, range.start_ns) {
            if range.contains(packed::timestamp_of(row)) {
                self.open.form.unpack(row, &mut open);
            }
            newest = before;
        }
        SharedView { width, block_bits, full: self.full.clone(), range: *range, newest, open }
    }

    /// Returns whether a group has a row in a range.
    pub(crate) fn has_rows(&self, newest: u32, range: &TimeRange) -> bool {
        self.open_rows(newest, range.start_ns).any(|(_, row)| range.contains(packed::timestamp_of(row)))
            || self.view(newest, range).back().next().is_some()
    }

    /// Begins to look for a group's newest row in a range: in the open block.
    pub(crate) fn newest(&self, newest: u32, range: &TimeRange, rows: &mut Vec<u64>) -> NewestSearch {
        let mut search = NewestSearch { range: *range, next: newest, newest: None };
        search.look(|place| Some((&self.open, self.place_in_open(place)?)), rows);
        search
    }

    /// The rows that no writer changes any more.
    pub(crate) fn full_rows(&self) -> FullRows {
        FullRows { blocks: self.full.clone(), block_bits: self.block_bits }
    }

    /// The first row that may be as late as a time: all before it are earlier.
    fn first_since(&self, start_ns: i64) -> u32 {
        let number = self.full.partition_point(|block| block.newest_ns < start_ns);
        let block = self.full.get(number).map_or(&self.open, |block| block);
        ((number << self.block_bits) + block.first_since(start_ns)) as u32
    }

    /// All rows in a range, whatever groups they are of; `None` if more than so many are to be looked at for them. The columns are those of the
    /// buffer.
    pub(crate) fn recent(
        &self,
        columns: Arc<[(Slot, ValueType)]>,
        range: &TimeRange,
        rows_max: usize,
    ) -> Option<GroupedRows> {
        let first = self.first_since(range.start_ns);
        if self.count - first as usize > rows_max {
            return None;
        }
        let is_inside = |place: &u32| range.contains(packed::timestamp_of(self.packed(*place).1));
        let places: Vec<u32> = (first..self.count as u32).filter(is_inside).collect();
        let group = |place: &u32| {
            let link = self.block(*place).links.get(self.place_in_block(*place as usize));
            link.map_or(GroupId::MAX, |link| link.group)
        };
        let groups = places.iter().map(group).collect();
        let mut gathered = GroupRows::with_room(places.len(), self.width);
        let (mut rest, mut rows) = (places.as_slice(), Vec::with_capacity(ROWS_AT_ONCE));
        while !rest.is_empty() {
            rest = self.gather(rest, &mut rows, &mut gathered);
        }
        Some(GroupedRows { columns, groups, timestamps_ns: gathered.timestamps_ns, cells: gathered.columns })
    }

    /// All rows by group.
    pub(crate) fn by_group(&self) -> RowsByGroup<'_> {
        let links = || self.full.iter().flat_map(|block| &block.links).chain(&self.open.links);
        let (first, last) =
            links().fold((GroupId::MAX, 0), |(first, last), link| (first.min(link.group), last.max(link.group)));
        let span = (last as usize + 1).saturating_sub(first as usize);
        if span / 4 > self.count {
            // Few rows of groups that lie far apart.
            let mut rows: Vec<(GroupId, u32)> = links().map(|link| link.group).zip(0..).collect();
            rows.sort_unstable();
            let mut groups: Vec<(GroupId, u32)> =
                rows.iter().zip(0..).map(|((group, _), place)| (*group, place)).collect();
            groups.dedup_by_key(|(group, _)| *group);
            let order = rows.into_iter().map(|(_, place)| place).collect();
            return RowsByGroup { shared: self, groups, order, ready: VecDeque::new() };
        }
        // A counting sort: how many rows each group has, where they start, where they go.
        let mut starts = vec![0u32; span];
        links().for_each(|link| starts[(link.group - first) as usize] += 1);
        let mut groups = Vec::new();
        let mut sum = 0;
        for (start, group) in starts.iter_mut().zip(first..) {
            if *start > 0 {
                groups.push((group, sum));
            }
            sum += std::mem::replace(start, sum);
        }
        let mut order = vec![0; self.count];
        for (link, place) in links().zip(0..) {
            let at = &mut starts[(link.group - first) as usize];
            order[*at as usize] = place;
            *at += 1;
        }
        RowsByGroup { shared: self, groups, order, ready: VecDeque::new() }
    }
}

/// Rows of groups in order of arrival.
#[derive(Debug)]
pub(crate) struct GroupedRows {
    pub(crate) columns: Arc<[(Slot, ValueType)]>,
    pub(crate) groups: Vec<GroupId>,
    pub(crate) timestamps_ns: Vec<i64>,
    /// Of each column as many as rows.
    pub(crate) cells: Vec<Vec<u64>>,
}

/// A group's rows in a range at a moment, for a reader that blocks no writer while it copies them.
#[derive(Debug, Clone)]
pub(crate) struct SharedView {
    width: usize,
    block_bits: u32,
    full: Arc<Vec<Arc<Block>>>,
    range: TimeRange,
    /// The group's newest row in full blocks.
    newest: u32,
    /// Timestamp and cells of newer ones, the newest first.
    open: Vec<u64>,
}

impl SharedView {
    /// The rows of full blocks from the newest one back, as far as they can be in the range.
    fn back(&self) -> impl Iterator<Item = (&RowForm, &[u8])> {
        let mut place = self.newest;
        std::iter::from_fn(move || {
            let block = self.full.get(place as usize >> self.block_bits)?;
            let in_block = place as usize & ((1 << self.block_bits) - 1);
            if block.newest_until(in_block) < self.range.start_ns {
                return None;
            }
            let (link, row) = block.row(in_block)?;
            place = link.previous;
            Some((&*block.form, row))
        })
        .filter(|(_, row)| self.range.contains(packed::timestamp_of(row)))
    }

    /// The rows in order of arrival: timestamp and cells of each, one after the other.
    pub(crate) fn rows(&self) -> Vec<u64> {
        let full: Vec<(&RowForm, &[u8])> = self.back().collect();
        let mut rows = Vec::with_capacity(full.len() * (1 + self.width) + self.open.len());
        full.into_iter().rev().for_each(|(form, row)| form.unpack(row, &mut rows));
        self.open.chunks_exact(1 + self.width).rev().for_each(|row| rows.extend_from_slice(row));
        rows
    }
}

/// Blocks that are full.
pub(crate) struct FullRows {
    blocks: Arc<Vec<Arc<Block>>>,
    block_bits: u32,
}

/// A group's newest row in a range, looked for from the row that came last: late rows stand before others.
pub(crate) struct NewestSearch {
    range: TimeRange,
    /// Where to look next; [`NONE`] when all is seen that matters.
    next: u32,
    /// The newest row so far: when it is, and where timestamp and cells begin among the rows that were taken.
    newest: Option<(i64, usize)>,
}

impl NewestSearch {
    /// Goes on in full blocks.
    pub(crate) fn go_on(&mut self, full: &FullRows, rows: &mut Vec<u64>) {
        let in_block = |place: u32| place as usize & ((1 << full.block_bits) - 1);
        self.look(|place| Some((&**full.blocks.get(place as usize >> full.block_bits)?, in_block(place))), rows);
    }

    /// The newest row so far: its time, and where it begins among the rows that were taken.
    pub(crate) const fn newest(&self) -> Option<(i64, usize)> {
        self.newest
    }

    /// Looks at rows, as far as they are in blocks that are given, and takes the newest.
    fn look<'b>(&mut self, block_of: impl Fn(u32) -> Option<(&'b Block, usize)>, rows: &mut Vec<u64>) {
        let mut newest: Option<(i64, &Block, &[u8])> = None;
        while let Some((block, place)) = block_of(self.next) {
            // Of one time the row that came last counts, so that the others may be as new.
            let until_ns = block.newest_until(place);
            let known_ns = newest.map(|(time_ns, ..)| time_ns).or(self.newest.map(|(time_ns, _)| time_ns));
            if until_ns < self.range.start_ns || known_ns.is_some_and(|known_ns| until_ns <= known_ns) {
                self.next = NONE;
                break;
            }
            let Some((link, row)) = block.row(place) else { break };
            let time_ns = packed::timestamp_of(row);
            if self.range.contains(time_ns) && known_ns.is_none_or(|known_ns| time_ns > known_ns) {
                newest = Some((time_ns, block, row));
            }
            self.next = link.previous;
        }
        if let Some((time_ns, block, row)) = newest {
            self.newest = Some((time_ns, rows.len()));
            block.form.unpack(row, rows);
        }
    }
}

/// Rows by group, for a flush.
pub(crate) struct RowsByGroup<'a> {
    shared: &'a SharedRows,
    /// Ascending, and where each group's rows start in `order`.
    groups: Vec<(GroupId, u32)>,
    /// Places of rows.
    order: Vec<u32>,
    /// Groups whose rows were copied together with those of one before them.
    ready: VecDeque<(GroupId, GroupRows)>,
}

impl RowsByGroup<'_> {
    /// The groups that have rows, ascending.
    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupId> {
        self.groups.iter().map(|(group, _)| *group)
    }

    /// A group's rows: by time where no two have the same, else in order of arrival. Quick if groups are requested in order, each once.
    pub(crate) fn of_group(&mut self, group: GroupId) -> GroupRows {
        if !self.ready.iter().any(|(ready, _)| *ready == group) {
            let Ok(found) = self.groups.binary_search_by_key(&group, |(group, _)| *group) else {
                return GroupRows::default();
            };
            self.ready = self.gather(found);
        }
        let asked_for = std::iter::from_fn(|| self.ready.pop_front()).find(|(ready, _)| *ready == group);
        asked_for.map(|(_, rows)| rows.in_order()).unwrap_or_default()
    }

    /// The rows of a group and of some after it. What neighbours got at one time lies side by side, so that a cache line and a page of
    /// memory serve several of them, but only for a while: they take turns, a few rows each.
    fn gather(&self, first: usize) -> VecDeque<(GroupId, GroupRows)> {
        let (mut groups, mut places) = (VecDeque::new(), Vec::new());
        let mut bytes = 0;
        for number in (first..self.groups.len()).take(GROUPS_AT_ONCE) {
            let of_group = self.rows_of(number);
            bytes += of_group.len() * (1 + self.shared.width) * size_of::<u64>();
            if number > first && bytes > GATHERED_BYTES_MAX {
                break;
            }
            let group = self.groups.get(number).map_or(GroupId::MAX, |(group, _)| *group);
            groups.push_back((group, GroupRows::with_room(of_group.len(), self.shared.width)));
            places.push(of_group);
        }
        let mut rows = Vec::with_capacity(ROWS_AT_ONCE);
        while places.iter().any(|places| !places.is_empty()) {
            for (places, (_, gathered)) in places.iter_mut().zip(&mut groups) {
                *places = self.shared.gather(places, &mut rows, gathered);
            }
        }
        groups
    }

    /// Where the rows of a group are, by its number.
    fn rows_of(&self, number: usize) -> &[u32] {
        let at = |number: usize| self.groups.get(number).map_or(self.order.len(), |(_, start)| *start as usize);
        self.order.get(at(number)..at(number + 1)).unwrap_or_default()
    }
}

/// What a flush takes of one group.
#[derive(Debug, Default)]
pub(crate) struct GroupRows {
    pub(crate) timestamps_ns: Vec<i64>,
    /// The cells of each column.
    pub(crate) columns: Vec<Vec<u64>>,
    /// True if timestamps ascend, none twice.
    pub(crate) is_ordered: bool,
}

impl GroupRows {
    fn with_room(rows: usize, width: usize) -> Self {
        let columns = (0..width).map(|_| Vec::with_capacity(rows)).collect();
        Self { timestamps_ns: Vec::with_capacity(rows), columns, is_ordered: false }
    }

    /// In order of time, if no two rows have the same.
    fn in_order(mut self) -> Self {
        self.is_ordered = self.timestamps_ns.is_sorted_by(|before, after| before < after);
        if self.is_ordered {
            return self;
        }
        let Some(order) = chunk::order_distinct(&self.timestamps_ns) else {
            return self;
        };
        let timestamps_ns = ordered(&self.timestamps_ns, &order);
        let columns = self.columns.iter().map(|column| ordered(column, &order)).collect();
        Self { timestamps_ns, columns, is_ordered: true }
    }
}

/// What stands at some places.
fn ordered<T: Copy>(values: &[T], order: &[u32]) -> Vec<T> {
    let mut ordered = Vec::with_capacity(order.len());
    ordered.extend(order.iter().filter_map(|at| values.get(*at as usize)).copied());
    ordered
}

#[cfg(test)]
mod tests {
    use super::super::block::INTERVAL_ROWS;
    use super::*;

    /// Without rows; of so many columns of counts.
    fn rows_of(width: usize, pool: Arc<BlockPool>, pool_bytes_max: usize) -> SharedRows {
        let columns: Vec<_> = (0..width as u32).map(|slot| (slot, ValueType::U64)).collect();
        SharedRows::new(&columns, pool, pool_bytes_max)
    }

    fn of_group(shared: &SharedRows, newest: u32, range: &TimeRange) -> Vec<u64> {
        shared.view(newest, range).rows()
    }

    /// Timestamps of a group's rows, whose one cell must be the timestamp again.
    fn times(rows: &[u64]) -> Vec<i64> {
        assert!(rows.chunks(2).all(|row| row[0] == row[1]));
        rows.chunks(2).map(|row| row[0] as i64).collect()
    }

    fn check(groups: u32, stride: u32, total: i64) {
        let mut shared = rows_of(1, Arc::default(), 0);
        let mut newest = vec![NONE; groups as usize];
        for number in 0..total {
            let group = number as u32 % groups;
            let place = &mut newest[group as usize];
            *place = shared.push(group * stride, *place, number, &[number as u64], None);
        }
        let expected: Vec<i64> = (0..total).filter(|number| *number as u32 % groups == 13).collect();
        assert_eq!(times(&of_group(&shared, newest[13], &TimeRange::ALL)), expected);
        let second = expected[1];
        assert_eq!(times(&of_group(&shared, newest[13], &TimeRange::new(14, second))), [second]);
        assert_eq!(
            times(&of_group(&shared, newest[13], &TimeRange::new(total - 200, total))).len(),
            200 / groups as usize
        );
        assert!(shared.has_rows(newest[13], &TimeRange::new(14, second)));
        assert!(!shared.has_rows(newest[13], &TimeRange::new(14, second - 1)));
        let mut by_group = shared.by_group();
        let found = by_group.of_group(13 * stride);
        assert_eq!((&found.timestamps_ns, found.is_ordered), (&expected, true));
        assert!(found.columns[0].iter().zip(&expected).all(|(cell, time)| *cell as i64 == *time));
        assert!(by_group.of_group(13 * stride + 1).timestamps_ns.is_empty() || stride == 1);
        assert!(by_group.groups().eq((0..groups).map(|group| group * stride)));
    }

    #[test]
    fn rows_come_back_in_order_of_arrival() {
        check(100, 1, 300_000);
        check(50, 100_000, 10_000);
    }

    /// Rows of one group, whose first cell is the timestamp and whose second says when they came.
    fn check_grouped(arrivals: &[i64], is_ordered: bool, expected: &[(i64, u64)]) {
        let mut shared = rows_of(2, Arc::default(), 0);
        arrivals.iter().zip(0..).fold(NONE, |previous, (timestamp_ns, number)| {
            shared.push(7, previous, *timestamp_ns, &[*timestamp_ns as u64, number], None)
        });
        let found = shared.by_group().of_group(7);
        let times: Vec<i64> = expected.iter().map(|(timestamp_ns, _)| *timestamp_ns).collect();
        let columns = vec![
            expected.iter().map(|(time, _)| *time as u64).collect(),
            expected.iter().map(|(_, number)| *number).collect::<Vec<u64>>(),
        ];
        assert_eq!((found.timestamps_ns, found.columns, found.is_ordered), (times, columns, is_ordered));
    }

    #[test]
    fn a_flush_gets_rows_by_time_unless_some_replace_others() {
        check_grouped(&[1, 2, 3], true, &[(1, 0), (2, 1), (3, 2)]);
        check_grouped(&[5, 1, 7, 6, 2], true, &[(1, 1), (2, 4), (5, 0), (6, 3), (7, 2)]);
        check_grouped(&[5, 1, 5], false, &[(5, 0), (1, 1), (5, 2)]);
    }

    #[test]
    fn a_view_stays_as_it_was() {
        let fill = |shared: &mut SharedRows, newest: u32, to: usize| {
            (shared.count..to).fold(newest, |newest, time| shared.push(3, newest, time as i64, &[time as u64], None))
        };
        // Views of an open first block, of a full one, and of a second that is open.
        for (blocks, rows) in [(0, 1), (1, -1), (1, 0), (1, 1), (2, 0), (2, 5)] {
            let mut shared = rows_of(1, Arc::default(), 0);
            let rows = (blocks << shared.block_bits) + rows;
            let newest = fill(&mut shared, NONE, rows as usize);
            let view = shared.view(newest, &TimeRange::ALL);
            let more = rows as usize + (3 << shared.block_bits) / 2;
            fill(&mut shared, newest, more);
            drop(shared);
            assert_eq!(times(&view.rows()), (0..rows).collect::<Vec<_>>(), "{rows}");
        }
    }

    #[test]
    fn cells_go_to_their_columns() {
        let mut shared = rows_of(3, Arc::default(), 0);
        let place = shared.push(7, NONE, -1, &[1, 2, 3], Some(&[2, 0, 1]));
        assert_eq!(of_group(&shared, place, &TimeRange::ALL), [u64::MAX, 2, 3, 1]);
    }

    #[test]
    fn cells_that_grow_are_read_from_all_blocks() {
        let mut shared = rows_of(2, Arc::default(), 0);
        let rows_of_block = shared.rows_of_block() as u64;
        // The second column's cells are small in the first block, and grow within the second and the third.
        let second = |row: u64| match row {
            row if row > rows_of_block * 5 / 2 => u64::MAX - row,
            row if row > rows_of_block * 3 / 2 => row,
            row => row % 100,
        };
        let count = rows_of_block * 3 + 5;
        let mut newest = [NONE; 2];
        for row in 0..count {
            let newest = &mut newest[row as usize % 2];
            *newest = shared.push(row as u32 % 2, *newest, row as i64, &[7, second(row)], None);
        }
        let expected: Vec<u64> = (0..count).filter(|row| row % 2 == 1).collect();
        let seconds: Vec<u64> = expected.iter().map(|row| second(*row)).collect();
        let found = shared.by_group().of_group(1);
        assert_eq!(found.columns, [vec![7; expected.len()], seconds]);
        let rows: Vec<u64> = expected.iter().flat_map(|row| [*row, 7, second(*row)]).collect();
        assert_eq!(of_group(&shared, newest[1], &TimeRange::ALL), rows);
        let links = size_of::<Link>() as u64;
        let bytes = [rows_of_block * (8 + 1 + 1), rows_of_block * (8 + 1 + 2), (rows_of_block + 5) * (8 + 1 + 8)];
        // Three blocks are full, five rows more begin no second range.
        let stretches = 3 * (rows_of_block / INTERVAL_ROWS as u64 - 1);
        assert_eq!(shared.bytes() as u64, bytes.iter().sum::<u64>() + count * links + stretches * 8);
    }

    #[test]
    fn memory_of_dropped_rows_serves_the_next_ones() {
        let pool = Arc::new(BlockPool::default());
        let fill = |width: usize| {
            let mut shared = rows_of(width, pool.clone(), 4 << 20);
            let cells = vec![7; width];
            for time in 0..3 << shared.block_bits {
                shared.push(1, NONE, time, &cells, None);
            }
            let rows = of_group(&shared, shared.count as u32 - 1, &TimeRange::ALL);
            assert_eq!(rows, [vec![shared.count as u64 - 1], cells].concat());
            let blocks = shared.full.iter().map(|block| &**block).chain([&shared.open]);
            (blocks.map(|block| block.rows.as_ptr()).collect::<Vec<_>>(), shared)
        };
        let (first, shared) = fill(3);
        assert_eq!(pool.size_bytes(), 0);
        let bytes = shared.bytes();
        drop(shared);
        let kept = pool.size_bytes();
        assert!(kept >= bytes, "{kept} of {bytes}");
        let (second, shared) = fill(3);
        assert!(second.iter().skip(1).all(|block| first.contains(block)));
        drop(shared);
        assert!(pool.size_bytes() <= 4 << 20);
        pool.look(false);
        assert!(pool.size_bytes() > 0);
        pool.look(true);
        assert_eq!(pool.size_bytes(), 0);
    }
}
