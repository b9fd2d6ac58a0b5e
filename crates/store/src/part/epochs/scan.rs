//! Scanning the values of neighbouring indexes epoch by epoch, as they lie, for those who compute something of all series.

use model::TimeRange;

use super::block::{BLOCK_SLOTS, Block};
use super::definition::EpochKind;
use super::regular::BlockReader;
use crate::{Store, StoreError};

/// The values of an epoch for neighbouring indexes.
#[derive(Clone, Copy)]
pub struct EpochSlots<'a> {
    block: &'a Block,
    kind: EpochKind,
}

impl std::fmt::Debug for EpochSlots<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("EpochSlots").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl EpochSlots<'_> {
    /// Indexes of a block; the first of block `n` is `n` times as large.
    pub const COUNT: usize = BLOCK_SLOTS;

    /// The values of all slots, if none is without one: integers, or the bits of floats.
    pub fn all(&self) -> Option<&[i64]> {
        self.block.all()
    }

    /// A value of [`Self::all`] as a number.
    pub fn number(&self, bits: i64) -> f64 {
        match self.kind {
            EpochKind::Int => bits as f64,
            EpochKind::Float => f64::from_bits(bits as u64),
        }
    }

    /// Returns whether values are integers.
    pub const fn is_int(&self) -> bool {
        matches!(self.kind, EpochKind::Int)
    }

    /// Visits slots with values, and these, in order.
    pub fn each(&self, mut visit: impl FnMut(usize, f64)) {
        self.block.each(|slot, bits| visit(slot, self.number(bits)));
    }
}

impl Store {
    /// Visits what a block of a regular database has in the epochs of a range, in order of time; epochs in which it has nothing are left out.
    pub fn scan_epochs(
        &self,
        database: &str,
        block: u32,
        range: &TimeRange,
        visit: &mut dyn FnMut(i64, EpochSlots<'_>),
    ) -> Result<(), StoreError> {
        let regular = self.regular_database(database)?;
        let definition = regular.definition();
        let epochs = self.kept_epochs(&regular, range);
        let mut reader = BlockReader::new(definition);
        for (epoch, records) in regular.records_in(epochs) {
            if reader.read(&records, block)? {
                visit(definition.time_of(epoch), EpochSlots { block: &reader.block, kind: definition.kind });
            }
        }
        Ok(())
    }
}
