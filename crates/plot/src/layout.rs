//! Where everything of a plot is.

use jiff::Timestamp;

use crate::PlotError;
use crate::chart::{Chart, Style};
use crate::clip::{self, Band};
use crate::legend::{self, LINE_PX, Room, SIZE_PX};
use crate::rows::{DrawnSeries, Row, is_filled, rows};
use crate::scale::Scale;
use crate::scene::{Anchor, Picture, Position, Shape, Stroke, Text};
use crate::text::{fitted, width_px};
use crate::theme::{Paint, Palette};
use crate::thin::Span;
use crate::ticks::{self, TimeMark, ValueMark};

const EDGE_PX: f64 = 10.0;
const TITLE_PX: f64 = 15.0;
const TITLE_LINE_PX: f64 = 22.0;
const TIMES_PX: f64 = 20.0;
const NOTE_LINE_PX: f64 = 14.0;
/// Room for half of the last mark of time.
const RIGHT_PX: f64 = 18.0;
/// Pixels between two marks of values, about.
const VALUE_MARK_PX: f64 = 36.0;
const TIME_MARK_PX: f64 = 80.0;
/// The part of the height that the plot itself has at least, before its legend.
const PLOT_LEAST: f64 = 0.5;
const LINE_WIDTH_PX: f64 = 1.5;
const DOT_RADIUS_PX: f64 = 2.0;

/// The frame of a plot: times from left to right, values from the bottom up.
#[derive(Debug, Clone, Copy)]
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    span: Span,
    scale: Scale,
    /// Room before the first and after the last moment, for halves of bars.
    inset: f64,
}

/// Heights of what is above and below the frame.
#[derive(Debug, Clone, Copy)]
struct Rooms {
    title_px: f64,
    legend_lines: usize,
    notes_px: f64,
}

/// Lays a plot out. Between two steps of what takes long `check` is asked whether to go on.
pub fn draw<E: From<PlotError>>(chart: &Chart, check: impl Fn() -> Result<(), E>) -> Result<Picture, E> {
    chart.check()?;
    let (width, height) = (f64::from(chart.width_px), f64::from(chart.height_px));
    let span = Span { start_ns: chart.start_ns, end_ns: chart.end_ns, columns: chart.width_px as usize };
    let drawn = rows(chart, span, &check)?;
    let scale = Scale::fitting(chart, &drawn);
    let notes = notes(chart, &drawn);
    let rooms = rooms(chart, height, notes.len());
    let legend_px = rooms.legend_lines as f64 * LINE_PX;
    let top = EDGE_PX + rooms.title_px;
    let bottom = (height - EDGE_PX / 2.0 - rooms.notes_px - legend_px - TIMES_PX).max(top + 8.0);
    let marks = ticks::values(scale, &chart.unit, ((bottom - top) / VALUE_MARK_PX) as usize);
    let widest = marks.iter().map(|mark| width_px(&mark.text, SIZE_PX)).fold(24.0, f64::max).min(width / 3.0);
    let left = EDGE_PX + widest + 6.0;
    let right = width - RIGHT_PX;
    let inset = inset(chart, &drawn, right - left);
    let frame = Frame { left, right, top, bottom, span, scale, inset };
    check()?;

    let palette = Palette::for_theme(chart.theme);
    let ground =
        Shape::Rectangle { at: Position { x: 0.0, y: 0.0 }, width_px: width, height_px: height, paint: palette.ground };
    let mut shapes = vec![ground];
    let count = ((frame.right - frame.left) / TIME_MARK_PX).max(1.0) as usize;
    let times = ticks::times(chart.start_ns, chart.end_ns, &chart.zone, count);
    grid(&mut shapes, &frame, palette, (&marks, &times));
    for (number, series) in drawn.iter().enumerate() {
        check()?;
        series_shapes(&mut shapes, chart, &frame, (number, drawn.len()), series);
    }
    thresholds(&mut shapes, chart, &frame);
    if !drawn.iter().any(|series| series.rows.iter().any(|row| frame.y(row.high).is_some())) {
        let at = Position { x: f64::midpoint(frame.left, frame.right), y: f64::midpoint(frame.top, frame.bottom) };
        push_text(&mut shapes, (at, Anchor::Middle), (13.0, palette.muted), "no data".to_owned());
    }
    head(&mut shapes, chart, rooms, width);
    let legend_top = frame.bottom + TIMES_PX;
    let room = Room { left: EDGE_PX, top: legend_top, width_px: width - 2.0 * EDGE_PX, lines: rooms.legend_lines };
    shapes.extend(legend::shapes(chart, &drawn, room));
    for (line, note) in notes.iter().enumerate().take((rooms.notes_px / NOTE_LINE_PX) as usize) {
        let at = Position { x: EDGE_PX, y: legend_top + legend_px + line as f64 * NOTE_LINE_PX + SIZE_PX };
        let text = fitted(note, SIZE_PX, width - 2.0 * EDGE_PX);
        push_text(&mut shapes, (at, Anchor::Start), (SIZE_PX, palette.muted), text);
    }
    Ok(Picture { width_px: chart.width_px, height_px: chart.height_px, description: description(chart), shapes })
}

