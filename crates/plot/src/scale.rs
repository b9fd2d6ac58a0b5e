//! Values to heights: where the axis of values begins and ends, and what part of it a value is at.

use crate::chart::Chart;
use crate::rows::{DrawnSeries, is_filled};

/// The axis of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    Linear {
        least: f64,
        greatest: f64,
    },
    /// Logarithms to the base of 10.
    Logarithmic {
        least: f64,
        greatest: f64,
    },
}

impl Scale {
    /// An axis for what is drawn.
    pub(crate) fn fitting(chart: &Chart, drawn: &[DrawnSeries<'_>]) -> Self {
        if chart.is_logarithmic { Self::logarithmic(chart, drawn) } else { Self::linear(chart, drawn) }
    }

    fn linear(chart: &Chart, drawn: &[DrawnSeries<'_>]) -> Self {
        let rows = drawn.iter().flat_map(|series| &series.rows);
        let thresholds = chart.thresholds.iter().map(|threshold| threshold.value);
        let values = rows.map(|row| row.high).chain(thresholds);
        let (mut low, mut high) = bounds(values.filter(|value| value.is_finite())).unwrap_or((0.0, 1.0));
        if is_filled(chart) {
            let lows = drawn.iter().flat_map(|series| &series.rows).map(|row| row.low).filter(|low| low.is_finite());
            let (least, greatest) = bounds(lows).unwrap_or((0.0, 0.0));
            (low, high) = (low.min(least), high.max(greatest));
        } else if low >= 0.0 && low <= high / 2.0 {
            low = 0.0;
        }
        let reach = high / 2.0 - low / 2.0;
        let room = if reach > 0.0 { reach * 0.1 } else { (low.abs() * 0.1).max(f64::MIN_POSITIVE) };
        let clamped = |value: f64| value.clamp(f64::MIN, f64::MAX);
        let is_at_zero = |value: f64| value == 0.0 && reach > 0.0;
        let least = chart.least.unwrap_or_else(|| if is_at_zero(low) { 0.0 } else { clamped(low - room) });
        let greatest = chart.greatest.unwrap_or_else(|| if is_at_zero(high) { 0.0 } else { clamped(high + room) });
        let (least, greatest) = match (chart.least, chart.greatest) {
            _ if least < greatest => (least, greatest),
            // What is given alone is beyond all values.
            (Some(least), None) => (least, clamped(least + least.abs().max(1.0))),
            (None, Some(greatest)) => (clamped(greatest - greatest.abs().max(1.0)), greatest),
            _ => (low - 1.0, low + 1.0),
        };
        if reach == 0.0 && low == 0.0 && chart.least.is_none() && chart.greatest.is_none() {
            return Self::Linear { least: 0.0, greatest: 1.0 };
        }
        Self::Linear { least, greatest }
    }

    fn logarithmic(chart: &Chart, drawn: &[DrawnSeries<'_>]) -> Self {
        let rows = drawn.iter().flat_map(|series| &series.rows);
        let thresholds = chart.thresholds.iter().map(|threshold| threshold.value);
        let values = rows.map(|row| row.high).chain(thresholds);
        let values = values.filter(|value| value.is_finite() && *value > 0.0).map(f64::log10);
        let (low, high) = bounds(values).unwrap_or((0.0, 1.0));
        // What stands on the beginning of the axis is to be seen.
        let foot = if is_filled(chart) && low.fract() == 0.0 { low - 1.0 } else { low.floor() };
        let least = chart.least.map_or(foot, f64::log10);
        let greatest = chart.greatest.map_or_else(|| high.ceil(), f64::log10);
        match (chart.least, chart.greatest) {
            _ if least < greatest => Self::Logarithmic { least, greatest },
            (None, Some(_)) => Self::Logarithmic { least: greatest - 1.0, greatest },
            _ => Self::Logarithmic { least, greatest: least + 1.0 },
        }
    }

    /// How far up a value is: 0 at the beginning of the axis, 1 at its end, and not much beyond what is near. `None` if it has no place.
    pub(crate) fn part(self, value: f64) -> Option<f64> {
        /// Nothing that far beyond the axis can be told from what is nearer.
        const FAR: f64 = 1e6;
        let (value, least, greatest) = match self {
            Self::Linear { least, greatest } => (value, least, greatest),
            Self::Logarithmic { least, greatest } if value > 0.0 => (value.log10(), least, greatest),
            Self::Logarithmic { .. } => return None,
        };
        if !value.is_finite() {
            return None;
        }
        let reach = greatest - least;
        let part = if reach.is_finite() && (value - least).is_finite() {
            (value - least) / reach
        } else {
            (value / 4.0 - least / 4.0) / (greatest / 4.0 - least / 4.0)
        };
        if part.is_nan() { None } else { Some(part.clamp(-FAR, FAR)) }
    }

    /// How far up a foot is: that of a logarithmic axis is its beginning.
    pub(crate) fn part_of_foot(self, value: f64) -> f64 {
        match self {
            Self::Linear { .. } => self.part(value).unwrap_or(0.0),
            Self::Logarithmic { .. } => 0.0,
        }
    }
}

/// The least and the greatest.
fn bounds(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |found, value| {
        let (least, greatest) = found.unwrap_or((value, value));
        Some((value.min(least), value.max(greatest)))
    })
}
