//! `CREATE|ALTER|DROP TRIGGER` and `SHOW TRIGGERS`, which the server runs.
//!
//! The grammar has other triggers; they are taken out of the tokens before, and found again by the place of their last token.

use std::collections::HashMap;

use query::SqlType;
use query::time::parse_interval;
use sqlparser::ast::{Expr, Ident, SelectItem, SetExpr, Statement};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::cursor::{Cursor, DEPTH_MAX, StandIn, syntax};
use crate::error::{SqlError, invalid};

/// By the line and column of a statement's last token.
pub(crate) type TriggersByPlace = HashMap<(u64, u64), TriggerStatement>;

const NS_PER_MS: i64 = 1_000_000;

/// The columns of `SHOW TRIGGERS`.
pub const TRIGGER_COLUMNS: [(&str, SqlType); 13] = [
    ("name", SqlType::Text),
    ("table", SqlType::Text),
    ("condition", SqlType::Text),
    ("action", SqlType::Text),
    ("target", SqlType::Text),
    ("owner", SqlType::Text),
    ("state", SqlType::Text),
    ("sequence", SqlType::Int),
    ("lag", SqlType::Int),
    ("sent_rows", SqlType::Int),
    ("failed_rows", SqlType::Int),
    ("dropped_records", SqlType::Int),
    ("last_error", SqlType::Text),
];

/// A statement about triggers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TriggerStatement {
    /// Makes one.
    Create {
        /// The trigger.
        trigger: Box<NewTrigger>,
        /// True if one that exists is no error.
        if_not_exists: bool,
    },
    /// Removes one.
    Drop {
        /// Its name.
        name: String,
        /// True if one that does not exist is no error.
        if_exists: bool,
    },
    /// Lets one run, or keeps it from running.
    Enable {
        /// Its name.
        name: String,
        /// False to keep it from running.
        is_enabled: bool,
    },
    /// Lists them.
    Show,
}

/// A trigger that a statement makes.
#[derive(Clone, PartialEq, Eq)]
pub struct NewTrigger {
    /// Its name.
    pub name: String,
    /// The table whose rows it looks at.
    pub table: String,
    /// The condition on a row, as SQL.
    pub condition: String,
    /// The use of rows that satisfy the condition.
    pub action: NewTriggerAction,
    /// How rows go together.
    pub options: TriggerOptions,
}

/// What a trigger does with rows.
#[derive(Clone, PartialEq, Eq)]
pub enum NewTriggerAction {
    /// Writes them to another table.
    Insert {
        /// The table.
        table: String,
        /// The columns that are written, as SQL writes them after SELECT; `None`: all.
        columns: Option<String>,
    },
    /// Posts them as JSON.
    Webhook {
        /// The address.
        url: String,
        /// The key of signatures.
        secret: Option<String>,
    },
}

/// The `WITH (…)` of a trigger; what is not given has a default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TriggerOptions {
    /// Rows of a request at most.
    pub batch_rows: Option<u64>,
    /// Bytes of a request at most, but for a single larger row.
    pub batch_bytes: Option<u64>,
    /// How long a row waits for others.
    pub batch_age_ms: Option<u64>,
    /// How long a receiver may take to answer.
    pub timeout_ms: Option<u64>,
    /// After how long a request that is not taken is dropped; `None`: it is sent again without end.
    pub retry_for_ms: Option<u64>,
}

/// Without the secret.
impl std::fmt::Debug for NewTrigger {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("NewTrigger").field("name", &self.name).field("table", &self.table).finish_non_exhaustive()
    }
}

impl TriggerStatement {
    /// Returns whether it changes nothing.
    pub const fn only_reads(&self) -> bool {
        matches!(self, Self::Show)
    }

    /// Its first words, as Postgres says that it is done.
    pub const fn tag(&self) -> &'static str {
        match self {
            Self::Create { .. } => "CREATE TRIGGER",
            Self::Drop { .. } => "DROP TRIGGER",
            Self::Enable { .. } => "ALTER TRIGGER",
            Self::Show => "SHOW",
        }
    }

    /// The name that it is about.
    fn name(&self) -> &str {
        match self {
            Self::Create { trigger, .. } => &trigger.name,
            Self::Drop { name, .. } | Self::Enable { name, .. } => name,
            Self::Show => "",
        }
    }
}

