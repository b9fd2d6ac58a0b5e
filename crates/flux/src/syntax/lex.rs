//! Text to tokens.

use jiff::Timestamp;
use jiff::civil::Date;
use query::Interval;

use super::{FluxError, Position, TEXT_BYTES_MAX};

/// A token and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub(crate) at: Position,
    pub(crate) kind: TokenKind,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TokenKind {
    Word(String),
    Text(String),
    Integer(i64),
    Float(f64),
    Duration(Interval),
    /// Nanoseconds since the Unix epoch.
    Time(i64),
    Pattern(String),
    Symbol(&'static str),
    End,
}

/// Symbols, longer ones before those that they begin with.
const SYMBOLS: [&str; 29] = [
    "|>", "<-", "=>", "==", "!=", "=~", "!~", "<=", ">=", "<", ">", "=", "+", "-", "*", "/", "%", "^", "(", ")", "[",
    "]", "{", "}", ":", ",", ".", "?", "|",
];

const NS_PER_S: i64 = 1_000_000_000;

struct Lexer<'t> {
    rest: &'t str,
    at: Position,
}

/// The tokens of a script; the last one is its end.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, FluxError> {
    let mut lexer = Lexer { rest: text, at: Position { line: 1, column: 1 } };
    if text.len() > TEXT_BYTES_MAX {
        return Err(FluxError::new(lexer.at, format!("the script has more than {TEXT_BYTES_MAX} bytes")));
    }
    let mut tokens: Vec<Token> = Vec::new();
    loop {
        lexer.skip_blanks();
        let at = lexer.at;
        // A slash after a value divides by what follows.
        let is_after_value = tokens.last().is_some_and(|token| ends_value(&token.kind));
        let kind = lexer.token(is_after_value)?;
        let is_end = kind == TokenKind::End;
        tokens.push(Token { at, kind });
        if is_end {
            return Ok(tokens);
        }
    }
}

fn ends_value(kind: &TokenKind) -> bool {
    const NOT_VALUES: [&str; 9] = ["and", "or", "not", "exists", "return", "if", "then", "else", "with"];
    match kind {
        TokenKind::Word(word) => !NOT_VALUES.contains(&word.as_str()),
        TokenKind::Symbol(symbol) => matches!(*symbol, ")" | "]" | "}"),
        _ => true,
    }
}

