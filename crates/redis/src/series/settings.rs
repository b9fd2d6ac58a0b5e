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
    /// Buckets that could not be computed when they were over, and are to be: the beginnings of the first and the last one of ranges, in
    /// order, milliseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending_ms: Vec<(i64, i64)>,
}

/// Ranges of buckets that a rule remembers as pending; of more the two that are closest become one.
const PENDING_MAX: usize = 16;

/// Bytes of a rule in memory, whatever is pending, about.
const RULE_BYTES: usize = 128 + PENDING_MAX * size_of::<(i64, i64)>();

impl Rule {
    /// A rule that begins with the bucket of a time; with the first sample if there is none.
    pub fn new(to: Arc<str>, aggregator: Aggregator, (bucket_ms, align_ms): (i64, i64), last_ms: Option<i64>) -> Self {
        let rule = Self {
            to,
            aggregator: aggregator.name().to_owned(),
            bucket_ms,
            align_ms,
            from_ms: None,
            pending_ms: Vec::new(),
        };
        let from_ms = last_ms.map(|last_ms| rule.buckets().start_of(last_ms));
        Self { from_ms, ..rule }
    }

    /// The aggregator.
    pub fn aggregator(&self) -> Aggregator {
        Aggregator::from_name(&self.aggregator).unwrap_or(Aggregator::Avg)
    }

    /// Notes that the bucket that begins at a time is to be computed.
    pub fn put_off(&mut self, start_ms: i64) {
        let at = self.pending_ms.partition_point(|(first_ms, _)| *first_ms <= start_ms);
        self.pending_ms.insert(at, (start_ms, start_ms));
        let width_ms = self.bucket_ms.max(1);
        self.pending_ms.dedup_by(|next, range| {
            let touches = next.0 <= range.1.saturating_add(width_ms);
            if touches {
                range.1 = range.1.max(next.1);
            }
            touches
        });
        while self.pending_ms.len() > PENDING_MAX {
            let gaps = self.pending_ms.iter().zip(self.pending_ms.iter().skip(1));
            let gaps = gaps.map(|((_, end_ms), (start_ms, _))| start_ms.saturating_sub(*end_ms)).enumerate();
            let Some((place, _)) = gaps.min_by_key(|(_, gap_ms)| *gap_ms) else { return };
            let (_, end_ms) = self.pending_ms.remove(place + 1);
            if let Some(range) = self.pending_ms.get_mut(place) {
                range.1 = end_ms;
            }
        }
    }

    /// Takes out the first bucket that is to be computed.
    pub fn next_pending(&mut self) -> Option<i64> {
        let (start_ms, end_ms) = *self.pending_ms.first()?;
        let next_ms = start_ms.checked_add(self.bucket_ms.max(1)).filter(|next_ms| *next_ms <= end_ms);
        match (next_ms, self.pending_ms.first_mut()) {
            (Some(next_ms), Some(range)) => range.0 = next_ms,
            _ => drop(self.pending_ms.remove(0)),
        }
        Some(start_ms)
    }

    /// How far around a bucket samples count for its value, milliseconds: means that are weighted by time look at those before and after it.
    pub fn margin_ms(&self) -> i64 {
        if self.aggregator() == Aggregator::Twa { self.bucket_ms.max(1) } else { 0 }
    }

    /// The time from which on samples are needed for buckets that are to be computed, or may be: those that are pending, and those of samples
    /// that are not older than the oldest that is kept.
    pub fn needed_from_ms(&self, oldest_ms: i64) -> i64 {
        let first_ms = self.pending_ms.first().map_or(i64::MAX, |(start_ms, _)| *start_ms);
        self.buckets().start_of(oldest_ms).min(first_ms).saturating_sub(self.margin_ms())
    }

    /// The beginning of the first bucket whose samples are all there, if those before a time are gone.
    pub fn first_whole_ms(&self, trimmed_ms: Option<i64>) -> i64 {
        let Some(trimmed_ms) = trimmed_ms else { return i64::MIN };
        let from_ms = trimmed_ms.saturating_add(self.margin_ms());
        let start_ms = self.buckets().start_of(from_ms);
        if start_ms < from_ms { start_ms.saturating_add(self.bucket_ms.max(1)) } else { start_ms }
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
    /// Samples before this time went since the retention did not keep them, milliseconds since the Unix epoch. The documents of keys without
    /// rules need not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trimmed_ms: Option<i64>,
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
        (size_of::<Self>() + labels + self.rules.len() * RULE_BYTES) as u64
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
    fn buckets_that_are_put_off_are_all_found_again() {
        let mut rule = Rule::new("to".into(), Aggregator::Sum, (10, 0), None);
        let mut starts: Vec<i64> = (0..40).map(|at| at * at * 10).collect();
        starts.iter().rev().for_each(|start_ms| rule.put_off(*start_ms));
        rule.put_off(20);
        assert_eq!(rule.pending_ms.len(), PENDING_MAX);
        let found: Vec<i64> = std::iter::from_fn(|| rule.next_pending()).collect();
        assert!(found.is_sorted_by(|one, next| one < next) && found.iter().all(|start_ms| start_ms % 10 == 0));
        starts.push(20);
        assert!(starts.iter().all(|start_ms| found.contains(start_ms)), "{found:?}");
        assert_eq!(rule.pending_ms, []);
        rule.put_off(i64::MAX);
        assert_eq!((rule.next_pending(), rule.next_pending()), (Some(i64::MAX), None));
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
