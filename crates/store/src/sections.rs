//! The parts that a flush writes: one file, a part for each partition of time and retention class.

use std::collections::BTreeMap;

use index::DatabaseId;
use model::TimeRange;

use crate::chunk::{self, Rows};
use crate::head::{FlushPiece, Head, SealedChunk};
use crate::levels::{self, Lengths};
use crate::part::{EncodedChunk, FileWriter, PartInfo, PartKey, PartWriter};
use crate::shard::Shard;
use crate::{Store, StoreError};

/// Rows of a chunk, at most.
const CHUNK_ROWS: usize = 1024;

/// A class and a partition of time.
type Section = (u32, i64, i64);

/// What goes into the parts: keys in order, the chunks of each oldest first.
type Sections = BTreeMap<Section, Vec<(PartKey, SealedChunk)>>;

impl Store {
    /// Writes a head's rows to a file of parts.
    pub(crate) fn write_parts(&self, shard: &Shard, head: &Head) -> Result<Vec<PartInfo>, StoreError> {
        let sections = self.sections(shard, head)?;
        if sections.is_empty() {
            return Ok(Vec::new());
        }
        let file_id = self.manifest.lock().take_id();
        let path = self.part_path(file_id);
        let written = self.write_sections(shard.number, file_id, sections);
        // What was written of it goes at once: on a full disk it would keep the next attempt from succeeding.
        let infos = written.inspect_err(|_| self.remove_file(&path))?;
        self.sync_folder("parts")?;
        self.counters.wrote_parts(&infos);
        Ok(infos)
    }

    fn sections(&self, shard: &Shard, head: &Head) -> Result<Sections, StoreError> {
        let contents = head.contents();
        let mut keys: Vec<PartKey> = Vec::new();
        {
            let index = shard.groups.read();
            for (group, block) in contents.keys() {
                let place = index.groups.place(group).map_err(StoreError::index(&self.options.directory))?;
                // Rows of groups that are removed go with them.
                keys.extend(place.map(|(database, measurement)| PartKey { database, measurement, group, block }));
            }
        }
        // Rows of neighbours among the groups came together and lie together: gathered in this order a row's cache line and page
        // serve the next groups too. By key, where the series of a metric are far apart, every row would be a miss.
        keys.sort_unstable_by_key(|key| (key.group, key.block));
        keys.dedup();
        let grid = self.grid(shard, head);
        let classes = self.classes();
        let mut sections = Sections::new();
        let count = keys.len();
        for (done, key) in keys.into_iter().enumerate() {
            self.pressure.tell(done, count);
            let class = class_of(&classes, key.database);
            for piece in contents.pieces(key.group, key.block) {
                let mut put = |partition: TimeRange, sealed: SealedChunk| {
                    let section = (class, partition.start_ns, partition.end_ns);
                    sections.entry(section).or_default().push((key, sealed));
                };
                match piece {
                    FlushPiece::Sealed(sealed) if grid.is_inside_one(&sealed.range) => {
                        put(grid.partition_of(sealed.range.start_ns), sealed);
                    }
                    FlushPiece::Sealed(sealed) => {
                        let decoded = chunk::decode(&sealed.bytes, None);
                        let (_, rows) = decoded.map_err(|error| StoreError::in_head(&error))?;
                        cut(&rows, sealed.sequences, &grid, &mut put);
                    }
                    FlushPiece::Rows(rows, sequences) => cut(&rows, sequences, &grid, &mut put),
                }
            }
        }
        // Stable: the chunks of a key stay in order of age.
        sections.values_mut().for_each(|chunks| chunks.sort_by_key(|(key, _)| *key));
        Ok(sections)
    }

