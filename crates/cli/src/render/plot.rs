//! Answers as plots of braille characters, with values on the left and times below.

use std::fmt::Write;

use jiff::Timestamp;

use crate::render::axis;
use crate::render::canvas::{Canvas, Dot};
use crate::render::series::Series;

/// Series that a plot shows.
const SERIES_MAX: usize = 8;

/// Rows between two values on the left.
const ROWS_PER_MARK: usize = 4;

/// Colours of the terminal, in the order of series: cyan, yellow, green, magenta, blue, red, bright cyan, bright yellow.
const COLOURS: [u8; SERIES_MAX] = [36, 33, 32, 35, 34, 31, 96, 93];

/// Where a plot is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) columns: u16,
    pub(crate) rows: u16,
    pub(crate) has_colours: bool,
}

impl Screen {
    fn paint(self, colour: usize, text: &str) -> String {
        match COLOURS.get(colour).filter(|_| self.has_colours) {
            Some(code) => format!("\x1b[{code}m{text}\x1b[0m"),
            None => text.to_owned(),
        }
    }
}

/// What a plot spans.
#[derive(Debug, Clone, Copy)]
struct Ranges {
    start_s: f64,
    end_s: f64,
    least: f64,
    greatest: f64,
    /// Samples further apart are not joined.
    gap_s: f64,
}

/// A plot and its legend: name, least, greatest and last value of each series.
pub(crate) fn render(series: &[Series], screen: Screen) -> String {
    let shown = series.get(..SERIES_MAX).unwrap_or(series);
    let Some(ranges) = Ranges::spanning(shown) else {
        return "no samples".to_owned();
    };
    let rows = usize::from(screen.rows).saturating_sub(12).clamp(8, 25);
    let marks: Vec<String> = (0..rows).map(|row| ranges.mark(row, rows)).collect();
    let margin = marks.iter().map(|mark| mark.chars().count()).max().unwrap_or_default();
    let columns = usize::from(screen.columns).saturating_sub(margin + 4).max(20);
    let mut canvas = Canvas::new(columns, rows);
    for (colour, one) in shown.iter().enumerate() {
        draw(&mut canvas, one, &ranges, Size { columns, rows }, colour);
    }
    let mut out = format!("{} to {}\n", time(ranges.start_s), time(ranges.end_s));
    for (row, mark) in marks.iter().enumerate() {
        let axis = if mark.is_empty() { '│' } else { '┤' };
        let drawn = canvas.row(row, |colour, text| screen.paint(colour, text));
        // Writing into a string does not fail.
        let _ = writeln!(out, "{mark:>margin$} {axis}{}", drawn.trim_end());
    }
    let _ = writeln!(out, "{:margin$} └{}", "", "─".repeat(columns));
    let _ = writeln!(out, "{:margin$}  {}", "", axis::times(ranges.start_s, ranges.end_s, columns));
    for (colour, one) in shown.iter().enumerate() {
        let _ = write!(out, "{} {}", screen.paint(colour, "━"), legend(one));
    }
    if series.len() > SERIES_MAX {
        let _ = writeln!(out, "and {} more series; --format table shows all", series.len() - SERIES_MAX);
    }
    out
}

#[derive(Debug, Clone, Copy)]
struct Size {
    columns: usize,
    rows: usize,
}

impl Ranges {
    fn spanning(series: &[Series]) -> Option<Self> {
        let times = || series.iter().flat_map(|one| one.samples.iter().map(|(seconds, _)| *seconds));
        let values =
            || series.iter().flat_map(|one| points(one).map(|(_, value)| value)).filter(|value| value.is_finite());
        let (least, greatest) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
        // A line that is level lies in the middle.
        let room = if greatest > least { 0.0 } else { least.abs().max(1.0) / 2.0 };
        let pairs = series.iter().flat_map(|one| one.samples.windows(2));
        let step_s = pairs.filter_map(|pair| Some(pair.last()?.0 - pair.first()?.0)).fold(f64::INFINITY, f64::min);
        Some(Self {
            start_s: times().reduce(f64::min)?,
            end_s: times().reduce(f64::max)?,
            least: least - room,
            greatest: greatest + room,
            gap_s: step_s * 1.5,
        })
    }

