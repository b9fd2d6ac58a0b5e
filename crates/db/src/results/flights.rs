//! Expressions within queries that are being evaluated: whoever needs one of them meanwhile waits for it.
//!
//! ```text
//!  sum(rate(x[5m])) ── evaluates ──► rate(x[5m]) ──► memory ──┐
//!  max(rate(x[5m])) ── waits ───────────────────────────────► takes it from there
//! ```
//!
//! Nobody waits for somebody who waits for him, directly or through others, and nobody for long: who has waited in vain evaluates himself. A
//! query that ends, however it does, ends what it was evaluating.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cache::{Key, Span};
use parking_lot::{Condvar, Mutex};
use query::QueryError;

/// Expressions that are being evaluated at a time; for others nobody waits.
const FLIGHTS_MAX: usize = 4096;
/// From one look at whether who waits was stopped to the next.
const LOOK: Duration = Duration::from_millis(10);

/// A query that evaluates, or waits.
pub(super) type Number = u64;

/// What is being evaluated of a key.
#[derive(Debug)]
struct Flight {
    owner: Number,
    span: Span,
    /// Stretches of it that are not done.
    stretches: usize,
}

#[derive(Debug, Default)]
struct Flying {
    by_key: HashMap<Key, Flight>,
    /// Who waits for whom.
    waits: HashMap<Number, Number>,
}

impl Flying {
    /// Whether somebody waits, directly or through others, for another.
    fn waits_for(&self, waiting: Number, other: Number) -> bool {
        let next = |number: &Number| self.waits.get(number).copied();
        // Each waits for one at most, and none for himself in the end: this ends.
        std::iter::successors(Some(waiting), next).take(self.waits.len() + 1).any(|number| number == other)
    }

    fn owner(&self, key: Key, span: Span) -> Option<Number> {
        self.by_key.get(&key).filter(|flight| flight.span.overlaps(&span)).map(|flight| flight.owner)
    }
}

/// All that is being evaluated.
#[derive(Debug, Default)]
pub(super) struct Flights {
    flying: Mutex<Flying>,
    /// Something ended, or somebody began to wait.
    changed: Condvar,
    numbers: AtomicU64,
}

