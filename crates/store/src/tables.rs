//! Measurements as tables: their columns, the groups that hold their rows, and the rows with all columns on one axis of time.

use std::collections::BTreeSet;
use std::sync::Arc;

use index::{CompiledMatcher, Slot};
use model::{Column, STALE_NAN_BITS, TimeRange, ValueType, Values};

use crate::chosen::{Asked, TableGroups};
use crate::chunk::{self, Rows, RowsColumn};
use crate::part::{BLOCK_SLOTS, PartKey};
use crate::read::{GroupReader, KeyView, by_block};
use crate::scan::{SelectedColumn, SelectedGroup};
use crate::tails::Tail;
use crate::{Store, StoreError};

/// What a table looks like: a measurement's tags and fields, or a Prometheus metric's labels and `value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSchema {
    /// The measurement.
    pub name: String,
    /// Labels that some of its groups have, sorted.
    pub tags: Vec<String>,
    /// Names and types of its fields, in the order in which they came; histograms are not among them.
    pub fields: Vec<(String, ValueType)>,
}

/// A group's rows.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupRows {
    /// When, in nanoseconds since the Unix epoch: ascending, none twice.
    pub timestamps_ns: Vec<i64>,
    /// One for each of [`SelectedGroup::columns`], stale markers as nulls; `None` for histograms.
    pub columns: Vec<Option<Column>>,
}

impl Store {
    /// Names of the measurements that have groups, sorted.
    pub fn tables(&self, database: &str) -> Result<Vec<String>, StoreError> {
        let catalog = self.catalog.read();
        let Some(database) = catalog.catalog.database(database) else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for (name, measurement) in catalog.catalog.measurements(database) {
            for shard in &self.shards {
                let groups = shard.groups.read().groups.of_measurement(database, measurement);
                if !groups.map_err(StoreError::index(&self.options.directory))?.is_empty() {
                    names.push(name.to_owned());
                    break;
                }
            }
        }
        Ok(names)
    }

    /// A table's columns; `None` if no group has the measurement.
    pub fn table(&self, database: &str, table: &str) -> Result<Option<TableSchema>, StoreError> {
        let catalog = self.catalog.read();
        let Some(database) = catalog.catalog.database(database) else {
            return Ok(None);
        };
        let Some(measurement) = catalog.catalog.measurement(database, table) else {
            return Ok(None);
        };
        let (mut tags, mut exists) = (BTreeSet::new(), false);
        for shard in &self.shards {
            let unreadable = StoreError::index(&self.options.directory);
            let index = shard.groups.read();
            let groups = index.groups.of_measurement(database, measurement).map_err(&unreadable)?;
            exists |= !groups.is_empty();
            index.groups.label_names(database, &groups, &mut tags).map_err(&unreadable)?;
        }
        let fields = catalog.catalog.fields(measurement).into_iter();
        let fields = fields.filter(|(_, value_type)| *value_type != ValueType::Histogram);
        let fields = fields.map(|(name, value_type)| (name.to_owned(), value_type)).collect();
        Ok(exists.then(|| TableSchema { name: table.to_owned(), tags: tags.into_iter().collect(), fields }))
    }

    /// A table's groups that satisfy all matchers, with those of their columns that have one of the names (none: all), of which each has one.
    pub fn select_table(
        &self,
        database: &str,
        table: &str,
        fields: &[String],
        matchers: &[CompiledMatcher],
    ) -> Result<Arc<TableGroups>, StoreError> {
        let selected = self.select_table_within((database, table, fields), matchers, &|_| true)?;
        Ok(selected.unwrap_or_default())
    }

    /// As [`Store::select_table`]; `reserve` is asked for memory as by [`Store::select_within`]. The selection is a database, a table and
    /// the names of its fields.
    pub fn select_table_within(
        &self,
        (database, table, fields): (&str, &str, &[String]),
        matchers: &[CompiledMatcher],
        reserve: &dyn Fn(u64) -> bool,
    ) -> Result<Option<Arc<TableGroups>>, StoreError> {
        let (asked, index_changes) = (Asked::new(database, table, fields, matchers), self.index_changes());
        if let Some(groups) = self.chosen.get(&asked, index_changes) {
            return Ok(Some(groups));
        }
        let Some(mut groups) = self.choose_of_table((database, table, fields), matchers, reserve)? else {
            return Ok(None);
        };
        groups.retain(|group| !group.columns.is_empty());
        rank_by_labels(&mut groups);
        Ok(Some(self.chosen.hold(asked, index_changes, groups)))
    }

