//! Everything that would happen in its own time, now.

use crate::{Progress, Store, StoreError};

/// What compacting did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CompactReport {
    /// Merges carried out meanwhile.
    pub merges: u64,
    /// Bytes of all parts before and after.
    pub bytes: (u64, u64),
    /// Parts before and after.
    pub parts: (u64, u64),
    /// Deletes whose rows were still on disk, before and after.
    pub deletes: (u64, u64),
}

impl Store {
    /// Flushes, merges until nothing is left to merge, and so carries out all deletes. Reads and writes go on.
    pub fn compact(&self, tell: &mut dyn FnMut(&Progress)) -> Result<CompactReport, StoreError> {
        tell(&Progress { what: "flushing".to_owned(), ..Progress::default() });
        let _hurry = self.throttle.hurry();
        self.flush_all()?;
        let before = self.stats();
        let deletes_before = self.deletes_pending();
        loop {
            let worked = self.maintain_all(true)?;
            let stats = self.stats();
            let merges = stats.merges - before.merges;
            let bytes = stats.part_bytes_written - before.part_bytes_written;
            tell(&Progress { what: format!("merging ({merges} merges)"), bytes, bytes_total: 0 });
            if !worked {
                break;
            }
        }
        let after = self.stats();
        let bytes = |stats: &crate::Stats| stats.levels.iter().map(|level| level.bytes).sum();
        let parts = |stats: &crate::Stats| stats.levels.iter().map(|level| level.parts).sum();
        Ok(CompactReport {
            merges: after.merges - before.merges,
            bytes: (bytes(&before), bytes(&after)),
            parts: (parts(&before), parts(&after)),
            deletes: (deletes_before, self.deletes_pending()),
        })
    }

    pub(crate) fn deletes_pending(&self) -> u64 {
        self.shards.iter().map(|shard| shard.parts_and_deletes().1.len() as u64).sum()
    }
}
