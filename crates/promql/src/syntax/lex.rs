//! Text to tokens, by the rules of Prometheus's scanner: the meaning of a character depends on whether it is in braces, in brackets or in
//! neither.

use crate::syntax::number;
use crate::syntax::span::{ParseError, Span};
use crate::syntax::strings::{self, character, quote};
use crate::syntax::token::{Token, TokenKind};

const WORD_OPERATORS: [&str; 4] = ["and", "or", "unless", "atan2"];

const AGGREGATORS: [&str; 14] = [
    "sum",
    "avg",
    "count",
    "min",
    "max",
    "group",
    "stddev",
    "stdvar",
    "topk",
    "bottomk",
    "count_values",
    "quantile",
    "limitk",
    "limit_ratio",
];

const KEYWORDS: [&str; 13] = [
    "offset",
    "smoothed",
    "anchored",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "fill",
    "fill_left",
    "fill_right",
    "bool",
];

const PREPROCESSORS: [&str; 6] = ["start", "end", "step", "range", "max_of", "min_of"];

/// Preprocessors that may stand inside brackets.
const DURATION_WORDS: [&str; 4] = ["step", "range", "max_of", "min_of"];

/// All tokens, the last one [`TokenKind::End`] or [`TokenKind::Error`], and the scanner's error.
pub(crate) fn tokens(text: &str) -> (Vec<Token>, Option<ParseError>) {
    let mut scanner = Scanner::new(text);
    while scanner.mode != Mode::Done {
        scanner.step();
    }
    (scanner.tokens, scanner.error)
}

/// How a token shows in messages.
pub(crate) fn describe(token: &Token, text: &str) -> String {
    let written = text.get(token.span.start..token.span.end).unwrap_or_default();
    match token.kind {
        TokenKind::End => "end of input".to_owned(),
        TokenKind::Error => "error".to_owned(),
        TokenKind::Mark(_) => quote(written),
        TokenKind::Identifier => format!("identifier {}", quote(written)),
        TokenKind::MetricIdentifier => format!("metric identifier {}", quote(written)),
        TokenKind::Number => format!("number {}", cut(written)),
        TokenKind::Duration => format!("duration {}", cut(written)),
        TokenKind::Text => format!("string {}", cut(written)),
        TokenKind::Operator(_) => format!("<op:{written}>"),
        TokenKind::Aggregator(_) => format!("<aggr:{written}>"),
        TokenKind::Keyword(_) => format!("<{written}>"),
        TokenKind::Preprocessor(_) => cut(written),
    }
}

/// Quoted; of long ones the first ten characters.
fn cut(written: &str) -> String {
    if written.len() <= 10 {
        return quote(written);
    }
    let first: String = written.chars().take(10).collect();
    format!("{}...", quote(&first))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Statements,
    Braces,
    /// Behind `[`, until a number came.
    Brackets,
    Done,
}

struct Scanner<'t> {
    text: &'t str,
    /// Where the next character is.
    position: usize,
    /// Where the token began.
    start: usize,
    tokens: Vec<Token>,
    error: Option<ParseError>,
    mode: Mode,
    parentheses: i64,
    in_brackets: bool,
    got_colon: bool,
    got_duration: bool,
}

const fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

const fn is_alpha(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic()
}

const fn is_word(c: char) -> bool {
    is_alpha(c) || c.is_ascii_digit()
}

fn starts_duration_word(c: char) -> bool {
    matches!(c.to_ascii_lowercase(), 's' | 'r' | 'm')
}

impl<'t> Scanner<'t> {
    const fn new(text: &'t str) -> Self {
        Self {
            text,
            position: 0,
            start: 0,
            tokens: Vec::new(),
            error: None,
            mode: Mode::Statements,
            parentheses: 0,
            in_brackets: false,
            got_colon: false,
            got_duration: false,
        }
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.position..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.position += next.len_utf8();
        Some(next)
    }

    fn take_while(&mut self, belongs: impl Fn(char) -> bool) {
        let rest = self.rest();
        self.position += rest.find(|c| !belongs(c)).unwrap_or(rest.len());
    }

