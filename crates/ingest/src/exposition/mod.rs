//! Prometheus's text exposition format 0.0.4, and of OpenMetrics 1.0 what differs in it: `# UNIT`, `# EOF`, times in
//! seconds, exemplars.
//!
//! ```text
//! # HELP http_requests_total How many requests were answered.
//! # TYPE http_requests_total counter
//! http_requests_total{method="post",code="200"} 1027 1395066363000
//! ```
//!
//! A series' key is its name and labels as spelled, parsed only for series that the store does not know ([`decode_key`]).
//! With extra labels the key is `{extra="label"}` followed by the spelling.

mod key;
pub mod lint;
pub mod metric_families;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;

use memchr::{memchr, memchr2};
use model::{Exemplar, GroupKey, Labels, MetricKind, MetricMetadata, SeriesExemplar, Span};
use xxhash_rust::xxh3::xxh3_64;

pub use key::decode_key;

use crate::batch::body::{LineReader, LoneLines, TextSlice, parse_lines};
use crate::errors::{LimitName, Reason};
use crate::{Body, BodyError, Limits, Parsed, ScopedKeyHasher};

/// Which of the two formats a body has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Text format 0.0.4: timestamps are whole milliseconds.
    #[default]
    Text,
    /// OpenMetrics 1.0: timestamps are seconds, nothing may follow `# EOF`.
    OpenMetrics,
}

impl Format {
    /// The format that a content type names.
    pub fn from_content_type(content_type: &str) -> Self {
        let openmetrics = content_type.trim_start().starts_with("application/openmetrics-text");
        if openmetrics { Self::OpenMetrics } else { Self::Text }
    }
}

/// How to read a body.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// Hashes keys; of [`crate::Protocol::Exposition`].
    pub hasher: ScopedKeyHasher<'a>,
    /// The format.
    pub format: Format,
    /// The time of samples that bring none.
    pub now_ns: i64,
    /// Labels that every series gets; they replace labels of the same name.
    pub extra_labels: &'a [(String, String)],
    /// Bounds on lines.
    pub limits: &'a Limits,
}

/// Parses a body. Exemplars without a time have that of their sample. Fails only when it is 2 GiB or longer, or cannot be unpacked.
pub fn parse<'body>(body: impl Into<Body<'body>>, options: &Options<'_>) -> Result<Parsed<'body>, BodyError> {
    parse_lines(body.into(), Parser::new(options))
}

/// As [`parse`], but reads no metadata: HELP, TYPE and UNIT are only hashed. A hash that is that of an earlier body stands for the metadata
/// of that one.
pub fn parse_samples<'body>(
    body: impl Into<Body<'body>>,
    options: &Options<'_>,
    comments_hash: &mut u64,
) -> Result<Parsed<'body>, BodyError> {
    parse_lines(body.into(), Parser { comments_hash: Some(comments_hash), ..Parser::new(options) })
}

/// A line without its exemplar; a comment, or a line that cannot be read, as it is.
pub fn without_exemplar(line: &str) -> &str {
    let bytes = line.as_bytes();
    let Some(key_length) = key::key_length(bytes).ok().filter(|_| !bytes.starts_with(b"#")) else { return line };
    let rest = bytes.get(key_length..).unwrap_or_default();
    let end = memchr(b'#', rest).map_or(bytes.len(), |start| key_length + start);
    line.get(..end).unwrap_or(line).trim_end()
}

struct Parser<'options> {
    options: &'options Options<'options>,
    /// What stands before every key, because of extra labels.
    key_prefix: Vec<u8>,
    lone: LoneLines,
    /// Length of all keys that do not stand in the body.
    keys_bytes: usize,
    metadata: Vec<MetricMetadata>,
    exemplars: Vec<SeriesExemplar>,
    /// So many of them do not refer to the piece that is read.
    detached_exemplars: usize,
    /// Places in the metadata.
    families: HashMap<String, usize>,
    /// Where the hash of comments goes, if they are not read.
    comments_hash: Option<&'options mut u64>,
    ended: bool,
}

impl LineReader for Parser<'_> {
    fn read(&mut self, piece: TextSlice<'_>) -> usize {
        self.lone.texts.begin(piece.text);
        let mut at = 0;
        while let Some((line, next)) = piece.line(at) {
            self.lone.line += 1;
            if let Err(reason) = self.take_line(at, line) {
                self.lone.errors.push(self.options.limits.errors_max, self.lone.line, reason);
            }
            at = next;
        }
        at
    }

    fn detach(&mut self, text: &[u8]) {
        for SeriesExemplar { key, .. } in self.exemplars.iter_mut().skip(self.detached_exemplars) {
            key.text = self.lone.texts.detach_key(text, *key);
        }
        self.detached_exemplars = self.exemplars.len();
        self.lone.detach(text);
    }

    fn finish(self, body: &[u8]) -> Parsed<'_> {
        let mut parsed = self.lone.finish(body, decode_key);
        parsed.batch.metadata = self.metadata;
        parsed.batch.exemplars = self.exemplars;
        parsed
    }
}

