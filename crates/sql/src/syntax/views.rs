//! Statements about materialised views, as `TimescaleDB`, `QuestDB` and Postgres spell them.
//!
//! The grammar has only some of their forms; what it does not have is taken out of the tokens before, and found again by the place of the view's
//! name.

use std::collections::HashMap;

use model::TimeRange;
use query::time::{self, parse_interval};
use query::views::{Dialect, RefreshPolicy, ViewOptions};
use sqlparser::dialect::Dialect as Grammar;
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::cursor::{Cursor, written};
use super::questdb::ttl_ns;
use super::view_columns::{AddColumn, add_column};
use super::view_options::{checked_option, option_value, options, timescale_options, truth};
use crate::error::{SqlError, invalid};

/// Statements by the line and column of the view's name.
pub(crate) type ViewsByPlace = HashMap<(u64, u64), ViewStatement>;

/// A statement about a materialised view.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ViewStatement {
    /// `CREATE MATERIALIZED VIEW`: what is beside the query.
    Create(CreateView),
    /// `DROP MATERIALIZED VIEW`.
    Drop { name: String, if_exists: bool },
    /// `ALTER MATERIALIZED VIEW`.
    Alter { name: String, if_exists: bool, change: ViewChange },
    /// `REFRESH MATERIALIZED VIEW`, `CALL refresh_continuous_aggregate`.
    Refresh(RefreshView),
    /// `SHOW CREATE MATERIALIZED VIEW`.
    ShowCreate { name: String },
    /// `SHOW MATERIALIZED VIEWS`.
    Show,
}

/// What a `CREATE MATERIALIZED VIEW` says beside its query.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CreateView {
    pub(crate) name: String,
    pub(crate) if_not_exists: bool,
    /// Names of its columns, in place of those of the query.
    pub(crate) columns: Vec<String>,
    pub(crate) dialect: Dialect,
    pub(crate) options: ViewOptions,
    /// How long it keeps its windows.
    pub(crate) ttl_ns: Option<i64>,
    /// The table that its query is to read.
    pub(crate) base: Option<String>,
    /// The whole statement as it was written.
    pub(crate) text: String,
}

/// A change of a view's settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ViewChange {
    MaterializedOnly(bool),
    Refresh {
        refresh: RefreshPolicy,
        lag_ns: Option<i64>,
    },
    Ttl(i64),
    AddColumn(AddColumn),
    /// Something that changes nothing here.
    Nothing,
}

/// A demand to compute windows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RefreshView {
    pub(crate) name: String,
    /// Its end is left out.
    pub(crate) range: TimeRange,
    pub(crate) is_forced: bool,
    /// The words by which it is said to be done.
    pub(crate) tag: &'static str,
}

/// Tokens without white space, with statements about views as the grammar has them.
pub(super) fn extract(
    tokens: &[TokenWithSpan],
    dialect: &dyn Grammar,
) -> Result<(Vec<TokenWithSpan>, ViewsByPlace), SqlError> {
    let (mut kept, mut views) = (Vec::with_capacity(tokens.len()), ViewsByPlace::new());
    for statement in tokens.split_inclusive(|token| token.token == Token::SemiColon) {
        let stripped: Vec<TokenWithSpan> =
            statement.iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).cloned().collect();
        let is_end = |token: &TokenWithSpan| matches!(token.token, Token::SemiColon | Token::EOF);
        let end = stripped.iter().position(is_end).unwrap_or(stripped.len());
        let (body, rest) = stripped.split_at(end);
        match take(Cursor::new(body, dialect))? {
            None => kept.extend_from_slice(body),
            Some(mut taken) => {
                if let ViewStatement::Create(create) = &mut taken.statement {
                    let text: String = statement.iter().map(|token| written(&token.token)).collect();
                    text.trim().trim_end_matches(';').trim().clone_into(&mut create.text);
                }
                let place = taken.name.span.start;
                views.insert((place.line, place.column), taken.statement);
                kept.extend(taken.tokens);
            }
        }
        kept.extend_from_slice(rest);
    }
    Ok((kept, views))
}

