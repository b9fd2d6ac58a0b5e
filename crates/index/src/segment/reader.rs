//! Searching a segment. Nothing is read at opening but the directory; everything else is checked when it is read: its block against the
//! block's checksum ([`Copies`]), and what stands there against its bounds.

use std::fmt;
use std::sync::Arc;

use codec::{DecodeError, Reader};
use model::Labels;
use roaring::RoaringBitmap;

use super::copies::{Copies, SegmentBytes, SegmentTwin};
use super::cursor::Cursor;
use super::dictionary::{Dictionary, Position};
use super::directory::{DatabasePlaces, Directory, NamePlaces, Posting, Table};
use super::row_cursor::SegmentRows;
use super::rows::RowsReader;
use super::{
    BLOCK, CHECKED_BYTES, DICTIONARY_PLACE_BYTES, FAMILY_BYTES, IDENTITY_BYTES, MEASUREMENT_BYTES, OVERLAY_BYTES,
    TRAILER_BYTES, checked_bytes, directory_place, slice,
};
use crate::ids::Ids;
use crate::source::{Family, Fingerprints, GroupVisitor, Name, RowCursor, Source, TermCursor};
use crate::{DatabaseId, GroupId, IndexError, MeasurementId, SlotSet};

/// An immutable segment of the index.
pub struct Segment {
    number: u64,
    copies: Copies,
    directory: Directory,
    /// Whether no group of the range is missing.
    full: bool,
}

impl fmt::Debug for Segment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Segment {} of groups {}..{}", self.number, self.directory.first, self.directory.end)
    }
}

impl Segment {
    /// Opens a segment; the number is the caller's, to tell segments apart in errors.
    pub fn open(number: u64, bytes: SegmentBytes) -> Result<Self, IndexError> {
        Self::open_with_twin(number, bytes, None)
    }

    /// As [`Segment::open`]; the twin gives a second copy of the file if a block of this one is damaged.
    pub fn open_with_twin(
        number: u64,
        bytes: SegmentBytes,
        twin: Option<Box<dyn SegmentTwin>>,
    ) -> Result<Self, IndexError> {
        let directory = read_directory(bytes.bytes()).map_err(IndexError::damaged(number))?;
        let full = directory.present.len() == u64::from(directory.end - directory.first);
        let block_bytes = checked_bytes(bytes.bytes()).unwrap_or(CHECKED_BYTES);
        let copies = Copies::new(bytes, block_bytes, directory.checksums.clone(), twin);
        let copies = copies.map_err(IndexError::damaged(number))?;
        if !copies.confirm().map_err(IndexError::damaged(number))? {
            let directory = read_directory(copies.unchecked()).map_err(IndexError::damaged(number))?;
            return Ok(Self { number, copies, directory, full });
        }
        Ok(Self { number, copies, directory, full })
    }

    /// Takes all blocks for whole, whatever their checksums say: for fuzzing.
    pub(crate) fn trust(&self) {
        self.copies.trust();
    }

    /// Whether the bytes begin as those of a segment of a known version do.
    pub fn is_segment(bytes: &[u8]) -> bool {
        checked_bytes(bytes).is_some()
    }

    /// The number that it was opened with.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The seed of its fingerprints.
    pub(crate) const fn seed(&self) -> u64 {
        self.directory.seed
    }

    /// Its groups.
    pub(crate) const fn present(&self) -> &RoaringBitmap {
        &self.directory.present
    }

    /// Bytes of the file, which are not in memory but as the system keeps them there.
    pub fn file_bytes(&self) -> u64 {
        self.copies.unchecked().len() as u64
    }

