//! The parts that a flush writes: one file, a part for each partition of time and retention class.

use std::collections::BTreeMap;
use std::ops::Range;

use index::DatabaseId;
use model::TimeRange;

use crate::compaction::{self, Lengths, Level2Grid};
use crate::head::shard::Shard;
use crate::head::{FlushBlock, Head, SealedChunk};
use crate::manifest::Edit;
use crate::part::chunk::{self, Rows};
use crate::part::summary;
use crate::part::{EncodedChunk, FileWriter, PartInfo, PartKey, PartWriter};
use crate::{Store, StoreError};

/// A class and a partition of time.
type Section = (u32, i64, i64);

/// What goes into the parts: keys in order, the chunks of each oldest first.
type Sections = BTreeMap<Section, Vec<(PartKey, SectionChunk)>>;

/// A chunk of some rows of a key.
struct SectionChunk {
    sealed: SealedChunk,
    /// With the first chunk of rows that are encoded as level 2 has them. Boxed: most chunks have none, and there may be millions.
    summary: Option<Box<Summary>>,
}

/// The nodes of a chunk and of those after it.
struct Summary {
    chunks: usize,
    bytes: Vec<u8>,
}

impl From<SealedChunk> for SectionChunk {
    fn from(sealed: SealedChunk) -> Self {
        Self { sealed, summary: None }
    }
}

impl Store {
    /// Writes a head's rows to a file of parts, which will be committed with edits.
    pub(crate) fn write_parts(&self, shard: &Shard, head: &Head, edits: &[Edit]) -> Result<Vec<PartInfo>, StoreError> {
        let sections = self.sections(shard, head)?;
        if sections.is_empty() {
            return Ok(Vec::new());
        }
        let file_id = self.manifest.lock().take_id();
        let path = self.part_path(file_id);
        let written = self.write_sections(shard.number, file_id, sections, edits);
        // What was written of it goes at once: on a full disk it would keep the next attempt from succeeding.
        let infos = written.inspect_err(|_| self.remove_file(&path))?;
        self.sync_folder("parts")?;
        self.counters.wrote_parts(&infos);
        Ok(infos)
    }

    fn sections(&self, shard: &Shard, head: &Head) -> Result<Sections, StoreError> {
        let mut contents = head.contents();
        let mut keys: Vec<PartKey> = Vec::new();
        {
            let index = shard.groups.read();
            for (group, block) in contents.keys() {
                let place = index.groups.family(group).map_err(StoreError::index(&self.options.directory))?;
                // Rows of groups that are removed go with them.
                keys.extend(place.map(|(database, measurement)| PartKey { database, measurement, group, block }));
            }
        }
        // Rows of neighbours among the groups came together and lie together: gathered in this order a row's cache line and page
        // serve the next groups too. By key, where the series of a metric are far apart, every row would be a miss.
        keys.sort_unstable_by_key(|key| (key.group, key.block));
        keys.dedup();
        let classes = self.classes();
        let mut grids: BTreeMap<u32, Grid> = BTreeMap::new();
        let mut sections = Sections::new();
        let count = keys.len();
        for (done, key) in keys.into_iter().enumerate() {
            self.ingestor.pressure().report(done, count);
            let class = class_of(&classes, key.database);
            let grid = &*grids.entry(class).or_insert_with(|| self.grid(shard, head, class));
            let pieces = contents.blocks(key.group, key.block);
            // Of several pieces one may rewrite what is in another. Which is older must follow from the partition alone then, not from
            // how many rows a piece has: a part's number says it.
            // It takes longer, too: a merge has the time that writers who wait for the flush do not have.
            let may_write_level2 = pieces.len() == 1 && !self.ingestor.pressure().is_awaited();
            let grid = Cutting { grid, may_write_level2 };
            for piece in pieces {
                let mut put = |partition: TimeRange, piece: SectionChunk| {
                    let section = (class, partition.start_ns, partition.end_ns);
                    sections.entry(section).or_default().push((key, piece));
                };
                match piece {
                    FlushBlock::Sealed(sealed) if grid.grid.is_inside_one(&sealed.range) => {
                        put(grid.grid.partition_of(sealed.range.start_ns), sealed.into());
                    }
                    FlushBlock::Sealed(sealed) => {
                        let decoded = chunk::decode(&sealed.bytes, None);
                        let (_, rows) = decoded.map_err(|error| StoreError::in_head(&error))?;
                        grid.cut(&rows, sealed.sequences, &mut put);
                    }
                    FlushBlock::Rows(rows, sequences) => grid.cut(&rows, sequences, &mut put),
                }
            }
        }
        // Stable: the pieces of a key stay in order of age.
        sections.values_mut().for_each(|pieces| pieces.sort_by_key(|(key, _)| *key));
        Ok(sections)
    }