impl<'t> Lexer<'t> {
    /// Takes so many bytes.
    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        for character in taken.chars() {
            if character == '\n' {
                self.at = Position { line: self.at.line + 1, column: 1 };
            } else {
                self.at.column += 1;
            }
        }
        self.rest = rest;
        taken
    }

    fn take_while(&mut self, is_part: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|character| !is_part(character)).unwrap_or(self.rest.len());
        self.take(end)
    }

    fn skip_blanks(&mut self) {
        loop {
            self.take_while(char::is_whitespace);
            if !self.rest.starts_with("//") {
                return;
            }
            self.take_while(|character| character != '\n');
        }
    }

    fn token(&mut self, is_after_value: bool) -> Result<TokenKind, FluxError> {
        let Some(first) = self.rest.chars().next() else { return Ok(TokenKind::End) };
        if first.is_ascii_digit() {
            return self.number();
        }
        if first.is_alphabetic() || first == '_' {
            let word = self.take_while(|character| character.is_alphanumeric() || character == '_');
            return Ok(TokenKind::Word(word.to_owned()));
        }
        if first == '"' {
            return self.text().map(TokenKind::Text);
        }
        if first == '/' && !is_after_value {
            return self.pattern().map(TokenKind::Pattern);
        }
        match SYMBOLS.iter().find(|symbol| self.rest.starts_with(**symbol)) {
            Some(symbol) => {
                self.take(symbol.len());
                Ok(TokenKind::Symbol(symbol))
            }
            None => Err(FluxError::new(self.at, format!("the character {first:?} is not expected"))),
        }
    }

    fn number(&mut self) -> Result<TokenKind, FluxError> {
        let at = self.at;
        if let Some(length) = time_length(self.rest) {
            let text = self.take(length);
            let time = read_time(text);
            return time.map(TokenKind::Time).ok_or_else(|| FluxError::new(at, format!("{text} is no time")));
        }
        let digits = self.take_while(|character| character.is_ascii_digit());
        let is_fraction = |rest: &str| {
            rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(|character: char| character.is_ascii_digit()))
        };
        if is_fraction(self.rest) {
            self.take(1);
            let fraction = self.take_while(|character| character.is_ascii_digit());
            let number = format!("{digits}.{fraction}").parse();
            return number.map(TokenKind::Float).map_err(|_| FluxError::new(at, "the number cannot be read"));
        }
        if self.rest.starts_with(|character: char| character.is_alphabetic()) {
            return self.duration(at, digits);
        }
        let number = digits.parse();
        number.map(TokenKind::Integer).map_err(|_| FluxError::new(at, format!("{digits} is beyond 64 signed bits")))
    }

    /// A duration, of which the first number was read.
    fn duration(&mut self, at: Position, first: &str) -> Result<TokenKind, FluxError> {
        let bad = |what: &str| FluxError::new(at, format!("{what}: a duration is written as 1h30m, 1d, 1mo or 1y"));
        let (mut interval, mut digits) = (Interval::default(), first);
        loop {
            let unit = self.take_while(char::is_alphabetic);
            let number: i64 = digits.parse().map_err(|_| bad("the duration is too long"))?;
            let part = unit_of(unit, number).ok_or_else(|| bad(&format!("{digits}{unit} is not known")))?;
            interval = interval.checked_add(part).ok_or_else(|| bad("the duration is too long"))?;
            digits = self.take_while(|character| character.is_ascii_digit());
            if digits.is_empty() {
                return Ok(TokenKind::Duration(interval));
            }
        }
    }

    fn text(&mut self) -> Result<String, FluxError> {
        let at = self.at;
        self.take(1);
        let mut text = String::new();
        loop {
            text.push_str(self.take_while(|character| !matches!(character, '"' | '\\' | '$')));
            let escaped = match self.rest.get(..2) {
                _ if self.rest.is_empty() => return Err(FluxError::new(at, "the text has no end")),
                _ if self.rest.starts_with('"') => {
                    self.take(1);
                    return Ok(text);
                }
                Some("${") => {
                    return Err(FluxError::new(self.at, "${…} within texts is not supported: put them together by +"));
                }
                _ if self.rest.starts_with('$') => {
                    text.push_str(self.take(1));
                    continue;
                }
                Some("\\n") => "\n",
                Some("\\r") => "\r",
                Some("\\t") => "\t",
                Some("\\\"") => "\"",
                Some("\\\\") => "\\",
                Some("\\$") => "$",
                _ => {
                    return Err(FluxError::new(
                        self.at,
                        "the escape is not known: there are \\n \\r \\t \\\" \\\\ \\$",
                    ));
                }
            };
            text.push_str(escaped);
            self.take(2);
        }
    }

    fn pattern(&mut self) -> Result<String, FluxError> {
        let at = self.at;
        self.take(1);
        let mut pattern = String::new();
        loop {
            pattern.push_str(self.take_while(|character| !matches!(character, '/' | '\\' | '\n')));
            match self.rest.chars().next() {
                Some('/') => {
                    self.take(1);
                    return Ok(pattern);
                }
                Some('\\') => {
                    let escaped = self.take(1 + self.rest.chars().nth(1).map_or(0, char::len_utf8));
                    pattern.push_str(if escaped == "\\/" { "/" } else { escaped });
                }
                _ => return Err(FluxError::new(at, "the pattern has no end: it stands between two slashes")),
            }
        }
    }
}

