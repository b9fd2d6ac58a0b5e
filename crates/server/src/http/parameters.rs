//! Parameters of a request: from the query string and, for forms, the body.

use std::fmt::Write;

use axum::http::{HeaderMap, header};
use model::{DEFAULT_DATABASE, Matcher, TimeRange};

use crate::error::ApiError;
use crate::http::multipart;

const MS_PER_S: f64 = 1000.0;
const NS_PER_MS: i64 = 1_000_000;
/// Times beyond this many milliseconds from the epoch cannot be nanoseconds of 64 bits.
const TIME_MS_MAX: i64 = i64::MAX / NS_PER_MS;

/// How Prometheus writes its first and its last time.
const MIN_TIME: &str = "-292273086-05-16T16:47:06Z";
const MAX_TIME: &str = "292277025-08-18T07:12:54.999999999Z";

/// Names and values, in order, names repeated as they came.
#[derive(Debug, Default, Clone)]
pub(crate) struct Parameters(Vec<(String, String)>);

/// Parameters that a request may have: each is looked up by its name among all others.
const PARAMETERS_MAX: usize = 10_000;

impl Parameters {
    /// Whether the answer may be one that was kept: not with `nocache=1`, as VictoriaMetrics has it.
    pub(crate) fn may_cache(&self) -> bool {
        !matches!(self.get("nocache"), Some("1" | "true"))
    }

    /// Whether views may answer queries of their sources: not with `noviews=1`.
    pub(crate) fn may_use_views(&self) -> bool {
        !matches!(self.get("noviews"), Some("1" | "true"))
    }

    /// Whether a request's body is a form.
    pub(crate) fn is_form(headers: &HeaderMap) -> bool {
        is_urlencoded(headers) || multipart::is_multipart(headers)
    }

    /// Reads a form's body, and the query string after it, as Go does: what the body says comes first.
    pub(crate) fn read(query: Option<&str>, headers: &HeaderMap, body: &[u8]) -> Result<Self, ApiError> {
        let form = if is_urlencoded(headers) { body } else { &[] };
        let parts = multipart::texts(headers, body)?;
        let pairs = [form, query.unwrap_or_default().as_bytes()].into_iter().flat_map(form_urlencoded::parse);
        let pairs = pairs.map(|(name, value)| (name.into_owned(), value.into_owned()));
        let read: Vec<(String, String)> = parts.into_iter().chain(pairs).take(PARAMETERS_MAX + 1).collect();
        if read.len() > PARAMETERS_MAX {
            return Err(ApiError::bad_data(format!("a request has at most {PARAMETERS_MAX} parameters")));
        }
        Ok(Self(read))
    }

    /// Adds the members of a JSON object; those that are not text as JSON has them.
    pub(crate) fn add_json(&mut self, body: &[u8]) -> Result<(), ApiError> {
        let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(body)
            .map_err(|error| ApiError::bad_data(format!("the body is no JSON object: {error}")))?;
        let text = |value| match value {
            serde_json::Value::String(text) => text,
            serde_json::Value::Null => String::new(),
            other => other.to_string(),
        };
        let pairs = object.into_iter().map(|(name, value)| (name, text(value)));
        self.0.extend(pairs.take(PARAMETERS_MAX));
        Ok(())
    }

    /// The first value of a name that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).find(|value| !value.is_empty())
    }

    /// All values of a name.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(candidate, _)| candidate == name).map(|(_, value)| value.as_str())
    }

    /// Whether the name is there, with a value or without.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.all(name).next().is_some()
    }

    /// A yes or no.
    pub(crate) fn flag(&self, name: &str, default: bool) -> Result<bool, ApiError> {
        match self.get(name) {
            None => Ok(default),
            Some("true" | "1") => Ok(true),
            Some("false" | "0") => Ok(false),
            Some(text) => Err(ApiError::invalid_parameter(name, format!("{text:?} is neither true nor false"))),
        }
    }

    /// The database that the request names, by parameter or header; `X-Scope-OrgID` is Mimir's.
    pub(crate) fn database(&self, headers: &HeaderMap) -> String {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let named = self.get("db").or_else(|| header("x-thalweg-database")).or_else(|| header("x-scope-orgid"));
        named.unwrap_or(DEFAULT_DATABASE).to_owned()
    }

    pub(crate) fn required(&self, name: &str) -> Result<&str, ApiError> {
        self.get(name).ok_or_else(|| ApiError::invalid_parameter(name, "it is missing"))
    }

    /// A time in milliseconds: seconds since the epoch, or RFC 3339.
    pub(crate) fn time_ms(&self, name: &str) -> Result<Option<i64>, ApiError> {
        self.get(name).map(|text| parse_time_ms(text).map_err(|why| ApiError::invalid_parameter(name, why))).transpose()
    }

    pub(crate) fn required_time_ms(&self, name: &str) -> Result<i64, ApiError> {
        self.required(name)?;
        self.time_ms(name)?.ok_or_else(|| ApiError::invalid_parameter(name, "it is missing"))
    }

    /// A duration in milliseconds: seconds, or Prometheus's form (`1h30m`).
    pub(crate) fn duration_ms(&self, name: &str) -> Result<Option<i64>, ApiError> {
        let parse = |text| parse_duration_ms(text).map_err(|why| ApiError::invalid_parameter(name, why));
        self.get(name).map(parse).transpose()
    }

    /// How many items the answer may have; 0: all.
    pub(crate) fn limit(&self) -> Result<usize, ApiError> {
        let Some(text) = self.get("limit") else {
            return Ok(0);
        };
        text.parse().map_err(|_| ApiError::invalid_parameter("limit", format!("{text:?} is not a number from 0 up")))
    }

    /// The stretch of time between `start` and `end`; all of time unless they are given.
    pub(crate) fn range(&self) -> Result<TimeRange, ApiError> {
        let start_ms = self.time_ms("start")?.unwrap_or(-TIME_MS_MAX);
        let end_ms = self.time_ms("end")?.unwrap_or(TIME_MS_MAX);
        if end_ms < start_ms {
            return Err(ApiError::invalid_parameter("end", "end timestamp must not be before start time"));
        }
        Ok(TimeRange::new(start_ms.saturating_mul(NS_PER_MS), end_ms.saturating_mul(NS_PER_MS)))
    }

    /// The sets of matchers of `match[]`.
    pub(crate) fn matcher_sets(&self) -> Result<Vec<Vec<Matcher>>, ApiError> {
        let parse = |text| promql::parse_selector(text).map_err(|error| ApiError::invalid_parameter("match[]", error));
        self.all("match[]").map(parse).collect()
    }
}