/// Its first words and its name.
impl std::fmt::Display for TriggerStatement {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Show => out.write_str("SHOW TRIGGERS"),
            other => write!(out, "{} {}", other.tag(), other.name()),
        }
    }
}

/// Looks at the beginning of a statement; `None` if it is none of these.
pub(super) fn take(cursor: &Cursor<'_>) -> Result<Option<StandIn<TriggerStatement>>, SqlError> {
    let mut at = *cursor;
    let statement = if at.take(&["create", "trigger"]) {
        create(&mut at)?
    } else if at.take(&["drop", "trigger"]) {
        let if_exists = at.take(&["if", "exists"]);
        TriggerStatement::Drop { name: at.name()?, if_exists }
    } else if at.take(&["alter", "trigger"]) {
        let name = at.name()?;
        let is_enabled = at.take(&["enable"]);
        if !is_enabled && !at.take(&["disable"]) {
            return at.error("ENABLE or DISABLE");
        }
        TriggerStatement::Enable { name, is_enabled }
    } else if at.take(&["show", "triggers"]) {
        TriggerStatement::Show
    } else {
        return Ok(None);
    };
    cursor.stand_in(&at, "trigger", statement)
}

fn create(at: &mut Cursor<'_>) -> Result<TriggerStatement, SqlError> {
    let if_not_exists = at.take(&["if", "not", "exists"]);
    let name = at.name()?;
    if !at.take(&["on"]) {
        return at.error("ON and a table");
    }
    let table = at.written_name()?;
    if !at.take(&["when"]) {
        return at.error("WHEN (condition)");
    }
    let condition = parse_condition_tokens(within_parentheses(at)?)?.to_string();
    if !at.take(&["do"]) {
        return at.error("DO INSERT INTO … or DO WEBHOOK '…'");
    }
    let mut action = action(at)?;
    let options = if at.take(&["with"]) { options(at, &mut action)? } else { TriggerOptions::default() };
    let trigger = Box::new(NewTrigger { name, table, condition, action, options });
    Ok(TriggerStatement::Create { trigger, if_not_exists })
}

fn action(at: &mut Cursor<'_>) -> Result<NewTriggerAction, SqlError> {
    if at.take(&["webhook"]) {
        return Ok(NewTriggerAction::Webhook { url: at.text()?, secret: None });
    }
    if !at.take(&["insert", "into"]) {
        return at.error("INSERT INTO … or WEBHOOK '…'");
    }
    let table = at.written_name()?;
    if !at.at(&["select"]) {
        return Ok(NewTriggerAction::Insert { table, columns: None });
    }
    let (mut depth, mut count) = (0usize, 0);
    for token in at.rest() {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            Token::SemiColon | Token::EOF => break,
            Token::Word(word)
                if depth == 0 && word.quote_style.is_none() && word.value.eq_ignore_ascii_case("with") =>
            {
                break;
            }
            _ => {}
        }
        count += 1;
    }
    let tokens = at.rest().get(1..count).unwrap_or_default().to_vec();
    at.skip(count);
    let items = parse_columns_tokens(tokens)?;
    let columns = items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Ok(NewTriggerAction::Insert { table, columns: Some(columns) })
}

/// The tokens within the parentheses that come next.
fn within_parentheses(at: &mut Cursor<'_>) -> Result<Vec<TokenWithSpan>, SqlError> {
    at.symbol(&Token::LParen)?;
    let mut depth = 1usize;
    let inside = |token: &&TokenWithSpan| {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            Token::EOF => depth = 0,
            _ => {}
        }
        depth > 0
    };
    let tokens: Vec<TokenWithSpan> = at.rest().iter().take_while(inside).cloned().collect();
    at.skip(tokens.len());
    at.symbol(&Token::RParen)?;
    Ok(tokens)
}

