//! The parameters of a graph: the query, its range, and the look.

use jiff::tz::TimeZone;
use plot::chart::{Chart, Downsampling, Legend, Series, Style, Theme, Threshold, check_size};
use plot::unit::Unit;

use super::error::GraphError;
use crate::error::ApiError;
use crate::http::parameters::{Parameters, parse_duration_ms};
use crate::http::request::RequestParts;

const NS_PER_MS: i64 = 1_000_000;
const HOUR_MS: i64 = 3_600_000;

/// Horizontal lines of a graph.
const THRESHOLDS_MAX: usize = 20;
/// Characters of a title.
const TITLE_CHARS_MAX: usize = 1000;

/// What the answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Svg,
    Png,
    WebP,
    Json,
}

/// The language of the query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    PromQl,
    Sql,
    InfluxQl,
    Plan,
    Rrd,
}

/// What a request asks for.
pub(super) struct GraphRequest {
    pub(super) text: String,
    /// Statements of RRDtool.
    pub(super) arguments: Vec<String>,
    pub(super) language: Language,
    pub(super) database: String,
    pub(super) format: Format,
    /// Pixels for each of the plot's, in both directions.
    pub(super) resolution: f64,
    /// The range; only PromQL and RRDtool's statements have one of their own otherwise.
    pub(super) start_ms: Option<i64>,
    pub(super) end_ms: Option<i64>,
    /// The time now.
    pub(super) now_ns: i64,
    /// True if the range moves with the time.
    pub(super) is_moving: bool,
    pub(super) step_ns: Option<i64>,
    /// The name of a zone that times are shown in.
    pub(super) zone: Option<String>,
    /// True if cached answers will do.
    pub(super) may_cache: bool,
    legend_format: Option<String>,
    /// All of the graph but its series.
    pub(super) chart: Chart,
}

impl Format {
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Svg => "image/svg+xml",
            Self::Png => "image/png",
            Self::WebP => "image/webp",
            Self::Json => "application/json",
        }
    }

    /// The name by which a browser saves it.
    pub(super) const fn disposition(self) -> &'static str {
        match self {
            Self::Svg => "inline; filename=\"graph.svg\"",
            Self::Png => "inline; filename=\"graph.png\"",
            Self::WebP => "inline; filename=\"graph.webp\"",
            Self::Json => "inline; filename=\"graph.json\"",
        }
    }
}

/// One of some words; the first unless the request says otherwise.
fn word<T: Copy>(parameters: &Parameters, name: &str, words: &[(&str, T)]) -> Result<T, ApiError> {
    let all = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
    let wanted = parameters.get(name).or(words.first().map(|(word, _)| *word));
    let found = words.iter().find(|(word, _)| Some(*word) == wanted);
    found.map(|(_, value)| *value).ok_or_else(|| ApiError::invalid_parameter(name, format!("it is one of {}", all())))
}

fn number(parameters: &Parameters, name: &str) -> Result<Option<f64>, ApiError> {
    let Some(text) = parameters.get(name) else { return Ok(None) };
    let parsed = text.parse().ok().filter(|number: &f64| number.is_finite());
    parsed.map(Some).ok_or_else(|| ApiError::invalid_parameter(name, format!("{text:?} is not a number")))
}

fn pixels(parameters: &Parameters, name: &str, default: u32) -> Result<u32, ApiError> {
    let Some(text) = parameters.get(name) else { return Ok(default) };
    text.parse().map_err(|_| ApiError::invalid_parameter(name, format!("{text:?} is not a whole number of pixels")))
}

/// A time in milliseconds, and whether it moves: `now`, `now-1h`, `-1h`, seconds since the epoch, or RFC 3339.
fn moment(parameters: &Parameters, name: &str, now_ns: i64) -> Result<Option<(i64, bool)>, ApiError> {
    let Some(text) = parameters.get(name) else { return Ok(None) };
    let present_ms = now_ns / NS_PER_MS;
    let offset = text.strip_prefix("now").or_else(|| {
        // A number alone is seconds since the epoch, also one below 0.
        Some(text).filter(|text| text.starts_with('-') && text.ends_with(|last: char| last.is_ascii_alphabetic()))
    });
    let Some(offset) = offset else { return Ok(parameters.time_ms(name)?.map(|time_ms| (time_ms, false))) };
    let (sign, length) = match offset.split_at_checked(1) {
        None => return Ok(Some((present_ms, true))),
        Some(("-", length)) => (-1, length),
        Some(("+", length)) => (1, length),
        Some(_) => return Err(ApiError::invalid_parameter(name, "it is a time, now, or an offset such as now-1h")),
    };
    let length_ms = parse_duration_ms(length).map_err(|why| ApiError::invalid_parameter(name, why))?;
    Ok(Some((present_ms.saturating_add(length_ms.saturating_mul(sign)), true)))
}