fn is_urlencoded(headers: &HeaderMap) -> bool {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default();
    media_type.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

/// Reads a time. What is too far from the epoch for nanoseconds is clipped.
fn parse_time_ms(text: &str) -> Result<i64, String> {
    let time_ms = match text.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() => (seconds * MS_PER_S).round() as i64,
        _ if text == MIN_TIME => i64::MIN,
        _ if text == MAX_TIME => i64::MAX,
        _ => match text.parse::<jiff::Timestamp>() {
            Ok(time) => time.as_millisecond(),
            Err(_) if is_last_day(text) => i64::MAX,
            Err(_) => return Err(format!("cannot parse {text:?} to a valid timestamp")),
        },
    };
    Ok(time_ms.clamp(-TIME_MS_MAX, TIME_MS_MAX))
}

/// Whether this is a time of the last day of year 9999, which the library of calendars cannot hold.
fn is_last_day(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("9999-12-3") else { return false };
    let earlier = format!("9999-12-20{}", rest.get(1..).unwrap_or_default());
    rest.starts_with(['0', '1']) && earlier.parse::<jiff::Timestamp>().is_ok()
}

/// A duration in milliseconds: seconds, or Prometheus's form (`1h30m`).
pub(crate) fn parse_duration_ms(text: &str) -> Result<i64, String> {
    let bad = || format!("cannot parse {text:?} to a valid duration");
    if let Ok(seconds) = text.parse::<f64>() {
        let milliseconds = seconds * MS_PER_S;
        return if milliseconds.abs() <= TIME_MS_MAX as f64 { Ok(milliseconds.round() as i64) } else { Err(bad()) };
    }
    let mut rest = text;
    let mut total = 0i64;
    let mut last_unit_ms = i64::MAX;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|character: char| character.is_ascii_digit()).len();
        let (number, behind) = rest.split_at(digits);
        let letters = behind.len() - behind.trim_start_matches(|character: char| character.is_ascii_alphabetic()).len();
        let (unit, next) = behind.split_at(letters);
        let unit_ms = unit_ms(unit).filter(|unit_ms| *unit_ms < last_unit_ms).ok_or_else(bad)?;
        let amount: i64 = number.parse().map_err(|_| bad())?;
        total = amount.checked_mul(unit_ms).and_then(|part| total.checked_add(part)).ok_or_else(bad)?;
        (rest, last_unit_ms) = (next, unit_ms);
    }
    if total > TIME_MS_MAX || text.is_empty() { Err(bad()) } else { Ok(total) }
}

