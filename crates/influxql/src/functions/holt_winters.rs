//! `holt_winters`: what comes next, by exponential smoothing with a damped trend and, if asked for, seasons (Holt 1957, Winters 1960; damped
//! as by Gardner and `McKenzie` 1985). The parameters are those that would have forecast the known values best, searched for from the same sixteen
//! starting points as in `InfluxDB` 1.8, so that forecasts are the same.

use query::{Budget, QueryError, Value};

use crate::functions::Point;
use crate::functions::simplex;
use crate::resolve::selection::Call;
use crate::syntax::ast::Expr;
use crate::value::InfluxValue;

/// Where the search for each smoothing parameter begins.
const GUESSES: [f64; 2] = [0.3, 0.7];

/// How much the squared errors may stray where the search ends.
const TOLERANCE: f64 = 1.0e-4;

/// How much the first values say of level and trend where there are no seasons.
const FIRST_WEIGHT: f64 = 0.5;

/// Parameters besides the seasons' factors: of level, trend, seasons and damping, then the first level and trend.
const PARAMETERS: usize = 6;

/// The parameters of a forecast.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forecast {
    /// Values to tell.
    pub(crate) horizon: usize,
    /// Values of a season; below two there are none.
    pub(crate) season: usize,
    /// True if the answer also has the model's values where values are known.
    pub(crate) with_fit: bool,
    /// Between two values.
    pub(crate) interval_ns: i64,
}

impl Forecast {
    /// The parameters of a call, if it is one of these.
    pub(crate) fn from_call(call: &Call, interval_ns: i64) -> Option<Self> {
        let with_fit = match call.function.as_str() {
            "holt_winters" => false,
            "holt_winters_with_fit" => true,
            _ => return None,
        };
        let number = |place: usize| match call.parameters.get(place) {
            Some(Expr::Integer(number)) => usize::try_from(*number).ok(),
            _ => None,
        };
        Some(Self { horizon: number(0)?, season: number(1)?, with_fit, interval_ns })
    }
}

/// Tells what comes after some points, which ascend in time. Nothing where they are too few.
pub(crate) fn forecast(forecast: Forecast, points: &[Point], budget: &Budget) -> Result<Vec<Point>, QueryError> {
    let points: Vec<(i64, f64)> =
        points.iter().filter_map(|point| Some((point.time_ns, point.value.as_number()?))).collect();
    let (Some((first_ns, _)), Some((last_ns, _))) = (points.first(), points.last()) else {
        return Ok(Vec::new());
    };
    let season = if forecast.season < 2 { 0 } else { forecast.season };
    let rounded = |time_ns: i64| round(time_ns, forecast.interval_ns);
    let steps = rounded(*last_ns).saturating_sub(rounded(*first_ns)) / forecast.interval_ns.max(1);
    if points.len() < 2.max(season) || steps <= 0 {
        return Ok(Vec::new());
    }
    let length = usize::try_from(steps).unwrap_or(usize::MAX).saturating_add(forecast.horizon).saturating_add(1);
    budget.take(length)?;
    let model = Model { known: known_values(&points, forecast.interval_ns), season };
    let predicted = model.fitted(budget).map(|mut parameters| model.run(&mut parameters, forecast.horizon));
    budget.give_back(length);
    let predicted = predicted?;
    let (from_ns, skipped) = if forecast.with_fit {
        (*first_ns, 0)
    } else {
        (last_ns.saturating_add(forecast.interval_ns), model.known.len())
    };
    let numbers = predicted.into_iter().skip(skipped).enumerate().filter(|(_, number)| !number.is_nan());
    let out = |(place, number): (usize, f64)| Point {
        time_ns: from_ns.saturating_add(forecast.interval_ns.saturating_mul(place as i64)),
        value: Value::Float(number),
        origin: None,
    };
    Ok(numbers.map(out).collect())
}

