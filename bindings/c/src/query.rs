//! Queries, whose results are streams of Arrow's record batches.

use arrow_array::ffi_stream::FFI_ArrowArrayStream as ArrowArrayStream;
use embedded::{Error, Query};

use crate::database::thalweg_db_t;
use crate::error::{call, object, thalweg_code_t, thalweg_error_t};
use crate::text::thalweg_str_t;

/// Runs statements of SQL; the result is the last one's table. A statement that gives none, as an INSERT, gives its tag in the column `status`.
/// `parameters` is a JSON array of the values of `$1`, `$2` …; empty: there are none.
///
/// `stream` is written over, not released before; the caller releases it. It may be read on any thread, one at a time, also after the database
/// is freed. Remarks on the result stand in the schema's metadata as `thalweg.warnings`. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_sql(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    text: thalweg_str_t,
    parameters: thalweg_str_t,
    stream: *mut ArrowArrayStream,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        // SAFETY: texts are readable for the time of the call, as the header demands.
        let (text, parameters) = unsafe { (text.text("the statement")?, parameters.text("the parameters")?) };
        // SAFETY: the handle, the texts and the stream are as the header demands.
        unsafe { run(db, database, Query::Sql { text, parameters }, stream) }
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}

/// Evaluates PromQL at one moment: a row for each series, with `time`, a column for each label, and `value` (or `histogram`). `stream` as for
/// `thalweg_sql`. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_promql(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    text: thalweg_str_t,
    time_ms: i64,
    stream: *mut ArrowArrayStream,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        // SAFETY: the text is readable for the time of the call, as the header demands.
        let text = unsafe { text.text("the expression") }?;
        // SAFETY: the handle, the texts and the stream are as the header demands.
        unsafe { run(db, database, Query::PromqlInstant { text, time_ms }, stream) }
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}

/// Evaluates PromQL at regular moments, from `start_ms` to `end_ms` every `step_ms`: a row for each series and moment. `stream` as for `thalweg_sql`.
/// Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_promql_range(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    text: thalweg_str_t,
    start_ms: i64,
    end_ms: i64,
    step_ms: i64,
    stream: *mut ArrowArrayStream,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        // SAFETY: the text is readable for the time of the call, as the header demands.
        let text = unsafe { text.text("the expression") }?;
        // SAFETY: the handle, the texts and the stream are as the header demands.
        unsafe { run(db, database, Query::PromqlRange { text, start_ms, end_ms, step_ms }, stream) }
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}

/// Runs statements of InfluxQL. The result is one table of all series: `iox::measurement`, `time`, tags and the other columns, as InfluxDB 3 has
/// it. `stream` as for `thalweg_sql`. Safe from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thalweg_influxql(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    text: thalweg_str_t,
    stream: *mut ArrowArrayStream,
    error: *mut *mut thalweg_error_t,
) -> thalweg_code_t {
    let work = || {
        // SAFETY: the text is readable for the time of the call, as the header demands.
        let text = unsafe { text.text("the statement") }?;
        // SAFETY: the handle, the texts and the stream are as the header demands.
        unsafe { run(db, database, Query::Influxql { text }, stream) }
    };
    // SAFETY: `error` is null or may be written, as the header demands.
    unsafe { call(error, work) }
}

/// # Safety
/// `db` is null or a database that is not freed yet, `database` is readable, `stream` is null or may be written.
unsafe fn run(
    db: *const thalweg_db_t,
    database: thalweg_str_t,
    query: Query<'_>,
    stream: *mut ArrowArrayStream,
) -> Result<(), Error> {
    if stream.is_null() {
        return Err(Error::invalid("stream is null"));
    }
    // SAFETY: the caller vouches for both.
    let (db, database) = unsafe { (object(db, "db")?, database.database()?) };
    let batches = ArrowArrayStream::new(Box::new(db.engine.query(database, query)?));
    // SAFETY: it is not null, and the caller vouches that it may be written; what was there is not dropped, for it may be nothing.
    unsafe { stream.write(batches) };
    Ok(())
}
