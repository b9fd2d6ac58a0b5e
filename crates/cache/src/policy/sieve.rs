//! SIEVE: a queue by arrival, a bit for each slab, and a hand that spares once what was read.

use std::collections::{BTreeMap, HashMap};

use super::Policy;

/// See the module.
#[derive(Debug, Default)]
pub struct Sieve {
    /// By arrival, and whether it was read since the hand last passed.
    queue: BTreeMap<u64, (u32, bool)>,
    arrivals: HashMap<u32, u64>,
    arrived: u64,
    hand: u64,
}

impl Policy for Sieve {
    fn insert(&mut self, slab: u32, _time: i64) {
        self.remove(slab);
        self.arrived += 1;
        self.arrivals.insert(slab, self.arrived);
        self.queue.insert(self.arrived, (slab, false));
    }

    fn touch(&mut self, slab: u32) {
        let arrival = self.arrivals.get(&slab);
        if let Some((_, is_read)) = arrival.and_then(|arrival| self.queue.get_mut(arrival)) {
            *is_read = true;
        }
    }

    fn evict(&mut self) -> Option<u32> {
        // The second round finds all bits taken away.
        for _ in 0..2 {
            let mut victim = None;
            for (arrival, (slab, is_read)) in self.queue.range_mut(self.hand..) {
                if !*is_read {
                    victim = Some((*arrival, *slab));
                    break;
                }
                *is_read = false;
            }
            if let Some((arrival, slab)) = victim {
                self.hand = arrival + 1;
                self.remove(slab);
                return Some(slab);
            }
            self.hand = 0;
        }
        // Behind the hand nothing was unread, and before it everything was: all bits are gone now.
        let (_, (slab, _)) = self.queue.pop_first()?;
        self.arrivals.remove(&slab);
        Some(slab)
    }

    fn remove(&mut self, slab: u32) {
        if let Some(arrival) = self.arrivals.remove(&slab) {
            self.queue.remove(&arrival);
        }
    }
}
