//! What a receiver's answer means, and how long to wait. Pure.

/// No receiver makes a sender wait longer, whatever it says.
const RETRY_AFTER_MS_MAX: u64 = 600_000;

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The receiver has it.
    Sent,
    /// The receiver will never take it. Holds why.
    Refused(String),
    /// To be sent again.
    Retry {
        /// The pause that the receiver asks for.
        after_ms: Option<u64>,
        /// Why it was not taken.
        reason: String,
    },
}

/// The pauses between attempts: twice as long each time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first.
    pub min_ms: u64,
    /// The longest.
    pub max_ms: u64,
}

/// Judges an answer by its status, `Retry-After` and the beginning of its body.
pub fn verdict(status: u16, after_ms: Option<u64>, body: &str, retry_on_429: bool) -> Verdict {
    let reason = || format!("HTTP status {status}: {}", body.lines().next().unwrap_or_default());
    match status {
        200..300 => Verdict::Sent,
        500.. => Verdict::Retry { after_ms, reason: reason() },
        429 if retry_on_429 => Verdict::Retry { after_ms, reason: reason() },
        _ => Verdict::Refused(reason()),
    }
}

/// Milliseconds of a `Retry-After`: seconds, or a date, which `unix_ms` reads as milliseconds since the Unix epoch.
pub fn retry_after_ms(header: Option<&str>, now_ms: i64, unix_ms: impl FnOnce(&str) -> Option<i64>) -> Option<u64> {
    let text = header?.trim();
    let after_ms = match text.parse::<u64>() {
        Ok(seconds) => seconds.saturating_mul(1000),
        Err(_) => u64::try_from(unix_ms(text)? - now_ms).unwrap_or(0),
    };
    Some(after_ms.min(RETRY_AFTER_MS_MAX))
}

impl Backoff {
    /// The pause after the attempt with this number, from 0: as long as the receiver says, if that is longer than it would be anyway.
    pub fn pause_ms(self, attempt: u32, after_ms: Option<u64>) -> u64 {
        let grown = self.min_ms.max(1).saturating_mul(1u64.checked_shl(attempt).unwrap_or(u64::MAX));
        grown.min(self.max_ms.max(1)).max(after_ms.unwrap_or(0))
    }
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
        let date = |text: &str| (text == "Wed, 21 Oct 2015 07:28:00 GMT").then_some(1_445_412_480_000);
        assert_eq!(retry_after_ms(Some("3"), 0, date), Some(3_000));
        assert_eq!(retry_after_ms(Some("99999999999999"), 0, date), Some(RETRY_AFTER_MS_MAX));
        let now_ms = 1_445_412_480_000 - 7_000;
        assert_eq!(retry_after_ms(Some("Wed, 21 Oct 2015 07:28:00 GMT"), now_ms, date), Some(7_000));
        assert_eq!(retry_after_ms(Some("Wed, 21 Oct 2015 07:28:00 GMT"), now_ms + 9_000, date), Some(0));
        assert_eq!(retry_after_ms(Some("soon"), 0, date), None);
        assert_eq!(retry_after_ms(None, 0, date), None);
    }

    #[test]
    fn pauses_double() {
        let backoff = Backoff { min_ms: 30, max_ms: 5_000 };
        let pauses: Vec<u64> = [0, 1, 2, 7, 8, 64, 200].map(|attempt| backoff.pause_ms(attempt, None)).to_vec();
        assert_eq!(pauses, [30, 60, 120, 3840, 5000, 5000, 5000]);
        assert_eq!(backoff.pause_ms(2, Some(0)), 120, "a time that is over");
        assert_eq!(backoff.pause_ms(2, Some(20_000)), 20_000);
    }
}
