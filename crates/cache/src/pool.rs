//! A few threads that read at the same time.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: Mutex<(VecDeque<Job>, bool)>,
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

    /// Does all jobs, the first of them in the caller's thread; results in the order of the jobs, `None` for one that panicked.
    pub(crate) fn run<T: Send + 'static>(&self, mut jobs: Vec<Box<dyn FnOnce() -> T + Send>>) -> Vec<Option<T>> {
        if self.threads.is_empty() || jobs.len() < 2 {
            return jobs.into_iter().map(|job| Some(job())).collect();
        }
        let (sender, receiver) = mpsc::channel();
        let mut results: Vec<Option<T>> = jobs.iter().map(|_| None).collect();
        let own = jobs.remove(0);
        {
            let mut queue = self.queue.jobs.lock();
            for (place, job) in jobs.into_iter().enumerate() {
                let sender = sender.clone();
                // The receiver waits for all, so that sending only fails after a panic over there.
                queue.0.push_back(Box::new(move || drop(sender.send((place + 1, job())))));
            }
        }
        drop(sender);
        self.queue.wake.notify_all();
        let first = own();
        for (place, result) in receiver {
            if let Some(known) = results.get_mut(place) {
                *known = Some(result);
            }
        }
        if let Some(known) = results.first_mut() {
            *known = Some(first);
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
