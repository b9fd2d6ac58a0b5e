//! Joining parts: what was flushed goes into the parts of its partitions, in large chunks.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::chunk::{self, CHUNK_ROWS, Rows};
use crate::levels;
use crate::manifest::Edit;
use crate::part::{ChunkRef, Part, PartInfo, PartKey, PartWriter};
use crate::shard::Shard;
use crate::{Store, StoreError};

/// Partitions that one merge writes at the same time: bounds open files and buffers. A merge of more goes over its
/// inputs again.
const PARTITIONS_AT_ONCE: usize = 32;

impl Store {
    /// Merges a shard's flushed parts if there are many. Whether it did.
    pub(crate) fn merge_if_due(&self, shard: &Shard) -> Result<bool, StoreError> {
        let _work = shard.work.lock();
        let parts = shard.state.lock().parts.clone();
        let infos: Vec<PartInfo> = parts.iter().map(|part| part.info).collect();
        let Some(flushed) = levels::parts_to_merge(&infos, self.options.level0_parts_max) else {
            return Ok(false);
        };
        let partition_ns = self.options.partition_ns;
        let mut touched = BTreeSet::new();
        for part in parts.iter().filter(|part| flushed.contains(&part.info.id)) {
            for chunk in part.chunks()? {
                add_partitions(part, &chunk, partition_ns, &mut touched)?;
            }
        }
        let joined = levels::parts_touched(&infos, &touched, partition_ns);
        let is_input = |part: &&Arc<Part>| flushed.contains(&part.info.id) || joined.contains(&part.info.id);
        let inputs: Vec<Arc<Part>> = parts.iter().filter(is_input).cloned().collect();
        self.merge(shard, &inputs, &touched.into_iter().collect::<Vec<_>>())?;
        self.counters.merges.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    fn merge(&self, shard: &Shard, inputs: &[Arc<Part>], partitions: &[i64]) -> Result<(), StoreError> {
        let mut chunks: Vec<(usize, ChunkRef)> = Vec::new();
        for (place, part) in inputs.iter().enumerate() {
            chunks.extend(part.chunks()?.into_iter().map(|chunk| (place, chunk)));
        }
        chunks.sort_by_key(|(_, chunk)| (chunk.key, chunk.sequence_first));
        let mut outputs = Vec::new();
        for some in partitions.chunks(PARTITIONS_AT_ONCE) {
            outputs.extend(self.merge_partitions(shard, inputs, &chunks, some)?);
        }
        self.sync_folder("parts")?;
        let opened: Vec<Arc<Part>> = outputs.iter().map(|info| self.open_part(*info)).collect::<Result<_, _>>()?;
        let removed: BTreeSet<u64> = inputs.iter().map(|part| part.info.id).collect();
        let mut edits: Vec<Edit> = outputs.into_iter().map(Edit::AddPart).collect();
        edits.extend(removed.iter().map(|id| Edit::RemovePart(*id)));
        self.commit_edits(&edits)?;
        let mut state = shard.state.lock();
        let kept = state.parts.iter().filter(|part| !removed.contains(&part.info.id)).cloned();
        state.parts = Arc::new(kept.chain(opened).collect());
        drop(state);
        for id in removed {
            self.remove_file(&self.part_path(id));
        }
        Ok(())
    }

    /// Writes the parts of some partitions (sorted).
    fn merge_partitions(
        &self,
        shard: &Shard,
        inputs: &[Arc<Part>],
        chunks: &[(usize, ChunkRef)],
        partitions: &[i64],
    ) -> Result<Vec<PartInfo>, StoreError> {
        let mut outputs =
            Outputs { store: self, shard: shard.number, partitions, writers: BTreeMap::new(), ids: Vec::new() };
        let merged = outputs.write(inputs, chunks);
        // What was written goes at once: on a full disk it would keep the next attempt from succeeding.
        merged.inspect_err(|_| outputs.ids.iter().for_each(|id| self.remove_file(&self.part_path(*id))))
    }
}

/// The parts of some partitions, as they are written.
struct Outputs<'a> {
    store: &'a Store,
    shard: u32,
    /// Sorted. Rows of others are another pass's.
    partitions: &'a [i64],
    writers: BTreeMap<i64, PartWriter>,
    /// Parts begun so far.
    ids: Vec<u64>,
}

