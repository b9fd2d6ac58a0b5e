"""The database in process: what it takes, what it gives, and what goes wrong. `engine.py FOLDER`, an empty one; polars and duckdb as far as they are there."""

import datetime
import pathlib
import subprocess
import sys
import threading
import time

import numpy
import pandas
import pyarrow
import thalweg
from thalweg.engine import Result

BEGIN = pandas.Timestamp("2026-01-01", tz="UTC")
FOLDER = pathlib.Path(sys.argv[1])


def raises(code, part, call):
    try:
        call()
    except thalweg.EngineError as error:
        assert isinstance(error, thalweg.ThalwegError)
        assert error.code == code, f"{error.code}: {error}"
        assert part in str(error), str(error)
    else:
        raise AssertionError(f"nothing was raised, not {code}")


def rows(result):
    return result.to_arrow().to_pylist()


def writes_frames(db):
    frame = pandas.DataFrame(
        {
            "time": pandas.date_range(BEGIN, periods=4, freq="1min"),
            "host": pandas.Categorical(["a", "b", "a", "b"]),
            "usage": [0.5, 1.5, None, 2.5],
            "cores": numpy.array([1, 2, 3, 4], dtype="int32"),
            "bytes": numpy.array([1, 2, 3, 4], dtype="uint16"),
            "up": [True, False, True, True],
        }
    )
    assert db.write("cpu", frame) == 4
    found = rows(db.sql("SELECT * FROM cpu ORDER BY time"))
    assert [row["host"] for row in found] == ["a", "b", "a", "b"]
    assert [row["usage"] for row in found] == [0.5, 1.5, None, 2.5]
    assert [row["cores"] for row in found] == [1, 2, 3, 4] and [row["bytes"] for row in found] == [1, 2, 3, 4]
    assert [row["up"] for row in found] == [True, False, True, True]
    assert found[1]["time"] == BEGIN + pandas.Timedelta("1min")
    assert {row["host"] for row in db.series("cpu_usage")} == {"a", "b"} and all("__name__" in row for row in db.series("cpu_usage"))

    # A table's columns stay what they are: integers for a field of floats, an index of times.
    later = pandas.DataFrame({"host": ["a"], "usage": [7]}, index=pandas.DatetimeIndex([BEGIN + pandas.Timedelta("1h")], name="when"))
    assert db.write("cpu", later, time="when") == 1
    assert rows(db.sql("SELECT usage FROM cpu ORDER BY time DESC LIMIT 1")) == [{"usage": 7.0}]
    plain = pandas.DataFrame({"level": [1.0]}, index=[BEGIN])
    assert db.write("river", plain) == 1


def writes_arrow(db):
    times = pyarrow.array([1_700_000_000, 1_700_000_001], pyarrow.timestamp("s"))
    table = pyarrow.table({"at": times, "rack": [7, 8], "note": ["x", None], "watts": pyarrow.array([1.5, 2.5], "float32")})
    assert db.write("power", table, time="at", tags=["rack"]) == 2
    assert rows(db.sql("SELECT rack, note, watts FROM power ORDER BY rack")) == [
        {"rack": "7", "note": "x", "watts": 1.5},
        {"rack": "8", "note": None, "watts": 2.5},
    ]
    # A stream of batches, a result of a query, a dictionary of columns.
    batches = (pyarrow.record_batch({"time": [number], "value": [float(number)]}) for number in range(5))
    reader = pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("time", pyarrow.int64()), ("value", pyarrow.float64())]), batches)
    assert db.write("steps", reader, database="other") == 5
    assert db.write("copied", db.sql("SELECT * FROM power")) == 2
    assert db.write("plain", {"time": numpy.array([1, 2]), "x": numpy.array([1.0, 2.0])}) == 2
    assert rows(db.sql("SELECT count(*) AS n FROM steps", database="other")) == [{"n": 5}]

    raises("invalid", "there is no column \"time\" among at", lambda: db.write("power", table))
    raises("invalid", "there is no column \"shelf\"", lambda: db.write("power", table, time="at", tags=["shelf"]))
    nested = pyarrow.table({"time": times, "x": [[1], [2]]})
    raises("invalid", "column \"x\" is of the type List", lambda: db.write("power", nested))
    nulls = pyarrow.table({"time": pyarrow.array([1, None]), "x": [1.0, 2.0]})
    raises("invalid", "column \"time\": row 2 has no time", lambda: db.write("power", nulls))
    bad = pyarrow.table({"time": times, "rack": ["ok", "line\nend"], "watts": [1.0, 2.0]})
    raises("rejected", "1 rows were left out, 1 are written: row 2: ", lambda: db.write("power", bad))
    wrong = pyarrow.table({"time": times, "rack": ["7", "7"], "watts": ["a", "b"]})
    raises("rejected", "2 rows were left out", lambda: db.write("power", wrong, tags=["rack"]))
    for value in [7, "text"]:
        try:
            db.write("power", value)
        except TypeError as error:
            assert "rows are a table" in str(error)
        else:
            raise AssertionError(value)


