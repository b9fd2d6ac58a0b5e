//! Requests that add samples, of all connections: one thread runs those that have come, another waits for the disk, once for all that ran
//! meanwhile, and lets their replies go.

use std::io;
use std::sync::Arc;
use std::thread;

use redis::{Flow, Ran, Service};
use tokio::sync::{mpsc, oneshot};

use super::Connection;

/// Connections that wait for the thread; more wait before they enter.
const WAITING_MAX: usize = 1_024;

/// Connections whose requests are run before the disk is waited for.
const TOGETHER_MAX: usize = 64;

/// A connection whose requests seem to add samples.
pub(super) struct Job {
    pub(super) connection: Box<Connection>,
    pub(super) done: oneshot::Sender<Ended>,
}

/// What became of it.
pub(super) enum Ended {
    /// Its requests ran, and what they wrote is on disk.
    Ran(Box<Connection>, Flow),
    /// It has other requests, which were read and not run.
    Others(Box<Connection>),
}

/// A job that ran and is not on disk yet.
struct Unsynced {
    job: Job,
    ran: Ran,
    /// Where its replies begin.
    begun: usize,
}

/// Starts both threads. They end when nothing can send them jobs any more.
pub(super) fn start(service: Arc<Service>) -> io::Result<mpsc::Sender<Job>> {
    let (sender, jobs) = mpsc::channel(WAITING_MAX);
    let (unsynced, to_sync) = mpsc::channel(WAITING_MAX);
    let syncing = service.clone();
    thread::Builder::new().name("redis-sync".to_owned()).spawn(move || sync(&syncing, to_sync))?;
    thread::Builder::new().name("redis-add".to_owned()).spawn(move || run(&service, jobs, &unsynced))?;
    Ok(sender)
}

/// The next jobs: one at least; `None` at the end.
fn next_of<T>(jobs: &mut mpsc::Receiver<T>) -> Option<Vec<T>> {
    let mut next = vec![jobs.blocking_recv()?];
    while next.len() < TOGETHER_MAX
        && let Ok(job) = jobs.try_recv()
    {
        next.push(job);
    }
    Some(next)
}

fn run(service: &Service, mut jobs: mpsc::Receiver<Job>, unsynced: &mpsc::Sender<Vec<Unsynced>>) {
    while let Some(next) = next_of(&mut jobs) {
        let mut ran = Vec::with_capacity(next.len());
        for mut job in next {
            let connection = &mut *job.connection;
            connection.parse();
            let requests = (connection.input.as_slice(), connection.requests.as_slice());
            if !service.is_adds(&connection.session, requests) || !redis::Access::is_signed_in(&connection.account) {
                // The connection is gone if nothing waits for it.
                let _ = job.done.send(Ended::Others(job.connection));
                continue;
            }
            let begun = connection.out.bytes().len();
            let done =
                service.run_unsynced(&mut connection.session, &mut connection.account, requests, &mut connection.out);
            ran.push(Unsynced { job, ran: done, begun });
        }
        if !ran.is_empty() && unsynced.blocking_send(ran).is_err() {
            return;
        }
    }
}

fn sync(service: &Service, mut to_sync: mpsc::Receiver<Vec<Unsynced>>) {
    while let Some(next) = next_of(&mut to_sync) {
        for Unsynced { mut job, ran, begun } in next.into_iter().flatten() {
            let connection = &mut *job.connection;
            let flow = service.commit(&ran, (&connection.requests, begun), &mut connection.out);
            let flow = connection.end(flow);
            let _ = job.done.send(Ended::Ran(job.connection, flow));
        }
    }
}
