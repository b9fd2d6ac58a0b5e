//! What comes later to continuous queries: measurements that they read by patterns or names, and fields of those that they have.
//!
//! As long as no name of a measurement or field comes or goes nothing is looked at. Then those measurements are that are new or have other fields, each
//! for the queries that read it. One that cannot be taken in is looked at again after a wait, each wait twice as long as the one before.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use db::{Db, KnownTable};
use influxql::{Extension, PatternQuery};
use query::Budget;
use query::views::{Dialect, View};

use super::current;
use super::retry::Retry;
use super::view_set::ViewSet;

/// Measurements that a look at a query names in the log, at most, of those that it leaves out.
const NAMED_MAX: usize = 10;

/// Measurements that a query's state names, at most, of those that it leaves out.
const LISTED_MAX: usize = 20;

/// Measurements that a pass looks at for each query: after a restart it is all of them.
const LOOKS_MAX: usize = 1_000;

/// A database's continuous queries of what may come later.
#[derive(Default)]
pub(super) struct Later {
    /// [`Db::name_changes`] when all measurements were looked at; `None`: they were not.
    name_changes: Option<u64>,
    /// By their statements; `None`: nothing that comes later is one of its measurements or fields.
    queries: BTreeMap<String, Option<Query>>,
    /// For the log.
    pub(super) warnings: Vec<String>,
}

/// A continuous query.
struct Query {
    pattern: PatternQuery,
    /// One of its views: as long as this is there, the query is.
    member: Arc<View>,
    /// How many views it has.
    views: usize,
    /// The measurements that were looked at, by their numbers, and how many fields they had.
    looked_at: HashMap<u32, u32>,
    /// Those that are looked at again, by name.
    waiting: BTreeMap<String, Waiting>,
    /// The measurements that its state says are left out, and why.
    listed: BTreeSet<String>,
}

/// A measurement that is not taken in yet.
#[derive(Default)]
struct Waiting {
    retry: Retry,
    /// Why it cannot be; `None`: it has nothing yet that the query reads.
    reason: Option<String>,
}

impl Later {
    /// Notes which views there are.
    pub(super) fn list(&mut self, db: &Db, set: &ViewSet) {
        let mut counts: HashMap<&str, (usize, &Arc<View>)> = HashMap::new();
        for view in set.views.iter().filter(|view| view.definition.dialect == Dialect::InfluxQl) {
            counts.entry(&view.definition.statement).or_insert((0, view)).0 += 1;
        }
        self.queries.retain(|statement, _| counts.contains_key(statement.as_str()));
        for (statement, (views, first)) in counts {
            let Some(known) = self.queries.get_mut(statement) else {
                let query = Query::new(statement, (views, first));
                self.name_changes = self.name_changes.filter(|_| query.is_none());
                self.queries.insert(statement.to_owned(), query);
                continue;
            };
            let Some(query) = known else { continue };
            if query.views > views || current(db, &query.member).is_none() {
                // The query was made again meanwhile.
                *known = Query::new(statement, (views, first));
                self.name_changes = None;
            } else {
                query.views = views;
            }
        }
    }

    /// Takes in what came since the last time; returns whether there is more to look at.
    pub(super) fn take_in(&mut self, db: &Db, database: &str, budget: &Budget) -> bool {
        let now_ns = db.clock().monotonic_ns();
        // Before the measurements are listed: what comes meanwhile is looked at the next time.
        let changes = db.name_changes();
        let is_changed = self.name_changes != Some(changes);
        let mut queries = self.queries.values_mut().flatten().peekable();
        let tables = if is_changed && queries.peek().is_some() { db.known_tables(database) } else { Vec::new() };
        let mut has_more = false;
        for query in queries {
            let mut due = query.due(now_ns);
            if is_changed {
                due.extend(query.unknown(db, database, &tables));
            }
            has_more |= due.len() > LOOKS_MAX;
            due.truncate(LOOKS_MAX);
            has_more |= !query.look_at(db, &due, (budget, now_ns));
            self.warnings.append(&mut query.note_left_out(db));
        }
        self.name_changes = Some(changes).filter(|_| !has_more);
        has_more
    }
}