/// To the nearest multiple of the interval; in the middle down.
fn round(time_ns: i64, interval_ns: i64) -> i64 {
    let rest_ns = time_ns % interval_ns.max(1);
    let down_ns = time_ns - rest_ns;
    if rest_ns > interval_ns / 2 { down_ns.saturating_add(interval_ns) } else { down_ns }
}

/// A value for each interval, NaN where there is none; the first of several.
fn known_values(points: &[(i64, f64)], interval_ns: i64) -> Vec<f64> {
    let mut known: Vec<f64> = Vec::new();
    let mut next_ns = points.first().map_or(0, |(time_ns, _)| round(*time_ns, interval_ns));
    for (time_ns, value) in points {
        let time_ns = round(*time_ns, interval_ns);
        if time_ns < next_ns {
            continue;
        }
        let missing = usize::try_from(time_ns.saturating_sub(next_ns) / interval_ns.max(1)).unwrap_or_default();
        known.resize(known.len() + missing, f64::NAN);
        known.push(*value);
        next_ns = time_ns.saturating_add(interval_ns);
    }
    known
}

/// Known values at equal distances, to forecast from.
struct Model {
    /// NaN where one is missing, but the first and the last are there.
    known: Vec<f64>,
    /// Values of a season; 0: none.
    season: usize,
}

impl Model {
    /// The parameters that tell the known values best.
    fn fitted(&self, budget: &Budget) -> Result<Vec<f64>, QueryError> {
        let start = self.first_guess();
        let mut error = |parameters: &mut [f64]| {
            budget.check()?;
            Ok::<_, QueryError>(self.squared_error(parameters))
        };
        let mut best: Option<simplex::Corner> = None;
        for number in 0..GUESSES.len().pow(4) {
            let mut guess = start.clone();
            for (place, parameter) in guess.iter_mut().take(4).enumerate() {
                // The first parameter changes last.
                *parameter = GUESSES[number >> (3 - place) & 1];
            }
            let found = simplex::minimum(&guess, TOLERANCE, &mut error)?;
            if best.as_ref().is_none_or(|best| found.cost < best.cost) {
                best = Some(found);
            }
        }
        Ok(best.map_or(start, |best| best.at))
    }

    /// Level and trend at the beginning, and how much of the level each value of a season has.
    fn first_guess(&self) -> Vec<f64> {
        let (season, count) = (self.season, self.season as f64);
        let first = |place: usize| self.known.get(place).copied().filter(|value| !value.is_nan());
        let (mut level, mut trend) = (0.0, 0.0);
        if season == 0 {
            level = FIRST_WEIGHT * first(0).unwrap_or_default();
            trend = first(1).map_or(0.0, |second| FIRST_WEIGHT * (second - first(0).unwrap_or_default()));
        }
        for place in 0..season {
            level += first(place).map_or(0.0, |value| 1.0 / count * value);
            if let (Some(value), Some(later)) = (first(place), first(season + place)) {
                trend += 1.0 / (count * count) * (later - value);
            }
        }
        let mut parameters = vec![0.0; PARAMETERS];
        parameters[4] = level;
        parameters[5] = trend;
        parameters.extend((0..season).map(|place| first(place).map_or(0.0, |value| value / level)));
        parameters
    }

