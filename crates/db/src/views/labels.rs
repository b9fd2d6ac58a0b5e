//! What the tables say that views join: when it changes, all of a view's windows are to be computed again.

use std::sync::Arc;

use model::TimeRange;
use query::views::{DEPTH_MAX, PendingRange, View};
use query::{Budget, QueryError};

use super::State;
use crate::Db;

impl State {
    /// A view, and those by way of which it reads its table.
    pub(super) fn with_those_below<'a>(&'a self, view: &'a Arc<View>) -> impl Iterator<Item = &'a Arc<View>> {
        let below = |view: &&'a Arc<View>| {
            let definition = &view.definition;
            let name = self.targets.get(&(definition.database.clone(), definition.source().to_owned()))?;
            self.views.get(&(definition.database.clone(), name.clone()))
        };
        std::iter::successors(Some(view), below).take(DEPTH_MAX + 1)
    }
}

impl Db {
    /// Reads what tables say that a view joins, itself or by way of others, and notes it. Where that is not what it was when windows were stored,
    /// all of them are to be computed again, and those of all views above. What is computed within the same budget has these labels.
    pub fn settle_view_labels(&self, view: &Arc<View>, budget: &Budget) -> Result<(), QueryError> {
        for below in self.views_below(view).1 {
            let (session, database) = (self.session(budget), &below.definition.database);
            let now = below.definition.labels_fingerprint(|labelled| session.label_rows(database, labelled))?;
            let Some(fingerprint) = now else { continue };
            let Some(current) = self.views.current(&below) else { continue };
            match &current.state.labels {
                Some(known) if *known == fingerprint => {}
                // Nothing is stored yet: windows are pending that were never computed.
                None => self.views.change_state(&below, true, |state| state.labels = Some(fingerprint))?,
                Some(_) => self.note_labels(&below, &fingerprint)?,
            }
        }
        Ok(())
    }

    fn note_labels(&self, view: &Arc<View>, fingerprint: &str) -> Result<(), QueryError> {
        let all = PendingRange { range: TimeRange::ALL, is_fill: false };
        // Those above first: after a crash in between it is noted again.
        for above in self.views(&view.definition.database) {
            let is_above = above.id != view.id && self.views_below(&above).1.iter().any(|below| below.id == view.id);
            if is_above {
                self.views.add_pending(&above, all)?;
            }
        }
        self.views.change_state(view, true, |state| {
            state.labels = Some(fingerprint.to_owned());
            state.add(all);
        })?;
        // What reads stored windows now may have read others with labels of before.
        self.views.note_rewrite(view);
        Ok(())
    }
}
