//! What the refresher of views works with: their states, their windows as they are computed and as they are stored.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use index::compile;
use model::{Labels, MatchOp, Matcher, TimeRange};
use query::plan::{Expression, Grouping, Plan, Scan, Selector, TableColumns};
use query::views::{
    DEPTH_MAX, PendingRange, RefreshRequest, SourceDelete, View, ViewCatalog, ViewDefinition, ViewOptions, ViewStatus,
    subtract,
};
use query::{Budget, QueryError, Session, ViewUse};

use super::rows::ViewRows;
use super::waiting::RefreshBackground;
use super::{BETWEEN, STATE_KIND, UnreadableView, Views, document, document_name, storage};
use crate::Db;

/// A moment up to which a database's log was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewMark {
    /// Sequence id of the last record.
    pub sequence: u64,
    /// The journal's snapshot.
    snapshot: u64,
}

/// A part of the windows of a view.
#[derive(Debug, Clone)]
pub struct ViewWindows<'a> {
    /// The view.
    pub view: &'a View,
    /// Their times: whole windows.
    pub range: TimeRange,
    /// Which of the source's groups.
    pub selectors: Vec<Selector>,
}

impl Db {
    /// The databases that have materialised views.
    pub fn view_databases(&self) -> BTreeSet<String> {
        let state = self.views.state.read();
        let (mut databases, mut after) = (BTreeSet::new(), Bound::Unbounded);
        while let Some(((database, _), _)) = state.views.range((after, Bound::Unbounded)).next() {
            databases.insert(database.clone());
            // Names have no such character: what follows is another database's.
            after = Bound::Included((format!("{database}{BETWEEN}"), String::new()));
        }
        databases
    }

    /// A number that is another one after each change of a view or of its state.
    pub fn view_generation(&self) -> u64 {
        self.views.state.read().generation
    }

    /// How often a refresh was asked for since the folder was opened.
    pub fn view_requests(&self) -> u64 {
        self.views.requests.load(Ordering::Acquire)
    }

    /// The time at which a view has another window to be stored, in nanoseconds since 1970.
    pub fn next_view_window_ns(&self, view: &View) -> i64 {
        if view.state.watermark_ns == i64::MIN {
            return i64::MIN;
        }
        view.bins.next(view.bins.start_of(view.state.watermark_ns)).saturating_add(view.definition.lag_ns())
    }

    /// The materialised views of a database, by name.
    pub fn views(&self, database: &str) -> Vec<Arc<View>> {
        self.views.views(database)
    }

    /// A materialised view; `None` if there is none of the name.
    pub fn view(&self, database: &str, name: &str) -> Option<Arc<View>> {
        self.views.find(database, name)
    }

    /// How a materialised view is doing.
    pub fn view_status(&self, database: &str, name: &str) -> ViewStatus {
        self.views.status(database, name)
    }

    /// The views whose definitions cannot be read.
    pub fn unreadable_views(&self) -> Vec<UnreadableView> {
        self.views.state.read().unreadable.clone()
    }

    /// The views by way of which a view reads a table, from that table on; the last one is the view itself.
    pub fn views_below(&self, view: &Arc<View>) -> (String, Vec<Arc<View>>) {
        let mut chain = vec![view.clone()];
        let mut source = view.definition.source().to_owned();
        for _ in 0..DEPTH_MAX {
            let Some(below) = self.views.view_of_table(&view.definition.database, &source) else { break };
            below.definition.source().clone_into(&mut source);
            chain.push(below);
        }
        chain.reverse();
        (source, chain)
    }

    /// Windows that begin before this time are not computed again: a part of their source is gone.
    pub fn view_frozen_before_ns(&self, view: &View) -> i64 {
        view.first_from(self.views.frozen_before_ns(view))
    }

    /// Marks the present: what readers see now is what the log has up to the mark.
    pub fn mark_views(&self) -> Result<Option<ViewMark>, QueryError> {
        let sequence = self.store.mark();
        let snapshot = self.store.journal().snapshot_at(sequence);
        // Names of new columns wait for the next commit of rows: without one cursors would not come so far.
        self.store.commit_seen().map_err(storage)?;
        Ok(snapshot.map(|snapshot| ViewMark { sequence, snapshot }))
    }

