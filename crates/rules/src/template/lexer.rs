//! Tokens of a template: texts outside of actions, words inside of them.

use super::value::Value;

/// A word of a template.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// Text outside of actions.
    Text(String),
    /// `{{`.
    Open,
    /// `}}`.
    Close,
    /// A keyword or a function.
    Word(String),
    /// `.name`.
    Field(String),
    /// `$name`, or `$` alone.
    Variable(String),
    /// `.`.
    Dot,
    /// A text or a number.
    Constant(Value),
    /// `(`, `)`, `|`, `,`, `=`, `:=`.
    Symbol(&'static str),
}

/// A token, its line, and whether space stands before it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Lexeme {
    pub(super) token: Token,
    pub(super) line: usize,
    pub(super) is_spaced: bool,
}

/// Splits a template into tokens.
pub(super) fn lex(text: &str) -> Result<Vec<Lexeme>, (usize, String)> {
    let mut lexer = Lexer { rest: text, line: 1, lexemes: Vec::new() };
    let mut trims_left = false;
    loop {
        let (outside, action) = match lexer.rest.split_once("{{") {
            Some((outside, action)) => (outside, Some(action)),
            None => (lexer.rest, None),
        };
        let trims_right = action.is_some_and(is_trim_begin);
        let mut shown = outside;
        if trims_left {
            shown = shown.trim_start_matches(is_space);
        }
        if trims_right {
            shown = shown.trim_end_matches(is_space);
        }
        if !shown.is_empty() {
            lexer.push(Token::Text(shown.to_owned()), false);
        }
        lexer.line += outside.matches('\n').count();
        let Some(action) = action else { return Ok(lexer.lexemes) };
        lexer.rest = if trims_right { action.get(2..).unwrap_or_default() } else { action };
        trims_left = lexer.action().map_err(|reason| (lexer.line, reason))?;
    }
}

fn is_space(symbol: char) -> bool {
    matches!(symbol, ' ' | '\t' | '\r' | '\n')
}

fn is_trim_begin(action: &str) -> bool {
    action.strip_prefix('-').is_some_and(|rest| rest.starts_with(is_space))
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    lexemes: Vec<Lexeme>,
}

impl Lexer<'_> {
    fn push(&mut self, token: Token, is_spaced: bool) {
        self.lexemes.push(Lexeme { token, line: self.line, is_spaced });
    }

    fn skip(&mut self, bytes: usize) {
        let (skipped, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.line += skipped.matches('\n').count();
        self.rest = rest;
    }

    /// Reads an action to its end; returns whether it trims the space after it.
    fn action(&mut self) -> Result<bool, String> {
        let inner = self.rest.trim_start_matches(is_space);
        if inner.starts_with("/*") {
            return self.comment();
        }
        self.push(Token::Open, false);
        loop {
            let spaces = self.rest.len() - self.rest.trim_start_matches(is_space).len();
            self.skip(spaces);
            if spaces > 0 && self.rest.starts_with("-}}") {
                self.skip(3);
                self.push(Token::Close, false);
                return Ok(true);
            }
            if self.rest.starts_with("}}") {
                self.skip(2);
                self.push(Token::Close, false);
                return Ok(false);
            }
            let (token, length) = self.token()?;
            self.push(token, spaces > 0);
            self.skip(length);
        }
    }

    fn comment(&mut self) -> Result<bool, String> {
        let end = self.rest.find("*/").ok_or("unclosed comment")?;
        self.skip(end + 2);
        let trimmed = self.rest.trim_start_matches(is_space);
        let spaces = self.rest.len() - trimmed.len();
        if spaces > 0 && trimmed.starts_with("-}}") {
            self.skip(spaces + 3);
            return Ok(true);
        }
        if self.rest.starts_with("}}") {
            self.skip(2);
            return Ok(false);
        }
        Err("comment ends before closing delimiter".to_owned())
    }

    /// The next token, and its bytes.
    fn token(&self) -> Result<(Token, usize), String> {
        let rest = self.rest;
        let first = rest.chars().next().ok_or("unclosed action")?;
        for symbol in [":=", "(", ")", "|", ",", "="] {
            if rest.starts_with(symbol) {
                return Ok((Token::Symbol(symbol), symbol.len()));
            }
        }
        let name =
            |text: &str| text.find(|symbol: char| !symbol.is_alphanumeric() && symbol != '_').unwrap_or(text.len());
        match first {
            '"' | '\'' | '`' => constant(rest, first),
            '$' => {
                let end = 1 + name(rest.get(1..).unwrap_or_default());
                Ok((Token::Variable(rest.get(..end).unwrap_or_default().to_owned()), end))
            }
            '.' if rest
                .get(1..)
                .is_some_and(|rest| rest.starts_with(|next: char| next.is_alphabetic() || next == '_')) =>
            {
                let end = 1 + name(rest.get(1..).unwrap_or_default());
                Ok((Token::Field(rest.get(1..end).unwrap_or_default().to_owned()), end))
            }
            '.' if !rest.get(1..).is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit())) => {
                Ok((Token::Dot, 1))
            }
            _ if first.is_ascii_digit() || "+-.".contains(first) => number(rest),
            _ if first.is_alphabetic() || first == '_' => {
                let end = name(rest);
                Ok((Token::Word(rest.get(..end).unwrap_or_default().to_owned()), end))
            }
            _ => Err(format!("unexpected {first:?} in operand")),
        }
    }
}

