//! Views of plain SQL: queries that are expanded when they are read.

use std::sync::Arc;

use access::grant::{Grant, Right, Rights};
use access::scope::Scope;
use model::Matcher;

use super::validate::check_name;
use crate::{Budget, QueryError};

/// A view of plain SQL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredQuery {
    /// Its name.
    pub name: String,
    /// The database of the view and of what it reads.
    pub database: String,
    /// The statement that made it, whole.
    pub statement: String,
    /// True if its names and groups are read as `QuestDB` reads them, not as Postgres does.
    pub is_questdb: bool,
    /// The account that made it.
    pub maker: String,
    /// The conditions on labels by which the maker's right to read was narrowed.
    pub matchers: Vec<Matcher>,
}

impl StoredQuery {
    /// Returns whether a name is one of the catalog's: a view of it could not be read by that name alone.
    pub fn is_catalog_name(name: &str) -> bool {
        name.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("pg_"))
    }

    /// Checks what a store takes.
    ///
    /// # Errors
    /// If the name is too long, or cannot be one. How long the statement may be is a matter of where it is stored.
    pub fn check(&self) -> Result<(), QueryError> {
        check_name(&self.name)
    }

    /// Has a query read with the rights of its sender and of the view's maker, both, until what this returns is dropped.
    pub fn narrow<'a>(&self, budget: &'a Budget) -> NarrowedReads<'a> {
        let before = budget.narrowed_scope();
        if !self.matchers.is_empty() {
            let scope = budget.scope();
            let mut matchers = scope.matchers(Right::Read, &self.database);
            let own = self.matchers.iter().filter(|matcher| !matchers.contains(matcher));
            let own: Vec<Matcher> = own.cloned().collect();
            matchers.extend(own);
            // A query only reads, and only this database.
            let rights = Rights::from_rights(&[Right::Read]);
            let grant = Grant { matchers, ..Grant::on(&self.database, rights) };
            let grants = if scope.may(Right::Read, &self.database) { vec![grant] } else { Vec::new() };
            let narrowed = Scope { is_server_admin: false, grants, ..Scope::clone(&scope) };
            budget.narrow_scope(Some(Arc::new(narrowed)));
        }
        NarrowedReads { budget, before }
    }
}

/// As long as it lives, a query reads with narrower rights than its sender's.
pub struct NarrowedReads<'a> {
    budget: &'a Budget,
    before: Option<Arc<Scope>>,
}

impl Drop for NarrowedReads<'_> {
    fn drop(&mut self) {
        self.budget.narrow_scope(self.before.take());
    }
}

#[cfg(test)]
mod tests {
    use model::MatchOp;

    use super::*;

    #[test]
    fn a_view_is_read_with_the_rights_of_both() {
        let matcher = |name: &str| Matcher::new(name, MatchOp::Equal, "x");
        let view = |matchers: Vec<Matcher>| StoredQuery {
            name: "v".to_owned(),
            database: "d".to_owned(),
            statement: String::new(),
            is_questdb: false,
            maker: String::new(),
            matchers,
        };
        let scope = Scope { is_server_admin: false, ..Scope::clone(&Scope::open()) };
        let of_reader = Scope { grants: vec!["read:d{env=\"x\"}".parse().unwrap()], ..scope.clone() };
        let names = |budget: &Budget| -> Vec<String> {
            budget.scope().matchers(Right::Read, "d").into_iter().map(|matcher| matcher.name).collect()
        };
        let budget = Budget::new(1).for_scope(Arc::new(of_reader));
        {
            let _outer = view(vec![matcher("team")]).narrow(&budget);
            assert_eq!(names(&budget), ["env", "team"]);
            {
                let _inner = view(vec![matcher("zone"), matcher("env")]).narrow(&budget);
                assert_eq!(names(&budget), ["env", "team", "zone"]);
                assert!(!budget.scope().may(Right::Write, "d") && !budget.scope().may(Right::Read, "e"));
            }
            let _inner = view(Vec::new()).narrow(&budget);
            assert_eq!(names(&budget), ["env", "team"]);
        }
        assert_eq!(names(&budget), ["env"]);
        let open = Budget::new(1);
        let narrowed = view(vec![matcher("team")]).narrow(&open);
        assert_eq!(names(&open), ["team"], "of one who may do everything");
        drop(narrowed);
        assert!(open.scope().is_server_admin);
        let restricted = Budget::new(1).for_scope(Arc::new(scope));
        let _narrowed = view(vec![matcher("team")]).narrow(&restricted);
        assert!(!restricted.scope().may(Right::Read, "d"), "what the maker may read is not the reader's");
    }
}
