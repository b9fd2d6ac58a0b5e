//! The materialised views of a data folder: their definitions and states, in memory and as documents of the manifest.
//!
//! * this file: what there is, and up to which moment it is right · [`catalog`]: what queries and statements see
//! * [`chain`]: which views may read which · [`api`]: what keeps views right works with · [`rows`]: rows of views, and writing them
//! * [`definitions`]: views that are made, replaced, and get columns · [`document`]: documents · [`stored_queries`]: views of plain SQL
//! * [`labels`]: what joined tables say · [`tasks`]: scripts in Flux that are continuous queries
//! * [`followed_deletes`]: what was deleted, for those who follow the log · [`failing`]: views that cannot be refreshed
//! * [`folding`]: views beside folds · [`frozen`]: what of a source is gone, and how long rows are kept · [`holds`]: how long they wait for views · [`table_use`]: which tables views join and write

mod api;
mod catalog;
mod chain;
mod definitions;
mod document;
mod failing;
mod folding;
mod followed_deletes;
mod frozen;
mod holds;
mod labels;
mod rows;
mod stored_queries;
mod table_use;
mod tasks;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use access::grant::Right;
use access::scope::Scope;
use model::{METRIC_NAME, MatchOp, Matcher, TimeRange};
use parking_lot::{Mutex, RwLock};
use query::plan::Selector;
use query::views::{PendingRange, StoredQuery, View, ViewDefinition, ViewState, ViewStatus};
use query::{HiddenTable, QueryError};
use store::{Store, StoreError};

pub use api::{ViewDelete, ViewMark, ViewPiece, ViewWindows};
pub use followed_deletes::FollowedDelete;
pub use rows::ViewRows;
pub use tasks::{TaskSettings, task_id};
pub use waiting::RefreshBackground;

/// The kind of the documents that hold definitions.
const KIND: &str = "view";
/// The kind of the documents that hold states.
const STATE_KIND: &str = "view-state";
/// The kind of the documents that hold views of plain SQL.
const QUERY_KIND: &str = "stored-query";
/// Between the names of database and view in that of a document; names have none.
const BETWEEN: char = '\0';

/// Views of a data folder, at most.
const VIEWS_MAX: usize = 10_000;

/// A view, by the names of its database and its own.
type ViewName = (String, String);

/// A view whose definition cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableView {
    /// Its database.
    pub database: String,
    /// Its name.
    pub name: String,
    /// The reason why its document cannot be read.
    pub reason: String,
    /// The table of its windows, if the document says so; of one of plain SQL the table that its name keeps others from.
    target: Option<String>,
    /// The kind of its document.
    kind: &'static str,
}

/// A delete that is under way.
#[derive(Debug, Clone)]
struct ActiveDelete {
    number: u64,
    view: ViewName,
    range: TimeRange,
    /// True if its rows are gone: pieces that were begun before may have read them.
    is_over: bool,
}

#[derive(Default)]
struct State {
    /// Another number after each change of a view or of its state.
    generation: u64,
    views: BTreeMap<ViewName, Arc<View>>,
    /// Views of plain SQL.
    queries: BTreeMap<ViewName, Arc<StoredQuery>>,
    /// The views that scans of tables read, by database and table.
    targets: BTreeMap<(String, String), String>,
    statuses: BTreeMap<ViewName, ViewStatus>,
    /// Those of which the last try to refresh them failed.
    failing: BTreeSet<ViewName>,
    /// The journal's snapshots up to which stored windows are right, by database.
    right_until: BTreeMap<String, u64>,
    active_deletes: Vec<ActiveDelete>,
    next_hold: u64,
    /// Views whose documents cannot be read.
    unreadable: Vec<UnreadableView>,
    /// How often stored windows were deleted to be written again, by view.
    rewrites: BTreeMap<ViewName, u64>,
    /// The times of windows that are deleted now to be written again, or could not be written.
    rewritten: BTreeMap<ViewName, Vec<TimeRange>>,
    /// Pieces that are computed now: until they are finished no delete is forgotten.
    open_pieces: usize,
}

/// Deletes that are over and known, at most for each view: with more they become one.
const DELETES_OVER_MAX: usize = 64;

/// The views of a data folder.
pub(crate) struct Views {
    store: Arc<Store>,
    state: RwLock<State>,
    /// Locked while definitions or states change: documents and memory change together.
    changing: Mutex<()>,
    /// Locked while windows are written, before `changing` where both are: what was dropped gets no rows.
    writing: Mutex<()>,
    ids: AtomicU64,
    /// How often a refresh was asked for.
    requests: AtomicU64,
    followed_deletes: followed_deletes::FollowedDeletes,
    /// Locked after `state`, if both are.
    holds: Mutex<holds::Holds>,
    passes: waiting::Passes,
}