/// So many of a unit of time.
fn unit_of(unit: &str, number: i64) -> Option<Interval> {
    let ns = |unit_ns: i64| number.checked_mul(unit_ns).map(Interval::of_ns);
    let months =
        |months: i64| number.checked_mul(months).and_then(|months| i32::try_from(months).ok()).map(Interval::of_months);
    match unit {
        "ns" => ns(1),
        "us" | "µs" => ns(1_000),
        "ms" => ns(1_000_000),
        "s" => ns(NS_PER_S),
        "m" => ns(60 * NS_PER_S),
        "h" => ns(3_600 * NS_PER_S),
        "d" => ns(86_400 * NS_PER_S),
        "w" => ns(7 * 86_400 * NS_PER_S),
        "mo" => months(1),
        "y" => months(12),
        _ => None,
    }
}

/// The bytes of a time that a text begins with: a date, or a date and a time of day with a zone.
fn time_length(text: &str) -> Option<usize> {
    let is_like = |text: &[u8], shape: &[u8]| {
        text.len() == shape.len()
            && text
                .iter()
                .zip(shape)
                .all(|(byte, like)| if *like == b'0' { byte.is_ascii_digit() } else { byte == like })
    };
    let bytes = text.as_bytes();
    if !is_like(bytes.get(..10)?, b"0000-00-00") {
        return None;
    }
    if !bytes.get(10..19).is_some_and(|clock| is_like(clock, b"T00:00:00")) {
        return Some(10);
    }
    let is_part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.');
    let fraction = bytes.iter().skip(19).take_while(|byte| is_part(byte)).count();
    let zone = match bytes.get(19 + fraction) {
        Some(b'Z') => 1,
        Some(b'+' | b'-') => 6,
        _ => 0,
    };
    Some(19 + fraction + zone)
}

/// A time as scripts write it, in nanoseconds since the Unix epoch.
pub(crate) fn read_time(text: &str) -> Option<i64> {
    let timestamp = match text.parse::<Date>() {
        Ok(date) if text.len() == 10 => date.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp(),
        _ => text.parse::<Timestamp>().ok()?,
    };
    i64::try_from(timestamp.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<TokenKind> {
        tokens(text).unwrap().into_iter().map(|token| token.kind).collect()
    }

    #[test]
    fn texts_become_tokens() {
        use TokenKind::{Duration, End, Float, Integer, Pattern, Symbol, Text, Time, Word};
        assert_eq!(
            kinds("from(bucket: \"a\\\"b\") // so\n |> x"),
            [
                Word("from".into()),
                Symbol("("),
                Word("bucket".into()),
                Symbol(":"),
                Text("a\"b".into()),
                Symbol(")"),
                Symbol("|>"),
                Word("x".into()),
                End
            ]
        );
        assert_eq!(
            kinds("1h30m 1mo 2.5 7 2021-01-01 2021-01-01T00:00:01.5Z"),
            [
                Duration(Interval::of_ns(5_400 * NS_PER_S)),
                Duration(Interval::of_months(1)),
                Float(2.5),
                Integer(7),
                Time(1_609_459_200 * NS_PER_S),
                Time(1_609_459_201 * NS_PER_S + 500_000_000),
                End
            ]
        );
        assert_eq!(
            kinds("a =~ /b\\/c\\d/ / 2"),
            [Word("a".into()), Symbol("=~"), Pattern("b/c\\d".into()), Symbol("/"), Integer(2), End]
        );
    }

    #[test]
    fn errors_say_where() {
        for (text, expected) in [
            ("a\n  \"x", "error @2:3: the text has no end"),
            ("1x", "error @1:1: 1x is not known: a duration is written as 1h30m, 1d, 1mo or 1y"),
            ("a #", "error @1:3: the character '#' is not expected"),
            ("99999999999999999999", "error @1:1: 99999999999999999999 is beyond 64 signed bits"),
            ("2021-13-01", "error @1:1: 2021-13-01 is no time"),
            ("= /x", "error @1:3: the pattern has no end: it stands between two slashes"),
            ("\"a${b}\"", "error @1:3: ${…} within texts is not supported: put them together by +"),
        ] {
            assert_eq!(tokens(text).unwrap_err().to_string(), expected, "{text}");
        }
    }
}