/// `VALUE` or `VALUE,NAME`.
fn threshold(text: &str) -> Result<Threshold, ApiError> {
    let (value, name) = text.split_once(',').unwrap_or((text, ""));
    let parsed = value.trim().parse().ok().filter(|value: &f64| value.is_finite());
    let value = parsed.ok_or_else(|| {
        ApiError::invalid_parameter("threshold", format!("{text:?} is not a number, perhaps with a comma and a name"))
    })?;
    Ok(Threshold { value, name: name.trim().to_owned() })
}

impl GraphRequest {
    pub(super) fn read(parts: &RequestParts, now_ns: i64) -> Result<Self, ApiError> {
        use Language::{InfluxQl, Plan, PromQl, Rrd, Sql};
        let parameters = &parts.parameters;
        let languages = [("promql", PromQl), ("sql", Sql), ("influxql", InfluxQl), ("plan", Plan), ("rrd", Rrd)];
        let language = word(parameters, "lang", &languages)?;
        let arguments: Vec<String> = parameters.all("arg").map(str::to_owned).collect();
        let text = match language {
            Rrd if !arguments.is_empty() => arguments.join(" "),
            _ => parameters.required("query")?.to_owned(),
        };
        let formats = [("svg", Format::Svg), ("png", Format::Png), ("webp", Format::WebP), ("json", Format::Json)];
        let (start, end) = (moment(parameters, "start", now_ns)?, moment(parameters, "end", now_ns)?);
        let (start_ms, end_ms) = (start.map(|(time_ms, _)| time_ms), end.map(|(time_ms, _)| time_ms));
        if start_ms.zip(end_ms).is_some_and(|(start_ms, end_ms)| end_ms <= start_ms) {
            return Err(ApiError::invalid_parameter("end", "it is not after the start"));
        }
        let step_ms = parameters.duration_ms("step")?;
        if step_ms.is_some_and(|step_ms| step_ms <= 0) {
            return Err(ApiError::invalid_parameter("step", "it must be positive"));
        }
        let resolution = number(parameters, "scale")?.unwrap_or(1.0);
        let chart = chart(parameters, resolution)?;
        Ok(Self {
            text,
            arguments,
            language,
            database: parameters.database(&parts.headers),
            format: word(parameters, "format", &formats)?,
            resolution,
            start_ms,
            end_ms,
            now_ns,
            is_moving: end.is_none_or(|(_, is_moving)| is_moving),
            step_ns: step_ms.map(|step_ms| step_ms.saturating_mul(NS_PER_MS)),
            zone: parameters.get("tz").map(str::to_owned),
            may_cache: parameters.may_cache(),
            legend_format: parameters.get("legend_format").map(str::to_owned),
            chart,
        })
    }

    /// First and last moment: the last hour unless the request says otherwise. Those of a range that moves are whole steps, so that answers stay as they are
    /// until the next one.
    pub(super) fn range_ms(&self) -> Result<(i64, i64, i64), GraphError> {
        let end_ms = self.end_ms.unwrap_or(self.now_ns / NS_PER_MS);
        let start_ms = self.start_ms.unwrap_or_else(|| end_ms.saturating_sub(HOUR_MS));
        if end_ms <= start_ms {
            return Err(ApiError::invalid_parameter("start", "it is not before the end").into());
        }
        let step_ms = self.step_ns.map_or_else(
            || step_ms(end_ms.saturating_sub(start_ms), i64::from(self.chart.width_px)),
            |step_ns| (step_ns / NS_PER_MS).max(1),
        );
        let whole = |time_ms: i64| time_ms.div_euclid(step_ms).saturating_mul(step_ms);
        if self.is_moving && whole(start_ms) < whole(end_ms) {
            return Ok((whole(start_ms), whole(end_ms), step_ms));
        }
        Ok((start_ms, end_ms, step_ms))
    }

    /// The zone in which times are shown. Zones are read from files of the system.
    pub(super) fn zone(&self) -> Result<TimeZone, GraphError> {
        let Some(name) = &self.zone else { return Ok(TimeZone::UTC) };
        let unknown = |_| ApiError::invalid_parameter("tz", format!("there is no time zone {name:?}"));
        Ok(TimeZone::get(name).map_err(unknown)?)
    }

    /// Names series as the request says, where it does: `{{label}}` stands for a label's value.
    pub(super) fn name(&self, series: &mut [Series]) {
        let Some(format) = &self.legend_format else { return };
        for one in series {
            one.name = named(format, &one.labels);
        }
    }
}

fn named(format: &str, labels: &[(String, String)]) -> String {
    let mut name = String::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once("{{") {
        name.push_str(before);
        let Some((label, after)) = after.split_once("}}") else {
            name.push_str("{{");
            rest = after;
            continue;
        };
        name.push_str(labels.iter().find(|(name, _)| name == label.trim()).map_or("", |(_, value)| value));
        rest = after;
    }
    name.push_str(rest);
    name
}

