//! Numbers and durations as texts.

use crate::syntax::strings::quote;
use crate::syntax::token::TokenKind;

/// Units of durations in the order in which they must come, with their milliseconds.
const UNITS: [(&str, i64); 7] = [
    ("y", 365 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

struct Cursor<'t> {
    bytes: &'t [u8],
    position: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.position).copied()
    }

    fn accept(&mut self, any_of: &[u8]) -> bool {
        let found = self.peek().is_some_and(|byte| any_of.contains(&byte));
        self.position += usize::from(found);
        found
    }

    fn at_word(&self) -> bool {
        self.peek().is_some_and(|byte| byte == b'_' || byte.is_ascii_alphanumeric())
    }
}

/// The number or duration at the beginning of a text, and its length; without a kind, how far it made sense.
pub(super) fn scan(text: &str) -> (Option<TokenKind>, usize) {
    let mut cursor = Cursor { bytes: text.as_bytes(), position: 0 };
    if scan_number(&mut cursor) {
        return (Some(TokenKind::Number), cursor.position);
    }
    if !scan_units(&mut cursor) {
        return (None, cursor.position);
    }
    if !cursor.at_word() {
        return (Some(TokenKind::Duration), cursor.position);
    }
    // The character that spoils it belongs to the message.
    (None, cursor.position + 1)
}

/// Follows Prometheus's scanner; whether it is a number, parsing says.
fn scan_number(cursor: &mut Cursor<'_>) -> bool {
    let mut digits: &[u8] = b"0123456789";
    if cursor.accept(b"0") && cursor.accept(b"xX") {
        cursor.accept(b"_");
        digits = b"0123456789abcdefABCDEF";
    }
    cursor.accept(b".");
    cursor.accept(digits);
    let (mut dot, mut exponent) = (false, false);
    while cursor.peek().is_some_and(|byte| digits.contains(&byte) || b"._eE".contains(&byte)) {
        if (dot && cursor.accept(b".")) || (exponent && cursor.accept(b"eE")) {
            return false;
        }
        if cursor.accept(b".") {
            dot = true;
            if cursor.accept(b"_.") || digits.len() > 10 {
                return false;
            }
        } else if cursor.accept(b"eE") {
            exponent = true;
            cursor.accept(b"+-");
            if cursor.accept(b"._eE") || cursor.peek().is_none() {
                return false;
            }
        } else if cursor.accept(b"_") {
            if cursor.accept(b"._eE") || cursor.peek().is_none() {
                return false;
            }
        } else {
            while cursor.accept(digits) {}
        }
    }
    cursor.position > 0 && !cursor.at_word()
}

fn scan_units(cursor: &mut Cursor<'_>) -> bool {
    if !cursor.accept(b"smhdwy") {
        return false;
    }
    cursor.accept(b"s");
    while cursor.accept(b"0123456789") {
        while cursor.accept(b"0123456789") {}
        if !cursor.accept(b"smhdw") {
            return false;
        }
        cursor.accept(b"s");
    }
    true
}

/// The number that a text means: decimal, hexadecimal, octal with a leading zero, or one of `inf` and `nan`.
pub(crate) fn parse(text: &str) -> Result<f64, String> {
    let plain: String = text.chars().filter(|c| *c != '_').collect();
    let whole = match plain.as_bytes() {
        [b'0', b'x' | b'X', ..] => i64::from_str_radix(plain.get(2..).unwrap_or_default(), 16).ok(),
        [b'0', _, ..] => i64::from_str_radix(&plain, 8).ok(),
        _ => plain.parse::<i64>().ok(),
    };
    if let Some(whole) = whole {
        return Ok(whole as f64);
    }
    let fail = |why| Err(format!("error parsing number: strconv.ParseFloat: parsing {}: {why}", quote(text)));
    match plain.parse::<f64>() {
        Ok(value) if value.is_infinite() && plain.as_bytes().first().is_some_and(u8::is_ascii_digit) => {
            fail("value out of range")
        }
        Ok(value) => Ok(value),
        Err(_) => fail("invalid syntax"),
    }
}

