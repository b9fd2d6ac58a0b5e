//! `printf` as Go's `fmt` has it: flags, width, precision, and the verbs that make sense of the values of templates.

use std::fmt::Write;

use super::value::Value;

/// Characters that a width or a precision may ask for.
const WIDTH_MAX: usize = 1_000;

#[derive(Debug, Default)]
struct Flags {
    /// Those of `-+# 0` that are there.
    symbols: String,
    width: Option<usize>,
    precision: Option<usize>,
}

impl Flags {
    fn has(&self, symbol: char) -> bool {
        self.symbols.contains(symbol)
    }
}

/// Formats values.
pub(super) fn sprintf(format: &str, values: &[Value]) -> String {
    let mut out = String::new();
    let mut values = values.iter();
    let mut rest = format.chars().peekable();
    while let Some(symbol) = rest.next() {
        if symbol != '%' {
            out.push(symbol);
            continue;
        }
        let flags = read_flags(&mut rest, &mut values);
        match rest.next() {
            None => out.push_str("%!(NOVERB)"),
            Some('%') => out.push('%'),
            Some(verb) => match values.next() {
                None => {
                    let _ = write!(out, "%!{verb}(MISSING)");
                }
                Some(value) => out.push_str(&pad(&format_value(value, verb, &flags), value, &flags)),
            },
        }
    }
    let extra: Vec<String> = values.map(|value| format!("{}={}", value.type_name(), value.print())).collect();
    if !extra.is_empty() {
        let _ = write!(out, "%!(EXTRA {})", extra.join(", "));
    }
    out
}

fn read_flags(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, values: &mut std::slice::Iter<'_, Value>) -> Flags {
    let mut flags = Flags::default();
    while let Some(flag) = rest.next_if(|symbol| "-+# 0".contains(*symbol)) {
        if !flags.has(flag) {
            flags.symbols.push(flag);
        }
    }
    let mut number = |rest: &mut std::iter::Peekable<std::str::Chars<'_>>| {
        if rest.next_if_eq(&'*').is_some() {
            return match values.next() {
                Some(Value::Int(number)) => usize::try_from(*number).ok().map(|number| number.min(WIDTH_MAX)),
                _ => None,
            };
        }
        let mut found = None;
        while let Some(digit) = rest.next_if(char::is_ascii_digit) {
            let digit = digit.to_digit(10).unwrap_or(0) as usize;
            found = Some((found.unwrap_or(0usize) * 10 + digit).min(WIDTH_MAX));
        }
        found
    };
    flags.width = number(rest);
    if rest.next_if_eq(&'.').is_some() {
        flags.precision = Some(number(rest).unwrap_or(0));
    }
    flags
}

fn pad(text: &str, value: &Value, flags: &Flags) -> String {
    let length = text.chars().count();
    let missing = flags.width.unwrap_or(0).saturating_sub(length);
    let is_number = matches!(value, Value::Int(_) | Value::Float(_));
    if flags.has('-') {
        format!("{text}{}", " ".repeat(missing))
    } else if flags.has('0') && is_number && !text.ends_with("Inf") && text != "NaN" {
        let signs = text.len() - text.trim_start_matches(['-', '+', ' ']).len();
        let (sign, digits) = text.split_at(signs);
        format!("{sign}{}{digits}", "0".repeat(missing))
    } else {
        format!("{}{text}", " ".repeat(missing))
    }
}

fn signed(text: String, flags: &Flags) -> String {
    let sign = if flags.has('+') { "+" } else { " " };
    let is_signed = text.starts_with('-') || !(flags.has('+') || flags.has(' '));
    if is_signed { text } else { format!("{sign}{text}") }
}

