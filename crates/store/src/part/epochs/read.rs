//! Reading regular databases: epochs of names, names of an epoch, and which names are valid when.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use model::{EpochColumn, EpochNames, TimeRange};

use super::block::BLOCK_SLOTS;
use super::definition::{EpochKind, EpochValue, RegularDefinition};
use super::names::{Entry, NameTable, OPEN};
use super::regular::{BlockReader, Regular};
use super::write::slot_of;
use crate::{Store, StoreError};

/// Of so many blocks in all, one must be wanted for an epoch to be read whole.
const WHOLE_SHARE: usize = 4;

/// What a series has in an epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EpochCell {
    /// The name is not valid in the epoch.
    Undefined,
    /// Nothing was written, and the database has no value for that.
    Missing,
    /// A value.
    Value(EpochValue),
}

impl EpochCell {
    /// The word for it in tables: `undefined`, `missing` or `value`.
    pub const fn status(&self) -> &'static str {
        match self {
            Self::Undefined => "undefined",
            Self::Missing => "missing",
            Self::Value(_) => "value",
        }
    }
}

/// A series of a regular database over some epochs.
#[derive(Debug, Clone, PartialEq)]
pub struct NameRows {
    /// Its name.
    pub name: String,
    /// The epochs' times, ascending.
    pub times_ns: Vec<i64>,
    /// Its cell in each.
    pub cells: Vec<EpochCell>,
}

/// All series that are valid in an epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct EpochRow {
    /// The epoch's time.
    pub time_ns: i64,
    /// Names of those that have a value, in order of their indexes.
    pub names: EpochNames,
    /// The values.
    pub values: EpochColumn,
    /// Names of those that have none.
    pub missing: EpochNames,
}

/// An index that a name has for some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameValidity {
    /// The name.
    pub name: String,
    /// Where its values lie.
    pub index: u32,
    /// The time of the first epoch in which it is valid.
    pub from_ns: i64,
    /// The time of the first one in which it is no more; `None`: it is valid for good.
    pub to_ns: Option<i64>,
}

/// Which epochs of a series are rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpochRows {
    /// Those with a value, also one that stands for a missing one.
    Values,
    /// All from the first to the last in which the name is valid.
    Life,
    /// All, from the first in which something was written for any series to the last.
    All,
}

/// Series of a regular database over some time.
#[derive(Debug, Clone, Copy)]
pub struct NamesRead<'a> {
    /// The numbers of the names, by [`Store::name_numbers`].
    pub names: &'a [u32],
    /// From when to when.
    pub range: TimeRange,
    /// Which epochs are rows.
    pub rows: EpochRows,
}

/// An entry of a wanted name, in its block.
struct Wanted {
    slot: usize,
    /// Among the wanted names.
    index: usize,
    from: i64,
    to: i64,
}

impl Regular {
    /// The epochs of a range in which something may have been written.
    pub(super) fn epochs_in(&self, range: &TimeRange) -> RangeInclusive<i64> {
        let definition = self.definition();
        let Some((first, last)) = self.extent() else { return RangeInclusive::new(1, 0) };
        // The first one that begins in the range.
        let start = definition.epoch_at(range.start_ns.saturating_sub(1)).saturating_add(1);
        start.max(first)..=definition.epoch_at(range.end_ns).min(last)
    }

    fn wanted_blocks(&self, names: &[u32], epochs: &RangeInclusive<i64>) -> BTreeMap<u32, Vec<Wanted>> {
        let table = self.names.read();
        let mut blocks: BTreeMap<u32, Vec<Wanted>> = BTreeMap::new();
        for (index, name) in names.iter().enumerate() {
            let overlaps = |entry: &Entry| entry.from <= *epochs.end() && entry.to > *epochs.start();
            for (_, entry) in table.entries_of(*name).filter(|(_, entry)| overlaps(entry)) {
                let wanted = Wanted { slot: slot_of(entry.index), index, from: entry.from, to: entry.to };
                blocks.entry(entry.index / BLOCK_SLOTS as u32).or_default().push(wanted);
            }
        }
        blocks
    }
}

/// Values of one series as they are found: epochs and bits.
type Found = Vec<(i64, i64)>;

fn take_wanted(of_block: &[Wanted], epoch: i64, get: impl Fn(usize) -> Option<i64>, found: &mut [Found]) {
    for wanted in of_block.iter().filter(|wanted| wanted.from <= epoch && epoch < wanted.to) {
        if let (Some(bits), Some(of_name)) = (get(wanted.slot), found.get_mut(wanted.index)) {
            of_name.push((epoch, bits));
        }
    }
}

impl Store {
    /// How a database keeps its series, if it is regular.
    pub fn regular(&self, database: &str) -> Option<RegularDefinition> {
        self.find_regular(database).map(|regular| regular.definition())
    }

