//! Reading tokens one after another: what all statements share that the grammar does not have.

use sqlparser::dialect::Dialect;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Word};

use crate::error::SqlError;

/// Expressions, queries and parentheses within one another.
pub(super) const DEPTH_MAX: usize = 50;

/// An error of the grammar.
pub(super) fn syntax(error: &sqlparser::parser::ParserError) -> SqlError {
    SqlError::Syntax(error.to_string().trim_start_matches("sql parser error: ").to_owned())
}

/// A position in the tokens of a text.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) tokens: &'a [TokenWithSpan],
    pub(super) next: usize,
    pub(super) dialect: &'a dyn Dialect,
}

/// A statement that the grammar does not have: tokens of one that it has, how many were read in their place, and where the last of these stands.
pub(super) struct StandIn<S> {
    pub(super) tokens: Vec<TokenWithSpan>,
    pub(super) read: usize,
    pub(super) at: Location,
    pub(super) statement: S,
}

/// A token as it is written: the tokenizer has taken out what quotes texts and names.
pub(super) fn written(token: &Token) -> String {
    match token {
        Token::SingleQuotedString(text) => format!("'{}'", text.replace('\'', "''")),
        Token::EscapedStringLiteral(text) => format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''")),
        Token::Word(word) if word.quote_style == Some('"') => format!("\"{}\"", word.value.replace('"', "\"\"")),
        other => other.to_string(),
    }
}

impl<'a> Cursor<'a> {
    /// A cursor at the first of some tokens.
    pub(super) const fn new(tokens: &'a [TokenWithSpan], dialect: &'a dyn Dialect) -> Self {
        Self { tokens, next: 0, dialect }
    }

    /// A cursor of the same dialect at the first of other tokens.
    pub(super) const fn with_tokens(&self, tokens: &'a [TokenWithSpan]) -> Self {
        Self::new(tokens, self.dialect)
    }

    /// Takes a symbol if it comes next; returns whether it did.
    pub(super) fn take_symbol(&mut self, symbol: &Token) -> bool {
        let found = self.peek().is_some_and(|token| token.token == *symbol);
        self.next += usize::from(found);
        found
    }

