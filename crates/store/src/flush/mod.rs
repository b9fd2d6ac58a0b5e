//! From head to part: freeze, make the log durable that far, write, commit, release.

pub(crate) mod index_copies;
pub(crate) mod indexing;
pub(crate) mod sections;
pub(crate) mod segment;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use index::{FrozenGroups, UnsavedCatalog};

use crate::head::shard::{Frozen, Shard};
use crate::manifest::Edit;
use crate::part::Part;
use crate::{Store, StoreError};

/// Segments of the catalog that are joined into one when there are more.
const SEGMENTS_MAX: usize = 8;

/// Index entries that no segment holds yet, on their way to disk, and the first log records that tell of them.
#[derive(Default)]
struct Unsaved {
    catalog: UnsavedCatalog,
    catalog_since: Option<u64>,
    groups: Option<FrozenGroups>,
}

/// What a flush did.
pub(crate) struct Flushed {
    /// Rows up to this sequence id are in parts.
    through: u64,
    /// True if it wrote what an earlier one could not.
    was_left_over: bool,
}

impl Store {
    /// Writes a shard's head to parts. Reads see its rows all the time; writes go to a new head. Rows up to the returned sequence
    /// id are in parts. Merges go on meanwhile: what they take away is older.
    pub(crate) fn flush(&self, shard: &Shard) -> Result<u64, StoreError> {
        // Flushes of different shards share the catalog's entries: their segments must have the order of the entries, and
        // the log may be released only when no entry is on its way.
        let _flushing = self.flushing.lock();
        self.flush_held(shard)
    }

    /// Flushes a shard whose head is larger than so many bytes, unless another flush has done that meanwhile.
    pub(crate) fn flush_if_over(&self, shard: &Shard, bytes: usize) -> Result<(), StoreError> {
        let _flushing = self.flushing.lock();
        let is_over = shard.state.lock().head.bytes() > bytes;
        if is_over { self.flush_held(shard).map(|_| ()) } else { Ok(()) }
    }

    /// As [`Store::flush`]; the caller holds `flushing`.
    pub(crate) fn flush_held(&self, shard: &Shard) -> Result<u64, StoreError> {
        loop {
            // What an earlier flush could not write is not what was in the head when this one began.
            if let Flushed { through, was_left_over: false } = self.flush_once(shard)? {
                return Ok(through);
            }
        }
    }

    /// Once; the caller holds `flushing`.
    pub(crate) fn flush_once(&self, shard: &Shard) -> Result<Flushed, StoreError> {
        let _under_way = self.ingestor.pressure().begin();
        let (frozen, was_left_over) = self.freeze(shard);
        let flushed = Flushed { through: frozen.sequence, was_left_over };
        let unsaved = self.take_unsaved(shard);
        if frozen.head.is_empty() && unsaved.catalog.is_empty() && unsaved.groups.is_none() {
            shard.thaw(Vec::new());
            return Ok(flushed);
        }
        // Rows may stand in a part only once their record is on disk: else a crash could keep half of a request.
        let written = self.log.commit(frozen.sequence).and_then(|()| self.write_flush(shard, &frozen, &unsaved));
        match written {
            Ok(parts) => shard.thaw(parts),
            Err(error) => {
                self.put_back(unsaved);
                return Err(error);
            }
        }
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        // The next opening must find the records after it in the log: a file that could not be written is ignored then.
        let _ = self.save_journal();
        self.release_log()?;
        Ok(flushed)
    }

    /// Sets the head aside; one that an earlier flush could not write comes first, which is said with it.
    fn freeze(&self, shard: &Shard) -> (Arc<Frozen>, bool) {
        let mut state = shard.state.lock();
        if let Some(frozen) = &state.frozen {
            return (frozen.clone(), true);
        }
        // Under the shard's lock every record that touches the shard is in the log and in the head, or in neither.
        let sequence = self.log.last_sequence();
        let successor = state.head.successor(self.head_bytes_max());
        let head = std::mem::replace(&mut state.head, successor);
        let frozen = Arc::new(Frozen { head, sequence });
        state.frozen = Some(frozen.clone());
        (frozen, false)
    }

    fn take_unsaved(&self, shard: &Shard) -> Unsaved {
        let mut catalog = self.catalog.write();
        let mut groups = shard.groups.write();
        Unsaved {
            catalog: catalog.catalog.take_unsaved(),
            catalog_since: catalog.unsaved_since.take(),
            groups: groups.freeze(),
        }
    }