    fn choose_of_table(
        &self,
        (database, table, fields): (&str, &str, &[String]),
        matchers: &[CompiledMatcher],
        reserve: &dyn Fn(u64) -> bool,
    ) -> Result<Option<Vec<SelectedGroup>>, StoreError> {
        let catalog = self.catalog.read();
        let Some(database) = catalog.catalog.database(database) else {
            return Ok(Some(Vec::new()));
        };
        let Some(measurement) = catalog.catalog.measurement(database, table) else {
            return Ok(Some(Vec::new()));
        };
        let columns = catalog.catalog.table_columns(measurement, fields, matchers);
        self.select_columns(&catalog.catalog, (database, &columns), matchers, reserve)
    }

    /// A group's rows in a range, those in which none of the selected columns has a value too.
    pub fn read_rows(&self, selected: &SelectedGroup, range: &TimeRange) -> Result<GroupRows, StoreError> {
        self.reader().read_rows(selected, range)
    }
}

impl GroupReader<'_> {
    /// As [`Store::read_rows`].
    pub fn read_rows(&self, selected: &SelectedGroup, range: &TimeRange) -> Result<GroupRows, StoreError> {
        let mut read = GroupRows { timestamps_ns: Vec::new(), columns: vec![None; selected.columns.len()] };
        let Some(shard) = self.store.shards.get(selected.shard) else {
            return Ok(read);
        };
        let range = &self.store.kept(selected.key.database, range);
        for (block, places) in by_block(&selected.columns) {
            let slots: Vec<Slot> =
                places.iter().filter_map(|place| selected.columns.get(*place)).map(|column| column.slot).collect();
            let view = KeyView::take(shard, PartKey { block, ..selected.key }, range, &slots);
            self.read_block((&view, range, usize::MAX), (&selected.columns, places, &slots), &mut read)?;
        }
        Ok(read)
    }

    /// The rows of a group's newest stretch of a range, so long at most, and where it ends; `None` if it has no rows in the range. The end is
    /// as [`Store::newest`] has it. Of a chunk's held end no more rows are given than are wanted.
    pub fn read_newest(
        &self,
        selected: &SelectedGroup,
        range: &TimeRange,
        (width_ns, rows_max): (i64, usize),
    ) -> Result<Option<(i64, GroupRows)>, StoreError> {
        let range = &self.store.kept(selected.key.database, range);
        let stretch = |end_ns: i64| TimeRange::new(end_ns.saturating_sub(width_ns).max(range.start_ns), end_ns);
        let (Some(shard), Some(block)) = (self.store.shards.get(selected.shard), only_block(&selected.columns)) else {
            let Some(end_ns) = self.store.newest(selected, range)? else { return Ok(None) };
            return Ok(Some((end_ns, self.read_rows(selected, &stretch(end_ns))?)));
        };
        let slots: Vec<Slot> = selected.columns.iter().map(|column| column.slot).collect();
        let (view, in_heads_ns) = KeyView::take_newest(shard, PartKey { block, ..selected.key }, range);
        let in_parts_ns = view.newest(range, &self.way.seen)?;
        let Some(end_ns) = in_parts_ns.max(in_heads_ns) else { return Ok(None) };
        // Heads may hold much more than the stretch.
        let view = if in_heads_ns.is_none() { view } else { KeyView::take(shard, view.key, &stretch(end_ns), &slots) };
        let mut read = GroupRows { timestamps_ns: Vec::new(), columns: vec![None; selected.columns.len()] };
        let places = (0..selected.columns.len()).collect();
        self.read_block((&view, &stretch(end_ns), rows_max), (&selected.columns, places, &slots), &mut read)?;
        Ok(Some((end_ns, read)))
    }

    /// Adds what a member block has in a range: of columns those at some places, which have these slots. Of a chunk's held end no more of the
    /// last rows than are wanted.
    fn read_block(
        &self,
        (view, range, rows_max): (&KeyView, &TimeRange, usize),
        (columns, places, slots): (&[SelectedColumn], Vec<usize>, &[Slot]),
        read: &mut GroupRows,
    ) -> Result<(), StoreError> {
        let found = view.found(range, &self.way)?;
        // Nothing is made of what is held but the answer.
        let tail = view.held_tail(&found, range, slots, &self.way).filter(|_| view.heads.is_empty());
        let read_now = match &tail {
            Some(_) => Vec::new(),
            None => chunk::in_time_order(view.pieces_holding(found, range, slots, (&self.way, false))?.0),
        };
        let all = tail.iter().map(|tail| Source::Tail(tail)).chain(read_now.iter().map(Source::Rows));
        let mut pieces: Vec<Piece<'_>> = all.map(|source| Piece::of(source, range)).collect();
        if let ([piece], Some(_)) = (pieces.as_mut_slice(), &tail) {
            piece.from = piece.from.max(piece.to.saturating_sub(rows_max));
        }
        let timestamps_ns: Vec<i64> = pieces.iter().flat_map(Piece::timestamps_ns).copied().collect();
        let collected = |place: usize| (place, columns.get(place).and_then(|column| collect(&pieces, column)));
        read.align(timestamps_ns, places.into_iter().map(collected));
        Ok(())
    }
}

