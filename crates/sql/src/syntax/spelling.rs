//! Beginnings of statements that Postgres spells in more ways than the grammar.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::parse::Cursor;

/// Tokens for the grammar, and how many were read.
pub(super) struct Spelled {
    pub(super) tokens: Vec<TokenWithSpan>,
    pub(super) read: usize,
}

/// Looks at the beginning of a statement; `None` if it is spelled as the grammar has it.
pub(super) fn take(cursor: &Cursor<'_>) -> Option<Spelled> {
    let (words, read): (&[&str], usize) = if cursor.at(&["abort"]) {
        (&["ROLLBACK"], 1)
    } else if ["from", "in"].iter().any(|word| cursor.at(&["fetch", "forward", word])) {
        (&["FETCH", "NEXT"], 2)
    } else if ["from", "in"].iter().any(|word| cursor.at(&["fetch", word])) {
        (&["FETCH", "NEXT"], 1)
    } else if cursor.at(&["fetch"]) && cursor.is_last(1) {
        (&["FETCH", "NEXT", "FROM"], 1)
    } else {
        return None;
    };
    let span = cursor.peek()?.span;
    let tokens = words.iter().map(|word| TokenWithSpan { token: Token::make_keyword(word), span }).collect();
    Some(Spelled { tokens, read })
}
