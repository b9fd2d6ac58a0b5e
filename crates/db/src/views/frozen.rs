//! Retention and TTLs: how much of a view's source is gone by now, and whether source and view are kept long enough.
//!
//! Rows go by whole windows, so that late rows can be counted in each window that is there: nothing needs to be known of rows that are gone.
//! [`holds`](super::holds) says how long rows wait for views that have not read them.

use std::collections::BTreeMap;
use std::sync::Arc;

use index::CompiledMatcher;
use model::TimeRange;
use query::QueryError;
use query::plan::{AsOf, duration};
use query::views::{View, ViewCatalog, ViewDefinition};
use store::{DatabasePolicy, ExpiryGuard, Going, Store, StoreError};

use super::{STATE_KIND, Views, document, document_name};
use crate::Db;

/// How far the time before which a source is gone moves between two times that it is written to disk. In between, the clock tells it after a
/// restart too.
const FROZEN_STEP_NS: i64 = 3_600_000_000_000;

impl Views {
    /// The time before which a part of a view's source is gone, or was at some time. What a TTL takes the state knows before it goes.
    pub(super) fn gone_before_ns(&self, view: &View) -> i64 {
        // Windows that went by the view's own TTL are not computed again either: a late row would bring back a part of them.
        let expired_ns = self.current(view).map_or(i64::MIN, |current| current.state.expired_ns);
        self.source_gone_before_ns(view).max(expired_ns)
    }

    /// The time before which windows lack rows of the source.
    fn source_gone_before_ns(&self, view: &View) -> i64 {
        let of_database = self.store.database_number(&view.definition.database);
        let oldest_ns = of_database.map(|number| self.store.oldest_retained_ns(number));
        let of_database = oldest_ns.map(|oldest_ns| frozen_from_ns(&view.definition, None, oldest_ns));
        let known_ns = self.current(view).map_or(i64::MIN, |current| current.state.frozen_ns);
        known_ns.max(view.state.frozen_ns).max(of_database.unwrap_or(i64::MIN))
    }

    /// The views that read a table of a database, not by way of others, or join it as of a time; `None`: any table.
    pub(super) fn readers(&self, database: &str, table: Option<&str>) -> Vec<Arc<View>> {
        let mut views = self.views(database);
        views.retain(|view| reach_into(&view.definition, table).is_some());
        views
    }

    /// The views that rows are held for which go: what folds leave as it is needs none.
    fn readers_of(&self, database: &str, going: Going<'_>) -> Vec<Arc<View>> {
        let readers = self.readers(database, table_of(going));
        if going == Going::Folded { self.changed_by_folds(database, readers) } else { readers }
    }

    /// Writes to disk that rows that views read go that are before a time, of a table or of any; while `changing` is held. Where windows lack rows nothing is
    /// pending any more: late rows alone would be left to be read.
    fn freeze(&self, readers: &[Arc<View>], table: Option<&str>, before_ns: i64) -> Result<(), StoreError> {
        let (mut frozen, mut documents) = (Vec::new(), BTreeMap::new());
        for view in readers.iter().filter_map(|view| self.current(view)) {
            let frozen_ns = frozen_from_ns(&view.definition, table, before_ns);
            if frozen_ns <= view.state.frozen_ns {
                continue;
            }
            let mut view = View::clone(&view);
            freeze_before(&mut view, frozen_ns);
            let name = document_name(&view.definition.database, &view.definition.name);
            documents.insert(name, Some(document::encode_state(&view.state).into()));
            frozen.push(view);
        }
        if frozen.is_empty() {
            return Ok(());
        }
        self.store.change_documents(STATE_KIND, &documents)?;
        let mut state = self.state.write();
        for view in frozen {
            state.insert(view);
        }
        Ok(())
    }

    /// Writes to disk that rows of a view go that are before a time, by the TTL of its own table; while `changing` is held. Queries of its source that are of
    /// that time are not answered by it any more, whatever the TTL becomes.
    fn note_expired(&self, database: &str, table: &str, before_ns: i64) -> Result<(), StoreError> {
        let Some(view) = self.view_of_table(database, table).filter(|view| view.state.expired_ns < before_ns) else {
            return Ok(());
        };
        let mut view = View::clone(&view);
        view.state.expired_ns = before_ns;
        let name = document_name(&view.definition.database, &view.definition.name);
        self.store.put_document(STATE_KIND, &name, &document::encode_state(&view.state))?;
        self.state.write().insert(view);
        Ok(())
    }

    /// Writes to disk before which time a part of a view's source is gone.
    fn save_frozen(&self, view: &View, gone_before_ns: i64) -> Result<(), QueryError> {
        self.change_state(view, true, |state| state.frozen_ns = state.frozen_ns.max(gone_before_ns))
    }

