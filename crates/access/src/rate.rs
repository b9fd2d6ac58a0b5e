//! Limits of how much may be asked for: buckets that fill at a steady rate. One of seconds holds what ten of them give, one of hours what an
//! hour gives.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How many seconds' worth may be asked for at once after a silence, where a limit is one of seconds.
const BURST_S: f64 = 10.0;

const HOUR_S: f64 = 3_600.0;

const NS_PER_S: f64 = 1e9;

/// Names that are counted apart at the same time; of more, those are forgotten whose buckets are full.
const NAMES_MAX: usize = 100_000;

/// How much an account, or all that is asked of a database, may take; what is left out has no limit.
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
    /// Series an hour that were not there before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new_series_per_hour: Option<u64>,
    /// Queries that run at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queries_max: Option<u64>,
    /// Bytes of memory that its queries hold at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_memory_bytes_max: Option<u64>,
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
    /// Series that were not there before.
    NewSeries,
}

impl Quota {
    /// Its limit of something, for a second or an hour.
    pub const fn limit(&self, counted: Counted) -> Option<u64> {
        match counted {
            Counted::Requests => self.requests_per_s,
            Counted::Samples => self.samples_per_s,
            Counted::Bytes => self.bytes_per_s,
            Counted::NewSeries => self.new_series_per_hour,
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
            Self::NewSeries => "new_series_per_hour",
        }
    }

    /// For how long its limit is, in words.
    const fn period(self) -> &'static str {
        match self {
            Self::NewSeries => "an hour",
            _ => "a second",
        }
    }

    /// How much of a limit a second gives.
    fn per_s(self, limit: u64) -> f64 {
        match self {
            Self::NewSeries => limit as f64 / HOUR_S,
            _ => limit as f64,
        }
    }

    /// The most that a bucket holds.
    fn burst(self, limit: u64) -> f64 {
        match self {
            Self::NewSeries => limit as f64,
            _ => limit as f64 * BURST_S,
        }
    }
}

/// A limit that was reached, and when there is room again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// Of what there was too much.
    pub counted: Counted,
    /// How much there may be in a second, or an hour.
    pub limit: u64,
    /// After how long it may be tried again.
    pub retry_after: Duration,
}

impl fmt::Display for Exceeded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, period, name) = (self.limit, self.counted.period(), self.counted.limit_name());
        let wait_s = self.retry_after.as_secs().max(1);
        write!(formatter, "more than {limit} {period} ({name}): try again in {wait_s} s")
    }
}

/// A limit of something for a name.
#[derive(Debug, Clone, Copy)]
pub struct RateLimit<'a> {
    /// Whose limit it is: of accounts and of databases by names that differ.
    pub name: &'a str,
    /// The kind of thing that is counted.
    pub counted: Counted,
    /// How much there may be.
    pub limit: u64,
}

/// A bucket: how much is in it and since when.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    amount: f64,
    at_ns: i64,
    per_s: f64,
    most: f64,
}

impl Bucket {
    fn fill(&mut self, now_ns: i64) {
        // A clock that goes back fills nothing.
        let passed_s = now_ns.saturating_sub(self.at_ns).max(0) as f64 / NS_PER_S;
        self.amount = (self.amount + passed_s * self.per_s).min(self.most);
        self.at_ns = now_ns;
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
    pub fn take(&mut self, limit: RateLimit<'_>, amount: u64, now_ns: i64) -> Result<(), Exceeded> {
        let RateLimit { counted, limit: most, .. } = limit;
        let bucket = self.bucket(limit, now_ns);
        let needed = (amount as f64).min(bucket.most);
        if bucket.amount < needed || most == 0 {
            let missing = needed - bucket.amount;
            let wait_s = if most == 0 { BURST_S } else { missing / bucket.per_s };
            let retry_after = Duration::try_from_secs_f64(wait_s.max(0.0)).unwrap_or(Duration::MAX);
            return Err(Exceeded { counted, limit: most, retry_after });
        }
        bucket.amount -= amount as f64;
        Ok(())
    }

    /// Takes an amount for something that is done already, whatever there is: the bucket owes the rest.
    pub fn owe(&mut self, limit: RateLimit<'_>, amount: u64, now_ns: i64) {
        self.bucket(limit, now_ns).amount -= amount as f64;
    }

    /// Gives back what was taken for something that was not done.
    pub fn give_back(&mut self, limit: RateLimit<'_>, amount: u64, now_ns: i64) {
        let bucket = self.bucket(limit, now_ns);
        bucket.amount = (bucket.amount + amount as f64).min(bucket.most);
    }

    /// A name's bucket as it is now.
    fn bucket(&mut self, RateLimit { name, counted, limit }: RateLimit<'_>, now_ns: i64) -> &mut Bucket {
        if self.buckets.len() >= NAMES_MAX {
            self.forget_full(now_ns);
        }
        let (per_s, most) = (counted.per_s(limit), counted.burst(limit));
        let bucket = self.buckets.entry((name.to_owned(), counted));
        let bucket = bucket.or_insert(Bucket { amount: most, at_ns: now_ns, per_s, most });
        (bucket.per_s, bucket.most) = (per_s, most);
        bucket.fill(now_ns);
        bucket
    }

    fn forget_full(&mut self, now_ns: i64) {
        self.buckets.retain(|_, bucket| {
            bucket.fill(now_ns);
            bucket.amount < bucket.most
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    const fn limit(name: &str, counted: Counted, limit: u64) -> RateLimit<'_> {
        RateLimit { name, counted, limit }
    }

    #[test]
    fn a_bucket_gives_a_burst_and_then_its_rate() {
        let mut rates = Rates::default();
        let a = limit("a", Counted::Samples, 100);
        assert_eq!(rates.take(a, 1_000, 0), Ok(()));
        let exceeded = rates.take(a, 50, 0).expect_err("it is empty");
        assert_eq!(exceeded.retry_after, Duration::from_millis(500));
        assert!(exceeded.to_string().contains("samples_per_s"), "{exceeded}");
        assert_eq!(rates.take(a, 50, S / 2), Ok(()));
        assert_eq!(rates.take(limit("b", Counted::Samples, 100), 1_000, S / 2), Ok(()), "others have their own");
        // A request larger than the bucket is let through once it is full, and pays after that.
        assert_eq!(rates.take(a, 5_000, 20 * S), Ok(()));
        assert!(rates.take(a, 1, 50 * S).is_err());
        assert_eq!(rates.take(a, 1, 61 * S), Ok(()));
        // The clock goes back.
        assert!(rates.take(a, 1_000, 0).is_err());
        assert!(rates.take(limit("c", Counted::Requests, 0), 1, 0).is_err());
    }

    #[test]
    fn new_series_are_those_of_an_hour() {
        let (mut rates, a) = (Rates::default(), limit("a", Counted::NewSeries, 3_600));
        assert_eq!(rates.take(a, 3_600, 0), Ok(()));
        let exceeded = rates.take(a, 70, 10 * S).expect_err("there are ten");
        assert_eq!(exceeded.retry_after, Duration::from_mins(1));
        assert!(exceeded.to_string().contains("3600 an hour (new_series_per_hour)"), "{exceeded}");
        rates.give_back(a, 60, 10 * S);
        assert_eq!(rates.take(a, 70, 10 * S), Ok(()));
    }
}