def writes_polars(db):
    try:
        import polars
    except ImportError:
        print("polars is missing", file=sys.stderr)
        return
    frame = polars.DataFrame({"time": [BEGIN.to_pydatetime()], "host": ["p"], "load": [0.75]})
    assert db.write("polars", frame) == 1
    result = db.sql("SELECT host, load FROM polars")
    back = result.to_polars()
    assert back.rows() == [("p", 0.75)]
    assert polars.DataFrame(db.promql("polars_load", BEGIN))["value"].to_list() == [0.75]


def copies_nothing(db):
    count = 300_000
    times = numpy.arange(count) * 1_000_000_000
    assert db.write("long", {"time": times, "x": numpy.arange(count, dtype="float64")}) == count
    result = db.sql("SELECT time, x FROM long ORDER BY time")
    table = result.to_arrow()
    assert table["x"].num_chunks == 1, "a result of this size is one batch"
    address = table["x"].chunk(0).buffers()[1].address
    arrays = result.to_numpy()
    assert arrays["x"].__array_interface__["data"][0] == address, "NumPy has a copy"
    assert arrays["time"].dtype == numpy.dtype("datetime64[ns]") and (arrays["time"].astype("int64") == times).all()
    assert result.to_pandas()["x"].to_numpy().__array_interface__["data"][0] == address, "pandas has a copy"
    assert (arrays["x"] == numpy.arange(count)).all()
    some = db.sql("SELECT usage, host, up FROM cpu WHERE time < $1 ORDER BY time", [BEGIN + pandas.Timedelta("10min")]).to_numpy()
    assert numpy.isnan(some["usage"][2]) and some["host"].tolist() == ["a", "b", "a", "b"] and some["up"].dtype == bool
    empty = db.sql("SELECT x FROM long WHERE x < 0").to_numpy()
    assert empty["x"].tolist() == []


def reads_once_unless_kept(db):
    result = db.sql("SELECT 1 AS one")
    assert isinstance(result, Result) and result.warnings == []
    assert pyarrow.table(result).to_pylist() == [{"one": 1}]
    raises("invalid", "was read already", lambda: pyarrow.table(result))
    kept = db.sql("SELECT 1 AS one")
    assert kept.to_arrow() is kept.to_arrow() and pyarrow.table(kept) == kept.to_arrow()


