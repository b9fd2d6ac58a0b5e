//! What queries and statements see of views.

use std::sync::Arc;

use model::TimeRange;
use query::views::{
    DEPTH_MAX, DeleteHold, PendingRange, RefreshRequest, SourceDelete, StoredQuery, View, ViewCatalog, ViewChanges,
    ViewDefinition, ViewOptions, ViewStatus,
};
use query::{Budget, QueryError};
use store::{ChangeKind, DatabasePolicy, StoreError};

use super::followed_deletes::ActiveFollowedDelete;
use super::{ActiveDelete, KIND, STATE_KIND, UnreadableView, Views, document_name, storage};

/// Windows of views as they are held while a delete is under way.
struct Hold<'a> {
    views: &'a Views,
    /// Its number, if views read what is deleted.
    number: Option<u64>,
    _told: Option<ActiveFollowedDelete<'a>>,
}

impl DeleteHold for Hold<'_> {}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.views.state.write().end_delete(number);
        }
    }
}

impl ViewCatalog for Views {
    fn view(&self, database: &str, name: &str) -> Option<Arc<View>> {
        self.find(database, name)
    }

    fn view_of_table(&self, database: &str, table: &str) -> Option<Arc<View>> {
        let state = self.state.read();
        if state.targets.is_empty() {
            return None;
        }
        let name = state.targets.get(&(database.to_owned(), table.to_owned()))?;
        state.views.get(&(database.to_owned(), name.clone())).cloned()
    }

    fn views(&self, database: &str) -> Vec<Arc<View>> {
        let state = self.state.read();
        let from = (database.to_owned(), String::new());
        let of_database = state.views.range(from..).take_while(|((of, _), _)| of == database);
        of_database.map(|(_, view)| view.clone()).collect()
    }

    fn stored_query(&self, database: &str, name: &str) -> Option<Arc<StoredQuery>> {
        self.find_query(database, name)
    }

    fn stored_query_of_any_case(&self, database: &str, name: &str) -> Option<Arc<StoredQuery>> {
        self.find_query_of_any_case(database, name)
    }

    fn stored_queries(&self, database: &str) -> Vec<Arc<StoredQuery>> {
        self.queries_of(database)
    }

    fn put_stored_query(&self, query: StoredQuery, replaces: bool) -> Result<(), QueryError> {
        self.put_query(query, replaces)
    }

    fn remove_stored_query(&self, database: &str, name: &str) -> Result<bool, QueryError> {
        self.remove_query(database, name)
    }

    fn unreadable(&self, database: &str, name: &str) -> Option<String> {
        self.find_unreadable(database, name).map(|found| found.reason)
    }

    fn status(&self, database: &str, name: &str) -> ViewStatus {
        self.state.read().statuses.get(&(database.to_owned(), name.to_owned())).cloned().unwrap_or_default()
    }

    fn changes(&self, database: &str) -> Option<ViewChanges> {
        let number = *self.state.read().right_until.get(database)?;
        let changes = self.store.journal().since(number).ok()?;
        // Of what was deleted pending ranges tell; retention and folding leave views as they are.
        let late = changes.behind.iter().filter(|change| change.kind == ChangeKind::LateRows);
        Some(ViewChanges { edge_ns: changes.edge_ns, late: late.map(|change| change.range).collect() })
    }

    fn frozen_before_ns(&self, view: &View) -> i64 {
        self.gone_before_ns(view)
    }

    fn rewrites(&self, database: &str, table: &str) -> u64 {
        let (mut count, mut table) = (0, table.to_owned());
        for _ in 0..=DEPTH_MAX {
            let Some(view) = self.view_of_table(database, &table) else { break };
            let key = (database.to_owned(), view.definition.name.clone());
            count += self.state.read().rewrites.get(&key).copied().unwrap_or_default();
            view.definition.source().clone_into(&mut table);
        }
        count
    }

    fn rewritten(&self, view: &View) -> Vec<TimeRange> {
        let state = self.state.read();
        if state.rewritten.is_empty() {
            return Vec::new();
        }
        let key = (view.definition.database.clone(), view.definition.name.clone());
        state.rewritten.get(&key).cloned().unwrap_or_default()
    }

    fn set_policy(&self, database: &str, policy: &DatabasePolicy) -> Result<(), QueryError> {
        self.change_policy(database, policy).map_err(storage)
    }

    fn before_ttl(&self, database: &str, table: &str, ttl_ns: i64) -> Result<(), QueryError> {
        self.check_new_ttl(database, table, ttl_ns)
    }

    fn create(&self, definitions: Vec<ViewDefinition>) -> Result<(), QueryError> {
        self.create_all(definitions)
    }

    fn extend(&self, of: &View, definition: ViewDefinition) -> Result<bool, QueryError> {
        self.extend_query(of, definition)
    }

    fn replace(&self, definition: ViewDefinition) -> Result<(), QueryError> {
        // What is being computed by the definition before is not written any more.
        let _writing = self.writing.lock();
        let _changing = self.changing.lock();
        let known = self.existing(&definition.database, &definition.name)?;
        self.replace_locked(&known, definition)
    }