fn options(at: &mut Cursor<'_>, action: &mut NewTriggerAction) -> Result<TriggerOptions, SqlError> {
    let mut options = TriggerOptions::default();
    at.symbol(&Token::LParen)?;
    loop {
        let name = at.name()?;
        at.symbol(&Token::Eq)?;
        match name.as_str() {
            "secret" => match action {
                NewTriggerAction::Webhook { secret, .. } => *secret = Some(at.text()?),
                NewTriggerAction::Insert { .. } => return invalid("secret is an option of WEBHOOK"),
            },
            "batch_rows" => options.batch_rows = Some(at.number()?),
            "batch_bytes" => options.batch_bytes = Some(at.number()?),
            "batch_age" => options.batch_age_ms = Some(length_ms(&at.text()?)?),
            "timeout" => options.timeout_ms = Some(length_ms(&at.text()?)?),
            "retry_for" => options.retry_for_ms = Some(length_ms(&at.text()?)?),
            _ => {
                return invalid(format!(
                    "a trigger has no option {name}: there are secret, batch_rows, batch_bytes, batch_age, timeout, retry_for"
                ));
            }
        }
        if at.symbol(&Token::Comma).is_err() {
            at.symbol(&Token::RParen)?;
            return Ok(options);
        }
    }
}

fn length_ms(text: &str) -> Result<u64, SqlError> {
    let interval = if text.trim().parse::<f64>().is_ok() { None } else { parse_interval(text) };
    let ns = interval.map(query::Interval::with_even_days).filter(|interval| interval.months == 0).map(|even| even.ns);
    let ms = ns.and_then(|ns| u64::try_from(ns / NS_PER_MS).ok());
    ms.ok_or_else(|| SqlError::Invalid(format!("\"{text}\" is no length of time: write it as 500ms, 10s or 1h")))
}

/// A condition of a row.
pub(crate) fn parse_condition(text: &str) -> Result<Expr, SqlError> {
    let tokens = tokens(text)?;
    parse_condition_tokens(tokens)
}

/// Columns of rows, as they stand after SELECT.
pub(crate) fn parse_columns(text: &str) -> Result<Vec<SelectItem>, SqlError> {
    parse_columns_tokens(tokens(text)?)
}

/// All names in a text, among them those of functions and types.
pub(crate) fn names(text: &str) -> Result<Vec<Ident>, SqlError> {
    let name = |token: TokenWithSpan| match token.token {
        Token::Word(word) => Some(word.into_ident(token.span)),
        _ => None,
    };
    Ok(tokens(text)?.into_iter().filter_map(name).collect())
}

fn tokens(text: &str) -> Result<Vec<TokenWithSpan>, SqlError> {
    let tokens = sqlparser::tokenizer::Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location();
    tokens.map_err(|error| SqlError::Syntax(format!("{}{}", error.message, error.location)))
}

fn parse_condition_tokens(tokens: Vec<TokenWithSpan>) -> Result<Expr, SqlError> {
    let dialect = PostgreSqlDialect {};
    let mut parser = Parser::new(&dialect).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens);
    let parsed = parser.parse_expr().map_err(|error| syntax(&error))?;
    if parser.peek_token().token != Token::EOF {
        return Err(SqlError::Syntax(format!("Expected: the end of the condition, found: {}", parser.peek_token())));
    }
    Ok(parsed)
}

