//! A few threads that read at the same time.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

/// A read for the pool.
pub(crate) struct Job<T> {
    /// Whether it waits for something: others go on meanwhile. One that does not costs less than to wake a thread for it.
    pub(crate) waits: bool,
    pub(crate) run: Box<dyn FnOnce() -> T + Send>,
}

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: Mutex<(VecDeque<Work>, bool)>,
    wake: Condvar,
}

/// Threads that wait for jobs; they end with the pool.
pub(crate) struct Pool {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

impl Pool {
    /// Starts so many threads; with none all is done by the caller.
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let mut started = Vec::with_capacity(threads);
        for number in 0..threads {
            let queue = queue.clone();
            let name = format!("cache-read-{number}");
            started.push(std::thread::Builder::new().name(name).spawn(move || work(&queue))?);
        }
        Ok(Self { queue, threads: started })
    }

    /// Does all jobs: those that do not wait, and the first that does, in the caller's thread; results in the order of the jobs, `None` for
    /// one that panicked in another.
    pub(crate) fn run<T: Send + 'static>(&self, jobs: Vec<Job<T>>) -> Vec<Option<T>> {
        let first = jobs.iter().position(|job| job.waits);
        let goes = |place: usize, waits: bool| waits && Some(place) != first && !self.threads.is_empty();
        let mut results: Vec<Option<T>> = jobs.iter().map(|_| None).collect();
        let (sender, receiver) = mpsc::channel();
        let mut own = Vec::with_capacity(jobs.len());
        for (place, Job { waits, run }) in jobs.into_iter().enumerate() {
            if goes(place, waits) {
                let sender = sender.clone();
                // The receiver waits for all, so that sending only fails after a panic over there.
                let job = Box::new(move || drop(sender.send((place, run()))));
                self.queue.jobs.lock().0.push_back(job);
                self.queue.wake.notify_one();
            } else {
                own.push((place, run));
            }
        }
        drop(sender);
        let done = own.into_iter().map(|(place, run)| (place, run()));
        for (place, result) in done.chain(receiver) {
            if let Some(known) = results.get_mut(place) {
                *known = Some(result);
            }
        }
        results
    }
}

fn work(queue: &Queue) {
    loop {
        let job = {
            let mut jobs = queue.jobs.lock();
            loop {
                if let Some(job) = jobs.0.pop_front() {
                    break job;
                }
                if jobs.1 {
                    return;
                }
                queue.wake.wait(&mut jobs);
            }
        };
        job();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.queue.jobs.lock().1 = true;
        self.queue.wake.notify_all();
        for thread in self.threads.drain(..) {
            // A reader that panicked has told so already.
            let _ = thread.join();
        }
    }
}
