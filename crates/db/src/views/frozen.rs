//! Retention and TTLs: how much of a view's source is gone by now, and whether source and view are kept long enough.

use std::sync::Arc;

use index::CompiledMatcher;
use query::QueryError;
use query::views::{View, ViewCatalog, ViewDefinition};
use store::{DatabasePolicy, StoreError};

use super::Views;
use crate::Db;

/// How far the time before which a source is gone moves between two times that it is written to disk. In between, the clock tells it after a
/// restart too.
const FROZEN_STEP_NS: i64 = 3_600_000_000_000;

const NS_PER_SECOND: i64 = 1_000_000_000;

impl Views {
    /// The time before which a part of a view's source is gone, or was at some time.
    pub(super) fn gone_before_ns(&self, view: &View) -> i64 {
        let ViewDefinition { database, .. } = &view.definition;
        let of_database = self.store.database_number(database).map(|number| self.store.oldest_retained_ns(number));
        let ttl_ns = self.store.table_ttl_ns(database, view.definition.source());
        let of_table = (ttl_ns > 0).then(|| self.store.trusted_now_ns().saturating_sub(ttl_ns));
        // The state after the TTL: before a TTL is changed the state learns what it took.
        let known_ns = self.current(view).map_or(i64::MIN, |current| current.state.frozen_ns);
        let reached = |gone_ns: i64| frozen_from_ns(view, gone_ns);
        of_database.into_iter().chain(of_table).map(reached).fold(known_ns.max(view.state.frozen_ns), i64::max)
    }

    /// Writes to disk before which time a part of a view's source is gone.
    fn save_frozen(&self, view: &View, gone_before_ns: i64) -> Result<(), QueryError> {
        self.change_state(view, true, |state| state.frozen_ns = state.frozen_ns.max(gone_before_ns))
    }

    /// Refuses a view whose windows would be gone, or without their rows, before they are stored.
    pub(super) fn check_kept(&self, definition: &ViewDefinition) -> Result<(), QueryError> {
        let ViewDefinition { database, target, .. } = definition;
        let into = definition.target_database();
        for (of, table) in [(database.as_str(), definition.source()), (into, target.as_str())] {
            let policy = self.store.policy(of).unwrap_or_default();
            check_policy(definition, (of, &policy)).map_err(QueryError::Invalid)?;
            check_ttl(definition, table, self.store.table_ttl_ns(of, table)).map_err(QueryError::Invalid)?;
        }
        Ok(())
    }

    /// Says how a database keeps its data, unless its views cannot be kept right by that.
    pub(crate) fn change_policy(&self, database: &str, policy: &DatabasePolicy) -> Result<(), StoreError> {
        let _changing = self.changing.lock();
        let is_of =
            |view: &&Arc<View>| view.definition.database == database || view.definition.target_database() == database;
        for view in self.all().iter().filter(is_of) {
            check_policy(&view.definition, (database, policy)).map_err(StoreError::Invalid)?;
        }
        self.store.set_policy(database, policy)
    }

    /// Notes what a table's TTL took before there is another one, unless views cannot be kept right by that.
    pub(super) fn prepare_ttl(&self, database: &str, table: &str, ttl_ns: i64) -> Result<(), QueryError> {
        let reads = |of: &ViewDefinition| of.database == database && of.source() == table;
        let writes = |of: &ViewDefinition| of.target_database() == database && of.target == table;
        let mut views = self.all();
        views.retain(|view| reads(&view.definition) || writes(&view.definition));
        for view in &views {
            check_ttl(&view.definition, table, ttl_ns).map_err(QueryError::Invalid)?;
        }
        for view in views.iter().filter(|view| reads(&view.definition)) {
            let gone_before_ns = self.gone_before_ns(view);
            if gone_before_ns > view.state.frozen_ns {
                self.save_frozen(view, gone_before_ns)?;
            }
        }
        Ok(())
    }
}

