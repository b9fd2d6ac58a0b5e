//! Opening, closing, writing, deleting.

use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream as ArrowArrayStream};
use embedded::{ColumnRoles, Engine, EngineOptions, Error, Precision, TimeRange, WriteSummary};

use crate::columns::thalweg_columns_t;
use crate::error::{call, free, object, put, thalweg_code_t, thalweg_error_t};
use crate::text::{elements, thalweg_str_t};

/// An open database. All threads may share it.
pub struct thalweg_db_t {
    pub(crate) engine: Engine,
}

/// The outcome of a write.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct thalweg_written_t {
    /// Rows that are on disk.
    pub rows_written: u64,
    /// Values in them.
    pub values_written: u64,
    /// Rows that were left out; if there are any the call returns `THALWEG_REJECTED`.
    pub rows_rejected: u64,
}

/// The version of the library, as `0.1.0`. Safe from any thread.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_version() -> thalweg_str_t {
    thalweg_str_t::new(embedded::VERSION)
}

/// Opens the data folder at `path`, or makes one. One process at a time has it open, `thalweg serve` or one like this; a second one gets
/// `THALWEG_LOCKED`, unless it opens the folder for reading only.
///
/// `options` is a JSON object, empty for the defaults: `memory_bytes_max` (1 GiB for rows, queries and caches together),
/// `result_cache_memory_bytes_max`, `query_samples_max`, `query_helpers` (threads beside the caller's own), `lookback_ms`, `ahead_ms_max`,
/// `accept_loss`, `read_only`.
///
/// Safe from any thread. Free the database by `thalweg_db_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_open(
    path: thalweg_str_t,
    options: thalweg_str_t,
    db: *mut *mut thalweg_db_t,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    // SAFETY: as the header demands of the caller.
    unsafe { call(error, || open(path, options, db, |options| options)) }
}

/// Opens the data folder at `path`, which must be there, for reading only: as it is now, with everything that was acknowledged. Several processes may, also
/// while another one writes to it; nothing of the folder is changed. What is written later is seen after `thalweg_refresh`. Calls that write get
/// `THALWEG_INVALID`. Otherwise as `thalweg_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_open_read_only(
    path: thalweg_str_t,
    options: thalweg_str_t,
    db: *mut *mut thalweg_db_t,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    // SAFETY: as the header demands of the caller.
    unsafe { call(error, || open(path, options, db, EngineOptions::reading_only)) }
}

/// Opens a folder with options that may be changed.
///
/// # Safety
///
/// Texts are readable, and `db` is null or may be written.
unsafe fn open(
    path: thalweg_str_t,
    options: thalweg_str_t,
    db: *mut *mut thalweg_db_t,
    change: impl FnOnce(EngineOptions) -> EngineOptions,
) -> Result<(), Error> {
    // SAFETY: null is looked for; else the place may be written, as the caller says.
    unsafe { put(db, std::ptr::null_mut(), "db") }?;
    // SAFETY: texts are readable, as the caller says.
    let (path, options) = unsafe { (path.text("the path")?, options.text("the options")?) };
    if path.is_empty() {
        return Err(Error::invalid("the path is empty: name a folder"));
    }
    let engine = Engine::open(change(EngineOptions::from_json(path, options)?))?;
    // SAFETY: as above.
    unsafe { put(db, Box::into_raw(Box::new(thalweg_db_t { engine })), "db") }
}

/// Sees what another process has written since a database was opened for reading only, or refreshed. Results that are being read go on as they are.
/// It takes as long as opening. Safe from any thread; nothing for a database that is open for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_refresh(db: *const thalweg_db_t, error: *mut *mut thalweg_error_t) -> thalweg_code_t {
    // SAFETY: the handle is null or a database that is not freed yet, and `error` is null or may be written, as the header demands.
    unsafe { call(error, || object(db, "db")?.engine.refresh()) }
}

/// Interrupts what runs, writes what is in memory into files and closes the folder, which is free for others when all calls of other threads have
/// returned. Later calls get `THALWEG_CLOSED`; a second close does nothing. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_close(db: *const thalweg_db_t, error: *mut *mut thalweg_error_t) -> thalweg_code_t {
    // SAFETY: the handle is null or a database that is not freed yet, and `error` is null or may be written, as the header demands.
    unsafe { call(error, || object(db, "db")?.engine.close()) }
}

/// Closes the database if it is open, and frees it; null is ignored. Once for each database, when no other thread uses it. Results that are not read
/// yet are interrupted but stay valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_db_free(db: *mut thalweg_db_t) {
    // SAFETY: databases come from `thalweg_open`, which makes them by `Box::into_raw`.
    unsafe { free(db) };
}

/// Writes rows that are in memory and in the log alone into files, so that the next opening is quick. They are safe without it. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_flush(db: *const thalweg_db_t, error: *mut *mut thalweg_error_t) -> thalweg_code_t {
    // SAFETY: the handle is null or a database that is not freed yet, and `error` is null or may be written, as the header demands.
    unsafe { call(error, || object(db, "db")?.engine.flush()) }
}

/// Stops queries of other threads that run, and results that are not read to their end: they get `THALWEG_INTERRUPTED`. Safe from any thread; not
/// from a handler of signals.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_interrupt(db: *const thalweg_db_t) {
    let work = || {
        // SAFETY: the handle is null or a database that is not freed yet, as the header demands.
        unsafe { object(db, "db") }?.engine.interrupt();
        Ok(())
    };
    // SAFETY: there is no place for an error.
    unsafe { call(std::ptr::null_mut(), work) };
}