/// A duration as text: `1h30m`.
pub(crate) fn duration_text(duration_ms: i64) -> String {
    let mut rest = duration_ms;
    let mut text = String::new();
    for unit in ["d", "h", "m", "s", "ms"] {
        let unit_ms = unit_ms(unit).unwrap_or(1);
        if rest >= unit_ms {
            // Writing to memory does not fail.
            let _ = write!(text, "{}{unit}", rest / unit_ms);
            rest %= unit_ms;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

fn unit_ms(unit: &str) -> Option<i64> {
    Some(match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 7 * 86_400_000,
        "y" => 365 * 86_400_000,
        _ => return None,
    })
}

/// Reads a query string and a form, and everything that they may be asked for. Times stay within what nanoseconds can say, and a
/// duration is spelled as what it is read from.
pub(crate) fn fuzz(query: &str, form: &[u8]) {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/x-www-form-urlencoded"));
    let Ok(parameters) = Parameters::read(Some(query), &headers, form) else { return };
    for name in ["time", "start", "end"] {
        if let Ok(Some(time_ms)) = parameters.time_ms(name) {
            assert!(time_ms.unsigned_abs() <= TIME_MS_MAX.unsigned_abs(), "{time_ms}");
        }
    }
    for name in ["step", "timeout", "lookback_delta"] {
        if let Ok(Some(duration_ms)) = parameters.duration_ms(name)
            && duration_ms >= 0
        {
            assert_eq!(parse_duration_ms(&duration_text(duration_ms)), Ok(duration_ms));
        }
    }
    if let Ok(range) = parameters.range() {
        assert!(range.start_ns <= range.end_ns);
    }
    let _ = (parameters.limit(), parameters.flag("nocache", false), parameters.matcher_sets());
    let _ = (parameters.may_cache(), parameters.database(&headers), parameters.has("match[]"));
}

/// The database of a bucket: `telegraf`, or `telegraf/autogen` as InfluxDB 1.8 has it, whose retention policy is not used.
pub(crate) fn bucket_database(bucket: &str) -> Result<&str, ApiError> {
    match bucket.split_once('/') {
        None => Ok(bucket),
        Some(("", _)) => Err(ApiError::invalid_parameter("bucket", "use database or database/retention-policy")),
        Some((database, _)) => Ok(database),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_durations() {
        assert_eq!(parse_time_ms("1435781451.781"), Ok(1_435_781_451_781));
        assert_eq!(parse_time_ms("2015-07-01T20:10:51.781Z"), Ok(1_435_781_451_781));
        assert_eq!(parse_time_ms("2015-07-01T22:10:51+02:00"), Ok(1_435_781_451_000));
        for bad in ["", "yesterday", "NaN", "+Inf", "9999-12-32T00:00:00Z", "9999-12-31T25:00:00Z"] {
            assert!(parse_time_ms(bad).is_err(), "{bad}");
        }
        for late in [
            "1e300",
            "253402300799",
            MAX_TIME,
            "9999-12-31T23:59:59.999Z",
            "9999-12-30T23:59:59Z",
            "2300-01-01T00:00:00Z",
        ] {
            assert_eq!(parse_time_ms(late), Ok(TIME_MS_MAX), "{late}");
        }
        for early in ["-1e300", "-9223372036854775.808", MIN_TIME, "0001-01-01T00:00:00Z"] {
            assert_eq!(parse_time_ms(early), Ok(-TIME_MS_MAX), "{early}");
        }
        assert_eq!(parse_duration_ms("1h30m"), Ok(5_400_000));
        for text in ["1h30m", "30d", "1d1ms", "0s"] {
            assert_eq!(duration_text(parse_duration_ms(text).unwrap()), text);
        }
        assert_eq!(parse_duration_ms("15"), Ok(15_000));
        assert_eq!(parse_duration_ms("0.5"), Ok(500));
        for bad in ["", "1x", "m", "1m1h", "1m1m", "99999999999999y", "1e30", "-5m"] {
            assert!(parse_duration_ms(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn forms_are_read_as_go_reads_them() {
        let read = |content_type: &'static str, body: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
            let parameters = Parameters::read(Some("query=url&a=1"), &headers, body).unwrap();
            format!("{} {}", parameters.get("query").unwrap(), parameters.get("a").unwrap())
        };
        assert_eq!(read("application/x-www-form-urlencoded", b"query=body"), "body 1");
        assert_eq!(read("Application/X-WWW-Form-URLEncoded; charset=UTF-8", b"query=body"), "body 1");
        assert_eq!(read("text/plain", b"query=body"), "url 1");
        let parts = b"--xx\r\ncontent-disposition: form-data; name=\"query\"\r\n\r\nbody\r\n--xx\r\n\
                      Content-Disposition: form-data; name=\"a\"; filename=\"f\"\r\n\r\n2\r\n--xx--\r\n";
        assert_eq!(read("Multipart/Form-Data; Boundary=\"xx\"", parts), "body 1");
    }

    #[test]
    fn no_edit_of_a_request_breaks_its_reading() {
        const REQUESTS: [&str; 3] = [
            "query=up&time=2015-07-01T20:10:51.781Z&start=-1435781451.5&end=1435781460&step=1h30m&timeout=5s&limit=7&nocache=1",
            "match[]=%7Ba%3D~%22b.*%22%7D&start=1&end=2&step=0.5&lookback_delta=1d1ms&limit=18446744073709551616&db=a+b",
            "start=9223372036854.775&end=-9223372036854.775&step=106751d&timeout=99999999y&time=1e308",
        ];
        let mut state = 7u64;
        let mut random = |most: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % most
        };
        for _ in 0..3_000 {
            let mut bytes = REQUESTS[random(3)].as_bytes().to_vec();
            for _ in 0..=random(4) {
                let (place, from) = (random(bytes.len()), random(bytes.len()));
                match random(3) {
                    0 => bytes[place] = b"0123456789-+.eTZ:%&=smhdwy\0\xff"[random(28)],
                    1 => drop(bytes.remove(place)),
                    _ => bytes.insert(place, bytes[from]),
                }
            }
            let text = String::from_utf8_lossy(&bytes);
            fuzz(&text, b"");
            fuzz("", text.as_bytes());
        }
    }
}
