//! Strings and their escapes, which are those of Go.

/// The length of the rest of a string, its closing delimiter included; the opening one has been read.
pub(super) fn scan(rest: &str, delimiter: char) -> Result<usize, String> {
    let raw = delimiter == '`';
    let mut characters = rest.char_indices();
    while let Some((index, c)) = characters.next() {
        match c {
            c if c == delimiter => return Ok(index + c.len_utf8()),
            '\n' if !raw => return Err("unterminated quoted string".to_owned()),
            '\u{fffd}' => return Err("invalid UTF-8 rune".to_owned()),
            '\\' if !raw => check_escape(&mut characters, delimiter)?,
            _ => {}
        }
    }
    Err(if raw { "unterminated raw string" } else { "unterminated quoted string" }.to_owned())
}

fn check_escape(characters: &mut std::str::CharIndices<'_>, delimiter: char) -> Result<(), String> {
    let unfinished = || "escape sequence not terminated".to_owned();
    let (_, kind) = characters.next().ok_or_else(unfinished)?;
    let (digits, base, first) = match kind {
        'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '\\' => return Ok(()),
        c if c == delimiter => return Ok(()),
        '0'..='7' => (3, 8, Some(kind)),
        'x' => (2, 16, None),
        'u' => (4, 16, None),
        'U' => (8, 16, None),
        other => return Err(format!("unknown escape sequence {}", code_point(other))),
    };
    let mut value = first.and_then(|c| c.to_digit(8)).unwrap_or_default();
    for _ in usize::from(first.is_some())..digits {
        let (_, c) = characters.next().ok_or_else(unfinished)?;
        let digit =
            c.to_digit(base).ok_or_else(|| format!("illegal character {} in escape sequence", code_point(c)))?;
        value = value.wrapping_mul(base) + digit;
    }
    let most = if matches!(kind, 'u' | 'U') { 0x10_ffff } else { 255 };
    if value > most || (0xd800..0xe000).contains(&value) {
        return Err("escape sequence is an invalid Unicode code point".to_owned());
    }
    Ok(())
}

/// As Go shows a character in such messages: `U+0041 'A'`.
fn code_point(c: char) -> String {
    format!("U+{:04X} '{c}'", u32::from(c))
}

/// The value of a string with its delimiters. Bytes that are not UTF-8 become U+FFFD.
pub(super) fn unquote(written: &str) -> String {
    let mut characters = written.chars();
    let (Some(delimiter), Some(_)) = (characters.next(), characters.next_back()) else { return String::new() };
    if delimiter == '`' {
        return characters.as_str().replace('\r', "");
    }
    let mut bytes = Vec::with_capacity(written.len());
    while let Some(c) = characters.next() {
        if c == '\\' {
            push_escaped(&mut bytes, &mut characters);
        } else {
            push(&mut bytes, c);
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Returns whether a string's value may be a label's name: any UTF-8 but nothing. What is no UTF-8 has become U+FFFD.
pub(crate) fn is_label_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('\u{fffd}')
}

fn push(bytes: &mut Vec<u8>, c: char) {
    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

fn push_escaped(bytes: &mut Vec<u8>, characters: &mut std::str::Chars<'_>) {
    let Some(kind) = characters.next() else { return };
    let mut value = |count: usize, base: u32, start: u32| {
        let digits = (0..count).filter_map(|_| characters.next()?.to_digit(base));
        digits.fold(start, |value, digit| value.wrapping_mul(base) + digit)
    };
    match kind {
        'a' => bytes.push(7),
        'b' => bytes.push(8),
        'f' => bytes.push(12),
        'n' => bytes.push(b'\n'),
        'r' => bytes.push(b'\r'),
        't' => bytes.push(b'\t'),
        'v' => bytes.push(11),
        '0'..='7' => bytes.push(value(2, 8, kind.to_digit(8).unwrap_or_default()) as u8),
        'x' => bytes.push(value(2, 16, 0) as u8),
        'u' => push(bytes, char::from_u32(value(4, 16, 0)).unwrap_or('\u{fffd}')),
        'U' => push(bytes, char::from_u32(value(8, 16, 0)).unwrap_or('\u{fffd}')),
        other => push(bytes, other),
    }
}

/// A text in double quotes with Go's escapes.
pub(crate) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            // As it is, it would be taken for bytes that are no UTF-8 when the text is read again.
            '\u{fffd}' => quoted.push_str("\\ufffd"),
            other => push_shown(&mut quoted, other),
        }
    }
    quoted.push('"');
    quoted
}

/// A character's number, with at least so many digits.
pub(super) fn hexadecimal(c: char, digits: usize) -> String {
    format!("{:0digits$x}", u32::from(c))
}

fn push_shown(out: &mut String, c: char) {
    match c {
        '\\' => out.push_str("\\\\"),
        '\u{7}' => out.push_str("\\a"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        '\u{b}' => out.push_str("\\v"),
        c if c < ' ' || c == '\u{7f}' => out.extend(["\\x", &hexadecimal(c, 2)]),
        c if c.is_control() || (c.is_whitespace() && c != ' ') => {
            let code = u32::from(c);
            let (mark, digits) = if code < 0x1_0000 { ("\\u", 4) } else { ("\\U", 8) };
            out.extend([mark, &hexadecimal(c, digits)]);
        }
        c => out.push(c),
    }
}

/// A character in single quotes with Go's escapes; the end of the text shows as U+FFFD.
pub(super) fn character(c: Option<char>) -> String {
    let mut shown = String::from("'");
    match c {
        Some('\'') => shown.push_str("\\'"),
        Some(c) => push_shown(&mut shown, c),
        None => shown.push('\u{fffd}'),
    }
    shown.push('\'');
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        for (written, text) in
            [(r#""a\n\t\\\"""#, "a\n\t\\\""), (r"'\'\x41\101\u00e9\U0001F600'", "'AAé😀"), (r"`\n`", "\\n")]
        {
            assert_eq!(scan(&written[1..], written.chars().next().unwrap()), Ok(written.len() - 1));
            assert_eq!(unquote(written), text);
        }
        for bad in [r#"\q""#, r#"\x4g""#, r#"\ud800""#, "abc", r#"\400""#] {
            assert!(scan(bad, '"').is_err(), "{bad}");
        }
        assert_eq!(quote("a\"b\n"), r#""a\"b\n""#);
        let shown = quote(&unquote(r#""a\x82""#));
        assert_eq!(scan(&shown[1..], '"'), Ok(shown.len() - 1), "{shown}");
        assert_eq!(unquote(&shown), "a\u{fffd}");
    }
}
