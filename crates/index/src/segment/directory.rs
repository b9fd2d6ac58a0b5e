//! What a segment's directory says: where everything is.

use std::sync::Arc;

use codec::{DecodeError, Reader, varint};
use roaring::RoaringBitmap;

use crate::ids::{push_bitmap, take_bitmap};
use crate::{DatabaseId, GroupId};

/// Entries of one size, or, with a list of offsets before them, of many sizes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) offset: u64,
    pub(crate) count: u32,
}

/// A set of ids.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Posting {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) count: u32,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Directory {
    pub(crate) seed: u64,
    pub(crate) first: GroupId,
    pub(crate) end: GroupId,
    /// The ids of the range that the segment holds.
    pub(crate) present: RoaringBitmap,
    /// Groups, most of them older, that are removed.
    pub(crate) removed: RoaringBitmap,
    pub(crate) families: Table,
    pub(crate) schemas: Table,
    pub(crate) slot_sets: Table,
    /// Rows, and the place of each block of them.
    pub(crate) rows: u64,
    pub(crate) row_places: u64,
    /// Each group's family, in so many bytes.
    pub(crate) row_families: u64,
    pub(crate) family_bytes: u8,
    pub(crate) identities: u64,
    /// For each bucket of fingerprints by their first bits, where it begins, and where the last ends.
    pub(crate) buckets: u64,
    pub(crate) bucket_bits: u8,
    pub(crate) overlays: Table,
    /// Sorted by number.
    pub(crate) databases: Vec<DatabasePlaces>,
    /// One for each [`super::CHECKED_BYTES`] between header and directory.
    pub(crate) checksums: Arc<[u32]>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DatabasePlaces {
    pub(crate) id: DatabaseId,
    pub(crate) all: Posting,
    pub(crate) measurements: Table,
    /// Sorted by text.
    pub(crate) names: Vec<NamePlaces>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NamePlaces {
    pub(crate) text: String,
    pub(crate) having: Posting,
    pub(crate) values: u32,
    pub(crate) postings: u64,
    pub(crate) postings_bytes: u64,
    pub(crate) dictionary: u64,
    pub(crate) dictionary_bytes: u64,
    pub(crate) blocks: u64,
}

impl Directory {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seed.to_le_bytes());
        push_all(out, &[u64::from(self.first), u64::from(self.end)]);
        push_bitmap(&self.present, out);
        push_bitmap(&self.removed, out);
        for table in [self.families, self.schemas, self.slot_sets, self.overlays] {
            push_all(out, &[table.offset, u64::from(table.count)]);
        }
        push_all(out, &[self.rows, self.row_places, self.row_families, self.identities, self.buckets]);
        out.extend_from_slice(&[self.family_bytes, self.bucket_bits]);
        varint::push(out, self.databases.len() as u64);
        for database in &self.databases {
            varint::push(out, u64::from(database.id));
            push_posting(out, database.all);
            push_all(out, &[database.measurements.offset, u64::from(database.measurements.count)]);
            varint::push(out, database.names.len() as u64);
            database.names.iter().for_each(|name| name.encode(out));
        }
        varint::push(out, self.checksums.len() as u64);
        out.extend(self.checksums.iter().flat_map(|checksum| checksum.to_le_bytes()));
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut directory = Self {
            seed: reader.u64()?,
            first: take_u32(reader)?,
            end: take_u32(reader)?,
            present: take_bitmap(reader)?,
            removed: take_bitmap(reader)?,
            families: take_table(reader)?,
            schemas: take_table(reader)?,
            slot_sets: take_table(reader)?,
            overlays: take_table(reader)?,
            rows: reader.varint()?,
            row_places: reader.varint()?,
            row_families: reader.varint()?,
            identities: reader.varint()?,
            buckets: reader.varint()?,
            family_bytes: reader.byte()?,
            bucket_bits: reader.byte()?,
            ..Self::default()
        };
        let in_range = |id: Option<u32>| id.is_none_or(|id| (directory.first..directory.end).contains(&id));
        if !in_range(directory.present.min()) || !in_range(directory.present.max()) || directory.first > directory.end {
            return Err(reader.error("groups outside the segment's range"));
        }
        if !(1..=4).contains(&directory.family_bytes) || directory.bucket_bits > 32 {
            return Err(reader.error("width beyond its bound"));
        }
        let databases = reader.length(reader.rest().len())?;
        for _ in 0..databases {
            directory.databases.push(DatabasePlaces::decode(reader)?);
        }
        let checksums = reader.length(reader.rest().len() / 4)?;
        directory.checksums = (0..checksums).map(|_| reader.u32()).collect::<Result<_, _>>()?;
        if reader.is_empty() { Ok(directory) } else { Err(reader.error("bytes left over behind the directory")) }
    }

    /// Bytes that it occupies on the heap.
    pub(crate) fn memory_bytes(&self) -> usize {
        let bitmaps = self.present.serialized_size() + self.removed.serialized_size();
        let names = |database: &DatabasePlaces| {
            let text = |name: &NamePlaces| size_of::<NamePlaces>() + name.text.len();
            size_of::<DatabasePlaces>() + database.names.iter().map(text).sum::<usize>()
        };
        bitmaps + self.checksums.len() * 4 + self.databases.iter().map(names).sum::<usize>()
    }
}

impl DatabasePlaces {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (id, all, measurements) = (take_u32(reader)?, take_posting(reader)?, take_table(reader)?);
        let count = reader.length(reader.rest().len())?;
        let mut names: Vec<NamePlaces> = Vec::new();
        for _ in 0..count {
            let name = NamePlaces::decode(reader)?;
            if names.last().is_some_and(|last| last.text >= name.text) {
                return Err(reader.error("label names out of order"));
            }
            names.push(name);
        }
        Ok(Self { id, all, measurements, names })
    }
}

impl NamePlaces {
    fn encode(&self, out: &mut Vec<u8>) {
        varint::push_text(out, &self.text);
        push_posting(out, self.having);
        let dictionary = [self.dictionary, self.dictionary_bytes, self.blocks];
        push_all(out, &[u64::from(self.values), self.postings, self.postings_bytes]);
        push_all(out, &dictionary);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            text: reader.text()?.to_owned(),
            having: take_posting(reader)?,
            values: take_u32(reader)?,
            postings: reader.varint()?,
            postings_bytes: reader.varint()?,
            dictionary: reader.varint()?,
            dictionary_bytes: reader.varint()?,
            blocks: reader.varint()?,
        })
    }
}

fn push_all(out: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| varint::push(out, *number));
}

fn push_posting(out: &mut Vec<u8>, posting: Posting) {
    push_all(out, &[posting.offset, posting.bytes, u64::from(posting.count)]);
}

fn take_posting(reader: &mut Reader<'_>) -> Result<Posting, DecodeError> {
    Ok(Posting { offset: reader.varint()?, bytes: reader.varint()?, count: take_u32(reader)? })
}

fn take_table(reader: &mut Reader<'_>) -> Result<Table, DecodeError> {
    Ok(Table { offset: reader.varint()?, count: take_u32(reader)? })
}

fn take_u32(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    u32::try_from(reader.varint()?).map_err(|_| reader.error("number beyond 32 bits"))
}