    pub(super) fn peek(&self) -> Option<&'a TokenWithSpan> {
        self.tokens.get(self.next)
    }

    pub(super) fn word(&self, ahead: usize) -> Option<&'a Word> {
        match self.tokens.get(self.next + ahead).map(|token| &token.token) {
            Some(Token::Word(word)) if word.quote_style.is_none() => Some(word),
            _ => None,
        }
    }

    /// Returns whether a token ahead is a name, and the last of its statement.
    pub(super) fn is_last(&self, ahead: usize) -> bool {
        let token = |ahead: usize| self.tokens.get(self.next + ahead).map(|token| &token.token);
        matches!(token(ahead), Some(Token::Word(_)))
            && matches!(token(ahead + 1), None | Some(Token::EOF | Token::SemiColon))
    }

    /// The tokens from here on.
    pub(super) fn rest(&self) -> &'a [TokenWithSpan] {
        self.tokens.get(self.next..).unwrap_or_default()
    }

    /// Returns whether these words come next.
    pub(super) fn at(&self, words: &[&str]) -> bool {
        let same = |(ahead, word): (usize, &&str)| {
            self.word(ahead).is_some_and(|found| found.value.eq_ignore_ascii_case(word))
        };
        words.iter().enumerate().all(same)
    }

    /// The word that stands for the kind of a join as of a time, if one comes next. `lt` is an alias where columns are named by it.
    pub(super) fn timed_join(&self) -> Option<&'static str> {
        if self.at(&["asof", "join"]) {
            return Some("SEMI");
        }
        (self.at(&["lt", "join"]) && !self.is_qualifier("lt")).then_some("ANTI")
    }

    /// Returns whether QuestDB's SPLICE JOIN comes next, and not a table or an alias of that name.
    pub(super) fn splice_join(&self) -> bool {
        let before = self.next.checked_sub(1).and_then(|before| self.tokens.get(before)).map(|token| &token.token);
        let follows_table = match before {
            Some(Token::Word(word)) => {
                word.quote_style.is_some() || !["from", "join", "as"].contains(&word.value.to_lowercase().as_str())
            }
            Some(token) => *token == Token::RParen,
            None => false,
        };
        self.at(&["splice", "join"]) && follows_table && !self.is_qualifier("splice")
    }

    /// Returns whether a name stands before a point.
    fn is_qualifier(&self, name: &str) -> bool {
        let is_name = |pair: &[TokenWithSpan]| match pair {
            [TokenWithSpan { token: Token::Word(word), .. }, next] => {
                word.value.eq_ignore_ascii_case(name) && next.token == Token::Period
            }
            _ => false,
        };
        self.tokens.windows(2).any(is_name)
    }

    /// The stand-in of a statement from here to another cursor, which must be at the statement's end: for the grammar it is a DROP of a role,
    /// whose name stands where nothing else does. `None` if nothing was read.
    pub(super) fn stand_in<S>(&self, end: &Self, name: &str, statement: S) -> Result<Option<StandIn<S>>, SqlError> {
        if !matches!(end.peek().map(|token| &token.token), None | Some(Token::SemiColon | Token::EOF)) {
            return end.error("the end of the statement");
        }
        let read = end.read_since(self);
        let replaced = self.rest().get(..read).unwrap_or_default();
        let (Some(first), Some(last)) = (replaced.first(), replaced.last()) else { return Ok(None) };
        let token = |token: Token, like: &TokenWithSpan| TokenWithSpan { token, span: like.span };
        let drop = ["DROP", "ROLE"].map(|word| token(Token::make_keyword(word), first));
        let tokens = drop.into_iter().chain([token(Token::make_word(name, Some('"')), last)]).collect();
        Ok(Some(StandIn { tokens, read, at: last.span.start, statement }))
    }

    /// The number of tokens that were read since another was here.
    pub(super) const fn read_since(&self, before: &Self) -> usize {
        self.next - before.next
    }

    /// A name, as it is written between double quotes, else in small letters.
    pub(super) fn name(&mut self) -> Result<String, SqlError> {
        let name = match self.peek().map(|token| &token.token) {
            Some(Token::Word(word)) if word.quote_style.is_some() => word.value.clone(),
            Some(Token::Word(word)) => word.value.to_lowercase(),
            _ => return self.error("a name"),
        };
        self.next += 1;
        Ok(name)
    }

    pub(super) fn take(&mut self, words: &[&str]) -> bool {
        let found = self.at(words);
        if found {
            self.next += words.len();
        }
        found
    }

    pub(super) fn error<T>(&self, wanted: &str) -> Result<T, SqlError> {
        let (found, at) = match self.peek() {
            Some(token) => (token.token.to_string(), token.span.start.to_string()),
            None => ("the end".to_owned(), String::new()),
        };
        Err(SqlError::Syntax(format!("Expected: {wanted}, found: {found}{at}")))
    }

    pub(super) fn symbol(&mut self, symbol: &Token) -> Result<(), SqlError> {
        if self.peek().is_some_and(|token| token.token == *symbol) {
            self.next += 1;
            return Ok(());
        }
        self.error(&symbol.to_string())
    }

    /// A name as it is written.
    pub(super) fn written_name(&mut self) -> Result<String, SqlError> {
        let Some(Token::Word(word)) = self.peek().map(|token| &token.token) else { return self.error("a name") };
        self.next += 1;
        Ok(word.value.clone())
    }

    /// A whole number.
    pub(super) fn number(&mut self) -> Result<u64, SqlError> {
        let number = match self.peek().map(|token| &token.token) {
            Some(Token::Number(number, _)) => number.parse().ok(),
            _ => None,
        };
        let Some(number) = number else { return self.error("a whole number") };
        self.next += 1;
        Ok(number)
    }

    /// Passes over tokens.
    pub(super) const fn skip(&mut self, count: usize) {
        self.next += count;
    }

    pub(super) fn text(&mut self) -> Result<String, SqlError> {
        let text = match self.peek().map(|token| &token.token) {
            Some(Token::SingleQuotedString(text)) => text.clone(),
            _ => return self.error("a text in quotes"),
        };
        self.next += 1;
        Ok(text)
    }
}
