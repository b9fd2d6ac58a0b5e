//! Durations as InfluxQL writes them: `1h30m`.

/// Units and their nanoseconds, longest first. Years and months are not among them.
const UNITS: [(&str, i64); 9] = [
    ("w", 604_800_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("u", 1000),
    ("µ", 1000),
    ("ns", 1),
];

/// Nanoseconds of a duration; `None` if it is none, or too long.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut total_ns = 0i64;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|character: char| character.is_ascii_digit()).len();
        let (number, behind) = rest.split_at(digits);
        let letters = behind.find(|character: char| character.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, next) = behind.split_at(letters);
        let (_, unit_ns) = UNITS.iter().find(|(name, _)| *name == unit)?;
        total_ns = total_ns.checked_add(number.parse::<i64>().ok()?.checked_mul(*unit_ns)?)?;
        rest = next;
    }
    Some(total_ns)
}

/// The shortest text with one unit.
pub(crate) fn text(duration_ns: i64) -> String {
    if duration_ns == 0 {
        return "0s".to_owned();
    }
    let fits = |(_, unit_ns): &&(&str, i64)| duration_ns % unit_ns == 0;
    UNITS.iter().find(fits).map_or_else(String::new, |(unit, unit_ns)| format!("{}{unit}", duration_ns / unit_ns))
}

/// As Go writes durations: `168h0m0s`.
pub(crate) fn go_text(duration_ns: i64) -> String {
    let (hours, rest_ns) = (duration_ns / 3_600_000_000_000, duration_ns % 3_600_000_000_000);
    let (minutes, rest_ns) = (rest_ns / 60_000_000_000, rest_ns % 60_000_000_000);
    let seconds = rest_ns as f64 / 1e9;
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}
