//! Epochs of regular databases, and when their names are valid.

use embedded::{EpochColumn, EpochNames, EpochRow, EpochWritten, Error, NameEpochs, NameValidity, TimeRange, refusal};

use crate::database::thalweg_db_t;
use crate::error::{call, free, object, put, thalweg_code_t, thalweg_error_t};
use crate::text::{elements, thalweg_str_t};

/// Whether a series has a value in an epoch; as a `uint8_t` in arrays.
#[repr(u8)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum thalweg_status_t {
    /// It has one.
    THALWEG_VALUE = 0,
    /// Nothing was written, and the database has no value for that.
    THALWEG_MISSING = 1,
    /// The name was not valid in the epoch: neither zero nor missing.
    THALWEG_UNDEFINED = 2,
}

/// The outcome of writing an epoch.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct thalweg_epoch_written_t {
    /// The epoch's time: the given one rounded down to the database's interval.
    pub time_ns: i64,
    /// Values that are on disk.
    pub written: u64,
    /// Names that became valid.
    pub names_added: u64,
    /// Values that were there already, and the same.
    pub unchanged: u64,
    /// Values that were left out because other ones are there; if there are any the call returns `THALWEG_REJECTED`.
    pub refused: u64,
}

/// A time in which a name has an index.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct thalweg_validity_t {
    /// The name. It lives as long as the list.
    pub name: thalweg_str_t,
    /// Where its values lie.
    pub index: u32,
    /// The time of the first epoch in which it is valid.
    pub from_ns: i64,
    /// The time of the first epoch in which it is no more; `INT64_MAX`: it is valid for good.
    pub to_ns: i64,
}

/// What a series has in an epoch.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct thalweg_epoch_value_t {
    /// The series' name. It lives as long as the epoch.
    pub name: thalweg_str_t,
    /// The value as a float: NaN where there is none.
    pub number: f64,
    /// The value of a database of integers: 0 where there is none, and in databases of floats.
    pub integer: i64,
    /// Whether there is one: `THALWEG_VALUE` or `THALWEG_MISSING`.
    pub status: u8,
}

/// All series that are valid in an epoch.
pub struct thalweg_epoch_t {
    row: EpochRow,
}

/// Times in which names are valid.
pub struct thalweg_validities_t {
    found: Vec<NameValidity>,
}

/// The caller's names.
///
/// # Safety
/// The array has so many texts, which are readable.
unsafe fn names(texts: *const thalweg_str_t, len: usize) -> Result<EpochNames, Error> {
    // SAFETY: the caller vouches for the array.
    let texts = unsafe { elements(texts, len, "names") }?;
    let mut names = EpochNames::default();
    for text in texts {
        // SAFETY: the caller vouches for the texts.
        names.push(unsafe { text.text("a name") }?);
    }
    Ok(names)
}

/// Writes an epoch, and says how that went where the caller wants it.
///
/// # Safety
/// As the header demands of the functions below.
unsafe fn write(
    (db, database, time_ns): (*const thalweg_db_t, thalweg_str_t, i64),
    (texts, len): (*const thalweg_str_t, usize),
    values: impl FnOnce() -> Result<EpochColumn, Error>,
    written: *mut thalweg_epoch_written_t,
) -> Result<(), Error> {
    // SAFETY: the caller vouches for the handle and the texts.
    let (db, database, names) = unsafe { (object(db, "db")?, database.database()?, names(texts, len)?) };
    let outcome = db.engine.write_epoch(database, time_ns, &names, &values()?)?;
    let error = refusal(&outcome);
    let EpochWritten { time_ns, written: count, added, unchanged, refused, .. } = outcome;
    if !written.is_null() {
        let outcome = thalweg_epoch_written_t { time_ns, written: count, names_added: added, unchanged, refused };
        // SAFETY: it is not null, and the caller vouches that it may be written.
        unsafe { put(written, outcome, "written") }?;
    }
    error.map_or(Ok(()), Err)
}

/// Writes values of one epoch of a regular database (`CREATE DATABASE … WITH (interval = '5m')` by `thalweg_sql`): `len` names with a value each, of all
/// series or of some. Names that are not valid become so. They are on disk when it returns; what is there of other series stays, and several writes
/// complete an epoch. `written` may be null. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_epoch_write_f64(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    time_ns: i64,
    names: *const thalweg_str_t,
    values: *const f64,
    len: usize,
    written: *mut thalweg_epoch_written_t,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    // SAFETY: the arrays have `len` elements, the handle, `written` and `error` are as the header demands.
    unsafe {
        let column = || Ok(EpochColumn::Float(elements(values, len, "values")?.to_vec()));
        call(error, || write((db, database, time_ns), (names, len), column, written))
    }
}