fn document_name(database: &str, name: &str) -> String {
    format!("{database}{BETWEEN}{name}")
}

/// Has rows refused that others write to a view's table.
fn reserve(store: &Store, view: &ViewDefinition) -> Result<(), StoreError> {
    if view.is_exposed() { store.reserve_table(&view.database, &view.target) } else { Ok(()) }
}

/// Returns whether rows without a label satisfy a matcher of it: only then do they come with those that an account may read.
fn is_satisfied_by_nothing(matcher: &Matcher) -> bool {
    // What cannot be compiled is refused elsewhere; here it hides.
    index::compile(std::slice::from_ref(matcher)).map_or(true, |compiled| compiled.iter().all(|of| of.matches("")))
}

/// The table of a view with a matcher that its metrics do not satisfy.
fn hidden_table(view: &ViewDefinition) -> HiddenTable {
    let names = view.fields.iter().map(|(field, _)| model::metric_name(&view.target, field)).collect();
    let others = Selector { name: METRIC_NAME.to_owned(), op: MatchOp::NotEqual, values: names }.matcher();
    HiddenTable { database: view.database.clone(), table: view.target.clone(), others }
}

/// The error of a change: one that its sender can correct, or one of the storage.
fn storage(error: StoreError) -> QueryError {
    match error {
        StoreError::Invalid(message) => QueryError::Invalid(message),
        other => QueryError::Storage(other.to_string()),
    }
}

impl Views {
    /// The tables of views whose rows do not have the labels by which an account's rights are narrowed.
    pub(crate) fn hidden_from(&self, scope: &Scope) -> Vec<HiddenTable> {
        let state = self.state.read();
        let is_hidden = |view: &&Arc<View>| {
            let labels = view.definition.labels();
            let matchers = scope.matchers(Right::Read, &view.definition.database);
            let is_missing = |matcher: &Matcher| !labels.contains(&matcher.name) && is_satisfied_by_nothing(matcher);
            let is_joined = || state.with_those_below(view).any(|view| view.definition.has_joins());
            let is_narrowed = !matchers.is_empty();
            view.definition.is_exposed() && is_narrowed && (matchers.iter().any(is_missing) || is_joined())
        };
        state.views.values().filter(is_hidden).map(|view| hidden_table(&view.definition)).collect()
    }

