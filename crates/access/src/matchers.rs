//! Label matchers as text: `{env="prod",team=~"a|b"}`.

use std::fmt::Write;

use model::{MatchOp, Matcher};

/// Writes matchers in braces; nothing if there are none.
pub(crate) fn write(matchers: &[Matcher], out: &mut impl Write) -> std::fmt::Result {
    for (position, matcher) in matchers.iter().enumerate() {
        let op = match matcher.op {
            MatchOp::Equal => "=",
            MatchOp::NotEqual => "!=",
            MatchOp::Regex => "=~",
            MatchOp::NotRegex => "!~",
        };
        out.write_char(if position == 0 { '{' } else { ',' })?;
        write!(out, "{}{op}\"", matcher.name)?;
        for character in matcher.value.chars() {
            match character {
                '"' | '\\' => write!(out, "\\{character}")?,
                '\n' => out.write_str("\\n")?,
                _ => out.write_char(character)?,
            }
        }
        out.write_char('"')?;
    }
    if matchers.is_empty() { Ok(()) } else { out.write_char('}') }
}

/// Reads what [`write`] writes; spaces may stand around names and values.
pub(crate) fn parse(text: &str) -> Result<Vec<Matcher>, String> {
    let inner = text.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let mut rest = inner.ok_or("matchers stand in braces, as {env=\"prod\"}")?.trim();
    let mut matchers = Vec::new();
    while !rest.is_empty() {
        let (matcher, after) = parse_one(rest)?;
        matchers.push(matcher);
        rest = after.trim_start();
        rest = match rest.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None if rest.is_empty() => rest,
            None => return Err(format!("a comma is missing before {rest}")),
        };
    }
    Ok(matchers)
}

fn parse_one(text: &str) -> Result<(Matcher, &str), String> {
    let name_end = text.find(['=', '!', ' ']).ok_or_else(|| format!("{text} has no operator: =, !=, =~ or !~"))?;
    let (name, rest) = text.split_at(name_end);
    let is_name = |(place, character): (usize, char)| {
        character == '_' || character.is_ascii_alphabetic() || (place > 0 && character.is_ascii_digit())
    };
    if name.is_empty() || !name.char_indices().all(is_name) {
        return Err(format!("{name:?} is no label's name"));
    }
    let rest = rest.trim_start();
    let ops = [("=~", MatchOp::Regex), ("!~", MatchOp::NotRegex), ("!=", MatchOp::NotEqual), ("=", MatchOp::Equal)];
    let found = ops.into_iter().find_map(|(text, op)| rest.strip_prefix(text).map(|rest| (op, rest)));
    let (op, rest) = found.ok_or_else(|| format!("{rest} does not begin with =, !=, =~ or !~"))?;
    let quoted = rest.trim_start().strip_prefix('"').ok_or("a matcher's value stands in double quotes")?;
    let (value, after) = unquote(quoted)?;
    Ok((Matcher::new(name, op, value), after))
}

/// The text up to the closing quote, and what comes after it.
fn unquote(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            '"' => return Ok((value, text.get(place + 1..).unwrap_or_default())),
            '\\' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('"' | '\\'))) => value.push(escaped),
                _ => return Err("a backslash stands before a quote, a backslash or n".to_owned()),
            },
            _ => value.push(character),
        }
    }
    Err("a quote is not closed".to_owned())
}
