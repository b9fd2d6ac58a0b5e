//! What a receiver's answer means, and how long to wait. Pure.

use crate::config::QueueConfig;

/// No receiver makes a sender wait longer, whatever it says.
const RETRY_AFTER_MS_MAX: u64 = 600_000;

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The receiver has it.
    Sent,
    /// The receiver will never take it.
    Refused(String),
    /// To be sent again, after as long as the receiver says.
    Retry { after_ms: Option<u64>, reason: String },
}

/// Judges an answer by its status, `Retry-After` and the beginning of its body.
pub(super) fn verdict(status: u16, after_ms: Option<u64>, body: &str, retry_on_429: bool) -> Verdict {
    let reason = || format!("HTTP status {status}: {}", body.lines().next().unwrap_or_default());
    match status {
        200..300 => Verdict::Sent,
        500.. => Verdict::Retry { after_ms, reason: reason() },
        429 if retry_on_429 => Verdict::Retry { after_ms, reason: reason() },
        _ => Verdict::Refused(reason()),
    }
}

/// Milliseconds of a `Retry-After`: seconds, or a date.
pub(super) fn retry_after_ms(header: Option<&str>, now_ms: i64) -> Option<u64> {
    let text = header?.trim();
    let after_ms = match text.parse::<u64>() {
        Ok(seconds) => seconds.saturating_mul(1000),
        Err(_) => {
            let date = jiff::fmt::rfc2822::parse(text).ok()?;
            u64::try_from(date.timestamp().as_millisecond() - now_ms).unwrap_or(0)
        }
    };
    Some(after_ms.min(RETRY_AFTER_MS_MAX))
}

/// The pause before the attempt with this number, from 0: twice as long each time.
pub(super) fn backoff_ms(config: &QueueConfig, attempt: u32) -> u64 {
    let grown = config.backoff_min_ms.max(1).saturating_mul(1u64.checked_shl(attempt).unwrap_or(u64::MAX));
    grown.min(config.backoff_max_ms.max(1))
}

/// The pause after an attempt with this number: as long as the receiver says, if that is longer than it would be anyway.
pub(super) fn pause_ms(config: &QueueConfig, attempt: u32, after_ms: Option<u64>) -> u64 {
    backoff_ms(config, attempt).max(after_ms.unwrap_or(0))
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
    fn answers_are_judged_as_prometheus_does() {
        let retry = |after_ms, reason: &str| Verdict::Retry { after_ms, reason: reason.to_owned() };
        let refused = |reason: &str| Verdict::Refused(reason.to_owned());
        assert_eq!(verdict(204, None, "", false), Verdict::Sent);
        assert_eq!(verdict(400, None, "out of order\nmore", false), refused("HTTP status 400: out of order"));
        assert_eq!(verdict(429, Some(5), "", false), refused("HTTP status 429: "));
        assert_eq!(verdict(429, Some(5), "", true), retry(Some(5), "HTTP status 429: "));
        assert_eq!(verdict(503, None, "x", false), retry(None, "HTTP status 503: x"));
        assert_eq!(verdict(302, None, "", true), refused("HTTP status 302: "));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(retry_after_ms(Some("3"), 0), Some(3_000));
        assert_eq!(retry_after_ms(Some("99999999999999"), 0), Some(RETRY_AFTER_MS_MAX));
        let now_ms = 1_445_412_480_000 - 7_000;
        assert_eq!(retry_after_ms(Some("Wed, 21 Oct 2015 07:28:00 GMT"), now_ms), Some(7_000));
        assert_eq!(retry_after_ms(Some("Wed, 21 Oct 2015 07:28:00 GMT"), now_ms + 9_000), Some(0));
        assert_eq!(retry_after_ms(Some("soon"), 0), None);
        assert_eq!(retry_after_ms(None, 0), None);
    }

    #[test]
    fn pauses_double_and_shards_follow_what_there_is_to_send() {
        let config = QueueConfig { shards_max: 10, samples_per_send_max: 100, ..QueueConfig::default() };
        let pauses: Vec<u64> = [0, 1, 2, 7, 8, 64, 200].map(|attempt| backoff_ms(&config, attempt)).to_vec();
        assert_eq!(pauses, [30, 60, 120, 3840, 5000, 5000, 5000]);
        assert_eq!(pause_ms(&config, 2, None), 120);
        assert_eq!(pause_ms(&config, 2, Some(0)), 120, "a time that is over");
        assert_eq!(pause_ms(&config, 2, Some(20_000)), 20_000);
        assert_eq!(next_shards(&config, 1, 100), 2);
        assert_eq!(next_shards(&config, 8, 900), 10);
        assert_eq!(next_shards(&config, 8, 500), 8);
        assert_eq!(next_shards(&config, 8, 10), 7);
        assert_eq!(next_shards(&config, 1, 0), 1);
    }
}
