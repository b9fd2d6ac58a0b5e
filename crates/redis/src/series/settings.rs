//! What a key has beside its samples.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::aggregate::{Aggregator, Buckets};

/// Decides between a new sample and the one that is there at its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DuplicatePolicy {
    /// It is refused.
    Block,
    /// The value that is there stays.
    First,
    /// The new value takes its place.
    Last,
    /// The smaller one stays.
    Min,
    /// The larger one stays.
    Max,
    /// They are added.
    Sum,
}

impl DuplicatePolicy {
    /// All of them, with their names.
    const ALL: [(&'static str, Self); 6] = [
        ("block", Self::Block),
        ("first", Self::First),
        ("last", Self::Last),
        ("min", Self::Min),
        ("max", Self::Max),
        ("sum", Self::Sum),
    ];

    /// One by its name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, policy)| *policy)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// The value that is there afterwards; `None` if the sample is refused.
    pub fn resolve(self, old: f64, new: f64) -> Option<f64> {
        match self {
            Self::Block => None,
            Self::First => Some(old),
            Self::Last => Some(new),
            // A NaN gives way to a number.
            Self::Min => Some(old.min(new)),
            Self::Max => Some(old.max(new)),
            Self::Sum => Some(old + new),
        }
    }
}

/// A rule: the buckets of a key, written to another one when they are over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The key that buckets are written to.
    pub to: Arc<str>,
    /// The name of the aggregator.
    aggregator: String,
    /// Width of a bucket, milliseconds.
    pub bucket_ms: i64,
    /// A time at which a bucket begins, milliseconds.
    pub align_ms: i64,
    /// Buckets before this one were over when the rule was made, and are not computed: milliseconds.
    pub from_ms: Option<i64>,
}

impl Rule {
    /// A rule that begins with the bucket of a time; with the first sample if there is none.
    pub fn new(to: Arc<str>, aggregator: Aggregator, (bucket_ms, align_ms): (i64, i64), last_ms: Option<i64>) -> Self {
        let rule = Self { to, aggregator: aggregator.name().to_owned(), bucket_ms, align_ms, from_ms: None };
        let from_ms = last_ms.map(|last_ms| rule.buckets().start_of(last_ms));
        Self { from_ms, ..rule }
    }

    /// The aggregator.
    pub fn aggregator(&self) -> Aggregator {
        Aggregator::from_name(&self.aggregator).unwrap_or(Aggregator::Avg)
    }

    /// The rule's buckets.
    pub fn buckets(&self) -> Buckets {
        Buckets {
            aggregators: vec![self.aggregator()],
            width_ms: self.bucket_ms.max(1),
            align_ms: self.align_ms,
            time: crate::aggregate::BucketTime::Start,
            with_empty: false,
        }
    }
}

/// Samples that are left out since they say nothing new.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Ignore {
    /// Milliseconds after the newest sample.
    pub time_ms: i64,
    /// Difference from its value.
    pub value: f64,
}

/// What a key has beside its samples.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How much older than its newest sample a sample may be, milliseconds; 0: for ever.
    pub retention_ms: i64,
    /// `None`: that of the server, which is `block`.
    pub duplicate_policy: Option<DuplicatePolicy>,
    /// Kept for `TS.INFO` alone: the store sizes its chunks itself.
    pub chunk_bytes: Option<i64>,
    /// Kept for `TS.INFO` alone.
    pub is_uncompressed: bool,
    /// Samples that are left out.
    pub ignore: Ignore,
    /// When the key goes, milliseconds since the Unix epoch.
    pub expires_ms: Option<i64>,
    /// By name.
    pub labels: BTreeMap<Arc<str>, Arc<str>>,
    /// Rules with this key as source.
    pub rules: Vec<Rule>,
    /// The key whose buckets this one holds.
    pub source: Option<Arc<str>>,
}

/// The chunk size that `TS.INFO` shows where none was given.
pub const CHUNK_BYTES: i64 = 4096;

impl Settings {
    /// The policy for samples at times that have one.
    pub fn policy(&self) -> DuplicatePolicy {
        self.duplicate_policy.unwrap_or(DuplicatePolicy::Block)
    }

    /// The oldest time that is kept, given the newest sample's.
    pub const fn oldest_ms(&self, last_ms: i64) -> i64 {
        if self.retention_ms == 0 { i64::MIN } else { last_ms.saturating_sub(self.retention_ms) }
    }

    /// Returns whether a sample says nothing new after the newest one.
    pub fn ignores(&self, last: (i64, f64), sample: (i64, f64)) -> bool {
        let Ignore { time_ms, value } = self.ignore;
        self.policy() == DuplicatePolicy::Last
            && (time_ms > 0 || value > 0.0)
            && sample.0 >= last.0
            && sample.0.saturating_sub(last.0) <= time_ms
            && (sample.1 - last.1).abs() <= value
    }

    /// Bytes in memory, about.
    pub fn size_bytes(&self) -> u64 {
        let labels: usize = self.labels.iter().map(|(name, value)| 96 + name.len() + value.len()).sum();
        (size_of::<Self>() + labels + self.rules.len() * 128) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_decide_between_two_values() {
        let resolved = |name: &str| DuplicatePolicy::from_name(name).unwrap().resolve(3.0, 5.0);
        let names = ["BLOCK", "first", "last", "min", "max", "sum"];
        assert_eq!(names.map(resolved), [None, Some(3.0), Some(5.0), Some(3.0), Some(5.0), Some(8.0)]);
    }

    #[test]
    fn documents_are_read_as_they_were_written() {
        let settings = Settings {
            retention_ms: 5,
            duplicate_policy: Some(DuplicatePolicy::Min),
            labels: [("a".into(), "b".into())].into(),
            rules: vec![Rule::new("to".into(), Aggregator::StdS, (10, 3), Some(25))],
            ..Settings::default()
        };
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
        assert_eq!(settings.rules[0].from_ms, Some(23));
        assert!(serde_json::from_str::<Settings>("{\"other\":1}").is_err());
    }
}
