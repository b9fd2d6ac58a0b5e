//! The thread that makes passes: when the log has more, when windows are over, and now and then.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use db::views::RefreshBackground;
use db::{CommitListener, Db};
use parking_lot::{Condvar, Mutex};

use super::{RefreshLimits, Refresher};

/// Pauses between passes.
const BUSY_PAUSE: Duration = Duration::from_millis(200);
const IDLE_PAUSE: Duration = Duration::from_secs(1);
const FAILURE_PAUSE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct State {
    is_stopping: bool,
    has_more: bool,
    /// True if a statement waits for a pass.
    is_woken: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    woken: Condvar,
}

impl CommitListener for Shared {
    fn committed(&self) {
        // The flag alone: a pass reads all that came within its pause.
        self.state.lock().has_more = true;
    }
}

impl RefreshBackground for Shared {
    fn wake(&self) {
        self.state.lock().is_woken = true;
        self.woken.notify_all();
    }
}

/// Refreshes views until it is stopped or dropped.
pub struct RefreshThread {
    db: Arc<Db>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl RefreshThread {
    /// Starts the thread, which says by `warn` why it cannot refresh, once for each reason.
    ///
    /// # Errors
    /// If the system has no thread.
    pub fn start(db: &Arc<Db>, warn: fn(&str)) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let listener: Arc<dyn CommitListener> = shared.clone();
        db.listen_to_commits(Arc::downgrade(&listener));
        let background: Arc<dyn RefreshBackground> = shared.clone();
        db.set_refresh_background(Arc::downgrade(&background));
        let refresher = Refresher::new(db.clone(), RefreshLimits::default());
        let (of_thread, of_passes) = (shared.clone(), db.clone());
        let builder = std::thread::Builder::new().name("views".to_owned());
        let thread = builder.spawn(move || repeat(&of_passes, refresher, &of_thread, warn))?;
        Ok(Self { db: db.clone(), shared, thread: Mutex::new(Some(thread)) })
    }

    /// Returns when the thread has ended. Nothing in the background is paced from then on: the folder is about to be closed.
    pub fn stop(&self) {
        self.shared.state.lock().is_stopping = true;
        self.db.stop_pacing();
        self.shared.woken.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            // A panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for RefreshThread {
    fn drop(&mut self) {
        self.stop();
    }
}

fn repeat(db: &Db, mut refresher: Refresher, shared: &Shared, warn: fn(&str)) {
    let mut failure: Option<String> = None;
    loop {
        let passed = refresher.pass();
        refresher.take_warnings().iter().for_each(|warning| warn(warning));
        let reason = passed.as_ref().err().map(ToString::to_string);
        if let Some(reason) = reason.as_ref().filter(|_| reason != failure) {
            warn(&format!("materialised views are not refreshed: {reason}"));
        }
        failure = reason;
        let has_more = !matches!(passed, Ok(false));
        let pause = match passed {
            Ok(true) => Duration::from_millis(1),
            Ok(false) if std::mem::take(&mut shared.state.lock().has_more) => BUSY_PAUSE,
            Ok(false) => IDLE_PAUSE,
            Err(_) => FAILURE_PAUSE,
        };
        db.note_view_pass(has_more);
        let mut state = shared.state.lock();
        if !state.is_stopping && !std::mem::take(&mut state.is_woken) {
            shared.woken.wait_for(&mut state, pause);
        }
        if state.is_stopping {
            break;
        }
    }
    // Where it fails the next start repeats a little.
    let _ = refresher.save();
}
