//! The session over a store.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use access::grant::Right;
use model::{Field, Labels, MatchOp, Matcher, TimeRange, ValueType};
use platform::Clock;
use store::{EpochValue, NameValidity, SelectedGroup, Store, StoreError, TableLayout, TableSchema, TableSelection};

use super::regular::RegularSettings;
use super::{DatabaseSettings, NewTable, RefusedRow, Session, TableGroup, TopNames};
use crate::execute::{self, Context};
use crate::plan::{Labelled, Scan, Selector, push_down};
use crate::series::regular::{NAME_TAG, RegularSource};
use crate::series::selection;
use crate::views::{
    RefreshRequest, SourceDelete, StoredQuery, UseOutcome, UsedView, View, ViewCatalog, ViewDefinition, ViewOptions,
    ViewStatus,
};
use crate::{BinCache, Budget, Frame, Helpers, LabelRows, LastRows, Outcome, Plan, QueryError, Reads, ViewUse};

/// Writes for a session: who opened the store knows how lines are read, and watches its disk.
pub trait SessionWriter: Sync {
    /// As [`Session::write`]. The right to write the database is the caller's; the rows that it may write, and how many, are the budget's.
    fn write(&self, database: &str, lines: &[u8], budget: &Budget) -> Result<Option<RefusedRow>, QueryError>;

    /// Makes a database, unless there is one of the name.
    fn make_database(&self, database: &str) -> Result<(), QueryError>;
}

/// The parts of a process that a session works with.
#[derive(Clone, Copy)]
pub struct SessionHost<'a> {
    /// Where the data is.
    pub store: &'a Store,
    /// Says what the time is.
    pub clock: &'a dyn Clock,
    /// Threads that help if there is much to read.
    pub helpers: &'a Helpers,
    /// The cache of bins of time, if there is one.
    pub bin_cache: Option<&'a dyn BinCache>,
    /// Writes rows.
    pub writer: &'a dyn SessionWriter,
    /// Materialised views, if there are any.
    pub views: Option<&'a dyn ViewCatalog>,
}

/// One statement's session over a store, within the statement's budget.
pub struct StoreSession<'a> {
    pub(super) host: SessionHost<'a>,
    pub(super) budget: &'a Budget,
    /// Counts of what plans read so far.
    reads: Mutex<Reads>,
}

impl<'a> StoreSession<'a> {
    /// A session that has read nothing.
    pub fn new(host: SessionHost<'a>, budget: &'a Budget) -> Self {
        Self { host, budget, reads: Mutex::default() }
    }

    fn read<T>(
        &self,
        database: &str,
        read: impl FnOnce(&Context<'_>) -> Result<T, QueryError>,
        reads: impl FnOnce(&T) -> Reads,
    ) -> Result<T, QueryError> {
        let (database, _) = selection::reach(database, &[], self.budget)?;
        let SessionHost { store, clock, helpers, bin_cache, views, .. } = self.host;
        if store.is_strict(database) {
            self.budget.be_strict();
        }
        let clock_ns = || clock.now_ns();
        let budget = self.budget;
        let clock_ns: &(dyn Fn() -> i64 + Sync) = &clock_ns;
        let context = Context { store, database, budget, clock_ns, helpers, bin_cache, views, views_answer: true };
        let done = read(&context)?;
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).merge(&reads(&done));
        Ok(done)
    }

    /// Refuses what the statement's sender may not do. The words are the same whether there is such a database or not.
    pub(super) fn require(&self, right: Right, database: &str) -> Result<(), QueryError> {
        let scope = self.budget.scope();
        if scope.may(right, database) {
            return Ok(());
        }
        let (account, right) = (&scope.name, right.name());
        Err(QueryError::Forbidden(format!(
            "the account {account} does not have the right {right} on the database {database}"
        )))
    }

    /// Returns whether a table has series that a sender with narrowed rights may read.
    fn has_readable_series(&self, database: &str, table: &str) -> Result<bool, QueryError> {
        let wanted = TableSelection { database, table, fields: &[], matchers: &[] };
        Ok(!selection::select_table(self.host.store, &wanted, self.budget)?.is_empty())
    }

    /// What a table says of labels, as the statement read it first.
    pub fn label_rows(&self, database: &str, labelled: &Labelled) -> Result<Arc<LabelRows>, QueryError> {
        self.read(database, |context| execute::label_rows(labelled, context), |_| Reads::default())
    }