fn number(rest: &str) -> Result<(Token, usize), String> {
    let signs = usize::from(rest.starts_with(['+', '-']));
    let digits = rest.get(signs..).unwrap_or_default();
    let mut end = 0;
    let mut before = ' ';
    let is_hex = digits.starts_with("0x") || digits.starts_with("0X");
    for symbol in digits.chars() {
        let is_exponent_sign = matches!(symbol, '+' | '-') && matches!(before, 'e' | 'E') && !is_hex;
        if !(symbol.is_alphanumeric() || symbol == '.' || symbol == '_' || is_exponent_sign) {
            break;
        }
        before = symbol;
        end += symbol.len_utf8();
    }
    let text: String = rest.get(..signs + end).unwrap_or_default().replace('_', "");
    let bare = text.trim_start_matches(['+', '-']);
    let radix = |prefix: &str, radix: u32| {
        let digits = bare.strip_prefix(prefix)?;
        let value = i64::from_str_radix(digits, radix).ok()?;
        Some(if text.starts_with('-') { -value } else { value })
    };
    let whole = radix("0x", 16).or_else(|| radix("0X", 16)).or_else(|| radix("0b", 2)).or_else(|| radix("0o", 8));
    let is_number = bare.starts_with(|symbol: char| symbol.is_ascii_digit() || symbol == '.');
    let value = match whole.or_else(|| text.parse::<i64>().ok()) {
        Some(whole) => Some(Value::Int(whole)),
        None => text.parse::<f64>().ok().filter(|_| is_number).map(Value::Float),
    };
    let value = value.ok_or_else(|| format!("bad number syntax: {text:?}"))?;
    Ok((Token::Constant(value), signs + end))
}

fn constant(rest: &str, delimiter: char) -> Result<(Token, usize), String> {
    let unclosed = || match delimiter {
        '"' => "unterminated quoted string".to_owned(),
        '`' => "unterminated raw quoted string".to_owned(),
        _ => "unterminated character constant".to_owned(),
    };
    let mut text = String::new();
    let mut symbols = rest.char_indices().skip(1);
    while let Some((at, symbol)) = symbols.next() {
        match symbol {
            _ if symbol == delimiter => {
                let value = match (delimiter, text.chars().next()) {
                    ('\'', Some(symbol)) if text.chars().count() == 1 => Value::Int(i64::from(u32::from(symbol))),
                    ('\'', _) => return Err(format!("malformed character constant: '{text}'")),
                    _ => Value::text(text),
                };
                return Ok((Token::Constant(value), at + 1));
            }
            '\n' if delimiter != '`' => return Err(unclosed()),
            '\\' if delimiter != '`' => text.push(escape(&mut symbols).ok_or_else(unclosed)?),
            _ => text.push(symbol),
        }
    }
    Err(unclosed())
}

fn escape(symbols: &mut impl Iterator<Item = (usize, char)>) -> Option<char> {
    let (_, symbol) = symbols.next()?;
    let mut hexadecimal = |count: usize| {
        let code =
            (0..count).try_fold(0u32, |value, _| value.checked_mul(16)?.checked_add(symbols.next()?.1.to_digit(16)?));
        code.and_then(char::from_u32)
    };
    Some(match symbol {
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\u{b}',
        '\\' | '\'' | '"' => symbol,
        'x' => hexadecimal(2)?,
        'u' => hexadecimal(4)?,
        'U' => hexadecimal(8)?,
        _ => return None,
    })
}
