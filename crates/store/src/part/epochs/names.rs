//! Names of a regular database, and the indexes under which their values lie.
//!
//! An entry says that a name has an index from an epoch to just before another one. A name that is removed keeps its entries; added again it
//! gets a new one. An index is free for another name from the epoch on in which nothing can have been written for the one before.

use std::collections::BTreeMap;

use codec::{DecodeError, Effort, Reader, integer, text, varint};
use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Changes that one record holds at most.
pub(crate) const CHANGES_MAX: usize = 1 << 16;

/// Bytes that a name may have.
pub(crate) const NAME_BYTES_MAX: usize = 1024;

/// No entry, no name.
const NONE: u32 = u32::MAX;

/// The end of what is valid for good.
pub(crate) const OPEN: i64 = i64::MAX;

/// An index that a name has for some epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The name's number.
    pub(crate) name: u32,
    pub(crate) index: u32,
    /// The first epoch in which it is valid.
    pub(crate) from: i64,
    /// The first one in which it is no more.
    pub(crate) to: i64,
    /// The first one in which another name may have the index.
    free_from: i64,
    /// The entry before of this name, and of this index.
    of_name: u32,
    of_index: u32,
}

impl Entry {
    pub(crate) const fn is_valid_at(&self, epoch: i64) -> bool {
        self.from <= epoch && epoch < self.to
    }

    /// Returns whether no other name may have the index in one of some epochs.
    const fn occupies(&self, from: i64, to: i64) -> bool {
        self.from < to && from < self.free_from
    }
}

/// A change of names, as a record holds it: an entry in place of what its number stood for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) entry: u32,
    pub(crate) name: u32,
    pub(crate) index: u32,
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) free_from: i64,
}

/// Changes, and the names among them that are new, in order.
#[derive(Debug, Default)]
pub(crate) struct Changes<'a> {
    pub(crate) changes: Vec<Change>,
    pub(crate) texts: Vec<&'a str>,
}

/// All names, and what is valid when.
#[derive(Clone)]
pub(crate) struct NameTable {
    seed: u64,
    /// All names, one behind the other, and where each ends.
    text: String,
    ends: Vec<usize>,
    by_text: HashTable<u32>,
    entries: Vec<Entry>,
    /// The last entry of each name, and of each index.
    last_of_name: Vec<u32>,
    last_of_index: Vec<u32>,
    /// Indexes that are free, and from which epoch on.
    free: BTreeMap<u32, i64>,
}

