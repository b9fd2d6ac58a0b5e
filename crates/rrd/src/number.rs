//! Numbers as RRDtool writes and reads them.

/// A float as C's `%0.<digits>e` writes it; `NaN` and `inf` by RRDtool's names.
pub fn scientific(value: f64, digits: usize) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let text = format!("{value:.digits$e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
    format!("{mantissa}e{sign}{exponent:0>2}")
}

/// Like [`scientific`], with `-nan` as C's printf writes RRDtool's unknown value on most machines.
pub fn printed(value: f64, digits: usize) -> String {
    if value.is_nan() { "-nan".to_owned() } else { scientific(value, digits) }
}

/// Reads a float with RRDtool's own rounding, which shows in the microseconds of times.
pub fn parse_rounded(text: &str) -> Option<f64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1.0, text), |digits| (-1.0, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain(whole) || !is_plain(fraction) || whole.is_empty() || digits.len() > 40 {
        return parse(text);
    }
    let mut number =
        whole.bytes().chain(fraction.bytes()).fold(0.0, |number, digit| number * 10.0 + f64::from(digit - b'0'));
    let (mut power, mut exponent) = (10.0, fraction.len());
    while exponent > 0 {
        if exponent % 2 == 1 {
            number /= power;
        }
        exponent /= 2;
        power *= power;
    }
    Some(sign * number)
}

/// Reads a float: digits with a point and an exponent, or `nan` and `inf` in any case.
pub fn parse(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let is_number = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    let is_special = ["nan", "inf", "infinity"].iter().any(|name| digits.eq_ignore_ascii_case(name));
    if is_number || is_special { text.parse().ok() } else { None }
}

/// Reads a number of seconds or of items: a plain number is one of items, a number with `s`, `m`, `h`, `d`, `w`, `M` or `y` a duration, of
/// which one item takes `item_s` seconds.
pub fn duration(text: &str, item_s: u64) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at_checked(digits).unwrap_or_default();
    let count: u64 = count.parse().map_err(|_| "value must be (suffixed) positive number".to_owned())?;
    let unit_s = match unit {
        "" => {
            return if count == 0 { Err("value must be positive".to_owned()) } else { Ok(count) };
        }
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        "M" => 31 * 86_400,
        "y" => 366 * 86_400,
        _ => return Err("value has trailing garbage".to_owned()),
    };
    let seconds = count.checked_mul(unit_s).ok_or_else(|| "value is too large".to_owned())?;
    match (seconds, seconds % item_s.max(1)) {
        (0, _) => Err("value must be positive".to_owned()),
        (_, 0) => Ok(seconds / item_s.max(1)),
        _ => Err("value would truncate when scaled".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_c_writes_them() {
        for (value, expected) in [
            (0.0, "0.0000000000e+00"),
            (12.5, "1.2500000000e+01"),
            (-1.0e-7, "-1.0000000000e-07"),
            (1.0e123, "1.0000000000e+123"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(scientific(value, 10), expected);
        }
        assert_eq!(printed(f64::NAN, 10), "-nan");
    }

    #[test]
    fn durations_scale_to_items() {
        assert_eq!(duration("300", 60), Ok(300));
        assert_eq!(duration("5m", 60), Ok(5));
        assert_eq!(duration("1d", 300), Ok(288));
        for bad in ["", "0", "-1", "5x", "90s", "m", "99999999999999999999"] {
            assert!(duration(bad, 60).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_numbers_are_read() {
        assert_eq!(parse("1.5e3"), Some(1500.0));
        assert_eq!(parse(" -7 "), Some(-7.0));
        assert!(parse("NaN").is_some_and(f64::is_nan));
        for bad in ["", "U", "1x", "0x10", "e5", "-"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
