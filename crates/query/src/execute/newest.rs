//! The newest row of each series of a table, for whoever shows nothing else: rows of many series stand side by side in the same columns.

use std::sync::{Arc, Mutex, PoisonError};

use model::Labels;
use store::{SelectedGroup, TableGroups};

use super::narrow::Narrowing;
use super::scan::{END_WIDTH_NS, End, Reader, Reads, unreadable};
use super::{Context, Run};
use crate::plan::Scan;
use crate::series_labels::SeriesLabels;
use crate::{Frame, FrameColumn, QueryError};

/// What it takes to find a group's newest row, in samples: as long as to read so many.
const FOUND_SAMPLES: u64 = 20;

/// The newest rows of series.
#[derive(Debug, Default)]
pub struct NewestRows {
    /// The series, in order of their labels.
    pub labels: SeriesLabels,
    /// The row of each.
    pub rows: Vec<NewestRow>,
    /// Columns that series share, or that are one's own.
    pub frames: Vec<Vec<FrameColumn>>,
    /// What was read.
    pub reads: Reads,
}

/// A series' newest row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewestRow {
    /// Nanoseconds since the Unix epoch.
    pub time_ns: i64,
    /// Which of [`NewestRows::frames`] has the cells.
    pub frame: u32,
    /// The row's place in it.
    pub row: u32,
}

/// A row of a group, given by its place, with the labels of the series if they are not the group's.
struct GroupRow {
    place: usize,
    labels: Option<Labels>,
    row: NewestRow,
}

impl GroupRow {
    fn labels_in<'a>(&'a self, groups: &'a TableGroups) -> Option<&'a Labels> {
        self.labels.as_ref().or(groups.get(self.place).map(|group| &group.labels))
    }
}

/// What was made of some groups.
#[derive(Default)]
struct Piece {
    /// Frames are numbered within the piece.
    rows: Vec<GroupRow>,
    frames: Vec<Vec<FrameColumn>>,
    reads: Reads,
}

/// The newest row of each series that a scan of a table selects.
///
/// # Errors
///
/// As those of [`super::execute`].
pub fn newest_rows(scan: &Scan, context: &Context<'_>) -> Result<NewestRows, QueryError> {
    let mut run = Run { context, steps: Vec::new(), reads: Reads::default() };
    let groups = run.table_groups(scan)?;
    let narrowing = Narrowing::new(&groups, &scan.wanted());
    let reader = context.store.reader();
    let made: Vec<Mutex<Piece>> = (0..groups.pieces()).map(|_| Mutex::default()).collect();
    context.helpers.run(made.len(), context.budget, &|number| {
        let Some(made) = made.get(number) else { return Ok(0) };
        context.budget.check()?;
        let mut reader = Reader { context, groups: &reader, reads: Reads::default(), narrowing: &narrowing };
        let piece = Piece::of(&mut reader, scan, (&groups, number))?;
        let samples = piece.reads.samples + piece.rows.len() as u64 * FOUND_SAMPLES;
        *made.lock().unwrap_or_else(PoisonError::into_inner) = piece;
        Ok(samples)
    })?;
    run.reads.origins.merge(&reader.origins());
    let pieces = made.into_iter().map(|made| made.into_inner().unwrap_or_else(PoisonError::into_inner));
    Ok(joined(pieces, run.reads, &groups))
}

/// Puts pieces together in order of labels.
fn joined(pieces: impl Iterator<Item = Piece>, reads: Reads, groups: &Arc<TableGroups>) -> NewestRows {
    let mut newest = NewestRows { reads, ..NewestRows::default() };
    let mut rows: Vec<GroupRow> = Vec::with_capacity(groups.len());
    for piece in pieces {
        let before = newest.frames.len() as u32;
        let numbered = |of: GroupRow| GroupRow { row: NewestRow { frame: before + of.row.frame, ..of.row }, ..of };
        rows.extend(piece.rows.into_iter().map(numbered));
        newest.frames.extend(piece.frames);
        newest.reads.merge(&piece.reads);
    }
    // The ranks of groups are their order by labels, but a group may have several series.
    let by_rank = by_rank(&rows, groups);
    let is_one_each = by_rank.is_some();
    newest.labels = SeriesLabels::of_groups(groups.clone(), is_one_each);
    let order = by_rank.unwrap_or_else(|| {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|number| rows.get(*number).and_then(|of| of.labels_in(groups)));
        order
    });
    newest.rows.reserve(order.len());
    for of in order.into_iter().filter_map(|number| rows.get(number)) {
        newest.labels.push_group(of.place as u32, of.labels.clone());
        newest.rows.push(of.row);
    }
    newest
}

