//! Which statements only read.

use access::audit::Event;
use sqlparser::ast::{ObjectType, Query, SetExpr, Statement};

use crate::syntax::parse::Parsed;
use crate::syntax::triggers::TriggerStatement;

impl Parsed {
    /// The first statement that may change rows, databases or anything else that outlives it, without passwords; `None` if all only read.
    pub fn first_change(&self) -> Option<String> {
        let changes = |statement: &Statement| match self.about_triggers(statement) {
            Some(about) => !about.only_reads(),
            None => !only_reads(statement),
        };
        let index = self.statements.iter().position(changes)?;
        let about_users = self.account_statement(index).map(ToString::to_string);
        let about_triggers = || self.trigger_statement(index).map(ToString::to_string);
        about_users.or_else(about_triggers).or_else(|| self.statements.get(index).map(ToString::to_string))
    }
}

impl Parsed {
    /// What the audit log has of a statement that was run, if it is told of it.
    pub fn audited(&self, index: usize) -> Option<Event> {
        match self.statements.get(index)? {
            // The change of an account is told where it is made.
            _ if self.account_statement(index).is_some() => None,
            _ if self.trigger_statement(index).is_some_and(TriggerStatement::only_reads) => None,
            _ if self.trigger_statement(index).is_some() => Some(Event::SettingsChanged),
            Statement::Drop { object_type: ObjectType::Table | ObjectType::Database, .. }
            | Statement::Delete(_)
            | Statement::Truncate(_) => Some(Event::Deleted),
            Statement::CreateDatabase { .. } => Some(Event::SettingsChanged),
            _ => None,
        }
    }
}

/// Statements that are known to read, and to set what is of the session. The grammar has many more, and gets new ones: all of those may
/// change something.
fn only_reads(statement: &Statement) -> bool {
    match statement {
        Statement::Query(query) => query_reads(query) && !crate::statement::views::is_policy_call(query),
        Statement::Explain { statement, .. } => matches!(&**statement, Statement::Query(query) if query_reads(query)),
        Statement::Copy { to, .. } => *to,
        Statement::ExplainTable { .. }
        | Statement::ShowTables { .. }
        | Statement::ShowColumns { .. }
        | Statement::ShowDatabases { .. }
        | Statement::ShowSchemas { .. }
        | Statement::ShowVariable { .. }
        | Statement::Set(_)
        | Statement::StartTransaction { .. }
        | Statement::Commit { .. }
        | Statement::Rollback { .. }
        | Statement::Savepoint { .. }
        | Statement::ReleaseSavepoint { .. }
        | Statement::Discard { .. }
        | Statement::Reset(_)
        | Statement::UNLISTEN { .. }
        | Statement::Deallocate { .. }
        | Statement::Close { .. } => true,
        _ => false,
    }
}

fn query_reads(query: &Query) -> bool {
    let mut common = query.with.iter().flat_map(|with| &with.cte_tables);
    common.all(|table| query_reads(&table.query)) && body_reads(&query.body)
}

fn body_reads(body: &SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => select.into.is_none(),
        SetExpr::Query(query) => query_reads(query),
        SetExpr::SetOperation { left, right, .. } => body_reads(left) && body_reads(right),
        SetExpr::Values(_) | SetExpr::Table(_) => true,
        SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::syntax::parse::parse;

    #[test]
    fn statements_that_change_are_told_from_those_that_read() {
        let changes = |text: &str| parse(text).unwrap().first_change().is_some();
        for text in [
            "SELECT 1",
            "WITH a AS (SELECT 1) SELECT * FROM a UNION SELECT 2",
            "(VALUES (1))",
            "EXPLAIN ANALYZE SELECT 1",
            "SHOW TABLES",
            "SHOW DATABASES; SHOW COLUMNS FROM t; SET timezone TO 'UTC'",
            "COPY t TO STDOUT",
            "BEGIN; COMMIT",
            "",
        ] {
            assert!(!changes(text), "{text}");
        }
        for text in [
            "INSERT INTO t VALUES (1)",
            "SELECT 1; DROP DATABASE d",
            "CREATE DATABASE d",
            "ALTER DATABASE d SET (retention = '1d')",
            "CREATE TABLE t (v DOUBLE)",
            "DROP TABLE t",
            "DELETE FROM t",
            "TRUNCATE t",
            "COPY t FROM STDIN",
            "WITH a AS (INSERT INTO t VALUES (1) RETURNING v) SELECT * FROM a",
            "EXPLAIN DELETE FROM t",
            "SELECT 1 INTO t",
        ] {
            assert!(changes(text), "{text}");
        }
    }
}
