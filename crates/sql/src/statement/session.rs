//! Statements about the session that they come from: transactions, cursors, prepared statements.

use sqlparser::ast::{
    CloseCursor, DataType, DiscardObject, Expr, FetchDirection, ObjectName, Reset, Statement, Value, ValueWithSpan,
};

use crate::error::{SqlError, invalid, unsupported};
use crate::expression::{ParameterType, sql_type};
use crate::syntax::parse::Parsed;

/// A statement about the session that it comes from.
#[derive(Debug, Clone)]
pub enum SessionCommand {
    /// `BEGIN`
    Begin,
    /// `COMMIT`; true if another transaction follows.
    Commit(bool),
    /// `ROLLBACK`; true if another transaction follows.
    Rollback(bool),
    /// `ROLLBACK TO`
    RollbackTo(String),
    /// `SAVEPOINT`
    Savepoint(String),
    /// `RELEASE`
    Release(String),
    /// `DECLARE … CURSOR FOR`
    Declare(Declared),
    /// `FETCH` or `MOVE`
    Fetch(Fetch),
    /// `CLOSE` of a cursor, or of all.
    Close(Option<String>),
    /// `PREPARE`
    Prepare(Prepared),
    /// `EXECUTE`, and a query of the values of the parameters.
    Execute(String, Option<Parsed>),
    /// `DEALLOCATE` of a statement, or of all.
    Deallocate(Option<String>),
    /// `RESET` of a setting, or of all.
    Reset(Option<String>),
    /// `DISCARD ALL`
    DiscardAll,
}

/// `DECLARE … CURSOR FOR`
#[derive(Debug, Clone)]
pub struct Declared {
    /// The cursor's name.
    pub name: String,
    /// True if it stays after its transaction.
    pub is_held: bool,
    /// True if it moves forward only.
    pub is_forward_only: bool,
    /// Its query.
    pub query: Parsed,
}

/// `FETCH` or `MOVE`
#[derive(Debug, Clone)]
pub struct Fetch {
    /// The cursor's name.
    pub name: String,
    /// The rows that are fetched, and where the cursor stands after them.
    pub step: CursorStep,
    /// True if the rows are not wanted: `MOVE`.
    pub is_move: bool,
}

/// A movement of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CursorStep {
    /// So many rows, or all, after the one where it stands.
    Forward(Option<usize>),
    /// So many rows, or all, before it, the nearest first.
    Backward(Option<usize>),
    /// The row of a number, the first is 1.
    Absolute(usize),
    /// The last row.
    Last,
    /// The row so many after it.
    Relative(usize),
}

/// `PREPARE`
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The statement's name.
    pub name: String,
    /// The types of the first parameters.
    pub types: Vec<ParameterType>,
    /// The statement.
    pub statement: Parsed,
}

/// The command that a statement is; `None` if it is about data.
pub fn session_command(parsed: &Parsed, position: usize) -> Result<Option<SessionCommand>, SqlError> {
    let Some(statement) = parsed.statements.get(position) else { return Ok(None) };
    Ok(Some(match statement {
        Statement::StartTransaction { .. } => SessionCommand::Begin,
        Statement::Commit { chain, .. } => SessionCommand::Commit(*chain),
        Statement::Rollback { savepoint: Some(name), .. } => SessionCommand::RollbackTo(name.value.clone()),
        Statement::Rollback { chain, .. } => SessionCommand::Rollback(*chain),
        Statement::Savepoint { name } => SessionCommand::Savepoint(name.value.clone()),
        Statement::ReleaseSavepoint { name } => SessionCommand::Release(name.value.clone()),
        Statement::Declare { stmts } => {
            let [declare] = stmts.as_slice() else { return unsupported("DECLARE of several cursors") };
            let (Some(query), [name]) = (&declare.for_query, declare.names.as_slice()) else {
                return unsupported("DECLARE of something else than a cursor");
            };
            SessionCommand::Declare(Declared {
                name: name.value.clone(),
                is_held: declare.hold == Some(true),
                is_forward_only: declare.scroll == Some(false),
                query: parsed.with(Statement::Query(query.clone())),
            })
        }
        Statement::Fetch { name, direction, .. } => SessionCommand::Fetch(Fetch {
            name: name.value.clone(),
            step: step(direction)?,
            is_move: parsed.is_move(name),
        }),
        Statement::Close { cursor: CloseCursor::All } => SessionCommand::Close(None),
        Statement::Close { cursor: CloseCursor::Specific { name } } => SessionCommand::Close(Some(name.value.clone())),
        Statement::Prepare { name, data_types, statement } => SessionCommand::Prepare(Prepared {
            name: name.value.clone(),
            types: data_types.iter().map(parameter_type).collect::<Result<_, _>>()?,
            statement: parsed.with((**statement).clone()),
        }),
        Statement::Execute { name: Some(name), parameters, .. } => {
            SessionCommand::Execute(last(name), arguments(parameters)?)
        }
        Statement::Deallocate { name, .. } => SessionCommand::Deallocate(unless_all(name.value.clone())),
        Statement::Reset(reset) => match &reset.reset {
            Reset::ALL => SessionCommand::Reset(None),
            Reset::ConfigurationParameter(name) => SessionCommand::Reset(Some(last(name).to_lowercase())),
            Reset::SessionAuthorization => return unsupported("RESET SESSION AUTHORIZATION"),
        },
        Statement::Discard { object_type: DiscardObject::ALL } => SessionCommand::DiscardAll,
        _ => return Ok(None),
    }))
}

