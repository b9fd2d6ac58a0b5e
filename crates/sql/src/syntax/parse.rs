//! Text to statements.
//!
//! The grammar is `sqlparser`'s. What time-series databases add to a SELECT (`SAMPLE BY … FILL … ALIGN TO …`, `LATEST ON … PARTITION
//! BY …`, `LATEST BY …`, `ASOF JOIN`, `LT JOIN`, `TOLERANCE`) is taken out of the tokens before, and found again by the place of its SELECT.

use std::collections::{HashMap, HashSet};

use access::statement::AccountStatement;
use query::plan::FillWith;
use sqlparser::ast::{Expr, Ident, Select, Statement, TableFactor};
use sqlparser::dialect::{Dialect, PostgreSqlDialect};
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

use crate::error::{SqlError, invalid};
use crate::syntax::accounts::{self, AccountsByPlace};
use crate::syntax::cursor::{Cursor, DEPTH_MAX, syntax};
use crate::syntax::questdb;
use crate::syntax::settings::{self, SettingsByPlace};
use crate::syntax::spelling;
use crate::syntax::triggers::{self, TriggerStatement, TriggersByPlace};
use crate::syntax::view_texts::{ViewTexts, view_texts};
use crate::syntax::views::{self, ViewStatement, ViewsByPlace};

/// Bytes of a text.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Operators of a text, and of it and the views that it reads together: chains of them are trees as deep, and are walked by recursion on threads
/// with two megabytes of stack.
pub(crate) const OPERATORS_MAX: usize = 256;

/// Comparisons in a statement: those that are joined by AND and OR, and some more.
const COMPARISONS_MAX: usize = OPERATORS_MAX + 144;

/// Statements and what was taken out of them.
#[derive(Debug, Clone, Default)]
pub struct Parsed {
    /// In the order in which they stand.
    pub statements: Vec<Statement>,
    /// By the place of their SELECT.
    pub(crate) extensions: Extensions,
    /// True if something stands for an ASOF JOIN or LT JOIN that the grammar reads as another.
    has_asof: bool,
    /// The TOLERANCE of such joins, by the place of the first name or SELECT after JOIN.
    tolerances: HashMap<(u64, u64), String>,
    /// The settings of databases in statements.
    pub(crate) databases: SettingsByPlace,
    /// Statements about users.
    accounts: AccountsByPlace,
    /// Statements about triggers.
    triggers: TriggersByPlace,
    /// Where the names of the cursors stand that MOVE moves.
    moves: HashSet<(u64, u64)>,
    /// Statements about materialised views.
    views: ViewsByPlace,
    /// Statements that make views of plain SQL, as they were written.
    pub(crate) view_texts: ViewTexts,
    /// How many operators and levels of parentheses there are, which are walked by recursion.
    pub(crate) depth: usize,
}

/// The clauses of SELECTs beyond SQL, by the line and column of each.
pub(crate) type Extensions = HashMap<(u64, u64), Extension>;

/// The clauses of a SELECT beyond SQL.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extension {
    pub(crate) sample: Option<Sample>,
    /// Columns: of each combination of their values only the last row stays.
    pub(crate) latest_by: Option<Vec<Expr>>,
}

/// `SAMPLE BY 1h FILL(…) ALIGN TO …`
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// `1h`
    pub(crate) width: String,
    /// `FROM '…'`: where the first bin begins; no row before it counts.
    pub(crate) from: Option<String>,
    /// `TO '…'`: no row from there on counts.
    pub(crate) to: Option<String>,
    /// One for each column, or one for all.
    /// For each aggregate, or for all of them; `None`: gaps stay.
    pub(crate) fill: Vec<Option<FillWith>>,
    pub(crate) align: Align,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Align {
    Calendar { time_zone: Option<String>, offset: Option<String> },
    FirstObservation,
}

impl Parsed {
    /// A query's text for another engine of SQL; `None` for other statements, and for those with what only time-series databases have.
    pub fn query_text(&self, position: usize) -> Option<String> {
        let statement = self.statements.get(position)?;
        let is_query = match statement {
            Statement::Query(_) => true,
            Statement::Explain { statement, .. } => matches!(**statement, Statement::Query(_)),
            _ => false,
        };
        (is_query && self.extensions.is_empty() && !self.has_asof).then(|| statement.to_string())
    }

