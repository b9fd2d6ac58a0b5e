//! `io.prometheus.client.MetricFamily`, each message after its length, as Prometheus's client libraries push it: turned into the text
//! format.

use std::fmt::Write;
use std::ops::Range;

use model::histogram::CounterReset;
use model::{Labels, NativeHistogram};

use crate::BodyError;
use crate::protobuf::{Value, Walker, malformed};
use crate::remote_write::read_scraped_histogram;

/// Bytes of the text: a label is repeated for each bucket.
const TEXT_BYTES_MAX: usize = 64 << 20;

/// The field of a metric that is a counter.
const COUNTER: u32 = 3;

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

/// An exemplar with its series as the text spells one.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundExemplar {
    /// Name and labels of the series.
    pub key: String,
    /// The exemplar's own labels.
    pub labels: Labels,
    /// The observed value.
    pub value: f64,
    /// The time, if it has one, in nanoseconds since the Unix epoch.
    pub time_ns: Option<i64>,
}

/// Since when a series counts, with the series as the text spells one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundStart {
    /// Name and labels.
    pub key: String,
    /// Nanoseconds since the Unix epoch.
    pub start_ns: i64,
}

/// All families of a body.
#[derive(Debug, Default)]
pub struct Families {
    /// As text, but for native histograms.
    pub text: String,
    /// Native histograms.
    pub histograms: Vec<FoundHistogram>,
    /// Exemplars of counters, buckets and native histograms.
    pub exemplars: Vec<FoundExemplar>,
    /// Since when counters, summaries and histograms count.
    pub starts: Vec<FoundStart>,
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
        for (number, range) in parts {
            match number {
                4 => self.push_parts(family, &metric, range, Parts::SUMMARY)?,
                7 => {
                    let is_native = self.push_native(family, &metric, range.clone())?;
                    if !is_native || self.native == NativeHistograms::BesideClassic {
                        self.push_parts(family, &metric, range, Parts::HISTOGRAM)?;
                    }
                }
                number => self.push_single(family, &metric, range, number == COUNTER)?,
            }
        }
        Ok(())
    }

    /// A counter, a gauge, or what has no type.
    fn push_single(
        &mut self,
        family: Family<'_>,
        metric: &Metric,
        range: Range<usize>,
        is_counter: bool,
    ) -> Result<(), BodyError> {
        let body = self.body;
        let (mut value, mut exemplar, mut start_ns) = (0.0, None, None);
        fields(body, range, |number, found| {
            match (number, found) {
                (1, Value::Fixed64(bits)) => value = f64::from_bits(bits),
                (2, Value::Bytes(range)) if is_counter => exemplar = Some(range),
                (3, Value::Bytes(range)) if is_counter => start_ns = time_ns(body, range)?,
                _ => {}
            }
            Ok(())
        })?;
        if exemplar.is_some() || start_ns.is_some() {
            let key = metric.key(family.name, None);
            exemplar.map_or(Ok(()), |range| self.push_exemplar(&key, range))?;
            self.families.starts.extend(start_ns.map(|start_ns| FoundStart { key, start_ns }));
        }
        metric.push(&mut self.families.text, family.name, None, value)
    }

    fn push_exemplar(&mut self, key: &str, range: Range<usize>) -> Result<(), BodyError> {
        let body = self.body;
        let (mut labels, mut value, mut time) = (Vec::new(), 0.0, None);
        fields(body, range, |number, found| {
            match (number, found) {
                (1, Value::Bytes(range)) => labels.push(label(body, range)?),
                (2, Value::Fixed64(bits)) => value = f64::from_bits(bits),
                (3, Value::Bytes(range)) => time = time_ns(body, range)?,
                _ => {}
            }
            Ok(())
        })?;
        labels.sort_unstable();
        labels.dedup_by_key(|(name, _)| *name);
        let labels = Labels::from_sorted(labels);
        self.families.exemplars.push(FoundExemplar { key: key.to_owned(), labels, value, time_ns: time });
        Ok(())
    }

    /// The series of a summary or a classic histogram. Quantiles have bound and value as floats; buckets have the count first, as a whole
    /// number, and then the bound.
    fn push_parts(
        &mut self,
        family: Family<'_>,
        metric: &Metric,
        range: Range<usize>,
        parts: Parts,
    ) -> Result<(), BodyError> {
        let body = self.body;
        let (mut count, mut sum, mut pieces, mut start_ns) = (0, 0.0, Vec::new(), None);
        fields(body, range, |number, value| {
            match (number, value) {
                (1, Value::Varint(found)) => count = found,
                (2, Value::Fixed64(bits)) => sum = f64::from_bits(bits),
                (3, Value::Bytes(range)) => pieces.push(range),
                (number, Value::Bytes(range)) if number == parts.created => start_ns = time_ns(body, range)?,
                _ => {}
            }
            Ok(())
        })?;
        let named = format!("{}{}", family.name, parts.ending);
        let mut infinity = false;
        for piece in pieces {
            let part = read_part(body, piece, parts)?;
            infinity |= part.bound == f64::INFINITY;
            self.push_part(&named, metric, part, parts, start_ns)?;
        }
        if parts.has_infinity && !infinity {
            let part = Part { bound: f64::INFINITY, value: count as f64, exemplar: None };
            self.push_part(&named, metric, part, parts, start_ns)?;
        }
        for (ending, value) in [("_sum", sum), ("_count", count as f64)] {
            let name = format!("{}{ending}", family.name);
            metric.push(&mut self.families.text, &name, None, value)?;
            let start = start_ns.map(|start_ns| FoundStart { key: metric.key(&name, None), start_ns });
            self.families.starts.extend(start);
        }
        Ok(())
    }

    fn push_part(
        &mut self,
        name: &str,
        metric: &Metric,
        part: Part,
        parts: Parts,
        start_ns: Option<i64>,
    ) -> Result<(), BodyError> {
        let label = Some((parts.label, part.bound));
        metric.push(&mut self.families.text, name, label, part.value)?;
        if let Some(range) = part.exemplar {
            self.push_exemplar(&metric.key(name, label), range)?;
        }
        // Quantiles do not count.
        if let Some(start_ns) = start_ns.filter(|_| parts.has_infinity) {
            self.families.starts.push(FoundStart { key: metric.key(name, label), start_ns });
        }
        Ok(())
    }

    /// Reads a native histogram; returns whether there is one.
    fn push_native(&mut self, family: Family<'_>, metric: &Metric, range: Range<usize>) -> Result<bool, BodyError> {
        if self.native == NativeHistograms::Ignored {
            return Ok(false);
        }
        let Some(found) = read_scraped_histogram(self.body, range.clone())? else { return Ok(false) };
        let mut value = found.map_err(BodyError::Malformed)?;
        if family.kind == GAUGE_HISTOGRAM {
            value.counter_reset = CounterReset::Gauge;
        }
        let key = metric.key(family.name, None);
        self.push_native_companions(&key, range)?;
        self.families.histograms.push(FoundHistogram { key, time_ms: metric.time_ms, value });
        Ok(true)
    }

    /// Exemplars of a native histogram, and since when it counts. Exemplars of its classic buckets are its own where those are left out.
    fn push_native_companions(&mut self, key: &str, range: Range<usize>) -> Result<(), BodyError> {
        let body = self.body;
        let (mut exemplars, mut start_ns) = (Vec::new(), None);
        let takes_buckets = self.native == NativeHistograms::InPlaceOfClassic;
        fields(body, range, |number, value| {
            match (number, value) {
                (3, Value::Bytes(bucket)) if takes_buckets => {
                    exemplars.extend(read_part(body, bucket, Parts::HISTOGRAM)?.exemplar);
                }
                (15, Value::Bytes(range)) => start_ns = time_ns(body, range)?,
                (16, Value::Bytes(range)) => exemplars.push(range),
                _ => {}
            }
            Ok(())
        })?;
        self.families.starts.extend(start_ns.map(|start_ns| FoundStart { key: key.to_owned(), start_ns }));
        exemplars.into_iter().try_for_each(|range| self.push_exemplar(key, range))
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

/// Name and value of a label.
fn label(body: &[u8], range: Range<usize>) -> Result<(&str, &str), BodyError> {
    let (mut name, mut label) = ("", "");
    fields(body, range, |number, value| {
        match (number, value) {
            (1, Value::Bytes(range)) => name = string(body, range)?,
            (2, Value::Bytes(range)) => label = string(body, range)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok((name, label))
}

fn push_label(labels: &mut String, body: &[u8], range: Range<usize>) -> Result<(), BodyError> {
    let (name, label) = label(body, range)?;
    let _ = write!(labels, ",{}={}", quoted(name), quoted(label));
    Ok(())
}

/// A `google.protobuf.Timestamp`; `None` for one that stands for no time.
fn time_ns(body: &[u8], range: Range<usize>) -> Result<Option<i64>, BodyError> {
    let (mut seconds, mut nanoseconds) = (0, 0);
    fields(body, range, |number, value| {
        match (number, value) {
            (1, Value::Varint(found)) => seconds = found as i64,
            (2, Value::Varint(found)) => nanoseconds = found as i64,
            _ => {}
        }
        Ok(())
    })?;
    let time_ns = seconds.checked_mul(1_000_000_000).and_then(|time_ns| time_ns.checked_add(nanoseconds));
    Ok(time_ns.filter(|time_ns| *time_ns > 0))
}

/// How the parts of a summary or a histogram are named.
#[derive(Clone, Copy)]
struct Parts {
    label: &'static str,
    ending: &'static str,
    /// True if the part with the count of all stands for what is above the last bound.
    has_infinity: bool,
    /// The field that says since when it counts.
    created: u32,
}

impl Parts {
    const SUMMARY: Self = Self { label: "quantile", ending: "", has_infinity: false, created: 4 };
    const HISTOGRAM: Self = Self { label: "le", ending: "_bucket", has_infinity: true, created: 15 };
}

/// A quantile, or a bucket with its exemplar.
struct Part {
    bound: f64,
    value: f64,
    exemplar: Option<Range<usize>>,
}

fn read_part(body: &[u8], range: Range<usize>, parts: Parts) -> Result<Part, BodyError> {
    let mut part = Part { bound: 0.0, value: 0.0, exemplar: None };
    fields(body, range, |number, found| {
        match (number, found) {
            (1, Value::Varint(found)) => part.value = found as f64,
            (1, Value::Fixed64(bits)) => part.bound = f64::from_bits(bits),
            (2, Value::Fixed64(bits)) if parts.has_infinity => part.bound = f64::from_bits(bits),
            (2, Value::Fixed64(bits)) => part.value = f64::from_bits(bits),
            (3, Value::Bytes(range)) if parts.has_infinity => part.exemplar = Some(range),
            _ => {}
        }
        Ok(())
    })?;
    Ok(part)
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
    fn exemplars_and_start_times_are_read() {
        // 100 s and 5 ns.
        let time = |number| bytes(number, &message(&[varint(1, 100), varint(2, 5)]));
        let exemplar = |number| {
            let label = bytes(1, &message(&[bytes(1, b"trace"), bytes(2, b"t")]));
            bytes(number, &message(&[label, double(2, 0.5), time(3)]))
        };
        let counter = bytes(4, &bytes(3, &message(&[double(1, 7.0), exemplar(2), time(3)])));
        let requests = message(&[bytes(1, b"requests_total"), varint(3, 0), counter]);
        let bucket = bytes(3, &message(&[varint(1, 2), double(2, 0.5), exemplar(3)]));
        let native = message(&[bytes(12, &message(&[varint(1, 2), varint(2, 1)])), varint(13, 6), varint(5, 2)]);
        let histogram = message(&[varint(1, 3), bucket, native, [vec![15 << 3 | 2, 2], varint(1, 100)].concat()]);
        // Field 16 takes two bytes of tag.
        let own = exemplar(1);
        let histogram = message(&[histogram, vec![0x82, 0x01], own[1..].to_vec()]);
        let took = message(&[bytes(1, b"took"), varint(3, 4), bytes(4, &bytes(7, &histogram))]);
        let body = [delimited(&requests), delimited(&took)].concat();
        let keys = |families: &Families| -> (Vec<String>, Vec<(String, i64)>) {
            let starts = families.starts.iter().map(|start| (start.key.clone(), start.start_ns / 1_000_000_000));
            (families.exemplars.iter().map(|found| found.key.clone()).collect(), starts.collect())
        };
        let classic = read(&body, NativeHistograms::Ignored).unwrap();
        let FoundExemplar { labels, value, time_ns, .. } = &classic.exemplars[0];
        assert_eq!((labels.get("trace"), *value, *time_ns), (Some("t"), 0.5, Some(100_000_000_005)));
        let (exemplars, starts) = keys(&classic);
        assert_eq!(exemplars, ["requests_total{}", "took_bucket{le=\"0.5\"}"]);
        let expected =
            ["requests_total{}", "took_bucket{le=\"0.5\"}", "took_bucket{le=\"+Inf\"}", "took_sum{}", "took_count{}"];
        assert_eq!(starts, expected.map(|key| (key.to_owned(), 100)));
        let (exemplars, starts) = keys(&read(&body, NativeHistograms::InPlaceOfClassic).unwrap());
        assert_eq!(exemplars, ["requests_total{}", "took{}", "took{}"]);
        assert_eq!(starts, ["requests_total{}", "took{}"].map(|key| (key.to_owned(), 100)));
        let (exemplars, _) = keys(&read(&body, NativeHistograms::BesideClassic).unwrap());
        assert_eq!(exemplars, ["requests_total{}", "took{}", "took_bucket{le=\"0.5\"}"]);
        for cut in 1..body.len() {
            let _ = text(&body[..cut]);
        }
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