    /// The views, for those who have a right on a whole database.
    pub(super) fn changeable_views(&self, right: Right, database: &str) -> Result<&dyn ViewCatalog, QueryError> {
        self.require(right, database)?;
        if !self.budget.scope().matchers(right, database).is_empty() {
            let right = right.name();
            let message = format!(
                "views are of the whole database {database}, on a part of which the account has the right {right}"
            );
            return Err(QueryError::Forbidden(message));
        }
        self.host.views.ok_or_else(|| QueryError::Invalid("there are no views here".to_owned()))
    }

    /// The view that a scan of a table reads, for those who may read the database.
    pub(super) fn readable_view(&self, database: &str, table: &str) -> Result<Option<Arc<View>>, QueryError> {
        let Some(views) = self.host.views else { return Ok(None) };
        let Some(view) = views.view_of_table(database, table) else {
            let Some(reason) = views.unreadable(database, table) else { return Ok(None) };
            let _ = selection::reach(database, &[], self.budget)?;
            return Err(QueryError::Invalid(format!(
                "the definition of the view {table:?} cannot be read ({reason}): DROP MATERIALIZED VIEW, or DROP VIEW, and make it again"
            )));
        };
        let (database, _) = selection::reach(database, &[], self.budget)?;
        Ok((database == view.definition.database && self.budget.view_use() != ViewUse::Stored).then_some(view))
    }

    /// Runs a plan again if windows of views that it used were deleted meanwhile to be written again, if they or their source went, or if a view that answered
    /// for its table was dropped. Where that began before, the windows are computed, or read as they are stored.
    fn run_consistently(&self, database: &str, plan: &Plan) -> Result<Outcome, QueryError> {
        const ATTEMPTS_MAX: usize = 4;
        let mut changed: Vec<UsedView> = Vec::new();
        for attempt in 1..=ATTEMPTS_MAX {
            let held = self.budget.samples();
            // Views that change all the time need not answer for their table.
            let views_answer = attempt < ATTEMPTS_MAX || changed.iter().all(UsedView::is_named);
            match self.run_noting_views(database, plan, views_answer)? {
                (outcome, used) if used.is_empty() => return Ok(outcome),
                (_, used) => changed = used,
            }
            self.budget.give_back(self.budget.samples().saturating_sub(held) as usize);
        }
        let changed: Vec<&str> = changed.iter().map(UsedView::name).collect();
        Err(QueryError::Execution(format!(
            "windows of the views {changed:?} were written again, or went, each of the {ATTEMPTS_MAX} times that they were read: try again, \
             narrow the range, or have them refreshed less often, ALTER MATERIALIZED VIEW … SET REFRESH EVERY 1m"
        )))
    }

    /// Runs a plan; with its outcome are the views of which what was read is not of one piece.
    fn run_noting_views(
        &self,
        database: &str,
        plan: &Plan,
        views_answer: bool,
    ) -> Result<(Outcome, Vec<UsedView>), QueryError> {
        // Rows that go by windows go many at once.
        let bound_ns = || self.host.store.window_bound_ns(database);
        let before_ns = bound_ns();
        let run = |context: &Context<'_>| execute::execute_with_views(plan, &Context { views_answer, ..*context });
        let (outcome, mut used) = self.read(database, run, |(outcome, _)| outcome.reads)?;
        let Some(views) = self.host.views.filter(|_| !used.is_empty()) else { return Ok((outcome, Vec::new())) };
        let first_ns = push_down(plan.clone()).first_time_ns();
        let is_kept = bound_ns() == before_ns || bound_ns().is_none_or(|now_ns| first_ns >= now_ns);
        let mut dropped = None;
        used.retain(|view| match view.outcome(views, database, first_ns) {
            UseOutcome::Whole => !is_kept,
            UseOutcome::Changed => true,
            UseOutcome::Dropped => {
                dropped = dropped.take().or_else(|| Some(view.name().to_owned()));
                true
            }
        });
        match dropped {
            Some(name) => Err(QueryError::Execution(format!("the view {name:?} was dropped meanwhile"))),
            None => Ok((outcome, used)),
        }
    }

    /// Runs a plan; windows of views that are deleted meanwhile to be written again may be missing.
    pub(crate) fn run_once(&self, database: &str, plan: &Plan) -> Result<Outcome, QueryError> {
        self.budget.note_read(&plan.touched_range());
        self.read(database, |context| execute::execute(plan, context), |outcome| outcome.reads)
    }