impl Views {
    /// Deletes the rows before a time of series of a table, which are past keeping, as far as no view still has to read them. No view is made
    /// meanwhile: it would store windows of a part of them.
    pub(crate) fn trim_series(
        &self,
        (database, table): (&str, &str),
        matcher_sets: &[Vec<CompiledMatcher>],
        before_ns: i64,
    ) -> Result<i64, StoreError> {
        let _changing = self.changing.lock();
        let mut views = self.views(database);
        views.retain(|view| view.definition.source() == table);
        let now_ns = self.store.trusted_now_ns();
        let needed_ns = views.iter().map(|view| needed_from_ns(view, now_ns)).min().unwrap_or(i64::MAX);
        let before_ns = before_ns.min(needed_ns);
        if before_ns == i64::MIN {
            return Ok(before_ns);
        }
        self.store.trim_series((database, table), matcher_sets, before_ns, &mut |before_ns| {
            let freeze = |view: &Arc<View>| {
                let frozen_ns = frozen_from_ns(view, before_ns);
                self.change_locked(view, true, |state| state.frozen_ns = state.frozen_ns.max(frozen_ns))
            };
            let mut outdated = views.iter().filter(|view| view.state.frozen_ns < frozen_from_ns(view, before_ns));
            outdated.try_for_each(freeze).map_err(|error| StoreError::Invalid(error.to_string()))
        })
    }
}

/// The time before which windows lack rows where those before a time are gone: a window is made of rows before it, too, as far as it reaches.
fn frozen_from_ns(view: &View, gone_ns: i64) -> i64 {
    if gone_ns == i64::MIN { gone_ns } else { gone_ns.saturating_add(view.definition.reach_ns()) }
}

/// The first of the source's rows that windows of a view are still to be made of.
fn needed_from_ns(view: &View, now_ns: i64) -> i64 {
    let reach_ns = view.definition.reach_ns();
    let pending = view.state.pending.iter().map(|pending| pending.range.start_ns.saturating_sub(reach_ns));
    pending.fold(now_ns.saturating_sub(view.definition.age_ns_max()), i64::min)
}

impl Db {
    /// Writes to disk now and then before which time a part of a view's source is gone.
    pub fn note_view_frozen(&self, view: &View) -> Result<(), QueryError> {
        let gone_before_ns = self.views.gone_before_ns(view);
        if gone_before_ns <= view.state.frozen_ns.saturating_add(FROZEN_STEP_NS) {
            return Ok(());
        }
        self.views.save_frozen(view, gone_before_ns)
    }
}

/// Fails with the reason if a view cannot be kept right in a database of a policy.
fn check_policy(definition: &ViewDefinition, (database, policy): (&str, &DatabasePolicy)) -> Result<(), String> {
    let name = &definition.name;
    if !policy.folds.is_empty() {
        return Err(format!(
            "the database {database:?} cannot both fold its rows and have the view {name:?}, whose windows a fold does not keep to: drop the \
             view, or do without folds"
        ));
    }
    check_age(definition, &format!("the database {database:?}"), policy.retention_ns)
}

/// Fails with the reason if a table of a view keeps its rows not long enough.
fn check_ttl(definition: &ViewDefinition, table: &str, ttl_ns: i64) -> Result<(), String> {
    check_age(definition, &format!("the table {table:?}"), ttl_ns)
}

fn check_age(definition: &ViewDefinition, keeper: &str, kept_ns: i64) -> Result<(), String> {
    let age_ns = definition.age_ns_max();
    if kept_ns == 0 || kept_ns >= age_ns {
        return Ok(());
    }
    Err(format!(
        "{keeper} would keep rows for {} s, but a window of the view {:?} is stored when it began up to {} s ago: keep them longer, or make \
         narrower windows",
        kept_ns / NS_PER_SECOND,
        definition.name,
        age_ns / NS_PER_SECOND
    ))
}
