//! The thread that flushes and merges.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use store::Store;

/// How long the thread waits when nothing was due.
const IDLE: Duration = Duration::from_millis(100);

/// How long it waits after a failure: a full disk is not helped by trying at once.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A running background thread.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    woken: Condvar,
}

#[derive(Default)]
struct State {
    stopping: bool,
    error: Option<String>,
}

impl Worker {
    pub(crate) fn start(store: Arc<Store>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let for_thread = shared.clone();
        let thread = thread::Builder::new().name("background".to_owned()).spawn(move || work(&store, &for_thread))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn error(&self) -> Option<String> {
        self.shared.state.lock().error.clone()
    }

    /// Returns when the thread has ended.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.woken.notify_all();
        if let Some(thread) = self.thread.lock().take() {
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

fn work(store: &Store, shared: &Shared) {
    loop {
        let result = store.maintain();
        let mut state = shared.state.lock();
        let pause = match &result {
            Ok(true) => None,
            Ok(false) => Some(IDLE),
            Err(_) => Some(AFTER_FAILURE),
        };
        state.error = result.err().map(|error| error.to_string());
        if let Some(pause) = pause.filter(|_| !state.stopping) {
            shared.woken.wait_for(&mut state, pause);
        }
        if state.stopping {
            return;
        }
    }
}