    /// Notes that the stored windows of a database's views are right as of a mark, but for those that are pending.
    pub fn note_views_right(&self, database: &str, mark: &ViewMark) {
        self.views.state.write().right_until.insert(database.to_owned(), mark.snapshot);
        self.views.holds.lock().note_read(database, self.store.monotonic_ns());
    }

    /// Notes how a refresh went.
    pub fn note_view(&self, view: &View, change: impl FnOnce(&mut ViewStatus)) {
        self.views.note(view, change);
    }

    /// Has windows that are over by now count among those that are stored, once they are computed; returns whether there are such.
    pub fn advance_view(&self, view: &View) -> Result<bool, QueryError> {
        let newest_ns = self.views.newest_window(view);
        let moved = TimeRange { start_ns: view.state.watermark_ns, end_ns: newest_ns.saturating_sub(1) };
        if moved.start_ns > moved.end_ns {
            return Ok(false);
        }
        self.views.change_state(view, false, |state| {
            state.watermark_ns = newest_ns;
            state.add(PendingRange { range: moved, is_fill: true });
        })?;
        Ok(true)
    }

    /// Notes that a view is refreshed, unless something became pending meanwhile.
    pub fn note_view_refreshed(&self, view: &View) {
        let now_ns = self.now_ns();
        let key = (view.definition.database.clone(), view.definition.name.clone());
        let mut state = self.views.state.write();
        if state.views.get(&key).is_some_and(|current| current.id == view.id && !current.state.is_pending()) {
            let status = state.statuses.entry(key.clone()).or_default();
            (status.error, status.is_requested, status.refreshed_ns) = (None, false, Some(now_ns));
            self.views.note_failing(&mut state, &key);
            self.views.holds.lock().note_stored(view.id, self.store.monotonic_ns());
        }
    }

    /// Says who refreshes views in the background: statements that ask for a refresh wait for it.
    pub fn set_refresh_background(&self, background: Weak<dyn RefreshBackground>) {
        self.views.passes.set_background(background);
    }

    /// Notes the end of a pass of the background, and whether it left something to be read.
    pub fn note_view_pass(&self, has_more: bool) {
        self.views.passes.note(has_more);
    }

    /// Adds ranges of windows that are to be computed; on disk when this returns.
    pub fn add_view_ranges(&self, view: &View, ranges: &[TimeRange]) -> Result<(), QueryError> {
        self.views.change_state(view, true, |state| {
            for range in ranges {
                state.add(PendingRange { range: view.windows_of(range), is_fill: false });
            }
        })
    }