def queries(db):
    step = db.promql("cpu_usage", start=BEGIN, end=BEGIN + pandas.Timedelta("2min"), step=datetime.timedelta(minutes=1)).to_pandas()
    assert step.columns.tolist()[:2] == ["time", "__name__"] and len(step) == 5
    assert rows(db.promql("sum(cpu_usage)", BEGIN.timestamp())) == [{"time": BEGIN, "value": 0.5}]
    assert rows(db.promql("nothing", BEGIN)) == [] and db.promql("nothing", BEGIN).to_arrow().column_names == ["time", "value"]
    assert rows(db.promql("scalar(vector(7))"))[0]["value"] == 7
    assert db.promql("rate(cpu_usage[5m])", BEGIN + pandas.Timedelta("3min")).warnings, "PromQL says that the name is no counter's"
    assert rows(db.influxql("SELECT sum(cores) FROM cpu"))[0]["sum"] == 10
    assert rows(db.sql("INSERT INTO made (time, host, x) VALUES ('2026-01-01', 'a', 1.5)")) == [{"status": "INSERT 0 1"}]
    assert rows(db.sql("SELECT x FROM made WHERE host = $1 AND x < $2 AND time = $3", ["a", numpy.float64(2), BEGIN])) == [{"x": 1.5}]
    assert db.delete("made_x", end=BEGIN) == 1
    assert rows(db.sql("SELECT x FROM made")) == []
    raises("not_found", "nowhere", lambda: db.sql("SELECT * FROM nowhere"))
    raises("invalid", "parse error", lambda: db.promql("sum("))
    raises("unsupported", "accounts", lambda: db.sql("CREATE USER u WITH PASSWORD 'p'"))
    for arguments in [{"start": 0}, {"time": 0, "start": 0, "end": 1, "step": 1}]:
        try:
            db.promql("up", **arguments)
        except TypeError:
            continue
        raise AssertionError(arguments)


def lets_others_run(db):
    """A query that would take minutes is interrupted by another thread: it can only run if the query has let the interpreter go."""
    started, failures = threading.Event(), []

    def asks():
        started.set()
        try:
            db.promql("sum(quantile_over_time(0.5, long_x[2d]))", start=290_000, end=300_000, step=1)
        except thalweg.EngineError as error:
            failures.append(error.code)

    thread = threading.Thread(target=asks)
    thread.start()
    started.wait()
    deadline = time.monotonic() + 60
    # The query may not have begun: interrupt until it is over.
    while thread.is_alive() and time.monotonic() < deadline:
        db.interrupt()
        thread.join(0.01)
    thread.join()
    assert failures == ["interrupted"], failures
    unread = db.sql("SELECT * FROM cpu")
    db.interrupt()
    try:
        unread.to_arrow()
    except Exception as error:
        assert "canceled" in str(error), error
    else:
        raise AssertionError("an interrupted result was read")