    fn accept(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.position += wanted.len_utf8();
        }
        found
    }

    fn emit(&mut self, kind: TokenKind) {
        self.tokens.push(Token { kind, span: Span::new(self.start, self.position) });
        self.start = self.position;
    }

    fn fail(&mut self, message: impl Into<String>) {
        let span = Span::new(self.start, self.text.len());
        self.error = Some(ParseError::new(span, message));
        self.tokens.push(Token { kind: TokenKind::Error, span });
        self.mode = Mode::Done;
    }

    fn fail_at(&mut self, what: &str, found: Option<char>) {
        self.fail(format!("{what}: {}", character(found)));
    }

    fn step(&mut self) {
        if self.mode != Mode::Brackets && self.rest().starts_with('#') {
            self.take_while(|c| c != '\n' && c != '\r');
            self.start = self.position;
            return;
        }
        if self.peek().is_some_and(is_space) {
            self.take_while(is_space);
            self.start = self.position;
            return;
        }
        match self.mode {
            Mode::Statements => self.statement(),
            Mode::Braces => self.inside_braces(),
            Mode::Brackets => self.inside_brackets(),
            Mode::Done => {}
        }
    }

    fn end(&mut self) {
        if self.parentheses != 0 {
            self.fail("unclosed left parenthesis");
        } else if self.in_brackets {
            self.fail("unclosed left bracket");
        } else {
            self.emit(TokenKind::End);
            self.mode = Mode::Done;
        }
    }

    fn statement(&mut self) {
        let Some(c) = self.next() else { return self.end() };
        match c {
            ',' => self.emit(TokenKind::Mark(',')),
            '*' | '/' | '%' | '+' | '-' | '^' | '@' | '=' | '!' | '<' | '>' => self.operator(c),
            '0'..='9' => self.number(),
            '.' if self.peek().is_some_and(|next| next.is_ascii_digit()) => self.number(),
            '"' | '\'' | '`' => self.string(c),
            ':' if self.in_brackets && self.got_colon => self.fail(format!("unexpected colon {}", character(Some(c)))),
            ':' if self.in_brackets => {
                self.got_colon = true;
                self.emit(TokenKind::Mark(':'));
            }
            c if self.in_brackets && is_alpha(c) => {
                if !starts_duration_word(c) || !self.duration_word() {
                    self.fail(format!("unexpected character: {}, expected ':'", character(Some(c))));
                }
            }
            c if is_alpha(c) || c == ':' => self.word(),
            '(' => {
                self.parentheses += 1;
                self.emit(TokenKind::Mark('('));
            }
            ')' => self.right_parenthesis(),
            '{' => {
                self.emit(TokenKind::Mark('{'));
                self.mode = Mode::Braces;
            }
            '[' => self.left_bracket(),
            ']' if self.in_brackets => {
                self.in_brackets = false;
                self.emit(TokenKind::Mark(']'));
            }
            ']' => self.fail(format!("unexpected right bracket {}", character(Some(c)))),
            _ => self.fail_at("unexpected character", Some(c)),
        }
    }

    fn right_parenthesis(&mut self) {
        self.parentheses -= 1;
        if self.parentheses < 0 {
            self.start = self.position;
            return self.fail("unexpected right parenthesis ')'");
        }
        self.emit(TokenKind::Mark(')'));
    }

    fn left_bracket(&mut self) {
        if self.in_brackets {
            return self.fail("unexpected left bracket '['");
        }
        self.emit(TokenKind::Mark('['));
        self.got_colon = false;
        self.in_brackets = true;
        self.mode = Mode::Brackets;
    }

    fn operator(&mut self, first: char) {
        let operator = match first {
            '=' if self.accept('=') => "==",
            '=' if self.peek() == Some('~') => return self.fail_at("unexpected character after '='", Some('~')),
            '=' => return self.emit(TokenKind::Mark('=')),
            '!' if self.accept('=') => "!=",
            '!' => {
                let next = self.next();
                return self.fail_at("unexpected character after '!'", next);
            }
            '<' if self.accept('=') => "<=",
            '<' if self.accept('/') => "</",
            '<' => "<",
            '>' if self.accept('=') => ">=",
            '>' if self.accept('/') => ">/",
            '>' => ">",
            '*' => "*",
            '/' => "/",
            '%' => "%",
            '+' => "+",
            '-' => "-",
            '^' => "^",
            _ => "@",
        };
        self.emit(TokenKind::Operator(operator));
    }

    fn number(&mut self) {
        self.position = self.start;
        let (kind, length) = number::scan(self.rest());
        self.position += length;
        match kind {
            Some(kind) => self.emit(kind),
            None => {
                let written = self.text.get(self.start..self.position).unwrap_or_default();
                self.fail(format!("bad number or duration syntax: {}", quote(written)));
            }
        }
        if self.mode == Mode::Brackets {
            self.got_duration = true;
            self.mode = Mode::Statements;
        }
    }

    fn string(&mut self, delimiter: char) {
        match strings::scan(self.rest(), delimiter) {
            Ok(length) => {
                self.position += length;
                self.emit(TokenKind::Text);
            }
            Err(message) => self.fail(message),
        }
    }

    fn word(&mut self) {
        self.take_while(|c| is_word(c) || c == ':');
        let written = self.text.get(self.start..self.position).unwrap_or_default();
        let kind = word_kind(written, self.rest());
        self.emit(kind);
    }

    fn duration_word(&mut self) -> bool {
        self.take_while(is_alpha);
        let written = self.text.get(self.start..self.position).unwrap_or_default();
        let found = find(&DURATION_WORDS, written);
        if let Some(word) = found {
            self.emit(TokenKind::Preprocessor(word));
        }
        found.is_some()
    }

    fn inside_braces(&mut self) {
        let Some(c) = self.next() else { return self.fail("unexpected end of input inside braces") };
        match c {
            c if is_alpha(c) => {
                self.take_while(is_word);
                self.emit(TokenKind::Identifier);
            }
            ',' => self.emit(TokenKind::Mark(',')),
            '"' | '\'' | '`' => self.string(c),
            '=' if self.accept('~') => self.emit(TokenKind::Operator("=~")),
            '=' => self.emit(TokenKind::Mark('=')),
            '!' => match self.next() {
                Some('~') => self.emit(TokenKind::Operator("!~")),
                Some('=') => self.emit(TokenKind::Operator("!=")),
                other => self.fail_at("unexpected character after '!' inside braces", other),
            },
            '{' => self.fail("unexpected left brace '{'"),
            '}' => {
                self.emit(TokenKind::Mark('}'));
                self.mode = Mode::Statements;
            }
            _ => self.fail_at("unexpected character inside braces", Some(c)),
        }
    }

    fn inside_brackets(&mut self) {
        let Some(c) = self.next() else { return self.fail("unexpected end of input in duration expression") };
        match c {
            ']' => {
                self.emit(TokenKind::Mark(']'));
                self.in_brackets = false;
                self.got_colon = false;
                self.mode = Mode::Statements;
            }
            ':' if !self.got_duration => {
                self.start = self.position;
                self.fail("unexpected colon before duration in duration expression");
            }
            ':' if self.got_colon => {
                self.start = self.position;
                self.fail("unexpected repeated colon in duration expression");
            }
            ':' => {
                self.got_colon = true;
                self.emit(TokenKind::Mark(':'));
            }
            '(' => {
                self.parentheses += 1;
                self.emit(TokenKind::Mark('('));
            }
            ')' => self.right_parenthesis(),
            '+' | '-' | '*' | '/' | '%' | '^' => self.operator(c),
            ',' => self.emit(TokenKind::Mark(',')),
            '0'..='9' => self.number(),
            '.' if self.peek().is_some_and(|next| next.is_ascii_digit()) => self.number(),
            c if starts_duration_word(c) && self.duration_word() => {}
            _ => self.fail_at("unexpected character in duration expression", Some(c)),
        }
    }
}

fn find(words: &[&'static str], written: &str) -> Option<&'static str> {
    words.iter().find(|word| word.eq_ignore_ascii_case(written)).copied()
}

fn word_kind(written: &str, rest: &str) -> TokenKind {
    if written.eq_ignore_ascii_case("inf") || written.eq_ignore_ascii_case("nan") {
        return TokenKind::Number;
    }
    if let Some(word) = find(&WORD_OPERATORS, written) {
        return TokenKind::Operator(word);
    }
    if let Some(word) = find(&AGGREGATORS, written) {
        return TokenKind::Aggregator(word);
    }
    if let Some(word) = find(&KEYWORDS, written) {
        // `fill` and its like are ordinary names unless a value follows.
        let plain = word.starts_with("fill") && !rest.trim_start_matches(is_space).starts_with('(');
        return if plain { TokenKind::Identifier } else { TokenKind::Keyword(word) };
    }
    if let Some(word) = find(&PREPROCESSORS, written) {
        return TokenKind::Preprocessor(word);
    }
    if written.contains(':') { TokenKind::MetricIdentifier } else { TokenKind::Identifier }
}
