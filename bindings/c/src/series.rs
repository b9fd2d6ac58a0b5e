//! Series by name, and their samples.

use embedded::{Error, Labels, SampleColumn, TimeRange};

use crate::database::thalweg_db_t;
use crate::error::{call, free, object, put, thalweg_code_t, thalweg_error_t};
use crate::text::thalweg_str_t;

/// The bits of the NaN by which Prometheus marks that a series has ended: it is no value.
const STALE_NAN_BITS: u64 = 0x7ff0_0000_0000_0002;

/// Series that were found. Its texts live as long as it does.
pub struct thalweg_series_t {
    series: Vec<FoundSeries>,
}

struct FoundSeries {
    /// The labels as a selector.
    selector: String,
    labels: Labels,
}

/// Finds the series that a selector as `cpu_usage{host=~"a|b"}` selects and that may have samples from `start_ns` to `end_ns`, both included, in order
/// of their labels: at most `limit`, 0 for all. A series is a field of a table with its tags; its name is the table's and the field's with `_` between,
/// or the table's alone where the field is called `value`.
///
/// Safe from any thread. Free the result by `thalweg_series_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_series_find(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    selector: thalweg_str_t,
    start_ns: i64,
    end_ns: i64,
    limit: usize,
    series: *mut *mut thalweg_series_t,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        // SAFETY: null is looked for; else the place may be written, as the header demands.
        unsafe { put(series, std::ptr::null_mut(), "series") }?;
        // SAFETY: the handle is null or a database that is not freed yet, and texts are readable for the time of the call, as the header demands.
        let (db, database, selector) =
            unsafe { (object(db, "db")?, database.database()?, selector.text("the selector")?) };
        let found = db.engine.series(database, selector, TimeRange::new(start_ns, end_ns), limit)?;
        let found = found.into_iter().map(|labels| FoundSeries { selector: labels.to_string(), labels });
        let found = Box::new(thalweg_series_t { series: found.collect() });
        // SAFETY: as above.
        unsafe { put(series, Box::into_raw(found), "series") }
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}

/// How many series there are; 0 for null. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_series_len(series: *const thalweg_series_t) -> usize {
    // SAFETY: the handle is null or not freed yet, as the header demands.
    unsafe { series.as_ref() }.map_or(0, |series| series.series.len())
}

/// The selector of a series, as `{__name__="cpu_usage", host="a"}`, which `thalweg_range_f64` takes; empty beyond the last one. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_series_selector(series: *const thalweg_series_t, index: usize) -> thalweg_str_t {
    // SAFETY: the handle is null or not freed yet, as the header demands.
    let found = unsafe { series.as_ref() }.and_then(|series| series.series.get(index));
    thalweg_str_t::new(found.map_or("", |found| found.selector.as_str()))
}

/// The value of a label of a series, `__name__` for its name; empty if it has none. It lives as long as `series`. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_series_label(
    series: *const thalweg_series_t,
    index: usize,
    name: thalweg_str_t,
) -> thalweg_str_t {
    // SAFETY: the handle is null or not freed yet, and the text is readable for the time of the call, as the header demands.
    let (series, name) = unsafe { (series.as_ref(), name.bytes()) };
    let found = series.and_then(|series| series.series.get(index));
    let value = found.and_then(|found| found.labels.get(std::str::from_utf8(name).ok()?));
    thalweg_str_t::new(value.unwrap_or_default())
}

/// Frees series; null is ignored. Once, when no other thread reads them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_series_free(series: *mut thalweg_series_t) {
    // SAFETY: they come from `thalweg_series_find`, which makes them by `Box::into_raw`.
    unsafe { free(series) };
}