    fn write_sections(
        &self,
        shard: u32,
        file_id: u64,
        sections: Sections,
        edits: &[Edit],
    ) -> Result<Vec<PartInfo>, StoreError> {
        let mut file = FileWriter::create(&*self.platform.files, self.part_path(file_id))?;
        let mut infos = Vec::with_capacity(sections.len());
        for ((class, start_ns, end_ns), pieces) in sections {
            // The first part has the file's number.
            let id = if infos.is_empty() { file_id } else { self.manifest.lock().take_id() };
            let partition = TimeRange::new(start_ns, end_ns);
            let info = PartInfo { file: file_id, ..PartInfo::empty(id, shard, 0, class, partition) };
            let mut part = PartWriter::begin(&mut file, self.label(info, &[], edits))?;
            for of_key in pieces.chunk_by(|a, b| a.0 == b.0) {
                let encoded: Vec<EncodedChunk<'_>> = of_key.iter().map(|(_, piece)| piece.sealed.encoded()).collect();
                // Nodes are those of all rows that a part has of a key, or there are none.
                let summary = of_key.first().and_then(|(_, piece)| piece.summary.as_deref());
                let summary = summary.filter(|summary| summary.chunks == of_key.len());
                let summary = summary.map(|summary| summary.bytes.as_slice());
                if let Some((key, _)) = of_key.first() {
                    part.push(&mut file, *key, &encoded, summary)?;
                }
            }
            infos.push(part.finish(&mut file)?);
        }
        file.sync()?;
        Ok(infos)
    }

    /// How time is cut for a flush: short partitions for what is new, long ones for what is late.
    fn grid(&self, shard: &Shard, head: &Head, class: u32) -> Grid {
        let now_ns = self.trusted_now_ns();
        let (parts, _) = shard.parts_and_deletes();
        let flushed_ns = parts.iter().map(|part| part.info.range.end_ns).max();
        let newest_ns = flushed_ns.max(head.newest_ns()).unwrap_or(now_ns).min(now_ns);
        let lengths = self.lengths();
        let of_class = parts.iter().map(|part| &part.info).filter(|info| info.class == class);
        let settled = Level2Grid {
            before: lengths.fast_from_ns(newest_ns),
            lengths_ns: compaction::level2_lengths(lengths, self.merge_policy(class).retention_ns),
            bases: compaction::bases(of_class, 2),
        };
        Grid::new(lengths, flushed_ns, newest_ns, settled, self.options.node_rows_min)
    }
}

/// The retention class of a database.
pub(crate) fn class_of(classes: &BTreeMap<DatabaseId, u32>, database: DatabaseId) -> u32 {
    classes.get(&database).copied().unwrap_or(0)
}

/// How a flush cuts time.
struct Grid {
    lengths: Lengths,
    /// Older rows are late.
    late_before: i64,
    /// Length of partitions of late rows.
    late_ns: i64,
    settled: Level2Grid,
    /// Rows that a node stands for, at least.
    node_rows_min: usize,
}

impl Grid {
    /// For rows up to `newest_ns` after others up to `flushed_ns`. Late are rows older than the partition before the one that earlier
    /// flushes reached: they are few for each range of time, and wait together for more of their kind.
    fn new(
        lengths: Lengths,
        flushed_ns: Option<i64>,
        newest_ns: i64,
        settled: Level2Grid,
        node_rows_min: usize,
    ) -> Self {
        let fast_from_ns = lengths.fast_from_ns(newest_ns);
        let reached = flushed_ns
            .map(|flushed_ns| compaction::partition_of(flushed_ns.min(newest_ns), lengths.fast_partition_length_ns));
        let expected_from = reached.map(|reached| reached.start_ns.saturating_sub(lengths.fast_partition_length_ns));
        let late_ns =
            compaction::level2_lengths(lengths, 0).last().copied().unwrap_or(lengths.slow_partition_length_ns);
        let late_before = expected_from.unwrap_or(fast_from_ns).max(fast_from_ns);
        Self { lengths, late_before, late_ns, settled, node_rows_min }
    }

    fn is_inside_one(&self, range: &TimeRange) -> bool {
        range.end_ns <= self.partition_of(range.start_ns).end_ns
    }

    fn partition_of(&self, timestamp_ns: i64) -> TimeRange {
        if timestamp_ns >= self.late_before {
            return compaction::partition_of(timestamp_ns, self.lengths.fast_partition_length_ns);
        }
        let cell = compaction::partition_of(timestamp_ns, self.late_ns);
        TimeRange::new(cell.start_ns, cell.end_ns.min(self.late_before.saturating_sub(1)))
    }
}

/// How the rows of a key are cut.
struct Cutting<'a> {
    grid: &'a Grid,
    /// True if rows may be encoded as level 2 has them.
    may_write_level2: bool,
}

