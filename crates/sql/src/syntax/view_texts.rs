//! The texts of `CREATE VIEW`, as they were written: what is stored of a view is its statement.

use std::collections::HashMap;

use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

/// Statements by the line and column of the view's name.
pub(crate) type ViewTexts = HashMap<(u64, u64), String>;

/// The statements of a text that make a view of plain SQL.
pub(super) fn view_texts(text: &str, tokens: &[TokenWithSpan]) -> ViewTexts {
    let mut texts = ViewTexts::new();
    for statement in tokens.split_inclusive(|token| token.token == Token::SemiColon) {
        let is_end = |token: &TokenWithSpan| matches!(token.token, Token::SemiColon | Token::EOF);
        let words = statement.iter().filter(|token| !matches!(token.token, Token::Whitespace(_)));
        let words: Vec<&TokenWithSpan> = words.take_while(|token| !is_end(token)).collect();
        let (Some(first), Some(name)) = (words.first(), name_of(&words)) else { continue };
        let end = statement.iter().find(|token| is_end(token)).and_then(|token| offset(text, token.span.start));
        let start = offset(text, first.span.start).unwrap_or(text.len());
        let written = text.get(start..end.unwrap_or(text.len())).unwrap_or_default();
        texts.insert((name.span.start.line, name.span.start.column), written.trim().to_owned());
    }
    texts
}

/// The last part of the name in `CREATE [OR REPLACE] VIEW [IF NOT EXISTS] name`; `None` of other statements.
fn name_of<'a>(words: &[&'a TokenWithSpan]) -> Option<&'a TokenWithSpan> {
    let mut rest = words;
    let mut take = |wanted: &[&str]| {
        let is = |(token, wanted): (&&TokenWithSpan, &&str)| is_word(token, wanted);
        let is_there = rest.len() >= wanted.len() && rest.iter().zip(wanted).all(is);
        if is_there {
            rest = rest.get(wanted.len()..).unwrap_or_default();
        }
        is_there
    };
    if !take(&["create"]) {
        return None;
    }
    take(&["or", "replace"]);
    if !take(&["view"]) {
        return None;
    }
    take(&["if", "not", "exists"]);
    let mut name = *rest.first()?;
    while let [_, period, next, ..] = rest {
        if period.token != Token::Period {
            break;
        }
        name = next;
        rest = rest.get(2..).unwrap_or_default();
    }
    Some(name)
}

fn is_word(token: &TokenWithSpan, wanted: &str) -> bool {
    matches!(&token.token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted))
}

/// The byte at which a place of a text begins.
fn offset(text: &str, place: Location) -> Option<usize> {
    let line = usize::try_from(place.line.checked_sub(1)?).ok()?;
    let column = usize::try_from(place.column.checked_sub(1)?).ok()?;
    let start = match line {
        0 => 0,
        line => text.match_indices('\n').nth(line - 1).map(|(at, _)| at + 1)?,
    };
    let rest = text.get(start..)?;
    let ends = std::iter::once(rest.len());
    rest.char_indices().map(|(at, _)| at).chain(ends).nth(column).map(|at| start + at)
}

/// The query in the statement that makes a view.
pub(crate) fn query_of(statement: &str) -> &str {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, statement).tokenize_with_location().unwrap_or_default();
    let mut depth = 0usize;
    for token in &tokens {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ if depth == 0 && is_word(token, "as") => {
                let after = offset(statement, token.span.end).and_then(|after| statement.get(after..));
                return after.unwrap_or_default().trim();
            }
            _ => {}
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::parse::parse;

    #[test]
    fn statements_are_kept_as_they_were_written() {
        let text = "SELECT 1;\n  CREATE VIEW a.\"as\" (x) AS -- é\n SELECT 'it''s', E'\\n' FROM t; create or replace view IF NOT EXISTS öl as (select 2);CREATE VIEW b AS SELECT 3";
        let mut texts: Vec<String> = parse(text).unwrap().view_texts.into_values().collect();
        texts.sort_unstable();
        assert_eq!(
            texts,
            [
                "CREATE VIEW a.\"as\" (x) AS -- é\n SELECT 'it''s', E'\\n' FROM t",
                "CREATE VIEW b AS SELECT 3",
                "create or replace view IF NOT EXISTS öl as (select 2)"
            ]
        );
        let queries: Vec<&str> = texts.iter().map(|text| query_of(text)).collect();
        assert_eq!(queries, ["-- é\n SELECT 'it''s', E'\\n' FROM t", "SELECT 3", "(select 2)"]);
        assert!(parse("CREATE TABLE view (v DOUBLE)").unwrap().view_texts.is_empty());
    }
}
