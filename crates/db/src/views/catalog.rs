//! What queries and statements see of views.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::TimeRange;
use query::QueryError;
use query::views::{
    DeleteHold, PendingRange, RefreshRequest, SourceDelete, View, ViewCatalog, ViewChanges, ViewDefinition,
    ViewOptions, ViewState, ViewStatus,
};
use store::{ChangeKind, StoreError};

use super::{ActiveDelete, KIND, STATE_KIND, VIEWS_MAX, Views, document_name, storage};

/// Windows of views as they are held while a delete is under way.
struct Hold<'a> {
    views: &'a Views,
    number: u64,
}

impl DeleteHold for Hold<'_> {}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.views.state.write().active_deletes.retain(|held| held.number != self.number);
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
        let ViewDefinition { database, .. } = &view.definition;
        let of_database = self.store.database_number(database).map(|number| self.store.oldest_retained_ns(number));
        let ttl_ns = self.store.table_ttl_ns(database, view.definition.source());
        let of_table = (ttl_ns > 0).then(|| self.clock.now_ns().saturating_sub(ttl_ns));
        of_database.into_iter().chain(of_table).max().unwrap_or(i64::MIN)
    }

    fn rewrites(&self) -> u64 {
        self.rewrites.load(Ordering::Acquire)
    }

    fn create(&self, definition: ViewDefinition) -> Result<(), QueryError> {
        let _changing = self.changing.lock();
        let ViewDefinition { database, name, target, .. } = &definition;
        let is_target = |view: &Arc<View>| view.definition.target == *target;
        if self.find(database, name).is_some() || self.views(database).iter().any(is_target) && definition.is_exposed()
        {
            return Err(QueryError::Invalid(format!("relation {name:?} already exists")));
        }
        if self.state.read().views.len() >= VIEWS_MAX {
            return Err(QueryError::Invalid(format!("there are {VIEWS_MAX} views already: drop some")));
        }
        let bins = definition.windows.bins()?;
        let mut view = View { definition, bins, state: ViewState::default() };
        // What was there before is computed in the background, newest first; not by a continuous query, whose target may hold other rows.
        view.state.watermark_ns = self.newest_window(&view);
        if view.definition.is_exposed() {
            view.state.add(PendingRange { range: TimeRange::ALL, is_fill: true });
        }
        let document = document_name(&view.definition.database, &view.definition.name);
        // The state first: a definition without one counts as computed nowhere.
        let state = super::document::encode_state(&view.state);
        self.store.put_document(STATE_KIND, &document, &state).map_err(storage)?;
        self.put_definition(&view.definition)?;
        self.state.write().insert(view);
        Ok(())
    }

    fn remove(&self, database: &str, name: &str) -> Result<bool, QueryError> {
        let _changing = self.changing.lock();
        let Some(view) = self.find(database, name) else { return Ok(false) };
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
        self.state.write().remove(&view);
        if is_exposed {
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
        self.change_state((request.database, request.name), true, |state| {
            let moved = TimeRange::new(state.watermark_ns, newest_ns.saturating_sub(1));
            if moved.start_ns <= moved.end_ns {
                state.watermark_ns = newest_ns;
                state.add(PendingRange { range: moved, is_fill: true });
            }
            if request.is_forced {
                state.add(PendingRange { range: whole, is_fill: false });
            }
        })?;
        self.note(request.database, request.name, |status| status.is_requested = true);
        Ok(())
    }

    fn before_delete(&self, delete: &SourceDelete<'_>) -> Result<Option<Box<dyn DeleteHold + '_>>, QueryError> {
        let views: Vec<Arc<View>> =
            self.views(delete.database).into_iter().filter(|view| self.reads(view, delete.table)).collect();
        if views.is_empty() {
            return Ok(None);
        }
        let number = {
            let mut state = self.state.write();
            state.next_hold += 1;
            let number = state.next_hold;
            for view in &views {
                let key = (view.definition.database.clone(), view.definition.name.clone());
                state.active_deletes.push(ActiveDelete { number, view: key, range: view.windows_of(&delete.range) });
            }
            number
        };
        let hold = Hold { views: self, number };
        for view in &views {
            self.add_pending(view, PendingRange { range: delete.range, is_fill: false })?;
        }
        Ok(Some(Box::new(hold)))
    }
}

/// The last time of the last window that ends before a time.
fn whole_end(view: &View, end_ns: i64) -> i64 {
    if end_ns == i64::MAX { i64::MAX } else { view.bins.start_of(end_ns).saturating_sub(1) }
}

impl Views {
    /// Returns whether a view reads a table, itself or by way of other views; `None` stands for any table.
    fn reads(&self, view: &View, table: Option<&str>) -> bool {
        let Some(table) = table else { return true };
        self.root(view) == table || view.definition.source() == table
    }

    /// The table whose rows a view is made of in the end.
    fn root(&self, view: &View) -> String {
        let mut source = view.definition.source().to_owned();
        while let Some(below) = self.view_of_table(&view.definition.database, &source) {
            below.definition.source().clone_into(&mut source);
        }
        source
    }
}

impl Views {
    /// Forgets the views of a database, whose tables are gone.
    pub(crate) fn forget(&self, database: &str) -> Result<(), StoreError> {
        let _changing = self.changing.lock();
        for view in self.views(database) {
            let document = document_name(database, &view.definition.name);
            self.store.remove_document(KIND, &document)?;
            self.store.remove_document(STATE_KIND, &document)?;
            self.state.write().remove(&view);
        }
        Ok(())
    }
}
