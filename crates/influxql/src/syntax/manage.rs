//! Statements that change databases, and those that this program has no use for.

use access::grant::{Right, Rights};
use access::statement::{AccountStatement, RightsChange};
use zeroize::Zeroizing;

use super::ast::{ContinuousQuery, PolicyOptions, Statement, SubscriptionStatement};
use super::parse::{Parsed, Parser};

/// Beginnings of statements that do nothing here.
const REFUSED: [&[&str]; 3] = [&["drop", "shard"], &["alter", "user"], &["insert"]];

/// The policy that every database has.
const DEFAULT_POLICY: &str = "autogen";

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
        if self.accept_words(&["create", "continuous", "query"]) {
            return self.continuous_query().map(Statement::CreateContinuousQuery);
        }
        if self.accept_words(&["drop", "continuous", "query"]) {
            let name = self.name()?;
            self.expect_word("on")?;
            return Ok(Statement::DropContinuousQuery { name, database: self.name()? });
        }
        if self.accept_words(&["kill", "query"]) {
            let number = self.unsigned()?;
            if self.accept_word("on") {
                self.name()?;
            }
            return Ok(Statement::KillQuery(number));
        }
        if self.accept_words(&["create", "subscription"]) {
            return self.new_subscription().map(Statement::Subscription);
        }
        if self.accept_words(&["drop", "subscription"]) {
            let name = self.name()?;
            let (database, policy) = self.policy_on()?;
            return Ok(Statement::Subscription(SubscriptionStatement::Drop { name, database, policy }));
        }
        match self.account_statement()? {
            Some(statement) => Ok(Statement::Account(statement)),
            None => self.policy_statement(),
        }
    }

    /// `"name" ON "database"."policy" DESTINATIONS ALL 'http://…', 'udp://…'`
    fn new_subscription(&mut self) -> Parsed<SubscriptionStatement> {
        let name = self.name()?;
        let (database, policy) = self.policy_on()?;
        self.expect_word("destinations")?;
        let sends_to_all = self.accept_word("all");
        if !sends_to_all && !self.accept_word("any") {
            return Err(self.unexpected("ALL, ANY"));
        }
        let destinations = self.list(Self::text_literal)?;
        Ok(SubscriptionStatement::Create { name, database, policy, sends_to_all, destinations })
    }

    /// `ON "database"."policy"`; a database alone means its default policy, as in `FROM`.
    fn policy_on(&mut self) -> Parsed<(String, String)> {
        self.expect_word("on")?;
        let database = self.name()?;
        let policy = if self.accept_mark(".") { self.name()? } else { DEFAULT_POLICY.to_owned() };
        Ok((database, policy))
    }

    /// `name ON database [RESAMPLE [EVERY d] [FOR d]] BEGIN SELECT … END`
    fn continuous_query(&mut self) -> Parsed<ContinuousQuery> {
        let name = self.name()?;
        self.expect_word("on")?;
        let database = self.name()?;
        let (mut every_ns, mut for_ns) = (None, None);
        if self.accept_word("resample") {
            if self.accept_word("every") {
                every_ns = Some(self.duration()?);
            }
            if self.accept_word("for") {
                for_ns = Some(self.duration()?);
            }
            if every_ns.is_none() && for_ns.is_none() {
                return Err(self.unexpected("EVERY, FOR"));
            }
        }
        self.expect_word("begin")?;
        let select = Box::new(self.select()?);
        self.expect_word("end")?;
        Ok(ContinuousQuery { name, database, every_ns, for_ns, select })
    }

    /// Statements about users; `None` if it is something else.
    fn account_statement(&mut self) -> Parsed<Option<AccountStatement>> {
        Ok(Some(if self.accept_words(&["create", "user"]) {
            let name = self.name()?;
            self.expect_word("with")?;
            self.expect_word("password")?;
            let password = Zeroizing::new(self.text_literal()?);
            let is_server_admin = self.accept_words(&["with", "all", "privileges"]);
            AccountStatement::Create { name, password, is_server_admin, if_not_exists: false }
        } else if self.accept_words(&["drop", "user"]) {
            AccountStatement::Drop { name: self.name()?, if_exists: false }
        } else if self.accept_words(&["set", "password", "for"]) {
            let name = self.name()?;
            self.expect_mark("=")?;
            let password = Some(Zeroizing::new(self.text_literal()?));
            AccountStatement::Alter { name, password, is_server_admin: None }
        } else if self.accept_word("grant") {
            self.rights("to", true)?
        } else if self.accept_word("revoke") {
            self.rights("from", false)?
        } else {
            return Ok(None);
        }))
    }

    /// `READ ON database TO name`, or `ALL PRIVILEGES TO name` for an administrator of the server.
    fn rights(&mut self, direction: &str, is_grant: bool) -> Parsed<AccountStatement> {
        let rights = if self.accept_word("read") {
            Rights::from_rights(&[Right::Read])
        } else if self.accept_word("write") {
            Rights::from_rights(&[Right::Write])
        } else if self.accept_word("all") {
            self.accept_word("privileges");
            Rights::ALL
        } else {
            return Err(self.unexpected("READ, WRITE, ALL [PRIVILEGES]"));
        };
        if rights == Rights::ALL && self.accept_word(direction) {
            let name = self.name()?;
            return Ok(AccountStatement::Alter { name, password: None, is_server_admin: Some(is_grant) });
        }
        self.expect_word("on")?;
        let databases = vec![self.name()?];
        self.expect_word(direction)?;
        let change = RightsChange { name: self.name()?, rights, databases };
        Ok(if is_grant { AccountStatement::Grant(change) } else { AccountStatement::Revoke(change) })
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
