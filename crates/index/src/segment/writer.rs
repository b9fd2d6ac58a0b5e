//! Sources become one segment: a mutable one when it is frozen, several immutable ones when they are merged.
//!
//! Sources own ascending ranges of ids, so that sets of ids are joined end to end. Texts, postings and rows go through in
//! one pass; in memory stand the map from old value numbers to new ones, and for each group its family's number.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write;
use std::sync::Arc;

use codec::varint;
use roaring::RoaringBitmap;

use super::dictionary::DictionaryWriter;
use super::directory::{DatabasePlaces, Directory, NamePlaces, Posting, Table};
use super::rows::RowsWriter;
use super::{CHECKED_BYTES, END_MAGIC, HEADER_BYTES, header};
use crate::ids::Ids;
use crate::source::{Family, Source, TermCursor};
use crate::{DatabaseId, GroupId, IndexError, SlotSet};

/// Identities that share a bucket, about.
const BUCKET_IDENTITIES: u64 = 16;

const TOO_LARGE: IndexError = IndexError::Full("a table of the index segment would be beyond 4 GiB");

/// Writes what the sources hold, oldest first, without the removed groups.
pub(crate) fn write_segment(
    sources: &[&dyn Source],
    removed: &RoaringBitmap,
    seed: u64,
    sink: &mut dyn Write,
) -> Result<(), IndexError> {
    let (Some(oldest), Some(newest)) = (sources.first(), sources.last()) else {
        return Ok(());
    };
    let directory = Directory { seed, first: oldest.first(), end: newest.end(), ..Directory::default() };
    let mut maps = Vec::new();
    maps.resize_with(sources.len(), HashMap::new);
    let mut writer = Writer { sources, removed, out: Out::new(sink), directory, maps, tables: Tables::default() };
    writer.out.push(&header())?;
    let databases: BTreeSet<DatabaseId> = sources.iter().flat_map(|source| source.databases()).collect();
    for database in databases {
        writer.database(database)?;
    }
    writer.groups()?;
    writer.identities()?;
    writer.overlays()?;
    writer.tables()?;
    writer.finish()
}

struct Writer<'a> {
    sources: &'a [&'a dyn Source],
    removed: &'a RoaringBitmap,
    out: Out<'a>,
    directory: Directory,
    /// For each source, what its names and values are called in the new segment.
    maps: Vec<HashMap<DatabaseId, Vec<NameMap>>>,
    tables: Tables,
}

/// The new number of a name, and by old number those of its values.
#[derive(Default, Clone)]
struct NameMap {
    number: u32,
    values: Vec<u32>,
}

/// Families and what they are made of, each once.
#[derive(Default)]
struct Tables {
    families: Vec<[u32; 5]>,
    family_numbers: HashMap<[u32; 4], u32>,
    schemas: Interned<Vec<u32>>,
    slot_sets: Interned<Arc<SlotSet>>,
}