/// Those who show rows put them in order of labels: to compare labels each time costs as much as to read a row of each group. They stay in
/// the order in which they lie in parts.
fn rank_by_labels(groups: &mut [SelectedGroup]) {
    let mut by_labels: Vec<&mut SelectedGroup> = groups.iter_mut().collect();
    by_labels.sort_by(|a, b| a.labels.cmp(&b.labels));
    (0..).zip(by_labels).for_each(|(rank, group)| group.rank = rank);
}

/// The member block of all columns, if it is one.
pub(crate) fn only_block(columns: &[SelectedColumn]) -> Option<u32> {
    let block = columns.first()?.slot / BLOCK_SLOTS;
    // They are sorted by slot.
    (columns.last()?.slot / BLOCK_SLOTS == block).then_some(block)
}

/// Where rows are.
#[derive(Clone, Copy)]
enum Source<'a> {
    Rows(&'a Rows),
    Tail(&'a Tail),
}

/// What of rows lies in the range.
struct Piece<'a> {
    source: Source<'a>,
    from: usize,
    to: usize,
}

/// Some of a column's cells, and which of them are null (empty: none).
struct Stretch<'a> {
    cells: &'a [u64],
    nulls: &'a [bool],
    /// The column, where cells say where texts are.
    column: Option<&'a RowsColumn>,
}

impl<'a> Source<'a> {
    fn timestamps_ns(self) -> &'a [i64] {
        match self {
            Self::Rows(rows) => &rows.timestamps_ns,
            Self::Tail(tail) => tail.timestamps_ns(),
        }
    }
}

impl<'a> Piece<'a> {
    fn of(source: Source<'a>, range: &TimeRange) -> Self {
        let timestamps_ns = source.timestamps_ns();
        let from = timestamps_ns.partition_point(|timestamp| *timestamp < range.start_ns);
        let to = timestamps_ns.partition_point(|timestamp| *timestamp <= range.end_ns);
        Self { source, from, to: to.max(from) }
    }

    fn timestamps_ns(&self) -> &'a [i64] {
        self.source.timestamps_ns().get(self.from..self.to).unwrap_or_default()
    }

    fn len(&self) -> usize {
        self.to - self.from
    }

    /// The member's cells.
    fn column(&self, wanted: &SelectedColumn) -> Option<Stretch<'a>> {
        let of_slot = |column: &&RowsColumn| column.slot == wanted.slot && column.value_type == wanted.value_type;
        let (cells, nulls, column) = match self.source {
            Source::Rows(rows) => {
                let column = rows.columns.iter().find(of_slot)?;
                (&*column.cells, &*column.nulls, Some(column))
            }
            Source::Tail(tail) => {
                let (cells, nulls) = tail.column(wanted.slot, wanted.value_type)?;
                (cells, nulls, None)
            }
        };
        let places = self.from..self.to;
        Some(Stretch { cells: cells.get(places.clone())?, nulls: nulls.get(places).unwrap_or_default(), column })
    }
}

