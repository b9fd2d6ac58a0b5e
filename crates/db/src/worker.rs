//! The threads that flush, merge, upload and write kept answers to flash, one each: a slow object store must not keep merges waiting, nor
//! long merges flushes.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use store::{Store, StoreError};

use crate::results::ResultCache;

/// How long a thread waits when nothing was due.
const IDLE: Duration = Duration::from_millis(100);

/// How long it waits after a failure: a full disk is not helped by trying at once.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A kind of work: does some of it, and says whether there may be more.
type Work = Box<dyn Fn() -> Result<bool, StoreError> + Send>;

/// What has to be done of a store, and of the answers that are kept of it.
fn works(store: &Arc<Store>, results: Option<&Arc<ResultCache>>) -> Vec<(&'static str, Work)> {
    let of_store = |work: fn(&Store) -> Result<bool, StoreError>| -> Work {
        let store = store.clone();
        Box::new(move || work(&store))
    };
    let mut works = vec![
        ("flush", of_store(Store::maintain_heads)),
        ("merge", of_store(Store::maintain_parts)),
        ("upload", of_store(Store::maintain_objects)),
        ("scrub", of_store(Store::scrub)),
    ];
    if let Some(results) = results.filter(|results| results.has_flash()) {
        let (store, results) = (store.clone(), results.clone());
        works.push(("answers", Box::new(move || results.work(&store))));
    }
    works
}

/// The running background threads.
pub(crate) struct Worker {
    store: Arc<Store>,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    stopping: bool,
    /// Why each thread's work failed last, if it did.
    errors: Vec<Option<String>>,
}

impl Worker {
    pub(crate) fn start(store: &Arc<Store>, results: Option<&Arc<ResultCache>>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let worker = Self { store: store.clone(), shared, threads: Mutex::default() };
        let works = works(store, results);
        worker.shared.state.lock().errors.resize(works.len(), None);
        for (place, (name, work)) in works.into_iter().enumerate() {
            let shared = worker.shared.clone();
            let thread = thread::Builder::new().name(name.to_owned());
            let thread = thread.spawn(move || repeat(&work, place, &shared))?;
            worker.threads.lock().push(thread);
        }
        Ok(worker)
    }

    pub(crate) fn error(&self) -> Option<String> {
        self.shared.state.lock().errors.iter().flatten().next().cloned()
    }

    /// Returns when the threads have ended.
    pub(crate) fn stop(&self) {
        self.store.hurry_for_good();
        self.shared.state.lock().stopping = true;
        self.shared.woken.notify_all();
        for thread in self.threads.lock().drain(..) {
            // A panic in the thread was reported when it happened; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

fn repeat(work: &Work, place: usize, shared: &Shared) {
    loop {
        let result = work();
        let mut state = shared.state.lock();
        let pause = match &result {
            Ok(true) => None,
            Ok(false) => Some(IDLE),
            Err(_) => Some(AFTER_FAILURE),
        };
        if let Some(error) = state.errors.get_mut(place) {
            *error = result.err().map(|error| error.to_string());
        }
        if let Some(pause) = pause.filter(|_| !state.stopping) {
            shared.woken.wait_for(&mut state, pause);
        }
        if state.stopping {
            return;
        }
    }
}
