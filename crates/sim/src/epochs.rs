//! A regular database: what an epoch got is there after whatever happens, whole or not at all.

use std::collections::BTreeMap;

use model::TimeRange;
use store::{
    EpochBatch, EpochCell, EpochColumn, EpochNames, EpochRows, EpochValue, NamesRead, RegularDefinition, Store,
};

use crate::world::{HOUR_NS, MINUTE_NS, World};

/// The name of the database.
pub(crate) const REGULAR: &str = "regular";

/// Names that an epoch may have; their indexes fall into two blocks.
const NAMES: u64 = 2_500;

/// Values by name and epoch.
pub(crate) type Epochs = BTreeMap<String, BTreeMap<i64, i64>>;

/// A write: its epoch, and values by name.
type EpochWrite = (i64, Vec<(String, i64)>);

impl World {
    /// Makes the database.
    pub(crate) fn define_regular(&mut self) -> Result<(), String> {
        let defined = self.store()?.define_regular(REGULAR, &RegularDefinition::new(MINUTE_NS));
        defined.map_err(|error| format!("making a regular database: {error}"))
    }

    /// Writes some values of an epoch of the last hours: mostly of few names, now and then of all.
    pub(crate) fn write_epoch(&mut self) -> Result<(), String> {
        let (epoch, cells) = self.random_epoch();
        match write(self.store()?, epoch, &cells) {
            Ok(()) => {
                self.report.epochs += 1;
                self.apply_epoch(epoch, &cells);
            }
            Err(error) if self.refused(&error) => {}
            Err(error) => return Err(format!("writing an epoch: {error}")),
        }
        Ok(())
    }

    /// Writes while syncs fail, and cuts the power: all of it is there, or nothing.
    pub(crate) fn crash_with_epoch(&mut self) -> Result<(), String> {
        let (epoch, cells) = self.random_epoch();
        let is_done = write(self.store()?, epoch, &cells).is_ok();
        self.restart()?;
        let before = self.epochs.clone();
        self.apply_epoch(epoch, &cells);
        if !is_done && self.compare_epochs().is_err() {
            self.epochs = before;
        }
        self.compare_epochs()
    }

    pub(crate) fn compare_epochs(&self) -> Result<(), String> {
        self.compare_epochs_of(self.store()?)
    }

    /// Compares all values with what they must be: by name, and the last epochs as a whole.
    pub(crate) fn compare_epochs_of(&self, store: &Store) -> Result<(), String> {
        let found = read(store)?;
        if found != self.epochs {
            let differs = |name: &&String| found.get(*name) != self.epochs.get(*name);
            let name = self.epochs.keys().chain(found.keys()).find(differs);
            let values = name.map(|name| (found.get(name), self.epochs.get(name)));
            return Err(format!("{REGULAR}: {name:?}: found and expected {values:?}"));
        }
        let Some(last) = self.epochs.values().filter_map(|values| values.keys().last()).max() else { return Ok(()) };
        let row = store.read_epoch(REGULAR, last * MINUTE_NS).map_err(|error| format!("reading an epoch: {error}"))?;
        let values = integers(&row.values);
        let found: BTreeMap<&str, i64> = row.names.iter().zip(values.iter().copied()).collect();
        let value =
            |(name, values): (&'_ String, &BTreeMap<i64, i64>)| values.get(last).map(|value| (name.clone(), *value));
        let expected: BTreeMap<String, i64> = self.epochs.iter().filter_map(value).collect();
        let is_same = found
            .iter()
            .map(|(name, value)| (*name, *value))
            .eq(expected.iter().map(|(name, value)| (name.as_str(), *value)));
        if is_same { Ok(()) } else { Err(format!("{REGULAR}, epoch {last}: found {found:?}, expected {expected:?}")) }
    }

    fn random_epoch(&self) -> EpochWrite {
        let late_ns = if self.below(4) == 0 { self.below(6 * HOUR_NS as u64) as i64 } else { 0 };
        let epoch = (self.now_ns() - late_ns).max(0).div_euclid(MINUTE_NS);
        let count = if self.below(20) == 0 { NAMES } else { 1 + self.below(6) };
        let first = self.below(NAMES);
        let cell = |place: u64| (format!("n{}", (first + place * 7) % NAMES), self.below(1000) as i64);
        (epoch, (0..count).map(cell).collect())
    }

    fn apply_epoch(&mut self, epoch: i64, cells: &[(String, i64)]) {
        for (name, value) in cells {
            self.epochs.entry(name.clone()).or_default().insert(epoch, *value);
        }
    }
}

fn write(store: &Store, epoch: i64, cells: &[(String, i64)]) -> Result<(), store::StoreError> {
    let names: EpochNames = cells.iter().map(|(name, _)| name.as_str()).collect();
    let values = EpochColumn::Int(cells.iter().map(|(_, value)| *value).collect());
    store.write_epoch(REGULAR, &EpochBatch { time_ns: epoch * MINUTE_NS, names: &names, values: &values }).map(|_| ())
}

fn integers(values: &EpochColumn) -> Vec<i64> {
    match values {
        EpochColumn::Int(values) => values.clone(),
        EpochColumn::Float(_) => Vec::new(),
    }
}

/// All values of a store.
fn read(store: &Store) -> Result<Epochs, String> {
    let failed = |error| format!("reading failed: {error}");
    let numbers = store.name_numbers(REGULAR, &TimeRange::ALL, &|_| true).map_err(failed)?;
    let numbers: Vec<u32> = numbers.into_iter().map(|(number, _)| number).collect();
    let read = NamesRead { names: &numbers, range: TimeRange::ALL, rows: EpochRows::Values };
    let mut found = Epochs::new();
    for rows in store.read_names(REGULAR, &read).map_err(failed)? {
        let values = rows.times_ns.iter().zip(rows.cells).filter_map(|(time_ns, cell)| match cell {
            EpochCell::Value(EpochValue::Int(value)) => Some((time_ns.div_euclid(MINUTE_NS), value)),
            _ => None,
        });
        let values: BTreeMap<i64, i64> = values.collect();
        if !values.is_empty() {
            found.insert(rows.name, values);
        }
    }
    Ok(found)
}