/// One member's cells of all pieces, one behind another.
fn collect(pieces: &[Piece<'_>], wanted: &SelectedColumn) -> Option<Column> {
    let mut values = Values::empty(wanted.value_type)?;
    let mut validity: Option<Vec<bool>> = None;
    let mut before = 0;
    for piece in pieces {
        let found = piece.column(wanted);
        extend(&mut values, found.as_ref(), piece.len());
        let is_stale = |cell: &u64| wanted.value_type == ValueType::F64 && *cell == STALE_NAN_BITS;
        let nulls = match found {
            None => Some(vec![true; piece.len()]),
            Some(Stretch { cells, nulls, .. }) if nulls.contains(&true) || cells.iter().any(is_stale) => {
                let null = |place: usize| nulls.get(place) == Some(&true);
                Some(cells.iter().enumerate().map(|(place, cell)| null(place) || is_stale(cell)).collect())
            }
            Some(_) => None,
        };
        if let Some(nulls) = nulls {
            let validity = validity.get_or_insert_with(|| vec![true; before]);
            validity.extend(nulls.iter().map(|null| !null));
        } else if let Some(validity) = &mut validity {
            validity.resize(before + piece.len(), true);
        }
        before += piece.len();
    }
    Some(Column { values, validity })
}

/// Adds a piece's cells, or as many of anything.
fn extend(values: &mut Values, found: Option<&Stretch<'_>>, count: usize) {
    let Some(Stretch { cells, column, .. }) = found else {
        return resize(values, count);
    };
    match values {
        Values::F64(values) => values.extend(cells.iter().map(|cell| f64::from_bits(*cell))),
        Values::I64(values) => values.extend(cells.iter().map(|cell| *cell as i64)),
        Values::U64(values) => values.extend_from_slice(cells),
        Values::Bool(values) => values.extend(cells.iter().map(|cell| *cell != 0)),
        // What stands for a null is some text too: it is hidden.
        Values::Text(values) => {
            let text = |cell: &u64| column.map_or(&[][..], |column| column.text(*cell));
            values.extend(cells.iter().map(|cell| String::from_utf8_lossy(text(cell)).into_owned()));
        }
    }
}

fn resize(values: &mut Values, more: usize) {
    match values {
        Values::F64(values) => values.resize(values.len() + more, 0.0),
        Values::I64(values) => values.resize(values.len() + more, 0),
        Values::U64(values) => values.resize(values.len() + more, 0),
        Values::Bool(values) => values.resize(values.len() + more, false),
        Values::Text(values) => values.resize(values.len() + more, String::new()),
    }
}

impl GroupRows {
    /// Adds the columns of a member block, which has an axis of its own.
    fn align(&mut self, timestamps_ns: Vec<i64>, columns: impl Iterator<Item = (usize, Option<Column>)>) {
        let is_first = self.columns.iter().all(Option::is_none);
        let same = is_first || self.timestamps_ns == timestamps_ns;
        let mut union = if same { Vec::new() } else { [self.timestamps_ns.as_slice(), &timestamps_ns].concat() };
        union.sort_unstable();
        union.dedup();
        if !same {
            for column in self.columns.iter_mut().flatten() {
                *column = spread(column, &self.timestamps_ns, &union);
            }
        }
        for (place, column) in columns {
            if let Some(target) = self.columns.get_mut(place) {
                *target = if same { column } else { column.map(|column| spread(&column, &timestamps_ns, &union)) };
            }
        }
        self.timestamps_ns = if same { timestamps_ns } else { union };
    }
}

/// A column on an axis that holds its own and more.
fn spread(column: &Column, own: &[i64], axis: &[i64]) -> Column {
    let mut next = 0;
    let mut places = Vec::with_capacity(axis.len());
    for time in axis {
        let found = own.get(next) == Some(time);
        places.push(found.then_some(next));
        next += usize::from(found);
    }
    let is_valid = |place: &Option<usize>| place.is_some_and(|place| column.is_valid(place));
    let validity = Some(places.iter().map(is_valid).collect());
    let values = match &column.values {
        Values::F64(values) => Values::F64(pick(values, &places)),
        Values::I64(values) => Values::I64(pick(values, &places)),
        Values::U64(values) => Values::U64(pick(values, &places)),
        Values::Bool(values) => Values::Bool(pick(values, &places)),
        Values::Text(values) => Values::Text(pick(values, &places)),
    };
    Column { values, validity }
}

fn pick<T: Clone + Default>(values: &[T], places: &[Option<usize>]) -> Vec<T> {
    places.iter().map(|place| place.and_then(|place| values.get(place)).cloned().unwrap_or_default()).collect()
}
