//! One request for a block, however many threads want it at once.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use platform::objects::{ObjectError, ObjectErrorKind};

use super::blocks::{Block, BlockKey, HashBlocks};

type Outcome = Result<Arc<Block>, ObjectError>;

/// Blocks that are being fetched.
#[derive(Default)]
pub(super) struct Flights {
    under_way: Mutex<HashMap<BlockKey, Arc<Flight>, HashBlocks>>,
}

/// One block on its way.
#[derive(Default)]
pub(super) struct Flight {
    outcome: Mutex<Option<Outcome>>,
    landed: Condvar,
}

impl Flight {
    /// Waits for the thread that fetches the block. Its requests are bounded in time, so this is.
    pub(super) fn wait(&self) -> Outcome {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            self.landed.wait(&mut outcome);
        }
    }
}

/// Blocks that this thread has to fetch. Those still open when it is dropped are given up, so that no thread waits forever.
pub(super) struct Claim<'a> {
    flights: &'a Flights,
    open: HashMap<BlockKey, Arc<Flight>, HashBlocks>,
}

impl Flights {
    /// Takes on those blocks that no thread fetches yet; the others can be waited for.
    pub(super) fn claim(&self, keys: impl Iterator<Item = BlockKey>) -> (Claim<'_>, Vec<(BlockKey, Arc<Flight>)>) {
        let mut under_way = self.under_way.lock();
        let mut claim = Claim { flights: self, open: HashMap::default() };
        let mut others = Vec::new();
        for key in keys {
            if let Some(flight) = under_way.get(&key) {
                others.push((key, flight.clone()));
            } else {
                let flight = Arc::new(Flight::default());
                under_way.insert(key, flight.clone());
                claim.open.insert(key, flight);
            }
        }
        (claim, others)
    }
}

impl Claim<'_> {
    /// Hands a block, or why there is none, to all who wait for it. Later readers must find it in the cache.
    pub(super) fn land(&mut self, key: &BlockKey, outcome: Outcome) {
        if let Some(flight) = self.open.remove(key) {
            self.flights.under_way.lock().remove(key);
            *flight.outcome.lock() = Some(outcome);
            flight.landed.notify_all();
        }
    }

    /// Gives up all blocks that are still open, for one reason.
    pub(super) fn fail(&mut self, error: &ObjectError) {
        let keys: Vec<BlockKey> = self.open.keys().copied().collect();
        keys.iter().for_each(|key| self.land(key, Err(error.clone())));
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.open.is_empty() {
            let message = "the thread that fetched it gave up";
            self.fail(&ObjectError::new(ObjectErrorKind::Other, "read a block of an object", message));
        }
    }
}