/// Reads the samples of one series from `start_ns` to `end_ns`, both included, in order of time, as floats: `times_ns` and `values` get the first
/// `capacity` of them, `len` how many there are. With `times_ns` or `values` null, or a `capacity` of 0, it only counts. Integers and booleans come
/// as floats; texts are refused.
///
/// The selector names one series: as `thalweg_series_selector` gives it, or `cpu_usage{host="a"}` where no other series has these labels and more.
/// Without such a series the call gets `THALWEG_NOT_FOUND`. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_range_f64(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    selector: thalweg_str_t,
    start_ns: i64,
    end_ns: i64,
    times_ns: *mut i64,
    values: *mut f64,
    capacity: usize,
    len: *mut usize,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        // SAFETY: the handle is null or a database that is not freed yet, and texts are readable for the time of the call, as the header demands.
        let (db, database, selector) =
            unsafe { (object(db, "db")?, database.database()?, selector.text("the selector")?) };
        let samples = floats(db.engine.samples(database, selector, TimeRange::new(start_ns, end_ns))?, selector)?;
        // SAFETY: the arrays are null or have room for `capacity` elements, `len` is null or may be written, as the header demands.
        unsafe { Target { times_ns, values, capacity, len }.fill(&samples) }
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}

/// As `thalweg_range_f64`, for a series of integers; others are refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_range_i64(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    selector: thalweg_str_t,
    start_ns: i64,
    end_ns: i64,
    times_ns: *mut i64,
    values: *mut i64,
    capacity: usize,
    len: *mut usize,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        // SAFETY: the handle is null or a database that is not freed yet, and texts are readable for the time of the call, as the header demands.
        let (db, database, selector) =
            unsafe { (object(db, "db")?, database.database()?, selector.text("the selector")?) };
        let samples = integers(db.engine.samples(database, selector, TimeRange::new(start_ns, end_ns))?, selector)?;
        // SAFETY: the arrays are null or have room for `capacity` elements, `len` is null or may be written, as the header demands.
        unsafe { Target { times_ns, values, capacity, len }.fill(&samples) }
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}

/// Times and values.
type Samples<T> = (Vec<i64>, Vec<T>);

fn floats(samples: SampleColumn, selector: &str) -> Result<Samples<f64>, Error> {
    Ok(match samples {
        SampleColumn::F64(times_ns, values) => {
            let is_value = |(_, value): &(i64, f64)| value.to_bits() != STALE_NAN_BITS;
            times_ns.into_iter().zip(values).filter(is_value).unzip()
        }
        SampleColumn::I64(times_ns, values) => (times_ns, values.into_iter().map(|value| value as f64).collect()),
        SampleColumn::U64(times_ns, values) => (times_ns, values.into_iter().map(|value| value as f64).collect()),
        SampleColumn::Bool(times_ns, values) => {
            (times_ns, values.into_iter().map(|value| f64::from(u8::from(value))).collect())
        }
        other => return Err(refused(selector, &other, "numbers")),
    })
}

fn integers(samples: SampleColumn, selector: &str) -> Result<Samples<i64>, Error> {
    match samples {
        SampleColumn::I64(times_ns, values) => Ok((times_ns, values)),
        SampleColumn::U64(times_ns, values) => {
            let values: Result<Vec<i64>, _> = values.into_iter().map(i64::try_from).collect();
            let values = values.map_err(|_| {
                Error::invalid(format!("{selector} has numbers beyond 64 signed bits: read them as floats"))
            })?;
            Ok((times_ns, values))
        }
        other if other.timestamps_ns().is_empty() => Ok((Vec::new(), Vec::new())),
        other => Err(refused(selector, &other, "integers")),
    }
}

fn refused(selector: &str, samples: &SampleColumn, wanted: &str) -> Error {
    Error::invalid(format!("{selector} has {} values, not {wanted}", samples.value_type().name()))
}

/// Where a caller wants samples.
struct Target<T> {
    times_ns: *mut i64,
    values: *mut T,
    capacity: usize,
    len: *mut usize,
}

impl<T: Copy> Target<T> {
    /// # Safety
    /// The arrays are null or have room for `capacity` elements; `len` is null or may be written.
    unsafe fn fill(self, (times_ns, values): &Samples<T>) -> Result<(), Error> {
        // SAFETY: the caller vouches for it.
        unsafe { put(self.len, times_ns.len(), "len") }?;
        if self.times_ns.is_null() || self.values.is_null() {
            return Ok(());
        }
        let count = times_ns.len().min(values.len()).min(self.capacity);
        // SAFETY: neither is null; both have room for `capacity` elements, of which there are no more; and they are not of this library's memory.
        unsafe {
            std::ptr::copy_nonoverlapping(times_ns.as_ptr(), self.times_ns, count);
            std::ptr::copy_nonoverlapping(values.as_ptr(), self.values, count);
        }
        Ok(())
    }
}
