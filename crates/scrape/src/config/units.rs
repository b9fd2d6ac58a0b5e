//! Durations and sizes as Prometheus writes them.

use std::fmt::Write;

const UNITS: [(&str, u64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];

/// Milliseconds of a duration: whole numbers with units from large to small, each once, or 0.
pub fn duration_ms(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is no duration such as 30s or 1h30m");
    if text == "0" {
        return Ok(0);
    }
    let (mut rest, mut total_ms, mut units) = (text, 0u64, UNITS.as_slice());
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, behind) = rest.split_at_checked(digits).ok_or_else(bad)?;
        let letters = behind.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, behind) = behind.split_at_checked(letters).ok_or_else(bad)?;
        let number: u64 = number.parse().map_err(|_| bad())?;
        let index = units.iter().position(|(name, _)| *name == unit).ok_or_else(bad)?;
        let unit_ms = units.get(index).map_or(0, |(_, unit_ms)| *unit_ms);
        total_ms = number.checked_mul(unit_ms).and_then(|ms| total_ms.checked_add(ms)).ok_or_else(bad)?;
        units = units.get(index + 1..).unwrap_or_default();
        rest = behind;
    }
    // As far as nanoseconds reach.
    if total_ms <= i64::MAX as u64 / 1_000_000 { Ok(total_ms) } else { Err(bad()) }
}

/// A duration as Prometheus shows it.
pub fn duration_text(mut duration_ms: u64) -> String {
    if duration_ms == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (name, unit_ms) in UNITS {
        // Years and weeks stand alone, as Prometheus writes them.
        let count = duration_ms / unit_ms;
        let stands_alone = matches!(name, "y" | "w");
        if count == 0 || stands_alone && !duration_ms.is_multiple_of(unit_ms) {
            continue;
        }
        // Writing into a string does not fail.
        let _ = write!(text, "{count}{name}");
        duration_ms %= unit_ms;
    }
    text
}

/// Bytes of a size: a number with B, KB, MB, GB, TB, PB or EB, or with KiB and so on, all of them powers of 1024.
pub fn size_bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("{text:?} is no size such as 10MB or 512KiB");
    if text == "0" {
        return Ok(0);
    }
    let end = text.find(|symbol: char| symbol.is_ascii_alphabetic()).ok_or_else(bad)?;
    let (number, unit) = text.split_at_checked(end).ok_or_else(bad)?;
    let number: f64 = number.parse().ok().filter(|number: &f64| *number >= 0.0).ok_or_else(bad)?;
    let letter = match unit {
        "B" => return Ok(number as u64),
        _ => unit.strip_suffix("iB").or_else(|| unit.strip_suffix('B')).ok_or_else(bad)?,
    };
    let power = ["K", "M", "G", "T", "P", "E"].iter().position(|name| *name == letter).ok_or_else(bad)?;
    let bytes = number * 1024f64.powi(power as i32 + 1);
    if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, expected) in [
            ("0", Some(0)),
            ("15s", Some(15_000)),
            ("1h30m", Some(5_400_000)),
            ("1d12h5ms", Some(129_600_005)),
            ("2w", Some(1_209_600_000)),
            ("", None),
            ("15", None),
            ("1m1h", None),
            ("1s1s", None),
            ("-1s", None),
            ("1.5h", None),
            ("9999999999y", None),
        ] {
            assert_eq!(duration_ms(text).ok(), expected, "{text}");
        }
        for text in ["15s", "1h30m", "1d12h5ms", "2w", "0s", "1y"] {
            assert_eq!(duration_text(duration_ms(text).unwrap_or(0)), text);
        }
    }

    #[test]
    fn sizes() {
        for (text, expected) in [
            ("0", Some(0)),
            ("512B", Some(512)),
            ("10MB", Some(10 << 20)),
            ("1.5KiB", Some(1536)),
            ("2G", None),
            ("x", None),
            ("-1MB", None),
        ] {
            assert_eq!(size_bytes(text).ok(), expected, "{text}");
        }
    }
}
