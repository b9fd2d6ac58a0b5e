//! What a merge reads of one key.

use std::sync::Arc;

use model::TimeRange;

use crate::StoreError;
use crate::compaction::CompactionJob;
use crate::part::chunk::{self, ChunkHeader, DecodeTarget, Rows};
use crate::part::summary::{self, Nodes};
use crate::part::{KeyCursor, KeyEntry, Part, PartKey};
use crate::retention::deletes::Delete;

use super::copy::{self, Candidate};
use super::nodes::PartNodes;

/// What the parts have of one key, oldest first, before anything is decoded.
#[derive(Default)]
pub(crate) struct Sources {
    chunks: Vec<Chunk>,
    /// Summaries instead of samples, of parts that were folded; none of their own rows' samples are missing in them.
    folded: Vec<Nodes>,
    /// From the first to the last row of each part.
    ranges: Vec<TimeRange>,
    /// Of parts that have summaries beside all of their samples.
    nodes: Vec<PartNodes>,
}

/// A chunk of one part.
struct Chunk {
    part: Arc<Part>,
    range: TimeRange,
    offset: u64,
    bytes: Vec<u8>,
    header: ChunkHeader,
    /// The level as whose chunks it is encoded.
    encoded_level: u8,
    is_masked: bool,
    /// True if its rows are the last ones of folds, and not samples.
    is_fold: bool,
}

/// A chunk that is taken over as it is.
pub(crate) struct Copied {
    pub(crate) range: TimeRange,
    pub(crate) rows: usize,
    pub(crate) sequences: (u64, u64),
    pub(crate) bytes: Vec<u8>,
    part: Arc<Part>,
    offset: u64,
}

impl Copied {
    /// Its rows.
    pub(crate) fn decode(&self) -> Result<Rows, StoreError> {
        let decoded = chunk::decode(&self.bytes, None).map_err(|error| self.part.corrupt(self.offset, &error));
        decoded.map(|(_, rows)| rows)
    }
}

/// All of a key that a merge has, oldest first.
#[derive(Default)]
pub(crate) struct KeyRows {
    /// All rows but those of `copied`, whose time they do not overlap.
    pub(crate) rows: Rows,
    /// In order of time.
    pub(crate) copied: Vec<Copied>,
    /// What parts that no other overlaps have in nodes, in order of time.
    pub(crate) alone: Vec<PartNodes>,
    /// What parts that were folded hold instead of samples.
    pub(crate) folded: Vec<Nodes>,
    /// Rows of parts that were not folded: what is to be added to the nodes. `None` if that is all of `rows`.
    pub(crate) unfolded: Option<Rows>,
    ranges: Vec<(TimeRange, (u64, u64))>,
}

impl Sources {
    /// Reads what a part has of a key.
    pub(crate) fn read(
        &mut self,
        cursor: &mut KeyCursor,
        entry: &KeyEntry,
        deletes: &[Delete],
    ) -> Result<(), StoreError> {
        let part = cursor.part().clone();
        let touching: Vec<&Delete> = deletes.iter().filter(|delete| delete.touches(&entry.key, &part.info)).collect();
        // A flush encodes as level 1 wants it, but for what it made nodes of: that as level 2 does.
        let encoded_level = match part.info.level {
            0 if entry.summary.is_some() => 2,
            level => level.max(1),
        };
        for chunk in &entry.chunks {
            let bytes = cursor.read(chunk.handle)?;
            let offset = chunk.handle.offset;
            let header = chunk::check(&bytes).map_err(|error| part.corrupt(offset, &error))?;
            let is_masked = touching.iter().any(|delete| delete.range.overlaps(&chunk.range));
            let (part, range) = (part.clone(), chunk.range);
            let is_fold = part.info.fold_ns > 0 && entry.summary.is_some();
            self.chunks.push(Chunk { part, range, offset, bytes, header, encoded_level, is_masked, is_fold });
        }
        let first = self.chunks.len() - entry.chunks.len();
        let of_part = self.chunks.get(first..).unwrap_or_default();
        let both = |a: TimeRange, b: TimeRange| TimeRange::new(a.start_ns.min(b.start_ns), a.end_ns.max(b.end_ns));
        let range = of_part.iter().map(|chunk| chunk.range).reduce(both);
        self.ranges.extend(range);
        let Some(handle) = entry.summary else {
            return Ok(());
        };
        let bytes = cursor.read(handle)?;
        let mut nodes = summary::decode(&bytes, None).map_err(|error| part.corrupt(handle.offset, &error))?;
        if part.info.fold_ns > 0 {
            nodes = nodes.with_rows();
            nodes.retain(|slot, last_ns| !touching.iter().any(|delete| delete.takes_node(&entry.key, slot, last_ns)));
            self.folded.push(nodes);
        } else if let Some(range) = range.filter(|_| of_part.iter().all(|chunk| !chunk.is_masked)) {
            let rows = of_part.iter().map(|chunk| chunk.header.rows).sum();
            self.nodes.push(PartNodes { range, rows, nodes });
        }
        Ok(())
    }