/// A statement that was taken: its tokens for the grammar, and the one that names the view.
struct ViewTokens {
    tokens: Vec<TokenWithSpan>,
    name: TokenWithSpan,
    statement: ViewStatement,
}

/// A statement that the grammar has, for one that it does not have.
fn carried(cursor: &Cursor<'_>, name: &TokenWithSpan, statement: ViewStatement) -> ViewTokens {
    let span = cursor.peek().map_or(name.span, |token| token.span);
    let words = ["DROP", "VIEW"].map(|word| TokenWithSpan { token: Token::make_keyword(word), span });
    let placed = TokenWithSpan { token: Token::make_word("view", Some('"')), span: name.span };
    ViewTokens { tokens: words.into_iter().chain([placed]).collect(), name: name.clone(), statement }
}

fn take(start: Cursor<'_>) -> Result<Option<ViewTokens>, SqlError> {
    let mut cursor = start;
    if cursor.take(&["create", "materialized", "view"]) {
        return create(cursor).map(Some);
    }
    let statement: fn(&mut Cursor<'_>, String) -> Result<ViewStatement, SqlError> =
        if cursor.take(&["alter", "materialized", "view", "if", "exists"]) {
            |cursor, name| Ok(ViewStatement::Alter { if_exists: true, change: alter(cursor, &name)?, name })
        } else if cursor.take(&["alter", "materialized", "view"]) {
            |cursor, name| Ok(ViewStatement::Alter { if_exists: false, change: alter(cursor, &name)?, name })
        } else if cursor.take(&["refresh", "materialized", "view"]) {
            cursor.take(&["concurrently"]);
            refresh
        } else if cursor.take(&["drop", "materialized", "view", "if", "exists"]) {
            |_, name| Ok(ViewStatement::Drop { name, if_exists: true })
        } else if cursor.take(&["drop", "materialized", "view"]) {
            |_, name| Ok(ViewStatement::Drop { name, if_exists: false })
        } else if cursor.take(&["show", "create", "materialized", "view"]) {
            |_, name| Ok(ViewStatement::ShowCreate { name })
        } else if cursor.at(&["show", "materialized", "views"]) {
            let Some(name) = cursor.rest().get(2).cloned() else { return Ok(None) };
            return Ok(Some(carried(&start, &name, ViewStatement::Show)));
        } else if cursor.take(&["call", "refresh_continuous_aggregate"]) {
            return call(&start, cursor).map(Some);
        } else {
            return Ok(None);
        };
    let (name_token, name) = name(&mut cursor)?;
    let statement = statement(&mut cursor, name)?;
    cursor.take(&["cascade"]);
    cursor.take(&["restrict"]);
    if cursor.peek().is_some() {
        return cursor.error("the end of the statement");
    }
    Ok(Some(carried(&start, &name_token, statement)))
}

/// A name with or without its schema, and its last token.
fn name(cursor: &mut Cursor<'_>) -> Result<(TokenWithSpan, String), SqlError> {
    let mut token = cursor.peek().cloned();
    let mut name = written_name(cursor)?;
    while cursor.take_symbol(&Token::Period) {
        token = cursor.peek().cloned();
        name = written_name(cursor)?;
    }
    match token {
        Some(token) => Ok((token, name)),
        None => cursor.error("the name of a view"),
    }
}

/// A name as it is written: tables' names have capitals.
pub(super) fn written_name(cursor: &mut Cursor<'_>) -> Result<String, SqlError> {
    let written = match cursor.peek().map(|token| &token.token) {
        Some(Token::Word(word)) => Some(word.value.clone()),
        Some(Token::SingleQuotedString(text)) => Some(text.clone()),
        _ => None,
    };
    let Some(written) = written else { return cursor.error("the name of a view") };
    cursor.skip(1);
    Ok(written)
}

fn create(mut cursor: Cursor<'_>) -> Result<ViewTokens, SqlError> {
    let mut said = CreateView { if_not_exists: cursor.take(&["if", "not", "exists"]), ..CreateView::default() };
    let (name_token, name) = name(&mut cursor)?;
    said.name = name;
    if cursor.take_symbol(&Token::LParen) {
        loop {
            said.columns.push(written_name(&mut cursor)?);
            if !cursor.take_symbol(&Token::Comma) {
                break;
            }
        }
        cursor.symbol(&Token::RParen)?;
    }
    loop {
        if cursor.take(&["with", "base"]) {
            said.base = Some(written_name(&mut cursor)?);
            said.dialect = Dialect::QuestDb;
        } else if cursor.take(&["with"]) {
            timescale_options(&mut cursor, &mut said)?;
        } else if cursor.take(&["refresh"]) {
            said.dialect = Dialect::QuestDb;
            (said.options.refresh, said.options.lag_ns) = refresh_policy(&mut cursor)?;
        } else if cursor.take(&["as"]) {
            break;
        } else {
            return cursor.error("WITH (…), REFRESH … or AS and the query");
        }
    }
    let (query, tail) = query_and_tail(cursor.rest());
    let mut tail = cursor.with_tokens(tail);
    clauses_after(&mut tail, &mut said)?;
    let span = name_token.span;
    let word = |word: &str| TokenWithSpan { token: Token::make_keyword(word), span };
    let mut tokens: Vec<TokenWithSpan> = ["CREATE", "MATERIALIZED", "VIEW"].into_iter().map(word).collect();
    // Whatever quotes it has.
    let placed = TokenWithSpan { token: Token::make_word(&said.name, Some('"')), span };
    tokens.extend([placed, word("AS")]);
    tokens.extend_from_slice(query);
    Ok(ViewTokens { tokens, name: name_token, statement: ViewStatement::Create(said) })
}

/// `IMMEDIATE | MANUAL | EVERY 10m`, and what may stand after it.
fn refresh_policy(cursor: &mut Cursor<'_>) -> Result<(RefreshPolicy, Option<i64>), SqlError> {
    let mut refresh = RefreshPolicy::Immediate;
    if cursor.take(&["manual"]) {
        refresh = RefreshPolicy::Manual;
    } else if cursor.take(&["every"]) {
        refresh = RefreshPolicy::Every(width_ns(cursor)?);
    } else {
        cursor.take(&["immediate"]);
    }
    let mut lag_ns = None;
    loop {
        if cursor.take(&["deferred"]) {
        } else if cursor.take(&["start"]) || cursor.take(&["time", "zone"]) {
            cursor.text()?;
        } else if cursor.take(&["period"]) {
            lag_ns = period(cursor)?;
        } else {
            return Ok((refresh, lag_ns));
        }
    }
}

/// `(LENGTH l [TIME ZONE z] [DELAY d])`, `(SAMPLE BY INTERVAL)`: the delay.
fn period(cursor: &mut Cursor<'_>) -> Result<Option<i64>, SqlError> {
    let mut lag_ns = Some(0);
    cursor.symbol(&Token::LParen)?;
    loop {
        if cursor.take(&["length"]) {
            width_ns(cursor)?;
        } else if cursor.take(&["time", "zone"]) {
            cursor.text()?;
        } else if cursor.take(&["delay"]) {
            lag_ns = Some(width_ns(cursor)?);
        } else if cursor.take(&["sample", "by", "interval"]) {
        } else {
            cursor.symbol(&Token::RParen)?;
            return Ok(lag_ns);
        }
    }
}

/// A length of time without months, in nanoseconds.
fn width_ns(cursor: &mut Cursor<'_>) -> Result<i64, SqlError> {
    let before = *cursor;
    let text = cursor.width()?;
    let interval = parse_interval(&text).map(query::Interval::with_even_days);
    match interval.filter(|interval| interval.months == 0 && interval.ns > 0) {
        Some(interval) => Ok(interval.ns),
        None => before.error("a length of time such as 10m or 1h"),
    }
}

/// What stands after AS: the query, without parentheses around it, and what comes after it.
fn query_and_tail(tokens: &[TokenWithSpan]) -> (&[TokenWithSpan], &[TokenWithSpan]) {
    let mut depth = 0usize;
    if tokens.first().is_some_and(|token| token.token == Token::LParen) {
        for (place, token) in tokens.iter().enumerate() {
            match token.token {
                Token::LParen => depth += 1,
                Token::RParen if depth == 1 => {
                    let inner = tokens.get(1..place).unwrap_or_default();
                    return (inner, tokens.get(place + 1..).unwrap_or_default());
                }
                Token::RParen => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
    }
    depth = 0;
    let is = |place: usize, wanted: &str| match tokens.get(place).map(|token| &token.token) {
        Some(Token::Word(word)) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(wanted),
        _ => false,
    };
    for (place, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        let is_with = is(place, "with") && (is(place + 1, "data") || is(place + 1, "no") && is(place + 2, "data"));
        let is_clause = is(place, "partition") && is(place + 1, "by") || is(place, "ttl") || is(place, "owned");
        if depth == 0 && place > 0 && (is_with || is_clause) {
            return tokens.split_at(place);
        }
    }
    (tokens, &[])
}

/// `TIMESTAMP(c) PARTITION BY DAY TTL 3 DAYS OWNED BY x`, `WITH [NO] DATA`
fn clauses_after(cursor: &mut Cursor<'_>, said: &mut CreateView) -> Result<(), SqlError> {
    while cursor.peek().is_some() {
        if cursor.take(&["with", "data"]) || cursor.take(&["with", "no", "data"]) {
        } else if cursor.take(&["timestamp"]) {
            cursor.symbol(&Token::LParen)?;
            written_name(cursor)?;
            cursor.symbol(&Token::RParen)?;
        } else if cursor.take(&["partition", "by"]) || cursor.take(&["owned", "by"]) {
            written_name(cursor)?;
        } else if cursor.take(&["ttl"]) {
            said.ttl_ns = Some(ttl(cursor)?);
        } else {
            return cursor.error("PARTITION BY, TTL or the end of the statement");
        }
    }
    Ok(())
}

fn ttl(cursor: &mut Cursor<'_>) -> Result<i64, SqlError> {
    let before = *cursor;
    let mut text = option_value(cursor)?;
    if let Some(unit) = cursor.word(0).filter(|_| text != "0") {
        text.push_str(&unit.value);
        cursor.skip(1);
    }
    ttl_ns(&text).map_or_else(|| before.error("a TTL such as 12h, 30 DAYS or 1y"), Ok)
}

fn alter(cursor: &mut Cursor<'_>, name: &str) -> Result<ViewChange, SqlError> {
    let before = *cursor;
    if cursor.at(&["rename", "to"]) {
        invalid(format!(
            "a materialized view keeps its name, by which its windows are stored: make another one of what SHOW CREATE MATERIALIZED VIEW {name} shows, \
             and DROP MATERIALIZED VIEW {name} once it is computed"
        ))
    } else if cursor.at(&["rename"]) {
        invalid(format!(
            "columns of a materialized view keep their names: ALTER MATERIALIZED VIEW {name} ADD COLUMN … AS … gives it one by another name, and \
             CREATE VIEW … AS SELECT old AS new FROM {name} shows it by one"
        ))
    } else if cursor.take(&["resume", "wal"]) {
        Ok(ViewChange::Nothing)
    } else if cursor.take(&["set", "refresh", "limit"]) {
        before.error("SET REFRESH and a policy: rows of any age count, REFRESH LIMIT is not possible")
    } else if cursor.take(&["set", "refresh"]) {
        let (refresh, lag_ns) = refresh_policy(cursor)?;
        Ok(ViewChange::Refresh { refresh, lag_ns })
    } else if cursor.take(&["set", "ttl"]) {
        Ok(ViewChange::Ttl(ttl(cursor)?))
    } else if cursor.take(&["add"]) {
        cursor.take(&["column"]);
        add_column(cursor).map(ViewChange::AddColumn)
    } else if cursor.take(&["set"]) {
        let mut change = ViewChange::Nothing;
        for (name, value) in options(cursor)? {
            if name == "materialized_only" {
                change = ViewChange::MaterializedOnly(truth(&name, value.as_deref())?);
            } else {
                checked_option(&name)?;
            }
        }
        Ok(change)
    } else {
        cursor.error("SET (timescaledb.materialized_only = …), SET REFRESH …, SET TTL … or ADD COLUMN … AS …")
    }
}

fn refresh(cursor: &mut Cursor<'_>, name: String) -> Result<ViewStatement, SqlError> {
    let (mut range, mut is_forced) = (TimeRange::ALL, false);
    if cursor.take(&["full"]) || cursor.take(&["with", "data"]) {
        is_forced = true;
    } else if cursor.take(&["range", "from"]) {
        let from_ns = moment(cursor)?;
        if !cursor.take(&["to"]) {
            return cursor.error("TO");
        }
        range = TimeRange { start_ns: from_ns, end_ns: moment(cursor)? };
        is_forced = true;
    } else {
        cursor.take(&["incremental"]);
    }
    Ok(ViewStatement::Refresh(RefreshView { name, range, is_forced, tag: "REFRESH MATERIALIZED VIEW" }))
}

fn moment(cursor: &mut Cursor<'_>) -> Result<i64, SqlError> {
    let before = *cursor;
    let text = cursor.text()?;
    time::parse(&text).map_or_else(|| before.error("a time such as '2026-01-31T00:00:00Z'"), Ok)
}

/// `('view', from, to, force => true)`; from and to are times, texts or NULL.
fn call(start: &Cursor<'_>, mut cursor: Cursor<'_>) -> Result<ViewTokens, SqlError> {
    cursor.symbol(&Token::LParen)?;
    let (name_token, name) = name(&mut cursor)?;
    let (mut range, mut is_forced, mut place) = (TimeRange::ALL, false, 0);
    // `schema.view` comes as one text.
    let name = name.rsplit('.').next().unwrap_or_default().trim_matches('"').to_owned();
    while cursor.take_symbol(&Token::Comma) {
        place += 1;
        let mut named = String::new();
        if cursor.rest().get(1).is_some_and(|token| matches!(token.token, Token::RArrow | Token::Assignment)) {
            named = written_name(&mut cursor)?.to_lowercase();
            cursor.skip(1);
        }
        match (named.as_str(), place) {
            ("force", _) | ("", 3) => {
                is_forced = !cursor.take(&["null"]) && truth("force", Some(option_value(&mut cursor)?.as_str()))?;
            }
            ("window_start", _) | ("", 1) => range.start_ns = bound(&mut cursor, i64::MIN)?,
            ("window_end", _) | ("", 2) => range.end_ns = bound(&mut cursor, i64::MAX)?,
            ("options", _) => drop(option_value(&mut cursor)?),
            _ => return cursor.error("window_start, window_end or force"),
        }
    }
    cursor.symbol(&Token::RParen)?;
    if cursor.peek().is_some() {
        return cursor.error("the end of the statement");
    }
    let statement = ViewStatement::Refresh(RefreshView { name, range, is_forced, tag: "CALL" });
    Ok(carried(start, &name_token, statement))
}

/// A time, or NULL for none.
fn bound(cursor: &mut Cursor<'_>, otherwise: i64) -> Result<i64, SqlError> {
    let ends = if cursor.take(&["null"]) {
        otherwise
    } else {
        cursor.take(&["timestamp", "with", "time", "zone"]);
        cursor.take(&["timestamptz"]);
        cursor.take(&["timestamp"]);
        moment(cursor)?
    };
    if cursor.take_symbol(&Token::DoubleColon) {
        written_name(cursor)?;
    }
    Ok(ends)
}
