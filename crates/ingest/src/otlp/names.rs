//! Names of metrics and labels, as Prometheus 3 translates them.

use super::Translation;

/// What decides on a metric's suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Gauge,
    /// A monotonic cumulative sum.
    Counter,
    Other,
}

/// Units of UCUM, <https://ucum.org/ucum>, by the words that Prometheus uses.
const UNITS: [(&str, &str); 26] = [
    ("d", "days"),
    ("h", "hours"),
    ("min", "minutes"),
    ("s", "seconds"),
    ("ms", "milliseconds"),
    ("us", "microseconds"),
    ("ns", "nanoseconds"),
    ("By", "bytes"),
    ("KiBy", "kibibytes"),
    ("MiBy", "mebibytes"),
    ("GiBy", "gibibytes"),
    ("TiBy", "tibibytes"),
    ("KBy", "kilobytes"),
    ("kBy", "kilobytes"),
    ("MBy", "megabytes"),
    ("GBy", "gigabytes"),
    ("TBy", "terabytes"),
    ("m", "meters"),
    ("V", "volts"),
    ("A", "amperes"),
    ("J", "joules"),
    ("W", "watts"),
    ("g", "grams"),
    ("Cel", "celsius"),
    ("Hz", "hertz"),
    ("%", "percent"),
];

/// Units behind a slash.
const PER_UNITS: [(&str, &str); 7] =
    [("s", "second"), ("m", "minute"), ("h", "hour"), ("d", "day"), ("w", "week"), ("mo", "month"), ("y", "year")];

/// The name of a metric; `None` if nothing of it is left.
pub(super) fn metric_name(name: &str, unit: &str, kind: Kind, translation: Translation) -> Option<String> {
    let name = match translation {
        Translation::UnderscoreEscapingWithSuffixes => with_suffixes(name, unit, kind),
        Translation::UnderscoreEscapingWithoutSuffixes => {
            let kept = |character: char| is_plain(character) || character == '_';
            let tokens: Vec<&str> = name.split(|one| !kept(one)).filter(|token| !token.is_empty()).collect();
            guard_digit(tokens.join("_"))
        }
        Translation::NoUTF8EscapingWithSuffixes => with_unescaped_suffixes(name, unit, kind),
        Translation::NoTranslation => name.to_owned(),
    };
    let has_content = !translation.escapes() && !name.is_empty() || name.chars().any(|character| character != '_');
    has_content.then_some(name)
}

fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == ':'
}

/// A name cannot begin with a digit.
fn guard_digit(name: String) -> String {
    if name.starts_with(|first: char| first.is_ascii_digit()) { format!("_{name}") } else { name }
}

fn with_suffixes(name: &str, unit: &str, kind: Kind) -> String {
    let mut tokens: Vec<&str> =
        name.split(|character| !is_plain(character)).filter(|token| !token.is_empty()).collect();
    let (main, per) = unit_words(unit);
    let (main, per) = (escape_unit(&main), escape_unit(&per));
    let per = per.trim_end_matches('_');
    let per = if per == "per" || tokens.contains(&per) { "" } else { per };
    let main = if per.is_empty() { main.as_str() } else { main.trim_end_matches('_') };
    let main = if tokens.contains(&main) { "" } else { main };
    tokens.extend([main, per].into_iter().filter(|word| !word.is_empty()));
    let suffix = type_suffix(unit, kind);
    if let Some(suffix) = suffix {
        tokens.retain(|token| *token != suffix);
        tokens.push(suffix);
    }
    guard_digit(tokens.join("_"))
}

fn with_unescaped_suffixes(name: &str, unit: &str, kind: Kind) -> String {
    let (main, per) = unit_words(unit);
    let suffix = type_suffix(unit, kind).unwrap_or_default();
    let mut base = without_suffix(without_suffix(name, suffix), &per).to_owned();
    if !main.is_empty() && !base.ends_with(&main) {
        base = format!("{base}_{main}");
    }
    for word in [per.as_str(), suffix].into_iter().filter(|word| !word.is_empty()) {
        base = format!("{base}_{word}");
    }
    base
}

/// The name without a suffix and the character before it.
fn without_suffix<'a>(name: &'a str, suffix: &str) -> &'a str {
    if suffix.is_empty() {
        return name;
    }
    let Some(rest) = name.strip_suffix(suffix) else { return name };
    let mut characters = rest.chars();
    characters.next_back();
    if characters.as_str().is_empty() { name } else { characters.as_str() }
}

fn type_suffix(unit: &str, kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Counter => Some("total"),
        Kind::Gauge if unit == "1" => Some("ratio"),
        Kind::Gauge | Kind::Other => None,
    }
}

