//! Options of columns and tables that `TimescaleDB` and `QuestDB` have, as the grammar has them or without them.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::questdb::{Respelled, is_word, word_at};

/// The beginning of the names that options of `TimescaleDB` get.
pub(crate) const TIMESCALE: &str = "timescaledb.";

/// The usual spelling of what comes next in a `CREATE TABLE`; `statement` are the tokens of its statement before it.
pub(super) fn respell(next: &[TokenWithSpan], statement: &[TokenWithSpan]) -> Option<Respelled> {
    if !is_word(statement, 0, "create") || !is_word(statement, 1, "table") {
        return None;
    }
    timescale_option(next, statement).or_else(|| of_symbol(next, statement)).or_else(|| index(next, statement))
}

fn token(tokens: &[TokenWithSpan], place: usize) -> Option<&Token> {
    tokens.get(place).map(|token| &token.token)
}

/// `tsdb.hypertable` and `timescaledb.segmentby = 'host'` among the options of a table: an option of one name with a value.
fn timescale_option(next: &[TokenWithSpan], statement: &[TokenWithSpan]) -> Option<Respelled> {
    let begins = matches!(statement.last().map(|last| &last.token), Some(Token::LParen | Token::Comma));
    let is_prefix = is_word(next, 0, "tsdb") || is_word(next, 0, "timescaledb");
    if !begins || !is_prefix || token(next, 1) != Some(&Token::Period) {
        return None;
    }
    let name = format!("{TIMESCALE}{}", word_at(next, 2)?.value.to_lowercase());
    let mut tokens = vec![Token::make_word(&name, Some('"'))];
    if token(next, 3) != Some(&Token::Eq) {
        tokens.extend([Token::Eq, Token::make_keyword("TRUE")]);
    }
    Some(Respelled { tokens, read: 3 })
}

/// `CAPACITY 256 CACHE INDEX CAPACITY 1024` after the type `SYMBOL`: tags are looked up in an index whose size follows them.
fn of_symbol(next: &[TokenWithSpan], statement: &[TokenWithSpan]) -> Option<Respelled> {
    is_word(statement, statement.len().checked_sub(1)?, "symbol").then_some(())?;
    let mut read = 0;
    loop {
        if is_word(next, read, "capacity") && matches!(token(next, read + 1), Some(Token::Number(..))) {
            read += 2;
        } else if ["cache", "nocache", "index"].iter().any(|option| is_word(next, read, option)) {
            read += 1;
        } else {
            return (read > 0).then(|| Respelled { tokens: Vec::new(), read });
        }
    }
}

/// `, INDEX(symbol CAPACITY 128)` after the columns, or after one of them.
fn index(next: &[TokenWithSpan], statement: &[TokenWithSpan]) -> Option<Respelled> {
    let is_after_parenthesis = statement.last().is_some_and(|last| last.token == Token::RParen);
    let is_index =
        token(next, 0) == Some(&Token::Comma) && is_word(next, 1, "index") && token(next, 2) == Some(&Token::LParen);
    if !is_after_parenthesis || !is_index {
        return None;
    }
    let end = next.iter().position(|token| token.token == Token::RParen)?;
    Some(Respelled { tokens: Vec::new(), read: end + 1 })
}