    /// Refuses a view whose windows would be gone, or without their rows, before they are stored.
    pub(super) fn check_kept(&self, definition: &ViewDefinition) -> Result<(), QueryError> {
        let ViewDefinition { database, target, .. } = definition;
        let into = definition.target_database();
        self.check_folds(definition, &self.store.policy(database).unwrap_or_default())?;
        for (of, table) in [(database.as_str(), definition.source()), (into, target.as_str())] {
            let policy = self.store.policy(of).unwrap_or_default();
            check_policy(definition, (of, &policy)).map_err(QueryError::Invalid)?;
            check_ttl(definition, table, self.store.table_ttl_ns(of, table)).map_err(QueryError::Invalid)?;
        }
        let mut joined = definition.as_ofs().map(AsOf::table_name);
        joined
            .try_for_each(|table| check_ttl(definition, table, self.store.table_ttl_ns(database, table)))
            .map_err(QueryError::Invalid)
    }

    /// Says how a database keeps its data, unless its views cannot be kept right by that. Rows past keeping are gone when this returns, but for those
    /// that views still have to read.
    pub(crate) fn change_policy(&self, database: &str, policy: &DatabasePolicy) -> Result<(), StoreError> {
        {
            let _changing = self.changing.lock();
            let is_of = |view: &&Arc<View>| {
                view.definition.database == database || view.definition.target_database() == database
            };
            let mut concerned = self.all();
            concerned.retain(|view| is_of(&view));
            for view in &concerned {
                check_policy(&view.definition, (database, policy)).map_err(StoreError::Invalid)?;
            }
            self.before_folds(&concerned, (database, policy))?;
            self.store.set_policy(database, policy)?;
            self.after_folds(database)?;
        }
        // It asks the views, and tells them. The policy is there: what fails the background does, and reports.
        let _ = self.store.move_window_bounds(Some(database), true);
        Ok(())
    }

    /// Refuses a TTL of a table by which views cannot be kept right.
    pub(super) fn check_new_ttl(&self, database: &str, table: &str, ttl_ns: i64) -> Result<(), QueryError> {
        let reads = |of: &ViewDefinition| of.database == database && (of.source() == table || of.has_as_of(table));
        let writes = |of: &ViewDefinition| of.target_database() == database && of.target == table;
        let views = self.all();
        let mut concerned = views.iter().filter(|view| reads(&view.definition) || writes(&view.definition));
        concerned.try_for_each(|view| check_ttl(&view.definition, table, ttl_ns)).map_err(QueryError::Invalid)
    }

    /// Deletes the rows before a time of series of tables, which are past keeping, as far as no view still has to read them, and window by window
    /// of those that read the tables. No view is made meanwhile: it would store windows of a part of them.
    pub(crate) fn trim_series(
        &self,
        database: &str,
        tables: &[(&str, &[Vec<CompiledMatcher>])],
        before_ns: i64,
    ) -> Result<i64, StoreError> {
        let _changing = self.changing.lock();
        let (mut of_tables, mut needed_ns) = (Vec::new(), i64::MAX);
        for (table, _) in tables {
            let readers = self.readers(database, Some(table));
            needed_ns = needed_ns.min(self.needed_from_ns((database, table), &readers));
            of_tables.push((*table, readers));
        }
        let sources: Vec<Arc<View>> =
            of_tables.iter().flat_map(|(table, readers)| sources_of(readers, Some(table))).collect();
        let before_ns = whole_windows_before(&sources, before_ns.min(needed_ns));
        if before_ns == i64::MIN {
            return Ok(before_ns);
        }
        let mut prepare = |before_ns: i64| {
            of_tables.iter().try_for_each(|(table, readers)| self.freeze(readers, Some(table), before_ns))
        };
        self.store.trim_tables(database, tables, before_ns, &mut prepare)
    }
}

/// Has no windows of a view computed any more that begin before a time.
pub(super) fn freeze_before(view: &mut View, frozen_ns: i64) {
    view.state.frozen_ns = view.state.frozen_ns.max(frozen_ns);
    let closed = TimeRange { start_ns: i64::MIN, end_ns: view.first_from(view.state.frozen_ns).saturating_sub(1) };
    if closed.end_ns > i64::MIN {
        view.state.remove(&closed);
        view.state.remove_columns(&closed, |_| true);
    }
}

