//! Statements about users, whichever language says them: InfluxQL's and SQL's mean the same.

use std::fmt;

use zeroize::Zeroizing;

use crate::account::Account;
use crate::grant::{DatabasePattern, Grant, Rights};

/// A statement about users and their rights.
#[derive(Clone, PartialEq, Eq)]
pub enum AccountStatement {
    /// Makes a user.
    Create {
        /// Its name.
        name: String,
        /// The password that it signs in with.
        password: Zeroizing<String>,
        /// True for an administrator of the server.
        is_server_admin: bool,
        /// True if a user that exists is no error.
        if_not_exists: bool,
    },
    /// Changes a user; what is not given stays.
    Alter {
        /// Its name.
        name: String,
        /// The new password.
        password: Option<Zeroizing<String>>,
        /// True for an administrator of the server.
        is_server_admin: Option<bool>,
    },
    /// Removes a user.
    Drop {
        /// Its name.
        name: String,
        /// True if one that does not exist is no error.
        if_exists: bool,
    },
    /// Gives rights.
    Grant(RightsChange),
    /// Takes rights away.
    Revoke(RightsChange),
    /// Lists the users.
    Users,
    /// Lists the rights of a user.
    Grants(String),
}

/// Rights that are given to a user or taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RightsChange {
    /// The user.
    pub name: String,
    /// Which rights.
    pub rights: Rights,
    /// On which databases.
    pub databases: Vec<String>,
}

impl AccountStatement {
    /// Returns whether it changes nothing.
    pub const fn only_reads(&self) -> bool {
        matches!(self, Self::Users | Self::Grants(_))
    }
}

/// Without the password.
impl fmt::Display for AccountStatement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |name: &str| format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
        let on = |change: &RightsChange| {
            let databases: Vec<String> = change.databases.iter().map(|name| quoted(name)).collect();
            format!("{} ON {}", change.rights.to_string().to_uppercase(), databases.join(", "))
        };
        match self {
            Self::Create { name, is_server_admin, .. } => {
                let admin = if *is_server_admin { " WITH ALL PRIVILEGES" } else { "" };
                write!(out, "CREATE USER {} WITH PASSWORD '[REDACTED]'{admin}", quoted(name))
            }
            Self::Alter { name, password: Some(_), .. } => {
                write!(out, "SET PASSWORD FOR {} = '[REDACTED]'", quoted(name))
            }
            Self::Alter { name, is_server_admin: Some(true), .. } => write!(out, "GRANT ALL TO {}", quoted(name)),
            Self::Alter { name, .. } => write!(out, "REVOKE ALL FROM {}", quoted(name)),
            Self::Drop { name, .. } => write!(out, "DROP USER {}", quoted(name)),
            Self::Grant(change) => write!(out, "GRANT {} TO {}", on(change), quoted(&change.name)),
            Self::Revoke(change) => write!(out, "REVOKE {} FROM {}", on(change), quoted(&change.name)),
            Self::Users => out.write_str("SHOW USERS"),
            Self::Grants(name) => write!(out, "SHOW GRANTS FOR {}", quoted(name)),
        }
    }
}

/// Without the password.
impl fmt::Debug for AccountStatement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}")
    }
}

impl Account {
    /// Its grants with more rights on some databases.
    pub fn with_rights(&self, change: &RightsChange) -> Vec<Grant> {
        let mut grants = self.grants.clone();
        for database in &change.databases {
            let same = |grant: &&mut Grant| is_of(grant, database);
            match grants.iter_mut().find(same) {
                Some(grant) => grant.rights = grant.rights.with(change.rights),
                None => grants.push(Grant::on(database, change.rights)),
            }
        }
        grants
    }

    /// Its grants without some rights on some databases. An error if a grant of several databases, or one that labels narrow, gives them.
    pub fn without_rights(&self, change: &RightsChange) -> Result<Vec<Grant>, String> {
        let mut grants = self.grants.clone();
        for database in &change.databases {
            for grant in grants.iter_mut().filter(|grant| grant.databases.matches(database)) {
                let left = grant.rights.without(change.rights);
                if left == grant.rights {
                    continue;
                }
                if !is_of(grant, database) {
                    return Err(format!("the grant {grant} has these rights: change it with thalweg user"));
                }
                grant.rights = left;
            }
        }
        grants.retain(|grant| !grant.rights.is_empty());
        Ok(grants)
    }
}

/// Returns whether a grant is of a whole database and of it alone.
fn is_of(grant: &Grant, database: &str) -> bool {
    grant.databases == DatabasePattern::one(database) && grant.matchers.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Credential;
    use crate::rate::Quota;

    fn account(grants: &[&str]) -> Account {
        Account {
            name: "a".to_owned(),
            credential: Credential::Password(String::new()),
            scram: None,
            certificates: Vec::new(),
            is_server_admin: false,
            grants: grants.iter().map(|grant| grant.parse().unwrap()).collect(),
            quota: Quota::default(),
            created_ns: 0,
            expires_ns: None,
        }
    }

    fn change(rights: &str, database: &str) -> RightsChange {
        let (name, databases) = ("a".to_owned(), vec![database.to_owned()]);
        RightsChange { name, rights: rights.parse().unwrap(), databases }
    }

    #[test]
    fn rights_are_added_and_taken_away_by_database() {
        let shown = |grants: Vec<Grant>| grants.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let some = account(&["read:m", "read:n{x=\"1\"}"]);
        assert_eq!(shown(some.with_rights(&change("write", "m"))), "read+write:m read:n{x=\"1\"}");
        assert_eq!(shown(some.with_rights(&change("all", "n"))), "read:m read:n{x=\"1\"} all:n");
        assert_eq!(shown(some.without_rights(&change("all", "m")).unwrap()), "read:n{x=\"1\"}");
        assert_eq!(shown(some.without_rights(&change("write", "n")).unwrap()), "read:m read:n{x=\"1\"}");
        assert!(some.without_rights(&change("read", "n")).is_err());
        assert!(account(&["all:*"]).without_rights(&change("read", "n")).is_err());
    }

    #[test]
    fn passwords_are_not_shown() {
        let password = Zeroizing::new("secret".to_owned());
        let (name, is_server_admin) = ("a\"b".to_owned(), true);
        let made = AccountStatement::Create { name, password, is_server_admin, if_not_exists: false };
        assert_eq!(format!("{made}"), "CREATE USER \"a\\\"b\" WITH PASSWORD '[REDACTED]' WITH ALL PRIVILEGES");
        assert!(!format!("{made:?}").contains("secret"));
    }
}
