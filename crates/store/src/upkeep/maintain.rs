//! What an open folder does in the background, in the threads of its embedder.

use crate::head::shard::Shard;
use crate::{Store, StoreError};

impl Store {
    /// Does what is due of flushing, merging and uploading; to be called again at once while it returns `true`, else now and
    /// then. A caller with threads calls its three parts in one thread each, so that none waits for another.
    pub fn maintain(&self) -> Result<bool, StoreError> {
        self.maintain_all(false)
    }

    /// As [`Store::maintain`]; `is_forced` also what would wait for more rows.
    pub(crate) fn maintain_all(&self, is_forced: bool) -> Result<bool, StoreError> {
        let worked = self.maintain_heads()?;
        let worked = self.merge_parts(is_forced)? || worked;
        Ok(self.maintain_objects()? || worked)
    }

    /// Makes room in memory and in the log.
    pub fn maintain_heads(&self) -> Result<bool, StoreError> {
        self.observe_time();
        self.account();
        self.fill_reserve();
        let mut worked = self.flush_due()?;
        // Behind the flush, which may be what makes room for it.
        self.log.prepare()?;
        self.note_epochs()?;
        for shard in &self.shards {
            worked |= self.freeze_groups_if_due(shard)?;
        }
        Ok(worked)
    }

    /// Merges parts and index segments, drops what is past keeping.
    pub fn maintain_parts(&self) -> Result<bool, StoreError> {
        self.merge_parts(false)
    }

    pub(crate) fn merge_parts(&self, is_forced: bool) -> Result<bool, StoreError> {
        self.observe_time();
        // Reported at the end: what cannot be deleted must not keep merges from giving room back.
        let expired = self.delete_expired_rows();
        let moved = self.move_window_bounds(None, is_forced);
        let foldable = self.move_fold_bounds(is_forced);
        let worked = self.merge_what_is_there(is_forced)?;
        Ok(expired? || moved? || foldable? || worked)
    }

    /// As [`Store::maintain_parts`], but that no row goes by the TTL of its table: the guard of these may be the caller, and hold its locks.
    pub(crate) fn merge_what_is_there(&self, is_forced: bool) -> Result<bool, StoreError> {
        let mut worked = self.with_reserve(|| {
            Ok(self.drop_expired()? | self.empty_trash()? | self.drop_expired_epochs()? | self.empty_epoch_trash()?)
        })?;
        self.save_time_if_due()?;
        for shard in &self.shards {
            worked |= self.merge_if_due(shard, is_forced)?;
            worked |= self.merge_groups_if_due(shard)?;
        }
        worked |= self.merge_epochs()?;
        self.fit_partitions()?;
        // After the merges: a full disk, on which no copy can be written, must not keep them from giving room back.
        worked |= self.repair_index()?;
        Ok(worked)
    }

    /// Counts bytes that were written in the background, as a merge's are, and returns when more may be.
    pub fn pace_background(&self, bytes: u64) {
        self.throttle.wrote(bytes, &*self.platform.clock);
    }

    /// Flushes the fullest head if it is over its share of the budget, and the oldest if the log is over its.
    fn flush_due(&self) -> Result<bool, StoreError> {
        let head_bytes = |shard: &Shard| shard.state.lock().head.bytes();
        if let Some(fullest) = self.shards.iter().max_by_key(|shard| head_bytes(shard))
            && head_bytes(fullest) > self.head_bytes_max()
        {
            self.flush(fullest)?;
            return Ok(true);
        }
        if self.log.stats().bytes <= self.options.log_bytes_max {
            return Ok(false);
        }
        let oldest =
            self.shards.iter().filter_map(|shard| Some((shard.first_needed()?, shard))).min_by_key(|old| old.0);
        match oldest {
            Some((_, shard)) => self.flush(shard).map(|_| true),
            None => Ok(false),
        }
    }

    /// Flushes everything, so that the next opening has no log to read.
    pub fn flush_all(&self) -> Result<(), StoreError> {
        self.shards.iter().try_for_each(|shard| self.flush(shard).map(|_| ()))?;
        // Nothing may come any more, and nothing later would tell damage to the last record from a torn one.
        self.log.commit(self.log.last_sequence())?;
        self.log.note()
    }

    /// Lifts the rate limit of merges, and of what else is paced, for good: the store is about to be closed, and its caller waits for the merge under way.
    pub fn hurry_for_good(&self) {
        self.throttle.lift();
    }

    /// Flushes and merges everything there is to merge.
    pub fn compact_all(&self) -> Result<(), StoreError> {
        let _hurry = self.throttle.hurry();
        self.flush_all()?;
        while self.maintain_all(true)? {}
        Ok(())
    }

    /// Bytes of one shard's head at which it is flushed.
    pub(crate) fn head_bytes_max(&self) -> usize {
        self.memory.heads_bytes() as usize / self.shards.len().max(1)
    }
}
