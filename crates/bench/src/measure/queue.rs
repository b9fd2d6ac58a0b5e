//! Requests that wait to be sent, bounded by their bytes.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::workload::requests::Request;

/// Lanes of requests: each is taken in order. Senders may share a lane.
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    bytes_max: usize,
}

struct State {
    lanes: Vec<VecDeque<Request>>,
    bytes: usize,
    /// Nothing more will be put in.
    complete: bool,
    /// Nothing more is taken out.
    stopped: bool,
}

impl Queue {
    pub(crate) fn new(lanes: usize, bytes_max: usize) -> Self {
        let state = State {
            lanes: (0..lanes.max(1)).map(|_| VecDeque::new()).collect(),
            bytes: 0,
            complete: false,
            stopped: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), bytes_max }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the bytes that wait have reached the limit.
    pub(crate) fn is_full(&self) -> bool {
        self.lock().bytes >= self.bytes_max
    }

    /// Puts a request in as soon as there is room. False if no sender is left.
    pub(crate) fn push(&self, request: Request) -> bool {
        let mut state = self.lock();
        while state.bytes >= self.bytes_max && !state.stopped {
            state = self.wait(state);
        }
        if state.stopped {
            return false;
        }
        state.bytes += request.body.len();
        let lanes = state.lanes.len();
        if let Some(lane) = state.lanes.get_mut(request.lane % lanes) {
            lane.push_back(request);
        }
        self.changed.notify_all();
        true
    }

    /// The next request of a lane; none when all are taken or sending was stopped.
    pub(crate) fn pop(&self, lane: usize) -> Option<Request> {
        let mut state = self.lock();
        loop {
            let lanes = state.lanes.len();
            if state.stopped {
                return None;
            }
            if let Some(request) = state.lanes.get_mut(lane % lanes).and_then(VecDeque::pop_front) {
                state.bytes -= request.body.len();
                self.changed.notify_all();
                return Some(request);
            }
            if state.complete {
                return None;
            }
            state = self.wait(state);
        }
    }

    /// Says that all requests are in.
    pub(crate) fn complete(&self) {
        self.lock().complete = true;
        self.changed.notify_all();
    }

    /// Ends it for both sides.
    pub(crate) fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(lane: usize, bytes: usize) -> Request {
        Request { body: vec![0; bytes], rows: 1, values: 1, first_row: 0, lane }
    }

    #[test]
    fn lanes_keep_their_order_and_end() {
        let queue = Queue::new(2, 100);
        assert!([(0, 1), (1, 2), (2, 3)].iter().all(|(lane, bytes)| queue.push(request(*lane, *bytes))));
        queue.complete();
        let sizes = |lane| std::iter::from_fn(|| queue.pop(lane)).map(|request| request.body.len()).collect::<Vec<_>>();
        assert_eq!((sizes(0), sizes(1)), (vec![1, 3], vec![2]));
    }

    #[test]
    fn a_full_queue_waits_and_a_stopped_one_refuses() {
        let queue = Queue::new(1, 10);
        assert!(queue.push(request(0, 10)) && queue.is_full());
        std::thread::scope(|scope| {
            let pushing = scope.spawn(|| queue.push(request(0, 10)));
            assert_eq!(queue.pop(0).map(|request| request.body.len()), Some(10));
            assert!(pushing.join().unwrap(), "room was made");
            let refused = scope.spawn(|| queue.push(request(0, 10)));
            queue.stop();
            assert!(!refused.join().unwrap());
        });
        assert!(queue.pop(0).is_none());
    }
}