/// As `thalweg_epoch_write_f64`, of integers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_epoch_write_i64(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    time_ns: i64,
    names: *const thalweg_str_t,
    values: *const i64,
    len: usize,
    written: *mut thalweg_epoch_written_t,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    // SAFETY: as above.
    unsafe {
        let column = || Ok(EpochColumn::Int(elements(values, len, "values")?.to_vec()));
        call(error, || write((db, database, time_ns), (names, len), column, written))
    }
}

/// Ends `len` names before the epoch of a time: their past stays, and their indexes are free for others. A name that is written again gets a new one.
/// `removed` may be null; it gets how many names ended. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_epoch_remove(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    time_ns: i64,
    names: *const thalweg_str_t,
    len: usize,
    removed: *mut u64,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        // SAFETY: the handle, the array and its texts are as the header demands.
        let (db, database, names) = unsafe { (object(db, "db")?, database.database()?, self::names(names, len)?) };
        let count = db.engine.remove_names(database, &names, time_ns)?;
        if removed.is_null() {
            return Ok(());
        }
        // SAFETY: it is not null, and may be written, as the header demands.
        unsafe { put(removed, count, "removed") }
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}

/// Where a caller wants epochs.
struct Target<T> {
    times_ns: *mut i64,
    values: *mut T,
    statuses: *mut u8,
    capacity: usize,
    len: *mut usize,
}

impl<T: Copy> Target<T> {
    /// # Safety
    /// The arrays are null or have room for `capacity` elements; `len` is null or may be written.
    unsafe fn fill(self, epochs: &NameEpochs, values: &[T]) -> Result<(), Error> {
        // SAFETY: the caller vouches for it.
        unsafe { put(self.len, epochs.times_ns.len(), "len") }?;
        let statuses: Vec<u8> = epochs.statuses.iter().map(|status| *status as u8).collect();
        // SAFETY: the caller vouches for the arrays.
        unsafe {
            copied(&epochs.times_ns, self.times_ns, self.capacity);
            copied(values, self.values, self.capacity);
            copied(&statuses, self.statuses, self.capacity);
        }
        Ok(())
    }
}

/// Copies the first elements to where a caller wants them.
///
/// # Safety
/// `to` is null or has room for `capacity` elements.
unsafe fn copied<T: Copy>(from: &[T], to: *mut T, capacity: usize) {
    if !to.is_null() {
        // SAFETY: it is not null, has room for as many, and is not of this library's memory.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len().min(capacity)) };
    }
}

/// Reads a series of a regular database by its name, in all epochs from `start_ns` to `end_ns` in which something was written for any series: the first
/// `capacity` of them, `len` gets how many there are. Each has a `thalweg_status_t`; where there is no value, the value is NaN. Values of its old and new
/// indexes come under the name, with `THALWEG_UNDEFINED` between. Arrays that are null are not written; with a `capacity` of 0 it only counts.
///
/// A name that never was gets `THALWEG_NOT_FOUND`. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_epoch_range_f64(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    name: thalweg_str_t,
    start_ns: i64,
    end_ns: i64,
    times_ns: *mut i64,
    values: *mut f64,
    statuses: *mut u8,
    capacity: usize,
    len: *mut usize,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        // SAFETY: the handle and the texts are as the header demands.
        let (db, database, name) = unsafe { (object(db, "db")?, database.database()?, name.text("the name")?) };
        let epochs = db.engine.name_epochs(database, name, &TimeRange::new(start_ns, end_ns))?;
        let floats = match &epochs.values {
            EpochColumn::Float(values) => values.clone(),
            EpochColumn::Int(values) => {
                let cells = values.iter().zip(&epochs.statuses);
                let is_value = |status: u8| status == thalweg_status_t::THALWEG_VALUE as u8;
                cells.map(|(value, status)| if is_value(*status as u8) { *value as f64 } else { f64::NAN }).collect()
            }
        };
        // SAFETY: the arrays are null or have room for `capacity` elements, `len` is null or may be written, as the header demands.
        unsafe { Target { times_ns, values, statuses, capacity, len }.fill(&epochs, &floats) }
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}

/// As `thalweg_epoch_range_f64`, for a database of integers; where there is no value, it is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_epoch_range_i64(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    name: thalweg_str_t,
    start_ns: i64,
    end_ns: i64,
    times_ns: *mut i64,
    values: *mut i64,
    statuses: *mut u8,
    capacity: usize,
    len: *mut usize,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        // SAFETY: the handle and the texts are as the header demands.
        let (db, database, name) = unsafe { (object(db, "db")?, database.database()?, name.text("the name")?) };
        let epochs = db.engine.name_epochs(database, name, &TimeRange::new(start_ns, end_ns))?;
        let EpochColumn::Int(integers) = &epochs.values else {
            let message =
                format!("the database {database} has floats (value = float): read them by thalweg_epoch_range_f64");
            return Err(Error::invalid(message));
        };
        // SAFETY: the arrays are null or have room for `capacity` elements, `len` is null or may be written, as the header demands.
        unsafe { Target { times_ns, values, statuses, capacity, len }.fill(&epochs, integers) }
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}