def is_shared_by_threads(db):
    def works(number):
        for row in range(50):
            db.write_lines(f"load,thread={number} value={row} {row}", precision="s")

    threads = [threading.Thread(target=works, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rows(db.sql("SELECT count(*) AS n FROM load")) == [{"n": 200}]


def opens_and_closes():
    raises("invalid", "there is no option \"memory\"", lambda: thalweg.open(FOLDER / "data", memory=1))
    with thalweg.open(FOLDER / "data") as db:
        raises("locked", "", lambda: thalweg.open(FOLDER / "data"))
        db.flush()
    raises("closed", "closed", db.flush)
    db.close()


def keeps_epochs(db):
    minute, begin = 60_000_000_000, 1_700_000_040_000_000_000

    def at(ns):
        return numpy.datetime64(ns, "ns")

    db.sql("CREATE DATABASE dns WITH (interval = '1m', value = int, overwrite = refuse)")
    assert db.write_epoch(at(begin + 5), ["a.it", "b.it"], [3, 5], database="dns") == begin
    # A part of an epoch, then the rest of it.
    db.write_epoch(at(begin + minute), ["b.it"], numpy.array([6]), database="dns")
    db.write_epoch(at(begin + minute), ["c.it"], [1], database="dns")
    raises("rejected", "b.it", lambda: db.write_epoch(at(begin), ["b.it", "d.it"], [7, 8], database="dns"))
    assert db.remove_names(["a.it"], at(begin + 2 * minute), database="dns") == 1
    db.write_epoch(at(begin + 2 * minute), ["b.it"], [7], database="dns")
    db.write_epoch(at(begin + 3 * minute), ["a.it"], [9], database="dns")
    times, values, statuses = db.epochs("a.it", database="dns")
    assert times == [begin + number * minute for number in range(4)]
    assert values == [3, None, None, 9]
    assert statuses == ["value", "missing", "undefined", "value"]
    assert db.epochs("a.it", start=at(begin + minute), end=at(begin + minute), database="dns") == ([begin + minute], [None], ["missing"])
    assert db.epoch(at(begin + 7), database="dns") == (begin, {"a.it": 3, "b.it": 5, "d.it": 8})
    assert db.epoch(at(begin + minute), database="dns") == (begin + minute, {"b.it": 6, "c.it": 1, "a.it": None, "d.it": None})
    raises("invalid", "is not regular", lambda: db.epoch(at(begin), database="default"))
    first, second = db.validity("a.*", database="dns")
    assert (first["name"], first["from_ns"], first["to_ns"]) == ("a.it", begin, begin + 2 * minute)
    assert (second["from_ns"], second["to_ns"]) == (begin + 3 * minute, None)
    raises("not_found", "\"e.it\"", lambda: db.epochs("e.it", database="dns"))
    raises("invalid", "is not regular", lambda: db.epochs("a.it", database="default"))


def exports_rrd(db):
    db.write_lines("\n".join(f"gauge,host=a value={row} {1_700_000_000 + row * 60}" for row in range(1, 21)), precision="s")
    definition = ["DS:load:GAUGE:120:U:U", "RRA:LAST:0.5:1:30"]
    for ending in ["rrd", "xml"]:
        path = FOLDER / f"gauge.{ending}"
        db.export_rrd('gauge{host="a"}', path, definition, step=60)
        assert path.stat().st_size > 500
        raises("invalid", str(path), lambda: db.export_rrd("gauge", path, definition, step=60))
    raises("invalid", "matches 0 series", lambda: db.export_rrd("none", FOLDER / "none.rrd", definition))


READER = """
import sys, thalweg
with thalweg.open(sys.argv[1], read_only=True) as db:
    count, seen = lambda: db.sql("SELECT count(*) AS n FROM shared").to_arrow()["n"][0].as_py(), 0
    try:
        db.write_lines("shared v=1")
    except thalweg.EngineError as error:
        assert error.code == "invalid" and "reading only" in str(error), error
    else:
        raise AssertionError("it writes")
    while count() < 200:
        db.refresh()
        assert count() >= seen
        seen = count()
print("read")
"""


def is_read_by_other_processes(db):
    db.write_lines("shared v=0 0", precision="s")
    readers = [subprocess.Popen([sys.executable, "-c", READER, str(FOLDER / "data")], stdout=subprocess.PIPE) for _ in range(2)]
    for row in range(1, 200):
        db.write_lines(f"shared v={row} {row}", precision="s")
        if row % 20 == 0:
            db.flush()
    for reader in readers:
        assert reader.communicate()[0] == b"read\n" and reader.returncode == 0
    db.refresh()


opens_and_closes()
with thalweg.open(FOLDER / "data", query_samples_max=20_000_000) as db:
    for test in [writes_frames, writes_arrow, writes_polars, copies_nothing, reads_once_unless_kept, queries, lets_others_run, is_shared_by_threads, keeps_epochs, exports_rrd, is_read_by_other_processes]:
        test(db)
with thalweg.open(str(FOLDER / "data")) as db:
    assert rows(db.sql("SELECT count(*) AS n FROM long")) == [{"n": 300_000}]
for value in [1, 2]:
    with thalweg.open(FOLDER / "one.tsdb") as db:
        db.write_lines(f"one v={value} {value}", precision="s")
        assert rows(db.sql("SELECT count(*) AS n FROM one")) == [{"n": value}]
assert (FOLDER / "one.tsdb").is_file()
print("well")