impl<'options> Parser<'options> {
    fn new(options: &'options Options<'options>) -> Self {
        Self {
            options,
            key_prefix: key::prefix(options.extra_labels),
            lone: LoneLines::new(options.limits.rows_max),
            keys_bytes: 0,
            metadata: Vec::new(),
            exemplars: Vec::new(),
            detached_exemplars: 0,
            families: HashMap::new(),
            comments_hash: None,
            ended: false,
        }
    }

    /// Reads the line that starts here.
    fn take_line(&mut self, start: usize, whole: &[u8]) -> Result<(), Reason> {
        let line = whole.trim_ascii_start();
        let start = start + whole.len() - line.len();
        let line = line.trim_ascii_end();
        if line.is_empty() {
            return Ok(());
        }
        if self.ended {
            return Err("text behind '# EOF'".into());
        }
        if line.len() > self.options.limits.line_bytes_max {
            let line_bytes_max = self.options.limits.line_bytes_max;
            return Err(LimitName::LineBytes.exceeded(format_args!("the line is longer than {line_bytes_max} bytes")));
        }
        match line.strip_prefix(b"#") {
            Some(comment) => self.take_comment(comment),
            None => self.take_sample(start, line),
        }
    }

    fn take_sample(&mut self, start: usize, line: &[u8]) -> Result<(), Reason> {
        let limits = self.options.limits;
        let key_length = key::key_length(line)?;
        let raw_key = line.get(..key_length).unwrap_or_default();
        key::check_key(raw_key, limits)?;
        let rest = line.get(key_length..).unwrap_or_default();
        // An exemplar begins with a number sign.
        let (rest, exemplar) = match memchr(b'#', rest).and_then(|start| rest.split_at_checked(start)) {
            Some((rest, exemplar)) => (rest, exemplar.get(1..)),
            None => (rest, None),
        };
        let mut words = rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let value = parse_float(words.next().ok_or("missing value")?).ok_or("invalid value: expected a number")?;
        let timestamp_ns = match words.next() {
            None => self.options.now_ns,
            Some(word) => self.parse_timestamp_ns(word)?,
        };
        if words.next().is_some() {
            return Err("text behind the timestamp".into());
        }
        self.lone.rows.check_room()?;
        let key = self.place_key(start, raw_key)?;
        self.lone.rows.push(key, timestamp_ns, value.to_bits(), self.lone.line);
        match exemplar.filter(|_| self.options.format == Format::OpenMetrics) {
            Some(exemplar) => self.take_exemplar(key, exemplar, timestamp_ns),
            None => Ok(()),
        }
    }

    fn take_exemplar(&mut self, key: GroupKey, text: &[u8], sample_ns: i64) -> Result<(), Reason> {
        let found = read_exemplar(text).ok_or("the exemplar cannot be read; its sample was stored")?;
        if self.exemplars.len() < self.options.limits.exemplars_max {
            let timestamp_ns = found.time_ns.unwrap_or(sample_ns);
            let exemplar = Exemplar { labels: found.labels, value: found.value, timestamp_ns };
            self.exemplars.push(SeriesExemplar { key, exemplar });
        }
        Ok(())
    }

    fn place_key(&mut self, start: usize, raw_key: &[u8]) -> Result<GroupKey, Reason> {
        if self.key_prefix.is_empty() {
            let text = Span { start: start as u32, len: raw_key.len() as u32 };
            return Ok(GroupKey { hash: self.options.hasher.hash(raw_key), text });
        }
        let key = [&self.key_prefix, raw_key].concat();
        self.keys_bytes += key.len();
        let keys_bytes_max = self.options.limits.keys_bytes_max;
        if self.keys_bytes > keys_bytes_max {
            return Err(LimitName::KeysBytes.exceeded(format_args!(
                "the labels of all series, extra ones included, take more than {keys_bytes_max} bytes"
            )));
        }
        Ok(GroupKey { hash: self.options.hasher.hash(&key), text: self.lone.texts.push(&key) })
    }

    fn parse_timestamp_ns(&self, word: &[u8]) -> Result<i64, Reason> {
        let timestamp_ms = match self.options.format {
            Format::Text => std::str::from_utf8(word).ok().and_then(|word| word.parse::<i64>().ok()),
            Format::OpenMetrics => parse_float(word).filter(|seconds| seconds.is_finite()).map(|seconds| {
                // Prometheus, too, keeps milliseconds. The conversion saturates, which the multiplication then notices.
                (seconds * 1000.0).round() as i64
            }),
        };
        let timestamp_ms = timestamp_ms.ok_or("invalid timestamp")?;
        timestamp_ms.checked_mul(1_000_000).ok_or_else(|| "timestamp out of range".into())
    }