    /// The views that the documents of a folder say.
    pub(crate) fn open(store: &Arc<Store>) -> Self {
        let mut state = State::default();
        let ids = AtomicU64::new(0);
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
                    // A database that cannot be made has no rows either.
                    let _ = reserve(store, &definition);
                    let mut state_of = known.unwrap_or_default();
                    let is_column = |name: &String| definition.fields.iter().any(|(known, _)| known == name);
                    // A crash left the state without the definition that has them.
                    state_of.new_columns.iter_mut().for_each(|columns| columns.names.retain(is_column));
                    state_of.new_columns.retain(|columns| !columns.names.is_empty());
                    if states.get(&document).is_none_or(|bytes| !document::is_expiry_noted(bytes)) {
                        state_of.frozen_ns = state_of.frozen_ns.max(frozen::expired_before_ns(store, &definition));
                    }
                    if state_of.expired_ns == i64::MIN {
                        state_of.expired_ns = frozen::own_expired_before_ns(store, &definition);
                        if state_of.expired_ns > i64::MIN {
                            // A version before noted nothing. Where it cannot be written, it is found anew when the folder is opened.
                            let _ = store.put_document(STATE_KIND, &document, &document::encode_state(&state_of));
                        }
                    }
                    let id = ids.fetch_add(1, Ordering::Relaxed);
                    state.insert(View { id, definition, bins, state: state_of });
                }
                Err(reason) => {
                    let (database, name) = document.split_once(BETWEEN).unwrap_or(("", document.as_str()));
                    let target = document::target_of(&bytes);
                    if let Some(target) = &target {
                        let _ = store.reserve_table(database, target);
                    }
                    let (database, name) = (database.to_owned(), name.to_owned());
                    state.unreadable.push(UnreadableView { database, name, reason, target, kind: KIND });
                }
            }
        }
        store.open_window_bounds(&state.databases());
        folding::open(store, &state);
        stored_queries::open(store, &mut state);
        let (changing, writing) = (Mutex::new(()), Mutex::new(()));
        let followed_deletes = followed_deletes::FollowedDeletes::new(store);
        let (store, state, requests) = (store.clone(), RwLock::new(state), AtomicU64::new(0));
        let views = Self {
            store,
            state,
            changing,
            writing,
            ids,
            requests,
            followed_deletes,
            holds: Mutex::default(),
            passes: waiting::Passes::default(),
        };
        views.note_all_failing(&views.state.read());
        views
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

    /// A view as it is now; `None` if it was dropped, though another one has its name.
    fn current(&self, view: &View) -> Option<Arc<View>> {
        let ViewDefinition { database, name, .. } = &view.definition;
        self.find(database, name).filter(|current| current.id == view.id)
    }

    /// Changes a view's state; it is on disk when this returns if that is wanted. Nothing happens if the view was dropped.
    fn change_state(
        &self,
        view: &View,
        is_durable: bool,
        change: impl FnOnce(&mut ViewState),
    ) -> Result<(), QueryError> {
        let _changing = self.changing.lock();
        self.change_locked(view, is_durable, change)
    }

    /// As [`Self::change_state`], while `changing` is held.
    fn change_locked(
        &self,
        view: &View,
        is_durable: bool,
        change: impl FnOnce(&mut ViewState),
    ) -> Result<(), QueryError> {
        let Some(view) = self.current(view) else { return Ok(()) };
        let mut changed = View::clone(&view);
        change(&mut changed.state);
        if changed.state == view.state && !is_durable {
            return Ok(());
        }
        if is_durable {
            let document = document_name(&view.definition.database, &view.definition.name);
            self.store.put_document(STATE_KIND, &document, &document::encode_state(&changed.state)).map_err(storage)?;
        }
        self.state.write().insert(changed);
        Ok(())
    }

    /// Has a range of a view's windows computed.
    fn add_pending(&self, view: &View, pending: PendingRange) -> Result<(), QueryError> {
        let whole = PendingRange { range: view.windows_of(&pending.range), ..pending };
        self.change_state(view, true, |state| state.add(whole))
    }

    /// The first window that cannot be stored yet.
    fn newest_window(&self, view: &View) -> i64 {
        view.newest_window(self.store.window_now_ns())
    }

    fn note(&self, view: &View, change: impl FnOnce(&mut ViewStatus)) {
        let key = (view.definition.database.clone(), view.definition.name.clone());
        let mut state = self.state.write();
        if state.views.get(&key).is_some_and(|current| current.id == view.id) {
            change(state.statuses.entry(key.clone()).or_default());
            self.note_failing(&mut state, &key);
        }
    }

    /// Has what reads a view now read it again: its windows may be of two moments.
    fn note_rewrite(&self, view: &View) {
        let key = (view.definition.database.clone(), view.definition.name.clone());
        *self.state.write().rewrites.entry(key).or_default() += 1;
    }

    /// Runs work that deletes stored windows and writes them again. Readers compute them meanwhile, and after an error until they are computed
    /// again.
    fn rewriting(
        &self,
        view: &View,
        ranges: Vec<TimeRange>,
        work: impl FnOnce() -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let key = (view.definition.database.clone(), view.definition.name.clone());
        {
            let mut state = self.state.write();
            let known = state.rewritten.remove(&key).unwrap_or_default();
            state.rewritten.insert(key.clone(), query::views::normalized([known, ranges.clone()].concat()));
            *state.rewrites.entry(key.clone()).or_default() += 1;
        }
        work()?;
        self.state.write().end_rewrite(&key, &query::views::normalized(ranges));
        Ok(())
    }
}

impl State {
    /// The databases that have materialised views, those of views that cannot be read among them: another version may read these.
    fn databases(&self) -> BTreeSet<String> {
        let unreadable = self.unreadable.iter().filter(|view| view.kind == KIND).map(|view| &view.database);
        self.views.keys().map(|(database, _)| database).chain(unreadable).cloned().collect()
    }

    fn insert(&mut self, view: View) {
        let ViewDefinition { database, name, target, .. } = &view.definition;
        let key = (database.clone(), name.clone());
        self.generation += 1;
        if view.definition.is_exposed() {
            self.targets.insert((database.clone(), target.clone()), name.clone());
        }
        self.views.insert(key, Arc::new(view));
    }

    fn remove(&mut self, view: &View) {
        let ViewDefinition { database, name, target, .. } = &view.definition;
        self.generation += 1;
        self.targets.remove(&(database.clone(), target.clone()));
        let key = (database.clone(), name.clone());
        self.views.remove(&key);
        self.statuses.remove(&key);
        self.rewritten.remove(&key);
        self.rewrites.remove(&key);
        self.active_deletes.retain(|active| active.view != key);
    }

    /// The ranges of a view that deletes have which are under way, or which were when a piece was begun that is not finished.
    fn deletes_under_way(&self, view: &View) -> Vec<TimeRange> {
        let ViewDefinition { database, name, .. } = &view.definition;
        let is_held = |held: &&ActiveDelete| held.view.0 == *database && held.view.1 == *name;
        query::views::normalized(self.active_deletes.iter().filter(is_held).map(|held| held.range).collect())
    }

