//! The materialised views of a data folder: their definitions and states, in memory and as documents of the manifest.
//!
//! * this file: what there is, and up to which moment it is right · [`catalog`]: what queries and statements see
//! * [`api`]: what keeps views right works with · [`document`]: documents

mod api;
mod catalog;
mod document;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::TimeRange;
use parking_lot::{Mutex, RwLock};
use platform::Clock;
use query::QueryError;
use query::views::{PendingRange, View, ViewDefinition, ViewState, ViewStatus};
use store::{Store, StoreError};

pub use api::{StoredRow, ViewDelete, ViewMark, ViewWindows};

/// The kind of the documents that hold definitions.
const KIND: &str = "view";
/// The kind of the documents that hold states.
const STATE_KIND: &str = "view-state";
/// Between the names of database and view in that of a document; names have none.
const BETWEEN: char = '\0';

/// Views of a data folder, at most.
const VIEWS_MAX: usize = 10_000;

/// A view, by the names of its database and its own.
type ViewName = (String, String);

/// A delete that is under way.
#[derive(Debug, Clone)]
struct ActiveDelete {
    number: u64,
    view: ViewName,
    range: TimeRange,
}

#[derive(Default)]
struct State {
    views: BTreeMap<ViewName, Arc<View>>,
    /// The views that scans of tables read, by database and table.
    targets: BTreeMap<(String, String), String>,
    statuses: BTreeMap<ViewName, ViewStatus>,
    /// The journal's snapshots up to which stored windows are right, by database.
    right_until: BTreeMap<String, u64>,
    active_deletes: Vec<ActiveDelete>,
    next_hold: u64,
}

/// The views of a data folder.
pub(crate) struct Views {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    state: RwLock<State>,
    /// Locked while definitions or states change: documents and memory change together.
    changing: Mutex<()>,
    rewrites: AtomicU64,
    /// Documents that could not be read, with the reason.
    unreadable: Vec<(String, String)>,
}

fn document_name(database: &str, name: &str) -> String {
    format!("{database}{BETWEEN}{name}")
}

/// The error of a change: one that its sender can correct, or one of the storage.
fn storage(error: StoreError) -> QueryError {
    match error {
        StoreError::Invalid(message) => QueryError::Invalid(message),
        other => QueryError::Storage(other.to_string()),
    }
}

impl Views {
    /// The views that the documents of a folder say.
    pub(crate) fn open(store: &Arc<Store>, clock: &Arc<dyn Clock>) -> Self {
        let (mut state, mut unreadable) = (State::default(), Vec::new());
        let states: BTreeMap<String, Arc<[u8]>> = store.documents(STATE_KIND).into_iter().collect();
        for (document, bytes) in store.documents(KIND) {
            let decoded = document::decode(&bytes).and_then(|definition| {
                let bins = definition.windows.bins().map_err(|error| error.to_string())?;
                Ok((definition, bins))
            });
            match decoded {
                Ok((definition, bins)) => {
                    let known = states.get(&document).and_then(|bytes| document::decode_state(bytes));
                    // Without a state nothing counts as computed.
                    let state_of = known.unwrap_or(ViewState { watermark_ns: i64::MIN, pending: Vec::new() });
                    state.insert(View { definition, bins, state: state_of });
                }
                Err(reason) => unreadable.push((document.replace(BETWEEN, "."), reason)),
            }
        }
        Self {
            store: store.clone(),
            clock: clock.clone(),
            state: RwLock::new(state),
            changing: Mutex::new(()),
            rewrites: AtomicU64::new(0),
            unreadable,
        }
    }

    fn find(&self, database: &str, name: &str) -> Option<Arc<View>> {
        self.state.read().views.get(&(database.to_owned(), name.to_owned())).cloned()
    }

    fn existing(&self, database: &str, name: &str) -> Result<Arc<View>, QueryError> {
        let missing = || QueryError::Invalid(format!("the materialised view {name:?} does not exist"));
        self.find(database, name).ok_or_else(missing)
    }

    fn put_definition(&self, definition: &ViewDefinition) -> Result<(), QueryError> {
        let name = document_name(&definition.database, &definition.name);
        self.store.put_document(KIND, &name, &document::encode(definition)).map_err(storage)
    }

    /// Changes a view's state; it is on disk when this returns if that is wanted.
    fn change_state(
        &self,
        (database, name): (&str, &str),
        is_durable: bool,
        change: impl FnOnce(&mut ViewState),
    ) -> Result<(), QueryError> {
        let _changing = self.changing.lock();
        let Some(view) = self.find(database, name) else { return Ok(()) };
        let mut changed = View::clone(&view);
        change(&mut changed.state);
        if changed.state == view.state && !is_durable {
            return Ok(());
        }
        if is_durable {
            let document = document_name(database, name);
            self.store.put_document(STATE_KIND, &document, &document::encode_state(&changed.state)).map_err(storage)?;
        }
        self.state.write().insert(changed);
        Ok(())
    }

    /// Has a range of a view's windows computed.
    fn add_pending(&self, view: &View, pending: PendingRange) -> Result<(), QueryError> {
        let ViewDefinition { database, name, .. } = &view.definition;
        let whole = PendingRange { range: view.windows_of(&pending.range), ..pending };
        self.change_state((database, name), true, |state| state.add(whole))
    }

    /// The time before which no window can be computed: the clock's.
    fn newest_window(&self, view: &View) -> i64 {
        let over_ns = self.clock.now_ns().saturating_sub(view.definition.lag_ns());
        view.bins.start_of(over_ns)
    }

    fn note(&self, database: &str, name: &str, change: impl FnOnce(&mut ViewStatus)) {
        change(self.state.write().statuses.entry((database.to_owned(), name.to_owned())).or_default());
    }

    /// Runs work that deletes stored windows and writes them again.
    fn rewriting<T>(&self, work: impl FnOnce() -> T) -> T {
        self.rewrites.fetch_add(1, Ordering::AcqRel);
        let done = work();
        self.rewrites.fetch_add(1, Ordering::AcqRel);
        done
    }
}

impl State {
    fn insert(&mut self, view: View) {
        let ViewDefinition { database, name, target, .. } = &view.definition;
        let key = (database.clone(), name.clone());
        if view.definition.is_exposed() {
            self.targets.insert((database.clone(), target.clone()), name.clone());
        }
        self.views.insert(key, Arc::new(view));
    }

    fn remove(&mut self, view: &View) {
        let ViewDefinition { database, name, target, .. } = &view.definition;
        self.targets.remove(&(database.clone(), target.clone()));
        let key = (database.clone(), name.clone());
        self.views.remove(&key);
        self.statuses.remove(&key);
        self.active_deletes.retain(|active| active.view != key);
    }
}
