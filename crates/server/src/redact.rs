//! Texts of queries without the passwords in them: for lists and logs, which others read than those who sent them.

use std::borrow::Cow;

/// What stands for a password.
const REDACTED: &str = "'[REDACTED]'";

/// Words after which texts in quotes are secret, to the end of the statement.
const SECRET_WORDS: [&str; 7] = ["password", "passwd", "pwd", "secret", "token", "identified", "credentials"];

/// Signs after which languages do not agree on where a text in quotes ends: comments, and a backslash before a quote.
const UNCLEAR: [&str; 3] = ["--", "/*", "\\"];

/// Replaces each text in quotes that comes after a word such as `PASSWORD` in its statement.
///
/// It need not know the language: `CREATE USER a WITH PASSWORD 'b'`, `SET PASSWORD FOR "a" = 'b'`, `ALTER ROLE a PASSWORD 'b'`, and what
/// cannot be parsed. Where a text has comments or backslashes, all of it after the first such word is replaced. Too much is replaced rather
/// than too little; names in double quotes stay, but right after the word or a sign.
pub(crate) fn passwords(text: &str) -> Cow<'_, str> {
    match addresses(text) {
        Cow::Borrowed(text) => quoted_secrets(text),
        Cow::Owned(text) => Cow::Owned(quoted_secrets(&text).into_owned()),
    }
}

/// Leaves out what may be secret in addresses: `https://user:password@host/path?token=x` becomes `https://…@host/path?…`.
pub(crate) fn addresses(text: &str) -> Cow<'_, str> {
    const SIGN: &str = "://";
    if !text.contains(SIGN) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(SIGN) {
        let (before, address) = rest.split_at(at + SIGN.len());
        out.push_str(before);
        let is_end = |character: char| character.is_whitespace() || ['\'', '"', ',', ')', ';'].contains(&character);
        let (address, after) = address.split_at(address.find(is_end).unwrap_or(address.len()));
        let host_end = address.find(['/', '?', '#']).unwrap_or(address.len());
        let host_start = address.get(..host_end).and_then(|host| host.rfind('@')).unwrap_or(0);
        out.push_str(if host_start > 0 { "…" } else { "" });
        let address = address.get(host_start..).unwrap_or_default();
        match address.split_once('?') {
            Some((path, _)) => {
                out.push_str(path);
                out.push_str("?…");
            }
            None => out.push_str(address),
        }
        rest = after;
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn quoted_secrets(text: &str) -> Cow<'_, str> {
    let Some(first_end) = first_secret_end(text) else { return Cow::Borrowed(text) };
    if UNCLEAR.iter().any(|sign| text.contains(sign)) {
        return Cow::Owned(format!("{} {REDACTED}", text.get(..first_end).unwrap_or_default()));
    }
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut is_secret, mut last_word) = (text, false, String::new());
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' => quoted_length(rest, '\''),
            '"' => quoted_length(rest, '"'),
            '$' => dollar_quoted_length(rest),
            ';' => {
                is_secret = false;
                1
            }
            _ if is_word(first) => rest.find(|character| !is_word(character)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (piece, after) = rest.split_at(length);
        rest = after;
        let is_quoted = piece.len() > 1 && matches!(first, '\'' | '$') || first == '\'';
        let is_name = first == '"' && !(SECRET_WORDS.contains(&last_word.as_str()) || last_word == "=");
        if is_secret && (is_quoted || first == '"' && !is_name) {
            out.push_str(REDACTED);
        } else {
            out.push_str(piece);
        }
        if !piece.trim().is_empty() {
            last_word = piece.to_lowercase();
        }
        is_secret |= is_word(first) && mentions_secret(piece);
    }
    Cow::Owned(out)
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn mentions_secret(text: &str) -> bool {
    first_secret_end(text).is_some()
}

/// Where the first of those words ends.
fn first_secret_end(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let end = |word: &&str| {
        let place = bytes.windows(word.len()).position(|window| window.eq_ignore_ascii_case(word.as_bytes()));
        place.map(|place| place + word.len())
    };
    SECRET_WORDS.iter().filter_map(end).min()
}

/// Bytes of a text in quotes, with both; one without an end goes on to the end. A backslash or a second quote stands for a quote.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((place, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if character == quote {
            if characters.peek().is_some_and(|(_, next)| *next == quote) {
                characters.next();
            } else {
                return place + quote.len_utf8();
            }
        }
    }
    text.len()
}

/// Length of a text quoted as `$$…$$` or `$tag$…$tag$`; 1 for a dollar that begins nothing.
fn dollar_quoted_length(text: &str) -> usize {
    let after = text.get(1..).unwrap_or_default();
    let ends_tag = |end: &usize| after.get(*end..).is_some_and(|rest| rest.starts_with('$'));
    let Some(tag_bytes) = after.find(|character| !is_word(character)).filter(ends_tag) else { return 1 };
    let (tag, content) = text.split_at(tag_bytes + 2);
    content.find(tag).map_or(text.len(), |end| tag.len() + end + tag.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_keep_what_is_no_secret() {
        let text = "CREATE TRIGGER t DO WEBHOOK 'https://u:p@h.example:1/x?token=y', udp://10.0.0.1:9 and http://a/b";
        let expected = "CREATE TRIGGER t DO WEBHOOK 'https://…@h.example:1/x?…', udp://10.0.0.1:9 and http://a/b";
        assert_eq!(passwords(text), expected);
        assert_eq!(addresses("no address"), "no address");
    }

    #[test]
    fn passwords_are_not_shown() {
        for (text, shown) in [
            ("CREATE USER a WITH PASSWORD 'b c'", "CREATE USER a WITH PASSWORD '[REDACTED]'"),
            (
                "create user \"a\" with password 'it''s' ; show databases",
                "create user \"a\" with password '[REDACTED]' ; show databases",
            ),
            ("SET PASSWORD FOR \"admin\" = 'x\\'y'", "SET PASSWORD '[REDACTED]'"),
            ("-- don't\nCREATE USER a WITH PASSWORD 'b'", "-- don't\nCREATE USER a WITH PASSWORD '[REDACTED]'"),
            ("ALTER ROLE a PASSWORD /*'*/ 'b'", "ALTER ROLE a PASSWORD '[REDACTED]'"),
            ("SELECT 'a\\'; ALTER ROLE a PASSWORD 'b'", "SELECT 'a\\'; ALTER ROLE a PASSWORD '[REDACTED]'"),
            ("SELECT 'it''s' -- no secret", "SELECT 'it''s' -- no secret '[REDACTED]'"),
            (
                "ALTER ROLE a ENCRYPTED PASSWORD $$b$$; SELECT 'c'",
                "ALTER ROLE a ENCRYPTED PASSWORD '[REDACTED]'; SELECT 'c'",
            ),
            ("ALTER ROLE a PASSWORD $t$b$$c$t$", "ALTER ROLE a PASSWORD '[REDACTED]'"),
            ("CREATE USER a IDENTIFIED BY 'b", "CREATE USER a IDENTIFIED BY '[REDACTED]'"),
            ("x password \"b\"", "x password '[REDACTED]'"),
            ("COPY t FROM 'a' (secret_access_key='b')", "COPY t FROM 'a' (secret_access_key='[REDACTED]')"),
            ("SELECT \"password\" FROM t WHERE h = 'ü'", "SELECT \"password\" FROM t WHERE h = 'ü'"),
            ("SELECT v FROM t WHERE h = 'a' AND x = $1", "SELECT v FROM t WHERE h = 'a' AND x = $1"),
            ("password $", "password $"),
        ] {
            assert_eq!(passwords(text), shown);
        }
    }
}
