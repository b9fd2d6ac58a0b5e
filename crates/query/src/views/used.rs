//! The views that a plan was expanded with, and whether what it read of them is of one piece.

use super::stale::DEPTH_MAX;
use super::{View, ViewCatalog};

/// A view as it was before its state was looked at for a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UsedView {
    name: String,
    target: String,
    id: u64,
    rewrites: u64,
    gone_before_ns: i64,
    /// True if the plan names it; else it answers for its table.
    is_named: bool,
}

/// What became of a view while a plan was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UseOutcome {
    /// All that was read of it is there, and of one time.
    Whole,
    /// Windows were deleted to be written again, or went: the plan is to be run again.
    Changed,
    /// It was dropped, and the plan names it.
    Dropped,
}

impl UsedView {
    /// A view that is about to be used; its state is to be looked at after this.
    pub(super) fn new(catalog: &dyn ViewCatalog, view: &View, is_named: bool) -> Self {
        let definition = &view.definition;
        let target = definition.target.clone();
        let rewrites = catalog.rewrites(&definition.database, &target);
        let gone_before_ns = gone_before_ns(catalog, &definition.database, &target);
        Self { name: definition.name.clone(), target, id: view.id, rewrites, gone_before_ns, is_named }
    }

    /// Returns whether the plan names it.
    pub(crate) const fn is_named(&self) -> bool {
        self.is_named
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What became of it, given the first time that is read.
    pub(crate) fn outcome(&self, catalog: &dyn ViewCatalog, database: &str, first_ns: i64) -> UseOutcome {
        let is_there = catalog.view_of_table(database, &self.target).is_some_and(|view| view.id == self.id);
        if !is_there {
            return if self.is_named { UseOutcome::Dropped } else { UseOutcome::Changed };
        }
        let gone_ns = gone_before_ns(catalog, database, &self.target);
        let is_kept = gone_ns == self.gone_before_ns || first_ns >= gone_ns;
        if is_kept && catalog.rewrites(database, &self.target) == self.rewrites {
            UseOutcome::Whole
        } else {
            UseOutcome::Changed
        }
    }
}

/// The time before which the source went of windows of the view that a scan of a table reads, or of one of those below it, or these windows themselves.
fn gone_before_ns(catalog: &dyn ViewCatalog, database: &str, table: &str) -> i64 {
    let (mut gone_ns, mut table) = (i64::MIN, table.to_owned());
    for _ in 0..=DEPTH_MAX {
        let Some(view) = catalog.view_of_table(database, &table) else { break };
        gone_ns = gone_ns.max(view.state.frozen_ns).max(view.state.expired_ns);
        view.definition.source().clone_into(&mut table);
    }
    gone_ns
}