    fn is_narrowed(&self, database: &str) -> bool {
        !self.budget.scope().matchers(Right::Read, database).is_empty()
    }
}

impl Session for StoreSession<'_> {
    fn now_ns(&self) -> i64 {
        self.host.clock.now_ns()
    }

    fn budget(&self) -> &Budget {
        self.budget
    }

    fn databases(&self) -> Vec<String> {
        let scope = self.budget.scope();
        let mut databases = self.host.store.databases();
        databases.retain(|database| scope.sees(database));
        databases
    }

    fn tables(&self, database: &str) -> Result<Vec<String>, QueryError> {
        let (database, _) = selection::reach(database, &[], self.budget)?;
        if RegularSource::of_database(self.host.store, database).is_some() {
            return Ok(vec![database.to_owned()]);
        }
        let mut tables = self.host.store.tables(database)?;
        if self.is_narrowed(database) {
            let mut readable = Vec::new();
            for table in tables {
                if self.has_readable_series(database, &table)? {
                    readable.push(table);
                }
            }
            tables = readable;
        }
        let views = self.views(database)?;
        tables
            .extend(views.iter().filter(|view| view.definition.is_exposed()).map(|view| view.definition.name.clone()));
        tables.sort_unstable();
        tables.dedup();
        Ok(tables)
    }

    fn table(&self, database: &str, name: &str) -> Result<Option<TableSchema>, QueryError> {
        if let Some(view) = self.readable_view(database, name)? {
            let definition = &view.definition;
            let fields = definition.shown_fields().cloned().collect();
            return Ok(Some(TableSchema {
                name: definition.name.clone(),
                tags: definition.labels().to_vec(),
                fields,
                layout: None,
            }));
        }
        if let Some(source) = RegularSource::of_database(self.host.store, database) {
            let (database, _) = selection::reach(database, &[], self.budget)?;
            return Ok((database == name).then(|| source.table()));
        }
        let scope = self.budget.scope();
        if !scope.may(Right::Read, database) && scope.may(Right::Write, database) {
            // An INSERT looks at the columns that it is for.
            return Ok(self.host.store.table(database, name)?);
        }
        let (database, _) = selection::reach(database, &[], self.budget)?;
        if self.is_narrowed(database) && !self.has_readable_series(database, name)? {
            return Ok(None);
        }
        Ok(self.host.store.table(database, name)?)
    }

    fn groups(&self, database: &str, scan: &Scan) -> Result<Vec<TableGroup>, QueryError> {
        if let Some(view) = self.scanned_view(database, scan)? {
            let fields: Vec<String> = view.definition.shown_fields().map(|(name, _)| name.clone()).collect();
            let held = self.budget.samples();
            let outcome = self.run_consistently(database, &Plan::Scan(scan.clone()))?;
            self.budget.give_back(self.budget.samples().saturating_sub(held) as usize);
            let group = |frame: Frame| TableGroup { tags: frame.labels, fields: fields.clone() };
            return Ok(outcome.frames.into_iter().map(group).collect());
        }
        let regular = self.read(database, |context| execute::regular_groups(scan, context), |_| Reads::default())?;
        if let Some(groups) = regular {
            return Ok(groups);
        }
        let groups = self.read(database, |context| execute::table_groups(scan, context), |_| Reads::default())?;
        let group = |group: SelectedGroup| TableGroup {
            fields: group.columns.iter().map(|column| column.field.to_string()).collect(),
            tags: group.labels,
        };
        Ok(groups.into_iter().map(group).collect())
    }

    fn tag_values(&self, database: &str, scan: &Scan, tag: &str) -> Result<Vec<String>, QueryError> {
        if self.scanned_view(database, scan)?.is_some() {
            let groups = self.groups(database, scan)?;
            let values: BTreeSet<&str> = groups.iter().filter_map(|group| group.tags.get(tag)).collect();
            return Ok(values.into_iter().map(str::to_owned).collect());
        }
        self.read(database, |context| execute::tag_values(scan, tag, context), |_| Reads::default())
    }

    fn run(&self, database: &str, plan: &Plan) -> Result<Outcome, QueryError> {
        self.budget().note_read(&plan.touched_range());
        self.run_consistently(database, plan)
    }

    fn last_rows(&self, database: &str, scan: &Scan) -> Result<LastRows, QueryError> {
        self.budget().note_read(&scan.range);
        if self.scanned_view(database, scan)?.is_some() {
            let last = Plan::Last { input: Box::new(Plan::Scan(scan.clone())), rows: 1 };
            return Ok(LastRows::of_frames(self.run_consistently(database, &last)?));
        }
        self.read(database, |context| execute::last_rows(scan, context), |rows| rows.reads)
    }

    fn reads(&self) -> Reads {
        *self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, database: &str, lines: &[u8]) -> Result<Option<RefusedRow>, QueryError> {
        self.require(Right::Write, database)?;
        if !self.host.store.databases().iter().any(|known| known == database) {
            self.require(Right::Create, database)?;
        }
        self.host.writer.write(database, lines, self.budget)
    }

    fn delete(&self, database: &str, table: &str, selectors: &[Selector], range: &TimeRange) -> Result<(), QueryError> {
        self.require(Right::Admin, database)?;
        if self.host.store.regular(database).is_some() {
            let message =
                "series of a regular database are not deleted by rows: remove their names, or let retention take them";
            return Err(QueryError::Invalid(message.to_owned()));
        }
        if let Some(view) = self.host.views.and_then(|views| views.view_of_table(database, table)) {
            let name = &view.definition.name;
            let message = format!("{name:?} is a materialised view: its rows are computed from those of its source");
            return Err(QueryError::Invalid(message));
        }
        let matchers: Vec<Matcher> = selectors.iter().map(Selector::matcher).collect();
        let compiled = index::compile(&matchers)?;
        let delete = SourceDelete { database, table: Some(table), range: *range };
        let _hold = self.host.views.map(|views| views.before_delete(&delete)).transpose()?;
        self.host.store.delete_rows(database, table, &compiled, range).map_err(storage)?;
        self.host.store.carry_out_deletes().map_err(storage)
    }

    /// Registers the fields in a group without tags, which has no rows.
    fn create_table(&self, database: &str, table: &NewTable) -> Result<(), QueryError> {
        if !self.budget.scope().may(Right::Admin, database) {
            self.require(Right::Create, database)?;
        }
        self.refuse_view_name(database, &table.name)?;
        table.check_columns()?;
        let member = |(name, value_type): &(String, ValueType)| {
            (Field { name: name.clone(), value_type: *value_type }, Labels::empty())
        };
        let members: Vec<(Field, Labels)> = table.fields.iter().map(member).collect();
        self.host.store.register_groups(database, &table.name, &[Labels::empty()], &members).map_err(storage)?;
        self.host.store.declare_tags(database, &table.name, &table.tags).map_err(storage)?;
        let layout = table.layout.clone();
        layout.map_or(Ok(()), |layout| self.host.store.set_table_layout(database, &table.name, layout)).map_err(storage)
    }

    fn drop_table(&self, database: &str, table: &str) -> Result<bool, QueryError> {
        self.require(Right::Admin, database)?;
        if let Some(views) = self.host.views {
            if let Some(view) = views.view_of_table(database, table) {
                return Err(QueryError::Invalid(format!(
                    "{table:?} is a materialised view: DROP MATERIALIZED VIEW {} drops it",
                    view.definition.name
                )));
            }
            refuse_read_by_views(views, database, table)?;
        }
        let delete = SourceDelete { database, table: Some(table), range: TimeRange::ALL };
        let _hold = self.host.views.map(|views| views.before_delete(&delete)).transpose()?;
        self.host.store.drop_table(database, table).map_err(storage)
    }

    fn table_layout(&self, database: &str, table: &str) -> Option<Arc<TableLayout>> {
        self.host.store.table_layout(database, table)
    }

    fn table_ttl_ns(&self, database: &str, table: &str) -> i64 {
        self.host.store.table_ttl_ns(database, table)
    }

    fn set_table_ttl(&self, database: &str, table: &str, ttl_ns: i64) -> Result<(), QueryError> {
        self.require(Right::Admin, database)?;
        self.host.views.map_or(Ok(()), |views| views.before_ttl(database, table, ttl_ns))?;
        self.host.store.set_table_ttl(database, table, ttl_ns).map_err(storage)
    }

    fn retention_ns(&self, database: &str) -> Option<i64> {
        let policy = self.host.store.policy(database).filter(|_| self.budget.scope().sees(database));
        policy.map(|policy| policy.retention_ns)
    }

    fn set_up_database(&self, database: &str, settings: &DatabaseSettings) -> Result<(), QueryError> {
        // One that the sender has no right on is answered as one that does not exist.
        let is_known = self.databases().iter().any(|known| known == database);
        let is_change = is_known && *settings != DatabaseSettings::default();
        if !is_known || is_change {
            self.require(if is_change { Right::Admin } else { Right::Create }, database)?;
        }
        let known = self.host.store.regular(database);
        let definition = settings.regular.over(known).map_err(QueryError::Invalid)?;
        if definition.is_some() && settings.folds.as_ref().is_some_and(|folds| !folds.is_empty()) {
            let message = "a regular database is not folded: set retention, and keep means in another database";
            return Err(QueryError::Invalid(message.to_owned()));
        }
        if let Some(definition) = definition.filter(|definition| known.as_ref() != Some(definition)) {
            // Its table will have its name.
            self.refuse_view_name(database, database)?;
            self.host.store.define_regular(database, &definition).map_err(storage)?;
        }
        self.host.writer.make_database(database)?;
        if (DatabaseSettings { regular: RegularSettings::default(), ..settings.clone() }) == DatabaseSettings::default()
        {
            return Ok(());
        }
        let mut policy = self.host.store.policy(database).unwrap_or_default();
        policy.retention_ns = settings.retention_ns.unwrap_or(policy.retention_ns);
        policy.folds = settings.folds.clone().unwrap_or(policy.folds);
        policy.is_strict = settings.strict_folds.unwrap_or(policy.is_strict);
        match self.host.views {
            Some(views) => views.set_policy(database, &policy),
            None => self.host.store.set_policy(database, &policy).map_err(storage),
        }
    }

    fn name_validity(&self, database: &str, name: Option<&str>) -> Result<Vec<NameValidity>, QueryError> {
        let matchers: Vec<Matcher> =
            name.map(|name| Matcher::new(NAME_TAG, MatchOp::Equal, name)).into_iter().collect();
        match RegularSource::of_database(self.host.store, database) {
            Some(source) => source.validity(&matchers, self.budget),
            None => {
                Err(QueryError::Invalid(format!("the database {database} is not regular: its series have no validity")))
            }
        }
    }

    fn top_names(&self, database: &str, request: &TopNames) -> Result<Vec<(String, EpochValue)>, QueryError> {
        match RegularSource::of_database(self.host.store, database) {
            Some(source) => source.top(request, self.budget),
            None => Err(QueryError::Invalid(format!("the database {database} is not regular"))),
        }
    }

    fn drop_database(&self, database: &str) -> Result<bool, QueryError> {
        self.require(Right::Admin, database)?;
        // The views first, which would be there again after a crash, and those that were made meanwhile.
        let forget_views = || self.host.views.map_or(Ok(()), |views| views.remove_all(database));
        forget_views()?;
        let dropped = self.host.store.drop_database(database).map_err(storage)?;
        forget_views()?;
        Ok(dropped)
    }

    fn expanded(&self, database: &str, plan: &Plan) -> Result<Plan, QueryError> {
        self.read(database, |context| execute::expanded(plan, context), |_| Reads::default())
    }

    fn views(&self, database: &str) -> Result<Vec<Arc<View>>, QueryError> {
        let Some(views) = self.host.views else { return Ok(Vec::new()) };
        let (database, _) = selection::reach(database, &[], self.budget)?;
        let (views, matchers) = (views.views(database), self.budget.scope().matchers(Right::Read, database));
        Ok(if matchers.is_empty() { views } else { views_of_part(&views, &matchers) })
    }

    fn view_status(&self, database: &str, name: &str) -> Result<ViewStatus, QueryError> {
        let (database, _) = selection::reach(database, &[], self.budget)?;
        let mut status = self.host.views.map(|views| views.status(database, name)).unwrap_or_default();
        if self.is_narrowed(database) {
            // An error may have values of other series.
            status.error = status.error.map(|_| "its refresh fails".to_owned());
        }
        Ok(status)
    }

    fn create_views(&self, definitions: Vec<ViewDefinition>) -> Result<(), QueryError> {
        let mut permitted = Vec::with_capacity(definitions.len());
        for definition in definitions {
            permitted.push(self.permitted(definition)?.1);
        }
        self.host.views.map_or(Ok(()), |views| views.create(permitted))
    }

    fn extend_view(&self, of: &View, definition: ViewDefinition) -> Result<bool, QueryError> {
        let plan = definition.plan.clone();
        let (views, permitted) = self.permitted(definition)?;
        views.extend(of, ViewDefinition { plan, maker: of.definition.maker.clone(), ..permitted })
    }

    fn replace_view(&self, definition: ViewDefinition) -> Result<(), QueryError> {
        let (views, definition) = self.permitted(definition)?;
        views.replace(definition)
    }

    fn add_view_columns(&self, definition: ViewDefinition) -> Result<(), QueryError> {
        let (views, definition) = self.readable(definition)?;
        views.add_columns(definition)
    }

    fn drop_view(&self, database: &str, name: &str) -> Result<bool, QueryError> {
        // What a continuous query has written stays; with a view its windows go.
        let view = self.host.views.and_then(|views| views.view(database, name));
        let is_kept = view.is_some_and(|view| !view.definition.is_exposed());
        let right = if is_kept { Right::Write } else { Right::Admin };
        self.changeable_views(right, database)?.remove(database, name)
    }

    fn set_view_options(&self, database: &str, name: &str, options: ViewOptions) -> Result<(), QueryError> {
        self.changeable_views(Right::Write, database)?.set_options(database, name, options)
    }

    fn refresh_view(&self, request: &RefreshRequest<'_>) -> Result<(), QueryError> {
        self.changeable_views(Right::Write, request.database)?.request_refresh(request)
    }

    fn wait_for_refresh(&self, request: &RefreshRequest<'_>) -> Result<bool, QueryError> {
        self.changeable_views(Right::Write, request.database)?.wait_for_refresh(request, self.budget)
    }

    fn stored_query(&self, database: &str, name: &str) -> Result<Option<Arc<StoredQuery>>, QueryError> {
        self.readable_query(database, name)
    }

    fn stored_query_of_any_case(&self, database: &str, name: &str) -> Result<Option<Arc<StoredQuery>>, QueryError> {
        self.readable_query_of_any_case(database, name)
    }

    fn stored_queries(&self, database: &str) -> Result<Vec<Arc<StoredQuery>>, QueryError> {
        self.readable_queries(database)
    }

    fn put_stored_query(&self, query: StoredQuery, replaces: bool) -> Result<(), QueryError> {
        self.store_query(query, replaces)
    }

    fn drop_stored_query(&self, database: &str, name: &str) -> Result<bool, QueryError> {
        self.changeable_views(Right::Write, database)?.remove_stored_query(database, name)
    }
}