    pub(crate) fn find_regular(&self, database: &str) -> Option<Arc<Regular>> {
        if self.regular.read().is_empty() {
            return None;
        }
        let id = self.catalog.read().catalog.database(database)?;
        self.regular.read().get(&id).cloned()
    }

    pub(crate) fn regular_database(&self, database: &str) -> Result<Arc<Regular>, StoreError> {
        self.find_regular(database).ok_or_else(|| {
            StoreError::Invalid(format!(
                "the database {database} is not regular: CREATE DATABASE {database} WITH (interval = '5m') makes one that is"
            ))
        })
    }

    /// The epochs of a database that are kept and begin in a range.
    pub(super) fn kept_epochs(&self, regular: &Regular, range: &TimeRange) -> RangeInclusive<i64> {
        regular.epochs_in(&self.retained(regular.database, range))
    }

    /// The times of the first and of the last epoch in a range that is a row, and how many those are.
    pub fn epoch_rows(&self, database: &str, range: &TimeRange) -> Result<Option<(TimeRange, u64)>, StoreError> {
        let regular = self.regular_database(database)?;
        let epochs = self.kept_epochs(&regular, range);
        if epochs.is_empty() {
            return Ok(None);
        }
        let definition = regular.definition();
        let times = TimeRange::new(definition.time_of(*epochs.start()), definition.time_of(*epochs.end()));
        Ok(Some((times, epochs.end().abs_diff(*epochs.start()).saturating_add(1))))
    }

    /// How many names a regular database has, valid or not.
    pub fn name_count(&self, database: &str) -> Result<usize, StoreError> {
        Ok(self.regular_database(database)?.names.read().names())
    }