    /// Begins to compute windows: what is deleted until this is dropped, [`Db::finish_view_range`] leaves to be computed.
    pub fn begin_view_piece(&self) -> ViewPiece<'_> {
        self.views.state.write().open_pieces += 1;
        ViewPiece { views: &self.views }
    }

    /// Takes a range of windows out of those that are to be computed, unless a delete has it that is under way, or was since the piece was
    /// begun.
    pub fn finish_view_range(&self, view: &View, done: &TimeRange, is_durable: bool) -> Result<(), QueryError> {
        self.views.change_state(view, is_durable, |state| {
            let held = self.views.state.read().deletes_under_way(view);
            for range in subtract(&[*done], &held) {
                state.remove(&range);
                // A definition of before, by which the piece was begun, may lack them.
                let is_computed = |name: &str| view.definition.fields.iter().any(|(known, _)| known == name);
                state.remove_columns(&range, is_computed);
            }
        })?;
        let key = (view.definition.database.clone(), view.definition.name.clone());
        self.views.state.write().end_rewrite(&key, &[*done]);
        Ok(())
    }

    /// Takes a range of windows out of those that added columns lack. Where rows are deleted meanwhile whole windows are to be computed.
    pub fn finish_view_columns(
        &self,
        view: &View,
        names: &[String],
        done: &TimeRange,
        is_durable: bool,
    ) -> Result<(), QueryError> {
        self.views.change_state(view, is_durable, |state| {
            state.remove_columns(done, |name| names.iter().any(|known| known == name));
        })
    }

    /// The newest range of windows that added columns lack, and the columns.
    pub fn next_view_columns(&self, view: &View) -> Option<(Vec<String>, TimeRange)> {
        let columns = view.state.new_columns.first()?;
        Some((columns.names.clone(), *columns.ranges.last()?))
    }

    /// Gives a view the columns that its definition here has besides.
    ///
    /// # Errors
    /// If the definition differs in more.
    pub fn add_view_columns(&self, definition: ViewDefinition, budget: &Budget) -> Result<(), QueryError> {
        self.session(budget).add_view_columns(definition)
    }

    /// Counts bytes that were written in the background, as a merge's are, and returns when more may be.
    pub fn pace_background(&self, bytes: u64) {
        self.store.pace_background(bytes);
    }

    /// Has nothing wait in the background any more: the folder is about to be closed.
    pub fn stop_pacing(&self) {
        self.store.hurry_for_good();
    }

    /// Writes the states of a database's views to disk, where they are not there as they are.
    pub fn save_view_states(&self, database: &str) -> Result<(), QueryError> {
        let _changing = self.views.changing.lock();
        let known: BTreeMap<String, Arc<[u8]>> = self.store.documents(STATE_KIND).into_iter().collect();
        let mut changed = BTreeMap::new();
        for view in self.views.views(database) {
            let name = document_name(database, &view.definition.name);
            let bytes: Arc<[u8]> = document::encode_state(&view.state).into();
            if known.get(&name) != Some(&bytes) {
                changed.insert(name, Some(bytes));
            }
        }
        if changed.is_empty() { Ok(()) } else { self.store.change_documents(STATE_KIND, &changed).map_err(storage) }
    }

    /// The newest range of windows that are to be computed, without those that a delete under way has.
    pub fn next_view_range(&self, view: &View) -> Option<PendingRange> {
        let held = self.views.state.read().deletes_under_way(view);
        let free = |pending: &PendingRange| {
            let free = subtract(&[pending.range], &held);
            free.last().map(|range| PendingRange { range: *range, is_fill: pending.is_fill })
        };
        view.state.pending.iter().filter_map(free).max_by_key(|pending| (pending.range.end_ns, pending.is_fill))
    }

    /// The first and the last time that a view's source and its stored windows have in a range; empty if they have none.
    pub fn view_extent(&self, windows: &ViewWindows<'_>, budget: &Budget) -> Result<TimeRange, QueryError> {
        let definition = &windows.view.definition;
        let source = definition.scan().map(|scan| {
            let range = query::views::intersect(&scan.range, &windows.range);
            Scan { range, ..scan.clone() }
        });
        let mut extent = TimeRange::EMPTY;
        budget.use_views(ViewUse::Named);
        if let Some(source) = source {
            extent = extent.union(self.extent_of(&definition.database, &source, budget)?);
        }
        if !definition.is_exposed() {
            // Of what else its table has nothing is known, and nothing is deleted.
            return Ok(extent);
        }
        budget.use_views(ViewUse::Stored);
        let stored = stored_scan(windows);
        Ok(extent.union(self.extent_of(&definition.database, &stored, budget)?))
    }

    /// The first and the last time that a table has; empty if it has no rows.
    ///
    /// # Errors
    /// As every query of a budget.
    pub fn table_extent(&self, database: &str, table: &str, budget: &Budget) -> Result<TimeRange, QueryError> {
        self.extent_of(database, &Scan::of_table(table), budget)
    }

    /// As [`Db::table_extent`], of the rows whose tags satisfy all matchers.
    ///
    /// # Errors
    /// Likewise.
    pub fn series_extent(
        &self,
        (database, table): (&str, &str),
        matchers: &[Matcher],
        budget: &Budget,
    ) -> Result<TimeRange, QueryError> {
        let selector = |of: &Matcher| Selector { name: of.name.clone(), op: of.op, values: vec![of.value.clone()] };
        let selectors = matchers.iter().map(selector).collect();
        self.extent_of(database, &Scan { selectors, ..Scan::of_table(table) }, budget)
    }

    /// The time of the last row of a table; `i64::MIN` if it has none.
    ///
    /// # Errors
    /// Likewise.
    pub fn table_newest_ns(&self, database: &str, table: &str, budget: &Budget) -> Result<i64, QueryError> {
        let input = Box::new(Plan::Scan(Scan::of_table(table)));
        let found = self.times_of(database, &Plan::Last { input, rows: 1 }, budget)?;
        Ok(if found.start_ns > found.end_ns { i64::MIN } else { found.end_ns })
    }

    fn extent_of(&self, database: &str, scan: &Scan, budget: &Budget) -> Result<TimeRange, QueryError> {
        let input = || Box::new(Plan::Scan(scan.clone()));
        let ends = [Plan::Limit { input: input(), rows: 1, skip: 0 }, Plan::Last { input: input(), rows: 1 }];
        let mut extent = TimeRange::EMPTY;
        for plan in ends {
            extent = extent.union(self.times_of(database, &plan, budget)?);
        }
        Ok(extent)
    }

    /// The times of a plan's rows.
    fn times_of(&self, database: &str, plan: &Plan, budget: &Budget) -> Result<TimeRange, QueryError> {
        let held = budget.samples();
        let found = self.session(budget).run(database, plan)?;
        let times: Vec<i64> = found.frames.iter().flat_map(|frame| frame.timestamps_ns.iter().copied()).collect();
        budget.give_back(budget.samples().saturating_sub(held) as usize);
        Ok(TimeRange::from_timestamps(&times))
    }

    /// Windows of a view, computed from its source.
    pub fn computed_view_rows(&self, windows: &ViewWindows<'_>, budget: &Budget) -> Result<Vec<ViewRows>, QueryError> {
        let definition = &windows.view.definition;
        let mut rows = Vec::new();
        let counts = counts_without_zeros(definition);
        // What the cache of bins has is for those who ask again.
        budget.compute_all();
        budget.use_views(ViewUse::Named);
        let tags = self.tags_of(definition, budget)?;
        for part in windows.view.computed(windows.range, &windows.selectors)? {
            let plan = tags.as_ref().map_or_else(|| part.plan.clone(), |tags| grouped_by(&part.plan, tags));
            let outcome = self.session(budget).run(&definition.database, &plan)?;
            for frame in outcome.frames {
                rows.push(ViewRows::from_frame(frame, definition)?);
            }
        }
        for of_labels in &mut rows {
            // What they are made of may lie before them.
            of_labels.move_to_starts(|start_ns| Some(start_ns).filter(|start_ns| windows.range.contains(*start_ns)));
            of_labels.drop_zeros(&counts);
        }
        rows.retain(|of_labels| !of_labels.is_empty());
        Ok(rows)
    }

    /// Windows of a view as they are stored.
    pub fn stored_view_rows(&self, windows: &ViewWindows<'_>, budget: &Budget) -> Result<Vec<ViewRows>, QueryError> {
        let definition = &windows.view.definition;
        budget.use_views(ViewUse::Stored);
        let plan = Plan::Scan(stored_scan(windows));
        let mut rows = Vec::new();
        if self.store.database_number(definition.target_database()).is_some() {
            let outcome = self.session(budget).run(definition.target_database(), &plan)?;
            for frame in outcome.frames {
                let mut of_labels = ViewRows::from_frame(frame, definition)?;
                // Rows that stand elsewhere are others'.
                of_labels.move_to_starts(|time_ns| windows.view.window_of_row(time_ns));
                rows.push(of_labels);
            }
        }
        rows.retain(|of_labels| !of_labels.is_empty());
        Ok(rows)
    }

    /// The tags by which a view groups rows, if it groups by those that there are now.
    fn tags_of(&self, definition: &ViewDefinition, budget: &Budget) -> Result<Option<Vec<String>>, QueryError> {
        if !definition.is_by_all_tags() {
            return Ok(None);
        }
        let schema = self.session(budget).table(&definition.database, definition.source())?;
        let mut tags = schema.map(|schema| schema.tags).unwrap_or_default();
        tags.retain(|tag| definition.is_label(tag));
        Ok(Some(tags))
    }

    /// Deletes stored windows of a view, and writes others: those that are deleted may be among them.
    ///
    /// Nothing happens if the view was dropped.
    pub fn replace_view_rows(&self, view: &View, delete: &ViewDelete, rows: &[ViewRows]) -> Result<(), QueryError> {
        let _writing = self.views.writing.lock();
        if self.views.current(view).is_none() {
            return Ok(());
        }
        if delete.is_empty() {
            return self.write_view_rows(view, rows);
        }
        let ranges: Vec<TimeRange> = delete.windows.iter().map(|(_, range)| *range).collect();
        let range = ranges.iter().fold(TimeRange::EMPTY, |hull, range| hull.union(*range));
        let ViewDefinition { database, target, .. } = &view.definition;
        let told = SourceDelete { database, table: Some(target), range };
        let _told = self.views.followed_deletes.note(&told).map_err(storage)?;
        self.views.rewriting(view, ranges, || {
            // Only of views whose rows are their own, which stand at the beginnings of windows in their own database.
            let ViewDefinition { database, target, .. } = &view.definition;
            for (labels, range) in &delete.windows {
                let matcher = |name: &String| {
                    let value = labels.as_ref().and_then(|labels| labels.get(name)).unwrap_or_default();
                    Matcher::new(name.as_str(), MatchOp::Equal, value)
                };
                let of_labels =
                    labels.as_ref().map(|_| view.definition.labels().iter().map(matcher).collect::<Vec<_>>());
                let compiled = compile(&of_labels.unwrap_or_default())?;
                self.store.delete_rows(database, target, &compiled, range).map_err(storage)?;
            }
            self.write_view_rows(view, rows)
        })
    }
}