/// The words for a unit and for what stands behind its slash. Annotations in braces are no units.
fn unit_words(unit: &str) -> (String, String) {
    let (main, per) = unit.split_once('/').unwrap_or((unit, ""));
    let word = |text: &str, words: &[(&str, &str)]| {
        let text = text.trim();
        if text.contains(['{', '}']) {
            return String::new();
        }
        words.iter().find(|(short, _)| *short == text).map_or(text, |(_, long)| long).to_owned()
    };
    let main = if main.trim() == "1" { String::new() } else { word(main, &UNITS) };
    let per = word(per, &PER_UNITS);
    (main, if per.is_empty() { per } else { format!("per_{per}") })
}

/// A unit as metadata tells it: `bytes_per_second`.
pub(super) fn unit_name(unit: &str) -> String {
    let (main, per) = unit_words(unit);
    let words = [escape_unit(&main), escape_unit(&per)];
    let words: Vec<&str> = words.iter().map(|word| word.trim_matches('_')).filter(|word| !word.is_empty()).collect();
    words.join("_")
}

/// A unit's name in plain characters, no two underscores behind one another.
fn escape_unit(unit: &str) -> String {
    let mut plain = String::with_capacity(unit.len());
    for character in unit.chars() {
        let character = if is_plain(character) { character } else { '_' };
        if character != '_' || !plain.is_empty() && !plain.ends_with('_') {
            plain.push(character);
        }
    }
    plain
}

/// The name of a label.
pub(super) fn label_name(name: &str, translation_escapes: bool) -> String {
    if !translation_escapes {
        return name.to_owned();
    }
    let plain: String =
        name.chars().map(|character| if character.is_ascii_alphanumeric() { character } else { '_' }).collect();
    if plain.starts_with(|first: char| first.is_ascii_digit()) {
        format!("key_{plain}")
    } else if plain.starts_with('_') && !plain.starts_with("__") {
        format!("key{plain}")
    } else {
        plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_named_as_prometheus_names_them() {
        use Kind::{Counter, Gauge, Other};
        // Name, unit, kind; the name by each strategy in the order of `Translation::ALL`.
        for (name, unit, kind, expected) in [
            (
                "http.server.duration",
                "s",
                Other,
                [
                    "http_server_duration_seconds",
                    "http_server_duration",
                    "http.server.duration_seconds",
                    "http.server.duration",
                ],
            ),
            ("requests", "{request}", Counter, ["requests_total", "requests", "requests_total", "requests"]),
            ("requests.total", "1", Counter, ["requests_total", "requests_total", "requests_total", "requests.total"]),
            ("memory.usage", "By", Gauge, ["memory_usage_bytes", "memory_usage", "memory.usage_bytes", "memory.usage"]),
            ("memory.bytes", "By", Gauge, ["memory_bytes", "memory_bytes", "memory.bytes", "memory.bytes"]),
            (
                "cpu.utilization",
                "1",
                Gauge,
                ["cpu_utilization_ratio", "cpu_utilization", "cpu.utilization_ratio", "cpu.utilization"],
            ),
            ("io", "By/s", Gauge, ["io_bytes_per_second", "io", "io_bytes_per_second", "io"]),
            ("io", "{packet}/m", Gauge, ["io_per_minute", "io", "io_per_minute", "io"]),
            ("io", "widgets!/fortnight", Gauge, ["io_widgets_per_fortnight", "io", "io_widgets!_per_fortnight", "io"]),
            ("2xx", "", Counter, ["_2xx_total", "_2xx", "2xx_total", "2xx"]),
            ("a..b__c", "", Gauge, ["a_b_c", "a_b__c", "a..b__c", "a..b__c"]),
            ("grün:x", "", Gauge, ["gr_n:x", "gr_n:x", "grün:x", "grün:x"]),
            ("temp", "Cel", Gauge, ["temp_celsius", "temp", "temp_celsius", "temp"]),
            ("full", "%", Gauge, ["full_percent", "full", "full_percent", "full"]),
        ] {
            let names: Vec<_> = Translation::ALL.map(|one| metric_name(name, unit, kind, one).unwrap()).into();
            assert_eq!(names, expected, "{name} {unit}");
        }
        for empty in ["", ".", "__", "ü"] {
            assert_eq!(metric_name(empty, "", Other, Translation::default()), None, "{empty}");
        }
        assert_eq!(metric_name("", "", Other, Translation::NoTranslation), None);
    }

    #[test]
    fn labels_are_named_as_prometheus_names_them() {
        for (name, expected) in [
            ("http.method", "http_method"),
            ("123x", "key_123x"),
            ("_x", "key_x"),
            ("__x__", "__x__"),
            ("ü", "key_"),
            ("a-b/c", "a_b_c"),
        ] {
            assert_eq!(label_name(name, true), expected);
            assert_eq!(label_name(name, false), name);
        }
    }
}