    /// The model's values from the first one on, `horizon` values beyond the known ones. Moves smoothing parameters that are not within
    /// 0 and 1 there, and leaves the last seasons' factors in place of the first.
    fn run(&self, parameters: &mut [f64], horizon: usize) -> Vec<f64> {
        let (smoothing, factors) = parameters.split_at_mut(PARAMETERS);
        smoothing.iter_mut().take(4).for_each(|parameter| *parameter = parameter.clamp(0.0, 1.0));
        let [of_level, of_trend, of_season, damping, mut level, mut trend] = *smoothing else {
            return Vec::new();
        };
        let mut damped = damping;
        let mut value = self.known.first().copied().unwrap_or_default();
        let mut predicted = Vec::with_capacity(self.known.len() + horizon);
        predicted.push(value);
        for step in 1..self.known.len() + horizon {
            // Factors are taken in steps of two, as InfluxDB does it.
            let place = (2 * step - 2) % self.season.max(1);
            let ahead = (place + step) % self.season.max(1);
            let factor = factors.get(place).copied().unwrap_or(1.0);
            let factor_ahead = factors.get(ahead).copied().unwrap_or(1.0);
            let expected = level + damping * trend;
            let new_level = of_level * (value / factor) + (1.0 - of_level) * expected;
            let new_trend = of_trend * (new_level - level) + (1.0 - of_trend) * damping * trend;
            if let Some(factor) = factors.get_mut(place) {
                *factor = of_season * (value / expected) + (1.0 - of_season) * *factor;
            }
            (level, trend) = (new_level, new_trend);
            value = (level + damped * trend) * factor_ahead;
            damped += damping.powf(step as f64);
            predicted.push(value);
        }
        predicted
    }

    fn squared_error(&self, parameters: &mut [f64]) -> f64 {
        let predicted = self.run(parameters, 0);
        let known = self.known.iter().zip(&predicted).filter(|(known, _)| !known.is_nan());
        let squares = known.map(|(known, predicted)| (predicted - known) * (predicted - known));
        let sum: f64 = squares.sum();
        if sum.is_nan() { f64::INFINITY } else { sum }
    }
}

#[cfg(test)]
#[expect(clippy::unreadable_literal, reason = "as they were published")]
mod tests {
    use super::*;

    /// Visitor nights in Australia by quarter, in millions, 1999 to 2010: a well-known series of R's forecasting packages.
    const TOURISTS: [f64; 48] = [
        30.052513, 19.148496, 25.317692, 27.591437, 32.076456, 23.487961, 28.47594, 35.123753, 36.838485, 25.007017,
        30.72223, 28.693759, 36.640986, 23.824609, 29.311683, 31.770309, 35.177877, 19.775244, 29.60175, 34.538842,
        41.273599, 26.655862, 28.279859, 35.191153, 41.727458, 24.04185, 32.328103, 37.328708, 46.213153, 29.346326,
        36.48291, 42.977719, 48.901525, 31.180221, 37.717881, 40.420211, 51.206863, 31.887228, 40.978263, 43.772491,
        55.558567, 33.850915, 42.076383, 45.642292, 59.76678, 35.191877, 44.319737, 47.913736,
    ];

    /// The United States' population in millions, every ten years since 1790.
    const POPULATION: [f64; 19] = [
        3.93, 5.31, 7.24, 9.64, 12.90, 17.10, 23.20, 31.40, 39.80, 50.20, 62.90, 76.00, 92.00, 105.70, 122.80, 131.70,
        151.30, 179.30, 203.20,
    ];

    /// Values at 1, 2, 3, …, some of them left out.
    fn points(values: &[f64], left_out: &[i64]) -> Vec<Point> {
        let all = values.iter().zip(1..).filter(|(_, time_ns)| !left_out.contains(time_ns));
        all.map(|(value, time_ns)| Point { time_ns, value: Value::Float(*value), origin: None }).collect()
    }

    fn predicted(parameters: Forecast, points: &[Point]) -> Vec<(i64, f64)> {
        let outs = forecast(parameters, points, &Budget::new(1_000_000)).unwrap();
        outs.iter().map(|out| (out.time_ns, out.value.as_number().unwrap())).collect()
    }