    /// Reads what follows a number sign. What is not `HELP`, `TYPE`, `UNIT` or `EOF` is a comment.
    fn take_comment(&mut self, comment: &[u8]) -> Result<(), Reason> {
        let (keyword, rest) = split_word(comment);
        if let Some(hash) = self.comments_hash.as_mut().filter(|_| keyword != b"EOF") {
            **hash = hash.rotate_left(1) ^ xxh3_64(comment);
            return Ok(());
        }
        match keyword {
            b"EOF" if self.options.format == Format::OpenMetrics => {
                self.ended = true;
                Ok(())
            }
            b"HELP" => {
                let (family, help) = split_family(rest)?;
                self.describe(family, |metadata| metadata.help = unescape_help(help))
            }
            b"UNIT" => {
                let (family, unit) = split_family(rest)?;
                self.describe(family, |metadata| metadata.unit = String::from_utf8_lossy(unit).into_owned())
            }
            b"TYPE" => {
                let (family, kind) = split_family(rest)?;
                let kind = parse_kind(kind)
                    .ok_or_else(|| Reason::from(format!("unknown metric type '{}'", String::from_utf8_lossy(kind))))?;
                self.describe(family, |metadata| metadata.kind = kind)
            }
            _ => Ok(()),
        }
    }

    fn describe(&mut self, family: String, set: impl FnOnce(&mut MetricMetadata)) -> Result<(), Reason> {
        let metadata = &mut self.metadata;
        let place = match self.families.get(&family) {
            Some(place) => *place,
            None if metadata.len() >= self.options.limits.metadata_max => {
                let metadata_max = self.options.limits.metadata_max;
                return Err(LimitName::Metadata.exceeded(format_args!("more than {metadata_max} metric families")));
            }
            None => {
                self.families.insert(family.clone(), metadata.len());
                metadata.push(MetricMetadata { family, ..MetricMetadata::default() });
                metadata.len() - 1
            }
        };
        if let Some(metadata) = metadata.get_mut(place) {
            set(metadata);
        }
        Ok(())
    }
}

/// What an exemplar says.
struct FoundExemplar {
    labels: Labels,
    value: f64,
    time_ns: Option<i64>,
}

/// Reads labels, a value and perhaps a time.
fn read_exemplar(text: &[u8]) -> Option<FoundExemplar> {
    let text = text.trim_ascii();
    let (labels, rest) = text.split_at_checked(key::key_length(text).ok()?)?;
    let words: Vec<&[u8]> = rest.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
    if !labels.starts_with(b"{") || !matches!(words.len(), 1 | 2) {
        return None;
    }
    let labels = decode_key(&[b"e", labels].concat()).ok()?.labels;
    let value = parse_float(words.first()?)?;
    let seconds = words.get(1).map(|word| parse_float(word));
    let time_ns = match seconds {
        None => None,
        Some(seconds) => Some(((seconds? * 1000.0).round() as i64).saturating_mul(1_000_000)),
    };
    Some(FoundExemplar { labels, value, time_ns })
}

/// The first word and what follows the blanks behind it.
fn split_word(text: &[u8]) -> (&[u8], &[u8]) {
    let text = text.trim_ascii_start();
    let end = memchr2(b' ', b'\t', text).unwrap_or(text.len());
    let (word, rest) = text.split_at_checked(end).unwrap_or_default();
    (word, rest.trim_ascii_start())
}

/// A metric family's name, in quotes if it needs them, and what follows it.
fn split_family(text: &[u8]) -> Result<(String, &[u8]), Reason> {
    let (word, rest) = if text.starts_with(b"\"") {
        let length = key::quoted_length(text).ok_or("unbalanced quotes")?;
        let rest = text.get(length..).unwrap_or_default().trim_ascii_start();
        (key::unquote(text.get(..length).unwrap_or_default()), rest)
    } else {
        let (word, rest) = split_word(text);
        (Cow::Borrowed(word), rest)
    };
    if word.is_empty() {
        return Err("missing metric name".into());
    }
    let family = String::from_utf8(word.into_owned()).map_err(|_| "invalid UTF-8 in a metric name")?;
    Ok((family, rest))
}

/// Help text without its escapes: `\\`, `\n`, and OpenMetrics's `\"`.
fn unescape_help(text: &[u8]) -> String {
    String::from_utf8_lossy(&key::unescape(text)).into_owned()
}

fn parse_kind(word: &[u8]) -> Option<MetricKind> {
    if word == b"untyped" {
        return Some(MetricKind::Unknown);
    }
    MetricKind::ALL.into_iter().find(|kind| kind.name().as_bytes() == word)
}

/// A float as Go's `strconv.ParseFloat` reads it, but for hexadecimals.
fn parse_float(word: &[u8]) -> Option<f64> {
    // The standard library's parser knows all spellings of infinities and NaN, and rounds correctly.
    std::str::from_utf8(word).ok()?.parse().ok()
}
