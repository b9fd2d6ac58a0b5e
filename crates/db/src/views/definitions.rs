//! Changes of definitions: views that are made, replaced, get columns, or are taken into a continuous query.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::TimeRange;
use query::QueryError;
use query::views::{PendingRange, View, ViewDefinition, ViewState};

use super::frozen::expired_before_ns;
use super::{KIND, STATE_KIND, VIEWS_MAX, Views, chain, document, document_name, storage};

/// Up to when the windows count as stored that a view has when it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beginning {
    /// Those of before are computed of a view whose table is its own: the target of a continuous query may hold other rows.
    ByTable,
    /// Those of before are computed: all rows of the source came after the continuous query was made.
    OfAllRows,
}

impl Views {
    /// Adds views: all of them, or none.
    pub(super) fn create_all(&self, definitions: Vec<ViewDefinition>) -> Result<(), QueryError> {
        let _changing = self.changing.lock();
        let mut others = self.all();
        let mut views: Vec<View> = Vec::with_capacity(definitions.len());
        for definition in definitions {
            match self.prepared(definition, &others, Beginning::ByTable) {
                Ok(view) => {
                    others.push(Arc::new(view.clone()));
                    views.push(view);
                }
                Err(error) => {
                    // Where this fails folding waits for nothing until the next start.
                    views.iter().for_each(|view| drop(self.release_folds(&view.definition)));
                    return Err(error);
                }
            }
        }
        self.install(views)
    }

    /// Takes a measurement into a continuous query, or columns of one that it has, as long as one of its views is the one that it was.
    pub(super) fn extend_query(&self, of: &View, definition: ViewDefinition) -> Result<bool, QueryError> {
        // As of every change of columns: what is being computed is written as it is.
        let _writing = self.writing.lock();
        let _changing = self.changing.lock();
        // Of a query that was dropped nothing comes back.
        if self.current(of).is_none() {
            let message =
                format!("{:?} was dropped or replaced meanwhile: send the statement again", of.definition.name);
            return Err(QueryError::Invalid(message));
        }
        let Some(known) = self.find(&definition.database, &definition.name) else {
            let view = self.prepared(definition, &self.all(), Beginning::OfAllRows)?;
            self.install(vec![view])?;
            return Ok(true);
        };
        if known.definition.dialect != definition.dialect || known.definition.statement != definition.statement {
            return Err(QueryError::Invalid(format!("relation {:?} already exists", definition.name)));
        }
        if !known.definition.lacks_columns_of(&definition) {
            return Ok(false);
        }
        match known.definition.widened(&definition) {
            Ok((_, names)) if !names.is_empty() => self.widen_locked(&known, &definition)?,
            // Its labels, its condition or the type of a column are others.
            _ => self.replace_locked(&known, definition)?,
        }
        Ok(true)
    }

    /// A view that may be there beside others; nothing of it is stored yet. `changing` is held until it is.
    fn prepared(
        &self,
        definition: ViewDefinition,
        others: &[Arc<View>],
        beginning: Beginning,
    ) -> Result<View, QueryError> {
        let ViewDefinition { database, name, .. } = &definition;
        if self.find(database, name).is_some() || self.find_query(database, name).is_some() {
            return Err(QueryError::Invalid(format!("relation {name:?} already exists")));
        }
        self.refuse_unreadable(database, name)?;
        document::check(&definition)
            .map_err(|reason| QueryError::Invalid(format!("the view {name:?} cannot be stored: {reason}")))?;
        chain::check(&definition, others)?;
        self.check_kept(&definition)?;
        if others.len() >= VIEWS_MAX {
            return Err(QueryError::Invalid(format!("there are {VIEWS_MAX} views already: drop some")));
        }
        let bins = definition.windows.bins()?;
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let mut view = View { id, definition, bins, state: ViewState::default() };
        // What was there before is computed in the background, newest first.
        view.state.watermark_ns = self.newest_window(&view);
        // From here on rows go by whole windows: what is there of a window is all of it.
        self.store.keep_windows(&view.definition.database).map_err(storage)?;
        view.state.frozen_ns = self.gone_before_ns(&view).max(expired_before_ns(&self.store, &view.definition));
        self.hold_folds(&mut view, None)?;
        if view.definition.is_exposed() || beginning == Beginning::OfAllRows {
            let range = TimeRange { start_ns: view.first_from(view.state.frozen_ns), ..TimeRange::ALL };
            view.state.add(PendingRange { range, is_fill: true });
        }
        Ok(view)
    }