impl NameTable {
    /// One without names. The seed makes what names hash to hard to guess.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            seed,
            text: String::new(),
            ends: Vec::new(),
            by_text: HashTable::new(),
            entries: Vec::new(),
            last_of_name: Vec::new(),
            last_of_index: Vec::new(),
            free: BTreeMap::new(),
        }
    }

    pub(crate) fn names(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Indexes that were ever given out.
    pub(crate) fn indexes(&self) -> usize {
        self.last_of_index.len()
    }

    /// A name by its number.
    pub(crate) fn text(&self, name: u32) -> &str {
        text_at(&self.text, &self.ends, name)
    }

    /// The number of a name.
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        let hash = xxh3_64_with_seed(name.as_bytes(), self.seed);
        self.by_text.find(hash, |number| self.text(*number) == name).copied()
    }

    /// The entries of a name, the newest first.
    pub(crate) fn entries_of(&self, name: u32) -> impl Iterator<Item = (u32, &Entry)> {
        let last = self.last_of_name.get(name as usize).copied().unwrap_or(NONE);
        self.chain(last, |entry| entry.of_name)
    }

    /// The entries of an index, the newest first.
    pub(crate) fn entries_at_index(&self, index: u32) -> impl Iterator<Item = (u32, &Entry)> {
        let last = self.last_of_index.get(index as usize).copied().unwrap_or(NONE);
        self.chain(last, |entry| entry.of_index)
    }

    fn chain(&self, first: u32, next: impl Fn(&Entry) -> u32) -> impl Iterator<Item = (u32, &Entry)> {
        let mut at = first;
        std::iter::from_fn(move || {
            let number = at;
            let entry = self.entries.get(number as usize)?;
            at = next(entry);
            Some((number, entry))
        })
    }

    /// The index that a name has in an epoch.
    pub(crate) fn index_at(&self, name: u32, epoch: i64) -> Option<u32> {
        self.entries_of(name).find(|(_, entry)| entry.is_valid_at(epoch)).map(|(_, entry)| entry.index)
    }

    /// The indexes that names have in an epoch; [`None`] for those that are not valid in it. A name is looked for right after the one that was
    /// found before: senders mostly send the same names in the same order.
    pub(crate) fn resolve<'n>(&self, names: impl Iterator<Item = &'n str>, epoch: i64) -> Vec<Option<u32>> {
        let mut next = 0;
        let index = |name: &str| {
            let number =
                if (next as usize) < self.names() && self.text(next) == name { next } else { self.number(name)? };
            next = number + 1;
            self.index_at(number, epoch)
        };
        names.map(index).collect()
    }

    /// What makes names valid in an epoch and from then on, as far as nothing that was said later stands against it. The names are not valid in
    /// it, and no name comes twice.
    pub(crate) fn plan_additions<'n>(&self, names: &[&'n str], epoch: i64) -> Changes<'n> {
        let mut planned = Changes::default();
        let is_free = |(_, free_from): &(&u32, &i64)| **free_from <= epoch;
        let mut free = self.free.iter().filter(is_free).map(|(index, _)| *index);
        let mut new_index = self.last_of_index.len() as u32;
        let mut new_entry = self.entries.len() as u32;
        for text in names {
            let known = self.number(text);
            let later = known.and_then(|name| {
                let later = self.entries_of(name).filter(|(_, entry)| entry.from > epoch && entry.from < entry.to);
                later.min_by_key(|(_, entry)| entry.from)
            });
            if let Some((number, entry)) = later.filter(|(number, entry)| self.reaches_back(*number, entry, epoch)) {
                planned.changes.push(entry.changed(number, Entry { from: epoch, ..*entry }));
                continue;
            }
            let index = free.next().unwrap_or_else(|| {
                new_index += 1;
                new_index - 1
            });
            let to = later.map_or(OPEN, |(_, entry)| entry.from);
            let name = known.unwrap_or_else(|| {
                planned.texts.push(text);
                (self.names() + planned.texts.len() - 1) as u32
            });
            planned.changes.push(Change { entry: new_entry, name, index, from: epoch, to, free_from: to });
            new_entry += 1;
        }
        planned
    }

    /// Returns whether an entry could have been valid from an earlier epoch on.
    fn reaches_back(&self, number: u32, entry: &Entry, epoch: i64) -> bool {
        let mut others = self.entries_at_index(entry.index).filter(|(other, _)| *other != number);
        others.all(|(_, other)| !other.occupies(epoch, entry.from))
    }

    /// What ends names before an epoch; nothing was written after `last`. The first name that is not valid in the epoch is an error.
    pub(crate) fn plan_removals<'n>(
        &self,
        names: &[&'n str],
        epoch: i64,
        last: i64,
    ) -> Result<Changes<'static>, &'n str> {
        let mut planned = Changes::default();
        for text in names {
            let name = self.number(text).ok_or(*text)?;
            let covering = self.entries_of(name).find(|(_, entry)| entry.is_valid_at(epoch));
            // What goes on under another index ends, too.
            let (mut ended, mut to) = (Some(covering.ok_or(*text)?), epoch);
            while let Some((number, entry)) = ended {
                let free_from = to.max(last.saturating_add(1)).min(entry.free_from);
                planned.changes.push(entry.changed(number, Entry { to, free_from, ..*entry }));
                to = entry.to;
                let goes_on = |next: &Entry| next.from == to && next.from < next.to;
                ended = self.entries_of(name).find(|(_, next)| goes_on(next));
            }
        }
        Ok(planned)
    }

    /// Applies a change; the text is that of its name if that is new. Fails if it does not go on from what is there.
    pub(crate) fn apply(&mut self, change: &Change, text: Option<&str>) -> Result<(), &'static str> {
        let Change { entry, name, index, from, to, free_from } = *change;
        if let Some(text) = text {
            self.add_name(name, text)?;
        }
        if name as usize >= self.names() || index == NONE || index as usize > self.last_of_index.len() {
            return Err("entry of an unknown name or index");
        }
        let next = self.entries.len();
        match self.entries.get_mut(entry as usize) {
            Some(known) if known.name == name && known.index == index => {
                *known = Entry { from, to, free_from, ..*known };
            }
            None if entry as usize == next && entry != NONE => {
                if index as usize == self.last_of_index.len() {
                    self.last_of_index.push(NONE);
                }
                let replace = |last: Option<&mut u32>| last.map_or(NONE, |last| std::mem::replace(last, entry));
                let of_name = replace(self.last_of_name.get_mut(name as usize));
                let of_index = replace(self.last_of_index.get_mut(index as usize));
                self.entries.push(Entry { name, index, from, to, free_from, of_name, of_index });
            }
            _ => return Err("entry that does not follow"),
        }
        self.note_free(index);
        Ok(())
    }

    fn note_free(&mut self, index: u32) {
        let free_from = self.entries_at_index(index).map(|(_, entry)| entry.free_from).max();
        match free_from.filter(|free_from| *free_from != OPEN) {
            Some(free_from) => self.free.insert(index, free_from),
            None => self.free.remove(&index),
        };
    }

    fn add_name(&mut self, number: u32, text: &str) -> Result<(), &'static str> {
        if number as usize != self.names() || number == NONE || self.number(text).is_some() {
            return Err("name that does not follow");
        }
        self.text.push_str(text);
        self.ends.push(self.text.len());
        self.last_of_name.push(NONE);
        let Self { by_text, text: all, ends, seed, .. } = self;
        let hash = |text: &str| xxh3_64_with_seed(text.as_bytes(), *seed);
        by_text.insert_unique(hash(text), number, |number| hash(text_at(all, ends, *number)));
        Ok(())
    }

    /// Bytes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.text.capacity()
            + self.ends.capacity() * size_of::<usize>()
            + self.by_text.capacity() * (size_of::<u32>() + 1)
            + self.entries.capacity() * size_of::<Entry>()
            + (self.last_of_name.capacity() + self.last_of_index.capacity()) * size_of::<u32>()
            + self.free.len() * 24
    }
}

