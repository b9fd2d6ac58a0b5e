//! A grant: which rights on which databases, narrowed by label matchers if it says so.
//!
//! As text: `read:metrics`, `read+write:team-*`, `read:*{env="prod"}`, `all:metrics`.

use std::fmt;
use std::str::FromStr;

use model::Matcher;

use crate::matchers;

/// A right on a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Right {
    /// Queries, lists of names, exports.
    Read,
    /// Rows of every protocol.
    Write,
    /// Making the database, by a statement or by writing to it.
    Create,
    /// Its settings, deletes and drops.
    Admin,
}

impl Right {
    /// All, in the order in which they are written.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Create, Self::Admin];

    /// Its word in a grant.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Create => "create",
            Self::Admin => "admin",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// Some rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Rights(u8);

impl Rights {
    /// All rights.
    pub const ALL: Self = Self(0b1111);

    /// Some rights.
    pub fn from_rights(rights: &[Right]) -> Self {
        Self(rights.iter().fold(0, |bits, right| bits | right.bit()))
    }

    /// Returns whether a right is among them.
    pub const fn has(self, right: Right) -> bool {
        self.0 & right.bit() != 0
    }

    /// These and others.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These without others.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Returns whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return formatter.write_str("all");
        }
        let mut separator = "";
        for right in Right::ALL.into_iter().filter(|right| self.has(*right)) {
            write!(formatter, "{separator}{}", right.name())?;
            separator = "+";
        }
        Ok(())
    }
}

impl FromStr for Rights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rights = 0;
        for word in text.split('+') {
            rights |= match word.trim() {
                "all" => Self::ALL.0,
                word => {
                    let found = Right::ALL.into_iter().find(|right| right.name() == word);
                    let unknown = || format!("{word:?} is no right: there are read, write, create, admin, and all");
                    found.ok_or_else(unknown)?.bit()
                }
            };
        }
        Ok(Self(rights))
    }
}

/// Names of databases: one name, or a beginning followed by `*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DatabasePattern {
    /// The name, or how names begin.
    text: String,
    is_prefix: bool,
}

impl DatabasePattern {
    /// All databases.
    pub const fn all() -> Self {
        Self { text: String::new(), is_prefix: true }
    }

    /// One database, whatever is in its name.
    pub fn one(name: impl Into<String>) -> Self {
        Self { text: name.into(), is_prefix: false }
    }

    /// Returns whether a database is among them.
    pub fn matches(&self, database: &str) -> bool {
        if self.is_prefix { database.starts_with(&self.text) } else { database == self.text }
    }
}

impl fmt::Display for DatabasePattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", self.text, if self.is_prefix { "*" } else { "" })
    }
}

impl FromStr for DatabasePattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (name, is_prefix) = text.strip_suffix('*').map_or((text, false), |name| (name, true));
        if name.contains(['*', '{', '}', '"']) || (name.is_empty() && !is_prefix) {
            return Err(format!("{text:?} is neither a database's name nor the beginning of one with * at its end"));
        }
        Ok(Self { text: name.to_owned(), is_prefix })
    }
}

/// Rights on databases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Which rights.
    pub rights: Rights,
    /// On which databases.
    pub databases: DatabasePattern,
    /// Conditions on labels: only series that satisfy all of them are read or written. Empty: all series.
    pub matchers: Vec<Matcher>,
}

impl Grant {
    /// Rights on one database.
    pub fn on(database: &str, rights: Rights) -> Self {
        Self { rights, databases: DatabasePattern::one(database), matchers: Vec::new() }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.rights, self.databases)?;
        matchers::write(&self.matchers, formatter)
    }
}

impl FromStr for Grant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form =
            || format!("{text:?} is no grant: they look like read:metrics, read+write:team-*, read:*{{env=\"prod\"}}");
        let (rights, rest) = text.split_once(':').ok_or_else(form)?;
        let (databases, matchers) = match rest.find('{') {
            Some(place) => rest.split_at(place),
            None => (rest, ""),
        };
        let matchers = if matchers.trim().is_empty() { Vec::new() } else { matchers::parse(matchers)? };
        let grant = Self { rights: rights.parse()?, databases: databases.parse()?, matchers };
        if !grant.matchers.is_empty() && grant.rights.has(Right::Admin) {
            return Err("admin is a right on a whole database: it has no label matchers".to_owned());
        }
        if grant.rights.has(Right::Write) && grant.matchers.iter().any(|matcher| matcher.name == model::METRIC_NAME) {
            return Err("write cannot be narrowed by __name__: one row may be of several metrics".to_owned());
        }
        Ok(grant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_read_and_written() {
        for (text, printed) in [
            ("read:metrics", "read:metrics"),
            ("write+read:team-*", "read+write:team-*"),
            ("read+write+create+admin:*", "all:*"),
            ("read : * { env = \"prod\" , team=~\"a|b\" }", "read:*{env=\"prod\",team=~\"a|b\"}"),
            (r#"read:m{path!="a\"\\\n"}"#, r#"read:m{path!="a\"\\\n"}"#),
        ] {
            let grant: Grant = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(grant.to_string(), printed);
            assert_eq!(printed.parse::<Grant>().as_ref(), Ok(&grant));
        }
    }

    #[test]
    fn what_is_no_grant_is_refused_with_a_reason() {
        for (text, reason) in [
            ("metrics", "no grant"),
            ("see:metrics", "\"see\" is no right"),
            ("read:", "neither a database's name"),
            ("read:a*b", "neither a database's name"),
            ("read:a{env}", "no operator"),
            ("read:a{env=prod}", "double quotes"),
            ("read:a{env=\"prod}", "not closed"),
            ("read:a{env=\"x\" team=\"y\"}", "comma"),
            ("read:a{0=\"x\"}", "no label's name"),
            ("admin:a{env=\"x\"}", "no label matchers"),
            ("write:a{__name__=\"x\"}", "__name__"),
        ] {
            let error = text.parse::<Grant>().expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_grant_or_refused(text in "(read|write|all|x)[:+]?[a-z*{}=~!,\" \\\\]{0,24}") {
            crate::fuzzing::texts(&text);
        }
    }
}