    fn add_columns(&self, definition: ViewDefinition) -> Result<(), QueryError> {
        // What is being computed by the definition before is written as it is, and not taken for windows with the new columns.
        let _writing = self.writing.lock();
        let _changing = self.changing.lock();
        let known = self.existing(&definition.database, &definition.name)?;
        if !known.definition.is_exposed() {
            return Err(QueryError::Invalid(format!(
                "{:?} is no materialised view: change its statement",
                definition.name
            )));
        }
        self.widen_locked(&known, &definition)
    }

    fn remove(&self, database: &str, name: &str) -> Result<bool, QueryError> {
        let _writing = self.writing.lock();
        let _changing = self.changing.lock();
        let Some(view) = self.find(database, name) else { return self.remove_unreadable(database, name) };
        let is_exposed = view.definition.is_exposed();
        let views = self.views(database);
        let reader = views.iter().find(|other| is_exposed && other.definition.source() == view.definition.target);
        if let Some(reader) = reader {
            let reader = &reader.definition.name;
            return Err(QueryError::Invalid(format!("the view {reader:?} reads the view {name:?}: drop it first")));
        }
        let document = document_name(database, name);
        self.store.remove_document(KIND, &document).map_err(storage)?;
        self.store.remove_document(STATE_KIND, &document).map_err(storage)?;
        self.forget_state(&view);
        self.holds.lock().forget(view.id);
        self.release_windows(database)?;
        self.release_folds(&view.definition).map_err(storage)?;
        if is_exposed {
            let target = &view.definition.target;
            let told = SourceDelete { database, table: Some(target), range: TimeRange::ALL };
            let _told = self.followed_deletes.note(&told).map_err(storage)?;
            self.store.release_table(database, target);
            self.store.drop_table(database, &view.definition.target).map_err(storage)?;
        }
        Ok(true)
    }

    fn remove_all(&self, database: &str) -> Result<(), QueryError> {
        self.forget(database).map_err(storage)
    }

    fn set_options(&self, database: &str, name: &str, options: ViewOptions) -> Result<(), QueryError> {
        let _changing = self.changing.lock();
        let view = self.existing(database, name)?;
        let mut changed = View::clone(&view);
        changed.definition.options = options;
        self.check_kept(&changed.definition)?;
        self.put_definition(&changed.definition)?;
        self.state.write().insert(changed);
        Ok(())
    }

    fn request_refresh(&self, request: &RefreshRequest<'_>) -> Result<(), QueryError> {
        let view = self.existing(request.database, request.name)?;
        let TimeRange { start_ns, end_ns } = request.range;
        // Of a window that is only a part of the range nothing is computed, as in other databases.
        let whole = TimeRange { start_ns: view.first_from(start_ns), end_ns: whole_end(&view, end_ns) };
        if whole.start_ns > whole.end_ns {
            return Err(QueryError::Invalid(format!(
                "the range to refresh holds no whole window of the view {:?}",
                request.name
            )));
        }
        let newest_ns = self.newest_window(&view);
        let kept_from_ns = super::frozen::own_expired_before_ns(&self.store, &view.definition);
        self.change_state(&view, true, |state| {
            let moved = TimeRange::new(state.watermark_ns, newest_ns.saturating_sub(1));
            if moved.start_ns <= moved.end_ns {
                state.watermark_ns = newest_ns;
                state.add(PendingRange { range: moved, is_fill: true });
            }
            if request.is_forced {
                // What its TTL took before it was longer is computed, too.
                state.expired_ns = kept_from_ns;
                state.add(PendingRange { range: whole, is_fill: false });
            }
        })?;
        self.ask(&view);
        Ok(())
    }

    fn wait_for_refresh(&self, request: &RefreshRequest<'_>, budget: &Budget) -> Result<bool, QueryError> {
        self.wait_for(request, budget)
    }

