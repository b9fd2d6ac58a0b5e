//! Making, changing and removing triggers and subscriptions.

use std::sync::Arc;

use access::grant::Right;
use access::scope::Scope;
use influxql::SubscriptionStatement;
use query::plan::AsOf;
use query::views::{View, ViewDefinition};
use query::{QueryError, TableSchema};
use serde::Serialize;
use sql::{
    ClientContext, MissingColumns, NewTrigger, NewTriggerAction, RowProgram, RowProgramText, SqlError, TriggerStatement,
};

use super::context::OwnerScope;
use super::definition::{
    Batching, JobKey, Origin, SUBSCRIPTION, SubscriptionDefinition, SubscriptionName, TRIGGER, TriggerAction,
    TriggerDefinition, TriggerName, name_text,
};
use super::report::DeliveryReport;
use super::{Defined, Deliveries, JOBS_MAX};
use crate::trigger::cycle::{Edge, cycle};

/// Bytes of a name.
const NAME_BYTES_MAX: usize = 200;

/// Destinations of a subscription.
const DESTINATIONS_MAX: usize = 20;

/// The sender of a statement.
#[derive(Debug, Clone, Copy)]
pub struct Maker<'a> {
    /// The database that the statement runs on.
    pub database: &'a str,
    /// The rights of its account.
    pub scope: &'a Arc<Scope>,
}

fn invalid<T>(message: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::Invalid(message.into()))
}

fn forbidden<T>(message: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::Forbidden(message.into()))
}

impl Maker<'_> {
    fn require(&self, right: Right) -> Result<(), QueryError> {
        if self.scope.may(right, self.database) {
            return Ok(());
        }
        let (name, right, database) = (&self.scope.name, right.name(), self.database);
        forbidden(format!("the account {name} does not have the right {right} on the database {database}"))
    }

    fn require_server_admin(&self, what: &str) -> Result<(), QueryError> {
        if self.scope.is_server_admin {
            return Ok(());
        }
        forbidden(format!("{what}: the account {} is no administrator of this server", self.scope.name))
    }
}

fn statement_error(error: SqlError) -> QueryError {
    match error {
        SqlError::Query(error) => error,
        other => QueryError::Invalid(other.to_string()),
    }
}

impl Deliveries {
    /// Runs a statement about triggers; the answer of `SHOW TRIGGERS` are the triggers of the database.
    pub fn trigger_statement(
        &self,
        statement: &TriggerStatement,
        maker: Maker<'_>,
    ) -> Result<Vec<DeliveryReport>, QueryError> {
        maker.require(Right::Admin)?;
        match statement {
            TriggerStatement::Create { trigger, if_not_exists } => {
                self.create_trigger(trigger, *if_not_exists, maker)?;
            }
            TriggerStatement::Drop { name, if_exists } => self.drop_trigger(name, *if_exists, maker)?,
            TriggerStatement::Enable { name, is_enabled } => self.enable_trigger(name, *is_enabled, maker)?,
            TriggerStatement::Show => {
                let is_own = |report: &DeliveryReport| report.kind == "trigger" && report.database == maker.database;
                return Ok(self.reports().into_iter().filter(is_own).collect());
            }
        }
        Ok(Vec::new())
    }

    fn create_trigger(&self, new: &NewTrigger, if_not_exists: bool, maker: Maker<'_>) -> Result<(), QueryError> {
        let name = TriggerName { database: maker.database.to_owned(), name: new.name.clone() };
        let mut defined = self.defined.lock();
        if defined.triggers.contains_key(&name) {
            return if if_not_exists { Ok(()) } else { invalid(format!("the trigger {} already exists", new.name)) };
        }
        check_name(&new.name)?;
        check_room(&defined, 1)?;
        self.check_unreadable(TRIGGER, &name_text(&name))?;
        let definition = self.definition(new, maker)?;
        if let TriggerAction::Insert { table, .. } = &definition.action {
            let db = self.shared.db();
            let views: Vec<Arc<View>> = db.view_databases().iter().flat_map(|database| db.views(database)).collect();
            check_cycle((&defined, &views), &name, (definition.table.as_str(), table.as_str()))?;
        }
        self.set_trigger(&mut defined, &name, definition)
    }

