//! The newest row of each series of a table, for whoever shows nothing else: rows of many series stand side by side in the same columns.

use std::sync::{Arc, Mutex, PoisonError};

use model::Labels;
use store::SelectedGroup;

use super::narrow::Narrowing;
use super::scan::{END_WIDTH_NS, End, Reader, Reads, unreadable};
use super::{Context, Run};
use crate::plan::Scan;
use crate::{Frame, FrameColumn, QueryError};

/// Groups that a thread takes on at once.
const GROUPS_AT_ONCE: usize = 64;

/// What it takes to find a group's newest row, in samples: as long as to read so many.
const FOUND_SAMPLES: u64 = 20;

/// The newest rows of series.
#[derive(Debug, Default)]
pub struct NewestRows {
    /// The series, in order of their labels.
    pub series: Vec<NewestRow>,
    /// Columns that series share, or that are one's own.
    pub frames: Vec<Vec<FrameColumn>>,
    /// What was read.
    pub reads: Reads,
}

/// A series and its newest row.
#[derive(Debug)]
pub struct NewestRow {
    /// The labels of the series.
    pub labels: Labels,
    /// Nanoseconds since the Unix epoch.
    pub time_ns: i64,
    /// Which of [`NewestRows::frames`] has the cells.
    pub frame: u32,
    /// The row's place in it.
    pub row: u32,
}

/// What was made of some groups.
#[derive(Default)]
struct Piece {
    /// Rows by the rank of their group; frames are numbered within the piece.
    rows: Vec<(u32, NewestRow)>,
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
    let groups = run.groups(scan)?;
    let narrowing = Narrowing::new(&groups, &scan.wanted());
    let reader = context.store.reader();
    let work: Vec<&[SelectedGroup]> = groups.chunks(GROUPS_AT_ONCE).collect();
    let made: Vec<Mutex<Piece>> = work.iter().map(|_| Mutex::default()).collect();
    context.helpers.run(work.len(), context.budget, &|place| {
        let (Some(groups), Some(made)) = (work.get(place), made.get(place)) else { return Ok(0) };
        context.budget.check()?;
        let mut reader = Reader { context, groups: &reader, reads: Reads::default(), narrowing: &narrowing };
        let piece = Piece::of(&mut reader, scan, groups)?;
        let samples = piece.reads.samples + piece.rows.len() as u64 * FOUND_SAMPLES;
        *made.lock().unwrap_or_else(PoisonError::into_inner) = piece;
        Ok(samples)
    })?;
    run.reads.origins.merge(&reader.origins());
    let pieces = made.into_iter().map(|made| made.into_inner().unwrap_or_else(PoisonError::into_inner));
    Ok(joined(pieces, run.reads, groups.len()))
}

/// Puts pieces together. The ranks of groups are their order by labels, but a group may have several series.
fn joined(pieces: impl Iterator<Item = Piece>, reads: Reads, groups: usize) -> NewestRows {
    let mut newest = NewestRows { series: Vec::with_capacity(groups), frames: Vec::new(), reads };
    let mut rows: Vec<(u32, NewestRow)> = Vec::with_capacity(groups);
    for piece in pieces {
        let before = newest.frames.len() as u32;
        rows.extend(piece.rows.into_iter().map(|(rank, row)| (rank, NewestRow { frame: before + row.frame, ..row })));
        newest.frames.extend(piece.frames);
        newest.reads.merge(&piece.reads);
    }
    rows.sort_by_key(|(rank, _)| *rank);
    let is_one_each = rows.windows(2).all(|pair| matches!(pair, [(a, _), (b, _)] if a != b));
    newest.series.extend(rows.into_iter().map(|(_, row)| row));
    if !is_one_each {
        newest.series.sort_by(|a, b| a.labels.cmp(&b.labels));
    }
    newest
}

impl Piece {
    fn of(reader: &mut Reader<'_>, scan: &Scan, groups: &[SelectedGroup]) -> Result<Self, QueryError> {
        let mut piece = Self::default();
        for groups in groups.chunk_by(|a, b| Arc::ptr_eq(&a.columns, &b.columns)) {
            let Some(first) = groups.first() else { continue };
            // Whether there are rows is asked of all columns.
            let is_all_read = Arc::ptr_eq(&reader.narrowing.of(first).columns, &first.columns);
            if is_all_read && first.columns.iter().all(|column| column.labels.is_empty()) {
                piece.add_held(reader, scan, groups)?;
            } else {
                groups.iter().try_for_each(|group| piece.add_one(reader, scan, group))?;
            }
        }
        piece.reads.merge(&reader.reads);
        Ok(piece)
    }

    /// Adds rows that are held as one frame, and the others as frames of their own.
    fn add_held(&mut self, reader: &mut Reader<'_>, scan: &Scan, groups: &[SelectedGroup]) -> Result<(), QueryError> {
        let Some(columns) = groups.first().map(|group| group.columns.clone()) else { return Ok(()) };
        let mut held = store::NewestRows::new(&columns, groups.len());
        let (mut found, mut others) = (Vec::with_capacity(groups.len()), Vec::new());
        let wanted = (&scan.range, END_WIDTH_NS);
        let read = reader.groups.held_newest(groups, wanted, &columns, &mut held, |group, is_held| {
            if is_held { found.push(group) } else { others.push(group) }
        });
        read.map_err(|error| unreadable(&error))?;
        let named = held.columns.into_iter().zip(columns.iter()).filter_map(|(cells, column)| {
            let cells = cells?;
            Some(FrameColumn { name: column.field.clone(), values: cells.values, present: cells.present })
        });
        let frame = self.frames.len() as u32;
        reader.charge(found.len() * columns.len())?;
        self.frames.push(named.collect());
        for ((row, group), time_ns) in (0..).zip(found).zip(held.timestamps_ns) {
            self.rows.push((group.rank, NewestRow { labels: group.labels.clone(), time_ns, frame, row }));
        }
        others.into_iter().try_for_each(|group| self.add_one(reader, scan, group))
    }

    /// Adds a group's newest rows as frames of their own.
    fn add_one(&mut self, reader: &mut Reader<'_>, scan: &Scan, group: &SelectedGroup) -> Result<(), QueryError> {
        for frame in reader.end_of(scan, group, (&scan.range, 1), End::Newest)? {
            let Frame { labels, timestamps_ns, columns } = frame;
            let number = self.frames.len() as u32;
            let rows = timestamps_ns.into_iter().zip(0..);
            let rows = rows.map(|(time_ns, row)| NewestRow { labels: labels.clone(), time_ns, frame: number, row });
            self.rows.extend(rows.map(|row| (group.rank, row)));
            self.frames.push(columns);
        }
        Ok(())
    }
}
