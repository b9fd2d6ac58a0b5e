//! Names and numbers of series below a plot.

use crate::chart::{Chart, Legend};
use crate::rows::DrawnSeries;
use crate::scene::{Anchor, Position, Shape, Stroke, Text};
use crate::text::{fitted, width_px};
use crate::theme::{Paint, Palette};

pub(crate) const SIZE_PX: f64 = 11.0;
pub(crate) const LINE_PX: f64 = 16.0;

const SWATCH_PX: f64 = 14.0;
const GAP_PX: f64 = 6.0;
const NUMBER_PX: f64 = 78.0;
/// A table has its numbers where names keep this much room.
const NAME_LEAST_PX: f64 = 140.0;

/// The room that a legend may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) width_px: f64,
    /// Lines that fit.
    pub(crate) lines: usize,
}

/// How many lines a legend would have with so much room from left to right.
pub(crate) fn lines_wanted(chart: &Chart, width_px: f64) -> usize {
    if chart.series.is_empty() {
        return 0;
    }
    match chart.legend {
        Legend::None => 0,
        Legend::Table => chart.series.len() + 1,
        Legend::List => chart.series.len().min(entry_positions(chart, width_px).last().map_or(1, |(line, _)| line + 1)),
    }
}

/// Shapes of a legend.
pub(crate) fn shapes(chart: &Chart, drawn: &[DrawnSeries<'_>], room: Room) -> Vec<Shape> {
    if room.lines == 0 {
        return Vec::new();
    }
    match chart.legend {
        Legend::None => Vec::new(),
        Legend::Table => table(chart, drawn, room),
        Legend::List => list(chart, drawn, room),
    }
}

fn text(at: Position, anchor: Anchor, paint: Paint, text: String) -> Shape {
    Shape::Text(Text { at, anchor, size_px: SIZE_PX, paint, content: text })
}

/// A stroke with a series' colour and dashes, beside its name.
fn swatch(number: usize, left: f64, base: f64, palette: &Palette) -> Shape {
    let y = base - SIZE_PX * 0.35;
    let run = vec![Position { x: left, y }, Position { x: left + SWATCH_PX, y }];
    let stroke = Stroke { paint: palette.series(number), width_px: 3.0, dashes: palette.dashes(number) };
    Shape::Lines { runs: vec![run], stroke }
}

fn table(chart: &Chart, drawn: &[DrawnSeries<'_>], room: Room) -> Vec<Shape> {
    let palette = Palette::for_theme(chart.theme);
    let columns = ["last", "min", "max", "avg"];
    let fits = ((room.width_px - NAME_LEAST_PX) / NUMBER_PX).floor().clamp(0.0, columns.len() as f64) as usize;
    let right = room.left + room.width_px;
    let column = |place: usize| right - (fits - 1 - place) as f64 * NUMBER_PX;
    let base = |line: usize| room.top + line as f64 * LINE_PX + SIZE_PX;
    let mut shapes: Vec<Shape> = Vec::new();
    for (place, name) in columns.into_iter().take(fits).enumerate() {
        let at = Position { x: column(place), y: base(0) };
        shapes.push(text(at, Anchor::End, palette.muted, name.to_owned()));
    }
    // The last line says how many more there are.
    let lines = room.lines - 1;
    let shown = if drawn.len() > lines { lines.saturating_sub(1) } else { drawn.len() };
    let name_left = room.left + SWATCH_PX + GAP_PX;
    let name_px = room.width_px - SWATCH_PX - GAP_PX - fits as f64 * NUMBER_PX;
    for (number, series) in drawn.iter().enumerate().take(shown) {
        let base = base(number + 1);
        shapes.push(swatch(number, room.left, base, palette));
        let name = fitted(series.name, SIZE_PX, name_px);
        shapes.push(text(Position { x: name_left, y: base }, Anchor::Start, palette.text, name));
        let statistics = &series.statistics;
        let values = [statistics.last, statistics.least, statistics.greatest, statistics.mean];
        for (place, value) in values.into_iter().take(fits).enumerate() {
            let shown = fitted(&chart.unit.text(value), SIZE_PX, NUMBER_PX - GAP_PX);
            shapes.push(text(Position { x: column(place), y: base }, Anchor::End, palette.text, shown));
        }
    }
    if shown < drawn.len() && lines > 0 {
        shapes.push(more(drawn.len() - shown, Position { x: name_left, y: base(shown + 1) }, palette));
    }
    shapes
}

fn more(count: usize, at: Position, palette: &Palette) -> Shape {
    text(at, Anchor::Start, palette.muted, format!("and {count} more series"))
}

/// The line and the left edge of each name of a list.
fn entry_positions(chart: &Chart, width_px: f64) -> impl Iterator<Item = (usize, f64)> {
    let (mut line, mut left) = (0, 0.0);
    chart.series.iter().map(move |series| {
        let wide = entry_px(&series.name).min(width_px);
        if left > 0.0 && left + wide > width_px {
            (line, left) = (line + 1, 0.0);
        }
        let place = (line, left);
        left += wide + GAP_PX * 2.0;
        place
    })
}

fn entry_px(name: &str) -> f64 {
    SWATCH_PX + GAP_PX + width_px(name, SIZE_PX)
}

fn list(chart: &Chart, drawn: &[DrawnSeries<'_>], room: Room) -> Vec<Shape> {
    let palette = Palette::for_theme(chart.theme);
    let all: Vec<(usize, f64)> = entry_positions(chart, room.width_px).collect();
    let lines = all.last().map_or(0, |(line, _)| line + 1);
    let last = if lines > room.lines { room.lines.saturating_sub(1) } else { lines };
    let mut shapes = Vec::new();
    let base = |line: usize| room.top + line as f64 * LINE_PX + SIZE_PX;
    let mut shown = 0;
    for (number, (series, (line, left))) in
        drawn.iter().zip(&all).enumerate().take_while(|(_, (_, (line, _)))| *line < last)
    {
        let (left, base) = (room.left + left, base(*line));
        shapes.push(swatch(number, left, base, palette));
        let name_left = left + SWATCH_PX + GAP_PX;
        let name = fitted(series.name, SIZE_PX, room.left + room.width_px - name_left);
        shapes.push(text(Position { x: name_left, y: base }, Anchor::Start, palette.text, name));
        shown += 1;
    }
    if shown < drawn.len() {
        shapes.push(more(drawn.len() - shown, Position { x: room.left, y: base(last) }, palette));
    }
    shapes
}
