//! Which of Prometheus's two text formats a file has: they differ in the unit of their times.

/// Bytes of a file's beginning that are looked at.
pub(super) const HEAD_BYTES: u64 = 1 << 20;

/// The line that ends OpenMetrics, and nothing else.
const END: &[u8] = b"# EOF";

/// Types that only OpenMetrics has.
const TYPES: [&[u8]; 4] = [b"unknown", b"info", b"stateset", b"gaugehistogram"];

/// Returns whether a text is OpenMetrics, by its beginning and its end. Without `# EOF` it is if it has what the other format has not:
/// times with a point, exemplars, units, or one of its types.
pub(super) fn is_openmetrics(head: &[u8], tail: &[u8]) -> bool {
    ends(tail) || head.split(|byte| *byte == b'\n').any(|line| line_tells(line.trim_ascii()))
}

/// Returns whether a text ends as OpenMetrics does.
pub(super) fn ends(text: &[u8]) -> bool {
    let text = text.trim_ascii_end();
    text.strip_suffix(END).is_some_and(|before| before.is_empty() || before.ends_with(b"\n"))
}

fn line_tells(line: &[u8]) -> bool {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    if line.starts_with(b"#") {
        return match words.nth(1) {
            Some(b"EOF" | b"UNIT") => true,
            Some(b"TYPE") => words.nth(1).is_some_and(|kind| TYPES.contains(&kind)),
            _ => false,
        };
    }
    let mut words = after_labels(line).split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).skip(1);
    match words.next() {
        None => false,
        Some(b"#") => true,
        Some(time) => time.contains(&b'.') || words.next() == Some(b"#"),
    }
}

/// A sample's value and what is after it.
fn after_labels(line: &[u8]) -> &[u8] {
    let (mut in_quotes, mut escaped, mut in_braces) = (false, false, false);
    for (at, byte) in line.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_quotes => escaped = true,
            b'"' => in_quotes = !in_quotes,
            b'{' if !in_quotes => in_braces = true,
            b'}' if !in_quotes => return line.get(at + 1..).unwrap_or_default(),
            b' ' | b'\t' if !in_quotes && !in_braces && line.get(at + 1) != Some(&b'{') => {
                return line.get(at..).unwrap_or_default();
            }
            _ => {}
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_told_from_the_other_text() {
        for text in [
            "up 1\n# EOF\n",
            "# EOF",
            "# UNIT a_seconds seconds\n",
            "# TYPE a info\n",
            "up{a=\"b} # c\"} 1 1700000000.000\n",
            "up 1 1700000000.5",
            "a_total{b=\"c\"} 5 # {trace_id=\"x\"} 1\n",
            "a_total 5 17 # {} 1\n",
        ] {
            assert!(is_openmetrics(text.as_bytes(), text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "# TYPE a counter\n# HELP a # EOF\nup 1 60000\n",
            "up{a=\"1 1.5 # {\"} 1.5 60000\n",
            "{__name__=\"up\", a=\"b\"} 1.5 60000\n",
            "up {a=\"b\"} 0.5\n",
            "# TYPE a untyped\nx # EOF",
        ] {
            assert!(!is_openmetrics(text.as_bytes(), text.as_bytes()), "{text}");
        }
    }
}
