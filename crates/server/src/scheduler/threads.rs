//! The threads that queries run on.
//!
//! Each query has one for itself: an idle one, or a new one. As a query uses CPU time ([`scheduler`](crate::scheduler)), its threads get a lower
//! priority from the operating system (`nice`), which holds while it sorts, encodes its response or frees memory, too. They cannot rise
//! again without privileges, so that they end with the query.

use std::cell::Cell;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// How long a thread waits for the next query before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// No thread falls lower: a thread that holds a lock must still get to release it.
const NICENESS_MAX: i32 = 10;
const NICENESS_PER_LEVEL: i32 = 3;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// How far this thread has fallen; nothing if it must not.
    static FALLEN: Cell<Option<i32>> = const { Cell::new(None) };
}

/// How far behind others the threads of a query are that has come to a level. Those of the first two may be nearly done.
fn niceness(level: usize) -> i32 {
    let levels = i32::try_from(level.saturating_sub(1)).unwrap_or(i32::MAX);
    levels.saturating_mul(NICENESS_PER_LEVEL).min(NICENESS_MAX)
}

/// From here on this thread falls with its query, and so has to end with it.
pub(crate) fn may_fall() {
    FALLEN.set(Some(0));
}

/// This thread's query has come to a level.
pub(crate) fn fall_to(level: usize) {
    let Some(fallen) = FALLEN.get() else { return };
    let wanted = niceness(level);
    if wanted > fallen {
        FALLEN.set(Some(wanted));
        system::fall(wanted - fallen);
    }
}

fn has_fallen() -> bool {
    FALLEN.get().is_some_and(|fallen| fallen > 0)
}

#[cfg(target_os = "linux")]
mod system {
    use rustix::process::{getpriority_process, setpriority_process};

    /// Puts this thread so far behind. Where that is forbidden all stays as it is.
    pub(super) fn fall(by: i32) {
        if let Ok(niceness) = getpriority_process(None) {
            let _ = setpriority_process(None, niceness + by);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    /// Elsewhere only whole processes have priorities.
    pub(super) const fn fall(_by: i32) {}
}

/// Queries that wait for a thread, never more than `idle`.
#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    idle: usize,
}

/// All threads for queries. As many run as there are queries: their callers bound that.
#[derive(Default)]
pub(crate) struct QueryThreads {
    queue: Mutex<Queue>,
    job_added: Condvar,
}

impl QueryThreads {
    /// Begins a query's work on a thread that may block.
    pub(crate) fn run(self: &Arc<Self>, job: Job) -> io::Result<()> {
        let mut queue = self.queue();
        if queue.idle > queue.jobs.len() {
            queue.jobs.push(job);
            self.job_added.notify_one();
            return Ok(());
        }
        drop(queue);
        let threads = self.clone();
        Builder::new().name("query".to_owned()).spawn(move || threads.serve(job)).map(drop)
    }

    fn serve(&self, first: Job) {
        may_fall();
        let mut next = Some(first);
        while let Some(job) = next {
            job();
            next = if has_fallen() { None } else { self.wait() };
        }
    }

    fn wait(&self) -> Option<Job> {
        let mut queue = self.queue();
        queue.idle += 1;
        let is_empty = |queue: &mut Queue| queue.jobs.is_empty();
        queue = self.job_added.wait_timeout_while(queue, IDLE, is_empty).unwrap_or_else(PoisonError::into_inner).0;
        queue.idle -= 1;
        queue.jobs.pop()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread::{self, ThreadId};

    use super::*;

    /// Runs a job, and says on which thread and what it yielded.
    fn run<T: Send + 'static>(threads: &Arc<QueryThreads>, job: impl FnOnce() -> T + Send + 'static) -> (ThreadId, T) {
        let (sender, receiver) = channel();
        let job = Box::new(move || sender.send((thread::current().id(), job())).unwrap());
        threads.run(job).unwrap();
        receiver.recv().unwrap()
    }

    /// Waits until so many threads do.
    fn until_idle(threads: &QueryThreads, count: usize) {
        while threads.queue().idle != count {
            thread::yield_now();
        }
    }

    #[test]
    fn threads_that_wait_are_taken() {
        let threads = Arc::new(QueryThreads::default());
        let (first, ()) = run(&threads, || ());
        until_idle(&threads, 1);
        let (second, inner) = run(&threads, {
            let threads = threads.clone();
            move || run(&threads, || ()).0
        });
        assert_eq!(first, second);
        assert_ne!(second, inner);
        until_idle(&threads, 2);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_falls_with_its_query_and_ends_with_it() {
        let threads = Arc::new(QueryThreads::default());
        let now = || rustix::process::getpriority_process(None).unwrap();
        let (fallen, niceness) = run(&threads, move || {
            let before = now();
            let levels = [0, 1, 2, 3, 100, 1];
            levels.map(|level| {
                fall_to(level);
                now() - before
            })
        });
        assert_eq!(niceness, [0, 0, 3, 6, 10, 10]);
        let (next, niceness_after) = run(&threads, now);
        assert_ne!(fallen, next);
        assert_eq!(niceness_after, now());
        until_idle(&threads, 1);
    }

    #[test]
    fn other_threads_stay() {
        fall_to(100);
        assert!(!has_fallen());
    }

    #[test]
    fn a_job_that_fails_takes_its_thread_only() {
        let threads = Arc::new(QueryThreads::default());
        let (sender, receiver) = channel::<()>();
        let fails = move || {
            let _sender = sender;
            std::panic::panic_any("on purpose");
        };
        threads.run(Box::new(fails)).unwrap();
        assert!(receiver.recv().is_err());
        assert_eq!(run(&threads, || 7).1, 7);
    }
}