fn parse_columns_tokens(tokens: Vec<TokenWithSpan>) -> Result<Vec<SelectItem>, SqlError> {
    let dialect = PostgreSqlDialect {};
    let span = tokens.first().map_or_else(sqlparser::tokenizer::Span::empty, |first| first.span);
    let select = TokenWithSpan { token: Token::make_keyword("SELECT"), span };
    let tokens = std::iter::once(select).chain(tokens).collect();
    let mut parser = Parser::new(&dialect).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens);
    let parsed = parser.parse_statements().map_err(|error| syntax(&error))?;
    let only_columns =
        "after INSERT INTO a trigger has SELECT and columns of the row alone: no FROM, WHERE or GROUP BY";
    let [Statement::Query(query)] = parsed.as_slice() else { return invalid(only_columns) };
    let SetExpr::Select(select) = &*query.body else { return invalid(only_columns) };
    // All else that a SELECT may have would be in its text, too.
    let plain = select.projection.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if query.to_string() != format!("SELECT {plain}") {
        return invalid(only_columns);
    }
    Ok(select.projection.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::parse::parse;

    fn read(text: &str) -> Result<TriggerStatement, String> {
        let parsed = parse(text).map_err(|error| error.to_string())?;
        parsed.trigger_statement(0).cloned().ok_or_else(|| "none".to_owned())
    }

    #[test]
    fn statements_about_triggers_are_read() {
        let made = read(
            "CREATE TRIGGER IF NOT EXISTS Hot ON Cpu WHEN (usage > 90 AND host LIKE 'a%') \
             DO WEBHOOK 'https://a.example/x' WITH (secret = 's''1', batch_rows = 10, batch_age = '500ms', retry_for = '1h')",
        );
        let Ok(TriggerStatement::Create { trigger, if_not_exists: true }) = made else { panic!("{made:?}") };
        assert_eq!((trigger.name.as_str(), trigger.table.as_str()), ("hot", "Cpu"));
        assert_eq!(trigger.condition, "usage > 90 AND host LIKE 'a%'");
        let webhook =
            NewTriggerAction::Webhook { url: "https://a.example/x".to_owned(), secret: Some("s'1".to_owned()) };
        assert!(trigger.action == webhook && !format!("{trigger:?}").contains("s'1"));
        let options = TriggerOptions {
            batch_rows: Some(10),
            batch_age_ms: Some(500),
            retry_for_ms: Some(3_600_000),
            ..TriggerOptions::default()
        };
        assert_eq!(trigger.options, options);
        let made = read(
            "create trigger t on m when ((a + 1) > 2) do insert into \"N\" select host, (a * 2) as b with (batch_rows = 1); SELECT 1",
        );
        let Ok(TriggerStatement::Create { trigger, if_not_exists: false }) = made else { panic!("{made:?}") };
        let insert = NewTriggerAction::Insert { table: "N".to_owned(), columns: Some("host, (a * 2) AS b".to_owned()) };
        assert!(trigger.action == insert && trigger.condition == "(a + 1) > 2");
        let drop = TriggerStatement::Drop { name: "t".to_owned(), if_exists: true };
        assert_eq!(read("DROP TRIGGER IF EXISTS t;"), Ok(drop));
        let disable = TriggerStatement::Enable { name: "t".to_owned(), is_enabled: false };
        assert_eq!(read("ALTER TRIGGER t DISABLE"), Ok(disable));
        assert_eq!(read("SHOW TRIGGERS"), Ok(TriggerStatement::Show));
        let changes = |text: &str| parse(text).unwrap().first_change();
        assert_eq!(changes("SHOW TRIGGERS"), None);
        assert_eq!(changes("DROP TRIGGER t"), Some("DROP TRIGGER t".to_owned()));
    }

    #[test]
    fn what_a_trigger_cannot_be_is_refused() {
        for (text, part) in [
            ("CREATE TRIGGER t ON m DO INSERT INTO n", "WHEN"),
            ("CREATE TRIGGER t ON m WHEN (a > 1 DO INSERT INTO n", "Expected"),
            ("CREATE TRIGGER t ON m WHEN (a >) DO INSERT INTO n", "Expected"),
            ("CREATE TRIGGER t ON m WHEN (a > 1) DO DELETE FROM n", "INSERT INTO"),
            ("CREATE TRIGGER t ON m WHEN (a > 1) DO INSERT INTO n SELECT a FROM m", "columns of the row alone"),
            ("CREATE TRIGGER t ON m WHEN (a > 1) DO INSERT INTO n SELECT a LIMIT 1", "columns of the row alone"),
            ("CREATE TRIGGER t ON m WHEN (a > 1) DO INSERT INTO n WITH (secret = 'x')", "option of WEBHOOK"),
            ("CREATE TRIGGER t ON m WHEN (a > 1) DO WEBHOOK 'x' WITH (colour = 'x')", "no option colour"),
            ("CREATE TRIGGER t ON m WHEN (a > 1) DO WEBHOOK 'x' WITH (timeout = '5')", "no length of time"),
            ("ALTER TRIGGER t RENAME TO u", "ENABLE or DISABLE"),
        ] {
            let read = read(text);
            assert!(read.as_ref().is_err_and(|error| error.contains(part)), "{text}: {read:?}");
        }
    }
}
