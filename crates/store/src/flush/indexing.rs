//! A shard's index on disk: what is new is frozen and written as a segment, segments are merged.

use index::{FrozenGroups, Segment};

use crate::flush::segment::{self, segment_path};
use crate::head::shard::{Shard, ShardGroups};
use crate::manifest::Edit;
use crate::{Store, StoreError};

impl ShardGroups {
    /// Sets aside what no segment holds; what an earlier attempt could not write comes first.
    pub(crate) fn freeze(&mut self) -> Option<FrozenGroups> {
        let is_first = !self.groups.is_frozen();
        let frozen = self.groups.freeze();
        if is_first && frozen.is_some() {
            self.frozen_since = self.unsaved_since.take();
        }
        frozen
    }

    fn install(&mut self, segment: Segment) {
        self.groups.install_frozen(segment);
        self.frozen_since = None;
        self.old_segments.clear();
    }
}

/// A segment on disk that the manifest does not name yet, and what must be said for it to count.
pub(crate) struct NewSegment {
    segment: Segment,
    pub(crate) edits: Vec<Edit>,
    /// Files that it replaces.
    replaced: Vec<u64>,
}

impl Store {
    /// Writes frozen groups to a segment.
    pub(crate) fn write_groups(&self, shard: &Shard, frozen: &FrozenGroups) -> Result<NewSegment, StoreError> {
        let old = shard.groups.read().old_segments.clone();
        self.new_segment(shard, old, |sink| frozen.write(sink))
    }

    fn new_segment(
        &self,
        shard: &Shard,
        replaced: Vec<u64>,
        write: impl FnOnce(&mut dyn std::io::Write) -> Result<(), index::IndexError>,
    ) -> Result<NewSegment, StoreError> {
        let id = self.manifest.lock().take_id();
        let path = segment_path(&self.options.directory, id);
        // What was written of it goes at once: on a full disk it would keep the next attempt from succeeding.
        let segment =
            segment::write_groups(&*self.platform.files, &path, id, self.upkeep.index_copies().twin(id), write)
                .inspect_err(|_| self.remove_segment(id))?;
        let mut edits = vec![Edit::AddSegment { id, shard: Some(shard.number) }];
        edits.extend(replaced.iter().map(|id| Edit::RemoveSegment(*id)));
        Ok(NewSegment { segment, edits, replaced })
    }

    /// Puts a segment that the manifest names now in the place of the frozen groups.
    pub(crate) fn install_groups(&self, shard: &Shard, new: NewSegment) {
        shard.groups.write().install(new.segment);
        self.remove_segments(&new.replaced);
    }

    pub(crate) fn remove_segments(&self, ids: &[u64]) {
        ids.iter().for_each(|id| self.remove_segment(*id));
    }

    /// Writes a shard's groups to a segment when they have become many. Whether it did.
    pub(crate) fn freeze_groups_if_due(&self, shard: &Shard) -> Result<bool, StoreError> {
        if !shard.groups.read().groups.freeze_due() {
            return Ok(false);
        }
        let _flushing = self.flushing.lock();
        let frozen = shard.groups.write().freeze();
        let Some(frozen) = frozen else {
            return Ok(false);
        };
        // Groups name measurements by number: the records that tell of those must be durable first.
        self.log.commit(self.log.last_sequence())?;
        let new = self.write_groups(shard, &frozen)?;
        self.commit_edits(&new.edits)?;
        self.install_groups(shard, new);
        Ok(true)
    }

    /// Merges a shard's index segments when they have become many. Whether it did.
    pub(crate) fn merge_groups_if_due(&self, shard: &Shard) -> Result<bool, StoreError> {
        let _work = shard.work.lock();
        let job = shard.groups.read().groups.merge_due();
        let Some(job) = job else {
            return Ok(false);
        };
        let new = self.new_segment(shard, job.input_numbers().collect(), |sink| job.write(sink))?;
        self.commit_edits(&new.edits)?;
        shard.groups.write().groups.install_merged(&job, new.segment);
        self.remove_segments(&new.replaced);
        Ok(true)
    }
}
