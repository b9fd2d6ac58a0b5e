//! Numbers as people read them.

use super::printf::float;

fn four_digits(value: f64) -> String {
    float(value, 'g', Some(4))
}

/// With prefixes of powers of 1000, also for fractions.
pub(super) fn decimal(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return four_digits(value);
    }
    if value.abs() < 1.0 {
        return small(value);
    }
    large(value, 1000.0, ["k", "M", "G", "T", "P", "E", "Z", "Y"])
}

/// With prefixes of powers of 1024.
pub(super) fn binary(value: f64) -> String {
    if value.abs() <= 1.0 || !value.is_finite() {
        return four_digits(value);
    }
    large(value, 1024.0, ["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"])
}

fn large(mut value: f64, base: f64, prefixes: [&'static str; 8]) -> String {
    let mut prefix = "";
    for next in prefixes {
        if value.abs() < base {
            break;
        }
        prefix = next;
        value /= base;
    }
    four_digits(value) + prefix
}

fn small(mut value: f64) -> String {
    let mut prefix = "";
    for next in ["m", "u", "n", "p", "f", "a", "z", "y"] {
        if value.abs() >= 1.0 {
            break;
        }
        prefix = next;
        value *= 1000.0;
    }
    four_digits(value) + prefix
}

/// Seconds as days, hours, minutes and seconds, or with a prefix if there is less than one.
pub(super) fn duration(value: f64) -> String {
    if !value.is_finite() {
        return four_digits(value);
    }
    if value == 0.0 {
        return "0s".to_owned();
    }
    if value.abs() < 1.0 {
        return small(value) + "s";
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let whole = value.abs() as u64;
    let (seconds, minutes, hours, days) = (whole % 60, whole / 60 % 60, whole / 3600 % 24, whole / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{sign}{}s", four_digits(value.abs())),
        (0, 0, _) => format!("{sign}{minutes}m {seconds}s"),
        (0, _, _) => format!("{sign}{hours}h {minutes}m {seconds}s"),
        _ => format!("{sign}{days}d {hours}h {minutes}m {seconds}s"),
    }
}
