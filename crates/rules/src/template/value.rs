//! Values of templates.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

/// Labels of a sample or an alert.
pub type TextMap = BTreeMap<String, String>;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing.
    Nil,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A text.
    Text(Arc<str>),
    /// Labels: one that is not there is an empty text.
    Labels(Arc<TextMap>),
    /// Named values: one that is not there is nothing.
    Map(Arc<BTreeMap<String, Self>>),
    /// A list.
    List(Arc<Vec<Self>>),
    /// A series' labels and its value.
    Sample(Arc<TextMap>, f64),
    /// A moment, in milliseconds since the Unix epoch.
    Time(i64),
    /// Nanoseconds.
    Duration(i64),
}

impl Value {
    /// A text.
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::Text(Arc::from(text.as_ref()))
    }

    /// Go's name for its type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Nil => "<nil>",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
            Self::Labels(_) => "map[string]string",
            Self::Map(_) => "map[string]interface {}",
            Self::List(_) => "template.queryResult",
            Self::Sample(..) => "*template.sample",
            Self::Time(_) => "*time.Time",
            Self::Duration(_) => "time.Duration",
        }
    }

    /// Returns whether `if` takes it for true: it is not empty.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Nil => false,
            Self::Bool(value) => *value,
            Self::Int(value) | Self::Duration(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::Labels(map) => !map.is_empty(),
            Self::Map(map) => !map.is_empty(),
            Self::List(items) => !items.is_empty(),
            Self::Sample(..) | Self::Time(_) => true,
        }
    }

    /// The text by which it is printed.
    pub(super) fn print(&self) -> String {
        match self {
            Self::Nil => "<no value>".to_owned(),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => super::printf::float(*value, 'v', None),
            Self::Text(text) => text.as_ref().to_owned(),
            Self::Labels(map) => print_map(map.iter().map(|(name, value)| (name, value.clone()))),
            Self::Map(map) => print_map(map.iter().map(|(name, value)| (name, value.print()))),
            Self::List(items) => format!("[{}]", items.iter().map(Self::print).collect::<Vec<_>>().join(" ")),
            Self::Sample(labels, value) => {
                let labels = print_map(labels.iter().map(|(name, value)| (name, value.clone())));
                format!("{{{labels} {}}}", super::printf::float(*value, 'v', None))
            }
            Self::Time(time_ms) => print_time(*time_ms),
            Self::Duration(duration_ns) => print_duration(*duration_ns),
        }
    }

    /// Bytes that it may take in memory, roughly.
    pub(super) fn size_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::List(items) => items.len() * 64,
            Self::Labels(map) => map.len() * 64,
            Self::Map(map) => map.len() * 64,
            _ => 16,
        }
    }

    /// The order of two values that can be compared.
    pub(super) fn compare(&self, other: &Self) -> Result<Ordering, String> {
        let ordering = match (self, other) {
            (Self::Int(a), Self::Int(b)) | (Self::Duration(a), Self::Duration(b)) => Some(a.cmp(b)),
            (Self::Float(a), Self::Float(b)) => return Ok(a.partial_cmp(b).unwrap_or(Ordering::Greater)),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            _ => None,
        };
        ordering.ok_or_else(|| "incompatible types for comparison".to_owned())
    }

    /// Returns whether two values are equal; values of different types are not compared.
    pub(super) fn equals(&self, other: &Self) -> Result<bool, String> {
        match (self, other) {
            (Self::Nil, Self::Nil) => Ok(true),
            (Self::Nil, _) | (_, Self::Nil) => Ok(false),
            (Self::Bool(a), Self::Bool(b)) => Ok(a == b),
            (Self::Float(a), Self::Float(b)) => Ok(a.partial_cmp(b) == Some(Ordering::Equal)),
            (Self::Time(a), Self::Time(b)) => Ok(a == b),
            _ => self.compare(other).map(Ordering::is_eq),
        }
    }
}

fn print_map<'a>(entries: impl Iterator<Item = (&'a String, String)>) -> String {
    let entries: Vec<String> = entries.map(|(name, value)| format!("{name}:{value}")).collect();
    format!("map[{}]", entries.join(" "))
}

/// A moment as Go prints it.
pub(super) fn print_time(time_ms: i64) -> String {
    let Ok(time) = jiff::Timestamp::from_millisecond(time_ms) else { return time_ms.to_string() };
    let mut text = time.strftime("%Y-%m-%d %H:%M:%S").to_string();
    let ms = time_ms.rem_euclid(1000);
    if ms != 0 {
        // Writing into a string does not fail.
        let _ = write!(text, ".{}", format!("{ms:03}").trim_end_matches('0'));
    }
    text + " +0000 UTC"
}

/// A duration as Go prints it.
pub(super) fn print_duration(duration_ns: i64) -> String {
    let (sign, ns) = (if duration_ns < 0 { "-" } else { "" }, duration_ns.unsigned_abs());
    let fraction = |value: f64, unit: &str| format!("{sign}{value}{unit}");
    match ns {
        0 => "0s".to_owned(),
        1..1_000 => fraction(ns as f64, "ns"),
        1_000..1_000_000 => fraction(ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => fraction(ns as f64 / 1e6, "ms"),
        _ => {
            let seconds = ns / 1_000_000_000;
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            let rest = (seconds % 60) as f64 + (ns % 1_000_000_000) as f64 / 1e9;
            match (hours, minutes) {
                (0, 0) => format!("{sign}{rest}s"),
                (0, _) => format!("{sign}{minutes}m{rest}s"),
                _ => format!("{sign}{hours}h{minutes}m{rest}s"),
            }
        }
    }
}
