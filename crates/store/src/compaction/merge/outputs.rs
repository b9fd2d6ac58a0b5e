//! The parts that a merge writes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use index::RoaringBitmap;
use model::{STALE_NAN_BITS, TimeRange, ValueType};

use crate::compaction::{CompactionJob, Placement, Target};
use crate::part::chunk::{self, Rows, RowsColumn};
use crate::part::summary::{self, Nodes};
use crate::part::{EncodedChunk, FileWriter, PartInfo, PartKey, PartWriter};
use crate::{Store, StoreError};

use super::nodes;
use super::rows::{Copied, KeyRows};

/// Parts that one merge writes at the same time: bounds open files and buffers. A merge of more goes over its inputs again.
const OUTPUTS_AT_ONCE: usize = 32;

/// The parts of one merge, as they are written.
pub(crate) struct Outputs<'a> {
    store: &'a Store,
    shard: u32,
    class: u32,
    job: &'a CompactionJob,
    /// Deletes up to this sequence id are carried out.
    deletes_through: u64,
    /// Groups that are not folded.
    unfolded: RoaringBitmap,
    open: BTreeMap<(u8, i64), Output>,
    /// Partitions that earlier passes wrote.
    done: BTreeSet<(u8, i64)>,
    /// True if rows were left for another pass.
    left: bool,
    /// Files begun so far.
    files: Vec<u64>,
}

struct Output {
    file: FileWriter,
    part: PartWriter,
}

/// What goes into a part, piece by piece in order of time.
pub(super) enum Segment<'a> {
    Copied(&'a Copied),
    /// Places of rows.
    Rows(Range<usize>),
}

/// Cuts rows where they go elsewhere and where copied chunks lie between them: what goes into one part is one run, in order of time.
fn cut<'a>(gathered: &'a KeyRows, placement: &Placement) -> Vec<(Target, Segment<'a>)> {
    let timestamps_ns = &gathered.rows.timestamps_ns;
    let mut copies = gathered.copied.iter().peekable();
    let mut segments: Vec<(Target, Segment<'a>)> = Vec::new();
    let mut from = 0;
    loop {
        let next_ns = timestamps_ns.get(from).copied();
        let is_next = |copied: &&Copied| next_ns.is_none_or(|next_ns| copied.range.start_ns < next_ns);
        if let Some(copied) = copies.next_if(is_next) {
            segments.push((placement.target(copied.range.start_ns).0, Segment::Copied(copied)));
            continue;
        }
        let Some(next_ns) = next_ns else {
            break;
        };
        let (target, until_ns) = placement.target(next_ns);
        let copied_ns = copies.peek().map_or(i64::MAX, |copied| copied.range.start_ns);
        let is_inside = |timestamp_ns: &i64| *timestamp_ns <= until_ns && *timestamp_ns <= copied_ns;
        let to = from + timestamps_ns[from..].partition_point(is_inside).max(1);
        segments.push((target, Segment::Rows(from..to)));
        from = to;
    }
    // A partition of level 2 may lie on both sides of one that stays on level 1.
    segments.sort_by_key(|(target, _)| (target.level, target.partition.start_ns));
    segments
}

/// A chunk and what the file needs to know of it.
struct Encoded<'a> {
    range: TimeRange,
    sequences: (u64, u64),
    rows: u64,
    bytes: Cow<'a, [u8]>,
}

impl Encoded<'_> {
    fn as_written(&self) -> EncodedChunk<'_> {
        EncodedChunk { range: self.range, sequences: self.sequences, rows: self.rows, bytes: &self.bytes }
    }
}

impl<'a> Outputs<'a> {
    pub(crate) fn new(
        store: &'a Store,
        (shard, class): (u32, u32),
        job: &'a CompactionJob,
        (deletes_through, unfolded): (u64, RoaringBitmap),
    ) -> Self {
        Self {
            store,
            shard,
            class,
            job,
            deletes_through,
            unfolded,
            open: BTreeMap::new(),
            done: BTreeSet::new(),
            left: false,
            files: Vec::new(),
        }
    }