/// Windows that are being computed.
pub struct ViewPiece<'a> {
    views: &'a Views,
}

impl Drop for ViewPiece<'_> {
    fn drop(&mut self) {
        let mut state = self.views.state.write();
        state.open_pieces = state.open_pieces.saturating_sub(1);
        state.forget_deletes();
    }
}

/// Stored windows that are to be deleted.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ViewDelete {
    /// Ranges of time of single label sets, or of all.
    pub windows: Vec<(Option<Labels>, TimeRange)>,
}

impl ViewDelete {
    /// Returns whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }
}

/// The columns that are counts and have no zeros: of a continuous query, as InfluxDB writes nothing for a field without values.
fn counts_without_zeros(definition: &ViewDefinition) -> Vec<bool> {
    let calls = definition.grouping().map(|grouping| grouping.aggregates.as_slice()).unwrap_or_default();
    let is_count = |name: &String| calls.iter().any(|call| call.aggregate.is_count() && call.column_name() == *name);
    let column = |(_, of): &(String, Expression)| matches!(of, Expression::Column(name) if is_count(name));
    definition.columns().iter().map(|of| !definition.is_exposed() && column(of)).collect()
}

/// A plan of groups by other labels.
fn grouped_by(plan: &Plan, labels: &[String]) -> Plan {
    let of = |input: &Plan| Box::new(grouped_by(input, labels));
    match plan {
        Plan::GroupBy { input, grouping } => {
            let grouping = Grouping { by: Some(labels.to_vec()), ..grouping.clone() };
            Plan::GroupBy { input: input.clone(), grouping }
        }
        Plan::Where { input, condition } => Plan::Where { input: of(input), condition: condition.clone() },
        Plan::Map { input, columns } => Plan::Map { input: of(input), columns: columns.clone() },
        other => other.clone(),
    }
}

