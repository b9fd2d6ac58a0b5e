//! Which statements only read.

use access::audit::Event;
use sqlparser::ast::{ObjectType, Query, SetExpr, Statement};

use crate::statement::policies::is_policy_call;
use crate::syntax::parse::Parsed;
use crate::syntax::triggers::TriggerStatement;
use crate::syntax::views::ViewStatement;

impl Parsed {
    /// The first statement that may change rows, databases or anything else that outlives it, without passwords; `None` if all only read.
    pub fn first_change(&self) -> Option<String> {
        let changes = |statement: &Statement| {
            let of_triggers = self.about_triggers(statement).map(TriggerStatement::only_reads);
            let of_views = || self.view_statement(statement).map(ViewStatement::only_reads);
            !of_triggers.or_else(of_views).unwrap_or_else(|| only_reads(statement))
        };
        let index = self.statements.iter().position(changes)?;
        let statement = self.statements.get(index)?;
        let about_users = self.account_statement(index).map(ToString::to_string);
        let about_triggers = || self.trigger_statement(index).map(ToString::to_string);
        let about_views = || self.view_statement(statement).map(ViewStatement::head);
        Some(about_users.or_else(about_triggers).or_else(about_views).unwrap_or_else(|| statement.to_string()))
    }
}

impl Parsed {
    /// What the audit log has of a statement that was run, if it is told of it.
    pub fn audited(&self, index: usize) -> Option<Event> {
        let statement = self.statements.get(index)?;
        if let Some(about) = self.view_statement(statement) {
            return about.event();
        }
        match statement {
            // The change of an account is told where it is made.
            _ if self.account_statement(index).is_some() => None,
            _ if self.trigger_statement(index).is_some_and(TriggerStatement::only_reads) => None,
            _ if self.trigger_statement(index).is_some() => Some(Event::SettingsChanged),
            Statement::Drop { object_type: ObjectType::Table | ObjectType::Database, .. }
            | Statement::Delete(_)
            | Statement::Truncate(_) => Some(Event::Deleted),
            Statement::CreateDatabase { .. }
            | Statement::CreateView(_)
            | Statement::Drop { object_type: ObjectType::View, .. } => Some(Event::SettingsChanged),
            _ if is_policy_call(statement) => Some(Event::SettingsChanged),
            _ => None,
        }
    }
}

impl ViewStatement {
    /// Returns whether it changes nothing.
    const fn only_reads(&self) -> bool {
        matches!(self, Self::Show | Self::ShowCreate { .. })
    }

    /// What the audit log has of it.
    const fn event(&self) -> Option<Event> {
        match self {
            Self::Show | Self::ShowCreate { .. } => None,
            Self::Drop { .. } => Some(Event::Deleted),
            Self::Create(_) | Self::Alter { .. } | Self::Refresh(_) => Some(Event::SettingsChanged),
        }
    }

    /// Its first words and the name of the view.
    fn head(&self) -> String {
        let (words, name) = match self {
            Self::Create(create) => ("CREATE MATERIALIZED VIEW", &create.name),
            Self::Drop { name, .. } => ("DROP MATERIALIZED VIEW", name),
            Self::Alter { name, .. } => ("ALTER MATERIALIZED VIEW", name),
            Self::Refresh(refresh) => ("REFRESH MATERIALIZED VIEW", &refresh.name),
            Self::ShowCreate { name } => ("SHOW CREATE MATERIALIZED VIEW", name),
            Self::Show => return "SHOW MATERIALIZED VIEWS".to_owned(),
        };
        format!("{words} {name}")
    }
}

/// Statements that are known to read, and to set what is of the session. The grammar has many more, and gets new ones: all of those may
/// change something.
fn only_reads(statement: &Statement) -> bool {
    match statement {
        Statement::Query(query) => query_reads(query) && !is_policy_call(statement),
        Statement::Explain { statement, .. } => matches!(&**statement, Statement::Query(query) if query_reads(query)),
        Statement::Copy { to, .. } => *to,
        Statement::ExplainTable { .. }
        | Statement::ShowTables { .. }
        | Statement::ShowCreate { .. }
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
    use super::*;
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
            "SHOW MATERIALIZED VIEWS; SHOW CREATE MATERIALIZED VIEW v",
            "SHOW CREATE VIEW v; SHOW CREATE TABLE t",
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
            "DROP MATERIALIZED VIEW v",
            "CREATE VIEW v AS SELECT 1",
            "CREATE OR REPLACE VIEW v AS SELECT 1",
            "DROP VIEW IF EXISTS v",
            "REFRESH MATERIALIZED VIEW v",
            "SELECT remove_retention_policy('v')",
            "CALL add_retention_policy('t', INTERVAL '1 day')",
        ] {
            assert!(changes(text), "{text}");
        }
    }

    #[test]
    fn the_audit_log_is_told_of_changes_of_views() {
        let told = |text: &str| parse(text).unwrap().audited(0);
        for (text, event) in [
            ("SHOW CREATE MATERIALIZED VIEW v", None),
            ("SHOW MATERIALIZED VIEWS", None),
            ("DROP MATERIALIZED VIEW v", Some(Event::Deleted)),
            ("CREATE MATERIALIZED VIEW v AS SELECT 1", Some(Event::SettingsChanged)),
            ("ALTER MATERIALIZED VIEW v SET TTL 1d", Some(Event::SettingsChanged)),
            ("REFRESH MATERIALIZED VIEW v FULL", Some(Event::SettingsChanged)),
            ("CREATE OR REPLACE VIEW v AS SELECT 1", Some(Event::SettingsChanged)),
            ("DROP VIEW v", Some(Event::SettingsChanged)),
            ("SHOW CREATE VIEW v", None),
            ("CALL refresh_continuous_aggregate('v', NULL, NULL)", Some(Event::SettingsChanged)),
            ("SELECT add_retention_policy('v', INTERVAL '1 day')", Some(Event::SettingsChanged)),
        ] {
            assert_eq!(told(text), event, "{text}");
        }
        let first = parse("ALTER MATERIALIZED VIEW v SET TTL 1d").unwrap().first_change();
        assert_eq!(first.as_deref(), Some("ALTER MATERIALIZED VIEW v"));
    }
}
