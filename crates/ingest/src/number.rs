//! Numbers as text protocols write them.

use model::ValueType;

/// The powers of ten that an `f64` holds exactly.
const EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// So many digits surely fit into a `u64`.
const SAFE_DIGITS: usize = 18;

/// The largest integer up to which every integer is an `f64`.
const EXACT_INTEGER_MAX: u64 = 1 << 53;

/// A number of the type that is expected, at the beginning of the text: its cell and its length in bytes. `None` if it
/// is anything unusual, which [`parse_number`] will tell. This is the fast path of line protocol: apart from the
/// digits it branches only in ways that repeat from line to line.
#[inline]
pub(crate) fn parse_expected(text: &[u8], expected: ValueType) -> Option<(u64, usize)> {
    match expected {
        ValueType::I64 => parse_expected_integer(text),
        ValueType::F64 => parse_expected_float(text),
        _ => None,
    }
}

/// Small enough to become part of its caller's loop: a call, and an answer by way of memory, take as long as two digits.
#[inline]
fn parse_expected_integer(text: &[u8]) -> Option<(u64, usize)> {
    let negative = text.first() == Some(&b'-');
    let start = usize::from(negative);
    let (value, end) = read_digits(text, start, 0);
    let digits = end - start;
    let is_short = text.get(end) == Some(&b'i') && digits > 0 && digits <= SAFE_DIGITS;
    is_short.then_some((if negative { value.wrapping_neg() } else { value }, end + 1))
}

fn parse_expected_float(text: &[u8]) -> Option<(u64, usize)> {
    let negative = text.first() == Some(&b'-');
    let start = usize::from(negative);
    let (mantissa, end) = read_digits(text, start, 0);
    let digits = end - start;
    let (mantissa, end, divisor) = if text.get(end) == Some(&b'.') {
        let (mantissa, fraction_end) = read_digits(text, end + 1, mantissa);
        (mantissa, fraction_end, EXACT_POWERS.get(fraction_end - end - 1).unwrap_or(&1.0))
    } else {
        (mantissa, end, &1.0)
    };
    if digits == 0 || matches!(text.get(end), Some(b'i' | b'u')) {
        return None;
    }
    if end - start > SAFE_DIGITS || mantissa > EXACT_INTEGER_MAX || matches!(text.get(end), Some(b'e' | b'E')) {
        return parse_float(text).ok().map(|(_, cell, length)| (cell, length));
    }
    // Both operands are exact, so the one rounding of the division is the correct one.
    let value = mantissa as f64 / divisor;
    Some(((if negative { -value } else { value }).to_bits(), end))
}

/// A number in line protocol's spelling at the beginning of the text: its type, its cell, and its length in bytes.
/// What follows is for the caller to judge.
pub(crate) fn parse_number(text: &[u8]) -> Result<(ValueType, u64, usize), &'static str> {
    let start = usize::from(text.first() == Some(&b'-'));
    let (_, digits_end) = read_digits(text, start, 0);
    match text.get(digits_end) {
        Some(b'i' | b'u') => parse_integer(text, digits_end),
        _ => parse_float(text),
    }
}

/// Adds the digits at `at` to a mantissa (which wraps past 19 of them); the result and where they end.
#[inline]
fn read_digits(text: &[u8], mut at: usize, mut mantissa: u64) -> (u64, usize) {
    while let Some(byte) = text.get(at) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    (mantissa, at)
}

/// An integer whose suffix is at `suffix_at`.
fn parse_integer(text: &[u8], suffix_at: usize) -> Result<(ValueType, u64, usize), &'static str> {
    let digits = text.get(..suffix_at).and_then(|digits| std::str::from_utf8(digits).ok()).unwrap_or_default();
    if digits.is_empty() || digits == "-" {
        return Err("invalid number");
    }
    let (value_type, cell) = match text.get(suffix_at) {
        Some(b'u') if digits.starts_with('-') => return Err("invalid number: an unsigned integer has no sign"),
        Some(b'u') => (ValueType::U64, digits.parse().ok()),
        _ => (ValueType::I64, digits.parse::<i64>().ok().map(|value| value as u64)),
    };
    cell.map(|cell| (value_type, cell, suffix_at + 1)).ok_or("integer out of range")
}

/// A float of any length, with or without exponent. Infinities and NaN have no spelling in line protocol.
fn parse_float(text: &[u8]) -> Result<(ValueType, u64, usize), &'static str> {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    if !matches!(unsigned.first(), Some(b'0'..=b'9' | b'.')) {
        return Err("invalid number");
    }
    let (value, length) = fast_float2::parse_partial::<f64, _>(text).map_err(|_| "invalid number")?;
    if value.is_finite() { Ok((ValueType::F64, value.to_bits(), length)) } else { Err("float out of range") }
}

/// A decimal integer with an optional minus at the beginning of the text, and its length in bytes. `None` without
/// digits or out of range.
#[inline]
pub(crate) fn parse_i64(text: &[u8]) -> Option<(i64, usize)> {
    let negative = text.first() == Some(&b'-');
    let start = usize::from(negative);
    let (mut magnitude, mut at) = (0, start);
    // Nanosecond timestamps have 19 digits: two steps of eight spare most of the loop.
    while at - start < 16
        && let Some(eight) = text.get(at..).and_then(<[u8]>::first_chunk).copied().and_then(eight_digits)
    {
        magnitude = magnitude * 100_000_000 + eight;
        at += 8;
    }
    let (magnitude, end) = read_digits(text, at, magnitude);
    match end - start {
        1..=18 => Some((if negative { -(magnitude as i64) } else { magnitude as i64 }, end)),
        19 if negative => 0i64.checked_sub_unsigned(magnitude).map(|value| (value, end)),
        19 => i64::try_from(magnitude).ok().map(|value| (value, end)),
        _ => None,
    }
}

