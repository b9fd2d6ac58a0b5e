//! The module `thalweg._engine`: what `thalweg/engine.py` is made of, which users read.
//!
//! Calls release the interpreter's lock while they work. Tables come and go by Arrow's interface of capsules, which copies nothing. Errors are
//! `thalweg.errors.EngineError` with the code and the message of the engine.

#![allow(unsafe_code, reason = "a capsule of Arrow holds an address; the one block says why it may be used")]
#![allow(clippy::needless_pass_by_value, reason = "arguments come from Python as values")]

use arrow_array::RecordBatchReader;
use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use embedded::{
    Batches, ColumnRoles, Engine, EngineOptions, EpochColumn, EpochNames, Error, Precision, Query, RrdExport,
    TimeRange, WriteSummary, refusal,
};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::PoisonError;

/// The name of a capsule with a stream, as Arrow's interface of capsules has it.
const STREAM: &CStr = c"arrow_array_stream";

/// An open folder. All threads may share it.
#[pyclass(frozen, module = "thalweg._engine")]
struct Database {
    engine: Engine,
}

/// Rows written, values in them.
type Written = (u64, u64);

/// A name, its index, and the times from and to which it has that, nanoseconds.
type Validity = (String, u32, i64, Option<i64>);

/// The time of an epoch, names and their values, names without one.
type EpochOf<'py> = (i64, Vec<String>, Bound<'py, PyAny>, Vec<String>);

#[pymethods]
impl Database {
    /// Opens a folder, or makes one. Options are a JSON object.
    #[new]
    fn new(py: Python<'_>, path: &str, options: &str) -> PyResult<Self> {
        let engine = py.detach(|| Engine::open(EngineOptions::from_json(path, options)?));
        Ok(Self { engine: engine.map_err(|error| raised(py, &error))? })
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.engine.close()).map_err(|error| raised(py, &error))
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.engine.flush()).map_err(|error| raised(py, &error))
    }

    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.engine.refresh()).map_err(|error| raised(py, &error))
    }

    fn interrupt(&self) {
        self.engine.interrupt();
    }

    fn write_lines(&self, py: Python<'_>, database: &str, lines: &[u8], precision: &str) -> PyResult<Written> {
        let written = py.detach(|| {
            let precision = Precision::from_name(precision)
                .ok_or_else(|| Error::invalid(format!("the precision is {precision:?}; it is ns, us, ms or s")))?;
            self.engine.write_lines(database, lines, precision)
        });
        written.and_then(all_written).map_err(|error| raised(py, &error))
    }

    /// Writes the rows of an object with `__arrow_c_stream__`.
    fn write(
        &self,
        py: Python<'_>,
        database: &str,
        table: &str,
        rows: &Bound<'_, PyAny>,
        time: Option<String>,
        tags: Option<Vec<String>>,
    ) -> PyResult<Written> {
        let stream = stream_of(rows)?;
        let roles = ColumnRoles { time, tags };
        let written = py.detach(|| {
            let reader = ArrowArrayStreamReader::try_new(stream);
            let reader = reader.map_err(|error| Error::invalid(format!("the rows cannot be read: {error}")))?;
            self.engine.write_batches(database, table, reader, &roles)
        });
        written.and_then(all_written).map_err(|error| raised(py, &error))
    }

    fn sql(&self, py: Python<'_>, database: &str, text: &str, parameters: &str) -> PyResult<Stream> {
        self.run(py, database, Query::Sql { text, parameters })
    }

    fn influxql(&self, py: Python<'_>, database: &str, text: &str) -> PyResult<Stream> {
        self.run(py, database, Query::Influxql { text })
    }

    fn promql(&self, py: Python<'_>, database: &str, text: &str, time_ms: i64) -> PyResult<Stream> {
        self.run(py, database, Query::PromqlInstant { text, time_ms })
    }

    fn promql_range(
        &self,
        py: Python<'_>,
        database: &str,
        text: &str,
        start_ms: i64,
        end_ms: i64,
        step_ms: i64,
    ) -> PyResult<Stream> {
        self.run(py, database, Query::PromqlRange { text, start_ms, end_ms, step_ms })
    }

    /// The labels of series, each as a dictionary.
    fn series<'py>(
        &self,
        py: Python<'py>,
        database: &str,
        selector: &str,
        start_ns: i64,
        end_ns: i64,
        limit: usize,
    ) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let found = py.detach(|| self.engine.series(database, selector, TimeRange::new(start_ns, end_ns), limit));
        let as_dictionary = |labels: &embedded::Labels| {
            let dictionary = PyDict::new(py);
            labels.iter().try_for_each(|(name, value)| dictionary.set_item(name, value))?;
            Ok(dictionary)
        };
        found.map_err(|error| raised(py, &error))?.iter().map(as_dictionary).collect()
    }

    /// Writes values of an epoch; its time, values written, names that became valid.
    fn write_epoch(
        &self,
        py: Python<'_>,
        database: &str,
        time_ns: i64,
        names: Vec<String>,
        values: &Bound<'_, PyAny>,
    ) -> PyResult<(i64, u64, u64)> {
        let values = match values.extract::<Vec<i64>>() {
            Ok(values) => EpochColumn::Int(values),
            Err(_) => EpochColumn::Float(values.extract()?),
        };
        let written = py.detach(|| {
            let names: EpochNames = names.iter().map(String::as_str).collect();
            let written = self.engine.write_epoch(database, time_ns, &names, &values)?;
            refusal(&written).map_or(Ok((written.time_ns, written.written, written.added)), Err)
        });
        written.map_err(|error| raised(py, &error))
    }

    fn remove_names(&self, py: Python<'_>, database: &str, names: Vec<String>, time_ns: i64) -> PyResult<u64> {
        let names: EpochNames = names.iter().map(String::as_str).collect();
        py.detach(|| self.engine.remove_names(database, &names, time_ns)).map_err(|error| raised(py, &error))
    }

    /// Times, values and statuses of a name in a range.
    fn name_epochs<'py>(
        &self,
        py: Python<'py>,
        database: &str,
        name: &str,
        start_ns: i64,
        end_ns: i64,
    ) -> PyResult<(Vec<i64>, Bound<'py, PyAny>, Vec<u8>)> {
        let found = py.detach(|| self.engine.name_epochs(database, name, &TimeRange::new(start_ns, end_ns)));
        let found = found.map_err(|error| raised(py, &error))?;
        let statuses: Vec<u8> = found.statuses.iter().map(|status| *status as u8).collect();
        let values = match found.values {
            EpochColumn::Int(values) => values.into_pyobject(py)?,
            EpochColumn::Float(values) => values.into_pyobject(py)?,
        };
        Ok((found.times_ns, values, statuses.into_iter().collect()))
    }

    /// All series in the epoch of a time: its time, names and values, and names of those without a value.
    fn read_epoch<'py>(&self, py: Python<'py>, database: &str, time_ns: i64) -> PyResult<EpochOf<'py>> {
        let found: Result<_, Error> = py.detach(|| {
            let row = self.engine.epoch(database, time_ns)?;
            let texts = |names: &EpochNames| names.iter().map(str::to_owned).collect::<Vec<String>>();
            Ok((row.time_ns, texts(&row.names), row.values, texts(&row.missing)))
        });
        let (time_ns, names, values, missing) = found.map_err(|error| raised(py, &error))?;
        let values = match values {
            EpochColumn::Int(values) => values.into_pyobject(py)?,
            EpochColumn::Float(values) => values.into_pyobject(py)?,
        };
        Ok((time_ns, names, values, missing))
    }

    /// Names with their indexes and the times from and to which they are valid.
    fn name_validity(&self, py: Python<'_>, database: &str, pattern: Option<&str>) -> PyResult<Vec<Validity>> {
        let found = py.detach(|| self.engine.name_validity(database, pattern)).map_err(|error| raised(py, &error))?;
        Ok(found.into_iter().map(|found| (found.name, found.index, found.from_ns, found.to_ns)).collect())
    }

    /// Makes a file of RRDtool of a series.
    fn export_rrd(
        &self,
        py: Python<'_>,
        database: &str,
        selector: &str,
        step_s: u64,
        definition: Vec<String>,
        path: std::path::PathBuf,
    ) -> PyResult<()> {
        let definition: Vec<&str> = definition.iter().map(String::as_str).collect();
        let export = RrdExport { selector, step_s, definition: &definition, path: &path };
        py.detach(|| self.engine.export_rrd(database, &export)).map_err(|error| raised(py, &error))
    }

    fn delete(&self, py: Python<'_>, database: &str, selector: &str, start_ns: i64, end_ns: i64) -> PyResult<u64> {
        let deleted = py.detach(|| self.engine.delete(database, selector, TimeRange::new(start_ns, end_ns)));
        deleted.map_err(|error| raised(py, &error))
    }
}