/// Writes line protocol: `measurement,tag=value field=1.5,other=2i 1700000000000000000`, a row a line. All rows are on disk when it returns. The
/// timestamps' `precision` is `ns` (also if it is empty), `us`, `ms` or `s`. `written` may be null. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_write_lines(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    lines: thalweg_str_t,
    precision: thalweg_str_t,
    written: *mut thalweg_written_t,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        // SAFETY: the handle is null or a database that is not freed yet, and texts are readable for the time of the call, as the header demands.
        let (db, database, lines) = unsafe { (object(db, "db")?, database.database()?, lines.bytes()) };
        // SAFETY: as above.
        let precision = match unsafe { precision.text("the precision") }? {
            "" => Precision::Nanosecond,
            name => Precision::from_name(name)
                .ok_or_else(|| Error::invalid(format!("the precision is {name:?}; it is ns, us, ms or s")))?,
        };
        // SAFETY: `written` is null or may be written, as the header demands.
        unsafe { report(written, &db.engine.write_lines(database, lines, precision)?) }
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}

/// Writes rows of a table that come as columns, all or none of them, but for rows that are wrong by themselves. All rows are on disk when it
/// returns. At most 4,194,304 rows at once. `written` may be null. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_write_columns(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    columns: *const thalweg_columns_t,
    written: *mut thalweg_written_t,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        // SAFETY: the handle is null or a database that is not freed yet, `columns` is null or readable with all that it points to, as the header
        // demands.
        let (db, database, columns) = unsafe { (object(db, "db")?, database.database()?, object(columns, "columns")?) };
        // SAFETY: as above.
        let table = unsafe { columns.table_columns() }?;
        // SAFETY: `written` is null or may be written, as the header demands.
        unsafe { report(written, &db.engine.write_columns(database, &table)?) }
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}

/// Writes the rows of a stream of Arrow's record batches to a table. The stream is read to its end and released, also on failure; rows before the
/// error are written.
///
/// `time` names the column of times (empty: `time` or `timestamp`), which has timestamps, dates, or integers of nanoseconds. The columns in `tags`
/// become tags and all others fields; with `tags` null columns are what the table has them for, and new ones of texts become tags.
///
/// `written` may be null. Safe from any thread, as far as the stream is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_write_arrow(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    table: thalweg_str_t,
    time: thalweg_str_t,
    tags: *const thalweg_str_t,
    tags_len: usize,
    stream: *mut ArrowArrayStream,
    written: *mut thalweg_written_t,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        if stream.is_null() {
            return Err(Error::invalid("stream is null"));
        }
        // SAFETY: it is not null, and a stream as Arrow's specification has it, as the header demands. It is moved from where it was first of all,
        // so that it is released whatever happens.
        let stream = unsafe { ArrowArrayStream::from_raw(stream) };
        // SAFETY: the handle is null or a database that is not freed yet, and texts are readable for the time of the call, as the header demands.
        let (db, database, table) =
            unsafe { (object(db, "db")?, database.database()?, table.text("the table's name")?) };
        // SAFETY: as above.
        let roles = unsafe { roles(time, tags, tags_len) }?;
        let reader = ArrowArrayStreamReader::try_new(stream);
        let reader = reader.map_err(|error| Error::invalid(format!("the stream cannot be read: {error}")))?;
        // SAFETY: `written` is null or may be written, as the header demands.
        unsafe { report(written, &db.engine.write_batches(database, table, reader, &roles)?) }
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}

/// Deletes the samples from `start_ns` to `end_ns`, both included, of all series that a selector as `cpu_usage{host="a"}` selects. They are gone
/// when it returns. `series` may be null; it gets the number of series. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_delete(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    selector: thalweg_str_t,
    start_ns: i64,
    end_ns: i64,
    series: *mut u64,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        // SAFETY: the handle is null or a database that is not freed yet, and texts are readable for the time of the call, as the header demands.
        let (db, database, selector) =
            unsafe { (object(db, "db")?, database.database()?, selector.text("the selector")?) };
        let deleted = db.engine.delete(database, selector, TimeRange::new(start_ns, end_ns))?;
        if !series.is_null() {
            // SAFETY: it is not null, so it may be written, as the header demands.
            unsafe { series.write(deleted) };
        }
        Ok(())
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}

/// # Safety
/// Texts are readable; `tags` is null or has `tags_len` of them.
unsafe fn roles(time: thalweg_str_t, tags: *const thalweg_str_t, tags_len: usize) -> Result<ColumnRoles, Error> {
    // SAFETY: the caller vouches for it.
    let time =
        Some(unsafe { time.text("the name of the column of times") }?.to_owned()).filter(|time| !time.is_empty());
    if tags.is_null() {
        return Ok(ColumnRoles { time, tags: None });
    }
    // SAFETY: the caller vouches for the array.
    let names = unsafe { elements(tags, tags_len, "tags") }?;
    // SAFETY: the caller vouches for its texts.
    let names = names.iter().map(|name| unsafe { name.text("the name of a tag") }.map(str::to_owned));
    Ok(ColumnRoles { time, tags: Some(names.collect::<Result<Vec<String>, Error>>()?) })
}

/// Tells the caller what was written; an error if rows were left out.
///
/// # Safety
/// `written` is null or may be written.
unsafe fn report(written: *mut thalweg_written_t, summary: &WriteSummary) -> Result<(), Error> {
    let WriteSummary { rows_written, values_written, rows_rejected, .. } = *summary;
    if !written.is_null() {
        // SAFETY: it is not null, and the caller vouches that it may be written.
        unsafe { written.write(thalweg_written_t { rows_written, values_written, rows_rejected }) };
    }
    summary.error().map_or(Ok(()), Err)
}
