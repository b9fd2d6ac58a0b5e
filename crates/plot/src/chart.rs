//! A chart: its series, axes, thresholds and look, before it is laid out.

use jiff::tz::TimeZone;

use crate::PlotError;
use crate::unit::Unit;

/// Pixels of a picture, its resolution counted.
pub const PIXELS_MAX: u64 = 8 << 20;
/// Series of a plot.
pub const SERIES_MAX: usize = 1000;
/// Points that are drawn, after they were thinned out.
pub const POINTS_MAX: usize = 2_000_000;
/// Values of series on one axis of times.
pub const CELLS_MAX: usize = 4_000_000;

const WIDTH_LEAST_PX: u32 = 120;
const HEIGHT_LEAST_PX: u32 = 60;
const SIDE_MAX_PX: u32 = 8192;

/// A value at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Nanoseconds since the Unix epoch.
    pub time_ns: i64,
    /// The value; NaN: there is none, which is a gap.
    pub value: f64,
}

/// A series.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its labels, for programs.
    pub labels: Vec<(String, String)>,
    /// Its points in order of time.
    pub points: Vec<Point>,
}

/// How series are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// Points joined by lines.
    #[default]
    Line,
    /// Filled down to zero.
    Area,
    /// A bar for each point.
    Bars,
}

/// What stands below the plot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Legend {
    /// A line for each series, with its last, least, greatest and mean value.
    #[default]
    Table,
    /// Names side by side.
    List,
    /// Nothing.
    None,
}

/// Colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Theme {
    /// On white.
    #[default]
    Light,
    /// On near black.
    Dark,
}

/// How more points than the width can show become fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Downsampling {
    /// The first, the least, the greatest and the last point of each column of pixels: lines look as if nothing was left out.
    /// Jugel, Jerzak, Hackenbroich, Markl: M4: A Visualization-Oriented Time Series Data Aggregation. PVLDB 7(10), 2014.
    #[default]
    MinMax,
    /// A point of each column of pixels, by the largest triangle. Steinarsson: Downsampling Time Series for Visual Representation, 2013.
    Lttb,
    /// They stay.
    None,
}

/// A horizontal line.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// Where it is.
    pub value: f64,
    /// Its name, shown on it; may be empty.
    pub name: String,
}

/// A plot.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Its title; may be empty.
    pub title: String,
    /// Its series.
    pub series: Vec<Series>,
    /// The first moment of its axis, in nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// The last moment.
    pub end_ns: i64,
    /// The time from one point to the next: points that are more than half of it further apart have a gap between them. `None`: as far as points mostly are
    /// apart, if they are so regularly.
    pub step_ns: Option<i64>,
    /// How series are drawn.
    pub style: Style,
    /// True if they stand upon one another.
    pub is_stacked: bool,
    /// True if the axis of values is logarithmic.
    pub is_logarithmic: bool,
    /// Where the axis of values begins, if it does not follow the values.
    pub least: Option<f64>,
    /// Where it ends.
    pub greatest: Option<f64>,
    /// What values are.
    pub unit: Unit,
    /// The zone in which times are shown.
    pub zone: TimeZone,
    /// Horizontal lines.
    pub thresholds: Vec<Threshold>,
    /// What stands below.
    pub legend: Legend,
    /// Colours.
    pub theme: Theme,
    /// How points become fewer.
    pub downsampling: Downsampling,
    /// Pixels from left to right.
    pub width_px: u32,
    /// Pixels from top to bottom.
    pub height_px: u32,
    /// Remarks, below everything else.
    pub notes: Vec<String>,
}

impl Chart {
    /// An empty plot of a range of time in UTC, with everything as it is by default.
    pub fn new(start_ns: i64, end_ns: i64) -> Self {
        Self {
            title: String::new(),
            series: Vec::new(),
            start_ns,
            end_ns,
            step_ns: None,
            style: Style::default(),
            is_stacked: false,
            is_logarithmic: false,
            least: None,
            greatest: None,
            unit: Unit::default(),
            zone: TimeZone::UTC,
            thresholds: Vec::new(),
            legend: Legend::default(),
            theme: Theme::default(),
            downsampling: Downsampling::default(),
            width_px: 900,
            height_px: 360,
            notes: Vec::new(),
        }
    }

    /// Refuses what cannot be drawn, by names of the parameters of the HTTP API.
    pub fn check(&self) -> Result<(), PlotError> {
        let invalid = |message: String| Err(PlotError::Invalid(message));
        check_size(self.width_px, self.height_px, 1.0)?;
        if self.end_ns <= self.start_ns {
            return invalid("the end must be after the start".to_owned());
        }
        if self.series.len() > SERIES_MAX {
            return Err(PlotError::TooLarge {
                what: "series",
                count: self.series.len() as u64,
                limit: SERIES_MAX as u64,
                limit_name: "series_max",
            });
        }
        let numbers = [self.least, self.greatest].into_iter().flatten();
        let mut numbers = numbers.chain(self.thresholds.iter().map(|threshold| threshold.value));
        if let Some(bad) = numbers.find(|number| !number.is_finite()) {
            return invalid(format!("min, max and thresholds are finite numbers, not {bad}"));
        }
        if self.is_logarithmic && [self.least, self.greatest].into_iter().flatten().any(|number| number <= 0.0) {
            return invalid("min and max of a logarithmic axis are above 0".to_owned());
        }
        if self.is_logarithmic && self.is_stacked {
            return invalid("series that are stacked have no logarithmic axis: heights would not add up".to_owned());
        }
        match (self.least, self.greatest) {
            (Some(least), Some(greatest)) if least >= greatest => {
                invalid(format!("min is less than max: {least} is not less than {greatest}"))
            }
            _ => Ok(()),
        }
    }
}

/// Refuses a size that pictures do not have; `resolution` is how many pixels are drawn for each, in both directions.
pub fn check_size(width_px: u32, height_px: u32, resolution: f64) -> Result<(), PlotError> {
    for (name, side, least) in [("width", width_px, WIDTH_LEAST_PX), ("height", height_px, HEIGHT_LEAST_PX)] {
        if !(least..=SIDE_MAX_PX).contains(&side) {
            return Err(PlotError::Invalid(format!("{name} is between {least} and {SIDE_MAX_PX} pixels, not {side}")));
        }
    }
    if !(1.0..=4.0).contains(&resolution) {
        return Err(PlotError::Invalid(format!("scale is between 1 and 4, not {resolution}")));
    }
    let pixels = (f64::from(width_px) * f64::from(height_px) * resolution * resolution) as u64;
    if pixels > PIXELS_MAX {
        return Err(PlotError::TooLarge { what: "pixels", count: pixels, limit: PIXELS_MAX, limit_name: "pixels_max" });
    }
    Ok(())
}