impl ExpiryGuard for Views {
    fn may_go_before_ns(&self, database: &str, going: Going<'_>, before_ns: i64) -> i64 {
        if going == Going::Folded && self.has_unreadable(database) {
            return i64::MIN;
        }
        let changes = self.changes(database);
        let readers = self.readers_of(database, going);
        let before_ns = match going {
            // Rows still come from that time on: no window is closed that may have some of them.
            Going::Folded => {
                let closed_ns = readers.iter().map(|view| closed_ns_max(&view.definition)).max();
                before_ns.saturating_sub(closed_ns.unwrap_or_default())
            }
            Going::Table(_) | Going::All => before_ns,
        };
        let before_ns = before_ns.min(self.held_from_ns(going, (&readers, changes.as_ref()), before_ns));
        whole_windows_before(&sources_of(&readers, table_of(going)), before_ns)
    }

    fn before_expiry(&self, database: &str, going: Going<'_>, before_ns: i64) -> Result<bool, StoreError> {
        let _changing = self.changing.lock();
        let changes = self.changes(database);
        let readers = self.readers_of(database, going);
        let closed_ns = readers.iter().map(|view| closed_ns_max(&view.definition)).max().unwrap_or_default();
        let is_open = || self.store.folds_closed_before_ns(database) < before_ns.saturating_add(closed_ns);
        if going == Going::Folded && is_open() {
            return Ok(false);
        }
        // There may be another view since, or windows to compute.
        if self.held_from_ns(going, (&readers, changes.as_ref()), before_ns) < before_ns {
            return Ok(false);
        }
        self.freeze(&readers, table_of(going), before_ns)?;
        if let Going::Table(table) = going {
            self.note_expired(database, table, before_ns)?;
        }
        self.holds.lock().renew(&readers, going, self.store.monotonic_ns());
        Ok(true)
    }
}

/// The table whose rows go; `None`: those of any may.
pub(super) fn table_of(going: Going<'_>) -> Option<&str> {
    match going {
        Going::Table(table) => Some(table),
        Going::All | Going::Folded => None,
    }
}

/// How long before its beginning rows are at most that a window of a view is made of, where that is known.
fn known_reach_ns(definition: &ViewDefinition) -> i64 {
    let known = reaches_into(definition, None).filter(|reach_ns| *reach_ns < i64::MAX);
    known.max().unwrap_or_default()
}

/// How long after the time up to which samples may be folded windows are closed, at most: each is, as a whole, that has some of them.
pub(super) fn closed_ns_max(definition: &ViewDefinition) -> i64 {
    known_reach_ns(definition).saturating_add(definition.windows.length_ns_max())
}

/// Those of the readers of a table, or of any, that make their windows of its rows.
pub(super) fn sources_of(readers: &[Arc<View>], table: Option<&str>) -> Vec<Arc<View>> {
    let is_source = |view: &&Arc<View>| table.is_none_or(|table| view.definition.source() == table);
    readers.iter().filter(is_source).cloned().collect()
}

/// The time before which windows may lack rows that a TTL has taken without a word.
pub(super) fn expired_before_ns(store: &Store, definition: &ViewDefinition) -> i64 {
    let as_of = definition.as_ofs().map(AsOf::table_name);
    let of_table = |table: &str| {
        let ttl_ns = store.table_ttl_ns(&definition.database, table);
        let gone_ns = if ttl_ns > 0 { store.trusted_now_ns().saturating_sub(ttl_ns) } else { i64::MIN };
        frozen_from_ns(definition, Some(table), gone_ns)
    };
    [definition.source()].into_iter().chain(as_of).map(of_table).max().unwrap_or(i64::MIN)
}

/// The time before which rows of a view itself may be gone by the TTL of its table as it is now: states of versions before do not say it.
pub(super) fn own_expired_before_ns(store: &Store, definition: &ViewDefinition) -> i64 {
    match store.table_ttl_ns(definition.target_database(), &definition.target) {
        0 => i64::MIN,
        ttl_ns => store.trusted_now_ns().saturating_sub(ttl_ns),
    }
}

/// How long before its beginning rows of a table are that a window is made of, in nanoseconds; of any that is read, if none is named. `i64::MAX`: they may
/// be of any age. `None` if it is not read, not by way of views alone.
pub(super) fn reach_into(definition: &ViewDefinition, table: Option<&str>) -> Option<i64> {
    reaches_into(definition, table).max()
}

/// As [`reach_into`], for each time that the table is read.
fn reaches_into(definition: &ViewDefinition, table: Option<&str>) -> impl Iterator<Item = i64> {
    let own_ns = definition.reach_ns();
    let of_source = table.is_none_or(|table| definition.source() == table).then_some(own_ns);
    let as_of = definition.as_ofs().filter(move |as_of| table.is_none_or(|table| as_of.table_name() == table));
    of_source.into_iter().chain(as_of.map(move |as_of| as_of.reach_ns().saturating_add(own_ns)))
}

/// The first of the rows of a table, or of any, that windows from a beginning on are made of; `i64::MIN`: they may be of any age.
pub(super) fn rows_from_ns(definition: &ViewDefinition, table: Option<&str>, start_ns: i64) -> i64 {
    match reach_into(definition, table).unwrap_or_default() {
        i64::MAX => i64::MIN,
        reach_ns => start_ns.saturating_sub(reach_ns),
    }
}