    /// Notes that windows are stored again.
    fn end_rewrite(&mut self, key: &ViewName, ranges: &[TimeRange]) {
        let Some(known) = self.rewritten.remove(key) else { return };
        let left = query::views::subtract(&known, ranges);
        if !left.is_empty() {
            self.rewritten.insert(key.clone(), left);
        }
    }

    /// Notes that a delete's rows are gone.
    fn end_delete(&mut self, number: u64) {
        let mut ended: Vec<ViewName> = Vec::new();
        for held in self.active_deletes.iter_mut().filter(|held| held.number == number) {
            held.is_over = true;
            ended.push(held.view.clone());
        }
        self.forget_deletes();
        for view in ended {
            self.merge_deletes(&view);
        }
    }

    /// Forgets the deletes that are over if no piece is computed now.
    fn forget_deletes(&mut self) {
        if self.open_pieces == 0 {
            self.active_deletes.retain(|held| !held.is_over);
        }
    }

    /// Makes the deletes of a view that are over one if they are many.
    fn merge_deletes(&mut self, view: &ViewName) {
        let is_over = |held: &ActiveDelete| held.is_over && held.view == *view;
        if self.active_deletes.iter().filter(|held| is_over(held)).count() <= DELETES_OVER_MAX {
            return;
        }
        let over = self.active_deletes.iter().filter(|held| is_over(held));
        let range = over.fold(TimeRange::EMPTY, |hull, held| hull.union(held.range));
        self.active_deletes.retain(|held| !is_over(held));
        self.active_deletes.push(ActiveDelete { number: 0, view: view.clone(), range, is_over: true });
    }
}

#[cfg(test)]
mod tests {
    use model::ValueType;
    use platform::sim::Simulation;
    use query::plan::{Plan, Scan};
    use query::views::{Dialect, ViewOptions, ViewOutput, WindowWidth};
    use query::{Budget, Interval};

    use super::*;
    use crate::{Db, DbOptions};

    const SECOND_NS: i64 = 1_000_000_000;

    fn definition() -> ViewDefinition {
        let plan = "(->> (rows-of \"t\") (groupby 1m '((sum \"v\")) (by '())) (map \"s\" (column \"sum v\")))";
        ViewDefinition {
            name: "v".to_owned(),
            database: "default".to_owned(),
            target: "v".to_owned(),
            time_name: "time".to_owned(),
            plan: query::parse(plan, 0).unwrap(),
            windows: WindowWidth { width: Interval::of_ns(60 * SECOND_NS), origin_ns: 0, zone: "UTC".to_owned() },
            fields: vec![("s".to_owned(), ValueType::F64)],
            options: ViewOptions::default(),
            maker: String::new(),
            statement: String::new(),
            dialect: Dialect::Sql,
            output: ViewOutput::default(),
            task: None,
        }
    }

    #[test]
    fn windows_that_are_written_again_are_computed_meanwhile() {
        let simulation = Simulation::new(1);
        let db = Db::open(simulation.platform(), DbOptions::new("/data")).unwrap();
        let now_ns = db.now_ns();
        db.write_lines("default", format!("t v=1 {}", now_ns - 600 * SECOND_NS).as_bytes()).unwrap();
        db.create_view(definition(), &Budget::new(1_000)).unwrap();
        let view = db.view("default", "v").unwrap();
        let range = view.windows_of(&TimeRange::new(now_ns - 700 * SECOND_NS, now_ns - 500 * SECOND_NS));
        let windows = ViewWindows { view: &view, range, selectors: Vec::new() };
        let rows = db.computed_view_rows(&windows, &Budget::new(1_000_000)).unwrap();
        db.replace_view_rows(&view, &ViewDelete::default(), &rows).unwrap();
        db.finish_view_range(&view, &TimeRange::ALL, false).unwrap();
        let mark = db.mark_views().unwrap().unwrap();
        db.note_views_right("default", &mark);
        let count = || {
            let plan = Plan::Scan(Scan::of_table("v"));
            let outcome = db.run_plan("default", &plan, &Budget::new(1_000_000)).unwrap();
            outcome.frames.iter().map(|frame| frame.timestamps_ns.len()).sum::<usize>()
        };
        assert_eq!(count(), 1);
        let rewritten = db.views.rewriting(&view, vec![TimeRange::new(range.start_ns, range.end_ns)], || {
            db.store.delete_rows("default", "v", &[], &TimeRange::ALL).map_err(storage)?;
            assert_eq!(count(), 1, "while it is not there");
            Err(QueryError::Storage("the disk is full".to_owned()))
        });
        assert!(rewritten.is_err());
        assert_eq!(count(), 1, "it could not be written");
        db.views.state.write().rewritten.clear();
        assert_eq!(count(), 0, "it was not stored");
    }
}
