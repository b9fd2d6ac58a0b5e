//! How fast a receiver is sent to: pauses between attempts, and requests at the same time. Pure.

use platform::network::retry::{self, Backoff};

use crate::config::QueueConfig;

/// The pauses of a queue.
pub(super) const fn backoff(config: &QueueConfig) -> Backoff {
    Backoff { min_ms: config.backoff_min_ms, max_ms: config.backoff_max_ms }
}

/// Milliseconds of a `Retry-After`: seconds, or a date.
pub(super) fn retry_after_ms(header: Option<&str>, now_ms: i64) -> Option<u64> {
    retry::retry_after_ms(header, now_ms, |text| {
        Some(jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_millisecond())
    })
}

/// How many shards the next round has: twice as many while there is more to send than a round takes, one less while there is much less.
pub(super) fn next_shards(config: &QueueConfig, shards: u64, sent: u64) -> u64 {
    let least = config.shards_min.clamp(1, config.shards_max.max(1));
    let round = config.samples_per_send_max.saturating_mul(shards);
    let next = if sent >= round {
        shards.saturating_mul(2)
    } else if sent < round / 2 {
        shards.saturating_sub(1)
    } else {
        shards
    };
    next.clamp(least, config.shards_max.max(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_of_retry_after_is_read() {
        let now_ms = 1_445_412_480_000 - 7_000;
        assert_eq!(retry_after_ms(Some("Wed, 21 Oct 2015 07:28:00 GMT"), now_ms), Some(7_000));
        assert_eq!(retry_after_ms(Some("soon"), 0), None);
    }

    #[test]
    fn shards_follow_what_there_is_to_send() {
        let config = QueueConfig { shards_max: 10, samples_per_send_max: 100, ..QueueConfig::default() };
        assert_eq!(backoff(&config).pause_ms(2, None), 120);
        assert_eq!(next_shards(&config, 1, 100), 2);
        assert_eq!(next_shards(&config, 8, 900), 10);
        assert_eq!(next_shards(&config, 8, 500), 8);
        assert_eq!(next_shards(&config, 8, 10), 7);
        assert_eq!(next_shards(&config, 1, 0), 1);
    }
}
