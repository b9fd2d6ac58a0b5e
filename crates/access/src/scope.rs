//! What an account may do. Everything that reads or changes data asks its scope, where the name of a database is resolved.

use std::sync::{Arc, OnceLock};

use model::Matcher;

use crate::grant::{DatabasePattern, Grant, Right};
use crate::rate::Quota;

/// What an account may do.
#[derive(Debug, Clone, PartialEq)]
pub struct Scope {
    /// The account's name; empty where no client has to sign in.
    pub name: Arc<str>,
    /// True for an administrator of the server, who may do everything: settings, accounts, backups, the queries of others, all databases.
    pub is_server_admin: bool,
    /// Its rights on databases.
    pub grants: Vec<Grant>,
    /// How much it may ask for in a time.
    pub quota: Quota,
}

impl Scope {
    /// The scope of a server that asks no client to sign in, and of work that the server does by itself: everything.
    pub fn open() -> Arc<Self> {
        static OPEN: OnceLock<Arc<Scope>> = OnceLock::new();
        let open =
            || Arc::new(Self { name: "".into(), is_server_admin: true, grants: Vec::new(), quota: Quota::default() });
        OPEN.get_or_init(open).clone()
    }

    /// The scope of a client that is not signed in: nothing.
    pub fn signed_out() -> Arc<Self> {
        static SIGNED_OUT: OnceLock<Arc<Scope>> = OnceLock::new();
        let signed_out =
            || Arc::new(Self { name: "".into(), is_server_admin: false, grants: Vec::new(), quota: Quota::default() });
        SIGNED_OUT.get_or_init(signed_out).clone()
    }

    /// Returns whether it has a right on a database.
    pub fn may(&self, right: Right, database: &str) -> bool {
        self.is_server_admin || self.grants_of(right, database).next().is_some()
    }

    /// Returns whether it has a right on every database there may be, narrowed by no labels.
    pub fn may_everywhere(&self, right: Right) -> bool {
        let all = DatabasePattern::all();
        let is_whole = |grant: &Grant| grant.rights.has(right) && grant.databases == all && grant.matchers.is_empty();
        self.is_server_admin || self.grants.iter().any(is_whole)
    }

    /// Returns whether it has a right on a whole database, narrowed by no labels.
    pub fn may_whole(&self, right: Right, database: &str) -> bool {
        self.may(right, database) && self.matchers(right, database).is_empty()
    }

    /// Returns whether it has a right on any database.
    pub fn may_anywhere(&self, right: Right) -> bool {
        self.is_server_admin || self.grants.iter().any(|grant| grant.rights.has(right))
    }

    /// Returns whether a database exists for it: one on which it has any right.
    pub fn sees(&self, database: &str) -> bool {
        self.is_server_admin || self.grants.iter().any(|grant| grant.databases.matches(database))
    }

    /// The conditions that every series must satisfy for it to be read or written; none: all may be. Where several grants have conditions, all
    /// of them must hold; one without gives the whole database.
    pub fn matchers(&self, right: Right, database: &str) -> Vec<Matcher> {
        if self.is_server_admin || self.grants_of(right, database).any(|grant| grant.matchers.is_empty()) {
            return Vec::new();
        }
        let mut matchers: Vec<Matcher> = Vec::new();
        for matcher in self.grants_of(right, database).flat_map(|grant| &grant.matchers) {
            if !matchers.contains(matcher) {
                matchers.push(matcher.clone());
            }
        }
        matchers
    }

    fn grants_of(&self, right: Right, database: &str) -> impl Iterator<Item = &Grant> {
        self.grants.iter().filter(move |grant| grant.rights.has(right) && grant.databases.matches(database))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(grants: &[&str]) -> Scope {
        let grants = grants.iter().map(|text| text.parse().unwrap()).collect();
        Scope { name: "a".into(), is_server_admin: false, grants, quota: Quota::default() }
    }

    fn texts(matchers: &[Matcher]) -> Vec<String> {
        matchers.iter().map(Matcher::to_string).collect()
    }

    #[test]
    fn rights_are_of_databases() {
        let scope = scope(&["read:a", "read+write:team-*"]);
        for (right, database, expected) in [
            (Right::Read, "a", true),
            (Right::Write, "a", false),
            (Right::Read, "ab", false),
            (Right::Write, "team-x", true),
            (Right::Create, "team-x", false),
            (Right::Admin, "team-x", false),
            (Right::Read, "team", false),
        ] {
            assert_eq!(scope.may(right, database), expected, "{right:?} {database}");
        }
        assert!(scope.sees("a") && !scope.sees("b"));
        assert!(Scope::open().may(Right::Admin, "b") && Scope::open().sees("b"));
    }

    #[test]
    fn a_grant_without_conditions_gives_all_and_conditions_add_up() {
        let narrow = scope(&["read:*{env=\"prod\"}", "read:a{team=\"x\"}", "write:b"]);
        assert_eq!(texts(&narrow.matchers(Right::Read, "a")), ["env=\"prod\"", "team=\"x\""]);
        assert_eq!(texts(&narrow.matchers(Right::Read, "b")), ["env=\"prod\""]);
        assert!(narrow.matchers(Right::Write, "b").is_empty());
        let wide = scope(&["read:*{env=\"prod\"}", "read:a"]);
        assert!(wide.matchers(Right::Read, "a").is_empty());
    }
}