impl Entry {
    /// What makes it another one.
    const fn changed(&self, number: u32, entry: Self) -> Change {
        let Self { from, to, free_from, .. } = entry;
        Change { entry: number, name: self.name, index: self.index, from, to, free_from }
    }
}

fn text_at<'t>(text: &'t str, ends: &[usize], name: u32) -> &'t str {
    let start = (name as usize).checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    ends.get(name as usize).and_then(|end| text.get(start..*end)).unwrap_or_default()
}

/// Appends changes, [`CHANGES_MAX`] at most.
pub(crate) fn encode_changes(changes: &[Change], texts: &[&str], out: &mut Vec<u8>) {
    varint::push(out, changes.len() as u64);
    let columns: [fn(&Change) -> i64; 6] = [
        |change| i64::from(change.entry),
        |change| i64::from(change.name),
        |change| i64::from(change.index),
        |change| change.from,
        |change| change.to,
        |change| change.free_from,
    ];
    for column in columns {
        let numbers: Vec<i64> = changes.iter().map(column).collect();
        integer::encode_with(&numbers, Effort::Small, out);
    }
    varint::push(out, texts.len() as u64);
    if !texts.is_empty() {
        text::encode_with(texts, Effort::Small, out);
    }
}

/// Reads what [`encode_changes`] wrote: changes, and texts of those whose names are new.
pub(crate) fn decode_changes(bytes: &[u8]) -> Result<(Vec<Change>, Vec<String>), DecodeError> {
    let mut reader = Reader::new(bytes);
    let count = reader.length(CHANGES_MAX)?;
    let mut columns: [Vec<i64>; 6] = Default::default();
    for column in &mut columns {
        integer::decode(&mut reader, count, column)?;
    }
    let new = reader.length(count)?;
    let texts = if new == 0 { Vec::new() } else { text::decode(&mut reader, new)? };
    if !reader.is_empty() {
        return Err(reader.error("bytes after changes of names"));
    }
    let at =
        |column: usize, place: usize| columns.get(column).and_then(|column| column.get(place)).copied().unwrap_or(0);
    let number = |column, place| u32::try_from(at(column, place)).map_err(|_| reader.error("number beyond 32 bits"));
    let change = |place| {
        Ok(Change {
            entry: number(0, place)?,
            name: number(1, place)?,
            index: number(2, place)?,
            from: at(3, place),
            to: at(4, place),
            free_from: at(5, place),
        })
    };
    Ok(((0..count).map(change).collect::<Result<_, _>>()?, texts))
}

