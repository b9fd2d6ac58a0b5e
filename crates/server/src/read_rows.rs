//! Rows as they were read, as JSON: what is the same in all rows of a series is made once, and nothing is made of a cell but its text.

use query::{Cell, FrameColumn, RowPlace, Shows};

/// Rows whose length tells about how long all will be.
pub(crate) const ROWS_TRIED: usize = 64;

/// A piece of the rows of a series.
enum Piece<'a> {
    /// The same in all of them, commas and all: where it begins and ends in the texts of all series.
    Same(usize, usize),
    Time,
    Field(&'a FrameColumn),
}

/// What is written of each series.
#[derive(Default)]
pub(crate) struct ReadRows<'a> {
    pieces: Vec<Piece<'a>>,
    /// Where the pieces of each series end.
    ends: Vec<usize>,
    texts: String,
}

impl<'a> ReadRows<'a> {
    /// Adds a series, given what each column shows of it and how a value is written.
    pub(crate) fn add<V>(
        &mut self,
        shows: impl Iterator<Item = Shows<'a, V>>,
        mut push_value: impl FnMut(&mut String, &V),
    ) {
        let (pieces, texts) = (&mut self.pieces, &mut self.texts);
        let mut from = texts.len();
        for (place, shows) in shows.enumerate() {
            texts.push_str(if place == 0 { "" } else { "," });
            let piece = match shows {
                Shows::Same(value) => {
                    push_value(texts, &value);
                    continue;
                }
                Shows::Time => Piece::Time,
                Shows::Field(field) => Piece::Field(field),
            };
            pieces.extend([Piece::Same(from, texts.len()), piece]);
            from = texts.len();
        }
        pieces.push(Piece::Same(from, texts.len()));
        self.ends.push(self.pieces.len());
    }

    fn of_series(&self, series: u32) -> &[Piece<'a>] {
        let end = |number: usize| self.ends.get(number).copied().unwrap_or_default();
        let from = (series as usize).checked_sub(1).map_or(0, end);
        self.pieces.get(from..end(series as usize)).unwrap_or_default()
    }

    /// Appends `[…],…` for rows, given how times and cells are written.
    pub(crate) fn push(
        &self,
        out: &mut String,
        rows: &[RowPlace],
        mut push_time: impl FnMut(&mut String, i64),
        mut push_cell: impl FnMut(&mut String, Cell<'_>),
    ) {
        let begun = out.len();
        for (number, place) in rows.iter().enumerate() {
            make_room(out, begun, number, rows.len());
            out.push_str(if number == 0 { "[" } else { ",[" });
            for piece in self.of_series(place.series) {
                match piece {
                    Piece::Same(from, to) => out.push_str(self.texts.get(*from..*to).unwrap_or_default()),
                    Piece::Time => push_time(out, place.time_ns),
                    Piece::Field(field) => push_cell(out, field.cell(place.row as usize)),
                }
            }
            out.push(']');
        }
    }
}

/// Makes room for all rows when some were written: memory that grows again and again is copied each time.
pub(crate) fn make_room(out: &mut String, begun: usize, written: usize, rows: usize) {
    if written == ROWS_TRIED {
        out.reserve((out.len() - begun) / ROWS_TRIED * (rows - ROWS_TRIED) / 16 * 17);
    }
}

/// The time that was written last: rows of many series share theirs.
#[derive(Default)]
pub(crate) struct KnownTime {
    ns: Option<i64>,
    text: String,
}

impl KnownTime {
    /// The text of a time, made by what is given if it is another than the last.
    pub(crate) fn text(&mut self, ns: i64, make: impl FnOnce(&mut String)) -> &str {
        if self.ns != Some(ns) {
            self.text.clear();
            make(&mut self.text);
            self.ns = Some(ns);
        }
        &self.text
    }
}