impl Database {
    fn run(&self, py: Python<'_>, database: &str, query: Query<'_>) -> PyResult<Stream> {
        let batches = py.detach(|| self.engine.query(database, query)).map_err(|error| raised(py, &error))?;
        Ok(Stream { warnings: batches.warnings().to_vec(), batches: Mutex::new(Some(batches)) })
    }
}

/// The result of a query, until it is taken.
#[pyclass(frozen, module = "thalweg._engine")]
struct Stream {
    #[pyo3(get)]
    warnings: Vec<String>,
    batches: Mutex<Option<Batches>>,
}

#[pymethods]
impl Stream {
    /// The result as a capsule with a stream; once. The schema is the result's own, whatever is asked for.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(batches) = batches else {
            let message = "the result was read already: keep what to_arrow() gave, or run the query again";
            return Err(raised(py, &Error::invalid(message)));
        };
        let reader: Box<dyn RecordBatchReader + Send> = Box::new(batches);
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), STREAM)
    }
}

/// The stream of an object, moved out of its capsule.
fn stream_of(rows: &Bound<'_, PyAny>) -> PyResult<FFI_ArrowArrayStream> {
    let capsule = rows.call_method0("__arrow_c_stream__")?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let address = capsule.pointer_checked(Some(STREAM))?;
    // SAFETY: a capsule of this name holds the address of a stream, which is ours to move: that is Arrow's interface of capsules. What is left in its
    // place is a released one, which the capsule frees.
    Ok(unsafe { FFI_ArrowArrayStream::from_raw(address.as_ptr().cast()) })
}

/// The numbers of a write, or the error of rows that were left out.
fn all_written(summary: WriteSummary) -> Result<Written, Error> {
    summary.error().map_or(Ok((summary.rows_written, summary.values_written)), Err)
}

/// An error as Python has it.
fn raised(py: Python<'_>, error: &Error) -> PyErr {
    let made = py.import("thalweg.errors").and_then(|module| module.getattr("EngineError"));
    match made.and_then(|class| class.call1((error.code.name(), &error.message))) {
        Ok(made) => PyErr::from_value(made),
        Err(failed) => failed,
    }
}

/// The database in process: see `thalweg.open`.
#[pymodule]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", embedded::VERSION)?;
    module.add_class::<Database>()?;
    module.add_class::<Stream>()
}
