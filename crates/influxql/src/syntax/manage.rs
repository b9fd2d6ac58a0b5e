//! Statements that change databases, and those that this program has no use for.

use super::ast::{PolicyOptions, Statement};
use super::parse::{Parsed, Parser};

/// Beginnings of statements of users, subscriptions and the like.
const REFUSED: [&[&str]; 12] = [
    &["create", "user"],
    &["create", "subscription"],
    &["create", "continuous", "query"],
    &["drop", "user"],
    &["drop", "subscription"],
    &["drop", "continuous", "query"],
    &["drop", "shard"],
    &["set", "password"],
    &["grant"],
    &["revoke"],
    &["alter", "user"],
    &["insert"],
];

impl Parser<'_> {
    pub(super) fn manage(&mut self) -> Parsed<Statement> {
        if self.accept_words(&["create", "database"]) {
            let name = self.name()?;
            let policy = if self.accept_word("with") { Some(self.policy_options(true)?) } else { None };
            return Ok(Statement::CreateDatabase { name, policy });
        }
        if self.accept_words(&["drop", "database"]) {
            return self.name().map(Statement::DropDatabase);
        }
        if self.accept_words(&["drop", "measurement"]) {
            return self.name().map(Statement::DropMeasurement);
        }
        if self.accept_words(&["drop", "series"]) {
            let (sources, condition) = (self.sources()?, self.condition()?);
            if sources.is_empty() && condition.is_none() {
                return Err(self.unexpected("FROM, WHERE"));
            }
            return Ok(Statement::DropSeries { sources, condition });
        }
        if self.accept_word("delete") {
            let (sources, condition) = (self.sources()?, self.condition()?);
            if sources.is_empty() && condition.is_none() {
                return Err(self.unexpected("FROM, WHERE"));
            }
            return Ok(Statement::Delete { sources, condition });
        }
        if self.accept_words(&["kill", "query"]) {
            let number = self.unsigned()?;
            if self.accept_word("on") {
                self.name()?;
            }
            return Ok(Statement::KillQuery(number));
        }
        self.policy_statement()
    }

    fn policy_statement(&mut self) -> Parsed<Statement> {
        for verb in ["create", "alter", "drop"] {
            if !self.accept_words(&[verb, "retention", "policy"]) {
                continue;
            }
            let name = if self.accept_word("default") { "default".to_owned() } else { self.name()? };
            self.expect_word("on")?;
            let database = self.name()?;
            if verb == "drop" {
                return Ok(Statement::DropPolicy { name, database });
            }
            let options = self.policy_options(false)?;
            if verb == "alter" {
                return Ok(Statement::AlterPolicy { name, database, options });
            }
            if options.duration_ns.is_none() {
                return Err(self.unexpected("DURATION"));
            }
            if options.replication.is_none() {
                return Err(self.unexpected("REPLICATION"));
            }
            return Ok(Statement::CreatePolicy { name, database, options });
        }
        for words in REFUSED {
            if self.accept_words(words) {
                self.pass_over();
                return Ok(Statement::Refused(words.join(" ").to_uppercase()));
            }
        }
        Err(self.unexpected("SELECT, DELETE, SHOW, CREATE, DROP, EXPLAIN, GRANT, REVOKE, ALTER, SET, KILL"))
    }

    /// Options in any order, at least one; `NAME` belongs to databases only.
    fn policy_options(&mut self, of_database: bool) -> Parsed<PolicyOptions> {
        let mut options = PolicyOptions::default();
        loop {
            if self.accept_word("duration") {
                options.duration_ns = Some(self.duration()?);
            } else if self.accept_word("replication") {
                options.replication = Some(self.unsigned()?);
            } else if self.accept_words(&["shard", "duration"]) {
                options.shard_duration_ns = Some(self.duration()?);
            } else if of_database && self.accept_word("name") {
                options.name = Some(self.name()?);
            } else if !of_database && self.accept_word("default") {
                options.default = true;
            } else if options == PolicyOptions::default() {
                return Err(self.unexpected("DURATION, REPLICATION, SHARD, DEFAULT"));
            } else {
                return Ok(options);
            }
        }
    }
}