    fn write_sections(&self, shard: u32, file_id: u64, sections: Sections) -> Result<Vec<PartInfo>, StoreError> {
        let mut file = FileWriter::create(&*self.platform.files, self.part_path(file_id))?;
        let mut infos = Vec::with_capacity(sections.len());
        for ((class, start_ns, end_ns), chunks) in sections {
            // The first part has the file's number.
            let id = if infos.is_empty() { file_id } else { self.manifest.lock().take_id() };
            let partition = TimeRange::new(start_ns, end_ns);
            let info = PartInfo { file: file_id, ..PartInfo::empty(id, shard, 0, class, partition) };
            let mut part = PartWriter::begin(&mut file, info)?;
            for of_key in chunks.chunk_by(|a, b| a.0 == b.0) {
                let encoded: Vec<EncodedChunk<'_>> = of_key.iter().map(|(_, sealed)| sealed.encoded()).collect();
                if let Some((key, _)) = of_key.first() {
                    part.push(&mut file, *key, &encoded, None)?;
                }
            }
            infos.push(part.finish(&mut file)?);
        }
        file.sync()?;
        Ok(infos)
    }

    /// How time is cut for a flush: short partitions for what is new, long ones for what is late.
    fn grid(&self, shard: &Shard, head: &Head) -> Grid {
        let now_ns = self.platform.clock.now_ns();
        let (parts, _) = shard.parts_and_deletes();
        let flushed_ns = parts.iter().map(|part| part.info.range.end_ns).max();
        let newest_ns = flushed_ns.max(head.newest_ns()).unwrap_or(now_ns);
        Grid::new(self.lengths(), flushed_ns, newest_ns.min(now_ns))
    }
}

/// The retention class of a database.
pub(crate) fn class_of(classes: &BTreeMap<DatabaseId, u32>, database: DatabaseId) -> u32 {
    classes.get(&database).copied().unwrap_or(0)
}

/// How a flush cuts time.
struct Grid {
    lengths: Lengths,
    /// What is older is late.
    late_before: i64,
    /// Length of partitions of late rows.
    late_ns: i64,
}

impl Grid {
    /// For rows up to `newest_ns` behind others up to `flushed_ns`. Late are rows behind the partition before the one that earlier
    /// flushes reached: they are few for each stretch of time, and wait together for more of their kind.
    fn new(lengths: Lengths, flushed_ns: Option<i64>, newest_ns: i64) -> Self {
        let fast_from = lengths.fast_from(newest_ns);
        let reached = flushed_ns.map(|flushed_ns| levels::partition_of(flushed_ns.min(newest_ns), lengths.fast_ns));
        let expected_from = reached.map(|reached| reached.start_ns.saturating_sub(lengths.fast_ns));
        let late_ns = levels::settled_lengths(lengths, 0).last().copied().unwrap_or(lengths.slow_ns);
        Self { lengths, late_before: expected_from.unwrap_or(fast_from).max(fast_from), late_ns }
    }

    fn is_inside_one(&self, range: &TimeRange) -> bool {
        range.end_ns <= self.partition_of(range.start_ns).end_ns
    }

    fn partition_of(&self, timestamp_ns: i64) -> TimeRange {
        if timestamp_ns >= self.late_before {
            return levels::partition_of(timestamp_ns, self.lengths.fast_ns);
        }
        let cell = levels::partition_of(timestamp_ns, self.late_ns);
        TimeRange::new(cell.start_ns, cell.end_ns.min(self.late_before.saturating_sub(1)))
    }
}

/// Cuts rows at partitions, and into chunks of a size that can be read at once.
fn cut(rows: &Rows, sequences: (u64, u64), grid: &Grid, put: &mut impl FnMut(TimeRange, SealedChunk)) {
    let mut from = 0;
    while let Some(timestamp_ns) = rows.timestamps_ns.get(from) {
        let partition = grid.partition_of(*timestamp_ns);
        let end = from + rows.timestamps_ns[from..].partition_point(|timestamp_ns| *timestamp_ns <= partition.end_ns);
        let to = end.clamp(from + 1, from + CHUNK_ROWS);
        SealedChunk::of(rows, from..to, sequences).into_iter().for_each(|sealed| put(partition, sealed));
        from = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600 * 1_000_000_000;

    /// Partitions of one hour, settled ones of four and 64; the newest row is at the 100th hour.
    fn check(flushed: Option<i64>, at: i64, expected: (i64, i64)) {
        let grid = Grid::new(Lengths::new(HOUR), flushed.map(|hour| hour * HOUR), 100 * HOUR);
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
}