    /// The job: the inputs, and where their rows go.
    pub(crate) fn job(&self) -> &'a CompactionJob {
        self.job
    }

    /// Cuts a key's rows at partitions and copied chunks, and writes what belongs together into its part.
    pub(crate) fn push(&mut self, key: PartKey, gathered: &KeyRows) -> Result<(), StoreError> {
        let segments = cut(gathered, &self.job.placement);
        for of_target in segments.chunk_by(|a, b| a.0 == b.0) {
            if let Some((target, _)) = of_target.first()
                && self.takes(target)
            {
                self.push_piece(key, gathered, target, of_target)?;
            }
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
        gathered: &KeyRows,
        target: &Target,
        segments: &[(Target, Segment<'_>)],
    ) -> Result<(), StoreError> {
        let mut chunks: Vec<Encoded<'_>> = Vec::with_capacity(segments.len());
        let fold_ns = self.fold_ns(key, gathered);
        for (_, segment) in segments {
            match segment {
                Segment::Copied(copied) => chunks.push(Encoded {
                    range: copied.range,
                    sequences: copied.sequences,
                    rows: copied.rows as u64,
                    bytes: Cow::Borrowed(&copied.bytes),
                }),
                Segment::Rows(places) => {
                    let Some(range) = gathered.rows.range_of(places) else {
                        continue;
                    };
                    let sequences = gathered.sequences(&range);
                    if fold_ns > 0 {
                        let piece = chunk::slice(&gathered.rows, places.start, places.end);
                        let piece = thin(&piece, fold_ns);
                        chunks.extend(encode(&piece, 0..piece.timestamps_ns.len(), target.level, sequences));
                    } else {
                        chunks.extend(encode(&gathered.rows, places.clone(), target.level, sequences));
                    }
                }
            }
        }
        let copied = segments.iter().filter(|(_, segment)| matches!(segment, Segment::Copied(_))).count();
        self.store.counters.merged_chunks(copied as u64, (chunks.len() - copied) as u64);
        let summary = self.summary(fold_ns, gathered, segments)?;
        let chunks: Vec<EncodedChunk<'_>> = chunks.iter().map(Encoded::as_written).collect();
        if chunks.is_empty() {
            return Ok(());
        }
        let bytes: usize = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        let output = self.output(target)?;
        output.part.push(&mut output.file, key, &chunks, summary.as_deref())?;
        self.store.throttle.wrote(bytes as u64, &*self.store.platform.clock);
        Ok(())
    }

    /// The nodes of what goes into one part, encoded: made of its samples, and where samples were folded of the nodes that replaced
    /// them.
    fn summary(
        &self,
        fold_ns: i64,
        gathered: &KeyRows,
        segments: &[(Target, Segment<'_>)],
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let count = |segment: &Segment<'_>| match segment {
            Segment::Copied(copied) => (copied.rows, copied.range),
            Segment::Rows(places) => {
                let at = |place: usize| gathered.rows.timestamps_ns.get(place).copied().unwrap_or_default();
                (places.len(), TimeRange::new(at(places.start), at(places.end.saturating_sub(1))))
            }
        };
        let sizes: Vec<(usize, TimeRange)> = segments.iter().map(|(_, segment)| count(segment)).collect();
        let (Some((_, first)), Some((_, last))) = (sizes.first(), sizes.last()) else {
            return Ok(None);
        };
        let (rows, range) = (sizes.iter().map(|(rows, _)| rows).sum(), TimeRange::new(first.start_ns, last.end_ns));
        let width_ns = match fold_ns {
            // Nodes in a part that is folded stand for folds.
            0 if self.job.fold_ns > 0 => None,
            0 => summary::choose_width(rows, &range, self.store.options.node_rows_min),
            fold_ns => Some(fold_ns),
        };
        let Some(width_ns) = width_ns else {
            return Ok(None);
        };
        let nodes = if fold_ns == 0 {
            nodes::of_segments(gathered, segments, width_ns)?
        } else {
            folded(gathered, segments, fold_ns)?
        };
        let mut bytes = Vec::new();
        summary::encode(&nodes, &mut bytes);
        Ok(Some(bytes))
    }

    /// The width of the folds of a key; 0: its samples stay as they are.
    fn fold_ns(&self, key: PartKey, gathered: &KeyRows) -> i64 {
        if !self.unfolded.contains(key.group) {
            return self.job.fold_ns;
        }
        gathered.folded.iter().map(|nodes| nodes.width_ns).max().unwrap_or(0)
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
            let replaces: Vec<u64> = self.job.inputs.iter().copied().collect();
            let part = PartWriter::begin(&mut file, self.store.label(info, &replaces, &[]))?;
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

fn encode(rows: &Rows, places: Range<usize>, level: u8, sequences: (u64, u64)) -> Vec<Encoded<'static>> {
    let encoded = |places: Range<usize>| {
        let (range, rows_count) = (rows.range_of(&places)?, places.len() as u64);
        let mut bytes = Vec::new();
        chunk::encode(rows, places, sequences, chunk::effort_of(level), &mut bytes);
        Some(Encoded { range, sequences, rows: rows_count, bytes: Cow::Owned(bytes) })
    };
    chunk::cut_evenly(places, level).filter_map(encoded).collect()
}

/// The nodes of samples that are folded, and those that replaced others before.
fn folded(gathered: &KeyRows, segments: &[(Target, Segment<'_>)], fold_ns: i64) -> Result<Nodes, StoreError> {
    let mut nodes = Nodes { width_ns: fold_ns, columns: Vec::new() };
    gathered.folded.iter().for_each(|folded| nodes.merge(folded));
    if let Some(unfolded) = &gathered.unfolded {
        nodes.merge(&Nodes::of_folded(unfolded, fold_ns));
        return Ok(nodes);
    }
    let mut pieces = Vec::with_capacity(segments.len());
    for (_, segment) in segments {
        pieces.push(match segment {
            Segment::Rows(places) => chunk::slice(&gathered.rows, places.start, places.end),
            Segment::Copied(copied) => copied.decode()?,
        });
    }
    nodes.merge(&Nodes::of_folded(&chunk::join(pieces), fold_ns));
    Ok(nodes)
}

/// The last row of each fold, with every member's last value in it, and a stale marker after that.
fn thin(rows: &Rows, fold_ns: i64) -> Rows {
    let of_column = |column: &RowsColumn| last_cells(&rows.timestamps_ns, column, fold_ns);
    let of_columns: Vec<Vec<usize>> = rows.columns.iter().map(of_column).collect();
    let mut kept = of_columns.concat();
    kept.sort_unstable();
    kept.dedup();
    let mut thinned = rows.pick(&kept);
    // Another member's last row must not show an earlier value.
    for (column, of_column) in thinned.columns.iter_mut().zip(&of_columns) {
        for (place, row) in kept.iter().enumerate() {
            if of_column.binary_search(row).is_err() && !column.is_null(place) {
                column.clear(place, place + 1);
            }
        }
    }
    thinned
}

/// The rows with a member's last value of each fold, and with a stale marker if one comes after it.
fn last_cells(timestamps_ns: &[i64], column: &RowsColumn, fold_ns: i64) -> Vec<usize> {
    let is_stale = |row: usize| column.value_type == ValueType::F64 && column.cells.get(row) == Some(&STALE_NAN_BITS);
    let mut cells: Vec<usize> = Vec::new();
    // The fold whose cells were seen last, and whether a value was among them.
    let mut later: Option<(i64, bool)> = None;
    for (row, timestamp_ns) in timestamps_ns.iter().enumerate().rev().filter(|(row, _)| !column.is_null(*row)) {
        let (fold, is_value) = (timestamp_ns.div_euclid(fold_ns), !is_stale(row));
        let known = later.filter(|(of_later, _)| *of_later == fold).map(|(_, has_value)| has_value);
        if known.is_none() || known == Some(false) && is_value {
            cells.push(row);
            later = Some((fold, is_value));
        }
    }
    cells.reverse();
    cells
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Of a fold each member's last value is left, and a stale marker after it.
    #[test]
    fn last_values_are_left_of_folds() {
        let column = |slot, cells: &[Option<f64>]| {
            let mut column = RowsColumn::new(slot, ValueType::F64);
            cells.iter().for_each(|cell| column.push(cell.map(f64::to_bits)));
            column
        };
        let stale = f64::from_bits(STALE_NAN_BITS);
        let a = column(1, &[Some(1.0), Some(2.0), Some(stale), None, Some(4.0), Some(5.0)]);
        let b = column(2, &[Some(1.0), Some(2.0), None, None, Some(stale), None]);
        let rows = Rows { timestamps_ns: vec![0, 1, 2, 3, 10, 11], columns: vec![a, b] };
        let left = thin(&rows, 10);
        assert_eq!(left.timestamps_ns, [1, 2, 10, 11]);
        let shown = |column: &RowsColumn| -> Vec<Option<u64>> {
            (0..4).map(|row| (!column.is_null(row)).then(|| column.cells[row])).collect()
        };
        let [of_a, of_b] = [&left.columns[0], &left.columns[1]].map(shown);
        assert_eq!(of_a, [Some(2.0f64.to_bits()), Some(STALE_NAN_BITS), None, Some(5.0f64.to_bits())]);
        assert_eq!(of_b, [Some(2.0f64.to_bits()), None, Some(STALE_NAN_BITS), None]);
    }

    proptest! {
        /// Every row goes where it would go alone, each part gets one run of segments, and nothing is left out.
        #[test]
        fn rows_are_cut_where_they_go_elsewhere(
            times in proptest::collection::btree_set(0i64..1200, 1..60),
            fast_start_ns in 0i64..1000,
            settled_start_ns in 0i64..1000,
        ) {
            let placement = Placement::ByAge {
                fast_partition_length_ns: 10,
                fast_from_ns: 1000,
                level2_lengths_ns: vec![40, 640],
                level1_bases: vec![(TimeRange::new(fast_start_ns, fast_start_ns + 29), 1)],
                level2_bases: vec![(TimeRange::new(settled_start_ns, settled_start_ns + 99), 2)],
            };
            let timestamps_ns: Vec<i64> = times.into_iter().collect();
            let rows = Rows { timestamps_ns: timestamps_ns.clone(), ..Rows::default() };
            let mut gathered = KeyRows::default();
            gathered.rows = rows;
            let mut places = Vec::new();
            let segments = cut(&gathered, &placement);
            for (target, segment) in &segments {
                let Segment::Rows(range) = segment else { unreachable!("no chunk is copied") };
                for place in range.clone() {
                    prop_assert_eq!(placement.target(timestamps_ns[place]).0, *target);
                    places.push(place);
                }
            }
            let targets: BTreeSet<_> = segments.iter().map(|(target, _)| (target.level, target.partition.start_ns)).collect();
            prop_assert_eq!(segments.chunk_by(|a, b| a.0 == b.0).count(), targets.len());
            places.sort_unstable();
            prop_assert!(places.into_iter().eq(0..timestamps_ns.len()));
        }
    }
}