fn format_value(value: &Value, verb: char, flags: &Flags) -> String {
    let bad = || format!("%!{verb}({}={})", value.type_name(), value.print());
    match (verb, value) {
        ('T', _) => value.type_name().to_owned(),
        ('v', Value::Float(number)) => signed(float(*number, 'v', flags.precision), flags),
        ('v', Value::Text(text)) if flags.has('#') => quote(text),
        ('v' | 'd', Value::Int(number)) | ('d', Value::Duration(number)) => signed(number.to_string(), flags),
        ('v', Value::Nil) => "<nil>".to_owned(),
        ('s', Value::Text(text)) => truncated(text, flags.precision).to_owned(),
        ('v', _)
        | ('t', Value::Bool(_))
        | ('s', Value::Time(_) | Value::Duration(_) | Value::Labels(_) | Value::List(_) | Value::Map(_)) => {
            value.print()
        }
        ('q', Value::Text(text)) => quote(truncated(text, flags.precision)),
        ('q', Value::Int(number)) => character(*number).map_or_else(bad, |symbol| format!("'{symbol}'")),
        ('c', Value::Int(number)) => character(*number).map_or_else(bad, |symbol| symbol.to_string()),
        ('U', Value::Int(number)) => format!("U+{number:04X}"),
        ('b', Value::Int(number)) => radix(*number, |number| format!("{number:b}"), flags),
        ('o', Value::Int(number)) => radix(*number, |number| format!("{number:o}"), flags),
        ('x', Value::Int(number)) => radix(*number, |number| format!("{number:x}"), flags),
        ('X', Value::Int(number)) => radix(*number, |number| format!("{number:X}"), flags),
        ('x', Value::Text(text)) => hexadecimal(text),
        ('X', Value::Text(text)) => hexadecimal(text).to_ascii_uppercase(),
        ('e' | 'E' | 'f' | 'F' | 'g' | 'G', Value::Float(number)) => {
            signed(float(*number, verb, flags.precision), flags)
        }
        _ => bad(),
    }
}

fn hexadecimal(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        // Writing into a string does not fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

fn truncated(text: &str, characters: Option<usize>) -> &str {
    let end = characters.and_then(|count| text.char_indices().nth(count)).map_or(text.len(), |(at, _)| at);
    text.get(..end).unwrap_or(text)
}

fn character(number: i64) -> Option<char> {
    u32::try_from(number).ok().and_then(char::from_u32)
}

fn radix(number: i64, format: impl Fn(u64) -> String, flags: &Flags) -> String {
    let digits = format(number.unsigned_abs());
    signed(if number < 0 { format!("-{digits}") } else { digits }, flags)
}

/// A text in quotes, as Go quotes it.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::from('"');
    for symbol in text.chars() {
        match symbol {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            _ if symbol.is_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(symbol));
            }
            _ => out.push(symbol),
        }
    }
    out.push('"');
    out
}

/// A number by one of Go's verbs for it; `v` is the shortest text that gives the number again.
pub(super) fn float(value: f64, verb: char, precision: Option<usize>) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = match verb {
        'f' | 'F' => format!("{value:.*}", precision.unwrap_or(6)),
        'e' | 'E' => exponent_text(&format!("{value:.*e}", precision.unwrap_or(6))),
        _ => general(value, precision),
    };
    if verb.is_ascii_uppercase() { text.to_ascii_uppercase() } else { text }
}

/// `%g`: as an exponent where that is below -4, or where the digits do not reach; those of shortest texts are taken for six.
fn general(value: f64, precision: Option<usize>) -> String {
    let scientific = match precision {
        Some(digits) => format!("{value:.*e}", digits.max(1) - 1),
        None => format!("{value:e}"),
    };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let limit = precision.map_or(6, |precision| precision.max(1) as i32);
    let trim = |text: &str| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
    };
    if exponent < -4 || exponent >= limit {
        return exponent_text(&format!("{}e{exponent}", trim(mantissa)));
    }
    match precision {
        Some(precision) => trim(&format!("{value:.*}", (precision.max(1) as i32 - 1 - exponent).max(0) as usize)),
        None => format!("{value}"),
    }
}

/// Go writes exponents with a sign and two digits at least.
fn exponent_text(text: &str) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}