/// The rows in order of the ranks of their groups; `None` if a group has several.
fn by_rank(rows: &[GroupRow], groups: &TableGroups) -> Option<Vec<usize>> {
    let mut numbers: Vec<Option<usize>> = vec![None; groups.len()];
    for (number, of) in rows.iter().enumerate() {
        let of_rank = numbers.get_mut(groups.get(of.place)?.rank as usize)?;
        if of_rank.replace(number).is_some() {
            return None;
        }
    }
    Some(numbers.into_iter().flatten().collect())
}

impl Piece {
    fn of(reader: &mut Reader<'_>, scan: &Scan, (groups, number): (&TableGroups, usize)) -> Result<Self, QueryError> {
        let mut piece = Self::default();
        let (from, of_piece) = groups.piece(number);
        let Some(first) = of_piece.first() else { return Ok(piece) };
        // Whether there are rows is asked of all columns.
        let is_all_read = Arc::ptr_eq(&reader.narrowing.of(first).columns, &first.columns);
        if is_all_read && first.columns.iter().all(|column| column.labels.is_empty()) {
            piece.add_at_hand(reader, scan, (groups, number))?;
        } else {
            (from..).zip(of_piece).try_for_each(|group| piece.add_one(reader, scan, group))?;
        }
        piece.reads.merge(&reader.reads);
        Ok(piece)
    }

    /// Adds rows that are at hand as one frame, and the others as frames of their own.
    fn add_at_hand(
        &mut self,
        reader: &mut Reader<'_>,
        scan: &Scan,
        (groups, number): (&TableGroups, usize),
    ) -> Result<(), QueryError> {
        let (_, of_piece) = groups.piece(number);
        let Some(columns) = of_piece.first().map(|group| group.columns.clone()) else { return Ok(()) };
        let mut at_hand = store::NewestRows::new(&columns, of_piece.len());
        let (mut found, mut others) = (Vec::with_capacity(of_piece.len()), Vec::new());
        let wanted = (&scan.range, END_WIDTH_NS);
        let read = reader.groups.newest_at_hand((groups, number), wanted, &mut at_hand, |place, is_at_hand| {
            if is_at_hand { found.push(place) } else { others.push(place) }
        });
        read.map_err(|error| unreadable(&error))?;
        let named = at_hand
            .columns
            .into_iter()
            .zip(columns.iter())
            .filter_map(|(cells, column)| Some(FrameColumn { name: column.field.clone(), cells: cells? }));
        let frame = self.frames.len() as u32;
        reader.charge(found.len() * columns.len())?;
        self.frames.push(named.collect());
        for ((row, place), time_ns) in (0..).zip(found).zip(at_hand.timestamps_ns) {
            self.rows.push(GroupRow { place, labels: None, row: NewestRow { time_ns, frame, row } });
        }
        let mut others = others.into_iter().filter_map(|place| Some((place, groups.get(place)?)));
        others.try_for_each(|group| self.add_one(reader, scan, group))
    }

    /// Adds a group's newest rows as frames of their own.
    fn add_one(
        &mut self,
        reader: &mut Reader<'_>,
        scan: &Scan,
        (place, group): (usize, &SelectedGroup),
    ) -> Result<(), QueryError> {
        for frame in reader.end_of(scan, group, (&scan.range, 1), End::Newest)? {
            let Frame { labels, timestamps_ns, columns } = frame;
            let frame = self.frames.len() as u32;
            let labels = (labels != group.labels).then_some(labels);
            for (time_ns, row) in timestamps_ns.into_iter().zip(0..) {
                self.rows.push(GroupRow { place, labels: labels.clone(), row: NewestRow { time_ns, frame, row } });
            }
            self.frames.push(columns);
        }
        Ok(())
    }
}