struct Interned<T> {
    items: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { items: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Interned<T> {
    fn number(&mut self, item: T) -> u32 {
        if let Some(number) = self.numbers.get(&item) {
            return *number;
        }
        let number = self.items.len() as u32;
        self.items.push(item.clone());
        self.numbers.insert(item, number);
        number
    }
}

impl Writer<'_> {
    fn database(&mut self, id: DatabaseId) -> Result<(), IndexError> {
        let mut all = RoaringBitmap::new();
        for source in self.sources {
            all |= source.all(id)?;
        }
        all -= self.removed;
        let all = self.posting(&Ids::Many(all))?;
        let measurements = self.measurements(id)?;
        let sources = self.sources;
        let texts: BTreeSet<&str> = sources.iter().flat_map(|source| source.names(id)).map(|name| name.text).collect();
        let mut names = Vec::new();
        for text in texts {
            names.extend(self.name(id, text, names.len() as u32)?);
        }
        if all.count > 0 {
            self.directory.databases.push(DatabasePlaces { id, all, measurements, names });
        }
        Ok(())
    }

    fn measurements(&mut self, database: DatabaseId) -> Result<Table, IndexError> {
        let mut numbers = BTreeSet::new();
        for source in self.sources {
            numbers.extend(source.measurements(database)?);
        }
        let mut entries = Vec::new();
        let mut count = 0;
        for number in numbers {
            let mut parts = Vec::new();
            for source in self.sources {
                parts.extend(source.measurement(database, number)?);
            }
            let ids = self.without_removed(parts);
            if ids.len() == 0 {
                continue;
            }
            let posting = self.posting(&ids)?;
            entries.extend_from_slice(&number.to_le_bytes());
            entries.extend_from_slice(&posting.count.to_le_bytes());
            entries.extend_from_slice(&posting.offset.to_le_bytes());
            entries.extend_from_slice(&u32::try_from(posting.bytes).map_err(|_| TOO_LARGE)?.to_le_bytes());
            count += 1;
        }
        Ok(Table { offset: self.out.push(&entries)?, count })
    }

    fn without_removed(&self, parts: Vec<Ids>) -> Ids {
        let mut ids = join(parts);
        if !self.removed.is_empty() {
            ids.remove(self.removed);
        }
        ids
    }

    fn posting(&mut self, ids: &Ids) -> Result<Posting, IndexError> {
        let mut bytes = Vec::new();
        ids.encode(self.directory.first, &mut bytes);
        Ok(Posting { offset: self.out.push(&bytes)?, bytes: bytes.len() as u64, count: ids.len() })
    }

    /// Writes postings and dictionary of a label name; `None` if no group is left that has it.
    fn name(&mut self, database: DatabaseId, text: &str, number: u32) -> Result<Option<NamePlaces>, IndexError> {
        let mut having = Vec::new();
        let mut cursors: Vec<(usize, u32, Box<dyn TermCursor + '_>)> = Vec::new();
        for (place, source) in self.sources.iter().enumerate() {
            let Some(name) = source.name(database, text) else {
                continue;
            };
            having.push(Ids::Many(source.having(database, name.number)?));
            // Behind it the number of values is known to be one that the source has room for.
            let mut cursor = source.terms(database, name.number, "", true)?;
            self.map_of(place, database, name.number, NameMap { number, values: vec![0; name.values as usize] });
            if cursor.advance()? {
                cursors.push((place, name.number, cursor));
            }
        }
        let having = self.without_removed(having);
        let having = self.posting(&having)?;
        let mut dictionary = DictionaryWriter::default();
        let postings = self.out.at;
        let mut bytes = Vec::new();
        while let Some(text) = cursors.iter().map(|(_, _, cursor)| cursor.text()).min().map(str::to_owned) {
            let ids = self.take_term(database, &text, dictionary.terms, &mut cursors)?;
            if ids.len() == 0 {
                continue;
            }
            bytes.clear();
            ids.encode(self.directory.first, &mut bytes);
            let at = self.out.push(&bytes)? - postings;
            dictionary.push(&text, ids.len(), at, bytes.len()).ok_or(TOO_LARGE)?;
        }
        let postings_bytes = self.out.at - postings;
        let offsets = NamePlaces {
            text: text.to_owned(),
            having,
            values: dictionary.terms,
            postings,
            postings_bytes,
            dictionary: self.out.push(&dictionary.bytes)?,
            dictionary_bytes: dictionary.bytes.len() as u64,
            blocks: self.out.push(&dictionary.offsets)?,
        };
        Ok(Some(offsets).filter(|offsets| offsets.having.count > 0))
    }

    fn map_of(&mut self, source: usize, database: DatabaseId, name: u32, map: NameMap) {
        let Some(maps) = self.maps.get_mut(source) else {
            return;
        };
        let names = maps.entry(database).or_default();
        if names.len() <= name as usize {
            names.resize(name as usize + 1, NameMap::default());
        }
        names[name as usize] = map;
    }

    /// The ids of the term in all sources that have it, without removed ones; its number there becomes the new one.
    fn take_term(
        &mut self,
        database: DatabaseId,
        text: &str,
        number: u32,
        cursors: &mut Vec<(usize, u32, Box<dyn TermCursor + '_>)>,
    ) -> Result<Ids, IndexError> {
        let mut parts = Vec::new();
        let mut ended = Vec::new();
        for (at, (source, name, cursor)) in cursors.iter_mut().enumerate() {
            if cursor.text() != text {
                continue;
            }
            parts.push(cursor.ids()?);
            let maps = self.maps.get_mut(*source).and_then(|maps| maps.get_mut(&database));
            let map = maps.and_then(|maps| maps.get_mut(*name as usize));
            if let Some(value) = map.and_then(|map| map.values.get_mut(cursor.number() as usize)) {
                *value = number;
            }
            if !cursor.advance()? {
                ended.push(at);
            }
        }
        ended.into_iter().rev().for_each(|at| drop(cursors.remove(at)));
        Ok(self.without_removed(parts))
    }

    /// Writes the groups' rows and families.
    fn groups(&mut self) -> Result<(), IndexError> {
        let mut most = 1u32;
        for source in self.sources {
            // Each overlay may make a family of its own.
            most = most.saturating_add(source.families()).saturating_add(source.overlays()?.len() as u32);
        }
        let width = 4 - most.leading_zeros() as usize / 8;
        self.directory.family_bytes = width as u8;
        self.directory.rows = self.out.at;
        let mut rows = RowsWriter::default();
        let mut families = Vec::new();
        for place in 0..self.sources.len() {
            self.groups_of(place, &mut rows, &mut families)?;
        }
        self.directory.row_places = self.out.push(&rows.offsets)?;
        self.directory.row_families = self.out.push(&families)?;
        Ok(())
    }

    fn groups_of(&mut self, place: usize, rows: &mut RowsWriter, families: &mut Vec<u8>) -> Result<(), IndexError> {
        let Some((source, newer)) = self.sources.get(place..).and_then(|sources| sources.split_first()) else {
            return Ok(());
        };
        // Newest last, so that it stays.
        let mut overlays: BTreeMap<GroupId, Arc<SlotSet>> = BTreeMap::new();
        for newer in newer {
            overlays.extend(newer.overlays()?);
        }
        let maps = self.maps.get(place).ok_or(TOO_LARGE)?;
        let (removed, out, directory, tables) = (self.removed, &mut self.out, &mut self.directory, &mut self.tables);
        let width = usize::from(directory.family_bytes);
        let mut known: HashMap<u32, OldFamily> = HashMap::new();
        let (mut values, mut bytes) = (Vec::new(), Vec::new());
        source.each_group(&mut |id, number, old_values| {
            if removed.contains(id) {
                return Ok(());
            }
            let old = match known.entry(number) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(OldFamily::new(source.family(number)?, maps, tables)),
            };
            let family = match overlays.get(&id) {
                None => old.number,
                Some(slots) => tables.family(&old.family, old.schema, slots.clone()),
            };
            if let Some(entry) = tables.families.get_mut(family as usize) {
                entry[4] += 1;
            }
            values.clear();
            values.extend(old.names.iter().zip(old_values).map(|(name, value)| name.value(*value)));
            bytes.clear();
            rows.encode(old.schema, &values, &mut bytes).ok_or(TOO_LARGE)?;
            out.push(&bytes)?;
            families.extend_from_slice(family.to_le_bytes().get(..width).unwrap_or_default());
            directory.present.insert(id);
            Ok(())
        })
    }

    /// Writes the fingerprints, joined by size, with the groups that bear them.
    fn identities(&mut self) -> Result<(), IndexError> {
        let bits = (self.directory.present.len() / BUCKET_IDENTITIES).checked_ilog2().unwrap_or(0);
        let mut sources = Vec::new();
        for source in self.sources {
            let mut left = source.fingerprints().peekable();
            if left.peek().is_some() {
                sources.push(left);
            }
        }
        let mut starts = vec![0u32];
        let mut count = 0u32;
        self.directory.identities = self.out.at;
        loop {
            let mut smallest: Option<(u32, GroupId, usize)> = None;
            for (place, source) in sources.iter_mut().enumerate() {
                let next = match source.peek() {
                    Some(Ok((fingerprint, id))) => (*fingerprint, *id, place),
                    Some(Err(_)) => (0, 0, place),
                    None => continue,
                };
                smallest = Some(smallest.map_or(next, |smallest| smallest.min(next)));
            }
            let Some(next) = smallest.and_then(|(_, _, place)| sources.get_mut(place)?.next()) else {
                break;
            };
            let (fingerprint, id) = next?;
            if self.removed.contains(id) {
                continue;
            }
            let bucket = if bits == 0 { 0 } else { fingerprint >> (32 - bits) };
            starts.resize((bucket as usize + 1).max(starts.len()), count);
            count += 1;
            self.out.push(&fingerprint.to_le_bytes())?;
            self.out.push(&id.to_le_bytes())?;
        }
        starts.resize((1 << bits) + 1, count);
        let starts: Vec<u8> = starts.iter().flat_map(|start| start.to_le_bytes()).collect();
        self.directory.buckets = self.out.push(&starts)?;
        self.directory.bucket_bits = bits as u8;
        Ok(())
    }

    /// Writes the changes of groups that are older than the segment.
    fn overlays(&mut self) -> Result<(), IndexError> {
        let first = self.directory.first;
        let mut overlays: BTreeMap<GroupId, Arc<SlotSet>> = BTreeMap::new();
        for source in self.sources {
            overlays.extend(source.overlays()?);
            self.directory.removed |= source.removed();
        }
        self.directory.removed.remove_range(first..);
        let mut bytes = Vec::new();
        let mut count = 0;
        for (id, slots) in overlays.range(..first).filter(|(id, _)| !self.removed.contains(**id)) {
            bytes.extend_from_slice(&id.to_le_bytes());
            bytes.extend_from_slice(&self.tables.slot_sets.number(slots.clone()).to_le_bytes());
            count += 1;
        }
        self.directory.overlays = Table { offset: self.out.push(&bytes)?, count };
        Ok(())
    }

    fn tables(&mut self) -> Result<(), IndexError> {
        let families: Vec<u8> = self.tables.families.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
        let count = self.tables.families.len() as u32;
        self.directory.families = Table { offset: self.out.push(&families)?, count };
        let schema = |names: &Vec<u32>| {
            let mut bytes = Vec::new();
            names.iter().for_each(|name| varint::push(&mut bytes, u64::from(*name)));
            bytes
        };
        let schemas: Vec<Vec<u8>> = self.tables.schemas.items.iter().map(schema).collect();
        self.directory.schemas = self.sized(&schemas)?;
        let slot_set = |slots: &Arc<SlotSet>| {
            let mut bytes = Vec::new();
            slots.encode(&mut bytes);
            bytes
        };
        let slot_sets: Vec<Vec<u8>> = self.tables.slot_sets.items.iter().map(slot_set).collect();
        self.directory.slot_sets = self.sized(&slot_sets)?;
        Ok(())
    }

    /// Writes items of many sizes: where each begins, where the last ends, then the items.
    fn sized(&mut self, items: &[Vec<u8>]) -> Result<Table, IndexError> {
        let mut offsets = vec![0; 4];
        let mut end = 0u64;
        for item in items {
            end += item.len() as u64;
            offsets.extend_from_slice(&u32::try_from(end).map_err(|_| TOO_LARGE)?.to_le_bytes());
        }
        let table = Table { offset: self.out.push(&offsets)?, count: items.len() as u32 };
        for item in items {
            self.out.push(item)?;
        }
        Ok(table)
    }

    fn finish(mut self) -> Result<(), IndexError> {
        let offset = self.out.at;
        self.directory.checksums = self.out.take_checksums().into();
        let mut bytes = Vec::new();
        self.directory.encode(&mut bytes);
        let checksum = crc32c::crc32c(&bytes);
        self.out.push(&bytes)?;
        self.out.push(&offset.to_le_bytes())?;
        self.out.push(&checksum.to_le_bytes())?;
        self.out.push(END_MAGIC)?;
        self.out.flush()
    }
}

/// A family of a source, and what it becomes.
struct OldFamily<'m> {
    family: Family,
    /// Its number in the new segment.
    number: u32,
    schema: u32,
    names: Vec<&'m NameMap>,
}

impl<'m> OldFamily<'m> {
    fn new(family: Family, maps: &'m HashMap<DatabaseId, Vec<NameMap>>, tables: &mut Tables) -> Self {
        let maps = maps.get(&family.database).map(Vec::as_slice).unwrap_or_default();
        let names: Vec<&NameMap> = family.names.iter().filter_map(|name| maps.get(*name as usize)).collect();
        let schema = tables.schemas.number(names.iter().map(|map| map.number).collect());
        let number = tables.family(&family, schema, family.slots.clone());
        Self { family, number, schema, names }
    }
}

impl NameMap {
    fn value(&self, old: u32) -> u32 {
        self.values.get(old as usize).copied().unwrap_or(0)
    }
}

impl Tables {
    fn family(&mut self, like: &Family, schema: u32, slots: Arc<SlotSet>) -> u32 {
        let key = [like.database, like.measurement, schema, self.slot_sets.number(slots)];
        let next = self.families.len() as u32;
        let number = *self.family_numbers.entry(key).or_insert(next);
        if number == next {
            self.families.push([key[0], key[1], key[2], key[3], 0]);
        }
        number
    }
}

/// Sets of ascending ranges, end to end.
fn join(parts: Vec<Ids>) -> Ids {
    let mut joined = Ids::Few(Vec::new());
    for part in parts {
        joined = match (joined, part) {
            (Ids::Few(before), part) if before.is_empty() => part,
            (Ids::Few(mut before), Ids::Few(after)) => {
                before.extend(after);
                Ids::Few(before)
            }
            (before, after) => Ids::Many(before.into_bitmap() | after.into_bitmap()),
        };
    }
    joined
}

/// Counts, buffers and checks what goes to the sink.
struct Out<'a> {
    sink: &'a mut dyn Write,
    buffer: Vec<u8>,
    at: u64,
    checksums: Vec<u32>,
    checksum: u32,
    /// Bytes in the checksum.
    checked: usize,
}

const BUFFER_BYTES: usize = 256 << 10;

impl<'a> Out<'a> {
    fn new(sink: &'a mut dyn Write) -> Self {
        Self { sink, buffer: Vec::new(), at: 0, checksums: Vec::new(), checksum: 0, checked: 0 }
    }

    /// Appends bytes, and gives where they begin.
    fn push(&mut self, bytes: &[u8]) -> Result<u64, IndexError> {
        let at = self.at;
        if at >= HEADER_BYTES as u64 {
            self.check(bytes);
        }
        self.at += bytes.len() as u64;
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(at)
    }

    fn check(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(CHECKED_BYTES - self.checked));
            self.checksum = crc32c::crc32c_append(self.checksum, now);
            self.checked += now.len();
            bytes = later;
            if self.checked == CHECKED_BYTES {
                self.checksums.push(self.checksum);
                (self.checksum, self.checked) = (0, 0);
            }
        }
    }

    fn take_checksums(&mut self) -> Vec<u32> {
        if self.checked > 0 {
            self.checksums.push(self.checksum);
        }
        std::mem::take(&mut self.checksums)
    }

    fn flush(&mut self) -> Result<(), IndexError> {
        self.sink.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