    /// Frozen groups stay frozen until they are written.
    fn put_back(&self, unsaved: Unsaved) {
        let mut catalog = self.catalog.write();
        catalog.catalog.put_back_unsaved(unsaved.catalog);
        catalog.unsaved_since = earlier(unsaved.catalog_since, catalog.unsaved_since);
    }

    fn write_flush(&self, shard: &Shard, frozen: &Frozen, unsaved: &Unsaved) -> Result<Vec<Arc<Part>>, StoreError> {
        let mut edits = Vec::new();
        let mut obsolete = Vec::new();
        if !unsaved.catalog.is_empty() {
            self.write_catalog(&unsaved.catalog, &mut edits, &mut obsolete)?;
        }
        let groups = unsaved.groups.as_ref().map(|frozen| self.write_groups(shard, frozen)).transpose()?;
        edits.extend(groups.iter().flat_map(|groups| groups.edits.clone()));
        let infos = self.write_parts(shard, &frozen.head, &edits)?;
        let parts = infos.iter().map(|info| self.open_part(*info)).collect::<Result<Vec<_>, _>>()?;
        edits.extend(infos.into_iter().map(Edit::AddPart));
        edits.push(Edit::Flushed { shard: shard.number, sequence: frozen.sequence });
        edits.extend(self.idle_shards(shard.number, frozen.sequence));
        self.commit_at_trusted_time(&mut edits)?;
        if let Some(groups) = groups {
            self.install_groups(shard, groups);
        }
        self.remove_segments(&obsolete);
        Ok(parts)
    }

    /// Says of other shards without rows in memory that all of theirs are in parts: then it is known of every record of the log
    /// whether it is still needed.
    fn idle_shards(&self, flushed: u32, sequence: u64) -> Vec<Edit> {
        let known = self.manifest.lock().state.flushed.clone();
        let is_behind = |shard: &&Shard| known.get(&shard.number).is_none_or(|known| *known < sequence);
        // Records up to the sequence id that touch a shard are in its head and its index in memory, or in files.
        let is_idle = |shard: &&Shard| shard.number != flushed && shard.first_needed().is_none();
        let others = self.shards.iter().filter(is_behind).filter(is_idle);
        others.map(|shard| Edit::Flushed { shard: shard.number, sequence }).collect()
    }

    /// Writes the catalog's new entries as a segment; when there are many segments, everything as one that replaces them.
    fn write_catalog(
        &self,
        new: &UnsavedCatalog,
        edits: &mut Vec<Edit>,
        obsolete: &mut Vec<u64>,
    ) -> Result<(), StoreError> {
        let (id, others) = {
            let mut manifest = self.manifest.lock();
            let of_catalog = |(_, owner): &(&u64, &Option<u32>)| owner.is_none();
            let others: Vec<u64> = manifest.state.segments.iter().filter(of_catalog).map(|(id, _)| *id).collect();
            (manifest.take_id(), others)
        };
        let path = segment::segment_path(&self.options.directory, id);
        edits.push(Edit::AddSegment { id, shard: None });
        let mut entries = Vec::new();
        if others.len() < SEGMENTS_MAX {
            self.catalog.read().catalog.encode_unsaved(new, &mut entries);
            return segment::write_catalog(&*self.platform.files, &path, &entries);
        }
        self.catalog.read().catalog.encode_all(&mut entries);
        segment::write_catalog(&*self.platform.files, &path, &entries)?;
        edits.extend(others.iter().map(|id| Edit::RemoveSegment(*id)));
        obsolete.extend(others);
        Ok(())
    }

    /// Gives up log segments that neither a head nor the index needs any more.
    fn release_log(&self) -> Result<(), StoreError> {
        // Read first: a record that comes while the shards are asked one after another is beyond it.
        let next = self.log.last_sequence() + 1;
        let needed = self.shards.iter().filter_map(Shard::first_needed).min();
        let unsaved = self.catalog.read().unsaved_since;
        let needed = [needed, unsaved, Some(next)].into_iter().flatten().min().unwrap_or(next);
        let holds_log = self.ingestor.exemplars_unsaved_since().is_some_and(|since| since < needed);
        if holds_log {
            self.save_exemplars()?;
        }
        let holds_log = self.ingestor.producers_unsaved_since().is_some_and(|since| since < needed);
        if holds_log {
            self.save_producers()?;
        }
        let unsaved = [self.ingestor.exemplars_unsaved_since(), self.ingestor.producers_unsaved_since()];
        let needed = unsaved.into_iter().flatten().fold(needed, u64::min);
        match self.log.releasable(needed) {
            Some(through) => self.release_segments(through),
            None => Ok(()),
        }
    }
}

fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    [a, b].into_iter().flatten().min()
}