/// The picture in words.
fn description(chart: &Chart) -> String {
    let title = if chart.title.is_empty() { "Plot" } else { &chart.title };
    let count = chart.series.len();
    format!("{title}: {count} series, {}", range_text(chart))
}

fn range_text(chart: &Chart) -> String {
    let shown = |time_ns: i64| {
        let time = Timestamp::from_nanosecond(i128::from(time_ns)).ok();
        time.map_or_else(String::new, |time| {
            time.to_zoned(chart.zone.clone()).strftime("%Y-%m-%d %H:%M:%S").to_string()
        })
    };
    let zone = chart.zone.iana_name().map_or_else(
        || {
            Timestamp::from_nanosecond(i128::from(chart.end_ns))
                .map_or_else(|_| String::new(), |time| chart.zone.to_offset(time).to_string())
        },
        str::to_owned,
    );
    format!("{} to {} {zone}", shown(chart.start_ns), shown(chart.end_ns))
}

/// Remarks of the plot's maker, and what is not drawn.
fn notes(chart: &Chart, drawn: &[DrawnSeries<'_>]) -> Vec<String> {
    let mut notes = chart.notes.clone();
    let lowest = drawn.iter().map(|series| series.statistics.least).fold(f64::INFINITY, f64::min);
    let is_infinite =
        |series: &DrawnSeries<'_>| series.statistics.least.is_infinite() || series.statistics.greatest.is_infinite();
    if drawn.iter().any(is_infinite) {
        notes.push("Infinite values are not drawn.".to_owned());
    }
    if chart.is_logarithmic && lowest <= 0.0 {
        notes.push("Values that are not above 0 are not drawn: the axis is logarithmic.".to_owned());
    }
    notes
}

/// What there is room for beside the plot itself.
fn rooms(chart: &Chart, height: f64, notes: usize) -> Rooms {
    let title_px = if chart.title.is_empty() || height < 100.0 { 0.0 } else { TITLE_LINE_PX };
    let free = (height * (1.0 - PLOT_LEAST) - title_px - TIMES_PX - EDGE_PX).max(0.0);
    let notes_px = (notes as f64 * NOTE_LINE_PX).min((free / NOTE_LINE_PX).floor() * NOTE_LINE_PX);
    let fit = ((free - notes_px) / LINE_PX) as usize;
    let wanted = legend::lines_wanted(chart, f64::from(chart.width_px) - 2.0 * EDGE_PX);
    // The head of a table alone says nothing.
    let least = if chart.legend == crate::chart::Legend::Table { 2 } else { 1 };
    let legend_lines = if fit < least { 0 } else { wanted.min(fit) };
    Rooms { title_px, legend_lines, notes_px }
}

impl Frame {
    fn x(&self, time_ns: i64) -> f64 {
        let length = (i128::from(self.span.end_ns) - i128::from(self.span.start_ns)).max(1);
        let since = i128::from(time_ns) - i128::from(self.span.start_ns);
        let width = self.right - self.left - 2.0 * self.inset;
        self.left + self.inset + width * (since as f64 / length as f64).clamp(0.0, 1.0)
    }

    /// `None` for a value that has no place on the axis.
    fn y(&self, value: f64) -> Option<f64> {
        Some(self.at_part(self.scale.part(value)?))
    }

    fn foot(&self, value: f64) -> f64 {
        self.at_part(self.scale.part_of_foot(value))
    }

    fn at_part(&self, part: f64) -> f64 {
        self.bottom - (self.bottom - self.top) * part
    }

    const fn band(&self) -> Band {
        Band { top: self.top, bottom: self.bottom }
    }
}

fn push_text(shapes: &mut Vec<Shape>, (at, anchor): (Position, Anchor), (size_px, paint): (f64, Paint), text: String) {
    shapes.push(Shape::Text(Text { at, anchor, size_px, paint, content: text }));
}

/// The title.
fn head(shapes: &mut Vec<Shape>, chart: &Chart, rooms: Rooms, width: f64) {
    if rooms.title_px > 0.0 {
        let at = Position { x: EDGE_PX, y: EDGE_PX + TITLE_PX * 0.8 };
        let text = fitted(&chart.title, TITLE_PX, width - 2.0 * EDGE_PX);
        push_text(shapes, (at, Anchor::Start), (TITLE_PX, Palette::for_theme(chart.theme).text), text);
    }
}

/// Lines and texts of both axes.
fn grid(shapes: &mut Vec<Shape>, frame: &Frame, palette: &Palette, (values, times): (&[ValueMark], &[TimeMark])) {
    // In the middle of pixels, so that lines are sharp.
    let sharp = |place: f64| place.floor() + 0.5;
    let mut runs = Vec::new();
    for mark in values {
        let Some(y) = frame.y(mark.value) else { continue };
        let y = y.clamp(frame.top, frame.bottom);
        let line = sharp(y).clamp(frame.top, frame.bottom);
        runs.push(vec![Position { x: frame.left, y: line }, Position { x: frame.right, y: line }]);
        let at = Position { x: frame.left - 6.0, y: y + SIZE_PX * 0.35 };
        let text = fitted(&mark.text, SIZE_PX, frame.left - 8.0);
        push_text(shapes, (at, Anchor::End), (SIZE_PX, palette.muted), text);
    }
    let mut taken = f64::NEG_INFINITY;
    for mark in times {
        let x = frame.x(mark.time_ns);
        let line = sharp(x).clamp(frame.left, frame.right);
        runs.push(vec![Position { x: line, y: frame.top }, Position { x: line, y: frame.bottom }]);
        let half = width_px(&mark.text, SIZE_PX) / 2.0;
        // Texts do not overlap, nor leave the picture.
        let middle = x.clamp(half, (frame.right + RIGHT_PX - half).max(half));
        if middle - half >= taken {
            let at = Position { x: middle, y: frame.bottom + 14.0 };
            push_text(shapes, (at, Anchor::Middle), (SIZE_PX, palette.muted), mark.text.clone());
            taken = middle + half + 4.0;
        }
    }
    shapes.push(Shape::Lines { runs, stroke: Stroke { paint: palette.grid, width_px: 1.0, dashes: &[] } });
    let y = sharp(frame.bottom).min(frame.bottom);
    let base = vec![Position { x: frame.left, y }, Position { x: frame.right, y }];
    shapes.push(Shape::Lines { runs: vec![base], stroke: Stroke { paint: palette.axis, width_px: 1.0, dashes: &[] } });
}

fn thresholds(shapes: &mut Vec<Shape>, chart: &Chart, frame: &Frame) {
    let palette = Palette::for_theme(chart.theme);
    for threshold in &chart.thresholds {
        let Some(y) = frame.y(threshold.value).filter(|y| (frame.top..=frame.bottom).contains(y)) else { continue };
        let run = vec![Position { x: frame.left, y }, Position { x: frame.right, y }];
        let stroke = Stroke { paint: palette.threshold, width_px: 1.5, dashes: &[6.0, 4.0] };
        shapes.push(Shape::Lines { runs: vec![run], stroke });
        let name = fitted(&threshold.name, SIZE_PX, frame.right - frame.left - 8.0);
        if !name.is_empty() {
            // Above the line, but for one at the very top.
            let y = if y - frame.top > SIZE_PX + 4.0 { y - 4.0 } else { y + SIZE_PX + 1.0 };
            let at = Position { x: frame.right - 4.0, y: y.clamp(frame.top, frame.bottom) };
            push_text(shapes, (at, Anchor::End), (SIZE_PX, palette.threshold), name);
        }
    }
}

/// Draws a series, given its number among so many.
fn series_shapes(
    shapes: &mut Vec<Shape>,
    chart: &Chart,
    frame: &Frame,
    (number, count): (usize, usize),
    series: &DrawnSeries<'_>,
) {
    let palette = Palette::for_theme(chart.theme);
    let paint = palette.series(number);
    if chart.style == Style::Bars {
        let outlines = bars(chart, frame, (number, count), series);
        shapes.push(Shape::Polygons { outlines, paint: paint.covering(0.85) });
        return;
    }
    let runs = joined(frame, &series.rows);
    if is_filled(chart) {
        let outlines = runs.iter().map(|run| {
            let outline: Vec<Position> =
                run.iter().map(|(high, _)| *high).chain(run.iter().rev().map(|(_, low)| *low)).collect();
            clip::polygon(&outline, frame.band())
        });
        let outlines: Vec<_> = outlines.filter(|outline| outline.len() > 2).collect();
        let opacity = if chart.is_stacked { 0.55 } else { 0.25 };
        shapes.push(Shape::Polygons { outlines, paint: paint.covering(opacity) });
    }
    let mut lines = Vec::new();
    let mut centres = Vec::new();
    for run in &runs {
        let line: Vec<Position> = run.iter().map(|(high, _)| *high).collect();
        match line.as_slice() {
            // No line reaches it.
            [only] if (frame.top..=frame.bottom).contains(&only.y) => centres.push(*only),
            _ => lines.extend(clip::line(&line, frame.band())),
        }
    }
    if !lines.is_empty() {
        let dashes = palette.dashes(number);
        shapes.push(Shape::Lines { runs: lines, stroke: Stroke { paint, width_px: LINE_WIDTH_PX, dashes } });
    }
    if !centres.is_empty() {
        shapes.push(Shape::Dots { centres, radius_px: DOT_RADIUS_PX, paint });
    }
}

/// Rows between which there are no gaps: where each is, and where it stands.
fn joined(frame: &Frame, rows: &[Row]) -> Vec<Vec<(Position, Position)>> {
    let mut runs = vec![Vec::new()];
    for row in rows {
        let x = frame.x(row.time_ns);
        match (frame.y(row.high), runs.last_mut()) {
            (Some(y), Some(run)) => run.push((Position { x, y }, Position { x, y: frame.foot(row.low) })),
            _ => runs.push(Vec::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

/// Half of the widest bars, or of the widest that stand side by side: those at the ends of the axis are to be seen, too.
fn inset(chart: &Chart, drawn: &[DrawnSeries<'_>], width: f64) -> f64 {
    if chart.style != Style::Bars {
        return 0.0;
    }
    let length = (i128::from(chart.end_ns) - i128::from(chart.start_ns)).max(1) as f64;
    drawn.iter().map(|series| bar_px(series, length, width) / 2.0).fold(0.0, f64::max).min(width * 0.4)
}

/// Pixels that the bars of one moment have, of a frame so wide that spans so many nanoseconds.
fn bar_px(series: &DrawnSeries<'_>, length: f64, width: f64) -> f64 {
    let step_px = series.step_ns.map_or(3.0, |step_ns| width * step_ns as f64 / length);
    (step_px * 0.8).clamp(1.0, width)
}

/// A bar for each row; those of several series stand side by side, unless they are stacked.
fn bars(chart: &Chart, frame: &Frame, (number, count): (usize, usize), series: &DrawnSeries<'_>) -> Vec<Vec<Position>> {
    let length = (i128::from(frame.span.end_ns) - i128::from(frame.span.start_ns)).max(1) as f64;
    let all_px = bar_px(series, length, frame.right - frame.left - 2.0 * frame.inset);
    let (own_px, offset_px) = match count {
        _ if chart.is_stacked => (all_px, -all_px / 2.0),
        _ => (all_px / count as f64, number as f64 * all_px / count as f64 - all_px / 2.0),
    };
    let mut outlines = Vec::new();
    for row in &series.rows {
        let Some(high) = frame.y(row.high) else { continue };
        let within = |y: f64| y.clamp(frame.top, frame.bottom);
        let (high, low) = (within(high), within(frame.foot(row.low)));
        let left = (frame.x(row.time_ns) + offset_px).clamp(frame.left, frame.right);
        let right = (frame.x(row.time_ns) + offset_px + own_px).clamp(frame.left, frame.right);
        let corners = [(left, low), (left, high), (right, high), (right, low)];
        outlines.push(corners.map(|(x, y)| Position { x, y }).to_vec());
    }
    outlines
}