    /// Stores a trigger and starts it; where it cannot be started, all is as it was before.
    fn set_trigger(
        &self,
        defined: &mut Defined,
        name: &TriggerName,
        trigger: TriggerDefinition,
    ) -> Result<(), QueryError> {
        let document = name_text(name);
        self.store(TRIGGER, &document, &trigger)?;
        let before = defined.triggers.insert(name.clone(), trigger);
        let mut failed = self.apply(defined).into_iter();
        if let Some((_, reason)) = failed.find(|(key, _)| matches!(key, JobKey::Trigger(of) if of == name)) {
            match before {
                Some(before) => {
                    self.store(TRIGGER, &document, &before)?;
                    defined.triggers.insert(name.clone(), before);
                }
                None => {
                    self.remove(TRIGGER, &document)?;
                    defined.triggers.remove(name);
                }
            }
            self.apply(defined);
            return cannot_run("trigger", &name.name, &reason);
        }
        if !defined.triggers.contains_key(name) {
            return invalid(format!("the database {} was dropped meanwhile", name.database));
        }
        Ok(())
    }

    /// A document that cannot be read is not replaced: its position would be taken over.
    fn check_unreadable(&self, kind: &str, name: &str) -> Result<(), QueryError> {
        if self.shared.db().documents(kind).iter().any(|(stored, _)| stored == name) {
            return invalid(format!("there is a {kind} {name} that cannot be read: drop it first"));
        }
        Ok(())
    }

    /// A trigger as its document has it, checked as far as that can be done before there are rows.
    fn definition(&self, new: &NewTrigger, maker: Maker<'_>) -> Result<TriggerDefinition, QueryError> {
        let db = self.shared.db();
        let Some(number) = db.database_number(maker.database) else {
            return invalid(format!("the database {} does not exist", maker.database));
        };
        maker.require(Right::Read)?;
        let action = match &new.action {
            NewTriggerAction::Insert { table, columns } => {
                maker.require(Right::Write)?;
                let table = self.table(table, maker)?;
                if let Some(view) = db
                    .views(maker.database)
                    .iter()
                    .find(|view| view.definition.is_exposed() && view.definition.target == table)
                {
                    return invalid(format!(
                        "{:?} is a materialised view: nothing but its refreshes writes to it",
                        view.definition.name
                    ));
                }
                TriggerAction::Insert { table, columns: columns.clone() }
            }
            NewTriggerAction::Webhook { url, secret } => {
                maker.require_server_admin("a hook sends data elsewhere")?;
                self.shared.urls.check(url, &["http", "https"]).map_err(QueryError::Invalid)?;
                TriggerAction::Webhook { url: url.clone(), secret: secret.clone() }
            }
        };
        let table = self.table(&new.table, maker)?;
        let columns = match &action {
            TriggerAction::Insert { columns, .. } => columns.as_deref(),
            TriggerAction::Webhook { .. } => None,
        };
        let program = RowProgramText { condition: &new.condition, columns };
        let client = ClientContext::new(maker.database, db.now_ns());
        let budget = self.shared.owners.budget(maker.database, maker.scope);
        match db.table_schema(&table, &client, &budget).map_err(statement_error)? {
            Some(schema) => RowProgram::new(program, &schema, &client, MissingColumns::Refused).map(drop),
            None => {
                let schema = TableSchema { name: table.clone(), tags: Vec::new(), fields: Vec::new(), layout: None };
                RowProgram::new(program, &schema, &client, MissingColumns::Null).map(drop)
            }
        }
        .map_err(statement_error)?;
        Ok(TriggerDefinition {
            table,
            condition: new.condition.clone(),
            action,
            batching: Batching::new(new).map_err(QueryError::Invalid)?,
            origin: self.origin(maker, number)?,
            is_enabled: true,
        })
    }

    /// A table's name as it is, whatever its case in the statement; one that does not exist is as it was written.
    fn table(&self, name: &str, maker: Maker<'_>) -> Result<String, QueryError> {
        let client = ClientContext::new(maker.database, self.shared.db().now_ns());
        let budget = self.shared.owners.budget(maker.database, maker.scope);
        let tables = self.shared.db().tables(&client, &budget).map_err(statement_error)?;
        let same = || tables.iter().find(|table| table.eq_ignore_ascii_case(name));
        let known = tables.iter().find(|table| *table == name).or_else(same);
        Ok(known.cloned().unwrap_or_else(|| name.to_owned()))
    }