    /// Expectations are what InfluxDB's own tests have for the same values.
    fn check(parameters: Forecast, points: &[Point], first_ns: i64, expected: &[f64]) {
        let predicted = predicted(parameters, points);
        assert!(
            predicted.iter().map(|(time_ns, _)| *time_ns).eq(first_ns..first_ns + expected.len() as i64),
            "{predicted:?}"
        );
        for ((time_ns, found), expected) in predicted.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5, "at {time_ns}: {found}, not {expected}");
        }
    }

    const SEASONAL: Forecast = Forecast { horizon: 10, season: 4, with_fit: false, interval_ns: 1 };
    const GROWING: Forecast = Forecast { horizon: 10, season: 0, with_fit: true, interval_ns: 1 };

    #[test]
    fn forecasts_are_those_of_influxdb() {
        let expected = [
            51.85064132137853,
            43.26055282315273,
            41.827258044814464,
            54.3990354591749,
            54.62334472770803,
            45.57155693625209,
            44.06051240252263,
            57.30029870759433,
            57.53591513519172,
            47.999008139396096,
        ];
        check(SEASONAL, &points(&TOURISTS, &[]), 49, &expected);
        let expected = [
            3.93,
            4.957405463559748,
            7.012210102535647,
            10.099589257439924,
            14.229926188104242,
            19.418878968703797,
            25.68749172281409,
            33.062351305731305,
            41.575791076125206,
            51.26614395589263,
            62.178047564264595,
            74.36280483872488,
            87.87880423073163,
            102.79200429905801,
            119.17648832929542,
            137.11509549747296,
            156.70013608313175,
            178.03419933863566,
            201.23106385518594,
            226.4167216525905,
            253.73052878285205,
            283.32649700397553,
            315.37474308085984,
            350.06311454009256,
            387.59901328556873,
            428.21144141893404,
            472.1532969569147,
            519.7039509590035,
            571.1721419458248,
        ];
        check(GROWING, &points(&POPULATION, &[]), 1, &expected);
    }

    #[test]
    fn missing_values_are_passed_over() {
        let expected = [
            54.84533610387743,
            41.19329421863249,
            45.71673175112451,
            56.05759298805955,
            59.32337460282217,
            44.75280096850461,
            49.98865098113751,
            61.86084934967605,
            65.95805633454883,
            50.1502170480547,
        ];
        check(SEASONAL, &points(&TOURISTS, &[2, 8, 18, 29, 33, 39, 40]), 49, &expected);
        let predicted = predicted(GROWING, &points(&POPULATION, &[9, 14, 18]));
        assert!((predicted.last().unwrap().1 - 570.1447331101863).abs() < 1e-5, "{predicted:?}");
    }

    #[test]
    fn times_go_to_the_nearest_interval() {
        let second_ns = 1_000_000_000;
        let at =
            |time_ms: i64, value: f64| Point { time_ns: time_ms * 1_000_000, value: Value::Float(value), origin: None };
        let points = [at(95_000, 1.0), at(95_897, 10.0), at(96_777, 2.0), at(97_519, 11.0)];
        let parameters = Forecast { horizon: 2, season: 2, with_fit: true, interval_ns: second_ns };
        let predicted = predicted(parameters, &points);
        assert!(
            predicted.iter().map(|(time_ns, _)| *time_ns).eq((95..=100).map(|second| second * second_ns)),
            "{predicted:?}"
        );
        let expected =
            [1.0, 10.006729104838234, 1.998341814469269, 10.997858830631172, 4.085860238030013, 11.35713604403339];
        for ((_, found), expected) in predicted.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-5, "{found}, not {expected}");
        }
    }

    #[test]
    fn too_few_points_tell_nothing_and_too_many_are_refused() {
        assert_eq!(predicted(SEASONAL, &points(&TOURISTS[..3], &[])), []);
        assert_eq!(predicted(GROWING, &points(&POPULATION[..1], &[])), []);
        assert_eq!(predicted(GROWING, &[]), []);
        let far =
            [points(&POPULATION[..1], &[]), vec![Point { time_ns: i64::MAX, value: Value::Float(1.0), origin: None }]];
        let refused = forecast(GROWING, &far.concat(), &Budget::new(1_000_000));
        assert!(matches!(refused, Err(QueryError::TooManySamples { .. })), "{refused:?}");
        let endless =
            forecast(Forecast { horizon: usize::MAX, ..GROWING }, &points(&POPULATION, &[]), &Budget::new(1_000_000));
        assert!(matches!(endless, Err(QueryError::TooManySamples { .. })), "{endless:?}");
    }
}