/// Reads what all series of a regular database that are valid in the epoch of a time have in it: first those with a value, then those without.
///
/// Safe from any thread. Free the result by `thalweg_epoch_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_epoch_read(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    time_ns: i64,
    epoch: *mut *mut thalweg_epoch_t,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        // SAFETY: null is looked for; else the place may be written, as the header demands.
        unsafe { put(epoch, std::ptr::null_mut(), "epoch") }?;
        // SAFETY: the handle and the text are as the header demands.
        let (db, database) = unsafe { (object(db, "db")?, database.database()?) };
        let row = db.engine.epoch(database, time_ns)?;
        // SAFETY: as above.
        unsafe { put(epoch, Box::into_raw(Box::new(thalweg_epoch_t { row })), "epoch") }
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}

/// How many series there are; 0 for null. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_epoch_len(epoch: *const thalweg_epoch_t) -> usize {
    // SAFETY: the handle is null or not freed yet, as the header demands.
    unsafe { epoch.as_ref() }.map_or(0, |epoch| epoch.row.names.len() + epoch.row.missing.len())
}

/// The time of the epoch; 0 for null. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_epoch_time_ns(epoch: *const thalweg_epoch_t) -> i64 {
    // SAFETY: the handle is null or not freed yet, as the header demands.
    unsafe { epoch.as_ref() }.map_or(0, |epoch| epoch.row.time_ns)
}

/// What one of the series has; beyond the last one its name is empty. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_epoch_get(epoch: *const thalweg_epoch_t, place: usize) -> thalweg_epoch_value_t {
    let none = |name: &str| thalweg_epoch_value_t {
        name: thalweg_str_t::new(name),
        number: f64::NAN,
        integer: 0,
        status: thalweg_status_t::THALWEG_MISSING as u8,
    };
    // SAFETY: the handle is null or not freed yet, as the header demands.
    let Some(thalweg_epoch_t { row }) = (unsafe { epoch.as_ref() }) else { return none("") };
    let Some(name) = row.names.get(place) else {
        let missing = place.checked_sub(row.names.len()).and_then(|place| row.missing.get(place));
        return none(missing.unwrap_or_default());
    };
    let (number, integer) = match &row.values {
        EpochColumn::Int(values) => {
            let value = values.get(place).copied().unwrap_or_default();
            (value as f64, value)
        }
        EpochColumn::Float(values) => (values.get(place).copied().unwrap_or(f64::NAN), 0),
    };
    let status = thalweg_status_t::THALWEG_VALUE as u8;
    thalweg_epoch_value_t { name: thalweg_str_t::new(name), number, integer, status }
}

/// Frees an epoch; null is ignored. Once, when no other thread reads it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_epoch_free(epoch: *mut thalweg_epoch_t) {
    // SAFETY: it comes from `thalweg_epoch_read`, which makes it by `Box::into_raw`.
    unsafe { free(epoch) };
}

/// Finds when names of a regular database are valid, by name and time: those that match a regular expression as a whole, all if it is empty.
///
/// Safe from any thread. Free the result by `thalweg_validities_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_validities_find(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    pattern: thalweg_str_t,
    validities: *mut *mut thalweg_validities_t,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        // SAFETY: null is looked for; else the place may be written, as the header demands.
        unsafe { put(validities, std::ptr::null_mut(), "validities") }?;
        // SAFETY: the handle and the texts are as the header demands.
        let (db, database, pattern) =
            unsafe { (object(db, "db")?, database.database()?, pattern.text("the pattern")?) };
        let found = db.engine.name_validity(database, Some(pattern).filter(|pattern| !pattern.is_empty()))?;
        // SAFETY: as above.
        unsafe { put(validities, Box::into_raw(Box::new(thalweg_validities_t { found })), "validities") }
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}

/// How many there are; 0 for null. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_validities_len(validities: *const thalweg_validities_t) -> usize {
    // SAFETY: the handle is null or not freed yet, as the header demands.
    unsafe { validities.as_ref() }.map_or(0, |validities| validities.found.len())
}

/// One of them; beyond the last one its name is empty. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_validities_get(
    validities: *const thalweg_validities_t,
    place: usize,
) -> thalweg_validity_t {
    // SAFETY: the handle is null or not freed yet, as the header demands.
    let found = unsafe { validities.as_ref() }.and_then(|validities| validities.found.get(place));
    thalweg_validity_t {
        name: thalweg_str_t::new(found.map_or("", |found| found.name.as_str())),
        index: found.map_or(0, |found| found.index),
        from_ns: found.map_or(0, |found| found.from_ns),
        to_ns: found.and_then(|found| found.to_ns).unwrap_or(i64::MAX),
    }
}

/// Frees them; null is ignored. Once, when no other thread reads them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_validities_free(validities: *mut thalweg_validities_t) {
    // SAFETY: they come from `thalweg_validities_find`, which makes them by `Box::into_raw`.
    unsafe { free(validities) };
}