    /// The account with whose rights it runs, and the database.
    fn origin(&self, maker: Maker<'_>, database_number: u32) -> Result<Origin, QueryError> {
        let owner = maker.scope.name.to_string();
        let reason = match self.shared.owners.scope(&owner) {
            Ok(OwnerScope { scope, created_ns }) if scope == *maker.scope => {
                return Ok(Origin {
                    owner,
                    owner_created_ns: created_ns,
                    created_ns: self.shared.db().now_ns(),
                    database_number: Some(database_number),
                });
            }
            Ok(_) => format!("the account {owner} of this server is another one, or has changed: sign in again"),
            Err(reason) => reason,
        };
        forbidden(format!("it would run with the rights of its maker, which cannot be looked up later: {reason}"))
    }

    fn drop_trigger(&self, name: &str, if_exists: bool, maker: Maker<'_>) -> Result<(), QueryError> {
        let name = TriggerName { database: maker.database.to_owned(), name: name.to_owned() };
        let mut defined = self.defined.lock();
        let was_stored = self.remove(TRIGGER, &name_text(&name))?;
        if defined.triggers.remove(&name).is_none() && !was_stored {
            return if if_exists { Ok(()) } else { invalid(unknown_trigger(&name)) };
        }
        self.apply(&mut defined);
        Ok(())
    }

    fn enable_trigger(&self, name: &str, is_enabled: bool, maker: Maker<'_>) -> Result<(), QueryError> {
        let name = TriggerName { database: maker.database.to_owned(), name: name.to_owned() };
        let mut defined = self.defined.lock();
        let Some(mut trigger) = defined.triggers.get(&name).cloned() else { return invalid(unknown_trigger(&name)) };
        if is_enabled && trigger.is_webhook() {
            maker.require_server_admin("a hook sends data elsewhere")?;
        }
        trigger.is_enabled = is_enabled;
        self.set_trigger(&mut defined, &name, trigger)
    }

    fn store(&self, kind: &str, name: &str, document: &impl Serialize) -> Result<(), QueryError> {
        let bytes = serde_json::to_vec(document).map_err(|error| QueryError::Invalid(error.to_string()))?;
        let stored = self.shared.db().put_document(kind, name, &bytes);
        stored.map_err(|error| QueryError::Storage(error.to_string()))
    }

    fn remove(&self, kind: &str, name: &str) -> Result<bool, QueryError> {
        self.shared.db().remove_document(kind, name).map_err(|error| QueryError::Storage(error.to_string()))
    }

    /// Runs a statement about subscriptions; the answer of `SHOW SUBSCRIPTIONS` is each with its database and policy.
    pub fn subscription_statement(
        &self,
        statement: &SubscriptionStatement,
        maker: Maker<'_>,
    ) -> Result<Vec<ListedSubscription>, QueryError> {
        maker.require_server_admin("a subscription sends data elsewhere")?;
        let mut defined = self.defined.lock();
        match statement {
            SubscriptionStatement::Show => return Ok(defined.listed_subscriptions()),
            SubscriptionStatement::Create { name, database, policy, sends_to_all, destinations } => {
                let name = SubscriptionName { database: database.clone(), policy: policy.clone(), name: name.clone() };
                if defined.subscriptions.contains_key(&name) {
                    return invalid("subscription already exists");
                }
                self.check_destinations(destinations)?;
                let Some(number) = self.shared.db().database_number(database) else {
                    return invalid(format!("database not found: {database}"));
                };
                let origin = self.origin(maker, number)?;
                let subscription =
                    SubscriptionDefinition { sends_to_all: *sends_to_all, destinations: destinations.clone(), origin };
                self.create_subscription(&mut defined, &name, subscription)?;
            }
            SubscriptionStatement::Drop { name, database, policy } => {
                let name = SubscriptionName { database: database.clone(), policy: policy.clone(), name: name.clone() };
                let was_stored = self.remove(SUBSCRIPTION, &name_text(&name))?;
                if defined.subscriptions.remove(&name).is_none() && !was_stored {
                    return invalid("subscription not found");
                }
                self.apply(&mut defined);
            }
        }
        Ok(Vec::new())
    }

    fn check_destinations(&self, destinations: &[String]) -> Result<(), QueryError> {
        if destinations.len() > DESTINATIONS_MAX {
            return invalid(format!("a subscription has at most {DESTINATIONS_MAX} destinations"));
        }
        for url in destinations {
            self.shared.urls.check(url, &["http", "https", "udp"]).map_err(QueryError::Invalid)?;
            if url.contains(['?', '#']) {
                return invalid("a destination has neither ? nor #: rows go to its /write".to_owned());
            }
        }
        Ok(())
    }