/// The value of eight ASCII digits, worked out in one word: pairs, then fours, then all.
#[inline]
fn eight_digits(text: [u8; 8]) -> Option<u64> {
    let word = u64::from_le_bytes(text);
    let all_digits = (word & 0xf0f0_f0f0_f0f0_f0f0)
        | ((word.wrapping_add(0x0606_0606_0606_0606) & 0xf0f0_f0f0_f0f0_f0f0) >> 4)
        == 0x3333_3333_3333_3333;
    if !all_digits {
        return None;
    }
    let word = word & 0x0f0f_0f0f_0f0f_0f0f;
    let pairs = (word * 10 + (word >> 8)) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs * 100 + (pairs >> 16)) & 0x0000_ffff_0000_ffff;
    Some((fours * 10_000 + (fours >> 32)) & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The short path must say the same, or nothing.
    fn check_expected(text: &str, expected: Result<(ValueType, u64, usize), &'static str>) {
        for value_type in [ValueType::F64, ValueType::I64, ValueType::U64] {
            if let Some((cell, length)) = parse_expected(text.as_bytes(), value_type) {
                assert_eq!(Ok((value_type, cell, length)), expected, "{text}");
            }
        }
    }

    fn check(text: &str, expected: Result<(ValueType, u64, usize), &'static str>) {
        assert_eq!(parse_number(text.as_bytes()), expected, "{text}");
        check_expected(text, expected);
    }

    #[test]
    fn common_numbers_take_the_short_path() {
        for (text, value_type) in
            [("58i", ValueType::I64), ("-1i,", ValueType::I64), ("58.13 ", ValueType::F64), ("7", ValueType::F64)]
        {
            assert!(parse_expected(text.as_bytes(), value_type).is_some(), "{text}");
        }
    }

    #[test]
    fn reads_what_line_protocol_writes() {
        let float = |value: f64, length| Ok((ValueType::F64, value.to_bits(), length));
        let integer = |value: i64, length| Ok((ValueType::I64, value as u64, length));
        check("1", float(1.0, 1));
        check("-0", float(-0.0, 2));
        check("1.", float(1.0, 2));
        check(".5", float(0.5, 2));
        check("-.5,", float(-0.5, 3));
        check("0.1", float(0.1, 3));
        check("58.13 1", float(58.13, 5));
        check("1e3", float(1000.0, 3));
        check("1.5E-7", float(1.5e-7, 6));
        check("1e", float(1.0, 1));
        check("9007199254740993", float(9_007_199_254_740_992.0, 16));
        check("12345678901234567890123", float(12_345_678_901_234_567_890_123.0, 23));
        check("123456789012345678.9", float(123_456_789_012_345_678.9, 20));
        check("1e400", Err("float out of range"));
        check("12i", integer(12, 3));
        check("-9223372036854775808i", integer(i64::MIN, 21));
        check("9223372036854775808i", Err("integer out of range"));
        check("007i", integer(7, 4));
        check("18446744073709551615u", Ok((ValueType::U64, u64::MAX, 21)));
        check("18446744073709551616u", Err("integer out of range"));
        check("-1u", Err("invalid number: an unsigned integer has no sign"));
        for bad in ["", "-", "i", "-i", "u", ".", "-.", "e5", "--1", "nan", "inf", "-inf", "+1"] {
            check(bad, Err("invalid number"));
        }
    }

    #[test]
    fn reads_whole_numbers_up_to_their_ends() {
        let cases = [
            ("", None),
            ("-", None),
            ("x", None),
            ("0", Some((0, 1))),
            ("-12 ", Some((-12, 3))),
            ("12345678", Some((12_345_678, 8))),
            ("1234567:", Some((1_234_567, 7))),
            ("1451606400000000000\n", Some((1_451_606_400_000_000_000, 19))),
            ("9223372036854775807", Some((i64::MAX, 19))),
            ("-9223372036854775808", Some((i64::MIN, 20))),
            ("9223372036854775808", None),
            ("-9223372036854775809", None),
            ("00000000000000000001", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse_i64(text.as_bytes()), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn floats_are_rounded_as_the_standard_library_rounds_them(text in "-?[0-9]{1,20}(\\.[0-9]{0,20})?([eE][-+]?[0-9]{1,2})?") {
            let expected: f64 = text.parse().unwrap();
            let expected = Ok((ValueType::F64, expected.to_bits(), text.len()));
            prop_assert_eq!(parse_number(text.as_bytes()), expected);
            check_expected(&text, expected);
        }

        #[test]
        fn whole_numbers_come_back(value: i64) {
            let text = value.to_string();
            prop_assert_eq!(parse_i64(text.as_bytes()), Some((value, text.len())));
            let text = format!("{value}i");
            let number = parse_number(text.as_bytes());
            check_expected(&text, number);
            prop_assert_eq!(number, Ok((ValueType::I64, value as u64, text.len())));
        }
    }
}