    /// Bytes that it occupies in memory beside the file.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.directory.memory_bytes()
    }

    /// Reads everything: checksums first, then every value, every row and every identity.
    pub fn verify(&self) -> Result<(), IndexError> {
        self.copies.check_all().map_err(self.damaged())?;
        for database in &self.directory.databases {
            self.all(database.id)?;
            for measurement in self.measurements(database.id)? {
                self.measurement(database.id, measurement)?;
            }
            for (number, _) in database.names.iter().enumerate() {
                self.having(database.id, number as u32)?;
                let mut terms = self.terms(database.id, number as u32, "", true)?;
                while terms.advance()? {
                    terms.ids()?;
                }
            }
        }
        self.each_group(&mut |_, family, _| self.family(family).map(drop))?;
        self.fingerprints().try_for_each(|found| found.map(drop))?;
        self.overlays().map(drop)
    }

    /// Groups that may have an identity of this fingerprint.
    pub(crate) fn candidates(&self, fingerprint: u32) -> Result<Vec<GroupId>, IndexError> {
        self.read(|| self.identities_of(fingerprint))
    }

    fn identities_of(&self, fingerprint: u32) -> Result<Vec<GroupId>, DecodeError> {
        let (copies, directory) = (&self.copies, &self.directory);
        let bits = u32::from(directory.bucket_bits);
        let bucket = u64::from(fingerprint.checked_shr(32 - bits).unwrap_or(0));
        let from = u64::from(copies.u32_at(directory.buckets.saturating_add(bucket * 4))?);
        let to = u64::from(copies.u32_at(directory.buckets.saturating_add(bucket * 4 + 4))?);
        let start = directory.identities.saturating_add(from * IDENTITY_BYTES);
        let entries = copies.get(start, to.saturating_sub(from) * IDENTITY_BYTES)?;
        let entries = entries.as_chunks::<8>().0.iter().map(|entry| split(*entry));
        Ok(entries.filter(|(found, _)| *found == fingerprint).map(|(_, id)| id).collect())
    }

    /// Whether a group of the segment has this identity.
    pub(crate) fn is(&self, id: GroupId, identity: (DatabaseId, MeasurementId, &Labels)) -> Result<bool, IndexError> {
        self.read(|| self.has_identity(id, identity))
    }

    fn has_identity(
        &self,
        id: GroupId,
        (database, measurement, labels): (DatabaseId, MeasurementId, &Labels),
    ) -> Result<bool, DecodeError> {
        let Some(ordinal) = self.ordinal(id) else {
            return Ok(false);
        };
        let [of_database, of_measurement, schema, ..] = self.family_entry(self.family_number(ordinal)?)?;
        let Some(offsets) = self.database(database).filter(|_| of_database == database) else {
            return Ok(false);
        };
        if of_measurement != measurement {
            return Ok(false);
        }
        let mut values = Vec::with_capacity(16);
        self.row(ordinal, &mut values)?;
        let mut pairs = labels.iter();
        for (name, value) in self.schema(schema)?.iter().zip(values) {
            let (Some((name_text, text)), Some(name)) = (pairs.next(), offsets.names.get(*name as usize)) else {
                return Ok(false);
            };
            if name.text != name_text || !self.dictionary(name).is_at(value, text)? {
                return Ok(false);
            }
        }
        Ok(pairs.next().is_none())
    }

    /// Runs a read, and once more if a second copy of the file had to take over meanwhile.
    #[inline]
    pub(super) fn read<T>(&self, mut read: impl FnMut() -> Result<T, DecodeError>) -> Result<T, IndexError> {
        let first = read();
        if self.copies.confirm().map_err(self.damaged())? {
            return first.map_err(self.damaged());
        }
        read().map_err(self.damaged())
    }

    pub(super) fn damaged(&self) -> impl Fn(DecodeError) -> IndexError + use<> {
        IndexError::damaged(self.number)
    }

    fn database(&self, id: DatabaseId) -> Option<&DatabasePlaces> {
        let databases = &self.directory.databases;
        let place = databases.binary_search_by_key(&id, |database| database.id).ok()?;
        databases.get(place)
    }

    fn name_places(&self, database: DatabaseId, name: u32) -> Result<&NamePlaces, IndexError> {
        let error = DecodeError { offset: 0, what: "no such label name" };
        let offsets = self.database(database).and_then(|database| database.names.get(name as usize));
        offsets.ok_or_else(|| self.damaged()(error))
    }

    fn dictionary(&self, name: &NamePlaces) -> Dictionary<'_> {
        let blocks = u64::from(name.values.div_ceil(BLOCK)) * DICTIONARY_PLACE_BYTES;
        Dictionary {
            bytes: self.copies.window(name.dictionary, name.dictionary_bytes),
            offsets: self.copies.window(name.blocks, blocks),
            terms: name.values,
        }
    }

    fn ids(&self, posting: Posting) -> Result<Ids, DecodeError> {
        let bytes = self.copies.get(posting.offset, posting.bytes)?;
        Ids::decode(bytes, posting.count, self.directory.first)
            .map_err(|error| DecodeError { offset: posting.offset as usize + error.offset, what: error.what })
    }

    pub(super) fn term_ids(&self, name: &NamePlaces, position: &Position<'_>) -> Result<Ids, DecodeError> {
        let offset = name.postings.saturating_add(position.postings_at);
        self.ids(Posting { offset, bytes: position.postings_bytes, count: position.count })
    }

    fn measurement_entry(&self, table: Table, place: u32) -> Result<(MeasurementId, Posting), DecodeError> {
        let at = table.offset.saturating_add(u64::from(place) * MEASUREMENT_BYTES);
        let mut entry = Reader::new(self.copies.get(at, MEASUREMENT_BYTES)?);
        let (measurement, count, offset, bytes) = (entry.u32()?, entry.u32()?, entry.u64()?, entry.u32()?);
        Ok((measurement, Posting { offset, bytes: u64::from(bytes), count }))
    }

    fn find_measurement(
        &self,
        database: DatabaseId,
        measurement: MeasurementId,
    ) -> Result<Option<Posting>, DecodeError> {
        let Some(table) = self.database(database).map(|database| database.measurements) else {
            return Ok(None);
        };
        let (mut low, mut high) = (0, table.count);
        while low < high {
            let middle = low.midpoint(high);
            let (found, posting) = self.measurement_entry(table, middle)?;
            match found.cmp(&measurement) {
                std::cmp::Ordering::Equal => return Ok(Some(posting)),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }

    /// How many groups of the segment come before this one; `None` if it is not in the segment.
    pub(super) fn ordinal(&self, id: GroupId) -> Option<u32> {
        if self.full {
            return (self.directory.first..self.directory.end).contains(&id).then(|| id - self.directory.first);
        }
        self.directory.present.contains(id).then(|| self.directory.present.rank(id) as u32 - 1)
    }

    pub(super) fn family_number(&self, ordinal: u32) -> Result<u32, DecodeError> {
        let width = u64::from(self.directory.family_bytes);
        let at = self.directory.row_families.saturating_add(u64::from(ordinal) * width);
        let found = self.copies.get(at, width)?;
        Ok(found.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    pub(super) fn family_entry(&self, number: u32) -> Result<[u32; 5], DecodeError> {
        if number >= self.directory.families.count {
            return Err(DecodeError { offset: 0, what: "no such family" });
        }
        let at = self.directory.families.offset.saturating_add(u64::from(number) * FAMILY_BYTES);
        let mut entry = Reader::new(self.copies.get(at, FAMILY_BYTES)?);
        Ok([entry.u32()?, entry.u32()?, entry.u32()?, entry.u32()?, entry.u32()?])
    }

    /// An item of a table whose items have many sizes.
    fn sized(&self, table: Table, number: u32) -> Result<&[u8], DecodeError> {
        if number >= table.count {
            return Err(DecodeError { offset: table.offset as usize, what: "no such entry of the table" });
        }
        let place = table.offset.saturating_add(u64::from(number) * 4);
        let (start, end) = (self.copies.u32_at(place)?, self.copies.u32_at(place + 4)?);
        let items = table.offset.saturating_add((u64::from(table.count) + 1) * 4);
        self.copies.get(items.saturating_add(u64::from(start)), u64::from(end.saturating_sub(start)))
    }

    pub(super) fn schema(&self, number: u32) -> Result<Vec<u32>, DecodeError> {
        let mut reader = Reader::new(self.sized(self.directory.schemas, number)?);
        let mut names = Vec::new();
        while !reader.is_empty() {
            names.push(u32::try_from(reader.varint()?).map_err(|_| reader.error("name beyond 32 bits"))?);
        }
        Ok(names)
    }

    fn slot_set(&self, number: u32) -> Result<Arc<SlotSet>, DecodeError> {
        SlotSet::decode(&mut Reader::new(self.sized(self.directory.slot_sets, number)?)).map(Arc::new)
    }

    pub(super) fn row_block(&self, block: u32) -> Result<RowsReader<'_>, DecodeError> {
        let place = |block: u32| self.copies.u32_at(self.directory.row_places.saturating_add(u64::from(block) * 4));
        let start = self.directory.rows.saturating_add(u64::from(place(block)?));
        let is_last = u64::from(block) + 1 >= self.directory.present.len().div_ceil(u64::from(BLOCK));
        let end = if is_last {
            self.directory.row_places
        } else {
            self.directory.rows.saturating_add(u64::from(place(block + 1)?))
        };
        Ok(RowsReader::new(self.copies.get(start, end.saturating_sub(start))?))
    }

    /// Reads rows of a block up to an ordinal, and gives that one's family.
    fn row(&self, ordinal: u32, values: &mut Vec<u32>) -> Result<u32, DecodeError> {
        let block = ordinal / BLOCK;
        let mut rows = self.row_block(block)?;
        let mut last: Option<(u32, u32, usize)> = None;
        for at in block * BLOCK..=ordinal {
            let family = self.family_number(at)?;
            let (schema, count) = match last {
                Some((known, schema, count)) if known == family => (schema, count),
                _ => match (self.family_entry(family)?[2], last) {
                    (schema, Some((_, known, count))) if known == schema => (schema, count),
                    (schema, _) => (schema, self.schema(schema)?.len()),
                },
            };
            last = Some((family, schema, count));
            rows.advance(schema, count)?;
        }
        values.extend_from_slice(&rows.values);
        Ok(last.map_or(0, |(family, _, _)| family))
    }

    fn each_row(&self, visit: &mut GroupVisitor<'_>) -> Result<(), IndexError> {
        let damaged = self.damaged();
        let mut rows = RowsReader::new(&[]);
        let mut schemas: Vec<Option<(u32, usize)>> = vec![None; self.schemas_bound()];
        for (ordinal, id) in self.directory.present.iter().enumerate() {
            let ordinal = ordinal as u32;
            if ordinal.is_multiple_of(BLOCK) {
                self.confirm()?;
                rows = self.row_block(ordinal / BLOCK).map_err(&damaged)?;
            }
            let family = self.family_number(ordinal).map_err(&damaged)?;
            let known = schemas.get(family as usize).copied().flatten();
            let (schema, count) = match known {
                Some(known) => known,
                None => {
                    let schema = self.family_entry(family).map_err(&damaged)?[2];
                    let found = (schema, self.schema(schema).map_err(&damaged)?.len());
                    if let Some(known) = schemas.get_mut(family as usize) {
                        *known = Some(found);
                    }
                    found
                }
            };
            rows.advance(schema, count).map_err(&damaged)?;
            visit(id, family, &rows.values)?;
        }
        self.confirm()
    }

    /// Returns whether what was read stood in the file, as far as the copy in use tells.
    pub(super) fn is_confirmed(&self) -> bool {
        matches!(self.copies.confirm(), Ok(true))
    }

    /// Ends a read that cannot be repeated if what it read was not what the file holds; the next one reads a second copy.
    pub(super) fn confirm(&self) -> Result<(), IndexError> {
        let unreadable = DecodeError { offset: 0, what: "a page could not be read; another copy is used from here on" };
        if self.copies.confirm().map_err(self.damaged())? { Ok(()) } else { Err(self.damaged()(unreadable)) }
    }

    /// Families that the file has room for.
    fn schemas_bound(&self) -> usize {
        (self.directory.families.count as usize).min(self.copies.unchecked().len() / FAMILY_BYTES as usize)
    }

    fn overlay_entry(&self, place: u32) -> Result<(GroupId, u32), DecodeError> {
        let at = self.directory.overlays.offset.saturating_add(u64::from(place) * OVERLAY_BYTES);
        Ok((self.copies.u32_at(at)?, self.copies.u32_at(at + 4)?))
    }

    fn find_overlay(&self, id: GroupId) -> Result<Option<Arc<SlotSet>>, DecodeError> {
        let (mut low, mut high) = (0, self.directory.overlays.count);
        while low < high {
            let middle = low.midpoint(high);
            let (found, slots) = self.overlay_entry(middle)?;
            match found.cmp(&id) {
                std::cmp::Ordering::Equal => return self.slot_set(slots).map(Some),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Ok(None)
    }
}

fn split(entry: [u8; 8]) -> (u32, GroupId) {
    let entry = u64::from_le_bytes(entry);
    (entry as u32, (entry >> 32) as u32)
}

fn read_directory(bytes: &[u8]) -> Result<Directory, DecodeError> {
    let (offset, checksum) = directory_place(bytes)?;
    let encoded = slice(bytes, offset as u64, (bytes.len() - TRAILER_BYTES - offset) as u64)?;
    if crc32c::crc32c(encoded) != checksum {
        return Err(DecodeError { offset, what: "checksum of the directory does not match" });
    }
    Directory::decode(&mut Reader::new(encoded))
        .map_err(|error| DecodeError { offset: offset + error.offset, what: error.what })
}

impl Source for Segment {
    fn first(&self) -> GroupId {
        self.directory.first
    }

    fn end(&self) -> GroupId {
        self.directory.end
    }

    fn len(&self) -> u32 {
        self.directory.present.len() as u32
    }

    fn databases(&self) -> Vec<DatabaseId> {
        self.directory.databases.iter().map(|database| database.id).collect()
    }

    fn all(&self, database: DatabaseId) -> Result<RoaringBitmap, IndexError> {
        let Some(database) = self.database(database) else {
            return Ok(RoaringBitmap::new());
        };
        self.read(|| self.ids(database.all)).map(Ids::into_bitmap)
    }

    fn measurements(&self, database: DatabaseId) -> Result<Vec<MeasurementId>, IndexError> {
        let table = self.database(database).map(|database| database.measurements).unwrap_or_default();
        let entry = |place| self.measurement_entry(table, place).map(|(measurement, _)| measurement);
        self.read(|| (0..table.count).map(entry).collect::<Result<_, _>>())
    }

    fn measurement(&self, database: DatabaseId, measurement: MeasurementId) -> Result<Option<Ids>, IndexError> {
        self.read(|| {
            let posting = self.find_measurement(database, measurement)?;
            posting.map(|posting| self.ids(posting)).transpose()
        })
    }

    fn names(&self, database: DatabaseId) -> Vec<Name<'_>> {
        let names = self.database(database).into_iter().flat_map(|database| &database.names).enumerate();
        names
            .map(|(number, name)| Name {
                number: number as u32,
                text: &name.text,
                values: name.values,
                groups: name.having.count,
            })
            .collect()
    }

    fn name_text(&self, database: DatabaseId, number: u32) -> &str {
        let names = self.database(database).map(|database| &database.names);
        names.and_then(|names| names.get(number as usize)).map_or("", |name| &name.text)
    }

    fn name(&self, database: DatabaseId, text: &str) -> Option<Name<'_>> {
        let names = &self.database(database)?.names;
        let number = names.binary_search_by(|name| name.text.as_str().cmp(text)).ok()?;
        let name = names.get(number)?;
        Some(Name { number: number as u32, text: &name.text, values: name.values, groups: name.having.count })
    }

    fn having(&self, database: DatabaseId, name: u32) -> Result<RoaringBitmap, IndexError> {
        let having = self.name_places(database, name)?.having;
        self.read(|| self.ids(having)).map(Ids::into_bitmap)
    }

    fn value(&self, database: DatabaseId, name: u32, text: &str) -> Result<Option<Ids>, IndexError> {
        let name = self.name_places(database, name)?;
        let find = || {
            let position = self.dictionary(name).find(text)?;
            position.map(|position| self.term_ids(name, &position)).transpose()
        };
        self.read(find)
    }

    fn terms<'a>(
        &'a self,
        database: DatabaseId,
        name: u32,
        prefix: &'a str,
        _sorted: bool,
    ) -> Result<Box<dyn TermCursor + 'a>, IndexError> {
        let name = self.name_places(database, name)?;
        let dictionary = self.dictionary(name);
        let position = self.read(|| dictionary.before(prefix))?;
        Ok(Box::new(Cursor { segment: self, name, dictionary, position, prefix }))
    }

    fn families(&self) -> u32 {
        self.directory.families.count
    }

    fn family(&self, number: u32) -> Result<Family, IndexError> {
        let read = || {
            let [database, measurement, schema, slots, groups] = self.family_entry(number)?;
            let (names, slots) = (self.schema(schema)?, self.slot_set(slots)?);
            Ok(Family { database, measurement, names, slots, groups })
        };
        self.read(read)
    }

    fn family_of(&self, id: GroupId) -> Result<Option<u32>, IndexError> {
        self.ordinal(id).map(|ordinal| self.read(|| self.family_number(ordinal))).transpose()
    }

    fn values_of(&self, id: GroupId, values: &mut Vec<u32>) -> Result<Option<u32>, IndexError> {
        let Some(ordinal) = self.ordinal(id) else {
            return Ok(None);
        };
        let before = values.len();
        self.read(|| {
            values.truncate(before);
            self.row(ordinal, values)
        })
        .map(Some)
    }

    fn rows(&self) -> Box<dyn RowCursor + '_> {
        Box::new(SegmentRows::new(self))
    }

    fn append_value(&self, database: DatabaseId, name: u32, value: u32, out: &mut String) -> Result<(), IndexError> {
        let name = self.name_places(database, name)?;
        let start = out.len();
        self.read(|| {
            // It may be read twice.
            out.truncate(start);
            self.dictionary(name).append_term(value, out)
        })
    }

    fn each_group(&self, visit: &mut GroupVisitor<'_>) -> Result<(), IndexError> {
        self.each_row(visit)
    }

    fn fingerprints(&self) -> Fingerprints<'_> {
        let count = self.directory.present.len();
        match self.copies.get(self.directory.identities, count * IDENTITY_BYTES) {
            Ok(entries) => {
                let entries = entries.as_chunks::<8>().0.iter().map(|entry| Ok(split(*entry)));
                Box::new(entries.chain(std::iter::once_with(|| self.confirm()).filter_map(Result::err).map(Err)))
            }
            Err(error) => Box::new(std::iter::once(Err(self.damaged()(error)))),
        }
    }

    fn has_overlays(&self) -> bool {
        self.directory.overlays.count > 0
    }

    fn overlay(&self, id: GroupId) -> Result<Option<Arc<SlotSet>>, IndexError> {
        self.read(|| self.find_overlay(id))
    }

    fn overlays(&self) -> Result<Vec<(GroupId, Arc<SlotSet>)>, IndexError> {
        let entry = |place| {
            let (id, slots) = self.overlay_entry(place)?;
            Ok((id, self.slot_set(slots)?))
        };
        self.read(|| (0..self.directory.overlays.count).map(entry).collect::<Result<_, _>>())
    }

    fn removed(&self) -> &RoaringBitmap {
        &self.directory.removed
    }
}