impl StoreSession<'_> {
    /// The view that a scan reads.
    fn scanned_view(&self, database: &str, scan: &Scan) -> Result<Option<Arc<View>>, QueryError> {
        scan.table.as_ref().map_or(Ok(None), |table| self.readable_view(database, &table.name))
    }
}

/// The views that an account sees whose rights are narrowed by labels: those that have the labels, without statements, which may name others.
fn views_of_part(views: &[Arc<View>], matchers: &[Matcher]) -> Vec<Arc<View>> {
    let is_seen = |view: &&Arc<View>| {
        let labels = view.definition.labels();
        view.definition.is_exposed()
            && !view.definition.has_joins()
            && matchers.iter().all(|matcher| labels.contains(&matcher.name))
    };
    let shown = |view: &Arc<View>| {
        let mut shown = View::clone(view);
        shown.definition.statement.clear();
        Arc::new(shown)
    };
    views.iter().filter(is_seen).map(shown).collect()
}

/// Refuses to drop a table that views read.
fn refuse_read_by_views(views: &dyn ViewCatalog, database: &str, table: &str) -> Result<(), QueryError> {
    let readers = views.views(database);
    let is_read = |view: &&Arc<View>| view.definition.source() == table || view.definition.joins(table);
    match readers.iter().find(is_read) {
        None => Ok(()),
        Some(reader) => Err(QueryError::Invalid(format!(
            "the view {:?} reads {table:?}: drop the view first",
            reader.definition.name
        ))),
    }
}

/// The error of a change: one that the sender can correct, or one of the storage.
pub(super) fn storage(error: StoreError) -> QueryError {
    match error {
        StoreError::Invalid(message) => QueryError::Invalid(message),
        other => other.into(),
    }
}
