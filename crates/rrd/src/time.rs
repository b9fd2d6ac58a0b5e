//! Times as RRDtool's commands take them, as far as they need no calendar: seconds since the Unix epoch, `now`, `start`, `end`, and
//! offsets such as `-1h`, `end-1d` or `now-2w3h`.

use crate::RrdError;

/// A time, perhaps relative to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spec {
    base: Base,
    offset_s: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    Epoch,
    Now,
    Start,
    End,
}

/// A range of time in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// From when.
    pub start_s: i64,
    /// To when.
    pub end_s: i64,
}

/// Reads a start and an end; without them the day before now.
pub fn parse_range(start: Option<&str>, end: Option<&str>, now_s: i64) -> Result<Times, RrdError> {
    let (start, end) = (parse(start.unwrap_or("end-1d"))?, parse(end.unwrap_or("now"))?);
    let plain = |spec: Spec| match spec.base {
        Base::Epoch => Some(spec.offset_s),
        Base::Now => now_s.checked_add(spec.offset_s),
        Base::Start | Base::End => None,
    };
    let times = match (plain(start), plain(end)) {
        (Some(start_s), Some(end_s)) => Some(Times { start_s, end_s }),
        (Some(start_s), None) if end.base == Base::Start => {
            start_s.checked_add(end.offset_s).map(|end_s| Times { start_s, end_s })
        }
        (None, Some(end_s)) if start.base == Base::End => {
            end_s.checked_add(start.offset_s).map(|start_s| Times { start_s, end_s })
        }
        _ => None,
    };
    times.ok_or_else(|| RrdError::invalid("the start and the end cannot both be relative to one another"))
}

fn parse(text: &str) -> Result<Spec, RrdError> {
    let invalid = || {
        RrdError::Invalid(format!(
            "the time {text:?} is none of: seconds since the Unix epoch, now, start, end, each with offsets such as -1h or +2d"
        ))
    };
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Spec { base: Base::Epoch, offset_s: text.parse().map_err(|_| invalid())? });
    }
    let names = [
        ("now", Base::Now),
        ("start", Base::Start),
        ("end", Base::End),
        ("s", Base::Start),
        ("e", Base::End),
        ("n", Base::Now),
    ];
    let relative = names.iter().find_map(|(name, base)| {
        let rest = text.strip_prefix(name)?;
        (rest.is_empty() || rest.starts_with(['+', '-'])).then_some((*base, rest))
    });
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (base, rest, offset_s) = match relative {
        Some((base, rest)) => (base, rest, 0),
        None if digits > 0 => {
            let (seconds, rest) = text.split_at_checked(digits).unwrap_or_default();
            (Base::Epoch, rest, seconds.parse().map_err(|_| invalid())?)
        }
        None => (Base::Now, text, 0),
    };
    let offset_s = offsets(rest).and_then(|more: i64| more.checked_add(offset_s)).ok_or_else(invalid)?;
    Ok(Spec { base, offset_s })
}

/// The sum of offsets: `-1h30m`, `+2d-3h`.
fn offsets(mut text: &str) -> Option<i64> {
    let (mut sign, mut total) = (None, 0_i64);
    while !text.is_empty() {
        if let Some(rest) = text.strip_prefix('-') {
            (sign, text) = (Some(-1), rest);
        } else if let Some(rest) = text.strip_prefix('+') {
            (sign, text) = (Some(1), rest);
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (count, rest) = text.split_at_checked(digits)?;
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, rest) = rest.split_at_checked(letters)?;
        let unit_s = match unit {
            "" | "s" | "sec" | "second" | "seconds" => 1,
            "min" | "minute" | "minutes" | "m" => 60,
            "h" | "hour" | "hours" => 3_600,
            "d" | "day" | "days" => 86_400,
            "w" | "week" | "weeks" => 7 * 86_400,
            "mon" | "month" | "months" | "M" => 30 * 86_400,
            "y" | "year" | "years" => 365 * 86_400,
            _ => return None,
        };
        let seconds = count.parse::<i64>().ok()?.checked_mul(unit_s)?.checked_mul(sign?)?;
        total = total.checked_add(seconds)?;
        text = rest;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_absolute_or_relative() {
        let now_s = 1_700_000_000;
        for (start, end, expected) in [
            (Some("1699990000"), Some("1699999000"), Some((1_699_990_000, 1_699_999_000))),
            (None, None, Some((now_s - 86_400, now_s))),
            (Some("-1h"), None, Some((now_s - 3_600, now_s))),
            (Some("end-2h30min"), Some("now-1d"), Some((now_s - 86_400 - 9_000, now_s - 86_400))),
            (Some("now-1w"), Some("start+3600"), Some((now_s - 604_800, now_s - 601_200))),
            (Some("end-1h"), Some("start+1h"), None),
            (Some("yesterday"), None, None),
            (Some("-1x"), None, None),
            (Some("-9223372036854775807y"), None, None),
        ] {
            let times = parse_range(start, end, now_s).ok().map(|times| (times.start_s, times.end_s));
            assert_eq!(times, expected, "{start:?} {end:?}");
        }
    }
}
