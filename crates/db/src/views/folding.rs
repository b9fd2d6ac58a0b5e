//! Views beside folds of their database.
//!
//! Most views are made of what summaries tell, in windows of whole folds: folding changes nothing of these. For others samples stay until their windows are
//! stored, and these are closed before the samples are folded: rows that come later are refused. The tables of views are not folded, nor is one that a continuous
//! query wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use query::QueryError;
use query::views::{View, ViewCatalog, ViewDefinition, ViewState};
use store::{DatabasePolicy, Store, StoreError};

use super::frozen::{check_age, check_as_of_age, closed_ns_max, freeze_before, frozen_from_ns};
use super::holds::unread_from_ns;
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
        if definition.is_exposed() {
            return Ok(());
        }
        let into = definition.target_database();
        let is_new = self.store.keep_unfolded(into, target);
        // Those that are under way do not know of it.
        self.store.await_merges();
        if is_new && self.store.has_folds(into, target).map_err(storage)? {
            self.store.release_unfolded(into, target);
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
                let foldable_ns = self.store.hold_folds(database, closed_ns_max(&view.definition))?;
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
        self.check_stored(view, frozen_ns).map_err(StoreError::Invalid)?;
        let close = |state: &mut ViewState| state.frozen_ns = state.frozen_ns.max(frozen_ns);
        self.change_locked(view, true, close).map_err(|error| StoreError::Invalid(error.to_string()))
    }

    /// Fails with the reason if windows of a view that begin before a time are not stored as they are to be.
    fn check_stored(&self, view: &View, frozen_ns: i64) -> Result<(), String> {
        let changes = self.changes(&view.definition.database);
        let closed_before_ns = view.first_from(frozen_ns);
        let first_ns = view.first_from(view.state.frozen_ns);
        let lacking = view.state.new_columns.iter().flat_map(|columns| columns.ranges.iter());
        let pending =
            view.state.pending.iter().map(|pending| &pending.range).chain(lacking).map(|range| range.start_ns);
        let others = [view.state.watermark_ns, unread_from_ns(view, changes.as_ref(), first_ns)];
        if pending.chain(others).any(|start_ns| start_ns < closed_before_ns) {
            return Err(format!(
                "the view {:?} has windows to store of samples that are folded, or about to be, which do not tell them then: refresh it, and try \
                 again once it is filled",
                view.definition.name
            ));
        }
        Ok(())
    }

    /// Has the rows of a view that is about to be there, or to be changed, stay as they are, and the samples of its source until its windows are stored. It has
    /// no windows of samples that may be folded by now, where these would be others; those that are stored stay.
    pub(super) fn hold_folds(&self, view: &mut View, known: Option<&View>) -> Result<(), QueryError> {
        let ViewDefinition { database, target, .. } = &view.definition;
        let into = view.definition.target_database();
        if view.definition.is_exposed() {
            self.store.keep_unfolded(into, target);
        } else {
            self.store.keep_unfolded_for_good(into, target).map_err(storage)?;
        }
        if !self.is_changed_by_folds(&view.definition, &self.store.fold_widths_ns(database)) {
            return Ok(());
        }
        let foldable_ns = self.store.hold_folds(database, closed_ns_max(&view.definition)).map_err(storage)?;
        let frozen_ns = frozen_from_ns(&view.definition, None, foldable_ns);
        if let Some(known) = known.filter(|known| frozen_ns > known.state.frozen_ns) {
            self.check_stored(known, frozen_ns).map_err(QueryError::Invalid)?;
        }
        freeze_before(view, frozen_ns);
        Ok(())
    }

    /// Takes rows again that the policy before would have folded by now, and folds by age where no view needs more.
    pub(super) fn after_folds(&self, database: &str) -> Result<(), StoreError> {
        let changed = self.changed_by_folds(database, self.views(database));
        // What is closed stays so, whether it may be folded by now or not yet.
        let foldable_ns = self.store.foldable_before_ns(database).unwrap_or(i64::MIN);
        let closed_ns = changed.iter().map(|view| {
            view.first_from(view.state.frozen_ns).max(foldable_ns.saturating_add(closed_ns_max(&view.definition)))
        });
        self.store.reopen_folds(database, closed_ns.max().unwrap_or(i64::MIN));
        self.release_bound(database)
    }

    /// Has the samples of a database folded by their age if no view of it needs more.
    pub(super) fn release_bound(&self, database: &str) -> Result<(), StoreError> {
        let is_needed =
            !self.changed_by_folds(database, self.views(database)).is_empty() || self.has_unreadable(database);
        if is_needed { Ok(()) } else { self.store.release_folds(database) }
    }

    /// Returns whether a database has a view that cannot be read: what it needs is not known.
    pub(super) fn has_unreadable(&self, database: &str) -> bool {
        self.state.read().unreadable.iter().any(|view| view.database == *database)
    }

    /// Ends what was held for a view that is no more.
    pub(super) fn release_folds(&self, definition: &ViewDefinition) -> Result<(), StoreError> {
        if definition.is_exposed() {
            self.store.release_unfolded(&definition.database, &definition.target);
        }
        self.release_bound(&definition.database)
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
        store.keep_unfolded(definition.target_database(), &definition.target);
        if is_changed_by_folds(state, definition, &store.fold_widths_ns(&definition.database)) {
            let reach_ns = held.entry(definition.database.clone()).or_default();
            *reach_ns = closed_ns_max(definition).max(*reach_ns);
        }
    }
    for view in &state.unreadable {
        held.entry(view.database.clone()).or_default();
        if let Some(target) = &view.target {
            store.keep_unfolded(&view.database, target);
        }
    }
    store.open_fold_bounds(&held);
}
