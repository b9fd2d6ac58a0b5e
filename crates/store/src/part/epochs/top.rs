//! The largest series of a regular database over some time.

use model::TimeRange;

use super::block::{BLOCK_SLOTS, Block};
use super::definition::{EpochKind, EpochValue};
use super::names::NameTable;
use super::regular::BlockReader;
use crate::{Store, StoreError};

/// Series that one request may ask for.
const TOP_MAX: usize = 1_000_000;

/// By what series are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopBy {
    /// The sum of their values.
    Sum,
    /// The largest one.
    Max,
}

/// Indexes that belong to no name, or to several ones, in the range.
const NO_OWNER: u32 = u32::MAX;
const SEVERAL: u32 = u32::MAX - 1;

/// What values add up to, by index where an index has one name in the whole range, else by entry.
struct Sums {
    by: TopBy,
    kind: EpochKind,
    /// By index: the entry.
    owners: Vec<u32>,
    /// By block: true if every index in it has one name in the whole range.
    is_simple: Vec<bool>,
    ints: Vec<i64>,
    floats: Vec<f64>,
    has_value: Vec<bool>,
}

impl Sums {
    fn new(by: TopBy, kind: EpochKind, table: &NameTable, epochs: (i64, i64)) -> Self {
        let count = table.entries().len();
        let mut owners = vec![NO_OWNER; table.indexes()];
        let mut is_simple = vec![true; table.indexes().div_ceil(BLOCK_SLOTS)];
        for (number, entry) in (0..).zip(table.entries()) {
            if entry.from > epochs.1 || entry.to <= epochs.0 {
                continue;
            }
            let Some(owner) = owners.get_mut(entry.index as usize) else { continue };
            let is_whole = entry.from <= epochs.0 && entry.to > epochs.1;
            *owner = if is_whole && *owner == NO_OWNER { number } else { SEVERAL };
        }
        for (simple, owners) in is_simple.iter_mut().zip(owners.chunks(BLOCK_SLOTS)) {
            // Consecutive entries for consecutive indexes: sums lie as values do.
            let first = owners.first().copied().unwrap_or(NO_OWNER);
            *simple = owners.len() == BLOCK_SLOTS
                && first < SEVERAL - BLOCK_SLOTS as u32
                && (first..).zip(owners).all(|(expected, owner)| expected == *owner);
        }
        let (ints, floats) = match kind {
            EpochKind::Int => (vec![0; count], Vec::new()),
            EpochKind::Float => (Vec::new(), vec![0.0; count]),
        };
        Self { by, kind, owners, is_simple, ints, floats, has_value: vec![false; count] }
    }

    fn add(&mut self, table: &NameTable, epoch: i64, block: u32, values: &Block) {
        let first = block as usize * BLOCK_SLOTS;
        if self.is_simple.get(block as usize) == Some(&true)
            && let Some(all) = values.all()
        {
            let entry = self.owners.get(first).copied().unwrap_or(NO_OWNER) as usize;
            self.add_all(entry, all);
            return;
        }
        values.each(|slot, bits| {
            let index = first + slot;
            let owner = match self.owners.get(index).copied().unwrap_or(NO_OWNER) {
                SEVERAL => table.entry_at(index as u32, epoch),
                NO_OWNER => None,
                owner => Some(owner),
            };
            if let Some(owner) = owner {
                self.add_one(owner as usize, bits);
            }
        });
    }

    /// Adds the values of consecutive entries.
    fn add_all(&mut self, entry: usize, all: &[i64]) {
        let Self { by, kind, ints, floats, has_value, .. } = self;
        let end = entry + all.len();
        let ints = ints.get_mut(entry..end).unwrap_or_default().iter_mut().zip(all);
        let as_floats = floats.get_mut(entry..end).unwrap_or_default().iter_mut().zip(all);
        let had = has_value.get_mut(entry..end).unwrap_or_default();
        match (by, kind) {
            (TopBy::Sum, EpochKind::Int) => ints.for_each(|(sum, value)| *sum = sum.saturating_add(*value)),
            (TopBy::Sum, EpochKind::Float) => as_floats.for_each(|(sum, bits)| *sum += f64::from_bits(*bits as u64)),
            (TopBy::Max, EpochKind::Int) => {
                ints.zip(&*had)
                    .for_each(|((most, value), had)| *most = if *had { (*most).max(*value) } else { *value });
            }
            (TopBy::Max, EpochKind::Float) => as_floats.zip(&*had).for_each(|((most, bits), had)| {
                let value = f64::from_bits(*bits as u64);
                *most = if *had { most.max(value) } else { value };
            }),
        }
        had.fill(true);
    }