/// Applies changes that were read: new names are those beyond the known ones.
pub(crate) fn apply_changes(
    table: &mut NameTable,
    changes: &[Change],
    texts: &[impl AsRef<str>],
) -> Result<(), &'static str> {
    let mut texts = texts.iter();
    for change in changes {
        let is_new = change.name as usize == table.names();
        let text = if is_new { Some(texts.next().ok_or("text of a new name missing")?) } else { None };
        table.apply(change, text.map(AsRef::as_ref))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(table: &mut NameTable, names: &[&str], epoch: i64) {
        let Changes { changes, texts } = table.plan_additions(names, epoch);
        let mut bytes = Vec::new();
        encode_changes(&changes, &texts, &mut bytes);
        let (read, read_texts) = decode_changes(&bytes).unwrap();
        assert_eq!(read, changes);
        apply_changes(table, &read, &read_texts).unwrap();
    }

    fn remove(table: &mut NameTable, name: &str, epoch: i64, last: i64) {
        let planned = table.plan_removals(&[name], epoch, last).unwrap();
        apply_changes(table, &planned.changes, &planned.texts).unwrap();
    }

    fn ranges(table: &NameTable, name: &str) -> Vec<(u32, i64, i64)> {
        let name = table.number(name).unwrap();
        let mut all: Vec<_> = table.entries_of(name).map(|(_, entry)| (entry.index, entry.from, entry.to)).collect();
        all.sort_by_key(|(_, from, _)| *from);
        all
    }

    #[test]
    fn a_removed_name_keeps_its_past_and_gets_another_index() {
        let mut table = NameTable::new(1);
        add(&mut table, &["x", "y"], 10);
        remove(&mut table, "x", 20, 25);
        // Something was written under index 0 until epoch 25.
        add(&mut table, &["early"], 22);
        assert_eq!(ranges(&table, "early"), [(2, 22, OPEN)]);
        add(&mut table, &["z"], 26);
        assert_eq!(ranges(&table, "z"), [(0, 26, OPEN)]);
        add(&mut table, &["x"], 30);
        assert_eq!(ranges(&table, "x"), [(0, 10, 20), (3, 30, OPEN)]);
        assert_eq!(table.resolve(["x", "y", "z", "none"].into_iter(), 19), [Some(0), Some(1), None, None]);
        assert_eq!(table.resolve(["x", "y", "z"].into_iter(), 25), [None, Some(1), None]);
        assert_eq!(table.plan_removals(&["y", "x"], 25, 0).err(), Some("x"));
    }

    #[test]
    fn what_is_written_for_the_past_reaches_back_where_the_index_was_free() {
        let mut table = NameTable::new(1);
        add(&mut table, &["x", "y"], 10);
        add(&mut table, &["x"], 5);
        assert_eq!(ranges(&table, "x"), [(0, 5, OPEN)]);
        remove(&mut table, "y", 20, 20);
        add(&mut table, &["z"], 21);
        // Index 1 was that of y.
        add(&mut table, &["z"], 15);
        assert_eq!(ranges(&table, "z"), [(2, 15, 21), (1, 21, OPEN)]);
        assert_eq!(table.index_at(table.number("z").unwrap(), 15), Some(2));
    }

    #[test]
    fn changes_that_do_not_follow_are_refused() {
        let mut table = NameTable::new(1);
        let change = Change { entry: 0, name: 0, index: 0, from: 0, to: OPEN, free_from: OPEN };
        assert!(table.apply(&Change { entry: 1, ..change }, Some("a")).is_err());
        let mut table = NameTable::new(1);
        assert!(table.apply(&change, None).is_err());
        table.apply(&change, Some("a")).unwrap();
        assert!(table.apply(&Change { name: 1, ..change }, Some("a")).is_err(), "the same name twice");
        assert!(table.apply(&Change { index: 2, entry: 1, ..change }, None).is_err());
        assert!(decode_changes(&[1, 2, 3]).is_err());
    }
}
