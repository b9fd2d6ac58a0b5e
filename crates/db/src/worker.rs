//! The threads that flush, merge, upload and write kept answers to flash, one each: a slow object store must not keep merges waiting, nor
//! long merges flushes. A thread whose work panics goes on; one that panics again and again is given up, and the folder's health says so.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use platform::Clock;
use store::{CheckStatus, Health, Store, StoreError};

use crate::disk_health::Watch;
use crate::results::ResultCache;

/// How long a thread waits when nothing was due, and after a failure: a full disk is not helped by trying at once.
const PAUSES: Pauses = Pauses { idle: Duration::from_millis(100), after_failure: Duration::from_secs(1) };

/// Panics of one work within [`PANICS_WITHIN`] after which it is given up.
const PANICS_MAX: usize = 5;

/// How long a panic counts.
const PANICS_WITHIN: Duration = Duration::from_mins(10);

/// A kind of work: does some of it, and says whether there may be more.
type Work = Box<dyn Fn() -> Result<bool, StoreError> + Send>;

#[derive(Clone, Copy)]
struct Pauses {
    idle: Duration,
    after_failure: Duration,
}

/// The work that a store needs, and the cache of its answers.
fn works(store: &Arc<Store>, results: Option<&Arc<ResultCache>>, watch: &Arc<Watch>) -> Vec<(&'static str, Work)> {
    let of_store = |work: fn(&Store) -> Result<bool, StoreError>| -> Work {
        let store = store.clone();
        Box::new(move || work(&store))
    };
    let watch = watch.clone();
    let mut works = vec![
        ("flush", of_store(Store::maintain_heads)),
        ("merge", of_store(Store::maintain_parts)),
        ("upload", of_store(Store::maintain_objects)),
        ("scrub", of_store(Store::scrub)),
    ];
    works.push((
        "watch",
        Box::new(move || {
            watch.work();
            Ok(false)
        }),
    ));
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
}

impl Worker {
    pub(crate) fn start(
        store: &Arc<Store>,
        results: Option<&Arc<ResultCache>>,
        watch: &Arc<Watch>,
        clock: &Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let worker = Self { store: store.clone(), shared, threads: Mutex::default() };
        let works = works(store, results, watch);
        for (name, work) in works {
            let shared = worker.shared.clone();
            let report = Report::new(name, store.health(), clock);
            let thread = thread::Builder::new().name(name.to_owned());
            let thread = thread.spawn(move || repeat(&work, &shared, report, PAUSES))?;
            worker.threads.lock().push(thread);
        }
        Ok(worker)
    }

    /// No threads: for a store that is only read.
    pub(crate) fn idle(store: &Arc<Store>) -> Self {
        Self { store: store.clone(), shared: Arc::default(), threads: Mutex::default() }
    }

