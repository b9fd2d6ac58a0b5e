//! `io.prometheus.client.MetricFamily`, each message after its length, as Prometheus's client libraries push it: turned into the text
//! format.

use std::fmt::Write;
use std::ops::Range;

use model::NativeHistogram;
use model::histogram::CounterReset;

use crate::BodyError;
use crate::protobuf::{Value, Walker, malformed};
use crate::remote_write::read_scraped_histogram;

/// Bytes of the text: a label is repeated for each bucket.
const TEXT_BYTES_MAX: usize = 64 << 20;

/// The kind of histograms of gauges.
const GAUGE_HISTOGRAM: u64 = 5;

const KINDS: [&str; 6] = ["counter", "gauge", "summary", "untyped", "histogram", "histogram"];

/// The form in which histograms are stored that are both classic and native.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativeHistograms {
    /// The classic buckets alone are read.
    Ignored,
    /// The native ones alone.
    InPlaceOfClassic,
    /// Both.
    BesideClassic,
}

/// A native histogram with its series as the text spells one.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundHistogram {
    /// Name and labels.
    pub key: String,
    /// The time, if it has one, in milliseconds since the Unix epoch.
    pub time_ms: Option<i64>,
    /// The histogram.
    pub value: NativeHistogram,
}

/// All families of a body.
#[derive(Debug, Default)]
pub struct Families {
    /// As text, but for native histograms.
    pub text: String,
    /// Native histograms.
    pub histograms: Vec<FoundHistogram>,
}

/// The text of all families of a body.
pub fn text(body: &[u8]) -> Result<String, BodyError> {
    read(body, NativeHistograms::Ignored).map(|families| families.text)
}

/// All families of a body.
pub fn read(body: &[u8], native: NativeHistograms) -> Result<Families, BodyError> {
    let mut reader = Reader { body, native, families: Families::default() };
    let mut at = 0;
    while at < body.len() {
        let mut walker = Walker::new(body, at..body.len());
        let length = walker.next_varint()?.unwrap_or_default();
        let start = walker.at();
        let end = usize::try_from(length).ok().and_then(|length| start.checked_add(length));
        let end = end.filter(|end| *end <= body.len()).ok_or_else(|| malformed("a length beyond the body", start))?;
        reader.push_family(start..end)?;
        at = end;
    }
    Ok(reader.families)
}

struct Reader<'b> {
    body: &'b [u8],
    native: NativeHistograms,
    families: Families,
}

/// A message's fields that are bytes.
fn fields(
    body: &[u8],
    range: Range<usize>,
    mut take: impl FnMut(u32, Value) -> Result<(), BodyError>,
) -> Result<(), BodyError> {
    let mut walker = Walker::new(body, range);
    while let Some(field) = walker.next_field()? {
        take(field.number, field.value)?;
    }
    Ok(())
}

fn string(body: &[u8], range: Range<usize>) -> Result<&str, BodyError> {
    let start = range.start;
    std::str::from_utf8(body.get(range).unwrap_or_default()).map_err(|_| malformed("a text that is not UTF-8", start))
}

impl Reader<'_> {
    fn push_family(&mut self, range: Range<usize>) -> Result<(), BodyError> {
        let body = self.body;
        let (mut name, mut help, mut kind, mut metrics) = ("", "", 0, Vec::new());
        fields(body, range, |number, value| {
            match (number, value) {
                (1, Value::Bytes(range)) => name = string(body, range)?,
                (2, Value::Bytes(range)) => help = string(body, range)?,
                (3, Value::Varint(number)) => kind = number,
                (4, Value::Bytes(range)) => metrics.push(range),
                _ => {}
            }
            Ok(())
        })?;
        if is_plain(name) {
            let kind = usize::try_from(kind).ok().and_then(|kind| KINDS.get(kind)).copied().unwrap_or("untyped");
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            // Writing into a string does not fail.
            let _ = writeln!(self.families.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        }
        metrics.into_iter().try_for_each(|range| self.push_metric(Family { name, kind }, range))
    }

    fn push_metric(&mut self, family: Family<'_>, range: Range<usize>) -> Result<(), BodyError> {
        let body = self.body;
        let (mut metric, mut parts) = (Metric::default(), Vec::new());
        fields(body, range, |number, value| {
            match (number, value) {
                (1, Value::Bytes(range)) => push_label(&mut metric.labels, body, range)?,
                (2..=5 | 7, Value::Bytes(range)) => parts.push((number, range)),
                (6, Value::Varint(time_ms)) => metric.time_ms = Some(time_ms as i64),
                _ => {}
            }
            Ok(())
        })?;
        let name = family.name;
        for (number, range) in parts {
            let out = &mut self.families.text;
            match number {
                4 => push_parts(out, body, (name, &metric), (range, Parts::SUMMARY))?,
                7 => {
                    let is_native = self.push_native(family, &metric, range.clone())?;
                    if !is_native || self.native == NativeHistograms::BesideClassic {
                        push_parts(&mut self.families.text, body, (name, &metric), (range, Parts::HISTOGRAM))?;
                    }
                }
                _ => {
                    let mut value = 0.0;
                    fields(body, range, |number, found| {
                        if let (1, Value::Fixed64(bits)) = (number, found) {
                            value = f64::from_bits(bits);
                        }
                        Ok(())
                    })?;
                    metric.push(out, name, None, value)?;
                }
            }
        }
        Ok(())
    }

    /// Reads a native histogram; returns whether there is one.
    fn push_native(&mut self, family: Family<'_>, metric: &Metric, range: Range<usize>) -> Result<bool, BodyError> {
        if self.native == NativeHistograms::Ignored {
            return Ok(false);
        }
        let Some(found) = read_scraped_histogram(self.body, range)? else { return Ok(false) };
        let mut value = found.map_err(BodyError::Malformed)?;
        if family.kind == GAUGE_HISTOGRAM {
            value.counter_reset = CounterReset::Gauge;
        }
        let key = metric.key(family.name, None);
        self.families.histograms.push(FoundHistogram { key, time_ms: metric.time_ms, value });
        Ok(true)
    }
}