    /// Stores views that are prepared, in one step.
    fn install(&self, views: Vec<View>) -> Result<(), QueryError> {
        let documents = |encoded: &dyn Fn(&View) -> Vec<u8>| -> BTreeMap<String, Option<Arc<[u8]>>> {
            let document = |view: &View| {
                let name = document_name(&view.definition.database, &view.definition.name);
                (name, Some(encoded(view).into()))
            };
            views.iter().map(document).collect()
        };
        // The states first: a definition without one counts as computed nowhere.
        let states = documents(&|view| document::encode_state(&view.state));
        self.store.change_documents(STATE_KIND, &states).map_err(storage)?;
        let definitions = documents(&|view| document::encode(&view.definition));
        self.store.change_documents(KIND, &definitions).map_err(storage)?;
        for view in &views {
            super::reserve(&self.store, &view.definition).map_err(storage)?;
        }
        let mut state = self.state.write();
        views.into_iter().for_each(|view| state.insert(view));
        Ok(())
    }

    /// Puts a continuous query or a task in place of one, while `writing` and `changing` are held.
    pub(super) fn replace_locked(&self, known: &Arc<View>, definition: ViewDefinition) -> Result<(), QueryError> {
        let name = &definition.name;
        if known.definition.is_exposed() || definition.is_exposed() {
            return Err(QueryError::Invalid(format!(
                "the windows of the view {name:?} are its own: drop it and make it again"
            )));
        }
        document::check(&definition)
            .map_err(|reason| QueryError::Invalid(format!("the view {name:?} cannot be stored: {reason}")))?;
        let mut others = self.all();
        others.retain(|other| other.id != known.id);
        chain::check(&definition, &others)?;
        self.check_kept(&definition)?;
        let bins = definition.windows.bins()?;
        let mut view =
            View { id: self.ids.fetch_add(1, Ordering::Relaxed), definition, bins, state: known.state.clone() };
        view.state.frozen_ns = view.state.frozen_ns.max(expired_before_ns(&self.store, &view.definition));
        // The window that is under way is whole by the new definition; what was pending is computed by it.
        if view.state.watermark_ns != i64::MIN {
            view.state.watermark_ns = view.bins.start_of(view.state.watermark_ns);
        }
        let pending = std::mem::take(&mut view.state.pending);
        for PendingRange { range, is_fill } in pending {
            let range = view.windows_of(&range);
            view.state.add(PendingRange { range, is_fill });
        }
        self.hold_folds(&mut view, Some(known))?;
        let document = document_name(&view.definition.database, &view.definition.name);
        self.store.put_document(STATE_KIND, &document, &document::encode_state(&view.state)).map_err(storage)?;
        self.put_definition(&view.definition)?;
        self.state.write().insert(view);
        self.release_folds(&known.definition).map_err(storage)
    }

    /// Gives a view the columns that a definition has besides, while `writing` and `changing` are held.
    pub(super) fn widen_locked(&self, known: &Arc<View>, definition: &ViewDefinition) -> Result<(), QueryError> {
        let (widened, names) = known.definition.widened(definition)?;
        document::check(&widened).map_err(|reason| {
            QueryError::Invalid(format!("the view {:?} with the column cannot be stored: {reason}", definition.name))
        })?;
        self.check_kept(&widened)?;
        let mut view = View::clone(known);
        // Of what is gone the windows lack rows that reach further back.
        let reach_ns = widened.reach_ns().saturating_sub(view.definition.reach_ns());
        if view.state.frozen_ns > i64::MIN {
            view.state.frozen_ns = view.state.frozen_ns.saturating_add(reach_ns);
        }
        view.definition = widened;
        view.state.add_columns(names);
        self.hold_folds(&mut view, Some(known))?;
        let document = document_name(&view.definition.database, &view.definition.name);
        // The state first: columns that it does not tell count as computed.
        self.store.put_document(STATE_KIND, &document, &document::encode_state(&view.state)).map_err(storage)?;
        self.put_definition(&view.definition)?;
        self.note_rewrite(&view);
        self.state.write().insert(view);
        Ok(())
    }
}