/// All of the graph that the request says.
fn chart(parameters: &Parameters, resolution: f64) -> Result<Chart, ApiError> {
    let refused = |error: plot::PlotError| match GraphError::from(error) {
        GraphError::Refused(error) => error,
        GraphError::Query(error) => error.into(),
    };
    let mut chart = Chart::new(0, 1);
    parameters.get("title").unwrap_or_default().clone_into(&mut chart.title);
    if chart.title.chars().count() > TITLE_CHARS_MAX {
        return Err(ApiError::invalid_parameter("title", format!("it has at most {TITLE_CHARS_MAX} characters")));
    }
    chart.width_px = pixels(parameters, "width", chart.width_px)?;
    chart.height_px = pixels(parameters, "height", chart.height_px)?;
    check_size(chart.width_px, chart.height_px, resolution).map_err(refused)?;
    chart.theme = word(parameters, "theme", &[("light", Theme::Light), ("dark", Theme::Dark)])?;
    let legends = [("table", Legend::Table), ("list", Legend::List), ("none", Legend::None)];
    chart.legend = word(parameters, "legend", &legends)?;
    let styles = [("line", Style::Line), ("area", Style::Area), ("bars", Style::Bars)];
    chart.style = word(parameters, "style", &styles)?;
    chart.is_stacked = parameters.flag("stacked", false)?;
    chart.is_logarithmic = word(parameters, "axis", &[("linear", false), ("log", true)])?;
    (chart.least, chart.greatest) = (number(parameters, "min")?, number(parameters, "max")?);
    let methods = [("minmax", Downsampling::MinMax), ("lttb", Downsampling::Lttb), ("none", Downsampling::None)];
    chart.downsampling = word(parameters, "downsample", &methods)?;
    if let Some(unit) = parameters.get("unit") {
        chart.unit = Unit::named(unit).map_err(refused)?;
    }
    let thresholds = parameters.all("threshold").filter(|text| !text.is_empty()).take(THRESHOLDS_MAX + 1);
    chart.thresholds = thresholds.map(threshold).collect::<Result<_, _>>()?;
    if chart.thresholds.len() > THRESHOLDS_MAX {
        return Err(ApiError::invalid_parameter("threshold", format!("there are at most {THRESHOLDS_MAX}")));
    }
    // What does not go together is refused before anything is run.
    chart.check().map_err(refused)?;
    Ok(chart)
}

/// A round step at which a range has no more moments than pixels.
fn step_ms(length_ms: i64, width_px: i64) -> i64 {
    const STEPS_S: [i64; 19] =
        [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 604_800];
    let least_ms = length_ms / width_px.max(1) + 1;
    let found = STEPS_S.into_iter().map(|step_s| step_s * 1000).find(|step_ms| *step_ms >= least_ms);
    // Whole weeks.
    found.unwrap_or_else(|| (least_ms / 604_800_000 + 1) * 604_800_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_no_finer_than_pixels() {
        for (length_s, width, expected_s) in [
            (3600, 900, 5),
            (60, 900, 1),
            (86_400, 900, 120),
            (31_536_000, 900, 43_200),
            (3_000_000_000, 900, 3_628_800),
        ] {
            assert_eq!(step_ms(length_s * 1000, width), expected_s * 1000, "{length_s}");
        }
    }

    #[test]
    fn names_are_made_of_labels() {
        let labels = [("host".to_owned(), "a".to_owned()), ("cpu".to_owned(), "0".to_owned())];
        for (format, expected) in [
            ("{{host}}: {{ cpu }}", "a: 0"),
            ("no label", "no label"),
            ("{{rack}}/{{host", "/{{host"),
            ("}}{{host}}{{", "}}a{{"),
        ] {
            assert_eq!(named(format, &labels), expected, "{format}");
        }
    }

    #[test]
    fn times_may_be_relative() {
        let now_ns = 7_200_000 * NS_PER_MS;
        let read = |text: &str| {
            let query = format!("start={}", form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>());
            let parameters = Parameters::read(Some(&query), &axum::http::HeaderMap::new(), &[]).unwrap();
            moment(&parameters, "start", now_ns).map(Option::unwrap).map_err(|error| error.message)
        };
        for (text, expected) in [
            ("now", (7_200_000, true)),
            ("now-1h", (3_600_000, true)),
            ("-1h30m", (1_800_000, true)),
            ("now+1s", (7_201_000, true)),
            ("-5", (-5000, false)),
            ("1970-01-01T00:00:01Z", (1000, false)),
        ] {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
        for bad in ["now*2", "now-soon", "yesterday", "-1parsec"] {
            assert!(read(bad).unwrap_err().contains("start"), "{bad}");
        }
    }
}
