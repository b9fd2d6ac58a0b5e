//! Views beside folds of their database.
//!
//! Most views are made of what summaries tell, in windows of whole folds: folding changes nothing of these. For others samples stay until their windows are
//! stored, and these are closed before the samples are folded: rows that come later are refused. The tables of views are not folded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use query::QueryError;
use query::views::{View, ViewCatalog, ViewDefinition, ViewState};
use store::{DatabasePolicy, Store, StoreError};

use super::frozen::{check_age, check_as_of_age, freeze_before, frozen_from_ns, known_reach_ns};
use super::{State, Views, storage};

impl Views {
    /// Returns whether a view has other windows where its source's samples are folded to some widths, in nanoseconds.
    fn is_changed_by_folds(&self, definition: &ViewDefinition, widths_ns: &BTreeSet<i64>) -> bool {
        is_changed_by_folds(&self.state.read(), definition, widths_ns)
    }

    /// Those of some views of a database that folds change.
    pub(super) fn changed_by_folds(&self, database: &str, mut views: Vec<Arc<View>>) -> Vec<Arc<View>> {
        let widths_ns = self.store.fold_widths_ns(database);
        let state = self.state.read();
        views.retain(|view| is_changed_by_folds(&state, &view.definition, &widths_ns));
        views
    }

    /// Refuses a view whose samples its database would fold before its windows are stored.
    pub(super) fn check_folds(&self, definition: &ViewDefinition, policy: &DatabasePolicy) -> Result<(), QueryError> {
        let (database, target) = (&definition.database, &definition.target);
        let mut widths_ns = self.store.fold_widths_ns(database);
        widths_ns.extend(policy.folds.iter().map(|(_, width_ns)| *width_ns));
        let age_ns = policy.folds.first().map_or(0, |(age_ns, _)| *age_ns);
        if self.is_changed_by_folds(definition, &widths_ns) {
            let keeper = format!("the database {database:?} would keep samples as they are");
            check_as_of_age(definition, None, (&keeper, age_ns)).map_err(QueryError::Invalid)?;
            check_age(definition, &keeper, age_ns, definition.age_ns_max()).map_err(QueryError::Invalid)?;
        }
        if !definition.is_exposed() && self.store.has_folds(definition.target_database(), target).map_err(storage)? {
            return Err(QueryError::Invalid(format!(
                "rows of {target:?} are folded already, and a row that is written again would not replace what they became: write {:?} into another \
                 table",
                definition.name
            )));
        }
        Ok(())
    }

    /// Has the samples of a database wait for its views, before it folds them by a policy.
    pub(super) fn before_folds(
        &self,
        views: &[Arc<View>],
        (database, policy): (&str, &DatabasePolicy),
    ) -> Result<(), StoreError> {
        for view in views.iter().filter(|view| view.definition.database == database) {
            self.check_folds(&view.definition, policy).map_err(|error| StoreError::Invalid(error.to_string()))?;
            let widths_ns = policy.folds.iter().map(|(_, width_ns)| *width_ns).collect();
            if self.is_changed_by_folds(&view.definition, &widths_ns) {
                let foldable_ns = self.store.hold_folds(database, known_reach_ns(&view.definition))?;
                self.close_folded(view, frozen_from_ns(&view.definition, None, foldable_ns))?;
            }
        }
        Ok(())
    }

    /// Closes the windows of a view that begin before a time, whose samples are folded and are now to be folded to what does not tell them.
    fn close_folded(&self, view: &View, frozen_ns: i64) -> Result<(), StoreError> {
        if frozen_ns <= view.state.frozen_ns {
            return Ok(());
        }
        let lacking = view.state.new_columns.iter().flat_map(|columns| columns.ranges.iter());
        let pending = view.state.pending.iter().map(|pending| &pending.range).chain(lacking);
        let closed_before_ns = view.first_from(frozen_ns);
        if pending.into_iter().any(|range| range.start_ns < closed_before_ns) {
            return Err(StoreError::Invalid(format!(
                "the view {:?} has windows to store of samples that would be folded to widths which do not tell them: wait until it is filled",
                view.definition.name
            )));
        }
        let close = |state: &mut ViewState| state.frozen_ns = state.frozen_ns.max(frozen_ns);
        self.change_locked(view, true, close).map_err(|error| StoreError::Invalid(error.to_string()))
    }

    /// Has the rows of a view that is about to be there stay as they are, and the samples of its source until its windows are stored. It has no windows of
    /// samples that may be folded by now, where these would be others.
    pub(super) fn hold_folds(&self, view: &mut View) -> Result<(), QueryError> {
        let ViewDefinition { database, target, .. } = &view.definition;
        self.store.keep_unfolded(view.definition.target_database(), target).map_err(storage)?;
        if !self.is_changed_by_folds(&view.definition, &self.store.fold_widths_ns(database)) {
            return Ok(());
        }
        let foldable_ns = self.store.hold_folds(database, known_reach_ns(&view.definition)).map_err(storage)?;
        let frozen_ns = frozen_from_ns(&view.definition, None, foldable_ns);
        freeze_before(view, frozen_ns);
        Ok(())
    }

    /// Ends what was held for a view that is no more.
    pub(super) fn release_folds(&self, definition: &ViewDefinition) -> Result<(), StoreError> {
        let into = definition.target_database();
        let is_target =
            |view: &Arc<View>| view.definition.target == definition.target && view.definition.target_database() == into;
        if !self.all().iter().any(is_target) {
            self.store.release_unfolded(into, &definition.target);
        }
        let database = &definition.database;
        let is_needed = !self.changed_by_folds(database, self.views(database)).is_empty()
            || self.state.read().unreadable.iter().any(|view| view.database == *database);
        if is_needed { Ok(()) } else { self.store.release_folds(database) }
    }
}

fn is_changed_by_folds(state: &State, definition: &ViewDefinition, widths_ns: &BTreeSet<i64>) -> bool {
    // Tables of views are not folded.
    let source = (definition.database.clone(), definition.source().to_owned());
    let is_of_view = state.targets.contains_key(&source) && definition.as_ofs().next().is_none();
    !is_of_view && !definition.is_told_by_folds(widths_ns.iter().copied())
}

/// Takes up what of a folder that is opened is not folded, or not yet.
pub(super) fn open(store: &Store, state: &State) {
    let mut held: BTreeMap<String, i64> = BTreeMap::new();
    for view in state.views.values() {
        let definition = &view.definition;
        // A database that cannot be made has no rows either.
        let _ = store.keep_unfolded(definition.target_database(), &definition.target);
        if is_changed_by_folds(state, definition, &store.fold_widths_ns(&definition.database)) {
            let reach_ns = held.entry(definition.database.clone()).or_default();
            *reach_ns = known_reach_ns(definition).max(*reach_ns);
        }
    }
    for view in &state.unreadable {
        held.entry(view.database.clone()).or_default();
        if let Some(target) = &view.target {
            let _ = store.keep_unfolded(&view.database, target);
        }
    }
    store.open_fold_bounds(&held);
}