    /// The numbers and texts of names for which something holds and that are valid at some time of a range, in order of the texts.
    pub fn name_numbers(
        &self,
        database: &str,
        range: &TimeRange,
        holds: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<(u32, String)>, StoreError> {
        let regular = self.regular_database(database)?;
        let definition = regular.definition();
        let (first, last) = (definition.epoch_at(range.start_ns), definition.epoch_at(range.end_ns));
        let table = regular.names.read();
        let is_valid = |number: u32| table.entries_of(number).any(|(_, entry)| entry.from <= last && entry.to > first);
        let numbers = (0..table.names() as u32).filter(|number| holds(table.text(*number)) && is_valid(*number));
        let mut found: Vec<(u32, String)> = numbers.map(|number| (number, table.text(number).to_owned())).collect();
        found.sort_unstable_by(|(_, a), (_, b)| a.cmp(b));
        Ok(found)
    }

    /// The number of a name, if there ever was one.
    pub fn name_number(&self, database: &str, name: &str) -> Result<Option<u32>, StoreError> {
        Ok(self.regular_database(database)?.names.read().number(name))
    }

    /// When names are valid, in the order of their numbers in the request and of time.
    pub fn name_validity(&self, database: &str, names: &[u32]) -> Result<Vec<NameValidity>, StoreError> {
        let regular = self.regular_database(database)?;
        let definition = regular.definition();
        let table = regular.names.read();
        let mut found = Vec::with_capacity(names.len());
        for number in names {
            let mut entries: Vec<&Entry> = table.entries_of(*number).map(|(_, entry)| entry).collect();
            entries.sort_by_key(|entry| entry.from);
            found.extend(entries.into_iter().filter(|entry| entry.from < entry.to).map(|entry| NameValidity {
                name: table.text(*number).to_owned(),
                index: entry.index,
                from_ns: definition.time_of(entry.from),
                to_ns: (entry.to != OPEN).then(|| definition.time_of(entry.to)),
            }));
        }
        Ok(found)
    }

    /// What series have over some time, in the order of their names in the request.
    pub fn read_names(&self, database: &str, read: &NamesRead<'_>) -> Result<Vec<NameRows>, StoreError> {
        let regular = self.regular_database(database)?;
        let definition = regular.definition();
        let epochs = self.kept_epochs(&regular, &read.range);
        let mut found: Vec<Found> = vec![Vec::new(); read.names.len()];
        let blocks = regular.wanted_blocks(read.names, &epochs);
        let all_blocks = regular.names.read().indexes().div_ceil(BLOCK_SLOTS);
        let mut reader = BlockReader::new(definition);
        for (epoch, records) in regular.records_in(epochs.clone()) {
            if blocks.len() > 1 && blocks.len() * WHOLE_SHARE > all_blocks {
                reader.each(&records, &mut |block, values| {
                    let of_block = blocks.get(&block).map(Vec::as_slice).unwrap_or_default();
                    take_wanted(of_block, epoch, |slot| values.get(slot), &mut found);
                    Ok(())
                })?;
                continue;
            }
            for (block, of_block) in &blocks {
                if reader.read(&records, *block)? {
                    take_wanted(of_block, epoch, |slot| reader.block.get(slot), &mut found);
                }
            }
        }
        let table = regular.names.read();
        let rows = read.names.iter().zip(found).map(|(name, found)| {
            let entries: Vec<&Entry> = table.entries_of(*name).map(|(_, entry)| entry).collect();
            let (times_ns, cells) = rows_of(&definition, &entries, (epochs.clone(), read.rows), &found);
            NameRows { name: table.text(*name).to_owned(), times_ns, cells }
        });
        Ok(rows.collect())
    }

    /// What all series have in the epoch of a time.
    pub fn read_epoch(&self, database: &str, time_ns: i64) -> Result<EpochRow, StoreError> {
        let regular = self.regular_database(database)?;
        let definition = regular.definition();
        let epoch = definition.epoch_at(time_ns);
        let time_ns = definition.time_of(epoch);
        let is_kept = self.retained(regular.database, &TimeRange::new(time_ns, time_ns)).start_ns <= time_ns;
        let records = if is_kept { regular.records_in(epoch..=epoch).pop() } else { None };
        let (_, records) = records.unwrap_or((epoch, Arc::default()));
        let table = regular.names.read();
        let mut bits = vec![None; table.indexes()];
        BlockReader::new(definition).each(&records, &mut |block, values| {
            let first = block as usize * BLOCK_SLOTS;
            let of_block = bits.get_mut(first..).unwrap_or_default();
            values.each(|slot, found| {
                if let Some(index) = of_block.get_mut(slot) {
                    *index = Some(found);
                }
            });
            Ok(())
        })?;
        let names = names_at(&table, epoch);
        Ok(epoch_row(&definition, time_ns, &bits, (&table, &names)))
    }
}

/// The names of the indexes in an epoch; `None` where none is valid.
fn names_at(table: &NameTable, epoch: i64) -> Vec<Option<u32>> {
    let mut names = vec![None; table.indexes()];
    for entry in table.entries().iter().filter(|entry| entry.is_valid_at(epoch)) {
        if let Some(index) = names.get_mut(entry.index as usize) {
            *index = Some(entry.name);
        }
    }
    names
}

fn epoch_row(
    definition: &RegularDefinition,
    time_ns: i64,
    bits: &[Option<i64>],
    names: (&NameTable, &[Option<u32>]),
) -> EpochRow {
    let (table, names) = names;
    let instead = definition.missing.map(EpochValue::to_bits);
    let mut row = EpochRow {
        time_ns,
        names: EpochNames::default(),
        values: EpochColumn::Int(Vec::new()),
        missing: EpochNames::default(),
    };
    let mut present = Vec::with_capacity(bits.len());
    for (name, bits) in names.iter().zip(bits) {
        let Some(name) = name else { continue };
        match bits.or(instead) {
            Some(bits) => {
                row.names.push(table.text(*name));
                present.push(bits);
            }
            None => row.missing.push(table.text(*name)),
        }
    }
    row.values = match definition.kind {
        EpochKind::Int => EpochColumn::Int(present),
        EpochKind::Float => EpochColumn::Float(present.into_iter().map(|bits| f64::from_bits(bits as u64)).collect()),
    };
    row
}

/// The rows of a series, of which some values were found.
fn rows_of(
    definition: &RegularDefinition,
    entries: &[&Entry],
    wanted: (RangeInclusive<i64>, EpochRows),
    found: &Found,
) -> (Vec<i64>, Vec<EpochCell>) {
    let (epochs, rows) = wanted;
    let value = |bits: i64| EpochCell::Value(EpochValue::from_bits(definition.kind, bits));
    if rows == EpochRows::Values && definition.missing.is_none() {
        return found.iter().map(|(epoch, bits)| (definition.time_of(*epoch), value(*bits))).unzip();
    }
    let mut found = found.iter().peekable();
    let absent = definition.missing.map_or(EpochCell::Missing, EpochCell::Value);
    let cell = |epoch: i64| match found.next_if(|(at, _)| *at == epoch) {
        Some((_, bits)) => value(*bits),
        None if entries.iter().any(|entry| entry.is_valid_at(epoch)) => absent,
        None => EpochCell::Undefined,
    };
    let epochs = if rows == EpochRows::All { epochs } else { life_of(entries, &epochs) };
    let all = epochs.clone().map(|epoch| definition.time_of(epoch)).zip(epochs.map(cell));
    all.filter(|(_, cell)| rows != EpochRows::Values || matches!(cell, EpochCell::Value(_))).unzip()
}

/// The epochs among some from the first to the last in which a name is valid.
fn life_of(entries: &[&Entry], epochs: &RangeInclusive<i64>) -> RangeInclusive<i64> {
    let valid = entries.iter().filter(|entry| entry.from < entry.to);
    let first = valid.clone().map(|entry| entry.from).min().unwrap_or(i64::MAX);
    let last = valid.map(|entry| entry.to.saturating_sub(1)).max().unwrap_or(i64::MIN);
    first.max(*epochs.start())..=last.min(*epochs.end())
}