    fn add_one(&mut self, entry: usize, bits: i64) {
        self.add_all(entry, &[bits]);
    }

    /// The largest names.
    fn largest(&self, table: &NameTable, count: usize) -> Vec<(String, EpochValue)> {
        let mut by_name: Vec<Option<EpochValue>> = vec![None; table.names()];
        let all = table.entries().iter().enumerate().filter(|(number, _)| self.has_value.get(*number) == Some(&true));
        for (number, entry) in all {
            let Some(place) = by_name.get_mut(entry.name as usize) else { continue };
            let value = self.value(number);
            *place = Some(place.map_or(value, |known| self.united(known, value)));
        }
        let mut found: Vec<(u32, EpochValue)> =
            (0..).zip(by_name).filter_map(|(name, value)| Some((name, value?))).collect();
        let order = |a: &(u32, EpochValue), b: &(u32, EpochValue)| {
            let by_value = match (a.1, b.1) {
                (EpochValue::Int(a), EpochValue::Int(b)) => b.cmp(&a),
                (a, b) => b.to_f64().total_cmp(&a.to_f64()),
            };
            by_value.then_with(|| table.text(a.0).cmp(table.text(b.0)))
        };
        let count = count.min(TOP_MAX);
        if found.len() > count && count > 0 {
            found.select_nth_unstable_by(count - 1, order);
        }
        found.truncate(count);
        found.sort_by(order);
        found.into_iter().map(|(name, value)| (table.text(name).to_owned(), value)).collect()
    }

    fn value(&self, entry: usize) -> EpochValue {
        match self.kind {
            EpochKind::Int => EpochValue::Int(self.ints.get(entry).copied().unwrap_or(0)),
            EpochKind::Float => EpochValue::Float(self.floats.get(entry).copied().unwrap_or(0.0)),
        }
    }

    fn united(&self, a: EpochValue, b: EpochValue) -> EpochValue {
        match (self.by, a, b) {
            (TopBy::Sum, EpochValue::Int(a), EpochValue::Int(b)) => EpochValue::Int(a.saturating_add(b)),
            (TopBy::Max, EpochValue::Int(a), EpochValue::Int(b)) => EpochValue::Int(a.max(b)),
            (TopBy::Sum, a, b) => EpochValue::Float(a.to_f64() + b.to_f64()),
            (TopBy::Max, a, b) => EpochValue::Float(a.to_f64().max(b.to_f64())),
        }
    }
}

impl NameTable {
    /// The entry that an index has in an epoch.
    pub(super) fn entry_at(&self, index: u32, epoch: i64) -> Option<u32> {
        self.entries_at_index(index).find(|(_, entry)| entry.is_valid_at(epoch)).map(|(number, _)| number)
    }
}

impl Store {
    /// The series of a regular database with the largest values over some time, the largest first, and those values. Missing values count for
    /// nothing.
    pub fn top_names(
        &self,
        database: &str,
        range: &TimeRange,
        by: TopBy,
        count: usize,
    ) -> Result<Vec<(String, EpochValue)>, StoreError> {
        let regular = self.regular_database(database)?;
        let definition = regular.definition();
        let epochs = regular.epochs_in(&self.retained(regular.database, range));
        let table = regular.names.read();
        let mut sums = Sums::new(by, definition.kind, &table, (*epochs.start(), *epochs.end()));
        let mut reader = BlockReader::new(definition);
        for (epoch, records) in regular.records_in(epochs) {
            reader.each(&records, &mut |block, values| {
                sums.add(&table, epoch, block, values);
                Ok(())
            })?;
        }
        Ok(sums.largest(&table, count))
    }
}