/// The scan of what is stored of windows.
fn stored_scan(windows: &ViewWindows<'_>) -> Scan {
    let definition = &windows.view.definition;
    let end_ns = windows.view.bins.start_of(windows.range.end_ns);
    let times = TimeRange::new(windows.view.row_time(windows.range.start_ns), windows.view.row_time(end_ns));
    let range = if definition.output.is_at_end { times } else { windows.range };
    let fields = definition.fields.iter().map(|(name, _)| name.clone()).collect();
    let table = TableColumns { name: definition.target.clone(), fields, every_row: true };
    Scan { table: Some(table), selectors: windows.selectors.clone(), tokens: Vec::new(), range }
}

impl Db {
    /// Makes a materialised view by the rights of a budget.
    pub fn create_view(&self, definition: ViewDefinition, budget: &Budget) -> Result<(), QueryError> {
        self.session(budget).create_view(definition)
    }

    /// Puts a continuous query or a task in place of one of its name, by the rights of a budget.
    pub fn replace_view(&self, definition: ViewDefinition, budget: &Budget) -> Result<(), QueryError> {
        self.session(budget).replace_view(definition)
    }

    /// Has windows of a view computed, by the rights of a budget.
    pub fn refresh_view(&self, request: &RefreshRequest<'_>, budget: &Budget) -> Result<(), QueryError> {
        self.session(budget).refresh_view(request)
    }

    /// Changes a view's settings by the rights of a budget.
    pub fn set_view_options(
        &self,
        (database, name): (&str, &str),
        options: ViewOptions,
        budget: &Budget,
    ) -> Result<(), QueryError> {
        self.session(budget).set_view_options(database, name, options)
    }

    /// Drops a materialised view by the rights of a budget; returns whether there was one.
    pub fn drop_view(&self, database: &str, name: &str, budget: &Budget) -> Result<bool, QueryError> {
        self.session(budget).drop_view(database, name)
    }
}