impl Flights {
    /// A number for one more query.
    pub(super) fn number(&self) -> Number {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Waits until nobody else evaluates anything of a span any more, for so many looks of [`LOOK`] at most. `false` at once if nobody does, or whoever does waits
    /// for the one who asks. `check` fails if that one was stopped.
    pub(super) fn wait(
        &self,
        number: Number,
        (key, span): (Key, Span),
        looks_max: u32,
        check: &dyn Fn() -> Result<(), QueryError>,
    ) -> Result<bool, QueryError> {
        let mut flying = self.flying.lock();
        let Some(owner) = flying.owner(key, span) else { return Ok(false) };
        if flying.waits_for(owner, number) {
            return Ok(false);
        }
        flying.waits.insert(number, owner);
        self.changed.notify_all();
        let (mut looks, mut checked) = (0, Ok(()));
        while checked.is_ok() && flying.owner(key, span) == Some(owner) && looks < looks_max {
            looks += u32::from(self.changed.wait_for(&mut flying, LOOK).timed_out());
            // It may take long: others get the lock.
            checked = parking_lot::MutexGuard::unlocked(&mut flying, check);
        }
        flying.waits.remove(&number);
        checked.map(|()| true)
    }

    /// Says that so many stretches of a span are being evaluated from now on, unless somebody else evaluates something of the key.
    pub(super) fn begin(&self, owner: Number, (key, span): (Key, Span), stretches: usize) {
        let mut flying = self.flying.lock();
        if flying.by_key.len() < FLIGHTS_MAX && stretches > 0 {
            flying.by_key.entry(key).or_insert(Flight { owner, span, stretches });
        }
    }

    /// One of a key's stretches is done.
    pub(super) fn end_one(&self, owner: Number, key: Key) {
        let mut flying = self.flying.lock();
        let Some(flight) = flying.by_key.get_mut(&key).filter(|flight| flight.owner == owner) else { return };
        flight.stretches = flight.stretches.saturating_sub(1);
        if flight.stretches == 0 {
            flying.by_key.remove(&key);
            self.changed.notify_all();
        }
    }

    /// The query has ended.
    pub(super) fn end(&self, owner: Number) {
        let mut flying = self.flying.lock();
        let before = flying.by_key.len();
        flying.by_key.retain(|_, flight| flight.owner != owner);
        if flying.by_key.len() < before {
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use query::Stop;

    use super::*;

    const LONG: u32 = u32::MAX;
    const SPAN: Span = Span::new(0, 100);

    fn key(text: &str) -> Key {
        Key::of_statement(text)
    }

    /// Returns when so many wait.
    fn until_waiting(flights: &Flights, count: usize) {
        let mut flying = flights.flying.lock();
        while flying.waits.len() < count {
            flights.changed.wait(&mut flying);
        }
    }

    fn wait(flights: &Flights, number: Number, text: &str) -> bool {
        flights.wait(number, (key(text), SPAN), LONG, &|| Ok(())).unwrap()
    }

    #[test]
    fn others_wait_until_all_stretches_are_done_or_the_query_ends() {
        let flights = Flights::default();
        for ends_early in [false, true] {
            let owner = flights.number();
            flights.begin(owner, (key("a"), SPAN), 2);
            assert!(!wait(&flights, owner + 100, "b"));
            assert!(!flights.wait(99, (key("a"), Span::new(100, 200)), LONG, &|| Ok(())).unwrap(), "another span");
            let is_done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for number in 10..14 {
                    let (flights, is_done) = (&flights, &is_done);
                    scope.spawn(move || {
                        assert!(wait(flights, number, "a"));
                        assert!(is_done.load(Ordering::Acquire), "before it was done");
                    });
                }
                until_waiting(&flights, 4);
                if ends_early {
                    is_done.store(true, Ordering::Release);
                    flights.end(owner);
                } else {
                    flights.end_one(owner, key("a"));
                    flights.end_one(77, key("a"));
                    is_done.store(true, Ordering::Release);
                    flights.end_one(owner, key("a"));
                }
            });
            let flying = flights.flying.lock();
            assert!(flying.by_key.is_empty() && flying.waits.is_empty(), "{flying:?}");
        }
    }

    #[test]
    fn who_is_waited_for_does_not_wait_for_the_same() {
        let flights = Flights::default();
        for (owner, text) in [(1, "a"), (2, "b"), (3, "c")] {
            flights.begin(owner, (key(text), SPAN), 1);
        }
        assert!(!wait(&flights, 1, "a"), "for himself");
        std::thread::scope(|scope| {
            let flights = &flights;
            scope.spawn(move || {
                assert!(wait(flights, 1, "b"));
                flights.end(1);
            });
            until_waiting(flights, 1);
            assert!(!wait(flights, 2, "a"), "each for the other");
            scope.spawn(move || {
                assert!(wait(flights, 2, "c"));
                flights.end(2);
            });
            until_waiting(flights, 2);
            assert!(!wait(flights, 3, "a") && !wait(flights, 3, "b"), "in a circle");
            flights.end(3);
        });
        assert!(flights.flying.lock().by_key.is_empty());
    }

    #[test]
    fn who_was_stopped_or_has_waited_long_goes_on() {
        let flights = Flights::default();
        flights.begin(1, (key("a"), SPAN), 1);
        assert!(flights.wait(2, (key("a"), SPAN), 0, &|| Ok(())).unwrap());
        let stopped = || Err(QueryError::Stopped(Stop::Cancelled));
        assert!(flights.wait(2, (key("a"), SPAN), LONG, &stopped).is_err());
        assert!(flights.flying.lock().waits.is_empty());
        flights.begin(2, (key("a"), SPAN), 1);
        flights.end(2);
        assert_eq!(flights.flying.lock().owner(key("a"), SPAN), Some(1), "it was his first");
    }
}
