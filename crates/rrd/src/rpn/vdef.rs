//! A column to one value.

use super::Column;
use super::stack::order;
use crate::number;

/// What a `VDEF` computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Summary {
    /// The greatest value.
    Maximum,
    /// The least value.
    Minimum,
    /// The mean.
    Average,
    /// The standard deviation.
    Deviation,
    /// The first known value.
    First,
    /// The last known value.
    Last,
    /// The sum of values times the step.
    Total,
    /// A percentile; unknown values are the least.
    Percent(f64),
    /// A percentile of known values.
    PercentKnown(f64),
    /// The slope of the line of least squares.
    Slope,
    /// Its value at the first step.
    Intercept,
    /// Its correlation.
    Correlation,
}

/// A value, and when it was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SummaryValue {
    /// The value.
    pub value: f64,
    /// When it was, for those that are values of a column, in seconds.
    pub time_s: Option<i64>,
}

impl Summary {
    /// Reads what follows the name of a column: `MAXIMUM`, or `95,PERCENT`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (parameter, name) = text.rsplit_once(',').map_or((None, text), |(parameter, name)| (Some(parameter), name));
        let percent = || {
            let percent = parameter.and_then(number::parse).filter(|percent| (0.0..=100.0).contains(percent));
            percent.ok_or_else(|| format!("{text:?}: a percentile is a number from 0 to 100"))
        };
        let plain = match name {
            "PERCENT" => return percent().map(Self::Percent),
            "PERCENTNAN" => return percent().map(Self::PercentKnown),
            "MAXIMUM" => Self::Maximum,
            "MINIMUM" => Self::Minimum,
            "AVERAGE" => Self::Average,
            "STDEV" => Self::Deviation,
            "FIRST" => Self::First,
            "LAST" => Self::Last,
            "TOTAL" => Self::Total,
            "LSLSLOPE" => Self::Slope,
            "LSLINT" => Self::Intercept,
            "LSLCORREL" => Self::Correlation,
            _ => return Err(format!("{name:?} is no function of VDEF")),
        };
        match parameter {
            Some(parameter) => Err(format!("{name} takes no parameter, and {parameter:?} is before it")),
            None => Ok(plain),
        }
    }

    /// The value of a column.
    pub fn of_column(self, column: &Column) -> SummaryValue {
        let values = &column.values;
        let finite = || values.iter().copied().filter(|value| value.is_finite());
        let count = finite().count() as f64;
        let value = match self {
            Self::Maximum => return extreme(column, |value, best| value > best),
            Self::Minimum => return extreme(column, |value, best| value < best),
            Self::First => return at(column, values.iter().position(|value| !value.is_nan()), 0),
            Self::Last => return at(column, values.iter().rposition(|value| !value.is_nan()), 1),
            Self::Percent(percent) => percentile(values.clone(), percent),
            Self::PercentKnown(percent) => {
                percentile(values.iter().copied().filter(|value| !value.is_nan()).collect(), percent)
            }
            _ if count == 0.0 => f64::NAN,
            Self::Total => finite().sum::<f64>() * column.step_s as f64,
            Self::Average => finite().sum::<f64>() / count,
            Self::Deviation => {
                let mean = finite().sum::<f64>() / count;
                (finite().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()
            }
            Self::Slope | Self::Intercept | Self::Correlation => self.line(values),
        };
        SummaryValue { value, time_s: None }
    }

    /// Of the line of least squares through known values, over the numbers of their steps.
    fn line(self, values: &[f64]) -> f64 {
        let (mut count, mut x, mut y, mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0);
        for (step, value) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
            let step = step as f64;
            count += 1.0;
            x += step;
            y += value;
            xy += step * value;
            xx += step * step;
            yy += value * value;
        }
        let slope = (x * y - count * xy) / (x * x - count * xx);
        match self {
            Self::Slope => slope,
            Self::Intercept => (y - slope * x) / count,
            _ => (xy - x * y / count) / ((xx - x * x / count) * (yy - y * y / count)).sqrt(),
        }
    }
}

/// The value of a step; its time is that of the step's beginning or, with `ends` 1, its end.
fn at(column: &Column, index: Option<usize>, ends: i64) -> SummaryValue {
    let value = index.and_then(|index| column.values.get(index)).copied().unwrap_or(f64::NAN);
    let time_s = index.map(|index| column.start_s + (index as i64 + ends) * column.step_s);
    SummaryValue { value, time_s }
}

fn extreme(column: &Column, is_better: impl Fn(f64, f64) -> bool) -> SummaryValue {
    let mut best: Option<(usize, f64)> = None;
    for (index, value) in column.values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
        // The first known value counts even if it is infinite.
        if best.is_none_or(|(_, best)| value.is_finite() && is_better(*value, best)) {
            best = Some((index, *value));
        }
    }
    at(column, best.map(|(index, _)| index), 1)
}

fn percentile(mut values: Vec<f64>, percent: f64) -> f64 {
    values.sort_by(|a, b| order(*a, *b));
    let index = (percent * values.len().saturating_sub(1) as f64 / 100.0).round() as usize;
    values.get(index).copied().unwrap_or(f64::NAN)
}