    fn before_delete(&self, delete: &SourceDelete<'_>) -> Result<Option<Box<dyn DeleteHold + '_>>, QueryError> {
        let told = self.followed_deletes.note(delete).map_err(storage)?;
        let views: Vec<Arc<View>> =
            self.views(delete.database).into_iter().filter(|view| self.reads(view, delete.table)).collect();
        if views.is_empty() {
            let hold = told.map(|told| Hold { views: self, number: None, _told: Some(told) });
            return Ok(hold.map(|hold| Box::new(hold) as Box<dyn DeleteHold + '_>));
        }
        let ranges: Vec<TimeRange> = views.iter().map(|view| self.windows_above(view, delete, 0)).collect();
        let number = {
            let mut state = self.state.write();
            state.next_hold += 1;
            let number = state.next_hold;
            for (view, range) in views.iter().zip(&ranges) {
                let key = (view.definition.database.clone(), view.definition.name.clone());
                state.active_deletes.push(ActiveDelete { number, view: key, range: *range, is_over: false });
            }
            number
        };
        let hold = Hold { views: self, number: Some(number), _told: told };
        for (view, range) in views.iter().zip(&ranges) {
            self.add_pending(view, PendingRange { range: *range, is_fill: false })?;
        }
        Ok(Some(Box::new(hold)))
    }
}

/// The last time of the last window that ends before a time.
fn whole_end(view: &View, end_ns: i64) -> i64 {
    if end_ns == i64::MAX { i64::MAX } else { view.bins.start_of(end_ns).saturating_sub(1) }
}

impl Views {
    /// The views of all databases.
    pub(super) fn all(&self) -> Vec<Arc<View>> {
        self.state.read().views.values().cloned().collect()
    }

    /// Returns whether a view reads a table, itself or by way of other views; `None` stands for any table.
    fn reads(&self, view: &View, table: Option<&str>) -> bool {
        let Some(table) = table else { return true };
        let (database, mut source) = (&view.definition.database, view.definition.source().to_owned());
        let mut is_read = source == table || view.definition.has_as_of(table);
        for _ in 0..DEPTH_MAX {
            let Some(below) = self.view_of_table(database, &source) else { break };
            below.definition.source().clone_into(&mut source);
            is_read |= source == table || below.definition.has_as_of(table);
        }
        is_read
    }

    /// The range of a view's windows that a delete changes, by way of the views below.
    fn windows_above(&self, view: &View, delete: &SourceDelete<'_>, depth: usize) -> TimeRange {
        let below = self.view_of_table(&view.definition.database, view.definition.source());
        let range = match below {
            Some(below) if depth < DEPTH_MAX => self.windows_above(&below, delete, depth + 1),
            _ => delete.range,
        };
        view.windows_as_of(delete.table, &range)
    }
}

impl Views {
    /// Forgets the views of a database, whose tables are about to be dropped: nothing is written for them from then on.
    pub(crate) fn forget(&self, database: &str) -> Result<(), StoreError> {
        let _writing = self.writing.lock();
        let _changing = self.changing.lock();
        for view in self.views(database) {
            let document = document_name(database, &view.definition.name);
            self.store.remove_document(KIND, &document)?;
            self.store.remove_document(STATE_KIND, &document)?;
            self.store.release_table(database, &view.definition.target);
            self.forget_state(&view);
            self.holds.lock().forget(view.id);
            self.release_folds(&view.definition)?;
        }
        self.store.release_windows(database)?;
        self.forget_queries(database)?;
        let mut unreadable = self.state.read().unreadable.clone();
        unreadable.retain(|view| view.database == database);
        unreadable.iter().try_for_each(|view| self.forget_unreadable(view))
    }
}

impl Views {
    /// Refuses the name of a view that cannot be read for another one.
    pub(super) fn refuse_unreadable(&self, database: &str, name: &str) -> Result<(), QueryError> {
        match self.find_unreadable(database, name) {
            None => Ok(()),
            Some(UnreadableView { reason, .. }) => Err(QueryError::Invalid(format!(
                "{name:?} is a view whose definition cannot be read ({reason}): drop it first"
            ))),
        }
    }

    pub(super) fn find_unreadable(&self, database: &str, name: &str) -> Option<UnreadableView> {
        let state = self.state.read();
        state.unreadable.iter().find(|view| view.database == database && view.name == name).cloned()
    }

    /// Forgets a view that is dropped.
    fn forget_state(&self, view: &View) {
        let mut state = self.state.write();
        state.remove(view);
        self.note_failing(&mut state, &(view.definition.database.clone(), view.definition.name.clone()));
    }

    /// Removes the documents of a view that cannot be read.
    fn forget_unreadable(&self, view: &UnreadableView) -> Result<(), StoreError> {
        let document = document_name(&view.database, &view.name);
        self.store.remove_document(view.kind, &document)?;
        if view.kind == KIND {
            self.store.remove_document(STATE_KIND, &document)?;
        }
        if let Some(target) = &view.target {
            self.store.release_table(&view.database, target);
            self.store.release_unfolded(&view.database, target);
        }
        let mut state = self.state.write();
        state.unreadable.retain(|known| known != view);
        self.note_all_failing(&state);
        Ok(())
    }

    /// Has the rows of a database go by their age again if it has no views any more.
    fn release_windows(&self, database: &str) -> Result<(), QueryError> {
        let has_views = self.state.read().databases().contains(database);
        if has_views { Ok(()) } else { self.store.release_windows(database).map_err(storage) }
    }

    /// Removes a view that cannot be read with its windows; returns whether there was one.
    pub(super) fn remove_unreadable(&self, database: &str, name: &str) -> Result<bool, QueryError> {
        let Some(view) = self.find_unreadable(database, name) else { return Ok(false) };
        self.forget_unreadable(&view).map_err(storage)?;
        self.release_windows(database)?;
        self.release_bound(database).map_err(storage)?;
        if let Some(target) = view.target.filter(|_| view.kind == KIND) {
            self.store.drop_table(database, &target).map_err(storage)?;
        }
        Ok(true)
    }
}
