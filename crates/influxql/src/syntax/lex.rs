//! Text to tokens, one at a time: whether `/` begins a pattern is for the parser to say.

/// Where something is in a text, in bytes.
pub(crate) type Offset = usize;

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token<'t> {
    /// Letters, digits and underscores without quotes: a keyword or a name.
    Word(&'t str),
    /// A name between double quotes.
    Name(String),
    /// A text between single quotes.
    Text(String),
    /// Digits.
    Integer(&'t str),
    /// Digits with a point.
    Number(&'t str),
    /// Digits with units.
    Duration(&'t str),
    /// `$name`.
    Parameter(String),
    /// An operator or a punctuation mark.
    Mark(&'static str),
    /// A character or a quotation that means nothing: its beginning.
    Bad(String),
    /// The end of the text.
    End,
}

/// Longest first.
const MARKS: [&str; 26] = [
    "=~", "!~", "!=", "<>", "<=", ">=", "::", "=", "<", ">", "+", "-", "*", "/", "%", "&", "|", "^", "(", ")", ",",
    ";", ".", ":", "!", "~",
];

/// Passes over white space and comments.
pub(crate) fn skip_space(text: &str, mut at: Offset) -> Offset {
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        at += rest.len() - trimmed.len();
        if trimmed.starts_with("--") {
            at += trimmed.find('\n').unwrap_or(trimmed.len());
        } else if trimmed.starts_with("/*") {
            at += trimmed.find("*/").map_or(trimmed.len(), |end| end + 2);
        } else {
            return at;
        }
    }
}

/// The token that begins here, and where it ends.
pub(crate) fn token(text: &str, at: Offset) -> (Token<'_>, Offset) {
    let rest = text.get(at..).unwrap_or_default();
    let Some(first) = rest.chars().next() else {
        return (Token::End, at);
    };
    match first {
        '"' => quoted(rest, at, '"', Token::Name),
        '\'' => quoted(rest, at, '\'', Token::Text),
        '$' => parameter(rest, at),
        '0'..='9' => number(rest, at),
        '.' if rest.get(1..).is_some_and(|next| next.starts_with(|digit: char| digit.is_ascii_digit())) => {
            number(rest, at)
        }
        _ if is_word_start(first) => {
            let word = word(rest);
            (Token::Word(word), at + word.len())
        }
        _ => match MARKS.iter().find(|mark| rest.starts_with(**mark)) {
            Some(mark) => (Token::Mark(mark), at + mark.len()),
            None => (Token::Bad(first.to_string()), at + first.len_utf8()),
        },
    }
}

/// The pattern that begins here with `/`, and where it ends; `None` if it does not end.
pub(crate) fn pattern(text: &str, at: Offset) -> Option<(String, Offset)> {
    let rest = text.get(at..)?.strip_prefix('/')?;
    let mut pattern = String::new();
    let mut characters = rest.char_indices().peekable();
    while let Some((place, character)) = characters.next() {
        match character {
            '/' => return Some((pattern, at + 1 + place + 1)),
            '\n' => return None,
            // Any other escape is the pattern's own.
            '\\' if characters.peek().is_some_and(|(_, next)| *next == '/') => {
                characters.next();
                pattern.push('/');
            }
            _ => pattern.push(character),
        }
    }
    None
}

fn is_word_start(character: char) -> bool {
    character.is_ascii_alphabetic() || character == '_' || (!character.is_ascii() && character.is_alphabetic())
}

fn word(rest: &str) -> &str {
    let end = rest.find(|character| !(is_word_start(character) || character.is_ascii_digit())).unwrap_or(rest.len());
    rest.get(..end).unwrap_or(rest)
}

fn quoted(rest: &str, at: Offset, mark: char, make: fn(String) -> Token<'static>) -> (Token<'_>, Offset) {
    let mut value = String::new();
    let mut characters = rest.char_indices().skip(1);
    while let Some((place, character)) = characters.next() {
        match character {
            '\n' => break,
            '\\' => match characters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, escaped @ ('\\' | '"' | '\''))) => value.push(escaped),
                _ => break,
            },
            _ if character == mark => return (make(value), at + place + 1),
            _ => value.push(character),
        }
    }
    (Token::Bad(value), at + rest.len())
}

fn parameter(rest: &str, at: Offset) -> (Token<'_>, Offset) {
    let behind = rest.get(1..).unwrap_or_default();
    if behind.starts_with('"') {
        return quoted(behind, at + 1, '"', Token::Parameter);
    }
    let name = word(behind);
    if name.is_empty() {
        return (Token::Bad("$".to_owned()), at + 1);
    }
    (Token::Parameter(name.to_owned()), at + 1 + name.len())
}

fn number(rest: &str, at: Offset) -> (Token<'_>, Offset) {
    let digits = |from: usize| {
        let tail = rest.get(from..).unwrap_or_default();
        from + tail.len() - tail.trim_start_matches(|character: char| character.is_ascii_digit()).len()
    };
    let take = |end: usize| rest.get(..end).unwrap_or_default();
    let end = digits(0);
    if rest.get(end..).is_some_and(|tail| tail.starts_with('.')) {
        let end = digits(end + 1);
        return (Token::Number(take(end)), at + end);
    }
    let tail = rest.get(end..).unwrap_or_default();
    let units = tail.find(|character: char| !(character.is_alphanumeric() || character == 'µ')).unwrap_or(tail.len());
    if units == 0 {
        return (Token::Integer(take(end)), at + end);
    }
    (Token::Duration(take(end + units)), at + end + units)
}

impl Token<'_> {
    /// As it stands in errors.
    pub(crate) fn error_text(&self) -> String {
        match self {
            Self::Word(text) | Self::Integer(text) | Self::Number(text) | Self::Duration(text) => (*text).to_owned(),
            Self::Name(text) | Self::Text(text) | Self::Bad(text) => text.clone(),
            Self::Parameter(text) => format!("${text}"),
            Self::Mark(mark) => (*mark).to_owned(),
            Self::End => "EOF".to_owned(),
        }
    }
}