impl Outputs<'_> {
    fn write(&mut self, inputs: &[Arc<Part>], chunks: &[(usize, ChunkRef)]) -> Result<Vec<PartInfo>, StoreError> {
        let (partitions, partition_ns) = (self.partitions, self.store.options.partition_ns);
        let wanted = |chunk: &ChunkRef| {
            let first = levels::partition_start(chunk.range.start_ns, partition_ns);
            let from = partitions.partition_point(|start| *start < first);
            partitions.get(from).is_some_and(|start| *start <= chunk.range.end_ns)
        };
        for of_key in chunks.chunk_by(|a, b| a.1.key == b.1.key) {
            let mut pieces = Vec::new();
            let mut sequences = (u64::MAX, 0);
            for (place, chunk) in of_key.iter().filter(|(_, chunk)| wanted(chunk)) {
                let (header, rows) = inputs[*place].read(chunk, None)?;
                sequences = (sequences.0.min(header.sequences.0), sequences.1.max(header.sequences.1));
                pieces.push(rows);
            }
            if let Some((_, first)) = of_key.first() {
                self.push(first.key, &chunk::merge(&pieces), sequences)?;
            }
        }
        std::mem::take(&mut self.writers).into_values().map(PartWriter::finish).collect()
    }

    /// Cuts rows at partitions and at the size of a chunk.
    fn push(&mut self, key: PartKey, rows: &Rows, sequences: (u64, u64)) -> Result<(), StoreError> {
        let partition_ns = self.store.options.partition_ns;
        let mut from = 0;
        while let Some(timestamp_ns) = rows.timestamps_ns.get(from) {
            let start = levels::partition_start(*timestamp_ns, partition_ns);
            let is_inside = |timestamp: &i64| levels::partition_start(*timestamp, partition_ns) == start;
            let to = from + rows.timestamps_ns[from..].partition_point(is_inside).min(CHUNK_ROWS);
            if self.partitions.binary_search(&start).is_ok() {
                let piece = chunk::slice(rows, from, to);
                let mut bytes = Vec::new();
                chunk::encode(&piece, sequences, &mut bytes);
                let range = model::TimeRange::new(*timestamp_ns, rows.timestamps_ns[to - 1]);
                self.writer(start)?.push(key, range, sequences, &bytes)?;
            }
            from = to;
        }
        Ok(())
    }

    /// The part of a partition, begun when its first rows come.
    fn writer(&mut self, start: i64) -> Result<&mut PartWriter, StoreError> {
        match self.writers.entry(start) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(vacant) => {
                let id = self.store.manifest.lock().take_id();
                self.ids.push(id);
                let path = self.store.part_path(id);
                let writer = PartWriter::create(&*self.store.platform.files, path, id, self.shard, 1)?;
                Ok(vacant.insert(writer))
            }
        }
    }
}

/// Adds the partitions that a chunk has rows in. One odd timestamp must not stand for all of time between: where the
/// ends are in different partitions, the timestamps are read.
fn add_partitions(
    part: &Part,
    chunk: &ChunkRef,
    partition_ns: i64,
    touched: &mut BTreeSet<i64>,
) -> Result<(), StoreError> {
    let ends = [chunk.range.start_ns, chunk.range.end_ns].map(|end| levels::partition_start(end, partition_ns));
    touched.extend(ends);
    if ends[0] != ends[1] {
        let (_, rows) = part.read(chunk, Some(&[]))?;
        touched.extend(rows.timestamps_ns.iter().map(|timestamp| levels::partition_start(*timestamp, partition_ns)));
    }
    Ok(())
}
