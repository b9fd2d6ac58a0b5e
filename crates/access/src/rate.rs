//! Limits of how much may be asked for in a time: buckets that fill at a steady rate and hold what one second gives, ten times over.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How many seconds' worth may be asked for at once after a silence.
const BURST_S: f64 = 10.0;

const NS_PER_S: f64 = 1e9;

/// Names that are counted apart at the same time; of more, those are forgotten whose buckets are full.
const NAMES_MAX: usize = 100_000;

/// How much may be asked for; what is left out has no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// Requests a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_s: Option<u64>,
    /// Written samples a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_s: Option<u64>,
    /// Bytes of bodies a second, as they are sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<u64>,
    /// Queries that run at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queries_max: Option<u64>,
}

/// A thing that is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Counted {
    /// Requests of any kind.
    Requests,
    /// Written samples.
    Samples,
    /// Bytes of bodies.
    Bytes,
}

impl Quota {
    /// Its limit of something, for a second.
    pub const fn limit(&self, counted: Counted) -> Option<u64> {
        match counted {
            Counted::Requests => self.requests_per_s,
            Counted::Samples => self.samples_per_s,
            Counted::Bytes => self.bytes_per_s,
        }
    }
}

impl Counted {
    /// The name of its limit.
    pub const fn limit_name(self) -> &'static str {
        match self {
            Self::Requests => "requests_per_s",
            Self::Samples => "samples_per_s",
            Self::Bytes => "bytes_per_s",
        }
    }
}

/// Why something was refused for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// Of what there was too much.
    pub counted: Counted,
    /// How much there may be in a second.
    pub per_s: u64,
    /// After how long it may be tried again.
    pub retry_after: Duration,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "more than {} a second ({}): try again in {} s",
            self.per_s,
            self.counted.limit_name(),
            self.retry_after.as_secs().max(1)
        )
    }
}

/// A bucket: how much is in it and since when.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    amount: f64,
    at_ns: i64,
    per_s: u64,
}

impl Bucket {
    fn fill(&mut self, now_ns: i64) {
        // A clock that goes back fills nothing.
        let passed_s = now_ns.saturating_sub(self.at_ns).max(0) as f64 / NS_PER_S;
        self.amount = (self.amount + passed_s * self.per_s as f64).min(self.most());
        self.at_ns = now_ns;
    }

    fn most(&self) -> f64 {
        self.per_s as f64 * BURST_S
    }
}

/// The buckets of all names.
#[derive(Debug, Default)]
pub struct Rates {
    buckets: HashMap<(String, Counted), Bucket>,
}

impl Rates {
    /// Takes an amount for a name, or says when it may be tried again. An amount larger than a full bucket is let through when the bucket is
    /// full, and the bucket owes the rest: a single large request is slowed down, not refused for ever.
    pub fn take(
        &mut self,
        name: &str,
        (counted, per_s): (Counted, u64),
        amount: u64,
        now_ns: i64,
    ) -> Result<(), Exceeded> {
        if self.buckets.len() >= NAMES_MAX {
            self.forget_full(now_ns);
        }
        let bucket = self.buckets.entry((name.to_owned(), counted)).or_insert(Bucket {
            amount: per_s as f64 * BURST_S,
            at_ns: now_ns,
            per_s,
        });
        bucket.per_s = per_s;
        bucket.fill(now_ns);
        let needed = (amount as f64).min(bucket.most());
        if bucket.amount < needed || per_s == 0 {
            let missing = needed - bucket.amount;
            let wait_s = if per_s == 0 { BURST_S } else { missing / per_s as f64 };
            return Err(Exceeded { counted, per_s, retry_after: Duration::from_secs_f64(wait_s.max(0.0)) });
        }
        bucket.amount -= amount as f64;
        Ok(())
    }

    fn forget_full(&mut self, now_ns: i64) {
        self.buckets.retain(|_, bucket| {
            bucket.fill(now_ns);
            bucket.amount < bucket.most()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    #[test]
    fn a_bucket_gives_a_burst_and_then_its_rate() {
        let mut rates = Rates::default();
        let limit = (Counted::Samples, 100);
        assert_eq!(rates.take("a", limit, 1_000, 0), Ok(()));
        let exceeded = rates.take("a", limit, 50, 0).expect_err("it is empty");
        assert_eq!(exceeded.retry_after, Duration::from_millis(500));
        assert!(exceeded.to_string().contains("samples_per_s"), "{exceeded}");
        assert_eq!(rates.take("a", limit, 50, S / 2), Ok(()));
        assert_eq!(rates.take("b", limit, 1_000, S / 2), Ok(()), "others have their own");
        // A request larger than the bucket is let through once it is full, and pays after that.
        assert_eq!(rates.take("a", limit, 5_000, 20 * S), Ok(()));
        assert!(rates.take("a", limit, 1, 50 * S).is_err());
        assert_eq!(rates.take("a", limit, 1, 61 * S), Ok(()));
        // The clock goes back.
        assert!(rates.take("a", limit, 1_000, 0).is_err());
        assert!(rates.take("c", (Counted::Requests, 0), 1, 0).is_err());
    }
}
