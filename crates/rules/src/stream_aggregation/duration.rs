//! Durations as VictoriaMetrics writes them: numbers, which may have fractions, with units.

const UNITS: [(&str, u64); 7] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 7 * 86_400_000),
    ("y", 365 * 86_400_000),
];

/// The longest duration: windows of years are no stream.
const DURATION_MS_MAX: f64 = 365.0 * 86_400_000.0;

/// Milliseconds of a duration such as `90s`, `1h30m` or `1.5m`, or 0.
pub(super) fn duration_ms(text: &str) -> Result<u64, String> {
    let bad = |why: &str| format!("{text:?} is no duration such as 30s or 1h30m{why}");
    if text == "0" {
        return Ok(0);
    }
    let (mut rest, mut total_ms) = (text, 0.0);
    if rest.is_empty() {
        return Err(bad(""));
    }
    while !rest.is_empty() {
        let digits = rest.find(|symbol: char| !symbol.is_ascii_digit() && symbol != '.');
        let (number, after) = rest.split_at(digits.ok_or_else(|| bad(": its unit is missing"))?);
        let letters = after.find(|symbol: char| !symbol.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let number: f64 = number.parse().map_err(|_| bad(""))?;
        let found = UNITS.iter().find(|(name, _)| *name == unit);
        let (_, unit_ms) = found.ok_or_else(|| bad(": the units are ms, s, m, h, d, w, y"))?;
        total_ms += number * *unit_ms as f64;
        rest = after;
    }
    if total_ms > DURATION_MS_MAX {
        return Err(bad(": a year is the longest"));
    }
    // Of decimal fractions such as 0.1 no float is exact.
    let whole_ms = total_ms.round();
    if (total_ms - whole_ms).abs() > 1e-6 {
        return Err(bad(": it is no whole number of milliseconds"));
    }
    Ok(whole_ms as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_add_up() {
        for (text, expected) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("30s", Some(30_000)),
            ("1h30m", Some(5_400_000)),
            ("1m0s", Some(60_000)),
            ("1.5m", Some(90_000)),
            ("0.1s", Some(100)),
            ("500ms", Some(500)),
            ("1d", Some(86_400_000)),
            ("1y", Some(31_536_000_000)),
            ("2y", None),
            ("0.0001s", None),
            ("", None),
            ("30", None),
            ("s", None),
            ("-1s", None),
            ("1 s", None),
            ("1i", None),
            ("1.2.3s", None),
            ("1us", None),
            ("1é", None),
            ("1e400y", None),
        ] {
            assert_eq!(duration_ms(text).ok(), expected, "{text}");
        }
    }
}