    /// Which chunks are taken over as they are.
    fn copied(&self, job: &CompactionJob) -> Vec<bool> {
        let is_folding = job.fold_ns > 0 || self.chunks.iter().any(|chunk| chunk.part.info.fold_ns > 0);
        if is_folding {
            return vec![false; self.chunks.len()];
        }
        let candidate = |chunk: &Chunk| {
            let (target, until_ns) = job.placement.target(chunk.range.start_ns);
            let is_inside = chunk.range.end_ns <= until_ns;
            // A full buffer makes chunks that are too long.
            let is_encoded = chunk.encoded_level == target.level
                && chunk.header.rows <= chunk::rows_max(target.level)
                && chunk.part.has_summaries();
            Candidate {
                range: chunk.range,
                rows: chunk.header.rows,
                target,
                is_eligible: is_inside && is_encoded && !chunk.is_masked,
            }
        };
        copy::choose(&self.chunks.iter().map(candidate).collect::<Vec<_>>(), chunk::rows_max)
    }

    /// What chunks that are not copied are decoded onto.
    fn onto(&self, copied: &[bool]) -> DecodeTarget {
        let decoded = self.chunks.iter().zip(copied).filter(|(_, is_copied)| !**is_copied);
        let lengths = decoded.map(|(chunk, _)| chunk.range.end_ns.wrapping_sub(chunk.range.start_ns) as u64);
        let (chunks, length_ns) =
            lengths.fold((0, 0u64), |(chunks, sum), length_ns| (chunks + 1, sum.saturating_add(length_ns)));
        DecodeTarget { chunks, length_ns, ..DecodeTarget::default() }
    }

    /// Joins what the parts have.
    pub(crate) fn join(self, key: &PartKey, deletes: &[Delete], job: &CompactionJob) -> Result<KeyRows, StoreError> {
        let copied = self.copied(job);
        let mut onto = self.onto(&copied);
        let any_folded = !self.folded.is_empty();
        let mut gathered = KeyRows { folded: self.folded, ..KeyRows::default() };
        gathered.alone = self.nodes;
        PartNodes::retain_alone(&mut gathered.alone, &self.ranges);
        let mut unfolded = Vec::new();
        for (chunk, is_copied) in self.chunks.into_iter().zip(copied) {
            let Chunk { part, range, offset, bytes, header, is_masked, is_fold, .. } = chunk;
            if is_copied {
                let (rows, sequences) = (header.rows, header.sequences);
                gathered.copied.push(Copied { range, rows, sequences, bytes, part, offset });
                continue;
            }
            // Chunks that follow one another are decoded as one piece, which need not be joined.
            let last_ns = onto.blocks.last().and_then(|rows| rows.timestamps_ns.last());
            onto.goes_on = !is_masked && !any_folded && last_ns.is_none_or(|last_ns| *last_ns < range.start_ns);
            chunk::decode_into(&bytes, None, &mut onto).map_err(|error| part.corrupt(offset, &error))?;
            gathered.ranges.push((range, header.sequences));
            let Some(rows) = onto.blocks.last_mut() else { continue };
            if is_masked {
                let touching = deletes.iter().filter(|delete| delete.touches(key, &part.info));
                touching.for_each(|delete| delete.apply(key, rows));
            }
            if any_folded && !is_fold {
                unfolded.push(rows.clone());
            }
        }
        gathered.copied.sort_by_key(|copied| copied.range.start_ns);
        gathered.rows = chunk::join(onto.blocks);
        gathered.unfolded = any_folded.then(|| chunk::join(unfolded));
        Ok(gathered)
    }
}

impl KeyRows {
    /// Smallest and largest sequence id of the rows in a range, judged by whole chunks.
    pub(crate) fn sequences(&self, range: &TimeRange) -> (u64, u64) {
        let touching = self.ranges.iter().filter(|(of_chunk, _)| of_chunk.overlaps(range));
        let joined = touching.map(|(_, sequences)| *sequences).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        joined.unwrap_or((0, 0))
    }
}