fn unless_all(name: String) -> Option<String> {
    (!name.eq_ignore_ascii_case("all")).then_some(name)
}

fn last(name: &ObjectName) -> String {
    name.0.last().and_then(|part| part.as_ident()).map(|part| part.value.clone()).unwrap_or_default()
}

/// The movement that a FETCH asks for.
fn step(direction: &FetchDirection) -> Result<CursorStep, SqlError> {
    let number = |limit: &ValueWithSpan| match &limit.value {
        Value::Number(text, _) => {
            text.parse::<usize>().or_else(|_| invalid(format!("{text} is not a number of rows to fetch")))
        }
        other => invalid(format!("{other} is not a number of rows to fetch")),
    };
    Ok(match direction {
        FetchDirection::Next | FetchDirection::Forward { limit: None } => CursorStep::Forward(Some(1)),
        FetchDirection::All | FetchDirection::ForwardAll => CursorStep::Forward(None),
        FetchDirection::Count { limit } | FetchDirection::Forward { limit: Some(limit) } => {
            CursorStep::Forward(Some(number(limit)?))
        }
        FetchDirection::Prior | FetchDirection::Backward { limit: None } => CursorStep::Backward(Some(1)),
        FetchDirection::Backward { limit: Some(limit) } => CursorStep::Backward(Some(number(limit)?)),
        FetchDirection::BackwardAll => CursorStep::Backward(None),
        FetchDirection::First => CursorStep::Absolute(1),
        FetchDirection::Last => CursorStep::Last,
        FetchDirection::Absolute { limit } => CursorStep::Absolute(number(limit)?),
        FetchDirection::Relative { limit } => CursorStep::Relative(number(limit)?),
    })
}

fn parameter_type(data_type: &DataType) -> Result<ParameterType, SqlError> {
    let name = data_type.to_string().to_lowercase();
    let is_array = name.ends_with(']');
    let sql_type = if is_array { crate::expression::array_element(&name)? } else { sql_type(data_type)? };
    Ok(ParameterType { is_array, ..ParameterType::one(sql_type) })
}

/// The values of EXECUTE as a query of one row.
fn arguments(parameters: &[Expr]) -> Result<Option<Parsed>, SqlError> {
    if parameters.is_empty() {
        return Ok(None);
    }
    let list: Vec<String> = parameters.iter().map(ToString::to_string).collect();
    crate::syntax::parse::parse(&format!("SELECT {}", list.join(", "))).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::parse::parse;

    /// A command as its debug form begins, `data` or an error.
    fn command(text: &str) -> String {
        match parse(text).and_then(|parsed| session_command(&parsed, 0)) {
            Ok(Some(command)) => format!("{command:?}").split([' ', '{']).next().unwrap_or_default().to_owned(),
            Ok(None) => "data".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn statements_about_the_session_are_told_from_those_about_data() {
        for (text, expected) in [
            ("BEGIN", "Begin"),
            ("BEGIN READ ONLY", "Begin"),
            ("START TRANSACTION ISOLATION LEVEL REPEATABLE READ", "Begin"),
            ("COMMIT", "Commit(false)"),
            ("END", "Commit(false)"),
            ("COMMIT AND CHAIN", "Commit(true)"),
            ("ROLLBACK", "Rollback(false)"),
            ("ABORT", "Rollback(false)"),
            ("ROLLBACK TO SAVEPOINT a", "RollbackTo(\"a\")"),
            ("SAVEPOINT a", "Savepoint(\"a\")"),
            ("RELEASE SAVEPOINT a", "Release(\"a\")"),
            ("RELEASE a", "Release(\"a\")"),
            ("DECLARE c CURSOR FOR SELECT 1", "Declare(Declared"),
            ("DECLARE \"c\" NO SCROLL CURSOR WITH HOLD FOR SELECT 1", "Declare(Declared"),
            ("FETCH 10 FROM c", "Fetch(Fetch"),
            ("FETCH FORWARD ALL FROM c", "Fetch(Fetch"),
            ("FETCH ALL IN c", "Fetch(Fetch"),
            ("FETCH NEXT FROM c", "Fetch(Fetch"),
            ("FETCH FROM c", "Fetch(Fetch"),
            ("FETCH c", "Fetch(Fetch"),
            ("FETCH FORWARD FROM c", "Fetch(Fetch"),
            ("FETCH PRIOR FROM c", "Fetch(Fetch"),
            ("FETCH BACKWARD IN c", "Fetch(Fetch"),
            ("MOVE LAST IN c", "Fetch(Fetch"),
            ("MOVE c", "Fetch(Fetch"),
            ("CLOSE ALL", "Close(None)"),
            ("CLOSE c", "Close(Some(\"c\"))"),
            ("PREPARE p (int, text[]) AS SELECT $1", "Prepare(Prepared"),
            ("EXECUTE p (1, 'x')", "Execute(\"p\","),
            ("EXECUTE p", "Execute(\"p\","),
            ("DEALLOCATE ALL", "Deallocate(None)"),
            ("DEALLOCATE p", "Deallocate(Some(\"p\"))"),
            ("RESET ALL", "Reset(None)"),
            ("RESET statement_timeout", "Reset(Some(\"statement_timeout\"))"),
            ("DISCARD ALL", "DiscardAll"),
            ("SELECT 1", "data"),
            ("UNLISTEN *", "data"),
            ("SHOW ALL", "data"),
        ] {
            assert_eq!(command(text), expected, "{text}");
        }
    }
}