/// The latest time up to one that cuts no window of views: a late row finds all others of its window, or none. Of views whose windows do not nest only
/// the widest ones stay whole where the others have no common beginning within one of these.
pub(super) fn whole_windows_before(views: &[Arc<View>], before_ns: i64) -> i64 {
    let mut views: Vec<&Arc<View>> = views.iter().collect();
    views.sort_by_key(|view| std::cmp::Reverse(view.definition.windows.length_ns_max()));
    let Some(widest) = views.first().filter(|_| before_ns != i64::MIN) else { return before_ns };
    let start_ns = widest.bins.start_of(before_ns);
    let least_ns = start_ns.saturating_sub(widest.definition.windows.length_ns_max());
    let mut bound_ns = start_ns;
    while bound_ns > least_ns {
        let earlier_ns = views.iter().fold(bound_ns, |bound_ns, view| view.bins.start_of(bound_ns));
        if earlier_ns == bound_ns {
            return bound_ns;
        }
        bound_ns = earlier_ns;
    }
    start_ns
}

/// The time before which windows lack rows where those of a table before a time are gone, or of any table: a window is made of rows before it, too, as far
/// as it reaches.
pub(super) fn frozen_from_ns(definition: &ViewDefinition, table: Option<&str>, gone_ns: i64) -> i64 {
    // Rows of any age were found before they went, by what was kept for ever then: no window is known to lack one.
    let known = reaches_into(definition, table).filter(|reach_ns| *reach_ns < i64::MAX);
    let reach_ns = known.max().unwrap_or_default();
    if gone_ns == i64::MIN { gone_ns } else { gone_ns.saturating_add(reach_ns) }
}

impl Db {
    /// Writes to disk now and then before which time a part of a view's source is gone.
    pub fn note_view_frozen(&self, view: &View) -> Result<(), QueryError> {
        let gone_before_ns = self.views.source_gone_before_ns(view);
        if gone_before_ns <= view.state.frozen_ns.saturating_add(FROZEN_STEP_NS) {
            return Ok(());
        }
        self.views.save_frozen(view, gone_before_ns)
    }
}

/// Fails with the reason if a view cannot be kept right in a database of a policy.
fn check_policy(definition: &ViewDefinition, (database, policy): (&str, &DatabasePolicy)) -> Result<(), String> {
    let keeper = format!("the database {database:?} would keep rows");
    if database == definition.database {
        check_as_of_age(definition, None, (&keeper, policy.retention_ns))?;
    }
    check_age(definition, &keeper, policy.retention_ns, definition.age_ns_max())
}

/// Fails with the reason if a table of a view keeps its rows not long enough.
fn check_ttl(definition: &ViewDefinition, table: &str, ttl_ns: i64) -> Result<(), String> {
    let keeper = format!("the table {table:?} would keep rows");
    if definition.has_as_of(table) {
        return check_as_of_age(definition, Some(table), (&keeper, ttl_ns));
    }
    check_age(definition, &keeper, ttl_ns, definition.age_ns_max())
}

/// Fails with the reason if rows go of the table, or of any, whose columns a view's rows have as of their times, where what these find would change by
/// that.
pub(super) fn check_as_of_age(
    definition: &ViewDefinition,
    table: Option<&str>,
    (keeper, kept_ns): (&str, i64),
) -> Result<(), String> {
    let is_joined = |as_of: &&AsOf| table.is_none_or(|table| table == as_of.table_name());
    if kept_ns == 0 {
        return Ok(());
    }
    for as_of in definition.as_ofs().filter(is_joined) {
        let (name, table) = (&definition.name, as_of.table_name());
        let Some(within_ns) = as_of.within_ns else {
            return Err(format!(
                "{keeper} for {}, but a row of {table:?} that the view {name:?} finds as of a time may be of any age: say how \
                 old it may be, ASOF JOIN {table} … TOLERANCE 1h, or keep rows for ever",
                duration(kept_ns),
            ));
        };
        check_age(definition, keeper, kept_ns, definition.age_ns_max().saturating_add(within_ns))?;
    }
    Ok(())
}

pub(super) fn check_age(definition: &ViewDefinition, keeper: &str, kept_ns: i64, age_ns: i64) -> Result<(), String> {
    if kept_ns == 0 || kept_ns >= age_ns {
        return Ok(());
    }
    Err(format!(
        "{keeper} for {}, but a window of the view {:?} is stored when it began up to {} ago: keep them longer, or make \
         narrower windows",
        duration(kept_ns),
        definition.name,
        duration(age_ns)
    ))
}
