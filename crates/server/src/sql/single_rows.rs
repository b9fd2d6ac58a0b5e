//! Rows of which few are of the same series, as JSON: what is the same in all rows of a series is not worth making for one answer, so the tags'
//! texts are those that were made for the one before.

use model::Labels;
use query::{FrameColumn, RowPlace, SeriesTexts};
use sql::{Part, TableRows};

use super::text::push_cell;
use crate::json;
use crate::read_rows::make_room;

/// A piece of a row.
enum Piece<'a> {
    Time,
    /// Tags side by side whose text is kept.
    Kept,
    Tag(&'a str),
    /// By its place among the fields that are shown.
    Field(usize),
    Number,
}

/// What is written of each row.
pub(super) struct SingleRows<'a> {
    table: &'a TableRows,
    pieces: Vec<Piece<'a>>,
    kept: Option<SeriesTexts<'a>>,
    /// The fields that are shown of each frame, one frame behind another.
    fields: Vec<Option<&'a FrameColumn>>,
    fields_shown: usize,
}

impl<'a> SingleRows<'a> {
    pub(super) fn of(table: &'a TableRows) -> Self {
        let parts: Vec<Part<'a>> = table.parts().collect();
        let run = longest_run(&parts);
        let tags: Vec<&str> = parts.get(run.clone()).into_iter().flatten().filter_map(tag_of).collect();
        let purpose = purpose(&tags);
        let texts =
            || table.labels().texts((&purpose, table.order().len()), |out, labels| push_tags(out, &tags, labels));
        let kept = if tags.is_empty() { None } else { texts() };
        let (mut pieces, mut shown) = (Vec::with_capacity(parts.len()), Vec::new());
        for (place, part) in parts.into_iter().enumerate() {
            pieces.push(match part {
                Part::Time => Piece::Time,
                Part::Tag(_) if kept.is_some() && place == run.start => Piece::Kept,
                Part::Tag(_) if kept.is_some() && run.contains(&place) => continue,
                Part::Tag(tag) => Piece::Tag(tag),
                Part::Field(field) => {
                    shown.push(field);
                    Piece::Field(shown.len() - 1)
                }
                Part::Number => Piece::Number,
            });
        }
        let fields = (0..table.frames()).flat_map(|frame| shown.iter().map(move |field| table.field(frame, *field)));
        Self { table, pieces, kept, fields: fields.collect(), fields_shown: shown.len() }
    }

    /// Appends `[…],…`, given how times are written.
    pub(super) fn push(&self, out: &mut String, mut push_time: impl FnMut(&mut String, i64)) {
        let (begun, rows) = (out.len(), self.table.order());
        for (number, row) in rows.iter().enumerate() {
            make_room(out, begun, number, rows.len());
            out.push_str(if number == 0 { "[" } else { ",[" });
            self.push_row(out, row, &mut push_time);
            out.push(']');
        }
    }

    fn push_row(&self, out: &mut String, row: &RowPlace, push_time: &mut impl FnMut(&mut String, i64)) {
        let from = self.table.frame_of(row.series).saturating_mul(self.fields_shown);
        let fields = self.fields.get(from..from.saturating_add(self.fields_shown)).unwrap_or_default();
        for (number, piece) in self.pieces.iter().enumerate() {
            out.push_str(if number == 0 { "" } else { "," });
            match piece {
                Piece::Time => push_time(out, row.time_ns),
                Piece::Kept => out.push_str(self.kept.as_ref().map_or("", |kept| kept.of(row.series))),
                Piece::Tag(tag) => {
                    push_tag(out, self.table.labels().get(row.series).and_then(|labels| labels.get(tag)));
                }
                Piece::Field(field) => match fields.get(*field) {
                    Some(Some(column)) => push_cell(out, column.cell(row.row as usize)),
                    _ => out.push_str("null"),
                },
                Piece::Number => json::push_integer(out, i64::from(row.series)),
            }
        }
    }
}

const fn tag_of<'a>(part: &Part<'a>) -> Option<&'a str> {
    if let Part::Tag(tag) = part { Some(tag) } else { None }
}

/// Where most tags stand side by side.
fn longest_run(parts: &[Part<'_>]) -> std::ops::Range<usize> {
    let (mut longest, mut from) = (0..0, 0);
    for (place, part) in parts.iter().enumerate() {
        if tag_of(part).is_none() {
            from = place + 1;
        } else if place + 1 - from > longest.len() {
            longest = from..place + 1;
        }
    }
    longest
}

/// What tags' texts are for.
fn purpose(tags: &[&str]) -> String {
    format!("JSON {tags:?}")
}

fn push_tags(out: &mut String, tags: &[&str], labels: &Labels) {
    for (number, tag) in tags.iter().enumerate() {
        out.push_str(if number == 0 { "" } else { "," });
        push_tag(out, labels.get(tag));
    }
}

fn push_tag(out: &mut String, value: Option<&str>) {
    match value.filter(|value| !value.is_empty()) {
        Some(value) => json::push_text(out, value),
        None => out.push_str("null"),
    }
}
