//! What all statements are parsed with: tokens with one ahead, names, numbers, lists, errors with their place.

use std::collections::BTreeMap;

use access::statement::AccountStatement;

use super::ast::{Expr, Statement};
use super::duration;
use super::lex::{self, Offset, Token};

/// Longest text.
pub const TEXT_BYTES_MAX: usize = 1024 * 1024;
/// How deep expressions and subqueries may nest.
const DEPTH_MAX: usize = 100;
/// Statements of a text.
const STATEMENTS_MAX: usize = 10_000;

pub(super) type Parsed<T> = Result<T, String>;

/// Words that are no names unless they stand between double quotes.
const KEYWORDS: [&str; 82] = [
    "all",
    "alter",
    "analyze",
    "any",
    "as",
    "asc",
    "begin",
    "by",
    "cardinality",
    "create",
    "continuous",
    "database",
    "databases",
    "default",
    "delete",
    "desc",
    "destinations",
    "diagnostics",
    "distinct",
    "drop",
    "duration",
    "end",
    "every",
    "exact",
    "explain",
    "field",
    "for",
    "from",
    "grant",
    "grants",
    "group",
    "groups",
    "in",
    "inf",
    "insert",
    "into",
    "key",
    "keys",
    "kill",
    "limit",
    "measurement",
    "measurements",
    "name",
    "offset",
    "on",
    "order",
    "password",
    "policy",
    "policies",
    "privileges",
    "queries",
    "query",
    "read",
    "replication",
    "resample",
    "retention",
    "revoke",
    "select",
    "series",
    "set",
    "show",
    "shard",
    "shards",
    "slimit",
    "soffset",
    "stats",
    "subscription",
    "subscriptions",
    "tag",
    "to",
    "user",
    "users",
    "values",
    "verbose",
    "where",
    "with",
    "write",
    "and",
    "or",
    "true",
    "false",
    "group",
];

/// The value of a bind parameter: `$name` in a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter {
    /// A string.
    Text(String),
    /// A number.
    Number(f64),
    /// A whole number.
    Integer(i64),
    /// A yes or no.
    Boolean(bool),
    /// A duration in nanoseconds.
    Duration(i64),
    /// A name, as between double quotes.
    Identifier(String),
    /// A pattern, as between slashes.
    Pattern(String),
}

pub(super) struct Parser<'t> {
    text: &'t str,
    /// Where the next token begins.
    at: Offset,
    pub(super) depth: usize,
    parameters: &'t BTreeMap<String, Parameter>,
}

/// Parses the statements of a text.
pub(crate) fn parse(text: &str, parameters: &BTreeMap<String, Parameter>) -> Result<Vec<Statement>, String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("the query of {} bytes is longer than {TEXT_BYTES_MAX} bytes", text.len()));
    }
    let mut parser = Parser { text, at: lex::skip_space(text, 0), depth: 0, parameters };
    let mut statements = Vec::new();
    loop {
        while parser.accept_mark(";") {}
        if parser.peek() == Token::End {
            return Ok(statements);
        }
        if statements.len() == STATEMENTS_MAX {
            return Err(format!("the query has more than {STATEMENTS_MAX} statements"));
        }
        statements.push(parser.statement()?);
        if !matches!(parser.peek(), Token::End | Token::Mark(";")) {
            return Err(parser.unexpected("; or the end"));
        }
    }
}