    /// A statement that is part of one of these.
    pub(crate) fn with(&self, statement: Statement) -> Self {
        Self { statements: vec![statement], ..self.clone() }
    }

    /// The statement about users that one of the statements is.
    pub fn account_statement(&self, index: usize) -> Option<&AccountStatement> {
        self.about_users(self.statements.get(index)?)
    }

    /// The statement about triggers that one of the statements is.
    pub fn trigger_statement(&self, index: usize) -> Option<&TriggerStatement> {
        self.about_triggers(self.statements.get(index)?)
    }

    /// The statement about triggers that a statement of the grammar stands for.
    pub(crate) fn about_triggers(&self, statement: &Statement) -> Option<&TriggerStatement> {
        self.triggers.get(&stand_in_position(statement)?)
    }

    /// Returns whether a statement is one about users.
    pub(crate) fn is_about_users(&self, statement: &Statement) -> bool {
        self.about_users(statement).is_some()
    }

    /// The statement about a materialised view that a statement is.
    pub(crate) fn view_statement(&self, statement: &Statement) -> Option<&ViewStatement> {
        let name = match statement {
            Statement::Drop { names, .. } => names.first()?,
            Statement::CreateView(create) => &create.name,
            _ => return None,
        };
        self.views.get(&position(name.0.last()?.as_ident()?.span.start))
    }

    fn about_users(&self, statement: &Statement) -> Option<&AccountStatement> {
        self.accounts.get(&stand_in_position(statement)?)
    }

    /// The TOLERANCE of an ASOF JOIN or LT JOIN with a table or a query.
    pub(crate) fn tolerance(&self, joined: &TableFactor) -> Option<&str> {
        let start = match joined {
            TableFactor::Table { name, .. } => name.0.first()?.as_ident()?.span.start,
            TableFactor::Derived { subquery, .. } => subquery.body.as_select()?.select_token.0.span.start,
            _ => return None,
        };
        self.tolerances.get(&position(start)).map(String::as_str)
    }

    /// Returns whether a statement takes rows that its client sends after it.
    pub fn takes_rows(&self, index: usize) -> bool {
        matches!(self.statements.get(index), Some(Statement::Copy { to: false, .. }))
    }

    /// Returns whether a statement does something that is undone with its transaction.
    pub fn can_be_undone(&self, index: usize) -> bool {
        matches!(
            self.statements.get(index),
            Some(
                Statement::Insert(_)
                    | Statement::Delete(_)
                    | Statement::Update(_)
                    | Statement::Set(_)
                    | Statement::Execute { .. }
            )
        )
    }

    /// Returns whether a FETCH of a cursor is a MOVE.
    pub(crate) fn is_move(&self, cursor: &Ident) -> bool {
        self.moves.contains(&position(cursor.span.start))
    }

    pub(crate) fn extension(&self, select: &Select) -> Option<&Extension> {
        self.extensions.get(&position(select.select_token.0.span.start))
    }
}

/// Where the name of a statement stands that may stand for one that the grammar does not have.
fn stand_in_position(statement: &Statement) -> Option<(u64, u64)> {
    match statement {
        Statement::Drop { names, .. } => Some(position(names.first()?.0.first()?.as_ident()?.span.start)),
        _ => None,
    }
}

pub(crate) const fn position(location: Location) -> (u64, u64) {
    (location.line, location.column)
}

/// Reads statements.
pub fn parse(text: &str) -> Result<Parsed, SqlError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(SqlError::Syntax(format!("a text of SQL has at most {TEXT_BYTES_MAX} bytes, not {}", text.len())));
    }
    let dialect = PostgreSqlDialect {};
    let tokens = Tokenizer::new(&dialect, text).tokenize_with_location();
    let tokens = tokens.map_err(|error| SqlError::Syntax(format!("{}{}", error.message, error.location)))?;
    let depth = check_depth(&tokens)?;
    let view_texts = view_texts(text, &tokens);
    let (tokens, views) = views::extract(&tokens, &dialect)?;
    let Extracted { tokens, mut parsed } = extract(&tokens, &dialect)?;
    let mut parser = Parser::new(&dialect).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens);
    parsed.statements = parser.parse_statements().map_err(|error| syntax(&error))?;
    Ok(Parsed { views, view_texts, depth, ..parsed })
}

