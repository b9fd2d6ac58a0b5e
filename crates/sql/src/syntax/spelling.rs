//! Beginnings of statements that Postgres spells in more ways than the grammar.

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

use super::cursor::Cursor;

/// Tokens for the grammar, and how many were read.
pub(super) struct Spelled {
    pub(super) tokens: Vec<TokenWithSpan>,
    pub(super) read: usize,
}

/// Looks at the beginning of a statement; `None` if it is spelled as the grammar has it.
pub(super) fn take(cursor: &Cursor<'_>) -> Option<Spelled> {
    let span = cursor.peek()?.span;
    if let Some(spelled) = compression(cursor) {
        return Some(spelled);
    }
    let (words, read): (&[&str], usize) = if cursor.at(&["abort"]) {
        (&["ROLLBACK"], 1)
    } else if let Some(fetched) = fetch(cursor) {
        fetched
    } else if cursor.at(&["table"]) {
        (&["SELECT", "*", "FROM"], 1)
    } else if is_bare_table(cursor) {
        (&["SELECT", "*", "FROM"], 0)
    } else {
        return None;
    };
    Some(Spelled { tokens: words.iter().map(|word| token(word, span)).collect(), read })
}

/// `FETCH` and `MOVE` without a number of rows, or without FROM.
fn fetch(cursor: &Cursor<'_>) -> Option<(&'static [&'static str], usize)> {
    let verb = ["fetch", "move"].into_iter().find(|verb| cursor.at(&[verb]))?;
    for place in ["from", "in"] {
        if cursor.at(&[verb, "forward", place]) {
            return Some((&["FETCH", "NEXT"], 2));
        }
        if cursor.at(&[verb, "backward", place]) {
            return Some((&["FETCH", "PRIOR"], 2));
        }
        if cursor.at(&[verb, place]) {
            return Some((&["FETCH", "NEXT"], 1));
        }
    }
    if cursor.is_last(1) {
        return Some((&["FETCH", "NEXT", "FROM"], 1));
    }
    (verb == "move").then_some((&["FETCH"], 1))
}

/// Functions that give tables, which are statements by themselves in QuestDB.
const TABLE_FUNCTIONS: [&str; 5] = ["tables", "table_columns", "materialized_views", "series_validity", "series_top"];

/// Returns whether the name of a table is a whole statement, or a call that gives a table begins it: QuestDB's short form of a query of all of it.
/// A word that SQL uses otherwise names a table within quotes.
fn is_bare_table(cursor: &Cursor<'_>) -> bool {
    let Some(Token::Word(word)) = cursor.peek().map(|token| &token.token) else { return false };
    let is_call = cursor.rest().get(1).is_some_and(|token| token.token == Token::LParen);
    let is_name = word.quote_style.is_some() || word.keyword == Keyword::NoKeyword;
    is_call && TABLE_FUNCTIONS.iter().any(|function| cursor.at(&[function])) || is_name && cursor.is_last(0)
}

fn token(word: &str, span: Span) -> TokenWithSpan {
    let token = match word {
        "*" => Token::Mul,
        "=" => Token::Eq,
        word => Token::make_keyword(word),
    };
    TokenWithSpan { token, span }
}

/// `ALTER TABLE name SET (timescaledb.compress, …)`: as a setting of one word with a value.
fn compression(cursor: &Cursor<'_>) -> Option<Spelled> {
    if !cursor.at(&["alter", "table"]) {
        return None;
    }
    let tokens = cursor.rest();
    let is_word = |token: &TokenWithSpan, wanted: &str| matches!(&token.token, Token::Word(word) if word.value.eq_ignore_ascii_case(wanted));
    let open = tokens.iter().take(8).position(|token| token.token == Token::LParen)?;
    let name = tokens.get(open + 1)?;
    if !is_word(tokens.get(open - 1)?, "set") || !["timescaledb", "tsdb"].iter().any(|prefix| is_word(name, prefix)) {
        return None;
    }
    let end = tokens.iter().position(|token| token.token == Token::RParen)?;
    let mut kept = tokens.get(..open + 2)?.to_vec();
    kept.extend([token("=", name.span), token("TRUE", name.span), tokens.get(end)?.clone()]);
    Some(Spelled { tokens: kept, read: end + 1 })
}