#[derive(Clone, Copy)]
struct Family<'b> {
    name: &'b str,
    kind: u64,
}

fn is_plain(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    name.bytes().all(allowed) && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
}

/// A metric's labels, as they stand between braces, its time, and what it holds.
#[derive(Default)]
struct Metric {
    labels: String,
    time_ms: Option<i64>,
}

impl Metric {
    /// Name and labels of a series.
    fn key(&self, name: &str, more: Option<(&str, f64)>) -> String {
        let more = more.map_or_else(String::new, |(label, bound)| format!(",{label}=\"{}\"", number(bound)));
        let labels = &self.labels;
        if is_plain(name) {
            format!("{name}{{{}}}", format!("{labels}{more}").trim_start_matches(','))
        } else {
            format!("{{{}{labels}{more}}}", quoted(name))
        }
    }

    fn push(&self, out: &mut String, name: &str, more: Option<(&str, f64)>, value: f64) -> Result<(), BodyError> {
        if out.len() > TEXT_BYTES_MAX {
            let limit = "pushed metrics as text";
            return Err(BodyError::TooLarge { size_bytes_max: TEXT_BYTES_MAX as u64, limit });
        }
        let _ = write!(out, "{} {}", self.key(name, more), number(value));
        if let Some(time_ms) = self.time_ms {
            let _ = write!(out, " {time_ms}");
        }
        out.push('\n');
        Ok(())
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

fn number(value: f64) -> String {
    match value {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        value => value.to_string(),
    }
}

fn push_label(labels: &mut String, body: &[u8], range: Range<usize>) -> Result<(), BodyError> {
    let (mut name, mut label) = ("", "");
    fields(body, range, |number, value| {
        match (number, value) {
            (1, Value::Bytes(range)) => name = string(body, range)?,
            (2, Value::Bytes(range)) => label = string(body, range)?,
            _ => {}
        }
        Ok(())
    })?;
    let _ = write!(labels, ",{}={}", quoted(name), quoted(label));
    Ok(())
}

/// How the parts of a summary or a histogram are named.
#[derive(Clone, Copy)]
struct Parts {
    label: &'static str,
    ending: &'static str,
    /// True if the part with the count of all stands for what is above the last bound.
    has_infinity: bool,
}

impl Parts {
    const SUMMARY: Self = Self { label: "quantile", ending: "", has_infinity: false };
    const HISTOGRAM: Self = Self { label: "le", ending: "_bucket", has_infinity: true };
}

/// Quantiles have bound and value as floats; buckets have the count first, as a whole number, and then the bound.
fn push_parts(
    out: &mut String,
    body: &[u8],
    (name, metric): (&str, &Metric),
    (range, parts): (Range<usize>, Parts),
) -> Result<(), BodyError> {
    let (mut count, mut sum, mut pieces) = (0, 0.0, Vec::new());
    fields(body, range, |number, value| {
        match (number, value) {
            (1, Value::Varint(found)) => count = found,
            (2, Value::Fixed64(bits)) => sum = f64::from_bits(bits),
            (3, Value::Bytes(range)) => pieces.push(range),
            _ => {}
        }
        Ok(())
    })?;
    let named = format!("{name}{}", parts.ending);
    let mut infinity = false;
    for piece in pieces {
        let (mut bound, mut value) = (0.0, 0.0);
        fields(body, piece, |number, found| {
            match (number, found) {
                (1, Value::Varint(found)) => value = found as f64,
                (1, Value::Fixed64(bits)) => bound = f64::from_bits(bits),
                (2, Value::Fixed64(bits)) if parts.has_infinity => bound = f64::from_bits(bits),
                (2, Value::Fixed64(bits)) => value = f64::from_bits(bits),
                _ => {}
            }
            Ok(())
        })?;
        infinity |= bound == f64::INFINITY;
        metric.push(out, &named, Some((parts.label, bound)), value)?;
    }
    if parts.has_infinity && !infinity {
        metric.push(out, &named, Some((parts.label, f64::INFINITY)), count as f64)?;
    }
    metric.push(out, &format!("{name}_sum"), None, sum)?;
    metric.push(out, &format!("{name}_count"), None, count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(fields: &[Vec<u8>]) -> Vec<u8> {
        fields.concat()
    }

    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, content.len() as u8], content].concat()
    }