/// A measurement that is to be looked at, and what it is known by from then on.
struct Due {
    name: String,
    known: Option<(u32, u32)>,
}

impl Query {
    fn new(statement: &str, (views, member): (usize, &Arc<View>)) -> Option<Self> {
        let pattern = PatternQuery::parse(statement)?;
        let (looked_at, waiting, listed) = (HashMap::new(), BTreeMap::new(), BTreeSet::new());
        Some(Self { pattern, member: member.clone(), views, looked_at, waiting, listed })
    }

    /// The measurements whose wait is over.
    fn due(&self, now_ns: u64) -> Vec<Due> {
        let due = self.waiting.iter().filter(|(_, waiting)| !waiting.retry.is_waiting(now_ns));
        due.map(|(name, _)| Due { name: name.clone(), known: None }).collect()
    }

    /// The measurements that are new to it, or have other fields. Those that are gone wait no more.
    fn unknown(&mut self, db: &Db, database: &str, tables: &[KnownTable]) -> Vec<Due> {
        self.waiting.retain(|name, _| tables.binary_search_by(|table| table.name.cmp(name)).is_ok());
        let is_new = |table: &&KnownTable| self.looked_at.get(&table.number) != Some(&table.fields);
        let is_view = |name: &str| db.view(database, name).is_some_and(|view| view.definition.is_exposed());
        let is_read = |table: &&KnownTable| self.pattern.reads(&table.name, || is_view(&table.name));
        let due = |table: &KnownTable| Due { name: table.name.clone(), known: Some((table.number, table.fields)) };
        tables.iter().filter(is_new).filter(is_read).map(due).collect()
    }

    /// Takes in the measurements that can be; returns whether the query is still the one that it was.
    fn look_at(&mut self, db: &Db, due: &[Due], (budget, now_ns): (&Budget, u64)) -> bool {
        for Due { name, known } in due {
            let outcome = db.extend_continuous_query(&self.pattern, name, &self.member, budget);
            let reason = match outcome {
                Ok(Extension::Extended | Extension::Unchanged | Extension::WithoutFields) => {
                    self.waiting.remove(name);
                    self.looked_at.extend(*known);
                    continue;
                }
                Ok(Extension::WithoutNames) => None,
                Err(_) if current(db, &self.member).is_none() => return false,
                // The query of one measurement that is not what it was stays as it is.
                Err(error) => Some(error.to_string()).filter(|_| !self.pattern.is_of_one()),
            };
            self.looked_at.extend(*known);
            let waiting = self.waiting.entry(name.clone()).or_default();
            waiting.retry.fail(now_ns);
            waiting.reason = reason;
        }
        true
    }

    /// Notes the measurements that it leaves out in its state; returns what is to be said in the log of those that are new among them.
    fn note_left_out(&mut self, db: &Db) -> Vec<String> {
        let left_out = self
            .waiting
            .iter()
            .filter_map(|(name, waiting)| waiting.reason.as_ref().map(|reason| format!("{name:?}: {reason}")));
        let left_out: BTreeSet<String> = left_out.collect();
        if left_out == self.listed {
            return Vec::new();
        }
        let mut new: Vec<&String> = left_out.difference(&self.listed).collect();
        let more = new.len().saturating_sub(NAMED_MAX);
        new.truncate(NAMED_MAX);
        let name = self.pattern.name();
        let mut warnings: Vec<String> =
            new.iter().map(|text| format!("the continuous query {name} leaves out a measurement, {text}")).collect();
        if more > 0 {
            warnings.push(format!("the continuous query {name} leaves out {more} more measurements"));
        }
        db.note_view(&self.member, |status| status.left_out = left_out.iter().take(LISTED_MAX).cloned().collect());
        self.listed = left_out;
        warnings
    }
}