impl<'t> Parser<'t> {
    pub(super) fn peek(&self) -> Token<'t> {
        lex::token(self.text, self.at).0
    }

    /// The token after the next one.
    pub(super) fn peek_second(&self) -> Token<'t> {
        let (_, end) = lex::token(self.text, self.at);
        lex::token(self.text, lex::skip_space(self.text, end)).0
    }

    pub(super) fn next(&mut self) -> Token<'t> {
        let (token, end) = lex::token(self.text, self.at);
        self.at = lex::skip_space(self.text, end);
        token
    }

    /// Returns whether the next token follows the last one without a space.
    pub(super) fn touches(&self) -> bool {
        !self.text.get(..self.at).unwrap_or_default().ends_with([' ', '\t', '\n', '\r', '/'])
    }

    /// The error that something else belongs here.
    pub(super) fn unexpected(&self, expected: &str) -> String {
        let before = self.text.get(..self.at).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|character| *character != '\n').count() + 1;
        let found: String = self.peek().error_text().chars().take(100).collect();
        format!("found {found}, expected {expected} at line {line}, char {column}")
    }

    pub(super) fn accept_mark(&mut self, mark: &str) -> bool {
        let is_next = matches!(self.peek(), Token::Mark(found) if found == mark);
        if is_next {
            self.next();
        }
        is_next
    }

    pub(super) fn expect_mark(&mut self, mark: &str) -> Parsed<()> {
        if self.accept_mark(mark) { Ok(()) } else { Err(self.unexpected(mark)) }
    }

    pub(super) fn peek_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if found.eq_ignore_ascii_case(word))
    }

    pub(super) fn accept_word(&mut self, word: &str) -> bool {
        let is_next = self.peek_word(word);
        if is_next {
            self.next();
        }
        is_next
    }

    /// Accepts words in a row, all or none.
    pub(super) fn accept_words(&mut self, words: &[&str]) -> bool {
        let start = self.at;
        let all = words.iter().all(|word| self.accept_word(word));
        if !all {
            self.at = start;
        }
        all
    }

    pub(super) fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.accept_word(word) { Ok(()) } else { Err(self.unexpected(&word.to_uppercase())) }
    }

    /// A name: quoted, a word that is no keyword, or a parameter.
    pub(super) fn name(&mut self) -> Parsed<String> {
        let name = match self.peek() {
            Token::Name(name) => name,
            Token::Word(word) if !is_keyword(word) => word.to_owned(),
            Token::Parameter(name) => match self.parameters.get(&name) {
                Some(Parameter::Identifier(name)) => name.clone(),
                _ => return Err(self.unexpected("identifier")),
            },
            _ => return Err(self.unexpected("identifier")),
        };
        self.next();
        Ok(name)
    }

    /// The value of a parameter.
    pub(super) fn parameter(&mut self, name: &str) -> Parsed<Expr> {
        let parameter = self.parameters.get(name).ok_or_else(|| format!("missing parameter: {name}"))?;
        self.next();
        Ok(match parameter.clone() {
            Parameter::Text(text) => Expr::Text(text),
            Parameter::Number(value) => Expr::Number(value),
            Parameter::Integer(value) => Expr::Integer(value),
            Parameter::Boolean(value) => Expr::Boolean(value),
            Parameter::Duration(duration_ns) => Expr::Duration(duration_ns),
            Parameter::Identifier(name) => Expr::reference(&name),
            Parameter::Pattern(pattern) => Expr::Pattern(pattern),
        })
    }

    /// A pattern between slashes, if one begins here.
    pub(super) fn accept_pattern(&mut self) -> Parsed<Option<String>> {
        if let Token::Parameter(name) = self.peek()
            && let Some(Parameter::Pattern(pattern)) = self.parameters.get(&name)
        {
            self.next();
            return Ok(Some(pattern.clone()));
        }
        if !matches!(self.peek(), Token::Mark("/")) {
            return Ok(None);
        }
        let (pattern, end) =
            lex::pattern(self.text, self.at).ok_or_else(|| self.unexpected("a pattern that ends with /"))?;
        if let Err(error) = regex::Regex::new(&pattern) {
            return Err(self.unexpected(&format!("a regular expression: {error}")));
        }
        self.at = lex::skip_space(self.text, end);
        Ok(Some(pattern))
    }

    pub(super) fn text_literal(&mut self) -> Parsed<String> {
        let Token::Text(text) = self.peek() else {
            return Err(self.unexpected("string"));
        };
        self.next();
        Ok(text)
    }

    pub(super) fn unsigned(&mut self) -> Parsed<u64> {
        let value = match self.peek() {
            Token::Integer(digits) => digits.parse().map_err(|_| self.unexpected("a number below 2^64"))?,
            Token::Parameter(name) => match self.parameters.get(&name) {
                Some(Parameter::Integer(value)) => u64::try_from(*value).map_err(|_| self.unexpected("integer"))?,
                _ => return Err(self.unexpected("integer")),
            },
            _ => return Err(self.unexpected("integer")),
        };
        self.next();
        Ok(value)
    }

    /// A duration in nanoseconds; `INF` is 0.
    pub(super) fn duration(&mut self) -> Parsed<i64> {
        if self.accept_word("inf") {
            return Ok(0);
        }
        let Token::Duration(text) = self.peek() else {
            return Err(self.unexpected("duration"));
        };
        let duration_ns = duration::parse(text).ok_or_else(|| self.unexpected("a duration such as 1h30m"))?;
        self.next();
        Ok(duration_ns)
    }

    /// Items between commas, at least one.
    pub(super) fn list<T>(&mut self, item: impl Fn(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.accept_mark(",") {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Runs a part of the parser one level deeper.
    pub(super) fn nested<T>(&mut self, part: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == DEPTH_MAX {
            return Err(format!("the query nests more than {DEPTH_MAX} levels deep"));
        }
        self.depth += 1;
        let done = part(self);
        self.depth -= 1;
        done
    }

    fn statement(&mut self) -> Parsed<Statement> {
        if self.peek_word("select") {
            return Ok(Statement::Select(Box::new(self.select()?)));
        }
        if self.accept_word("explain") {
            let analyze = self.accept_word("analyze");
            self.accept_word("verbose");
            return Ok(Statement::Explain { analyze, select: Box::new(self.select()?) });
        }
        if self.accept_words(&["show", "users"]) {
            return Ok(Statement::Account(AccountStatement::Users));
        }
        if self.accept_words(&["show", "grants", "for"]) {
            return Ok(Statement::Account(AccountStatement::Grants(self.name()?)));
        }
        if self.accept_word("show") {
            return self.show().map(Statement::Show);
        }
        self.manage()
    }

    /// The words up to the end of the statement, which is passed over.
    pub(super) fn pass_over(&mut self) -> String {
        let start = self.at;
        while !matches!(self.peek(), Token::End | Token::Mark(";")) {
            self.next();
        }
        self.text.get(start..self.at).unwrap_or_default().trim().to_owned()
    }
}

pub(super) fn is_keyword(word: &str) -> bool {
    KEYWORDS.iter().any(|keyword| keyword.eq_ignore_ascii_case(word))
}