/// Milliseconds of a duration like `1h30m`.
pub(crate) fn parse_duration_ms(text: &str) -> Result<i64, String> {
    let bad = || format!("not a valid duration string: {}", quote(text));
    let out_of_range = || "duration out of range".to_owned();
    if text == "0" {
        return Ok(0);
    }
    if text.is_empty() {
        return Err("empty duration string".to_owned());
    }
    let (mut rest, mut total, mut next_unit) = (text, 0i64, 0);
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (amount, rest_after) = rest.split_at(digits);
        let letters = rest_after.len() - rest_after.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let (unit, rest_after) = rest_after.split_at(letters);
        let position = UNITS.iter().position(|(name, _)| *name == unit).filter(|position| *position >= next_unit);
        let (Some(position), false) = (position, amount.is_empty()) else { return Err(bad()) };
        let unit_ms = UNITS.get(position).map_or(1, |(_, unit_ms)| *unit_ms);
        let part = amount.parse::<i64>().ok().and_then(|amount| amount.checked_mul(unit_ms));
        total = part.and_then(|part| total.checked_add(part)).ok_or_else(out_of_range)?;
        (rest, next_unit) = (rest_after, position + 1);
    }
    // Prometheus counts nanoseconds in 64 bits.
    if total > i64::MAX / 1_000_000 { Err(out_of_range()) } else { Ok(total) }
}

/// A duration as text: `1h30m`; years and weeks only if nothing is left over.
pub(crate) fn duration_text(duration_ms: i64) -> String {
    if duration_ms == 0 {
        return "0s".to_owned();
    }
    let (mut rest, mut text) = (duration_ms, String::new());
    for (unit, unit_ms) in UNITS {
        let exact = matches!(unit, "y" | "w");
        if (exact && rest % unit_ms != 0) || rest / unit_ms <= 0 {
            continue;
        }
        text.push_str(&(rest / unit_ms).to_string());
        text.push_str(unit);
        rest %= unit_ms;
    }
    text
}

/// A number in decimals, as short as can be read back, without exponent.
pub(crate) fn plain(value: f64) -> String {
    if value.is_nan() {
        "NaN".to_owned()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf".to_owned() } else { "-Inf".to_owned() }
    } else {
        format!("{value}")
    }
}

/// A number as short as can be read back, below 1e-4 and from 1e6 with an exponent of at least two digits.
pub(crate) fn short(value: f64) -> String {
    if !value.is_finite() || value == 0.0 {
        return plain(value);
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    plain(value)
}

/// The larger number; infinity beats NaN, NaN beats the rest.
pub(crate) fn maximum(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        f64::INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.max(b)
    }
}

/// The smaller number; negative infinity beats NaN, NaN beats the rest.
pub(crate) fn minimum(a: f64, b: f64) -> f64 {
    if a == f64::NEG_INFINITY || b == f64::NEG_INFINITY {
        f64::NEG_INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.min(b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for (text, value) in [
            ("1", 1.0),
            ("0x1F", 31.0),
            ("017", 15.0),
            ("089", 89.0),
            ("1_000", 1000.0),
            (".5", 0.5),
            ("1e3", 1000.0),
            ("Inf", f64::INFINITY),
        ] {
            assert_eq!(parse(text), Ok(value), "{text}");
        }
        assert!(parse("1e999").unwrap_err().ends_with("value out of range"));
        assert!(parse("0x").unwrap_err().ends_with("invalid syntax"));
    }

    #[test]
    fn durations() {
        for (text, duration_ms) in
            [("5m", 300_000), ("1h30m", 5_400_000), ("1d1ms", 86_400_001), ("30d", 2_592_000_000), ("1w", 604_800_000)]
        {
            assert_eq!(parse_duration_ms(text), Ok(duration_ms));
            assert_eq!(duration_text(duration_ms), text);
        }
        for bad in ["1m1h", "1x", "m", "1hs"] {
            assert!(parse_duration_ms(bad).is_err(), "{bad}");
        }
    }
}