    /// The value beside a row; nothing beside most.
    fn mark(&self, row: usize, rows: usize) -> String {
        let last = rows.saturating_sub(1);
        let is_marked = row == last || (row.is_multiple_of(ROWS_PER_MARK) && last - row >= ROWS_PER_MARK / 2);
        let value = self.greatest - (self.greatest - self.least) * row as f64 / last.max(1) as f64;
        if is_marked { axis::short(value) } else { String::new() }
    }

    fn dot(&self, (seconds, value): (f64, f64), size: Size) -> Dot {
        let part = |value: f64, from: f64, to: f64| if to > from { (value - from) / (to - from) } else { 0.0 };
        let x = part(seconds, self.start_s, self.end_s) * (size.columns * 2 - 1) as f64;
        let y = part(self.greatest - value, 0.0, self.greatest - self.least) * (size.rows * 4 - 1) as f64;
        Dot { x: x.round() as i64, y: y.round() as i64 }
    }
}

fn draw(canvas: &mut Canvas, series: &Series, ranges: &Ranges, size: Size, colour: usize) {
    let mut before: Option<(f64, Dot)> = None;
    for (seconds, value) in points(series) {
        if !value.is_finite() {
            before = None;
            continue;
        }
        let dot = ranges.dot((seconds, value), size);
        let joined = before.filter(|(earlier_s, _)| seconds - earlier_s <= ranges.gap_s);
        canvas.line(joined.map_or(dot, |(_, earlier)| earlier), dot, colour);
        before = Some((seconds, dot));
    }
}

fn points(series: &Series) -> impl Iterator<Item = (f64, f64)> {
    series.samples.iter().filter_map(|(seconds, value)| Some((*seconds, value.parse().ok()?)))
}

fn legend(series: &Series) -> String {
    let values = || points(series).map(|(_, value)| value);
    let (least, greatest) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let newest = values().last().unwrap_or(f64::NAN);
    let [least, greatest, newest] = [least, greatest, newest].map(axis::number);
    format!("{}  min {least} max {greatest} last {newest}\n", series.name())
}

fn time(seconds: f64) -> String {
    Timestamp::from_second(seconds as i64).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(host: &str, samples: &[(f64, &str)]) -> Series {
        let labels = vec![("__name__".to_owned(), "m".to_owned()), ("host".to_owned(), host.to_owned())];
        Series { labels, samples: samples.iter().map(|(seconds, value)| (*seconds, (*value).to_owned())).collect() }
    }

    #[test]
    fn axes_have_times_and_values() {
        let all = [
            series("a", &[(0.0, "0"), (1800.0, "10000"), (3600.0, "20000")]),
            series("b", &[(0.0, "5"), (3600.0, "NaN")]),
        ];
        let screen = Screen { columns: 70, rows: 20, has_colours: false };
        let plot = render(&all, screen);
        let lines: Vec<&str> = plot.lines().collect();
        assert_eq!(lines.first(), Some(&"1970-01-01T00:00:00Z to 1970-01-01T01:00:00Z"), "{plot}");
        assert!(lines[1].starts_with(" 20k ┤") && lines[1].ends_with('⠉'), "{plot}");
        assert!(lines[8].starts_with("   0 ┤"), "{plot}");
        assert!(lines[10].trim_start().starts_with("01-01") && lines[10].contains(" 00:30 "), "{plot}");
        assert_eq!(lines[11], "━ m{host=\"a\"}  min 0 max 20000 last 20000");
        assert!(!plot.contains('\x1b'));
        let coloured = render(&all, Screen { has_colours: true, ..screen });
        assert!(coloured.contains("\x1b[36m") && coloured.contains("\x1b[33m━\x1b[0m m{host=\"b\"}"), "{coloured}");
        assert_eq!(render(&[], screen), "no samples");
        assert!(render(&[series("a", &[(7.0, "3")])], screen).contains('┤'));
    }

    /// A step without a sample is a gap.
    #[test]
    fn what_is_missing_is_not_drawn() {
        let all = [series("a", &[(0.0, "1"), (10.0, "1"), (90.0, "1"), (100.0, "1")])];
        let plot = render(&all, Screen { columns: 60, rows: 20, has_colours: false });
        let drawn = plot
            .lines()
            .find(|line| line.contains('⠉') || line.contains('⠤') || line.contains('⠒') || line.contains('⣀'))
            .unwrap();
        assert!(drawn.contains("          "), "{plot}");
    }
}
