//! The query's budget as DataFusion's memory pool.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use datafusion::common::DataFusionError;
use datafusion::execution::memory_pool::{MemoryPool, MemoryReservation};
use query::{Budget, QueryError};

/// Bytes that a sample of the budget stands for.
const SAMPLE_BYTES: usize = 16;

/// Bytes that DataFusion's operators hold, taken out of the budget as samples.
#[derive(Debug)]
pub(crate) struct BudgetPool {
    budget: Arc<Budget>,
    reservation: Mutex<Reservation>,
}

#[derive(Debug, Default)]
struct Reservation {
    bytes: usize,
    /// Those of the budget.
    samples: usize,
    /// Why there was no room the last time that there was none.
    refused: Option<QueryError>,
}

impl BudgetPool {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, reservation: Mutex::new(Reservation::default()) }
    }

    /// Why there was no room, if there was none: operators that cannot do with less say so in words of their own.
    pub(crate) fn refused(&self) -> Option<QueryError> {
        self.reservation.lock().unwrap_or_else(PoisonError::into_inner).refused.clone()
    }

    /// Holds so many bytes more. Without room for them they count only if they `must`.
    fn add(&self, bytes: usize, must: bool) -> Result<(), QueryError> {
        let mut reservation = self.reservation.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = reservation.bytes.saturating_add(bytes).div_ceil(SAMPLE_BYTES);
        let reserved = self.budget.take(wanted.saturating_sub(reservation.samples));
        if reserved.is_ok() {
            reservation.samples = reservation.samples.max(wanted);
        }
        if let Err(error) = &reserved {
            reservation.refused = Some(error.clone());
        }
        if reserved.is_ok() || must {
            reservation.bytes = reservation.bytes.saturating_add(bytes);
        }
        reserved
    }
}

impl MemoryPool for BudgetPool {
    fn name(&self) -> &'static str {
        "query budget"
    }

    fn grow(&self, _: &MemoryReservation, additional: usize) {
        // It cannot be refused; the next that can be is.
        let _ = self.add(additional, true);
    }

    fn shrink(&self, _: &MemoryReservation, shrink: usize) {
        let mut reservation = self.reservation.lock().unwrap_or_else(PoisonError::into_inner);
        reservation.bytes = reservation.bytes.saturating_sub(shrink);
        let wanted = reservation.bytes.div_ceil(SAMPLE_BYTES);
        let spare = reservation.samples.saturating_sub(wanted);
        reservation.samples -= spare;
        self.budget.give_back(spare);
    }

    fn try_grow(&self, _: &MemoryReservation, additional: usize) -> Result<(), DataFusionError> {
        self.add(additional, false).map_err(|error| DataFusionError::External(Box::new(error)))
    }

    fn reserved(&self) -> usize {
        self.reservation.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

impl fmt::Display for BudgetPool {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "query budget ({} bytes held)", self.reserved())
    }
}

impl Drop for BudgetPool {
    fn drop(&mut self) {
        let reservation = self.reservation.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.budget.give_back(reservation.samples);
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::memory_pool::MemoryConsumer;

    use super::*;

    #[test]
    fn bytes_are_taken_out_of_the_budget_and_given_back() {
        let budget = Arc::new(Budget::new(10));
        let refusing = Arc::new(BudgetPool::new(budget.clone()));
        let pool: Arc<dyn MemoryPool> = refusing.clone();
        let first = MemoryConsumer::new("first").register(&pool);
        let second = MemoryConsumer::new("second").register(&pool);
        first.try_grow(100).unwrap();
        assert_eq!((pool.reserved(), budget.samples()), (100, 7));
        second.try_grow(60).unwrap();
        assert_eq!(budget.samples(), 10);
        assert!(second.try_grow(1).is_err());
        assert_eq!(refusing.refused(), Some(QueryError::TooManySamples { limit: 10 }));
        first.shrink(50);
        assert_eq!((pool.reserved(), budget.samples()), (110, 7));
        // More than there is, which cannot be refused, is given back as far as it was taken.
        first.grow(1000);
        assert_eq!((pool.reserved(), budget.samples()), (1110, 7));
        drop((first, second));
        assert_eq!(pool.reserved(), 0);
        drop((pool, refusing));
        assert_eq!(budget.samples(), 0);
    }
}
