//! The parts that a merge writes.

use std::collections::{BTreeMap, BTreeSet};

use codec::Effort;
use model::TimeRange;

use crate::chunk::{self, Rows, RowsColumn};
use crate::levels::{Job, Target};
use crate::part::{EncodedChunk, FileWriter, PartInfo, PartKey, PartWriter};
use crate::summary::{self, Nodes};
use crate::{Store, StoreError};

use super::rows::Gathered;

/// Parts that one merge writes at the same time: bounds open files and buffers. A merge of more goes over its inputs again.
const OUTPUTS_AT_ONCE: usize = 32;

/// Rows of a chunk on level 1, and on level 2 where large chunks cost less.
const CHUNK_ROWS: [usize; 2] = [1024, 4096];

/// The parts of one merge, as they are written.
pub(crate) struct Outputs<'a> {
    store: &'a Store,
    shard: u32,
    class: u32,
    job: &'a Job,
    /// Deletes up to this sequence id are carried out.
    deletes_through: u64,
    open: BTreeMap<(u8, i64), Output>,
    /// Partitions that earlier passes wrote.
    done: BTreeSet<(u8, i64)>,
    /// Whether rows were left for another pass.
    left: bool,
    /// Files begun so far.
    files: Vec<u64>,
}

struct Output {
    file: FileWriter,
    part: PartWriter,
}

/// A chunk and what the file needs to know of it.
struct Encoded {
    range: TimeRange,
    rows: u64,
    bytes: Vec<u8>,
}

impl<'a> Outputs<'a> {
    pub(crate) fn new(store: &'a Store, shard: u32, class: u32, job: &'a Job, deletes_through: u64) -> Self {
        Self {
            store,
            shard,
            class,
            job,
            deletes_through,
            open: BTreeMap::new(),
            done: BTreeSet::new(),
            left: false,
            files: Vec::new(),
        }
    }

    /// Cuts a key's rows at partitions and writes each piece into its part.
    pub(crate) fn push(&mut self, key: PartKey, gathered: &Gathered) -> Result<(), StoreError> {
        let rows = &gathered.rows;
        let mut from = 0;
        while let Some(timestamp_ns) = rows.timestamps_ns.get(from) {
            let target = self.job.placement.place(*timestamp_ns);
            let is_inside = |timestamp_ns: &i64| *timestamp_ns <= target.partition.end_ns;
            let to = from + rows.timestamps_ns[from..].partition_point(is_inside).max(1);
            if self.takes(&target) {
                self.push_piece(key, gathered, &target, from..to)?;
            }
            from = to;
        }
        Ok(())
    }

    fn takes(&mut self, target: &Target) -> bool {
        let place = (target.level, target.partition.start_ns);
        if self.open.contains_key(&place) {
            return true;
        }
        let is_new = !self.done.contains(&place);
        self.left |= is_new && self.open.len() >= OUTPUTS_AT_ONCE;
        is_new && self.open.len() < OUTPUTS_AT_ONCE
    }

    fn push_piece(
        &mut self,
        key: PartKey,
        gathered: &Gathered,
        target: &Target,
        places: std::ops::Range<usize>,
    ) -> Result<(), StoreError> {
        let piece = chunk::slice(&gathered.rows, places.start, places.end);
        let Some(range) = piece.range() else {
            return Ok(());
        };
        let nodes = self.nodes(gathered, &piece, &range);
        let piece = if self.job.fold_ns > 0 { thin(&piece, self.job.fold_ns) } else { piece };
        let sequences = gathered.sequences(&range);
        let encoded = encode(&piece, target.level, sequences);
        let chunks: Vec<EncodedChunk<'_>> = encoded
            .iter()
            .map(|chunk| EncodedChunk { range: chunk.range, sequences, rows: chunk.rows, bytes: &chunk.bytes })
            .collect();
        let summary = nodes.map(|nodes| {
            let mut bytes = Vec::new();
            summary::encode(&nodes, &mut bytes);
            bytes
        });
        let output = self.output(target)?;
        output.part.push(&mut output.file, key, &chunks, summary.as_deref())
    }