/// The parser counts what it recurses through; chains of operators it does not, and they are recursed through later. Returns how deep both may be.
fn check_depth(tokens: &[TokenWithSpan]) -> Result<usize, SqlError> {
    let is_operator = |token: &TokenWithSpan| {
        matches!(
            token.token,
            Token::Plus
                | Token::Minus
                | Token::Mul
                | Token::Div
                | Token::Mod
                | Token::StringConcat
                | Token::DoubleColon
        ) || matches!(&token.token, Token::Word(word) if matches!(word.keyword, Keyword::AND | Keyword::OR | Keyword::NOT | Keyword::UNION))
    };
    let count = tokens.iter().filter(|token| is_operator(token)).count();
    if count > OPERATORS_MAX {
        return Err(SqlError::Syntax(format!("a statement has at most {OPERATORS_MAX} operators, not {count}")));
    }
    let is_comparison =
        |token: &Token| matches!(token, Token::Eq | Token::Neq | Token::Lt | Token::Gt | Token::LtEq | Token::GtEq);
    let comparisons = tokens.iter().filter(|token| is_comparison(&token.token)).count();
    if comparisons > COMPARISONS_MAX {
        return Err(SqlError::Syntax(format!(
            "a statement has at most {COMPARISONS_MAX} comparisons, not {comparisons}: IN compares with many values"
        )));
    }
    let (mut open, mut open_max) = (0usize, 0usize);
    for token in tokens {
        match token.token {
            Token::LParen => open += 1,
            Token::RParen => open = open.saturating_sub(1),
            _ => {}
        }
        open_max = open_max.max(open);
    }
    Ok(count + open_max)
}

/// The tokens for the grammar, and the clauses that it does not have.
#[derive(Default)]
struct Extracted {
    tokens: Vec<TokenWithSpan>,
    /// Without its statements.
    parsed: Parsed,
}

/// A level of parentheses.
#[derive(Clone, Copy, Default)]
struct Level {
    /// Its last SELECT.
    select: Option<Location>,
    /// The beginning of the right side of its last ASOF JOIN or LT JOIN.
    joined: Option<Location>,
    /// True after it while neither ON, USING nor another clause came.
    lacks_on: bool,
}

impl Level {
    /// Returns whether the grammar would read a join that comes next as a part of the right side of the last ASOF JOIN or LT JOIN, which has no ON.
    fn would_nest(&mut self, cursor: &Cursor<'_>) -> bool {
        const JOINS: [&[&str]; 8] = [
            &["join"],
            &["inner", "join"],
            &["left", "join"],
            &["left", "outer"],
            &["right", "join"],
            &["right", "outer"],
            &["full", "join"],
            &["full", "outer"],
        ];
        const ENDS: [&[&str]; 17] = [
            &["on"],
            &["using"],
            &["cross"],
            &["natural"],
            &["where"],
            &["group"],
            &["having"],
            &["order"],
            &["limit"],
            &["sample", "by"],
            &["latest", "by"],
            &["latest", "on"],
            &["union"],
            &["intersect"],
            &["except"],
            &["window"],
            &["returning"],
        ];
        let is_comma = cursor.peek().is_some_and(|token| token.token == Token::Comma);
        if is_comma || ENDS.iter().any(|words| cursor.at(words)) {
            self.lacks_on = false;
        }
        self.lacks_on && (cursor.timed_join().is_some() || JOINS.iter().any(|words| cursor.at(words)))
    }
}

impl Extracted {
    /// Adds words of the grammar in the place of a token.
    fn push_keywords<const N: usize>(&mut self, keywords: [&str; N], at: &TokenWithSpan) {
        let token = |keyword| TokenWithSpan { token: Token::make_keyword(keyword), span: at.span };
        self.tokens.extend(keywords.map(token));
    }

    /// Takes the TOLERANCE of a join.
    fn take_tolerance(&mut self, joined: Location, cursor: &mut Cursor<'_>) -> Result<(), SqlError> {
        cursor.next += 1;
        match self.parsed.tolerances.insert(position(joined), cursor.width()?) {
            None => Ok(()),
            Some(_) => invalid("a join has one TOLERANCE"),
        }
    }

