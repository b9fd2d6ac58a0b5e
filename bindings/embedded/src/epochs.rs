//! Epochs of regular databases, and the names of their series.

use db::{EpochBatch, EpochCell, EpochColumn, EpochNames, EpochRow, EpochValue, EpochWritten, NameRows, NameValidity};
use model::TimeRange;

use crate::engine::Engine;
use crate::error::{Code, Error};

/// Bytes of memory that a value takes on its way in, beside its name.
const VALUE_BYTES: usize = 24;

/// Whether a series has a value in an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CellStatus {
    /// It has one.
    Value = 0,
    /// Nothing was written, and the database has no value for that.
    Missing = 1,
    /// The name was not valid in the epoch.
    Undefined = 2,
}

/// A series of a regular database over some epochs: arrays of the same length. Where there is no value, it is 0, and a NaN among floats.
#[derive(Debug, Clone, PartialEq)]
pub struct NameEpochs {
    /// The epochs' times, in nanoseconds since the Unix epoch.
    pub times_ns: Vec<i64>,
    /// The values.
    pub values: EpochColumn,
    /// Whether each is one.
    pub statuses: Vec<CellStatus>,
}

impl Engine {
    /// Writes values of the epoch of a time; they are on disk when this returns. What is there of other series stays. Values that are there already
    /// and may not be written again are left out, with [`Code::Rejected`] for the rest of it.
    pub fn write_epoch(
        &self,
        database: &str,
        time_ns: i64,
        names: &EpochNames,
        values: &EpochColumn,
    ) -> Result<EpochWritten, Error> {
        let db = self.db()?;
        let _lent = self.lend(names.memory_bytes() + values.len() * VALUE_BYTES)?;
        Ok(db.write_epoch(database, &EpochBatch { time_ns, names, values })?)
    }

    /// Ends names before the epoch of a time: their past stays. Returns how many.
    pub fn remove_names(&self, database: &str, names: &EpochNames, time_ns: i64) -> Result<u64, Error> {
        Ok(self.db()?.remove_names(database, names, time_ns)?)
    }

    /// A series in all epochs of a range.
    pub fn name_epochs(&self, database: &str, name: &str, range: &TimeRange) -> Result<NameEpochs, Error> {
        let (db, budget) = self.query_start()?;
        let rows = db.name_rows(database, name, range, &budget)?;
        let rows =
            rows.ok_or_else(|| Error::new(Code::NotFound, format!("the database {database} has no series {name:?}")))?;
        let is_float = db.regular(database).is_some_and(|definition| definition.kind == db::EpochKind::Float);
        Ok(epochs_of(rows, is_float))
    }

    /// What all series that are valid in the epoch of a time have in it.
    pub fn epoch(&self, database: &str, time_ns: i64) -> Result<EpochRow, Error> {
        let (db, budget) = self.query_start()?;
        Ok(db.epoch(database, time_ns, &budget)?)
    }

    /// When names are valid, by name and time; those that match a pattern, if there is one.
    pub fn name_validity(&self, database: &str, pattern: Option<&str>) -> Result<Vec<NameValidity>, Error> {
        let (db, budget) = self.query_start()?;
        Ok(db.name_validity(database, pattern, &budget)?)
    }
}

/// The error of values that were left out, if there were any.
pub fn refusal(written: &EpochWritten) -> Option<Error> {
    let refusal = written.refusal.as_ref()?;
    let message =
        format!("{} values were refused, {} are written; the first: {refusal}", written.refused, written.written);
    Some(Error::new(Code::Rejected, message))
}

fn epochs_of(rows: NameRows, is_float: bool) -> NameEpochs {
    let statuses = rows.cells.iter().map(|cell| match cell {
        EpochCell::Value(_) => CellStatus::Value,
        EpochCell::Missing => CellStatus::Missing,
        EpochCell::Undefined => CellStatus::Undefined,
    });
    let statuses = statuses.collect();
    let values = if is_float {
        let value = |cell: &EpochCell| if let EpochCell::Value(value) = cell { value.to_f64() } else { f64::NAN };
        EpochColumn::Float(rows.cells.iter().map(value).collect())
    } else {
        let value = |cell: &EpochCell| match cell {
            EpochCell::Value(EpochValue::Int(value)) => *value,
            EpochCell::Value(EpochValue::Float(value)) => *value as i64,
            EpochCell::Missing | EpochCell::Undefined => 0,
        };
        EpochColumn::Int(rows.cells.iter().map(value).collect())
    };
    NameEpochs { times_ns: rows.times_ns, values, statuses }
}
