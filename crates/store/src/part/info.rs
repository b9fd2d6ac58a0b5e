//! A part, as the manifest knows it.

use codec::{DecodeError, Reader, varint};
use model::TimeRange;

use crate::compaction;

/// Length of partitions that version 1 wrote.
const PARTITION_NS_VERSION_ONE: i64 = 2 * 3600 * 1_000_000_000;

/// Where a part's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PartLocations {
    /// In a file of the data folder.
    pub(crate) local: bool,
    /// In the object store.
    pub(crate) object: bool,
}

/// A part, as the manifest knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartInfo {
    /// Its number in the data folder; never used again.
    pub(crate) id: u64,
    /// The file that it is in, where it begins there, and how long it is.
    pub(crate) file: u64,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) shard: u32,
    /// 0: as flushed; 1: merged, on the fast tier; 2: for the object store.
    pub(crate) level: u8,
    /// The retention class of its databases.
    pub(crate) class: u32,
    /// The range of time that it stands for: parts of level 1 or 2 that are no patches do not overlap in it.
    pub(crate) partition: TimeRange,
    /// First and last timestamp inside.
    pub(crate) range: TimeRange,
    /// Smallest and largest sequence id of the rows inside.
    pub(crate) sequences: (u64, u64),
    pub(crate) chunks: u64,
    pub(crate) rows: u64,
    /// The part of its level that this one holds late rows for; 0 for none.
    pub(crate) patch_of: u64,
    /// Width of the summaries that replaced its samples, in nanoseconds; 0: it holds samples.
    pub(crate) fold_ns: i64,
    /// Deletes up to this sequence id are carried out in it.
    pub(crate) deletes_through: u64,
    pub(crate) locations: PartLocations,
}

impl PartInfo {
    /// A part without rows yet.
    pub(crate) fn empty(id: u64, shard: u32, level: u8, class: u32, partition: TimeRange) -> Self {
        Self {
            id,
            file: id,
            offset: 0,
            bytes: 0,
            shard,
            level,
            class,
            partition,
            range: TimeRange::EMPTY,
            sequences: (u64::MAX, 0),
            chunks: 0,
            rows: 0,
            patch_of: 0,
            fold_ns: 0,
            deletes_through: 0,
            locations: PartLocations { local: true, object: false },
        }
    }

    pub(crate) fn is_patch(&self) -> bool {
        self.patch_of != 0
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.id, self.file, self.offset, self.bytes, u64::from(self.shard), u64::from(self.class)] {
            varint::push(out, number);
        }
        out.push(self.level);
        out.push(u8::from(self.locations.local) | u8::from(self.locations.object) << 1);
        for instant in [self.partition.start_ns, self.partition.end_ns, self.range.start_ns, self.range.end_ns] {
            varint::push_signed(out, instant);
        }
        for number in [self.sequences.0, self.sequences.1, self.chunks, self.rows, self.patch_of, self.deletes_through]
        {
            varint::push(out, number);
        }
        varint::push_signed(out, self.fold_ns);
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (id, file, offset, bytes) = (reader.varint()?, reader.varint()?, reader.varint()?, reader.varint()?);
        let shard = take_u32(reader)?;
        let class = take_u32(reader)?;
        let level = reader.byte()?;
        let locations = reader.byte()?;
        let partition = TimeRange::new(reader.varint_signed()?, reader.varint_signed()?);
        let range = TimeRange::new(reader.varint_signed()?, reader.varint_signed()?);
        Ok(Self {
            id,
            file,
            offset,
            bytes,
            shard,
            level,
            class,
            partition,
            range,
            sequences: (reader.varint()?, reader.varint()?),
            chunks: reader.varint()?,
            rows: reader.varint()?,
            patch_of: reader.varint()?,
            deletes_through: reader.varint()?,
            fold_ns: reader.varint_signed()?,
            locations: PartLocations { local: locations & 1 != 0, object: locations & 2 != 0 },
        })
    }

    /// Reads what version 1 of the manifest said of a part: one a file, its partition not named.
    pub(crate) fn decode_version_one(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let id = reader.varint()?;
        let shard = take_u32(reader)?;
        let level = reader.byte()?;
        let range = TimeRange::new(reader.varint_signed()?, reader.varint_signed()?);
        let sequences = (reader.varint()?, reader.varint()?);
        let (chunks, bytes) = (reader.varint()?, reader.varint()?);
        let start_ns = compaction::partition_of(range.start_ns, PARTITION_NS_VERSION_ONE).start_ns;
        let partition =
            TimeRange::new(start_ns, compaction::partition_of(range.end_ns, PARTITION_NS_VERSION_ONE).end_ns);
        Ok(Self { bytes, range, sequences, chunks, ..Self::empty(id, shard, level, 0, partition) })
    }
}

fn take_u32(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    u32::try_from(reader.varint()?).map_err(|_| reader.error("number beyond 32 bits"))
}
