//! How long rows that are past keeping wait for views that have not read them, or have not stored windows of them: an hour from when the view last
//! had read, or stored, what there was, and some hours where there is always something new. A view that fails, or waits to be asked for, does not keep rows for
//! good, nor does a sender of old rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::TimeRange;
use query::views::{View, ViewCatalog, ViewChanges};
use store::Going;

use super::Views;
use super::frozen::{rows_from_ns, table_of};

/// How much longer rows stay for a view that does nothing.
const HOLD_NS_MAX: u64 = 3_600_000_000_000;
/// How much longer they stay at all.
const HOLDS_NS_MAX: u64 = 6 * HOLD_NS_MAX;

/// The reason why a view needs rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    /// It has not read changes of them.
    Unread,
    /// Windows of them are not stored.
    Unstored,
}

/// The rows that wait.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Waiting {
    Table(String),
    All,
    Folded,
}

/// A view that needs rows.
type Wait = (u64, Need, Waiting);

/// Since when rows wait for views, and when these had nothing to do; in nanoseconds of the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// Since when, by the numbers of views, and by what waits.
    waits: BTreeMap<Wait, u64>,
    /// When all of a database's log was read for its views.
    read_ns: BTreeMap<String, u64>,
    /// When all windows of a view were stored, by its number.
    stored_ns: BTreeMap<u64, u64>,
}

impl Holds {
    /// Notes that all was read of a database that its views are made of.
    pub(super) fn note_read(&mut self, database: &str, now_ns: u64) {
        self.read_ns.insert(database.to_owned(), now_ns);
    }

    /// Notes that all windows of a view are stored.
    pub(super) fn note_stored(&mut self, view: u64, now_ns: u64) {
        self.stored_ns.insert(view, now_ns);
    }

    /// Forgets a view.
    pub(super) fn forget(&mut self, view: u64) {
        self.waits.retain(|(of, ..), _| *of != view);
        self.stored_ns.remove(&view);
    }

    /// Returns whether rows wait for a view that needs some of them.
    fn is_waited_for(&mut self, view: &View, (need, going): (Need, Going<'_>), now_ns: u64) -> bool {
        let since_ns = *self.waits.entry((view.id, need, going.into())).or_insert(now_ns);
        // Where it is over it stays so until rows go: another view may have its time yet.
        !self.is_over(view, need, (since_ns, now_ns))
    }

    /// Returns whether rows have waited long enough for a view.
    fn is_over(&self, view: &View, need: Need, (since_ns, now_ns): (u64, u64)) -> bool {
        let progress_ns = match need {
            Need::Unread => self.read_ns.get(&view.definition.database),
            Need::Unstored => self.stored_ns.get(&view.id),
        };
        // It did what there was to be done then: this is needed for less long.
        let idle_ns = now_ns.saturating_sub(since_ns.max(progress_ns.copied().unwrap_or_default()));
        idle_ns >= HOLD_NS_MAX || now_ns.saturating_sub(since_ns) >= HOLDS_NS_MAX
    }

    /// Notes that rows go: views for which they had waited long enough have their time again.
    pub(super) fn renew(&mut self, readers: &[Arc<View>], going: Going<'_>, now_ns: u64) {
        for view in readers {
            for need in [Need::Unread, Need::Unstored] {
                let since_ns = self.waits.get(&(view.id, need, going.into())).copied();
                if since_ns.is_some_and(|since_ns| self.is_over(view, need, (since_ns, now_ns))) {
                    self.end(view, (need, going));
                }
            }
        }
    }

    fn end(&mut self, view: &View, (need, going): (Need, Going<'_>)) {
        self.waits.remove(&(view.id, need, going.into()));
    }
}

impl From<Going<'_>> for Waiting {
    fn from(going: Going<'_>) -> Self {
        match going {
            Going::Table(table) => Self::Table(table.to_owned()),
            Going::All => Self::All,
            Going::Folded => Self::Folded,
        }
    }
}

impl Views {
    /// The first of the rows of a table, or of any, that windows of its readers are still to be made of.
    pub(super) fn needed_from_ns(&self, (database, table): (&str, &str), readers: &[Arc<View>]) -> i64 {
        let changes = self.changes(database);
        let now_ns = self.store.trusted_now_ns();
        let needed = readers.iter().flat_map(|view| {
            let needs = [unread_from_ns(view, changes.as_ref(), i64::MIN), unstored_from_ns(view, now_ns)];
            needs.map(|start_ns| rows_from_ns(&view.definition, Some(table), start_ns))
        });
        needed.min().unwrap_or(i64::MAX)
    }

    /// As [`Self::needed_from_ns`], of those rows before a time that wait for the views. The changes were asked for before the views.
    pub(super) fn held_from_ns(
        &self,
        going: Going<'_>,
        (readers, changes): (&[Arc<View>], Option<&ViewChanges>),
        before_ns: i64,
    ) -> i64 {
        let table = table_of(going);
        let now_ns = self.store.trusted_now_ns();
        let clock_ns = self.store.monotonic_ns();
        let mut holds = self.holds.lock();
        let mut held_ns = i64::MAX;
        for view in readers {
            // Of windows before nothing is computed, whatever comes.
            let first_ns = view.first_from(view.state.frozen_ns);
            let needs = [
                (Need::Unread, unread_from_ns(view, changes, first_ns)),
                (Need::Unstored, unstored_from_ns(view, now_ns)),
            ];
            for (need, start_ns) in needs {
                let needed_ns = rows_from_ns(&view.definition, table, start_ns);
                if needed_ns >= before_ns {
                    holds.end(view, (need, going));
                } else if holds.is_waited_for(view, (need, going), clock_ns) {
                    held_ns = held_ns.min(needed_ns);
                }
            }
        }
        held_ns
    }
}

/// The beginning of the first window of a view, from one on, that rows may change which it has not read; the one itself, if nothing is known of them.
pub(super) fn unread_from_ns(view: &View, changes: Option<&ViewChanges>, first_ns: i64) -> i64 {
    let Some(changes) = changes else { return first_ns };
    // Windows are made of rows before them, too.
    let is_read = |range: &&TimeRange| view.windows_as_of(None, range).end_ns >= first_ns;
    let late = changes.late.iter().filter(is_read).map(|range| range.start_ns.max(first_ns));
    let times = late.chain(changes.edge_ns.map(|edge_ns| edge_ns.max(first_ns)));
    times.map(|time_ns| view.windows_of(&TimeRange::new(time_ns, time_ns)).start_ns).min().unwrap_or(i64::MAX)
}

/// The beginning of the first window of a view that is not stored, or lacks columns.
fn unstored_from_ns(view: &View, now_ns: i64) -> i64 {
    let lacking = view.state.new_columns.iter().flat_map(|columns| columns.ranges.iter());
    let pending = view.state.pending.iter().map(|pending| &pending.range).chain(lacking).map(|range| range.start_ns);
    // Windows from the watermark on become pending when the view is refreshed the next time.
    let next = Some(view.state.watermark_ns).filter(|watermark_ns| *watermark_ns > i64::MIN);
    let oldest_ns = now_ns.saturating_sub(view.definition.age_ns_max()).saturating_add(view.definition.reach_ns());
    pending.chain(next).fold(oldest_ns, i64::min)
}