    /// Takes the beginning of a statement that the grammar does not have, or spells otherwise; returns whether it was one.
    fn take_beginning(&mut self, cursor: &mut Cursor<'_>) -> Result<bool, SqlError> {
        if let Some(taken) = settings::take(cursor.rest())? {
            self.tokens.extend(taken.tokens);
            self.parsed.databases.insert(position(taken.at), taken.said);
            cursor.next += taken.read;
            return Ok(true);
        }
        if let Some(taken) = accounts::take(cursor)? {
            self.tokens.extend(taken.tokens);
            self.parsed.accounts.insert(position(taken.at), taken.statement);
            cursor.next += taken.read;
            return Ok(true);
        }
        if let Some(taken) = triggers::take(cursor)? {
            self.tokens.extend(taken.tokens);
            self.parsed.triggers.insert(position(taken.at), taken.statement);
            cursor.next += taken.read;
            return Ok(true);
        }
        if cursor.at(&["move"]) {
            let is_end = |token: &Token| matches!(token, Token::SemiColon | Token::EOF);
            let name = cursor.rest().iter().take_while(|token| !is_end(&token.token)).last();
            self.parsed.moves.extend(name.map(|name| position(name.span.start)));
        }
        let Some(spelled) = spelling::take(cursor) else { return Ok(false) };
        self.tokens.extend(spelled.tokens);
        cursor.next += spelled.read;
        Ok(true)
    }
}

/// Tokens without the extensions.
fn extract(tokens: &[TokenWithSpan], dialect: &dyn Dialect) -> Result<Extracted, SqlError> {
    let mut out = Extracted::default();
    let mut levels = vec![Level::default()];
    let mut cursor = Cursor::new(tokens, dialect);
    let mut statement_start = 0;
    while let Some(token) = cursor.peek() {
        let begins = out.tokens.last().is_none_or(|last| last.token == Token::SemiColon);
        if begins {
            statement_start = out.tokens.len();
        }
        if begins && out.take_beginning(&mut cursor)? {
            continue;
        }
        match &token.token {
            Token::LParen => levels.push(Level::default()),
            Token::RParen if levels.len() > 1 => {
                levels.pop();
            }
            Token::SemiColon => levels = vec![Level::default()],
            Token::Word(word) if word.keyword == Keyword::SELECT => {
                if let Some(last) = levels.last_mut() {
                    *last = Level { select: Some(token.span.start), ..Level::default() };
                }
            }
            _ => {}
        }
        let before = out.tokens.get(statement_start..).unwrap_or_default();
        if let Some(respelled) = questdb::respell(tokens.get(cursor.next..).unwrap_or_default(), before) {
            if respelled.tokens.contains(&Token::LParen) {
                levels.push(Level::default());
            }
            out.tokens.extend(respelled.tokens.into_iter().map(|new| TokenWithSpan { token: new, span: token.span }));
            cursor.next += respelled.read;
            continue;
        }
        if levels.last_mut().is_some_and(|level| level.would_nest(&cursor)) {
            out.push_keywords(["ON", "TRUE"], token);
            levels.last_mut().into_iter().for_each(|level| level.lacks_on = false);
        }
        let Level { select, joined, .. } = levels.last().copied().unwrap_or_default();
        if cursor.splice_join() {
            // The grammar would read an alias.
            return invalid(
                "there is no SPLICE JOIN: ASOF JOIN gives each row of one table the newest of the other, once from each side; a materialised view joins by JOIN, LEFT JOIN, ASOF JOIN and LT JOIN",
            );
        }
        if let Some(kind) = cursor.timed_join() {
            // Two words that nothing else here uses stand for one that the grammar has only in another form, or not at all.
            out.push_keywords(["LEFT", kind, "JOIN"], token);
            if let Some(level) = levels.last_mut() {
                let after = cursor.rest().iter().skip(2).find(|token| token.token != Token::LParen);
                level.joined = after.map(|token| token.span.start);
                level.lacks_on = true;
            }
            out.parsed.has_asof = true;
            cursor.next += 2;
        } else if let Some(joined) = joined.filter(|_| cursor.at(&["tolerance"])) {
            out.take_tolerance(joined, &mut cursor)?;
        } else if let Some(select) = select.filter(|_| cursor.at(&["sample", "by"])) {
            out.parsed.extensions.entry(position(select)).or_default().sample = Some(cursor.sample()?);
        } else if let Some(select) = select.filter(|_| cursor.at(&["latest", "by"]) || cursor.at(&["latest", "on"])) {
            out.parsed.extensions.entry(position(select)).or_default().latest_by = Some(cursor.latest()?);
        } else {
            out.tokens.push(token.clone());
            cursor.next += 1;
        }
    }
    Ok(out)
}

