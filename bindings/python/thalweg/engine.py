"""The database in this process, without a server.

    import thalweg

    with thalweg.open("weather") as db:
        db.write("weather", frame)                                   # pandas, polars, pyarrow; texts become tags
        db.sql("SELECT station, max(celsius) FROM weather GROUP BY station").to_pandas()
        db.promql("avg(weather_celsius)", start=begin, end=end, step=60).to_polars()

One process at a time has a folder open for writing, any number with read_only=True; the threads of that process may share a Database. Calls release the interpreter's lock while they work.
"""

import datetime
import json
import os

from . import _engine
from .errors import EngineError

NS_PER_S = 1_000_000_000
FIRST_NS, LAST_NS = -(1 << 63), (1 << 63) - 1
STATUSES = ("value", "missing", "undefined")
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


class Database:
    """An open folder; it is made if there is none. Options are those of the server: memory_bytes_max, result_cache_memory_bytes_max,
    query_samples_max, query_helpers, lookback_ms, ahead_ms_max, accept_loss. With read_only=True the folder must be there, may be open elsewhere for
    writing, and stays as it is; refresh() sees what was written since."""

    def __init__(self, path, **options):
        self._database = _engine.Database(os.fspath(path), json.dumps(options) if options else "")

    def write(self, table, rows, *, tags=None, time=None, database="default"):
        """Writes rows to a table; they are on disk when it returns. The number of rows.

        Rows are whatever gives Arrow's stream (`__arrow_c_stream__`: pyarrow, pandas 2.2, polars, DuckDB, …), a dictionary of columns, or an older
        pandas frame. `time` names the column of times (else `time` or `timestamp`, or a frame's index of times). Columns in `tags` become
        tags and all others fields; without it columns are what the table has them for, and new ones of texts become tags.
        """
        written, _ = self._database.write(database, table, _as_stream(rows, time), time, None if tags is None else list(tags))
        return written

    def write_lines(self, lines, *, precision="ns", database="default"):
        """Writes line protocol, as a text or bytes; the number of rows."""
        data = lines.encode() if isinstance(lines, str) else bytes(lines)
        written, _ = self._database.write_lines(database, data, precision)
        return written

    def sql(self, text, parameters=(), *, database="default"):
        """Runs statements of SQL; the last one's table. Parameters are the values of $1, $2 …: numbers, texts, booleans, None, and times."""
        values = json.dumps([_parameter(value) for value in parameters]) if parameters else ""
        return Result(self._database.sql(database, text, values))

    def promql(self, text, time=None, *, start=None, end=None, step=None, database="default"):
        """Evaluates PromQL: at one time (now if there is none), or from start to end every step seconds. A row for each series and time."""
        if start is None and end is None and step is None:
            return Result(self._database.promql(database, text, _ns(time) // 1_000_000))
        if start is None or end is None or step is None or time is not None:
            raise TypeError("promql() takes a time, or start, end and step")
        step_s = step.total_seconds() if isinstance(step, datetime.timedelta) else step
        return Result(self._database.promql_range(database, text, _ns(start) // 1_000_000, _ns(end) // 1_000_000, round(step_s * 1000)))

    def influxql(self, text, *, database="default"):
        """Runs statements of InfluxQL; their series as one table, as InfluxDB 3 has it."""
        return Result(self._database.influxql(database, text))

    def series(self, selector, *, start=None, end=None, limit=0, database="default"):
        """The labels of the series that a selector as cpu_usage{host="a"} selects, each a dictionary; at most `limit`, 0 for all."""
        return self._database.series(database, selector, *_range(start, end), limit)

    def write_epoch(self, time, names, values, *, database):
        """Writes values of one epoch of a regular database (CREATE DATABASE … WITH (interval = '5m')): a value for each name, of all series or of some.
        They are on disk when it returns; several writes complete an epoch. The epoch's time, in nanoseconds."""
        values = values.tolist() if hasattr(values, "tolist") else list(values)
        written_ns, _, _ = self._database.write_epoch(database, _ns(time), list(names), values)
        return written_ns

    def remove_names(self, names, time, *, database):
        """Ends names of a regular database before the epoch of a time: their past stays. How many they were."""
        return self._database.remove_names(database, list(names), _ns(time))

    def epochs(self, name, *, start=None, end=None, database):
        """A series of a regular database by its name, in all epochs of a range: (times in nanoseconds, values, statuses), three lists. A status is
        "value", "missing" (nothing was written) or "undefined" (the name was not valid); the value is None then."""
        times, values, codes = self._database.name_epochs(database, name, *_range(start, end))
        statuses = [STATUSES[code] for code in codes]
        return times, [value if code == 0 else None for value, code in zip(values, codes)], statuses

    def epoch(self, time, *, database):
        """All series of a regular database that are valid in the epoch of a time: (the epoch's time in nanoseconds, values by name). The value of
        one for which nothing was written is None, unless the database has another one for that."""
        time_ns, names, values, missing = self._database.read_epoch(database, _ns(time))
        return time_ns, {**dict(zip(names, values)), **dict.fromkeys(missing)}

    def validity(self, pattern=None, *, database):
        """When names of a regular database are valid, by name and time, those that match a regular expression: dictionaries of name, index, from_ns
        and to_ns, which is None for a name that is valid for good."""
        found = self._database.name_validity(database, pattern)
        return [dict(zip(("name", "index", "from_ns", "to_ns"), one)) for one in found]

    def delete(self, selector, *, start=None, end=None, database="default"):
        """Deletes the samples in a range, both ends included, of the series that a selector selects; how many series they were."""
        return self._database.delete(database, selector, *_range(start, end))

    def export_rrd(self, selector, path, definition, *, step=300, database="default"):
        """Makes a file of RRDtool of the one series that a selector selects: its samples are the readings of the data source. The definition is what
        rrdtool create takes, as ["DS:load:GAUGE:120:0:U", "RRA:AVERAGE:0.5:1:1440"]; a step has so many seconds. There must be no file at the path;
        with the ending .xml it is what rrdtool restore takes."""
        self._database.export_rrd(database, selector, step, list(definition), path)

    def flush(self):
        """Writes what is in memory and in the log alone into files, so that the next opening is quick. Rows are safe without it."""
        self._database.flush()

    def refresh(self):
        """Sees what another process has written since the folder was opened with read_only=True. It takes as long as opening."""
        self._database.refresh()

    def interrupt(self):
        """Stops queries that other threads run, and results that are not read yet: they raise EngineError with the code interrupted."""
        self._database.interrupt()

    def close(self):
        """Interrupts, flushes and closes: the folder is free for others."""
        self._database.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Result:
    """A table. Everything that takes Arrow's stream takes it as it is: pyarrow.table(result), polars.DataFrame(result), duckdb.

    It is read once by that; to_arrow() keeps what it read, for itself and for the others."""

    def __init__(self, stream):
        self._stream = stream
        self._table = None

    @property
    def warnings(self):
        """Remarks: likely mistakes in PromQL, lost or folded rows."""
        return self._stream.warnings

    def __arrow_c_stream__(self, requested_schema=None):
        if self._table is not None:
            return self._table.__arrow_c_stream__(requested_schema)
        return self._stream.__arrow_c_stream__(requested_schema)

    def to_arrow(self):
        """A pyarrow.Table."""
        if self._table is None:
            import pyarrow

            self._table = pyarrow.table(self)
        return self._table

    def to_pandas(self, **options):
        """A pandas.DataFrame. Numbers without nulls are those of the result, not copies; pandas makes objects or strings of texts."""
        return self.to_arrow().to_pandas(**{"split_blocks": True, **options})

    def to_polars(self):
        """A polars.DataFrame."""
        import polars

        return polars.DataFrame(self)

    def to_numpy(self):
        """A dictionary of arrays. Numbers and times without nulls, in results of up to 1,048,576 rows, are the result's own memory and not
        writable; larger results are joined, and what has nulls or is no number is copied: nulls among numbers become NaN, texts objects."""
        return {name: _array(column) for name, column in zip(self.to_arrow().column_names, self.to_arrow().columns)}


def _array(column):
    import pyarrow

    chunk = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(chunk, pyarrow.ChunkedArray):
        chunk = chunk.chunk(0) if chunk.num_chunks else pyarrow.array([], column.type)
    is_own = chunk.null_count == 0 and not pyarrow.types.is_boolean(chunk.type) and not pyarrow.types.is_string(chunk.type)
    return chunk.to_numpy(zero_copy_only=is_own)


def _as_stream(rows, time):
    """Rows as something that has Arrow's stream."""
    index = getattr(rows, "index", None)
    if hasattr(index, "tz_localize") and not {"time", "timestamp", time} & {str(name).lower() for name in rows.columns}:
        rows = rows.rename_axis(index.name or time or "time").reset_index()
    if hasattr(rows, "__arrow_c_stream__"):
        return rows
    try:
        import pyarrow
    except ImportError:
        raise TypeError(f"{type(rows).__name__} does not give Arrow's stream (__arrow_c_stream__), and pyarrow is missing to make one") from None
    if hasattr(rows, "to_batches"):
        return pyarrow.RecordBatchReader.from_batches(rows.schema, rows.to_batches())
    if isinstance(rows, dict):
        return pyarrow.table(rows)
    if hasattr(rows, "iloc"):
        return pyarrow.Table.from_pandas(rows, preserve_index=False)
    raise TypeError(f"rows are a table of Arrow, pandas or polars, or a dictionary of columns, not {type(rows).__name__}")


def _ns(moment):
    """Nanoseconds since the epoch of a datetime (of UTC if it says no zone), a number of seconds, or a numpy.datetime64; of now for None."""
    if moment is None:
        moment = datetime.datetime.now(datetime.timezone.utc)
    if isinstance(moment, datetime.datetime):
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=datetime.timezone.utc)
        whole = moment - EPOCH
        nanosecond = getattr(moment, "nanosecond", 0)
        return (whole.days * 86_400 + whole.seconds) * NS_PER_S + whole.microseconds * 1000 + nanosecond
    if getattr(getattr(moment, "dtype", None), "kind", "") == "M":
        return int(moment.astype("datetime64[ns]").astype("int64"))
    return moment * NS_PER_S if isinstance(moment, int) else round(float(moment) * NS_PER_S)


def _range(start, end):
    return FIRST_NS if start is None else _ns(start), LAST_NS if end is None else _ns(end)


def _parameter(value):
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            value = value.replace(tzinfo=datetime.timezone.utc)
        return value.isoformat()
    return value.item() if hasattr(value, "item") else value


__all__ = ["Database", "EngineError", "Result"]