    /// Returns when the threads have ended.
    pub(crate) fn stop(&self) {
        self.store.hurry_for_good();
        self.shared.state.lock().stopping = true;
        self.shared.woken.notify_all();
        for thread in self.threads.lock().drain(..) {
            // Panics were reported when they happened; there is nothing to add.
            let _ = thread.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How a turn of work went wrong.
enum Failure {
    Error(StoreError),
    /// The message of the panic.
    Panic(String),
}

/// Does some of the work; a panic ends this turn of it and nothing else.
fn turn(work: &Work) -> Result<bool, Failure> {
    // What the work had locked is free again, and its next turn begins from what is committed.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(Failure::Error),
        Err(payload) => Err(Failure::Panic(panic_text(&*payload))),
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "unknown reason".to_owned())
}

/// The report of one thread in the folder's health.
struct Report {
    thread: &'static str,
    health: Arc<Health>,
    /// The check that it has set.
    set: Option<&'static str>,
    /// When its work panicked, the last times.
    panics: VecDeque<Duration>,
    clock: Arc<dyn Clock>,
}

impl Report {
    fn new(thread: &'static str, health: &Arc<Health>, clock: &Arc<dyn Clock>) -> Self {
        Self { thread, health: health.clone(), set: None, panics: VecDeque::new(), clock: clock.clone() }
    }

    /// Takes note of a turn that ended at a time of the monotonic clock; whether the work is given up.
    fn note(&mut self, failure: Option<&Failure>, now: Duration) -> bool {
        self.panics.retain(|panic| now.saturating_sub(*panic) < PANICS_WITHIN);
        let thread = self.thread;
        match failure {
            None if self.panics.is_empty() => self.say(None),
            // It was started again, but an operator should know for a while.
            None => {}
            Some(Failure::Error(error)) => {
                let message = format!("the background work \"{thread}\" fails and is tried again: {error}");
                self.say(Some((check_of(thread, error), CheckStatus::Warn, message)));
            }
            Some(Failure::Panic(text)) => {
                self.panics.push_back(now);
                let is_last = self.panics.len() >= PANICS_MAX;
                let (status, what) = if is_last {
                    (CheckStatus::Fail, "panicked again and again and is given up: restart the server")
                } else {
                    (CheckStatus::Warn, "panicked and was started again")
                };
                let message = format!("the background work \"{thread}\" {what}; please report this: {text}");
                self.say(Some((thread, status, message)));
                return is_last;
            }
        }
        false
    }

    fn say(&mut self, check: Option<(&'static str, CheckStatus, String)>) {
        let name = check.as_ref().map(|(name, ..)| *name);
        // Only what this thread has set: others may have found the same fault.
        if let Some(before) = self.set.filter(|before| Some(*before) != name) {
            self.health.set(before, None);
        }
        self.set = name;
        if let Some((name, status, message)) = check {
            self.health.set(name, Some((status, message)));
        }
    }
}

/// The check that a failure belongs to.
fn check_of(thread: &'static str, error: &StoreError) -> &'static str {
    match error {
        StoreError::Objects(_) if thread == "upload" => "objects",
        _ => thread,
    }
}

fn repeat(work: &Work, shared: &Shared, mut report: Report, pauses: Pauses) {
    loop {
        let result = turn(work);
        let is_given_up = report.note(result.as_ref().err(), Duration::from_nanos(report.clock.monotonic_ns()));
        let mut state = shared.state.lock();
        let pause = match &result {
            Ok(true) => None,
            Ok(false) => Some(pauses.idle),
            Err(_) => Some(pauses.after_failure),
        };
        if is_given_up {
            return;
        }
        if let Some(pause) = pause.filter(|_| !state.stopping) {
            shared.woken.wait_for(&mut state, pause);
        }
        if state.stopping {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const NO_PAUSES: Pauses = Pauses { idle: Duration::ZERO, after_failure: Duration::ZERO };

    /// Runs work until it is given up or says that it is enough; the turns that it had, and the checks afterwards.
    fn run(panics: usize) -> (usize, Vec<(&'static str, CheckStatus)>) {
        let (health, shared, turns) =
            (Arc::new(Health::default()), Arc::new(Shared::default()), Arc::new(AtomicUsize::new(0)));
        let (counted, stopped) = (turns.clone(), shared.clone());
        let work: Work = Box::new(move || {
            let turn = counted.fetch_add(1, Ordering::Relaxed);
            assert!(turn >= panics, "planted");
            stopped.state.lock().stopping = true;
            Ok(false)
        });
        repeat(&work, &shared, Report::new("flush", &health, &platform::Platform::real().clock), NO_PAUSES);
        let checks = health.checks().into_iter().map(|check| (check.name, check.status));
        (turns.load(Ordering::Relaxed), checks.collect())
    }

    #[test]
    fn work_that_panics_is_started_again_and_given_up_in_the_end() {
        assert_eq!(run(0), (1, Vec::new()));
        assert_eq!(run(2), (3, vec![("flush", CheckStatus::Warn)]));
        assert_eq!(run(100), (PANICS_MAX, vec![("flush", CheckStatus::Fail)]));
    }

    #[test]
    fn what_fails_is_told_as_long_as_it_does() {
        use platform::objects::{ObjectError, ObjectErrorKind};
        let health = Arc::new(Health::default());
        let mut report = Report::new("upload", &health, &platform::Platform::real().clock);
        let away = ObjectError::new(ObjectErrorKind::Busy, "put x".to_owned(), "away".to_owned());
        let now = Duration::from_secs(1);
        let names = || health.checks().iter().map(|check| check.name).collect::<Vec<_>>();
        assert!(!report.note(Some(&Failure::Error(StoreError::Objects(away))), now));
        assert_eq!(names(), ["objects"]);
        report.note(Some(&Failure::Error(StoreError::Invalid("x".to_owned()))), now);
        assert_eq!(names(), ["upload"]);
        report.note(None, now);
        assert_eq!(names(), [""; 0]);
        report.note(Some(&Failure::Panic("planted".to_owned())), now);
        report.note(None, now);
        assert_eq!(names(), ["upload"], "a panic is told for a while");
        report.note(None, now + PANICS_WITHIN);
        assert_eq!(names(), [""; 0]);
    }
}