impl Cursor<'_> {
    /// `1h`, `15m` or `'15m'`
    pub(super) fn width(&mut self) -> Result<String, SqlError> {
        let Some(Token::Number(number, _)) = self.peek().map(|token| &token.token) else {
            return if matches!(self.peek().map(|token| &token.token), Some(Token::SingleQuotedString(_))) {
                self.text()
            } else {
                self.error("a width such as 1h")
            };
        };
        self.next += 1;
        let Some(unit) = self.word(0) else { return self.error("a unit such as h") };
        self.next += 1;
        Ok(format!("{number}{}", unit.value))
    }

    fn sample(&mut self) -> Result<Sample, SqlError> {
        self.next += 2;
        let width = self.width()?;
        let from = if self.take(&["from"]) { Some(self.text()?) } else { None };
        let to = if self.take(&["to"]) { Some(self.text()?) } else { None };
        let fill = if self.take(&["fill"]) { self.fill()? } else { Vec::new() };
        let mut align = Align::Calendar { time_zone: None, offset: None };
        if self.take(&["align", "to", "first", "observation"]) {
            align = Align::FirstObservation;
        } else if self.take(&["align", "to", "calendar"]) {
            let time_zone = if self.take(&["time", "zone"]) { Some(self.text()?) } else { None };
            let offset = if self.take(&["with", "offset"]) { Some(self.text()?) } else { None };
            align = Align::Calendar { time_zone, offset };
        }
        Ok(Sample { width, from, to, fill, align })
    }

    fn fill(&mut self) -> Result<Vec<Option<FillWith>>, SqlError> {
        self.symbol(&Token::LParen)?;
        let mut fills = Vec::new();
        loop {
            let negative = self.peek().is_some_and(|token| token.token == Token::Minus);
            self.next += usize::from(negative);
            let fill = match self.peek().map(|token| &token.token) {
                Some(Token::Word(word)) if !negative => match word.value.to_lowercase().as_str() {
                    "none" => None,
                    "null" => Some(FillWith::Null),
                    "prev" | "previous" => Some(FillWith::Previous),
                    "linear" => Some(FillWith::Linear),
                    _ => return self.error("NONE, NULL, PREV, LINEAR or a number"),
                },
                Some(Token::Number(number, _)) => match number.parse::<f64>() {
                    Ok(number) => Some(FillWith::Number(if negative { -number } else { number })),
                    Err(_) => return self.error("a number"),
                },
                _ => return self.error("NONE, NULL, PREV, LINEAR or a number"),
            };
            self.next += 1;
            fills.push(fill);
            if self.peek().is_some_and(|token| token.token == Token::Comma) {
                self.next += 1;
                continue;
            }
            self.symbol(&Token::RParen)?;
            return Ok(fills);
        }
    }

    /// `LATEST BY a, b` or `LATEST ON time PARTITION BY a, b`
    fn latest(&mut self) -> Result<Vec<Expr>, SqlError> {
        self.next += 1;
        if self.take(&["on"]) {
            if self.word(0).is_none() {
                return self.error("the column of time");
            }
            self.next += 1;
            if !self.take(&["partition"]) {
                return self.error("PARTITION BY");
            }
        }
        if !self.take(&["by"]) {
            return self.error("BY");
        }
        let mut columns = Vec::new();
        loop {
            let Some(Token::Word(word)) = self.peek().map(|token| &token.token) else {
                return self.error("a column");
            };
            let parsed = Parser::new(self.dialect).with_tokens(vec![Token::Word(word.clone())]).parse_expr();
            columns.push(parsed.map_err(|error| syntax(&error))?);
            self.next += 1;
            if self.peek().is_none_or(|token| token.token != Token::Comma) {
                return Ok(columns);
            }
            self.next += 1;
        }
    }
}