impl Cutting<'_> {
    /// Cuts rows at partitions, and into chunks of a size that can be read at once.
    fn cut(&self, rows: &Rows, sequences: (u64, u64), put: &mut impl FnMut(TimeRange, SectionChunk)) {
        let mut from = 0;
        while let Some(timestamp_ns) = rows.timestamps_ns.get(from) {
            let partition = self.grid.partition_of(*timestamp_ns);
            let rest = &rows.timestamps_ns[from..];
            let places = from..from + rest.partition_point(|timestamp_ns| *timestamp_ns <= partition.end_ns).max(1);
            from = places.end;
            // As a rule they are few.
            let loose = if self.may_write_level2 && places.len() >= self.grid.node_rows_min {
                self.put_level2(rows, places, partition, sequences, put)
            } else {
                places
            };
            encode(rows, loose, sequences, 0).for_each(|sealed| put(partition, sealed.into()));
        }
    }

    /// Encodes those rows of a partition as level 2 has them, nodes and all, that go to one partition there and are enough for nodes: a
    /// merge copies them instead of encoding them once more. What is left at the end.
    fn put_level2(
        &self,
        rows: &Rows,
        places: Range<usize>,
        partition: TimeRange,
        sequences: (u64, u64),
        put: &mut impl FnMut(TimeRange, SectionChunk),
    ) -> Range<usize> {
        let mut left = places.start..places.start;
        while let Some(rest) = rows.timestamps_ns.get(left.end..places.end).filter(|rest| !rest.is_empty()) {
            let Some(settled) = self.grid.settled.partition_of(rest[0]) else { break };
            let count = rest.partition_point(|timestamp_ns| *timestamp_ns <= settled.end_ns).max(1);
            let of_settled = left.end..left.end + count;
            let Some(bytes) = summary::of_enough_rows(rows, &of_settled, self.grid.node_rows_min) else {
                left.end = of_settled.end;
                continue;
            };
            encode(rows, left, sequences, 0).for_each(|sealed| put(partition, sealed.into()));
            left = of_settled.end..of_settled.end;
            let chunks = chunk::cut_evenly(of_settled.clone(), 2).count();
            let mut summary = Some(Box::new(Summary { chunks, bytes }));
            encode(rows, of_settled, sequences, 2)
                .for_each(|sealed| put(settled, SectionChunk { sealed, summary: summary.take() }));
        }
        left.start..places.end
    }
}

/// Chunks of some rows, as a level has them.
fn encode(
    rows: &Rows,
    places: Range<usize>,
    sequences: (u64, u64),
    level: u8,
) -> impl Iterator<Item = SealedChunk> + '_ {
    let sealed = move |places| SealedChunk::from_rows(rows, places, sequences, chunk::effort_of(level));
    chunk::cut_evenly(places, level).filter_map(sealed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600 * 1_000_000_000;

    /// Partitions of one hour, those of level 2 of four and 64; the newest row is at the 100th hour. Nodes stand for two rows at least.
    fn grid(flushed: Option<i64>) -> Grid {
        let settled = Level2Grid {
            before: 96 * HOUR,
            lengths_ns: vec![4 * HOUR, 64 * HOUR],
            bases: vec![(TimeRange::new(70 * HOUR, 76 * HOUR - 1), 1)],
        };
        Grid::new(Lengths::new(HOUR), flushed.map(|hour| hour * HOUR), 100 * HOUR, settled, 2)
    }

    fn check(flushed: Option<i64>, at: i64, expected: (i64, i64)) {
        let grid = grid(flushed);
        let range = TimeRange::new(expected.0 * HOUR, expected.1 * HOUR - 1);
        assert_eq!(grid.partition_of(at * HOUR), range, "{at} behind {flushed:?}");
    }

    #[test]
    fn late_rows_stay_together() {
        for (at, expected) in [(100, (100, 101)), (96, (96, 97)), (95, (64, 96)), (63, (0, 64))] {
            check(None, at, expected);
            check(Some(20), at, expected);
        }
        for (at, expected) in [(98, (98, 99)), (97, (64, 98)), (96, (64, 98)), (63, (0, 64))] {
            check(Some(99), at, expected);
        }
    }

    #[test]
    fn rows_that_are_enough_for_nodes_go_where_a_merge_puts_them() {
        let minutes =
            |from: i64, to: i64, step: usize| (from * 60..to * 60).step_by(step).map(|minute| minute * HOUR / 60);
        // Many in two partitions of level 2, one of which is there; few before, between and after them.
        let times =
            minutes(1, 63, 2000).chain(minutes(64, 70, 120)).chain(minutes(70, 80, 5)).chain(minutes(80, 101, 60));
        let rows = Rows { timestamps_ns: times.collect(), ..Rows::default() };
        let mut found = Vec::new();
        let grid = grid(None);
        let mut put = |partition: TimeRange, piece: SectionChunk| {
            let summed = piece.summary.map_or(0, |summary| summary.chunks);
            found.push((partition.start_ns / HOUR, (partition.end_ns + 1) / HOUR, piece.sealed.rows, summed));
        };
        Cutting { grid: &grid, may_write_level2: true }.cut(&rows, (1, 2), &mut put);
        let expected = [
            (0, 64, 2, 0),
            (64, 96, 3, 0),
            (70, 76, 72, 1),
            (76, 80, 48, 1),
            (64, 96, 16, 0),
            (96, 97, 1, 0),
            (97, 98, 1, 0),
            (98, 99, 1, 0),
            (99, 100, 1, 0),
            (100, 101, 1, 0),
        ];
        assert_eq!(found, expected);
    }
}
