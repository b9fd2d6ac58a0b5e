//! Columns that are added to materialised views.

use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::tokenizer::{Token, Tokenizer};

use super::cursor::{Cursor, written};
use super::views::written_name;
use crate::error::{SqlError, invalid};

/// A column that a view is to have besides.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AddColumn {
    pub(crate) name: String,
    pub(crate) if_not_exists: bool,
    /// Its value, of the rows of a window, as it was written.
    pub(crate) expression: String,
}

/// `[IF NOT EXISTS] name AS expression`.
pub(super) fn add_column(cursor: &mut Cursor<'_>) -> Result<AddColumn, SqlError> {
    let if_not_exists = cursor.take(&["if", "not", "exists"]);
    let name = written_name(cursor)?;
    if !cursor.take(&["as"]) || cursor.peek().is_none() {
        return cursor.error("AS and what the column is of the rows of a window, such as max(usage)");
    }
    let expression: Vec<String> = cursor.rest().iter().map(|token| written(&token.token)).collect();
    cursor.skip(expression.len());
    Ok(AddColumn { name, if_not_exists, expression: expression.join(" ") })
}

/// The statement that made a view, with a column besides, the last one of its query.
pub(crate) fn with_column(statement: &str, added: &AddColumn) -> Result<String, SqlError> {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, statement).with_unescape(false).tokenize().unwrap_or_default();
    let Some((select, from)) = ends_of_projection(&tokens) else {
        return invalid("the statement that made the view cannot be read: drop the view and make it again");
    };
    let names_end = end_of_names(tokens.get(..select).unwrap_or_default());
    let name = format!("\"{}\"", added.name.replace('"', "\"\""));
    let mut text = String::with_capacity(statement.len() + added.expression.len() + 2 * name.len() + 16);
    for (place, token) in tokens.iter().enumerate() {
        if Some(place) == names_end {
            text.push_str(", ");
            text.push_str(&name);
        }
        if place == from {
            for piece in [", ", &added.expression, " AS ", &name, " "] {
                text.push_str(piece);
            }
        }
        text.push_str(&token.to_string());
    }
    Ok(text)
}

fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

/// The places of `SELECT` and of its `FROM`.
fn ends_of_projection(tokens: &[Token]) -> Option<(usize, usize)> {
    let select = tokens.iter().position(|token| is_word(token, "select"))?;
    let (mut depth, mut before) = (0i64, None);
    for (place, token) in tokens.iter().enumerate().skip(select + 1) {
        match token {
            Token::Whitespace(_) => continue,
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            // `IS DISTINCT FROM` compares.
            token if depth == 0 && is_word(token, "from") && !before.is_some_and(|of| is_word(of, "distinct")) => {
                return Some((select, place));
            }
            _ => {}
        }
        before = Some(token);
    }
    None
}

/// The place where the names of columns end that follow the view's own: not what `WITH (…)` says, nor the query.
fn end_of_names(tokens: &[Token]) -> Option<usize> {
    let mut before = None;
    for (place, token) in tokens.iter().enumerate() {
        match token {
            Token::Whitespace(_) => {}
            Token::LParen if before.is_some_and(|of| !is_word(of, "with") && !is_word(of, "as")) => {
                let end = tokens.iter().skip(place).position(|token| *token == Token::RParen)?;
                return Some(place + end);
            }
            Token::LParen => return None,
            _ => before = Some(token),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_column_is_the_last_of_the_query() {
        let added = AddColumn { name: "p\"q".to_owned(), if_not_exists: false, expression: "max(v)".to_owned() };
        for (statement, expected) in [
            (
                "CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1m', time) AS b, extract(year FROM b) AS y\nFROM t GROUP BY 1",
                "CREATE MATERIALIZED VIEW v AS SELECT time_bucket('1m', time) AS b, extract(year FROM b) AS y\n, max(v) AS \"p\"\"q\" FROM t GROUP BY 1",
            ),
            (
                "CREATE MATERIALIZED VIEW v WITH BASE t REFRESH IMMEDIATE AS (SELECT h, a IS DISTINCT FROM b FROM t SAMPLE BY 1h) PARTITION BY DAY",
                "CREATE MATERIALIZED VIEW v WITH BASE t REFRESH IMMEDIATE AS (SELECT h, a IS DISTINCT FROM b , max(v) AS \"p\"\"q\" FROM t SAMPLE BY 1h) PARTITION BY DAY",
            ),
            (
                "create materialized view s.v (b, \"with\") with (x = 1) as select 1, 2 from t",
                "create materialized view s.v (b, \"with\", \"p\"\"q\") with (x = 1) as select 1, 2 , max(v) AS \"p\"\"q\" from t",
            ),
        ] {
            assert_eq!(with_column(statement, &added).unwrap(), expected);
        }
        assert!(with_column("", &added).is_err() && with_column("SELECT 1", &added).is_err());
    }
}