    /// The nodes of a piece: made of its samples, and where samples were folded of the nodes that replaced them.
    fn nodes(&self, gathered: &Gathered, piece: &Rows, range: &TimeRange) -> Option<Nodes> {
        let fold_ns = self.job.fold_ns;
        if fold_ns == 0 {
            let node_rows = self.store.options.node_rows_min;
            let width_ns = summary::choose_width(piece.timestamps_ns.len(), range, node_rows)?;
            return Some(Nodes::of_rows(piece, width_ns));
        }
        let mut nodes = Nodes { width_ns: fold_ns, columns: Vec::new() };
        gathered.folded.iter().for_each(|folded| nodes.merge(folded));
        let samples = gathered.unfolded.as_ref().unwrap_or(piece);
        nodes.merge(&Nodes::of_rows(samples, fold_ns));
        Some(nodes)
    }

    /// The part of a partition, begun when its first rows come.
    fn output(&mut self, target: &Target) -> Result<&mut Output, StoreError> {
        let place = (target.level, target.partition.start_ns);
        if !self.open.contains_key(&place) {
            let id = self.store.manifest.lock().take_id();
            self.files.push(id);
            let mut file = FileWriter::create(&*self.store.platform.files, self.store.part_path(id))?;
            let info = PartInfo {
                patch_of: target.patch_of,
                fold_ns: self.job.fold_ns,
                deletes_through: self.deletes_through,
                ..PartInfo::empty(id, self.shard, target.level, self.class, target.partition)
            };
            let part = PartWriter::begin(&mut file, info)?;
            self.open.insert(place, Output { file, part });
        }
        // Inserted just now if it was not there.
        self.open.get_mut(&place).ok_or_else(|| StoreError::Invalid("a merge lost one of its parts".to_owned()))
    }

    /// Closes what is open; whether that was all.
    pub(crate) fn finish(&mut self) -> Result<(Vec<PartInfo>, bool), StoreError> {
        let mut infos = Vec::new();
        for (place, mut output) in std::mem::take(&mut self.open) {
            infos.push(output.part.finish(&mut output.file)?);
            output.file.sync()?;
            self.done.insert(place);
        }
        Ok((infos, !std::mem::take(&mut self.left)))
    }

    /// Removes what was written.
    pub(crate) fn abandon(&mut self) {
        self.open.clear();
        self.files.iter().for_each(|id| self.store.remove_file(&self.store.part_path(*id)));
    }
}

fn encode(rows: &Rows, level: u8, sequences: (u64, u64)) -> Vec<Encoded> {
    let chunk_rows = CHUNK_ROWS[usize::from(level.clamp(1, 2) - 1)];
    // What settles is read rarely and kept long.
    let effort = if level < 2 { Effort::Fast } else { Effort::Small };
    let count = rows.timestamps_ns.len();
    let cut = |from: usize| {
        let piece = chunk::slice(rows, from, (from + chunk_rows).min(count));
        let mut bytes = Vec::new();
        chunk::encode_with(&piece, sequences, effort, &mut bytes);
        Some(Encoded { range: piece.range()?, rows: piece.timestamps_ns.len() as u64, bytes })
    };
    (0..count).step_by(chunk_rows).filter_map(cut).collect()
}

/// The last row of each fold, every member's last value in it.
fn thin(rows: &Rows, fold_ns: i64) -> Rows {
    let fold_of = |timestamp_ns: &i64| timestamp_ns.div_euclid(fold_ns);
    let mut kept: Vec<usize> = Vec::new();
    for column in &rows.columns {
        let mut last: Option<(i64, usize)> = None;
        for (row, timestamp_ns) in rows.timestamps_ns.iter().enumerate().filter(|(row, _)| !column.is_null(*row)) {
            let fold = fold_of(timestamp_ns);
            if let Some((_, place)) = last.filter(|(before, _)| *before != fold) {
                kept.push(place);
            }
            last = Some((fold, row));
        }
        kept.extend(last.map(|(_, place)| place));
    }
    kept.sort_unstable();
    kept.dedup();
    let mut thinned = rows.pick(&kept);
    let Rows { timestamps_ns, columns } = &mut thinned;
    columns.iter_mut().for_each(|column| keep_last(timestamps_ns, column, fold_of));
    thinned
}

/// Of a member's values in one fold only the last stays: another member's last row must not show an earlier one.
fn keep_last(timestamps_ns: &[i64], column: &mut RowsColumn, fold_of: impl Fn(&i64) -> i64) {
    let mut newer: Option<i64> = None;
    for (row, timestamp_ns) in timestamps_ns.iter().enumerate().rev() {
        if column.is_null(row) {
            continue;
        }
        let fold = fold_of(timestamp_ns);
        if newer == Some(fold) {
            column.clear(row, row + 1);
        }
        newer = Some(fold);
    }
}