    fn create_subscription(
        &self,
        defined: &mut Defined,
        name: &SubscriptionName,
        subscription: SubscriptionDefinition,
    ) -> Result<(), QueryError> {
        check_name(&name.name)?;
        check_name(&name.policy)?;
        check_room(defined, subscription.jobs())?;
        self.check_unreadable(SUBSCRIPTION, &name_text(name))?;
        self.store(SUBSCRIPTION, &name_text(name), &subscription)?;
        defined.subscriptions.insert(name.clone(), subscription);
        let mut failed = self.apply(defined).into_iter();
        let failure = failed.find(|(key, _)| matches!(key, JobKey::Subscription(of, _) if of == name));
        if let Some((_, reason)) = failure {
            self.remove(SUBSCRIPTION, &name_text(name))?;
            defined.subscriptions.remove(name);
            self.apply(defined);
            return cannot_run("subscription", &name.name, &reason);
        }
        if !defined.subscriptions.contains_key(name) {
            return invalid(format!("the database {} was dropped meanwhile", name.database));
        }
        Ok(())
    }
}

/// A subscription in the answer of `SHOW SUBSCRIPTIONS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSubscription {
    /// Its database.
    pub database: String,
    /// Its retention policy.
    pub policy: String,
    /// Its name.
    pub name: String,
    /// `ALL` or `ANY`.
    pub mode: &'static str,
    /// Its destinations, without secrets.
    pub destinations: Vec<String>,
}

impl Defined {
    fn listed_subscriptions(&self) -> Vec<ListedSubscription> {
        let listed = |(name, subscription): (&SubscriptionName, &SubscriptionDefinition)| ListedSubscription {
            database: name.database.clone(),
            policy: name.policy.clone(),
            name: name.name.clone(),
            mode: if subscription.sends_to_all { "ALL" } else { "ANY" },
            destinations: subscription.destinations.iter().map(|url| super::urls::without_credentials(url)).collect(),
        };
        self.subscriptions.iter().map(listed).collect()
    }
}

impl TriggerDefinition {
    const fn is_webhook(&self) -> bool {
        matches!(self.action, TriggerAction::Webhook { .. })
    }
}

fn unknown_trigger(name: &TriggerName) -> String {
    format!(
        "the trigger {} does not exist in the database {}: SHOW TRIGGERS lists those that do",
        name.name, name.database
    )
}

fn check_name(name: &str) -> Result<(), QueryError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return invalid(format!("a name has 1 to {NAME_BYTES_MAX} bytes, not {}", name.len()));
    }
    Ok(())
}

fn check_room(defined: &Defined, jobs: usize) -> Result<(), QueryError> {
    let of_subscriptions = defined.subscriptions.values().map(SubscriptionDefinition::jobs);
    let count = defined.triggers.len() + of_subscriptions.sum::<usize>();
    if count + jobs <= JOBS_MAX {
        return Ok(());
    }
    invalid(format!(
        "there are {count} triggers and destinations of subscriptions, and {jobs} more would be too many: {JOBS_MAX} is the most; drop some"
    ))
}

fn cannot_run<T>(kind: &str, name: &str, reason: &str) -> Result<T, QueryError> {
    Err(QueryError::Storage(format!("the {kind} {name} is not made or changed, since it cannot run: {reason}")))
}

/// Refuses a trigger whose rows would come back to it.
fn check_cycle(
    (defined, views): (&Defined, &[Arc<View>]),
    name: &TriggerName,
    (from, to): (&str, &str),
) -> Result<(), QueryError> {
    let others = defined.triggers.iter().filter(|(other, _)| *other != name);
    let of_views = views.iter().flat_map(|view| {
        let ViewDefinition { database, target, .. } = &view.definition;
        let as_of = view.definition.as_ofs().map(AsOf::table_name);
        let to = (view.definition.target_database(), target.as_str());
        [view.definition.source()].into_iter().chain(as_of).map(move |table| Edge { from: (database, table), to })
    });
    let edges: Vec<Edge<'_>> = others
        .filter_map(|(other, trigger)| match &trigger.action {
            TriggerAction::Insert { table, .. } => Some(Edge::within(&other.database, &trigger.table, table)),
            TriggerAction::Webhook { .. } => None,
        })
        .chain(of_views)
        .collect();
    let Some(way) = cycle(Edge::within(&name.database, from, to), &edges) else { return Ok(()) };
    let shown = |(database, table): &(&str, &str)| {
        if *database == name.database { (*table).to_owned() } else { format!("{database}.{table}") }
    };
    let way: Vec<String> = way.iter().map(shown).collect();
    invalid(format!("the trigger would feed itself without end: its rows go {}", way.join(" → ")))
}