    fn varint(number: u8, value: u8) -> Vec<u8> {
        vec![number << 3, value]
    }

    fn double(number: u8, value: f64) -> Vec<u8> {
        [&[number << 3 | 1][..], &value.to_le_bytes()].concat()
    }

    fn delimited(message: &[u8]) -> Vec<u8> {
        [&[message.len() as u8], message].concat()
    }

    #[test]
    fn native_histograms_are_read() {
        // Two buckets of schema 1: one observation in the first, three in the second.
        let span = bytes(12, &message(&[varint(1, 2), varint(2, 2)]));
        let deltas = message(&[varint(13, 2), varint(13, 4)]);
        let bucket = bytes(3, &message(&[varint(1, 4), double(2, 8.0)]));
        let native = message(&[varint(1, 4), double(2, 9.0), varint(5, 2), double(6, 0.5), span, deltas, bucket]);
        let label = bytes(1, &message(&[bytes(1, b"a"), bytes(2, b"b")]));
        let family = message(&[bytes(1, b"took"), varint(3, 4), bytes(4, &message(&[label, bytes(7, &native)]))]);
        let body = delimited(&family);
        let families = read(&body, NativeHistograms::InPlaceOfClassic).unwrap();
        assert_eq!(families.text, "# HELP took \n# TYPE took histogram\n");
        let FoundHistogram { key, value, .. } = &families.histograms[0];
        assert_eq!((key.as_str(), value.sum, value.layout.schema), ("took{\"a\"=\"b\"}", 9.0, 1));
        let model::histogram::HistogramCounts::Integer(counts) = &value.counts else { panic!() };
        assert_eq!((counts.count, counts.positive.as_slice()), (4, [1, 3].as_slice()));
        let both = read(&body, NativeHistograms::BesideClassic).unwrap();
        assert!(both.text.contains("took_bucket{\"a\"=\"b\",le=\"8\"} 4\n") && both.histograms.len() == 1);
        assert!(read(&body, NativeHistograms::Ignored).unwrap().histograms.is_empty());
    }

    #[test]
    fn families_become_text() {
        let label = bytes(1, &message(&[bytes(1, b"disk"), bytes(2, b"a\"b")]));
        let gauge = bytes(4, &message(&[label.clone(), bytes(2, &double(1, 1.5))]));
        let took = message(&[bytes(1, b"took"), bytes(2, b"Seconds."), varint(3, 1), gauge]);
        let bucket = bytes(3, &message(&[varint(1, 2), double(2, 0.5)]));
        let histogram = bytes(7, &message(&[varint(1, 3), double(2, 9.0), bucket]));
        let sizes = message(&[bytes(1, b"sizes"), varint(3, 4), bytes(4, &message(&[label, histogram]))]);
        let quantile = bytes(3, &message(&[double(1, 0.9), double(2, 7.0)]));
        let summary = bytes(4, &message(&[varint(1, 4), double(2, 8.0), quantile]));
        let dotted = message(&[bytes(1, b"x.y"), varint(3, 2), bytes(4, &message(&[summary, varint(6, 5)]))]);
        let body = [delimited(&took), delimited(&sizes), delimited(&dotted)].concat();
        let expected = "\
# HELP took Seconds.
# TYPE took gauge
took{\"disk\"=\"a\\\"b\"} 1.5
# HELP sizes \n# TYPE sizes histogram
sizes_bucket{\"disk\"=\"a\\\"b\",le=\"0.5\"} 2
sizes_bucket{\"disk\"=\"a\\\"b\",le=\"+Inf\"} 3
sizes_sum{\"disk\"=\"a\\\"b\"} 9
sizes_count{\"disk\"=\"a\\\"b\"} 3
{\"x.y\",quantile=\"0.9\"} 7 5
{\"x.y_sum\"} 8 5
{\"x.y_count\"} 4 5
";
        assert_eq!(text(&body).unwrap(), expected);
        for cut in 1..body.len() {
            let _ = text(&body[..cut]);
        }
        assert!(text(b"\x05abc").is_err());
        assert_eq!(text(b"").unwrap(), "");
    }
}
